"""Which bodies and joints the rows act on and pass, and where they stand: static, in numpy.

Rows that act on bodies pass all joints from there to the root (`bodies`). Nodes of rows are either
on the graph, in blocks, or stand on a body or on a pair of bodies.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.places import looked_up, take
from .coordinates import CoordinatePlan, coordinate_plan
from .graph import Plan, elimination_plan, merged
from .tree import TreePlan

# Key of the passes of lone bodies, which no joint of the tree holds.
LONE = -2
# Key of the passes of the roots; the keys from 0 on are the levels.
ROOTS = -1
# Of a node that cannot stand on bodies.
NEVER = -1
# Relative motions of two free bodies.
RELATIVE_MOTIONS = 6


@dataclass(frozen=True)
class Passing:
    """The blocks whose rows pass the joints of a level, the roots, or lone bodies.

    place, block: of each pass its joint, and its block of rows, a place in the elimination order
    starts: passes at a body that a block acts on: (end of `Paths.ends_of_blocks`, pass)
    beyond: (pass at the next level, pass): where wrenches arrive from joints farther out
    """

    place: tuple[int, ...]
    block: tuple[int, ...]
    starts: tuple[tuple[int, int], ...]
    beyond: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Paths:
    """How the rows of nodes pass the joints of a tree.

    tree: plan of the tree; without joints where rows hold all joints
    passing: (key, passes): of lone bodies, of the roots, of each level
    plan: elimination plan of the blocks of the graph, None without any
    blocks: rows of each block, (row, node): small nodes with the same neighbours are one
    sides: for each side of nodes (0 child, 1 parent, more for some nodes) its nodes and their
        bodies. Side 0 has every node, and the number of bodies in place of the world. Further sides
        leave out nodes whose body there is the world
    order: the nodes that act on bodies, numbered as they were given
    standing: for each standing node its ends on moving bodies: (side, place among the nodes of the
        side, body). A node with two ends stands on a pair
    pairs: for each pair its two bodies, and its nodes, places in `standing`; with a pair, one
        matrix of all coordinates replaces the elimination of the tree
    """

    tree: TreePlan
    passing: tuple[tuple[int, Passing], ...]
    plan: Plan | None
    blocks: tuple[tuple[tuple[int, int], ...], ...] = ()
    sides: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    order: tuple[int, ...] = ()
    standing: tuple[tuple[tuple[int, int, int], ...], ...] = ()
    pairs: tuple[tuple[tuple[int, int], tuple[int, ...]], ...] = ()

    @cached_property
    def graph(self) -> int:
        """Number of nodes on the graph."""
        return len({node for rows in self.blocks for _, node in rows})

    @cached_property
    def _rows(self) -> np.ndarray:
        """(row, node) of each row of each block, -1 for none, (2, rows, blocks)."""
        found = np.full((2, max(map(len, self.blocks)), len(self.blocks)), -1)
        for i, rows in enumerate(self.blocks):
            found[:, : len(rows), i] = np.transpose(rows)
        return found

    def of_blocks(self, x: Array, filler: float = 0.0) -> Array:
        """Numbers of rows of the graph, (rows, nodes, *batch), by blocks, (rows, blocks, *batch).

        filler: of rows that do not exist
        """
        row, node = self._rows
        flat = x.reshape(-1, *x.shape[2:])
        places = np.where(node < 0, len(flat), row * x.shape[1] + node)
        if (node < 0).any():
            flat = jnp.concatenate([flat, jnp.full_like(flat[:1], filler)])
        return take(flat, places.ravel(), 0).reshape(*node.shape, *x.shape[2:])

    def of_nodes(self, x: Array, rows: int) -> Array:
        """Numbers by blocks, (rows, blocks, *batch), for the nodes of the graph, (`rows`, nodes,
        *batch); 0 for rows that do not exist.
        """
        where = np.full((rows, self.graph), -1)
        row, node = self._rows
        exist = node >= 0
        where[row[exist], node[exist]] = np.flatnonzero(exist)
        return looked_up(x, where, where.shape)

    @cached_property
    def ends_of_blocks(self) -> tuple[tuple[int, int, tuple[tuple[int, int, int], ...]], ...]:
        """Each block and body that it acts on, with its rows there: (row of the block, row of its
        node, column of the node where the wrenches of all sides stand side by side). A body comes
        again for rows that act on it by a second side.
        """
        found: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
        first = 0
        for side, (nodes, bodies) in enumerate(self.sides):
            at = {
                node: (first + i, body)
                for i, (node, body) in enumerate(zip(nodes, bodies, strict=True))
                if node < self.graph
            }
            first += sum(node < self.graph for node in nodes)
            for number, rows in enumerate(self.blocks):
                for i, (row, node) in enumerate(rows):
                    if node in at:
                        place, body = at[node]
                        found.setdefault((side, number, body), []).append((i, row, place))
        return tuple((number, body, tuple(rows)) for (_, number, body), rows in found.items())

    @cached_property
    def coordinates(self) -> CoordinatePlan | None:
        """Plan of the matrix of all coordinates, None where the tree is eliminated."""
        if not self.pairs:
            return None
        return coordinate_plan(self.tree, self.loaded, [bodies for bodies, _ in self.pairs])

    @cached_property
    def loaded(self) -> tuple[int, ...]:
        """The bodies of the tree on which nodes stand, in its order."""
        order = self.tree.order
        return tuple(order[i] for i in sorted(set(self.alone(order).values())))

    @cached_property
    def on_pairs(self) -> dict[int, int]:
        """The pair of each node that stands on one, by its place in `standing`."""
        return {n: pair for pair, (_, on) in enumerate(self.pairs) for n in on}

    @cached_property
    def ends(self) -> list[tuple[int, int, int]]:
        """Of each standing node its end on the body, or on the first body of its pair."""
        return [
            next(end for end in each if n not in self.on_pairs or end[2] == self._first(n))
            for n, each in enumerate(self.standing)
        ]

    @cached_property
    def _hash(self) -> int:
        return hash((self.tree, self.plan, self.blocks, self.sides, self.order, self.standing))

    def __hash__(self) -> int:
        return self._hash

    def alone(self, order: Sequence[int]) -> dict[int, int]:
        """For each node that stands on a single one of some bodies, the place of this body."""
        place = {body: i for i, body in enumerate(order)}
        ends = [(n, body) for n, (_, _, body) in enumerate(self.ends) if n not in self.on_pairs]
        return {n: place[body] for n, body in ends if body in place}

    def _first(self, node: int) -> int:
        """The first body of the pair on which a node stands."""
        return self.pairs[self.on_pairs[node]][0][0]

    @cached_property
    def nodes(self) -> int:
        """Number of nodes that act on bodies."""
        return self.graph + len(self.standing)

    @cached_property
    def edges(self) -> dict[tuple[int, int], int]:
        """The place of each edge by its later and its earlier node."""
        if self.plan is None:
            return {}
        pairs = zip(self.plan.row, self.plan.column, strict=True)
        return {(int(i), int(j)): e for e, (i, j) in enumerate(pairs)}


def passed(tree: TreePlan, bodies: Sequence[int]) -> tuple[int, ...]:
    """Bodies from some bodies to the roots, whose tree joints a row on these bodies passes."""
    base = {
        body: at
        for (placed, _), bases in zip(tree.levels, tree.bases, strict=True)
        for body, at in zip(placed, bases, strict=True)
    }
    free = {*tree.roots, *tree.lone, *base}
    found: list[int] = []
    for body in bodies:
        while body in free and body not in found:
            found.append(body)
            body = base.get(body, -1)
    return tuple(found)


def free_bodies(tree: TreePlan) -> set[int]:
    """The bodies that impulses move."""
    return {*tree.roots, *tree.lone, *(body for placed, _ in tree.levels for body in placed)}


def paths(
    tree: TreePlan,
    bodies: Sequence[tuple[int, ...]],
    heights: Sequence[int],
    stands_beside: Sequence[int] | None = None,
    touches: Sequence[bool] | None = None,
) -> Paths:
    """How nodes pass a tree.

    bodies: of each node the bodies of its sides (child, parent, …), -1 for the world
    heights: number of rows of each node
    stands_beside: of each node how many others that can stand must act on the same bodies for it to
        stand, `NEVER` where not all its laws have a finite stiffness; None: no node stands
    touches: whether a node has opposite wrenches on its two bodies, as a contact has; None: no node
    """
    if not bodies:
        return Paths(tree, (), None)
    free, nodes = free_bodies(tree), range(len(bodies))
    beside = stands_beside or [NEVER] * len(bodies)
    touches = touches or [False] * len(bodies)
    ends = [[body for body in sides if body in free] for sides in bodies]
    alone, pairs = _standing(tree, ends, heights, beside, touches)
    stands = alone.union(*pairs.values())
    on_graph = [node for node in nodes if node not in stands]
    plan, alike = None, []
    if on_graph:
        joined = _joined(tree, list(pairs))
        touched = [
            tuple({joined.get(body, body): 0 for body in passed(tree, bodies[node])}) or (-1, -1)
            for node in on_graph
        ]
        tall = [heights[node] for node in on_graph]
        alike = merged(tuple(touched), tall)
        plan = elimination_plan(
            tuple(tuple({body for i in block for body in touched[i]}) for block in alike),
            tuple(sum(tall[i] for i in block) for block in alike),
        )
        alike = [alike[block] for block in plan.order]
    order, blocks = [], []
    for block in alike:
        first = len(order)
        order += [on_graph[i] for i in block]
        blocks.append(
            tuple((row, first + n) for n, i in enumerate(block) for row in range(tall[i]))
        )
    order += [node for node in nodes if node in stands]
    in_order = [bodies[node] for node in order]
    count = 1 + max(i for on in in_order for i, body in enumerate(on) if body >= 0 or not i)
    sides, standing = [], dict[int, list[tuple[int, int, int]]]()
    for side in range(count):
        having = [node for node, on in enumerate(in_order) if _acts(on, side)]
        on = tuple(in_order[node][side] for node in having)
        sides.append((tuple(having), tuple(b if b >= 0 else tree.bodies for b in on)))
        for i, node in enumerate(having):
            if node >= len(on_graph) and on[i] in free:
                standing.setdefault(node - len(on_graph), []).append((side, i, on[i]))
    position = {node: i for i, node in enumerate(order)}
    found = Paths(
        tree,
        (),
        plan,
        tuple(blocks),
        tuple(sides),
        tuple(order),
        tuple(tuple(standing[node]) for node in sorted(standing)),
        tuple(
            (on_bodies, tuple(position[node] - len(on_graph) for node in on))
            for on_bodies, on in pairs.items()
        ),
    )
    return found if pairs else with_fields(found, passing=_passing(found))


def _standing(
    tree: TreePlan,
    ends: Sequence[Sequence[int]],
    heights: Sequence[int],
    beside: Sequence[int],
    touches: Sequence[bool],
) -> tuple[set[int], dict[tuple[int, int], list[int]]]:
    """The nodes that stand on one body, and for each pair of bodies the nodes that stand on it.

    ends: of each node the bodies that impulses move; others: as in `paths`
    """
    together: dict[frozenset[int], list[int]] = {}
    for node, on in enumerate(ends):
        if beside[node] != NEVER and (len(on) == 1 or len(on) == 2 and touches[node]):
            together.setdefault(frozenset(on), []).append(node)
    for on in together.values():
        on[:] = [node for node in on if len(on) > beside[node]]
    alone = {node for bodies, on in together.items() for node in on if len(bodies) == 1}
    pairs = {
        tuple(ends[on[0]]): on
        for bodies, on in together.items()
        if on and len(bodies) == 2 and _moves(tree, *bodies)
    }
    # Rows of two bodies depend on each other where there are more of them than relative motions.
    # Else they are as good as one matrix of all coordinates, while there are fewer of them.
    rows = {pair: sum(heights[node] for node in on) for pair, on in pairs.items()}
    depend = any(
        rows[pair] > RELATIVE_MOTIONS or any(beside[n] for n in on) for pair, on in pairs.items()
    )
    return alone, pairs if depend or sum(rows.values()) > tree.size else {}


def _moves(tree: TreePlan, first: int, second: int) -> bool:
    """Whether a coordinate moves one body relative to another one."""
    placed = tree.order[len(tree.roots) :]
    still = {body for body, count in zip(placed, tree.counts, strict=True) if not count}
    return not {*passed(tree, [first])} ^ {*passed(tree, [second])} <= still


def _joined(tree: TreePlan, pairs: Sequence[tuple[int, int]]) -> dict[int, int]:
    """One number for all bodies of the trees that pairs join; nothing for bodies of other trees."""
    of_tree: dict[int, set[int]] = {}
    for body in free_bodies(tree):
        of_tree.setdefault(passed(tree, [body])[-1], set()).add(body)
    number: dict[int, int] = {}
    for pair in pairs:
        joined: set[int] = set()
        for body in pair:
            at = number.get(body)
            own = of_tree[passed(tree, [body])[-1]]
            joined |= own if at is None else {b for b, n in number.items() if n == at}
        number |= dict.fromkeys(joined, tree.bodies + min(joined))
    return number


def _passing(way: Paths) -> tuple[tuple[int, Passing], ...]:
    """`Paths.passing`."""
    tree = way.tree
    where = {body: (LONE, i) for i, body in enumerate(tree.lone)}
    where |= {body: (ROOTS, i) for i, body in enumerate(tree.roots)}
    base: dict[int, int] = {}
    for at, ((placed, _), bases) in enumerate(zip(tree.levels, tree.bases, strict=True)):
        where |= {body: (at, i) for i, body in enumerate(placed)}
        base |= dict(zip(placed, bases, strict=True))
    passes: dict[int, dict[tuple[int, int], int]] = {}
    starts: dict[int, list[tuple[int, int]]] = {}
    beyond: dict[int, set[tuple[int, int]]] = {}

    def at_body(body: int, block: int) -> tuple[int, int] | None:
        """Key and pass of a block at a body; adds the passes of all bodies to the root."""
        if body not in where:
            return None
        level, place = where[body]
        here = passes.setdefault(level, {})
        number = here.setdefault((place, block), len(here))
        below = at_body(base.get(body, -1), block)
        if below is not None:
            beyond.setdefault(below[0], set()).add((number, below[1]))
        return level, number

    for end, (block, body, _) in enumerate(way.ends_of_blocks):
        at = at_body(body, block)
        if at is not None:
            starts.setdefault(at[0], []).append((end, at[1]))
    return tuple(
        (
            level,
            Passing(
                place=tuple(place for place, _ in here),
                block=tuple(block for _, block in here),
                starts=tuple(starts.get(level, ())),
                beyond=tuple(sorted(beyond.get(level, ()))),
            ),
        )
        for level, here in sorted(passes.items())
    )


def _acts(bodies: tuple[int, ...], side: int) -> bool:
    """Whether a node on some bodies is among those of a side (`Paths.sides`)."""
    return not side or len(bodies) > side and bodies[side] >= 0
