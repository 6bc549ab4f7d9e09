"""Impulses of all rows at once: one linear solve, or Newton's method where impulses are bounded.

Row i of a node has the impulse Λ and the speed u = (A Λ)ᵢ + rateᵢ, A = Σ_b H_bᵀ M_b⁻¹ H_b. Hard
rows ask for u + compliance Λ = 0 (their target is part of the rate). A coordinate row carries the
sum of all laws of that coordinate, Λ = λ₀ + Σ σ_k λ_k: one linear law λ₀ = p - K₀ u and any number
of bounded impulses λ_k, complementary to w_k = σ_k u + bias + compliance λ_k.

With c = 1/A_ii, a bounded impulse solves Φ = 0, a smoothed projection of slope a (`bounds`).
Newton's step has dλ_k = -K_k σ du - R_k with b = 1 - a + a c compliance, K_k = a c / b and
R_k = Φ / b; hence dΛ = -K du - R, sums over the laws. With the odds o = K / c and α = o / (1 + o)
it is symmetric and positive definite,

    (S A S + diag(1 / ((1 + o) c))) y = -R / ((1 + o) c √α),    S = diag(√α),    dΛ = S y,

from K = 0 (no force, α = 0) to K = ∞ (held, α = 1), in the same blocks as A.

The iteration ends when all environments are solved to rounding, at the latest after a fixed number
of steps. For differentiation the iterates are constants: the derivative of one more step, taken at
the solution with the matrix held fixed, is that of the solution (implicit function theorem), and
costs one solve. It is taken only where a derivative is asked for.
"""

from dataclasses import dataclass
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient

from ..blocks import largest, multiply, multiply_transposed
from ..pytree import replace, static, struct
from ..rotation import dot
from .bounds import BoundedRows, complementarity
from .factor import Blocks, add_diagonal, assemble, factor, scale, solve
from .graph import Plan

# Least softness of a bound, for the precision of float32, 64.
LEAST_SOFTNESS = {4: 1e-7, 8: 1e-14}
# Softness that makes redundant hard rows solvable, as a share of the diagonal of A.
REGULARIZATION = {4: 1e-6, 8: 1e-12}
# Residual at which the iteration ends, as a share of the speeds that cancel in it. In float64 all
# steps are taken: those at the solution refine its rounding.
SOLVED = {4: 3e-6, 8: 0.0}


@dataclass(frozen=True)
class RowStructure:
    """The static shape of all rows: nodes of up to `rows` rows in elimination order.

    child, parent: body of each node, `bodies` standing for whatever does not move
    row, node: place of each coordinate row; unused: places of rows that do not exist
    """

    plan: Plan
    bodies: int
    rows: int
    child: tuple[int, ...]
    parent: tuple[int, ...]
    row: tuple[int, ...]
    node: tuple[int, ...]
    unused: tuple[tuple[int, int], ...]

    @cached_property
    def hard(self) -> np.ndarray:
        """True where a row is bilateral or does not exist, shape (rows, nodes)."""
        mask = np.ones((self.rows, len(self.child)), bool)
        mask[list(self.row), list(self.node)] = False
        return mask

    @cached_property
    def range(self) -> tuple[int, int, int] | None:
        """Row, first node and end of the coordinate rows if they are one range of one row."""
        if not self.row:
            return None
        first, count = self.node[0], len(self.node)
        one = len(set(self.row)) == 1 and self.node == tuple(range(first, first + count))
        return (self.row[0], first, first + count) if one else None

    @cached_property
    def filler(self) -> np.ndarray:
        """1 where a row does not exist: its unit pivot, shape (rows, nodes)."""
        mask = np.zeros((self.rows, len(self.child)))
        for row, node in self.unused:
            mask[row, node] = 1.0
        return mask


@struct
class RowProblem:
    """Everything that the impulses of one step depend on.

    H_child, H_parent: wrenches of the rows on the two bodies, (6, rows, nodes, *batch)
    Y_child, Y_parent: M⁻¹ H
    rate: speed of each row before impulses, less its target if hard, (rows, nodes, *batch)
    compliance: cfm/h of the hard rows, (rows, nodes, *batch)
    stiffness, impulse: K₀ and p of each coordinate row, (coordinate rows, *batch)
    smoothing: ν [m/s or rad/s]
    """

    H_child: Array
    H_parent: Array
    Y_child: Array
    Y_parent: Array
    rate: Array
    compliance: Array
    stiffness: Array
    impulse: Array
    bounds: tuple[BoundedRows, ...]
    smoothing: Array
    structure: RowStructure = static()


@struct
class RowSolution:
    """Impulses Λ (rows, nodes, *batch), λ_k of each bound (coordinate rows, *batch), the largest
    residual of a row [m/s or rad/s], shape (*batch), and the largest speed that its terms cancel.
    """

    impulse: Array
    bounded: tuple[Array, ...]
    residual: Array
    size: Array


def solve_rows(
    problem: RowProblem, start: tuple[Array, tuple[Array, ...]] | None = None, *, iterations: int
) -> RowSolution:
    """Impulses that satisfy all rows, in at most `iterations` Newton steps; one if none is bounded.

    start: impulses (Λ, λ_k) nearby, such as those of the last step
    """
    problem = _regularized(problem)
    if not problem.bounds:
        impulse = _solve_linear(problem)
        return RowSolution(impulse, (), *_residual(problem, impulse, (), _speed(problem, impulse)))
    if start is None:
        zero = jnp.zeros_like(problem.rate)
        start = zero, tuple(jnp.zeros_like(_coordinate_rows(problem, zero)) for _ in problem.bounds)
    return _solve_bounded(iterations, problem, start)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _solve_bounded(
    iterations: int, problem: RowProblem, start: tuple[Array, tuple[Array, ...]]
) -> RowSolution:
    """Impulses (Λ, λ_k) by Newton's method."""
    blocks = _assemble(problem)
    share = SOLVED[problem.rate.dtype.itemsize]

    def improve(carry):
        step, at, speed, _, wanted = carry
        new = _newton_step(problem, problem, blocks, *at, speed)
        # Solved environments stay as they are: what one gets does not depend on its neighbours.
        at = jax.tree.map(lambda x, y: jnp.where(wanted, x, y), new, at)
        speed = _speed(problem, at[0])
        residual, size = _residual(problem, *at, speed)
        return step + 1, at, speed, (residual, size), residual > share * size

    def go_on(carry):
        step, *_, wanted = carry
        return (step < iterations) & jnp.any(wanted)

    speed = _speed(problem, start[0])
    unknown = jnp.full(speed.shape[2:], jnp.inf, speed.dtype)
    first = 0, start, speed, (unknown, unknown), unknown > 0
    _, (impulse, bounded), _, residual, _ = jax.lax.while_loop(go_on, improve, first)
    return RowSolution(impulse, bounded, *residual)


@_solve_bounded.defjvp
def _solve_bounded_jvp(iterations: int, primals: tuple, tangents: tuple) -> tuple:
    """Derivative of the implicit function; where the iteration began has no part in it."""
    problem, start = primals
    solution = _solve_bounded(iterations, problem, start)
    blocks = _assemble(problem)

    def once_more(moving: RowProblem):
        speed = _speed(moving, solution.impulse)
        return _newton_step(moving, problem, blocks, solution.impulse, solution.bounded, speed)

    impulse, bounded = jax.jvp(once_more, (problem,), tangents[:1])[1]
    constant = jnp.zeros_like(solution.residual)
    return solution, RowSolution(impulse, bounded, constant, constant)


def body_velocities(problem: RowProblem, impulse: Array) -> Array:
    """M⁻¹ Hᵀ Λ: change of each body's twist in body axes, shape (6, bodies, *batch)."""
    return _body_velocities(problem, impulse)[:, : problem.structure.bodies]


def row_speeds(problem: RowProblem, velocity: Array) -> Array:
    """Hᵀ v of bodies that move at twists (6, bodies + 1, *batch), shape (rows, nodes, *batch)."""
    structure = problem.structure
    child, parent = np.array(structure.child), np.array(structure.parent)
    on_child = multiply_transposed(problem.H_child, velocity[:, child])
    return on_child + multiply_transposed(problem.H_parent, velocity[:, parent])


def _body_velocities(problem: RowProblem, impulse: Array) -> Array:
    structure = problem.structure
    child, parent = np.array(structure.child), np.array(structure.parent)
    on_child, on_parent = multiply(problem.Y_child, impulse), multiply(problem.Y_parent, impulse)
    shape = (6, structure.bodies + 1, *on_parent.shape[2:])
    total = jnp.zeros(shape, on_parent.dtype).at[:, child].add(on_child)
    return total.at[:, parent].add(on_parent)


def _speed(problem: RowProblem, impulse: Array) -> Array:
    """Speeds of all rows after impulses, less the targets of hard ones."""
    return problem.rate + _delassus(problem, impulse)


def _delassus(problem: RowProblem, impulse: Array) -> Array:
    """A Λ, through the bodies."""
    return row_speeds(problem, _body_velocities(problem, impulse))


def _diagonal(problem: RowProblem) -> Array:
    """Diagonal of A, 1 for rows that do not exist, shape (rows, nodes, *batch)."""
    A = dot(problem.H_child, problem.Y_child) + dot(problem.H_parent, problem.Y_parent)
    return A + _trailing(problem.structure.filler, A)


def _assemble(problem: RowProblem) -> Blocks:
    shape = jnp.broadcast_shapes(problem.H_child.shape, problem.H_parent.shape)
    H_child, Y_child, H_parent, Y_parent = (
        jnp.broadcast_to(x, shape)
        for x in (problem.H_child, problem.Y_child, problem.H_parent, problem.Y_parent)
    )
    return assemble(problem.structure.plan, H_child, Y_child, H_parent, Y_parent)


def _regularized(problem: RowProblem) -> RowProblem:
    """The problem with the least softness that its hard rows have, and unit pivots as fillers."""
    diagonal = _diagonal(problem)
    share = REGULARIZATION[diagonal.dtype.itemsize]
    # Only what the row lacks of it: a row's own softness stays exact, and its derivative.
    lacking = jnp.maximum(share * diagonal - stop_gradient(problem.compliance), 0.0)
    filler = _trailing(problem.structure.filler, diagonal)
    return replace(problem, compliance=problem.compliance + lacking + filler)


def _solve_linear(problem: RowProblem) -> Array:
    """Impulses where no law is bounded: one symmetric solve, differentiable to any order."""
    structure = problem.structure
    plan = structure.plan
    diagonal = _diagonal(problem)
    extra, right, root = problem.compliance, -problem.rate, None
    if structure.row:
        c = 1 / _coordinate_rows(problem, diagonal)
        odds = problem.stiffness / c
        R = problem.stiffness * _coordinate_rows(problem, problem.rate) - problem.impulse
        extra, right, root = _scaled_system(problem, extra, right, c, odds, R)
    root_fixed, extra_fixed = stop_gradient((root, extra))
    factors = _factor(plan, _assemble(stop_gradient(problem)), root_fixed, extra_fixed)

    def times(y):
        if root is None:
            return _delassus(problem, y) + extra * y
        return root * _delassus(problem, root * y) + extra * y

    y = jax.lax.custom_linear_solve(
        times, right, lambda _, b: solve(plan, factors, b), symmetric=True
    )
    return y if root is None else root * y


def _newton_step(
    problem: RowProblem,
    fixed: RowProblem,
    blocks: Blocks,
    impulse: Array,
    bounded: tuple,
    speed: Array,
) -> tuple[Array, tuple[Array, ...]]:
    """One Newton step; differentiable in `problem`, the matrix being that of `fixed`."""
    plan = problem.structure.plan
    c_fixed = 1 / _coordinate_rows(fixed, _diagonal(fixed))
    u = _coordinate_rows(problem, speed)
    Λ = _coordinate_rows(problem, impulse)
    c = 1 / _coordinate_rows(problem, _diagonal(problem))

    # One odds K_k / c and one remainder R_k per law, the linear law first.
    linear = Λ - sum(b.sign * x for b, x in zip(problem.bounds, bounded, strict=True))
    odds = [fixed.stiffness / c_fixed]
    remainders = [linear + problem.stiffness * u - problem.impulse]
    for bound, bound_fixed, λ in zip(problem.bounds, fixed.bounds, bounded, strict=True):
        Φ, _ = complementarity(bound, λ, u, c, problem.smoothing)
        _, a = stop_gradient(complementarity(bound_fixed, λ, u, c_fixed, fixed.smoothing))
        least = LEAST_SOFTNESS[c.dtype.itemsize]
        b = jnp.maximum(1 - a + a * c_fixed * bound_fixed.compliance, least)
        odds.append(a / b)
        remainders.append(bound.sign * Φ / b)
    total, R = sum(odds), sum(remainders)

    wanted = -(speed + problem.compliance * impulse)
    extra, right, root = _scaled_system(problem, fixed.compliance, wanted, c_fixed, total, R)
    factors = _factor(plan, blocks, root, extra)

    def times(y):
        return root * _delassus(fixed, root * y) + extra * y

    y = jax.lax.custom_linear_solve(
        times, right, lambda _, b: solve(plan, factors, b), symmetric=True
    )
    change = root * y
    dΛ = _coordinate_rows(problem, change)
    new = []
    for k, (bound, λ) in enumerate(zip(problem.bounds, bounded, strict=True), start=1):
        # The share of dΛ + R that falls to law k, less its own remainder, without cancellation.
        others = [j for j in range(len(odds)) if j != k]
        at_least = jnp.maximum(total, jnp.finfo(total.dtype).tiny)
        share = odds[k] / at_least
        rest = sum(odds[j] for j in others) / at_least
        rest_R = sum(remainders[j] for j in others)
        # Without any stiffness nothing moves with u, and each law takes back its own remainder.
        rest = jnp.where(total > 0, rest, 1.0)
        new.append(λ + bound.sign * (share * (dΛ + rest_R) - rest * remainders[k]))
    return impulse + change, tuple(new)


def _scaled_system(problem, hard, wanted, c, odds, R):
    """Diagonal, right side and √α of the scaled system, coordinate rows put among the hard ones."""
    structure = problem.structure
    # √α from below: its derivative at no force at all would be infinite.
    floor = 1e-6
    root = jnp.sqrt(jnp.maximum(odds / (1 + odds), floor**2))
    shape = jnp.broadcast_shapes(hard.shape, wanted.shape, (1, 1, *odds.shape[1:]))
    extra = _with_coordinate_rows(structure, jnp.broadcast_to(hard, shape), 1 / ((1 + odds) * c))
    right = jnp.broadcast_to(wanted, shape)
    right = _with_coordinate_rows(structure, right, -R / ((1 + odds) * c * root))
    return extra, right, _with_coordinate_rows(structure, jnp.ones(shape, hard.dtype), root)


def _factor(plan: Plan, blocks: Blocks, root: Array | None, extra: Array):
    scaled = blocks if root is None else scale(plan, blocks, root)
    return factor(plan, add_diagonal(plan, scaled, extra))


def _residual(
    problem: RowProblem, impulse: Array, bounded: tuple, speed: Array
) -> tuple[Array, Array]:
    """Largest violation of a row's law, as a speed, and the largest of the speeds that cancel in
    it; constant for differentiation.
    """
    problem, impulse, bounded, speed = stop_gradient((problem, impulse, bounded, speed))
    structure = problem.structure
    diagonal = _diagonal(problem)
    size = largest(jnp.abs(problem.rate) + diagonal * jnp.abs(impulse), 2)
    violation = jnp.abs(speed + problem.compliance * impulse) * _trailing(structure.hard, speed)
    worst = largest(violation, 2)
    if not structure.row:
        return worst, size
    c = 1 / _coordinate_rows(problem, diagonal)
    u, Λ = _coordinate_rows(problem, speed), _coordinate_rows(problem, impulse)
    linear = Λ - sum(b.sign * x for b, x in zip(problem.bounds, bounded, strict=True))
    remainder = linear + problem.stiffness * u - problem.impulse
    terms = [jnp.abs(remainder) / (c + problem.stiffness)]
    for bound, λ in zip(problem.bounds, bounded, strict=True):
        terms.append(jnp.abs(complementarity(bound, λ, u, c, problem.smoothing)[0]) / c)
    return jnp.maximum(worst, largest(sum(terms), 1)), size


def _coordinate_rows(problem: RowProblem, x: Array) -> Array:
    """The coordinate rows of x (rows, nodes, *batch), shape (coordinate rows, *batch)."""
    structure = problem.structure
    if structure.range:
        row, start, stop = structure.range
        return x[row, start:stop]
    return x[np.array(structure.row, int), np.array(structure.node, int)]


def _with_coordinate_rows(structure: RowStructure, x: Array, values: Array) -> Array:
    """x (rows, nodes, *batch) with its coordinate rows replaced."""
    if structure.range:
        row, start, _ = structure.range
        at = (row, start) + (0,) * (x.ndim - 2)
        values = jnp.broadcast_to(values, (*values.shape[:1], *x.shape[2:]))
        return jax.lax.dynamic_update_slice(x, values[None], at)
    return x.at[np.array(structure.row), np.array(structure.node)].set(values)


def _trailing(constant: np.ndarray, like: Array) -> Array:
    """A constant (rows, nodes) with axes of size 1 for the batch."""
    shape = constant.shape + (1,) * (like.ndim - constant.ndim)
    return jnp.asarray(constant, like.dtype).reshape(shape)
