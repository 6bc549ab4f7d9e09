"""What stopped it? Stiffness, damping, stops, masses and inertias from poses that ODE recorded.

Known: geometry, gravity, forces from outside, the time step. Measured: poses only, and the velocity
at the start as the difference of two. Each recording is searched from random starts as one batch by
gradient descent, with simulations that follow the recording, then run free. Under gravity alone,
poses tell ratios such as stiffness over mass; a known force, or known softness, tells masses too.
No recording has friction in its joints; all damping is in the stops.
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

AGREE, TOLD = 1.0, 0.5  # [%] of the truth; share of its range that leaves a number undetermined


class Problem(NamedTuple):
    title: str
    recording: Recording
    residual: Partial
    truth: dict[str, float]
    unknowns: dict[str, jj.identification.Unknown]
    labels: dict[str, str]


def stop_residuals(recording: Recording, per_mass: jax.Array, values: dict, follow: jax.Array):
    """One body against one stop; per_mass is 1 where the values are ratios to the mass, else 0."""
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
    """Links of known shape: the first's mass, told by the joints' softness, and ratios to it."""
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
    way = recording.coordinates(recording.motion)[0]
    unknowns = ranges(truth, rng) | {
        "stop": jj.identification.Unknown(jnp.asarray(way[0]), jnp.asarray(way.max()))
    }
    over = {name: f"{name}/mass" for name in ("inertia", "stiffness", "damping") if ratios}
    residual = Partial(stop_residuals, recording, jnp.asarray(float(ratios)))
    return Problem(title, recording, residual, truth, unknowns, over)


def chain_problem(case: dict[str, Any], title: str, rng: np.random.Generator) -> Problem:
    masses = [link["mass"] for link in case["bodies"]]
    shapes = [np.array(link["inertia_body"]) / link["mass"] for link in case["bodies"]]
    recording = record(case, steps=24, inertias=shapes)
    over = {f"mass {i}": f"mass {i}/mass 0" for i in range(1, len(masses))}
    truth = {"mass 0": masses[0]}
    truth |= {name: mass / masses[0] for name, mass in zip(over, masses[1:], strict=True)}
    residual = Partial(chain_residuals, recording)
    return Problem(title, recording, residual, truth, ranges(truth, rng), over)


def ranges(
    truth: dict[str, float], rng: np.random.Generator
) -> dict[str, jj.identification.Unknown]:
    """A decade for each positive number, the truth anywhere in it."""
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


def compared(problem: Problem, found: jj.identification.Identified) -> list[tuple[Any, ...]]:
    """Rows for the table; errors and deviations in percent of the truth, or of the range if 0."""
    rows = []
    for name, true in problem.truth.items():
        unknown = problem.unknowns[name]
        scale = abs(true) or float(unknown.upper - unknown.lower)
        error = 100 * (found.values[name] - true) / scale
        deviation, told = 100 * found.deviations[name] / scale, found.open[name] < TOLD
        label = problem.labels.get(name, name)
        rows.append((label, true, found.values[name], error, deviation, told))
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
        found = jj.identification.identify(
            problem.residual,
            problem.unknowns,
            key=jax.random.key(i),
            starts=options.starts,
            iterations=options.iterations,
            report=progress,
        )
        results[problem.title] = rows = compared(problem, found)
        print(f"\n{problem.title}: {found.arrived} of {options.starts} starts arrive")
        print(table(rows), flush=True)
        assert all(abs(row[3]) < AGREE for row in rows if row[-1]), problem.title
        recording = problem.recording
        steps += options.starts * (len(recording.motion.position) - 1) * (len(found.losses) - 1)
        seconds += progress.seconds
        fits.append((problem.title, recording, found))
    figure(options.output, fits, free=options.iterations)
    print(f"\n{steps / seconds:,.0f} environment-steps per second with all derivatives")
    print(f"{time.perf_counter() - began:.0f} s in all; the figure is {options.output}")
    return results


if __name__ == "__main__":
    jj.use_all_cores()
    main()
