"""Rows at velocity and acceleration level: rolling against closed forms and against RBDL."""

from functools import cache, partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxjoints import (
    Control,
    Free,
    Hinge,
    Limits,
    Pose,
    Residual,
    RollingDisc,
    RollingSphere,
    RungeKutta,
    SemiImplicitEuler,
    Softness,
    SpringDamper,
    SystemBuilder,
    body_poses,
    coordinates,
    energies,
    project,
    replace,
    replicate,
    step,
    struct,
)
from jaxjoints.algebra.spatial import error_twist, retract, tangent_of, twist_of
from jaxjoints.couplings.gimbal import euler_rotation
from jaxjoints.couplings.nonholonomic import with_velocity_rows
from support import oracle
from support.mechanisms import G, single
from support.refusals import refused

EXACT = 1e-12  # float64, some thousand roundings of numbers of order one
FIRST_ORDER = (0.8, 1.2)  # range of measured orders of convergence
STEPS = np.array([4e-3, 2e-3, 1e-3])
RECORDED = oracle.load("rbdl_custom")
RADIUS = 0.4


@jax.jit
def at_time(system, state, dt, steps, control=None):
    """State after any number of steps; one compilation for all of them."""
    return jax.lax.fori_loop(
        0, steps, lambda _, state: step(system, state, control, dt=dt)[0], state
    )


one_step = jax.jit(step)


def assert_close(actual, expected, tolerance=EXACT):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def assert_first_order(errors):
    slope = np.polyfit(np.log(STEPS), np.log(errors), 1)[0]
    assert FIRST_ORDER[0] < slope < FIRST_ORDER[1], errors


def ball(*, coupling=None, mass=1.0, share=0.4, frame_D=None, laws=(), radius=RADIUS, **options):
    """A ball of moment share·m r² that rolls on a plane of the world."""
    world = SystemBuilder()
    world.body("ball", mass=mass, inertia=(share * mass * radius**2,) * 3)
    coupling = RollingSphere(radius) if coupling is None else coupling
    world.joint("roll", coupling, child="ball", frame_D=frame_D, laws=laws, **options)
    return world.build()


def disc(*, q, qd, laws=(), mass=1.3):
    """A thin disc that rolls on the ground."""
    world = SystemBuilder()
    across = mass * RADIUS**2 / 4
    world.body("disc", mass=mass, inertia=(across, 2 * across, across))
    world.joint("roll", RollingDisc(RADIUS), child="disc", q=q, qd=qd, laws=laws)
    return world.build()


def turntable(rate, speed):
    """A marble that rolls along x over the middle of a table that turns."""
    world = SystemBuilder()
    world.body("table", prescribed=True, velocity=(0, 0, 0, 0, 0, rate))
    # Rolling on the table: ṗ = ω × r z + rate z × p, here at p = 0.
    motion = (speed, 0.0, 0.0, 0.0, speed / RADIUS, 0.0)
    pose = (0.0, 0.0, RADIUS)
    world.body("marble", mass=1.0, inertia=(0.4 * RADIUS**2,) * 3, pose=pose, velocity=motion)
    world.joint("roll", RollingSphere(RADIUS), child="marble", parent="table")
    return world.build()


# What the recorded rolling bodies of RBDL do


@struct
class RollingByAcceleration(Free):
    """A rolling body held by accelerations alone: the height's too, as RBDL does it."""

    of: Residual
    acceleration_rows: ClassVar[int] = 3

    def acceleration_residual(self, T, v, a, t):
        def velocities(T, v):
            height = jax.jvp(lambda T: self.of.residual(T, t), (T,), (tangent_of(T, v),))[1]
            return jnp.concatenate([self.of.velocity_residual(T, v, t), height])

        return jax.jvp(velocities, (T, v), (tangent_of(T, v), a))[1]


def body_pose(q):
    return Pose(q[:3], euler_rotation("ZYX", q[3:]).q)


def rolling_of(name):
    radius = jnp.array(RECORDED[name]["constraint"]["radius"])
    return (RollingSphere if name == "rolling_ball" else RollingDisc)(radius)


ROLLING = ("rolling_ball", "rolling_coin")


@pytest.mark.parametrize("name", ROLLING)
def test_rows_and_their_rates_are_those_of_rbdl(name):
    coupling = rolling_of(name)
    time = jnp.zeros(())

    def speeds(q, qd):
        T, rate = jax.jvp(body_pose, (q,), (qd,))
        v = twist_of(T, rate)
        height = jax.jvp(lambda T: coupling.residual(T, time), (T,), (rate,))[1]
        return jnp.concatenate([coupling.velocity_residual(T, v, time), height])

    @jax.jit
    def read(q, qd):
        gamma = -jax.jvp(lambda q: speeds(q, qd), (q,), (qd,))[1]
        return jax.jacfwd(speeds, argnums=1)(q, qd), gamma, speeds(q, qd)

    for state in RECORDED[name]["states"]:
        G, gamma, errors = read(jnp.array(state["q"]), jnp.array(state["qd"]))
        assert_close(G, state["G"])
        assert_close(gamma, state["gamma"])
        assert_close(errors, state["errVel"])
        height = coupling.residual(body_pose(jnp.array(state["q"])), time)
        assert_close(height, state["errPos"][2:])


@cache
def recorded(name, coupling):
    case = RECORDED[name]
    q, qd = (jnp.array(case["run"][field][0]) for field in ("q", "qd"))
    T, rate = jax.jvp(body_pose, (q,), (qd,))
    spin = T.rotate(twist_of(T, rate)[3:])
    world = SystemBuilder(gravity=case["gravity"])
    (body,) = case["bodies"]
    world.body(
        "body",
        mass=body["mass"],
        inertia=body["inertia_about_com"],
        com=body["com"],
        pose=T,
        velocity=jnp.concatenate([qd[:3], spin]),
    )
    world.joint("roll", coupling(name), child="body")
    return world.build()


def by_acceleration(name):
    return RollingByAcceleration(rolling_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("level", [rolling_of, by_acceleration])
@pytest.mark.parametrize("name", ROLLING)
def test_runs_converge_to_those_of_rbdl(name, level):
    """RBDL's by RK4 with steps of 1 ms: its own errors are below 1e-9."""
    system, state = recorded(name, level)
    run = RECORDED[name]["run"]
    wanted = body_pose(jnp.array(run["q"][-1]))
    errors, drifts = [], []
    for dt in STEPS:
        end = at_time(system, state, dt, round(run["t"][-1] / dt))
        found = jax.tree.map(lambda x: x[..., 0], body_poses(system, end))
        errors.append(np.linalg.norm(error_twist(wanted.inverse() @ found)))
        drifts.append(abs(energies(system, end).total - run["energy"][-1]))
    assert_first_order(errors)
    assert_first_order(drifts)
    assert errors[-1] < 5e-3


@pytest.mark.slow
def test_rows_of_accelerations_are_of_fourth_order_under_runge_kutta():
    system, state = recorded("rolling_coin", by_acceleration)
    run = RECORDED["rolling_coin"]["run"]
    wanted, scheme = body_pose(jnp.array(run["q"][-1])), RungeKutta()

    @jax.jit
    def end(dt, steps):
        one = lambda _, state: step(system, state, dt=dt, scheme=scheme)[0]  # noqa: E731
        return jax.lax.fori_loop(0, steps, one, state)

    errors = []
    for dt in (20e-3, 10e-3):
        found = body_poses(system, end(dt, round(run["t"][-1] / dt)))
        found = jax.tree.map(lambda x: x[..., 0], found)
        errors.append(np.linalg.norm(error_twist(wanted.inverse() @ found)))
    assert 3.8 < np.log2(errors[0] / errors[1]) < 4.2
    assert errors[1] < 2e-8


@pytest.mark.slow
def test_a_point_on_a_moving_path_converges_to_rbdl():
    case = RECORDED["time_varying_arm_tip_x"]
    law = case["constraint"]

    @struct
    class Path(Residual):
        """x of C's origin is c + A sin wt."""

        amplitude: jax.Array
        frequency: jax.Array
        offset: jax.Array
        dof: ClassVar[int] = 5

        def residual(self, T, t):
            wanted = self.offset + self.amplitude * jnp.sin(self.frequency * t)
            return (T.p[0] - wanted)[None]

    q, qd = case["run"]["q"], case["run"]["qd"]
    world = SystemBuilder(gravity=case["gravity"])
    elbow = Pose.about_z(q[0][0]) @ Pose.translation(jnp.array(case["bodies"][1]["X_joint_r"]))
    at = {
        "l1": {},
        "l2": {
            "pose": elbow @ Pose.about_z(q[0][1]),
            "velocity": [-qd[0][0] * elbow.p[1], qd[0][0] * elbow.p[0], 0, 0, 0, sum(qd[0])],
        },
    }
    for body in case["bodies"]:
        own = {field: body[field] for field in ("mass", "com")} | at[body["name"]]
        world.body(body["name"], inertia=body["inertia_about_com"], **own)
    world.joint("shoulder", Hinge(), child="l1", q=q[0][0], qd=qd[0][0])
    world.joint("elbow", Hinge(), child="l2", parent="l1", frame_D=case["bodies"][1]["X_joint_r"])
    path = Path(law["A"], law["w"], law["c"][0])
    world.joint("path", path, child="l2", frame_C=(0.0, -0.6, 0.0))
    system, state = world.build()
    errors = []
    for dt in STEPS:
        end = at_time(system, state, dt, round(case["run"]["t"][-1] / dt))
        errors.append(np.linalg.norm(coordinates(system, end)[:2] - np.array(q[-1])))
    assert_first_order(errors)


# Closed forms


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.4, pytest.param(2 / 3, marks=pytest.mark.slow)])
def test_a_ball_rolls_down_a_slope_at_its_acceleration(share):
    slope, time = 0.3, 0.2
    system, state = ball(share=share, frame_D=Pose.about_y(slope))
    end = at_time(system, state, 1e-3, 200)
    speed = G * np.sin(slope) / (1 + share) * time
    along = np.array([np.cos(slope), 0.0, -np.sin(slope)])
    assert_close(end.velocity[:, 0], speed * along, 1e-9)
    assert_close(end.omega[:, 0], [0.0, speed / RADIUS, 0.0], 1e-9)


@pytest.mark.slow
def test_a_sliding_ball_is_set_rolling_by_an_impulse():
    start = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.3])
    system, state = ball()
    T = jnp.concatenate([state.velocity, state.omega]) * 0 + start[:, None]
    end, info = one_step(system, replace(state, velocity=T[:3], omega=T[3:]), dt=1e-3)
    assert_close(end.velocity[:, 0], [5 / 7, 0.0, 0.0], 1e-10)
    assert_close(end.omega[:, 0], [0.0, 5 / 7 / RADIUS, 0.3], 1e-10)
    assert_close(info.wrench[:3, 0], [-2 / 7 / 1e-3, 0.0, G], 1e-8)


@pytest.mark.parametrize("qd", [(1.0, 0.0, 0.0, 0.0, 0.3), (0.4, 0.0, 0.0, 0.5, 0.3)])
def test_a_start_that_slips_is_warned_of(qd):
    with pytest.warns(UserWarning, match=r"'roll'.*RollingSphere slips by (1|0\.2) m/s") as seen:
        ball(qd=qd)
    assert len(seen) == 1


def test_slip_is_measured_against_the_surface_which_may_move():
    system, _ = turntable(3.0, 0.5)
    velocity = {"table": (0, 0, 0, 0, 0, 3.0), "marble": (0.5, 0, 0, 0, 0.5 / RADIUS, 0)}
    system.state(pose={"table": (0, 0, 0), "marble": (0, 0, RADIUS)}, velocity=velocity)
    with pytest.warns(UserWarning, match=r"'roll'.*slips by 0\.6 m/s"):
        system.state(pose={"table": (0, 0, 0), "marble": (0, 0.2, RADIUS)}, velocity=velocity)


@pytest.mark.slow
def test_a_ball_on_a_turntable_circles_at_two_sevenths_of_its_rate():
    rate, speed, duration = 3.0, 0.5, 1.2
    system, state = turntable(rate, speed)
    circling = 2 / 7 * rate
    angle = circling * duration
    wanted = speed / circling * np.array([np.sin(angle), 1 - np.cos(angle)])
    errors = []
    for dt in STEPS:
        end = at_time(system, state, dt, round(duration / dt))
        errors.append(np.linalg.norm(end.position[:2, 1] - wanted))
    assert_first_order(errors)
    assert errors[-1] < 2e-3


def steady(lean, turning):
    """Spin rate of a thin disc that leans and turns steadily, and where it is after t.

    The moment of the contact's force m a + m g about the centre turns the angular momentum:
    m r (r w Ω cos θ + g sin θ) = Ω cos θ (I Ω sin θ - 2 I w), w = spin + Ω sin θ, I = m r²/4.
    """
    s, c = np.sin(lean), np.cos(lean)
    whole = (turning**2 * s * c / 4 - G / RADIUS * s) / (1.5 * turning * c)
    spin = whole - turning * s

    def place(t):
        around = RADIUS * spin / turning
        heading = turning * t
        at = around * np.array([np.sin(heading), 1 - np.cos(heading)])
        return np.array([*at, heading, lean, spin * t])

    return spin, place


@pytest.mark.slow
def test_a_leaning_disc_turns_steadily():
    lean, turning, duration = -0.4, 1.5, 0.8
    spin, place = steady(lean, turning)
    qd = (RADIUS * spin, 0.0, turning, 0.0, spin)
    system, state = disc(q=place(0.0), qd=qd)
    errors = []
    for dt in STEPS:
        end = at_time(system, state, dt, round(duration / dt))
        errors.append(np.linalg.norm(coordinates(system, end) - place(duration)))
    assert_first_order(errors)
    assert errors[-1] < 0.02


@pytest.mark.slow
def test_a_cart_on_two_rolling_discs_is_a_loop_that_rolls_down():
    slope, mass, load = 0.2, 1.5, 4.0
    across = mass * RADIUS**2 / 4
    world = SystemBuilder(gravity=(G * np.sin(slope), 0.0, -G * np.cos(slope)))
    world.body("axle", mass=load, inertia=(0.3, 0.3, 0.3), pose=(0.0, 0.0, RADIUS))
    for name, side in (("left", 0.5), ("right", -0.5)):
        place = (0.0, side, RADIUS)
        world.body(name, mass=mass, inertia=(across, 2 * across, across), pose=place)
        hinge = Hinge((0.0, 1.0, 0.0))
        world.joint(name + " bearing", hinge, child=name, parent="axle", frame_D=(0.0, side, 0.0))
        world.joint(name + " wheel", RollingDisc(RADIUS), child=name, frame_D=(0.0, side, 0.0))
    system, state = world.build()
    end = at_time(system, state, 1e-3, 200)
    speed = 0.2 * G * np.sin(slope) * (2 * mass + load) / (3 * mass + load)
    assert_close(end.velocity[0], np.full(3, speed), 1e-6)
    assert_close(end.velocity[1:], np.zeros((2, 3)), 1e-6)
    assert_close(end.omega[1, 1:], np.full(2, speed / RADIUS), 1e-6)


@pytest.mark.slow
def test_friction_of_rolling_does_no_work():
    """The wrench of a step and the motion at its end, of a body whose spin is not carried on."""
    system, state = recorded("rolling_ball", rolling_of)
    end, info = one_step(
        system, state, dt=1e-3, scheme=SemiImplicitEuler(joints="rows", gyroscopic="none")
    )
    T = jax.tree.map(lambda x: x[..., 0], body_poses(system, state))
    velocity, omega = end.velocity[:, 0], end.omega[:, 0]
    velocity = velocity + jnp.cross(omega, T.p - state.position[:, 0])
    force, moment = (T.rotate(x) for x in jnp.split(info.wrench[:, 0], 2))
    assert np.linalg.norm(force[:2]) > 0.5
    assert abs(force @ velocity + moment @ omega) < 1e-10


# The rows themselves


COUPLINGS = {
    "sphere": RollingSphere(jnp.array(0.7)),
    "disc": RollingDisc(jnp.array(0.7)),
    "sphere by acceleration": RollingByAcceleration(RollingSphere(jnp.array(0.7))),
}


@partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
def extra(coupling, T, v, a):
    rows = coupling.rows(T, jnp.zeros(coupling.dof, v.dtype), jnp.zeros((), v.dtype))
    return with_velocity_rows(coupling, rows, T, v, a, jnp.zeros((), v.dtype))


@pytest.mark.parametrize("name", COUPLINGS)
def test_rows_follow_those_of_the_pose(name):
    coupling, rng = COUPLINGS[name], np.random.default_rng(3)
    T = coupling.pose(0.5 * rng.normal(size=coupling.dof))
    v, a, other = rng.normal(size=(3, 6))
    rows = extra(coupling, T, v, a)
    errors, count = 6 - coupling.dof, coupling.velocity_rows + coupling.acceleration_rows
    assert rows.W.shape == (6 + count, 6)
    assert rows.error.shape == rows.drift.shape == (errors + count,)
    # A twist that the rows hold has no slip, whatever v they were linearized at.
    V, drift = np.asarray(rows.W[6:]), rows.drift[errors:]
    if coupling.velocity_rows:
        free = np.linalg.lstsq(V, -np.asarray(drift), rcond=None)[0]
        slip = coupling.velocity_residual(T, jnp.asarray(free), jnp.zeros(()))
        assert_close(slip, np.zeros(count))
        assert rows.acceleration is None
        assert_close(extra(coupling, T, other, a).W, rows.W)
    else:
        held = np.asarray(a) + np.linalg.lstsq(V, -rows.acceleration[errors:], rcond=None)[0]
        rest = coupling.acceleration_residual(T, v, jnp.asarray(held), jnp.zeros(()))
        assert_close(rest, np.zeros(count), 1e-11)
    assert np.linalg.matrix_rank(np.delete(rows.W, np.s_[errors:6], axis=0)) == errors + count


@pytest.mark.parametrize("name", ["sphere", "disc"])
def test_rows_are_finite_with_their_derivatives_where_a_disc_lies_flat(name):
    v = jnp.arange(6.0)

    @jax.jit
    def slopes(coupling, T):
        def read(coupling, twist):
            rows = with_velocity_rows(
                coupling,
                coupling.rows(T, jnp.zeros(5), jnp.zeros(())),
                retract(T, twist),
                v,
                v,
                jnp.zeros(()),
            )
            return rows.W, rows.drift

        return read(coupling, jnp.zeros(6)), jax.jacrev(read, argnums=(0, 1))(
            coupling, jnp.zeros(6)
        )

    for tilt in (0.0, np.pi / 2, np.pi, np.pi / 2 + 1e-12, np.pi / 2 + 1e-6):
        found = slopes(COUPLINGS[name], Pose.about_x(tilt))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


@pytest.mark.slow
def test_single_precision_and_batches_come_close():
    system, state = recorded("rolling_coin", rolling_of)
    end = at_time(system, state, 1e-3, 20)
    close = at_time(single(system), single(state), jnp.float32(1e-3), 20)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(close))
    assert_close(close.position, end.position, 1e-5)
    assert_close(close.omega, end.omega, 1e-4)
    radii = jnp.array([1.0, 1.1]) * system.joint("roll").coupling.radius
    many = system.with_joint("roll", coupling=RollingDisc(radii))
    batch = at_time(many, replicate(state, 2), 1e-3, 20)
    for i, radius in enumerate(radii):
        one = system.with_joint("roll", coupling=RollingDisc(radius))
        alone = at_time(one, state, 1e-3, 20)
        assert_close(batch.position[..., i], alone.position, 1e-10)
        assert_close(batch.omega[..., i], alone.omega, 1e-10)


@pytest.mark.slow
def test_gradients_flow_through_rolling():
    """The radius is felt by the height and by the slip."""
    system, state = recorded("rolling_coin", rolling_of)

    @jax.jit
    def reached(radius, spin, mass):
        moved = system.with_joint("roll", coupling=RollingDisc(radius))
        moved = replace(moved, mass=system.mass * mass)
        end, _ = step(moved, replace(state, omega=state.omega * spin), dt=1e-2)
        return jnp.concatenate([end.position[:, 0], end.omega[:, 0]])

    radius, one = system.joint("roll").coupling.radius, jnp.ones(())
    check_grads(reached, (radius, one, one), 1, modes=("rev",), eps=1e-5, atol=1e-7, rtol=1e-7)


# Rows beside them


@pytest.mark.slow
def test_springs_on_all_five_coordinates_are_the_efforts_they_report():
    laws = [SpringDamper(3.0 + i, 0.1 * (i + 1), rest=0.2, coordinate=i) for i in range(5)]
    sprung, state = ball(laws=laws, qd=(0.4, 0.0, 0.0, 1.0, 0.5))
    plain, start = ball(qd=(0.4, 0.0, 0.0, 1.0, 0.5))
    end, info = one_step(sprung, state, dt=1e-2)
    assert bool(info.ok)
    other, _ = one_step(plain, start, Control(effort=info.law_force), dt=1e-2)
    assert_close(end.velocity, other.velocity, 1e-9)
    assert_close(end.omega, other.omega, 1e-9)


@pytest.mark.slow
def test_a_stop_holds_a_leaning_disc():
    """At the stop contact and lean are held; what is left of a fall is none."""
    q, stop = (0.0, 0.0, 0.0, 0.3, 0.0), 0.5
    system, state = disc(q=q, qd=(0.0,) * 5, laws=[Limits(-stop, stop, coordinate=3)])
    end = at_time(system, state, 2e-3, 600)
    found = coordinates(system, end)
    assert_close(found[3], stop, 1e-3)
    assert_close(end.omega[:, 0], np.zeros(3), 1e-3)


@pytest.mark.slow
def test_soft_rows_slip_in_proportion_to_the_force():
    slope, slip = 0.3, 0.05
    plane = Pose.about_y(slope)
    system, state = ball(frame_D=plane, softness=Softness(cfm=[0.0, slip, slip]))
    end, info = one_step(system, state, dt=1e-3)
    normal = plane.rotate(jnp.array([0.0, 0.0, RADIUS]))
    contact = plane.rotate_inverse(end.velocity[:, 0] - jnp.cross(end.omega[:, 0], normal))
    friction = info.wrench[:3, 0]
    assert friction[0] < -0.05
    assert_close(contact, [-slip * friction[0], 0.0, 0.0], 1e-9)


def test_projection_lifts_a_ball_without_slipping():
    world = SystemBuilder()
    com, turn = np.array([0.1, 0.05, -0.08]), 0.3
    T = Pose.about_x(turn)
    world.body("ball", mass=1.0, inertia=(0.05, 0.06, 0.07), com=com, pose=([0, 0, 0.35], T.q))
    world.joint("roll", RollingSphere(RADIUS), child="ball")
    with pytest.warns(UserWarning, match="miss each other by 0.05"):
        system, state = world.build()
    at = jax.tree.map(lambda x: x[..., 0], body_poses(system, state))
    end = project(system, state, iterations=1)
    moved = jax.tree.map(lambda x: x[..., 0], body_poses(system, end))
    assert_close(moved.p[2], RADIUS, 1e-3)
    shift = error_twist(at.inverse() @ moved)
    # The displacement of C's origin is that of its point of the body; finite, so to second order.
    slip = RollingSphere(jnp.array(RADIUS)).velocity_residual(at, shift, 0.0)
    assert np.abs(shift[3:]).max() > 1e-2
    assert_close(slip, np.zeros(2), 5e-3 * np.linalg.norm(shift[3:]))


@pytest.mark.slow
def test_a_speed_that_is_held_needs_no_linear_residual():
    @struct
    class SteadySpeed(Free):
        """C's origin moves at a constant speed in whatever direction: ψ = v² - speed²."""

        speed: jax.Array
        velocity_rows: ClassVar[int] = 1

        def velocity_residual(self, T, v, t):
            return (v[:3] @ v[:3] - self.speed**2)[None]

    system, state = ball(coupling=SteadySpeed(2.0), qd=(2.0, 0, 0, 0, 0, 0))
    end = at_time(system, state, 1e-3, 300)
    assert_close(np.linalg.norm(end.velocity), 2.0, 1e-4)
    # dθ/dt = -g cos θ / v from the horizontal: the path of a heavy point of constant speed.
    fallen = 2 * np.arctan(np.tanh(G * 0.3 / 2.0 / 2))
    assert_close(np.arctan2(-end.velocity[2, 0], end.velocity[0, 0]), fallen, 1e-2)


# What is refused


@pytest.mark.parametrize("kind", [RollingSphere, RollingDisc])
@pytest.mark.parametrize("radius", [0.0, -1.0, np.nan])
def test_radii_must_be_positive(kind, radius):
    with refused("'roll'", kind.__name__, "radius", str(radius), "> 0"):
        ball(coupling=kind(radius))


def test_residuals_of_wrong_length_and_other_attachments_are_refused():
    @struct
    class Wrong(Free):
        velocity_rows: ClassVar[int] = 2

        def velocity_residual(self, T, v, t):
            return v[:3]

    with refused("'roll'", "Wrong.velocity_residual(T, v, t)", "[3]", "[2]"):
        ball(coupling=Wrong())
    with refused("'roll'", "attachment 'own'", "'C'", "RollingSphere"):
        ball(attachment="own")
