"""The problem that all groups make together: nothing at all, any order, the rows of another."""

from functools import cache

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints import (
    Ball,
    DryFriction,
    Hinge,
    Limits,
    Newton,
    Slider,
    SystemBuilder,
    step,
)
from jaxjoints.assembly.group_rows import Interval
from jaxjoints.assembly.impulses import no_forces, row_forces, start_impulses
from jaxjoints.assembly.layout import layout
from jaxjoints.assembly.problem import aimed_again, row_problem
from jaxjoints.assembly.targets import EndPosition, Projection, Step, SurfaceVelocity
from jaxjoints.laws.transmissions import Mimic
from jaxjoints.model.kinematics import body_twists, prepare, system_kinematics, with_world
from support import mechanisms

DT = 5e-3
# Rounding of float64 in speeds of some m/s, through effective masses of ratio 100.
EQUAL = 1e-11
X, Y = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)
SOLID = {"mass": 1.0, "inertia": (0.02, 0.03, 0.04)}


def rows(system, state):
    """Mechanism, joint kinematics, twists and interval at a state."""
    mechanism = prepare(system, state.time.ndim)
    twist = with_world(body_twists(state))
    interval = Interval(jnp.asarray(DT), twist=twist)
    return mechanism, system_kinematics(mechanism, state), twist, interval


def free_body():
    world = SystemBuilder()
    world.body("stone", **SOLID, velocity=(1.0, 0.0, 0.0, 0.0, 0.0, 1.0))
    return world.build()


def test_a_system_without_rows_is_solved_like_any_other():
    system, state = free_body()
    mechanism, kinematics, twist, interval = rows(system, state)
    for target in (Step(), EndPosition(interval.dt), SurfaceVelocity(), Projection()):
        problem = row_problem(mechanism, kinematics, interval, target, twist)
        solution = Newton().solve(problem)
        np.testing.assert_array_equal(solution.impulse, 0)
        np.testing.assert_array_equal(solution.residual, 0)


@pytest.mark.parametrize(
    "scheme",
    [
        jj.SemiImplicitEuler(projections=1),
        jj.SemiImplicitEuler(joints="rows", solver=jj.ProjectedGaussSeidel()),
        jj.Rattle(),
        pytest.param(jj.RungeKutta(), marks=pytest.mark.slow),
    ],
    ids=["Euler", "Gauss-Seidel", "Rattle", "RungeKutta"],
)
def test_bodies_without_joints_fly_in_every_scheme(scheme):
    system, start = free_body()
    state, _ = jj.rollout(system, start, dt=DT, steps=10, record_every=10, scheme=scheme)
    np.testing.assert_allclose(state.position[0, 0], 10 * DT, rtol=1e-12)
    np.testing.assert_allclose(state.omega, start.omega, atol=1e-12)
    np.testing.assert_array_equal(jj.project(system, state).position, state.position)


@pytest.mark.slow
def test_nothing_is_kept_for_the_next_step_where_nothing_is_bounded():
    system, state = mechanisms.chain(2)
    assert jax.tree.leaves(state.row_forces)[0].size == 0
    assert start_impulses(state, jnp.asarray(DT)) is None
    new, _ = jax.jit(lambda state: step(system, state, dt=DT))(state)
    chex.assert_trees_all_equal_shapes(new.row_forces, state.row_forces)


def test_a_state_has_a_force_for_each_row_and_each_bounded_law():
    """Each bound of each limits takes a slot, which the coordinate without it leaves empty."""
    laws = [Limits(-1.0, 1.0), DryFriction(0.1), Limits(upper=2.0)]
    world = SystemBuilder()
    world.body("a", **SOLID)
    world.body("b", **SOLID)
    world.joint("first", Hinge(Y), child="a", laws=laws)
    world.joint("second", Slider(X), child="b", parent="a", laws=[DryFriction(0.2)])
    system, state = world.build()
    problem = jax.jit(lambda state: mechanisms.rows_of_step(system, state, DT))(state)
    assert [bound.upper is not None for bound in problem.bounds] == [False, False, False, True]
    solved = jax.jit(lambda problem: row_forces(system, Newton().solve(problem), jnp.asarray(DT)))
    kept = solved(problem)
    chex.assert_trees_all_equal_shapes(kept, no_forces(system, (), state.q.dtype))
    assert kept.rows.shape == (6, 2) and kept.bounds.shape == (4, 2)
    present = [np.asarray(bound.present) for bound in problem.bounds]
    np.testing.assert_array_equal(present, [[1, 0], [1, 0], [1, 0], [1, 1]])


@cache
def tree(order):
    """A branched tree of unlike joints, one tied to another, declared in some order."""
    world = SystemBuilder()
    for name in ("trunk", "left", "right", "leaf"):
        world.body(name, **SOLID, com=(0.0, 0.05, -0.2))
    down = {"frame_D": (0.0, 0.0, -0.4)}
    declare = {
        "trunk": lambda: world.joint("trunk", Hinge(Y), child="trunk", laws=[Limits(-0.3, 0.3)]),
        "left": lambda: world.joint("left", Slider(X), child="left", parent="trunk", **down),
        "right": lambda: world.joint(
            "right", Hinge(X), child="right", parent="trunk", laws=[DryFriction(0.1)], **down
        ),
        "leaf": lambda: world.joint("leaf", Ball(), child="leaf", parent="right", **down),
    }
    for name in order:
        declare[name]()
    world.transmission("tie", Mimic(0.5), joints=("trunk", "right"))
    system, _ = world.build()
    state = system.state(q={"trunk": 0.29, "right": 0.145}, qd={"trunk": 2.0, "right": 1.0})
    return system, jax.jit(lambda state: step(system, state, dt=DT)[0])(state)


@pytest.mark.slow
@pytest.mark.parametrize(
    "order", [("leaf", "right", "left", "trunk"), ("left", "leaf", "trunk", "right")]
)
def test_motion_does_not_depend_on_the_order_in_which_joints_are_declared(order):
    _, expected = tree(("trunk", "left", "right", "leaf"))
    _, new = tree(order)
    for field in ("position", "quaternion", "velocity", "omega"):
        np.testing.assert_allclose(
            vars(new)[field], vars(expected)[field], rtol=0, atol=EQUAL, err_msg=field
        )


@pytest.mark.slow
def test_rows_that_aim_again_are_those_of_a_problem_of_their_own():
    system, state = mechanisms.mixed()
    mechanism, kinematics, twist, interval = rows(system, state)
    once = Interval(jnp.ones_like(interval.dt))
    nearby = row_problem(mechanism, kinematics, interval, Step(), twist)
    again = aimed_again(mechanism, kinematics, once, Projection(), nearby)
    alone = row_problem(mechanism, kinematics, once, Projection())
    assert layout(system).bounded and not again.bounds, "a projection bounds no stop"
    jax.tree.map(np.testing.assert_array_equal, again, alone)
