"""Accelerations and steps beside one dense problem of all bodies in numpy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.dynamics import accelerations
from support import mechanisms
from support.accelerations import chart_speeds, state_rate
from support.cases import mostly_slow
from support.loops import LOOPS, in_motion
from support.maximal import dense_accelerations

CLOSE = 1e-10  # of the largest acceleration
DT = 1e-3

# Of each loop the rows of all its joints, and how many of them are redundant.
ROWS = {
    "four-bar": (20, 3),
    "Stewart platform": (72, 0),
    "Jansen's leg": (50, 9),
    "Bennett's linkage": (20, 3),
    "Cassie's leg": (42, 4),
}


def assert_close(linear, angular, dense):
    """That accelerations of bodies are those of the dense problem."""
    largest = max(np.abs(x).max() for x in dense)
    np.testing.assert_allclose(linear, dense[0], rtol=0, atol=CLOSE * largest)
    np.testing.assert_allclose(angular, dense[1], rtol=0, atol=CLOSE * largest)
    assert largest > 5.0


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(LOOPS, default=("Jansen's leg",)))
def test_loops_accelerate_as_one_dense_problem_has_it(name):
    system, state = in_motion(name)
    now = jax.jit(accelerations)(system, state)
    *dense, rank, count = dense_accelerations(system, state)
    assert (count, count - rank) == ROWS[name]
    assert_close(now.linear, now.angular, dense)


@pytest.mark.slow
def test_motors_of_a_leg_push_with_their_effort_or_hold_their_speed():
    """The hip's cannot reach its speed, the knee's has it."""
    hip, knee = jj.Motor(speed=50.0, effort=30.0), jj.Motor(speed=0.0, effort=1e4)
    system, state = in_motion("Cassie's leg", hip=[hip], knee=[knee])
    place = system.coordinate("knee")
    target = jnp.full(system.coordinates, hip.speed)
    target = target.at[place].set(jj.coordinate_speeds(system, state)[place])
    now = jax.jit(accelerations)(system, state, jj.Control(target_speed=target))
    motors = {"moments": {"hip": hip.effort}, "held": ("knee",)}
    *dense, rank, count = dense_accelerations(system, state, **motors)
    assert rank == count - 4
    assert_close(now.linear, now.angular, dense)


def double_pendulum(first, second):
    """Two bodies in space on joints whose axes are not parallel, all inertias about other axes."""
    world = jj.SystemBuilder(gravity=(0.3, -0.5, -9.81))
    moments = np.array([[0.10, 0.02, -0.01], [0.02, 0.14, 0.03], [-0.01, 0.03, 0.08]])
    world.body("upper", mass=1.2, inertia=moments, com=(0.10, -0.05, -0.2))
    world.body("lower", mass=0.8, inertia=0.6 * moments[::-1, ::-1], com=(0.05, -0.15, 0.1))
    q, qd = np.array([0.3, -0.4, 0.5]), np.array([4.0, -3.0, 2.0])
    frames = {"frame_C": (0.1, 0.2, -0.1), "frame_D": (-0.2, 0.1, -0.4)}
    k, m = first.dof, second.dof
    world.joint("shoulder", first, child="upper", q=q[:k], qd=qd[:k])
    at = {"child": "lower", "parent": "upper", **frames}
    world.joint("elbow", second, **at, q=-q[:m], qd=-qd[:m])
    return world.build()


TREES = {
    "hinges": partial(double_pendulum, jj.Hinge((0.2, 1.0, -0.3)), jj.Hinge((0.6, 0.0, 0.8))),
    "universal and ball": partial(
        double_pendulum, jj.Universal((1.0, 0.0, 0.2), (0.0, 1.0, 0.3)), jj.Ball()
    ),
    "ball and universal": partial(
        double_pendulum, jj.Ball(), jj.Universal((1.0, 0.0, 0.2), (0.0, 1.0, 0.3))
    ),
    "floating chain": partial(mechanisms.floating_chain, gravity=(0.3, -0.5, -9.81)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(TREES, default=("hinges",)))
def test_trees_accelerate_and_step_as_one_dense_problem_has_it(name):
    """A step changes speeds ν of joints by h ν̇, and the momenta of a body adrift by its forces."""
    system, state = TREES[name]()
    *dense, rank, count = dense_accelerations(system, state)
    assert rank == count
    now, changes, rates = stepped(system, state, dense)
    assert_close(now.linear, now.angular, dense)
    for change, rate in zip(changes, rates, strict=True):
        largest = np.abs(rate).max(initial=0.0)
        np.testing.assert_allclose(change, rate, rtol=0, atol=CLOSE * largest)
    assert len(changes[1]) == (6 if name == "floating chain" else 0)


@jax.jit
def stepped(system, state, dense):
    """Accelerations; by what a step changes speeds of joints and momenta of a root, over its time;
    and the rates of these by the accelerations of the dense problem.
    """
    adrift = not any(-1 in group.parent for group in system.groups)

    def read(state):
        turn = jj.body_poses(system, state).R[..., 0]
        spin = turn @ system.inertia[..., 0] @ turn.T @ state.omega[:, 0]
        root = jnp.concatenate([state.velocity[:, 0], spin])
        return chart_speeds(system, state), root[: 6 if adrift else 0]

    new, _ = jj.step(system, state, dt=DT)
    before, rates = jax.jvp(read, (state,), (state_rate(state, *dense),))
    changes = jax.tree.map(lambda x, y: (x - y) / DT, read(new), before)
    return accelerations(system, state), changes, rates
