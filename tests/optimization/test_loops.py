"""Controls of a closed loop: a four-bar is swung to another pose by its crank, by `ilqr`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import joint_errors
from jaxjoints.optimization import Problem, ilqr
from jaxjoints.optimization.linearization import adjoint, expanded_about
from jaxjoints.optimization.path import no_multipliers, over_batch, simulated, valued
from jaxjoints.optimization.problem import prepared
from support import mechanisms

HORIZON, DT, GOAL = 10, 0.01, 1.4
# Errors of joints, which the linear model does not know, after two projections of each step.
LINEAR, CLOSED = 1e-4, 1e-7


def effort(knot, u):
    return 1e-3 * jnp.sum(u**2)


def at_goal(knot):
    return 50.0 * jnp.sum((knot.q[:1] - GOAL) ** 2) + jnp.sum(knot.qd[:1] ** 2)


def four_bar():
    system, start = mechanisms.four_bar()
    assert system.coordinate("A").start == 0
    options = {"horizon": HORIZON, "dt": DT, "substeps": 3, "actuated": "A", "independent": "A"}
    return Problem(system, start, effort, at_goal, lower=-40.0, upper=40.0, **options)


@pytest.mark.sweep
def test_the_slope_of_the_linear_model_is_that_of_finite_differences():
    """With respect to each control, of a motion in which the whole loop swings."""
    task = prepared("ilqr", four_bar())
    multipliers, rng, h = no_multipliers(task, 1.0), np.random.default_rng(0), 1e-3

    @jax.jit
    def cost(u):
        return valued(task, simulated(task, u), u, multipliers).cost[0]

    @jax.jit
    def slope(u):
        expansion = expanded_about(task, (0,), simulated(task, u), u, multipliers)
        return over_batch(task, adjoint, expansion)

    u = jnp.asarray(rng.uniform(2, 8, (HORIZON, 1, 1)))
    expected = [(cost(u.at[k].add(h)) - cost(u.at[k].add(-h))) / (2 * h) for k in range(HORIZON)]
    found = np.ravel(slope(u))
    np.testing.assert_allclose(found, expected, atol=LINEAR * np.abs(expected).max())


@pytest.mark.slow
def test_ilqr_swings_a_four_bar_to_its_goal_and_keeps_it_closed():
    problem = four_bar()
    plan = ilqr(problem)
    assert plan.converged, plan
    assert (np.diff(plan.costs) <= 0).all() and plan.costs[-1] < 1e-3 * plan.costs[0]
    assert plan.q[-1, 0] == pytest.approx(GOAL, abs=0.02)
    assert (np.abs(plan.u) <= 40.0).all()
    # Each pose is one of the closed loop, by its closed form.
    for q in plan.q:
        crank, coupler, rocker = mechanisms.four_bar_angles(float(q[0]))
        B, D = (problem.system.coordinate(name).start for name in "BD")
        assert q[B] == pytest.approx(coupler - crank, abs=CLOSED)
        assert q[D] == pytest.approx(rocker, abs=CLOSED)
    end = jax.tree.map(lambda x: jnp.asarray(x[-1]), plan.states)
    gaps = jax.tree.leaves(joint_errors(problem.system, end))
    assert max(np.abs(gap).max() for gap in gaps) < CLOSED
