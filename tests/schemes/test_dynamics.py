"""Physics of whole mechanisms: closure, momentum, energy, laws against closed forms, batches."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import (
    Control,
    Damping,
    DryFriction,
    Fixed,
    Helical,
    Hinge,
    Limits,
    Lock,
    Newton,
    SemiImplicitEuler,
    SpringDamper,
    SystemBuilder,
    coordinates,
    energies,
    joint_errors,
    momentum,
    replace,
    replicate,
    rollout,
    step,
)
from support import mechanisms
from support.cases import mostly_slow
from support.couplings_catalog import MovingPlane
from support.mechanisms import GROUND, G, X, Y, Z, single
from support.motion import after, at_time, placed_on_rail

EXACT = 1e-12  # float64, some thousand roundings of numbers of order one
CONSERVED = 1e-10  # float64, roundings of the solve added up over a rollout
DT = 1e-3
# Bodies held by rows conserve momenta to rounding, and their constraint forces do no work.
ROWS = SemiImplicitEuler(joints="rows")
PLAIN_ROWS = SemiImplicitEuler(joints="rows", gyroscopic="none")
FIRST_ORDER = (0.8, 1.2)  # range of measured orders of convergence


def order(errors):
    """Order of convergence of errors whose steps halve from one to the next."""
    return np.log2(np.array(errors[:-1]) / np.array(errors[1:]))


def assert_first_order(errors):
    measured = order(errors)
    assert (measured > FIRST_ORDER[0]).all() and (measured < FIRST_ORDER[1]).all(), measured


# Loops


@pytest.mark.slow
@pytest.mark.parametrize(
    "cast, largest", [(lambda x: x, 1e-9), (single, 2e-6 * GROUND)], ids=["float64", "float32"]
)
def test_projected_four_bar_stays_closed_for_ten_seconds(cast, largest):
    system, state = cast(mechanisms.four_bar(crank_speed=5.0))
    run = jax.jit(
        partial(
            rollout,
            dt=DT,
            steps=10_000,
            scheme=SemiImplicitEuler(projections=3),
            record=lambda state, info: (info.error, info.ok, info.q[0]),
        )
    )
    final, (error, ok, crank) = run(system, state)
    gaps = np.append(error, joint_errors(system, final))
    assert gaps.max() <= largest
    assert ok.all()
    assert crank[-1] - crank[0] > 2 * np.pi


@pytest.mark.slow
def test_redundant_hinges_act_as_one():
    def hung(hinges):
        world = SystemBuilder()
        world.body("bob", mass=1.0, inertia=(0.02, 0.03, 0.01))
        for i in range(hinges):
            world.joint(str(i), Hinge(Y), child="bob", frame_C=Z, q=0.3 if i == 0 else None)
        return world.build()

    one, _ = after(*hung(1), DT, 100)
    two, info = after(*hung(2), DT, 100)
    assert info.ok.all()
    np.testing.assert_allclose(two.position, one.position, rtol=0, atol=1e-9)
    np.testing.assert_allclose(two.omega, one.omega, rtol=0, atol=1e-9)


# Conservation


@pytest.mark.slow
def test_free_chain_conserves_momentum():
    system, state = mechanisms.floating_chain()
    final, _ = after(system, state, DT, 500, None, ROWS)
    change = momentum(system, final) - momentum(system, state)
    assert np.abs(final.quaternion - state.quaternion).max() > 0.5
    assert np.abs(change).max() <= CONSERVED


@pytest.mark.slow
@pytest.mark.parametrize("gyroscopic", ["implicit", "explicit"])
def test_gyroscopic_terms_of_ode_conserve_angular_momentum_to_first_order(gyroscopic):
    system, state = mechanisms.floating_chain()
    scheme = SemiImplicitEuler(joints="rows", gyroscopic=gyroscopic)
    drifts = []
    for steps in (50, 100, 200):
        final = at_time(system, state, 0.1 / steps, steps, scheme)
        change = np.asarray(momentum(system, final) - momentum(system, state))
        assert np.abs(change[:3]).max() <= CONSERVED
        drifts.append(np.linalg.norm(change[3:]))
    assert_first_order(drifts)


MOVING = {
    "chain": partial(mechanisms.chain, 3, qd=2.0),
    "floating chain": mechanisms.floating_chain,
    "four-bar": partial(mechanisms.four_bar, crank_speed=5.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(MOVING, default=("four-bar",)))
def test_constraint_forces_do_no_work(name):
    system, state = MOVING[name]()
    pushes = np.random.default_rng(0).normal(size=(6, len(system.topology.bodies)))
    control = Control(wrench=jnp.array(10 * pushes))
    new, info = jax.tree.map(np.asarray, after(system, state, DT, 1, control, PLAIN_ROWS))
    power = strength = 0.0
    for joint in system.topology.joints:
        wrench, ends, place = joint_wrench(system, state, info.wrench[0], joint)
        twist = 0.0
        for body, sign in zip(ends, (1, -1), strict=True):
            if body >= 0:
                arm = place - state.position[:, body]
                linear = new.velocity[:, body] + np.cross(new.omega[:, body], arm)
                twist += sign * np.concatenate([linear, new.omega[:, body]])
        power += wrench @ twist
        strength += np.linalg.norm(wrench) * np.linalg.norm(twist)
    assert strength > 1.0
    assert abs(power) <= CONSERVED * strength


def joint_wrench(system, state, wrench, name):
    """A joint's reported wrench on its child in world axes, its two bodies, and C's origin."""
    joint = system.joint(name)
    child = joint.child[0]
    R = rotation_matrix(state.quaternion[:, child])
    place = state.position[:, child] + R @ np.asarray(joint.frame_C.p - system.com[:, child])
    R = R @ rotation_matrix(joint.frame_C.q)
    own = wrench[:, joint.joints[0]]
    wrench = np.concatenate([R @ own[:3], R @ own[3:]])
    return wrench, (child, joint.parent[0]), place


def rotation_matrix(q):
    w, x, y, z = np.asarray(q)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


@pytest.mark.slow
def test_pendulum_energy_drifts_to_first_order():
    system, state = mechanisms.pendulum(q=1.0)
    start = energies(system, state).total
    drifts = []
    for steps in (250, 500, 1000):
        final = at_time(system, state, 0.7 / steps, steps)
        drifts.append(abs(float(energies(system, final).total - start)))
    assert_first_order(drifts)


# Closed forms and an independent reference


def test_free_fall_follows_its_closed_form():
    world = SystemBuilder()
    world.body("stone", mass=3.0, inertia=(0.1, 0.2, 0.25), velocity=(1.0, 0.0, 4.0, 0.0, 0.0, 0.0))
    system, state = world.build()
    final, _ = after(system, state, DT, 100)
    time = 100 * DT
    fallen = -G * DT**2 * 100 * 101 / 2
    np.testing.assert_allclose(final.velocity[:, 0], (1.0, 0.0, 4.0 - G * time), atol=EXACT)
    np.testing.assert_allclose(final.position[:, 0], (time, 0.0, 4 * time + fallen), atol=EXACT)


def test_pendulum_swings_with_its_period():
    length, mass, inertia = 0.8, 1.5, 0.03
    system, state = mechanisms.pendulum(
        q=0.01, length=length, mass=mass, inertia=(0.02, inertia, 0.02)
    )
    expected = 2 * np.pi * np.sqrt((inertia + mass * length**2) / (mass * G * length))
    _, info = after(system, state, DT, 4500)
    q = np.asarray(info.q[:, 0])
    down = np.flatnonzero((q[:-1] > 0) & (q[1:] <= 0))
    crossings = down + q[down] / (q[down] - q[down + 1])
    assert len(crossings) >= 2
    measured = DT * (crossings[-1] - crossings[0]) / (len(crossings) - 1)
    np.testing.assert_allclose(measured, expected, rtol=1e-4)


@pytest.mark.slow
def test_double_pendulum_converges_to_minimal_coordinates():
    length = 0.5
    system, state = mechanisms.chain(2, coupling=Hinge(Y), q=0.6, length=length)
    wanted = double_pendulum(system, 0.6, length, time=0.5)
    errors, found = [], []
    for steps in (500, 1000, 2000):
        final = at_time(system, state, 0.5 / steps, steps)
        found.append(np.asarray(jax.jit(coordinates)(system, final)))
        errors.append(np.abs(found[-1] - wanted).max())
    assert_first_order(errors)
    # Without its first-order part (Richardson) the error is of the next order.
    extrapolated = [
        np.abs(2 * b - a - wanted).max() for a, b in zip(found, found[1:], strict=False)
    ]
    assert extrapolated[1] < extrapolated[0] / 3
    assert extrapolated[1] <= 1e-5


def double_pendulum(system, start, length, time, steps=4000):
    """Joint angles of the planar double pendulum by RK4 on Lagrange's equations."""
    m1, m2 = np.asarray(system.mass)
    I1, I2 = np.asarray(system.inertia[1, 1])
    half = length / 2

    def rate(x):
        a, b, da, db = x  # angles against the vertical
        M = np.array(
            [
                [I1 + m1 * half**2 + m2 * length**2, m2 * length * half * np.cos(a - b)],
                [m2 * length * half * np.cos(a - b), I2 + m2 * half**2],
            ]
        )
        s = m2 * length * half * np.sin(a - b)
        force = [
            -s * db**2 - (m1 * half + m2 * length) * G * np.sin(a),
            s * da**2 - m2 * half * G * np.sin(b),
        ]
        return np.array([da, db, *np.linalg.solve(M, force)])

    x, h = np.array([start, 2 * start, 0.0, 0.0]), time / steps
    for _ in range(steps):
        k1 = rate(x)
        k2 = rate(x + h / 2 * k1)
        k3 = rate(x + h / 2 * k2)
        k4 = rate(x + h * k3)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return np.array([x[0], x[1] - x[0]])


@pytest.mark.slow
def test_bead_on_sphere_circles_as_conical_pendulum():
    angle, radius = 0.5, 1.2
    speed = np.sqrt(G / (radius * np.cos(angle))) * radius * np.sin(angle)
    system, state = mechanisms.sphere(angle=angle, radius=radius, speed=(0.0, speed, 0.0))
    period = 2 * np.pi * np.sqrt(radius * np.cos(angle) / G)
    misses = []
    for steps in (500, 1000, 2000):
        final = at_time(system, state, period / steps, steps)
        misses.append(np.linalg.norm(final.position - state.position))
    assert_first_order(misses)
    assert misses[-1] < 0.02


@pytest.mark.slow
def test_screw_turns_fall_into_rotation():
    pitch, mass, inertia = 0.2, 1.5, 0.04
    world = SystemBuilder()
    world.body("nut", mass=mass, inertia=(0.03, 0.03, inertia))
    world.joint("screw", Helical(pitch), child="nut")
    system, state = world.build()
    final, info = after(system, state, DT, 50)
    acceleration = -mass * G * pitch / (mass * pitch**2 + inertia)
    wanted = acceleration * DT * np.arange(1, 51)
    np.testing.assert_allclose(info.qd[:, 0], wanted, rtol=1e-10)
    np.testing.assert_allclose(final.velocity[2, 0], pitch * wanted[-1], rtol=1e-10)


# Laws along a coordinate


@pytest.mark.slow
def test_effort_is_the_force_along_the_coordinate():
    system, state = mechanisms.slider(mass=2.0)
    force, n = 3.0, 40
    final, _ = after(system, state, DT, n, Control(effort=jnp.array([force])))
    np.testing.assert_allclose(final.velocity[0, 0], force / 2.0 * n * DT, rtol=EXACT)
    np.testing.assert_allclose(
        final.position[0, 0], force / 2.0 * DT**2 * n * (n + 1) / 2, rtol=EXACT
    )
    pushed, _ = after(system, state, DT, n, Control(wrench=jnp.zeros((6, 1)).at[0].set(force)))
    np.testing.assert_allclose(pushed.velocity, final.velocity, rtol=0, atol=EXACT)


@pytest.mark.slow
def test_effort_is_the_moment_about_a_hinge():
    length, mass, inertia, moment = 0.7, 1.3, 0.05, 2.0
    system, state = mechanisms.pendulum(
        q=0.4, length=length, mass=mass, inertia=(0.04, inertia, 0.06), gravity=(0.0, 0.0, 0.0)
    )
    _, info = after(system, state, DT, 1, Control(effort=jnp.array([moment])))
    wanted = DT * moment / (inertia + mass * length**2)
    np.testing.assert_allclose(info.qd[0, 0], wanted, rtol=1e-10)


@pytest.mark.slow
def test_damping_is_an_implicit_euler_step():
    mass, speed, n = 2.0, 0.8, 30
    system, state = mechanisms.slider(mass=mass, laws=Damping(0.0))
    damping = jnp.array([0.0, 0.5, 40.0, 1e6])
    system = system.with_joint("rail", laws=(Damping(damping),))
    final, _ = after(system, placed_on_rail(state, 0.0, jnp.full(4, speed)), DT, n)
    wanted = speed / (1 + DT * damping / mass) ** n
    np.testing.assert_allclose(final.velocity[0, 0], wanted, rtol=EXACT, atol=EXACT)


def test_spring_damper_is_an_implicit_euler_step():
    mass, n = 2.0, 50
    stiffness, damping, rest = np.array([[50.0, 0.0, 1e7], [0.3, 2.0, 1e3], [0.1, 0.0, -0.05]])
    system, state = mechanisms.slider(mass=mass, laws=SpringDamper(0.0, 0.0))
    law = SpringDamper(*(jnp.array(x) for x in (stiffness, damping, rest)))
    system = system.with_joint("rail", laws=(law,))
    final, _ = after(system, placed_on_rail(state, jnp.full(3, 0.2), 0.5), DT, n)
    q, v = np.full(3, 0.2), np.full(3, 0.5)
    for _ in range(n):
        v = (mass * v - DT * stiffness * (q - rest)) / (mass + DT * (DT * stiffness + damping))
        q = q + DT * v
    np.testing.assert_allclose(final.velocity[0, 0], v, rtol=0, atol=1e-10)
    np.testing.assert_allclose(final.position[0, 0], q, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_dry_friction_sticks_below_its_bound_and_slides_above():
    mass, friction, n = 2.0, 1.5, 100
    system, state = mechanisms.slider(mass=mass, laws=DryFriction(friction))
    effort = jnp.array([[0.0, 1.4, -1.49, 1.6, -4.0]])
    state = placed_on_rail(state, jnp.zeros(5), 0.0)
    final, info = after(system, state, DT, n, Control(effort=effort))
    net = np.sign(effort[0]) * np.maximum(np.abs(effort[0]) - friction, 0.0)
    np.testing.assert_allclose(final.velocity[0, 0], net / mass * n * DT, rtol=0, atol=1e-10)
    sticks = np.abs(effort[0]) < friction
    np.testing.assert_allclose(
        info.law_force[:, 0, sticks], -effort[:, sticks] + np.zeros((n, 1)), atol=1e-9
    )
    assert info.ok.all()


@pytest.mark.slow
def test_dry_friction_decelerates_to_rest_and_stays():
    mass, friction, speed = 2.0, 3.0, 0.03
    system, state = mechanisms.slider(mass=mass, laws=DryFriction(friction))
    _, info = after(system, placed_on_rail(state, jnp.zeros(5), speed), DT, 100, None)
    wanted = np.maximum(speed - friction / mass * DT * np.arange(1, 101), 0.0)
    np.testing.assert_allclose(info.qd[:, 0, 0], wanted, rtol=0, atol=1e-10)


SPEEDS = jnp.array([-40.0, -3.0, -0.2, 0.2, 3.0, 40.0])


@cache
def stopped(anticipate):
    """A block that runs into hard stops at ±0.1 at SPEEDS: distances and speeds over time."""
    system, state = mechanisms.slider(laws=Limits(-0.1, 0.1, anticipate=anticipate))
    final, info = after(system, placed_on_rail(state, 0.0, SPEEDS), DT, 600)
    assert info.ok.all()
    q = np.concatenate([info.q[:, 0], coordinates(system, final)])
    return q, np.asarray(info.qd[:, 0])


@pytest.mark.slow
def test_anticipating_stop_is_reached_and_never_passed():
    q, qd = stopped(True)
    assert np.abs(q).max() <= 0.1 + 1e-9
    np.testing.assert_allclose(q[-1], 0.1 * np.sign(SPEEDS), rtol=0, atol=1e-9)
    np.testing.assert_allclose(qd[-1], 0.0, atol=1e-9)


@pytest.mark.slow
def test_stop_that_does_not_anticipate_is_passed_by_one_step():
    q, qd = stopped(False)
    passed = np.abs(q).max(axis=0) - 0.1
    assert (passed <= np.abs(SPEEDS) * DT + 1e-9).all()
    assert (passed[np.abs(SPEEDS) > 30] > 1e-2).all()


@pytest.mark.parametrize(
    "side, sign", [("lower", -1), pytest.param("upper", 1, marks=pytest.mark.slow)]
)
def test_one_sided_stop_holds_one_side_and_frees_the_other(side, sign):
    system, state = mechanisms.slider(laws=Limits(**{side: sign * 0.1}))
    speeds = jnp.array([2.0, -2.0]) * sign
    final, info = after(system, placed_on_rail(state, 0.0, speeds), DT, 200)
    np.testing.assert_allclose(final.position[0, 0], [sign * 0.1, -sign * 0.4], rtol=0, atol=1e-9)
    assert (sign * np.asarray(info.law_force) <= 1e-9).all()


@pytest.mark.slow
def test_hard_stop_corrects_a_violation_no_faster_than_allowed():
    found = {}
    for most in (10.0, None):
        system, state = mechanisms.slider(laws=Limits(0.0, 5.0, erp=0.2, max_correction=most))
        _, info = after(system, placed_on_rail(state, jnp.array([-0.5, -0.01]), 0.0), DT, 1)
        found[most] = np.asarray(info.qd[0, 0])
    np.testing.assert_allclose(found[10.0], [10.0, 2.0], rtol=1e-9)
    np.testing.assert_allclose(found[None], [100.0, 2.0], rtol=1e-9)


@pytest.mark.slow
def test_soft_stop_is_an_implicit_spring_and_damper_that_never_pulls():
    mass, stiffness, damping = 2.0, 400.0, 30.0
    system, state = mechanisms.slider(
        mass=mass, laws=Limits(upper=0.1, stiffness=stiffness, damping=damping)
    )
    final, info = after(system, placed_on_rail(state, jnp.full(1, 0.08), 1.0), DT, 300)
    q, v = 0.08, 1.0
    for _ in range(300):
        free = v
        if q >= 0.1:
            v = (mass * v - DT * stiffness * (q - 0.1)) / (mass + DT * (DT * stiffness + damping))
        else:
            # Inert until the step would pass the stop: damper and spring on what is passed.
            past = mass + DT * (DT * stiffness + damping)
            v = min(v, (mass * v + (DT * stiffness + damping) * (0.1 - q)) / past)
        v = min(v, free)
        q += DT * v
    assert (np.asarray(info.law_force) <= 1e-9).all()
    np.testing.assert_allclose(final.velocity[0, 0, 0], v, rtol=0, atol=1e-9)
    assert v < -0.1


@pytest.mark.slow
def test_lock_holds_and_closes_its_error_by_its_share():
    system, state = mechanisms.slider(q=0.3, laws=Lock(0.3, erp=0.25))
    final, _ = after(
        system,
        placed_on_rail(state, jnp.array([0.3, 0.5]), 0.0),
        DT,
        20,
        Control(effort=jnp.array([50.0])),
    )
    wanted = 0.3 + np.array([0.0, 0.2]) * 0.75**20
    np.testing.assert_allclose(final.position[0, 0], wanted, rtol=0, atol=1e-9)


def test_locked_pendulum_does_not_fall():
    system, state = mechanisms.pendulum(q=0.7, laws=Lock(0.7))
    final, info = after(system, state, DT, 100)
    np.testing.assert_allclose(final.position, state.position, rtol=0, atol=1e-9)
    np.testing.assert_allclose(info.law_force[:, 0], G * np.sin(0.7), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("soft", [False, True], ids=["hard stops", "soft stops"])
def test_laws_on_one_coordinate_add_up(soft):
    rng = np.random.default_rng(3)
    count, mass = 200, 1.7
    draw = partial(rng.uniform, size=count)
    lower, upper = draw(-0.3, -0.1), draw(0.1, 0.3)
    near = np.where(draw(0, 1) < 0.5, lower, upper) + draw(-2e-3, 2e-3)
    q = np.where(draw(0, 1) < 0.7, near, draw(-0.3, 0.3))
    v, effort = draw(-2.0, 2.0) * (draw(0, 1) < 0.6), draw(-500.0, 500.0)
    friction, more = draw(0.0, 600.0), draw(0.0, 50.0)
    damping, stiffness, rest = draw(0.0, 50.0), draw(0.0, 1e4), draw(-0.1, 0.1)
    stop = {"stiffness": draw(0.0, 1e6), "damping": draw(0.1, 100.0)} if soft else {}
    example = [Limits(-1.0, 1.0, **dict.fromkeys(stop, 1.0)), Damping(0.0), DryFriction(0.0)]
    example += [SpringDamper(0.0, 0.0), DryFriction(0.0)]
    system, state = mechanisms.slider(mass=mass, laws=example)
    limits = replace(
        system.joint("rail").laws[0],
        **{k: jnp.array(x) for k, x in ({"lower": lower, "upper": upper} | stop).items()},
    )
    others = Damping(jnp.array(damping)), DryFriction(jnp.array(friction))
    spring = SpringDamper(jnp.array(stiffness), jnp.array(0.5 * damping), jnp.array(rest))
    laws = (limits, *others, spring, DryFriction(jnp.array(more)))
    system = system.with_joint("rail", laws=laws)
    control = Control(effort=jnp.array(effort)[None])
    _, info = after(system, placed_on_rail(state, q, v), DT, 1, control)

    below = q - lower < upper - q
    gap, sign = np.where(below, q - lower, upper - q), np.where(below, 1.0, -1.0)
    correction = np.minimum(gap, 0.0)
    if soft:
        resistance = DT * stop["stiffness"] + stop["damping"]
        correction = correction * DT * stop["stiffness"] / resistance
        give = 1 / (DT * resistance)
    else:
        correction = np.maximum(0.2 * correction, -10.0 * DT)
        give = np.full(count, 1e-13)
    bias = (correction + np.maximum(gap, 0.0)) / DT

    def surplus(u):
        """Momentum at the speed u less what all forces give: rises with u."""
        pushed = np.maximum(-(sign * u + bias) / give, 0.0)
        rubbed = -DT * (friction + more) * np.sign(u)
        pulled = -DT * stiffness * (q + DT * u - rest) - DT * 1.5 * damping * u
        return mass * (u - v) - DT * effort - sign * pushed - rubbed - pulled

    low, high = np.full(count, -1e4), np.full(count, 1e4)
    for _ in range(120):
        middle = (low + high) / 2
        high = np.where(surplus(middle) > 0, middle, high)
        low = np.where(surplus(middle) > 0, low, middle)
    assert info.ok.all()
    np.testing.assert_allclose(info.qd[0, 0], (low + high) / 2, rtol=0, atol=1e-9)
    sticks = np.abs(high) < 1e-9
    held = np.abs(sign * high + bias) < 1e-9
    assert sticks.sum() > 10 and (soft or held.sum() > 10)


@pytest.mark.slow
def test_smoothing_pushes_before_the_stop_is_touched():
    system, state = mechanisms.slider(laws=Limits(lower=0.0))
    gap = jnp.array([1e-3, 0.01, 0.1, 1.0])
    speeds = []
    for smoothing in (0.1, 0.01, 0.0):
        scheme = SemiImplicitEuler(solver=Newton(smoothing=jnp.array(smoothing)))
        _, info = after(system, placed_on_rail(state, gap, 0.0), DT, 1, None, scheme)
        # v (v + φ/h) = ν², the barrier's step from rest.
        half = np.asarray(gap) / DT / 2
        exact = smoothing**2 / (half + np.sqrt(half**2 + smoothing**2))
        np.testing.assert_allclose(info.qd[0, 0], exact, rtol=1e-9, atol=1e-15)
        speeds.append(np.asarray(info.qd[0, 0]))
    np.testing.assert_allclose(speeds[0] / DT, 0.1**2 / gap, rtol=1e-2)
    assert (speeds[0] > speeds[1]).all() and (speeds[1] > speeds[2]).all()


# Mechanisms in any graph


@pytest.mark.slow
def test_disconnected_mechanisms_do_not_feel_each_other():
    def hang(world, name, length, q):
        world.body(name, mass=1.0 + length, inertia=(0.02, 0.03, 0.01))
        world.joint(name, Hinge(Y), child=name, frame_C=(0.0, 0.0, length), q=q)

    pendulums = {"short": (0.5, 0.3), "long": (1.5, -0.8)}
    both = SystemBuilder()
    both.body("adrift", mass=1.0, inertia=(0.1, 0.2, 0.15), velocity=(1.0, 0, 0, 0.1, 0.2, 0.3))
    both.body("tied", mass=0.5, inertia=(0.1, 0.1, 0.1), pose=X)
    both.joint("weld", Fixed(), child="tied", parent="adrift", frame_C=(-1.0, 0.0, 0.0))
    for name, (length, q) in pendulums.items():
        hang(both, name, length, q)
    system, state = both.build()
    together, info = after(system, state, DT, 100, None, ROWS)
    assert info.ok.all()
    for name, (length, q) in pendulums.items():
        alone = SystemBuilder()
        hang(alone, name, length, q)
        final, _ = after(*alone.build(), DT, 100, None, ROWS)
        np.testing.assert_allclose(
            together.position[:, system.body(name)], final.position[:, 0], rtol=0, atol=EXACT
        )
    fallen = -G * DT * 100 * (1.0 + 0.5)
    drifting = system.body("adrift"), system.body("tied")
    sinking = sum(float(system.mass[i] * together.velocity[2, i]) for i in drifting)
    at_start = sum(float(system.mass[i] * state.velocity[2, i]) for i in drifting)
    np.testing.assert_allclose(sinking, at_start + fallen, rtol=0, atol=CONSERVED)


@pytest.mark.slow
def test_prescribed_base_carries_what_it_bears():
    system, state = mechanisms.moving_base()
    twist = jnp.array([[0.7], [0.3], [-0.2], [0.0], [0.0], [0.0]])
    final, info = after(system, state, DT, 200, Control(twist=twist), ROWS)
    base, cart, bob = (system.body(name) for name in ("base", "cart", "bob"))
    moved = np.asarray(final.position - state.position)
    np.testing.assert_allclose(moved[:, base], 200 * DT * twist[:3, 0], rtol=0, atol=EXACT)
    np.testing.assert_allclose(moved[[0, 2], cart], moved[[0, 2], base], rtol=0, atol=1e-9)
    # Nothing pushes along the rail: cart and bob together keep their momentum there.
    along = sum(float(system.mass[i] * final.velocity[1, i]) for i in (cart, bob))
    assert abs(along) <= CONSERVED
    assert np.abs(final.velocity[1, cart]) > 1e-3
    assert info.ok.all()


@pytest.mark.slow
def test_prescribed_base_is_not_moved_by_forces():
    system, state = mechanisms.moving_base(laws=Damping(3.0))
    final, _ = after(system, state, DT, 50)
    np.testing.assert_array_equal(final.position[:, 0], state.position[:, 0])
    np.testing.assert_array_equal(final.velocity[:, 0], 0.0)


@pytest.mark.slow
def test_surface_that_moves_with_time_takes_its_body_along():
    speed, mass = 0.7, 2.0
    world = SystemBuilder()
    world.body("bead", mass=mass, inertia=(0.1, 0.1, 0.1), velocity=(0.4, 0, speed, 0, 0, 0))
    world.joint("plane", MovingPlane(speed), child="bead")
    system, state = world.build()
    final, info = after(system, state, DT, 100)
    wanted = (0.4 * 100 * DT, 0.0, speed * 100 * DT)
    np.testing.assert_allclose(final.position[:, 0], wanted, rtol=0, atol=CONSERVED)
    np.testing.assert_allclose(info.wrench[:, 2, 0], mass * G, rtol=1e-9)


# Batches

STEPS = 20
COUNT = 6


def simulate(system, state, control, joints="coordinates"):
    """All states and infos of STEPS steps, time first."""
    scheme = SemiImplicitEuler(solver=Newton(smoothing=jnp.asarray(0.01)), joints=joints)

    def one(state, _):
        state, info = step(system, state, control, dt=DT, scheme=scheme)
        return state, (state, info)

    return jax.lax.scan(one, state, None, length=STEPS)[1]


simulated = jax.jit(simulate, static_argnames="joints")


@cache
def environments():
    """Six mixed mechanisms of unlike states, controls and parameters; number 0 has no effort."""
    system, state = mechanisms.mixed()
    rng = np.random.default_rng(0)

    def spread(x, share=0.2):
        x = jnp.asarray(x)[..., None]
        return x * (1 + share * rng.uniform(-1, 1, (*x.shape[:-1], COUNT)))

    shoulder = system.joint("shoulder")
    limits, *others = shoulder.laws
    limits = replace(limits, lower=spread(limits.lower), stiffness=spread(limits.stiffness))
    frame = replace(shoulder.frame_C, p=spread(shoulder.frame_C.p))
    batched = replace(system, mass=spread(system.mass), gravity=spread(system.gravity))
    batched = batched.with_joint("shoulder", laws=(limits, *others), frame_C=frame)
    screw = system.joint("screw").coupling
    batched = batched.with_joint("screw", coupling=replace(screw, pitch=spread(screw.pitch)))
    state = replicate(state, COUNT)
    state = replace(state, velocity=state.velocity + 0.1 * rng.normal(size=state.velocity.shape))
    effort = jnp.array(rng.normal(size=(system.coordinates, COUNT))).at[:, 0].set(0.0)
    wrench = jnp.array(rng.normal(size=(6, len(system.topology.bodies))))
    return batched, state, Control(effort=effort, wrench=wrench)


@cache
def unlike_throughout():
    """The same environments with unlike numbers in every leaf of the system."""
    system, _ = mechanisms.mixed()
    _, state, control = environments()
    rng = np.random.default_rng(1)
    # Places and directions change little, as the joints are no longer closed at the start.
    sizes = {".com": 2e-3, ".p": 2e-3, ".q": 5e-3, ".axis": 0.01, ".gravity": 0.1}
    sizes |= {".axis_C": 0.01, ".axis_D": 0.01}

    def vary(path, leaf):
        path, leaf = jax.tree_util.keystr(path), np.asarray(leaf)
        random = rng.uniform(-1, 1, (2, *leaf.shape, COUNT))
        if path.endswith(".inertia"):
            random = random + np.swapaxes(random, 1, 2)
            random[1] *= 0.01 * np.trace(leaf)[:, None]  # turns the principal axes
            return jnp.asarray(leaf[..., None] * (1 + 0.01 * random[0]) + random[1])
        size = next((x for end, x in sizes.items() if path.endswith(end)), 1e-6)
        varied = leaf[..., None] * (1 + 0.01 * random[0]) + size * np.abs(random[1])
        if path.endswith(".q"):
            varied = varied / np.linalg.norm(varied, axis=0)
        return jnp.asarray(varied)

    return jax.tree_util.tree_map_with_path(vary, system), state, control


GIVEN = {"some leaves": environments, "all leaves": unlike_throughout}


def batch_axes(system, state, control):
    """-1 for each leaf that carries the batch, None for shared ones."""
    system_axes = [
        -1 if leaf.ndim > rank else None
        for leaf, rank in zip(jax.tree.leaves(system), system.topology.ranks, strict=True)
    ]
    return system_axes + [-1] * len(jax.tree.leaves(state)) + [-1, None]


@cache
def trailing(given=environments):
    return simulated(*given())


def assert_same(actual, expected):
    """Equal to rounding of each array's largest number: states and all that was reported."""

    def same(a, b):
        scale = max(1.0, float(np.max(np.abs(b), initial=0.0)))
        np.testing.assert_allclose(a, b, rtol=0, atol=EXACT * scale)

    jax.tree.map(same, actual, expected)


@cache
def environment(i, given=environments):
    """What one of the environments is given, and what it does alone."""
    given = given()
    leaves, structure = jax.tree.flatten(given)
    axes = batch_axes(*given)
    one = [x if axis is None else x[..., i] for x, axis in zip(leaves, axes, strict=True)]
    given = jax.tree.unflatten(structure, one)
    return given, simulated(*given)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(environments, id="some leaves", marks=pytest.mark.sweep),
        pytest.param(unlike_throughout, id="all leaves", marks=pytest.mark.sweep),
    ],
)
def test_trailing_batch_equals_loop(given):
    for i in range(COUNT):
        _, alone = environment(i, given)
        assert_same(jax.tree.map(lambda x, i=i: x[..., i], trailing(given)), alone)
    _, info = trailing(given)
    assert info.ok.all()
    assert np.abs(info.law_force[:, :2]).max() > 1.0


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(environments, id="some leaves", marks=pytest.mark.sweep),
        pytest.param(unlike_throughout, id="all leaves", marks=pytest.mark.sweep),
    ],
)
def test_vmap_equals_trailing_batch(given):
    expected, given = trailing(given), given()
    leaves, structure = jax.tree.flatten(given)
    mapped = jax.vmap(
        lambda *leaves: simulate(*jax.tree.unflatten(structure, leaves)),
        in_axes=batch_axes(*given),
        out_axes=-1,
    )
    assert_same(jax.jit(mapped)(*leaves), expected)


@pytest.mark.slow
def test_every_leaf_of_the_system_carries_a_batch_of_unlike_numbers():
    system, _, _ = unlike_throughout()
    for path, leaf in jax.tree_util.tree_leaves_with_path(system):
        finite = np.isfinite(leaf).all(axis=-1)
        assert (np.ptp(np.asarray(leaf)[finite], axis=-1) > 0).all(), jax.tree_util.keystr(path)
    assert set(batch_axes(*unlike_throughout())[: len(jax.tree.leaves(system))]) == {-1}


@pytest.mark.sweep
def test_batch_axes_nest():
    given = environments()
    leaves, structure = jax.tree.flatten(given)
    nested = [
        x if axis is None else x.reshape((*x.shape[:-1], 2, 3))
        for x, axis in zip(leaves, batch_axes(*given), strict=True)
    ]
    found = simulated(*jax.tree.unflatten(structure, nested))
    flat = jax.tree.map(lambda x: x.reshape((*x.shape[:-2], COUNT)), found)
    assert_same(flat, trailing())


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, STEPS - 1])
def test_reported_wrenches_account_for_all_motion(at):
    (system, state, control), _ = environment(0)
    states, infos = simulated(system, state, control, joints="rows")
    old, new, info = (
        jax.tree.map(lambda x, i=i: np.asarray(x[i]), tree)
        for tree, i in ((states, at - 1), (states, at), (infos, at))
    )
    force = np.array(control.wrench)
    force[:3] += np.asarray(system.mass) * np.asarray(system.gravity)[:, None]
    for name in system.topology.joints:
        wrench, ends, place = joint_wrench(system, old, info.wrench, name)
        for body, sign in zip(ends, (1, -1), strict=True):
            if body >= 0:
                arm = place - old.position[:, body]
                force[:3, body] += sign * wrench[:3]
                force[3:, body] += sign * (wrench[3:] + np.cross(arm, wrench[:3]))
    gained = body_momenta(system, new) - body_momenta(system, old)
    np.testing.assert_allclose(gained, DT * force, rtol=0, atol=CONSERVED)


def body_momenta(system, state):
    """Linear and angular momentum of each body about its centre of mass, (6, bodies)."""
    spins = []
    for body, q in enumerate(state.quaternion.T):
        R = rotation_matrix(q)
        spins.append(R @ np.asarray(system.inertia[:, :, body]) @ R.T @ state.omega[:, body])
    return np.concatenate([np.asarray(system.mass) * state.velocity, np.array(spins).T])
