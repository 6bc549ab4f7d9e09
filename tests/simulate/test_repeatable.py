"""The same numbers again: in another batch, in tiles, after a pause, in a second run."""

from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest

from jaxjoints import Limits, Rattle, SemiImplicitEuler, replicate, rollout
from support import mechanisms
from support.cases import mostly_slow

DT, STEPS, BATCH = 5e-3, 40, 32


@cache
def started():
    """Chains that run into their stops at different times."""
    system, state = mechanisms.chain(3, laws=[Limits(-0.5, 0.5)], qd=1.0)
    states = replicate(state, BATCH)
    spread = np.linspace(0.2, 2.0, BATCH)[None, None]
    return system, replace(states, omega=states.omega * spread, velocity=states.velocity * spread)


def run(states, steps=STEPS, **options):
    return rollout(started()[0], states, dt=DT, steps=steps, record_every=steps, **options)[0]


def assert_same(one, other):
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_second_run_gives_the_same_bits():
    _, states = started()
    assert_same(run(states, tile=BATCH), run(states, tile=BATCH))


@pytest.mark.slow
@pytest.mark.parametrize("tile", [4, 16])
def test_tiles_give_the_same_bits(tile):
    _, states = started()
    assert_same(run(states, tile=BATCH), run(states, tile=tile))


@pytest.mark.slow
@pytest.mark.parametrize("batch", mostly_slow([1, 3, 16], default=("3",)))
def test_another_batch_size_gives_the_same_numbers(batch):
    """The compiler may add and multiply in one rounding or in two, by the width of the batch."""
    _, states = started()
    some = jax.tree.map(lambda x: x[..., :batch], states)
    whole = jax.tree.map(lambda x: x[..., :batch], run(states, tile=BATCH))
    for x, y in zip(*map(jax.tree.leaves, (run(some, tile=batch), whole)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme",
    [SemiImplicitEuler(), pytest.param(Rattle(), marks=pytest.mark.slow)],
    ids=["Euler", "RATTLE"],
)
def test_a_rollout_goes_on_after_a_pause_as_if_there_were_none(scheme, tmp_path):
    """The state is all that is needed: also after it was written to a file and read."""
    _, states = started()
    leaves, tree = jax.tree.flatten(run(states, STEPS // 2, scheme=scheme))
    np.savez(tmp_path / "state.npz", *leaves)
    with np.load(tmp_path / "state.npz") as file:
        middle = jax.tree.unflatten(tree, list(file.values()))
    assert_same(run(middle, STEPS // 2, scheme=scheme), run(states, scheme=scheme))
