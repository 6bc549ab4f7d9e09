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


def points_about(at, steps):
    """Points (4 n, n) beside a point (n,), each of its numbers changed by its step and twice it."""
    h = np.diag(np.asarray(steps, float))
    return np.concatenate([at + f * h for f in (1, -1, 2, -2)])


def slopes_between(values, steps):
    """Slopes (n, outputs) by the values (4 n, outputs) at `points_about` a point."""
    up, down, up2, down2 = np.split(np.asarray(values), 4)
    moved = np.asarray(steps) != 0
    slopes = (8 * (up - down) - (up2 - down2))[moved]
    return slopes / (12 * np.asarray(steps, float)[moved])[:, None]


def central(values, at, steps):
    """Slopes (n, outputs) of `values` of points (m, n) at a point (n,), along each of its numbers.

    steps: change of each number; of the numbers whose change is 0 no slope is taken
    """
    return slopes_between(values(jnp.asarray(points_about(at, steps))), steps)


@cache
def program(function):
    """A program of points (k, n): the values (k, m) of (n,) -> (m,), and its Jacobians (m, n) at
    the first of the points, by forward and by reverse mode.

    Both modes are of one linearization, which reverse mode transposes: so do `jax.jacfwd` and
    `jax.jacrev`, each in a program of its own, which together take twice as long to compile.
    """

    @jax.jit
    def found(points):
        values, forward = jax.linearize(jax.vmap(function), points)
        transposed = jax.linear_transpose(forward, points)

        def at_first(x, like):
            return jnp.zeros_like(like).at[0].set(x)

        columns = jax.vmap(lambda e: forward(at_first(e, points))[0])
        rows = jax.vmap(lambda e: transposed(at_first(e, values))[0][0])
        return values, columns(jnp.eye(points.shape[1])).T, rows(jnp.eye(values.shape[1]))

    return found


def slopes(function, at, steps):
    """Slopes (n, outputs) of (n,) -> (outputs,) at a point, by central differences, forward and
    reverse mode, and the values (outputs,) there.

    steps: change of each number; of the numbers whose change is 0 no slope is taken
    """
    at = np.asarray(at, float)
    points = np.concatenate([at[None], points_about(at, steps)])
    values, *jacobians = map(np.asarray, program(function)(jnp.asarray(points)))
    expected, moved = slopes_between(values[1:], steps), np.asarray(steps) != 0
    # Two numbers that are not would be called equal.
    assert np.isfinite(expected).all()
    return expected, *(jacobian.T[moved] for jacobian in jacobians), values[0]


def check_slopes(function, at, steps, *, rtol, atol):
    """Assert that both modes of differentiation give the slopes of (n,) -> (outputs,)."""
    expected, forward, reverse, _ = slopes(function, at, steps)
    np.testing.assert_allclose(forward, expected, rtol=rtol, atol=atol)
    np.testing.assert_allclose(reverse, expected, rtol=rtol, atol=atol)


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
