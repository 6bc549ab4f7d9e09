"""Derivatives of a step through every law of a contact against finite differences, one line for
each: by all numbers of the laws, the ball's radius, and where the ball is and how it moves.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxjoints as jj
from support.differences import MOTION, central, pushed

DT = 1e-2
RADIUS, MASS = 0.3, 2.0
MOST = 29  # numbers of a case
SCHEME = jj.SemiImplicitEuler(joints="rows", gyroscopic="none")
RESIDUAL = 1e-9  # [m/s], far below what counts in differences of 1e-4
# Surfaces that anticipate and resist rolling; of ODE's kind; springy. Like records make one group.
BOUNCE = {"restitution": 0.0, "bounce_speed": 0.5, "normal_speed": 0.0}
HARD = BOUNCE | {"rolling": 1e-3, "spinning": 1e-3, "anticipate": True}
ODE = BOUNCE | {"erp": 0.3, "cfm": 5e-3, "max_correction": 10.0, "anticipate": False}
SOFT = {"stiffness": 4000.0, "damping": 30.0, "anticipate": True}
# Surface, height of the ball's lowest point, its velocity and angular velocity.
FALLING, SPINNING = (3.0, -1.5, -1.0), (2.0, 5.0, -4.0)
CREEPING, TURNING = (0.1, 0.05, -0.2), (0.1, -0.2, 0.1)
CASES = {
    "slides and rolls against resistance": (
        HARD | {"friction": (0.2, 0.3), "rolling": 0.01, "spinning": 0.02},
        (0.004, FALLING, SPINNING),
    ),
    "grips a belt with slip": (
        HARD | {"friction": 0.9, "slip": (0.03, 0.05), "surface_speed": (0.1, -0.05)},
        (0.001, CREEPING, TURNING),
    ),
    "bounces": (
        HARD | {"friction": 0.2, "restitution": 0.6, "normal_speed": 0.1},
        (0.004, FALLING, SPINNING),
    ),
    "bounces as in ODE": (
        ODE | {"friction": 0.2, "restitution": 0.6},
        (-0.01, FALLING, SPINNING),
    ),
    "slides in a box": (
        ODE | {"friction_force": (3.0, 4.0), "normal_speed": 0.2},
        (-0.01, (3.0, -1.5, 0.1), SPINNING),
    ),
    "is moved out as fast as may be": (
        ODE | {"friction": 0.2, "max_correction": 0.2},
        (-0.01, (3.0, -1.5, 0.1), SPINNING),
    ),
    "grips a soft ground": (
        SOFT | {"friction": 0.9, "slip": 0.02},
        (-0.01, CREEPING, TURNING),
    ),
    "slides on a soft ground": (
        SOFT | {"friction": 0.2},
        (-0.01, FALLING, SPINNING),
    ),
}


@cache
def built():
    """A ball for each case, side by side."""
    world = jj.SystemBuilder(gravity=(0.3, -0.2, -9.81))
    for i, (name, (surface, (height, velocity, omega))) in enumerate(CASES.items()):
        world.body(
            name,
            mass=MASS,
            inertia=(0.08, 0.09, 0.1),
            pose=(0.0, 3.0 * i, RADIUS + height),
            velocity=(*velocity, *omega),
        )
        world.contact(name, jj.shapes.Sphere(RADIUS), jj.shapes.HalfSpace(), child=name, **surface)
    return world.build()


def numbers(system, name):
    """Radius and laws of a case as one array, and back."""
    contact = system.contact(name)
    return ravel_pytree((contact.geometry, contact.laws))


def moved(change):
    """Twists of all balls after a step, and the residual: the i-th number of each case grown by
    change[i], and all balls pushed by the rest.
    """
    start, state = built()
    system = start
    for name in CASES:
        values, rebuild = numbers(start, name)
        geometry, laws = rebuild(values * (1 + change[: len(values)]))
        system = system.with_contact(name, geometry=geometry, laws=laws)
    final, info = jj.step(system, pushed(state, change[MOST:]), dt=DT, scheme=SCHEME)
    return jnp.append(jnp.concatenate([final.velocity, final.omega]).T.ravel(), info.residual)


@cache
def slopes():
    """By central differences and by reverse mode, (numbers and motion, cases, 6) each."""
    system, _ = built()  # its checks are of numbers, not of tracers
    assert max(len(numbers(system, name)[0]) for name in CASES) <= MOST
    values, reverse = jax.jit(jax.vmap(moved)), jax.jit(jax.jacrev(moved))
    at = np.zeros(MOST + MOTION)
    assert values(at[None])[0, -1] < RESIDUAL
    expected = central(values, at, np.full(at.size, 1e-4))
    found = np.asarray(reverse(jnp.asarray(at))).T
    return [x[:, :-1].reshape(at.size, len(CASES), 6) for x in (expected, found)]


pytestmark = pytest.mark.filterwarnings("ignore:.*starts at .* outside its:UserWarning")


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_derivatives_of_a_contact_are_those_of_finite_differences(name):
    expected, found = (x[:, list(CASES).index(name)] for x in slopes())
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_every_number_of_the_laws_counts_in_a_case():
    system, _ = built()
    counts = set()
    for slope, name in zip(np.abs(slopes()[0]).max(axis=2).T, CASES, strict=True):
        contact = system.contact(name)
        fields = jax.tree_util.tree_leaves_with_path((contact.geometry, contact.laws))
        for (path, _), size in zip(fields, slope, strict=False):
            counts |= {path[-1].name} if size > 1e-3 else set()
    normal = {"erp", "cfm", "stiffness", "damping", "max_correction", "restitution", "speed"}
    assert counts == normal | {"radius", "friction", "friction_force", "slip"}
