"""MJCF: MuJoCo's models, compiled by MuJoCo and read into a builder.

MuJoCo resolves defaults, units, orientations and inertias from shapes; what is read here is its
compiled model. Source: MuJoCo's documentation, "Computation" and "XML Reference".
"""

import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, wraps
from typing import Any, Literal

import numpy as np

from ..algebra.calls import public
from ..build.builder import SystemBuilder
from ..couplings import shapes
from ..couplings.linear import Slider
from ..couplings.rigid import Fixed
from ..couplings.rotary import Ball, Hinge
from ..laws.drives import Armature
from ..laws.friction import DryFriction
from ..laws.law import Law
from ..laws.limits import Limits
from ..laws.springs import Damping, SpringDamper
from ..laws.transmissions import PolynomialRelation, Weighted
from ..model.system import WORLD
from .errors import LoadError, Refuse, refusing
from .files import Roots
from .fluid import InertiaBoxDrag
from .geometry import (
    Box,
    Capsule,
    Cylinder,
    Mesh,
    Plane,
    Shape,
    Sphere,
    Visual,
    ellipsoid,
    height_mesh,
)
from .mechanism import IDENTITY, Assembly, Connection, Frame, Laws, Link, product
from .mjcf_actuators import read_actuators
from .mjcf_source import Prepared
from .model import Model
from .report import Report
from .touching import read_hull
from .xml import FileLimits, read_source, read_xml

# Impedances are kept off 0 and 1, as in MuJoCo.
LEAST_IMPEDANCE, MOST_IMPEDANCE = 1e-4, 0.9999
# Below this a number counts as 0 in MuJoCo, and no less friction is in its contacts.
LEAST, LEAST_FRICTION = 1e-15, 1e-5
# In place of a `solref` whose numbers differ in sign.
DEFAULT_SOLREF = 0.02, 1.0
# What MuJoCo's flag "constraint" disables together.
CONSTRAINTS = ("EQUALITY", "FRICTIONLOSS", "LIMIT", "CONTACT")
# Geoms of higher groups are hidden unless asked for, as in MuJoCo's viewer.
VISIBLE_GROUPS = 3
# Kinds of elements, with the lists of them in MuJoCo's specification.
LISTS = {
    **{"BODY": "bodies", "JOINT": "joints", "GEOM": "geoms", "SITE": "sites"},
    **{"EQUALITY": "equalities", "ACTUATOR": "actuators", "TENDON": "tendons"},
    "MESH": "meshes",
}
# Of tendons, what is skipped.
TENDON_FIELDS = ("stiffnesspoly", "dampingpoly", "springyield")
PLAIN = (0.5, 0.5, 0.5, 1.0)


@public
def load_mjcf(
    source: str | os.PathLike,
    *,
    roots: Iterable[str | os.PathLike] = (),
    contacts: bool | Literal["all"] = False,
    merge_fixed: bool = True,
    visuals: bool = True,
    strict: bool = False,
    laws: Laws | None = None,
    builder: SystemBuilder | None = None,
    prefix: str = "",
    limits: FileLimits | None = None,
) -> Model:
    """A mechanism from MJCF: a builder with its bodies, joints, laws and equality constraints.

    Body frames, names and coordinates are those of the file: a coordinate of a hinge or slide is
    its qpos, and starts at qpos0 (`ref`). The joints of one body become one joint with the
    coordinates of all, named "a+b": hinges that meet in a point a `Universal`, or at right angles a
    `Gimbal`; two slides and a hinge in a plane a `Planar`, whose coordinates may have another order
    (`Model.coordinates`); others a `Chain`. Free bodies have no joint. A ball joint is a `Ball`,
    whose coordinates are the rotation vector from qpos0.

    stiffness, springref     `SpringDamper`       damping           `Damping`
    armature                 `Armature`           frictionloss      `DryFriction`
    range                    `Limits`             actuatorfrcrange  max_effort
    connect, weld            `Ball`, `Fixed`      density, viscosity  `InertiaBoxDrag`
    gravity, timestep        builder, `Model`     site              `Model.frames`
    tendon of joints         `Weighted` with these laws
    equality of joints or tendons of joints       `Weighted`, `PolynomialRelation`
    actuator                 `Model.control`; with a position or velocity term, a `Servo` too

    `max_effort` bounds `Control.effort`, each servo of the file, and each `Servo` in `laws` that
    states no effort of its own.

    Softness. MuJoCo's constraint is a spring and damper of reference acceleration -b v - k r beside
    an inertia, R f = -b v - k r - a with R = (1 - d)/d times the inverse inertia that the
    constraint sees at qpos0. `Limits` and contacts get the stiffness k/R and the damping b/R at the
    largest impedance d of `solimp`: the same depth at rest where that is beyond the width of
    `solimp`, for pyramids of friction too, and the same decay. Left out are the inertia, which
    makes MuJoCo's stop softer while it is hit, and the lower impedance near the surface, which lets
    things rest up to some times as deep. Friction of contacts and friction loss are hard, where
    those of MuJoCo creep; it has a round cone for "elliptic", and for "pyramidal" the same μ along
    each tangent. Equality constraints are rigid, as joints of the builder are.

    A tendon with forces along it is a transmission of its name, or "tendon NAME" where a joint or
    equality has this name. Activations of first order are `Model.activation`.

    Not read, and listed in one `LoadWarning`: spatial tendons, muscles, other actuators that are
    not affine in length, speed and control, site and body transmissions, flexes, skins, plugins,
    sensors, keyframes, mocap bodies (they stand still), gravity compensation, limits
    of ball joints, cameras, lights, textures. Integrator, solver and its tolerances are choices of
    `step` and are not read.

    source: path of a file, or the XML itself
    roots: folders in which included files and meshes are looked for, and outside of which no file
        is opened
    contacts: let geoms touch the planes and height fields of the world where contype, conaffinity
        and exclude say so, and each other where a `<pair>` says so, with its numbers; "all": all
        geoms each other, which is slow where there are many. Kinds that have no gap function (see
        `shapes.touches`) do not touch. A mesh touches with its convex hull of 64 vertices at most,
        and below a height field there is no base
    merge_fixed, visuals, strict, builder, prefix, limits: as in `load_urdf`
    laws: as in `load_urdf`; a ball joint has the coordinates 0 to 2. A joint that the file has a
        servo for has two with one of `laws`, and one target from `Control.target` for both

    Raises: LoadError naming file, line and element as far as MuJoCo tells them; OSError for a file
        that cannot be opened; ImportError without the package mujoco; ValueError for other
        `contacts`, for `laws` that match no joint, with near names, and for bad laws.
    Warns: LoadWarning.
    """
    if contacts not in (True, False, "all"):
        raise ValueError(f"contacts {contacts!r} must be True, False or 'all'")
    try:
        import mujoco
    except ImportError as error:
        advice = "MJCF is compiled by mujoco: pip install 'jaxjoints[mjcf]'"
        raise ImportError(advice) from error
    sizes = FileLimits() if limits is None else limits
    roots = Roots(roots)
    data, name, folder = read_source(source, sizes)
    report = Report(name)
    with refusing(partial(LoadError, source=name)):
        root = read_xml(data, name, sizes)
        if root.tag != "mujoco":
            raise root.error("is no MJCF; its outermost element must be 'mujoco'")
        spec, compiled = _compiled(mujoco, Prepared(root, folder, roots, sizes, report))
        reader = _Reader(mujoco, spec, compiled, name, report, sizes)
        if builder is None:
            gravity = compiled.opt.gravity * (not reader.disabled("GRAVITY"))
            with refusing(partial(LoadError, source=name, element="option")):
                builder = SystemBuilder(gravity=gravity)
        links = reader.links() | reader.between()
        assembly = Assembly(builder, links, prefix, merge_fixed, balance_inertia=False)
        drives = read_actuators(reader)
        reader.servos = drives.of_joints
        assembly.add(reader.connections(), free=reader.free(), loops=reader.equalities_of_bodies())
        reader.add_equalities_of_coordinates(assembly)
        transmissions = reader.add_tendons(assembly, drives.of_tendons)
        reader.add_fluid(assembly)
        seen = reader.visuals(assembly) if visuals else ()
        reader.add_contacts(assembly, contacts)
        reader.list_skipped(visuals)
        frames = dict(assembly.frames)
        frames |= reader.sites(assembly)
        known, names = assembly.coordinates, reader.names["JOINT"]
        places = {j: known[joint] for j, joint in enumerate(names) if joint in known}
        actuators = drives.located(places, transmissions)
    assembly.add_laws({} if laws is None else laws, [joint for joint in names if joint in known])
    report.notes += assembly.notes
    report.tell(strict)
    return Model(
        name=root.attributes.get("model", ""),
        builder=builder,
        frames=frames,
        coordinates=assembly.coordinates,
        visuals=tuple(visual for visual, _ in seen),
        collisions=tuple(visual for visual, touches in seen if touches),
        actuated=tuple(dict.fromkeys(names[j] for read in drives.reads for j, _ in read.arms)),
        actuators=actuators,
        timestep=float(compiled.opt.timestep),
        skipped=report.skipped,
        notes=tuple(report.notes),
    )


def _compiled(mujoco: Any, prepared: Prepared) -> tuple[Any, Any]:
    """MuJoCo's specification and compiled model of a prepared file."""
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            spec = mujoco.MjSpec.from_string(prepared.text, assets=prepared.assets)
            model = spec.compile()
        prepared.report.notes += [f"MuJoCo says: {warning.message}" for warning in said]
        return spec, model
    except (ValueError, RuntimeError, mujoco.FatalError, UnicodeDecodeError) as error:
        text = " ".join(str(error).split())
        line = re.search(r"line (\d+)", text)
        element = re.search(r"Element (?:name )?('[^']*')", text)
        raise LoadError(
            f"MuJoCo says: {text}",
            source=prepared.source,
            line=int(line[1]) if line else None,
            element=element[1] if element else None,
        ) from error


def _reads(kind: str) -> Callable:
    """For a method of `_Reader` that reads element i of a kind: whatever goes wrong in it is the
    LoadError of this element.
    """

    def decorated(method: Callable) -> Callable:
        @wraps(method)
        def read(self: "_Reader", i: int, *others: Any) -> Any:
            with refusing(self.refuse(kind, i)):
                return method(self, i, *others)

        return read

    return decorated


class _Reader:
    """Reads MuJoCo's compiled model `m`; its specification knows the lines of the file."""

    def __init__(
        self, mujoco: Any, spec: Any, m: Any, source: str, report: Report, limits: FileLimits
    ):
        self.mujoco, self.m, self.source, self.report = mujoco, m, source, report
        self.kind = {
            name: int(value)
            for family in ("Joint", "Geom", "Trn", "Dyn", "Gain", "Bias", "Eq", "Wrap", "Obj")
            for name, value in getattr(mujoco, f"mjt{family}").__members__.items()
        }
        counts = {
            **{"BODY": m.nbody, "JOINT": m.njnt, "GEOM": m.ngeom, "SITE": m.nsite},
            **{"EQUALITY": m.neq, "ACTUATOR": len(m.actuator_trntype), "TENDON": m.ntendon},
            "MESH": m.nmesh,
        }
        self.lines = {
            kind: {
                i: int(line[1])
                for i, element in enumerate(getattr(spec, elements))
                if (line := re.fullmatch(r"line (\d+)", element.info))
            }
            for kind, elements in LISTS.items()
        }
        self.names = {kind: self._names(kind, n, limits.name) for kind, n in counts.items()}
        # Of each mesh that touches, once.
        self.hulls: dict[int, shapes.ConvexMesh | None] = {}
        # Makers of laws by joint, for `connections`.
        self.servos: Mapping[int, Callable[[int], Law]] = {}

    def _names(self, kind: str, count: int, most: int) -> list[str]:
        found: list[str] = []
        identity = self.kind[f"mjOBJ_{kind}"]
        given = [self.mujoco.mj_id2name(self.m, identity, i) or "" for i in range(count)]
        taken = set(given)
        for i, name in enumerate(given):
            if len(name) > most:
                raise self._error(kind, i, name[:20])(f"name is longer than {most}")
            if not name:
                name = f"{kind.lower()} {i}"
                while name in taken:
                    name += "'"
                taken.add(name)
            found.append(name)
        return found

    def refuse(self, kind: str, i: int) -> Refuse:
        """The error that element i of a kind makes."""
        return self._error(kind, i, self.names[kind][i])

    def skip(self, kind: str, i: int, what: str = "", after: str = "") -> None:
        """List element i of a kind, or what of it, as not simulated.

        what, after: stand before and after its name
        """
        name = f"{kind.lower()} {self.names[kind][i]!r}"
        self.report.skip(f"{what}{name}{after}", self.lines[kind].get(i))

    def note(self, kind: str, i: int, sentence: str) -> None:
        """List what is changed in element i of a kind."""
        line = self.lines[kind].get(i)
        place = "" if line is None else f" (in line {line})"
        self.report.notes.append(f"{kind.lower()} {self.names[kind][i]!r}{place}: {sentence}")

    def _error(self, kind: str, i: int, name: str) -> Refuse:
        element, line = f"{kind.lower()} {name!r}", self.lines[kind].get(i)
        return partial(LoadError, source=self.source, line=line, element=element)

    def disabled(self, flag: str) -> bool:
        """Whether the file disables a part of MuJoCo's computation."""
        if flag in CONSTRAINTS and self.disabled("CONSTRAINT"):
            return True
        bit = getattr(self.mujoco.mjtDisableBit, f"mjDSBL_{flag}", None)
        if bit is None and flag in ("SPRING", "DAMPER"):
            # Before MuJoCo 3.3.1 both are one flag.
            bit = self.mujoco.mjtDisableBit.mjDSBL_PASSIVE
        return bool(self.m.opt.disableflags & int(bit))

    def optional(self, field: str) -> np.ndarray:
        """An array that not all versions of MuJoCo have."""
        return np.asarray(getattr(self.m, field, np.zeros(0)))

    # Bodies and joints

    def _body(self, i: int) -> str:
        """Name of body i as a link; body 0 is the world."""
        return WORLD if i == 0 else self.names["BODY"][i]

    def links(self) -> dict[str, Link]:
        """The bodies; the world is one without mass."""
        links = [self._link(i) for i in range(self.m.nbody)]
        for link in links[1:]:
            if link.name == WORLD:
                raise link.refuse("this name stands for the world; choose another")
        return {link.name: link for link in links}

    @_reads("BODY")
    def _link(self, i: int) -> Link:
        m, name, refuse = self.m, self._body(i), self.refuse("BODY", i)
        R = _matrix(m.body_iquat[i])
        mass = 0.0 if i == 0 else float(m.body_mass[i])
        inertia = R @ np.diag(m.body_inertia[i]) @ R.T
        return Link(name, refuse, mass, m.body_ipos[i].copy(), inertia, kind="body")

    def free(self) -> dict[str, Frame]:
        """Bodies with a free joint, and where they start."""
        return {
            self._body(i): self._pose_of_body(i) for i in range(1, self.m.nbody) if self._is_free(i)
        }

    def _joints_of(self, i: int) -> range:
        first = int(self.m.body_jntadr[i])
        return range(first, first + int(self.m.body_jntnum[i]))

    def _is_free(self, i: int) -> bool:
        joints = self._joints_of(i)
        return len(joints) == 1 and self.m.jnt_type[joints[0]] == self.kind["mjJNT_FREE"]

    def _pose_of_body(self, i: int) -> Frame:
        return _matrix(self.m.body_quat[i]), self.m.body_pos[i].copy()

    def connections(self) -> list[Connection]:
        """The joints: those of a body follow each other, with links without mass between."""
        return [c for i in range(1, self.m.nbody) for c in self._connections_of(i)]

    @_reads("BODY")
    def _connections_of(self, i: int) -> list[Connection]:
        m = self.m
        if self._is_free(i):
            self._check_free(self._joints_of(i)[0])
            return []
        parent, child = self._body(int(m.body_parentid[i])), self._body(i)
        joints, frame = self._joints_of(i), self._pose_of_body(i)
        if m.body_mocapid[i] >= 0:
            self.skip("BODY", i, "motion of mocap ", ", which stands still")
        if not joints:
            return [Connection(child, self.refuse("BODY", i), parent, child, None, frame)]
        found = []
        for k, j in enumerate(joints):
            end = child if k == len(joints) - 1 else f"{child} after {self.names['JOINT'][j]}"
            found.append(self._connection(j, parent, end, frame))
            parent, frame = end, IDENTITY
        return found

    def between(self) -> dict[str, Link]:
        """The links without mass between the joints of a body."""
        found = {}
        for i in range(1, self.m.nbody):
            for j in self._joints_of(i)[:-1]:
                name = f"{self._body(i)} after {self.names['JOINT'][j]}"
                found[name] = Link(name, self.refuse("BODY", i), kind="body")
        return found

    @_reads("JOINT")
    def _connection(self, j: int, parent: str, child: str, frame: Frame) -> Connection:
        m = self.m
        name, kind = self.names["JOINT"][j], m.jnt_type[j]
        axis, anchor = m.jnt_axis[j].copy(), (np.eye(3), m.jnt_pos[j].copy())
        start = float(m.qpos0[m.jnt_qposadr[j]])
        if kind == self.kind["mjJNT_BALL"]:
            coupling, C, q = Ball(), anchor, [0.0] * 3
        elif kind == self.kind["mjJNT_HINGE"]:
            # At qpos0 the body stands as the file says.
            turn = _about(axis, start), np.zeros(3)
            coupling, C, q = Hinge(axis), product(anchor, turn), [start]
        else:
            coupling, C, q = Slider(axis), product(anchor, (np.eye(3), start * axis)), [start]
        laws = self._laws(j)
        effort = None
        if m.jnt_actfrclimited[j]:
            lower, upper = m.jnt_actfrcrange[j]
            effort = float(max(abs(lower), abs(upper)))
            if lower != -upper:
                self.report.notes.append(
                    f"joint {name!r}: actuatorfrcrange {lower:g} to {upper:g} is ±{effort:g}"
                )
        return Connection(
            *(name, self.refuse("JOINT", j), parent, child, coupling),
            frame_D=product(frame, anchor),
            frame_C=C,
            laws=[list(laws) for _ in q],
            max_effort=[effort] * len(q),
            q=q,
        )

    def _check_free(self, j: int) -> None:
        m, dof = self.m, self.m.jnt_dofadr[j]
        for field in ("damping", "armature", "frictionloss"):
            if getattr(m, f"dof_{field}")[dof : dof + 6].any():
                self.skip("JOINT", j, f"{field} of free ")
        if m.jnt_stiffness[j]:
            self.skip("JOINT", j, "stiffness of free ")

    def _laws(self, j: int) -> list[Callable[[int], Law]]:
        """Laws of each coordinate of a joint."""
        m, name = self.m, self.names["JOINT"][j]
        dof, ball = int(m.jnt_dofadr[j]), m.jnt_type[j] == self.kind["mjJNT_BALL"]
        laws: list[Callable[[int], Law]] = []
        if m.jnt_stiffness[j] and not self.disabled("SPRING"):
            rest = 0.0 if ball else float(m.qpos_spring[m.jnt_qposadr[j]])
            laws.append(partial(_spring, float(m.jnt_stiffness[j]), rest))
        numbers = (
            ("damping", Damping, "DAMPER"),
            ("armature", Armature, None),
            ("frictionloss", DryFriction, "FRICTIONLOSS"),
        )
        for field, law, flag in numbers:
            value = float(getattr(m, f"dof_{field}")[dof])
            if value and not (flag and self.disabled(flag)):
                laws.append(partial(_on_coordinate, law, value))
                if ball:
                    self.report.notes.append(
                        f"joint {name!r}: {field} acts on the coordinates of the ball joint, which "
                        "differ from its angular velocity away from the start"
                    )
        if m.jnt_limited[j] and not self.disabled("LIMIT"):
            if ball:
                self.skip("JOINT", j, "limit of ball ")
            else:
                lower, upper = (float(x) for x in m.jnt_range[j])
                margin = float(m.jnt_margin[j])
                soft = spring_of(m.jnt_solref[j], m.jnt_solimp[j], float(m.dof_invweight0[dof]))
                laws.append(partial(_stop, lower + margin, upper - margin, *soft))
        for field in ("dof_dampingpoly", "dof_plasticity"):
            if self.optional(field)[dof : dof + 1].any():
                self.skip("JOINT", j, f"{field[4:]} of ")
        for field in ("jnt_stiffnesspoly", "jnt_springyield"):
            if self.optional(field)[j : j + 1].any():
                self.skip("JOINT", j, f"{field[4:]} of ")
        return laws + ([self.servos[j]] if j in self.servos else [])

    # Actuators, equalities, tendons

    def weights(self, tendon: int) -> list[tuple[int, float]] | None:
        """Joints of a tendon that is a sum of coordinates, each once, with their weights."""
        m = self.m
        first = int(m.tendon_adr[tendon])
        path = range(first, first + int(m.tendon_num[tendon]))
        if any(m.wrap_type[w] != self.kind["mjWRAP_JOINT"] for w in path):
            return None
        weights: dict[int, float] = {}
        for w in path:
            joint = int(m.wrap_objid[w])
            weights[joint] = weights.get(joint, 0.0) + float(m.wrap_prm[w])
        return list(weights.items())

    def equalities_of_bodies(self) -> list[Connection]:
        """connect and weld as joints that close loops."""
        kinds = self.kind["mjEQ_CONNECT"], self.kind["mjEQ_WELD"]
        return [self._closing(e) for e in range(self.m.neq) if self.m.eq_type[e] in kinds]

    @_reads("EQUALITY")
    def _closing(self, e: int) -> Connection:
        m = self.m
        connect = m.eq_type[e] == self.kind["mjEQ_CONNECT"]
        ends, frames = [], []
        sites = m.eq_objtype[e] == self.kind["mjOBJ_SITE"]
        for i in (int(m.eq_obj1id[e]), int(m.eq_obj2id[e])):
            ends.append(self._body(int(m.site_bodyid[i]) if sites else i))
            frames.append((_matrix(m.site_quat[i]), m.site_pos[i]) if sites else IDENTITY)
        data = m.eq_data[e]
        if not sites and connect:
            frames = [(np.eye(3), data[:3].copy()), (np.eye(3), data[3:6].copy())]
        elif not sites:
            anchor = np.eye(3), data[:3].copy()
            frames = [product((_matrix(data[6:10]), data[3:6].copy()), anchor), anchor]
        return Connection(
            *(self.names["EQUALITY"][e], self.refuse("EQUALITY", e), ends[0], ends[1]),
            Ball() if connect else Fixed(),
            frame_D=frames[0],
            frame_C=frames[1],
            laws=[[]] * 3 if connect else [],
            max_effort=[None] * 3 if connect else [],
            q=[0.0] * 3 if connect else [],
            enabled=self._switch(e),
        )

    def _switch(self, e: int) -> bool | None:
        """None for an equality that is on, False for one that starts switched off."""
        on = self.m.eq_active0[e] and not self.disabled("EQUALITY")
        return None if on else False

    def add_equalities_of_coordinates(self, assembly: Assembly) -> None:
        """y - y0 = polynomial of x - x0, for coordinates of joints or lengths of tendons y, x and
        their values y0, x0 in qpos0.
        """
        known = (self.kind["mjEQ_CONNECT"], self.kind["mjEQ_WELD"])
        for e, kind in enumerate(self.m.eq_type):
            if kind in (self.kind["mjEQ_JOINT"], self.kind["mjEQ_TENDON"]):
                self._add_equality(e, assembly)
            elif kind not in known:
                self.skip("EQUALITY", e, after=", whose kind is not simulated")

    @_reads("EQUALITY")
    def _add_equality(self, e: int, assembly: Assembly) -> None:
        m = self.m
        of_tendons = m.eq_type[e] == self.kind["mjEQ_TENDON"]
        ends = [int(m.eq_obj1id[e]), int(m.eq_obj2id[e])]
        sums = []
        for end in ends:
            weights = self.weights(end) if of_tendons and end >= 0 else [(end, 1.0)]
            if weights is None:
                rope = f", of the spatial tendon {self.names['TENDON'][end]!r}"
                self.skip("EQUALITY", e, after=rope)
                return
            sums.append(weights if end >= 0 else [])
        start = m.tendon_length0 if of_tendons else m.qpos0[m.jnt_qposadr]
        y0, x0 = (float(start[end]) if end >= 0 else 0.0 for end in ends)
        coefficients = m.eq_data[e, :5].copy()
        if not sums[1]:
            coefficients[1:] = 0.0
        # The polynomial of x, from that of x - x0.
        moved = np.polynomial.Polynomial(coefficients)(np.polynomial.Polynomial([-x0, 1.0])).coef
        moved = np.pad(moved, (0, 5 - len(moved)))
        moved[0] += y0
        joints, (leader, follower) = self._rows([sums[1], sums[0]], assembly)
        if moved[2:].any():
            record = PolynomialRelation(follower, leader, moved)
        else:
            record = Weighted(follower - moved[1] * leader, float(moved[0]))
            if not np.any(record.weights):
                self.skip("EQUALITY", e, after=", whose two sides move alike: it holds nothing")
                return
        name = assembly.prefix + self.names["EQUALITY"][e]
        assembly.builder.transmission(name, record, joints=joints, enabled=self._switch(e))

    def _rows(
        self, sums: list[list[tuple[int, float]]], assembly: Assembly
    ) -> tuple[tuple[str, ...], list[np.ndarray]]:
        """Joints of the builder that sums of coordinates need, and the weights of each sum for all
        coordinates of these.

        sums: joints of the file with their weights
        """
        names = self.names["JOINT"]
        places = {j: assembly.coordinates[names[j]] for weights in sums for j, _ in weights}
        joints = tuple(dict.fromkeys(joint for joint, _ in places.values()))
        starts = assembly.starts(joints)
        rows = np.zeros((len(sums), sum(assembly.dofs[joint] for joint in joints)))
        for row, weights in zip(rows, sums, strict=True):
            for j, weight in weights:
                joint, i = places[j]
                row[starts[joint] + i] += weight
        return joints, list(rows)

    def add_tendons(self, assembly: Assembly, servos: Mapping[int, Law]) -> dict[int, str]:
        """Tendons that are sums of coordinates, where a force acts along them.

        servos: by the number of the tendon

        Returns: of each of these tendons its transmission.
        """
        names = {t: self._add_tendon(t, assembly, servos.get(t)) for t in range(self.m.ntendon)}
        return {t: name for t, name in names.items() if name is not None}

    @_reads("TENDON")
    def _add_tendon(self, t: int, assembly: Assembly, servo: Law | None) -> str | None:
        name, weights = self.names["TENDON"][t], self.weights(t)
        if weights is None:
            self.skip("TENDON", t, "spatial ")
            return None
        for field in TENDON_FIELDS:
            if self.optional(f"tendon_{field}")[t : t + 1].any():
                self.skip("TENDON", t, f"{field} of ")
        laws = [*self._laws_of_tendon(t), *([] if servo is None else [servo])]
        if not laws:
            return None
        if not any(weight for _, weight in weights):
            self.skip("TENDON", t, after=", whose coefficients add up to 0: it pulls nothing")
            return None
        joints, (row,) = self._rows([weights], assembly)
        if name in self.names["JOINT"] or name in self.names["EQUALITY"]:
            name = f"tendon {name}"
        name = assembly.prefix + name
        assembly.builder.transmission(name, Weighted(row), joints=joints, laws=laws)
        return name

    def _laws_of_tendon(self, t: int) -> list[Law]:
        """Forces along a tendon that is a sum of coordinates."""
        m, laws = self.m, []
        low, high = (float(x) for x in m.tendon_lengthspring[t])
        if m.tendon_stiffness[t] and not self.disabled("SPRING"):
            k = float(m.tendon_stiffness[t])
            if low == high:
                laws.append(SpringDamper(k, rest=low))
            else:
                laws.append(Limits(low, high, stiffness=k, damping=0.0))
        numbers = (
            ("damping", Damping, "DAMPER"),
            ("frictionloss", DryFriction, "FRICTIONLOSS"),
            ("armature", Armature, None),
        )
        for field, law, flag in numbers:
            value = float(self.optional(f"tendon_{field}")[t : t + 1].sum())
            if value and not (flag and self.disabled(flag)):
                laws.append(law(value))
        if m.tendon_limited[t] and not self.disabled("LIMIT"):
            margin = float(m.tendon_margin[t])
            low, high = (float(x) for x in m.tendon_range[t])
            weight = float(m.tendon_invweight0[t])
            k, d = spring_of(m.tendon_solref_lim[t], m.tendon_solimp_lim[t], weight)
            laws.append(Limits(low + margin, high - margin, stiffness=k, damping=d))
        return laws

    def add_fluid(self, assembly: Assembly) -> None:
        """Drag of a medium on each body by the box of its inertia."""
        m = self.m
        if not (m.opt.density or m.opt.viscosity):
            if np.any(m.opt.wind):
                self.report.skip("wind without density and viscosity")
            return
        if np.asarray(m.geom_fluid).reshape(m.ngeom, -1)[:, 0].any():
            self.report.skip("fluidshape of geoms; the box of the inertia is taken")
        for i in range(1, m.nbody):
            self._add_drag(i, assembly)

    @_reads("BODY")
    def _add_drag(self, i: int, assembly: Assembly) -> None:
        m = self.m
        body, (position, rotation) = assembly.frames[self._body(i)]
        if body == WORLD or m.body_mass[i] <= 0:
            return
        a, b, c = m.body_inertia[i]
        lengths = np.sqrt(6 / m.body_mass[i] * np.maximum([b + c - a, a + c - b, a + b - c], 0))
        R, p = product((rotation, position), (_matrix(m.body_iquat[i]), m.body_ipos[i].copy()))
        drag = InertiaBoxDrag(
            R, p, lengths, float(m.opt.density), float(m.opt.viscosity), m.opt.wind.copy()
        )
        name = f"{assembly.prefix}medium on {self._body(i)}"
        assembly.builder.field(name, drag, bodies=body)

    # Shapes

    def sites(self, assembly: Assembly) -> dict[str, tuple[str, tuple[np.ndarray, np.ndarray]]]:
        """Body and pose of each site, by its name where no body has it."""
        found = {}
        for s, name in enumerate(self.names["SITE"]):
            body, (R, p) = self._site_frame(s, assembly)
            found[name if name not in assembly.frames else f"site {name}"] = body, (p, R)
        return found

    @_reads("SITE")
    def _site_frame(self, s: int, assembly: Assembly) -> tuple[str, Frame]:
        m = self.m
        body, (position, rotation) = assembly.frames[self._body(int(m.site_bodyid[s]))]
        within = _matrix(m.site_quat[s]), m.site_pos[s].copy()
        return body, product((rotation, position), within)

    def visuals(self, assembly: Assembly) -> list[tuple[Visual, bool]]:
        """Shapes of geoms, and whether they are meant to touch others."""
        seen = (self._visual(g, assembly) for g in range(self.m.ngeom))
        return [visual for visual in seen if visual is not None]

    @_reads("GEOM")
    def _visual(self, g: int, assembly: Assembly) -> tuple[Visual, bool] | None:
        m = self.m
        touches = bool(m.geom_contype[g] or m.geom_conaffinity[g])
        if m.geom_group[g] >= VISIBLE_GROUPS and not touches:
            return None
        shape = self._shape(g)
        if shape is None:
            self.report.skip("geom of a kind that is not shown")
            return None
        body, (R, p) = self._geom_frame(assembly, g)
        color = np.array(m.geom_rgba[g], float)
        if m.geom_matid[g] >= 0 and np.allclose(color, PLAIN):
            color = np.array(m.mat_rgba[m.geom_matid[g]], float)
        visual = Visual(body, (R, p), shape, tuple(np.clip(color, 0.0, 1.0).tolist()))
        return visual, touches

    def _geom_frame(self, assembly: Assembly, g: int) -> tuple[str, Frame]:
        m = self.m
        body, (position, rotation) = assembly.frames[self._body(int(m.geom_bodyid[g]))]
        frame = product((rotation, position), (_matrix(m.geom_quat[g]), m.geom_pos[g].copy()))
        U, _, Vt = np.linalg.svd(frame[0])
        return body, (U @ Vt, frame[1])

    def _shape(self, g: int) -> Shape | None:
        m = self.m
        a, b, c = (float(x) for x in m.geom_size[g])
        kind = m.geom_type[g]
        if kind == self.kind["mjGEOM_PLANE"]:
            return Plane()
        if kind == self.kind["mjGEOM_SPHERE"]:
            return Sphere(a)
        if kind == self.kind["mjGEOM_CAPSULE"]:
            return Capsule(a, 2 * b)
        if kind == self.kind["mjGEOM_CYLINDER"]:
            return Cylinder(a, 2 * b)
        if kind == self.kind["mjGEOM_BOX"]:
            return Box((2 * a, 2 * b, 2 * c))
        if kind == self.kind["mjGEOM_ELLIPSOID"]:
            return ellipsoid((a, b, c))
        if kind == self.kind["mjGEOM_MESH"]:
            i = int(m.geom_dataid[g])
            points = slice(m.mesh_vertadr[i], m.mesh_vertadr[i] + m.mesh_vertnum[i])
            faces = slice(m.mesh_faceadr[i], m.mesh_faceadr[i] + m.mesh_facenum[i])
            return Mesh(m.mesh_vert[points], m.mesh_face[faces].astype(int))
        if kind == self.kind["mjGEOM_HFIELD"]:
            return height_mesh(*self._heights(g))
        return None

    def add_contacts(self, assembly: Assembly, wanted: bool | str) -> None:
        """Contacts with planes and height fields, and those of `<pair>`; with "all" those of all
        geoms that have a gap function.
        """
        m = self.m
        if self.disabled("CONTACT"):
            return
        grounds = self.kind["mjGEOM_PLANE"], self.kind["mjGEOM_HFIELD"]
        unknown: Counter = Counter()
        left_out, added = 0, False
        pairs = [(p, *(int(m[p]) for m in (m.pair_geom1, m.pair_geom2))) for p in range(m.npair)]
        pairs += [(None, *both) for both in self._meeting()]
        for pair, one, other in pairs:
            if pair is not None and len({self._carrier(assembly, g) for g in (one, other)}) == 1:
                self.report.skip("contact pair of geoms that are fixed to each other")
                continue
            if m.geom_type[other] in grounds:
                one, other = other, one
            on_ground = m.geom_type[one] in grounds
            if not wanted or not (on_ground or pair is not None or wanted == "all"):
                left_out += 1
            elif self._add_contact(other, one, pair, assembly):
                added = True
            else:
                names = sorted(self._kind_of(g) for g in (one, other))
                unknown["-".join(names)] += 1
        if left_out:
            advice = (
                "contacts='all' adds those of bodies with each other"
                if wanted
                else "contacts=True adds those with planes, height fields and pairs of the file"
            )
            self.report.skip(f"contact of {left_out} pairs of geoms; {advice}")
        for names, count in sorted(unknown.items()):
            self.report.skip(f"contact of {count} pairs of geoms {names}, without a gap function")
        if added:
            self._list_skipped_of_contacts()

    def _list_skipped_of_contacts(self) -> None:
        """List what geoms and pairs say of contacts that are added, and what is not read."""
        m = self.m
        fields = "geom_surfacevel", "geom_adhesion", "pair_adhesion", "pair_solreffriction"
        for field in fields:
            if self.optional(field).any():
                kind, what = field.split("_")
                self.report.skip(f"{what} of {kind}s")
        if m.opt.enableflags & int(self.mujoco.mjtEnableBit.mjENBL_OVERRIDE):
            self.report.skip("override of what contacts are like")

    def _carrier(self, assembly: Assembly, g: int) -> str:
        """The body of the builder that carries a geom."""
        return assembly.frames[self._body(int(self.m.geom_bodyid[g]))][0]

    def _kind_of(self, g: int) -> str:
        """Name of the kind of a geom."""
        kind = self.m.geom_type[g]
        prefix = "mjGEOM_"
        names = {n: name for name, n in self.kind.items() if name.startswith(prefix)}
        return names.get(int(kind), str(kind)).removeprefix(prefix).lower()

    def _meeting(self) -> Iterator[tuple[int, int]]:
        """Pairs of geoms that may touch, as MuJoCo chooses them beside those that are named."""
        m = self.m
        excluded = {int(x) for x in m.exclude_signature}
        named = {frozenset(pair) for pair in zip(m.pair_geom1, m.pair_geom2, strict=True)}
        welded = [int(m.body_weldid[body]) for body in m.geom_bodyid]
        above = [int(m.body_weldid[m.body_parentid[body]]) for body in welded]
        for g in range(m.ngeom):
            for f in range(g):
                meet = m.geom_contype[g] & m.geom_conaffinity[f]
                meet = meet or m.geom_contype[f] & m.geom_conaffinity[g]
                ids = sorted(int(m.geom_bodyid[x]) for x in (f, g))
                if not meet or welded[f] == welded[g] or (ids[0] << 16) + ids[1] in excluded:
                    continue
                next_to = above[f] == welded[g] or above[g] == welded[f]
                if next_to and welded[f] and welded[g] and not self.disabled("FILTERPARENT"):
                    continue
                if frozenset((f, g)) not in named:
                    yield f, g

    @_reads("GEOM")
    def _add_contact(self, other: int, one: int, pair: int | None, assembly: Assembly) -> bool:
        """Let two geoms touch, of which `one` may be the ground; False without a gap function.

        pair: index of the `<pair>` that names them, or None
        """
        names = self.names["GEOM"]
        parent, (R_D, p_D) = self._geom_frame(assembly, one)
        child, (R_C, p_C) = self._geom_frame(assembly, other)
        if child == WORLD:
            one, other, parent, child = other, one, child, parent
            R_C, p_C, R_D, p_D = R_D, p_D, R_C, p_C
        shape_C, shape_D = self._touching(other), self._touching(one)
        if shape_C is None or shape_D is None or shapes.candidates(shape_C, shape_D) is None:
            return False
        surface = self._surface(one, other) if pair is None else self._surface_of_pair(pair)
        assembly.builder.contact(
            f"{assembly.prefix}{names[other]} on {names[one]}",
            *(shape_C, shape_D),
            child=child,
            parent=parent,
            frame_C=(p_C, R_C),
            frame_D=(p_D, R_D),
            **surface,
        )
        return True

    def _touching(self, g: int) -> shapes.Shape | None:
        """The shape that touches in place of a geom."""
        a, b, c = (float(x) for x in self.m.geom_size[g])
        kind = int(self.m.geom_type[g])
        if kind == self.kind["mjGEOM_MESH"]:
            return self._hull(int(self.m.geom_dataid[g]))
        if kind == self.kind["mjGEOM_HFIELD"]:
            heights, size = self._heights(g)
            return shapes.HeightField(heights, size) if min(heights.shape) > 2 else None
        makers: dict[int, Callable[[], shapes.Shape]] = {
            self.kind["mjGEOM_PLANE"]: shapes.HalfSpace,
            self.kind["mjGEOM_SPHERE"]: lambda: shapes.Sphere(a),
            self.kind["mjGEOM_CAPSULE"]: lambda: shapes.Capsule(a, 2 * b),
            self.kind["mjGEOM_CYLINDER"]: lambda: shapes.Cylinder(a, 2 * b),
            self.kind["mjGEOM_BOX"]: lambda: shapes.Box((2 * a, 2 * b, 2 * c)),
        }
        return makers[kind]() if kind in makers else None

    def _heights(self, g: int) -> tuple[np.ndarray, np.ndarray]:
        """Heights of a height field [m], along x and y, and its size [m]."""
        m, i = self.m, int(self.m.geom_dataid[g])
        rows, columns = int(m.hfield_nrow[i]), int(m.hfield_ncol[i])
        start = int(m.hfield_adr[i])
        data = np.asarray(m.hfield_data[start : start + rows * columns], float)
        x, y, top, _ = (float(x) for x in m.hfield_size[i])
        return top * data.reshape(rows, columns).T, np.array([2 * x, 2 * y])

    def _hull(self, i: int) -> shapes.Shape | None:
        """The convex hull of a mesh; None for a flat one."""
        if i not in self.hulls:
            m = self.m
            points = m.mesh_vert[m.mesh_vertadr[i] : m.mesh_vertadr[i] + m.mesh_vertnum[i]]
            self.hulls[i] = read_hull(f"mesh {self.names['MESH'][i]!r}", points, self.report)
        return self.hulls[i]

    def _surface(self, one: int, other: int) -> dict[str, Any]:
        """Friction and softness of what two geoms touch with, for `SystemBuilder.contact`."""
        m, pair = self.m, [one, other]
        # Geoms touch where their distance is the sum of their margins.
        margin = float(self.m.geom_margin[one] + self.m.geom_margin[other])
        first, second = (int(m.geom_priority[x]) for x in pair)
        if first != second:
            # Of two geoms the one of higher priority counts.
            pair = [one if first > second else other]
        solref, solimp = (
            np.array([getattr(m, field)[x] for x in pair])
            for field in ("geom_solref", "geom_solimp")
        )
        # Otherwise the means with the weights `solmix`, of which 0 counts beside 0 alone.
        weights = np.array([m.geom_solmix[x] for x in pair])
        weights = np.where(weights < LEAST, 0.0, weights)
        weights = weights if weights.any() else np.ones(len(pair))
        weights = weights / weights.sum()
        mixed = weights @ solref if (solref[:, 0] > 0).all() else solref.min(axis=0)
        slide, spin, roll = np.max([m.geom_friction[x] for x in pair], axis=0)
        dimension = max(int(m.geom_condim[x]) for x in pair)
        friction = np.array([slide, slide, spin, roll, roll])
        return self._contact(one, other, friction, dimension, mixed, weights @ solimp, margin)

    def _surface_of_pair(self, i: int) -> dict[str, Any]:
        """The same of a `<pair>`, which has numbers of its own."""
        m = self.m
        geoms = int(m.pair_geom1[i]), int(m.pair_geom2[i])
        softness = m.pair_solref[i], m.pair_solimp[i], float(m.pair_margin[i])
        return self._contact(*geoms, m.pair_friction[i], int(m.pair_dim[i]), *softness)

    def _contact(
        self,
        one: int,
        other: int,
        friction: np.ndarray,
        dimension: int,
        solref: np.ndarray,
        solimp: np.ndarray,
        margin: float,
    ) -> dict[str, Any]:
        """Arguments of `SystemBuilder.contact`.

        friction: along two tangents, about the normal and about two tangents; dimension: `condim`
        """
        m = self.m
        inverse = sum(float(m.body_invweight0[m.geom_bodyid[x], 0]) for x in (one, other))
        share = 1.0
        if dimension >= 3 and m.opt.cone == int(self.mujoco.mjtCone.mjCONE_PYRAMIDAL):
            # The 2 (dimension - 1) edges of a pyramid, each a row with 2 μ² (1 + μ²) of this,
            # share the normal force.
            μ = max(float(friction[0]), LEAST_FRICTION)
            inverse *= 1 + μ**2
            share = μ**2 / (max(float(m.opt.impratio), LEAST) * (dimension - 1))
        stiffness, damping = spring_of(solref, solimp, inverse, share)
        slides, rolls = (tuple(float(x) for x in friction[at]) for at in ([0, 1], [3, 4]))
        alike = slides[0] == slides[1]
        elliptic = m.opt.cone == int(self.mujoco.mjtCone.mjCONE_ELLIPTIC)
        if elliptic and not alike and dimension >= 3:
            names = " and ".join(repr(self.names["GEOM"][g]) for g in (one, other))
            self.report.notes.append(
                f"pair of geoms {names}: its friction {slides} differs along the tangents, so that "
                "it is a pyramid in place of an elliptic cone"
            )
        return {
            "friction": (slides[0] if alike else slides) if dimension >= 3 else 0.0,
            "spinning": float(friction[2]) if dimension >= 4 else 0.0,
            "rolling": (rolls[0] if rolls[0] == rolls[1] else rolls) if dimension >= 6 else 0.0,
            "stiffness": stiffness,
            "damping": damping,
            "margin": margin,
            "cone": "round" if elliptic and alike else "pyramid",
        }

    def list_skipped(self, pictures: bool) -> None:
        """List what the model has and this reader does not.

        pictures: of what makes a picture too
        """
        m = self.m
        counts = {
            "keyframe": m.nkey,
            "flex": m.nflex,
            "skin": m.nskin,
            "gravcomp of bodies": int(np.count_nonzero(m.body_gravcomp)),
        }
        if pictures:
            counts |= {"camera": m.ncam, "light": m.nlight, "texture": m.ntex}
        for what, count in counts.items():
            if count:
                self.report.skip(f"{what} ({count})")


def spring_of(
    solref: np.ndarray, solimp: np.ndarray, inverse_inertia: float, share: float = 1.0
) -> tuple[float, float]:
    """Stiffness and damping of a constraint of MuJoCo, at its largest impedance.

    MuJoCo's least values stand in the denominators: a body that turns about its own centre has no
    inverse inertia for a force on it, and a time constant may be 0.

    solref: time constant [s] and damping ratio, or negative stiffness and damping per inertia
    solimp: impedances, of which the second is the largest
    inverse_inertia: of what the constraint moves [1/kg or 1/(kg m²)]
    share: of R that counts, where several rows of MuJoCo are one constraint

    Source: MuJoCo's `mj_makeImpedance`.
    """
    d = float(np.clip(solimp[1], LEAST_IMPEDANCE, MOST_IMPEDANCE))
    first, second = (float(x) for x in solref[:2])
    if (first > 0) != (second > 0):
        first, second = DEFAULT_SOLREF
    if first > 0:
        b, k = 2 / max(LEAST, d * first), d / max(LEAST, (d * first * second) ** 2)
    else:
        b, k = -second / d, -first / d
    R = max(LEAST, (1 - d) / d * inverse_inertia) * share
    return k / R, b / R


def _on_coordinate(law: type, value: float, coordinate: int) -> Law:
    return law(value, coordinate=coordinate)


def _spring(stiffness: float, rest: float, coordinate: int) -> Law:
    return SpringDamper(stiffness, rest=rest, coordinate=coordinate)


def _stop(lower: float, upper: float, stiffness: float, damping: float, coordinate: int) -> Law:
    return Limits(lower, upper, stiffness=stiffness, damping=damping, coordinate=coordinate)


def _matrix(quaternion: np.ndarray) -> np.ndarray:
    """Rotation matrix of a quaternion, w first, of any length but 0."""
    w, x, y, z = np.asarray(quaternion, float) / np.linalg.norm(quaternion)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def _about(axis: np.ndarray, angle: float) -> np.ndarray:
    """Rotation matrix by an angle about an axis of length 1."""
    return _matrix(np.array([np.cos(angle / 2), *(np.sin(angle / 2) * axis)]))
