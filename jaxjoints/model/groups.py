"""What a System consists of: its static facts, and its joints, transmissions, fields in groups."""

import dataclasses
from functools import cached_property

from jax import Array

from ..algebra.pytree import static, struct
from ..algebra.spatial import Pose
from ..couplings.coupling import Coupling
from ..laws.fields import Field
from ..laws.law import Law
from ..laws.softness import Bushing, Compliance
from ..laws.transmissions import Transmission


@dataclasses.dataclass(frozen=True)
class Topology:
    """The static facts of a system: names, who moves, and the declared rank of every leaf."""

    bodies: tuple[str, ...]
    joints: tuple[str, ...]
    moving: tuple[bool, ...]
    transmissions: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def _hash(self) -> int:
        names = self.bodies, self.joints, self.transmissions, self.fields
        return hash((*names, self.moving, self.ranks))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def body_index(self) -> dict[str, int]:
        """Index of each body by name."""
        return {name: i for i, name in enumerate(self.bodies)}

    @property
    def prescribed(self) -> tuple[int, ...]:
        """Bodies whose motion is prescribed."""
        return tuple(i for i, moves in enumerate(self.moving) if not moves)


@struct
class JointGroup:
    """All joints of one coupling type with the same laws, their parameters stacked.

    coupling: the coupling, every leaf with a joint axis after its own axes, (…, joints, *batch)
    frame_C: pose of C in the child's body frame; frame_D: pose of D in the parent's
    laws: one record per law, stacked likewise
    erp, cfm: softness of the bilateral rows and of those at velocity and acceleration level, whose
        erp has no effect, shape (6 - k + m, joints, *batch)
    springs: the same in physical units, in whose place ERP and CFM then come from it at each step;
        its leaves have that shape too. None where ERP and CFM are what was given
    enabled: 1, or 0 for a joint without any force, of rows, laws or `Control.effort`, that position
        projection leaves alone, shape (joints, *batch); transmissions of its coordinates stay. None
        where the joint cannot be switched
    max_effort: largest |`Control.effort`| that acts, shape (k, joints, *batch), None for any
    joints: index of each joint in the system; child, parent: body indices, -1 the world
    start: index of each joint's first coordinate in the flat vectors q, q̇ and effort
    attachment: points of the child and the parent at which a row's force acts, as shares of the
        way from C's origin to D's: (0, 0) both at C, which conserves angular momentum off the
        surface too; (0, 1) each at its own anchor, as ODE's ball, hinge and fixed; (½, ½) as
        ODE's slider
    rigid: the bilateral rows take part in position projection (all were rigid at build)
    """

    coupling: Coupling
    frame_C: Pose
    frame_D: Pose
    laws: tuple[Law, ...]
    erp: Array
    cfm: Array
    joints: tuple[int, ...] = static()
    child: tuple[int, ...] = static()
    parent: tuple[int, ...] = static()
    start: tuple[int, ...] = static()
    attachment: tuple[float, float] = static(default=(0.0, 0.0))
    rigid: bool = static(default=True)
    springs: Compliance | Bushing | None = None
    enabled: Array | None = None
    max_effort: Array | None = None

    @property
    def law_coordinates(self) -> tuple[int, ...]:
        """Coordinates of a joint that carry laws, ascending."""
        return tuple(sorted({law.coordinate for law in self.laws}))


@struct
class TransmissionGroup:
    """All transmissions of one type between like joints with the same laws, stacked.

    transmission: the record, every leaf with an axis of transmissions after its own axes
    laws: on its values, one record per law, stacked likewise
    erp, cfm, springs: softness of the values that no law acts on, shape (rows, transmissions,
        *batch), as of a `JointGroup`; enabled: as there, shape (transmissions, *batch)
    members: index of each transmission in the system
    joints: indices of the joints of each, one for each slot; groups: the joint group of each slot
    bodies: the bodies that each acts on, each once, two at least; -1 the world
    ends: for each slot, which of these are the child and the parent; -1 the world, if left out
    start: index of each one's first value in the flat vector of all values
    """

    transmission: Transmission
    laws: tuple[Law, ...]
    erp: Array
    cfm: Array
    members: tuple[int, ...] = static()
    joints: tuple[tuple[int, ...], ...] = static()
    groups: tuple[int, ...] = static()
    bodies: tuple[tuple[int, ...], ...] = static()
    ends: tuple[tuple[int, int], ...] = static()
    start: tuple[int, ...] = static()
    rigid: bool = static(default=True)
    springs: Compliance | Bushing | None = None
    enabled: Array | None = None

    @property
    def held(self) -> tuple[int, ...]:
        """Values that no law acts on."""
        loose = {law.coordinate for law in self.laws}
        return tuple(i for i in range(self.transmission.rows) if i not in loose)


@struct
class FieldGroup:
    """All fields of one type, stacked.

    field: the record, every leaf with an axis of fields after its own axes
    members: index of each field in the system; bodies: indices of those that each acts on
    """

    field: Field
    members: tuple[int, ...] = static()
    bodies: tuple[tuple[int, ...], ...] = static()
