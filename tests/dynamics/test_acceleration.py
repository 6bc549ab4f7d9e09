"""Accelerations, reactions and impacts: closed forms, RBDL's recordings, steps that get short."""

import warnings
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.algebra.spatial import quat_multiply
from jaxjoints.dynamics import Touch, accelerations, impact
from support import mechanisms
from support.differences import check_slopes
from support.mechanisms import G, X, Z, single
from support.rbdl_instants import RECORDED, by_body, in_order, mechanism, multipliers, start
from support.refusals import refused

EXACT = 1e-12  # float64, of numbers of order one
SOLVED = 1e-10  # with the regularization of loops, relative to the largest
SINGLE = 2e-6  # float32
FIRST_ORDER = (0.9, 1.1)  # range of measured orders of convergence

at_once = jax.jit(accelerations)
hit = jax.jit(impact)


def batch_of(state, count):
    return jj.replicate(state, count)


# Closed forms


def block(**options):
    """A block of 2 kg on a rail with a spring, a damper, dry friction and stops."""
    laws = [jj.Limits(-0.5, 0.5), jj.DryFriction(1.0), jj.SpringDamper(4.0, 0.5)]
    return mechanisms.slider(laws=laws, mass=2.0, **options)


# Place, speed, effort, and what force is left over for the acceleration.
BLOCKS = np.array(
    [
        (0.1, 1.0, 0.0, -0.4 - 0.5 - 1.0),  # slides
        (0.1, -1.0, 0.0, -0.4 + 0.5 + 1.0),
        (0.1, 0.0, 0.5, 0.0),  # sticks
        (0.1, 0.0, 3.0, 3.0 - 0.4 - 1.0),  # is torn loose
        (0.5, 0.0, 5.0, 0.0),  # leans on its stop
        (0.5, -0.3, 5.0, 5.0 - 2.0 + 0.15 + 1.0),  # moves off it
        (0.5, 0.0, -5.0, -5.0 - 2.0 + 1.0),  # is pulled off it
        (-0.5, 0.0, -9.0, 0.0),
        (0.5, 0.2, 5.0, 0.0),  # runs into it
    ]
).T


@pytest.mark.slow
@pytest.mark.parametrize(
    "cast, close",
    [(lambda x: x, EXACT), pytest.param(single, SINGLE, marks=pytest.mark.slow)],
)
def test_laws_act_with_what_they_give_at_once(cast, close):
    q, qd, effort, net = BLOCKS
    system, state = block()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state = system.state(q={"rail": q[None]}, qd={"rail": qd[None]})
    control = jj.Control(effort=jnp.array(effort)[None])
    now = at_once(*cast((system, state, control)))
    assert now.qdd.dtype == (jnp.float64 if close == EXACT else jnp.float32)
    np.testing.assert_allclose(now.qdd[0], net / 2, atol=close * 10)
    np.testing.assert_allclose(now.linear[0, 0], net / 2, atol=close * 10)
    np.testing.assert_allclose(now.info.law_force[0], net - effort, atol=close * 10)
    assert now.info.ok.all()


@pytest.mark.slow
@pytest.mark.parametrize("mu, push", [(0.5, 3.0), (0.1, 3.0)])
def test_a_ball_on_the_ground_rolls_or_slides(mu, push):
    radius, mass = 0.2, 1.5
    world = jj.SystemBuilder()
    inertia = 0.4 * mass * radius**2
    world.body("ball", mass=mass, inertia=(inertia,) * 3, pose=(0.0, 0.0, radius))
    shapes = jj.shapes.Sphere(radius), jj.shapes.HalfSpace()
    world.contact("ground", *shapes, child="ball", friction=mu)
    system, state = world.build()
    wrench = jj.wrench_at(system, state, "ball", force=(push, 0.0, 0.0))
    now = at_once(system, state, jj.Control(wrench=wrench))
    # It rolls with 5/7 of F/m, for which friction takes 2/7 of F, or slides.
    friction = min(2 / 7 * push, mu * mass * G)
    np.testing.assert_allclose(now.linear[0, 0], (push - friction) / mass, rtol=1e-6)
    np.testing.assert_allclose(now.angular[1, 0], friction * radius / inertia, rtol=1e-6)
    np.testing.assert_allclose(now.linear[2, 0], 0.0, atol=1e-6)


@pytest.mark.slow
def test_a_turning_pendulum_is_held_by_gravity_and_its_centripetal_force():
    speed, length, mass, moment = 3.0, 0.8, 1.5, 0.03
    system, state = mechanisms.pendulum(
        q=0.7, qd=speed, length=length, mass=mass, inertia=(0.02, moment, 0.02)
    )
    now = at_once(system, state)
    turning = -mass * G * length * np.sin(0.7) / (moment + mass * length**2)
    np.testing.assert_allclose(now.qdd, [turning], rtol=EXACT)
    # The bob's frame has its z along the rod, away from its end.
    along = mass * (G * np.cos(0.7) + length * speed**2)
    reaction = jj.reaction(system, state, now.info, "pivot", axes="child")
    np.testing.assert_allclose(reaction[2], along, rtol=EXACT)


@pytest.mark.slow
def test_a_bushing_pulls_with_its_spring_and_damper():
    world = jj.SystemBuilder(gravity=(0.0, 0.0, 0.0))
    start = {"pose": (0.02, 0.0, 0.0), "velocity": (0.3, 0.0, 0.0, 0.0, 0.0, 0.0)}
    world.body("engine", mass=4.0, inertia=(0.1, 0.1, 0.1), **start)
    mount = jj.Bushing(stiffness=500.0, damping=7.0)
    world.joint("mount", jj.Fixed(), child="engine", softness=mount)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        system, state = world.build()
    now = at_once(system, state)
    np.testing.assert_allclose(now.linear[0, 0], -(500 * 0.02 + 7 * 0.3) / 4, rtol=EXACT)


@pytest.mark.slow
def test_an_armature_resists_the_acceleration():
    system, state = mechanisms.slider(laws=[jj.Armature(3.0)], mass=2.0)
    now = at_once(system, state, jj.Control(effort=jnp.array([10.0])))
    np.testing.assert_allclose(now.qdd, [2.0], rtol=EXACT)


# Steps that get short


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:joint")  # starts outside of its soft limits
def test_forces_of_short_steps_are_those_at_an_instant():
    laws = (jj.SpringDamper(30.0, 0.4), jj.DryFriction(0.3), jj.Limits(upper=0.2, stiffness=50.0))
    system, state = mechanisms.chain(2, qd=1.5, laws=laws)
    now = at_once(system, state)
    step = jax.jit(
        partial(
            jj.step,
            scheme=jj.SemiImplicitEuler(joints="rows", curvature=True, gyroscopic="explicit"),
        )
    )
    errors = []
    for dt in (4e-5, 2e-5, 1e-5):
        new, info = step(system, state, dt=dt)
        off = (info.wrench - now.info.wrench, (new.velocity - state.velocity) / dt - now.linear)
        off += (info.law_force - now.info.law_force, info.limit_force - now.info.limit_force)
        errors.append([np.abs(x).max() for x in off])
    order = np.log2(np.divide(*np.array(errors)[[0, 2]])) / 2
    assert (order > FIRST_ORDER[0]).all() and (order < FIRST_ORDER[1]).all(), order
    assert np.max(errors[-1]) < 1e-2


@pytest.mark.slow
def test_reactions_of_a_loop_are_those_of_steps():
    """Of any step where rows turn along: without laws that act in it, nothing depends on it."""
    system, state = mechanisms.four_bar(crank_speed=3.0)
    now = at_once(system, state)
    scheme = jj.SemiImplicitEuler(joints="rows", curvature=True, gyroscopic="explicit")
    step = jax.jit(partial(jj.step, scheme=scheme))
    for dt in (1e-2, 1e-3):
        new, info = step(system, state, dt=dt)
        largest = np.abs(info.wrench).max()
        np.testing.assert_allclose(info.wrench, now.info.wrench, atol=SOLVED * largest)
        rate = (new.velocity - state.velocity) / dt
        np.testing.assert_allclose(rate, now.linear, atol=SOLVED * largest)
    assert largest > 1.0


@pytest.mark.slow
def test_energy_changes_by_the_power_of_forces():
    """On a loop: efforts at crank and rocker, a spring and a damper at the crank."""
    laws = (jj.SpringDamper(30.0, 0.4),)
    system, state = mechanisms.four_bar(crank_speed=3.0, laws=laws)
    effort = jnp.zeros(system.coordinates)
    effort = effort.at[system.coordinate("A")].set(5.0).at[system.coordinate("D")].set(-2.0)
    now = at_once(system, state, jj.Control(effort=effort))

    def energy(t):
        spin = jnp.concatenate([jnp.ones_like(state.omega[:1]), t / 2 * state.omega])
        later = {
            "position": state.position + t * state.velocity,
            "quaternion": quat_multiply(spin, state.quaternion),
            "velocity": state.velocity + t * now.linear,
            "omega": state.omega + t * now.angular,
        }
        # Of the spring the power stands among the forces.
        energies = jj.energies(system, jj.replace(state, **later))
        return energies.kinetic + energies.gravity

    rate = jax.jit(lambda t: jax.jvp(energy, (t,), (jnp.ones(()),))[1])(jnp.zeros(()))
    crank, _, rocker = mechanisms.four_bar_rates(mechanisms.four_bar_angles(1.0), 3.0)
    power = (5.0 - 30.0 * 1.0 - 0.4 * crank) * crank - 2.0 * rocker
    np.testing.assert_allclose(rate, power, rtol=SOLVED * 10)


@pytest.mark.slow
def test_a_four_bar_accelerates_as_its_angles_do():
    crank, speed, h = 1.0, 5.0, 1e-4

    def rates(t):
        angle = crank + speed * t  # of a crank that turns steadily
        return np.array(mechanisms.four_bar_rates(mechanisms.four_bar_angles(angle), speed))

    system, state = mechanisms.four_bar(crank=crank, crank_speed=speed)
    held = at_once(system, state)
    # The acceleration of the crank adds its own share to that of a steady crank.
    steady = (rates(h) - rates(-h)) / (2 * h)
    _, coupler, rocker = steady + held.qdd[0] * rates(0) / speed
    found = [held.qdd[1] + held.qdd[0], held.qdd[2]]
    np.testing.assert_allclose(found, [coupler, rocker], rtol=1e-6)


# RBDL


# Moments of RBDL's angular rows of a loop come with forces.
OTHER_ROWS = ("loop_weld6/baumgarte",)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_accelerations_and_forces_are_those_of_rbdl(name):
    case, (system, joints) = RECORDED[name], mechanism(name)
    for recorded in case["states"]:
        state = start(system, case, recorded)
        now = at_once(system, state, system.control(effort=by_body(case, recorded["tau"])))
        found, wanted = in_order(system, case, now.qdd), np.array(recorded["qdd"])
        np.testing.assert_allclose(found, wanted, atol=SOLVED * max(1.0, np.abs(wanted).max()))
        if name in OTHER_ROWS:
            continue
        forces = [multipliers(system, state, now.info, joint) for joint in joints]
        found, wanted = np.concatenate(forces), np.array(recorded["force"])
        np.testing.assert_allclose(found, wanted, atol=SOLVED * max(1.0, np.abs(wanted).max()))


# RBDL leaves out the speed of a path, and its rows of accelerations hold velocities too.
IMPACTS = [n for n in RECORDED if not n.startswith(("rolling", "time_varying"))]


@pytest.mark.slow
@pytest.mark.parametrize("name", IMPACTS)
def test_velocities_after_an_impact_are_those_of_rbdl(name):
    case, (system, _) = RECORDED[name], mechanism(name)
    for recorded in case["states"]:
        new, info = hit(system, start(system, case, recorded))
        found = in_order(system, case, jax.jit(jj.coordinate_speeds)(system, new))
        np.testing.assert_allclose(found, recorded["impact_qd_plus"], atol=SOLVED)
        assert info.ok


# Impacts


@pytest.mark.slow
def test_a_rod_that_lands_on_a_stop_gives_up_its_angular_momentum():
    system, state = mechanisms.pendulum(q=0.3, qd=2.0, laws=[jj.Limits(upper=0.3)])
    new, info = hit(system, state)
    moment = 0.03 + 1.0
    np.testing.assert_allclose(info.limit_force, [-2.0 * moment], rtol=EXACT)
    np.testing.assert_allclose(new.velocity, 0.0, atol=EXACT)
    # A stop that is left exerts no impulse.
    state = system.state(q={"pivot": 0.3}, qd={"pivot": -2.0})
    new, info = hit(system, state)
    np.testing.assert_allclose(info.limit_force, 0.0, atol=EXACT)
    np.testing.assert_allclose(new.velocity, state.velocity, atol=EXACT)


@pytest.mark.slow
def test_an_impact_takes_up_no_more_energy_than_the_speed_that_it_takes():
    system, state = mechanisms.four_bar(crank_speed=2.0)
    pushed = jj.replace(state, omega=state.omega + 0.5, velocity=state.velocity + 0.3)
    new, info = hit(system, pushed)
    before, after = (jj.energies(system, x).kinetic for x in (pushed, new))
    taken = jj.replace(new, velocity=pushed.velocity - new.velocity, omega=pushed.omega - new.omega)
    # Carnot: what is lost is the kinetic energy of the velocities that are lost.
    np.testing.assert_allclose(before - after, jj.energies(system, taken).kinetic, rtol=1e-9)
    assert before - after > 0.1


# Batches, derivatives, errors


@pytest.mark.slow
def test_a_batch_is_its_environments():
    system, state = mechanisms.chain(2)
    q = np.array([[0.1, 0.5, -0.3]])
    many = system.state(q={"0": q, "1": -q}, qd={"0": 3 * q})
    all_at_once = at_once(system, many)
    for i in range(3):
        one = at_once(system, jax.tree.map(lambda x: x[..., i], many))  # noqa: B023
        np.testing.assert_allclose(all_at_once.qdd[:, i], one.qdd, atol=EXACT * 100)
        np.testing.assert_allclose(
            all_at_once.info.wrench[..., i], one.info.wrench, atol=EXACT * 100
        )


@cache
def numbers_of(name):
    """Accelerations and reactions of a mechanism for an effort, a mass, and other velocities."""
    system, state = {
        "pendulum": partial(mechanisms.pendulum, q=0.4, qd=2.0),
        "chain": partial(mechanisms.chain, 2, qd=2.0, laws=(jj.DryFriction(0.2),)),
        "four-bar": partial(mechanisms.four_bar, crank_speed=3.0),
    }[name]()

    def numbers(x):
        faster = {"velocity": state.velocity * x[2], "omega": state.omega * x[2]}
        control = jj.Control(effort=jnp.zeros(system.coordinates).at[0].set(x[0]))
        heavier = jj.replace(system, mass=system.mass * x[1])
        now = accelerations(heavier, jj.replace(state, **faster), control)
        return jnp.concatenate([now.qdd, now.info.wrench.ravel()])

    return numbers


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pendulum", "chain", "four-bar"])
def test_derivatives_are_those_of_finite_differences(name):
    at = np.array([0.3, 1.0, 1.0])
    check_slopes(numbers_of(name), at, np.full(3, 1e-3), rtol=1e-7, atol=1e-6)


def test_what_cannot_be_answered_is_refused():
    world = jj.SystemBuilder()
    world.body("a", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.joint("soft", jj.Hinge(Z), child="a", softness=jj.Softness(0.2, 1e-4))
    system, state = world.build()
    with refused("accelerations: joint 'soft' is softened by cfm"):
        accelerations(system, state)
    system, state = mechanisms.slider(axis=X)
    with refused("accelerations: touch 3 must be a Touch"):
        accelerations(system, state, touch=3)
    with refused("impact: touch creep -1.0 must not be negative"):
        impact(system, state, touch=Touch(creep=-1.0))
    with refused("accelerations: system and state are exchanged"):
        accelerations(state, system)
    with refused("control: effort has shape (2,)"):
        accelerations(system, state, jj.Control(effort=jnp.zeros(2)))
