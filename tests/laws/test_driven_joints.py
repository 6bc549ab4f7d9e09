"""Joints beyond those of the four systems are driven and stopped, in a tree and
in a loop: one system of them all, each twice.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import (
    Chain,
    ConstantVelocity,
    Coupling,
    Free,
    Hinge,
    Limits,
    Motor,
    PointOnCurve,
    Rope,
    Slider,
    SystemBuilder,
    rollout,
)
from jaxjoints.schemes.semi_implicit_euler import SemiImplicitEuler
from support.couplings_catalog import BESIDE, CATALOG, EZ, TILTED

DT, STEPS = 5e-3, 40
EFFORT, ROOM = 0.5, 0.005
EXACT = 1e-9  # position projection leaves this of errors and stops at 1 rad/s and 5 ms
SCHEME = SemiImplicitEuler(projections=1)


@dataclass(frozen=True)
class Driven:
    """A coupling, where it starts, and the coordinate that a motor drives."""

    coupling: Coupling
    q: tuple[float, ...]
    coordinate: int


DRIVEN = {
    "bead on a wire": Driven(CATALOG["bead on a wire"].coupling, (0.1, 0.1, 0.2, -0.1), 0),
    "rope": Driven(Rope(), (1.2, 0.2, -0.1, 0.1, 0.2, 0.3), 0),
    "constant velocity": Driven(ConstantVelocity(), (0.3, 0.2), 0),
    "chain": Driven(Chain(Hinge(EZ), Slider(TILTED), BESIDE), (0.4, 0.1), 1),
}
CHOSEN = (PointOnCurve, Rope, ConstantVelocity, Chain)
names = pytest.mark.parametrize("name", DRIVEN)


def laws(joint):
    """A motor that runs into a stop."""
    i = joint.coordinate
    return [
        Motor(5.0, EFFORT, coordinate=i),
        Limits(upper=joint.q[i] + ROOM, coordinate=i),
    ]


@pytest.fixture(scope="module")
def everything():
    """Each coupling on a body of its own, and on one that a free joint connects to the world too:
    the coupling closes a loop there.
    """
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    for name, joint in DRIVEN.items():
        pose = jax.jit(joint.coupling.pose)(jnp.array(joint.q))
        for kind in ("tree", "loop"):
            body = world.body(
                f"{name}, {kind}", mass=1.2, inertia=(0.3, 0.2, 0.25), pose=(pose.p, pose.q)
            )
            if kind == "loop":
                world.joint(f"{name}, other", Free(), child=body)
            world.joint(f"{name}, {kind}", joint.coupling, child=body, laws=laws(joint), q=joint.q)
    return world.build()


@pytest.fixture(scope="module")
def motions(everything):
    """Coordinates, speeds and the largest error over time."""
    system, state = everything

    @jax.jit
    def run(state):
        record = lambda state, info: (info.q, info.qd, info.error)  # noqa: E731
        return rollout(system, state, dt=DT, steps=STEPS, scheme=SCHEME, record=record)[1]

    return run(state)


def of(system, name, values):
    """Values of the driven coordinate over time, in the tree and in the loop, (2, time)."""
    i = DRIVEN[name].coordinate
    at = [system.coordinate(f"{name}, {kind}").start + i for kind in ("tree", "loop")]
    return np.stack([values[:, place] for place in at])


def test_all_that_are_meant_are_driven():
    assert {type(joint.coupling) for joint in DRIVEN.values()} == set(CHOSEN)


@pytest.mark.slow
@names
def test_a_loop_joint_moves_as_a_tree_joint_does(everything, motions, name):
    system, _ = everything
    q, qd, _ = motions
    for values in (q, qd):
        tree, loop = of(system, name, values)
        np.testing.assert_allclose(loop, tree, rtol=EXACT, atol=EXACT)


@pytest.mark.slow
@names
def test_a_motor_pushes_a_joint_into_its_stop(everything, motions, name):
    """Work of the motor turns into motion; then the stop holds against it."""
    system, _ = everything
    q, qd, errors = motions
    q, qd = of(system, name, q)[0], of(system, name, qd)[0]
    start = DRIVEN[name].q[DRIVEN[name].coordinate]
    assert qd[0] > 0 and (np.diff(q) >= -EXACT).all()
    np.testing.assert_allclose(q[-1], start + ROOM, rtol=0, atol=EXACT)
    np.testing.assert_allclose(qd[-1], 0.0, atol=EXACT)
    assert errors.max() < EXACT
