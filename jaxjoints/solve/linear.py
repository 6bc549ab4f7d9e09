"""Symmetric linear systems in all rows: one solve where nothing is bounded, or of a Newton step.

The matrix carries the regularization of the hard rows; a correction takes it away to second order.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from ..algebra.pytree import replace, struct
from .articulated import ArticulatedBodies, Reduced, reduced
from .factor import AnyFactor as FactorOfRows
from .factor import corrected, factor_scaled, solve, solve_corrected
from .graph import Plan
from .kernels import Unassembled, factor_and_solve
from .problem import (
    AnyMatrix,
    RowProblem,
    coordinate_rows,
    delassus,
    diagonal,
    matrix,
    regularized,
    with_coordinate_rows,
)


@struct
class ReducedFactor:
    """The factored matrix where tree joints hold bodies.

    reduced: the bodies with the laws along coordinates; factor: of the rows that act on bodies,
        None where there are none; root: √α of all rows, (rows, nodes, *batch)
    """

    reduced: Reduced
    factor: FactorOfRows | None
    root: Array


AnyFactor = FactorOfRows | ReducedFactor


def solve_linear(
    problem: RowProblem, factors: AnyFactor | None = None, correct: bool = True
) -> tuple[Array, AnyFactor]:
    """Impulses where no law is bounded: one symmetric solve, differentiable to any order.

    problem: regularized
    factors: of the matrix, None to factor it here
    correct: take the regularization away to second order

    Returns: the impulses, and the factors
    """
    structure = problem.structure
    extra, right, root = problem.compliance, -problem.rate, None
    if structure.row:
        c = 1 / coordinate_rows(problem, diagonal(problem))
        odds = problem.augmented_stiffness / c
        R = problem.augmented_stiffness * coordinate_rows(problem, problem.rate) - problem.impulse
        extra, right, root = scaled_system(problem, extra, right, c, odds, R)
    if factors is None:
        A = matrix(stop_gradient(problem))
        if isinstance(A, Unassembled) and correct:
            return _by_kernel(problem, A, extra, right, root, None)
        factors = factored(problem, A, extra, root)
    return solve_symmetric(problem, factors, extra, right, root, correct=correct), factors


def solve_with(problem: RowProblem, factors: AnyFactor) -> Array:
    """Impulses of a problem without bounds by the factors of one with the same rows and laws."""
    return solve_linear(regularized(problem), factors)[0]


def solve_at_rest(problem: RowProblem, factors: AnyFactor, rate: Array) -> Array:
    """Impulses for rows of other rates, by the factors of a problem without bounds.

    Its linear laws resist the motion and do not begin any.
    """
    problem = replace(problem, rate=rate, impulse=jnp.zeros_like(problem.impulse))
    return solve_linear(regularized(problem), factors, correct=False)[0]


def scaled_system(
    problem: RowProblem, hard: Array, wanted: Array, c: Array, odds: Array, R: Array
) -> tuple[Array, Array, Array]:
    """Diagonal, right side and √α of the scaled system, coordinate rows put among the hard ones.

    hard, wanted: compliance and right side of the hard rows, (rows, nodes, *batch); c, odds, R:
        1/A, the odds and the remainders of all laws, (coordinate rows, *batch)
    """
    structure = problem.structure
    # √α from below: its derivative at no force at all would be infinite.
    floor = 1e-6
    root = jnp.sqrt(jnp.maximum(odds / (1 + odds), floor**2))
    shape = jnp.broadcast_shapes(hard.shape, wanted.shape, (1, 1, *odds.shape[1:]))
    extra = with_coordinate_rows(structure, jnp.broadcast_to(hard, shape), 1 / ((1 + odds) * c))
    right = jnp.broadcast_to(wanted, shape)
    right = with_coordinate_rows(structure, right, -R / ((1 + odds) * c * root))
    return extra, right, with_coordinate_rows(structure, jnp.ones(shape, hard.dtype), root)


def factored(problem: RowProblem, A: AnyMatrix, extra: Array, root: Array | None) -> AnyFactor:
    """Factor of S A S + diag(extra) + ε, S = diag(root), of constants; ε is the regularization."""
    plan = problem.structure.plan
    extra = extra if problem.regularization is None else extra + problem.regularization
    A, root, extra = stop_gradient((A, root, extra))
    if not isinstance(A, ArticulatedBodies):
        return factor_scaled(plan, A, extra, root)
    root = jnp.ones_like(extra) if root is None else root
    rest, acting = reduced(A, extra, root * root), A.way.nodes
    if not acting:
        return ReducedFactor(rest, None, root)
    return ReducedFactor(
        rest, factor_scaled(plan, rest.blocks(), extra[:, :acting], root[:, :acting]), root
    )


def _solved(plan: Plan, factors: AnyFactor, b: Array) -> Array:
    """y with (S A S + diag(extra)) y = b, by the factor of `factored`."""
    if not isinstance(factors, ReducedFactor):
        return solve(plan, factors, b)
    rest, root = factors.reduced, factors.root
    acting, wanted = rest.bodies.way.nodes, root * b
    if b.shape[1] == acting:
        return solve(plan, factors.factor, b)
    y = b[:, :acting]
    if acting:
        speed = rest.along(jnp.zeros_like(y), wanted)[0]
        y = solve(plan, factors.factor, y - root[:, :acting] * speed)
    along = rest.along(root[:, :acting] * y, wanted)[1]
    return jnp.concatenate([y, along / root[:, acting:]], axis=1)


def solve_symmetric(
    problem: RowProblem,
    factors: AnyFactor,
    extra: Array,
    right: Array,
    root: Array | None,
    *,
    correct: bool = True,
) -> Array:
    """S y with (S A S + diag(extra)) y = right, S = diag(root), by the factor of that matrix and ε.

    correct: take ε away to second order, y + (S A S + diag(extra) + ε)⁻¹ ε y
    """
    plan, ε = problem.structure.plan, problem.regularization

    def times(y):
        if root is None:
            return delassus(problem, y) + extra * y
        return root * delassus(problem, root * y) + extra * y

    def solved(_, b):
        if ε is None or not correct:
            return _solved(plan, factors, b)
        if isinstance(factors, ReducedFactor):
            return corrected(lambda b: _solved(plan, factors, b), b, ε, 0.0)
        return solve_corrected(plan, factors, b, ε)

    y = jax.lax.custom_linear_solve(times, right, solved, symmetric=True)
    return y if root is None else root * y


def solve_from(
    problem: RowProblem,
    A: AnyMatrix,
    extra: Array,
    right: Array,
    root: Array,
    before: Array,
) -> Array:
    """`solve_symmetric` for a change of the impulses `before`: (A + ε) δ = ε Λ corrects for all of
    them, Λ the sum of those before and of the change.

    Internal forces of redundant rows double their rounding and go no further, as each solve begins
    with the whole regularization.
    """
    way = _by_kernel if isinstance(A, Unassembled) else _step_by_step
    return way(problem, A, extra, right, root, before)[0]


def _step_by_step(
    problem: RowProblem,
    A: AnyMatrix,
    extra: Array,
    right: Array,
    root: Array | None,
    before: Array | None,
) -> tuple[Array, AnyFactor]:
    """`solve_from`, or without anything before `solve_symmetric`; and the factors."""
    factors, ε = factored(problem, A, extra, root), problem.regularization
    if before is None or ε is None:
        return solve_symmetric(problem, factors, extra, right, root), factors

    def once(b):
        return solve_symmetric(problem, factors, extra, b, root, correct=False)

    return corrected(once, right, ε, before), factors


@jax.custom_jvp
def _by_kernel(problem, A, extra, right, root, before):
    """`_step_by_step` as one kernel."""
    plan, ε = problem.structure.plan, problem.regularization
    return factor_and_solve(plan, A, extra if ε is None else extra + ε, root, right, ε, before)


@_by_kernel.defjvp
def _derivative_around_the_kernel(primals, tangents):
    return jax.jvp(_step_by_step, primals, tangents)
