"""The bodies that rows act on: A = Hᵀ T H, where T maps impulses on bodies to their twists.

T is M⁻¹ for bodies that no tree joint holds. A row along a coordinate of a tree joint is eliminated
together with the coordinate (`tree`). All other rows, of loops, contacts, transmissions and
constraints, act on bodies. Their wrenches G pass the joints from there to the root,
G ← Xᵀ (G - U κ Sᵀ G). Each coordinate that they pass adds

    (Sᵀ G)ᵀ κ (Sᵀ G)

to A between all rows that pass it. A root adds Gᵀ I⁻¹ G, and a lone body, without tree joints, adds
Gᵀ M⁻¹ G. Two nodes are neighbours on the joint graph if they pass the same joint or body. If all
rows are along coordinates, A is empty, and a solve factors the tree alone.

Some nodes have rows of finite stiffness K only, and act on one moving body, such as contacts with
the ground. Such a node stands on the body: it adds H K Hᵀ to the inertia of the body before the
elimination, and is no node of the graph.

Contacts of two moving bodies stand on the pair. Their wrenches are H on the first body and -X H on
the second, so they resist the relative motion with Σ H K Hᵀ = L Lᵀ. The pair is a block of six rows
of the graph, however many contacts it has, with the wrenches L and -X L and the law u + λ = 0.

Arrays of all nodes have the nodes of the graph first, in elimination order, then the nodes that
stand on bodies or pairs, then the nodes along coordinates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import for_all_readers, materialize, stored
from ..algebra.dense import (
    cholesky_inverse,
    inverse_of_three,
    multiply,
    multiply_transposed,
    product,
    product_transposed,
    semidefinite_root,
    transposed_product,
)
from ..algebra.places import add_at, take
from ..algebra.pytree import replace, static, struct
from ..algebra.rotation import cross, dot
from ..algebra.spatial import over_mass
from .cone import Turn
from .factor import Blocks, Factor
from .graph import Plan, elimination_plan
from .tree import (
    Laws,
    Tree,
    TreeFactor,
    TreePlan,
    eliminated,
    mobilities,
    moved,
    of_tree,
    response,
    with_tree,
)

# Key of the passes of lone bodies, which no joint of the tree holds.
LONE = -2
# Key of the passes of the roots; the keys from 0 on are the levels.
ROOTS = -1
# Rows of a pair of bodies.
PAIR = 6
# Of a node that cannot stand on bodies.
NEVER = -1
# Mobility below which a row counts as one that nothing moves, in roundings of its summands.
UNMOVING = 30.0


@dataclass(frozen=True)
class Passing:
    """The nodes whose rows pass the joints of a level, the roots, or lone bodies.

    place, node: of each pass its joint, and its node, a place in the elimination order
    starts: passes at a body that a node acts on: (side, place among the nodes of the side, pass);
        sides of pairs of bodies come after sides of nodes
    beyond: (pass at the next level, pass): where wrenches arrive from joints farther out
    """

    place: tuple[int, ...]
    node: tuple[int, ...]
    starts: tuple[tuple[int, int, int], ...]
    beyond: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Paths:
    """How the rows of nodes pass the joints of a tree.

    tree: plan of the tree; without joints where rows hold all joints
    passing: (key, passes): of lone bodies, of the roots, of each level
    plan: elimination plan of the nodes of the graph and of the pairs, None without any
    sides: for each side of nodes (0 child, 1 parent, more for some nodes) its nodes and their
        bodies. Side 0 has every node, and the number of bodies in place of the world. Further sides
        leave out nodes whose body there is the world
    order: the nodes that act on bodies, numbered as they were given
    standing: for each standing node its ends on moving bodies: (side, place among the nodes of the
        side, body). A node with two ends stands on a pair
    pairs: for each pair its two bodies, and its nodes, places in `standing`
    """

    tree: TreePlan
    passing: tuple[tuple[int, Passing], ...]
    plan: Plan | None
    sides: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    order: tuple[int, ...] = ()
    standing: tuple[tuple[tuple[int, int, int], ...], ...] = ()
    pairs: tuple[tuple[tuple[int, int], tuple[int, ...]], ...] = ()

    @cached_property
    def graph(self) -> int:
        """Number of nodes on the graph."""
        return 0 if self.plan is None else len(self.plan.order) - len(self.pairs)

    @cached_property
    def in_plan(self) -> np.ndarray:
        """For each place of the elimination order the number of its node; pairs are numbered after
        the nodes of the graph.
        """
        order = [] if self.plan is None else self.plan.order
        nodes = [place for place, i in enumerate(order) if i < self.graph]
        number = {place: i for i, place in enumerate(nodes)}
        return np.array([number.get(place, i) for place, i in enumerate(order)], int)

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
    together: dict[frozenset[int], list[int]] = {}
    for node in nodes:
        one, two = (len(ends[node]) == n for n in (1, 2))
        if beside[node] != NEVER and (one or two and touches[node]):
            together.setdefault(frozenset(ends[node]), []).append(node)
    alone, on_pair = set[int](), dict[frozenset[int], list[int]]()
    for on_bodies, on in together.items():
        enough = [node for node in on if len(on) > beside[node]]
        friction, rows = 0 in (beside[node] for node in on), sum(heights[node] for node in on)
        if len(on_bodies) == 1:
            alone.update(enough)
        elif rows > PAIR or enough and not friction:
            on_pair[on_bodies] = on
    stands = alone.union(*on_pair.values())
    on_graph = [node for node in nodes if node not in stands]
    touched = [passed(tree, bodies[node]) or (-1, -1) for node in on_graph]
    touched += [passed(tree, sorted(pair)) for pair in on_pair]
    tall, plan = [heights[node] for node in on_graph] + [PAIR] * len(on_pair), None
    if touched:
        plan = elimination_plan(tuple(touched), tuple(tall))
    planned = list(plan.order) if plan else []
    order = [on_graph[i] for i in planned if i < len(on_graph)]
    order += [node for node in nodes if node in stands]
    where = {body: (LONE, i) for i, body in enumerate(tree.lone)}
    where |= {body: (ROOTS, i) for i, body in enumerate(tree.roots)}
    base: dict[int, int] = {}
    for at, ((placed, _), bases) in enumerate(zip(tree.levels, tree.bases, strict=True)):
        where |= {body: (at, i) for i, body in enumerate(placed)}
        base |= dict(zip(placed, bases, strict=True))
    passes: dict[int, dict[tuple[int, int], int]] = {}
    starts: dict[int, list[tuple[int, int, int]]] = {}
    beyond: dict[int, set[tuple[int, int]]] = {}

    def at_body(body: int, node: int) -> tuple[int, int] | None:
        """Key and pass of a node at a body; adds the passes of all bodies to the root."""
        if body not in where:
            return None
        level, place = where[body]
        here = passes.setdefault(level, {})
        number = here.setdefault((place, node), len(here))
        below = at_body(base.get(body, -1), node)
        if below is not None:
            beyond.setdefault(below[0], set()).add((number, below[1]))
        return level, number

    def start(body: int, side: int, i: int, node: int) -> None:
        found = at_body(body, node)
        if found is not None:
            starts.setdefault(found[0], []).append((side, i, found[1]))

    in_order = [bodies[node] for node in order]
    in_plan = [place for place, i in enumerate(planned) if i < len(on_graph)]
    count = 1 + max(i for on in in_order for i, body in enumerate(on) if body >= 0 or not i)
    sides, standing = [], dict[int, list[tuple[int, int, int]]]()
    for side in range(count):
        having = [node for node, on in enumerate(in_order) if _acts(on, side)]
        on = tuple(in_order[node][side] for node in having)
        sides.append((tuple(having), tuple(b if b >= 0 else tree.bodies for b in on)))
        for i, node in enumerate(having):
            if node < len(on_graph):
                start(on[i], side, i, in_plan[node])
            elif on[i] in free:
                standing.setdefault(node - len(on_graph), []).append((side, i, on[i]))
    pairs = []
    for i, on in enumerate(on_pair.values()):
        first = tuple(ends[on[0]])
        pairs.append((first, tuple(order.index(node) - len(on_graph) for node in on)))
        for side, body in enumerate(first):
            start(body, count + side, i, planned.index(len(on_graph) + i))
    return Paths(
        tree,
        tuple(
            (
                level,
                Passing(
                    place=tuple(place for place, _ in here),
                    node=tuple(node for _, node in here),
                    starts=tuple(starts.get(level, ())),
                    beyond=tuple(sorted(beyond.get(level, ()))),
                ),
            )
            for level, here in sorted(passes.items())
        ),
        plan,
        tuple(sides),
        tuple(order),
        tuple(tuple(standing[node]) for node in sorted(standing)),
        tuple(pairs),
    )


def _acts(bodies: tuple[int, ...], side: int) -> bool:
    """Whether a node on some bodies is among those of a side (`Paths.sides`)."""
    return not side or len(bodies) > side and bodies[side] >= 0


@struct
class Bodies:
    """The bodies that rows act on.

    H: wrenches of unit impulses on the bodies of each side, body axes, (6, rows, nodes of the side,
        *batch)
    inverse_mass, inverse_inertia: of all bodies [1/kg] and, body axes, [1/(kg m²)], and of the
        world, where they are 0; (bodies + 1, *batch) and (3, 3, bodies + 1, *batch)
    tree, factor: the bodies that tree joints hold, and their factor with the linear laws of the
        coordinates; None without a tree
    standing: wrenches of the standing nodes on their body, or on the first body of their pair, (6,
        rows, nodes, *batch); world axes for nodes on a single body of the tree, else body axes.
        None for no node
    coupled: A between the rows of the graph, and the mobility between the bodies of each pair, in
        the axes of the first body; None without both
    to_second: X of each pair, (6, 6, pairs, *batch): carries a wrench from the first body to the
        second, from body axes at its centre of mass to body axes at the other centre of mass
    along: for each row along a coordinate (row, node, coordinate, joint of the tree)
    """

    H: tuple[Array, ...]
    inverse_mass: Array
    inverse_inertia: Array
    tree: Tree | None = None
    factor: TreeFactor | None = None
    standing: Array | None = None
    coupled: Blocks | None = None
    to_second: Array | None = None
    way: Paths = static(default=None)
    along: tuple[tuple[int, int, int, int], ...] = static(default=())

    def of_coordinates(self, x: Array, absent: float = 0.0) -> Array:
        """Numbers of rows (rows, nodes, *batch) for all coordinates of the tree; `absent` for
        coordinates without a row.
        """
        shape = self.tree.stiffness.shape[:2]
        flat = x.reshape(-1, *x.shape[2:])
        flat = jnp.concatenate([flat, jnp.full((1, *x.shape[2:]), absent, x.dtype)])
        places = np.full(shape, len(flat) - 1)
        for row, node, coordinate, joint in self.along:
            places[coordinate, joint] = row * x.shape[1] + node
        return take(flat, places.ravel(), 0).reshape(*shape, *x.shape[2:])

    def of_rows(self, coordinates: Array, rows: int, nodes: int) -> Array:
        """Numbers of the coordinates for the nodes along coordinates, (rows, nodes, *batch); 0 for
        rows that do not exist.
        """
        batch = coordinates.shape[2:]
        flat = coordinates.reshape(-1, *batch)
        flat = jnp.concatenate([flat, jnp.zeros((1, *batch), flat.dtype)])
        at = np.full((rows, nodes), len(flat) - 1)
        for row, node, coordinate, joint in self.along:
            at[row, node - self.way.nodes] = coordinate * coordinates.shape[1] + joint
        return take(flat, at.ravel(), 0).reshape(rows, nodes, *batch)


def bodies_of_rows(**fields: Any) -> Bodies:
    """`Bodies` with these fields, with `standing` and with `coupled`."""
    bodies, pairs = Bodies(**fields), ()
    if bodies.way.standing:
        bodies = replace(bodies, standing=materialize(_of_standing(bodies)))
    if bodies.way.plan is None:
        return bodies
    if bodies.way.pairs:
        X = bodies.to_second
        unit = jnp.eye(PAIR, dtype=X.dtype).reshape(PAIR, PAIR, *(1,) * (X.ndim - 2))
        pairs = jnp.broadcast_to(unit, X.shape), -X
    return replace(bodies, coupled=materialize(blocks(bodies, bodies.factor, pairs=pairs)))


@struct
class Reduced:
    """Bodies after the elimination of all rows that are not on the graph, laws β λ + γ u = r.

    factor: of the tree; lone: L⁻¹ of the inertias of lone bodies, (6, 6, lone bodies, *batch), None
        where nothing stands on them
    pairs: wrenches of the rows of the pairs on their first and second bodies, L and -X L, (6, 6,
        pairs, *batch)
    β, γ: of the standing rows, (rows, their nodes, *batch)
    turn: of the rows that act on bodies; all numbers of rows are of turned rows. None for none
    """

    bodies: Bodies
    factor: TreeFactor | None
    lone: Array | None
    pairs: tuple[Array, ...]
    β: Array
    γ: Array
    turn: Turn | None = None

    def blocks(self) -> Blocks:
        """A between the rows of the graph and of the pairs."""
        bodies, turn = self.bodies, self.turn
        if not (bodies.along or bodies.way.standing or turn):
            return bodies.coupled
        if turn is not None and bodies.way.graph:
            sides = zip(bodies.H, bodies.way.sides, strict=True)
            H = tuple(turn.of(np.array(nodes)).rows(x, 1) for x, (nodes, _) in sides)
            bodies = replace(bodies, H=H)
        return blocks(bodies, self.factor, self.lone, self.pairs)

    def moved(
        self, impulse: Array, wanted: Array, of_pairs: Array | None = None
    ) -> tuple[Array, Array | None, Array]:
        """The motion after impulses of the rows of the graph, (rows, nodes of the graph, *batch).

        wanted: r of the eliminated rows, in an array of all nodes; of_pairs: impulses of the rows
            of the pairs, (6, pairs, *batch), None for none

        Returns: speeds of the rows of the graph; of the rows of the pairs, None without pairs;
            impulses of the eliminated rows, (rows, nodes, *batch)
        """
        bodies, way = self.bodies, self.bodies.way
        graph, acting = way.graph, way.nodes
        r = wanted[:, graph:acting]
        impulse = all_nodes([impulse, r / self.β]) if way.standing else impulse
        total = _total(bodies, impulse if self.turn is None else self.turn.back(impulse))
        firsts = [np.array(x, int) for x in zip(*(pair for pair, _ in way.pairs), strict=True)]
        if of_pairs is not None:
            for H, body in zip(self.pairs, firsts, strict=True):
                total = add_at(total, body, multiply(H, of_pairs), 1)
        twists = along = None
        if bodies.tree is not None:
            push, asked = of_tree(bodies.tree, total), bodies.of_coordinates(wanted)
            if not bodies.along:
                asked = jnp.zeros_like(asked)
            _, twists, λ = moved(bodies.tree, self.factor, push, asked)
            if λ is not None:
                along = bodies.of_rows(λ, wanted.shape[0], wanted.shape[1] - acting)
        u, apart, others = impulse, None, []
        if acting:
            v = _of_all(bodies, total, twists, self.lone)
            u = speeds_on(bodies.H, way.sides, v)
            u = u if self.turn is None else self.turn.rows(u)
            if way.pairs:
                sides = zip(self.pairs, firsts, strict=True)
                apart = sum(multiply_transposed(H, take(v, body, 1)) for H, body in sides)
        if way.standing:
            others.append((r - self.γ * u[:, graph:]) / self.β)
        return u[:, :graph], apart, all_nodes(others if along is None else [*others, along])


@struct
class RowFactor:
    """The factored matrix of all rows.

    reduced: the bodies after the elimination of the rows that are not on the graph
    of_rows: factor of the rows of the graph and of the pairs, None without any
    root: √α of all rows, (rows, nodes, *batch), None for 1
    """

    reduced: Reduced
    of_rows: Factor | None
    root: Array | None


def reduced(bodies: Bodies, β: Array, γ: Array, turn: Turn | None = None) -> Reduced:
    """The elimination of the rows that are not on the graph; β, γ: arrays of all nodes.

    turn: of all rows; β, γ and r are of turned rows. None for none
    """
    tree, way = bodies.tree, bodies.way
    turn = None if turn is None else turn.of(np.arange(way.nodes))
    standing = (x[:, way.graph : way.nodes] for x in (β, γ))
    β_standing, γ_standing = standing
    on_tree, on_lone, pairs = _loads(bodies, γ_standing / β_standing, turn)
    factor, lone = bodies.factor, None
    if bodies.along or on_tree is not None:
        laws = None
        if bodies.along:
            laws = Laws(bodies.of_coordinates(β, 1.0), bodies.of_coordinates(γ))
        factor = eliminated(tree, laws, factor.levels, on_tree)
    if on_lone is not None:
        at = np.array(way.tree.lone)
        mass, inertia = (
            1 / bodies.inverse_mass[at],
            inverse_of_three(bodies.inverse_inertia[:, :, at]),
        )
        unit = jnp.eye(3, dtype=mass.dtype).reshape(3, 3, *(1,) * mass.ndim)
        whole = on_lone.at[:3, :3].add(mass[None, None] * unit).at[3:, 3:].add(inertia)
        lone = stored(cholesky_inverse)(whole)
    return Reduced(bodies, factor, lone, pairs, β_standing, γ_standing, turn)


def _at_ends(bodies: Bodies, ends: Sequence[tuple[int, int, int]]) -> Array:
    """Wrenches of nodes at some of their ends (`Paths.standing`), body axes, (6, rows, ends,
    *batch).
    """
    sides = sorted({side for side, _, _ in ends})
    found = []
    for side in sides:
        places = [i for of, i, _ in ends if of == side]
        found.append(take(bodies.H[side], np.array(places), 2))
    order = np.argsort([n for side in sides for n, at in enumerate(ends) if at[0] == side])
    return take(_along_nodes(found), order, 2)


def _of_standing(bodies: Bodies) -> Array:
    """`Bodies.standing`."""
    H, on_tree = _at_ends(bodies, bodies.way.ends), bodies.way.alone(bodies.way.tree.order)
    if not on_tree:
        return H
    here, at = np.array(list(on_tree)), np.array(list(on_tree.values()))
    turn, own = take(bodies.tree.turn, at, 2), take(H, here, 2)
    own = jnp.concatenate([stored(product)(turn, own[i : i + 3]) for i in (0, 3)])
    others = np.setdiff1d(np.arange(H.shape[2]), here)
    if not len(others):
        return own
    return take(_along_nodes([own, take(H, others, 2)]), np.argsort([*here, *others]), 2)


def _along_nodes(parts: Sequence[Array]) -> Array:
    """Arrays (6, rows, nodes, *batch) as one."""
    batch = jnp.broadcast_shapes(*(x.shape[3:] for x in parts))
    return jnp.concatenate([jnp.broadcast_to(x, (*x.shape[:3], *batch)) for x in parts], axis=2)


def _loads(
    bodies: Bodies, K: Array, turn_of_rows: Turn | None
) -> tuple[Array | None, Array | None, tuple[Array, ...]]:
    """Loads of the standing rows, Σ H K Hᵀ.

    K: (rows, nodes, *batch); turn_of_rows: as in `Reduced`

    Returns: the loads on bodies of the tree, in the order of the tree, world axes; on lone bodies,
        body axes; (6, 6, bodies, *batch) each, None without any. Then `Reduced.pairs`
    """
    way = bodies.way
    if not way.standing:
        return None, None, ()
    H = bodies.standing
    if turn_of_rows is not None:
        H = turn_of_rows.of(np.arange(way.graph, way.nodes)).rows(H, 1)

    def load(where: dict[int, int], count: int) -> Array | None:
        """The sums of the nodes in `where`, at `count` places; where: place of each node."""
        if not where:
            return None
        here, at = np.array(list(where)), np.array(list(where.values()))
        own = take(H, here, 2)
        each = stored(product_transposed)(take(K, here, 1)[None] * own, own)
        return _summed(jnp.zeros((6, 6, 0, *each.shape[3:]), each.dtype), count, [(at, each)])

    tree, lone = way.tree.order, way.tree.lone
    single = load(way.alone(tree), len(tree)), load(way.alone(lone), len(lone))
    between = load(way.on_pairs, len(way.pairs))
    if between is None:
        return *single, ()
    root = stored(semidefinite_root)(between)
    return *single, (root, -stored(product)(bodies.to_second, root))


def velocities(bodies: Bodies, impulse: Array) -> tuple[Array, Array | None]:
    """Changes after impulses of all rows: of the twists of the bodies, body axes, (6, bodies + 1,
    *batch), and of the speeds of the rows along coordinates, None without a tree. Differentiable.
    """
    twists, speeds = changes(bodies, impulse)
    if speeds is None:
        return twists, None
    return twists, bodies.of_rows(speeds, impulse.shape[0], impulse.shape[1] - bodies.way.nodes)


def changes(bodies: Bodies, impulse: Array) -> tuple[Array, Array | None]:
    """Changes after impulses of all rows: of the twists as by `velocities`, and of the speeds of
    all coordinates of the tree, (coordinates, joints, *batch), None without a tree. Differentiable.
    """
    tree, batch = bodies.tree, impulse.shape[2:]
    if not impulse.shape[1]:
        none = jnp.zeros((6, bodies.way.tree.bodies + 1, *batch), impulse.dtype)
        size = None if tree is None else (*tree.stiffness.shape[:2], *batch)
        return none, None if size is None else jnp.zeros(size, impulse.dtype)
    total = _total(bodies, impulse[:, : bodies.way.nodes])
    if tree is None:
        # One array for all readers, in one kernel of a GPU.
        total = for_all_readers(total)
        return over_mass(bodies.inverse_mass, bodies.inverse_inertia, total), None
    push, along = of_tree(tree, total), bodies.of_coordinates(impulse)
    at, twists = response(tree, bodies.factor, push, along)
    return _of_all(bodies, total, twists), at.coordinates


def speeds_on(H: Sequence[Array], sides: Sequence, velocity: Array) -> Array | None:
    """Hᵀ v, (rows, nodes, *batch), for the twists v of the bodies, (6, bodies + 1, *batch)."""
    total = None
    for unit, (nodes, at) in zip(H, sides, strict=True):
        part = multiply_transposed(unit, velocity[:, np.array(at)])
        if total is None:
            total = part
        elif len(nodes) == total.shape[1]:
            total = total + part
        else:
            total = add_at(total, np.array(nodes), part, 1)
    return total


def _total(bodies: Bodies, impulse: Array) -> Array:
    """Impulses on the bodies and the world, body axes, (6, bodies + 1, *batch).

    impulse: of the rows that act on bodies, (rows, their nodes, *batch)
    """
    count = bodies.way.tree.bodies
    total = jnp.zeros((6, count + 1, *impulse.shape[2:]), impulse.dtype)
    for unit, (nodes, at) in zip(bodies.H, bodies.way.sides, strict=True):
        of_side = impulse if len(nodes) == impulse.shape[1] else impulse[:, np.array(nodes)]
        part = multiply(unit, of_side)
        # The world does not move.
        moving = np.flatnonzero(np.array(at) < count)
        if len(moving):
            total = add_at(total, np.array(at)[moving], take(part, moving, 1), 1)
    return total


def _of_all(bodies: Bodies, total: Array, twists: Array | None, lone: Array | None = None) -> Array:
    """Twists of all bodies and of the world, body axes, (6, bodies + 1, *batch).

    total: impulses on all bodies; twists: of the bodies of the tree, world axes; lone: see
        `Reduced`
    """
    at = np.array(bodies.way.tree.lone, int)
    alone = jnp.zeros_like(total)
    if lone is not None:
        alone = alone.at[:, at].set(multiply_transposed(lone, multiply(lone, total[:, at])))
    elif len(at):
        alone = over_mass(bodies.inverse_mass, bodies.inverse_inertia, total)
    return alone if bodies.tree is None else with_tree(bodies.tree, alone, twists)


def all_nodes(parts: Sequence[Array]) -> Array:
    """Arrays (rows, nodes, *batch) of several ranges of nodes as one."""
    if len(parts) == 1:
        return parts[0]
    batch = jnp.broadcast_shapes(*(x.shape[2:] for x in parts))
    return jnp.concatenate([jnp.broadcast_to(x, (*x.shape[:2], *batch)) for x in parts], axis=1)


def impulses_on_bodies(bodies: Bodies, impulse: Array) -> Array:
    """Impulses of all rows on the bodies that they act on, body axes, (6, bodies + 1, *batch)."""
    return _total(bodies, impulse[:, : bodies.way.nodes])


def mobility(bodies: Bodies, rows: int, nodes: int) -> Array:
    """Diagonal of A of all rows, (rows, nodes, *batch)."""
    acting = bodies.way.nodes
    mass = bodies.inverse_mass
    parts = [] if nodes else [jnp.zeros((rows, 0, *mass.shape[1:]), mass.dtype)]
    between = None
    if bodies.way.plan is not None:
        diagonal = bodies.coupled.diagonal
        if bodies.way.pairs:
            places = np.argsort(bodies.way.in_plan)
            diagonal, between = (
                take(diagonal, at, 2) for at in np.split(places, [bodies.way.graph])
            )
    if bodies.way.graph:
        parts.append(jnp.stack([diagonal[i, i] for i in range(rows)]))
    along = of_bodies = None
    if bodies.tree is not None:
        along, of_bodies = mobilities(bodies.tree, bodies.factor)
    if bodies.way.standing:
        parts.append(_standing_mobility(bodies, of_bodies, between))
    if nodes > acting:
        parts.append(bodies.of_rows(along, rows, nodes - acting))
    return all_nodes(parts)


def _standing_mobility(bodies: Bodies, of_bodies: Array | None, between: Array | None) -> Array:
    """Diagonal of A of the standing rows, (rows, their nodes, *batch).

    of_bodies: mobilities of the bodies of the tree, world axes, (6, 6, bodies, *batch)
    between: mobilities of pairs, of one body relative to the other, (6, 6, pairs, *batch), None
        without pairs
    """
    way, parts = bodies.way, []

    def nodes(where: dict[int, int]) -> tuple[Array, np.ndarray]:
        """Wrenches of the nodes in `where`, and their places."""
        return take(bodies.standing, np.array(list(where)), 2), np.array(list(where.values()))

    on_tree, on_lone = way.alone(way.tree.order), way.alone(way.tree.lone)
    if on_tree:
        H, at = nodes(on_tree)
        parts.append(_along_rows(H, take(of_bodies, at, 2)))
    if on_lone:
        H, at = nodes(on_lone)
        body = np.array(way.tree.lone)[at]
        mass, inertia = (
            take(bodies.inverse_mass, body, 0),
            take(bodies.inverse_inertia, body, 2),
        )
        parts.append(dot(H, over_mass(mass, inertia, H)))
    if way.pairs:
        H, at = nodes(way.on_pairs)
        parts.append(_along_rows(H, take(between[:PAIR, :PAIR], at, 2)))
    return take(all_nodes(parts), np.argsort([*on_tree, *on_lone, *way.on_pairs]), 1)


def _along_rows(H: Array, Λ: Array) -> Array:
    """Hᵀ Λ H of each row, (rows, nodes, *batch), with 0 in place of rounding errors of 0.

    Without this rule, a foot that its joints keep from moving sideways would have a mobility of
    1e-8 there. Its stiffness would swamp that of the other directions.
    """
    found, step = dot(H, stored(product)(Λ, H)), float(jnp.finfo(H.dtype).eps)
    most = [jnp.maximum(Λ[i, i], jnp.maximum(Λ[i + 1, i + 1], Λ[i + 2, i + 2])) for i in (0, 3)]
    size = most[0][None] * dot(H[:3], H[:3]) + most[1][None] * dot(H[3:], H[3:])
    return jnp.where(found <= UNMOVING * step * size, 0.0, found)


def blocks(
    bodies: Bodies,
    factors: TreeFactor | None,
    lone: Array | None = None,
    pairs: tuple[Array, ...] = (),
) -> Blocks:
    """A between the rows of the graph and of the pairs.

    factors: of the tree; lone, pairs: see `Reduced`
    """
    tree, way = bodies.tree, bodies.way
    on = [at for _, at in way.sides] + [
        tuple(x) for x in zip(*(b for b, _ in way.pairs), strict=True)
    ]
    tallest = max(bodies.H[0].shape[1], PAIR if way.pairs else 0)
    H = [_padded(x, tallest) for x in (*bodies.H, *pairs)]
    plan, parts = way.tree, dict(way.passing)
    turned = H if tree is None else _in_world_axes(tree, H, on)
    arriving: Array | None = None
    diagonal: list[tuple[np.ndarray, Array]] = []
    edges: list[tuple[np.ndarray, Array]] = []
    for at in reversed(range(LONE, len(plan.levels))):
        passing = parts.get(at)
        if passing is None:
            continue
        G = _wrenches(passing, H if at == LONE else turned, arriving)
        place, node = np.array(passing.place), np.array(passing.node)
        if at == LONE:
            if lone is None:
                body = np.array(plan.lone)[place]
                mass = take(bodies.inverse_mass, body, 0)
                inertia = take(bodies.inverse_inertia, body, 2)
                left, right = G, over_mass(mass, inertia, G)
            else:
                left = right = stored(product)(take(lone, place, 2), G)
        elif at == ROOTS:
            left = right = stored(product)(take(factors.roots, place, 2), G)
        else:
            first, joints = plan.spans[at][0], factors.joints[at]
            left, right, arriving = stored(_passed_on)(
                G,
                take(tree.S[:, : plan.coordinates[at]], first + place, 2),
                take(joints.U, place, 2),
                take(joints.κ, place, 1),
                take(tree.arm, first + place, 1),
            )
        if not len(left):
            # Joints without coordinates, such as welds, hand on what arrives.
            continue
        diagonal.append((node, stored(transposed_product)(left, right)))
        pairs = [
            (i, j, way.edges[passing.node[i], passing.node[j]])
            for i in range(len(node))
            for j in range(len(node))
            if place[i] == place[j] and passing.node[i] > passing.node[j]
        ]
        if pairs:
            i, j, edge = np.array(pairs).T
            values = stored(transposed_product)(take(left, i, 2), take(right, j, 2))
            edges.append((edge, values))
    r = H[0].shape[1]
    batch = jnp.broadcast_shapes(bodies.inverse_mass.shape[1:], *(x.shape[3:] for x in H))
    like = jnp.zeros((r, r, 0, *batch), H[0].dtype)
    count = len(way.plan.order)
    return Blocks(_summed(like, count, diagonal), _summed(like, len(way.edges), edges))


def _padded(H: Array, rows: int) -> Array:
    """Wrenches (6, r, nodes, *batch) with zeros for rows that do not exist."""
    missing = rows - H.shape[1]
    return jnp.pad(H, [(0, missing if i == 1 else 0) for i in range(H.ndim)]) if missing else H


def _passed_on(G: Array, S: Array, U: Array, κ: Array, arm: Array) -> tuple[Array, Array, Array]:
    """Sᵀ G and κ Sᵀ G of the coordinates that rows pass, (k, r, passes, *batch), and the wrenches G
    that arrive at the bases.
    """
    left, right = [], []
    for c in range(S.shape[1]):
        left.append(multiply_transposed(G, S[:, c]))
        right.append(κ[c][None] * left[-1])
        G = G - U[:, c][:, None] * right[-1][None]
    G = jnp.concatenate([G[:3], G[3:] + cross(arm[:, None], G[:3])])
    none = G[:0]
    return jnp.stack(left) if left else none, jnp.stack(right) if right else none, G


def _wrenches(passing: Passing, H: Sequence[Array], arriving: Array | None) -> Array:
    """G of the rows at each pass, (6, r, passes, *batch); arriving: from the passes beyond."""
    parts = []
    for side, x in enumerate(H):
        starts = [(i, number) for of, i, number in passing.starts if of == side]
        if starts:
            places, numbers = np.array(starts).T
            parts.append((numbers, take(x, places, 2)))
    if passing.beyond:
        beyond, numbers = np.array(passing.beyond).T
        parts.append((numbers, take(arriving, beyond, 2)))
    return _summed(H[0][:, :, :0], len(passing.place), parts)


def _summed(like: Array, count: int, parts: Sequence[tuple[np.ndarray, Array]]) -> Array:
    """Sums of matrices at `count` places; like: an array of no matrix, (…, …, 0, *batch)."""
    batch = jnp.broadcast_shapes(like.shape[3:], *(x.shape[3:] for _, x in parts))
    if not parts:
        return jnp.zeros((*like.shape[:2], count, *batch), like.dtype)
    places = np.concatenate([place for place, _ in parts])
    values = [jnp.broadcast_to(x, (*x.shape[:3], *batch)) for _, x in parts]
    values = values[0] if len(values) == 1 else jnp.concatenate(values, axis=2)
    if np.array_equal(np.sort(places), np.arange(count)):
        return take(values, np.argsort(places), 2)
    return add_at(jnp.zeros((*values.shape[:2], count, *batch), values.dtype), places, values, 2)


def _in_world_axes(tree: Tree, H: Sequence[Array], on: Sequence[tuple[int, ...]]) -> list[Array]:
    """Wrenches of each side in world axes, for bodies of the tree; for other bodies any numbers.

    on: the bodies of each side
    """
    place = {body: i for i, body in enumerate(tree.plan.order)}
    turned = []
    for x, bodies in zip(H, on, strict=False):
        turn = take(tree.turn, np.array([place.get(body, 0) for body in bodies], int), 2)
        turned.append(jnp.concatenate([stored(product)(turn, x[i : i + 3]) for i in (0, 3)]))
    return turned
