"""What `print` and a notebook show of records: a few lines, and tables of what they consist of.

Of a system: bodies, joints, coordinates, laws, contacts, transmissions, constraints, fields.
"""

import dataclasses
import html
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..couplings.coupling import Coupling

# Rows of a table that are shown.
MOST_ROWS = 200
# Numbers of an array that are shown.
MOST_NUMBERS = 12
# Names of a list that are shown.
MOST_NAMES = 6
NUMBERS = (jax.Array, np.ndarray, np.generic, bool, int, float)


class Table(NamedTuple):
    """Columns under their names; each row has a text for each column."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class Description:
    """Lines and tables that describe a record, as text and as HTML."""

    def __init__(self, lines: Iterable[str], tables: Iterable[Table] = ()):
        self.lines = [line for line in lines if line]
        self.tables = [table for table in tables if table.rows]

    def __str__(self) -> str:
        return "\n\n".join(["\n".join(self.lines), *map(_text_table, self.tables)])

    @property
    def html(self) -> str:
        """The same for a notebook; whatever names contain is shown and is no markup."""
        lines = "<br>".join(map(html.escape, self.lines))
        return "\n".join([f"<p>{lines}</p>", *map(_html_table, self.tables)])


def has_numbers(record: Any) -> bool:
    """Whether all leaves are numbers that are known: not traced, and not shapes alone."""
    leaves = jax.tree.leaves(record)
    return all(isinstance(x, NUMBERS) and not isinstance(x, jax.core.Tracer) for x in leaves)


def without_numbers(record: Any) -> str:
    """A record whose numbers are not known: the shape of each leaf."""
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(record))
    leaves = jax.tree_util.tree_leaves_with_path(record)
    shapes = [f"{jax.tree_util.keystr(path).lstrip('.')} {_shape(x)}" for path, x in leaves]
    return (
        f"{type(record).__name__} {'that JAX is tracing' if traced else 'of'}: {', '.join(shapes)}"
    )


def _shape(leaf: Any) -> str:
    return str(tuple(leaf.shape)) if hasattr(leaf, "shape") else repr(leaf)


def axes(batch: Sequence[int]) -> str:
    """Batch axes in words; nothing for none."""
    return f", batch of {' x '.join(map(str, batch))}" if len(batch) else ""


def span(values: Any) -> str:
    """The least and the largest of some numbers, or the one that all are."""
    numbers = np.ravel(np.asarray(values, float))
    low, high = np.nanmin(numbers, initial=math.inf), np.nanmax(numbers, initial=-math.inf)
    if not low <= high:
        return "no number"
    return f"{low:.5g}" if low == high else f"{low:.5g} to {high:.5g}"


def names(all_names: Iterable[str]) -> str:
    """Names in a row, of which the first and the last are shown where there are many."""
    shown = list(map(str, all_names))
    if len(shown) > MOST_NAMES:
        shown = [*shown[: MOST_NAMES - 1], "…", shown[-1]]
    return ", ".join(shown)


def described(system: Any, world: str) -> Description:
    """What a system consists of, with its numbers; of a batch those of the first environment.

    Bodies with mass, centre of mass and principal moments of inertia; joints with their coupling,
    bodies, the place of each coordinate in `State.q`, its unit and its laws; contacts with their
    bodies and laws; transmissions; fields.

    world: name of the world
    """
    topology = system.topology
    leaves, structure = jax.tree.flatten(system)
    if not has_numbers(system):
        traced = any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
        bodies = count(len(topology.bodies), "body", "bodies")
        why = "that JAX is tracing" if traced else "of which shapes are known"
        return Description([f"System of {bodies} {why}"])
    whole = len(leaves) == len(topology.ranks)
    if not whole or any(np.ndim(x) < rank for x, rank in zip(leaves, topology.ranks, strict=True)):
        return Description([without_numbers(system)])
    extra = [leaf.shape[rank:] for leaf, rank in zip(leaves, topology.ranks, strict=True)]
    batch = max(extra, key=len, default=())
    # By NumPy: JAX would compile a program for each shape and place.
    first = [
        np.asarray(leaf)[(..., *(0,) * len(axes))] for leaf, axes in zip(leaves, extra, strict=True)
    ]
    system = jax.tree.unflatten(structure, first)
    counts = [
        count(len(topology.bodies), "body", "bodies"),
        count(len(topology.joints), "joint"),
        count(system.coordinates, "coordinate"),
    ]
    if topology.contacts:
        counts.append(count(len(topology.contacts), "contact"))
    head = f"System of {', '.join(counts)}; gravity {_text(system.gravity)} m/s²"
    if batch:
        head += f"; environment 0 of {' x '.join(map(str, batch))}"
    tables = [_bodies(system), _joints(system, world), _contacts(system, world)]
    tables += [_transmissions(system), _constraints(system, world), _fields(system)]
    tables.append(Table(("notes",), [(note,) for note in topology.notes]))
    return Description([head], tables)


def _bodies(system: Any) -> Table:
    rows = []
    for i, name in enumerate(system.topology.bodies):
        if not system.topology.moving[i]:
            rows.append((name, "prescribed", "", ""))
            continue
        moments = np.linalg.eigvalsh(system.inertia[:, :, i])
        rows.append((name, *map(_text, (system.mass[i], system.com[:, i], moments))))
    head = "bodies", "mass [kg]", "centre of mass [m]", "principal moments [kg m²]"
    return Table(head, rows)


def _joints(system: Any, world: str) -> Table:
    rows = []
    for name in system.topology.joints:
        one = system.joint(name)
        names = (*system.topology.bodies, world)
        child, parent = names[one.child[0]], names[one.parent[0]]
        laws: dict[int, list[str]] = {}
        for law in one.laws:
            laws.setdefault(law.coordinate, []).append(_record(law))
        first = (name, type(one.coupling).__name__, child, parent)
        units = units_of(one.coupling)
        for k in range(one.coupling.dof):
            acts = laws.get(k, [])
            if one.max_effort is not None:
                acts = [*acts, f"|effort| <= {_text(one.max_effort[k])}"]
            # A name by which `System.state` and `System.control` know the coordinate.
            lead = first if k == 0 else (f"{name}.{k}", "", "", "")
            rows.append((*lead, str(one.start[0] + k), units[k], "; ".join(acts)))
        if not one.coupling.dof:
            rows.append((*first, "", "", ""))
    return Table(("joints", "coupling", "child", "parent", "q", "unit", "laws"), rows)


def _contacts(system: Any, world: str) -> Table:
    rows = []
    names = (*system.topology.bodies, world)
    for name in system.topology.contacts:
        one = system.contact(name)
        laws = "; ".join(map(_record, one.laws))
        rows.append((name, _record(one.geometry), names[one.child[0]], names[one.parent[0]], laws))
    return Table(("contacts", "geometry", "child", "parent", "laws"), rows)


def _transmissions(system: Any) -> Table:
    rows = []
    for name in system.topology.transmissions:
        one = system.transmission(name)
        joints = ", ".join(system.topology.joints[j] for j in one.joints[0])
        laws = "; ".join(map(_record, one.laws)) or "held at 0"
        rows.append((name, _record(one.transmission), joints, laws))
    return Table(("transmissions", "values", "joints", "laws"), rows)


def _constraints(system: Any, world: str) -> Table:
    rows = []
    for name in system.topology.constraints:
        one = system.constraint(name)
        known = [system.topology.bodies[i] for i in one.bodies[0] if i >= 0]
        bodies = [world if i < 0 else known[i] for i in one.arguments] or known
        rows.append((name, _record(one.constraint), ", ".join(bodies), str(one.constraint.rows)))
    return Table(("constraints", "record", "bodies", "rows"), rows)


def _fields(system: Any) -> Table:
    rows = []
    for name in system.topology.fields:
        one = system.field(name)
        bodies = ", ".join(system.topology.bodies[i] for i in one.bodies[0])
        rows.append((name, _record(one.field), bodies))
    return Table(("fields", "force", "bodies"), rows)


def units_of(coupling: Coupling) -> list[str]:
    """Unit of each coordinate."""
    k = coupling.dof
    if not k:
        return []
    try:
        return list(coupling.units())
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


def count(n: int, one: str, many: str | None = None) -> str:
    """A number of things in words."""
    return f"{n} {one if n == 1 else many or one + 's'}"


def in_words(what: str, system: Any) -> str:
    """What is done with a system, such as "rollout of 12 bodies"."""
    return f"{what} of {count(len(system.topology.bodies), 'body', 'bodies')}"


def _text_table(table: Table) -> str:
    """Columns as wide as they need to be."""
    shown = [tuple(table.head), *map(tuple, table.rows[:MOST_ROWS])]
    widths = [max(len(row[i]) for row in shown) for i in range(len(table.head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*lines, *_left_out(table)])


def _html_table(table: Table) -> str:
    def row(cells, tag):
        style = ' style="text-align: left"'
        return "".join(f"<{tag}{style}>{html.escape(cell)}</{tag}>" for cell in cells)

    rows = [row(table.head, "th"), *(row(cells, "td") for cells in table.rows[:MOST_ROWS])]
    lines = "\n".join(f"<tr>{cells}</tr>" for cells in rows)
    return "\n".join([f"<table>\n{lines}\n</table>", *_left_out(table)])


def _left_out(table: Table) -> list[str]:
    more = len(table.rows) - MOST_ROWS
    return [f"… and {more} more"] if more > 0 else []
