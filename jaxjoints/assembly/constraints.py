"""From places to impulses: the rows of all joints and laws, and the problem they make together."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient

from ..algebra.compiler import materialize
from ..algebra.dense import multiply, multiply_transposed
from ..algebra.pytree import replace
from ..algebra.spatial import cross, dot, matmul
from ..laws.law import Law
from ..model.kinematics import JointPlaces, Mechanism, coordinate_indices, wrenches_on_bodies
from ..model.state import Control
from ..solve.bounds import BoundedRows
from ..solve.forces import Bound, Latch, Linear
from ..solve.problem import REGULARIZATION, RowProblem, RowSolution, coordinate_rows, diagonal
from .layout import GroupRows, Layout, layout
from .node_rows import NodeRows, all_rows, holding

# Compliance [velocity per impulse] that switches a row off in a position projection.
SWITCHED_OFF = 1e9
# Stiffness of a violated stop in a position projection, as a share of its effective mass.
HELD = 1e5


def row_problem(
    mechanism: Mechanism,
    places: tuple[JointPlaces, ...],
    velocity: Array,
    dt: Array,
    control: Control,
    before: Array | None = None,
    *,
    force_time: Array | None = None,
    engagement: Array | None = None,
    changed: Callable[[NodeRows], NodeRows] = lambda own: own,
) -> RowProblem:
    """Rows of all joints and laws for one step of dt [s].

    velocity: twists (6, bodies + 1, *batch) in body axes without the impulses of this step
    before: the same at the start of the step, for laws that need it
    force_time: how long laws that hold no position act [s], dt by default
    engagement: of `State`, for laws with an `Engagement`
    changed: what each group's rows become before they are put together
    """
    rows = all_rows(mechanism, places, dt, control, before, force_time, engagement)
    parts = [_problem(changed(own), velocity, dt, mechanism) for own in rows]
    return _join(layout(mechanism.system), parts)


def row_values(mechanism: Mechanism, places: tuple[JointPlaces, ...], along: RowProblem) -> Array:
    """φ of the bilateral rows, 0 of those without, and the coordinates of the others, for the rows
    of the problem `along`, shape (rows, nodes, *batch).
    """
    parts = []
    one = jnp.ones((), mechanism.inverse_mass.dtype)
    for own in all_rows(mechanism, places, one, Control()):
        found = [own.error, *(own.q[c][None] for c in own.rows.hard + own.rows.soft)]
        tail = jnp.broadcast_shapes(*(x.shape[1:] for x in found))
        value = jnp.concatenate([jnp.broadcast_to(x, x.shape[:1] + tail) for x in found])
        none = [value[0]] * len(own.rows.soft)
        parts.append(
            {"rate": value, "compliance": value, "stiffness": none, "impulse": none, "bounds": []}
        )
    return _join(layout(mechanism.system), parts, along, bounded=False).rate


def projection_problem(
    mechanism: Mechanism,
    places: tuple[JointPlaces, ...],
    along: RowProblem | None = None,
    engagement: Array | None = None,
) -> RowProblem:
    """Rows for position projection: A λ = -φ for rigid joints and transmissions, hard locks and
    violated hard stops; engaged hard stops are one-sided, violated or not.

    The speeds of this problem are displacements: h = 1, v = 0, erp = 1.

    engagement: of `State`
    along: a problem whose rows are taken, such as that of the step before, with the errors and
        violations of `places`
    """
    plan = layout(mechanism.system)
    one = jnp.ones((), mechanism.inverse_mass.dtype)
    parts = []
    for own in all_rows(mechanism, places, one, Control(), engagement=engagement):
        rows = own.rows
        rate = [own.error]
        off = 0.0 if own.rigid else SWITCHED_OFF
        compliance = [jnp.full_like(own.error, off)]
        for coordinate in rows.hard:
            held = holding(own, coordinate)
            rate.append((own.q[coordinate] if held is None else held.error)[None])
            soft = off if held is None else jnp.where(held.compliance > 0, SWITCHED_OFF, 0.0)
            compliance.append(jnp.broadcast_to(soft, own.q.shape[1:])[None])
        violations, bounds = [], []
        for coordinate in rows.soft:
            violation = jnp.zeros_like(own.q[coordinate])
            found = [(law, f) for law, f in own.forces if law.coordinate == coordinate]
            bounds.append(
                [(law.two_sided, _moving_out(law, f)) for law, f in found if law.kind is Bound]
            )
            for law, force in found:
                if law.kind is Bound and law.engagement is None:
                    violation = violation + force.sign * force.violation
                if law.kind is Latch:
                    error = jnp.where(force.compliance > 0, 0.0, force.error)
                    violation = violation + force.engaged * error
            violations.append(violation)
        part = {
            "rate": _place_rows(rows, rate, own.H[1]),
            "compliance": _place_rows(rows, compliance, own.H[1]),
            "stiffness": violations,
            "impulse": violations,
            "bounds": bounds,
            "idle": None,
        }
        if own.on is not None:
            part = _switched(own, part)
        if along is None:
            part |= {"H": own.H, "Y": _over_masses(mechanism, own)}
        parts.append(part)
    problem = _join(plan, parts, along, bounded=plan.engages)
    violation = problem.stiffness
    if not violation.shape[0]:
        return problem
    stiff = HELD / coordinate_rows(problem, diagonal(problem))
    held = jnp.where(violation != 0, stiff, 0.0)
    return replace(problem, stiffness=held, impulse=-held * violation)


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
) -> tuple[Array, list[Array], Array]:
    """Impulse of each joint's rows on its child at C in C axes, shape (6, joints, *batch); of the
    laws on each coordinate, one array (k, joints of the group, *batch) per group; and along each
    value of the transmissions, shape (values, *batch).
    """
    system = mechanism.system
    plan = layout(system)
    batch = impulse.shape[2:]
    wrench = jnp.zeros((6, len(system.topology.joints), *batch), impulse.dtype)
    by_coordinate = []
    first = 0
    if plan.permutations[0] is not None:
        impulse = impulse[:, np.argsort(plan.permutations[0])]
    joint_rows = plan.groups[: len(system.groups)]
    for group, rows, place in zip(system.groups, joint_rows, places, strict=True):
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
                along = along.at[coordinate].set(own[rows.place(coordinate)])
        by_coordinate.append(along)
    values = jnp.zeros((system.values, *batch), impulse.dtype)
    own_rows = plan.groups[len(system.groups) :]
    for group, rows in zip(system.transmissions, own_rows, strict=True):
        count = len(group.members)
        for value in rows.hard + rows.soft:
            own = impulse[rows.place(value), first : first + count]
            values = values.at[np.array(group.start) + value].set(own)
        first += count
    return wrench, by_coordinate, values


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
        if group.enabled is not None:
            impulse = jnp.where(group.enabled[None] > 0, impulse, 0.0)
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


def _problem(own: NodeRows, velocity: Array, dt: Array, mechanism: Mechanism) -> dict[str, Any]:
    """Parts of the problem that one group's nodes contribute, by field."""
    rows = own.rows
    speed = sum(
        multiply_transposed(H, velocity[:, bodies])
        for H, bodies in zip(own.H, own.bodies, strict=True)
    )
    count = len(own.error)
    hard_rate = [own.drift + own.erp[:count] * own.error / dt]
    compliance = [jnp.broadcast_to(own.cfm[:count] / dt, own.error.shape)]
    for coordinate in rows.hard:
        held = holding(own, coordinate)
        if held is None:
            bias, soft = own.erp[coordinate] * own.q[coordinate] / dt, own.cfm[coordinate] / dt
        else:
            bias, soft = held.bias, held.compliance
        hard_rate.append(bias[None])
        compliance.append(jnp.broadcast_to(soft, own.q.shape[1:])[None])
    Y = _over_masses(mechanism, own)
    stiffness, impulse, bounds = [], [], []
    for coordinate in rows.soft:
        q = own.q[coordinate]
        forces = [(law, force) for law, force in own.forces if law.coordinate == coordinate]
        linear = [force for law, force in forces if law.kind is Linear]
        latches = [force for law, force in forces if law.kind is Latch]
        if latches:
            at = rows.place(coordinate)
            A = sum(dot(h[:, at], y[:, at]) for h, y in zip(own.H, Y, strict=True))
            A = A if own.on is None else A + (1 - own.on)
            linear += [_engaged(force, A) for force in latches]
        stiffness.append(sum((f.stiffness for f in linear), jnp.zeros_like(q)))
        impulse.append(sum((f.impulse for f in linear), jnp.zeros_like(q)))
        bounds.append([(law.two_sided, force) for law, force in forces if law.kind is Bound])
    part = {
        "H": own.H,
        "Y": Y,
        # Stored: a sum with what is put together on the spot is not vectorized.
        "rate": speed + materialize(_place_rows(rows, hard_rate, own.H[1])),
        "compliance": _place_rows(rows, compliance, own.H[1]),
        "stiffness": stiffness,
        "impulse": impulse,
        "bounds": bounds,
        "idle": None,
    }
    return part if own.on is None else _switched(own, part)


def _moving_out(law: Law, force: Bound) -> Bound:
    """A bound in a position projection: one-sided where it is hard and engaged, else absent."""
    if law.engagement is None:
        return replace(force, present=jnp.zeros_like(force.present))
    hard = jnp.where(force.compliance > 0, 0.0, force.present)
    return replace(force, present=hard, bias=force.violation)


def _engaged(latch: Latch, A: Array) -> Linear:
    """A latch as a linear law, as soft as the least that hard rows are; A: of its row."""
    least = REGULARIZATION[A.dtype.itemsize] * stop_gradient(A)
    stiffness = latch.engaged / jnp.maximum(latch.compliance, least)
    return Linear(stiffness, -stiffness * latch.bias)


def _switched(own: NodeRows, part: dict[str, Any]) -> dict[str, Any]:
    """Parts of a group's problem without the force of what is not enabled."""
    on = own.on
    off = jnp.broadcast_to((1 - on)[None], part["compliance"].shape)
    masked = ("present", "lower", "upper", "friction")

    def bound(force):
        fields = {name: getattr(force, name) for name in masked}
        return replace(force, **{name: x * on for name, x in fields.items() if x is not None})

    return part | {
        "rate": part["rate"] * on[None],
        "compliance": part["compliance"] + off,
        "stiffness": [x * on for x in part["stiffness"]],
        "impulse": [x * on for x in part["impulse"]],
        "bounds": [[(kind, bound(force)) for kind, force in own] for own in part["bounds"]],
        "idle": off,
    }


def _place_rows(rows: GroupRows, parts: list[Array], like: Array) -> Array:
    """Values of the hard rows, zero in the coordinate rows, shape (rows, joints, *batch)."""
    parts = [jnp.broadcast_to(p, (p.shape[0], *like.shape[2:])) for p in parts]
    if rows.soft:
        parts.append(jnp.zeros((len(rows.soft), *like.shape[2:]), like.dtype))
    return jnp.concatenate(parts, axis=0)


def _over_masses(mechanism: Mechanism, own: NodeRows) -> tuple[Array, ...]:
    """M⁻¹ H of a group's rows, for each side."""
    return tuple(over_mass(mechanism, H, at) for H, at in zip(own.H, own.bodies, strict=True))


def _join(
    plan: Layout, parts: list[dict], along: RowProblem | None = None, bounded: bool = True
) -> RowProblem:
    """One problem of the groups' parts, nodes in elimination order; with the rows of `along`."""
    structure = plan.structure
    like = parts[0]["rate"]
    batch = jnp.broadcast_shapes(*(part["rate"].shape[2:] for part in parts))

    def join(fields, height_axis, side=0):
        arrays, permutation = [], plan.permutations[side]
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
        return x if permutation is None else jnp.take(x, np.array(permutation), height_axis + 1)

    def coordinates(arrays):
        if not arrays:
            return jnp.zeros((0, *batch), like.dtype)
        return jnp.concatenate([jnp.broadcast_to(x, (x.shape[0], *batch)) for x in arrays], axis=0)

    slots = []
    kinds = [slot.two_sided for slot in plan.bounds]
    for i, slot in enumerate(plan.bounds if bounded else ()):
        rank = i - kinds.index(slot.two_sided)
        fields = ["sign", "bias", "compliance", "present"] + ["lower", "upper"] * slot.two_sided
        fields += ["friction"] * (slot.normal is not None)
        arrays: dict[str, list[Array]] = {field: [] for field in fields}
        for part in parts:
            for own, stiffness in zip(part["bounds"], part["stiffness"], strict=True):
                found = [force for kind, force in own if kind is slot.two_sided]
                for field in fields:
                    x = getattr(found[rank], field) if rank < len(found) else None
                    x = _inert(field) if x is None else x
                    shape = (stiffness.shape[0], *batch)
                    arrays[field].append(jnp.broadcast_to(x, shape).astype(like.dtype))
        given = {field: coordinates(x) for field, x in arrays.items()}
        slots.append(BoundedRows(**given, normal=slot.normal or ()))
    fields = {
        "rate": join([part["rate"] for part in parts], 0),
        "compliance": join([part["compliance"] for part in parts], 0),
        "stiffness": coordinates([x for part in parts for x in part["stiffness"]]),
        "impulse": coordinates([x for part in parts for x in part["impulse"]]),
        "bounds": tuple(slots),
    }
    if along is not None:
        return replace(along, **materialize(fields))
    if any(part["idle"] is not None for part in parts):
        fields["idle"] = join(
            [jnp.zeros_like(p["rate"]) if p["idle"] is None else p["idle"] for p in parts], 0
        )
    for field in ("H", "Y"):
        fields[field] = tuple(
            join([part[field][side] for part in parts if len(part[field]) > side], 1, side)
            for side in range(len(structure.sides))
        )
    # Stored: otherwise XLA computes the rows again inside everything that reads them.
    return RowProblem(**materialize(fields), structure=structure)


def _inert(field: str) -> Array:
    """Value of a bound's field where a coordinate has no such law: no force."""
    return jnp.ones(()) if field == "sign" else jnp.zeros(())
