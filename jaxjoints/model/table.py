"""`print(system)`: bodies, joints, coordinates, laws, contacts, transmissions, fields as tables."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..couplings.coupling import Coupling

# Rows of a table that are shown.
MOST_ROWS = 200
# Numbers of an array that are shown.
MOST_NUMBERS = 12
# Part of a motion subspace that counts as none.
NO_MOTION = 1e-9


def described(system: Any, world: str) -> str:
    """What a system consists of, with its numbers; of a batch those of the first environment.

    Bodies with mass, centre of mass and principal moments of inertia; joints with their coupling,
    bodies, the place of each coordinate in `State.q`, its unit and its laws; contacts with their
    bodies and laws; transmissions; fields.

    world: name of the world
    """
    topology = system.topology
    leaves, structure = jax.tree.flatten(system)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return f"System of {_count(len(topology.bodies), 'body', 'bodies')} that JAX is tracing"
    extra = [leaf.shape[rank:] for leaf, rank in zip(leaves, topology.ranks, strict=True)]
    batch = max(extra, key=len, default=())
    first = [leaf[(..., *(0,) * len(axes))] for leaf, axes in zip(leaves, extra, strict=True)]
    system = jax.tree.unflatten(structure, first)
    counts = [
        _count(len(topology.bodies), "body", "bodies"),
        _count(len(topology.joints), "joint"),
        _count(system.coordinates, "coordinate"),
    ]
    if topology.contacts:
        counts.append(_count(len(topology.contacts), "contact"))
    head = f"System of {', '.join(counts)}; gravity {_text(system.gravity)} m/s²"
    if batch:
        head += f"; environment 0 of {' x '.join(map(str, batch))}"
    parts = [head, _bodies(system), _joints(system, world), _contacts(system, world)]
    parts += [_transmissions(system), _constraints(system), _fields(system)]
    if topology.notes:
        parts.append("\n".join(["notes", *(f"  {note}" for note in topology.notes)]))
    return "\n\n".join(part for part in parts if part)


def _bodies(system: Any) -> str:
    rows = []
    for i, name in enumerate(system.topology.bodies):
        if not system.topology.moving[i]:
            rows.append((name, "prescribed", "", ""))
            continue
        moments = np.linalg.eigvalsh(system.inertia[:, :, i])
        rows.append((name, *map(_text, (system.mass[i], system.com[:, i], moments))))
    head = "bodies", "mass [kg]", "centre of mass [m]", "principal moments [kg m²]"
    return _table(head, rows)


def _joints(system: Any, world: str) -> str:
    rows = []
    for name in system.topology.joints:
        one = system.joint(name)
        names = (*system.topology.bodies, world)
        child, parent = names[one.child[0]], names[one.parent[0]]
        laws: dict[int, list[str]] = {}
        for law in one.laws:
            laws.setdefault(law.coordinate, []).append(_record(law))
        first = (name, type(one.coupling).__name__, child, parent)
        units = _units(one.coupling)
        for k in range(one.coupling.dof):
            acts = laws.get(k, [])
            if one.max_effort is not None:
                acts = [*acts, f"|effort| <= {_text(one.max_effort[k])}"]
            lead = first if k == 0 else ("", "", "", "")
            rows.append((*lead, str(one.start[0] + k), units[k], "; ".join(acts)))
        if not one.coupling.dof:
            rows.append((*first, "", "", ""))
    return _table(("joints", "coupling", "child", "parent", "q", "unit", "laws"), rows)


def _contacts(system: Any, world: str) -> str:
    rows = []
    names = (*system.topology.bodies, world)
    for name in system.topology.contacts:
        one = system.contact(name)
        laws = "; ".join(map(_record, one.laws))
        rows.append((name, _record(one.geometry), names[one.child[0]], names[one.parent[0]], laws))
    return _table(("contacts", "geometry", "child", "parent", "laws"), rows)


def _transmissions(system: Any) -> str:
    rows = []
    for name in system.topology.transmissions:
        one = system.transmission(name)
        joints = ", ".join(system.topology.joints[j] for j in one.joints[0])
        laws = "; ".join(map(_record, one.laws)) or "held at 0"
        rows.append((name, _record(one.transmission), joints, laws))
    return _table(("transmissions", "values", "joints", "laws"), rows)


def _constraints(system: Any) -> str:
    rows = []
    for name in system.topology.constraints:
        one = system.constraint(name)
        bodies = ", ".join(system.topology.bodies[i] for i in one.bodies[0] if i >= 0)
        rows.append((name, _record(one.constraint), bodies, str(one.constraint.rows)))
    return _table(("constraints", "record", "bodies", "rows"), rows)


def _fields(system: Any) -> str:
    rows = []
    for name in system.topology.fields:
        one = system.field(name)
        bodies = ", ".join(system.topology.bodies[i] for i in one.bodies[0])
        rows.append((name, _record(one.field), bodies))
    return _table(("fields", "force", "bodies"), rows)


def _units(coupling: Coupling) -> list[str]:
    """Unit of each coordinate: rad where it turns C at the start, m where it only moves it."""
    k = coupling.dof
    if not k:
        return []
    try:
        T = coupling.pose(jnp.zeros(k))
        turns = np.abs(coupling.motion_subspace(T)[3:]).max(axis=0) > NO_MOTION
        return ["rad" if turn else "m" for turn in turns]
    except Exception:
        # A coupling of a user's may fail: a table is no place for that.
        return ["m or rad"] * k


def _record(record: Any) -> str:
    """A record with the fields that differ from their defaults."""
    shown = []
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if value is None or field.name in ("coordinate", "anticipate"):
            continue
        text = _record(value) if dataclasses.is_dataclass(value) else _text(value)
        if field.default is not dataclasses.MISSING and text == _text(field.default):
            continue
        shown.append(f"{field.name}={text}")
    return f"{type(record).__name__}({', '.join(shown)})"


def _text(value: Any) -> str:
    """Numbers to five digits, with blanks between; anything else as Python writes it."""
    try:
        numbers = np.asarray(value, float)
    except (TypeError, ValueError):
        return str(value)
    flat = numbers.ravel()
    words = [f"{x:.5g}" for x in flat[:MOST_NUMBERS]]
    return " ".join(words + ["…"] * (flat.size > MOST_NUMBERS))


def _count(n: int, one: str, many: str | None = None) -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; nothing without rows."""
    if not rows:
        return ""
    shown = [tuple(head), *(tuple(row) for row in rows[:MOST_ROWS])]
    widths = [max(len(row[i]) for row in shown) for i in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    if len(rows) > MOST_ROWS:
        lines.append(f"… and {len(rows) - MOST_ROWS} more")
    return "\n".join(lines)
