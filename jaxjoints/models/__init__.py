"""Model files: robots read from URDF, shapes to look at."""

from . import geometry
from .errors import LoadError, LoadWarning
from .mjcf import load_mjcf
from .model import Model
from .urdf import load_urdf
from .xml import FileLimits

__all__ = ["FileLimits", "LoadError", "LoadWarning", "Model", "geometry", "load_mjcf", "load_urdf"]
