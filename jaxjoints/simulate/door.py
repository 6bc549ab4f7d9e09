"""What users pass to steps, rollouts and read-outs: checked, and brought into one form."""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.arguments import read_numbers
from ..algebra.compiler import is_traced
from ..algebra.options import brief, check_kind
from ..algebra.pytree import expand, replace
from ..assembly.impulses import row_forces_sizes
from ..assembly.layout import engagement_size
from ..build.checks.values import precision
from ..couplings.contact import DIRECTIONS
from ..model.batch import batch_shape, check_records
from ..model.state import CONTROL_RANKS, STATE_RANKS, Control, State, control_ranks
from ..model.system import READ_CONTACTS, System
from ..schemes.scheme import Scheme

# Widths of the float types that a system may have [bytes].
PRECISIONS = (4, 8)


def entered(
    call: str, system: Any, state: Any, control: Any = None, *, leading: tuple[str, ...] = ()
) -> tuple[System, State, Control | None]:
    """System, state and control as float arrays of the system's precision, which fit each other.

    call: name of the function, for errors
    leading: names of the axes that come first in every array of the control, such as time

    Raises: ValueError for other types, and for arrays that do not fit the system or the batch
    """
    _check_records(call, system, state, control)
    dtype = jnp.result_type(system.mass)
    if not jnp.issubdtype(dtype, jnp.floating):
        dtype = precision()
    if dtype.itemsize not in PRECISIONS:
        raise ValueError(
            f"system: its numbers are {dtype}, too few digits for joints; use float32 or float64"
        )
    floats = lambda x: _floats(x, dtype)  # noqa: E731
    system, state = jax.tree.map(floats, system), jax.tree.map(floats, state)
    _check_state(system, state)
    if control is not None:
        control = with_control(system, state, control, leading)
    if state.time.ndim == STATE_RANKS.time:
        _check_told(system, control, len(leading))
    return system, state, control


def with_control(
    system: System, state: State, control: Control, leading: tuple[str, ...] = ()
) -> Control:
    """A control whose fields are float arrays of the state's precision and fit system and state."""
    control = _numbers(control, state.position.dtype)
    _check_control(system, state, control, leading)
    return control


def full(state: State, batch: tuple[int, ...]) -> State:
    """State in which every array carries all batch axes."""
    state = expand(state, jax.tree.leaves(STATE_RANKS), len(batch))
    return jax.tree.map(lambda x, r: jnp.broadcast_to(x, x.shape[:r] + batch), state, STATE_RANKS)


def expanded(control: Control, batch: int) -> Control:
    """Control whose shared arrays get axes of size 1 for the batch."""
    return expand(control, control_ranks(control), batch)


def check_time_step(dt: Any) -> None:
    """Raise ValueError unless the time step dt is in (0, 1] s; a traced dt is not checked."""
    if is_traced(dt):
        return
    value = read_numbers("time step", "dt", dt, finite=False)
    if not ((value > 0) & (value <= 1)).all():
        raise ValueError(f"time step: dt {dt} must be > 0 and at most 1 s; give seconds, e.g. 1e-3")


def check_policy(policy: Any) -> None:
    """Raise ValueError unless a control policy is "stop" or "zero"."""
    if policy not in ("stop", "zero"):
        raise ValueError(f"control_policy {policy!r} must be 'stop' or 'zero'")


def check_scheme(call: str, scheme: Any) -> None:
    """Raise ValueError for what is no record of a scheme."""
    check_kind(f"{call}:", "scheme", scheme, Scheme, "SemiImplicitEuler()")


def read_count(call: str, name: str, value: Any) -> int:
    """A number of steps as a Python integer; ValueError for what is none, or less than 1."""
    if is_traced(value):
        raise ValueError(
            f"{call}: {name} is traced; it shapes the program, so that `jit` has to be told: "
            f"static_argnames={name!r}"
        )
    try:
        count = operator.index(value)
    except TypeError:
        raise ValueError(f"{call}: {name} {brief(value)} must be a whole number") from None
    if count < 1:
        raise ValueError(f"{call}: {name} {value} must be >= 1")
    return count


def _check_records(call: str, system: Any, state: Any, control: Any) -> None:
    """Raise ValueError for arguments of other types than System, State and Control."""
    check_records(call, system, state)
    if isinstance(control, (list, tuple)):
        raise ValueError(
            f"{call}: controls are a {type(control).__name__}; give one Control whose arrays have "
            "a time axis in front: jax.tree.map(lambda *x: jnp.stack(x), *controls)"
        )
    if control is not None and not isinstance(control, Control):
        raise ValueError(f"control: {brief(control)} must be a Control(effort=…), or None")


def _floats(leaf: Any, dtype: np.dtype) -> Array:
    """An array of a float type; the leaf itself where it is one."""
    if isinstance(leaf, jax.Array) and leaf.dtype == dtype:
        return leaf
    return jnp.asarray(leaf, dtype)


def _numbers(control: Control, dtype: np.dtype) -> Control:
    """A control whose fields are float arrays, from whatever holds numbers."""
    read = {}
    for name in CONTROL_RANKS:
        value = getattr(control, name)
        if value is None:
            continue
        try:
            read[name] = _floats(value, dtype)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"control: {name} {brief(value)} must be an array of numbers"
            ) from error
    return replace(control, **read)


def _check_state(system: System, state: State) -> None:
    """Raise ValueError for arrays of a system or state that do not fit each other."""
    _check_parameters(system)
    per_body = {"position": 3, "quaternion": 4, "velocity": 3, "omega": 3}
    shapes = {name: (size, len(system.topology.bodies)) for name, size in per_body.items()}
    _check_contacts(system, state)
    _check_axes("state", state, shapes | {"q": (system.coordinates,)}, None, ())
    forces = state.row_forces
    found = forces.rows.shape[:2], forces.bounds.shape[:2], state.engagement.shape[:1]
    if found != (*row_forces_sizes(system), (engagement_size(system),)):
        raise ValueError(
            "state: it is of a system with other laws, whose forces start its next solve; start "
            "those anew: own = system.state(), then replace(state, row_forces=own.row_forces, "
            "engagement=own.engagement)"
        )


def _check_contacts(system: System, state: State) -> None:
    """Raise ValueError for coordinates of contacts in q, where they were once."""
    contacts = system.topology.contacts
    if contacts and np.shape(state.q)[:1] == (system.coordinates + DIRECTIONS * len(contacts),):
        raise ValueError(
            f"state: q has {DIRECTIONS} numbers for each contact, such as {contacts[0]!r}; these "
            f"have no coordinates, so q has shape ({system.coordinates},): make the state with "
            f"`system.state(…)`, and {READ_CONTACTS}"
        )


def _check_control(
    system: System, state: State, control: Control, leading: tuple[str, ...]
) -> None:
    """Raise ValueError for arrays of a control that do not fit the system or the batch."""
    batch = batch_shape(system, state, None)
    _check_axes("control", control, _control_shapes(system), batch or None, leading)


def _control_shapes(system: System) -> dict[str, tuple[int, ...]]:
    """Shape of each field of a control without batch axes."""
    coordinates, prescribed = (system.coordinates,), len(system.topology.prescribed)
    return {
        "effort": coordinates,
        "wrench": (6, len(system.topology.bodies)),
        "twist": (6, prescribed),
        "target": coordinates,
        "target_speed": coordinates,
        "transmission_target": (system.values,),
        "transmission_target_speed": (system.values,),
    }


def _check_parameters(system: System) -> None:
    """Raise ValueError for numbers of a system whose first axes are not those it was built with."""
    shapes = system.topology.shapes
    paths = jax.tree_util.tree_leaves_with_path(system)
    for (path, leaf), built in zip(paths, shapes, strict=True):
        if leaf.shape[: len(built)] != built:
            name = jax.tree_util.keystr(path).lstrip(".")
            raise ValueError(
                f"system: {name} has shape {leaf.shape}; it was built with {built}, and batch axes "
                "come at the end"
            )


def _check_told(system: System, control: Control | None, first: int) -> None:
    """Raise ValueError for arrays that alone have batch axes, all of them in shapes that would also
    fit with these in front.

    first: number of axes that come first in every array of the control
    """
    arrays = [
        (f"system: {jax.tree_util.keystr(path).lstrip('.')}", leaf.shape, built)
        for (path, leaf), built in zip(
            jax.tree_util.tree_leaves_with_path(system), system.topology.shapes, strict=True
        )
    ]
    for name, sizes in _control_shapes(system).items():
        if control is not None and getattr(control, name) is not None:
            arrays.append((f"control: {name}", getattr(control, name).shape[first:], sizes))
    batched = [(name, shape, own) for name, shape, own in arrays if len(shape) > len(own)]
    if not batched or any(shape != shape[len(own) :] + own for _, shape, own in batched):
        return
    name, shape, own = batched[0]
    raise ValueError(
        f"{name} of shape {shape} may have its batch in front or at the end; give the state its "
        f"batch too: replicate(state, {', '.join(map(str, shape[len(own) :]))})"
    )


def _check_axes(
    owner: str,
    record: Any,
    shapes: dict[str, tuple[int, ...]],
    batch: tuple[int, ...] | None,
    leading: tuple[str, ...],
) -> None:
    """Raise ValueError unless each field has the leading axes, those of `shapes`, then batch axes.

    batch: the batch axes that a field has if it has any; None for any
    """
    for name, sizes in shapes.items():
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
        hint = ""
        if leading and shape in (sizes, sizes + (batch or ())):
            hint = "; to hold one control, repeat it: jnp.repeat(x[None], steps, axis=0)"
        raise ValueError(
            f"{owner}: {name} has shape {shape}; it must be {shared}, shared by all environments, "
            f"or {each}, the batch axes at the end{hint}"
        )
