"""What each workaround of `jaxjoints/algebra/compiler.py` gains: without it over with it.

    python tests/benchmarks/workarounds.py                              small pieces of a step
    python tests/benchmarks/workarounds.py --cases chain10,fourbar      whole rollouts: minutes each
    python tests/benchmarks/workarounds.py --cases chain10 --only stored,spread --forward

A column is a ratio: 2.00 means that without the workaround the piece takes twice as long. With and
without are compiled one after the other in one process and then timed in turn, round after round.
Times are processor times on one core, medians over the rounds, so that other work on the machine
disturbs them little. Of whole rollouts the last line measures the same program a second time: what
differs from 1 there is noise; of pieces the last column says it, the larger quartile of the ratio
of neighbouring rounds over the smaller, forward.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median, quantiles

if hasattr(os, "sched_setaffinity"):
    # Before JAX starts its threads.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from cases import CASES, DT
from description import state, system

import jaxjoints as jj
from jaxjoints.algebra import compiler, dense, rotation

AGAIN = "nothing (noise)"
# Turns of the loop in which a piece runs, so that the start of a program counts little.
TURNS = 200
BATCH = 128


def factored(A, B):
    """Blocks beside the diagonal times an inverse factor, and the product that they leave."""
    inverse = compiler.stored(dense.cholesky_inverse)(A)
    coupling = compiler.stored(dense.product_transposed)(B, inverse)
    return compiler.stored(dense.product_transposed)(coupling, coupling)


def read_often(A):
    """A product of a matrix whose entries cost something."""
    A = compiler.materialize(jnp.sin(A) * jnp.cos(A))
    return dense.product(A, A)


def looped(A):
    """Matrix products in a loop, of which each turn lies in three loops of one turn."""

    def nested(levels, A, _):
        if levels:
            return compiler.scan(partial(nested, levels - 1), A, None, 1)[0], None
        return 0.5 * dense.product(A, jnp.tanh(A)), None

    return jax.lax.scan(partial(nested, 3), A, None, length=10)[0]


def turned(q, v):
    """Ten vectors turned, by ten uses of one function."""
    return sum(rotation.quat_rotate(q, (1.0 + i) * v) for i in range(10))


# For each switch a function and the shapes of its arguments.
PIECES = {
    "once": (turned, ((4, 10), (3, 10))),
    "stored": (factored, ((6, 6, 5), (6, 6, 5))),
    "materialize": (read_often, ((6, 6, 5),)),
    "spread": (dense.product, ((5, 6, 10), (6, 5, 10))),
    "arctan": (rotation.arctan2, ((10,), (10,))),
    "scan": (looped, ((3, 3, 10),)),
}


def arguments(shapes: tuple) -> list[jax.Array]:
    """Arrays of a piece; matrices are positive definite where they are square."""
    draw = np.random.default_rng(0).standard_normal
    found = []
    for shape in shapes:
        x = draw((*shape, BATCH))
        if len(shape) == 3 and shape[0] == shape[1]:
            x = 0.1 * x + np.eye(shape[0]).reshape(shape[0], shape[0], 1, 1)
        found.append(jnp.asarray(x, jnp.float32))
    return found


def piece(name: str, rounds: int) -> list[float]:
    """Time without a workaround over that with it: forward, derivative, and compilation of both;
    and the noise of the first.
    """
    function, shapes = PIECES[name]
    inputs = arguments(shapes)

    def reverse(*inputs):
        value, pulled = jax.vjp(function, *inputs)
        return pulled(jnp.ones_like(value))

    found = []
    for one in (function, reverse):
        runs, spent = {}, {}
        for names in ((), (name,)):
            with compiler.disabled(*names):
                runs[names], spent[names] = _compiled(partial(_repeated, one), *inputs)
        pairs = _times(list(runs.values()), rounds)
        found.append((pairs, [spent[(name,)] / spent[()]]))
    ratios = [median(without) / median(usual) for (usual, without), _ in found]
    lower, _, upper = quantiles([b / a for a, b in zip(*found[0][0], strict=True)])
    return [*ratios, *(spent[0] for _, spent in found), upper / lower]


def _compiled(function: Callable, *inputs) -> tuple[Callable, float]:
    """A compiled function that waits for its end, and the processor time that this took."""
    began = time.process_time()
    program = jax.jit(function).lower(*inputs).compile()
    return (lambda: jax.block_until_ready(program(*inputs))), time.process_time() - began


def _repeated(function: Callable, *inputs: jax.Array) -> jax.Array:
    """The results of the last of `TURNS` runs of a function, each of which needs the one before."""

    def turn(_, last):
        # All results are carried, so that none of their items can be left out.
        moved = 1e-9 * jax.tree.leaves(last)[0].ravel()[0]
        return function(*(x + moved for x in inputs))

    shapes = jax.eval_shape(function, *inputs)
    none = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return jax.lax.fori_loop(0, TURNS, turn, none)


def _times(runs: list[Callable], rounds: int) -> list[list[float]]:
    """Processor times of runs, in turn; a first turn warms up."""
    times = [[] for _ in runs]
    for turn in range(rounds + 1):
        for taken, run in zip(times, runs, strict=True):
            began = time.process_time()
            run()
            if turn:
                taken.append(time.process_time() - began)
    return times


def programs(
    case: str, batch: int, steps: int, solver: jj.Newton, gradient: bool
) -> list[tuple[Callable, float]]:
    """Compiled rollout of a case and its gradient in the start, and the processor time for each."""
    mechanism = CASES[case]()
    built = system(mechanism)
    start = state(mechanism, built, batch)
    scheme = jj.SemiImplicitEuler(solver=solver, projections=1 if mechanism.loops else 0)

    def roll(start: jj.State) -> jax.Array:
        final, _ = jj.rollout(built, start, dt=DT, steps=steps, record_every=steps, scheme=scheme)
        return jnp.sum(final.position**2)

    def reverse(start: jj.State) -> jax.Array:
        moved = lambda position: roll(jj.replace(start, position=position))  # noqa: E731
        return jax.grad(moved)(start.position)

    return [_compiled(function, start) for function in (roll, reverse)[: 2 if gradient else 1]]


def compare(
    case: str, variants: dict, batch: int, steps: int, rounds: int, gradient: bool = True
) -> None:
    """Print the ratios of a case; variants: by name what is disabled, and a solver."""
    built = {}
    for name, (names, solver) in variants.items():
        with compiler.disabled(*names):
            built[name] = programs(case, batch, steps, solver, gradient)
        print(f"{case}: {name or 'all on'} compiled", file=sys.stderr, flush=True)
    count = 2 if gradient else 1
    times = iter(_times([run for runs in built.values() for run, _ in runs], rounds))
    columns = ["forward", "gradient"][:count]
    columns += [f"compile {column}" for column in columns]
    first = None
    for name, runs in built.items():
        found = [*(median(next(times)) for _ in runs), *(spent for _, spent in runs)]
        if first is None:
            first, micro = found, 1e6 / batch / steps
            print(f"{case}, batch {batch}, {steps} steps, {rounds} rounds:", end=" ")
            print(", ".join(f"{micro * x:.2f} us" for x in found[:count]), end="; ")
            print("compiled in", ", ".join(f"{x:.1f} s" for x in found[count:]))
            _head("without", *columns)
        else:
            _row(name, (a / b for a, b in zip(found, first, strict=True)))
    print(flush=True)


def _head(*columns: str) -> None:
    print("| " + " | ".join(columns) + " |")
    print("|---" * len(columns) + "|")


def _row(name: str, ratios) -> None:
    print(f"| {name} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |", flush=True)


def main() -> None:
    """Print a table of the pieces, or one for each case."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--cases", default="", help="whole rollouts of these instead")
    options.add_argument("--only", default=",".join(PIECES))
    options.add_argument("--batch", type=int, default=128)
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--forward", action="store_true", help="no gradients, which compile long")
    given = options.parse_args()
    print(f"jaxlib {jaxlib.__version__}")
    if not given.cases:
        columns = "forward", "derivative", "compile forward", "compile derivative", "noise"
        _head("without", *columns)
        for name in given.only.split(","):
            _row(name, piece(name, given.rounds))
        return
    newton = jj.Newton()
    variants = {name: ((name,), newton) for name in given.only.split(",")}
    variants = {"": ((), newton), **variants, AGAIN: ((), newton)}
    for case in given.cases.split(","):
        compare(case, variants, given.batch, given.steps, given.rounds, not given.forward)


if __name__ == "__main__":
    main()
