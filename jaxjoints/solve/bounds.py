"""The mathematics of a `Bound`: a law as a convex potential of its speed.

A bounded impulse lo ≤ λ ≤ hi is a function of the speed u of its row that never grows with σ u,

    λ(U) = clip(U, lo, hi) + t(U - lo) - t(U - hi),    U = (goal - σ u) / R,

with a tail t(x) = 2κ / (|x| + √(x² + 4κ)) that rounds its corners. The smoothing ν gives κ; κ = 0
is the sharp λ = clip(U, lo, hi). So -λ is the slope of a convex potential of u, and no law depends
on the impulse of another.

R, a speed per impulse, is the compliance of the law, or a floor where the compliance is smaller. A
hard law would give way by R λ. So the floor is anchored at an impulse λ₀, that of the last step or
pass,

    goal = (R - compliance) λ₀ - bias.

λ is then complementary to w = σ u + bias + compliance λ + (R - compliance) (λ - λ₀): the floor acts
only on the difference of an impulse from its anchor.

Two rows may share their bounds as a round cone of friction. The law is then a law of |U| of both
rows, and λ has the direction of U.

A smoothed law without `upper` is a barrier, λ w = τ (Chen & Harker 1993; Smale 1986). With
τ = s ν², s the impulse that changes the speed of the row by one, its acceleration at a distance φ
is ν²/φ, whatever mass and step are. The two corners of a law with `upper` are such barriers too; R
is large enough to keep them apart.
"""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import materialize
from ..algebra.places import take
from ..algebra.pytree import replace, static, struct
from .forces import Bound

# Largest R that the smoothing gives a law with `upper`, as a share of the mobility of the row.
SOFTEST = 1e6
# Relative difference up to which the impulse of a barrier and the impulse of its speed agree.
AGREEING = 1e-3


@struct
class Potential:
    """All bounded laws of a problem as functions of their speeds, arrays (laws, coordinate rows,
    *batch).

    sign: σ; goal: σ u where U is 0 [m/s or rad/s]; resistance: R, speed per impulse
    lower, upper: bounds of the impulse; upper is infinite for a one-sided law
    scale: impulse that changes the speed by one while the compliance of the law gives way
    barrier: τ, impulse times speed; None for sharp laws
    across: see `Bound`, for each law; () where no law has a round cone
    """

    sign: Array
    goal: Array
    resistance: Array
    lower: Array
    upper: Array
    scale: Array
    barrier: Array | None
    across: tuple[tuple[int, ...], ...] = static(default=())


def stacked(bounds: Sequence[Bound]) -> Bound:
    """All bounds of a problem as one record of arrays (laws, coordinate rows, *batch).

    All have `lower` and `upper`. `mu` is 0 where a bound is fixed, and None where all are fixed.
    """
    none = jnp.zeros_like(bounds[0].bias)
    rows = tuple(range(len(none)))
    follows = any(bound.mu is not None for bound in bounds)
    fields = []
    for bound in bounds:
        lower, upper = bound.lower, bound.upper
        if upper is None:
            lower, upper = none, jnp.where(bound.present > 0, jnp.inf, none)
        fields.append((bound.sign, bound.bias, bound.compliance, bound.present, lower, upper))
        if follows:
            fields[-1] += (none if bound.mu is None else bound.mu,)
    batch = jnp.broadcast_shapes(*(x.shape[1:] for parts in fields for x in parts))
    whole = [
        jnp.stack([jnp.broadcast_to(x, (len(rows), *batch)) for x in parts])
        for parts in zip(*fields, strict=True)
    ]
    normal = tuple(bound.normal or rows for bound in bounds)
    cones = any(bound.across for bound in bounds)
    return Bound(
        *whole,
        normal=normal,
        across=tuple(bound.across or rows for bound in bounds) if cones else (),
    )


def widened(bounds: Bound, Λ: Array) -> Bound:
    """Stacked bounds, widened by μ |Λₙ|; Λ: impulses of the coordinate rows."""
    if bounds.mu is None:
        return bounds
    width = bounds.mu * jnp.abs(Λ[np.array(bounds.normal)])
    return replace(bounds, lower=bounds.lower - width, upper=bounds.upper + width)


def potential(
    bounds: Bound, s: Array, floor: Array, anchor: Array, smoothing: Array | None
) -> Potential:
    """The potentials of stacked and `widened` bounds.

    s: impulse that changes the speed of each coordinate row by one, (coordinate rows, *batch)
    anchor: λ₀, impulses nearby; smoothing: ν [m/s or rad/s], None for sharp laws
    floor: least R as a share of 1/s, (coordinate rows, *batch)
    """
    lower, upper, soft, s = bounds.lower, bounds.upper, bounds.compliance, s[None]
    if bounds.across:
        # Both rows of a cone have one law, with the mean of their numbers.
        s, soft, lower, upper = (
            (x + of_partners(bounds.across, x)) / 2
            for x in jnp.broadcast_arrays(s, soft, lower, upper)
        )
    lacking = jnp.maximum(floor[None] / s - soft, 0.0)
    R, barrier, endless = soft + lacking, None, jnp.isinf(upper)
    scale = jnp.where(endless, s, s / (1 + s * soft))
    if smoothing is not None:
        barrier, least = scale * smoothing * smoothing, jnp.finfo(s.dtype).tiny ** 0.25
        half = jnp.where(endless, 1.0, upper - lower) / 2
        apart = jnp.where(endless, 0.0, barrier / jnp.maximum(half * half, least))
        R = jnp.maximum(R, jnp.minimum(apart, SOFTEST / s))
    goal = lacking * anchor - bounds.bias
    return Potential(bounds.sign, goal, R, lower, upper, scale, barrier, bounds.across)


def partners(laws: Bound | Potential) -> np.ndarray | None:
    """For each coordinate row the other row of its round cone, or the row itself; None if no row
    has a cone.
    """
    if not laws.across:
        return None
    rows = range(len(laws.across[0]))
    # Each row of a cone has a single law.
    return np.array([next((of[i] for of in laws.across if of[i] != i), i) for i in rows])


def of_partners(across: tuple[tuple[int, ...], ...], x: Array) -> Array:
    """x (laws, coordinate rows, *batch) of the other row of each round cone; rows without a cone
    keep their own numbers.
    """
    own = tuple(range(x.shape[1]))
    # Stored before and after: within another kernel XLA would gather number by number.
    x = materialize(x)
    pairs = zip(x, across, strict=True)
    found = [row if of == own else take(row, np.array(of), 0) for row, of in pairs]
    return materialize(jnp.stack(found))


def in_cone(law: Potential, like: Array) -> Array:
    """True for the laws of round cones, (laws, coordinate rows, *1)."""
    mask = np.array(law.across) != np.arange(like.shape[1])
    return jnp.asarray(mask).reshape(*mask.shape, *(1,) * (like.ndim - 2))


def radius(law: Potential, U: Array) -> Array:
    """|U|, or |λ|, of both rows of a round cone; U itself for laws without a cone."""
    if not law.across:
        return U
    square = U * U + of_partners(law.across, U) ** 2
    # Protects derivatives of the root and of divisions by it from squares that underflow: after a
    # contact has let go, its impulses fall by powers of ten in each step.
    some = square > jnp.finfo(U.dtype).tiny ** 0.8
    length = jnp.where(some, jnp.sqrt(jnp.where(some, square, 1.0)), 0.0)
    return jnp.where(in_cone(law, U), length, U)


def total(laws: Potential, λ: Array) -> Array:
    """Σ σ λ of each coordinate row."""
    return over_laws(laws.sign * λ)


def over_laws(x: Array) -> Array:
    """The sum over the first axis, law by law: XLA fuses such a sum with its readers."""
    return sum(x[1:], x[0])


def position(law: Potential, u: Array) -> Array:
    """U at a speed."""
    return (law.goal - law.sign * u) / law.resistance


def value(law: Potential, U: Array) -> Array:
    """λ at a position."""
    return _rounded(law, U, 1 / law.resistance)[0]


def slope(law: Potential, U: Array) -> Array:
    """∂λ/∂U at a position, in [0, 1]."""
    return _rounded(law, U, 1 / law.resistance)[1]


def sharp_value(law: Potential, U: Array) -> Array:
    """λ at a position without smoothing."""
    return _directed(law, U, lambda ρ: (jnp.clip(ρ, law.lower, law.upper),))[0]


def tangent(law: Potential, U: Array, a: Array, u: Array) -> Array:
    """λ at the speed u on the tangent of the law at U, whose slope is a."""
    return value(law, U) + a * (position(law, u) - U)


def moved(law: Potential, U: Array, a: Array, λ: Array, u: Array, slack: Array) -> Array:
    """The new U, at the impulse λ and the speed u of the tangent of the law at U, whose slope is a.

    A law that is stiffer than its row has its U from the impulse, where rounding of the speed
    matters less. Other laws have their U from the speed. They stay at their bound while the speed
    passes it by no more than `slack`: where stops depend on each other, rounding alone would
    activate one and release another.
    """
    steep = a > law.resistance * law.scale / 2
    by_impulse = U + (λ - value(law, U)) / jnp.where(steep, a, 1.0)
    by_speed, room = position(law, u), slack / law.resistance
    low = (U <= law.lower) & (by_speed > law.lower) & (by_speed <= law.lower + room)
    high = (U >= law.upper) & (by_speed < law.upper) & (by_speed >= law.upper - room)
    by_speed = jnp.where(low, law.lower, jnp.where(high, law.upper, by_speed))
    found = jnp.where(steep, by_impulse, by_speed)
    if law.barrier is None:
        return found
    # A barrier uses both, since its speed alone would make U oscillate. Where both agree, it uses
    # the impulse.
    barrier = (law.barrier > 0) & jnp.isinf(law.upper) & jnp.isfinite(law.lower)
    by_both = likely(law, λ, u)
    agree = jnp.abs(value(law, by_both) - λ) < AGREEING * λ
    alone = λ - law.barrier / (law.resistance * jnp.where(agree, λ, 1.0))
    return jnp.where(barrier, jnp.where(agree, alone, by_both), found)


def likely(law: Potential, λ: Array, u: Array) -> Array:
    """U of the point of a law near an impulse and a speed, which need not fit each other."""
    S = _measure(law)
    V = λ - S * _gap(law, λ, u)
    near, _ = _rounded(law, V, S)
    return near - (near - V) / (S * law.resistance)


def violation(law: Potential, λ: Array, u: Array) -> Array:
    """Distance of an impulse and a speed from the law, as a speed."""
    S = _measure(law)
    V = λ - S * _gap(law, λ, u)
    return jnp.abs(λ - _rounded(law, V, S)[0]) / S


def in_impact(law: Potential, λ: Array, u: Array) -> Array:
    """Whether the law would release more than a quarter of λ at the speed u that λ leaves."""
    return law.scale * jnp.abs(_gap(law, λ, u)) > jnp.abs(λ) / 4


def _measure(law: Potential) -> Array:
    """Impulse per speed that compares λ with w. For a smoothed law with `upper`, whose corners act
    on each other, it is the 1/R of its definition.
    """
    if law.barrier is None:
        return law.scale
    smooth = (law.barrier > 0) & jnp.isfinite(law.upper)
    return jnp.where(smooth, 1 / jnp.where(smooth, law.resistance, 1.0), law.scale)


def _gap(law: Potential, λ: Array, u: Array) -> Array:
    """w, the speed to which λ is complementary."""
    return law.sign * u - law.goal + law.resistance * λ


def _rounded(law: Potential, U: Array, S: Array) -> tuple[Array, Array]:
    """λ at a position, and its slope; for a round cone the slope along U. S: impulse per speed
    that makes κ of the barrier.
    """
    return _directed(law, U, lambda ρ: _of_one(law, ρ, S))


def _directed(law: Potential, U: Array, of_one: Callable) -> tuple[Array, ...]:
    """Results of `of_one`, λ first, at U, or at |U| with λ in the direction of U for a round cone.

    of_one: from U of a law of one row to λ and further numbers
    """
    ρ = radius(law, U)
    λ, *rest = of_one(ρ)
    if law.across:
        cone = in_cone(law, U)
        some = cone & (ρ > 0)
        share = jnp.where(some, λ / jnp.where(some, ρ, 1.0), jnp.where(law.upper > 0, 1.0, 0.0))
        λ = jnp.where(cone, share * U, λ)
    return λ, *rest


def _of_one(law: Potential, U: Array, S: Array) -> tuple[Array, Array]:
    """`_rounded` of a law of one row."""
    below, above = U <= law.lower, U >= law.upper
    # Not jnp.clip, which divides its derivative where two of the three arguments are equal.
    sharp = jnp.where(below, law.lower, jnp.where(above, law.upper, U))
    if law.barrier is None:
        return sharp, jnp.where(below | above, 0.0, jnp.ones_like(U))
    κ = S * law.barrier
    (low, low_slope), (high, high_slope) = (_tail(U - x, κ) for x in (law.lower, law.upper))
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
