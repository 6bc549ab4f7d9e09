"""Evolution strategies: a policy from returns alone, the baseline of gradients."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from ..algebra.calls import public
from ..algebra.options import check_key, check_kind
from ..environments.environment import Environment
from ..environments.unroll import unroll
from ..simulate.door import read_count
from .network import gaussian, mean
from .policy_gradient import Learned, Report


@public
def evolution(
    environment: Environment,
    key: Array,
    *,
    iterations: int,
    envs: int = 64,
    window: int | None = None,
    hidden: Sequence[int] = (32, 32),
    spread: float = 0.1,
    rate: float = 2e-2,
    report: Report | None = None,
) -> Learned:
    """A policy by differences of returns along random directions, without any derivative.

    In each iteration every environment begins anew with its own policy: the present policy moved
    along a random direction, forwards in one environment and backwards in another. The rank of its
    reward weights each direction; Adam follows the weighted mean.

    envs: even; window: steps of an iteration, a whole episode by default
    spread: of the directions; other arguments and the result as in `short_horizon`, with norms of
        the estimated gradient

    Raises: ValueError for counts below 1 and an odd number of environments

    Source: Salimans et al., Evolution Strategies as a Scalable Alternative, 2017.
    """
    check_kind("evolution:", "environment", environment, Environment, 'make("swing_up")')
    check_key("evolution:", key)
    window = environment.limit if window is None else window
    for name, count in {"iterations": iterations, "envs": envs, "window": window}.items():
        read_count("evolution", name, count)
    if envs % 2:
        raise ValueError(f"evolution: envs {envs} must be even, as directions go forth and back")
    first, key = jax.random.split(key)
    sizes = environment.observation_size, environment.action_size
    θ, shaped = ravel_pytree(gaussian(first, *sizes, hidden))
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, iterations))
    memory, rewards, norms = optimizer.init(θ), [], []

    for i in range(iterations):
        start, along = jax.random.split(jax.random.fold_in(key, i))
        half = jax.random.normal(along, (θ.size, envs // 2), θ.dtype)
        directions = jnp.concatenate([half, -half], axis=1)
        # A direction and its opposite meet the same start.
        keys = jnp.tile(jax.random.split(start, envs // 2), 2)
        each = jax.vmap(shaped, in_axes=-1, out_axes=-1)(θ[:, None] + spread * directions)
        episode = environment.reset(keys)
        _, seen = unroll(environment, episode, _with_its_own, steps=window, each=each)
        returns = jnp.mean(seen.reward, axis=0)
        # What is no number comes last.
        ranked = jnp.argsort(jnp.nan_to_num(returns, nan=-jnp.inf))
        ranks = jnp.argsort(ranked).astype(θ.dtype) / (envs - 1) - 0.5
        gradient = -directions @ ranks / (envs * spread)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            update, memory = optimizer.update(gradient, memory)
            θ = optax.apply_updates(θ, update)
        rewards.append(float(jnp.mean(returns)))
        norms.append(float(jnp.linalg.norm(gradient)))
        if report is not None:
            report(i + 1, iterations, rewards[-1])
    steps = window * envs * np.arange(1, iterations + 1)
    return Learned(shaped(θ), np.array(rewards), np.array(norms), steps)


def _with_its_own(parameters: tuple[None, Any], obs: Array, key: Array) -> Array:
    return mean(parameters[1], obs, key)
