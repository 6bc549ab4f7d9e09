"""Accelerations at an instant, to compare with those of other engines."""

import jax
import jax.numpy as jnp

from jaxjoints.dynamics.acceleration import accelerations


@jax.jit
def rates(system, state, control):
    """q̈ of all coordinates, and accelerations of all bodies (linear, angular) in world axes."""
    now = accelerations(system, state, control)
    return now.qdd, jnp.concatenate([now.linear, now.angular])
