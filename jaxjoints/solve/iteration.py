"""Newton's iteration of a batch: when it ends, and how environments far from solved are rescued."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from .newton_step import newton_step
from .problem import (
    TOLERATED,
    Impulses,
    RowProblem,
    RowSolution,
    residual,
    speeds,
)

# Residual at which the iteration ends, as a share of the speeds that cancel in it. In float64 all
# steps are taken: those at the solution refine its rounding.
SOLVED = {4: 3e-6, 8: 0.0}
# Residual below which a step that makes it larger is not taken, as a share of the same: where two
# laws of a coordinate hold at once, their shares drift with rounding until one meets its bound.
NEARLY_SOLVED = 1e-9
# A rescue: the share of the smoothing that a step aims at, and which power of it steps aim at on a
# path that begins anew; how far from the path a step may end, as a share of the smoothing there;
# how often it is halved until it does; how many steps refine what a rescue has solved.
FALL = 0.1
GENTLER = 0.5
NEAR = 4.0
HALVINGS = 12
LAST = 3


class Settings(NamedTuple):
    """What `Newton` says of its iteration: its steps at most, and those of a rescue."""

    iterations: int
    rescue: int


class _Iterate(NamedTuple):
    """Number of steps made, impulses and speeds of all rows after them, residual and size, and True
    for environments that are to go on, (*batch).

    path: smoothing that the rescue has reached, until then the residual [m/s or rad/s]; fall: the
        share of it that the next step aims at; refined: steps made since it solved, (*batch)
    """

    step: Array
    at: tuple[Impulses, Array]
    left: tuple[Array, Array]
    wanted: Array
    path: Array
    fall: Array
    refined: Array


def iterated(
    settings: Settings, problem: RowProblem, smoothing: Array, start: Impulses
) -> RowSolution:
    """Newton steps from `start` until all environments are solved.

    Those that plain steps leave far from it are rescued along a path of falling smoothing. It
    begins with that of the residual, for an iterate is near the path whose smoothing is as large.
    Each step aims at a tenth of the smoothing, and is halved until it ends near the path. One that
    does not is taken whole, and a path begins anew from there that falls half as steep.
    """
    precision = problem.rate.dtype.itemsize
    share, far = SOLVED[precision], TOLERATED[precision]
    most = settings.iterations + settings.rescue

    def improve(now):
        step, at, (last, last_size), wanted, path, fall, refined = now
        late = step >= settings.iterations
        rescued = wanted & late & (last > far * last_size)
        aim = jnp.where(rescued, fall * path, 0.0)
        smoothed = problem, jnp.maximum(smoothing, aim[None])
        impulses = newton_step(smoothed, smoothed, *at)
        whole = impulses, speeds(problem, impulses[0])

        def part(length):
            def between(x, y):
                share = jnp.broadcast_to(length, x.shape)
                return jnp.where(share < 1, x + share * (y - x), y)

            return jax.tree.map(between, at, whole)

        def shortened(now):
            halvings, length, searching = now
            ν = path + length * (aim - path)
            away, _ = residual(problem, jnp.maximum(smoothing, ν[None]), *part(length))
            searching = searching & (away > jnp.maximum(NEAR * ν, far * last_size))
            return halvings + 1, jnp.where(searching, length / 2, length), searching

        def goes_on(now):
            halvings, _, searching = now
            return (halvings < HALVINGS) & jnp.any(searching)

        search = 0, jnp.ones_like(path), rescued
        _, length, lost = jax.lax.while_loop(goes_on, shortened, search)
        length = jnp.where(lost, 1.0, length)
        new = part(length)
        left, size = residual(problem, smoothing, *new)
        # Solved environments stay as they are: what one gets does not depend on its neighbours. A
        # step that refines what is solved is taken only if it does.
        better = (left <= last) | (~late & (last > NEARLY_SOLVED * last_size))
        taken = wanted & (rescued | better)
        both = (new, (left, size)), (at, (last, last_size))
        at, left = jax.tree.map(lambda x, y: jnp.where(taken, x, y), *both)
        wanted = taken & (left[0] > share * left[1])
        # Rescued are only those that are far from solved.
        wanted = wanted & ((step + 1 != settings.iterations) | (left[0] > far * left[1]))
        refined = refined + jnp.where(late & ~rescued, 1, 0)
        wanted = wanted & (refined < LAST)
        path = jnp.where(late & ~lost, path + length * (aim - path), left[0])
        fall = jnp.where(lost, fall**GENTLER, fall)
        return _Iterate(step + 1, at, left, wanted, path, fall, refined)

    def go_on(now):
        return (now.step < most) & jnp.any(now.wanted)

    speed = speeds(problem, start[0])
    unknown = jnp.full(speed.shape[2:], jnp.inf, speed.dtype)
    rest = jnp.full_like(unknown, FALL), jnp.zeros(unknown.shape, int)
    first = _Iterate(0, (start, speed), (unknown, unknown), unknown > 0, unknown, *rest)
    last = jax.lax.while_loop(go_on, improve, first)
    return RowSolution(*last.at[0], *last.left)
