"""Operating points: least energy of loops by closed-form geometry, its derivative, and none."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.dynamics import operating_point
from support import linkages
from support.mechanisms import COUPLER, CRANK, GROUND, ROCKER, G, four_bar, pendulum

NEAR = 1e-9  # to what is compared [m or rad]
AT_REST = 1e-9  # accelerations of an equilibrium [m/s² or rad/s²]
CLOSED = 1e-12  # what joints may be open by [m or rad]


def least(energy, start, *numbers):
    """Where an energy of coordinates (n,) is least, and its slopes by the first of the numbers.

    By Newton's method; near the start, where the energy is convex.
    """
    hessian = jax.jit(jax.hessian(energy))
    slope = jax.jit(jax.grad(energy))
    x = jnp.array(start)
    for _ in range(30):
        x = x - jnp.linalg.solve(hessian(x, *numbers), slope(x, *numbers))
    assert jnp.linalg.eigvalsh(hessian(x, *numbers)).min() > 0
    mixed = jax.jacfwd(jax.grad(energy), argnums=1)(x, *numbers)
    return x, -jnp.linalg.solve(hessian(x, *numbers), mixed)


def check(system, at):
    np.testing.assert_allclose(at.residual, 0.0, atol=AT_REST)
    assert at.found.all() and jnp.max(jj.joint_errors(system, at.state)) < CLOSED


@pytest.mark.slow
def test_a_pendulum_rests_upright_or_nowhere():
    system, _ = pendulum()
    state = system.state(q={"pivot": np.array([[2.7, 0.4, 0.4]])})
    control = jj.Control(effort=jnp.array([[0.0, 0.0, 1.1 * G]]))
    at = jax.jit(operating_point)(system, state, control)
    np.testing.assert_array_equal(at.found, [True, True, False])
    np.testing.assert_allclose(at.state.q[0, :2], [np.pi, 0.0], rtol=0, atol=NEAR)
    np.testing.assert_allclose(at.residual[:2], 0.0, atol=AT_REST)
    assert at.residual[2] > 0.1 * G / 1.03 - AT_REST


def energy_of_four_bar(x, stiffness):
    """Potential energy of the hanging four-bar with a spring at its crank [J]; x: the crank."""
    (angle,) = x
    crank = CRANK * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    way = jnp.array([GROUND, 0.0]) - crank
    far = jnp.linalg.norm(way)
    cosine = (COUPLER**2 + far**2 - ROCKER**2) / (2 * COUPLER * far)
    coupler = jnp.arctan2(way[1], way[0]) + jnp.arccos(cosine)
    joint = crank[1] + COUPLER * jnp.sin(coupler)
    heights = crank[1] / 2, (crank[1] + joint) / 2, joint / 2
    masses = 2 * CRANK, 2 * COUPLER, 2 * ROCKER
    weight = sum(m * G * z for m, z in zip(masses, heights, strict=True))
    return weight + stiffness * angle**2 / 2


@pytest.mark.slow
def test_a_four_bar_hangs_where_its_energy_is_least():
    """From near and far, and by the stiffness; a motor that no weight holds finds no rest."""
    system, _ = four_bar(laws=[jj.SpringDamper(3.0)])
    starts = [four_bar(crank=crank)[1] for crank in (-1.5, 0.2, 1.0, 2.5, 4.0, 1.0)]
    state = jax.tree.map(lambda *x: jnp.stack(x, axis=-1), *starts)
    effort = jnp.zeros((4, len(starts))).at[0, -1].set(50.0)
    stiffness = jnp.full(len(starts), 3.0).at[-1].set(0.0)

    def rest(stiffness):
        sprung = system.with_joint("A", spring_damper=jj.SpringDamper(stiffness))
        at = operating_point(sprung, state, jj.Control(effort=effort), independent="A")
        return at.state.q[0], at

    rested = jax.jit(lambda k: jax.jvp(rest, (k,), (jnp.ones_like(k),)))
    (angle, at), (slope, _) = rested(stiffness)
    np.testing.assert_array_equal(at.found, [True] * 5 + [False])
    assert at.residual[-1] > 1.0 and np.isfinite(angle).all()
    sound = jax.tree.map(lambda x: x[..., :5], at)
    check(system, sound)
    x, by_stiffness = least(energy_of_four_bar, [-1.2], 3.0)
    np.testing.assert_allclose(angle[:5], x[0], rtol=0, atol=NEAR)
    np.testing.assert_allclose(slope[:5], by_stiffness[0], rtol=1e-7)


@pytest.mark.slow
def test_a_slider_crank_rests_on_its_spring():
    crank, rod, stiffness, rest = 0.3, 0.8, 40.0, 0.9
    system, guess = linkages.slider_crank(crank, rod, laws=[jj.SpringDamper(stiffness, rest=rest)])
    state, _ = jj.assemble(system, guess, q={"O": 0.8})
    at = jax.jit(partial(operating_point, independent="O"))(system, state)
    check(system, at)

    def energy(x, stiffness):
        (angle,) = x
        height = crank * jnp.sin(angle)
        place = crank * jnp.cos(angle) + jnp.sqrt(rod**2 - height**2)
        return G * height + stiffness * (place - rest) ** 2 / 2

    x, _ = least(energy, at.state.q[:1] + 0.05, stiffness)
    np.testing.assert_allclose(at.state.q[:1], x, rtol=0, atol=NEAR)
