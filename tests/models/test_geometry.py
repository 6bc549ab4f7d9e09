"""Shapes to look at: checked when they are made, and constant from then on."""

import numpy as np
import pytest

from jaxjoints.models.geometry import Box, Capsule, Cylinder, Mesh, Plane, Sphere, Visual

HERE = np.eye(3), np.zeros(3)


def test_a_visual_keeps_what_it_was_given():
    size = np.array([1.0, 2.0, 3.0])
    visual = Visual("arm", (np.eye(3), (0.0, 0.0, 1.0)), Box(size), (1, 0, 0, 0.5))
    size[0] = 9.0
    np.testing.assert_array_equal(visual.shape.size, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(visual.frame[1], [0.0, 0.0, 1.0])
    assert visual.color == (1.0, 0.0, 0.0, 0.5)
    with pytest.raises(ValueError, match="read-only"):
        visual.shape.size[0] = 9.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Box((1.0, 0.0, 1.0)), "Box: size .* must be > 0"),
        (lambda: Box((1.0, 1.0)), r"Box: size has shape \(2,\)"),
        (lambda: Sphere(float("nan")), "Sphere: radius nan must be finite"),
        (lambda: Cylinder(1.0, -1.0), "Cylinder: length -1.0 must be > 0"),
        (lambda: Capsule(1.0, -1.0), "Capsule: length -1.0 must be >= 0"),
        (lambda: Mesh(np.zeros((3, 2)), np.zeros((0, 3), int)), r"Mesh: vertices has shape"),
        (lambda: Mesh([[np.nan, 0, 0]], []), "Mesh: vertices must be finite"),
        (lambda: Mesh(np.zeros((3, 3)), [[0, 1, 3]]), "Mesh: faces names vertices 0 to 3"),
        (lambda: Mesh(np.zeros((3, 3)), [[0.0, 1.0, 2.0]]), "Mesh: faces has shape .* integers"),
        (lambda: Visual("", HERE, Plane()), "body '' must be the name"),
        (lambda: Visual("a", HERE, "box"), "shape 'box' must be one of"),
        (lambda: Visual("a", (-np.eye(3), np.zeros(3)), Plane()), "must be a rotation matrix"),
        (lambda: Visual("a", HERE, Plane(), (1, 1, 1, 2)), "color .* must lie in"),
    ],
)
def test_what_is_no_shape_is_refused_in_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()
