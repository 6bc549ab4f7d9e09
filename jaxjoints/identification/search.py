"""The least sum of squared residuals, searched from many starts at once, and its uncertainties."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.tree_util import Partial

from ..algebra.calls import public
from ..algebra.devices import on_each_device
from ..algebra.options import brief, check_function, check_key, check_kind
from ..algebra.progress import compiled, with_progress
from ..algebra.pytree import struct
from ..simulate.tiles import all_devices
from .unknowns import Inertial, Parameter, deviations

# Standard deviation of a number that is uniform between 0 and 1.
PRIOR_DEVIATION = 12**-0.5
# Two fits are equally good if their sums of squares differ by less: three standard deviations.
EQUALLY_GOOD = 9.0
# A combination of numbers counts as undetermined if the recording takes less from its deviation.
LEFT_OPEN = 0.5
# A share that is nearer than that to 0 or 1 is at the end of its range.
AT_END = 1e-6
# A share that moves by less in the last step has settled, unless its deviation is larger.
SETTLED = 1e-3
# Largest change of a share in one Levenberg-Marquardt step.
LONGEST = 0.5
# How often a step may change its mind about which shares rest at an end of their ranges.
CHANGES = 12

Residual = Callable[[dict[str, Array], Array], Array]
Report = Callable[[int, int, np.ndarray], Any]
Shares = dict[str, tuple[int, int]]


class Linearized(NamedTuple):
    """Of each start: sum of squares r·r, half its gradient Jᵀr, information JᵀJ, and residuals r.

    Shapes (starts,), (shares, starts), (shares, shares, starts), (residuals, starts).
    """

    cost: Any
    gradient: Any
    information: Any
    residuals: Any


class Problem(Protocol):
    """A tree of arrays that says how far a simulation is from what was recorded."""

    def linearized(
        self, unknowns: dict[str, Parameter], shares: Array, follow: Array
    ) -> Linearized:
        """Residuals and their derivatives at shares of shape (shares, starts)."""


class Identified(NamedTuple):
    """The result of a search: values with their uncertainties, and the course of the search.

    `print` shows a table of values, and the combinations that the recording leaves open.

    values: of the best start, by name; a number, an array or a `BodyInertia`
    deviations: standard deviations of the values, by name, for residuals with a noise of 1 each
    uncertainty: each deviation as a share of the deviation before the recording, by name: 0 for a
        number that the recording determines, 1 for a number without information. An array for
        unknowns of several shares
    residuals: at these values, of the simulation that runs free
    converged: number of starts whose sum of squares equals that of the best start, within the noise
    losses: mean square of the residuals at each iteration, shape (iterations + 1 + polish, starts)
    shares: names of all shares, in the order of `covariance`
    covariance: of the shares, shape (shares, shares)
    left_open: combinations of shares that the recording leaves open, one sentence for each: their
        deviations are more than half of the deviations before the recording
    unknowns: the unknowns of the search, by name
    best: all shares of the values, shape (shares,)
    remarks: numbers that lie at an end of their range, and those that still moved when the steps
        were over. One sentence for each

    >>> from jaxjoints.identification import Positive
    >>> def misfit(values, follow):  # of k/m = 4, as a swing at 2 rad/s shows it to 1 %
    ...     return (100 * (values["k"] / values["m"] / 4 - 1))[None]
    >>> ranges = {"k": Positive(3.0, nominal=6.0), "m": Positive(3.0, nominal=2.0)}
    >>> found = identify(misfit, ranges, key=jax.random.key(0), starts=2, iterations=1)
    >>> found.left_open
    ('left open by the recording: +0.71 k +0.71 m (of the ranges)',)
    >>> print(found.derived(lambda values: values["k"] / values["m"])[0].round(3))
    4.0
    """

    values: dict[str, Any]
    deviations: dict[str, Any]
    uncertainty: dict[str, Any]
    residuals: np.ndarray
    converged: int
    losses: np.ndarray
    shares: tuple[str, ...]
    covariance: np.ndarray
    left_open: tuple[str, ...]
    unknowns: dict[str, Parameter]
    best: np.ndarray
    remarks: tuple[str, ...] = ()

    @property
    def correlations(self) -> np.ndarray:
        """Between the shares, shape (shares, shares)."""
        spread = np.sqrt(np.diag(self.covariance))
        return self.covariance / np.outer(spread, spread)

    def derived(self, function: Callable[[dict[str, Any]], Any]) -> tuple[Any, Any]:
        """Consequences of the values, such as the moment of a weight or an effort elsewhere.

        They may be known better than the values: a recording often tells the product of a mass and
        its lever, but neither of them. Deviations are to first order in those of the shares.

        function: from values as in `values` to a tree of numbers, in JAX operations

        Returns: these numbers, and their standard deviations, trees of NumPy arrays
        """
        z, follows = jnp.asarray(self.best), lambda z: function(values_at(self.unknowns, z))
        return jax.tree.map(np.asarray, follows(z)), deviations(follows, z, self.covariance)

    def __str__(self) -> str:
        lines = []
        for name, value in self.values.items():
            parts = zip(_parts(name, value), _parts(name, self.deviations[name]), strict=True)
            for (label, number), (_, deviation) in parts:
                lines.append(f"{label:<40} {number:>12.6g} ± {deviation:.2g}")
        starts = self.losses.shape[-1]
        lines.append(f"{self.converged} of {starts} starts end here, mean square {self._mean:.3g}")
        return "\n".join([*lines, *self.remarks, *self.left_open])

    @property
    def _mean(self) -> float:
        return float(np.mean(np.square(self.residuals)))


@struct
class Residuals:
    """A problem by a function of the values and of `follow`, see `identify`."""

    function: Partial

    def linearized(
        self, unknowns: dict[str, Parameter], shares: Array, follow: Array
    ) -> Linearized:
        """See `Problem`; by forward derivatives, one for each share."""

        def residuals(z):
            r = self.function(values_at(unknowns, z), follow)
            return r.reshape(-1, r.shape[-1])

        def with_derivative(direction):
            along = jnp.broadcast_to(direction[:, None], shares.shape)
            return jax.jvp(residuals, (shares,), (along,))

        r, J = jax.vmap(with_derivative, out_axes=(None, 0))(
            jnp.eye(len(shares), dtype=shares.dtype)
        )
        # Elementwise in the starts; a batched matrix product with the batch last is slow on CPUs.
        information = jnp.sum(J[:, None] * J[None], axis=2)
        return Linearized(jnp.sum(r * r, axis=0), jnp.sum(J * r[None], axis=1), information, r)


@public
@with_progress("mean square")
def identify(
    residual: Residual,
    unknowns: Mapping[str, Parameter],
    *,
    key: Array,
    starts: int = 256,
    iterations: int = 100,
    polish: int = 8,
    rate: float = 0.05,
    follow: float = 0.3,
    optimizer: optax.GradientTransformation | None = None,
    report: Report | None = None,
) -> Identified:
    """The parameters with the least sum of squared residuals, searched from many random starts.

    All starts form one batch. Each takes `iterations` steps of Adam while the simulation follows
    the recording, then `polish` damped Gauss-Newton (Levenberg-Marquardt) steps while it runs free.
    Derivatives are in forward mode, one for each parameter, which suits few parameters and many
    residuals.

    Standard deviations come from the linearized least-squares problem: its information is JᵀJ of
    the residuals plus the information of each parameter's range (a uniform distribution).

    residual: a function of a dictionary of the values, each of shape (*shape, starts), and of
        `follow` (see `pose_residuals`). It returns residuals in units of their noise, with the
        starts as last axis. A `Partial` with the recording among its arguments is compiled once for
        all recordings of equal shapes
    unknowns: range of each value, by name
    key: of `jax.random`, for the starts
    starts: number of random starts
    iterations: steps of Adam; polish: Levenberg-Marquardt steps
    rate: first learning rate of Adam, as a share of the ranges; it decays to 0 as a cosine
    follow: argument of `residual` during Adam's steps
    optimizer: of optax, in place of Adam and its rate, such as `optax.lbfgs(0.3, linesearch=None)`;
        each start has its own memory
    report: called after every iteration with the number of iterations done, their total number, and
        the loss of each start, such as a `Progress`

    Raises: ValueError for ranges that are empty or not finite, for counts below 1, and if no start
        has finite residuals.
    """
    check_function("identify:", "residual", residual, "values", "follow")
    check_key("identify:", key)
    if optimizer is not None:
        check_optimizer("identify", optimizer)
    check_search("identify", unknowns, starts=starts, iterations=iterations, polish=polish)
    unknowns = {name: unknowns[name] for name in sorted(unknowns)}  # the order of jit
    problem = Residuals(residual if isinstance(residual, Partial) else Partial(residual))
    if optimizer is None:
        optimizer = optax.adam(optax.cosine_decay_schedule(rate, iterations), b2=0.9)
    z = jax.random.uniform(key, (sum(sizes(unknowns)), starts))
    search = Search("identify", problem, unknowns, iterations + 1 + polish, report)
    z = search.descended(z, optimizer, iterations, follow)
    z, best = search.polished(z, polish, 0.0)
    return search.answer(z, best)


class Search:
    """A search under way: evaluations are counted, their losses kept and reported."""

    def __init__(
        self,
        call: str,
        problem: Problem,
        unknowns: dict[str, Parameter],
        total: int,
        report: Report | None,
    ):
        """call: name of the function, for errors; total: number of evaluations in all."""
        self.call, self.problem, self.unknowns = call, problem, unknowns
        self.total, self.report, self.losses = total, report, []
        # How far the last polishing step moved each share of each start.
        self.last: np.ndarray | None = None

    def evaluated(self, z: Array, follow: float) -> Linearized:
        """The problem at shares z, as NumPy arrays.

        JAX arrays that are spread over cores would have the next call recompiled.
        """
        follow = jnp.asarray(follow, z.dtype)
        result = jax.device_get(_linearized(self.problem, self.unknowns, z, follow))
        self.losses.append(result.cost / len(result.residuals))
        if self.report is not None:
            self.report(len(self.losses), self.total, self.losses[-1])
        return result

    def descended(
        self, z: Array, optimizer: optax.GradientTransformation, iterations: int, follow: float
    ) -> Array:
        """Shares after steps of an optax optimizer on the logarithm of each start's cost."""
        descend = jax.jit(partial(_descended, optimizer))
        memory = jax.vmap(optimizer.init, in_axes=-1, out_axes=-1)(z)
        try:
            jax.eval_shape(descend, z, memory, z[0], z)
        except TypeError as error:
            raise ValueError(
                f"{self.call}: the optimizer asks for more than a gradient ({error}); give one "
                "that does not, such as optax.lbfgs(0.3, linesearch=None)"
            ) from error
        for _ in range(iterations):
            now = self.evaluated(z, follow)
            z, memory = descend(z, memory, now.cost, now.gradient)
        return z

    def polished(self, z: Array, iterations: int, follow: float) -> tuple[Array, Linearized]:
        """Shares after Levenberg-Marquardt steps, and the problem there in float64."""
        wide = lambda result: Linearized(*(x.astype(float) for x in result))  # noqa: E731
        best = wide(self.evaluated(z, follow))
        damping = np.full(z.shape[-1], 1e-3)
        for _ in range(iterations):
            step = _damped_newton(np.asarray(z), best.gradient, best.information, damping)
            tried_z = _moved(self.unknowns, z, jnp.asarray(step, z.dtype))
            tried = wide(self.evaluated(tried_z, follow))
            # A comparison with NaN is false: a step to a cost that is not finite is rejected.
            better = tried.cost < np.nan_to_num(best.cost, nan=np.inf)
            self.last = np.where(better[None], np.abs(np.asarray(tried_z) - np.asarray(z)), 0.0)
            z = jnp.where(better[None], tried_z, z)
            both = zip(tried, best, strict=True)
            best = Linearized(*(np.where(better, new, old) for new, old in both))
            damping = np.where(better, damping / 10, damping * 10)
        return z, best

    def answer(self, z: Array, best: Linearized) -> Identified:
        """The best start with its uncertainties; ValueError if no start has finite residuals."""
        cost = np.nan_to_num(best.cost, nan=np.inf)
        winner = int(np.argmin(cost))
        if not np.isfinite(cost[winner]):
            raise ValueError(
                f"{self.call}: no start of {z.shape[-1]} gave finite residuals; narrow the ranges "
                f"of {list(self.unknowns)}, or take a smaller dt"
            )
        prior = np.eye(len(z)) / PRIOR_DEVIATION**2
        covariance = np.linalg.inv(best.information[..., winner] + prior)
        spread = np.sqrt(np.diag(covariance))
        names = tuple(label for name, u in self.unknowns.items() for label in _labels(name, u))
        values, errors, uncertainty = {}, {}, {}
        for name, share, cut in shares_of(self.unknowns, z[:, winner]):
            unknown = self.unknowns[name]
            values[name] = _plain(unknown.value(share))
            errors[name] = _plain(deviations(unknown.value, share, covariance[cut, cut]))
            uncertainty[name] = _plain((spread[cut] / PRIOR_DEVIATION).reshape(unknown.shape))
        return Identified(
            values=values,
            deviations=errors,
            uncertainty=uncertainty,
            residuals=best.residuals[:, winner],
            converged=int(np.sum(cost < cost[winner] + EQUALLY_GOOD)),
            losses=np.stack(self.losses),
            shares=names,
            covariance=covariance,
            left_open=_left_open(names, covariance),
            unknowns=self.unknowns,
            best=np.asarray(z[:, winner]),
            remarks=(
                *_at_ends(self.unknowns, names, np.asarray(z[:, winner])),
                *self._unsettled(names, spread, winner),
            ),
        )

    def _unsettled(self, names: tuple[str, ...], spread: np.ndarray, winner: int) -> Iterator[str]:
        """A sentence for the share that moved farthest in the last step, if that is far."""
        if self.last is None:
            return
        moved = self.last[:, winner]
        far = np.where(moved > np.maximum(SETTLED, spread), moved, 0.0)
        if far.any():
            i = int(np.argmax(far))
            cut = " as far as a step goes" if far[i] >= LONGEST * (1 - SETTLED) else ""
            yield (
                f"not settled: the last step moved {names[i]} by {far[i]:.2g} of its range{cut}; "
                "take more polish"
            )


def sizes(unknowns: Mapping[str, Parameter]) -> list[int]:
    """Number of shares of each unknown."""
    return [int(np.prod(unknown.shape)) for unknown in unknowns.values()]


def shares_of(unknowns: Mapping[str, Parameter], z: Array) -> list[tuple[str, Array, slice]]:
    """Name of each unknown, its shares (*shape, *batch), and where they are in z."""
    ends = np.cumsum([0, *sizes(unknowns)])
    result = []
    for (name, unknown), start, end in zip(unknowns.items(), ends[:-1], ends[1:], strict=True):
        cut = slice(int(start), int(end))
        result.append((name, z[cut].reshape(unknown.shape + z.shape[1:]), cut))
    return result


def values_at(unknowns: Mapping[str, Parameter], z: Array) -> dict[str, Any]:
    """The value of each unknown, by name, at shares z of shape (shares, *batch)."""
    return {name: unknowns[name].value(share) for name, share, _ in shares_of(unknowns, z)}


@compiled(lambda problem, unknowns, z, _: f"a search of {len(z)} numbers from {z.shape[-1]} starts")
def _linearized(
    problem: Problem, unknowns: dict[str, Parameter], z: Array, follow: Array
) -> Linearized:
    """The problem at shares z, its starts spread over the devices."""
    devices = all_devices()
    if devices is not None and z.shape[-1] % devices.mesh.size:
        devices = None
    ranks = [x.ndim for x in jax.tree.leaves((problem, unknowns))]
    return on_each_device(
        lambda problem, unknowns, z, follow: problem.linearized(unknowns, z, follow),
        devices,
        [*ranks, 1, 0],
        *(problem, unknowns, z, follow),
    )


def _descended(optimizer, z, memory, cost, gradient):
    """One step of an optax optimizer on the logarithm of each start's cost, inside the ranges."""
    # A start whose cost is not finite stays where it is, without effect on the others.
    slope = jnp.nan_to_num(gradient / (1 + cost)[None], posinf=0.0, neginf=0.0)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        update = jax.vmap(optimizer.update, in_axes=-1, out_axes=-1)
        update, memory = update(slope, memory, z)
    return jnp.clip(z + update, 0.0, 1.0), memory


def _damped_newton(z, gradient, information, damping):
    """A Levenberg-Marquardt step of each start, the best one inside the ranges and LONGEST.

    Shares that would leave their ranges rest at the ends, and the others move as is best then.
    """
    lower, upper = np.maximum(-z, -LONGEST).T, np.minimum(1 - z, LONGEST).T
    g, H = np.nan_to_num(gradient.T), np.nan_to_num(np.moveaxis(information, -1, 0))
    diagonal = damping[:, None] * np.einsum("sii->si", H)
    # The small multiple of 1 keeps parameters where they are that the recording does not determine.
    A, one = H + (diagonal + 1e-2)[..., None] * np.eye(len(z)), np.eye(len(z))
    x, free = np.zeros_like(g), np.ones_like(g, bool)
    for _ in range(CHANGES):
        held = np.where(free, 0.0, x)
        target = np.where(free, -g - np.einsum("sij,sj->si", A, held), x)
        inner = np.where(free[:, :, None] & free[:, None], A, one)
        x = np.clip(np.linalg.solve(inner, target[..., None])[..., 0], lower, upper)
        slope = g + np.einsum("sij,sj->si", A, x)
        before, free = free, ~((x <= lower) & (slope > 0) | (x >= upper) & (slope < 0))
        if (free == before).all():
            break
    return x.T


@jax.jit
def _moved(unknowns: dict[str, Parameter], z: Array, step: Array) -> Array:
    """Shares after a step, inside their ranges; those of bodies as `Inertial.moved` says."""
    parts = []
    for name, share, cut in shares_of(unknowns, z):
        along = step[cut].reshape(share.shape)
        unknown = unknowns[name]
        new = unknown.moved(share, along) if isinstance(unknown, Inertial) else share + along
        parts.append(new.reshape(-1, z.shape[-1]))
    return jnp.clip(jnp.concatenate(parts), 0.0, 1.0)


def _labels(name: str, unknown: Parameter) -> list[str]:
    """The name of each share of an unknown."""
    places = np.ndindex(unknown.shape)
    return [name + (f"[{', '.join(map(str, place))}]" if place else "") for place in places]


def _plain(value: Any) -> Any:
    """A value with floats for numbers and NumPy arrays for arrays."""
    read = lambda x: float(x) if np.ndim(x) == 0 else np.asarray(x, float)  # noqa: E731
    return jax.tree.map(read, value)


def _parts(name: str, value: Any) -> list[tuple[str, float]]:
    """All numbers of a value, with labels."""
    leaves = jax.tree_util.tree_leaves_with_path(value)
    return [
        (name + jax.tree_util.keystr(path) + (f"{list(place)}" if place else ""), float(number))
        for path, leaf in leaves
        for place, number in np.ndenumerate(leaf)
    ]


def _at_ends(
    unknowns: Mapping[str, Parameter], names: tuple[str, ...], best: np.ndarray
) -> Iterator[str]:
    """Sentences on the shares that lie at an end of their ranges."""
    for label, share in zip(names, best, strict=True):
        if min(share, 1 - share) > AT_END:
            continue
        end = "lower" if share < 0.5 else "upper"
        unknown = unknowns.get(label)
        number = f", {float(unknown.value(share)):.6g}" if unknown is not None else ""
        yield f"{label} lies at the {end} end of its range{number}: widen it, or look why"


def _left_open(names: tuple[str, ...], covariance: np.ndarray) -> tuple[str, ...]:
    """Sentences on the combinations of shares whose deviation the recording hardly lessens."""
    variances, directions = np.linalg.eigh(covariance)
    sentences = []
    for variance, direction in zip(variances[::-1], directions.T[::-1], strict=True):
        if variance**0.5 <= LEFT_OPEN * PRIOR_DEVIATION:
            break
        # Shares that read the same come in the order of the unknowns, whatever their rounding.
        order = np.argsort(-np.abs(direction).round(2), kind="stable")[:4]
        direction = direction * np.sign(direction[order[0]])
        parts = [f"{direction[i]:+.2f} {names[i]}" for i in order if abs(direction[i]) > 0.1]
        sentences.append(f"left open by the recording: {' '.join(parts)} (of the ranges)")
    return tuple(sentences)


def check_optimizer(call: str, optimizer: Any) -> None:
    """Raise ValueError for what is no optimizer of optax."""
    kind = optax.GradientTransformation
    check_kind(f"{call}:", "optimizer", optimizer, kind, "optax.adam(1e-2)")


def read_unknowns(call: str, unknowns: Any) -> Mapping[str, Parameter]:
    """Ranges by names; ValueError for what is no mapping."""
    if not isinstance(unknowns, Mapping):
        raise ValueError(
            f"{call}: unknowns {brief(unknowns)} must be a mapping from names to ranges, such as "
            "{'body.arm.mass': Positive(2.0)}"
        )
    return unknowns


def check_search(call: str, unknowns: Mapping[str, Parameter], **counts: int) -> None:
    """Raise ValueError unless every unknown has a range and every count is large enough.

    call: name of the function, for errors
    """
    read_unknowns(call, unknowns)
    if not unknowns:
        raise ValueError(f"{call}: there are no unknowns; name at least one")
    for name, unknown in unknowns.items():
        if not isinstance(unknown, Parameter):
            kinds = ", ".join(kind.__name__ for kind in Parameter.__args__)
            raise ValueError(f"unknown {name!r}: {unknown!r} must be one of {kinds}")
        unknown.check(name)
    for name, count in counts.items():
        if count < (name != "polish"):
            raise ValueError(f"{call}: {name} {count} must be >= {int(name != 'polish')}")
