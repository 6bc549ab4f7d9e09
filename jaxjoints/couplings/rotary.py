"""Joints that turn about a fixed point: hinge, ball, universal and constant-velocity joint."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import Numbers, replace, struct
from ..algebra.spatial import (
    Pose,
    arctan2,
    basis,
    cross,
    dot,
    quat_conjugate,
    quat_multiply,
    quat_rotate,
    quat_rotate_inverse,
    quat_to_rotation_vector,
    so3_right_jacobian_inverse,
)
from .angles import twist_angle, twist_part, unwrap_angle, unwrap_rotation_vector
from .coupling import Coupling, CouplingRows, Residual
from .wrench import about, along, axes, check_axis, direction, stack_rows, unit_axis

Z = (0.0, 0.0, 1.0)


@struct
class Hinge(Coupling):
    """Revolute joint: C turns about an axis through the origins of C and D, which coincide.

    C is fixed on the child body, D on the parent body. `axis` has the same components in C and D.

    q[0]: angle of C in D about `axis` [rad]. It is zero where the axes of C and D coincide. It is
        positive by the right-hand rule: with the thumb along `axis`, C turns the way the fingers
        curl. It counts turns.

    Rows: forces along x, y, z, moments about two axes u, v normal to `axis` (x, y for the default
    axis z), then the moment about `axis`. Off the surface the angle is the twist of the swing–twist
    decomposition; it is undefined, but finite, where C is tilted by exactly 180°.

    axis: direction of any length but 0, shape (3,)

    Source: ArtiSynth HingeCoupling (the same rows for axis z); ODE hinge; RBDL and
    RigidBodyDynamics.jl revolute. The latter's sine–cosine revolute is the same joint, stored as
    (sin q, cos q).

    >>> knee = Hinge(axis=(0.0, 0.0, 1.0))
    >>> print(knee.pose(jnp.array([jnp.pi / 2])).apply(jnp.array([1.0, 0.0, 0.0])).round(3))
    [0. 1. 0.]
    >>> print(knee.coordinates(Pose.about_z(-0.5)).round(3))
    [-0.5]
    """

    axis: Numbers = Z
    dof: ClassVar[int] = 1
    batched: ClassVar[bool] = True
    lower_pair: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Rotation by q[0] about the axis."""
        return Pose.about(self.axis, q[0])

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Angle about the axis, continued from q."""
        a = unit_axis(self.axis, T)
        return twist_angle(twist_part(T.q, a), a, q)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        a = unit_axis(self.axis, T)
        u, v = basis(a)
        x, y, z = axes(T)
        W = stack_rows(along(x), along(y), along(z), about(u), about(v), about(a))
        turn = twist_part(T.q, a)
        p = quat_rotate_inverse(turn, T.p)
        tilt = quat_to_rotation_vector(quat_multiply(quat_conjugate(turn), T.q))
        error = jnp.concatenate([p, dot(u, tilt)[None], dot(v, tilt)[None]], axis=0)
        return CouplingRows(W, error, twist_angle(turn, a, q), jnp.zeros_like(error))

    def check(self) -> str | None:
        return check_axis("axis", self.axis)

    def normalized(self) -> "Hinge":
        return replace(self, axis=direction(self.axis))


@struct
class Ball(Coupling):
    """Spherical joint: C turns freely about the origins of C and D, which coincide.

    C is fixed on the child body, D on the parent body.

    q: rotation vector of C in D [rad], with the same components along the axes of C and of D. Its
        length is the angle, its direction the axis, about which C turns by the right-hand rule. It
        is zero where the axes of C and D coincide.

    The rotation vector is continued from its last value beyond π until 2π. There its rates are
    singular; they are kept finite. For limits or laws on a joint that turns so far take a `Gimbal`.

    Rows: forces along x, y, z of C, then the three coordinates.

    Source: ArtiSynth SphericalCoupling (bilateral rows); ODE ball; RBDL spherical and
    RigidBodyDynamics.jl quaternion spherical, which store the quaternion of T_CD.

    >>> hip, quarter = Ball(), jnp.pi / 2
    >>> print(hip.pose(jnp.array([0.0, quarter, 0.0])).apply(jnp.array([0.0, 0.0, 1.0])).round(3))
    [1. 0. 0.]
    >>> print(hip.coordinates(Pose.about_x(0.5)).round(3))
    [0.5 0.  0. ]
    """

    dof: ClassVar[int] = 3
    batched: ClassVar[bool] = True
    lower_pair: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Rotation by the rotation vector q."""
        return Pose.from_rotation_vector(q)

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Rotation vector of T, continued from q."""
        r = quat_to_rotation_vector(T.q)
        return r if q is None else unwrap_rotation_vector(r, q)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        r = self.coordinates(T, q)
        x, y, z = axes(T)
        rates = so3_right_jacobian_inverse(r)
        W = stack_rows(along(x), along(y), along(z), *(about(rates[i]) for i in range(3)))
        error = T.rotate_inverse(T.p)
        return CouplingRows(W, error, r, jnp.zeros_like(error))


@struct
class Universal(Coupling):
    """Universal joint: a cross turns about an axis of D, and C turns about an axis of the cross.

    C is fixed on the child body, D on the parent body; their origins coincide. T_CD is the rotation
    by q[0] about `axis_D`, followed in the turned frame by the rotation by q[1] about `axis_C`.

    q[0]: angle of the cross about `axis_D`, fixed in D [rad]
    q[1]: angle of C about `axis_C`, fixed in C and in the cross [rad]
        Both are zero where the axes of C and D coincide. Both are positive by the right-hand rule
        about their axes: first the cross relative to D, then C relative to the cross. Both count
        turns.

    Rows: forces along x, y, z of C, the moment about the common normal axis_C × axis_D, then the
    two angles. With a = axis_D in the axes of C, b = axis_C and c = a·b, their moments are

        (a - c b) / (1 - c²),    (b - c a) / (1 - c²).

    They are regular at every pose, because c is constant and |c| < 1; c = 0 for axes at right
    angles. A pose off the surface is projected by the shortest rotation that puts axis_C back on
    its cone about axis_D.

    axis_D: direction in D, of any length but 0, shape (3,)
    axis_C: direction in C, of any length but 0, not parallel to axis_D, shape (3,)

    Source: ArtiSynth UniversalCoupling and its skewed form: axes ZY with skew σ are axis_D = z,
    axis_C = (0, cos σ, sin σ); XY are axis_D = x, axis_C = (sin σ, cos σ, 0). There the limit row
    of the second angle comes first. Its legacy form with the rotation transposed (RollPitchJoint)
    has axis_D and axis_C swapped and negated, and so the angles swapped.

    >>> cross = Universal(axis_D=(1.0, 0.0, 0.0), axis_C=(0.0, 1.0, 0.0))
    >>> quarter_turns = cross.pose(jnp.array([jnp.pi / 2, jnp.pi / 2]))
    >>> print(quarter_turns.rotate(jnp.array([1.0, 0.0, 0.0])).round(3) + 0.0)  # by -z to y
    [0. 1. 0.]
    >>> print(cross.coordinates(Pose.about_x(0.3) @ Pose.about_y(0.2)).round(3))
    [0.3 0.2]
    """

    axis_D: Numbers = (1.0, 0.0, 0.0)
    axis_C: Numbers = (0.0, 1.0, 0.0)
    dof: ClassVar[int] = 2
    batched: ClassVar[bool] = True
    regular: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Rotation by q[0] about axis_D, followed in the turned frame by q[1] about axis_C."""
        return Pose.about(self.axis_D, q[0]) @ Pose.about(self.axis_C, q[1])

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """The two angles, each continued from q."""
        return self._turns(T, q)[0]

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        q, first, second = self._turns(T, q)
        a = quat_rotate_inverse(second, unit_axis(self.axis_D, T))
        b = unit_axis(self.axis_C, T)
        c = dot(a, b)
        square = 1 - c * c
        normal = cross(b, a) / jnp.sqrt(square)[None]
        reading = about((a - c[None] * b) / square[None]), about((b - c[None] * a) / square[None])
        W = stack_rows(*(along(x) for x in axes(T)), about(normal), *reading)
        G = quat_multiply(first, second)
        off = quat_to_rotation_vector(quat_multiply(quat_conjugate(G), T.q))
        error = jnp.concatenate([quat_rotate_inverse(G, T.p), dot(normal, off)[None]], axis=0)
        return CouplingRows(W, error, q, jnp.zeros_like(error))

    def check(self) -> str | None:
        problem = check_axis("axis_D", self.axis_D) or check_axis("axis_C", self.axis_C)
        if problem:
            return problem
        first, second = direction(self.axis_D), direction(self.axis_C)
        cosine = float(jnp.clip(jnp.abs(dot(first, second)), 0.0, 1.0))
        if cosine > 1 - 1e-6:
            angle = float(jnp.degrees(jnp.arccos(cosine)))
            return (
                f"axis_D and axis_C are {angle:.4g} degrees apart; they must not be parallel "
                "(use Hinge for one axis)"
            )
        return None

    def normalized(self) -> "Universal":
        return replace(self, axis_D=direction(self.axis_D), axis_C=direction(self.axis_C))

    def _turns(self, T: Pose, q: Array | None) -> tuple[Array, Array, Array]:
        """The two angles, and the quaternions of the two rotations of the projected pose."""
        a, b = unit_axis(self.axis_D, T), unit_axis(self.axis_C, T)
        b_D = quat_rotate(T.q, b)
        sine = dot(a, cross(b, b_D))
        cosine = dot(b, b_D) - dot(a, b) * dot(a, b_D)
        # Protects atan2(0, 0): with axis_C turned onto axis_D, the first angle reads 0.
        undefined = sine * sine + cosine * cosine <= jnp.finfo(sine.dtype).tiny
        first = arctan2(sine, jnp.where(undefined, jnp.ones_like(cosine), cosine))
        first = unwrap_angle(first[None], None if q is None else q[:1])
        turned = Pose.about(a, first[0]).q
        second = twist_part(quat_multiply(quat_conjugate(turned), T.q), b)
        angle = twist_angle(second, b, None if q is None else q[1:])
        return jnp.concatenate([first, angle], axis=0), turned, second


@struct
class ConstantVelocity(Residual):
    """Constant-velocity (homokinetic) joint: two shafts at any angle have the same speed.

    C is fixed on the child body, D on the parent body; their origins coincide. The shafts lie along
    z of C and z of D. The pose is a rotation about an axis normal to both shafts: T_CD = exp(bend)
    with bend_z = 0. So in bearings that stand still both shafts turn at the same speed, however
    they are inclined; the speeds of a `Universal` joint vary. Rzeppa's and Thompson's joints are
    of this kind.

    q: components x and y of the bend, which is the rotation vector of C in D [rad]. They are zero
        where the axes of C and D coincide. By the right-hand rule a positive q[0] inclines z of C
        towards -y of D, and a positive q[1] towards +x of D. |q| is the angle between the shafts.

    Rows: forces along x, y, z of D, then the moment that keeps the shafts in step, along the line
    that halves the angle between them. Its error is the rotation about z of C that remains after
    the bend is undone [rad]. This row grows as 1/cos(|bend|/2) and does not exist at 180°. For a
    joint that also slides along its shaft take `Chain(Slider(), ConstantVelocity())`.

    Shafts that are inclined by 0.5 rad turn by 0.7 rad; C, turned by 0.8 rad, is 0.1 rad ahead.

    >>> inclined = Pose.about_z(-0.7) @ Pose.about_y(0.5)
    >>> ahead = inclined @ Pose.about_z(0.8)  # D turned by 0.7 rad, C by 0.8 rad
    >>> print(ConstantVelocity().residual(ahead, 0.0).round(3) + 0.0)
    [0.  0.  0.  0.1]
    """

    dof: ClassVar[int] = 2

    def pose(self, q: Array, t: Any = 0.0) -> Pose:
        """Bend by the rotation vector (q[0], q[1], 0)."""
        return Pose.from_rotation_vector(jnp.append(q, jnp.zeros_like(q[0])))

    def project(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> tuple[Pose, Array]:
        """The pose with the same bend, and its coordinates."""
        q = self.coordinates(T, q, t)
        return self.pose(q), q

    def residual(self, T: Pose, t: Array) -> Array:
        """Position of C in D [m] and rotation about z of C [rad]."""
        axis = jnp.eye(3, dtype=T.p.dtype)[2]
        return jnp.concatenate([T.p, twist_angle(twist_part(T.q, axis), axis, None)])

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """The bend, continued from q."""
        near = self.zero(T) if q is None else q
        turn = twist_part(T.q, jnp.eye(3, dtype=T.p.dtype)[2])
        bend = quat_to_rotation_vector(quat_multiply(T.q, quat_conjugate(turn)))
        return unwrap_rotation_vector(bend, jnp.append(near, jnp.zeros_like(near[0])))[:2]
