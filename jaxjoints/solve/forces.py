"""What the force of a row may do: the kinds of rows that laws ask for."""

import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import struct


@struct
class Linear:
    """A force linear in the speed u of a coordinate at the end of the step: λ = p - K u.

    stiffness: K, impulse per speed, ≥ 0 (h d for a damper, h (h k + d) for a spring–damper)
    impulse: p, impulse at u = 0
    """

    stiffness: Array
    impulse: Array


@struct
class Hard:
    """A coordinate held on a value: N v⁺ + erp φ/h + (cfm/h) λ = 0, λ free.

    bias: erp φ/h [velocity]; compliance: cfm/h [velocity per impulse]; error: φ
    """

    bias: Array
    compliance: Array
    error: Array


@struct
class Latch:
    """A coordinate held as by `Hard` where `engaged` is 1, and free for its other laws where 0."""

    bias: Array
    compliance: Array
    error: Array
    engaged: Array


@struct
class Bound:
    """A bounded impulse λ along ±N: complementary to w = ±N v⁺ + bias + compliance λ.

    Without `upper`: 0 ≤ λ ⊥ w ≥ 0. With it: lower ≤ λ ≤ upper, w ≥ 0 at lower, w ≤ 0 at upper.
    present: 1 where the row exists, 0 where λ = 0 whatever happens
    friction: μ of bounds that are wider by μ |F|, F the force along the law's `normal` coordinate
    violation: how far a hard stop is passed, ≤ 0 there and 0 elsewhere, for position projection
    """

    sign: Array
    bias: Array
    compliance: Array
    present: Array
    violation: Array
    lower: Array | None = None
    upper: Array | None = None
    friction: Array | None = None


def zero_like(x: Array) -> Array:
    """A zero that broadcasts against x: all axes of size 1."""
    return jnp.zeros((1,) * x.ndim, x.dtype)
