"""Random mechanisms by the thousand: what breaks, how often, and how to see it again.

    python tests/benchmarks/fuzz.py --count 10000    seeds 0 to 78, 128 mechanisms of each
    python tests/benchmarks/fuzz.py --count 10000 --seconds 600    as many of them as fit
    python tests/benchmarks/fuzz.py --replay 17    one seed, with how its mechanisms are built

A seed is a set of bodies, joints and laws of `tests/support/fuzz.py`, which says what has to hold
for them. It is compiled once and rolled out with numbers of its own in each environment.
"""

import argparse
import os
import sys
import time
import traceback
from collections import defaultdict
from pathlib import Path
from random import Random

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).parents[1]))

import jax

from support.quick import compile_quickly

# Environments of a seed, each with numbers of its own.
ENVIRONMENTS = 128
# Programs of as many seeds are kept: what is compiled once for all of them is compiled again.
KEPT = 20


def broken(seed: int) -> dict[str, str]:
    """The laws that the mechanism of a seed breaks; an error counts as one."""
    # Imported once JAX is set up: it makes arrays.
    from support import fuzz

    try:
        drawn = fuzz.mechanism(Random(seed), environments=ENVIRONMENTS)
    except ValueError as error:
        return {"refused by the builder": str(error)}
    try:
        return fuzz.examine(drawn)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return {"error": f"{type(error).__name__} in {place.name}: {str(error)[:200]}"}


def main(seeds: range, seconds: float) -> dict[str, list[int]]:
    """Seeds by the law that they break; prints each as it is found, and a table at the end."""
    seen, start, done = defaultdict(list), time.monotonic(), 0
    for done, seed in enumerate(seeds, start=1):
        begin, laws = time.monotonic(), broken(seed)
        print(f"seed {seed}: {len(laws)} broken, {time.monotonic() - begin:.0f} s", flush=True)
        for law, where in laws.items():
            seen[law].append(seed)
            print(f"    {law}: {where}", flush=True)
        if done % KEPT == 0:
            jax.clear_caches()
        if time.monotonic() - start > seconds:
            break
    refused = len(seen["refused by the builder"])
    print(f"\n{(done - refused) * ENVIRONMENTS} mechanisms in {time.monotonic() - start:.0f} s\n")
    print("| what | seeds | which |\n|---|---|---|")
    print(f"| nothing | {done - len(set().union(*seen.values(), ()))} | |")
    for law, which in sorted(seen.items()):
        print(f"| {law} | {len(which)} | {', '.join(map(str, which))} |")
    return dict(seen)


def replay(seed: int) -> None:
    """Print how the mechanism of a seed is built, and what it breaks."""
    from support import fuzz

    print(*fuzz.mechanism(Random(seed), environments=ENVIRONMENTS).lines, sep="\n")
    for law, where in broken(seed).items():
        print(f"{law}: {where}")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="What breaks in random mechanisms.")
    options.add_argument("--count", type=int, default=100, help="of mechanisms")
    options.add_argument("--seed", type=int, default=0, help="the first one")
    options.add_argument("--seconds", type=float, default=float("inf"), help="when to stop")
    options.add_argument("--replay", type=int, help="a seed to look at")
    given = options.parse_args()
    jax.config.update("jax_enable_x64", True)
    compile_quickly(os.environ)
    if given.replay is None:
        main(range(given.seed, given.seed - (-given.count // ENVIRONMENTS)), given.seconds)
    else:
        replay(given.replay)
