"""Twists of bodies under the forces from outside alone."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import materialize
from ..algebra.dense import inverse, multiply
from ..algebra.spatial import cross, matvec, quat_rotate_inverse, skew
from ..model.external import external_wrench
from ..model.kinematics import Mechanism, body_twists, quaternion_components, with_world
from ..model.state import Control, State


def free_twists(
    mechanism: Mechanism,
    state: State,
    control: Control,
    dt: Array,
    *,
    gyroscopic: str = "transport",
) -> Array:
    """Twists in body axes after dt without impulses of rows, (6, bodies + 1, *batch).

    gyroscopic: as in `SemiImplicitEuler`; "transport" leaves the turning of ω to the motion
    """
    system = mechanism.system
    moving = moving_bodies(mechanism, state)
    q = quaternion_components(state)
    given = body_twists(state)
    inertia = system.inertia
    linear, omega = given[:3], given[3:]
    spin = matvec(inertia, omega)
    if gyroscopic == "implicit":
        # (I - h [L]ₓ)⁻¹ L: ODE's implicit gyroscopic term (Lacoursière) in body axes.
        omega = materialize(multiply(inverse(inertia - dt * skew(spin)), spin))
    elif gyroscopic == "explicit":
        omega = omega - dt * matvec(mechanism.inverse_inertia[:, :, :-1], cross(omega, spin))
    push = jnp.broadcast_to(dt * system.gravity[:, None], linear.shape)
    wrench = external_wrench(mechanism, state, control, dt)
    if wrench is not None:
        inverse_mass = mechanism.inverse_mass[None, :-1]
        force, torque = wrench[:3], quat_rotate_inverse(q, wrench[3:])
        push = push + dt * inverse_mass * force
        omega = omega + dt * matvec(mechanism.inverse_inertia[:, :, :-1], torque)
    linear = linear + quat_rotate_inverse(q, push)
    twist = jnp.concatenate([linear, omega], axis=0)
    prescribed = given
    still = [i for i, moves in enumerate(system.topology.moving) if not moves]
    if control.twist is not None and still:
        at = np.array(still)
        turn = [x[at] for x in q]
        wanted = jnp.concatenate(
            [
                quat_rotate_inverse(turn, control.twist[:3]),
                quat_rotate_inverse(turn, control.twist[3:]),
            ]
        )
        prescribed = prescribed.at[:, at].set(wanted)
    if still:
        twist = jnp.where(moving, twist, prescribed)
    return with_world(twist)


def moving_bodies(mechanism: Mechanism, state: State) -> np.ndarray:
    """True for bodies that obey forces, shape (1, bodies, *1)."""
    moving = np.array(mechanism.system.topology.moving)
    return moving.reshape((1, -1) + (1,) * state.time.ndim)
