"""Arrays of a batch around a function that sees one environment."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest

from jaxjoints import Control, Controller, replace, replicate, rollout
from jaxjoints.simulate.captured import check_captured
from support import mechanisms

GAINS = jnp.arange(3.0)


@pytest.fixture(scope="module")
def chain():
    return mechanisms.chain(3)


def run(system, state, controls=None, record=None):
    return rollout(system, replicate(state, 3), controls, dt=1e-2, steps=1, record=record)


def of_a_global(state):
    return Control(effort=-GAINS * state.q)


def calls_another(state):
    return of_a_global(state)


def of_a_default(state, gains=GAINS):
    return Control(effort=-gains * state.q)


def of_a_closure():
    gains = {"p": jnp.ones((2, 3))}
    return lambda state: Control(effort=-gains["p"][0] * state.q)


@pytest.mark.parametrize(
    ("controls", "name"),
    [
        (of_a_global, "GAINS"),
        (calls_another, "GAINS"),
        (of_a_default, "gains"),
        (of_a_closure(), r"gains\['p'\]"),
        (Controller(lambda state, inputs: of_a_global(state)), "GAINS"),
    ],
)
def test_arrays_around_a_controller_are_refused(chain, controls, name):
    """With three coordinates and three environments they would act on each coordinate."""
    with pytest.raises(ValueError, match=rf"controller takes {name} .*\(3,\).*Controller\(funct"):
        run(*chain, controls)


def test_arrays_around_a_record_are_refused(chain):
    with pytest.raises(ValueError, match="record takes GAINS from around it.*afterwards"):
        run(*chain, record=lambda state, info: GAINS * state.q)


def test_batched_records_are_known_by_their_axes(chain):
    system, state = chain
    check = partial(check_captured, "rollout", "controller", batch=(3,), hint="")
    # Arrays of three bodies and coordinates, but of no batch.
    check(function=lambda x: system.control(effort={"joint0": state.q[0]}))
    for batched in (replicate(state, 3), replace(system, mass=jnp.ones((3, 3)))):
        with pytest.raises(ValueError, match=r"takes batched\.(position|mass)"):
            check(function=lambda x: batched)  # noqa: B023


def test_what_is_declared_or_cannot_be_of_the_batch_is_taken():
    check = partial(check_captured, "rollout", "controller", hint="")
    check(function=jax.tree_util.Partial(lambda gains, state: gains, GAINS), batch=(3,))
    check(function=of_a_global, batch=(5,))
    check(function=of_a_global, batch=())
    one = jnp.ones(1)
    check(function=lambda state: one, batch=(1,))


def test_an_attribute_of_the_name_of_a_global_is_none():
    check_captured("rollout", "controller", lambda state: state.GAINS, (3,), "")


def test_shapes_that_do_not_fit_say_what_the_controller_sees(chain):
    controls = Controller(lambda x, inputs: Control(effort=inputs.shared * x.q), shared=jnp.ones(5))
    with pytest.raises(TypeError) as error:
        run(*chain, controls)
    assert "controller sees one environment" in error.value.__notes__[0]
    assert "state.q has shape (3,)" in error.value.__notes__[0]
