"""Diagnosis: degrees of freedom and redundant rows of known mechanisms, and what it finds."""

import jax.numpy as jnp
import pytest

import jaxjoints as jj
from jaxjoints.cli.diagnosis import diagnosis
from support.mechanisms import chain, four_bar, pendulum


def test_a_planar_four_bar_has_one_freedom_and_three_redundant_rows():
    found = diagnosis(*four_bar())
    assert (found.freedom, found.redundant, found.findings) == (1, 3, ())


def test_a_chain_has_a_freedom_for_each_hinge():
    found = diagnosis(*chain(4))
    assert (found.freedom, found.redundant) == (4, 0)


def test_a_gear_takes_a_freedom():
    world = jj.SystemBuilder()
    for name in "ab":
        world.body(name, mass=1.0, inertia=(0.1, 0.1, 0.1))
        world.joint(name, jj.Hinge(), child=name)
    world.transmission("gear", jj.transmissions.Mimic(ratio=2.0), joints=["a", "b"])
    found = diagnosis(*world.build())
    assert (found.freedom, found.redundant) == (1, 0)


def test_an_open_joint_is_found():
    system, state = pendulum()
    moved = jj.replace(state, position=state.position + jnp.array([[0.0], [0.01], [0.0]]))
    (finding,) = diagnosis(system, moved).findings
    assert finding.startswith("joint 'pivot' is open by 0.01 m or rad")


def test_a_start_outside_the_limits_is_found():
    system, state = pendulum(q=0.5, laws=[jj.Limits(lower=-1.0, upper=0.6)])
    moved = system.state(q={"pivot": 0.55})
    assert diagnosis(system, moved).findings == ()
    with pytest.warns(UserWarning, match="pivot"):
        outside = system.state(q={"pivot": 0.8})
    (finding,) = diagnosis(system, outside).findings
    assert finding.startswith("joint 'pivot' starts at 0.8, outside [-1, 0.6]")
    assert f"! {finding}" in str(diagnosis(system, outside))


def test_masses_far_apart_are_found():
    world = jj.SystemBuilder()
    for name, mass in (("light", 1e-3), ("heavy", 1e3)):
        world.body(name, mass=mass, inertia=(mass, mass, mass), pose=(0.0, 0.0, 0.0))
    (finding,) = diagnosis(*world.build()).findings
    assert finding.startswith("the heaviest body has 1.0e+06 times the mass of the lightest")
