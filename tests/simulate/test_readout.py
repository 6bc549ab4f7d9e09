"""Read-outs by name: against what the state and info hold, statics, and conservation."""

from functools import cache
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints import (
    Control,
    Engagement,
    Limits,
    Rattle,
    SemiImplicitEuler,
    SpringDamper,
    SystemBuilder,
    energies,
    joint_errors,
    reaction,
    readout,
    replace,
    replicate,
    rollout,
    step,
)
from jaxjoints.laws.transmissions import Mimic
from support import mechanisms

EXACT = 1e-12
DT, STEPS = 1e-2, 6
HALF = np.sqrt(0.5)
EVERYTHING = {
    name: True
    for name in (
        "coordinates speeds reactions efforts forces limits poses energy momentum time info"
    ).split()
}


@cache
def swung():
    """A chain that runs into its stops, in two environments of different masses, read twice."""
    laws = [Limits(-0.41, 0.41), SpringDamper(2.0, 0.1, rest=0.1)]
    system, state = mechanisms.chain(2, laws=laws, qd=1.0)
    spread = jnp.array([[1.0, 2.0]])
    system = replace(system, mass=system.mass[:, None] * spread)
    state = replicate(state, 2)
    effort = jnp.array(np.random.default_rng(2).normal(size=(STEPS, 2, 2)))
    record = readout(system, **EVERYTHING, axes="world")
    return system, state, effort, jax.jit(rolled)(system, state, effort, record)


def rolled(system, state, effort, record):
    return rollout(system, state, Control(effort=effort), dt=DT, record=record)[1]


@pytest.mark.slow
def test_only_what_is_asked_for_is_kept():
    *given, everything = swung()
    some = jax.eval_shape(rolled, *given, readout(given[0], coordinates="1", energy=True))
    assert list(some.coordinates) == ["1"] and some.coordinates["1"].shape == (STEPS, 1, 2)
    assert some.energy.springs.shape == (STEPS, 2)
    kept, all_kept = (
        {name for name, value in vars(x).items() if value is not None} for x in (some, everything)
    )
    assert kept == {"coordinates", "energy"} and all_kept == set(EVERYTHING)


@pytest.mark.slow
def test_readings_of_a_batch_are_those_of_each_environment():
    """Whose masses differ; one after another, by single steps."""
    system, state, effort, found = swung()
    one = replace(system, mass=system.mass[:, 1])
    state = jax.tree.map(lambda x: x[..., 1], state)
    read = readout(one, **EVERYTHING, axes="world")

    @jax.jit
    def advance(state, effort):
        state, info = step(one, state, Control(effort=effort), dt=DT)
        return state, read(one, state, info)

    for i in range(3):
        state, expected = advance(state, effort[i, :, 1])
        mine = jax.tree.map(lambda x: x[i, ..., 1], found)  # noqa: B023
        # Forces are impulses over h, whose rounding is 1/h times as large.
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9), mine, expected)


@pytest.mark.slow
def test_what_numpy_holds_reads_as_what_jax_holds():
    """Results of searches are NumPy arrays; so may systems be that come from files."""
    system, state, _, found = swung()
    info = jax.tree.map(lambda x: x[-1], found.info)
    read = readout(system, **EVERYTHING, axes="parent")

    def all_of(system, state, info):
        heavier = system.with_numbers({"body.0.mass": 3.0})
        return read(system, state, info), joint_errors(system, state), energies(heavier, state)

    held = jax.device_get((system, state, info))
    expected = jax.tree.leaves(all_of(system, state, info))
    for x, y in zip(jax.tree.leaves(all_of(*held)), expected, strict=True):
        np.testing.assert_array_equal(x, y)
    for x, y in zip(jax.tree.leaves(all_of(system, *held[1:])), expected, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.slow
def test_readings_by_name_are_those_of_the_flat_vectors():
    system, _, effort, found = swung()
    for joint in ("0", "1"):
        own = system.coordinate(joint)
        np.testing.assert_array_equal(found.efforts[joint], effort[:, own])
        np.testing.assert_array_equal(found.forces[joint], found.info.law_force[:, own])
    for name, flat in (("coordinates", found.info.q), ("speeds", found.info.qd)):
        by_name = getattr(found, name)["1"]
        np.testing.assert_allclose(by_name, flat[:, system.coordinate("1")], atol=EXACT)
    np.testing.assert_allclose(found.time[:, 0], DT * np.arange(1, STEPS + 1), rtol=EXACT)
    assert found.poses["1"].p.shape == (STEPS, 3, 2)


@pytest.mark.slow
def test_limits_push_apart_from_the_springs():
    """Of the force on a coordinate, what the implicit spring does not give."""
    laws = [Limits(-0.41, 0.41), SpringDamper(2.0, 0.1, rest=0.1)]
    system, state = mechanisms.slider(laws=laws, q=0.4, qd=1.0)
    record = readout(system, coordinates=True, speeds=True, forces=True, limits=True)
    effort = jnp.linspace(30.0, 10.0, 12)[:, None]
    _, found = jax.jit(
        lambda: rollout(system, state, Control(effort=effort), dt=DT, record=record)
    )()
    ((name, qd),) = found.speeds.items()
    q, limit = found.coordinates[name], found.limits[name]
    spring = -2.0 * (q - 0.1) - 0.1 * qd
    np.testing.assert_allclose(limit, found.forces[name] - spring, atol=1e-9)
    outwards = np.asarray(q) * np.asarray(limit)
    assert outwards.max() < 1e-7, "a limit pulls"
    assert (outwards < -0.1).sum() >= 2


# Reactions


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme",
    [SemiImplicitEuler(), pytest.param(Rattle(), marks=pytest.mark.slow)],
    ids=["Euler", "Rattle"],
)
def test_limits_carry_what_presses_against_them(scheme):
    """A block at rest against its stop: in every scheme the stop's force is that of the effort."""
    push = 3.0
    system, state = mechanisms.slider(laws=[Limits(upper=0.2)], q=0.2)
    final, readings = rollout(
        system,
        state,
        Control(effort=jnp.full((STEPS, 1), push)),
        dt=DT,
        record=readout(system, limits=True, forces=True),
        scheme=scheme,
    )
    np.testing.assert_allclose(readings.limits["rail"], -push, rtol=1e-9)
    np.testing.assert_allclose(readings.forces["rail"], -push, rtol=1e-9)


@pytest.mark.slow
def test_a_limit_pushes_from_the_side_that_it_is_engaged_at():
    """Engaged at the lower bound, a stop pushes up, even where the upper bound is nearer."""
    laws = [Limits(-0.1, 0.1, engagement=Engagement(break_speed=1.0))]
    system, state = mechanisms.slider(laws=laws, q=0.05, qd=-0.5)
    state = replace(state, engagement=jnp.full_like(state.engagement, 2.0))
    _, info = jax.jit(lambda state: step(system, state, dt=DT))(state)
    assert info.limit_force[0] > 0
    np.testing.assert_array_equal(info.limit_force, info.law_force)


@pytest.fixture(scope="module")
def beam():
    """A beam held by a slider that a spring holds up: its weight and the moment of its arm."""
    world = SystemBuilder()
    turned = ((0.3, 0.2, 0.1), (HALF, 0.0, 0.0, HALF))
    world.body("wall", prescribed=True, pose=turned)
    world.body("beam", mass=2.0, inertia=(0.1, 0.1, 0.1), com=(0.5, 0.0, 0.0), pose=turned)
    frame = ((0.1, 0.0, 0.0), (HALF, HALF, 0.0, 0.0))
    world.joint(
        "rail",
        mechanisms.Slider((0.0, 1.0, 0.0)),
        child="beam",
        parent="wall",
        frame_C=frame,
        frame_D=frame,
        laws=SpringDamper(1e5, 1e4, rest=2.0 * 9.81 / 1e5),
    )
    system, state = world.build()
    state, info = jax.jit(lambda s: step(system, s, dt=DT))(state)
    return system, state, info


WEIGHT = 2.0 * 9.81


@pytest.mark.parametrize(
    ("axes", "point", "force", "moment"),
    [
        # C is turned by 90° about x of the bodies, and the body by 90° about z of the world: the
        # arm of 0.4 m points along x of C, of the bodies, and along y of the world.
        ("C", "C", (0, WEIGHT, 0), (0, 0, 0.4 * WEIGHT)),
        ("child", "C", (0, 0, WEIGHT), (0, -0.4 * WEIGHT, 0)),
        ("child", "origin", (0, 0, WEIGHT), (0, -0.5 * WEIGHT, 0)),
        ("child", (0.5, 0.0, 0.0), (0, 0, WEIGHT), (0, 0, 0)),
        ("parent", "origin", (0, 0, WEIGHT), (0, -0.5 * WEIGHT, 0)),
        ("world", "C", (0, 0, WEIGHT), (0.4 * WEIGHT, 0, 0)),
        ("world", (0.3, 0.7, 5.0), (0, 0, WEIGHT), (0, 0, 0)),
    ],
)
def test_a_slider_carries_the_weight_of_its_beam(beam, axes, point, force, moment):
    """At rest, carried by the spring: the weight upwards, and its moment about the point."""
    found = reaction(*beam, "rail", axes=axes, point=point)
    np.testing.assert_allclose(found, force + moment, atol=1e-6)


# Energy


def test_springs_limits_and_transmissions_store_energy():
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    for name, q in (("a", 0.3), ("b", -0.5)):
        world.body(name, mass=1.0, inertia=(0.1, 0.1, 0.1))
        laws = [SpringDamper(4.0, rest=0.1), Limits(-0.2, 0.2, stiffness=50.0)]
        world.joint(name, mechanisms.Slider(), child=name, laws=laws, q=q)
    world.transmission("belt", Mimic(2.0), joints=["a", "b"], laws=SpringDamper(3.0, rest=0.2))
    with pytest.warns(UserWarning, match="outside its"):
        system, state = world.build()
    springs = 0.5 * 4.0 * (0.2**2 + 0.6**2) + 0.5 * 50.0 * (0.1**2 + 0.3**2)
    springs += 0.5 * 3.0 * (-0.5 - 0.6 - 0.2) ** 2
    found = jax.jit(energies)(system, replicate(state, 2))
    np.testing.assert_allclose(found.springs, [springs] * 2, rtol=EXACT)
    assert not found.kinetic.any() and not found.gravity.any()
    np.testing.assert_allclose(found.total, found.springs, rtol=EXACT)


@pytest.mark.slow
def test_energy_of_a_springy_pendulum_is_conserved_to_first_order():
    system, state = mechanisms.pendulum(q=0.8, laws=SpringDamper(6.0, rest=-0.2))
    record = readout(system, energy=True, momentum=True)
    run = jax.jit(lambda dt: rollout(system, state, dt=dt, steps=100, record=record))
    swings = []
    for dt in (4e-3, 2e-3):
        final, found = run(dt)
        total = found.energy.total
        swings.append(np.ptp(total) / np.ptp(found.energy.springs))
        assert np.ptp(found.energy.kinetic) > 10 * np.ptp(total)
    assert swings[1] < 0.03
    np.testing.assert_allclose(found.momentum[-1, :3], 1.0 * final.velocity[:, 0], rtol=EXACT)


class TestRefused:
    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"speeds": "pivott"}, "speeds 'pivott' is no joint or contact; did you mean 'pivot'"),
            ({"poses": ["bob", "world"]}, "poses 'world' is no body"),
            ({"reactions": True, "axes": "D"}, "axes 'D' must be 'C', 'child'"),
            (
                {"reactions": True, "point": "com"},
                "point 'com' must be 'C', 'origin' or coordinates",
            ),
            ({"point": (1.0, 2.0)}, r"point has shape \(2,\); it must be \(3,\)"),
        ],
    )
    def test_names_and_frames(self, given, words):
        system, _ = mechanisms.pendulum()
        with pytest.raises(ValueError, match=f"readout: .*{words}"):
            readout(system, **given)


def test_errors_of_transmissions_and_constraints_stand_beside_those_of_joints():
    """A follower that is 0.475 off, and a body that a constraint wants 2 m away."""

    @jj.struct
    class Height(jj.Constraint):
        """The first body stands at a height z [m]."""

        z: jax.Array
        position_rows: ClassVar[int] = 1

        def position(self, poses, t):
            return poses.p[2, :1] - self.z

    world = jj.SystemBuilder(gravity=(0.0, 0.0, 0.0))
    for name in ("one", "two"):
        world.body(name, mass=1.0, inertia=(0.1, 0.1, 0.1))
        world.joint(name, jj.Slider((1.0, 0.0, 0.0)), child=name)
    mimic = jj.transmissions.Mimic(ratio=2.0)
    world.transmission("follow", mimic, joints=("one", "two"))
    world.transmission("free", mimic, joints=("one", "two"), laws=jj.Damping(1.0))
    world.constraint("height", Height(2.0), bodies=["one"])
    system, state = world.build(rough=True)
    rough = jj.replicate(system.state(q={"one": 0.475}, rough=True), 3)
    np.testing.assert_array_equal(jj.joint_errors(system, rough), np.zeros((2, 3)))
    errors = np.abs(mimic.value(jnp.array([0.475, 0.0])))[0]
    assert errors > 0.2
    expected = np.outer([errors, 0.0], np.ones(3))
    np.testing.assert_allclose(jj.transmission_errors(system, rough), expected, rtol=1e-12)
    np.testing.assert_allclose(jj.constraint_errors(system, rough), [[2.0] * 3], rtol=1e-12)
