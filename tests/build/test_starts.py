"""Starting somewhere: one coordinate of a joint of several, another time."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.algebra.spatial import error_twist
from jaxjoints.dynamics.selection import indices_of, values_of
from support.refusals import refused, warned

SOLID = {"mass": 1.0, "inertia": (0.1, 0.2, 0.15)}
EXACT = 1e-12


@pytest.fixture(scope="module")
def leg():
    """A hip of three angles with servos on two of them, a knee, and a loose ball."""
    world = jj.SystemBuilder()
    thigh, shank, ball = (world.body(name, **SOLID) for name in ("thigh", "shank", "ball"))
    drives = [jj.Servo(40.0, 5.0, target=0.1, coordinate=k) for k in (0, 2)]
    world.joint("hip", jj.Gimbal("ZYX"), child=thigh, laws=drives)
    knee = {"child": shank, "parent": thigh, "frame_D": (0.0, 0.0, -0.4)}
    world.joint("knee", jj.Hinge((0.0, 1.0, 0.0)), **knee)
    world.joint("a.1", jj.Translation(), child=ball)
    return world.build()


def test_one_coordinate_of_several_leaves_the_others_as_they_are(leg):
    system, built = leg
    hip = system.coordinate("hip")
    state = system.state(q={"hip.1": 0.3}, qd={"hip.2": 2.0, "hip.0": -1.0})
    whole = system.state(q={"hip": (0.0, 0.3, 0.0)}, qd={"hip": (-1.0, 0.0, 2.0)})
    jax.tree.map(np.testing.assert_array_equal, state, whole)
    before = system.state(q={"hip": (0.1, 0.2, 0.3), "knee": 0.5})
    moved = system.state(q={"hip.1": -0.7}, start=before)
    np.testing.assert_allclose(moved.q[hip], (0.1, -0.7, 0.3), atol=EXACT)
    np.testing.assert_allclose(moved.q[system.coordinate("knee")], 0.5, atol=EXACT)
    # The one coordinate of a joint has a number too.
    one = system.state(q={"knee.0": 0.5, "hip.0": 0.1, "hip.2": 0.3, "hip.1": 0.2})
    jax.tree.map(np.testing.assert_array_equal, one, before)


def test_one_coordinate_may_be_batched_and_traced(leg):
    system, _ = leg
    angles = jnp.linspace(0.0, 1.0, 5)
    state = system.state(q={"hip.1": angles, "hip.0": 0.2})
    wide = jnp.stack([jnp.full(5, 0.2), angles, jnp.zeros(5)])
    jax.tree.map(np.testing.assert_array_equal, state, system.state(q={"hip": wide}))
    traced = jax.jit(lambda angle: system.state(q={"hip.1": angle}, qd={"hip.1": angle}))(0.3)
    known = system.state(q={"hip.1": 0.3}, qd={"hip.1": 0.3})
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=EXACT), traced, known)
    with refused("joint 'hip'", "(2,) and (3,) differ"):
        system.state(q={"hip.0": jnp.zeros(2), "hip.1": jnp.zeros(3)})


def test_a_joint_whose_name_looks_like_a_coordinate_comes_first(leg):
    system, _ = leg
    state = system.state(q={"a.1": (1.0, 2.0, 3.0)})
    other = system.state(q={"a.1.0": 1.0, "a.1.1": 2.0, "a.1.2": 3.0})
    jax.tree.map(np.testing.assert_array_equal, state, other)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: s.state(q={"hip.3": 0.1}), ["q", "'hip'", "'3'", "hip.0 to hip.2"]),
        (lambda s: s.state(qd={"hip.x": 0.1}), ["qd", "'hip'", "'x'", "hip.0 to hip.2"]),
        (lambda s: s.state(q={"knee.1": 0.1}), ["'knee'", "'1'", "knee.0 alone"]),
        (lambda s: s.state(q={"hpi.1": 0.1}), ["no joint 'hpi.1'", "did you mean 'hip.1'"]),
        (lambda s: s.state(q={"hip": {"x": 1.0}}), ["'hip'", "{'x': 1.0}", "q={'hip.0': …}"]),
        (lambda s: s.state(q={"hip.1": "up"}), ["joint 'hip.1'", "q", "up", "numbers"]),
        (lambda s: s.state(q={"hip.1": np.nan}), ["joint 'hip.1'", "q", "nan", "finite"]),
        (
            lambda s: s.state(q={"hip": (0.0, 0.0, 0.0), "hip.1": 0.1}),
            ["'hip'", "hip.1 again", "leave one out"],
        ),
        (lambda s: s.control(effort={"hip.3": 0.1}), ["effort", "'hip'", "hip.0 to hip.2"]),
        (
            lambda s: s.control(target={"hip.1": 0.1}),
            ["'hip.1'", "no law of it follows a target", "Servo"],
        ),
        (lambda s: s.control(target={"hp.2": 0.1}), ["'hp.2'", "did you mean 'hip.2'"]),
        (lambda s: jj.assemble(s, s.state(), q={"hip.5": 0.1}), ["q", "'5'", "hip.0 to hip.2"]),
    ],
)
def test_coordinates_that_there_are_not_are_refused(leg, call, words):
    with refused(*words):
        call(leg[0])


def test_degrees_of_one_coordinate_are_asked_about(leg):
    with pytest.warns(jj.UnitWarning, match="joint 'hip': q 90 is taken in rad") as caught:
        leg[0].state(q={"hip.1": 90.0})
    assert len(caught) == 1
    with pytest.warns(jj.UnitWarning, match="joint 'hip': target 45 is taken in rad"):
        leg[0].control(target={"hip.2": 45.0})


def test_efforts_and_targets_of_one_coordinate(leg):
    system, _ = leg
    hip = system.coordinate("hip").start
    effort = np.zeros(system.coordinates)
    effort[hip + 1] = 4.0
    control = system.control(effort={"hip.1": 4.0}, target={"hip.2": 0.7})
    np.testing.assert_array_equal(control.effort, effort)
    # The other servo keeps its target.
    target = np.zeros(system.coordinates)
    target[hip], target[hip + 2] = 0.1, 0.7
    np.testing.assert_array_equal(control.target, target)
    wide = jax.vmap(lambda x: system.control(effort={"hip.1": x}).effort)(jnp.arange(3.0))
    np.testing.assert_array_equal(wide[:, hip + 1], np.arange(3.0))


@jj.struct
class SumAndDifference(jj.transmissions.Transmission):
    rows: ClassVar[int] = 2

    def value(self, q):
        return jnp.stack([q[0] + q[1], q[0] - q[1]])


def test_values_of_a_transmission_have_numbers_too():
    world = jj.SystemBuilder()
    for name in ("left", "right"):
        world.body(name, **SOLID)
        world.joint(name, jj.Hinge(), child=name)
    drives = [jj.Servo(9.0, 1.0, target=0.2, coordinate=k) for k in (0, 1)]
    world.transmission("belt", SumAndDifference(), joints=["left", "right"], laws=drives)
    system, _ = world.build()
    control = system.control(target={"belt.1": 0.5})
    np.testing.assert_array_equal(control.transmission_target, (0.2, 0.5))
    assert control.target is None
    with refused("effort", "'belt' is a transmission"):
        system.control(effort={"belt.1": 0.5})


@pytest.mark.slow
def test_one_coordinate_is_assembled_and_the_others_are_free(leg):
    system, _ = leg
    start = system.state(q={"hip": (0.1, 0.2, 0.3), "knee": 0.5})
    state, report = jj.assemble(system, start, q={"hip.1": -0.4}, qd={"hip.2": 2.0})
    assert report.reached
    hip = system.coordinate("hip")
    np.testing.assert_allclose(state.q[hip][1], -0.4, atol=1e-9)
    np.testing.assert_allclose(jj.coordinate_speeds(system, state)[hip][2], 2.0, atol=1e-9)
    # The least motion of the bodies changes the others of the joint too.
    assert abs(state.q[hip][0] - 0.1) > 1e-6


def test_one_acceleration_is_wanted_by_its_number(leg):
    system, _ = leg
    hip, knee = system.coordinate("hip").start, system.coordinate("knee").start
    places, values = values_of("call", "acceleration", system, {"hip.1": 2.0, "knee": 3.0})
    assert places == (hip + 1, knee)
    np.testing.assert_array_equal(values, (2.0, 3.0))
    assert indices_of("call", "actuated", system, ["hip.2", "knee"]) == (hip + 2, knee)
    with refused("call", "actuated", "'hip' is named twice"):
        indices_of("call", "actuated", system, ["hip.2", "hip"])
    with refused("call", "actuated", "'hip.3' is no joint"):
        indices_of("call", "actuated", system, ["hip.3"])


@jj.struct
class Lift(jj.Residual):
    """C stands `height` sin(rate t) above D and turns about z."""

    height: jax.Array
    rate: jax.Array
    dof: ClassVar[int] = 1

    def residual(self, T, t):
        e = error_twist(T)
        up = self.height * jnp.sin(self.rate * t)
        return jnp.concatenate([e[:2], (e[2] - up)[None], e[3:5]])


HEIGHT, RATE = 0.2, 3.0


@pytest.fixture(scope="module")
def lift():
    world = jj.SystemBuilder(gravity=(0.0, 0.0, 0.0))
    world.body("cage", **SOLID)
    world.joint("shaft", Lift(HEIGHT, RATE), child="cage")
    return world.build()


@pytest.mark.slow
def test_a_state_begins_at_its_time(lift):
    system, built = lift
    assert built.time == 0.0
    times = jnp.array([0.0, 0.4, 1.1])
    states = system.state(q={"shaft": 0.3}, time=times)
    np.testing.assert_array_equal(states.time, times)
    np.testing.assert_allclose(states.position[2, 0], HEIGHT * np.sin(RATE * times), atol=EXACT)
    speed = HEIGHT * RATE * np.cos(RATE * times)
    np.testing.assert_allclose(states.velocity[2, 0], speed, atol=EXACT)
    np.testing.assert_allclose(jj.joint_errors(system, states), 0.0, atol=EXACT)
    one = jax.jit(lambda t: system.state(time=t))(0.4)
    np.testing.assert_allclose(one.position[2, 0], HEIGHT * np.sin(RATE * 0.4), atol=EXACT)
    # From another state, its time too.
    later = system.state(q={"shaft": 0.5}, start=one)
    np.testing.assert_allclose(later.time, 0.4)
    np.testing.assert_allclose(later.position, one.position, atol=EXACT)
    assert system.state(start=one, time=0.0).time == 0.0


@pytest.mark.slow
def test_a_rollout_goes_on_from_the_time_of_its_start(lift):
    system, _ = lift
    t, dt = 0.4, 1e-3

    def push(state):
        return jj.Control(effort=jnp.sin(state.time)[None])

    start = system.state(time=t)
    final, records = jj.rollout(system, start, push, dt=dt, steps=3)
    np.testing.assert_allclose(records.time, t + dt * np.arange(1, 4), atol=EXACT)
    # The controls of the same times, as an array that begins with the start.
    efforts = jnp.sin(t + dt * jnp.arange(3.0))[:, None]
    other, _ = jj.rollout(system, start, jj.Control(effort=efforts), dt=dt, steps=3)
    np.testing.assert_allclose(final.q, other.q, atol=EXACT)
    assert float(final.q[0]) > 1e-7


def test_a_time_that_is_none_is_refused(leg):
    system, _ = leg
    with refused("state", "time 'now'", "numbers"):
        system.state(time="now")
    with refused("state", "time nan", "finite"):
        system.state(time=np.nan)
    with refused("(2,) and (3,) differ"):
        system.state(q={"knee": jnp.zeros(2)}, time=jnp.zeros(3))


@pytest.mark.slow
def test_a_joint_that_slips_at_one_time_alone_warns_at_its_time():
    world = jj.SystemBuilder()
    body = {"pose": (HEIGHT, 0.0, 0.0)}
    world.body("a", **SOLID, **body)
    world.body("b", **SOLID, pose=(HEIGHT, 0.0, HEIGHT * np.sin(RATE * 0.4)))
    world.joint("shaft", Lift(HEIGHT, RATE), child="b", parent="a")
    with warned("'shaft'", "miss each other"):
        system, start = world.build()
    poses = jj.body_poses(system, start)
    velocity = {"b": (0.0, 0.0, HEIGHT * RATE * np.cos(RATE * 0.4), 0.0, 0.0, 0.0)}
    placed = {name: poses[i] for i, name in enumerate(system.topology.bodies)}
    # Nothing to warn of: warnings are errors here.
    system.state(pose=placed, velocity=velocity, time=0.4)
