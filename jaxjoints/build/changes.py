"""`System.with_joint` and its kin: a system with other numbers, in the forms the builder takes."""

import dataclasses
import re
from collections.abc import Iterable
from itertools import starmap, zip_longest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..algebra.calls import public
from ..algebra.compiler import is_traced
from ..algebra.options import brief, near_matches
from ..algebra.pytree import replace
from ..couplings.coupling import Coupling
from ..laws.fields import Field
from ..laws.law import Law
from ..laws.limits import Limits
from ..model.articulation import articulation
from ..model.system import System, located
from .checks.changed import check_change
from .checks.values import read_pose

# What each element has beside the fields of its record, and what stands for several of these.
OF_ROWS = ("laws", "erp", "cfm", "softness", "enabled")
OF_JOINT = ("coupling", "frame_C", "frame_D", *OF_ROWS, "max_effort")
OF_CONSTRAINT = ("constraint", "erp", "cfm", "softness", "enabled")
OF_TRANSMISSION = ("transmission", *OF_ROWS)
OF_CONTACT = ("geometry", "frame_C", "frame_D", "laws", "enabled")
# Where a law is added, for errors.
ADD_LAW = (
    "before the build: by laws= where it is declared, and to a joint also by "
    "`builder.add_law(joint, law)`, or by laws= of `load_urdf` and `load_mjcf`"
)


@public
def with_joint(self: System, name: str, **changes: Any) -> System:
    """The system with some numbers of a joint changed; each may carry batch axes at the end.

    changes, each by its name:
    - a field of the joint's coupling, such as `axis`; or `coupling`, the whole record
    - `frame_C`, `frame_D`, in one of the forms of `SystemBuilder.joint`
    - a law by its type, such as `limits=Limits(-1.0, 1.0)` or `spring_damper=…`, where the joint
      has one of this type; or `laws`, all of them in their order
    - `erp`, `cfm`, `softness`, `max_effort`; `enabled`, where the joint was built with it

    A field that is None in a new record keeps its value.

    Raises: KeyError for an unknown name. ValueError naming joint and field for a record of another
        type; for a law, switch or limit that the joint was built without; for a `cfm` of a joint
        that was built rigid and is held by coordinates (see `SystemBuilder.joint`, tree); for
        numbers that the builder refuses, unless it was told `allow_active`. Traced numbers are not
        refused: `Info.cause` is PARAMETERS.

    >>> from jaxjoints import Hinge, Limits, SystemBuilder
    >>> world = SystemBuilder()
    >>> arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.02))
    >>> elbow = world.joint("elbow", Hinge(), child=arm, laws=Limits(upper=1.0))
    >>> system, _ = world.build()
    >>> system = system.with_joint("elbow", limits=Limits(upper=2.0), axis=(0.0, 1.0, 0.0))
    >>> print(system.joint("elbow").laws[0].upper)
    2.0
    """
    if name in self.topology.contacts:
        raise KeyError(f"{name!r} is a contact and no joint; change it with `with_contact`")
    place = located(self.groups, "joint", self.topology.joints, name)
    if changes.get("cfm") is not None:
        _check_softness(self, name, changes["cfm"])
    return _changed(self, "groups", place, name, changes, "coupling", OF_JOINT)


@public
def with_contact(self: System, name: str, **changes: Any) -> System:
    """The system with some numbers of a contact changed, as in `with_joint`.

    changes: fields of the contact's geometry, such as `point_C` of a `ContactPoint`; `geometry`,
        `frame_C`, `frame_D`, `laws`, laws by their type, `enabled`
    """
    place = located(self.contacts, "contact", self.topology.contacts, name)
    return _changed(self, "contacts", place, name, changes, "geometry", OF_CONTACT)


@public
def with_transmission(self: System, name: str, **changes: Any) -> System:
    """The system with some numbers of a transmission changed, as in `with_joint`.

    changes: fields of the transmission's record; `transmission`, `laws`, laws by their type, `erp`,
        `cfm`, `softness` and `enabled`
    """
    place = located(self.transmissions, "transmission", self.topology.transmissions, name)
    return _changed(self, "transmissions", place, name, changes, "transmission", OF_TRANSMISSION)


@public
def with_field(self: System, name: str, field: Field | None = None, **changes: Any) -> System:
    """The system with a field replaced by a record of the same type, or some of its numbers
    changed by their names, as in `with_joint`.
    """
    place = located(self.fields, "field", self.topology.fields, name)
    if field is not None:
        changes["field"] = field
    return _changed(self, "fields", place, name, changes, "field", ("field",))


@public
def with_constraint(self: System, name: str, **changes: Any) -> System:
    """The system with some numbers of a constraint changed, as in `with_joint`.

    changes: fields of the constraint's record; `constraint`, `erp`, `cfm`, `softness`, `enabled`
    """
    place = located(self.constraints, "constraint", self.topology.constraints, name)
    return _changed(self, "constraints", place, name, changes, "constraint", OF_CONSTRAINT)


# Methods where users look for them: see `start_state`.
System.with_joint = with_joint
System.with_contact = with_contact
System.with_transmission = with_transmission
System.with_field = with_field
System.with_constraint = with_constraint


def _changed(
    system: System,
    kind: str,
    place: tuple[int, int],
    name: str,
    changes: dict[str, Any],
    record: str,
    fields: tuple[str, ...],
) -> System:
    """The system with some numbers of one element changed.

    kind: "groups", "contacts", "transmissions", "fields" or "constraints"; place: of the element's
        group there, and in it
    record: the field of the group whose own fields may be named; fields: those of the group
    """
    groups, (g, i) = getattr(system, kind), place
    built = jax.tree.unflatten(jax.tree.structure(system), system.topology.shapes)
    built = getattr(built, kind)[g]
    ranks = jax.tree.map(len, built, is_leaf=is_shape)
    # Of one element: without the axis of elements.
    shapes = jax.tree.map(lambda shape: shape[:-1], built, is_leaf=is_shape)
    owner, old = f"{groups[g].element} {name!r}", groups[g].member(i, ranks)
    inner = {f.name for f in dataclasses.fields(getattr(old, record)) if f.name not in fields}
    laws = {law_name(law): j for j, law in enumerate(getattr(old, "laws", ()))}
    new: dict[str, Any] = {}
    for key, value in changes.items():
        if value is None:
            raise ValueError(f"{owner}: {key} is None; leave {key} out to keep what it is")
        if key in fields:
            new[key] = value
        elif key in inner:
            base = new.get(record, getattr(old, record))
            new[record] = replace(base, **{key: value})
        elif key in laws:
            of_type = [law for law in old.laws if law_name(law) == key]
            if len(of_type) > 1:
                raise ValueError(f"{owner}: it has {len(of_type)} laws {key}; give all by laws=[…]")
            several = list(new.get("laws", old.laws))
            several[laws[key]] = value
            new["laws"] = several
        else:
            hint = near_matches(key, [*fields, *sorted(inner), *laws])
            raise ValueError(
                f"{owner}: it has no {key}; {hint}. A switch that it was built without has to be "
                f"given to the builder; a law is added {ADD_LAW}"
            )
    read = {
        field: _fitted(
            f"{owner}: {field}",
            getattr(old, field),
            _read(owner, field, value, old, shapes),
            getattr(shapes, field),
        )
        for field, value in new.items()
    }
    for field, value in read.items():
        ranks_of_one = jax.tree.map(len, getattr(shapes, field), is_leaf=is_shape_of_one)
        lenient = owner in system.topology.lenient
        check_change(owner, field, value, ranks_of_one, lenient=lenient)
    changed = groups[g].with_member(i, read, ranks)
    return replace(system, **{kind: (*groups[:g], changed, *groups[g + 1 :])})


def _check_softness(system: System, name: str, cfm: Any) -> None:
    """ValueError for a cfm, not 0, of a joint that the system holds by its coordinates."""
    joint = system.topology.joints.index(name)
    in_tree = any(branch.joint == joint for branch in articulation(system).branches)
    if in_tree and (is_traced(cfm) or np.any(np.asarray(cfm) != 0)):
        raise ValueError(
            f"joint {name!r}: cfm cannot be set, because the joint was built rigid and its "
            "coordinates hold it; build it with this cfm, or with tree=False"
        )


def _read(owner: str, field: str, value: Any, old: Any, shapes: Any) -> Any:
    """A change in the form of the group's field.

    old: the element as it was; shapes: of its numbers without batch axes
    """
    if field in ("frame_C", "frame_D"):
        pose = read_pose(owner, field, value, batched=True)
        batch = jnp.broadcast_shapes(pose.p.shape[1:], pose.q.shape[1:])
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (x.shape[0], *batch)), pose)
    if field == "laws":
        laws = tuple(value) if isinstance(value, Iterable) else (value,)
        return tuple(starmap(_standard, zip_longest(laws, old.laws[: len(laws)])))
    if field in ("erp", "cfm", "max_effort") and value is not None and np.ndim(value) == 0:
        # One number for all rows or coordinates, as the builder takes it.
        shape = getattr(shapes, field)
        return value if shape is None else jnp.broadcast_to(jnp.asarray(value, float), shape)
    return value.normalized() if isinstance(value, Coupling) else value


def _fitted(path: str, old: Any, new: Any, shape: Any) -> Any:
    """`new` with the structure of `old`, its numbers as arrays; what is None in it stays as it was.

    path: of the value, for errors; shape: of each number without batch axes, a tree like `old`

    Raises: ValueError for another type, for an option with another value, and for other shapes
    """
    if new is None or old is None:
        if new is not None:
            raise ValueError(
                f"{path} was not given when it was built, so it cannot be set; give it there"
            )
        return old
    if isinstance(old, tuple):
        new = tuple(new)
        if len(new) != len(old):
            raise ValueError(
                f"{path} has {len(new)} records and was built with {len(old)}; a law is added "
                f"{ADD_LAW}"
            )
        return tuple(
            _fitted(f"{path}[{j}]", *parts)
            for j, parts in enumerate(zip(old, new, shape, strict=True))
        )
    if not dataclasses.is_dataclass(old):
        return _number(path, new, shape)
    if type(new) is not type(old):
        raise ValueError(
            f"{path} must be a {type(old).__name__} as it was built, not {_kind(new)}; for another "
            "type build another system"
        )
    read = {}
    for field in dataclasses.fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        inner = f"{path}.{field.name}"
        if not field.metadata.get("static", False):
            read[field.name] = _fitted(inner, before, after, getattr(shape, field.name))
        elif before != after:
            raise ValueError(
                f"{inner} is {after!r} and was built as {before!r}; it is part of the program, so "
                "give it to the builder"
            )
    return replace(old, **read)


def _standard(new: Any, old: Any) -> Any:
    """A law in the form of the builder: soft limits have no largest correction."""
    if isinstance(new, Limits) and isinstance(old, Limits) and old.max_correction is None:
        if new.max_correction == type(new).max_correction:
            return replace(new, max_correction=None)
    return new


def _number(path: str, value: Any, shape: tuple[int, ...]) -> jax.Array:
    try:
        number = jnp.asarray(value, jnp.result_type(float))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} {brief(value)} must be numbers of shape {shape}") from error
    if number.shape[: len(shape)] != shape:
        raise ValueError(
            f"{path} has shape {number.shape}; it must be {shape}, and batch axes may follow"
        )
    return number


def _kind(value: Any) -> str:
    return repr(value) if isinstance(value, type) else f"a {type(value).__name__}"


def law_name(law: Law) -> str:
    """The type of a law as an argument: `spring_damper` for a `SpringDamper`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(law).__name__).lower()


def is_shape_of_one(value: Any) -> bool:
    """Whether a value is the shape of a number of one element, () for one number, and no records.

    Laws are a tuple of records; without laws nothing is to be told apart.
    """
    return isinstance(value, tuple) and all(isinstance(size, int) for size in value)


def is_shape(value: Any) -> bool:
    """Whether a value is the shape of a number, which has an axis of elements, and no records."""
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], int)
