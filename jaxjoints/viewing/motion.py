"""Motion: what a viewer and plots show of a trajectory, read frame by frame into NumPy arrays."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..algebra.compiler import QUICK
from ..model.batch import batch_shape
from ..model.kinematics import (
    coordinate_indices,
    joint_coordinates,
    poses_with_world,
    system_kinematics,
)
from ..model.measures import body_poses
from ..model.state import STATE_RANKS, Info, State
from ..model.system import System
from ..optimization.plan import Plan
from ..simulate.readout import energies
from ..simulate.surface import ready, surface_speeds

# Frames that are evaluated at once. The last ones are filled up, so that trajectories of any length
# share one compiled program.
CHUNK = 256
MOST_FRAMES = 1500
MOST_BYTES = 48_000_000
MOST_ENVIRONMENTS = 16
# Of a coordinate's unit twist, the angular part that makes it an angle.
TURNS = 1e-6


@dataclass(frozen=True, eq=False)
class Motion:
    """Frames of some environments of a trajectory. F frames, E environments, k coordinates.

    system: the system, whose batched leaves have one axis of the E environments
    environments: their indices in the trajectory, counted through all batch axes
    time: [s], increasing, shape (F,)
    poses: of the body frames in the world, position and quaternion (w first), (F, E, bodies, 7)
    coordinates, speeds: of all joints, (F, E, k)
    axes: twist of C relative to D, in C, for unit speed of each coordinate, (F, E, k, 6)
    errors: largest bilateral error of each joint [m or rad], (F, E, joints)
    energies: kinetic, gravity, springs [J], (F, E, 3)
    gaps: of each contact [m], (F, E, contacts)
    contact_points: where the forces of each contact act in the world [m], (F, E, contacts, 3)
    wrenches: of each joint on its child, at C in C (`Info.wrench`), (F, E, joints, 6), or None
    contact_forces: of each contact on its child, world axes [N], (F, E, contacts, 3), or None
    limit_forces: of limits along each coordinate (`Info.limit_force`), (F, E, k), or None
    notes: what is not shown, a sentence each

    >>> from jaxjoints import Slider, SystemBuilder
    >>> world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    >>> cart = world.body("cart", mass=2.0, inertia=(1.0, 1.0, 1.0))
    >>> _ = world.joint("rail", Slider((1.0, 0.0, 0.0)), child=cart, q=0.5, qd=3.0)
    >>> motion = read_motion(*world.build())
    >>> print(motion.coordinates[0, 0], motion.energies[0, 0, 0], motion.turning)  # q, m v²/2
    [0.5] 9.0 [False]
    """

    system: System
    environments: tuple[int, ...]
    time: np.ndarray
    poses: np.ndarray
    coordinates: np.ndarray
    speeds: np.ndarray
    axes: np.ndarray
    errors: np.ndarray
    energies: np.ndarray
    gaps: np.ndarray
    contact_points: np.ndarray
    wrenches: np.ndarray | None
    contact_forces: np.ndarray | None
    limit_forces: np.ndarray | None
    notes: tuple[str, ...]

    @property
    def turning(self) -> np.ndarray:
        """Whether each coordinate is an angle, shape (k,)."""
        return np.abs(self.axes[0, 0, :, 3:]).max(-1, initial=0.0) > TURNS


def read_motion(
    system: System,
    trajectory: Any,
    *,
    environments: Any = None,
    frames: int | None = MOST_FRAMES,
) -> Motion:
    """Frames of a trajectory that are finite, evenly spread, and no more than fit.

    trajectory: a `State` with time in front, as `rollout` returns it, or the pair (State, Info) of
        `record=lambda state, info: (state, info)`, which has forces; without time, one frame; or a
        `Plan`, of which its states
    environments: indices of those to read, counted through all batch axes; by default the first 16
    frames: most frames to keep; None for as many as there are, whatever their size

    Raises: ValueError for what is no trajectory of the system, for indices out of range, and where
        no frame is finite.
    """
    state, info = _with_time(system, trajectory)
    batch = batch_shape(system, jax.tree.map(lambda x: x[0], state), None)
    chosen, notes = _chosen_environments(environments, math.prod(batch))
    picked = partial(_picked, batch=batch, chosen=chosen)
    ranks, leaves = system.topology.ranks, jax.tree.leaves(system)
    shared = [x if x.ndim == r else picked(x, r) for x, r in zip(leaves, ranks, strict=True)]
    system = jax.tree.unflatten(jax.tree.structure(system), shared)
    state = jax.tree.map(lambda x, r: picked(x, 1 + r), state, STATE_RANKS)
    kept, more = _chosen_frames(system, state, frames, info is not None)
    state = jax.tree.map(lambda x: x[kept], state)
    read = _evaluated(system, state)
    n, t = read.pop("normals"), read.pop("tangents")
    time, untimed = _time(state.time)
    wrenches = limit_forces = contact_forces = None
    if info is not None:
        along = picked(info.contact_force, 3)[kept, :3].transpose(1, 0, 3, 2)[..., None]
        contact_forces = along[0] * n + along[1] * t + along[2] * np.cross(n, t)
        wrenches = picked(info.wrench, 3)[kept].transpose(0, 3, 2, 1)
        limit_forces = picked(info.limit_force, 2)[kept].transpose(0, 2, 1)
    return Motion(
        system,
        chosen,
        time,
        **read,
        wrenches=wrenches,
        contact_forces=contact_forces,
        limit_forces=limit_forces,
        notes=(*notes, *more, *untimed),
    )


def _with_time(system: System, trajectory: Any) -> tuple[State, Info | None]:
    """State and Info as NumPy arrays with an axis of time in front; ValueError for other things."""
    trajectory = trajectory.states if isinstance(trajectory, Plan) else trajectory
    pair = isinstance(trajectory, tuple) and len(trajectory) == 2
    state, info = trajectory if pair else (trajectory, None)
    if not isinstance(state, State) or not isinstance(info, Info | None):
        raise ValueError(
            f"trajectory is {type(trajectory).__name__}; give a State with time in front, as "
            "`rollout` records it, or the pair of record=lambda state, info: (state, info)"
        )
    state, info = jax.tree.map(np.asarray, (state, info))
    bodies = len(system.topology.bodies)
    if state.position.shape[:2] == (3, bodies) and state.quaternion.shape[:2] == (4, bodies):
        state, info = jax.tree.map(lambda x: x[None], (state, info))
    shape = state.position.shape
    if len(shape) < 3 or shape[1:3] != (3, bodies):
        raise ValueError(
            f"trajectory: positions have shape {shape}; those of this system have "
            f"(time, 3, {bodies}, *batch)"
        )
    if not shape[0]:
        raise ValueError("trajectory has no frame; record one at least")
    return state, info


def _chosen_environments(chosen: Any, count: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    if chosen is None:
        shown = min(count, MOST_ENVIRONMENTS)
        note = f"The first {shown} of {count} environments are shown."
        return tuple(range(shown)), (note,) if shown < count else ()
    chosen = (chosen,) if isinstance(chosen, int | np.integer) else tuple(map(int, chosen))
    wrong = [i for i in chosen if not 0 <= i < count]
    if wrong or not chosen:
        raise ValueError(f"environments {wrong or chosen}: there are {count}, counted from 0")
    return chosen, ()


def _picked(
    array: Any, rank: int, *, batch: tuple[int, ...], chosen: tuple[int, ...]
) -> np.ndarray:
    """An array whose batch axes, after `rank` others, are one axis of the chosen environments."""
    array = np.asarray(array)
    if array.ndim == rank:
        array = array.reshape(array.shape + (1,) * len(batch))
    whole = np.broadcast_to(array, array.shape[:rank] + batch)
    return whole.reshape(*whole.shape[:rank], math.prod(batch))[..., list(chosen)]


def _chosen_frames(
    system: System, state: State, most: int | None, forces: bool
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Indices of the frames to keep, and sentences about the others."""
    count, environments = state.time.shape
    axes = (1, 2, 3)
    good = np.isfinite(state.position).all(axes) & np.isfinite(state.quaternion).all(axes)
    kept, notes = np.flatnonzero(good), []
    if not len(kept):
        raise ValueError(
            "trajectory: in each frame some position is not finite; choose other environments"
        )
    if len(kept) < count:
        notes.append(f"{count - len(kept)} of {count} frames are not finite and are left out.")
    if most is not None:
        joints, k = len(system.topology.joints), system.coordinates
        numbers = 7 * len(system.topology.bodies) + 8 * k + joints + 3
        numbers += (4 + 3 * forces) * len(system.topology.contacts)
        numbers += (6 * joints + k) * forces
        fit = max(2, MOST_BYTES // (4 * numbers * environments))
        shown = min(most, fit, len(kept))
        if shown < 1:
            raise ValueError(f"frames {most} must be >= 1")
        if shown < len(kept):
            notes.append(f"{shown} of {len(kept)} frames are shown, evenly spread.")
            # Not the floor of equal ways, which would leave out the last frame.
            kept = kept[np.round(np.linspace(0, len(kept) - 1, shown)).astype(int)]
    return kept, tuple(notes)


def _time(time: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """One time for each frame: that of the environment which is ahead, since bad ones stand still.

    Frames are numbered where time does not increase.
    """
    time = time.max(axis=1).astype(float)
    if np.isfinite(time).all() and (np.diff(time) > 0).all():
        return time, ()
    return np.arange(len(time), dtype=float), (
        "The times of the frames do not increase; they are numbered instead.",
    )


def _evaluated(system: System, state: State) -> dict[str, np.ndarray]:
    """The fields of `Motion` that follow from poses and velocities, in chunks of frames."""
    frames, environments = state.time.shape
    size = CHUNK if frames > CHUNK else frames
    parts = []
    for first in range(0, frames, size):
        index = np.minimum(np.arange(first, first + size), frames - 1)
        chunk = jax.tree.map(lambda x: jnp.asarray(x[index]), state)  # noqa: B023
        part = jax.tree.map(np.asarray, _quantities(system, chunk))
        parts.append(jax.tree.map(lambda x: x[: frames - first], part))  # noqa: B023
    read = jax.tree.map(lambda *x: np.concatenate(x).astype(float), *parts)
    W = read.pop("W")
    W = np.broadcast_to(W, (frames, environments, *W.shape[2:]))
    axes = np.zeros((frames, environments, system.coordinates, 6))
    for group in system.groups:
        k = group.coupling.dof
        if k:
            # W⁻¹ = [E | S], see `couplings.coupling`.
            S = _inverse(W[:, :, list(group.joints)])[..., 6 - k :]
            axes[:, :, coordinate_indices(group).T] = np.swapaxes(S, -1, -2)
    return read | {"axes": axes}


def _inverse(W: np.ndarray) -> np.ndarray:
    try:
        return np.linalg.inv(W)
    except np.linalg.LinAlgError:
        # A joint at a singular place, such as a gimbal in its lock: ten times as long.
        return np.linalg.pinv(W)


@partial(jax.jit, compiler_options=QUICK)
@partial(jax.vmap, in_axes=(None, 0))
def _quantities(system: System, state: State) -> dict[str, Any]:
    """What is read of one frame; the axis of environments comes first in each array.

    Kinematics are evaluated once, not by each of the public functions: they take most of the time
    to compile.
    """
    poses, energy = body_poses(system, state), energies(system, state)
    mechanism, state = ready(system, state)
    groups, kinematics = mechanism.system.groups, system_kinematics(mechanism, state)
    environments, count = state.time.shape[0], len(system.topology.joints)
    W = jnp.zeros((6, 6, count, environments), state.q.dtype)
    errors = jnp.zeros((count, environments), state.q.dtype)
    contacts = jnp.zeros((10, len(system.topology.contacts), environments), state.q.dtype)
    bodies = poses_with_world(state)
    for group, joint in zip(groups, kinematics.joints, strict=True):
        members, rows = np.array(group.joints), joint.rows
        shape = (6, 6, len(group.joints), environments)
        W = W.at[:, :, members].set(jnp.broadcast_to(rows.W[:6], shape))
        if group.coupling.dof < 6:
            errors = errors.at[members].set(jnp.max(jnp.abs(rows.error), axis=0))
    for group, contact in zip(mechanism.system.contacts, kinematics.contacts, strict=True):
        C = jax.tree.map(lambda x: x[:, np.array(group.child)], bodies) @ group.frame_C  # noqa: B023
        at = contact.frame.seen_from(C)
        parts = at.gap[None], *jnp.broadcast_arrays(at.point, at.normal, at.tangent)
        contacts = contacts.at[:, np.array(group.members)].set(jnp.concatenate(parts))
    return {
        "poses": jnp.concatenate([poses.p, poses.q]).transpose(2, 1, 0),
        "coordinates": joint_coordinates(mechanism, kinematics, state).T,
        "speeds": surface_speeds(mechanism, kinematics, state).T,
        "errors": errors.T,
        "energies": jnp.stack([energy.kinetic, energy.gravity, energy.springs], axis=-1),
        "gaps": contacts[0].T,
        **{
            name: contacts[first : first + 3].T
            for first, name in ((1, "contact_points"), (4, "normals"), (7, "tangents"))
        },
        "W": W.transpose(3, 2, 0, 1),
    }
