"""Newton's iteration of a batch: when it ends, and how environments far from solved are rescued."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import largest
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


class Settings(NamedTuple):
    """What `Newton` says of its iteration."""

    iterations: int
    rescue: int


class _Iterate(NamedTuple):
    """Number of steps made, impulses, speeds of all rows after them, residual and size, and True
    for environments that are to go on, (*batch).
    """

    step: Array
    at: Impulses
    speed: Array
    left: tuple[Array, Array]
    wanted: Array


def iterated(
    settings: Settings, problem: RowProblem, smoothing: Array, start: Impulses
) -> RowSolution:
    """Newton steps from `start` until all environments are solved."""
    path, begins = _paths(settings.iterations, settings.rescue)
    blocks = matrix(problem)
    precision = problem.rate.dtype.itemsize
    share, far = SOLVED[precision], TOLERATED[precision]
    fastest = largest(jnp.abs(coordinate_rows(problem, problem.rate)), 1)[None]

    def improve(now):
        step, at, speed, (last, last_size), wanted = now
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


def _paths(iterations: int, rescue: int) -> tuple[np.ndarray, np.ndarray]:
    """Smoothing of each step as a share of the largest speed, and the steps that begin a path."""
    shares, begins = [0.0] * iterations, [False] * iterations
    for k in range(rescue):
        falling = FIRST * FALL ** (np.arange(STEPS * 2**k) / 2**k)
        shares += [*falling, *[0.0] * LAST]
        begins += [True] + [False] * (len(falling) + LAST - 1)
    return np.array(shares), np.array([*begins, False])
