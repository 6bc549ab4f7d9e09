"""One joint in joint space: its configuration, velocities, subspaces and bounds."""

from .configurations import BodySpeeds, SineCosine, UnitQuaternion
from .view import JointSpace

__all__ = ["BodySpeeds", "JointSpace", "SineCosine", "UnitQuaternion"]
