"""Bodies of each shape come to rest on each other, or roll: gaps, heights and energy."""

import jax
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints import shapes

DT, STEPS, EVERY = 2e-3, 500, 50
SIDE = (0.4, 0.3, 0.2)
TURN = (np.cos(0.2), 0.0, 0.0, np.sin(0.2))
LYING = (np.sqrt(0.5), 0.0, np.sqrt(0.5), 0.0)
# Of hard contact: the floor of its stiffness lets a body sink by so much.
REST = 2e-6


def scene():
    """Columns of bodies, far from each other, each a little above what it falls on."""
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -9.81))
    box = np.array(SIDE)
    moments = 2.0 / 12 * (box @ box - box**2)
    expected = {}

    def add(name, place, height, inertia=moments, drop=1e-3, turn=(1.0, 0.0, 0.0, 0.0), **motion):
        expected[name] = height
        pose = (np.array([*place, height + drop]), turn)
        world.body(name, mass=2.0, inertia=inertia, pose=pose, **motion)

    rough, crate = {"friction": 0.5, "restitution": 0.0}, shapes.Box(SIDE)
    # A stack of three boxes, turned against each other, on a table of the world.
    table = shapes.Box((2.0, 2.0, 0.2))
    add("lower", (0.0, 0.0), 0.2)
    add("middle", (0.05, 0.02), 0.4, turn=TURN, drop=2e-3)
    add("upper", (0.02, 0.0), 0.6, drop=3e-3)
    world.contact("lower", crate, table, child="lower", **rough)
    world.contact("middle", crate, crate, child="middle", parent="lower", **rough)
    world.contact("upper", crate, crate, child="upper", parent="middle", **rough)
    # A rod across a beam, and a ball on it, which rolls.
    far = {"frame_D": (0.0, 5.0, 0.0)}
    rod, ball = shapes.Capsule(0.05, 0.8), shapes.Sphere(0.1)
    add("rod", (0.1, 5.0), 0.15, inertia=(0.1, 0.1, 0.003), turn=LYING)
    world.contact("rod", rod, table, child="rod", **far, **rough)
    speed = (0.5, 0.0, 0.0, 0.0, 5.0, 0.0)
    add("ball", (0.0, 5.5), 0.2, inertia=(0.008,) * 3, drop=0.0, velocity=speed)
    world.contact("ball", ball, table, child="ball", **far, **rough)
    return *world.build(), expected


@pytest.fixture(scope="module")
def film():
    system, state, expected = scene()

    def readings(state):
        return jj.gaps(system, state)

    run = jax.jit(lambda s: jj.rollout(system, s, dt=DT, steps=STEPS, record_every=EVERY))
    end, seen = run(state)
    gaps = jax.jit(jax.vmap(readings))(seen)
    return system, state, end, seen, np.asarray(gaps), expected


def at(system, *names):
    return [system.topology.bodies.index(name) for name in names]


def kinetic(system, state, name):
    (i,) = at(system, name)
    spin = state.omega[:, i]
    return float(state.velocity[:, i] @ state.velocity[:, i] + 0.01 * spin @ spin)


STANDING = ("lower", "middle", "upper", "rod")


@pytest.mark.parametrize("name", STANDING)
def test_what_falls_on_a_shape_rests_on_it(film, name):
    system, state, end, _, gaps, expected = film
    (i,) = at(system, name)
    assert end.position[2, i] == pytest.approx(expected[name], abs=3 * REST)
    # Where it fell, but for what the landing pushes it aside.
    np.testing.assert_allclose(end.position[:2, i], state.position[:2, i], atol=1e-3)
    assert kinetic(system, end, name) < 1e-10
    own = [k for k, one in enumerate(system.topology.contacts) if one.split("/")[0] == name]
    assert gaps[1:, own].min() > -REST
    assert abs(gaps[-1, own].min()) < REST


def test_a_ball_rolls_over_a_box(film):
    system, state, end, _, gaps, _ = film
    (i,) = at(system, "ball")
    assert float(end.position[0, i]) == pytest.approx(0.5 * DT * STEPS, abs=1e-5)
    assert float(end.omega[1, i]) == pytest.approx(5.0, abs=1e-5)
    own = system.topology.contacts.index("ball")
    assert np.abs(gaps[:, own]).max() < REST
