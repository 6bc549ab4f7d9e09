"""MJCF: what MuJoCo compiles moves here as it moves there."""

import re
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

import jaxjoints as jj  # noqa: E402
from jaxjoints.models import LoadError, LoadWarning, load_mjcf  # noqa: E402
from jaxjoints.models.geometry import Box, Capsule, Cylinder, Mesh, Plane, Sphere  # noqa: E402
from support.accelerations import rates  # noqa: E402
from support.cases import mostly_slow  # noqa: E402
from support.mujoco_states import accelerations_of, name_of, state_of  # noqa: E402

EXACT = 1e-12  # positions, after some products of rotations
SOLVED = 1e-8  # accelerations, relative to the largest

EVERYTHING = """<mujoco model="everything">
  <option density="500" viscosity="0.2" wind="1 0.5 -0.3"><flag contact="disable"/></option>
  <default><geom density="800"/></default>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body name="arm" pos="0.1 0.2 1" euler="20 -30 10">
      <joint name="yaw" axis="1 2 3" pos="0.1 0 0.05" ref="25" stiffness="3" springref="-10"
             damping="0.2" armature="0.05"/>
      <geom type="box" size="0.1 0.05 0.2" pos="0.02 0 0.1" euler="0 10 5"/>
      <body name="plate" pos="0 0 0.3" quat="0.9 0.1 0.2 -0.3">
        <geom type="cylinder" size="0.08 0.02"/>
        <site name="tip" pos="0.1 0 0" euler="0 0 90"/>
        <body name="hip" pos="0.1 0 0">
          <joint name="x" type="slide" axis="1 0 1" ref="0.1" damping="0.5"/>
          <joint name="y" axis="0 1 0" pos="0 0.02 0" armature="0.01"/>
          <joint name="z" axis="0.2 0 1" pos="0.05 0 0.01" stiffness="2"/>
          <geom type="capsule" size="0.04 0.1" pos="0.03 0.01 0"/>
          <body name="ball" pos="0 0.1 -0.2">
            <joint name="socket" type="ball" pos="0 0 0.05" stiffness="1.5"/>
            <geom type="ellipsoid" size="0.05 0.07 0.09" pos="0 0 -0.05"/>
          </body>
        </body>
      </body>
    </body>
    <body name="free" pos="1 0 0" euler="0 40 0">
      <freejoint/>
      <geom type="box" size="0.1 0.2 0.05" pos="0.02 0.03 0"/>
      <body pos="0 0 0.2"><joint name="flap" axis="1 0 0"/><geom size="0.05" pos="0 0.1 0"/></body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="cable" stiffness="4" damping="0.3" springlength="0.2">
      <joint joint="yaw" coef="0.5"/><joint joint="z" coef="-1.2"/>
    </fixed>
  </tendon>
  <actuator>
    <motor joint="yaw" gear="3" ctrlrange="-1 1" ctrllimited="true"/>
    <position name="hold" joint="y" kp="5" kv="0.4" gear="2"/>
    <velocity joint="z" kv="0.7"/>
    <general joint="flap" gainprm="3" biastype="affine" biasprm="0.3 -2 -0.1"/>
    <motor tendon="cable" gear="0.5" forcerange="-0.2 0.2" forcelimited="true"/>
  </actuator>
</mujoco>"""


def moving(m, seed=3):
    """MuJoCo's data at a random state under random controls."""
    d, random = mujoco.MjData(m), np.random.default_rng(seed)
    mujoco.mj_resetData(m, d)
    d.qvel[:] = 0.5 * random.normal(size=m.nv)
    mujoco.mj_integratePos(m, d.qpos, random.uniform(-0.4, 0.4, m.nv), 1.0)
    d.ctrl[:] = random.uniform(-2.0, 2.0, m.nu)
    mujoco.mj_forward(m, d)
    return d


def assert_same_motion(text, read):
    """Poses and accelerations of a file are those of MuJoCo."""
    system, _ = read.build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of attributes that MuJoCo deprecates
        m = mujoco.MjModel.from_xml_string(text)
    d = moving(m)
    for j in range(m.njnt):
        if m.jnt_type[j] == mujoco.mjtJoint.mjJNT_BALL:
            # The coordinates' zero, where their rates are the angular velocity.
            place, dof = m.jnt_qposadr[j], m.jnt_dofadr[j]
            d.qpos[place : place + 4], d.qvel[dof : dof + 3] = (1, 0, 0, 0), 0
    mujoco.mj_forward(m, d)
    state = state_of(read, system, m, d)
    poses = jj.body_poses(system, state)
    for i, body in enumerate(system.topology.bodies):
        k = next(k for k in range(m.nbody) if name_of(m, "BODY", k) == body)
        np.testing.assert_allclose(poses.p[:, i], d.xpos[k], atol=EXACT, err_msg=body)
        R = d.xmat[k].reshape(3, 3)
        np.testing.assert_allclose(poses.R[:, :, i], R, atol=EXACT, err_msg=body)
    found, rate = rates(system, state, read.control(system, d.ctrl))
    wanted, turning = accelerations_of(read, system, m, d)
    largest = np.abs(d.qacc).max()
    np.testing.assert_allclose(found, wanted, atol=SOLVED * largest)
    for body, omega in turning.items():
        i = system.body(body)
        np.testing.assert_allclose(rate[3:, i], omega, atol=SOLVED * largest)


@pytest.mark.slow
def test_a_model_of_everything_moves_as_in_mujoco():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = load_mjcf(EVERYTHING)
    assert read.name == "everything" and read.timestep == 0.002
    assert read.coordinates["y"] == ("x+y+z", 1)
    assert_same_motion(EVERYTHING, read)


ASSETS = ("hopper.xml", "half_cheetah.xml", "walker2d_v5.xml", "swimmer.xml", "ant.xml")
ASSETS += ("humanoid.xml", "reacher.xml", "pusher_v5.xml", "inverted_pendulum.xml")
ASSETS += ("inverted_double_pendulum.xml",)


@pytest.mark.parametrize("name", mostly_slow(ASSETS, default=()))
def test_gymnasiums_models_accelerate_as_in_mujoco(name):
    gymnasium = pytest.importorskip("gymnasium")
    path = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / name
    flags = '<option><flag contact="disable" limit="disable"/></option>'
    text = re.sub("(<mujoco[^>]*>)", rf"\1{flags}", path.read_text(encoding="utf-8"), count=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LoadWarning)
        read = load_mjcf(text)
    assert not any("actuator" in line or "joint" in line for line in read.skipped)
    assert_same_motion(text, read)


ON_THE_WORLD = ("inverted_double_pendulum.xml", "hopper.xml", "half_cheetah.xml", "reacher.xml")
ON_THE_WORLD += ("walker2d_v5.xml", "pusher_v5.xml")


def weights_alone(name):
    """A robot of gymnasium on which nothing but weights and inertias acts, here and in MuJoCo."""
    gymnasium = pytest.importorskip("gymnasium")
    path = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / name
    text = path.read_text(encoding="utf-8")
    text = re.sub("<actuator>.*?</actuator>", "", text, flags=re.DOTALL)
    of_forces = "damping|stiffness|armature|frictionloss|density|viscosity|integrator"
    text = re.sub(rf'\s({of_forces})="[^"]*"', "", text)
    flags = '<option integrator="Euler"><flag contact="disable" limit="disable"/></option>'
    text = re.sub("(<mujoco[^>]*>)", rf"\1{flags}", text, count=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read, m = load_mjcf(text), mujoco.MjModel.from_xml_string(text)
    # Geoms have masses by the default density, and the air has none.
    m.opt.density, m.opt.viscosity = 0.0, 0.0
    assert not np.any(m.dof_damping)
    return read, m


@pytest.mark.parametrize(
    "name", mostly_slow(ON_THE_WORLD, default=("inverted_double_pendulum.xml",))
)
def test_trees_move_as_mujocos_euler_moves_them(name):
    """For a thousand steps of 1 ms."""
    read, m = weights_alone(name)
    m.opt.timestep = 1e-3
    system, _ = read.build()
    d = moving(m)
    assert m.nq == m.nv
    state = state_of(read, system, m, d)
    scheme = jj.SemiImplicitEuler(joints="coordinates")
    end, _ = jj.rollout(system, state, dt=1e-3, steps=1000, record_every=1000, scheme=scheme)
    for _ in range(1000):
        mujoco.mj_step(m, d)
    for j in range(m.njnt):
        joint, i = read.coordinates[name_of(m, "JOINT", j)]
        q = end.q[system.coordinate(joint)][i]
        np.testing.assert_allclose(q, d.qpos[m.jnt_qposadr[j]], atol=1e-9, err_msg=joint)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ant.xml", "humanoid.xml"])
def test_robots_adrift_come_near_the_motion_of_mujocos_euler_as_steps_get_short(name):
    """Errors of first order differ: MuJoCo integrates the velocity of the frame's origin, and here
    it is that of the centre of mass.
    """
    read, m = weights_alone(name)
    system, _ = read.build()
    state = state_of(read, system, m, moving(m))
    joints = [read.coordinates[name_of(m, "JOINT", j)] for j in range(1, m.njnt)]
    order = [system.coordinate(joint).start + i for joint, i in joints]
    root = system.body(name_of(m, "BODY", m.jnt_bodyid[0]))
    turned = moving(m).qpos[3:7]

    def ours(dt, steps):
        end, _ = jj.rollout(system, state, dt=dt, steps=steps, record_every=steps)
        pose = jj.body_poses(system, end)
        angle = pose.q[:, root] * np.sign(pose.q[:, root] @ turned)
        return np.concatenate([pose.p[:, root], angle, end.q[np.array(order)]])

    def theirs(dt, steps, integrator):
        m.opt.timestep, m.opt.integrator = dt, integrator
        d = moving(m)
        mujoco.mj_step(m, d, steps)
        q = d.qpos.copy()
        q[3:7] *= np.sign(q[3:7] @ turned)
        return q

    kinds = mujoco.mjtIntegrator
    exact = theirs(1e-4, 2000, kinds.mjINT_RK4)
    found = []
    for dt, steps in ((2e-3, 100), (1e-3, 200), (5e-4, 400)):
        q, other = ours(dt, steps), theirs(dt, steps, kinds.mjINT_EULER)
        found.append([np.abs(x).max() for x in (q - exact, other - exact, q - other)])
    found = np.array(found)
    order = np.log2(found[:-1] / found[1:])
    assert (order > 0.9).all() and (order < 1.1).all(), (order, found)
    # Here as far from the motion as there.
    assert (found[:, 0] < 2 * found[:, 1]).all(), found


ROWS = {
    "skew pair": (("2 1 1", "0 -1 1.5"), "Universal"),
    "right-handed": (("0 0.6 0.8", "1 0 0", "0 0.8 -0.6"), "Gimbal"),
    "left-handed": (("1 0 0", "0 0 1", "0 1 0"), "Gimbal"),
    "skew three": (("1 0 0", "0 1 0", "0 1 1"), "Chain"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_hinges_that_meet_in_a_point_are_the_joint_of_their_axes(name):
    axes, kind = ROWS[name]
    hinges = "".join(f'<joint pos="0.1 0 0.2" axis="{axis}" damping="0.3"/>' for axis in axes)
    text = f"""<mujoco><worldbody><body pos="0 0 1" euler="20 30 40"><inertial mass="2"
      pos="0.2 0.1 -0.3" diaginertia="0.02 0.03 0.04"/>{hinges}</body></worldbody></mujoco>"""
    read = load_mjcf(text, strict=True)
    assert type(read.build()[0].groups[0].coupling).__name__ == kind
    assert_same_motion(text, read)


@pytest.mark.parametrize(
    ("second", "order"),
    [pytest.param("0 2 0", (0, 1, 2), marks=pytest.mark.slow), ("0 -1 0", (1, 0, 2))],
)
def test_slides_and_a_hinge_in_a_plane_are_a_planar_joint(second, order):
    text = f"""<mujoco><worldbody><body pos="0 0 1" euler="20 30 40"><inertial mass="2"
      pos="0.2 0.1 -0.3" diaginertia="0.02 0.03 0.04"/>
      <joint name="0" type="slide" axis="1 0 0" ref="0.3"/><joint name="1" type="slide"
      axis="{second}" damping="0.5"/><joint name="2" axis="0 0 1" pos="0.1 0 0.2" ref="0.2"/>
      </body></worldbody></mujoco>""".replace("<mujoco>", '<mujoco><compiler angle="radian"/>')
    read = load_mjcf(text, strict=True)
    assert type(read.build()[0].groups[0].coupling) is jj.Planar
    assert [read.coordinates[name] for name in "012"] == [("0+1+2", i) for i in order]
    assert_same_motion(text, read)


@pytest.mark.slow
def test_a_stop_gives_way_as_in_mujoco_where_its_impedance_is_constant():
    text = """<mujoco><worldbody><body>
      <joint name="slide" type="slide" axis="0 0 1" range="-0.1 1" limited="true"
             solreflimit="0.03 0.8" solimplimit="0.9 0.9 0.001"/>
      <geom size="0.1"/></body></worldbody></mujoco>"""
    system, state = load_mjcf(text, strict=True).build()
    run = jax.jit(lambda s: jj.rollout(system, s, dt=2e-3, steps=1000, record_every=1000)[0])
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    mujoco.mj_step(m, d, 1000)
    depth = -0.1 - d.qpos[0]
    assert depth > 1e-4
    assert -0.1 - float(run(state).q[0]) == pytest.approx(depth, rel=1e-6)


SURFACES = {
    "pyramid": ("pyramidal", 'friction="1"', 0.0),
    "flat pyramid in a margin": ("pyramidal", 'friction="0.4" margin="0.01"', 0.02),
    "cone": ("elliptic", 'friction="0.4"', 0.0),
    "no friction": ("pyramidal", 'condim="1" margin="0.01"', 0.02),
    "spin and rolling": ("pyramidal", 'friction="0.7" condim="6"', 0.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SURFACES)
def test_a_ball_rests_on_a_plane_as_deep_as_in_mujoco(name):
    cone, surface, margin = SURFACES[name]
    surface += ' solimp="0.9 0.9 0.001"'
    text = f"""<mujoco><option cone="{cone}"/><worldbody>
      <geom name="floor" type="plane" size="1 1 1" {surface}/>
      <body name="ball" pos="0 0 {0.11 + margin}"><freejoint/>
      <geom name="skin" size="0.1" {surface}/></body></worldbody></mujoco>"""
    with pytest.warns(LoadWarning, match="contact of 1 pairs of geoms; contacts=True"):
        load_mjcf(text)
    system, state = load_mjcf(text, contacts=True, strict=True).build()
    assert system.topology.contacts == ("skin on floor",)
    run = jax.jit(lambda s: jj.rollout(system, s, dt=2e-3, steps=1000, record_every=1000)[0])
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    mujoco.mj_step(m, d, 1000)
    depth = 0.1 + margin - d.qpos[2]
    assert depth > 1e-5
    found = 0.1 + margin - float(run(state).position[2, 0])
    assert found == pytest.approx(depth, rel=1e-3)


# Distance of a ball from the hinge of its body, its surface, the stop of the hinge.
ZEROS = {
    "no inverse inertia of a body": (0.0, 'friction="0.4"', ""),
    "hardly any of a joint": (0.0, "", 'armature="1e18"'),
    "no friction": (0.2, 'friction="0"', ""),
    "no friction and no inverse inertia": (0.0, 'friction="0"', ""),
    "no damping ratio": (0.0, "", 'solreflimit="0.03 0"'),
    "no time constant": (0.0, "", 'solreflimit="1e-9 1"'),
    "no weight of a surface": (0.2, 'solmix="0"', ""),
}


@pytest.mark.parametrize(("arm", "surface", "stop"), ZEROS.values(), ids=list(ZEROS))
def test_stiffness_and_damping_are_those_of_mujoco_where_its_numbers_are_zero(arm, surface, stop):
    """Of a ball that is pressed into a plane, or of a hinge beyond its stop."""
    height = 0.3 if stop else 0.09
    text = f"""<mujoco><compiler angle="radian"/><option><flag refsafe="disable"/></option>
      <default><geom solimp="0.9 0.9 0.001" {surface}/></default>
      <worldbody><geom name="floor" type="plane" size="1 1 1"/>
      <body pos="0 0 {height}"><joint name="turn" axis="0 1 0" ref="{-0.2 if stop else 0.2}"
        limited="true" range="-0.1 1" solimplimit="0.8 0.8 0.001" {stop}/>
        <geom name="ball" size="0.1" pos="{arm} 0 0"/></body></worldbody></mujoco>"""
    read = load_mjcf(text, contacts=True)
    with pytest.warns(UserWarning, match="outside its lower"):
        system, _ = read.build()
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    law = system.joint("turn").laws[-1] if stop else system.contact("ball on floor").laws[0]
    assert d.nefc == (1 if stop else 4)
    # Its rows act in parallel, each with the stiffness K d/R and the damping B/R.
    K, B, impedance, _ = d.efc_KBIP.T
    assert float(law.stiffness) == pytest.approx((K * impedance / d.efc_R).sum(), rel=1e-9)
    assert float(law.damping) == pytest.approx((B / d.efc_R).sum(), rel=1e-9)


@pytest.mark.slow
def test_a_ball_that_turns_about_its_own_centre_touches_a_plane():
    text = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
      <body pos="0 0 {}"><joint name="turn" axis="0 1 0"/><geom name="ball" size="0.1"/></body>
      </worldbody><actuator><motor joint="turn"/></actuator></mujoco>"""
    # Three passes would leave 1e-4 of the slip of the first step, when friction has no bound yet.
    scheme = jj.SemiImplicitEuler(jj.Newton(passes=6))
    step = jax.jit(lambda system, *args: jj.step(system, *args, dt=2e-3, scheme=scheme)[0])
    found = []
    for height in (0.11, 0.099):
        read = load_mjcf(text.format(height), contacts=True, strict=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*outside its lower 0 by 0.001", UserWarning)
            system, state = read.build()
        for _ in range(20):
            state = step(system, state, read.control(system, [0.5]))
        found.append(float(state.q[0]))
        m = mujoco.MjModel.from_xml_string(text.format(height))
        d = mujoco.MjData(m)
        d.ctrl[:] = 0.5
        mujoco.mj_step(m, d, 20)
        assert found[-1] == pytest.approx(d.qpos[0], abs=1e-9)
    # Free above the plane, held by friction where it is pressed into it.
    assert found[0] > 0.02 and abs(found[1]) < 1e-9


def test_a_tendon_without_arms_pulls_nothing():
    text = """<mujoco><worldbody><body><joint name="j"/><geom size="0.1"/></body></worldbody>
      <tendon><fixed name="slack" range="0.1 1" limited="true"><joint joint="j" coef="0"/></fixed>
      </tendon><actuator><position tendon="slack" kp="3" forcerange="-2 2"/></actuator></mujoco>"""
    with pytest.warns(LoadWarning, match="tendon 'slack', whose coefficients add up to 0"):
        read = load_mjcf(text)
    system, _ = read.build()
    assert read.control(system, [1.0]).effort is None


def test_what_is_wrong_with_a_compiled_model_is_told_with_its_line():
    text = """<mujoco><worldbody><body name="a"><geom size="0.1"/>
      <joint name="j" range="-1 1" limited="true" solreflimit="1e200 1"/></body>
      </worldbody></mujoco>"""
    with pytest.raises(LoadError, match=r"cannot be read \(OverflowError.*its numbers") as told:
        load_mjcf(text)
    assert (told.value.line, told.value.element) == (2, "joint 'j'")


@pytest.mark.slow
def test_round_geoms_touch_each_other_on_request():
    text = """<mujoco><default><geom solimp="0.9 0.9 0.001" friction="0.6"/></default><worldbody>
      <geom name="post" type="capsule" size="0.1 0.5" euler="90 0 0"/>
      <body name="a" pos="0 0 0.3"><joint type="slide" axis="0 0 1"/>
        <geom name="skin" size="0.1" mass="2"/></body>
      <body name="b" pos="0 0 0.6"><joint type="slide" axis="0 0 1"/>
        <geom name="lid" size="0.1" mass="1"/><geom type="box" size="0.01 0.01 0.01"/></body>
      </worldbody></mujoco>"""
    with pytest.warns(LoadWarning, match="contact of 5 pairs of geoms; contacts='all'"):
        load_mjcf(text, contacts=True)
    system, state = load_mjcf(text, contacts="all", strict=True).build()
    # The ends of the capsule on the box are two.
    names = {"skin on post", "lid on post", "lid on skin"}
    boxes = {name for name in system.topology.contacts if "geom" in name}
    assert set(system.topology.contacts) == names | boxes and len(boxes) == 3
    run = jax.jit(lambda s: jj.rollout(system, s, dt=2e-3, steps=1000, record_every=1000)[0])
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    mujoco.mj_step(m, d, 1000)
    height = np.array([0.2, 0.4])
    assert (height - d.xpos[1:, 2] > 1e-4).all()
    np.testing.assert_allclose(height - run(state).position[2], height - d.xpos[1:, 2], rtol=1e-3)
    with pytest.raises(ValueError, match="contacts 'planes' must be True, False or 'all'"):
        load_mjcf(text, contacts="planes")


EQUALITIES = """<mujoco><worldbody>
  <body name="crank"><joint name="1" axis="0 1 0"/>
    <geom type="capsule" fromto="0 0 0 0 0 1" size="0.02"/>
    <body name="bar" pos="0 0 1"><joint name="2" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 1 0 0" size="0.02"/></body></body>
  <body name="rocker" pos="1 0 0"><joint name="3" axis="0 1 0"/>
    <geom type="capsule" fromto="0 0 0 0 0 1" size="0.02"/></body>
  <body name="a" pos="3 0 0"><joint name="4" axis="0 0 1" ref="30"/>
    <geom size="0.1" pos="0.2 0 0"/></body>
  <body name="b" pos="4 0 0"><joint name="5" axis="0 0 1"/><geom size="0.1" pos="0.2 0 0"/></body>
  <body name="c" pos="5 0 0"><joint name="6" axis="0 0 1"/><geom size="0.1" pos="0.2 0 0"/></body>
  <body name="d" pos="5 0 2"><freejoint/><geom size="0.1"/></body>
  <body name="e" pos="5 0 3"><freejoint/><geom size="0.1" mass="2"/></body>
</worldbody><equality>
  <connect name="pin" body1="bar" body2="rocker" anchor="1 0 0"/>
  <joint name="curve" joint1="5" joint2="4" polycoef="0.1 0.5 0.2 0 0"/>
  <joint name="hold" joint1="6" polycoef="0.3 0 0 0 0"/>
  <weld name="glue" body1="d" body2="e"/>
  <weld name="off" body1="d" active="false"/>
</equality></mujoco>"""


@pytest.mark.slow
def test_equalities_close_loops_and_couple_coordinates():
    with pytest.warns(LoadWarning, match="contact of"):
        read = load_mjcf(EQUALITIES)
    # Joints 5 and 6 of the file stand at 0, which is 0.1 and 0.3 off what their equalities say.
    with pytest.warns(
        UserWarning, match="'(curve|hold)': its value is 0.[13] at the start"
    ) as told:
        system, state = read.build()
    assert len(told) == 2
    assert set(system.topology.joints) == {"1", "2", "3", "4", "5", "6", "pin", "glue", "off"}
    assert float(jj.joint_errors(system, state)[: len(system.topology.joints) - 1].max()) < EXACT
    q0, x = np.deg2rad(30.0), np.deg2rad(30.0) + 0.4
    control = system.control(effort={"4": 2.0, "1": 5.0})
    run = jax.jit(
        lambda s: jj.rollout(system, s, lambda _: control, dt=1e-3, steps=400, record_every=400)[0]
    )
    end = run(state)
    q = {name: float(end.q[system.coordinate(name)][0]) for name in "123456"}
    x = q["4"] - q0
    assert x > 0.5 and abs(q["1"]) > 0.1
    assert q["5"] == pytest.approx(0.1 + 0.5 * x + 0.2 * x**2, abs=1e-4)
    assert q["6"] == pytest.approx(0.3, abs=1e-6)
    # The parallelogram stays one, and the welded bodies together, a metre apart.
    assert q["2"] == pytest.approx(-q["1"], abs=1e-4)
    assert q["3"] == pytest.approx(q["1"], abs=1e-4)
    d, e = (end.position[:, system.body(name)] for name in "de")
    np.testing.assert_allclose(e - d, [0.0, 0.0, 1.0], atol=1e-6)


def test_shapes_and_sites_stand_where_mujoco_puts_them():
    read = load_mjcf(EVERYTHING)
    kinds = [type(visual.shape) for visual in read.visuals]
    assert kinds == [Plane, Box, Cylinder, Capsule, Mesh, Box, Sphere]
    assert read.visuals[0].body == jj.WORLD
    # The plate has no joint, so it and its site are parts of the arm.
    m = mujoco.MjModel.from_xml_string(EVERYTHING)
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    body, (position, rotation) = read.frames["tip"]
    assert body == "arm"
    R = d.xmat[1].reshape(3, 3)
    np.testing.assert_allclose(R @ position + d.xpos[1], d.site_xpos[0], atol=EXACT)
    np.testing.assert_allclose(R @ rotation, d.site_xmat[0].reshape(3, 3), atol=EXACT)


def test_a_servo_of_limited_force_is_a_law():
    text = """<mujoco><worldbody><body><joint name="j"/><geom size="0.1"/></body></worldbody>
      <actuator><position name="p" joint="j" kp="8" kv="2" forcerange="-3 3" ctrlrange="-1 1"
       gear="2"/></actuator></mujoco>"""
    read = load_mjcf(text, strict=True)
    system, _ = read.build()
    (servo,) = system.joint("j").laws
    assert [float(x) for x in (servo.stiffness, servo.damping, servo.effort)] == [32.0, 8.0, 6.0]
    # A control of 5 is clipped to 1, where 8 N m/rad aim at 2 q = 1.
    assert float(read.control(system, [5.0]).target[0]) == pytest.approx(0.5)


def test_actuators_of_a_group_that_is_off_do_nothing():
    text = """<mujoco><option actuatorgroupdisable="3"/><worldbody>
      <body><joint name="j"/><geom size="0.1"/></body></worldbody>
      <actuator><motor name="off" joint="j" group="3"/><motor name="on" joint="j" gear="2"/>
      <motor name="late" joint="j" delay="0.1" nsample="9"/></actuator></mujoco>"""
    with pytest.warns(LoadWarning, match=r"'off' \(in line 3\): its group is off") as told:
        read = load_mjcf(text)
    assert "delay of actuator 'late'" in str(told[0].message)
    system, _ = read.build()
    assert [float(x) for x in read.control(system, [5.0, 1.0, 0.0]).effort] == [2.0]


def test_what_is_skipped_is_listed_once():
    text = """<mujoco><custom><numeric name="n" data="1"/></custom><worldbody><body>
      <joint name="j" range="-1 1" limited="true"/><geom size="0.1"/><site name="s"/></body>
      <site name="t" pos="0 0 1"/><light/><camera/></worldbody>
      <tendon><spatial name="rope"><site site="s"/><site site="t"/></spatial></tendon>
      <actuator><muscle name="m" joint="j"/></actuator><sensor><jointpos joint="j"/></sensor>
      </mujoco>"""
    with pytest.warns(LoadWarning) as record:
        read = load_mjcf(text)
    assert len(record) == 1
    for part in (
        "custom (in line 1)",
        "sensor (in line 5)",
        "spatial tendon 'rope'",
        "actuator 'm'",
        "light (1)",
        "camera (1)",
    ):
        assert any(line.startswith(part) for line in read.skipped), part
    with pytest.raises(LoadError, match="spatial tendon 'rope'"):
        load_mjcf(text, strict=True)


WEDGE = "\n".join(
    [
        *(f"v {point}" for point in ("0 0 0", "1 0 0", "0 1 0", "0 0 1")),
        *(f"f {corners}" for corners in ("1 3 2", "1 2 4", "2 3 4", "1 4 3")),
    ]
)
BODY = '<worldbody><body name="{}"><joint/><geom size="0.1"/></body></worldbody>'
BAD = {
    "no xml": ("<mujoco", "is no well-formed XML"),
    "other format": ("<robot/>", "must be 'mujoco'"),
    "entity": ('<!DOCTYPE m [<!ENTITY a "b">]><mujoco model="&a;"/>', "entities are refused"),
    "number": (
        "<mujoco>\n<worldbody>\n<geom size='x'/></worldbody></mujoco>",
        "line 3.*MuJoCo says",
    ),
    "unknown element": ("<mujoco>\n<wordlbody/></mujoco>", "line 2.*MuJoCo says"),
    "no mass": (
        "<mujoco><worldbody><body name='a'><joint/></body></worldbody></mujoco>",
        "'a': MuJoCo says",
    ),
    "the world's name": ("<mujoco>" + BODY.format("world") + "</mujoco>", "world"),
    "absolute include": (
        '<mujoco><include file="/etc/passwd"/></mujoco>',
        "roots= gives no folder",
    ),
    "mesh": ('<mujoco><asset><mesh file="a.stl"/></asset></mujoco>', "roots= gives no folder"),
    "attached model": ('<mujoco><asset><model file="a"/></asset></mujoco>', "are not read"),
    "file of a sensor": ('<mujoco><option file="a"/></mujoco>', "is not read for option"),
    "copies": (
        "<mujoco><worldbody><replicate count='1000'><replicate count='1000'/></replicate>"
        "</worldbody></mujoco>",
        "makes 1000000 copies",
    ),
    "height field": (
        "<mujoco><asset><hfield nrow='100000' ncol='100000' size='1 1 1 1'/></asset></mujoco>",
        "1e\\+10 points",
    ),
    "long name": ("<mujoco>" + BODY.format("a" * 1000) + "</mujoco>", "longer than 256"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=list(BAD))
def test_a_bad_file_is_refused_in_a_sentence(text, message):
    with pytest.raises(LoadError, match=message):
        load_mjcf(text)


def test_includes_are_followed_inside_the_roots_alone(tmp_path):
    inner = tmp_path / "model"
    inner.mkdir()
    (inner / "robot.xml").write_text('<mujoco><include file="body.xml"/></mujoco>')
    (inner / "body.xml").write_text(f"<mujocoinclude>{BODY.format('a')}</mujocoinclude>")
    system, _ = load_mjcf(inner / "robot.xml", roots=[inner]).build()
    assert system.topology.bodies == ("a",)
    (inner / "body.xml").write_text('<mujocoinclude><include file="body.xml"/></mujocoinclude>')
    with pytest.raises(LoadError, match="files include each other: .*body.xml -> .*body.xml"):
        load_mjcf(inner / "robot.xml", roots=[inner])
    (tmp_path / "body.xml").write_text(f"<mujocoinclude>{BODY.format('a')}</mujocoinclude>")
    for name in ("../body.xml", str(tmp_path / "body.xml")):
        with pytest.raises(LoadError, match="leads out of the roots"):
            load_mjcf(f'<mujoco><include file="{name}"/></mujoco>', roots=[inner])


def test_files_are_found_beside_the_model_or_else_beside_the_included_file(tmp_path):
    """As MuJoCo finds them, with both separators."""
    parts = tmp_path / "parts"
    parts.mkdir()
    model = tmp_path / "robot.xml"
    model.write_text('<mujoco><include file="parts\\arm.xml"/></mujoco>')
    (parts / "arm.xml").write_text(
        """<mujocoinclude><compiler meshdir="nowhere"/><include file="body.xml"/>
          <asset><mesh name="m" file="wedge.obj"/></asset></mujocoinclude>"""
    )
    body = (
        "<mujocoinclude>"
        + BODY
        + '<worldbody><geom type="mesh" mesh="m" contype="0" conaffinity="0"/></worldbody>'
    )
    body += "</mujocoinclude>"
    (parts / "body.xml").write_text(body.format("beside the arm"))
    (parts / "wedge.obj").write_text(WEDGE)
    names = ["beside the arm", "beside the model"]
    for name in names:
        m = mujoco.MjModel.from_xml_path(str(model))
        assert m.body(1).name == name and m.nmesh == 1
        read = load_mjcf(model, roots=[tmp_path])
        assert read.builder.bodies == (name,)
        assert len(read.visuals) == 2
        # What stands beside the model is taken first.
        (tmp_path / "body.xml").write_text(body.format(names[1]))
    with pytest.raises(LoadError, match="'parts/wedge.obj': there is no such file"):
        load_mjcf('<mujoco><asset><mesh file="parts/wedge.obj"/></asset></mujoco>', roots=[parts])


def test_geoms_that_are_paired_twice_have_two_contacts():
    """As in MuJoCo."""
    text = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1" contype="0"/>
      <body pos="0 0 0.1"><freejoint/><geom name="ball" size="0.1" conaffinity="0"/></body>
      </worldbody><contact><pair geom1="floor" geom2="ball" condim="1"/>
      <pair geom1="floor" geom2="ball" friction="0.5"/></contact></mujoco>"""
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    mujoco.mj_step(m, d)
    read = load_mjcf(text, contacts=True)
    assert len(read.builder._contacts) == d.ncon == 2
    system, _ = read.build()
    assert system.topology.contacts == ("ball on floor", "ball on floor'")


def test_a_body_without_geoms_moves_in_a_medium():
    body = '<body name="a"><joint/><inertial pos="0 0 1" mass="1" diaginertia="1 1 1"/></body>'
    text = f'<mujoco><option density="1"/><worldbody>{body}</worldbody></mujoco>'
    assert load_mjcf(text).builder.bodies == ("a",)
    assert not load_mjcf('<mujoco><option density="1"/></mujoco>').builder.bodies


def test_a_mesh_is_handed_over_from_the_roots(tmp_path):
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes" / "wedge.obj").write_text(WEDGE)
    text = """<mujoco><compiler meshdir="meshes"/>
      <asset><mesh file="wedge.obj" scale="0.1 0.1 0.1"/></asset>
      <worldbody><body name="a"><joint/><geom type="mesh" mesh="wedge"/></body></worldbody>
      </mujoco>"""
    read = load_mjcf(text, roots=[tmp_path])
    (visual,) = read.visuals
    corners = visual.shape.vertices @ visual.frame[0].T + visual.frame[1]
    wanted = [[0, 0, 0], [0, 0, 0.1], [0, 0.1, 0], [0.1, 0, 0]]
    np.testing.assert_allclose(sorted(corners.round(6).tolist()), wanted, atol=1e-6)
