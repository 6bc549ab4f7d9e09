"""A system as URDF, as far as the format can say what it is."""

from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import quoteattr

import jax
import jax.numpy as jnp
import numpy as np

from ..algebra.calls import public, warn
from ..algebra.options import check_kind
from ..algebra.spatial import Pose, twist_of
from ..couplings.coupling import Coupling
from ..couplings.planar import Planar
from ..couplings.rigid import Fixed, Free
from ..laws.friction import DryFriction
from ..laws.limits import Limits
from ..laws.springs import Damping
from ..laws.transmissions import Mimic
from ..model.system import WORLD, WORLD_INDEX, System
from .errors import LoadWarning
from .mechanism import IDENTITY, UNBOUNDED, Frame, inverse, product

WHOLE = {Fixed: "fixed", Free: "floating", Planar: "planar"}
# Roundings by which parts of a pose may differ that are the same.
ROUNDINGS = 100


@public
def to_urdf(system: System, *, name: str = "robot", strict: bool = True) -> str:
    """A system as URDF, which `load_urdf` and other readers load.

    Each body is a link whose frame is frame C of the joint that leads to it, since a link of URDF
    stands where its joint does. Bodies that no joint leads to are free: one alone is the base,
    others are on floating joints of a link "world". Start states are not written.

    What URDF can say: joints that form a tree and are `Planar`, `Fixed`, `Free`, or hinges and
    sliders one after the other, as `Hinge`, `Universal`, `Gimbal`, `Cylindrical` or a `Chain` of
    such; of their laws the bounds of `Limits`, `Damping` and `DryFriction`; max_effort; `Mimic`.
    Several hinges and sliders stand between links without mass. They are named after the parts of
    "a+b" where the joint's name has one for each coordinate, else "knee.0", "knee.1".

    name: of the robot
    strict: raise for what URDF cannot say; False leaves it out with one `LoadWarning`

    Raises: ValueError naming what cannot be written: loops, a system with batch axes, and with
        `strict` other couplings, laws, transmissions and fields.
    """
    writer = _Writer(system)
    text = writer.robot(name)
    if writer.lost:
        lines = "\n  ".join(writer.lost)
        if strict:
            raise ValueError(
                f"system: URDF cannot say all of it; give strict=False to leave out\n  {lines}"
            )
        warn(LoadWarning(f"system: left out of its URDF\n  {lines}"))
    return text


class _Writer:
    """Collects the lines of a robot, and what they cannot say."""

    def __init__(self, system: System):
        check_kind("to_urdf:", "system", system, System, "the first that build() returns")
        leaves = zip(jax.tree.leaves(system), system.topology.ranks, strict=True)
        if any(leaf.ndim > rank for leaf, rank in leaves):
            raise ValueError("system: has batch axes; export one environment")
        self.system, self.lost = system, []
        self.frames: dict[int, Frame] = {WORLD_INDEX: IDENTITY}
        self.mimics: dict[str, str] = {}

    def robot(self, name: str) -> str:
        """All of the system."""
        system = self.system
        joints, leading = [], set()
        for joint in system.topology.joints:
            one = system.joint(joint)
            parts = _parts(joint, one.coupling)
            if parts is None:
                self.lost.append(f"joint {joint!r}: {type(one.coupling).__name__}")
                continue
            child = one.child[0]
            if child in leading:
                raise ValueError(
                    f"joint {joint!r}: closes a loop, which URDF cannot say; leave it out"
                )
            leading.add(child)
            self.frames[child] = product(_frame(one.frame_C), parts[1])
            joints.append((joint, one, parts[0]))
        for i in range(len(system.topology.bodies)):
            self.frames.setdefault(i, IDENTITY)
        self._read_transmissions()
        self.lost += [f"constraint {constraint!r}" for constraint in system.topology.constraints]
        self.lost += [f"contact {contact!r}" for contact in system.topology.contacts]
        self.lost += [f"field {field!r}" for field in system.topology.fields]
        roots = [i for i in range(len(system.topology.bodies)) if i not in leading]
        on_world = any(one.parent[0] == WORLD_INDEX for _, one, _ in joints) or len(roots) > 1
        lines = [f"<robot name={quoteattr(name)}>"]
        if on_world:
            lines.append(f"  <link name={quoteattr(WORLD)}/>")
        lines += [self._link(i) for i in range(len(system.topology.bodies))]
        lines += [line for joint in joints for line in self._joints(*joint)]
        for i in roots if on_world else ():
            body = system.topology.bodies[i]
            lines.append(_element(f"free {body}", "floating", WORLD, body, IDENTITY, ""))
        return "\n".join([*lines, "</robot>"]) + "\n"

    def _read_transmissions(self) -> None:
        system = self.system
        for name in system.topology.transmissions:
            one = system.transmission(name)
            joints = [system.topology.joints[j] for j in one.joints[0]]
            if type(one.transmission) is not Mimic or one.laws:
                self.lost.append(f"transmission {name!r}: {type(one.transmission).__name__}")
                continue
            leader, follower = joints
            ratio, offset = _number(one.transmission.ratio), _number(one.transmission.offset)
            self.mimics[follower] = (
                f'<mimic joint={quoteattr(leader)} multiplier="{ratio}" offset="{offset}"/>'
            )

    def _link(self, i: int) -> str:
        system, name = self.system, quoteattr(self.system.topology.bodies[i])
        if not system.topology.moving[i]:
            self.lost.append(f"body {name}: its prescribed motion")
        R, p = inverse(self.frames[i])
        com = R @ np.asarray(system.com[:, i], float) + p
        I = R @ np.asarray(system.inertia[:, :, i], float) @ R.T  # noqa: E741 - its usual name
        moments = {"ixx": (0, 0), "iyy": (1, 1), "izz": (2, 2)}
        moments |= {"ixy": (0, 1), "ixz": (0, 2), "iyz": (1, 2)}
        inertia = " ".join(f'{key}="{_number(I[at])}"' for key, at in moments.items())
        return (
            f'  <link name={name}><inertial><origin xyz="{_numbers(com)}"/>'
            f'<mass value="{_number(system.mass[i])}"/><inertia {inertia}/></inertial></link>'
        )

    def _joints(self, name: str, one: Any, parts: list["_Part"]) -> list[str]:
        """A joint of the system, as one or several of URDF with links without mass between them."""
        bodies = (*self.system.topology.bodies, WORLD)
        parent, child = bodies[one.parent[0]], bodies[one.child[0]]
        origin = product(inverse(self.frames[one.parent[0]]), _frame(one.frame_D))
        if one.enabled is not None:
            self.lost.append(f"joint {name!r}: its switch")
        lines = []
        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            link = child if last else f"{part.name} of {name}"
            if not last:
                lines.append(f"  <link name={quoteattr(link)}/>")
            scalar = part.kind in ("continuous", "prismatic")
            laws = [law for law in one.laws if law.coordinate == i] if scalar else one.laws
            effort = one.max_effort[i] if scalar and one.max_effort is not None else UNBOUNDED
            kind, inside = self._inside(part, scalar, laws, effort)
            inside += self.mimics.get(part.name, "")
            origin = product(origin, part.frame)
            lines.append(_element(part.name, kind, parent, link, origin, inside))
            parent, origin = link, IDENTITY
        return lines

    def _inside(self, part: "_Part", scalar: bool, laws: Any, effort: Any) -> tuple[str, str]:
        """Type of a joint of URDF, and the elements of its axis, limits, damping and friction."""
        kind, inside = part.kind, ""
        if part.axis is not None:
            inside += f'<axis xyz="{_numbers(part.axis)}"/>'
        bounds: dict[str, Any] = {}
        dynamics: dict[str, Any] = {}
        for law in laws:
            if scalar and type(law) is Limits and not bounds:
                bounds = {
                    "lower": -UNBOUNDED if law.lower is None else law.lower,
                    "upper": UNBOUNDED if law.upper is None else law.upper,
                }
                if law.stiffness is not None:
                    self.lost.append(f"joint {part.name!r}: stiffness and damping of its Limits")
                if law.reference is not None:
                    self.lost.append(f"joint {part.name!r}: reference of its Limits")
            elif scalar and type(law) is Damping and "damping" not in dynamics:
                dynamics["damping"] = law.damping
            elif scalar and type(law) is DryFriction and "friction" not in dynamics:
                dynamics["friction"] = law.friction_force
            else:
                self.lost.append(f"joint {part.name!r}: {type(law).__name__}")
        if kind == "continuous" and bounds:
            kind = "revolute"
        elif kind == "prismatic":
            bounds = bounds or {"lower": -UNBOUNDED, "upper": UNBOUNDED}
        if bounds or effort != UNBOUNDED:
            bounds |= {"effort": effort, "velocity": 0.0}
            shown = " ".join(f'{key}="{_number(value)}"' for key, value in bounds.items())
            inside += f"<limit {shown}/>"
        if dynamics:
            shown = " ".join(f'{key}="{_number(value)}"' for key, value in dynamics.items())
            inside += f"<dynamics {shown}/>"
        return kind, inside


@dataclass(frozen=True)
class _Part:
    """A joint of URDF; frame: where it stands in the frame of the part before, or in D."""

    name: str
    kind: str
    axis: np.ndarray | None
    frame: Frame = IDENTITY


def _parts(name: str, coupling: Coupling) -> tuple[list[_Part], Frame] | None:
    """A joint as joints of URDF, and the frame of the last one's link in C; None if it is none.

    Each coordinate of hinges and sliders in series moves C about or along a line. Their pose is
    the product of these motions, about the lines as they lie where all coordinates are 0, and of
    the pose there.
    """
    if type(coupling) in WHOLE:
        axis = np.array([0.0, 0.0, 1.0]) if type(coupling) is Planar else None
        return [_Part(name, WHOLE[type(coupling)], axis)], IDENTITY
    n, names = coupling.dof, name.split("+")
    if not n or coupling.velocity_rows or not coupling.places_bodies:
        return None
    if len(names) != n:
        names = [name] if n == 1 else [f"{name}.{i}" for i in range(n)]
    start, rates = jax.jit(_motions)(coupling, jnp.zeros(n))
    same = ROUNDINGS * float(jnp.finfo(start.p.dtype).eps) * max(1.0, float(jnp.abs(start.p).max()))
    some = 0.1 + 0.3 * np.arange(n) / n
    parts, motion, here = [], Pose.identity(dtype=start.p.dtype), np.zeros(3)
    for part, ω, v, q in zip(names, *np.asarray(rates), some, strict=True):
        turns = np.linalg.norm(ω) > same
        axis = ω if turns else v
        if not (abs(np.linalg.norm(axis) - 1) < same and abs(ω @ v) < same):
            return None
        # The point of the line that is nearest to D.
        place = np.cross(ω, v - np.cross(ω, start.p)) if turns else here
        kind = "continuous" if turns else "prismatic"
        parts.append(_Part(part, kind, axis, (np.eye(3), place - here)))
        at, here = Pose.translation(jnp.asarray(place)), place
        motion @= at @ Pose.about(axis, q) @ at.inverse() if turns else Pose.along(axis, q)
    R, p = _frame(jax.jit(type(coupling).pose)(coupling, jnp.asarray(some)))
    reached = _frame(motion @ start)
    if not (np.abs(R - reached[0]).max() < same and np.abs(p - reached[1]).max() < same):
        return None
    R, p = _frame(start)
    return parts, inverse((R, p - here))


def _motions(coupling: Coupling, q: jax.Array) -> tuple[Pose, tuple[jax.Array, jax.Array]]:
    """T_CD, and for each coordinate the rates of C's angle and origin in D, (coordinates, 3)."""

    def rate(direction):
        T, change = jax.jvp(coupling.pose, (q,), (direction,))
        twist = twist_of(T, change)
        return T.rotate(twist[3:]), T.rotate(twist[:3])

    return coupling.pose(q), jax.vmap(rate)(jnp.eye(len(q)))


def _element(name: str, kind: str, parent: str, child: str, origin: Frame, inside: str) -> str:
    R, p = origin
    # At a pitch of ±90° roll and yaw turn about one axis, and all of it is the yaw.
    level = np.hypot(R[0, 0], R[1, 0])
    pitch = np.arctan2(-R[2, 0], level)
    if level > 1e-12:
        roll, yaw = np.arctan2(R[2, 1], R[2, 2]), np.arctan2(R[1, 0], R[0, 0])
    else:
        roll, yaw = 0.0, np.arctan2(-R[0, 1], R[1, 1])
    return (
        f'  <joint name={quoteattr(name)} type="{kind}"><parent link={quoteattr(parent)}/>'
        f"<child link={quoteattr(child)}/>"
        f'<origin xyz="{_numbers(p)}" rpy="{_numbers((roll, pitch, yaw))}"/>{inside}</joint>'
    )


def _frame(pose: Any) -> Frame:
    return np.asarray(pose.R, float), np.asarray(pose.p, float)


def _number(value: Any) -> str:
    """A number that reads back exactly."""
    return repr(float(value))


def _numbers(values: Any) -> str:
    return " ".join(map(_number, np.asarray(values, float)))
