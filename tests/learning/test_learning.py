"""Networks, measures and searches; a gradient search finds more than one without gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import environments, learning
from jaxjoints.learning import policy_gradient
from jaxjoints.learning.policy_gradient import window_returns
from support.examples import example


def test_a_network_is_its_layers_in_a_row():
    layers = learning.network(jax.random.key(0), (3, 5, 2))
    x = jnp.asarray([0.3, -1.0, 2.0])
    (W, b), (V, c) = layers
    np.testing.assert_allclose(learning.evaluated(layers, x), V @ np.tanh(W @ x + b) + c)


def test_parameters_keep_their_types_as_they_are_learned():
    """Or the program of an iteration is compiled a second time, for what the first one returns."""
    for leaf in jax.tree.leaves(learning.gaussian(jax.random.key(0), 3, 2, (4,))):
        assert not leaf.weak_type


def test_a_sampled_action_is_within_reach_and_has_its_spread():
    parameters = learning.gaussian(jax.random.key(0), 3, 2, (4,))
    keys = jax.random.split(jax.random.key(1), 2000)
    obs = jnp.asarray([0.3, -1.0, 2.0])
    actions = jax.vmap(lambda key: learning.sampled(parameters, obs, key))(keys)
    assert (np.abs(actions) < 1).all()
    before = np.arctanh(np.asarray(actions))
    middle = np.arctanh(np.asarray(learning.mean(parameters, obs, keys[0])))
    np.testing.assert_allclose(before.std(axis=0), np.exp(-1.0), rtol=0.05)
    np.testing.assert_allclose(before.mean(axis=0), middle, atol=0.03)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda arm, key: learning.evolution(arm, key, iterations=1, envs=3),
            "must be even",
        ),
        (lambda arm, key: learning.short_horizon(arm, key, iterations=0), "iterations 0"),
        (lambda arm, key: learning.short_horizon(arm, 0, iterations=1), "key 0 must be a key"),
        (lambda arm, key: learning.evolution(arm, 0, iterations=1), "key 0 must be a key"),
        (lambda arm, key: learning.network(key, 3), "sizes 3 must be the numbers of inputs"),
        (lambda arm, key: learning.mean(None, jnp.zeros(3), key), "parameters None must be those"),
        (
            lambda arm, key: learning.short_horizon("arm", key, iterations=1),
            "must be",
        ),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call(environments.swing_up(), jax.random.key(0))


def test_what_a_window_earns_counts_each_episode_in_it():
    """Rewards 1, 2, 3, 4, an end after the second and a cut by the time limit after the third."""
    done = jnp.asarray([[False], [True], [True], [False]])
    ahead = jnp.asarray([[10.0], [0.0], [10.0], [10.0]])
    reward = jnp.arange(1.0, 5.0)[:, None]
    total, returns = window_returns(reward, done, ahead, 0.5, 1.0)
    np.testing.assert_allclose(returns[:, 0], [1 + 0.5 * 2, 2, 3 + 0.5 * 10, 4 + 0.5 * 10])
    np.testing.assert_allclose(total, [2 + 8 + 9])
    _, returns = window_returns(reward, done, ahead, 0.5, 0.0)
    np.testing.assert_allclose(returns[0, 0], 1 + 0.5 * 10)


@pytest.mark.parametrize(("slope", "earned"), [(jnp.nan, 1.0), (1.0, jnp.inf), (1.0, 1.0)])
def test_a_window_that_breaks_changes_nothing(monkeypatch, slope, earned):
    """Of a loss that stands for the simulation, with a slope or returns that are no numbers."""
    policy, value = jnp.ones(3), learning.network(jax.random.key(0), (2, 1))
    settings = policy_gradient.Settings(10.0, 0.9, 0.9, 0.1, 0.1, 1.0, window=2)
    start = (
        optimizer.init(x) for optimizer, x in zip(settings.optimizers, (policy, value), strict=True)
    )
    learner = policy_gradient.Learner(policy, value, *start)
    fields = dict.fromkeys(environments.Transition.__dataclass_fields__)
    seen = environments.Transition(**fields | {"obs": jnp.ones((2, 2, 5)), "reward": jnp.ones(2)})
    returns = jnp.full((2, 5), earned)

    def loss(environment, policy, value, episode, settings):
        return slope * jnp.sum(policy), (episode, seen, returns)

    monkeypatch.setattr(policy_gradient, "window_loss", loss)
    jax.clear_caches()  # of the other losses
    after, _, _, norm = policy_gradient._iterated(None, settings, learner, None)
    same = [(x == y).all() for x, y in zip(*map(jax.tree.leaves, (after, learner)), strict=True)]
    broken = not np.isfinite(slope * earned)
    assert all(same) == np.isnan(norm) == broken


@pytest.mark.slow
def test_gradients_find_more_than_evolution_with_as_many_steps():
    with example("learn_finger") as script:
        with_gradient, without = script.main(iterations=60)
    assert with_gradient < without
