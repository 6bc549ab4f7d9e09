"""One Newton step of all rows at once: one linear solve at the slopes of all laws.

A bounded impulse solves Φ = 0, a smoothed projection of slope a and scale s (`bounds`). Newton's
step has dλ_k = -K_k σ du - R_k with b = 1 - a + a s compliance, K_k = a s / b and R_k = Φ / b (a
bound with `upper` has another s); hence dΛ = -K du - R, sums over the laws. With c = 1/A_ii, the
odds o = K / c and α = o / (1 + o) it is symmetric and positive definite,

    (S A S + diag(1 / ((1 + o) c))) y = -R / ((1 + o) c √α),    S = diag(√α),    dΛ = S y,

from K = 0 (no force, α = 0) to K = ∞ (held, α = 1), in the same blocks as A. Where a friction's
bounds follow another impulse Λₙ, dΛ = -K du - B dΛₙ - R, B = σ ∂Φ/∂Λₙ / b, and the system

    (diag(α) A + diag(1 / ((1 + o) c)) (1 + B)) dΛ = -R / ((1 + o) c)

is not symmetric, on the same graph.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient

from ..algebra.places import take
from ..algebra.pytree import static, struct
from .bodies import Bodies, Reduced, reduced
from .bounds import complementarity, impulse_scale, widened, widening
from .factor import Blocks, add_diagonal
from .linear import scaled_system, solve_from
from .lu import GeneralBlocks, GeneralFactor, factor_general, solve_general, transposed
from .problem import (
    Impulses,
    RowProblem,
    RowStructure,
    coordinate_rows,
    delassus,
    diagonal,
    scale,
    speeds,
    with_coordinate_rows,
)

# Least denominator b of a bound, by the bytes of a number (float32, float64).
LEAST_DENOMINATOR = {4: 1e-7, 8: 1e-14}


class Linearization(NamedTuple):
    """Newton's system at some impulses, constant while its right side moves.

    c: 1/A_ii; odds: K_k / c of each law, the linear one first; denominators: b of each bound;
    widening: ∂Φ/∂Λₙ of each bound, None where it is 0; of coordinate rows all
    """

    c: Array
    odds: list[Array]
    denominators: list[Array]
    widening: list[Array | None]


def newton_step(
    moving: tuple[RowProblem, Array],
    fixed: tuple[RowProblem, Array],
    at: Impulses,
    speed: Array,
) -> Impulses:
    """One Newton step from impulses `at`.

    Its right side is that of the problem and the smoothing `moving`, with the `speed` of all rows;
    its matrix that of `fixed`. At a solution, its derivative in `moving` is that of the solution.
    """
    problem, smoothing = moving
    impulse, bounded = at
    system = linearized(*fixed, at, speeds(fixed[0], impulse) if moving is not fixed else speed)
    u, Λ = coordinate_rows(problem, speed), coordinate_rows(problem, impulse)

    # One remainder R_k per law, the linear law first.
    linear = Λ - sum(b.sign * x for b, x in zip(problem.bounds, bounded, strict=True))
    remainders = [linear + problem.augmented_stiffness * u - problem.impulse]
    s = scale(problem)
    for bound, λ, b in zip(problem.bounds, bounded, system.denominators, strict=True):
        Φ, _ = complementarity(widened(bound, Λ), λ, u, s, smoothing)
        remainders.append(bound.sign * Φ / b)
    total, R = sum(system.odds), sum(remainders)

    soft = problem.compliance
    if problem.regularization is not None:
        soft = soft + problem.regularization
    wanted = -(speed + soft * impulse)
    if problem.follows:
        change = _coupled_change(fixed[0], system, wanted, R)
    else:
        hard = fixed[0].compliance
        extra, right, root = scaled_system(problem, hard, wanted, system.c, total, R)
        change = solve_from(fixed[0], extra, right, root, impulse)
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


def linearized(problem: RowProblem, smoothing: Array, at: Impulses, speed: Array) -> Linearization:
    """Slopes of all laws at some impulses and the speeds after them."""
    impulse, bounded = at
    u, Λ = coordinate_rows(problem, speed), coordinate_rows(problem, impulse)
    c = 1 / coordinate_rows(problem, diagonal(problem))
    s, least = scale(problem), LEAST_DENOMINATOR[c.dtype.itemsize]
    odds, denominators, widenings = [problem.augmented_stiffness / c], [], []
    for bound, λ in zip(problem.bounds, bounded, strict=True):
        _, a = complementarity(widened(bound, Λ), λ, u, s, smoothing)
        s_k = impulse_scale(bound, s)
        b = jnp.maximum(1 - a + a * s_k * bound.compliance, least)
        odds.append(a * (s_k / c) / b)
        denominators.append(b)
        follows = bound.mu is not None
        widenings.append(widening(bound, λ, Λ, u, s, smoothing) if follows else None)
    return Linearization(c, odds, denominators, widenings)


def _follows(problem: RowProblem, system: Linearization) -> list[Array | None]:
    """B of each bound: what dΛₙ takes from its dΛ, None where nothing."""
    return [
        None if f is None else bound.sign * f / b
        for bound, f, b in zip(problem.bounds, system.widening, system.denominators, strict=True)
    ]


def _coupled_change(problem: RowProblem, system: Linearization, wanted: Array, R: Array) -> Array:
    """dΛ of all rows where friction follows other impulses."""
    structure = problem.structure
    odds = sum(system.odds)
    shape = jnp.broadcast_shapes(problem.compliance.shape, wanted.shape)
    one = jnp.ones(shape, wanted.dtype)
    α = with_coordinate_rows(structure, one, odds / (1 + odds))
    held_back = 1 / ((1 + odds) * system.c)
    extra = jnp.broadcast_to(problem.compliance, shape)
    extra = with_coordinate_rows(structure, extra, held_back)
    right = with_coordinate_rows(structure, jnp.broadcast_to(wanted, shape), -held_back * R)
    links = [
        (np.array(bound.normal), held_back * B)
        for bound, B in zip(problem.bounds, _follows(problem, system), strict=True)
        if B is not None
    ]

    def times(y):
        Λ = coordinate_rows(problem, y)
        follow = sum(E * Λ[normal] for normal, E in links)
        follow = with_coordinate_rows(structure, jnp.zeros_like(y), follow)
        return α * delassus(problem, y) + extra * y + follow

    fixed = stop_gradient((problem.bodies, α, extra))
    coupled = _Coupled.of(structure, *fixed, [(at, stop_gradient(E)) for at, E in links])
    return jax.lax.custom_linear_solve(
        times, right, lambda _, b: coupled.solved(b), lambda _, b: coupled.solved_transposed(b)
    )


@struct
class _Coupled:
    """The factored matrix diag(α) A + diag(extra) + links, constant.

    factors: of the rows that act on bodies; rest: the bodies with the laws along coordinates of
        tree joints eliminated
    """

    factors: GeneralFactor
    rest: Reduced
    α: Array
    extra: Array
    structure: RowStructure = static()

    @classmethod
    def of(
        cls,
        structure: RowStructure,
        bodies: Bodies,
        α: Array,
        extra: Array,
        links: list[tuple[np.ndarray, Array]],
    ) -> "_Coupled":
        """links: of each coordinate row to another of its node, and how its bound widens."""
        plan, acting = structure.plan, structure.way.nodes
        rest = reduced(bodies, extra, α)
        blocks = rest.blocks()
        near, soft = α[:, :acting], extra[:, :acting]
        diagonal = Blocks(diagonal=blocks.diagonal * near[:, None], edges=blocks.edges)
        diagonal = add_diagonal(plan, diagonal, soft).diagonal
        row, node = np.array(structure.row), np.array(structure.node)
        # No law along a coordinate of a tree joint follows another.
        own = node < acting
        for normal, E in links:
            diagonal = diagonal.at[row[own], row[normal][own], node[own]].add(E[own])
        lower, upper = blocks.edges, jnp.swapaxes(blocks.edges, 0, 1)
        if len(plan.row):
            lower = take(near, plan.row, 1)[:, None] * lower
            upper = take(near, plan.column, 1)[:, None] * upper
        factors = factor_general(plan, GeneralBlocks(diagonal, lower, upper))
        return cls(factors, rest, α, extra, structure)

    def solved(self, b: Array) -> Array:
        """y with the matrix times y = b, both of shape (rows, nodes, *batch)."""
        plan, rest, acting = self.structure.plan, self.rest, self.structure.way.nodes
        if b.shape[1] == acting:
            return solve_general(plan, self.factors, b)
        y = b[:, :acting]
        speed = rest.along(jnp.zeros_like(y), b)[0]
        y = solve_general(plan, self.factors, y - self.α[:, :acting] * speed)
        return jnp.concatenate([y, rest.along(y, b)[1]], axis=1)

    def solved_transposed(self, b: Array) -> Array:
        """y with the transposed matrix times y = b."""
        plan, rest, acting = self.structure.plan, self.rest, self.structure.way.nodes
        if b.shape[1] == acting:
            return solve_general(plan, transposed(self.factors), b)
        α, wanted = self.α, self.α * b
        y = b[:, :acting]
        speed = rest.along(jnp.zeros_like(y), wanted)[0]
        y = solve_general(plan, transposed(self.factors), y - speed)
        _, pushed, speed = rest.along(α[:, :acting] * y, wanted)
        # Of α y and of b less its speed, which is extra y, one may be zero.
        α, extra = α[:, acting:], self.extra[:, acting:]
        along = (α * pushed + extra * (b[:, acting:] - speed)) / (α * α + extra * extra)
        return jnp.concatenate([y, along], axis=1)
