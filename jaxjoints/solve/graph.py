"""The joint graph and the order in which its nodes are eliminated, computed once, in numpy.

A node of the graph is a block of rows: of one element, or of several small ones (`merged`). It
passes bodies: those that its rows act on, and with tree joints all bodies between these and their
roots. Two nodes that pass the same body are neighbours, and a block of the matrix couples them.
Eliminating a node connects its remaining neighbours (fill). Nodes that are not neighbours are
eliminated together, as one level of a nested dissection: a chain of n nodes has about log₂ n
levels. Loops are edges like others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np

# How far above the smallest degree a node may lie and still join the current level.
MARGIN = 2
# Rows of nodes that become one.
MERGED_ROWS = 6
# Height of nodes that use all rows of the problem.
ALL_ROWS = 1 << 30


@dataclass(frozen=True, eq=False)
class Level:
    """Nodes eliminated together (pivots), and their updates of later nodes.

    The edges of a level lead from its pivots to the neighbours that come later. Pivots are sorted
    by descending number of neighbours. Slot s holds the s-th neighbour of the first counts[s]
    pivots, which have so many.

    start, stop: range of the pivots in the elimination order
    height: rows of the tallest pivot; reach: rows of the tallest of their neighbours
    first, last: range of the edges in the storage
    counts: number of pivots in each slot
    pivot: of each edge, counted from `start`; neighbour: of each edge, position in the order
    early, late: pairs of edges that share a pivot, in slots s < t, counted from `first`; target:
        the place of the edge between their neighbours
    """

    start: int
    stop: int
    height: int
    reach: int
    first: int
    last: int
    counts: tuple[int, ...]
    pivot: np.ndarray
    neighbour: np.ndarray
    early: np.ndarray
    late: np.ndarray
    target: np.ndarray


@dataclass(frozen=True, eq=False)
class Plan:
    """Elimination order, levels, storage and assembly of one joint graph.

    Two plans of the same nodes and heights are equal.

    nodes: bodies that each node passes, -1 for bodies that impulses do not move
    heights: number of rows of each node
    order: node at each position of the elimination order, in which all arrays are given
    levels: contiguous ranges of positions
    row, column: positions of the two nodes of each edge, row the later, shape (edges,)
    """

    nodes: tuple[tuple[int, ...], ...]
    heights: tuple[int, ...]
    order: tuple[int, ...]
    levels: tuple[Level, ...]
    row: np.ndarray
    column: np.ndarray

    @cached_property
    def _hash(self) -> int:
        return hash((self.nodes, self.heights))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        same = isinstance(other, Plan) and self.nodes == other.nodes
        return same and self.heights == other.heights


def is_tree(nodes: tuple[tuple[int, ...], ...]) -> bool:
    """Whether the nodes, each an edge between two bodies, make a forest; the world is one body."""
    root: dict[int, int] = {}

    def top(body):
        while body in root:
            body = root[body]
        return body

    for node in nodes:
        if len(node) > 2 or (a := top(node[0])) == (b := top(node[1])):
            return False
        root[a] = b
    return True


@lru_cache(maxsize=256)
def elimination_plan(
    nodes: tuple[tuple[int, ...], ...], heights: tuple[int, ...] | None = None
) -> Plan:
    """Plan of a joint graph.

    nodes: bodies that each node passes, each moving body once; -1 for the world and for bodies of
        prescribed motion, which couple nothing
    heights: number of rows of each node, by default all rows of the problem
    """
    heights = (ALL_ROWS,) * len(nodes) if heights is None else heights
    levels = _independent_sets(_adjacency(nodes))
    order = [node for level in levels for node, _ in level]
    position = {node: i for i, node in enumerate(order)}

    # Storage of the edges: level by level, slot by slot, pivot by pivot.
    layout, place = [], {}
    for level in levels:
        later = [sorted(position[other] for other in neighbours) for _, neighbours in level]
        pivots = [position[node] for node, _ in level]
        slots = len(later[0])
        edges = [(p, s) for s in range(slots) for p in range(len(level)) if len(later[p]) > s]
        first = len(place)
        for p, s in edges:
            place[later[p][s], pivots[p]] = len(place)
        layout.append((pivots, later, edges, first))
    row, column = _columns(list(place), 2)
    return Plan(
        nodes=nodes,
        heights=heights,
        order=tuple(order),
        levels=tuple(_level(*each, place, [heights[node] for node in order]) for each in layout),
        row=row,
        column=column,
    )


def merged(nodes: tuple[tuple[int, ...], ...], heights: Sequence[int]) -> list[list[int]]:
    """Groups of nodes with the same neighbours, each of `MERGED_ROWS` rows at most: one block in
    place of many small ones.
    """
    found: dict[frozenset[int], list[list[int]]] = {}
    for node, neighbours in enumerate(_adjacency(nodes)):
        alike = found.setdefault(frozenset(neighbours | {node}), [[]])
        if sum(heights[i] for i in alike[-1]) + heights[node] > MERGED_ROWS:
            alike.append([])
        alike[-1].append(node)
    return [block for alike in found.values() for block in alike if block]


def _adjacency(nodes: tuple[tuple[int, ...], ...]) -> list[set[int]]:
    on_body: dict[int, set[int]] = {}
    for i, sides in enumerate(nodes):
        for body in sides:
            if body >= 0:
                on_body.setdefault(body, set()).add(i)
    return [
        set().union(*(on_body[body] for body in sides if body >= 0)) - {i}
        for i, sides in enumerate(nodes)
    ]


def _independent_sets(adjacency: list[set[int]]) -> list[list[tuple[int, set[int]]]]:
    """Nodes of each level with their later neighbours, most neighbours first; consumes its input.

    A level is a maximal independent set among the nodes of low degree. Among equal degrees the node
    with the fewest free neighbours goes first, which takes every other node of a chain.
    """
    remaining = set(range(len(adjacency)))
    levels = []
    while remaining:
        limit = min(len(adjacency[i]) for i in remaining) + MARGIN
        free = {i for i in remaining if len(adjacency[i]) <= limit}
        chosen = []
        while free:
            node = min(free, key=lambda i: (len(adjacency[i]), len(adjacency[i] & free), i))
            chosen.append(node)
            free -= adjacency[node] | {node}
        level = [(node, adjacency[node]) for node in chosen]
        for node, neighbours in level:
            for other in neighbours:
                adjacency[other] |= neighbours
                adjacency[other] -= {node, other}
        remaining -= set(chosen)
        levels.append(sorted(level, key=lambda item: (-len(item[1]), item[0])))
    return levels


def _level(pivots, later, edges, first, place, heights) -> Level:
    index = {edge: e for e, edge in enumerate(edges)}
    slots = len(later[0])
    updates = [
        (index[p, s], index[p, t], place[later[p][t], later[p][s]])
        for s, t in combinations(range(slots), 2)
        for p in range(len(pivots))
        if len(later[p]) > t
    ]
    early, late, target = _columns(updates, 3)
    pivot, neighbour = _columns([(p, later[p][s]) for p, s in edges], 2)
    return Level(
        start=pivots[0],
        stop=pivots[-1] + 1,
        height=max(heights[i] for i in pivots),
        reach=max((heights[i] for neighbours in later for i in neighbours), default=0),
        first=first,
        last=first + len(edges),
        counts=tuple(sum(len(each) > s for each in later) for s in range(slots)),
        pivot=pivot,
        neighbour=neighbour,
        early=early,
        late=late,
        target=target,
    )


def _columns(rows: list, width: int) -> np.ndarray:
    """Rows of equal length as one array per column, also if there are none."""
    return np.array(rows, dtype=np.int32).reshape(-1, width).T
