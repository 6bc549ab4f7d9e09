"""A mechanism described once, and the same mechanism as jaxjoints, MuJoCo and SDF readers take it.

Where all coordinates are 0, every body frame has the axes of the world, and loops are closed. No
contacts. All mechanisms are made in float64 with NumPy.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

GRAVITY = 9.81
LETTERS = {(1.0, 0.0, 0.0): "X", (0.0, 1.0, 0.0): "Y", (0.0, 0.0, 1.0): "Z"}


@dataclass(frozen=True)
class Joint:
    """One coordinate of a body: it turns about, or slides along, an axis through its origin.

    limits: bounds of the coordinate [rad or m]; stiffness: of a spring at rest at 0 [N m/rad or
    N/m]; damping: [N m s/rad or N s/m]
    """

    axis: tuple[float, float, float]
    slides: bool = False
    limits: tuple[float, float] | None = None
    stiffness: float = 0.0
    damping: float = 0.0


@dataclass(frozen=True)
class Body:
    """A rigid body whose origin is at `at` of its parent's frame (the world's without a parent).

    joints: from the parent's side on, as they carry each other; none: it moves freely
    com: centre of mass [m]; inertia: about it, shape (3, 3) [kg m²]; both in the body frame
    """

    name: str
    joints: tuple[Joint, ...]
    at: np.ndarray
    mass: float
    com: np.ndarray
    inertia: np.ndarray
    parent: str | None = None


@dataclass(frozen=True)
class Loop:
    """A point of one body's frame held at the same point of another body.

    axis: of the hinge that jaxjoints has there, None for a ball; MuJoCo holds the point only
    """

    body: str
    other: str
    point: np.ndarray
    axis: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class Mechanism:
    """Bodies, each after its parent and depth first, loops, and where a batch starts.

    size: the length to which gaps are compared [m]
    start: coordinates (batch, coordinates) and speeds for a batch, of free bodies position and
        quaternion (w first); the first environments are the same for any batch
    """

    bodies: tuple[Body, ...]
    size: float
    start: Callable[[int], tuple[np.ndarray, np.ndarray]]
    loops: tuple[Loop, ...] = ()

    @property
    def limited(self) -> bool:
        """Whether some coordinate has limits."""
        return any(joint.limits for body in self.bodies for joint in body.joints)

    @property
    def tree(self) -> bool:
        """Whether there is nothing to solve: no loops and no limits."""
        return not (self.loops or self.limited)

    def columns(self, speeds: bool = False) -> dict[str, slice]:
        """Where the coordinates (or speeds) of each body stand."""
        found, at = {}, 0
        for body in self.bodies:
            count = len(body.joints) or (6 if speeds else 7)
            found[body.name] = slice(at, at + count)
            at += count
        return found

    def hinges(self) -> np.ndarray:
        """Columns of the coordinates that do not belong to free bodies."""
        columns = self.columns()
        return np.concatenate([np.r_[columns[b.name]] for b in self.bodies if b.joints])

    def place(self, name: str) -> np.ndarray:
        """Origin of a body in the world where all coordinates are 0."""
        body = next(body for body in self.bodies if body.name == name)
        return body.at + (self.place(body.parent) if body.parent else 0.0)

    def poses(self, q: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Position (3, batch) and quaternion (4, batch) of every body frame."""
        found, columns = {}, self.columns()
        for body in self.bodies:
            own = q[:, columns[body.name]].T
            if not body.joints:
                found[body.name] = own[:3], own[3:]
                continue
            batch = np.zeros((1, len(q)))
            still = np.zeros((3, 1)) + batch, np.array([[1.0], [0.0], [0.0], [0.0]]) + batch
            p, r = found.get(body.parent, still)
            p = p + rotated(r, body.at)
            for joint, x in zip(body.joints, own, strict=True):
                if joint.slides:
                    p = p + x * rotated(r, joint.axis)
                else:
                    r = product(r, turn(joint.axis, x))
            found[body.name] = p, r
        return found


def turn(axis, angle: np.ndarray) -> np.ndarray:
    """Quaternion (4, batch) of a rotation about an axis."""
    axis = np.asarray(axis) / np.linalg.norm(axis)
    return np.stack([np.cos(angle / 2), *(a * np.sin(angle / 2) for a in axis)])


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Product of quaternions (4, batch)."""
    vector = a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:], axis=0)
    return np.concatenate([(a[0] * b[0] - np.sum(a[1:] * b[1:], axis=0))[None], vector])


def rotated(q: np.ndarray, v) -> np.ndarray:
    """A vector (3,) turned by quaternions (4, batch)."""
    v = np.asarray(v, float)[:, None] + 0 * q[1:]
    once = np.cross(q[1:], v, axis=0)
    return v + 2 * (q[0] * once + np.cross(q[1:], once, axis=0))


def system(mechanism: Mechanism):
    """A mechanism as a jaxjoints `System`; a joint has the name of its body."""
    import jaxjoints as jj

    world = jj.SystemBuilder(gravity=(0.0, 0.0, -GRAVITY))
    for body in mechanism.bodies:
        world.body(body.name, mass=body.mass, inertia=body.inertia, com=body.com)
    for body in mechanism.bodies:
        if body.joints:
            world.joint(
                body.name,
                _coupling(body),
                child=body.name,
                parent=body.parent or jj.WORLD,
                frame_D=body.at,
                laws=_laws(body),
            )
    for i, loop in enumerate(mechanism.loops):
        place = mechanism.place(loop.body) + loop.point
        world.joint(
            f"loop{i}",
            jj.Ball() if loop.axis is None else jj.Hinge(loop.axis),
            child=loop.body,
            parent=loop.other,
            frame_C=loop.point,
            frame_D=place - mechanism.place(loop.other),
        )
    return world.build()[0]


def state(mechanism: Mechanism, built, batch: int):
    """The start of a batch as a jaxjoints `State`, in JAX's precision."""
    q, v = mechanism.start(batch)
    if mechanism.loops:
        # At rest: a loop's joints have coordinates that follow from those of the others.
        assert not v.any()
        return built.state(pose=mechanism.poses(q))
    at, speed = mechanism.columns(), mechanism.columns(speeds=True)
    jointed = [body.name for body in mechanism.bodies if body.joints]
    free = [body.name for body in mechanism.bodies if not body.joints]
    return built.state(
        q={name: q[:, at[name]].T for name in jointed},
        qd={name: v[:, speed[name]].T for name in jointed},
        pose={name: (q[:, at[name]].T[:3], q[:, at[name]].T[3:]) for name in free},
    )


def _coupling(body: Body):
    import jaxjoints as jj

    match [joint.slides for joint in body.joints]:
        case [False]:
            return jj.Hinge(body.joints[0].axis)
        case [True]:
            return jj.Slider(body.joints[0].axis)
        case [False, False]:
            return jj.Universal(*(joint.axis for joint in body.joints))
        case [False, False, False]:
            return jj.Gimbal("".join(LETTERS[joint.axis] for joint in body.joints))
    raise ValueError(f"body {body.name!r}: no coupling of jaxjoints for {body.joints}")


def _laws(body: Body) -> list:
    import jaxjoints as jj

    laws = []
    for i, joint in enumerate(body.joints):
        if joint.limits:
            laws.append(jj.Limits(*joint.limits, coordinate=i))
        if joint.stiffness:
            laws.append(jj.SpringDamper(joint.stiffness, joint.damping, coordinate=i))
        elif joint.damping:
            laws.append(jj.Damping(joint.damping, coordinate=i))
    return laws


def mjcf(mechanism: Mechanism, dt: float, option: str = "", shapes: bool = False) -> str:
    """A mechanism as MuJoCo reads it.

    option: more attributes of its `option` element; shapes: give each body a shape that touches
    nothing, for readers that want one
    """
    children: dict[str | None, str] = {}
    for body in reversed(mechanism.bodies):
        joints = "".join(_mjcf_joint(joint) for joint in body.joints) or "<freejoint/>"
        I = body.inertia  # noqa: E741
        moments = (*np.diag(I), I[0, 1], I[0, 2], I[1, 2])
        shape = '<geom size="0.01" mass="0" contype="0" conaffinity="0"/>' if shapes else ""
        text = (
            f'<body name="{body.name}" pos="{_text(body.at)}">{joints}'
            f'<inertial pos="{_text(body.com)}" mass="{body.mass}" fullinertia="{_text(moments)}"/>'
            f"{shape}{children.get(body.name, '')}</body>"
        )
        children[body.parent] = text + children.get(body.parent, "")
    loops = "".join(
        f'<connect body1="{loop.body}" body2="{loop.other}" anchor="{_text(loop.point)}"/>'
        for loop in mechanism.loops
    )
    return (
        '<mujoco><compiler angle="radian"/>'
        f'<option timestep="{dt}" gravity="0 0 {-GRAVITY}" {option}>'
        '<flag contact="disable"/></option>'
        f"<worldbody>{children[None]}</worldbody><equality>{loops}</equality></mujoco>"
    )


def _mjcf_joint(joint: Joint) -> str:
    bounds = f'limited="true" range="{_text(joint.limits)}"' if joint.limits else ""
    return (
        f'<joint type="{"slide" if joint.slides else "hinge"}" axis="{_text(joint.axis)}" '
        f'stiffness="{joint.stiffness}" damping="{joint.damping}" {bounds}/>'
    )


def sdf(mechanism: Mechanism) -> str:
    """A tree of hinges on the world, one a body, as readers of SDF take it."""
    parts = [
        '<sdf version="1.10"><model name="mechanism"><link name="ground"><inertial><mass>1</mass>'
        f"{_sdf_inertia(np.eye(3))}</inertial></link><joint name='rest' type='fixed'>"
        "<parent>world</parent><child>ground</child></joint>"
    ]
    for body in mechanism.bodies:
        (joint,) = body.joints
        parent = body.parent or "ground"
        low, high = joint.limits or (-1e9, 1e9)
        parts.append(
            f'<joint name="joint {body.name}" type="revolute">'
            f'<pose relative_to="{parent}">{_text(body.at)} 0 0 0</pose>'
            f"<parent>{parent}</parent><child>{body.name}</child>"
            f"<axis><xyz>{_text(joint.axis)}</xyz>"
            f"<limit><lower>{low}</lower><upper>{high}</upper></limit></axis></joint>"
            f'<link name="{body.name}"><pose relative_to="joint {body.name}">0 0 0 0 0 0</pose>'
            f"<inertial><pose>{_text(body.com)} 0 0 0</pose><mass>{body.mass}</mass>"
            f"{_sdf_inertia(body.inertia)}</inertial></link>"
        )
    return "".join([*parts, "</model></sdf>"])


def _sdf_inertia(moments: np.ndarray) -> str:
    names = "xyz"
    entries = [(i, j) for i in range(3) for j in range(i, 3)]
    return "<inertia>{}</inertia>".format(
        "".join(
            f"<i{names[i]}{names[j]}>{moments[i, j]}</i{names[i]}{names[j]}>" for i, j in entries
        )
    )


def _text(numbers) -> str:
    return " ".join(repr(float(x)) for x in numbers)
