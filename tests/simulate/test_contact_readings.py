"""What is read of contacts by name: gaps, speeds, forces, reactions; switches, paths, pictures."""

import jax
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.viewing.motion import read_motion

MASS, RADIUS, G, DT = 2.0, 0.1, 9.81, 5e-3


@pytest.fixture(scope="module")
def rolled():
    """A ball that slides on the ground, one of two environments with its contact switched off."""
    world = jj.SystemBuilder()
    motion = {"pose": (0.0, 0.0, RADIUS), "velocity": (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)}
    world.body("ball", mass=MASS, inertia=(0.01,) * 3, **motion)
    shapes = jj.shapes.Sphere(RADIUS), jj.shapes.HalfSpace()
    world.contact("sole", *shapes, child="ball", friction=0.4, enabled=True)
    system, state = world.build()
    system = system.with_contact("sole", enabled=np.array([1.0, 0.0]))
    record = jj.readout(
        system, gaps=True, speeds="sole", forces="sole", reactions="sole", axes="world", info=True
    )

    @jax.jit
    def run(state):
        both = (record, None)
        return [jj.rollout(system, state, dt=DT, steps=4, record=one)[1] for one in both]

    return system, *run(jj.replicate(state, 2))


@pytest.mark.slow
def test_gaps_speeds_forces_and_reactions_by_name(rolled):
    _, readings, _ = rolled
    last = jax.tree.map(lambda x: np.asarray(x[-1]), readings)
    fallen = G * DT**2 * (1 + 2 + 3 + 4)
    np.testing.assert_allclose(last.gaps["sole"], [0.0, -fallen], atol=1e-7)
    weight, friction = MASS * G, 0.4 * MASS * G
    np.testing.assert_allclose(last.forces["sole"][:3, 0], [weight, -friction, 0.0], rtol=1e-5)
    assert not np.any(last.forces["sole"][:, 1])
    np.testing.assert_allclose(
        last.reactions["sole"][:3, 0], [-friction, 0.0, weight], rtol=1e-5, atol=1e-9
    )
    # About the centre of the ball, where C is.
    np.testing.assert_allclose(last.reactions["sole"][4, 0], friction * RADIUS, rtol=1e-5)
    slip = 1.0 - 0.4 * G * 4 * DT * (1 + MASS * RADIUS**2 / 0.01)
    np.testing.assert_allclose(last.speeds["sole"][:3, 0], [0.0, slip, 0.0], atol=1e-5)
    np.testing.assert_allclose(last.speeds["sole"][0, 1], -G * 4 * DT, rtol=1e-6)


@pytest.mark.slow
def test_numbers_of_a_contact_by_their_paths(rolled):
    system, _, _ = rolled
    assert float(system.number("contact.sole.laws.1.friction")) == 0.4
    changed = system.with_numbers({"contact.sole.geometry.shape_C.radius": 0.2})
    assert float(changed.contact("sole").geometry.shape_C.radius) == 0.2


@pytest.mark.slow
def test_a_picture_has_the_points_and_forces_of_contacts_in_the_world(rolled):
    system, readings, states = rolled
    motion = read_motion(system, (states, readings.info))
    np.testing.assert_allclose(motion.contact_points[-1, 0, 0, 2], 0.0, atol=1e-6)
    np.testing.assert_allclose(
        motion.contact_forces[-1, 0, 0], [-0.4 * MASS * G, 0.0, MASS * G], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(motion.gaps[:, 0, 0], 0.0, atol=1e-7)
