"""Actuators of a model: how its controls become efforts and targets of joints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jax import Array

from ..build.checks.values import precision, read_numbers
from ..model.state import Control
from ..model.system import System


@dataclass(frozen=True)
class Actuator:
    """A force gain * control + constant along a sum of coordinates, or a servo's target.

    name: in the file; index: of its control among those of the model
    arms: of each joint of the file, force along its coordinate per force of the actuator
    gain: force per control; constant: force without control [N or N m]
    control_range, force_range: bounds, None for none
    aim: "effort"; or "target" or "target_speed" for a servo, whose law is in the builder
    scale: of a servo, force of the actuator per unit of the target
    """

    name: str
    index: int
    arms: Sequence[tuple[Any, float]]
    gain: float
    constant: float = 0.0
    control_range: tuple[float, float] | None = None
    force_range: tuple[float, float] | None = None
    aim: str = "effort"
    scale: float = 1.0

    def aiming(self, aim: str, scale: float) -> "Actuator":
        """The same as a servo."""
        return replace(self, aim=aim, scale=scale)

    def named(self, joints: Sequence[str]) -> "Actuator":
        """The same with names of joints in place of their numbers."""
        return replace(self, arms=tuple((joints[j], arm) for j, arm in self.arms))

    def located(self, coordinates: Mapping[str, tuple[str, int]]) -> "Actuator":
        """The same with (joint of the builder, coordinate) in place of the file's joints."""
        return replace(self, arms=tuple((coordinates[joint], arm) for joint, arm in self.arms))


def control_of(actuators: Sequence[Actuator], system: System, values: Any) -> Control:
    """A `Control` from one value for each control of a model, shape (controls, *batch).

    Raises: ValueError for another number of values.
    """
    count = max((actuator.index + 1 for actuator in actuators), default=0)
    values = jnp.asarray(values, precision())
    if values.ndim == 0 or values.shape[0] < count:
        raise ValueError(f"control: values have shape {values.shape}; give {count} first")
    read_numbers("control", "values", values, (values.shape[0],), batched=True, finite=False)
    fields: dict[str, dict[str, Array]] = {"effort": {}, "target": {}, "target_speed": {}}
    for actuator in actuators:
        value = values[actuator.index]
        if actuator.control_range is not None:
            value = jnp.clip(value, *actuator.control_range)
        force = actuator.gain * value + actuator.constant
        if actuator.aim != "effort":
            ((joint, i), _), *_ = actuator.arms
            _add(fields[actuator.aim], system, joint, i, force / actuator.scale)
            continue
        if actuator.force_range is not None:
            force = jnp.clip(force, *actuator.force_range)
        for (joint, i), arm in actuator.arms:
            _add(fields["effort"], system, joint, i, arm * force)
    return system.control(**{name: by_joint or None for name, by_joint in fields.items()})


def _add(by_joint: dict[str, Array], system: System, joint: str, i: int, value: Array) -> None:
    """Add a value to one coordinate of a joint."""
    place = system.coordinate(joint)
    zero = jnp.zeros((place.stop - place.start, *value.shape), value.dtype)
    by_joint[joint] = by_joint.get(joint, zero).at[i].add(value)
