"""What bad input must get: an error or a warning that holds certain words."""

import re

import pytest

from jaxjoints import Hinge, SystemBuilder

SOLID = {"mass": 1.0, "inertia": (0.1, 0.1, 0.1)}


def refused(*words):
    """A ValueError whose message holds all the words."""
    return pytest.raises(ValueError, match=_all_of(words))


def warned(*words):
    return pytest.warns(UserWarning, match=_all_of(words))


def _all_of(words):
    return "(?s)" + "".join(f"(?=.*{re.escape(word)})" for word in words)


def world_with_arm(**options):
    world = SystemBuilder()
    world.body("arm", **SOLID | options)
    return world


def hinge_on_arm(coupling=None, **options):
    """A joint 'elbow' of a body 'arm'."""
    world = world_with_arm()
    world.joint("elbow", Hinge() if coupling is None else coupling, child="arm", **options)
    return world
