"""The two extremes: no freedom at all, and all of it."""

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
from .coupling import Coupling, CouplingRows
from .winding import unwind
from .wrench import about, along, axes, stack_rows


@struct
class Fixed(Coupling):
    """C stays on D: a weld. No coordinates; rows: forces along, moments about x, y, z.

    Source: ArtiSynth SolidCoupling.
    """

    dof: ClassVar[int] = 0
    elementwise: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """The identity, with q's batch axes."""
        return Pose.identity(q.shape[1:], dtype=q.dtype)

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """None: shape (0,)."""
        return self.zero(T)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
        x, y, z = axes(T)
        W = stack_rows(along(x), along(y), along(z), about(x), about(y), about(z))
        error = error_twist(T)
        return CouplingRows(W, error, self.zero(T), jnp.zeros_like(error))


@struct
class Free(Coupling):
    """C moves freely; coordinates: position of C in D [m], rotation vector of T_CD [rad].

    No bilateral rows: a place for laws and read-outs. Rotation vector as in `Ball`.

    Source: RBDL floating base and RigidBodyDynamics.jl quaternion floating, which store the
    quaternion of T_CD.
    """

    dof: ClassVar[int] = 6
    elementwise: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Position q[:3], rotation vector q[3:]."""
        return Pose.from_rotation_vector(q[3:], q[:3])

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Position and rotation vector, the latter continued from q."""
        r = quat_to_rotation_vector(T.q)
        return jnp.concatenate([T.p, r if q is None else unwind(r, q[3:])], axis=0)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
        q = self.coordinates(T, q)
        rates = so3_right_jacobian_inverse(q[3:])
        R = T.R
        W = stack_rows(*(along(R[i]) for i in range(3)), *(about(rates[i]) for i in range(3)))
        error = jnp.zeros((0, *T.p.shape[1:]), T.p.dtype)
        return CouplingRows(W, error, q, error)


@struct
class FreeRodrigues(Coupling):
    """C moves freely; coordinates: position of C in D [m], modified Rodrigues parameters of T_CD.

    The parameters are σ = u / (1 + w) = axis tan(angle / 4) for the quaternion (w, u). Those of
    -(w, u), the shadow -σ / |σ|², stand for the same rotation: the nearer to the last known is
    taken while |σ| < 10 (a turn by 337°), beyond that the other one.

    Source: RigidBodyDynamics.jl SPQuatFloating (which stores σ before the position).
    """

    dof: ClassVar[int] = 6
    elementwise: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Position q[:3], parameters q[3:]."""
        square = dot(q[3:], q[3:])[None]
        return Pose(q[:3], jnp.concatenate([1 - square, 2 * q[3:]], axis=0) / (1 + square))

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Position and parameters, the latter continued from q."""
        near = (self.zero(T) if q is None else q)[3:]
        w, u = T.q[:1], T.q[1:]
        # Protects the division from a full turn, w = -1, or for the shadow none, w = 1; neither
        # is taken below 1 ± w = 0.02.
        sigma, shadow = (s * u / jnp.maximum(1 + s * w, 0.01) for s in (1.0, -1.0))
        ahead, behind = dot(sigma - near, sigma - near), dot(shadow - near, shadow - near)
        first = (ahead <= behind) & (w[0] >= -0.98) | (w[0] > 0.98)
        return jnp.concatenate([T.p, jnp.where(first[None], sigma, shadow)], axis=0)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
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
