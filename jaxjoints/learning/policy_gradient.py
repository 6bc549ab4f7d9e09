"""Policy gradients through the simulator over short windows, with a learned value at their ends."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from ..algebra.calls import public
from ..algebra.options import check_key, check_kind
from ..algebra.pytree import map_trailing, static, struct
from ..environments.environment import Environment, Episode
from ..environments.unroll import Transition, on_cores, unroll
from ..simulate.door import read_count
from .network import Layers, evaluated, gaussian, network, sampled

# After each iteration: its number, how many there are, and the mean reward of its window.
Report = Callable[[int, int, float], Any]
CRITIC_STEPS = 8  # of the value's network in each iteration


class Learned(NamedTuple):
    """The result of a search for a policy, and its course.

    parameters: of the policies `sampled` and `mean`
    rewards: mean reward of a step, at each iteration, shape (iterations,)
    norms: of the gradient at each iteration, before it was clipped. An iteration whose norm is not
        finite has changed nothing
    steps: of the environment up to the end of each iteration, in all environments

    >>> from jaxjoints import environments
    >>> task, key = environments.make("swing_up"), jax.random.key(0)
    >>> learned = short_horizon(task, key, iterations=2, envs=8, window=2, hidden=(2,))
    >>> print(learned.steps, learned.rewards.round(1))  # 8 envs, 2 steps each; the arm hangs
    [16 32] [-1. -1.]
    """

    parameters: dict[str, Any]
    rewards: np.ndarray
    norms: np.ndarray
    steps: np.ndarray


@struct
class Learner:
    """A search under way: networks of policy and value, the memory of their optimizers."""

    policy: dict[str, Any]
    value: Layers
    policy_memory: Any
    value_memory: Any


@struct
class Settings:
    """Numbers of a search: leaves, so that others compile nothing anew; see `short_horizon`."""

    iterations: Array | float
    discount: Array | float
    trace: Array | float
    rate: Array | float
    critic_rate: Array | float
    clip: Array | float
    window: int = static()

    @property
    def optimizers(self) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
        """Of the policy and of the value."""

        def rate(count: Array) -> Array:
            return self.rate * (1 + jnp.cos(jnp.pi * count / self.iterations)) / 2

        cut = optax.clip_by_global_norm(self.clip)
        return optax.chain(cut, optax.adam(rate, b1=0.7)), optax.adam(self.critic_rate)


@public
def short_horizon(
    environment: Environment,
    key: Array,
    *,
    iterations: int,
    envs: int = 64,
    window: int = 16,
    hidden: Sequence[int] = (32, 32),
    discount: float = 0.98,
    trace: float = 0.95,
    rate: float = 5e-3,
    critic_rate: float = 5e-3,
    clip: float = 1.0,
    report: Report | None = None,
) -> Learned:
    """A policy by gradients through the simulator.

    An iteration simulates `window` steps, from the end of the iteration before. It follows the
    gradient of the window's discounted rewards plus the learned value of its last state. Short
    windows keep the gradient through contacts and stops small and right; the value stands for the
    steps after the window. Policy and value have an Adam optimizer each; the rate of the policy
    falls to 0 as a cosine.

    envs: environments in the batch; must equal the batch of the environment's system if it has one
    hidden: sizes of the hidden layers, of policy and value
    discount: per step; trace: λ of the returns to which the value is fitted
    clip: largest norm of a gradient
    report: called after each iteration

    Returns: parameters of `sampled` and `mean`
    Raises: ValueError for counts below 1

    Source: Xu et al., Accelerated Policy Learning with Parallel Differentiable Simulation, 2022.
    """
    check_kind("short_horizon:", "environment", environment, Environment, 'make("swing_up")')
    check_key("short_horizon:", key)
    counts = {"iterations": iterations, "envs": envs, "window": window}
    for name, count in counts.items():
        read_count("short_horizon", name, count)
    keys = jax.random.split(key, 3)
    size = environment.observation_size
    numbers = iterations, discount, trace, rate, critic_rate, clip
    settings = Settings(*(jnp.asarray(x, float) for x in numbers), window=window)
    policy = gaussian(keys[0], size, environment.action_size, hidden)
    value = network(keys[1], (size, *hidden, 1))
    optimizer, critic = settings.optimizers
    learner = Learner(policy, value, optimizer.init(policy), critic.init(value))
    episode = environment.reset(jax.random.split(keys[2], environment.batch or envs))
    rewards, norms = [], []
    for i in range(iterations):
        # Where cores share the work, results lie otherwise than what went in, and the next call
        # would be compiled again.
        learner, (*_, episode) = jax.device_get(learner), on_cores(environment, episode)
        learner, episode, reward, norm = _iterated(environment, settings, learner, episode)
        rewards.append(float(reward))
        norms.append(float(norm))
        if report is not None:
            report(i + 1, iterations, rewards[-1])
    steps = window * episode.done.size * np.arange(1, iterations + 1)
    return Learned(learner.policy, np.array(rewards), np.array(norms), steps)


@jax.jit
def _iterated(
    environment: Environment, settings: Settings, learner: Learner, episode: Episode
) -> tuple[Learner, Episode, Array, Array]:
    """One step of the policy, some of the value; where episodes are, mean reward, gradient norm."""

    def loss(policy):
        return window_loss(environment, policy, learner.value, episode, settings)

    gradient, (episode, transitions, returns) = jax.grad(loss, has_aux=True)(learner.policy)
    optimizer, critic = settings.optimizers
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        norm = jnp.linalg.norm(ravel_pytree(gradient)[0])
        update, memory = optimizer.update(gradient, learner.policy_memory, learner.policy)
        policy = optax.apply_updates(learner.policy, update)

        def fitted(carry, _):
            slope = jax.grad(_misfit)(carry[0], transitions.obs, returns)
            update, memory = critic.update(slope, carry[1])
            return (optax.apply_updates(carry[0], update), memory), None

        start = learner.value, learner.value_memory
        (value, value_memory), _ = jax.lax.scan(fitted, start, None, CRITIC_STEPS)
    new = Learner(policy, value, memory, value_memory)
    # A window in which a mechanism breaks does not spoil what was learned before.
    sound = jnp.isfinite(norm) & jnp.isfinite(returns).all()
    learner = jax.tree.map(partial(jnp.where, sound), new, learner)
    return learner, episode, jnp.mean(transitions.reward), jnp.where(sound, norm, jnp.nan)


def window_loss(
    environment: Environment, policy: Any, value: Layers, episode: Episode, settings: Settings
) -> tuple[Array, tuple[Episode, Transition, Array]]:
    """Minus the mean of what a window earns and leads to, per step; episodes at its end, its
    transitions, and the returns that the value is to tell.
    """
    axes = episode.done.ndim
    after, seen = unroll(environment, episode, sampled, policy, steps=settings.window, tile=None)
    # Behind an end is nothing, except behind one by the time limit.
    ahead = _values(value, seen.next_obs, axes + 1)
    ahead = jnp.where(seen.done & ~seen.truncation, 0.0, ahead)

    numbers = settings.discount, settings.trace
    total, returns = window_returns(seen.reward, seen.done, ahead, *numbers)
    constants = jax.lax.stop_gradient((after, seen, returns))
    return -jnp.mean(total) / settings.window, constants


def window_returns(
    reward: Array, done: Array, ahead: Array, discount: Array, trace: Array
) -> tuple[Array, Array]:
    """Discounted rewards of all episodes in a window (*batch), and the λ-return of each step.

    reward, done: of each step, shape (window, *batch); ahead: value of what follows it
    """

    def one(following, step):
        total, later = following
        reward, done, ahead = step
        mixed = trace * later + (1 - trace) * ahead
        here, returns = (reward + discount * jnp.where(done, ahead, x) for x in (total, mixed))
        # What starts after a restart in the window counts by itself.
        return (here, returns), (returns, jnp.where(done, total, 0.0))

    start, backwards = (ahead[-1], ahead[-1]), (reward, done, ahead)
    (first, _), (returns, later) = jax.lax.scan(one, start, backwards, reverse=True)
    return first + jnp.sum(later[:-1], axis=0), returns


def _values(value: Layers, obs: Array, axes: int) -> Array:
    """The value of observations (time, observations, *batch)."""
    moved = jnp.moveaxis(obs, 1, 0)
    return map_trailing(partial(evaluated, value), axes, moved)[0]


def _misfit(value: Layers, obs: Array, returns: Array) -> Array:
    return jnp.mean((_values(value, obs, returns.ndim) - returns) ** 2)
