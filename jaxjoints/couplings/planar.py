"""Joints that move in a plane: slotted hinge, planar joint, planar translation."""

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
from .angles import twist_angle, twist_part
from .coupling import Coupling, CouplingRows
from .wrench import about, along, axes, stack_rows


@struct
class SlottedHinge(Coupling):
    """Slotted hinge: C's origin slides along x of D, and C turns about z.

    C is fixed on the child body, D on the parent body. The z axes of C and D are parallel.

    q[0]: distance of C's origin from D's along x of D [m]
    q[1]: angle of C in D about z [rad], which counts turns
        Both are zero where C and D coincide. A positive distance is in the direction of x of D, a
        positive angle turns C about z by the right-hand rule, as in `Hinge`.

    Rows: forces along y and z of D, moments about x and y of C, then the force along x of D and the
    moment about z. In the axes of C, at the angle θ, x of D is (cos θ, -sin θ, 0) and y of D is
    (sin θ, cos θ, 0).

    Source: ArtiSynth SlottedHingeCoupling (the same rows, but it takes the derivative of the rows
    that turn in C to be 0).

    >>> slot = SlottedHinge()
    >>> print(slot.pose(jnp.array([2.0, jnp.pi / 2])).apply(jnp.array([1.0, 0.0, 0.0])).round(3))
    [2. 1. 0.]
    """

    dof: ClassVar[int] = 2
    batched: ClassVar[bool] = True
    regular: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Displacement by q[0] along x, rotation by q[1] about z."""
        return Pose.along_x(q[0]) @ Pose.about_z(q[1])

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Distance along x and angle about z, the angle continued from q."""
        _, _, z = axes(T)
        angle = twist_angle(twist_part(T.q, z), z, None if q is None else q[1:])
        return jnp.concatenate([T.p[:1], angle], axis=0)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        x, y, z = axes(T)
        turn, tilt = _turn_and_tilt(T)
        x_D, y_D = (quat_rotate_inverse(turn, axis) for axis in (x, y))
        W = stack_rows(along(y_D), along(z), about(x), about(y), along(x_D), about(z))
        error = jnp.concatenate([T.p[1:], tilt], axis=0)
        return CouplingRows(W, error, self.coordinates(T, q), jnp.zeros_like(error))


@struct
class Planar(Coupling):
    """Planar joint: C's origin slides in the x–y plane of D, and C turns about z.

    C is fixed on the child body, D on the parent body. The z axes of C and D are parallel.

    q[0], q[1]: position of C's origin along x and y of D [m]
    q[2]: angle of C in D about z [rad], which counts turns
        All are zero where C and D coincide. Positive distances are in the directions of x and y of
        D, a positive angle turns C about z by the right-hand rule, as in `Hinge`.

    Rows: the force along z, moments about x and y of C, then forces along x and y of D and the
    moment about z.

    Source: ArtiSynth FullPlanarCoupling, PlanarJoint (the same rows, but it takes the derivative of
    the rows that turn in C to be 0); RigidBodyDynamics.jl planar, whose speeds are along the axes
    of C (v ≠ q̇); ODE plane-2D, which does not remove errors of the tilt and has no stops.

    >>> puck, corner = Planar(), jnp.array([1.0, 0.0, 0.0])
    >>> print(puck.pose(jnp.array([2.0, 3.0, jnp.pi / 2])).apply(corner).round(3))
    [2. 4. 0.]
    """

    dof: ClassVar[int] = 3
    batched: ClassVar[bool] = True
    regular: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Displacement by q[0] along x and q[1] along y, rotation by q[2] about z."""
        return Pose.along_x(q[0]) @ Pose.along_y(q[1]) @ Pose.about_z(q[2])

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Distances along x and y and angle about z, the angle continued from q."""
        _, _, z = axes(T)
        angle = twist_angle(twist_part(T.q, z), z, None if q is None else q[2:])
        return jnp.concatenate([T.p[:2], angle], axis=0)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        x, y, z = axes(T)
        turn, tilt = _turn_and_tilt(T)
        x_D, y_D = (quat_rotate_inverse(turn, axis) for axis in (x, y))
        W = stack_rows(along(z), about(x), about(y), along(x_D), along(y_D), about(z))
        error = jnp.concatenate([T.p[2:], tilt], axis=0)
        return CouplingRows(W, error, self.coordinates(T, q), jnp.zeros_like(error))


@struct
class PlanarTranslation(Coupling):
    """Planar translation: C's origin slides in the x–y plane of D, and C does not turn.

    C is fixed on the child body, D on the parent body; their axes are parallel.

    q: position of C's origin along x and y of D [m]. It is zero where C and D coincide, and each
        component is positive in the direction of its axis.

    Rows: the force along z, moments about x, y, z, then forces along x and y.

    Source: ArtiSynth PlanarTranslationCoupling (the same rows).

    >>> table = PlanarTranslation()
    >>> print(table.pose(jnp.array([2.0, 3.0])).apply(jnp.array([1.0, 0.0, 0.0])))
    [3. 3. 0.]
    >>> print(table.distances(Pose.along_z(0.25)))  # 0.25 m above the plane
    [0.25 0.   0.   0.  ]
    """

    dof: ClassVar[int] = 2
    batched: ClassVar[bool] = True
    lower_pair: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Displacement by q[0] along x and q[1] along y."""
        return Pose.along_x(q[0]) @ Pose.along_y(q[1])

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Distances along x and y."""
        return T.p[:2]

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        x, y, z = axes(T)
        W = stack_rows(along(z), about(x), about(y), about(z), along(x), along(y))
        error = jnp.concatenate([T.p[2:], quat_to_rotation_vector(T.q)], axis=0)
        return CouplingRows(W, error, self.coordinates(T), jnp.zeros_like(error))


def _turn_and_tilt(T: Pose) -> tuple[Array, Array]:
    """Quaternion of the rotation about z nearest to T; x and y of the tilt beyond it, (2, *b)."""
    _, _, z = axes(T)
    turn = twist_part(T.q, z)
    tilt = quat_to_rotation_vector(quat_multiply(quat_conjugate(turn), T.q))
    return turn, tilt[:2]
