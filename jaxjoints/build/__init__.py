"""Building a system; importing this gives `System` its methods `state` and `control`."""

from . import controls as controls
from . import start as start
