"""Transmissions: equations between coordinates of several joints, on trees and in loops."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import (
    WORLD,
    Control,
    Hinge,
    Limits,
    SemiImplicitEuler,
    Slider,
    Softness,
    SpringDamper,
    SystemBuilder,
    coordinate_speeds,
    energies,
    project,
    replace,
    rollout,
    step,
    struct,
)
from jaxjoints.couplings.functions import Polynomial
from jaxjoints.laws.transmissions import (
    Differential,
    Follower,
    Mimic,
    RackAndPinion,
    Transmission,
    Weighted,
)
from support import mechanisms
from support.differences import check_slopes

DT = 1e-3
INERTIAS = (0.1, 0.3, 0.7)
MASS = 2.0
# The solve's rounding, in speeds of order one.
ROUNDING = 1e-11
one_step = jax.jit(step, static_argnames=())


def shafts(count=3):
    """Rotors on hinges about z in a row on the world, and a rack that slides along x."""
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    for i in range(count):
        rotor = world.body(f"rotor{i}", mass=1.0, inertia=(1.0, 1.0, INERTIAS[i]))
        world.joint(f"shaft{i}", Hinge(axis=(0.0, 0.0, 1.0)), child=rotor, frame_D=(i, 0.0, 0.0))
    rack = world.body("rack", mass=MASS, inertia=(1.0, 1.0, 1.0))
    world.joint("rail", Slider(axis=(1.0, 0.0, 0.0)), child=rack)
    return world


def speeds_after(world, efforts):
    """Speeds of the coordinates after one step with efforts along them, and what was done."""
    system, state = world.build()
    effort = jnp.zeros(system.coordinates).at[: len(efforts)].set(jnp.array(efforts))
    _, info = one_step(system, state, Control(effort=effort), dt=DT)
    assert info.ok and info.residual < ROUNDING
    return np.asarray(info.qd), info


# Dynamics


@pytest.mark.slow
def test_a_gear_pair_reflects_inertia_by_the_square_of_its_ratio():
    world, ratio = shafts(), -2.5
    world.transmission("gears", Mimic(ratio), joints=["shaft0", "shaft1"])
    qd, info = speeds_after(world, [1.0, 0.2])
    rate = (1.0 + ratio * 0.2) / (INERTIAS[0] + ratio**2 * INERTIAS[1])
    np.testing.assert_allclose(qd, np.array([1.0, ratio, 0.0, 0.0]) * rate * DT, atol=ROUNDING)
    torque = INERTIAS[1] * ratio * rate - 0.2
    np.testing.assert_allclose(info.transmission_force, [torque], rtol=1e-9)


@pytest.mark.slow
def test_a_rack_moves_with_its_pinion():
    world, radius = shafts(), 0.05
    world.transmission("rack", RackAndPinion(radius), joints=["shaft0", "rail"])
    qd, _ = speeds_after(world, [0.5])
    rate = 0.5 / (INERTIAS[0] + radius**2 * MASS)
    np.testing.assert_allclose(qd[[0, 3]], np.array([1, radius]) * rate * DT, atol=ROUNDING)


@pytest.mark.slow
def test_a_differential_shares_the_torque_of_its_ring_equally():
    world, ratio = shafts(), 3.0
    world.transmission("differential", Differential(ratio), joints=["shaft0", "shaft1", "shaft2"])
    qd, info = speeds_after(world, [1.0])
    assert qd[0] == pytest.approx(ratio * (qd[1] + qd[2]) / 2, abs=ROUNDING)
    torques = np.array(INERTIAS[1:]) * qd[1:3] / DT
    np.testing.assert_allclose(torques, torques[0], rtol=1e-9)
    force = float(info.transmission_force[0])
    np.testing.assert_allclose(
        [force, -ratio / 2 * force], [INERTIAS[0] * qd[0] / DT - 1.0, torques[0]], rtol=1e-8
    )


def arm(ratio=0.5, q=0.4):
    """Two links under gravity, the second turning with the first."""
    world = SystemBuilder()
    parent, at = WORLD, (0.0, 0.0, 0.0)
    for i in range(2):
        link = world.body(
            f"link{i}", mass=1.0, inertia=mechanisms.rod_inertia(1.0, 0.5), com=(0.25, 0.0, 0.0)
        )
        world.joint(
            f"joint{i}",
            Hinge(axis=(0.0, 1.0, 0.0)),
            child=link,
            parent=parent,
            frame_D=at,
            q=q * ratio**i,
        )
        parent, at = link, (0.5, 0.0, 0.0)
    world.transmission("gear", Mimic(ratio), joints=["joint0", "joint1"])
    return world


@pytest.mark.slow
def test_links_of_a_chain_swing_as_their_lagrangian_says():
    """One generalized coordinate: M(q) q̈ = -V'(q) from rest, by the kinematics of the chain."""
    ratio, at = 0.5, 0.4
    system, state = arm(ratio, at).build()

    def centres(q):
        angles = jnp.array([q, (1 + ratio) * q])
        arms = jnp.stack([jnp.cos(angles), -jnp.sin(angles)])
        first = 0.25 * arms[:, 0]
        return jnp.concatenate([first, 2 * first + 0.25 * arms[:, 1]]), angles

    slope, turns = jax.jacfwd(centres)(at)
    across = mechanisms.rod_inertia(1.0, 0.5)[1]
    inertia = jnp.sum(slope**2) + across * jnp.sum(turns**2)
    pull = -9.81 * (slope[1] + slope[3])
    # Speeds are those on the surfaces of the end, which differ from the start by the step squared.
    dt = 1e-5
    _, info = one_step(system, state, dt=dt)
    np.testing.assert_allclose(info.qd / dt, np.array([1, ratio]) * pull / inertia, rtol=1e-9)


@pytest.mark.slow
def test_a_coupled_arm_keeps_its_value_and_its_energy():
    system, state = arm().build()
    scheme = SemiImplicitEuler(projections=1)
    before = energies(system, state).total
    drifts = []
    for steps in (500, 1000):
        final, _ = rollout(
            system, state, dt=0.5 / steps, steps=steps, record_every=steps, scheme=scheme
        )
        assert abs(float(final.q[1] - 0.5 * final.q[0])) < 1e-5
        drifts.append(abs(float(energies(system, final).total - before)))
    assert drifts[1] < 0.6 * drifts[0] < 0.01


@pytest.mark.slow
def test_projection_moves_joints_onto_a_transmission():
    world = arm()
    system, _ = world.build()
    with pytest.warns(UserWarning, match="'gear': its value is 0.1 at the start"):
        state = system.state(q={"joint0": 0.4, "joint1": 0.3})
    _, info = one_step(system, state, dt=1e-6)
    assert info.error == pytest.approx(0.1)
    final = jax.jit(project)(system, state)
    _, info = one_step(system, final, dt=1e-6)
    assert info.error < 1e-10


@pytest.mark.slow
def test_a_loop_joint_can_be_coupled():
    """The hinge that closes a four-bar drives a shaft outside of the loop."""
    ratio = 2.0
    world = mechanisms.four_bar_world(crank_speed=3.0)
    rotor = world.body("rotor", mass=1.0, inertia=(0.01, 0.01, 0.01))
    world.joint("shaft", Hinge(axis=(0.0, 1.0, 0.0)), child=rotor, frame_D=(5.0, 0.0, 0.0))
    system, state = world.build()
    closing = system.coordinate("C")
    angle, speed = float(state.q[closing][0]), float(coordinate_speeds(system, state)[closing][0])
    world.transmission("belt", Mimic(ratio, -ratio * angle), joints=["C", "shaft"])
    with pytest.warns(UserWarning, match="'belt': its value moves off its surface"):
        system, _ = world.build()
    state = replace(state, omega=state.omega.at[1, system.body("rotor")].set(ratio * speed))
    for _ in range(20):
        state, info = one_step(system, state, dt=DT)
    assert info.ok
    driving, driven = np.asarray(info.qd)[[closing.start, system.coordinate("shaft").start]]
    assert abs(driving) > 1.0 and driven == pytest.approx(ratio * driving, rel=1e-4)


# Laws on values


@pytest.mark.slow
def test_a_tendon_is_a_rope_over_two_joints():
    """Limits on Σ w q: slack until its length is used up, then the joints share the pull."""
    world, weights = shafts(), np.array([0.1, 0.2])
    world.transmission(
        "tendon",
        Weighted(weights),
        joints=["shaft0", "shaft1"],
        laws=[Limits(upper=1e-4)],
    )
    system, state = world.build()
    for steps in (1, 2, 40):
        effort = jnp.array([1.0, 0.5, 0.0, 0.0])
        now = state
        for _ in range(steps):
            now, info = one_step(system, now, Control(effort=effort), dt=DT)
        pull = float(info.transmission_force[0])
        rate = weights @ np.asarray(info.qd[:2])
        if steps == 1:
            assert pull == pytest.approx(0.0, abs=1e-9)
        if steps == 40:
            assert pull < -0.1 and abs(rate) < 1e-9
            taut = -(weights @ (np.array([1.0, 0.5]) / INERTIAS[:2])) / (
                weights @ (weights / INERTIAS[:2])
            )
            assert pull == pytest.approx(taut, rel=1e-8)


@pytest.mark.slow
def test_a_spring_on_a_value_is_an_implicit_spring():
    world, k, d = shafts(), 30.0, 0.2
    world.transmission(
        "spring", Weighted([1.0, -1.0]), joints=["shaft0", "shaft1"], laws=[SpringDamper(k, d)]
    )
    system, _ = world.build()
    state = system.state(q={"shaft0": 0.3})
    _, info = one_step(system, state, dt=DT)
    mass = 1 / (1 / INERTIAS[0] + 1 / INERTIAS[1])
    # Reduced mass m: m w = -h (k (x + h w) + d w).
    w = -DT * k * 0.3 / (mass + DT * d + DT**2 * k)
    np.testing.assert_allclose(info.qd[0] - info.qd[1], w, rtol=1e-10)
    np.testing.assert_allclose(info.transmission_force, [mass * w / DT], rtol=1e-9)


# Derivatives


@struct
class Product(Transmission):
    """Two values of three coordinates, each nonlinear; a user's own."""

    scale: jax.Array
    rows: ClassVar[int] = 2
    coordinates: ClassVar[int] = 3

    def value(self, q):
        return jnp.stack([q[2] - self.scale * jnp.sin(q[0]) * q[1], q[1] - q[0] ** 2])


@pytest.mark.slow
def test_a_transmission_of_ones_own_holds_its_values():
    world = shafts()
    joints = ["shaft0", "shaft1", "shaft2"]
    world.transmission("own", Product(0.7), joints=joints, softness=Softness(erp=0.5))
    system, _ = world.build()
    q = 0.5
    with pytest.warns(UserWarning, match="'own': its value moves off its surface at 1 m/s"):
        state = system.state(
            q={"shaft0": q, "shaft1": q**2, "shaft2": 0.7 * np.sin(q) * q**2}, qd={"shaft0": 1.0}
        )
    for _ in range(50):
        state, info = one_step(system, state, dt=DT)
    a, b, c = np.asarray(info.q[:3])
    assert a > q + 0.005
    np.testing.assert_allclose([c, b], [0.7 * np.sin(a) * b, a**2], atol=5e-5)


@pytest.mark.slow
def test_gradients_reach_a_followers_function():
    world = shafts()
    curve = Polynomial([0.1, 0.5, 0.3])
    world.transmission("patella", Follower(curve), joints=["shaft0", "shaft1"])
    with pytest.warns(UserWarning, match="'patella': its value is 0.1 at the start"):
        system, _ = world.build()
    with pytest.warns(UserWarning, match="'patella': its value moves off its surface"):
        state = system.state(q={"shaft0": 0.4, "shaft1": 0.348}, qd={"shaft0": 2.0})

    def outcome(numbers):
        record = Follower(replace(curve, coefficients=numbers[:3]))
        changed = system.with_transmission("patella", transmission=record)
        changed = replace(changed, inertia=changed.inertia.at[2, 2, 0].set(numbers[3]))
        now, _ = jax.lax.scan(
            lambda s, _: (step(changed, s, dt=DT)[0], None), state, None, length=5
        )
        return jnp.concatenate([now.q[:2], now.omega[2, :2]])

    at = [0.1, 0.5, 0.3, INERTIAS[0]]
    check_slopes(outcome, at, [1e-3] * 4, rtol=1e-7, atol=1e-9)


# Structure


@pytest.mark.slow
def test_like_transmissions_make_one_group_and_keep_their_own_numbers():
    world = shafts()
    world.transmission("a", Mimic(2.0), joints=["shaft0", "shaft1"])
    world.transmission("b", Mimic(3.0), joints=["shaft1", "shaft2"])
    world.transmission("c", RackAndPinion(0.1), joints=["shaft2", "rail"])
    system, _ = world.build()
    assert len(system.transmissions) == 2
    assert [system.value(name) for name in "abc"] == [slice(0, 1), slice(1, 2), slice(2, 3)]
    assert system.transmission("b").transmission.ratio == 3.0
    qd, _ = speeds_after(world, [1.0])
    np.testing.assert_allclose(qd / qd[0], [1.0, 2.0, 6.0, 0.6], rtol=1e-9)


@struct
class Wrong(Transmission):
    """A value without an axis of rows."""

    def value(self, q):
        return q[0]


@pytest.mark.parametrize(
    "transmission, joints, message",
    [
        (Mimic(1.0), ["shaft0", "shft1"], "'shft1' is no joint; .*'shaft1'"),
        (Mimic(1.0), ["shaft0", "shaft0"], "'shaft0' is given twice"),
        (Mimic(1.0), ["shaft0"], "couples 2 coordinates, its joints have 1"),
        (Mimic(np.nan), ["shaft0", "shaft1"], "Mimic ratio nan must be finite"),
        (Weighted([1.0]), ["shaft0", "shaft1"], r"weights has shape \(1,\)"),
        (Weighted([0.0, 0.0]), ["shaft0", "shaft1"], "are all 0"),
        (RackAndPinion(0.0), ["shaft0", "rail"], "radius 0.0 must not be 0"),
        (Differential(0.0), ["shaft0", "shaft1", "shaft2"], "ratio 0.0 must not be 0"),
        (Wrong(), ["shaft0"], r"Wrong.value has shape \(\), it must be \(1,\)"),
        (Hinge(), ["shaft0"], "is not a transmission"),
    ],
)
def test_what_cannot_be_a_transmission_is_refused(transmission, joints, message):
    with pytest.raises(ValueError, match=f"transmission 'x'.*{message}"):
        shafts().transmission("x", transmission, joints=joints)
