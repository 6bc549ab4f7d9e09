"""Rows at velocity and acceleration level: what a coupling forbids beyond poses.

Any coupling may state `velocity_rows` m and write ψ(T, v, t) of m components (a wheel's slip), or
`acceleration_rows` and α(T, v, a, t), for the twist v = v_CD (linear, angular) in C and the rate a
of its components. Its coordinates stay those of its poses, so a sphere that rolls on a plane has 5
of them, q̇ = N v, and 3 velocities. Over a step h the rows are, linearized at v, the velocity at its
start, and with â, the acceleration without the forces of this step,

    V v⁺ = V v - ψ(T, v, t),                 V = ∂ψ/∂v,
    V v⁺ = V v - h α(T, v, â, t),            V = ∂α/∂a,

exact at once where ψ is linear in v. They have no position error, so ERP has no part in them; cfm
is the slip per unit force. Errors of ψ are removed within a step, those of α stay, as an initial
velocity would. Position projection holds V times the displacement at 0: it does not slip.
"""

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.dense import multiply
from ..algebra.spatial import Pose
from .coupling import Coupling, CouplingRows


def extra_rows(coupling: Coupling) -> int:
    """Number of rows at velocity and acceleration level together."""
    return coupling.velocity_rows + coupling.acceleration_rows


def with_velocity_rows(
    coupling: Coupling, rows: CouplingRows, T: Pose, v: Array, a: Array, t: Array
) -> CouplingRows:
    """Rows of one joint followed by those at velocity level, then at acceleration level.

    W gets the rows V, shape (6 + m, 6), `error` zeros, `drift` ψ - V v or -V v, and
    `acceleration` α.

    v: v_CD; a: rate of v_CD without the forces of this step, shape (6,) each
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
