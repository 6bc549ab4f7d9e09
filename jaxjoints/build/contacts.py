"""`SystemBuilder.contact`: two shapes that touch, as one joint for each possible contact point."""

from typing import Any

import jax.numpy as jnp

from ..algebra.compiler import is_traced
from ..algebra.spatial import Pose
from ..couplings.contact import Contact
from ..couplings.shapes import Shape, candidates, no_gap_function
from ..laws.contact import contact_laws
from ..model.system import WORLD
from .checks.values import precision, read_pose


def add_contact(
    self: Any,
    name: str,
    shape_C: Shape,
    shape_D: Shape,
    *,
    child: str,
    parent: str = WORLD,
    frame_C: Any = None,
    frame_D: Any = None,
    **surface: Any,
) -> tuple[str, ...]:
    """Let the shapes of two bodies touch; returns the names of the joints that this adds.

    Each possible contact point is one joint with a `Contact` coupling. A single one is named
    `name`, several are named `name`/0, `name`/1, …: a box on a half-space has eight, at its
    corners, and a capsule two, at its ends.

    shape_C, shape_D: shapes of child and parent, each placed by its frame C or D; see `touches` for
        the pairs that can touch
    child, parent, frame_C, frame_D: as in `joint`
    surface: friction, softness and restitution: the arguments of `contact_laws`

    Raises: ValueError naming the contact, the argument, its value and the rule.
    """
    owner = f"contact {name!r}"
    frame_C = read_pose(owner, "frame_C", frame_C)
    frame_D = read_pose(owner, "frame_D", frame_D)
    laws = contact_laws(owner=owner, **surface)
    points = _contact_points(owner, shape_C, shape_D)
    names = [name] if len(points) == 1 else [f"{name}/{i}" for i in range(len(points))]
    for joint, (coupling, in_shape_C, in_shape_D) in zip(names, points, strict=True):
        frames = {"frame_C": frame_C @ in_shape_C, "frame_D": frame_D @ in_shape_D}
        self.joint(joint, coupling, child=child, parent=parent, laws=laws, **frames)
    return tuple(names)


def _contact_points(owner: str, shape_C: Any, shape_D: Any) -> list[tuple[Contact, Pose, Pose]]:
    """The coupling of each contact point of two shapes, and its C and D in the shapes' frames.

    Raises: ValueError for a value that is no shape, lengths out of range, and a pair of shapes
        without a gap function.
    """
    for field, shape in (("shape_C", shape_C), ("shape_D", shape_D)):
        if not isinstance(shape, Shape):
            hint = "write Point()" if isinstance(shape, type) else "give one such as Sphere(0.1)"
            raise ValueError(f"{owner}: {field} {shape!r} is not a shape; {hint}")
        problem = None if is_traced(shape) else shape.check()
        if problem:
            raise ValueError(f"{owner}: {field} {type(shape).__name__} {problem}")
    pairs = candidates(shape_C, shape_D)
    if pairs is None:
        raise ValueError(f"{owner}: {no_gap_function(shape_C, shape_D)}")
    points = []
    for part_C, origin_C, part_D, origin_D in pairs:
        origins = (jnp.asarray(origin, precision()) for origin in (origin_C, origin_D))
        points.append((Contact(part_C, part_D), *map(Pose.translation, origins)))
    return points
