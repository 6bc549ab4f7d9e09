"""A spherical joint with the total angle of its rotation as a coordinate."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import Numbers, struct
from ..algebra.rotation import stack
from ..algebra.spatial import (
    Pose,
    arctan2,
    norm,
    quat_to_rotation_vector,
    so3_right_jacobian_inverse,
)
from .angles import unwrap_angle, unwrap_rotation_vector
from .coupling import Coupling, CouplingRows
from .wrench import about, along, axes, stack_rows

LEAST = 1e-4


@struct
class BallRotation(Coupling):
    """Spherical joint whose first coordinate is the angle of rotation less an allowed angle.

    C is fixed on the child body, D on the parent body; their origins coincide. The rotation vector
    of C in D is a u: the angle a ≥ 0 about the unit vector u = (cos β cos α, cos β sin α, sin β),
    by the right-hand rule.

    q[0]: excess a - |allowed ∘ u| of the angle [rad], with the product ∘ of components. It is zero
        where C has turned by as much as is allowed about u, negative where by less. With `allowed`
        0 it is the angle a, zero where the axes of C and D coincide.
    q[1]: azimuth α of u [rad], zero where u is in the x–z plane on the side of +x, positive from x
        towards y
    q[2]: elevation β of u [rad], zero where u is in the x–y plane, positive towards z

    `Limits(upper=0.0)` on coordinate 0 is a limit of rotation that differs from axis to axis. The
    angle a is continued from its last value beyond π until 2π. Where C is not turned, α and β are
    undetermined; where u is along z, α is. They keep their last values there, and their rates are
    kept finite.

    Rows: forces along x, y, z of C, then the three coordinates.

    allowed: largest angle of rotation about x, y and z [rad], ≥ 0, shape (3,)

    Source: ArtiSynth SphericalCoupling with a rotation limit: the same distance, and for equal
    entries of `allowed` the same row. For unequal ones its row is along u / allowed, which is not
    the derivative of its distance; the row here is.

    >>> shoulder = BallRotation(allowed=(0.5, 1.0, 1.0))
    >>> print(shoulder.coordinates(Pose.about_x(0.75))[:1].round(3))  # 0.25 rad too far about x
    [0.25]
    >>> print(shoulder.coordinates(Pose.about_y(0.75))[:1].round(3))  # 0.25 rad are left about y
    [-0.25]
    """

    allowed: Numbers = (0.0, 0.0, 0.0)
    dof: ClassVar[int] = 3
    batched: ClassVar[bool] = True
    lower_pair: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Rotation vector of angle q[0] + |allowed ∘ u| about u of azimuth q[1], elevation q[2]."""
        return Pose.from_rotation_vector(self._rotation_vector(q))

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Excess of the angle, azimuth and elevation of the axis, continued from q."""
        q = self.zero(T) if q is None else q
        r = unwrap_rotation_vector(quat_to_rotation_vector(T.q), self._rotation_vector(q))
        return self._measure(r, q)[0]

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        r = unwrap_rotation_vector(quat_to_rotation_vector(T.q), self._rotation_vector(q))
        q, gradients = self._measure(r, q)
        J = so3_right_jacobian_inverse(r)
        moments = (about(sum(g[i][None] * J[i] for i in range(3))) for g in gradients)
        W = stack_rows(*(along(x) for x in axes(T)), *moments)
        error = T.rotate_inverse(T.p)
        return CouplingRows(W, error, q, jnp.zeros_like(error))

    def check(self) -> str | None:
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
        # Protects the directions from r = 0 and from the axis z: they keep their last values.
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
        pair = unwrap_angle(jnp.stack([azimuth, elevation]), near[1:])
        q = jnp.concatenate([(angle - most)[None], pair], axis=0)
        # Protects the divisions from the same rotations, and so keeps the rates finite.
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
