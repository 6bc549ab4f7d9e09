"""Policies by gradients through the simulator, beside a baseline without gradients."""

from .evolution import evolution
from .measures import Agreement, agreement, earned
from .network import evaluated, gaussian, mean, network, sampled
from .policy_gradient import Learned, short_horizon

__all__ = [
    "Agreement",
    "Learned",
    "agreement",
    "earned",
    "evaluated",
    "evolution",
    "gaussian",
    "mean",
    "network",
    "sampled",
    "short_horizon",
]
