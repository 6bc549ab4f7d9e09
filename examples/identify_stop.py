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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from recordings import NOISE, Recording, load, record, truth_of_stop
from report import Progress, figure, table

import jaxjoints as jj

# Largest error of a determined parameter [% of its true value], and the uncertainty from which on a
# parameter counts as undetermined (see `Identified.uncertainty`).
TOLERANCE, UNDETERMINED = 1.0, 0.5


class Problem(NamedTuple):
    """One identification.

    residual: of the recording's poses, a function of the unknowns; truth: their true values
    labels: what the table calls them, where it is not their name
    """

    title: str
    recording: Recording
    residual: Partial
    truth: dict[str, float]
    unknowns: dict[str, jj.identification.Unknown]
    labels: dict[str, str]


def stop_residuals(recording: Recording, per_mass: jax.Array, values: dict, follow: jax.Array):
    """Residuals of one body against one stop.

    per_mass: 1 if the values are ratios to the mass, else 0
    """
    mass, system = values["mass"], recording.system
    scale = mass**per_mass
    (name,) = system.topology.joints
    stop = jj.replace(
        system.joint(name).laws[0],
        upper=values["stop"],
        stiffness=values["stiffness"] * scale,
        damping=values["damping"] * scale,
    )
    inertia = values["inertia"] * scale if "inertia" in values else mass
    system = jj.replace(system, mass=mass[None], inertia=system.inertia[..., None] * inertia)
    return recording.residuals(system.with_joint(name, laws=(stop,)), follow)


def chain_residuals(recording: Recording, values: dict, follow: jax.Array):
    """Residuals of links of known shape: the mass of the first, and ratios to it of the others."""
    ratios = [values[f"mass {i}"] for i in range(1, len(values))]
    mass, system = (
        values["mass 0"] * jnp.stack([jnp.ones_like(ratios[0]), *ratios]),
        recording.system,
    )
    system = jj.replace(system, mass=mass, inertia=system.inertia[..., None] * mass)
    return recording.residuals(system, follow)


def stop_problem(case: dict[str, Any], title: str, rng: np.random.Generator) -> Problem:
    ratios = "external_forces" not in case
    limit = jj.Limits(upper=1.0, stiffness=1.0, damping=1.0, anticipate=False)
    recording = record(case, steps=59, laws=[limit])
    truth = truth_of_stop(case, recording, ratios=ratios)
    path = recording.coordinates(recording.motion)[0]
    unknowns = ranges(truth, rng) | {
        "stop": jj.identification.Unknown(jnp.asarray(path[0]), jnp.asarray(path.max()))
    }
    labels = {name: f"{name}/mass" for name in ("inertia", "stiffness", "damping") if ratios}
    residual = Partial(stop_residuals, recording, jnp.asarray(float(ratios)))
    return Problem(title, recording, residual, truth, unknowns, labels)


def chain_problem(case: dict[str, Any], title: str, rng: np.random.Generator) -> Problem:
    masses = [link["mass"] for link in case["bodies"]]
    shapes = [np.array(link["inertia_body"]) / link["mass"] for link in case["bodies"]]
    recording = record(case, steps=24, inertias=shapes)
    labels = {f"mass {i}": f"mass {i}/mass 0" for i in range(1, len(masses))}
    truth = {"mass 0": masses[0]}
    truth |= {name: mass / masses[0] for name, mass in zip(labels, masses[1:], strict=True)}
    residual = Partial(chain_residuals, recording)
    return Problem(title, recording, residual, truth, ranges(truth, rng), labels)


def ranges(
    truth: dict[str, float], rng: np.random.Generator
) -> dict[str, jj.identification.Unknown]:
    """A range of one decade for each positive parameter, its true value at a random place in it."""
    lows = {name: jnp.asarray(true * 10 ** -rng.uniform(0.1, 0.9)) for name, true in truth.items()}
    return {name: jj.identification.Unknown(low, 10 * low, log=True) for name, low in lows.items()}


def problems() -> list[Problem]:
    cases, rng = load(), np.random.default_rng(0)
    named = {
        "hinge meets a soft stop, gravity": (stop_problem, "hinge_stops/world/erp.1cfm1e-2/-"),
        "hinge on a spring, known torque": (stop_problem, "hinge/one_sided/kp60.0/kd0.4/h0.005"),
        "slider on a spring, known force": (
            stop_problem,
            "slider/one_sided/kp3000.0/kd20.0/h0.005",
        ),
        "five links on soft hinges, gravity": (chain_problem, "hinge_chain5/C"),
    }
    return [make(cases[name], title, rng) for title, (make, name) in named.items()]


def compared(problem: Problem, result: jj.identification.Identified) -> list[tuple[Any, ...]]:
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
        progress = Progress(problem.title)
        result = jj.identification.identify(
            problem.residual,
            problem.unknowns,
            key=jax.random.key(i),
            starts=options.starts,
            iterations=options.iterations,
            report=progress,
        )
        results[problem.title] = rows = compared(problem, result)
        print(f"\n{problem.title}: {result.converged} of {options.starts} starts converge")
        print(table(rows), flush=True)
        assert all(abs(row[3]) < TOLERANCE for row in rows if row[-1]), problem.title
        recording = problem.recording
        steps += options.starts * (len(recording.motion.position) - 1) * (len(result.losses) - 1)
        seconds += progress.seconds
        fits.append((problem.title, recording, result))
    figure(options.output, fits, free=options.iterations)
    print(f"\n{steps / seconds:,.0f} environment-steps per second with all derivatives")
    print(f"{time.perf_counter() - began:.0f} s in all; the figure is {options.output}")
    return results


if __name__ == "__main__":
    jj.use_all_cores()
    main()
