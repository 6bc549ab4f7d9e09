"""A motion under controls as all methods see it: its knots, its cost, its violation."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.compiler import moderately
from ..algebra.progress import compiled
from ..algebra.pytree import expand, map_trailing, replace, struct
from ..model.state import Control, Info, State
from ..model.table import in_words
from ..simulate.rollout import rollout
from ..simulate.surface import coordinate_speeds
from .problem import Knot, Task


@struct
class Multipliers:
    """Of an augmented Lagrangian: multipliers λ ≥ 0 of all constraints, and their weights ρ.

    running: shape (horizon, constraints, batch); final: shape (final constraints, batch)
    weight: ρ of each environment, shape (batch,)
    """

    running: Array
    final: Array
    weight: Array


@struct
class Worth:
    """What a path is worth, each of shape (batch,).

    cost: of the problem, infinite where an environment came to a stand
    augmented: with the terms of the constraints
    violation: largest number of a constraint, 0 if all are met
    """

    cost: Array
    augmented: Array
    violation: Array


@compiled(
    lambda task, *_: in_words(f"motion over {task.horizon} intervals", task.system),
    compiler=moderately,
)
def simulated(task: Task, u: Array) -> Knot:
    """All knots of the motions under controls u (horizon, actuated, batch).

    Leaves have an axis of horizon + 1 knots in front and the batch at the end; `system` is None.
    It is a program of its own, because the first motion of a search and the plan share it.
    """
    _, (state, qd) = rollout(
        task.system,
        task.start,
        control_of(task, u),
        dt=task.dt,
        substeps=task.substeps,
        record_every=task.substeps,
        record=_state_and_speeds,
        scheme=task.scheme,
    )
    first = task.start, coordinate_speeds(task.system, task.start)
    state, qd = jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), first, (state, qd))
    return Knot(None, state, state.q, qd)


def control_of(task: Task, u: Array) -> Control:
    """The control with efforts (horizon, actuated, batch) on the actuated coordinates."""
    effort = jnp.zeros((len(u), task.system.coordinates, u.shape[-1]), u.dtype)
    return Control(effort=effort.at[:, jnp.array(task.actuated)].set(u))


@jax.jit
def valued(task: Task, knots: Knot, u: Array, multipliers: Multipliers) -> Worth:
    """Cost, augmented cost and violation of paths."""

    def running(system, knot, u, λ, ρ):
        knot = replace(knot, system=system)
        g = task.constraints(knot, u)
        return task.running(knot, u), penalty(g, λ, ρ), jnp.max(g, initial=0.0)

    def terminal(system, knot, λ, ρ):
        knot = replace(knot, system=system)
        g = task.final_constraints(knot)
        return task.terminal(knot), penalty(g, λ, ρ), jnp.max(g, initial=0.0)

    m = multipliers
    weight = jnp.broadcast_to(m.weight, (task.horizon, *m.weight.shape))
    before, last = (jax.tree.map(lambda x, c=c: x[c], knots) for c in (slice(None, -1), -1))
    costs, extra, worst = over_knots(task, running, before, u, m.running, weight)
    end_cost, end_extra, end_worst = over_batch(task, terminal, last, m.final, m.weight)
    time = knots.state.time
    cost = jnp.where(time[-1] > time[-2], jnp.sum(costs, axis=0) + end_cost, jnp.inf)
    augmented = cost + jnp.sum(extra, axis=0) + end_extra
    return Worth(cost, augmented, jnp.maximum(jnp.max(worst, axis=0), end_worst))


@compiled(
    lambda task, *_: in_words(f"plan over {task.horizon} intervals", task.system),
    compiler=moderately,
)
def sloped(task: Task, u: Array, multipliers: Multipliers) -> tuple[Worth, Array]:
    """What the motion under controls is worth, and the gradient of the augmented cost."""

    def total(u):
        worth = valued(task, simulated(task, u), u, multipliers)
        return jnp.sum(worth.augmented), worth

    (_, worth), slope = jax.value_and_grad(total, has_aux=True)(u)
    return worth, slope


def penalty(g: Array, λ: Array, ρ: Array) -> Array:
    """Augmented Lagrangian of g ≤ 0: ((λ + ρ g)₊² - λ²)/(2 ρ), summed (Rockafellar)."""
    return jnp.sum(jnp.maximum(λ + ρ * g, 0.0) ** 2 - λ**2) / (2 * ρ)


def no_multipliers(task: Task, weight: float) -> Multipliers:
    """Multipliers of 0 for the constraints of a task."""

    def count(system, start):
        knot = Knot(system, start, start.q, start.q)
        u = jnp.zeros(len(task.actuated), start.q.dtype)
        return task.constraints(knot, u), task.final_constraints(knot)

    running, final = jax.eval_shape(lambda: over_batch(task, count, task.start))
    running, final = (jnp.zeros(x.shape, task.dt.dtype) for x in (running, final))
    running = jnp.broadcast_to(running, (task.horizon, *running.shape))
    return Multipliers(running, final, jnp.full(task.batch, weight, task.dt.dtype))


@jax.jit
def raised(task: Task, knots: Knot, u: Array, multipliers: Multipliers, before: Array) -> Any:
    """Multipliers of the next round, λ = (λ + ρ g)₊; ρ ten times where the violation is still more
    than a quarter of what it was before.
    """

    def running(system, knot, u, λ, ρ):
        return jnp.maximum(λ + ρ * task.constraints(replace(knot, system=system), u), 0.0)

    def terminal(system, knot, λ, ρ):
        return jnp.maximum(λ + ρ * task.final_constraints(replace(knot, system=system)), 0.0)

    m = multipliers
    weight = jnp.broadcast_to(m.weight, (task.horizon, *m.weight.shape))
    first, last = (jax.tree.map(lambda x, c=c: x[c], knots) for c in (slice(None, -1), -1))
    worth = valued(task, knots, u, multipliers)
    return Multipliers(
        over_knots(task, running, first, u, m.running, weight),
        over_batch(task, terminal, last, m.final, m.weight),
        jnp.where(worth.violation > before / 4, 10 * m.weight, m.weight),
    )


def over_knots(task: Task, function: Any, *arguments: Any) -> Any:
    """A function of the system and of one knot of one environment, over all of them: leaves with
    time in front and the batch at the end.
    """
    return jax.vmap(lambda *one: over_batch(task, function, *one))(*arguments)


def over_batch(task: Task, function: Any, *arguments: Any) -> Any:
    """A function of the system and of one environment, over the batch at the end of all leaves."""
    system = expand(task.system, list(task.system.topology.ranks), 1)
    leaves = jax.tree.leaves(arguments)
    result = map_trailing(function, 1, system, *arguments)
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (*x.shape[:-1], leaves[0].shape[-1])), result)


def _state_and_speeds(state: State, info: Info) -> tuple[State, Array]:
    return state, info.qd
