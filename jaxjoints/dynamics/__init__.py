"""Dynamics at an instant and in joint coordinates: what is computed of mechanisms besides steps."""

from ..schemes.instant import Touch
from .acceleration import Accelerations, accelerations, impact
from .inverse import InverseDynamics, gravity_compensation, inverse_dynamics
from .joint_coordinates import (
    bias_forces,
    constraint_jacobian,
    coriolis_matrix,
    gravity_forces,
    mass_matrix,
    momentum_matrix,
    speeds_of,
    tree_forces,
)
from .linear import LinearModel, OperatingPoint, linear_model, operating_point
from .site import Site, site
from .tree import Branch, SpanningTree, spanning_tree

__all__ = [
    "site",
    "operating_point",
    "linear_model",
    "inverse_dynamics",
    "gravity_compensation",
    "OperatingPoint",
    "LinearModel",
    "InverseDynamics",
    "Accelerations",
    "Branch",
    "Site",
    "SpanningTree",
    "Touch",
    "accelerations",
    "bias_forces",
    "constraint_jacobian",
    "coriolis_matrix",
    "gravity_forces",
    "impact",
    "mass_matrix",
    "momentum_matrix",
    "spanning_tree",
    "speeds_of",
    "tree_forces",
]
