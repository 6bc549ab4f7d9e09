"""Both bounds of limits count in every step, whichever is nearer at its start: closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import (
    LimitForce,
    Limits,
    Newton,
    ProjectedGaussSeidel,
    Rattle,
    Rope,
    SemiImplicitEuler,
    SystemBuilder,
    replace,
    step,
)
from support import mechanisms
from support.cases import mostly_slow
from support.motion import PLAIN, after, placed_on_rail

EXACT = 1e-12  # float64, some thousand roundings of numbers of order one
LOWER, UPPER = -0.05, 0.05
DT, MASS = 0.01, 2.0
LEAST = 1e-12  # speed by which a hard stop gives way [m/s]
# Nearer to either bound and in the middle; towards either bound, past it in a step or not.
Q, QD = (x.ravel() for x in np.meshgrid([-0.04, -0.01, 0.0, 0.03], [-20.0, -2.0, 0.0, 3.0, 20.0]))
SOLVED = {
    "Newton": PLAIN,
    "sweeps": SemiImplicitEuler(solver=ProjectedGaussSeidel(iterations=60), joints="rows"),
}


def between(law, q=Q, qd=QD):
    """A block on a rail between two bounds, an environment for each coordinate and speed."""
    system, state = mechanisms.slider(mass=MASS, laws=[law])
    return system, placed_on_rail(state, q, qd)


def speeds_after_a_step(law, scheme=PLAIN):
    system, state = between(law)
    state, info = after(system, state, DT, 1, scheme=scheme)
    assert info.ok.all()
    return np.asarray(state.velocity[0, 0])


@pytest.mark.parametrize("name", mostly_slow(SOLVED, default=("Newton",)))
def test_a_hard_stop_lets_no_step_pass_the_farther_bound(name):
    speed = speeds_after_a_step(Limits(LOWER, UPPER), SOLVED[name])
    end = np.clip(Q + DT * QD, LOWER, UPPER)
    np.testing.assert_allclose(speed, (end - Q) / DT, rtol=0, atol=EXACT / DT)
    assert (end == UPPER)[Q < 0].any() and (end == LOWER)[Q > 0].any()


def test_a_soft_stop_is_the_implicit_step_of_its_spring_at_either_bound():
    k, d = 3e3, 40.0
    speed = speeds_after_a_step(Limits(LOWER, UPPER, stiffness=k, damping=d))
    # What of the step lies past the bound is braked: m (u - u₀) = -(h k + d) (h u - gap).
    gap = np.where(QD > 0, UPPER - Q, LOWER - Q)
    braked = (MASS * QD + (DT * k + d) * gap) / (MASS + DT * (DT * k + d))
    past = (Q + DT * QD > UPPER) | (Q + DT * QD < LOWER)
    np.testing.assert_allclose(speed, np.where(past, braked, QD), rtol=EXACT, atol=EXACT)
    assert past.sum() == 10


@pytest.mark.slow
def test_a_bounce_off_the_bound_that_the_step_would_pass_passes_no_other():
    e = 0.25
    speed = speeds_after_a_step(Limits(LOWER, UPPER, restitution=e))
    past = (Q + DT * QD > UPPER) | (Q + DT * QD < LOWER)
    bounced = np.clip(-e * QD, (LOWER - Q) / DT, (UPPER - Q) / DT)
    np.testing.assert_allclose(speed, np.where(past, bounced, QD), rtol=0, atol=EXACT / DT)
    assert (bounced != -e * QD)[past].any() and (bounced == -e * QD)[past].any()


@pytest.mark.slow
def test_both_bounds_push_smoothly_by_their_distance_and_gradients_feel_both():
    ν = 0.3
    scheme = replace(PLAIN, solver=Newton(smoothing=ν, iterations=20))
    q = np.array([-0.04, -1e-6, 0.0, 1e-6, 0.04, -0.01])
    qd = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 20.0])
    system, start = mechanisms.slider(mass=MASS, laws=[Limits(LOWER, UPPER)])

    def speed(q, qd):
        at = placed_on_rail(start, q, qd)
        return step(system, at, dt=DT, scheme=scheme)[0].velocity[0, 0]

    def pushed(u):
        """Impulses λ w = m ν² of both barriers, w the distance at the end of the step over h."""
        return ν**2 / (u + (q - LOWER) / DT) - ν**2 / ((UPPER - q) / DT - u)

    lowest, highest = (LOWER - q) / DT, (UPPER - q) / DT
    for _ in range(200):
        middle = (lowest + highest) / 2
        more = middle - qd < pushed(middle)
        lowest, highest = np.where(more, middle, lowest), np.where(more, highest, middle)
    found, slope = jax.jit(lambda q, qd: (speed(q, qd), jax.grad(lambda q: speed(q, qd).sum())(q)))(
        jnp.asarray(q), jnp.asarray(qd)
    )
    np.testing.assert_allclose(found, lowest, rtol=0, atol=1e-9)
    # dF = 0 of F = u - qd - pushed(u, q) at the root.
    near, far = lowest + (q - LOWER) / DT, (UPPER - q) / DT - lowest
    stiff = ν**2 * (1 / near**2 + 1 / far**2)
    np.testing.assert_allclose(slope, -stiff / DT / (1 + stiff), rtol=1e-6)


@pytest.mark.slow
def test_rattle_ends_on_the_farther_bound_at_rest():
    system, state = between(Limits(LOWER, UPPER), np.array([-0.01, 0.01]), np.array([20.0, -20.0]))
    state, info = after(system, state, DT, 1, scheme=Rattle())
    assert info.ok.all()
    np.testing.assert_allclose(state.position[0, 0], [UPPER, LOWER], rtol=0, atol=EXACT)
    np.testing.assert_allclose(state.velocity[0, 0], 0.0, rtol=0, atol=EXACT)


@pytest.mark.slow
def test_both_stops_of_a_range_as_narrow_as_a_step_bring_a_block_to_rest():
    system, state = between(Limits(LOWER, UPPER))
    state, info = after(system, state, DT, 3, scheme=SemiImplicitEuler(projections=1))
    assert info.ok.all()
    ends = np.clip(Q + 3 * DT * QD, LOWER, UPPER)
    np.testing.assert_allclose(state.position[0, 0], ends, rtol=0, atol=3 * DT * LEAST)


@pytest.mark.slow
def test_a_rope_between_two_bounds_stops_ends_that_run_past_each_other():
    length, q, speed = 0.5, 0.1, -100.0
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    world.body("bob", mass=MASS, inertia=(0.1,) * 3, pose=(q, 0.0, 0.0))
    world.joint("rope", Rope(), child="bob", laws=[Limits(-length, length)])
    system, state = world.build()
    moving = replace(state, velocity=state.velocity.at[0, 0].set(speed))
    state, info = after(system, moving, DT, 1)
    assert info.ok.all()
    np.testing.assert_allclose(state.position[:, 0], [-length, 0.0, 0.0], rtol=0, atol=EXACT)


@pytest.mark.slow
def test_a_limit_force_of_two_bounds_acts_where_a_step_starts():
    """What its docstring says: linearized about the start, at the bound that is passed there."""
    k = 500.0
    system, state = between(LimitForce(LOWER, UPPER, stiffness=k), Q + 0.03 * np.sign(Q), 0 * QD)
    state, _ = after(system, state, DT, 1)
    past = Q + 0.03 * np.sign(Q) - np.clip(Q + 0.03 * np.sign(Q), LOWER, UPPER)
    speed = -DT * k * past / (MASS + DT**2 * k)
    np.testing.assert_allclose(state.velocity[0, 0], speed, rtol=0, atol=EXACT)
    assert (past > 0).any() and (past < 0).any()
