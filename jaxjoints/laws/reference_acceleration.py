"""Reference acceleration: how stops give way in MuJoCo."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.options import plain_numbers
from ..algebra.pytree import struct


@struct
class ReferenceAcceleration:
    """Softness of a stop as in MuJoCo: past the bound it aims at an acceleration.

        a + R f = -B v - K d(x) r,   R = (1 - d(x))/d(x) A,   f ≥ 0

    r: way to the bound, negative past it; v: speed at the start of the step, a: acceleration, both
    positive away from the bound; f: force of the stop. The impedance d rises from `first` at the
    bound to `last` at the depth `width` along x = |r| / width,

        d = first + (last - first) y(x),   y = xᵖ / mᵖ⁻¹ up to x = m, else 1 - (1 - x)ᵖ / (1 - m)ᵖ⁻¹

    An impact decays at the rate B, whatever the mass, where a spring with the same depth at rest
    and the same decay stops it at once. In a step h, B is at most 1 / (last h), and K falls with
    the square of B: a time constant T counts as 2 h at least, as in MuJoCo.

    decay: B [1/s]; pull: K [1/s²]. `solref` (T, ζ) of MuJoCo: B = 2 / (last T), K = 1 / (last T ζ)²
    inverse_inertia: A, speed per impulse of the coordinate [1/kg or 1/(kg m²)], a fixed number
    first, last, width, middle, power: `solimp`; d₀, d_width, width [m or rad], m and p

    Source: MuJoCo's documentation, Computation and Modeling, solver parameters.

    >>> soft = ReferenceAcceleration(decay=100.0, pull=2500.0, inverse_inertia=1.0)
    >>> goal, compliance = soft.over(jnp.array(-0.01), jnp.array(-1.0), jnp.array(0.004))
    >>> print(goal.round(3), compliance.round(4))  # deeper than `width`: d = 0.95
    -0.505 0.0526
    """

    decay: Array | float
    pull: Array | float
    inverse_inertia: Array | float
    first: Array | float = 0.9
    last: Array | float = 0.95
    width: Array | float = 0.001
    middle: Array | float = 0.5
    power: Array | float = 2.0

    def over(self, gap: Array, speed: Array, dt: Array) -> tuple[Array, Array]:
        """Speed that a stop aims at in a step, and its compliance as speed per impulse."""
        d = self.impedance(gap)
        slower = jnp.maximum(self.last * self.decay * dt, 1.0)
        decay, pull = self.decay / slower, self.pull / slower**2
        return speed - dt * (decay * speed + pull * d * gap), (1 - d) / d * self.inverse_inertia

    def impedance(self, gap: Array) -> Array:
        """The impedance d at a way to the bound."""
        x = jnp.minimum(jnp.abs(gap) / self.width, 1.0)
        m, p = self.middle, self.power
        low = x <= m
        # Protects powers whose base is 0 from infinite derivatives.
        below, above = jnp.where(low & (x > 0), x, m), jnp.where(low | (x >= 1), m, x)
        rising, falling = below**p / m ** (p - 1), 1 - (1 - above) ** p / (1 - m) ** (p - 1)
        y = jnp.where(low, jnp.where(x > 0, rising, 0.0), jnp.where(x < 1, falling, 1.0))
        return self.first + (self.last - self.first) * y

    def check(self) -> str | None:
        """A sentence about wrong parameters, which are concrete numbers, or None."""
        for name, value in vars(self).items():
            numbers = plain_numbers(value)
            if numbers is None or not (np.isfinite(numbers) & (numbers >= 0)).all():
                return f"reference {name} {value!r} must be a number >= 0"
        for name in ("first", "last", "middle"):
            numbers = np.asarray(getattr(self, name))
            if not ((numbers > 0) & (numbers < 1)).all():
                return f"reference {name} {getattr(self, name)} must lie between 0 and 1"
        if not (np.asarray(self.width) > 0).all():
            return f"reference width {self.width} must be > 0"
        if not (np.asarray(self.power) >= 1).all():
            return f"reference power {self.power} must be >= 1"
        return None
