"""MJCF: MuJoCo's models, compiled by MuJoCo and read into a builder.

MuJoCo resolves defaults, units, orientations and inertias from shapes; what is read here is its
compiled model. Source: MuJoCo's documentation, "Computation" and "XML Reference".
"""

import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any, Literal

import numpy as np

from ..algebra.calls import public
from ..algebra.options import check_switch
from ..algebra.pytree import replace
from ..build.builder import SystemBuilder
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
from .mjcf_contacts import add_contacts
from .mjcf_softness import softness
from .mjcf_source import Prepared
from .model import Model
from .report import Report
from .xml import FileLimits, read_source, read_xml

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
    like_mujoco: bool = False,
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
    largest impedance d of `solimp`: the same decay and, where the depth exceeds the width of
    `solimp`, the same depth at rest, also with pyramids of friction. Left out are the inertia,
    which makes MuJoCo's stop softer in an impact, and the lower impedance near the surface, by
    which bodies rest up to some times as deep; see `like_mujoco`. Friction of contacts and friction
    loss stick; in MuJoCo they creep. Contacts have a round cone for "elliptic", and for "pyramidal"
    the same μ along each tangent, by Coulomb's law. Equality constraints are rigid, as joints of
    the builder are.

    Several servos on one coordinate become one `Servo`; beside another servo, a servo with a limit
    of force becomes an effort.

    A tendon with forces along it is a transmission of its name, or "tendon NAME" where a joint or
    equality has this name; limits of a tendon along one joint are limits of the joint. Activations
    of first order are `Model.activation`.

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
        `shapes.touches`) do not touch. A mesh touches with its convex hull of 64 vertices at most;
        `Model.notes` says how far the hull is off the mesh. Below a height field there is no base.
        `gap` acts as in the installed MuJoCo: from 3.9 on it does not change the motion; before 3.9
        geoms push within margin - gap
    like_mujoco: limits and contacts give way as in MuJoCo (`ReferenceAcceleration`), and what
        slides lifts (`ContactPyramid`), where contacts have a pyramid with the same μ along both
        tangents, without spin and rolling; for policies that are to run in MuJoCo. Time constants
        below two steps count as two steps, as MuJoCo's flag `refsafe` has it
    merge_fixed, visuals, strict, builder, prefix, limits: as in `load_urdf`
    laws: as in `load_urdf`; a ball joint has the coordinates 0 to 2. A `Servo` in `laws` acts
        beside a servo of the file for the same joint, and `Control.target` sets both

    Raises: LoadError naming file, line and element as far as MuJoCo tells them; OSError for a file
        that cannot be opened; ImportError without the package mujoco; ValueError for other
        `contacts`, for `laws` that match no joint, with near names, and for bad laws.
    Warns: LoadWarning.
    """
    if contacts not in (True, False, "all"):
        raise ValueError(f"contacts {contacts!r} must be True, False or 'all'")
    check_switch("load_mjcf", "like_mujoco", like_mujoco)
    try:
        import mujoco
    except ImportError as error:
        advice = "MJCF is compiled by mujoco: pip install -e '.[mjcf]' in the checkout"
        raise ImportError(advice) from error
    sizes = FileLimits() if limits is None else limits
    roots = Roots(roots)
    data, name, folder = read_source(source, sizes)
    report = Report(name)
    with refusing(partial(LoadError, source=name)):
        root = read_xml(data, name, sizes, folder)
        if root.tag != "mujoco":
            raise root.error("is no MJCF; its outermost element must be 'mujoco'")
        spec, compiled = _compiled(mujoco, Prepared(root, folder, roots, sizes, report))
        reader = _Reader(mujoco, spec, compiled, name, report, sizes, like_mujoco)
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
        add_contacts(reader, assembly, contacts, like_mujoco=like_mujoco)
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
        self,
        mujoco: Any,
        spec: Any,
        m: Any,
        source: str,
        report: Report,
        limits: FileLimits,
        like_mujoco: bool,
    ):
        self.softness = partial(softness, like_mujoco=like_mujoco)
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
                weight = float(m.dof_invweight0[dof])
                soft = self.softness(m.jnt_solref[j], m.jnt_solimp[j], weight)
                laws.append(partial(_stop, lower + margin, upper - margin, soft))
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
        if len(weights) == 1 and all(isinstance(law, Limits) for law in laws):
            # As limits of the joint they need no row of their own.
            ((j, weight),) = weights
            joint, i = assembly.coordinates[self.names["JOINT"][j]]
            of_joint = [_of_coordinate(law, weight, i) for law in laws]
            assembly.builder.add_law(joint, of_joint)
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
            soft = self.softness(m.tendon_solref_lim[t], m.tendon_solimp_lim[t], weight)
            laws.append(Limits(low + margin, high - margin, **soft))
        return laws

    def add_fluid(self, assembly: Assembly) -> None:
        """Drag of a medium on each body by the box of its inertia."""
        m = self.m
        if not (m.opt.density or m.opt.viscosity):
            if np.any(m.opt.wind):
                self.report.skip("wind without density and viscosity")
            return
        fluid = np.asarray(m.geom_fluid)
        # Without geoms there is no row to read.
        if fluid.size and fluid.reshape(m.ngeom, -1)[:, 0].any():
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
        body, (R, p) = self.geom_frame(assembly, g)
        color = np.array(m.geom_rgba[g], float)
        if m.geom_matid[g] >= 0 and np.allclose(color, PLAIN):
            color = np.array(m.mat_rgba[m.geom_matid[g]], float)
        visual = Visual(body, (R, p), shape, tuple(np.clip(color, 0.0, 1.0).tolist()))
        return visual, touches

    def geom_frame(self, assembly: Assembly, g: int) -> tuple[str, Frame]:
        """Body of the builder that carries a geom, and the pose of the geom in it."""
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
            return height_mesh(*self.heights(g))
        return None

    def heights(self, g: int) -> tuple[np.ndarray, np.ndarray]:
        """Heights of a height field [m], along x and y, and its size [m]."""
        m, i = self.m, int(self.m.geom_dataid[g])
        rows, columns = int(m.hfield_nrow[i]), int(m.hfield_ncol[i])
        start = int(m.hfield_adr[i])
        data = np.asarray(m.hfield_data[start : start + rows * columns], float)
        x, y, top, _ = (float(x) for x in m.hfield_size[i])
        return top * data.reshape(rows, columns).T, np.array([2 * x, 2 * y])

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


def _on_coordinate(law: type, value: float, coordinate: int) -> Law:
    return law(value, coordinate=coordinate)


def _spring(stiffness: float, rest: float, coordinate: int) -> Law:
    return SpringDamper(stiffness, rest=rest, coordinate=coordinate)


def _stop(lower: float, upper: float, soft: dict[str, Any], coordinate: int) -> Law:
    return Limits(lower, upper, **soft, coordinate=coordinate)


def _of_coordinate(stop: Limits, weight: float, coordinate: int) -> Law:
    """The stop of a length weight * q as a stop of the coordinate q."""
    ends, square = sorted((stop.lower / weight, stop.upper / weight)), weight**2
    if stop.reference is None:
        soft = {"stiffness": stop.stiffness * square, "damping": stop.damping * square}
    else:
        width, inverse = stop.reference.width / abs(weight), stop.reference.inverse_inertia / square
        soft = {"reference": replace(stop.reference, width=width, inverse_inertia=inverse)}
    return _stop(*ends, soft, coordinate)


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
