"""Where joints stand and how bodies move: relative poses, coordinates, energy, momentum."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import materialize, spread
from ..algebra.dense import inverse_of_three, multiply_transposed, product_transposed
from ..algebra.pytree import expand, map_trailing, replace, static, struct
from ..algebra.spatial import (
    Pose,
    cross,
    dot,
    matmul,
    matvec,
    quat_conjugate,
    quat_multiply,
    quat_normalize,
    quat_rotate,
    quat_rotate_inverse,
    quat_to_matrix,
)
from ..couplings.coupling import CouplingRows
from ..couplings.nonholonomic import extra_rows, with_velocity_rows
from ..laws.transmissions import Transmission
from .batch import batch_shape
from .groups import JointGroup, TransmissionGroup
from .state import STATE_RANKS, State
from .system import System


@struct
class Mechanism:
    """A system made ready for a batch: leaves of equal rank, frames about the centres of mass.

    Bodies have one more column for whatever does not move, of infinite mass.

    inverse_mass: [1/kg], shape (bodies + 1, *batch); inverse_inertia: body axes [1/(kg m²)], shape
    (3, 3, bodies + 1, *batch); both 0 for the world and bodies of prescribed motion
    orders: for each group the order in which its joints stand here, then the transmissions
    """

    system: System
    inverse_mass: Array
    inverse_inertia: Array
    orders: tuple[tuple[int, ...], ...] = static()


@struct
class JointPlaces:
    """Where the joints of one group stand; poses of shape (…, joints, *batch).

    C_in_child, C_in_parent: pose of C about the centre of mass of each body, in its axes
    D_to_C: from C's origin to D's, in C axes [m]
    rows: what the coupling says of T_CD, and of v_CD where it says something
    """

    C_in_child: Pose
    C_in_parent: Pose
    D_to_C: Array
    rows: CouplingRows


def prepare(system: System, batch: int, orders: tuple[tuple[int, ...], ...] | None = None):
    """A `Mechanism` for `batch` batch axes, the joints of each group in the given order."""
    if orders is None:
        items = [g.joints for g in system.groups] + [g.members for g in system.transmissions]
        orders = tuple(tuple(range(len(item))) for item in items)
    ranks = system.topology.ranks
    rank_tree = jax.tree.unflatten(jax.tree.structure(system), ranks)
    system = expand(system, list(ranks), batch)
    joints = len(system.groups)
    groups = [
        _about_centres(
            _ordered(group, rank, order, "joints", "child", "parent", "start"),
            with_world(system.com),
        )
        for group, rank, order in zip(system.groups, rank_tree.groups, orders, strict=False)
    ]
    transmissions = [
        _ordered(group, rank, order, "members", "joints", "bodies", "start")
        for group, rank, order in zip(
            system.transmissions, rank_tree.transmissions, orders[joints:], strict=True
        )
    ]
    moving = _moving(system, batch)
    identity = jnp.eye(3, dtype=system.inertia.dtype).reshape((3, 3) + (1,) * (batch + 1))
    # Bodies of prescribed motion: their numbers may be anything and must not reach a division.
    mass = jnp.where(moving, system.mass, 1.0)
    inertia = jnp.where(moving[None, None], system.inertia, identity)
    inverse_mass = with_world(jnp.where(moving, 1 / mass, 0.0), axis=0)
    inverse_inertia = jnp.where(moving[None, None], inverse_of_three(inertia), 0.0)
    inverse_inertia = with_world(inverse_inertia, axis=2)
    system = replace(system, groups=tuple(groups), transmissions=tuple(transmissions))
    return Mechanism(system, inverse_mass, inverse_inertia, orders)


def joint_places(
    mechanism: Mechanism, state: State, *, transport: bool = True
) -> tuple[JointPlaces, ...]:
    """Places of all joints, group by group.

    transport: bodies carry their angular momentum along after the forces of a step; else these
        include whatever turns their angular velocity. Rows at acceleration level depend on it
    """
    bodies = _with_fixed_world(state)
    coasting = _coasting(mechanism, bodies, transport)
    places = tuple(_places(group, bodies, coasting, state) for group in mechanism.system.groups)
    # Stored: otherwise XLA computes the places again inside everything that reads them.
    return materialize(places)


def coordinates(system: System, state: State) -> Array:
    """Coordinates of all joints, continued from `state.q`, shape (coordinates, *batch)."""
    mechanism, state = _ready(system, state)
    return gather_coordinates(mechanism, [p.rows.q for p in joint_places(mechanism, state)], state)


def speeds(system: System, state: State) -> Array:
    """Speeds q̇ = N v_CD of all coordinates, shape (coordinates, *batch)."""
    mechanism, state = _ready(system, state)
    twist = with_world(body_twists(state))
    found = []
    for group, place in zip(mechanism.system.groups, joint_places(mechanism, state), strict=True):
        k = group.coupling.dof
        if k == 0:
            found.append(place.rows.q)
            continue
        child, parent = wrenches_on_bodies(group, place, range(6 - k, 6))
        found.append(speeds_along(group, child, parent, twist))
    return gather_coordinates(mechanism, found, state)


def joint_errors(system: System, state: State) -> Array:
    """Largest bilateral error of each joint [m or rad], shape (joints, *batch)."""
    mechanism, state = _ready(system, state)
    shape = (len(system.topology.joints), *state.time.shape)
    errors = jnp.zeros(shape, state.q.dtype)
    for group, place in zip(mechanism.system.groups, joint_places(mechanism, state), strict=True):
        if group.coupling.dof < 6:
            worst = jnp.max(jnp.abs(place.rows.error), axis=0)
            errors = errors.at[np.array(group.joints)].set(worst)
    return errors


def body_poses(system: System, state: State) -> Pose:
    """Poses of the body frames in the world, (…, bodies, *batch)."""
    _, state = _ready(system, state)
    com = expand(system.com, [2], state.time.ndim)
    q = state.quaternion
    return Pose(state.position - quat_rotate(q, com), q)


def energy(system: System, state: State) -> tuple[Array, Array]:
    """Kinetic energy and potential energy of gravity [J] of the moving bodies, (*batch) each."""
    mechanism, state = _ready(system, state)
    system = mechanism.system
    moving = _moving(system, state.time.ndim)
    mass = jnp.where(moving, system.mass, 0.0)
    omega = quat_rotate_inverse(state.quaternion, state.omega)
    turning = jnp.where(moving, dot(omega, matvec(system.inertia, omega)), 0.0)
    kinetic = 0.5 * (mass * dot(state.velocity, state.velocity) + turning)
    potential = -mass * dot(system.gravity[:, None], state.position)
    return jnp.sum(kinetic, axis=0), jnp.sum(potential, axis=0)


def momentum(system: System, state: State) -> Array:
    """Linear momentum [kg m/s] and angular about the world's origin [kg m²/s], (6, *batch)."""
    mechanism, state = _ready(system, state)
    system = mechanism.system
    moving = _moving(system, state.time.ndim)
    linear = jnp.where(moving[None], system.mass[None] * state.velocity, 0.0)
    q = state.quaternion
    spin = quat_rotate(q, matvec(system.inertia, quat_rotate_inverse(q, state.omega)))
    angular = jnp.where(moving[None], spin, 0.0) + cross(state.position, linear)
    return jnp.concatenate([jnp.sum(linear, axis=1), jnp.sum(angular, axis=1)], axis=0)


def with_unit_quaternions(state: State) -> State:
    """A state as everything within a step and all functions of a `Mechanism` expect it.

    Once for all of them: each normalization would be differentiated on its own.
    """
    return replace(state, quaternion=materialize(quat_normalize(state.quaternion)))


def quaternion_components(state: State) -> tuple[Array, ...]:
    """The four components of all quaternions, each stored: on the way back, what rotations by them
    contribute is summed in one kernel for each, and not in every kernel that reads the sum.
    """
    return materialize(tuple(jnp.unstack(state.quaternion)))


def body_twists(state: State) -> Array:
    """Twists at the centres of mass in body axes, shape (6, bodies, *batch)."""
    q = quaternion_components(state)
    linear, angular = quat_rotate_inverse(q, state.velocity), quat_rotate_inverse(q, state.omega)
    return jnp.concatenate([linear, angular], axis=0)


def with_world(x: Array, axis: int = 1) -> Array:
    """Array of bodies with one more of zeros at the end, for whatever does not move."""
    return jnp.concatenate([x, jnp.zeros_like(jax.lax.slice_in_dim(x, 0, 1, axis=axis))], axis=axis)


def wrenches_on_bodies(
    group: JointGroup, place: JointPlaces, rows: Sequence[int]
) -> tuple[Array, Array]:
    """Wrenches of unit impulses of some rows of W on child and parent, about their centres of mass
    in their axes: two arrays (6, rows, joints, *batch), the transposed Jacobians of the row speeds.
    """
    W = jnp.swapaxes(_picked(place.rows.W, rows), 0, 1)
    on_child, on_parent = group.attachment
    child = _moved(place.C_in_child, place.D_to_C, on_child, W)
    return child, -_moved(place.C_in_parent, place.D_to_C, on_parent, W)


def speeds_along(group: JointGroup, child: Array, parent: Array, twist: Array) -> Array:
    """Speeds of rows with wrenches (6, rows, joints, *batch) on child and parent, for twists of the
    bodies (6, bodies + 1, *batch), shape (rows, joints, *batch).
    """
    v, u = twist[:, np.array(group.child)], twist[:, np.array(group.parent)]
    return multiply_transposed(child, v) + multiply_transposed(parent, u)


def gather_coordinates(mechanism: Mechanism, parts: list[Array], state: State) -> Array:
    """Flat vector (coordinates, *batch) of arrays (k, joints, *batch), one per group."""
    places, arrays = [np.zeros(0, int)], [jnp.zeros((0, *state.q.shape[1:]), state.q.dtype)]
    for group, part in zip(mechanism.system.groups, parts, strict=True):
        part = jnp.broadcast_to(part, part.shape[:2] + state.time.shape)
        places.append(coordinate_indices(group).ravel())
        arrays.append(part.reshape((-1, *state.time.shape)))
    order = np.argsort(np.concatenate(places))
    return jnp.concatenate(arrays).at[order].get(mode="promise_in_bounds")


def coordinate_indices(group: JointGroup) -> np.ndarray:
    """Place of each coordinate of a group in the flat vectors, shape (k, joints)."""
    return np.array(group.start)[None] + np.arange(group.coupling.dof)[:, None]


def _ready(system: System, state: State) -> tuple[Mechanism, State]:
    """Mechanism and state with the batch axes of both."""
    batch = batch_shape(system, state, None)
    state = expand(state, jax.tree.leaves(STATE_RANKS), len(batch))
    state = jax.tree.map(lambda x, r: jnp.broadcast_to(x, x.shape[:r] + batch), state, STATE_RANKS)
    return prepare(system, len(batch)), with_unit_quaternions(state)


def _moving(system: System, batch: int) -> np.ndarray:
    """True for bodies that obey forces, shape (bodies, *1)."""
    return np.array(system.topology.moving).reshape((-1,) + (1,) * batch)


def _ordered(group: Any, ranks: Any, order: tuple[int, ...], *fields: str) -> Any:
    """A group with its items, leaves and static fields, in the given order."""
    if order == tuple(range(len(order))):
        return group
    picked = np.array(order)
    group = jax.tree.map(lambda x, r: jnp.take(x, picked, axis=r - 1), group, ranks)
    return replace(group, **{f: tuple(getattr(group, f)[i] for i in order) for f in fields})


def _about_centres(group: JointGroup, com: Array) -> JointGroup:
    """A group whose frames stand about the centres of mass, with unit quaternions."""
    child, parent = np.array(group.child), np.array(group.parent)
    frame_C = Pose(group.frame_C.p - com[:, child], quat_normalize(group.frame_C.q))
    frame_D = Pose(group.frame_D.p - com[:, parent], quat_normalize(group.frame_D.q))
    return replace(group, frame_C=frame_C, frame_D=frame_D)


@struct
class _Bodies:
    """Poses and velocities of the bodies and of the world after them, in world axes."""

    pose: Pose
    velocity: Array
    omega: Array


def _with_fixed_world(state: State) -> _Bodies:
    quaternion = state.quaternion
    one = jnp.zeros_like(quaternion[:, :1]).at[0].set(1.0)
    pose = Pose(with_world(state.position), jnp.concatenate([quaternion, one], axis=1))
    return _Bodies(pose, with_world(state.velocity), with_world(state.omega))


def _relative_twist(group: JointGroup, bodies: _Bodies) -> Array:
    """v_CD of the joints of a group, in C, (6, joints, *batch)."""
    child, parent = np.array(group.child), np.array(group.parent)
    A, B = (jax.tree.map(lambda x: x[:, body], bodies) for body in (child, parent))  # noqa: B023
    arm = A.pose.rotate(group.frame_C.p)
    from_B = (A.pose.p - B.pose.p) + arm
    linear = (A.velocity - B.velocity) + (cross(A.omega, arm) - cross(B.omega, from_B))
    C = quat_multiply(A.pose.q, group.frame_C.q)
    both = linear, A.omega - B.omega
    return jnp.concatenate([quat_rotate_inverse(C, x) for x in both], axis=0)


def _coasting(mechanism: Mechanism, bodies: _Bodies, transport: bool) -> _Bodies:
    """Rates of poses and velocities of bodies on which no force acts."""
    q, omega = bodies.pose.q, bodies.omega
    turn = 0.5 * quat_multiply(jnp.concatenate([jnp.zeros_like(q[:1]), omega], axis=0), q)
    spin = jnp.zeros_like(omega)
    if transport:
        own = quat_rotate_inverse(q, omega)[:, :-1]
        torque = cross(matvec(mechanism.system.inertia, own), own)
        rate = matvec(mechanism.inverse_inertia[:, :, :-1], torque)
        moving = _moving(mechanism.system, own.ndim - 2)
        spin = quat_rotate(q, with_world(jnp.where(moving, rate, 0.0)))
    return _Bodies(Pose(bodies.velocity, turn), jnp.zeros_like(bodies.velocity), spin)


def _places(group: JointGroup, bodies: _Bodies, coasting: _Bodies, state: State) -> JointPlaces:
    child, parent = np.array(group.child), np.array(group.parent)
    A, B = (jax.tree.map(lambda x: x[:, body], bodies.pose) for body in (child, parent))  # noqa: B023
    q_C = quat_multiply(A.q, group.frame_C.q)
    q_D = quat_multiply(B.q, group.frame_D.q)
    # From D's origin to C's: differences of nearby points, so that float32 keeps small errors.
    offset = (A.p - B.p) + (A.rotate(group.frame_C.p) - B.rotate(group.frame_D.p))
    q_C, q_D, offset = materialize((q_C, q_D, offset))
    T = materialize(Pose(quat_rotate_inverse(q_D, offset), quat_multiply(quat_conjugate(q_D), q_C)))
    near = state.q[coordinate_indices(group)]
    time = state.time[None]
    if group.coupling.batched:
        rows = group.coupling.rows(T, near, time)
    else:
        axes = T.p.ndim - 1
        with jax.default_matmul_precision("highest"):
            rows = map_trailing(
                lambda coupling, T, q, t: coupling.rows(T, q, t),
                axes,
                group.coupling,
                T,
                jax.lax.stop_gradient(near),
                time,
            )
    if extra_rows(group.coupling):
        motion = jax.jvp(partial(_relative_twist, group), (bodies,), (coasting,))
        with jax.default_matmul_precision("highest"):
            rows = map_trailing(
                with_velocity_rows, T.p.ndim - 1, group.coupling, rows, T, *motion, time
            )
    in_parent = group.frame_D @ T
    return JointPlaces(group.frame_C, in_parent, -T.rotate_inverse(T.p), rows)


def _picked(W: Array, rows: Sequence[int]) -> Array:
    """Some rows of W: a slice where they follow each other, which costs nothing."""
    first, count = rows[0], len(rows)
    if tuple(rows) == tuple(range(first, first + count)):
        return W[first : first + count]
    return W[np.array(rows)]


def transmission_rows(
    mechanism: Mechanism, group: TransmissionGroup, places: tuple[JointPlaces, ...]
) -> tuple[Array, tuple[Array, ...]]:
    """Values (rows, n, *batch) of the transmissions of a group, and the wrenches of unit impulses
    along them on each of their bodies, about the centres of mass in body axes, (6, rows, n, *batch)
    each.

    Transmissions of joints in the groups as they stand in the mechanism.
    """
    found, q = [], []
    for slot, g in enumerate(group.groups):
        own, place = mechanism.system.groups[g], places[g]
        at = np.array([own.joints.index(joints[slot]) for joints in group.joints])
        k = own.coupling.dof
        wrenches = wrenches_on_bodies(own, place, range(6 - k, 6))
        found.append([jnp.take(H, at, axis=2) for H in wrenches])
        q.append(jnp.take(place.rows.q, at, axis=1))
    tail = jnp.broadcast_shapes(*(x.shape[1:] for x in q))
    q = jnp.concatenate([jnp.broadcast_to(x, x.shape[:1] + tail) for x in q])
    value, slope = map_trailing(_value_and_slope, q.ndim - 1, group.transmission, q)
    sides: list[Any] = [0.0] * len(group.bodies[0])
    first = 0
    for ends, wrenches in zip(group.ends, found, strict=True):
        k = wrenches[0].shape[1]
        share = slope[:, first : first + k]
        first += k
        for side, H in zip(ends, wrenches, strict=True):
            if side >= 0:
                sides[side] = sides[side] + product_transposed(H, share)
    # A world that only fills a side feels nothing.
    like = product_transposed(found[0][0], slope[:, : found[0][0].shape[1]])
    return value, tuple(jnp.broadcast_to(side, like.shape) for side in sides)


def _value_and_slope(transmission: Transmission, q: Array) -> tuple[Array, Array]:
    """f(q), shape (rows,), and ∂f/∂q, shape (rows, k), of one transmission."""
    return transmission.value(q), jax.jacfwd(transmission.value)(q)


def _moved(place: Pose, D_to_C: Array, share: float, W: Array) -> Array:
    """Wrenches W (6, rows, …) at a point between C and D, seen about a body's centre of mass."""
    if share:
        place = Pose(place.apply(share * D_to_C), place.q)
    R = quat_to_matrix(place.q)
    force, moment = matmul(R, W[:3]), matmul(R, W[3:])
    moment = moment + cross(spread(place.p, 1, force.shape[1]), force)
    return jnp.concatenate(jnp.broadcast_arrays(force, moment), axis=0)
