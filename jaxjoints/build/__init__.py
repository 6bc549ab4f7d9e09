"""Building a system; importing this gives `System` its methods `state` and `control`."""

from . import changes as changes
from . import controls as controls
from . import start as start
