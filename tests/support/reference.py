"""The rows of one environment solved exactly: dense, in numpy's float64, slow and simple.

Each law is one unknown x in a box with the speed w = M x + q, w = 0 inside of the box, ≥ 0 at its
lower end, ≤ 0 at its upper one. Hard and linear laws have a box without ends.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from scipy.linalg import cho_factor, cho_solve

# Softness of each proximal step, as a share of the diagonal: redundant rows become solvable, and
# steps that follow take it away again.
PROXIMAL = 1e-11
PROXIMAL_STEPS = 100
# Share of a problem's numbers below which a sign is rounding.
SIGN = 1e-14
# Largest violation of a law, as a share of the speeds that cancel in it.
EXACT = 1e-12
# Steps without progress before boxes change one at a time, which ends for certain.
PATIENCE = 8
FIXED_POINT_STEPS = 300
# Change of friction's boxes at which normal forces and they agree, as a share of the largest.
SETTLED = 1e-13
# Share of the largest eigenvalue below which a direction counts as one of redundant rows.
REDUNDANT = 1e-13


@dataclass(frozen=True)
class Laws:
    """All laws of one environment.

    A: of all rows that exist, (n, n), n counted by `place` (rows, nodes), -1 for those that do not
    rate: of those rows with the impulses that no speed changes, `constant` (n,)
    row: of each law, its row in A; sign: of its impulse there
    bias, compliance, lower, upper: of each law; friction: μ; normal: the row whose impulse the box
        follows
    """

    A: np.ndarray
    place: np.ndarray
    rate: np.ndarray
    constant: np.ndarray
    row: np.ndarray
    sign: np.ndarray
    bias: np.ndarray
    compliance: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    friction: np.ndarray
    normal: np.ndarray
    bounded: list[np.ndarray]

    @property
    def M(self) -> np.ndarray:
        A = self.A[np.ix_(self.row, self.row)]
        return self.sign[:, None] * A * self.sign + np.diag(self.compliance)

    @property
    def q(self) -> np.ndarray:
        return self.sign * self.rate[self.row] + self.bias

    def impulse(self, x: np.ndarray) -> np.ndarray:
        """Λ of each row."""
        Λ = self.constant.copy()
        np.add.at(Λ, self.row, self.sign * x)
        return Λ

    def width(self, Λ: np.ndarray) -> np.ndarray:
        """By how much friction widens each box at impulses Λ."""
        return self.friction * np.abs(Λ[self.normal])

    def boxed(self, width: np.ndarray) -> "Laws":
        """With boxes of a given width."""
        return replace(self, lower=self.lower - width, upper=self.upper + width)


@dataclass(frozen=True)
class Exact:
    """A solution: impulses of rows and of bounds as a `RowSolution` has them, one environment.

    violation: largest of a law, as a speed; size: of the speeds that cancel in it
    condition: of the rows that hold, scaled to unit diagonal, redundant directions left out
    settled: whether friction and normal forces agree
    velocity: M⁻¹ Hᵀ Λ, (6, bodies)
    """

    impulse: np.ndarray
    bounded: list[np.ndarray]
    velocity: np.ndarray
    violation: float
    size: float
    condition: float
    settled: bool

    @property
    def verified(self) -> bool:
        """Whether all laws hold to rounding, friction's with the normal forces that came out."""
        return self.settled and self.violation <= EXACT * self.size


def environment(problem: Any, e: int) -> Any:
    """One environment of a problem with one batch axis, in numpy's float64."""
    size = problem.rate.shape[-1]
    return jax.tree.map(
        lambda x: np.asarray(x, float)[..., e if x.shape[-1] == size else 0], problem
    )


def on_bodies(problem: Any) -> tuple[np.ndarray, np.ndarray]:
    """H and Y of one environment's rows on all bodies, (6, bodies + 1, rows, nodes)."""
    structure = problem.structure
    mass, inertia = problem.bodies.inverse_mass, problem.bodies.inverse_inertia
    H = np.zeros((6, len(mass), structure.rows, structure.nodes))
    for part, (nodes, bodies) in zip(problem.bodies.H, structure.way.sides, strict=True):
        for i, (node, body) in enumerate(zip(nodes, bodies, strict=True)):
            H[:, body, :, node] += part[:, :, i]
    linear, angular = H[:3] * mass[None, :, None, None], np.einsum("ijb,jbrn->ibrn", inertia, H[3:])
    return H, np.concatenate([linear, angular])


def laws_of(problem: Any) -> Laws:
    """All laws of one environment."""
    structure = problem.structure
    exists = structure.filler == 0
    place = np.full(exists.shape, -1)
    place[exists] = np.arange(exists.sum())
    H, Y = (x[..., exists].reshape(-1, exists.sum()) for x in on_bodies(problem))
    A = H.T @ Y
    A = (A + A.T) / 2
    coordinate = place[structure.row, structure.node].astype(int)
    stiff = problem.augmented_stiffness > 0
    constant = np.zeros(len(A))
    constant[coordinate[~stiff]] = problem.impulse[~stiff]
    rate = problem.rate[exists] + A @ constant

    hard = place[structure.hard & exists]
    K, p = problem.augmented_stiffness[stiff], problem.impulse[stiff]
    endless = [np.full(len(rows), np.inf) for rows in (hard, coordinate[stiff])]
    fields = [
        (hard, 1.0, 0.0, problem.compliance[structure.hard & exists], -endless[0], endless[0]),
        (coordinate[stiff], 1.0, -p / K, 1 / K, -endless[1], endless[1]),
    ]
    bounded, count = [], len(hard) + len(K)
    friction, normal = [np.zeros(count)], [np.zeros(count, int)]
    for bound in problem.bounds:
        lower, upper = bound.lower, bound.upper
        if upper is None:
            lower, upper = 0 * bound.sign, np.where(bound.present > 0, np.inf, 0.0)
        fields.append((coordinate, bound.sign, bound.bias, bound.compliance, lower, upper))
        follows = bound.mu is not None
        friction.append(bound.mu if follows else 0 * bound.sign)
        normal.append(coordinate[list(bound.normal)] if follows else 0 * coordinate)
        bounded.append(count + np.arange(len(coordinate)))
        count += len(coordinate)
    rows = np.concatenate([field[0] for field in fields])
    others = (
        np.concatenate([np.broadcast_to(field[i], len(field[0])) for field in fields])
        for i in range(1, 6)
    )
    return Laws(
        A,
        place,
        rate,
        constant,
        rows,
        *others,
        np.concatenate(friction),
        np.concatenate(normal),
        bounded,
    )


def exact(problem: Any, e: int) -> Exact:
    """The solution of one environment of a problem, least in its norm where rows are redundant."""
    one = environment(problem, e)
    laws = laws_of(one)
    x, width, settled = np.zeros(len(laws.row)), np.zeros(len(laws.row)), False
    for _ in range(FIXED_POINT_STEPS):
        boxed = laws.boxed(width)
        x = monotone(boxed.M, boxed.q, boxed.lower, boxed.upper, x)
        new = laws.width(laws.impulse(x))
        settled = np.max(np.abs(new - width), initial=0.0) <= SETTLED * np.max(new, initial=0.0)
        if settled:
            break
        width = new
    return _verified(one, laws, x, bool(settled))


def monotone(M, q, lower, upper, start) -> np.ndarray:
    """x in its box with M x + q complementary, M positive semidefinite: proximal steps."""
    d = np.sqrt(np.diagonal(M))
    unit = M / d / d[:, None] + PROXIMAL * np.eye(len(M))
    y, at = start * d, None
    lower, upper, q = lower * d, upper * d, q / d
    size = np.max(np.abs(q), initial=0.0)
    for _ in range(PROXIMAL_STEPS):
        new, at = boxed_solution(unit, q - PROXIMAL * y, lower, upper, at)
        moved, y = np.max(np.abs(new - y), initial=0.0), new
        if PROXIMAL * moved <= SIGN * (size + np.max(np.abs(y), initial=0.0)):
            break
    return y / d


def boxed_solution(M, q, lower, upper, at) -> tuple[np.ndarray, np.ndarray]:
    """The solution for M positive definite, and at which end of its box each is (-1, 0, 1).

    Block principal pivoting, one at a time where that does not come closer (Murty's rule), which
    ends but for rounding: then the last attempt, which `Exact.verified` judges.
    """
    endless = np.isinf(lower) & np.isinf(upper)
    at = np.where(endless, 0, np.where(np.isinf(lower), 1, -1)) if at is None else at.copy()
    fewest, patience = len(q) + 1, PATIENCE
    for _ in range(10 * (len(q) + 10)):
        x = np.where(at < 0, lower, np.where(at > 0, upper, 0.0))
        inside = at == 0
        if inside.any():
            part = M[np.ix_(inside, inside)]
            given = -(q[inside] + M[np.ix_(inside, ~inside)] @ x[~inside])
            factor = cho_factor(part)
            found = cho_solve(factor, given)
            for _ in range(2):
                found = found + cho_solve(factor, given - part @ found)
            x[inside] = found
        w = M @ x + q
        least = SIGN * (np.max(np.abs(q)) + np.max(np.abs(x)))
        below, above = inside & (x < lower - least), inside & (x > upper + least)
        freed = ((at < 0) & (w < -least) | (at > 0) & (w > least)) & (lower < upper)
        wrong = below | above | freed
        count = wrong.sum()
        if count == 0:
            break
        if count < fewest:
            fewest, patience = count, PATIENCE
        elif patience:
            patience -= 1
        else:
            wrong = np.arange(len(q)) == np.flatnonzero(wrong)[-1]
        at = np.where(wrong, np.where(below, -1, np.where(above, 1, 0)), at)
    return np.clip(x, lower, upper), at


def violation(laws: Laws, x: np.ndarray) -> float:
    """Largest violation of a law by impulses x, as a speed, friction by its own normal force."""
    laws = laws.boxed(laws.width(laws.impulse(x)))
    M, d = laws.M, np.diagonal(laws.M)
    natural = x - np.clip(x - (M @ x + laws.q) / d, laws.lower, laws.upper)
    return np.max(np.abs(natural) * d, initial=0.0)


def _verified(problem: Any, laws: Laws, x: np.ndarray, settled: bool) -> Exact:
    """Impulses and how far they are from all laws."""
    Λ = laws.impulse(x)
    size = np.max(
        np.abs(laws.rate - laws.A @ laws.constant) + np.diagonal(laws.A) * np.abs(Λ), initial=0.0
    )
    width = laws.width(Λ)
    held = (laws.lower - width < x) & (x < laws.upper + width)
    M = laws.M[np.ix_(held, held)]
    root = np.sqrt(np.diagonal(M))
    eigenvalues = np.linalg.eigvalsh(M / root / root[:, None])
    most = np.max(eigenvalues, initial=1.0)
    condition = most / np.min(eigenvalues[eigenvalues > REDUNDANT * most], initial=most)
    impulse = np.where(laws.place < 0, 0.0, Λ[laws.place])
    velocity = np.einsum("abrn,rn->ab", on_bodies(problem)[1], impulse)[:, :-1]
    bounded = [x[rows] for rows in laws.bounded]
    return Exact(impulse, bounded, velocity, violation(laws, x), size, condition, settled)
