"""What the methods are asked: refusals at the door, and a rail by closed forms."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints import optimization
from jaxjoints.optimization import Outcome, Problem
from jaxjoints.optimization.path import no_multipliers, sloped
from jaxjoints.optimization.problem import prepared
from support import mechanisms
from support.refusals import refused

HORIZON, DT = 20, 0.05
METHODS = {
    "shooting": optimization.shooting,
    "ilqr": optimization.ilqr,
    "multiple_shooting": lambda *a, **k: optimization.multiple_shooting(*a, shots=4, **k),
}


def effort(knot, u):
    return 0.05 * jnp.sum(u**2)


def at_one(knot):
    return 100.0 * jnp.sum((knot.q - 1.0) ** 2 + knot.qd**2)


def ahead(knot):
    return -jnp.sum(knot.q)


def no_number(knot):
    return jnp.sum(jnp.log(knot.q - 2.0))


def too_fast(knot, u):
    return knot.qd - 1.2


def two_numbers(knot, u):
    return u * jnp.ones(2)


def beyond(knot):
    return 5.0 - knot.q


SYSTEM, START = mechanisms.slider(mass=1.0)
RAIL = Problem(SYSTEM, START, effort, at_one, horizon=HORIZON, dt=DT)


def least():
    """Controls of least cost of RAIL, by the normal equations of a double integrator."""
    columns, A = [np.array([DT**2, DT])], np.array([[1.0, DT], [0.0, 1.0]])
    for _ in range(HORIZON - 1):
        columns.append(A @ columns[-1])
    R = np.array(columns[::-1]).T
    H = 0.1 * np.eye(HORIZON) + 200 * R.T @ R
    return np.linalg.solve(H, 200 * R.T @ np.array([1.0, 0.0]))


def replayed(problem, plan):
    _, states = jj.rollout(
        problem.system,
        problem.start,
        plan.control,
        dt=problem.dt,
        substeps=problem.substeps,
        record_every=problem.substeps,
        scheme=problem.scheme,
    )
    return states


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "change, words",
    (
        ({"horizon": 0}, ("horizon 0", "at least 1")),
        ({"substeps": 1.5}, ("substeps 1.5",)),
        ({"dt": 2.0}, ("dt 2.0",)),
        ({"actuated": "wheel"}, ("actuated 'wheel' is no joint", "'rail'")),
        ({"upper": "max"}, ("upper 'max' must be a number",)),
        ({"running": at_one}, ("running at_one must be a function of (knot, u)",)),
        ({"lower": 1.0, "upper": -1.0}, ("lower 1.0 must be below upper -1.0",)),
        ({"upper": (1.0, 2.0)}, ("upper (1.0, 2.0)", "1 of them")),
        ({"running": None, "terminal": None}, ("neither a running nor a terminal cost",)),
        ({"running": 3.0}, ("running 3.0 must be a function",)),
        ({"running": two_numbers}, ("running returns", "one number")),
        ({"constraints": effort}, ("constraints returns", "one array")),
        ({"start": jj.replicate(START, 2, 3)}, ("batch axes (2, 3)", "one, flat")),
        ({"start": None}, ("state None",)),
    ),
)
def test_what_does_not_fit_is_refused_by_name(method, change, words):
    with refused(f"{method}", *words) if "dt" not in change else refused(*words):
        METHODS[method](replace(RAIL, **change))


@pytest.mark.parametrize("method", METHODS)
def test_guesses_that_do_not_fit_are_refused(method):
    with refused(f"{method}: guess has shape (3, 1)", "(20, 1)"):
        METHODS[method](RAIL, np.zeros((3, 1)))
    with refused(f"{method}: guess has NaN"):
        METHODS[method](RAIL, np.full((HORIZON, 1), np.nan))
    if method == "shooting":
        with refused("shooting: optimizer 'adam' must be", "optax.adam"):
            METHODS[method](RAIL, optimizer="adam")
    with refused(f"{method}: problem", "must be an optimization.Problem"):
        METHODS[method](SYSTEM)


def test_loops_shots_and_plants_that_do_not_fit_are_refused():
    loop = replace(RAIL, **dict(zip(("system", "start"), mechanisms.four_bar(), strict=True)))
    with refused("ilqr", "makes coordinates depend on each other", "independent="):
        optimization.ilqr(loop)
    with refused("horizon 20 must be a multiple of shots 3"):
        optimization.multiple_shooting(RAIL, shots=3)
    with refused("multiple_shooting: states", "an axis of shots in front"):
        optimization.multiple_shooting(RAIL, shots=4, states=3)
    with refused("multiple_shooting: states: position has shape", "(4, 3, 1)"):
        optimization.multiple_shooting(RAIL, shots=4, states=START)
    with refused("receding_horizon: plant", "with other numbers"):
        optimization.receding_horizon(RAIL, intervals=2, plant=mechanisms.pendulum()[0])


@pytest.mark.slow
def test_gradients_of_a_batch_are_finite_differences():
    task = prepared("shooting", replace(RAIL, start=jj.replicate(START, 2), substeps=2))
    rng, multipliers = np.random.default_rng(0), no_multipliers(task, 1.0)
    u, direction = rng.normal(size=(2, HORIZON, 1, 2))
    _, slope = sloped(task, jnp.asarray(u), multipliers)
    h = 1e-5
    up, down = (sloped(task, jnp.asarray(u + s * h * direction), multipliers)[0] for s in (1, -1))
    expected = (up.cost - down.cost) / (2 * h)
    np.testing.assert_allclose(np.sum(slope * direction, axis=(0, 1)), expected, rtol=1e-6)


@pytest.mark.slow
def test_ilqr_ends_at_the_closed_form_within_two_iterations_and_replays():
    plan = optimization.ilqr(RAIL)
    assert plan.converged and len(plan.costs) == 3, plan
    np.testing.assert_allclose(plan.u[:, 0], least(), atol=1e-7)
    states = replayed(RAIL, plan)
    np.testing.assert_array_equal(states.position, plan.states.position[1:])
    cost = 0.05 * np.sum(plan.u**2) + 100 * np.sum((states.q[-1] - 1) ** 2 + plan.qd[-1] ** 2)
    np.testing.assert_allclose(plan.cost, cost, rtol=1e-12)


@pytest.mark.slow
def test_methods_agree_within_bounds_and_constraints():
    """Of a batch of starts, with efforts within bounds and speeds below a constraint."""
    start = SYSTEM.state(q={"rail": np.array([0.0, -0.2])})
    problem = replace(RAIL, start=start, lower=-6.0, upper=6.0, constraints=too_fast)
    plans = [
        optimization.ilqr(problem, feasible=1e-4),
        optimization.multiple_shooting(problem, shots=4, feasible=1e-4),
        optimization.shooting(problem, iterations=150, rounds=4, rate=0.1, feasible=1e-2),
    ]
    for plan in plans:
        assert (np.abs(plan.u) <= 6.0 + 1e-12).all()
        assert (plan.violation <= 1e-2).all(), plan
        assert (np.max(plan.qd, axis=(0, 1)) > 1.19).all()
        np.testing.assert_allclose(plan.cost, plans[0].cost, rtol=2e-2)
    assert plans[0].converged.all() and plans[1].converged.all()
    np.testing.assert_allclose(plans[1].u, plans[0].u, atol=0.05)


@pytest.mark.slow
def test_bad_problems_are_reported():
    """Costs that fall for ever, targets out of reach, costs that are no numbers."""
    free = replace(RAIL, running=None, terminal=ahead)
    plan = optimization.ilqr(free)
    assert plan.outcome == Outcome.UNBOUNDED and "ran away" in str(plan)
    plan = optimization.shooting(free, iterations=5)
    assert plan.outcome == Outcome.ITERATIONS and "bounds" in str(plan)
    far = replace(RAIL, terminal=None, lower=-1.0, upper=1.0, final_constraints=beyond)
    plan = optimization.ilqr(far, rounds=3)
    # The furthest that the double integrator gets with the largest effort.
    reach = DT**2 * HORIZON * (HORIZON + 1) / 2
    assert plan.outcome == Outcome.VIOLATED and "out of reach" in str(plan)
    np.testing.assert_allclose(plan.violation, 5 - reach, rtol=1e-6)
    start = SYSTEM.state(q={"rail": np.array([0.0, 3.0])})
    for method in (optimization.ilqr, optimization.shooting):
        plan = method(replace(RAIL, start=start, terminal=no_number), iterations=3)
        assert plan.outcome[0] == Outcome.START and plan.outcome[1] != Outcome.START
        assert "1 of 2 START" in str(plan)
        assert np.isfinite(plan.u).all() and np.isfinite(plan.cost[1])


@pytest.mark.slow
def test_plans_that_are_made_anew_forgive_a_heavier_plant():
    problem = replace(RAIL, horizon=10, running=jax.tree_util.Partial(near_one))
    heavy = SYSTEM.with_numbers({"body.block.mass": 1.5})
    drive = optimization.receding_horizon(problem, intervals=60, first=4, plant=heavy)
    np.testing.assert_allclose(drive.q[-1], 1.0, atol=2e-2)
    plan = optimization.ilqr(replace(problem, horizon=60))
    _, states = jj.rollout(heavy, START, plan.control, dt=DT, scheme=problem.scheme)
    assert np.abs(states.q[-1] - 1.0) > 5 * np.abs(drive.q[-1] - 1.0)
    assert str(drive).startswith("60 intervals")


def near_one(knot, u):
    return jnp.sum((knot.q - 1.0) ** 2) + 1e-3 * jnp.sum(u**2)
