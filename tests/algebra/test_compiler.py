"""What keeps programs small changes no value and no derivative."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxjoints.algebra import compiler, dense


def draw(*shape, dtype=jnp.float64, seed=0):
    """Normal numbers, as JAX and as numpy have them in float64."""
    x = jnp.asarray(np.random.default_rng([seed, *shape]).normal(size=shape), dtype)
    return x, np.asarray(x, np.float64)


def test_stored_changes_nothing_but_where_it_is_computed():
    A, _ = draw(3, 3, 4, seed=3)

    def cube(product, A):
        return product(product(A, A), A)

    plain, stored = partial(cube, dense.product), partial(cube, compiler.stored(dense.product))
    transforms = {
        "nothing": lambda f: f,
        "vmap": partial(jax.vmap, in_axes=-1, out_axes=-1),
        "grad": lambda f: jax.grad(lambda A: jnp.sum(f(A))),
        "jvp": lambda f: lambda A: jax.jvp(f, (A,), (A,)),
    }
    for transform in transforms.values():
        jax.tree.map(
            partial(np.testing.assert_allclose, rtol=1e-12),
            jax.jit(transform(stored))(A),
            jax.jit(transform(plain))(A),
        )
    compiled = jax.jit(stored).lower(A).compile().as_text()
    assert "call(" in compiled, "the products must stay calls of their own"


def test_what_a_batch_shares_is_materialized_by_no_call():
    shared, own, number = jnp.ones((3, 1)), jnp.ones((3, 8)), jnp.ones(())
    kept = compiler.materialize({"shared": shared, "own": own, "number": number})
    assert kept["shared"] is shared and kept["own"] is not own
    jax.tree.map(
        np.testing.assert_array_equal, kept, {"shared": shared, "own": own, "number": number}
    )
    one = jnp.ones((3, 1))
    assert compiler.materialize(one) is not one, "a batch of one shares nothing"


def test_elementwise_has_all_derivatives_of_what_it_computes():
    """Value, forward and reverse, mapped and of second order, of two inputs and two results."""

    def pair(x, y):
        return jnp.sin(x) * y, x / (1 + y * y)

    own = compiler.elementwise(pair)
    x = jnp.linspace(0.1, 2.0, 6).reshape(2, 3)
    y = jnp.cos(x)
    check_grads(own, (x, y), order=2, rtol=1e-6)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-14),
        jax.vmap(jax.vmap(jax.hessian(own, argnums=(0, 1))))(x, y),
        jax.vmap(jax.vmap(jax.hessian(pair, argnums=(0, 1))))(x, y),
    )
    # In reverse, two slopes of two results are kept, and none of what lies between.
    kept = jax.tree.leaves(jax.vjp(own, x, y)[1])
    assert len(kept) <= 4


@pytest.mark.parametrize("reverse", [False, True])
def test_what_a_stored_function_consists_of_is_not_kept_apart(reverse):
    # `jnp.where` is a call of its own; marked as its surroundings are, it would be a kernel too.
    def masked(x):
        return jnp.where(x > 0, jnp.where(x < 1, x, 1.0) * x, 0.0)

    stored = compiler.stored(masked)
    function = jax.grad(lambda x: jnp.sum(stored(x))) if reverse else stored
    x = draw(3, 4)[0]
    calls = [
        line
        for line in jax.jit(function).lower(x).compile().as_text().splitlines()
        if " call(" in line
    ]
    assert len(calls) == (2 if reverse else 1), calls
