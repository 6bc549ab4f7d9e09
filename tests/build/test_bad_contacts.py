"""Contacts that cannot be: each refused with the element, the field, the value and what to do."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj

BALL, GROUND = jj.shapes.Sphere(0.3), jj.shapes.HalfSpace()
BOX = jj.shapes.Box((0.4, 0.3, 0.2))


@jj.struct
class Lump(jj.shapes.Shape):
    def parts(self):
        return []


def build(shape_C=BALL, shape_D=GROUND, **surface):
    world = jj.SystemBuilder()
    world.body("ball", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.contact("foot", shape_C, shape_D, child="ball", **surface)
    return world.build()


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ((jj.shapes.Sphere(-0.3),), "contact 'foot': shape_C Sphere radius -0.3 must be > 0"),
        ((jj.shapes.Sphere(0.0),), "contact 'foot': shape_C Sphere radius 0.0 must be > 0 .*Point"),
        ((jj.shapes.Capsule(0.1, 0.0),), "shape_C Capsule length 0.0 must be > 0 .*Sphere"),
        ((jj.shapes.Capsule(np.nan, 1.0),), "shape_C Capsule radius nan must be > 0"),
        ((jj.shapes.Box((0.1, 0.2)),), r"shape_C Box size has shape \(2,\); give the three edges"),
        ((jj.shapes.Box((0.1, -0.2, 0.3)),), "shape_C Box size -0.2 must be > 0"),
        ((BALL, 0.3), "contact 'foot': shape_D 0.3 is not a shape; give one such as"),
        ((jj.shapes.Point,), r"contact 'foot': shape_C .*Point.* is not a shape; write Point\(\)"),
        (
            (BALL, Lump()),
            "'foot': there is no gap function for Sphere and Lump; .*ContactPoint",
        ),
        ((GROUND, GROUND), "there is no gap function for HalfSpace and HalfSpace"),
        ((jj.shapes.Cylinder(0.1, -1.0),), "shape_C Cylinder length -1.0 must be > 0"),
        ((jj.shapes.Cylinder(0.1, 1.0), BOX), "no gap function for Cylinder and Box"),
        ((jj.shapes.ConvexMesh(np.eye(3)),), r"ConvexMesh vertices has shape \(3, 3\); it must be"),
        ((jj.shapes.ConvexMesh(np.eye(4)[:, :3] * [1, 1, 0]),), "ConvexMesh vertices lie in a pl"),
        (
            (BALL, jj.shapes.HeightField(np.ones((2, 5)), (1, 1))),
            r"heights has .* of 3 nodes or",
        ),
        ((BALL, jj.shapes.HeightField(np.ones((3, 5)), (1, -1))), "HeightField size -1.0 must be"),
        ((jj.shapes.ConvexMesh("foot.stl"),), "shape_C ConvexMesh.vertices 'foot.stl' must be num"),
        ((jj.shapes.ConvexMesh([[0, 0, 0], [1, 0]]),), r"ConvexMesh.vertices .* must be numbers"),
        ((jj.shapes.Cylinder("0.1", 1.0),), "shape_C Cylinder.radius '0.1' must be numbers"),
        (
            (jj.shapes.Cylinder((0.1, 0.2), 1.0),),
            r"Cylinder radius \(0.1, 0.2\) must be one",
        ),
        ((BALL, jj.shapes.HeightField(np.nan * np.ones((3, 3)), (1, 1))), "heights must be finite"),
    ],
)
def test_shapes_that_cannot_touch_are_refused(shapes, message):
    with pytest.raises(ValueError, match=message):
        build(*shapes)


@pytest.mark.parametrize(
    ("surface", "message"),
    [
        ({"friction": "rubber"}, "contact 'foot': ContactFriction .* friction 'rubber' must be a"),
        ({"friction": -0.5}, "contact 'foot': ContactFriction .* friction -0.5 must be >= 0"),
        ({"friction": np.inf}, "ContactFriction on coordinate 1: friction inf must be finite"),
        (
            {"friction": (0.1, 0.2, 0.3)},
            r"contact 'foot': friction \(0.1, 0.2, 0.3\) must be",
        ),
        ({"friction_force": -1.0}, "ContactFriction .* friction_force -1.0 must be >= 0"),
        ({"friction": 0.5, "slip": -1.0}, "ContactFriction .* slip -1.0 must be >= 0"),
        ({"rolling": -0.1}, "ContactFriction on coordinate 3: friction -0.1 must be >= 0"),
        ({"restitution": 1.5}, r"ContactLimits .* restitution 1.5 must lie in \[0, 1\]"),
        ({"bounce_speed": -1.0}, "ContactLimits .* bounce_speed -1.0 must be >= 0"),
        ({"erp": 2.0}, r"ContactLimits .* erp 2.0 must lie in \[0, 1\]"),
        ({"erp": 0.2, "stiffness": 1.0}, "has both stiffness/damping and erp/cfm"),
        ({"stiffness": -1.0, "damping": 2.0}, "stiffness -1.0 must be >= 0"),
        ({"max_correction": 0.0}, "max_correction 0.0 must be > 0"),
    ],
)
def test_surfaces_that_cannot_be_are_refused(surface, message):
    with pytest.raises(ValueError, match=message):
        build(**surface)


@pytest.mark.parametrize(
    ("point", "message"),
    [
        (jj.Contact(BOX, GROUND), "contact 'a': Contact touches in 8 points; .*SystemBuilder"),
        (
            jj.Contact(jj.shapes.Sphere(-1.0), GROUND),
            "Contact shape_C: Sphere radius -1.0 must be > 0",
        ),
        (jj.Contact(BALL, Lump()), "Contact there is no gap function for Sphere and Lump"),
        (jj.ContactPoint(normal=(0.0, 0.0, 0.0)), "ContactPoint normal .* has length 0"),
        (jj.ContactPoint(point_C=(0.0, 0.0)), r"point_C has shape \(2,\); a point has 3"),
        (jj.ContactPoint(tangent=(0.0, 0.0, 2.0)), "tangent .* must not be along the normal"),
    ],
)
def test_contact_points_that_cannot_be_are_refused(point, message):
    world = jj.SystemBuilder()
    world.body("ball", mass=1.0, inertia=(0.1, 0.1, 0.1))
    with pytest.raises(ValueError, match=message):
        world.contact("a", point, child="ball")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"laws": jj.DryFriction(1.0, coordinate=1)}, "no law keeps its bodies apart; give one"),
        (
            {"laws": [jj.ContactLimits(), jj.Limits(-1.0, 1.0, coordinate=3)]},
            "3 holds a place, and",
        ),
        ({"laws": jj.ContactLimits(coordinate=6)}, "on coordinate 6: there are 6 coordinates"),
        ({"laws": jj.ContactLimits(), "friction": 0.5}, "give laws or friction, not both"),
        ({"shape_D": GROUND}, "shape_D HalfSpace.* beside a ContactPoint, .*; leave it out"),
        ({"child": "hall"}, "child 'hall' is no body; did you mean 'ball'"),
        ({"enabled": 0.5}, "enabled 0.5 must be True, False, or None"),
    ],
)
def test_what_a_contact_cannot_be_given_is_refused(given, message):
    world = jj.SystemBuilder()
    world.body("ball", mass=1.0, inertia=(0.1, 0.1, 0.1))
    with pytest.raises(ValueError, match=f"contact 'a'.*{message}"):
        world.contact("a", jj.ContactPoint(), **{"child": "ball"} | given)


def test_a_contact_is_no_joint_and_says_how_to_add_and_read_it():
    world = jj.SystemBuilder()
    world.body("ball", mass=1.0, inertia=(0.1, 0.1, 0.1), pose=(0.0, 0.0, 1.0))
    world.joint("arm", jj.Slider(), child="ball")
    for contact in (jj.Contact(BALL, GROUND), jj.ContactPoint()):
        with pytest.raises(ValueError, match="'foot': a Contact.* is no joint .* with `contact`"):
            world.joint("foot", contact, child="ball")
    with pytest.raises(ValueError, match="contact 'arm' .*: joint 'arm' .* has this name"):
        world.contact("arm", BALL, GROUND, child="ball")
    world.contact("foot", BALL, GROUND, child="ball")
    with pytest.raises(ValueError, match="joint 'foot' .*: contact 'foot' .* has this name"):
        world.joint("foot", jj.Hinge(), child="ball")
    system, state = world.build()
    assert state.q.shape == (1,) and system.contact_index("foot") == 0
    for ask in (system.coordinate, system.joint):
        with pytest.raises(KeyError, match="'foot' is a contact .*gaps.*contact_force"):
            ask("foot")
    with pytest.raises(KeyError, match="'foot' is a contact and no joint; .* `with_contact`"):
        system.with_joint("foot", laws=())
    with pytest.raises(ValueError, match="coordinates 'foot' is no joint; .* give gaps="):
        jj.readout(system, coordinates="foot")
    with pytest.raises(KeyError, match="no contact 'arm'; there are \\['foot'\\]"):
        system.contact("arm")
    # Six numbers for each contact once stood in q.
    old = dataclasses.replace(state, q=jnp.zeros(7))
    with pytest.raises(ValueError, match=r"such as 'foot'; .* so q has shape \(1,\).*`gaps"):
        jj.step(system, old, dt=0.01)


def test_a_contact_places_no_body_and_is_told_no_coordinates():
    """A body that has only contacts stands where it is told, or at the origin."""
    world = jj.SystemBuilder()
    world.body("free", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.body("held", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.contact("touch", BALL, BALL, child="free", parent="held")
    world.joint("arm", jj.Hinge(axis=(0.0, 1.0, 0.0)), child="held", frame_D=(0.0, 0.0, 2.0))
    system, state = world.build()
    np.testing.assert_allclose(state.position, [[0, 0], [0, 0], [0, 2]])
    np.testing.assert_allclose(jj.gaps(system, state), [1.4])
    for values, field in (
        ({"q": {"touch": np.ones(6)}}, "q"),
        ({"qd": {"touch": np.ones(6)}}, "qd"),
    ):
        with pytest.raises(ValueError, match=f"{field}: there is no joint 'touch'"):
            system.state(**values)


def test_bodies_that_start_in_each_other_are_warned_of():
    with pytest.warns(
        UserWarning, match=re.escape("contact 'foot': its gap starts at -0.3, outside its")
    ):
        system, state = build()
    # And pushed out by position projection, as from any hard limit.
    assert jnp.abs(jax.jit(jj.project)(system, state).position[2, 0] - 0.3) < 1e-4
