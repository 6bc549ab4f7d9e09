"""Transmissions: equations between the coordinates of several joints of any kind.

A transmission is a pure function f(q) of the coordinates q of its joints, in the order in which the
joints are listed. Rows on all bodies of these joints hold its values at zero:

    Σ_i ∂f/∂q_i N_i v⁺ + erp f/h + (cfm/h) λ = 0.

Here λ is the impulse of the row over a step h, and v⁺ are the velocities at the end of the step.
Where laws act on a value, they replace its row.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import Numbers, static, struct
from ..couplings.functions import Function

# Swing, as a share of the cone's opening, below which the slope is that of the first coordinate.
CENTRE = 1e-6


class Transmission(ABC):
    """Base of all transmissions: a frozen record (`struct`) whose leaves are its parameters.

    rows: number of values of f(q)
    coordinates: number of coordinates that f takes; None for any number

    >>> @struct
    ... class ScotchYoke(Transmission):
    ...     radius: Array
    ...     coordinates: ClassVar[int] = 2
    ...     def value(self, q):
    ...         return (q[1] - self.radius * jnp.sin(q[0]))[None]
    >>> print(ScotchYoke(radius=0.25).value(jnp.array([jnp.pi / 2, 0.25])))  # held: f = 0
    [0.]
    """

    rows: ClassVar[int] = 1
    coordinates: ClassVar[int | None] = None

    @abstractmethod
    def value(self, q: Array) -> Array:
        """f(q), shape (rows,).

        q: coordinates of all joints of the transmission in order [m or rad], shape (k,)
        """

    def check(self) -> str | None:
        """A sentence about wrong parameters, which are concrete numbers, or None."""
        return None


@struct
class Weighted(Transmission):
    """f = Σ weights[i] q[i] - offset: gears, mimic joints, tendons over pulleys.

    Without laws f is held at 0. With laws f is the length of a tendon less its length at q = 0, or
    the length itself with `offset` = -(length at q = 0). `Limits(upper=L)` makes it a rope that is
    tight at f = L: its rate Σ weights[i] q̇[i] is positive while the tendon lengthens.

    weights: ∂f/∂q, one for each coordinate, such as the radius of a pulley [m], shape (k,). A
        tension F turns joint i with -weights[i] F [N m], so moment arms of OpenSim are -weights
    offset: -f at q = 0, in the unit of f

    >>> tendon = Weighted(jnp.array([0.5, -0.25]))  # around one pulley, back around another
    >>> print(tendon.value(jnp.array([2.0, 1.0])))  # 0.5 m · 2 - 0.25 m · 1
    [0.75]
    """

    weights: Numbers
    offset: Array | float = 0.0

    def value(self, q: Array) -> Array:
        if self.weights.shape != q.shape:
            raise ValueError(f"weights has shape {self.weights.shape}, the coordinates {q.shape}")
        return (jnp.sum(self.weights * q) - self.offset)[None]

    def check(self) -> str | None:
        if not np.any(np.asarray(self.weights)):
            return f"weights {np.asarray(self.weights)} are all 0; it would hold nothing"
        return None


@struct
class Mimic(Transmission):
    """q[1] = ratio q[0] + offset: a joint that mimics another, or a pair of gears.

    The value is f = q[1] - ratio q[0] - offset.

    ratio: speed of the second coordinate per speed of the first. A pair of gears with radii r₀, r₁
        and external teeth, on hinges with axes in the same direction, has the ratio -r₀/r₁.
    offset: q[1] at q[0] = 0

    >>> gears = Mimic(ratio=-20 / 40)  # 20 teeth drive 40
    >>> print(gears.value(jnp.array([2.0, -1.0])), gears.value(jnp.array([2.0, -0.75])))
    [0.] [0.25]
    """

    ratio: Array | float
    offset: Array | float = 0.0
    coordinates: ClassVar[int] = 2

    def value(self, q: Array) -> Array:
        return (q[1] - self.ratio * q[0] - self.offset)[None]


@struct
class RackAndPinion(Transmission):
    """q[1] = radius q[0] + offset: a pinion at the angle q[0] [rad] holds a rack at q[1] [m].

    The value is f = q[1] - radius q[0] - offset [m].

    radius: pitch radius of the pinion [m], negative where q[1] falls as q[0] rises
    offset: position of the rack at q[0] = 0 [m]

    >>> steering = RackAndPinion(radius=0.25)
    >>> print(steering.value(jnp.array([2.0, 0.5])))  # turned by 2 rad, the rack at 0.5 m
    [0.]
    """

    radius: Array | float
    offset: Array | float = 0.0
    coordinates: ClassVar[int] = 2

    def value(self, q: Array) -> Array:
        return Mimic(self.radius, self.offset).value(q)

    def check(self) -> str | None:
        if np.any(np.asarray(self.radius) == 0):
            return f"radius {self.radius} must not be 0; a rack that stands still is a Lock"
        return None


@struct
class Differential(Transmission):
    """q[0] = ratio (q[1] + q[2]) / 2: the differential of an axle.

    q[0] is the angle of the input (the ring gear), q[1] and q[2] are the angles of the two output
    shafts. The value is f = q[0] - ratio (q[1] + q[2]) / 2. Both shafts receive the same torque,
    ratio / 2 times the torque of the input, whatever their speeds.

    ratio: speed of the input per mean speed of the shafts

    >>> axle = Differential(ratio=4.0)
    >>> print(axle.value(jnp.array([4.0, 1.0, 1.0])), axle.value(jnp.array([4.0, 2.0, 0.0])))
    [0.] [0.]
    """

    ratio: Array | float = 1.0
    coordinates: ClassVar[int] = 3

    def value(self, q: Array) -> Array:
        return (q[0] - self.ratio * (q[1] + q[2]) / 2)[None]

    def check(self) -> str | None:
        if np.any(np.asarray(self.ratio) == 0):
            return f"ratio {self.ratio} must not be 0; it would hold the ring alone"
        return None


@struct
class Follower(Transmission):
    """The last coordinate is a function of the others, as the patella follows the knee.

    The value is f = q[-1] - function(q[:-1]).

    function: a `Function` of the coordinates before the last one

    >>> from jaxjoints import functions
    >>> patella = Follower(functions.Linear([0.5], offset=0.25))
    >>> print(patella.value(jnp.array([1.0, 0.75])))  # 0.5 · 1 + 0.25
    [0.]
    """

    function: Function

    def value(self, q: Array) -> Array:
        return (q[-1] - self.function.value(q[:-1]))[None]

    def check(self) -> str | None:
        problem = self.function.check()
        return None if problem is None else f"function: {type(self.function).__name__} {problem}"


@struct
class PolynomialRelation(Transmission):
    """One sum of coordinates is a polynomial of another sum, as lengths of two tendons.

        f = Σ follower[i] q[i] - Σ_k coefficients[k] x^k,    x = Σ leader[i] q[i]

    follower, leader: weights of the two sums, one for each coordinate, shape (k,)
    coefficients: of x⁰, x¹, and so on, shape (n,)

    >>> follower, leader = jnp.array([0.0, 1.0]), jnp.array([1.0, 0.0])
    >>> squared = PolynomialRelation(follower, leader, jnp.array([1.0, 0.0, 2.0]))
    >>> print(squared.value(jnp.array([3.0, 19.0])))  # 19 = 1 + 2 · 3²
    [0.]
    """

    follower: Numbers
    leader: Numbers
    coefficients: Numbers

    def value(self, q: Array) -> Array:
        for name in ("follower", "leader"):
            shape = getattr(self, name).shape
            if shape != q.shape:
                raise ValueError(f"{name} has shape {shape}, the coordinates {q.shape}")
        x = jnp.sum(self.leader * q)
        return (jnp.sum(self.follower * q) - jnp.polyval(self.coefficients[::-1], x))[None]

    def check(self) -> str | None:
        if not np.any(np.asarray(self.follower)):
            return f"follower {np.asarray(self.follower)} is 0 throughout; nothing would follow"
        return None


@struct
class SwingCone(Transmission):
    """How far two angles of a joint are inside an elliptic cone: a limit of their swing.

        f = (1 - ρ) √(major minor),    ρ² = (q[first] / major)² + (q[second] / minor)²

    f is positive inside the cone, 0 on it and negative outside; `Limits(lower=0.0)` on f keeps the
    swing inside. With major = minor, f is the angle to the cone. In the centre of the cone f has no
    derivative; its derivative is taken along the first coordinate there.

    major, minor: half the openings along the two coordinates [rad, or m for distances], > 0
    first, second: numbers of the two coordinates among those of the joints (static)

    >>> cone = SwingCone(major=1.0, minor=1.0)
    >>> print(cone.value(jnp.array([0.375, 0.5])))  # tilted by 0.625 of 1 rad
    [0.375]
    """

    major: Array | float
    minor: Array | float
    first: int = static(default=0, kw_only=True)
    second: int = static(default=1, kw_only=True)

    def value(self, q: Array) -> Array:
        if max(self.first, self.second) >= len(q) or self.first == self.second:
            raise ValueError(f"first {self.first} and second {self.second} must be two of {len(q)}")
        a, b = q[self.first] / self.major, q[self.second] / self.minor
        square = a * a + b * b
        # Protects the root from 0, where its slope is infinite and then not defined.
        central = square < CENTRE**2
        swing = jnp.where(central, a, jnp.sqrt(jnp.where(central, 1.0, square)))
        return ((1 - swing) * jnp.sqrt(self.major * self.minor))[None]

    def check(self) -> str | None:
        for name in ("major", "minor"):
            if not np.all(np.asarray(getattr(self, name)) > 0):
                return f"{name} {getattr(self, name)} must be > 0"
        return None
