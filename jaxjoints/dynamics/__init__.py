"""Dynamics at an instant, in coordinates: what multibody libraries compute besides steps."""

from ..schemes.instant import Touch
from .acceleration import Accelerations, accelerations, impact

__all__ = ["Accelerations", "Touch", "accelerations", "impact"]
