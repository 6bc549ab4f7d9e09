"""Block LU of a matrix that is not symmetric, on the joint graph, level by level.

The counterpart of `factor` for rows whose bounds follow other impulses (friction). The pivots of a
level are factored at once, l_k A_kk u_k = 1. With L_ik = A_ik u_k and R_ki = l_k A_ki for their
later neighbours i, A_ij becomes A_ij - L_ik R_kj for every two of those, in both orders. Aᵀ has the
same form. Where rows depend on each other, inverses of whole pivots would leave rounding of A_ik
times the condition of A_kk in what is eliminated, with which Newton's method can diverge.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.compiler import stored
from ..algebra.dense import lu_inverses, multiply, product
from ..algebra.places import add_at, take
from ..algebra.pytree import struct
from .factor import per_edge
from .graph import Level, Plan


@struct
class GeneralBlocks:
    """A matrix on the joint graph.

    diagonal: shape (r, r, nodes, *batch)
    lower: block of each edge and of its fill, rows of the later node, columns of the earlier, shape
        (r, r, edges, *batch); upper: rows of the earlier, columns of the later
    """

    diagonal: Array
    lower: Array
    upper: Array


@struct
class GeneralFactor:
    """The factored matrix, one array per level.

    left, right: l_k and u_k of the pivots, (r, r, pivots, *batch)
    lower: L_ik of the edges; upper: R_ki, both (r, r, edges, *batch)
    """

    left: tuple[Array, ...]
    right: tuple[Array, ...]
    lower: tuple[Array, ...]
    upper: tuple[Array, ...]


def factor_general(plan: Plan, blocks: GeneralBlocks) -> GeneralFactor:
    """Block LU factor of a regular matrix, pivoting within its blocks."""
    diagonal, lower, upper = blocks.diagonal, blocks.lower, blocks.upper
    parts = []
    for level in plan.levels:
        pivots = level.stop - level.start
        left, right = stored(lu_inverses)(diagonal[:, :, :pivots])
        edges = level.last - level.first
        L, R = lower[:, :, :edges], upper[:, :, :edges]
        if level.counts:
            L = stored(partial(_right_product, level))(L, right)
            R = stored(partial(_left_product, level))(left, R)
        diagonal = stored(partial(_update_diagonal, level))(diagonal, L, R)
        lower = stored(partial(_update_edges, level, level.late, level.early))(lower, L, R)
        upper = stored(partial(_update_edges, level, level.early, level.late))(upper, L, R)
        parts.append((left, right, L, R))
    return GeneralFactor(*zip(*parts, strict=True))


def solve_general(plan: Plan, factor: GeneralFactor, b: Array) -> Array:
    """x with A x = b, both of shape (r, nodes, *batch)."""
    parts = zip(factor.left, factor.right, factor.lower, factor.upper, strict=True)
    steps = list(zip(plan.levels, parts, strict=True))
    batch = jnp.broadcast_shapes(b.shape[2:], factor.left[0].shape[3:])
    b = jnp.broadcast_to(b, (*b.shape[:2], *batch))
    halves = []
    for level, (left, _, L, _) in steps:
        pivots = level.stop - level.start
        half, b = multiply(left, b[:, :pivots]), b[:, pivots:]
        if level.counts:
            update = multiply(L, per_edge(level, half, 1))
            b = add_at(b, level.neighbour - level.stop, -update, 1)
        halves.append(half)
    x = b
    for (level, (_, right, _, R)), half in zip(reversed(steps), reversed(halves), strict=True):
        if level.counts:
            pull = multiply(R, take(x, level.neighbour - level.stop, 1))
            half = add_at(half, level.pivot, -pull, 1)
        x = jnp.concatenate([multiply(right, half), x], axis=1)
    return x


def transposed(factor: GeneralFactor) -> GeneralFactor:
    """The factor of Aᵀ."""
    parts = (factor.right, factor.left, factor.upper, factor.lower)
    return GeneralFactor(*jax.tree.map(lambda block: jnp.swapaxes(block, 0, 1), parts))


def _right_product(level: Level, edges: Array, right: Array) -> Array:
    """L_ik = A_ik u_k of the level's edges."""
    return product(edges, per_edge(level, right, 2))


def _left_product(level: Level, left: Array, edges: Array) -> Array:
    """R_ki = l_k A_ki of the level's edges."""
    return product(per_edge(level, left, 2), edges)


def _update_diagonal(level: Level, diagonal: Array, L: Array, R: Array) -> Array:
    """A_ii - Σ_k L_ik R_ki of the nodes that come after the level."""
    diagonal = diagonal[:, :, level.stop - level.start :]
    if not level.counts:
        return diagonal
    return add_at(diagonal, level.neighbour - level.stop, -product(L, R), 2)


def _update_edges(level: Level, rows, columns, edges: Array, L: Array, R: Array) -> Array:
    """A_ij - Σ_k L_ik R_kj of the edges that come after the level, i of `rows`, j of `columns`."""
    edges = edges[:, :, level.last - level.first :]
    if not len(level.target):
        return edges
    update = product(take(L, rows, 2), take(R, columns, 2))
    return add_at(edges, level.target - level.last, -update, 2)
