"""Articulation: which bodies are placed by the coordinates of their joints, and how they move then.

A tree joint places one body from another, its base. Its coordinates q and speeds ν say all about
their relative motion,

    T_CD = pose(q),    ξ = v_CD = S ν,    ξ̇ = S ν̇ + Ṡ ν,

in the axes of C. So poses, twists and accelerations are sums and products along the path of joints
that leads to a body. In world axes, about one fixed point for a whole path, they are

    V = V_base + ξ,    A = A_base + V_base × V + Ṡ ν + S ν̇,

× the product of two twists, Ṡ the derivative of S in the axes of C (Featherstone, Rigid Body
Dynamics Algorithms, sections 2.10 and 2.11). ν is q̇, but for lower pairs (`Coupling.lower_pair`),
whose S spans the same in C at all poses: there it is ξ itself, which is regular where coordinates
are not.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import materialize
from ..algebra.dense import multiply
from ..algebra.forest import along_paths
from ..algebra.places import take
from ..algebra.pytree import map_trailing, overrides, replace, struct
from ..algebra.spatial import (
    Pose,
    cross,
    error_twist,
    matvec,
    quat_conjugate,
    quat_from_rotation_vector,
    quat_multiply,
    quat_normalize,
    quat_rotate,
    quat_rotate_inverse,
    retract,
    twist_of,
)
from ..couplings.coupling import Coupling, Residual
from ..couplings.nonholonomic import extra_rows
from ..laws.fields import Field
from .branches import FREEDOMS, Branch, spanning_branches
from .groups import JointGroup
from .kinematics import (
    JointKinematics,
    Kinematics,
    Mechanism,
    poses_with_world,
    quaternion_components,
    relative_twist,
    with_world,
)
from .state import State
from .system import System


@struct
class Motion:
    """Velocities of a mechanism, or displacements.

    twists: of the bodies, at their centres of mass, body axes, (6, bodies, *batch)
    joints: ξ of the tree joints, in C, (6, branches, *batch)
    """

    twists: Array
    joints: Array


@dataclass(frozen=True)
class Articulation:
    """The tree joints of a system.

    branches: one for each body that a tree joint places, after that of its base
    complete: whether all rows that hold without laws are those of tree joints, and nothing else
        changes velocities at the end of a step
    """

    branches: tuple[Branch, ...]
    complete: bool

    @cached_property
    def bodies(self) -> np.ndarray:
        """The body that each branch places."""
        return np.array([branch.body for branch in self.branches], int)

    @cached_property
    def bases(self) -> np.ndarray:
        """The body from which it does; `WORLD_INDEX` is the last place of arrays with the world."""
        return np.array([branch.base for branch in self.branches], int)

    @cached_property
    def before(self) -> np.ndarray:
        """The branch that places its base, the number of all branches where none does."""
        number = {branch.body: i for i, branch in enumerate(self.branches)}
        return np.array([number.get(b.base, len(self.branches)) for b in self.branches], int)

    @cached_property
    def roots(self) -> np.ndarray:
        """The body, or the world, that the path of each branch begins at."""
        roots: list[int] = []
        for branch, before in zip(self.branches, self.before, strict=True):
            roots.append(roots[before] if before < len(self.branches) else branch.base)
        return np.array(roots, int)


# Where all joints are held by rows.
NO_TREE = Articulation((), complete=False)


def articulation(system: System) -> Articulation:
    """The tree of joints that are held by their coordinates, computed once for each topology.

    The search runs breadth first from the world and the bodies of prescribed motion, then from the
    first body of each floating part. A joint becomes a tree joint if the search reaches a new body
    through it, and if it is a lower pair or regular (`Coupling.lower_pair`, `Coupling.regular`) and
    holds something. It has no dependence on time, no rows at velocity or acceleration level, no
    friction that follows the force along another of its coordinates, no switch, and no softness
    since the build; and it was not built with `tree=False`.
    """
    return _articulation(jax.tree.structure(system))


def velocity_products(
    mechanism: Mechanism, tree: Articulation, kinematics: Kinematics, state: State
) -> Array:
    """Acceleration of each body that a branch places while no ν changes, without the part that its
    base passes on: of the centre of mass, and angular, world axes, (6, branches, *batch).

    The accelerations of both bodies are relative to their motion if nothing held them. With u the
    velocity of the centre of mass relative to the base, and r its position from the centre of mass
    of the base, the parts are

        (ω + ω_base) × u + ω_base × (ω_base × r),    ω_base × ω,    and Ṡ ν.
    """
    q = quaternion_components(state)
    torque_free = quat_rotate(q, _torque_free(mechanism, state))
    moving = jnp.concatenate([state.position, state.velocity, state.omega, torque_free])
    base, body = (_at(bodies, with_world(moving)) for bodies in (tree.bases, tree.bodies))
    arm, across = (body - base)[:3], (body - base)[3:6]
    ω_base, ω = base[6:9], body[6:9]
    carried = cross(ω_base, arm)
    linear = cross(ω + ω_base, across - carried) + cross(ω_base, carried) + cross(base[9:], arm)
    found = jnp.concatenate([linear, cross(ω_base, ω) + (base - body)[9:]])
    none = jnp.zeros_like(found)
    for group, joint in _charts(mechanism, tree, kinematics):
        xi, C = relative_twist(group, state), _pose_of_C(group, state)
        qd = multiply(joint.rows.W[6 - group.coupling.dof : 6], xi)
        rate = jax.jvp(lambda q: _charted(group, q, qd)[1], (joint.rows.q,), (qd,))[1]  # noqa: B023
        linear, angular = (C.rotate(x) for x in materialize((rate[:3], rate[3:])))
        to_body = state.position[:, _placed_bodies(tree, group)] - C.p
        bent = _signed(tree, group, jnp.concatenate([linear + cross(angular, to_body), angular]))
        found = found + _of_group(tree, group, none, bent)
    return found


def articulated(
    mechanism: Mechanism,
    tree: Articulation,
    kinematics: Kinematics,
    state: State,
    gone: Array,
    xi: Array,
    moved: State,
    closing: Array | None = None,
) -> tuple[State, Array]:
    """A state whose bodies are placed and moved by the coordinates of the tree joints, and ξ there.

    kinematics: of the state
    gone, xi: `Motion.joints` of the displacement, and of the velocities: ν of each tree joint is
        kept while its axes turn along
    moved: after the motion, with poses and velocities of the bodies that no tree joint places
    closing: further displacement, which closes errors of joints, as `gone`; None for none
    """
    if not tree.branches:
        return moved, xi
    joints = _tree_joints(mechanism, tree, state)
    shift = gone if closing is None else gone + closing
    turn, across = quat_from_rotation_vector(shift[3:]), shift[:3]
    for group, joint in _charts(mechanism, tree, kinematics):
        parts = (None if x is None else _members(tree, group, x) for x in (gone, xi, closing))
        M, after = _chart_motion(group, joint, *parts)
        # Of q and -q, which are one turn, the one near to no turn at all.
        near = jnp.where(M.q[:1] < 0, -M.q, M.q)
        across, turn = _of_group(tree, group, across, M.p), _of_group(tree, group, turn, near)
        xi = _of_group(tree, group, xi, after)
    across = joints.of_bodies(quat_rotate(joints.C, across))
    turn = jnp.concatenate([turn[:1], joints.of_bodies(quat_rotate(joints.C, turn[1:]))])
    # How each body turns: as its base does, after what the joint adds.
    turned = quat_multiply(moved.quaternion, quat_conjugate(state.quaternion))
    turned = poses_with_world(replace(moved, quaternion=turned)).q
    still = jnp.zeros_like(turn[:, :1]).at[0].set(1.0)
    path = along_paths(tree.before, quat_multiply, turn, still)
    path = quat_normalize(quat_multiply(_at(tree.roots, turned), path))
    turned = _with_placed(tree, turned, path)
    of_base, of_body = _at(tree.bases, turned), _at(tree.bodies, turned)
    # What joints add turns with C.
    of_C = of_body if joints.side is None else jnp.where(joints.side, of_base, of_body)
    C = quat_multiply(of_C, joints.C)
    linear, angular = (joints.of_bodies(quat_rotate(C, x)) for x in (xi[:3], xi[3:]))
    omega = with_world(moved.omega)
    omega = _with_placed(tree, omega, _at(tree.roots, omega) + _summed(tree, angular))
    there, on = joints.moved(across)
    there, on = quat_rotate(of_base, there), quat_rotate(of_body, on)
    linear = linear + cross(_at(tree.bases, omega), there) + cross(_at(tree.bodies, omega), on)
    both = jnp.concatenate([with_world(moved.position), with_world(moved.velocity)])
    placed = _at(tree.roots, both) + _summed(tree, jnp.concatenate([there + on, linear]))
    both = _with_placed(tree, both, placed)[:, :-1]
    quaternion = quat_multiply(of_body, _at(tree.bodies, state.quaternion))
    quaternion = _with_placed(tree, moved.quaternion, quaternion)
    new = replace(
        moved, position=both[:3], velocity=both[3:], omega=omega[:, :-1], quaternion=quaternion
    )
    return new, xi


@lru_cache(maxsize=256)
def _articulation(structure: Any) -> Articulation:
    topology = jax.tree.unflatten(structure, [0.0] * structure.num_leaves).topology
    leaves = [jax.ShapeDtypeStruct(shape, jnp.zeros(0).dtype) for shape in topology.shapes]
    system = jax.tree.unflatten(structure, leaves)
    prescribed = [body for body, moves in enumerate(topology.moving) if not moves]
    joints = [j for group in system.groups if _carries(group) for j in group.joints]
    branches, _ = spanning_branches(system, prescribed, only=joints)
    used = {branch.joint for branch in branches}
    holding = {
        j
        for group in system.groups
        for j in group.joints
        if group.coupling.dof < FREEDOMS or extra_rows(group.coupling)
    }
    others = any(group.held for group in system.transmissions) or system.constraints
    updated = any(overrides(group.field, Field.velocity_update) for group in system.fields)
    return Articulation(branches, complete=holding <= used and not others and not updated)


def _carries(group: JointGroup) -> bool:
    """Whether joints of a group may be tree joints; leaves of the group have shapes alone."""
    coupling = group.coupling
    if not (coupling.lower_pair or coupling.regular):
        return False
    if isinstance(coupling, Residual) or extra_rows(coupling) or not coupling.places_bodies:
        return False
    if any(law.normal is not None for law in group.laws):
        return False
    switched, soft = group.enabled is not None, group.softness is not None or not group.rigid
    if switched or soft or coupling.dof == FREEDOMS or not group.tree:
        return False
    return not _depends_on_time(coupling)


def _depends_on_time(coupling: Coupling) -> bool:
    """Whether the rows of a coupling do; its leaves have an axis of joints, and shapes alone."""
    dtype = jnp.zeros(0).dtype

    def rows(t, leaves, T, q):
        one = jax.tree.map(lambda x: x[..., 0], leaves)
        rows = one.rows(T, q, t)
        return rows.W, rows.error, rows.drift, rows.q

    T = Pose(jnp.zeros(3, dtype), jnp.zeros(4, dtype).at[0].set(1.0))
    q = jnp.zeros(coupling.dof, dtype)
    traced = jax.make_jaxpr(rows)(jnp.zeros((), dtype), coupling, T, q).jaxpr
    dependent = {traced.invars[0]}
    for equation in traced.eqns:
        if any(not hasattr(x, "val") and x in dependent for x in equation.invars):
            dependent.update(equation.outvars)
    return any(not hasattr(x, "val") and x in dependent for x in traced.outvars)


@struct
class _TreeJoints:
    """Where the tree joints are, world axes, arrays (…, branches, *batch).

    there: from the centre of mass of the base to C's origin; on: from there to that of the body
    C: how C is turned, quaternions (4, branches, *batch)
    side: True where the base is the joint's child, None where none is
    """

    there: Array
    on: Array
    C: Array
    side: Array | None

    def of_bodies(self, x: Array) -> Array:
        """Motions of C relative to D as those of the bodies relative to their bases."""
        return x if self.side is None else jnp.where(self.side, -x, x)

    def moved(self, gone: Array) -> tuple[Array, Array]:
        """`there` and `on` after C's origins have gone (3, branches, *batch) across the joints."""
        if self.side is None:
            return self.there + gone, self.on
        there = self.there + jnp.where(self.side, 0.0, gone)
        return there, self.on + jnp.where(self.side, gone, 0.0)


def _tree_joints(mechanism: Mechanism, tree: Articulation, state: State) -> _TreeJoints:
    groups, batch = mechanism.system.groups, state.time.shape
    joints = [j for group in groups for j in group.joints]
    index = np.array([joints.index(branch.joint) for branch in tree.branches], int)
    frames = [jax.tree.map(lambda x: _whole(x, g, batch), g.frame_C) for g in groups]  # noqa: B023
    frame = jax.tree.map(lambda *x: take(jnp.concatenate(x, axis=1), index, 1), *frames)
    side = np.array([branch.side for branch in tree.branches], bool)
    poses = poses_with_world(state)
    child = _at(np.where(side, tree.bases, tree.bodies), poses.q)
    arm, C = quat_rotate(child, frame.p), quat_multiply(child, frame.q)
    apart = _at(tree.bodies, poses.p) - _at(tree.bases, poses.p)
    if not side.any():
        return _TreeJoints(apart + arm, -arm, C, None)
    side = jnp.asarray(side.reshape(1, -1, *(1,) * len(batch)))
    there, on = jnp.where(side, arm, apart + arm), jnp.where(side, apart - arm, -arm)
    return _TreeJoints(there, on, C, side)


def _charts(
    mechanism: Mechanism, tree: Articulation, kinematics: Kinematics
) -> list[tuple[JointGroup, JointKinematics]]:
    """The groups with tree joints that are no lower pairs."""
    placing = {branch.joint for branch in tree.branches}
    groups = zip(mechanism.system.groups, kinematics.joints, strict=True)
    return [
        (group, joint)
        for group, joint in groups
        if not group.coupling.lower_pair and placing & set(group.joints)
    ]


def _members(tree: Articulation, group: JointGroup, x: Array) -> Array:
    """Arrays (…, branches, *batch) for the joints of a group, 0 for those that are no branch."""
    number = {branch.joint: i for i, branch in enumerate(tree.branches)}
    at = np.array([number.get(joint, len(number)) for joint in group.joints])
    if at.max() == len(number):
        x = jnp.concatenate([x, jnp.zeros_like(x[:, :1])], axis=1)
    return take(x, at, 1)


def _chart_motion(
    group: JointGroup, joint: JointKinematics, gone: Array, xi: Array, closing: Array | None
) -> tuple[Pose, Array]:
    """The pose of C seen from where it was, and ξ there; in C, arguments as of `articulated`."""
    q, N = joint.rows.q, joint.rows.W[6 - group.coupling.dof : 6]
    dq, qd = multiply(N, gone), multiply(N, xi)
    error = error_twist(_charted(group, q, dq)[0].inverse() @ joint.T_CD)
    error = error if closing is None else error + closing
    ideal, xi = _charted(group, q + dq, qd)
    return joint.T_CD.inverse() @ retract(ideal, error), xi


def _charted(group: JointGroup, q: Array, qd: Array) -> tuple[Pose, Array]:
    """pose(q) of a group's joints, and ξ at speeds q̇, arrays (…, n, *batch)."""

    def one(coupling, q, qd):
        # Stored: XLA would compute them anew for each number of what reads them.
        T, rate = materialize(jax.jvp(coupling.pose, (q,), (qd,)))
        return T, materialize(twist_of(T, rate))

    if group.coupling.batched:
        return one(group.coupling, q, qd)
    with jax.default_matmul_precision("highest"):
        return map_trailing(one, q.ndim - 1, group.coupling, q, qd)


def _whole(x: Array, group: JointGroup, batch: tuple[int, ...]) -> Array:
    """Numbers (k, n, *batch) of all joints of a group, with all batch axes."""
    return jnp.broadcast_to(x, (x.shape[0], len(group.joints), *batch))


def _pose_of_C(group: JointGroup, state: State) -> Pose:
    poses = poses_with_world(state)
    return jax.tree.map(lambda x: x[:, np.array(group.child)], poses) @ group.frame_C


def _placed_bodies(tree: Articulation, group: JointGroup) -> np.ndarray:
    """The body that each joint of a group places, its child where it is no tree joint."""
    placed = {branch.joint: branch.body for branch in tree.branches}
    pairs = zip(group.joints, group.child, strict=True)
    return np.array([placed.get(joint, child) for joint, child in pairs])


def _signed(tree: Articulation, group: JointGroup, x: Array) -> Array:
    """Motions of C relative to D as those of the bodies relative to their bases."""
    backwards = {branch.joint for branch in tree.branches if branch.side}
    sign = np.array([-1.0 if joint in backwards else 1.0 for joint in group.joints])
    return x * jnp.asarray(sign.reshape(1, -1, *(1,) * (x.ndim - 2)), x.dtype)


def _of_group(tree: Articulation, group: JointGroup, x: Array, values: Array) -> Array:
    """Arrays (…, branches, *batch) with those (…, n, *batch) of a group's tree joints."""
    at = np.arange(len(tree.branches))
    for i, branch in enumerate(tree.branches):
        if branch.joint in group.joints:
            at[i] = len(at) + group.joints.index(branch.joint)
    values = jnp.broadcast_to(values, (*values.shape[:2], *x.shape[2:]))
    return take(jnp.concatenate([x, values], axis=1), at, 1)


def _torque_free(mechanism: Mechanism, state: State) -> Array:
    """-I⁻¹ (ω × I ω) of bodies, 0 of those of prescribed motion; (3, bodies, *batch), body axes."""
    omega = quat_rotate_inverse(quaternion_components(state), state.omega)
    spin = matvec(mechanism.system.inertia, omega)
    return matvec(mechanism.inverse_inertia[:, :, :-1], cross(spin, omega))


def _summed(tree: Articulation, x: Array) -> Array:
    """Sums along the paths, (k, branches, *batch)."""
    return along_paths(tree.before, jnp.add, x, jnp.zeros_like(x[:, :1]))


def _at(bodies: np.ndarray, x: Array) -> Array:
    """Items (k, n, *batch) of some bodies; `WORLD_INDEX` is the last."""
    return take(x, bodies % x.shape[1], 1)


def _with_placed(tree: Articulation, x: Array, placed: Array) -> Array:
    """Arrays (k, bodies, *batch), with or without the world, those that branches place replaced."""
    at = np.arange(x.shape[1])
    at[tree.bodies] = len(at) + np.arange(len(tree.branches))
    return take(jnp.concatenate([x, placed], axis=1), at, 1)
