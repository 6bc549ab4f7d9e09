"""Newton's method for all rows at once: one linear solve, or a few where impulses are bounded.

With c = 1/A_ii, a bounded impulse solves Φ = 0, a smoothed projection of slope a (`bounds`).
Newton's step has dλ_k = -K_k σ du - R_k with b = 1 - a + a c compliance, K_k = a c / b and
R_k = Φ / b (a box has a c of its own); hence dΛ = -K du - R, sums over the laws. With the odds
o = K / c and α = o / (1 + o) it is symmetric and positive definite,

    (S A S + diag(1 / ((1 + o) c))) y = -R / ((1 + o) c √α),    S = diag(√α),    dΛ = S y,

from K = 0 (no force, α = 0) to K = ∞ (held, α = 1), in the same blocks as A. Where a friction's
bounds follow another impulse Λₙ, dΛ = -K du - B dΛₙ - R, B = σ ∂Φ/∂Λₙ / b, and the system

    (diag(α) A + diag(1 / ((1 + o) c)) (1 + B)) dΛ = -R / ((1 + o) c)

is not symmetric, on the same graph.

The iteration ends when all environments are solved to rounding, at the latest after a fixed number
of steps; those that are far from it then get as many more, along a path of falling smoothing. For
differentiation the iterates are constants: the derivative of one more step, taken at the solution
with the matrix held fixed, is that of the solution (implicit function theorem), and costs one
solve. It is taken only where a derivative is asked for.
"""

from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient

from ..algebra.compiler import take
from ..algebra.pytree import replace, static, struct
from .bounds import complementarity, own_scale, widened, widening
from .factor import Blocks, Factor, add_diagonal
from .iteration import Settings, iterated
from .linear import factored, scaled_system, softened, solve_from, solve_symmetric
from .lu import GeneralBlocks, factor_general, solve_general, transposed
from .problem import (
    Impulses,
    RowProblem,
    RowSolution,
    at_rest,
    coordinate_rows,
    delassus,
    diagonal,
    matrix,
    regularized,
    residual,
    speeds,
    with_coordinate_rows,
)

# Least softness of a bound, for the precision of float32, 64.
LEAST_SOFTNESS = {4: 1e-7, 8: 1e-14}
MOST_PATHS = 4


@struct
class Newton:
    """All rows at once by Newton's method, the last factor carrying the derivative.

    smoothing: ν [m/s or rad/s]: bounded laws act as barriers of acceleration ν²/φ, so that
        gradients feel a limit before it is touched; 0 for sharp bounds
    iterations: Newton steps, at most; one linear solve where nothing is bounded
    rescue: paths of falling smoothing, at most, for environments that are far from solved by then:
        Newton's method can go round in circles, and along a path it hardly ever does. The first
        takes 23 steps, the second, half as steep, 43
    regroup: in batches of 64 or more in float32, bring the last eighth of the environments that
        want further steps to their end by themselves. Where bounds are hit all the time, steps take
        a sixth less time, and twice as long to compile
    friction: "coupled" bounds friction by the normal force of the solution; "two passes" by that of
        a solve without friction, as ODE's dWorldStep does
    derivative: "implicit" is that of the solution, for the cost of one more solve; "unrolled"
        that of the iteration, all of whose steps are then taken. Reverse over reverse through a
        rollout with bounds needs this one (forward over reverse, `jax.hessian`, does not)
    """

    smoothing: Array | float = 0.0
    iterations: int = static(default=6)
    rescue: int = static(default=2)
    regroup: bool = static(default=False)
    friction: Literal["coupled", "two passes"] = static(default="coupled")
    derivative: Literal["implicit", "unrolled"] = static(default="implicit")

    def __post_init__(self):
        if self.iterations < 1:
            raise ValueError(f"Newton iterations {self.iterations} must be at least 1")
        if not 0 <= self.rescue <= MOST_PATHS:
            raise ValueError(
                f"Newton rescue {self.rescue} must be 0 to {MOST_PATHS} paths; each takes twice "
                "the steps of the one before, and 2 solve nearly all"
            )

    def solve(self, problem: RowProblem, start: Impulses | None = None) -> RowSolution:
        """See `Solver.solve`."""
        problem = regularized(problem)
        smoothing = jnp.asarray(self.smoothing, problem.rate.dtype)
        if not problem.bounds:
            impulse, factors = _solve_linear(problem)
            at = impulse, ()
            left = residual(problem, smoothing, at, speeds(problem, impulse))
            return RowSolution(*at, *left, factors)
        start = at_rest(problem) if start is None else start
        if self.derivative == "unrolled":
            bounded = partial(_unrolled, self.iterations)
        else:
            settings = Settings(self.iterations, self.rescue, self.regroup)
            bounded = partial(_solve_bounded, settings)
        if problem.follows and self.friction == "two passes":
            normal = bounded(_without_friction(problem), smoothing, start)
            problem = _with_friction_of(problem, normal.impulse)
        return bounded(problem, smoothing, start)

    def at_solution(self) -> "AtSolution | None":
        """See `Solver`."""
        of_solution = self.derivative == "implicit" and self.friction == "coupled"
        return AtSolution(self) if of_solution else None


@struct
class AtSolution:
    """Newton's derivative where the start is the solution: there is nothing left to iterate."""

    newton: Newton

    def solve(self, problem: RowProblem, start: Impulses | None = None) -> RowSolution:
        """The start, with the derivative of the solution; its residual is not looked for."""
        if start is None:
            return self.newton.solve(problem)
        problem = regularized(problem)
        return _known(problem, jnp.asarray(self.newton.smoothing, problem.rate.dtype), start)


class Linearization(NamedTuple):
    """Newton's system at some impulses, constant while its right side moves.

    c: 1/A_ii; odds: K_k / c of each law, the linear one first; softness: b of each bound;
    widening: ∂Φ/∂Λₙ of each bound, None where it is 0; of coordinate rows all
    """

    c: Array
    odds: list[Array]
    softness: list[Array]
    widening: list[Array | None]


def _unrolled(
    iterations: int, problem: RowProblem, smoothing: Array, start: Impulses
) -> RowSolution:
    """All Newton steps, differentiable one by one."""
    blocks = matrix(stop_gradient(problem))
    given = problem, smoothing

    def improve(at, _):
        return _newton_step(given, given, blocks, at, speeds(problem, at[0])), None

    at, _ = jax.lax.scan(improve, stop_gradient(start), None, length=iterations)
    return RowSolution(*at, *residual(problem, smoothing, at, speeds(problem, at[0])))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _solve_bounded(
    settings: Settings, problem: RowProblem, smoothing: Array, start: Impulses
) -> RowSolution:
    """Newton steps until all environments are solved."""
    return iterated(settings, _newton_step, problem, smoothing, start)


@_solve_bounded.defjvp
def _solve_bounded_jvp(settings: Settings, primals: tuple, tangents: tuple) -> tuple:
    """Where the iteration began has no part in the derivative."""
    solution = _solve_bounded(settings, *primals)
    return solution, _slope(solution, primals[:2], tangents[:2])


@jax.custom_jvp
def _known(problem: RowProblem, smoothing: Array, at: Impulses) -> RowSolution:
    """A solution that is known already, with the derivative of `_solve_bounded`."""
    unknown = jnp.zeros(problem.rate.shape[2:], problem.rate.dtype)
    return RowSolution(*at, unknown, unknown)


@_known.defjvp
def _known_jvp(primals: tuple, tangents: tuple) -> tuple:
    solution = _known(*primals)
    return solution, _slope(solution, primals[:2], tangents[:2])


def _slope(
    solution: RowSolution, given: tuple[RowProblem, Array], tangents: tuple[RowProblem, Array]
) -> RowSolution:
    """Derivative of the implicit function: that of one Newton step more."""
    problem = given[0]
    at = solution.impulse, solution.bounded
    blocks = matrix(stop_gradient(problem))

    def once_more(*moving):
        return _newton_step(moving, given, blocks, at, speeds(moving[0], solution.impulse))

    impulse, bounded = jax.jvp(once_more, given, tangents)[1]
    constant = jnp.zeros_like(solution.residual)
    return RowSolution(impulse, bounded, constant, constant)


def _without_friction(problem: RowProblem) -> RowProblem:
    """The problem in which bounds that follow an impulse leave no room."""

    def closed(bound):
        if bound.friction is None:
            return bound
        room = jnp.where(bound.friction > 0, 0.0, 1.0)
        return replace(
            bound, lower=room * bound.lower, upper=room * bound.upper, friction=None, normal=()
        )

    return replace(problem, bounds=tuple(closed(bound) for bound in problem.bounds))


def _with_friction_of(problem: RowProblem, impulse: Array) -> RowProblem:
    """The problem whose friction is bounded by given impulses, not by its own."""
    Λ = coordinate_rows(problem, impulse)
    bounds = (replace(widened(b, Λ), friction=None, normal=()) for b in problem.bounds)
    return replace(problem, bounds=tuple(bounds))


def solve_again(problem: RowProblem, factors: Factor, rate: Array) -> Array:
    """Impulses of rows of other speeds, by the factor of a problem without bounds; its linear laws
    resist the motion and do not begin any.
    """
    problem = replace(problem, rate=rate, impulse=jnp.zeros_like(problem.impulse))
    return _solve_linear(regularized(problem), factors, correct=False)[0]


def solve_with(problem: RowProblem, factors: Factor) -> Array:
    """Impulses of a problem without bounds by the factor of one with the same rows and laws."""
    return _solve_linear(regularized(problem), factors)[0]


def _solve_linear(
    problem: RowProblem, factors: Factor | None = None, correct: bool = True
) -> tuple[Array, Factor]:
    """Impulses where no law is bounded: one symmetric solve, differentiable to any order, corrected
    for the softness of the matrix; and the factor of that.
    """
    structure = problem.structure
    extra, right, root = problem.compliance, -problem.rate, None
    if structure.row:
        c = 1 / coordinate_rows(problem, diagonal(problem))
        odds = problem.stiffness / c
        R = problem.stiffness * coordinate_rows(problem, problem.rate) - problem.impulse
        extra, right, root = scaled_system(problem, extra, right, c, odds, R)
    if factors is None:
        factors = factored(problem, matrix(stop_gradient(problem)), extra, root)
    return solve_symmetric(problem, factors, extra, right, root, correct=correct), factors


def _newton_step(
    moving: tuple[RowProblem, Array],
    fixed: tuple[RowProblem, Array],
    blocks: Blocks,
    at: Impulses,
    speed: Array,
) -> Impulses:
    """One Newton step from impulses `at`.

    Its right side is that of the problem and the smoothing `moving`, with the `speed` of all rows;
    its matrix that of `fixed`. At a solution, its derivative in `moving` is that of the solution.
    """
    problem, smoothing = moving
    impulse, bounded = at
    system = _linearized(*fixed, at, speeds(fixed[0], impulse) if moving is not fixed else speed)
    u, Λ = coordinate_rows(problem, speed), coordinate_rows(problem, impulse)
    c = 1 / coordinate_rows(problem, diagonal(problem))

    # One remainder R_k per law, the linear law first.
    linear = Λ - sum(b.sign * x for b, x in zip(problem.bounds, bounded, strict=True))
    remainders = [linear + problem.stiffness * u - problem.impulse]
    for bound, λ, b in zip(problem.bounds, bounded, system.softness, strict=True):
        Φ, _ = complementarity(widened(bound, Λ), λ, u, c, smoothing)
        remainders.append(bound.sign * Φ / b)
    total, R = sum(system.odds), sum(remainders)

    soft = softened(problem)
    wanted = -(speed + soft * impulse)
    if problem.follows:
        change = _coupled_change(fixed[0], blocks, system, wanted, R)
    else:
        hard = fixed[0].compliance
        extra, right, root = scaled_system(problem, hard, wanted, system.c, total, R)
        factors = factored(fixed[0], blocks, extra, root)
        change = solve_from(fixed[0], factors, extra, right, root, impulse)
    dΛ = coordinate_rows(problem, change)
    for k, B in enumerate(_follows(fixed[0], system), start=1):
        if B is not None:
            remainders[k] = remainders[k] + B * dΛ[np.array(problem.bounds[k - 1].normal)]
    new = []
    # Protects the division, and its derivative, from coordinates without any stiffness: there
    # nothing moves with u, and each law takes back its own remainder.
    stiff = total > 0
    safe = jnp.where(stiff, total, 1.0)
    for k, (bound, λ) in enumerate(zip(problem.bounds, bounded, strict=True), start=1):
        # The share of dΛ + R that falls to law k, less its own remainder, without cancellation.
        others = [j for j in range(len(remainders)) if j != k]
        share = jnp.where(stiff, system.odds[k] / safe, 0.0)
        rest = jnp.where(stiff, sum(system.odds[j] for j in others) / safe, 1.0)
        rest_R = sum(remainders[j] for j in others)
        new.append(λ + bound.sign * (share * (dΛ + rest_R) - rest * remainders[k]))
    return impulse + change, tuple(new)


def _linearized(problem: RowProblem, smoothing: Array, at: Impulses, speed: Array) -> Linearization:
    """Slopes of all laws at some impulses and the speeds after them."""
    impulse, bounded = at
    u, Λ = coordinate_rows(problem, speed), coordinate_rows(problem, impulse)
    c = 1 / coordinate_rows(problem, diagonal(problem))
    least = LEAST_SOFTNESS[c.dtype.itemsize]
    odds, softness, widenings = [problem.stiffness / c], [], []
    for bound, λ in zip(problem.bounds, bounded, strict=True):
        _, a = complementarity(widened(bound, Λ), λ, u, c, smoothing)
        own = own_scale(bound, c)
        b = jnp.maximum(1 - a + a * own * bound.compliance, least)
        odds.append(a * (own / c) / b)
        softness.append(b)
        follows = bound.friction is not None
        widenings.append(widening(bound, λ, Λ, u, c, smoothing) if follows else None)
    return Linearization(c, odds, softness, widenings)


def _follows(problem: RowProblem, system: Linearization) -> list[Array | None]:
    """B of each bound: what dΛₙ takes from its dΛ, None where nothing."""
    return [
        None if f is None else bound.sign * f / b
        for bound, f, b in zip(problem.bounds, system.widening, system.softness, strict=True)
    ]


def _coupled_change(
    problem: RowProblem, blocks: Blocks, system: Linearization, wanted: Array, R: Array
) -> Array:
    """dΛ of all rows where friction follows other impulses."""
    structure = problem.structure
    plan = structure.plan
    odds = sum(system.odds)
    shape = jnp.broadcast_shapes(problem.compliance.shape, wanted.shape)
    one = jnp.ones(shape, wanted.dtype)
    α = with_coordinate_rows(structure, one, odds / (1 + odds))
    own = 1 / ((1 + odds) * system.c)
    extra = jnp.broadcast_to(problem.compliance, shape)
    extra = with_coordinate_rows(structure, extra, own)
    right = with_coordinate_rows(structure, jnp.broadcast_to(wanted, shape), -own * R)
    links = [
        (np.array(bound.normal), own * B)
        for bound, B in zip(problem.bounds, _follows(problem, system), strict=True)
        if B is not None
    ]
    row, node = np.array(structure.row), np.array(structure.node)

    def times(y):
        Λ = coordinate_rows(problem, y)
        follow = sum(E * Λ[normal] for normal, E in links)
        follow = with_coordinate_rows(structure, jnp.zeros_like(y), follow)
        return α * delassus(problem, y) + extra * y + follow

    α_fixed, extra_fixed, links_fixed = stop_gradient((α, extra, [E for _, E in links]))
    A = add_diagonal(
        plan, Blocks(diagonal=blocks.diagonal * α_fixed[:, None], edges=blocks.edges), extra_fixed
    ).diagonal
    for (normal, _), E in zip(links, links_fixed, strict=True):
        A = A.at[row, row[normal], node].add(E)
    lower, upper = blocks.edges, jnp.swapaxes(blocks.edges, 0, 1)
    if len(plan.row):
        lower = take(α_fixed, plan.row, 1)[:, None] * lower
        upper = take(α_fixed, plan.column, 1)[:, None] * upper
    factors = factor_general(plan, GeneralBlocks(diagonal=A, lower=lower, upper=upper))
    return jax.lax.custom_linear_solve(
        times,
        right,
        lambda _, b: solve_general(plan, factors, b),
        lambda _, b: solve_general(plan, transposed(factors), b),
    )
