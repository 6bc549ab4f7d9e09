"""Motion that is restarted from (q, q̇) at every step converges to the motion."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints import Rattle, RungeKutta, SemiImplicitEuler
from support import mechanisms

SCHEMES = {
    "Euler": (SemiImplicitEuler(), 1),
    "projected Euler": (SemiImplicitEuler(projections=1), 1),
    "Euler with ODE's spin": (SemiImplicitEuler(joints="rows", gyroscopic="implicit"), 1),
    "RATTLE": (Rattle(), 2),
    "Runge-Kutta": (RungeKutta(), 4),
}
SECONDS = 0.25
# Steps of the coarser run; the finer one has four times as many.
COARSE = 25


def tree():
    """Two rods on hinges that are not parallel, and the joints that place them."""
    return *mechanisms.chain(2, qd=2.0), ("0", "1")


def loop():
    """A four-bar, placed by its crank, coupler and rocker; its last joint closes it."""
    return *mechanisms.four_bar(crank_speed=2.0), ("A", "B", "D")


MECHANISMS = {"tree": tree, "loop": loop}


def restarted(system, state, joints, scheme, steps):
    """Coordinates and speeds after steps of which each starts from those of the one before."""
    dt = SECONDS / steps

    def one(motion, _):
        q, qd = motion
        by_name = ({name: x[system.coordinate(name)] for name in joints} for x in (q, qd))
        state = system.state(**dict(zip(("q", "qd"), by_name, strict=True)))
        _, info = jj.step(system, state, dt=dt, scheme=scheme)
        return (info.q, info.qd), None

    start = jj.coordinates(system, state), jj.coordinate_speeds(system, state)
    return jnp.concatenate(jax.lax.scan(one, start, None, length=steps)[0])


def rolled(system, state, scheme, steps):
    final, _ = jj.rollout(system, state, dt=SECONDS / steps, steps=steps, scheme=scheme)
    return jnp.concatenate([final.q, jj.coordinate_speeds(system, final)])


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", SCHEMES)
def test_restarted_motion_converges_like_the_motion_itself(mechanism, name):
    system, state, joints = MECHANISMS[mechanism]()
    scheme, order = SCHEMES[name]
    truth = rolled(system, state, RungeKutta(projections=2), 200)
    errors = []
    for steps in (COARSE, 4 * COARSE):
        run = jax.jit(lambda: restarted(system, state, joints, scheme, steps))  # noqa: B023
        errors.append(np.abs(run() - truth).max())
    assert errors[1] < 5e-2, "the finer motion is far off"
    assert errors[1] < 1e-9 or np.log(errors[0] / errors[1]) / np.log(4) > order - 0.35


@pytest.mark.slow
def test_one_step_from_coordinates_and_speeds_gives_their_accelerations():
    """Those of RATTLE, which are of second order, and the same in the limit of small steps."""
    system, state, _ = tree()
    before, found = jj.coordinate_speeds(system, state), []
    for scheme in (SemiImplicitEuler(), Rattle()):
        _, info = jax.jit(lambda: jj.step(system, state, dt=1e-5, scheme=scheme))()  # noqa: B023
        found.append((info.qd - before) / 1e-5)
    np.testing.assert_allclose(*found, rtol=1e-3)
    assert np.abs(found[1]).min() > 0.1


@pytest.mark.slow
def test_coordinates_and_speeds_are_those_of_the_state_at_the_end():
    system, state, _ = tree()
    new, info = jax.jit(lambda: jj.step(system, state, dt=1e-2))()
    np.testing.assert_array_equal(info.q, new.q)
    np.testing.assert_allclose(new.q, jj.coordinates(system, new), rtol=0, atol=1e-13)
    np.testing.assert_allclose(info.qd, jj.coordinate_speeds(system, new), rtol=0, atol=1e-13)
    end, (states, infos) = jj.rollout(system, state, dt=1e-2, steps=4, record_every=2, record=_both)
    np.testing.assert_array_equal(end.q, states.q[-1])
    np.testing.assert_array_equal(infos.q, states.q)
    np.testing.assert_allclose(end.q, jj.coordinates(system, end), rtol=0, atol=1e-13)


def _both(state, info):
    return state, info


@pytest.mark.slow
def test_a_projection_takes_velocities_along():
    """To what the joints allow, by a change that their wrenches make: kinetic energy only falls."""
    system, state, _ = loop()
    rng = np.random.default_rng(0)
    thrown = jj.replicate(state)
    thrown = replace(thrown, omega=thrown.omega + rng.normal(size=thrown.omega.shape))
    moved = jj.project(system, thrown, velocities=True)
    again = jj.project(system, moved, velocities=True)
    np.testing.assert_allclose(again.velocity, moved.velocity, atol=1e-10)
    np.testing.assert_allclose(again.omega, moved.omega, atol=1e-10)
    assert jj.energies(system, moved).kinetic < jj.energies(system, thrown).kinetic
    # All axes of the four-bar are along y: the bodies turn about it alone, and keep in the plane.
    np.testing.assert_allclose(moved.velocity[1], 0.0, atol=1e-10)
    np.testing.assert_allclose(
        jj.coordinate_speeds(system, moved), jj.coordinate_speeds(system, thrown), atol=1e-10
    )
