"""Diagnosis: degrees of freedom and redundant rows of known mechanisms, and what it finds."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints import assemble, diagnose
from support import linkages
from support.mechanisms import chain, four_bar, pendulum
from support.refusals import refused


def test_a_planar_four_bar_has_one_freedom_and_three_redundant_rows():
    found = diagnose(*four_bar())
    assert (found.mobility, found.grubler, found.rows - found.rank) == (1, -2, 3)
    assert found.redundant == dict.fromkeys("ABDC", 3) and found.findings == ()


def test_a_chain_has_a_freedom_for_each_hinge():
    found = diagnose(*chain(4))
    assert (found.mobility, found.grubler, found.redundant) == (4, 4, {})


def test_a_gear_takes_a_freedom():
    world = jj.SystemBuilder()
    for name in "ab":
        world.body(name, mass=1.0, inertia=(0.1, 0.1, 0.1))
        world.joint(name, jj.Hinge(), child=name)
    world.transmission("gear", jj.transmissions.Mimic(ratio=2.0), joints=["a", "b"])
    found = diagnose(*world.build())
    assert (found.mobility, found.redundant) == (1, {})


def test_an_open_joint_is_found():
    system, state = pendulum()
    moved = jj.replace(state, position=state.position + jnp.array([[0.0], [0.01], [0.0]]))
    found = diagnose(system, moved)
    (finding,) = found.findings
    assert list(found.open) == ["pivot"]
    assert finding.startswith("joint 'pivot' is open by 0.01 m or rad")


def test_a_start_outside_the_limits_is_found():
    system, state = pendulum(q=0.5, laws=[jj.Limits(lower=-1.0, upper=0.6)])
    moved = system.state(q={"pivot": 0.55})
    assert diagnose(system, moved).findings == ()
    with pytest.warns(UserWarning, match="pivot"):
        outside = system.state(q={"pivot": 0.8})
    (finding,) = diagnose(system, outside).findings
    assert finding.startswith("joint 'pivot' starts at 0.8, outside [-1, 0.6]")
    assert f"! {finding}" in str(diagnose(system, outside))


def test_a_lock_is_shown_and_a_start_off_it_is_found():
    system, _ = pendulum(q=0.5, laws=[jj.Lock(0.5)])
    for q, findings in ((0.5, ()), (0.2, ("starts at 0.2 and is locked at 0.5",))):
        found = diagnose(system, system.state(q={"pivot": q}, rough=True))
        assert "locked at 0.5" in found.tables and "coordinates: 1 (1 locked)" in found.tables
        for finding, wanted in zip(found.findings, findings, strict=True):
            assert wanted in finding


def test_masses_far_apart_are_found():
    world = jj.SystemBuilder()
    for name, mass in (("light", 1e-3), ("heavy", 1e3)):
        world.body(name, mass=mass, inertia=(mass, mass, mass), pose=(0.0, 0.0, 0.0))
    (finding,) = diagnose(*world.build()).findings
    assert finding.startswith("the heaviest body has 1.0e+06 times the mass of the lightest")


def test_a_switched_off_joint_does_not_count():
    world = jj.SystemBuilder()
    world.body("bob", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.joint("pivot", jj.Hinge(), child="bob", enabled=True)
    system, state = world.build()
    assert diagnose(system, state).mobility == 1
    assert diagnose(system.with_joint("pivot", enabled=0.0), state).mobility == 6


def test_a_gimbal_at_its_lock_is_named():
    world = jj.SystemBuilder()
    world.body("gyro", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.joint("gimbal", jj.Gimbal(), child="gyro")
    system, state = world.build()
    assert diagnose(system, state).singular == ()
    found = diagnose(system, system.state(q={"gimbal": (0.1, np.pi / 2, 0.3)}))
    assert found.singular == ("gimbal",) and "'gimbal'" in found.findings[0]


def test_a_spring_that_the_step_does_not_follow_is_named():
    system, state = pendulum(laws=[jj.SpringDamper(stiffness=4e4)])
    found = diagnose(system, state, dt=1e-2)
    # 1 kg at 1 m, and its moment about the hinge.
    expected = np.sqrt(4e4 / (1.0 + 0.03))
    np.testing.assert_allclose(found.frequencies["pivot", 0], expected, rtol=1e-12)
    assert "joint 'pivot': coordinate 0 oscillates at 197 rad/s" in found.findings[0]
    assert diagnose(system, state, dt=1e-3).findings == ()


def tendon(laws, slide=0.0):
    world = jj.SystemBuilder(gravity=(0.0, 0.0, 0.0))
    for name, mass in (("a", 1.0), ("b", 3.0)):
        world.body(name, mass=mass, inertia=(0.1, 0.1, 0.1))
        world.joint(name, jj.Slider(), child=name, q=slide)
    sum_of_both = jj.transmissions.Weighted((1.0, 1.0))
    world.transmission("tendon", sum_of_both, joints=["a", "b"], laws=laws)
    return world.build()


def test_laws_of_a_transmission_are_looked_at_as_those_of_joints():
    found = diagnose(*tendon(jj.SpringDamper(stiffness=3e4)), dt=1e-2)
    # Along a sum of two ways an impulse meets 1/(1/m + 1/M).
    np.testing.assert_allclose(found.frequencies["tendon", 0], np.sqrt(3e4 * 4 / 3), rtol=1e-12)
    assert found.findings[0].startswith("transmission 'tendon': coordinate 0 oscillates at 200")
    with pytest.warns(UserWarning, match="'tendon': value 0 starts at 0.8, outside its upper 0.5"):
        outside = tendon(jj.Limits(upper=0.5), slide=0.4)
    (finding,) = diagnose(*outside).findings
    assert finding.startswith("transmission 'tendon' starts at 0.8, outside [-inf, 0.5]")


@jj.struct
class Rolls(jj.Constraint):
    """A ball of radius 0.5 about the origin of a body's frame rolls on z = 0."""

    position_rows: ClassVar[int] = 1
    velocity_rows: ClassVar[int] = 2
    acceleration_rows: ClassVar[int] = 1

    def position(self, poses, t):
        return poses.p[2] - 0.5

    def velocity(self, poses, twists, t):
        v, ω = twists[:3, 0], twists[3:, 0]
        return jnp.stack([v[0] - 0.5 * ω[1], v[1] + 0.5 * ω[0]])

    def acceleration(self, poses, twists, rates, t):
        return rates[2]


@pytest.mark.slow
def test_rows_of_rolling_count_neither_of_joints_nor_of_constraints():
    for custom in (False, True):
        world = jj.SystemBuilder()
        pose = {"pose": (0.0, 0.0, 0.5)} if custom else {}
        world.body("ball", mass=1.0, inertia=(0.1, 0.1, 0.1), **pose)
        if custom:
            world.constraint("roll", Rolls(), bodies="ball")
        else:
            world.joint("roll", jj.RollingSphere(0.5), child="ball")
        found = diagnose(*world.build())
        assert (found.mobility, found.rows, found.redundant) == (5, 1, {})


@pytest.mark.slow
def test_a_dead_point_is_near_dependence():
    system, state = linkages.slider_crank()
    state, _ = assemble(system, state, q={"O": 1e-4})
    found = diagnose(system, state)
    assert found.mobility == 1 and found.findings == ()
    # The rod cannot turn further than where it is at right angles to a crank of its length.
    equal, guess = linkages.slider_crank(0.5, 0.5)
    near, _ = assemble(equal, guess, q={"O": np.pi / 2 - 1e-4})
    found = diagnose(equal, near)
    assert found.conditioning < 1e-3 and "dead point" in found.findings[0]


def test_batches_are_refused():
    system, state = pendulum()
    with refused("diagnose", "batch axes", "x[..., 0]"):
        diagnose(system, jj.replicate(state, 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism, mobility, grubler",
    [
        ("Bennett", 1, -2),
        pytest.param("cardan", 1, -2, marks=pytest.mark.slow),
        pytest.param("Stewart", 6, 6, marks=pytest.mark.slow),
    ],
)
def test_overconstrained_mechanisms_move(mechanism, mobility, grubler):
    if mechanism == "Bennett":
        (system, _), _ = linkages.bennett_linkage()
        state, wanted = system.state(q={"0": 1.0, "1": 1.0, "2": -1.5}, rough=True), {"0": 1.0}
    elif mechanism == "cardan":
        (system, state), wanted = linkages.cardan_shaft(), {"in": 0.4}
    else:
        (system, state, _, _), wanted = linkages.stewart_platform(), {}
    state, _ = assemble(system, state, q=wanted)
    found = diagnose(system, state)
    assert (found.mobility, found.grubler) == (mobility, grubler)
    assert bool(found.redundant) == (mobility != grubler)
