"""Angles and rotation vectors that wind on from their last known values."""

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.spatial import arctan2, dot, norm, unit


def twist_part(q: Array, axis: Array) -> Array:
    """Unit quaternion of the rotation about a unit axis nearest to the rotation q, (4, *b)."""
    w, along_axis = q[0], dot(axis, q[1:])
    # Protects the direction of (0, 0): a tilt by exactly 180° leaves no turn; it reads 0 there.
    lost = w * w + along_axis * along_axis <= jnp.finfo(w.dtype).tiny
    w = jnp.where(lost, jnp.ones_like(w), w)
    return unit(jnp.concatenate([w[None], along_axis[None] * axis], axis=0))


def twist_angle(turn: Array, axis: Array, near: Array | None) -> Array:
    """Angle [rad] of a rotation about a unit axis, shape (1, *b).

    near: an angle nearby, shape (1, *b), whose turn is kept; 0 by default
    """
    return nearest_turn(2 * arctan2(dot(axis, turn[1:]), turn[0])[None], near)


def nearest_turn(angle: Array, near: Array | None) -> Array:
    """The angle [rad] plus whole turns, within half a turn of `near` (0 by default)."""
    ahead = -angle if near is None else near - angle
    return angle + 2 * jnp.pi * jnp.round(ahead / (2 * jnp.pi))


def unwind(r: Array, near: Array) -> Array:
    """The rotation vector of the same rotation as r that lies nearest to `near`, shape (3, *b)."""
    near = jax.lax.stop_gradient(near)
    angle = norm(r)
    # Protects the division from r = 0, where the axis is that of `near`.
    turning = (angle > 0)[None]
    along = jnp.where(turning, r / jnp.where(turning, angle[None], 1.0), unit(near))
    turns = jnp.round((dot(along, near) - angle) / (2 * jnp.pi))
    return r + (2 * jnp.pi) * jax.lax.stop_gradient(turns)[None] * along
