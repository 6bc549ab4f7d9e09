"""The iteration of a batch: Newton steps in passes.

Within a pass the bounds of all laws are fixed numbers. So each pass minimizes a sum of convex
potentials. Its first step is a whole Newton step from the most likely active set; a line search
finds the length of each further step.

The bounds of friction follow normal impulses: in the first pass those of the last time step, in the
second pass those of the first, then those that a secant through the last two passes extrapolates.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient

from ..algebra.compiler import materialize
from .bounds import Laws, Potential, in_impact, likely, potential, value, widened
from .newton_step import Point, between, newton_step, step_length
from .problem import (
    SOLVED,
    TOLERATED,
    Impulses,
    RowProblem,
    bare_laws,
    coordinate_rows,
    residual,
    scale,
    speeds,
)

# Residual below which a step that does not lower it is rejected and ends the pass, as a share of
# the speeds that cancel, by the bytes of a number.
NEARLY_SOLVED = {4: 3e-5, 8: 1e-9}
# Floor of a law's compliance, as a share of the mobility of its row: of all laws; of friction that
# follows a normal force, and of contacts that stand on bodies; of both where no impulse of the last
# step anchors them.
FLOOR = {4: 3e-7, 8: 1e-14}
CONTACT_FLOOR = 1e-2
UNANCHORED_FLOOR = {4: 1e-3, 8: 1e-5}
# Bounds of a secant's slope; the least difference of normal impulses that it divides by, as a share
# of the largest normal impulse.
STEEPEST = -20.0, 0.5
LEAST_DIFFERENCE = 1e-6


class Settings(NamedTuple):
    """Settings of `Newton` for the iteration.

    iterations: most Newton steps of the first pass; passes: number of passes
    coupled: whether the normal force of the solution bounds friction; else the normal force of the
        first half of the passes, which have no friction
    """

    iterations: int
    passes: int
    coupled: bool

    @property
    def limits(self) -> tuple[int, ...]:
        """Total number of steps at which each pass ends; the next pass may use steps left over."""
        later = max(self.iterations - 1, 1)
        return tuple(self.iterations + later * i for i in range(self.passes))


class Given(NamedTuple):
    """Inputs of a pass from the passes before.

    anchors: λ₀ of the bounded laws, (laws, *batch)
    normal: impulses that bound friction; before: `normal` of the pass before; found: impulses that
        the pass before found, (coordinate rows, *batch)
    """

    anchors: Array
    normal: Array
    before: Array
    found: Array


class Ends(NamedTuple):
    """The result of an iteration.

    points: at the end of each pass, arrays (passes, …); given: inputs of the last pass
    number: the last pass that was needed, (*batch); later passes have its point
    steps: Newton steps of all passes, (*batch)
    """

    points: Point
    given: Given
    number: Array
    steps: Array


class _Iterate(NamedTuple):
    """The iteration after some steps.

    point, speed: the iterate, and the speeds of all rows there
    given, number: inputs and number of the current pass, (*batch)
    fresh: whether the next step is the first of the pass; wanted: whether there is a next step,
        (*batch)
    steps: number of steps so far; residual: after the last step, (*batch); ends: of the passes
    """

    point: Point
    speed: Array
    given: Given
    number: Array
    fresh: Array
    wanted: Array
    steps: Array
    residual: Array
    ends: Point


def first_given(
    settings: Settings, problem: RowProblem, smoothing: Array | None, start: Impulses
) -> Given:
    """Inputs of the first pass, from the impulses of the last time step.

    Impulses of an impact, which the laws release, are no anchors: they would push apart bodies that
    now rest on each other.
    """
    Λ, bounded = coordinate_rows(problem, start[0]), start[1]
    if problem.follows and not settings.coupled:
        nothing = jnp.zeros_like(Λ)
        return Given(jnp.zeros_like(bounded), nothing, nothing, nothing)
    u = coordinate_rows(problem, speeds(problem, start[0]))
    given = Given(bounded, Λ, Λ, Λ)
    laws = laws_of(settings, problem, smoothing, given)
    impact = stop_gradient(in_impact(laws, bounded, laws.rows.at_laws(u)))
    return given._replace(anchors=jnp.where(impact, 0.0, bounded))


def next_given(
    settings: Settings,
    given: Given,
    Λ: Array,
    bounded: Array,
    number: Array,
    found: Array | None = None,
) -> Given:
    """Inputs of the pass after `number`, from the impulses Λ and `bounded` of that pass.

    found: True where these impulses obey all laws without floors, (*batch): further passes keep
        them; None for nowhere
    """
    if not settings.coupled:
        half = settings.passes // 2
        normal = jnp.where(number + 1 == half, Λ, given.normal)
        return Given(bounded, normal, normal, normal)
    moved = given.normal - given.before
    least = jnp.maximum(
        LEAST_DIFFERENCE * materialize(jnp.abs(Λ)).max(axis=0, initial=0.0),
        jnp.finfo(Λ.dtype).tiny ** 0.4,
    )
    some = jnp.abs(moved) > stop_gradient(least)[None]
    ρ = jnp.where(some, (Λ - given.found) / jnp.where(some, moved, 1.0), 0.0)
    normal = given.normal + (Λ - given.normal) / (1 - jnp.clip(ρ, *STEEPEST))
    # Normal impulses never pull: the secant must not change their sign.
    normal = jnp.where(normal * Λ > 0, normal, 0.0)
    if found is not None:
        normal = jnp.where(found[None], Λ, normal)
    return Given(bounded, normal, given.normal, Λ)


def laws_of(
    settings: Settings,
    problem: RowProblem,
    smoothing: Array | None,
    given: Given,
    laws: Laws | None = None,
) -> Potential:
    """The potentials of all bounds in a pass; laws: `RowProblem.laws`, where known."""
    laws = widened(problem.laws if laws is None else laws, given.normal)
    return potential(laws, scale(problem), _floors(settings, problem), given.anchors, smoothing)


def _floors(settings: Settings, problem: RowProblem) -> Array:
    """Floor of each law, (laws, *1)."""
    precision = problem.rate.dtype.itemsize
    floors = np.full(len(problem.structure.row), FLOOR[precision])
    of_contacts = CONTACT_FLOOR if settings.coupled else UNANCHORED_FLOOR[precision]
    floors[problem.structure.standing] = of_contacts
    for bound in problem.bounds:
        if bound.mu is not None:
            normal = np.array(bound.normal)
            follows = np.flatnonzero(normal != np.arange(len(normal)))
            floors[follows], floors[normal[follows]] = of_contacts, of_contacts
    floors = floors[problem.law_rows.row].reshape(-1, *(1,) * (problem.rate.ndim - 2))
    return jnp.asarray(floors, problem.rate.dtype)


def improved(
    problem: RowProblem, laws: Potential, at: Point, speed: Array, whole: Array
) -> tuple[Point, Array, Array]:
    """One Newton step, with a line search where not `whole`, (*batch); the speeds after it; and the
    largest change of a speed if the step had its whole length, (*batch).
    """
    system = problem, laws
    to = newton_step(system, system, at, speed)
    ahead = speeds(problem, to.impulse)
    length = step_length(*stop_gradient((*system, at, to, speed, ahead)))
    length = jnp.where(whole, 1.0, length)
    share = length[None, None]
    # Stored: XLA does not vectorize a kernel that both computes and reduces.
    change = materialize(jnp.abs(ahead - speed)).max(axis=(0, 1))
    speed = jnp.where(share < 1, speed + share * (ahead - speed), ahead)
    return between(at, to, length), speed, change


def begun(laws: Potential, problem: RowProblem, at: Impulses, speed: Array) -> Point:
    """The first point of a pass, from impulses nearby and the speeds that they leave."""
    u = coordinate_rows(problem, speed)
    return Point(at[0], likely(laws, at[1], laws.rows.at_laws(u)))


def iterated(
    settings: Settings,
    problem: RowProblem,
    smoothing: Array | None,
    given: Given,
    start: Impulses,
    every: bool = False,
) -> Ends:
    """Newton steps from `start` until all environments have ended their last pass.

    given: inputs of the first pass; every: take all steps, so that the iteration can be
        differentiated
    """
    precision = problem.rate.dtype.itemsize
    last, limits = settings.passes - 1, np.array(settings.limits)
    passes, all_laws = np.arange(settings.passes), problem.laws

    def laws_in(given):
        return laws_of(settings, problem, smoothing, given, all_laws)

    def improve(now: _Iterate) -> _Iterate:
        laws = laws_in(now.given)
        point, speed, change = improved(problem, laws, now.point, now.speed, now.fresh)
        at = point.impulse, value(laws, point.positions)
        left, size = residual(problem, laws, at, speed)
        # Solved environments stay as they are, so that results do not depend on the batch. A step
        # from a nearly solved point is taken only if it lowers the residual.
        near = now.residual <= NEARLY_SOLVED[precision] * size
        worse = ~now.fresh & (left >= now.residual) & near
        taken = now.wanted & ~worse
        point, speed, left = chosen(
            taken, (point, speed, left), (now.point, now.speed, now.residual)
        )
        steps = now.steps + jnp.where(now.wanted, 1, 0)
        limit = jnp.asarray(limits)[now.number]
        least = SOLVED[precision] * size
        # A step that changes speeds by rounding alone ends the pass if the residual is tolerated.
        settled = ~now.fresh & (change <= least) & (left <= TOLERATED[precision] * (1 + size))
        ended = now.wanted & (worse | settled | (left <= least) | (steps >= limit))
        ends = jax.tree.map(
            lambda all_, x: jnp.where(
                _from(now.number, passes, all_) & _leading(now.wanted, all_), x[None], all_
            ),
            now.ends,
            point,
        )
        given, on = now.given, ended & (now.number < last)
        if last:
            at = point.impulse, value(laws, point.positions)
            Λ = coordinate_rows(problem, point.impulse)
            if smoothing is None:
                # Where a pass obeys all laws as well without floors, or up to rounding, further
                # passes would not change it.
                bare = bare_laws(problem, Λ, None, all_laws)
                on &= residual(problem, bare, at, speed)[0] > jnp.where(settled, left, least)
            given = chosen(on, next_given(settings, given, Λ, at[1], now.number), given)
            point = chosen(on, begun(laws_in(given), problem, at, speed), point)
        return _Iterate(
            point,
            speed,
            given,
            now.number + jnp.where(on, 1, 0),
            jnp.where(now.wanted, on, now.fresh),
            now.wanted & ~(ended & ~on),
            steps,
            left,
            ends,
        )

    speed = speeds(problem, start[0])
    batch = jnp.broadcast_shapes(speed.shape[2:], problem.compliance.shape[2:])
    point = begun(laws_in(given), problem, start, speed)
    yes, none = jnp.ones(batch, bool), jnp.zeros(batch, int)
    ends = jax.tree.map(lambda x: jnp.broadcast_to(x[None], (len(passes), *x.shape)), point)
    unknown = jnp.full(batch, jnp.inf, speed.dtype)
    first = _Iterate(point, speed, given, none, yes, yes, none, unknown, ends)
    if every:
        done, _ = jax.lax.scan(lambda now, _: (improve(now), None), first, None, length=limits[-1])
    else:
        done = jax.lax.while_loop(lambda now: jnp.any(now.wanted), improve, first)
    number, steps = (x.astype(speed.dtype) for x in (done.number, done.steps))
    return Ends(done.ends, done.given, number, steps)


def completed(
    settings: Settings, problem: RowProblem, smoothing: Array | None, given: Given, ends: Ends
) -> Ends:
    """Ends, completed by the passes that were not needed; given: inputs of the first pass."""
    points, at, all_laws = [], None, problem.laws
    for number in range(settings.passes):
        laws = laws_of(settings, problem, smoothing, given, all_laws)
        point = jax.tree.map(lambda x, number=number: x[number], ends.points)
        if at is not None:
            found = begun(laws, problem, at, speeds(problem, at[0]))
            point = chosen(number > ends.number, found, point)
        points.append(point)
        at = point.impulse, value(laws, point.positions)
        if number < settings.passes - 1:
            Λ = coordinate_rows(problem, at[0])
            given = next_given(settings, given, Λ, at[1], number, number >= ends.number)
    return ends._replace(points=jax.tree.map(lambda *x: jnp.stack(x), *points), given=given)


def chosen(mask: Array, these, those):
    """`these` where the mask (*batch) is true, else `those`; trees of arrays."""
    return jax.tree.map(lambda x, y: jnp.where(_leading(mask, x), x, y), these, those)


def _leading(mask: Array, like: Array) -> Array:
    """A mask (*batch) with axes of size 1 in front, to the number of axes of `like`."""
    return mask.reshape((1,) * (like.ndim - mask.ndim) + mask.shape)


def _from(number: Array, passes: np.ndarray, like: Array) -> Array:
    """True for passes from `number` (*batch) on, for arrays like (passes, …, *batch)."""
    count = passes.reshape((-1,) + (1,) * (like.ndim - 1))
    return count >= _leading(number, like)
