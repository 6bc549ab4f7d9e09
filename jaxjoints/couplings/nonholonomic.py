"""Velocity-level (nonholonomic) and acceleration-level constraints of a coupling.

A coupling may constrain the twist v = v_CD of C relative to D, beyond the pose: a wheel must not
slip. It then states `velocity_rows` m and writes the residual ψ(T, v, t) of m components, or
`acceleration_rows` and α(T, v, a, t) with a = dv/dt. The coupling's coordinates stay those of its
poses: a sphere that rolls on a plane has 5 coordinates, q̇ = N v, and its velocity has 3 degrees of
freedom. The rows of a step h are linear in the velocity v⁺ at its end:

    V v⁺ = V v - ψ(T, v, t),                 V = ∂ψ/∂v,
    V v⁺ = V v - h α(T, v, â, t),            V = ∂α/∂a.

Here v is the velocity at the start of the step, and â the acceleration without the forces of this
step. The velocity rows are exact where ψ is linear in v. These rows have no position error, so erp
does not act on them, and cfm is the slip [m/s or rad/s] per unit force. A step removes an error of
ψ. An error of the velocity that α does not see stays, as an initial velocity would. Position
projection holds V times the displacement at 0, so it does not make the bodies slip.
"""

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.dense import multiply
from ..algebra.spatial import Pose
from .coupling import Coupling, CouplingRows


def extra_rows(coupling: Coupling) -> int:
    """Number of a coupling's rows at velocity level and at acceleration level together."""
    return coupling.velocity_rows + coupling.acceleration_rows


def with_velocity_rows(
    coupling: Coupling, rows: CouplingRows, T: Pose, v: Array, a: Array, t: Array
) -> CouplingRows:
    """The rows of one joint with those at velocity level and at acceleration level appended.

    The appended rows of W are V, its shape becomes (6 + m, 6). Their `error` is 0, their `drift`
    is ψ - V v at velocity level and -V v at acceleration level, and `acceleration` is α.

    v: twist v_CD, shape (6,)
    a: rate of v_CD without the forces of this step, shape (6,)
    """
    errors = rows.error.shape[0]
    W, drift = [rows.W], [rows.drift]
    acceleration = [jnp.zeros(errors + coupling.velocity_rows, v.dtype)]
    if coupling.velocity_rows:
        V = jax.jacfwd(lambda v: coupling.velocity_residual(T, v, t))(v)
        W.append(V)
        drift.append(coupling.velocity_residual(T, v, t) - multiply(V, v))
    if coupling.acceleration_rows:
        V = jax.jacfwd(lambda a: coupling.acceleration_residual(T, v, a, t))(a)
        W.append(V)
        drift.append(-multiply(V, v))
        acceleration.append(coupling.acceleration_residual(T, v, a, t))
    return CouplingRows(
        jnp.concatenate(W),
        jnp.concatenate([rows.error, jnp.zeros(extra_rows(coupling), v.dtype)]),
        rows.q,
        jnp.concatenate(drift),
        jnp.concatenate(acceleration) if coupling.acceleration_rows else None,
    )
