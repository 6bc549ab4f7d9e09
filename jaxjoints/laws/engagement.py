"""Engagement: whether a limit acts is decided once a step, and carried to the next step."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import struct


@struct
class Engagement:
    """Limits that engage and disengage as ArtiSynth's do, beside complementarity.

    A limit engages if a step ends at its bound or past it. In the next steps it is a one-sided row
    of zero speed. It disengages if a step ends inside the bound and leaves it at `break_speed` or
    more, but not in the first step after it engaged. So a step may end past a bound. Position
    correction (ERP and projections) removes this violation down to `tolerance`, so that a
    coordinate that is pressed against its bound stays engaged.

    `State.engagement` carries E n. E is 1 if engaged at the lower bound, -1 at the upper bound, 0
    if not engaged; n is the number of step ends since.

    break_speed: least speed away from the bound that disengages [m/s or rad/s]
    tolerance: violation that is not corrected [m or rad]

    Source: ArtiSynth RigidBodyConstraint, breakSpeed, penetrationTol, rotaryLimitTol.

    The first coordinate passes its lower bound, the second leaves it after two steps:

    >>> q, qd = jnp.array([-0.1, 0.1]), jnp.array([-1.0, 1.0])
    >>> print(Engagement().after(jnp.array([0.0, 2.0]), q, qd, lower=0.0, upper=None))
    [1. 0.]
    """

    break_speed: Array | float = 0.0
    tolerance: Array | float = 1e-4

    def after(
        self, before: Array, q: Array, qd: Array, lower: Array | None, upper: Array | None
    ) -> Array:
        """E n at the end of a step.

        before: E n at its start; q, qd: coordinate and speed at its end; lower, upper: bounds, None
            for none
        """
        E = jnp.sign(before)
        leaves = (E * qd >= self.break_speed) & (jnp.abs(before) > 1)
        held = jnp.where(leaves, 0.0, before + E)
        if upper is not None:
            held = jnp.where(q >= upper, jnp.minimum(before, 0.0) - 1, held)
        if lower is not None:
            held = jnp.where(q <= lower, jnp.maximum(before, 0.0) + 1, held)
        return held

    def check(self) -> str | None:
        """A sentence about wrong parameters, which are concrete numbers, or None."""
        for name, value in vars(self).items():
            numbers = np.asarray(value, float)
            if not (np.isfinite(numbers) & (numbers >= 0)).all():
                return f"engagement {name} {value} must be a number >= 0"
        return None
