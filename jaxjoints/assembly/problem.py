"""From the rows of all groups to one problem: a target aims each group, then groups are joined."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import materialize
from ..algebra.dense import multiply, multiply_transposed
from ..algebra.places import take
from ..algebra.pytree import replace, static, struct
from ..model.articulation import Articulation, Motion
from ..model.kinematics import Kinematics, Mechanism, body_twists, with_world
from ..model.state import State
from ..solve.bodies import all_nodes, bodies_of_rows, changes
from ..solve.forces import Bound, Latch, Linear, Rebound, RowLaw
from ..solve.problem import (
    RowProblem,
    coordinate_rows,
    diagonal,
    row_speeds,
    still,
)
from .group_rows import GroupRows, Interval, group_rows, without
from .layout import Layout, Slot, layout, tree_layout
from .targets import Step
from .tree import Allowed, HeldBodies, held_bodies, without_rows

# The laws of a slot, for each group and each of its coordinate rows; None where there is none.
SlotLaws = tuple[Slot, list[list[RowLaw | None]]]


@struct
class Aims:
    """Aims of the rows of one group, or of all groups; fields as in a `RowProblem`.

    latches: like `bounds`; the diagonal of A turns them into linear laws later (`_latched`)
    """

    rate: Array
    compliance: Array
    augmented_stiffness: Array
    impulse: Array
    bounds: tuple[Bound, ...]
    latches: tuple[Latch, ...]


@struct
class Assembly:
    """The rows of a mechanism put together, and the bodies on which they act.

    problem: of the rows; plan: layout of the rows
    free: twists of the bodies before any impulse, (6, bodies + 1, *batch) in body axes
    allowed: motion that tree joints allow, before the impulses of the rows
    held: the bodies, where coordinates hold tree joints; else None
    """

    problem: RowProblem
    free: Array
    allowed: Allowed
    plan: Layout = static()
    held: HeldBodies | None = None

    @property
    def before(self) -> Motion:
        """The motion before the impulses of the rows."""
        return self._of(self.allowed.twists, self.allowed.coordinates)

    def change(self, impulse: Array) -> Motion:
        """The change of the motion after impulses of the rows."""
        return self._of(*changes(self.problem.bodies, impulse))

    def motion(self, impulse: Array) -> Motion:
        """The motion that rows see, after their impulses."""
        return jax.tree.map(add, self.before, self.change(impulse))

    def _of(self, twists: Array, coordinates: Array | None) -> Motion:
        if self.held is None:
            return Motion(twists[:, :-1], jnp.zeros((6, 0, *self.free.shape[2:]), self.free.dtype))
        across = multiply(self.held.S, coordinates)
        return Motion(twists[:, :-1], take(across, np.array(self.plan.tree.branches), 1))

    def twists(self, impulse: Array) -> Array:
        """`Motion.twists` of `motion`."""
        return self.motion(impulse).twists

    def row_speeds(self) -> Array:
        """Speeds of the rows before their impulses, without their aims, (rows, nodes, *batch)."""
        bodies, parts = self.problem.bodies, [row_speeds(self.problem, self.allowed.twists)]
        if bodies.tree is not None:
            size = self.problem.structure.rows, self.problem.structure.along
            parts.append(bodies.of_rows(self.allowed.coordinates, *size))
        return all_nodes(parts)


def assembled(
    mechanism: Mechanism,
    kinematics: Kinematics,
    state: State,
    interval: Interval,
    target: Step,
    free: Array | None = None,
    *,
    tree: Articulation,
    bent: Array | None = None,
    rate: Array | None = None,
    push: Array | None = None,
) -> Assembly:
    """All rows but those of tree joints that coordinates hold.

    free: twists (6, bodies + 1, *batch) in body axes before any impulse, None for bodies at rest
    tree: the joints that coordinates hold
    bent: part of the change of twists in a step that neither bases nor coordinates cause, and that
        rows do not see, for each branch of the tree; world axes, (6, branches, *batch)
    rate, push: as in `held_bodies`
    """
    resting = jnp.zeros_like(with_world(body_twists(state))) if free is None else free
    if not tree.branches:
        interval = replace(interval, free=resting if target.locates else None)
        problem = row_problem(mechanism, kinematics, interval, target, free)
        return Assembly(problem, resting, Allowed(resting), layout(mechanism.system))
    free = resting
    plan = tree_layout(mechanism.system, tree)
    if bent is not None:
        bodies = plan.structure.way.tree
        placed = bodies.order[len(bodies.roots) :]
        bent = take(bent, np.array([tree.bodies.tolist().index(body) for body in placed]), 1)
    given = bent, rate, push
    held = held_bodies(mechanism, plan, kinematics, state, interval, target, free, *given)
    allowed = without_rows(held, free)
    seen = allowed.twists if target.locates else None
    interval = replace(interval, bent=allowed.bent, free=seen)
    at = plan, held, allowed.coordinates
    problem = row_problem(mechanism, kinematics, interval, target, allowed.twists, *at)
    return Assembly(problem, free, allowed, plan, held)


def row_problem(
    mechanism: Mechanism,
    kinematics: Kinematics,
    interval: Interval,
    target: Step,
    velocity: Array | None = None,
    plan: Layout | None = None,
    held: HeldBodies | None = None,
    coordinates: Array | None = None,
) -> RowProblem:
    """The problem of all joints, transmissions and laws.

    velocity: twists (6, bodies + 1, *batch) in body axes before the impulses of this problem, None
        for bodies at rest
    plan, held: layout of the rows, and the bodies, where coordinates hold the tree joints; None
        where rows hold all joints
    coordinates: speeds of the coordinates of tree joints at `velocity`, (coordinates, joints,
        *batch)
    """
    plan = layout(mechanism.system) if plan is None else plan
    groups = _groups(mechanism, plan, kinematics, interval, target)
    wrenches = _wrenches(mechanism, plan, groups)
    aims = _aims(mechanism, plan, groups, target, velocity)
    # Stored: otherwise XLA computes the rows again within each of their readers.
    wrenches, aims, latches = materialize((wrenches, replace(aims, latches=()), aims.latches))
    fields = {name: x for name, x in vars(aims).items() if name != "latches"}
    tree = {}
    if held is not None:
        tree = {"tree": held.tree, "factor": held.factor, "along": plan.tree.along}
    bodies = bodies_of_rows(
        H=wrenches,
        inverse_mass=mechanism.inverse_mass,
        inverse_inertia=mechanism.inverse_inertia,
        way=plan.structure.way,
        poses=kinematics.poses,
        **tree,
    )
    if held is not None:
        acting, along = plan.structure.way.nodes, plan.structure.along
        moving = aims.rate[:, acting:] + bodies.of_rows(coordinates, plan.structure.rows, along)
        fields["rate"] = jnp.concatenate([aims.rate[:, :acting], moving], axis=1)
    problem = RowProblem(bodies, **fields, structure=plan.structure)
    return _latched(problem, latches, target)


def aimed_again(
    mechanism: Mechanism,
    kinematics: Kinematics,
    interval: Interval,
    target: Step,
    problem: RowProblem,
    plan: Layout | None = None,
) -> RowProblem:
    """A problem nearby with its own wrenches, aimed again by `kinematics` and `target`.

    plan: as in `row_problem`
    """
    plan = layout(mechanism.system) if plan is None else plan
    groups = _groups(mechanism, plan, kinematics, interval, target)
    aims = materialize(_aims(mechanism, plan, groups, target, None))
    fields = {name: x for name, x in vars(aims).items() if name != "latches"}
    off = _off(mechanism, plan, groups)
    if off is not None:
        nodes = [np.array(nodes) for nodes, _ in plan.structure.way.sides]
        pairs = zip(problem.bodies.H, nodes, strict=True)
        H = tuple(x * (1 - off[None, :, at]) for x, at in pairs)
        problem = replace(problem, bodies=bodies_of_rows(**vars(problem.bodies) | {"H": H}))
    return _latched(replace(problem, **fields), aims.latches, target)


def row_rates(
    mechanism: Mechanism,
    kinematics: Kinematics,
    interval: Interval,
    target: Step,
    velocity: Array,
) -> Array:
    """`RowProblem.rate` of the problem that `row_problem` would return."""
    plan = layout(mechanism.system)
    groups = _groups(mechanism, plan, kinematics, interval, target)
    return materialize(_aims(mechanism, plan, groups, target, velocity).rate)


def row_values(mechanism: Mechanism, kinematics: Kinematics) -> Array:
    """Values of all rows, (rows, nodes, *batch): φ of the bilateral rows, 0 without an error; then
    the coordinates of the other rows. 0 for members that are not enabled.
    """
    plan = layout(mechanism.system)
    interval = Interval(jnp.ones((), mechanism.inverse_mass.dtype))

    def values(group):
        coordinates = group.layout.held + group.layout.coordinates
        error = group.hard.error[: group.layout.bilateral]
        parts = [error, *(group.q[c][None] for c in coordinates)]
        rows = _padded(plan, _rows(parts), 0)
        return rows if group.on is None else rows * group.on

    groups = group_rows(mechanism, plan, kinematics, interval)
    parts = [values(group) for group in groups if group is not None]
    if not parts:
        return _no_rows(plan, mechanism.inverse_mass)
    return materialize(_in_order(mechanism, _joined(mechanism, *parts), plan.order))


def _no_rows(plan: Layout, like: Array) -> Array:
    """An array of no node, (rows, 0, *batch); like: an array with all batch axes, (…, *batch)."""
    return jnp.zeros((plan.structure.rows, 0, *like.shape[1:]), like.dtype)


def _groups(
    mechanism: Mechanism, plan: Layout, kinematics: Kinematics, interval: Interval, target: Step
) -> list[GroupRows | None]:
    """The rows of all parts, with those rows off that the target switches off."""
    groups = group_rows(mechanism, plan, kinematics, interval)
    return [None if group is None else without(group, target.off(group)) for group in groups]


def _wrenches(
    mechanism: Mechanism, plan: Layout, groups: Sequence[GroupRows | None]
) -> tuple[Array, ...]:
    """Wrenches of all rows that act on bodies, nodes in the order of elimination."""
    most = len(plan.structure.way.sides)

    def of_group(group):
        # The group has no further sides.
        none = [jnp.zeros_like(group.H[0][:, :, :0])] * (most - len(group.H))
        return tuple(_padded(plan, x, 1) for x in (*group.H[:most], *none))

    acting = [group for group in groups if group is not None and not group.layout.of_tree]
    if not acting:
        return ()
    whole = jax.tree.map(partial(_joined, mechanism), *map(of_group, acting))
    pairs = zip(whole, plan.permutations, strict=True)
    return tuple(_in_order(mechanism, x, order) for x, order in pairs)


def _off(mechanism: Mechanism, plan: Layout, groups: Sequence[GroupRows | None]) -> Array | None:
    """1 for rows that are switched off, else 0, nodes in elimination order; None for none."""
    groups = [group for group in groups if group is not None]
    if all(group.on is None for group in groups):
        return None

    def of_group(group):
        rows, n = len(group.layout.wrenches), len(group.bodies[0])
        off = jnp.zeros((1, n, *(1,) * (group.q.ndim - 2)), group.q.dtype)
        off = off if group.on is None else 1 - group.on
        return _padded(plan, jnp.broadcast_to(off, (rows, n, *off.shape[2:])), 0)

    return _in_order(mechanism, _joined(mechanism, *map(of_group, groups)), plan.order)


def _aims(
    mechanism: Mechanism,
    plan: Layout,
    groups: Sequence[GroupRows | None],
    target: Step,
    velocity: Array | None,
) -> Aims:
    """The aims of all rows, nodes in elimination order."""
    bounds = _filled(plan.slots, groups, target.bound)
    latches = _filled(plan.slots, groups, target.latch)

    def of_group(g, group):
        bias, compliance = target.hard(group)
        # The wrenches on parents have all batch axes; other numbers of the rows may not.
        tail = group.H[1].shape[2:]
        rate, compliance = (_above_coordinate_rows(group, x, tail) for x in (bias, compliance))
        if velocity is not None and not group.layout.of_tree:
            # Stored: XLA does not vectorize a sum with an array that it concatenates on the spot.
            rate = _speeds(group, velocity) + materialize(rate)
        zero = jnp.zeros(rate.shape[1:], rate.dtype)
        linear = _one_after_another(
            [
                _sum([target.linear(law, f) for law, f in group.laws if law.coordinate == c], zero)
                if not group.layout.of_tree
                else Linear(zero, zero)
                for c in group.layout.coordinates
            ],
            zero,
        )
        aims = Aims(
            rate=_padded(plan, rate, 0),
            compliance=_padded(plan, compliance, 0),
            augmented_stiffness=linear.augmented_stiffness,
            impulse=linear.impulse,
            bounds=tuple(_stacked(slot, laws[g], laws, zero) for slot, laws in bounds),
            latches=tuple(_stacked(slot, laws[g], laws, zero) for slot, laws in latches),
        )
        return aims if group.on is None else _switched(plan, group, aims)

    parts = [of_group(g, group) for g, group in enumerate(groups) if group is not None]
    if not parts:
        # No row at all: tree joints hold everything.
        none = _no_rows(plan, mechanism.inverse_mass if velocity is None else velocity[0])
        return Aims(none, none, none[0], none[0], (), ())
    whole = jax.tree.map(partial(_joined, mechanism), *parts)
    rate, compliance = (_in_order(mechanism, x, plan.order) for x in (whole.rate, whole.compliance))
    return replace(whole, rate=rate, compliance=compliance)


def _sum(forces: list[Linear | None], zero: Array) -> Linear:
    """All linear laws of a coordinate as one; zero: of shape (n, *batch)."""
    forces = [force for force in forces if force is not None]
    return jax.tree.map(lambda *x: reduce(add, x), Linear(zero, zero), *forces)


def _one_after_another(forces: list[Linear], zero: Array) -> Linear:
    """The linear laws of all coordinates of a group, arrays (coordinate rows, *batch)."""
    if not forces:
        return Linear(zero[:0], zero[:0])
    return jax.tree.map(lambda *x: jnp.concatenate(x), *forces)


def _filled(
    slots: tuple[Slot, ...],
    groups: Sequence[GroupRows | None],
    ask: Callable[..., RowLaw | None],
) -> list[SlotLaws]:
    """Results of a method of a target for the laws of each slot; without slots left empty."""
    filled = []
    for slot in slots:
        laws = [
            [None if i is None else ask(*group.laws[i]) for i in indices]
            for group, indices in zip(groups, slot.laws, strict=True)
        ]
        if any(law is not None for each in laws for law in each):
            filled.append((slot, laws))
    return filled


def _stacked(
    slot: Slot, laws: list[RowLaw | None], all_laws: list[list[RowLaw | None]], zero: Array
) -> Bound | Latch:
    """The laws of a group in a slot as one record, arrays (coordinate rows of the group, *batch).

    laws: of each coordinate row; all_laws: of all groups, which decide the fields of the record
    zero: of shape (n, *batch)
    """
    present = [vars(law) for each in all_laws for law in each if law is not None]
    fields = [name for name in present[0] if any(_is_array(law[name]) for law in present)]

    def stacked(records, name):
        # A coordinate without a law in this slot gets a law without force.
        absent = 1.0 if name == "sign" else 0.0
        values = [None if record is None else vars(record)[name] for record in records]
        values = [jnp.asarray(absent if x is None else x, zero.dtype) for x in values]
        values = [jnp.broadcast_to(x, zero.shape) for x in values]
        return jnp.concatenate(values) if values else zero[:0]

    kind = Bound if "sign" in fields else Latch
    related = {"across": slot.across, "absent": slot.absent} if kind is Bound else {}
    related |= {"normal": slot.normal} if "mu" in fields else {}
    numbers = {name: stacked(laws, name) for name in fields if name != "rebound"}
    if "rebound" in fields:
        rebounds = [None if law is None else law.rebound for law in laws]
        names = vars(next(law["rebound"] for law in present if law["rebound"] is not None))
        related["rebound"] = Rebound(**{name: stacked(rebounds, name) for name in names})
    return kind(**numbers, **related)


def _is_array(x) -> bool:
    return x is not None and not isinstance(x, tuple)


def _latched(problem: RowProblem, latches: tuple[Latch, ...], target: Step) -> RowProblem:
    """The problem with its latches as linear laws of limited stiffness (`Step.stiffness`)."""
    if not latches:
        return problem
    A, fixed = (coordinate_rows(problem, f(problem)) for f in (diagonal, still))
    for latch in latches:
        # A hard latch on a row that nothing moves exerts no force, as in `resting`.
        hard = fixed if latch.compliance is None else fixed & (latch.compliance <= 0)
        K = jnp.where(hard, 0.0, target.stiffness(latch, A))
        problem = replace(
            problem,
            augmented_stiffness=problem.augmented_stiffness + K,
            impulse=problem.impulse - K * latch.bias,
        )
    return problem


def _switched(plan: Layout, group: GroupRows, aims: Aims) -> Aims:
    """The aims of a group, without force in rows that are switched off."""
    rows, n = len(group.layout.wrenches), len(group.bodies[0])
    on = jnp.broadcast_to(group.on, (rows, n, *group.on.shape[2:]))
    of_rows = on[group.layout.hard :].reshape(-1, *on.shape[2:])
    off = _padded(plan, 1 - on, 0)

    def bound(each):
        masked = {"present": each.present, "lower": each.lower, "upper": each.upper, "mu": each.mu}
        masked = {name: x * of_rows for name, x in masked.items() if x is not None}
        if each.rebound is not None:
            masked["rebound"] = replace(each.rebound, hits=each.rebound.hits * of_rows)
        return replace(each, **masked)

    return Aims(
        rate=aims.rate * (1 - off),
        # A pivot of 1 for a row that moves nothing. Along a coordinate of a tree joint a compliance
        # so large that the coordinate is free.
        compliance=aims.compliance
        + off * (jnp.finfo(off.dtype).max ** 0.5 if group.layout.of_tree else 1),
        augmented_stiffness=aims.augmented_stiffness * of_rows,
        impulse=aims.impulse * of_rows,
        bounds=tuple(bound(each) for each in aims.bounds),
        latches=tuple(replace(each, engaged=each.engaged * of_rows) for each in aims.latches),
    )


def _speeds(group: GroupRows, velocity: Array) -> Array:
    """Speeds of the rows of a group at the twists `velocity`, (rows, n, *batch)."""
    sides = zip(group.H, group.bodies, strict=True)
    # Where all stand on the world, nothing moves there.
    moving = [(H, at) for n, (H, at) in enumerate(sides) if not n or (at >= 0).any()]
    return sum(multiply_transposed(H, velocity[:, at]) for H, at in moving)


def _above_coordinate_rows(group: GroupRows, hard: Array, tail: tuple[int, ...]) -> Array:
    """Values of the hard rows, 0 in the coordinate rows, shape (rows, *tail)."""
    zeros = jnp.zeros((len(group.layout.coordinates), *tail), hard.dtype)
    return jnp.concatenate([jnp.broadcast_to(hard, (hard.shape[0], *tail)), zeros])


def _rows(parts: Sequence[Array]) -> Array:
    """Rows one after another, with the batch axes of all of them."""
    tail = jnp.broadcast_shapes(*(x.shape[1:] for x in parts))
    return jnp.concatenate([jnp.broadcast_to(x, x.shape[:1] + tail) for x in parts])


def _padded(plan: Layout, x: Array, axis: int) -> Array:
    """x with the number of rows of a problem; rows that do not exist are 0."""
    missing = plan.structure.rows - x.shape[axis]
    if not missing:
        return x
    return jnp.pad(x, [(0, missing if i == axis else 0) for i in range(x.ndim)])


def _joined(mechanism: Mechanism, *arrays: Array) -> Array:
    """Arrays of all groups one after another, along the last axis before the batch."""
    if len(arrays) == 1:
        return arrays[0]
    axis = arrays[0].ndim - mechanism.inverse_mass.ndim
    tail = jnp.broadcast_shapes(*(x.shape[axis + 1 :] for x in arrays))
    arrays = [jnp.broadcast_to(x, x.shape[: axis + 1] + tail) for x in arrays]
    return jnp.concatenate(arrays, axis=axis)


def _in_order(mechanism: Mechanism, x: Array, order: tuple[int, ...] | None) -> Array:
    """Arrays of the nodes of all parts, or of nodes with a certain side, in elimination order."""
    axis = x.ndim - mechanism.inverse_mass.ndim
    return x if order is None else take(x, np.array(order), axis)
