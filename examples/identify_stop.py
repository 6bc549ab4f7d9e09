"""What stopped it? Stiffness, damping, stops, masses and inertias from poses that ODE recorded.

Known: the geometry, gravity or the forces from outside, the time step. Measured: poses only, and
velocities as differences of successive poses. Each recording is searched from 256 random starts as
one batch by gradient descent, with simulations that follow the recording, then run free. Under
gravity alone poses tell ratios such as stiffness over mass; a known force tells the masses too.
"""

import argparse
import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from recordings import NOISE, Recording, load, record, truth_of_stop
from report import Progress, figure, table

import jaxjoints as jj

STOPS = {
    "hinge_stops/world/erp.1cfm1e-2/-": "hinge meets a soft stop, gravity",
    "hinge/one_sided/kp60.0/kd0.4/h0.005": "hinge pressed on a spring, known torque",
    "slider_stops/world/erp.1cfm1e-2/+": "slider meets a soft stop, gravity",
    "slider/one_sided/kp3000.0/kd20.0/h0.005": "slider pressed on a spring, known force",
}
AGREE, TOLD = 1.0, 0.5  # [%] of the truth; share of its range that leaves a number undetermined


@dataclasses.dataclass
class Problem:
    title: str
    recording: Recording
    residual: Partial
    truth: dict[str, float]
    unknowns: dict[str, jj.Unknown]
    iterations: int


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
    system = system.with_joint(name, laws=(stop,))
    return recording.residuals(system, values["start speed"][None], follow)


def chain_residuals(recording: Recording, values: dict, follow: jax.Array):
    """Five links: the first mass, the others as ratios to it, and the speeds it starts with."""
    ratios = [jnp.ones_like(values["mass 0"])] + [values[f"mass {i}/mass 0"] for i in range(1, 5)]
    mass, system = values["mass 0"] * jnp.stack(ratios), recording.system
    system = jj.replace(system, mass=mass, inertia=system.inertia[..., None] * mass)
    speeds = jnp.stack([values[f"start speed {i}"] for i in range(5)])
    return recording.residuals(system, speeds, follow)


def problems(rng: np.random.Generator) -> list[Problem]:
    """Residuals, what is true, and ranges: a decade for what is positive, the way for the stop."""
    found, cases = [], load()
    for name, title in STOPS.items():
        limit = jj.Limits(upper=1.0, stiffness=1.0, damping=1.0, anticipate=False)
        recording, case = record(cases[name], steps=60, laws=[limit]), cases[name]
        per_mass = jnp.asarray(0.0 if "external_forces" in case else 1.0)
        residual = Partial(stop_residuals, recording, per_mass)
        truth = truth_of_stop(case, recording, float(per_mass))
        found.append(Problem(title, recording, residual, truth, {}, 100))
    links = cases["hinge_chain5/C"]["bodies"]
    shapes = [np.array(link["inertia_body"]) / link["mass"] for link in links]
    recording = record(cases["hinge_chain5/C"], steps=24, inertias=shapes, cfm=1e-4)
    masses = [link["mass"] for link in links]
    truth = {"mass 0": masses[0]}
    truth |= {f"mass {i}/mass 0": masses[i] / masses[0] for i in range(1, 5)}
    readings = cases["hinge_chain5/C"]["trajectory"]["joint"]
    truth |= {f"start speed {i}": reading["angle_rate"][1] for i, reading in enumerate(readings)}
    title = "five links on soft hinges, gravity"
    found.append(Problem(title, recording, Partial(chain_residuals, recording), truth, {}, 60))
    for problem in found:
        way = problem.recording.coordinates(problem.recording.motion)
        for name, true in problem.truth.items():
            if name == "stop":
                unknown = jj.Unknown(way[0, 0], way[0].max())
            elif name.startswith("start speed"):
                measured = problem.recording.speeds[int(name[-1]) if name[-1].isdigit() else 0]
                unknown = jj.Unknown(measured - 0.05, measured + 0.05)
            else:
                low = true * 10 ** -rng.uniform(0.2, 0.8)
                unknown = jj.Unknown(low, 10 * low, log=True)
            problem.unknowns[name] = jax.tree.map(jnp.asarray, unknown)
    return found


def compared(problem: Problem, found: jj.Identified) -> list[tuple[Any, ...]]:
    """Rows for the table: errors and deviations in percent of the truth, or of a wider range."""
    rows = []
    for name, true in problem.truth.items():
        unknown = problem.unknowns[name]
        scale = abs(true) if unknown.log else max(abs(true), float(unknown.upper - unknown.lower))
        error = 100 * (found.values[name] - true) / scale
        deviation = 100 * found.deviations[name] / scale
        rows.append((name, true, found.values[name], error, deviation, found.open[name] < TOLD))
    return rows


def main(arguments: list[str] | None = None) -> dict[str, list[tuple[Any, ...]]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="identify_stop.png", help="where the figure goes")
    parser.add_argument("--starts", type=int, default=256, help="random starts of each search")
    options = parser.parse_args(arguments)
    began, results, fits, steps, seconds = time.perf_counter(), {}, [], 0, 0.0
    print(f"± is for poses with noise of {1e3 * NOISE[0]:g} mm and {1e3 * NOISE[1]:g} mrad")
    for i, problem in enumerate(problems(np.random.default_rng(0))):
        progress = Progress(problem.title)
        found = jj.identify(
            problem.residual,
            problem.unknowns,
            key=jax.random.key(i),
            starts=options.starts,
            iterations=problem.iterations,
            report=progress,
        )
        results[problem.title] = rows = compared(problem, found)
        print(
            f"\n{problem.title}: {found.arrived} of {options.starts} starts arrive\n{table(rows)}"
        )
        assert all(abs(row[3]) < AGREE for row in rows if row[-1]), problem.title
        recording = problem.recording
        length = len(recording.motion.position) - 1
        steps += options.starts * length * (len(progress.looks) - 1)
        seconds += progress.seconds
        fits.append(
            {
                "title": problem.title,
                "time": float(recording.dt) * np.arange(1, length + 1),
                "measured": recording.coordinates(recording.motion)[:, 1:],
                "fitted": recording.coordinates(recording.fitted(found.residuals)),
                "stop": found.values.get("stop"),
                "losses": found.losses,
                "free": problem.iterations,
            }
        )
    figure(options.output, fits)
    print(f"\n{steps / seconds:,.0f} environment-steps per second with all derivatives")
    print(f"{time.perf_counter() - began:.0f} s in all; the figure is {options.output}")
    return results


if __name__ == "__main__":
    main()
