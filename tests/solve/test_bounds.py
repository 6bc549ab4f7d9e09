"""Laws as functions of their speeds, where impulses come near zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints.solve.bounds import LawRows, Potential, value
from jaxjoints.solve.cone import Slip


@jax.jit
def studied(sizes, signs, upper):
    """The force at each size, its slopes, and those of the slip across."""

    def laws(size):
        one = jnp.ones(3, size.dtype)
        bound = jnp.asarray([jnp.inf, 0.0, 0.0], size.dtype).at[1:].set(upper * size[0])
        lower = -bound.at[0].set(0.0)
        rows = LawRows(((0, 1, 2),), 3, normal=(0, 0, 0), across=(0, 2, 1))
        return Potential(one, 0 * one, one, lower, bound, one, None, rows)

    def force(size):
        return value(laws(size), size * signs)

    def across(size):
        return Slip.of(laws(size), size * signs).across

    return (
        jax.vmap(force)(sizes),
        jax.vmap(jax.jacrev(force))(sizes)[..., 0],
        jax.vmap(jax.jacrev(across))(sizes),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("upper", [0.0, 0.5, 2.0], ids=["gone", "slips", "sticks"])
def test_laws_of_a_contact_that_has_let_go_have_finite_slopes(upper, dtype):
    """Its impulses fall by powers of ten in each step, until their squares are too small for a
    number. Where they are not, the friction of a round cone has the direction of the slip.
    """
    tiny = np.log10(float(jnp.finfo(dtype).tiny))
    sizes = jnp.asarray(10.0 ** np.linspace(tiny, 0.0, 200)[:, None], dtype)
    signs = jnp.array([1.0, 0.6, -0.8], dtype)
    found, slopes, across_slopes = map(np.asarray, studied(sizes, signs, jnp.asarray(upper, dtype)))
    assert np.isfinite(slopes).all() and np.isfinite(across_slopes).all()
    sizes, signs = np.asarray(sizes), np.asarray(signs)
    seen = sizes[:, 0] > float(jnp.finfo(dtype).tiny) ** 0.4
    assert 70 < seen.sum() < 90
    expected = signs * np.array([1.0, *[min(upper, 1.0)] * 2], dtype)
    np.testing.assert_allclose(
        found[seen] / sizes[seen], expected[None].repeat(seen.sum(), 0), rtol=1e-5
    )
    np.testing.assert_allclose(slopes[seen], expected[None].repeat(seen.sum(), 0), rtol=1e-5)
