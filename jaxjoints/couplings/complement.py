"""Complements of a motion subspace, and the one axis that its rotations may share."""

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.dense import inverse, multiply, product
from ..algebra.spatial import dot, norm, transpose, unit


def metric(x: Array, length: Array | float) -> Array:
    """H x for H = diag(1, 1, 1, ℓ², ℓ², ℓ²) over the leading six components of x (6, n, *b).

    length: ℓ, a number or (*b)
    """
    return jnp.concatenate([x[:3], _leading(length, x) ** 2 * x[3:]], axis=0)


def orthonormal_complement(S: Array, length: Array | float = 1.0) -> Array:
    """Complement E of S (6, k, *b), shape (6, 6 - k, *b), with Eᵀ H S = 0 and Eᵀ H E = 1.

    It takes Householder reflections with pivoting. The order and the signs of the columns may
    change from pose to pose; their span changes with that of S alone.

    length: ℓ of H, see `metric` [m]
    """
    k, flat = S.shape[1], (1,) * (S.ndim - 2)
    index = jnp.arange(6).reshape(6, *flat)
    weight = jnp.where(index[:, None] < 3, jnp.ones((), S.dtype), _leading(length, S))
    X = S * weight
    Q = jnp.broadcast_to(jnp.eye(6, dtype=S.dtype).reshape(6, 6, *flat), (6, 6, *S.shape[2:]))
    free = jnp.ones((6, *S.shape[2:]), S.dtype)
    for j in range(k):
        x = X[:, j] * free
        pivot = (index == jnp.argmax(jnp.abs(x), axis=0)[None]).astype(S.dtype)
        entry = jnp.sum(x * pivot, axis=0)
        reflector = x + jnp.where(entry < 0, -norm(x), norm(x))[None] * pivot
        # Protects the division from a column that depends on the earlier ones.
        square = jnp.sum(reflector * reflector, axis=0)
        scale = jnp.where(square > 0, 2 / jnp.where(square > 0, square, 1.0), 0.0)
        scaled = scale[None] * reflector
        X = X - scaled[:, None] * jnp.sum(reflector[:, None] * X, axis=0)[None]
        Q = Q - jnp.sum(Q * scaled[None], axis=1)[:, None] * reflector[None]
        free = free * (1 - pivot)
    column = jnp.cumsum(free, axis=0)[:, None] - 1
    places = jnp.arange(6 - k, dtype=S.dtype).reshape(1, 6 - k, *flat)
    kept = jnp.where(column == places, free[:, None], 0.0)
    return product(Q, kept) / weight


def _leading(length: Array | float, like: Array) -> Array:
    """A length (*b) with axes of size 1 in front, to the number of axes of `like`."""
    length = jnp.asarray(length, like.dtype)
    return length.reshape((1,) * (like.ndim - length.ndim) + length.shape)


def single_axis(S: Array) -> tuple[Array, Array]:
    """Unit axis of the angular velocities S (3, k), and whether all of them lie along it."""
    M = product(S, transpose(S))
    size = jnp.diagonal(M)
    axis = unit(multiply(M, jax.nn.one_hot(jnp.argmax(size), 3, dtype=S.dtype)))
    rest = jnp.sum(size) - dot(axis, multiply(M, axis))
    return axis, rest <= 1e3 * jnp.finfo(S.dtype).eps * jnp.sum(size)


def regular_inverse(A: Array) -> Array:
    """Inverse of square matrices A (r, r, *b) whose diagonals are raised by a few roundings."""
    # Protects the inverse from coordinates that do not move the pose, alone or together (gimbal
    # lock): dependent coordinates then share the motion, and the inverse stays bounded.
    unit = jnp.eye(len(A), dtype=A.dtype).reshape(len(A), len(A), *(1,) * (A.ndim - 2))
    size = jnp.abs(jnp.sum(A * unit, axis=1))
    added = jnp.where(size > 0, 16 * jnp.finfo(A.dtype).eps * size, 1.0)
    return inverse(A + added[:, None] * unit)
