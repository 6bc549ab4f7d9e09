"""Contacts with friction stand on bodies: as nodes of the graph they would give the same motion."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.assembly import layout

DT, STEPS = 5e-3, 20


def scene(lone, tree):
    """A box that slides and turns on the ground, and a leg on a float whose foot meets it."""
    world = jj.SystemBuilder()
    ground, rough = jj.shapes.HalfSpace(), {"friction": 0.4}
    if lone:
        motion = (0.6, 0.2, 0.0, 0.0, 0.0, 1.0)
        world.body("box", mass=1.5, inertia=(0.01, 0.02, 0.02), pose=(0, 0, 0.1), velocity=motion)
        world.contact("box", jj.shapes.Box((0.3, 0.2, 0.2)), ground, child="box", **rough)
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
    """The state after some steps, and how many nodes of contacts stood on bodies."""
    final = jj.rollout(system, state, dt=DT, steps=STEPS)[0]
    return final, len(layout.layout(system).structure.way.standing)


@pytest.mark.parametrize(
    ("lone", "tree", "nodes"),
    [(True, False, 8), pytest.param(True, True, 9, marks=pytest.mark.slow)],
    ids=["lone", "lone and tree"],
)
def test_contacts_that_stand_on_bodies_move_them_as_nodes_of_the_graph_do(
    monkeypatch, lone, tree, nodes
):
    final, standing = moved(*scene(lone, tree))
    assert standing == nodes
    monkeypatch.setattr(layout._Group, "can_stand", False)
    layout._layout.cache_clear()
    layout.correspondence.cache_clear()
    jax.clear_caches()
    try:
        expected, standing = moved(*scene(lone, tree))
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
