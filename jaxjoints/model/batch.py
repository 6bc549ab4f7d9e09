"""Batch axes: which of them a call has, from the rank of every leaf."""

import jax
import jax.numpy as jnp

from .state import STATE_RANKS, Control, State, control_ranks
from .system import System


def batch_shape(system: System, state: State, control: Control | None) -> tuple[int, ...]:
    """Batch axes of a call, from the rank of every leaf against its declared rank."""
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


def _leaves_and_ranks(system: System, state: State, control: Control | None):
    yield from zip(jax.tree.leaves(system), system.topology.ranks, strict=True)
    yield from zip(jax.tree.leaves(state), jax.tree.leaves(STATE_RANKS), strict=True)
    if control is not None:
        yield from zip(jax.tree.leaves(control), control_ranks(control), strict=True)
