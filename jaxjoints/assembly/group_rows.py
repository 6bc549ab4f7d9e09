"""The rows of one group of joints, transmissions, constraints or contacts: wrenches and laws."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import materialize
from ..algebra.dense import multiply_transposed
from ..algebra.places import take
from ..algebra.pytree import map_trailing, replace, struct
from ..couplings.contact import DIRECTIONS, EDGES, NORMAL
from ..laws.law import CoordinateState, Law, by_row_law
from ..laws.softness import Softness
from ..model.groups import ConstraintGroup, ContactGroup, JointGroup, TransmissionGroup
from ..model.kinematics import (
    ConstraintKinematics,
    ContactKinematics,
    JointKinematics,
    Kinematics,
    Mechanism,
    coordinate_indices,
    coordinate_speeds,
    direction_speeds,
    direction_wrenches,
    transmission_rows,
    wrenches_on_bodies,
)
from ..model.state import Control
from ..solve.forces import Hard, RowLaw
from .engagement import contact_indices, engaged_sides, value_indices
from .layout import GroupLayout, Layout, Part


@struct
class Interval:
    """The time in which laws act, and the motion that they read.

    dt: time in which errors and gaps are closed [s]
    control: targets of drives
    force_time: time for which laws that hold no position act, and rows at acceleration level add to
        speeds [s], None for dt
    twist: of bodies at the start of the step in body axes, (6, bodies + 1, *batch), None where
        nothing moves
    engagement: of `State`; laws with an `Engagement` do not act without it
    free: twists at the end of the step without the force of any row, as `twist`; None where
        impacts have no time of their own within the step
    bent: change of the bodies' twists in the step that is no part of the problem's speeds, but that
        rows at acceleration level see, (6, bodies + 1, *batch); None for none
    """

    dt: Array
    control: Control = Control()
    force_time: Array | None = None
    twist: Array | None = None
    engagement: Array | None = None
    free: Array | None = None
    bent: Array | None = None


@dataclass(frozen=True)
class GroupRows:
    """The rows of a group of n joints, transmissions or contacts, before a target aims them.

    layout: places of the rows
    H: wrenches of unit impulses on the bodies of each side, (6, rows, n, *batch); bodies: of each
        side, (n,)
    hard: the hard rows, arrays (hard rows, n, *batch)
    q: coordinates, values of transmissions, or gaps of contacts and 0 along their other directions,
        (k, n, *batch)
    laws: pairs of a law and its row law, arrays (n, *batch); a law with several row laws has
        several pairs
    structural: True for hard rows that hold without a law, (hard rows,)
    rigid: whether position projection removes the errors of the structural rows
    soft: whether springs stand in place of the structural rows
    on: 1 for a row that is on, 0 for a row that is switched off, whose H is zero; broadcasts to
        (rows, n, *batch); None where all rows are on
    """

    layout: GroupLayout
    H: tuple[Array, ...]
    bodies: tuple[np.ndarray, ...]
    hard: Hard
    q: Array
    laws: tuple[tuple[Law, RowLaw], ...]
    structural: np.ndarray
    rigid: bool
    soft: bool
    on: Array | None


def group_rows(
    mechanism: Mechanism, plan: Layout, kinematics: Kinematics, interval: Interval
) -> list[GroupRows | None]:
    """The rows of all parts of groups, in the order of `System.all_groups`; None for a part without
    rows.
    """
    system = mechanism.system
    known = (*kinematics.joints, *system.transmissions, *kinematics.constraints)
    known += kinematics.contacts

    def of_part(part, rows):
        group, at = system.all_groups[part.group], known[part.group]
        if not rows.wrenches:
            return None
        if isinstance(group, JointGroup):
            return _joint_rows(*of_members(mechanism, part, kinematics), rows, interval)
        if isinstance(group, TransmissionGroup):
            return _transmission_rows(mechanism, group, rows, kinematics, interval)
        if isinstance(group, ConstraintGroup):
            return _constraint_rows(group, rows, at, interval)
        return _contact_rows(mechanism, group, rows, at, interval)

    return [of_part(*each) for each in zip(plan.parts, plan.groups, strict=True)]


def of_members(
    mechanism: Mechanism, part: Part, kinematics: Kinematics
) -> tuple[JointGroup, JointKinematics]:
    """The joints of a part, and their kinematics."""
    group, joint = mechanism.system.groups[part.group], kinematics.joints[part.group]
    if len(part.members) == len(group.joints):
        return group, joint
    members, batch = np.array(part.members), mechanism.inverse_mass.ndim - 1
    group, joint = jax.tree.map(lambda x: take(x, members, x.ndim - 1 - batch), (group, joint))
    fixed = {f: tuple(getattr(group, f)[i] for i in members) for f in JointGroup.per_member}
    return replace(group, **fixed), joint


def joint_laws(
    group: JointGroup, joint: JointKinematics, interval: Interval
) -> tuple[tuple[Law, RowLaw], ...]:
    """Pairs of a law and its row law for a group of joints, arrays (n, *batch)."""
    speeds = _speeds(group, interval, partial(coordinate_speeds, group, joint))
    places, control = coordinate_indices(group), interval.control
    aims = _at(places, (control.target, control.target_speed))
    return _laws(group, places, joint.rows.q, speeds, interval, aims)


def closing_bias(group: JointGroup, joint: JointKinematics, interval: Interval) -> Array:
    """Speeds at which ERP closes the errors of a group's joints, with the sign of the errors,
    (6 - k, n, *batch).
    """
    soft = _softness(group, interval.dt)
    return soft.erp[: 6 - group.coupling.dof] * joint.rows.error / interval.dt


def without(group: GroupRows, off: Array | np.ndarray | None) -> GroupRows:
    """The rows of a group with some hard rows switched off.

    off: True for hard rows to switch off, broadcasts to (hard rows, n, *batch); None for none
    """
    if off is None:
        return group
    hard = 1 - jnp.asarray(off, group.q.dtype)
    on = jnp.concatenate(
        [hard, jnp.ones((len(group.layout.coordinates), *hard.shape[1:]), hard.dtype)]
    )
    H = _switched(group.H, on)
    return replace(group, H=H, on=on if group.on is None else on * group.on)


def _joint_rows(
    group: JointGroup, joint: JointKinematics, rows: GroupLayout, interval: Interval
) -> GroupRows:
    soft, enabled = _softness(group, interval.dt), _enabled(group)
    laws = joint_laws(group, joint, interval)
    H = materialize(_switched(wrenches_on_bodies(group, joint, rows.wrenches), enabled))
    bodies = np.array(group.child), np.array(group.parent)
    drift = _drift(joint, _force_time(interval))
    bilateral = Hard(
        bias=soft.erp * joint.rows.error / interval.dt,
        compliance=soft.cfm / interval.dt,
        error=joint.rows.error,
        drift=_with_bent(drift, group.coupling.acceleration_rows, H, bodies, interval),
    )
    return GroupRows(
        layout=rows,
        H=H,
        bodies=bodies,
        hard=_stacked(
            [*([] if rows.of_tree else [bilateral]), *map(_held(laws).get, rows.held)],
            like=joint.rows.q,
        ),
        q=joint.rows.q,
        laws=laws,
        structural=np.arange(rows.hard) < rows.bilateral,
        rigid=group.rigid,
        soft=_softens(group),
        on=enabled,
    )


def _transmission_rows(
    mechanism: Mechanism,
    group: TransmissionGroup,
    rows: GroupLayout,
    kinematics: Kinematics,
    interval: Interval,
) -> GroupRows:
    value, H = transmission_rows(mechanism, group, kinematics)
    bodies = tuple(np.array(side) for side in zip(*group.bodies, strict=True))
    soft, enabled = _softness(group, interval.dt), _enabled(group)

    def along(twist):
        sides = zip(H, bodies, strict=True)
        return sum(multiply_transposed(side, twist[:, at]) for side, at in sides)

    places, control = value_indices(mechanism.system, group), interval.control
    aims = control.transmission_target, control.transmission_target_speed
    aims = _at(places - mechanism.system.coordinates, aims)
    laws = _laws(group, places, value, _speeds(group, interval, along), interval, aims)
    held = {
        c: Hard(
            bias=(soft.erp[c] * value[c] / interval.dt)[None],
            compliance=(soft.cfm[c] / interval.dt)[None],
            error=value[c][None],
        )
        for c in group.held
    }
    held |= _held(laws)
    order = np.array(rows.wrenches)
    return GroupRows(
        layout=rows,
        H=_switched([side[:, order] for side in H], enabled),
        bodies=bodies,
        hard=_stacked([held[c] for c in rows.held], like=value),
        q=value,
        laws=laws,
        structural=np.isin(rows.held, group.held),
        rigid=group.rigid,
        soft=_softens(group),
        on=enabled,
    )


def _constraint_rows(
    group: ConstraintGroup, rows: GroupLayout, at: ConstraintKinematics, interval: Interval
) -> GroupRows:
    soft, enabled = _softness(group, interval.dt), _enabled(group)
    drift = at.drift
    bodies = tuple(np.array(side) for side in zip(*group.bodies, strict=True))
    if at.acceleration is not None:
        drift = drift + _force_time(interval) * at.acceleration
    drift = _with_bent(drift, group.constraint.acceleration_rows, at.H, bodies, interval)
    hard = Hard(
        bias=soft.erp * at.error / interval.dt,
        compliance=soft.cfm / interval.dt,
        error=at.error,
        drift=drift,
    )
    return GroupRows(
        layout=rows,
        H=_switched(at.H, enabled),
        bodies=bodies,
        hard=_stacked([hard]),
        q=jnp.zeros_like(at.error[:1]),
        laws=(),
        structural=np.ones(rows.hard, bool),
        rigid=group.rigid,
        soft=_softens(group),
        on=enabled,
    )


def _contact_rows(
    mechanism: Mechanism,
    group: ContactGroup,
    rows: GroupLayout,
    contact: ContactKinematics,
    interval: Interval,
) -> GroupRows:
    enabled, gap = _enabled(group), contact.frame.gap[None]
    q = jnp.concatenate([gap, jnp.zeros((DIRECTIONS - 1, *gap.shape[1:]), gap.dtype)])
    speeds = _speeds(group, interval, partial(direction_speeds, group, contact))
    if group.edge_friction is not None:
        speeds = tuple(None if x is None else _with_edges(group, x) for x in speeds)
    # A control has no targets for contacts.
    places = contact_indices(mechanism.system, group)
    laws = _laws(group, places, q, speeds, interval, (None, None))
    return GroupRows(
        layout=rows,
        H=_switched(direction_wrenches(group, contact, rows.wrenches), enabled),
        bodies=(np.array(group.child), np.array(group.parent)),
        hard=_stacked([_held(laws)[c] for c in rows.held], like=q),
        q=q,
        laws=laws,
        structural=np.zeros(rows.hard, bool),
        rigid=group.rigid,
        soft=False,
        on=enabled,
    )


def _with_edges(group: ContactGroup, speeds: Array) -> Array:
    """Speeds along all directions, and then along the `EDGES`, (10, contacts, *batch)."""
    μ = group.edge_friction
    edges = [speeds[NORMAL] + sign * μ * speeds[tangent] for tangent, sign in EDGES.values()]
    return jnp.concatenate([speeds, jnp.stack(edges)])


def _held(laws: tuple[tuple[Law, RowLaw], ...]) -> dict[int, Hard]:
    """The hard row of each coordinate with a `Hard` law, arrays (1, n, *batch)."""
    return {
        law.coordinate: Hard(*(None if x is None else x[None] for x in vars(force).values()))
        for law, force in laws
        if isinstance(force, Hard)
    }


def _stacked(parts: Sequence[Hard], like: Array | None = None) -> Hard:
    """Hard rows one after another; like: gives the shape where there are no rows."""
    if not parts:
        return Hard(*[like[:0]] * 4)

    def stacked(field):
        rows = [
            jnp.zeros_like(part.error) if (x := vars(part)[field]) is None else x for part in parts
        ]
        tail = jnp.broadcast_shapes(*(x.shape[1:] for x in rows))
        rows = [jnp.broadcast_to(x, x.shape[:1] + tail) for x in rows]
        return jnp.concatenate(rows) if len(rows) > 1 else rows[0]

    return Hard(stacked("bias"), stacked("compliance"), stacked("error"), stacked("drift"))


def _laws(
    group: JointGroup | TransmissionGroup | ContactGroup,
    places: np.ndarray,
    q: Array,
    speeds: tuple[Array | None, Array | None],
    interval: Interval,
    aims: tuple[Array | None, Array | None],
) -> tuple[tuple[Law, RowLaw], ...]:
    """Pairs of a law and its row law for a group, arrays (n, *batch).

    places: of the coordinates, values or directions in `State.engagement`, (k, n)
    q: coordinates; speeds: at the start of the step, and at its end without rows; (k, n, *batch)
    aims: target and target speed, (k, n, *batch), None where the control has none
    """
    target, speed = aims
    side = engaged_sides(group, places, interval.engagement, q)
    qd, free = speeds
    qd = jnp.zeros_like(q) if qd is None else qd

    def speed_of(law):
        one = set(law.along) == {law.coordinate}
        return law.coordinate if one else np.array(law.along)

    def force(law):
        coordinate = CoordinateState(
            q=q[law.coordinate],
            dt=interval.dt if law.holds else _force_time(interval),
            qd=qd[speed_of(law)] if law.needs_speed else None,
            free_speed=free[speed_of(law)] if law.needs_speed and free is not None else None,
            target=None if target is None else target[law.coordinate],
            target_speed=None if speed is None else speed[law.coordinate],
            gap=None if law.normal is None else q[law.normal],
            engaged=None if law.engagement is None else side[law.coordinate],
        )
        return law.force(coordinate) if law.batched else _mapped(law, coordinate)

    each = [force(law) for law in group.laws]
    row_laws = chain.from_iterable(x if isinstance(x, tuple) else (x,) for x in each)
    return tuple(zip(by_row_law(group.laws), row_laws, strict=True))


def _at(
    places: np.ndarray, aims: tuple[Array | None, Array | None]
) -> tuple[Array | None, Array | None]:
    """Target and target speed at places of their flat vectors, (k, n, *batch) each."""
    target, speed = (None if x is None else x[places] for x in aims)
    return target, speed


def _mapped(law: Law, coordinate: CoordinateState) -> RowLaw | tuple[RowLaw, ...]:
    """`Law.force` of one coordinate, mapped over joints and environments."""
    dt = coordinate.dt
    one = lambda law, at: law.force(replace(at, dt=dt))  # noqa: E731
    return map_trailing(one, coordinate.q.ndim, law, replace(coordinate, dt=None))


def _force_time(interval: Interval) -> Array:
    return interval.dt if interval.force_time is None else interval.force_time


def _speeds(
    group: JointGroup | TransmissionGroup | ContactGroup,
    interval: Interval,
    along: Callable[[Array], Array],
) -> tuple[Array | None, Array | None]:
    """Speeds at the start of the step, and without rows at its end, (k, n, *batch); None where no
    law reads them; along: speeds of the coordinates while bodies move at twists.
    """
    if not any(law.needs_speed for law in group.laws):
        return None, None
    start, free = (None if x is None else along(x) for x in (interval.twist, interval.free))
    return start, free


def _softness(group: JointGroup | TransmissionGroup | ConstraintGroup, dt: Array) -> Softness:
    """ERP and CFM of a group's bilateral rows over a step."""
    declared = Softness(group.erp, group.cfm)
    return declared if group.softness is None else group.softness.over(dt, declared)


def _softens(group: JointGroup | TransmissionGroup | ConstraintGroup) -> bool:
    """Whether springs stand in place of a group's bilateral rows."""
    return group.softness is not None and group.softness.softens


def _enabled(
    group: JointGroup | TransmissionGroup | ConstraintGroup | ContactGroup,
) -> Array | None:
    """1 for enabled members of a group, else 0, (1, n, *batch); None where none can be switched."""
    if group.enabled is None:
        return None
    return (group.enabled > 0).astype(group.enabled.dtype)[None]


def _switched(H: Sequence[Array], on: Array | None) -> tuple[Array, ...]:
    return tuple(H) if on is None else tuple(side * on[None] for side in H)


def _with_bent(
    drift: Array, count: int, H: Sequence[Array], bodies: Sequence[np.ndarray], interval: Interval
) -> Array:
    """Drifts (rows, n, *batch) of bilateral rows, with `Interval.bent` added to the last `count`
    rows, which are at acceleration level.
    """
    if interval.bent is None or not count:
        return drift
    last = slice(len(drift) - count, len(drift))
    sides = zip(H, bodies, strict=True)
    added = sum(multiply_transposed(x[:, last], interval.bent[:, at]) for x, at in sides)
    tail = jnp.broadcast_shapes(drift.shape[1:], added.shape[1:])
    return jnp.broadcast_to(drift, (len(drift), *tail)).at[last].add(added)


def _drift(joint: JointKinematics, time: Array) -> Array:
    """Drift of the bilateral rows of a group's joints, with accelerations over `time` [s]."""
    rows = joint.rows
    return rows.drift if rows.acceleration is None else rows.drift + time * rows.acceleration
