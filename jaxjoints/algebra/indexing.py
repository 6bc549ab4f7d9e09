"""Gather and scatter-add along one axis with constant indices."""

from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .compiler import materialize

# A scatter-add is made of at most ROUNDS gathers. Each serves all indices of the result and pays
# while at least one in WASTE of them receives a value. The values that are left are scattered, so
# that the size of the program does not grow with their number.
ROUNDS = 3
WASTE = 4


def take(x: Array, index: np.ndarray, axis: int) -> Array:
    """Items of an axis with constant indices; a contiguous range is a slice."""
    start, stop = int(index[0]), int(index[-1]) + 1
    if np.array_equal(index, np.arange(start, stop)):
        return lax.slice_in_dim(x, start, stop, axis=axis)
    return x.at[(slice(None),) * axis + (index,)].get(mode="promise_in_bounds")


def add_at(x: Array, index: np.ndarray, values: Array, axis: int) -> Array:
    """x with values added at constant indices, which may repeat; batch axes broadcast."""
    batch = jnp.broadcast_shapes(x.shape[axis + 1 :], values.shape[axis + 1 :])
    x = jnp.broadcast_to(x, (*x.shape[: axis + 1], *batch))
    # Gathered: XLA's scatter on CPUs takes seven times as long.
    rounds, rest = _rounds(tuple(map(int, index)), x.shape[axis])
    values = materialize(values)
    for sources, filled in rounds:
        part = take(values, np.array(sources), axis)
        if not all(filled):
            mask = np.array(filled).reshape((-1,) + (1,) * (x.ndim - axis - 1))
            part = jnp.where(mask, part, 0)
        x = x + part
    if rest:
        target = (slice(None),) * axis + (index[np.array(rest)],)
        x = x.at[target].add(take(values, np.array(rest), axis), mode="promise_in_bounds")
    return x


@lru_cache(maxsize=1024)
def _rounds(index: tuple[int, ...], size: int) -> tuple[list, list[int]]:
    """Rounds of a scatter-add to `size` items, each of at most one value for an item.

    Returns: for each round the number of the value for each item, and whether there is one; the
        numbers of the values in no round
    """
    waiting: list[list[int]] = [[] for _ in range(size)]
    for value, item in enumerate(index):
        waiting[item].append(value)
    rounds = []
    while len(rounds) < ROUNDS and 0 < size <= WASTE * sum(map(bool, waiting)):
        rounds.append(([x[0] if x else 0 for x in waiting], [bool(x) for x in waiting]))
        waiting = [x[1:] for x in waiting]
    return rounds, sorted(value for x in waiting for value in x)
