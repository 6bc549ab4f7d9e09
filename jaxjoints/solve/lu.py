"""Block LU of a matrix that is not symmetric, on the joint graph, level by level.

The counterpart of `factor` for rows whose bounds follow other impulses (friction). The pivots of a
level are inverted at once, P_k = A_kk⁻¹; with L_ik = A_ik P_k for their later neighbours i, A_ij
becomes A_ij - L_ik A_kj for every two of those, in both orders. With R_ki = P_k A_ki, A = L D R,
and Aᵀ is of the same form.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.compiler import stored
from ..algebra.dense import inverse, multiply, product
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

    inverse: P_k of the pivots, (r, r, pivots, *batch)
    lower: L_ik of the edges; upper: R_ki, both (r, r, edges, *batch)
    """

    inverse: tuple[Array, ...]
    lower: tuple[Array, ...]
    upper: tuple[Array, ...]


def factor_general(plan: Plan, blocks: GeneralBlocks) -> GeneralFactor:
    """Block LU factor of a regular matrix, pivoting within its blocks."""
    diagonal, lower, upper = blocks.diagonal, blocks.lower, blocks.upper
    inverses, lowers, uppers = [], [], []
    for level in plan.levels:
        pivots = level.stop - level.start
        P = stored(inverse)(diagonal[:, :, :pivots])
        edges = level.last - level.first
        L, U = lower[:, :, :edges], upper[:, :, :edges]
        R = U
        if level.counts:
            L = stored(partial(_right_product, level))(L, P)
            R = stored(partial(_left_product, level))(P, U)
        diagonal = stored(partial(_update_diagonal, level))(diagonal, L, U)
        lower = stored(partial(_update_edges, level, level.late, level.early))(lower, L, U)
        upper = stored(partial(_update_edges, level, level.early, level.late))(upper, L, U)
        inverses.append(P)
        lowers.append(L)
        uppers.append(R)
    return GeneralFactor(inverse=tuple(inverses), lower=tuple(lowers), upper=tuple(uppers))


def solve_general(plan: Plan, factor: GeneralFactor, b: Array) -> Array:
    """x with A x = b, both of shape (r, nodes, *batch)."""
    steps = list(zip(plan.levels, factor.inverse, factor.lower, factor.upper, strict=True))
    batch = jnp.broadcast_shapes(b.shape[2:], factor.inverse[0].shape[3:])
    b = jnp.broadcast_to(b, (*b.shape[:2], *batch))
    halves = []
    for level, P, L, _ in steps:
        pivots = level.stop - level.start
        of_pivots, b = b[:, :pivots], b[:, pivots:]
        if level.counts:
            update = multiply(L, per_edge(level, of_pivots, 1))
            b = add_at(b, level.neighbour - level.stop, -update, 1)
        halves.append(multiply(P, of_pivots))
    x = b
    for (level, _, _, R), half in zip(reversed(steps), reversed(halves), strict=True):
        if level.counts:
            pull = multiply(R, take(x, level.neighbour - level.stop, 1))
            half = add_at(half, level.pivot, -pull, 1)
        x = jnp.concatenate([half, x], axis=1)
    return x


def transposed(factor: GeneralFactor) -> GeneralFactor:
    """The factor of Aᵀ = Rᵀ Dᵀ Lᵀ."""
    inverse, lower, upper = jax.tree.map(
        lambda block: jnp.swapaxes(block, 0, 1), (factor.inverse, factor.lower, factor.upper)
    )
    return GeneralFactor(inverse=inverse, lower=upper, upper=lower)


def _right_product(level: Level, edges: Array, P: Array) -> Array:
    """L_ik = A_ik P_k of the level's edges."""
    return product(edges, per_edge(level, P, 2))


def _left_product(level: Level, P: Array, edges: Array) -> Array:
    """R_ki = P_k A_ki of the level's edges."""
    return product(per_edge(level, P, 2), edges)


def _update_diagonal(level: Level, diagonal: Array, L: Array, U: Array) -> Array:
    """A_ii - Σ_k L_ik A_ki of the nodes that come after the level."""
    diagonal = diagonal[:, :, level.stop - level.start :]
    if not level.counts:
        return diagonal
    return add_at(diagonal, level.neighbour - level.stop, -product(L, U), 2)


def _update_edges(level: Level, rows, columns, edges: Array, L: Array, U: Array) -> Array:
    """A_ij - Σ_k L_ik A_kj of the edges that come after the level, i of `rows`, j of `columns`."""
    edges = edges[:, :, level.last - level.first :]
    if not len(level.target):
        return edges
    update = product(take(L, rows, 2), take(U, columns, 2))
    return add_at(edges, level.target - level.last, -update, 2)
