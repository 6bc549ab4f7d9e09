"""The static shape of all rows of a system: which rows each joint has, and where they stand."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..couplings.nonholonomic import extra_rows
from ..laws.law import Law
from ..model.system import System
from ..solve.forces import Bound, Hard, Linear
from ..solve.graph import elimination_plan, is_tree
from ..solve.problem import RowStructure


@dataclass(frozen=True)
class GroupRows:
    """Rows of a group's nodes: rows of W in their order, and which of them are coordinate rows.

    A transmission's rows are its values, which stand for coordinates here.

    bilateral: how many come first and hold without any law: the errors' and those at velocity and
        acceleration level
    first: row of the first coordinate
    hard: coordinates that are held, by a `Hard` law or, in a transmission, without any law
    soft: coordinates whose laws add up in a coordinate row
    """

    rows: tuple[int, ...]
    bilateral: int
    first: int
    hard: tuple[int, ...]
    soft: tuple[int, ...]

    def place(self, coordinate: int) -> int:
        """Place of a coordinate's row among the rows of a node."""
        return self.rows.index(self.first + coordinate)


@dataclass(frozen=True)
class Slot:
    """At most one bounded impulse for each coordinate row.

    two_sided: with lower and upper; normal: coordinate row whose impulse the bounds of each follow,
        itself where they do not; None where none does
    """

    two_sided: bool
    normal: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Layout:
    """Static shape of all rows of a system.

    groups: of the joint groups, then of the transmission groups
    orders: order of the joints or transmissions of each in a `Mechanism`, by elimination
    permutations: for each side of nodes, from the groups' nodes one after another to elimination
        order, None if the same
    bounds: slots of bounded impulses
    rigid: all joints and transmissions are, and no law but linear ones acts on them
    engages: some law has an engagement
    """

    groups: tuple[GroupRows, ...]
    orders: tuple[tuple[int, ...], ...]
    permutations: tuple[tuple[int, ...] | None, ...]
    structure: RowStructure | None
    bounds: tuple[Slot, ...]
    rigid: bool
    engages: bool


def layout(system: System) -> Layout:
    """The layout of a system's rows, computed once for each topology."""
    joints = tuple(
        (
            6 - g.coupling.dof,
            extra_rows(g.coupling),
            _laws(g.laws),
            (),
            tuple(zip(g.child, g.parent, strict=True)),
        )
        for g in system.groups
    )
    transmissions = tuple((0, 0, _laws(g.laws), g.held, g.bodies) for g in system.transmissions)
    everything = system.groups + system.transmissions
    rigid = all(g.rigid and all(x.kind is Linear for x in g.laws) for g in everything)
    engages = any(law.engagement is not None for g in everything for law in g.laws)
    return _layout(joints + transmissions, system.topology.moving, rigid, engages)


def _laws(laws: tuple[Law, ...]) -> tuple[Any, ...]:
    return tuple((law.coordinate, law.kind, law.two_sided, law.normal) for law in laws)


def impulse_size(system: System) -> int:
    """Length of `State.impulse`: what a bounded solve starts from, 0 if nothing is bounded."""
    plan = layout(system)
    if plan.structure is None or not plan.bounds:
        return 0
    nodes, coordinates = plan.structure.nodes, len(plan.structure.row)
    return plan.structure.rows * nodes + len(plan.bounds) * coordinates


def engagement_size(system: System) -> int:
    """Length of `State.engagement`: a number for each coordinate and value of a transmission, or 0
    if no law has an engagement.
    """
    return system.coordinates + system.values if layout(system).engages else 0


@lru_cache(maxsize=256)
def _layout(
    groups: tuple[Any, ...], moving: tuple[bool, ...], rigid: bool, engages: bool
) -> Layout:
    group_rows, nodes, heights, ends, owners = [], [], [], [], []
    for g, (errors, extra, laws, held, sides) in enumerate(groups):
        held = tuple(sorted({*held, *(c for c, kind, *_ in laws if kind is Hard)}))
        soft = tuple(sorted({c for c, *_ in laws} - set(held)))
        bilateral = (*range(errors), *range(6, 6 + extra))
        rows = bilateral + tuple(errors + c for c in held + soft)
        group_rows.append(GroupRows(rows, len(bilateral), errors, held, soft))
        if rows:
            ends += sides
            heights += [len(rows)] * len(sides)
            nodes += [tuple(b if b >= 0 and moving[b] else -1 for b in node) for node in sides]
            owners += [(g, i) for i in range(len(sides))]
    unordered = tuple(tuple(range(len(sides))) for *_, sides in groups)
    if not nodes:
        return Layout(tuple(group_rows), unordered, (None, None), None, (), rigid, engages)
    plan = elimination_plan(tuple(nodes), tuple(heights))
    by_group: list[list[int]] = [[] for _ in groups]
    for node in plan.order:
        g, i = owners[node]
        by_group[g].append(i)
    orders = tuple(tuple(x) or rest for x, rest in zip(by_group, unordered, strict=True))
    # Where each node of the concatenated groups stands after elimination ordering.
    position = {node: at for at, node in enumerate(plan.order)}
    node_of = {owner: node for node, owner in enumerate(owners)}
    placed = [[position[node_of[g, i]] for i in order] for g, order in enumerate(by_group)]
    concatenated = [at for group in placed for at in group]
    height = max(len(rows.rows) for rows in group_rows)
    row, node, unused, placeless = [], [], [], []
    for rows, at in zip(group_rows, placed, strict=True):
        for coordinate in rows.soft:
            row += [rows.place(coordinate)] * len(at)
            node += at
        unused += [(r, place) for place in at for r in range(len(rows.rows), height)]
        placeless += [(r, place) for place in at for r, w in enumerate(rows.rows) if w >= 6]
    bodies = len(moving)
    sides, permutations = [], []
    for side, having in enumerate(plan.sides):
        at = [ends[plan.order[i]][side] for i in having]
        sides.append((tuple(map(int, having)), tuple(b if b >= 0 else bodies for b in at)))
        order = np.argsort([i for i in concatenated if i in set(having)])
        same = np.array_equal(order, np.arange(len(order)))
        permutations.append(None if same else tuple(map(int, order)))
    only_errors = not any(g[1] or rows.hard for g, rows in zip(groups, group_rows, strict=True))
    independent = only_errors and is_tree(tuple(nodes))
    structure = RowStructure(
        plan,
        bodies,
        height,
        tuple(sides),
        tuple(row),
        tuple(node),
        tuple(unused),
        tuple(placeless),
        independent,
    )
    bounds = _slots(groups, group_rows)
    return Layout(tuple(group_rows), orders, tuple(permutations), structure, bounds, rigid, engages)


def _slots(groups: tuple[Any, ...], group_rows: list[GroupRows]) -> tuple[Slot, ...]:
    """Slots of bounded impulses: as many of each kind as a coordinate has at most."""
    # Laws (two-sided, normal) of each coordinate row, and where the row stands.
    laws_of, rows_of, at = [], [], 0
    for g, ((*_, laws, _, nodes), rows) in enumerate(zip(groups, group_rows, strict=True)):
        for coordinate in rows.soft:
            own = [(two, normal) for c, k, two, normal in laws if c == coordinate and k is Bound]
            laws_of.append((own, len(nodes), g))
            rows_of.append((g, coordinate, at))
            at += len(nodes)
    first = {(g, coordinate): at for g, coordinate, at in rows_of}
    slots = []
    for two_sided in (False, True):
        chosen = [[normal for two, normal in own if two is two_sided] for own, *_ in laws_of]
        for rank in range(max((len(own) for own in chosen), default=0)):
            normal, follows = [], False
            for own, (_, joints, g), (*_, at) in zip(chosen, laws_of, rows_of, strict=True):
                other = own[rank] if rank < len(own) else None
                follows |= other is not None
                start = at if other is None else first[g, other]
                normal += range(start, start + joints)
            slots.append(Slot(two_sided, tuple(normal) if follows else None))
    return tuple(slots)
