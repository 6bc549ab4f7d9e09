"""Differential dynamic programming over one shot or several: `ilqr`, `multiple_shooting`."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.compiler import moderately
from ..algebra.options import check_count
from ..algebra.progress import compiled, with_progress
from ..algebra.pytree import map_trailing, replace, struct
from ..dynamics.linear import deviated, with_independent
from ..dynamics.tree import spanning_tree
from ..model.kinematics import prepare
from ..model.measures import coordinates
from ..model.state import State
from ..model.table import in_words
from ..simulate.isolation import chosen
from ..simulate.surface import coordinate_speeds
from .linearization import expanded_about, interval, spread
from .path import Multipliers, Worth, simulated, valued
from .plan import Outcome, Plan, Report, Search, in_rounds
from .problem import Knot, Problem, Task, first_controls, prepared
from .riccati import Policy, backward

# Lengths α of a step that are tried at once.
LENGTHS = (1.0, 0.6, 0.3, 0.1, 0.03, 0.01)
# Damping at the start, least that is not 0, and where no step is expected to help any more.
DAMPING, LEAST, MOST = 1e-4, 1e-6, 1e6
# A small promised decrease counts only where the damping does not make it small.
LIGHT = 1e-2


@struct
class Path:
    """Controls and the motion under them, in shots: gaps are between the end of one and the next.

    u: shape (horizon, actuated, batch); knots: leaves (horizon + 1, …, batch)
    reached: independent coordinates and speeds at the end of each shot but the last, shape
        (shots - 1, n, batch)
    """

    u: Array
    knots: Knot
    reached: Array


@struct
class Progress:
    """A path under way, its worth, and of each environment the damping, weights of gaps, outcome.

    merit: augmented cost and weighted gaps, shape (batch,); price: weights, shape (n, batch)
    gains: of the last policy; outcome: shape (batch,)
    """

    path: Path
    worth: Worth
    damping: Array
    price: Array
    gains: Array
    outcome: Array


@public
@with_progress("cost")
def ilqr(
    problem: Problem,
    guess: Any = None,
    *,
    iterations: int = 100,
    rounds: int = 8,
    weight: float = 10.0,
    tolerance: float = 1e-6,
    feasible: float = 1e-3,
    report: Report | None = None,
) -> Plan:
    """Controls by iterative LQR with control limits: differential dynamic programming to first
    order in the dynamics.

    An iteration has four parts. It linearizes all intervals at once about the path, in independent
    coordinates and their speeds. It expands the cost to second order, with negative curvatures
    taken as 0. It finds the best policy within the bounds backward in time. It simulates the policy
    forward with its feedback, for several step lengths at once. Environments do not wait for each
    other's steps, only for the last environment to end. Constraints enter by an augmented
    Lagrangian in `rounds`.

    The joints of the mechanism must place all bodies (use `FreeEuler` for a free body). Loops need
    `Problem.independent`. The linear model has coordinates and speeds, but not the errors of joints
    that a scheme without projections corrects a step later: keep `projections=2` with long steps.

    guess: of the controls, shape (horizon, actuated) or with the batch axis, zeros by default
    iterations: at most, in each round
    rounds: at most; multipliers are raised between them, as long as a constraint is violated
    weight: ρ of the constraints in the first round, cost per square of a violation
    tolerance: converged, if a step promises less than this share of the cost
    feasible: largest violation that counts as none
    report: called after each iteration with their number, the most there may be, and the costs

    Raises: ValueError for what does not fit, as `rollout` and `dynamics.linear_model`
    Source: Tassa, Mansard and Todorov, ICRA 2014.
    """
    return _planned(
        "ilqr",
        problem,
        guess,
        shots=1,
        polish=0,
        iterations=iterations,
        rounds=rounds,
        weight=weight,
        tolerance=tolerance,
        feasible=feasible,
        report=report,
        states=None,
    )


@public
@with_progress("cost")
def multiple_shooting(
    problem: Problem,
    guess: Any = None,
    *,
    shots: int,
    states: State | None = None,
    iterations: int = 50,
    polish: int = 50,
    rounds: int = 8,
    weight: float = 10.0,
    tolerance: float = 1e-6,
    feasible: float = 1e-3,
    report: Report | None = None,
) -> Plan:
    """Controls by shots that begin at states of their own, whose gaps the iterations close.

    The horizon is cut into shots, simulated side by side. Their starts are unknowns beside the
    controls. So `states` may draw a motion before any controls cause it, and errors do not grow
    over the whole horizon. An iteration is that of `ilqr` with the gaps in its linear model; a step
    of length α closes the share α of each gap, to first order. The merit of a step is the cost plus
    weighted gaps, with weights above the price of a gap. At the end the controls with their
    feedback are simulated in one shot, and `polish` iterations of `ilqr` follow: the plan has no
    gaps.

    shots: number of shots; `horizon` must be a multiple
    states: starts of the shots, each array with an axis of `shots` in front, and the batch at the
        end if there is one. The first start is that of the problem, whatever this argument says. By
        default the states of the motion under the guess
    The other arguments are those of `ilqr`.

    Raises: ValueError as `ilqr`, and for shots and states that do not fit
    """
    return _planned(
        "multiple_shooting",
        problem,
        guess,
        shots=shots,
        polish=polish,
        iterations=iterations,
        rounds=rounds,
        weight=weight,
        tolerance=tolerance,
        feasible=feasible,
        report=report,
        states=states,
    )


def _planned(
    call: str,
    problem: Problem,
    guess: Any,
    *,
    shots: int,
    polish: int,
    iterations: int,
    rounds: int,
    weight: float,
    tolerance: float,
    feasible: float,
    report: Report | None,
    states: State | None,
) -> Plan:
    for name, count, least in (
        *(("iterations", iterations, 1), ("rounds", rounds, 1)),
        *(("shots", shots, 1), ("polish", polish, 0)),
    ):
        check_count(call, name, count, least)
    task, at = linearizable(call, problem)
    if task.horizon % shots:
        raise ValueError(f"{call}: horizon {task.horizon} must be a multiple of shots {shots}")
    starts = None if states is None else _starts(call, task, states, shots)
    most = rounds * (iterations + polish)

    def minimize(u: Array, multipliers: Multipliers, number: int) -> Search:
        done = number * (iterations + polish)
        told = None if report is None else lambda i, costs: report(done + i, most, costs)
        path = driven(task, at, u, shots)
        if starts is not None and number == 0:
            path = _begun(task, at, path, starts, shots)
        first = begun(task, path, multipliers)
        found, costs, worst = descended(
            task, at, first, multipliers, shots, iterations, tolerance, told
        )
        if shots > 1:
            joined = begun(task, _joined(task, at, found), multipliers)
            found, more, worse = descended(
                task, at, joined, multipliers, 1, polish, tolerance, told, len(costs) - 1
            )
            costs, worst = costs + more, worst + worse
        return Search(found.path.u, np.asarray(found.outcome), found.gains, costs, worst)

    u = first_controls(call, task, guess)
    return in_rounds(task, u, minimize, rounds=rounds, weight=weight, feasible=feasible)


def linearizable(call: str, problem: Problem) -> tuple[Task, tuple[int, ...]]:
    """The problem in standard form, and the places of its independent coordinates."""
    task = prepared(call, problem)
    *_, at = with_independent(call, task.system, task.start, None, problem.independent)
    return task, at


def descended(
    task: Task,
    at: tuple[int, ...],
    progress: Progress,
    multipliers: Multipliers,
    shots: int,
    iterations: int,
    tolerance: float,
    report: Any = None,
    done: int = 0,
) -> tuple[Progress, list[np.ndarray], list[np.ndarray]]:
    """A path after iterations, and the costs and violations on the way."""
    costs, worst = [np.asarray(progress.worth.cost)], [np.asarray(progress.worth.violation)]
    limit = jnp.asarray(tolerance, task.dt.dtype)
    for i in range(iterations):
        progress = _iterated(task, progress, multipliers, limit, at=at, shots=shots)
        costs.append(np.asarray(progress.worth.cost))
        worst.append(np.asarray(progress.worth.violation))
        if report is not None:
            report(done + i + 1, costs[-1])
        if not (np.asarray(progress.outcome) == Outcome.ITERATIONS).any():
            break
    return progress, costs, worst


@jax.jit
def begun(task: Task, path: Path, multipliers: Multipliers) -> Progress:
    """A path before the first iteration."""
    worth = valued(task, path.knots, path.u, multipliers)
    n, none = path.reached.shape[1], jnp.zeros_like(worth.cost)
    gains = jnp.zeros((task.horizon, len(task.actuated), n, task.batch), none.dtype)
    outcome = jnp.where(jnp.isfinite(worth.augmented), Outcome.ITERATIONS, Outcome.START)
    price = jnp.zeros((n, task.batch), none.dtype)
    return Progress(path, worth, none + DAMPING, price, gains, outcome)


@compiled(
    lambda task, *_, **__: in_words(f"plan over {task.horizon} intervals", task.system),
    compiler=moderately,
    static_argnames=("at", "shots"),
)
def _iterated(
    task: Task,
    progress: Progress,
    multipliers: Multipliers,
    tolerance: Array,
    *,
    at: tuple[int, ...],
    shots: int,
) -> Progress:
    """One iteration of all environments that have not ended."""
    path, worth, damping = progress.path, progress.worth, progress.damping
    expansion = expanded_about(task, at, path.knots, path.u, multipliers)
    gap = _gaps(task, at, path, shots)
    room = task.lower[None] - path.u, task.upper[None] - path.u
    policy = map_trailing(backward, 1, expansion, gap, *room, task.unit, damping)
    price = jnp.maximum(progress.price, 2 * policy.price)
    lengths = jnp.array(LENGTHS, price.dtype)
    paths = _forward(task, at, path, policy, lengths, shots)
    worths = jax.vmap(partial(valued, task), (-2, -2, None), -2)(paths.knots, paths.u, multipliers)
    weigh = lambda path: jnp.sum(price * _open_by(task, at, path, shots), axis=0)  # noqa: E731
    left = weigh(path)
    tried = worths.augmented + jax.vmap(weigh, -2, -2)(paths)
    # A length whose cost is not finite is never the best.
    tried = jnp.where(jnp.isfinite(tried), tried, jnp.inf)
    best = jnp.argmin(tried, axis=0)
    lower = _picked(tried, best) < worth.augmented + left
    going = progress.outcome == Outcome.ITERATIONS
    # No step can promise less than rounding leaves of the cost.
    share = jnp.maximum(tolerance, 20 * jnp.finfo(price.dtype).eps)
    small = share * (jnp.abs(worth.augmented) + share)
    done = (policy.decrease <= small) & (left <= small) & (damping <= LIGHT)
    new = jax.tree.map(lambda x: _picked(x, best), (paths, worths))
    path, worth = chosen(going & lower, new, (path, worth))
    lighter = jnp.where(damping > LEAST, damping / 5, 0.0)
    heavier = jnp.maximum(10 * damping, 100 * LEAST)
    damping = jnp.where(going, jnp.where(lower, lighter, heavier), damping)
    outcome = jnp.where(damping > MOST, int(Outcome.STALLED), int(Outcome.ITERATIONS))
    outcome = jnp.where(done, int(Outcome.CONVERGED), outcome)
    outcome = jnp.where(going, outcome, progress.outcome)
    gains = chosen(going, policy.gain, progress.gains)
    return Progress(path, worth, damping, price, gains, outcome)


@partial(jax.jit, static_argnames=("at", "shots"))
def _forward(
    task: Task, at: tuple[int, ...], path: Path, policy: Policy, lengths: Array, shots: int
) -> Path:
    """Paths under a policy, for several lengths of its change; leaves (…, lengths, batch).

    All shots and lengths are steps of one batch with the axes (shots, lengths, batch).
    """
    each, index, count = task.horizon // shots, np.array(at, int), len(lengths)
    system = spread(task.system, (shots, count))
    axes = (shots, count, task.batch)

    def cut(x):
        """By shots: (horizon, …, batch) → (intervals of a shot, …, shots, 1, batch)."""
        return jnp.moveaxis(x.reshape(shots, each, *x.shape[1:]), 0, -2)[..., None, :]

    def wide(x):
        return jnp.broadcast_to(x[..., None, None, :], (*x.shape[:-1], *axes))

    α = lengths[None, :, None]
    state = jax.tree.map(wide, task.start)
    if shots > 1:
        first = jax.tree.map(
            lambda x: jnp.broadcast_to(cut(x[:-1])[0], (*x.shape[1:-1], *axes)), path.knots
        )
        dq, dqd = jnp.split(α[None] * cut(policy.shift[:-1])[0], 2)
        mechanism = prepare(system, len(axes))
        tree, speed = spanning_tree(system), first.qd[index] + dqd
        moved = deviated(mechanism, tree, first.state, index, dq, speed)
        # The first shot begins where the problem says.
        later = jnp.broadcast_to(jnp.arange(shots)[:, None, None] > 0, axes)
        state = chosen(later, moved, state)
        state = replace(state, q=coordinates(system, state))

    def one(carry, now):
        state, qd = carry
        u, change, gain, q_plan, qd_plan = now
        x = jnp.concatenate([state.q[index] - q_plan[index], qd[index] - qd_plan[index]])
        u = u + α[None] * change + jnp.sum(gain * x[None], axis=1)
        u = jnp.clip(u, task.lower[..., None, None], task.upper[..., None, None])
        new = interval(task, system, state, u)
        return new, (state, qd, u)

    knots = path.knots
    rows = path.u, policy.change, policy.gain, knots.q[:-1], knots.qd[:-1]
    first = state, coordinate_speeds(system, state)
    (end, end_qd), (states, qds, u) = jax.lax.scan(one, first, jax.tree.map(cut, rows))

    def merged(x):
        x = jnp.moveaxis(x, -3, 0)
        return x.reshape(task.horizon, *x.shape[2:])

    ends = Knot(None, end, end.q, end_qd)
    knots = jax.tree.map(
        lambda x, last: jnp.concatenate([merged(x), last[None, ..., -1, :, :]]),
        Knot(None, states, states.q, qds),
        ends,
    )
    reached = jnp.concatenate([end.q[index], end_qd[index]])[..., :-1, :, :]
    return Path(merged(u), knots, jnp.moveaxis(reached, -3, 0))


def driven(task: Task, at: tuple[int, ...], u: Array, shots: int) -> Path:
    """The path under controls, its shots without gaps."""
    # As NumPy arrays: with JAX's, spread over cores, what follows would be compiled again.
    knots, each = jax.device_get(simulated(task, u)), task.horizon // shots
    return Path(u, knots, _numbers(at, knots)[each:-1:each])


def _begun(task: Task, at: tuple[int, ...], path: Path, starts: State, shots: int) -> Path:
    """The path whose shots begin at other states."""
    each = task.horizon // shots
    now = jax.vmap(partial(coordinate_speeds, task.system))(starts)
    replaced = lambda x, new: x.at[:-1:each].set(new)  # noqa: E731
    knots = jax.tree.map(replaced, path.knots, Knot(None, starts, starts.q, now))
    path = replace(path, knots=knots)
    still = _still(task, path)
    paths = _forward(task, at, path, still, jnp.ones(1, task.dt.dtype), shots)
    return jax.tree.map(lambda x: x[..., 0, :], paths)


def _joined(task: Task, at: tuple[int, ...], progress: Progress) -> Path:
    """The path in one shot that follows another of several by its feedback."""
    still = _still(task, progress.path, progress.gains)
    paths = _forward(task, at, progress.path, still, jnp.ones(1, task.dt.dtype), 1)
    return jax.tree.map(lambda x: x[..., 0, :], paths)


def _still(task: Task, path: Path, gains: Array | None = None) -> Policy:
    """A policy that changes nothing but by its feedback, if it has any."""
    n, batch = path.reached.shape[1], task.batch
    zeros = lambda *shape: jnp.zeros((*shape, batch), path.u.dtype)  # noqa: E731
    gains = zeros(task.horizon, len(task.actuated), n) if gains is None else gains
    shift = zeros(task.horizon + 1, n)
    return Policy(jnp.zeros_like(path.u), gains, shift, zeros(), zeros(n))


def _numbers(at: tuple[int, ...], knots: Knot) -> Array:
    """Independent coordinates and speeds of knots, (horizon + 1, n, batch)."""
    index = np.array(at, int)
    return jnp.concatenate([knots.q[:, index], knots.qd[:, index]], axis=1)


def _gaps(task: Task, at: tuple[int, ...], path: Path, shots: int) -> Array:
    """What the end of each interval is ahead of the next knot, (horizon, n, batch)."""
    each, x = task.horizon // shots, _numbers(at, path.knots)
    gap = jnp.zeros_like(x[1:])
    return gap.at[each - 1 : -1 : each].set(path.reached - x[each:-1:each])


def _open_by(task: Task, at: tuple[int, ...], path: Path, shots: int) -> Array:
    """Sum of the sizes of all gaps, (n, batch)."""
    return jnp.sum(jnp.abs(_gaps(task, at, path, shots)), axis=0)


def _picked(x: Array, best: Array) -> Array:
    """Of leaves (…, lengths, batch) those of the best lengths (batch,)."""
    where = jnp.broadcast_to(best, (*x.shape[:-2], 1, x.shape[-1]))
    return jnp.take_along_axis(x, where, axis=-2)[..., 0, :]


def _starts(call: str, task: Task, states: State, shots: int) -> State:
    """States at the starts of shots, with the batch at the end."""
    if not isinstance(states, State):
        raise ValueError(
            f"{call}: states {states!r} must be a State with an axis of shots in front"
        )

    def read(name, x, like):
        shape = (shots, *like.shape[:-1])
        if jnp.shape(x) not in (shape, (*shape, task.batch)):
            raise ValueError(
                f"{call}: states: {name} has shape {jnp.shape(x)}; it must be {shape}, (shots, …), "
                "or have the batch axis at the end"
            )
        x = jnp.asarray(x, like.dtype)
        x = x if x.ndim > len(shape) else x[..., None]
        return jnp.broadcast_to(x, (*shape, task.batch))

    paths = jax.tree_util.tree_leaves_with_path(states)
    names = [jax.tree_util.keystr(path).lstrip(".") for path, _ in paths]
    leaves = [
        read(name, x, like)
        for name, (_, x), like in zip(names, paths, jax.tree.leaves(task.start), strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(task.start), leaves)
