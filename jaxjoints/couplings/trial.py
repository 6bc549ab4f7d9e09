"""What is wrong with a coupling that somebody wrote, found by trying it out once at build."""

import inspect
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..algebra.spatial import Pose, retract
from .coupling import Chart, Coupling, Residual

TRACING = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.UnexpectedTracerError,
)


def shape_complaint(coupling: Coupling) -> str | None:
    """What is wrong with the shapes and precision of a coupling's functions, or None.

    coupling: with arrays of one precision for leaves; traced, not run
    """
    return _complaint(*_signature(coupling))


def captured_complaint(coupling: Coupling) -> str | None:
    """Which JAX array a coupling's functions take from outside that should be a field, or None.

    coupling: as for `shape_complaint`, and found sound by it
    """
    return _captured(*_signature(coupling))


def rest_complaint(coupling: Coupling) -> tuple[str | None, str | None]:
    """What refuses a coupling at rest, and what is worth a warning, each a sentence or None.

    Not finite, and of low rank: the derivatives of `pose` at q = 0 and of `residual` at the
    reference.
    """
    if isinstance(coupling, Chart) and coupling.dof:
        slope, wanted, name = _motion_at_rest(coupling), coupling.dof, "pose"
        tail = "some coordinates do not move the pose there, or not independently of others"
    elif isinstance(coupling, Residual) and coupling.dof < 6:
        slope, wanted, name = _gradient_at_rest(coupling), 6 - coupling.dof, "residual"
        tail = "some errors do not feel the pose there, or not independently of others"
    else:
        return None, None
    slope = np.asarray(slope)
    if not np.isfinite(slope).all():
        return f"{name} has a derivative that is not finite at rest", None
    least = 1e3 * np.finfo(slope.dtype).eps * np.abs(slope).max()
    rank = np.linalg.matrix_rank(slope, tol=max(least, np.finfo(slope.dtype).tiny))
    if rank == wanted:
        return None, None
    return None, f"{name} has a derivative of rank {rank} instead of {wanted} at rest: {tail}"


def function_complaint(name: str, function: Any, given: tuple, wanted: Any) -> str | None:
    """What is wrong with what a function returns for the given arguments, traced, or None."""
    try:
        found = jax.eval_shape(function, *given)
    except TRACING as error:
        return (
            f"{name} cannot be traced: it uses NumPy, `if` or float() on numbers that JAX does not "
            f"know yet; write it with jax.numpy and jnp.where ({_first_line(error)})"
        )
    except (TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
        return f"{name} fails: {type(error).__name__}: {_first_line(error)}"
    # As text: what comes back may be of any type.
    if _written(found) != _written(wanted):
        return f"{name} returns {_written(found)}; it must return {_written(wanted)}"
    return None


@lru_cache(maxsize=1024)
def _complaint(structure: Any, shapes: tuple, dtype: Any) -> str | None:
    problems = (function_complaint(*trial) for trial in _trials(structure, shapes, dtype))
    return next((problem for problem in problems if problem), None)


@lru_cache(maxsize=1024)
def _captured(structure: Any, shapes: tuple, dtype: Any) -> str | None:
    for name, function, given, _ in _trials(structure, shapes, dtype):
        # Arrays made inside of the function are NumPy's here; those from outside are JAX's.
        found = [x for x in jax.make_jaxpr(function)(*given).consts if isinstance(x, jax.Array)]
        for array in found:
            if jnp.issubdtype(array.dtype, jnp.floating):
                called = _name_of(array, getattr(type(given[0]), name.partition("(")[0]))
                return (
                    f"{name} uses {called} of shape {array.shape} from outside of the coupling: no "
                    "gradient flows to it, and environments cannot differ in it; make it a field "
                    "(or a NumPy array, if it is a constant)"
                )
    return None


def _trials(structure: Any, shapes: tuple, dtype: Any) -> Iterator[tuple[str, Any, tuple, Any]]:
    """Each function of a coupling: its name, itself, arguments for it and what it must return."""

    def some(*shape):
        return jax.ShapeDtypeStruct(shape, dtype)

    coupling = structure.unflatten([some(*shape) for shape in shapes])
    dof, T = coupling.dof, Pose(some(3), some(4))
    if coupling.velocity_rows:
        given, wanted = (coupling, T, some(6), some()), some(coupling.velocity_rows)
        yield "velocity_residual(T, v, t)", lambda c, *x: c.velocity_residual(*x), given, wanted
    if coupling.acceleration_rows:
        given, wanted = (coupling, T, some(6), some(6), some()), some(coupling.acceleration_rows)
        name = "acceleration_residual(T, v, a, t)"
        yield name, lambda c, *x: c.acceleration_residual(*x), given, wanted
    if isinstance(coupling, Residual):
        given = coupling, T, some()
        yield "residual(T, t)", lambda c, T, t: c.residual(T, t), given, some(6 - dof)
        return
    if coupling.places_bodies:
        yield "pose(q)", lambda c, q: c.pose(q), (coupling, some(dof)), T
    if isinstance(coupling, Chart):
        return

    def read(coupling, T, q, t):
        rows = coupling.rows(T, q, t)
        return jnp.broadcast_to(rows.W, (6, 6)), rows.error, rows.q

    wanted = some(6, 6), some(6 - dof), some(dof)
    yield "rows(T, q, t)", read, (coupling, T, some(dof), some()), wanted


def _signature(coupling: Coupling) -> tuple[Any, tuple, Any]:
    leaves, structure = jax.tree.flatten(coupling)
    dtype = leaves[0].dtype if leaves else jnp.zeros(()).dtype
    return structure, tuple(leaf.shape for leaf in leaves), jnp.dtype(dtype)


def _name_of(array: jax.Array, method: Any) -> str:
    """What a method calls an array that it takes from around it."""
    if inspect.isfunction(method):
        around = inspect.getclosurevars(method)
        for name, value in (around.nonlocals | around.globals).items():
            if value is array:
                return f"the array {name!r}"
    return "an array"


def _written(tree: Any) -> str:
    if isinstance(tree, Pose):
        return f"a Pose of {_written(tree.p)} and {_written(tree.q)}"
    if isinstance(tree, tuple):
        return ", ".join(map(_written, tree))
    if hasattr(tree, "shape"):
        return f"{tree.dtype}{list(tree.shape)}"
    return type(tree).__name__


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


@jax.jit
def _motion_at_rest(chart: Chart) -> jax.Array:
    leaves = jax.tree.leaves(chart)
    dtype = leaves[0].dtype if leaves else jnp.zeros(()).dtype
    return chart.motion_at(jnp.zeros(chart.dof, dtype))


@jax.jit
def _gradient_at_rest(coupling: Residual) -> jax.Array:
    leaves = jax.tree.leaves(coupling)
    dtype = leaves[0].dtype if leaves else jnp.zeros(()).dtype
    T = jax.tree.map(lambda x: jnp.asarray(x, dtype), coupling.reference())
    time = jnp.zeros((), dtype)
    return jax.jacfwd(lambda v: coupling.residual(retract(T, v), time))(jnp.zeros(6, dtype))
