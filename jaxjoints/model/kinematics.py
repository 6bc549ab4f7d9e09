"""Kinematics: where joints and contacts stand, and the wrenches of their rows on bodies."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import materialize, spread, stored
from ..algebra.dense import (
    cholesky_inverse,
    inverse,
    inverse_of_three,
    multiply,
    multiply_transposed,
    product,
    product_transposed,
    transposed_product,
)
from ..algebra.pytree import expand, map_trailing, replace, struct
from ..algebra.spatial import (
    Pose,
    cross,
    matmul,
    matvec,
    quat_conjugate,
    quat_from_rotation_vector,
    quat_multiply,
    quat_normalize,
    quat_rotate,
    quat_rotate_inverse,
    quat_to_matrix,
)
from ..couplings.complement import orthonormal_complement
from ..couplings.contact import DIRECTIONS, ContactFrame
from ..couplings.coupling import Chart, CouplingRows, has_orthonormal_rows
from ..couplings.nonholonomic import extra_rows, with_velocity_rows
from ..laws.constraints import Constraint
from ..laws.transmissions import Transmission
from .groups import ConstraintGroup, ContactGroup, JointGroup, TransmissionGroup
from .state import State
from .system import WORLD_INDEX, System


@struct
class Mechanism:
    """A system made ready for a batch: leaves of equal rank, frames about the centres of mass.

    Bodies have one more column for whatever does not move, of infinite mass.

    inverse_mass: [1/kg], shape (bodies + 1, *batch); inverse_inertia: body axes [1/(kg m²)], shape
    (3, 3, bodies + 1, *batch); both 0 for the world and bodies of prescribed motion
    """

    system: System
    inverse_mass: Array
    inverse_inertia: Array


@struct
class JointKinematics:
    """Where the joints of one group stand; poses of shape (…, joints, *batch).

    T_CD: pose of C in D
    C_in_parent: pose of C about the parent's centre of mass, in its axes
    rows: the rows of the coupling at T_CD, and at v_CD where it constrains velocities
    """

    T_CD: Pose
    C_in_parent: Pose
    rows: CouplingRows

    @property
    def D_to_C(self) -> Array:
        """From C's origin to D's, in C axes [m], shape (3, joints, *batch)."""
        return -self.T_CD.rotate_inverse(self.T_CD.p)


@struct
class ConstraintKinematics:
    """The rows of the constraints of one group where their bodies are.

    H: wrenches of unit impulses on each of the bodies, about its centre of mass in its axes, (6,
        rows, constraints, *batch)
    error: φ, 0 for rows at velocity and acceleration level, (rows, constraints, *batch)
    drift, acceleration: as in `CouplingRows`, for all rows
    """

    H: tuple[Array, ...]
    error: Array
    drift: Array
    acceleration: Array | None


@struct
class ContactKinematics:
    """Where the contacts of one group are, arrays (…, contacts, *batch).

    frame: the contact, in C
    C_in_parent: as in `JointKinematics`
    """

    frame: ContactFrame
    C_in_parent: Pose


@struct
class Kinematics:
    """Where joints, constraints and contacts of a mechanism are, a record for each group.

    poses: of the centres of mass in body axes, and of the world after them
    """

    joints: tuple[JointKinematics, ...]
    constraints: tuple[ConstraintKinematics, ...]
    contacts: tuple[ContactKinematics, ...]
    poses: Pose


def prepare(system: System, batch: int) -> Mechanism:
    """A `Mechanism` for `batch` batch axes."""
    system = expand(system, list(system.topology.ranks), batch)
    com = with_world(system.com)
    moving = moving_bodies(system, batch)
    identity = jnp.eye(3, dtype=system.inertia.dtype).reshape((3, 3) + (1,) * (batch + 1))
    # Bodies of prescribed motion: their numbers may be anything and must not reach a division.
    mass = jnp.where(moving, system.mass, 1.0)
    # An entry and its mirror count half each, so that all that reads the tensor reads the same: one
    # half of a matrix here and the whole there, where a derivative moves an entry alone.
    tensor = (system.inertia + jnp.swapaxes(system.inertia, 0, 1)) / 2
    inertia = jnp.where(moving[None, None], tensor, identity)
    inverse_mass = with_world(jnp.where(moving, 1 / mass, 0.0), axis=0)
    inverse_inertia = jnp.where(moving[None, None], inverse_of_three(inertia), 0.0)
    inverse_inertia = with_world(inverse_inertia, axis=2)
    system = replace(
        system,
        inertia=tensor,
        groups=tuple(_about_centres(group, com) for group in system.groups),
        contacts=tuple(_about_centres(group, com) for group in system.contacts),
    )
    return Mechanism(system, inverse_mass, inverse_inertia)


def system_kinematics(
    mechanism: Mechanism, state: State, *, transport: bool = True, free: State | None = None
) -> Kinematics:
    """Where the joints, constraints and contacts of a mechanism are in a state.

    Rows at acceleration level depend on the motion of the bodies without the forces of rows:

    transport: bodies carry their angular momentum along after the forces of a step; otherwise the
        forces of a step include the gyroscopic terms
    free: the rate of the state without the forces of rows, in place of both
    """
    bodies = _with_fixed_world(state)
    coasting = _coasting(mechanism, bodies, transport) if free is None else _rates(free)
    groups = [_kinematics(group, bodies, coasting, state) for group in mechanism.system.groups]
    # Stored: otherwise XLA computes the rows again inside everything that reads them.
    stored = materialize([(joint.C_in_parent, joint.rows) for joint in groups])
    joints = [
        JointKinematics(joint.T_CD, *rest) for joint, rest in zip(groups, stored, strict=True)
    ]
    constraints = [
        _constraint_kinematics(mechanism, group, bodies, coasting, state)
        for group in mechanism.system.constraints
    ]
    contacts = [_contact_kinematics(group, bodies) for group in mechanism.system.contacts]
    others = (tuple(materialize(x)) for x in (constraints, contacts))
    return Kinematics(tuple(joints), *others, bodies.pose)


def with_unit_quaternions(state: State) -> State:
    """A state with quaternions of length 1, as a step and all functions of a `Mechanism` expect it.

    Normalized once: each normalization would be differentiated on its own.
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


def poses_with_world(state: State) -> Pose:
    """Poses of the centres of mass in body axes, and of the world after them."""
    quaternion = state.quaternion
    one = jnp.zeros_like(quaternion[:, :1]).at[0].set(1.0)
    return Pose(with_world(state.position), jnp.concatenate([quaternion, one], axis=1))


def relative_twist(group: JointGroup, state: State) -> Array:
    """v_CD of the joints of a group, in C, (6, joints, *batch)."""
    return _relative_twist(group, _with_fixed_world(state))


def wrenches_on_bodies(
    group: JointGroup, joint: JointKinematics, rows: Sequence[int]
) -> tuple[Array, Array]:
    """Wrenches of unit impulses of some rows of W on child and parent, about their centres of mass
    in their axes: two arrays (6, rows, joints, *batch), the transposed Jacobians of the row speeds.
    """
    W = jnp.swapaxes(_picked(joint.rows.W, rows), 0, 1)
    on_child, on_parent = group.attachment
    child = _about_centre(group.frame_C, joint, on_child, W)
    return child, -_about_centre(joint.C_in_parent, joint, on_parent, W)


def twists_of_rows(group: JointGroup, joint: JointKinematics) -> tuple[Array, Array]:
    """(Hᵀ)⁻¹ of all six rows, H as in `wrenches_on_bodies`: the twist of the child for a unit speed
    of each row while the parent stands, and that of the parent while the child stands.
    """
    # In the frame of the joint, where the rows of most couplings are the same for the whole batch.
    V = stored(inverse)(joint.rows.W)
    on_child, on_parent = group.attachment
    child = _motion_about_centre(group.frame_C, joint, on_child, V)
    return child, -_motion_about_centre(joint.C_in_parent, joint, on_parent, V)


def motion_of_placed(
    group: JointGroup, joint: JointKinematics, side: Sequence[int], V: Array
) -> Array:
    """Twists V (6, count, joints, *batch) of C relative to D, in C, as those of the bodies that
    joints place while the others stand, about their centres of mass in their axes.

    side: of each joint, 0 if it places its child, 1 if its parent
    """
    on_child, on_parent = group.attachment
    parts = []
    if 0 in side:
        parts.append(_motion_about_centre(group.frame_C, joint, on_child, V))
    if 1 in side:
        parts.append(-_motion_about_centre(joint.C_in_parent, joint, on_parent, V))
    return _by_side(joint, side, parts)


def wrench_on_placed(
    group: JointGroup, joint: JointKinematics, side: Sequence[int], f: Array
) -> Array:
    """Wrenches f (6, joints, *batch) on the bodies that joints place, about their centres of mass
    in their axes, as those of C, in C: the transpose of `motion_of_placed`.
    """
    on_child, on_parent = group.attachment
    parts = []
    for at, C, share in ((0, group.frame_C, on_child), (1, joint.C_in_parent, on_parent)):
        if at in side:
            p, R = _attached(C, joint, share)
            moment = f[3:] - cross(p, f[:3])
            wrench = jnp.concatenate([multiply_transposed(R, x) for x in (f[:3], moment)])
            parts.append(-wrench if at else wrench)
    return _by_side(joint, side, parts)


def _by_side(joint: JointKinematics, side: Sequence[int], parts: Sequence[Array]) -> Array:
    """Of each joint the array of its side, (…, joints, *batch)."""
    if len(parts) == 1:
        return parts[0]
    mask = np.array(side, bool).reshape(-1, *(1,) * (joint.T_CD.p.ndim - 2))
    return jnp.where(mask, parts[1], parts[0])


@struct
class Surface:
    """The surface of the joints of a group at C, in C, by rows and twists of orthonormal parts.

    S: twists along it, of unit speed each, (6, k, joints, *batch); N: rows that read these speeds,
        (k, 6, …)
    Q: orthonormal rows with the span of G = L Q, (6 - k, 6, …); inverse: L⁻¹, (6 - k, 6 - k, …),
        None where L = 1
    """

    S: Array
    N: Array
    Q: Array
    inverse: Array | None = None

    def off(self, speeds: Array) -> Array:
        """The twist without speed along the surface for speeds G v, (6, joints, *batch)."""
        if self.inverse is None:
            return multiply_transposed(self.Q, speeds)
        twist = multiply_transposed(self.Q, multiply(self.inverse, speeds))
        return twist - multiply(self.S, multiply(self.N, twist))

    def of_rows(self, wrench: Array) -> Array:
        """Forces of G's rows, then along the surface, that make a wrench (6, joints, *batch)."""
        along = multiply_transposed(self.S, wrench)
        if self.inverse is None:
            return jnp.concatenate([multiply(self.Q, wrench), along])
        rest = multiply(self.Q, wrench - multiply_transposed(self.N, along))
        return jnp.concatenate([multiply_transposed(self.inverse, rest), along])


def surface(group: JointGroup, joint: JointKinematics) -> Surface:
    """The surface of a group's joints. The speeds of S are q̇. Lower pairs without laws have other
    speeds, which are regular where q̇ is not.
    """
    k = group.coupling.dof
    W = joint.rows.W
    at_rest = group.coupling.lower_pair and not group.laws
    if at_rest:
        W = _at_rest(group, W.ndim - 2)
    Q, N = W[: 6 - k], W[6 - k :]
    across, inverse = N, None
    if not has_orthonormal_rows(group.coupling):
        inverse = cholesky_inverse(product_transposed(Q, Q))
        Q = product(inverse, Q)
        across = N - product(product_transposed(N, Q), Q)
    if not k:
        return Surface(jnp.swapaxes(N, 0, 1), N, Q, inverse)
    if at_rest:
        with jax.default_matmul_precision("highest"):
            S = map_trailing(orthonormal_complement, W.ndim - 2, jnp.swapaxes(Q, 0, 1))
        return Surface(S, jnp.swapaxes(S, 0, 1), Q, inverse)
    square = cholesky_inverse(product_transposed(N, across))
    S = product(jnp.swapaxes(across, 0, 1), transposed_product(square, square))
    return Surface(S, N, Q, inverse)


def _at_rest(group: JointGroup, axes: int) -> Array:
    """W of a group's joints where C and D agree, (6, 6, joints, *batch); axes: these."""
    one = len(group.joints), *(1,) * (axes - 1)
    T = Pose(jnp.zeros((3, *one)), jnp.zeros((4, *one)).at[0].set(1.0))
    q, t = jnp.zeros((group.coupling.dof, *one)), jnp.zeros(one)
    T, q, t = jax.tree.map(lambda x: x.astype(group.erp.dtype), (T, q, t))
    if group.coupling.batched:
        # A weld has the same rows for all joints.
        W = group.coupling.rows(T, q, t).W
        return jnp.broadcast_to(W, (*W.shape[:2], *jnp.broadcast_shapes(W.shape[2:], one)))
    with jax.default_matmul_precision("highest"):
        return map_trailing(lambda c, *at: c.rows(*at).W, axes, group.coupling, T, q, t)


def coordinate_wrenches(group: JointGroup, joint: JointKinematics) -> tuple[Array, Array]:
    """`wrenches_on_bodies` of the coordinates of a group's joints, (6, k, joints, *batch) each."""
    return wrenches_on_bodies(group, joint, range(6 - group.coupling.dof, 6))


def coordinate_speeds(group: JointGroup, joint: JointKinematics, twist: Array) -> Array:
    """q̇ of a group's joints while bodies move at twists (6, bodies + 1, *batch), shape
    (k, joints, *batch).
    """
    if group.coupling.dof == 0:
        return joint.rows.q
    sides = zip(coordinate_wrenches(group, joint), (group.child, group.parent), strict=True)
    child, parent = (multiply_transposed(H, twist[:, np.array(body)]) for H, body in sides)
    return child + parent


def gather_coordinates(mechanism: Mechanism, parts: list[Array], state: State) -> Array:
    """Flat vector (coordinates, *batch) of arrays (k, joints, *batch), one per group."""
    places, arrays = [np.zeros(0, int)], [jnp.zeros((0, *state.q.shape[1:]), state.q.dtype)]
    for group, part in zip(mechanism.system.groups, parts, strict=True):
        part = jnp.broadcast_to(part, part.shape[:2] + state.time.shape)
        places.append(coordinate_indices(group).ravel())
        arrays.append(part.reshape((-1, *state.time.shape)))
    order = np.argsort(np.concatenate(places))
    return jnp.concatenate(arrays).at[order].get(mode="promise_in_bounds")


def joint_coordinates(mechanism: Mechanism, kinematics: Kinematics, state: State) -> Array:
    """Coordinates of all joints, (coordinates, *batch); kinematics: of the state."""
    return gather_coordinates(mechanism, [joint.rows.q for joint in kinematics.joints], state)


def near_coordinates(
    mechanism: Mechanism, kinematics: Kinematics, state: State, gone: Array
) -> Array:
    """Where joints look for their coordinates after displacements of the bodies, in body axes,
    (6, bodies, *batch): a `Chart`, which takes steps, begins to first order where they are.

    kinematics: of the state
    """
    gone, parts = with_world(gone), []
    for group, joint in zip(mechanism.system.groups, kinematics.joints, strict=True):
        q = joint.rows.q
        if isinstance(group.coupling, Chart):
            q = q + coordinate_speeds(group, joint, gone)
        parts.append(q)
    return gather_coordinates(mechanism, parts, state)


def coordinate_indices(group: JointGroup) -> np.ndarray:
    """Place of each coordinate of a group in the flat vectors, shape (k, joints)."""
    return np.array(group.start)[None] + np.arange(group.coupling.dof)[:, None]


def moving_bodies(system: System, batch: int) -> np.ndarray:
    """True for bodies that obey forces, shape (bodies, *1)."""
    return np.array(system.topology.moving).reshape((-1,) + (1,) * batch)


def _about_centres(group: JointGroup | ContactGroup, com: Array) -> Any:
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
    return _Bodies(poses_with_world(state), with_world(state.velocity), with_world(state.omega))


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
        in_body = quat_rotate_inverse(q, omega)[:, :-1]
        torque = cross(matvec(mechanism.system.inertia, in_body), in_body)
        rate = matvec(mechanism.inverse_inertia[:, :, :-1], torque)
        moving = moving_bodies(mechanism.system, in_body.ndim - 2)
        spin = quat_rotate(q, with_world(jnp.where(moving, rate, 0.0)))
    return _Bodies(Pose(bodies.velocity, turn), jnp.zeros_like(bodies.velocity), spin)


def _rates(free: State) -> _Bodies:
    """Rates of poses and velocities of the bodies, from those of a state, and of the world."""
    pose = Pose(with_world(free.position), with_world(free.quaternion))
    return _Bodies(pose, with_world(free.velocity), with_world(free.omega))


def _pose_of_C(group: JointGroup | ContactGroup, bodies: _Bodies) -> Pose:
    """T_CD of the members of a group, (…, n, *batch)."""
    child, parent = np.array(group.child), np.array(group.parent)
    A, B = (jax.tree.map(lambda x: x[:, body], bodies.pose) for body in (child, parent))  # noqa: B023
    q_C = quat_multiply(A.q, group.frame_C.q)
    q_D = quat_multiply(B.q, group.frame_D.q)
    # From D's origin to C's: differences of nearby points, so that float32 keeps small errors.
    offset = (A.p - B.p) + (A.rotate(group.frame_C.p) - B.rotate(group.frame_D.p))
    q_C, q_D, offset = materialize((q_C, q_D, offset))
    return materialize(
        Pose(quat_rotate_inverse(q_D, offset), quat_multiply(quat_conjugate(q_D), q_C))
    )


def _contact_kinematics(group: ContactGroup, bodies: _Bodies) -> ContactKinematics:
    T = _pose_of_C(group, bodies)
    return ContactKinematics(group.geometry.at(T), group.frame_D @ T)


def direction_wrenches(
    group: ContactGroup, contact: ContactKinematics, directions: Sequence[int]
) -> tuple[Array, Array]:
    """`wrenches_on_bodies` of unit forces along some directions of a group's contacts."""
    of_child = contact.frame.seen_from(group.frame_C)
    of_parent = contact.frame.seen_from(contact.C_in_parent)
    of_both, friction = (of_child, of_parent), group.edge_friction
    on_child, on_parent = (frame.wrenches(directions, friction) for frame in of_both)
    return on_child, -on_parent


def direction_speeds(group: ContactGroup, contact: ContactKinematics, twist: Array) -> Array:
    """Speeds of a group's contacts along all six directions while bodies move at twists (6,
    bodies + 1, *batch), shape (6, contacts, *batch).
    """
    each = direction_wrenches(group, contact, range(DIRECTIONS))
    sides = zip(each, (group.child, group.parent), strict=True)
    return sum(multiply_transposed(H, twist[:, np.array(body)]) for H, body in sides)


def _kinematics(
    group: JointGroup, bodies: _Bodies, coasting: _Bodies, state: State
) -> JointKinematics:
    T = _pose_of_C(group, bodies)
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
    return JointKinematics(T, group.frame_D @ T, rows)


def _constraint_kinematics(
    mechanism: Mechanism, group: ConstraintGroup, bodies: _Bodies, coasting: _Bodies, state: State
) -> ConstraintKinematics:
    # Without arguments the world, which then is no body of a constraint, only fills sides.
    sides = tuple(zip(*group.bodies, strict=True))
    arguments = group.arguments or [i for i, side in enumerate(sides) if side[0] != WORLD_INDEX]
    world = (WORLD_INDEX,) * len(group.bodies)
    seen = [np.array(world if i == WORLD_INDEX else sides[i]) for i in arguments]

    def of_bodies(x):
        return jnp.stack([x[:, side] for side in seen], axis=1)

    twist, position, quaternion = with_world(body_twists(state)), bodies.pose.p, bodies.pose.q
    rates = jnp.concatenate([coasting.velocity, coasting.omega], axis=0)
    motion = position, quaternion, with_world(mechanism.system.com), twist, rates
    with jax.default_matmul_precision("highest"):
        W, error, drift, *acceleration = map_trailing(
            _constraint_rows,
            state.time.ndim + 1,
            group.constraint,
            *map(of_bodies, motion),
            state.time[None],
        )
    H = [
        jnp.swapaxes(W[:, :, arguments.index(side)], 0, 1) if side in arguments else None
        for side in range(len(sides))
    ]
    H = [jnp.zeros_like(H[0]) if wrenches is None else wrenches for wrenches in H]
    return ConstraintKinematics(tuple(H), error, drift, acceleration[0] if acceleration else None)


def _constraint_rows(
    constraint: Constraint,
    position: Array,
    quaternion: Array,
    com: Array,
    twist: Array,
    rates: Array,
    t: Array,
) -> tuple[Array, ...]:
    """Rows W (rows, 6, n) of one constraint, its errors, drifts and, where it has rows at that
    level, accelerations.

    position, quaternion, com: of the centres of mass, of the bodies, in the body frames, (…, n)
    twist: in body axes at the centres of mass, (6, n); rates: accelerations of the centres of mass
        without the forces of rows, then angular ones, in world axes, (6, n)
    """

    def poses(shift):
        q = quat_multiply(quaternion, quat_from_rotation_vector(shift[3:]))
        return Pose(position + quat_rotate(quaternion, shift[:3]) - quat_rotate(q, com), q)

    def at_origin(v, curvature=0.0):
        linear, angular = (quat_rotate(quaternion, x) for x in (v[:3], v[3:]))
        return jnp.concatenate([linear - cross(angular, arm) - curvature, angular], axis=0)

    arm, still = quat_rotate(quaternion, com), jnp.zeros_like(twist)
    here, moving = poses(still), at_origin(twist)
    levels, accelerations = [], []
    if constraint.position_rows:
        G = jax.jacfwd(lambda shift: constraint.position(poses(shift), t))(still)
        time = jnp.ones_like(t)
        φ, rate = jax.jvp(lambda t: constraint.position(here, t), (t,), (time,))
        levels.append((G, φ, rate))
        accelerations.append(jnp.zeros_like(φ))
    if constraint.velocity_rows:
        V = jax.jacfwd(lambda v: constraint.velocity(here, at_origin(v), t))(twist)
        ψ = constraint.velocity(here, moving, t)
        levels.append((V, jnp.zeros_like(ψ), ψ - jnp.sum(V * twist[None], axis=(1, 2))))
        accelerations.append(jnp.zeros_like(ψ))
    if constraint.acceleration_rows:
        curvature = cross(moving[3:], cross(moving[3:], arm))

        def acceleration(rate):
            return constraint.acceleration(here, moving, at_origin(rate, curvature), t)

        both = rates[:3], rates[3:]
        coasting = jnp.concatenate([quat_rotate_inverse(quaternion, x) for x in both], axis=0)
        V, α = jax.jacfwd(acceleration)(coasting), acceleration(coasting)
        levels.append((V, jnp.zeros_like(α), -jnp.sum(V * twist[None], axis=(1, 2))))
        accelerations.append(α)
    rows = tuple(jnp.concatenate(parts) for parts in zip(*levels, strict=True))
    return (*rows, jnp.concatenate(accelerations)) if constraint.acceleration_rows else rows


def _picked(W: Array, rows: Sequence[int]) -> Array:
    """Some rows of W: a slice where they follow each other, which costs nothing."""
    first, count = rows[0], len(rows)
    if tuple(rows) == tuple(range(first, first + count)):
        return W[first : first + count]
    return W[np.array(rows)]


def transmission_rows(
    mechanism: Mechanism, group: TransmissionGroup, kinematics: Kinematics
) -> tuple[Array, tuple[Array, ...]]:
    """Values of the transmissions of a group, and wrenches of unit impulses along these values.

    kinematics: of the mechanism

    Returns: values (rows, n, *batch); wrenches on each body, about its centre of mass in its
        axes, (6, rows, n, *batch) each
    """
    wrenches, q = [], []
    for slot, g in enumerate(group.groups):
        members, joint = mechanism.system.groups[g], kinematics.joints[g]
        index = np.array([members.joints.index(each[slot]) for each in group.joints])
        wrenches.append([jnp.take(H, index, axis=2) for H in coordinate_wrenches(members, joint)])
        q.append(jnp.take(joint.rows.q, index, axis=1))
    tail = jnp.broadcast_shapes(*(x.shape[1:] for x in q))
    q = jnp.concatenate([jnp.broadcast_to(x, x.shape[:1] + tail) for x in q])
    value, slope = map_trailing(_value_and_slope, q.ndim - 1, group.transmission, q)
    sides: list[Any] = [0.0] * len(group.bodies[0])
    first = 0
    for ends, pair in zip(group.ends, wrenches, strict=True):
        k = pair[0].shape[1]
        share = slope[:, first : first + k]
        first += k
        for side, H in zip(ends, pair, strict=True):
            if side >= 0:
                sides[side] = sides[side] + product_transposed(H, share)
    # A world that only fills a side feels nothing.
    like = product_transposed(wrenches[0][0], slope[:, : wrenches[0][0].shape[1]])
    return value, tuple(jnp.broadcast_to(side, like.shape) for side in sides)


def _value_and_slope(transmission: Transmission, q: Array) -> tuple[Array, Array]:
    """f(q), shape (rows,), and ∂f/∂q, shape (rows, k), of one transmission."""
    return transmission.value(q), jax.jacfwd(transmission.value)(q)


def _about_centre(C: Pose, joint: JointKinematics, share: float, W: Array) -> Array:
    """Wrenches W (6, rows, …) at a point between C and D, seen about a body's centre of mass.

    C: pose of C about the centre of mass; share: of the way from C's origin to D's
    """
    p, R = _attached(C, joint, share)
    force, moment = matmul(R, W[:3]), matmul(R, W[3:])
    moment = moment + cross(spread(p, 1, force.shape[1]), force)
    return jnp.concatenate(jnp.broadcast_arrays(force, moment), axis=0)


def _motion_about_centre(C: Pose, joint: JointKinematics, share: float, V: Array) -> Array:
    """Twists V (6, rows, …) of that point, in C axes, as those of a body's centre of mass."""
    p, R = _attached(C, joint, share)
    linear, angular = materialize((matmul(R, V[:3]), matmul(R, V[3:])))
    linear = linear + cross(spread(p, 1, angular.shape[1]), angular)
    return jnp.concatenate(jnp.broadcast_arrays(linear, angular), axis=0)


def _attached(C: Pose, joint: JointKinematics, share: float) -> tuple[Array, Array]:
    """Where the rows of a joint act about a centre of mass, and the axes of C."""
    return C.apply(share * joint.D_to_C) if share else C.p, quat_to_matrix(C.q)
