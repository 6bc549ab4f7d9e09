"""A Panda turns its first joint by 0.2 rad under servos: 64 gains in one batch, the quickest shown.

All seven joints have servos of the same stiffness and damping, within the efforts of the file.
Settled is an arm that stays within 2 % of the turn, and quickest the one that settles first of
those that overshoot by less than 5 %. Without a path the program takes the Panda of the tests.

    python examples/panda_gains.py path/to/panda.urdf
"""

import argparse
from pathlib import Path

import numpy as np

import jaxjoints as jj
from jaxjoints.models import load_urdf

ARM = Path(__file__).parents[1] / "tests" / "data" / "panda_arm.urdf"
FIRST, TURN = "panda_joint1", 0.2  # [rad]
READY = {"panda_joint2": -0.785, "panda_joint4": -2.356, "panda_joint6": 1.571}  # [rad]
DT, STEPS, EVERY = 2e-3, 1000, 2


def main(urdf: str | Path = ARM) -> None:
    """Prints overshoot and settling time of the quickest arm, and the forces at its base."""
    model = load_urdf(urdf, laws={"panda_joint*": jj.Servo(1.0, 1.0)}, visuals=False)
    system, start = model.build()
    grid = np.meshgrid(np.geomspace(100.0, 2000.0, 8), np.geomspace(10.0, 160.0, 8))
    gains = dict(zip(("stiffness", "damping"), map(np.ravel, grid), strict=True))
    numbers = {}
    for joint in (f"panda_joint{i}" for i in range(1, 8)):
        numbers |= {f"joint.{joint}.servo.{gain}": values for gain, values in gains.items()}
        numbers[f"joint.{joint}.servo.target"] = (READY | {FIRST: TURN}).get(joint, 0.0)
    arms = system.with_numbers(numbers)
    ready = jj.replicate(system.state(q=READY, start=start), 64)
    record = jj.readout(arms, coordinates=FIRST, reactions=FIRST, axes="world", time=True)
    _, seen = jj.rollout(arms, ready, dt=DT, steps=STEPS, record_every=EVERY, record=record)

    angle, base = (np.asarray(x[FIRST]) for x in (seen.coordinates, seen.reactions))
    overshoot = angle[:, 0].max(axis=0) / TURN - 1
    outside = np.abs(angle[:, 0] / TURN - 1) > 0.02
    settling = DT * EVERY * (len(outside) - np.argmax(outside[::-1], axis=0))
    best = int(np.argmin(np.where((overshoot < 0.05) & ~outside[-1], settling, np.inf)))
    weight = 9.81 * float(np.sum(system.mass))
    k, d = (values[best] for values in gains.values())
    print(f"{np.sum(~outside[-1])} of 64 arms settle; quickest: {k:.0f} N m/rad, {d:.0f} N m s/rad")
    print(f"overshoot {100 * overshoot[best]:.1f} %, settled after {settling[best]:.3f} s")
    print(f"the base carries {base[-1, 2, best]:.2f} N at rest; the links weigh {weight:.2f} N")
    print(f"largest moment about its axis: {np.abs(base[:, 5, best]).max():.1f} N m")
    assert overshoot[best] < 0.05 and abs(base[-1, 2, best] / weight - 1) < 1e-3


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("urdf", nargs="?", default=ARM)
    main(**vars(options.parse_args()))
