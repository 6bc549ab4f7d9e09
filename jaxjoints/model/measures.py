"""What is read off a state: coordinates, errors, poses, energy, momentum."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.pytree import expand
from ..algebra.spatial import Pose, cross, dot, matvec, quat_rotate, quat_rotate_inverse
from ..laws.limits import LimitForce, Limits, Lock
from .batch import batch_shape, read_out
from .groups import ContactGroup, JointGroup, TransmissionGroup
from .kinematics import (
    Mechanism,
    body_twists,
    coordinate_speeds,
    gather_coordinates,
    joint_coordinates,
    moving_bodies,
    prepare,
    system_kinematics,
    transmission_rows,
    with_unit_quaternions,
    with_world,
)
from .state import STATE_RANKS, State
from .system import System


@public
@read_out
def coordinates(system: System, state: State) -> Array:
    """Coordinates of all joints, continued from `state.q`, shape (coordinates, *batch)."""
    mechanism, state = _ready(system, state)
    kinematics = system_kinematics(mechanism, state)
    return joint_coordinates(mechanism, kinematics, state)


def coordinate_motion(system: System, state: State) -> tuple[Array, Array]:
    """Coordinates of all joints, and the speeds along them of the bodies as they move, whether that
    is on the joints' surfaces or not, shape (coordinates, *batch) each.
    """
    mechanism, state = _ready(system, state)
    kinematics, twist = system_kinematics(mechanism, state), with_world(body_twists(state))
    along = [
        coordinate_speeds(group, joint, twist)
        for group, joint in zip(mechanism.system.groups, kinematics.joints, strict=True)
    ]
    q = joint_coordinates(mechanism, kinematics, state)
    return q, gather_coordinates(mechanism, along, state)


@public
@read_out
def gaps(system: System, state: State) -> Array:
    """Gap of each contact [m], negative where its bodies overlap, shape (contacts, *batch)."""
    mechanism, state = _ready(system, state)
    contacts = system_kinematics(mechanism, state).contacts
    found = jnp.zeros((len(system.topology.contacts), *state.time.shape), state.q.dtype)
    for group, contact in zip(mechanism.system.contacts, contacts, strict=True):
        found = found.at[np.array(group.members)].set(contact.frame.gap)
    return found


@public
@read_out
def joint_errors(system: System, state: State) -> Array:
    """Largest bilateral error of each joint [m or rad], shape (joints, *batch).

    Transmissions and constraints have `transmission_errors` and `constraint_errors`. `Info.error`
    is the largest error of all three kinds.
    """
    return element_errors(*_ready(system, state))[: len(system.topology.joints)]


@public
@read_out
def transmission_errors(system: System, state: State) -> Array:
    """Largest |value| of each transmission among its values that are held at 0, in their unit.

    Shape (transmissions, *batch); 0 for a transmission whose values all have laws.
    """
    first = len(system.topology.joints)
    errors = element_errors(*_ready(system, state))
    return errors[first : first + len(system.topology.transmissions)]


@public
@read_out
def constraint_errors(system: System, state: State) -> Array:
    """Largest error of the rows of each constraint, in their unit, shape (constraints, *batch)."""
    first = len(system.topology.joints) + len(system.topology.transmissions)
    return element_errors(*_ready(system, state))[first:]


def element_errors(mechanism: Mechanism, state: State) -> Array:
    """Largest bilateral error of each joint, then of each transmission with values that are kept at
    0, then of each constraint, shape (joints + transmissions + constraints, *batch).
    """
    system, kinematics = mechanism.system, system_kinematics(mechanism, state)
    first = len(system.topology.joints)
    second = first + len(system.topology.transmissions)
    count = second + len(system.topology.constraints)
    errors = jnp.zeros((count, *state.time.shape), state.q.dtype)
    for group, joint in zip(system.groups, kinematics.joints, strict=True):
        if group.coupling.dof < 6:
            worst = jnp.max(jnp.abs(joint.rows.error), axis=0)
            errors = errors.at[np.array(group.joints)].set(worst)
    for group in system.transmissions:
        if group.held:
            value, _ = transmission_rows(mechanism, group, kinematics)
            worst = jnp.max(jnp.abs(value[np.array(group.held)]), axis=0)
            errors = errors.at[first + np.array(group.members)].set(worst)
    for group, rows in zip(system.constraints, kinematics.constraints, strict=True):
        worst = jnp.max(jnp.abs(rows.error), axis=0)
        errors = errors.at[second + np.array(group.members)].set(worst)
    return errors


@public
@read_out
def body_poses(system: System, state: State) -> Pose:
    """Poses of the body frames in the world, (…, bodies, *batch)."""
    _, state = _ready(system, state)
    com = expand(system.com, [2], state.time.ndim)
    q = state.quaternion
    return Pose(state.position - quat_rotate(q, com), q)


def kinetic_and_gravity(system: System, state: State) -> tuple[Array, Array]:
    """Kinetic energy and potential energy of gravity [J] of the moving bodies, (*batch) each."""
    mechanism, state = _ready(system, state)
    system = mechanism.system
    moving = moving_bodies(system, state.time.ndim)
    mass = jnp.where(moving, system.mass, 0.0)
    omega = quat_rotate_inverse(state.quaternion, state.omega)
    turning = jnp.where(moving, dot(omega, matvec(system.inertia, omega)), 0.0)
    kinetic = 0.5 * (mass * dot(state.velocity, state.velocity) + turning)
    potential = -mass * dot(system.gravity[:, None], state.position)
    return jnp.sum(kinetic, axis=0), jnp.sum(potential, axis=0)


@public
@read_out
def momentum(system: System, state: State) -> Array:
    """Linear momentum [kg m/s] and angular about the world's origin [kg m²/s], (6, *batch)."""
    mechanism, state = _ready(system, state)
    system = mechanism.system
    moving = moving_bodies(system, state.time.ndim)
    linear = jnp.where(moving[None], system.mass[None] * state.velocity, 0.0)
    q = state.quaternion
    spin = quat_rotate(q, matvec(system.inertia, quat_rotate_inverse(q, state.omega)))
    angular = jnp.where(moving[None], spin, 0.0) + cross(state.position, linear)
    return jnp.concatenate([jnp.sum(linear, axis=1), jnp.sum(angular, axis=1)], axis=0)


def coordinate_limits(system: System) -> np.ndarray:
    """Tightest bounds of each coordinate by its laws, (environments or 1, coordinates, 2).

    A lock that is always engaged bounds its coordinate from both sides.
    """
    return _tightest(system.groups, system.coordinates)


def value_limits(system: System) -> np.ndarray:
    """`coordinate_limits` of the values of transmissions, (environments or 1, values, 2)."""
    return _tightest(system.transmissions, system.values)


def gap_limits(system: System) -> np.ndarray:
    """`coordinate_limits` of the gaps of contacts, (environments or 1, contacts, 2)."""
    return _tightest(system.contacts, len(system.topology.contacts))


def _tightest(
    groups: Sequence[JointGroup | TransmissionGroup | ContactGroup], count: int
) -> np.ndarray:
    """Tightest bounds by the laws of some groups, count: of their coordinates in all."""
    found = []
    for group in groups:
        for law in group.laws:
            bounds = None, None
            if isinstance(law, Limits | LimitForce):
                bounds = law.lower, law.upper
            elif isinstance(law, Lock) and law.engaged is None:
                bounds = law.value, law.value
            for side, bound in enumerate(bounds):
                if bound is not None:
                    bound = np.asarray(bound, float)
                    at = [start + law.coordinate for start in group.start]
                    found.append((at, side, np.moveaxis(bound.reshape(len(at), -1), 0, 1)))
    rows = max((len(bound) for _, _, bound in found), default=1)
    limits = np.tile([-np.inf, np.inf], (rows, count, 1))
    for at, side, bound in found:
        tightest = np.minimum if side else np.maximum
        limits[:, at, side] = tightest(limits[:, at, side], bound)
    return limits


def _ready(system: System, state: State) -> tuple[Mechanism, State]:
    """Mechanism and state with the batch axes of both."""
    batch = batch_shape(system, state, None)
    state = expand(state, jax.tree.leaves(STATE_RANKS), len(batch))
    state = jax.tree.map(lambda x, r: jnp.broadcast_to(x, x.shape[:r] + batch), state, STATE_RANKS)
    return prepare(system, len(batch)), with_unit_quaternions(state)
