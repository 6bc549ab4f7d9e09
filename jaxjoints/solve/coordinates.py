"""The motion of bodies by one matrix in all their coordinates, H = M + Σ Jᵀ K J.

A free body has six coordinates, a tree joint those of its chart. J gives the relative twist of two
bodies that touch, or of a body and the world, for unit speeds of the coordinates, and K is the
stiffness of all contacts between them. So a contact adds numbers to H but no row, and bodies that
may touch in many places cost no more than their coordinates. `tree` and `bodies` eliminate joint by
joint instead, which is faster where few bodies touch each other.

A law β λ + γ ν = r along a coordinate is solved together with it. With d = H_ii, w = 1/(β d + γ),
S = diag(√β) and Γ = diag(γ)

    ν = w r + S y,    λ = w d r - Γ S⁻¹ y,    (S H S + Γ) y = S (b + λ₀ - H w r),    λ₀ = w d r,

for impulses b along the coordinates: symmetric and positive definite from γ = 0 (free) to β = 0
(held), and no number cancels.

The matrix has blocks: nodes are up to `MOST` coordinates of a chain. Two nodes are neighbours if
some J has both (`graph`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import materialize, stored
from ..algebra.dense import multiply, product, product_transposed, transposed_product
from ..algebra.places import add_at, looked_up, take
from ..algebra.pytree import struct
from ..algebra.rotation import cross
from ..algebra.spatial import Pose, quat_to_matrix
from .factor import Blocks, Factor, add_diagonal, factor, scale, solve, times
from .graph import Plan, elimination_plan
from .tree import Tree, TreePlan, composite_inertias

# Coordinates of a node at most: those of a free body.
MOST = 6
# Least β, as a power of the smallest number: its root still divides numbers.
LEAST = 0.75


@dataclass(frozen=True, eq=False)
class CoordinatePlan:
    """Nodes, blocks and relative twists of one tree and its pairs, computed once, in numpy.

    Coordinates have a place in the list of all: of the roots, component by component; of the joints
    of the tree, coordinate by coordinate; of lone bodies, component by component.

    plan: elimination plan of the nodes
    members: place of each coordinate of a node, (rows, nodes), `count` for none
    count: number of places
    body: the body that each coordinate moves, and 0 for none
    lone: the nodes of the lone bodies
    tree: of each node its tree; column: of each coordinate of a node its place among those of its
        tree, -1 for none, (rows, nodes)
    ends: of each J its first body, and its second or -1 for the world: bodies of the tree, then the
        pairs
    first: of each node of the tree the end of the first body that it moves, -1 for a lone body
    carries: whether a coordinate of a node moves the body of another one, (rows, rows, nodes)
    end, node: of each part of a J that is not zero
    columns, signs: places and signs of the coordinates of each part, (rows, parts)
    late, early, edge: the couples of parts of one J, and the edge between their nodes
    """

    plan: Plan
    members: np.ndarray
    count: int
    body: np.ndarray
    lone: np.ndarray
    tree: np.ndarray
    column: np.ndarray
    ends: tuple[tuple[int, int], ...]
    first: np.ndarray
    carries: np.ndarray
    end: np.ndarray
    node: np.ndarray
    columns: np.ndarray
    signs: np.ndarray
    late: np.ndarray
    early: np.ndarray
    edge: np.ndarray

    @property
    def rows(self) -> int:
        """Rows of the tallest node."""
        return self.members.shape[0]

    @property
    def exist(self) -> np.ndarray:
        """Which rows of nodes exist, (rows, nodes)."""
        return self.members < self.count

    @property
    def of_pairs(self) -> np.ndarray:
        """The ends of the pairs."""
        return np.flatnonzero([second >= 0 for _, second in self.ends])

    def of_nodes(self, x: Array) -> Array:
        """Numbers of all places, (count, *batch), for the nodes, (rows, nodes, *batch)."""
        where = np.where(self.exist, self.members, -1)
        return looked_up(x, where.ravel(), (where.size,)).reshape(*where.shape, *x.shape[1:])

    def of_places(self, x: Array) -> Array:
        """Numbers of nodes for all places; 0 for coordinates that do not exist."""
        where = np.full(self.count + 1, -1)
        where[self.members.ravel()] = np.arange(self.members.size)
        return looked_up(x.reshape(-1, *x.shape[2:]), where[:-1], (self.count,))


def coordinate_plan(
    tree: TreePlan, loaded: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> CoordinatePlan:
    """The plan of a tree, of its bodies that touch the world, and of the pairs that touch."""
    roots, joints, lone = len(tree.roots), len(tree.order) - len(tree.roots), len(tree.lone)
    tall = max(tree.coordinates, default=0)
    first_lone = 6 * roots + tall * joints
    count = first_lone + 6 * lone
    each = (tree.roots, 6), (tree.order[roots:], tall), (tree.lone, 6)
    body = np.concatenate([*(np.tile(np.array(x, int), n) for x, n in each), [0]])
    nodes: list[list[int]] = []
    # Of each body the coordinates of its own joint, its base, and the node that may take more.
    own, base, room = {}, {}, {}
    for i, b in enumerate(tree.roots):
        own[b] = [c * roots + i for c in range(6)]
        nodes.append(own[b])
    for i, b in enumerate(tree.lone):
        own[b] = [first_lone + c * lone + i for c in range(6)]
        nodes.append(own[b])
    carried = [b for bases in tree.bases for b in bases]
    for at, ((placed, _), bases) in enumerate(zip(tree.levels, tree.bases, strict=True)):
        for i, (b, on) in enumerate(zip(placed, bases, strict=True)):
            joint = tree.spans[at][0] + i
            own[b] = [6 * roots + c * joints + joint for c in range(tree.coordinates[at])]
            base[b] = on
            node = room.get(on)
            # A chain goes on in its node; each of several branches begins a node.
            if node is None or carried.count(on) > 1 or len(node) + len(own[b]) > MOST:
                node = []
                if own[b]:
                    nodes.append(node)
            node += own[b]
            room[b] = node if node else room.get(on) if carried.count(on) == 1 else None
    node_of = {place: n for n, node in enumerate(nodes) for place in node}

    def path(b: int) -> list[int]:
        """Coordinates that move a body."""
        found: list[int] = []
        while b in own:
            found += own[b]
            b = base.get(b, -1)
        return found

    def top(b: int) -> int:
        """The first body of the tree of a body."""
        while base.get(b) in own:
            b = base[b]
        return b

    firsts = [int(body[node[0]]) for node in nodes]
    single = [b for b in tree.order if b in loaded or b in firsts]
    ends = [(b, -1) for b in single] + list(pairs)
    parts: list[dict[int, dict[int, int]]] = []
    for a, b in ends:
        up, down = path(a), path(b)
        moves = {c: 1 for c in up if c not in down} | {c: -1 for c in down if c not in up}
        of_end: dict[int, dict[int, int]] = {}
        for c, sign in moves.items():
            of_end.setdefault(node_of[c], {})[c] = sign
        parts.append(of_end)
    touched = [[] for _ in nodes]
    for e, of_end in enumerate(parts):
        for n in of_end:
            touched[n].append(e)
    # A lone body that nothing touches shares no end.
    shared = tuple(tuple(on) or (len(ends) + n,) for n, on in enumerate(touched))
    plan = elimination_plan(shared, tuple(map(len, nodes)))
    rows = max(map(len, nodes))
    members = np.full((rows, len(nodes)), count)
    for position, n in enumerate(plan.order):
        members[: len(nodes[n]), position] = nodes[n]
    position = {n: i for i, n in enumerate(plan.order)}
    first = [single.index(firsts[n]) if firsts[n] in single else -1 for n in plan.order]
    carries = np.zeros((rows, rows, len(nodes)), bool)
    for at, n in enumerate(plan.order):
        moving = [path(int(body[c])) for c in nodes[n]]
        for i, c in enumerate(nodes[n]):
            carries[i, : len(moving), at] = [c in own for own in moving]
    trees = np.array([top(int(body[nodes[n][0]])) for n in plan.order])
    column = np.full(members.shape, -1)
    for each in set(trees):
        mine = (trees == each) & (members < count)
        column[mine] = np.arange(mine.sum())
    end, node, columns, signs = [], [], [], []
    for e, of_end in enumerate(parts):
        for n, moves in sorted(of_end.items(), key=lambda item: position[item[0]]):
            end.append(e)
            node.append(position[n])
            at = [c if c in moves else count for c in nodes[n]]
            columns.append(at + [count] * (rows - len(at)))
            signs.append([moves.get(c, 0) for c in columns[-1]])
    edges = {
        (int(i), int(j)): e for e, (i, j) in enumerate(zip(plan.row, plan.column, strict=True))
    }
    couples = [
        (j, i, edges[node[j], node[i]])
        for i in range(len(end))
        for j in range(i + 1, len(end))
        if end[i] == end[j]
    ]
    late, early, edge = np.array(couples, int).reshape(-1, 3).T
    shape = rows, len(end)
    return CoordinatePlan(
        plan,
        members,
        count,
        body,
        np.array([position[node_of[first_lone + i]] for i in range(lone)], int),
        trees,
        column,
        tuple(ends),
        np.array(first, int),
        carries,
        np.array(end, int),
        np.array(node, int),
        np.array(columns, int).T.reshape(shape),
        np.array(signs, float).T.reshape(shape),
        late,
        early,
        edge,
    )


@struct
class Jacobians:
    """How coordinates move bodies.

    parts: relative twists for unit speeds, world axes at the centre of mass of the first body, (6,
        rows, parts, *batch), as `CoordinatePlan` lists them
    mass: M with the stiffness of the linear laws along coordinates
    """

    parts: Array
    mass: Blocks


def jacobians(plan: CoordinatePlan, tree: Tree | None, poses: Pose, lone: Array) -> Jacobians:
    """How coordinates move bodies.

    poses: of all bodies and the world; lone: inertias of the lone bodies, body axes, (6, 6, bodies,
        *batch)
    """
    S, rows, batch = _unit_twists(plan, tree, poses, lone), plan.rows, poses.p.shape[2:]
    first = np.array([first for first, _ in plan.ends])
    signs = jnp.asarray(plan.signs, S.dtype).reshape(1, *plan.signs.shape, *(1,) * len(batch))
    parts = materialize(signs * _carried(plan, S, poses, plan.columns, first[plan.end]))
    counts = len(plan.plan.order), len(plan.plan.row)
    mass = Blocks(*(jnp.zeros((rows, rows, n, *batch), S.dtype) for n in counts))
    if tree is not None:
        mass = _of_tree(plan, tree, S, poses, parts, mass)
        free, rest = (
            jnp.zeros((6 * n, *batch), S.dtype) for n in (len(tree.plan.roots), lone.shape[2])
        )
        along = tree.stiffness.reshape(-1, *tree.stiffness.shape[2:])
        along = jnp.broadcast_to(along, (len(along), *batch))
        along = plan.of_nodes(jnp.concatenate([free, along, rest]))
        mass = add_diagonal(plan.plan, mass, along)
    return Jacobians(parts, materialize(_with_lone(plan, mass, lone)))


def _unit_twists(plan: CoordinatePlan, tree: Tree | None, poses: Pose, lone: Array) -> Array:
    """The twist of its own body for unit speed of each coordinate, world axes at its centre of
    mass, (6, count + 1, *batch); the last one is 0.
    """
    batch, S = poses.p.shape[2:], []
    if tree is not None:
        unit = jnp.eye(6, dtype=lone.dtype).reshape(6, 6, 1, *(1,) * len(batch))
        unit = jnp.broadcast_to(unit, (6, 6, len(tree.plan.roots), *batch))
        S += [unit.reshape(6, -1, *batch), tree.S.reshape(6, -1, *tree.S.shape[3:])]
    if lone.shape[2]:
        bodies = plan.body[plan.count - lone.shape[2] : plan.count]
        turn = quat_to_matrix(take(poses.q, bodies, 1))
        none = jnp.zeros_like(turn)
        upper, lower = (jnp.concatenate(x, axis=1) for x in ((turn, none), (none, turn)))
        S.append(jnp.concatenate([upper, lower]).reshape(6, -1, *turn.shape[3:]))
    S = [jnp.broadcast_to(x, (*x.shape[:2], *batch)) for x in S]
    return jnp.concatenate([*S, jnp.zeros_like(S[0][:, :1])], axis=1)


def _carried(
    plan: CoordinatePlan, S: Array, poses: Pose, columns: np.ndarray, to: np.ndarray
) -> Array:
    """Twists S of coordinates `columns`, (rows, n), at the centres of mass of bodies `to`, (n,)."""
    twist = take(S, columns.ravel(), 1).reshape(6, *columns.shape, *S.shape[2:])
    arm = _arms(plan, poses, columns, to)
    return jnp.concatenate([twist[:3] + cross(twist[3:], arm), twist[3:]])


def _arms(plan: CoordinatePlan, poses: Pose, columns: np.ndarray, to: np.ndarray) -> Array:
    """From the body of each coordinate to the bodies `to`, (3, rows, n, *batch)."""
    start = take(poses.p, plan.body[columns.ravel()], 1)
    return take(poses.p, to, 1)[:, None] - start.reshape(3, *columns.shape, *start.shape[2:])


def _of_tree(
    plan: CoordinatePlan, tree: Tree, S: Array, poses: Pose, parts: Array, mass: Blocks
) -> Blocks:
    """A matrix with that of the bodies of the tree: each coordinate moves all that its body carries
    (Featherstone, Rigid Body Dynamics Algorithms, section 6.2).
    """
    nodes = np.flatnonzero(plan.first >= 0)
    members, first = plan.members[:, nodes], np.array([first for first, _ in plan.ends])
    first = first[plan.first[nodes]]
    place = {body: i for i, body in enumerate(tree.plan.order)}
    own = np.array([place.get(body, 0) for body in plan.body[members.ravel()]])
    twist = take(S, members.ravel(), 1)
    momentum = stored(multiply)(take(composite_inertias(tree), own, 2), twist)
    momentum = momentum.reshape(6, *members.shape, *momentum.shape[2:])
    # All momenta of a node at the first body that it moves.
    arm = _arms(plan, poses, members, first)
    moment = momentum[3:] - cross(arm, momentum[:3])
    momentum = materialize(jnp.concatenate([momentum[:3], moment]))
    at_first = _carried(plan, S, poses, members, first)
    within = stored(transposed_product)(at_first, momentum)
    carries = plan.carries[:, :, nodes]
    carries = carries.reshape(*carries.shape, *(1,) * (within.ndim - 3))
    other = jnp.where(jnp.swapaxes(carries, 0, 1), jnp.swapaxes(within, 0, 1), 0.0)
    diagonal = add_at(mass.diagonal, nodes, jnp.where(carries, within, other), 2)
    number = {
        int(end): (i, int(node))
        for i, (end, node) in enumerate(zip(plan.first[nodes], nodes, strict=True))
    }
    edges = {
        (int(i), int(j)): e
        for e, (i, j) in enumerate(zip(plan.plan.row, plan.plan.column, strict=True))
    }
    found = mass.edges
    for later in (True, False):
        couples = [
            (
                part,
                number[end][0],
                edges[(node, number[end][1]) if later else (number[end][1], node)],
            )
            for part, (end, node) in enumerate(zip(plan.end, plan.node, strict=True))
            if end in number and node != number[end][1] and (node > number[end][1]) == later
        ]
        if couples:
            part, at, edge = np.array(couples).T
            both = take(parts, part, 2), take(momentum, at, 2)
            both = both if later else both[::-1]
            found = add_at(found, edge, stored(transposed_product)(*both), 2)
    return Blocks(diagonal, found)


def _with_lone(plan: CoordinatePlan, H: Blocks, lone: Array) -> Blocks:
    """A matrix with inertias or loads of the lone bodies, body axes, (6, 6, bodies, *batch)."""
    if not lone.shape[2]:
        return H
    missing = plan.rows - len(lone)
    lone = jnp.pad(lone, [(0, missing)] * 2 + [(0, 0)] * (lone.ndim - 2))
    return Blocks(add_at(H.diagonal, plan.lone, lone, 2), H.edges)


def loaded(
    plan: CoordinatePlan, moving: Jacobians, ends: np.ndarray, K: Array, lone: Array | None
) -> Blocks:
    """M + Σ Jᵀ K J of some ends, with loads of the lone bodies.

    K: world axes at the first body, (6, 6, ends, *batch); lone: (6, 6, lone bodies, *batch), body
        axes, None for none
    """
    place, H = np.full(len(plan.ends), -1), moving.mass
    place[ends] = np.arange(len(ends))
    chosen = np.flatnonzero(place[plan.end] >= 0)
    if len(chosen):
        own = take(moving.parts, chosen, 2)
        pushed = stored(product)(take(K, place[plan.end[chosen]], 2), own)
        diagonal = stored(transposed_product)(own, pushed)
        number = np.full(len(plan.end), -1)
        number[chosen] = np.arange(len(chosen))
        couples = np.flatnonzero(place[plan.end[plan.late]] >= 0)
        late, early = (number[x[couples]] for x in (plan.late, plan.early))
        between = stored(transposed_product)(take(own, late, 2), take(pushed, early, 2))
        H = Blocks(
            add_at(H.diagonal, plan.node[chosen], diagonal, 2),
            add_at(H.edges, plan.edge[couples], between, 2),
        )
    return H if lone is None else _with_lone(plan, H, lone)


class OnNodes(NamedTuple):
    """β and γ of the laws along the coordinates, for the nodes, (rows, nodes, *batch) each."""

    β: Array
    γ: Array


@struct
class CoordinateFactor:
    """The factored matrix with laws along the coordinates.

    H: without laws; laws: None for none; weakness: w; factor: of S H S + Γ
    """

    H: Blocks
    laws: OnNodes | None
    weakness: Array | None
    factor: Factor


def factored_in_coordinates(
    plan: CoordinatePlan, H: Blocks, laws: OnNodes | None
) -> CoordinateFactor:
    """The factor of a matrix of all coordinates."""
    missing = 1.0 - plan.exist
    missing = jnp.asarray(missing, H.diagonal.dtype)
    missing = missing.reshape(*missing.shape, *(1,) * (H.diagonal.ndim - 3))
    if laws is None:
        return CoordinateFactor(
            H, None, None, factor(plan.plan, add_diagonal(plan.plan, H, missing))
        )
    d = jnp.stack([H.diagonal[i, i] for i in range(plan.rows)])
    weakness = jnp.asarray(plan.exist, d.dtype).reshape(missing.shape) / (
        laws.β * d + laws.γ + missing
    )
    scaled = scale(plan.plan, H, _root(laws.β))
    return CoordinateFactor(
        H, laws, weakness, factor(plan.plan, add_diagonal(plan.plan, scaled, laws.γ + missing))
    )


def _root(β: Array) -> Array:
    """√β, of a β that is not 0."""
    return jnp.sqrt(jnp.maximum(β, float(jnp.finfo(β.dtype).tiny) ** LEAST))


def moved_in_coordinates(
    plan: CoordinatePlan, at: CoordinateFactor, push: Array, wanted: Array
) -> tuple[Array, Array | None]:
    """Speeds of the coordinates after impulses along them, and impulses of the laws, None without.

    push, wanted: b and r, (rows, nodes, *batch)
    """
    if at.laws is None:
        return solve(plan.plan, at.factor, push), None
    β, γ = at.laws
    d = jnp.stack([at.H.diagonal[i, i] for i in range(plan.rows)])
    ν, λ = at.weakness * wanted, at.weakness * d * wanted
    root = _root(β)
    y = solve(plan.plan, at.factor, root * (push + λ - times(plan.plan, at.H, ν)))
    return ν + root * y, λ - γ / root * y


def mobilities_of_ends(
    plan: CoordinatePlan, factor: CoordinateFactor, moving: Jacobians, ends: np.ndarray
) -> Array:
    """J M⁻¹ Jᵀ of some ends, (6, 6, ends, *batch); factor: of M."""
    place = np.full(len(plan.ends), -1)
    place[ends] = np.arange(len(ends))
    parts, batch, nodes = moving.parts, moving.parts.shape[3:], plan.members.shape[1]
    # Trees do not couple in M, so one right side serves a coordinate of each.
    several = int(plan.column.max()) + 1
    b = plan.column[:, :, None] == np.arange(several)
    b = jnp.asarray(b.reshape(*b.shape, *(1,) * len(batch)), parts.dtype)
    each = jax.tree.map(lambda x: jnp.expand_dims(x, x.ndim - len(batch)), factor.factor)
    inverse = solve(plan.plan, each, b).reshape(plan.rows, nodes * several, *batch)
    own = np.flatnonzero(place[plan.end] >= 0)
    together = plan.tree[plan.node[plan.late]] == plan.tree[plan.node[plan.early]]
    couples = np.flatnonzero((place[plan.end[plan.late]] >= 0) & together)
    late, early = (np.append(own, x[couples]) for x in (plan.late, plan.early))
    at = plan.node[late][None] * several + np.maximum(plan.column[:, plan.node[early]], 0)
    Y = take(inverse, at.ravel(), 1).reshape(plan.rows, *at.shape, *batch)
    half = stored(product_transposed)(Y, take(parts, early, 2))
    whole = stored(product)(take(parts, late, 2), half)
    twice = np.arange(len(late)) >= len(own)
    twice = jnp.asarray(twice.reshape(-1, *(1,) * len(batch)), whole.dtype)
    whole = whole + twice[None, None] * jnp.swapaxes(whole, 0, 1)
    zero = jnp.zeros((6, 6, len(ends), *batch), whole.dtype)
    return add_at(zero, place[plan.end[late]], whole, 2)
