"""Model files: mechanisms from URDF and MJCF, systems in files, shapes to look at."""

from . import geometry
from .archive import load, save
from .errors import LoadError, LoadWarning
from .export import to_urdf
from .mjcf import load_mjcf
from .model import Model
from .urdf import load_urdf
from .xml import FileLimits

__all__ = [
    "load_urdf",
    "load_mjcf",
    "Model",
    "to_urdf",
    "save",
    "load",
    "geometry",
    "FileLimits",
    "LoadError",
    "LoadWarning",
]
