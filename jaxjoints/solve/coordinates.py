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

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
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
from .tree import Laws, Tree, TreePlan, composite_inertias

# Coordinates of a node at most: those of a free body.
MOST = 6
# Least β, as a power of the smallest number: its root still divides numbers.
LEAST = 0.75


@dataclass(frozen=True, eq=False)
class CoordinatePlan:
    """Nodes, blocks and relative twists of bodies and their pairs, computed once, in numpy.

    Coordinates have a place in the list of all: of the roots, component by component; of the joints
    of the tree, coordinate by coordinate; of lone bodies, component by component.

    plan: elimination plan of the nodes
    members: place of each coordinate of a node, (rows, nodes), `count` for none
    count: number of places
    body: the body that each coordinate moves, and 0 for none
    lone: the nodes of the lone bodies
    tree: of each node its tree; column: of each coordinate of a node its place among those of its
        tree, -1 for none, (rows, nodes)
    ends: of each J its first body, and its second or -1 for the world: bodies of the tree on which
        nodes of rows stand, and the first body of each node; then the pairs
    first: of each node of the tree the J of the first body that it moves, -1 for a lone body
    carries: whether coordinate i of a node moves the body of its coordinate j, (rows, rows, nodes)
    end, node: of each part its J and its node. A part of a J has the columns of one node; parts
        that are 0 are left out
    columns, signs: places and signs of the coordinates of each part, (rows, parts)
    late, early, edge: parts of the same J, two by two, `late` the part of the node that is
        eliminated later, and the edge between their nodes
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
    """The plan of a tree, of its bodies on which nodes stand, and of the pairs that touch."""
    forest = _Forest.of(tree)
    nodes, body = forest.nodes(tree), forest.body
    firsts = [int(body[node[0]]) for node in nodes]
    single = [b for b in tree.order if b in loaded or b in firsts]
    ends = [(b, -1) for b in single] + list(pairs)
    # The coordinates of each J by their nodes, with their signs.
    node_of = {c: n for n, node in enumerate(nodes) for c in node}
    moves: list[dict[int, dict[int, int]]] = []
    for end in ends:
        up, down = (set(forest.path(b)) for b in end)
        moves.append({})
        for coordinates, sign in ((up - down, 1), (down - up, -1)):
            for c in sorted(coordinates):
                moves[-1].setdefault(node_of[c], {})[c] = sign
    # Nodes are neighbours where they share an end; a lone body that nothing touches shares none.
    shared: list[list[int]] = [[] for _ in nodes]
    for e, by_node in enumerate(moves):
        for n in by_node:
            shared[n].append(e)
    touched = tuple(tuple(on) or (len(ends) + n,) for n, on in enumerate(shared))
    plan = elimination_plan(touched, tuple(map(len, nodes)))
    position, nodes = np.argsort(plan.order), [nodes[n] for n in plan.order]
    rows, count = max(map(len, nodes)), len(body) - 1

    def padded(columns: Sequence[int]) -> list[int]:
        return [*columns, *[count] * (rows - len(columns))]

    members = np.array([padded(node) for node in nodes]).T
    carries = np.zeros((rows, rows, len(nodes)), bool)
    for n, node in enumerate(nodes):
        paths = [forest.path(int(body[c])) for c in node]
        for i, c in enumerate(node):
            carries[i, : len(node), n] = [c in path for path in paths]
    trees = np.array([forest.top(int(body[node[0]])) for node in nodes])
    column = np.full(members.shape, -1)
    for top in set(trees):
        own = (trees == top) & (members < count)
        column[own] = np.arange(own.sum())
    parts = [
        (e, n, padded([c if c in signs else count for c in nodes[n]]), signs)
        for e, by_node in enumerate(moves)
        for n, signs in sorted((int(position[n]), signs) for n, signs in by_node.items())
    ]
    edges = {
        pair: e for e, pair in enumerate(zip(plan.row.tolist(), plan.column.tolist(), strict=True))
    }
    couples = [
        (late, early, edges[parts[late][1], parts[early][1]])
        for _, of_end in groupby(range(len(parts)), key=lambda i: parts[i][0])
        for early, late in combinations(of_end, 2)
    ]
    late, early, edge = np.array(couples, int).reshape(-1, 3).T
    return CoordinatePlan(
        plan=plan,
        members=members,
        count=count,
        body=body,
        lone=np.array([trees.tolist().index(b) for b in tree.lone], int),
        tree=trees,
        column=column,
        ends=tuple(ends),
        first=np.array(
            [single.index(b) if b in single else -1 for b in map(firsts.__getitem__, plan.order)]
        ),
        carries=carries,
        end=np.array([e for e, *_ in parts]),
        node=np.array([n for _, n, *_ in parts]),
        columns=np.array([columns for _, _, columns, _ in parts]).T,
        signs=np.array([[s.get(c, 0.0) for c in columns] for *_, columns, s in parts]).T,
        late=late,
        early=early,
        edge=edge,
    )


class _Forest(NamedTuple):
    """The coordinates of a tree; places and `body` as in `CoordinatePlan`.

    own: the coordinates of each body; base: of each body that a joint of the tree places
    """

    own: dict[int, list[int]]
    base: dict[int, int]
    body: np.ndarray

    @classmethod
    def of(cls, tree: TreePlan) -> "_Forest":
        joints, most = tree.order[len(tree.roots) :], max(tree.coordinates, default=0)
        own, body = {}, []
        for bodies, most_of_each in ((tree.roots, 6), (joints, most), (tree.lone, 6)):
            first = len(body)
            for i, b in enumerate(bodies):
                own[b] = [first + c * len(bodies) + i for c in range(most_of_each)]
            body += [*bodies] * most_of_each
        own |= {b: own[b][:count] for b, count in zip(joints, tree.counts, strict=True)}
        base = {
            b: on
            for (placed, _), bases in zip(tree.levels, tree.bases, strict=True)
            for b, on in zip(placed, bases, strict=True)
        }
        return cls(own, base, np.array([*body, 0]))

    def path(self, body: int) -> list[int]:
        """The coordinates that move a body."""
        found: list[int] = []
        while body in self.own:
            found += self.own[body]
            body = self.base.get(body, -1)
        return found

    def top(self, body: int) -> int:
        """The body at the root of the tree of a body."""
        while self.base.get(body) in self.own:
            body = self.base[body]
        return body

    def nodes(self, tree: TreePlan) -> list[list[int]]:
        """Nodes: a free body; up to `MOST` coordinates of a chain, which ends where it branches."""
        nodes = [self.own[b] for b in (*tree.roots, *tree.lone)]
        carried, chains = Counter(self.base.values()), dict[int, list[int]]()
        for b in tree.order[len(tree.roots) :]:
            on = self.base[b]
            chain = chains.get(on, []) if carried[on] == 1 else []
            if self.own[b]:
                if not chain or len(chain) + len(self.own[b]) > MOST:
                    chain = []
                    nodes.append(chain)
                chain += self.own[b]
            chains[b] = chain
        return nodes


@struct
class CoordinateFactor:
    """The factored matrix with laws along the coordinates.

    H: without laws; laws: by nodes, (rows, nodes, *batch) each, None for none; weakness: w
    factor: of S H S + Γ
    """

    H: Blocks
    laws: Laws | None
    weakness: Array | None
    factor: Factor


@struct
class Jacobians:
    """How coordinates move bodies.

    parts: relative twists for unit speeds, world axes at the centre of mass of the first body, (6,
        rows, parts, *batch), as `CoordinatePlan` lists them
    mass: M with the stiffness of the linear laws along coordinates, and its factor
    """

    parts: Array
    mass: CoordinateFactor


def jacobians(plan: CoordinatePlan, tree: Tree | None, poses: Pose, lone: Array) -> Jacobians:
    """How coordinates move bodies.

    poses: of all bodies and the world; lone: inertias of the lone bodies, body axes, (6, 6, bodies,
        *batch)
    """
    S, rows, batch = _unit_twists(plan, tree, poses, lone), plan.rows, poses.p.shape[2:]
    first = np.array([first for first, _ in plan.ends])
    signs = jnp.asarray(plan.signs, S.dtype).reshape(1, *plan.signs.shape, *(1,) * len(batch))
    parts = materialize(signs * _twists_at(plan, S, poses, plan.columns, first[plan.end]))
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
    mass = materialize(_with_lone(plan, mass, lone))
    return Jacobians(parts, factored_in_coordinates(plan, mass, None))


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
        # Of the last component of all lone bodies.
        bodies = plan.body[plan.count - lone.shape[2] : plan.count]
        turn = quat_to_matrix(take(poses.q, bodies, 1))
        none = jnp.zeros_like(turn)
        upper, lower = (jnp.concatenate(x, axis=1) for x in ((turn, none), (none, turn)))
        S.append(jnp.concatenate([upper, lower]).reshape(6, -1, *turn.shape[3:]))
    S = [jnp.broadcast_to(x, (*x.shape[:2], *batch)) for x in S]
    return jnp.concatenate([*S, jnp.zeros((6, 1, *batch), S[0].dtype)], axis=1)


def _twists_at(
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
    at_first = _twists_at(plan, S, poses, members, first)
    within = stored(transposed_product)(at_first, momentum)
    carries = plan.carries[:, :, nodes]
    carries = carries.reshape(*carries.shape, *(1,) * (within.ndim - 3))
    other = jnp.where(jnp.swapaxes(carries, 0, 1), jnp.swapaxes(within, 0, 1), 0.0)
    diagonal = add_at(mass.diagonal, nodes, jnp.where(carries, within, other), 2)
    # Couples of a node with the nodes that carry it, by the J of the first body that it moves.
    owner, edges = np.full(len(plan.ends), -1), mass.edges
    owner[plan.first[nodes]] = nodes
    owner = owner[plan.end[plan.late]]
    for own, other in ((plan.late, plan.early), (plan.early, plan.late)):
        chosen = np.flatnonzero((owner >= 0) & (plan.node[own] == owner))
        if len(chosen):
            both = [momentum, parts]
            places = np.searchsorted(nodes, owner[chosen]), other[chosen]
            both = [take(x, at, 2) for x, at in zip(both, places, strict=True)]
            both = both if own is plan.late else both[::-1]
            edges = add_at(edges, plan.edge[chosen], stored(transposed_product)(*both), 2)
    return Blocks(diagonal, edges)


def _with_lone(plan: CoordinatePlan, H: Blocks, lone: Array) -> Blocks:
    """A matrix with inertias or loads of the lone bodies, body axes, (6, 6, bodies, *batch)."""
    if not lone.shape[2]:
        return H
    missing = plan.rows - len(lone)
    lone = jnp.pad(lone, [(0, missing)] * 2 + [(0, 0)] * (lone.ndim - 2))
    return Blocks(add_at(H.diagonal, plan.lone, lone, 2), H.edges)


def with_loads(
    plan: CoordinatePlan, moving: Jacobians, ends: np.ndarray, K: Array, lone: Array | None
) -> Blocks:
    """M + Σ Jᵀ K J of some ends, with loads of the lone bodies.

    K: world axes at the first body, (6, 6, ends, *batch); lone: (6, 6, lone bodies, *batch), body
        axes, None for none
    """
    place, H = np.full(len(plan.ends), -1), moving.mass.H
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


def factored_in_coordinates(plan: CoordinatePlan, H: Blocks, laws: Laws | None) -> CoordinateFactor:
    """The factor of a matrix of all coordinates."""
    exist = jnp.asarray(plan.exist, H.diagonal.dtype)
    exist = exist.reshape(*exist.shape, *(1,) * (H.diagonal.ndim - 3))
    if laws is None:
        whole = add_diagonal(plan.plan, H, 1 - exist)
        return CoordinateFactor(H, None, None, factor(plan.plan, whole))
    weakness = exist / (laws.β * _diagonal(H) + laws.γ + (1 - exist))
    whole = add_diagonal(plan.plan, scale(plan.plan, H, _root(laws.β)), laws.γ + (1 - exist))
    return CoordinateFactor(H, laws, weakness, factor(plan.plan, whole))


def _diagonal(H: Blocks) -> Array:
    """The diagonal of H, (rows, nodes, *batch)."""
    d = jnp.stack([H.diagonal[i, i] for i in range(len(H.diagonal))])
    # Protects the division from coordinates that a joint does not have.
    return jnp.where(d > 0, d, 1.0)


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
    ν = at.weakness * wanted
    λ = _diagonal(at.H) * ν
    root = _root(β)
    y = solve(plan.plan, at.factor, root * (push + λ - times(plan.plan, at.H, ν)))
    return ν + root * y, λ - γ / root * y


def mobilities_of_ends(plan: CoordinatePlan, moving: Jacobians, ends: np.ndarray) -> Array:
    """J M⁻¹ Jᵀ of some ends, (6, 6, ends, *batch)."""
    place = np.full(len(plan.ends), -1)
    place[ends] = np.arange(len(ends))
    parts, batch, nodes = moving.parts, moving.parts.shape[3:], plan.members.shape[1]
    # Trees do not couple in M, so one right side serves a coordinate of each.
    several = int(plan.column.max()) + 1
    b = plan.column[:, :, None] == np.arange(several)
    b = jnp.asarray(b.reshape(*b.shape, *(1,) * len(batch)), parts.dtype)
    each = jax.tree.map(lambda x: jnp.expand_dims(x, x.ndim - len(batch)), moving.mass.factor)
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
