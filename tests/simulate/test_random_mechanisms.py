"""Random mechanisms: nothing that is not finite goes unsaid, and no environment touches another."""

import inspect
from dataclasses import replace

import jax
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings, strategies

import jaxjoints as jj
from jaxjoints.couplings.coupling import Coupling
from support import fuzz

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
@repeatable(2)
@given(strategies.randoms(use_true_random=False))
def test_random_mechanisms_obey_the_laws(random):
    """Small ones in one precision, values alone, since compiling them takes nearly all the time:
    `tests/benchmarks/fuzz.py` looks at larger ones, at gradients and at both precisions.
    """
    mechanism = replace(drawn(random, most=2), differentiated=False)
    assert_holds(mechanism, reference=False)
    jax.clear_caches()
