"""`System.number` and `System.with_numbers`: the numbers of a system by their paths."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array

from ..algebra.arguments import read_numbers
from ..algebra.calls import public
from ..algebra.options import brief, near_matches
from ..algebra.pytree import replace, struct
from ..algebra.renamed import current_field
from ..model.groups import with_entry
from ..model.system import System
from .changes import law_name
from .checks.changed import check_body_change
from .checks.values import read_mapping

# Kinds of elements that have numbers, as fields of `Topology`.
KINDS = {
    "body": "bodies",
    "joint": "joints",
    "contact": "contacts",
    "transmission": "transmissions",
    "constraint": "constraints",
    "field": "fields",
}
# Fields of a body, after their numbers of axes.
OF_BODY = ((0, "mass"), (1, "com"), (2, "inertia"))


@struct
class BodyInertia:
    """The ten inertial parameters of a body, as a system holds them.

    mass: [kg], shape (*batch)
    com: centre of mass in the body frame [m], shape (3, *batch)
    inertia: about the centre of mass in body axes [kg m²], shape (3, 3, *batch)

    >>> from jaxjoints import SystemBuilder
    >>> world = SystemBuilder()
    >>> arm = world.body("arm", mass=2.0, inertia=(0.5, 0.5, 0.1), com=(0.0, 0.0, -0.5))
    >>> body = world.build()[0].number("body.arm")
    >>> print(body.inertia[1, 1] + body.mass * body.com[2] ** 2)  # about y of the body frame
    1.0
    """

    mass: Array | float
    com: Array
    inertia: Array


@public
def number(self: System, path: str) -> Any:
    """A number of the system, or a record of several, by its path.

    path: "gravity", or an element's kind and name and where the number is in it:
        - "body.arm.mass", "body.arm.com", "body.arm.inertia"
        - "joint.elbow.coupling.axis", "joint.elbow.frame_D.q", "joint.elbow.limits.stiffness": the
          fields of what `System.joint` returns, laws by their type or as "laws.0"
        - "contact.sole.laws.1.friction", "transmission.belt.…", "constraint.hold.…",
          "field.wind.…", likewise by what the methods of these names return
        "body.arm" is a record of its three numbers. Where two laws have one type, as the friction
        of a contact along its two tangents, each goes by its place

    Raises: ValueError for an unknown path, with near matches.

    >>> from jaxjoints import Hinge, Limits, SystemBuilder
    >>> world = SystemBuilder()
    >>> arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.02))
    >>> elbow = world.joint("elbow", Hinge(), child=arm, laws=Limits(upper=1.0))
    >>> system, _ = world.build()
    >>> print(system.number("joint.elbow.limits.upper"), system.number("body.arm.mass"))
    1.0 1.0
    """
    kind, name, fields = _place(self, path)
    if kind == "gravity":
        return self.gravity
    if kind == "body":
        return _of_body(self, path, name, fields)
    element = getattr(self, kind)(name)
    for field in _expanded(element, fields):
        element = _inner(path, element, field)
    return element


@public
def with_numbers(self: System, numbers: Mapping[str, Any]) -> System:
    """The system with numbers replaced by their paths; each may carry batch axes at the end.

    numbers: by paths as those of `System.number`; "body.arm" takes a `BodyInertia`

    Raises: ValueError for an unknown path, with near matches, for shapes that do not fit, and for
        numbers that the builder refuses, unless it was told to take such (`allow_active`,
        `allow_unphysical`). Traced numbers are not refused: `Info.cause` says PARAMETERS.

    >>> from jaxjoints import Hinge, Limits, SystemBuilder
    >>> world = SystemBuilder()
    >>> arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.02))
    >>> elbow = world.joint("elbow", Hinge(), child=arm, laws=Limits(upper=1.0))
    >>> system, _ = world.build()
    >>> system = system.with_numbers({"joint.elbow.limits.upper": 2.0, "body.arm.mass": 3.0})
    >>> print(system.joint("elbow").laws[0].upper, system.mass)
    2.0 [3.]
    """
    system = self
    example = [f"body.{name}.mass" for name in self.topology.bodies]
    for path, value in read_mapping("numbers", numbers, "path", example).items():
        kind, name, fields = _place(system, path)
        if value is None:
            raise ValueError(f"path {path!r}: its value is None; leave the path out to keep it")
        if kind == "gravity":
            read = read_numbers("system", "gravity", value, (3,), batched=True)
            system = replace(system, gravity=jnp.asarray(read, system.gravity.dtype))
        elif kind == "body":
            system = _with_body(system, path, name, fields, value)
        else:
            element = getattr(system, kind)(name)
            first, *rest = _expanded(element, fields) or [""]
            changed = _replaced(path, _inner(path, element, first), rest, value)
            system = getattr(system, f"with_{kind}")(name, **{first: changed})
    return system


# Methods where users look for them: see `start_state`.
System.number = number
System.with_numbers = with_numbers


def _place(system: System, path: str) -> tuple[str, str, list[str]]:
    """Kind and name of the element of a path, and the fields that follow; ValueError for none."""
    kind, _, rest = str(path).partition(".")
    if path == "gravity":
        return path, "", []
    if kind not in KINDS:
        hint = near_matches(kind, [*KINDS, "gravity"])
        raise ValueError(
            f"path {path!r} must begin with the kind of an element, such as joint.elbow; {hint}"
        )
    names = getattr(system.topology, KINDS[kind])
    # Names may have dots in them: the longest that fits.
    for name in sorted(names, key=len, reverse=True):
        if rest == name or rest.startswith(f"{name}."):
            return kind, name, [field for field in rest[len(name) + 1 :].split(".") if field]
    first = rest.partition(".")[0]
    raise ValueError(f"path {path!r}: no {kind} {first!r}; {near_matches(first, names)}")


def _of_body(system: System, path: str, name: str, fields: list[str]) -> Any:
    """Numbers of a body, without the axis of bodies."""
    _check_body(path, fields)
    i = system.body(name)
    # Axes before that of bodies.
    read = {field: getattr(system, field)[(slice(None),) * j + (i,)] for j, field in OF_BODY}
    return read[fields[0]] if fields else BodyInertia(**read)


def _with_body(system: System, path: str, name: str, fields: list[str], value: Any) -> System:
    """The system with numbers of a body replaced."""
    _check_body(path, fields)
    if not fields and not isinstance(value, BodyInertia):
        raise ValueError(f"path {path!r}: {brief(value)} must be a BodyInertia(mass, com, inertia)")
    i, changes, parts = system.body(name), {}, {}
    owner = f"body {name!r}"
    for j, field in OF_BODY:
        if fields and field != fields[0]:
            continue
        new = value if fields else getattr(value, field)
        parts[field] = read_numbers(owner, field, new, (3,) * j, batched=True)
        part = jnp.asarray(parts[field], system.mass.dtype)
        changes[field] = with_entry(getattr(system, field), i, part, j + 1)
    if system.topology.moving[i]:
        lenient = owner in system.topology.lenient
        check_body_change(owner, parts.get("mass"), parts.get("inertia"), lenient=lenient)
    return replace(system, **changes)


def _check_body(path: str, fields: list[str]) -> None:
    """Raise ValueError for what is no number of a body."""
    names = [field for _, field in OF_BODY]
    if len(fields) > 1 or fields and fields[0] not in names:
        field = ".".join(fields)
        raise ValueError(f"path {path!r}: a body has no {field}; {near_matches(field, names)}")


def _shortcuts(element: Any) -> dict[str, str]:
    """Names that stand for a law by its type or a field of the record, with where they are."""
    found = {}
    for record in ("coupling", "geometry", "transmission", "constraint", "field"):
        if (inner := getattr(element, record, None)) is not None:
            fields = dataclasses.fields(inner)
            found |= {f.name: record for f in fields if not f.metadata.get("static")}
    return found | {law_name(law): "laws" for law in getattr(element, "laws", ())}


def _expanded(element: Any, fields: list[str]) -> list[str]:
    """Fields with that in front which a shortcut leaves out."""
    if not fields or hasattr(element, fields[0]):
        return fields
    where = _shortcuts(element).get(fields[0])
    return [where, *fields] if where else fields


def _inner(path: str, record: Any, field: str) -> Any:
    """A field of a record, or a law of a tuple by its type or its place; ValueError for none."""
    if isinstance(record, tuple):
        names = {name: item for name, item in _items(record)}
    elif dataclasses.is_dataclass(record):
        fields = dataclasses.fields(record)
        names = {f.name: getattr(record, f.name) for f in fields if not f.metadata.get("static")}
        field = current_field(record, field)
    else:
        names = {}
    if names.get(field) is None:
        if isinstance(record, tuple):
            like = [f"laws.{i}" for i, law in enumerate(record) if law_name(law) == field]
            if like:
                raise ValueError(
                    f"path {path!r}: {' and '.join(like)} are both of the type {field!r}; name one "
                    "by its place"
                )
        known = [name for name, value in names.items() if value is not None]
        known += [name for name in _shortcuts(record) if name not in known]
        raise ValueError(
            f"path {path!r}: {type(record).__name__} has no number {field!r}; "
            f"{near_matches(field, known)}"
        )
    return names[field]


def _items(records: tuple) -> list[tuple[str, Any]]:
    """The records of a tuple by their places, and by their types where only one has it."""
    names = [law_name(record) for record in records]
    single = [(n, r) for n, r in zip(names, records, strict=True) if names.count(n) == 1]
    return [*((str(i), record) for i, record in enumerate(records)), *single]


def _replaced(path: str, record: Any, fields: list[str], value: Any) -> Any:
    """A record with the number at the end of some fields replaced."""
    if not fields:
        return value
    first, *rest = fields
    inner = _inner(path, record, first)
    first = first if isinstance(record, tuple) else current_field(record, first)
    changed = _replaced(path, inner, rest, value)
    if isinstance(record, tuple):
        return tuple(changed if item is inner else item for item in record)
    return replace(record, **{first: changed})
