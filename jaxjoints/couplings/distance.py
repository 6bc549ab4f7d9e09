"""Joints of two points at a distance: the rod between two balls, and the rope."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import Numbers, struct
from ..algebra.rotation import quat_from_rotation_vector
from ..algebra.spatial import Pose, norm, quat_rotate, quat_to_rotation_vector
from .angles import unwrap_rotation_vector
from .coupling import Residual
from .wrench import check_length


@struct
class DoubleBall(Residual):
    """Massless rod with a ball joint at each end: the origins of C and D stay `length` apart.

    C is fixed on the child body, D on the parent body.

    q[0], q[1]: direction of the rod from D's origin to C's: the components about x and y of D of
        the shortest rotation vector that takes z of D into that direction [rad]. By the right-hand
        rule a positive q[0] inclines the rod towards -y, and a positive q[1] towards +x of D.
    q[2:]: rotation vector of C in D [rad], positive by the right-hand rule
        All are zero where C's origin is at (0, 0, length) in D and the axes are parallel. They are
        continued from their last values.

    Row: the force along the rod; its error is |p| - length [m], with p the position of C's origin.

    Special values: where the origins coincide, the rod has no direction; its row is zero, with all
    derivatives of the row, and its error is not removed. The direction -z is the pole of q[0] and
    q[1], and 2π is the singularity of the rotation vector; values and rates are kept finite at
    both.

    length: of the rod, > 0 [m]

    Source: ODE double ball (distance joint). Where the origins coincide, ODE takes an arbitrary
    direction.

    >>> rod = DoubleBall(length=4.5)
    >>> print(rod.residual(Pose.translation([3.0, 4.0, 0.0]), 0.0))  # 5 m apart
    [0.5]
    """

    length: Numbers
    dof: ClassVar[int] = 5

    def reference(self) -> Pose:
        """The rod along z of D."""
        return Pose.along_z(self.length)

    def pose(self, q: Array, t: Any = 0.0) -> Pose:
        """Origin of C at the end of a rod in the direction of q[:2], rotation vector q[2:]."""
        return Pose.from_rotation_vector(q[2:], self.length * _direction(q[:2]))

    def project(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> tuple[Pose, Array]:
        """The nearest pose with the same directions, and its coordinates."""
        q = self.coordinates(T, q, t)
        return self.pose(q), q

    def residual(self, T: Pose, t: Array) -> Array:
        """Distance of the origins less `length` [m]."""
        return (norm(T.p) - self.length)[None]

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Direction of the rod and rotation vector of C, continued from q."""
        near = self.zero(T) if q is None else q
        turn = unwrap_rotation_vector(quat_to_rotation_vector(T.q), near[2:])
        return jnp.concatenate([_across(T.p, near[:2]), turn])

    def units(self) -> tuple[str, ...]:
        """Angles: the direction of the rod, which moves C without turning it, and the rotation."""
        return ("rad",) * 5

    def check(self) -> str | None:
        return check_length("length", self.length, "use Ball for points that coincide")


@struct
class Rope(Residual):
    """The distance of two points as a coordinate: with `Limits(upper=length)` a massless rope.

    C is fixed on the child body, D on the parent body; the rope ends in their origins. There are no
    bilateral rows.

    q[0]: distance of the origins [m], never negative, zero where they coincide
    q[1], q[2]: direction from D's origin to C's, as q[0] and q[1] of `DoubleBall` [rad], zero where
        it is z of D
    q[3:]: rotation vector of C in D [rad], zero where the axes of C and D are parallel, positive by
        the right-hand rule

    The upper limit on coordinate 0 is the length of the rope. It is hard, or elastic with
    `stiffness` and `damping`; it pulls and never pushes. `Limits(lower=…)` makes a strut, which
    pushes and never pulls.

    A step sees the rope in the direction that it has at its start. Where the ends may run past each
    other by more than the length in one step, `Limits(-length, length)` stops them on the other
    side too.

    Special value: where the origins coincide, the distance has no direction. Its row is zero, with
    all derivatives of the row: whatever acts on the distance, the body moves as without it.

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
        """Origin of C at the distance q[0] in the direction of q[1:3], rotation vector q[3:]."""
        return Pose.from_rotation_vector(q[3:], q[0] * _direction(q[1:3]))

    def project(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> tuple[Pose, Array]:
        """The pose T and its coordinates: there is no surface to project on."""
        return T, self.coordinates(T, q, t)

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Distance, direction and rotation vector, the latter two continued from q."""
        near = self.zero(T) if q is None else q
        turn = unwrap_rotation_vector(quat_to_rotation_vector(T.q), near[3:])
        return jnp.concatenate([norm(T.p)[None], _across(T.p, near[1:3]), turn])

    def units(self) -> tuple[str, ...]:
        """A distance, and angles of the direction and of the rotation."""
        return ("m", *("rad",) * 5)


def _direction(across: Array) -> Array:
    """z turned by the rotation vector (x, y, 0), shape (3,)."""
    turn = quat_from_rotation_vector(jnp.append(across, jnp.zeros_like(across[0])))
    return quat_rotate(turn, jnp.eye(3, dtype=across.dtype)[2])


def _across(p: Array, near: Array) -> Array:
    """Components x and y of the shortest rotation vector that takes z into the direction of p."""
    x, y, z = p
    # The shortest rotation from z to p; at the pole -z, half a turn about x.
    half = jnp.stack([norm(p) + z, -y, x, jnp.zeros_like(z)])
    pole = norm(half) <= 4 * jnp.finfo(z.dtype).eps * norm(p)
    half = jnp.where(pole, jnp.eye(4, dtype=z.dtype)[1], half)
    return unwrap_rotation_vector(
        quat_to_rotation_vector(half), jnp.append(near, jnp.zeros_like(z))
    )[:2]
