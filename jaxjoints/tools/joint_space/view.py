"""Joint space: what a coupling is in configurations x and velocities v of one joint.

x are n numbers that give the pose T_CD, v the k numbers that give the twist of C relative to D, in
C, (linear, angular). A record says what x and v are; the rest is derived here, for all couplings:

    twist = S v,    acceleration = S v̇ + Ṡ v,    τ = Sᵀ f,    v = A ẋ,    ẋ = A⁺ v.

Each method is a pure function of one joint on its surface; map it over many with `jax.vmap`.
"""

from dataclasses import field
from functools import partial

import chex
import jax
import jax.numpy as jnp
from jax import Array

from ...algebra.dense import inverse
from ...algebra.pytree import replace, struct
from ...algebra.spatial import Pose, error_twist
from ...couplings.coupling import Coupling, Residual, motion_of
from ...laws.law import Law
from ...laws.limits import Limits, Lock

# Rounding of the motion subspaces of one coupling, in units of the precision.
ROUNDING = 1e4
# The products of accelerators are coarser by default, and a joint has one or two.
product = partial(jnp.matmul, precision="highest")
# Configurations at which the traits of a coupling are read off.
SAMPLES = 5


@struct
class JointSpace:
    """A coupling in its own coordinates: configuration x = q, velocities v = q̇.

    coupling: the coupling
    laws: laws of the joint, of which the position bounds are read
    max_speed: bound of each |v| [m/s or rad/s]; max_effort: of each |τ| [N or N m]; a number or
        shape (k,). Stored to be read: no law enforces them
    t: time at which a coupling that depends on it is held [s]

    Source: the joint interface of RigidBodyDynamics.jl, whose `joint_transform` is `pose`,
    `velocity_to_configuration_derivative!` is `rates` and
    `configuration_derivative_to_velocity!` is `velocity`; its six-vectors are (angular, linear).

    >>> from jaxjoints.couplings.rotary import Ball
    >>> elbow = JointSpace(Ball(), laws=(Limits(upper=2.0, coordinate=1),))
    >>> q, v = jnp.array([0.0, 1.0, 0.0]), jnp.array([0.0, 3.0, 0.0])
    >>> print(elbow.twist(q, v), elbow.torque(q, jnp.array([0.0, 0.0, 0.0, 0.0, 5.0, 0.0])))
    [0. 0. 0. 0. 3. 0.] [0. 5. 0.]
    >>> print(elbow.position_bounds()[1])
    [inf  2. inf]
    """

    coupling: Coupling
    laws: tuple[Law, ...] = field(default=(), kw_only=True)
    max_speed: Array | float = field(default=jnp.inf, kw_only=True)
    max_effort: Array | float = field(default=jnp.inf, kw_only=True)
    t: Array | float = field(default=0.0, kw_only=True)

    def __post_init__(self):
        complaint = self._complaint()
        if complaint:
            raise ValueError(f"{type(self).__name__}: {complaint}")

    # Counts and traits

    @property
    def positions(self) -> int:
        """How many numbers a configuration has: n."""
        return self.coupling.dof

    @property
    def velocities(self) -> int:
        """How many velocities, and degrees of freedom, the joint has: k."""
        return self.coupling.dof

    @property
    def constraints(self) -> int:
        """How many bilateral rows the joint has: 6 - k."""
        return 6 - self.coupling.dof

    @property
    def is_floating(self) -> bool:
        """Whether the joint leaves all motion free."""
        return self.coupling.dof == 6

    def has_fixed_subspaces(self) -> Array:
        """Whether the same motions, seen in C, are free at every configuration; (), bool.

        Found by comparing a few random configurations.
        """
        return _is_fixed(self)

    def has_constant_motion(self) -> Array:
        """Whether S itself is the same at every configuration, so that no bias arises; (), bool.

        Found by comparing a few random configurations.
        """
        return _is_constant(self)

    # Poses and subspaces

    def coordinates(self, x: Array) -> Array:
        """The coupling's coordinates q at a configuration, shape (k,)."""
        chex.assert_shape(x, (self.positions,))
        return x

    def pose(self, x: Array) -> Pose:
        """T_CD at a configuration, shape (n,)."""
        return self._surface(self.coordinates(x))

    def configuration(self, T: Pose, near: Array | None = None) -> Array:
        """The configuration of a pose T = T_CD, continued from `near` (zero by default)."""
        return self.coupling.coordinates(T, near, self.t)

    def motion_subspace(self, x: Array) -> Array:
        """S: twist per unit of each velocity, shape (6, k)."""
        return motion_of(self._surface, self.coordinates(x))

    def wrench_subspace(self, x: Array) -> Array:
        """Bilateral wrenches in C as columns, shape (6, 6 - k): those that do no work on S."""
        W = self.coupling.wrenches(self.pose(x), self.coordinates(x), self.t)
        return W[: self.constraints].T

    # Motion and force

    def twist(self, x: Array, v: Array) -> Array:
        """Twist of C relative to D, S v, shape (6,)."""
        return product(self.motion_subspace(x), v)

    def acceleration(self, x: Array, v: Array, vd: Array) -> Array:
        """Spatial acceleration of C relative to D, d(S v)/dt = S v̇ + Ṡ v, shape (6,)."""
        return jax.jvp(self.twist, (x, v), (self.rates(x, v), vd))[1]

    def bias_acceleration(self, x: Array, v: Array) -> Array:
        """Spatial acceleration at constant velocities, Ṡ v, shape (6,)."""
        return self.acceleration(x, v, jnp.zeros_like(v))

    def torque(self, x: Array, wrench: Array) -> Array:
        """Effort of each velocity, Sᵀ f, for the wrench f (6,) on C in C; shape (k,)."""
        return product(self.motion_subspace(x).T, wrench)

    # Rates of configurations and velocities

    def velocity(self, x: Array, xd: Array) -> Array:
        """v of the rate ẋ (n,) of a configuration, shape (k,)."""
        return jax.jvp(self.coordinates, (x,), (xd,))[1]

    def velocity_jacobian(self, x: Array) -> Array:
        """A of v = A ẋ, shape (k, n)."""
        basis = jnp.eye(self.positions, dtype=x.dtype)
        return jax.vmap(lambda xd: self.velocity(x, xd), out_axes=1)(basis)

    def velocity_adjoint(self, x: Array, f: Array) -> Array:
        """Aᵀ f, shape (n,), for f (k,) dual to the velocities: (Aᵀ f)·ẋ = f·v."""
        return product(self.velocity_jacobian(x).T, f)

    def rates(self, x: Array, v: Array) -> Array:
        """ẋ of the velocities (k,), shape (n,): of all such, the shortest."""
        return product(self.rates_jacobian(x), v)

    def rates_jacobian(self, x: Array) -> Array:
        """A⁺ of ẋ = A⁺ v, shape (n, k)."""
        return right_inverse(self.velocity_jacobian(x))

    # Coordinates about a configuration

    def local_coordinates(self, origin: Array, x: Array) -> Array:
        """φ of a configuration seen from another, 0 where they agree, shape (k,): x - origin."""
        return x - origin

    def local_rates(self, origin: Array, x: Array, v: Array) -> Array:
        """φ̇ of local coordinates while x moves at the velocities v, shape (k,)."""
        rates = self.rates(x, v)
        return jax.jvp(lambda x: self.local_coordinates(origin, x), (x,), (rates,))[1]

    def global_coordinates(self, origin: Array, phi: Array) -> Array:
        """The configuration whose local coordinates are φ (k,), shape (n,)."""
        return origin + phi

    # Particular configurations

    def zero(self) -> Array:
        """The configuration whose coordinates are zero, shape (n,)."""
        return jnp.zeros(self.positions)

    def random(self, key: Array, spread: float = 1.0) -> Array:
        """A random configuration, shape (n,): coordinates uniform, evenly about 0.

        key: of `jax.random`
        spread: farthest from 0, or from the bound next to 0 [m or rad]; bounds are kept
        """
        lower, upper = self.position_bounds()
        centre = jnp.clip(0.0, lower, upper)
        least, most = jnp.maximum(lower, centre - spread), jnp.minimum(upper, centre + spread)
        return jax.random.uniform(key, lower.shape, lower.dtype, least, most)

    def normalized(self, x: Array) -> Array:
        """The configuration with what is redundant in it in standard form, shape (n,)."""
        return x

    def is_normalized(self, x: Array, tolerance: float = 1e-6) -> Array:
        """Whether a configuration is normalized, within the tolerance; shape (), bool."""
        return jnp.all(jnp.abs(self.normalized(x) - x) <= tolerance)

    def principal(self, x: Array) -> Array:
        """Of all configurations with the same pose the one nearest to zero, shape (n,).

        Angles within half a turn, a quaternion with w ≥ 0, Rodrigues parameters of length ≤ 1; x
        itself where no other is found.
        """
        T = self.pose(x)
        found = self.configuration(T)
        # From zero a screw may be found on another turn, where its angle fits but not its height.
        way = error_twist(self.pose(found).inverse() @ T)
        return jnp.where(jnp.all(jnp.abs(way) <= jnp.finfo(way.dtype).eps ** 0.5), found, x)

    # Bounds

    def position_bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds of the coordinates q by `Limits` and `Lock`, each (k,)."""
        lower, upper = self._within(jnp.inf)
        for law in self.laws:
            if isinstance(law, Lock):
                least = most = law.value
            elif isinstance(law, Limits):
                least, most = law.lower, law.upper
            else:
                continue
            i = law.coordinate
            if least is not None:
                lower = lower.at[i].max(jnp.asarray(least, lower.dtype))
            if most is not None:
                upper = upper.at[i].min(jnp.asarray(most, upper.dtype))
        return lower, upper

    def velocity_bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds of the velocities, each (k,)."""
        return self._within(self.max_speed)

    def effort_bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds of the efforts, each (k,)."""
        return self._within(self.max_effort)

    def _within(self, most: Array | float) -> tuple[Array, Array]:
        most = jnp.broadcast_to(jnp.asarray(most, float), (self.velocities,))
        return -most, most

    def _surface(self, q: Array) -> Pose:
        if isinstance(self.coupling, Residual):
            return self.coupling.pose(q, self.t)
        return self.coupling.pose(q)

    def _complaint(self) -> str | None:
        """What is wrong with the record, as a sentence, or None."""
        dof = self.coupling.dof
        for law in self.laws:
            if not 0 <= law.coordinate < dof:
                return (
                    f"{type(law).__name__} acts on coordinate {law.coordinate}, but "
                    f"{type(self.coupling).__name__} has {dof}; they count from 0"
                )
        return None


def right_inverse(A: Array) -> Array:
    """A⁺ = Aᵀ (A Aᵀ)⁻¹, shape (n, k), of a matrix (k, n) of full rank k ≤ n."""
    if A.shape[0] == 0:
        return A.T
    return product(A.T, inverse(product(A, A.T)))


def _sampled_motion(space: JointSpace) -> Array:
    """S at a few random configurations, shape (samples, 6, k)."""
    free = replace(space, laws=())
    keys = jax.random.split(jax.random.key(0), SAMPLES)
    return jax.vmap(lambda key: free.motion_subspace(free.random(key)))(keys)


def _close(S: Array, other: Array) -> Array:
    least = ROUNDING * jnp.finfo(S.dtype).eps
    return jnp.all(jnp.abs(S - other) <= least * (1 + jnp.max(jnp.abs(other), initial=0.0)))


# Compiled: outside of `jit` their small operations would take seconds, one by one.
@jax.jit
def _is_constant(space: JointSpace) -> Array:
    S = _sampled_motion(space)
    return _close(S, S[:1])


@jax.jit
def _is_fixed(space: JointSpace) -> Array:
    S = _sampled_motion(space)
    # Onto the span at the first configuration, by its left inverse.
    onto = product(S[0], right_inverse(S[0].T).T)
    return _close(S, product(onto[None], S))
