"""Transmissions: equations between the coordinates of several joints, whatever joints these are.

A transmission is a frozen record whose leaves are its parameters, and a pure function of the
coordinates q of its joints, one after another: its values f(q) are held at zero by rows

    Σ_i ∂f/∂q_i N_i v⁺ + erp f/h + (cfm/h) λ = 0

on all bodies of these joints, or, where laws act on a value, obey the laws instead.
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import static, struct
from ..couplings.functions import Function

# Share of a cone's opening at whose inside its angle is read along one coordinate alone.
CENTRE = 1e-6


class Transmission:
    """Base of all transmissions.

    rows: how many values f(q) has
    coordinates: how many it takes, None for any number
    """

    rows: ClassVar[int] = 1
    coordinates: ClassVar[int | None] = None

    def value(self, q: Array) -> Array:
        """f(q), shape (rows,), of the coordinates of all its joints in order, shape (k,)."""
        raise NotImplementedError

    def check(self) -> str | None:
        """What is wrong with the parameters (concrete numbers), as a sentence, or None."""
        return None


@struct
class Weighted(Transmission):
    """f = Σ weights[i] q[i] - offset: gears, mimicking joints, tendons over pulleys.

    With laws it is a tendon: q̇ of its length is Σ weights[i] q̇[i], and `Limits(upper=L)` a rope.

    weights: shape (k,), one for each coordinate; offset: in units of f
    """

    weights: Array
    offset: Array | float = 0.0

    def value(self, q: Array) -> Array:
        """See `Transmission.value`."""
        if self.weights.shape != q.shape:
            raise ValueError(f"weights has shape {self.weights.shape}, the coordinates {q.shape}")
        return (jnp.sum(self.weights * q) - self.offset)[None]

    def check(self) -> str | None:
        """See `Transmission.check`."""
        if not np.any(np.asarray(self.weights)):
            return f"weights {np.asarray(self.weights)} are all 0; it would hold nothing"
        return None


@struct
class Mimic(Transmission):
    """q[1] = ratio q[0] + offset, as in a gear pair (ratio -r₀/r₁ for outer teeth)."""

    ratio: Array | float
    offset: Array | float = 0.0
    coordinates: ClassVar[int] = 2

    def value(self, q: Array) -> Array:
        """See `Transmission.value`."""
        return (q[1] - self.ratio * q[0] - self.offset)[None]


@struct
class RackAndPinion(Transmission):
    """q[1] = radius q[0] + offset: a pinion that turns by q[0] [rad] moves a rack by q[1] [m].

    radius: pitch radius [m], negative where the rack runs the other way
    """

    radius: Array | float
    offset: Array | float = 0.0
    coordinates: ClassVar[int] = 2

    def value(self, q: Array) -> Array:
        """See `Transmission.value`."""
        return Mimic(self.radius, self.offset).value(q)

    def check(self) -> str | None:
        """See `Transmission.check`."""
        if np.any(np.asarray(self.radius) == 0):
            return f"radius {self.radius} must not be 0; a rack that stands still is a Lock"
        return None


@struct
class Differential(Transmission):
    """q[0] = ratio (q[1] + q[2]) / 2: the ring turns by q[0], the two output shafts by q[1], q[2].

    Their torques are equal, ratio / 2 times that of the ring, however fast each of them turns.
    """

    ratio: Array | float = 1.0
    coordinates: ClassVar[int] = 3

    def value(self, q: Array) -> Array:
        """See `Transmission.value`."""
        return (q[0] - self.ratio * (q[1] + q[2]) / 2)[None]

    def check(self) -> str | None:
        """See `Transmission.check`."""
        if np.any(np.asarray(self.ratio) == 0):
            return f"ratio {self.ratio} must not be 0; it would hold the ring alone"
        return None


@struct
class Follower(Transmission):
    """The last coordinate is a function of the others, as the patella follows the knee."""

    function: Function

    def value(self, q: Array) -> Array:
        """See `Transmission.value`."""
        return (q[-1] - self.function.value(q[:-1]))[None]

    def check(self) -> str | None:
        """See `Transmission.check`."""
        problem = self.function.check()
        return None if problem is None else f"function: {type(self.function).__name__} {problem}"


@struct
class SwingCone(Transmission):
    """What is left of an elliptic cone for two angles of a joint: with `Limits(lower=0.0)` on it,
    their swing stays inside.

        f = (1 - ρ) √(major minor),    ρ² = (q[first] / major)² + (q[second] / minor)²

    With major = minor it is the angle to the cone. At its centre, where the cone is far and f has
    no slope, that of the first coordinate stands in.

    major, minor: half the openings along the two coordinates [rad, or m for distances]
    first, second: which coordinates of the joints these are
    """

    major: Array | float
    minor: Array | float
    first: int = static(default=0, kw_only=True)
    second: int = static(default=1, kw_only=True)

    def value(self, q: Array) -> Array:
        """See `Transmission.value`."""
        if max(self.first, self.second) >= len(q) or self.first == self.second:
            raise ValueError(f"first {self.first} and second {self.second} must be two of {len(q)}")
        a, b = q[self.first] / self.major, q[self.second] / self.minor
        square = a * a + b * b
        # Protects the root from 0, where its slope is infinite and then not defined.
        central = square < CENTRE**2
        swing = jnp.where(central, a, jnp.sqrt(jnp.where(central, 1.0, square)))
        return ((1 - swing) * jnp.sqrt(self.major * self.minor))[None]

    def check(self) -> str | None:
        """See `Transmission.check`."""
        for name in ("major", "minor"):
            if not np.all(np.asarray(getattr(self, name)) > 0):
                return f"{name} {getattr(self, name)} must be > 0"
        return None
