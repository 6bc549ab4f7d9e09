"""Policies: many steps of a batch in one compiled loop with restarts, and as a `Controller`."""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array
from jax.sharding import NamedSharding
from jax.tree_util import Partial

from ..algebra.calls import public
from ..algebra.compiler import scan
from ..algebra.devices import computed_where, dealt_out, placement
from ..algebra.options import check_function, check_kind
from ..algebra.progress import compiled
from ..algebra.pytree import map_trailing, replace, struct
from ..model.state import Control, State
from ..model.table import in_words
from ..simulate.compilation import warn_of_compilation, warn_of_placement
from ..simulate.controller import Controller, Inputs
from ..simulate.door import read_count
from ..simulate.tiles import cores, tiled, tiling
from .environment import (
    POLICY,
    Environment,
    Episode,
    acting,
    advanced,
    folded,
    joint_speeds,
    restarted,
)

# An action of one environment, shape (actions,), from parameters, observation and a random key.
Policy = Callable[[Any, Array, Array], Array]


@struct
class Transition:
    """One step of each episode; transitions of several steps have time in front.

    obs, action: before the step; reward, done: of the step; next_obs: after the step and before a
        restart. Shapes (size, *batch), (*batch)
    truncation: True where the time limit alone ended the episode: the state after it has a value
    metrics: parts of the reward, by name

    >>> from jaxjoints import environments
    >>> task = replace(environments.make("swing_up"), limit=2)
    >>> def idle(parameters, obs, key):
    ...     return jax.numpy.zeros(1)
    >>> _, seen = unroll(task, task.reset(jax.random.key(0)), idle, steps=3)
    >>> print(seen.obs.shape, seen.truncation)  # the third step begins anew
    (3, 3) [False  True False]
    """

    obs: Array
    action: Array
    reward: Array
    done: Array
    truncation: Array
    next_obs: Array
    metrics: dict[str, Array]


@public
@computed_where("episode")
def unroll(
    environment: Environment,
    episode: Episode,
    policy: Policy,
    parameters: Any = None,
    *,
    steps: int,
    each: Any = None,
    tile: int | None = None,
) -> tuple[Episode, Transition]:
    """Many steps of a policy in one compiled loop; episodes that are done begin anew.

    Derivatives flow through the steps and to the parameters, but not through a restart.

    policy: `policy(parameters, obs, key)` is the action of one environment. The key depends on the
        key of the episode and the number of the step alone, so noise is the same in any batch and
        tile. Define the function once, and change its parameters between calls
    parameters: a tree of arrays that all environments share
    each: parameters of single environments, a tree of arrays with the batch axes at the end. The
        policy then gets (parameters, each) in place of the parameters
    steps: of the environment
    tile: as for `rollout`

    Returns: the episodes after the last step, begun anew where they were done, and the transitions
    Raises: ValueError for what is no count or no policy, and for actions as `Environment.step`
    """
    steps = read_count("unroll", "steps", steps)
    _check_arguments("unroll", environment, episode, policy)
    tile, placed, episode = on_cores(environment, episode, tile)
    function = policy if isinstance(policy, Partial) else Partial(policy)
    others = environment, episode, parameters, each, function.args, function.keywords
    remedy = "give what changes between calls to `unroll` as parameters"
    warn_of_compilation("unroll", [function.func], others, (steps, tile), remedy)
    if placed is not None and cores() is not None:
        warn_of_placement(
            "unroll", (environment, parameters, function), (episode, each), (steps, tile)
        )
        each = dealt_out(placed, episode.done.ndim, each)
    return _unroll(
        environment, episode, function, parameters, each, steps=steps, tile=tile, placed=placed
    )


def _check_arguments(call: str, environment: Any, episode: Any, policy: Any) -> None:
    """Raise ValueError for what is no environment, episode or policy."""
    check_kind(f"{call}:", "environment", environment, Environment, 'make("swing_up")')
    check_kind(f"{call}:", "episode", episode, Episode, "environment.reset(key)")
    check_function(f"{call}:", "policy", policy, "parameters", "obs", "key")


def on_cores(
    environment: Environment, episode: Episode, tile: int | None = None
) -> tuple[int, NamedSharding | None, Episode]:
    """Tile and placement as of `tiling`, and the episodes dealt out to the cores of a CPU as those
    that come out of `unroll` are: else these would compile it again when they go in.
    """
    batch = episode.done.shape
    placed = placement(jax.tree.leaves(episode.state), len(batch))
    tile, placed = tiling("unroll", tile, batch, environment.system, placed)
    if placed is not None and cores() is not None:
        episode = dealt_out(placed, len(batch), episode)
    return tile, placed, episode


@public
def controller(
    environment: Environment,
    episode: Episode,
    policy: Policy,
    parameters: Any = None,
    *,
    key: Array | None = None,
) -> Controller:
    """A policy as `controls` of a `rollout`, with disturbances, without rewards and restarts.

    Take `dt`, `substeps` and `scheme` of the environment for the rollout.

    episode: whose goals the policy aims at
    key: for the policy's noise; None passes on None
    """
    _check_arguments("controller", environment, episode, policy)
    shared = environment, Partial(policy), parameters
    return Controller(_acting, shared=shared, batched=episode.info["goal"], key=key)


def _acting(state: State, inputs: Inputs) -> Control:
    environment, policy, parameters = inputs.shared
    environment = replace(environment, system=inputs.system)
    obs = environment.observe(state, joint_speeds(inputs.system, state), inputs.batched)
    action = policy(parameters, obs, inputs.key)
    return acting(environment, action, state, inputs.batched)


def _described(environment: Environment, episode: Episode, *_: Any, steps: int, **__: Any) -> str:
    name = in_words(f"unroll of {type(environment).__name__}", environment.system)
    return f"{name}, {episode.done.size} environments, {steps} steps"


@compiled(_described, static_argnames=("steps", "tile", "placed"))
def _unroll(
    environment: Environment,
    episode: Episode,
    policy: Partial,
    parameters: Any,
    each: Any,
    *,
    steps: int,
    tile: int,
    placed: NamedSharding | None,
) -> tuple[Episode, Transition]:
    batch = episode.done.shape
    if placed is None and tile in (0, *batch):
        return _run(environment, episode, policy, parameters, each, steps)
    # Of the environment, what has batch axes goes into the tiles.
    system = environment.system
    leaves, structure = jax.tree.flatten(system)
    split = [x.ndim > r for x, r in zip(leaves, system.topology.ranks, strict=True)]
    batched = [x for x, one in zip(leaves, split, strict=True) if one]
    shared = [None if one else x for x, one in zip(leaves, split, strict=True)]

    def run(shared, batched):
        environment, leaves, policy, parameters = shared
        own, episode, each = batched
        own = iter(own)
        leaves = [next(own) if one else x for x, one in zip(leaves, split, strict=True)]
        environment = replace(environment, system=structure.unflatten(leaves))
        return _run(environment, episode, policy, parameters, each, steps)

    everything = replace(environment, system=None), shared, policy, parameters
    parts = batched, episode, each
    return tiled(run, everything, parts, axes=len(batch), tile=tile, placed=placed)


def _run(
    environment: Environment,
    episode: Episode,
    policy: Partial,
    parameters: Any,
    each: Any,
    steps: int,
) -> tuple[Episode, Transition]:
    """All steps of one tile."""
    batch = episode.done.shape
    tile = batch[0] if len(batch) == 1 else None

    def one(episode, _):
        key = folded(folded(episode.info["key"], POLICY), episode.info["steps"])

        def act(obs, key, each):
            return policy(parameters if each is None else (parameters, each), obs, key)

        action = environment._read_action(
            episode, map_trailing(act, len(batch), episode.obs, key, each)
        )
        after = advanced(environment, episode, action, tile=tile)
        transition = Transition(
            obs=episode.obs,
            action=action,
            reward=after.reward,
            done=after.done,
            truncation=after.info["truncation"],
            next_obs=after.obs,
            metrics=after.metrics,
        )
        return restarted(environment, after), transition

    return scan(one, episode, None, steps)
