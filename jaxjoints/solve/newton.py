"""Newton's method for all rows at once: one linear solve, or a few where impulses are bounded.

The iteration (`iteration`) has passes of a limited number of steps, and ends early where all
environments are solved. A record of its own differentiates the solution (`derivative`).
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

    smoothing: ν [m/s or rad/s]: a stop at the distance φ pushes with the acceleration ν²/φ, so that
        gradients feel a limit before it is touched. None for sharp bounds; they compile to a
        shorter program than ν = 0
    iterations: most Newton steps of the first pass. Without bounded laws one linear solve suffices
    passes: how often the bounds of friction are computed from normal forces. Each further pass has
        one step less than the first, and the steps that earlier passes left over. Where no friction
        follows a normal force, and bodies touch in three points at most, one pass has the steps of
        all passes
    friction: "coupled": the normal force of the solution bounds friction. "two passes": the normal
        force of a solve without friction bounds it, as in ODE's dWorldStep; this solve is the first
        half of the passes
    derivative: `Implicit()`: derivative of the solution, by one more solve for each pass.
        `Unrolled()`: derivative of the iteration

    >>> from jaxjoints import Limits, SemiImplicitEuler, Slider, SystemBuilder, step
    >>> world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    >>> cart = world.body("cart", mass=2.0, inertia=(0.1, 0.1, 0.1))
    >>> _ = world.joint("rail", Slider((1.0, 0.0, 0.0)), child=cart, laws=Limits(upper=0.1))
    >>> scheme = SemiImplicitEuler(Newton(smoothing=0.1))
    >>> _, info = step(*world.build(), dt=1e-3, scheme=scheme)
    >>> print(info.limit_force.round(3))  # -m ν²/φ, before the stop is touched
    [-0.2]
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
        """Settings of the iteration for a problem."""
        coupled = self.friction == "coupled" or not problem.follows
        asked = Settings(self.iterations, self.passes, coupled)
        # Passes bound friction, and anchor contacts that stand on bodies.
        if problem.follows or problem.structure.standing.any():
            return asked
        return Settings(asked.limits[-1], 1, True)

    def at_solution(self, remembers: bool) -> "AtSolution | None":
        return AtSolution(self) if self.derivative.of_solution and not remembers else None


@struct
class AtSolution(Solver):
    """`Newton` without iteration, where the start is the solution: its derivative alone."""

    newton: Newton
    by_bodies: ClassVar[bool] = True

    @property
    def smoothing(self) -> Array | float | None:
        """The smoothing of `newton`."""
        return self.newton.smoothing

    def solve(self, problem: RowProblem, start: Impulses | None = None) -> RowSolution:
        """The start, with the derivative of the solution; the residual is not computed."""
        if not problem.bounds or start is None:
            return self.newton.solve(problem)
        problem = regularized(problem)
        settings, smoothing = self.newton.settings(problem), self.newton.smoothing_of(problem)
        return known_solution(settings, problem, smoothing, start)
