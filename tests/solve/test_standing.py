"""Contacts stand on bodies: as nodes of the graph they would give the same motion."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints import environments
from jaxjoints.assembly import layout
from jaxjoints.solve.paths import NEVER
from support.cases import mostly_slow

DT, STEPS = 5e-3, 20


def scene(lone=False, tree=False, pile=False, tied=False, tray=False, folded=False):
    """A box that slides and turns on the ground, and a leg on a float whose foot meets it; a box
    that slides on another, or turns on a pin in it, which slides on the ground; two on a tray that
    swings on a hinge, of which one is on a slide; an arm whose hand touches the body that holds it.
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
    if folded:
        # A hand on an arm comes down on the body that holds the arm, and slides on it.
        motion = (0.5, 0.0, 0.0, 0.0, 0.3, 0.0)
        world.body("torso", pose=(0, 6, 0.1), velocity=motion, **block)
        world.body("arm", mass=0.2, inertia=(2e-3,) * 3)
        world.body("hand", **block)
        shoulder = {"frame_C": (0.0, 0.0, -0.2), "frame_D": (-0.2, 0.0, 0.15), "q": 1.42}
        world.joint("shoulder", jj.Hinge((0, 1, 0)), child="arm", parent="torso", **shoulder)
        wrist = {"frame_C": (0.0, 0.0, 0.0), "frame_D": (0.0, 0.0, 0.2), "q": -1.42}
        world.joint("wrist", jj.Hinge((0, 1, 0)), child="hand", parent="arm", **wrist)
        world.contact("feet", jj.shapes.Box(size), ground, child="torso", **rough)
        world.contact("palm", jj.shapes.Box(size), ground, child="hand", parent="torso", **on_top)
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
    "folded": ({"folded": True}, 16, 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(SCENES, default=("lone", "pile")))
def test_contacts_that_stand_on_bodies_move_them_as_nodes_of_the_graph_do(monkeypatch, name):
    parts, nodes, pairs = SCENES[name]
    final, standing, on_pairs = moved(*scene(**parts))
    assert (standing, on_pairs) == (nodes, pairs)
    monkeypatch.setattr(layout._Group, "stands_beside", NEVER)
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


def hopper(angle):
    """A leg that can move in one vertical plane alone, at an angle about the vertical."""
    turn = (0.0, 0.0, 0.0), (np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2))
    level = np.sqrt(0.5)
    world = jj.SystemBuilder()
    for name, mass in (("cart", 1.0), ("lift", 1.0), ("torso", 3.0), ("shin", 0.5)):
        world.body(name, mass=mass, inertia=(0.01,) * 3)
    world.joint("x", jj.Slider((1, 0, 0)), child="cart", frame_D=turn, qd=0.5)
    world.joint("z", jj.Slider((0, 0, 1)), child="lift", parent="cart", q=0.66)
    world.joint("pitch", jj.Hinge((0, 1, 0)), child="torso", parent="lift", qd=0.3)
    knee = {"frame_C": (0.0, 0.0, 0.25), "frame_D": (0.0, 0.0, -0.1), "q": 0.3}
    stop = jj.Limits(-0.5, 0.5)
    world.joint("knee", jj.Hinge((0, 1, 0)), child="shin", parent="torso", laws=[stop], **knee)
    foot = {"frame_C": ((0.0, 0.0, -0.25), (level, 0.0, level, 0.0)), "frame_D": turn}
    shapes = jj.shapes.Capsule(0.05, 0.2), jj.shapes.HalfSpace()
    world.contact("foot", *shapes, child="shin", friction=0.7, **foot)
    return world.build()


@pytest.mark.slow
@pytest.mark.parametrize("angle", [0.3, pytest.param(1.1, marks=pytest.mark.slow)])
def test_a_planar_leg_moves_alike_in_any_vertical_plane_in_single_precision(angle):
    """No joint lets the foot move across its plane: what rounding leaves of that is no mobility."""

    def path(angle):
        system, state = hopper(angle)
        record = lambda state, info: (state.q, info.ok)  # noqa: E731
        return jj.rollout(system, state, dt=2e-3, steps=300, record=record)[1]

    with jax.enable_x64(False):
        (q, ok), (expected, _) = path(angle), path(0.0)
    assert q.dtype == jnp.float32
    assert jnp.all(ok)
    # It fell, and the foot brakes it.
    assert jnp.ptp(expected[:, 1]) > 0.03
    np.testing.assert_allclose(q, expected, rtol=0, atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("smoothing", [None, 1e-3, 0.1])
def test_steps_of_robots_driven_at_random_are_solved(smoothing):
    """Feet hit the ground and slide on it, with round cones of friction."""
    task = environments.make("ant")
    episode = task.reset(jax.random.split(jax.random.key(0), 8))
    actions = jax.random.uniform(jax.random.key(1), (60, 8, 8), minval=-1.0, maxval=1.0)
    each = jax.vmap(jax.vmap(task.control, in_axes=-1, out_axes=-1))
    _, (ok, velocity) = jj.rollout(
        task.system,
        episode.state,
        each(actions),
        dt=0.01,
        substeps=5,
        record_every=1,
        record=lambda state, info: (info.ok, state.velocity),
        scheme=jj.SemiImplicitEuler(jj.Newton(smoothing=smoothing)),
    )
    # One smoothed solve in a hundred may end unsolved; none may throw a robot away.
    assert ok.mean() >= (1.0 if smoothing is None else 0.98)
    assert np.abs(velocity).max() < 20.0


@pytest.mark.parametrize("corners", [3, 4])
def test_more_than_three_contacts_without_friction_stand(corners):
    """A plate glides on studs, and carries another one. Nothing anchors the first step, which
    misses the loads a little; the studs sink, and ERP lifts them.
    """
    world = jj.SystemBuilder()
    stud, plane = jj.shapes.Sphere(0.05), jj.shapes.HalfSpace()
    for i, parent in enumerate((jj.WORLD, "0")):
        motion = {"pose": (0.0, 0.0, 0.1 + 0.1 * i), "velocity": (0.3, 0.0, 0.0, 0.0, 0.0, 0.5)}
        world.body(f"{i}", mass=1.0 + i, inertia=(0.02, 0.03, 0.05), **motion)
        top = {"frame_D": (0.0, 0.0, 0.05)} if i else {}
        for n in range(corners):
            angle = 2 * np.pi * n / corners
            at = (0.2 * np.cos(angle), 0.2 * np.sin(angle), 0.05 * (i - 1))
            world.contact(f"{i}{n}", stud, plane, child=f"{i}", parent=parent, frame_C=at, **top)
    system, state = world.build()
    way = layout.layout(system).structure.way
    assert (len(way.standing), len(way.pairs)) == ((0, 0) if corners == 3 else (8, 1))
    final, info = jj.rollout(system, state, dt=DT, steps=60, record=lambda _, info: info)
    assert np.all(info.ok)
    loads = info.contact_force[:, 0].reshape(60, 2, corners).sum(axis=2)
    weights = 9.81 * np.array([3.0, 2.0])
    np.testing.assert_allclose(loads[0], weights, rtol=1e-9 if corners == 3 else 1e-4)
    np.testing.assert_allclose(loads[-1], weights, rtol=1e-9)
    np.testing.assert_allclose(final.velocity, state.velocity, rtol=0, atol=1e-9)
    np.testing.assert_allclose(final.omega, state.omega, rtol=0, atol=1e-9)
