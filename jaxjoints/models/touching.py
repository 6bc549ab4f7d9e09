"""Shapes that touch in place of the shapes of a file."""

import numpy as np

from ..couplings import shapes
from ..couplings.hulls import hull
from . import geometry
from .report import Report


def touching_shape(shape: geometry.Shape) -> shapes.Shape:
    """The shape that touches where a shape of a file is; of a mesh its convex hull, simplified.

    Raises: ValueError for a mesh that is flat.
    """
    if isinstance(shape, geometry.Box):
        return shapes.Box(tuple(shape.size))
    if isinstance(shape, geometry.Sphere):
        return shapes.Sphere(shape.radius)
    if isinstance(shape, geometry.Cylinder):
        return shapes.Cylinder(shape.radius, shape.length)
    if isinstance(shape, geometry.Capsule):
        round_ = shape.length > 0
        return shapes.Capsule(shape.radius, shape.length) if round_ else shapes.Sphere(shape.radius)
    if isinstance(shape, geometry.Mesh):
        return shapes.ConvexMesh.hull_of(shape.vertices)
    return shapes.HalfSpace()


def read_hull(name: str, points: np.ndarray, report: Report) -> shapes.ConvexMesh | None:
    """The convex hull of the vertices of a mesh; what is lost of it is noted.

    name: what it is and its name, for the report; points: [m], shape (n, 3)
    """
    try:
        vertices, off = hull(points)
    except ValueError:
        report.skip(f"contact of {name}, which is flat or has fewer than 4 vertices")
        return None
    if off > 0:
        report.notes.append(
            f"{name}: touches with a hull of {len(vertices)} vertices, beyond which its surface "
            f"reaches by up to {off:.2g} m"
        )
    return shapes.ConvexMesh(vertices)
