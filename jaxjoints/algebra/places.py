"""Items of arrays at places along one axis that are known when JAX traces."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


def take(x: Array, index: np.ndarray, axis: int) -> Array:
    """Items at constant places; a contiguous range is a slice."""
    start, stop = int(index[0]), int(index[-1]) + 1
    if np.array_equal(index, np.arange(start, stop)):
        return lax.slice_in_dim(x, start, stop, axis=axis)
    return x.at[(slice(None),) * axis + (index,)].get(mode="promise_in_bounds")


def add_at(x: Array, index: np.ndarray, values: Array, axis: int) -> Array:
    """x with values added at constant places, which may repeat; batches of one are spread.

    On a GPU, what is added at one place is added in any order, and may differ by rounding from run
    to run, unless the flag `--xla_gpu_deterministic_ops` of XLA is set.
    """
    batch = jnp.broadcast_shapes(x.shape[axis + 1 :], values.shape[axis + 1 :])
    x = jnp.broadcast_to(x, (*x.shape[: axis + 1], *batch))
    at = x.at[(*(slice(None),) * axis, index)]
    return at.add(
        values, mode="promise_in_bounds", unique_indices=len(set(index.tolist())) == len(index)
    )
