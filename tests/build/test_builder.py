"""What the builder makes: where bodies start, how joints are grouped, which leaves there are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import coordinate_speeds
from jaxjoints.algebra.pytree import replace, struct
from jaxjoints.algebra.spatial import Pose, error_twist, norm
from jaxjoints.build.builder import SystemBuilder
from jaxjoints.couplings.coupling import Residual
from jaxjoints.couplings.linear import Cylindrical, Helical, Slider
from jaxjoints.couplings.rigid import Fixed, Free
from jaxjoints.couplings.rotary import Ball, Hinge, Universal
from jaxjoints.laws.limits import Limits
from jaxjoints.laws.softness import Compliance, Softness
from jaxjoints.laws.springs import Damping, SpringDamper
from jaxjoints.model.measures import body_poses
from jaxjoints.model.state import STATE_RANKS
from support.cases import mostly_slow

SOLID = {"mass": 1.0, "inertia": (0.1, 0.1, 0.1)}
Y = (0.0, 1.0, 0.0)
TURNED = Pose.from_rotation_vector(jnp.array([0.4, -0.7, 0.3]), jnp.array([0.2, 0.5, -0.3]))
COUPLINGS = [
    Hinge(axis=(0.0, 3.0, 4.0)),
    Ball(),
    Universal(),
    Slider(axis=(1.0, 2.0, 2.0)),
    Cylindrical(),
    Helical(pitch=0.3),
    Fixed(),
    Free(),
]


def couplings(*default):
    """Each coupling in a test of its own, of which those of the named types run by default."""
    cases = mostly_slow(COUPLINGS, default=default, name=lambda coupling: type(coupling).__name__)
    return pytest.mark.parametrize("coupling", cases)


def assert_close(actual, expected, operations=256):
    """Equal but for `operations` roundings of numbers of order one."""
    tolerance = operations * float(jnp.finfo(jnp.result_type(float)).eps)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance),
        actual,
        expected,
    )


def double_pendulum(**options):
    """Two rods of length 1 that hang along -z and turn about y, centres of mass halfway."""
    world = SystemBuilder()
    com = (0.0, 0.0, -0.5)
    world.body("upper", **SOLID, com=com)
    world.body("lower", **SOLID, com=com)
    world.joint("shoulder", Hinge(axis=Y), child="upper", **options)
    world.joint(
        "elbow", Hinge(axis=Y), child="lower", parent="upper", frame_D=(0, 0, -1), **options
    )
    return world


def one_joint(coupling, **options):
    """A body 'b' on a prescribed body 'a', C and D off their origins."""
    world = SystemBuilder()
    world.body("a", prescribed=True, pose=(0.1, 0.2, 0.3))
    world.body("b", **SOLID, com=(0.1, -0.2, 0.3))
    frames = {"frame_C": Pose.along_x(0.5) @ TURNED, "frame_D": TURNED}
    world.joint("j", coupling, child="b", parent="a", **frames, **options)
    return world


def relative(joint, system, state, q):
    """T_CD of the joint of `one_joint`."""
    poses = body_poses(system, state)
    a, b = (poses[i] for i in range(2))
    return (a @ joint.frame_D).inverse() @ (b @ joint.frame_C)


def start_values(coupling, batch=()):
    """Coordinates and speeds of order 0.5."""
    rng = np.random.default_rng(coupling.dof)
    return tuple(rng.uniform(-0.6, 0.6, (coupling.dof, *batch)) for _ in "ab")


poses_of = jax.jit(body_poses)


@pytest.fixture(scope="module")
def pendulum():
    return double_pendulum().build()[0]


def test_double_pendulum_starts_where_its_coordinates_say(pendulum):
    a, b, da, db = 0.3, -0.8, 1.5, 0.7
    state = pendulum.state(q={"shoulder": a, "elbow": b}, qd={"shoulder": da, "elbow": db})
    lean = np.array([-np.sin(a), 0, -np.cos(a)])
    fall = np.array([-np.sin(a + b), 0, -np.cos(a + b)])
    assert_close(state.position, np.stack([lean / 2, lean + fall / 2], axis=1))
    across = np.array([-np.cos(a), 0, np.sin(a)])
    below = np.array([-np.cos(a + b), 0, np.sin(a + b)])
    moving = np.stack([da * across / 2, da * across + (da + db) * below / 2], axis=1)
    assert_close(state.velocity, moving)
    assert_close(state.omega, np.array([[0, 0], [da, da + db], [0, 0]]))
    assert_close(state.quaternion[0], np.cos([a / 2, (a + b) / 2]))
    assert_close(state.q, np.array([a, b]))
    assert state.time == 0


def test_build_starts_as_state_does(pendulum):
    world = double_pendulum(q=0.4, qd=-0.3)
    _, built = world.build()
    both = {"shoulder": 0.4, "elbow": 0.4}, {"shoulder": -0.3, "elbow": -0.3}
    assert_close(built, pendulum.state(q=both[0], qd=both[1]))


def test_start_by_coordinates_equals_start_by_poses(pendulum):
    q, qd = {"shoulder": 0.3, "elbow": 7.0}, {"shoulder": 1.5, "elbow": 0.7}
    state = pendulum.state(q=q, qd=qd)
    poses = poses_of(pendulum, state)
    arms = poses.rotate(jnp.broadcast_to(jnp.array([[0.0], [0.0], [0.5]]), (3, 2)))
    origins = state.velocity + jnp.cross(state.omega, arms, axis=0)
    names = pendulum.topology.bodies
    again = pendulum.state(
        q={"elbow": 7.0},  # says which turn
        pose={n: poses[i] for i, n in enumerate(names)},
        velocity={
            n: jnp.concatenate([origins[:, i], state.omega[:, i]]) for i, n in enumerate(names)
        },
    )
    assert_close(again, state)


@couplings("Universal", "Free")
def test_bodies_stand_and_move_as_coordinates_and_speeds_say(coupling):
    q, qd = start_values(coupling)
    system, state = one_joint(coupling, q=q, qd=qd).build()
    joint = system.joint("j")
    gap = jax.jit(lambda *x: error_twist(joint.coupling.pose(x[2]).inverse() @ relative(joint, *x)))
    assert_close(gap(system, state, state.q), np.zeros(6))
    assert_close(state.q, q)
    assert_close(jax.jit(coordinate_speeds)(system, state), qd)


@couplings("Universal")
def test_parent_is_placed_from_its_child(coupling):
    q, qd = start_values(coupling)
    system, state = one_joint(coupling, q=q, qd=qd).build()
    pose, i = poses_of(system, state), system.body("b")
    arm = pose.rotate(-system.com)
    velocity = state.velocity + jnp.cross(state.omega, arm, axis=0)
    b = {"b": pose[i]}
    moving = {"b": jnp.concatenate([velocity[:, i], state.omega[:, i]])}
    assert_close(system.state(q={"j": q}, qd={"j": qd}, pose=b, velocity=moving), state, 1024)


@couplings("Universal")
def test_batch_of_starts_equals_loop(coupling):
    q, qd = start_values(coupling, (3, 2))
    system, _ = one_joint(coupling).build()
    heights = np.linspace(0.0, 1.0, 6).reshape(3, 2)
    pose = np.stack([0 * heights, 0 * heights, heights])
    batch = system.state(q={"j": q}, qd={"j": qd}, pose={"a": pose})
    for i, k in np.ndindex(3, 2):
        one = system.state(q={"j": q[:, i, k]}, qd={"j": qd[:, i, k]}, pose={"a": pose[:, i, k]})
        assert_close(jax.tree.map(lambda x: x[..., i, k], batch), one, 1024)  # noqa: B023
    shapes = jax.tree.map(lambda x, rank: x.shape[rank:], batch, STATE_RANKS)
    assert set(jax.tree.leaves(shapes, is_leaf=lambda x: isinstance(x, tuple))) == {(3, 2)}


def test_batch_axes_of_a_single_coordinate_need_no_component_axis(pendulum):
    angles = np.array([0.1, 0.2, 0.3, 0.4])
    state = pendulum.state(q={"shoulder": angles})
    assert_close(state, pendulum.state(q={"shoulder": angles[None]}))
    assert_close(state.q, np.stack([angles, 0 * angles]))
    with pytest.raises(ValueError, match=r"\(3,\) and \(4,\)"):
        pendulum.state(q={"shoulder": angles, "elbow": angles[:3]})


def test_a_batched_system_starts_batched(pendulum):
    frame = replace(
        pendulum.joint("elbow").frame_D, p=jnp.array([[0.0] * 2, [0.0] * 2, [-1.0, -2.0]])
    )
    system = pendulum.with_joint("elbow", frame_D=frame)
    state = system.state()
    assert_close(state.position[2], np.array([[-0.5, -0.5], [-1.5, -2.5]]))


def test_start_is_differentiable(pendulum):
    def height(angle, system):
        return system.state(q={"elbow": angle}).position[2, 1]

    angle = jnp.asarray(0.4)
    by_angle, by_system = jax.jit(jax.grad(height, argnums=(0, 1)))(angle, pendulum)
    assert_close(by_angle, np.sin(0.4) / 2)
    assert_close(by_system.com[2], np.array([0.0, np.cos(0.4)]))
    assert_close(by_system.joint("elbow").frame_D.p[2], 1.0)


def test_com_offset_enters_position_and_velocity():
    world = SystemBuilder()
    turn = Pose.about_z(jnp.pi / 2)
    pose = (jnp.array([1.0, 0.0, 0.0]), turn.q)
    world.body("b", **SOLID, com=(2.0, 0.0, 0.0), pose=pose, velocity=(1.0, 0, 0, 0, 0, 3.0))
    system, state = world.build()
    assert_close(state.position[:, 0], np.array([1.0, 2.0, 0.0]))
    assert_close(state.velocity[:, 0], np.array([1.0 - 6.0, 0.0, 0.0]))
    assert_close(state.omega[:, 0], np.array([0.0, 0.0, 3.0]))
    assert_close(poses_of(system, state).p[:, 0], np.array([1.0, 0.0, 0.0]))


def test_bodies_without_pose_or_joint_start_at_rest_at_the_identity():
    world = SystemBuilder()
    world.body("base", **SOLID)
    world.body("arm", **SOLID)
    world.joint("j", Slider(), child="arm", parent="base", q=0.5)
    _, state = world.build()
    assert_close(state.position, np.array([[0, 0], [0, 0], [0, 0.5]]))
    assert_close(state.velocity, np.zeros((3, 2)))


def test_frame_W_equals_frames_given_separately():
    def world(**frames):
        builder = SystemBuilder()
        builder.body("a", **SOLID, pose=TURNED)
        builder.body("b", **SOLID, pose=(1.0, 0.0, 0.0))
        builder.joint("j", Hinge(), child="b", parent="a", **frames)
        return builder.build()

    place = Pose.along_x(0.5) @ TURNED
    apart = world(frame_C=Pose.along_x(-1.0) @ place, frame_D=TURNED.inverse() @ place)
    assert_close(world(frame_W=place), apart)


def test_prescribed_bodies_need_no_mass_and_do_not_move():
    system, state = one_joint(Hinge()).build()
    assert system.topology.moving == (False, True)
    assert_close(system.mass, np.array([1.0, 1.0]))
    assert_close(state.position[:, 0], np.array([0.1, 0.2, 0.3]))


@pytest.mark.parametrize(
    ("first", "second", "groups"),
    [
        ({}, {}, 1),
        ({"laws": [Limits(-1, 1)]}, {"laws": [Limits(-2, 0.5)]}, 1),
        ({"laws": [Limits(-1, 1)]}, {"laws": [Limits(-1, np.inf)]}, 2),
        ({"laws": [Limits(-1, 1)]}, {"laws": [Limits(-1, 1, anticipate=False)]}, 2),
        ({"laws": [Damping(1.0)]}, {}, 2),
        ({"attachment": "own"}, {}, 2),
        ({"softness": Softness(cfm=1e-6)}, {}, 2),
        ({"softness": Softness(erp=0.4)}, {}, 1),
    ],
)
def test_joints_of_equal_structure_make_one_group(first, second, groups):
    world = SystemBuilder()
    world.body("a", **SOLID)
    world.body("b", **SOLID)
    world.joint("ja", Hinge(), child="a", **first)
    world.joint("jb", Hinge(axis=Y), child="b", **second)
    system, _ = world.build()
    assert len(system.groups) == groups
    assert sorted(j for group in system.groups for j in group.joints) == [0, 1]


def test_coordinates_follow_the_order_of_joints():
    world = SystemBuilder()
    for i, coupling in enumerate([Hinge(), Cylindrical(), Hinge(), Fixed(), Ball()]):
        world.body(f"b{i}", **SOLID)
        world.joint(f"j{i}", coupling, child=f"b{i}", q=(i + 0.1 * np.arange(coupling.dof)) / 10)
    system, state = world.build()
    assert [group.start for group in system.groups] == [(0, 3), (1,), (4,), (4,)]
    assert system.coordinate("j4") == slice(4, 7)
    assert_close(state.q, np.array([0, 1, 1.1, 2, 4, 4.1, 4.2]) / 10)


def test_closed_loop_reads_the_coordinates_that_follow():
    """A parallelogram of unit bars: the last angle follows from the others."""
    world = SystemBuilder()
    for name in ("left", "top", "right"):
        world.body(name, **SOLID)
    world.joint("a", Hinge(axis=Y), child="left")
    world.joint("b", Hinge(axis=Y), child="top", parent="left", frame_D=(0, 0, 1))
    world.joint("c", Hinge(axis=Y), child="right", frame_D=(1, 0, 0))
    world.joint(
        "d", Hinge(axis=Y), child="top", parent="right", frame_C=(1, 0, 0), frame_D=(0, 0, 1)
    )
    system, _ = world.build()
    angles = {"a": 0.3, "b": -0.3, "c": 0.3}
    state = system.state(q=angles, qd={"a": 1.0, "b": -1.0, "c": 1.0})
    assert_close(state.q, np.array([0.3, -0.3, 0.3, -0.3]))
    assert_close(jax.jit(coordinate_speeds)(system, state), np.array([1.0, -1.0, 1.0, -1.0]))
    assert_close(system.state(q=angles | {"d": -0.3}), system.state(q=angles))
    with pytest.raises(ValueError, match="'d'"):
        system.state(q=angles | {"d": 0.3})
    with pytest.raises(ValueError, match="'d'"):
        system.state(q=angles, qd={"d": 0.3})
    with pytest.warns(UserWarning, match="'d'.*miss each other"):
        system.state(q={"a": 0.3})


def test_a_surface_that_moves_with_time_carries_its_body():
    @struct
    class Lift(Residual):
        speed: jax.Array
        dof = 0

        def residual(self, T, t):
            return error_twist(T) - self.speed * t * jnp.eye(6, dtype=T.p.dtype)[2]

    _, state = one_joint(Lift(speed=2.0)).build()
    assert_close(norm(state.velocity)[1], 2.0)


def test_leaves_are_floats_of_the_declared_ranks():
    laws = [Limits(-1, None, stiffness=5), SpringDamper(1, 2, 0), Damping(1)]
    system, state = one_joint(Hinge(axis=(0, 0, 1)), laws=laws).build()
    dtype = jnp.result_type(float)
    for leaf in jax.tree.leaves((system, state)):
        assert isinstance(leaf, jax.Array) and leaf.dtype == dtype and not leaf.weak_type
    leaves = jax.tree.leaves(system)
    assert system.topology.ranks == tuple(leaf.ndim for leaf in leaves)
    assert all(leaf.shape[-1] == 1 for leaf in jax.tree.leaves(system.groups))
    limits, _, _ = system.groups[0].laws
    assert limits.upper is None and limits.erp is None and limits.max_correction is None


def test_leaves_are_copies():
    axis = np.array([0.0, 0.0, 1.0])
    com = np.zeros(3)
    world = SystemBuilder()
    world.body("b", **SOLID, com=com)
    world.joint("j", Hinge(axis=axis), child="b")
    system, _ = world.build()
    axis[0], com[0] = 1.0, 1.0
    assert system.joint("j").coupling.axis[0] == 0 and system.com[0, 0] == 0


def test_records_of_a_joint_can_be_read_and_put_back(pendulum):
    record = pendulum.joint("elbow")
    fields = ("coupling", "frame_C", "frame_D", "laws", "erp", "cfm")
    again = pendulum.with_joint("elbow", **{f: getattr(record, f) for f in fields})
    assert jax.tree.structure(again) == jax.tree.structure(pendulum)
    assert_close(again, pendulum)
    moved = pendulum.with_joint("elbow", frame_D=Pose.along_z(-2.0)).state()
    assert_close(moved.position[2], np.array([-0.5, -2.5]))


def test_gradient_of_a_system_is_a_system(pendulum):
    gradient = jax.grad(lambda system: jnp.sum(system.mass**2))(pendulum)
    assert jax.tree.structure(gradient) == jax.tree.structure(pendulum)
    assert_close(gradient.mass, 2 * pendulum.mass)


def test_poses_may_be_given_in_any_form():
    forms = [TURNED, (TURNED.p, TURNED.q), (np.asarray(TURNED.p), np.asarray(TURNED.R))]
    found = []
    for form in forms:
        world = SystemBuilder()
        world.body("b", **SOLID, pose=form)
        system, state = world.build()
        found.append(error_twist(poses_of(system, state)))
    assert_close(found[0], found[1])
    assert_close(found[0], found[2])


def test_a_compliance_of_the_builder_leaves_joints_without_bilateral_rows_alone():
    world = SystemBuilder(softness=Compliance(1e-4))
    world.body("ball", **SOLID)
    world.joint("free", Free(), child="ball", q=(0.0, 0.0, 1.0, 0.0, 0.0, 0.0))
    system, _ = world.build()
    assert system.joint("free").softness.damping.shape == (0,)
