"""What files of earlier formats hold, as the records of today.

Format 1: a state had impulses of its last step, and did not say how long that was.
Format 2: contacts were joints, with six coordinates each of which only the gap had a value.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..algebra.pytree import replace
from ..assembly.impulses import no_forces
from ..assembly.layout import engagement_size
from ..build.changes import is_shape
from ..couplings.contact import DIRECTIONS, ContactGeometry
from ..model.groups import ContactGroup
from ..model.state import RowForces, State
from ..model.system import System


def without_impulses(value: Any, arrays: list[np.ndarray]) -> bool:
    """Put forces of 0 in the place of the impulses that states of format 1 have; whether any state
    had one.

    value: of the description, as JSON; arrays: of the file
    """
    if isinstance(value, list):
        return any([without_impulses(x, arrays) for x in value])
    if not isinstance(value, dict):
        return False
    found = any([without_impulses(x, arrays) for x in value.values()])
    if value.get("record") != f"{State.__module__}:{State.__qualname__}":
        return found
    forces = value["fields"]["row_forces"] = value["fields"].pop("warm_start")
    forces["record"] = f"{RowForces.__module__}:{RowForces.__qualname__}"
    for x in forces["fields"].values():
        found |= bool(np.any(arrays[x["array"]]))
        arrays[x["array"]] = np.zeros_like(arrays[x["array"]])
    return found


def with_contacts(records: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Records in which contacts are no joints, and whether forces of a last step were lost.

    A state loses the coordinates of the contacts of the first system among the records that has as
    many coordinates. What no system fits is left as it is.
    """
    systems: list[tuple[System, System]] = []

    def replaced(value: Any, kind: type, each: Callable[[Any], Any]) -> Any:
        return jax.tree.map(
            lambda x: each(x) if isinstance(x, kind) else x,
            value,
            is_leaf=lambda x: isinstance(x, kind),
        )

    def of_system(old: System) -> System:
        if not any(_is_contact(group) for group in old.groups):
            return old
        new = _without_contact_joints(old)
        systems.append((old, new))
        return new

    lost = False

    def of_state(state: State) -> State:
        nonlocal lost
        fitting = [pair for pair in systems if _coordinates(pair[0]) == state.q.shape[0]]
        if not fitting:
            return state
        lost |= any(np.any(x) for x in jax.tree.leaves(state.row_forces))
        return _without_contact_coordinates(state, *fitting[0])

    records = replaced(records, System, of_system)
    return replaced(records, State, of_state), lost


def _is_contact(group: Any) -> bool:
    return isinstance(group.coupling, ContactGeometry)


def _coordinates(old: System) -> int:
    """How many coordinates states of a system of format 2 have."""
    sizes = (DIRECTIONS if _is_contact(x) else x.coupling.dof for x in old.groups)
    return sum(size * len(group.joints) for size, group in zip(sizes, old.groups, strict=True))


def _without_contact_joints(old: System) -> System:
    """A system whose contacts are joints, with these as contacts."""
    shapes = jax.tree.unflatten(jax.tree.structure(old), old.topology.shapes)
    new = _divided(old)
    shapes = tuple(jax.tree.leaves(_divided(shapes), is_leaf=is_shape))
    return replace(new, topology=replace(new.topology, shapes=shapes))


def _divided(old: System) -> System:
    """Joints and contacts apart; leaves may be numbers or their shapes."""
    kept = [g for g, group in enumerate(old.groups) if not _is_contact(group)]
    dofs = {j: old.groups[g].coupling.dof for g in kept for j in old.groups[g].joints}
    joints = sorted(dofs)
    contacts = [j for j in range(len(old.topology.joints)) if j not in dofs]
    number = {j: i for i, j in enumerate(joints)}
    starts = dict(zip(joints, np.cumsum([0, *(dofs[j] for j in joints)]).tolist(), strict=False))
    groups = [
        replace(
            old.groups[g],
            joints=tuple(number[j] for j in old.groups[g].joints),
            start=tuple(starts[j] for j in old.groups[g].joints),
        )
        for g in kept
    ]
    transmissions = [
        replace(
            group,
            joints=tuple(tuple(number[j] for j in each) for each in group.joints),
            groups=tuple(kept.index(g) for g in group.groups),
        )
        for group in old.transmissions
    ]
    names = old.topology.joints
    return replace(
        old,
        groups=tuple(groups),
        transmissions=tuple(transmissions),
        contacts=tuple(
            ContactGroup(
                geometry=group.coupling,
                **{field: getattr(group, field) for field in ("frame_C", "frame_D", "laws")},
                members=tuple(contacts.index(j) for j in group.joints),
                child=group.child,
                parent=group.parent,
                enabled=group.enabled,
            )
            for group in old.groups
            if _is_contact(group)
        ),
        topology=replace(
            old.topology,
            joints=tuple(names[j] for j in joints),
            contacts=tuple(names[j] for j in contacts),
        ),
    )


def _without_contact_coordinates(state: State, old: System, new: System) -> State:
    """A state of the old system as one of the new, whose next step starts without forces."""
    first = {j: start for g in old.groups for j, start in zip(g.joints, g.start, strict=True)}
    names, batch = old.topology.joints, state.time.shape
    at = [np.arange(x.start, x.stop) + first[names.index(n)] - x.start for n, x in _places(new)]
    kept = np.concatenate([np.zeros(0, int), *at])
    engagement = jnp.zeros((engagement_size(new), *batch), state.q.dtype)
    if state.engagement.shape[0]:
        gaps = np.array([first[names.index(name)] for name in new.topology.contacts], int)
        values = _coordinates(old) + np.arange(old.values)
        engagement = state.engagement[np.concatenate([kept, values, gaps])]
    forces = no_forces(new, batch, state.q.dtype)
    return replace(state, q=state.q[kept], row_forces=forces, engagement=engagement)


def _places(system: System) -> list[tuple[str, slice]]:
    return [(name, system.coordinate(name)) for name in system.topology.joints]
