"""System: the bodies, joints, contacts and other elements of a mechanism, with all their numbers.

Arrays have their components first, then an axis of bodies or joints, then batch axes: positions
have shape (3, bodies, *batch), one number for each joint has shape (joints, *batch). Every leaf of
a System either carries the batch axes, or is shared by all environments; which of the two follows
from its number of axes.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import jax
from jax import Array

from ..algebra.pytree import static, struct
from ..laws.fields import Field
from .groups import (
    ConstraintGroup,
    ContactGroup,
    FieldGroup,
    Group,
    JointGroup,
    Topology,
    TransmissionGroup,
)
from .state import Control, State
from .table import described

WORLD = "world"
# Of a contact, to whom asks for its coordinates.
READ_CONTACTS = (
    "read `gaps(system, state)`, `contact_speeds(system, state)` or `Info.contact_force` at "
    "`system.contact_index(name)`, and its numbers with `system.contact(name)`"
)
# In place of a body index.
WORLD_INDEX = -1

T = TypeVar("T")


@struct
class System:
    """A mechanism: bodies and joints that form any graph. `SystemBuilder` makes it.

    A System is a tree of float arrays: `jax.grad(loss)(system)` holds the derivative with respect
    to each of its numbers. Read numbers by name with `joint`, `contact`, `transmission` and
    `field`. Read `mass`, `inertia` and `com` by body index, and change them with
    `dataclasses.replace`. `print` and notebooks show tables.

    Importing `jaxjoints` adds methods: `with_joint`, `with_contact`, `with_transmission` and
    `with_field` change numbers by name, `with_numbers` any by its path;
    `system.state(q={"elbow": 0.3}, …)` makes a start state (see `start_state`),
    `system.control(effort=…, …)` a control (see `control_by_name`).

    mass: [kg], shape (bodies,)
    inertia: about the centre of mass in body axes [kg m²], shape (3, 3, bodies)
    com: centre of mass in the body frame [m], shape (3, bodies)
    gravity: acceleration in the world [m/s²], shape (3,)
    groups, transmissions, fields, constraints, contacts: the joints, transmissions, fields,
        constraints and contacts, in groups of like ones
    topology: names and other static facts

    Each array may carry batch axes at the end.

    >>> import jaxjoints as jj
    >>> world = jj.SystemBuilder(gravity=(0.0, 0.0, -9.0))
    >>> _ = world.body("stone", mass=2.0, inertia=(0.1, 0.1, 0.1))
    >>> system, state = world.build()
    >>> def height(system):
    ...     return jj.rollout(system, state, dt=0.1, steps=4)[0].position[2, 0]
    >>> slope = jax.grad(height)(system)
    >>> print(slope.gravity, slope.mass.any())  # h² (1 + 2 + 3 + 4); the mass does not matter
    [0.  0.  0.1] False
    """

    mass: Array
    inertia: Array
    com: Array
    gravity: Array
    groups: tuple[JointGroup, ...]
    transmissions: tuple[TransmissionGroup, ...] = ()
    fields: tuple[FieldGroup, ...] = ()
    constraints: tuple[ConstraintGroup, ...] = ()
    contacts: tuple[ContactGroup, ...] = ()
    topology: Topology = static(kw_only=True)

    def __repr__(self) -> str:
        return str(described(self, WORLD))

    def _repr_html_(self) -> str:
        return described(self, WORLD).html

    # Written by `build`, which puts them in place of these.

    def state(
        self,
        *,
        q: Mapping[str, Any] | None = None,
        qd: Mapping[str, Any] | None = None,
        pose: Mapping[str, Any] | None = None,
        velocity: Mapping[str, Any] | None = None,
        time: Any = None,
        start: State | None = None,
        rough: bool = False,
    ) -> State:
        """See `start_state`."""
        raise NotImplementedError

    def control(
        self,
        *,
        effort: Mapping[str, Any] | None = None,
        target: Mapping[str, Any] | None = None,
        target_speed: Mapping[str, Any] | None = None,
        wrench: Mapping[str, Any] | None = None,
        twist: Mapping[str, Any] | None = None,
    ) -> Control:
        """See `control_by_name`."""
        raise NotImplementedError

    def with_joint(self, name: str, **changes: Any) -> "System":
        """See `changes.with_joint`."""
        raise NotImplementedError

    def with_contact(self, name: str, **changes: Any) -> "System":
        """See `changes.with_contact`."""
        raise NotImplementedError

    def with_transmission(self, name: str, **changes: Any) -> "System":
        """See `changes.with_transmission`."""
        raise NotImplementedError

    def with_field(self, name: str, field: Field | None = None, **changes: Any) -> "System":
        """See `changes.with_field`."""
        raise NotImplementedError

    def with_constraint(self, name: str, **changes: Any) -> "System":
        """See `changes.with_constraint`."""
        raise NotImplementedError

    def number(self, path: str) -> Any:
        """See `numbers.number`."""
        raise NotImplementedError

    def with_numbers(self, numbers: Mapping[str, Any]) -> "System":
        """See `numbers.with_numbers`."""
        raise NotImplementedError

    @property
    def coordinates(self) -> int:
        """Length of the flat vectors of coordinates, of their speeds and of efforts.

        They have the coordinates of one joint after the other, in the order in which the joints
        were added (see `coordinate`).
        """
        return sum(group.coupling.dof * len(group.joints) for group in self.groups)

    @property
    def values(self) -> int:
        """Length of the flat vector of the values of all transmissions."""
        return sum(group.transmission.rows * len(group.members) for group in self.transmissions)

    @property
    def constraint_rows(self) -> int:
        """Length of the flat vector of the rows of all constraints."""
        return sum(group.constraint.rows * len(group.members) for group in self.constraints)

    @property
    def all_groups(self) -> tuple[Group, ...]:
        """Groups of joints, then of transmissions, then of constraints, then of contacts."""
        return self.groups + self.transmissions + self.constraints + self.contacts

    def by_kind(self, each: Sequence[T]) -> list[Sequence[T]]:
        """What stands for each of `all_groups`, as that of joints, transmissions, constraints and
        contacts.
        """
        kinds = self.groups, self.transmissions, self.constraints, self.contacts
        ends = list(accumulate(map(len, kinds)))
        return [each[a:b] for a, b in zip([0, *ends], ends, strict=False)]

    def body(self, name: str) -> int:
        """Index of a body in the axis of bodies; KeyError for an unknown name."""
        if name not in self.topology.body_index:
            raise KeyError(f"no body {name!r}; there are {list(self.topology.bodies)}")
        return self.topology.body_index[name]

    def coordinate(self, name: str) -> slice:
        """Where a joint's coordinates are in the flat vectors; KeyError for an unknown name."""
        g, i = self._joint(name)
        start = self.groups[g].start[i]
        return slice(start, start + self.groups[g].coupling.dof)

    def value(self, name: str) -> slice:
        """Where a transmission's values are in the flat vector; KeyError for an unknown name."""
        g, i = self._transmission(name)
        start = self.transmissions[g].start[i]
        return slice(start, start + self.transmissions[g].transmission.rows)

    def joint(self, name: str) -> JointGroup:
        """One joint: coupling, frames, laws and softness, without the axis of joints.

        Raises: KeyError for an unknown name.
        """
        g, i = self._joint(name)
        return self.groups[g].member(i, self._ranks.groups[g])

    def contact(self, name: str) -> ContactGroup:
        """One contact: geometry, frames and laws, without the axis of contacts.

        Raises: KeyError for an unknown name.
        """
        g, i = located(self.contacts, "contact", self.topology.contacts, name)
        return self.contacts[g].member(i, self._ranks.contacts[g])

    def contact_index(self, name: str) -> int:
        """Where a contact is in the axis of contacts; KeyError for an unknown name."""
        located(self.contacts, "contact", self.topology.contacts, name)
        return self.topology.contacts.index(name)

    def transmission(self, name: str) -> TransmissionGroup:
        """One transmission: its record, laws and softness, without the axis of transmissions.

        Raises: KeyError for an unknown name.
        """
        g, i = self._transmission(name)
        return self.transmissions[g].member(i, self._ranks.transmissions[g])

    def constraint(self, name: str) -> ConstraintGroup:
        """One constraint: its record and softness, without the axis of constraints.

        Raises: KeyError for an unknown name.
        """
        g, i = self._constraint(name)
        return self.constraints[g].member(i, self._ranks.constraints[g])

    def rows(self, name: str) -> slice:
        """Where a constraint's rows are in the flat vector of all; KeyError for an unknown name."""
        g, i = self._constraint(name)
        start = self.constraints[g].start[i]
        return slice(start, start + self.constraints[g].constraint.rows)

    def field(self, name: str) -> FieldGroup:
        """One field: its record without the axis of fields, and the bodies that it acts on.

        Raises: KeyError for an unknown name.
        """
        g, i = self._field(name)
        return self.fields[g].member(i, self._ranks.fields[g])

    def _joint(self, name: str) -> tuple[int, int]:
        if name in self.topology.contacts:
            raise KeyError(f"{name!r} is a contact and has no coordinates; {READ_CONTACTS}")
        return located(self.groups, "joint", self.topology.joints, name)

    def _transmission(self, name: str) -> tuple[int, int]:
        return located(self.transmissions, "transmission", self.topology.transmissions, name)

    def _constraint(self, name: str) -> tuple[int, int]:
        return located(self.constraints, "constraint", self.topology.constraints, name)

    def _field(self, name: str) -> tuple[int, int]:
        return located(self.fields, "field", self.topology.fields, name)

    @property
    def _ranks(self) -> "System":
        """The declared rank of every leaf in its place."""
        return jax.tree.unflatten(jax.tree.structure(self), self.topology.ranks)


def located(
    groups: Sequence[Group], element: str, names: Sequence[str], name: str
) -> tuple[int, int]:
    """Index of an element's group, and of the element in it; KeyError for an unknown name."""
    if name not in names:
        raise KeyError(f"no {element} {name!r}; there are {list(names)}")
    index = names.index(name)
    return next(
        (g, group.members.index(index)) for g, group in enumerate(groups) if index in group.members
    )
