"""Reads the mass and the inertia of a body that a user passes, and says why they are unphysical."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ...algebra.arguments import read_numbers
from ...algebra.calls import warn
from ...algebra.compiler import is_traced


def read_mass(owner: str, mass: Any, prescribed: bool) -> float | Array:
    """A positive mass [kg]; one that is traced as it is.

    prescribed: the body has a prescribed motion, on which its mass has no effect; without a mass it
        gets 1
    """
    traced = is_traced(mass)
    if prescribed and (mass is None or not traced and np.ndim(mass) == 0 and mass == 0):
        return 1.0
    if mass is None:
        raise ValueError(f"{owner}: mass is missing; give kilograms, or prescribed=True")
    if traced:
        return read_numbers(owner, "mass", mass)
    value = float(read_numbers(owner, "mass", mass))
    if value <= 0:
        raise ValueError(
            f"{owner}: mass {mass} must be > 0 (for a body that does not move give prescribed=True)"
        )
    return value


def read_inertia(
    owner: str,
    inertia: Any,
    *,
    mass: float | Array,
    com: np.ndarray | Array,
    reference: str,
    prescribed: bool,
    symmetrize: bool,
    balance: bool,
    unphysical: bool = False,
    rounding: float = 0.0,
) -> np.ndarray | Array:
    """The inertia matrix about the centre of mass in body axes [kg m²], shape (3, 3).

    inertia: 3 principal moments or a 3x3 matrix, about the point `reference`
    com: centre of mass in the body frame [m]
    reference: "com", or "origin" for the origin of the body frame
    prescribed: the body has a prescribed motion; without an inertia it gets the identity
    symmetrize, balance, unphysical: see `SystemBuilder.body`
    rounding: share of the inertia by which it may miss these rules, beside that of float64

    Raises: ValueError for a matrix that no rigid body has: not symmetric, not positive definite, or
        with a principal moment larger than the sum of the two others.
    """
    if reference not in ("com", "origin"):
        raise ValueError(f"{owner}: inertia_at {reference!r} must be 'com' or 'origin'")
    traced = is_traced(inertia)
    if prescribed and (inertia is None or not traced and not np.any(inertia)):
        return np.eye(3)
    if inertia is None:
        raise ValueError(f"{owner}: inertia is missing; give 3 principal moments or a 3x3 matrix")
    moments = np.shape(jnp.asarray(inertia) if traced else inertia) == (3,)
    numbers = read_numbers(owner, "inertia", inertia, (3,) if moments else (3, 3))
    if traced or reference == "origin" and is_traced((mass, com)):
        return _traced_inertia(jnp.asarray(numbers), mass, com, reference)
    matrix = np.diag(numbers) if moments else numbers
    skewness = np.abs(matrix - matrix.T).max()
    if skewness > max(1e-8, rounding) * np.abs(matrix).max() and not symmetrize:
        raise ValueError(
            f"{owner}: inertia {matrix.tolist()} must be symmetric (it is off by {skewness:.3g}); "
            "correct it, or give symmetrize=True to take the mean with its transpose"
        )
    matrix = (matrix + matrix.T) / 2
    point = "about the centre of mass"
    if reference == "origin":
        # The parallel-axis theorem.
        matrix = matrix - mass * (com @ com * np.eye(3) - np.outer(com, com))
        point += f" (moved there from the origin with com {com.tolist()} and mass {mass})"
    return _physical_inertia(owner, matrix, point, balance, unphysical, max(1e-9, rounding))


def _traced_inertia(
    numbers: Array, mass: float | Array, com: np.ndarray | Array, reference: str
) -> Array:
    """The inertia of `read_inertia` where numbers are traced: nothing can be refused."""
    matrix = jnp.diag(numbers) if numbers.ndim == 1 else (numbers + numbers.T) / 2
    if reference == "com":
        return matrix
    com = jnp.asarray(com, matrix.dtype)
    return matrix - mass * (jnp.vdot(com, com) * jnp.eye(3) - jnp.outer(com, com))


def _physical_inertia(
    owner: str, matrix: np.ndarray, point: str, balance: bool, unphysical: bool, rounding: float
) -> np.ndarray:
    """A symmetric matrix that is the inertia of a rigid body, raised to one with `balance`.

    point: the point that the inertia refers to, for errors
    unphysical: any that is positive definite
    """
    moments, axes = np.linalg.eigh(matrix)
    shown = moments.tolist()
    if moments[0] <= 4 * np.finfo(float).eps * moments[2]:
        zero = "a body that can turn needs inertia about every axis; give it a small one"
        raise ValueError(
            f"{owner}: inertia {point} must be positive definite; its eigenvalues are {shown}"
            + (f" ({zero})" if abs(moments[0]) <= 1e-12 * abs(moments[2]) else "")
        )
    lack = moments[2] - moments[0] - moments[1]
    if lack > rounding * moments[2] and (balance or not unphysical):
        if not balance:
            raise ValueError(
                f"{owner}: inertia {point} has principal moments {shown}; the largest must not "
                "exceed the sum of the others; correct it, or give balance_inertia=True or "
                "allow_unphysical=True"
            )
        raised = moments + np.array([lack / 2, lack / 2, 0.0])
        warn(
            f"{owner}: principal moments {shown} {point} raised to {raised.tolist()} by "
            "balance_inertia=True"
        )
        return axes * raised @ axes.T
    return matrix
