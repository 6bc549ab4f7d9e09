"""Joints that keep a distance: the rod between two balls, and the rope, which keeps less."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import struct
from ..algebra.rotation import quat_from_rotation_vector
from ..algebra.spatial import Pose, norm, quat_rotate, quat_to_rotation_vector
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
        return Pose.from_rotation_vector(q[2:], self.length * _direction(q[:2]))

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
        turn = unwind(quat_to_rotation_vector(T.q), near[2:])
        return jnp.concatenate([_across(T.p, near[:2]), turn])

    def check(self) -> str | None:
        """See `Coupling.check`."""
        return check_length("length", self.length, "use Ball for points that coincide")


@struct
class Rope(Residual):
    """The origins of C and D lie at some distance: with `Limits(upper=length)` a rope of no mass.

    No bilateral rows. Six coordinates: the distance [m], and direction and rotation vector as those
    of `DoubleBall` [rad], all but the distance zero where C stands above D on z. The upper limit
    on coordinate 0 is the rope's length: hard, or stretching by its `stiffness` and `damping`,
    never pushing; a `Limits(lower=…)` makes a strut that never pulls.

    Special value: where the origins meet, the distance has no direction and its row is zero.

    >>> from jaxjoints import Limits, SystemBuilder
    >>> world = SystemBuilder()
    >>> bucket = world.body("bucket", mass=1.0, inertia=(0.1, 0.1, 0.1), pose=(0.0, 0.0, -0.5))
    >>> rope = world.joint("rope", Rope(), child=bucket, laws=[Limits(upper=2.0)])
    >>> print(world.build()[1].q[0])
    0.5
    """

    dof: ClassVar[int] = 6

    def residual(self, T: Pose, t: Array) -> Array:
        """None: shape (0,)."""
        return jnp.zeros(0, T.p.dtype)

    def pose(self, q: Array, t: Any = 0.0) -> Pose:
        """C at the distance q[0] in the direction of q[1:3], rotation vector q[3:]."""
        return Pose.from_rotation_vector(q[3:], q[0] * _direction(q[1:3]))

    def project(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> tuple[Pose, Array]:
        """The pose itself: nothing is held but by laws."""
        return T, self.coordinates(T, q, t)

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Distance, direction and rotation vector, the latter two continued from q."""
        near = self.zero(T) if q is None else q
        turn = unwind(quat_to_rotation_vector(T.q), near[3:])
        return jnp.concatenate([norm(T.p)[None], _across(T.p, near[1:3]), turn])


def _direction(across: Array) -> Array:
    """z turned by the rotation vector (x, y, 0), shape (3,)."""
    turn = quat_from_rotation_vector(jnp.append(across, jnp.zeros_like(across[0])))
    return quat_rotate(turn, jnp.eye(3, dtype=across.dtype)[2])


def _across(p: Array, near: Array) -> Array:
    """Components x and y of the rotation vector that takes z into the direction of p."""
    x, y, z = p
    # The shortest rotation from z to p; at the pole -z, half a turn about x.
    half = jnp.stack([norm(p) + z, -y, x, jnp.zeros_like(z)])
    pole = norm(half) <= 4 * jnp.finfo(z.dtype).eps * norm(p)
    half = jnp.where(pole, jnp.eye(4, dtype=z.dtype)[1], half)
    return unwind(quat_to_rotation_vector(half), jnp.append(near, jnp.zeros_like(z)))[:2]
