"""A spanning tree of the joints: the speeds ν that move all bodies, and the twists that they cause.

ν has the speeds of the coordinates of the tree's joints, in the order of the flat vector, and then,
for each body that no joint of the tree places, the twist of its body frame in its own axes. Joints
that close loops, and contacts, are not in the tree; they constrain ν.
"""

from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.dense import inverse, multiply, multiply_transposed
from ..algebra.pytree import expand_trailing, replace
from ..algebra.spatial import cross, quat_multiply, quat_rotate
from ..model.kinematics import (
    Kinematics,
    Mechanism,
    body_twists,
    coordinate_speeds,
    gather_coordinates,
    quaternion_components,
    system_kinematics,
    with_world,
    wrenches_on_bodies,
)
from ..model.state import State
from ..model.system import System


@dataclass(frozen=True)
class Branch:
    """A joint of the tree: it places `body` from `base`; side: 0 if the body is its child."""

    joint: int
    body: int
    base: int
    side: int


@dataclass(frozen=True)
class SpanningTree:
    """Which joint places which body.

    levels: branches whose bases are placed by the levels before
    coordinates: of the tree's joints, indices into the flat vector of coordinates
    roots: bodies that no joint places
    loops: names of the joints that are not in the tree
    """

    levels: tuple[tuple[Branch, ...], ...]
    coordinates: tuple[int, ...]
    roots: tuple[int, ...]
    loops: tuple[str, ...]

    @property
    def speeds(self) -> int:
        """Length of ν."""
        return len(self.coordinates) + 6 * len(self.roots)


def spanning_tree(system: System) -> SpanningTree:
    """The tree of joints breadth first from the world, in the order in which they were added.

    Bodies of prescribed motion are placed as the world is. Bodies that the world is not connected
    to are roots, in the order of bodies.
    """
    joints = {
        joint: (group.child[i], group.parent[i], group.start[i], group.coupling.dof, places)
        for group in system.groups
        for places in (group.coupling.places_bodies,)
        for i, joint in enumerate(group.joints)
    }
    edges = tuple((j, *joints[j]) for j in sorted(joints))
    return _tree(edges, system.topology.joints, system.topology.moving)


def world_twists(mechanism: Mechanism, tree: SpanningTree, state: State, speeds: Array) -> Array:
    """Velocities of the centres of mass and angular velocities for speeds ν, world axes, shape
    (6, bodies, *batch). Surfaces of joints that move with time count.

    state: its poses, and the velocities of prescribed bodies
    """
    system, batch = mechanism.system, state.time.shape
    kinematics = system_kinematics(mechanism, state)
    near, far, r = _rows(mechanism, tree, state, kinematics, speeds)
    twist = jnp.zeros((6, len(system.mass) + 1, *batch), state.position.dtype)
    prescribed = np.array(system.topology.prescribed, int)
    twist = twist.at[:, prescribed].set(body_twists(state)[:, prescribed])
    for i, root in enumerate(tree.roots):
        first = len(tree.coordinates) + 6 * i
        twist = twist.at[:, root].set(_at_centre(mechanism, root, speeds[first : first + 6]))
    start = 0
    for level in tree.levels:
        here = slice(start, start + len(level))
        start = here.stop
        base = np.array([branch.base for branch in level])
        carried = multiply_transposed(far[:, :, here], twist[:, base])
        body = np.array([branch.body for branch in level])
        twist = twist.at[:, body].set(multiply(near[:, :, here], r[:, here] - carried))
    q, twist = quaternion_components(state), twist[:, :-1]
    return jnp.concatenate([quat_rotate(q, twist[:3]), quat_rotate(q, twist[3:])])


def tree_speeds(mechanism: Mechanism, tree: SpanningTree, state: State) -> Array:
    """ν of the velocities of a state, shape (speeds, *batch)."""
    twist, kinematics = with_world(body_twists(state)), system_kinematics(mechanism, state)
    groups = zip(mechanism.system.groups, kinematics.joints, strict=True)
    parts = [coordinate_speeds(group, joint, twist) for group, joint in groups]
    q = gather_coordinates(mechanism, parts, state)[np.array(tree.coordinates, int)]
    roots = [_at_frame(mechanism, root, twist[:, root]) for root in tree.roots]
    return jnp.concatenate([q, *roots])


def columns(mechanism: Mechanism, tree: SpanningTree, state: State) -> Array:
    """Twists of all bodies for unit speeds, world axes, shape (6, bodies, speeds, *batch)."""
    speeds = jnp.zeros((tree.speeds, *state.time.shape), state.position.dtype)
    basis = jnp.eye(tree.speeds, dtype=speeds.dtype)
    basis = expand_trailing(basis, 2, state.time.ndim)

    def along(direction):
        twists = lambda speeds: world_twists(mechanism, tree, state, speeds)  # noqa: E731
        return jax.jvp(twists, (speeds,), (jnp.broadcast_to(direction, speeds.shape),))[1]

    return jax.vmap(along, in_axes=1, out_axes=2)(basis)


def moving_on(state: State) -> State:
    """Rates of a state whose bodies keep their velocities."""
    spin = jnp.concatenate([jnp.zeros_like(state.omega[:1]), state.omega])
    return replace(
        jax.tree.map(jnp.zeros_like, state),
        position=state.velocity,
        quaternion=0.5 * quat_multiply(spin, state.quaternion),
        time=jnp.ones_like(state.time),
    )


@lru_cache(maxsize=256)
def _tree(edges: tuple, names: tuple[str, ...], moving: tuple[bool, ...]) -> SpanningTree:
    world = len(moving)
    placed = {world, *(b for b, moves in enumerate(moving) if not moves)}
    ends = {
        j: tuple(world if b < 0 else b for b in (child, parent)) for j, child, parent, *_ in edges
    }
    places = {j: edge[-1] for j, *edge in edges}
    levels, used, roots = [], set(), []
    while True:
        level = []
        for j, (child, parent) in ends.items():
            if j in used or not places[j]:
                continue
            reached = {branch.body for branch in level}
            for side, (body, base) in enumerate(((child, parent), (parent, child))):
                if base in placed and body not in placed | reached:
                    level.append(Branch(j, body, base, side))
                    used.add(j)
                    break
        if level:
            levels.append(tuple(level))
            placed |= {branch.body for branch in level}
            continue
        left = [b for b in range(world) if b not in placed]
        if not left:
            break
        roots.append(left[0])
        placed.add(left[0])
    coordinates = [start + i for j, _, _, start, dof, _ in edges if j in used for i in range(dof)]
    loops = tuple(names[j] for j in ends if j not in used)
    return SpanningTree(tuple(levels), tuple(sorted(coordinates)), tuple(roots), loops)


def _rows(
    mechanism: Mechanism, tree: SpanningTree, state: State, kinematics: Kinematics, speeds: Array
) -> tuple[Array, Array, Array]:
    """Of each branch, level by level: (Hᵀ)⁻¹ of the rows on the body that it places, H on its base,
    and the speeds of its rows: (6, 6, branches, *batch) twice, (6, branches, *batch).
    """
    system, batch = mechanism.system, state.time.shape
    flat = jnp.zeros((system.coordinates, *batch), speeds.dtype)
    flat = flat.at[np.array(tree.coordinates, int)].set(speeds[: len(tree.coordinates)])
    # Without any joint there are arrays of none to concatenate.
    none = jnp.zeros((6, 6, 0, *batch), speeds.dtype)
    sides, rates, order = ([none], [none]), [none[:, 0]], []
    for group, joint in zip(system.groups, kinematics.joints, strict=True):
        for side, H in zip(sides, wrenches_on_bodies(group, joint, range(6)), strict=True):
            side.append(jnp.broadcast_to(H, (*H.shape[:3], *batch)))
        k = group.coupling.dof
        at = np.array(group.start)[None] + np.arange(k)[:, None]
        drift = jnp.broadcast_to(joint.rows.drift[: 6 - k], (6 - k, len(group.joints), *batch))
        rates.append(jnp.concatenate([-drift, flat[at]]))
        order += group.joints
    branches = [branch for level in tree.levels for branch in level]
    index = np.array([order.index(branch.joint) for branch in branches], int)
    away = np.array([branch.side * len(order) for branch in branches], int)
    H = jnp.concatenate([*sides[0], *sides[1]], axis=2)
    near = jnp.take(H, index + away, axis=2)
    far = jnp.take(H, index + len(order) - away, axis=2)
    r = jnp.take(jnp.concatenate(rates, axis=1), index, axis=1)
    return inverse(jnp.swapaxes(near, 0, 1)), far, r


def _at_centre(mechanism: Mechanism, body: int, twist: Array) -> Array:
    """A twist at the body frame's origin, at the centre of mass, both in body axes."""
    com = jnp.broadcast_to(mechanism.system.com[:, body], twist[:3].shape)
    return jnp.concatenate([twist[:3] + cross(twist[3:], com), twist[3:]])


def _at_frame(mechanism: Mechanism, body: int, twist: Array) -> Array:
    """A twist at the centre of mass, at the body frame's origin."""
    com = jnp.broadcast_to(mechanism.system.com[:, body], twist[:3].shape)
    return jnp.concatenate([twist[:3] - cross(twist[3:], com), twist[3:]])
