"""The slide of a knee over its flexion, found again from the path of the swinging shank.

While the knee bends, the shank slides along the thigh. A spline over the flexion with five knots
says how far. The shank of a seated person swings from nearly straight until it hangs. A recording
of its centre of mass shows all knots that the swing passes. The recording is a simulation without
noise, so that the knots must come out as they went in.
"""

import jax
import numpy as np

import jaxjoints as jj
from jaxjoints.couplings.functions import Constant, Linear, Spline
from jaxjoints.identification import Recording, Unknown, fit

DT, SAMPLES, SUBSTEPS = 0.03, 50, 3  # between samples [s]; of these; time steps of a sample
KNOTS = np.radians([0.0, 35.0, 70.0, 105.0, 140.0])  # flexion
SLIDE = 1e-3 * np.array([4.0, 0.0, -5.0, -6.5, -4.0])  # towards the front at these [m]
PATH = "joint.knee.translations.0.values"
RELEASED = np.radians([5.0])  # flexion at which the shank is let go
SEATED = ((0.0, 0.0, 0.0), (0.5**0.5, 0.0, -(0.5**0.5), 0.0))  # the thigh points forward


def leg():
    """A shank on a thigh that is fixed; the axes of the thigh are those of a standing person."""
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -9.81))
    world.body("shank", mass=3.5, inertia=(0.06, 0.06, 0.006), com=(0.0, 0.0, -0.25))
    none = Constant(0.0)
    knee = jj.FunctionDriven(
        dof=1,
        rotations=(none, Linear([1.0]), none),
        translations=(Spline(KNOTS, np.zeros(5)), none, Constant(-0.03)),
    )
    world.joint("knee", knee, child="shank", frame_D=SEATED, laws=jj.Damping(0.1))
    return world.build()[0]


def centre(system, state, info=None):
    """The shank's centre of mass [m]."""
    return state.position[:, 0]


def main():
    """Prints the knots that were found; asserts that they are those of the recording."""
    jax.config.update("jax_enable_x64", True)
    system = leg()
    real = system.with_numbers({PATH: SLIDE})
    run = {"dt": DT / SUBSTEPS, "steps": SAMPLES * SUBSTEPS, "record_every": SUBSTEPS}
    _, motion = jj.rollout(real, real.state(q={"knee": RELEASED[0]}), **run)
    low, high = np.degrees(motion.q.min()), np.degrees(motion.q.max())
    print(f"the knee bends from {low:.0f}° to {high:.0f}°")

    recording = Recording(motion.position[:, :, 0], 1e-3, DT, RELEASED, np.zeros(1))
    unknowns = {PATH: Unknown(np.full(5, -0.02), np.full(5, 0.02))}
    options = {"key": jax.random.key(0), "starts": 2, "polish": 8, "substeps": SUBSTEPS}
    found = fit(system, unknowns, recording, centre, **options).identified
    print(found)
    off = np.abs(found.values[PATH] - SLIDE).max()
    print(f"the knots are found within {off:.1e} m")
    assert off < 1e-6 and not found.left_open


if __name__ == "__main__":
    main()
