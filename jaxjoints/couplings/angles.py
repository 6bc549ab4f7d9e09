"""Angles and rotation vectors continued from their last known values, so that they count turns."""

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.spatial import arctan2, dot, norm, unit


def twist_part(q: Array, axis: Array) -> Array:
    """Twist of the swing–twist decomposition of the rotation q, a unit quaternion, shape (4, *b).

    It is the rotation about the unit axis that is nearest to q.
    """
    w, along_axis = q[0], dot(axis, q[1:])
    # Protects the direction of (0, 0): a tilt by exactly 180° leaves no turn; it reads 0 there.
    undefined = w * w + along_axis * along_axis <= jnp.finfo(w.dtype).tiny
    w = jnp.where(undefined, jnp.ones_like(w), w)
    return unit(jnp.concatenate([w[None], along_axis[None] * axis], axis=0))


def twist_angle(turn: Array, axis: Array, near: Array | None) -> Array:
    """Angle [rad] of a rotation `turn` about a unit axis, by the right-hand rule, shape (1, *b).

    near: the last known angle, shape (1, *b), 0 by default; the result is within half a turn of it
    """
    return unwrap_angle(2 * arctan2(dot(axis, turn[1:]), turn[0])[None], near)


def unwrap_angle(angle: Array, near: Array | None) -> Array:
    """The angle [rad] plus a whole number of turns, within half a turn of `near` (0 by default)."""
    ahead = -angle if near is None else near - angle
    return angle + 2 * jnp.pi * jnp.round(ahead / (2 * jnp.pi))


def unwrap_rotation_vector(r: Array, near: Array) -> Array:
    """Rotation vector [rad] of the same rotation as r that is nearest to `near`, shape (3, *b)."""
    near = jax.lax.stop_gradient(near)
    angle = norm(r)
    # Protects the division from r = 0, where the axis is that of `near`.
    turning = (angle > 0)[None]
    along = jnp.where(turning, r / jnp.where(turning, angle[None], 1.0), unit(near))
    turns = jnp.round((dot(along, near) - angle) / (2 * jnp.pi))
    return r + (2 * jnp.pi) * jax.lax.stop_gradient(turns)[None] * along
