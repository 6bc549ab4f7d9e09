"""Rows that give way: springs in physical units, what ERP and CFM are at another time step."""

from typing import ClassVar

import numpy as np
import pytest

from jaxjoints import (
    Baumgarte,
    Bushing,
    Compliance,
    Constraint,
    Fixed,
    Hinge,
    Slider,
    Softness,
    SystemBuilder,
    struct,
)
from jaxjoints.laws.transmissions import Mimic
from support import oracle
from support.cases import mostly_slow
from support.mechanisms import X, Z
from support.motion import at_time

EXACT = 1e-12
MASS, INERTIA = 2.0, (0.1, 0.2, 0.3)


def mounted(softness, *, weight=0.0, coupling=None, **place):
    """A block on the world by one joint, alone."""
    world = SystemBuilder(gravity=(0.0, 0.0, -weight / MASS))
    block = world.body("block", mass=MASS, inertia=INERTIA, **place)
    world.joint("mount", coupling or Fixed(), child=block, softness=softness)
    return world.build()


STIFFNESS = np.array([300.0, 200.0, 100.0, 5.0, 6.0, 7.0])
DAMPINGS = np.array([3.0, 2.0, 1.0, 0.5, 0.6, 0.7])


@pytest.mark.filterwarnings("ignore:.*miss each other")
@pytest.mark.parametrize("row", mostly_slow(range(6), default=("0", "5")))
def test_each_row_of_a_bushing_is_an_implicit_spring_and_damper(row):
    error, dt = 0.2, 2e-3
    inertia, k, d = np.repeat((MASS, *INERTIA), (3, 1, 1, 1))[row], STIFFNESS[row], DAMPINGS[row]
    p, angles = np.zeros(3), np.zeros(3)
    (p if row < 3 else angles)[row % 3] = error
    turn = np.append(np.cos(error / 2) if row > 2 else 1.0, np.sin(angles / 2))
    system, state = mounted(Bushing(STIFFNESS, DAMPINGS), pose=(p, turn))
    final = at_time(system, state, dt, 60)
    q, qd = error, 0.0
    for _ in range(60):
        qd = (inertia * qd - dt * k * q) / (inertia + dt * (dt * k + d))
        q += dt * qd
    twist = np.concatenate([final.velocity[:, 0], final.omega[:, 0]])
    np.testing.assert_allclose(twist, qd * np.eye(6)[row], rtol=0, atol=EXACT)
    assert abs(qd) > 0.1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*miss each other")
def test_a_spring_is_the_same_at_any_time_step_and_erp_with_cfm_is_not():
    """How far a weight sags where it hangs still."""
    weight, k, d, dt = 5.0, 250.0, 3.0, 4e-3
    erp, cfm = dt * k / (dt * k + d), 1 / (dt * k + d)
    sag = weight / k
    for softness in (Bushing(k, d), Compliance(1 / k, d), Softness(erp, cfm)):
        system, state = mounted(softness, weight=weight, pose=(0.0, 0.0, -sag))
        speeds = [float(at_time(system, state, h, 1).velocity[2, 0]) for h in (dt, dt / 2)]
        assert abs(speeds[0]) < EXACT
        # At half the step, ERP and CFM are a spring of twice the stiffness.
        moved = dt / 2 * weight / (MASS + dt / 2 * (dt * k + d))
        rise = moved if isinstance(softness, Softness) else 0.0
        assert speeds[1] == pytest.approx(rise, abs=EXACT)


@pytest.mark.slow
def test_rows_give_way_one_by_one():
    """A hinge that is rigid but along y: under a weight along y and z it sags along y alone."""
    k = 400.0
    world = SystemBuilder(gravity=(0.0, -3.0, -3.0), softness=Compliance(0.0, 0.0), erp=0.3)
    world.body("wheel", mass=MASS, inertia=INERTIA)
    soft = Compliance((0.0, 1 / k, 0.0, 0.0, 0.0), 20.0)
    world.joint("axle", Hinge(X), child="wheel", softness=soft)
    system, state = world.build()
    assert not system.groups[0].rigid
    final = at_time(system, state, 5e-3, 1500)
    np.testing.assert_allclose(final.position[:, 0], [0.0, -3.0 * MASS / k, 0.0], atol=1e-9)


@pytest.mark.filterwarnings("ignore:.*miss each other")
@pytest.mark.parametrize("dt", [2e-3, 1e-3])
def test_errors_decay_with_the_time_constant_at_any_step(dt):
    T, error = 0.05, 0.1
    system, state = mounted(Baumgarte((T, T, 2 * T, T, T, T)), pose=(error, 0.0, error))
    fast, _, slow = at_time(system, state, dt, round(T / dt)).position[:, 0]
    assert fast == pytest.approx(error * (1 - dt / T) ** (T / dt), abs=EXACT)
    assert fast == pytest.approx(error * np.exp(-1), rel=dt / T)
    assert slow == pytest.approx(error * (1 - dt / T / 2) ** (T / dt), abs=EXACT)


@pytest.mark.filterwarnings("ignore:.*miss each other")
def test_rows_with_a_time_constant_are_rigid():
    """A weight does not sag, and steps longer than the time constant remove all the error."""
    system, state = mounted(Baumgarte(1e-3), weight=5.0, pose=(0.0, 0.0, 0.1))
    position = at_time(system, state, 5e-3, 3).position[:, 0]
    np.testing.assert_allclose(position, 0.0, atol=EXACT)
    assert system.joint("mount").rigid


@struct
class Level(Constraint):
    """The first body's origin is as high as the second's."""

    position_rows: ClassVar[int] = 1

    def position(self, poses, t):
        return poses.p[2, :1] - poses.p[2, 1:]


@pytest.mark.slow
@pytest.mark.parametrize(
    "held", ["transmission", pytest.param("constraint", marks=pytest.mark.slow)]
)
def test_errors_of_what_holds_several_bodies_decay_alike(held):
    T, dt, error = 0.05, 1e-3, 0.1
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    for name, q in (("a", error), ("b", 0.0)):
        world.body(name, mass=1.0, inertia=INERTIA)
        world.joint(name, Slider(Z), child=name, q=q)
    if held == "transmission":
        world.transmission("gear", Mimic(1.0), joints=("a", "b"), softness=Baumgarte(T))
    else:
        world.constraint("level", Level(), bodies=("a", "b"), softness=Baumgarte(T))
    with pytest.warns(UserWarning, match="is 0.1 at the start and is to be 0"):
        system, state = world.build()
    height = at_time(system, state, dt, 50).position[2]
    assert height[0] - height[1] == pytest.approx(error * (1 - dt / T) ** 50, abs=1e-10)


def homogeneous(numbers):
    T = np.reshape(numbers, (4, 4))
    return T[:3, 3], T[:3, :3]


@pytest.mark.parametrize("name", ["hinge_bilateral_compliance", "fourbar_four_hinges_compliant"])
def test_the_damping_that_a_compliance_stands_for_is_that_of_artisynth(name):
    case = oracle.load("artisynth_laws")[name]
    for joint in case["joints"]:
        world = SystemBuilder()
        for body in case["bodies"]:
            inertia = np.reshape(body["inertia_about_com"], (3, 3))
            world.body(body["name"], mass=body["mass"], inertia=inertia, pose=(0.0, 0.0, 0.0))
        world.joint(
            "hinge",
            Hinge(),
            child=joint["bodyA"],
            parent=joint["bodyB"] or "world",
            frame_C=homogeneous(joint["T_CA"]),
            frame_D=homogeneous(joint["T_DB"]),
            softness=Compliance(joint["compliance"][:5]),
        )
        springs = world._joints["hinge"].softness.softness
        np.testing.assert_allclose(springs.damping, joint["damping"][:5], rtol=1e-12)


def test_what_is_wrong_with_springs_is_said():
    for softness, words in (
        (Compliance(-1e-3), "compliance -0.001 must be >= 0"),
        (Compliance(1e-3, np.nan), "damping nan must be finite"),
        (Bushing((1.0, 2.0), 0.0), r"stiffness has shape \(2,\); it must be \(6,\)"),
        (Bushing(1.0, -1.0), "damping -1.0 must be >= 0"),
        (Baumgarte(0.0), "time_constant 0.0 must be > 0"),
        (0.2, "softness 0.2 must be a Softness"),
    ):
        with pytest.raises(ValueError, match=f"joint 'mount': {words}"):
            mounted(softness)
    for softness in (Compliance(1e-3, -2.0), Bushing(-3.0, -2.0)):
        world = SystemBuilder()
        world.body("block", mass=MASS, inertia=INERTIA)
        world.joint("mount", Fixed(), child="block", softness=softness, allow_active=True)
        np.testing.assert_array_equal(world.build()[0].joint("mount").softness.damping, -2.0)
    world = SystemBuilder()
    for name in "ab":
        world.body(name, mass=1.0, inertia=INERTIA)
        world.joint(name, Slider(Z), child=name)
    with pytest.raises(ValueError, match="'gear': damping of a Compliance must be given"):
        world.transmission("gear", Mimic(2.0), joints=("a", "b"), softness=Compliance(1e-3))
