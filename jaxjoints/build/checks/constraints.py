"""Reads a constraint between bodies: traces its functions once, for as many bodies as it has."""

import dataclasses
from typing import Any

import jax.numpy as jnp

from ...algebra.spatial import Pose
from ...couplings.diagnosis import function_problem
from ...laws.constraints import Constraint
from .values import at_once, precision, read_record


def read_constraint(owner: str, constraint: Any, bodies: int) -> Constraint:
    """A constraint whose parameters are finite float arrays.

    bodies: how many it acts on

    Raises: ValueError for a value that is no constraint, for one without rows, and for functions
        that JAX cannot trace for so many bodies or that return another number of rows.
    """
    if not isinstance(constraint, Constraint) or not dataclasses.is_dataclass(constraint):
        raise ValueError(
            f"{owner}: {constraint!r} is not a constraint; give a record of a subclass of "
            "Constraint, with @struct above its class"
        )
    kind = type(constraint).__name__
    if not constraint.rows:
        raise ValueError(
            f"{owner}: {kind} has no rows; state position_rows, velocity_rows or acceleration_rows"
        )
    constraint = at_once(read_record)(owner, constraint)
    number = jnp.zeros((), precision())
    poses = Pose.identity((bodies,), dtype=number.dtype)
    motion = jnp.zeros((6, bodies), number.dtype)
    calls = (
        ("position(poses, t)", "position", (poses, number)),
        ("velocity(poses, twists, t)", "velocity", (poses, motion, number)),
        ("acceleration(poses, twists, rates, t)", "acceleration", (poses, motion, motion, number)),
    )
    for name, method, arguments in calls:
        rows = getattr(constraint, f"{method}_rows")
        expected = jnp.zeros(rows, number.dtype)
        problem = function_problem(name, getattr(constraint, method), arguments, expected)
        if problem and rows:
            raise ValueError(f"{owner}: {kind}.{problem}")
    return constraint
