"""Parameters of a mechanism from recorded motion, each with its standard deviation."""

from ..algebra.progress import Progress
from ..build.numbers import BodyInertia
from .fit import Fit, fit
from .motion import Motion, pose_residuals
from .recording import Recording
from .search import Identified, identify
from .unknowns import Direction, Inertial, Orientation, Positive, Unknown

__all__ = [
    "BodyInertia",
    "Direction",
    "Fit",
    "Identified",
    "Inertial",
    "Motion",
    "Orientation",
    "Positive",
    "Progress",
    "Recording",
    "Unknown",
    "fit",
    "identify",
    "pose_residuals",
]
