"""Trajectory optimization: controls of least cost by three methods over one problem, and MPC."""

from .descent import shooting
from .plan import Outcome, Plan
from .problem import Knot, Problem
from .receding import Drive, receding_horizon
from .shots import ilqr, multiple_shooting

__all__ = [
    "Drive",
    "Knot",
    "Outcome",
    "Plan",
    "Problem",
    "ilqr",
    "multiple_shooting",
    "receding_horizon",
    "shooting",
]
