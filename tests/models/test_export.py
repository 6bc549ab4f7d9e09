"""A system as URDF is the same mechanism when it is loaded again."""

import json
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.models import LoadWarning, load_urdf, to_urdf
from support.accelerations import rates
from support.mechanisms import chain, four_bar

DATA = Path(__file__).parents[1] / "data"


def reloaded(system, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return load_urdf(to_urdf(system), **options).build()


@pytest.mark.slow
def test_a_robot_that_is_exported_accelerates_as_pinocchio_says():
    recorded = json.loads((DATA / "urdf_robot.json").read_text(encoding="utf-8"))
    system, _ = load_urdf(recorded["urdf"]).build()
    # Frames on the child away from its body frame become frames of links.
    again, _ = reloaded(system)
    assert set(again.topology.joints) == set(system.topology.joints)
    case = recorded["cases"][0]
    state = again.state(q=case["q"], qd=case["qd"])
    found, _ = rates(again, state, again.control(effort=case["effort"]))
    wanted = jnp.zeros(again.coordinates)
    for name, value in case["qdd"].items():
        wanted = wanted.at[again.coordinate(name)].set(jnp.asarray(value))
    np.testing.assert_allclose(found, wanted, atol=1e-8 * np.abs(wanted).max())


def test_frames_laws_and_efforts_are_kept():
    world = jj.SystemBuilder()
    world.body("a & b", mass=1.0, inertia=(0.1, 0.2, 0.25), com=(0.1, 0.2, 0.3))
    world.body("c", mass=2.0, inertia=(0.3, 0.2, 0.25))
    pose = (0.3, -0.2, 0.5), np.array([0.5, -0.5, 0.5, 0.5])
    laws = [jj.Limits(-1.0, 2.0), jj.Damping(0.3), jj.DryFriction(0.2)]
    world.joint(
        "j",
        jj.Hinge((0.0, 3.0, 4.0)),
        child="a & b",
        frame_C=pose,
        frame_D=pose,
        laws=laws,
        max_effort=5.0,
    )
    world.joint("k", jj.Slider(), child="c", parent="a & b", frame_C=(0.0, 1.0, 0.0), q=0.5)
    world.transmission("m", jj.transmissions.Mimic(2.0, 0.5), joints=("j", "k"))
    system, _ = world.build()
    again, _ = reloaded(system)
    stop, damping, friction = again.joint("j").laws
    assert [float(x) for x in (stop.lower, stop.upper)] == [-1.0, 2.0]
    assert (float(damping.damping), float(friction.friction_force)) == (0.3, 0.2)
    np.testing.assert_array_equal(again.joint("j").max_effort, [5.0])
    assert float(again.transmission("k mimics j").transmission.ratio) == 2.0
    # The centres of mass stand where they stood.
    q = {"j": 0.4, "k": 1.3}
    for name in ("a & b", "c"):
        one, other = system.state(q=q), again.state(q=q)
        np.testing.assert_allclose(
            other.position[:, again.body(name)], one.position[:, system.body(name)], atol=1e-12
        )


TURNED = jj.Pose.from_rotation_vector(jnp.array([0.3, -0.2, 0.4]), jnp.array([0.1, 0.2, -0.3]))
SERIES = {
    "universal": jj.Universal((0.0, 0.0, 2.0), (0.6, 0.8, 0.5)),
    "gimbal": jj.Gimbal("YXZ"),
    "cylindrical": jj.Cylindrical((0.0, 3.0, 4.0)),
    "double hinge": jj.DoubleHinge(0.4),
    "prismatic rotoide": jj.PrismaticRotoide(),
    "free euler": jj.FreeEuler("XZY"),
    "chain": jj.Chain(jj.Slider((1.0, 2.0, 0.0)), jj.Universal(), TURNED),
    "wheel": jj.Hinge2(),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SERIES)
def test_joints_of_several_coordinates_are_hinges_and_sliders_in_series(name):
    world = jj.SystemBuilder()
    frames = {"frame_C": TURNED, "frame_D": TURNED.inverse()}
    for body, parent in (("a", jj.WORLD), ("b", "a")):
        world.body(body, mass=1.0, inertia=(0.1, 0.2, 0.25), com=(0.1, -0.2, 0.3))
        coupling = SERIES[name] if body == "b" else jj.Hinge()
        laws = [jj.Damping(0.3, coordinate=coupling.dof - 1)]
        world.joint(f"to {body}", coupling, child=body, parent=parent, laws=laws, **frames)
    system, _ = world.build()
    again, _ = reloaded(system)
    (joined,) = set(again.topology.joints) - {"to a"}
    assert joined == "+".join(f"to b.{i}" for i in range(SERIES[name].dof))
    (damping,) = again.joint(joined).laws
    assert (float(damping.damping), damping.coordinate) == (0.3, SERIES[name].dof - 1)
    q = np.linspace(-0.4, 0.7, SERIES[name].dof)
    one, other = system.state(q={"to a": 0.2, "to b": q}), again.state(q={"to a": 0.2, joined: q})
    np.testing.assert_allclose(other.position, one.position, atol=1e-12)


@pytest.mark.parametrize("coupling", [jj.Helical(0.1), jj.Ball(), jj.Rope()])
def test_what_is_no_series_of_hinges_and_sliders_is_named(coupling):
    world = jj.SystemBuilder()
    world.body("a", mass=1.0, inertia=(0.1, 0.2, 0.25))
    world.joint("j", coupling, child="a", q=np.full(coupling.dof, 0.1))
    system, _ = world.build()
    with pytest.raises(ValueError, match=f"joint 'j': {type(coupling).__name__}"):
        to_urdf(system)


def test_free_bodies_float():
    world = jj.SystemBuilder()
    for name in "ab":
        world.body(name, mass=1.0, inertia=(0.1, 0.2, 0.25))
    system, _ = world.build()
    again, _ = reloaded(system)
    assert again.topology.joints == ("free a", "free b") and again.coordinates == 12


def test_what_urdf_cannot_say_is_named():
    system, _ = chain(2, coupling=jj.Ball(), laws=jj.SpringDamper(1.0))
    with pytest.raises(ValueError, match="strict=False to leave out\n  joint '0': Ball"):
        to_urdf(system)
    with pytest.warns(LoadWarning, match="joint '1': Ball"):
        to_urdf(system, strict=False)
    with pytest.raises(ValueError, match="closes a loop"):
        to_urdf(four_bar()[0])
