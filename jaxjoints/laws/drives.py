"""Drives: laws that move a coordinate as motors with controllers do, or add to its inertia.

The target of a drive is a field of its record. `Control.target` and `Control.target_speed` replace
it at each step where given. Units follow the coordinate as in `laws`.
"""

from types import MappingProxyType
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import static, struct
from ..solve.forces import Bound, Linear, zero_like
from .law import CoordinateState, Law, check_numbers
from .softness import spring_softness


@struct
class Motor(Law):
    """Drives a coordinate at a speed by a bounded effort: N v⁺ = speed, or effort at its bound.

    Against a stop, a lock or another law that holds the coordinate it pushes with all its effort.

    speed: target speed [m/s or rad/s]; `Control.target_speed` replaces it where given
    effort: largest force [N or N m]; cfm: change of speed per unit force, as in ODE

    >>> at = CoordinateState(q=jnp.array(0.0), dt=jnp.array(0.125))
    >>> drive = Motor(speed=3.0, effort=5.0).force(at)
    >>> print(-drive.bias, drive.upper / at.dt)  # its speed, its largest force
    3.0 5.0
    """

    speed: Array | float
    effort: Array | float
    cfm: Array | float = 0.0
    coordinate: int = static(default=0, kw_only=True)
    kind: ClassVar[type] = Bound
    two_sided: ClassVar[bool] = True
    batched: ClassVar[bool] = True
    aims: ClassVar = MappingProxyType({"target_speed": "speed"})

    def force(self, at: CoordinateState) -> Bound:
        speed = self.speed if at.target_speed is None else at.target_speed
        return _bounded(at, -speed, self.cfm / at.dt, self.effort)

    def check(self) -> str | None:
        return check_numbers(self, "speed")


@struct
class Servo(Law):
    """Effort k (target - q⁺) + d (target_speed - q̇⁺) with q⁺, q̇⁺ at the end of the step: implicit
    PD control, stable at any gains and step.

    stiffness: k [N/m or N m/rad]; damping: d [N s/m or N m s/rad]
    effort: largest force [N or N m]. None: the `max_effort` of its joint, unlimited without that
    target: [m or rad], target_speed: [m/s or rad/s], both at the end of the step; `Control.target`
        and `Control.target_speed` replace them where given

    >>> at = CoordinateState(q=jnp.array(0.25), dt=jnp.array(0.125))
    >>> push = Servo(stiffness=40.0, damping=2.0, target=0.5).force(at)
    >>> print(push.impulse / at.dt)  # at rest: 40 N/m · 0.25 m
    10.0
    """

    stiffness: Array | float
    damping: Array | float
    effort: Array | float | None = None
    target: Array | float = 0.0
    target_speed: Array | float = 0.0
    coordinate: int = static(default=0, kw_only=True)
    batched: ClassVar[bool] = True
    aims: ClassVar = MappingProxyType({"target": "target", "target_speed": "target_speed"})

    @property
    def kind(self) -> type:
        """`Linear` without a bound of the effort, else `Bound` (see `Law`)."""
        return Linear if self.effort is None else Bound

    @property
    def two_sided(self) -> bool:
        return self.effort is not None

    def force(self, at: CoordinateState) -> Linear | Bound:
        target = self.target if at.target is None else at.target
        speed = self.target_speed if at.target_speed is None else at.target_speed
        dt = at.dt
        if self.effort is None:
            total = dt * (dt * self.stiffness + self.damping)
            impulse = dt * (self.stiffness * (target - at.q) + self.damping * speed)
            return Linear(total + zero_like(at.q), impulse + zero_like(at.q))
        erp, cfm = spring_softness(self.stiffness, self.damping, dt)
        bias = erp * (at.q - target) / dt - (1 - erp) * speed
        return _bounded(at, bias, cfm / dt, self.effort)

    def check(self) -> str | None:
        return check_numbers(self, "target", "target_speed")


@struct
class Armature(Law):
    """Inertia of a coordinate besides its bodies, such as the inertia of a rotor behind a gear.

    The effort is -inertia q̈, with q̈ the mean acceleration of the coordinate over the step.

    inertia: [kg or kg m²]; for a rotor its inertia times the square of the gear ratio

    >>> rotor = Armature(0.0025 * 10.0**2)  # 0.0025 kg m² behind a gear of ratio 10
    >>> at = CoordinateState(q=jnp.array(0.0), dt=jnp.array(0.125), qd=jnp.array(3.0))
    >>> inert = rotor.force(at)
    >>> print(inert.impulse - inert.augmented_stiffness * 5.0)  # [N m s] from 3 to 5 rad/s
    -0.5
    """

    inertia: Array | float
    coordinate: int = static(default=0, kw_only=True)
    kind: ClassVar[type] = Linear
    needs_speed: ClassVar[bool] = True
    batched: ClassVar[bool] = True

    def force(self, at: CoordinateState) -> Linear:
        return Linear(self.inertia + zero_like(at.q), self.inertia * at.qd)

    def check(self) -> str | None:
        return check_numbers(self)


@struct
class Effort(Law):
    """A constant force along a coordinate [N or N m]; `Control.effort` adds one that varies.

    >>> at = CoordinateState(q=jnp.array(0.0), dt=jnp.array(0.5))
    >>> print(Effort(5.0).force(at).impulse)  # 5 N over 0.5 s
    2.5
    """

    effort: Array | float
    coordinate: int = static(default=0, kw_only=True)
    kind: ClassVar[type] = Linear
    batched: ClassVar[bool] = True

    def force(self, at: CoordinateState) -> Linear:
        zero = zero_like(at.q)
        return Linear(zero, at.dt * self.effort + zero)

    def check(self) -> str | None:
        return check_numbers(self, "effort")


def _bounded(at: CoordinateState, bias: Array, compliance: Array, effort: Array) -> Bound:
    """N v⁺ + bias + compliance λ = 0 by a force of at most ±effort."""
    zero = zero_like(at.q)
    one, most = jnp.ones_like(at.q), at.dt * effort + zero
    return Bound(one, bias + zero, compliance + zero, one, lower=-most, upper=most)
