"""JointSpace: one joint, without error, in its configuration x and its velocities v.

The configuration x has n numbers, which determine the pose T_CD. The velocities v have k numbers,
which determine the twist of C relative to D, in the axes of C, (linear, angular). Each type of
record chooses what x and v are. For all of them

    twist = S v,    acceleration = S v̇ + Ṡ v,    τ = Sᵀ f,    v = A ẋ,    ẋ = A⁺ v.

S is the motion subspace, f the wrench on C, τ the efforts, A⁺ the pseudo-inverse of A. Each method
is a pure function for one joint; map it over many with `jax.vmap`.
"""

from dataclasses import field
from functools import partial

import chex
import jax
import jax.numpy as jnp
from jax import Array

from ...algebra.dense import inverse
from ...algebra.options import brief
from ...algebra.pytree import replace, struct
from ...algebra.spatial import Pose, error_twist
from ...couplings.coupling import Coupling, Residual, motion_of
from ...laws.law import Law
from ...laws.limits import Limits, Lock

# Differences of motion subspaces that are taken for rounding, in units of the precision.
ROUNDING = 1e4
# On accelerators matrix products are of low precision by default.
product = partial(jnp.matmul, precision="highest")
# Number of configurations that `has_fixed_subspaces` and `has_constant_motion` compare.
SAMPLES = 5


@struct
class JointSpace:
    """One joint whose configuration is its coordinates, x = q, and whose velocities are v = q̇.

    coupling: the coupling of the joint, with k coordinates
    laws: laws of the joint; `position_bounds` reads its `Limits` and `Lock`
    max_speed: bound of each |v| [m/s or rad/s], a number or shape (k,)
    max_effort: bound of each |τ| [N or N m], a number or shape (k,)
    t: time [s] at which the allowed poses of a coupling are taken that depend on time

    The bounds are stored for users to read; no method enforces them.

    Raises: ValueError for a law on a coordinate that the coupling does not have.

    Source: the joint interface of RigidBodyDynamics.jl, whose `joint_transform` is `pose`,
    `velocity_to_configuration_derivative!` is `rates` and
    `configuration_derivative_to_velocity!` is `velocity`; its six-vectors are (angular, linear).
    Its Revolute, Prismatic, QuaternionSpherical, QuaternionFloating and SPQuatFloating are `Hinge`,
    `Slider`, `Ball`, `Free` and `FreeRodrigues`, its SinCosRevolute is `SineCosine`.

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

    # Numbers of variables, and properties of the motion

    @property
    def positions(self) -> int:
        """Number n of numbers in a configuration."""
        return self.coupling.dof

    @property
    def velocities(self) -> int:
        """Number k of velocities, which is the number of degrees of freedom."""
        return self.coupling.dof

    @property
    def constraints(self) -> int:
        """Number 6 - k of bilateral rows."""
        return 6 - self.coupling.dof

    @property
    def is_floating(self) -> bool:
        """Whether the joint has six degrees of freedom."""
        return self.coupling.dof == 6

    def has_fixed_subspaces(self) -> Array:
        """Whether the span of S, in the axes of C, is the same at every configuration; (), bool.

        It is tested at a few random configurations.
        """
        return _is_fixed(self)

    def has_constant_motion(self) -> Array:
        """Whether S is the same at every configuration, so that Ṡ = 0; (), bool.

        It is tested at a few random configurations.
        """
        return _is_constant(self)

    # Poses and subspaces

    def coordinates(self, x: Array) -> Array:
        """The coupling's coordinates q at a configuration, shape (k,)."""
        chex.assert_shape(x, (self.positions,))
        return x

    def pose(self, x: Array) -> Pose:
        """T_CD at a configuration, shape (n,)."""
        return self._pose_of(self.coordinates(x))

    def configuration(self, T: Pose, near: Array | None = None) -> Array:
        """The configuration x of a pose T = T_CD, shape (n,).

        near: configuration from which angles are continued beyond a turn, shape (n,); zero by
            default
        """
        return self.coupling.coordinates(T, near, self.t)

    def motion_subspace(self, x: Array) -> Array:
        """S: column i is the twist of C in D, in C, for unit velocity v_i, shape (6, k)."""
        return motion_of(self._pose_of, self.coordinates(x))

    def wrench_subspace(self, x: Array) -> Array:
        """Constraint wrenches in C as columns, shape (6, 6 - k): they do no work on motions S v."""
        W = self.coupling.wrenches(self.pose(x), self.coordinates(x), self.t)
        return W[: self.constraints].T

    # Motion and force

    def twist(self, x: Array, v: Array) -> Array:
        """Twist of C relative to D in C, S v, shape (6,)."""
        return product(self.motion_subspace(x), v)

    def acceleration(self, x: Array, v: Array, vd: Array) -> Array:
        """Spatial acceleration of C relative to D in C, d(S v)/dt = S v̇ + Ṡ v, shape (6,)."""
        return jax.jvp(self.twist, (x, v), (self.rates(x, v), vd))[1]

    def bias_acceleration(self, x: Array, v: Array) -> Array:
        """Spatial acceleration at constant velocities v, Ṡ v, shape (6,)."""
        return self.acceleration(x, v, jnp.zeros_like(v))

    def torque(self, x: Array, wrench: Array) -> Array:
        """Efforts τ = Sᵀ f of the velocities, shape (k,), for the wrench f (6,) on C, in C."""
        return product(self.motion_subspace(x).T, wrench)

    # Rates of configurations and velocities

    def velocity(self, x: Array, xd: Array) -> Array:
        """Velocities v = A ẋ of a configuration's rate ẋ (n,), shape (k,)."""
        return jax.jvp(self.coordinates, (x,), (xd,))[1]

    def velocity_jacobian(self, x: Array) -> Array:
        """A of v = A ẋ, shape (k, n)."""
        basis = jnp.eye(self.positions, dtype=x.dtype)
        return jax.vmap(lambda xd: self.velocity(x, xd), out_axes=1)(basis)

    def velocity_adjoint(self, x: Array, f: Array) -> Array:
        """Aᵀ f, shape (n,), of efforts f (k,): of equal power, (Aᵀ f)·ẋ = f·v."""
        return product(self.velocity_jacobian(x).T, f)

    def rates(self, x: Array, v: Array) -> Array:
        """Rate ẋ = A⁺ v of the configuration, shape (n,): the shortest with A ẋ = v."""
        return product(self.rates_jacobian(x), v)

    def rates_jacobian(self, x: Array) -> Array:
        """A⁺ of ẋ = A⁺ v, shape (n, k)."""
        return right_inverse(self.velocity_jacobian(x))

    # Coordinates about a configuration

    def local_coordinates(self, origin: Array, x: Array) -> Array:
        """Local coordinates φ of x about `origin`, 0 at the origin, shape (k,): here x - origin."""
        return x - origin

    def local_rates(self, origin: Array, x: Array, v: Array) -> Array:
        """Rate φ̇ of the local coordinates while x moves with velocities v, shape (k,)."""
        rates = self.rates(x, v)
        return jax.jvp(lambda x: self.local_coordinates(origin, x), (x,), (rates,))[1]

    def global_coordinates(self, origin: Array, phi: Array) -> Array:
        """The configuration whose local coordinates about `origin` are φ (k,), shape (n,)."""
        return origin + phi

    # Particular configurations

    def zero(self) -> Array:
        """The configuration whose coordinates are zero, shape (n,)."""
        return jnp.zeros(self.positions)

    def random(self, key: Array, spread: float = 1.0) -> Array:
        """A random configuration within the position bounds, shape (n,).

        Each coordinate is uniform around 0, or around the bound nearest to 0.

        key: of `jax.random`
        spread: largest distance from there [m or rad]
        """
        lower, upper = self.position_bounds()
        centre = jnp.clip(0.0, lower, upper)
        low, high = jnp.maximum(lower, centre - spread), jnp.minimum(upper, centre + spread)
        return jax.random.uniform(key, lower.shape, lower.dtype, low, high)

    def normalized(self, x: Array) -> Array:
        """The same pose as a configuration in standard form, such as a unit quaternion, (n,)."""
        return x

    def is_normalized(self, x: Array, tolerance: float = 1e-6) -> Array:
        """Whether a configuration is in standard form, within the tolerance; shape (), bool."""
        return jnp.all(jnp.abs(self.normalized(x) - x) <= tolerance)

    def principal(self, x: Array) -> Array:
        """Of all configurations with the same pose the one nearest to zero, shape (n,).

        It has angles within half a turn, a quaternion with w ≥ 0, Rodrigues parameters of length
        ≤ 1. If the joint has no other configuration with this pose, it is x itself.
        """
        T = self.pose(x)
        nearest = self.configuration(T)
        # For a screw, the angle within half a turn has another height: the pose is not the same.
        return jnp.where(is_small(error_twist(self.pose(nearest).inverse() @ T)), nearest, x)

    # Bounds

    def position_bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds of the coordinates q from `Limits` and `Lock`, each (k,)."""
        lower, upper = self._symmetric(jnp.inf)
        for law in self.laws:
            if isinstance(law, Lock):
                least = greatest = law.value
            elif isinstance(law, Limits):
                least, greatest = law.lower, law.upper
            else:
                continue
            i = law.coordinate
            if least is not None:
                lower = lower.at[i].max(jnp.asarray(least, lower.dtype))
            if greatest is not None:
                upper = upper.at[i].min(jnp.asarray(greatest, upper.dtype))
        return lower, upper

    def velocity_bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds of the velocities, each (k,)."""
        return self._symmetric(self.max_speed)

    def effort_bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds of the efforts, each (k,)."""
        return self._symmetric(self.max_effort)

    def _symmetric(self, bound: Array | float) -> tuple[Array, Array]:
        """Minus and plus a bound, each (k,)."""
        bound = jnp.broadcast_to(jnp.asarray(bound, float), (self.velocities,))
        return -bound, bound

    def _pose_of(self, q: Array) -> Pose:
        """T_CD at coordinates q, at the time of the record."""
        if isinstance(self.coupling, Residual):
            return self.coupling.pose(q, self.t)
        return self.coupling.pose(q)

    def _complaint(self) -> str | None:
        """What is wrong with the record, as a sentence, or None; called once it is made."""
        if not isinstance(self.coupling, Coupling):
            return f"coupling {brief(self.coupling)} must be a record such as Hinge()"
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


def is_small(twist: Array) -> Array:
    """Whether the displacement between two poses is rounding; shape (), bool."""
    return jnp.all(jnp.abs(twist) <= jnp.finfo(twist.dtype).eps ** 0.5)


def _sampled_motion(space: JointSpace) -> Array:
    """S at a few random configurations, shape (samples, 6, k)."""
    free = replace(space, laws=())
    keys = jax.random.split(jax.random.key(0), SAMPLES)
    return jax.vmap(lambda key: free.motion_subspace(free.random(key)))(keys)


def _close(S: Array, other: Array) -> Array:
    """Whether motion subspaces agree to rounding."""
    least = ROUNDING * jnp.finfo(S.dtype).eps
    return jnp.all(jnp.abs(S - other) <= least * (1 + jnp.max(jnp.abs(other), initial=0.0)))


# Compiled: dispatched one by one, their many small operations would take seconds.
@jax.jit
def _is_constant(space: JointSpace) -> Array:
    S = _sampled_motion(space)
    return _close(S, S[:1])


@jax.jit
def _is_fixed(space: JointSpace) -> Array:
    S = _sampled_motion(space)
    # The projection onto the span at the first configuration.
    projection = product(S[0], right_inverse(S[0].T).T)
    return _close(S, product(projection[None], S))
