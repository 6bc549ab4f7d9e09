"""Items of arrays at places along one axis that are known when JAX traces."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

# Ranges of places up to which they are slices; beyond, programs would grow with them. XLA on CPUs
# makes one loop of a concatenation of so many parts (jaxlib 0.10).
MOST_RANGES = 8


def take(x: Array, index: np.ndarray, axis: int) -> Array:
    """Items at constant places."""
    ranges = np.split(index, np.flatnonzero(np.diff(index) != 1) + 1)
    if len(ranges) > MOST_RANGES:
        return x.at[(slice(None),) * axis + (index,)].get(mode="promise_in_bounds")
    parts = [lax.slice_in_dim(x, int(r[0]), int(r[-1]) + 1, axis=axis) for r in ranges]
    return parts[0] if len(parts) == 1 else lax.concatenate(parts, axis)


def add_at(x: Array, index: np.ndarray, values: Array, axis: int) -> Array:
    """x with values added at constant places, which may repeat; batches of one are spread.

    On a GPU, several values are added at one place in any order, and the sum may differ by rounding
    from run to run, unless XLA is told `--xla_gpu_deterministic_ops`.
    """
    batch = jnp.broadcast_shapes(x.shape[axis + 1 :], values.shape[axis + 1 :])
    x = jnp.broadcast_to(x, (*x.shape[: axis + 1], *batch))
    place = x.at[(slice(None),) * axis + (index,)]
    once = len(np.unique(index)) == len(index)
    return place.add(values, mode="promise_in_bounds", unique_indices=once)
