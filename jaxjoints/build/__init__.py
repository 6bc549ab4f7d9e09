"""Building a system; importing this gives `System` its methods by name, such as `state`."""

from . import changes as changes
from . import controls as controls
from . import numbers as numbers
from . import start as start
