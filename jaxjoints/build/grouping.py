"""From declared joints, transmissions and fields to groups of like ones, stacked."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.spatial import Pose
from ..couplings.coupling import Coupling
from ..laws.fields import Field
from ..laws.law import Law
from ..laws.softness import Bushing, Compliance
from ..laws.transmissions import Transmission
from ..model.groups import FieldGroup, JointGroup, TransmissionGroup
from .start import WORLD_INDEX
from .validation import precision


@dataclass(frozen=True)
class GivenBody:
    """A body as it was declared, its numbers checked; pose: None where joints place it."""

    mass: float
    inertia: np.ndarray
    com: np.ndarray
    pose: Pose | None
    velocity: Array | None
    moving: bool

    def __str__(self) -> str:
        return f"mass {self.mass:g}, com {self.com.tolist()}"


@dataclass(frozen=True)
class GivenJoint:
    """A joint as it was declared, its records checked."""

    coupling: Coupling
    child: str
    parent: str
    frames: tuple[Pose, Pose]
    laws: tuple[Law, ...]
    softness: tuple[np.ndarray, np.ndarray]
    springs: Compliance | Bushing | None
    attachment: tuple[float, float]
    enabled: np.ndarray | None
    max_effort: np.ndarray | None
    q: Array | None
    qd: Array | None

    def __str__(self) -> str:
        return f"{type(self.coupling).__name__} of {self.child!r} on {self.parent!r}"

    @property
    def rigid(self) -> bool:
        """Whether position projection moves it back."""
        return _rigid(self.softness, self.springs)

    @property
    def leaves(self) -> dict[str, Any]:
        """Fields of a `JointGroup` that are stacked."""
        return {
            "coupling": self.coupling,
            "frame_C": self.frames[0],
            "frame_D": self.frames[1],
            "laws": self.laws,
            "erp": self.softness[0],
            "cfm": self.softness[1],
            "springs": self.springs,
            "enabled": self.enabled,
            "max_effort": self.max_effort,
        }

    @property
    def kind(self) -> Hashable:
        """Joints of equal kind make one group."""
        leaves, structure = jax.tree.flatten(self.leaves)
        return structure, tuple(x.shape for x in leaves), self.attachment, self.rigid


@dataclass(frozen=True)
class GivenTransmission:
    """A transmission as it was declared, its records checked."""

    transmission: Transmission
    joints: tuple[str, ...]
    laws: tuple[Law, ...]
    softness: tuple[np.ndarray, np.ndarray]
    springs: Compliance | Bushing | None
    enabled: np.ndarray | None

    def __str__(self) -> str:
        return f"{type(self.transmission).__name__} of {', '.join(map(repr, self.joints))}"

    @property
    def rigid(self) -> bool:
        """Whether position projection moves it back."""
        return _rigid(self.softness, self.springs)

    @property
    def leaves(self) -> dict[str, Any]:
        """Fields of a `TransmissionGroup` that are stacked."""
        names = ("transmission", "laws", "erp", "cfm", "springs", "enabled")
        values = (self.transmission, self.laws, *self.softness, self.springs, self.enabled)
        return dict(zip(names, values, strict=True))


@dataclass(frozen=True)
class GivenField:
    """A field as it was declared, its record checked; bodies: None for all that move."""

    field: Field
    bodies: tuple[str, ...] | None

    def __str__(self) -> str:
        on = "all bodies" if self.bodies is None else ", ".join(map(repr, self.bodies))
        return f"{type(self.field).__name__} on {on}"


def joint_groups(
    joints: Mapping[str, GivenJoint], index: Mapping[str, int]
) -> tuple[JointGroup, ...]:
    """Joints of equal kind, stacked.

    index: of the bodies, by name
    """
    dofs = [joint.coupling.dof for joint in joints.values()]
    starts = [sum(dofs[:i]) for i in range(len(dofs))]
    kinds: dict[Hashable, list[int]] = {}
    for i, joint in enumerate(joints.values()):
        kinds.setdefault(joint.kind, []).append(i)
    everything = list(joints.values())
    groups = []
    for members in kinds.values():
        same = [everything[i] for i in members]
        stacked = jax.tree.map(_stacked, *(joint.leaves for joint in same))
        groups.append(
            JointGroup(
                **stacked,
                joints=tuple(members),
                child=tuple(index[joint.child] for joint in same),
                parent=tuple(index[joint.parent] for joint in same),
                start=tuple(starts[i] for i in members),
                attachment=same[0].attachment,
                rigid=same[0].rigid,
            )
        )
    return tuple(groups)


def transmission_groups(
    transmissions: Mapping[str, GivenTransmission],
    names: list[str],
    groups: tuple[JointGroup, ...],
) -> tuple[TransmissionGroup, ...]:
    """Transmissions of equal kind between joints of the same groups, stacked.

    names: of the joints; groups: of the joints
    """
    where = {j: (g, i) for g, x in enumerate(groups) for i, j in enumerate(x.joints)}
    rows = [x.transmission.rows for x in transmissions.values()]
    kinds: dict[Hashable, list] = {}
    for member, own in enumerate(transmissions.values()):
        joints = tuple(names.index(joint) for joint in own.joints)
        slots = [where[joint] for joint in joints]
        ends = [(groups[g].child[i], groups[g].parent[i]) for g, i in slots]
        bodies = list(dict.fromkeys(b for pair in ends for b in pair if b >= 0))
        # Two sides at least: the world fills the second.
        bodies += [WORLD_INDEX] * (len(bodies) < 2)
        sides = tuple(tuple(bodies.index(b) if b >= 0 else -1 for b in pair) for pair in ends)
        leaves, structure = jax.tree.flatten(own.leaves)
        shapes = tuple(x.shape for x in leaves)
        kind = structure, shapes, own.rigid, tuple(g for g, _ in slots), sides
        kinds.setdefault(kind, []).append((own, member, joints, tuple(bodies)))
    made = []
    for (*_, rigid, of, ends), found in kinds.items():
        records, members, joints, bodies = zip(*found, strict=True)
        stacked = jax.tree.map(_stacked, *(record.leaves for record in records))
        made.append(
            TransmissionGroup(
                **stacked,
                members=members,
                joints=joints,
                groups=of,
                bodies=bodies,
                ends=ends,
                start=tuple(sum(rows[:member]) for member in members),
                rigid=rigid,
            )
        )
    return tuple(made)


def _rigid(softness: tuple[np.ndarray, np.ndarray], springs: Compliance | Bushing | None) -> bool:
    """Whether no row gives way."""
    if isinstance(springs, Compliance):
        return not springs.compliance.any()
    return springs is None and not softness[1].any()


def field_groups(
    fields: Mapping[str, GivenField], index: Mapping[str, int], moving: tuple[bool, ...]
) -> tuple[FieldGroup, ...]:
    """Fields of equal type, stacked.

    index: of the bodies, by name; moving: which of them do
    """
    everyone = tuple(i for i, moves in enumerate(moving) if moves)
    kinds: dict[Hashable, list] = {}
    for member, own in enumerate(fields.values()):
        leaves, structure = jax.tree.flatten(own.field)
        bodies = everyone if own.bodies is None else tuple(index[name] for name in own.bodies)
        kind = structure, tuple(x.shape for x in leaves)
        kinds.setdefault(kind, []).append((own.field, member, bodies))
    made = []
    for found in kinds.values():
        records, members, bodies = zip(*found, strict=True)
        made.append(FieldGroup(jax.tree.map(_stacked, *records), members, bodies))
    return tuple(made)


def _stacked(*leaves: Array) -> Array:
    return jnp.array(np.stack(leaves, axis=-1), precision())
