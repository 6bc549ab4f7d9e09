"""The humanoid has observation, motors, speed and start of gymnasium's, as MuJoCo reads them."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import Pose, environments

mujoco = pytest.importorskip("mujoco")
gymnasium = pytest.importorskip("gymnasium")
# Parts of gymnasium's observation that ours leaves out.
PARTS = ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")


@pytest.fixture(scope="module")
def task():
    return environments.humanoid()


@pytest.fixture(scope="module")
def theirs():
    short = {f"include_{part}_in_observation": False for part in PARTS}
    with gymnasium.make("Humanoid-v5", **short) as env:
        yield env.unwrapped


@pytest.fixture(scope="module")
def place():
    """Coordinates and speeds as MuJoCo has them, away from the start."""
    rng = np.random.default_rng(0)
    qpos, qvel = rng.uniform(-0.4, 0.4, 24), rng.uniform(-1.0, 1.0, 23)
    turn = np.array([1.0, 0.3, -0.2, 0.1])
    qpos[:7] = [0.3, -0.2, 1.5, *(turn / np.linalg.norm(turn))]
    return qpos, qvel


@pytest.fixture(scope="module")
def state(task, place):
    qpos, qvel = place
    pose = Pose(qpos[:3], qpos[3:7])
    # MuJoCo's angular velocity is in axes of the body.
    velocity = np.concatenate([qvel[:3], pose.R @ qvel[3:6]])
    q, qd = (dict(zip(task.hinges, x, strict=True)) for x in (qpos[7:], qvel[6:]))
    placed = {"pose": {"torso": pose}, "velocity": {"torso": velocity}}
    return task.system.state(q=q, qd=qd, **placed, rough=True)


def speeds(task, qvel):
    qd = np.zeros(task.system.coordinates)
    qd[task.places(*task.hinges)] = qvel[6:]
    return jnp.asarray(qd)


def test_the_observation_is_that_of_gymnasium(task, theirs, place, state):
    qpos, qvel = place
    theirs.reset(seed=0)
    theirs.set_state(qpos, qvel)
    seen = task.observe(state, speeds(task, qvel), jnp.zeros(0))
    np.testing.assert_allclose(seen, theirs._get_obs(), rtol=1e-9, atol=1e-9)


def test_its_speed_is_that_of_the_centre_of_mass(task, theirs, place, state):
    qpos, qvel = place
    theirs.reset(seed=0)
    theirs.set_state(qpos, qvel)
    mujoco.mj_subtreeVel(theirs.model, theirs.data)
    forwards = task.judge(state, speeds(task, qvel), jnp.zeros(0), jnp.zeros(17))[0]["forwards"]
    weight = theirs._forward_reward_weight
    np.testing.assert_allclose(forwards, weight * theirs.data.subtree_linvel[1, 0], rtol=1e-9)


def test_motors_drive_the_joints_that_they_drive_in_gymnasium(task, theirs):
    rng = np.random.default_rng(1)
    action = rng.uniform(-1.0, 1.0, 17)
    theirs.reset(seed=0)
    theirs.data.ctrl[:] = theirs.action_space.high * action
    mujoco.mj_forward(theirs.model, theirs.data)
    effort = task.control(jnp.asarray(action)).effort[task.places(*task.hinges)]
    np.testing.assert_allclose(effort, theirs.data.qfrc_actuator[6:], rtol=1e-6)
    paid = task.judge(task.start, jnp.zeros(17), jnp.zeros(0), jnp.asarray(action))[0]["effort"]
    np.testing.assert_allclose(paid, -theirs.control_cost(None), rtol=1e-6)
    assert theirs.model.opt.timestep == task.dt and theirs.frame_skip == task.substeps


def test_it_is_alive_where_gymnasiums_is_healthy(task, theirs):
    low, high = theirs._healthy_z_range
    for height, ended in ((low - 1e-3, True), (low + 1e-3, False), (high + 1e-3, True)):
        state = task.system.state(pose={"torso": (0.0, 0.0, height)}, rough=True)
        parts, found = task.judge(state, jnp.zeros(17), jnp.zeros(0), jnp.zeros(17))
        assert bool(found) == ended
        assert parts["alive"] == (0.0 if ended else theirs._healthy_reward)


@pytest.mark.slow
def test_starts_are_as_near_as_gymnasiums(task, theirs):
    theirs.reset(seed=0)
    theirs.set_state(theirs.init_qpos, theirs.init_qvel)
    off = task.reset(jax.random.split(jax.random.key(0), 64)).obs - theirs._get_obs()[:, None]
    # The first number of the quaternion changes in second order.
    others = np.abs(np.delete(np.asarray(off), 1, axis=0)).max(axis=1)
    # Speeds of turning are in axes that are turned by up to 0.02 rad about two others.
    assert (others > 0.008).all() and (others < 0.01 * 1.04 + 1e-9).all()


def test_without_gymnasium_it_says_what_to_install(monkeypatch):
    # The name of the file is that of its function in the package.
    file = sys.modules["jaxjoints.environments.humanoid"]
    monkeypatch.setattr(file, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install -e '\.\[gymnasium,mjcf\]'"):
        environments.humanoid()


def test_its_file_is_that_of_gymnasium(task, theirs):
    assert Path(theirs.fullpath).name == "humanoid.xml"
    mass = theirs.model.body_mass.sum()
    np.testing.assert_allclose(task.system.mass.sum(), mass, rtol=1e-9)
