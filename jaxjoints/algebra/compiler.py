"""Ways around what XLA does badly: what is stored, and how slopes and sums are taken."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental.xla_metadata import set_xla_metadata

T = TypeVar("T")


def stored(function: Callable) -> Callable:
    """`function` of arrays, computed in its own right on CPUs, its result put into memory.

    XLA on CPUs fuses a product into whatever reads it and computes its elements anew for each of
    the elements that need them: six times for a product of products, ten times for a
    factorization; in a chain of small algebra, work and compile time multiply from link to link.
    It drops an optimization barrier before it does so (jaxlib 0.10); a call that is not inlined
    prevents it. Batching and differentiation pass through. On other devices it is `function`.
    """
    inner = jax.jit(function)

    def inlined(*arrays: Array) -> Array:
        # The mark of the call is not for calls within it: `jnp.where` is one, and would keep apart
        # what belongs together. And what has the same marks is traced once, for all devices.
        with set_xla_metadata(inlineable="true"):
            return inner(*arrays)

    inlined.__name__ = getattr(function, "__name__", "stored")
    call = jax.jit(inlined)

    def apart(*arrays: Array) -> Array:
        with set_xla_metadata(inlineable="false"):
            return call(*arrays)

    def chosen(*arrays: Array) -> Array:
        return lax.platform_dependent(*arrays, cpu=apart, default=inlined)

    return chosen


def materialize(tree: T) -> T:
    """The same arrays and their cotangents, each computed once and `stored`, whatever reads it.

    What a batch shares, its last axis 1, is left as it is: XLA computes it once before the loop,
    but no call.
    """
    leaves, structure = jax.tree.flatten(tree)
    batch = max((x.shape[-1] for x in leaves if x.ndim), default=1)
    own = [not x.ndim or batch == 1 or x.shape[-1] > 1 for x in leaves]
    kept = iter(_times_one_stored(*(x for x, one in zip(leaves, own, strict=True) if one)))
    leaves = [next(kept) if one else x for x, one in zip(leaves, own, strict=True)]
    return jax.tree.unflatten(structure, leaves)


def _times_one(*arrays: Array) -> list[Array]:
    """The same arrays by a product, of which the reverse derivative is one too: what hands on its
    arguments would be left out there.
    """
    return [x * 1 if jnp.issubdtype(x.dtype, jnp.inexact) else x for x in arrays]


_times_one_stored = stored(_times_one)


def elementwise(function: Callable) -> Callable:
    """`function` of arrays of one shape, item by item, `stored`, whose derivative keeps its slopes
    alone, computed with the value.

    Otherwise reverse differentiation keeps every intermediate result, an array each, and walks back
    through all of them.
    """

    def with_slopes(*arrays: Array) -> tuple:
        slopes = []
        for i, x in enumerate(arrays):
            along = lambda y, i=i: function(*arrays[:i], y, *arrays[i + 1 :])  # noqa: E731
            value, slope = jax.jvp(along, (x,), (jnp.ones_like(x),))
            slopes.append(slope)
        return value, slopes

    call = jax.custom_jvp(stored(function))

    @call.defjvp
    def rule(primals: tuple, tangents: tuple) -> tuple:
        value, slopes = stored(with_slopes)(*primals)
        changes = [
            jax.tree.map(partial(jnp.multiply, tangent), slope)
            for slope, tangent in zip(slopes, tangents, strict=True)
        ]
        return value, jax.tree.map(lambda first, *rest: sum(rest, first), *changes)

    return call


def spread(x: Array, axis: int, count: int) -> Array:
    """x, `count` times along a new axis, which reverse differentiation adds up slice by slice.

    It would reduce what was broadcast, and XLA on CPUs reduces few items slowly.
    """
    once = jnp.expand_dims(x, axis)
    # No copy at all has nothing to put together.
    return lax.concatenate([once] * count, axis) if count else jnp.repeat(once, 0, axis)


def largest(x: Array, axes: int) -> Array:
    """Largest item over the leading axes.

    By halves: with few trailing items a reduction of XLA on CPUs takes as long as a factorization.
    """
    x = x.reshape((-1, *x.shape[axes:]))
    while (n := x.shape[0]) > 1:
        half = (n + 1) // 2
        # The two halves overlap where n is odd.
        x = jnp.maximum(x[:half], x[n - half :])
    return x[0]
