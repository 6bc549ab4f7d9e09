"""A system as URDF, as far as the format can say what it is."""

import warnings
from typing import Any
from xml.sax.saxutils import quoteattr

import jax
import numpy as np

from ..couplings.linear import Slider
from ..couplings.planar import Planar
from ..couplings.rigid import Fixed, Free
from ..couplings.rotary import Hinge
from ..laws.friction import DryFriction
from ..laws.limits import Limits
from ..laws.springs import Damping
from ..laws.transmissions import Mimic
from ..model.system import WORLD, WORLD_INDEX, System
from .errors import LoadWarning
from .mechanism import IDENTITY, Frame, inverse, product

TYPES = {Hinge: "continuous", Slider: "prismatic", Fixed: "fixed", Free: "floating"}
TYPES |= {Planar: "planar"}
# In place of a bound that there is not, where URDF asks for one.
FAR = 1e30


def to_urdf(system: System, *, name: str = "robot", strict: bool = True) -> str:
    """A system as URDF, which `load_urdf` and other readers load.

    Each body is a link whose frame is frame C of the joint that leads to it, since a link of URDF
    stands where its joint does. Bodies that no joint leads to are free: one alone is the base,
    others are on floating joints of a link "world". Start states are not written.

    What URDF can say: `Hinge`, `Slider`, `Planar`, `Fixed`, `Free` joints that form a tree; of
    their laws the bounds of `Limits`, `Damping` and `DryFriction`; max_effort; `Mimic`.

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
        warnings.warn(LoadWarning(f"system: left out of its URDF\n  {lines}"), stacklevel=2)
    return text


class _Writer:
    """Collects the lines of a robot, and what they cannot say."""

    def __init__(self, system: System):
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
            if type(one.coupling) not in TYPES:
                self.lost.append(f"joint {joint!r}: {type(one.coupling).__name__}")
                continue
            child = one.child[0]
            if child in leading:
                raise ValueError(
                    f"joint {joint!r}: closes a loop, which URDF cannot say; leave it out"
                )
            leading.add(child)
            self.frames[child] = _frame(one.frame_C)
            joints.append((joint, one))
        for i in range(len(system.topology.bodies)):
            self.frames.setdefault(i, IDENTITY)
        self._read_transmissions()
        self.lost += [f"constraint {constraint!r}" for constraint in system.topology.constraints]
        self.lost += [f"field {field!r}" for field in system.topology.fields]
        roots = [i for i in range(len(system.topology.bodies)) if i not in leading]
        on_world = any(one.parent[0] == WORLD_INDEX for _, one in joints) or len(roots) > 1
        lines = [f"<robot name={quoteattr(name)}>"]
        if on_world:
            lines.append(f"  <link name={quoteattr(WORLD)}/>")
        lines += [self._link(i) for i in range(len(system.topology.bodies))]
        lines += [self._joint(joint, one) for joint, one in joints]
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

    def _joint(self, name: str, one: Any) -> str:
        kind = TYPES[type(one.coupling)]
        bodies = (*self.system.topology.bodies, WORLD)
        child, parent = one.child[0], one.parent[0]
        origin = product(inverse(self.frames[parent]), _frame(one.frame_D))
        inside = ""
        if kind in ("continuous", "prismatic"):
            inside += f'<axis xyz="{_numbers(one.coupling.axis)}"/>'
        elif kind == "planar":
            inside += '<axis xyz="0 0 1"/>'
        bounds: dict[str, Any] = {}
        dynamics: dict[str, Any] = {}
        for law in one.laws:
            scalar = kind in ("continuous", "prismatic")
            if scalar and isinstance(law, Limits) and not bounds and type(law) is Limits:
                bounds = {
                    "lower": -FAR if law.lower is None else law.lower,
                    "upper": FAR if law.upper is None else law.upper,
                }
                if law.stiffness is not None:
                    self.lost.append(f"joint {name!r}: stiffness and damping of its Limits")
            elif scalar and type(law) is Damping and "damping" not in dynamics:
                dynamics["damping"] = law.damping
            elif scalar and type(law) is DryFriction and "friction" not in dynamics:
                dynamics["friction"] = law.friction
            else:
                self.lost.append(f"joint {name!r}: {type(law).__name__}")
        effort = FAR
        if one.max_effort is not None and one.coupling.dof == 1:
            effort = one.max_effort[0]
        if kind == "continuous" and bounds:
            kind = "revolute"
        elif kind == "prismatic":
            bounds = bounds or {"lower": -FAR, "upper": FAR}
        if bounds or effort != FAR:
            bounds |= {"effort": effort, "velocity": 0.0}
            shown = " ".join(f'{key}="{_number(value)}"' for key, value in bounds.items())
            inside += f"<limit {shown}/>"
        if dynamics:
            shown = " ".join(f'{key}="{_number(value)}"' for key, value in dynamics.items())
            inside += f"<dynamics {shown}/>"
        inside += self.mimics.get(name, "")
        if one.enabled is not None:
            self.lost.append(f"joint {name!r}: its switch")
        return _element(name, kind, bodies[parent], bodies[child], origin, inside)


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
