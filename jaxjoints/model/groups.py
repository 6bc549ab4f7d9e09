"""What a System consists of: static facts, and groups of joints, contacts and so on."""

import dataclasses
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import quickly
from ..algebra.pytree import replace, static, struct
from ..algebra.spatial import Pose
from ..couplings.contact import ContactGeometry
from ..couplings.coupling import Coupling
from ..laws.constraints import Constraint
from ..laws.contact import ContactPyramid
from ..laws.fields import Field
from ..laws.law import Law
from ..laws.softness import PhysicalSoftness
from ..laws.transmissions import Transmission


@dataclasses.dataclass(frozen=True)
class Topology:
    """The static facts of a system, which are part of its type for JAX.

    bodies, joints, transmissions, fields, constraints, contacts: their names, in the order in which
        they were added
    moving: for each body True, or False if its motion is prescribed
    shapes: of each leaf of the system as it was built, without batch axes
    notes: what the builder changed in the arguments of the user, a sentence each
    lenient: elements such as "joint 'knee'" that the builder was told to take although their laws
        feed energy in (`allow_active`), or no rigid body has their inertia (`allow_unphysical`)
    """

    bodies: tuple[str, ...]
    joints: tuple[str, ...]
    moving: tuple[bool, ...]
    transmissions: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    contacts: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    notes: tuple[str, ...] = ()
    lenient: tuple[str, ...] = ()

    @cached_property
    def _hash(self) -> int:
        names = self.bodies, self.joints, self.transmissions, self.fields, self.constraints
        return hash((*names, self.contacts, self.moving, self.shapes))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Of each leaf of the system, its number of axes without batch axes."""
        return tuple(map(len, self.shapes))

    @cached_property
    def body_index(self) -> dict[str, int]:
        """Index of each body by name."""
        return {name: i for i, name in enumerate(self.bodies)}

    @property
    def prescribed(self) -> tuple[int, ...]:
        """Indices of the bodies whose motion is prescribed."""
        return tuple(i for i, moves in enumerate(self.moving) if not moves)


class Group:
    """Base of the groups of a system: several elements of one type in one record.

    Every leaf has an axis of the elements after its other axes, before the batch axes.

    element: what the group consists of, for errors
    per_member: the static fields that have an entry for each element
    """

    element: ClassVar[str]
    per_member: ClassVar[tuple[str, ...]]
    # Index of each element among all elements of the system of this kind.
    members: tuple[int, ...]

    def member(self, i: int, ranks: Self) -> Self:
        """The group of element i alone, its leaves without the axis of elements.

        ranks: the declared rank of each leaf
        """

        def of_member(x, rank):
            return (np if isinstance(x, np.ndarray) else jnp).take(x, i, axis=rank - 1)

        one = jax.tree.map(of_member, self, ranks)
        return replace(one, **{field: (getattr(self, field)[i],) for field in self.per_member})

    def with_member(self, i: int, changes: dict[str, Any], ranks: Self) -> Self:
        """The group with some fields of element i replaced.

        changes: new values by field, trees like the old ones; their leaves are without the axis of
            elements and may carry batch axes at the end
        ranks: the declared rank of each leaf of the group
        """

        def put(stacked, value, rank):
            return with_entry(stacked, i, value, rank)

        updated = {
            field: jax.tree.map(put, getattr(self, field), value, getattr(ranks, field))
            for field, value in changes.items()
        }
        return replace(self, **updated)


def with_entry(stacked: Any, i: int, value: Any, rank: int) -> jax.Array:
    """A stacked leaf with the entry of element i replaced; either may carry batch axes at the end.

    rank: of the stacked leaf without batch axes; its last axis is that of elements
    """
    stacked = jnp.asarray(stacked)
    return _with_entry(stacked, i, jnp.asarray(value, stacked.dtype), rank=rank)


@partial(quickly, static_argnames="rank")
def _with_entry(stacked: jax.Array, i: Any, value: jax.Array, *, rank: int) -> jax.Array:
    """See `with_entry`; i may be traced, so that one program serves all elements."""
    extra = value.ndim - (rank - 1)
    if stacked.ndim == rank and extra:
        stacked = stacked.reshape(stacked.shape + (1,) * extra)
        stacked = jnp.broadcast_to(stacked, stacked.shape[:rank] + value.shape[rank - 1 :])
    elif extra < stacked.ndim - rank:
        value = value.reshape(value.shape + (1,) * (stacked.ndim - rank - extra))
    return stacked.at[(slice(None),) * (rank - 1) + (i,)].set(value)


@struct
class JointGroup(Group):
    """All joints of one coupling type with laws of the same types, their parameters stacked.

    coupling: the coupling, with leaves of shape (…, joints, *batch)
    frame_C: pose of C in the child's body frame; frame_D: pose of D in the parent's body frame
    laws: one record for each law, with leaves of shape (…, joints, *batch)
    erp, cfm: softness of the 6 - k bilateral rows and of the m rows at velocity and acceleration
        level, shape (6 - k + m, joints, *batch); the erp of the latter has no effect
    softness: of these rows in physical units, with leaves of that shape: each step takes ERP and
        CFM from it. None for joints whose softness is erp and cfm
    enabled: 1 for a joint that is on. 0 switches off its rows, its laws and `Control.effort`, and
        position projection leaves it alone; transmissions of its coordinates still act. Shape
        (joints, *batch); None for joints that cannot be switched
    max_effort: largest |`Control.effort`| that acts, shape (k, joints, *batch); None for any
    joints: index of each joint in the system
    child, parent: body index of each joint's child and parent, `WORLD_INDEX` for the world
    start: index of each joint's first coordinate in the flat vectors q, q̇ and effort
    attachment: the points where a row's force acts on child and parent, as shares of the way from
        C's origin to D's. With (0, 0) both forces act at C, so a joint conserves angular momentum
        even when C and D have drifted apart; (0, 1), each body at its frame, is the rule of ODE's
        ball, hinge and fixed joints, and (½, ½) that of its slider
    rigid: all bilateral rows were rigid when the system was built, so position projection corrects
        their errors
    tree: whether the coordinates of these joints may hold them, see `articulation`
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
    tree: bool = static(default=True)
    softness: PhysicalSoftness | None = None
    enabled: Array | None = None
    max_effort: Array | None = None
    element: ClassVar[str] = "joint"
    per_member: ClassVar[tuple[str, ...]] = ("joints", "child", "parent", "start")

    @property
    def members(self) -> tuple[int, ...]:
        """See `Group`: the joints."""
        return self.joints


@struct
class TransmissionGroup(Group):
    """All transmissions of one type that connect joints of the same groups, stacked.

    transmission: the record of the values f(q), with leaves of shape (…, transmissions, *batch)
    laws: forces along the values, one record for each law, stacked likewise
    erp, cfm, softness: of the values without laws, as in `JointGroup`, shape
        (values, transmissions, *batch)
    enabled: as in `JointGroup`, shape (transmissions, *batch)
    members: index of each transmission in the system
    joints: of each transmission, the indices of its joints; the n-th joint is in its n-th slot
    groups: of each slot, the index of the joint group that its joints belong to
    bodies: of each transmission, the indices of the bodies that it acts on, each once; it has two
        at least, of which `WORLD_INDEX` may be one
    ends: of each slot, the places in `bodies` of its joint's child and parent; -1 for the world
    start: of each transmission, the index of its first value in the flat vector of all values
    rigid: as in `JointGroup`
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
    softness: PhysicalSoftness | None = None
    enabled: Array | None = None
    element: ClassVar[str] = "transmission"
    per_member: ClassVar[tuple[str, ...]] = ("members", "joints", "bodies", "start")

    @property
    def held(self) -> tuple[int, ...]:
        """Values that no law acts on, which are kept at 0."""
        with_laws = {law.coordinate for law in self.laws}
        return tuple(i for i in range(self.transmission.rows) if i not in with_laws)


@struct
class ConstraintGroup(Group):
    """All constraints of one type on as many bodies, the world in the same place, stacked.

    constraint: the record, with leaves of shape (…, constraints, *batch)
    erp, cfm, softness, enabled, rigid: as in `JointGroup`, shape (rows, constraints, *batch)
    members: index of each constraint in the system
    bodies: of each constraint the indices of its bodies without the world, which fills up to two
    start: of each constraint, the index of its first row in the flat vector of all rows
    arguments: what the functions of the constraints see: places in `bodies`, `WORLD_INDEX` for the
        world; () for the bodies as they are
    """

    constraint: Constraint
    erp: Array
    cfm: Array
    members: tuple[int, ...] = static()
    bodies: tuple[tuple[int, ...], ...] = static()
    start: tuple[int, ...] = static()
    rigid: bool = static(default=True)
    arguments: tuple[int, ...] = static(default=())
    softness: PhysicalSoftness | None = None
    enabled: Array | None = None
    element: ClassVar[str] = "constraint"
    per_member: ClassVar[tuple[str, ...]] = ("members", "bodies", "start")
    # A constraint carries no laws.
    laws: ClassVar[tuple[Law, ...]] = ()


@struct
class ContactGroup(Group):
    """All contacts of one type of geometry with laws of the same types, stacked.

    geometry: the record, with leaves of shape (…, contacts, *batch)
    frame_C, frame_D, laws, child, parent: as in `JointGroup`; a law's `coordinate` is a direction
    enabled: as in `JointGroup`, shape (contacts, *batch)
    members: index of each contact in the system
    """

    geometry: ContactGeometry
    frame_C: Pose
    frame_D: Pose
    laws: tuple[Law, ...]
    members: tuple[int, ...] = static()
    child: tuple[int, ...] = static()
    parent: tuple[int, ...] = static()
    enabled: Array | None = None
    element: ClassVar[str] = "contact"
    per_member: ClassVar[tuple[str, ...]] = ("members", "child", "parent")
    # A contact has no bilateral rows.
    rigid: ClassVar[bool] = True

    @property
    def start(self) -> tuple[int, ...]:
        """Of each contact, the place of its gap among all."""
        return self.members

    @property
    def edge_friction(self) -> Array | None:
        """μ of the `EDGES` along which laws act, (contacts, *batch); None where none does."""
        return next((law.friction for law in self.laws if isinstance(law, ContactPyramid)), None)


@struct
class FieldGroup(Group):
    """All fields of one type, stacked.

    field: the record, with leaves of shape (…, fields, *batch)
    members: index of each field in the system
    bodies: of each field, the indices of the bodies that it acts on
    """

    field: Field
    members: tuple[int, ...] = static()
    bodies: tuple[tuple[int, ...], ...] = static()
    element: ClassVar[str] = "field"
    per_member: ClassVar[tuple[str, ...]] = ("members", "bodies")
