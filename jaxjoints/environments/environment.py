"""Environment: a task on a mechanism with `reset`, `step` and `restart`; Episode: where it is."""

from abc import ABC, abstractmethod
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient

from ..algebra.calls import public
from ..algebra.options import brief, check_kind
from ..algebra.pytree import expand, map_trailing, replace, static, struct
from ..build.checks.values import coordinate_named
from ..model.kinematics import (
    body_twists,
    coordinate_speeds,
    gather_coordinates,
    system_kinematics,
    with_world,
)
from ..model.state import Cause, Control, Info, State
from ..model.system import System
from ..schemes.scheme import Scheme
from ..simulate.door import full
from ..simulate.rollout import rollout
from ..simulate.step import DEFAULT_SCHEME
from ..simulate.surface import ready

Task = TypeVar("Task", bound="Environment")
# What the random key of an episode is folded with, for each use.
START, GOAL, NOISE, POLICY, NEXT = range(5)


@struct
class Episode:
    """An episode under way: where the mechanism is, and what the last step gave.

    The names are those of Brax and MuJoCo Playground, except `state`: it is `pipeline_state` in
    Brax and `data` in Playground. Batch axes come last; in both others they come first.

    state: of the mechanism
    obs: observation of the agent, shape (observations, *batch)
    reward: of the last step, the sum of `metrics`, shape (*batch)
    done: whether the last step ended the episode, bool (*batch); a number in Brax
    metrics: parts of the reward, by name, each of shape (*batch)
    info: by name:
        - "key": the random key of the whole episode, shape (*batch)
        - "goal": the goal drawn for the episode, shape (k, *batch)
        - "steps": taken since the start, int32 (*batch)
        - "truncation": the episode ended by the time limit alone, bool (*batch)
        - "cause": why the mechanism stands still or its step is not to be trusted, a `Cause`

    >>> from jaxjoints import environments
    >>> task = environments.make("swing_up")
    >>> episode = task.step(task.reset(jax.random.key(0)), jnp.ones(1))
    >>> print(episode.state.time.round(2), episode.info["steps"], episode.metrics["effort"])
    0.04 1 -0.01
    """

    state: State
    obs: Array
    reward: Array
    done: Array
    metrics: dict[str, Array]
    info: dict[str, Array]


@struct
class Environment(ABC):
    """A task on a mechanism. A subclass writes start, observation and reward of one environment.

    An environment is a record. Its numbers are leaves: another stiffness or time step compiles
    nothing anew, and numbers of `system` may carry batch axes (see `randomized`). An action has one
    number for each joint of `actuated`; the number 1 is `effort`, and joints clip efforts beyond
    their `max_effort`.

    system: the mechanism; start: a state of it, where `draw` begins
    effort: of an action of 1 [N or N m], shape (actions,)
    dt: time step of the simulation [s]; substeps: of them in one step of the environment
    limit: steps of the environment until an episode is truncated
    noise: standard deviation of the noise of observations, None for none
    actuated: names of the joints that actions drive, each of one coordinate, or of coordinates,
        "hip.1"
    scheme: integrator of the simulation

    >>> from jaxjoints import Slider, SystemBuilder, struct
    >>> world = SystemBuilder()
    >>> cart = world.body("cart", mass=1.0, inertia=(0.1, 0.1, 0.1))
    >>> _ = world.joint("rail", Slider((1.0, 0.0, 0.0)), child=cart, q=0.3)
    >>> @struct
    ... class Centred(Environment):
    ...     def observe(self, state, qd, goal):
    ...         return jnp.concatenate([state.q, qd])
    ...     def judge(self, state, qd, goal, action):
    ...         return {"near": -jnp.abs(state.q[0])}, state.q[0] > 1.0
    >>> task = Centred(*world.build(), 5.0, 0.01, actuated=("rail",), substeps=4)
    >>> print(task.control(jnp.ones(1)).effort, task.interval)  # 5 N for 0.04 s
    [5.] 0.04
    """

    system: System
    start: State
    effort: Array
    dt: Array | float
    noise: Array | float | None = None
    scheme: Scheme = DEFAULT_SCHEME
    actuated: tuple[str, ...] = static(default=(), kw_only=True)
    substeps: int = static(default=1, kw_only=True)
    limit: int = static(default=1000, kw_only=True)

    def __post_init__(self):
        if not isinstance(self.effort, (jax.Array, np.ndarray)):
            try:
                effort = jnp.atleast_1d(jnp.asarray(self.effort, jnp.result_type(float)))
            except (TypeError, ValueError):
                raise ValueError(
                    f"{type(self).__name__}: effort {self.effort!r} must be numbers, one for each "
                    "joint of actuated"
                ) from None
            # A record is frozen once it is made.
            object.__setattr__(self, "effort", effort)

    def draw(self, key: Array) -> State:
        """The state in which an episode starts, drawn by its key; `start` by default."""
        return self.start

    def goal(self, key: Array) -> Array:
        """Numbers that an episode aims at, shape (k,), drawn by its key; none by default."""
        return jnp.zeros(0, self.start.time.dtype)

    @abstractmethod
    def observe(self, state: State, qd: Array, goal: Array) -> Array:
        """The observation of the agent, shape (observations,).

        qd: speeds of all coordinates, in the order of `state.q`
        """

    @abstractmethod
    def judge(
        self, state: State, qd: Array, goal: Array, action: Array
    ) -> tuple[dict[str, Array], Array]:
        """Parts of the reward by name, and whether the task has ended, after a step.

        state, qd: at the end of the step; action: of the step
        """

    def control(self, action: Array) -> Control:
        """The control of an action: efforts, by default."""
        effort = jnp.zeros(self.system.coordinates, action.dtype)
        return Control(effort=effort.at[self.places(*self.actuated)].set(self.effort * action))

    def disturbance(self, state: State, goal: Array) -> Array | None:
        """What acts on the bodies in a step besides the action, as `Control.wrench`; by default
        nothing.

        state: at the start of the step; the wrench is constant during the step

        Returns: force and moment at each centre of mass, world axes [N, N m], shape (6, bodies), as
            `jaxjoints.wrench_at` gives them; or None
        """
        return None

    def places(self, *joints: str) -> np.ndarray:
        """Places of the coordinates of joints in `state.q` and in speeds; "hip.1" is the place of
        one coordinate of a joint of several.
        """
        every = np.arange(self.system.coordinates)
        coordinate = self.system.coordinate
        sizes = {name: len(every[coordinate(name)]) for name in self.system.topology.joints}
        parts = []
        for joint in joints:
            name, number = coordinate_named(joint, sizes) or (joint, None)
            places = every[coordinate(name)]
            parts.append(places if number is None else places[number : number + 1])
        return np.concatenate(parts)

    @property
    def interval(self) -> Array | float:
        """Time that one step of the environment takes [s]."""
        return self.dt * self.substeps

    @property
    def action_size(self) -> int:
        """Numbers of an action."""
        return self.effort.shape[0]

    @property
    def observation_size(self) -> int:
        """Numbers of an observation, without batch axes."""
        key = jax.eval_shape(lambda: jax.random.key(0))
        one = self if not self.batch else replace(self, system=_first(self.system))
        return jax.eval_shape(lambda key: begun(one, key), key).obs.shape[0]

    @property
    def batch(self) -> tuple[int, ...]:
        """Batch axes of the numbers of `system`; () where all environments share them."""
        leaves = zip(jax.tree.leaves(self.system), self.system.topology.ranks, strict=True)
        return max((leaf.shape[rank:] for leaf, rank in leaves), key=len, default=())

    @public
    def reset(self: Task, key: Array) -> Episode:
        """New episodes, one for each key.

        key: of `jax.random.key`, shape (*batch): `jax.random.split(key, 4096)` for 4096 episodes,
            of which each depends on its own key alone
        Raises: ValueError for what are no keys, and for another batch than that of `system`
        """
        return _reset(self, self._read_key(key))

    @public
    def step(self: Task, episode: Episode, action: Array) -> Episode:
        """The episode after one step. An episode that is done continues unless `restart` is called.

        action: shape (actions, *batch). NaN or infinity makes the mechanism stand still and ends
            the episode: see `info["cause"]`
        Raises: ValueError for an action of another shape or type
        """
        self._check_episode("step", episode)
        return _step(self, episode, self._read_action(episode, action))

    @public
    def restart(self: Task, episode: Episode) -> Episode:
        """The episodes, with those that are done begun anew, with another key.

        A new episode is that of `reset(episode.info["key"])`, up to the rounding by which the
        compiler fuses operations in a loop. If no episode is done, nothing is computed. No
        derivative flows through a restart.
        """
        self._check_episode("restart", episode)
        return _restart(self, episode)

    def _check_episode(self, call: str, episode: Any) -> None:
        """Raise ValueError for what is no episode."""
        check_kind(f"{type(self).__name__}.{call}:", "episode", episode, Episode, "reset(key)")

    def _read_key(self, key: Any) -> Array:
        """Random keys with the batch axes of the system; ValueError for others."""
        name = type(self).__name__
        if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
            raise ValueError(
                f"{name}.reset: key {brief(key)} must be a key of jax.random.key(seed), or "
                "jax.random.split(key, n) for n episodes"
            )
        if self.batch and key.shape != self.batch:
            raise ValueError(
                f"{name}.reset: keys have shape {key.shape}, and numbers of its system the batch "
                f"{self.batch}; give a key for each: jax.random.split(key, {self.batch})"
            )
        return key

    def _read_action(self, episode: Episode, action: Any) -> Array:
        """An action as an array of the state's precision; ValueError for another shape or type."""
        name, shape = type(self).__name__, (self.action_size, *episode.done.shape)
        try:
            array = jnp.asarray(action)
        except (TypeError, ValueError):
            raise ValueError(f"{name}.step: action {brief(action)} must be numbers") from None
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise ValueError(
                f"{name}.step: action has the type {array.dtype}; give floats, of which ±1 are the "
                "largest efforts"
            )
        if array.shape != shape:
            hint = ""
            if array.shape == (*shape[1:], shape[0]):
                hint = "; the batch is the last axis: jnp.moveaxis(action, 0, -1)"
            raise ValueError(
                f"{name}.step: action has shape {array.shape}; it must be {shape}, a number for "
                f"each of {', '.join(self.actuated)}{hint}"
            )
        return array.astype(episode.reward.dtype)

    def _each(self, axes: int, function: Any, *arguments: Any) -> Any:
        """A function of one environment and more, over the last axes of all of them."""
        wide = expand(self.system, list(self.system.topology.ranks), axes)

        def one(system, *arguments):
            return function(replace(self, system=system), *arguments)

        return map_trailing(one, axes, wide, *arguments)


def folded(key: Array, use: Array | int) -> Array:
    """Keys of shape (*batch), each folded with a number of its own or with one for all."""
    fold = jax.random.fold_in
    for _ in range(key.ndim):
        fold = jax.vmap(fold, in_axes=(0, 0 if jnp.ndim(use) else None))
    return fold(key, use)


@jax.jit
def _reset(environment: Environment, key: Array) -> Episode:
    return begun(environment, key)


@jax.jit
def _step(environment: Environment, episode: Episode, action: Array) -> Episode:
    return advanced(environment, episode, action, tile=None)


@jax.jit
def _restart(environment: Environment, episode: Episode) -> Episode:
    return restarted(environment, episode)


def begun(environment: Environment, key: Array) -> Episode:
    """New episodes of keys (*batch)."""
    axes = key.ndim

    def one(environment, start, goal):
        return environment.draw(start), environment.goal(goal)

    # Wide goals and starts also where a task draws none.
    state, goal = environment._each(axes, one, folded(key, START), folded(key, GOAL))
    state = full(state, key.shape)
    goal = jnp.broadcast_to(goal, (goal.shape[0], *key.shape))
    dtype = state.time.dtype
    qd = joint_speeds(environment.system, state)
    zero = jnp.zeros(key.shape, dtype)
    action = jnp.zeros((environment.action_size, *key.shape), dtype)
    steps = jnp.zeros(key.shape, jnp.int32)
    parts = jax.eval_shape(lambda: environment._each(axes, _judged, state, qd, goal, action))[0]
    info = {"key": key, "goal": goal, "steps": steps, "truncation": zero > 0}
    return Episode(
        state=state,
        obs=_observed(environment, state, qd, goal, key, steps),
        reward=zero,
        done=zero > 0,
        metrics={name: zero for name in parts},
        info=info | {"cause": jnp.full(key.shape, int(Cause.NONE), jnp.int32)},
    )


def advanced(
    environment: Environment, episode: Episode, action: Array, *, tile: int | None
) -> Episode:
    """The episode one step on; tile: of the rollout, None for its default."""
    before, info = episode.state, episode.info
    batch = episode.done.shape
    axes = len(batch)
    control = environment._each(axes, acting, action, before, info["goal"])
    # One interval of the rollout.
    control = jax.tree.map(lambda x: x[None], control)
    state, causes = rollout(
        environment.system,
        before,
        control,
        dt=environment.dt,
        substeps=environment.substeps,
        record_every=environment.substeps,
        record=_cause,
        scheme=environment.scheme,
        tile=tile,
    )
    qd = joint_speeds(environment.system, state)
    # A judge is not asked about what is no number: the episode ends in any case.
    sound = jnp.where(jnp.isfinite(action), action, jnp.zeros_like(action))
    parts, ended = environment._each(axes, _judged, state, qd, info["goal"], sound)
    steps = info["steps"] + 1
    late = steps >= environment.limit
    # An environment that stands still is behind by a step or more.
    still = state.time - before.time < environment.dt * (environment.substeps - 0.5)
    ended = ended | still
    return Episode(
        state=state,
        obs=_observed(environment, state, qd, info["goal"], info["key"], steps),
        reward=sum(parts.values(), jnp.zeros_like(state.time)),
        done=ended | late,
        metrics=parts,
        info=info | {"steps": steps, "truncation": late & ~ended, "cause": causes[0]},
    )


def restarted(environment: Environment, episode: Episode) -> Episode:
    """The episodes, new ones in place of those that are done."""
    done, key = episode.done, folded(episode.info["key"], NEXT)
    # No derivative flows through it: where an episode starts, nothing has been done yet.
    constants = stop_gradient((environment, episode, key))

    def anew(constants):
        return begun(constants[0], constants[2])

    new = jax.lax.cond(jnp.any(done), anew, lambda constants: constants[1], constants)

    def chosen(x, y):
        return jnp.where(done.reshape((1,) * (x.ndim - done.ndim) + done.shape), x, y)

    return jax.tree.map(chosen, new, episode)


def acting(environment: Environment, action: Array, state: State, goal: Array) -> Control:
    """The control of an action, and the disturbance, of one environment."""
    control, wrench = environment.control(action), environment.disturbance(state, goal)
    if wrench is not None and control.wrench is not None:
        wrench = control.wrench + wrench
    return control if wrench is None else replace(control, wrench=wrench)


def _cause(state: State, info: Info) -> Array:
    return info.cause


def joint_speeds(system: System, state: State) -> Array:
    """N v_CD of all joints, (coordinates, *batch): `coordinate_speeds` of velocities as they are.

    After a step these differ by its length times an acceleration; that they are cheap, to compile
    too, counts for more here.
    """
    mechanism, state = ready(system, state)
    kinematics, twist = system_kinematics(mechanism, state), with_world(body_twists(state))
    groups = zip(mechanism.system.groups, kinematics.joints, strict=True)
    parts = [coordinate_speeds(group, joint, twist) for group, joint in groups]
    return gather_coordinates(mechanism, parts, state)


def _judged(environment, state, qd, goal, action):
    parts, ended = environment.judge(state, qd, goal, action)
    dtype = state.time.dtype
    return {name: jnp.asarray(x, dtype) for name, x in parts.items()}, jnp.asarray(ended, bool)


def _observed(
    environment: Environment, state: State, qd: Array, goal: Array, key: Array, steps: Array
) -> Array:
    """Observations with their noise."""
    obs = environment._each(key.ndim, lambda one, *seen: one.observe(*seen), state, qd, goal)
    if environment.noise is None:
        return obs
    noise = partial(jax.random.normal, shape=obs.shape[:1], dtype=obs.dtype)
    for _ in range(key.ndim):
        noise = jax.vmap(noise, out_axes=-1)
    return obs + environment.noise * noise(folded(folded(key, NOISE), steps))


def _first(system: System) -> System:
    """The system of the first environment."""

    def first(x, rank):
        return x[(..., *[0] * (x.ndim - rank))]

    ranks = jax.tree.unflatten(jax.tree.structure(system), system.topology.ranks)
    return jax.tree.map(first, system, ranks)
