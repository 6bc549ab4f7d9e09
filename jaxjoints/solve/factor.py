"""The sparse direct solver: block Cholesky of a matrix on a joint graph, level by level.

All pivots k of a level are factored at once, A_kk = L_k L_kᵀ, with V_ik = A_ik L_k⁻ᵀ for their
later neighbours i. Then A_ij - V_ik V_jkᵀ replaces A_ij for every pair of these neighbours. The
factorization is exact for any graph. In all arrays nodes stand in the plan's elimination order.
"""

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..algebra.compiler import stored
from ..algebra.dense import (
    cholesky_inverse,
    multiply,
    multiply_transposed,
    product_transposed,
)
from ..algebra.places import add_at, take
from ..algebra.pytree import struct
from .graph import Level, Plan

# Slots up to which edges are slices; with more slots they are gathered, or programs would grow.
UNROLLED_SLOTS = 3


@struct
class Blocks:
    """A symmetric matrix on the joint graph.

    diagonal: shape (r, r, nodes, *batch)
    edges: block of each edge and of its fill, rows of the later node, columns of the earlier, shape
        (r, r, edges, *batch)
    """

    diagonal: Array
    edges: Array


@struct
class Factor:
    """The factored matrix, one array per level.

    inverse: L_k⁻¹ of the pivots, (height, height, pivots, *batch)
    coupling: V_ik = A_ik L_k⁻ᵀ of the edges, (reach, height, edges, *batch)
    """

    inverse: tuple[Array, ...]
    coupling: tuple[Array, ...]


def scale(plan: Plan, blocks: Blocks, s: Array) -> Blocks:
    """S A S with S = diag(s), s of shape (r, nodes, *batch)."""
    edges = blocks.edges
    if len(plan.row):
        edges = edges * take(s, plan.row, 1)[:, None] * take(s, plan.column, 1)[None]
    return Blocks(diagonal=blocks.diagonal * s[:, None] * s[None], edges=edges)


def add_diagonal(plan: Plan, blocks: Blocks, d: Array) -> Blocks:
    """A + diag(d), d of shape (r, nodes, *batch)."""
    r = d.shape[0]
    unit = jnp.eye(r, dtype=d.dtype).reshape(r, r, *(1,) * (d.ndim - 1))
    return Blocks(diagonal=blocks.diagonal + unit * d[None], edges=blocks.edges)


def factor_scaled(plan: Plan, A: Blocks, extra: Array, root: Array | None) -> Factor:
    """Block Cholesky factor of S A S + diag(extra), S = diag(root).

    extra, root: shape (r, nodes, *batch); root None for S = 1
    """
    scaled = A if root is None else scale(plan, A, root)
    return factor(plan, add_diagonal(plan, scaled, extra))


def factor(plan: Plan, blocks: Blocks) -> Factor:
    """Block Cholesky factor of a positive definite matrix.

    Rows beyond a node's height must be rows of the identity; they are skipped. Rows that depend on
    others to within rounding get x = 0; the other rows are solved.
    """
    diagonal, edges = blocks.diagonal, blocks.edges
    size = jnp.stack([diagonal[i, i] for i in range(diagonal.shape[0])])
    inverses, couplings = [], []
    for level in plan.levels:
        inverse = stored(partial(_pivots, level))(diagonal, size)
        coupling = stored(partial(_coupling, level))(edges, inverse)
        diagonal = stored(partial(_update_diagonal, level))(diagonal, coupling)
        edges = stored(partial(_update_edges, level))(edges, coupling)
        inverses.append(inverse)
        couplings.append(coupling)
    return Factor(inverse=tuple(inverses), coupling=tuple(couplings))


def solve(plan: Plan, factor: Factor, b: Array) -> Array:
    """x with A x = b, both of shape (r, nodes, *batch)."""
    steps = list(zip(plan.levels, factor.inverse, factor.coupling, strict=True))
    batch = jnp.broadcast_shapes(b.shape[2:], factor.inverse[0].shape[3:])
    b = jnp.broadcast_to(b, (*b.shape[:2], *batch))
    halves, rests = [], []
    for level, inverse, coupling in steps:
        pivots, h = level.stop - level.start, level.height
        half = stored(multiply)(inverse, b[:h, :pivots])
        rests.append(b[h:, :pivots])
        b = b[:, pivots:]
        if level.counts:
            update = _tall(multiply(coupling, per_edge(level, half, 1)), b.shape[0])
            b = add_at(b, level.neighbour - level.stop, -update, 1)
        halves.append(half)
    x = b
    ends = zip(reversed(steps), reversed(halves), reversed(rests), strict=True)
    for (level, inverse, coupling), half, rest in ends:
        if level.counts:
            near = take(x[: level.reach], level.neighbour - level.stop, 1)
            half = add_at(half, level.pivot, -multiply_transposed(coupling, near), 1)
        first = multiply_transposed(inverse, half)
        first = jnp.concatenate([first, rest], axis=0) if rest.shape[0] else first
        x = jnp.concatenate([first, x], axis=1)
    return x


def times(plan: Plan, A: Blocks, x: Array) -> Array:
    """A x, x of shape (r, nodes, *batch)."""
    found = multiply(A.diagonal, x)
    if not len(plan.row):
        return found
    above, below = take(x, plan.row, 1), take(x, plan.column, 1)
    found = add_at(found, plan.row, multiply(A.edges, below), 1)
    return add_at(found, plan.column, multiply_transposed(A.edges, above), 1)


def corrected(solve: Callable[[Array], Array], b: Array, ε: Array, before: Array | float) -> Array:
    """x + y with x = solve(b) and y = solve(ε (before + x)): a correction that removes the
    regularization ε of the solver's matrix to second order.
    """

    def improve(carry, _):
        total, right = carry
        total = total + solve(right)
        return (total, ε * (before + total)), None

    # A loop instead of two solves: half the program.
    (total, _), _ = lax.scan(improve, (jnp.zeros_like(b), b), length=2)
    return total


def _tall(x: Array, rows: int) -> Array:
    """x with zeros below, `rows` rows in all."""
    missing = rows - x.shape[0]
    return jnp.pad(x, [(0, missing)] + [(0, 0)] * (x.ndim - 1)) if missing else x


def _pivots(level: Level, diagonal: Array, size: Array) -> Array:
    """L_k⁻¹ of the pivots, the first items of the remaining diagonal."""
    h = level.height
    pivots = diagonal[:h, :h, : level.stop - level.start]
    return cholesky_inverse(pivots, size[:h, level.start : level.stop])


def _coupling(level: Level, edges: Array, inverse: Array) -> Array:
    """V_ik = A_ik L_k⁻ᵀ of the level's edges, the first of the remaining edges."""
    edges = edges[: level.reach, : level.height, : level.last - level.first]
    return product_transposed(edges, per_edge(level, inverse, 2)) if level.counts else edges


def _update_diagonal(level: Level, diagonal: Array, coupling: Array) -> Array:
    """A_ii - Σ_k V_ik V_ikᵀ of the nodes that come after the level."""
    diagonal = diagonal[:, :, level.stop - level.start :]
    if not level.counts:
        return diagonal
    update = product_transposed(coupling, coupling)
    return _add_corner(diagonal, level.neighbour - level.stop, -update)


def _update_edges(level: Level, edges: Array, coupling: Array) -> Array:
    """A_ij - Σ_k V_ik V_jkᵀ of the edges that come after the level."""
    edges = edges[:, :, level.last - level.first :]
    if not len(level.target):
        return edges
    late, early = take(coupling, level.late, 2), take(coupling, level.early, 2)
    update = product_transposed(late, early)
    return _add_corner(edges, level.target - level.last, -update)


def _add_corner(x: Array, index: np.ndarray, values: Array) -> Array:
    """Matrices x, at constant places with smaller matrices added to their upper left corners."""
    reach = values.shape[0]
    if reach == x.shape[0]:
        return add_at(x, index, values, 2)
    batch = jnp.broadcast_shapes(x.shape[3:], values.shape[3:])
    x = jnp.broadcast_to(x, x.shape[:3] + batch)
    corner = add_at(x[:reach, :reach], index, values, 2)
    upper = jnp.concatenate([corner, x[:reach, reach:]], axis=1)
    return jnp.concatenate([upper, x[reach:]], axis=0)


def per_edge(level: Level, x: Array, axis: int) -> Array:
    """Values of a level's pivots on its edges."""
    if len(level.counts) > UNROLLED_SLOTS:
        return take(x, level.pivot, axis)
    return jnp.concatenate([lax.slice_in_dim(x, 0, n, axis=axis) for n in level.counts], axis)
