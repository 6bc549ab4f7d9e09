"""Inverse dynamics: forward undoes it, on trees, loops and with too few or too many efforts."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.dynamics import (
    accelerations,
    bias_forces,
    gravity_compensation,
    inverse_dynamics,
    mass_matrix,
)
from support import mechanisms, rbdl_instants
from support.differences import check_slopes
from support.mechanisms import G, X, Z
from support.refusals import refused

SOLVED = 1e-10
SINGLE = 1e-4


@cache
def inverse(*actuated):
    """`inverse_dynamics` of a crank or hinge "A" or "0", compiled."""
    return jax.jit(
        lambda system, state, wanted, control=None: inverse_dynamics(
            system, state, wanted, control, actuated=actuated or None
        )
    )


@pytest.mark.slow
def test_forward_of_inverse_is_the_identity_and_columns_are_those_of_the_mass_matrix():
    system, state = mechanisms.chain(2, q=0.5, qd=1.5, laws=(jj.Armature(0.3),))
    wanted = np.array([3.0, -2.0])
    by_joint = lambda x: {"0": x[0], "1": x[1]}  # noqa: E731
    found = inverse()(system, state, by_joint(wanted))
    now = jax.jit(accelerations)(system, state, jj.Control(effort=found.effort))
    np.testing.assert_allclose(now.qdd, wanted, atol=SOLVED)
    np.testing.assert_allclose(found.now.qdd, wanted, atol=SOLVED)
    M, h = mass_matrix(system, state), bias_forces(system, state)
    np.testing.assert_allclose(found.effort, M @ wanted + h, atol=SOLVED)
    none, *columns = (inverse()(system, state, by_joint(x)).effort for x in [[0, 0], *np.eye(2)])
    np.testing.assert_allclose(np.transpose(columns) - np.transpose([none]), M, atol=SOLVED)


@pytest.mark.slow
def test_the_effort_of_a_crank_is_that_of_rbdl():
    case = rbdl_instants.RECORDED["fourbar_loop"]
    system, _ = rbdl_instants.mechanism("fourbar_loop")
    recorded = case["inverse_dynamics"]
    names = [f"of {body['name']}" for body in case["bodies"]]
    q, qd = (dict(zip(names, recorded[x], strict=True)) for x in ("q", "qd"))
    found = inverse(names[0])(system, system.state(q=q, qd=qd), {names[0]: 3.0})
    order = np.array([system.coordinate(name).start for name in names])
    np.testing.assert_allclose(found.effort[order], recorded["tau"], atol=SOLVED * 10)
    np.testing.assert_allclose(found.now.qdd[order], recorded["qdd"], atol=SOLVED * 10)


@pytest.mark.slow
def test_two_motors_on_a_four_bar_share_by_the_least_squares():
    system, state = mechanisms.four_bar(crank_speed=2.0)
    one = inverse("A")(system, state, {"A": 4.0})
    both = inverse("A", "D")(system, state, {"A": 4.0})
    np.testing.assert_allclose([one.miss, both.miss], 0.0, atol=SOLVED * 10)
    # Both do the same work on the motion: ratio r of the rocker's speed to the crank's.
    a, _, d = mechanisms.four_bar_rates(mechanisms.four_bar_angles(1.0), 1.0)
    whole, r = one.effort[0], d / a
    at = [system.coordinate(name).start for name in ("A", "D")]
    share = whole / (1 + r * r)
    np.testing.assert_allclose(both.effort[np.array(at)], [share, share * r], rtol=1e-8)


def cart_and_pole(**options):
    world = jj.SystemBuilder()
    world.body("cart", mass=2.0, inertia=(0.1, 0.1, 0.1))
    world.body("pole", mass=0.5, inertia=(0.01, 0.01, 0.01))
    world.joint("rail", jj.Slider(X), child="cart")
    pivot = {"child": "pole", "parent": "cart", "frame_C": (0.0, 0.0, -0.4)}
    world.joint("pivot", jj.Hinge((0.0, 1.0, 0.0)), **pivot, **options)
    return world.build()


@pytest.mark.slow
def test_an_underactuated_cart_follows_what_it_can():
    system, state = cart_and_pole(q=0.3)
    exact = inverse("rail")(system, state, {"rail": 1.0})
    np.testing.assert_allclose(exact.miss, 0.0, atol=SOLVED)
    # Two wanted accelerations of one effort: their errors are across what the effort can do.
    relaxed = inverse("rail")(system, state, {"rail": 1.0, "pivot": 1.0})
    M = np.array(mass_matrix(system, state))
    response = np.linalg.inv(M)[:, 0]
    np.testing.assert_allclose(response @ (relaxed.now.qdd - 1.0), 0.0, atol=SOLVED)
    assert relaxed.miss > 0.1


def test_gravity_is_compensated():
    system, state = mechanisms.pendulum(q=0.6, qd=3.0, length=0.8, mass=1.5)
    held = jax.jit(gravity_compensation)(system, state)
    np.testing.assert_allclose(held.effort, [1.5 * G * 0.8 * np.sin(0.6)], rtol=SOLVED)
    np.testing.assert_allclose(held.miss, 0.0, atol=SOLVED)


@pytest.mark.slow
def test_a_pushed_stop_takes_no_part():
    laws = [jj.Limits(upper=0.5), jj.DryFriction(1.0)]
    system, state = mechanisms.slider(laws=laws, mass=2.0, q=0.5)
    found = inverse()(system, state, {"rail": -3.0})
    np.testing.assert_allclose(found.effort, [-7.0], rtol=1e-6)


@pytest.mark.slow
def test_a_batch_in_single_precision_is_near_its_environments():
    system, _ = mechanisms.chain(2)
    q = np.array([[0.1, 0.5, -0.3]])
    many = system.state(q={"0": q, "1": -q}, qd={"0": 3 * q})
    found = inverse()(*mechanisms.single((system, many)), {"0": np.array([1.0, 2.0, 3.0])})
    assert found.effort.dtype == jnp.float32
    for i in range(3):
        one = jax.tree.map(lambda x: x[..., i], many)  # noqa: B023
        alone = inverse()(system, one, {"0": float(i + 1)})
        np.testing.assert_allclose(found.effort[:, i], alone.effort, atol=SINGLE)


@pytest.mark.slow
def test_derivatives_are_those_of_finite_differences():
    system, state = mechanisms.pendulum(q=0.4, qd=2.0)

    def effort(x):
        heavier = jj.replace(system, mass=system.mass * x[0])
        return inverse_dynamics(heavier, state, {"pivot": x[1]}).effort

    check_slopes(effort, np.array([1.0, 2.0]), np.full(2, 1e-3), rtol=1e-7, atol=1e-6)


def test_what_cannot_be_answered_is_refused():
    system, state = mechanisms.slider(axis=Z)
    with refused("inverse_dynamics: acceleration: there is no joint 'rial'", "did you mean 'rail'"):
        inverse_dynamics(system, state, {"rial": 1.0})
    with refused("inverse_dynamics: actuated 'motor' is no joint"):
        inverse_dynamics(system, state, {"rail": 1.0}, actuated=["motor"])
    with refused("acceleration 1.0 must be values by the names of joints"):
        inverse_dynamics(system, state, 1.0)
    with refused("acceleration has batch axes (2,)", "replicate"):
        inverse_dynamics(system, state, {"rail": np.ones(2)})
