"""Joints that move in a plane: slotted hinge, planar, planar translation."""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import struct
from ..algebra.spatial import (
    Pose,
    quat_conjugate,
    quat_multiply,
    quat_rotate_inverse,
    quat_to_rotation_vector,
)
from .coupling import Coupling, CouplingRows
from .winding import twist_angle, twist_part
from .wrench import about, along, axes, stack_rows


@struct
class SlottedHinge(Coupling):
    """C turns about z while its origin slides along x of D; distance [m] and angle [rad].

    With θ the angle and x, y the axes of D seen from C, x = (cos θ, -sin θ, 0) and
    y = (sin θ, cos θ, 0), the rows are forces along y and z, moments about x and y of C, then the
    force along x and the moment about z. The angle is that of a `Hinge`.

    Source: ArtiSynth SlottedHingeCoupling (the same rows), whose own derivative of the turning
    rows is 0.
    """

    dof: ClassVar[int] = 2
    elementwise: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Displacement by q[0] along x, rotation by q[1] about z."""
        return Pose.along_x(q[0]) @ Pose.about_z(q[1])

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Distance along x and angle about z, the angle continued from q."""
        _, _, z = axes(T)
        angle = twist_angle(twist_part(T.q, z), z, None if q is None else q[1:])
        return jnp.concatenate([T.p[:1], angle], axis=0)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
        x, y, z = axes(T)
        turn, tilt = _turn_and_tilt(T)
        x_D, y_D = (quat_rotate_inverse(turn, axis) for axis in (x, y))
        W = stack_rows(along(y_D), along(z), about(x), about(y), along(x_D), about(z))
        error = jnp.concatenate([T.p[1:], tilt], axis=0)
        return CouplingRows(W, error, self.coordinates(T, q), jnp.zeros_like(error))


@struct
class Planar(Coupling):
    """C slides in the x–y plane of D and turns about z; two distances [m] and an angle [rad].

    Rows: the force along z, moments about x and y of C; then forces along x and y of D and the
    moment about z. The angle is that of a `Hinge`.

    Source: ArtiSynth FullPlanarCoupling, PlanarJoint (the same rows), whose own derivative of the
    turning rows is 0; RigidBodyDynamics.jl planar, whose speeds are along the axes of C (v ≠ q̇);
    ODE plane-2D, which lets errors of the tilt be and has no stops.
    """

    dof: ClassVar[int] = 3
    elementwise: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Displacement by q[0] along x and q[1] along y, rotation by q[2] about z."""
        return Pose.along_x(q[0]) @ Pose.along_y(q[1]) @ Pose.about_z(q[2])

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Distances along x and y and angle about z, the angle continued from q."""
        _, _, z = axes(T)
        angle = twist_angle(twist_part(T.q, z), z, None if q is None else q[2:])
        return jnp.concatenate([T.p[:2], angle], axis=0)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
        x, y, z = axes(T)
        turn, tilt = _turn_and_tilt(T)
        x_D, y_D = (quat_rotate_inverse(turn, axis) for axis in (x, y))
        W = stack_rows(along(z), about(x), about(y), along(x_D), along(y_D), about(z))
        error = jnp.concatenate([T.p[2:], tilt], axis=0)
        return CouplingRows(W, error, self.coordinates(T, q), jnp.zeros_like(error))


@struct
class PlanarTranslation(Coupling):
    """C slides in the x–y plane of D without turning; two distances [m].

    Rows: the force along z, moments about x, y, z; then forces along x and y.

    Source: ArtiSynth PlanarTranslationCoupling (the same rows).
    """

    dof: ClassVar[int] = 2
    elementwise: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Displacement by q[0] along x and q[1] along y."""
        return Pose.along_x(q[0]) @ Pose.along_y(q[1])

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Distances along x and y."""
        return T.p[:2]

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
        x, y, z = axes(T)
        W = stack_rows(along(z), about(x), about(y), about(z), along(x), along(y))
        error = jnp.concatenate([T.p[2:], quat_to_rotation_vector(T.q)], axis=0)
        return CouplingRows(W, error, self.coordinates(T), jnp.zeros_like(error))


def _turn_and_tilt(T: Pose) -> tuple[Array, Array]:
    """Quaternion of the turn about z nearest to T; x and y of the tilt beyond it, (2, *b)."""
    _, _, z = axes(T)
    turn = twist_part(T.q, z)
    tilt = quat_to_rotation_vector(quat_multiply(quat_conjugate(turn), T.q))
    return turn, tilt[:2]
