"""Algebra of many small dense matrices, components first, everything else trailing.

A matrix is an array (r, c, *trailing), a vector (r, *trailing); r and c are at most about six and
read off the shapes, and every operation is elementwise in the trailing axes, whatever they stand
for. The trailing axes of two operands agree or broadcast, one item against many.
"""

from collections.abc import Callable
from functools import partial, reduce
from operator import add
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
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


def product(A: Array, B: Array) -> Array:
    """A B: (r, k, *trailing) and (k, c, *trailing) to (r, c, *trailing)."""
    return _sum_of_outer(jnp.unstack(A, axis=1), jnp.unstack(B))


def product_transposed(A: Array, B: Array) -> Array:
    """A Bᵀ: (r, k, *trailing) and (c, k, *trailing) to (r, c, *trailing)."""
    return _sum_of_outer(jnp.unstack(A, axis=1), jnp.unstack(B, axis=1))


def transposed_product(A: Array, B: Array) -> Array:
    """Aᵀ B: (k, r, *trailing) and (k, c, *trailing) to (r, c, *trailing)."""
    return _sum_of_outer(jnp.unstack(A), jnp.unstack(B))


def multiply(A: Array, x: Array) -> Array:
    """A x: (r, c, *trailing) and (c, *trailing) to (r, *trailing)."""
    return _sum_of_multiples(jnp.unstack(A, axis=1), jnp.unstack(x))


def multiply_transposed(A: Array, x: Array) -> Array:
    """Aᵀ x: (r, c, *trailing) and (r, *trailing) to (c, *trailing)."""
    return _sum_of_multiples(jnp.unstack(A), jnp.unstack(x))


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


def cholesky_inverse(A: Array, size: Array | None = None) -> Array:
    """L⁻¹ of A = L Lᵀ, symmetric positive definite, so that A⁻¹ = L⁻ᵀ L⁻¹.

    A: shape (r, r, *trailing), of which the lower triangle is read
    size: of the numbers whose difference the diagonal of A is, shape (r, *trailing); by default the
        diagonal. A row whose pivot is below the rounding of its size depends on the rows before it,
        or has nothing in it: its row and column of L⁻¹ are 0, and so is its unknown.

    Returns: lower triangular, shape (r, r, *trailing)
    """
    # Whole columns of L, then whole rows of L⁻¹: faster than entry by entry, and far faster than an
    # elimination that updates the rest of the matrix.
    r = A.shape[0]
    columns: list[Array] = []
    reciprocals: list[Array] = []
    for j in range(r):
        column = A[j:, j]
        for k, earlier in enumerate(columns):
            column = column - earlier[j - k :] * earlier[j - k][None]
        # Protects from the pivots of redundant rows, which are rounding of either sign: divided by
        # them, the nodes that they are coupled to would be noise or NaN.
        least = jnp.finfo(A.dtype).eps * jnp.abs(A[j, j] if size is None else size[j])
        pivot = column[0]
        reciprocal = lax.rsqrt(jnp.maximum(pivot, least))
        reciprocals.append(lax.select(pivot <= least, jnp.zeros_like(pivot), reciprocal)[None])
        columns.append(column * reciprocals[j])
    rows: list[Array] = []
    for i in range(r):
        row = reciprocals[i]
        if i:
            # Row i of L X = 1, from the rows of X above it.
            total = sum(columns[k][i - k][None] * rows[k] for k in range(i))
            row = jnp.concatenate([-total[:i] * row, row])
        ends = [(0, r - i - 1, 0)] + [(0, 0, 0)] * (A.ndim - 2)
        rows.append(lax.pad(row, np.zeros((), A.dtype), ends))
    return jnp.stack(rows)


def inverse_of_three(A: Array) -> Array:
    """A⁻¹ of well-conditioned matrices of three rows, such as inertias, shape (3, 3, *trailing).

    Cofactors over the determinant and one Newton–Schulz step, as `inverse` takes it, which is
    eight times as much code.
    """
    turned, again = jnp.roll(A, -1, axis=0), jnp.roll(A, -2, axis=0)
    cofactors = jnp.roll(turned, -1, axis=1) * jnp.roll(again, -2, axis=1) - jnp.roll(
        turned, -2, axis=1
    ) * jnp.roll(again, -1, axis=1)
    determinant = jnp.sum(A[0] * cofactors[0], axis=0)[None, None]
    X = jnp.swapaxes(cofactors / determinant, 0, 1)
    unit = jnp.eye(3, dtype=A.dtype).reshape(3, 3, *(1,) * (A.ndim - 2))
    return product(X, 2 * unit - product(A, X))


@jax.custom_jvp
def inverse(A: Array) -> Array:
    """A⁻¹ of general square matrices, shape (r, r, *trailing); derivatives of any order.

    Gauss–Jordan elimination with partial pivoting and one Newton–Schulz step X (2 - A X), which
    leaves the rounding of a product. A singular matrix gives large finite numbers.
    """
    r = A.shape[0]
    trailing = (1,) * (A.ndim - 2)
    index = jnp.arange(r).reshape(r, *trailing)
    unit = jnp.broadcast_to(jnp.eye(r, dtype=A.dtype).reshape(r, r, *trailing), A.shape)
    M = jnp.concatenate([A, unit], axis=1)
    # Protects the division from singular matrices, relative to their size.
    information = jnp.finfo(A.dtype)
    size = jnp.max(jnp.abs(A), axis=(0, 1))[None]
    least = jnp.maximum(information.eps * size, information.tiny**0.5)
    used = jnp.zeros(A.shape[:1] + A.shape[2:], bool)
    rows = []
    for k in range(r):
        # Masks choose the pivot's row, so that every matrix of the batch does the same work.
        candidates = jnp.where(used, -1.0, jnp.abs(M[:, k]))
        chosen = index == jnp.argmax(candidates, axis=0)[None]
        row = jnp.sum(jnp.where(chosen[:, None], M, 0), axis=0)
        pivot = row[k][None]
        pivot = jnp.where(jnp.abs(pivot) > least, pivot, jnp.where(pivot < 0, -least, least))
        row = row / pivot
        M = jnp.where(chosen[:, None], row[None], M - M[:, k][:, None] * row[None])
        used = used | chosen
        rows.append(chosen)
    X = jnp.stack([jnp.sum(jnp.where(chosen[:, None], M[:, r:], 0), axis=0) for chosen in rows])
    return product(X, 2 * unit - product(A, X))


@inverse.defjvp
def _inverse_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """d(A⁻¹) = -A⁻¹ dA A⁻¹, through `inverse` itself and hence differentiable again."""
    (A,), (dA,) = primals, tangents
    X = inverse(A)
    return X, -product(product(X, dA), X)


# Taken apart at once, components come together at once in reverse differentiation (see `rotation`).


def _sum_of_outer(left: tuple[Array, ...], right: tuple[Array, ...]) -> Array:
    """Σ aₖ bₖᵀ of vectors."""
    pairs = zip(left, right, strict=True)
    return reduce(add, (spread(a, 1, len(b)) * spread(b, 0, len(a)) for a, b in pairs))


def _sum_of_multiples(vectors: tuple[Array, ...], factors: tuple[Array, ...]) -> Array:
    """Σ aₖ bₖ of vectors and numbers."""
    pairs = zip(vectors, factors, strict=True)
    return reduce(add, (a * spread(b, 0, len(a)) for a, b in pairs))
