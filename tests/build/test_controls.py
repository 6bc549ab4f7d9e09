"""Controls by the names of joints and bodies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import (
    WORLD,
    Ball,
    Hinge,
    Motor,
    Servo,
    Slider,
    SpringDamper,
    SystemBuilder,
    replicate,
    step,
)
from jaxjoints import transmissions as tr

STILL = (0.0, 0.0, 0.0)


@pytest.fixture(scope="module")
def arm():
    """A slider that carries a hinge on a moved base, and a ball without any law."""
    builder = SystemBuilder(gravity=STILL)
    base = builder.body("base", prescribed=True)
    names = ("cart", "link", "weight")
    cart, link, weight = (builder.body(n, mass=1.0, inertia=(1.0, 1.0, 1.0)) for n in names)
    drives = [Servo(40.0, 5.0, target=0.2, target_speed=0.1)]
    builder.joint("rail", Slider((1.0, 0.0, 0.0)), child=cart, parent=base, laws=drives)
    motor = Motor(speed=0.7, effort=3.0)
    builder.joint("axle", Hinge((0.0, 0.0, 1.0)), child=link, parent=cart, laws=[motor])
    builder.joint("hook", Ball(), child=weight, parent=WORLD)
    return builder.build()


def test_values_stand_where_their_names_do(arm):
    """Efforts and wrenches are 0 elsewhere, aims those of the drives."""
    system, _ = arm
    axle, hook = system.coordinate("axle").start, system.coordinate("hook")
    rail = system.coordinate("rail").start
    push = jnp.arange(6.0)
    control = system.control(
        effort={"hook": (1.0, 2.0, 3.0), "axle": 4.0},
        wrench={"link": push},
        twist={"base": 2 * push},
        target={},
        target_speed={"rail": 0.5},
    )
    effort = np.zeros(system.coordinates)
    effort[hook], effort[axle] = (1.0, 2.0, 3.0), 4.0
    target, speed = np.zeros((2, system.coordinates))
    target[rail], speed[rail], speed[axle] = 0.2, 0.5, 0.7
    np.testing.assert_array_equal(control.effort, effort)
    np.testing.assert_array_equal(control.target, target)
    np.testing.assert_array_equal(control.target_speed, speed)
    np.testing.assert_array_equal(control.twist, 2 * push[:, None])
    np.testing.assert_array_equal(control.wrench[:, system.body("link")], push)
    assert np.count_nonzero(control.wrench) == 5
    assert jax.tree.leaves(system.control()) == []


def test_batches_and_time_fit_what_takes_them(arm):
    """Batch axes stay at the end; a mapped time axis comes in front."""
    system, _ = arm
    wanted = jnp.linspace(0.0, 1.0, 4)
    control = system.control(target={"rail": wanted}, effort={"hook": jnp.ones((3, 4))})
    assert control.target.shape == control.effort.shape == (system.coordinates, 4)
    over_time = jax.jit(jax.vmap(lambda q: system.control(target={"rail": q}).target))(wanted)
    np.testing.assert_array_equal(over_time, control.target.T)


@pytest.mark.parametrize(
    "given, complaint",
    [
        ({"effort": {"axel": 1.0}}, "effort: there is no joint 'axel'; did you mean 'axle'"),
        ({"effort": {"hook": 1.0}}, "joint 'hook': effort 1.0 is one number for 3 coordinates"),
        ({"effort": {"axle": float("nan")}}, "joint 'axle': effort .* must be finite"),
        ({"target": {"axle": 1.0}}, "joint 'axle': no law of it follows a target; .*`Servo`"),
        ({"target_speed": {"hook": (0.0, 0.0, 0.0)}}, "joint 'hook': no law of it follows"),
        ({"wrench": {"link": (1.0, 2.0)}}, r"body 'link': wrench has shape \(2,\); .*\(6,\)"),
        ({"wrench": {"world": np.ones(6)}}, "wrench: there is no body 'world'"),
        ({"twist": {"link": np.ones(6)}}, r"twist: the prescribed bodies \['base'\] are missing"),
        (
            {"effort": {"rail": np.ones(3), "axle": np.ones(4)}},
            r"effort: batch axes \(3,\) and \(4,\) differ",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(arm, given, complaint):
    """With the name, the value and the remedy."""
    with pytest.raises(ValueError, match=complaint):
        arm[0].control(**given)


def test_two_drives_with_speeds_of_their_own_are_told_apart():
    """A coordinate with two of them must be named."""
    builder = SystemBuilder(gravity=STILL)
    both = [Motor(0.3, 1.0), Servo(10.0, 1.0)]
    for name in ("left", "right"):
        body = builder.body(name, mass=1.0, inertia=(1.0, 1.0, 1.0))
        builder.joint(f"{name} rail", Slider((1.0, 0.0, 0.0)), child=body, laws=both)
    system, _ = builder.build()
    with pytest.raises(ValueError, match="joint 'right rail': coordinate 0 has several drives"):
        system.control(target_speed={"left rail": 1.0})
    control = system.control(target_speed={"left rail": 1.0, "right rail": 2.0})
    np.testing.assert_array_equal(control.target_speed, [1.0, 2.0])


@pytest.fixture(scope="module")
def hand():
    """Two fingers, closed by a servo on a tendon of both; another tendon, which is damped, and
    one with the name of its joint.
    """
    builder = SystemBuilder(gravity=STILL)
    for i, name in enumerate(("left", "right", "thumb")):
        body = builder.body(name, mass=1.0, inertia=(0.1, 0.1, 0.1))
        laws = [Servo(3.0, 1.0, target=0.1)] if name == "thumb" else []
        at = (0.0, float(i), 0.0)
        builder.joint(name, Hinge((0.0, 1.0, 0.0)), child=body, frame_D=at, laws=laws)
    fingers = ("left", "right")
    close = [Servo(50.0, 20.0, target=0.3, target_speed=0.2)]
    builder.transmission("close", tr.Weighted((0.5, 0.5)), joints=fingers, laws=close)
    stop = [SpringDamper(0.0, 0.7)]
    builder.transmission("stop", tr.Weighted((1.0, -1.0)), joints=fingers, laws=stop)
    pinch = [Servo(2.0, 0.5)]
    builder.transmission("thumb", tr.Weighted((1.0,)), joints="thumb", laws=pinch)
    return builder.build()


def test_targets_go_to_transmissions_by_name(hand):
    """Those of joints and of transmissions in one call, each with what is left out as built."""
    system, _ = hand
    at = system.value("close").start
    control = system.control(target={"close": 0.5}, target_speed={"close": jnp.array([0.1, 0.4])})
    wanted = np.zeros(system.values)
    wanted[at] = 0.5
    np.testing.assert_array_equal(control.transmission_target, wanted)
    assert control.transmission_target_speed.shape == (system.values, 2)
    np.testing.assert_array_equal(control.transmission_target_speed[at], [0.1, 0.4])
    assert control.target is control.target_speed is None
    # Efforts are along joints, whatever transmissions are called.
    effort = system.control(effort={"thumb": 2.0}).effort
    assert float(effort[system.coordinate("thumb")][0]) == 2.0
    over_time = jax.jit(jax.vmap(lambda x: system.control(target={"close": x})))(jnp.arange(3.0))
    np.testing.assert_array_equal(over_time.transmission_target[:, at], [0.0, 1.0, 2.0])


@pytest.mark.slow
def test_targets_of_a_transmission_act_as_its_servo_says(hand):
    """Implicitly, in a batch, with their derivative: two inertias I with the weights ½ are I/(2 ¼)
    along the tendon.
    """
    system, state = hand
    k, d, m, h, aim = 50.0, 20.0, 0.2, 1e-2, 0.2

    def speed(targets):
        control = system.control(target={"close": targets}, target_speed={"close": aim})
        qd = step(system, replicate(state, 2), control, dt=h)[1].qd
        return sum(qd[system.coordinate(name).start] for name in ("left", "right")) / 2

    targets = jnp.array([0.5, -0.2])
    found, slope = jax.jit(lambda x: jax.jvp(speed, (x,), (jnp.ones(2),)))(targets)
    moved = m + h * h * k + h * d
    np.testing.assert_allclose(found, h * (k * targets + d * aim) / moved, atol=1e-11)
    np.testing.assert_allclose(slope, h * k / moved, atol=1e-11)


@pytest.mark.parametrize(
    "given, complaint",
    [
        ({"target": {"clos": 1.0}}, "no joint or transmission 'clos'; did you mean 'close'"),
        ({"target": {"stop": 1.0}}, "transmission 'stop': no law of it follows a target"),
        ({"target": {"left": 1.0}}, "joint 'left': no law of it follows a target"),
        ({"target": {"thumb": 1.0}}, "'thumb' is a joint and a transmission, .* rename one"),
        ({"target": {"close": (1.0, 2.0, 3.0)}}, None),
        ({"target": {"close": float("nan")}}, "transmission 'close': target .* must be finite"),
        ({"effort": {"close": 1.0}}, "'close' is a transmission; give the efforts of its joints"),
    ],
)
def test_what_makes_no_sense_for_a_transmission_is_refused(hand, given, complaint):
    """With the name and the remedy; a batch of numbers for one value does make sense."""
    system, _ = hand
    if complaint is None:
        assert system.control(**given).transmission_target.shape == (system.values, 3)
        return
    with pytest.raises(ValueError, match=complaint):
        system.control(**given)
