"""Control intervals and costs expanded about a path, in independent coordinates."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import expand_trailing, replace, struct
from ..dynamics.linear import deviated
from ..dynamics.tree import spanning_tree
from ..model.kinematics import (
    body_twists,
    coordinate_speeds,
    gather_coordinates,
    joint_coordinates,
    prepare,
    system_kinematics,
    with_world,
)
from ..model.state import Control, State
from ..model.system import System
from ..simulate.step import step
from .path import Multipliers, over_batch, over_knots, penalty
from .problem import Knot, Task


@struct
class Expansion:
    """What goes on about a path, to first order, and what it costs, to second.

    x = (δq, δq̇) are deviations of n/2 independent coordinates and their speeds, u those of m
    efforts. Time is in front and the batch at the end.

    A, B: of an interval, x⁺ = A x + B u, shapes (horizon, n, n, batch) and (horizon, n, m, batch)
    slope, curvature: of the augmented cost by (x, u), shapes (horizon, n + m, batch) and
        (horizon, n + m, n + m, batch); the curvature is made positive semidefinite
    end_slope, end_curvature: of the end by x, shapes (n, batch) and (n, n, batch)
    """

    A: Array
    B: Array
    slope: Array
    curvature: Array
    end_slope: Array
    end_curvature: Array


def expanded_about(
    task: Task, at: tuple[int, ...], knots: Knot, u: Array, multipliers: Multipliers
) -> Expansion:
    """The expansion about a path; at: places of the independent coordinates."""
    knots = replace(knots, system=None)
    (n, m), last = (2 * len(at), len(task.actuated)), task.horizon
    shifts, slopes = _derivatives(task, at, knots, u)
    A, B = jnp.split(slopes[:last], [n], axis=2)

    def part(tree: Any, cut: Any) -> Any:
        return jax.tree.map(lambda x: x[cut], tree)

    def running(system, knot, shift, u, λ, ρ):
        def cost(z):
            moved = replace(_moved(knot, shift, z[:n]), system=system)
            g = task.constraints(moved, u + z[n:])
            return task.running(moved, u + z[n:]) + penalty(g, λ, ρ)

        return _quadratic(cost, n + m, u.dtype)

    def terminal(system, knot, shift, λ, ρ):
        def cost(z):
            moved = replace(_moved(knot, shift, z), system=system)
            return task.terminal(moved) + penalty(task.final_constraints(moved), λ, ρ)

        return _quadratic(cost, n, knot.q.dtype)

    first, weight = slice(None, -1), multipliers.weight
    weights = jnp.broadcast_to(weight, (last, *weight.shape))
    both = part(knots, first), part(shifts, first)
    costs = over_knots(task, running, *both, u, multipliers.running, weights)
    both = part(knots, -1), part(shifts, -1)
    end = over_batch(task, terminal, *both, multipliers.final, weight)
    return Expansion(A, B, *costs, *end)


def adjoint(system: System, expansion: Expansion) -> Array:
    """The gradient by the controls that an expansion of one environment has, (horizon, m)."""
    n = expansion.A.shape[1]

    def earlier(price, now):
        A, B, slope = now
        return slope[:n] + A.T @ price, slope[n:] + B.T @ price

    rows = expansion.A, expansion.B, expansion.slope
    return jax.lax.scan(earlier, expansion.end_slope, rows, reverse=True)[1]


def interval(task: Task, system: System, state: State, u: Array) -> tuple[State, Array]:
    """State and speeds of all coordinates after an interval under efforts u (actuated, *batch)."""
    effort = jnp.zeros((system.coordinates, *u.shape[1:]), u.dtype)
    control = Control(effort=effort.at[np.array(task.actuated)].set(u))
    advance = partial(step, system, control=control, dt=task.dt, scheme=task.scheme)

    def small(_, carry):
        state, info = advance(carry[0])
        return state, info.qd

    return jax.lax.fori_loop(0, task.substeps, small, (state, jnp.zeros_like(state.q)))


def spread(system: System, axes: tuple[int, ...]) -> System:
    """A system whose batched numbers have more batch axes, of these sizes, before the last."""
    leaves, structure = jax.tree.flatten(system)
    wide = [
        x
        if x.ndim == rank
        else jnp.broadcast_to(
            x.reshape(*x.shape[:rank], *(1 for _ in axes), x.shape[-1]),
            (*x.shape[:rank], *axes, x.shape[-1]),
        )
        for x, rank in zip(leaves, system.topology.ranks, strict=True)
    ]
    return jax.tree.unflatten(structure, wide)


def _derivatives(task: Task, at: tuple[int, ...], knots: Knot, u: Array) -> tuple[Knot, Array]:
    """Of all knots: rates of the knot's arrays by x, leaves (knots, n, …, batch), and of the
    coordinates and speeds after the interval by (x, u), shape (knots, n, n + m, batch).

    All knots are steps of one batch with the axes (knots, batch). A deviation moves the bodies by
    the rates of the spanning tree and gives them the velocities of the surface there, the only
    part of velocities that a step goes on from.
    """
    length, batch = task.horizon + 1, task.batch
    index, k, m = np.array(at, int), len(at), len(task.actuated)
    system = spread(task.system, (length,))
    mechanism, tree = prepare(system, 2), spanning_tree(system)
    state, q, qd = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -2), (knots.state, knots.q, knots.qd))
    # Nothing is asked of an interval after the last knot.
    u = jnp.moveaxis(jnp.concatenate([u, u[-1:]]), 0, -2)
    speed = qd[index]

    def after(z):
        dq, dqd, du = z[:k], z[k : 2 * k], z[2 * k :]
        moved = deviated(mechanism, tree, state, index, dq, speed + dqd)
        kinematics = system_kinematics(mechanism, moved)
        twist = with_world(body_twists(moved))
        groups = zip(mechanism.system.groups, kinematics.joints, strict=True)
        parts = [coordinate_speeds(group, joint, twist) for group, joint in groups]
        rates = gather_coordinates(mechanism, parts, moved)
        knot = Knot(None, moved, joint_coordinates(mechanism, kinematics, moved), rates)
        new, new_qd = interval(task, system, moved, u + du)
        return knot, jnp.concatenate([new.q[index], new_qd[index]])

    none = jnp.zeros((2 * k + m, length, batch), u.dtype)
    basis = expand_trailing(jnp.eye(len(none), dtype=u.dtype), 2, 2)
    along = lambda e: jax.jvp(after, (none,), (jnp.broadcast_to(e, none.shape),))[1]  # noqa: E731
    knot, slopes = jax.vmap(along)(basis)
    shifts = jax.tree.map(lambda x: jnp.moveaxis(x[: 2 * k], -2, 0), knot)
    return shifts, jnp.transpose(slopes, (2, 1, 0, 3))


def _moved(knot: Knot, shift: Knot, x: Array) -> Knot:
    """The knot of one environment at a deviation, to first order."""
    return jax.tree.map(lambda k, d: k + jnp.tensordot(x, d, 1), knot, shift)


def _quadratic(cost: Any, size: int, dtype: Any) -> tuple[Array, Array]:
    """Slope and curvature of a cost at 0; negative curvatures are taken as 0."""
    z = jnp.zeros(size, dtype)
    slope, curvature = jax.grad(cost)(z), jax.hessian(cost)(z)
    values, vectors = jnp.linalg.eigh((curvature + curvature.T) / 2)
    return slope, (vectors * jnp.maximum(values, 0.0)[None]) @ vectors.T
