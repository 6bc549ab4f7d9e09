"""Rollouts: many steps in one compiled loop, in tiles, with records and checkpoints."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import NamedSharding
from jax.tree_util import Partial

from ..algebra.calls import public
from ..algebra.compiler import is_traced, quickly
from ..algebra.devices import computed_where, dealt_out, placement
from ..algebra.options import brief, check_function
from ..algebra.progress import compiled
from ..algebra.pytree import map_trailing, replace
from ..assembly.layout import layout
from ..model.batch import batch_shape
from ..model.kinematics import prepare
from ..model.state import CONTROL_RANKS, STATE_RANKS, Control, Info, State, control_ranks
from ..model.system import System
from ..model.table import in_words
from ..schemes.scheme import Scheme
from .captured import OF_CONTROLLER, OF_RECORD, check_captured, noted
from .compilation import warn_of_compilation, warn_of_placement
from .controller import Controller, Course, control_of, started
from .door import (
    check_policy,
    check_scheme,
    check_time_step,
    entered,
    expanded,
    full,
    read_count,
)
from .isolation import Policy, computed_again, isolated_step, sanitized
from .loop import loop, varying
from .readout import Readout
from .step import DEFAULT_SCHEME
from .surface import measured
from .tiles import cores, tiled, tiling

# Functions that are trees already, as `jit` wants them.
READY = (Partial, Readout, Controller)
# Steps, of all environments together, up to which a rollout is compiled quickly: compiled fully it
# would win a few seconds back at most, and take ten or twenty more to compile.
FEW = 5000


@overload
def rollout(
    system: System,
    state: State,
    controls: Control | Callable[[State], Control] | None = None,
    *,
    dt: Array | float,
    steps: int | None = None,
    substeps: int = 1,
    record_every: int = 1,
    record: Callable[[State, Info], Any] | Readout | None = None,
    checkpoint: int | None = None,
    tile: int | None = None,
    scheme: Scheme = DEFAULT_SCHEME,
    control_policy: Policy = "stop",
) -> tuple[State, Any]: ...


@overload
def rollout(
    system: System,
    state: State,
    controls: Controller,
    *,
    dt: Array | float,
    steps: int | None = None,
    substeps: int = 1,
    record_every: int = 1,
    record: Callable[[State, Info], Any] | Readout | None = None,
    checkpoint: int | None = None,
    tile: int | None = None,
    scheme: Scheme = DEFAULT_SCHEME,
    control_policy: Policy = "stop",
) -> tuple[State, Any, Controller]: ...


@public
@computed_where("state")
def rollout(
    system: System,
    state: State,
    controls: Control | Callable[[State], Control] | Controller | None = None,
    *,
    dt: Array | float,
    steps: int | None = None,
    substeps: int = 1,
    record_every: int = 1,
    record: Callable[[State, Info], Any] | Readout | None = None,
    checkpoint: int | None = None,
    tile: int | None = None,
    scheme: Scheme = DEFAULT_SCHEME,
    control_policy: Policy = "stop",
) -> tuple[State, Any] | tuple[State, Any, Controller]:
    """Many steps in one compiled loop, for one environment or a batch (batch axes last).

    An environment that becomes bad (see `Cause`) keeps its last good state, with `Info.ok` false.
    It has no effect on other environments, and no gradient flows through it.

    controls: a `Control` whose arrays have a time axis in front, one entry per control interval,
        the first for the interval that begins at `state.time`; or a function of one environment's
        state; or a `Controller`, which has parameters, memory and noise; or None
    dt: time step [s]; steps: how many (may be left out if `controls` are arrays)
    substeps: steps per control interval, in which the control is constant
    record_every: steps per record, the first at the end of as many steps; it divides `substeps`,
        unless a function computes the controls, or is a multiple of it
    record: what to keep: a function of (state, info) of the last step before each record, or a
        `readout`; the state by default. `lambda state, info: (state, info)` keeps both. Time is the
        first axis of the result
    checkpoint: for reverse differentiation. None keeps the state at every step and computes each
        step again. An integer n keeps one state for every n steps, or for fewer where n is no
        multiple of `record_every`, and computes the steps in between once more: bounded memory
    tile: number of environments that run through all steps together. The default on a CPU is as
        many as stay in a core's cache, elsewhere all of them. Results of other tiles agree to
        rounding. After `use_all_cores` all cores share the tiles, if the number of cores divides
        the batch. A state that is spread over devices stays there: each device computes its
        environments
    scheme: integrator
    control_policy: as for `step`

    On a CPU a rollout of up to 5000 steps × environments compiles in less than half of the time and
    runs at a half to a quarter of the speed. Within `jax.jit` every rollout is compiled fully: use
    it for a rollout that you call many times.

    Returns: the final state, and the records stacked over time; for a `Controller` also the
        controller at the end, with which the next rollout continues
    Raises: ValueError for a time step out of (0, 1] s and for counts or axes that do not fit
    Warns: where the scheme finds the start too stiff for the time step (`RungeKutta`); where a
        program is compiled again only because a function is defined anew; where cores cannot share
        the batch evenly
    """
    check_time_step(dt)
    check_policy(control_policy)
    check_scheme("rollout", scheme)
    _check_record(record)
    by_function = callable(controls) or isinstance(controls, Controller)
    if by_function and not isinstance(controls, Controller):
        check_function("rollout:", "controls", controls, "state")
    system, state, arrays = entered(
        "rollout", system, state, None if by_function else controls, leading=("steps",)
    )
    intervals = None if arrays is None else _intervals(arrays)
    counts = _counts(steps, substeps, record_every, checkpoint, intervals, by_function)
    first = None if intervals is None else jax.tree.map(lambda x: x[0], arrays)
    batch = batch_shape(system, state, first)
    if by_function:
        function = controls.function if isinstance(controls, Controller) else controls
        check_captured("rollout", "controller", function, batch, OF_CONTROLLER)
    if record is not None and not isinstance(record, Readout):
        check_captured("rollout", "record", record, batch, OF_RECORD)
    state = full(state, batch)
    dt = jnp.asarray(dt, state.position.dtype)
    if not is_traced((system, state, dt)):
        scheme.examine(system, state, dt)
    controls, record = (_ready(x) for x in (controls if by_function else arrays, record))
    course = started(controls, batch)
    static = {"counts": counts, "policy": control_policy}
    placed = placement(jax.tree.leaves(state), len(batch))
    static["tile"], static["placed"] = tiling("rollout", tile, batch, system, placed)
    if static["placed"] is not None and cores() is not None:
        shared = system, controls, dt, scheme, record
        warn_of_placement("rollout", shared, state, tuple(static.values()))
        # Else a state that comes out of a rollout would compile it again when it goes in.
        memory = None if course is None else course.memory
        state, memory = dealt_out(static["placed"], len(batch), (state, memory))
        course = None if course is None else replace(course, memory=memory)
    arguments = system, state, controls, course, dt, scheme, record
    _warn_of_compilation(arguments, static)
    final, records, memory = _rollout(*arguments, **static)
    if course is None:
        return final, records
    passed = counts.units * counts.intervals
    return final, records, replace(controls, memory=memory, interval=course.interval + passed)


def _ready(function: Any) -> Any:
    return Partial(function) if callable(function) and not isinstance(function, READY) else function


def _check_record(record: Any) -> None:
    if record is not None and not callable(record):
        raise ValueError(
            f"rollout: record {brief(record)} must be a function of (state, info), or a readout: "
            "record=readout(system, coordinates=True)"
        )
    if record is not None and not isinstance(record, Readout):
        check_function("rollout:", "record", record, "state", "info")


def _warn_of_compilation(arguments: tuple, static: dict[str, Any]) -> None:
    """Warn of functions that are defined anew; arguments: those of `_rollout`."""
    controls, record = arguments[2], arguments[-1]
    functions = [x.func for x in (controls, record) if isinstance(x, Partial)]
    functions += [x.function for x in (controls,) if isinstance(x, Controller)]
    others = [x for x in arguments if not isinstance(x, (Partial, Controller))]
    remedy = (
        "give what changes between calls to a Controller, or to the record by "
        "jax.tree_util.Partial(function, parameters)"
    )
    warn_of_compilation("rollout", functions, others, tuple(static.values()), remedy)


class Counts(NamedTuple):
    """How a rollout is divided: units of intervals of steps; one record per unit.

    repeats: intervals that share one entry of the controls
    kept: of units, of intervals, of steps: how many lie between two states that reverse
        differentiation keeps; 0 for a loop that keeps all of its states
    """

    units: int
    intervals: int
    steps: int
    repeats: int
    kept: tuple[int, int, int]


def _is_short(system: System, state: State, *others: Any, counts: Counts, **static: Any) -> bool:
    """Whether a rollout has so few steps, of all environments together, that it is compiled
    quickly.
    """
    steps = counts.units * counts.intervals * counts.steps
    return steps * state.time.size <= FEW


def _described(system: System, state: State, *_: Any, counts: Counts, **__: Any) -> str:
    steps = counts.units * counts.intervals * counts.steps
    many = f", {state.time.size} environments" if state.time.ndim else ""
    return f"{in_words('rollout', system)}{many}, {steps} steps"


@compiled(
    _described,
    compiler=partial(quickly, where=_is_short),
    static_argnames=("counts", "tile", "placed", "policy"),
)
def _rollout(
    system: System,
    state: State,
    controls: Any,
    course: Course | None,
    dt: Array,
    scheme: Scheme,
    record: Any,
    *,
    counts: Counts,
    tile: int,
    placed: NamedSharding | None,
    policy: Policy,
) -> tuple[State, Any, Any]:
    """All steps of all tiles, each device having its own.

    tile: environments of a tile, 0 for no tiles; placed: see `on_each_device`
    """
    if placed is None and tile in (0, *state.time.shape):
        return _run(system, state, controls, course, dt, scheme, record, counts, policy)
    # What has batch axes goes into the tiles: of a controller what it has for each environment.
    each = getattr(controls, "batched", None)
    arrays, function = (controls, None) if isinstance(controls, Control) else (None, controls)
    leaves, structure = jax.tree.flatten((system, state, arrays, each, course))
    axes = state.time.ndim
    ranks = [
        *system.topology.ranks,
        *jax.tree.leaves(STATE_RANKS),
        *([] if arrays is None else [r + 1 for r in control_ranks(arrays)]),
        *[jnp.ndim(x) - axes for x in jax.tree.leaves(each)],
        *([] if course is None else course.ranks(axes)),
    ]
    split = [x.ndim > r for x, r in zip(leaves, ranks, strict=True)]
    batched = [x for x, one in zip(leaves, split, strict=True) if one]
    shared = [x for x, one in zip(leaves, split, strict=True) if not one]
    shared = shared, function, dt, scheme, record

    def run(shared, batched):
        whole, function, dt, scheme, record = shared
        parts = iter(whole), iter(batched)
        leaves = [next(parts[one]) for one in split]
        system, state, arrays, each, course = jax.tree.unflatten(structure, leaves)
        if isinstance(function, Controller):
            function = replace(function, batched=each)
        controls = arrays if function is None else function
        return _run(system, state, controls, course, dt, scheme, record, counts, policy)

    return tiled(run, shared, batched, axes=axes, tile=tile, placed=placed)


def _run(
    system: System,
    state: State,
    controls: Any,
    course: Course | None,
    dt: Array,
    scheme: Scheme,
    record: Any,
    counts: Counts,
    policy: Policy,
) -> tuple[State, Any, Any]:
    """All steps of one tile: the state, the records, the memory of a controller."""
    batch = state.time.shape
    system, safe, cause = sanitized(system, state)
    mechanism = prepare(system, len(batch))
    by_function = controls is not None and not isinstance(controls, Control)
    kept = counts.kept

    @computed_again
    def advance(carry, control):
        return isolated_step(scheme, mechanism, safe, carry, control, dt, policy)

    def interval(carry, control):
        """Steps under one control."""
        moved, info, course = carry
        if by_function:
            seen, _ = measured(scheme, mechanism, safe, moved, None)
            control, course = control_of(controls, system, seen, course)
        else:
            control = Control() if control is None else expanded(control, len(batch))

        def one(carry, _):
            moved, info = advance(carry[0], control)
            return (moved, None if record is None else info), None

        (moved, info), _ = loop(one, (moved, info), None, counts.steps, kept[2])
        return (moved, info, course), None

    def recorded(moved, info):
        state, info = measured(scheme, mechanism, safe, moved, info)
        if record is None:
            return state
        if isinstance(record, Readout):
            return record(system, state, info)
        each = partial(map_trailing, lambda state, info: record(state, info), len(batch))
        return noted("record", state, each, state, info)

    def unit(carry, controls):
        """Intervals between two records."""
        carry, _ = loop(interval, carry, controls, counts.intervals, kept[1])
        # Computed again in reverse: what a record is made of is many times what a step starts from.
        return carry, jax.checkpoint(recorded, prevent_cse=False)(*carry[:2])

    info = None
    if record is not None:
        shapes = jax.eval_shape(lambda s: advance((s, cause), Control())[1], state)
        info = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    arrays = None
    if controls is not None and not by_function:
        shape = (counts.units, counts.intervals)
        arrays = jax.tree.map(
            lambda x: jnp.repeat(x, counts.repeats, axis=0).reshape(shape + x.shape[1:]), controls
        )
    # The time has no derivative by others, forces of the last step where the scheme remembers them.
    names = ["position", "quaternion", "velocity", "omega", "q"]
    names += ["row_forces"] if layout(system).remembers else []
    start = {name: getattr(state, name) for name in names}, info
    moving, info = varying(start, (mechanism, controls, course, dt, scheme))
    start = (replace(state, **moving), cause), info, course
    (moved, _, course), records = loop(unit, start, arrays, counts.units, kept[0])
    final, _ = measured(scheme, mechanism, safe, moved, None)
    memory = None if course is None else course.memory
    return final, records, memory


def _counts(
    steps: int | None,
    substeps: int,
    record_every: int,
    checkpoint: int | None,
    intervals: int | None,
    by_function: bool,
) -> Counts:
    """Division of the steps; ValueError where the counts do not fit each other."""
    steps, checkpoint = (
        None if value is None else read_count("rollout", name, value)
        for name, value in (("steps", steps), ("checkpoint", checkpoint))
    )
    substeps = read_count("rollout", "substeps", substeps)
    record_every = read_count("rollout", "record_every", record_every)
    if steps is None:
        if intervals is None:
            raise ValueError("rollout: give steps, or controls with a time axis")
        steps = intervals * substeps
    if intervals is not None and intervals * substeps != steps:
        raise ValueError(
            f"rollout: controls have {intervals} entries of {substeps} substeps, which is "
            f"{intervals * substeps} steps, not steps={steps}"
        )
    if steps % record_every or steps % substeps:
        raise ValueError(
            f"rollout: steps {steps} must be a multiple of record_every {record_every} and of "
            f"substeps {substeps}"
        )
    if record_every % substeps == 0:
        per_unit, held, repeats = record_every // substeps, substeps, 1
    elif substeps % record_every == 0 and not by_function:
        per_unit, held, repeats = 1, record_every, substeps // record_every
    else:
        raise ValueError(
            f"rollout: record_every {record_every} must be a multiple of substeps {substeps}"
            + ("" if by_function else " or divide it")
        )
    kept = [0, 0, 0]
    if checkpoint is not None:
        # The longest loop's items that fit between two states that are kept.
        lengths = record_every, held, 1
        divided = next(i for i, length in enumerate(lengths) if length <= checkpoint)
        kept[divided] = checkpoint // lengths[divided]
    return Counts(steps // record_every, per_unit, held, repeats, tuple(kept))


def _intervals(controls: Control) -> int:
    """Length of the time axis in front of the arrays of a control."""
    lengths = {
        name: x.shape[0] for name in CONTROL_RANKS if (x := getattr(controls, name)) is not None
    }
    if not lengths:
        raise ValueError("rollout: the controls are empty; pass None instead")
    if len(set(lengths.values())) > 1:
        raise ValueError(f"rollout: the time axes of the controls differ: {lengths}")
    return next(iter(lengths.values()))
