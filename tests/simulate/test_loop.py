"""Loops of which reverse differentiation keeps few states: the same numbers, bounded memory."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints.simulate.loop import loop, varying

ROUNDING = 1e-14
STATE = jnp.linspace(0.5, 1.0, 3)


def swing(gain, state, push):
    """One step of three pendulums, and what is recorded of it."""
    state = state + gain * jnp.sin(state) + push
    return state, {"sum": state.sum(), "nothing": jnp.zeros((0, 2))}


def swung(gain, pushes, kept):
    pushes = jnp.asarray(pushes)
    return loop(partial(swing, gain), STATE, pushes, len(pushes), kept)


def number(gain, pushes, kept):
    state, records = swung(gain, pushes, kept)
    return jnp.sum(state**2) + jnp.sum(records["sum"] ** 2)


@pytest.mark.parametrize(
    ("length", "kept"),
    [
        *[(7, 3), (7, 5), (13, 1), (1, 1)],
        *(pytest.param(*x, marks=pytest.mark.slow) for x in [(6, 3), (4, 9), (11, 4)]),
    ],
)
def test_values_and_slopes_are_those_of_a_plain_loop(length, kept):
    pushes = 0.1 * jnp.cos(jnp.arange(length))
    state, records = swung(0.2, pushes, kept)
    expected = jax.lax.scan(partial(swing, 0.2), STATE, pushes)
    jax.tree.map(np.testing.assert_array_equal, (state, records), expected)
    both = jax.jit(jax.value_and_grad(number, argnums=(0, 1)), static_argnums=2)
    found, plain = (both(0.2, pushes, kept) for kept in (kept, 0))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=ROUNDING), found, plain)
    _, slope = jax.jvp(lambda gain: number(gain, pushes, kept), (0.2,), (1.0,))
    np.testing.assert_allclose(slope, plain[1][0], rtol=1e-12)


def test_items_that_only_fill_a_segment_are_not_computed():
    """The item after the last one would divide by zero."""

    def counted(left, _):
        return left - 1, 1 / left

    def total(left):
        return jnp.sum(loop(counted, left, None, 5, 3)[1])

    value, slope = jax.value_and_grad(total)(5.0)
    np.testing.assert_allclose(value, sum(1 / n for n in range(1, 6)), rtol=ROUNDING)
    np.testing.assert_allclose(slope, -sum(1 / n**2 for n in range(1, 6)), rtol=ROUNDING)


@pytest.mark.parametrize("length", [997, 1000])
def test_a_state_is_kept_for_each_segment_whatever_the_length(length):
    def kept_numbers(kept):
        pushes = jnp.zeros(length)
        _, back = jax.eval_shape(lambda gain: jax.vjp(number, gain, pushes, kept), 0.2)
        return sum(x.size for x in jax.tree.leaves(back))

    # Both keep the records and the pushes; a state has three numbers.
    given = 2 * length
    assert 3 * length <= kept_numbers(0) - given
    assert kept_numbers(25) - given <= 3 * 40 + length + 40


def test_segments_of_every_length_hold_one_program():
    def steps(length):
        program = jax.make_jaxpr(lambda x: swung(0.2, x, 3))(jnp.zeros(length))
        return str(program).count("sin ")

    assert steps(7) == steps(6) == 1


def test_a_loop_that_varies_with_others_has_the_same_slopes():
    """Slopes by what the steps depend on, though NaN stands among it; integers pass through."""

    def last(numbers, start):
        (state, count), number = varying((start, jnp.arange(2)), numbers), numbers["gain"]
        state, _ = loop(partial(swing, number), state, jnp.zeros(4), 4, 0)
        return jnp.sum(state**2) + count.sum().astype(state.dtype)

    numbers = {"else": jnp.full(2, jnp.nan), "gain": jnp.asarray(0.1), "count": jnp.asarray(3)}
    for which in (0, (0, 1)):
        found = jax.grad(last, which, allow_int=True)(numbers, STATE)
        found = (found, None) if which == 0 else found
        assert not found[0]["else"].any()
        expected = jax.grad(lambda g, x: number_of(g, x), (0, 1))(numbers["gain"], STATE)
        np.testing.assert_allclose(found[0]["gain"], expected[0], rtol=ROUNDING)
        if which:
            np.testing.assert_allclose(found[1], expected[1], rtol=ROUNDING)
    along = jax.jvp(lambda x: last(numbers, x), (STATE,), (jnp.ones(3),))[1]
    np.testing.assert_allclose(along, expected[1].sum(), rtol=ROUNDING)


def number_of(gain, start):
    state, _ = loop(partial(swing, gain), start, jnp.zeros(4), 4, 0)
    return jnp.sum(state**2) + 1
