"""Joints of zero and of six degrees of freedom: the weld and the free joint."""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import struct
from ..algebra.spatial import (
    Pose,
    cross,
    dot,
    error_twist,
    quat_to_rotation_vector,
    so3_right_jacobian_inverse,
)
from .angles import unwrap_rotation_vector
from .coupling import Coupling, CouplingRows
from .wrench import about, along, axes, stack_rows


@struct
class Fixed(Coupling):
    """Weld: C and D coincide. It has no coordinates.

    C is fixed on the child body, D on the parent body.

    Rows: forces along x, y, z, then moments about x, y, z. The errors are the position of C's
    origin in D [m], positive along the axes of D, and the rotation vector of C in D [rad], positive
    by the right-hand rule.

    Source: ArtiSynth SolidCoupling.

    >>> print(Fixed().distances(Pose.along_x(0.25) @ Pose.about_z(0.5)).round(3) + 0.0)
    [0.25 0.   0.   0.   0.   0.5 ]
    """

    dof: ClassVar[int] = 0
    batched: ClassVar[bool] = True
    lower_pair: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """The identity, with the batch axes of q."""
        return Pose.identity(q.shape[1:], dtype=q.dtype)

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """None: shape (0,)."""
        return self.zero(T)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        x, y, z = axes(T)
        W = stack_rows(along(x), along(y), along(z), about(x), about(y), about(z))
        error = error_twist(T)
        return CouplingRows(W, error, self.zero(T), jnp.zeros_like(error))


@struct
class Free(Coupling):
    """Free joint: C moves in all six directions. It has coordinates for laws and read-outs.

    C is fixed on the child body, D on the parent body. There are no bilateral rows.

    q[:3]: position of C's origin in D [m], zero at D's origin, positive along x, y, z of D
    q[3:]: rotation vector of C in D [rad], zero where the axes of C and D are parallel; its length
        is the angle, its direction the axis of the rotation by the right-hand rule, as in `Ball`

    Source: RBDL floating base and RigidBodyDynamics.jl quaternion floating, which store the
    quaternion of T_CD.

    >>> print(Free().coordinates(Pose.along_x(2.0) @ Pose.about_z(0.5)).round(3))
    [2.  0.  0.  0.  0.  0.5]
    """

    dof: ClassVar[int] = 6
    batched: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Position q[:3], rotation vector q[3:]."""
        return Pose.from_rotation_vector(q[3:], q[:3])

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Position and rotation vector, the latter continued from q."""
        r = quat_to_rotation_vector(T.q)
        return jnp.concatenate([T.p, r if q is None else unwrap_rotation_vector(r, q[3:])], axis=0)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        q = self.coordinates(T, q)
        rates = so3_right_jacobian_inverse(q[3:])
        R = T.R
        W = stack_rows(*(along(R[i]) for i in range(3)), *(about(rates[i]) for i in range(3)))
        error = jnp.zeros((0, *T.p.shape[1:]), T.p.dtype)
        return CouplingRows(W, error, q, error)


@struct
class FreeRodrigues(Coupling):
    """Free joint whose orientation is given by modified Rodrigues parameters.

    C is fixed on the child body, D on the parent body. There are no bilateral rows.

    q[:3]: position of C's origin in D [m], zero at D's origin, positive along x, y, z of D
    q[3:]: modified Rodrigues parameters σ of C in D [1], zero where the axes of C and D are
        parallel: σ = axis tan(angle / 4), for an angle about the axis by the right-hand rule

    For the quaternion (w, u), σ = u / (1 + w). The quaternion -(w, u) is the same rotation and has
    the shadow parameters -σ / |σ|². Of both sets the one nearer to the last known is taken while
    its length is below 10 (an angle of 337°), otherwise the other set.

    Source: RigidBodyDynamics.jl SPQuatFloating (which stores σ before the position).

    >>> half_turn = jnp.array([2.0, 0.0, 0.0, 0.0, 0.0, 1.0])  # tan(180° / 4) = 1
    >>> print(FreeRodrigues().pose(half_turn).apply(jnp.array([0.5, 0.0, 0.0])))
    [1.5 0.  0. ]
    """

    dof: ClassVar[int] = 6
    batched: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Position q[:3], parameters q[3:]."""
        square = dot(q[3:], q[3:])[None]
        return Pose(q[:3], jnp.concatenate([1 - square, 2 * q[3:]], axis=0) / (1 + square))

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Position and parameters, the latter continued from q."""
        near = (self.zero(T) if q is None else q)[3:]
        w, u = T.q[:1], T.q[1:]
        # Protects the divisions from w = -1, and for the shadow parameters from w = 1; neither
        # is taken below 1 ± w = 0.02.
        sigma, shadow = (s * u / jnp.maximum(1 + s * w, 0.01) for s in (1.0, -1.0))
        ahead, behind = dot(sigma - near, sigma - near), dot(shadow - near, shadow - near)
        first = (ahead <= behind) & (w[0] >= -0.98) | (w[0] > 0.98)
        return jnp.concatenate([T.p, jnp.where(first[None], sigma, shadow)], axis=0)

    def units(self) -> tuple[str, ...]:
        """A position and three parameters."""
        return "m", "m", "m", "1", "1", "1"

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        q = self.coordinates(T, q)
        sigma, R = q[3:], T.R
        x, y, z = axes(T)
        turned = ((1 - dot(sigma, sigma))[None] * e for e in (x, y, z))
        rates = [
            (plain - 2 * cross(sigma, jnp.broadcast_to(e, sigma.shape)) + 2 * s[None] * sigma) / 4
            for plain, e, s in zip(turned, (x, y, z), sigma, strict=True)
        ]
        W = stack_rows(*(along(R[i]) for i in range(3)), *map(about, rates))
        error = jnp.zeros((0, *T.p.shape[1:]), T.p.dtype)
        return CouplingRows(W, error, q, error)
