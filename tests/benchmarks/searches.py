"""How long searches for a policy take to earn a given return.

    python tests/benchmarks/searches.py [--earned -0.2] [--longest 1024] [--seeds 3]

The finger of `environments`. A search by gradients and one by evolution are run with 8, 16, 32, …
iterations, each anew, until the policy at its end earns that much per step, in 64 episodes, without
noise. Printed are the steps of the environment and the seconds of the shortest such search, once
compiled, and the processor time to compile.
"""

import argparse
import time

import jax

from jaxjoints import environments, learning

ENVS, WINDOW, HIDDEN = 32, 16, (32, 32)


def main():
    """A row for each search and seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--earned", type=float, default=-0.2)
    parser.add_argument("--longest", type=int, default=1024)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    task, shared = environments.finger(), {"envs": ENVS, "hidden": HIDDEN}
    keys = jax.random.split(jax.random.key(7), 64)
    # Of the gradients, two rates of learning; of evolution, more than one way to use its steps.
    searches = {
        "gradients": (learning.short_horizon, {"window": WINDOW}),
        "gradients, rate 0.01": (learning.short_horizon, {"window": WINDOW, "rate": 1e-2}),
        "evolution": (learning.evolution, {}),
        "evolution, rate 0.05": (learning.evolution, {"rate": 5e-2}),
        "evolution, half episodes": (learning.evolution, {"window": task.limit // 2}),
    }
    print("| search | seed | iterations | steps | [s] | earned per step | compiles in [s] |")
    print("|---" * 7 + "|", flush=True)
    for name, (search, more) in searches.items():
        began = time.process_time()
        search(task, jax.random.key(0), iterations=1, **shared, **more)
        compiled = time.process_time() - began
        for seed in range(options.seeds):
            iterations, earned, took, steps = 4, float("-inf"), 0.0, 0
            while earned < options.earned and iterations < options.longest:
                iterations *= 2
                began = time.perf_counter()
                found = search(task, jax.random.key(seed), iterations=iterations, **shared, **more)
                took, steps = time.perf_counter() - began, found.steps[-1]
                earned = learning.earned(task, keys, found.parameters)
            cells = name, seed, iterations, f"{steps:,}", f"{took:.1f}", f"{earned:.3f}"
            print(f"| {' | '.join(map(str, cells))} | {compiled:.0f} |", flush=True)


if __name__ == "__main__":
    main()
