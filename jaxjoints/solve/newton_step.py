"""One Newton step of all rows at once: one linear solve at the slopes of all laws; line search.

At the positions U of its bounded laws (`bounds`) a coordinate row has the linear laws

    λ_k = tangent_k(u) - K_k σ du,    K_k = a_k / R_k,

and with its linear law dΛ = -K du - Σ R_k. K is the sum of the stiffnesses, and R_k is the
difference of an impulse from its law. With c = 1/A_ii, o = K / c and α = o / (1 + o) the system

    (S A S + diag(1 / ((1 + o) c))) y = -R / ((1 + o) c √α),    S = diag(√α),    dΛ = S y

is symmetric and positive definite from K = 0 (no force, α = 0) to K = ∞ (held, α = 1). In this
system the rows of round cones are turned to the direction of slip (`cone`).
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from ..algebra.compiler import materialize
from .bounds import (
    Potential,
    in_cone,
    moved,
    of_partners,
    slope,
    tangent,
    total,
    value,
)
from .cone import Slip, Turn
from .linear import scaled_system, solve_from
from .problem import (
    RowProblem,
    RowStructure,
    cancelling,
    coordinate_rows,
    diagonal,
    speeds,
    with_coordinate_rows,
)

# Trials of the line search: each narrows the interval in which the best length lies.
TRIALS = 8
# Slope at which a trial is close enough, as a share of the slope at the start of the step.
CLOSE = 0.1
# Speed by which a law may leave its bound without being released, as a share of the speeds that
# cancel: rounding of a row that a lock or other laws hold.
SLACK = {4: 3e-6, 8: 1e-13}


class Point(NamedTuple):
    """The iterate.

    impulse: Λ of all rows, (rows, nodes, *batch); positions: U of the bounded laws, (laws,
        *batch)
    """

    impulse: Array
    positions: Array


def newton_step(
    moving: tuple[RowProblem, Potential],
    fixed: tuple[RowProblem, Potential],
    at: Point,
    speed: Array,
) -> Point:
    """One Newton step.

    moving: problem and laws of the right side; fixed: problem and laws of the matrix
    speed: of all rows at the point

    At a solution, the derivative of the step in `moving` is the derivative of the solution.
    """
    slip, U = Slip.of(fixed[1], at.positions), at.positions
    turn, cones = None, fixed[1]
    if slip is not None:
        turn, U = _of_rows(fixed[0].structure, slip.turn), slip.positions(cones, U)
        moving, fixed = ((problem, slip.laws(laws)) for problem, laws in (moving, fixed))
    problem, laws = moving

    def along(x):
        """Numbers of the coordinate rows; cones along and across the direction of slip."""
        x = coordinate_rows(problem, x)
        return x if slip is None else slip.turn.rows(x)

    u, Λ = along(speed), along(at.impulse)
    c = 1 / coordinate_rows(fixed[0], diagonal(fixed[0]))
    a, λ, rows = slope(fixed[1], U), value(laws, U), laws.rows
    # The linear law first: its impulse is the rest that the bounded laws leave.
    stiffness = fixed[0].augmented_stiffness / c
    odds = materialize(a / (fixed[1].resistance * rows.at_laws(c)))
    linear = Λ - total(laws, λ) + problem.augmented_stiffness * u - problem.impulse
    remainders = materialize(laws.sign * (λ - tangent(laws, U, a, rows.at_laws(u))))
    all_odds, R = stiffness + rows.summed(odds), linear + rows.summed(remainders)

    soft = problem.compliance
    if problem.regularization is not None:
        soft = soft + problem.regularization
    wanted, hard = -(speed + soft * at.impulse), fixed[0].compliance
    extra, right, root = scaled_system(problem, hard, wanted, c, all_odds, R)
    step = solve_from(fixed[0], extra, right, root, at.impulse, turn)
    impulse, dΛ = at.impulse + step, along(step)
    ahead = along(speeds(problem, impulse))
    # Protects the division, and its derivative, from coordinates without any stiffness: there no
    # impulse depends on u, and each law takes back its own remainder.
    all_odds = rows.at_laws(all_odds)
    stiff = all_odds > 0
    safe = jnp.where(stiff, all_odds, 1.0)
    # The share of each law in dΛ + R, less its own remainder, without cancellation.
    share = jnp.where(stiff, odds / safe, 0.0)
    rest = jnp.where(stiff, rows.others(stiffness, odds) / safe, 1.0)
    change = share * rows.others(dΛ + linear, remainders) - rest * remainders
    slack = stop_gradient(SLACK[Λ.dtype.itemsize] * cancelling(problem, impulse))
    ahead = rows.at_laws(ahead)
    positions = moved(laws, U, a, λ + laws.sign * change, ahead, slack[None])
    return Point(impulse, positions if slip is None else slip.positions_back(cones, positions))


def _of_rows(structure: RowStructure, turn: Turn) -> Turn:
    """The turn of all rows, (rows, nodes, *batch), from the turn of the coordinate rows."""
    one = jnp.ones((structure.rows, structure.nodes, *turn.cos.shape[1:]), turn.cos.dtype)
    cos, sin = (
        with_coordinate_rows(structure, like, x)
        for like, x in ((one, turn.cos), (0 * one, turn.sin))
    )
    # Every node with a cone has it in these rows.
    partner = list(range(structure.rows))
    for i, j in enumerate(turn.partner):
        if i != j:
            partner[structure.row[i]] = structure.row[j]
    return Turn(*materialize((cos, sin)), tuple(partner))


def between(at: Point, to: Point, length: Array) -> Point:
    """The point at a share `length` (*batch) of the way from `at` to `to`."""

    def part(x, y):
        share = jnp.broadcast_to(length, x.shape)
        return jnp.where(share < 1, x + share * (y - x), y)

    return jax.tree.map(part, at, to)


def step_length(
    problem: RowProblem, laws: Potential, at: Point, to: Point, speed: Array, ahead: Array
) -> Array:
    """The share (*batch) of a step from `at` to `to` at which the sum of all potentials is least.

    speed, ahead: of all rows at both ends

    The slope of the sum along the step is piecewise linear. The search keeps two lengths: at the
    first the sum falls, at the second it rises. The next trial is the corner between them that is
    nearest to the zero of the secant, until no corner is left between them. Round cones and
    smoothed laws bend the slope. There the zero of the secant is the next trial, until the slope is
    nearly 0.
    """
    u, Λ = coordinate_rows(problem, speed), coordinate_rows(problem, at.impulse)
    du, dΛ = coordinate_rows(problem, ahead) - u, coordinate_rows(problem, to.impulse) - Λ
    K, p = problem.augmented_stiffness, problem.impulse
    U, dU = at.positions, to.positions - at.positions
    # Stored: XLA does not vectorize a kernel that both computes and sums.
    works = materialize((du * (Λ + K * u - p), du * (dΛ + K * du)))
    constant, linear = (jnp.sum(x, axis=0) for x in works)
    push = laws.sign * laws.rows.at_laws(du)

    def rise(length: Array) -> Array:
        forces = materialize(push * value(laws, U + length[None] * dU))
        return constant + length * linear - jnp.sum(forces, axis=0)

    corners = _corners(laws, U, dU)
    # Round cones, and smoothed laws, bend the slope between corners.
    bent = bool(laws.rows.across) or laws.barrier is not None

    def narrow(search: _Search) -> _Search:
        found = rise(search.length)
        below = found < 0
        bracket = (
            jnp.where(below, search.length, search.low),
            jnp.where(below, search.high, search.length),
            jnp.where(below, found, search.falls),
            jnp.where(below, search.rises, found),
        )
        bracket = jax.tree.map(partial(jnp.where, search.wanted), bracket, search[:4])
        length, inside = _next_trial(corners, *bracket)
        length = jnp.where(search.wanted, length, search.length)
        wanted = inside | (jnp.abs(found) > CLOSE * jnp.abs(falls)) if bent else inside
        return _Search(*bracket, length, search.wanted & wanted, search.trials + 1)

    ends = jnp.zeros_like(constant), jnp.ones_like(constant)
    falls, rises = (rise(end) for end in ends)
    # The whole step where the sum falls all along, and where its change is only rounding.
    part = (falls < 0) & (rises > 0)
    length, inside = _next_trial(corners, *ends, falls, rises)
    first = _Search(*ends, falls, rises, length, part & (inside | bent), 0)

    def wanted(search: _Search) -> Array:
        return jnp.any(search.wanted) & (search.trials < TRIALS)

    found = jax.lax.while_loop(wanted, narrow, first)
    return jnp.where(part, found.length, 1.0)


class _Search(NamedTuple):
    """The line search, arrays (*batch).

    low, high: lengths around the best one; falls, rises: slopes there, < 0 and ≥ 0
    length: the next trial; wanted: whether there is one; trials: so far
    """

    low: Array
    high: Array
    falls: Array
    rises: Array
    length: Array
    wanted: Array
    trials: Array | int


def _next_trial(
    corners: Array, low: Array, high: Array, falls: Array, rises: Array
) -> tuple[Array, Array]:
    """The corner between two lengths nearest to the zero of the secant of their slopes, and True;
    without a corner between them the zero of the secant, and False.
    """
    slope = rises - falls
    share = jnp.where(slope > 0, -falls / jnp.where(slope > 0, slope, 1.0), 0.5)
    secant = low + (high - low) * share
    inside = (corners > low[None]) & (corners < high[None])
    before = inside & (corners <= secant[None])
    sides = jnp.where(before, corners, -jnp.inf), jnp.where(inside & ~before, corners, jnp.inf)
    below, above = materialize(sides)
    below, above = below.max(axis=0), above.min(axis=0)
    nearest = jnp.where(secant - below <= above - secant, below, above)
    some = jnp.isfinite(nearest)
    return jnp.where(some, nearest, secant), some


def _corners(laws: Potential, U: Array, dU: Array) -> Array:
    """Lengths at which laws reach their bounds, (corners, *batch); infinite where they do not."""
    moves = dU != 0
    safe = jnp.where(moves, dU, 1.0)
    both = [jnp.where(moves, (x - U) / safe, jnp.inf) for x in (laws.lower, laws.upper)]
    if laws.rows.across:
        round_ = in_cone(laws, U)
        # Where |U| of the two laws of a cone equals the bound.
        V, dV = (of_partners(laws.rows, x) for x in (U, dU))
        a, b, c = dU * dU + dV * dV, U * dU + V * dV, U * U + V * V - laws.upper * laws.upper
        c = jnp.where(round_, c, 0.0)
        root, crosses = b * b - a * c, (a > 0) & (b * b > a * c)
        root = jnp.sqrt(jnp.where(crosses, root, 1.0))
        a = jnp.where(crosses, a, 1.0)
        ends = [jnp.where(crosses, x / a, jnp.inf) for x in (-b - root, -b + root)]
        both = [jnp.where(round_, x, y) for x, y in zip(ends, both, strict=True)]
    return materialize(jnp.concatenate(both))
