"""Loops over time of which reverse differentiation keeps few states."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..algebra.compiler import scan


def varying(carry: Any, others: Any) -> Any:
    """`carry` as the start of a loop whose steps depend on `others` too; the same numbers.

    JAX traces a loop twice where the derivative of its carry is absent before the first step and
    present after it. So numbers of the carry become a choice between a sum of `others`, which is
    never taken, and themselves: their derivatives by `others` are zeros that are present.
    """

    def numbers(tree):
        return [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]

    kinds = {x.dtype for x in numbers(carry)}
    # XLA leaves out what is never chosen.
    some = {
        kind: sum((x.sum().astype(kind) for x in numbers(others)), jnp.zeros((), kind))
        for kind in kinds
    }
    return jax.tree.map(
        lambda x: jnp.where(False, some[x.dtype], x) if x.dtype in some else x, carry
    )


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
