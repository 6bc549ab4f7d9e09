"""Reads numbers, poses and records that a user passes, and returns them in one standard form.

Every function that takes `owner` names it in its errors: the element that the value belongs to,
such as "joint 'elbow'". Values that JAX is tracing have no numbers yet: they are checked for their
shape alone. What numbers could not be checked shows later, in `Info.cause` and `diagnose`.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...algebra.arguments import check_quaternion, check_rotation_matrix, read_numbers
from ...algebra.compiler import is_traced, quickly, traces_constants
from ...algebra.devices import on_several
from ...algebra.options import brief, near_matches
from ...algebra.pytree import expand_trailing, replace, static, struct
from ...algebra.spatial import Pose, quat_from_matrix, quat_normalize

Function = TypeVar("Function", bound=Callable)


def precision() -> np.dtype:
    """The float type of all leaves of a system and its states: JAX's default float."""
    return jnp.result_type(float)


def at_once(function: Function) -> Function:
    """A function that computes at once, inside `jit` too, where no argument is traced.

    Otherwise `jit` would trace what JAX computes of plain numbers, and nothing could be checked.
    Outside of `jit` nothing is to be done, and programs within keep their constants: at once, each
    operation on these would be compiled by itself.
    """

    @wraps(function)
    def known(*arguments: Any, **options: Any) -> Any:
        if is_traced((arguments, options)) or not traces_constants():
            return function(*arguments, **options)
        with jax.ensure_compile_time_eval():
            return function(*arguments, **options)

    return known  # type: ignore[return-value]


def float_array(value: Any) -> Array:
    """Numbers as an array of JAX's default float, of its own memory.

    Those that NumPy can read are converted there: JAX would compile that for each shape.
    """
    numbers = None if isinstance(value, jax.Array) or is_traced(value) else np.asarray(value)
    if numbers is None or numbers.dtype.kind not in "biuf":
        if numbers is not None and numbers.dtype.kind in "SUT":
            raise TypeError(f"{brief(value)} is a text; give numbers")
        return jnp.array(value, precision())
    return jax.device_put(np.array(numbers, precision()))


def stacked(values: Sequence[Any]) -> Array:
    """Numbers of one shape as one array of JAX's default float, with an axis of them at the end."""
    stack = jnp.stack if is_traced(list(values)) else np.stack
    return float_array(stack(values, axis=-1))


def read_by_name(
    field: str, values: Mapping[str, Any] | None, element: str, names: Any, read: Callable
) -> dict[str, Any]:
    """Values by the name of an element, each in the form that `read(owner, name, value)` returns.

    field: what the values are, for errors; element: "joint" or "body"; names: the known names

    Raises: ValueError for what is no mapping, and for a name that is not known.
    """
    result = {}
    for name, value in read_mapping(field, values, element, names).items():
        if name not in names:
            hint = near_matches(name, names)
            raise ValueError(f"{field}: there is no {element} {name!r}; {hint}")
        result[name] = read(f"{element} {name!r}", name, value)
    return result


def read_mapping(field: str, values: Any, element: str, names: Iterable[str]) -> Mapping[str, Any]:
    """Values by names, none for None; ValueError for what is no mapping.

    field, element, names: as in `read_by_name`
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        example = next(iter(names), element)
        raise ValueError(
            f"{field} {brief(values)} must be a mapping from names to values: "
            f"{field}={{{example!r}: …}}, one {element} or several"
        )
    return values


def read_names(
    owner: str, names: str | Iterable[str], known: Iterable[str], *, element: str, rule: str
) -> tuple[str, ...]:
    """The names of elements that `owner` acts on, as a tuple: each known, and none named twice.

    element: "joint" or "body"; rule: the order in which elements are added, for errors
    """
    if not isinstance(names, (str, Iterable)):
        raise ValueError(f"{owner}: {brief(names)} must be a name of a {element}, or several")
    names = (names,) if isinstance(names, str) else tuple(names)
    for i, name in enumerate(names):
        if name not in known:
            hint = near_matches(name, known)
            raise ValueError(f"{owner}: {name!r} is no {element}; {hint} ({rule})")
        if name in names[:i]:
            raise ValueError(f"{owner}: {element} {name!r} is given twice; name each once")
    return names


def common_batch(owner: str, shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The batch axes of several arrays, each of which has all of them or none.

    shapes: the batch axes of each array
    """
    batches = sorted({shape for shape in shapes if shape})
    if len(batches) > 1:
        raise ValueError(
            f"{owner}: batch axes {batches[0]} and {batches[1]} differ; every value has all of "
            "them at the end or none"
        )
    return batches[0] if batches else ()


@at_once
def read_pose(owner: str, field: str, value: Any, *, batched: bool = False) -> Pose:
    """A pose from one of the forms that users may write; the identity for None.

    value: a `Pose`, a position (3,), (position, quaternion w first), or (position, 3x3 rotation
        matrix)
    batched: batch axes may follow the axes of the position and of the rotation
    """
    if isinstance(value, Pose):
        value = (value.p, value.q)
    if value is None:
        position, rotation = np.zeros(3), None
    elif isinstance(value, (tuple, list)) and len(value) == 2:
        position, rotation = value
    else:
        position, rotation = value, None
    position = read_numbers(owner, f"{field} position", position, (3,), batched=batched)
    position = float_array(position)
    if rotation is None:
        one = np.zeros((4, *position.shape[1:]), position.dtype)
        one[0] = 1.0
        return Pose(position, jnp.asarray(one))
    if np.shape(rotation)[:2] == (3, 3):
        quaternion = _read_matrix(owner, field, rotation, batched)
    else:
        quaternion = _read_quaternion(owner, field, rotation, batched)
    axes = max(position.ndim, quaternion.ndim) - 1
    ones = (1,) * axes
    position = position.reshape(position.shape + ones[position.ndim - 1 :])
    return Pose(position, quaternion.reshape(quaternion.shape + ones[quaternion.ndim - 1 :]))


@struct
class Stated:
    """The coordinates of a joint, or the values of a transmission, that a user gives.

    value: of these, shape (len(at), *batch); at: their numbers within the joint, ascending
    """

    value: Array
    at: tuple[int, ...] = static()

    def within(self, others: Any) -> Array:
        """All coordinates of the joint, (size, *batch): those given, and in place of the rest
        `others`, all coordinates too, of as many axes.
        """
        if len(self.at) == len(others):
            return self.value
        rows = [others[k : k + 1] for k in range(len(others))]
        for i, k in enumerate(self.at):
            rows[k] = self.value[i : i + 1]
        return joined(rows)


def joined(parts: Sequence[Array]) -> Array:
    """Arrays (k, *batch), whose batch axes broadcast, as one along the first axis.

    Those that are known are joined by NumPy: JAX would compile a program for each shape.
    """
    parts = list(parts)
    batch = np.broadcast_shapes(*(part.shape[1:] for part in parts))
    if is_traced(parts) or on_several(parts):
        return jnp.concatenate([jnp.broadcast_to(x, (len(x), *batch)) for x in parts])
    parts = [np.broadcast_to(np.asarray(x), (len(x), *batch)) for x in parts]
    return float_array(np.concatenate(parts))


def coordinate_named(name: Any, sizes: Mapping[str, int]) -> tuple[str, int | None] | None:
    """The element that a name speaks of, and the number of one of its coordinates where the name
    is that of a coordinate, "hip.1"; None for an unknown name.

    sizes: number of coordinates of each element by name
    """
    if name in sizes:
        return name, None
    element, _, number = str(name).rpartition(".")
    if element in sizes and number.isdecimal() and str(int(number)) == number:
        return (element, int(number)) if int(number) < sizes[element] else None
    return None


def read_stated(
    field: str,
    values: Mapping[str, Any] | None,
    element: str,
    sizes: Mapping[str, int],
    read: Callable | None = None,
) -> dict[str, Stated]:
    """Coordinates of joints, or values of transmissions, that a user gives by names: all of an
    element by its name, "hip", or one by its number too, "hip.1".

    field, element: as in `read_by_name`; sizes: number of coordinates of each element by name
    read: reads the numbers of an element in place of `read_coordinates`, with its arguments

    Raises: ValueError for what is no mapping, for unknown names, with near ones, for numbers that
        do not fit, and for a coordinate that is given twice.
    """
    read = read or read_coordinates
    whole: dict[str, Stated] = {}
    single: dict[str, dict[int, Array]] = {}
    for name, value in read_mapping(field, values, element, sizes).items():
        known = coordinate_named(name, sizes)
        if known is None:
            raise ValueError(f"{field}: {_unknown_coordinate(name, element, sizes)}")
        owner, number = f"{element} {known[0]!r}", known[1]
        if number is not None:
            part = read(f"{element} {name!r}", field, value, 1)
            single.setdefault(known[0], {})[number] = part
        elif isinstance(value, Mapping):
            raise ValueError(
                f"{owner}: {field} {brief(value)} must be numbers; a single coordinate is given "
                f"by its number: {field}={{{f'{name}.0'!r}: …}}"
            )
        elif (
            read is read_coordinates
            and sizes[name] > 1
            and (isinstance(value, int | float) or getattr(value, "ndim", 1) == 0)
        ):
            raise ValueError(
                f"{owner}: {field} {value} is one number for {sizes[name]} coordinates; give all, "
                f"or one by its number: {field}={{{f'{name}.0'!r}: …}}"
            )
        else:
            whole[name] = Stated(read(owner, field, value, sizes[name]), tuple(range(sizes[name])))
    for name, parts in single.items():
        if name in whole:
            raise ValueError(
                f"{field}: {element} {name!r} is given, and {name}.{next(iter(parts))} again; "
                "leave one out"
            )
        at = tuple(sorted(parts))
        batch = common_batch(f"{element} {name!r}", [part.shape[1:] for part in parts.values()])
        value = joined([expand_trailing(parts[k], 1, len(batch)) for k in at])
        whole[name] = Stated(value, at)
    # In the order in which they are given.
    order = dict.fromkeys(coordinate_named(name, sizes)[0] for name in values or {})
    return {name: whole[name] for name in order}


def _unknown_coordinate(name: Any, element: str, sizes: Mapping[str, int]) -> str:
    """What is wrong with the name of coordinates that there are not, as a sentence."""
    head, _, number = str(name).rpartition(".")
    if head in sizes:
        size = sizes[head]
        there = f"{head}.0 to {head}.{size - 1}" if size > 1 else f"{head}.0 alone"
        return (
            f"{element} {head!r} has no coordinate {number!r}; "
            f"{f'there are {there}' if size else 'it has none at all'}"
        )
    names = list(sizes)
    if number.isdecimal():
        # Of a name that is nearly right, the coordinate of this number.
        names += [f"{x}.{number}" for x, size in sizes.items() if int(number) < size]
    return f"there is no {element} {name!r}; {near_matches(str(name), names)}"


@at_once
def read_coordinates(owner: str, field: str, value: Any, dof: int) -> Array:
    """One number for each coordinate of a joint, shape (dof, *batch).

    value: of that shape; for a joint of one coordinate also of shape (*batch)
    """
    try:
        shape = np.shape(value)
    except ValueError:
        shape = ()
    if dof == 1 and (not shape or shape[0] != 1):
        value = value[None] if isinstance(value, jax.Array) else [value]
    elif shape[:1] != (dof,):
        hint = "it is rigid: leave it out" if dof == 0 else f"give {dof} numbers"
        raise ValueError(f"{owner}: {field} {value} must have {dof} components; {hint}")
    return float_array(read_numbers(owner, field, value, (dof,), batched=True))


@at_once
def read_velocity(owner: str, velocity: Any, *, batched: bool = False) -> Array:
    """Linear velocity of a body frame's origin, then angular velocity, shape (6, *batch).

    batched: batch axes may follow the six components
    """
    return float_array(read_numbers(owner, "velocity", velocity, (6,), batched=batched))


def read_record(owner: str, record: Any) -> Any:
    """A coupling, transmission or field whose leaves are finite float arrays.

    Raises: ValueError for leaves that are no finite numbers, and for what the record's own `check`
        refuses.
    """
    name = f"{owner}: {type(record).__name__}"
    record = float_leaves(name, record)
    if is_traced(record):
        return record
    problem = record.check() or finite_problem(record)
    if problem:
        raise ValueError(f"{name} {problem}")
    return record


def finite_problem(record: Any) -> str | None:
    """Which number of a record is not finite, as a sentence, or None."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(record):
        if not np.isfinite(leaf).all():
            field = jax.tree_util.keystr(path).lstrip(".")
            return f"{field} {np.asarray(leaf)} must be finite"
    return None


def float_leaves(name: str, value: Any) -> Any:
    """A record with a float array in place of each number and of each sequence of numbers.

    Every array is a copy, so that the record shares no memory with what the user passed.

    name: of the record, for errors

    Raises: ValueError for a field that holds no numbers and is not marked with `static()`.
    """
    if value is None:
        return None
    if isinstance(value, type):
        raise ValueError(f"{name} {value!r} is a class; give a record of it: {value.__name__}(…)")
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
        return float_array(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} {brief(value)} must be numbers, or a record of numbers; mark a field that is "
            "neither with `static()`"
        ) from error


def _all_numbers(value: Any) -> bool:
    """Whether nested sequences hold plain numbers only, and at least one."""
    if isinstance(value, (tuple, list)):
        return len(value) > 0 and all(map(_all_numbers, value))
    return isinstance(value, (int, float, np.number))


def _read_quaternion(owner: str, field: str, quaternion: Any, batched: bool) -> Array:
    field = f"{field} quaternion"
    numbers = read_numbers(owner, field, quaternion, (4,), batched=batched)
    if isinstance(numbers, np.ndarray):
        check_quaternion(owner, field, quaternion, numbers)
        numbers = numbers / np.linalg.norm(numbers, axis=0)
    return _normalized(float_array(numbers))


def _read_matrix(owner: str, field: str, matrix: Any, batched: bool) -> Array:
    field = f"{field} rotation matrix"
    numbers = read_numbers(owner, field, matrix, (3, 3), batched=batched)
    if isinstance(numbers, np.ndarray):
        check_rotation_matrix(owner, field, numbers)
    return _of_matrix(float_array(numbers))


# Compiled: outside of `jit` their small operations would be so one by one.
_normalized, _of_matrix = quickly(quat_normalize), quickly(quat_from_matrix)
