"""Springs and dampers along a coordinate."""

from typing import ClassVar

from jax import Array

from ..algebra.pytree import static, struct
from ..solve.forces import Linear, zero_like
from .law import CoordinateState, Law, check_numbers


@struct
class SpringDamper(Law):
    """Force -k (q - rest) - d q̇ by an implicit Euler step: stable at any stiffness and step.

    >>> import jax.numpy as jnp
    >>> from jaxjoints import CoordinateState
    >>> spring = SpringDamper(stiffness=40.0, rest=0.5)
    >>> at = CoordinateState(q=jnp.array(1.0), dt=jnp.array(0.125))
    >>> print(spring.force(at).impulse / at.dt, spring.energy(at.q))  # -40 · 0.5, 40 · 0.5² / 2
    -20.0 5.0
    """

    stiffness: Array | float = 0.0
    damping: Array | float = 0.0
    rest: Array | float = 0.0
    coordinate: int = static(default=0, kw_only=True)
    kind: ClassVar[type] = Linear
    batched: ClassVar[bool] = True

    def force(self, at: CoordinateState) -> Linear:
        q, dt = at.q, at.dt
        resistance = dt * (dt * self.stiffness + self.damping)
        return Linear(resistance + zero_like(q), -dt * self.stiffness * (q - self.rest))

    def energy(self, q: Array) -> Array:
        """See `Law.energy`: ½ k (q - rest)²."""
        return 0.5 * self.stiffness * (q - self.rest) ** 2

    def check(self) -> str | None:
        return check_numbers(self, "rest")


@struct
class Damping(Law):
    """Viscous force -d q̇, by an implicit Euler step. damping: d [N s/m or N m s/rad].

    >>> import jax.numpy as jnp
    >>> from jaxjoints import CoordinateState
    >>> at = CoordinateState(q=jnp.array(0.0), dt=jnp.array(0.125))
    >>> drag = Damping(2.0).force(at)
    >>> print(-drag.augmented_stiffness * 3.0 / at.dt)  # force at 3 m/s
    -6.0
    """

    damping: Array | float
    coordinate: int = static(default=0, kw_only=True)
    kind: ClassVar[type] = Linear
    batched: ClassVar[bool] = True

    def force(self, at: CoordinateState) -> Linear:
        zero = zero_like(at.q)
        return Linear(at.dt * self.damping + zero, zero)

    def check(self) -> str | None:
        return check_numbers(self)
