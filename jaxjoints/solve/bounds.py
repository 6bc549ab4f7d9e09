"""The mathematics of a `Bound`: the smoothed complementarity of an impulse with its speed.

A bounded impulse lo ≤ λ ≤ hi is complementary to w = σ u + bias + compliance λ: w > 0 where λ = lo,
w < 0 where λ = hi, w = 0 between. With U = λ - c w, any c > 0, that is Φ = 0 for

    Φ = λ - lo - p(U - lo) + p(U - hi),    p(x) = (x + √(x² + 4κ)) / 2,    κ = (c ν)²,

a smoothed projection (Chen & Harker 1993; Kanzow 1996; Smale 1986); ν, a speed, is the smoothing.
Its slope is a = p'(U - lo) - p'(U - hi), the share in which the bound lets λ follow U. Friction has
bounds that follow the impulse Λₙ of another row, lo - μ |Λₙ| and hi + μ |Λₙ|.

The scale c is 1/A_ii + K₀ of the row, K₀ the augmented stiffness of its linear law, and of two
bounds 1/(1/c + compliance): the step to w = 0 of a law alone. A larger one would leap from bound to
bound where the compliance is larger than 1/c.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import replace
from .forces import Bound

# Least smoothing [m/s or rad/s], for the precision of float32, 64.
LEAST_SPEED = {4: 1e-6, 8: 1e-10}


def impulse_scale(bound: Bound, c: Array) -> Array:
    """The scale of a bounded impulse, from c of its rows."""
    return c if bound.upper is None else c / (1 + c * bound.compliance)


def widened(bound: Bound, Λ: Array) -> Bound:
    """The bound with the width that it has at impulses Λ of the coordinate rows."""
    if bound.mu is None:
        return bound
    width = bound.mu * jnp.abs(Λ[np.array(bound.normal)])
    return replace(bound, lower=bound.lower - width, upper=bound.upper + width)


def widening(bound: Bound, λ: Array, Λ: Array, u: Array, c: Array, smoothing: Array) -> Array:
    """∂Φ/∂Λₙ: how Φ of a friction grows with the impulse that its bounds follow."""
    now, c = widened(bound, Λ), impulse_scale(bound, c)
    w = bound.sign * u + bound.bias + bound.compliance * λ
    κ = _kappa(c, smoothing)
    U = λ - c * w
    below, above = _plus(U - now.lower, κ)[1], _plus(U - now.upper, κ)[1]
    side = jnp.sign(Λ[np.array(bound.normal)])
    return (1 - below - above) * bound.mu * side


def complementarity(
    bound: Bound, λ: Array, u: Array, c: Array, smoothing: Array
) -> tuple[Array, Array]:
    """Φ of the impulses λ at the speeds u, and the slope a of their projection; c: of the rows."""
    c = impulse_scale(bound, c)
    w = bound.sign * u + bound.bias + bound.compliance * λ
    s = c * w
    κ = _kappa(c, smoothing)
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


def _kappa(c: Array, smoothing: Array) -> Array:
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
