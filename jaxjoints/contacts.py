"""The joints that let two shapes touch: one for each point where they may."""

from typing import Any

import jax.numpy as jnp

from .couplings.contact import Contact
from .couplings.shapes import Shape, candidates, no_gap_function
from .spatial import Pose
from .validation import precision


def contact_points(owner: str, shape_C: Any, shape_D: Any) -> list[tuple[Contact, Pose, Pose]]:
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
