"""Random mechanisms: nothing that is not finite goes unsaid, and no environment touches another."""

import inspect
from dataclasses import replace
from functools import partial
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings, strategies

import jaxjoints as jj
from jaxjoints.couplings.coupling import Coupling
from support import fuzz
from support.mechanisms import single

# Bases, and contacts, which `Draft.contact` adds.
NOT_JOINTS = {"Chart", "Coupling", "Residual", "Contact", "ContactPoint"}


def drawn(random, most=5):
    """The mechanism of a source of random numbers; what a builder refuses does not count."""
    try:
        return fuzz.mechanism(random, most)
    except ValueError:
        assume(False)


def repeatable(examples):
    """Settings of hypothesis under which each run draws the same mechanisms.

    Mechanisms of each example are compiled, so that a failing one is not made smaller: the lines
    of its description tell how it is built.
    """
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


def assert_holds(mechanism, reference=True):
    broken = fuzz.examine(mechanism, reference)
    assert not broken, "\n".join([*mechanism.lines, *map(str, broken.items())])


def test_all_couplings_are_drawn():
    public = {
        name
        for name in jj.__all__
        if inspect.isclass(getattr(jj, name)) and issubclass(getattr(jj, name), Coupling)
    }
    assert public - NOT_JOINTS <= fuzz.COUPLINGS.keys() | fuzz.BESIDE.keys()


@pytest.mark.slow
def test_only_what_is_jammed_is_told_in_both_precisions():
    """A hinge beyond its stop, in one environment free to go back and clamped in the other: there
    no force moves it off its stop.
    """
    world = jj.SystemBuilder()
    world.body("bob", mass=1.0, inertia=(0.02, 0.03, 0.01))
    stop = jj.Limits(lower=0.2)
    world.joint("pivot", jj.Hinge((0.0, 1.0, 0.0)), child="bob", frame_C=fuzz.Z, laws=[stop])
    world.joint("clamp", jj.Fixed(), child="bob", frame_D=-fuzz.Z, enabled=True)
    with pytest.warns(UserWarning, match="outside its lower"):
        system, state = world.build()
    system = system.with_joint("clamp", enabled=jnp.array([0.0, 1.0]))
    inputs = system, jj.replicate(state, 2), jj.Control(effort=jnp.zeros((2, 1, 2)))
    told = {"low": False, "differentiated": False, "spoiled": "state", "bad": 0}
    drawn = fuzz.Mechanism(
        *inputs, dt=1e-2, scheme=jj.SemiImplicitEuler(), **told, length=1.0, lines=()
    )
    run = jax.jit(partial(fuzz.rolled, drawn))
    for numbers in (inputs, single(inputs)):
        np.testing.assert_array_equal(run(numbers)[1].cause[0], [jj.Cause.NONE, jj.Cause.SOLVER])
    np.testing.assert_array_equal(fuzz.beyond_float32(drawn)[0], [False, True])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*from outside of the coupling")
@pytest.mark.parametrize("seed", [2, 6, 9])
def test_a_seed_that_the_builder_refused_is_built(seed):
    """Joints with stated coordinates place bodies first, and those without rows place none."""
    assert len(fuzz.mechanism(Random(seed))) == fuzz.ENVIRONMENTS


@pytest.mark.slow
def test_a_seed_that_float32_left_unsolved_is_solved():
    """A contact presses a body where its joints hardly give way: 0.2 m/s were left, for speeds of
    5e4 m/s that cancel in the solution of float64, of which 6e-3 m/s are a rounding.
    """
    drawn = fuzz.mechanism(Random(4), environments=128)
    given = drawn.system, drawn.state, jax.tree.map(lambda x: x[0], drawn.control)
    # Twice, for the program of a batch rounds otherwise than that of one.
    twice = np.array([119, 119])
    given = jax.tree.map(lambda x: x[..., twice] if x.shape[-1:] == (128,) else x, given)
    info = jax.jit(partial(jj.step, dt=drawn.dt, scheme=drawn.scheme))(*single(given))[1]
    assert np.all(info.cause == jj.Cause.NONE)
    assert np.all(np.asarray(info.residual) < 6e-3)


@pytest.mark.slow
@repeatable(2)
@given(strategies.randoms(use_true_random=False))
def test_random_mechanisms_obey_the_laws(random):
    """Small ones in one precision, values alone, since compiling them takes nearly all the time:
    `tests/benchmarks/fuzz.py` looks at larger ones, at gradients and at both precisions.
    """
    mechanism = replace(drawn(random, most=2), differentiated=False)
    assert_holds(mechanism, reference=False)
    jax.clear_caches()
