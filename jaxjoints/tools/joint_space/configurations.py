"""Configurations and velocities of a joint other than coordinates and their rates."""

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
from .view import JointSpace, product, right_inverse


@struct
class BodySpeeds(JointSpace):
    """A coupling in its own coordinates, x = q, with velocities along axes that are fixed in C.

    The axes are those of the coordinates at q = 0: v has unit angular velocities about them, or
    unit velocities along them where they do not turn. For couplings whose motion is the same at
    every configuration, seen in C.

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
        S = motion_of(self._surface, jnp.zeros(self.coupling.dof, x.dtype))
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
    """A coupling of one angle q, which is stored as x = (sin q, cos q); v = q̇.

    The configuration knows no turns, and any length of x but 0 means the same. Local coordinates
    are the angle between two configurations, within half a turn.

    Source: RigidBodyDynamics.jl sine–cosine revolute.

    >>> from jaxjoints.couplings.rotary import Hinge
    >>> wheel = SineCosine(Hinge())
    >>> print(wheel.rates(wheel.zero(), jnp.array([3.0])))
    [3. 0.]
    """

    @property
    def positions(self) -> int:
        """Two."""
        return 2

    def coordinates(self, x: Array) -> Array:
        """The angle, within half a turn."""
        chex.assert_shape(x, (2,))
        return arctan2(x[:1], x[1:])

    def configuration(self, T: Pose, near: Array | None = None) -> Array:
        """See `JointSpace.configuration`."""
        return _sine_cosine(self.coupling.coordinates(T, None, self.t))

    def local_coordinates(self, origin: Array, x: Array) -> Array:
        """Angle from one configuration to the other, within half a turn."""
        ahead = x[0] * origin[1] - x[1] * origin[0]
        return arctan2(ahead, dot(x, origin))[None]

    def global_coordinates(self, origin: Array, phi: Array) -> Array:
        """See `JointSpace.global_coordinates`."""
        return _sine_cosine(self.coordinates(origin) + phi)

    def zero(self) -> Array:
        """See `JointSpace.zero`."""
        return jnp.array([0.0, 1.0])

    def random(self, key: Array, spread: float = jnp.pi) -> Array:
        """See `JointSpace.random`."""
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
    """A `Ball` with x = (w, u), or `Free` with x = (p, w, u): the numbers of the pose T_CD.

    v is the twist: the angular velocity of a ball, (linear, angular) of a free body. Any length of
    the quaternion but 0 means the same, and A and A⁺ allow for it. Local coordinates are the
    rotation vector, or the twist that leads to the pose in unit time; they turn by at most π.

    Source: RigidBodyDynamics.jl quaternion spherical and quaternion floating (there the quaternion
    and angular velocities come first).

    >>> shoulder = UnitQuaternion(Ball())
    >>> print(shoulder.rates(shoulder.zero(), jnp.array([0.0, 0.0, 2.0])))
    [0. 0. 0. 1.]
    """

    @property
    def positions(self) -> int:
        """Four or seven."""
        return self.coupling.dof + 1

    def coordinates(self, x: Array) -> Array:
        """Rotation vector, after the position of a free body."""
        return self.coupling.coordinates(self.pose(x))

    def pose(self, x: Array) -> Pose:
        """See `JointSpace.pose`."""
        chex.assert_shape(x, (self.positions,))
        turn = Pose.rotation(unit(x[-4:]))
        return replace(turn, p=x[:3]) if self.is_floating else turn

    def configuration(self, T: Pose, near: Array | None = None) -> Array:
        """See `JointSpace.configuration`: of the two signs the nearer one."""
        away = T.q[0] if near is None else dot(T.q, near[-4:])
        return self._numbers(replace(T, q=jnp.where(away < 0, -T.q, T.q)))

    def motion_subspace(self, x: Array) -> Array:
        """The twists themselves, those of a ball without the linear ones."""
        chex.assert_shape(x, (self.positions,))
        return jnp.eye(6, dtype=x.dtype)[:, self.constraints :]

    def local_coordinates(self, origin: Array, x: Array) -> Array:
        """See `JointSpace.local_coordinates`."""
        return (self.pose(origin).inverse() @ self.pose(x)).log()[self.constraints :]

    def global_coordinates(self, origin: Array, phi: Array) -> Array:
        """See `JointSpace.global_coordinates`."""
        way = Pose.exp(product(self.motion_subspace(origin), phi))
        return self._numbers(self.pose(origin) @ way)

    def zero(self) -> Array:
        """See `JointSpace.zero`."""
        return self._numbers(Pose.identity())

    def random(self, key: Array, spread: float = 1.0) -> Array:
        """A rotation uniform among all, bounds or not; a position uniform within `spread` [m]."""
        place, turn = jax.random.split(key)
        p = jax.random.uniform(place, (3,), float, -spread, spread)
        return self._numbers(Pose(p, unit(jax.random.normal(turn, (4,), float))))

    def normalized(self, x: Array) -> Array:
        """The configuration with a quaternion of length 1."""
        return self._numbers(self.pose(x))

    def _numbers(self, T: Pose) -> Array:
        return jnp.concatenate([T.p, T.q]) if self.is_floating else T.q

    def _complaint(self) -> str | None:
        if isinstance(self.coupling, Ball | Free):
            return JointSpace._complaint(self)
        return (
            f"the rotation of {type(self.coupling).__name__} may not be free; a quaternion stands "
            "for that of a Ball or Free"
        )


def _holds(test: Callable[[], Array], space: JointSpace) -> bool:
    """Whether a test of a record holds; taken for granted where its numbers are traced."""
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(space)):
        return True
    with jax.ensure_compile_time_eval():
        return bool(test())


@jax.jit
def _is_periodic(coupling: Coupling) -> Array:
    ahead, behind = (JointSpace(coupling).pose(jnp.array([q])) for q in (jnp.pi, -jnp.pi))
    way = error_twist(behind.inverse() @ ahead)
    return jnp.all(jnp.abs(way) <= jnp.finfo(way.dtype).eps ** 0.5)


def _sine_cosine(q: Array) -> Array:
    return jnp.concatenate([jnp.sin(q), jnp.cos(q)])
