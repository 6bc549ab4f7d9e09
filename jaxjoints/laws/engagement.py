"""When a limit acts: decided once a step, and carried from one step to the next."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import struct


@struct
class Engagement:
    """Limits that engage and let go, as ArtiSynth's, instead of acting by complementarity alone.

    A limit engages where a step ends at a bound or past it, and is a one-sided row of zero speed in
    the steps that follow. It lets go where a step ends inside, leaving the bound at `break_speed`
    or more, but not at the first one after it engaged. A step thus may end past a bound by the way
    that it goes; position correction (ERP and projections) takes that back up to `tolerance`, so
    that a coordinate that is pressed against its bound stays engaged.

    What is carried, `State.engagement`, is E n: E = 1 engaged at the lower bound, -1 at the upper,
    0 not at all; n ends of steps for which it has been.

    break_speed: least speed away from the bound that disengages [m/s or rad/s]
    tolerance: way past the bound that is left alone [m or rad]

    Source: ArtiSynth RigidBodyConstraint, breakSpeed, penetrationTol, rotaryLimitTol.
    """

    break_speed: Array | float = 0.0
    tolerance: Array | float = 1e-4

    def after(
        self, before: Array, q: Array, qd: Array, lower: Array | None, upper: Array | None
    ) -> Array:
        """E n at the end of a step from that at its start.

        q, qd: coordinate and its speed at the end of the step; lower, upper: bounds, None for none
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
        """What is wrong with the parameters (concrete numbers), as a sentence, or None."""
        for name, value in vars(self).items():
            numbers = np.asarray(value, float)
            if not (np.isfinite(numbers) & (numbers >= 0)).all():
                return f"engagement {name} {value} must be a number >= 0"
        return None
