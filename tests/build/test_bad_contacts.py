"""Contacts that cannot be: each refused with the element, the field, the value and what to do."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj

BALL, GROUND = jj.shapes.Sphere(0.3), jj.shapes.HalfSpace()
BOX = jj.shapes.Box((0.4, 0.3, 0.2))


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
            (BOX, BALL),
            "'foot': there is no gap function for Box and Sphere; .*ContactPoint",
        ),
        ((GROUND, GROUND), "there is no gap function for HalfSpace and HalfSpace"),
    ],
)
def test_shapes_that_cannot_touch_are_refused(shapes, message):
    with pytest.raises(ValueError, match=message):
        build(*shapes)


@pytest.mark.parametrize(
    ("surface", "message"),
    [
        ({"friction": -0.5}, "joint 'foot': ContactFriction .* mu -0.5 must be >= 0"),
        ({"friction": np.inf}, "ContactFriction on coordinate 1: mu inf must be finite"),
        (
            {"friction": (0.1, 0.2, 0.3)},
            r"contact 'foot': friction \(0.1, 0.2, 0.3\) must be",
        ),
        ({"friction_force": -1.0}, "ContactFriction .* force_limit -1.0 must be >= 0"),
        ({"friction": 0.5, "slip": -1.0}, "ContactFriction .* slip -1.0 must be >= 0"),
        ({"rolling": -0.1}, "ContactFriction on coordinate 3: mu -0.1 must be >= 0"),
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
    ("coupling", "message"),
    [
        (jj.Contact(BOX, GROUND), "joint 'a': Contact touches in 8 points; use .*SystemBuilder"),
        (
            jj.Contact(jj.shapes.Sphere(-1.0), GROUND),
            "Contact shape_C: Sphere radius -1.0 must be > 0",
        ),
        (jj.Contact(BALL, BOX), "Contact there is no gap function for Sphere and Box"),
        (jj.ContactPoint(normal=(0.0, 0.0, 0.0)), "ContactPoint normal .* has length 0"),
        (jj.ContactPoint(point_C=(0.0, 0.0)), r"point_C has shape \(2,\); a point has 3"),
        (jj.ContactPoint(tangent=(0.0, 0.0, 2.0)), "tangent .* must not be along the normal"),
    ],
)
def test_contact_joints_that_cannot_be_are_refused(coupling, message):
    world = jj.SystemBuilder()
    world.body("ball", mass=1.0, inertia=(0.1, 0.1, 0.1))
    with pytest.raises(ValueError, match=message):
        world.joint("a", coupling, child="ball")


def test_a_contact_places_no_body_and_is_told_no_coordinates():
    """A body that has only contacts stands where it is told, or at the origin."""
    world = jj.SystemBuilder()
    world.body("free", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.body("held", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.contact("touch", BALL, BALL, child="free", parent="held")
    world.joint("arm", jj.Hinge(axis=(0.0, 1.0, 0.0)), child="held", frame_D=(0.0, 0.0, 2.0))
    system, state = world.build()
    np.testing.assert_allclose(state.position, [[0, 0], [0, 0], [0, 2]])
    np.testing.assert_allclose(jj.coordinates(system, state)[system.coordinate("touch")][0], 1.4)
    for values, field in (
        ({"q": {"touch": np.ones(6)}}, "q"),
        ({"qd": {"touch": np.ones(6)}}, "qd"),
    ):
        with pytest.raises(ValueError, match=f"joint 'touch': {field} "):
            system.state(**values)


def test_bodies_that_start_in_each_other_are_warned_of():
    with pytest.warns(
        UserWarning, match=re.escape("joint 'foot': coordinate 0 starts at -0.3, out")
    ):
        system, state = build()
    # And pushed out by position projection, as from any hard limit.
    assert jnp.abs(jax.jit(jj.project)(system, state).position[2, 0] - 0.3) < 1e-4
