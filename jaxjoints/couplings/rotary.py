"""Joints that turn about a fixed point: hinge, ball, universal."""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from ..pytree import replace, struct
from ..spatial import (
    Pose,
    basis,
    dot,
    quat_conjugate,
    quat_multiply,
    quat_rotate_inverse,
    quat_to_rotation_vector,
    so3_right_jacobian_inverse,
)
from .coupling import Chart, Coupling, CouplingRows
from .winding import twist_angle, twist_part, unwind
from .wrench import about, along, axes, check_axis, direction, stack_rows, unit_axis

Z = (0.0, 0.0, 1.0)


@struct
class Hinge(Coupling):
    """C turns about `axis` through the common origin; one angle [rad], counted over many turns.

    Rows: forces along x, y, z, moments about two axes p, q normal to `axis` (x, y for the default
    axis z), then the moment about `axis`. The angle is that of the rotation about `axis` nearest
    to the pose (swing–twist), undefined where C is tilted by exactly 180°.

    axis: direction in C and in D, of any length but 0, shape (3,)

    Source: ArtiSynth HingeCoupling (the same rows for axis z).
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

    Source: ArtiSynth SphericalCoupling (bilateral rows).
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
class Universal(Chart):
    """C turns about `axis_D`, fixed in D, then about `axis_C`, fixed in C; two angles [rad].

    axis_D, axis_C: directions of any length but 0, not parallel, shape (3,)
    """

    axis_D: Array = (1.0, 0.0, 0.0)
    axis_C: Array = (0.0, 1.0, 0.0)
    dof: ClassVar[int] = 2

    def pose(self, q: Array) -> Pose:
        """Rotation by q[0] about axis_D, followed in the moving frame by q[1] about axis_C."""
        return Pose.about(self.axis_D, q[0]) @ Pose.about(self.axis_C, q[1])

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
