"""How a solution is differentiated.

By the implicit function theorem, the derivative of the solution of a pass is the derivative of one
more Newton step at this solution, with the matrix held fixed. Iterates are constants. The
derivative continues to the next pass through the inputs of that pass (`Given`). It costs one solve
for each pass, and only where a derivative is asked for.
"""

from abc import ABC, abstractmethod
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from ..algebra.compiler import batch_in_front, linear_loop
from ..algebra.pytree import struct
from .bounds import value
from .iteration import (
    Ends,
    Given,
    Settings,
    begun,
    completed,
    first_given,
    iterated,
    laws_of,
    next_given,
)
from .newton_step import newton_step
from .problem import (
    Impulses,
    RowProblem,
    RowSolution,
    coordinate_rows,
    excess,
    residual,
    speeds,
)


class Derivative(ABC):
    """How the impulses of bounded laws are differentiated: `Implicit` or `Unrolled`."""

    @abstractmethod
    def ends(
        self,
        settings: Settings,
        problem: RowProblem,
        smoothing: Array | None,
        given: Given,
        start: Impulses,
    ) -> Ends:
        """The ends of all passes, of Newton steps from `start`."""

    @property
    def of_solution(self) -> bool:
        """Whether the derivative depends on the solution alone, not on the way to it."""
        return False

    def solved(
        self, settings: Settings, problem: RowProblem, smoothing: Array | None, start: Impulses
    ) -> RowSolution:
        """The solution of a regularized problem; start: the impulses of the last step."""
        start = problem.packed(start)
        given = first_given(settings, problem, smoothing, start)
        ends = self.ends(settings, problem, smoothing, given, stop_gradient(start))
        last = jax.tree.map(lambda x: x[-1], ends.points)
        laws = laws_of(settings, problem, smoothing, ends.given)
        at = last.impulse, value(laws, last.positions)
        left = residual(problem, laws, at, speeds(problem, last.impulse))
        bounded = laws.rows.unpacked(at[1])
        beyond = excess(problem, at)
        return RowSolution(last.impulse, bounded, *left, excess=beyond, iterations=ends.steps)


@struct
class Implicit(Derivative):
    """The derivative of the solution, by the implicit function theorem: one more linear solve.

    Second derivatives work forward over reverse (`jax.hessian`). Reverse over reverse through a
    rollout with bounds needs `Unrolled`.

    >>> import jaxjoints as jj
    >>> world = jj.SystemBuilder(gravity=(0.0, 0.0, 0.0))
    >>> cart = world.body("cart", mass=2.0, inertia=(0.1, 0.1, 0.1))
    >>> _ = world.joint("rail", jj.Slider((1.0, 0.0, 0.0)), child=cart, laws=jj.Limits(upper=0.0))
    >>> system, state = world.build()
    >>> scheme = jj.SemiImplicitEuler(jj.Newton(derivative=Implicit()))
    >>> def stop(effort):
    ...     control = jj.Control(effort=effort[None])
    ...     return jj.step(system, state, control, dt=1e-3, scheme=scheme)[1].limit_force[0]
    >>> print(jax.grad(stop)(6.0).round(6))  # the stop bears all of the push
    -1.0
    """

    def ends(
        self,
        settings: Settings,
        problem: RowProblem,
        smoothing: Array | None,
        given: Given,
        start: Impulses,
    ) -> Ends:
        return _ends(settings, problem, smoothing, given, start)

    @property
    def of_solution(self) -> bool:
        return True


@struct
class Unrolled(Derivative):
    """The derivative of the iteration: all steps are taken and differentiated.

    >>> from jaxjoints import Limits, Newton, SemiImplicitEuler, Slider, SystemBuilder, step
    >>> world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    >>> cart = world.body("cart", mass=2.0, inertia=(0.1, 0.1, 0.1))
    >>> _ = world.joint("rail", Slider((1.0, 0.0, 0.0)), child=cart, laws=Limits(upper=0.5))
    >>> system, state = world.build()
    >>> def stop(ν):
    ...     scheme = SemiImplicitEuler(Newton(smoothing=ν, derivative=Unrolled()))
    ...     return step(system, state, dt=1e-4, scheme=scheme)[1].limit_force[0]
    >>> print(jax.grad(stop)(0.1).round(4))  # of -m ν²/φ, at the distance φ = 0.5 m
    -0.8
    """

    def ends(
        self,
        settings: Settings,
        problem: RowProblem,
        smoothing: Array | None,
        given: Given,
        start: Impulses,
    ) -> Ends:
        return iterated(settings, problem, smoothing, given, start, every=True)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _ends(
    settings: Settings, problem: RowProblem, smoothing: Array | None, given: Given, start: Impulses
) -> Ends:
    """Newton steps until all environments have ended their passes."""
    return batch_in_front(iterated(settings, problem, smoothing, given, start))


@_ends.defjvp
def _ends_jvp(settings: Settings, primals: tuple, tangents: tuple) -> tuple:
    """The start of the iteration enters the derivative through `given` alone."""
    ends = batch_in_front(completed(settings, *primals[:3], _ends(settings, *primals)))
    return ends, _slopes(settings, ends, primals[:3], tangents[:3])


def known_solution(
    settings: Settings, problem: RowProblem, smoothing: Array | None, at: Impulses
) -> RowSolution:
    """Impulses `at` that solve a problem of one pass, with the derivative of `Implicit`.

    Nothing is iterated, and the residual is not computed.
    """
    at = problem.packed(at)
    given = first_given(settings, problem, smoothing, at)
    ends = _known_ends(settings, problem, smoothing, given, at)
    laws = laws_of(settings, problem, smoothing, given)
    last = jax.tree.map(lambda x: x[-1], ends.points)
    bounded = laws.rows.unpacked(value(laws, last.positions))
    return RowSolution(last.impulse, bounded, ends.steps, ends.steps)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _known_ends(
    settings: Settings, problem: RowProblem, smoothing: Array | None, given: Given, at: Impulses
) -> Ends:
    """The end of one pass whose impulses are known."""
    laws = laws_of(settings, problem, smoothing, given)
    point = begun(laws, problem, at, speeds(problem, at[0]))
    steps = jnp.zeros(problem.rate.shape[2:], problem.rate.dtype)
    return Ends(jax.tree.map(lambda x: x[None], point), given, steps, steps)


@_known_ends.defjvp
def _known_jvp(settings: Settings, primals: tuple, tangents: tuple) -> tuple:
    ends = _known_ends(settings, *primals)
    return ends, _slopes(settings, ends, primals[:3], tangents[:3])


def _slopes(settings: Settings, ends: Ends, primals: tuple, tangents: tuple) -> Ends:
    """Derivatives of the ends of all passes, and of the inputs of the last pass: at each end the
    derivative of one more Newton step.
    """
    problem, smoothing, first = primals

    def one(tangents, carry, pass_):
        (given, change), (point, number) = carry, pass_
        fixed = problem, laws_of(settings, problem, smoothing, given)

        def once_more(problem, smoothing, given):
            moving = problem, laws_of(settings, problem, smoothing, given)
            return newton_step(moving, fixed, point, speeds(problem, point.impulse))

        def following(problem, smoothing, given, point):
            laws = laws_of(settings, problem, smoothing, given)
            Λ = coordinate_rows(problem, point.impulse)
            found = number >= ends.number
            return next_given(settings, given, Λ, value(laws, point.positions), number, found)

        at, towards = (problem, smoothing, given), (*tangents[:2], change)
        _, slope = jax.jvp(once_more, at, towards)
        after = jax.jvp(following, (*at, point), (*towards, slope))
        return after, (slope, change)

    rest = jax.tree.map(jnp.zeros_like, (ends.number, ends.steps))
    if settings.passes == 1:
        point = jax.tree.map(lambda x: x[0], ends.points)
        _, (slope, change) = one(tangents, (first, tangents[2]), (point, 0))
        return Ends(jax.tree.map(lambda x: x[None], slope), change, *rest)
    numbers = jnp.arange(settings.passes, dtype=ends.number.dtype)

    def all_passes(tangents):
        carry = first, tangents[2]
        return jax.lax.scan(partial(one, tangents), carry, (ends.points, numbers))[1]

    slopes, changes = linear_loop(all_passes, tangents)
    return Ends(slopes, jax.tree.map(lambda x: x[-1], changes), *rest)
