"""What a control asks for is clipped to what a joint may get."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import Cause, Control, PlanarTranslation, Slider, SystemBuilder, replicate, step

DT, MOST = 0.1, (3.0, 5.0)
EFFORT = [[2.0, 1e12, -1e12, np.nan, 4.0], [1.0, -1e12, 4.0, 1.0, 6.0], [1e12, 1.0, 2.0, 3.0, 4.0]]


def carts(**options):
    """A cart on a plane with bounds of its efforts, and one on a rail without."""
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    for name in ("plane", "rail"):
        world.body(name, mass=1.0, inertia=(1.0, 1.0, 1.0))
    world.joint("plane", PlanarTranslation(), child="plane", **options)
    world.joint("rail", Slider(axis=(1.0, 0.0, 0.0)), child="rail")
    return world.build()


@pytest.fixture(scope="module")
def advance():
    """Speeds of both after a step from rest, the gradient of their sum, and the info."""
    system, state = carts(max_effort=MOST)
    bounds = jnp.broadcast_to(jnp.array(MOST)[:, None], (2, 5)).at[0, 4].set(1.0)
    system = system.with_joint("plane", max_effort=bounds)
    state = replicate(state, 5)

    def run(effort):
        _, info = step(system, state, Control(effort=effort), dt=DT)
        return jnp.sum(info.qd), info

    return jax.jit(jax.grad(run, has_aux=True))(jnp.array(EFFORT))


@pytest.mark.slow
def test_efforts_are_clipped_in_each_environment_and_told(advance):
    _, info = advance
    acted = [[2.0, 3.0, -3.0, 0.0, 1.0], [1.0, -5.0, 4.0, 0.0, 5.0], [1e12, 1.0, 2.0, 0.0, 4.0]]
    none, asked, unlimited = Cause.NONE, Cause.CONTROL, Cause.DIVERGED
    assert info.cause.tolist() == [unlimited, none, none, asked, none]
    np.testing.assert_array_equal(info.effort[:, 1:], np.array(acted)[:, 1:])
    np.testing.assert_allclose(info.qd[:, 1:], DT * np.array(acted)[:, 1:], rtol=1e-12)


@pytest.mark.slow
def test_no_gradient_flows_to_what_is_clipped(advance):
    slope, _ = advance
    expected = DT * np.array([[0, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 1, 1, 0, 1]])
    np.testing.assert_allclose(slope, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("most", "words"),
    [
        (-1.0, "max_effort -1.0 must be >= 0"),
        (np.nan, "max_effort"),
        ((1.0, 2.0, 3.0), "max_effort"),
    ],
)
def test_bounds_of_efforts_are_checked(most, words):
    with pytest.raises(ValueError, match=f"joint 'plane': {words}"):
        carts(max_effort=most)
