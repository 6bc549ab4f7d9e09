"""Recordings of whatever can be measured, and how far a simulation is from them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.options import brief, plain_numbers
from ..algebra.pytree import expand, map_trailing, static, struct
from ..algebra.spatial import Pose
from ..build.checks.values import precision
from ..model.state import CONTROL_RANKS, Control, Info, State
from ..model.system import System
from ..schemes.scheme import Scheme
from ..simulate.readout import Readout
from ..simulate.step import step

Measure = Callable[[System, State, Info], Any]


@struct
class Recording:
    """Measurements of one motion, sample by sample.

    measured: a tree of arrays with time in front, like the result of the `measure` of a fit, such
        as `Readings` of coordinates and reactions, or positions of markers. NaN marks a number that
        was not measured. Samples are at dt, 2 dt, …; forces are means over the interval before
    deviation: standard deviations of the measured numbers, a number or a tree of the same structure
        whose leaves broadcast against the samples, > 0
    dt: time between two samples [s]
    q, qd: coordinates and their speeds, in the order of `System.coordinates`, at the start, shape
        (coordinates,). Several shots need guesses at the start and at each sample, shape
        (samples + 1, coordinates)
    control: controls of the motion, or None. Each array has an axis of intervals in front, held
        from a sample to the next, or no such axis for a constant
    q_within, qd_within: largest distance of the start from q and qd, a number or shape
        (coordinates,). 0: the start is known; else it is an unknown of the search

    >>> angles = np.array([[0.1], [0.15], [np.nan], [0.18]])
    >>> Recording(angles, deviation=1e-3, dt=0.01, q=[0.05], qd=[5.0]).samples
    4
    """

    measured: Any
    deviation: Any
    dt: Array | float
    q: Any
    qd: Any
    control: Control | None = None
    q_within: Any = 0.0
    qd_within: Any = 0.0

    @staticmethod
    def from_coordinates(
        q: Any,
        *,
        dt: float,
        deviation: Any,
        measured: Any = None,
        control: Control | None = None,
        q_within: Any = 0.0,
        qd_within: Any = None,
    ) -> "Recording":
        """A recording with coordinates at the start and at each sample, and speeds from them.

        q: shape (samples + 1, coordinates), without gaps, columns as `System.coordinates`. Speeds
            are differences of q, guesses with the errors of noise and sampling
        measured: a tree with `samples` rows, the first at dt and not at the start; by default the
            coordinates from the first sample on, q[1:]
        deviation, control: as in `Recording`
        qd_within: by default half of the range of each speed, so that the search finds the speeds
            at the start. Give 0 only for exact samples, such as a start at rest
        """
        q = np.asarray(q, float)
        if q.ndim != 2 or len(q) < 3 or not np.isfinite(q).all():
            raise ValueError(
                f"Recording: q of shape {q.shape} must be finite, of shape (samples + 1, "
                "coordinates) with two samples or more; fill gaps of q, and leave them in measured"
            )
        step = plain_numbers(dt)
        if step is None or step.shape != () or not 0 < step < np.inf:
            raise ValueError(f"Recording: dt {brief(dt)} must be one positive number [s]")
        qd = np.gradient(q, float(dt), axis=0, edge_order=2)
        measured = q[1:] if measured is None else measured
        qd_within = np.ptp(qd, axis=0) / 2 if qd_within is None else qd_within
        return Recording(measured, deviation, dt, q, qd, control, q_within, qd_within)

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(jax.tree.leaves(self.measured)[0])


class Shot(NamedTuple):
    """One motion of a batch of simulations, one for each shot of a recording.

    residuals: shape (residuals, *batch)
    end: coordinates, then speeds at the end, shape (2 coordinates, *batch)
    """

    residuals: Array
    end: Array


@struct
class Simulation:
    """How recordings are simulated and measured.

    start: (system, q, qd, time) → state, see `fit`; end: (system, state) → q, qd
    measure: what is compared; substeps: steps of a sample
    """

    start: Callable = static()
    end: Callable = static()
    measure: Measure = static()
    substeps: int = static()
    scheme: Scheme

    def shot(self, system: System, start: Array, time: Array, recording: Recording) -> Shot:
        """A batch of simulations of parts of a recording, compared with it.

        system: with the batch axis; start: coordinates, then speeds, shape (2 coordinates, batch)
        time: when each part begins [s], shape (batch,)
        recording: leaves of `measured`, `deviation` and `control` with time in front and the batch
            axis at the end
        """
        q, qd = jnp.split(start, 2)
        state = self.start(system, q, qd, time)
        dt = recording.dt / self.substeps

        def small(state, control):
            return step(system, state, control, dt=dt, scheme=self.scheme)

        first = jax.tree.map(lambda x: x[0], recording.control)
        # One copy of the step in the program: its first sample needs an Info to begin with.
        none = jax.tree.map(jnp.zeros_like, jax.eval_shape(small, state, first)[1])

        def advance(carry, control):
            last = lambda _, carry: small(carry[0], control)  # noqa: E731
            state, info = jax.lax.fori_loop(0, self.substeps, last, carry)
            return (state, info), self.measured(system, state, info)

        start = state, none
        (state, _), simulated = jax.lax.scan(
            advance, start, recording.control, length=recording.samples
        )
        q, qd = self.end(system, state)
        residuals = _differences(simulated, recording.measured, recording.deviation)
        return Shot(residuals, jnp.concatenate([q, qd]))

    def measured(self, system: System, state: State, info: Info) -> Any:
        """What `measure` reads off a batch."""
        if isinstance(self.measure, Readout):
            return self.measure(system, state, info)
        wide = expand(system, list(system.topology.ranks), 1)
        return map_trailing(self.measure, 1, wide, state, info)


def _differences(simulated: Any, measured: Any, deviation: Any) -> Array:
    """Simulated less measured numbers over their deviations, 0 where nothing was measured.

    Leaves have time in front and the batch axis at the end. Of a quaternion twice the difference,
    of the sign that is nearer.

    Returns: shape (residuals, batch)
    """

    def pose(there, here):
        sign = jnp.where(jnp.sum(there.q * here.q, axis=1, keepdims=True) < 0, -1.0, 1.0)
        return Pose(there.p, 2 * sign.astype(there.q.dtype) * there.q), Pose(here.p, 2 * here.q)

    is_pose = lambda x: isinstance(x, Pose)  # noqa: E731
    pairs = [
        pose(there, here) if is_pose(there) else (there, here)
        for there, here in zip(
            jax.tree.leaves(simulated, is_leaf=is_pose),
            jax.tree.leaves(measured, is_leaf=is_pose),
            strict=True,
        )
    ]
    rows = []
    leaves = zip(*(jax.tree.leaves(tree) for tree in zip(*pairs, strict=True)), strict=True)
    for (there, here), scale in zip(leaves, jax.tree.leaves(deviation), strict=True):
        known = ~jnp.isnan(here)
        # A gap is replaced before the difference, because NaN would reach its derivative.
        rows.append(jnp.where(known, (there - jnp.where(known, here, 0.0)) / scale, 0.0))
    return jnp.concatenate([row.reshape(-1, row.shape[-1]) for row in rows])


def prepared(name: str, recording: Recording, width: int) -> Recording:
    """A recording in standard form: float arrays, a deviation for each leaf, control with time.

    name: for errors; width: number of coordinates of the start

    Raises: ValueError for shapes that do not fit each other, deviations that are not positive,
        recordings without a number, and starts that are not finite
    """
    if not isinstance(recording, Recording):
        raise ValueError(f"{name}: {recording!r} must be an identification.Recording")
    dtype = precision()
    floats = lambda x: jnp.asarray(x, dtype)  # noqa: E731
    measured = jax.tree.map(floats, recording.measured)
    leaves = jax.tree_util.tree_leaves_with_path(measured)
    lengths = {jax.tree_util.keystr(path) or "measured": leaf.shape[:1] for path, leaf in leaves}
    if not leaves or len(set(lengths.values())) > 1 or () in lengths.values():
        raise ValueError(
            f"{name}: measured must be arrays with one length of time in front; they have {lengths}"
        )
    samples = leaves[0][1].shape[0]
    if not any(np.isfinite(leaf).any() for _, leaf in leaves):
        raise ValueError(f"{name}: measured has no finite number; NaN says nothing was measured")
    if any(np.isinf(leaf).any() for _, leaf in leaves):
        raise ValueError(f"{name}: measured has infinite numbers; write NaN where none is known")
    dt = np.asarray(recording.dt, float)
    if not (dt.shape == () and np.isfinite(dt) and dt > 0):
        raise ValueError(f"{name}: dt {recording.dt} must be one positive number [s]")
    deviation = _deviation(name, recording.deviation, measured)
    changes = {
        field: _start(name, field, getattr(recording, field), samples, width, dtype)
        for field in ("q", "qd")
    }
    within = {
        field: _within(name, field, getattr(recording, field), width, dtype)
        for field in ("q_within", "qd_within")
    }
    control = _control(name, recording.control, samples, dtype)
    return Recording(measured, deviation, floats(dt), control=control, **changes, **within)


def _deviation(name: str, deviation: Any, measured: Any) -> Any:
    """A deviation for each leaf of what was measured."""
    structure = jax.tree.structure(measured)
    if jax.tree.structure(deviation) == jax.tree.structure(0.0):
        deviation = jax.tree.unflatten(structure, [deviation] * structure.num_leaves)
    if jax.tree.structure(deviation) != structure:
        raise ValueError(
            f"{name}: deviation must be a number, or a tree like measured: {structure}, not "
            f"{jax.tree.structure(deviation)}"
        )

    def read(value, leaf):
        value = np.asarray(value, float)
        try:
            wide = np.broadcast_to(value, leaf.shape)
        except ValueError:
            raise ValueError(
                f"{name}: a deviation of shape {value.shape} does not fit numbers of shape "
                f"{leaf.shape}"
            ) from None
        if not (np.isfinite(wide).all() and (wide > 0).all()):
            raise ValueError(f"{name}: deviation {value} must be positive and finite")
        return jnp.asarray(wide, leaf.dtype)

    return jax.tree.map(read, deviation, measured)


def _start(name: str, field: str, value: Any, samples: int, width: int, dtype: np.dtype) -> Array:
    value = np.asarray(value, float)
    if value.shape not in ((width,), (samples + 1, width)):
        raise ValueError(
            f"{name}: {field} has shape {value.shape}; it must be {(width,)}, or "
            f"{(samples + 1, width)} with the start and all samples"
        )
    if not np.isfinite(value).all():
        raise ValueError(f"{name}: {field} is not finite; give a guess where nothing is known")
    return jnp.asarray(value, dtype)


def _within(name: str, field: str, value: Any, width: int, dtype: np.dtype) -> Array:
    value = np.asarray(value, float)
    if value.shape not in ((), (width,)) or not (np.isfinite(value).all() and (value >= 0).all()):
        raise ValueError(
            f"{name}: {field} {value} must be a number >= 0, or {width} of them; 0 for a start "
            "that is known"
        )
    return jnp.asarray(np.broadcast_to(value, (width,)), dtype)


def _control(name: str, control: Control | None, samples: int, dtype: np.dtype) -> Control | None:
    """A control whose arrays have an axis of intervals in front."""
    if control is None:
        return None
    if not isinstance(control, Control):
        raise ValueError(f"{name}: control {brief(control)} must be a Control(effort=…), or None")
    changes = {}
    for field, rank in CONTROL_RANKS.items():
        value = getattr(control, field)
        if value is None:
            continue
        value = jnp.asarray(value, dtype)
        if value.ndim == rank:
            value = jnp.broadcast_to(value, (samples, *value.shape))
        if value.ndim != rank + 1 or len(value) != samples:
            raise ValueError(
                f"{name}: control {field} has shape {value.shape}; it must have {rank} axes, or "
                f"one more in front for the {samples} intervals between samples"
            )
        if not np.isfinite(value).all():
            raise ValueError(f"{name}: control {field} is not finite")
        changes[field] = value
    return Control(**changes)
