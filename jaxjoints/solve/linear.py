"""Symmetric linear systems in all rows: the solve of a problem without bounds, or of a Newton step.

The matrix has the regularization of the hard rows; a correction removes it to second order.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from ..algebra.pytree import replace
from .bodies import RowFactor, reduced
from .cone import Turn
from .factor import corrected, factor_scaled, solve
from .problem import (
    RowProblem,
    coordinate_rows,
    delassus,
    diagonal,
    regularized,
    with_coordinate_rows,
)


def solve_linear(
    problem: RowProblem, factors: RowFactor | None = None, correct: bool = True
) -> tuple[Array, RowFactor]:
    """Impulses where no law is bounded: one symmetric solve, differentiable to any order.

    problem: `regularized`
    factors: of the matrix, None to factor it here
    correct: whether to remove the regularization to second order

    Returns: the impulses, and the factors
    """
    structure = problem.structure
    extra, right, root = problem.compliance, -problem.rate, None
    if structure.row:
        c = 1 / coordinate_rows(problem, diagonal(problem))
        odds = problem.augmented_stiffness / c
        R = problem.augmented_stiffness * coordinate_rows(problem, problem.rate) - problem.impulse
        extra, right, root = scaled_system(problem, extra, right, c, odds, R)
    factors = factored(problem, extra, root) if factors is None else factors
    return solve_symmetric(problem, factors, extra, right, root, correct=correct), factors


def solve_with(problem: RowProblem, factors: RowFactor) -> Array:
    """Impulses of a problem without bounds, by factors of a problem with the same rows and laws."""
    return solve_linear(regularized(problem), factors)[0]


def solve_at_rest(problem: RowProblem, factors: RowFactor, rate: Array) -> Array:
    """Impulses of a problem without bounds for another `rate` of its rows, by its factors.

    The linear laws resist the motion but do not push: their impulse at rest is 0.
    """
    problem = replace(problem, rate=rate, impulse=jnp.zeros_like(problem.impulse))
    return solve_linear(regularized(problem), factors, correct=False)[0]


def scaled_system(
    problem: RowProblem, hard: Array, wanted: Array, c: Array, odds: Array, R: Array
) -> tuple[Array, Array, Array]:
    """Diagonal, right side and √α of the scaled system of hard rows and coordinate rows.

    hard, wanted: compliance and right side of the hard rows, (rows, nodes, *batch); c, odds, R:
        1/A, the odds and the remainders of all laws, (coordinate rows, *batch)
    """
    structure = problem.structure
    # Protects √α from α = 0 (no force), where its derivative is infinite.
    floor = 1e-6
    root = jnp.sqrt(jnp.maximum(odds / (1 + odds), floor**2))
    shape = jnp.broadcast_shapes(hard.shape, wanted.shape, (1, 1, *odds.shape[1:]))
    extra = with_coordinate_rows(structure, jnp.broadcast_to(hard, shape), 1 / ((1 + odds) * c))
    right = jnp.broadcast_to(wanted, shape)
    right = with_coordinate_rows(structure, right, -R / ((1 + odds) * c * root))
    return extra, right, with_coordinate_rows(structure, jnp.ones(shape, hard.dtype), root)


def factored(
    problem: RowProblem, extra: Array, root: Array | None, turn: Turn | None = None
) -> RowFactor:
    """Factor of S A S + diag(extra) + ε, S = diag(root), ε the regularization; a constant for
    differentiation.

    turn: of the rows of A, None for none
    """
    way = problem.structure.way
    extra = extra if problem.regularization is None else extra + problem.regularization
    bodies, root, extra, turn = stop_gradient((problem.bodies, root, extra, turn))
    rest = reduced(bodies, extra, jnp.ones_like(extra) if root is None else root * root, turn)
    if way.plan is None:
        return RowFactor(rest, None, root)
    near, extra = (
        None if x is None else way.of_blocks(x[:, : way.graph], 1.0) for x in (root, extra)
    )
    return RowFactor(rest, factor_scaled(way.plan, rest.blocks(), extra, near), root)


def _solved(problem: RowProblem, factors: RowFactor, b: Array) -> Array:
    """y with (S A S + diag(extra)) y = b, by the factor of `factored`."""
    way = problem.structure.way
    graph = way.graph

    def on_graph(b):
        return way.of_nodes(solve(way.plan, factors.of_rows, way.of_blocks(b)), len(b))

    if b.shape[1] == graph:
        return on_graph(b)
    root = jnp.ones_like(b) if factors.root is None else factors.root
    wanted, y = root * b, b[:, :graph]
    if graph:
        speed, _ = factors.reduced.moved(jnp.zeros_like(y), wanted)
        y = on_graph(y - root[:, :graph] * speed)
    others = factors.reduced.moved(root[:, :graph] * y, wanted)[-1]
    return jnp.concatenate([y, others / root[:, graph:]], axis=1)


def solve_symmetric(
    problem: RowProblem,
    factors: RowFactor,
    extra: Array,
    right: Array,
    root: Array | None,
    turn: Turn | None = None,
    *,
    correct: bool = True,
) -> Array:
    """S y with (S A S + diag(extra)) y = right, S = diag(root), by the factor of that matrix and ε.

    turn: of the rows of A. extra, right and root are of turned rows; the result is turned back
    correct: whether to remove ε to second order, y + (S A S + diag(extra) + ε)⁻¹ ε y
    """
    ε = problem.regularization

    def times(y):
        if root is None:
            return delassus(problem, y) + extra * y
        if turn is None:
            return root * delassus(problem, root * y) + extra * y
        return root * turn.rows(delassus(problem, turn.back(root * y))) + extra * y

    def solved(_, b):
        if ε is None or not correct:
            return _solved(problem, factors, b)
        return corrected(lambda b: _solved(problem, factors, b), b, ε, 0.0)

    y = jax.lax.custom_linear_solve(times, right, solved, symmetric=True)
    Λ = y if root is None else root * y
    return Λ if turn is None else turn.back(Λ)


def solve_from(
    problem: RowProblem,
    extra: Array,
    right: Array,
    root: Array,
    before: Array,
    turn: Turn | None = None,
) -> Array:
    """`solve_symmetric` for a change of the impulses `before`.

    The correction (A + ε) δ = ε Λ is for all impulses Λ, those before and the change. Each solve
    thus begins with the whole regularization, so internal forces of redundant rows do not wander;
    their rounding doubles at most.
    """
    factors, ε = factored(problem, extra, root, turn), problem.regularization
    if ε is None:
        return solve_symmetric(problem, factors, extra, right, root, turn)

    def once(b):
        return solve_symmetric(problem, factors, extra, b, root, turn, correct=False)

    return corrected(once, right, ε, before)
