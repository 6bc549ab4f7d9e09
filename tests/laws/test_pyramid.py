"""Friction as in MuJoCo: the edges of a pyramid as stops, beside closed forms and MuJoCo."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints import environments, replace
from jaxjoints.environments.ant import HINGES
from support.differences import points_about, program, slopes_between

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

G, DT, RADIUS, MASS, FRICTION = 9.81, 2e-3, 0.1, 2.0, 0.6
INERTIA = (0.03, 0.03, 0.03)
SHAPES = {"ball": (jj.shapes.Sphere(RADIUS), RADIUS), "box": (jj.shapes.Box((0.4, 0.3, 0.2)), 0.1)}


def world(shape="ball", gravity=(0.0, 0.0, -G), inertia=INERTIA, **surface):
    """A body that touches level ground."""
    builder = jj.SystemBuilder(gravity=gravity)
    touching, height = SHAPES[shape]
    builder.body("body", mass=MASS, inertia=inertia, pose=(0.0, 0.0, height))
    options = {"child": "body", "friction": FRICTION, "cone": "convex"} | surface
    builder.contact("foot", touching, jj.shapes.HalfSpace(), **options)
    return builder.build()


def moving(state, velocity, omega=(0.0, 0.0, 0.0)):
    velocity, omega = (jnp.asarray(x, state.time.dtype) for x in (velocity, omega))
    return replace(state, velocity=velocity[:, None], omega=omega[:, None])


def test_a_body_that_slides_separates_at_the_friction_times_its_slip():
    system, state = world(gravity=(0.0, 0.0, 0.0), inertia=(1e8, 1e8, 1e8))
    slip, fall = 3.0, 1.0
    # Each pass leaves a hundredth of the impulse's change to the floor of the law.
    scheme = jj.SemiImplicitEuler(jj.Newton(passes=6))
    after, info = jj.step(system, moving(state, (slip, 0.0, -fall)), dt=DT, scheme=scheme)
    # One edge pushes, by f: the speed along it, fall and slip together, ends at 0.
    f = (fall + FRICTION * slip) / (1 + FRICTION**2)
    np.testing.assert_allclose(after.velocity[:, 0], [slip - FRICTION * f, 0, f - fall], atol=1e-9)
    expected = MASS * f / DT * np.array([1.0, -FRICTION, 0.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(info.contact_force[:, 0], expected, atol=1e-6)
    assert info.ok and info.friction_excess == 0
    force = jj.reaction(system, after, info, "foot", axes="world")[:3]
    np.testing.assert_allclose(force, expected[[1, 2, 0]], atol=1e-6)


@pytest.mark.parametrize("steepness", [0.95, 1.05])
def test_a_box_sticks_and_slides_on_either_side_of_its_friction(steepness):
    tan = steepness * FRICTION
    system, state = world("box", gravity=(tan * G, 0.0, -G))
    after, _ = jj.rollout(system, state, dt=DT, steps=50)
    speed = float(after.velocity[0, 0])
    if steepness < 1:
        assert abs(speed) < 1e-9
    else:
        assert speed > 1e-3


@pytest.mark.parametrize("shape", SHAPES)
def test_impacts_are_those_of_mujoco(shape):
    mujoco = pytest.importorskip("mujoco")
    touching, height = SHAPES[shape]
    size = f'type="sphere" size="{RADIUS}"' if shape == "ball" else 'type="box" size="0.2 0.15 0.1"'
    # As hard as MuJoCo permits; surfaces overlap by a thousandth of a millimetre.
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco><option timestep="{DT}" tolerance="0" iterations="200"/><default><geom '
        f'solref="{2 * DT} 1" solimp="0.9999 0.9999 0.001"/></default><worldbody>'
        '<geom type="plane" size="1 1 1" friction="0 0 0"/><body><freejoint/>'
        f'<inertial pos="0 0 0" mass="{MASS}" diaginertia="0.03 0.03 0.03"/>'
        f'<geom {size} friction="{FRICTION} 0 0"/></body></worldbody></mujoco>'
    )
    system, state = world(shape, erp=0.25, cfm=0.0, anticipate=False)
    place = state.position.at[2].add(-1e-6)
    draw = np.random.default_rng(0)
    for _ in range(8):
        velocity, omega = draw.normal(size=3), 3 * draw.normal(size=3)
        velocity[2] = -abs(velocity[2])
        if shape == "box":
            omega[:2] = 0.0
        data = mujoco.MjData(model)
        data.qpos[:3], data.qvel[:] = np.ravel(place), [*velocity, *omega]
        mujoco.mj_step(model, data)
        start = moving(replace(state, position=place), velocity, omega)
        after, info = jj.step(system, start, dt=DT)
        found = np.concatenate([after.velocity[:, 0], after.omega[:, 0]])
        assert info.ok
        np.testing.assert_allclose(found, data.qvel, atol=2e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_box_at_rest_stands_and_its_corners_bear_its_weight(dtype):
    system, state = world("box")
    system, state = jax.tree.map(lambda x: x.astype(dtype), (system, state))
    after, info = jj.rollout(system, state, dt=DT, steps=100, record=lambda _, info: info)
    force = info.contact_force[-1].sum(axis=1)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(force[0], MASS * G, rtol=1e4 * eps)
    np.testing.assert_allclose(after.velocity[:, 0], np.zeros(3), atol=1e4 * eps)


def test_a_soft_contact_sinks_by_its_weight_over_its_stiffness():
    system, state = world(stiffness=1e4, damping=2e2)
    after, _ = jj.rollout(system, state, dt=DT, steps=500)
    sunk = RADIUS - float(after.position[2, 0])
    np.testing.assert_allclose(sunk, MASS * G / 1e4, rtol=1e-9)
    springs = jj.energies(system, after).springs
    np.testing.assert_allclose(springs, 1e4 * sunk**2 / 2, rtol=1e-9)


def landing(numbers):
    """Where a spinning ball is after it fell, of its height, velocity, friction and mass."""
    height, vx, vz, spin, friction, mass = numbers
    system, state = world(stiffness=2e4, damping=50.0)
    path = "contact.foot.contact_pyramid.friction"
    system = system.with_numbers({path: friction, "body.body.mass": mass})
    state = moving(state, (vx, 0.0, vz), (0.0, spin, 0.0))
    state = replace(state, position=state.position.at[2, 0].add(height))
    after, _ = jj.rollout(system, state, dt=5e-4, steps=100)
    return jnp.concatenate([after.position[:, 0], after.velocity[:, 0], after.omega[:, 0]])


@pytest.mark.slow
def test_derivatives_through_a_landing_are_finite_differences():
    at = np.array([0.01, 1.0, -1.0, 2.0, 0.5, MASS])
    steps = np.full(len(at), 1e-5)
    values, forward, reverse = program(landing)(np.stack([at, *points_about(at, steps)]))
    expected = slopes_between(values[1:], steps).T
    np.testing.assert_allclose(forward, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(reverse, forward, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("surface", "message"),
    [
        ({"rolling": 0.1}, "leave out rolling; cone 'convex' has one friction alone"),
        ({"friction": (0.1, 0.2)}, r"leave out the second friction of \(0.1, 0.2\)"),
        ({"restitution": 0.5}, "leave out restitution; cone 'convex' has one friction alone"),
        ({"slip": 0.1, "rolling": 0.1}, "leave out rolling, slip; cone"),
        ({"friction": -0.5}, "friction -0.5 must be >= 0"),
        ({"cone": "edge"}, "cone 'edge' must be 'round', 'pyramid', 'convex' or None"),
    ],
)
def test_bad_surfaces_are_refused_by_name(surface, message):
    with pytest.raises(ValueError, match=f"contact 'foot'.*{message}"):
        world(**surface)


@pytest.mark.parametrize(
    ("laws", "message"),
    [
        (
            [jj.ContactPyramid(friction=0.5), jj.ContactFriction(0.5, coordinate=1)],
            "laws ContactPyramid, ContactFriction: a ContactPyramid is stop and friction in one",
        ),
        ([jj.ContactPyramid(coordinate=1)], "leave coordinate 1 out"),
        ([jj.ContactPyramid(bounce_speed=1.0)], "has bounce_speed, which edges do not offer"),
        ([jj.ContactPyramid(restitution=0.5)], "has restitution, which edges do not offer"),
    ],
)
def test_laws_beside_a_pyramid_are_refused(laws, message):
    builder = jj.SystemBuilder()
    builder.body("body", mass=MASS, inertia=INERTIA)
    with pytest.raises(ValueError, match=message):
        builder.contact("foot", SHAPES["ball"][0], jj.shapes.HalfSpace(), child="body", laws=laws)


def test_a_pyramid_belongs_to_contacts():
    builder = jj.SystemBuilder()
    builder.body("body", mass=MASS, inertia=INERTIA)
    with pytest.raises(ValueError, match="joint 'rail'.* acts along edges of a contact"):
        builder.joint(
            "rail", jj.Slider((1.0, 0.0, 0.0)), child="body", laws=jj.ContactPyramid(friction=0.5)
        )


def test_accelerations_refuse_what_acts_over_a_time_step():
    with pytest.raises(ValueError, match="contact 'foot' has a hard ContactPyramid, which acts"):
        jj.dynamics.accelerations(*world())
    soft = jj.ReferenceAcceleration(100.0, 2500.0, 0.5)
    with pytest.raises(ValueError, match="contact 'foot' has ContactPyramid with a reference"):
        jj.dynamics.accelerations(*world(reference=soft))


@pytest.mark.slow
def test_an_ant_pushes_the_ground_as_in_mujoco():
    """Changes of speed in one step from poses in which feet touch; by Coulomb's law they differ."""
    mujoco = pytest.importorskip("mujoco")
    sys.path.append(str(BENCHMARKS))
    from mujoco_model import mujoco_model
    from transfers import to_mujoco

    tasks = {cone: environments.ant(cone=cone) for cone in ("convex", "pyramid")}
    task, dt = tasks["convex"], 2e-3
    model = mujoco_model(task, dt)
    model.geom_solimp[:, :2] = model.jnt_solimp[:, :2] = 0.9999
    key = jax.random.key(3)
    height, speed, turn, angles = (
        jax.random.uniform(k, shape, minval=-1.0)
        for k, shape in zip(jax.random.split(key, 4), ((8,), (14, 8), (2, 8), (8, 8)), strict=True)
    )

    def places(i):
        """A pose in which the lowest foot is 2 µm deep in the ground."""
        q = {name: angles[k, i] * 0.4 for k, name in enumerate(HINGES)}
        q |= {name: 1.1 + 0.4 * angles[k, i] for k, name in enumerate(HINGES) if "ankle" in name}
        pose = jj.Pose.from_rotation_vector(
            0.2 * jnp.append(turn[:, i], 0.0), jnp.asarray([0.0, 0.0, 1.0])
        )
        qd = {name: speed[6 + k, i] for k, name in enumerate(HINGES)}
        fall = -jnp.abs(speed[2:3, i])
        move = {"torso": jnp.concatenate([speed[:2, i], fall, speed[3:6, i]])}
        state = task.system.state(q=q, qd=qd, pose={"torso": pose}, velocity=move)
        gap = float(jj.gaps(task.system, state).min())
        return replace(state, position=state.position.at[2].add(-gap - 2e-6))

    errors = {cone: [] for cone in tasks}
    for i in range(8):
        state = places(i)
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = map(np.asarray, to_mujoco(task, state))
        mujoco.mj_step(model, data)
        for cone, other in tasks.items():
            start = replace(state, row_forces=other.start.row_forces)
            after, _ = jj.step(other.system, start, dt=dt)
            _, found = to_mujoco(other, after)
            errors[cone].append(np.abs(np.asarray(found) - data.qvel).max())
    assert max(errors["convex"]) < 1e-3  # [m/s, rad/s]
    assert max(errors["pyramid"]) > 0.5
