"""Bounded impulses: the smoothed complementarity of one with its speed, and its slope.

A bounded impulse lo ≤ λ ≤ hi is complementary to w = σ u + bias + compliance λ: w > 0 where λ = lo,
w < 0 where λ = hi, w = 0 between. With U = λ - c w, any c > 0, that is Φ = 0 for

    Φ = λ - lo - p(U - lo) + p(U - hi),    p(x) = (x + √(x² + 4κ)) / 2,    κ = (c ν)²,

a smoothed projection (Chen & Harker 1993; Kanzow 1996; Smale 1986); ν, a speed, is the smoothing.
Its slope is a = p'(U - lo) - p'(U - hi), the share in which the bound lets λ follow U. Friction has
bounds that follow the impulse Λₙ of another row, lo - μ |Λₙ| and hi + μ |Λₙ|.

c is 1/A_ii of the row, of two bounds 1/(A_ii + compliance): the step to w = 0 of a law on its own.
A larger one would leap from bound to bound where the compliance is larger than A_ii.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import replace, static, struct

# Least smoothing [m/s or rad/s], for the precision of float32, 64.
LEAST_SPEED = {4: 1e-6, 8: 1e-10}


@struct
class BoundedRows:
    """At most one bounded impulse for each coordinate row, arrays (coordinate rows, *batch).

    lower, upper: both None for 0 ≤ λ; present: 1 where the law acts, 0 where λ = 0
    friction: μ, None where no bound follows another impulse; normal: the coordinate row whose
        impulse Λₙ the bounds of each follow, of the same node
    """

    sign: Array
    bias: Array
    compliance: Array
    present: Array
    lower: Array | None = None
    upper: Array | None = None
    friction: Array | None = None
    normal: tuple[int, ...] = static(default=())


def own_scale(bound: BoundedRows, c: Array) -> Array:
    """c of a bounded impulse, from 1/A_ii of its rows."""
    return c if bound.upper is None else c / (1 + c * bound.compliance)


def widened(bound: BoundedRows, Λ: Array) -> BoundedRows:
    """The bound with the width that it has at impulses Λ of the coordinate rows."""
    if bound.friction is None:
        return bound
    width = bound.friction * jnp.abs(Λ[np.array(bound.normal)])
    return replace(bound, lower=bound.lower - width, upper=bound.upper + width)


def widening(bound: BoundedRows, λ: Array, Λ: Array, u: Array, c: Array, smoothing: Array) -> Array:
    """∂Φ/∂Λₙ: how Φ of a friction grows with the impulse that its bounds follow."""
    now, c = widened(bound, Λ), own_scale(bound, c)
    w = bound.sign * u + bound.bias + bound.compliance * λ
    κ = _softness(c, smoothing)
    U = λ - c * w
    below, above = _plus(U - now.lower, κ)[1], _plus(U - now.upper, κ)[1]
    side = jnp.sign(Λ[np.array(bound.normal)])
    return (1 - below - above) * bound.friction * side


def complementarity(
    bound: BoundedRows, λ: Array, u: Array, c: Array, smoothing: Array
) -> tuple[Array, Array]:
    """Φ of the impulses λ at the speeds u, and the slope a of their projection; c: 1/A_ii."""
    c = own_scale(bound, c)
    w = bound.sign * u + bound.bias + bound.compliance * λ
    s = c * w
    κ = _softness(c, smoothing)
    if bound.upper is None:
        difference = λ - s
        root = jnp.sqrt(difference * difference + 4 * κ)
        total = λ + s
        # Protects from the cancellation of z + s against the root where both are large.
        positive = total > 0
        safe = jnp.where(positive, total, 1.0) + root
        Φ = jnp.where(positive, 2 * (λ * s - κ) / safe, (total - root) / 2)
        a = bound.present * _slope(difference, root, κ)
        return jnp.where(bound.present > 0, Φ, λ), a
    below, above = λ - s - bound.lower, λ - s - bound.upper
    Φ = λ - bound.lower - _plus(below, κ)[0] + _plus(above, κ)[0]
    # Mirrored where above the middle: two slopes near 1 would leave only rounding, of either sign.
    mirrored = below > -above
    near, far = jnp.where(mirrored, -above, below), jnp.where(mirrored, -below, above)
    return Φ, jnp.maximum(_plus(near, κ)[1] - _plus(far, κ)[1], 0.0)


def _softness(c: Array, smoothing: Array) -> Array:
    """κ: the square of the impulse that the smoothing speed amounts to."""
    least = LEAST_SPEED[c.dtype.itemsize]
    return c * c * (smoothing * smoothing + least * least)


def _plus(x: Array, κ: Array) -> tuple[Array, Array]:
    """Smoothed max(x, 0) and its slope."""
    root = jnp.sqrt(x * x + 4 * κ)
    # Protects from the cancellation of x against the root where x is negative.
    negative = x < 0
    value = jnp.where(negative, 2 * κ / (root - jnp.minimum(x, 0.0)), (x + root) / 2)
    return value, _slope(x, root, κ)


def _slope(x: Array, root: Array, κ: Array) -> Array:
    """Slope of the smoothed max(x, 0), in [0, 1]."""
    # Protects from cancellation where x is negative: odds must not come out negative.
    small = 2 * κ / (root * (root - jnp.minimum(x, 0.0)))
    return jnp.where(x < 0, small, (1 + x / root) / 2)
