"""The task of a quadruped takes legs, feet, servos and stance from the file."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import environments, gaps
from jaxjoints.environments import unroll

mujoco = pytest.importorskip("mujoco")
QUADRUPED = Path(__file__).parents[2] / "examples/data/quadruped.xml"
POSE = (0.0, 0.7, -1.4)  # [rad]


@pytest.fixture(scope="module")
def task():
    return environments.go2(QUADRUPED, pose=POSE)


def test_it_stands_on_four_feet_in_its_pose(task):
    assert len(task.system.topology.contacts) == 4
    np.testing.assert_allclose(gaps(task.system, task.start), 0.0, atol=1e-9)
    np.testing.assert_allclose(task.start.q[task.places(*task.actuated)], np.tile(POSE, 4))
    # Thigh and calf of 0.2 m and a foot of 25 mm.
    assert abs(task.height - (0.4 * np.cos(0.7) + 0.025)) < 1e-9


@pytest.mark.slow
def test_servos_hold_it_up_and_it_ends_where_they_let_go(task):
    episode = task.reset(jax.random.split(jax.random.key(0), 4))

    def hold(_, obs, key):
        return jnp.zeros(12, obs.dtype)

    end, seen = unroll(task, episode, hold, None, steps=50)
    assert not seen.done.any() and np.abs(seen.next_obs[-1, 0]).max() < 0.02
    # Feet carry it, and gravity is seen along -z of the trunk.
    assert gaps(task.system, end.state).max() < 1e-3
    np.testing.assert_allclose(seen.next_obs[-1, 1:4, 0], [0.0, 0.0, -1.0], atol=0.02)
    low = {task.trunk: (0.0, 0.0, 0.5 * float(task.height))}
    state = task.system.state(pose=low, rough=True)
    assert task.judge(state, jnp.zeros(12), jnp.zeros(0), jnp.zeros(12))[1]


def test_actions_are_angles_about_the_pose(task):
    target = task.control(jnp.ones(12)).target[task.places(*task.actuated)]
    np.testing.assert_allclose(target, np.tile(POSE, 4) + 0.5)


def test_position_servos_of_the_file_stay(task):
    number = task.system.number
    assert number("joint.FL_knee.servo.stiffness") == 150.0


def test_the_foot_is_the_furthest_sphere_of_a_leg(tmp_path, task):
    path, foot = tmp_path / "shins.xml", '<geom name="FL_foot" class="foot"/>'
    text = QUADRUPED.read_text(encoding="utf-8")
    assert foot in text
    shin = '<geom class="foot" pos="0 0 -0.1" size="0.03"/>'
    path.write_text(text.replace(foot, shin + foot), encoding="utf-8")
    again = environments.go2(path, pose=POSE)
    assert again.system.topology.contacts == task.system.topology.contacts
    np.testing.assert_allclose(again.height, task.height)


def test_motors_become_servos_within_their_ranges(tmp_path):
    text = QUADRUPED.read_text(encoding="utf-8").replace(
        'position kp="150" kv="6" forcerange="-40 40"', 'motor gear="2" ctrlrange="-12 12"'
    )
    path = tmp_path / "motors.xml"
    path.write_text(text.replace("<position ", "<motor "), encoding="utf-8")
    number = environments.go2(path, pose=POSE).system.number
    assert number("joint.FL_knee.servo.stiffness") == 35.0
    assert number("joint.RR_hip.servo.effort") == 24.0


@pytest.mark.slow
def test_a_quadruped_of_a_package_stands_too():
    folder = Path(mujoco.__file__).parent / "mjx/test_data/barkour_v0/assets"
    if not (folder / "barkour_v0_mjx.xml").is_file():
        pytest.skip("this release of mujoco has no barkour")
    task = environments.go2(folder / "barkour_v0_mjx.xml", pose=(0.0, 0.5, 1.0))
    assert (task.action_size, task.trunk) == (12, "chassis")
    assert -1e-9 < gaps(task.system, task.start).min() < 1e-9
    # The keyframe of the file has the trunk 1 cm above that.
    assert 0.19 < task.height < 0.21


def test_a_file_of_another_robot_is_refused(tmp_path):
    path = tmp_path / "leg.xml"
    path.write_text(
        """<mujoco><worldbody><body name="leg"><freejoint/><geom size="0.1"/>
        <body><joint type="hinge"/><geom size="0.1"/></body></body></worldbody></mujoco>""",
        encoding="utf-8",
    )
    with pytest.raises(ValueError, match="go2: .*has 1 hinges, 2 bodies and feet on 0.*12, 13"):
        environments.go2(path)
