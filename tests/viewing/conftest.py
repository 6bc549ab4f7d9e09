"""What the tests of pages share: a browser, which starts once for each file, and two motions."""

import jax
import jax.numpy as jnp
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


@pytest.fixture(scope="session")
def runner():
    """A cart that runs 20 m along x in 2 s, and a weight that rises above it."""
    world = jj.SystemBuilder()
    world.body("cart", mass=1.0, inertia=(0.1, 0.1, 0.1), pose=(0.0, 0.0, 0.1))
    world.body("weight", mass=1.0, inertia=(0.1, 0.1, 0.1), pose=(0.0, 0.0, 1.1))
    for name, radius in (("cart", 0.1), ("weight", 0.05)):
        shapes = jj.shapes.Sphere(radius), jj.shapes.HalfSpace()
        world.contact(name, *shapes, child=name)
    system, state = world.build()
    time = jnp.linspace(0.0, 2.0, 21)
    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (21, *x.shape)), state)
    position = states.position.at[:, 0].add(10 * time[:, None])
    position = position.at[:, 2, 1].add(time / 2)
    return system, jj.replace(states, position=position, time=time)
