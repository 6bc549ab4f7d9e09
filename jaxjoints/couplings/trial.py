"""What is wrong with a coupling that somebody wrote, found by trying it out once at build."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..spatial import Pose, retract
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
    leaves, structure = jax.tree.flatten(coupling)
    dtype = leaves[0].dtype if leaves else jnp.zeros(()).dtype
    return _complaint(structure, tuple(leaf.shape for leaf in leaves), jnp.dtype(dtype))


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


@lru_cache(maxsize=1024)
def _complaint(structure: Any, shapes: tuple, dtype: Any) -> str | None:
    def some(*shape):
        return jax.ShapeDtypeStruct(shape, dtype)

    coupling = structure.unflatten([some(*shape) for shape in shapes])
    dof, T = coupling.dof, Pose(some(3), some(4))
    for count, name, rates in (
        (coupling.velocity_rows, "velocity_residual", (some(6),)),
        (coupling.acceleration_rows, "acceleration_residual", (some(6), some(6))),
    ):
        given = coupling, T, *rates, some()
        called = f"{name}(T, v, {'a, ' if len(rates) == 2 else ''}t)"
        problem = count and _wrong(
            called, lambda c, *x, name=name: getattr(c, name)(*x), given, some(count)
        )
        if problem:
            return problem
    if isinstance(coupling, Residual):
        error = coupling, T, some()
        return _wrong("residual(T, t)", lambda c, T, t: c.residual(T, t), error, some(6 - dof))
    pose = _wrong("pose(q)", lambda c, q: c.pose(q), (coupling, some(dof)), T)
    if pose or isinstance(coupling, Chart):
        return pose

    def read(coupling, T, q, t):
        rows = coupling.rows(T, q, t)
        return jnp.broadcast_to(rows.W, (6, 6)), rows.error, rows.q

    wanted = some(6, 6), some(6 - dof), some(dof)
    return _wrong("rows(T, q, t)", read, (coupling, T, some(dof), some()), wanted)


def _wrong(name: str, function: Any, given: tuple, wanted: Any) -> str | None:
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
