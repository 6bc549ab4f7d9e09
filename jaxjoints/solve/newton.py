"""Newton's method for all rows at once: one linear solve, or a few where impulses are bounded.

The iteration (`iteration`) ends when all environments are solved to rounding, at the latest after a
fixed number of steps; those that are far from it then get as many more, along a path of falling
smoothing. How the solution is differentiated is a record of its own (`derivative`).
"""

from functools import partial
from typing import ClassVar, Literal, get_args

import jax.numpy as jnp
from jax import Array

from ..algebra.options import check_choice, check_count, check_kind, check_not_negative
from ..algebra.pytree import replace, static, struct
from .bounds import widened
from .derivative import Derivative, Implicit, known_solution
from .iteration import Settings
from .linear import solve_linear
from .problem import (
    Impulses,
    RowProblem,
    RowSolution,
    Solver,
    anchored,
    at_rest,
    coordinate_rows,
    no_solution,
    regularized,
    residual,
    speeds,
    split,
)

Friction = Literal["coupled", "two passes"]


@struct
class Newton(Solver):
    """All rows at once by Newton's method.

    smoothing: ν [m/s or rad/s]: bounded laws act as barriers of acceleration ν²/φ, so that
        gradients feel a limit before it is touched; 0 for sharp bounds
    iterations: Newton steps, at most; one linear solve where nothing is bounded
    rescue: further steps, at most, for environments that are far from solved by then: Newton's
        method can go round in circles, and along a path of falling smoothing it hardly ever does
    friction: "coupled" bounds friction by the normal force of the solution; "two passes" by that of
        a solve without friction, as ODE's dWorldStep does
    derivative: `Implicit()`, that of the solution, for the cost of one more solve; or `Unrolled()`,
        that of the iteration
    """

    smoothing: Array | float = 0.0
    iterations: int = static(default=6)
    rescue: int = static(default=100)
    friction: Friction = static(default="coupled")
    derivative: Derivative = Implicit()
    by_bodies: ClassVar[bool] = True

    def __post_init__(self):
        check_not_negative("Newton", "smoothing", self.smoothing)
        check_count("Newton", "iterations", self.iterations, 1)
        check_choice("Newton", "friction", self.friction, get_args(Friction))
        check_kind("Newton", "derivative", self.derivative, Derivative, "Implicit()")
        check_count("Newton", "rescue", self.rescue, 0)

    def solve(self, problem: RowProblem, start: Impulses | None = None) -> RowSolution:
        """See `Solver.solve`."""
        if not problem.structure.nodes:
            return no_solution(problem)
        problem = regularized(problem)
        smoothing = jnp.asarray(self.smoothing, problem.rate.dtype)
        if not problem.bounds:
            impulse, factors = solve_linear(problem)
            at = impulse, ()
            remainder = residual(problem, smoothing, at, speeds(problem, impulse))
            return RowSolution(*at, *remainder, factors)
        start = at_rest(problem) if start is None else start
        solved = partial(self._solved, smoothing=smoothing, start=start, follows=problem.follows)
        if problem.follows and self.friction == "two passes":
            problem = _with_friction_of(problem, solved(_without_friction(problem)).impulse)
        return solved(problem)

    def _solved(
        self, problem: RowProblem, smoothing: Array, start: Impulses, follows: bool
    ) -> RowSolution:
        """The solution of a regularized problem.

        follows: whether impulses bound others, here or in the problem of which this is a pass
        """
        settings = Settings(self.iterations, self.rescue)
        if not follows or problem.structure.independent:
            return self.derivative.solved(settings, problem, smoothing, start)
        # What an impulse bounds depends on how redundant rows share it.
        problem, given = split(problem)
        first = self.derivative.solved(settings, problem, smoothing, start)
        problem, start = anchored(problem, given, first.bounded), (first.impulse, first.bounded)
        second = self.derivative.solved(settings, problem, smoothing, start)
        return replace(second, residual=jnp.maximum(first.residual, second.residual))

    def at_solution(self) -> "AtSolution | None":
        """See `Solver.at_solution`."""
        known = self.derivative.of_solution and self.friction == "coupled"
        return AtSolution(self) if known else None


@struct
class AtSolution(Solver):
    """Newton's derivative where the start is the solution: there is nothing left to iterate."""

    newton: Newton
    by_bodies: ClassVar[bool] = True

    @property
    def smoothing(self) -> Array | float:
        """See `Solver`."""
        return self.newton.smoothing

    def solve(self, problem: RowProblem, start: Impulses | None = None) -> RowSolution:
        """The start, with the derivative of the solution; its residual is not looked for."""
        if not problem.bounds or start is None:
            return self.newton.solve(problem)
        problem = regularized(problem)
        smoothing = jnp.asarray(self.smoothing, problem.rate.dtype)
        if problem.follows and not problem.structure.independent:
            # Of the two solves the start is the second's solution, and near that of the first.
            newton = self.newton
            settings = Settings(newton.iterations, newton.rescue)
            problem, given = split(problem)
            first = newton.derivative.solved(settings, problem, smoothing, start)
            problem = anchored(problem, given, first.bounded)
        return known_solution(problem, smoothing, start)


def _without_friction(problem: RowProblem) -> RowProblem:
    """The problem in which bounds that follow an impulse leave no room."""

    def closed(bound):
        if bound.mu is None:
            return bound
        room = jnp.where(bound.mu > 0, 0.0, 1.0)
        return replace(
            bound, lower=room * bound.lower, upper=room * bound.upper, mu=None, normal=()
        )

    return replace(problem, bounds=tuple(closed(bound) for bound in problem.bounds))


def _with_friction_of(problem: RowProblem, impulse: Array) -> RowProblem:
    """The problem whose friction is bounded by given impulses, not by its own."""
    Λ = coordinate_rows(problem, impulse)
    bounds = (replace(widened(b, Λ), mu=None, normal=()) for b in problem.bounds)
    return replace(problem, bounds=tuple(bounds))
