"""A rollout on two cores in a fresh environment: a compiler may fail there and not for one core."""

import math

import numpy as np

import jaxjoints as jj

ANGLE, HALF, GRAVITY, INERTIA = 0.5, 0.5, 9.81, 0.1


def main() -> None:
    jj.use_all_cores(2)
    world, parent = jj.SystemBuilder(gravity=(0.0, 0.0, -GRAVITY)), jj.WORLD
    for i in range(3):
        inertia = (INERTIA, INERTIA, 0.02)
        link = world.body(f"link {i}", mass=1.0, inertia=inertia, com=(0.0, 0.0, -HALF))
        end = (0.0, 0.0, -2 * HALF if i else 0.0)
        hinge = jj.Hinge(axis=(0.0, 1.0, 0.0))
        world.joint(f"hinge {i}", hinge, child=link, parent=parent, frame_D=end, q=ANGLE)
        parent = link
    system, state = world.build()
    states = jj.replicate(state, 16)
    final, _ = jj.rollout(system, states, dt=1e-3, steps=100, record_every=100)
    assert len(final.q.sharding.device_set) == 2, final.q.sharding
    height, velocity, turning = map(np.asarray, (final.position[2], final.velocity, final.omega))
    kinetic = 0.5 * (velocity**2).sum(axis=(0, 1)) + 0.5 * INERTIA * (turning**2).sum(axis=(0, 1))
    # From rest. The centre of each link hangs below half of it and all of those before it.
    drops = [math.cos(ANGLE * (i + 1)) * HALF * (2 * (2 - i) + 1) for i in range(3)]
    gained = kinetic + GRAVITY * (height.sum(axis=0) + sum(drops))
    # The scheme keeps the energy to the order of a step.
    assert np.all(kinetic > 0.5) and np.all(np.abs(gained) < 0.01), (kinetic, gained)


if __name__ == "__main__":
    main()
