"""Reads a field: tries its methods once on any motion, and once on every body at the start."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...algebra.compiler import is_traced
from ...algebra.pytree import overrides
from ...algebra.spatial import Pose
from ...couplings.diagnosis import function_problem
from ...laws.fields import BodyMotion, Field
from ...model.state import State
from ...model.system import System
from .values import at_once, precision, read_record

# The methods of which a field overrides one or both, each with a function that calls it.
METHODS = {
    Field.wrench: lambda field, motion: field.wrench(motion),
    Field.velocity_update: lambda field, motion: field.velocity_update(motion),
}


@at_once
def read_field(owner: str, field: Any) -> Field:
    """A field whose parameters are finite float arrays.

    Raises: ValueError for a value that is no field, for a field that defines no method, and for
        methods that JAX cannot trace or that return wrong shapes.
    """
    if not isinstance(field, Field):
        is_type = isinstance(field, type) and issubclass(field, Field)
        hint = f"write {field.__name__}(…)" if is_type else "give a record such as Drag(linear=0.1)"
        raise ValueError(f"{owner}: {field!r} is not a field; {hint}")
    field, kind = read_record(owner, field), type(field).__name__
    matrix = jnp.zeros((3, 3), precision())
    vector, number = matrix[0], matrix[0, 0]
    motion = BodyMotion(
        Pose.identity(dtype=matrix.dtype), vector, vector, number, matrix, vector, number, number
    )
    expected = {
        Field.wrench: jnp.zeros(6, matrix.dtype),
        Field.velocity_update: (vector, vector),
    }
    defined = [method for method in METHODS if overrides(field, method)]
    if not defined:
        raise ValueError(
            f"{owner}: {kind} defines neither wrench nor velocity_update; give it one of them"
        )
    for method in defined:
        name, call = f"{method.__name__}(motion)", METHODS[method]
        problem = function_problem(name, call, (field, motion), expected[method])
        if problem:
            raise ValueError(f"{owner}: {kind}.{problem}")
    return field


def check_fields_at_start(system: System, state: State) -> None:
    """Raise ValueError for a field that is not finite, or has no finite derivative, at the start.

    Every field is tried on all bodies that it acts on, in their start poses and at rest.
    """
    if is_traced((system, state)):
        return
    zero, no_step = np.zeros(3, state.time.dtype), np.zeros((), state.time.dtype)
    arrays = state.position, state.quaternion, system.mass, system.inertia, system.com
    position, quaternion, mass, inertia, com = map(np.asarray, arrays)
    for group in system.fields:
        for i, member in enumerate(group.members):
            field = jax.tree.map(lambda x: np.asarray(x)[..., i], group.field)  # noqa: B023
            name = f"field {system.topology.fields[member]!r}: {type(field).__name__}"
            for b in group.bodies[i]:
                motion = BodyMotion(
                    pose=Pose(position[:, b], quaternion[:, b]),
                    velocity=zero,
                    omega=zero,
                    mass=mass[b],
                    inertia=inertia[:, :, b],
                    com=com[:, b],
                    time=np.asarray(state.time),
                    dt=no_step,
                )
                for method, call in METHODS.items():
                    problem = _not_finite(field, motion, call) if overrides(field, method) else None
                    if problem:
                        raise ValueError(
                            f"{name}.{method.__name__} {problem} not finite for body "
                            f"{system.topology.bodies[b]!r} at rest where it starts; guard its "
                            "divisions, roots and norms with jnp.where on what goes into them"
                        )


def _not_finite(field: Field, motion: BodyMotion, call: Callable) -> str | None:
    """What of a field's method is not finite, as the words before "not finite", or None."""
    value, slope = _are_finite(field, motion, call)
    return "is" if not value else None if slope else "has a derivative that is"


@partial(jax.jit, static_argnames="call")
def _are_finite(field: Field, motion: BodyMotion, call: Callable) -> tuple[Array, Array]:
    """Whether the result of a field's method and its derivative by the motion are finite."""

    def finite(tree):
        return jnp.all(jnp.array([jnp.isfinite(x).all() for x in jax.tree.leaves(tree)]))

    def result(motion):
        return call(field, motion)

    return finite(result(motion)), finite(jax.jacfwd(result)(motion))
