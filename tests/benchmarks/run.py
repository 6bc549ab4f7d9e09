"""jaxjoints beside MuJoCo, MJX, Brax, JaxSim and Pinocchio: speed, gradients, memory, accuracy.

    python tests/benchmarks/run.py                               everything: hours on two cores
    python tests/benchmarks/run.py --quick                       batches 1 and 64, two rounds
    python tests/benchmarks/run.py --cases chain10,fourbar --tables speed --batches 1024 --rounds 9
    python tests/benchmarks/run.py --platform cuda --bandwidth 3350 --gflops 67000
    python tests/benchmarks/run.py --markdown                    rows of Markdown

MuJoCo and MJX are the extra `bench`, all of them the extra `peers`; an engine that is not installed
is left out, with a line that says so.
Every engine lives in a process of its own. For each case all of them build the same mechanism
(`cases.py`) one after another and are then timed in turn, round after round, so that whatever else
the machine does meets all of them alike: quote ratios within one table. Rates are medians over the
rounds, spread is (largest - smallest) / median, "CPU us" the processor time of one environment-step
over all threads, which other work on the machine disturbs least; "/ mjx" is over MJX at one
iteration where there is something to solve, which it differentiates in reverse. JAX computes
in float32, MuJoCo and Pinocchio in float64; on a CPU the engines on JAX get the XLA option
without which they take seconds a step, but jaxjoints runs on JAX's defaults, with `use_all_cores`.

All engines take the same time step from the same start. Without loops and limits those that
integrate the same must stand at the same angles after the run, which is asserted; with them their
constraints differ in softness and the angles are printed only. Each row ends with integrator,
iterations, gap (largest error of a joint at the end [m or rad]) and residual: of jaxjoints the
largest violation of a row's law [m/s], of MuJoCo and MJX the largest unbalanced generalized force
as a share of the largest one.
"""

import argparse

import tables
from cases import CASES
from engines import ENGINES
from processes import Process

TABLES = ("speed", "gradient", "memory", "gaps", "drift", "kernels")
# Mechanisms of the tables that do not take all of them.
GRADIENTS = ("chain10", "chain10limits", "fourbar", "stewart")
DRIFTING = ("jaxjoints", "mujoco one core", "mjx")


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--cases", default=",".join(CASES))
    options.add_argument("--tables", default=",".join(TABLES))
    options.add_argument("--engines", default=",".join(ENGINES))
    options.add_argument("--batches", default="1,64,1024,4096")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--quick", action="store_true", help="batches 1 and 64, two rounds")
    options.add_argument("--all-gradients", action="store_true", help="of others too; slow")
    options.add_argument("--markdown", action="store_true", help="print rows of Markdown")
    options.add_argument("--patience", type=float, default=180, help="seconds per answer")
    options.add_argument("--platform", default="cpu", help="where JAX computes: cpu, cuda")
    options.add_argument("--bandwidth", type=float, help="of the device [GB/s]")
    options.add_argument("--gflops", type=float, help="of the device [GFLOP/s]")
    given = options.parse_args()
    cases = _known(options, given.cases, CASES)
    wanted = _known(options, given.tables, TABLES)
    names = _known(options, given.engines, ENGINES)
    batches = [1, 64] if given.quick else [int(batch) for batch in given.batches.split(",")]
    count, markdown = 2 if given.quick else given.rounds, given.markdown
    processes = [Process(name, given.platform, given.patience) for name in names]
    differentiated = [p for p in processes if p.name == "jaxjoints" or given.all_gradients]
    accurate = [p for p in processes if p.name in DRIFTING]
    roof = tuple(1e9 * x if x else None for x in (given.bandwidth, given.gflops))
    try:
        for case in cases:
            for batch in batches if "speed" in wanted else ():
                tables.speed(processes, case, batch, count, markdown)
            if case in GRADIENTS and "gradient" in wanted:
                tables.gradient(differentiated, case, count, markdown)
            if case == "chain10" and "memory" in wanted:
                tables.memory(differentiated, case, count, markdown)
            if CASES[case]().loops and "gaps" in wanted:
                tables.gaps(accurate, case, markdown)
            if case == "chain10" and "drift" in wanted:
                tables.drift(accurate, case, markdown)
            if case in GRADIENTS and "kernels" in wanted:
                tables.kernels(differentiated, case, batches[-1], count, roof, markdown)
    finally:
        for process in processes:
            process.close()


def _known(options: argparse.ArgumentParser, given: str, names) -> list[str]:
    """Names from a list with commas."""
    found = given.split(",")
    for name in found:
        if name not in names:
            options.error(f"{name!r} is none of {', '.join(names)}")
    return found


if __name__ == "__main__":
    main()
