"""From places to impulses: the rows of all joints and laws, and the problem they make together."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from .blocks import materialize, multiply
from .couplings.coupling import CouplingRows
from .kinematics import JointPlaces, Mechanism, coordinate_indices, speeds_along, wrenches_on_bodies
from .laws import Law
from .layout import GroupRows, Layout, layout
from .pytree import map_trailing
from .rows import Bound, Hard, Linear
from .solve.bounds import BoundedRows
from .solve.problem import RowProblem, RowSolution
from .spatial import cross, dot, matmul
from .system import JointGroup

# Compliance [velocity per impulse] that switches a row off in a position projection.
SWITCHED_OFF = 1e9


def row_problem(
    mechanism: Mechanism,
    places: tuple[JointPlaces, ...],
    velocity: Array,
    dt: Array,
) -> RowProblem:
    """Rows of all joints and laws for one step of dt [s].

    velocity: twists (6, bodies + 1, *batch) in body axes without the impulses of this step
    """
    system = mechanism.system
    plan = layout(system)
    parts = [
        _group_problem(mechanism, group, rows, place, velocity, dt)
        for group, rows, place in zip(system.groups, plan.groups, places, strict=True)
        if rows.rows
    ]
    return _join(plan, parts)


def projection_problem(mechanism: Mechanism, places: tuple[JointPlaces, ...]) -> RowProblem:
    """Rows for position projection: A λ = -φ for rigid joints, hard locks and violated hard stops.

    The speeds of this problem are displacements: h = 1, v = 0, erp = 1.
    """
    system = mechanism.system
    plan = layout(system)
    still = jnp.zeros((6, *mechanism.inverse_mass.shape), mechanism.inverse_mass.dtype)
    one = jnp.ones((), still.dtype)
    parts = []
    for group, rows, place in zip(system.groups, plan.groups, places, strict=True):
        if not rows.rows:
            continue
        part = _group_problem(mechanism, group, rows, place, still, one)
        rate = [place.rows.error]
        off = 0.0 if group.rigid else SWITCHED_OFF
        compliance = [jnp.full_like(place.rows.error, off)]
        forces = _forces(group, place, one)
        part["stiffness"], part["impulse"], part["bounds"] = [], [], []
        for coordinate in rows.hard:
            force = next(
                f for law, f in forces if law.coordinate == coordinate and law.kind is Hard
            )
            rate.append(force.error[None])
            compliance.append(jnp.where(force.compliance > 0, SWITCHED_OFF, 0.0)[None])
        for coordinate in rows.soft:
            violation = jnp.zeros_like(place.rows.q[coordinate])
            for law, force in forces:
                if law.coordinate == coordinate and law.kind is Bound:
                    violation = violation + force.sign * force.violation
            index = rows.place(coordinate, group.coupling.dof)
            inverse_mass = _row_diagonal(part, index)
            held = jnp.where(violation != 0, 1e5 / inverse_mass, 0.0)
            part["stiffness"].append(held)
            part["impulse"].append(-held * violation)
        part["rate"] = _place_rows(rows, rate, part["H"][1])
        part["compliance"] = _place_rows(rows, compliance, part["H"][1])
        parts.append(part)
    return _join(plan, parts, bounded=False)


def start_impulses(plan: Layout, flat: Array) -> tuple[Array, tuple[Array, ...]] | None:
    """Impulses to start from, out of `State.impulse`; None where nothing is bounded."""
    if plan.structure is None or not plan.bounds:
        return None
    batch = flat.shape[1:]
    rows, nodes = plan.structure.rows, plan.structure.nodes
    impulse = flat[: rows * nodes].reshape((rows, nodes, *batch))
    bounded = flat[rows * nodes :].reshape((len(plan.bounds), -1, *batch))
    return impulse, tuple(bounded)


def flat_impulses(plan: Layout, solution: RowSolution) -> Array:
    """What `start_impulses` reads, shape (`impulse_size`, *batch)."""
    batch = solution.residual.shape
    parts = [solution.impulse, *solution.bounded]
    return jnp.concatenate(
        [
            jnp.broadcast_to(x, x.shape[: x.ndim - len(batch)] + batch).reshape((-1, *batch))
            for x in parts
        ]
    )


def joint_impulses(
    mechanism: Mechanism, places: tuple[JointPlaces, ...], impulse: Array
) -> tuple[Array, list[Array]]:
    """Impulse of each joint's rows on its child at C in C axes, shape (6, joints, *batch), and of
    the laws on each coordinate, one array (k, joints of the group, *batch) per group.
    """
    system = mechanism.system
    plan = layout(system)
    batch = impulse.shape[2:]
    wrench = jnp.zeros((6, len(system.topology.joints), *batch), impulse.dtype)
    by_coordinate = []
    first = 0
    if plan.permutation is not None:
        impulse = impulse[:, np.argsort(plan.permutation)]
    for group, rows, place in zip(system.groups, plan.groups, places, strict=True):
        joints, k = len(group.joints), group.coupling.dof
        along = jnp.zeros((k, joints, *batch), impulse.dtype)
        if rows.rows:
            own = impulse[: len(rows.rows), first : first + joints]
            first += joints
            total = sum(place.rows.W[row] * own[None, i] for i, row in enumerate(rows.rows))
            if group.attachment[0]:
                moment = cross(group.attachment[0] * place.D_to_C, total[:3])
                total = total + jnp.concatenate([jnp.zeros_like(moment), moment], axis=0)
            wrench = wrench.at[:, np.array(group.joints)].set(total)
            for coordinate in rows.hard + rows.soft:
                along = along.at[coordinate].set(own[rows.place(coordinate, k)])
        by_coordinate.append(along)
    return wrench, by_coordinate


def effort_impulse(
    mechanism: Mechanism, places: tuple[JointPlaces, ...], effort: Array, dt: Array
) -> Array:
    """Change of twists (6, bodies + 1, *batch) by efforts (coordinates, *batch) over dt [s]."""
    # The places have all batch axes, the efforts and the system only where they are not shared.
    batch = jnp.broadcast_shapes(effort.shape[1:], *(place.D_to_C.shape[2:] for place in places))
    total = jnp.zeros((6, mechanism.inverse_mass.shape[0], *batch), effort.dtype)
    for group, place in zip(mechanism.system.groups, places, strict=True):
        k = group.coupling.dof
        if k == 0:
            continue
        impulse = dt * effort[coordinate_indices(group)]
        wrenches = wrenches_on_bodies(group, place, range(6 - k, 6))
        for H, body in zip(wrenches, (group.child, group.parent), strict=True):
            body = np.array(body)
            change = multiply(over_mass(mechanism, H, body), impulse)
            total = total.at[:, body].add(change)
    return total


def over_mass(mechanism: Mechanism, H: Array, body: np.ndarray) -> Array:
    """M⁻¹ H for wrenches (6, rows, n, *batch) on the bodies (n,)."""
    linear = mechanism.inverse_mass[body][None, None] * H[:3]
    angular = matmul(mechanism.inverse_inertia[:, :, body], H[3:])
    return jnp.concatenate(jnp.broadcast_arrays(linear, angular), axis=0)


def _forces(group: JointGroup, place: JointPlaces, dt: Array) -> list[tuple[Law, Any]]:
    """What each law of a group asks for, arrays (joints, *batch)."""
    forces = []
    for law in group.laws:
        q = place.rows.q[law.coordinate]
        if law.elementwise:
            forces.append((law, law.force(q, dt)))
        else:
            mapped = map_trailing(lambda law, q: law.force(q, dt), q.ndim, law, q)
            forces.append((law, mapped))
    return forces


def _group_problem(
    mechanism: Mechanism,
    group: JointGroup,
    rows: GroupRows,
    place: JointPlaces,
    velocity: Array,
    dt: Array,
) -> dict[str, Any]:
    """Parts of the problem that one group's nodes contribute, by field."""
    H_child, H_parent = wrenches_on_bodies(group, place, rows.rows)
    child, parent = np.array(group.child), np.array(group.parent)
    speed = speeds_along(group, H_child, H_parent, velocity)
    found: CouplingRows = place.rows
    hard_rate = [found.drift + group.erp * found.error / dt]
    compliance = [jnp.broadcast_to(group.cfm / dt, found.error.shape)]
    forces = _forces(group, place, dt)
    for coordinate in rows.hard:
        force = next(f for law, f in forces if law.coordinate == coordinate and law.kind is Hard)
        hard_rate.append(force.bias[None])
        compliance.append(jnp.broadcast_to(force.compliance, found.q.shape[1:])[None])
    stiffness, impulse, bounds = [], [], []
    for coordinate in rows.soft:
        q = found.q[coordinate]
        own = [(law, force) for law, force in forces if law.coordinate == coordinate]
        linear = [force for law, force in own if law.kind is Linear]
        stiffness.append(sum((f.stiffness for f in linear), jnp.zeros_like(q)))
        impulse.append(sum((f.impulse for f in linear), jnp.zeros_like(q)))
        bounds.append([(law.two_sided, force) for law, force in own if law.kind is Bound])
    return {
        "H": (H_child, H_parent),
        "Y": (over_mass(mechanism, H_child, child), over_mass(mechanism, H_parent, parent)),
        "rate": speed + _place_rows(rows, hard_rate, H_parent),
        "compliance": _place_rows(rows, compliance, H_parent),
        "stiffness": stiffness,
        "impulse": impulse,
        "bounds": bounds,
    }


def _place_rows(rows: GroupRows, parts: list[Array], like: Array) -> Array:
    """Values of the hard rows, zero in the coordinate rows, shape (rows, joints, *batch)."""
    parts = [jnp.broadcast_to(p, (p.shape[0], *like.shape[2:])) for p in parts]
    if rows.soft:
        parts.append(jnp.zeros((len(rows.soft), *like.shape[2:]), like.dtype))
    return jnp.concatenate(parts, axis=0)


def _row_diagonal(part: dict[str, Any], index: int) -> Array:
    """A_ii of one row of a group's nodes, shape (joints, *batch)."""
    return sum(dot(H[:, index], Y[:, index]) for H, Y in zip(part["H"], part["Y"], strict=True))


def _join(plan: Layout, parts: list[dict], bounded: bool = True) -> RowProblem:
    """One problem of the groups' parts, nodes in elimination order."""
    structure = plan.structure
    like = parts[0]["rate"]
    batch = jnp.broadcast_shapes(*(part["rate"].shape[2:] for part in parts))

    def join(fields, height_axis):
        arrays = []
        for x in fields:
            missing = structure.rows - x.shape[height_axis]
            if missing:
                pad = [(0, 0)] * x.ndim
                pad[height_axis] = (0, missing)
                x = jnp.pad(x, pad)
            arrays.append(x)
        if len(arrays) > 1:
            tail = jnp.broadcast_shapes(*(x.shape[height_axis + 2 :] for x in arrays))
            arrays = [jnp.broadcast_to(x, x.shape[: height_axis + 2] + tail) for x in arrays]
        x = jnp.concatenate(arrays, axis=height_axis + 1) if len(arrays) > 1 else arrays[0]
        return (
            x
            if plan.permutation is None
            else jnp.take(x, np.array(plan.permutation), height_axis + 1)
        )

    def coordinates(arrays):
        if not arrays:
            return jnp.zeros((0, *batch), like.dtype)
        return jnp.concatenate([jnp.broadcast_to(x, (x.shape[0], *batch)) for x in arrays], axis=0)

    slots = []
    for slot, two_sided in enumerate(plan.bounds if bounded else ()):
        rank = slot - plan.bounds.index(two_sided)
        fields = ["sign", "bias", "compliance", "present"] + ["lower", "upper"] * two_sided
        arrays: dict[str, list[Array]] = {field: [] for field in fields}
        for part in parts:
            for own, stiffness in zip(part["bounds"], part["stiffness"], strict=True):
                found = [force for kind, force in own if kind is two_sided]
                for field in fields:
                    x = getattr(found[rank], field) if rank < len(found) else _inert(field)
                    shape = (stiffness.shape[0], *batch)
                    arrays[field].append(jnp.broadcast_to(x, shape).astype(like.dtype))
        slots.append(BoundedRows(**{field: coordinates(x) for field, x in arrays.items()}))
    problem = RowProblem(
        tuple(join([part["H"][side] for part in parts], 1) for side in range(2)),
        tuple(join([part["Y"][side] for part in parts], 1) for side in range(2)),
        join([part["rate"] for part in parts], 0),
        join([part["compliance"] for part in parts], 0),
        coordinates([x for part in parts for x in part["stiffness"]]),
        coordinates([x for part in parts for x in part["impulse"]]),
        tuple(slots),
        structure,
    )
    # Stored: otherwise XLA computes the rows again inside everything that reads them.
    return materialize(problem)


def _inert(field: str) -> Array:
    """Value of a bound's field where a coordinate has no such law: no force."""
    return jnp.ones(()) if field == "sign" else jnp.zeros(())
