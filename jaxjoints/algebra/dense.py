"""Algebra of many small dense matrices, components first, everything else trailing.

A matrix is an array (r, c, *trailing), a vector (r, *trailing); r and c are at most about six and
read off the shapes, and every operation is elementwise in the trailing axes, whatever they stand
for. The trailing axes of two operands agree or broadcast, one item against many.
"""

from functools import reduce
from operator import add

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .compiler import once, spread


@once
def product(A: Array, B: Array) -> Array:
    """A B: (r, k, *trailing) and (k, c, *trailing) to (r, c, *trailing)."""
    return _sum_of_outer(jnp.unstack(A, axis=1), jnp.unstack(B))


@once
def product_transposed(A: Array, B: Array) -> Array:
    """A Bᵀ: (r, k, *trailing) and (c, k, *trailing) to (r, c, *trailing)."""
    return _sum_of_outer(jnp.unstack(A, axis=1), jnp.unstack(B, axis=1))


@once
def transposed_product(A: Array, B: Array) -> Array:
    """Aᵀ B: (k, r, *trailing) and (k, c, *trailing) to (r, c, *trailing)."""
    return _sum_of_outer(jnp.unstack(A), jnp.unstack(B))


@once
def multiply(A: Array, x: Array) -> Array:
    """A x: (r, c, *trailing) and (c, *trailing) to (r, *trailing)."""
    if not A.shape[1]:
        return jnp.zeros((A.shape[0], *jnp.broadcast_shapes(A.shape[2:], x.shape[1:])), A.dtype)
    return _sum_of_multiples(jnp.unstack(A, axis=1), jnp.unstack(x))


@once
def multiply_transposed(A: Array, x: Array) -> Array:
    """Aᵀ x: (r, c, *trailing) and (r, *trailing) to (c, *trailing)."""
    if not A.shape[0]:
        return jnp.zeros((A.shape[1], *jnp.broadcast_shapes(A.shape[2:], x.shape[1:])), A.dtype)
    return _sum_of_multiples(jnp.unstack(A), jnp.unstack(x))


@once
def cholesky_inverse(A: Array, size: Array | None = None) -> Array:
    """L⁻¹ of A = L Lᵀ, symmetric positive definite, so that A⁻¹ = L⁻ᵀ L⁻¹.

    A: shape (r, r, *trailing), of which the lower triangle is read
    size: size of the numbers from which the diagonal of A was computed, shape (r, *trailing); by
        default the diagonal. A row whose pivot is below the rounding of its size depends on the
        rows before it, or is 0: its row and column of L⁻¹ are 0, and so is its unknown.

    Returns: lower triangular, shape (r, r, *trailing)
    """
    r = A.shape[0]
    columns, reciprocals = _cholesky(A, size)
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


def _cholesky(A: Array, size: Array | None) -> tuple[list[Array], list[Array]]:
    """Columns of L from the diagonal on, and the reciprocals of their first entries, (1, …)."""
    # Whole columns of L, then whole rows of L⁻¹: faster than entry by entry, and far faster than an
    # elimination that updates the rest of the matrix.
    columns: list[Array] = []
    reciprocals: list[Array] = []
    for j in range(A.shape[0]):
        column = A[j:, j]
        for k, earlier in enumerate(columns):
            column = column - earlier[j - k :] * earlier[j - k][None]
        # Protects from the pivots of redundant rows, which are rounding of either sign: divided by
        # them, the nodes that they are coupled to would be noise or NaN.
        least = jnp.finfo(A.dtype).eps * jnp.abs(A[j, j] if size is None else size[j])
        pivot = column[0]
        redundant = pivot <= least
        # A pivot of 0 must not reach the root, whose derivative there is infinite.
        reciprocal = lax.rsqrt(lax.select(redundant, jnp.ones_like(pivot), pivot))
        reciprocals.append(lax.select(redundant, jnp.zeros_like(pivot), reciprocal)[None])
        columns.append(column * reciprocals[j])
    return columns, reciprocals


@once
def inverse_of_three(A: Array) -> Array:
    """A⁻¹ of well-conditioned matrices of three rows, such as inertias, shape (3, 3, *trailing).

    Cofactors over the determinant and one Newton–Schulz step, as `inverse` takes it, which is
    eight times as much code.
    """
    # Protects the determinant, and its square in a derivative, from numbers whose cubes and sixth
    # powers float32 does not have: 1e-7 kg m² is that of a gram on a centimetre.
    size = lax.stop_gradient(jnp.max(jnp.abs(A), axis=(0, 1)))[None, None]
    A = A / size
    turned, again = jnp.roll(A, -1, axis=0), jnp.roll(A, -2, axis=0)
    cofactors = jnp.roll(turned, -1, axis=1) * jnp.roll(again, -2, axis=1) - jnp.roll(
        turned, -2, axis=1
    ) * jnp.roll(again, -1, axis=1)
    determinant = jnp.sum(A[0] * cofactors[0], axis=0)[None, None]
    X = jnp.swapaxes(cofactors / determinant, 0, 1)
    unit = jnp.eye(3, dtype=A.dtype).reshape(3, 3, *(1,) * (A.ndim - 2))
    return product(X, 2 * unit - product(A, X)) / size


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
    least = _least_pivot(A)
    used = jnp.zeros(A.shape[:1] + A.shape[2:], bool)
    rows = []
    for k in range(r):
        chosen, row = _pivot_row(M, used, index, least, k)
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


def _least_pivot(A: Array) -> Array:
    """Protects the division from singular matrices, relative to their size."""
    information = jnp.finfo(A.dtype)
    # Entry by entry: XLA does not vectorize a kernel that both computes and reduces.
    size = reduce(jnp.maximum, map(jnp.abs, A.reshape(-1, *A.shape[2:])))[None]
    return jnp.maximum(information.eps * size, information.tiny**0.5)


def _pivot_row(M: Array, used: Array, index: Array, least: Array, k: int) -> tuple[Array, Array]:
    """Which row that is not used is largest in column k, and that row over its pivot."""
    # Masks choose the row, so that every matrix of the batch does the same work.
    candidates = jnp.where(used, -1.0, jnp.abs(M[:, k]))
    chosen = index == jnp.argmax(candidates, axis=0)[None]
    row = jnp.sum(jnp.where(chosen[:, None], M, 0), axis=0)
    pivot = row[k][None]
    pivot = jnp.where(jnp.abs(pivot) > least, pivot, jnp.where(pivot < 0, -least, least))
    return chosen, row / pivot


def _sum_of_outer(left: tuple[Array, ...], right: tuple[Array, ...]) -> Array:
    """Σ aₖ bₖᵀ of vectors."""
    pairs = zip(left, right, strict=True)
    return reduce(add, (spread(a, 1, len(b)) * spread(b, 0, len(a)) for a, b in pairs))


def _sum_of_multiples(vectors: tuple[Array, ...], factors: tuple[Array, ...]) -> Array:
    """Σ aₖ bₖ of vectors and numbers."""
    pairs = zip(vectors, factors, strict=True)
    return reduce(add, (a * spread(b, 0, len(a)) for a, b in pairs))
