"""The static shape of all rows of a system: which rows each joint has, and where they stand."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .rows import Bound, Hard
from .solve.graph import elimination_plan
from .solve.problem import RowStructure
from .system import System


@dataclass(frozen=True)
class GroupRows:
    """Rows of a group's nodes: rows of W in their order, and which of them are coordinate rows.

    hard: place in `rows` of each coordinate held by a `Hard` law, by coordinate
    soft: coordinates whose laws add up in a coordinate row
    """

    rows: tuple[int, ...]
    bilateral: int
    hard: tuple[int, ...]
    soft: tuple[int, ...]

    def place(self, coordinate: int, dof: int) -> int:
        """Place of a coordinate's row among the rows of a node."""
        return self.rows.index(6 - dof + coordinate)


@dataclass(frozen=True)
class Layout:
    """Static shape of all rows of a system.

    orders: order of the joints of each group in a `Mechanism`, by elimination
    permutation: from the groups' nodes one after another to elimination order, None if the same
    bounds: for each slot of bounded impulses, whether it is two-sided
    """

    groups: tuple[GroupRows, ...]
    orders: tuple[tuple[int, ...], ...]
    permutation: tuple[int, ...] | None
    structure: RowStructure | None
    bounds: tuple[bool, ...]


def layout(system: System) -> Layout:
    """The layout of a system's rows, computed once for each topology."""
    groups = tuple(
        (
            group.coupling.dof,
            tuple((law.coordinate, law.kind, law.two_sided) for law in group.laws),
            group.child,
            group.parent,
        )
        for group in system.groups
    )
    return _layout(groups, system.topology.moving)


def impulse_size(system: System) -> int:
    """Length of `State.impulse`: what a bounded solve starts from, 0 if nothing is bounded."""
    plan = layout(system)
    if plan.structure is None or not plan.bounds:
        return 0
    nodes, coordinates = plan.structure.nodes, len(plan.structure.row)
    return plan.structure.rows * nodes + len(plan.bounds) * coordinates


@lru_cache(maxsize=256)
def _layout(groups: tuple[Any, ...], moving: tuple[bool, ...]) -> Layout:
    group_rows, nodes, owners = [], [], []
    for g, (dof, laws, child, parent) in enumerate(groups):
        held = tuple(sorted({c for c, kind, _ in laws if kind is Hard}))
        soft = tuple(sorted({c for c, _, _ in laws} - set(held)))
        rows = tuple(range(6 - dof)) + tuple(6 - dof + c for c in held + soft)
        group_rows.append(GroupRows(rows, 6 - dof, held, soft))
        if rows:
            immovable = {b: -1 for b in child + parent if b < 0 or not moving[b]}
            nodes += [
                (immovable.get(c, c), immovable.get(p, p))
                for c, p in zip(child, parent, strict=True)
            ]
            owners += [(g, i) for i in range(len(child))]
    bounds = _slots(groups, group_rows)
    if not nodes:
        orders = tuple(tuple(range(len(child))) for _, _, child, _ in groups)
        return Layout(tuple(group_rows), orders, None, None, ())
    plan = elimination_plan(tuple(nodes))
    position = {node: at for at, node in enumerate(plan.order)}
    by_group: list[list[int]] = [[] for _ in groups]
    for node in plan.order:
        g, i = owners[node]
        by_group[g].append(i)
    orders = tuple(
        tuple(order) if order else tuple(range(len(child)))
        for order, (_, _, child, _) in zip(by_group, groups, strict=True)
    )
    # Where each node of the concatenated groups stands after elimination ordering.
    first = np.cumsum([0] + [len(order) for order in by_group])
    node_of = {owner: node for node, owner in enumerate(owners)}
    concatenated = [position[node_of[g, i]] for g, order in enumerate(by_group) for i in order]
    permutation = tuple(int(i) for i in np.argsort(concatenated))
    height = max(len(rows.rows) for rows in group_rows)
    bodies = len(moving)
    row, node, unused, child_of, parent_of = [], [], [], {}, {}
    for g, (dof, _, child, parent) in enumerate(groups):
        rows = group_rows[g]
        if not rows.rows:
            continue
        at = [concatenated[first[g] + i] for i in range(len(by_group[g]))]
        for coordinate in rows.soft:
            row += [rows.place(coordinate, dof)] * len(at)
            node += at
        for i, place in zip(by_group[g], at, strict=True):
            child_of[place] = child[i] if child[i] >= 0 else bodies
            parent_of[place] = parent[i] if parent[i] >= 0 else bodies
            unused += [(r, place) for r in range(len(rows.rows), height)]
    structure = RowStructure(
        plan,
        bodies,
        height,
        tuple(
            (tuple(range(len(nodes))), tuple(of[i] for i in range(len(nodes))))
            for of in (child_of, parent_of)
        ),
        tuple(row),
        tuple(node),
        tuple(unused),
    )
    same = permutation == tuple(range(len(nodes)))
    return Layout(tuple(group_rows), orders, None if same else permutation, structure, bounds)


def _slots(groups: tuple[Any, ...], group_rows: list[GroupRows]) -> tuple[bool, ...]:
    """Slots of bounded impulses: as many of each kind as a coordinate has at most."""
    most = {False: 0, True: 0}
    for (_, laws, _, _), rows in zip(groups, group_rows, strict=True):
        for coordinate in rows.soft:
            for two_sided in most:
                wanted = [c == coordinate and k is Bound and t is two_sided for c, k, t in laws]
                most[two_sided] = max(most[two_sided], sum(wanted))
    return (False,) * most[False] + (True,) * most[True]
