"""From a solution back to joints: wrenches, forces along coordinates, and the next start."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.dense import multiply
from ..algebra.places import looked_up, take
from ..algebra.pytree import replace, struct
from ..algebra.spatial import cross, over_mass
from ..couplings.contact import DIRECTIONS, EDGES, NORMAL
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
from ..model.state import RowForces, State
from ..model.system import System
from ..solve.bodies import changes, impulses_on_bodies
from ..solve.problem import (
    Impulses,
    RowProblem,
    RowSolution,
    coordinate_rows,
    of_bounds,
    with_coordinate_rows,
)
from .layout import GroupLayout, Layout, correspondence, layout, places
from .problem import Assembly
from .tree import joint_impulses_of_tree


@struct
class JointImpulses:
    """Impulses of a step at the joints.

    wrench: impulse on each joint's child at C in C axes, of its bilateral and law rows together,
        shape (6, joints, *batch)
    law: of all laws along each coordinate, shape (coordinates, *batch); limit: the part of `Limits`
    transmission: along each value of the transmissions, shape (values, *batch)
    constraint: of each row of the constraints, shape (constraint rows, *batch)
    contact: along the directions of the contacts, shape (6, contacts, *batch)
    """

    wrench: Array
    law: Array
    limit: Array
    transmission: Array
    constraint: Array
    contact: Array


def start_impulses(state: State, dt: Array, plan: Layout | None = None) -> Impulses | None:
    """Start of a solve: impulses of the last step's forces over dt; None where no law is bounded.

    plan: layout of the rows of the solve, None for the layout of all rows
    """
    forces = state.row_forces
    if not forces.bounds.shape[0]:
        return None
    rows, bounds = dt * forces.rows, dt * forces.bounds
    if plan is not None and plan.tree is not None:
        rows = of_plan(plan, rows)
        bounds = take(bounds, correspondence(plan).coordinates_there, 1)
    return rows, bounds


def of_plan(plan: Layout, x: Array) -> Array:
    """Numbers (rows, nodes, *batch) from the layout of all rows to the layout `plan`."""
    if plan.tree is None:
        return x
    structure = plan.structure
    shape = structure.rows, structure.nodes
    return looked_up(x, correspondence(plan).rows_there, shape)


def row_forces(
    system: System, solution: RowSolution, dt: Array, plan: Layout | None = None
) -> RowForces:
    """Forces from which the next step starts, with all batch axes; plan: as `start_impulses`."""
    batch = solution.residual.shape
    if not len(solution.bounded):
        return no_forces(system, batch, solution.impulse.dtype)
    solution = solution if plan is None else of_all_rows(plan, solution)
    rows = jnp.broadcast_to(solution.impulse, (*solution.impulse.shape[:2], *batch))
    bounds = solution.bounded
    return RowForces(rows / dt, jnp.broadcast_to(bounds, (*bounds.shape[:2], *batch)) / dt)


def of_all_rows(plan: Layout, solution: RowSolution) -> RowSolution:
    """A solution in the layout of all rows, 0 for rows that tree joints do not have."""
    if plan.tree is None:
        return solution
    same, structure = correspondence(plan), plan.tree.whole.structure
    shape = structure.rows, structure.nodes
    impulse = looked_up(solution.impulse, same.rows_here, shape)
    bounded = [looked_up(x, same.coordinates_here, (len(structure.row),)) for x in solution.bounded]
    return replace(solution, impulse=impulse, bounded=of_bounds(bounded))


def with_reactions(
    mechanism: Mechanism, kinematics: Kinematics, rows: Assembly, solution: RowSolution
) -> tuple[RowProblem, RowSolution]:
    """A problem and its solution in the layout of all rows, with the impulses of tree joints."""
    plan, problem = rows.plan, rows.problem
    if rows.held is None:
        return problem, solution
    change, bent = with_world(rows.twists(solution.impulse)) - rows.free, rows.allowed.bent
    change = change if bent is None else change + bent
    whole, solved = plan.tree.whole, of_all_rows(plan, solution)
    impulse = solved.impulse
    impulse = jnp.broadcast_to(impulse, (*impulse.shape[:2], *change.shape[2:]))
    bodies, held = problem.bodies, rows.held
    by_rows = impulses_on_bodies(bodies, solution.impulse)
    # The sum over the laws themselves: impulses of rows and wrenches carry larger rounding errors.
    pairs = zip(problem.bounds, solution.bounded, strict=True)
    bounded = sum((b.sign * λ for b, λ in pairs), problem.impulse)
    along = coordinate_rows(problem, solution.impulse)
    along = jnp.where(problem.augmented_stiffness > 0, along, bounded)
    along = with_coordinate_rows(problem.structure, solution.impulse, along)
    speeds = rows.allowed.coordinates + changes(bodies, solution.impulse)[1]
    laws = held.push - held.tree.stiffness * speeds + bodies.of_coordinates(along)
    where = places(whole)
    at = mechanism, plan, kinematics, held
    for g, members, Λ in joint_impulses_of_tree(*at, change, by_rows, laws):
        for row in whole.groups[g].wrenches:
            at = np.array([where[g, i, row] for i in members])
            impulse = impulse.at[at[:, 0], at[:, 1]].set(Λ[row])
    same, count = correspondence(plan), (len(whole.structure.row),)
    signs = [looked_up(b.sign, same.coordinates_here, count) for b in problem.bounds]
    bounds = (replace(b, sign=x) for b, x in zip(problem.bounds, signs, strict=True))
    return replace(problem, bounds=tuple(bounds)), replace(solved, impulse=impulse)


def no_forces(system: System, batch: tuple[int, ...], dtype: jnp.dtype) -> RowForces:
    """No force at all, where a system starts."""
    sizes = row_forces_sizes(system)
    return RowForces(*(jnp.zeros((*shape, *batch), dtype) for shape in sizes))


def row_forces_sizes(system: System) -> tuple[tuple[int, int], tuple[int, int]]:
    """Shapes of the two arrays of `RowForces` without batch axes."""
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
    """Impulses of a solution at the joints; state: for shapes."""
    system, batch = mechanism.system, state.time.shape
    plan, impulse = layout(system), solution.impulse
    # The nodes of each group stand one after another before they are put in order.
    if plan.order is not None:
        impulse = impulse[:, np.argsort(plan.order)]
    impulse = jnp.broadcast_to(impulse, (*impulse.shape[:2], *batch))
    wrench = jnp.zeros((6, len(system.topology.joints), *batch), impulse.dtype)
    law, limit = [], []
    node = row = 0
    joints, transmissions, _, contacts = system.by_kind(plan.groups)
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
    on_contacts = jnp.zeros((DIRECTIONS, len(system.topology.contacts), *batch), impulse.dtype)
    for group, rows in zip(system.contacts, contacts, strict=True):
        members, n = np.array(group.members), len(group.members) if rows.wrenches else 0
        for direction in rows.held + rows.coordinates:
            Λ = impulse[rows.place(direction), node : node + n]
            if direction in EDGES:
                tangent, sign = EDGES[direction]
                on_contacts = on_contacts.at[NORMAL, members].add(Λ)
                Λ, direction = sign * group.edge_friction * Λ, tangent
            on_contacts = on_contacts.at[direction, members].add(Λ)
        node += n
    gathered = (gather_coordinates(mechanism, parts, state) for parts in (law, limit))
    return JointImpulses(wrench, *gathered, values, forces, on_contacts)


def effort_impulse(
    mechanism: Mechanism, kinematics: Kinematics, effort: Array | None, dt: Array
) -> Array:
    """Change of twists (6, bodies + 1, *batch) by efforts (coordinates, *batch) over dt [s].

    effort: None for no effort
    """
    mass = mechanism.inverse_mass
    if effort is None:
        return jnp.zeros((6, *mass.shape), mass.dtype)
    # The kinematics have all batch axes; efforts and numbers of the system may be shared.
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
