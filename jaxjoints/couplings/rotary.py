"""Joints that turn about a fixed point: hinge, ball, universal, constant velocity."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import replace, struct
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
from .coupling import Coupling, CouplingRows, Residual
from .winding import nearest_turn, twist_angle, twist_part, unwind
from .wrench import about, along, axes, check_axis, direction, stack_rows, unit_axis

Z = (0.0, 0.0, 1.0)


@struct
class Hinge(Coupling):
    """C turns about `axis` through the common origin; one angle [rad], counted over many turns.

    Rows: forces along x, y, z, moments about two axes p, q normal to `axis` (x, y for the default
    axis z), then the moment about `axis`. The angle is that of the rotation about `axis` nearest
    to the pose (swing–twist), undefined where C is tilted by exactly 180°.

    axis: direction in C and in D, of any length but 0, shape (3,)

    Source: ArtiSynth HingeCoupling (the same rows for axis z); ODE hinge; RBDL and
    RigidBodyDynamics.jl revolute. The latter's sine–cosine revolute is the same joint, stored as
    (sin q, cos q).
    """

    axis: Array = Z
    dof: ClassVar[int] = 1
    elementwise: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Rotation by q[0] about the axis."""
        return Pose.about(self.axis, q[0])

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Angle about the axis, continued from q."""
        a = unit_axis(self.axis, T)
        return twist_angle(twist_part(T.q, a), a, q)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
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
        """See `Coupling.check`."""
        return check_axis("axis", self.axis)

    def normalized(self) -> "Hinge":
        """See `Coupling.normalized`."""
        return replace(self, axis=direction(self.axis))


@struct
class Ball(Coupling):
    """C turns freely about the common origin; coordinates: the rotation vector of T_CD [rad].

    The rotation vector is continued from its last value, over π and on until 2π, where its rates
    are singular (bounded here): for limits or laws on a ball that turns over, choose other angles.

    Source: ArtiSynth SphericalCoupling (bilateral rows); ODE ball; RBDL spherical and
    RigidBodyDynamics.jl quaternion spherical, which store the quaternion of T_CD.
    """

    dof: ClassVar[int] = 3
    elementwise: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Rotation by the rotation vector q."""
        return Pose.from_rotation_vector(q)

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Rotation vector of T, continued from q."""
        r = quat_to_rotation_vector(T.q)
        return r if q is None else unwind(r, q)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
        r = self.coordinates(T, q)
        x, y, z = axes(T)
        rates = so3_right_jacobian_inverse(r)
        W = stack_rows(along(x), along(y), along(z), *(about(rates[i]) for i in range(3)))
        error = T.rotate_inverse(T.p)
        return CouplingRows(W, error, r, jnp.zeros_like(error))


@struct
class Universal(Coupling):
    """C turns about `axis_D`, fixed in D, then about `axis_C`, fixed in C; two angles [rad].

    Rows: forces along x, y, z of C, the moment about the common normal axis_C × axis_D, then the
    two angles. With axes a = axis_D seen from C, b = axis_C and c = a·b, the angles are read by

        (a - c b) / (1 - c²),    (b - c a) / (1 - c²),

    which stay regular at every pose: |c| < 1 is a constant, 0 for axes at right angles and not 0
    for a skewed joint. The pose is projected by the shortest turn that puts axis_C back on its
    cone about axis_D. Both angles are counted over many turns.

    axis_D, axis_C: directions of any length but 0, not parallel, shape (3,)

    Source: ArtiSynth UniversalCoupling and its skewed form: axes ZY with skew σ are axis_D = z,
    axis_C = (0, cos σ, sin σ); XY are axis_D = x, axis_C = (sin σ, cos σ, 0). There the limit row
    of the second angle comes first. Its legacy form with the rotation transposed (RollPitchJoint)
    has axis_D and axis_C swapped and negated, and so the angles swapped.
    """

    axis_D: Array = (1.0, 0.0, 0.0)
    axis_C: Array = (0.0, 1.0, 0.0)
    dof: ClassVar[int] = 2
    elementwise: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Rotation by q[0] about axis_D, followed in the moving frame by q[1] about axis_C."""
        return Pose.about(self.axis_D, q[0]) @ Pose.about(self.axis_C, q[1])

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """The two angles, each continued from q."""
        return self._turns(T, q)[0]

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
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
        """See `Coupling.check`."""
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
        """See `Coupling.normalized`."""
        return replace(self, axis_D=direction(self.axis_D), axis_C=direction(self.axis_C))

    def _turns(self, T: Pose, q: Array | None) -> tuple[Array, Array, Array]:
        """The angles, and the quaternions of the two turns of the projected pose."""
        a, b = unit_axis(self.axis_D, T), unit_axis(self.axis_C, T)
        seen = quat_rotate(T.q, b)
        sine = dot(a, cross(b, seen))
        cosine = dot(b, seen) - dot(a, b) * dot(a, seen)
        # Protects atan2(0, 0): with axis_C turned onto axis_D, the first angle reads 0.
        lost = sine * sine + cosine * cosine <= jnp.finfo(sine.dtype).tiny
        first = arctan2(sine, jnp.where(lost, jnp.ones_like(cosine), cosine))
        first = nearest_turn(first[None], None if q is None else q[:1])
        turned = Pose.about(a, first[0]).q
        second = twist_part(quat_multiply(quat_conjugate(turned), T.q), b)
        angle = twist_angle(second, b, None if q is None else q[1:])
        return jnp.concatenate([first, angle], axis=0), turned, second


@struct
class ConstantVelocity(Residual):
    """Shafts along z of C and z of D meet at the common origin at any angle and turn alike.

    A homokinetic joint (Rzeppa, Thompson): the pose is a turn about an axis normal to both shafts,
    T_CD = exp(bend) with bend_z = 0, so in steady bearings, however they are inclined, both shafts
    have the same speed, where those of a `Universal` joint vary. Two coordinates: the bend's
    components along x and y [rad], regular when straight; |bend| is the angle between the shafts.

    Rows: forces along x, y, z of D, then the moment that keeps the shafts in step, along the line
    that halves the angle between them; its error is the turn about z of C that is left when the
    bend is undone. The row grows as 1/cos(|bend|/2) and ends at 180°. One that also slides along
    its shaft is `Chain(Slider(), ConstantVelocity())`.
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
        """Position of C in D [m] and turn about z of C [rad]."""
        axis = jnp.eye(3, dtype=T.p.dtype)[2]
        return jnp.concatenate([T.p, twist_angle(twist_part(T.q, axis), axis, None)])

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """The bend, continued from q."""
        near = self.zero(T) if q is None else q
        turn = twist_part(T.q, jnp.eye(3, dtype=T.p.dtype)[2])
        bend = quat_to_rotation_vector(quat_multiply(T.q, quat_conjugate(turn)))
        return unwind(bend, jnp.append(near, jnp.zeros_like(near[0])))[:2]
