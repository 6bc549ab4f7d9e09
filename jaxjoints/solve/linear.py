"""The symmetric linear system of a Newton step, its factor, its solution, and a correction."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from .factor import Blocks, Factor, add_diagonal, factor, scale, solve
from .problem import RowProblem, delassus, with_coordinate_rows


def softened(problem: RowProblem) -> Array:
    """Softness of the hard rows in the matrix."""
    if problem.softness is None:
        return problem.compliance
    return problem.compliance + problem.softness


def scaled_system(
    problem: RowProblem, hard: Array, wanted: Array, c: Array, odds: Array, R: Array
) -> tuple[Array, Array, Array]:
    """Diagonal, right side and √α of the scaled system, coordinate rows put among the hard ones.

    hard, wanted: softness and right side of the hard rows, (rows, nodes, *batch); c, odds, R: 1/A,
    the odds and the remainders of all laws, (coordinate rows, *batch)
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


def factored(problem: RowProblem, blocks: Blocks, extra: Array, root: Array | None) -> Factor:
    """Factor of S A S + diag(extra) + ε, S = diag(root), of constants; A in blocks, ε the softness
    of the matrix alone.
    """
    plan = problem.structure.plan
    extra = extra if problem.softness is None else extra + problem.softness
    root, extra = stop_gradient((root, extra))
    scaled = blocks if root is None else scale(plan, blocks, root)
    return factor(plan, add_diagonal(plan, scaled, extra))


def solve_symmetric(
    problem: RowProblem,
    factors: Factor,
    extra: Array,
    right: Array,
    root: Array | None,
    *,
    correct: bool = True,
) -> Array:
    """S y with (S A S + diag(extra)) y = right, S = diag(root), by the factor of that matrix and ε.

    correct: take ε away to second order, y + (S A S + diag(extra) + ε)⁻¹ ε y
    """
    plan, softness = problem.structure.plan, problem.softness

    def times(y):
        if root is None:
            return delassus(problem, y) + extra * y
        return root * delassus(problem, root * y) + extra * y

    def solved(_, b):
        if softness is None or not correct:
            return solve(plan, factors, b)
        return _corrected(lambda b: solve(plan, factors, b), softness, b, 0.0)

    y = jax.lax.custom_linear_solve(times, right, solved, symmetric=True)
    return y if root is None else root * y


def solve_from(
    problem: RowProblem,
    factors: Factor,
    extra: Array,
    right: Array,
    root: Array | None,
    before: Array,
) -> Array:
    """The same for a change of the impulses `before`: (A + ε) δ = ε Λ corrects for all of them, Λ
    those before and what is found together.

    Internal forces of redundant rows double their rounding and go no further, as each solve begins
    with the whole softness.
    """

    def once(b):
        return solve_symmetric(problem, factors, extra, b, root, correct=False)

    if problem.softness is None:
        return once(right)
    return _corrected(once, problem.softness, right, before)


def _corrected(
    solve: Callable[[Array], Array], softness: Array, right: Array, before: Array | float
) -> Array:
    """x + y, x solving for the right side and y for what the softness holds back."""

    def improve(carry, _):
        found, right = carry
        found = found + solve(right)
        return (found, softness * (before + found)), None

    # A loop and not two solves: half the program.
    (found, _), _ = jax.lax.scan(improve, (jnp.zeros_like(right), right), length=2)
    return found
