"""A ball joint whose coordinate is how far it has turned."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import struct
from ..algebra.rotation import stack
from ..algebra.spatial import (
    Pose,
    arctan2,
    norm,
    quat_to_rotation_vector,
    so3_right_jacobian_inverse,
)
from .coupling import Coupling, CouplingRows
from .winding import nearest_turn, unwind
from .wrench import about, along, axes, stack_rows

LEAST = 1e-4


@struct
class BallRotation(Coupling):
    """Ball joint whose first coordinate is the angle of its rotation beyond what `allowed` gives.

    With the rotation vector r = a u of T_CD, coordinates are a - |allowed ∘ u| [rad], and azimuth
    and elevation of the axis u = (cos β cos α, cos β sin α, sin β). `Limits(upper=0.0)` on the
    first is a rotation limit that differs from axis to axis; with `allowed` 0 it is the angle
    itself. The last two are undetermined where C is not turned, and α where u is along z; their
    rates are then kept finite. The angle is continued from its last value over π until 2π.

    Rows: forces along x, y, z of C, then the three coordinates.

    allowed: greatest rotation about x, y, z [rad], ≥ 0, shape (3,)

    Source: ArtiSynth SphericalCoupling with a rotation limit: the same distance, and for equal
    entries of `allowed` the same row. For unequal ones its row is along u / allowed, which is not
    the rate of its distance; ours is.
    """

    allowed: Array = (0.0, 0.0, 0.0)
    dof: ClassVar[int] = 3
    elementwise: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Rotation vector of angle q[0] + |allowed ∘ u| about u of azimuth q[1], elevation q[2]."""
        return Pose.from_rotation_vector(self._rotation_vector(q))

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Excess of the angle, azimuth and elevation, continued from q."""
        q = self.zero(T) if q is None else q
        r = unwind(quat_to_rotation_vector(T.q), self._rotation_vector(q))
        return self._measure(r, q)[0]

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
        r = unwind(quat_to_rotation_vector(T.q), self._rotation_vector(q))
        q, gradients = self._measure(r, q)
        J = so3_right_jacobian_inverse(r)
        moments = (about(sum(g[i][None] * J[i] for i in range(3))) for g in gradients)
        W = stack_rows(*(along(x) for x in axes(T)), *moments)
        error = T.rotate_inverse(T.p)
        return CouplingRows(W, error, q, jnp.zeros_like(error))

    def check(self) -> str | None:
        """See `Coupling.check`."""
        allowed = np.asarray(self.allowed)
        if allowed.shape != (3,):
            return f"allowed has shape {allowed.shape}; give one angle for each of x, y, z"
        if not (np.isfinite(allowed).all() and (allowed >= 0).all()):
            return f"allowed {allowed.tolist()} must be finite and >= 0"
        return None

    def _allowed(self, like: Array) -> Array:
        allowed = jnp.asarray(self.allowed, like.dtype)
        return allowed.reshape(allowed.shape + (1,) * (like.ndim - allowed.ndim))

    def _rotation_vector(self, q: Array) -> Array:
        u = _axis(q[1], q[2])
        return (q[0] + norm(self._allowed(q) * u))[None] * u

    def _measure(self, r: Array, near: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        """The coordinates of a rotation vector, and their gradients with respect to it."""
        allowed, angle = self._allowed(r), norm(r)
        # Protects the directions of r = 0, and of the axis z: they stay as they were.
        turned = angle > LEAST**2
        known = _axis(near[1], near[2])
        u = jnp.where(turned[None], r / jnp.where(turned, angle, 1.0)[None], known)
        level = u[0] * u[0] + u[1] * u[1]
        leaning = level > LEAST**4
        azimuth = arctan2(jnp.where(leaning, u[1], 0.0), jnp.where(leaning, u[0], 1.0))
        azimuth = jnp.where(leaning, azimuth, near[1])
        cosine = jnp.sqrt(jnp.where(leaning, level, 1.0))
        cosine = jnp.where(leaning, cosine, 0.0)
        elevation = arctan2(u[2], cosine)
        most = norm(allowed * u)
        pair = nearest_turn(jnp.stack([azimuth, elevation]), near[1:])
        q = jnp.concatenate([(angle - most)[None], pair], axis=0)
        # Protects the divisions from the same places, by keeping the rates finite.
        arm = jnp.maximum(angle, LEAST)
        share = jnp.where(most > 0, 1 / (jnp.where(most > 0, most, 1.0) * arm), 0.0)
        bent = (allowed * allowed - (most * most)[None]) * u
        by_azimuth = stack(-jnp.sin(azimuth), jnp.cos(azimuth), jnp.zeros_like(azimuth))
        sine = u[2]
        by_elevation = stack(-sine * jnp.cos(azimuth), -sine * jnp.sin(azimuth), cosine)
        gradients = (
            u - share[None] * bent,
            by_azimuth / (arm * jnp.maximum(cosine, LEAST))[None],
            by_elevation / arm[None],
        )
        return q, gradients


def _axis(azimuth: Array, elevation: Array) -> Array:
    level = jnp.cos(elevation)
    return stack(level * jnp.cos(azimuth), level * jnp.sin(azimuth), jnp.sin(elevation))
