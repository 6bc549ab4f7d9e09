"""The static layout of all rows of a system: the rows of each joint, and their places."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from ..couplings.contact import EDGES, NORMAL
from ..couplings.nonholonomic import extra_rows
from ..laws.law import Law
from ..model.articulation import Articulation
from ..model.system import System
from ..solve.forces import Bound, Hard, Latch, Linear
from ..solve.graph import is_tree
from ..solve.paths import NEVER, paths
from ..solve.problem import RowStructure
from ..solve.tree import TreePlan

# Contacts that hold a body on a plane: beside them another one may depend on them.
HOLDING = 3


@dataclass(frozen=True)
class GroupLayout:
    """Rows of each joint of a group: first the hard ones, then one for each coordinate with laws.

    Values of a transmission and directions of a contact count as coordinates here.

    wrenches: rows taken from the matrix of all wrenches, in this order
    bilateral: number of the first rows, which hold without a law: of errors, then at velocity and
        acceleration level; 0 for a transmission, whose values are coordinates
    extra: number of the bilateral rows at velocity and acceleration level
    first: row of the first coordinate in the matrix of all wrenches
    held: coordinates held by a `Hard` law, or values of a transmission without laws
    coordinates: coordinates whose laws add up in a coordinate row
    of_tree: whether these are tree joints; their errors have no rows, and their linear laws are
        part of the bodies that they hold
    """

    wrenches: tuple[int, ...]
    bilateral: int
    extra: int
    first: int
    held: tuple[int, ...]
    coordinates: tuple[int, ...]
    of_tree: bool = False

    def place(self, coordinate: int) -> int:
        """Place of a coordinate's row among the rows of a joint."""
        return self.wrenches.index(self.first + coordinate)

    @property
    def hard(self) -> int:
        """Number of hard rows."""
        return self.bilateral + len(self.held)

    @property
    def has_error(self) -> np.ndarray:
        """True for hard rows with an error: all but those at velocity and acceleration level."""
        row = np.arange(self.hard)
        return (row < self.bilateral - self.extra) | (row >= self.bilateral)


@dataclass(frozen=True)
class Slot:
    """At most one row law of a kind on each coordinate row.

    kind: `Bound` or `Latch`
    laws: for each group and each of its coordinate rows the number of a row law of the group; None
        for none
    normal: for each coordinate row of the system the coordinate row whose impulse widens the
        bounds, the row itself for none; () where the slot has no such bound
    across: for each coordinate row of the system the other row of its round cone, likewise
    absent: coordinate rows of the system without a law in this slot
    """

    kind: type
    laws: tuple[tuple[int | None, ...], ...]
    normal: tuple[int, ...] = ()
    across: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()


@dataclass(frozen=True)
class Part:
    """Members of a group that have the same rows.

    group: number of the group in `System.all_groups`; members: places in the group
    """

    group: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """The static layout of all rows of a system.

    groups: rows of each part
    parts: the groups of `System.all_groups`; a group with tree joints held by coordinates and with
        other joints has two parts
    permutations: for each side of nodes, from those nodes of all parts that have it to the nodes of
        `Paths.sides`; None for no change
    order: the permutation of all nodes
    structure: of the problem that solvers get
    slots: of bounds and latches
    rigid: whether all joints and transmissions are rigid and all laws linear
    engages: whether some law has an engagement
    remembers: whether the forces of the last step are part of the motion: some friction follows a
        normal force, or contacts stand on bodies
    tree: further layout where coordinates hold tree joints; else None
    """

    groups: tuple[GroupLayout, ...]
    parts: tuple[Part, ...]
    permutations: tuple[tuple[int, ...] | None, ...]
    order: tuple[int, ...] | None
    structure: RowStructure
    slots: tuple[Slot, ...]
    rigid: bool
    engages: bool
    remembers: bool
    tree: "TreeLayout | None" = None

    @property
    def bounded(self) -> int:
        """Number of slots for bounded impulses; slots of latches come after them."""
        return sum(slot.kind is Bound for slot in self.slots)


@dataclass(frozen=True)
class TreeLayout:
    """The part of a layout for tree joints that coordinates hold.

    along: places of rows along coordinates of tree joints, see `Bodies`
    joints: for each joint in the order of the plan its group, its place there, and the side that it
        places (0: the child)
    branches: for each branch of the `Articulation` its joint, a place in `joints`
    whole: layout of all rows, with all joints held by rows
    """

    along: tuple[tuple[int, int, int, int], ...]
    joints: tuple[tuple[int, int, int], ...]
    branches: tuple[int, ...]
    whole: "Layout"


def layout(system: System) -> Layout:
    """The layout of a system's rows, computed once for each topology."""
    groups = _facts(system)
    rigid = all(g.rigid and all(law.kind is Linear for law in g.laws) for g in system.all_groups)
    engages = any(law.engagement is not None for g in system.all_groups for law in g.laws)
    return _layout(groups, system.topology.moving, rigid, engages)


def tree_layout(system: System, tree: Articulation) -> Layout:
    """The layout of the rows where coordinates hold the joints of a tree.

    system: of a `Mechanism`
    """
    where = {j: (g, i) for g, group in enumerate(system.groups) for i, j in enumerate(group.joints)}
    branches = tuple((*where[b.joint], b.side, b.body, b.base) for b in tree.branches)
    whole = layout(system)
    facts, moving = _facts(system), system.topology.moving
    return _layout(facts, moving, whole.rigid, whole.engages, branches, whole)


def _facts(system: System) -> tuple["_Group", ...]:
    """The static facts of all groups."""
    joints = tuple(
        _Group(
            errors=6 - group.coupling.dof,
            extra=extra_rows(group.coupling),
            laws=_laws(group.laws),
            held=(),
            bodies=tuple(zip(group.child, group.parent, strict=True)),
        )
        for group in system.groups
    )
    transmissions = tuple(
        _Group(errors=0, extra=0, laws=_laws(group.laws), held=group.held, bodies=group.bodies)
        for group in system.transmissions
    )
    constraints = tuple(
        _Group(
            errors=group.constraint.position_rows,
            extra=group.constraint.rows - group.constraint.position_rows,
            laws=(),
            held=(),
            bodies=group.bodies,
            custom=True,
        )
        for group in system.constraints
    )
    contacts = tuple(
        _Group(
            errors=0,
            extra=0,
            laws=_laws(group.laws),
            held=(),
            bodies=tuple(zip(group.child, group.parent, strict=True)),
            touches=True,
        )
        for group in system.contacts
    )
    return joints + transmissions + constraints + contacts


def engagement_size(system: System) -> int:
    """Length of `State.engagement`: a number for each coordinate, value of a transmission and
    contact, or 0 if no law has an engagement.
    """
    if not layout(system).engages:
        return 0
    return system.coordinates + system.values + len(system.topology.contacts)


@dataclass(frozen=True)
class _Law:
    """The static facts of a row law."""

    coordinate: int
    kind: type
    two_sided: bool
    normal: int | None
    across: int | None


@dataclass(frozen=True)
class _Group:
    """The static facts of a group of joints, transmissions, constraints or contacts.

    errors, extra: number of rows of errors, and of rows at velocity and acceleration level
    held: values of a transmission without laws
    bodies: of each joint or transmission, -1 for the world
    custom: whether a user wrote the rows, which may then depend on each other
    of_tree: as in a `GroupLayout`
    touches: whether these are contacts; their wrenches on both bodies are opposite
    """

    errors: int
    extra: int
    laws: tuple[_Law, ...]
    held: tuple[int, ...]
    bodies: tuple[tuple[int, ...], ...]
    custom: bool = False
    of_tree: bool = False
    touches: bool = False

    @property
    def stands_beside(self) -> int:
        """`stands_beside` of `paths`. Nodes stand whose rows have bounded laws only: normals of
        contacts, friction that follows a normal force, and that force, or the edges of a pyramid of
        friction. The floor of these laws is not small.
        """
        rows = self.rows
        bounded = {law.coordinate for law in self.laws if law.kind is Bound}
        follows = {law.coordinate for law in self.laws if law.normal is not None}
        normal = {law.normal for law in self.laws if law.normal is not None}
        edges = bounded & set(EDGES)
        normal |= (edges or {NORMAL}) if self.touches else set()
        others = [law for law in self.laws if law.kind is not Bound]
        coordinates = set(rows.coordinates)
        if rows.hard or others or not coordinates == bounded == follows | normal:
            return NEVER
        return 0 if follows or edges else HOLDING

    @property
    def rows(self) -> GroupLayout:
        """Rows of each joint."""
        laws = [law for law in self.laws if not (self.of_tree and law.kind is Linear)]
        held = tuple(sorted({*self.held, *(law.coordinate for law in laws if law.kind is Hard)}))
        coordinates = tuple(sorted({law.coordinate for law in laws} - set(held)))
        bilateral = () if self.of_tree else (*range(self.errors), *range(6, 6 + self.extra))
        wrenches = bilateral + tuple(self.errors + c for c in held + coordinates)
        extra = 0 if self.of_tree else self.extra
        return GroupLayout(
            wrenches, len(bilateral), extra, self.errors, held, coordinates, self.of_tree
        )


def _laws(laws: tuple[Law, ...]) -> tuple[_Law, ...]:
    return tuple(
        _Law(coordinate, law.kind, law.two_sided, law.normal, law.across)
        for law in laws
        for coordinate in law.along
    )


@lru_cache(maxsize=256)
def _layout(
    groups: tuple[_Group, ...],
    moving: tuple[bool, ...],
    rigid: bool,
    engages: bool,
    branches: tuple[tuple[int, int, int, int, int], ...] = (),
    whole: Layout | None = None,
) -> Layout:
    """The layout where coordinates hold branches (group, place in it, side, body, base).

    whole: the layout where rows hold all joints, None without branches
    """
    placing = {(g, i): (side, body) for g, i, side, body, _ in branches}
    parts, facts = [], []
    for g, group in enumerate(groups):
        everyone = range(len(group.bodies))
        for of_tree in (False, True):
            members = tuple(i for i in everyone if ((g, i) in placing) is of_tree)
            if members:
                bodies = tuple(group.bodies[i] for i in members)
                parts.append(Part(g, members))
                facts.append(replace(group, bodies=bodies, of_tree=of_tree))
    rows = tuple(group.rows for group in facts)
    height = max([1, *(len(part_rows.wrenches) for part_rows in rows)])
    dof = {body: 6 - groups[g].errors for g, _, _, body, _ in branches}
    plan = TreePlan.of(moving, tuple((body, base, dof[body]) for *_, body, base in branches))
    # A node is a joint or other element that has rows: the part, and which of it.
    nodes = [
        (p, i)
        for p, part_rows in enumerate(rows)
        if part_rows.wrenches
        for i in range(len(facts[p].bodies))
    ]
    acting = [(p, i) for p, i in nodes if not facts[p].of_tree]
    way = paths(
        plan,
        [facts[p].bodies[i] for p, i in acting],
        tuple(len(rows[p].wrenches) for p, _ in acting),
        [facts[p].stands_beside for p, _ in acting],
        [facts[p].touches for p, _ in acting],
    )
    order = [acting[node] for node in way.order]
    order += [(p, i) for p, i in nodes if facts[p].of_tree]
    position = {node: at for at, node in enumerate(order)}
    permutations = [
        _permutation(
            [position[p, i] for p, i in acting if len(facts[p].bodies[i]) > side], set(having)
        )
        for side, (having, _) in enumerate(way.sides)
    ]
    row, node, unused, without_error, along = [], [], [], [], []
    placed = plan.order[len(plan.roots) :]
    number = {body: joint for joint, body in enumerate(placed)}
    for p, part_rows in enumerate(rows):
        if not part_rows.wrenches:
            continue
        at = [position[p, i] for i in range(len(facts[p].bodies))]
        for coordinate in part_rows.coordinates:
            row += [part_rows.place(coordinate)] * len(at)
            node += at
        unused += [(r, place) for place in at for r in range(len(part_rows.wrenches), height)]
        lacking = np.flatnonzero(~part_rows.has_error)
        without_error += [(int(r), place) for place in at for r in lacking]
        if facts[p].touches:
            # The other directions of a contact have speeds but no coordinates.
            others = [part_rows.place(c) for c in part_rows.coordinates if c != NORMAL]
            without_error += [(r, place) for place in at for r in others]
        if facts[p].of_tree:
            for place, member in zip(at, parts[p].members, strict=True):
                joint = number[placing[parts[p].group, member][1]]
                along += [
                    (part_rows.place(c), place, c, joint)
                    for c in part_rows.held + part_rows.coordinates
                ]
    structure = RowStructure(
        way=way,
        rows=height,
        row=tuple(row),
        node=tuple(node),
        unused=tuple(unused),
        without_error=tuple(without_error),
        independent=_independent(groups, moving) if whole is None else whole.structure.independent,
        along=len(nodes) - len(acting),
    )
    where = {body: (g, i, side) for g, i, side, body, _ in branches}
    tree = None
    if whole is not None:
        joints = tuple(where[body] for body in placed)
        in_order = tuple(placed.index(body) for *_, body, _ in branches)
        tree = TreeLayout(tuple(along), joints, in_order, whole)
    return Layout(
        rows,
        tuple(parts),
        tuple(permutations),
        _permutation([position[node] for node in nodes], set(range(len(nodes)))),
        structure,
        _slots(facts, rows),
        rigid,
        engages,
        any(law.normal is not None for group in groups for law in group.laws) or bool(way.standing),
        tree,
    )


def _independent(groups: Sequence[_Group], moving: tuple[bool, ...]) -> bool:
    """`RowStructure.independent` of the rows of some groups."""
    if any(group.extra or group.custom or group.rows.held for group in groups):
        return False
    nodes = [bodies for group in groups if group.rows.wrenches for bodies in group.bodies]
    return is_tree(tuple(tuple(b if b >= 0 and moving[b] else -1 for b in on) for on in nodes))


def _permutation(places: Sequence[int], having: set[int]) -> tuple[int, ...] | None:
    """From nodes at some places to those in `having`, in elimination order; None for no change."""
    order = [n for n in np.argsort(places) if places[n] in having]
    return None if np.array_equal(order, np.arange(len(places))) else tuple(map(int, order))


def _slots(groups: Sequence[_Group], rows: Sequence[GroupLayout]) -> tuple[Slot, ...]:
    """Slots of each kind: as many as the largest number of such laws on one coordinate."""
    # For each coordinate of a group its first coordinate row in the system.
    first, total = {}, 0
    for g, (group, group_layout) in enumerate(zip(groups, rows, strict=True)):
        for coordinate in group_layout.coordinates:
            first[g, coordinate] = total
            total += len(group.bodies)
    slots = []
    for kind, two_sided in ((Bound, False), (Bound, True), (Latch, False)):
        # For each coordinate row of each group its laws of this kind.
        chosen = [
            [
                [
                    i
                    for i, law in enumerate(group.laws)
                    if law.coordinate == coordinate
                    and law.kind is kind
                    and law.two_sided == two_sided
                ]
                for coordinate in group_layout.coordinates
            ]
            for group, group_layout in zip(groups, rows, strict=True)
        ]
        most = max((len(laws) for group in chosen for laws in group), default=0)
        for rank in range(most):
            laws = tuple(
                tuple(each[rank] if rank < len(each) else None for each in group)
                for group in chosen
            )
            related = (_related(groups, rows, laws, first, field) for field in ("normal", "across"))
            absent = (
                range(first[g, coordinate], first[g, coordinate] + len(group.bodies))
                for g, (group, own) in enumerate(zip(groups, rows, strict=True))
                for coordinate, law in zip(own.coordinates, laws[g], strict=True)
                if law is None
            )
            slots.append(Slot(kind, laws, *related, tuple(chain.from_iterable(absent))))
    return tuple(slots)


def _related(
    groups: Sequence[_Group],
    rows: Sequence[GroupLayout],
    laws: tuple[tuple[int | None, ...], ...],
    first: dict[tuple[int, int], int],
    field: str,
) -> tuple[int, ...]:
    """`Slot.normal` or `Slot.across` of a slot with these laws.

    first: first coordinate row of each coordinate of a group; field: "normal" or "across"
    """
    found, some = [], False
    for g, (group, group_layout) in enumerate(zip(groups, rows, strict=True)):
        for coordinate, law in zip(group_layout.coordinates, laws[g], strict=True):
            other = None if law is None else getattr(group.laws[law], field)
            some |= other is not None
            start = first[g, coordinate if other is None else other]
            found += range(start, start + len(group.bodies))
    return tuple(found) if some else ()


class Correspondence(NamedTuple):
    """Places of the rows and coordinate rows of two layouts in each other, -1 for rows that the
    other layout does not have.

    here: for rows of the first layout, places in the second; there: for rows of the second layout,
        places in the first
    """

    rows_here: np.ndarray
    coordinates_here: np.ndarray
    rows_there: np.ndarray
    coordinates_there: np.ndarray


@lru_cache(maxsize=256)
def correspondence(plan: Layout) -> Correspondence:
    """Correspondence of the layout of all rows (first) and of a layout with a tree (second)."""
    found, whole = [], plan.tree.whole
    for own, other in ((whole, plan), (plan, whole)):
        here, theirs, structure = places(own), places(other), own.structure
        rows = np.full((structure.rows, structure.nodes), -1)
        for key, at in here.items():
            if key in theirs:
                row, node = theirs[key]
                rows[at] = row * other.structure.nodes + node
        of_place = {at: key for key, at in here.items()}
        numbers = zip(other.structure.row, other.structure.node, strict=True)
        number = {at: i for i, at in enumerate(numbers)}
        keys = [of_place[at] for at in zip(structure.row, structure.node, strict=True)]
        coordinates = [number.get(theirs.get(key, (-1, -1)), -1) for key in keys]
        found += [rows.ravel(), np.array(coordinates, int)]
    return Correspondence(*found)


@lru_cache(maxsize=256)
def places(plan: Layout) -> dict[tuple[int, int, int], tuple[int, int]]:
    """Row and node of each wrench of a layout by group, place in it, and number of the wrench."""
    nodes = plan.structure.nodes
    position = np.arange(nodes) if plan.order is None else np.argsort(plan.order)
    found, first = {}, 0
    for part, rows in zip(plan.parts, plan.groups, strict=True):
        if rows.wrenches:
            for n, member in enumerate(part.members):
                for row, wrench in enumerate(rows.wrenches):
                    found[part.group, member, wrench] = row, int(position[first + n])
            first += len(part.members)
    return found
