"""From a solution back to joints: wrenches, forces along coordinates, and the next warm start."""

from functools import lru_cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.dense import multiply
from ..algebra.places import take
from ..algebra.pytree import replace, struct
from ..algebra.spatial import cross, over_mass
from ..laws.law import by_row_law
from ..laws.limits import Limits
from ..model.groups import JointGroup
from ..model.kinematics import (
    JointKinematics,
    Kinematics,
    Mechanism,
    coordinate_indices,
    coordinate_wrenches,
    gather_coordinates,
    with_world,
)
from ..model.state import State, WarmStart
from ..model.system import System
from ..solve.articulated import impulses_on_bodies
from ..solve.problem import Impulses, RowProblem, RowSolution
from .layout import GroupLayout, Layout, layout
from .problem import Assembly
from .tree import joint_impulses_of_tree


@struct
class JointImpulses:
    """What the rows did in a step.

    wrench: impulse on each joint's child at C in C axes, its bilateral and law rows together, shape
        (6, joints, *batch)
    law: by the laws along each coordinate, shape (coordinates, *batch); limit: the part of `Limits`
    transmission: along each value of the transmissions, shape (values, *batch)
    constraint: of each row of the constraints, shape (constraint rows, *batch)
    """

    wrench: Array
    law: Array
    limit: Array
    transmission: Array
    constraint: Array


def start_impulses(state: State, plan: Layout | None = None) -> Impulses | None:
    """Impulses of the last step, from which a solve starts; None where no law is bounded.

    plan: of the rows of the solve, None for the layout of all
    """
    start = state.warm_start
    if not start.bounds.shape[0]:
        return None
    rows, bounds = start.rows, tuple(start.bounds)
    if plan is not None and plan.tree is not None:
        same = _correspondence(plan)
        structure = plan.structure
        rows = _looked_up(rows, same.rows_there, (structure.rows, structure.nodes))
        bounds = tuple(take(x, same.coordinates_there, 0) for x in bounds)
    return rows, bounds


def warm_start(system: System, solution: RowSolution, plan: Layout | None = None) -> WarmStart:
    """Impulses for the next step to start from, with all batch axes; plan: as `start_impulses`."""
    batch = solution.residual.shape
    if not solution.bounded:
        return no_warm_start(system, batch, solution.impulse.dtype)
    solution = solution if plan is None else of_all_rows(plan, solution)
    rows = jnp.broadcast_to(solution.impulse, (*solution.impulse.shape[:2], *batch))
    bounds = [jnp.broadcast_to(x, (*x.shape[:1], *batch)) for x in solution.bounded]
    return WarmStart(rows, jnp.stack(bounds))


def of_all_rows(plan: Layout, solution: RowSolution) -> RowSolution:
    """A solution in the layout of all rows, 0 for those that a tree has no need of."""
    if plan.tree is None:
        return solution
    same, structure = _correspondence(plan), plan.tree.whole.structure
    shape = structure.rows, structure.nodes
    impulse = _looked_up(solution.impulse, same.rows_here, shape)
    bounded = [
        _looked_up(x, same.coordinates_here, (len(structure.row),)) for x in solution.bounded
    ]
    return replace(solution, impulse=impulse, bounded=tuple(bounded))


def with_reactions(
    mechanism: Mechanism, kinematics: Kinematics, rows: Assembly, solution: RowSolution
) -> tuple[RowProblem, RowSolution]:
    """A problem and its solution in the layout of all rows, with the impulses of tree joints."""
    plan, problem = rows.plan, rows.problem
    if rows.held is None:
        return problem, solution
    change = with_world(rows.twists(solution.impulse)) - rows.free
    change = change if rows.bent is None else change + rows.bent
    whole, solved = plan.tree.whole, of_all_rows(plan, solution)
    impulse = solved.impulse
    impulse = jnp.broadcast_to(impulse, (*impulse.shape[:2], *change.shape[2:]))
    by_rows = impulses_on_bodies(problem.articulated, solution.impulse)
    places = _places(whole)
    at = mechanism, plan, kinematics, rows.held
    for g, members, Λ in joint_impulses_of_tree(*at, change, by_rows):
        for row in whole.groups[g].wrenches:
            at = np.array([places[g, i, row] for i in members])
            impulse = impulse.at[at[:, 0], at[:, 1]].set(Λ[row])
    same, count = _correspondence(plan), (len(whole.structure.row),)
    signs = [_looked_up(b.sign, same.coordinates_here, count) for b in problem.bounds]
    bounds = (replace(b, sign=x) for b, x in zip(problem.bounds, signs, strict=True))
    return replace(problem, bounds=tuple(bounds)), replace(solved, impulse=impulse)


def no_warm_start(system: System, batch: tuple[int, ...], dtype: jnp.dtype) -> WarmStart:
    """No impulse at all, where a system starts."""
    sizes = warm_start_sizes(system)
    return WarmStart(*(jnp.zeros((*shape, *batch), dtype) for shape in sizes))


def warm_start_sizes(system: System) -> tuple[tuple[int, int], tuple[int, int]]:
    """Shapes of the two arrays of a `WarmStart` without batch axes."""
    plan = layout(system)
    if not plan.bounded:
        return (0, 0), (0, 0)
    structure = plan.structure
    return (structure.rows, structure.nodes), (plan.bounded, len(structure.row))


def joint_impulses(
    mechanism: Mechanism,
    kinematics: Kinematics,
    problem: RowProblem,
    solution: RowSolution,
    state: State,
) -> JointImpulses:
    """What the impulses of a solution are at the joints; state: for shapes."""
    system, batch = mechanism.system, state.time.shape
    plan, impulse = layout(system), solution.impulse
    # The nodes of each group stand one after another before they are put in order.
    if plan.order is not None:
        impulse = impulse[:, np.argsort(plan.order)]
    impulse = jnp.broadcast_to(impulse, (*impulse.shape[:2], *batch))
    wrench = jnp.zeros((6, len(system.topology.joints), *batch), impulse.dtype)
    law, limit = [], []
    node = row = 0
    joints, transmissions, _ = system.by_kind(plan.groups)
    parts = zip(system.groups, joints, kinematics.joints, strict=True)
    for g, (group, rows, joint) in enumerate(parts):
        n, k = len(group.joints), group.coupling.dof
        along = by_limits = jnp.zeros((k, n, *batch), impulse.dtype)
        if rows.wrenches:
            Λ = impulse[: len(rows.wrenches), node : node + n]
            node += n
            wrench = wrench.at[:, np.array(group.joints)].set(_wrench(group, rows, joint, Λ))
            for coordinate in rows.held + rows.coordinates:
                along = along.at[coordinate].set(Λ[rows.place(coordinate)])
            for i, coordinate in enumerate(rows.coordinates):
                for push in _limits(system, problem, solution, g, i, slice(row, row + n)):
                    by_limits = by_limits.at[coordinate].add(push)
                row += n
        law.append(along)
        limit.append(by_limits)
    values = jnp.zeros((system.values, *batch), impulse.dtype)
    for group, rows in zip(system.transmissions, transmissions, strict=True):
        n = len(group.members)
        for value in rows.held + rows.coordinates:
            Λ = impulse[rows.place(value), node : node + n]
            values = values.at[np.array(group.start) + value].set(Λ)
        node += n
    forces = jnp.zeros((system.constraint_rows, *batch), impulse.dtype)
    for group in system.constraints:
        n = len(group.members)
        for row in range(group.constraint.rows):
            forces = forces.at[np.array(group.start) + row].set(impulse[row, node : node + n])
        node += n
    gathered = (gather_coordinates(mechanism, parts, state) for parts in (law, limit))
    return JointImpulses(wrench, *gathered, values, forces)


def effort_impulse(
    mechanism: Mechanism, kinematics: Kinematics, effort: Array | None, dt: Array
) -> Array:
    """Change of twists (6, bodies + 1, *batch) by efforts (coordinates, *batch) over dt [s]; None
    for no effort.
    """
    mass = mechanism.inverse_mass
    if effort is None:
        return jnp.zeros((6, *mass.shape), mass.dtype)
    # The kinematics have all batch axes, efforts and system only where they are not shared.
    batches = (joint.T_CD.p.shape[2:] for joint in kinematics.joints)
    batch = jnp.broadcast_shapes(effort.shape[1:], *batches)
    total = jnp.zeros((6, mass.shape[0], *batch), effort.dtype)
    for group, joint in zip(mechanism.system.groups, kinematics.joints, strict=True):
        if group.coupling.dof == 0:
            continue
        impulse = dt * effort[coordinate_indices(group)]
        if group.enabled is not None:
            impulse = jnp.where(group.enabled[None] > 0, impulse, 0.0)
        sides = zip(coordinate_wrenches(group, joint), (group.child, group.parent), strict=True)
        for H, body in sides:
            body = np.array(body)
            total = total.at[:, body].add(multiply(H, impulse))
    return over_mass(mass, mechanism.inverse_inertia, total)


def _wrench(group: JointGroup, rows: GroupLayout, joint: JointKinematics, impulse: Array) -> Array:
    """Impulses of a group's rows as wrenches on the children at C in C axes, (6, n, *batch)."""
    total = sum(joint.rows.W[row] * impulse[None, i] for i, row in enumerate(rows.wrenches))
    if group.attachment[0]:
        moment = cross(group.attachment[0] * joint.D_to_C, total[:3])
        total = total + jnp.concatenate([jnp.zeros_like(moment), moment], axis=0)
    return total


def _limits(
    system: System,
    problem: RowProblem,
    solution: RowSolution,
    g: int,
    i: int,
    at: slice,
) -> list[Array]:
    """Impulses of the limits on one coordinate of a group of joints, arrays (n, *batch).

    g, i: which group, and which of its coordinates with rows; at: these joints' coordinate rows
    """
    plan, laws = layout(system), by_row_law(system.groups[g].laws)
    # The slots of bounds come first, and no scheme leaves one of them empty.
    slots = zip(plan.slots[: plan.bounded], problem.bounds, solution.bounded, strict=False)
    return [
        bound.sign[at] * λ[at]
        for slot, bound, λ in slots
        if slot.laws[g][i] is not None and isinstance(laws[slot.laws[g][i]], Limits)
    ]


class _Correspondence(NamedTuple):
    """Where the rows and coordinate rows of two layouts are in each other, -1 where they are not.

    here: of the first layout those of the second; there: of the second those of the first
    """

    rows_here: np.ndarray
    coordinates_here: np.ndarray
    rows_there: np.ndarray
    coordinates_there: np.ndarray


@lru_cache(maxsize=256)
def _correspondence(plan: Layout) -> _Correspondence:
    """Of the layout of all rows and of that with a tree."""
    found, whole = [], plan.tree.whole
    for own, other in ((whole, plan), (plan, whole)):
        places, theirs, structure = _places(own), _places(other), own.structure
        rows = np.full((structure.rows, structure.nodes), -1)
        for key, at in places.items():
            if key in theirs:
                row, node = theirs[key]
                rows[at] = row * other.structure.nodes + node
        of_place = {at: key for key, at in places.items()}
        numbers = zip(other.structure.row, other.structure.node, strict=True)
        number = {at: i for i, at in enumerate(numbers)}
        keys = [of_place[at] for at in zip(structure.row, structure.node, strict=True)]
        coordinates = [number.get(theirs.get(key, (-1, -1)), -1) for key in keys]
        found += [rows.ravel(), np.array(coordinates, int)]
    return _Correspondence(*found)


@lru_cache(maxsize=256)
def _places(plan: Layout) -> dict[tuple[int, int, int], tuple[int, int]]:
    """Row and node of each wrench of a layout by group, place in it, and number of the wrench."""
    nodes = plan.structure.nodes
    position = np.arange(nodes) if plan.order is None else np.argsort(plan.order)
    places, first = {}, 0
    for part, rows in zip(plan.parts, plan.groups, strict=True):
        if rows.wrenches:
            members = plan.members(part)
            for n, member in enumerate(members):
                for row, wrench in enumerate(rows.wrenches):
                    places[part.group, member, wrench] = row, int(position[first + n])
            first += len(members)
    return places


def _looked_up(x: Array, places: np.ndarray, shape: tuple[int, ...]) -> Array:
    """Items of x, whose first axes are one, at places; 0 for -1."""
    flat = x.reshape(-1, *x.shape[len(shape) :])
    flat = jnp.concatenate([flat, jnp.zeros_like(flat[:1])]) if len(flat) else flat
    if not len(flat):
        return jnp.zeros((*shape, *x.shape[len(shape) :]), x.dtype)
    return take(flat, places % len(flat), 0).reshape(*shape, *x.shape[len(shape) :])
