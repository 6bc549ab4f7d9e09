"""Bodies of each shape come to rest on each other, or roll: gaps, heights and energy."""

from functools import cache

import jax
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints import shapes
from support.cases import mostly_slow

DT, STEPS, EVERY = 2e-3, 500, 50
SIDE = (0.4, 0.3, 0.2)
TURN = (np.cos(0.2), 0.0, 0.0, np.sin(0.2))
ACROSS = (np.sqrt(0.5), np.sqrt(0.5), 0.0, 0.0)
LYING = (np.sqrt(0.5), 0.0, np.sqrt(0.5), 0.0)
# Of hard contact: the floor of its stiffness lets a body sink by so much.
REST = 2e-6
SLOPE = 0.2


STACK, BEAM, GROUND = ("lower", "middle", "upper"), ("rod", "ball"), "ground"
STANDING = {**dict.fromkeys(STACK, STACK), "rod": BEAM}
STANDING |= dict.fromkeys(("stands", "pebble", "pyramid"), GROUND)
ROLLING = {"ball": (BEAM, ("ball",)), "rolls": (GROUND, ("rolls/0", "rolls/1"))}


def scene(part):
    """Bodies far from each other, each a little above what it falls on: a stack of boxes, round
    ones on a box, or what the ground carries.
    """
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -9.81))
    box = np.array(SIDE)
    moments = 2.0 / 12 * (box @ box - box**2)
    expected = {}

    def add(name, place, height, inertia=moments, drop=1e-3, turn=(1.0, 0.0, 0.0, 0.0), **motion):
        expected[name] = height
        pose = (np.array([*place, height + drop]), turn)
        world.body(name, mass=2.0, inertia=inertia, pose=pose, **motion)

    rough, crate = {"friction": 0.5, "restitution": 0.0}, shapes.Box(SIDE)
    table = shapes.Box((2.0, 2.0, 0.2))
    rod, ball = shapes.Capsule(0.05, 0.8), shapes.Sphere(0.1)
    speed = (0.5, 0.0, 0.0, 0.0, 5.0, 0.0)
    if part == STACK:
        # A stack of three boxes, turned against each other, on a table of the world.
        add("lower", (0.0, 0.0), 0.2)
        add("middle", (0.05, 0.02), 0.4, turn=TURN, drop=2e-3)
        add("upper", (0.02, 0.0), 0.6, drop=3e-3)
        world.contact("lower", crate, table, child="lower", **rough)
        world.contact("middle", crate, crate, child="middle", parent="lower", **rough)
        world.contact("upper", crate, crate, child="upper", parent="middle", **rough)
    elif part == BEAM:
        # A rod across a beam, and a ball on it, which rolls.
        far = {"frame_D": (0.0, 5.0, 0.0)}
        add("rod", (0.1, 5.0), 0.15, inertia=(0.1, 0.1, 0.003), turn=LYING)
        world.contact("rod", rod, table, child="rod", **far, **rough)
        add("ball", (0.0, 5.5), 0.2, inertia=(0.008,) * 3, drop=0.0, velocity=speed)
        world.contact("ball", ball, table, child="ball", **far, **rough)
    else:
        # On the ground: cylinders that stand and that roll, a pebble of many faces, a tetrahedron.
        ground, drum = shapes.HalfSpace(), shapes.Cylinder(0.1, 0.3)
        around = 2.0 * np.array([0.01 / 4 + 0.09 / 12] * 2 + [0.01 / 2])
        add("stands", (0.0, 10.0), 0.15, inertia=around, drop=2e-3)
        add("rolls", (1.0, 10.0), 0.1, inertia=around, drop=0.0, turn=ACROSS, velocity=speed)
        for name in ("stands", "rolls"):
            world.contact(name, drum, ground, child=name, **rough)
        sole = [[x, y, -0.05] for x, y in ((0.1, 0.1), (-0.1, 0.12), (-0.1, -0.1), (0.12, -0.1))]
        top = 0.15 * np.array([[np.cos(a), np.sin(a), 0.4] for a in np.arange(11)])
        add("pebble", (2.0, 10.0), 0.05, drop=2e-3)
        pebble = shapes.ConvexMesh.hull_of(np.concatenate([sole, top]))
        world.contact("pebble", pebble, ground, child="pebble", **rough)
        add("pyramid", (3.0, 10.0), 0.05, drop=2e-3)
        pyramid = shapes.ConvexMesh(np.array([*sole, [0.0, 0.0, 0.1]]))
        world.contact("pyramid", pyramid, ground, child="pyramid", **rough)
        # A ball on a height field that falls with x.
        x = np.linspace(-4, 4, 9)
        ramp = shapes.HeightField(np.outer(-SLOPE * x, np.ones(3)), (8.0, 2.0))
        down = {"frame_D": (0.0, 15.0, 0.0)}
        height = 0.1 * np.sqrt(1 + SLOPE**2)
        add("descends", (0.3, 15.0), height - 0.3 * SLOPE, inertia=(0.008,) * 3, drop=0.0)
        world.contact("descends", ball, ramp, child="descends", friction=0.9, **down)
    return *world.build(), expected


@cache
def film(part):
    """A part of the scene, its start and end, the gaps over time and heights at rest."""
    system, state, expected = scene(part)
    run = jax.jit(lambda s: jj.rollout(system, s, dt=DT, steps=STEPS, record_every=EVERY))
    end, seen = run(state)
    gaps = jax.jit(jax.vmap(lambda state: jj.gaps(system, state)))(seen)
    return system, state, end, np.asarray(gaps), expected


def at(system, *names):
    return [system.topology.bodies.index(name) for name in names]


def kinetic(system, state, name):
    (i,) = at(system, name)
    spin = state.omega[:, i]
    return float(state.velocity[:, i] @ state.velocity[:, i] + 0.01 * spin @ spin)


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(STANDING, default=STACK))
def test_what_falls_on_a_shape_rests_on_it(name):
    system, state, end, gaps, expected = film(STANDING[name])
    (i,) = at(system, name)
    assert end.position[2, i] == pytest.approx(expected[name], abs=3 * REST)
    # Where it fell, but for what the landing pushes it aside.
    np.testing.assert_allclose(end.position[:2, i], state.position[:2, i], atol=1e-3)
    assert kinetic(system, end, name) < 1e-10
    own = [k for k, one in enumerate(system.topology.contacts) if one.split("/")[0] == name]
    assert gaps[1:, own].min() > -REST
    assert abs(gaps[-1, own].min()) < REST


@pytest.mark.slow
@pytest.mark.parametrize("name", ROLLING)
def test_a_ball_rolls_over_a_box_and_a_cylinder_over_the_ground(name):
    part, lowest = ROLLING[name]
    system, state, end, gaps, _ = film(part)
    (i,) = at(system, name)
    way = float(end.position[0, i] - state.position[0, i])
    assert way == pytest.approx(0.5 * DT * STEPS, abs=1e-5)
    np.testing.assert_allclose(end.omega[:, i], [0.0, 5.0, 0.0], atol=1e-5)
    own = [system.topology.contacts.index(one) for one in lowest]
    assert np.abs(gaps[:, own]).max() < REST


@pytest.mark.slow
def test_a_ball_rolls_down_a_height_field_as_down_a_slope():
    """5/7 of the acceleration of what slides, over the edges of triangles."""
    system, state, end, gaps, _ = film(GROUND)
    (i,) = at(system, "descends")
    way = np.linalg.norm(np.asarray(end.position - state.position)[:, i])
    fall = 9.81 * SLOPE / np.sqrt(1 + SLOPE**2)
    time = DT * STEPS
    # Semi-implicit steps go farther by half a step.
    assert way == pytest.approx(5 / 7 * fall * time * (time + DT) / 2, rel=1e-4)
    assert way > 0.5
    own = system.topology.contacts.index("descends")
    assert np.abs(gaps[:, own]).max() < 1e-5
