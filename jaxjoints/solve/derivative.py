"""How a solution is differentiated, whatever steps led to it.

For the implicit function theorem the iterates are constants: the derivative of one more Newton
step, taken at the solution with the matrix held fixed, is that of the solution. It costs one solve,
and only where a derivative is asked for.
"""

from abc import ABC, abstractmethod
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from ..algebra.pytree import struct
from .iteration import Settings, iterated
from .newton_step import newton_step
from .problem import Impulses, RowProblem, RowSolution, residual, speeds


class Derivative(ABC):
    """How the impulses of bounded laws are differentiated: `Implicit` or `Unrolled`."""

    @abstractmethod
    def solved(
        self, settings: Settings, problem: RowProblem, smoothing: Array, start: Impulses
    ) -> RowSolution:
        """The solution of a regularized problem by Newton steps from `start`."""

    @property
    def of_solution(self) -> bool:
        """Whether the derivative depends on the solution alone, not on the way to it."""
        return False


@struct
class Implicit(Derivative):
    """The derivative of the solution, by the implicit function theorem: one more linear solve.

    The second order forward over reverse (`jax.hessian`) works; reverse over reverse through a
    rollout with bounds needs `Unrolled`.
    """

    def solved(
        self, settings: Settings, problem: RowProblem, smoothing: Array, start: Impulses
    ) -> RowSolution:
        """See `Derivative.solved`."""
        return _solved(settings, problem, smoothing, start)

    @property
    def of_solution(self) -> bool:
        """See `Derivative.of_solution`."""
        return True


@struct
class Unrolled(Derivative):
    """The derivative of the iteration, all of whose steps are then taken and differentiated."""

    def solved(
        self, settings: Settings, problem: RowProblem, smoothing: Array, start: Impulses
    ) -> RowSolution:
        """See `Derivative.solved`."""
        system = problem, smoothing

        def improve(at, _):
            return newton_step(system, system, at, speeds(problem, at[0])), None

        at, _ = jax.lax.scan(improve, stop_gradient(start), None, length=settings.iterations)
        return RowSolution(*at, *residual(problem, smoothing, at, speeds(problem, at[0])))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _solved(
    settings: Settings, problem: RowProblem, smoothing: Array, start: Impulses
) -> RowSolution:
    """Newton steps until all environments are solved."""
    return iterated(settings, problem, smoothing, start)


@_solved.defjvp
def _solved_jvp(settings: Settings, primals: tuple, tangents: tuple) -> tuple:
    """Where the iteration began has no part in the derivative."""
    solution = _solved(settings, *primals)
    return solution, _slope(solution, primals[:2], tangents[:2])


@jax.custom_jvp
def known_solution(problem: RowProblem, smoothing: Array, at: Impulses) -> RowSolution:
    """Impulses `at` that are known to solve a problem, with the derivative of `Implicit`.

    Nothing is iterated, and the residual is not looked for.
    """
    unknown = jnp.zeros(problem.rate.shape[2:], problem.rate.dtype)
    return RowSolution(*at, unknown, unknown)


@known_solution.defjvp
def _known_jvp(primals: tuple, tangents: tuple) -> tuple:
    solution = known_solution(*primals)
    return solution, _slope(solution, primals[:2], tangents[:2])


def _slope(
    solution: RowSolution, system: tuple[RowProblem, Array], tangents: tuple[RowProblem, Array]
) -> RowSolution:
    """Derivative of the implicit function: that of one Newton step more."""
    at = solution.impulse, solution.bounded

    def once_more(*moving):
        return newton_step(moving, system, at, speeds(moving[0], solution.impulse))

    impulse, bounded = jax.jvp(once_more, system, tangents)[1]
    constant = jnp.zeros_like(solution.residual)
    return RowSolution(impulse, bounded, constant, constant)
