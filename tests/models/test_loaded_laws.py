"""Laws for joints of a file, by name or pattern when it is loaded, or later by the builder."""

import re
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.models import LoadWarning, load_mjcf, load_urdf
from support.accelerations import rates
from support.urdf import joint, link, robot

PANDA = Path(__file__).parents[1] / "data" / "panda_arm.urdf"
LIMITS = (87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0)  # <limit effort> of the Panda's joints [N m]
DT, EXACT = 1e-3, 1e-10
SERVO = jj.Servo(300.0, 20.0)

# Two hinges without a mass between them, which are one joint of the builder, and a slide.
WRIST = robot(
    *(link("base", None), link("fork", None), link("hand"), link("finger")),
    joint("yaw", "continuous", "base", "fork", axis="0 0 1", more='<limit effort="5"/>'),
    joint("pitch", "continuous", "fork", "hand", axis="0 1 0"),
    joint("grip", "prismatic", "hand", "finger", more='<limit lower="0" upper="1"/>'),
)


def laws_of(system, name):
    return [type(law).__name__ for law in system.joint(name).laws]


def test_a_pattern_gives_each_joint_a_servo_of_its_limit_of_effort():
    model = load_urdf(PANDA, laws={"panda_joint*": SERVO})
    system, _ = model.build()
    for name, most in zip(system.topology.joints, LIMITS, strict=True):
        assert laws_of(system, name) == ["Limits", "Servo"]
        assert system.number(f"joint.{name}.servo.effort") == most
        assert system.number(f"joint.{name}.servo.stiffness") == 300.0
    system.control(target={"panda_joint1": 0.3})


def test_names_patterns_and_several_laws_add_up():
    own = jj.Servo(100.0, 10.0, effort=50.0)
    laws = {"panda_joint[12]": [own, jj.Damping(1.0)], "panda_joint1": jj.Armature(0.1)}
    system, _ = load_urdf(PANDA, laws=laws).build()
    assert laws_of(system, "panda_joint1") == ["Limits", "Servo", "Damping", "Armature"]
    assert laws_of(system, "panda_joint2") == ["Limits", "Servo", "Damping"]
    assert laws_of(system, "panda_joint3") == ["Limits"]
    assert system.number("joint.panda_joint1.servo.effort") == 50.0


def test_the_builder_gives_them_too_and_they_are_the_same():
    by_name, later = load_urdf(PANDA, laws={"panda_joint7": SERVO}), load_urdf(PANDA)
    later.builder.add_law("panda_joint7", SERVO)
    one, other = (model.build()[0].joint("panda_joint7") for model in (by_name, later))
    assert vars(one.laws[1]) == vars(other.laws[1])
    assert one.laws[1].effort == 12.0


def test_a_law_finds_its_coordinate_in_a_compound_joint():
    model = load_urdf(WRIST, laws={"pitch": SERVO, "yaw": jj.Damping(0.5), "grip": jj.Damping(2.0)})
    assert model.coordinates["pitch"] == ("yaw+pitch", 1)
    system, _ = model.build()
    servo, damping = system.joint("yaw+pitch").laws
    assert (type(servo), servo.coordinate, servo.effort) == (jj.Servo, 1, None)
    assert (type(damping), damping.coordinate) == (jj.Damping, 0)


def test_a_law_names_a_coordinate_of_a_joint_that_has_several():
    plane = robot(link("base", None), link("puck"), joint("slip", "planar", "base", "puck"))
    laws = {"slip": [jj.Servo(9.0, 1.0, coordinate=2), jj.Damping(1.0)]}
    system, _ = load_urdf(plane, laws=laws).build()
    assert [law.coordinate for law in system.joint("slip").laws] == [2, 0]
    with pytest.raises(ValueError, match="joint 'slip' has 3 coordinates.* coordinate 3 of its Se"):
        load_urdf(plane, laws={"s*": jj.Servo(9.0, 1.0, coordinate=3)})
    with pytest.raises(ValueError, match="joint 'pitch' has 1 coordinates.* coordinate 1 of its"):
        load_urdf(WRIST, laws={"pitch": jj.Damping(1.0, coordinate=1)})


def test_names_of_a_robot_with_a_prefix_are_those_of_the_file():
    builder = jj.SystemBuilder()
    for side in ("left ", "right "):
        load_urdf(WRIST, builder=builder, prefix=side, laws={"pitch": SERVO})
    system, _ = builder.build()
    for side in ("left ", "right "):
        assert laws_of(system, f"{side}yaw+pitch") == ["Servo"]


@pytest.mark.slow
def test_a_servo_pushes_no_more_than_the_limit_of_effort():
    """Implicit PD control of a hinge, whose effort is bounded by that of the file."""
    inertia, most = 0.25, 2.0
    text = robot(
        *(link("base", None), link("arm", inertia=(0.1, 0.2, inertia))),
        joint("axle", "continuous", "base", "arm", more=f'<limit effort="{most}"/>'),
    )
    system, state = load_urdf(text, laws={"*": SERVO}).build()
    targets = np.array([0.001, 5.0])
    control = jj.Control(target=jnp.broadcast_to(targets, (20, 1, 2)))
    final, forces = jj.rollout(
        *(system, jj.replicate(state, 2), control),
        dt=DT,
        steps=20,
        record=lambda state, info: info.law_force[0],
    )
    q = qd = np.zeros(2)
    for force in forces:
        total = inertia + DT * (DT * SERVO.stiffness + SERVO.damping)
        push = (inertia * qd + DT * SERVO.stiffness * (targets - q)) / total - qd
        push = np.clip(push, -DT * most / inertia, DT * most / inertia)
        np.testing.assert_allclose(force, inertia * push / DT, rtol=0, atol=1e-8)
        qd = qd + push
        q = q + DT * qd
    np.testing.assert_allclose(final.q[0], q, rtol=0, atol=EXACT)
    assert np.abs(forces[:, 0]).max() < 0.3 and np.abs(forces[:, 1]).min() > 1.99


def test_what_matches_no_joint_is_refused_with_near_names():
    for wrong in ("panda_jiont1", "panda_jiont*"):
        with pytest.raises(ValueError, match="matches no joint .*did you mean 'panda_joint"):
            load_urdf(PANDA, laws={wrong: SERVO})
    with pytest.raises(ValueError, match="must have the names of joints, or patterns"):
        load_urdf(PANDA, laws=SERVO)
    with pytest.raises(
        ValueError, match=r"joint 'panda_joint1': .* is not a law; write Servo\(…\)"
    ):
        load_urdf(PANDA, laws={"panda_joint1": jj.Servo})
    with pytest.raises(ValueError, match="joint 'panda_joint1': Servo .* stiffness -1.0 must be"):
        load_urdf(PANDA, laws={"panda_joint1": jj.Servo(-1.0, 0.0)})


def test_errors_after_the_build_say_where_a_law_is_added():
    system, _ = load_urdf(PANDA).build()
    add = (
        r"is added before the build: .*`builder.add_law\(joint, law\)`, or by laws= of `load_urdf`"
    )
    with pytest.raises(ValueError, match=f"has no servo; .*{add}"):
        system.with_joint("panda_joint1", servo=SERVO)
    with pytest.raises(ValueError, match=f"has 2 records and was built with 1; a law {add}"):
        system.with_joint("panda_joint1", laws=[*system.joint("panda_joint1").laws, SERVO])
    with pytest.raises(ValueError, match=f"no law of it follows a target; .*{add}"):
        system.control(target={"panda_joint1": 0.3})


def test_the_builder_says_what_is_no_joint():
    world = jj.SystemBuilder()
    for name in "ab":
        world.body(name, mass=1.0, inertia=(1.0, 1.0, 1.0))
        world.joint(f"joint {name}", jj.Hinge(), child=name, laws=jj.Limits(0.5, 0.5))
    world.transmission("belt", jj.transmissions.Mimic(1.0), joints=("joint a", "joint b"))
    with pytest.raises(ValueError, match="no joint 'joint c'; did you mean 'joint b' or"):
        world.add_law("joint c", SERVO)
    with pytest.raises(ValueError, match="'belt' is a transmission; give its laws to `transmissi"):
        world.add_law("belt", SERVO)
    with pytest.raises(ValueError, match="a Lock holds it already"):
        world.add_law("joint a", jj.Lock(0.2))
    with pytest.raises(ValueError, match="there are 1 coordinates"):
        world.add_law("joint a", jj.Damping(1.0, coordinate=1))


def test_a_servo_of_a_joint_that_mimics_another_is_told():
    text = robot(
        *(link("base", None), link("a"), link("b")),
        joint("lead", "continuous", "base", "a"),
        joint("follow", "continuous", "base", "b", more='<mimic joint="lead" multiplier="2"/>'),
    )
    with pytest.warns(LoadWarning, match="joint 'follow': mimics 'lead' and has a Servo"):
        load_urdf(text, laws={"*": [SERVO, jj.Damping(1.0)]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_urdf(text, laws={"*": jj.Damping(1.0), "lead": SERVO})


def test_transmissions_tell_which_joints_are_driven():
    text = WRIST.replace(
        "</robot>",
        '<transmission name="t"><type>SimpleTransmission</type><joint name="yaw"/>'
        '<actuator name="m"><mechanicalReduction>50</mechanicalReduction></actuator>'
        "</transmission>\n"
        '<transmission name="u"><joint name="jaw"/></transmission></robot>',
    )
    with pytest.warns(LoadWarning, match="transmission, which adds no force"):
        model = load_urdf(text)
    assert model.actuated == ("yaw",)
    assert model.skipped == (
        "transmission, which adds no force: its joints are in Model.actuated "
        "(2 times, first in line 9)",
        "transmission of 'jaw', which is no joint that moves (in line 10)",
    )


GRIPPER = """<mujoco>
  <compiler angle="radian"/>
  <option gravity="0 0 0"><flag contact="disable"/></option>
  <worldbody><body name="arm">
    <joint name="axle" axis="0 0 1" actuatorfrcrange="-2 2" actuatorfrclimited="true"/>
    <geom type="box" size="0.1 0.2 0.3"/>
    <!-- from here -->
    <body name="tip" pos="0.1 0 0">
      <joint name="x" type="slide" axis="1 0 0"/> <joint name="y" type="slide" axis="0 1 0"/>
      <geom type="box" size="0.1 0.1 0.1"/>
    </body>
    <!-- to here -->
  </body></worldbody>
  <equality><connect name="pin" body1="tip" anchor="0 0 0" active="false"/></equality>
  {}
</mujoco>"""


@pytest.mark.slow
def test_joints_of_mjcf_get_laws_by_pattern():
    pytest.importorskip("mujoco")
    model = load_mjcf(GRIPPER.format(""), laws={"*": SERVO})
    system, _ = model.build()
    assert laws_of(system, "pin") == []
    assert system.number("joint.axle.servo.effort") == 2.0
    assert [law.coordinate for law in system.joint("x+y").laws] == [0, 1]
    with pytest.raises(ValueError, match="laws: 'axel' matches no joint .*did you mean 'axle'"):
        load_mjcf(GRIPPER.format(""), laws={"axel": SERVO})


@pytest.mark.slow
@pytest.mark.parametrize("force", ["", 'forcerange="-9 9" forcelimited="true"'])
def test_a_servo_of_mjcf_keeps_to_the_bound_of_its_joint_as_in_mujoco(force):
    mujoco = pytest.importorskip("mujoco")
    text = GRIPPER.format(f'<actuator><position joint="axle" kp="100" {force}/></actuator>')
    text = re.sub("<equality>.*</equality>|<!-- from.*to here -->", "", text, flags=re.DOTALL)
    model = load_mjcf(text)
    assert model.actuated == ("axle",)
    system, state = model.build()
    m = mujoco.MjModel.from_xml_string(text)
    for control in (0.01, 1.0):
        d = mujoco.MjData(m)
        d.ctrl[0] = control
        mujoco.mj_forward(m, d)
        found, _ = rates(system, state, model.control(system, [control]))
        np.testing.assert_allclose(found, d.qacc, rtol=1e-6, atol=1e-8)


def test_a_model_says_what_it_is_and_how_to_go_on():
    text = WRIST.replace("</robot>", "<gazebo/>\n<plugin/>\n<a/>\n<b/>\n</robot>")
    with pytest.warns(LoadWarning):
        model = load_urdf(text)
    assert repr(model).splitlines() == [
        "Model 'robot' of 2 bodies and 3 joints that can move",
        "bodies: hand, finger",
        "joints: yaw, pitch, grip",
        "skipped: gazebo (in line 9)",
        "skipped: plugin (in line 10)",
        "skipped: a (in line 11)",
        "skipped: … and 1 more",
        "add to it: laws= of the loader, model.builder; go on: system, state = model.build()",
    ]
    page = model._repr_html_()
    assert page.count("<table>") == 1 and page.count(">yaw+pitch</td>") == 2


@pytest.mark.slow
def test_a_start_keeps_what_is_not_named():
    """The Panda's fourth joint starts at its upper limit, the other ones at 0."""
    system, start = load_urdf(PANDA).build()
    with pytest.warns(UserWarning, match="joint 'panda_joint4': coordinate 0 starts at 0, outside"):
        system.state(q={"panda_joint1": 0.3})
    state = system.state(q={"panda_joint1": 0.3}, start=start)
    wanted = np.array([0.3, 0.0, 0.0, -0.0698, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(state.q, wanted, rtol=0, atol=1e-12)
    again = system.state(q={"panda_joint6": np.array([0.1, 0.2])}, start=state)
    wanted = np.tile(wanted, (2, 1)).T
    wanted[5] = 0.1, 0.2
    np.testing.assert_allclose(again.q, wanted, rtol=0, atol=1e-12)
    np.testing.assert_allclose(jj.coordinates(system, again), wanted, rtol=0, atol=1e-12)


def test_a_start_keeps_the_pose_of_a_floating_base():
    pose = (0.1, 0.2, 0.3), (0.6, 0.0, 0.8, 0.0)
    text = WRIST.replace(link("base", None), link("base"))
    system, start = load_urdf(text, floating=True, pose=pose).build()
    state = system.state(q={"grip": 0.5}, start=start)
    one, other = (jj.body_poses(system, x) for x in (start, state))
    base = system.body("base")
    np.testing.assert_allclose(other.p[:, base], pose[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(other.q[:, base], one.q[:, base], rtol=0, atol=1e-12)
    assert float(state.q[system.coordinate("grip")][0]) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="start is ndarray; give a State"):
        system.state(q={}, start=np.zeros(3))
    _, other_start = load_urdf(PANDA).build()
    with pytest.raises(ValueError, match="start has positions and q of shapes"):
        system.state(q={}, start=other_start)
