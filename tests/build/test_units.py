"""Degrees and millimetres in place of radians and metres: one warning, which can be silenced."""

import warnings

import jax
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints import Damping, Hinge, Limits, Servo, Slider, SystemBuilder, UnitWarning


def built(coupling=None, laws=(), **start):
    world = SystemBuilder()
    world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.joint("elbow", coupling or Hinge(), child="arm", laws=laws, **start)
    return world.build()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: built(laws=Limits(lower=-120.0)), "'elbow': Limits lower -120 .* were degrees"),
        (lambda: built(laws=Servo(1.0, 1.0, target=90.0)), "Servo target 90 is taken in rad;"),
        (lambda: built(q=90.0), "q 90 is taken in rad; were degrees meant"),
        (lambda: built(qd=720.0), "qd 720 is taken in rad/s; were degrees/s meant"),
        (lambda: built(Slider(), q=500.0), "q 500 is taken in m; were millimetres meant"),
        (
            lambda: built(laws=Servo(1.0, 1.0))[0].control(target={"elbow": 45.0}),
            "target 45 is taken in rad",
        ),
    ],
)
def test_numbers_of_degrees_are_asked_about(call, words):
    with pytest.warns(UnitWarning, match=words) as caught:
        call()
    assert len([one for one in caught if one.category is UnitWarning]) == 1


def test_what_radians_and_metres_may_be_is_not():
    built(laws=[Limits(-4 * np.pi, 20 * np.pi), Damping(500.0)], q=12.0, qd=200.0)
    built(Slider(), laws=Servo(1.0, 1.0, target=30.0), q=30.0)


def test_it_is_silenced_by_its_category():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitWarning)
        built(q=90.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: built(laws=Damping(1.0, coordinate="x")), "'elbow': Damping: coordinate 'x' must"),
        (lambda: jj.Controller(print, key=0), "Controller: key 0 must be a key of jax.random.key"),
        (lambda: jj.Controller(print, key=jax.random.PRNGKey(0)), "PRNGKey become one by"),
    ],
)
def test_options_of_another_kind(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_start_by_name_is_asked_about():
    system, _ = built()
    with pytest.warns(UnitWarning, match="joint 'elbow': q 90 is taken in rad"):
        system.state(q={"elbow": 90.0})
