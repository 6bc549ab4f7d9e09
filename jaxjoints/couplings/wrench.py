"""Unit wrenches and checks of parameters, of which hand-written couplings are made."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from ..algebra.options import plain_numbers
from ..algebra.spatial import Pose, unit


def axes(T: Pose) -> tuple[Array, Array, Array]:
    """Unit vectors ex, ey, ez, each (3, *1): constants that broadcast against T's batch axes."""
    shape = (3, 3) + (1,) * (T.p.ndim - 1)
    identity = jnp.eye(3, dtype=T.p.dtype).reshape(shape)
    return identity[0], identity[1], identity[2]


def along(u: Array) -> Array:
    """Wrench (u, 0), the force u without a moment, shape (6, *b)."""
    return jnp.concatenate([u, jnp.zeros_like(u)], axis=0)


def about(u: Array) -> Array:
    """Wrench (0, u), the moment u without a force, shape (6, *b)."""
    return jnp.concatenate([jnp.zeros_like(u), u], axis=0)


def stack_rows(*wrenches: Array) -> Array:
    """Six wrenches (6, *b) as the rows of W, shape (6, 6, *b)."""
    return jnp.stack(jnp.broadcast_arrays(*wrenches))


def direction(axis: ArrayLike) -> Array:
    """Unit vector along an axis of any length but 0, shape (3, *b); a tuple of numbers will do."""
    return unit(axis if isinstance(axis, jax.Array) else jnp.asarray(axis, float))


def unit_axis(axis: ArrayLike, T: Pose) -> Array:
    """Unit vector along an axis (3, ...) in T's precision, with axes of size 1 for T's batch."""
    axis = jnp.asarray(axis, T.p.dtype)
    return unit(axis.reshape(axis.shape + (1,) * (T.p.ndim - axis.ndim)))


def check_axis(name: str, axis: ArrayLike) -> str | None:
    """What is wrong with a direction, or None."""
    axis = np.asarray(axis)
    if axis.shape != (3,):
        return f"{name} has shape {axis.shape}; a direction has 3 components"
    if not np.isfinite(axis).all():
        return f"{name} {axis.tolist()} must be finite"
    if np.linalg.norm(axis) < 1e-9:
        return f"{name} {axis.tolist()} has length 0; give a direction"
    return None


def check_not_parallel(coupling: Any, first: str, second: str, instead: str) -> str | None:
    """What is wrong with two fields that must be directions and not parallel, or None.

    first, second: names of the fields
    instead: advice for parallel axes, part of the sentence
    """
    a, b = getattr(coupling, first), getattr(coupling, second)
    problem = check_axis(first, a) or check_axis(second, b)
    if problem:
        return problem
    a, b = (np.asarray(axis, float) / np.linalg.norm(axis) for axis in (a, b))
    sine = np.linalg.norm(np.cross(a, b))
    if sine > 1e-3:
        return None
    angle = np.degrees(np.arcsin(sine))
    return (
        f"{first} and {second} are {angle:.4g} degrees apart; they must not be parallel ({instead})"
    )


def check_length(name: str, length: ArrayLike, instead: str) -> str | None:
    """What is wrong with a length that must be positive, or None.

    instead: advice for a length of 0, part of the sentence
    """
    number = plain_numbers(length)
    if number is None or number.shape != ():
        return f"{name} {length!r} must be one number > 0 ({instead})"
    length = float(number)
    if np.isfinite(length) and length > 0:
        return None
    return f"{name} {length} must be > 0 and finite ({instead})"
