"""Motion of bodies without joints: gravity, forces from outside, efforts, prescribed motion."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import materialize
from ..algebra.dense import inverse, multiply
from ..algebra.spatial import cross, matvec, quat_rotate_inverse, skew
from ..assembly.impulses import effort_impulse
from ..model.external import external_wrench
from ..model.kinematics import (
    Kinematics,
    Mechanism,
    body_twists,
    moving_bodies,
    quaternion_components,
    with_world,
)
from ..model.state import Control, State


def free_velocity(
    mechanism: Mechanism,
    kinematics: Kinematics,
    state: State,
    control: Control,
    dt: Array,
    *,
    gyroscopic: str = "transport",
) -> Array:
    """Twists in body axes after dt without impulses of rows, (6, bodies + 1, *batch).

    gyroscopic: as in `SemiImplicitEuler`; "transport" leaves the turning of ω to the motion
    """
    q, before = quaternion_components(state), body_twists(state)
    inertia, inverse_inertia = mechanism.system.inertia, mechanism.inverse_inertia[:, :, :-1]
    linear, omega = before[:3], before[3:]
    spin = matvec(inertia, omega)
    if gyroscopic == "implicit":
        # (I - h [L]ₓ)⁻¹ L: ODE's implicit gyroscopic term (Lacoursière) in body axes.
        omega = materialize(multiply(inverse(inertia - dt * skew(spin)), spin))
    elif gyroscopic == "explicit":
        omega = omega - dt * matvec(inverse_inertia, cross(omega, spin))
    push = jnp.broadcast_to(dt * mechanism.system.gravity[:, None], linear.shape)
    wrench = external_wrench(mechanism, state, control, dt)
    if wrench is not None:
        force, torque = wrench[:3], quat_rotate_inverse(q, wrench[3:])
        push = push + dt * mechanism.inverse_mass[None, :-1] * force
        omega = omega + dt * matvec(inverse_inertia, torque)
    linear = linear + quat_rotate_inverse(q, push)
    twist = jnp.concatenate([linear, omega], axis=0)
    twist = with_world(_with_prescribed(mechanism, control, q, twist, before))
    return twist + effort_impulse(mechanism, kinematics, control.effort, dt)


def _with_prescribed(
    mechanism: Mechanism, control: Control, q: tuple[Array, ...], twist: Array, before: Array
) -> Array:
    """Twists with those of bodies of prescribed motion, by the control or as before."""
    prescribed = np.array(mechanism.system.topology.prescribed, int)
    if not len(prescribed):
        return twist
    if control.twist is not None:
        turn = [x[prescribed] for x in q]
        linear, angular = (quat_rotate_inverse(turn, control.twist[i : i + 3]) for i in (0, 3))
        before = before.at[:, prescribed].set(jnp.concatenate([linear, angular]))
    return jnp.where(moving_bodies(mechanism.system, twist.ndim - 2)[None], twist, before)
