"""Joints of the Open Dynamics Engine as couplings: its rows, errors and readings.

C is fixed on ODE's body 1, D on body 2; at the setup poses both have the world's axes unless a
joint says otherwise. The library's couplings stand beside those that read their errors otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxjoints as jj
from jaxjoints.algebra.spatial import (
    basis,
    cross,
    dot,
    norm,
    quat_conjugate,
    quat_from_matrix,
    quat_multiply,
    unit,
)
from jaxjoints.couplings.wrench import about, along, axes, stack_rows, unit_axis


@jj.struct
class OdeHinge(jj.Hinge):
    """Hinge that reads its error as ODE: the offset in C, (x₂ × x₁) of the two axes, which is the
    sine of the tilt, and an angle 2 atan2(|v|, w) that takes the tilt for a part of the turn.
    """

    def rows(self, T, q, t):
        found = super().rows(T, q, t)
        a = unit_axis(self.axis, T)
        u, v = basis(a)
        sine = cross(
            T.rotate_inverse(jnp.broadcast_to(a, T.p.shape)), jnp.broadcast_to(a, T.p.shape)
        )
        error = [T.rotate_inverse(T.p), dot(u, sine)[None], dot(v, sine)[None]]
        ahead = jnp.where(dot(a, T.q[1:]) < 0, -1.0, 1.0)
        angle = 2 * jnp.arctan2(ahead * norm(T.q[1:]), T.q[0])[None]
        angle = angle + 2 * jnp.pi * jnp.round((q - angle) / (2 * jnp.pi))
        return jj.replace(found, error=jnp.concatenate(error), q=angle)


@jj.struct
class OdeSlider(jj.Slider):
    """Slider between two centres of mass that reads its error as ODE: the offset along axes carried
    by C, and 2 vec(quaternion) for the turn.

    offset: of C in D at the coordinate zero
    """

    offset: Array = (0.0, 0.0, 0.0)

    def pose(self, q):
        return jj.Pose.translation(self.offset) @ super().pose(q)

    def rows(self, T, q, t):
        found = super().rows(T, q, t)
        a = unit_axis(self.axis, T)
        u, v = basis(a)
        offset = jnp.asarray(self.offset)
        offset = offset.reshape(offset.shape + (1,) * (T.p.ndim - offset.ndim))
        p = T.rotate_inverse(T.p - offset)
        error = [dot(u, p)[None], dot(v, p)[None], twice_vector(T)]
        return jj.replace(found, error=jnp.concatenate(error), q=dot(a, p)[None])


@jj.struct
class OdeFixed(jj.Fixed):
    """Weld that reads its error as ODE: the offset in C, and 2 vec(quaternion) for the turn."""

    def rows(self, T, q, t):
        error = jnp.concatenate([T.rotate_inverse(T.p), twice_vector(T)])
        return jj.replace(super().rows(T, q, t), error=error)


def twice_vector(T: jj.Pose) -> Array:
    """2 sin(θ/2) along the axis of a rotation by θ in [0, π]."""
    return jnp.where(T.q[0] < 0, -2.0, 2.0)[None] * T.q[1:]


@jj.struct
class OdePiston(jj.Cylindrical):
    """Cylindrical joint that reads its errors as ODE's piston: the offset along axes carried by C,
    the sine of the tilt; its stops along the axis push through the middle of the centres of mass.

    com_C, com_D: centres of mass in C and D; grounded: D stands in the world
    """

    com_C: Array = (0.0, 0.0, 0.0)
    com_D: Array = (0.0, 0.0, 0.0)
    grounded: bool = jj.static(default=False, kw_only=True)
    lower_pair: ClassVar[bool] = False

    def rows(self, T, q, t):
        found = super().rows(T, q, t)
        a, p = unit_axis(self.axis, T), T.rotate_inverse(T.p)
        u, v = basis(a)
        sine = -cross(carried(a, p), seen(T, a))
        push = through_middle(self, T, a)
        error = jnp.stack([dot(u, p), dot(v, p), dot(u, sine), dot(v, sine)])
        read = jnp.stack([dot(a, p), turned(T.q, a, q[1])])
        W = with_rows(found.W, {4: push}, p)
        return jj.CouplingRows(W, error, read, jnp.zeros_like(error))


@jj.struct
class OdeUniversal(jj.Coupling):
    """Universal joint as ODE has it: axis_C carried by C, axis_D by D, their cosine the error."""

    axis_C: Array
    axis_D: Array
    dof: ClassVar[int] = 2
    batched: ClassVar[bool] = True

    def pose(self, q):
        return jj.Universal(self.axis_D, self.axis_C).pose(q[::-1])

    def rows(self, T, q, t):
        p = T.rotate_inverse(T.p)
        a, b = carried(unit_axis(self.axis_C, T), p), seen(T, unit_axis(self.axis_D, T))
        W = rows_of(*map(along, axes(T)), about(unit(cross(a, b))), about(a), about(b), like=p)
        error = jnp.concatenate([p, dot(a, b)[None]])
        return jj.CouplingRows(W, error, cross_angles(self, T, q), jnp.zeros_like(error))


@jj.struct
class OdeHinge2(jj.Coupling):
    """Hinge-2 as ODE has it, the suspension (its travel seen from the wheel) as coordinate 0.

    axis_C: of the steering, carried by C; axis_D: of the wheel, carried by D
    """

    axis_C: Array
    axis_D: Array
    dof: ClassVar[int] = 3
    batched: ClassVar[bool] = True

    def pose(self, q):
        return jj.Hinge2(self.axis_C, self.axis_D).pose(q).inverse()

    def rows(self, T, q, t):
        p = T.rotate_inverse(T.p)
        a, b = unit_axis(self.axis_C, T), unit_axis(self.axis_D, T)
        u, v = basis(a)
        now, start = seen(T, b), carried(b, p)
        a = carried(a, p)
        hinge = unit(cross(a, now))
        W = rows_of(along(u), along(v), about(hinge), -along(a), about(a), about(now), like=p)
        tilt = norm(cross(a, now)) * dot(a, start) - dot(a, now) * norm(cross(a, start))
        error = jnp.stack([dot(u, p), dot(v, p), -tilt])
        ahead = unit(start - dot(a, start)[None] * a)
        steer = -jnp.arctan2(dot(now, cross(a, ahead)), dot(now, ahead))
        read = jnp.stack([-dot(a, p), steer, jnp.zeros_like(steer)])
        return jj.CouplingRows(W, error, read, jnp.zeros_like(error))


@jj.struct
class OdePrismaticRotoide(jj.Coupling):
    """Prismatic-rotoide as ODE has it: the slide carried by C, the axis of the turn by both.

    com_C, com_D: centres of mass in C and D; grounded: D stands in the world
    """

    slide: Array
    axis: Array
    com_C: Array = (0.0, 0.0, 0.0)
    com_D: Array = (0.0, 0.0, 0.0)
    grounded: bool = jj.static(default=False, kw_only=True)
    dof: ClassVar[int] = 2
    batched: ClassVar[bool] = True

    def pose(self, q):
        return jj.PrismaticRotoide(self.slide, self.axis).pose(q).inverse()

    def rows(self, T, q, t):
        p = T.rotate_inverse(T.p)
        a, r = (carried(unit_axis(axis, T), p) for axis in (self.slide, self.axis))
        across, sine = cross(r, a), -cross(r, seen(T, r))
        push = through_middle(self, T, a)
        W = rows_of(about(a), about(across), along(r), along(across), push, about(r), like=p)
        error = jnp.stack([dot(sine, a), dot(sine, across), dot(r, p), dot(across, p)])
        read = jnp.stack([dot(a, p), turned(T.q, r, q[1])])
        return jj.CouplingRows(W, error, read, jnp.zeros_like(error))


@jj.struct
class OdePrismaticUniversal(jj.Coupling):
    """Prismatic-universal as ODE has it: slide and axis_C carried by C, axis_D by D."""

    slide: Array
    axis_C: Array
    axis_D: Array
    dof: ClassVar[int] = 3
    batched: ClassVar[bool] = True

    def pose(self, q):
        return jj.PrismaticUniversal(self.slide, self.axis_C, self.axis_D).pose(q).inverse()

    def rows(self, T, q, t):
        p, slide = T.rotate_inverse(T.p), unit_axis(self.slide, T)
        a, b = carried(unit_axis(self.axis_C, T), p), seen(T, unit_axis(self.axis_D, T))
        u, v = basis(slide)
        moments = about(unit(cross(a, b))), about(a), about(b)
        W = rows_of(moments[0], along(u), along(v), along(slide), *moments[1:], like=p)
        error = jnp.stack([dot(a, b), dot(u, p), dot(v, p)])
        angles = cross_angles(self, T, q[1:])
        read = jnp.concatenate([dot(slide, p)[None], angles])
        return jj.CouplingRows(W, error, read, jnp.zeros_like(error))


@jj.struct
class OdePlane2D(jj.Planar):
    """Plane-2D as ODE has it: it draws the centre of mass to z = 0, but mends no tilt."""

    def rows(self, T, q, t):
        x, y, z = (seen(T, axis) for axis in axes(T))
        W = rows_of(along(z), about(x), about(y), along(x), along(y), about(z), like=T.p)
        error = jnp.stack([T.p[2], 0 * T.p[2], 0 * T.p[2]])
        read = jnp.stack([T.p[0], T.p[1], 0 * T.p[0]])
        return jj.CouplingRows(W, error, read, jnp.zeros_like(error))


@jj.struct
class OdeBevelGear(jj.BevelGear):
    """Bevel gear that reads its slip as ODE: from the angles alone."""

    def rows(self, T, q, t):
        found = super().rows(T, q, t)
        node = T.p[0] * jnp.cos(found.q[1]) + T.p[1] * jnp.sin(found.q[1])
        return jj.replace(found, q=found.q.at[0].add(node))


@jj.struct
class OdeDoubleHinge(jj.Coupling):
    """Double hinge as ODE has it: the distance in space, the offset along the axis apart from it,
    drawn in by forces through the middle of the centres of mass.

    axis: the same in C and in D; length: distance of the anchors
    com_C, com_D: centres of mass in C and D; grounded: D stands in the world
    """

    axis: Array
    length: Array
    com_C: Array = (0.0, 0.0, 0.0)
    com_D: Array = (0.0, 0.0, 0.0)
    grounded: bool = jj.static(default=False, kw_only=True)
    dof: ClassVar[int] = 2
    batched: ClassVar[bool] = True

    def pose(self, q):
        u, v = basis(unit_axis(self.axis, jj.Pose.translation(jnp.zeros(3))))
        rod = self.length * (jnp.cos(q[0]) * u + jnp.sin(q[0]) * v)
        return jj.Pose.translation(rod) @ jj.Pose.about(self.axis, q[0] + q[1])

    def rows(self, T, q, t):
        p, a = T.rotate_inverse(T.p), unit_axis(self.axis, T)
        u, v = basis(a)
        sine = -cross(carried(a, p), seen(T, a))
        middle = through_middle(self, T, a, at_D=False)
        nothing = about(0 * p)
        W = rows_of(along(unit(p)), about(u), about(v), middle, nothing, nothing, like=p)
        error = jnp.stack([norm(p) - self.length, dot(u, sine), dot(v, sine), dot(a, p)])
        return jj.CouplingRows(W, error, jnp.zeros_like(error[:2]), jnp.zeros_like(error))


def carried(axis: Array, like: Array) -> Array:
    """An axis of C with all batch axes."""
    return jnp.broadcast_to(axis, like.shape)


def seen(T: jj.Pose, axis: Array) -> Array:
    """An axis of D in C."""
    return T.rotate_inverse(carried(axis, T.p))


def rows_of(*wrenches: Array, like: Array) -> Array:
    return stack_rows(*(jnp.broadcast_to(w, (6, *like.shape[1:])) for w in wrenches))


def with_rows(W: Array, changed: dict[int, Array], like: Array) -> Array:
    """W with some of its rows in place of its own."""
    return rows_of(*(changed.get(i, row) for i, row in enumerate(W)), like=like)


def through_middle(coupling: Any, T: jj.Pose, axis: Array, *, at_D: bool = True) -> Array:
    """Wrench at D's origin (or C's) of a unit force along an axis through the middle of the two
    centres of mass; through that of C's body where D stands in the world.
    """
    p = T.rotate_inverse(T.p)
    own, other = (shaped(com, T) for com in (coupling.com_C, coupling.com_D))
    point = carried(own, p)
    if not coupling.grounded:
        point = (point + seen(T, other) - p) / 2
    arm = point + p if at_D else point
    return along(carried(axis, p)) + about(cross(arm, carried(axis, p)))


def shaped(vector: Any, T: jj.Pose) -> Array:
    vector = jnp.asarray(vector, T.p.dtype)
    return vector.reshape(vector.shape + (1,) * (T.p.ndim - vector.ndim))


def turned(q: Array, axis: Array, near: Array) -> Array:
    """The angle ODE reads off a rotation: all of it, counted along the axis, near a known one."""
    ahead = jnp.where(dot(axis, q[1:]) < 0, -1.0, 1.0)
    angle = 2 * jnp.arctan2(ahead * norm(q[1:]), q[0])
    return angle + 2 * jnp.pi * jnp.round((near - angle) / (2 * jnp.pi))


def cross_angles(coupling: Any, T: jj.Pose, near: Array) -> Array:
    """The angles of C and of D against the cross of a universal joint, about axis_C and axis_D."""
    a, b = (carried(unit_axis(x, T), T.p) for x in (coupling.axis_C, coupling.axis_D))
    start, now = cross_frame(a, b), cross_frame(T.rotate(a), b)
    moved = quat_multiply(now, quat_conjugate(start))
    own = quat_multiply(quat_conjugate(T.q), moved)
    return jnp.stack([-turned(own, a, -near[0]), turned(moved, b, near[1])])


def cross_frame(first: Array, second: Array) -> Array:
    """Quaternion of the frame whose x is the first axis, y the second made normal to it."""
    y = unit(second - dot(first, second)[None] * first)
    return quat_from_matrix(jnp.stack([first, y, cross(first, y)], axis=1))


@dataclass(frozen=True)
class Placed:
    """A joint of a recording: its coupling, and where C and D stand at the setup poses.

    at_C, at_D: a point in the world (the world's axes), or a pose
    coordinates: which coordinate each of ODE's parameter groups is about
    """

    coupling: jj.Coupling
    at_C: Any
    at_D: Any
    attachment: Any = "own"
    coordinates: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Given:
    """What ODE was given: the joint, its bodies as child and parent, whether they are exchanged.

    sign: -1 where axes count reversed
    as_ode: whether errors are to be read as ODE does
    """

    joint: dict[str, Any]
    first: dict[str, Any]
    second: dict[str, Any] | None
    swapped: bool
    sign: float
    as_ode: bool

    def axis(self, name: str) -> np.ndarray:
        return np.asarray(self.joint[name], float)

    @property
    def middle(self) -> dict[str, Any]:
        """Centres of mass against a joint's point, for `through_middle`."""
        at_C = self.joint.get("anchor", self.joint.get("anchor1"))
        at_D = self.joint.get("anchor", self.joint.get("anchor2"))
        if self.swapped:
            at_C, at_D = at_D, at_C
        far = np.zeros(3) if self.second is None else self.second["setup_pos"]
        return {
            "com_C": np.subtract(self.first["setup_pos"], at_C),
            "com_D": np.subtract(far, at_D),
            "grounded": self.second is None,
        }

    def anchors(self) -> tuple[Any, Any]:
        found = self.joint["anchor1"], self.joint["anchor2"]
        return found[::-1] if self.swapped else found


def ball(given: Given) -> Placed:
    anchor = given.joint["anchor"]
    return Placed(jj.Ball(), anchor, anchor)


def hinge(given: Given) -> Placed:
    kind = OdeHinge if given.as_ode else jj.Hinge
    anchor = given.joint["anchor"]
    return Placed(kind(axis=given.sign * given.axis("axis1")), anchor, anchor, "own", {"1": 0})


def fixed(given: Given) -> Placed:
    at = (given.first if given.second is None else given.second)["setup_pos"]
    return Placed((OdeFixed if given.as_ode else jj.Fixed)(), at, at)


def slider(given: Given) -> Placed:
    axis, at = given.sign * given.axis("axis1"), given.first["setup_pos"]
    if not given.as_ode:
        return Placed(jj.Slider(axis=axis), at, at, "C", {"1": 0})
    if given.second is None:
        return Placed(OdeSlider(axis=axis), at, at, "C", {"1": 0})
    # ODE's forces act midway between the centres of mass.
    at_D = given.second["setup_pos"]
    own = OdeSlider(axis=axis, offset=np.subtract(at, at_D))
    return Placed(own, at, at_D, "midpoint", {"1": 0})


def universal(given: Given) -> Placed:
    # Between the world and a body, ODE leaves axis 1 to the world.
    names = ("axis2", "axis1") if given.swapped else ("axis1", "axis2")
    axis_C, axis_D = map(given.axis, names)
    own = OdeUniversal(axis_C, axis_D) if given.as_ode else jj.Universal(axis_D, axis_C)
    anchor = given.joint["anchor"]
    coordinates = {"1": 0, "2": 1} if given.as_ode else {"1": 1, "2": 0}
    return Placed(own, anchor, anchor, "own", coordinates)


def hinge2(given: Given) -> Placed:
    axes = given.axis("axis1"), given.axis("axis2")
    own = OdeHinge2(*axes) if given.as_ode else jj.Reversed(jj.Hinge2(*axes))
    anchor = given.joint["anchor"]
    at = "own" if given.as_ode else "C"
    return Placed(own, anchor, anchor, at, {"suspension": 0, "1": 1, "2": 2})


def prismatic_rotoide(given: Given) -> Placed:
    axes = given.axis("axis1"), given.axis("axis2")
    if given.as_ode:
        own = OdePrismaticRotoide(*axes, **given.middle)
    else:
        own = jj.Reversed(jj.PrismaticRotoide(*axes))
    anchor, at = given.joint["anchor"], (1.0, 1.0) if given.as_ode else "C"
    return Placed(own, anchor, anchor, at, {"1": 0, "2": 1})


def prismatic_universal(given: Given) -> Placed:
    axes = given.axis("axis3"), given.axis("axis1"), given.axis("axis2")
    if given.as_ode:
        own = OdePrismaticUniversal(*axes)
    else:
        own = jj.Reversed(jj.PrismaticUniversal(*axes))
    anchor = given.joint["anchor"]
    at = "own" if given.as_ode else "C"
    return Placed(own, anchor, anchor, at, {"1": 1, "2": 2, "3": 0})


def piston(given: Given) -> Placed:
    axis, anchor = given.axis("axis1"), given.joint["anchor"]
    own = OdePiston(axis=axis, **given.middle) if given.as_ode else jj.Cylindrical(axis=axis)
    return Placed(own, anchor, anchor, (1.0, 1.0), {"1": 0, "2": 1})


def plane2d(given: Given) -> Placed:
    at = given.first["setup_pos"]
    return Placed(
        (OdePlane2D if given.as_ode else jj.Planar)(),
        at,
        np.zeros(3),
        "C",
        {"x": 0, "y": 1, "angle": 2},
    )


def double_ball(given: Given) -> Placed:
    at_C, at_D = given.anchors()
    return Placed(jj.DoubleBall(np.linalg.norm(np.subtract(at_C, at_D))), at_C, at_D)


def double_hinge(given: Given) -> Placed:
    at_C, at_D = given.anchors()
    axis, length = given.axis("axis1"), np.linalg.norm(np.subtract(at_C, at_D))
    if given.as_ode:
        return Placed(OdeDoubleHinge(axis, length, **given.middle), at_C, at_D, "C")
    rod = np.subtract(at_C, at_D)
    place = frame_of(x=rod - axis * (rod @ axis), z=axis)
    at_C, at_D = (jj.Pose(jnp.asarray(at, float), place) for at in (at_C, at_D))
    return Placed(jj.DoubleHinge(length), at_C, at_D, "C")


def motor(kind: type) -> Callable[[Given], Placed]:
    def placed(given: Given) -> Placed:
        # Axes of the world count as those of D here, and are turned with it at each state.
        carried = "".join("C" if body == 1 else "D" for body in given.joint["axes_rel"])
        own = kind(np.asarray(given.joint["axes"]), carried=carried)
        at_C = given.first["setup_pos"]
        coordinates = {"1": 0, "2": 1, "3": 2}
        if given.second is None:
            return Placed(own, at_C, np.zeros(3), "C", coordinates)
        return Placed(own, at_C, given.second["setup_pos"], "midpoint", coordinates)

    return placed


def angular_motor(given: Given) -> Placed:
    if given.joint["mode"] == "user":
        return motor(jj.AngularMotor)(given)
    place = frame_of(x=given.axis("axis1"), z=given.axis("axis3"))
    at = jj.Pose(jnp.zeros(3), place)
    return Placed(jj.FreeEuler(order="ZYX"), at, at, "C", {"1": 5, "2": 4, "3": 3})


def transmission(given: Given) -> Placed:
    joint, axis = given.joint, given.axis("axis1")
    at_C, at_D = (np.asarray(joint[name]) for name in ("anchor1", "anchor2"))
    if joint["mode"] == "parallel":
        distance, ratio = np.linalg.norm(at_C - at_D), joint["ratio"]
        own = jj.SpurGear(distance * ratio / (1 + ratio), distance / (1 + ratio))
        places = [frame_of(x=at_C - at_D, z=axis)] * 2
    else:
        other, node = given.axis("axis2"), np.cross(given.axis("axis2"), axis)
        # The contact: in both wheels' planes, in the plane of the axes.
        between = np.stack([axis, other, node])
        contact = np.linalg.solve(between, [axis @ at_C, other @ at_D, node @ at_C])
        radii = [(contact - at) @ to for at, to in ((at_C, other), (at_D, axis))]
        own = (OdeBevelGear if given.as_ode else jj.BevelGear)(*radii)
        places = [frame_of(x=node, z=z) for z in (axis, other)]
    at_C, at_D = (jj.Pose(jnp.asarray(p), q) for p, q in zip((at_C, at_D), places, strict=True))
    return Placed(own, at_C, at_D, "C", {"slip": 0})


def frame_of(*, x: Any, z: Any) -> Array:
    """Quaternion of the frame with given directions of x and z."""
    x, z = (np.asarray(axis) / np.linalg.norm(axis) for axis in (x, z))
    return quat_from_matrix(jnp.asarray(np.stack([x, np.cross(z, x), z], axis=1)))


KINDS: dict[str, Callable[[Given], Placed]] = {
    "ball": ball,
    "hinge": hinge,
    "fixed": fixed,
    "slider": slider,
    "universal": universal,
    "hinge2": hinge2,
    "pr": prismatic_rotoide,
    "pu": prismatic_universal,
    "piston": piston,
    "plane2d": plane2d,
    "dball": double_ball,
    "dhinge": double_hinge,
    "amotor": angular_motor,
    "lmotor": motor(jj.LinearMotor),
    "transmission": transmission,
}
