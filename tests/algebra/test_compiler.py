"""What keeps programs small changes no value and no derivative, and can be switched off."""

import ast
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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


def test_small_work_outside_of_other_programs_is_compiled_with_other_options():
    # An option that XLA does not have shows which programs are compiled with it.
    options = {"compiler_options": {"xla_no_such_option": 1}}
    double = compiler.quickly(lambda x: 2 * x, where=lambda x: x.size < 3, **options)
    few, many = jnp.ones(2), jnp.ones(4)
    np.testing.assert_array_equal(double(many), 2 * many)
    np.testing.assert_array_equal(jax.jit(double)(few), 2 * few)
    np.testing.assert_array_equal(jax.vmap(double)(few), 2 * few)
    with compiler.traced_for("gpu"):
        np.testing.assert_array_equal(double(few), 2 * few)
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_no_such_option"):
        double(few)


def test_moderate_options_hold_on_cpus_outside_of_other_programs(monkeypatch):
    monkeypatch.setattr(compiler, "MODERATE", {"xla_no_such_option": 1})
    double, x = compiler.moderately(lambda x: 2 * x), jnp.ones(2)
    np.testing.assert_array_equal(jax.jit(double)(x), 2 * x)
    with compiler.traced_for("gpu"):
        np.testing.assert_array_equal(double(x), 2 * x)
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_no_such_option"):
        double(x)


def test_what_a_batch_shares_is_materialized_by_no_call():
    shared, own, number = jnp.ones((3, 1)), jnp.ones((3, 8)), jnp.ones(())
    kept = compiler.materialize({"shared": shared, "own": own, "number": number})
    assert kept["shared"] is shared and kept["own"] is not own
    jax.tree.map(
        np.testing.assert_array_equal, kept, {"shared": shared, "own": own, "number": number}
    )
    one = jnp.ones((3, 1))
    assert compiler.materialize(one) is not one, "a batch of one shares nothing"


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


def cumulated(x):
    """Sums over the first axis, by a loop of one step."""
    return compiler.scan(lambda total, y: (total + y, total * y), x[1], x[:1], 1)[1]


def behind_a_barrier(x):
    with compiler.traced_for("gpu"):
        return compiler.for_all_readers(x)


# What the workarounds compute, each of an array (4, 4, 4).
WORKED_AROUND = {
    "once": lambda x: compiler.once(lambda x: x * x)(x),
    "stored": lambda x: compiler.stored(dense.product)(x, x),
    "materialize": lambda x: compiler.materialize(x * x),
    "barrier": lambda x: behind_a_barrier(x * x),
    "spread": lambda x: compiler.spread(x, 1, 3),
    "arctan": lambda x: compiler.arctan2(x, x[::-1]) + compiler.arctan_series(0.01 * x * x),
    "scan": cumulated,
}


def instructions(function, x):
    """The program of a function and its derivative, as JAX hands it to XLA."""
    both = jax.jit(lambda x: jax.value_and_grad(lambda x: jnp.sum(function(x)))(x))
    return both.lower(x).as_text()


@jax.custom_jvp
def cubed(x, count):
    return x**3


@cubed.defjvp
def cubed_rule(primals, tangents):
    """A slope summed by a loop that reads the tangent, beside that of an integer."""
    x, count = primals

    def summed(tangents):
        def one(total, share):
            return total + share * x**2 * tangents[0], None

        return jax.lax.scan(one, jnp.zeros_like(x), jnp.arange(3.0))[0]

    return cubed(x, count), compiler.linear_loop(summed, tangents)


@pytest.mark.parametrize("version", [jax.__version_info__, (0, 9, 2)])
def test_a_linear_loop_in_a_rule_has_forward_and_reverse_derivatives(version, monkeypatch):
    monkeypatch.setattr(jax, "__version_info__", version)
    x, count = jnp.asarray(2.0), jnp.asarray(1)
    for cube in (cubed, jax.checkpoint(cubed)):
        np.testing.assert_allclose(jax.jit(jax.grad(cube))(x, count), 12.0)
        np.testing.assert_allclose(jax.jacfwd(cube)(x, count), 12.0)


@jax.custom_jvp
def twice(x):
    return compiler.batch_in_front(jnp.stack([x, x]))


@twice.defjvp
def twice_rule(primals, tangents):
    """The same by a loop, which leaves the axis of a `vmap` elsewhere than `stack` does."""
    (x,), (dx,) = primals, tangents
    both = jax.lax.scan(lambda x, _: (x, x), x, None, length=2)[1]
    return compiler.batch_in_front(both), jnp.stack([dx, dx])


def test_a_function_and_its_rule_may_leave_the_axis_of_a_batch_in_different_places():
    x = jnp.arange(12.0).reshape(3, 4)
    last = jax.vmap(jax.jit(lambda x: twice(x)[-1]), in_axes=1, out_axes=1)
    value, slope = jax.linearize(last, x)
    np.testing.assert_array_equal(value, x)
    np.testing.assert_array_equal(slope(x), x)


def test_every_workaround_has_a_switch():
    assert set(WORKED_AROUND) == set(compiler.SWITCHES)


@pytest.mark.parametrize("name", compiler.SWITCHES)
def test_a_switch_changes_the_program_and_neither_value_nor_derivative(name):
    x = draw(4, 4, 4)[0]
    function = WORKED_AROUND[name]

    def outcome():
        return jax.jit(jax.value_and_grad(lambda x: jnp.sum(jnp.cos(function(x)))))(x)

    program, expected = instructions(function, x), outcome()
    with compiler.disabled(name):
        without, actual = instructions(function, x), outcome()
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-14), actual, expected)
    assert without != program
    assert instructions(function, x) == program, "afterwards all is as it was before"


def test_an_unknown_switch_is_refused():
    with pytest.raises(ValueError, match="'fast'.* none of once, stored, "):
        with compiler.disabled("fast"):
            pass


def test_what_jax_does_not_promise_to_keep_is_imported_in_one_file_alone():
    private = ("jax._src", "jax.experimental", "jax.custom_derivatives", "jax.interpreters")
    package = Path(compiler.__file__).parents[1]
    users = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in getattr(node, "names", ()) if hasattr(alias, "name")]
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{name}" for name in names]
            elif isinstance(node, ast.Attribute):
                names = [ast.unparse(node)]
            elif not isinstance(node, ast.Import):
                continue
            if any(name.startswith(private) for name in names):
                users.add(path.relative_to(package).as_posix())
    assert users == {"algebra/compiler.py"}
