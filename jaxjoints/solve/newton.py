"""Newton's method for all rows at once: one linear solve, or a few where impulses are bounded.

The iteration (`iteration`) has a fixed number of steps, in passes, and ends early where all
environments are solved. How the solution is differentiated is a record of its own (`derivative`).
"""

from typing import ClassVar, Literal, get_args

import jax.numpy as jnp
from jax import Array

from ..algebra.options import check_choice, check_count, check_kind, check_not_negative
from ..algebra.pytree import static, struct
from .derivative import Derivative, Implicit, known_solution
from .iteration import Settings
from .linear import solve_linear
from .problem import (
    Impulses,
    RowProblem,
    RowSolution,
    Solver,
    at_rest,
    no_solution,
    of_bounds,
    regularized,
    residual,
    speeds,
)

Friction = Literal["coupled", "two passes"]


@struct
class Newton(Solver):
    """All rows at once by Newton's method.

    smoothing: ν [m/s or rad/s]: bounded laws act as barriers of acceleration ν²/φ, so that
        gradients feel a limit before it is touched. None for sharp bounds, which are faster than
        their limit, 0
    iterations: Newton steps of the first pass, at most; one linear solve where nothing is bounded
    passes: how often the bounds of friction are found anew from normal forces. Each further pass
        has one step less than the first, and those that others left over. Where no friction follows
        a normal force there is one pass, with the steps of all
    friction: "coupled" bounds friction by the normal force of the solution; "two passes" by that of
        a solve without friction, as ODE's dWorldStep does, which takes half of the passes
    derivative: `Implicit()`, that of the solution, for the cost of one more solve a pass; or
        `Unrolled()`, that of the iteration
    """

    smoothing: Array | float | None = None
    iterations: int = static(default=8)
    passes: int = static(default=3)
    friction: Friction = static(default="coupled")
    derivative: Derivative = Implicit()
    by_bodies: ClassVar[bool] = True

    def __post_init__(self):
        if self.smoothing is not None:
            check_not_negative("Newton", "smoothing", self.smoothing)
        check_count("Newton", "iterations", self.iterations, 1)
        check_choice("Newton", "friction", self.friction, get_args(Friction))
        check_kind("Newton", "derivative", self.derivative, Derivative, "Implicit()")
        check_count("Newton", "passes", self.passes, 2 if self.friction == "two passes" else 1)

    def solve(self, problem: RowProblem, start: Impulses | None = None) -> RowSolution:
        """See `Solver.solve`."""
        if not problem.structure.nodes:
            return no_solution(problem)
        problem = regularized(problem)
        if not problem.bounds:
            impulse, factors = solve_linear(problem)
            at = impulse, of_bounds([])
            remainder = residual(problem, None, at, speeds(problem, impulse))
            return RowSolution(*at, *remainder, factors)
        start = at_rest(problem) if start is None else start
        smoothing = self.smoothing_of(problem)
        return self.derivative.solved(self.settings(problem), problem, smoothing, start)

    def smoothing_of(self, problem: RowProblem) -> Array | None:
        """The smoothing in the precision of a problem."""
        ν = self.smoothing
        return None if ν is None else jnp.asarray(ν, problem.rate.dtype)

    def settings(self, problem: RowProblem) -> Settings:
        """Of the iteration for a problem."""
        asked = Settings(self.iterations, self.passes, self.friction == "coupled")
        return asked if problem.follows else Settings(asked.limits[-1], 1, True)

    def at_solution(self, follows: bool) -> "AtSolution | None":
        """See `Solver.at_solution`."""
        return AtSolution(self) if self.derivative.of_solution and not follows else None


@struct
class AtSolution(Solver):
    """Newton's derivative where the start is the solution: there is nothing left to iterate."""

    newton: Newton
    by_bodies: ClassVar[bool] = True

    @property
    def smoothing(self) -> Array | float | None:
        """See `Solver`."""
        return self.newton.smoothing

    def solve(self, problem: RowProblem, start: Impulses | None = None) -> RowSolution:
        """The start, with the derivative of the solution; its residual is not looked for."""
        if not problem.bounds or start is None:
            return self.newton.solve(problem)
        problem = regularized(problem)
        settings, smoothing = self.newton.settings(problem), self.newton.smoothing_of(problem)
        return known_solution(settings, problem, smoothing, start)
