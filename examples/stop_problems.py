"""The mechanisms of identify_stop.py: what is unknown, and how far simulations are from poses."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from recordings import Recording, load, record

import jaxjoints as jj
from jaxjoints.identification import Unknown


class Problem(NamedTuple):
    """One identification.

    residual: of the recording's poses, a function of the unknowns; truth: their true values
    labels: what the table calls them, where it is not their name
    """

    title: str
    recording: Recording
    residual: Partial
    truth: dict[str, float]
    unknowns: dict[str, Unknown]
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
    unknowns = ranges(truth, rng) | {"stop": Unknown(jnp.asarray(path[0]), jnp.asarray(path.max()))}
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


def ranges(truth: dict[str, float], rng: np.random.Generator) -> dict[str, Unknown]:
    """A range of one decade for each positive parameter, its true value at a random place in it."""
    lows = {name: jnp.asarray(true * 10 ** -rng.uniform(0.1, 0.9)) for name, true in truth.items()}
    return {name: Unknown(low, 10 * low, log=True) for name, low in lows.items()}


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


def truth_of_stop(case: dict[str, Any], recording: Recording, *, ratios: bool) -> dict[str, float]:
    """The parameters that the engine simulated with, by name; coordinates grow towards the stop.

    ratios: all but the mass are divided by the mass
    """
    body, joint, world = case["bodies"][0], case["joints"][0], case["world"]
    axis, params = np.array(joint["axis1"]), joint["params"]["1"]
    sign = np.sign(axis @ np.asarray(recording.system.joint("joint 0").coupling.axis))
    stiffness, damping = jj.softness_spring(params["stop_erp"], params["stop_cfm"], world["dt"])
    truth, scale = {"mass": body["mass"]}, body["mass"] if ratios else 1.0
    if joint["type"] == "hinge":
        in_body = np.asarray(jj.Pose(0 * axis, np.array(body["setup_quat"])).R).T @ axis
        truth["inertia"] = in_body @ np.array(body["inertia_body"]) @ in_body / scale
    truth |= {"stiffness": stiffness / scale, "damping": damping / scale}
    # Adding 0 makes -0 a plain 0.
    return truth | {"stop": sign * params["hi_stop" if sign > 0 else "lo_stop"] + 0.0}
