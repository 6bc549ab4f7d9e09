"""Linear models and operating points: closed forms, finite differences of the motion, loops."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from dynamics.test_inverse import cart_and_pole
from jaxjoints.dynamics import accelerations, linear_model, operating_point
from support import mechanisms
from support.mechanisms import G
from support.refusals import refused

EXACT = 1e-9
MASS, LENGTH, MOMENT = 1.5, 0.8, 0.03
WHOLE = MOMENT + MASS * LENGTH**2


def pendulum(**options):
    inertia = (0.02, MOMENT, 0.02)
    return mechanisms.pendulum(length=LENGTH, mass=MASS, inertia=inertia, **options)


@pytest.mark.slow
def test_the_model_of_a_damped_pendulum_is_that_of_its_equation():
    system, state = pendulum(q=0.4, qd=1.5, laws=[jj.Damping(0.3), jj.SpringDamper(2.0)])
    model = jax.jit(linear_model)(system, state)
    pull = (MASS * G * LENGTH * np.cos(0.4) + 2.0) / WHOLE
    np.testing.assert_allclose(model.A, [[0, 1], [-pull, -0.3 / WHOLE]], atol=EXACT)
    np.testing.assert_allclose(model.B, [[0], [1 / WHOLE]], atol=EXACT)
    net = -MASS * G * LENGTH * np.sin(0.4) - 2.0 * 0.4 - 0.3 * 1.5
    np.testing.assert_allclose(model.c, [1.5, net / WHOLE], atol=EXACT)


@pytest.mark.slow
def test_the_model_of_a_step_is_the_derivative_of_the_step():
    system, state = mechanisms.chain(2, q=0.4, qd=1.0)
    dt, h = 1e-2, 1e-5
    model = jax.jit(partial(linear_model, dt=dt))(system, state)

    @jax.jit
    def after(x, u):
        start = system.state(q={"0": x[0], "1": x[1]}, qd={"0": x[2], "1": x[3]})
        _, info = jj.step(system, start, jj.Control(effort=u), dt=dt)
        return jnp.concatenate([info.q, info.qd])

    x, u = np.array([0.4, 0.4, 1.0, 1.0]), np.zeros(2)
    slopes = [(after(x + e, u) - after(x - e, u)) / (2 * h) for e in h * np.eye(4)]
    np.testing.assert_allclose(model.A, np.transpose(slopes), atol=1e-7)
    slopes = [(after(x, u + e) - after(x, u - e)) / (2 * h) for e in h * np.eye(2)]
    np.testing.assert_allclose(model.B, np.transpose(slopes), atol=1e-7)
    np.testing.assert_allclose(model.c, after(x, u) - x, atol=EXACT)


@pytest.mark.slow
def test_the_model_of_a_loop_is_the_derivative_of_its_crank():
    speed, h = 2.0, 1e-5

    def motion(crank, speed, effort=0.0):
        system, state = mechanisms.four_bar(crank=crank, crank_speed=speed)
        control = jj.Control(effort=jnp.zeros(4).at[0].set(effort))
        return float(at_once(system, state, control).qdd[0])

    at_once = jax.jit(accelerations)
    system, state = mechanisms.four_bar(crank=1.0, crank_speed=speed)
    model = jax.jit(partial(linear_model, independent="A", actuated="A"))(system, state)
    slopes = [
        (motion(1.0 + h, speed) - motion(1.0 - h, speed)) / (2 * h),
        (motion(1.0, speed + h) - motion(1.0, speed - h)) / (2 * h),
    ]
    np.testing.assert_allclose(model.A, [[0.0, 1.0], slopes], rtol=1e-6, atol=1e-6)
    gain = (motion(1.0, speed, h) - motion(1.0, speed, -h)) / (2 * h)
    np.testing.assert_allclose(model.B[1], [gain], rtol=1e-6)


@pytest.mark.slow
def test_a_pendulum_rests_where_a_torque_holds_it_and_moves_with_the_torque():
    system, state = pendulum(q=0.2, qd=1.0)
    torque = 3.0

    def angle(torque):
        at = operating_point(system, state, jj.Control(effort=torque[None]))
        return at.state.q[0], at.residual

    (found, residual), slope = jax.jit(lambda t: (angle(t), jax.grad(lambda t: angle(t)[0])(t)))(
        jnp.array(torque)
    )
    whole = MASS * G * LENGTH
    np.testing.assert_allclose(found, np.arcsin(torque / whole), rtol=EXACT)
    np.testing.assert_allclose(residual, 0.0, atol=EXACT)
    np.testing.assert_allclose(slope, 1 / (whole * np.cos(found)), rtol=EXACT)


@pytest.mark.slow
def test_a_batch_is_its_environments():
    system, _ = pendulum()
    many = system.state(q={"pivot": np.array([0.1, 0.7])})
    model = jax.jit(linear_model)(system, many)
    pull = MASS * G * LENGTH * np.cos([0.1, 0.7]) / WHOLE
    np.testing.assert_allclose(model.A[1, 0], -pull, rtol=EXACT)


def test_what_cannot_be_answered_is_refused():
    system, state = mechanisms.four_bar()
    with refused("linear_model: 'C' makes coordinates depend on each other", "independent="):
        linear_model(system, state)
    with refused("operating_point: independent 'C' closes a loop", "'A', 'B', 'D'"):
        operating_point(system, state, independent=["C"])
    with refused("linear_model: no joint places '0'", "FreeEuler()"):
        linear_model(*mechanisms.floating_chain())
    with refused("linear_model: independent 'A' is named twice"):
        linear_model(system, state, independent=["A", "A"])
    with refused("linear_model: independent 'motor' is no joint"):
        linear_model(system, state, independent="motor")


@pytest.mark.slow
def test_an_upright_pole_is_an_operating_point_that_is_not_stable():
    system, state = cart_and_pole(q=0.0)
    model = jax.jit(linear_model)(system, state)
    np.testing.assert_allclose(model.c, 0.0, atol=EXACT)
    assert np.linalg.eigvals(model.A).real.max() > 1.0


@pytest.mark.slow
@pytest.mark.parametrize("names", ["rail", ("rail", "pivot")])
def test_efforts_are_those_of_the_actuated(names):
    system, state = cart_and_pole(q=0.0)
    model = jax.jit(partial(linear_model, actuated=names))(system, state)
    assert model.B.shape == (4, 1 if names == "rail" else 2)
