"""The bodies that rows act on: A = Hᵀ T H, with T what bodies do after impulses.

T is M⁻¹ where no tree joint holds a body. A row along a coordinate of a tree joint is eliminated
with it (`tree`). All others, those of loops, contacts, transmissions and constraints, act on
bodies. What their wrenches G leave at a joint goes on towards the root, G ← Xᵀ (G - U κ Sᵀ G), and
each coordinate that they pass adds

    (Sᵀ G)ᵀ κ (Sᵀ G)

to A between all rows that pass it; a root adds Gᵀ I⁻¹ G, a body that no joint of the tree holds
Gᵀ M⁻¹ G. Two nodes of rows are neighbours on the joint graph if they pass the same joint or body.

In arrays of all nodes those that act on bodies come first, in the order of elimination, then those
along coordinates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import for_all_readers, materialize, stored
from ..algebra.dense import multiply, multiply_transposed, product, transposed_product
from ..algebra.places import add_at, take
from ..algebra.pytree import replace, static, struct
from ..algebra.rotation import cross
from ..algebra.spatial import over_mass
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

# Where rows pass bodies that no joint of the tree holds.
LONE = -2
# Where they pass the roots; from 0 on, the levels.
ROOTS = -1


@dataclass(frozen=True)
class Passing:
    """The nodes whose rows pass the joints of a level, the roots, or lone bodies.

    place, node: of each pass, which joint, and which node
    starts: pairs of passes and sides of nodes, (side, place among the nodes of the side, pass)
    beyond: (pass at the level after it, pass)
    """

    place: tuple[int, ...]
    node: tuple[int, ...]
    starts: tuple[tuple[int, int, int], ...]
    beyond: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Paths:
    """How the rows of nodes pass the joints of a tree.

    tree: of the bodies; without any joint where rows hold all
    passing: at lone bodies, at the roots, at each level, by their numbers
    plan: of the nodes that act on bodies, None where there are none
    sides: for each side that nodes have (0 child, 1 parent, further ones of some nodes only) its
        nodes and the bodies there, the number of bodies standing for the world
    """

    tree: TreePlan
    passing: tuple[tuple[int, Passing], ...]
    plan: Plan | None
    sides: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()

    @cached_property
    def nodes(self) -> int:
        """How many nodes act on bodies."""
        return 0 if self.plan is None else len(self.plan.order)

    @cached_property
    def edges(self) -> dict[tuple[int, int], int]:
        """The place of each edge by its later and its earlier node."""
        if self.plan is None:
            return {}
        pairs = zip(self.plan.row, self.plan.column, strict=True)
        return {(int(i), int(j)): e for e, (i, j) in enumerate(pairs)}


def passed(tree: TreePlan, bodies: Sequence[int]) -> tuple[int, ...]:
    """Bodies whose joints, and the roots, that rows on some bodies pass."""
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


def paths(tree: TreePlan, bodies: Sequence[tuple[int, ...]], heights: Sequence[int]) -> Paths:
    """How nodes pass a tree.

    bodies: of each node those of its sides (child, parent, …), -1 for the world
    heights: how many rows each node has
    """
    if not bodies:
        return Paths(tree, (), None)
    touched = tuple(passed(tree, sides) or (-1, -1) for sides in bodies)
    plan = elimination_plan(touched, tuple(heights))
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
        """Level and pass of a node at a body, and at all bodies between it and the root."""
        if body not in where:
            return None
        level, place = where[body]
        here = passes.setdefault(level, {})
        number = here.setdefault((place, node), len(here))
        below = at_body(base.get(body, -1), node)
        if below is not None:
            beyond.setdefault(below[0], set()).add((number, below[1]))
        return level, number

    order = [bodies[node] for node in plan.order]
    sides = []
    for side in range(max(map(len, order))):
        having = [node for node, on in enumerate(order) if len(on) > side]
        on = tuple(order[node][side] for node in having)
        sides.append((tuple(having), tuple(b if b >= 0 else tree.bodies for b in on)))
        for i, node in enumerate(having):
            found = at_body(on[i], node)
            if found is not None:
                starts.setdefault(found[0], []).append((side, i, found[1]))
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
    )


@struct
class Bodies:
    """The bodies that rows act on.

    H: wrenches of unit impulses of the rows that act on bodies, on those of each side in their
        axes, (6, rows, nodes of the side, *batch)
    inverse_mass, inverse_inertia: of all bodies and of the world, where they are 0, [1/kg] and, in
        the axes of H, [1/(kg m²)], (bodies + 1, *batch) and (3, 3, bodies + 1, *batch)
    tree, factor: the bodies that tree joints hold, and their factor with the linear laws of the
        coordinates; None where there are none
    coupled: A between the rows that act on bodies, None where there are none
    along: of each row along a coordinate its row and node, and which coordinate it is of which
        joint of the tree
    """

    H: tuple[Array, ...]
    inverse_mass: Array
    inverse_inertia: Array
    tree: Tree | None = None
    factor: TreeFactor | None = None
    coupled: Blocks | None = None
    way: Paths = static(default=None)
    along: tuple[tuple[int, int, int, int], ...] = static(default=())

    def of_coordinates(self, x: Array, absent: float = 0.0) -> Array:
        """Numbers of rows (rows, nodes, *batch) for all coordinates of the tree."""
        shape = self.tree.stiffness.shape[:2]
        flat = x.reshape(-1, *x.shape[2:])
        flat = jnp.concatenate([flat, jnp.full((1, *x.shape[2:]), absent, x.dtype)])
        places = np.full(shape, len(flat) - 1)
        for row, node, coordinate, joint in self.along:
            places[coordinate, joint] = row * x.shape[1] + node
        return take(flat, places.ravel(), 0).reshape(*shape, *x.shape[2:])

    def of_rows(self, coordinates: Array, rows: int, nodes: int) -> Array:
        """Numbers of the coordinates for the nodes after those that act on bodies, (rows, nodes,
        *batch), 0 where there is no row.
        """
        batch = coordinates.shape[2:]
        flat = coordinates.reshape(-1, *batch)
        flat = jnp.concatenate([flat, jnp.zeros((1, *batch), flat.dtype)])
        at = np.full((rows, nodes), len(flat) - 1)
        for row, node, coordinate, joint in self.along:
            at[row, node - self.way.nodes] = coordinate * coordinates.shape[1] + joint
        return take(flat, at.ravel(), 0).reshape(rows, nodes, *batch)


def bodies_of_rows(**fields: Any) -> Bodies:
    """Bodies of the fields given, and what couples the rows that act on them."""
    bodies = Bodies(**fields)
    if not bodies.way.nodes:
        return bodies
    return replace(bodies, coupled=materialize(blocks(bodies, bodies.factor)))


@struct
class Reduced:
    """Bodies with the laws of the rows along coordinates of tree joints eliminated."""

    bodies: Bodies
    factor: TreeFactor | None

    def blocks(self) -> Blocks:
        """A between the rows that act on bodies."""
        bodies = self.bodies
        return blocks(bodies, self.factor) if bodies.along else bodies.coupled

    def along(self, impulse: Array, wanted: Array) -> tuple[Array, Array, Array]:
        """What impulses of the rows that act on bodies do, (rows, their nodes, *batch).

        wanted: r of the laws along coordinates, arrays of all nodes

        Returns: speeds of these rows; impulses and speeds of those along coordinates
        """
        bodies = self.bodies
        r = bodies.of_coordinates(wanted)
        total = _total(bodies, impulse)
        push = of_tree(bodies.tree, total)
        at, twists, λ = moved(bodies.tree, self.factor, push, r)
        twist = _of_all(bodies, total, twists)
        size = wanted.shape[0], wanted.shape[1] - bodies.way.nodes
        speeds = bodies.of_rows(at.coordinates, *size)
        on_bodies = speeds_on(bodies.H, bodies.way.sides, twist)
        return on_bodies, speeds if λ is None else bodies.of_rows(λ, *size), speeds


@struct
class RowFactor:
    """The factored matrix of all rows.

    reduced: the bodies with the laws along coordinates of tree joints; of_rows: of the rows that
        act on bodies, None where there are none; root: √α of all rows, (rows, nodes, *batch), None
        for 1
    """

    reduced: Reduced
    of_rows: Factor | None
    root: Array | None


def reduced(bodies: Bodies, β: Array, γ: Array) -> Reduced:
    """β λ + γ u = r of the rows along coordinates eliminated; arrays of all nodes."""
    if not bodies.along:
        return Reduced(bodies, bodies.factor)
    laws = Laws(bodies.of_coordinates(β, 1.0), bodies.of_coordinates(γ))
    return Reduced(bodies, eliminated(bodies.tree, laws, bodies.factor.levels))


def velocities(bodies: Bodies, impulse: Array) -> tuple[Array, Array | None]:
    """Changes of the bodies' twists in their axes after impulses of all rows, (6, bodies + 1,
    *batch), and of the speeds of the rows along coordinates, None without a tree; differentiable.
    """
    if not impulse.shape[1]:
        none = jnp.zeros((6, bodies.way.tree.bodies + 1, *impulse.shape[2:]), impulse.dtype)
        return none, None if bodies.tree is None else impulse
    if bodies.tree is None:
        # One array of both, in one kernel of a GPU.
        total = for_all_readers(_total(bodies, impulse))
        return over_mass(bodies.inverse_mass, bodies.inverse_inertia, total), None
    total, speeds, twists = _moved_by(bodies, impulse)
    along = bodies.of_rows(speeds, impulse.shape[0], impulse.shape[1] - bodies.way.nodes)
    return _of_all(bodies, total, twists), along


def coordinate_speeds(bodies: Bodies, impulse: Array) -> Array:
    """Changes of the speeds of all coordinates of the tree after impulses of all rows,
    (coordinates, joints, *batch); differentiable.
    """
    return _moved_by(bodies, impulse)[1]


def _moved_by(bodies: Bodies, impulse: Array) -> tuple[Array, Array, Array]:
    """What impulses of all rows are on the bodies, and the speeds of coordinates and twists of the
    bodies of the tree, world axes, that they cause.
    """
    total = _total(bodies, impulse[:, : bodies.way.nodes])
    push, along = of_tree(bodies.tree, total), bodies.of_coordinates(impulse)
    at, twists = response(bodies.tree, bodies.factor, push, along)
    return total, at.coordinates, twists


def speeds_on(H: Sequence[Array], sides: Sequence, velocity: Array) -> Array | None:
    """Hᵀ v of bodies that move at twists (6, bodies + 1, *batch), shape (rows, nodes, *batch)."""
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
    """Impulses of the rows that act on bodies, on these and the world, in their axes, (6,
    bodies + 1, *batch); impulse: of these rows, (rows, their nodes, *batch).
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


def _of_all(bodies: Bodies, total: Array, twists: Array) -> Array:
    """Twists of all bodies and of the world in their axes, (6, bodies + 1, *batch).

    total: impulses on them; twists: of those of the tree, world axes
    """
    alone = jnp.zeros_like(total)
    if bodies.way.tree.lone:
        alone = over_mass(bodies.inverse_mass, bodies.inverse_inertia, total)
    return with_tree(bodies.tree, alone, twists)


def all_nodes(parts: Sequence[Array]) -> Array:
    """Numbers of the nodes that act on bodies and of those along coordinates."""
    if len(parts) == 1:
        return parts[0]
    batch = jnp.broadcast_shapes(*(x.shape[2:] for x in parts))
    return jnp.concatenate([jnp.broadcast_to(x, (*x.shape[:2], *batch)) for x in parts], axis=1)


def impulses_on_bodies(bodies: Bodies, impulse: Array) -> Array:
    """What impulses of all rows are on the bodies on which they act, in the axes of these, (6,
    bodies + 1, *batch).
    """
    return _total(bodies, impulse[:, : bodies.way.nodes])


def mobility(bodies: Bodies, rows: int, nodes: int) -> Array:
    """Diagonal of A of all rows, (rows, nodes, *batch)."""
    acting = bodies.way.nodes
    mass = bodies.inverse_mass
    parts = [] if nodes else [jnp.zeros((rows, 0, *mass.shape[1:]), mass.dtype)]
    if acting:
        diagonal = bodies.coupled.diagonal
        parts.append(jnp.stack([diagonal[i, i] for i in range(rows)]))
    if nodes > acting:
        along = mobilities(bodies.tree, bodies.factor)
        parts.append(bodies.of_rows(along, rows, nodes - acting))
    return all_nodes(parts)


def blocks(bodies: Bodies, factors: TreeFactor | None) -> Blocks:
    """A between the rows that act on bodies, on the joint graph; factors: of the tree."""
    tree, way, H = bodies.tree, bodies.way, bodies.H
    plan, parts = way.tree, dict(way.passing)
    turned = H if tree is None else _in_world_axes(tree, way, H)
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
            body = np.array(plan.lone)[place]
            mass = take(bodies.inverse_mass, body, 0)
            inertia = take(bodies.inverse_inertia, body, 2)
            left, right = G, over_mass(mass, inertia, G)
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
    return Blocks(_summed(like, way.nodes, diagonal), _summed(like, len(way.edges), edges))


def _passed_on(G: Array, S: Array, U: Array, κ: Array, arm: Array) -> tuple[Array, Array, Array]:
    """Sᵀ G and κ Sᵀ G of the coordinates that rows pass, (k, r, passes, *batch), and what is left
    of G at the bases.
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
    """Sums of matrices at so many places; like: no matrix."""
    batch = jnp.broadcast_shapes(like.shape[3:], *(x.shape[3:] for _, x in parts))
    if not parts:
        return jnp.zeros((*like.shape[:2], count, *batch), like.dtype)
    places = np.concatenate([place for place, _ in parts])
    values = [jnp.broadcast_to(x, (*x.shape[:3], *batch)) for _, x in parts]
    values = values[0] if len(values) == 1 else jnp.concatenate(values, axis=2)
    if np.array_equal(np.sort(places), np.arange(count)):
        return take(values, np.argsort(places), 2)
    return add_at(jnp.zeros((*values.shape[:2], count, *batch), values.dtype), places, values, 2)


def _in_world_axes(tree: Tree, way: Paths, H: Sequence[Array]) -> list[Array]:
    """Wrenches on the bodies of the tree, of each side, in world axes; others are left as any."""
    place = {body: i for i, body in enumerate(tree.plan.order)}
    turned = []
    for x, (_, bodies) in zip(H, way.sides, strict=True):
        turn = take(tree.turn, np.array([place.get(body, 0) for body in bodies], int), 2)
        turned.append(jnp.concatenate([stored(product)(turn, x[i : i + 3]) for i in (0, 3)]))
    return turned
