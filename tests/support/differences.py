"""Derivatives against central differences of fourth order, all programs compiled fast."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from jaxjoints import replace
from jaxjoints.algebra.rotation import norm
from jaxjoints.algebra.spatial import quat_multiply

# Numbers that move all bodies: their place, turn, velocity and angular velocity, three each.
MOTION = 12


def central(values, at, steps):
    """Slopes (n, outputs) of `values` of points (m, n) at a point (n,), along each of its numbers.

    steps: change of each number; of the numbers whose change is 0 no slope is taken
    """
    h = np.diag(np.asarray(steps, float))[np.asarray(steps) != 0]
    points = np.concatenate([at + f * h for f in (1, -1, 2, -2)])
    up, down, up2, down2 = np.split(np.asarray(values(jnp.asarray(points))), 4)
    width = 12 * h.sum(axis=1)
    return (8 * (up - down) - (up2 - down2)) / width[:, None]


@cache
def programs(function):
    """Values of points (m, n), and the Jacobian at one by either mode, of (n,) -> (outputs,)."""
    jacobians = [jax.jit(jacobian(function)) for jacobian in (jax.jacfwd, jax.jacrev)]
    return jax.jit(jax.vmap(function)), jacobians


def check_slopes(function, at, steps, *, rtol, atol):
    """Assert that both modes of differentiation give the slopes of (n,) -> (outputs,)."""
    at, moved = np.asarray(at, float), np.asarray(steps) != 0
    values, jacobians = programs(function)
    expected = central(values, at, steps)
    # Two numbers that are not would be called equal.
    assert np.isfinite(expected).all()
    for jacobian in jacobians:
        actual = np.asarray(jacobian(jnp.asarray(at))).T[moved]
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def pushed(state, change):
    """A state of which all bodies are displaced, turned and made faster alike, by `MOTION`."""
    place, turn, velocity, omega = change.reshape(4, 3, 1)
    about = jnp.concatenate([jnp.ones((1, 1)), turn / 2])
    about = jnp.broadcast_to(about / norm(about)[None], state.quaternion.shape)
    return replace(
        state,
        position=state.position + place,
        quaternion=quat_multiply(about, state.quaternion),
        velocity=state.velocity + velocity,
        omega=state.omega + omega,
    )
