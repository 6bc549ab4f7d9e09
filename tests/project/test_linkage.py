"""The example that designs a linkage: simulated paths are the exact ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.examples import example

# First order in steps of 0.1 rad, whose projections move the crank too; more where links align.
OF_A_STEP = 1e-2


@pytest.fixture(scope="module")
def linkage():
    with example("linkage") as module:
        yield module


def exact(linkage, lengths):
    """Paths (steps, 2, linkages) by the intersection of two circles."""
    crank, coupler, rocker, x, z, u, v, phase = lengths[:, None]
    turn = 2 * jnp.pi * jnp.arange(1.0, linkage.STEPS + 1.0)[:, None] / linkage.STEPS
    knee_x, knee_z = crank * jnp.cos(phase + turn), crank * jnp.sin(phase + turn)
    far = jnp.hypot(x - knee_x, z - knee_z)
    cosine = (coupler**2 + far**2 - rocker**2) / (2 * coupler * far)
    angle = jnp.arctan2(z - knee_z, x - knee_x) + jnp.arccos(cosine)
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([knee_x + c * u - s * v, knee_z + s * u + c * v], 1)


@pytest.mark.slow
def test_simulated_paths_are_those_of_the_geometry(linkage):
    lengths = jnp.asarray(linkage.random_linkages(3), jnp.float64)
    system, state = linkage.linkage()
    with jax.numpy_rank_promotion("allow"):
        simulated = jax.jit(lambda lengths: linkage.paths(system, state, lengths)[0])(lengths)
        expected = exact(linkage, lengths)
    size = np.abs(expected).max()
    np.testing.assert_allclose(simulated, expected, atol=OF_A_STEP * size)
