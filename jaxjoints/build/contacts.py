"""`SystemBuilder.contact`: joints that let two shapes touch, one for each point where they may."""

from typing import Any

import jax.numpy as jnp

from ..algebra.spatial import Pose
from ..couplings.contact import Contact
from ..couplings.shapes import Shape, candidates, no_gap_function
from ..laws.contact import contact_laws
from ..model.system import WORLD
from .validation import precision, read_pose


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
    """Let two bodies touch where they may; returns the names of the joints that this makes.

    Each point of contact is a joint, a `Contact` of its own: `name` if there is one, else
    `name`/0, `name`/1, …: the corners of a box on a half-space, the ends of a capsule on it.

    shape_C, shape_D: of child and parent, see `touches` for the pairs
    child, parent, frame_C, frame_D: as in `joint`, where the shapes stand in the bodies
    surface: friction and so on, see `contact_laws`

    Raises: ValueError naming the contact, the field, the value and the rule.
    """
    owner = f"contact {name!r}"
    frame_C, frame_D = (
        read_pose(owner, field, frame)
        for field, frame in (("frame_C", frame_C), ("frame_D", frame_D))
    )
    laws = contact_laws(owner=owner, **surface)
    points = _points(owner, shape_C, shape_D)
    names = [name] if len(points) == 1 else [f"{name}/{i}" for i in range(len(points))]
    for one, (coupling, at_C, at_D) in zip(names, points, strict=True):
        frames = {"frame_C": frame_C @ at_C, "frame_D": frame_D @ at_D}
        self.joint(one, coupling, child=child, parent=parent, laws=laws, **frames)
    return tuple(names)


def _points(owner: str, shape_C: Any, shape_D: Any) -> list[tuple[Contact, Pose, Pose]]:
    """Couplings of two shapes, with the places of their C and D in the shapes' own frames.

    Raises: ValueError for what is no shape, lengths out of range and pairs without a gap function
    """
    for field, shape in (("shape_C", shape_C), ("shape_D", shape_D)):
        if not isinstance(shape, Shape):
            hint = "write Point()" if isinstance(shape, type) else "give one such as Sphere(0.1)"
            raise ValueError(f"{owner}: {field} {shape!r} is not a shape; {hint}")
        problem = shape.check()
        if problem:
            raise ValueError(f"{owner}: {field} {type(shape).__name__} {problem}")
    pairs = candidates(shape_C, shape_D)
    if pairs is None:
        raise ValueError(f"{owner}: {no_gap_function(shape_C, shape_D)}")
    found = []
    for one, at_C, other, at_D in pairs:
        places = (Pose.translation(jnp.asarray(at, precision())) for at in (at_C, at_D))
        found.append((Contact(one, other), *places))
    return found
