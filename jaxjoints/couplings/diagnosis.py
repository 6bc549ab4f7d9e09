"""Diagnosis of user-written functions: shapes, precision, tracing, captured arrays, derivatives."""

import inspect
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..algebra.compiler import quickly
from ..algebra.spatial import Pose, retract
from .coupling import Chart, Coupling, Residual, has_orthonormal_rows

TRACING = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.UnexpectedTracerError,
)


def signature_problem(coupling: Coupling) -> str | None:
    """What is wrong with the shapes and the precision that a coupling's methods return, or None.

    The methods are traced and not run.

    coupling: its leaves must be arrays of one precision
    """
    if not hasattr(coupling, "dof"):
        return "dof is missing; state the number of coordinates: `dof: ClassVar[int] = 1`"
    return _signature_problem(*_signature(coupling))


def captured_array_problem(coupling: Coupling) -> str | None:
    """Which JAX array a method takes from a closure or a global and not from a field, or None.

    coupling: one for which `signature_problem` is None
    """
    return _captured_array_problem(*_signature(coupling))


def derivative_problems(coupling: Coupling) -> tuple[str | None, str | None]:
    """An error and a warning about a coupling's derivative where its coordinates are zero.

    The derivative of `pose` is taken at q = 0, that of `residual` at the reference. A derivative
    that is not finite is an error, one of low rank is a warning; each is a sentence or None.
    """
    if isinstance(coupling, Chart) and coupling.dof:
        slope, full, name = _motion_at_zero(coupling), coupling.dof, "pose"
        tail = "some coordinates do not move the pose there, or not independently of others"
    elif isinstance(coupling, Residual) and coupling.dof < 6:
        slope, full, name = _gradient_at_reference(coupling), 6 - coupling.dof, "residual"
        tail = "some errors do not depend on the pose there, or not independently of others"
    else:
        return None, None
    slope = np.asarray(slope)
    if not np.isfinite(slope).all():
        return f"{name} has a derivative that is not finite where q = 0", None
    least = 1e3 * np.finfo(slope.dtype).eps * np.abs(slope).max()
    rank = np.linalg.matrix_rank(slope, tol=max(least, np.finfo(slope.dtype).tiny))
    if rank == full:
        return None, None
    return None, f"{name} has a derivative of rank {rank} instead of {full} where q = 0: {tail}"


def lower_pair_problem(coupling: Coupling) -> str | None:
    """Whether a coupling that states `lower_pair` leaves its surface by a motion of its span."""
    if not coupling.lower_pair:
        return None
    leaves = jax.tree.leaves(coupling)
    dtype = leaves[0].dtype if leaves else jnp.zeros(()).dtype
    here, there = (jnp.arange(1, coupling.dof + 1, dtype=dtype) * x for x in (0.2, -0.3))
    S = coupling.motion_subspace(coupling.pose(there), there)
    moved = retract(coupling.pose(here), 0.3 * jnp.sum(S, axis=1))
    left = float(jnp.max(jnp.abs(coupling.distances(moved, here)), initial=0.0))
    if left <= float(jnp.finfo(dtype).eps) ** 0.5:
        return None
    return (
        f"lower_pair is True, but C leaves the surface by {left:.2g} m or rad when its origin goes "
        "straight on while it turns at a constant angular velocity; leave lower_pair out"
    )


def orthonormal_problem(coupling: Coupling) -> str | None:
    """Whether rows of a coupling that states `lower_pair` or `regular` are not at right angles."""
    kind = "lower_pair" if coupling.lower_pair else "regular"
    if not getattr(coupling, kind) or not has_orthonormal_rows(coupling):
        return None
    leaves = jax.tree.leaves(coupling)
    dtype = leaves[0].dtype if leaves else jnp.zeros(()).dtype
    q = 0.2 * jnp.arange(1, coupling.dof + 1, dtype=dtype)
    W = coupling.wrenches(coupling.pose(q), q)
    G = W[: 6 - coupling.dof]
    product = jnp.matmul(G, W.T, precision="highest")
    wrong = float(jnp.max(jnp.abs(product - jnp.eye(*G.shape, dtype=dtype)), initial=0.0))
    if wrong <= float(jnp.finfo(dtype).eps) ** 0.5:
        return None
    return (
        f"{kind} is True, but its bilateral rows miss unit length or right angles, to each other "
        f"or to the rows of the coordinates, by {wrong:.2g}; make them so, or set {kind} = False"
    )


def function_problem(name: str, function: Any, arguments: tuple, expected: Any) -> str | None:
    """What is wrong with a function that must return arrays like `expected`, or None.

    The function is traced and not run.
    """
    try:
        returned = jax.eval_shape(function, *arguments)
    except TRACING as error:
        return (
            f"{name} cannot be traced: it uses NumPy, `if` or float() on numbers that JAX does not "
            f"know yet; write it with jax.numpy and jnp.where ({_first_line(error)})"
        )
    except (TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
        return f"{name} fails: {type(error).__name__}: {_first_line(error)}"
    # As text: what comes back may be of any type.
    if _written(returned) != _written(expected):
        return f"{name} returns {_written(returned)}; it must return {_written(expected)}"
    return None


@lru_cache(maxsize=1024)
def _signature_problem(structure: Any, shapes: tuple, dtype: Any) -> str | None:
    problems = (function_problem(*call) for call in _calls(structure, shapes, dtype))
    return next((problem for problem in problems if problem), None)


@lru_cache(maxsize=1024)
def _captured_array_problem(structure: Any, shapes: tuple, dtype: Any) -> str | None:
    for name, function, arguments, _ in _calls(structure, shapes, dtype):
        # Arrays made inside of the function are NumPy's here; those from outside are JAX's.
        constants = jax.make_jaxpr(function)(*arguments).consts
        for array in (x for x in constants if isinstance(x, jax.Array)):
            if jnp.issubdtype(array.dtype, jnp.floating):
                method = getattr(type(arguments[0]), name.partition("(")[0])
                culprit = f"{_name_of(array, method)} of shape {array.shape}"
                return (
                    f"{name} uses {culprit} from outside of the coupling: no "
                    "gradient flows to it, and environments cannot differ in it; make it a field "
                    "(or a NumPy array, if it is a constant)"
                )
    return None


def _calls(structure: Any, shapes: tuple, dtype: Any) -> Iterator[tuple[str, Any, tuple, Any]]:
    """Each method of a coupling: its name, a function that calls it, arguments for it, and arrays
    like those that it must return.
    """

    def some(*shape):
        return jax.ShapeDtypeStruct(shape, dtype)

    coupling = structure.unflatten([some(*shape) for shape in shapes])
    dof, T = coupling.dof, Pose(some(3), some(4))
    if coupling.velocity_rows:
        name, expected = "velocity_residual(T, v, t)", some(coupling.velocity_rows)
        yield name, lambda c, *x: c.velocity_residual(*x), (coupling, T, some(6), some()), expected
    if coupling.acceleration_rows:
        name, expected = "acceleration_residual(T, v, a, t)", some(coupling.acceleration_rows)
        arguments = coupling, T, some(6), some(6), some()
        yield name, lambda c, *x: c.acceleration_residual(*x), arguments, expected
    if isinstance(coupling, Residual):
        arguments = coupling, T, some()
        yield "residual(T, t)", lambda c, T, t: c.residual(T, t), arguments, some(6 - dof)
        return
    if coupling.places_bodies:
        yield "pose(q)", lambda c, q: c.pose(q), (coupling, some(dof)), T
    if isinstance(coupling, Chart):
        return

    def read(coupling, T, q, t):
        rows = coupling.rows(T, q, t)
        return jnp.broadcast_to(rows.W, (6, 6)), rows.error, rows.q

    expected = some(6, 6), some(6 - dof), some(dof)
    yield "rows(T, q, t)", read, (coupling, T, some(dof), some()), expected


def _signature(coupling: Coupling) -> tuple[Any, tuple, Any]:
    """Structure of the record, shapes of its leaves, and their precision."""
    leaves, structure = jax.tree.flatten(coupling)
    dtype = leaves[0].dtype if leaves else jnp.zeros(()).dtype
    return structure, tuple(leaf.shape for leaf in leaves), jnp.dtype(dtype)


def _name_of(array: jax.Array, method: Any) -> str:
    """Name by which a method refers to an array of its closure or of the globals."""
    if inspect.isfunction(method):
        around = inspect.getclosurevars(method)
        for name, value in (around.nonlocals | around.globals).items():
            if value is array:
                return f"the array {name!r}"
    return "an array"


def _written(tree: Any) -> str:
    """Types and shapes of what a function returns, as text for an error message."""
    if isinstance(tree, Pose):
        return f"a Pose of {_written(tree.p)} and {_written(tree.q)}"
    if isinstance(tree, tuple):
        return ", ".join(map(_written, tree))
    if hasattr(tree, "shape"):
        return f"{tree.dtype}{list(tree.shape)}"
    return type(tree).__name__


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


@quickly
def _motion_at_zero(chart: Chart) -> jax.Array:
    leaves = jax.tree.leaves(chart)
    dtype = leaves[0].dtype if leaves else jnp.zeros(()).dtype
    return chart.motion_at(jnp.zeros(chart.dof, dtype))


@quickly
def _gradient_at_reference(coupling: Residual) -> jax.Array:
    leaves = jax.tree.leaves(coupling)
    dtype = leaves[0].dtype if leaves else jnp.zeros(()).dtype
    T = jax.tree.map(lambda x: jnp.asarray(x, dtype), coupling.reference())
    time = jnp.zeros((), dtype)
    return jax.jacfwd(lambda v: coupling.residual(retract(T, v), time))(jnp.zeros(6, dtype))
