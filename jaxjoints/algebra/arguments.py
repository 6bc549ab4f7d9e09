"""Arguments of public calls that are numbers, quaternions and rotation matrices: their checks.

Every function that takes `owner` names it in its errors: what the argument belongs to, such as
"joint 'elbow'". Values that JAX is tracing are checked for their shape alone.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .calls import warn
from .compiler import is_traced
from .options import brief, plain_numbers

# By how much a quaternion's length may be off 1, with a warning and without one, and what RᵀR of a
# rotation matrix may be off the identity.
WRONG_LENGTH, ROUNDED_LENGTH, ROUNDED_MATRIX = 0.5, 1e-3, 1e-4


def is_unknown(value: Any) -> bool:
    """Whether numbers cannot be read here: JAX is tracing them, or other machines hold them."""
    elsewhere = isinstance(value, jax.Array) and not is_traced(value)
    return is_traced(value) or elsewhere and not value.is_fully_addressable


def read_numbers(
    owner: str,
    field: str,
    value: Any,
    shape: tuple[int, ...] = (),
    *,
    batched: bool = False,
    finite: bool = True,
) -> Any:
    """Numbers of a required shape: a NumPy array of float64, or the array itself where its numbers
    are unknown.

    batched: batch axes may follow the required shape
    finite: refuse infinities and NaN
    """
    unknown = is_unknown(value)
    try:
        numbers = jnp.asarray(value) if unknown else plain_numbers(value)
    except (TypeError, ValueError):
        numbers = None
    if numbers is None:
        more = ", and no text" if isinstance(value, str) else ""
        raise ValueError(f"{owner}: {field} {brief(value)} must be numbers of shape {shape}{more}")
    lead = numbers.shape[: len(shape)] if batched else numbers.shape
    if lead != shape:
        more = " (batch axes may follow)" if batched else ""
        raise ValueError(f"{owner}: {field} has shape {numbers.shape}; it must be {shape}{more}")
    if finite and not unknown and not np.isfinite(numbers).all():
        raise ValueError(f"{owner}: {field} {value} must be finite")
    return numbers


def check_quaternion(owner: str, field: str, value: Any, numbers: np.ndarray) -> bool:
    """Whether a quaternion has length 1 as it is; with a warning, it has to be scaled to it.

    value: as the user gave it, for errors; numbers: of it, shape (4, *batch)

    Raises: ValueError for a quaternion of zeros, and for one whose length is far from 1.
    """
    length = np.linalg.norm(numbers, axis=0)
    off = np.abs(length - 1).max(initial=0.0)
    if (length < 1e-9).any():
        raise ValueError(f"{owner}: {field} {value} must not be zero")
    if off > WRONG_LENGTH:
        raise ValueError(
            f"{owner}: {field} {value} must have length 1, w first; its length is off by {off:.3g}"
        )
    if off > ROUNDED_LENGTH:
        warn(f"{owner}: {field} {value} normalized, its length was off by {off:.3g}")
    return bool(off <= ROUNDED_LENGTH)


def check_rotation_matrix(owner: str, field: str, numbers: np.ndarray) -> None:
    """Raise ValueError for what is no rotation matrix, shape (3, 3, *batch)."""
    R = np.moveaxis(numbers, (0, 1), (-2, -1))
    off = np.abs(np.swapaxes(R, -1, -2) @ R - np.eye(3)).max(initial=0.0)
    if off > ROUNDED_MATRIX:
        raise ValueError(
            f"{owner}: {field} {numbers.tolist()} must be orthonormal; RᵀR is off the identity by "
            f"{off:.3g}"
        )
    if (np.linalg.det(R) < 0).any():
        raise ValueError(
            f"{owner}: {field} {numbers.tolist()} is a reflection, its determinant is -1; flip one "
            "axis"
        )
