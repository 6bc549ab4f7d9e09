"""`System.state`: a start state, in which joints place the bodies by their coordinates."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.arguments import read_numbers
from ..algebra.calls import public, warn
from ..algebra.compiler import is_traced, quickly
from ..algebra.dense import inverse, multiply, multiply_transposed
from ..algebra.pytree import expand, expand_trailing, map_trailing, replace
from ..algebra.spatial import Pose, transform_twist, twist_of
from ..assembly.engagement import Group, contact_indices, engaged_after, value_indices
from ..assembly.impulses import no_forces
from ..assembly.layout import engagement_size
from ..couplings.coupling import Coupling, Residual
from ..laws.limits import Limits, Lock
from ..model.batch import batch_shape
from ..model.branches import spanning_branches
from ..model.groups import ContactGroup, JointGroup, TransmissionGroup
from ..model.kinematics import (
    body_twists,
    coordinate_indices,
    joint_coordinates,
    prepare,
    system_kinematics,
    transmission_rows,
    with_unit_quaternions,
    with_world,
)
from ..model.measures import body_poses
from ..model.state import STATE_RANKS, State
from ..model.system import WORLD_INDEX, System
from .checks.units import warn_of_units
from .checks.values import (
    Stated,
    common_batch,
    precision,
    read_by_name,
    read_pose,
    read_stated,
    read_velocity,
)

# Errors of a start state that are taken for rounding [m or rad, and 1/s of it].
START_ERROR = 1e-6
# Fields of laws that bound a coordinate, with the sign of the direction that the bound allows.
BOUNDS = {Limits: (("lower", 1), ("upper", -1)), Lock: (("value", 1), ("value", -1))}


@public(name="state")
def start_state(
    system: System,
    *,
    q: Mapping[str, Any] | None = None,
    qd: Mapping[str, Any] | None = None,
    pose: Mapping[str, Any] | None = None,
    velocity: Mapping[str, Any] | None = None,
    time: Any = None,
    start: State | None = None,
    rough: bool = False,
) -> State:
    """A state of a system, from coordinates by joint name and poses by body name.

    1. A body in `pose` stands there, at rest unless it is in `velocity`.
    2. From these bodies and the world, each joint places the body at its other end by its q and qd,
       breadth first, in the order in which joints were added. Coordinates that are not given are
       zero, whatever the builder was given; `start` keeps them. Joints with given q or qd come
       first. Joints with six coordinates, which hold nothing, come last.
    3. A body that no joint connects to placed bodies stands at rest with its frame on the world
       frame, or where it stands in `start`. Its joints place further bodies from there.
    4. A joint that closes a loop gets the coordinates that follow from the poses of its two bodies.

    q, qd: coordinates [m or rad] of a joint and their speeds, by its name, a number or shape (dof,
        *batch). `q={"hip.1": 0.3}` gives one coordinate of a joint of several, by its number from
        0, a number or shape (*batch); the others are as where the joint is left out. For a joint
        of step 4, q chooses the turn in which an angle is counted
    pose: of the body frame in the world, in one of the forms of `SystemBuilder.body`, with any
        batch axes at the end
    velocity: linear velocity of the body frame's origin, then angular velocity, world axes [m/s,
        rad/s], shape (6, *batch); it replaces the speeds of the joint that places the body
    time: of the state [s], a number or shape (*batch); that of `start` where it is left out, and 0
        without `start`. Joints and constraints that depend on time stand as they do then, and a
        rollout goes on from it: controllers, fields and records read it in `State.time`. Controls
        that are arrays begin with their first entry at any time
    start: a state of the system, such as the state of `build`; coordinates without q keep its
        values: `system.state(q={"elbow": 0.3}, start=state)` moves the elbow alone. Joints that
        follow the elbow through a transmission or a loop need q too, or
        `assemble(system, state, q={…})`
    rough: the state is a guess for `assemble`: joints may be open, coordinates outside their
        limits, and q and qd of joints that close loops need not fit

    Raises: ValueError for unknown names, for q and qd that contradict the poses, and for a coupling
        whose pose is not finite.
    Warns: joints whose frames do not meet or whose bodies move off them, joints that slip although
        they roll, transmissions whose values are not 0 or do not stay so, constraints whose errors
        are not 0 or whose rows the velocities do not fit, coordinates and values outside their
        limits, and contacts whose bodies overlap.
    """
    topology = system.topology
    ends = _ends(system)
    dofs = {name: end.dof for name, end in zip(topology.joints, ends, strict=True)}
    bodies = topology.body_index

    q, qd = (read_stated(field, x, "joint", dofs) for field, x in (("q", q), ("qd", qd)))
    pose = read_by_name(
        "pose", pose, "body", bodies, lambda owner, _, T: read_pose(owner, "pose", T, batched=True)
    )
    velocity = read_by_name(
        *("velocity", velocity, "body", bodies),
        lambda owner, _, v: read_velocity(owner, v, batched=True),
    )
    before, stands = _read_start(system, start)
    if time is None:
        time = 0.0 if start is None else start.time
    time = read_numbers("state", "time", time, batched=True).astype(precision())
    values = [*q.values(), *qd.values(), *velocity.values(), *pose.values(), before, stands]
    batch = common_batch("state", [_batch(system, values), time.shape])
    axes = len(batch)
    wide = expand(system, list(topology.ranks), axes)
    time = expand_trailing(time, 0, axes)
    q, qd, pose, velocity, before, stands = (
        {n: jax.tree.map(lambda x: expand_trailing(x, 1, axes), v) for n, v in values.items()}
        for values in (q, qd, pose, velocity, before, stands)
    )
    # Read by NumPy: JAX would compile a program for each shape of a number.
    read = wide if is_traced(wide) else jax.tree.map(np.asarray, wide)
    records = [read.joint(name) for name in topology.joints]
    joints = [(record.coupling, record.frame_C, record.frame_D) for record in records]
    for field, values, rate in (("q", q, ""), ("qd", qd, "/s")):
        for name, stated in values.items():
            coupling = records[topology.joints.index(name)].coupling
            warn_of_units(f"joint {name!r}", field, coupling, stated.value, stated.at, rate)

    still = np.zeros((6,) + (1,) * axes, precision())
    parallel = np.zeros_like(still[:4])
    parallel[0] = 1.0
    origin = Pose(still[:3], parallel), still
    # Pose of each body frame in the world, and its twist in body axes.
    motions = {WORLD_INDEX: origin}

    def put(body: int, T: Pose, twist: Array) -> None:
        """Place a body, at the velocity that is given for it or else at `twist`."""
        stated = velocity.get(topology.bodies[body])
        motions[body] = T, twist if stated is None else _body_twist(T, stated)

    stated = {j for j, joint in enumerate(topology.joints) if joint in q or joint in qd}
    branches, roots = spanning_branches(system, [bodies[name] for name in pose], stated)
    for name, T in pose.items():
        put(bodies[name], T, still)
    for root in roots:
        put(root, stands.get(topology.bodies[root], origin[0]), still)
    coordinates: dict[int, Array] = {}
    for branch in branches:
        j, joint = branch.joint, topology.joints[branch.joint]
        zero = np.zeros((ends[j].dof,) + (1,) * axes, precision())
        coordinates[j] = _with(q.get(joint), before.get(joint, zero))
        placed = _placed(
            *joints[j],
            coordinates[j],
            _with(qd.get(joint), zero),
            motions[branch.base],
            time,
            forward=branch.side == 0,
            batch=axes,
        )
        _check_finite(joint, joints[j][0], coordinates[j], placed)
        put(branch.body, *placed)
    driven = {
        topology.joints[branch.joint]
        for branch in branches
        if topology.bodies[branch.body] not in velocity
    }
    for joint in () if rough else qd:
        if joint not in driven:
            raise ValueError(
                f"joint {joint!r}: qd {qd[joint].value} has no effect, its bodies move as they are "
                "given or as other joints say; leave it out"
            )
    for j, (joint, end) in enumerate(zip(topology.joints, ends, strict=True)):
        kind, between = type(joints[j][0]).__name__, (motions[end.child], motions[end.parent])
        if j not in coordinates:
            near = before.get(joint)
            if joint in q:
                zero = np.zeros((end.dof,) + (1,) * axes, precision())
                near = _with(q[joint], zero if near is None else near)
            coordinates[j], *gap = _closed(*joints[j], *between, near, time, batch=axes)
            if not rough:
                _check_closed(joint, kind, coordinates[j], q.get(joint), *gap)
        if joints[j][0].velocity_rows and not rough:
            slip, size = _slip(*joints[j], *between, time, batch=axes)
            _warn_of_slip(joint, kind, slip, size)

    state = _start(
        [motions[i] for i in range(len(bodies))],
        [coordinates[j] for j in range(len(ends))],
        system,
        time,
        batch=batch,
    )
    if state.engagement.size:
        state = replace(state, engagement=_engaged(wide, state))
    if not rough:
        _warn_of_limits(read, state)
        _warn_of_transmissions(system, state)
        _warn_of_constraints(system, state)
    return state


def _with(stated: Stated | None, others: Array) -> Array:
    """Coordinates of a joint: those that are given, and `others` in place of the rest."""
    return others if stated is None else stated.within(others)


def _read_start(system: System, start: State | None) -> tuple[dict[str, Array], dict[str, Pose]]:
    """Coordinates of all joints and poses of all body frames in a state, by name; none without."""
    if start is None:
        return {}, {}
    topology = system.topology
    if not isinstance(start, State):
        raise ValueError(f"start is {type(start).__name__}; give a State, such as that of `build`")
    wanted = (3, len(topology.bodies)), (system.coordinates,)
    shapes = start.position.shape[:2], start.q.shape[:1]
    if shapes != wanted or start.q.ndim != 1 + start.time.ndim:
        raise ValueError(
            f"start has positions and q of shapes {start.position.shape} and {start.q.shape}; "
            f"those of this system are {wanted[0]} and {wanted[1]}, and batch axes may follow"
        )
    return _standing(system, start)


@quickly
def _standing(system: System, state: State) -> tuple[dict[str, Array], dict[str, Pose]]:
    """Coordinates of all joints, and poses of all body frames in the world, by name."""
    batch = batch_shape(system, state, None)

    def full(leaf, rank):
        leaf = expand_trailing(leaf, rank, len(batch))
        return jnp.broadcast_to(leaf, leaf.shape[:rank] + batch)

    state = with_unit_quaternions(jax.tree.map(full, state, STATE_RANKS))
    mechanism = prepare(system, len(batch))
    kinematics = system_kinematics(mechanism, state)
    coordinates, poses = joint_coordinates(mechanism, kinematics, state), body_poses(system, state)
    topology = system.topology
    q = {name: coordinates[system.coordinate(name)] for name in topology.joints}
    return q, dict(zip(topology.bodies, poses, strict=True))


# A method where users look for it, `system.state(q=…)`: a system knows nothing of what builds it.
System.state = start_state


def _engaged(system: System, state: State) -> Array:
    """`State.engagement` where a system starts: limits that are reached are engaged.

    system: with all batch axes
    """
    engagement = none = jnp.zeros_like(state.engagement)
    for group, places, q in _along_laws(system, state):
        engagement = engaged_after(group, places, q, 0 * q, none, engagement)
    return engagement


def _along_laws(system: System, state: State) -> Iterator[tuple[Group, np.ndarray, Array]]:
    """What laws act along: each group of joints, transmissions or contacts, the places of its
    coordinates, values or gaps in `State.engagement`, and what they are, (k, n, *batch).

    system: with all batch axes
    """
    q = state.q
    for group in system.groups:
        places = coordinate_indices(group)
        yield group, places, q[places]
    at = {
        j: np.arange(q.shape[0])[system.coordinate(x)] for j, x in enumerate(system.topology.joints)
    }
    for group in (group for group in system.transmissions if group.laws):
        slots = np.stack(
            [np.concatenate([at[j] for j in joints]) for joints in group.joints], axis=1
        )
        value = map_trailing(lambda t, q: t.value(q), q.ndim, group.transmission, q[slots])
        yield group, value_indices(system, group), value
    if system.contacts:
        for group, gap in zip(system.contacts, _gaps(system, state), strict=True):
            yield group, contact_indices(system, group), gap


@quickly
def _gaps(system: System, state: State) -> list[Array]:
    """Gaps of the contacts of each group [m], (1, contacts, *batch)."""
    mechanism = prepare(system, state.time.ndim)
    contacts = system_kinematics(mechanism, with_unit_quaternions(state)).contacts
    gaps = [contact.frame.gap for contact in contacts]
    return [jnp.broadcast_to(gap, (*gap.shape[:1], *state.time.shape))[None] for gap in gaps]


@dataclass(frozen=True)
class _Ends:
    """What a joint connects: body indices, and its number of coordinates."""

    child: int
    parent: int
    dof: int


@partial(quickly, static_argnames=("forward", "batch"))
def _placed(coupling, frame_C, frame_D, q, qd, other, time, *, forward, batch):
    """Pose and twist of a body (body axes, at its origin) that a joint places.

    other: pose and twist of the joint's other body
    forward: the placed body is the child
    """
    with jax.default_matmul_precision("highest"):
        T, v = map_trailing(_relative_motion, batch, coupling, q, qd, time)
    link = frame_D @ T @ frame_C.inverse()
    v = transform_twist(frame_C.inverse(), v)
    if not forward:
        link, v = link.inverse(), -transform_twist(link.inverse(), v)
    pose, twist = other
    return (pose @ link).normalized(), transform_twist(link, twist) + v


def _relative_motion(coupling: Coupling, q: Array, qd: Array, t: Array) -> tuple[Pose, Array]:
    """T_CD and v_CD of one joint without error, at coordinates q, speeds qd and the time t."""
    if isinstance(coupling, Residual):
        # The allowed poses may change with time: φ̇ = G v + ∂φ/∂t = 0. A closed form that does not
        # leaves the time out.
        timed = "t" in inspect.signature(coupling.pose).parameters
        T = coupling.pose(q, t) if timed else coupling.pose(q)
        rows = coupling.rows(T, q, t)
        return T, multiply(inverse(rows.W), jnp.concatenate([-rows.drift, qd]))
    T, rate = jax.jvp(coupling.pose, (q,), (qd,))
    return T, twist_of(T, rate)


@partial(quickly, static_argnames="batch")
def _closed(coupling, frame_C, frame_D, child, parent, q, time, *, batch):
    """Coordinates of a joint between two placed bodies, its largest error [m or rad] and rate of
    an error, and the largest component of the positions of C and D in the world [m] and of v_CD.

    child, parent: pose and twist of each body
    q: from which angles are continued, None for those nearest to zero
    """
    C, D = child[0] @ frame_C, parent[0] @ frame_D
    T = D.inverse() @ C
    v = transform_twist(frame_C, child[1]) - transform_twist(frame_D @ T, parent[1])

    def closed(coupling, T, v, t, *near):
        start = near[0] if near else jax.lax.stop_gradient(coupling.coordinates(T, None, t))
        rows = coupling.rows(T, start, t)
        rate = multiply(rows.W[: 6 - coupling.dof], v) + rows.drift
        return rows.q, *(jnp.max(jnp.abs(x), initial=0.0) for x in (rows.error, rate))

    with jax.default_matmul_precision("highest"):
        near = () if q is None else (q,)
        value, *gap = map_trailing(closed, batch, coupling, T, v, time, *near)
    size = jnp.maximum(jnp.max(jnp.abs(C.p)), jnp.max(jnp.abs(D.p)))
    return value, *map(jnp.max, gap), size, jnp.max(jnp.abs(v))


@partial(quickly, static_argnames="batch")
def _slip(coupling, frame_C, frame_D, child, parent, time, *, batch):
    """Largest violation of a joint's velocity rows, and the largest component of v_CD."""
    T = (parent[0] @ frame_D).inverse() @ child[0] @ frame_C
    v = transform_twist(frame_C, child[1]) - transform_twist(frame_D @ T, parent[1])

    def residual(coupling, T, v, t):
        return coupling.velocity_residual(T, v, t)

    slip = map_trailing(residual, batch, coupling, T, v, time)
    return jnp.max(jnp.abs(slip)), jnp.max(jnp.abs(v))


@partial(quickly, static_argnames="batch")
def _start(motions, coordinates, system, time, *, batch):
    """The state of bodies and joints that move so.

    motions: of each body the pose of its frame, and its twist in body axes at the frame's origin
    coordinates: of each joint
    """
    com = expand(system.com, [2], len(batch))

    def stacked(*parts):
        full = [jnp.broadcast_to(x, (x.shape[0], *batch)) for x in parts]
        return jnp.stack(full, axis=1)

    T, twist = jax.tree.map(stacked, *motions)
    twist = transform_twist(Pose.translation(com), twist)
    flat = [jnp.broadcast_to(q, (q.shape[0], *batch)) for q in coordinates]
    return State(
        position=T.apply(com),
        quaternion=T.q,
        velocity=T.rotate(twist[:3]),
        omega=T.rotate(twist[3:]),
        time=jnp.broadcast_to(time, batch),
        q=jnp.concatenate([*flat, jnp.zeros((0, *batch), precision())], axis=0),
        row_forces=no_forces(system, batch, precision()),
        engagement=jnp.zeros((engagement_size(system), *batch), precision()),
    )


def _body_twist(T: Pose, velocity: Array) -> Array:
    """Twist in body axes of a body at pose T, from its velocity in world axes."""
    return jnp.concatenate([T.rotate_inverse(v) for v in (velocity[:3], velocity[3:])], axis=0)


def _ends(system: System) -> list[_Ends]:
    """What each joint connects, in the order of the joints."""
    ends: dict[int, _Ends] = {}
    for group in system.groups:
        for j, child, parent in zip(group.joints, group.child, group.parent, strict=True):
            ends[j] = _Ends(child, parent, group.coupling.dof)
    return [ends[j] for j in range(len(ends))]


def _batch(system: System, values: list[Any]) -> tuple[int, ...]:
    """The batch axes that the leaves of the system and the values of bodies and joints have."""
    shapes = [
        leaf.shape[rank:]
        for leaf, rank in zip(jax.tree.leaves(system), system.topology.ranks, strict=True)
    ]
    return common_batch("start", shapes + [leaf.shape[1:] for leaf in jax.tree.leaves(values)])


def _check_finite(joint: str, coupling: Coupling, q: Array, motion: tuple[Pose, Array]) -> None:
    """Raise ValueError for a joint that places its body at a pose or speed that is not finite."""
    if is_traced(motion) or all(np.isfinite(x).all() for x in jax.tree.leaves(motion)):
        return
    raise ValueError(
        f"joint {joint!r}: its {type(coupling).__name__} gives a pose or speed that is not finite "
        f"at q {q}; check its parameters and its `pose` there"
    )


def _check_closed(joint, kind, value, stated, error, rate, size, speed) -> None:
    """Check a joint between placed bodies: its q must follow from them, its frames should meet, at
    speeds that fit.

    value: coordinates that follow; stated: those of the user, a `Stated`, or None
    error … speed: see `_closed`
    """
    if is_traced((value, stated, error)):
        return
    rounding = _rounding(value.dtype) * (1 + float(size))
    if stated is not None:
        follows = np.asarray(value)[np.array(stated.at, int)]
        if not np.allclose(follows, stated.value, rtol=0, atol=rounding):
            raise ValueError(
                f"joint {joint!r}: q {stated.value} is not where its bodies stand, placed by their "
                f"poses or other joints; they give q {follows}. Leave it out, or give q to the "
                "joints before it"
            )
    if not error <= rounding:
        warn(
            f"joint {joint!r}: the frames of this {kind} miss each other by {float(error):.3g} m "
            "or rad at the start; `assemble` closes it from there (rough=True), otherwise give "
            "poses or coordinates that fit"
        )
    elif not rate <= _rounding(value.dtype) * (1 + float(speed)):
        warn(f"joint {joint!r}: this {kind} {_parts(rate)}")


def _parts(rate: Array) -> str:
    """What becomes of speeds that do not fit."""
    return (
        f"moves off its surface at {float(rate):.3g} m/s or rad/s at the start; an impulse in the "
        "first step ends that, otherwise give qd or velocities that fit, or take "
        "`project(system, state, velocities=True)`"
    )


@quickly
def _transmission_gaps(system: System, state: State) -> dict[int, tuple[Array, Array]]:
    """Largest error of each transmission that keeps values at 0, and largest rate of an error."""
    mechanism = prepare(system, state.time.ndim)
    state = with_unit_quaternions(state)
    kinematics, twist = system_kinematics(mechanism, state), with_world(body_twists(state))
    gaps = {}
    for group in mechanism.system.transmissions:
        if group.held:
            value, H = transmission_rows(mechanism, group, kinematics)
            bodies = zip(*group.bodies, strict=True)
            rate = sum(
                multiply_transposed(side, twist[:, np.array(at)])
                for side, at in zip(H, bodies, strict=True)
            )
            held = np.array(group.held)
            if group.enabled is not None:
                value, rate = (jnp.where(group.enabled > 0, x, 0.0) for x in (value, rate))
            for i, member in enumerate(group.members):
                gaps[member] = tuple(jnp.max(jnp.abs(x[held, i])) for x in (value, rate))
    return gaps


def _warn_of_transmissions(system: System, state: State) -> None:
    """Warn of transmissions whose values are not kept at 0 at the start."""
    if is_traced((system, state)) or not any(group.held for group in system.transmissions):
        return
    rounding = _rounding(state.q.dtype)
    for member, (error, rate) in sorted(_transmission_gaps(system, state).items()):
        owner = f"transmission {system.topology.transmissions[member]!r}"
        if not error <= rounding * (1 + float(jnp.max(jnp.abs(state.q), initial=0.0))):
            warn(
                f"{owner}: its value is {float(error):.3g} at the start and is to be 0; `project` "
                "closes small gaps and `assemble` any, otherwise give coordinates that fit"
            )
        elif not rate <= rounding * (1 + float(jnp.max(jnp.abs(state.omega), initial=0.0))):
            warn(f"{owner}: its value {_parts(rate)}")


@quickly
def _constraint_gaps(system: System, state: State) -> dict[int, tuple[Array, Array]]:
    """Largest error of each constraint, and the largest speed that its rows do not allow."""
    mechanism = prepare(system, state.time.ndim)
    state = with_unit_quaternions(state)
    kinematics, twist = system_kinematics(mechanism, state), with_world(body_twists(state))
    gaps = {}
    for group, rows in zip(mechanism.system.constraints, kinematics.constraints, strict=True):
        sides = zip(rows.H, zip(*group.bodies, strict=True), strict=True)
        rate = rows.drift + sum(multiply_transposed(H, twist[:, np.array(at)]) for H, at in sides)
        # Rows of accelerations allow any speed.
        rate = rate[: group.constraint.rows - group.constraint.acceleration_rows]
        error = rows.error
        if group.enabled is not None:
            error, rate = (jnp.where(group.enabled > 0, x, 0.0) for x in (error, rate))
        for i, member in enumerate(group.members):
            gaps[member] = tuple(jnp.max(jnp.abs(x[:, i]), initial=0.0) for x in (error, rate))
    return gaps


def _warn_of_constraints(system: System, state: State) -> None:
    """Warn of constraints whose errors are not 0 at the start, or that its speeds do not fit.

    Raises: ValueError for one that is not finite there
    """
    if is_traced((system, state)) or not system.constraints:
        return
    size, speed = (
        1 + max(float(jnp.max(jnp.abs(x))) for x in parts)
        for parts in ((state.position,), (state.velocity, state.omega))
    )
    rounding = _rounding(state.q.dtype)
    for member, (error, rate) in sorted(_constraint_gaps(system, state).items()):
        owner = f"constraint {system.topology.constraints[member]!r}"
        if not np.isfinite(error):
            raise ValueError(
                f"{owner}: its error is not finite where its bodies start; guard its divisions, "
                "roots and norms, or start elsewhere"
            )
        if error > rounding * size:
            warn(
                f"{owner}: its error is {float(error):.3g} at the start and is to be 0; `project` "
                "closes small errors and `assemble` any (rough=True)"
            )
        elif not rate <= rounding * speed:
            warn(f"{owner}: it {_parts(rate)}")


def _warn_of_slip(joint, kind, slip, size) -> None:
    """Warn of a joint whose velocity rows the start state violates; slip, size: see `_slip`."""
    if is_traced((slip, size)):
        return
    rounding = _rounding(slip.dtype) * (1 + float(size))
    if not slip <= rounding:
        warn(
            f"joint {joint!r}: this {kind} slips by {float(slip):.3g} m/s or rad/s at the start; "
            "an impulse in the first step ends that, otherwise give qd or velocities that fit"
        )


def _warn_of_limits(system: System, state: State) -> None:
    """Warn once for each bound that a coordinate, a transmission's value or a gap violates at the
    start.

    system: with all batch axes
    """
    if is_traced((system, state)):
        return
    rounding = _rounding(state.q.dtype)
    topology = system.topology
    names = {
        JointGroup: (topology.joints, "coordinate {}"),
        TransmissionGroup: (topology.transmissions, "value {}"),
        ContactGroup: (topology.contacts, "its gap"),
    }
    for group, _, q in _along_laws(system, jax.tree.map(np.asarray, state)):
        known, what = names[type(group)]
        # Of a contact the gap alone has a value.
        q = np.asarray(q)
        for law in (law for law in group.laws if law.coordinate < len(q)):
            sides = next((x for kind, x in BOUNDS.items() if isinstance(law, kind)), ())
            for field, sign in sides:
                bound = getattr(law, field)
                if bound is None:
                    continue
                values = q[law.coordinate]
                bounds = np.asarray(bound) + 0 * values
                gap = sign * (values - bounds)
                outside = gap < -rounding * (1 + np.abs(bounds))
                for i in np.flatnonzero(outside.any(axis=tuple(range(1, values.ndim)))):
                    worst = np.unravel_index(np.argmin(gap[i]), gap[i].shape)
                    warn(
                        f"{group.element} {known[group.members[i]]!r}: "
                        f"{what.format(law.coordinate)} starts at {values[i][worst]:.6g}, outside "
                        f"its {field} {bounds[i][worst]:.6g} by {-gap[i][worst]:.3g}"
                    )


def _rounding(dtype: Any) -> float:
    """The largest error of numbers of size 1 that is taken for rounding."""
    return max(START_ERROR, 64 * float(jnp.finfo(dtype).eps))
