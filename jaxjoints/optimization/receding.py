"""Model predictive control: plan over a horizon, apply the first control, plan again from there."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.options import check_count
from ..algebra.progress import with_progress
from ..algebra.pytree import replace, struct
from ..model.state import State
from ..model.system import System
from ..simulate.door import entered
from .linearization import interval
from .path import no_multipliers
from .plan import Outcome, Report
from .problem import Problem, Task, first_controls
from .shots import begun, descended, driven, linearizable


@struct
class Drive:
    """A motion under controls that are planned anew at every interval.

    u: efforts that acted, shape (intervals, actuated, *batch)
    states: start, and end of each interval, each array with an axis of intervals + 1 in front
    q, qd: coordinates and speeds there, shape (intervals + 1, coordinates, *batch)
    costs: of the plan from each interval on, shape (intervals, *batch)
    violations: of that plan, the same shape
    outcome: of that plan, an `Outcome`. ITERATIONS, a plan used before it converged, is normal with
        few iterations

    >>> from jaxjoints import Slider, SystemBuilder
    >>> world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    >>> _ = world.body("cart", mass=1.0, inertia=(1.0, 1.0, 1.0))
    >>> _ = world.joint("rail", Slider((1.0, 0.0, 0.0)), child="cart", qd=1.0)
    >>> def effort(knot, u):
    ...     return 0.5 * u[0] ** 2
    >>> def speed(knot):
    ...     return knot.qd[0] ** 2
    >>> problem = Problem(*world.build(), effort, speed, horizon=2, dt=0.5)
    >>> drive = receding_horizon(problem, intervals=3)
    >>> print(drive.qd[:, 0].round(4))  # each plan brakes by a half in 1 s, and acts for 0.5 s
    [1.     0.75   0.5625 0.4219]
    """

    u: Array
    states: State
    q: Array
    qd: Array
    costs: Array
    violations: Array
    outcome: Array

    def __str__(self) -> str:
        bad = np.isin(self.outcome, (Outcome.START, Outcome.STALLED, Outcome.UNBOUNDED))
        whole = f"{len(self.u)} intervals, costs of the plans {np.min(self.costs[-1]):.6g}"
        if np.size(self.costs[-1]) > 1:
            whole += f" to {np.max(self.costs[-1]):.6g}"
        kinds = ", ".join(Outcome(x).name for x in np.unique(np.asarray(self.outcome)[bad]))
        return f"{whole} at the end" + (f"; {bad.sum()} plans ended {kinds}" if bad.any() else "")


@public
@with_progress("cost")
def receding_horizon(
    problem: Problem,
    guess: Any = None,
    *,
    intervals: int,
    iterations: int = 2,
    first: int = 50,
    plant: System | None = None,
    weight: float = 100.0,
    tolerance: float = 1e-6,
    report: Report | None = None,
) -> Drive:
    """A motion controlled in closed loop by plans of `ilqr` over a moving horizon.

    In each interval `ilqr` takes a few iterations from the last plan, shifted by one interval with
    its last control held. The first control of the plan then acts on the plant. All environments of
    a batch are planned at once, by programs that are compiled once. `state.time` advances, so costs
    may follow a path in time. Constraints are penalties of weight ρ here: plans may violate them to
    lower the cost, and `Drive.violations` says by how much.

    guess: of the controls of the first plan, as for `ilqr`
    intervals: number of intervals
    iterations: of `ilqr` for each plan; first: for the first plan
    plant: system on which the controls act, by default that of the problem. Another plant is the
        same mechanism with other numbers, which the plans do not know
    report: called after each interval with the number of intervals, their total, and the costs of
        the plans

    Raises: ValueError as `ilqr`
    """
    call = "receding_horizon"
    for name, count in (("intervals", intervals), ("iterations", iterations), ("first", first)):
        check_count(call, name, count, 1)
    task, at = linearizable(call, problem)
    if plant is None:
        plant = task.system
    elif not isinstance(plant, System) or plant.topology != task.system.topology:
        raise ValueError(
            f"{call}: plant must be the problem's system with other numbers, such as "
            "system.with_numbers({…})"
        )
    acting = replace(task, system=entered(call, plant, task.start)[0])
    u, multipliers = first_controls(call, task, guess), no_multipliers(task, weight)
    rows: list[Any] = []
    state, qd = task.start, None
    for i in range(intervals):
        task = replace(task, start=state)
        progress = begun(task, driven(task, at, u, 1), multipliers)
        progress, *_ = descended(
            task, at, progress, multipliers, 1, iterations if i else first, tolerance
        )
        path, worth = progress.path, progress.worth
        now = state, state.q, path.knots.qd[0], path.u[0], worth.cost, worth.violation
        rows.append(jax.device_get((*now, progress.outcome)))
        if report is not None:
            report(i + 1, intervals, rows[-1][4])
        state, qd = _acted(acting, state, path.u[0])
        u = jnp.concatenate([path.u[1:], path.u[-1:]])
    states, q, qds, us, costs, violations, outcome = jax.tree.map(lambda *x: np.stack(x), *rows)
    last = jax.device_get((state, state.q, qd))
    states, q, qds = jax.tree.map(lambda x, y: np.concatenate([x, y[None]]), (states, q, qds), last)
    found = us, states, q, qds, costs, violations, outcome
    return Drive(*jax.tree.map(lambda x: x[..., 0] if task.alone else x, found))


@jax.jit
def _acted(task: Task, state: State, u: Array) -> tuple[State, Array]:
    return interval(task, task.system, state, u)
