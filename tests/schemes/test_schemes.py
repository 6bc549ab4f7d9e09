"""The schemes of integration: their order, what they conserve, loops, stops, gradients, refusals.

The three-link chain is that of `mechanisms.chain`: rods of 1 m and 1, 1.2 and 1.4 kg on hinges
about y, x and y, let go at 0.8 rad each.
"""

import warnings
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_vjp

from jaxjoints import (
    Armature,
    Bushing,
    Compliance,
    Damping,
    DryFriction,
    Fixed,
    Hinge,
    Limits,
    Rattle,
    RungeKutta,
    SemiImplicitEuler,
    Slider,
    SpringDamper,
    SystemBuilder,
    energies,
    joint_errors,
    momentum,
    replace,
    replicate,
    rollout,
    step,
    struct,
)
from jaxjoints.couplings.shapes import HalfSpace, Sphere
from jaxjoints.laws.transmissions import Mimic
from support import mechanisms
from support.couplings_catalog import MovingPlane
from support.mechanisms import G

SCHEMES = {
    "projected Euler": SemiImplicitEuler(projections=1),
    "RATTLE": Rattle(iterations=10),
    "RK4": RungeKutta(),
}
# Ranges of the measured orders of convergence, and the longest of the steps [s] they are from.
ORDERS = {
    "projected Euler": (0.8, 1.2, 1.25e-3),
    "RATTLE": (1.9, 2.1, 1e-2),
    "RK4": (3.8, 4.2, 1e-2),
}
DURATION = 0.25  # s


def carousel():
    """Two rods geared to each other on a base that turns at a given speed, and a body on a plane
    that moves at another.
    """
    world = SystemBuilder()
    base = world.body("base", prescribed=True, velocity=(0.0, 0.0, 0.0, 0.0, 0.0, 2.0))
    for name, side in (("left", -0.3), ("right", 0.3)):
        world.body(name, mass=1.0, inertia=mechanisms.rod_inertia(1.0, 0.5))
        world.joint(
            name,
            Hinge(mechanisms.Y),
            child=name,
            parent=base,
            frame_C=(-0.25, 0.0, 0.0),
            frame_D=(side, 0.0, 0.0),
            q=0.4 if side < 0 else -0.6,
        )
    world.transmission("gear", Mimic(-1.5), joints=("left", "right"))
    world.body("tray", mass=1.0, inertia=(0.1, 0.2, 0.3), com=(0.1, 0.0, 0.0))
    twist = (0.3, -0.2, 1.0, 0.5, 0.8)
    world.joint("lift", MovingPlane(0.5), child="tray", frame_C=(0.0, 0.2, 0.0), qd=twist)
    return world.build()


CASES = {
    "carousel": carousel,
    "three-link chain": partial(mechanisms.chain, 3, q=0.8, length=1.0),
    "four-bar": partial(mechanisms.four_bar, crank_speed=3.0),
    "floating chain": mechanisms.floating_chain,
}
CLOSED = 1e-10  # m and rad, what the last step of RATTLE towards the surfaces leaves here
ROUNDING = 1e-12  # of some hundred steps of numbers of order one
SINGLE = 2e-6  # m and rad, rounding of float32 in numbers of order one, ten times over
GRADIENT = 1e-6  # relative, of central differences over EPS
EPS = 1e-4


@cache
def built(case):
    return CASES[case]()


@cache
def program(case, scheme):
    """Final state after n steps of dt and errors of its joints; n is traced, so that it is compiled
    once.
    """
    system, state = built(case)

    def one(dt, state):
        return step(system, state, dt=dt, scheme=SCHEMES[scheme])[0]

    def end(dt, n):
        final = jax.lax.fori_loop(0, n, lambda _, x: one(dt, x), state)
        return final, joint_errors(system, final)

    return jax.jit(end)


def after(case, scheme, duration, dt):
    return program(case, scheme)(jnp.asarray(dt), round(duration / dt))


@cache
def exact(case, duration):
    """Positions by RK4 at 0.5 ms, whose error is below 1e-10 m."""
    return np.asarray(after(case, "RK4", duration, 5e-4)[0].position)


def away(case, scheme, duration, dt):
    """Largest error of a position [m]."""
    found = after(case, scheme, duration, dt)[0].position
    return np.abs(np.asarray(found) - exact(case, duration)).max()


@pytest.mark.parametrize(
    "case, scheme",
    [
        pytest.param("four-bar", "RATTLE", marks=pytest.mark.slow),
        pytest.param("four-bar", "RK4", marks=pytest.mark.sweep),
        pytest.param("carousel", "RATTLE", marks=pytest.mark.sweep),
        pytest.param("carousel", "RK4", marks=pytest.mark.sweep),
        *(pytest.param("three-link chain", x, marks=pytest.mark.slow) for x in SCHEMES),
        *(pytest.param("floating chain", x, marks=pytest.mark.slow) for x in SCHEMES),
    ],
)
def test_order_of_convergence(case, scheme):
    least, most, dt = ORDERS[scheme]
    errors = [away(case, scheme, DURATION, dt / n) for n in (1, 2, 4)]
    slope = -np.polyfit(np.log([1, 2, 4]), np.log(errors), 1)[0]
    assert least < slope < most, (slope, errors)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["RATTLE", "RK4"])
@pytest.mark.parametrize("case", ["four-bar", "carousel"])
def test_joints_are_closed_at_the_end_of_a_step(case, scheme):
    """Loops, planes that move with time, and gears on a base that turns as it was told."""
    final, errors = after(case, scheme, DURATION, 5e-3)
    assert np.max(errors) <= CLOSED
    if case == "carousel":
        system, start = built(case)
        q = np.asarray(final.q)
        left, right = (q[system.coordinate(name).start] for name in ("left", "right"))
        assert abs(left - 0.4) > 0.1 and abs(right + 1.5 * left) <= CLOSED
        np.testing.assert_array_equal(final.omega[:, 0], start.omega[:, 0])


@pytest.mark.slow
def test_rattle_in_single_precision_is_near():
    """A four-bar after half a second: positions to what a hundred steps' rounding leaves. Rounding
    is no failure of a short step.
    """
    system, state = mechanisms.single(built("four-bar"))

    def run(system, state, dt):
        return rollout(
            system,
            state,
            dt=dt,
            steps=100,
            scheme=Rattle(),
            record=lambda state, info: (joint_errors(system, state), info.ok),
        )

    run = jax.jit(run)
    final, (errors, ok) = run(system, state, 5e-3)
    assert final.position.dtype == jnp.float32 and ok.all()
    assert errors.max() <= SINGLE
    expected = after("four-bar", "RATTLE", 0.5, 5e-3)[0]
    np.testing.assert_allclose(final.position, expected.position, rtol=0, atol=100 * SINGLE)
    for dt in (1e-4, 1e-5):
        _, (errors, ok) = run(system, state, dt)
        assert ok.all() and errors.max() <= SINGLE


@pytest.mark.slow
def test_rattle_at_5_ms_is_near_the_exact_motion_after_1_s():
    assert away("three-link chain", "RATTLE", 1.0, 5e-3) < 2e-4


@pytest.mark.slow
def test_energy_of_rattle_does_not_drift_in_100_s():
    system, state = built("three-link chain")
    run = jax.jit(
        partial(
            rollout,
            dt=5e-3,
            steps=20_000,
            scheme=SCHEMES["RATTLE"],
            record=lambda state, info: (energies(system, state).total, info.error, info.ok),
        )
    )
    _, (total, error, ok) = run(system, state)
    assert ok.all() and error.max() <= CLOSED
    time = np.linspace(0.0, 100.0, len(total))
    slope, start = np.polyfit(time, total, 1)
    assert abs(100 * slope) < np.ptp(total - (start + slope * time))


def tumbling():
    """A free body that tumbles about its middle axis, without gravity."""
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    spin = (0.0, 0.0, 0.0, 0.3, 4.0, 0.1)
    world.body("body", mass=1.0, inertia=(0.03, 0.05, 0.07), velocity=spin)
    return world.build()


@pytest.mark.slow
def test_rattle_turns_a_free_body_with_its_momentum():
    system, state = tumbling()

    def one(dt, x):
        return step(system, x, dt=dt, scheme=Rattle())[0]

    run = jax.jit(lambda dt, n: jax.lax.fori_loop(0, n, lambda _, x: one(dt, x), state))
    ends = [run(jnp.asarray(1.0 / n), n) for n in (100, 200, 400)]
    change = [momentum(system, end) - momentum(system, state) for end in ends]
    assert np.abs(change).max() <= ROUNDING
    # Its kinetic energy is that of the discrete Lagrangian, near the start's.
    q = [np.asarray(end.quaternion) for end in ends]
    assert 1.9 < np.log2(np.abs(q[0] - q[1]).max() / np.abs(q[1] - q[2]).max()) < 2.1


# Stops

STIFFNESS, REST, MASS, DT = 50.0, 0.2, 2.0, 5e-3


@cache
def block():
    """A block 0.1 m above a stop, with a spring towards 0.2 m."""
    laws = [Limits(lower=0.0), SpringDamper(STIFFNESS, 0.0, rest=REST)]
    return mechanisms.slider(q=0.1, qd=-1.0, laws=laws, mass=MASS)


@cache
def slide():
    scheme = Rattle()
    return jax.jit(
        partial(
            rollout,
            dt=DT,
            steps=100,
            scheme=scheme,
            record=lambda state, info: (state.q[0], info.qd[0], info.law_force[0], info.ok),
        )
    )


@pytest.mark.slow
def test_a_block_comes_to_rest_on_a_stop():
    system, state = block()
    stop, spring = system.joint("rail").laws
    system = system.with_joint("rail", laws=(stop, replace(spring, stiffness=0.0)))
    system = replace(system, gravity=jnp.array([-G, 0.0, 0.0]))
    _, (q, qd, force, ok) = slide()(system, state)
    assert ok.all() and q.min() >= -ROUNDING
    np.testing.assert_allclose(q[50:], 0.0, atol=ROUNDING)
    np.testing.assert_allclose(qd[50:], 0.0, atol=ROUNDING)
    np.testing.assert_allclose(force[50:], MASS * G, rtol=1e-9)
    # It falls freely, to rounding, until it touches.
    falls = np.argmax(q < 0.01)
    t = DT * np.arange(1, falls + 1)
    np.testing.assert_allclose(q[:falls], 0.1 - t - G * t**2 / 2, atol=ROUNDING)


@pytest.mark.slow
def test_a_spring_takes_a_block_off_a_stop():
    _, (q, qd, force, ok) = slide()(*block())
    hit = int(np.argmax(force > 2 * STIFFNESS * REST))
    assert ok.all() and q.min() >= -ROUNDING
    assert abs(q[hit]) <= ROUNDING and abs(qd[hit]) <= ROUNDING
    # From rest at the stop the midpoint rule swings with h ω₀ = 2 atan(h ω / 2).
    angle = 2 * np.arctan(DT * np.sqrt(STIFFNESS / MASS) / 2) * np.arange(100 - hit)
    np.testing.assert_allclose(q[hit:], REST * (1 - np.cos(angle)), atol=1e-9)


@pytest.mark.slow
def test_tiles_of_rattle_are_its_environments():
    system, state = block()
    both = replicate(state, 2)
    both = replace(both, velocity=both.velocity * jnp.array([[[1.0, 0.5]]]))
    found = jax.jit(partial(rollout, dt=DT, steps=100, scheme=Rattle(), tile=1))(system, both)[0]
    for e in range(2):
        alone = jax.tree.map(lambda x, e=e: x[..., e], both)
        expected = slide()(system, alone)[0]
        jax.tree.map(
            lambda a, b, e=e: np.testing.assert_allclose(a[..., e], b, atol=ROUNDING),
            found,
            expected,
        )


# Gradients


def hung_twice():
    """A bob on a spring and two hinges in one line, five of whose rows are redundant."""
    world = SystemBuilder()
    world.body("bob", mass=1.0, inertia=(0.02, 0.03, 0.01))
    hinge, spring = Hinge(mechanisms.Y), SpringDamper(3.0, 0.1)
    world.joint("0", hinge, child="bob", frame_C=mechanisms.Z, q=0.5, qd=1.0, laws=spring)
    world.joint("1", hinge, child="bob", frame_C=mechanisms.Z)
    return world.build()


@pytest.mark.slow
def test_gradient_of_rattle_through_a_loop():
    system, state = hung_twice()

    def end(x):
        moved = replace(state, velocity=state.velocity * x[1], omega=state.omega * x[1])
        given = replace(system, mass=system.mass * x[0], gravity=system.gravity * x[2])
        new, info = step(given, moved, dt=1e-2, scheme=Rattle(iterations=8))
        return jnp.concatenate([new.position[:, 0], new.omega[:, 0], info.law_force])

    value = jax.jit(end)
    pull = jax.jit(lambda x, change: jax.vjp(end, x)[1](change))
    at = jnp.array([1.1, 0.9, 1.05])
    check_vjp(
        value,
        lambda x: (value(x), partial(pull, x)),
        (at,),
        eps=EPS,
        rtol=GRADIENT,
        atol=GRADIENT,
    )


# Refusals


@pytest.mark.parametrize("law", [Limits(upper=1.0), DryFriction(0.1)])
def test_rk4_refuses_what_is_not_smooth(law):
    system, state = mechanisms.pendulum(laws=[Damping(0.1), law])
    with pytest.raises(ValueError, match=f"'pivot' has the law {type(law).__name__}.*use Rattle"):
        step(system, state, dt=1e-3, scheme=RungeKutta())


@pytest.mark.parametrize(
    ("softness", "named"),
    [
        ({"cfm": 1e-3}, "cfm"),
        ({"softness": Compliance(1e-3, damping=1.0)}, "a Compliance"),
        ({"softness": Bushing(1e3, 1.0)}, "a Bushing"),
    ],
    ids=["cfm", "compliance", "bushing"],
)
def test_rk4_refuses_softened_joints(softness, named):
    system, state = mechanisms.pendulum(**softness)
    with pytest.raises(ValueError, match=f"'pivot' is softened by {named},.*SpringDamper"):
        step(system, state, dt=1e-3, scheme=RungeKutta())


@pytest.mark.slow
def test_rk4_warns_of_springs_and_dampers_too_stiff_for_the_step():
    """Two carts in a row, springs between them and the wall: eigenvalues (3 ± √5) / 2 of k / m; the
    fixed joint leaves a cart the mass of what it carries.
    """
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    for name in ("0", "1", "load"):
        world.body(name, mass=1.0 if name == "0" else 0.5, inertia=(0.1, 0.1, 0.1))
    laws = [SpringDamper(1e4, 20.0)]
    world.joint("a", Slider(mechanisms.X), child="0", laws=laws)
    world.joint("b", Slider(mechanisms.X), child="1", parent="0", laws=laws)
    world.joint("c", Fixed(), child="load", parent="1")
    system, state = world.build()
    largest = (3 + np.sqrt(5)) / 2

    def examined(dt, k, d):
        laws = (replace(system.joint("a").laws[0], stiffness=k, damping=d),)
        given = system.with_joint("a", laws=laws).with_joint("b", laws=laws)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            RungeKutta().examine(given, state, jnp.asarray(dt))
        return [str(one.message) for one in said]

    stable = np.sqrt(8 / (largest * 1e4))
    assert examined(0.999 * stable, 1e4, 0.0) == []
    (said,) = examined(1.001 * stable, 1e4, 0.0)
    assert "springs are too stiff for dt 0.0175" in said and f"below {stable:.2g} s" in said
    stable = 2.785 / (largest * 20.0)
    assert examined(0.999 * stable, 0.0, 20.0) == []
    (said,) = examined(1.001 * stable, 0.0, 20.0)
    assert "dampers are too stiff" in said


@pytest.mark.slow
def test_a_rotor_is_inertia_under_rk4():
    """On a pendulum it turns with the bob, so it adds to the bob's inertia."""
    ends = []
    for own, laws in ((0.1, [Armature(0.2)]), (0.3, [])):
        laws = [*laws, SpringDamper(2.0, 0.1)]
        system, state = mechanisms.pendulum(inertia=(0.3, own, 0.3), qd=1.5, laws=laws)
        run = jax.jit(
            lambda system, state: rollout(
                system, state, dt=1e-2, steps=20, record_every=20, scheme=RungeKutta()
            )[0]
        )
        ends.append(run(system, state))
    # Projections at the end of a step weigh the bodies alone, over errors of the step's 5th power.
    np.testing.assert_allclose(ends[0].q, ends[1].q, rtol=CLOSED)
    np.testing.assert_allclose(ends[0].omega, ends[1].omega, atol=CLOSED)
    system, state = mechanisms.pendulum(laws=[Armature(500.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no damper, however large
        RungeKutta().examine(system, state, jnp.asarray(1e-2))


def test_a_rollout_asks_the_scheme_before_it_compiles():
    @struct
    class Particular(RungeKutta):
        def examine(self, system, state, dt):
            raise RuntimeError(f"asked for {float(dt)}")

    with pytest.raises(RuntimeError, match="asked for 0.03"):
        rollout(*mechanisms.pendulum(), dt=0.03, steps=1, scheme=Particular())


def test_rattle_refuses_no_iterations():
    with pytest.raises(ValueError, match="iterations 0 must be at least 1"):
        Rattle(iterations=0)


@pytest.mark.slow
@pytest.mark.parametrize("cone", ["pyramid", "round"])
def test_rattle_brakes_what_slides_on_the_ground(cone):
    """v = v₀ - μ g t: both kicks have their half of the friction; slip has no coordinate of which
    a mean speed could be told.
    """
    world = SystemBuilder()
    motion = {"pose": (0.0, 0.0, 0.1), "velocity": (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)}
    world.body("ball", mass=1.5, inertia=(0.01,) * 3, **motion)
    shapes = Sphere(0.1), HalfSpace()
    world.contact("sole", *shapes, child="ball", friction=0.4, cone=cone)
    run = jax.jit(lambda *at: rollout(*at, dt=5e-3, steps=12, scheme=Rattle())[0])
    final = run(*world.build())
    np.testing.assert_allclose(final.velocity[0], 1.0 - 0.4 * 9.81 * 0.06, rtol=1e-6)
    np.testing.assert_allclose(final.omega[1], 0.4 * 1.5 * 9.81 * 0.06 * 0.1 / 0.01, rtol=1e-6)
