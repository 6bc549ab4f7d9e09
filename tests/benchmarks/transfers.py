"""Policies of cart-poles, trained in one engine and simulated in others."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from jaxjoints import environments, models, struct
from jaxjoints.environments import Environment

EPISODES = 20


@struct
class InvertedPendulum(Environment):
    """The inverted pendulum of Brax's file, with Brax's reward, end and starts."""

    def draw(self, key):
        x = jax.random.uniform(key, (4, 1), self.start.q.dtype, minval=-0.01, maxval=0.01)
        q, qd = ({"slider": x[i], "hinge": x[i + 1]} for i in (0, 2))
        return self.system.state(q=q, qd=qd)

    def observe(self, state, qd, goal):
        return jnp.concatenate([state.q, qd])

    def judge(self, state, qd, goal, action):
        return {"upright": jnp.ones_like(state.time)}, jnp.abs(state.q[1]) > 0.2


def file_of_brax():
    """The MJCF file of Brax's inverted pendulum."""
    import brax

    return Path(brax.__file__).parent / "envs" / "assets" / "inverted_pendulum.xml"


def cart_pole():
    """The task of jaxjoints, and MuJoCo's model of its mechanism."""
    task = environments.cart_pole()
    return task, mujoco.MjModel.from_xml_string(models.to_urdf(task.system))


def inverted_pendulum():
    """Brax's task in jaxjoints, and MuJoCo's model of its file; the motor has 3 times 100 N."""
    system, start = models.load_mjcf(file_of_brax()).build()
    options = {"actuated": ("slider",), "substeps": 2, "limit": 500}
    task = InvertedPendulum(system, start, jnp.full(1, 300.0), 0.02, **options)
    return task, mujoco.MjModel.from_xml_path(str(file_of_brax()))


def in_jaxjoints(task, act, length):
    """Returns of the policy, one for each episode."""
    step = jax.jit(task.step)
    episode = task.reset(jax.random.split(jax.random.key(0), EPISODES))
    total, under_way = np.zeros(EPISODES), np.ones(EPISODES, bool)
    for _ in range(length):
        action = act(episode.obs.T, jax.random.PRNGKey(0))[0].T
        episode = step(episode, action)
        total += np.where(under_way, episode.reward, 0.0)
        under_way &= ~np.asarray(episode.done)
    return total


def in_mujoco(task, model, act, length):
    """Returns from the same starts, with the observations and rewards of the task."""
    episode = task.reset(jax.random.split(jax.random.key(0), EPISODES))
    model.opt.timestep = float(task.dt)
    states = [mujoco.MjData(model) for _ in range(EPISODES)]
    for i, state in enumerate(states):
        # What is observed are coordinates and their speeds.
        state.qpos[:], state.qvel[:] = np.split(np.asarray(episode.obs[:, i]), 2)
    total, under_way = np.zeros(EPISODES), np.ones(EPISODES, bool)

    @jax.jit
    @partial(jax.vmap, in_axes=-1, out_axes=-1)
    def seen(q, qd, action):
        names = task.system.topology.joints
        q, qd = (dict(zip(names, x[:, None], strict=True)) for x in (q, qd))
        state = task.system.state(q=q, qd=qd)
        speeds = jnp.concatenate(list(qd.values()))
        parts, ended = task.judge(state, speeds, jnp.zeros(0), action)
        return task.observe(state, speeds, jnp.zeros(0)), sum(parts.values()), ended

    obs = episode.obs
    for _ in range(length):
        action = act(obs.T, jax.random.PRNGKey(0))[0].T
        for i, state in enumerate(states):
            # The joint of jaxjoints clips what is beyond its largest effort.
            state.qfrc_applied[0] = task.effort[0] * np.clip(action[0, i], -1.0, 1.0)
            mujoco.mj_step(model, state, task.substeps)
        q, qd = (np.array([getattr(x, n) for x in states]).T for n in ("qpos", "qvel"))
        obs, reward, ended = seen(jnp.asarray(q), jnp.asarray(qd), action)
        total += np.where(under_way, reward, 0.0)
        under_way &= ~np.asarray(ended)
    return total


def transferred(engine, act, length):
    """Mean returns of 20 episodes, by the engine that simulates; engine: that of the training."""
    task, model = cart_pole() if engine == "jaxjoints" else inverted_pendulum()
    by_engine = {"jaxjoints": in_jaxjoints(task, act, length)}
    by_engine["MuJoCo"] = in_mujoco(task, model, act, length)
    return {name: round(float(x.mean()), 2) for name, x in by_engine.items()}
