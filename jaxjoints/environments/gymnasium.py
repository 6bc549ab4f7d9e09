"""Environments as gymnasium's `Env` and `VectorEnv`; needs the extra `gymnasium`.

Import this file by itself: `from jaxjoints.environments.gymnasium import VectorEnvironment`.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import Env
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ..algebra.options import check_count, check_kind
from .environment import Environment, Episode


def _spaces(environment: Environment) -> tuple[Box, Box]:
    """Of observations and of actions, of one environment."""
    check_kind("gymnasium:", "environment", environment, Environment, 'make("swing_up")')
    dtype = np.dtype(environment.start.time.dtype)
    seen = Box(-np.inf, np.inf, (environment.observation_size,), dtype)
    return seen, Box(-1.0, 1.0, (environment.action_size,), dtype)


def _told(episode: Episode) -> dict[str, Any]:
    """The parts of the reward and what else is told, as NumPy arrays with the batch in front."""
    info = {name: value for name, value in episode.info.items() if name not in ("key", "goal")}
    return {name: np.asarray(x) for name, x in (info | episode.metrics).items()}


class SingleEnvironment(Env):
    """One environment as gymnasium's `Env`: `reset(seed=…)`, `step(action)`.

    For many environments `VectorEnvironment` is faster by orders of magnitude.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, environment: Environment):
        """environment: without batch axes in its system."""
        self.observation_space, self.action_space = _spaces(environment)
        if environment.batch:
            raise ValueError(
                f"SingleEnvironment: the system has the batch {environment.batch}; take a "
                "VectorEnvironment"
            )
        self.environment = environment
        self._episode: Episode | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode; see gymnasium."""
        super().reset(seed=seed)
        key = jax.random.key(int(self.np_random.integers(2**31)))
        self._episode = self.environment.reset(key)
        return np.asarray(self._episode.obs), _told(self._episode)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Observation, reward, terminated, truncated, info; see gymnasium."""
        if self._episode is None:
            raise ValueError("SingleEnvironment: call reset before step")
        self._episode = now = self.environment.step(self._episode, jnp.asarray(action))
        late = bool(now.info["truncation"])
        ended = bool(now.done) and not late
        return np.asarray(now.obs), float(now.reward), ended, late, _told(now)


class VectorEnvironment(VectorEnv):
    """Many environments in one batch as gymnasium's `VectorEnv`, with the batch in front.

    An episode that is done begins anew within the same step. Its last observation is in
    `info["final_obs"]` (`AutoresetMode.SAME_STEP`).

    >>> from jaxjoints import environments
    >>> from jaxjoints.environments.gymnasium import VectorEnvironment
    >>> env = VectorEnvironment(environments.make("cart_pole"), 64)
    >>> obs, info = env.reset(seed=0)
    >>> obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
    >>> obs.shape, reward.shape
    ((64, 4), (64,))
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(self, environment: Environment, num_envs: int):
        """num_envs: number of environments, that of the batch where the system has one."""
        check_count("VectorEnvironment", "num_envs", num_envs, 1)
        if environment.batch not in ((), (num_envs,)):
            raise ValueError(
                f"VectorEnvironment: num_envs {num_envs} is not the batch {environment.batch} of "
                "the system"
            )
        self.environment, self.num_envs = environment, num_envs
        self.single_observation_space, self.single_action_space = _spaces(environment)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._episode: Episode | None = None

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin all episodes; seed: one number, or one for each environment."""
        if isinstance(seed, (list, tuple, np.ndarray)):
            if len(seed) != self.num_envs:
                raise ValueError(f"VectorEnvironment: {len(seed)} seeds for {self.num_envs}")
            drawn = np.random.default_rng().integers(2**31, size=self.num_envs)
            seeds = [int(x) if one is None else one for one, x in zip(seed, drawn, strict=True)]
            key = jax.vmap(jax.random.key)(jnp.asarray(seeds))
        else:
            super().reset(seed=seed)
            one = jax.random.key(int(self.np_random.integers(2**31)))
            key = jax.random.split(one, self.num_envs)
        self._episode = self.environment.reset(key)
        return _in_front(self._episode.obs), _told(self._episode)

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Observations, rewards, terminated, truncated, info; see gymnasium."""
        if self._episode is None:
            raise ValueError("VectorEnvironment: call reset before step")
        action = jnp.moveaxis(jnp.asarray(actions), 0, -1)
        now = self.environment.step(self._episode, action)
        self._episode = self.environment.restart(now)
        done, late = np.asarray(now.done), np.asarray(now.info["truncation"])
        info = _told(now)
        if done.any():
            info |= {"final_obs": _in_front(now.obs), "_final_obs": done}
        return _in_front(self._episode.obs), np.asarray(now.reward), done & ~late, late, info


def _in_front(x: jax.Array) -> np.ndarray:
    return np.moveaxis(np.asarray(x), -1, 0)
