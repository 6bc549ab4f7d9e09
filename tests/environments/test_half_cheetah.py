"""The half cheetah has the masses, hinges and sizes of gymnasium's, as MuJoCo reads them."""

from pathlib import Path

import jax
import numpy as np
import pytest

from jaxjoints import body_poses, environments, gaps
from jaxjoints.environments.half_cheetah import HINGES

mujoco = pytest.importorskip("mujoco")
gymnasium = pytest.importorskip("gymnasium")

# Of the letters in their names: back and front.
THEIRS = {f"{leg} {part}": f"{leg[0]}{part}" for leg in ("back", "front") for part in
          ("thigh", "shin", "foot")}  # fmt: skip


@pytest.fixture(scope="module")
def task():
    return environments.half_cheetah()


@pytest.fixture(scope="module")
def model():
    folder = Path(gymnasium.__file__).parent / "envs/mujoco/assets"
    return mujoco.MjModel.from_xml_path(str(folder / "half_cheetah.xml"))


def test_masses_and_inertias_are_those_of_mujoco(task, model):
    for name in ("torso", *HINGES):
        theirs, i = model.body(THEIRS.get(name, name)), task.system.body(name)
        np.testing.assert_allclose(task.system.mass[i], theirs.mass[0], rtol=1e-6)
        moments = np.linalg.eigvalsh(np.asarray(task.system.inertia[:, :, i]))
        np.testing.assert_allclose(moments, np.sort(theirs.inertia), rtol=1e-5)


def test_bodies_and_feet_are_where_mujoco_puts_them(task, model):
    rng = np.random.default_rng(0)
    q = rng.uniform(-0.4, 0.4, 9)
    q[1] = 1.0  # no foot in the ground
    data = mujoco.MjData(model)
    # Their pitch is about y, that of the plane of motion against it.
    data.qpos[:] = q * np.array([1, 1, -1, *[1] * 6])
    mujoco.mj_forward(model, data)
    by_name = {"root": q[:3]} | {name: x for name, x in zip(HINGES, q[3:, None], strict=True)}
    state = task.system.state(q=by_name)
    poses = body_poses(task.system, state)
    for name in ("torso", *HINGES):
        theirs, i = model.body(THEIRS.get(name, name)).id, task.system.body(name)
        np.testing.assert_allclose(state.position[:, i], data.xipos[theirs], atol=1e-9)
        np.testing.assert_allclose(poses.p[:, i], data.xpos[theirs], atol=1e-9)

    def end(geom, sign):
        i = model.geom(geom).id
        return data.geom_xpos[i, 2] + sign * model.geom_size[i, 1] * data.geom_xmat[i, 8]

    # The capsule of the trunk points backwards, those of the other links upwards.
    heights = [end("torso", 1.0), end("head", 1.0)]
    for leg in "bf":
        heights += [
            data.body(f"{leg}shin").xpos[2],
            end(f"{leg}foot", 1.0),
            end(f"{leg}foot", -1.0),
        ]
    np.testing.assert_allclose(gaps(task.system, state), np.array(heights) - 0.046, atol=1e-9)


def test_actions_and_stops_are_those_of_mujoco(task, model):
    np.testing.assert_allclose(task.effort, model.actuator_gear[:, 0])
    for name in HINGES:
        joint = model.joint(THEIRS[name])
        number = task.system.number
        stops = [number(f"joint.{name}.limits.{side}") for side in ("lower", "upper")]
        np.testing.assert_allclose(stops, joint.range)
        np.testing.assert_allclose(number(f"joint.{name}.spring_damper.damping"), joint.damping[0])
    assert model.opt.timestep == task.dt


@pytest.mark.slow
def test_most_episodes_begin_above_the_ground(task):
    keys = jax.random.split(jax.random.key(0), 64)
    height = task.reset(keys).obs[0]
    assert (np.abs(height - 0.1) <= 0.1).all() and np.ptp(height) > 0.1
