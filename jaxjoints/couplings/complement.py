"""Complements of a motion subspace, and the one axis that its rotations may share."""

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.dense import inverse, multiply, product
from ..algebra.spatial import dot, norm, transpose, unit


def metric(x: Array, length: float) -> Array:
    """H x for H = diag(1, 1, 1, ℓ², ℓ², ℓ²) over the leading six components of x (6, n)."""
    return jnp.concatenate([x[:3], length**2 * x[3:]], axis=0)


def orthonormal_complement(S: Array, length: float = 1.0) -> Array:
    """Complement E of S (6, k), shape (6, 6 - k), with Eᵀ H S = 0 and Eᵀ H E = 1.

    It takes Householder reflections with pivoting. The order and the signs of the columns may
    change from pose to pose; their span changes with that of S alone.

    length: ℓ of H, see `metric` [m]
    """
    k = S.shape[1]
    weight = jnp.concatenate([jnp.ones(3, S.dtype), jnp.full(3, length, S.dtype)])
    X = S * weight[:, None]
    Q = jnp.eye(6, dtype=S.dtype)
    free = jnp.ones(6, S.dtype)
    for j in range(k):
        x = X[:, j] * free
        pivot = jax.nn.one_hot(jnp.argmax(jnp.abs(x)), 6, dtype=S.dtype)
        entry = jnp.sum(x * pivot)
        reflector = x + jnp.where(entry < 0, -norm(x), norm(x)) * pivot
        # Protects the division from a column that depends on the earlier ones.
        square = jnp.sum(reflector * reflector)
        scale = jnp.where(square > 0, 2 / jnp.where(square > 0, square, 1.0), 0.0)
        X = X - scale * reflector[:, None] * jnp.sum(reflector[:, None] * X, axis=0)[None]
        Q = Q - scale * jnp.sum(Q * reflector[None], axis=1)[:, None] * reflector[None]
        free = free * (1 - pivot)
    column = jnp.cumsum(free)[:, None] - 1
    kept = jnp.where(column == jnp.arange(6 - k, dtype=S.dtype)[None], free[:, None], 0.0)
    return product(Q, kept) / weight[:, None]


def single_axis(S: Array) -> tuple[Array, Array]:
    """Unit axis of the angular velocities S (3, k), and whether all of them lie along it."""
    M = product(S, transpose(S))
    size = jnp.diagonal(M)
    axis = unit(multiply(M, jax.nn.one_hot(jnp.argmax(size), 3, dtype=S.dtype)))
    rest = jnp.sum(size) - dot(axis, multiply(M, axis))
    return axis, rest <= 1e3 * jnp.finfo(S.dtype).eps * jnp.sum(size)


def regular_inverse(A: Array) -> Array:
    """Inverse of a square matrix A whose diagonal is raised by a few roundings."""
    # Protects the inverse from coordinates that do not move the pose, alone or together (gimbal
    # lock): dependent coordinates then share the motion, and the inverse stays bounded.
    size = jnp.abs(jnp.diagonal(A))
    added = jnp.where(size > 0, 16 * jnp.finfo(A.dtype).eps * size, 1.0)
    return inverse(A + jnp.diag(added))
