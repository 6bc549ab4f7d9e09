"""What is switched on and off while a simulation runs, per environment: joints and locks."""

from contextlib import nullcontext
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import (
    Control,
    DryFriction,
    Hinge,
    Limits,
    Lock,
    ProjectedGaussSeidel,
    Rattle,
    SemiImplicitEuler,
    SystemBuilder,
    coordinate_speeds,
    coordinates,
    project,
    replace,
    replicate,
    rollout,
    spring_softness,
    step,
)
from jaxjoints.algebra.compiler import traced_for
from jaxjoints.laws.transmissions import Mimic
from support.mechanisms import G, X, Y, Z, single

EXACT = 1e-12
DT, STEPS = 2e-3, 40
SCHEME = SemiImplicitEuler(projections=1)
# Of four environments: whether the second joint is on, and whether the first is locked.
ON, ENGAGED = jnp.array([1.0, 1.0, 0.0, 0.0]), jnp.array([0.0, 1.0, 0.0, 1.0])
LOCKED = 0.38


@jax.jit
def after(system, state, control):
    def one(state, _):
        return step(system, state, control, dt=DT, scheme=SCHEME)

    return jax.lax.scan(one, state, None, length=STEPS)


def arms(*first, **options):
    """Two links; laws of the first joint besides friction, options of the second."""
    world = SystemBuilder()
    for i, inertia in enumerate([(0.02, 0.02, 0.004), (0.03, 0.02, 0.01)]):
        world.body(str(i), mass=1.0 + i, inertia=inertia)
    end, laws = {"frame_C": (0.0, 0.0, 0.25)}, [DryFriction(0.5), *first]
    world.joint("0", Hinge(Y), child="0", q=0.4, qd=1.0, laws=laws, **end)
    options = {"frame_D": (0.0, 0.0, -0.25), "laws": [Limits(-0.2, 0.3)]} | options
    world.joint("1", Hinge(X), child="1", parent="0", q=0.25, qd=0.8, **end, **options)
    return world.build()


CONTROL = Control(effort=jnp.array([0.3, 0.2]))


@cache
def switched(cast=None):
    """All four environments of one system, run in one compiled loop."""
    system, state = arms(Lock(LOCKED, engaged=True), enabled=True)
    friction, lock = system.joint("0").laws
    system = system.with_joint("0", laws=(friction, replace(lock, engaged=ENGAGED)))
    system = system.with_joint("1", enabled=ON)
    given = system, replicate(state, 4), CONTROL
    return after(*(cast(given) if cast else given))


pytestmark = pytest.mark.filterwarnings("ignore:.*starts at .* outside its value")


@pytest.mark.slow
def test_what_is_on_and_not_locked_is_as_what_cannot_be_switched():
    final, info = switched(None)
    expected, what = after(*arms(tree=False), CONTROL)
    np.testing.assert_allclose(final.position[..., 0], expected.position, rtol=0, atol=1e-10)
    np.testing.assert_allclose(info.qd[..., 0], what.qd, rtol=0, atol=1e-8)
    np.testing.assert_allclose(info.wrench[..., 0], what.wrench, rtol=0, atol=1e-6)
    assert info.ok.all()


@pytest.mark.slow
def test_an_engaged_lock_holds_its_value():
    _, info = switched(None)
    q, qd = np.asarray(info.q)[:, 0], np.asarray(info.qd)[:, 0]
    # One projection leaves 1e-5 of an error, as of a stop, and ERP takes its share of that.
    np.testing.assert_allclose(q[2:, [1, 3]], LOCKED, rtol=0, atol=1e-6)
    np.testing.assert_allclose(qd[5:, [1, 3]], 0.0, atol=1e-4)
    assert np.abs(q[-1, [0, 2]] - LOCKED).min() > 0.02


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cast", "atol"), [(None, EXACT), (single, 2e-6)], ids=["float64", "float32"]
)
def test_a_joint_that_is_off_exerts_no_force_and_is_not_closed(cast, atol):
    final, info = switched(cast)
    assert np.all(info.wrench[:, :, 1, 2:] == 0) and np.all(info.law_force[:, 1, 2:] == 0)
    assert info.ok.all()
    _, state = arms()
    flown = state.position[:, 1] + DT * STEPS * state.velocity[:, 1]
    flown -= G * DT**2 * STEPS * (STEPS + 1) / 2 * np.array([0.0, 0.0, 1.0])
    np.testing.assert_allclose(
        final.position[:, 1, 2:], np.stack([flown, flown], axis=1), atol=atol
    )
    # Its gap is none of the errors that are left.
    assert np.max(info.error[:, 2:]) < 1e-4


@pytest.mark.slow
def test_switches_count_in_single_precision():
    (final, info), (expected, _) = switched(single), switched(None)
    assert info.ok.all()
    np.testing.assert_allclose(final.position, expected.position, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_transmission_can_be_switched():
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    for name in "ab":
        world.body(name, mass=1.0, inertia=(0.1, 0.1, 0.1))
        world.joint(name, Hinge(), child=name, qd=1.0 if name == "a" else 0.0)
    world.transmission("gear", Mimic(1.0), joints=("a", "b"), enabled=True)
    with pytest.warns(UserWarning, match="transmission 'gear': its value moves off"):
        system, state = world.build()
    system = system.with_transmission("gear", enabled=jnp.array([1.0, 0.0]))
    _, info = after(system, replicate(state, 2), None)
    np.testing.assert_allclose(info.qd[0], [[0.5, 1.0], [0.5, 0.0]], rtol=0, atol=1e-9)
    assert np.all(info.transmission_force[:, 0, 1] == 0)


def test_switches_are_one_or_zero():
    with pytest.raises(ValueError, match="joint '1': enabled 0.5 must be True, False, or None"):
        arms(enabled=0.5)
    with pytest.raises(ValueError, match="joint '0': Lock on coordinate 0: engaged 0.5 must be 0"):
        arms(Lock(0.0, engaged=0.5))
    with pytest.raises(ValueError, match="joint '1': enabled was not given when it was built"):
        arms()[0].with_joint("1", enabled=1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme",
    [SemiImplicitEuler(), pytest.param(Rattle(), marks=pytest.mark.slow)],
    ids=["Euler", "Rattle"],
)
def test_a_joint_that_is_off_does_nothing_to_its_bodies(scheme):
    """Its bodies move apart, and the joint tells of no wrench."""
    system, state = arms(enabled=True)
    off = system.with_joint("1", enabled=0.0)
    new, info = jax.jit(lambda state: step(off, state, dt=DT, scheme=scheme))(state)
    _, info = jax.jit(lambda state: step(off, state, dt=DT, scheme=scheme))(new)
    np.testing.assert_array_equal(info.wrench[:, 1], 0)
    np.testing.assert_array_equal(info.law_force[1], 0)


@pytest.mark.slow
def test_a_transmission_that_is_off_has_no_error():
    world = SystemBuilder()
    for name in ("a", "b"):
        world.body(name, mass=1.0, inertia=(0.02, 0.02, 0.02), com=(0.0, 0.0, -0.2))
        world.joint(name, Hinge(Y), child=name)
    world.transmission("tie", Mimic(1.0), joints=("a", "b"), enabled=True)
    system, _ = world.build()
    off = system.with_transmission("tie", enabled=0.0)
    _, info = jax.jit(lambda state: step(off, state, dt=DT))(off.state(q={"a": 0.3}))
    assert info.error < EXACT


# Rows that a stage switches off

STEP = 1e-3
# Stiffness and damping for a unit of inertia.
SPRING, DAMPER = 1e3, 1.0
INERTIAS = 10.0 ** -np.arange(8)


def light_wheels(arm=0.0, q=0.0):
    """A wheel on a soft lock, an environment for each size: it moves alike whatever its size.

    arm: distance of the centre of mass from the axle; the mass is the inertia over 1 m²
    """
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    world.body("wheel", mass=1.0, inertia=(1.0, 1.0, 1.0), com=(arm, 0.0, 0.0))
    world.joint("axle", Hinge(Z), child="wheel", laws=Lock(0.0, 0.2, 1.0))
    system, _ = world.build()
    sizes = (1 + arm**2) * INERTIAS
    erp, cfm = spring_softness(SPRING * sizes, DAMPER * sizes, jnp.array(STEP))
    numbers = {
        "body.wheel.mass": INERTIAS,
        "body.wheel.inertia": np.eye(3)[:, :, None] * INERTIAS,
        "joint.axle.lock.erp": erp,
        "joint.axle.lock.cfm": cfm,
    }
    return system.with_numbers(numbers), system.state(q={"axle": q}, qd={"axle": 1.0}, rough=True)


@jax.jit
def on_surfaces(system, state):
    """Coordinates and speeds on the surfaces, and angular velocities there."""
    state = replicate(state, len(INERTIAS))
    moved = project(system, state, iterations=1, velocities=True)
    return moved.q[0], coordinate_speeds(system, state)[0], moved.omega[2, 0]


@jax.jit
def slopes(system, state):
    """Those of the speeds by all numbers of the system, and by those of the state."""
    return jax.grad(lambda *given: coordinate_speeds(*given).sum(), argnums=(0, 1))(system, state)


PRECISIONS = ["float64", pytest.param("float32", marks=pytest.mark.slow)]


def made(arm, q, precision):
    """Wheels in a precision, and what is rounding there."""
    wheels = light_wheels(arm, q)
    return (single(wheels), 1e-6) if precision == "float32" else (wheels, 1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("path", [*PRECISIONS, pytest.param("gpu", marks=pytest.mark.slow)])
def test_a_soft_lock_takes_nothing_of_positions_and_speeds(path):
    wheels, rounding = made(arm=0.3, q=0.1, precision=path)
    # On a GPU sums over bodies are looked up.
    with traced_for(path) if path == "gpu" else nullcontext():
        found = on_surfaces(*wheels)
    for x, wanted in zip(found, (0.1, 1.0, 1.0), strict=True):
        np.testing.assert_allclose(x, np.full(len(INERTIAS), wanted), rtol=rounding)


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
def test_slopes_of_the_speeds_of_light_parts_are_finite(precision):
    """On an arm an impulse along ω alone moves a wheel as 1/(1 + arm²) of it."""
    arm = 0.3
    (system, state), rounding = made(arm, 0.0, precision)
    of_system, of_state = slopes(system, replicate(state, len(INERTIAS)))
    np.testing.assert_allclose(of_state.omega[2, 0], 1 / (1 + arm**2), rtol=10 * rounding)
    for x in jax.tree.leaves(of_system):
        assert np.isfinite(x).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme",
    [
        Rattle(),
        Rattle(ProjectedGaussSeidel(relaxation=1.0)),
        SemiImplicitEuler(projections=1),
    ],
    ids=["Rattle", "Gauss-Seidel", "Euler"],
)
def test_light_parts_swing_on_a_soft_lock_as_heavy_ones(scheme):
    """Each step is implicit in the spring and damper that the lock stands for."""
    system, state = light_wheels()
    steps, φ, ω = 50, 0.0, 1.0
    for _ in range(steps):
        ω = (ω - STEP * SPRING * φ) / (1 + STEP * DAMPER + STEP**2 * SPRING)
        φ += STEP * ω
    run = partial(rollout, dt=STEP, steps=steps, record_every=steps, scheme=scheme)
    final, _ = jax.jit(run)(system, replicate(state, len(INERTIAS)))
    np.testing.assert_allclose(final.omega[2, 0], np.full(len(INERTIAS), ω), rtol=1e-10)
    np.testing.assert_allclose(coordinates(system, final)[0], φ + 0 * INERTIAS, rtol=1e-10)
