"""A spanning tree of the joints: the speeds ν that move all bodies, and the twists that they cause.

ν has the speeds of the coordinates of the tree's joints, in the order of the flat vector, and then,
for each body that no joint of the tree places, the twist of its body frame in its own axes. Joints
that close loops, and contacts, are not in the tree; they constrain ν.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.compiler import materialize, stored
from ..algebra.dense import multiply, multiply_transposed
from ..algebra.places import take
from ..algebra.pytree import expand_trailing, replace
from ..algebra.spatial import cross, quat_multiply, quat_rotate
from ..model.branches import Branch, spanning_branches
from ..model.kinematics import (
    Kinematics,
    Mechanism,
    body_twists,
    coordinate_speeds,
    gather_coordinates,
    quaternion_components,
    system_kinematics,
    twists_of_rows,
    with_world,
    wrenches_on_bodies,
)
from ..model.state import State
from ..model.system import System


@dataclass(frozen=True)
class SpanningTree:
    """Which joint places which body.

    levels: branches whose bases are placed by the levels before
    coordinates: of the tree's joints, indices into the flat vector of coordinates
    roots: bodies that no joint places
    loops: names of the joints that are not in the tree

    >>> from jaxjoints import Hinge, SystemBuilder
    >>> world = SystemBuilder()
    >>> door = world.body("door", mass=20.0, inertia=(1.0, 1.0, 2.0))
    >>> for name, height in (("upper", 0.5), ("lower", -0.5)):
    ...     frame = (-0.4, 0.0, height)
    ...     hinge = world.joint(name, Hinge(), child=door, frame_C=frame, frame_D=frame)
    >>> tree = spanning_tree(world.build()[0])
    >>> tree.speeds, tree.loops  # one hinge places the door, the other one closes a loop
    (1, ('lower',))
    """

    levels: tuple[tuple[Branch, ...], ...]
    coordinates: tuple[int, ...]
    roots: tuple[int, ...]
    loops: tuple[str, ...]

    @property
    def speeds(self) -> int:
        """Length of ν."""
        return len(self.coordinates) + 6 * len(self.roots)

    @property
    def branches(self) -> list[Branch]:
        """All branches, those that place bases before those that build on them."""
        return [branch for level in self.levels for branch in level]

    def carried_by(self, bodies: int) -> np.ndarray:
        """Whether a body carries another or is it, (bodies, bodies)."""
        carried = np.eye(bodies + 1, dtype=bool)
        for branch in self.branches:
            carried[:, branch.body] |= carried[:, branch.base]
        return carried[:bodies, :bodies]


@public
def spanning_tree(system: System) -> SpanningTree:
    """The tree of joints breadth first from the world, in the order in which they were added.

    Bodies of prescribed motion are placed as the world is. Joints that hold nothing place what no
    other joint reaches. Where nothing leads to the world, the first body is a root.
    """
    topology = system.topology
    prescribed = [body for body, moves in enumerate(topology.moving) if not moves]
    branches, roots = spanning_branches(system, prescribed)
    depth: dict[int, int] = {}
    for branch in branches:
        depth[branch.body] = depth.get(branch.base, -1) + 1
    levels = [
        tuple(branch for branch in branches if depth[branch.body] == level)
        for level in sorted(set(depth.values()))
    ]
    used = {branch.joint for branch in branches}
    coordinates = [
        start + i
        for group in system.groups
        for j, start in zip(group.joints, group.start, strict=True)
        for i in range(group.coupling.dof)
        if j in used
    ]
    loops = tuple(name for j, name in enumerate(topology.joints) if j not in used)
    return SpanningTree(tuple(levels), tuple(sorted(coordinates)), roots, loops)


def world_twists(mechanism: Mechanism, tree: SpanningTree, state: State, speeds: Array) -> Array:
    """Velocities of the centres of mass and angular velocities for speeds ν, world axes, shape
    (6, bodies, *batch). Surfaces of joints that move with time count.

    state: its poses, and the velocities of prescribed bodies
    """
    prescribed = np.array(mechanism.system.topology.prescribed, int)
    own = jnp.zeros_like(with_world(body_twists(state)))
    own = own.at[:, prescribed].set(body_twists(state)[:, prescribed])
    columns = speeds[:, None], own[:, :, None]
    return _world_twists(mechanism, tree, state, *columns, drifting=True)[:, :, 0]


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
    unit = expand_trailing(jnp.eye(tree.speeds, dtype=state.position.dtype), 2, state.time.ndim)
    unit = jnp.broadcast_to(unit, (*unit.shape[:2], *state.time.shape))
    own = jnp.zeros((6, state.position.shape[1] + 1, *unit.shape[1:]), unit.dtype)
    return _world_twists(mechanism, tree, state, unit, own, drifting=False)


def first_bodies(mechanism: Mechanism, tree: SpanningTree) -> np.ndarray:
    """The first body that each speed moves, which carries all others that it moves, (speeds)."""
    _, branch = _places(mechanism, tree)
    bodies = np.array([branch.body for branch in tree.branches], int)[branch]
    return np.concatenate([bodies, np.repeat(np.array(tree.roots, int), 6)])


def first_twists(mechanism: Mechanism, tree: SpanningTree, state: State) -> Array:
    """The twist of that body for a unit of each speed: velocity of its centre of mass and angular
    velocity, world axes, (6, speeds, *batch).
    """
    row, branch = _places(mechanism, tree)
    kinematics = system_kinematics(mechanism, state)
    none = jnp.zeros((tree.speeds, 1, *state.time.shape), state.position.dtype)
    near, _, _ = _rows(mechanism, tree, kinematics, none, drifting=False)
    unit = expand_trailing(jnp.eye(6, dtype=none.dtype), 2, state.time.ndim)
    unit = jnp.broadcast_to(unit, (6, 6, *state.time.shape))
    roots = [_at_centre(mechanism, root, unit) for root in tree.roots]
    twist = jnp.concatenate([near[:, row, branch, 0], *roots], axis=1)
    bodies = first_bodies(mechanism, tree)
    q = tuple(jnp.take(x, bodies, axis=0) for x in quaternion_components(state))
    return jnp.concatenate([quat_rotate(q, x) for x in (twist[:3], twist[3:])])


def _places(mechanism: Mechanism, tree: SpanningTree) -> tuple[np.ndarray, np.ndarray]:
    """Of each speed of a joint its row among those of its branch, and the number of the branch."""
    row, branch = np.zeros((2, len(tree.coordinates)), int)
    number = {branch.joint: i for i, branch in enumerate(tree.branches)}
    for group in mechanism.system.groups:
        for joint, start in zip(group.joints, group.start, strict=True):
            for i in range(group.coupling.dof if joint in number else 0):
                at = tree.coordinates.index(start + i)
                row[at], branch[at] = 6 - group.coupling.dof + i, number[joint]
    return row, branch


def _world_twists(
    mechanism: Mechanism,
    tree: SpanningTree,
    state: State,
    speeds: Array,
    own: Array,
    drifting: bool,
) -> Array:
    """Twists of all bodies, world axes, (6, bodies, columns, *batch).

    speeds: ν, (speeds, columns, *batch)
    own: twists of the bodies that nothing carries, body axes, (6, bodies + 1, columns, *batch)
    drifting: whether surfaces that move with time do so
    """
    kinematics = system_kinematics(mechanism, state)
    near, far, r = _rows(mechanism, tree, kinematics, speeds, drifting)
    carried = {branch.body for branch in tree.branches}
    order = [b for b in range(own.shape[1]) if b not in carried]
    for i, root in enumerate(tree.roots):
        first = len(tree.coordinates) + 6 * i
        own = own.at[:, root].set(_at_centre(mechanism, root, speeds[first : first + 6]))
    # Bodies stand in the order in which they are placed.
    twist, start = take(own, np.array(order), 1), 0
    for level in tree.levels:
        here = slice(start, start + len(level))
        start = here.stop
        # The world is the last of all bodies.
        base = np.array([order.index(branch.base % own.shape[1]) for branch in level])
        moved = multiply_transposed(far[:, :, here], take(twist, base, 1))
        placed = stored(multiply)(near[:, :, here], r[:, here] - moved)
        twist = jnp.concatenate([twist, placed], axis=1)
        order += [branch.body for branch in level]
    twist = take(twist, np.argsort(order)[:-1], 1)
    q = tuple(x[:, None] for x in quaternion_components(state))
    return materialize(jnp.concatenate([quat_rotate(q, x) for x in (twist[:3], twist[3:])]))


def moving_on(state: State) -> State:
    """Rates of a state whose bodies keep their velocities."""
    spin = jnp.concatenate([jnp.zeros_like(state.omega[:1]), state.omega])
    return replace(
        jax.tree.map(jnp.zeros_like, state),
        position=state.velocity,
        quaternion=0.5 * quat_multiply(spin, state.quaternion),
        time=jnp.ones_like(state.time),
    )


def _rows(
    mechanism: Mechanism,
    tree: SpanningTree,
    kinematics: Kinematics,
    speeds: Array,
    drifting: bool,
) -> tuple[Array, Array, Array]:
    """Of each branch, level by level: (Hᵀ)⁻¹ of the rows on the body that it places, H on its base,
    (6, 6, branches, 1, *batch) both, and the speeds of its rows, (6, branches, columns, *batch).
    """
    system, (columns, *batch) = mechanism.system, speeds.shape[1:]
    flat = jnp.zeros((system.coordinates, columns, *batch), speeds.dtype)
    flat = flat.at[np.array(tree.coordinates, int)].set(speeds[: len(tree.coordinates)])
    # Without any joint there are arrays of none to concatenate.
    none = jnp.zeros((6, 6, 0, *batch), speeds.dtype)
    wrenches, twists, order = ([none], [none]), ([none], [none]), []
    rates = [jnp.zeros((6, 0, columns, *batch), speeds.dtype)]
    for group, joint in zip(system.groups, kinematics.joints, strict=True):
        own = wrenches_on_bodies(group, joint, range(6)), twists_of_rows(group, joint)
        for sides, parts in zip((wrenches, twists), own, strict=True):
            for side, part in zip(sides, parts, strict=True):
                side.append(jnp.broadcast_to(part, (*part.shape[:3], *batch)))
        k = group.coupling.dof
        at = np.array(group.start)[None] + np.arange(k)[:, None]
        held = -joint.rows.drift[: 6 - k, :, None] if drifting else jnp.zeros((), flat.dtype)
        held = jnp.broadcast_to(held, (6 - k, len(group.joints), columns, *batch))
        rates.append(jnp.concatenate([held, flat[at]]))
        order += group.joints
    branches = tree.branches
    index = np.array([order.index(branch.joint) for branch in branches], int)
    away = np.array([branch.side * len(order) for branch in branches], int)
    near = jnp.take(jnp.concatenate([*twists[0], *twists[1]], axis=2), index + away, axis=2)
    H = jnp.concatenate([*wrenches[0], *wrenches[1]], axis=2)
    far = jnp.take(H, index + len(order) - away, axis=2)
    r = jnp.take(jnp.concatenate(rates, axis=1), index, axis=1)
    return near[:, :, :, None], far[:, :, :, None], r


def _at_centre(mechanism: Mechanism, body: int, twist: Array) -> Array:
    """Twists at the body frame's origin, at the centre of mass, both in body axes; shape
    (6, columns, *batch).
    """
    com = jnp.broadcast_to(mechanism.system.com[:, body, None], twist[:3].shape)
    return jnp.concatenate([twist[:3] + cross(twist[3:], com), twist[3:]])


def _at_frame(mechanism: Mechanism, body: int, twist: Array) -> Array:
    """A twist at the centre of mass, at the body frame's origin."""
    com = jnp.broadcast_to(mechanism.system.com[:, body], twist[:3].shape)
    return jnp.concatenate([twist[:3] - cross(twist[3:], com), twist[3:]])
