"""Trees of joints that are held by their coordinates: exact speeds, no gap, loops beside them.

Oracles: closed forms, the accelerations of `dynamics`, which recordings of other engines hold, the
same mechanism in another description, and central differences.
"""

from functools import cache
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import (
    WORLD,
    Ball,
    Constraint,
    CoulombFriction,
    Cylindrical,
    DoubleHinge,
    Fixed,
    Gimbal,
    Helical,
    Hinge,
    Limits,
    Newton,
    ProjectedGaussSeidel,
    SemiImplicitEuler,
    Slider,
    SystemBuilder,
    Universal,
    coordinate_speeds,
    energies,
    joint_errors,
    momentum,
    project,
    replace,
    rollout,
    step,
    struct,
)
from jaxjoints.algebra.spatial import Pose
from jaxjoints.couplings.compound import Chain
from jaxjoints.couplings.diagnosis import lower_pair_problem
from jaxjoints.couplings.planar import Planar, SlottedHinge
from jaxjoints.couplings.surface import PlanePoint
from jaxjoints.dynamics import accelerations
from jaxjoints.model.articulation import articulation
from jaxjoints.model.kinematics import prepare, system_kinematics
from support import mechanisms
from support.accelerations import chart_speeds, state_rate
from support.cases import mostly_slow
from support.couplings_catalog import CATALOG, Screw

TREE = SemiImplicitEuler(joints="coordinates")
ROUNDING = 1e-12  # m, rad and their rates, of numbers of order one
EXACT = 1e-9  # m/s² and rad/s² over a step of 1 ms, of accelerations up to 100
DT = 1e-3


@struct
class RegularScrew(Screw):
    """The example of `Chart`, held by its coordinate."""

    regular: ClassVar[bool] = True


TREE_COUPLINGS = {
    "Universal": Universal(mechanisms.X, mechanisms.Y),
    # Its rows are not orthonormal.
    "DoubleHinge": DoubleHinge(0.5),
    "Gimbal": Gimbal(),
    "Ball": Ball(),
    "Cylindrical": Cylindrical((0.0, 0.6, 0.8)),
    "Planar": Planar(),
    "Helical": Helical(0.3),
    "Screw": RegularScrew(jnp.array(0.3)),
    "SlottedHinge": SlottedHinge(),
    "Chain": Chain(Slider(mechanisms.X), Chain(Hinge(mechanisms.Y), Hinge(mechanisms.Z))),
    "Fixed": Fixed(),
}


def branch(coupling, *, backwards=False, floating=False):
    """Three bodies in a row on a hinge, the coupling and a slider; out of line, and in motion.

    backwards: whether the coupling's child is the body nearer to the world
    floating: without the hinge
    """
    world = SystemBuilder(gravity=(0.3, -0.5, -9.81))
    middle = {"velocity": (0.5, -0.2, 0.3, 1.0, -2.0, 1.5)} if floating else {}
    bodies = [
        world.body("near", mass=1.2, inertia=(0.10, 0.12, 0.15), com=(0.1, 0.0, -0.2), **middle),
        world.body("far", mass=0.8, inertia=(0.09, 0.07, 0.06), com=(0.0, -0.15, 0.1)),
        world.body("end", mass=0.5, inertia=(0.03, 0.04, 0.05), com=(0.05, 0.05, 0.0)),
    ]
    near, far, end = bodies
    if not floating:
        world.joint("hinge", Hinge((0.2, 1.0, -0.3)), child=near, q=0.4, qd=3.0)
    k = coupling.dof
    child, parent = (near, far) if backwards else (far, near)
    places = {"frame_C": (0.1, 0.2, -0.1), "frame_D": (-0.2, 0.1, 0.3)}
    motion = {"q": np.array([0.3, -0.4, 0.5])[:k], "qd": np.array([2.0, -1.5, 1.0])[:k]}
    world.joint("tested", coupling, child=child, parent=parent, **places, **(motion if k else {}))
    last = {"frame_C": (0.0, 0.1, 0.0), "frame_D": (0.3, 0.0, 0.0), "q": 0.1, "qd": -1.0}
    world.joint("slider", Slider((0.6, 0.0, 0.8)), child=end, parent=far, **last)
    return world.build()


def rates(system, state):
    """How the state changes in time, by the accelerations of `dynamics`."""
    now = accelerations(system, state)
    return state_rate(state, now.linear, now.angular)


FORMS = ("forwards", "backwards", "floating")
CASES = {f"{name} {form}" for name in TREE_COUPLINGS for form in FORMS}
DEFAULT = ("Universal forwards",)
SLOW = (
    *("DoubleHinge forwards", "Planar backwards", "Gimbal floating"),
    *("Chain forwards", "Screw backwards", "Ball floating"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    mostly_slow(sorted(CASES), default=DEFAULT, sweep=CASES - {*DEFAULT, *SLOW}),
)
def test_a_step_changes_speeds_by_their_accelerations(case):
    name, form = case.split()
    options = {} if form == "forwards" else {form: True}
    system, state = branch(TREE_COUPLINGS[name], **options)
    new, _ = step(system, state, dt=DT, scheme=TREE)
    before, rate = jax.jvp(lambda x: chart_speeds(system, x), (state,), (rates(system, state),))
    change = (chart_speeds(system, new) - before) / DT
    np.testing.assert_allclose(change, rate, atol=EXACT, rtol=0)
    assert np.abs(rate).max() > 1.0
    assert joint_errors(system, new).max() <= ROUNDING


@pytest.mark.parametrize(
    "name", [name for name, entry in CATALOG.items() if entry.coupling.lower_pair]
)
def test_a_motion_in_the_span_of_a_lower_pair_stays_on_its_surface(name):
    assert lower_pair_problem(CATALOG[name].coupling) is None


@struct
class Crank(Screw):
    """C goes round z of D at a distance: a motion that starts along its tangent leaves the circle.

    Its S is the same in C at all angles all the same.
    """

    lower_pair: ClassVar[bool] = True

    def pose(self, q):
        return Pose.about_z(q[0]) @ Pose.along_x(self.pitch)


def test_a_coupling_that_states_to_be_a_lower_pair_and_is_none_is_refused():
    world = SystemBuilder()
    world.body("pin", mass=1.0, inertia=(0.1, 0.1, 0.1))
    with pytest.raises(ValueError, match="joint 'round': Crank.lower_pair .* leave lower_pair out"):
        world.joint("round", Crank(0.5), child="pin")


@struct
class LongRows(Slider):
    """A slider whose rows are twice as long."""

    def rows(self, T, q, t):
        found = super().rows(T, q, t)
        return replace(found, W=2 * found.W)


def test_a_lower_pair_without_orthonormal_rows_is_refused():
    world = SystemBuilder()
    world.body("pin", mass=1.0, inertia=(0.1, 0.1, 0.1))
    with pytest.raises(ValueError, match="joint 'rail': LongRows.lower_pair .* unit length"):
        world.joint("rail", LongRows(mechanisms.X), child="pin")


@pytest.mark.slow
def test_joints_whose_coordinates_are_singular_somewhere_stay_rows():
    hinge, slider = Hinge(mechanisms.Y), Slider(mechanisms.X)
    joints = {
        "point": PlanePoint(),
        "three turns": Chain(hinge, Chain(Hinge(mechanisms.X), Hinge(mechanisms.Z))),
        "polar": Chain(slider, Chain(hinge, Slider(mechanisms.Z))),
        "cart": Chain(slider, Chain(Slider(mechanisms.Z), hinge)),
        "hinge": hinge,
    }
    world = SystemBuilder()
    for name, coupling in joints.items():
        world.body(name, mass=1.0, inertia=(0.1, 0.1, 0.1))
        world.joint(name, coupling, child=name)
    system, _ = world.build()
    placed = {system.topology.joints[branch.joint] for branch in articulation(system).branches}
    assert placed == {"cart", "hinge"}


def test_bodies_that_fixed_joints_alone_hold_move_as_one():
    world = SystemBuilder()
    solid = {"mass": 1.0, "inertia": (0.1, 0.2, 0.3)}
    world.body("hub", **solid, velocity=(0.0, 0.0, 0.0, 1.0, 2.0, 3.0))
    world.body("rim", **solid)
    world.joint("weld", Fixed(), child="rim", parent="hub", frame_D=(0.3, 0.0, 0.0))
    system, state = world.build()
    before = momentum(system, state)
    state, info = step(system, state, dt=DT, scheme=TREE)
    assert info.ok and joint_errors(system, state).max() <= ROUNDING
    change = momentum(system, state)[:3] - before[:3]
    # To first order in the step: the error of one is of second order.
    np.testing.assert_allclose(change, [0.0, 0.0, -9.81 * 2 * DT], atol=20 * DT**2)


def test_rows_act_on_bodies_that_are_welded_to_others():
    """A pendulum held by rows, on the world and on a body that is welded to the world."""
    found = []
    for wall in (WORLD, "wall"):
        world = SystemBuilder()
        solid = {"mass": 1.0, "inertia": (0.1, 0.2, 0.3)}
        if wall != WORLD:
            for name in ("wall", "shelf"):
                world.body(name, **solid)
                world.joint(f"{name} weld", Fixed(), child=name)
        world.body("rod", **solid)
        arm = {"frame_C": (0.0, 0.0, 0.5), "frame_D": (0.2, 0.0, 0.0)}
        hinge = Hinge((0.0, 1.0, 0.0))
        world.joint("pivot", hinge, child="rod", parent=wall, tree=False, q=0.4, **arm)
        system, state = world.build()
        for _ in range(3):
            state, info = step(system, state, dt=DT, scheme=TREE)
        assert info.ok
        found.append(state.position[:, system.body("rod")])
    np.testing.assert_allclose(*found, atol=ROUNDING)


def test_a_joint_whose_friction_follows_another_of_its_forces_stays_rows():
    world = SystemBuilder()
    world.body("foot", mass=1.0, inertia=(0.1, 0.1, 0.1))
    laws = [Limits(lower=0.0, coordinate=1), CoulombFriction(0.5, normal=1)]
    world.joint("ground", Planar(), child="foot", laws=laws)
    system, _ = world.build()
    assert not articulation(system).branches


def test_options_of_rows_are_refused_beside_coordinates():
    with pytest.raises(ValueError, match="gyroscopic 'implicit' belongs to joints='rows'"):
        SemiImplicitEuler(joints="coordinates", gyroscopic="implicit")
    with pytest.raises(ValueError, match="ProjectedGaussSeidel.*joints='rows', or Newton"):
        SemiImplicitEuler(ProjectedGaussSeidel(), joints="coordinates")
    with pytest.raises(ValueError, match="curvature True belongs to joints='rows'"):
        SemiImplicitEuler(joints="coordinates", curvature=True)


@cache
def wheel():
    """A wheel whose centre of mass is 0.1 m off its hinge, at 100 rad/s, and nothing else."""
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    world.body("wheel", mass=1.0, inertia=(0.01, 0.01, 0.01), com=(0.1, 0.0, 0.0))
    world.joint("axle", Hinge(), child="wheel", qd=100.0)
    return world.build()


@pytest.mark.slow
def test_an_eccentric_wheel_keeps_its_speed():
    system, state = wheel()
    final, _ = rollout(system, state, dt=DT, steps=10_000, record_every=10_000, scheme=TREE)
    assert abs(coordinate_speeds(system, final)[0] / 100.0 - 1) <= ROUNDING
    assert abs(final.q[0] / 1000.0 - 1) <= ROUNDING
    # Held by rows it brakes, as its centre of mass goes straight on in each step.
    rows = SemiImplicitEuler(joints="rows")
    final, _ = rollout(system, state, dt=DT, steps=1000, record_every=1000, scheme=rows)
    assert coordinate_speeds(system, final)[0] < 80.0


@jax.jit
def swung(system, state, dt, steps):
    """The state after some steps and by how much the energy has changed, of each environment."""
    final = jax.lax.fori_loop(0, steps, lambda _, x: step(system, x, dt=dt, scheme=TREE)[0], state)
    return final, energies(system, final).total - energies(system, state).total


# Angles of a gimbal and its spin: at its lock, into it, and past it by a hundredth.
SWINGS = np.array(
    [
        ((0.2, np.pi / 2, 0.0), (1.0, -3.0, 2.0)),
        ((0.0, np.pi / 2 - 0.4, 0.0), (0.0, 5.0, 0.0)),
        ((0.0, np.pi / 2 - 0.4, 0.0), (0.05, 5.0, 0.05)),
    ]
)


@pytest.mark.slow
def test_a_gimbal_swings_through_its_lock_as_a_ball_does():
    """With the energy of a method of first order."""
    angles, spins = np.moveaxis(SWINGS, 0, -1)
    ends, lost = [], []
    for coupling in (Gimbal(), Ball()):
        world = SystemBuilder()
        world.body("bob", mass=1.0, inertia=(0.02, 0.03, 0.05), com=(0.1, 0.0, -0.4))
        world.joint("pivot", coupling, child="bob")
        system, _ = world.build()
        q = [coupling.coordinates(Gimbal().pose(jnp.asarray(x))) for x in angles.T]
        state = system.state(q={"pivot": np.stack(q, axis=-1)})
        velocity = np.cross(spins, np.asarray(state.position[:, 0]), axis=0)
        state = replace(
            state, omega=jnp.asarray(spins)[:, None], velocity=jnp.asarray(velocity)[:, None]
        )
        coarse, fine = (swung(system, state, DT / n, 300 * n) for n in (1, 2))
        ends.append(coarse[0])
        lost.append(fine[1] / coarse[1])
    gimbal, ball = ends
    assert np.abs(ball.position - state.position).max() > 0.1
    np.testing.assert_allclose(gimbal.position, ball.position, atol=1e-10)
    np.testing.assert_allclose(gimbal.omega, ball.omega, atol=1e-9)
    np.testing.assert_allclose(lost, 0.5, atol=0.05)
    # Straight through, or round by half a turn of the first angle.
    assert gimbal.q[1, 1] > np.pi / 2 + 0.2
    assert gimbal.q[1, 2] < np.pi / 2 - 0.2 and abs(gimbal.q[0, 2]) > 2.5


@pytest.mark.slow
def test_a_joint_moves_alike_whichever_body_is_its_child():
    ends = []
    for backwards in (False, True):
        world = SystemBuilder()
        for name in ("upper", "lower"):
            world.body(name, mass=1.0, inertia=(0.02, 0.03, 0.04), com=(0.05, 0.1, -0.2))
        world.joint("shoulder", Hinge(mechanisms.Y), child="upper", q=0.5, qd=2.0)
        sides = {"child": "lower", "parent": "upper", "frame_D": (0.0, 0.1, -0.5)}
        motion = np.array([0.3, -0.2]), np.array([-3.0, 1.0])
        if backwards:
            sides = {"child": "upper", "parent": "lower", "frame_C": (0.0, 0.1, -0.5)}
            motion = -motion[0], -motion[1]
        q, qd = motion
        world.joint("elbow", Cylindrical((0.0, 0.6, 0.8)), **sides, q=q, qd=qd)
        system, state = world.build()
        assert [b.side for b in articulation(system).branches] == [0, int(backwards)]
        ends.append(rollout(system, state, dt=DT, steps=200, record_every=200, scheme=TREE)[0])
    np.testing.assert_allclose(ends[1].position, ends[0].position, atol=1e-11)
    np.testing.assert_allclose(ends[1].velocity, ends[0].velocity, atol=1e-10)


@pytest.mark.slow
def test_an_open_tree_joint_closes_at_the_speed_of_its_erp():
    system, state = mechanisms.pendulum()
    opened = replace(state, position=state.position + jnp.array([[3e-3], [-2e-3], [1e-3]]))
    erp = system.joint("pivot").erp[0]
    steps = 20
    final, _ = rollout(system, opened, dt=DT, steps=steps, record_every=steps, scheme=TREE)
    at_first, at_last = (jnp.linalg.norm(_gap(system, x)) for x in (opened, final))
    np.testing.assert_allclose(at_last / at_first, (1 - erp) ** steps, rtol=1e-9)


@pytest.mark.parametrize("slotted", [False, True], ids=["slider and hinge", "slotted hinge"])
def test_errors_of_tree_joints_close_without_momentum(slotted):
    """A rod with one end on a rail and moved off it, in float32 by rounding in every step."""
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    world.body("rod", mass=2.0, inertia=(0.1, 0.1, 0.1))
    back, start = (-0.5, 0.0, 0.0), {"q": (0.2, 0.4), "qd": (0.3, 1.0)}
    if slotted:
        world.joint("rail", SlottedHinge(), child="rod", frame_C=back, **start)
    else:
        world.body("car", mass=0.5, inertia=(0.1, 0.1, 0.1))
        world.joint("slot", Slider((1.0, 0.0, 0.0)), child="car", q=0.2, qd=0.3)
        pin = {"child": "rod", "parent": "car", "frame_C": back, "q": 0.4, "qd": 1.0}
        world.joint("pin", Hinge((0.0, 0.0, 1.0)), **pin)
    system, state = world.build()
    opened = replace(state, position=state.position.at[1, 0].add(1e-3))
    (_, end), (_, moved) = (
        rollout(system, x, dt=DT, steps=10, scheme=TREE) for x in (state, opened)
    )
    np.testing.assert_allclose(moved.velocity, end.velocity, atol=ROUNDING)
    np.testing.assert_allclose(moved.omega, end.omega, atol=ROUNDING)
    left = (moved.position - end.position)[:, 1, 0]
    # C turns by h ω while it moves along its own axes: a share of (h ω)²/2 in each step.
    np.testing.assert_allclose(left, 1e-3 * 0.8 ** np.arange(1, 11), rtol=10 * DT**2)


def _gap(system, state):
    """From the pivot to where the bob has it [m]."""
    return system_kinematics(prepare(system, 0), state).joints[0].T_CD.p[:, 0]


@pytest.mark.slow
def test_a_tree_stays_closed_while_a_loop_is_pulled_shut():
    system, _ = mechanisms.four_bar()
    angles = mechanisms.four_bar_angles(1.0)
    open_ = system.state(
        q={"A": angles[0], "B": angles[1] - angles[0], "D": angles[2] + 0.02}, rough=True
    )
    scheme = replace(TREE, projections=1)
    final, errors = rollout(
        system,
        open_,
        dt=DT,
        steps=30,
        record=lambda state, _: joint_errors(system, state),
        scheme=scheme,
    )
    tree, loop = errors[:, :3], errors[:, 3]
    assert joint_errors(system, open_)[3] > 0.01
    assert tree.max() <= ROUNDING
    assert loop[-1] <= 1e-6


@pytest.mark.slow
def test_momentum_of_a_floating_chain_is_kept_to_first_order():
    system, state = mechanisms.floating_chain()
    state = replace(state, omega=state.omega + jnp.array([[1.0], [2.0], [-1.5]]))
    state = project(system, state, velocities=True)
    before = momentum(system, state)
    drifts = []
    for dt in (2e-3, 1e-3):
        n = round(0.2 / dt)
        final, _ = rollout(system, state, dt=dt, steps=n, record_every=n, scheme=TREE)
        drifts.append(np.abs(momentum(system, final) - before))
    assert drifts[0][:3].max() <= 0.1 and drifts[0].max() > 1e-6
    ratio = drifts[0].max() / drifts[1].max()
    assert 1.8 <= ratio <= 2.2


@struct
class TipAccelerates(Constraint):
    """The origin of a body's frame has a given acceleration along x."""

    value: jax.Array
    acceleration_rows: ClassVar[int] = 1

    def acceleration(self, poses, twists, rates, t):
        return rates[:1, 0] - self.value


@pytest.mark.slow
def test_rows_of_accelerations_see_how_a_tree_bends_its_motion():
    world = SystemBuilder()
    for name in ("upper", "lower"):
        world.body(name, mass=1.0, inertia=(0.02, 0.03, 0.04), com=(0.05, 0.1, -0.2))
    world.joint("shoulder", Hinge(mechanisms.Y), child="upper", q=0.5, qd=2.0)
    tip = {"child": "lower", "parent": "upper", "frame_D": (0.0, 0.1, -0.5)}
    world.joint("elbow", Hinge((0.0, 0.6, 0.8)), **tip, q=0.3, qd=-3.0)
    world.constraint("tip", TipAccelerates(1.5), bodies="lower")
    system, state = world.build()
    new, _ = step(system, state, dt=DT, scheme=TREE)
    before, rate = jax.jvp(lambda x: chart_speeds(system, x), (state,), (rates(system, state),))
    change = (chart_speeds(system, new) - before) / DT
    np.testing.assert_allclose(change, rate, atol=EXACT, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("single", [False, True], ids=["float64", "float32"])
@pytest.mark.parametrize("links, bend", [(10, 0.4), (50, 0.03)])
def test_a_chain_does_not_gape_in_ten_seconds(links, bend, single):
    chain, length = mechanisms.chain(links, q=bend), 0.5 * links
    system, state = mechanisms.single(chain) if single else chain
    gap = lambda state, _: joint_errors(system, state).max()  # noqa: E731
    _, gaps = rollout(system, state, dt=2e-3, steps=5000, record=gap, scheme=TREE)
    assert gaps.max() <= (1e-6 * length if single else ROUNDING)


@pytest.mark.slow
def test_gradients_flow_through_a_limit_that_a_tree_joint_hits():
    laws = [Limits(-0.5, 0.6)]
    system, _ = mechanisms.chain(2, q=0.3, qd=2.0, laws=laws)
    scheme = replace(TREE, solver=Newton(smoothing=0.05))

    @jax.jit
    def end(x):
        state = system.state(q={"0": x[0], "1": x[1]}, qd={"0": x[2], "1": x[3]})
        final, _ = rollout(system, state, dt=2e-3, steps=100, record_every=100, scheme=scheme)
        return final.q[0] + 2 * final.q[1]

    at = jnp.array([0.3, 0.3, 2.0, 2.0])
    slope = jax.grad(end)(at)
    h = 1e-5
    expected = [(end(at + h * e) - end(at - h * e)) / (2 * h) for e in jnp.eye(4)]
    np.testing.assert_allclose(slope, jnp.stack(expected), rtol=1e-6, atol=1e-7)


def test_softness_given_after_the_build_is_refused_for_a_tree_joint():
    system, state = mechanisms.pendulum()
    soft = jnp.full(5, 1e-4)
    match = "'pivot': cfm.*build it with this cfm, or with tree=False"
    with pytest.raises(ValueError, match=match):
        system.with_joint("pivot", cfm=soft)
    with pytest.raises(ValueError, match=match):
        system.with_numbers({"joint.pivot.cfm": soft})
    with pytest.raises(ValueError, match=match):
        jax.jit(lambda cfm: system.with_joint("pivot", cfm=cfm))(soft)
    system.with_joint("pivot", cfm=0 * soft)
    (group,) = system.groups
    changed = replace(system, groups=(replace(group, cfm=soft[:, None]),))
    with pytest.raises(ValueError, match="'pivot'.*cfm.*tree=False.*joints='rows'"):
        rollout(changed, state, dt=DT, steps=1, scheme=TREE)


@pytest.mark.slow
def test_a_joint_that_its_user_keeps_out_of_the_tree_is_held_by_rows():
    world = SystemBuilder()
    world.body("bob", mass=1.0, inertia=(0.02, 0.03, 0.01))
    hinge = Hinge(mechanisms.Y)
    world.joint("pivot", hinge, child="bob", frame_C=(0.0, 0.0, 1.0), q=0.3, qd=2.0, tree=False)
    system, state = world.build()
    assert not articulation(system).branches
    soft = system.with_joint("pivot", cfm=jnp.full(5, 1e-4))
    ends = [
        rollout(soft, state, dt=DT, steps=10, record_every=10, scheme=scheme)[0]
        for scheme in (TREE, SemiImplicitEuler(joints="rows"))
    ]
    np.testing.assert_array_equal(ends[0].position, ends[1].position)
    # The weight of the bob stretches what holds it.
    assert joint_errors(soft, ends[0]).max() > 1e-5
