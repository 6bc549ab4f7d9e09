"""How exact the solver is, and how many steps it needs, on problems at random.

    python tests/benchmarks/accuracy.py              10 000 problems
    python tests/benchmarks/accuracy.py --share 0.05 fewer
    python tests/benchmarks/accuracy.py --only "ring,chain of 10"

Its tables are in README.md beside this file. Each problem is the same in both precisions and is
solved exactly besides (`tests/support/reference.py`). A family is one batch, so that few programs
are compiled.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import jaxjoints as jj
from jaxjoints.solve.bounds import value
from jaxjoints.solve.iteration import Settings, begun, first_given, improved, laws_of
from jaxjoints.solve.newton_step import Point
from jaxjoints.solve.problem import (
    TOLERATED,
    Impulses,
    RowProblem,
    at_rest,
    body_velocities,
    regularized,
    residual,
    speeds,
)
from support.mechanisms import single
from support.random_rows import Hinges
from support.reference import exact

PLANAR, NEARLY = None, (-4.0, -1.0)
FAMILIES = {
    "chain of 5": (Hinges(5), 2000),
    "chain of 10": (Hinges(10), 1500),
    "chain of 20": (Hinges(20), 1000),
    "chain of 40": (Hinges(40), 300),
    "four-bar, three rows redundant": (Hinges(3, closed=True, tilt=PLANAR), 1500),
    "four-bar, three rows nearly so": (Hinges(3, closed=True, tilt=NEARLY), 1200),
    "ring of 8": (Hinges(8, closed=True), 500),
    "chain of 5 with dry friction": (Hinges(5, boxes=True), 1500),
    "chain of 20 with dry friction": (Hinges(20, boxes=True), 500),
}
SMOOTHING = (0.0, 1e-3, 1e-2, 1e-1)
MOST = 20
# Residual at which steps are counted, as a share of the speeds that cancel in it.
COUNTED = 1e-9
# Change of the speeds from one step to the next before a warm start.
CHANGE = 1e-2
CONDITION = 1e4


class Accuracy(NamedTuple):
    """Of each problem of a family, arrays (problems,).

    residual, share: of float64 in m/s or rad/s; of float32 as a share of the size
    velocity: difference of float64 and float32 from the exact solution, as a share of the largest
    """

    condition: np.ndarray
    verified: np.ndarray
    residual: np.ndarray
    share: np.ndarray
    flagged: np.ndarray
    velocity: tuple[np.ndarray, np.ndarray]


solve = jax.jit(jj.Newton.solve)


def accuracy(problem: RowProblem) -> Accuracy:
    """Newton's method in both precisions beside the exact solution."""
    solver = jj.Newton()
    given = problem, single(problem)
    found = [solve(solver, one) for one in given]
    moved = [
        np.asarray(body_velocities(one, solution.impulse), float)
        for one, solution in zip(given, found, strict=True)
    ]
    answers = [exact(problem, e) for e in range(problem.rate.shape[-1])]
    expected = np.stack([answer.velocity for answer in answers], axis=-1)
    largest = np.max(np.abs(expected), axis=(0, 1))
    double, low = found
    return Accuracy(
        np.array([answer.condition for answer in answers]),
        np.array([answer.verified for answer in answers]),
        np.asarray(double.residual),
        np.asarray(low.residual / low.size),
        np.asarray(~(low.residual <= TOLERATED[4] * (1 + low.size))),
        tuple(np.max(np.abs(v - expected), axis=(0, 1)) / largest for v in moved),
    )


@jax.jit
def steps(problem: RowProblem, smoothing: jax.Array, start: Impulses) -> tuple[jax.Array, Impulses]:
    """Newton steps that each problem needs, `MOST` + 1 where they are not enough, and where all of
    them end.
    """
    settings, problem = Settings(MOST, 1, True), regularized(problem)
    given = first_given(settings, problem, smoothing, start)
    laws = laws_of(settings, problem, smoothing, given)
    speed = speeds(problem, start[0])

    def impulses(point: Point) -> Impulses:
        return point.impulse, value(laws, point.positions)

    def one(carry, count):
        point, speed, needed = carry
        whole = jnp.full(needed.shape, count == 1)
        point, speed, _ = improved(problem, laws, point, speed, whole)
        left, size = residual(problem, laws, impulses(point), speed)
        first = (needed > MOST) & (left <= COUNTED * size)
        return (point, speed, jnp.where(first, count, needed)), None

    needed = jnp.full(problem.rate.shape[2:], MOST + 1)
    first = begun(laws, problem, start, speed), speed, needed
    (point, _, needed), _ = jax.lax.scan(one, first, jnp.arange(1, MOST + 1))
    return needed, impulses(point)


def table(rows: list[tuple]) -> str:
    """Markdown: the first row is the head."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join([*lines[:1], *["|---" * len(rows[0]) + "|"] * (len(rows) > 1), *lines[1:]])


def spread(needed: np.ndarray) -> str:
    """Median, 99th percentile and most."""
    values = (np.percentile(needed, 50), np.percentile(needed, 99), needed.max())
    shown = [f"{np.ceil(value):.0f}" for value in values]
    return ", ".join(f"> {MOST}" if float(x) > MOST else x for x in shown)


def counts(problem: RowProblem) -> list[str]:
    """Steps of a family from a cold start with each smoothing, and from a warm one."""
    cold = at_rest(problem)
    found = [steps(problem, jnp.asarray(smoothing), cold) for smoothing in SMOOTHING]
    for smoothing, (needed, _) in zip(SMOOTHING, found, strict=True):
        unsolved = np.flatnonzero(np.asarray(needed) > MOST)
        if len(unsolved):
            print(f"not solved for ν = {smoothing:g}: problems", *unsolved, file=sys.stderr)
    z = np.random.default_rng(1).normal(size=problem.rate.shape[-1])
    moved = jj.replace(problem, rate=problem.rate * jnp.asarray(1 + CHANGE * z))
    warm = [
        steps(moved, jnp.asarray(smoothing), found[i][1])
        for i, smoothing in enumerate(SMOOTHING[:2])
    ]
    return [spread(np.asarray(needed)) for needed, _ in found + warm]


def main(share: float, families: dict[str, tuple[Hinges, int]] = FAMILIES) -> list[Accuracy]:
    """Both tables, as they are measured."""
    first = [("problems", *(f"ν = {x:g}" for x in SMOOTHING), "warm, ν = 0", "warm, ν = 0.001")]
    second = [
        (
            "problems",
            "number",
            "exact solution verified",
            "condition (median, most)",
            "largest residual, float64",
            "velocities, float64",
            "float32 within 1e-4",
            "flagged",
            "condition < 1e4",
            "velocities there, float32 (median, 99 %, most)",
            "within 1e-4",
        )
    ]
    everything = []
    for name, (family, count) in families.items():
        problem = family.problem(max(4, round(share * count)))
        first.append((name, *counts(problem)))
        found = accuracy(problem)
        everything.append(found)
        easy = found.condition < CONDITION
        sound = found.verified & easy
        double, low = found.velocity
        second.append(
            (
                name,
                len(easy),
                f"{np.mean(found.verified):.2%}",
                f"{np.median(found.condition):.0e}, {np.max(found.condition):.0e}",
                f"{np.max(found.residual):.0e}",
                f"{np.max(double[sound]):.0e}",
                f"{np.mean(found.share <= 1e-4):.2%}",
                found.flagged.sum(),
                f"{np.mean(easy):.0%}",
                ", ".join(f"{x:.0e}" for x in np.percentile(low[sound], [50, 99, 100])),
                f"{np.mean(low[sound] <= 1e-4):.1%}",
            )
        )
        print(table(first[-1:]), table(second[-1:]), sep="\n", file=sys.stderr, flush=True)
    print(table(first), table(second), sep="\n\n")
    return everything


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    options = argparse.ArgumentParser(description="How exact the solver is, and how many steps.")
    options.add_argument("--share", type=float, default=1.0, help="of the 10 000 problems")
    options.add_argument("--only", default="", help="parts of the names of families")
    given = options.parse_args()
    parts = given.only.split(",")
    everything = main(
        given.share, {k: x for k, x in FAMILIES.items() if any(part in k for part in parts)}
    )
    condition, low = (
        np.concatenate(x)
        for x in zip(*((one.condition, one.velocity[1]) for one in everything), strict=True)
    )
    for decade in range(1, 7):
        within = (condition >= 10.0**decade) & (condition < 10.0 ** (decade + 1))
        if within.any():
            worst = np.percentile(low[within], [50, 99, 100])
            print(f"condition 1e{decade} to 1e{decade + 1}:", within.sum(), worst)
