"""Environments pass gymnasium's own checks, single and in batches."""

import warnings

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from jaxjoints import environments, replace
from jaxjoints.environments import randomized, scaled
from jaxjoints.environments.gymnasium import SingleEnvironment, VectorEnvironment

# As in test_environments.py: what that compiles is read again.
NUMBER, LIMIT = 4, 3


@pytest.fixture(scope="module")
def task():
    """A swing-up of a few steps."""
    return replace(environments.swing_up(), limit=LIMIT)


@pytest.fixture(scope="module")
def vector(task):
    return VectorEnvironment(task, NUMBER)


@pytest.mark.slow
def test_gymnasiums_checker_is_content(task):
    with warnings.catch_warnings():
        # It would rather have bounds of observations, and calls by name.
        warnings.filterwarnings("ignore", category=UserWarning, module="gymnasium")
        check_env(SingleEnvironment(task), skip_render_check=True)


@pytest.mark.slow
def test_a_batch_is_what_its_spaces_say(vector):
    assert isinstance(vector, gymnasium.vector.VectorEnv)
    obs, info = vector.reset(seed=1)
    assert obs in vector.observation_space and set(info) >= {"steps", "truncation", "height"}
    vector.action_space.seed(0)
    obs, reward, ended, late, info = vector.step(vector.action_space.sample())
    assert obs in vector.observation_space
    assert reward.shape == ended.shape == late.shape == (NUMBER,)
    assert ended.dtype == late.dtype == bool


def test_what_is_done_begins_anew_in_the_same_step(vector):
    vector.reset(seed=1)
    action = np.full((NUMBER, 1), 0.5)
    for _ in range(LIMIT - 1):
        _, _, _, late, info = vector.step(action)
        assert not late.any() and "final_obs" not in info
    obs, _, ended, late, info = vector.step(action)
    assert late.all() and not ended.any() and info["_final_obs"].all()
    assert (np.abs(info["final_obs"] - obs).max(axis=1) > 1e-3).all()
    assert (vector.step(action)[-1]["steps"] == 1).all()


def test_seeds_repeat_and_one_may_be_given_for_each(vector):
    first, _ = vector.reset(seed=7)
    other, _ = vector.reset(seed=8)
    again, _ = vector.reset(seed=7)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    each, _ = vector.reset(seed=[1, 2, 1, 3])
    np.testing.assert_array_equal(each[0], each[2])
    assert (each[0] != each[1]).any()


def test_batches_that_do_not_fit_are_refused(task, vector):
    keys = jax.random.split(jax.random.key(0), 5)
    many = randomized(task, keys, {"body.arm.mass": scaled(0.9, 1.1)})
    with pytest.raises(ValueError, match="num_envs 4 is not the batch"):
        VectorEnvironment(many, NUMBER)
    with pytest.raises(ValueError, match="take a VectorEnvironment"):
        SingleEnvironment(many)
    with pytest.raises(ValueError, match="call reset before"):
        SingleEnvironment(task).step(np.zeros(1))
    vector.reset(seed=0)
    with pytest.raises(ValueError, match="it must be"):
        vector.step(np.zeros((2, 1)))
