"""Scalar functions of a joint's coordinates: constant, linear, polynomial, spline, and sums."""

from abc import ABC, abstractmethod
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import Numbers, static, struct


class Function(ABC):
    """Base of scalar functions f(q) of the coordinates of a joint.

    A function is a frozen record (`struct`) whose leaves are its parameters. A subclass writes
    `value(q)` in jax.numpy, and lists the coordinates that it uses in `coordinates`. The joint that
    uses a function says what its value means and in which unit.

    coordinates: numbers of the coordinates that the value depends on, from 0

    >>> @struct
    ... class Cam(Function):
    ...     radius: Array
    ...     coordinates: ClassVar[tuple[int, ...]] = (0,)
    ...     def value(self, q):
    ...         return self.radius * (1 - jnp.cos(q[0]))
    >>> print(Cam(radius=0.25).value(jnp.array([jnp.pi])))  # half a turn lifts by two radii
    0.5
    """

    coordinates: tuple[int, ...]

    @abstractmethod
    def value(self, q: Array) -> Array:
        """f(q), a scalar, shape ().

        q: all coordinates of the joint [m or rad], shape (k,)
        """

    def check(self) -> str | None:
        """What is wrong with the parameters, which are concrete numbers, as a sentence, or None."""
        return None


@struct
class Constant(Function):
    """f = number, whatever the coordinates are.

    >>> height = Constant(0.5)
    >>> print(height.value(jnp.array([1.0, 2.0])), height.value(jnp.array([3.0, 4.0])))
    0.5 0.5
    """

    number: Array | float = 0.0
    coordinates: ClassVar[tuple[int, ...]] = ()

    def value(self, q: Array) -> Array:
        return jnp.asarray(self.number, q.dtype)

    def check(self) -> str | None:
        return _check_array("number", self.number, 0)


@struct
class Linear(Function):
    """f = offset + Σ slopes[i] q[coordinates[i]].

    slopes: df/dq for each of the m coordinates, shape (m,)
    offset: f at q = 0
    coordinates: numbers of the m coordinates (static)

    >>> rope = Linear([0.25], offset=1.0)  # 1 m long, and more from a drum of radius 0.25 m
    >>> print(rope.value(jnp.array([2.0])))  # turned by 2 rad
    1.5
    """

    slopes: Numbers
    offset: Array | float = 0.0
    coordinates: tuple[int, ...] = static(default=(0,), kw_only=True)

    def value(self, q: Array) -> Array:
        slopes = jnp.asarray(self.slopes, q.dtype)
        chosen = jnp.stack([q[i] for i in self.coordinates])
        return jnp.asarray(self.offset, q.dtype) + jnp.sum(slopes * chosen)

    def check(self) -> str | None:
        if np.shape(self.slopes) != (len(self.coordinates),):
            return (
                f"slopes has shape {np.shape(self.slopes)}; give one for each of the coordinates "
                f"{self.coordinates}"
            )
        return _check_array("slopes", self.slopes, 1) or _check_array("offset", self.offset, 0)


@struct
class Polynomial(Function):
    """f = Σ coefficients[i, j, …] q_a^i q_b^j …, with (a, b, …) = coordinates.

    coefficients: of ascending powers, one axis for each coordinate, shape (n,) or (n, m) and so on
    coordinates: numbers a, b, … of the coordinates (static)

    >>> track = Polynomial([1.0, 0.0, 0.5])
    >>> print(track.value(jnp.array([2.0])))  # 1 + 0.5 · 2²
    3.0
    """

    coefficients: Numbers
    coordinates: tuple[int, ...] = static(default=(0,), kw_only=True)

    def value(self, q: Array) -> Array:
        total = jnp.asarray(self.coefficients, q.dtype)
        for coordinate in reversed(self.coordinates):
            power, total = total, jnp.zeros_like(total[..., 0])
            for i in reversed(range(power.shape[-1])):
                total = total * q[coordinate] + power[..., i]
        return total

    def check(self) -> str | None:
        if np.ndim(self.coefficients) != len(self.coordinates) or np.size(self.coefficients) == 0:
            return (
                f"coefficients has shape {np.shape(self.coefficients)}; give one axis of powers "
                f"for each of the coordinates {self.coordinates}"
            )
        return _check_array("coefficients", self.coefficients, len(self.coordinates))


@struct
class Spline(Function):
    """Natural cubic spline of one coordinate, twice continuously differentiable.

    Beyond the first and the last knot f is a straight line with the slope that it has there. The
    gradients with respect to knots and values are exact.

    knots: values of the coordinate, strictly ascending, at least 2, shape (n,)
    values: f at the knots, shape (n,)
    coordinates: the number of the coordinate, a tuple of one (static)

    >>> ramp = Spline([0.0, 1.0, 2.0], [0.0, 0.5, 1.0])
    >>> print(ramp.value(jnp.array([1.5])), ramp.value(jnp.array([4.0])))  # beyond the last knot
    0.75 2.0
    """

    knots: Numbers
    values: Numbers
    coordinates: tuple[int, ...] = static(default=(0,), kw_only=True)

    def value(self, q: Array) -> Array:
        x = q[self.coordinates[0]]
        knots, values = jnp.asarray(self.knots, q.dtype), jnp.asarray(self.values, q.dtype)
        bend = _second_derivatives(knots, values)
        inside = jnp.clip(x, knots[0], knots[-1])
        i = jnp.sum(inside >= knots[1:-1])
        h = knots[i + 1] - knots[i]
        s = inside - knots[i]
        chord = (values[i + 1] - values[i]) / h
        slope = chord - h / 6 * (2 * bend[i] + bend[i + 1])
        cubic = (bend[i + 1] - bend[i]) / (6 * h)
        along = slope + s * (bend[i] + 3 * s * cubic)
        curve = values[i] + s * (slope + s * (bend[i] / 2 + s * cubic))
        # Outside, `inside` is the first or the last knot, and the slope there continues.
        return curve + along * (x - inside)

    def check(self) -> str | None:
        if len(self.coordinates) != 1:
            return f"coordinates {self.coordinates} must be one coordinate"
        knots = np.asarray(self.knots)
        problem = _check_array("knots", knots, 1) or _check_array("values", self.values, 1)
        if problem:
            return problem
        if len(knots) < 2:
            return f"knots {knots.tolist()} must be at least 2; use Constant for one value"
        if knots.shape != np.shape(self.values):
            return f"knots has shape {knots.shape} but values {np.shape(self.values)}"
        for i in range(len(knots) - 1):
            if knots[i + 1] <= knots[i]:
                return (
                    f"knots must ascend, but knot {i + 1} = {knots[i + 1]:g} comes after "
                    f"{knots[i]:g}; sort them and leave out repeated ones"
                )
        return None


@struct
class Sum(Function):
    """f = Σ terms, the sum of other functions.

    >>> total = Sum((Constant(1.0), Linear([2.0]), Polynomial([0.0, 0.0, 1.0], coordinates=(1,))))
    >>> print(total.value(jnp.array([3.0, 4.0])))  # 1 + 2 · 3 + 4²
    23.0
    """

    terms: tuple[Function, ...]

    @property
    def coordinates(self) -> tuple[int, ...]:
        """Numbers of all coordinates that a term uses."""
        return tuple(sorted({i for term in self.terms for i in term.coordinates}))

    def value(self, q: Array) -> Array:
        return sum(term.value(q) for term in self.terms)

    def check(self) -> str | None:
        if not self.terms:
            return "terms is empty; use Constant(0.0)"
        for i, term in enumerate(self.terms):
            problem = term.check()
            if problem:
                return f"terms[{i}] {type(term).__name__} {problem}"
        return None


def check_functions(name: str, functions: tuple[Function, ...], dof: int) -> str | None:
    """What is wrong with functions of `dof` coordinates, as a sentence, or None.

    name: the field that holds them: "function" for one of them, else a field of three
    """
    expected = 1 if name == "function" else 3
    if not isinstance(functions, (tuple, list)) or len(functions) != expected:
        count = len(functions) if isinstance(functions, (tuple, list)) else 1
        return f"{name} has {count} functions; it must have {expected}"
    for i, function in enumerate(functions):
        if not isinstance(function, Function):
            return f"{name}[{i}] {function!r} is not a function; try Constant(0.0)"
        kind = f"{name}[{i}] {type(function).__name__}"
        problem = function.check()
        if problem:
            return f"{kind} {problem}"
        for coordinate in function.coordinates:
            if not 0 <= coordinate < dof:
                return f"{kind} uses coordinate {coordinate}; {name} has {dof}, numbered from 0"
    return None


def _second_derivatives(knots: Array, values: Array) -> Array:
    """f'' at the knots (n,), 0 at both ends: a tridiagonal system, by elimination."""
    h = knots[1:] - knots[:-1]
    jump = jnp.diff(jnp.diff(values) / h)
    zero = jnp.zeros((), knots.dtype)

    def eliminate(above, item):
        (upper, right), (before, after, jump) = above, item
        pivot = 2 * (before + after) - before * upper
        row = after / pivot, (6 * jump - before * right) / pivot
        return row, row

    def substitute(below, row):
        upper, right = row
        bend = right - upper * below
        return bend, bend

    _, rows = jax.lax.scan(eliminate, (zero, zero), (h[:-1], h[1:], jump))
    _, bend = jax.lax.scan(substitute, zero, rows, reverse=True)
    return jnp.concatenate([zero[None], bend, zero[None]])


def _check_array(name: str, value: Array, rank: int) -> str | None:
    value = np.asarray(value)
    if value.ndim != rank:
        return f"{name} has shape {value.shape}; it must have {rank} axes"
    if not np.isfinite(value).all():
        return f"{name} {value.tolist()} must be finite"
    return None
