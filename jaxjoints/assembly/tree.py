"""From kinematics to articulated bodies: bodies of tree joints, and their motion without rows."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import materialize, stored
from ..algebra.dense import product, product_transposed
from ..algebra.places import looked_up, take
from ..algebra.pytree import struct
from ..algebra.rotation import cross, quat_rotate, quat_to_matrix
from ..algebra.spatial import Pose
from ..model.groups import JointGroup
from ..model.kinematics import (
    JointKinematics,
    Kinematics,
    Mechanism,
    motion_of_placed,
    poses_with_world,
    surface,
    wrench_on_placed,
)
from ..model.state import State
from ..solve.tree import (
    Tree,
    TreeFactor,
    TreePlan,
    eliminated,
    momentum,
    of_tree,
    on_joints,
    response,
    while_roots_rest,
    with_tree,
)
from .group_rows import Interval, closing_bias, joint_laws, of_members
from .layout import Layout, Part, places
from .targets import Step


@struct
class HeldBodies:
    """Bodies that tree joints hold, and their motion beside rows.

    push: impulse of the linear laws along each coordinate at no speed, (coordinates, joints,
        *batch)
    known: known part of the twist of each body relative to its base, world axes, (6, joints,
        *batch): what the row rates ask for, and the motion of a base of given motion; None for none
    bent: further known part that rows do not see, None for none
    S: twist of C relative to D for unit speed of each coordinate, in C, (6, coordinates, joints,
        *batch)
    """

    tree: Tree
    factor: TreeFactor
    push: Array
    known: Array | None
    bent: Array | None
    S: Array


def held_bodies(
    mechanism: Mechanism,
    plan: Layout,
    kinematics: Kinematics,
    state: State,
    interval: Interval,
    target: Step,
    free: Array,
    bent: Array | None = None,
    rate: Array | None = None,
    push: Array | None = None,
) -> HeldBodies:
    """The bodies of a layout with a tree. The target gives linear laws.

    free: twists of all bodies, read for bodies of given motion, (6, bodies + 1, *batch) in body
        axes
    bent: as in `HeldBodies`
    rate, push: row rates that joints bring to 0, and impulses of linear laws, in place of those of
        the target; in the layout of all rows, (rows, nodes, *batch)
    """
    at, poses = plan.structure.way.tree, poses_with_world(state)
    order, bases = np.array(at.order, int), np.array(sum(at.bases, ()), int)
    turn = materialize(quat_to_matrix(take(poses.q, order, 1)))
    inertia = stored(_turned_tensor)(turn, take(mechanism.system.inertia, order, 2))
    joints = _joints(mechanism, plan, kinematics, interval, target, rate, push)
    placed = slice(len(at.roots), None)
    turns = turn[:, :, placed]
    S = stored(_turned_twists)(turns, joints.S)
    ends = take(poses.p, order[placed], 1), take(poses.p, bases, 1)
    arm = materialize(ends[0] - ends[1])
    mass, push, stiffness = take(mechanism.system.mass, order, 0), joints.push, joints.stiffness
    push, stiffness = (
        jnp.broadcast_to(x, (*x.shape[:2], *arm.shape[2:])) for x in (push, stiffness)
    )
    tree = Tree(turn, mass, inertia, arm, S, stiffness, at)
    known = _given(at, arm, poses, free)
    if joints.known is not None:
        asked = stored(_turned_twists)(turns, joints.known[:, None])[:, 0]
        known = asked if known is None else known + asked
    return HeldBodies(tree, eliminated(tree), push, known, bent, joints.S_C)


def closing(
    mechanism: Mechanism, plan: Layout, kinematics: Kinematics, interval: Interval
) -> Array | None:
    """Velocities at which ERP closes the errors of tree joints, as `Motion.joints`; None without a
    tree. They move bodies without momentum: no row and no velocity of a state contains them.
    """
    if plan.tree is None:
        return None
    parts = []
    for part in _parts(plan):
        group, joint = of_members(mechanism, part, kinematics)
        parts.append(surface(group, joint).off(-closing_bias(group, joint, interval)))
    return take(_in_order(mechanism, plan, *parts), np.array(plan.tree.branches), 1)


class Allowed(NamedTuple):
    """Motion of bodies that tree joints hold, without rows.

    twists: of the bodies, as rows see them, (6, bodies + 1, *batch) in body axes
    bent: further twists that rows do not see, None for none
    coordinates: speeds of the coordinates of the tree, (coordinates, joints, *batch), None without
        a tree
    """

    twists: Array
    bent: Array | None = None
    coordinates: Array | None = None


def without_rows(held: HeldBodies, free: Array) -> Allowed:
    """The motion that tree joints allow and that differs least from the free motion (M-weighted).

    free: twists without joints, given motions included, (6, bodies + 1, *batch) in body axes
    """
    tree = held.tree
    own = [x for x in (held.known, held.bent) if x is not None]
    lacking, known, bent = of_tree(tree, free), None, None
    if own:
        parts = jnp.stack(jnp.broadcast_arrays(*own), axis=2)
        given = jnp.unstack(while_roots_rest(tree, parts), axis=2)
        lacking = lacking - sum(given[1:], given[0])
        known = None if held.known is None else given[0]
        bent = None if held.bent is None else with_tree(tree, jnp.zeros_like(free), given[-1])
    at, found = response(tree, held.factor, momentum(tree, lacking), held.push)
    found = found if known is None else found + known
    return Allowed(with_tree(tree, free, found), bent, at.coordinates)


def joint_impulses_of_tree(
    mechanism: Mechanism,
    plan: Layout,
    kinematics: Kinematics,
    held: HeldBodies,
    change: Array,
    by_rows: Array,
    laws: Array,
) -> list[tuple[int, np.ndarray, Array]]:
    """Impulses of all six rows of the tree joints: group, places in it, and (6, n, *batch).

    change: of the twists of the bodies from their free twists, (6, bodies + 1, *batch) in body axes
    by_rows: impulses on the bodies by the rows that act on them, in the same shape
    laws: impulses of all laws along the coordinates, (coordinates, joints, *batch)
    """
    tree = held.tree
    own = momentum(tree, of_tree(tree, change)) - of_tree(tree, by_rows)
    on_bodies = with_tree(tree, by_rows, on_joints(tree, own))
    sides = {(g, i): side for g, i, side in plan.tree.joints}
    number = {(g, i): joint for joint, (g, i, _) in enumerate(plan.tree.joints)}
    result = []
    for part, rows in zip(plan.parts, plan.groups, strict=True):
        if not rows.of_tree:
            continue
        group, joint = of_members(mechanism, part, kinematics)
        side = [sides[part.group, i] for i in part.members]
        body = np.where(side, group.parent, group.child)
        wrench = wrench_on_placed(group, joint, side, on_bodies[:, body])
        k = group.coupling.dof
        own = take(laws[:k], np.array([number[part.group, i] for i in part.members]), 1)
        hold = surface(group, joint).of_rows(wrench)[: 6 - k]
        own = jnp.broadcast_to(own, (k, *hold.shape[1:]))
        result.append((part.group, np.array(part.members), jnp.concatenate([hold, own])))
    return result


class _Joints(NamedTuple):
    """The tree joints in the order of the plan; fields as in a `Tree`, in body axes, and in
    `HeldBodies`. S_C: `HeldBodies.S`; known: what the row rates ask for, None for none.
    """

    S: Array
    stiffness: Array
    push: Array
    S_C: Array
    known: Array | None = None


def _joints(
    mechanism: Mechanism,
    plan: Layout,
    kinematics: Kinematics,
    interval: Interval,
    target: Step,
    rate: Array | None,
    push: Array | None,
) -> _Joints:
    most, parts = max(plan.structure.way.tree.coordinates), []
    sides = {(g, i): side for g, i, side in plan.tree.joints}
    for part in _parts(plan):
        group, joint = of_members(mechanism, part, kinematics)
        own = [(part.group, i) for i in part.members]
        side, on = [sides[at] for at in own], surface(group, joint)
        first, last = 6 - group.coupling.dof, 6
        stiffness, pushed = _linear_laws(group, joint, interval, target)
        known = []
        if rate is not None:
            given = partial(_of_wrenches, plan, own)
            off = on.off(-given(range(first), rate))
            known = [motion_of_placed(group, joint, side, off[:, None])[:, 0]]
            pushed = given(range(first, last), push)
            pushed = pushed - stiffness * given(range(first, last), rate)
        S, S_C = (_padded(x, 1, most) for x in (motion_of_placed(group, joint, side, on.S), on.S))
        stiffness, pushed = (_padded(x, 0, most) for x in (stiffness, pushed))
        parts.append((S, stiffness, pushed, S_C, *known))
    return _Joints(*(_in_order(mechanism, plan, *x) for x in zip(*parts, strict=True)))


def _parts(plan: Layout) -> list[Part]:
    """The groups of joints with tree joints."""
    return [part for part, rows in zip(plan.parts, plan.groups, strict=True) if rows.of_tree]


def _in_order(mechanism: Mechanism, plan: Layout, *arrays: Array) -> Array:
    """Arrays (…, n, *batch), one for each of `_parts`, as one in the order of the plan."""
    found = [(part.group, i) for part in _parts(plan) for i in part.members]
    order = np.array([found.index((g, i)) for g, i, _ in plan.tree.joints])
    axis = arrays[0].ndim - mechanism.inverse_mass.ndim
    tail = jnp.broadcast_shapes(*(x.shape[axis + 1 :] for x in arrays))
    whole = [jnp.broadcast_to(x, x.shape[: axis + 1] + tail) for x in arrays]
    return take(whole[0] if len(whole) == 1 else jnp.concatenate(whole, axis=axis), order, axis)


def _padded(x: Array, axis: int, count: int) -> Array:
    missing = count - x.shape[axis]
    return jnp.pad(x, [(0, missing if i == axis else 0) for i in range(x.ndim)]) if missing else x


def _of_wrenches(
    plan: Layout, joints: Sequence[tuple[int, int]], wrenches: Sequence[int], x: Array
) -> Array:
    """Numbers x (rows, nodes, *batch) in the layout of all rows, for some wrenches of some joints,
    (wrenches, joints, *batch); 0 where there is no row.

    joints: (group, place in it) of each
    """
    where = places(plan.tree.whole)
    index = np.full((len(wrenches), len(joints)), -1)
    for i, wrench in enumerate(wrenches):
        for j, joint in enumerate(joints):
            if (*joint, wrench) in where:
                row, node = where[*joint, wrench]
                index[i, j] = row * x.shape[1] + node
    return looked_up(x, index, index.shape)


def _linear_laws(
    group: JointGroup, joint: JointKinematics, interval: Interval, target: Step
) -> tuple[Array, Array]:
    """K and p of the linear laws of each coordinate, (k, n, *batch)."""
    zero = jnp.zeros_like(joint.rows.q)
    K, p = list(zero), list(zero)
    for law, force in joint_laws(group, joint, interval):
        linear = target.linear(law, force)
        if linear is not None:
            K[law.coordinate] = K[law.coordinate] + linear.augmented_stiffness
            p[law.coordinate] = p[law.coordinate] + linear.impulse
    return (jnp.stack(K), jnp.stack(p)) if K else (zero, zero)


def _given(plan: TreePlan, arm: Array, poses: Pose, free: Array) -> Array | None:
    """Twists of bodies from bases of given motion, world axes, (6, joints, *batch); None where no
    base has a given motion.
    """
    bases = np.array(sum(plan.bases, ()), int)
    given = ~np.isin(bases, [*plan.order, plan.bodies])
    if not given.any():
        return None
    turn, twist = take(poses.q, bases, 1), take(free, bases, 1)
    linear, angular = (quat_rotate(turn, twist[i : i + 3]) for i in (0, 3))
    carried = jnp.concatenate([linear + cross(angular, arm), angular])
    return jnp.where(given.reshape(-1, *(1,) * (arm.ndim - 2)), carried, 0.0)


def _turned_twists(turn: Array, V: Array) -> Array:
    """Twists or wrenches V, (6, count, joints, *batch), turned."""
    return jnp.concatenate([product(turn, V[:3]), product(turn, V[3:])])


def _turned_tensor(turn: Array, tensor: Array) -> Array:
    """R I Rᵀ."""
    return product_transposed(product(turn, tensor), turn)
