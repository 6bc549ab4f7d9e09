"""What each workaround of `jaxjoints/algebra/compiler.py` gains: without it over with it.

    python tests/benchmarks/workarounds.py                            all of them: half an hour
    python tests/benchmarks/workarounds.py --cases chain10 --only stored,spread

A column is a ratio: 2.00 means that without the workaround a step takes twice as long. All programs
of a case are compiled one after another in one process and then timed in turn, round after round.
Times are processor times on one core, medians over the rounds, so that other work on the machine
disturbs them little. The last line of a case times the same program, all workarounds on, a second
time: what differs from 1 there is noise.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from statistics import median

if hasattr(os, "sched_setaffinity"):
    # Before JAX starts its threads.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import jaxlib
from cases import CASES, DT
from description import state, system

import jaxjoints as jj
from jaxjoints.algebra import compiler

AGAIN = "nothing (noise)"


def programs(
    case: str, batch: int, steps: int, solver: jj.Newton, gradient: bool = True
) -> list[tuple]:
    """Compiled rollout of a case and its gradient in the start, and the processor time for each."""
    mechanism = CASES[case]()
    built = system(mechanism)
    start = state(mechanism, built, batch)
    scheme = jj.SemiImplicitEuler(solver=solver, projections=2 if mechanism.loops else 0)

    def roll(start: jj.State) -> jax.Array:
        final, _ = jj.rollout(built, start, dt=DT, steps=steps, record_every=steps, scheme=scheme)
        return jnp.sum(final.position**2)

    def reverse(start: jj.State) -> jax.Array:
        moved = lambda position: roll(jj.replace(start, position=position))  # noqa: E731
        return jax.grad(moved)(start.position)

    return [_compiled(function, start) for function in (roll, reverse)[: 2 if gradient else 1]]


def _compiled(function: Callable, start: jj.State) -> tuple[Callable, float]:
    began = time.process_time()
    program = jax.jit(function).lower(start).compile()
    return (lambda: jax.block_until_ready(program(start))), time.process_time() - began


def seconds(run: Callable) -> float:
    """Processor time of one run."""
    began = time.process_time()
    run()
    return time.process_time() - began


def compare(
    case: str, variants: dict, batch: int, steps: int, rounds: int, gradient: bool = True
) -> None:
    """Print the ratios of a case; variants: by name what is disabled, and a solver."""
    built = {}
    for name, (names, solver) in variants.items():
        with compiler.disabled(*names):
            built[name] = programs(case, batch, steps, solver, gradient)
        print(f"{case}: {name or 'all on'} compiled", file=sys.stderr, flush=True)
    times = {name: [[] for _ in runs] for name, runs in built.items()}
    for turn in range(rounds + 1):
        for name, runs in built.items():
            for taken, (run, _) in zip(times[name], runs, strict=True):
                one = seconds(run)
                # The first turn warms up.
                if turn:
                    taken.append(one)
    columns = ["forward", "gradient"][: 2 if gradient else 1]
    columns += [f"compile {column}" for column in columns]
    first, count = None, 2 if gradient else 1
    for name, runs in built.items():
        found = [*map(median, times[name]), *(spent for _, spent in runs)]
        if first is None:
            first, micro = found, 1e6 / batch / steps
            print(f"{case}, batch {batch}, {steps} steps, {rounds} rounds, jaxlib", end=" ")
            print(f"{jaxlib.__version__}:", ", ".join(f"{micro * x:.2f} us" for x in found[:count]))
            print("compiled in", ", ".join(f"{x:.1f} s" for x in found[count:]))
            print("| without | " + " | ".join(columns) + " |")
            print("|---" * (len(columns) + 1) + "|")
        else:
            ratios = (f"{a / b:.2f}" for a, b in zip(found, first, strict=True))
            print(f"| {name} | " + " | ".join(ratios) + " |")
    print(flush=True)


def main() -> None:
    """Print a table for each case."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--cases", default="chain10,chain10limits,fourbar")
    options.add_argument("--only", default=",".join(compiler.SWITCHES))
    options.add_argument("--batch", type=int, default=128)
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--forward", action="store_true", help="no gradients, which compile long")
    given = options.parse_args()
    newton = jj.Newton()
    variants = {name: ((name,), newton) for name in given.only.split(",")}
    variants = {"": ((), newton), **variants, AGAIN: ((), newton)}
    for case in given.cases.split(","):
        compare(case, variants, given.batch, given.steps, given.rounds, not given.forward)


if __name__ == "__main__":
    main()
