"""The equation of motion in joint coordinates, M ν̇ + C ν + g = τ, on a spanning tree.

ν are the speeds of `spanning_tree`: for a tree of joints on the world the speeds q̇ of all
coordinates. On loops, M, C and g are those of the tree; the joints that close the loops constrain ν
with K ν = k, see `constraint_jacobian`.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.compiler import is_traced, materialize, quickly
from ..algebra.dense import multiply_transposed
from ..algebra.options import brief, plain_numbers
from ..algebra.places import take
from ..algebra.pytree import expand_trailing, replace
from ..algebra.spatial import cross, matvec, quat_rotate, quat_rotate_inverse
from ..assembly.group_rows import Interval
from ..assembly.problem import row_problem, row_rates
from ..assembly.targets import Instant
from ..laws.drives import Armature
from ..model.batch import batch_shape, is_single
from ..model.groups import JointGroup, TransmissionGroup
from ..model.kinematics import (
    Mechanism,
    body_twists,
    coordinate_indices,
    coordinate_speeds,
    moving_bodies,
    system_kinematics,
    transmission_rows,
    with_world,
)
from ..model.state import Control, State
from ..model.system import System
from ..schemes.instant import INSTANT
from ..simulate.door import entered
from ..solve.problem import trailing
from .acceleration import ready
from .tree import (
    SpanningTree,
    columns,
    first_bodies,
    first_twists,
    moving_on,
    spanning_tree,
    tree_speeds,
    world_twists,
)


@public
def speeds_of(system: System, state: State) -> Array:
    """ν of a state: what its velocities are in the order of `spanning_tree`, (speeds, *batch)."""
    return _speeds(*entered("speeds_of", system, state)[:2])


@public
def mass_matrix(system: System, state: State) -> Array:
    """M of the kinetic energy ½ νᵀ M ν, armatures included.

    An armature I of a value s of a transmission, or of a coordinate s of a joint that closes a
    loop, adds I ∂ṡ/∂ν ∂ṡ/∂νᵀ.

    Returns: shape (speeds, speeds, *batch), rows and columns in the order of `spanning_tree`
    Source: Featherstone, Rigid Body Dynamics Algorithms, chapter 6.

    >>> from jaxjoints import Hinge, SystemBuilder
    >>> world = SystemBuilder()
    >>> arm = world.body("arm", mass=2.0, inertia=(0.1, 0.1, 0.02), com=(0.0, 0.0, -0.5))
    >>> _ = world.joint("shoulder", Hinge((0.0, 1.0, 0.0)), child=arm)
    >>> print(mass_matrix(*world.build()).round(6))  # I + m r²
    [[0.6]]
    """
    return _mass_matrix(*entered("mass_matrix", system, state)[:2])


@public
def bias_forces(system: System, state: State) -> Array:
    """C ν + g: the efforts along ν that leave ν as it is, (speeds, *batch).

    What laws, fields and controls give is not in it, nor what surfaces that move with time ask for
    beyond the motion of the state.
    """
    system, state, _ = entered("bias_forces", system, state)
    none = jnp.zeros(spanning_tree(system).speeds, state.position.dtype)
    return _tree_forces(system, state, none)


@public
def tree_forces(system: System, state: State, rates: Any) -> Array:
    """M ν̇ + C ν + g: the efforts along ν under which ν changes at `rates`, (speeds, *batch).

    The inverse dynamics of the tree in one pass, without M. As in `bias_forces`, laws, fields and
    controls have no part in it, but armatures have. `inverse_dynamics` knows these, loops, stops
    and contacts too, and finds efforts of chosen joints alone, for many times the work.

    rates: ν̇ [m/s² or rad/s²] in the order of `spanning_tree`, shape (speeds,) or (speeds, *batch)
    Raises: ValueError for rates of another shape
    Source: Featherstone, Rigid Body Dynamics Algorithms, chapter 5.

    >>> from jaxjoints import Hinge, SystemBuilder
    >>> world = SystemBuilder(gravity=(0.0, 0.0, -9.81))
    >>> arm = world.body("arm", mass=2.0, inertia=(0.1, 0.1, 0.02), com=(0.0, 0.0, -0.5))
    >>> _ = world.joint("shoulder", Hinge((0.0, 1.0, 0.0)), child=arm, q=0.3)
    >>> print(tree_forces(*world.build(), [1.0]).round(3))
    [3.499]
    """
    system, state, _ = entered("tree_forces", system, state)
    count, batch = spanning_tree(system).speeds, batch_shape(system, state, None)
    if not isinstance(rates, jax.Array) and not is_traced(rates) and plain_numbers(rates) is None:
        raise ValueError(f"tree_forces: rates {brief(rates)} must be numbers of shape ({count},)")
    rates = jnp.asarray(rates, state.position.dtype)
    if rates.shape not in ((count,), (count, *batch)):
        raise ValueError(
            f"tree_forces: rates has shape {rates.shape}, the tree has {count} speeds and the "
            f"system and state the batch axes {batch}; give one number for each of "
            "`spanning_tree(system).speeds`"
        )
    return _tree_forces(system, state, rates)


@public
def gravity_forces(system: System, state: State) -> Array:
    """g: the efforts along ν that carry the weight of all bodies, (speeds, *batch)."""
    return _gravity_forces(*entered("gravity_forces", system, state)[:2])


@public
def coriolis_matrix(system: System, state: State) -> Array:
    """C for which Ṁ - 2 C is skew and C ν the forces of velocity, (speeds, speeds, *batch)."""
    return _coriolis_matrix(*entered("coriolis_matrix", system, state)[:2])


@public
def momentum_matrix(system: System, state: State) -> Array:
    """A of the momentum A ν, linear and then angular about the system's centre of mass, world axes.

    Returns: the centroidal momentum matrix, shape (6, speeds, *batch)
    Source: Orin, Goswami & Lee 2013.
    """
    return _momentum_matrix(*entered("momentum_matrix", system, state)[:2])


@public
def constraint_jacobian(system: System, state: State) -> Array:
    """K of the rows that constrain ν: joints that close loops, rolling, transmissions, locks.

    Returns: shape (rows, speeds, *batch); rows of the tree's own joints are 0
    """
    return _constraint_jacobian(*entered("constraint_jacobian", system, state)[:2])


@partial(quickly, where=is_single)
def _speeds(system: System, state: State) -> Array:
    mechanism, state, _ = ready(system, state, Control())
    return tree_speeds(mechanism, spanning_tree(system), state)


@partial(quickly, where=is_single)
def _mass_matrix(system: System, state: State) -> Array:
    mechanism, state, _ = ready(system, state, Control())
    tree = spanning_tree(system)
    M = _of_composite_bodies(mechanism, tree, state)
    first = np.arange(len(tree.coordinates))
    M = M.at[first, first].add(_armatures(mechanism, tree, state))
    if not _is_geared(mechanism.system, tree):
        return M
    W, inertia = _geared_columns(mechanism, tree, state)
    return M + _across_geared(W, inertia[:, None] * W)


def _armatures(mechanism: Mechanism, tree: SpanningTree, state: State) -> Array:
    """Armatures of the coordinates of the tree's joints, (coordinates of the tree, *batch)."""
    batch = state.time.shape
    armature = jnp.zeros((mechanism.system.coordinates, *batch), state.position.dtype)
    for group in mechanism.system.groups:
        for law in _armatures_of(group):
            at = coordinate_indices(group)[law.coordinate]
            armature = armature.at[at].add(jnp.broadcast_to(law.inertia, (len(at), *batch)))
    return armature[np.array(tree.coordinates, int)]


def _armatures_of(group: JointGroup | TransmissionGroup) -> list[Armature]:
    """The armatures among a group's laws, 0 where a member is switched off."""
    laws = [law for law in group.laws if isinstance(law, Armature)]
    if group.enabled is None:
        return laws
    return [replace(law, inertia=jnp.where(group.enabled > 0, law.inertia, 0.0)) for law in laws]


def _is_geared(system: System, tree: SpanningTree) -> bool:
    """Whether a speed beside those of the tree has an armature; few systems pay for that."""
    placing = {branch.joint for branch in tree.branches}
    beside = [group for group in system.groups if not placing.issuperset(group.joints)]
    return any(_armatures_of(group) for group in (*beside, *system.transmissions))


def _geared(
    mechanism: Mechanism, tree: SpanningTree, state: State, twist: Array
) -> tuple[Array, Array]:
    """Speeds beside those of the tree that have an armature, of coordinates that close loops and of
    values of transmissions; and these armatures; (geared, *batch) each.

    twist: of all bodies, world axes, (6, bodies, *batch)
    """
    system, kinematics = mechanism.system, system_kinematics(mechanism, state)
    parts = [quat_rotate_inverse(state.quaternion, x) for x in jnp.split(twist, 2)]
    twist, placing = with_world(jnp.concatenate(parts)), {x.joint for x in tree.branches}
    none = jnp.zeros((0, *state.time.shape), twist.dtype)
    speeds, inertias = [none], [none]

    def add(laws, speed, members):
        for law in laws:
            shape = speed.shape[1], *state.time.shape
            for found, x in ((speeds, speed[law.coordinate]), (inertias, law.inertia)):
                found.append(take(jnp.broadcast_to(x, shape), members, 0))

    for group, joint in zip(system.groups, kinematics.joints, strict=True):
        closing = np.flatnonzero([j not in placing for j in group.joints])
        add(_armatures_of(group), coordinate_speeds(group, joint, twist), closing)
    for group in system.transmissions:
        _, H = transmission_rows(mechanism, group, kinematics)
        sides = zip(H, zip(*group.bodies, strict=True), strict=True)
        speed = sum(multiply_transposed(side, twist[:, np.array(at)]) for side, at in sides)
        add(_armatures_of(group), speed, np.arange(len(group.members)))
    return jnp.concatenate(speeds), jnp.concatenate(inertias)


def _geared_columns(mechanism: Mechanism, tree: SpanningTree, state: State) -> tuple[Array, Array]:
    """`_geared` speeds for unit speeds ν, (geared, speeds, *batch), and armatures."""
    along = partial(_geared, mechanism, tree, state)
    J = columns(mechanism, tree, state)
    return jax.vmap(along, in_axes=2, out_axes=(1, None))(J)


def _across_geared(W: Array, x: Array) -> Array:
    """Wᵀ x, (geared, speeds, *batch) and (geared, columns, *batch) to (speeds, columns, *batch)."""
    return jnp.einsum("gi...,gj...->ij...", W, x, precision="highest")


def _of_composite_bodies(mechanism: Mechanism, tree: SpanningTree, state: State) -> Array:
    """M of the bodies alone: the momentum of all that one speed carries, along each speed that
    carries this.
    """
    carries, arm, S = _about_bases(mechanism, tree, state)
    count = state.position.shape[1]
    moving = moving_bodies(mechanism.system, state.time.ndim)
    mass = jnp.broadcast_to(jnp.where(moving, mechanism.system.mass, 0.0), arm.shape[1:])
    unit = expand_trailing(jnp.eye(3, dtype=arm.dtype)[:, None], 3, state.time.ndim)
    unit = jnp.broadcast_to(unit, (3, count, 3, *state.time.shape))
    turned = jnp.where(moving[None, :, None], _turned_inertia(mechanism, state, unit), 0.0)
    across = cross(arm[:, :, None], cross(unit, arm[:, :, None]))
    inertia = turned + mass[None, :, None] * across
    parts = jnp.concatenate([mass[None], mass[None] * arm, *jnp.moveaxis(inertia, 2, 0)])
    mass, h, I = jnp.split(_carried(carries, parts), (1, 4))  # noqa: E741
    v, omega = S[:3], S[3:]
    momentum = mass * v + cross(omega, h)
    spin = cross(h, v) + matvec(I.reshape(3, 3, *I.shape[1:]), omega)
    S, p = materialize((S, jnp.concatenate([momentum, spin])))
    M = jnp.einsum("ki...,kj...->ij...", S, p, precision="highest")
    bears = carries[:, first_bodies(mechanism, tree)]
    bears = bears.reshape(*bears.shape, *(1,) * state.time.ndim)
    return jnp.where(bears, M, jnp.where(jnp.swapaxes(bears, 0, 1), jnp.swapaxes(M, 0, 1), 0.0))


@partial(quickly, where=is_single)
def _tree_forces(system: System, state: State, rates: Array) -> Array:
    mechanism, state, _ = ready(system, state, Control())
    tree = spanning_tree(system)
    speeds = tree_speeds(mechanism, tree, state)
    rates = jnp.broadcast_to(expand_trailing(rates, 1, state.time.ndim), speeds.shape)
    twists = partial(world_twists, mechanism, tree)
    _, a = jax.jvp(twists, (state, speeds), (moving_on(state), rates))
    linear, angular = jnp.split(_times_inertia(mechanism, state, a[:, :, None])[:, :, 0], 2)
    angular = angular + cross(state.omega, _spin(mechanism, state))
    force = jnp.concatenate([linear, angular]) - _weights(mechanism, state)
    along, first = _along(mechanism, tree, state, force), len(tree.coordinates)
    along = along.at[:first].add(_armatures(mechanism, tree, state) * rates[:first])
    if not _is_geared(mechanism.system, tree):
        return along

    def geared(state, speeds):
        return _geared(mechanism, tree, state, world_twists(mechanism, tree, state, speeds))[0]

    _, faster = jax.jvp(geared, (state, speeds), (moving_on(state), rates))
    W, inertia = _geared_columns(mechanism, tree, state)
    return along + _across_geared(W, (inertia * faster)[:, None])[:, 0]


@partial(quickly, where=is_single)
def _gravity_forces(system: System, state: State) -> Array:
    mechanism, state, _ = ready(system, state, Control())
    return -_along(mechanism, spanning_tree(system), state, _weights(mechanism, state))


@partial(quickly, where=is_single)
def _coriolis_matrix(system: System, state: State) -> Array:
    mechanism, state, _ = ready(system, state, Control())
    tree = spanning_tree(system)
    J, rate = jax.jvp(lambda state: columns(mechanism, tree, state), (state,), (moving_on(state),))
    # Of İ = [ω]ₓ I - I [ω]ₓ, half of B = (İ - [I ω]ₓ) / 2 is skew and B ω = ω × I ω.
    turning, omega = J[3:], state.omega[:, :, None]
    spin = _spin(mechanism, state)[:, :, None]
    inertia = lambda x: _turned_inertia(mechanism, state, x)  # noqa: E731
    B = cross(omega, inertia(turning)) - inertia(cross(omega, turning)) - cross(spin, turning)
    B = jnp.where(moving_bodies(system, state.time.ndim)[None, :, None], B, 0.0)
    force = _times_inertia(mechanism, state, rate)
    C = _contracted(J, force.at[3:].add(B / 2))
    if not _is_geared(mechanism.system, tree):
        return C
    # Of M = Wᵀ I W, Wᵀ I Ẇ makes Ṁ - 2 C skew.
    geared = partial(_geared_columns, mechanism, tree)
    (W, inertia), (faster, _) = jax.jvp(geared, (state,), (moving_on(state),))
    return C + _across_geared(W, inertia[:, None] * faster)


@partial(quickly, where=is_single)
def _momentum_matrix(system: System, state: State) -> Array:
    mechanism, state, _ = ready(system, state, Control())
    J = columns(mechanism, spanning_tree(system), state)
    p = _times_inertia(mechanism, state, J)
    moving = moving_bodies(system, state.time.ndim)
    mass = jnp.where(moving, mechanism.system.mass, 0.0)
    centre = jnp.sum(mass[None] * state.position, axis=1) / jnp.sum(mass, axis=0)[None]
    arm = (state.position - centre[:, None])[:, :, None]
    angular = p[3:] + cross(jnp.broadcast_to(arm, p[:3].shape), p[:3])
    return jnp.concatenate([jnp.sum(p[:3], axis=1), jnp.sum(angular, axis=1)])


@partial(quickly, where=is_single)
def _constraint_jacobian(system: System, state: State) -> Array:
    mechanism, state, _ = ready(system, state, Control())
    return constraints(mechanism, spanning_tree(system), state)[0]


def constraints(mechanism: Mechanism, tree: SpanningTree, state: State) -> tuple[Array, Array]:
    """K and k of K ν = k, (rows, speeds, *batch) and (rows, *batch)."""
    h = jnp.asarray(INSTANT, state.time.dtype)
    interval = Interval(h, Control(), h, with_world(body_twists(state)), state.engagement)
    target, kinematics = Instant(jnp.zeros_like(h), h), system_kinematics(mechanism, state)
    problem = row_problem(mechanism, kinematics, interval, target)
    structure = problem.structure
    hard = trailing(structure.hard * (1 - structure.filler), problem.rate)
    held = hard * (problem.compliance == 0).astype(hard.dtype)

    def rates(speeds):
        twist = world_twists(mechanism, tree, state, speeds)
        q = state.quaternion
        parts = [quat_rotate_inverse(q, x) for x in jnp.split(twist, 2)]
        moved = with_world(jnp.concatenate(parts))
        rate = row_rates(mechanism, kinematics, interval, target, moved)
        rate = held * jnp.broadcast_to(rate, (*rate.shape[:2], *state.time.shape))
        return rate.reshape(-1, *state.time.shape)

    zero = jnp.zeros((tree.speeds, *state.time.shape), state.position.dtype)
    basis = jnp.eye(tree.speeds, dtype=zero.dtype).reshape(
        *(tree.speeds,) * 2, *(1,) * (zero.ndim - 1)
    )

    def along(direction):
        return jax.jvp(rates, (zero,), (jnp.broadcast_to(direction, zero.shape),))[1]

    return jax.vmap(along, in_axes=1, out_axes=1)(basis), -rates(zero)


def _along(mechanism: Mechanism, tree: SpanningTree, state: State, force: Array) -> Array:
    """Jᵀ F of wrenches on all bodies (6, bodies, *batch), shape (speeds, *batch)."""
    carries, arm, S = _about_bases(mechanism, tree, state)
    force = jnp.broadcast_to(force, (6, *arm.shape[1:]))
    moment = force[3:] + cross(arm, force[:3])
    wrench = _carried(carries, jnp.concatenate([force[:3], moment]))
    return jnp.sum(S * wrench, axis=0)


def _about_bases(
    mechanism: Mechanism, tree: SpanningTree, state: State
) -> tuple[np.ndarray, Array, Array]:
    """What each speed carries, seen about the centre of mass of the first body of its branch.

    Returns: whether a speed carries a body, (speeds, bodies); the way of each body's centre of mass
        from there, (3, bodies, *batch); and the twist there for a unit of each speed, (6, speeds,
        *batch); world axes
    """
    carried = tree.carried_by(state.position.shape[1])
    free = carried.sum(axis=0) == 1
    base = (carried & free[:, None]).argmax(axis=0)
    arm = state.position - take(state.position, base, 1)
    first = first_bodies(mechanism, tree)
    S = first_twists(mechanism, tree, state)
    v = S[:3] - cross(S[3:], take(arm, first, 1))
    return carried[first], arm, jnp.concatenate([v, S[3:]])


def _carried(carries: np.ndarray, parts: Array) -> Array:
    """Sums over the bodies that each speed carries, (k, bodies, *batch) to (k, speeds, *batch)."""
    weight = carries.astype(parts.dtype)
    return jnp.einsum("sb,kb...->ks...", weight, materialize(parts), precision="highest")


def _contracted(J: Array, force: Array) -> Array:
    """Jᵀ F of wrenches on all bodies, shape (speeds, columns of F, *batch)."""
    return jnp.einsum("abi...,abj...->ij...", J, force, precision="highest")


def _times_inertia(mechanism: Mechanism, state: State, x: Array) -> Array:
    """Masses and inertias times twists or their rates (6, bodies, columns, *batch), world axes; 0
    for what does not obey forces.
    """
    moving = moving_bodies(mechanism.system, state.time.ndim)[:, None]
    linear = mechanism.system.mass[None, :, None] * x[:3]
    both = jnp.concatenate([linear, _turned_inertia(mechanism, state, x[3:])])
    return materialize(jnp.where(moving[None], both, 0.0))


def _turned_inertia(mechanism: Mechanism, state: State, x: Array) -> Array:
    """Inertias about the centres of mass times vectors (3, bodies, columns, *batch), world axes."""
    q = jnp.broadcast_to(state.quaternion[:, :, None], (4, *x.shape[1:]))
    inertia = mechanism.system.inertia[:, :, :, None]
    return quat_rotate(q, matvec(inertia, quat_rotate_inverse(q, x)))


def _spin(mechanism: Mechanism, state: State) -> Array:
    """Angular momentum of each body about its centre of mass, (3, bodies, *batch), 0 for what does
    not obey forces.
    """
    spin = _turned_inertia(mechanism, state, state.omega[:, :, None])[:, :, 0]
    return jnp.where(moving_bodies(mechanism.system, state.time.ndim)[None], spin, 0.0)


def _weights(mechanism: Mechanism, state: State) -> Array:
    """Wrenches of gravity on all bodies, (6, bodies, *batch)."""
    moving = moving_bodies(mechanism.system, state.time.ndim)
    mass = jnp.where(moving, mechanism.system.mass, 0.0)
    force = mass[None] * mechanism.system.gravity[:, None]
    force = jnp.broadcast_to(force, state.position.shape)
    return jnp.concatenate([force, jnp.zeros_like(force)])
