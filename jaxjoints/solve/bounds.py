"""The mathematics of a `Bound`: a law as a convex potential of its speed.

A bounded impulse lo ≤ λ ≤ hi is a function of the speed u of its row that never grows with σ u,

    λ(U) = clip(U, lo, hi) + t(U - lo) - t(U - hi),    U = (goal - σ u) / R,

with a tail t(x) = 2κ / (|x| + √(x² + 4κ)) that rounds its corners; κ, from the smoothing ν, is 0
for the sharp λ = clip(U, lo, hi). So -λ is the slope of a convex potential of u, and no law
depends on the impulse of another. R, a speed per impulse, is the compliance of the law, and where
that is less a floor, by which a hard law would give way by R λ. It is anchored at an impulse λ₀
nearby, that of the last step or pass,

    goal = (R - compliance) λ₀ - bias,

so that λ is complementary to w = σ u + bias + compliance λ + (R - compliance) (λ - λ₀): the floor
feels only by how much an impulse differs from its anchor.

A smoothed law without `upper` is a barrier, λ w = τ (Chen & Harker 1993; Smale 1986). With
τ = s ν², s the impulse that changes the speed of the row by one, its acceleration at a distance φ
is ν²/φ, whatever mass and step are. So are the two corners of a law with `upper`, while they are
apart; R is large enough for that.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import replace, struct
from .forces import Bound

# Largest R that the smoothing gives a law with `upper`, as a share of the mobility of the row.
SOFTEST = 1e6
# Share of an impulse by which that of a barrier's speed may differ for both to agree.
AGREEING = 1e-3


@struct
class Potential:
    """A law as a function of its speed, arrays (coordinate rows, *batch).

    sign: σ; goal: σ u where U is 0 [m/s or rad/s]; resistance: R, speed per impulse
    lower, upper: bounds of the impulse; upper is infinite where there is none
    barrier: τ, impulse times speed, 0 where sharp
    scale: impulse that changes the speed by one while the compliance of the law gives way
    """

    sign: Array
    goal: Array
    resistance: Array
    lower: Array
    upper: Array
    barrier: Array
    scale: Array


def widened(bound: Bound, Λ: Array) -> Bound:
    """The bound with the width that it has at impulses Λ of the coordinate rows."""
    if bound.mu is None:
        return bound
    return within(bound, bound.mu * jnp.abs(Λ[np.array(bound.normal)]))


def within(bound: Bound, width: Array) -> Bound:
    """The bound, wider by `width` on both sides."""
    return replace(bound, lower=bound.lower - width, upper=bound.upper + width)


def potential(bound: Bound, s: Array, floor: Array, anchor: Array, smoothing: Array) -> Potential:
    """The potential of a bound whose width is given.

    s: impulse that changes the speeds of the rows by one; floor: least R as a share of 1/s
    anchor: λ₀, an impulse nearby; smoothing: ν [m/s or rad/s]
    """
    lacking = jnp.maximum(floor / s - bound.compliance, 0.0)
    R, lower, upper, scale = bound.compliance + lacking, bound.lower, bound.upper, s
    if upper is None:
        lower, upper = jnp.zeros_like(s), jnp.where(bound.present > 0, jnp.inf, 0.0)
        barrier = s * smoothing * smoothing
    else:
        half, least = (upper - lower) / 2, jnp.finfo(s.dtype).tiny ** 0.25
        scale = s / (1 + s * bound.compliance)
        barrier = scale * smoothing * smoothing
        apart = barrier / jnp.maximum(half * half, least)
        R = jnp.maximum(R, jnp.minimum(apart, SOFTEST / s))
    goal = lacking * anchor - bound.bias
    return Potential(bound.sign, goal, R, lower, upper, barrier, scale)


def position(law: Potential, u: Array) -> Array:
    """U at a speed."""
    return (law.goal - law.sign * u) / law.resistance


def value(law: Potential, U: Array) -> Array:
    """λ at a position."""
    return _rounded(law, U, law.barrier / law.resistance)[0]


def slope(law: Potential, U: Array) -> Array:
    """∂λ/∂U at a position, in [0, 1]."""
    return _rounded(law, U, law.barrier / law.resistance)[1]


def sharp_value(law: Potential, U: Array) -> Array:
    """λ at a position without smoothing."""
    return jnp.clip(U, law.lower, law.upper)


def tangent(law: Potential, U: Array, a: Array, u: Array) -> Array:
    """λ at a speed on the line that touches the law at U, of slope a."""
    return value(law, U) + a * (position(law, u) - U)


def moved(law: Potential, U: Array, a: Array, λ: Array, u: Array, slack: Array) -> Array:
    """U where the line that touches the law at U, of slope a, has the impulse λ at the speed u.

    A law that is stiffer than its row has it from the impulse, in which rounding of the speed is
    less. Others have it from the speed, and stay at a bound that this passes by no more than
    `slack`: where stops depend on each other, rounding alone would let one in and another out.
    """
    steep = a > law.resistance * law.scale / 2
    by_impulse = U + (λ - value(law, U)) / jnp.where(steep, a, 1.0)
    by_speed, room = position(law, u), slack / law.resistance
    low = (U <= law.lower) & (by_speed > law.lower) & (by_speed <= law.lower + room)
    high = (U >= law.upper) & (by_speed < law.upper) & (by_speed >= law.upper - room)
    by_speed = jnp.where(low, law.lower, jnp.where(high, law.upper, by_speed))
    # Of a barrier both, for its speed alone would throw it from side to side; and where the
    # two agree, the impulse.
    barrier = (law.barrier > 0) & jnp.isinf(law.upper)
    by_both = likely(law, λ, u)
    agree = jnp.abs(value(law, by_both) - λ) < AGREEING * λ
    alone = λ - law.barrier / (law.resistance * jnp.where(agree, λ, 1.0))
    by_both = jnp.where(agree, alone, by_both)
    return jnp.where(barrier, by_both, jnp.where(steep, by_impulse, by_speed))


def likely(law: Potential, λ: Array, u: Array) -> Array:
    """U of a law near which an impulse and a speed lie that need not belong to each other."""
    S = _measure(law)
    V = λ - S * _gap(law, λ, u)
    near, _ = _rounded(law, V, S * law.barrier)
    return near - (near - V) / (S * law.resistance)


def violation(law: Potential, λ: Array, u: Array) -> Array:
    """By what speed an impulse and a speed miss the law."""
    S = _measure(law)
    V = λ - S * _gap(law, λ, u)
    return jnp.abs(λ - _rounded(law, V, S * law.barrier)[0]) / S


def in_impact(law: Potential, λ: Array, u: Array) -> Array:
    """Whether the law lets go of much of an impulse λ at the speed u which that leaves."""
    return law.scale * jnp.abs(_gap(law, λ, u)) > jnp.abs(λ) / 4


def _measure(law: Potential) -> Array:
    """Impulse per speed by which λ and w are compared: of a smoothed law with `upper`, whose two
    corners know of each other, that by which it is defined.
    """
    smooth = (law.barrier > 0) & jnp.isfinite(law.upper)
    return jnp.where(smooth, 1 / jnp.where(smooth, law.resistance, 1.0), law.scale)


def _gap(law: Potential, λ: Array, u: Array) -> Array:
    """w, the speed to which λ is complementary."""
    return law.sign * u - law.goal + law.resistance * λ


def _rounded(law: Potential, U: Array, κ: Array) -> tuple[Array, Array]:
    """λ at a position, and its slope."""
    below, above = U <= law.lower, U >= law.upper
    (low, low_slope), (high, high_slope) = (_tail(U - x, κ) for x in (law.lower, law.upper))
    # Not jnp.clip: JAX shares its derivative where two of the three are equal.
    sharp = jnp.where(below, law.lower, jnp.where(above, law.upper, U))
    a = jnp.where(below | above, jnp.abs(low_slope - high_slope), 1 - low_slope - high_slope)
    return sharp + low - high, jnp.maximum(a, 0.0)


def _tail(x: Array, κ: Array) -> tuple[Array, Array]:
    """t(x), 0 at infinity, and the size of its slope."""
    far = jnp.isinf(x)
    x = jnp.where(far, 1.0, jnp.abs(x))
    square = x * x + 4 * κ
    # Protects derivatives of the root, and the divisions, where x and κ are 0.
    some = square > 0
    root = jnp.sqrt(jnp.where(some, square, 1.0))
    t = jnp.where(far, 0.0, 2 * κ / (x + root))
    return t, t / root
