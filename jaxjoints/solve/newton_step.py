"""One Newton step of all rows at once: one linear solve at the slopes of all laws, and its length.

At the positions U of its bounded laws (`bounds`) a coordinate row has the linear laws

    λ_k = tangent_k(u) - K_k σ du,    K_k = a_k / R_k,

and with its linear law dΛ = -K du - Σ R_k, where K sums the stiffnesses and R_k is by what an
impulse misses its law. With c = 1/A_ii, the odds o = K / c and α = o / (1 + o) the system

    (S A S + diag(1 / ((1 + o) c))) y = -R / ((1 + o) c √α),    S = diag(√α),    dΛ = S y

is symmetric and positive definite from K = 0 (no force, α = 0) to K = ∞ (held, α = 1).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from .bounds import Potential, moved, sharp_value, slope, tangent, value
from .linear import scaled_system, solve_from
from .problem import SOLVED, RowProblem, cancelling, coordinate_rows, diagonal, speeds

# Trials of a length: each brings two lengths, between which the best lies, nearer to each other.
TRIALS = 8

Laws = tuple[Potential, ...]


class Point(NamedTuple):
    """Where the iteration is.

    impulse: Λ of all rows, (rows, nodes, *batch); positions: U of each bounded law, (coordinate
        rows, *batch)
    """

    impulse: Array
    positions: tuple[Array, ...]


def newton_step(
    moving: tuple[RowProblem, Laws], fixed: tuple[RowProblem, Laws], at: Point, speed: Array
) -> Point:
    """One Newton step.

    Its right side is that of the problem and the laws `moving`, with the `speed` of all rows at the
    point; its matrix that of `fixed`. At a solution, its derivative in `moving` is that of the
    solution.
    """
    problem, laws = moving
    u, Λ = coordinate_rows(problem, speed), coordinate_rows(problem, at.impulse)
    c = 1 / coordinate_rows(fixed[0], diagonal(fixed[0]))
    slopes = [slope(law, U) for law, U in zip(fixed[1], at.positions, strict=True)]
    odds = [fixed[0].augmented_stiffness / c]
    odds += [a / (law.resistance * c) for law, a in zip(fixed[1], slopes, strict=True)]
    # The linear law first: it has what the bounded ones leave of the impulse.
    bounded = [value(law, U) for law, U in zip(laws, at.positions, strict=True)]
    linear = Λ - sum(law.sign * λ for law, λ in zip(laws, bounded, strict=True))
    remainders = [linear + problem.augmented_stiffness * u - problem.impulse]
    for law, U, a, λ in zip(laws, at.positions, slopes, bounded, strict=True):
        remainders.append(law.sign * (λ - tangent(law, U, a, u)))
    total, R = sum(odds), sum(remainders)

    soft = problem.compliance
    if problem.regularization is not None:
        soft = soft + problem.regularization
    wanted, hard = -(speed + soft * at.impulse), fixed[0].compliance
    extra, right, root = scaled_system(problem, hard, wanted, c, total, R)
    change = solve_from(fixed[0], extra, right, root, at.impulse)
    dΛ = coordinate_rows(problem, change)
    ahead = coordinate_rows(problem, speeds(problem, at.impulse + change))
    # Protects the division, and its derivative, from coordinates without any stiffness: there
    # nothing moves with u, and each law takes back its own remainder.
    stiff = total > 0
    safe = jnp.where(stiff, total, 1.0)
    slack = stop_gradient(SOLVED[Λ.dtype.itemsize] * cancelling(problem, at.impulse))
    positions = []
    for k, (law, U, a, λ) in enumerate(zip(laws, at.positions, slopes, bounded, strict=True), 1):
        # The share of dΛ + R that falls to law k, less its own remainder, without cancellation.
        others = [j for j in range(len(remainders)) if j != k]
        share = jnp.where(stiff, odds[k] / safe, 0.0)
        rest = jnp.where(stiff, sum(odds[j] for j in others) / safe, 1.0)
        rest_R = sum(remainders[j] for j in others)
        λ = λ + law.sign * (share * (dΛ + rest_R) - rest * remainders[k])
        positions.append(moved(law, U, a, λ, ahead, slack[None]))
    return Point(at.impulse + change, tuple(positions))


def between(at: Point, to: Point, length: Array) -> Point:
    """The point at a share (*batch) of the way."""

    def part(x, y):
        share = jnp.broadcast_to(length, x.shape)
        return jnp.where(share < 1, x + share * (y - x), y)

    return jax.tree.map(part, at, to)


def step_length(
    problem: RowProblem, laws: Laws, at: Point, to: Point, speed: Array, ahead: Array
) -> Array:
    """The share (*batch) of a step from `at` to `to` at which the sum of all potentials is least.

    speed, ahead: of all rows at both ends

    Its slope along the step is piecewise linear. Between two lengths, at which it falls and rises,
    the corner nearest to the zero of their secant is tried next. Steps of smoothed laws are whole.
    """
    u, Λ = coordinate_rows(problem, speed), coordinate_rows(problem, at.impulse)
    du, dΛ = coordinate_rows(problem, ahead) - u, coordinate_rows(problem, to.impulse) - Λ
    K, p = problem.augmented_stiffness, problem.impulse
    steps = [y - x for x, y in zip(at.positions, to.positions, strict=True)]
    constant = jnp.sum(du * (Λ + K * u - p), axis=0)
    linear = jnp.sum(du * (dΛ + K * du), axis=0)

    def rise(length: Array) -> Array:
        laws_at = zip(laws, at.positions, steps, strict=True)
        forces = sum(law.sign * sharp_value(law, U + length[None] * dU) for law, U, dU in laws_at)
        return constant + length * linear - jnp.sum(du * forces, axis=0)

    corners = _corners(laws, at.positions, steps)

    def nearest(low, high, secant):
        best, found = jnp.full_like(secant, jnp.inf), secant
        for corner in corners:
            inside = (corner > low[None]) & (corner < high[None])
            away = jnp.where(inside, jnp.abs(corner - secant[None]), jnp.inf)
            least = away.min(axis=0, initial=jnp.inf)
            here = jnp.where(away <= least[None], corner, -jnp.inf).max(axis=0, initial=-jnp.inf)
            found = jnp.where(least < best, here, found)
            best = jnp.minimum(least, best)
        return found

    def narrow(_, bracket):
        low, high, falls, rises = bracket
        length = nearest(low, high, _secant(bracket))
        found = rise(length)
        below = found < 0
        return (
            jnp.where(below, length, low),
            jnp.where(below, high, length),
            jnp.where(below, found, falls),
            jnp.where(below, rises, found),
        )

    def search() -> Array:
        ends = jnp.zeros_like(constant), jnp.ones_like(constant)
        first = *ends, rise(ends[0]), rise(ends[1])
        length = _secant(jax.lax.fori_loop(0, TRIALS, narrow, first))
        # The whole step where it falls all along, and where it is nothing but rounding.
        return jnp.where((first[2] < 0) & (first[3] > 0), length, 1.0)

    smooth = jnp.any(jnp.stack([jnp.any(law.barrier > 0) for law in laws]))
    return jax.lax.cond(smooth, lambda: jnp.ones_like(constant), search)


def _secant(bracket: tuple[Array, Array, Array, Array]) -> Array:
    """Where a line through both ends is zero."""
    low, high, falls, rises = bracket
    slope = rises - falls
    return low + (high - low) * jnp.where(slope > 0, -falls / jnp.where(slope > 0, slope, 1.0), 0.5)


def _corners(laws: Laws, positions: Sequence[Array], steps: Sequence[Array]) -> list[Array]:
    """Lengths at which laws reach their bounds, infinite for none."""
    found = []
    for law, U, dU in zip(laws, positions, steps, strict=True):
        moves = dU != 0
        for bound in (law.lower, law.upper):
            share = (bound - U) / jnp.where(moves, dU, 1.0)
            found.append(jnp.where(moves, share, jnp.inf))
    return found
