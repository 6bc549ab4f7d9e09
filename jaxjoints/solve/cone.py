"""Round cones of friction: rows turned to the direction in which a contact slips.

Two tangents that share a bound b have λ = U min(1, b/|U|), with U the vector of both. Along U this
is the law of one row between -b and b. Across U it is a line of the slope f = |λ|/|U|. So a Newton
step turns the rows of both tangents along and across U, where each has its own law, and back.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import materialize
from ..algebra.places import take
from ..algebra.pytree import replace, static, struct
from .bounds import Potential, in_cone, radius, value


@struct
class Turn:
    """A rotation of pairs of rows; rows without a partner stay as they are.

    cos, sin: of each row, sin with the sign of its partner's contribution, (rows, *more)
    partner: of each row along the first axis, the row itself for none
    """

    cos: Array
    sin: Array
    partner: tuple[int, ...] = static()

    def rows(self, x: Array, ahead: int = 0) -> Array:
        """Numbers along and across; ahead: number of axes before the axis of the rows."""
        return self._turned(x, self.sin, ahead)

    def back(self, x: Array, ahead: int = 0) -> Array:
        """The inverse of `rows`."""
        return self._turned(x, -self.sin, ahead)

    def of(self, nodes: np.ndarray) -> "Turn":
        """The turn of the rows of some nodes, places along the second axis."""
        return Turn(*(take(x, nodes, 1) for x in (self.cos, self.sin)), self.partner)

    def _turned(self, x: Array, sin: Array, ahead: int) -> Array:
        cos, sin = (y.reshape((1,) * ahead + y.shape) for y in (self.cos, sin))
        # Stored before and after: within another kernel XLA would gather number by number.
        x = materialize(x)
        return cos * x + sin * materialize(take(x, np.array(self.partner), ahead))


@struct
class Slip:
    """Directions in which round cones slip or would slip.

    turn: turns the coordinate rows along and across the slip; of_laws: likewise the laws
    across: slope f of the second laws of cones, else 0, (laws, *batch)
    """

    turn: Turn
    of_laws: Turn
    across: Array

    @classmethod
    def of(cls, laws: Potential, U: Array) -> "Slip | None":
        """The slip of laws at their positions U; None without round cones."""
        rows = laws.rows
        if not rows.across:
            return None
        partner, cone = np.array(rows.across), in_cone(laws, U)
        size, force = radius(laws, U), radius(laws, value(laws, U))
        some = cone & (size > 0)
        safe = jnp.where(some, size, 1.0)
        last, other = cls._last(laws, U), take(U, partner, 0)
        cos = jnp.where(some, jnp.where(last, other, U) / safe, 1.0)
        sin = jnp.where(some, jnp.where(last, -U, other) / safe, 0.0)
        across = jnp.where(last, jnp.where(some, force / safe, 1.0), 0.0)
        # Each row of a cone has a single law, so the row is turned as its law.
        of_rows = np.arange(rows.count)
        of_rows[rows.row[rows.round]] = rows.row[partner[rows.round]]
        here = _trailing(of_rows != np.arange(rows.count), U)
        turned = (rows.summed(jnp.where(cone, x, 0.0)) for x in (cos, sin))
        turned = (jnp.where(here, x, y) for x, y in zip(turned, (1.0, 0.0), strict=True))
        return cls(Turn(*turned, tuple(of_rows.tolist())), Turn(cos, sin, rows.across), across)

    def laws(self, laws: Potential) -> Potential:
        """The laws of the rows along and across."""
        last, f = self._last(laws, laws.goal), self.across
        free = last & (f > 0)
        return replace(
            laws,
            goal=self.of_laws.rows(laws.goal),
            resistance=jnp.where(free, laws.resistance / jnp.where(free, f, 1.0), laws.resistance),
            lower=jnp.where(last, jnp.where(free, -jnp.inf, 0.0), laws.lower),
            upper=jnp.where(last, jnp.where(free, jnp.inf, 0.0), laws.upper),
            barrier=None if laws.barrier is None else jnp.where(last, 0.0, laws.barrier),
            rows=laws.rows.without_cones(),
        )

    def positions(self, laws: Potential, U: Array) -> Array:
        """Positions of the laws along and across, from positions of the cones."""
        return self.of_laws.rows(U) * self._stretch(laws, U)

    def positions_back(self, laws: Potential, U: Array) -> Array:
        """Positions of the cones, from positions of the laws along and across."""
        return self.of_laws.back(U / self._stretch(laws, U))

    def _stretch(self, laws: Potential, U: Array) -> Array:
        f = self.across
        return jnp.where(self._last(laws, U) & (f > 0), f, 1.0)

    @staticmethod
    def _last(laws: Potential, like: Array) -> Array:
        """True for the second laws of cones."""
        return _trailing(np.array(laws.rows.across) < np.arange(len(like)), like)


def _trailing(mask: np.ndarray, like: Array) -> Array:
    """A static mask of the first axes of an array."""
    return jnp.asarray(mask).reshape(*mask.shape, *(1,) * (like.ndim - mask.ndim))
