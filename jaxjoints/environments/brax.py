"""Environments as Brax's `Env`, for `brax.training`; needs the extra `brax`.

Import this file by itself: `from jaxjoints.environments.brax import BraxEnvironment`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from brax.envs import base
from flax.struct import dataclass
from jax import Array
from jax.custom_batching import custom_vmap

from ..algebra.options import check_kind
from ..algebra.pytree import replace
from ..model.system import System
from .environment import Environment, Episode, advanced, begun
from .randomization import Draw, randomized


@dataclass
class BraxState(base.State):
    """Brax's `State`, whose `pipeline_state` MuJoCo Playground's wrappers find as `data`.

    pipeline_state: the `State` of the mechanism, as `view` and `coordinates` take it
    obs: what the agent sees, shape (observations,)
    reward: of the last step; done: 1 where the task has ended, else 0
    metrics: parts of the reward, by name
    info: what else an `Episode` has: the data of the random "key", the "goal", "cause", and the
        steps "taken" since `reset`; beside it what wrappers add
    """

    @property
    def data(self) -> Any:
        """The state of the mechanism."""
        return self.pipeline_state


def _replaced(state: BraxState, **changes: Any) -> BraxState:
    """The state with other fields, of which `data` is another name of `pipeline_state`."""
    if "data" in changes:
        changes["pipeline_state"] = changes.pop("data")
    return replace(state, **changes)


# `dataclass` has given it one that knows the fields alone.
BraxState.replace = _replaced


class BraxEnvironment(base.Env):
    """One environment as Brax's `Env`, which Brax's wrappers map over a batch by `jax.vmap`.

    Mapped, a step is the one that `Environment.step` computes with the batch as the last axis.
    Time limits and restarts are left to the wrappers: `episode_length` is the limit of the task.
    Reverse derivatives flow through mapped steps alone.

    >>> from brax import envs
    >>> from jaxjoints import environments
    >>> task = BraxEnvironment(environments.make("cart_pole"))
    >>> wrapped = envs.training.wrap(task, episode_length=task.episode_length)
    >>> wrapped.reset(jax.random.split(jax.random.PRNGKey(0), 8)).obs.shape
    (8, 4)
    """

    def __init__(self, environment: Environment):
        """environment: without batch axes in its system."""
        check_kind("BraxEnvironment:", "environment", environment, Environment, 'make("cart_pole")')
        if environment.batch:
            raise ValueError(
                f"BraxEnvironment: the system has the batch {environment.batch}; let Brax draw its "
                "numbers: randomization_fn=task.randomization(draws)"
            )
        self.environment = environment
        # What Brax's wrapper for domain randomization replaces while it traces.
        self.sys: System = environment.system

    def reset(self, rng: Array) -> BraxState:
        """A new episode.

        rng: a key of `jax.random.PRNGKey`, or of `jax.random.key`
        Raises: ValueError for what is no key
        """
        if isinstance(rng, jax.Array) and jnp.issubdtype(rng.dtype, jax.dtypes.prng_key):
            rng = jax.random.key_data(rng)
        expected = jax.eval_shape(lambda: jax.random.PRNGKey(0))
        found = jnp.shape(rng), jnp.result_type(rng)
        if found != (expected.shape, expected.dtype):
            raise ValueError(
                f"BraxEnvironment.reset: rng of shape {found[0]} and type {found[1]} must be one "
                "key of jax.random.PRNGKey(seed); map over several: jax.vmap(task.reset)(keys)"
            )
        return _reset(self._with_system(), rng)

    def step(self, state: BraxState, action: Array) -> BraxState:
        """The episode one step on, however many it has taken.

        action: shape (actions,); ±1 are the largest efforts
        Raises: ValueError for an action of another shape or type
        """
        known = {name: state.info[name] for name in ("key", "goal", "taken")}
        after = _step(self._with_system(), state.pipeline_state, known, action)
        # Wrappers keep their own numbers in `metrics` and `info`.
        metrics, info = state.metrics | after.metrics, state.info | after.info
        return replace(after, metrics=metrics, info=info)

    def randomization(self, draws: Mapping[str, Draw]) -> Callable[..., tuple[System, System]]:
        """What `brax.training` takes as `randomization_fn`: numbers drawn for each environment.

        draws: see `randomized`
        """

        def drawn(sys: System, rng: Array) -> tuple[System, System]:
            one = replace(self.environment, system=sys)
            many = randomized(one, jax.random.wrap_key_data(rng), draws).system
            ranks = jax.tree.unflatten(jax.tree.structure(many), many.topology.ranks)
            return many, jax.tree.map(lambda x, r: -1 if x.ndim > r else None, many, ranks)

        return drawn

    def _with_system(self) -> Environment:
        return replace(self.environment, system=self.sys)

    @property
    def episode_length(self) -> int:
        """Steps until an episode is to be truncated, the limit of the task."""
        return self.environment.limit

    @property
    def observation_size(self) -> int:
        return self.environment.observation_size

    @property
    def action_size(self) -> int:
        return self.environment.action_size

    @property
    def backend(self) -> str:
        return "jaxjoints"

    @property
    def dt(self) -> Array | float:
        """Time that one step takes [s]."""
        return self.environment.interval


def mapped_over_last(function: Callable) -> Callable:
    """`function(environment, *arguments)`, of which `jax.vmap` makes a call with the batch last.

    What is last stays next to each other in memory, so that XLA computes several environments with
    one instruction of the processor. `jax.vmap` alone would leave the batch in front.

    function: of arguments and results with or without a batch axis as the last one
    """
    mapped = custom_vmap(function)

    @mapped.def_vmap
    def over_last(size, batched, environment, *arguments):
        # Counted: a record is not made of truth values in place of its numbers.
        of_all, of_system = (sum(jax.tree.leaves(x)) for x in (batched[0], batched[0].system))
        if of_all > of_system:
            raise ValueError(
                "BraxEnvironment: numbers of the system alone may be mapped over, not those of "
                "the task, such as dt and effort"
            )

        def moved(x, one):
            return jnp.moveaxis(x, 0, -1) if one else x

        def wide(x, one):
            return moved(x, one) if one else jnp.broadcast_to(x[..., None], (*x.shape, size))

        system = jax.tree.map(moved, environment.system, batched[0].system)
        arguments = jax.tree.map(wide, arguments, tuple(batched[1:]))
        # The function itself, not `mapped`: JAX finds no reverse derivatives of the latter.
        result = function(replace(environment, system=system), *arguments)
        result = jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), result)
        return result, jax.tree.map(lambda x: True, result)

    return mapped


@mapped_over_last
def _reset(environment: Environment, data: Array) -> BraxState:
    episode = begun(environment, jax.random.wrap_key_data(jnp.moveaxis(data, 0, -1)))
    return _brax_state(episode, data)


@mapped_over_last
def _step(
    environment: Environment, state: Any, known: dict[str, Array], action: Array
) -> BraxState:
    zero = jnp.zeros_like(state.time)
    key = jax.random.wrap_key_data(jnp.moveaxis(known["key"], 0, -1))
    info = {"key": key, "goal": known["goal"], "steps": known["taken"]}
    episode = Episode(state, obs=zero, reward=zero, done=zero > 0, metrics={}, info=info)
    action = environment._read_action(episode, action)
    # One tile: Brax itself deals the batch out to devices.
    tile = zero.shape[0] if zero.ndim == 1 else None
    return _brax_state(advanced(environment, episode, action, tile=tile), known["key"])


def _brax_state(episode: Episode, data: Array) -> BraxState:
    """With Brax's names, and without the limit of the task; data: of the random key."""
    info = episode.info
    ended = episode.done & ~info["truncation"]
    return BraxState(
        pipeline_state=episode.state,
        obs=episode.obs,
        reward=episode.reward,
        done=ended.astype(episode.reward.dtype),
        metrics=episode.metrics,
        info={"key": data, "goal": info["goal"], "taken": info["steps"], "cause": info["cause"]},
    )
