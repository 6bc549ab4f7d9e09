"""Contacts with friction stand on bodies: as nodes of the graph they would give the same motion."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.assembly import layout
from support.cases import mostly_slow

DT, STEPS = 5e-3, 20


def scene(lone=False, tree=False, pile=False, tied=False, tray=False):
    """A box that slides and turns on the ground, and a leg on a float whose foot meets it; a box
    that slides on another, or turns on a pin in it, which slides on the ground; two on a tray that
    swings on a hinge, of which one is on a slide.
    """
    world = jj.SystemBuilder()
    ground, rough = jj.shapes.HalfSpace(), {"friction": 0.4}
    size = (0.3, 0.2, 0.2)
    block = {"mass": 1.5, "inertia": (0.01, 0.02, 0.02)}
    on_top = {"frame_D": (0.0, 0.0, 0.1), **rough}
    if pile:
        speeds = (0.6, 0.2), (0.6, 0.2) if tied else (-0.3, 0.3)
        for i, (speed, spin) in enumerate(zip(speeds, (1.0, -2.0), strict=True)):
            motion = (*speed, 0.0, 0.0, 0.0, spin)
            world.body(f"{i}", pose=(0, -2, 0.1 + 0.2 * i), velocity=motion, **block)
        if tied:
            pin = {"frame_C": (0.0, 0.0, -0.1), "frame_D": (0.0, 0.0, 0.1), "tree": False}
            world.joint("pin", jj.Hinge((0, 0, 1)), child="1", parent="0", **pin)
        world.contact("under", jj.shapes.Box(size), ground, child="0", **rough)
        world.contact("on", jj.shapes.Box(size), ground, child="1", parent="0", **on_top)
    if tray:
        world.body("tray", **block)
        hinge = {"frame_D": (0.0, -4.0, 1.5), "frame_C": (0.0, 0.0, 0.5), "qd": 0.5}
        world.joint("swing", jj.Hinge((0, 1, 0)), child="tray", **hinge)
        world.body("loose", pose=(-0.2, -4, 1.2), velocity=(0.3, 0, 0, 0, 0, 1.0), **block)
        world.contact("lies", jj.shapes.Box(size), ground, child="loose", parent="tray", **on_top)
        world.body("held", **block)
        world.joint("rail", jj.Slider((0, 0, 1)), child="held", frame_D=(0.2, -4, 1.2))
        # The other way round: corners of the tray touch the face of the held one, from below.
        face = {"frame_D": ((0.0, 0.0, -0.1), (0.0, 0.0, 1.0, 0.0)), **rough}
        world.contact("lifts", jj.shapes.Box(size), ground, child="tray", parent="held", **face)
    if lone:
        motion = (0.6, 0.2, 0.0, 0.0, 0.0, 1.0)
        world.body("box", mass=1.5, inertia=(0.01, 0.02, 0.02), pose=(0, 0, 0.1), velocity=motion)
        world.contact("box", jj.shapes.Box(size), ground, child="box", **rough)
    if tree:
        motion = (0.5, 0.0, -0.4, 0.0, 0.3, 0.0)
        world.body("hip", mass=2.0, inertia=(0.1,) * 3, pose=(0, 2, 0.5), velocity=motion)
        world.body("shin", mass=0.5, inertia=(0.01, 0.01, 0.002))
        stop = jj.Limits(-0.2, 0.2)
        hinge = {"frame_C": (0.0, 0.0, 0.2), "frame_D": (0.0, 0.0, -0.05)}
        world.joint("knee", jj.Hinge((0, 1, 0)), child="shin", parent="hip", laws=[stop], **hinge)
        foot = {"frame_C": (0.0, 0.0, -0.2)}
        world.contact("foot", jj.shapes.Sphere(0.05), ground, child="shin", **foot, **rough)
    return world.build()


def moved(system, state):
    """The state after some steps, how many nodes of contacts stood on bodies, and how many pairs
    of these there were.
    """
    final, ok = jj.rollout(system, state, dt=DT, steps=STEPS, record=lambda _, info: info.ok)
    assert jnp.all(ok)
    way = layout.layout(system).structure.way
    return final, len(way.standing), len(way.pairs)


SCENES = {
    "lone": ({"lone": True}, 8, 0),
    "lone and tree": ({"lone": True, "tree": True}, 9, 0),
    "pile": ({"pile": True}, 16, 1),
    "pile and tree": ({"pile": True, "tree": True}, 17, 1),
    "pile on a pin": ({"pile": True, "tied": True}, 16, 1),
    "tray": ({"tray": True}, 16, 2),
}


@pytest.mark.parametrize("name", mostly_slow(SCENES, default=("lone", "pile")))
def test_contacts_that_stand_on_bodies_move_them_as_nodes_of_the_graph_do(monkeypatch, name):
    parts, nodes, pairs = SCENES[name]
    final, standing, on_pairs = moved(*scene(**parts))
    assert (standing, on_pairs) == (nodes, pairs)
    monkeypatch.setattr(layout._Group, "can_stand", False)
    layout._layout.cache_clear()
    layout.correspondence.cache_clear()
    jax.clear_caches()
    try:
        expected, standing, _ = moved(*scene(**parts))
    finally:
        monkeypatch.undo()
        layout._layout.cache_clear()
        layout.correspondence.cache_clear()
        jax.clear_caches()
    assert standing == 0
    for name in ("position", "quaternion", "velocity", "omega"):
        np.testing.assert_allclose(getattr(final, name), getattr(expected, name), rtol=0, atol=1e-9)
    # Friction brakes: otherwise nothing would be compared.
    assert jnp.all(jnp.abs(final.velocity[0]) < 0.65)


@pytest.mark.slow
def test_both_modes_agree_and_are_finite_differences_for_boxes_on_each_other():
    """Of all speeds at once, along one direction; enough passes for a friction that is exact."""
    system, state = scene(pile=True)
    scheme = jj.SemiImplicitEuler(solver=jj.Newton(iterations=8, passes=12))
    rng = np.random.default_rng(0)
    way = [jnp.asarray(rng.normal(size=(3, 2))) for _ in range(2)]

    def end(speeds):
        start = jj.replace(state, velocity=speeds[0], omega=speeds[1])
        final = jj.rollout(system, start, dt=DT, steps=6, scheme=scheme)[0]
        return final.position, final.velocity, final.omega

    @jax.jit
    def derivatives(speeds):
        along = jax.jvp(end, (speeds,), (way,))[1]
        back = jax.vjp(end, speeds)[1](along)[0]
        return along, sum(jnp.vdot(x, y) for x, y in zip(back, way, strict=True))

    at, h, run = [state.velocity, state.omega], 1e-5, jax.jit(end)
    along, twice = derivatives(at)
    ends = [run([x + s * h * y for x, y in zip(at, way, strict=True)]) for s in (1, -1)]
    for slope, ahead, behind in zip(along, *ends, strict=True):
        np.testing.assert_allclose(slope, (ahead - behind) / (2 * h), rtol=0, atol=1e-6)
    np.testing.assert_allclose(twice, sum(jnp.vdot(x, x) for x in along), rtol=1e-10)
