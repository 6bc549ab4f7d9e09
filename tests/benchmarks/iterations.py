"""Newton steps that the solver takes while tasks run with actions at random.

    python tests/benchmarks/iterations.py [--tasks ant,hopper] [--envs 4096] [--steps 1000]

Each environment starts as its task begins, takes a new action from ±1 in each time step, and goes
on where an episode would end. For each task: the share of time steps that took each number of
Newton steps, of single environments and of the slowest of each `--tile` environments (a batch
waits for its slowest), the mean of both, the most, the limit, and the share of unsolved steps. The
table is in README.md beside this file.
"""

import argparse
from functools import partial
from itertools import pairwise

import jax
import numpy as np

import jaxjoints as jj
from jaxjoints import environments
from jaxjoints.solve.iteration import Settings

# Limits of the groups of the table, each up to its number.
GROUPS = (1, 2, 3, 4, 8, 15, 22)


@partial(jax.jit, static_argnames=("steps", "tile"))
def tiled(task, key, steps, tile):
    """Newton steps, (steps, tile), of a tile of environments, and whether each step was sound."""
    begin, act = jax.random.split(key)
    state = jax.vmap(task.draw, out_axes=-1)(jax.random.split(begin, tile))

    def one(state, key):
        action = jax.random.uniform(key, (task.action_size, tile), minval=-1.0, maxval=1.0)
        control = jax.vmap(task.control, in_axes=-1, out_axes=-1)(action)
        state, info = jj.step(task.system, state, control, dt=task.dt, scheme=task.scheme)
        return state, (info.iterations, info.ok)

    return jax.lax.scan(one, state, jax.random.split(act, steps))[1]


def counted(name, envs, steps, tile):
    """Rows of the table: the task's environments, and the slowest of each tile."""
    task = environments.make(name)
    solver = task.scheme.solver
    limit = Settings(solver.iterations, solver.passes, True).limits[-1]
    found = [
        tiled(task, key, steps, tile)
        for key in jax.random.split(jax.random.key(0), max(envs // tile, 1))
    ]
    each = np.stack([np.asarray(number) for number, _ in found])
    unsolved = 1 - np.mean([np.asarray(ok).mean() for _, ok in found])
    kinds = {"each environment": each, f"slowest of {tile}": each.max(axis=-1)}
    return [
        [name, kind, *shares(numbers), f"{numbers.mean():.2f}", numbers.max(), limit]
        + [f"{100 * unsolved:.3f} %" if kind == "each environment" else ""]
        for kind, numbers in kinds.items()
    ]


def shares(numbers):
    """The share of each group, as text."""
    edges = np.searchsorted(GROUPS, numbers.ravel())
    count = np.bincount(edges, minlength=len(GROUPS))
    return [f"{100 * n / numbers.size:.2f} %" if n else "0" for n in count]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", default="ant,hopper,four_bar_leg")
    parser.add_argument("--envs", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tile", type=int, default=128)
    asked = parser.parse_args()
    groups = [str(n) if n - m == 1 else f"{m + 1} to {n}" for m, n in pairwise((0, *GROUPS))]
    head = ["task", "of", *groups, "mean", "most", "limit", "unsolved"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for name in asked.tasks.split(","):
        for row in counted(name, asked.envs, asked.steps, min(asked.tile, asked.envs)):
            print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
