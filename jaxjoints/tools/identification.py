"""Parameters of a mechanism from recorded poses, each with its standard deviation."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.tree_util import Partial

from ..algebra.pytree import replace, static, struct
from ..model.state import Control, State
from ..model.system import System
from ..schemes.semi_implicit_euler import SemiImplicitEuler
from ..simulate.step import DEFAULT_SCHEME, step
from ..simulate.tiles import cores, map_tiles

# Standard deviation of a number that is uniform between 0 and 1.
PRIOR_DEVIATION = 12**-0.5
# Two fits are equally good if their sums of squares differ by less: three standard deviations.
EQUALLY_GOOD = 9.0

Residual = Callable[[dict[str, Array], Array], Array]


@struct
class Unknown:
    """A parameter to identify, with what is known before: it is uniform from `lower` to `upper`.

    lower, upper: bounds of the parameter, lower < upper
    log: its logarithm is uniform, as for a parameter whose order of magnitude is unknown; needs
        lower > 0

    >>> Unknown(lower=1.0, upper=100.0, log=True).value(0.5)
    10.0
    """

    lower: Array | float
    upper: Array | float
    log: bool = static(default=False)

    def value(self, share: Array | float) -> Array | float:
        """The parameter at a share of its range: `lower` at 0, `upper` at 1."""
        if self.log:
            return self.lower * (self.upper / self.lower) ** share
        return self.lower + (self.upper - self.lower) * share


@struct
class Motion:
    """A recorded motion: the poses of all bodies over time, and the velocities that led to them.

    position: of the centres of mass in the world [m], shape (time, 3, bodies)
    quaternion: body axes to world axes, w first, shape (time, 4, bodies)
    velocity: of the centres of mass, world axes [m/s], shape (time, 3, bodies)
    omega: angular velocity, world axes [rad/s], shape (time, 3, bodies)

    Velocities are constant over a time step, as `SemiImplicitEuler` has them: those at index i move
    the bodies from the pose before to the pose at i.
    """

    position: Array
    quaternion: Array
    velocity: Array
    omega: Array

    @staticmethod
    def from_poses(
        position: Array, quaternion: Array, *, dt: float, rotation: str = "exponential"
    ) -> "Motion":
        """The motion through recorded poses, from the second pose on.

        Two successive poses determine the velocity of a semi-implicit step exactly, because the
        step moves bodies by its new velocity. Velocities are computed in float64, since they are
        small differences of poses over dt.

        position, quaternion: as in `Motion`, with one more pose in front
        dt: time between two poses [s]
        rotation: how the recording engine integrates rotations, as in `SemiImplicitEuler`

        Raises: ValueError for shapes that do not fit, numbers that are not finite, a time step
            that is not positive, and an unknown rotation.
        """
        p, q = np.asarray(position, float), np.array(quaternion, float)
        _check_poses(p, q, dt, rotation)
        # q and -q are one pose; each continues the one before.
        flips = np.sign(np.sum(q[1:] * q[:-1], axis=1, keepdims=True))
        q[1:] *= np.cumprod(flips, axis=0)
        w0, v0, w1, v1 = q[:-1, :1], q[:-1, 1:], q[1:, :1], q[1:, 1:]
        # Vector part of the quaternion between two poses: axis times sine of half the angle.
        sine = w0 * v1 - w1 * v0 + np.cross(v0, v1, axis=1)
        size = np.linalg.norm(sine, axis=1, keepdims=True)
        if rotation == "linearized":
            turn = 2 * sine / (w0 * w1 + np.sum(v0 * v1, axis=1, keepdims=True))
        else:
            # Protects the division for a body at rest.
            turn = 2 * np.arcsin(np.minimum(size, 1.0)) / np.where(size > 0, size, 1.0) * sine
        arrays = (p[1:], q[1:], (p[1:] - p[:-1]) / dt, turn / dt)
        return Motion(*(jnp.asarray(x, jnp.zeros(()).dtype) for x in arrays))

    def start(self, state: State) -> State:
        """The state with the poses and velocities of the motion's first entry."""
        return replace(state, **{name: x[0] for name, x in vars(self).items()})


def pose_residuals(
    system: System,
    state: State,
    motion: Motion,
    control: Control | None = None,
    *,
    follow: Array | float = 0.0,
    noise: tuple[float, float],
    dt: Array | float,
    scheme: SemiImplicitEuler = DEFAULT_SCHEME,
) -> Array:
    """Simulated minus recorded poses, in units of their noise.

    state: the start, at the motion's first pose; with any batch axes, as in `step`
    motion: the recording
    control: the same at every step
    follow: before each step the simulation is moved towards the recorded pose and velocity by this
        share of the difference (nudging). At 0 it runs free, at 1 it predicts one step at a time.
        In between, an error of the simulation dies out after about 1/follow steps: the late part of
        a motion, where errors add up, then does not outweigh the early part, and searches from
        wrong starts converge
    noise: standard deviations of the recorded positions [m] and rotations [rad], > 0
    dt: time step [s]
    scheme: integrator

    Returns: shape (time - 1, 7, bodies, *batch): three components of the position, and twice the
        difference of the four components of the quaternion
    Raises: ValueError for noise that is not positive, and for a motion of fewer than two poses.
    """
    if not min(noise) > 0:
        raise ValueError(
            f"pose_residuals: noise {noise} must be positive; it is the residuals' unit"
        )
    if len(motion.position) < 2:
        raise ValueError("pose_residuals: the motion must have at least two poses to compare")
    batch = (1,) * state.time.ndim
    motion = jax.tree.map(lambda x: x.reshape(x.shape + batch), motion)
    now, later = jax.tree.map(lambda x: x[:-1], motion), jax.tree.map(lambda x: x[1:], motion)

    def same_sign(q, recorded):
        # q and -q are one pose.
        return q * jnp.sign(jnp.sum(q * recorded, axis=-2 - len(batch), keepdims=True))

    def advance(state, now):
        state = replace(state, quaternion=same_sign(state.quaternion, now.quaternion))
        nudged = {
            name: (1 - follow) * getattr(state, name) + follow * x for name, x in vars(now).items()
        }
        state, _ = step(system, replace(state, **nudged), control, dt=dt, scheme=scheme)
        return state, (state.position, state.quaternion)

    _, (position, quaternion) = jax.lax.scan(advance, state, now)
    moved = position - later.position
    # A small turn by an angle changes the quaternion by half of it.
    turned = 2 * (same_sign(quaternion, later.quaternion) - later.quaternion)
    return jnp.concatenate([moved / noise[0], turned / noise[1]], axis=1)


class Identified(NamedTuple):
    """The result of `identify`: parameters with their uncertainties, and how the search went.

    values: the parameters of the best start, by name
    deviations: their standard deviations, by name, if the residuals have a noise of 1 each
    uncertainty: each deviation as a share of that before the recording was known: 0 for a parameter
        that the recording determines, 1 for one that it says nothing about
    residuals: at these values, of the simulation that runs free
    converged: number of starts whose sum of squares is that of the best start, within the noise
    losses: mean square of the residuals at each iteration, shape (iterations + 1 + polish, starts)
    """

    values: dict[str, float]
    deviations: dict[str, float]
    uncertainty: dict[str, float]
    residuals: np.ndarray
    converged: int
    losses: np.ndarray


def identify(
    residual: Residual,
    unknowns: Mapping[str, Unknown],
    *,
    key: Array,
    starts: int = 256,
    iterations: int = 100,
    polish: int = 8,
    rate: float = 0.05,
    follow: float = 0.3,
    report: Callable[[int, int, np.ndarray], Any] | None = None,
) -> Identified:
    """The parameters with the least sum of squared residuals, searched from many random starts.

    All starts form one batch. Each takes `iterations` steps of Adam while the simulation follows
    the recording, then `polish` damped Gauss-Newton (Levenberg-Marquardt) steps while it runs free.
    Derivatives are forward ones, one for each parameter, which suits few parameters and many
    residuals.

    Standard deviations are those of the linearized least-squares problem: its information is JᵀJ of
    the residuals plus that of the uniform distribution of each parameter in its range.

    residual: a function of a dictionary of the parameters, each of shape (starts,), and of `follow`
        (see `pose_residuals`). It returns residuals in units of their noise, with the starts as
        last axis. A `Partial` with the recording among its arguments is compiled once for all
        recordings of equal shapes
    unknowns: the range of each parameter, by name
    key: of `jax.random`, for the starts
    starts: number of random starts
    iterations: steps of Adam; polish: Levenberg-Marquardt steps
    rate: first learning rate of Adam, as a share of the ranges; it decays to 0 as a cosine
    follow: of the simulation during Adam's steps
    report: called after every iteration with the number of iterations done, their total number, and
        the loss of each start

    Raises: ValueError for ranges that are empty or not finite, for counts below 1, and if no start
        has finite residuals.
    """
    _check_search(unknowns, starts=starts, iterations=iterations, polish=polish)
    unknowns = {name: unknowns[name] for name in sorted(unknowns)}  # the order of jit
    residual = residual if isinstance(residual, Partial) else Partial(residual)
    total, losses = iterations + 1 + polish, []

    def evaluate(z: Array, follow: float) -> tuple[np.ndarray, ...]:
        # NumPy arrays: JAX arrays that are spread over cores would have the next call recompiled.
        result = jax.device_get(_linearized(residual, unknowns, z, jnp.asarray(follow, z.dtype)))
        losses.append(result[0] / len(result[-1]))
        if report is not None:
            report(len(losses), total, losses[-1])
        return result

    # z: the parameters as shares of their ranges, shape (unknowns, starts).
    z = jax.random.uniform(key, (len(unknowns), starts))
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, iterations), b2=0.9)
    descend = jax.jit(partial(_descended, optimizer))
    memory = optimizer.init(z)
    for _ in range(iterations):
        cost, gradient, _, _ = evaluate(z, follow)
        z, memory = descend(z, memory, cost, gradient)

    best_z, best = z, [x.astype(float) for x in evaluate(z, 0.0)]
    damping = np.full(starts, 1e-3)
    for _ in range(polish):
        tried_z = jnp.asarray(_damped_newton(np.asarray(best_z), *best[1:3], damping), z.dtype)
        tried = [x.astype(float) for x in evaluate(tried_z, 0.0)]
        # A comparison with NaN is false: a step to a cost that is not finite is rejected.
        better = tried[0] < np.nan_to_num(best[0], nan=np.inf)
        best_z = jnp.where(better[None], tried_z, best_z)
        best = [np.where(better, *x) for x in zip(tried, best, strict=True)]
        damping = np.where(better, damping / 10, damping * 10)

    cost, _, information, residuals = best
    cost = np.nan_to_num(cost, nan=np.inf)
    winner = int(np.argmin(cost))
    if not np.isfinite(cost[winner]):
        raise ValueError(
            f"identify: no start of {starts} gave finite residuals; narrow the ranges of "
            f"{list(unknowns)}, or take a smaller dt"
        )
    prior = np.eye(len(unknowns)) / PRIOR_DEVIATION**2
    spread = np.sqrt(np.diag(np.linalg.inv(information[..., winner] + prior)))
    values, deviations = {}, {}
    for i, (name, unknown) in enumerate(unknowns.items()):
        share = best_z[i, winner]
        values[name], slope = jax.jvp(unknown.value, (share,), (jnp.ones((), z.dtype),))
        deviations[name] = float(slope * spread[i])
    return Identified(
        values={name: float(value) for name, value in values.items()},
        deviations=deviations,
        uncertainty={
            name: float(x / PRIOR_DEVIATION) for name, x in zip(unknowns, spread, strict=True)
        },
        residuals=residuals[:, winner],
        converged=int(np.sum(cost < cost[winner] + EQUALLY_GOOD)),
        losses=np.stack(losses),
    )


@jax.jit
def _linearized(
    residual: Partial, unknowns: dict[str, Unknown], z: Array, follow: Array
) -> tuple[Array, Array, Array, Array]:
    """Of each start: sum of squares r·r, half its gradient Jᵀr, information JᵀJ, and residuals r.

    z: the parameters as shares of their ranges, shape (unknowns, starts)
    """
    mesh, starts = cores(), z.shape[-1]
    tile = starts if mesh is None or starts % mesh.size else starts // mesh.size

    def linearize(shared, z):
        residual, unknowns, follow = shared

        def residuals(z):
            values = {name: u.value(z[i]) for i, (name, u) in enumerate(unknowns.items())}
            r = residual(values, follow)
            return r.reshape(-1, r.shape[-1])

        def with_derivative(direction):
            return jax.jvp(residuals, (z,), (jnp.broadcast_to(direction[:, None], z.shape),))

        r, J = jax.vmap(with_derivative, out_axes=(None, 0))(jnp.eye(len(z), dtype=z.dtype))
        gradient = jnp.sum(J * r[None], axis=1)
        # Elementwise in the starts; a batched matrix product with the batch last is slow on CPUs.
        return jnp.sum(r * r, axis=0), gradient, jnp.sum(J[:, None] * J[None], axis=2), r

    return map_tiles(linearize, (residual, unknowns, follow), z, tile, mesh)


def _descended(optimizer, z, memory, cost, gradient):
    """One step of an optax optimizer on the logarithm of each start's cost, inside the ranges."""
    # A start whose cost is not finite stays where it is, without effect on the others.
    slope = jnp.nan_to_num(gradient / (1 + cost)[None], posinf=0.0, neginf=0.0)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        update, memory = optimizer.update(slope, memory)
    return jnp.clip(z + update, 0.0, 1.0), memory


def _damped_newton(z, gradient, information, damping):
    """A Levenberg-Marquardt step of each start: at most a fifth of the ranges, and inside them."""
    H = np.nan_to_num(np.moveaxis(information, -1, 0))
    diagonal = damping[:, None] * np.einsum("sii->si", H)
    # The small multiple of 1 keeps parameters where they are that the recording does not determine.
    A = H + (diagonal + 1e-2)[..., None] * np.eye(len(z))
    move = np.linalg.solve(A, -np.nan_to_num(gradient.T)[..., None])[..., 0].T
    return np.clip(z + np.clip(move, -0.2, 0.2), 0.0, 1.0)


def _check_poses(position: np.ndarray, quaternion: np.ndarray, dt: float, rotation: str) -> None:
    """Raise ValueError unless velocities follow from these poses: two or more, finite, dt > 0."""
    time, _, bodies = position.shape if position.ndim == 3 else (0, 0, 0)
    if position.shape != (time, 3, bodies) or quaternion.shape != (time, 4, bodies):
        raise ValueError(
            f"motion: position {position.shape} and quaternion {quaternion.shape} must have shapes "
            "(time, 3, bodies) and (time, 4, bodies)"
        )
    if time < 2:
        raise ValueError(f"motion: {time} poses do not tell a velocity; give two or more")
    if not (np.isfinite(position).all() and np.isfinite(quaternion).all()):
        raise ValueError("motion: some poses are not finite; cut the recording where they are")
    if not dt > 0:
        raise ValueError(f"motion: dt {dt} must be positive")
    if rotation not in ("exponential", "linearized"):
        raise ValueError(f"motion: rotation {rotation!r} must be 'exponential' or 'linearized'")


def _check_search(unknowns: Mapping[str, Unknown], **counts: int) -> None:
    """Raise ValueError unless every unknown has a range and every count is large enough."""
    if not unknowns:
        raise ValueError("identify: there are no unknowns; name at least one")
    for name, unknown in unknowns.items():
        lower, upper = float(unknown.lower), float(unknown.upper)
        if not (np.isfinite([lower, upper]).all() and lower < upper):
            raise ValueError(f"unknown {name!r}: lower {lower} must be below upper {upper}, finite")
        if unknown.log and lower <= 0:
            raise ValueError(f"unknown {name!r}: lower {lower} must be > 0, or leave log out")
    for name, count in counts.items():
        if count < (name != "polish"):
            raise ValueError(f"identify: {name} {count} must be >= {int(name != 'polish')}")
