"""The result of a method: controls that replay, their cost, and how the search ended."""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ..algebra.pytree import struct
from ..model.state import Control, State
from ..model.table import has_numbers, without_numbers
from .path import Multipliers, control_of, no_multipliers, raised, simulated, valued
from .problem import Task

# Report(iterations so far, most of them, cost of each environment)
Report = Callable[[int, int, np.ndarray], Any]
# Controls beyond this many units (half the range of bounds, or 1) have run away.
FAR = 1e6


class Outcome(IntEnum):
    """How the search for an environment's controls ended (`Plan.outcome`).

    >>> print(Outcome.VIOLATED)
    constraints are violated by more than `feasible`; the target may be out of reach: see \
`violation`, begin elsewhere, take more rounds or a longer horizon
    """

    CONVERGED = 0
    ITERATIONS = 1
    STALLED = 2
    VIOLATED = 3
    UNBOUNDED = 4
    START = 5

    def __str__(self) -> str:
        return SENTENCES[self]


SENTENCES = {
    Outcome.CONVERGED: "no small change of the controls lowers the cost",
    Outcome.ITERATIONS: "the cost could still fall when the iterations were over; take more, or "
    "another rate; where nothing limits the controls, give them a cost or bounds",
    Outcome.STALLED: "no step lowers the cost, although its slope says so; smooth stops and "
    "contacts (Newton(smoothing=…)), take shorter time steps, or look for a cost that jumps",
    Outcome.VIOLATED: "constraints are violated by more than `feasible`; the target may be out of "
    "reach: see `violation`, begin elsewhere, take more rounds or a longer horizon",
    Outcome.UNBOUNDED: "the controls ran away while the cost fell; give them bounds or a cost",
    Outcome.START: "the cost is not finite at the first guess: a function returned NaN, or the "
    "simulation came to a stand (see `Info.cause` of a rollout); begin elsewhere",
}


@struct
class Plan:
    """Controls for a problem, and the motion that they cause; `print` says how the search ended.

    `rollout(system, start, plan.control, dt=dt, substeps=substeps, scheme=problem.scheme)` is that
    motion. The batch axis of the problem, where it has one, is at the end.

    u: efforts of the actuated coordinates [N or N m], shape (horizon, actuated, *batch)
    control: the same for `rollout`
    states: at all knots, start and end included, each array with an axis of horizon + 1 in front
    q, qd: coordinates and speeds there, shape (horizon + 1, coordinates, *batch)
    cost: of the motion, without terms of the augmented Lagrangian, shape (*batch)
    violation: largest number of a constraint, 0 if all are met, shape (*batch)
    outcome: an `Outcome`, int (*batch); converged: whether the outcome is CONVERGED
    costs: cost of the best controls so far at each iteration, shape (iterations + 1, *batch). In
        several shots, of a motion that still has gaps
    violations: violation of these controls, the same shape
    gains: feedback u + gains (x - x of the plan) that keeps to the plan, with x the independent
        coordinates, then their speeds; shape (horizon, actuated, 2 independent, *batch). None from
        `shooting`

    >>> from jaxjoints import Slider, SystemBuilder
    >>> from jaxjoints.optimization import Problem, ilqr
    >>> world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    >>> _ = world.body("cart", mass=1.0, inertia=(1.0, 1.0, 1.0))
    >>> _ = world.joint("rail", Slider((1.0, 0.0, 0.0)), child="cart", qd=1.0)
    >>> def effort(knot, u):
    ...     return 0.5 * u[0] ** 2
    >>> def speed(knot):
    ...     return knot.qd[0] ** 2
    >>> plan = ilqr(Problem(*world.build(), effort, speed, horizon=2, dt=0.5))
    >>> print(plan.u[:, 0].round(4), plan.cost.round(4))  # ∫u² dt + v² of 1/4 each
    [-0.5 -0.5] 0.5
    """

    u: Array
    control: Control
    states: State
    q: Array
    qd: Array
    cost: Array
    violation: Array
    outcome: Array
    costs: Array
    violations: Array
    gains: Array | None = None

    @property
    def converged(self) -> Array:
        """Whether no small change of the controls lowers the cost, and constraints are met."""
        return self.outcome == Outcome.CONVERGED

    def __repr__(self) -> str:
        if not has_numbers(self):
            return without_numbers(self)
        outcomes, lines = np.ravel(self.outcome), []
        for value in np.unique(outcomes):
            which = np.flatnonzero(outcomes == value)
            cost, violation = np.ravel(self.cost)[which], np.ravel(self.violation)[which]
            worst = f", violation {violation.max():.2g}" if violation.max() > 0 else ""
            shown = f"{cost.min():.6g}"
            if which.size > 1:
                shown += f" to {cost.max():.6g}"
            many = "" if outcomes.size == 1 else f"{which.size} of {outcomes.size} "
            lines.append(
                f"{many}{Outcome(value).name} after {len(self.costs) - 1} iterations, cost {shown}"
                f"{worst}: {Outcome(value)}."
            )
        return "\n".join(lines)


class Search(NamedTuple):
    """A search between two rounds.

    u: controls, shape (horizon, actuated, batch)
    outcome: of each environment so far
    gains: see `Plan`
    costs, violations: of each iteration, each (batch,)
    """

    u: Array
    outcome: np.ndarray
    gains: Array | None
    costs: list[np.ndarray]
    violations: list[np.ndarray]


Minimize = Callable[[Array, Multipliers, int], Search]


def in_rounds(
    task: Task, u: Array, minimize: Minimize, *, rounds: int, weight: float, feasible: float
) -> Plan:
    """The plan of a method that minimizes an augmented Lagrangian, in rounds with multipliers.

    minimize: (controls, multipliers, round) → a search
    rounds: at most; one where nothing is constrained
    """
    multipliers = no_multipliers(task, weight)
    constrained = multipliers.running.shape[1] + multipliers.final.shape[0] > 0
    before = np.full(task.batch, np.inf)
    costs: list[np.ndarray] = []
    violations: list[np.ndarray] = []
    for i in range(rounds if constrained else 1):
        search = minimize(u, multipliers, i)
        u, skip = search.u, 1 if costs else 0
        costs += search.costs[skip:]
        violations += search.violations[skip:]
        # Controls as a NumPy array: spread over cores, the motion would be compiled again.
        knots = jax.device_get(simulated(task, jax.device_get(u)))
        worth = jax.device_get(valued(task, knots, u, multipliers))
        cost, violation = worth.cost, worth.violation
        met = violation <= feasible
        if met.all() or not constrained:
            break
        multipliers = raised(task, knots, u, multipliers, before)
        before = violation
    outcome = np.where(met, search.outcome, Outcome.VIOLATED)
    far = np.abs(u / task.unit[None]).max(axis=(0, 1)) > FAR
    outcome = np.where(far, Outcome.UNBOUNDED, outcome)
    outcome = np.where(np.isfinite(cost), outcome, Outcome.START)
    outcome = np.where(search.outcome == Outcome.START, Outcome.START, outcome)

    def shown(x):
        return x[..., 0] if task.alone else x

    control = control_of(task, u)
    arrays = u, control, knots.state, knots.q, knots.qd, cost, violation, outcome
    arrays = (*arrays, np.stack(costs), np.stack(violations), search.gains)
    return Plan(*jax.tree.map(shown, arrays))
