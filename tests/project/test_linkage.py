"""The example that designs a linkage: simulated paths and their derivatives are the exact ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.image import imread

from support.differences import central
from support.examples import example

# First order in steps of 0.1 rad, whose projections move the crank too; more where links align.
# Slopes are off by 2.3 %, with steps half as long by 1.2 %.
OF_A_STEP, OF_SLOPES = 1e-2, 3e-2
DIFFERENCES = 1e-8  # of fourth order in changes of 1e-4


@pytest.fixture(scope="module")
def linkage():
    with example("linkage") as module:
        yield module


def exact(linkage, lengths):
    """Paths (steps, 2, linkages) by the intersection of two circles."""
    crank, coupler, rocker, x, z, u, v, phase = lengths[:, None]
    turn = 2 * jnp.pi * jnp.arange(1.0, linkage.STEPS + 1.0)[:, None] / linkage.STEPS
    knee_x, knee_z = crank * jnp.cos(phase + turn), crank * jnp.sin(phase + turn)
    # Not jnp.hypot: JAX differentiates its maximum and minimum by whether they equal an operand.
    # Compiled as the tests compile, operands are computed twice, with and without a fused product
    # and sum; of 180 points 22 lose their slope by that (jaxlib 0.10).
    far = jnp.sqrt((x - knee_x) ** 2 + (z - knee_z) ** 2)
    cosine = (coupler**2 + far**2 - rocker**2) / (2 * coupler * far)
    angle = jnp.arctan2(z - knee_z, x - knee_x) + jnp.arccos(cosine)
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([knee_x + c * u - s * v, knee_z + s * u + c * v], 1)


@pytest.mark.slow
def test_simulated_paths_and_their_derivatives_are_those_of_the_geometry(linkage):
    lengths = jnp.asarray(linkage.random_linkages(3), jnp.float64)
    along = jnp.asarray(linkage.UPPER - linkage.LOWER)[:, None] * jnp.ones_like(lengths)
    system, state = linkage.linkage()

    @jax.jit
    def simulated(h):
        path = lambda h: linkage.paths(system, state, lengths + h * along)[0]  # noqa: E731
        return jax.jvp(path, (h,), (jnp.ones_like(h),))

    with jax.numpy_rank_promotion("allow"):
        found = simulated(jnp.zeros(()))
        expected = jax.jit(lambda x, dx: jax.jvp(lambda x: exact(linkage, x), (x,), (dx,)))(
            lengths, along
        )
        differences = central(
            lambda points: [simulated(h)[0].ravel() for (h,) in points], np.zeros(1), [1e-4]
        )
    for value, of_geometry, share in zip(found, expected, (OF_A_STEP, OF_SLOPES), strict=True):
        np.testing.assert_allclose(value, of_geometry, atol=share * np.abs(of_geometry).max())
    np.testing.assert_allclose(found[1].ravel(), differences[0], rtol=0, atol=DIFFERENCES)


@pytest.mark.slow
def test_linkages_that_learn_come_closer_to_their_path(linkage, tmp_path, capsys):
    """As a user runs it, with few linkages and iterations; it asserts what it shows."""
    picture = tmp_path / "linkage.png"
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        linkage.main(["--linkages", "4", "--iterations", "25", "--output", str(picture)])
    assert "mm after 25 iterations" in capsys.readouterr().out
    height, width, _ = imread(picture).shape
    assert height > 300 and width > 1000
