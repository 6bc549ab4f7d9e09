"""Joint spaces whose configuration or velocities are not the coordinates and their rates."""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
from jax import Array

from ...algebra.pytree import replace, struct
from ...algebra.spatial import Pose, arctan2, dot, error_twist, norm, twist_of, unit
from ...couplings.coupling import Coupling, motion_of
from ...couplings.rigid import Free
from ...couplings.rotary import Ball
from .view import JointSpace, is_small, product, right_inverse


@struct
class BodySpeeds(JointSpace):
    """One joint with x = q, whose velocities v are components of the twist in the axes of C.

    S is the motion subspace at q = 0, at every configuration. Each column has unit angular
    velocity, or unit linear velocity if it does not turn. The coupling must have the same free
    motions in C at every configuration (`JointSpace.has_fixed_subspaces`).

    Raises: ValueError for other couplings, and as `JointSpace`.

    Source: RigidBodyDynamics.jl planar (v ≠ q̇) with `Planar`, SPQuat floating with
    `FreeRodrigues` (there σ and angular velocities come first).

    >>> from jaxjoints.couplings.planar import Planar
    >>> puck = BodySpeeds(Planar())
    >>> q, ahead = jnp.array([0.0, 0.0, jnp.pi / 2]), jnp.array([1.0, 0.0, 0.0])
    >>> print(puck.rates(q, ahead).round(6) + 0.0)
    [0. 1. 0.]
    """

    def motion_subspace(self, x: Array) -> Array:
        """S, the same at every configuration, shape (6, k)."""
        chex.assert_shape(x, (self.positions,))
        S = motion_of(self._pose_of, jnp.zeros(self.coupling.dof, x.dtype))
        turning = norm(S[3:])
        return S / jnp.where(turning > 0, turning, norm(S[:3]))[None]

    def velocity(self, x: Array, xd: Array) -> Array:
        """v of the rate ẋ (n,) of a configuration, shape (k,)."""
        twist = twist_of(*jax.jvp(self.pose, (x,), (xd,)))
        return product(right_inverse(self.motion_subspace(x).T).T, twist)

    def _complaint(self) -> str | None:
        complaint = JointSpace._complaint(self)
        if complaint or _holds(lambda: JointSpace(self.coupling).has_fixed_subspaces(), self):
            return complaint
        return (
            f"the free motion of {type(self.coupling).__name__} turns in C with its coordinates; "
            "use JointSpace, whose velocities are their rates"
        )


@struct
class SineCosine(JointSpace):
    """One joint of a single angle q, with x = (sin q, cos q) and v = q̇.

    x does not count turns. Any length of x but 0 stands for the same angle. Local coordinates are
    the angle between two configurations, within half a turn.

    Raises: ValueError for a coupling of another number of coordinates, or whose pose is another one
        after a turn; and as `JointSpace`.

    Source: RigidBodyDynamics.jl sine–cosine revolute.

    >>> from jaxjoints.couplings.rotary import Hinge
    >>> wheel = SineCosine(Hinge())
    >>> print(wheel.rates(wheel.zero(), jnp.array([3.0])))
    [3. 0.]
    """

    @property
    def positions(self) -> int:
        """Number of numbers in a configuration: 2."""
        return 2

    def coordinates(self, x: Array) -> Array:
        """The angle, within half a turn, shape (1,)."""
        chex.assert_shape(x, (2,))
        return arctan2(x[:1], x[1:])

    def configuration(self, T: Pose, near: Array | None = None) -> Array:
        return _sine_cosine(self.coupling.coordinates(T, None, self.t))

    def local_coordinates(self, origin: Array, x: Array) -> Array:
        """Angle from `origin` to x, within half a turn, shape (1,)."""
        ahead = x[0] * origin[1] - x[1] * origin[0]
        return arctan2(ahead, dot(x, origin))[None]

    def global_coordinates(self, origin: Array, phi: Array) -> Array:
        return _sine_cosine(self.coordinates(origin) + phi)

    def zero(self) -> Array:
        return jnp.array([0.0, 1.0])

    def random(self, key: Array, spread: float = jnp.pi) -> Array:
        return _sine_cosine(JointSpace.random(self, key, spread))

    def normalized(self, x: Array) -> Array:
        """The configuration with sin² + cos² = 1."""
        return unit(x)

    def _complaint(self) -> str | None:
        name, dof = type(self.coupling).__name__, self.coupling.dof
        if dof != 1:
            return f"{name} has {dof} coordinates; sine and cosine stand for one, as of a Hinge"
        if not _holds(lambda: _is_periodic(self.coupling), self):
            return f"{name} is not where it was after a turn of 2π; use JointSpace, which counts on"
        return JointSpace._complaint(self)


@struct
class UnitQuaternion(BodySpeeds):
    """A `Ball` or `Free` joint with a quaternion in its configuration and the twist as velocities.

    x is the pose T_CD: the quaternion (w, u) for a ball, position and quaternion (p, w, u) for a
    free joint. v is the twist of C in D, in C: the angular velocity for a ball, (linear, angular)
    for a free joint. Any length of the quaternion but 0 stands for the same rotation, and A and A⁺
    take it into account. Local coordinates of a ball are the rotation vector between two
    configurations, those of a free joint the twist that leads from one to the other in unit time;
    they turn by at most π.

    Raises: ValueError for other couplings, and as `JointSpace`.

    Source: RigidBodyDynamics.jl quaternion spherical and quaternion floating (there the quaternion
    and angular velocities come first).

    >>> shoulder = UnitQuaternion(Ball())
    >>> print(shoulder.rates(shoulder.zero(), jnp.array([0.0, 0.0, 2.0])))
    [0. 0. 0. 1.]
    """

    @property
    def positions(self) -> int:
        """Number of numbers in a configuration: 4 for a ball, 7 for a free joint."""
        return self.coupling.dof + 1

    def coordinates(self, x: Array) -> Array:
        """Rotation vector (3,); for a free joint the position before it, (6,)."""
        return self.coupling.coordinates(self.pose(x))

    def pose(self, x: Array) -> Pose:
        chex.assert_shape(x, (self.positions,))
        turn = Pose.rotation(unit(x[-4:]))
        return replace(turn, p=x[:3]) if self.is_floating else turn

    def configuration(self, T: Pose, near: Array | None = None) -> Array:
        """The configuration of a pose: of q and -q the quaternion nearer to `near`."""
        cosine = T.q[0] if near is None else dot(T.q, near[-4:])
        return self._configuration_of(replace(T, q=jnp.where(cosine < 0, -T.q, T.q)))

    def motion_subspace(self, x: Array) -> Array:
        """The identity (6, 6); for a ball its three columns of angular velocity."""
        chex.assert_shape(x, (self.positions,))
        return jnp.eye(6, dtype=x.dtype)[:, self.constraints :]

    def local_coordinates(self, origin: Array, x: Array) -> Array:
        return (self.pose(origin).inverse() @ self.pose(x)).log()[self.constraints :]

    def global_coordinates(self, origin: Array, phi: Array) -> Array:
        displacement = Pose.exp(product(self.motion_subspace(origin), phi))
        return self._configuration_of(self.pose(origin) @ displacement)

    def zero(self) -> Array:
        return self._configuration_of(Pose.identity())

    def random(self, key: Array, spread: float = 1.0) -> Array:
        """A configuration uniform among all rotations; position bounds are not taken into account.

        spread: largest component of the position of a free joint, uniform about 0 [m]
        """
        position_key, rotation_key = jax.random.split(key)
        p = jax.random.uniform(position_key, (3,), float, -spread, spread)
        return self._configuration_of(Pose(p, unit(jax.random.normal(rotation_key, (4,), float))))

    def normalized(self, x: Array) -> Array:
        """The configuration with a quaternion of length 1."""
        return self._configuration_of(self.pose(x))

    def _configuration_of(self, T: Pose) -> Array:
        """The numbers of a pose that the configuration has."""
        return jnp.concatenate([T.p, T.q]) if self.is_floating else T.q

    def _complaint(self) -> str | None:
        if isinstance(self.coupling, Ball | Free):
            return JointSpace._complaint(self)
        return (
            f"the rotation of {type(self.coupling).__name__} may not be free; a quaternion stands "
            "for that of a Ball or Free"
        )


def _holds(test: Callable[[], Array], space: JointSpace) -> bool:
    """Whether a test of a record holds; True without a test if its leaves are traced."""
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(space)):
        return True
    with jax.ensure_compile_time_eval():
        return bool(test())


@jax.jit
def _is_periodic(coupling: Coupling) -> Array:
    """Whether the pose after a turn of 2π is the same."""
    ahead, behind = (JointSpace(coupling).pose(jnp.array([q])) for q in (jnp.pi, -jnp.pi))
    return is_small(error_twist(behind.inverse() @ ahead))


def _sine_cosine(q: Array) -> Array:
    return jnp.concatenate([jnp.sin(q), jnp.cos(q)])
