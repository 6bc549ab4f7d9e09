"""Motions of several steps under the plain scheme, compiled once for all that tests ask of them."""

from functools import partial

import jax
import jax.numpy as jnp

from jaxjoints import SemiImplicitEuler, replace, replicate, step
from jaxjoints.model.kinematics import (
    body_twists,
    coordinate_speeds,
    gather_coordinates,
    system_kinematics,
    with_world,
)
from jaxjoints.simulate.surface import ready

# Steps whose closed forms tests know: no projection.
PLAIN = SemiImplicitEuler()


@partial(jax.jit, static_argnames="steps")
def after(system, state, dt, steps, control=None, scheme=PLAIN):
    """State after some steps under one control, and what each of them did (time first)."""

    def one(state, _):
        return step(system, state, control, dt=dt, scheme=scheme)

    return jax.lax.scan(one, state, None, length=steps)


@jax.jit
def at_time(system, state, dt, steps, scheme=PLAIN):
    """State after any number of steps; one compilation for all of them."""
    return jax.lax.fori_loop(
        0, steps, lambda _, state: step(system, state, dt=dt, scheme=scheme)[0], state
    )


@jax.jit
def speeds_along(system, at, moving):
    """q̇ of bodies with the velocities of one state along the coordinates of another."""
    mechanism, at = ready(system, at)
    twist = with_world(body_twists(replace(at, velocity=moving.velocity, omega=moving.omega)))
    groups = zip(mechanism.system.groups, system_kinematics(mechanism, at).joints, strict=True)
    parts = [coordinate_speeds(group, joint, twist) for group, joint in groups]
    return gather_coordinates(mechanism, parts, at)


def placed_on_rail(state, q, qd, axis=0):
    """The state of `mechanisms.slider` along an axis at distances q and speeds qd (*batch)."""
    q, qd = jnp.broadcast_arrays(jnp.asarray(q, float), jnp.asarray(qd, float))
    state = replicate(state, *q.shape)
    position, velocity = state.position.at[axis, 0].set(q), state.velocity.at[axis, 0].set(qd)
    return replace(state, position=position, velocity=velocity, q=q[None])
