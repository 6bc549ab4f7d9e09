"""Isolation of bad environments: they stand still, and nothing of them reaches the others.

Values of environments never mix, so masking a bad environment after the step is enough for values.
Derivatives do mix: in reverse, NaN times a cotangent of 0 is NaN, and sums over environments carry
the NaN to shared numbers. So a bad environment is differentiated at a safe state, the state of a
good environment.
"""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.lax import stop_gradient

from ..algebra.compiler import SYMBOLIC_ZEROS, SymbolicZero, materialize
from ..algebra.pytree import replace
from ..assembly.layout import layout
from ..laws.law import PASSIVE
from ..model.external import settled
from ..model.kinematics import Mechanism, coordinate_indices, with_unit_quaternions
from ..model.state import Cause, Control, Info, State
from ..model.system import System
from ..schemes.scheme import Scheme

# Positions [m] and velocities [m/s], [rad/s] beyond which a motion has diverged.
LARGEST = 1e10
# Residual above which a solve is of no use, as a share of 1 m/s and of the speed of the bodies.
UNSOLVED = 0.1
# Longest time step [s].
LONGEST = 1.0
# Square of the length of a quaternion below which it names no rotation.
SHORTEST = 1e-6
# Rounding of an inertia, in units of the float type's precision.
ROUNDING = 1e2
# Fields of couplings that are directions.
AXES = ("axis", "axis_C", "axis_D", "normal")
# Name of what reverse differentiation keeps of a step beside its start (see `_contained`).
_OUTCOME = "outcome"

Policy = Literal["stop", "zero"]


def sanitized(system: System, state: State) -> tuple[System, State, Array]:
    """What is needed to step environments of which some are bad from the start.

    state: with all batch axes

    Returns: the system with sound numbers in bad environments; a safe state to differentiate these
        at, that of the first good environment, with batch axes of size 1; the cause of each
        environment, (*batch)
    """
    batch = state.time.shape
    wrong = _unsound_parameters(system, batch)
    sound = jnp.stack([_all(jnp.isfinite(x), len(batch)) for x in jax.tree.leaves(state)]).all(0)
    length = jnp.sum(state.quaternion * state.quaternion, axis=0)
    sound = sound & _all(length > SHORTEST, len(batch))
    cause = _first(
        (~sound, Cause.STATE),
        (_reach(state) > LARGEST, Cause.DIVERGED),
        (wrong, Cause.PARAMETERS),
    )
    system = _with_sound_parameters(system, wrong)
    bad = cause != Cause.NONE
    zero = jax.tree.map(jnp.zeros_like, state)
    one = replace(zero, quaternion=zero.quaternion.at[0].set(1.0))
    # Where all are bad, the safe state is every body at the origin, at rest.
    good = chosen(bad, one, state)
    safe = jax.tree.map(lambda x: _one_environment(x, len(batch), jnp.argmin(bad)), good)
    return system, stop_gradient(safe), cause


def isolated_step(
    scheme: Scheme,
    mechanism: Mechanism,
    safe: State,
    carry: tuple[State, Array],
    control: Control,
    dt: Array,
    policy: Policy = "stop",
) -> tuple[tuple[State, Array], Info]:
    """One step of a scheme of the environments that have no cause to stand still.

    safe: state to differentiate bad environments at
    carry: the state, and the cause of each environment that does, shape (*batch)
    policy: "zero": an environment takes a step without control where it has NaN or infinity in it

    Returns: the carry after the step, and what it did
    """
    state, cause = carry
    standing = cause != Cause.NONE
    told = jnp.zeros_like(standing)
    for leaf in (x for x in jax.tree.leaves(control) if x.size):
        told = told | ~jnp.isfinite(leaf).all(axis=tuple(range(leaf.ndim - cause.ndim)))
    timed = (dt > 0) & (dt <= LONGEST)
    stopped = [(~timed, Cause.TIME_STEP), (told, Cause.CONTROL)]
    if policy == "zero":
        stopped, control = stopped[:1], without(told, control)
    dt = jnp.where(timed, dt, LONGEST)
    cause = jnp.where(standing, cause, _first(*stopped))
    control = clipped(mechanism.system, state, control)
    new, info, cause = _contained(scheme, mechanism, safe, cause, state, control, dt)
    still = cause != Cause.NONE
    # No gradient flows through an environment that stands still.
    new = chosen(still, stop_gradient(state), new)
    if not layout(mechanism.system).remembers:
        # Only contacts and friction remember: the last impulses bound and anchor the next ones.
        new = replace(new, row_forces=stop_gradient(new.row_forces))
    poor = info.residual > UNSOLVED * (1 + jnp.abs(new.velocity).max(axis=(0, 1)))
    effort = jnp.zeros_like(state.q) if control.effort is None else control.effort
    effort, step = jnp.broadcast_to(effort, state.q.shape), jnp.broadcast_to(dt, cause.shape)
    info = without(still, replace(info, effort=effort, dt=step))
    seen = Cause.NONE if info.cause is None else info.cause
    shown = _first((still, cause), (told, Cause.CONTROL), (poor, Cause.SOLVER), else_=seen)
    return (new, cause), replace(info, ok=info.ok & (shown == Cause.NONE), cause=shown)


def computed_again(step: Callable) -> Callable:
    """`step` for reverse differentiation, which keeps its start and what `isolated_step` needs.

    The rest of a step is computed again: its hundreds of inner results, each an array over time,
    would cost more time, memory and compilation than that.
    """
    kept = jax.checkpoint_policies.save_only_these_names(_OUTCOME)
    return jax.checkpoint(step, prevent_cse=False, policy=kept)


def _advanced(
    scheme: Scheme,
    mechanism: Mechanism,
    safe: State,
    cause: Array,
    state: State,
    control: Control,
    dt: Array,
) -> tuple[State, Info, Array]:
    """One step, whatever it gives, and the causes with those of environments that fail in it."""
    new, info = scheme.advance(mechanism, with_unit_quaternions(state), control, dt)
    new = settled(mechanism, new, dt)
    reach = _reach(new)
    failure = _first((jnp.isnan(reach), Cause.SOLVER), (reach > LARGEST, Cause.DIVERGED))
    # Stored: otherwise XLA looks for the largest again for every number that it decides about.
    return new, info, materialize(jnp.where(cause == Cause.NONE, failure, cause))


# A program within programs, so that JAX traces it once: for a step, for the rollout after it, and
# for the derivative of either.
_contained = jax.custom_jvp(jax.jit(_advanced))


def _contained_jvp(primals: tuple, tangents: tuple) -> tuple:
    """Derivatives, at the safe state and without control for bad environments.

    That one fails is known after the step only, so derivatives are those of a second evaluation: in
    reverse the one that `computed_again` makes anyway. The impulses are known by then; a scheme
    with `Scheme.at_solution` takes them for the solution.
    """
    new, info, cause = _contained(*primals)
    kept = cause, new.row_forces
    cause, impulses = jax.tree.map(lambda x: checkpoint_name(x, _OUTCOME), kept)
    bad = cause != Cause.NONE
    leaves, structure = jax.tree.flatten(primals)
    slopes = jax.tree.leaves(tangents)
    varying = [i for i, slope in enumerate(slopes) if not isinstance(slope, SymbolicZero)]

    def of_safe_states(*values):
        arguments = list(leaves)
        for i, value in zip(varying, values, strict=True):
            arguments[i] = value
        scheme, mechanism, safe, cause, state, control, dt = structure.unflatten(arguments)
        state = chosen(bad, stop_gradient(safe), state)
        at_solution = scheme.at_solution(mechanism.system)
        if at_solution is not None:
            scheme, state = at_solution, replace(state, row_forces=without(bad, impulses))
        # Stored: otherwise every kernel takes it anew from the states kept for the way back.
        state, control = materialize(state), without(bad, control)
        return materialize(_advanced(scheme, mechanism, safe, cause, state, control, dt))

    _, slope = jax.jvp(of_safe_states, [leaves[i] for i in varying], [slopes[i] for i in varying])
    return (new, info, cause), slope


_contained.defjvp(_contained_jvp, symbolic_zeros=SYMBOLIC_ZEROS)


def clipped(system: System, state: State, control: Control) -> Control:
    """The control with the efforts that joints have a `max_effort` for within it."""
    limited = [group for group in system.groups if group.max_effort is not None]
    if control.effort is None or not limited:
        return control
    effort = jnp.broadcast_to(control.effort, state.q.shape)
    for group in limited:
        at = coordinate_indices(group)
        effort = effort.at[at].set(jnp.clip(effort[at], -group.max_effort, group.max_effort))
    return replace(control, effort=effort)


def _reach(state: State) -> Array:
    """Largest position or velocity, NaN if one is, shape (*batch)."""
    parts = (*jnp.unstack(state.position), *jnp.unstack(state.velocity), *jnp.unstack(state.omega))
    # Stored: otherwise XLA computes what moved the bodies again, out of step with its vectors.
    return materialize(reduce(jnp.maximum, map(jnp.abs, parts))).max(axis=0)


def _unsound_parameters(system: System, batch: tuple[int, ...]) -> Array:
    """True for environments with a number that no mechanism has, shape (*batch): one that is not
    finite, a mass not > 0, an inertia that is not symmetric, not positive definite or of no rigid
    body; a joint's axis of length 0, a lower bound above the upper one, a law that feeds energy in.

    Elements that the builder was told to take in spite of these rules may break them.
    """
    leaves = zip(jax.tree.leaves(system), system.topology.ranks, strict=True)
    wrong = [~_all(jnp.isfinite(leaf), leaf.ndim - rank) for leaf, rank in leaves]
    moving = np.array(system.topology.moving)
    mass, inertia = system.mass[moving], system.inertia[:, :, moving]
    (a, d, e), (_, b, f), (_, _, c) = inertia
    minors = a, a * b - d * d, a * (b * c - f * f) - d * (d * c - e * f) + e * (d * f - b * e)
    wrong += [~_all(x > 0, x.ndim - 1) for x in (mass, *minors)]
    wrong += [~_all(sound, sound.ndim - 1) for sound in _rigid(system)]
    wrong += [~_all(sound, sound.ndim - 1) for sound in _in_order(system)]
    return reduce(jnp.logical_or, wrong, jnp.zeros(batch, bool))


def _rigid(system: System) -> list[Array]:
    """Whether rigid bodies have the inertias of moving bodies, to rounding, (bodies, *batch).

    An inertia I is that of masses where it is symmetric and ½ tr(I) E - I, their second moments,
    is positive semidefinite: then no principal moment exceeds the sum of the others.
    """
    topology = system.topology
    lenient = np.array([f"body {name!r}" in topology.lenient for name in topology.bodies])
    which = np.flatnonzero(np.array(topology.moving) & ~lenient)
    if not len(which):
        return []
    (a, d, e), (d_, b, f), (e_, f_, c) = system.inertia[:, :, which]
    trace = a + b + c
    least = -ROUNDING * float(jnp.finfo(a.dtype).eps)
    symmetric = reduce(jnp.maximum, (abs(d - d_), abs(e - e_), abs(f - f_))) <= -least * trace
    x, y, z = (trace / 2 - moment for moment in (a, b, c))
    # Principal minors of the second moments, each as a share of a power of the trace.
    pairs = x * y - d * d, x * z - e * e, y * z - f * f
    whole = x * (y * z - f * f) - d * (d * z + e * f) - e * (d * f + e * y)
    sound = [m >= least * trace for m in (x, y, z)] + [m >= least * trace**2 for m in pairs]
    return [reduce(jnp.logical_and, sound, symmetric & (whole >= least * trace**3))]


def _in_order(system: System) -> list[Array]:
    """Whether axes have a length, bounds are in order and laws passive, (elements, *batch) each."""
    sound = []
    for group in system.groups:
        for name in AXES:
            axis = getattr(group.coupling, name, None)
            if isinstance(axis, jax.Array) and axis.ndim >= 2 and axis.shape[0] == 3:
                sound.append(jnp.sum(axis * axis, axis=0) > 0)
    topology = system.topology
    kinds = (
        (system.groups, topology.joints),
        (system.transmissions, topology.transmissions),
        (system.contacts, topology.contacts),
    )
    for groups, names in kinds:
        for group in groups:
            owners = (f"{group.element} {names[i]!r}" for i in group.members)
            lenient = np.array([owner in topology.lenient for owner in owners])
            for law in group.laws:
                bounds = [getattr(law, side, None) for side in ("lower", "upper")]
                if all(isinstance(bound, jax.Array) for bound in bounds):
                    # One of them alone may have batch axes.
                    axes = max(bound.ndim for bound in bounds)
                    below, above = (
                        bound.reshape(bound.shape + (1,) * (axes - bound.ndim)) for bound in bounds
                    )
                    sound.append(below <= above)
                values = (vars(law).get(field) for field in PASSIVE)
                for value in (value for value in values if isinstance(value, jax.Array)):
                    sound.append((value >= 0) | lenient.reshape(-1, *(1,) * (value.ndim - 1)))
    return sound


def _with_sound_parameters(system: System, wrong: Array) -> System:
    """The system in which wrong environments have the numbers of the first that is not."""
    first = jnp.argmin(wrong)
    ones = jax.tree.map(jnp.ones_like, system)
    eye = jnp.eye(3, dtype=system.inertia.dtype)
    eye = eye.reshape((3, 3) + (1,) * (system.inertia.ndim - 2))
    instead = replace(ones, inertia=jnp.broadcast_to(eye, system.inertia.shape))

    def sound(leaf, otherwise, rank):
        if leaf.ndim == rank:
            return leaf
        # Where all are wrong, 1 instead of what is not finite.
        some = _one_environment(stop_gradient(leaf), wrong.ndim, first)
        alone = _one_environment(otherwise, wrong.ndim, first)
        some = jnp.where(jnp.isfinite(some), some, alone)
        return jnp.where(_leading(wrong, leaf), some, leaf)

    ranks = jax.tree.unflatten(jax.tree.structure(system), system.topology.ranks)
    return jax.tree.map(sound, system, instead, ranks)


def _one_environment(leaf: Array, axes: int, index: Array) -> Array:
    """One environment of the last `axes` axes, by its flat index, with axes of size 1.

    A sum of one item, and no look-up: devices that share the batch send each other this environment
    alone.
    """
    batch = leaf.shape[leaf.ndim - axes :]
    chosen = jnp.arange(math.prod(batch)).reshape(batch) == index
    return jnp.sum(
        jnp.where(chosen, leaf, jnp.zeros_like(leaf)),
        axis=tuple(range(leaf.ndim - axes, leaf.ndim)),
        keepdims=True,
        dtype=leaf.dtype,
    )


def _first(*cases: tuple[Array, Array | int], else_: Array | int = Cause.NONE) -> Array:
    """The value of the first case that is true, as 32-bit integers."""
    value = jnp.asarray(else_, jnp.int32)
    for true, then in reversed(cases):
        value = jnp.where(true, jnp.asarray(then, jnp.int32), value)
    return value


def chosen(mask: Array, this: State, that: State) -> State:
    """One state where the mask (*batch) is true, else the other."""
    return jax.tree.map(lambda x, y: jnp.where(_leading(mask, y), x, y), this, that)


def without(mask: Array, tree: Any) -> Any:
    """Arrays that are 0 where the mask (*batch) is true."""
    return jax.tree.map(lambda x: jnp.where(_leading(mask, x), jnp.zeros_like(x), x), tree)


def _all(true: Array, axes: int) -> Array:
    """Whether all are true, over all but the last `axes` axes."""
    return jnp.all(true, axis=tuple(range(true.ndim - axes)))


def _leading(mask: Array, like: Array) -> Array:
    """A mask (*batch) with axes of size 1 in front, as many as an array has."""
    return mask.reshape((1,) * (like.ndim - mask.ndim) + mask.shape)
