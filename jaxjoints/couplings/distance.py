"""Joints that keep a distance: the rod between two balls."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from ..pytree import struct
from ..rotation import quat_from_rotation_vector
from ..spatial import (
    Pose,
    norm,
    quat_rotate,
    quat_to_rotation_vector,
)
from .coupling import Residual
from .winding import unwind
from .wrench import check_length


@struct
class DoubleBall(Residual):
    """The origins of C and D stay `length` apart: a massless rod with a ball at each end.

    One row, the force along the rod; φ = |p| - length. Coordinates: the direction of the rod in D,
    as the two components about x and y of the rotation vector that takes z into it [rad], and the
    rotation vector of C in D [rad]; all zero where C stands at (0, 0, length). Both are continued
    from their last values.

    Special values: where the origins meet, the rod has no direction, its row is zero and errors
    are not removed. The direction -z is the pole of its two coordinates, 2π the singularity of
    the rotation vector; both are bounded.

    length: of the rod, > 0 [m]

    Source: ODE double ball (distance joint). Where the origins meet, ODE takes any direction.
    """

    length: Array
    dof: ClassVar[int] = 5

    def reference(self) -> Pose:
        """Upright, the rod along z."""
        return Pose.along_z(self.length)

    def pose(self, q: Array, t: Any = 0.0) -> Pose:
        """C at the end of the rod, both turned as the coordinates say."""
        turn = quat_from_rotation_vector(jnp.stack([q[0], q[1], jnp.zeros_like(q[0])]))
        end = jnp.zeros(3, q.dtype).at[2].set(self.length)
        return Pose.from_rotation_vector(q[2:], quat_rotate(turn, end))

    def project(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> tuple[Pose, Array]:
        """The nearest pose with the same directions, and its coordinates."""
        q = self.coordinates(T, q, t)
        return self.pose(q), q

    def residual(self, T: Pose, t: Array) -> Array:
        """Distance less length [m]."""
        return (norm(T.p) - self.length)[None]

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Direction of the rod and rotation vector of C, continued from q."""
        near = self.zero(T) if q is None else q
        x, y, z = T.p
        # The shortest rotation from z to p; at the pole -z, half a turn about x.
        half = jnp.stack([norm(T.p) + z, -y, x, jnp.zeros_like(z)])
        pole = norm(half) <= 4 * jnp.finfo(z.dtype).eps * norm(T.p)
        half = jnp.where(pole, jnp.eye(4, dtype=z.dtype)[1], half)
        across = unwind(
            quat_to_rotation_vector(half),
            jnp.stack([near[0], near[1], jnp.zeros_like(z)]),
        )
        turn = unwind(quat_to_rotation_vector(T.q), near[2:])
        return jnp.concatenate([across[:2], turn])

    def check(self) -> str | None:
        """See `Coupling.check`."""
        return check_length("length", self.length, "use Ball for points that coincide")
