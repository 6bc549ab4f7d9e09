"""Where a system starts: bodies placed from coordinates, by name, along the graph of joints."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.dense import inverse, multiply
from ..algebra.pytree import expand, expand_trailing, map_trailing, replace
from ..algebra.spatial import Pose, transform_twist, twist_of
from ..assembly.engagement import engaged_after, value_indices
from ..assembly.impulses import no_warm_start
from ..assembly.layout import engagement_size
from ..couplings.coupling import Coupling, Residual
from ..laws.limits import Limits, Lock
from ..model.kinematics import coordinate_indices
from ..model.state import State
from ..model.system import System
from .validation import (
    common_batch,
    is_traced,
    precision,
    read_by_name,
    read_coordinates,
    read_pose,
    read_velocity,
)

WORLD_INDEX = -1
START_ERROR = 1e-6
SIDES = {Limits: (("lower", 1), ("upper", -1)), Lock: (("value", 1), ("value", -1))}


def start_state(
    system: System,
    *,
    q: Mapping[str, Any] | None = None,
    qd: Mapping[str, Any] | None = None,
    pose: Mapping[str, Any] | None = None,
    velocity: Mapping[str, Any] | None = None,
) -> State:
    """A state of a system from coordinates by joint name and poses by body name.

    Bodies with a pose stand there, at rest unless they have a velocity. From them and the world,
    breadth first and joints in the order they were added, each joint but contacts places the body
    at its other end with its q and qd (zero by default). What is left stands at the identity.
    Joints that close a loop, and contacts, get the coordinates that follow.

    q, qd: a number or (dof,) per joint, with any batch axes at the end; q also chooses the turn of
        angles that wind
    pose: of the body frame in the world, forms as in `SystemBuilder.body`, with any batch axes at
        the end
    velocity: of the body frame's origin, then angular, world axes, shape (6, *batch); it takes
        precedence over the joint that places the body

    Raises: ValueError for unknown names, and for q and qd that contradict the poses.
    Warns: joints whose frames do not meet, speeds that slip where a joint forbids it (rolling),
        coordinates outside their limits.
    """
    topology = system.topology
    ends = _ends(system)
    dofs = {name: end.dof for name, end in zip(topology.joints, ends, strict=True)}
    q, qd = (
        read_by_name(
            field, x, "joint", dofs, lambda o, n, x, f=field: read_coordinates(o, f, x, dofs[n])
        )
        for field, x in (("q", q), ("qd", qd))
    )
    bodies = topology.body_index
    pose = read_by_name(
        "pose", pose, "body", bodies, lambda o, n, x: read_pose(o, "pose", x, batched=True)
    )
    velocity = read_by_name(
        "velocity", velocity, "body", bodies, lambda o, n, x: read_velocity(o, x, batched=True)
    )
    batch = _batch(system, [*q.values(), *qd.values(), *velocity.values(), *pose.values()])
    axes = len(batch)
    wide = expand(system, list(topology.ranks), axes)
    q, qd, pose, velocity = (
        {n: jax.tree.map(lambda x: expand_trailing(x, 1, axes), v) for n, v in given.items()}
        for given in (q, qd, pose, velocity)
    )

    still = jnp.zeros((6,) + (1,) * axes, precision())
    home = Pose.identity((1,) * axes, dtype=precision()), still
    motions = {WORLD_INDEX: home}
    for name, T in pose.items():
        motions[bodies[name]] = T, _body_twist(T, velocity.get(name, still))
    coordinates: dict[int, Array] = {}
    moved = set()
    for body, j in _spanning_tree(ends, len(bodies), [bodies[name] for name in pose]):
        name = topology.bodies[body]
        motions[body] = home
        if j is not None:
            end, joint = ends[j], topology.joints[j]
            record = wide.joint(joint)
            zero = jnp.zeros((end.dof,) + (1,) * axes, precision())
            forward = body == end.child
            coordinates[j] = q.get(joint, zero)
            motions[body] = _place(
                *(record.coupling, record.frame_C, record.frame_D),
                coordinates[j],
                qd.get(joint, zero),
                motions[end.parent if forward else end.child],
                forward=forward,
                batch=axes,
            )
            _check_finite(joint, record.coupling, coordinates[j], motions[body])
            if name not in velocity:
                moved.add(joint)
        if name in velocity:
            T = motions[body][0]
            motions[body] = T, _body_twist(T, velocity[name])
    for joint in qd:
        if joint not in moved:
            raise ValueError(
                f"joint {joint!r}: qd {qd[joint]} has no effect, its bodies move as they are given "
                "or as other joints say; leave it out"
            )
    for j, (joint, end) in enumerate(zip(topology.joints, ends, strict=True)):
        if j in coordinates:
            continue
        record = wide.joint(joint)
        coordinates[j], error, size = _read(
            *(record.coupling, record.frame_C, record.frame_D),
            *(motions[end.child], motions[end.parent]),
            q.get(joint),
            batch=axes,
        )
        kind = type(record.coupling).__name__
        _check_start(joint, kind, coordinates[j], q.get(joint), error, size)

    for joint, end in zip(topology.joints, ends, strict=True):
        record = wide.joint(joint)
        if record.coupling.velocity_rows:
            slip, size = _slip(
                *(record.coupling, record.frame_C, record.frame_D),
                *(motions[end.child], motions[end.parent]),
                batch=axes,
            )
            _warn_slipping(joint, type(record.coupling).__name__, slip, size)

    position, quaternion, linear, angular = _at_centres(
        [motions[i] for i in range(len(bodies))], wide.com, batch=batch
    )
    flat = [jnp.broadcast_to(coordinates[j], (end.dof, *batch)) for j, end in enumerate(ends)]
    flat.append(jnp.zeros((0, *batch), precision()))
    state = State(
        position=position,
        quaternion=quaternion,
        velocity=linear,
        omega=angular,
        time=jnp.zeros(batch, precision()),
        q=jnp.concatenate(flat, axis=0),
        warm_start=no_warm_start(system, batch, precision()),
        engagement=jnp.zeros((engagement_size(system), *batch), precision()),
    )
    if state.engagement.size:
        state = replace(state, engagement=_engaged(wide, state))
    _warn_outside(system, state)
    return state


# A method where users look for it, `system.state(q=…)`: a system knows nothing of what builds it.
System.state = start_state


def _engaged(system: System, state: State) -> Array:
    """`State.engagement` where a system starts: limits that are reached are engaged.

    system: with all batch axes
    """
    q, none = state.q, jnp.zeros_like(state.engagement)
    found = none
    for group in system.groups:
        own = q[coordinate_indices(group)]
        found = engaged_after(group, coordinate_indices(group), own, 0 * own, none, found)
    at = {
        j: np.arange(q.shape[0])[system.coordinate(x)] for j, x in enumerate(system.topology.joints)
    }
    for group in system.transmissions:
        slots = np.stack([np.concatenate([at[j] for j in own]) for own in group.joints], axis=1)
        axes = state.time.ndim + 1
        value = map_trailing(lambda t, q: t.value(q), axes, group.transmission, q[slots])
        places = value_indices(system, group)
        found = engaged_after(group, places, value, 0 * value, none, found)
    return found


@dataclass(frozen=True)
class _Ends:
    child: int
    parent: int
    dof: int
    places: bool


@partial(jax.jit, static_argnames=("forward", "batch"))
def _place(coupling, frame_C, frame_D, q, qd, known, *, forward, batch):
    """Pose and twist of a body (body axes, at its origin) from those of the joint's other body."""
    with jax.default_matmul_precision("highest"):
        T, v = map_trailing(_relative_motion, batch, coupling, q, qd)
    link = frame_D @ T @ frame_C.inverse()
    v = transform_twist(frame_C.inverse(), v)
    if not forward:
        link, v = link.inverse(), -transform_twist(link.inverse(), v)
    pose, twist = known
    return (pose @ link).normalized(), transform_twist(link, twist) + v


def _relative_motion(coupling: Coupling, q: Array, qd: Array) -> tuple[Pose, Array]:
    """T_CD and v_CD on the surface of one joint."""
    if isinstance(coupling, Residual):
        # The surface may move with time: φ̇ = G v + ∂φ/∂t = 0.
        T = coupling.pose(q)
        rows = coupling.rows(T, q, jnp.zeros((), q.dtype))
        return T, multiply(inverse(rows.W), jnp.concatenate([-rows.drift, qd]))
    T, rate = jax.jvp(coupling.pose, (q,), (qd,))
    return T, twist_of(T, rate)


@partial(jax.jit, static_argnames="batch")
def _read(coupling, frame_C, frame_D, child, parent, q, *, batch):
    """Coordinates, largest error and distance from the origin of a joint between placed bodies."""
    C, D = child[0] @ frame_C, parent[0] @ frame_D
    T = D.inverse() @ C

    def read(coupling, T, *near):
        start = near[0] if near else jax.lax.stop_gradient(coupling.coordinates(T))
        rows = coupling.rows(T, start, jnp.zeros((), T.p.dtype))
        return rows.q, jnp.max(jnp.abs(rows.error), initial=0.0)

    with jax.default_matmul_precision("highest"):
        value, error = map_trailing(read, batch, coupling, T, *(() if q is None else (q,)))
    return value, jnp.max(error), jnp.maximum(jnp.max(jnp.abs(C.p)), jnp.max(jnp.abs(D.p)))


@partial(jax.jit, static_argnames="batch")
def _slip(coupling, frame_C, frame_D, child, parent, *, batch):
    """Largest forbidden velocity of a joint with velocity rows, and the largest speed of C in D."""
    T = (parent[0] @ frame_D).inverse() @ child[0] @ frame_C
    v = transform_twist(frame_C, child[1]) - transform_twist(frame_D @ T, parent[1])

    def read(coupling, T, v):
        return coupling.velocity_residual(T, v, jnp.zeros((), v.dtype))

    return jnp.max(jnp.abs(map_trailing(read, batch, coupling, T, v))), jnp.max(jnp.abs(v))


@partial(jax.jit, static_argnames="batch")
def _at_centres(motions, com, *, batch):
    """Positions and quaternions of all centres of mass, their velocities, angular velocities."""

    def gathered(parts):
        full = [jnp.broadcast_to(x, (x.shape[0], *batch)) for x in parts]
        return jnp.stack(full, axis=1)

    poses, twists = zip(*motions, strict=True)
    T, twist = jax.tree.map(lambda *x: gathered(x), *poses), gathered(twists)
    twist = transform_twist(Pose.translation(com), twist)
    return T.apply(com), T.q, T.rotate(twist[:3]), T.rotate(twist[3:])


def _body_twist(T: Pose, velocity: Array) -> Array:
    """Twist in body axes of a body at T whose origin moves at `velocity` in world axes."""
    return jnp.concatenate([T.rotate_inverse(v) for v in (velocity[:3], velocity[3:])], axis=0)


def _spanning_tree(
    ends: list[_Ends], bodies: int, placed: list[int]
) -> list[tuple[int, int | None]]:
    """Bodies to place, each with the joint that does, breadth first; None for the identity."""
    at: dict[int, list[int]] = {}
    for j, end in enumerate(ends):
        if end.places:
            at.setdefault(end.child, []).append(j)
            at.setdefault(end.parent, []).append(j)
    order, seen, tree = [WORLD_INDEX, *placed], {WORLD_INDEX, *placed}, []
    reached = 0
    for root in [WORLD_INDEX, *range(bodies)]:
        if root not in seen:
            seen.add(root)
            order.append(root)
            tree.append((root, None))
        while reached < len(order):
            node = order[reached]
            reached += 1
            for j in at.get(node, ()):
                other = ends[j].parent if ends[j].child == node else ends[j].child
                if other not in seen:
                    seen.add(other)
                    order.append(other)
                    tree.append((other, j))
    return tree


def _ends(system: System) -> list[_Ends]:
    """Bodies and freedom of every joint."""
    found: dict[int, _Ends] = {}
    for group in system.groups:
        for j, child, parent in zip(group.joints, group.child, group.parent, strict=True):
            found[j] = _Ends(child, parent, group.coupling.dof, group.coupling.places_bodies)
    return [found[j] for j in range(len(found))]


def _batch(system: System, values: list[Any]) -> tuple[int, ...]:
    """Batch axes of the system's leaves and of per-body and per-joint values."""
    shapes = [
        leaf.shape[rank:]
        for leaf, rank in zip(jax.tree.leaves(system), system.topology.ranks, strict=True)
    ]
    return common_batch("start", shapes + [leaf.shape[1:] for leaf in jax.tree.leaves(values)])


def _check_finite(joint: str, coupling: Coupling, q: Array, motion: tuple[Pose, Array]) -> None:
    if is_traced(motion) or all(np.isfinite(x).all() for x in jax.tree.leaves(motion)):
        return
    raise ValueError(
        f"joint {joint!r}: its {type(coupling).__name__} gives a pose or speed that is not finite "
        f"at q {q}; check its parameters and its `pose` there"
    )


def _check_start(joint, kind, value, asked, error, size) -> None:
    """A joint that places no body: its q must be what follows, its frames should meet."""
    if is_traced((value, asked, error)):
        return
    rounding = max(START_ERROR, 64 * float(jnp.finfo(value.dtype).eps)) * (1 + float(size))
    if asked is not None and not np.allclose(value, asked, rtol=0, atol=rounding):
        raise ValueError(
            f"joint {joint!r}: q {asked} is not where its bodies stand, placed by their poses or "
            f"other joints; they give q {value}. Leave it out, or give q to the joints before it"
        )
    if not error <= rounding:
        warnings.warn(
            f"joint {joint!r}: the frames of this {kind} miss each other by {float(error):.3g} m "
            "or rad at the start; `project` closes small gaps, otherwise give poses or coordinates "
            "that fit",
            stacklevel=4,
        )


def _warn_slipping(joint, kind, slip, size) -> None:
    """A joint with velocity rows: its start should obey them."""
    if is_traced((slip, size)):
        return
    rounding = max(START_ERROR, 64 * float(jnp.finfo(slip.dtype).eps)) * (1 + float(size))
    if not slip <= rounding:
        warnings.warn(
            f"joint {joint!r}: this {kind} slips by {float(slip):.3g} m/s or rad/s at the start; "
            "an impulse in the first step ends that, otherwise give qd or velocities that fit",
            stacklevel=4,
        )


def _warn_outside(system: System, state: State) -> None:
    """One warning for each joint with a coordinate outside its limits or off its lock."""
    if is_traced((system, state)):
        return
    rounding = max(START_ERROR, 64 * float(jnp.finfo(state.q.dtype).eps))
    rank = state.time.ndim + 1
    for group in system.groups:
        for law in group.laws:
            sides = next((x for kind, x in SIDES.items() if isinstance(law, kind)), ())
            for field, sign in sides:
                bound = getattr(law, field)
                if bound is None:
                    continue
                rows = np.array(group.start) + law.coordinate
                values = np.asarray(state.q)[rows]
                bounds = np.asarray(expand_trailing(bound, 1, rank - 1)) + 0 * values
                gap = sign * (values - bounds)
                outside = gap < -rounding * (1 + np.abs(bounds))
                for i in np.flatnonzero(outside.any(axis=tuple(range(1, rank)))):
                    worst = np.unravel_index(np.argmin(gap[i]), gap[i].shape)
                    warnings.warn(
                        f"joint {system.topology.joints[group.joints[i]]!r}: coordinate "
                        f"{law.coordinate} starts at {values[i][worst]:.6g}, outside its {field} "
                        f"{bounds[i][worst]:.6g} by {-gap[i][worst]:.3g}",
                        stacklevel=4,
                    )
