"""Newton's iteration of a batch: when it ends, and how environments far from solved are rescued."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .bounds import LEAST_SPEED
from .newton_step import newton_step
from .problem import (
    TOLERATED,
    Impulses,
    RowProblem,
    RowSolution,
    coordinate_rows,
    matrix,
    residual,
    speeds,
)

# Residual at which the iteration ends, as a share of the speeds that cancel in it. In float64 all
# steps are taken: those at the solution refine its rounding.
SOLVED = {4: 3e-6, 8: 0.0}
# Residual below which a step that makes it larger is not taken, as a share of the same: where two
# laws of a coordinate hold at once, their shares drift with rounding until one meets its bound.
NEARLY_SOLVED = 1e-9
# First path of a rescue: where the smoothing begins, as a share of the largest speed of a
# coordinate, by how much it falls from step to step, how many steps it takes to a millionth of that
# speed, and how many are left without it at the end.
FIRST = 100.0
FALL = 0.4
STEPS = 20
LAST = 3
# A guided path: how near it steps must end to be taken, as a share of the smoothing there; by which
# power the fall grows again after each step that is; and how many steps each rescue allows.
NEAR = 0.3
FASTER = 1.2
GUIDED = 150


class Settings(NamedTuple):
    """What `Newton` says of its iteration.

    guided: a rescue falls as fast as each environment allows, by what its steps leave: needed where
        impulses bound others, a fifth more work in each step
    """

    iterations: int
    rescue: int
    guided: bool = False


class _Iterate(NamedTuple):
    """Number of steps made, impulses, speeds of all rows after them, residual and size, and True
    for environments that are to go on, (*batch).

    guide: of a guided path the smoothing that it has reached, by how much it falls next, and the
        steps made since it ended, (*batch)
    """

    step: Array
    at: Impulses
    speed: Array
    left: tuple[Array, Array]
    wanted: Array
    guide: tuple[Array, ...] = ()


def iterated(
    settings: Settings, problem: RowProblem, smoothing: Array, start: Impulses
) -> RowSolution:
    """Newton steps from `start` until all environments are solved."""
    if settings.guided:
        return _guided(settings, problem, smoothing, start)
    path, begins = _paths(settings.iterations, settings.rescue)
    blocks = matrix(problem)
    precision = problem.rate.dtype.itemsize
    share, far = SOLVED[precision], TOLERATED[precision]
    fastest = jnp.abs(coordinate_rows(problem, problem.rate)).max(axis=0)[None]

    def improve(now):
        step, at, speed, (last, last_size), wanted, _ = now
        unsolved = (last > far * last_size)[None]
        along = jnp.asarray(path, speed.dtype)[step] * fastest
        smoothed = problem, jnp.maximum(smoothing, jnp.where(unsolved, along, 0.0))
        new = newton_step(smoothed, smoothed, blocks, at, speed)
        new_speed = speeds(problem, new[0])
        left, size = residual(problem, smoothing, new, new_speed)
        # Solved environments stay as they are: what one gets does not depend on its neighbours.
        wanted = wanted & ((left <= last) | (last > NEARLY_SOLVED * last_size))
        old = at, speed, (last, last_size)
        both = (new, new_speed, (left, size)), old
        at, speed, left = jax.tree.map(lambda x, y: jnp.where(wanted, x, y), *both)
        wanted = wanted & (left[0] > share * left[1])
        # Rescued are only those that are far from solved.
        wanted = wanted & (~jnp.asarray(begins)[step + 1] | (left[0] > far * left[1]))
        return _Iterate(step + 1, at, speed, left, wanted)

    def go_on(now):
        return (now.step < len(path)) & jnp.any(now.wanted)

    speed = speeds(problem, start[0])
    unknown = jnp.full(speed.shape[2:], jnp.inf, speed.dtype)
    first = _Iterate(0, start, speed, (unknown, unknown), unknown > 0)
    last = jax.lax.while_loop(go_on, improve, first)
    return RowSolution(*last.at, *last.left)


def _guided(
    settings: Settings, problem: RowProblem, smoothing: Array, start: Impulses
) -> RowSolution:
    """`iterated` whose rescue is one path that every environment follows at a pace of its own.

    Steps that end near the path are taken, and let it fall faster. Others are tried again from
    where the path was left, with a smoothing that falls by the root of what it fell by.
    """
    blocks = matrix(problem)
    precision = problem.rate.dtype.itemsize
    share, far, least = SOLVED[precision], TOLERATED[precision], LEAST_SPEED[precision]
    fastest = jnp.abs(coordinate_rows(problem, problem.rate)).max(axis=0)
    most = settings.iterations + GUIDED * settings.rescue

    def improve(now):
        step, at, speed, (last, last_size), wanted, (reached, fall, refined) = now
        late = step >= settings.iterations
        rescued = late & (last > far * last_size)
        ν = jnp.where(rescued, reached * fall, 0.0)
        smoothed = problem, jnp.maximum(smoothing, ν[None])
        # A path begins without impulses: what went round in circles may be far from everything.
        begins = rescued & (step == settings.iterations)
        rest = jax.tree.map(jnp.zeros_like, at), problem.rate
        at, speed = jax.tree.map(lambda x, y: jnp.where(begins, x, y), rest, (at, speed))
        new = newton_step(smoothed, smoothed, blocks, at, speed)
        new_speed = speeds(problem, new[0])
        left, size = residual(problem, smoothing, new, new_speed)
        away, _ = residual(*smoothed, new, new_speed)
        solved = left <= far * size
        near = (away <= NEAR * jnp.maximum(ν, least)) | begins
        # What a path has solved is refined, and not let go again.
        better = (left <= last) | (~late & (last > NEARLY_SOLVED * last_size))
        taken = wanted & jnp.where(rescued, near | solved, better)
        old = at, speed, (last, last_size)
        both = (new, new_speed, (left, size)), old
        at, speed, left = jax.tree.map(lambda x, y: jnp.where(taken, x, y), *both)
        unsolved = left[0] > far * left[1]
        wanted = wanted & (taken | unsolved) & (left[0] > share * left[1])
        # Rescued are only those that are far from solved.
        wanted = wanted & ((step + 1 != settings.iterations) | unsolved)
        refined = refined + jnp.where(late & ~rescued, 1, 0)
        wanted = wanted & (refined < LAST)
        reached = jnp.where(rescued & near, ν, reached)
        fall = jnp.where(rescued, jnp.where(near, jnp.maximum(fall**FASTER, FALL), fall**0.5), fall)
        return _Iterate(step + 1, at, speed, left, wanted, (reached, fall, refined))

    def go_on(now):
        return (now.step < most) & jnp.any(now.wanted)

    speed = speeds(problem, start[0])
    unknown = jnp.full(speed.shape[2:], jnp.inf, speed.dtype)
    begin = FIRST / FALL * jnp.broadcast_to(fastest, unknown.shape)
    guide = begin, jnp.full_like(unknown, FALL), jnp.zeros(unknown.shape, int)
    first = _Iterate(0, start, speed, (unknown, unknown), unknown > 0, guide)
    last = jax.lax.while_loop(go_on, improve, first)
    return RowSolution(*last.at, *last.left)


def _paths(iterations: int, rescue: int) -> tuple[np.ndarray, np.ndarray]:
    """Smoothing of each step as a share of the largest speed, and the steps that begin a path."""
    shares, begins = [0.0] * iterations, [False] * iterations
    for k in range(rescue):
        falling = FIRST * FALL ** (np.arange(STEPS * 2**k) / 2**k)
        shares += [*falling, *[0.0] * LAST]
        begins += [True] + [False] * (len(falling) + LAST - 1)
    return np.array(shares), np.array([*begins, False])
