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
from dataclasses import dataclass
from dataclasses import replace as with_fields
from functools import cached_property, reduce
from operator import add

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import materialize
from ..algebra.places import spread, take
from ..algebra.pytree import replace, static, struct
from .forces import Bound

# Largest R that the smoothing gives a law with `upper`, as a share of the mobility of the row.
SOFTEST = 1e6
# Roundings of the speed by which a law gives way: it cancels the law's bias.
ROUNDING = 2


@dataclass(frozen=True)
class LawRows:
    """Which coordinate rows the bounded laws of a problem act on. The laws of one bound stand after
    those of another, each in the order of its coordinate rows.

    bounds: for each bound of the problem the coordinate rows that have its law
    count: number of coordinate rows
    normal: for each law the coordinate row whose impulse widens its bounds, its own for none
    across: for each law the other law of its round cone, itself for none; () without any cone
    """

    bounds: tuple[tuple[int, ...], ...]
    count: int
    normal: tuple[int, ...]
    across: tuple[int, ...]

    @classmethod
    def of(cls, bounds: Sequence[Bound], count: int) -> "LawRows":
        """Those of the bounds of a problem with `count` coordinate rows."""
        all_rows = np.arange(count)
        rows = [np.setdiff1d(all_rows, np.array(bound.absent, int)) for bound in bounds]
        normal, across, first = [], [], 0
        for bound, own in zip(bounds, rows, strict=True):
            normal += np.array(bound.normal or all_rows)[own].tolist()
            partner = np.array(bound.across or all_rows)[own]
            across += (first + np.searchsorted(own, partner)).tolist()
            first += len(own)
        cones = any(bound.across for bound in bounds)
        own = tuple(tuple(x.tolist()) for x in rows)
        return cls(own, count, tuple(normal), tuple(across) if cones else ())

    @cached_property
    def row(self) -> np.ndarray:
        """The coordinate row of each law."""
        return np.concatenate([np.array(rows, int) for rows in self.bounds])

    @cached_property
    def first(self) -> np.ndarray:
        """The first law of each bound but the first bound."""
        return np.cumsum([len(rows) for rows in self.bounds])[:-1]

    @cached_property
    def round(self) -> np.ndarray:
        """True for the laws of round cones."""
        laws = np.arange(len(self.row))
        return (np.array(self.across) if self.across else laws) != laws

    def without_cones(self) -> "LawRows":
        """The same rows, each law by itself."""
        return with_fields(self, across=())

    def packed(self, x: Sequence[Array]) -> Array:
        """Numbers of all laws, (laws, *batch), from an array (coordinate rows, *batch) for each
        bound.
        """
        parts = [take(y, np.array(rows, int), 0) for y, rows in zip(x, self.bounds, strict=True)]
        batch = jnp.broadcast_shapes(*(y.shape[1:] for y in parts))
        return jnp.concatenate([jnp.broadcast_to(y, (len(y), *batch)) for y in parts])

    def unpacked(self, x: Array) -> Array:
        """The inverse of `packed`, (bounds, coordinate rows, *batch); 0 where no law is."""
        return jnp.stack(self._by_row(x))

    def at_laws(self, x: Array) -> Array:
        """Numbers of the coordinate row of each law, from those of all coordinate rows."""
        return materialize(take(x, self.row, 0))

    def summed(self, x: Array) -> Array:
        """The sum over the laws of each coordinate row; XLA fuses it with its readers."""
        # Stored: a concatenation would compute it part by part, number by number.
        return reduce(add, self._by_row(materialize(x)))

    def others(self, rest: Array, x: Array) -> Array:
        """For each law, `rest` of its coordinate row and the sum over the other laws of this row.

        Not the whole sum less the law itself, which would round off small summands.
        """
        each = self._by_row(x)
        sums = [
            sum((y for j, y in enumerate(each) if j != k), rest) for k in range(len(self.bounds))
        ]
        return materialize(self.packed(sums))

    def _by_row(self, x: Array) -> list[Array]:
        """For each bound the numbers of its laws at all coordinate rows, 0 where it has none."""
        parts = zip(jnp.split(x, self.first), self.bounds, strict=True)
        return [spread(y, np.array(rows, int), self.count) for y, rows in parts]


@struct
class Laws:
    """All bounds of a problem as one record, arrays (laws, *batch); fields as in `Bound`.

    mu: 0 where a bound is fixed, None where all are fixed
    """

    sign: Array
    bias: Array
    compliance: Array
    lower: Array
    upper: Array
    mu: Array | None
    rows: LawRows = static()


@struct
class Potential:
    """All bounded laws of a problem as functions of their speeds, arrays (laws, *batch).

    sign: σ; goal: σ u where U is 0 [m/s or rad/s]; resistance: R, speed per impulse
    lower, upper: bounds of the impulse; upper is infinite for a one-sided law
    scale: impulse that changes the speed by one while the compliance of the law gives way
    barrier: τ, impulse times speed; None for sharp laws
    """

    sign: Array
    goal: Array
    resistance: Array
    lower: Array
    upper: Array
    scale: Array
    barrier: Array | None
    rows: LawRows = static()


def stacked(bounds: Sequence[Bound], count: int) -> Laws:
    """All bounds of a problem with `count` coordinate rows as one record.

    All laws have `lower` and `upper`.
    """
    rows, none = LawRows.of(bounds, count), jnp.zeros_like(bounds[0].bias)
    fields = []
    for bound in bounds:
        lower, upper = bound.lower, bound.upper
        if upper is None:
            lower, upper = none, jnp.where(bound.present > 0, jnp.inf, none)
        fields.append((bound.sign, bound.bias, bound.compliance, lower, upper))
    mu = None
    if any(bound.mu is not None for bound in bounds):
        mu = rows.packed([none if bound.mu is None else bound.mu for bound in bounds])
    return Laws(*map(rows.packed, zip(*fields, strict=True)), mu, rows)


def widened(laws: Laws, Λ: Array) -> Laws:
    """Laws whose bounds are widened by μ |Λₙ|; Λ: impulses of the coordinate rows."""
    if laws.mu is None:
        return laws
    width = laws.mu * jnp.abs(take(Λ, np.array(laws.rows.normal), 0))
    return replace(laws, lower=laws.lower - width, upper=laws.upper + width)


def potential(
    laws: Laws, s: Array, floor: Array, anchor: Array, smoothing: Array | None
) -> Potential:
    """The potentials of stacked and `widened` laws.

    s: impulse that changes the speed of each coordinate row by one, (coordinate rows, *batch)
    anchor: λ₀, impulses nearby; smoothing: ν [m/s or rad/s], None for sharp laws
    floor: least R as a share of 1/s, (laws, *batch)
    """
    lower, upper, soft, rows = laws.lower, laws.upper, laws.compliance, laws.rows
    s = rows.at_laws(s)
    if rows.across:
        # Both rows of a cone have one law, with the mean of their numbers.
        s, soft, lower, upper = (
            (x + of_partners(rows, x)) / 2 for x in jnp.broadcast_arrays(s, soft, lower, upper)
        )
    lacking = jnp.maximum(floor / s - soft, 0.0)
    R, barrier, endless = soft + lacking, None, jnp.isinf(upper)
    scale = jnp.where(endless, s, s / (1 + s * soft))
    if smoothing is not None:
        barrier, least = scale * smoothing * smoothing, jnp.finfo(s.dtype).tiny ** 0.25
        half = jnp.where(endless, 1.0, upper - lower) / 2
        apart = jnp.where(endless, 0.0, barrier / jnp.maximum(half * half, least))
        R = jnp.maximum(R, jnp.minimum(apart, SOFTEST / s))
    goal = lacking * anchor - laws.bias
    return Potential(laws.sign, goal, R, lower, upper, scale, barrier, rows)


def of_partners(rows: LawRows, x: Array) -> Array:
    """x (laws, *batch) of the other law of each round cone; other laws keep their own numbers."""
    # Stored before and after: within another kernel XLA would gather number by number.
    return materialize(take(materialize(x), np.array(rows.across), 0))


def in_cone(law: Potential, like: Array) -> Array:
    """True for the laws of round cones, (laws, *1)."""
    return jnp.asarray(law.rows.round).reshape(-1, *(1,) * (like.ndim - 1))


def radius(law: Potential, U: Array) -> Array:
    """|U|, or |λ|, of both laws of a round cone; U itself for laws without a cone."""
    if not law.rows.across:
        return U
    square = U * U + of_partners(law.rows, U) ** 2
    # Protects derivatives of the root and of divisions by it from squares that underflow: after a
    # contact has let go, its impulses fall by powers of ten in each step.
    some = square > jnp.finfo(U.dtype).tiny ** 0.8
    length = jnp.where(some, jnp.sqrt(jnp.where(some, square, 1.0)), 0.0)
    return jnp.where(in_cone(law, U), length, U)


def total(laws: Potential, λ: Array) -> Array:
    """Σ σ λ of each coordinate row."""
    return laws.rows.summed(laws.sign * λ)


def position(law: Potential, u: Array) -> Array:
    """U at a speed."""
    return (law.goal - law.sign * u) / law.resistance


def value(law: Potential, U: Array) -> Array:
    """λ at a position."""
    return _rounded(law, U, 1 / law.resistance)[0]


def slope(law: Potential, U: Array) -> Array:
    """∂λ/∂U at a position, in [0, 1]."""
    return _rounded(law, U, 1 / law.resistance)[1]


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
    return jnp.where(steep, by_impulse, by_speed)


def likely(law: Potential, λ: Array, u: Array) -> Array:
    """U of the point of a law near an impulse and a speed, which need not fit each other."""
    S = _measure(law)
    V = λ - S * _gap(law, λ, u)
    near, _ = _rounded(law, V, S)
    return near - (near - V) / (S * law.resistance)


def violation(law: Potential, λ: Array, u: Array) -> Array:
    """Distance of an impulse and a speed from the law, as a speed, beyond the rounding of the speed
    by which a soft law gives way.
    """
    S = _measure(law)
    V = λ - S * _gap(law, λ, u)
    rounding = ROUNDING * jnp.finfo(λ.dtype).eps * law.resistance * jnp.abs(λ)
    return jnp.maximum(jnp.abs(λ - _rounded(law, V, S)[0]) / S - rounding, 0.0)


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
    if law.rows.across:
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
