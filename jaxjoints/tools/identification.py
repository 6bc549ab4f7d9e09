"""Identifying: numbers of a mechanism from recorded poses, and how well these tell them."""

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

# Standard deviation of a number known only to lie between 0 and 1.
UNTOLD = 12**-0.5
# Two fits whose sums of squares differ by less (three standard deviations) are equally good.
EQUALLY_GOOD = 9.0

Residual = Callable[[dict[str, Array], Array], Array]


@struct
class Unknown:
    """A number to be found, which lies from `lower` to `upper` as far as is known beforehand.

    log: all factors are alike beforehand, not all differences; needs lower > 0

    >>> Unknown(lower=1.0, upper=100.0, log=True).value(0.5)
    10.0
    """

    lower: Array | float
    upper: Array | float
    log: bool = static(default=False)

    def value(self, share: Array | float) -> Array | float:
        """The number at a share of the way from lower (0) to upper (1)."""
        if self.log:
            return self.lower * (self.upper / self.lower) ** share
        return self.lower + (self.upper - self.lower) * share


@struct
class Motion:
    """A recorded motion, time in front: poses, and the velocities with which each was reached.

    position: of the centres of mass [m]; quaternion: body axes to world axes, w first; velocity,
        omega: in world axes [m/s, rad/s]; shapes (time, 3 or 4, bodies)
    """

    position: Array
    quaternion: Array
    velocity: Array
    omega: Array

    @staticmethod
    def from_poses(
        position: Array, quaternion: Array, *, dt: float, rotation: str = "exponential"
    ) -> "Motion":
        """The motion through recorded poses, dt [s] apart: it starts at the second.

        A semi-implicit step moves by its new velocity, so two poses tell the velocity of the later
        exactly. Computed in float64, since small differences of large numbers are divided by dt.

        position, quaternion: as in `Motion`, one pose more
        rotation: how the recording engine turns bodies, as in `SemiImplicitEuler`

        Raises: ValueError for shapes that do not fit, numbers that are not finite, a time step
        that is not positive, and an unknown rotation
        """
        p, q = np.asarray(position, float), np.array(quaternion, float)
        _check_poses(p, q, dt, rotation)
        # q and -q are one pose; each continues the one before.
        flips = np.sign(np.sum(q[1:] * q[:-1], axis=1, keepdims=True))
        q[1:] *= np.cumprod(flips, axis=0)
        w0, v0, w1, v1 = q[:-1, :1], q[:-1, 1:], q[1:, :1], q[1:, 1:]
        sine = w0 * v1 - w1 * v0 + np.cross(v0, v1, axis=1)
        size = np.linalg.norm(sine, axis=1, keepdims=True)
        if rotation == "linearized":
            turn = 2 * sine / (w0 * w1 + np.sum(v0 * v1, axis=1, keepdims=True))
        else:
            # The angle over its sine, 2 at rest.
            turn = 2 * np.arcsin(np.minimum(size, 1.0)) / np.where(size > 0, size, 1.0) * sine
        arrays = (p[1:], q[1:], (p[1:] - p[:-1]) / dt, turn / dt)
        return Motion(*(jnp.asarray(x, jnp.zeros(()).dtype) for x in arrays))

    def start(self, state: State) -> State:
        """A state moved to where the motion starts."""
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
    """Simulated less recorded poses, in units of their noise.

    state: where the motion starts, at its first pose; with any batch axes, as `step` takes them
    control: the same at every step
    follow: share of the way to the recorded pose and velocity by which the simulation is moved
        before each step. At 0 it runs free, at 1 it predicts one step at a time; in between,
        errors die out after 1/follow steps, so that a late part of the motion does not hide
        what an early part says, and wrong starts find their way
    noise: standard deviations of positions [m] and of rotations [rad]

    Returns: shape (time - 1, 7, bodies, *batch)
    Raises: ValueError for noise that is not positive and for a motion of less than two poses
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

    def near(q, recorded):
        # q and -q are one pose.
        return q * jnp.sign(jnp.sum(q * recorded, axis=-2 - len(batch), keepdims=True))

    def advance(state, now):
        here = replace(state, quaternion=near(state.quaternion, now.quaternion))
        pulled = {
            name: (1 - follow) * getattr(here, name) + follow * x for name, x in vars(now).items()
        }
        state, _ = step(system, replace(here, **pulled), control, dt=dt, scheme=scheme)
        return state, (state.position, state.quaternion)

    _, (position, quaternion) = jax.lax.scan(advance, state, now)
    moved = position - later.position
    # A small turn by an angle changes the quaternion by half of it.
    turned = 2 * (near(quaternion, later.quaternion) - later.quaternion)
    return jnp.concatenate([moved / noise[0], turned / noise[1]], axis=1)


class Identified(NamedTuple):
    """What `identify` found.

    values: the numbers of the best start, by name
    deviations: their standard deviations, given the noise that is the unit of the residuals and
        what was known beforehand
    open: share of what was unknown beforehand that the recording left so: 0 all told, 1 nothing
    residuals: at these values, the simulation running free
    arrived: how many starts ended as well as the best one, to within the noise
    losses: mean square of the residuals at each iteration, shape (iterations + 1 + polish, starts)
    """

    values: dict[str, float]
    deviations: dict[str, float]
    open: dict[str, float]
    residuals: np.ndarray
    arrived: int
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
    """The unknowns that make the residuals least, from many random starts as one batch.

    Each start takes `iterations` steps of Adam while the simulation follows the recording, then
    `polish` damped Gauss-Newton (Levenberg-Marquardt) steps while it runs free. Derivatives are
    taken forwards, one for each unknown, which suits a few unknowns and many residuals.

    residual: function of a dictionary of the unknowns, each of shape (starts,), and of `follow`;
        returns the residuals with the starts as last axis, in units of their noise. See
        `pose_residuals`. A `Partial` with the recording among its arguments is compiled once for
        all recordings of equal shapes
    rate: first learning rate, in shares of the unknowns' ranges; it falls to 0 as a cosine
    report: called after every iteration with how many are done, how many there are, and the losses

    The standard deviations are those of the linearized problem: information JᵀJ of the residuals,
    and that of an even spread over the range of each unknown.

    Raises: ValueError for unknowns that are no ranges, for counts below 1, and where no start gives
    finite residuals
    """
    _check_search(unknowns, starts=starts, iterations=iterations, polish=polish)
    unknowns = {name: unknowns[name] for name in sorted(unknowns)}  # as jit orders them
    residual = residual if isinstance(residual, Partial) else Partial(residual)
    total, losses = iterations + 1 + polish, []

    def look(z: Array, follow: float) -> tuple[np.ndarray, ...]:
        # To the host: arrays that stay dealt out to cores would have the next look compiled anew.
        found = jax.device_get(_linearized(residual, unknowns, z, jnp.asarray(follow, z.dtype)))
        losses.append(found[0] / len(found[-1]))
        if report is not None:
            report(len(losses), total, losses[-1])
        return found

    z = jax.random.uniform(key, (len(unknowns), starts))
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, iterations), b2=0.9)
    descend = jax.jit(partial(_descended, optimizer))
    memory = optimizer.init(z)
    for _ in range(iterations):
        cost, gradient, _, _ = look(z, follow)
        z, memory = descend(z, memory, cost, gradient)

    here, found = z, [x.astype(float) for x in look(z, 0.0)]
    damping = np.full(starts, 1e-3)
    for _ in range(polish):
        there = jnp.asarray(_damped_newton(np.asarray(here), *found[1:3], damping), z.dtype)
        new = [x.astype(float) for x in look(there, 0.0)]
        # A comparison with a number that is not finite is false: such a step is not taken.
        better = new[0] < np.nan_to_num(found[0], nan=np.inf)
        here = jnp.where(better[None], there, here)
        found = [np.where(better, *x) for x in zip(new, found, strict=True)]
        damping = np.where(better, damping / 10, damping * 10)

    cost, _, information, residuals = found
    cost = np.nan_to_num(cost, nan=np.inf)
    best = int(np.argmin(cost))
    if not np.isfinite(cost[best]):
        raise ValueError(
            f"identify: no start of {starts} gave finite residuals; narrow the ranges of "
            f"{list(unknowns)}, or take a smaller dt"
        )
    known = np.eye(len(unknowns)) / UNTOLD**2
    spread = np.sqrt(np.diag(np.linalg.inv(information[..., best] + known)))
    values, deviations = {}, {}
    for i, (name, unknown) in enumerate(unknowns.items()):
        values[name], slope = jax.jvp(unknown.value, (here[i, best],), (jnp.ones((), z.dtype),))
        deviations[name] = float(slope * spread[i])
    return Identified(
        values={name: float(value) for name, value in values.items()},
        deviations=deviations,
        open={name: float(x / UNTOLD) for name, x in zip(unknowns, spread, strict=True)},
        residuals=residuals[:, best],
        arrived=int(np.sum(cost < cost[best] + EQUALLY_GOOD)),
        losses=np.stack(losses),
    )


@jax.jit
def _linearized(
    residual: Partial, unknowns: dict[str, Unknown], z: Array, follow: Array
) -> tuple[Array, Array, Array, Array]:
    """Sums of squares r·r, half their gradients Jᵀr, their curvatures JᵀJ, and r, at all starts."""
    mesh, starts = cores(), z.shape[-1]
    tile = starts if mesh is None or starts % mesh.size else starts // mesh.size

    def linearize(shared, z):
        residual, unknowns, follow = shared

        def at(z):
            values = {name: u.value(z[i]) for i, (name, u) in enumerate(unknowns.items())}
            r = residual(values, follow)
            return r.reshape(-1, r.shape[-1])

        def along(direction):
            return jax.jvp(at, (z,), (jnp.broadcast_to(direction[:, None], z.shape),))

        r, J = jax.vmap(along, out_axes=(None, 0))(jnp.eye(len(z), dtype=z.dtype))
        gradient = jnp.sum(J * r[None], axis=1)
        # Elementwise in the starts; a batched matrix product with the batch last is slow on CPUs.
        return jnp.sum(r * r, axis=0), gradient, jnp.sum(J[:, None] * J[None], axis=2), r

    return map_tiles(linearize, (residual, unknowns, follow), z, tile, mesh)


def _descended(optimizer, z, memory, cost, gradient):
    """One step of an optax optimizer down the logarithm of each start's cost, inside the ranges."""
    # A start that left the numbers stays where it is and takes no other along.
    slope = jnp.nan_to_num(gradient / (1 + cost)[None], posinf=0.0, neginf=0.0)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        update, memory = optimizer.update(slope, memory)
    return jnp.clip(z + update, 0.0, 1.0), memory


def _damped_newton(z, gradient, information, damping):
    """Levenberg-Marquardt steps of all starts, at most a fifth of the ranges, inside them."""
    H = np.nan_to_num(np.moveaxis(information, -1, 0))
    diagonal = damping[:, None] * np.einsum("sii->si", H)
    # What the recording does not tell stays where it is, thanks to the small multiple of 1.
    A = H + (diagonal + 1e-2)[..., None] * np.eye(len(z))
    move = np.linalg.solve(A, -np.nan_to_num(gradient.T)[..., None])[..., 0].T
    return np.clip(z + np.clip(move, -0.2, 0.2), 0.0, 1.0)


def _check_poses(position: np.ndarray, quaternion: np.ndarray, dt: float, rotation: str) -> None:
    """ValueError unless these are poses from which velocities follow."""
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
    """ValueError unless there is something to search, and a number of steps to do it in."""
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
