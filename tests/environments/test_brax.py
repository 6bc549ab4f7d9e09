"""Environments in the form of Brax: the same motion, its wrappers, its trainers; Playground."""

import functools
import re
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import environments, replace, struct
from jaxjoints.environments import randomized, scaled, unroll

with warnings.catch_warnings():
    # Brax imports JAXopt, which is no longer maintained and says so.
    warnings.simplefilter("ignore")
    pytest.importorskip("brax", reason="needs Brax, of the extra brax")
    from brax.envs import training

from jaxjoints.environments.brax import BraxEnvironment
from support.brax_training import apg, ppo

NUMBER, LIMIT = 4, 3
KEYS = jax.random.split(jax.random.PRNGKey(0), NUMBER)
NEAR = {"rtol": 1e-9, "atol": 1e-9}
README = Path(__file__).parents[2] / "jaxjoints" / "environments" / "README.md"
# Brax's code, not ours.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture(autouse=True)
def as_brax_needs_it():
    """Brax mixes types and ranks."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module")
def arm():
    """A swing-up with noise, as a task of Brax."""
    return BraxEnvironment(replace(environments.swing_up(), noise=0.1, limit=LIMIT))


@pytest.fixture(scope="module")
def wrapped(arm):
    """With Brax's wrappers, and compiled."""
    env = training.wrap(arm, episode_length=arm.episode_length)
    return jax.jit(env.reset), jax.jit(env.step)


def pushed(scale, obs, key):
    """A policy of what is seen alone."""
    return jnp.tanh(scale * obs[:1])


@pytest.mark.slow
def test_a_reset_and_its_steps_are_those_of_unroll(arm, wrapped):
    reset, step = wrapped
    episode = arm.environment.reset(jax.random.wrap_key_data(KEYS))
    _, seen = unroll(arm.environment, episode, pushed, 0.5, steps=LIMIT)
    state = reset(KEYS)
    np.testing.assert_allclose(state.obs, episode.obs.T, **NEAR)
    for t in range(LIMIT):
        np.testing.assert_allclose(state.obs, seen.obs[t].T, **NEAR)
        assert not state.done.any()
        state = step(state, seen.action[t].T)
        np.testing.assert_allclose(state.reward, seen.reward[t], **NEAR)
        for name, part in seen.metrics.items():
            np.testing.assert_allclose(state.metrics[name], part[t], **NEAR)
            assert state.metrics[name].dtype == state.reward.dtype
    assert state.done.dtype == state.reward.dtype and (state.done == seen.done[-1]).all()


@pytest.mark.slow
def test_a_step_mapped_twice_and_alone_is_the_same(arm, wrapped):
    many = wrapped[0](KEYS)
    action = jnp.linspace(-1.0, 1.0, NUMBER)[:, None]
    plain = jax.jit(jax.vmap(arm.reset))(KEYS)
    np.testing.assert_array_equal(plain.obs, many.obs)
    once = jax.jit(jax.vmap(arm.step))(plain, action)
    square = functools.partial(jax.tree.map, lambda x: x.reshape((2, 2, *x.shape[1:])))
    twice = jax.jit(jax.vmap(jax.vmap(arm.step)))(square(plain), square(action))
    alone = jax.jit(arm.step)(jax.tree.map(lambda x: x[1], plain), action[1])
    for x, y, z in zip(*map(jax.tree.leaves, (once, twice, alone)), strict=True):
        np.testing.assert_allclose(x, y.reshape(x.shape), **NEAR)
        np.testing.assert_allclose(x[1], z, **NEAR)


@pytest.mark.slow
def test_actions_that_all_share_are_mapped_too(arm):
    plain = jax.vmap(arm.reset)(KEYS)
    action = jnp.full(1, 0.3)
    shared = jax.jit(jax.vmap(arm.step, in_axes=(0, None)))(plain, action)
    each = jax.jit(jax.vmap(arm.step))(plain, jnp.full((NUMBER, 1), 0.3))
    np.testing.assert_array_equal(shared.obs, each.obs)


@pytest.mark.slow
def test_the_wrapper_truncates_and_goes_back_to_the_first_start(arm, wrapped):
    reset, step = wrapped
    first = state = reset(KEYS)
    for t in range(1, LIMIT + 1):
        state = step(state, jnp.full((NUMBER, 1), 0.5))
        assert (state.done == (t == LIMIT)).all()
        assert (state.info["truncation"] == (t == LIMIT)).all()
    np.testing.assert_array_equal(state.obs, first.obs)
    for x, y in zip(
        *map(jax.tree.leaves, (state.pipeline_state, first.pipeline_state)), strict=True
    ):
        np.testing.assert_array_equal(x, y)
    again = step(state, jnp.full((NUMBER, 1), 0.5))
    assert (again.info["steps"] == 1).all() and (again.info["taken"] == LIMIT + 1).all()
    # The motion is that of the first step, the noise is not.
    once = step(first, jnp.full((NUMBER, 1), 0.5))
    np.testing.assert_allclose(again.pipeline_state.q, once.pipeline_state.q, **NEAR)
    assert (again.obs != once.obs).all()


@pytest.mark.slow
def test_a_task_that_ends_is_done_and_not_truncated(arm):
    class Ended(type(arm.environment)):
        """Of which every step is the last."""

        def judge(self, *seen):
            return super().judge(*seen)[0], True

    task = BraxEnvironment(struct(Ended)(**vars(arm.environment)))
    env = training.wrap(task, episode_length=LIMIT)
    state = jax.jit(lambda: env.step(env.reset(KEYS), jnp.zeros((NUMBER, 1))))()
    assert (state.done == 1).all() and not state.info["truncation"].any()


@pytest.mark.slow
def test_playgrounds_wrapper_takes_it(arm):
    playground = pytest.importorskip("mujoco_playground")
    env = playground.wrapper.wrap_for_brax_training(arm, episode_length=LIMIT)
    first = state = jax.jit(env.reset)(KEYS)
    step = jax.jit(env.step)
    for t in range(1, LIMIT + 1):
        state = step(state, jnp.full((NUMBER, 1), 0.5))
        assert (state.info["truncation"] == (t == LIMIT)).all()
    assert (state.done == 1).all()
    np.testing.assert_array_equal(state.obs, first.obs)
    np.testing.assert_array_equal(state.data.q, first.data.q)


@pytest.mark.slow
def test_numbers_are_drawn_as_by_randomized(arm):
    draws = {"body.arm.mass": scaled(0.5, 2.0)}
    drawn = functools.partial(arm.randomization(draws), rng=KEYS)
    env = training.wrap(arm, episode_length=LIMIT, randomization_fn=drawn)
    state, action = jax.jit(env.reset)(KEYS), jnp.full((NUMBER, 1), 0.7)
    many = randomized(arm.environment, jax.random.wrap_key_data(KEYS), draws)
    episode = many.reset(jax.random.wrap_key_data(KEYS))
    step = jax.jit(env.step)
    for _ in range(2):
        state, episode = step(state, action), many.step(episode, action.T)
        np.testing.assert_allclose(state.obs, episode.obs.T, **NEAR)
    assert len(np.unique(state.pipeline_state.velocity)) >= NUMBER


@pytest.mark.slow
def test_gradients_through_mapped_steps_are_those_of_the_task(arm):
    task = arm.environment
    state, episode = jax.vmap(arm.reset)(KEYS), task.reset(jax.random.wrap_key_data(KEYS))

    def by_brax(action):
        return jax.vmap(arm.step)(state, action).obs.sum()

    def by_task(action):
        return task.step(episode, action.T).obs.sum()

    action = jnp.full((NUMBER, 1), 0.3)
    gradient = jax.jit(jax.grad(by_brax))(action)
    np.testing.assert_allclose(gradient, jax.jit(jax.grad(by_task))(action), **NEAR)
    assert (np.abs(gradient) > 0).all()


def test_what_does_not_fit_is_refused(arm):
    keys = jax.random.wrap_key_data(KEYS)
    many = randomized(arm.environment, keys, {"body.arm.mass": scaled(0.9, 1.1)})
    with pytest.raises(ValueError, match="randomization_fn=task.randomization"):
        BraxEnvironment(many)
    with pytest.raises(ValueError, match="must be an Environment"):
        BraxEnvironment("swing_up")
    with pytest.raises(ValueError, match=r"jax.vmap\(task.reset\)"):
        arm.reset(KEYS)
    with pytest.raises(ValueError, match="it must be"):
        arm.step(jax.eval_shape(arm.reset, KEYS[0]), jnp.zeros(2))
    with pytest.raises(ValueError, match="those of the task"):
        jax.vmap(lambda dt: BraxEnvironment(replace(arm.environment, dt=dt)).reset(KEYS[0]))(
            jnp.array([0.01, 0.02])
        )


def test_sizes_are_those_of_the_task(arm):
    assert arm.observation_size == arm.environment.observation_size
    assert (arm.action_size, arm.backend, arm.unwrapped) == (1, "jaxjoints", arm)
    assert arm.dt == arm.environment.interval


@pytest.fixture
def single_precision():
    """As users train."""
    with jax.enable_x64(False):
        yield


@pytest.mark.sweep
@pytest.mark.usefixtures("single_precision")
def test_ppo_learns_from_what_the_page_prints():
    """The lines of the page, with two small iterations of the trainer."""
    page = README.read_text(encoding="utf-8")
    (block,) = [x for x in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "ppo" in x]
    small = {
        **{"num_timesteps": 64, "num_envs": 4, "batch_size": 4, "num_minibatches": 1},
        **{"unroll_length": 8, "num_updates_per_batch": 1, "num_evals": 2, "num_eval_envs": 4},
        "episode_length": 6,
    }
    told = []

    def fewer(**given):
        def progress(*seen):
            told.append(seen)
            given["progress_fn"](*seen)

        return train(**(given | small | {"progress_fn": progress}))

    train, ppo.train = ppo.train, fewer
    names = {}
    try:
        exec(block, names)
    finally:
        ppo.train = train
    assert [steps for steps, _ in told] == [0, 64]
    for _, metrics in told:
        assert all(np.isfinite(x) for x in metrics.values())
        assert metrics["eval/avg_episode_length"] == 6
        assert 5 < metrics["eval/episode_reward"] <= 6
    action = names["policy"](jnp.zeros(4), jax.random.PRNGKey(0))[0]
    assert action.shape == (1,) and np.abs(action) < 1


@pytest.mark.sweep
@pytest.mark.usefixtures("single_precision")
def test_apg_takes_gradients_through_the_task():
    given = {"policy_updates": 2, "horizon_length": 4, "num_envs": 2, "num_evals": 2}
    *_, metrics = apg.train(
        environment=BraxEnvironment(environments.cart_pole()),
        episode_length=6,
        num_eval_envs=2,
        normalize_observations=True,
        **given,
    )
    assert all(np.isfinite(x) for x in metrics.values())
    assert metrics["training/grad_norm"] > 0
