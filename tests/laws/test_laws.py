"""Laws against closed forms: bounces, motors, servos, what they add up to, and their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import (
    Armature,
    Control,
    CoordinateState,
    DryFriction,
    Effort,
    Gimbal,
    LimitForce,
    Limits,
    Motor,
    Newton,
    Servo,
    SpringDamper,
    SystemBuilder,
    replace,
    rollout,
)
from jaxjoints.algebra.spatial import quat_to_matrix
from jaxjoints.laws.transmissions import SwingCone
from support import mechanisms, oracle
from support.mechanisms import G, X, Z
from support.motion import PLAIN, after, at_time, placed_on_rail

EXACT = 1e-12  # float64, some thousand roundings of numbers of order one
DT = 1e-3
MASS = 2.0


def on_rail(laws, q=0.0, qd=0.0, axis=X, **options):
    """A block of MASS on a rail with laws, at distances q and speeds qd (*batch)."""
    system, state = mechanisms.slider(axis=axis, mass=MASS, laws=laws, **options)
    return system, placed_on_rail(state, q, qd, axis.index(1.0))


# Bounces

RESTITUTION = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0])
HEIGHTS = np.linspace(1.0, 1.05, 4)  # they meet the ground at as many phases of a step


def apex_errors(dt):
    """Errors of the first three apexes as shares of the height, (apexes, heights, restitutions)."""
    system, state = on_rail(
        [Limits(lower=0.0, restitution=0.5)],
        q=np.broadcast_to(HEIGHTS[:, None], (len(HEIGHTS), len(RESTITUTION))),
        axis=Z,
        gravity=(0.0, 0.0, -G),
    )
    (law,) = system.joint("rail").laws
    law = replace(law, restitution=jnp.asarray(RESTITUTION)[None] + 0 * HEIGHTS[:, None])
    system = system.with_joint("rail", laws=(law,))
    # One row and one bound: two of Newton's steps solve it, and a third shows.
    scheme = replace(PLAIN, solver=Newton(iterations=3))
    _, info = after(system, state, dt, 2900, None, scheme)
    assert info.ok.all() and info.q.min() >= -EXACT
    q, errors = np.asarray(info.q)[:, 0], np.empty((3, len(HEIGHTS), len(RESTITUTION)))
    for i, height in enumerate(HEIGHTS):
        fall = np.sqrt(2 * height / G)
        for j, e in enumerate(RESTITUTION):
            for k in range(3):
                at = fall * (1 + 2 * sum(e**n for n in range(1, k + 1)) + e ** (k + 1))
                half = 0.5 * fall * e ** (k + 1)
                flight = slice(round((at - half) / dt), round((at + half) / dt) + 1)
                errors[k, i, j] = q[flight, i, j].max() / height - e ** (2 * k + 2)
    return np.abs(errors)


@pytest.mark.slow
def test_apexes_of_a_bouncing_ball():
    fine, coarse = apex_errors(1e-3), apex_errors(5e-3)
    assert fine.max() < 0.01 and coarse.max() < 0.03
    # First order, for every restitution: the worst of all phases grows by the ratio of the steps.
    growth = coarse.max(axis=(0, 1))[:-1] / fine.max(axis=(0, 1))[:-1]
    assert (growth > 4.0).all() and (growth < 6.0).all(), growth
    # Bounces without loss keep the height; what is left is where apexes fall between steps.
    assert fine[..., -1].max() < G * 1e-3**2 and coarse[..., -1].max() < G * 5e-3**2


def test_a_bounce_gives_back_its_share_of_the_speed_and_never_adds_to_a_correction():
    laws = [Limits(-0.1, 0.1, restitution=0.6, erp=0.2)]
    q, qd = np.array([0.0999, -0.0999, 0.05, 0.11, 0.11, 0.11]), [2.0, -2.0, 2.0, 2.0, 4.0, -0.5]
    _, info = after(*on_rail(laws, q, qd), DT, 1)
    # Past the stop by 0.01, ERP asks for 2 m/s: more than 0.6 · 2, less than 0.6 · 4 m/s.
    np.testing.assert_allclose(info.qd[0, 0], [-1.2, 1.2, 2.0, -2.0, -2.4, -2.0], rtol=1e-9)


# Motors and servos


@pytest.mark.slow
def test_a_motor_reaches_its_speed_with_no_more_than_its_effort():
    speed, effort = np.array([0.5, 0.5, -1.0]), np.array([6.0, 0.1, 6.0])
    start = np.array([0.0, 0.0, 2.0])
    system, state = on_rail([Motor(0.5, 6.0)], qd=start)
    (law,) = system.joint("rail").laws
    law = replace(law, effort=jnp.asarray(effort))
    # Speeds from the control count, and those of the law where it has none.
    for own, control in (
        (speed, None),
        (0 * speed, Control(target_speed=jnp.asarray(speed)[None])),
    ):
        laws = (replace(law, speed=jnp.asarray(own)),)
        _, info = after(system.with_joint("rail", laws=laws), state, DT, 600, control)
        most = (effort / MASS) * DT * np.arange(1, 601)[:, None]
        wanted = start + np.clip(speed - start, -most, most)
        np.testing.assert_allclose(info.qd[:, 0], wanted, rtol=0, atol=EXACT)


def pd(q, qd, target, speed, stiffness, damping, most):
    """Speed after an implicit step under PD control, its effort bounded."""
    total = MASS + DT * (DT * stiffness + damping)
    new = (MASS * qd + DT * (stiffness * (target - q) + damping * speed)) / total
    return qd + np.clip(new - qd, -DT * most / MASS, DT * most / MASS)


@pytest.mark.parametrize("most", [pytest.param(None, marks=pytest.mark.slow), 40.0, 3.0])
def test_a_servo_is_implicit_pd_control(most):
    stiffness, damping = 300.0, 20.0
    system, state = on_rail([Servo(stiffness, damping, most, target=0.1, target_speed=0.3)])
    final, info = after(system, state, DT, 300)
    q = qd = 0.0
    for _ in range(300):
        qd = pd(q, qd, 0.1, 0.3, stiffness, damping, np.inf if most is None else most)
        q += DT * qd
    np.testing.assert_allclose(final.velocity[0, 0], qd, rtol=0, atol=EXACT)
    np.testing.assert_allclose(final.position[0, 0], q, rtol=0, atol=EXACT)
    if most is not None:
        assert np.abs(info.law_force).max() <= most + 1e-9


@pytest.mark.slow
def test_targets_come_from_arrays_and_from_controllers():
    stiffness, damping, most, steps = 40.0, 5.0, 3.0, 40
    system, state = on_rail([Servo(stiffness, damping, most)])

    def asked(time):
        return Control(target=0.3 * jnp.sin(4 * time)[None], target_speed=jnp.cos(4 * time)[None])

    times = DT * jnp.arange(1.0, steps + 1)
    array = jax.vmap(asked)(times)
    options = {"dt": DT, "steps": steps, "scheme": PLAIN}
    by_array, _ = rollout(system, state, array, **options)
    by_function, _ = rollout(system, state, lambda state: asked(state.time + DT), **options)
    q = qd = 0.0
    for target, speed in zip(array.target[:, 0], array.target_speed[:, 0], strict=True):
        qd = pd(q, qd, target, speed, stiffness, damping, most)
        q += DT * qd
    for final in (by_array, by_function):
        np.testing.assert_allclose(final.position[0, 0], q, rtol=0, atol=EXACT)


@pytest.mark.slow
def test_a_spring_follows_its_analytic_oscillation_to_first_order():
    stiffness, damping, rest, start, time = 50.0, 1.0, 0.2, 0.5, 0.8
    system, state = on_rail([SpringDamper(stiffness, damping, rest)], q=start)
    rate = damping / (2 * MASS)
    ω = np.sqrt(stiffness / MASS - rate**2)
    decay = np.exp(-rate * time) * (start - rest)
    exact = rest + decay * (np.cos(ω * time) + rate / ω * np.sin(ω * time))
    found = [at_time(system, state, time / n, n).position[0, 0] for n in (400, 800, 1600)]
    errors = np.array(found) - exact
    np.testing.assert_allclose(errors[:-1] / errors[1:], 2.0, atol=0.05)
    # Without their first and second orders, of (ω h) each, nothing is left but the third.
    once = 2 * errors[1:] - errors[:-1]
    assert abs(4 * once[1] - once[0]) / 3 < (ω * time / 400) ** 3


def test_an_armature_is_inertia_and_an_effort_a_force():
    rotor, force = 3.0, 1.5
    system, state = on_rail([Armature(rotor), Effort(force)], qd=0.25)
    _, info = after(system, state, DT, 50)
    wanted = 0.25 + force / (MASS + rotor) * DT * np.arange(1, 51)
    np.testing.assert_allclose(info.qd[:, 0], wanted, rtol=0, atol=EXACT)


@pytest.mark.slow
def test_a_motor_with_friction_and_armature_runs_into_a_stop():
    """It speeds up by what effort, friction and rotor leave, keeps its speed, bounces, stands."""
    effort, friction, rotor, speed = 5.0, 2.0, 3.0, 0.3
    stop = Limits(upper=0.1, restitution=0.5)
    laws = [Motor(speed, effort), stop, DryFriction(friction), Armature(rotor)]
    _, info = after(*on_rail(laws), DT, 1200)
    q, qd = np.asarray(info.q)[:, 0], np.asarray(info.qd)[:, 0]
    first = int(np.argmax(qd < 0))
    n = np.arange(1, first + 1)
    ramp = np.minimum((effort - friction) / (MASS + rotor) * n * DT, speed)
    np.testing.assert_allclose(qd[:first], ramp, rtol=0, atol=1e-9)
    np.testing.assert_allclose(qd[first], -0.5 * speed, rtol=1e-9)
    # Thrown back, motor and friction both brake it.
    back = (effort + friction) / (MASS + rotor) * DT
    np.testing.assert_allclose(np.diff(qd[first : first + 50]), back, rtol=1e-6)
    assert q.max() <= 0.1 + EXACT
    np.testing.assert_allclose([q[-1], qd[-1]], [0.1, 0.0], atol=1e-9)
    np.testing.assert_allclose(info.law_force[-1], 0.0, atol=1e-9)


# Limits that are forces, and cones


@pytest.mark.parametrize("transition", [0.0, 0.05])
def test_a_limit_force_has_its_stiffness_damping_and_transition(transition):
    """The force on blocks at rest or in motion, from a step so short that it is explicit."""
    stiffness, damping, dt = 300.0, 4.0, 1e-9
    law = LimitForce(-0.2, 0.1, stiffness, damping, transition)
    q = np.array([0.0, 0.1, 0.12, 0.2, -0.21, -0.4, 0.12, -0.21, 0.3])
    qd = np.array([0.7, 0.7, 0.0, 0.0, 0.0, 0.0, 0.5, 0.5, -9.0])
    _, info = after(*on_rail([law], q, qd), dt, 1)
    x, side = np.maximum(q - 0.1, 0) + np.maximum(-0.2 - q, 0), np.where(q > 0, 1, -1)
    inside = x < transition
    force = np.where(inside, x**2 / (2 * max(transition, 1e-9)), x - transition / 2)
    share = np.where(inside, np.sqrt(x / max(transition, 1e-9)), x > 0)
    wanted = -side * stiffness * np.where(x > 0, force, 0.0) - share * damping * qd
    np.testing.assert_allclose(info.law_force[0, 0], wanted, rtol=1e-5, atol=1e-9)


def test_limit_force_and_actuator_of_artisynth():
    """What the momentum about the hinge gains from each recorded state to the next is what the laws
    give at the speed that was recorded then; what holds the hinge has no part in it.
    """
    case = oracle.load("artisynth_laws")["joint_limit_force_and_actuator"]
    (body,), (joint,), dt = case["bodies"], case["joints"], case["dt"]
    laws = [LimitForce(lower=-0.4, stiffness=30.0, damping=1.0), Effort(0.5 * 1.5)]
    laws += [LimitForce(upper=0.3, stiffness=20.0, damping=0.5, transition=0.1)]
    frame_C, frame_D = (np.reshape(joint[k], (4, 4)) for k in ("T_CA", "T_DB"))
    # The first step starts with a projection.
    pose, twist = (np.asarray(case["trajectory"][k])[1:].T for k in ("pose", "vel"))
    turn = np.moveaxis(np.asarray(quat_to_matrix(jnp.asarray(pose[3:]))), -1, 0)
    # ArtiSynth's forces act in the frame G, whose origin a hinge has in common with D.
    axis, arm = turn @ frame_C[:3, 2], pose[:3].T - frame_D[:3, 3]
    seen = frame_D[:3, :3].T @ turn @ frame_C[:3, :3]
    q = np.arctan2(seen[:, 1, 0], seen[:, 0, 0])
    inertia = turn @ np.reshape(body["inertia_about_com"], (3, 3)) @ turn.swapaxes(-1, -2)
    mass, along = body["mass"], np.cross(axis, arm)[:-1]

    def momentum(twist, k):
        turning = np.einsum("ni,nij,nj->n", axis[:-1], inertia[:-1], twist[3:, k].T)
        return turning + mass * np.sum(along * twist[:3, k].T, axis=1)

    weight = mass * along @ np.asarray(case["gravity"])
    now, then = slice(None, -1), slice(1, None)
    gain = momentum(twist, then) - momentum(twist, now) - dt * weight
    speed = np.sum(axis[:-1] * twist[3:, then].T, axis=1)
    rows = [law.force(CoordinateState(q=jnp.asarray(q[:-1]), dt=dt)) for law in laws]
    given = sum(row.impulse - row.augmented_stiffness * speed for row in rows)
    assert (q < -0.45).sum() > 30 and (q > -0.35).sum() > 10
    # Of numbers rounded to 13 digits.
    np.testing.assert_allclose(gain, given, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_a_swing_cone_holds_two_angles_and_is_felt_nowhere_else():
    major, minor, steps = 0.6, 0.3, 400
    gimbal = Gimbal("XYZ")
    systems = []
    for laws in ([Limits(lower=0.0)], [Limits(lower=-9.0)]):
        world = SystemBuilder()
        world.body("bob", mass=1.0, inertia=(0.02, 0.02, 0.01))
        world.joint("ball", gimbal, child="bob", frame_C=(0.0, 0.0, 0.5))
        cone = SwingCone(major, minor)
        world.transmission("cone", cone, joints="ball", laws=laws)
        systems.append(world.build())
    (system, state), (free, _) = systems
    # At rest in the centre, swinging inside, along either axis and round against the cone.
    qd = jnp.array([[0.0, 0.5, 4.0, 0.0, 2.5], [0.0, 0.1, 0.0, 4.0, 1.5], [0.0, 0, 0, 0, 1.0]])
    start = system.state(q={"ball": 0 * qd}, qd={"ball": qd})
    inside, info = after(system, start, 2e-3, steps)
    q = np.asarray(info.q)
    swing = np.sqrt((q[:, 0] / major) ** 2 + (q[:, 1] / minor) ** 2).max(axis=0)
    # Along the cone a step leaves it by its curvature.
    leaves = (2e-3 * np.abs(info.qd).max()) ** 2 / minor
    assert (swing[2:] > 0.999).all() and swing.max() < 1 + leaves and swing[1] < 0.9
    assert info.ok.all() and np.all(info.transmission_force >= -1e-9)
    other, _ = after(free, start, 2e-3, steps)
    np.testing.assert_allclose(inside.position[..., :2], other.position[..., :2], atol=EXACT)
    assert np.abs(inside.position - other.position)[..., 2:].max() > 0.1


def test_what_is_wrong_with_limit_forces_and_cones_is_said():
    for law, words in (
        (LimitForce(stiffness=1.0), "lower None and upper None must be numbers"),
        (LimitForce(np.nan, 1.0), "lower nan and upper 1.0 must be numbers"),
        (LimitForce(1.0, 0.5), "lower 1.0 must not be above upper 0.5"),
        (LimitForce(0.0, 1.0, transition=-1.0), "transition -1.0 must be >= 0"),
        (LimitForce(0.0, 1.0, stiffness=-1.0), "stiffness -1.0 must be >= 0"),
    ):
        with pytest.raises(ValueError, match=f"joint 'rail': LimitForce on coordinate 0: {words}"):
            on_rail([law])
    world = SystemBuilder()
    world.body("bob", mass=1.0, inertia=(1.0, 1.0, 1.0))
    world.joint("ball", Gimbal(), child="bob")
    for cone, words in (
        (SwingCone(0.0, 1.0), "SwingCone major 0.0 must be > 0"),
        (SwingCone(1.0, 1.0, second=3), "first 0 and second 3 must be two of 3"),
    ):
        with pytest.raises(ValueError, match=f"'cone': .*{words}"):
            world.transmission("cone", cone, joints="ball", laws=Limits(lower=0.0))
