"""How many steps of a rescue problems at random need that plain Newton steps leave unsolved.

    python tests/benchmarks/rescues.py
    python tests/benchmarks/rescues.py --only "ring,2 × 2"

500 mechanisms of hinges in their stops or 200 of contacts with friction, cold starts. A line has
the problems that six plain steps leave unsolved, and those that some further steps of a rescue
leave; the table is in README.md beside this file.
"""

import argparse
import sys
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import jaxjoints as jj
from jaxjoints.solve.problem import TOLERATED
from support.contacts import contacts
from support.mechanisms import single
from support.random_rows import Hinges

HINGES_EACH, CONTACTS_EACH = 500, 200
STEPS = (0, 5, 10, 15, 25, 50, 100)
HINGES = {
    "chain of 10": Hinges(10),
    "chain of 20": Hinges(20),
    "ring of 8": Hinges(8, closed=True),
    "chain of 20 with dry friction": Hinges(20, boxes=True),
}
# Links, contacts of each, softness of the contacts as a share of the diagonal of A.
CONTACTS = [(1, 2, 0.0), (1, 4, 1e-2), (2, 2, 0.0)]


def main():
    """One line for each family and precision."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default="", help="parts of the names of families")
    parts = options.parse_args().only.split(",")
    families = {name: hinges.problem(HINGES_EACH) for name, hinges in HINGES.items()}
    for links, each, soft in CONTACTS:
        name = f"{links} × {each} contacts{', soft' if soft else ''}"
        given = {"friction": (0.3, 1.0), "compliance": soft}
        families[name] = contacts(links, each, CONTACTS_EACH, **given)
    print("| " + " | ".join(("problems", "precision", *map(str, STEPS))) + " |")
    print("|---" * (2 + len(STEPS)) + "|", flush=True)
    for name, problem in families.items():
        if not any(part in name for part in parts):
            continue
        for given in (problem, single(problem)):
            precision = given.rate.dtype
            found = [jax.jit(jj.Newton(rescue=steps).solve)(given) for steps in STEPS]
            far = TOLERATED[precision.itemsize]
            left = (int(np.sum(~(x.residual <= far * x.size))) for x in found)
            print("| " + " | ".join((name, str(precision), *map(str, left))) + " |", flush=True)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
