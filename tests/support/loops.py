"""Mechanisms with closed loops in motion, at velocities that all joints allow."""

from functools import partial

import numpy as np

import jaxjoints as jj
from support import linkages, mechanisms

FASTEST = 5.0  # rad/s


def jansen_leg():
    """Jansen's leg, in which each bar has the mass and the moments of all others."""
    bodies, ground, sketch = linkages.jansen_leg()
    return linkages.linkage(bodies, ground, sketch)


def stewart_platform():
    """The platform of `linkages` without its measures."""
    return linkages.stewart_platform()[:2]


def bennett_linkage():
    """The linkage of `linkages` without its measures."""
    return linkages.bennett_linkage()[0]


# How each is built, and the coordinates at which it is assembled.
LOOPS = {
    "four-bar": (mechanisms.four_bar, {"A": 1.0}),
    "Stewart platform": (stewart_platform, {}),
    "Jansen's leg": (jansen_leg, {"O crank": 0.7}),
    "Bennett's linkage": (bennett_linkage, {"0": 0.9}),
    "Cassie's leg": (linkages.cassie_leg, {"hip": 0.2, "knee": -0.3}),
}


def in_motion(name, **options):
    """System and state of one of `LOOPS`, whose bodies turn at up to `FASTEST`.

    options: of how it is built
    """
    build, q = LOOPS[name]
    system, state = partial(build, **options)()
    state, _ = jj.assemble(system, state, q=q)
    random, shape = np.random.default_rng(1), state.omega.shape
    pushed = {"velocity": random.normal(size=shape), "omega": 3 * random.normal(size=shape)}
    state = jj.project(system, jj.replace(state, **pushed), velocities=True)
    faster = FASTEST / np.abs(state.omega).max()
    return system, jj.replace(state, velocity=faster * state.velocity, omega=faster * state.omega)
