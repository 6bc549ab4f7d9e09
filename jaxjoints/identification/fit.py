"""Numbers of a system by their paths, fitted to recordings in one or several shots."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from ..algebra.calls import public
from ..algebra.options import brief, check_count, check_function, check_key
from ..algebra.progress import with_progress
from ..algebra.pytree import replace, static, struct
from ..model.measures import coordinates
from ..model.state import State
from ..model.system import System
from ..schemes.scheme import Scheme
from ..simulate.door import check_scheme
from ..simulate.readout import Readout
from ..simulate.step import DEFAULT_SCHEME, step
from ..simulate.surface import coordinate_speeds
from .recording import Measure, Recording, Simulation, prepared
from .search import (
    Identified,
    Linearized,
    Report,
    Search,
    check_optimizer,
    check_search,
    read_unknowns,
    sizes,
    values_at,
)
from .unknowns import BodyInertia, Inertial, Parameter, Unknown

# Deviations of the gaps between shots, as shares of the ranges of their starts, one after the other
# in the search: at first a shot hardly feels its neighbours, in the end all are one motion.
GAPS = (3e-2, 1e-3, 3e-5, 1e-6)
# What names of unknown starts begin with.
START = "start of recording "
# Largest difference of coordinates that were put into a state and read from it.
SAME = 1e-5


class Fit(NamedTuple):
    """The result of `fit`.

    system: with the values of the best start
    identified: values and deviations by path, and the course of the search. Unknown starts are
        among the values: "start of recording 0" has the free coordinates, then the free speeds, at
        the start of each shot

    >>> from jaxjoints import Control, Slider, SystemBuilder
    >>> from jaxjoints.identification import Positive
    >>> world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    >>> cart = world.body("cart", mass=1.0, inertia=(1.0, 1.0, 1.0))
    >>> _ = world.joint("rail", Slider((1.0, 0.0, 0.0)), child=cart)
    >>> push, ranges = Control(effort=jnp.array([6.0])), {"body.cart.mass": Positive(5.0)}
    >>> speeds = Recording(np.array([[0.3], [0.6]]), 1e-3, 0.1, q=[0.0], qd=[0.0], control=push)
    >>> def speed(system, state, info):
    ...     return state.velocity[0]
    >>> found = fit(world.build()[0], ranges, speeds, speed, key=jax.random.key(0), starts=2)
    >>> print(found.system.mass.round(4))  # 6 N at 3 m/s²
    [2.]
    """

    system: System
    identified: Identified

    def __str__(self) -> str:
        return str(self.identified)


@public
@with_progress("mean square")
def fit(
    system: System,
    unknowns: Mapping[str, Parameter],
    recordings: Recording | Sequence[Recording],
    measure: Measure,
    *,
    key: Array,
    shots: int = 1,
    joined: bool = True,
    substeps: int = 1,
    scheme: Scheme | None = None,
    starts: int = 16,
    iterations: int = 0,
    polish: int = 20,
    rate: float = 0.05,
    optimizer: optax.GradientTransformation | None = None,
    start: Callable[[System, Array, Array], State] | None = None,
    end: Callable[[System, State], tuple[Array, Array]] | None = None,
    report: Report | None = None,
) -> Fit:
    """Numbers of a system with the least sum of squared differences from recordings.

    The search takes Levenberg-Marquardt steps from several random starts at once, with exact
    forward derivatives of the simulation. The first start is in the middle of all ranges.

    **Multiple shooting.** Over a long or chaotic motion small errors grow so much that no search
    converges. So the motion is cut into shots. The simulation of each shot has its own start, an
    unknown near the recorded coordinates. Gaps between the end of a shot and the start of the next
    count as residuals. Their deviation shrinks during the search to 1e-6 of the range of the
    motion. Shots add no cost. Coordinates and speeds do not say how far joints are open, so the
    scheme should close joints at each step; the default for several shots does.

    **Shots that are not joined** start within `q_within` and `qd_within` of the recorded
    coordinates and speeds, and gaps do not count. Residuals are then nearly linear in masses and
    inertias, so few steps find many numbers. Measure coordinates and speeds well for this: noise of
    a start that is not an unknown biases the numbers.

    system: with all known numbers
    unknowns: range of each unknown number, by its path (see `System.number`)
    recordings: one, or several of one mechanism
    measure: (system, state, info) → a tree like `Recording.measured`, of one environment after a
        step; or a `Readout`. Define it once: it is part of the program
    key: of `jax.random`, for the starts
    shots: of each recording; its samples must be a multiple
    joined: whether the shots are one motion, so that each begins where the last one ends
    substeps: steps of a sample
    scheme: integrator, by default `SemiImplicitEuler()`, for several shots with projections=2
    starts: number of starts of the search
    iterations: steps of Adam, or of another `optimizer` of optax, before `polish` steps of
        Levenberg-Marquardt; rate: as in `identify`
    start: (system, q, qd) → state, from coordinates and speeds of a recording; end: the inverse,
        (system, state) → (q, qd). Both are of a batch, with its axis last. By default q and qd are
        all coordinates and speeds of a mechanism without closed loops. With loops give the free
        coordinates, and call `assemble` in `start`. A state of `start` is that of time 0; where
        joints depend on time and shots begin later, leave `start` out
    report: called after every evaluation with the number of evaluations, their total, and the loss
        of each start, such as a `Progress`

    Raises: ValueError for unknown paths, ranges that are empty, recordings that do not fit, and if
        no start has finite residuals
    """
    if not isinstance(system, System):
        raise ValueError(f"fit: system {brief(system)} must be a System, see `build`")
    if scheme is None:
        scheme = DEFAULT_SCHEME if shots == 1 else replace(DEFAULT_SCHEME, projections=2)
    check_scheme("fit", scheme)
    for name, count in (("shots", shots), ("substeps", substeps)):
        check_count("fit", name, count, 1)
    check_key("fit:", key)
    if (start is None) != (end is None):
        raise ValueError("fit: give start and end together; each is the inverse of the other")
    if not isinstance(measure, Readout):
        check_function("fit:", "measure", measure, "system", "state", "info")
    if optimizer is not None:
        check_optimizer("fit", optimizer)
    unknowns = read_unknowns("fit", unknowns)
    unknowns = {path: _about(system, path, unknowns[path]) for path in sorted(unknowns)}
    counts = {"starts": starts, "polish": polish} | (
        {"iterations": iterations} if iterations else {}
    )
    check_search("fit", unknowns, **counts)
    begin = _tree_start if start is None else _Start(start)
    simulation = Simulation(begin, end or _tree_end, measure, substeps, scheme)
    recordings = [recordings] if isinstance(recordings, Recording) else list(recordings)
    cut, free = [], {}
    for i, recording in enumerate(recordings):
        width = np.shape(getattr(recording, "q", ()))[-1:]
        known = isinstance(recording, Recording)
        if known and start is None and width and width != (system.coordinates,):
            raise ValueError(
                f"recording {i}: q has {width[0]} numbers, and the system {system.coordinates} "
                "coordinates; give all of them, or say how some make a state: start=… and end=…"
            )
        ready = prepared(f"recording {i}", recording, *(width or (system.coordinates,)))
        if i == 0:
            _check_start(system, simulation, ready)
        part, unknown = _cut(f"recording {i}", ready, shots, joined)
        cut.append(part)
        if unknown is not None:
            free[f"{START}{i}"] = unknown
    if not cut:
        raise ValueError("fit: there are no recordings; give at least one")
    problem = Shots(system, tuple(cut), simulation)
    _check_measure(problem)
    both = unknowns | free
    count = sum(sizes(unknowns))
    z = jax.random.uniform(key, (count, starts)).at[:, 0].set(0.5)
    z = jnp.concatenate([z, jnp.full((sum(sizes(free)), starts), 0.5, z.dtype)])
    gaps = GAPS if shots > 1 and joined else GAPS[-1:]
    search = Search("fit", problem, both, iterations + polish + len(gaps), report)
    if iterations:
        if optimizer is None:
            optimizer = optax.adam(optax.cosine_decay_schedule(rate, iterations), b2=0.9)
        z = search.descended(z, optimizer, iterations, gaps[0])
    for gap, steps in zip(gaps, np.array_split(range(polish), len(gaps)), strict=True):
        z, best = search.polished(z, len(steps), gap)
    identified = search.answer(z, best)
    values = {path: identified.values[path] for path in unknowns}
    return Fit(system.with_numbers(values), identified)


@struct
class Part:
    """A recording cut into shots of equal length, leaves of the recording with an axis of shots.

    start: coordinates and speeds at the start of each shot, as far as they are guessed or known,
        shape (2 coordinates, shots)
    time: when each shot begins [s], shape (shots,)
    spread: range of the numbers of a start along the recording, shape (2 coordinates,)
    free: places of those that are unknown, (shot, number) each, in the order of the unknown
    joined: whether gaps between the shots count
    """

    recording: Recording
    start: Array
    time: Array
    spread: Array
    free: tuple[tuple[int, int], ...] = static()
    joined: bool = static()


@struct
class Shots:
    """The problem of a fit, see `Problem`."""

    system: System
    parts: tuple[Part, ...]
    simulation: Simulation

    def linearized(
        self, unknowns: dict[str, Parameter], shares: Array, follow: Array
    ) -> Linearized:
        """See `Problem`; `follow` is the deviation of gaps, as a share of the ranges of starts."""
        paths = {name: u for name, u in unknowns.items() if not name.startswith(START)}
        count, (size, starts) = sum(sizes(paths)), shares.shape
        normal = NormalEquations(
            jnp.zeros(starts, shares.dtype),
            jnp.zeros((size, starts), shares.dtype),
            jnp.zeros((size, size, starts), shares.dtype),
        )
        residuals, begin = [], count
        for i, part in enumerate(self.parts):
            numbers, shots = part.start.shape
            start = jnp.broadcast_to(part.start[..., None], (numbers, shots, starts))
            # Of each shot: places of its free numbers in a start, in the shares, and their ranges.
            free = [([], []) for _ in range(shots)]
            slope = jnp.zeros((numbers, shots), shares.dtype)
            if part.free:
                unknown, (shot, number) = unknowns[f"{START}{i}"], np.array(part.free).T
                z = shares[begin : begin + len(part.free)]
                start = start.at[number, shot].set(unknown.value(z))
                slope = slope.at[number, shot].set(unknown.upper - unknown.lower)
                for place, (s, j) in enumerate(part.free):
                    free[s][0].append(j)
                    free[s][1].append(begin + place)
            begin += len(part.free)
            (r, end), (J, E) = self._derivatives(part, paths, shares[:count], start)
            if not part.free and not part.joined:
                # All rows depend on the same shares.
                r = r.reshape(-1, starts)
                normal = normal.plus(np.arange(count), J.reshape(count, -1, starts), r)
                residuals.append(r)
                continue
            deviation = (follow * part.spread)[:, None]
            for s in range(shots):
                inside, columns = free[s]
                which = np.array([*range(count), *(count + j for j in inside)])
                columns = np.array([*range(count), *columns])
                scale = jnp.concatenate([jnp.ones(count, shares.dtype), slope[inside, s]])
                scale = scale[:, None, None]
                normal = normal.plus(columns, scale * J[which, :, s], r[:, s])
                if s + 1 == shots or not part.joined:
                    continue
                gap = (end[:, s] - start[:, s + 1]) / deviation
                beyond = -jnp.diag(slope[:, s + 1])[..., None] / deviation[None]
                rows = [
                    scale * E[which, :, s] / deviation[None],
                    jnp.broadcast_to(beyond, (numbers, *gap.shape)),
                ]
                columns = np.concatenate([columns, free[s + 1][1]]).astype(int)
                normal = normal.plus(columns, jnp.concatenate(rows), gap)
            residuals.append(r.reshape(-1, starts))
        return Linearized(*normal, jnp.concatenate(residuals))

    def _derivatives(
        self, part: "Part", paths: dict[str, Parameter], z: Array, start: Array
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Residuals and ends of all shots, and their derivatives.

        A start of a shot changes this shot alone. So one forward derivative serves a number of the
        starts of all shots, and there are as many as shares of the system and numbers of a start.

        z: shares of the system's numbers, shape (shares, starts)
        start: of each shot, shape (numbers, shots, starts)

        Returns: residuals (residuals, shots, starts), ends (numbers, shots, starts); derivatives
            with an axis of directions in front, the shares and then the numbers of a start
        """
        count, (numbers, shots, starts) = len(z), start.shape
        flat = lambda x: x.reshape(*x.shape[:-2], shots * starts)  # noqa: E731
        wide = lambda x: jnp.broadcast_to(x[..., None], (*x.shape, starts))  # noqa: E731
        recording = part.recording
        recording = replace(
            recording,
            measured=jax.tree.map(lambda x: flat(wide(x)), recording.measured),
            deviation=jax.tree.map(lambda x: flat(wide(x)), recording.deviation),
            control=jax.tree.map(lambda x: flat(wide(x)), recording.control),
        )

        time = flat(jnp.broadcast_to(part.time[:, None], (shots, starts)))

        def simulated(z, start):
            z = flat(jnp.broadcast_to(z[:, None], (count, shots, starts)))
            system = self.system.with_numbers(values_at(paths, z))
            shot = self.simulation.shot(system, flat(start), time, recording)
            return tuple(x.reshape(-1, shots, starts) for x in shot)

        def along(direction):
            dz = jnp.broadcast_to(direction[:count, None], z.shape)
            ds = jnp.broadcast_to(direction[count:, None, None], start.shape)
            return jax.jvp(simulated, (z, start), (dz, ds))

        # Where all starts are known, nothing is differentiated by them.
        directions = jnp.eye(count + numbers * bool(part.free), count + numbers, dtype=z.dtype)
        return jax.vmap(along, out_axes=(None, 0))(directions)


class NormalEquations(NamedTuple):
    """Sums over rows: of squares r², of J r, of J Jᵀ; see `Linearized`."""

    cost: Array
    gradient: Array
    information: Array

    def plus(self, columns: np.ndarray, J: Array, r: Array) -> "NormalEquations":
        """The sums with more rows.

        columns: which shares the rows depend on
        J: derivatives of the rows by these, shape (columns, rows, starts); r: (rows, starts)
        """
        products = jnp.sum(J[:, None] * J[None], axis=2)
        return NormalEquations(
            self.cost + jnp.sum(r * r, axis=0),
            self.gradient.at[columns].add(jnp.sum(J * r[None], axis=1)),
            self.information.at[columns[:, None], columns].add(products),
        )


@dataclass(frozen=True)
class _Start:
    """A state by a user's function, which stands at time 0, moved to a time."""

    function: Callable[[System, Array, Array], State]

    def __call__(self, system: System, q: Array, qd: Array, time: Array) -> State:
        state = self.function(system, q, qd)
        return replace(state, time=state.time + time)


def _tree_start(system: System, q: Array, qd: Array, time: Array) -> State:
    """A state at a time by all coordinates and speeds of a mechanism without closed loops."""
    cuts = {name: system.coordinate(name) for name in system.topology.joints}
    cuts = {name: cut for name, cut in cuts.items() if cut.stop > cut.start}
    q, qd = ({name: x[cut] for name, cut in cuts.items()} for x in (q, qd))
    with warnings.catch_warnings():
        # A guess may be outside of limits.
        warnings.simplefilter("ignore")
        return system.state(q=q, qd=qd, time=time)


def _tree_end(system: System, state: State) -> tuple[Array, Array]:
    """All coordinates and speeds."""
    return coordinates(system, state), coordinate_speeds(system, state)


def _about(system: System, path: str, unknown: Any) -> Any:
    """What is unknown of a number, about the value that the system has."""
    now = system.number(path)
    if not isinstance(unknown, Parameter):
        return unknown
    if isinstance(unknown, Inertial) != isinstance(now, BodyInertia):
        other = "Inertial(2.0)" if isinstance(now, BodyInertia) else "Positive(2.0)"
        what = "a body" if isinstance(now, BodyInertia) else f"numbers of shape {jnp.shape(now)}"
        raise ValueError(
            f"unknown {path!r}: {type(unknown).__name__} is no range of {what}; give one such as "
            f"{other}. Inertial is of a whole body, with a path like 'body.arm'"
        )
    unknown = unknown.about(now)
    value = unknown.value(jnp.full(unknown.shape, 0.5))
    shapes, there = ([jnp.shape(x) for x in jax.tree.leaves(tree)] for tree in (value, now))
    if shapes != there:
        raise ValueError(
            f"unknown {path!r}: its values have shapes {shapes}, and the number has {there}; give "
            "bounds of these shapes"
        )
    return unknown


def _cut(
    name: str, recording: Recording, shots: int, joined: bool = True
) -> tuple[Part, Unknown | None]:
    """A recording in shots, and what is unknown of their starts."""
    samples = recording.samples
    if samples % shots:
        raise ValueError(f"{name}: its {samples} samples must be a multiple of shots {shots}")
    length = samples // shots
    if shots > 1 and recording.q.ndim + recording.qd.ndim < 4:
        raise ValueError(
            f"{name}: {shots} shots need guesses of q and qd at the start and at each sample, "
            "shape (samples + 1, coordinates), see Recording.from_coordinates"
        )
    known = [x if x.ndim == 2 else x[None] for x in (recording.q, recording.qd)]
    start = np.concatenate([np.asarray(x)[:samples:length].T for x in known])
    around = np.concatenate([recording.q_within, recording.qd_within])
    spread = np.concatenate([np.ptp(x, axis=0) for x in known])
    # Protects a coordinate that does not move in the recording.
    spread = np.where(spread > 0, spread, np.max(spread, initial=0.0) or 1.0)
    later = spread / 2 if joined else around
    width = np.stack([around, *([later] * (shots - 1))])
    free = tuple((int(s), int(j)) for s, j in np.argwhere(width > 0))
    unknown = None
    if free:
        where = tuple(np.array(free).T)
        middle, half = start.T[where], width[where]
        unknown = Unknown(jnp.asarray(middle - half), jnp.asarray(middle + half))

    def shot(x):
        # Time in front, shots at the end.
        return jnp.moveaxis(x.reshape(shots, length, *x.shape[1:]), 0, -1)

    control = recording.control
    recording = replace(
        recording,
        measured=jax.tree.map(shot, recording.measured),
        deviation=jax.tree.map(shot, recording.deviation),
        control=None if control is None else jax.tree.map(shot, control),
    )
    time = jnp.asarray(np.asarray(recording.dt) * length * np.arange(shots))
    return Part(recording, jnp.asarray(start), time, jnp.asarray(spread), free, joined), unknown


def _check_start(system: System, simulation: Simulation, recording: Recording) -> None:
    """Raise ValueError unless coordinates that are put into a state are read from it."""
    q, qd = (x.reshape(-1, x.shape[-1])[0][:, None] for x in (recording.q, recording.qd))
    state = simulation.start(system, q, qd, jnp.zeros(1, q.dtype))
    for field, given, read in zip(("q", "qd"), (q, qd), simulation.end(system, state), strict=True):
        if read.shape != given.shape or not np.allclose(read, given, atol=SAME, rtol=SAME):
            raise ValueError(
                f"recording 0: {field} {given[:, 0]} of the start comes back as {np.ravel(read)}; "
                "where joints close loops, give the coordinates that are free, with start=… and "
                "end=…"
            )


def _once(simulation: Simulation, system: System, part: Part) -> Any:
    """What is measured after a step from the start of a recording."""
    state = simulation.start(system, *jnp.split(part.start[:, :1], 2), part.time[:1])
    state, info = step(system, state, dt=part.recording.dt, scheme=simulation.scheme)
    return simulation.measured(system, state, info)


def _fields(tree: Any) -> str:
    """The paths of the first arrays of a tree, as words."""
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    shown = ", ".join(paths[:4]) + (", …" if len(paths) > 4 else "")
    return shown or ("one array" if paths else "no array")


def _check_measure(problem: Shots) -> None:
    """Raise ValueError unless what is measured has the structure and shapes of the recordings."""
    for i, part in enumerate(problem.parts):
        simulated = jax.eval_shape(partial(_once, problem.simulation), problem.system, part)
        shapes = [x.shape[:-1] for x in jax.tree.leaves(simulated)]
        there = [x.shape[1:-1] for x in jax.tree.leaves(part.recording.measured)]
        if jax.tree.structure(simulated) != jax.tree.structure(part.recording.measured):
            raise ValueError(
                f"recording {i}: measured has {_fields(part.recording.measured)}, and measure "
                f"returns {_fields(simulated)}; both are one tree, such as a dictionary of the "
                "same names. What a readout reads is compared as a whole, jaxjoints.Readings: "
                "measure a function of (system, state, info) in its place"
            )
        if shapes != there:
            raise ValueError(
                f"recording {i}: samples have shapes {there}, and measure returns {shapes}"
            )
