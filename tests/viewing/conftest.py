"""What the tests of pages share: a browser, which starts once for each file, and two motions."""

import pytest

import jaxjoints as jj
from support.browser import browser
from support.mechanisms import four_bar, pendulum
from support.motions import moving

__all__ = ["browser"]


@pytest.fixture(scope="session")
def swing():
    system, state = pendulum(q=0.5, laws=[jj.Limits(lower=-0.2, upper=0.6)])
    return system, moving(system, state)


@pytest.fixture(scope="session")
def four():
    """A four-bar in three environments."""
    system, state = four_bar()
    return system, moving(system, jj.replicate(state, 3))
