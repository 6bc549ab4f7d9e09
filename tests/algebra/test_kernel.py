"""Kernels of whole functions agree with the functions, by Pallas's interpreter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.algebra import dense
from jaxjoints.algebra.components import NotTakenApart
from jaxjoints.algebra.kernel import kernels, per_environment
from jaxjoints.algebra.places import add_at, take
from jaxjoints.algebra.pytree import replace

ROUNDINGS = 50
# Batch axes: none, fewer than a warp, no multiple of one, several.
BATCHES = [(), (5,), (40,), (3, 14)]


def motion(carry, shared, gain):
    """What steps are made of: algebra of matrices, places, constants, and a loop that ends when
    each environment is done.
    """
    x, count = carry
    A = dense.product_transposed(x, x) + 2 * jnp.eye(3, dtype=x.dtype).reshape(
        3, 3, *(1,) * (x.ndim - 2)
    )
    L = dense.cholesky_inverse(A)
    y = dense.multiply(L, x[:, 0]) * jnp.sum(shared * shared, axis=0)[None]
    y = add_at(y, np.array([0, 2, 2]), take(x[:, 1], np.array([2, 0, 1]), 0), 0)
    y = jnp.where(y[:1] > 0, jnp.sin(y), y / (1 + jnp.round(y) ** 2))

    def go_on(now):
        return jnp.any(now[1])

    def halve(now):
        y, wanted, turns = now
        y = jnp.where(wanted[None], 0.5 * y, y)
        return y, jnp.abs(y).max(axis=0) > gain, turns + jnp.where(wanted, 1, 0)

    y, _, turns = jax.lax.while_loop(
        go_on, halve, (y, jnp.abs(y).max(axis=0) > gain, jnp.zeros(y.shape[1:], jnp.int32))
    )
    return (x + y[:, None], count + turns), {"largest": jnp.argmax(y, axis=0), "any": y[0] > 0}


def arguments(batch, dtype):
    random = np.random.default_rng(0)
    x = jnp.asarray(random.standard_normal((3, 3, *batch)), dtype)
    shared = jnp.asarray(random.standard_normal((4, *(1,) * len(batch))), dtype)
    return (x, jnp.zeros(batch, jnp.int32)), shared, jnp.asarray(0.1, dtype)


def fused(carry, shared, gain):
    axes = carry[1].ndim
    return per_environment(motion, axes, carry, shared, gain, ranks=[2, 0, 1, 0])


def assert_agree(found, expected):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        if jnp.issubdtype(x.dtype, jnp.inexact):
            size = 1 + np.max(np.abs(y), initial=0.0)
            assert np.max(np.abs(x - y), initial=0.0) <= ROUNDINGS * jnp.finfo(x.dtype).eps * size
        else:
            assert np.array_equal(x, y)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_kernel_agrees_with_the_function(batch, dtype):
    given = arguments(batch, dtype)
    expected = jax.jit(motion)(*given)
    with kernels("interpreted"):
        assert_agree(jax.jit(fused)(*given), expected)


def test_vmap_of_a_kernel_adds_a_batch_axis():
    given = arguments((6,), jnp.float64)
    several = jax.tree.map(lambda x: jnp.stack([x, x + 1]), given[0])
    expected = jax.jit(jax.vmap(motion, in_axes=(0, None, None)))(several, *given[1:])
    with kernels("interpreted"):
        found = jax.jit(jax.vmap(fused, in_axes=(0, None, None)))(several, *given[1:])
    assert_agree(found, expected)


def test_what_is_no_program_of_numbers_says_so():
    def sorting(carry):
        return jnp.sort(carry, axis=0), None

    with kernels("interpreted"), pytest.raises(NotTakenApart, match="sort"):
        per_environment(sorting, 1, jnp.ones((3, 4)), ranks=[1])


def test_a_kernel_is_lowered_for_cuda_alone():
    given = arguments((40,), jnp.float32)
    with kernels("lowered"):
        traced = jax.jit(fused).trace(*given)
        on_gpu = traced.lower(lowering_platforms=("cuda",)).as_text()
        on_cpu = traced.lower(lowering_platforms=("cpu",)).as_text()
    assert "triton" in on_gpu and "triton" not in on_cpu


def test_kernels_refuse_an_unknown_mode():
    with pytest.raises(ValueError, match="sometimes"), kernels("sometimes"):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("limited", [False, True])
def test_a_step_in_one_kernel_agrees_with_the_step(limited):
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -9.81))
    rod = world.body("rod", mass=1.0, inertia=(0.01, 0.02, 0.03), com=(0.1, 0.0, 0.0))
    laws = [jj.Limits(lower=-0.1, upper=0.2)] if limited else []
    world.joint("pin", jj.Hinge(), child=rod, parent=jj.WORLD, laws=laws)
    system, state = world.build()
    state = jj.replicate(state, 3)
    state = replace(state, omega=state.omega.at[1].set(jnp.array([-1.0, 0.0, 40.0])))

    def steps():
        return jj.rollout(system, state, dt=0.01, steps=4, record_every=4)[0]

    expected = steps()
    assert limited == bool(np.any(expected.warm_start.bounds != 0))
    with kernels("interpreted"):
        found = steps()
    assert_agree(found, expected)
