"""The same identification by `identification.fit` and by MuJoCo's sysid, from a motion of MuJoCo.

    python tests/benchmarks/identification.py

An arm of two links under known torques: masses, armature, damping and a spring, from angles at each
step; both take semi-implicit Euler steps. sysid (extra `sysid` of mujoco) takes finite
differences of one simulation after the other, `fit` exact derivatives of all starts at once. The
table is in README.md beside this file.
"""

import argparse
import logging
import time

import jax
import mujoco
import mujoco.rollout
import numpy as np
from mujoco import sysid

import jaxjoints as jj
from jaxjoints.identification import Positive, Recording, fit
from jaxjoints.models import load_mjcf

ARM = """
<mujoco model="arm">
  <compiler angle="radian"/>
  <option timestep="0.002" integrator="implicitfast"><flag contact="disable"/></option>
  <worldbody>
    <body name="upper">
      <inertial pos="0 0 -0.25" mass="1.3" diaginertia="0.03 0.03 0.002"/>
      <joint name="shoulder" axis="0 1 0" stiffness="2" damping="0.1"/>
      <body name="lower" pos="0 0 -0.5">
        <inertial pos="0 0 -0.2" mass="0.8" diaginertia="0.012 0.012 0.001"/>
        <joint name="elbow" axis="0 1 0" damping="0.05" armature="0.01"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor name="a" joint="shoulder"/><motor name="b" joint="elbow"/></actuator>
  <sensor><jointpos name="1" joint="shoulder"/><jointpos name="2" joint="elbow"/></sensor>
</mujoco>
"""
# Path of a number, its place in MuJoCo's description, and its true value.
NUMBERS = {
    "body.upper.mass": (("body", "upper", "mass"), 1.3),
    "body.lower.mass": (("body", "lower", "mass"), 0.8),
    "joint.shoulder.spring_damper.stiffness": (("joint", "shoulder", "stiffness"), 2.0),
    "joint.shoulder.damping.damping": (("joint", "shoulder", "damping"), 0.1),
    "joint.elbow.damping.damping": (("joint", "elbow", "damping"), 0.05),
    "joint.elbow.armature.inertia": (("joint", "elbow", "armature"), 0.01),
}
FACTOR, GUESS = 3.0, 1.5  # of the ranges about the guesses; of the guesses over the truth


def now():
    """Wall time and processor time [s]."""
    return np.array([time.perf_counter(), time.process_time()])


def recorded(steps):
    """MuJoCo's description, start, torques, sensors and coordinates of a motion."""
    spec = mujoco.MjSpec.from_string(ARM)
    model = spec.compile()
    data = mujoco.MjData(model)
    t = model.opt.timestep * np.arange(steps + 1)
    torque = np.stack([4 * np.sin(6 * t), 1.5 * np.sin(9 * t + 1)], axis=1)
    start = sysid.create_initial_state(model, np.array([0.5, 0.3]), data.qvel, data.act)
    state, sensor = mujoco.rollout.rollout(model, data, start, torque[:-1])
    angles = sysid.TimeSeries.from_names(state[0][:, 0], sensor[0], model)
    # Sensors are those of the start of a step, so `fit` gets the coordinates at its end.
    return spec, start, sysid.TimeSeries(t, torque), angles, state[0][:, 1:3]


def set_number(spec, parameter, kind, name, field):
    """Write a parameter into MuJoCo's description."""
    element, value = getattr(spec, kind)(name), float(parameter.value[0])
    # Fields that hold a polynomial have its first coefficient in front.
    old = getattr(element, field)
    setattr(element, field, value if np.ndim(old) == 0 else [value, *old[1:]])


def of_mujoco(spec, start, torque, angles):
    """Values and seconds of sysid."""
    parameters = sysid.ParameterDict()
    for path, (place, true) in NUMBERS.items():
        guess = GUESS * true
        write = lambda spec, p, place=place: set_number(spec, p, *place)  # noqa: E731
        parameters.add(sysid.Parameter(path, guess, guess / FACTOR, guess * FACTOR, modifier=write))
    motion = sysid.ModelSequences("arm", spec, "motion", start, torque, angles)
    residual = sysid.build_residual_fn(models_sequences=[motion])
    began = now()
    found, _ = sysid.optimize(initial_params=parameters, residual_fn=residual, verbose=False)
    return {path: float(found[path].value[0]) for path in NUMBERS}, now() - began


def angles_of(system, state, info):
    """What is compared: coordinates after each step."""
    return info.q


def of_fit(torque, coordinates, starts):
    """Values and seconds of `fit`, from the guess and random starts."""
    # Sensors are no part of a mechanism.
    system, _ = load_mjcf(ARM.partition("  <sensor>")[0] + "</mujoco>").build()
    recording = Recording(
        *(coordinates, 1e-3, 0.002, [0.5, 0.3], [0.0, 0.0]),
        control=jj.Control(effort=torque.data[:-1]),
    )
    unknowns = {p: Positive(FACTOR, nominal=GUESS * true) for p, (_, true) in NUMBERS.items()}
    options = {"key": jax.random.key(0), "starts": starts, "polish": 20}
    began = now()
    found = fit(system, unknowns, recording, angles_of, **options).identified
    return found.values, now() - began, found.converged


def main():
    """Print values and times side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--starts", type=int, nargs="*", default=[1, 64])
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    jj.use_all_cores()
    logging.disable(logging.WARNING)
    spec, start, torque, sensors, coordinates = recorded(options.steps)
    theirs, seconds = of_mujoco(spec, start, torque, sensors)
    columns, heads = [theirs], ["sysid {:.2f} s (cpu {:.2f} s)".format(*seconds)]
    for starts in options.starts:
        _, first, _ = of_fit(torque, coordinates, starts)
        ours, again, converged = of_fit(torque, coordinates, starts)
        columns.append(ours)
        times = "{:.1f} s (cpu {:.1f} s), again {:.2f} s (cpu {:.2f} s)".format(*first, *again)
        heads.append(f"fit, {converged} of {starts} starts: {times}")
    print("number | truth | " + " | ".join(heads))
    for path, (_, true) in NUMBERS.items():
        print(f"{path} | {true:g} | " + " | ".join(f"{found[path]:.5f}" for found in columns))


if __name__ == "__main__":
    main()
