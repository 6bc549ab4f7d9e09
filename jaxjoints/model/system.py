"""What is simulated: System, State, Control and Info, and how batches of them are laid out.

Components lead, then bodies or joints, and batch axes trail: positions (3, bodies, *batch), a
per-joint number (joints, *batch). Any leaf of a System may carry the batch axes or be shared by all
environments; which it is shows in its rank.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import replace, static, struct
from ..laws.fields import Field
from .groups import FieldGroup, JointGroup, Topology, TransmissionGroup

WORLD = "world"
# Its index among the bodies of joints and transmissions.
WORLD_INDEX = -1


# What the groups of a System consist of, by its fields.
ELEMENTS = {"groups": "joint", "transmissions": "transmission", "fields": "field"}


@struct
class System:
    """A mechanism: bodies and joints in any graph, a tree of float leaves. See `SystemBuilder`.

    `jax.grad(loss)(system)` has the gradient with respect to every number in it, read by name
    with `joint` and by body index from `mass`, `inertia`, `com`. Change numbers with `replace` and
    `with_joint`, `with_transmission`, `with_field`. Two more methods come from `build`:
    `system.state(q={"elbow": 0.3}, …)`, see `start_state`, and `system.control(effort=…, …)`, see
    `control_by_name`.

    mass: [kg], shape (bodies,); inertia: about the centre of mass in body axes [kg m²], shape
    (3, 3, bodies); com: centre of mass in the body frame [m], shape (3, bodies); gravity: in the
    world [m/s²], shape (3,); each may carry batch axes at the end.
    """

    mass: Array
    inertia: Array
    com: Array
    gravity: Array
    groups: tuple[JointGroup, ...]
    transmissions: tuple[TransmissionGroup, ...] = ()
    fields: tuple[FieldGroup, ...] = ()
    topology: Topology = static(kw_only=True)

    @property
    def coordinates(self) -> int:
        """Length of the flat vectors of coordinates, speeds and efforts."""
        return sum(group.coupling.dof * len(group.joints) for group in self.groups)

    @property
    def values(self) -> int:
        """Length of the flat vector of the transmissions' values."""
        return sum(group.transmission.rows * len(group.members) for group in self.transmissions)

    def value(self, name: str) -> slice:
        """Where the values of a transmission stand in the flat vector."""
        g, i = self._find(name, "transmissions")
        group = self.transmissions[g]
        return slice(group.start[i], group.start[i] + group.transmission.rows)

    def body(self, name: str) -> int:
        """Index of a body in (…, bodies, …) axes."""
        if name not in self.topology.body_index:
            raise KeyError(f"no body {name!r}; there are {list(self.topology.bodies)}")
        return self.topology.body_index[name]

    def coordinate(self, name: str) -> slice:
        """Where the coordinates of a joint stand in the flat vectors."""
        group, i = self._find(name)
        start = self.groups[group].start[i]
        return slice(start, start + self.groups[group].coupling.dof)

    def joint(self, name: str) -> JointGroup:
        """One joint's record: coupling, frames, laws and softness without the joint axis."""
        return self._one("groups", name, "joints", "child", "parent", "start")

    def transmission(self, name: str) -> TransmissionGroup:
        """One transmission's record: its own, laws and softness without the stacking axis."""
        return self._one("transmissions", name, "members", "joints", "bodies", "start")

    def with_joint(self, name: str, **changes: Any) -> "System":
        """The system with some of a joint's records (coupling, frame_C, frame_D, laws, erp, cfm,
        springs, enabled, max_effort) replaced by records of the same type; their leaves may carry
        batch axes at the end.
        """
        return self._with("groups", name, **changes)

    def with_transmission(self, name: str, **changes: Any) -> "System":
        """The same for a transmission's records (transmission, laws, erp, cfm, springs,
        enabled).
        """
        return self._with("transmissions", name, **changes)

    def field(self, name: str) -> FieldGroup:
        """One field's record without the stacking axis, and the bodies that it acts on."""
        return self._one("fields", name, "members", "bodies")

    def with_field(self, name: str, field: Field) -> "System":
        """The system with a field replaced by a record of the same type, as in `with_joint`."""
        return self._with("fields", name, field=field)

    def _one(self, kind: str, name: str, *fields: str) -> Any:
        """One item of a group, its leaves and the given static fields."""
        g, i = self._find(name, kind)
        group = getattr(self, kind)[g]
        ranks = self._group_ranks(kind, g)
        one = [
            jnp.take(x, i, axis=r - 1) for x, r in zip(jax.tree.leaves(group), ranks, strict=True)
        ]
        group = jax.tree.unflatten(jax.tree.structure(group), one)
        return replace(group, **{field: (getattr(group, field)[i],) for field in fields})

    def _with(self, kind: str, name: str, **changes: Any) -> "System":
        g, i = self._find(name, kind)
        group = getattr(self, kind)[g]
        ranks = jax.tree.unflatten(jax.tree.structure(group), self._group_ranks(kind, g))

        def put(stacked, value, rank):
            value = jnp.asarray(value, stacked.dtype)
            extra = value.ndim - (rank - 1)
            if stacked.ndim == rank and extra:
                stacked = stacked.reshape(stacked.shape + (1,) * extra)
                stacked = jnp.broadcast_to(stacked, stacked.shape[:rank] + value.shape[rank - 1 :])
            elif extra < stacked.ndim - rank:
                value = value.reshape(value.shape + (1,) * (stacked.ndim - rank - extra))
            return stacked.at[(slice(None),) * (rank - 1) + (i,)].set(value)

        updated = {}
        for field, value in changes.items():
            old = getattr(group, field)
            if old is None:
                raise ValueError(
                    f"{ELEMENTS[kind]} {name!r}: {field} was not given when it was built, so it "
                    "cannot be set; give it there"
                )
            if isinstance(old, tuple):
                value = tuple(value)
            expected, given = jax.tree.structure(old), jax.tree.structure(value)
            if expected != given:
                raise ValueError(
                    f"{ELEMENTS[kind]} {name!r}: {field} must be {expected} as it was built, not "
                    f"{given}"
                )
            updated[field] = jax.tree.map(put, old, value, getattr(ranks, field))
        groups = list(getattr(self, kind))
        groups[g] = replace(group, **updated)
        return replace(self, **{kind: tuple(groups)})

    def _find(self, name: str, kind: str = "groups") -> tuple[int, int]:
        """The group of an element, and which of it."""
        names = getattr(self.topology, f"{ELEMENTS[kind]}s")
        if name not in names:
            raise KeyError(f"no {ELEMENTS[kind]} {name!r}; there are {list(names)}")
        index = names.index(name)
        for g, group in enumerate(getattr(self, kind)):
            members = group.joints if kind == "groups" else group.members
            if index in members:
                return g, members.index(index)
        raise KeyError(name)

    def _group_ranks(self, kind: str, g: int) -> list[int]:
        """Declared ranks of the leaves of one group, the axis of its items included."""
        ranks = jax.tree.unflatten(jax.tree.structure(self), self.topology.ranks)
        return jax.tree.leaves(getattr(ranks, kind)[g])
