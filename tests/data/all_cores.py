"""A rollout on two cores in a fresh environment: a compiler may fail there and not for one core."""

import math

import jax.numpy as jnp

import jaxjoints as jj

ANGLE, HALF, GRAVITY = 0.5, 0.5, 9.81


def main() -> None:
    jj.use_all_cores(2)
    world, parent = jj.SystemBuilder(gravity=(0.0, 0.0, -GRAVITY)), jj.WORLD
    for i in range(3):
        link = world.body(f"link {i}", mass=1.0, inertia=(0.1, 0.1, 0.02), com=(0.0, 0.0, -HALF))
        end = (0.0, 0.0, -2 * HALF if i else 0.0)
        hinge = jj.Hinge(axis=(0.0, 1.0, 0.0))
        world.joint(f"hinge {i}", hinge, child=link, parent=parent, frame_D=end, q=ANGLE)
        parent = link
    system, state = world.build()
    states, record = jj.replicate(state, 16), jj.readout(system, energy=True)
    final, readings = jj.rollout(
        system, states, dt=1e-3, steps=100, record_every=100, record=record
    )
    assert len(final.q.sharding.device_set) == 2, final.q.sharding
    # From rest. The centre of each link hangs below half of it and all of those before it.
    drops = [math.cos(ANGLE * (i + 1)) * HALF * (2 * (2 - i) + 1) for i in range(3)]
    energy = readings.energy
    gained = energy.total + GRAVITY * sum(drops)
    # The scheme keeps the energy to the order of a step.
    assert jnp.all(energy.kinetic > 0.5) and jnp.all(jnp.abs(gained) < 0.01), (energy, gained)


if __name__ == "__main__":
    main()
