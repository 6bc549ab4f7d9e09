"""Items of arrays at constant places along one axis."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .compiler import on_gpu

# Ranges of places up to which they are slices; beyond, programs would grow with them. XLA on CPUs
# makes one loop of a concatenation of so many parts (jaxlib 0.10).
MOST_RANGES = 8

# Values of one place up to which a GPU looks them up.
MOST_TURNS = 8


def take(x: Array, index: np.ndarray, axis: int) -> Array:
    """Items at constant places."""
    if not len(index):
        return lax.slice_in_dim(x, 0, 0, axis=axis)
    runs = _runs(index)
    if len(runs) > MOST_RANGES:
        return x.at[(slice(None),) * axis + (index,)].get(mode="promise_in_bounds")
    parts = []
    for first, step, count in runs:
        part = lax.slice_in_dim(x, first, first + (count - 1) * step + 1, axis=axis)
        # Of one item many times, such as the world, XLA sees what it is and who does not need it.
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        parts.append(part if step else jnp.broadcast_to(part, shape))
    return parts[0] if len(parts) == 1 else lax.concatenate(parts, axis)


def _runs(index: np.ndarray) -> list[tuple[int, int, int]]:
    """Places as runs of consecutive or of equal ones: first place, step (1 or 0), how many."""
    runs, at = [], 0
    while at < len(index):
        step = int(not (at + 1 < len(index) and index[at + 1] == index[at]))
        end = at + 1
        while end < len(index) and index[end] - index[end - 1] == step:
            end += 1
        runs.append((int(index[at]), step, end - at))
        at = end
    return runs


def looked_up(x: Array, index: np.ndarray, shape: tuple[int, ...]) -> Array:
    """Items of x at constant places, reshaped to `shape`; 0 for the place -1.

    index: places in x with its first axes flattened, as many axes as `shape` has
    """
    flat = x.reshape(-1, *x.shape[len(shape) :])
    if not len(flat):
        return jnp.zeros((*shape, *x.shape[len(shape) :]), x.dtype)
    flat = jnp.concatenate([flat, jnp.zeros_like(flat[:1])])
    return take(flat, index.ravel() % len(flat), 0).reshape(*shape, *x.shape[len(shape) :])


def spread(x: Array, index: np.ndarray, count: int) -> Array:
    """Items of x at constant places of `count`, and 0 at other places; along the first axis.

    index: places, in ascending order
    """
    if len(index) == count:
        return x
    ends = np.flatnonzero(np.diff(index) != 1) + 1
    if len(ends) >= MOST_RANGES:
        places = np.full(count, -1)
        places[index] = np.arange(len(index))
        return looked_up(x, places, (count,))
    parts, end = [], 0
    for run in np.split(np.arange(len(index)), ends) if len(index) else []:
        first, last = int(index[run[0]]), int(index[run[-1]])
        parts += [_zeros(x, first - end), lax.slice_in_dim(x, int(run[0]), int(run[-1]) + 1)]
        end = last + 1
    parts = [part for part in [*parts, _zeros(x, count - end)] if len(part)]
    return parts[0] if len(parts) == 1 else lax.concatenate(parts, 0)


def replaced(x: Array, index: np.ndarray, values: Array) -> Array:
    """x with values in place of its items at constant places, along the first axis.

    index: places, each at most once
    """
    if not len(index):
        return x
    which = np.arange(len(x)) - len(x)
    which[index] = np.arange(len(index))
    ends = np.flatnonzero(np.diff(which) != 1) + 1
    if len(ends) >= MOST_RANGES:
        taken = values.at[np.maximum(which, 0)].get(mode="promise_in_bounds")
        mask = (which < 0).reshape(-1, *(1,) * (x.ndim - 1))
        return jnp.where(mask, x, taken)
    parts = []
    for run in np.split(which, ends):
        first, count = int(run[0]), len(run)
        source = x if first < 0 else values
        first += len(x) if first < 0 else 0
        parts.append(lax.slice_in_dim(source, first, first + count))
    return parts[0] if len(parts) == 1 else lax.concatenate(parts, 0)


def _zeros(x: Array, count: int) -> Array:
    return jnp.zeros((count, *x.shape[1:]), x.dtype)


def add_at(x: Array, index: np.ndarray, values: Array, axis: int) -> Array:
    """x with values added at constant places, which may repeat; batches of one are spread.

    On a GPU each place looks up its values, which XLA fuses with what makes them and what reads
    the sum: a scatter would be a kernel of its own. Where a place has more than `MOST_TURNS`
    values it stays a scatter, which adds them in any order: the sum may then differ by rounding
    from run to run, unless XLA is told `--xla_gpu_deterministic_ops`.
    """
    batch = jnp.broadcast_shapes(x.shape[axis + 1 :], values.shape[axis + 1 :])
    x = jnp.broadcast_to(x, (*x.shape[: axis + 1], *batch))
    if on_gpu() and np.bincount(index, minlength=1).max() <= MOST_TURNS:
        return _added_by_turns(x, index, values, axis)
    place = x.at[(slice(None),) * axis + (index,)]
    once = len(np.unique(index)) == len(index)
    return place.add(values, mode="promise_in_bounds", unique_indices=once)


def _added_by_turns(x: Array, index: np.ndarray, values: Array, axis: int) -> Array:
    """`add_at`, all first values of the places at once, then all second ones, and so on."""
    places, missing = x.shape[axis], len(index)
    rest = np.arange(len(index))
    while len(rest):
        _, first = np.unique(index[rest], return_index=True)
        at = np.full(places, missing)
        at[index[rest[first]]] = rest[first]
        own = values.at[(slice(None),) * axis + (at,)].get(mode="fill", fill_value=0)
        x = x + own
        rest = np.delete(rest, first)
    return x
