"""Batch axes of a call: the last axes of arrays in a system, a state and a control."""

from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from ..algebra.compiler import is_traced, quickly, traces_constants
from ..algebra.devices import on_each_device, placement
from ..algebra.options import brief
from ..algebra.progress import compiled
from .state import STATE_RANKS, Control, State, check_one_time, control_ranks
from .system import System
from .table import in_words

Function = TypeVar("Function", bound=Callable)


def batch_shape(system: System, state: State, control: Control | None) -> tuple[int, ...]:
    """The batch axes of a call; () for a single environment.

    The axes of an array beyond its declared rank are batch axes. An array has all batch axes of the
    call, or none and is shared by all environments.

    Raises: ValueError for an array with fewer axes than declared, and for batch axes that differ.
    """
    shapes = []
    for leaf, rank in _leaves_and_ranks(system, state, control):
        if jnp.ndim(leaf) < rank:
            raise ValueError(f"an array of shape {jnp.shape(leaf)} should have {rank} axes or more")
        if jnp.ndim(leaf) > rank:
            shapes.append(jnp.shape(leaf)[rank:])
    batch = shapes[0] if shapes else ()
    for shape in shapes:
        if shape != batch:
            raise ValueError(
                f"batch axes {shape} and {batch} differ: every array is shared (no batch axes) or "
                "carries all of them at the end"
            )
    return batch


def check_records(call: str, system: Any, state: Any) -> None:
    """Raise ValueError for arguments of other types than System and State, and for states of many
    times at once.

    call: name of the function, for errors
    """
    if isinstance(system, State) and isinstance(state, System):
        raise ValueError(f"{call}: system and state are exchanged; call {call}(system, state, …)")
    for name, value, kind in (("system", system, System), ("state", state, State)):
        if isinstance(value, kind):
            continue
        hint = "`build` makes the first one"
        if isinstance(value, tuple) and any(isinstance(x, kind) for x in value):
            source = "build" if any(isinstance(x, System) for x in value) else "step and rollout"
            hint = f"{source} return several things: take this {kind.__name__} out of the tuple"
        raise ValueError(f"{call}: {name} {brief(value)} must be a {kind.__name__}; {hint}")
    check_one_time(call, state)


def read_out(function: Function) -> Function:
    """A function of (system, state, …) as one compiled program, of which each device computes the
    environments that it holds; see `on_each_device`.

    Both may hold NumPy arrays, as the results of searches do. What it takes by keyword are options,
    which shape the program; every leaf of its result has the batch axes at its end. Inside of a
    user's `jit` it is part of that program.
    """

    @wraps(function)
    def compiled(system: System, state: State, **options: Any) -> Any:
        check_records(function.__name__, system, state)
        system, state = jax.tree.map(_on_device, (system, state))
        placed = placement(jax.tree.leaves(state), len(batch_shape(system, state, None)))
        if placed is None and (is_traced((system, state)) or traces_constants()):
            return function(system, state, **options)
        return _read_out(function, placed, tuple(options.items()), system, state)

    return compiled


def is_single(system: System, state: State, *others: Any, **static: Any) -> bool:
    """Whether there is one environment: its programs are quick, however they are compiled."""
    return state.time.size == 1


def _on_device(leaf: Any) -> jax.Array:
    return leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)


@compiled(
    lambda function, *given: in_words(function.__name__.strip("_").replace("_", " "), given[2]),
    compiler=quickly,
    static_argnums=(0, 1, 2),
)
def _read_out(
    function: Callable,
    placed: NamedSharding | None,
    options: tuple[tuple[str, Any], ...],
    system: System,
    state: State,
) -> Any:
    ranks = [*system.topology.ranks, *jax.tree.leaves(STATE_RANKS)]
    return on_each_device(partial(function, **dict(options)), placed, ranks, system, state)


def _leaves_and_ranks(
    system: System, state: State, control: Control | None
) -> Iterator[tuple[Any, int]]:
    """Every array of a call with its declared rank: its number of axes without batch axes."""
    yield from zip(jax.tree.leaves(system), system.topology.ranks, strict=True)
    yield from zip(jax.tree.leaves(state), jax.tree.leaves(STATE_RANKS), strict=True)
    if control is not None:
        yield from zip(jax.tree.leaves(control), control_ranks(control), strict=True)
