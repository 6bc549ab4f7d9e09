"""`State.engagement`: the bound at which each limit with an `Engagement` is engaged."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient

from ..algebra.dense import multiply_transposed
from ..couplings.contact import DIRECTIONS
from ..model.groups import ContactGroup, JointGroup, TransmissionGroup
from ..model.kinematics import (
    Mechanism,
    body_twists,
    coordinate_indices,
    coordinate_speeds,
    direction_speeds,
    system_kinematics,
    transmission_rows,
    with_world,
)
from ..model.state import State
from ..model.system import System
from .layout import layout

Group = JointGroup | TransmissionGroup | ContactGroup


def engaged_sides(group: Group, places: np.ndarray, engagement: Array | None, q: Array):
    """E of a group's coordinates: 1 engaged at the lower bound, -1 at the upper bound, 0 at none;
    None where no law has an engagement.

    places: of the coordinates in `State.engagement`, (k, n); q: coordinates, (k, n, *batch)
    """
    if not _engages(group):
        return None
    return jnp.zeros_like(q) if engagement is None else jnp.sign(stop_gradient(engagement[places]))


def next_engagement(mechanism: Mechanism, state: State) -> Array:
    """`State.engagement` at the end of a step.

    state: at the end of the step, with the engagement of its start
    """
    before = after = state.engagement
    if layout(mechanism.system).engages:
        for group, places, q, qd in _motions(mechanism, state):
            after = engaged_after(group, places, q, qd, before, after)
    return stop_gradient(after)


def engaged_after(
    group: Group, places: np.ndarray, q: Array, qd: Array, before: Array, after: Array
) -> Array:
    """`after` with the new numbers of one group's laws.

    places: of its coordinates in `State.engagement`; q, qd: coordinates and speeds, (k, n, *batch)
    """
    for law in group.laws:
        if law.engagement is not None:
            c = law.coordinate
            there = before[places[c]]
            number = law.engagement.after(there, q[c], qd[c], law.lower, law.upper)
            after = after.at[places[c]].set(jnp.broadcast_to(number, there.shape))
    return after


def value_indices(system: System, group: TransmissionGroup) -> np.ndarray:
    """Place of each value of a group in `State.engagement`, shape (rows, transmissions)."""
    rows = np.arange(group.transmission.rows)[:, None]
    return system.coordinates + np.array(group.start)[None] + rows


def contact_indices(system: System, group: ContactGroup) -> np.ndarray:
    """Place of each contact of a group in `State.engagement`, repeated for each of its directions,
    shape (6, contacts). The number belongs to the normal.
    """
    first = system.coordinates + system.values
    return np.tile(first + np.array(group.members), (DIRECTIONS, 1))


def _motions(
    mechanism: Mechanism, state: State
) -> Iterator[tuple[Group, np.ndarray, Array, Array]]:
    """Each group with an engagement, the places of its coordinates, their values and speeds."""
    system, kinematics = mechanism.system, system_kinematics(mechanism, state)
    twist = with_world(body_twists(state))
    for group, joint in zip(system.groups, kinematics.joints, strict=True):
        if _engages(group):
            qd = coordinate_speeds(group, joint, twist)
            yield group, coordinate_indices(group), joint.rows.q, qd
    for group in system.transmissions:
        if _engages(group):
            value, H = transmission_rows(mechanism, group, kinematics)
            bodies = [np.array(side) for side in zip(*group.bodies, strict=True)]
            sides = zip(H, bodies, strict=True)
            qd = sum(multiply_transposed(side, twist[:, body]) for side, body in sides)
            yield group, value_indices(system, group), value, qd
    for group, contact in zip(system.contacts, kinematics.contacts, strict=True):
        if _engages(group):
            qd, gap = direction_speeds(group, contact, twist), contact.frame.gap[None]
            yield group, contact_indices(system, group), gap, qd


def _engages(group: Group) -> bool:
    return any(law.engagement is not None for law in group.laws)
