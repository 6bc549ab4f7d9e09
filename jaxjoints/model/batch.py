"""Batch axes of a call: the last axes of arrays in a system, a state and a control."""

from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from ..algebra.devices import on_each_device, placement
from .state import STATE_RANKS, Control, State, control_ranks
from .system import System

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


def by_device(function: Function) -> Function:
    """A function of (system, state, …) whose devices each compute the environments that they hold,
    where the state is spread over several; see `on_each_device`.

    Both may hold NumPy arrays, as the results of searches do. What it takes by keyword are options;
    every leaf of its result has the batch axes at its end.
    """

    @wraps(function)
    def divided(system: System, state: State, **options: Any) -> Any:
        system, state = jax.tree.map(_on_device, (system, state))
        placed = placement(jax.tree.leaves(state), len(batch_shape(system, state, None)))
        if placed is None:
            return function(system, state, **options)
        return _divided(function, placed, tuple(options.items()), system, state)

    return divided


def _on_device(leaf: Any) -> jax.Array:
    return leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _divided(
    function: Callable,
    placed: NamedSharding,
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
