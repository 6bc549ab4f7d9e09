"""Single shooting: gradient descent on the controls through the whole simulation."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from ..algebra.calls import public
from ..algebra.options import check_count, check_kind
from ..algebra.progress import with_progress
from ..simulate.isolation import chosen
from .path import Multipliers, sloped
from .plan import Outcome, Plan, Report, Search, in_rounds
from .problem import Problem, Task, first_controls, prepared


@public
@with_progress("cost")
def shooting(
    problem: Problem,
    guess: Any = None,
    *,
    iterations: int = 100,
    rate: float = 0.05,
    optimizer: optax.GradientTransformation | None = None,
    rounds: int = 8,
    weight: float = 10.0,
    tolerance: float = 1e-4,
    feasible: float = 1e-3,
    report: Report | None = None,
) -> Plan:
    """Controls by gradient descent through the rollout, with an optax optimizer.

    The gradient is the reverse derivative of the rollout, so closed loops, free bodies, stops and
    contacts are no special case. Each environment has its own descent. Controls are clipped to the
    bounds after each step, and the best controls so far are kept. Constraints enter by an augmented
    Lagrangian in `rounds`.

    guess: of the controls, shape (horizon, actuated) or with the batch axis, zeros by default
    iterations: in each round
    rate: first learning rate of Adam in units of the controls (half the range of bounds, or 1); it
        decays to 0 as a cosine
    optimizer: of optax, in place of Adam and its rate; it sees controls in these units
    rounds, weight, feasible, report: as in `ilqr`
    tolerance: converged, if changes of all controls by their unit, or up to their bound, together
        change the cost to first order by less than this share

    Raises: ValueError for what does not fit, as `rollout`
    """
    check_count("shooting", "iterations", iterations, 1)
    check_count("shooting", "rounds", rounds, 1)
    task = prepared("shooting", problem)
    if optimizer is None:
        optimizer = optax.adam(optax.cosine_decay_schedule(rate, iterations), b2=0.9)
    kind = optax.GradientTransformation
    check_kind("shooting:", "optimizer", optimizer, kind, "optax.adam(1e-2)")
    descend = jax.jit(partial(_descended, optimizer))

    def minimize(u: Array, multipliers: Multipliers, number: int) -> Search:
        unit = task.unit[None]
        memory = jax.vmap(optimizer.init, in_axes=-1, out_axes=-1)(u / unit)
        best = best_u = best_slope = best_worth = None
        costs, violations = [], []
        for i in range(iterations + 1):
            # As NumPy arrays: with JAX's, spread over cores, the next call would be compiled again.
            worth, slope = jax.device_get(sloped(task, u, multipliers))
            value = np.nan_to_num(np.asarray(worth.augmented), nan=np.inf)
            if best is None:
                better = np.full(task.batch, True)
                begun = np.isfinite(value)
                best, best_u, best_slope, best_worth = value, u, slope, worth
            else:
                better = value < best
                now, then = (u, slope, worth), (best_u, best_slope, best_worth)
                best_u, best_slope, best_worth = chosen(jnp.asarray(better), now, then)
                best = np.where(better, value, best)
            costs.append(np.asarray(best_worth.cost))
            violations.append(np.asarray(best_worth.violation))
            if report is not None and i:
                report(number * iterations + i, rounds * iterations, costs[-1])
            if i < iterations:
                u, memory = descend(task, u, memory, slope)
        promised = np.asarray(_promised(task, best_u, best_slope))
        still = promised <= tolerance * (np.abs(best) + tolerance)
        outcome = np.where(still, Outcome.CONVERGED, Outcome.ITERATIONS)
        outcome = np.where(begun, outcome, Outcome.START)
        return Search(best_u, outcome, None, costs, violations)

    u = first_controls("shooting", task, guess)
    return in_rounds(task, u, minimize, rounds=rounds, weight=weight, feasible=feasible)


def _descended(
    optimizer: optax.GradientTransformation, task: Task, u: Array, memory: Any, slope: Array
) -> tuple[Array, Any]:
    """One step of an optimizer in units of the controls, inside the bounds."""
    unit = task.unit[None]
    # An environment whose cost is not finite stays, without effect on the others.
    slope = jnp.nan_to_num(slope * unit, posinf=0.0, neginf=0.0)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        update = jax.vmap(optimizer.update, in_axes=-1, out_axes=-1)
        change, memory = update(slope, memory, u / unit)
    return jnp.clip(u + unit * change, task.lower[None], task.upper[None]), memory


def _promised(task: Task, u: Array, slope: Array) -> Array:
    """First-order decrease of the cost by changes of all controls by a unit, inside the bounds."""
    unit = task.unit[None]
    room = jnp.where(slope > 0, u - task.lower[None], task.upper[None] - u)
    return jnp.sum(jnp.abs(slope) * jnp.minimum(room, unit), axis=(0, 1))
