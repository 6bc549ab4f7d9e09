"""Checks the arguments of `step`, `rollout` and `project`: time step, policy and array shapes."""

from typing import Any

import jax.numpy as jnp

from ...model.batch import batch_shape
from ...model.state import Control, State
from ...model.system import System
from .values import is_traced, read_numbers


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


def check_shapes(
    system: System, state: State, control: Any, *, leading: tuple[str, ...] = ()
) -> None:
    """Raise ValueError for arrays of a state or control that do not fit the system or the batch.

    leading: names of the axes that come first in every array of the control, such as time
    """
    bodies, coordinates = len(system.topology.bodies), system.coordinates
    per_body = {"position": 3, "quaternion": 4, "velocity": 3, "omega": 3}
    shapes = {name: (size, bodies) for name, size in per_body.items()} | {"q": (coordinates,)}
    _check_axes("state", state, shapes, None, ())
    if control is None:
        return
    if not isinstance(control, Control):
        raise ValueError(f"control: {control!r} must be a Control(effort=…), or None")
    shapes = {
        "effort": (coordinates,),
        "wrench": (6, bodies),
        "twist": (6, len(system.topology.prescribed)),
        "target": (coordinates,),
        "target_speed": (coordinates,),
    }
    _check_axes("control", control, shapes, batch_shape(system, state, None) or None, leading)


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
        raise ValueError(
            f"{owner}: {name} has shape {shape}; it must be {shared}, shared by all environments, "
            f"or {each}, the batch axes at the end"
        )
