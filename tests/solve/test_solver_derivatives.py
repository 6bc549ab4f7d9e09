"""Derivatives of a solve: implicit and unrolled, first and second order, where rows change state,
where bounds coincide, and where rows are redundant.
"""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.solve.newton import Newton
from jaxjoints.solve.problem import body_velocities, row_speeds
from support import mechanisms
from support.cases import mostly_slow
from support.contacts import contacts
from support.differences import check_slopes, slopes
from support.graphs import with_wrenches
from support.mechanisms import rows_of_step

DT = 1e-3
POINT, STEPS = [0.1, -0.05, 0.03, 0.02], [1e-4] * 4


@cache
def problem(name):
    """Rows of one step whose speeds are mild, some of them at their bounds."""
    if name == "following":
        rough = contacts(1, 2, 1, friction=(0.2, 0.4), compliance=0.01)
        return jax.tree.map(lambda x: x[..., 0], rough)
    limits, friction = jj.Limits(-0.301, 0.301, erp=0.2, cfm=0.0), jj.DryFriction(0.5)
    if name == "redundant":
        system, state = mechanisms.four_bar(crank_speed=2.0, laws=[friction])
    else:
        system, _ = mechanisms.chain(2, q=0.1, laws=[limits, friction])
        state = system.state(
            q={"0": 0.3, "1": -0.3},
            qd={"0": 2.0, "1": -3.0},
        )

    found = jax.jit(partial(rows_of_step, dt=DT))(system, state)
    if name == "coinciding":
        *others, box = found.bounds
        found = jj.replace(found, bounds=(*others, jj.replace(box, lower=box.upper)))
    return found


def changed(problem, x):
    """The problem with its rows scaled, the bodies' speeds, the bounds' speeds and boxes moved."""
    rng = np.random.default_rng(1)

    def noise(shape):
        return jnp.asarray(rng.standard_normal(shape))

    structure = problem.structure
    motion = noise((6, structure.way.tree.bodies + 1)).at[:, -1].set(0.0)
    scale = 1 + x[0] * noise(problem.rate.shape)
    sides = zip(problem.bodies.H, structure.way.sides, strict=True)
    H = [H * scale[None, :, np.array(nodes)] for H, (nodes, _) in sides]
    bounds = tuple(
        jj.replace(bound, bias=bound.bias + x[2] * noise(bound.bias.shape))
        if bound.upper is None
        else jj.replace(bound, lower=bound.lower * (1 + x[3]), upper=bound.upper * (1 + x[3]))
        for bound in problem.bounds
    )
    return jj.replace(
        problem,
        bodies=with_wrenches(problem, H),
        rate=scale * (problem.rate + x[1] * row_speeds(problem, motion)),
        bounds=bounds,
    )


@cache
def motion(name, smoothing, derivative):
    """What the impulses make of the speeds of the bodies, a function of x (4,)."""
    base = problem(name)
    solver = Newton(smoothing=smoothing, iterations=12, derivative=derivative)
    weights = np.random.default_rng(3).standard_normal((6, base.structure.way.tree.bodies))

    def outcome(x):
        now = changed(base, x)
        solution = solver.solve(now)
        moved = body_velocities(now, solution.impulse)
        total = jnp.stack([jnp.sum(moved**2), jnp.sum(moved * jnp.asarray(weights))])
        return jnp.concatenate([total, jnp.stack([jnp.sum(x) for x in solution.bounded])])

    return outcome


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    mostly_slow(["limited", "coinciding", "redundant", "following"], default=("limited",)),
)
@pytest.mark.parametrize(
    "derivative",
    [jj.Implicit(), pytest.param(jj.Unrolled(), marks=pytest.mark.slow)],
    ids=["implicit", "unrolled"],
)
@pytest.mark.parametrize("smoothing", [0.0, pytest.param(0.2, marks=pytest.mark.slow)])
def test_first_derivatives_match_finite_differences(name, derivative, smoothing):
    outcome = motion(name, smoothing, derivative)
    check_slopes(outcome, POINT, STEPS, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "derivative"),
    [("limited", jj.Implicit()), ("limited", jj.Unrolled()), ("following", jj.Implicit())],
    ids=["limited-implicit", "limited-unrolled", "following-implicit"],
)
def test_second_derivatives_match_differences_of_the_first(name, derivative):
    """Of a smooth solve, by forward over reverse and reverse over reverse."""
    outcome = motion(name, 0.2, derivative)

    def slope(x):
        weights = jnp.array([0.1, 1.0, 3.0, -2.0, 0.5])
        return jax.grad(lambda x: (y := outcome(x)) @ weights[: len(y)])(x)

    check_slopes(slope, POINT, STEPS, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_derivatives_stay_finite_where_a_row_changes_state():
    """A stop whose impulse and speed are both zero, and beside that."""
    system, state = mechanisms.slider(laws=[jj.Limits(lower=0.0)])

    def speed(push):
        control = jj.Control(effort=push[None])
        return jj.step(system, state, control, dt=DT)[1].qd[0]

    slopes = jax.jit(jax.vmap(jax.value_and_grad(speed)))
    pushes = jnp.array([-1.0, -1e-12, 0.0, 1e-12, 1.0])
    values, found = slopes(pushes)
    free = DT / 2.0
    assert np.all(np.isfinite(found))
    np.testing.assert_allclose(values, free * np.maximum(pushes, 0), atol=1e-14)
    np.testing.assert_allclose(found[jnp.array([0, -1])], [0.0, free], atol=1e-12)
    assert np.all((found >= 0) & (found <= free * (1 + 1e-12)))


@pytest.mark.slow
def test_a_batch_of_gradients_is_the_gradient_of_a_batch():
    outcome = motion("limited", 0.2, jj.Implicit())
    points = 0.1 * jnp.asarray(np.random.default_rng(2).standard_normal((3, 4)))
    each = jax.jit(jax.vmap(jax.grad(lambda x: outcome(x)[0])))(points)
    whole = jax.jit(jax.grad(lambda x: jnp.sum(jax.vmap(outcome)(x)[:, 0])))(points)
    np.testing.assert_allclose(each, whole, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_both_derivatives_are_the_same_where_the_iteration_has_ended():
    ways = jj.Implicit(), jj.Unrolled()
    found = [slopes(motion("limited", 0.2, way), POINT, STEPS)[2] for way in ways]
    np.testing.assert_allclose(*found, rtol=1e-8, atol=1e-10)
