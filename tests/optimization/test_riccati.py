"""The backward pass: linear-quadratic problems by dense algebra, boxes by all active sets."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints.optimization.linearization import Expansion, adjoint
from jaxjoints.optimization.riccati import backward, box_step

EXACT = 1e-9
HORIZON, N, M = 6, 4, 2
FREE = np.full((HORIZON, M), 1e6)


def expansion(seed):
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(HORIZON, N + M, N + M))
    end = rng.normal(size=(N, N))
    return Expansion(
        rng.normal(size=(HORIZON, N, N)),
        rng.normal(size=(HORIZON, N, M)),
        rng.normal(size=(HORIZON, N + M)),
        half @ np.swapaxes(half, 1, 2) + 0.1 * np.eye(N + M),
        rng.normal(size=N),
        end @ end.T,
    )


def value(e, gap, u):
    """The cost of controls (horizon, m) for the expansion, and all deviations."""
    x, total, xs = np.zeros(N), 0.0, [np.zeros(N)]
    for k in range(HORIZON):
        z = np.concatenate([x, u[k]])
        total += e.slope[k] @ z + z @ e.curvature[k] @ z / 2
        x = e.A[k] @ x + e.B[k] @ u[k] + gap[k]
        xs.append(x)
    return total + e.end_slope @ x + x @ e.end_curvature @ x / 2, np.array(xs)


def dense(e, gap):
    """The quadratic form of that cost, by its values."""
    size = HORIZON * M
    at = lambda z: value(e, gap, z.reshape(HORIZON, M))[0]  # noqa: E731
    eye = np.eye(size)
    g = np.array([(at(d) - at(-d)) / 2 for d in eye])
    H = np.array([[at(a + b) - at(a) - at(b) + at(0 * a) for b in eye] for a in eye])
    return H, g


def policy(e, gap, damping=0.0, lower=-FREE, upper=FREE):
    return jax.jit(backward)(e, gap, lower, upper, np.ones(M), jnp.asarray(damping))


@pytest.mark.parametrize("open_by", (0.0, 1.0))
def test_the_step_is_that_of_the_dense_quadratic_form(open_by):
    e, gap = expansion(1), open_by * np.random.default_rng(2).normal(size=(HORIZON, N))
    H, g = dense(e, gap)
    best = np.linalg.solve(H, -g).reshape(HORIZON, M)
    found = policy(e, gap)
    u = found.change + np.einsum("kmn,kn->km", found.gain, found.shift[:-1])
    np.testing.assert_allclose(u, best, atol=1e-7)
    np.testing.assert_allclose(found.shift, value(e, gap, best)[1], atol=1e-7)
    if not open_by:
        np.testing.assert_allclose(found.decrease, -value(e, gap, best)[0], rtol=1e-7)


def test_the_adjoint_is_the_gradient():
    e, gap = expansion(3), np.zeros((HORIZON, N))
    found = jax.jit(adjoint)(None, e)
    np.testing.assert_allclose(found.ravel(), dense(e, gap)[1], atol=1e-6)


def test_bounds_hold_and_damping_shortens():
    e, gap = expansion(4), np.zeros((HORIZON, N))
    bounds = 0.05 * np.ones((HORIZON, M))
    found = policy(e, gap, lower=-bounds, upper=bounds)
    assert np.abs(found.change).max() <= 0.05 and found.decrease > 0
    # A control at its bound does not follow the state.
    held = np.abs(found.change) == 0.05
    assert held.any() and not found.gain[held].any()
    heavy = policy(e, gap, damping=1e3)
    assert np.abs(heavy.change).max() < 1e-2 * np.abs(policy(e, gap).change).max()


@pytest.mark.parametrize("seed", range(5))
def test_the_step_in_a_box_is_the_best_of_all_active_sets(seed):
    rng, m = np.random.default_rng(seed), 4
    half = rng.normal(size=(m, m))
    H, g = half @ half.T + 0.01 * np.eye(m), 3 * rng.normal(size=m)
    lower, upper = -rng.uniform(0.1, 1, m), rng.uniform(0.1, 1, m)
    best = np.inf
    for sides in itertools.product((-1, 0, 1), repeat=m):
        x = np.where(np.array(sides) < 0, lower, upper)
        free = np.array(sides) == 0
        if free.any():
            right = -(g + H[:, ~free] @ x[~free])[free]
            x[free] = np.linalg.solve(H[np.ix_(free, free)], right)
        if (x >= lower - EXACT).all() and (x <= upper + EXACT).all():
            best = min(best, x @ H @ x / 2 + g @ x)
    x, free = jax.jit(box_step)(H, g, lower, upper)
    np.testing.assert_allclose(x @ H @ x / 2 + g @ x, best, rtol=EXACT)
    np.testing.assert_allclose(np.where(free, H @ x + g, 0.0), 0.0, atol=1e-8)
