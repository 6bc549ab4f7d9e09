"""Accelerations at an instant, to compare with those of other engines and with steps."""

import jax
import jax.numpy as jnp

from jaxjoints import coordinate_speeds, replace
from jaxjoints.algebra.spatial import quat_multiply
from jaxjoints.dynamics.acceleration import accelerations
from jaxjoints.model.kinematics import prepare, relative_twist


@jax.jit
def rates(system, state, control):
    """q̈ of all coordinates, and accelerations of all bodies (linear, angular) in world axes."""
    now = accelerations(system, state, control)
    return now.qdd, jnp.concatenate([now.linear, now.angular])


def state_rate(state, linear, angular):
    """How a state changes in time, by accelerations of its bodies."""
    spin = jnp.concatenate([jnp.zeros_like(state.omega[:1]), state.omega])
    return replace(
        jax.tree.map(jnp.zeros_like, state),
        position=state.velocity,
        quaternion=0.5 * quat_multiply(spin, state.quaternion),
        velocity=linear,
        omega=angular,
    )


def chart_speeds(system, state):
    """Of each joint what stays while nothing accelerates it: v_CD of a lower pair, else q̇."""
    mechanism = prepare(system, 0)
    q = coordinate_speeds(system, state)
    kept = []
    for group, start in ((group, group.start[0]) for group in mechanism.system.groups):
        twist = relative_twist(group, state)[:, 0]
        kept.append(twist if group.coupling.lower_pair else q[start : start + group.coupling.dof])
    return jnp.concatenate(kept)
