"""The reward of a policy, and its gradient beside finite differences."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.tree_util import Partial

from ..algebra.calls import public
from ..algebra.options import check_key, check_kind
from ..environments.environment import Environment, Episode
from ..environments.unroll import Policy, unroll
from .network import mean, sampled


class Agreement(NamedTuple):
    """A gradient beside central finite differences along random directions.

    norm: of the gradient
    cosine: between the slopes along all directions by the gradient and by differences: 1 where they
        are proportional
    slopes, differences: these slopes, shape (directions,)

    >>> from jaxjoints import environments
    >>> from jaxjoints.learning import gaussian
    >>> task, key = environments.make("swing_up"), jax.random.key(0)
    >>> parameters = gaussian(key, task.observation_size, task.action_size, (2,))
    >>> found = agreement(task, key, parameters, steps=2, envs=1, directions=3)
    >>> print(round(found.cosine, 3))
    1.0
    """

    norm: float
    cosine: float
    slopes: Array
    differences: Array


@public
def earned(
    environment: Environment,
    key: Array,
    parameters: Any,
    *,
    policy: Policy = mean,
    steps: int | None = None,
) -> float:
    """Mean reward of a step of a policy, over episodes that begin with the keys (envs,).

    steps: the time limit of an episode by default
    """
    check_kind("earned:", "environment", environment, Environment, 'make("swing_up")')
    steps = environment.limit if steps is None else steps
    _, seen = unroll(environment, environment.reset(key), policy, parameters, steps=steps)
    return float(jnp.mean(seen.reward))


@public
def agreement(
    environment: Environment,
    key: Array,
    parameters: Any,
    *,
    steps: int,
    envs: int = 64,
    directions: int = 16,
    change: float = 1e-3,
    policy: Policy = sampled,
) -> Agreement:
    """The gradient of a policy's reward over some steps, beside finite differences.

    change: of the parameters along a direction of length 1; in float32 at least 1e-3
    """
    check_kind("agreement:", "environment", environment, Environment, 'make("swing_up")')
    check_key("agreement:", key)
    keys = jax.random.split(key, 2)
    episode = environment.reset(jax.random.split(keys[0], environment.batch or envs))
    size = sum(leaf.size for leaf in jax.tree.leaves(parameters))
    along = jax.random.normal(keys[1], (directions, size), episode.reward.dtype)
    along = along / jnp.linalg.norm(along, axis=1, keepdims=True)
    step = jnp.asarray(change, along.dtype)
    compared = environment, episode, Partial(policy), parameters, along, step
    norm, slopes, differences = _compared(*compared, steps=steps)
    product = jnp.linalg.norm(slopes) * jnp.linalg.norm(differences)
    # Protects the division where nothing depends on the parameters.
    cosine = jnp.sum(slopes * differences) / jnp.where(product > 0, product, 1.0)
    return Agreement(float(norm), float(cosine), slopes, differences)


@partial(jax.jit, static_argnames="steps")
def _compared(
    environment: Environment,
    episode: Episode,
    policy: Partial,
    parameters: Any,
    along: Array,
    change: Array,
    *,
    steps: int,
) -> tuple[Array, Array, Array]:
    """Norm of the gradient, and slopes along directions (k, parameters) by it and by differences.

    change: of the parameters
    """
    θ, shaped = ravel_pytree(parameters)

    def earns(θ):
        _, seen = unroll(environment, episode, policy, shaped(θ), steps=steps)
        return jnp.mean(seen.reward)

    gradient = jax.grad(earns)(θ)
    moved = jnp.concatenate([θ[None] + change * along, θ[None] - change * along])
    forth, back = jnp.split(jax.lax.map(earns, moved), 2)
    return jnp.linalg.norm(gradient), along @ gradient, (forth - back) / (2 * change)
