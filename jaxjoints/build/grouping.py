"""Stacks joints, contacts, transmissions and fields of one type into the groups of a `System`."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import jax
from jax import Array

from ..model.groups import (
    ConstraintGroup,
    ContactGroup,
    FieldGroup,
    JointGroup,
    TransmissionGroup,
)
from ..model.system import WORLD_INDEX
from .checks.values import stacked
from .specs import (
    ConstraintSpec,
    ContactSpec,
    FieldSpec,
    JointSpec,
    TransmissionSpec,
    structure_and_shapes,
)


def joint_groups(
    joints: Mapping[str, JointSpec], body_index: Mapping[str, int]
) -> tuple[JointGroup, ...]:
    """Joints in groups, in each of which couplings and laws have the same types and shapes.

    body_index: index of each body by name, the world included
    """
    specs = list(joints.values())
    starts = _starts([spec.coupling.dof for spec in specs])
    by_key: dict[Hashable, list[int]] = {}
    for j, spec in enumerate(specs):
        by_key.setdefault(spec.group_key, []).append(j)
    groups = []
    for members in by_key.values():
        same = [specs[j] for j in members]
        groups.append(
            JointGroup(
                **_stacked([spec.stacked_fields for spec in same]),
                joints=tuple(members),
                child=tuple(body_index[spec.child] for spec in same),
                parent=tuple(body_index[spec.parent] for spec in same),
                start=tuple(starts[j] for j in members),
                attachment=same[0].attachment,
                rigid=same[0].softness.is_rigid,
                tree=same[0].tree,
            )
        )
    return tuple(groups)


def transmission_groups(
    transmissions: Mapping[str, TransmissionSpec],
    joint_names: list[str],
    groups: tuple[JointGroup, ...],
) -> tuple[TransmissionGroup, ...]:
    """Transmissions in groups, whose members are of one type and connect joints of the same groups.

    groups: of the joints
    """
    place_of_joint = {j: (g, i) for g, x in enumerate(groups) for i, j in enumerate(x.joints)}
    starts = _starts([spec.transmission.rows for spec in transmissions.values()])
    by_key: dict[Hashable, list] = {}
    for member, spec in enumerate(transmissions.values()):
        joints = tuple(joint_names.index(joint) for joint in spec.joints)
        places = [place_of_joint[j] for j in joints]
        pairs = [(groups[g].child[i], groups[g].parent[i]) for g, i in places]
        bodies = list(dict.fromkeys(body for pair in pairs for body in pair if body != WORLD_INDEX))
        # A node of the solver has two bodies at least: the world is the second.
        bodies += [WORLD_INDEX] * (len(bodies) < 2)
        # -1 for the world, also if it is one of the bodies.
        ends = tuple(
            tuple(-1 if body == WORLD_INDEX else bodies.index(body) for body in pair)
            for pair in pairs
        )
        joint_group_of_slot = tuple(g for g, _ in places)
        shapes = structure_and_shapes(spec.stacked_fields)
        key = shapes, spec.softness.is_rigid, joint_group_of_slot, ends
        by_key.setdefault(key, []).append((spec, member, joints, tuple(bodies)))
    result = []
    for (_, is_rigid, joint_group_of_slot, ends), elements in by_key.items():
        specs, members, joints, bodies = zip(*elements, strict=True)
        result.append(
            TransmissionGroup(
                **_stacked([spec.stacked_fields for spec in specs]),
                members=members,
                joints=joints,
                groups=joint_group_of_slot,
                bodies=bodies,
                ends=ends,
                start=tuple(starts[member] for member in members),
                rigid=is_rigid,
            )
        )
    return tuple(result)


def constraint_groups(
    constraints: Mapping[str, ConstraintSpec], body_index: Mapping[str, int]
) -> tuple[ConstraintGroup, ...]:
    """Constraints in groups, whose members are of one type and act on as many bodies.

    body_index: index of each body by name
    """
    starts = _starts([spec.constraint.rows for spec in constraints.values()])
    by_key: dict[Hashable, list] = {}
    for member, spec in enumerate(constraints.values()):
        seen = [body_index[name] for name in spec.bodies]
        bodies = [body for body in seen if body != WORLD_INDEX]
        arguments = tuple(-1 if body == WORLD_INDEX else bodies.index(body) for body in seen)
        # A node of the solver has two bodies at least: the world is the second.
        bodies += [WORLD_INDEX] * (len(bodies) < 2)
        shapes = structure_and_shapes(spec.stacked_fields)
        key = shapes, spec.softness.is_rigid, arguments
        by_key.setdefault(key, []).append((spec, member, tuple(bodies)))
    result = []
    for (_, is_rigid, arguments), elements in by_key.items():
        specs, members, bodies = zip(*elements, strict=True)
        result.append(
            ConstraintGroup(
                **_stacked([spec.stacked_fields for spec in specs]),
                members=members,
                bodies=bodies,
                start=tuple(starts[member] for member in members),
                rigid=is_rigid,
                arguments=arguments,
            )
        )
    return tuple(result)


def contact_groups(
    contacts: Mapping[str, ContactSpec], body_index: Mapping[str, int]
) -> tuple[ContactGroup, ...]:
    """Contacts in groups, in each of which geometries and laws have the same types and shapes.

    body_index: index of each body by name, the world included
    """
    by_key: dict[Hashable, list[tuple[int, ContactSpec]]] = {}
    for member, spec in enumerate(contacts.values()):
        by_key.setdefault(structure_and_shapes(spec.stacked_fields), []).append((member, spec))
    groups = []
    for elements in by_key.values():
        members, same = zip(*elements, strict=True)
        groups.append(
            ContactGroup(
                **_stacked([spec.stacked_fields for spec in same]),
                members=members,
                child=tuple(body_index[spec.child] for spec in same),
                parent=tuple(body_index[spec.parent] for spec in same),
            )
        )
    return tuple(groups)


def field_groups(
    fields: Mapping[str, FieldSpec], body_index: Mapping[str, int], moving: tuple[bool, ...]
) -> tuple[FieldGroup, ...]:
    """Fields in groups, in each of which they are of one type and their leaves of one shape.

    body_index: index of each body by name; moving: whether each body moves as forces say
    """
    all_moving = tuple(b for b, moves in enumerate(moving) if moves)
    by_key: dict[Hashable, list] = {}
    for member, spec in enumerate(fields.values()):
        bodies = all_moving
        if spec.bodies is not None:
            bodies = tuple(body_index[name] for name in spec.bodies)
        key = structure_and_shapes(spec.field)
        by_key.setdefault(key, []).append((spec.field, member, bodies))
    result = []
    for elements in by_key.values():
        records, members, bodies = zip(*elements, strict=True)
        result.append(FieldGroup(_stacked(records), members, bodies))
    return tuple(result)


def _starts(sizes: list[int]) -> list[int]:
    """Where each of several parts begins in the vector of all of them."""
    return [sum(sizes[:i]) for i in range(len(sizes))]


def _stacked(trees: Sequence[Any]) -> Any:
    """Several trees of one structure as one, with an axis of the trees after its other axes."""

    def stack(*leaves: Array) -> Array:
        return stacked(leaves)

    return jax.tree.map(stack, *trees)
