"""Loops over time of which reverse differentiation keeps few states."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.compiler import SYMBOLIC_ZEROS, SymbolicZero, scan


@jax.custom_jvp
def varying(carry: Any, others: Any) -> Any:
    """`carry` as the start of a loop whose steps depend on `others` too.

    Its derivatives by `others` are arrays of zeros. Where the derivative of a carry is absent
    before the first step and present after it, JAX traces the loop once more.
    """
    return carry


def _varying_jvp(primals: tuple, tangents: tuple) -> tuple:
    carry, _ = primals
    slopes, of_others = (jax.tree.leaves(x) for x in tangents)
    present = [x for x in of_others if not _absent(x)]
    if not present:
        return carry, tangents[0]
    one = present[0].ravel()[:1].sum()

    def with_zero(x: Array, slope: Any) -> Any:
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            return slope
        # Zero times `one` may be NaN.
        zero = jnp.where(False, one, jnp.zeros_like(one)).astype(x.dtype)
        zero = jnp.broadcast_to(zero, x.shape)
        return zero if _absent(slope) else slope + zero

    leaves, structure = jax.tree.flatten(carry)
    return carry, structure.unflatten(map(with_zero, leaves, slopes))


def _absent(slope: Any) -> bool:
    """Whether a tangent is no array of numbers; integers have tangents of the type float0."""
    return isinstance(slope, SymbolicZero) or slope.dtype == jax.dtypes.float0


varying.defjvp(_varying_jvp, symbolic_zeros=SYMBOLIC_ZEROS)


def loop(function: Callable, carry: Any, xs: Any, length: int, kept: int) -> tuple[Any, Any]:
    """`scan`, of which reverse differentiation keeps one carry for each segment of at most `kept`
    items, and computes the others again; 0 keeps all.

    Segments are equally long, so that `function` is compiled once. What the last segment has beyond
    `length` is not computed.
    """
    if not kept:
        return scan(function, carry, xs, length)
    segments = -(-length // kept)
    size = -(-length // segments)
    padded = segments * size

    def item(carry, numbered):
        number, x = numbered
        results = jax.eval_shape(function, carry, x)[1]

        def left_out(carry, _):
            return carry, jax.tree.map(lambda y: jnp.zeros(y.shape, y.dtype), results)

        return jax.lax.cond(number < length, function, left_out, carry, x)

    def divided(x):
        if padded > length:
            x = jnp.concatenate([x, jnp.broadcast_to(x[-1:], (padded - length, *x.shape[1:]))])
        return x.reshape((segments, size, *x.shape[1:]))

    one, xs = function, jax.tree.map(divided, xs)
    if padded > length:
        one, xs = item, (jnp.arange(padded).reshape(segments, size), xs)

    @jax.checkpoint
    def segment(carry, xs):
        return scan(one, carry, xs, size)

    carry, ys = scan(segment, carry, xs, segments)
    return carry, jax.tree.map(lambda y: y.reshape((padded, *y.shape[2:]))[:length], ys)
