"""Items at constant places of an axis: looked up, and added to."""

from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .compiler import materialize

# Rounds in which values are gathered where they are added, and places for each value up to which a
# round is no waste; what is left is scattered, so that code does not grow with it.
ROUNDS = 3
WASTE = 4


def take(x: Array, index: np.ndarray, axis: int) -> Array:
    """Items at constant places; a contiguous range is a slice."""
    start, stop = int(index[0]), int(index[-1]) + 1
    if np.array_equal(index, np.arange(start, stop)):
        return lax.slice_in_dim(x, start, stop, axis=axis)
    return x.at[(slice(None),) * axis + (index,)].get(mode="promise_in_bounds")


def add_at(x: Array, index: np.ndarray, values: Array, axis: int) -> Array:
    """x with values added at constant places, which may repeat; batches of one are spread."""
    batch = jnp.broadcast_shapes(x.shape[axis + 1 :], values.shape[axis + 1 :])
    x = jnp.broadcast_to(x, (*x.shape[: axis + 1], *batch))
    # Gathered: XLA's scatter on CPUs takes seven times as long.
    rounds, rest = _rounds(tuple(map(int, index)), x.shape[axis])
    values = materialize(values)
    for chosen, there in rounds:
        part = take(values, np.array(chosen), axis)
        if not all(there):
            mask = np.array(there).reshape((-1,) + (1,) * (x.ndim - axis - 1))
            part = jnp.where(mask, part, 0)
        x = x + part
    if rest:
        place = (slice(None),) * axis + (index[np.array(rest)],)
        x = x.at[place].add(take(values, np.array(rest), axis), mode="promise_in_bounds")
    return x


@lru_cache(maxsize=1024)
def _rounds(index: tuple[int, ...], size: int) -> tuple[list, list[int]]:
    """Values to add at `size` places: in rounds, of one for each place, where that is no waste.

    Returns: for each round the value for each place, and whether there is one; the values left
    """
    waiting: list[list[int]] = [[] for _ in range(size)]
    for value, place in enumerate(index):
        waiting[place].append(value)
    rounds = []
    while len(rounds) < ROUNDS and 0 < size <= WASTE * sum(map(bool, waiting)):
        rounds.append(([own[0] if own else 0 for own in waiting], [bool(own) for own in waiting]))
        waiting = [own[1:] for own in waiting]
    return rounds, sorted(value for own in waiting for value in own)
