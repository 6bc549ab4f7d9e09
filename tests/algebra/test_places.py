"""Items at places along an axis that are known when JAX traces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints.algebra.compiler import traced_for
from jaxjoints.algebra.places import MOST_TURNS, add_at, take


@pytest.mark.parametrize("index", [[1, 2, 3], [3, 1], [2]])
def test_items_are_taken_along_the_axis(index):
    x = jnp.arange(40.0).reshape(2, 5, 4)
    np.testing.assert_array_equal(take(x, np.array(index), 1), np.asarray(x)[:, index])


@pytest.mark.parametrize("index", [[0, 3, 0, 1], [4, 0, 2, 1], [2, 2, 2, 2]])
@pytest.mark.parametrize("shared", ["none", "array", "values"])
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_values_are_added_where_places_repeat_too(index, shared, platform):
    """One of the two may be shared by the batch, its last axis; on a GPU places look values up."""
    x, values = np.arange(40.0).reshape(2, 5, 4), np.cos(np.arange(32.0)).reshape(2, 4, 4)
    x = x[..., :1] if shared == "array" else x
    values = values[..., :1] if shared == "values" else values
    expected = np.array(np.broadcast_to(x, (2, 5, 4)))
    for place, value in zip(index, np.moveaxis(values, 1, 0), strict=True):
        expected[:, place] += value
    add = jax.jit(lambda x, values: add_at(x, np.array(index), values, 1))
    with traced_for(platform):
        np.testing.assert_allclose(add(jnp.asarray(x), jnp.asarray(values)), expected, rtol=1e-15)
        _, moved = jax.jvp(add, (x, values), (np.ones_like(x), np.zeros_like(values)))
    np.testing.assert_array_equal(moved, np.ones((2, 5, 4)))


@pytest.mark.parametrize("values", [MOST_TURNS, MOST_TURNS + 1])
def test_a_gpu_scatters_only_what_would_take_many_turns(values):
    with traced_for("gpu"):
        traced = jax.make_jaxpr(lambda x, v: add_at(x, np.ones(values, int), v, 0))(
            jnp.zeros((3, 2)), jnp.ones((values, 2))
        )
    assert ("scatter" in str(traced)) == (values > MOST_TURNS)
