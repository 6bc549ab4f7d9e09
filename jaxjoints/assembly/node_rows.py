"""The rows of each group of joints or transmissions, and what the laws on them ask for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient

from ..algebra.compiler import materialize
from ..algebra.dense import multiply_transposed
from ..algebra.pytree import map_trailing, replace
from ..laws.law import CoordinateState, Law
from ..laws.softness import Softness
from ..model.groups import JointGroup, TransmissionGroup
from ..model.kinematics import (
    JointPlaces,
    Mechanism,
    coordinate_indices,
    speeds_along,
    transmission_rows,
    wrenches_on_bodies,
)
from ..model.state import Control
from ..model.system import System
from ..solve.forces import Hard
from .layout import GroupRows, layout


@dataclass(frozen=True)
class NodeRows:
    """The rows of a group's nodes, n of them, before any step.

    H: wrenches on each of their bodies, (6, rows, n, *batch); bodies: which these are
    erp, cfm: of the bilateral rows, and of the coordinates that are held without a law
    error, drift: of the bilateral rows; q: coordinates, or values of transmissions
    forces: what each law asks for
    on: 1 where the joint or transmission is enabled, 0 where not, H being zero there, (n, *batch);
        None where none can be switched
    """

    rows: GroupRows
    H: tuple[Array, ...]
    bodies: tuple[np.ndarray, ...]
    erp: Array
    cfm: Array
    error: Array
    drift: Array
    q: Array
    forces: list[tuple[Law, Any]]
    rigid: bool
    on: Array | None


def all_rows(
    mechanism: Mechanism,
    places: tuple[JointPlaces, ...],
    dt: Array,
    control: Control,
    before: Array | None = None,
    force_time: Array | None = None,
    engagement: Array | None = None,
) -> Iterator[NodeRows]:
    """The rows of all groups, in the order of the layout.

    before: twists at the start of the step, None where nothing moves
    force_time: how long laws that hold no position act [s], dt by default
    engagement: of `State`; laws with an `Engagement` do not act without it
    """
    force_time = dt if force_time is None else force_time
    system = mechanism.system
    plan = layout(system)
    count = len(system.groups)
    for group, rows, place in zip(system.groups, plan.groups[:count], places, strict=True):
        if not rows.rows:
            continue
        soft, on = _softness(group, dt), _on(group)
        yield NodeRows(
            rows=rows,
            H=materialize(_switched(wrenches_on_bodies(group, place, rows.rows), on)),
            bodies=(np.array(group.child), np.array(group.parent)),
            erp=soft.erp,
            cfm=soft.cfm,
            error=place.rows.error,
            drift=_drift(place, force_time),
            q=place.rows.q,
            forces=_forces(
                group.laws, _states(group, place, dt, control, before, engagement), force_time
            ),
            rigid=group.rigid,
            on=on,
        )
    for group, rows in zip(system.transmissions, plan.groups[count:], strict=True):
        value, H = transmission_rows(mechanism, group, places)
        order = np.array(rows.rows)
        none = jnp.zeros((0, *value.shape[1:]), value.dtype)
        bodies = [np.array(side) for side in zip(*group.bodies, strict=True)]
        qd = jnp.zeros_like(value)
        if before is not None and any(law.needs_speed for law in group.laws):
            qd = sum(
                multiply_transposed(side, before[:, at]) for side, at in zip(H, bodies, strict=True)
            )
        E = _engaged(group, value_indices(mechanism.system, group), engagement, value)
        soft, on = _softness(group, dt), _on(group)
        yield NodeRows(
            rows=rows,
            H=_switched([side[:, order] for side in H], on),
            bodies=tuple(bodies),
            erp=soft.erp,
            cfm=soft.cfm,
            error=none,
            drift=none,
            q=value,
            forces=_forces(group.laws, CoordinateState(value, dt, qd, engaged=E), force_time),
            rigid=group.rigid,
            on=on,
        )


def engagements(
    mechanism: Mechanism, places: tuple[JointPlaces, ...], twist: Array, before: Array
) -> Array:
    """`State.engagement` at the end of a step from that at its start.

    places, twist: at the end of the step, twists (6, bodies + 1, *batch) in body axes
    """
    system = mechanism.system
    after = before
    for group, place in zip(system.groups, places, strict=True):
        if _engages(group):
            k = group.coupling.dof
            qd = speeds_along(group, *wrenches_on_bodies(group, place, range(6 - k, 6)), twist)
            after = engaged_after(group, coordinate_indices(group), place.rows.q, qd, before, after)
    for group in system.transmissions:
        if _engages(group):
            value, H = transmission_rows(mechanism, group, places)
            bodies = [np.array(side) for side in zip(*group.bodies, strict=True)]
            qd = sum(
                multiply_transposed(side, twist[:, at]) for side, at in zip(H, bodies, strict=True)
            )
            after = engaged_after(group, value_indices(system, group), value, qd, before, after)
    return stop_gradient(after)


def engaged_after(
    group: JointGroup | TransmissionGroup,
    at: np.ndarray,
    q: Array,
    qd: Array,
    before: Array,
    after: Array,
) -> Array:
    """`after` with the numbers of one group's laws, whose coordinates stand at `at`."""
    for law in group.laws:
        if law.engagement is not None:
            c = law.coordinate
            own = law.engagement.after(before[at[c]], q[c], qd[c], law.lower, law.upper)
            after = after.at[at[c]].set(jnp.broadcast_to(own, before[at[c]].shape))
    return after


def value_indices(system: System, group: TransmissionGroup) -> np.ndarray:
    """Place of each value of a group in `State.engagement`, shape (rows, transmissions)."""
    rows = np.arange(group.transmission.rows)[:, None]
    return system.coordinates + np.array(group.start)[None] + rows


def holding(own: NodeRows, coordinate: int) -> Hard | None:
    """The law that holds a coordinate, None for one that is held without."""
    laws = (f for law, f in own.forces if law.coordinate == coordinate and law.kind is Hard)
    return next(laws, None)


def _engages(group: JointGroup | TransmissionGroup) -> bool:
    return any(law.engagement is not None for law in group.laws)


def _engaged(
    group: JointGroup | TransmissionGroup, at: np.ndarray, engagement: Array | None, q: Array
) -> Array | None:
    """E of a group's coordinates, None where no law has an engagement."""
    if not _engages(group):
        return None
    return jnp.zeros_like(q) if engagement is None else jnp.sign(stop_gradient(engagement[at]))


def _softness(group: JointGroup | TransmissionGroup, dt: Array) -> Softness:
    """ERP and CFM of a group's bilateral rows over a step."""
    given = Softness(group.erp, group.cfm)
    return given if group.springs is None else group.springs.over(dt, given)


def _on(group: JointGroup | TransmissionGroup) -> Array | None:
    """1 where a joint or transmission is enabled, 0 where not; no number in between."""
    return None if group.enabled is None else (group.enabled > 0).astype(group.enabled.dtype)


def _switched(H: Sequence[Array], on: Array | None) -> tuple[Array, ...]:
    return tuple(H) if on is None else tuple(side * on[None, None] for side in H)


def _drift(place: JointPlaces, dt: Array) -> Array:
    """What the bilateral rows of a group's joints add to their speeds in a step."""
    found = place.rows
    return found.drift if found.acceleration is None else found.drift + dt * found.acceleration


def _states(
    group: JointGroup,
    place: JointPlaces,
    dt: Array,
    control: Control,
    before: Array | None,
    engagement: Array | None,
) -> CoordinateState:
    """What the laws of a group know of all coordinates, arrays (k, joints, *batch)."""
    q = place.rows.q
    qd = jnp.zeros_like(q)
    if before is not None and any(law.needs_speed for law in group.laws):
        k = group.coupling.dof
        qd = speeds_along(group, *wrenches_on_bodies(group, place, range(6 - k, 6)), before)
    at = coordinate_indices(group)
    target, speed = (None if x is None else x[at] for x in (control.target, control.target_speed))
    E = _engaged(group, at, engagement, q)
    return CoordinateState(q, dt, qd, target, speed, engaged=E)


def _forces(
    laws: tuple[Law, ...], states: CoordinateState, force_time: Array
) -> list[tuple[Law, Any]]:
    """What each law of a group asks for, arrays (joints, *batch)."""
    forces = []
    for law in laws:
        fields = states.q, states.qd, states.target, states.target_speed
        q, qd, target, speed = (None if x is None else x[law.coordinate] for x in fields)
        gap = None if law.normal is None else states.q[law.normal]
        dt = states.dt if law.holds else force_time
        E = None if law.engagement is None else states.engaged[law.coordinate]
        at = CoordinateState(q, dt, qd if law.needs_speed else None, target, speed, gap, E)
        if law.elementwise:
            forces.append((law, law.force(at)))
        else:
            one = lambda law, at, dt=dt: law.force(replace(at, dt=dt))  # noqa: E731
            forces.append((law, map_trailing(one, q.ndim, law, replace(at, dt=None))))
    return forces
