"""How reliably friction that follows normal forces is solved: three ways, on contacts at random.

    python tests/benchmarks/friction.py
    python tests/benchmarks/friction.py --count 50 --links 1    a first look

"coupled": Newton steps whose matrix knows that friction's bounds follow the normal force (what
`Newton(friction="coupled")` takes); "frozen": symmetric steps, with the bounds that the last
iterate gives; "in turn": bounds frozen until ten steps have solved the rest. The table is in
README.md beside this file.
"""

import argparse
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import jaxjoints as jj
from jaxjoints.solve.bounds import widened
from jaxjoints.solve.problem import (
    Impulses,
    RowProblem,
    at_rest,
    coordinate_rows,
    regularized,
    residual,
    speeds,
)
from support.contacts import contacts

# Links, contacts of each, softness of the contacts as a share of the diagonal of A.
FAMILIES = [(1, 1, 0.0), (1, 2, 0.0), (1, 2, 1e-2), (2, 2, 0.0), (2, 2, 1e-2), (3, 3, 1e-2)]
MOST = 60
INNER = 10
SOLVED = 1e-9
FRICTIONS = [(0.1, 0.3), (0.3, 1.0)]


@jax.jit
def coupled(problem: RowProblem, at: Impulses) -> Impulses:
    """One step that knows how friction's bounds move."""
    found = jj.Newton(iterations=1, rescue=0).solve(problem, at)
    return found.impulse, found.bounded


def frozen(iterations: int):
    """Symmetric steps with the bounds of the iterate before them."""

    @jax.jit
    def step(problem: RowProblem, at: Impulses) -> Impulses:
        Λ = coordinate_rows(problem, at[0])
        bounds = (jj.replace(widened(b, Λ), mu=None, normal=()) for b in problem.bounds)
        found = jj.Newton(iterations=iterations, rescue=0).solve(
            jj.replace(problem, bounds=tuple(bounds)), at
        )
        return found.impulse, found.bounded

    return step


@jax.jit
def left(problem: RowProblem, at: Impulses) -> jax.Array:
    """Residual as a share of the speeds that cancel in it, friction's bounds its own."""
    problem = regularized(problem)
    violation, size = residual(problem, jnp.zeros(()), at, speeds(problem, at[0]))
    return violation / size


def steps(step, problem: RowProblem, most: int) -> np.ndarray:
    """How many each problem takes, `most` + 1 where they are not enough."""
    at, needed = at_rest(problem), np.full(problem.rate.shape[-1], most + 1)
    for count in range(1, most + 1):
        at = step(problem, at)
        done = np.asarray(left(problem, at) <= SOLVED)
        needed = np.where((needed > most) & done, count, needed)
    return needed, ~np.isfinite(np.asarray(left(problem, at)))


def main() -> list[dict]:
    """One line for each family, friction range and way."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, default=500, help="problems of a line")
    options.add_argument("--links", type=int, default=3, help="of a mechanism, at most")
    given = options.parse_args()
    ways = {
        "coupled": (coupled, MOST),
        "frozen": (frozen(1), MOST),
        "in turn": (frozen(INNER), MOST),
    }
    head = "bodies, contacts of each, softness", "μ", "way", "solved", "median, 90 %, 99 % of those"
    print("| " + " | ".join([*head, "by 6", "by 12", "NaN"]) + " |")
    print("|---" * 8 + "|")
    for links, touching, soft in (family for family in FAMILIES if family[0] <= given.links):
        for friction in FRICTIONS:
            problem = contacts(links, touching, given.count, friction=friction, compliance=soft)
            for name, (step, most) in ways.items():
                needed, broken = steps(step, problem, most)
                solved = needed[needed <= most]
                spread = np.percentile(solved, [50, 90, 99]) if len(solved) else [np.nan] * 3
                cells = (
                    f"{links}, {touching}, {soft:g}",
                    f"{friction[0]} to {friction[1]}",
                    name,
                    f"{len(solved) / given.count:.1%}",
                    ", ".join(f"{np.ceil(x):.0f}" for x in spread),
                    f"{np.mean(needed <= 6):.1%}",
                    f"{np.mean(needed <= 12):.1%}",
                    f"{np.mean(broken):.1%}",
                )
                print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
