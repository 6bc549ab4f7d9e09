"""Softness of rows: springs and dampers, ERP and CFM, and the forces a law asks for.

Every force is a row  G v⁺ + β(φ) + (cfm/h) λ = s  with an impulse λ over a step h. A spring of
stiffness k and damping d is the row with

    erp = h k / (h k + d),    cfm / h = 1 / (h (h k + d)),

which is the implicit Euler step of that spring (ODE's manual, "How to use ERP and CFM").
"""

import jax.numpy as jnp
from jax import Array

from .pytree import struct

# Force per speed of what gives way to anything [N s/m or N m s/rad].
LEAST_RESISTANCE = 1e-12


@struct
class Softness:
    """How much the bilateral rows of a joint give way, in ODE's terms.

    erp: share of the error that one step removes, in [0, 1]; a number or one per row
    cfm: velocity per unit force that the rows allow [m/(s N) or rad/(s N m)], ≥ 0; a number or one
        per row. A joint whose cfm is positive is soft and is left alone by position projection.

    Both are a different spring at another time step: see `spring_softness`.
    """

    erp: Array | float = 0.2
    cfm: Array | float = 0.0


def spring_softness(stiffness: Array, damping: Array, dt: Array) -> tuple[Array, Array]:
    """ERP and CFM of a spring–damper over a step dt [s]: erp [1], cfm [velocity per force].

    stiffness: k [N/m or N m/rad]; damping: d [N s/m or N m s/rad]
    """
    # Protects from no spring and no damper: a row that is as good as none, and slopes along both.
    total = jnp.maximum(dt * stiffness + damping, LEAST_RESISTANCE)
    return dt * stiffness / total, 1 / total


def softness_spring(erp: Array, cfm: Array, dt: Array) -> tuple[Array, Array]:
    """Stiffness and damping of rows with given ERP and CFM > 0 over a step dt [s]."""
    return erp / (dt * cfm), (1 - erp) / cfm


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
