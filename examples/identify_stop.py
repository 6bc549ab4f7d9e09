"""Stiffness, damping, stops, masses and inertias of mechanisms, from poses that ODE recorded.

Known are the geometry, gravity, forces from outside and the time step. Measured are poses alone;
the velocity at the start is the difference of the first two. Each recording is searched from many
random starts as one batch: first by gradient descent while the simulation follows the recording,
then by least squares while it runs free. Under gravity alone, poses determine ratios such as
stiffness over mass. A known force, or a known softness, determines masses too. No recording has
friction in its joints; all damping is in the stops.
"""

import argparse
import time
from typing import Any

import jax
from recordings import NOISE
from report import figure, table
from stop_problems import Problem, problems

import jaxjoints as jj
from jaxjoints.identification import Identified, Progress, identify

# Largest error of a determined parameter [% of its true value], and the uncertainty from which on a
# parameter counts as undetermined (see `Identified.uncertainty`).
TOLERANCE, UNDETERMINED = 1.0, 0.5


def compared(problem: Problem, result: Identified) -> list[tuple[Any, ...]]:
    """Rows of the table (see `report.table`), errors and deviations in percent of the true value.

    They are in percent of the range for a parameter whose true value is 0.
    """
    rows = []
    for name, true in problem.truth.items():
        unknown = problem.unknowns[name]
        scale = abs(true) or float(unknown.upper - unknown.lower)
        error = 100 * (result.values[name] - true) / scale
        deviation = 100 * result.deviations[name] / scale
        determined = result.uncertainty[name] < UNDETERMINED
        label = problem.labels.get(name, name)
        rows.append((label, true, result.values[name], error, deviation, determined))
    return rows


def main(arguments: list[str] | None = None) -> dict[str, list[tuple[Any, ...]]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="identify_stop.png", help="where the figure goes")
    parser.add_argument("--starts", type=int, default=256, help="random starts of each search")
    parser.add_argument("--iterations", type=int, default=40, help="gradient steps of each search")
    options = parser.parse_args(arguments)
    began, results, fits, steps, seconds = time.perf_counter(), {}, [], 0, 0.0
    noise = f"{1e3 * NOISE[0]:g} mm and {1e3 * NOISE[1]:g} mrad"
    print(f"± is one standard deviation, if each pose has noise of {noise}, the first one none")
    for i, problem in enumerate(problems()):
        started = time.perf_counter()
        result = identify(
            problem.residual,
            problem.unknowns,
            key=jax.random.key(i),
            starts=options.starts,
            iterations=options.iterations,
            report=Progress(problem.title),
        )
        results[problem.title] = rows = compared(problem, result)
        print(f"\n{problem.title}: {result.converged} of {options.starts} starts converge")
        print(table(rows), flush=True)
        assert all(abs(row[3]) < TOLERANCE for row in rows if row[-1]), problem.title
        recording = problem.recording
        steps += options.starts * (len(recording.motion.position) - 1) * (len(result.losses) - 1)
        seconds += time.perf_counter() - started
        fits.append((problem.title, recording, result))
    figure(options.output, fits, free=options.iterations)
    print(
        f"\n{steps / seconds:,.0f} environment-steps per second, with derivatives and compilation"
    )
    print(f"{time.perf_counter() - began:.0f} s in all; the figure is {options.output}")
    return results


if __name__ == "__main__":
    jj.use_all_cores()
    main()
