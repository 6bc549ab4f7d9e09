"""Checks of what a user gives: each returns the standard form, or says what is wrong."""

import dataclasses
import difflib
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import replace
from ..algebra.spatial import Pose, quat_from_matrix, quat_normalize
from ..couplings.coupling import Coupling
from ..couplings.nonholonomic import extra_rows
from ..laws.softness import Bushing, Compliance, Softness
from ..model.batch import batch_shape
from ..model.state import Control, State
from ..model.system import System

ATTACHMENTS = {"C": (0.0, 0.0), "own": (0.0, 1.0), "midpoint": (0.5, 0.5)}


def check_time_step(dt: Any) -> None:
    """Raise ValueError unless dt [s] is in (0, 1]; a traced dt passes unseen."""
    if is_traced(dt):
        return
    value = read_numbers("time step", "dt", dt, finite=False)
    if not ((value > 0) & (value <= 1)).all():
        raise ValueError(f"time step: dt {dt} must be > 0 and at most 1 s; give seconds, e.g. 1e-3")


def check_policy(policy: Any) -> None:
    """Raise ValueError unless a control policy is one that there is."""
    if policy not in ("stop", "zero"):
        raise ValueError(f"control_policy {policy!r} must be 'stop' or 'zero'")


def check_shapes(
    system: System, state: State, control: Any, *, leading: tuple[str, ...] = ()
) -> None:
    """Raise ValueError for arrays of a state or control that do not fit the system or the batch.

    leading: names of axes that the arrays of the control have in front
    """
    bodies, coordinates = len(system.topology.bodies), system.coordinates
    per_body = {"position": 3, "quaternion": 4, "velocity": 3, "omega": 3}
    own = {name: (size, bodies) for name, size in per_body.items()} | {"q": (coordinates,)}
    _check_axes("state", state, own, None, ())
    if control is None:
        return
    if not isinstance(control, Control):
        raise ValueError(f"control: {control!r} must be a Control(effort=…), or None")
    own = {
        "effort": (coordinates,),
        "wrench": (6, bodies),
        "twist": (6, len(system.topology.prescribed)),
    }
    _check_axes("control", control, own, batch_shape(system, state, None) or None, leading)


def precision() -> np.dtype:
    """The float type of every leaf: JAX's default."""
    return jnp.result_type(float)


def is_traced(value: Any) -> bool:
    """Whether a value holds numbers that are not known yet (inside jit, grad or vmap)."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value))


def near_matches(name: str, names: Iterable[str]) -> str:
    """'did you mean …' or the list of what there is."""
    names = list(names)
    close = difflib.get_close_matches(str(name), names, n=3)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    shown = ", ".join(map(repr, names[:10])) + (", …" if len(names) > 10 else "")
    return f"there are {shown}" if names else "there are none"


def read_by_name(
    field: str, values: Mapping[str, Any] | None, element: str, names: Any, read: Callable
) -> dict[str, Any]:
    """Values by name, each read by `read(owner, name, value)`."""
    found = {}
    for name, value in (values or {}).items():
        if name not in names:
            hint = near_matches(name, names)
            raise ValueError(f"{field}: there is no {element} {name!r}; {hint}")
        found[name] = read(f"{element} {name!r}", name, value)
    return found


def common_batch(owner: str, shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The batch axes that all arrays have that have any."""
    batches = sorted({shape for shape in shapes if shape})
    if len(batches) > 1:
        raise ValueError(
            f"{owner}: batch axes {batches[0]} and {batches[1]} differ; every value has all of "
            "them at the end or none"
        )
    return batches[0] if batches else ()


def read_numbers(
    owner: str,
    field: str,
    value: Any,
    shape: tuple[int, ...] = (),
    *,
    batched: bool = False,
    finite: bool = True,
) -> Any:
    """Finite numbers of a given shape, in float64; with `batched`, more axes may trail.

    Traced values are checked for their shape alone and stay traced.
    """
    try:
        numbers = jnp.asarray(value) if is_traced(value) else np.asarray(value, float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{owner}: {field} {value!r} must be numbers of shape {shape}") from error
    lead = numbers.shape[: len(shape)] if batched else numbers.shape
    if lead != shape:
        more = " (batch axes may follow)" if batched else ""
        raise ValueError(f"{owner}: {field} has shape {numbers.shape}; it must be {shape}{more}")
    if finite and not is_traced(value) and not np.isfinite(numbers).all():
        raise ValueError(f"{owner}: {field} {value} must be finite")
    return numbers


def read_pose(owner: str, field: str, value: Any, *, batched: bool = False) -> Pose:
    """A pose from a `Pose`, a position, (position, quaternion) or (position, rotation matrix)."""
    if isinstance(value, Pose):
        value = (value.p, value.q)
    if value is None:
        position, turn = np.zeros(3), None
    elif isinstance(value, (tuple, list)) and len(value) == 2:
        position, turn = value
    else:
        position, turn = value, None
    position = read_numbers(owner, f"{field} position", position, (3,), batched=batched)
    position = jnp.array(position, precision())
    if turn is None:
        return Pose.translation(position)
    if np.shape(turn)[:2] == (3, 3):
        quaternion = _read_matrix(owner, field, turn, batched)
    else:
        quaternion = _read_quaternion(owner, field, turn, batched)
    axes = max(position.ndim, quaternion.ndim) - 1
    ones = (1,) * axes
    position = position.reshape(position.shape + ones[position.ndim - 1 :])
    return Pose(position, quaternion.reshape(quaternion.shape + ones[quaternion.ndim - 1 :]))


def read_coordinates(owner: str, field: str, value: Any, dof: int) -> Array:
    """Coordinates or their speeds, shape (dof, *batch), from that or, for dof 1, from (*batch)."""
    try:
        shape = np.shape(value)
    except ValueError:
        shape = ()
    if dof == 1 and (not shape or shape[0] != 1):
        value = value[None] if isinstance(value, jax.Array) else [value]
    elif shape[:1] != (dof,):
        hint = "it is rigid: leave it out" if dof == 0 else f"give {dof} numbers"
        raise ValueError(f"{owner}: {field} {value} must have {dof} components; {hint}")
    return jnp.array(read_numbers(owner, field, value, (dof,), batched=True), precision())


def read_velocity(owner: str, velocity: Any, *, batched: bool = False) -> Array:
    """Velocity of a body frame's origin, then angular, shape (6,) or (6, *batch)."""
    return jnp.array(read_numbers(owner, "velocity", velocity, (6,), batched=batched), precision())


def read_mass(owner: str, mass: Any, prescribed: bool) -> float:
    """A positive mass; 1 for a prescribed body without one, where it has no effect."""
    if prescribed and (mass is None or np.ndim(mass) == 0 and mass == 0):
        return 1.0
    if mass is None:
        raise ValueError(f"{owner}: mass is missing; give kilograms, or prescribed=True")
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
    mass: float,
    com: np.ndarray,
    at: str,
    prescribed: bool,
    symmetrize: bool,
    balance: bool,
) -> np.ndarray:
    """The inertia matrix about the centre of mass, shape (3, 3), once it is physical."""
    if at not in ("com", "origin"):
        raise ValueError(f"{owner}: inertia_at {at!r} must be 'com' or 'origin'")
    if prescribed and (inertia is None or not np.any(inertia)):
        return np.eye(3)
    if inertia is None:
        raise ValueError(f"{owner}: inertia is missing; give 3 principal moments or a 3x3 matrix")
    moments = np.shape(inertia) == (3,)
    given = read_numbers(owner, "inertia", inertia, (3,) if moments else (3, 3))
    matrix = np.diag(given) if moments else given
    skewness = np.abs(matrix - matrix.T).max()
    if skewness > 1e-8 * np.abs(matrix).max() and not symmetrize:
        raise ValueError(
            f"{owner}: inertia {matrix.tolist()} must be symmetric (it is off by {skewness:.3g}); "
            "correct it, or give symmetrize=True to take the mean with its transpose"
        )
    matrix = (matrix + matrix.T) / 2
    point = "about the centre of mass"
    if at == "origin":
        matrix = matrix - mass * (com @ com * np.eye(3) - np.outer(com, com))
        point += f" (moved there from the origin with com {com.tolist()} and mass {mass})"
    return _physical_inertia(owner, matrix, point, balance)


def read_softness(
    owner: str, softness: Softness | Compliance | Bushing, rows: int
) -> Softness | Compliance | Bushing:
    """Softness of each row that is there without laws, numbers of shape (rows,) or None."""
    if not isinstance(softness, (Softness, Compliance, Bushing)):
        raise ValueError(
            f"{owner}: softness {softness!r} must be a Softness(erp=…, cfm=…), Compliance(…) or "
            "Bushing(…)"
        )
    found = {}
    for field, value in vars(softness).items():
        if value is None:
            continue
        shape = () if np.ndim(value) == 0 else (rows,)
        numbers = read_numbers(owner, field, value, shape)
        if (numbers < 0).any() or field == "erp" and (numbers > 1).any():
            rule = "lie in [0, 1]" if field == "erp" else "be >= 0"
            raise ValueError(f"{owner}: {field} {value} must {rule}")
        found[field] = np.broadcast_to(numbers, (rows,))
    return replace(softness, **found)


def read_switch(owner: str, enabled: bool | None) -> np.ndarray | None:
    """1 or 0 for what can be switched, None for what cannot."""
    if enabled is None:
        return None
    if enabled not in (True, False):
        raise ValueError(f"{owner}: enabled {enabled!r} must be True, False, or None")
    return np.asarray(float(enabled))


def read_most(owner: str, field: str, value: Any, dof: int) -> np.ndarray | None:
    """The largest size of a number for each coordinate, shape (dof,), None for any."""
    if value is None:
        return None
    numbers = read_numbers(owner, field, value, () if np.ndim(value) == 0 else (dof,))
    if (numbers < 0).any():
        raise ValueError(f"{owner}: {field} {value} must be >= 0; it counts both ways")
    return np.broadcast_to(numbers, (dof,))


def read_attachment(owner: str, attachment: Any, coupling: Coupling) -> tuple[float, float]:
    """Where row forces act: a name of `ATTACHMENTS` or the pair itself."""
    if isinstance(attachment, str):
        if attachment not in ATTACHMENTS:
            raise ValueError(
                f"{owner}: attachment {attachment!r} is unknown; "
                f"{near_matches(attachment, ATTACHMENTS)}"
            )
        shares = ATTACHMENTS[attachment]
    else:
        child, parent = read_numbers(owner, "attachment", attachment, (2,))
        shares = float(child), float(parent)
    if any(shares) and extra_rows(coupling):
        raise ValueError(
            f"{owner}: attachment {attachment!r} must be 'C', whose motion the velocity rows of "
            f"{type(coupling).__name__} read"
        )
    return shares


def float_leaves(name: str, value: Any) -> Any:
    """A record whose numbers, and sequences of numbers, have become float arrays of their own."""
    if value is None:
        return None
    if dataclasses.is_dataclass(value):
        changed = {
            field.name: float_leaves(f"{name}.{field.name}", getattr(value, field.name))
            for field in dataclasses.fields(value)
            if not field.metadata.get("static", False)
        }
        return replace(value, **changed)
    if isinstance(value, dict):
        return {key: float_leaves(f"{name}[{key!r}]", item) for key, item in value.items()}
    if isinstance(value, (tuple, list)) and not _all_numbers(value):
        return type(value)(float_leaves(f"{name}[{i}]", x) for i, x in enumerate(value))
    try:
        return jnp.array(value, precision())
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} {value!r} must be numbers; mark a field that is not with `static()`"
        ) from error


def _check_axes(
    owner: str,
    record: Any,
    own: dict[str, tuple[int, ...]],
    batch: tuple[int, ...] | None,
    leading: tuple[str, ...],
) -> None:
    """ValueError where a field has other axes than its own, or after them others than the batch."""
    for name, sizes in own.items():
        if getattr(record, name) is None:
            continue
        shape, first = jnp.shape(getattr(record, name)), len(leading)
        end = first + len(sizes)
        if shape[first:end] == sizes and (batch is None or shape[end:] in ((), batch)):
            continue
        wanted = [*leading, *map(str, sizes)]
        shared, each = (
            f"({', '.join(axes)}{',' * (len(axes) == 1)})"
            for axes in (wanted, [*wanted, *(map(str, batch) if batch else ("*batch",))])
        )
        raise ValueError(
            f"{owner}: {name} has shape {shape}; it must be {shared}, shared by all environments, "
            f"or {each}, the batch axes at the end"
        )


def _all_numbers(value: Any) -> bool:
    """Whether nested sequences hold plain numbers only, and at least one."""
    if isinstance(value, (tuple, list)):
        return len(value) > 0 and all(map(_all_numbers, value))
    return isinstance(value, (int, float, np.number))


def _physical_inertia(owner: str, matrix: np.ndarray, point: str, balance: bool) -> np.ndarray:
    moments, axes = np.linalg.eigh(matrix)
    shown = moments.tolist()
    if moments[0] <= 4 * np.finfo(float).eps * moments[2]:
        zero = "a body that can turn needs inertia about every axis; give it a small one"
        raise ValueError(
            f"{owner}: inertia {point} must be positive definite; its eigenvalues are {shown}"
            + (f" ({zero})" if abs(moments[0]) <= 1e-12 * abs(moments[2]) else "")
        )
    lack = moments[2] - moments[0] - moments[1]
    if lack > 1e-9 * moments[2]:
        if not balance:
            raise ValueError(
                f"{owner}: inertia {point} has principal moments {shown}; the largest must not "
                "exceed the sum of the others; correct it, or give balance_inertia=True"
            )
        raised = moments + np.array([lack / 2, lack / 2, 0.0])
        warnings.warn(
            f"{owner}: principal moments {shown} {point} raised to {raised.tolist()} by "
            "balance_inertia=True",
            stacklevel=4,
        )
        return axes * raised @ axes.T
    return matrix


def _read_quaternion(owner: str, field: str, quaternion: Any, batched: bool) -> Array:
    numbers = read_numbers(owner, f"{field} quaternion", quaternion, (4,), batched=batched)
    if not is_traced(quaternion):
        length = np.linalg.norm(numbers, axis=0)
        off = np.abs(length - 1).max()
        if (length < 1e-9).any():
            raise ValueError(f"{owner}: {field} quaternion {quaternion} must not be zero")
        if off > 0.5:
            raise ValueError(
                f"{owner}: {field} quaternion {quaternion} must have length 1, w first; its "
                f"length is off by {off:.3g}"
            )
        if off > 1e-3:
            warnings.warn(
                f"{owner}: {field} quaternion {quaternion} normalized, its length was off by "
                f"{off:.3g}",
                stacklevel=4,
            )
        numbers = numbers / length
    return quat_normalize(jnp.array(numbers, precision()))


def _read_matrix(owner: str, field: str, matrix: Any, batched: bool) -> Array:
    numbers = read_numbers(owner, f"{field} rotation matrix", matrix, (3, 3), batched=batched)
    if not is_traced(matrix):
        R = np.moveaxis(numbers, (0, 1), (-2, -1))
        off = np.abs(np.swapaxes(R, -1, -2) @ R - np.eye(3)).max()
        if off > 1e-4:
            raise ValueError(
                f"{owner}: {field} rotation matrix {numbers.tolist()} must be orthonormal; RᵀR is "
                f"off the identity by {off:.3g}"
            )
        if (np.linalg.det(R) < 0).any():
            raise ValueError(
                f"{owner}: {field} rotation matrix {numbers.tolist()} is a reflection, its "
                "determinant is -1; flip one axis"
            )
    return quat_from_matrix(jnp.array(numbers, precision()))
