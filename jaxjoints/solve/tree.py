"""Articulated bodies: the motion after impulses of bodies that tree joints hold.

Bodies have twists v, world axes at their centres of mass. A joint of the tree gives its body the
twist v = X v_base + S ν: ν are the speeds of its coordinates, and X carries a twist from one centre
of mass to the other. Impulses p on bodies and e along coordinates cause the motion

    Jᵀ (M v - p) + K ν = e,    v = J ν,

K the augmented stiffness of the coordinates' linear laws. The elimination goes from the leaves to
the roots (Featherstone, Rigid Body Dynamics Algorithms, section 7.3). Let I and p be the inertia
and the impulse of a body together with all bodies that it carries, U = I S and d = Sᵀ U + K. For
each coordinate

    ν = (Sᵀ p + e - Uᵀ X v_base) / d,    I_a = I - U Uᵀ / d,    p_a = p - U (Sᵀ p + e) / d.

The base receives Xᵀ I_a X and Xᵀ p_a. A law λ along the coordinate, β λ + γ ν = r, is eliminated
with it: κ = β / (β d + γ) replaces 1/d. κ is 1/d for a free coordinate (γ = 0) and 0 for a held one
(β = 0).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..algebra.compiler import materialize, stored
from ..algebra.dense import (
    cholesky_inverse,
    multiply,
    multiply_transposed,
    transposed_product,
)
from ..algebra.forest import along_paths
from ..algebra.places import add_at, take
from ..algebra.pytree import replace, static, struct
from ..algebra.rotation import cross, dot


@dataclass(frozen=True)
class TreePlan:
    """The bodies of a forest, level by level.

    bodies: number of bodies, and the place of the world in arrays of bodies
    roots: bodies that carry others and that no joint of the tree places
    lone: bodies that carry none and that no joint of the tree places
    levels: for each distance from the root its bodies, and for each the place of its base among the
        bodies of the level before, or of the roots; -1 for a base of given motion
    bases: the base of each body of a level, a body or the world
    coordinates: of each level, the largest number of coordinates of a joint
    counts: number of coordinates of each joint, level by level
    """

    bodies: int
    roots: tuple[int, ...]
    lone: tuple[int, ...]
    levels: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    bases: tuple[tuple[int, ...], ...]
    coordinates: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, bodies: Sequence[bool], branches: Sequence[tuple[int, int, int]]) -> "TreePlan":
        """The plan of some bodies and branches.

        bodies: for each body True where it moves, False where its motion is given
        branches: (body, base, coordinates), each after the branch of its base; a base that is no
            body is the world
        """
        world = len(bodies)
        level, place = {}, {}
        levels: list[list[tuple[int, int, int]]] = []
        for body, base, count in branches:
            base = base if 0 <= base < world else world
            level[body] = level.get(base, -1) + 1
            if level[body] == len(levels):
                levels.append([])
            place[body] = len(levels[level[body]])
            levels[level[body]].append((body, base, count))
        carrying = {base for at in levels for _, base, _ in at}
        free = [b for b, moves in enumerate(bodies) if moves and b not in level]
        roots = [b for b in free if b in carrying]
        place |= {b: i for i, b in enumerate(roots)}
        return cls(
            bodies=world,
            roots=tuple(roots),
            lone=tuple(b for b in free if b not in carrying),
            levels=tuple(
                (tuple(body for body, _, _ in at), tuple(place.get(base, -1) for _, base, _ in at))
                for at in levels
            ),
            bases=tuple(tuple(base for _, base, _ in at) for at in levels),
            coordinates=tuple(max(count for _, _, count in at) for at in levels),
            counts=tuple(count for at in levels for _, _, count in at),
        )

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Of each level the range of its joints among the joints of all levels."""
        ends = np.cumsum([0, *(len(bodies) for bodies, _ in self.levels)])
        return tuple((int(a), int(b)) for a, b in zip(ends, ends[1:], strict=False))

    @cached_property
    def size(self) -> int:
        """Number of coordinates of all bodies, six for each that no joint of the tree places."""
        return 6 * (len(self.roots) + len(self.lone)) + sum(self.counts)

    @cached_property
    def before(self) -> np.ndarray:
        """The base of each joint, as a place in `order`; one beyond for a base of given motion."""
        place = {body: i for i, body in enumerate(self.order)}
        bases = [base for of_level in self.bases for base in of_level]
        return np.array([place.get(base, len(place)) for base in bases], int)

    def present(self, like: Array) -> Array:
        """1 for coordinates that exist in a level, 0 for padding, (coordinates, joints, *1)."""
        counts = np.repeat(self.coordinates, [b - a for a, b in self.spans])
        mask = np.arange(like.shape[0])[:, None] < counts
        return jnp.asarray(mask.reshape(*mask.shape, *(1,) * (like.ndim - 2)), like.dtype)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The bodies in the order of the tree: the roots first, then level by level."""
        return self.roots + tuple(body for bodies, _ in self.levels for body in bodies)


@struct
class Tree:
    """Places and inertias of articulated bodies, world axes.

    Bodies stand in the order `plan.order`, joints like the bodies that they place.

    turn: from body axes to world axes, (3, 3, bodies, *batch)
    mass, inertia: (bodies, *batch) and (3, 3, bodies, *batch)
    arm: from the centre of mass of the base to that of the body, (3, joints, *batch)
    S: twist of the body for unit speed of each coordinate while the base stands, (6, coordinates,
        joints, *batch); padded by zeros for joints with fewer coordinates
    stiffness: K of each coordinate, (coordinates, joints, *batch)
    """

    turn: Array
    mass: Array
    inertia: Array
    arm: Array
    S: Array
    stiffness: Array
    plan: TreePlan = static()

    def level(self, at: int) -> "Level":
        """The joints of a level and the bodies that they place."""
        (a, b), k, bodies = self.plan.spans[at], self.plan.coordinates[at], self.bodies(at)
        of_joints = self.arm[:, a:b], self.S[:, :k, a:b], self.stiffness[:k, a:b]
        return Level(*of_joints, self.mass[bodies], self.inertia[:, :, bodies])

    def bodies(self, at: int) -> slice:
        """Range of the bodies of a level among all bodies; of the roots for -1."""
        roots = len(self.plan.roots)
        if at < 0:
            return slice(0, roots)
        a, b = self.plan.spans[at]
        return slice(roots + a, roots + b)


class Level(NamedTuple):
    """The joints of a level and the bodies that they place, fields as in a `Tree`.

    Levels with arrays of one shape, such as those of a chain, share their `stored` programs, which
    XLA compiles once.
    """

    arm: Array
    S: Array
    stiffness: Array
    mass: Array
    inertia: Array


class Laws(NamedTuple):
    """β and γ of laws along coordinates, β λ + γ ν = r, (coordinates, joints, *batch) each."""

    β: Array
    γ: Array


class Joints(NamedTuple):
    """The eliminated joints of a level.

    U: (6, k, joints, *batch); κ: (k, joints, *batch); d: without laws, (k, joints, *batch)
    """

    U: Array
    κ: Array
    d: Array


@struct
class TreeFactor:
    """The eliminated tree.

    levels, joints: the levels of the tree, and their eliminated joints
    laws: along the coordinates, None for none
    d: of all coordinates, (coordinates, joints, *batch); weakness: 1/(β d + γ), 1/d without laws
    roots: L⁻¹ of the inertia L Lᵀ of each root with all bodies that it carries, (6, 6, roots,
        *batch)
    """

    levels: tuple[Level, ...]
    joints: tuple[Joints, ...]
    laws: Laws | None
    d: Array
    weakness: Array
    roots: Array


class OnTree(NamedTuple):
    """Numbers of a tree.

    roots: (6, roots, *batch); coordinates: (coordinates, joints, *batch)
    """

    roots: Array
    coordinates: Array


def eliminated(
    tree: Tree,
    laws: Laws | None = None,
    levels: tuple[Level, ...] | None = None,
    load: Array | None = None,
) -> TreeFactor:
    """The factor of a tree, with laws along its coordinates or without.

    levels: of the tree, where another factor has them
    load: added to the inertias of the bodies, (6, 6, bodies, *batch)
    """
    count = range(len(tree.plan.levels))
    levels = tuple(tree.level(at) for at in count) if levels is None else levels
    factors: list[Joints] = []
    carried: tuple[Array, ...] = ()
    for at in reversed(count):
        law = None if laws is None else Laws(*(_of_level(tree, at, x) for x in laws))
        own = levels[at].mass, levels[at].inertia, _of_bodies(tree, at, load)
        joints, *carried = stored(_reduced)(levels[at], law, *_laden(tree, at, *own, *carried))
        factors.insert(0, joints)
    bodies = tree.bodies(-1)
    own = tree.mass[bodies], tree.inertia[:, :, bodies], _of_bodies(tree, -1, load)
    roots = stored(_root_inverse)(*_laden(tree, -1, *own, *carried))
    d = _of_levels(tree, [joints.d for joints in factors], absent=1.0)
    weakness = tree.plan.present(d) / (d if laws is None else laws.β * d + laws.γ)
    return TreeFactor(levels, tuple(factors), laws, d, weakness, roots)


def moved(
    tree: Tree, factor: TreeFactor, impulse: Array, along: Array
) -> tuple[OnTree, Array, Array | None]:
    """The motion that impulses cause.

    impulse: on the bodies, (6, bodies, *batch)
    along: impulses e along the coordinates; r of the laws in a factor with laws

    Returns: twists of the roots and speeds of the coordinates; twists of the bodies; impulses of
    the laws, None without laws
    """
    laws, levels = factor.laws, range(len(tree.plan.levels))
    speeds = factor.weakness * along
    parts, carried = [_of_level(tree, at, speeds) for at in levels], ()
    forces: list[Array] = []
    for at in reversed(levels):
        own = _with_carried(tree, at, impulse[:, tree.bodies(at)], *carried)
        of_level = factor.levels[at], factor.joints[at]
        force, *carried = stored(_inwards)(own, parts[at], *of_level)
        forces.insert(0, force)
    roots = _with_carried(tree, -1, impulse[:, tree.bodies(-1)], *carried)
    roots = multiply_transposed(factor.roots, multiply(factor.roots, roots))
    twists = [roots]
    for at in levels:
        base = _of_bases(tree.plan, at, twists[-1])
        of_level = factor.levels[at], factor.joints[at]
        twist, forces[at] = stored(_outwards)(base, forces[at], parts[at], *of_level)
        twists.append(twist)
    force = _of_levels(tree, forces)
    speeds = speeds + force * factor.weakness * (1.0 if laws is None else laws.β)
    λ = None if laws is None else factor.weakness * (along * factor.d - laws.γ * force)
    return OnTree(roots, speeds), _joined(twists), λ


def _of_level(tree: Tree, at: int, x: Array) -> Array:
    """Numbers of the coordinates of a level."""
    a, b = tree.plan.spans[at]
    return x[: tree.plan.coordinates[at], a:b]


def _of_levels(tree: Tree, parts: Sequence[Array], absent: float = 0.0) -> Array:
    """Numbers of the coordinates of each level as those of all, (coordinates, joints, *batch).

    absent: number for coordinates that a joint does not have
    """
    most = tree.stiffness.shape[0]

    def tall(x):
        missing = [(0, most - x.shape[0])] + [(0, 0)] * (x.ndim - 1)
        return jnp.pad(x, missing, constant_values=absent) if x.shape[0] < most else x

    return _joined([tall(x) for x in parts]) if parts else tree.stiffness


def _joined(parts: Sequence[Array]) -> Array:
    """Arrays (k, n, *batch) of several levels as one."""
    batch = jnp.broadcast_shapes(*(x.shape[2:] for x in parts))
    return jnp.concatenate([jnp.broadcast_to(x, (*x.shape[:2], *batch)) for x in parts], axis=1)


@jax.custom_jvp
def response(tree: Tree, factor: TreeFactor, impulse: Array, along: Array) -> tuple[OnTree, Array]:
    """Speeds and twists of `moved` without laws, differentiable to any order.

    factor: of the tree, a constant for differentiation
    """
    return moved(tree, factor, impulse, along)[:2]


@response.defjvp
def _response_jvp(primals: tuple, tangents: tuple) -> tuple:
    """The derivative of the motion with `_unbalanced` = 0: one more solve."""
    tree, factor, impulse, along = primals
    at, twists = response(*primals)

    def left(tree, impulse, along):
        return _unbalanced(tree, at, following(tree, at), impulse, along)

    _, change = jax.jvp(left, (tree, impulse, along), (tangents[0], *tangents[2:]))

    # One array: JAX cannot transpose a solve if a part of its right side is constant.
    def times(y):
        y = _unpacked(tree, y)
        return _packed(_unbalanced(tree, y, following(tree, y), None, None))

    def solved(_, b):
        roots, along = _unpacked(tree, b)
        rest = jnp.zeros((*roots.shape[:1], along.shape[1], *roots.shape[2:]), roots.dtype)
        return _packed(moved(tree, factor, jnp.concatenate([roots, rest], axis=1), along)[0])

    slope = lax.custom_linear_solve(times, -_packed(change), solved, symmetric=True)
    slope = _unpacked(tree, slope)
    return (at, twists), (slope, jax.jvp(following, (tree, at), (tangents[0], slope))[1])


def _packed(x: OnTree) -> Array:
    """Numbers of a tree as one array, (numbers, *batch)."""
    return jnp.concatenate([y.reshape(-1, *y.shape[2:]) for y in x])


def _unpacked(tree: Tree, x: Array) -> OnTree:
    """The inverse of `_packed`."""
    count, shape = 6 * len(tree.plan.roots), tree.stiffness.shape[:2]
    roots, along = x[:count], x[count:]
    roots = roots.reshape(6, count // 6, *x.shape[1:])
    return OnTree(roots, along.reshape(*shape, *x.shape[1:]))


def following(tree: Tree, at: OnTree) -> Array:
    """Twists of all bodies while roots and coordinates move, (6, bodies, *batch)."""
    return _along_paths(tree, at.roots, stored(multiply)(tree.S, at.coordinates))


def while_roots_rest(tree: Tree, own: Array) -> Array:
    """Several twists of each body while the roots rest, (6, bodies, several, *batch).

    own: twists of the bodies relative to their bases, (6, joints, several, *batch)
    """
    rest = jnp.zeros((6, len(tree.plan.roots), *own.shape[2:]), own.dtype)
    return _along_paths(replace(tree, arm=tree.arm[:, :, None]), rest, own)


def _along_paths(tree: Tree, roots: Array, own: Array) -> Array:
    """Twists of all bodies; roots: of the roots; own: of other bodies relative to their bases."""
    own = _joined([roots, own])
    angular = _summed(tree.plan, own[3:])
    across = stored(cross)(_of_places(angular, tree.plan.before), tree.arm)
    linear = _joined([own[:3, : roots.shape[1]], own[:3, roots.shape[1] :] + across])
    return jnp.concatenate([_summed(tree.plan, linear), angular])


def _unbalanced(
    tree: Tree, at: OnTree, twists: Array, impulse: Array | None, along: Array | None
) -> OnTree:
    """Jᵀ (M v - p) + K ν - e."""
    own = momentum(tree, twists)
    roots, force = on_coordinates(tree, own if impulse is None else own - impulse)
    force = force + tree.stiffness * at.coordinates
    return OnTree(roots, force if along is None else force - along)


def on_coordinates(tree: Tree, impulse: Array) -> OnTree:
    """Jᵀ p of impulses on the bodies, (6, bodies, *batch)."""
    own, roots = on_joints(tree, impulse), len(tree.plan.roots)
    return OnTree(own[:, :roots], stored(multiply_transposed)(tree.S, own[:, roots:]))


def _summed(plan: TreePlan, x: Array) -> Array:
    """Sums over each body and the bodies that carry it, (k, bodies, *batch)."""
    before = np.append([len(plan.order)] * len(plan.roots), plan.before).astype(int)
    return along_paths(before, jnp.add, x, jnp.zeros_like(x[:, :1]))


def _collected(plan: TreePlan, x: Array) -> Array:
    """Sums over each body and the bodies that it carries, (k, bodies, *batch)."""
    return jax.linear_transpose(partial(_summed, plan), x)(x)[0]


def _of_places(x: Array, places: np.ndarray) -> Array:
    """Numbers (k, n, *batch) of bodies at places in `order`, 0 for places beyond."""
    if (places == x.shape[1]).any():
        x = jnp.concatenate([x, jnp.zeros_like(x[:, :1])], axis=1)
    return take(x, places, 1)


def momentum(tree: Tree, twists: Array) -> Array:
    """Momenta of the bodies, (6, bodies, *batch)."""
    angular = stored(multiply)(tree.inertia, twists[3:])
    return jnp.concatenate([tree.mass[None] * twists[:3], angular])


def on_joints(tree: Tree, impulse: Array) -> Array:
    """Sum of the impulses on each body and on all bodies that it carries, about its centre of mass,
    (6, bodies, *batch).

    impulse: on each single body. For the change of its momentum less all impulses from outside, the
        sums are the impulses of the joints
    """
    roots = len(tree.plan.roots)
    force = _collected(tree.plan, impulse[:3])
    moment = stored(cross)(tree.arm, force[:, roots:])
    moving = np.flatnonzero(tree.plan.before < len(tree.plan.order))
    moment = add_at(impulse[3:], tree.plan.before[moving], take(moment, moving, 1), 1)
    return jnp.concatenate([force, _collected(tree.plan, moment)])


def of_tree(tree: Tree, x: Array) -> Array:
    """Twists or impulses of the bodies of the tree, world axes, (6, bodies, *batch).

    x: of all bodies and the world, body axes, (6, bodies + 1, *batch)
    """
    own = take(x, np.array(tree.plan.order, int), 1)
    return jnp.concatenate([stored(multiply)(tree.turn, own[i : i + 3]) for i in (0, 3)])


def with_tree(tree: Tree, x: Array, world: Array) -> Array:
    """x with the bodies of the tree replaced, body axes, (6, bodies + 1, *batch).

    x: twists or impulses of all bodies and the world; world: of the bodies of the tree, as
        `of_tree` returns them
    """
    own = [stored(multiply_transposed)(tree.turn, world[i : i + 3]) for i in (0, 3)]
    at = np.arange(x.shape[1])
    at[list(tree.plan.order)] = len(at) + np.arange(len(tree.plan.order))
    return take(_joined([x, jnp.concatenate(own)]), at, 1)


def mobilities(tree: Tree, factor: TreeFactor) -> tuple[Array, Array]:
    """Speed of each coordinate for a unit impulse along it, (coordinates, joints, *batch), and
    twists of each body for unit impulses on it, (6, 6, bodies, *batch).
    """
    base = stored(transposed_product)(factor.roots, factor.roots)
    found, bodies = [], [base]
    for at, of_level in enumerate(zip(factor.levels, factor.joints, strict=True)):
        base = _of_bases(tree.plan, at, base, axis=2)
        mobility, base = stored(_mobility)(base, *of_level)
        found.append(mobility)
        bodies.append(base)
    batch = jnp.broadcast_shapes(*(x.shape[3:] for x in bodies))
    bodies = [jnp.broadcast_to(x, (*x.shape[:3], *batch)) for x in bodies]
    return _of_levels(tree, found), jnp.concatenate(bodies, axis=2)


def _mobility(base: Array, level: Level, joints: Joints) -> tuple[Array, Array]:
    """Mobilities of coordinates of a level and of its bodies, (6, 6, joints, *batch), from those of
    their bases.
    """
    arm = level.arm
    A, B, C = base[:3, :3], base[:3, 3:], base[3:, 3:]
    # X Λ Xᵀ: the mobility of the base, carried over the arm.
    above = B - _skew_times(arm, C)
    below = jnp.swapaxes(above, 0, 1)
    A = A - _skew_times(arm, jnp.swapaxes(B, 0, 1)) + _times_skew(above, arm)
    Λ = jnp.concatenate([jnp.concatenate(row, axis=1) for row in ((A, above), (below, C))])
    count = joints.κ.shape[0]
    found: list[Array] = [joints.κ] * count
    for c in reversed(range(count)):
        U, κ, S = joints.U[:, c], joints.κ[c], level.S[:, c]
        # Stored: XLA would compute it anew for each number of the matrix.
        Λ, w = materialize((Λ, multiply(Λ, U)))
        found[c] = κ + κ * κ * dot(U, w)
        across = S[:, None] * (κ[None] * w)[None]
        Λ = Λ - across - jnp.swapaxes(across, 0, 1) + S[:, None] * (found[c][None] * S)[None]
    return jnp.stack(found) if found else joints.κ, Λ


def _onto(plan: TreePlan, at: int, x: Array, carried: Array, axis: int = 1) -> Array:
    """Values of the roots (`at` 0) or of level `at` - 1, plus the values that they carry.

    carried: values of the bodies of level `at`
    """
    bases = np.array(plan.levels[at][1])
    if np.array_equal(bases, np.arange(x.shape[axis])):
        return x + carried
    moving = np.flatnonzero(bases >= 0)
    if not len(moving):
        return x
    carried = carried if len(moving) == len(bases) else take(carried, moving, axis)
    return add_at(x, bases[moving], carried, axis)


def _of_bases(plan: TreePlan, at: int, x: Array, axis: int = 1) -> Array:
    """Values of the bases of the bodies of a level, 0 for bases of given motion.

    x: of the roots for the first level, else of the level before
    """
    bases = np.array(plan.levels[at][1])
    if np.array_equal(bases, np.arange(x.shape[axis])):
        return x
    if (bases < 0).any():
        shape = list(x.shape)
        shape[axis] = 1
        x = jnp.concatenate([x, jnp.zeros(shape, x.dtype)], axis=axis)
        bases = bases % x.shape[axis]
    return take(x, bases, axis)


def _with_carried(tree: Tree, at: int, x: Array, *carried: Array) -> Array:
    """Impulses on the bodies of a level, or on the roots, plus the impulses that they carry."""
    return materialize(_onto(tree.plan, at + 1, x, *carried)) if carried else x


def _of_bodies(tree: Tree, at: int, load: Array | None) -> Array | None:
    """The part of `load` (6, 6, bodies, *batch) for a level, or for the roots."""
    return None if load is None else load[:, :, tree.bodies(at)]


def _laden(
    tree: Tree, at: int, mass: Array, inertia: Array, load: Array | None, *carried: Array
) -> tuple[Array, Array, Array]:
    """Inertias of the bodies of a level, or of the roots, with all that they carry: blocks A, B, C
    of the momenta A v + B ω and Bᵀ v + C ω.
    """
    unit = jnp.eye(3, dtype=inertia.dtype).reshape(3, 3, *(1,) * (inertia.ndim - 2))
    zero = jnp.zeros_like(inertia)
    blocks = mass[None, None] * unit + zero, zero, inertia
    if load is not None:
        own = load[:3, :3], load[:3, 3:], load[3:, 3:]
        blocks = tuple(x + y for x, y in zip(blocks, own, strict=True))
    if carried:
        pairs = zip(blocks, carried, strict=True)
        blocks = tuple(_onto(tree.plan, at + 1, x, y, 2) for x, y in pairs)
    return materialize(blocks)


def _reduced(
    level: Level, law: Laws | None, A: Array, B: Array, C: Array
) -> tuple[Joints, Array, Array, Array]:
    """The eliminated joints of a level, and the blocks of I_a carried to the bases."""
    arm, found = level.arm, []
    for c in range(level.S.shape[1]):
        linear, angular = level.S[:3, c], level.S[3:, c]
        U = multiply(A, linear) + multiply(B, angular)
        V = multiply_transposed(B, linear) + multiply(C, angular)
        d = dot(linear, U) + dot(angular, V) + level.stiffness[c]
        # Protects the division from coordinates that a joint does not have.
        d = jnp.where(d > 0, d, 1.0)
        κ = 1 / d if law is None else law.β[c] / (law.β[c] * d + law.γ[c])
        κU, κV = κ[None] * U, κ[None] * V
        A = A - U[:, None] * κU[None]
        B = B - U[:, None] * κV[None]
        C = C - V[:, None] * κV[None]
        found.append((jnp.concatenate([U, V]), κ, d))
    joints = Joints(level.S, level.stiffness, level.stiffness)
    if found:
        U, κ, d = zip(*found, strict=True)
        joints = Joints(jnp.stack(U, axis=1), jnp.stack(κ), jnp.stack(d))
    return joints, *_at_bases(arm, A, B, C)


def _at_bases(arm: Array, A: Array, B: Array, C: Array) -> tuple[Array, Array, Array]:
    """The blocks of inertias at the ends of arms, carried to their beginnings."""
    turned = B - _times_skew(A, arm)
    return A, turned, C + _skew_times(arm, turned) - _times_skew(jnp.swapaxes(B, 0, 1), arm)


def composite_inertias(tree: Tree) -> Array:
    """Inertias of all bodies, each with the bodies that it carries at rest relative to it, world
    axes at its centre of mass, (6, 6, bodies, *batch).
    """
    found: list[Array] = []
    carried: tuple[Array, ...] = ()
    for at in reversed(range(-1, len(tree.plan.levels))):
        bodies = tree.bodies(at)
        whole = _laden(tree, at, tree.mass[bodies], tree.inertia[:, :, bodies], None, *carried)
        found.insert(0, _whole(*whole))
        if at >= 0:
            carried = stored(_at_bases)(tree.level(at).arm, *whole)
    return jnp.concatenate(found, axis=2)


def _whole(A: Array, B: Array, C: Array) -> Array:
    """Inertias from their blocks."""
    upper = jnp.concatenate([A, B], axis=1)
    return jnp.concatenate([upper, jnp.concatenate([jnp.swapaxes(B, 0, 1), C], axis=1)])


def _root_inverse(A: Array, B: Array, C: Array) -> Array:
    """L⁻¹ of the inertias of the roots."""
    return cholesky_inverse(_whole(A, B, C))


def _inwards(own: Array, speeds: Array, level: Level, joints: Joints) -> tuple[Array, Array]:
    """Sᵀ p of each coordinate, and the part of p that the bases receive.

    own: p; speeds: of the coordinates, the part that e or r cause
    """
    forces = []
    for c in range(joints.κ.shape[0]):
        forces.append(dot(level.S[:, c], own))
        own = own - joints.U[:, c] * (speeds[c] + joints.κ[c] * forces[-1])[None]
    return jnp.stack(forces) if forces else joints.κ, _carried(level.arm, own)


def _outwards(
    base: Array, forces: Array, speeds: Array, level: Level, joints: Joints
) -> tuple[Array, Array]:
    """Twists of the bodies of a level, and Sᵀ p - Uᵀ X v_base of each coordinate.

    base: twists of the bases; forces, speeds: of `_inwards`
    """
    twist = _along_arm(level.arm, base)
    found = [joints.κ] * joints.κ.shape[0]
    for c in reversed(range(len(found))):
        found[c] = forces[c] - dot(joints.U[:, c], twist)
        speed = speeds[c] + joints.κ[c] * found[c]
        twist = twist + level.S[:, c] * speed[None]
    return twist, jnp.stack(found) if found else joints.κ


def _along_arm(arm: Array, twist: Array) -> Array:
    """The twist at the end of an arm, (6, …); twist: at its beginning."""
    return jnp.concatenate([twist[:3] + cross(twist[3:], arm), twist[3:]])


def _carried(arm: Array, impulse: Array) -> Array:
    """The impulse at the beginning of an arm, (6, …); impulse: at its end."""
    return jnp.concatenate([impulse[:3], impulse[3:] + cross(arm, impulse[:3])])


def _skew_times(r: Array, B: Array) -> Array:
    """[r]ₓ B."""
    x, y, z = r[0][None], r[1][None], r[2][None]
    return jnp.stack([y * B[2] - z * B[1], z * B[0] - x * B[2], x * B[1] - y * B[0]])


def _times_skew(B: Array, r: Array) -> Array:
    """B [r]ₓ."""
    return -jnp.swapaxes(_skew_times(r, jnp.swapaxes(B, 0, 1)), 0, 1)
