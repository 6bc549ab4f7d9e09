"""How near friction comes to the normal force that bounds it, by how many passes.

    python tests/benchmarks/friction.py
    python tests/benchmarks/friction.py --count 50 --links 1    a first look

Contacts at random, from a cold start: no impulse of a step before bounds the first pass. The table
is in README.md beside this file.
"""

import argparse
import sys
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import jaxjoints as jj
from support.contacts import contacts

# Links, contacts of each, softness of the contacts as a share of the diagonal of A.
FAMILIES = [(1, 1, 0.0), (1, 2, 0.0), (1, 2, 1e-2), (2, 2, 0.0), (2, 2, 1e-2), (3, 3, 1e-2)]
FRICTIONS = [(0.1, 0.3), (0.3, 1.0)]
# Steps of the first pass, and how many passes.
SETTINGS = [(4, 1), (4, 2), (4, 3), (8, 3), (8, 6), (8, 20)]
# Residual of a pass that is solved, as a share of the size; excess that counts [m/s].
SOLVED, EXCESS = 1e-9, 1e-3

solve = jax.jit(jj.Newton.solve)


def main() -> None:
    """One line for each family and friction range, one column for each number of steps and passes:
    the share of problems that are unsolved, and of those whose friction exceeds its bound.
    """
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, default=500, help="problems of a line")
    options.add_argument("--links", type=int, default=3, help="of a mechanism, at most")
    given = options.parse_args()
    head = ["bodies, contacts of each, softness", "μ"]
    head += [f"{iterations} steps, {passes} passes" for iterations, passes in SETTINGS]
    print("| " + " | ".join(head) + " |")
    print("|---" * len(head) + "|")
    for links, touching, soft in (family for family in FAMILIES if family[0] <= given.links):
        for friction in FRICTIONS:
            problem = contacts(links, touching, given.count, friction=friction, compliance=soft)
            cells = [f"{links}, {touching}, {soft:g}", f"{friction[0]} to {friction[1]}"]
            for iterations, passes in SETTINGS:
                found = solve(jj.Newton(iterations=iterations, passes=passes), problem)
                unsolved = np.mean(np.asarray(found.residual > SOLVED * found.size))
                exceeding = np.mean(np.asarray(found.excess) > EXCESS)
                cells.append(f"{unsolved:.1%}, {exceeding:.1%}")
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
