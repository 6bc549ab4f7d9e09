"""Actuators of a model: how its controls become efforts of joints and targets of servos."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.arguments import read_numbers
from ..build.checks.values import precision
from ..model.measures import coordinate_motion
from ..model.state import Control, State
from ..model.system import System


@dataclass(frozen=True)
class Activation:
    """State of an actuator, of first order, which takes the place of its control.

    index: place among the activations of a model
    kind: of its rate, u the control: "integrator" u; "filter" (u - a) / τ, by an Euler step, and
        "filterexact", by the exact step under a constant u
    time_constant: τ [s]; bounds: of a, None for none
    """

    index: int
    kind: str
    time_constant: float = 1.0
    bounds: tuple[float, float] | None = None

    def after(self, a: Array, u: Array, dt: Any) -> Array:
        """The activation after a step."""
        if self.kind == "integrator":
            new = a + dt * u
        elif self.kind == "filter":
            new = a + dt * (u - a) / self.time_constant
        else:
            new = a - (u - a) * jnp.expm1(-dt / self.time_constant)
        return new if self.bounds is None else jnp.clip(new, *self.bounds)


@dataclass(frozen=True)
class Actuator:
    """A force along l = Σ arms q, affine in l, its rate and the control, or a servo's target.

        F = (gain[0] + gain[1] l + gain[2] l') u + bias[0] + bias[1] l + bias[2] l'

    Here u is the control, or the activation of an actuator that has one. Of a servo, the law in the
    builder exerts what depends on l and l', and u moves its target.

    name: in the file; index: of its control among those of the model
    arms: of each coordinate, as (joint, number in the joint), its force per F
    gain, bias: as above
    control_range, force_range: bounds of the control and of F, None for none
    activation: None for an actuator that acts at once
    servo: name of the joint or transmission of the servo, None for an actuator that is none
    aim: of a servo, "target" or "target_speed"
    place: of a servo, number of its coordinate or value
    scale: of a servo, change of what it aims at per F
    """

    name: str
    index: int
    arms: tuple[tuple[tuple[str, int], float], ...]
    gain: tuple[float, float, float]
    bias: tuple[float, float, float]
    control_range: tuple[float, float] | None = None
    force_range: tuple[float, float] | None = None
    activation: Activation | None = None
    servo: str | None = None
    aim: str = "target"
    place: int = 0
    scale: float = 1.0

    @property
    def depends_on_state(self) -> bool:
        """Whether F has to be computed from a state."""
        return self.servo is None and bool(self.arms) and any((*self.gain[1:], *self.bias[1:]))

    def control(self, values: Array) -> Array:
        """Its control among those of a model, within its bounds."""
        value = values[self.index]
        return value if self.control_range is None else jnp.clip(value, *self.control_range)

    def force(self, u: Array, length: Array | float = 0.0, rate: Array | float = 0.0) -> Array:
        """F, of a servo without what its law exerts."""
        terms = (1.0, length, rate) if self.depends_on_state else (1.0,)
        gain = sum(g * x for g, x in zip(self.gain, terms, strict=False))
        force = gain * u + sum(b * x for b, x in zip(self.bias, terms, strict=False))
        if self.servo is None and self.force_range is not None:
            force = jnp.clip(force, *self.force_range)
        return force


def control_of(
    actuators: Sequence[Actuator],
    system: System,
    values: Any,
    state: State | None,
    activation: Any,
) -> Control:
    """See `Model.control`."""
    values = _read("values", values, _controls(actuators), exact=False)
    states = [actuator for actuator in actuators if actuator.activation is not None]
    if states and activation is None:
        raise ValueError(
            f"control: actuator {states[0].name!r} has an activation; give activation=, from "
            "Model.activation() and then Model.next_activation(…)"
        )
    activation = _read("activation", [] if activation is None else activation, len(states))
    dependent = [actuator for actuator in actuators if actuator.depends_on_state]
    if dependent and state is None:
        raise ValueError(
            f"control: the force of actuator {dependent[0].name!r} depends on positions and "
            "speeds, which no law follows; give state="
        )
    q, qd = coordinate_motion(system, state) if dependent else (None, None)
    fields: dict[str, dict[str, Array]] = {"effort": {}, "target": {}, "target_speed": {}}
    sizes = _sizes(system)
    for actuator in actuators:
        u = actuator.control(values)
        if actuator.activation is not None:
            u = activation[actuator.activation.index]
        length = rate = 0.0
        if actuator.depends_on_state:
            for (joint, i), arm in actuator.arms:
                at = system.coordinate(joint).start + i
                length, rate = length + arm * q[at], rate + arm * qd[at]
        force = actuator.force(u, length, rate)
        if actuator.servo is not None:
            _add(
                fields[actuator.aim], sizes, actuator.servo, actuator.place, actuator.scale * force
            )
            continue
        for (joint, i), arm in actuator.arms:
            _add(fields["effort"], sizes, joint, i, arm * force)
    return system.control(**{name: by_name or None for name, by_name in fields.items()})


def activation_of(actuators: Sequence[Actuator], batch: tuple[int, ...]) -> Array:
    """See `Model.activation`."""
    bounds = [a.activation.bounds for a in actuators if a.activation is not None]
    start = jnp.array([0.0 if b is None else np.clip(0.0, *b) for b in bounds], precision())
    return jnp.broadcast_to(start.reshape(-1, *(1,) * len(batch)), (len(bounds), *batch))


def next_activation_of(
    actuators: Sequence[Actuator], activation: Any, values: Any, dt: Any
) -> Array:
    """See `Model.next_activation`."""
    values = _read("values", values, _controls(actuators), exact=False)
    states = [actuator for actuator in actuators if actuator.activation is not None]
    activation = _read("activation", activation, len(states))
    if not states:
        return activation
    dt = jnp.asarray(dt, precision())
    new = [
        a.activation.after(activation[a.activation.index], a.control(values), dt) for a in states
    ]
    return jnp.stack(jnp.broadcast_arrays(*new))


def _controls(actuators: Sequence[Actuator]) -> int:
    return max((actuator.index + 1 for actuator in actuators), default=0)


def _read(what: str, values: Any, count: int, *, exact: bool = True) -> Array:
    """Numbers of shape (count, *batch); more than `count` unless `exact`.

    Raises: ValueError for another number of values.
    """
    values = jnp.asarray(values, precision())
    if values.ndim == 0 or values.shape[0] < count or (exact and values.shape[0] != count):
        raise ValueError(f"control: {what} have shape {values.shape}; give {count} first")
    read_numbers("control", what, values, (values.shape[0],), batched=True, finite=False)
    return values


def _sizes(system: System) -> Mapping[str, int]:
    """Number of coordinates of each joint and of values of each transmission, by name."""
    topology = system.topology
    values = {
        topology.transmissions[i]: group.transmission.rows
        for group in system.transmissions
        for i in group.members
    }
    joints = {
        topology.joints[j]: group.coupling.dof for group in system.groups for j in group.joints
    }
    return values | joints


def _add(
    by_name: dict[str, Array], sizes: Mapping[str, int], name: str, i: int, value: Array
) -> None:
    """Add a value to one coordinate of a joint, or one value of a transmission."""
    zero = jnp.zeros((sizes[name], *value.shape), value.dtype)
    before = by_name.get(name, zero)
    shape = jnp.broadcast_shapes(before.shape[1:], value.shape)
    before = jnp.broadcast_to(
        before.reshape(before.shape + (1,) * (len(shape) - before.ndim + 1)), (sizes[name], *shape)
    )
    by_name[name] = before.at[i].add(value)
