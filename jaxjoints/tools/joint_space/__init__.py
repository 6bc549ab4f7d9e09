"""One joint in joint space, as RigidBodyDynamics.jl sees it: its subspaces and configurations."""

from .configurations import BodySpeeds, SineCosine, UnitQuaternion
from .view import JointSpace

__all__ = ["BodySpeeds", "JointSpace", "SineCosine", "UnitQuaternion"]
