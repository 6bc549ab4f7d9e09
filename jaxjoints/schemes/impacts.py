"""Impacts at their times within a step: bodies move, hit, and move on.

A step whose stops do not bounce gives speeds ν and would displace bodies by h ν. At its time t of
impact a row i that is hit has the speed

    u⁻ = u + (t/h - ½) Δu,    u = Jᵢ ν,  Δu what forces add to it in the step,

and asks for u⁺ ≥ -e u⁻. With λ the impulses of all rows at the poses of the impact, and T what
bodies do after impulses, what follows is the speed ν + T H λ, and the displacement

    h ν + Σᵢ (h - tᵢ) T Hᵢ λᵢ,

tᵢ the time of a row that is hit, also for its friction; that of the first impact for all others.
For one impact in a step, and for several that do not act on each other, this is the motion before
and after each: for constant forces that of continuous time, with its derivatives, those of the
saltation matrix. What is held is pushed no further than it goes already.
The scheme adds by how much forces after the impact differ from those before, over what is left of
the step.

Source of the saltation matrix: Leine & Nijmeijer, Dynamics and Bifurcations of Non-Smooth
Mechanical Systems, 2004.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import replace, struct
from ..assembly.group_rows import Interval
from ..assembly.problem import Assembly, assembled
from ..assembly.targets import Impact
from ..model.articulation import Articulation, Motion
from ..model.kinematics import (
    Kinematics,
    Mechanism,
    body_twists,
    system_kinematics,
    with_world,
)
from ..model.state import Control, State
from ..solve.forces import Bound, Rebound
from ..solve.problem import (
    RowProblem,
    RowSolution,
    Solver,
    coordinate_rows,
    row_speeds,
    speeds,
    trailing,
    with_coordinate_rows,
)
from .instant import INSTANT


@struct
class Hits:
    """What is hit in a step, arrays (coordinate rows, *batch).

    stops: how the stops of each bound are hit, None for bounds that do not bounce
    bounds: those of the step, as it was solved; pushes: whether they did, for each bound
    rows: 1 for rows that are hit, and those of their friction; time: of the impact from the start
        of the step [s], its length for all others
    first: the time of the first one, (1, 1, *batch); some: whether there is one, likewise
    gained: what the forces of the step added to the speed of each row
    """

    stops: tuple[Rebound | None, ...]
    bounds: tuple[Bound, ...]
    pushes: tuple[Array, ...]
    rows: Array
    time: Array
    first: Array
    some: Array
    gained: Array


def without_rebounds(problem: RowProblem) -> RowProblem:
    """The problem of a step without what happens after it."""
    bounds = tuple(replace(bound, rebound=None) for bound in problem.bounds)
    return replace(problem, bounds=bounds)


def hits_of(rows: Assembly, solution: RowSolution, start: Array, dt: Array) -> Hits | None:
    """What is hit in a step of dt that a solution ends; None where nothing can bounce.

    start: twists at its start, (6, bodies + 1, *batch) in body axes
    """
    problem, bounds = rows.problem, rows.problem.bounds
    stops = tuple(bound.rebound for bound in bounds)
    if all(stop is None for stop in stops):
        return None
    end = coordinate_rows(problem, speeds(problem, solution.impulse))
    acting = row_speeds(problem, with_world(rows.twists(solution.impulse)) - start)
    along = jnp.zeros((len(acting), problem.structure.along, *acting.shape[2:]), acting.dtype)
    gained = coordinate_rows(problem, jnp.concatenate([acting, along], axis=1))
    hit, time = jnp.zeros_like(end), jnp.zeros_like(end)
    for stop in stops:
        if stop is not None:
            hit = jnp.maximum(hit, stop.hits)
            time = jnp.where(stop.hits > 0, stop.time, time)
            gained = jnp.where(stop.hits > 0, end - stop.speed, gained)
    for bound in bounds:
        if bound.mu is not None:
            normal = np.array(bound.normal)
            of_other = _column(normal != np.arange(len(normal)), end)
            hit = jnp.where(of_other, hit[normal], hit)
            time = jnp.where(of_other, time[normal], time)
    time = jnp.where(hit > 0, time, dt)
    first = time.min(axis=0)[None, None]
    pushes = tuple(λ > 0 for λ in solution.bounded)
    some = hit.max(axis=0)[None, None] > 0
    return Hits(stops, bounds, pushes, hit, time, first, some, gained)


def impacts(
    mechanism: Mechanism,
    tree: Articulation,
    solver: Solver,
    state: State,
    xi: Array,
    hits: Hits,
    control: Control,
    dt: Array,
) -> tuple[Kinematics, RowSolution, tuple[Motion, Motion], Motion]:
    """The impacts of a step.

    state: at the time of the first impact, with the velocities at the end of the step without any
    xi: `Motion.joints` of these velocities

    Returns: kinematics of the state; impulses of the impacts; velocities before and after these,
        and the displacement that is left in the step, in axes of the state
    """
    kinematics, twist = system_kinematics(mechanism, state), with_world(body_twists(state))
    at_once = jnp.asarray(INSTANT, dt.dtype)
    interval = Interval(dt, control, at_once, twist, state.engagement)
    at = mechanism, kinematics, state, interval, Impact(), twist
    rows = assembled(*at, tree=tree)
    problem = _of_impacts(rows.problem, hits, dt)
    solution, before = solver.solve(problem), Motion(twist[:, :-1], xi)
    later = jnp.where(hits.rows > 0, hits.time - hits.first[0], 0.0)
    later = later * coordinate_rows(problem, solution.impulse)
    late = with_coordinate_rows(problem.structure, jnp.zeros_like(solution.impulse), later)
    after = jax.tree.map(jnp.add, before, rows.change(solution.impulse))
    going = jax.tree.map(lambda v: (dt - hits.first) * v, after)
    left = jax.tree.map(jnp.subtract, going, rows.change(late))
    return kinematics, solution, (before, after), left


def both(first: RowSolution, second: RowSolution) -> RowSolution:
    """The impulses of a step and of its impacts together."""
    excess, iterations = first.excess, first.iterations
    return replace(
        first,
        impulse=first.impulse + second.impulse,
        bounded=first.bounded + second.bounded,
        residual=jnp.maximum(first.residual, second.residual),
        size=jnp.maximum(first.size, second.size),
        excess=None if excess is None else jnp.maximum(excess, second.excess),
        iterations=None if iterations is None else jnp.maximum(iterations, second.iterations),
    )


def _of_impacts(problem: RowProblem, hits: Hits, dt: Array) -> RowProblem:
    """The problem of the impacts: what rows are held where, and do not do else."""
    structure = problem.structure
    u = coordinate_rows(problem, problem.rate)
    u = u + jnp.where(hits.rows > 0, (hits.time / dt - 0.5) * hits.gained, 0.0)
    # What is held goes on as it goes already.
    rate = problem.rate * (1 - trailing(structure.hard, problem.rate))
    rate = with_coordinate_rows(structure, rate, u)
    some = hits.some[0].astype(u.dtype)
    parts = zip(problem.bounds, hits.bounds, hits.stops, hits.pushes, strict=True)
    return replace(
        problem,
        rate=rate,
        impulse=problem.augmented_stiffness * u,
        bounds=tuple(_bound(*each, u, some) for each in parts),
    )


def _bound(
    now: Bound, of_step: Bound, stop: Rebound | None, pushes: Array, u: Array, some: Array
) -> Bound:
    """A bound in the impacts; u: speeds of its rows before; some: 1 where there are impacts."""
    if now.upper is not None:
        return now
    along = now.sign * u
    present = jnp.where(now.compliance > 0, 0.0, some * now.present)
    bias, none = jnp.maximum(now.bias, -along), jnp.zeros_like(now.compliance)
    if stop is not None:
        # Another stop that bounces is hit in the step that follows.
        held = (stop.restitution <= 0) | pushes
        present = jnp.where(stop.hits > 0, 1.0, jnp.where(held, present, 0.0))
        bounced = of_step.bias + stop.restitution * along
        bias = jnp.where(stop.hits > 0, bounced, bias)
    return replace(now, present=present, bias=bias, compliance=none)


def _column(mask: np.ndarray, like: Array) -> Array:
    """A mask (rows) with axes of size 1 for the batch."""
    return jnp.asarray(mask.reshape(-1, *(1,) * (like.ndim - 1)))
