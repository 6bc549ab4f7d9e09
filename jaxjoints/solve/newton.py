"""Impulses of all rows at once: one linear solve, or Newton's method where impulses are bounded.

Row i of a node has the impulse Λ and the speed u = (A Λ)ᵢ + rateᵢ, A = Σ_b H_bᵀ M_b⁻¹ H_b. Hard
rows ask for u + compliance Λ = 0 (their target is part of the rate). A coordinate row carries the
sum of all laws of that coordinate, Λ = λ₀ + Σ σ_k λ_k: one linear law λ₀ = p - K₀ u and any number
of bounded impulses λ_k, complementary to w_k = σ_k u + bias + compliance λ_k.

With c = 1/A_ii and U = λ - c w, a bounded impulse solves the smoothed projection (Chen & Harker
1993; Kanzow 1996; Smale 1986)

    Φ = λ - lo - p(U - lo) + p(U - hi) = 0,    p(x) = (x + √(x² + 4κ)) / 2,    κ = (c ν)²,

where ν, a speed, is the smoothing. Newton's step has dλ_k = -K_k σ du - R_k with a = p'(U - lo) -
p'(U - hi), b = 1 - a + a c compliance, K_k = a c / b and R_k = Φ / b; hence dΛ = -K du - R, sums
over the laws. With the odds o = K / c and α = o / (1 + o) it is symmetric and positive definite,

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

from ..pytree import replace, static, struct
from .factor import Blocks, add_diagonal, assemble, factor, scale, solve
from .graph import Plan

# Least smoothing [m/s or rad/s] and least softness of a bound, for the precision of float32, 64.
LEAST_SPEED = {4: 1e-6, 8: 1e-10}
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
    def filler(self) -> np.ndarray:
        """1 where a row does not exist: its unit pivot, shape (rows, nodes)."""
        mask = np.zeros((self.rows, len(self.child)))
        for row, node in self.unused:
            mask[row, node] = 1.0
        return mask


@struct
class BoundedRows:
    """At most one bounded impulse for each coordinate row, arrays (coordinate rows, *batch).

    lower, upper: both None for 0 ≤ λ; present: 1 where the law acts, 0 where λ = 0
    """

    sign: Array
    bias: Array
    compliance: Array
    present: Array
    lower: Array | None = None
    upper: Array | None = None


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
    if not problem.bounds:
        impulse = _solve_linear(problem)
        return RowSolution(impulse, (), *_residual(problem, impulse, ()))
    if start is None:
        zero = jnp.zeros_like(problem.rate)
        start = zero, tuple(jnp.zeros_like(_coordinate_rows(problem, zero)) for _ in problem.bounds)
    impulse, bounded = _solve_bounded(iterations, problem, start)
    return RowSolution(impulse, bounded, *_residual(problem, impulse, bounded))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _solve_bounded(
    iterations: int, problem: RowProblem, start: tuple[Array, tuple[Array, ...]]
) -> tuple[Array, tuple[Array, ...]]:
    """Impulses (Λ, λ_k) by Newton's method."""
    blocks = _assemble(problem)
    share = SOLVED[problem.rate.dtype.itemsize]
    regular = replace(problem, compliance=_hard_diagonal(problem, _diagonal(problem)))

    def unsolved(at):
        residual, size = _residual(regular, *at)
        return residual > share * size

    def improve(carry):
        step, at, wanted = carry
        new = _newton_step(problem, problem, blocks, *at)
        # Solved environments stay as they are: what one gets does not depend on its neighbours.
        at = jax.tree.map(lambda x, y: jnp.where(wanted, x, y), new, at)
        return step + 1, at, unsolved(at)

    def go_on(carry):
        step, _, wanted = carry
        return (step < iterations) & jnp.any(wanted)

    first = 0, start, jnp.ones(problem.rate.shape[2:], bool)
    return jax.lax.while_loop(go_on, improve, first)[1]


@_solve_bounded.defjvp
def _solve_bounded_jvp(iterations: int, primals: tuple, tangents: tuple) -> tuple:
    """Derivative of the implicit function; where the iteration began has no part in it."""
    problem, start = primals
    solution = _solve_bounded(iterations, problem, start)
    blocks = _assemble(problem)

    def once_more(moving: RowProblem):
        return _newton_step(moving, problem, blocks, *solution)

    return solution, jax.jvp(once_more, (problem,), tangents[:1])[1]


def body_velocities(problem: RowProblem, impulse: Array) -> Array:
    """M⁻¹ Hᵀ Λ: change of each body's twist in body axes, shape (6, bodies, *batch)."""
    return _body_velocities(problem, impulse)[:, : problem.structure.bodies]


def row_speeds(problem: RowProblem, velocity: Array) -> Array:
    """Hᵀ v of bodies that move at twists (6, bodies + 1, *batch), shape (rows, nodes, *batch)."""
    structure = problem.structure
    child, parent = np.array(structure.child), np.array(structure.parent)
    return _project(problem.H_child, velocity[:, child]) + _project(
        problem.H_parent, velocity[:, parent]
    )


def _body_velocities(problem: RowProblem, impulse: Array) -> Array:
    structure = problem.structure
    child, parent = np.array(structure.child), np.array(structure.parent)
    on_child, on_parent = _combine(problem.Y_child, impulse), _combine(problem.Y_parent, impulse)
    shape = (6, structure.bodies + 1, *on_parent.shape[2:])
    total = jnp.zeros(shape, on_parent.dtype).at[:, child].add(on_child)
    return total.at[:, parent].add(on_parent)


def _combine(Y: Array, impulse: Array) -> Array:
    return sum(Y[:, i] * impulse[i][None] for i in range(Y.shape[1]))


def _project(H: Array, velocity: Array) -> Array:
    return sum(H[i] * velocity[i][None] for i in range(6))


def _delassus(problem: RowProblem, impulse: Array) -> Array:
    """A Λ, through the bodies."""
    return row_speeds(problem, _body_velocities(problem, impulse))


def _diagonal(problem: RowProblem) -> Array:
    """Diagonal of A, 1 for rows that do not exist, shape (rows, nodes, *batch)."""
    H, Y = problem.H_child, problem.Y_child
    A = sum(H[i] * Y[i] for i in range(6))
    H, Y = problem.H_parent, problem.Y_parent
    A = A + sum(H[i] * Y[i] for i in range(6))
    return A + _trailing(problem.structure.filler, A)


def _assemble(problem: RowProblem) -> Blocks:
    shape = jnp.broadcast_shapes(problem.H_child.shape, problem.H_parent.shape)
    H_child, Y_child, H_parent, Y_parent = (
        jnp.broadcast_to(x, shape)
        for x in (problem.H_child, problem.Y_child, problem.H_parent, problem.Y_parent)
    )
    return assemble(problem.structure.plan, H_child, Y_child, H_parent, Y_parent)


def _hard_diagonal(problem: RowProblem, diagonal: Array) -> Array:
    """What the hard rows add to the diagonal of A: compliance, regularization, unit pivots."""
    structure = problem.structure
    share = REGULARIZATION[diagonal.dtype.itemsize]
    # Only what the row lacks of it: a row's own softness stays exact, and its derivative.
    lacking = jnp.maximum(share * diagonal - stop_gradient(problem.compliance), 0.0)
    return problem.compliance + lacking + _trailing(structure.filler, diagonal)


def _solve_linear(problem: RowProblem) -> Array:
    """Impulses where no law is bounded: one symmetric solve, differentiable to any order."""
    structure = problem.structure
    plan = structure.plan
    diagonal = _diagonal(problem)
    extra, right, root = _hard_diagonal(problem, diagonal), -problem.rate, None
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
    problem: RowProblem, fixed: RowProblem, blocks: Blocks, impulse: Array, bounded: tuple
) -> tuple[Array, tuple[Array, ...]]:
    """One Newton step; differentiable in `problem`, the matrix being that of `fixed`."""
    plan = problem.structure.plan
    c_fixed = 1 / _coordinate_rows(fixed, _diagonal(fixed))
    speed = problem.rate + _delassus(problem, impulse)
    u = _coordinate_rows(problem, speed)
    Λ = _coordinate_rows(problem, impulse)
    diagonal = _diagonal(problem)
    c = 1 / _coordinate_rows(problem, diagonal)

    # One odds K_k / c and one remainder R_k per law, the linear law first.
    linear = Λ - sum(b.sign * x for b, x in zip(problem.bounds, bounded, strict=True))
    odds = [fixed.stiffness / c_fixed]
    remainders = [linear + problem.stiffness * u - problem.impulse]
    for bound, bound_fixed, λ in zip(problem.bounds, fixed.bounds, bounded, strict=True):
        Φ, _ = _bound(bound, λ, u, c, problem.smoothing)
        _, a = stop_gradient(_bound(bound_fixed, λ, u, c_fixed, fixed.smoothing))
        least = LEAST_SOFTNESS[c.dtype.itemsize]
        b = jnp.maximum(1 - a + a * c_fixed * bound_fixed.compliance, least)
        odds.append(a / b)
        remainders.append(bound.sign * Φ / b)
    total, R = sum(odds), sum(remainders)

    hard = _hard_diagonal(fixed, stop_gradient(diagonal))
    wanted = -(speed + problem.compliance * impulse)
    extra, right, root = _scaled_system(problem, hard, wanted, c_fixed, total, R)
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
    row, node = np.array(structure.row), np.array(structure.node)
    # √α from below: its derivative at no force at all would be infinite.
    floor = 1e-6
    root = jnp.sqrt(jnp.maximum(odds / (1 + odds), floor**2))
    shape = jnp.broadcast_shapes(hard.shape, wanted.shape, (1, 1, *odds.shape[1:]))
    extra = jnp.broadcast_to(hard, shape).at[row, node].set(1 / ((1 + odds) * c))
    right = jnp.broadcast_to(wanted, shape).at[row, node].set(-R / ((1 + odds) * c * root))
    return extra, right, jnp.ones(shape, hard.dtype).at[row, node].set(root)


def _factor(plan: Plan, blocks: Blocks, root: Array | None, extra: Array):
    scaled = blocks if root is None else scale(plan, blocks, root)
    return factor(plan, add_diagonal(plan, scaled, extra))


def _bound(bound: BoundedRows, λ: Array, u: Array, c: Array, smoothing: Array):
    """Φ of a bounded impulse and the slope a of its projection."""
    w = bound.sign * u + bound.bias + bound.compliance * λ
    s = c * w
    least = LEAST_SPEED[c.dtype.itemsize]
    κ = c * c * (smoothing * smoothing + least * least)
    if bound.upper is None:
        difference = λ - s
        root = jnp.sqrt(difference * difference + 4 * κ)
        total = λ + s
        # Protects from the cancellation of z + s against the root where both are large.
        positive = total > 0
        safe = jnp.where(positive, total, 1.0) + root
        Φ = jnp.where(positive, 2 * (λ * s - κ) / safe, (total - root) / 2)
        a = bound.present * _slope(difference, root, κ)
        return jnp.where(bound.present > 0, Φ, λ), a
    below, a_below = _plus(λ - s - bound.lower, κ)
    above, a_above = _plus(λ - s - bound.upper, κ)
    return λ - bound.lower - below + above, a_below - a_above


def _plus(x: Array, κ: Array) -> tuple[Array, Array]:
    """Smoothed max(x, 0) and its slope."""
    root = jnp.sqrt(x * x + 4 * κ)
    # Protects from the cancellation of x against the root where x is negative.
    negative = x < 0
    value = jnp.where(negative, 2 * κ / (root - jnp.minimum(x, 0.0)), (x + root) / 2)
    return value, _slope(x, root, κ)


def _slope(x: Array, root: Array, κ: Array) -> Array:
    """Slope of the smoothed max(x, 0), in [0, 1]."""
    # Protects from cancellation where x is negative: odds must not come out negative.
    small = 2 * κ / (root * (root - jnp.minimum(x, 0.0)))
    return jnp.where(x < 0, small, (1 + x / root) / 2)


def _residual(problem: RowProblem, impulse: Array, bounded: tuple) -> tuple[Array, Array]:
    """Largest violation of a row's law, as a speed, and the largest of the speeds that cancel in
    it; constant for differentiation.
    """
    problem, impulse, bounded = stop_gradient((problem, impulse, bounded))
    structure = problem.structure
    diagonal = _diagonal(problem)
    speed = problem.rate + _delassus(problem, impulse)
    size = jnp.max(jnp.abs(problem.rate) + diagonal * jnp.abs(impulse), axis=(0, 1))
    violation = jnp.abs(speed + problem.compliance * impulse) * _trailing(structure.hard, speed)
    largest = jnp.max(violation, axis=(0, 1))
    if not structure.row:
        return largest, size
    c = 1 / _coordinate_rows(problem, diagonal)
    u, Λ = _coordinate_rows(problem, speed), _coordinate_rows(problem, impulse)
    linear = Λ - sum(b.sign * x for b, x in zip(problem.bounds, bounded, strict=True))
    remainder = linear + problem.stiffness * u - problem.impulse
    terms = [jnp.abs(remainder) / (c + problem.stiffness)]
    for bound, λ in zip(problem.bounds, bounded, strict=True):
        terms.append(jnp.abs(_bound(bound, λ, u, c, problem.smoothing)[0]) / c)
    return jnp.maximum(largest, jnp.max(sum(terms), axis=0)), size


def _coordinate_rows(problem: RowProblem, x: Array) -> Array:
    """The coordinate rows of x (rows, nodes, *batch), shape (coordinate rows, *batch)."""
    return x[np.array(problem.structure.row, int), np.array(problem.structure.node, int)]


def _trailing(constant: np.ndarray, like: Array) -> Array:
    """A constant (rows, nodes) with axes of size 1 for the batch."""
    shape = constant.shape + (1,) * (like.ndim - constant.ndim)
    return jnp.asarray(constant, like.dtype).reshape(shape)
