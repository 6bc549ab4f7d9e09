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

Contacts of two moving bodies stand on the pair where they have more than six rows, where more than
three of them have no friction, or where those of all pairs have more rows than the bodies have
coordinates. Then one matrix of all coordinates replaces the elimination joint by joint
(`coordinates`).

Arrays of all nodes have the nodes of the graph first, in elimination order, then the nodes that
stand on bodies or pairs, then the nodes along coordinates.
"""

from collections.abc import Sequence
from typing import Any

import jax
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
    transposed_product,
)
from ..algebra.places import add_at, take
from ..algebra.pytree import replace, static, struct
from ..algebra.rotation import cross, dot, quat_to_matrix
from ..algebra.spatial import Pose, over_mass
from .cone import Turn
from .coordinates import (
    CoordinateFactor,
    CoordinatePlan,
    Jacobians,
    factored_in_coordinates,
    jacobians,
    mobilities_of_ends,
    moved_in_coordinates,
    with_loads,
)
from .factor import Blocks, Factor
from .paths import LONE, ROOTS, Passing, Paths
from .tree import (
    Laws,
    OnTree,
    Tree,
    TreeFactor,
    eliminated,
    following,
    mobilities,
    moved,
    of_tree,
    on_coordinates,
    response,
    with_tree,
)

# Mobility below which a row counts as one that nothing moves, in roundings of its summands.
UNMOVING = 30.0


@struct
class Bodies:
    """The bodies that rows act on.

    H: wrenches of unit impulses on the bodies of each side, body axes, (6, rows, nodes of the side,
        *batch)
    inverse_mass, inverse_inertia: of all bodies [1/kg] and, body axes, [1/(kg m²)], and of the
        world, where they are 0; (bodies + 1, *batch) and (3, 3, bodies + 1, *batch)
    tree, factor: the bodies that tree joints hold, and their factor with the linear laws of the
        coordinates; None without a tree
    poses: of all bodies and the world
    standing: wrenches of the standing nodes on their body, or on the first body of their pair, (6,
        rows, nodes, *batch); body axes for nodes on a single lone body, else world axes. None for
        no node
    moving: how coordinates move bodies, None where the tree is eliminated
    coupled: A between the rows of the graph, None without any
    along: for each row along a coordinate (row, node, coordinate, joint of the tree)
    """

    H: tuple[Array, ...]
    inverse_mass: Array
    inverse_inertia: Array
    tree: Tree | None = None
    factor: TreeFactor | None = None
    poses: Pose | None = None
    standing: Array | None = None
    moving: Jacobians | None = None
    coupled: Blocks | None = None
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
    """`Bodies` with these fields, with `standing`, `moving` and `coupled`."""
    bodies = Bodies(**fields)
    if bodies.way.standing:
        bodies = replace(bodies, standing=materialize(_of_standing(bodies)))
    if bodies.way.coordinates is not None:
        bodies = replace(bodies, moving=_moving(bodies))
    if bodies.way.plan is None:
        return bodies
    whole = Reduced(bodies, bodies.factor if bodies.moving is None else bodies.moving.mass)
    return replace(bodies, coupled=materialize(whole.blocks(again=True)))


@struct
class Reduced:
    """Bodies after the elimination of all rows that are not on the graph, laws β λ + γ u = r.

    factor: of the tree, or of the matrix of all coordinates; lone: L⁻¹ of the inertias of lone
        bodies, (6, 6, lone bodies, *batch), None where nothing stands on them
    β, γ: of the standing rows, (rows, their nodes, *batch), None for no law
    turn: of the rows that act on bodies; all numbers of rows are of turned rows. None for none
    """

    bodies: Bodies
    factor: TreeFactor | CoordinateFactor | None
    lone: Array | None = None
    β: Array | None = None
    γ: Array | None = None
    turn: Turn | None = None

    def blocks(self, again: bool = False) -> Blocks:
        """A between the rows of the graph; again: compute it also where it is `Bodies.coupled`."""
        bodies, turn = self.bodies, self.turn
        if not (again or bodies.along or bodies.way.standing or turn):
            return bodies.coupled
        if turn is not None and bodies.way.graph:
            sides = zip(bodies.H, bodies.way.sides, strict=True)
            H = tuple(turn.of(np.array(nodes)).rows(x, 1) for x, (nodes, _) in sides)
            bodies = replace(bodies, H=H)
        if bodies.moving is not None:
            return _blocks_in_coordinates(bodies, self.factor)
        return blocks(bodies, self.factor, self.lone)

    def moved(self, impulse: Array, wanted: Array) -> tuple[Array, Array]:
        """The motion after impulses of the rows of the graph, (rows, nodes of the graph, *batch).

        wanted: r of the eliminated rows, in an array of all nodes

        Returns: speeds of the rows of the graph; impulses of the eliminated rows, (rows, nodes,
            *batch)
        """
        bodies, way = self.bodies, self.bodies.way
        graph, acting = way.graph, way.nodes
        r = wanted[:, graph:acting]
        impulse = all_nodes([impulse, r / self.β]) if way.standing else impulse
        total = _total(bodies, impulse if self.turn is None else self.turn.back(impulse))
        asked = None
        if bodies.tree is not None:
            asked = bodies.of_coordinates(wanted)
        v, λ = _motion(bodies, self.factor, self.lone, total, asked)
        u, others = impulse, []
        if acting:
            u = speeds_on(bodies.H, way.sides, v)
            u = u if self.turn is None else self.turn.rows(u)
        if way.standing:
            others.append((r - self.γ * u[:, graph:]) / self.β)
        if λ is not None:
            others.append(bodies.of_rows(λ, wanted.shape[0], wanted.shape[1] - acting))
        return u[:, :graph], all_nodes(others)


def _motion(
    bodies: Bodies,
    factor: TreeFactor | CoordinateFactor | None,
    lone: Array | None,
    total: Array,
    asked: Array | None,
) -> tuple[Array, Array | None]:
    """Twists of all bodies and the world, body axes, (6, bodies + 1, *batch), after impulses on
    them, and the impulses of the laws along coordinates, None without laws.

    factor, lone: see `Reduced`; asked: r of these laws, None without a tree
    """
    tree, plan = bodies.tree, bodies.way.coordinates
    if plan is None:
        twists = λ = None
        if tree is not None:
            _, twists, λ = moved(tree, factor, of_tree(tree, total), asked)
        return _of_all(bodies, total, twists, lone), λ
    batch, alone = total.shape[2:], np.array(bodies.way.tree.lone, int)
    push = [take(total, alone, 1)]
    wanted = [jnp.zeros_like(push[0])]
    if tree is not None:
        on = on_coordinates(tree, of_tree(tree, total))
        push = [*on, *push]
        wanted = [jnp.zeros_like(on.roots), asked, *wanted]

    right = (_of_nodes(plan, x, batch) for x in (push, wanted))
    ν, λ = moved_in_coordinates(plan, factor, *right)
    ends = np.cumsum([x.shape[0] * x.shape[1] for x in push])[:-1]

    def of_places(x: Array) -> list[Array]:
        parts = zip(jnp.split(plan.of_places(x), ends), push, strict=True)
        return [part.reshape(*like.shape[:2], *batch) for part, like in parts]

    *on, own = of_places(ν)
    v = jnp.zeros_like(total)
    if len(alone):
        v = v.at[:, alone].set(own)
    if tree is None:
        return v, None
    v = with_tree(tree, v, following(tree, OnTree(*on)))
    return v, None if λ is None else of_places(λ)[1]


def _moving(bodies: Bodies) -> Jacobians:
    """`Bodies.moving`."""
    way = bodies.way
    lone = _inertias(bodies, np.array(way.tree.lone, int))
    return jacobians(way.coordinates, bodies.tree, bodies.poses, lone)


def _inertias(bodies: Bodies, at: np.ndarray) -> Array:
    """Inertias of some bodies, body axes, (6, 6, bodies, *batch)."""
    inertia = inverse_of_three(take(bodies.inverse_inertia, at, 2))
    mass = 1 / take(bodies.inverse_mass, at, 0)
    unit = jnp.eye(3, dtype=mass.dtype).reshape(3, 3, *(1,) * mass.ndim)
    linear = mass[None, None] * unit
    none = jnp.zeros_like(inertia)
    upper, lower = (jnp.concatenate(x, axis=1) for x in ((linear, none), (none, inertia)))
    return jnp.concatenate([upper, lower])


def _blocks_in_coordinates(bodies: Bodies, factor: CoordinateFactor) -> Blocks:
    """A between the rows of the graph, by the matrix of all coordinates."""
    way, tree = bodies.way, bodies.tree
    # The rows are a batch of their own: twists of all bodies after a unit impulse of each.
    H, batch = _of_ends(bodies), bodies.inverse_mass.shape[1:]
    rows, count = H.shape[1], len(way.blocks)
    ends = [(end, block, body) for end, (block, body, _) in enumerate(way.ends_of_blocks)]
    ends = np.array([each for each in ends if each[2] < way.tree.bodies], int).reshape(-1, 3)
    own, at = jnp.swapaxes(take(H, ends[:, 0], 2), 1, 2), ends[:, 2] * count + ends[:, 1]
    total = jnp.zeros((6, (way.tree.bodies + 1) * count, rows, *own.shape[3:]), H.dtype)
    total = add_at(total, at, own, 1).reshape(6, -1, count * rows, *own.shape[3:])
    several = jax.tree.map(lambda x: jnp.expand_dims(x, x.ndim - len(batch)), (tree, factor, H))
    asked = None
    if tree is not None:
        asked = jnp.zeros((*tree.stiffness.shape[:2], *total.shape[2:]), total.dtype)
    v, _ = _motion(replace(bodies, tree=several[0]), several[1], None, total, asked)
    # Of each end the speeds of its rows, then of each block.
    speed = multiply_transposed(take(several[2], ends[:, 0], 2), take(v, ends[:, 2], 1))
    A = add_at(jnp.zeros((rows, count, *speed.shape[2:]), speed.dtype), ends[:, 1], speed, 1)
    A = A.reshape(rows, count, count, rows, *A.shape[3:])
    nodes = np.arange(count)
    late, early = (nodes, way.plan.row), (nodes, way.plan.column)
    return Blocks(*(jnp.swapaxes(A[:, i, j], 1, 2) for i, j in zip(late, early, strict=True)))


@struct
class RowFactor:
    """The factored matrix of all rows.

    reduced: the bodies after the elimination of the rows that are not on the graph
    of_rows: factor of the rows of the graph, None without any
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
    on_tree, on_lone, on_pairs = _loads(bodies, γ_standing / β_standing, turn)
    laws = None
    if bodies.along:
        laws = Laws(bodies.of_coordinates(β, 1.0), bodies.of_coordinates(γ))
    if way.coordinates is not None:
        factor = _in_coordinates(bodies, laws, on_tree, on_lone, on_pairs)
        return Reduced(bodies, factor, None, β_standing, γ_standing, turn)
    factor, lone = bodies.factor, None
    if laws is not None or on_tree is not None:
        factor = eliminated(tree, laws, factor.levels, on_tree)
    if on_lone is not None:
        lone = stored(cholesky_inverse)(on_lone + _inertias(bodies, np.array(way.tree.lone)))
    return Reduced(bodies, factor, lone, β_standing, γ_standing, turn)


def _in_coordinates(
    bodies: Bodies,
    laws: Laws | None,
    on_tree: Array | None,
    on_lone: Array | None,
    on_pairs: Array | None,
) -> CoordinateFactor:
    """The factor of the matrix of all coordinates, with laws along coordinates and loads
    (`_loads`).
    """
    way, plan = bodies.way, bodies.way.coordinates
    at = [way.tree.order.index(body) for body in way.loaded]
    loads = [(plan.of_pairs, on_pairs)]
    if on_tree is not None:
        own = np.array([plan.ends.index((body, -1)) for body in way.loaded])
        loads.append((own, take(on_tree, np.array(at), 2)))
    ends = np.concatenate([ends for ends, _ in loads])
    H = with_loads(plan, bodies.moving, ends, _along_nodes([K for _, K in loads]), on_lone)
    if laws is None:
        return factored_in_coordinates(plan, H, None)
    batch = laws.β.shape[2:]
    ends = [6 * len(bodies.way.tree.roots), 6 * len(bodies.way.tree.lone)]

    def with_ends(x: Array, absent: float) -> Array:
        first, last = (jnp.full((n, *batch), absent, x.dtype) for n in ends)
        return _of_nodes(plan, [first, x, last], batch)

    return factored_in_coordinates(plan, H, Laws(with_ends(laws.β, 1.0), with_ends(laws.γ, 0.0)))


def _of_nodes(plan: CoordinatePlan, parts: Sequence[Array], batch: tuple[int, ...]) -> Array:
    """Numbers of the roots, of the coordinates of joints, and of lone bodies, (…, *batch) each, as
    numbers of the nodes of the plan.
    """
    flat = [jnp.broadcast_to(x, (*x.shape[: x.ndim - len(batch)], *batch)) for x in parts]
    return plan.of_nodes(jnp.concatenate([x.reshape(-1, *batch) for x in flat]))


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
    way = bodies.way
    H, on_tree = _at_ends(bodies, way.ends), way.alone(way.tree.order)
    if not on_tree and not way.pairs:
        return H
    turns, here = [], [*on_tree, *way.on_pairs]
    if on_tree:
        turns.append(take(bodies.tree.turn, np.array(list(on_tree.values())), 2))
    if way.pairs:
        firsts = np.array([way.pairs[pair][0][0] for pair in way.on_pairs.values()])
        turns.append(quat_to_matrix(take(bodies.poses.q, firsts, 1)))
    turn, own = _along_nodes(turns), take(H, np.array(here), 2)
    own = jnp.concatenate([stored(product)(turn, own[i : i + 3]) for i in (0, 3)])
    others = np.setdiff1d(np.arange(H.shape[2]), here)
    parts = [own, take(H, others, 2)] if len(others) else [own]
    return take(_along_nodes(parts), np.argsort([*here, *others]), 2)


def _along_nodes(parts: Sequence[Array]) -> Array:
    """Arrays (6, rows, nodes, *batch) as one."""
    batch = jnp.broadcast_shapes(*(x.shape[3:] for x in parts))
    return jnp.concatenate([jnp.broadcast_to(x, (*x.shape[:3], *batch)) for x in parts], axis=2)


def _loads(
    bodies: Bodies, K: Array, turn_of_rows: Turn | None
) -> tuple[Array | None, Array | None, Array | None]:
    """Loads of the standing rows, Σ H K Hᵀ.

    K: (rows, nodes, *batch); turn_of_rows: as in `Reduced`

    Returns: the loads on bodies of the tree, in the order of the tree, world axes; on lone bodies,
        body axes; on pairs, world axes; (6, 6, bodies or pairs, *batch) each, None without any
    """
    way = bodies.way
    if not way.standing:
        return None, None, None
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
    return (
        load(way.alone(tree), len(tree)),
        load(way.alone(lone), len(lone)),
        load(way.on_pairs, len(way.pairs)),
    )


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
    if bodies.way.graph:
        diagonal = bodies.coupled.diagonal
        own = jnp.stack([diagonal[i, i] for i in range(len(diagonal))])
        parts.append(bodies.way.of_nodes(own, rows))
    along = of_bodies = None
    if bodies.tree is not None:
        along, of_bodies = mobilities(bodies.tree, bodies.factor)
    if bodies.way.standing:
        parts.append(_standing_mobility(bodies, of_bodies))
    if nodes > acting:
        parts.append(bodies.of_rows(along, rows, nodes - acting))
    return all_nodes(parts)


def _standing_mobility(bodies: Bodies, of_bodies: Array | None) -> Array:
    """Diagonal of A of the standing rows, (rows, their nodes, *batch).

    of_bodies: mobilities of the bodies of the tree, world axes, (6, 6, bodies, *batch)
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
        plan = way.coordinates
        between = mobilities_of_ends(plan, bodies.moving, plan.of_pairs)
        parts.append(_along_rows(H, take(between, at, 2)))
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


def blocks(bodies: Bodies, factors: TreeFactor | None, lone: Array | None = None) -> Blocks:
    """A between the rows of the graph; factors: of the tree; lone: see `Reduced`."""
    tree, way = bodies.tree, bodies.way
    H, plan, parts = _of_ends(bodies), way.tree, dict(way.passing)
    turned = H if tree is None else _in_world_axes(tree, H, [b for _, b, _ in way.ends_of_blocks])
    arriving: Array | None = None
    diagonal: list[tuple[np.ndarray, Array]] = []
    edges: list[tuple[np.ndarray, Array]] = []
    for at in reversed(range(LONE, len(plan.levels))):
        passing = parts.get(at)
        if passing is None:
            continue
        G = _wrenches(passing, H if at == LONE else turned, arriving)
        place, block = np.array(passing.place), np.array(passing.block)
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
        diagonal.append((block, stored(transposed_product)(left, right)))
        pairs = [
            (i, j, way.edges[passing.block[i], passing.block[j]])
            for i in range(len(block))
            for j in range(len(block))
            if place[i] == place[j] and block[i] > block[j]
        ]
        if pairs:
            i, j, edge = np.array(pairs).T
            values = stored(transposed_product)(take(left, i, 2), take(right, j, 2))
            edges.append((edge, values))
    r = H.shape[1]
    batch = jnp.broadcast_shapes(bodies.inverse_mass.shape[1:], H.shape[3:])
    like = jnp.zeros((r, r, 0, *batch), H.dtype)
    count = len(way.plan.order)
    return Blocks(_summed(like, count, diagonal), _summed(like, len(way.edges), edges))


def _of_ends(bodies: Bodies) -> Array:
    """Wrenches of the rows of each block on each of its bodies, (6, rows, ends, *batch)."""
    way = bodies.way
    parts = []
    for unit, (nodes, _) in zip(bodies.H, way.sides, strict=True):
        own = sum(node < way.graph for node in nodes)
        parts.append(unit[:, :, :own])
    H, ends = _along_nodes(parts), way.ends_of_blocks
    flat = H.reshape(6, -1, *H.shape[3:])
    index = np.full((max(map(len, way.blocks)), len(ends)), flat.shape[1])
    for end, (_, _, rows) in enumerate(ends):
        for i, row, place in rows:
            index[i, end] = row * H.shape[2] + place
    if (index == flat.shape[1]).any():
        flat = jnp.concatenate([flat, jnp.zeros_like(flat[:, :1])], axis=1)
    return take(flat, index.ravel(), 1).reshape(6, *index.shape, *flat.shape[2:])


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


def _wrenches(passing: Passing, H: Array, arriving: Array | None) -> Array:
    """G of the rows at each pass, (6, r, passes, *batch); arriving: from the passes beyond."""
    parts = []
    for pairs, x in ((passing.starts, H), (passing.beyond, arriving)):
        if pairs:
            places, numbers = np.array(pairs).T
            parts.append((numbers, take(x, places, 2)))
    return _summed(H[:, :, :0], len(passing.place), parts)


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


def _in_world_axes(tree: Tree, H: Array, on: Sequence[int]) -> Array:
    """Wrenches in world axes, for bodies of the tree; for other bodies any numbers.

    on: the body of each
    """
    place = {body: i for i, body in enumerate(tree.plan.order)}
    turn = take(tree.turn, np.array([place.get(body, 0) for body in on], int), 2)
    return jnp.concatenate([stored(product)(turn, H[i : i + 3]) for i in (0, 3)])
