"""Policies trained in one engine and simulated in others, on the same robot.

    python tests/benchmarks/transfers.py [--tasks hopper,half_cheetah,ant] [--episodes 20]

The stored policies of `examples/data/policies` are simulated in jaxjoints and in MuJoCo, with the
time step of the task and with a quarter of it; an action lasts as long. The task judges what an
episode earns. `learning_curves.py` does the same with the policies of cart-poles that it trains.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from mujoco_model import mujoco_model  # noqa: E402
from policies import load, made  # noqa: E402

import jaxjoints as jj  # noqa: E402
from jaxjoints import environments, learning, models, struct  # noqa: E402
from jaxjoints.environments import Environment  # noqa: E402
from jaxjoints.environments.humanoid import FILE  # noqa: E402

EPISODES, FINER = 20, 4


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


def starts(task, episodes):
    """Episodes that all engines begin with."""
    return task.reset(jax.random.split(jax.random.key(0), episodes))


def in_jaxjoints(task, act, length, episodes=EPISODES):
    """Returns of the policy, one for each episode."""
    step = jax.jit(task.step)
    episode = starts(task, episodes)
    total, under_way = np.zeros(episodes), np.ones(episodes, bool)
    for _ in range(length):
        action = act(episode.obs.T, jax.random.PRNGKey(0))[0].T
        episode = step(episode, action)
        total += np.where(under_way, episode.reward, 0.0)
        under_way &= ~np.asarray(episode.done)
    return total


def is_free(task):
    """Whether no joint leads to the first body; MuJoCo then has seven numbers for its place."""
    return all(task.system.joint(name).child[0] for name in task.system.topology.joints)


def to_mujoco(task, state):
    """Positions and velocities of MuJoCo of a state of one robot."""
    q, v = state.q, jj.coordinate_speeds(task.system, state)
    if is_free(task):
        place, spin = jj.body_poses(task.system, state)[0], state.omega[:, 0]
        # A free joint of MuJoCo has the velocity of the body's origin, and its angular velocity in
        # the frame of the body.
        origin = state.velocity[:, 0] + jnp.cross(spin, place.p - state.position[:, 0])
        speed = origin, place.R.T @ spin
        q, v = (jnp.concatenate([*base, x]) for base, x in (((place.p, place.q), q), (speed, v)))
    return q, v


def from_mujoco(task, q, v):
    """State and speeds of a robot from positions and velocities of MuJoCo."""
    base = {}
    if is_free(task):
        body, place = task.system.topology.bodies[0], jj.Pose(q[:3], q[3:7])
        spin = place.rotate(v[3:6])
        centre = task.system.state(pose={body: place}).position[:, 0]
        speed = jnp.concatenate([v[:3] + jnp.cross(spin, centre - place.p), spin])
        base = {"pose": {body: place}, "velocity": {body: speed}}
        q, v = q[7:], v[6:]
    places = {name: task.places(name) for name in task.system.topology.joints}
    q, speeds = ({name: x[at] for name, at in places.items()} for x in (q, v))
    return task.system.state(q=q, qd=speeds, **base), v


def model_of(name, task):
    """MuJoCo's model of the robot of a task: of the humanoid its file, else with hard contacts."""
    if name != "humanoid":
        return mujoco_model(task, float(task.dt))
    import gymnasium

    model = mujoco.MjModel.from_xml_path(str(Path(gymnasium.__file__).parent / FILE))
    # As the task: implicit in dampers, and bodies that touch the floor alone.
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    floor = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
    model.geom_contype[:], model.geom_conaffinity[:] = floor, ~floor
    model.body_contype[:] = model.body_conaffinity[:] = 2**31 - 1
    return model


def in_mujoco(task, model, act, length, episodes=EPISODES):
    """Returns from the same starts, with the observations and rewards of the task."""
    episode = starts(task, episodes)
    model.opt.timestep = float(task.dt)
    states = [mujoco.MjData(model) for _ in range(episodes)]
    places = jax.vmap(partial(to_mujoco, task), in_axes=-1)(episode.state)
    for state, q, v in zip(states, *map(np.asarray, places), strict=True):
        state.qpos[:], state.qvel[:] = q, v
    total, under_way = np.zeros(episodes), np.ones(episodes, bool)
    driven = task.places(*task.actuated) + 6 * is_free(task)

    @jax.jit
    @partial(jax.vmap, in_axes=-1, out_axes=-1)
    def seen(q, v, action, goal):
        state, speeds = from_mujoco(task, q, v)
        parts, ended = task.judge(state, speeds, goal, action)
        return task.observe(state, speeds, goal), sum(parts.values()), ended

    obs, goal = episode.obs, episode.info["goal"]
    for _ in range(length):
        action = act(obs.T, jax.random.PRNGKey(0))[0].T
        # The joints of jaxjoints clip what is beyond their largest effort.
        efforts = np.asarray(task.effort)[:, None] * np.clip(action, -1.0, 1.0)
        for i in np.flatnonzero(under_way):
            states[i].qfrc_applied[driven] = efforts[:, i]
            mujoco.mj_step(model, states[i], task.substeps)
        q, v = (np.array([getattr(x, n) for x in states]).T for n in ("qpos", "qvel"))
        obs, reward, ended = seen(jnp.asarray(q), jnp.asarray(v), action, goal)
        total += np.where(under_way, reward, 0.0)
        under_way &= ~np.asarray(ended)
    return total


def transferred(engine, act, length):
    """Mean returns of 20 episodes, by the engine that simulates; engine: that of the training."""
    task, model = cart_pole() if engine == "jaxjoints" else inverted_pendulum()
    by_engine = {"jaxjoints": in_jaxjoints(task, act, length)}
    by_engine["MuJoCo"] = in_mujoco(task, model, act, length)
    return {name: round(float(x.mean()), 2) for name, x in by_engine.items()}


def stored(name, episodes):
    """Mean returns of the stored policy of a task, by engine and the share of its time step."""
    task, parameters = made(name), load(name)["parameters"]
    act = jax.jit(lambda obs, key: (jax.vmap(partial(acted, parameters))(obs), None))
    means = {}
    for finer in (1, FINER):
        one = jj.replace(task, dt=task.dt / finer, substeps=task.substeps * finer)
        model = model_of(name, one)
        means["jaxjoints", finer] = in_jaxjoints(one, act, task.limit, episodes).mean()
        means["MuJoCo", finer] = in_mujoco(one, model, act, task.limit, episodes).mean()
    return means


def acted(parameters, obs):
    """The action without noise of one robot."""
    return learning.mean(parameters, obs, None)


def main():
    """A row for each task."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", default="hopper")
    parser.add_argument("--episodes", type=int, default=EPISODES)
    options = parser.parse_args()
    engines = [(engine, finer) for finer in (1, FINER) for engine in ("jaxjoints", "MuJoCo")]
    titles = [name if finer == 1 else f"{name}, 1/{finer} step" for name, finer in engines]
    print(f"| task | {' | '.join(titles)} | kept |\n" + "|---" * 6 + "|")
    for name in options.tasks.split(","):
        means = stored(name, options.episodes)
        kept = means["MuJoCo", 1] / means["jaxjoints", 1]
        cells = [f"{means[engine]:.0f}" for engine in engines]
        print(f"| {name} | {' | '.join(cells)} | {kept:.0%} |", flush=True)


if __name__ == "__main__":
    main()
