"""The knots of a joint's function, found from poses by scipy's spline through other heights."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from scipy.interpolate import CubicSpline

import jaxjoints as jj
from jaxjoints.couplings.functions import Constant, Linear, Spline
from jaxjoints.identification import Unknown, identify

KNOTS = np.linspace(0.0, 2.0, 5)
TRUTH = np.array([0.01, 0.12, 0.05, -0.1, 0.08])
HEIGHTS = "joint.thread.coupling.translations.2.values"
NOISE = 1e-3  # [m], [rad]
EXACT = 1e-9


def thread():
    """A nut that turns about z and rises by a spline of the angle, of which nothing is known."""
    world = jj.SystemBuilder()
    world.body("nut", mass=2.0, inertia=(0.05, 0.05, 0.05))
    none = Constant(0.0)
    uneven = jj.FunctionDriven(
        dof=1,
        rotations=(none, none, Linear([1.0])),
        translations=(none, none, Spline(KNOTS, np.zeros(5))),
    )
    world.joint("thread", uneven, child="nut")
    return world.build()[0]


def residual(system, recorded, values, follow):
    """Recorded heights less those of the joint at recorded angles, over their noise."""
    angles, heights = recorded

    def of_one(numbers):
        coupling = system.with_numbers({HEIGHTS: numbers}).joint("thread").coupling
        return jax.vmap(lambda q: coupling.pose(q[None]).p[2])(angles) - heights

    return jax.vmap(of_one, in_axes=-1, out_axes=-1)(values[HEIGHTS]) / NOISE


def found_from(angles):
    heights = CubicSpline(KNOTS, TRUTH, bc_type="natural")(angles)
    recorded = jnp.asarray(angles), jnp.asarray(heights)
    unknowns = {HEIGHTS: Unknown(np.full(5, -0.2), np.full(5, 0.2))}
    options = {"key": jax.random.key(0), "starts": 2, "iterations": 1, "polish": 8}
    return identify(Partial(residual, thread(), recorded), unknowns, **options)


def test_knots_are_found_from_poses():
    found = found_from(np.linspace(0.0, 2.0, 40))
    np.testing.assert_allclose(found.values[HEIGHTS], TRUTH, atol=EXACT)
    assert not found.left_open


def test_a_knot_that_the_motion_does_not_pass_is_left_open():
    found = found_from(np.linspace(0.0, 1.0, 40))
    np.testing.assert_allclose(found.values[HEIGHTS][:3], TRUTH[:3], atol=1e-4)
    assert len(found.left_open) == 1 and "values[4]" in found.left_open[0]
