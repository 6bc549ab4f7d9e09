"""The same step by two eliminations: of bodies that tree joints hold, and of the rows of all."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import (
    Armature,
    Ball,
    Control,
    DryFriction,
    Hinge,
    Limits,
    Lock,
    Motor,
    Newton,
    Slider,
    SystemBuilder,
    Universal,
    contact_laws,
    replace,
    shapes,
    transmissions,
)
from jaxjoints.assembly.group_rows import Interval
from jaxjoints.assembly.impulses import joint_impulses, with_reactions
from jaxjoints.assembly.problem import assembled
from jaxjoints.assembly.targets import Step
from jaxjoints.model.articulation import NO_TREE, articulation
from jaxjoints.model.kinematics import (
    body_twists,
    prepare,
    system_kinematics,
    with_unit_quaternions,
    with_world,
)
from jaxjoints.schemes.free_motion import free_velocity
from support import mechanisms
from support.cases import mostly_slow
from support.couplings_catalog import PointOnSphere

# Feet press on the ground from the start.
pytestmark = pytest.mark.filterwarnings("ignore:contact 'foot")

DT = 2e-3
# Speeds of some m/s and rad/s in float64, with redundant rows and laws that are bounded.
EQUAL = 1e-9
# Floors of contacts follow the mobilities of an elimination: enough passes to take them away.
EXACT = Newton(iterations=8, passes=12)
X, Y, Z = np.eye(3)


def leg(*, floating=False):
    """A thigh and a shin, a wheel geared to the knee and a ball-jointed hand, feet on the ground.

    floating: the hip on a trunk that nothing holds; else on one that is prescribed
    """
    world = SystemBuilder()
    trunk = {"mass": 3.0, "inertia": (0.1, 0.2, 0.15)} if floating else {"prescribed": True}
    world.body("trunk", pose=(0.0, 0.0, 0.81), **trunk)
    world.body("thigh", mass=1.0, inertia=(0.02, 0.02, 0.004), com=(0.0, 0.01, -0.2))
    world.body("shin", mass=0.6, inertia=(0.01, 0.01, 0.002), com=(0.02, 0.0, -0.2))
    world.body("wheel", mass=0.3, inertia=(0.003, 0.002, 0.003))
    world.body("hand", mass=0.2, inertia=(0.001, 0.002, 0.003), com=(0.05, 0.0, 0.0))
    world.joint(
        "hip", Universal(X, Y), child="thigh", parent="trunk", q=(0.1, -0.4), qd=(0.3, -2.0),
        laws=[Limits(-0.5, 0.12), Motor(1.0, 5.0, coordinate=1), Armature(0.02)],
    )  # fmt: skip
    world.joint(
        "knee", Hinge(Y), child="shin", parent="thigh", frame_D=(0.0, 0.0, -0.4), q=0.8, qd=1.5,
        laws=[Limits(0.0, 0.801, stiffness=400.0, damping=2.0), DryFriction(0.4)],
    )  # fmt: skip
    world.joint(
        "axle", Hinge(Y), child="wheel", parent="shin", frame_D=(0.1, 0.0, -0.1), q=0.4, qd=0.75
    )
    world.joint(
        "grip", Ball(), child="trunk" if floating else "hand",
        parent="hand" if floating else "trunk", frame_C=(0.1, 0.0, 0.0), q=(0.2, 0.1, 0.0),
        qd=(3.0, -2.0, 1.0),
    )  # fmt: skip
    world.transmission("gear", transmissions.Mimic(2.0), joints=("axle", "knee"))
    ground = contact_laws(friction=0.6, stiffness=2e4, damping=50.0)
    for i, x in enumerate((-0.04, 0.06)):
        place = {"frame_C": (x, 0.0, -0.42)}
        shape = shapes.Sphere(0.04), shapes.HalfSpace()
        world.contact(f"foot{i}", *shape, child="shin", laws=ground, **place)
    return world.build()


def locked():
    """A chain with a lock, its tip on a rod to the world."""
    world = SystemBuilder()
    solid = {"mass": 1.0, "inertia": (0.02, 0.03, 0.04), "com": (0.1, 0.0, 0.0)}
    for name in ("a", "b", "c"):
        world.body(name, **solid)
    place = {"frame_D": (0.3, 0.0, 0.0)}
    world.joint("first", Hinge(Y), child="a", q=0.0, qd=2.0)
    lock = {"laws": [Lock(0.0)], "q": 0.0}
    world.joint("second", Hinge((0.0, 0.6, 0.8)), child="b", parent="a", **lock, **place)
    world.joint("third", Slider(X), child="c", parent="b", q=0.0, **place)
    world.joint("rod", PointOnSphere(jnp.array(0.5)), child="c", frame_D=(0.9, 0.4, 0.0))
    return world.build()


CASES = {
    "mixed": mechanisms.mixed,
    "four-bar": partial(mechanisms.four_bar, crank_speed=3.0, laws=[DryFriction(0.5)]),
    "moving base": partial(mechanisms.moving_base, laws=[Limits(-0.1, 0.1), DryFriction(0.3)]),
    "floating chain": mechanisms.floating_chain,
    "leg": leg,
    "floating leg": partial(leg, floating=True),
    "locked": locked,
}
REDUNDANT = ("four-bar",)


@cache
def built(case):
    system, state = CASES[case]()
    return system, with_unit_quaternions(state)


def ended(case, velocity, *, tree):
    """Twists after a step from the case's state with other velocities, and what its joints did."""
    system, state = built(case)
    state = replace(state, velocity=velocity)
    mechanism, control, dt = prepare(system, 0), Control(), jnp.asarray(DT)
    kinematics, branches = system_kinematics(mechanism, state), articulation(mechanism.system)
    free = free_velocity(mechanism, kinematics, state, control, dt)
    twist = with_world(body_twists(state))
    interval = Interval(dt, control, twist=twist, engagement=state.engagement)
    branches = branches if tree else NO_TREE
    rows = assembled(mechanism, kinematics, state, interval, Step(), free, tree=branches)
    solution = EXACT.solve(rows.problem)
    end = rows.twists(solution.impulse)
    problem, solution = with_reactions(mechanism, kinematics, rows, solution)
    done = joint_impulses(mechanism, kinematics, problem, solution, state)
    return end, done, solution.residual


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", mostly_slow(CASES, default=("moving base", "locked"), sweep=("floating leg",))
)
def test_both_eliminations_solve_one_problem(case):
    _, state = built(case)
    (one, by_rows, first), (other, by_tree, second) = (
        jax.jit(partial(ended, case, tree=tree))(state.velocity) for tree in (False, True)
    )
    assert max(first, second) <= EQUAL
    np.testing.assert_allclose(other, one, atol=EQUAL * max(1.0, np.abs(one).max()))
    if case not in REDUNDANT:
        for x, y in zip(jax.tree.leaves(by_tree), jax.tree.leaves(by_rows), strict=True):
            np.testing.assert_allclose(x, y, atol=EQUAL * max(1.0, np.abs(y).max(initial=0)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", mostly_slow(CASES, default=("moving base",), sweep=("floating leg", "mixed"))
)
def test_both_have_the_same_derivatives_in_both_modes(case):
    _, state = built(case)
    direction = jax.random.normal(jax.random.key(0), state.velocity.shape)
    weight = jax.random.normal(jax.random.key(1), (6, state.velocity.shape[1]))

    @partial(jax.jit, static_argnums=0)
    def slopes(tree):
        end = lambda velocity: ended(case, velocity, tree=tree)[0]  # noqa: E731
        _, forward = jax.jvp(end, (state.velocity,), (direction,))
        back = jax.grad(lambda velocity: jnp.sum(weight * end(velocity)))(state.velocity)
        return forward, back

    (forward, back), (other, other_back) = slopes(False), slopes(True)
    np.testing.assert_allclose(other, forward, atol=1e3 * EQUAL)
    np.testing.assert_allclose(other_back, back, atol=1e3 * EQUAL)
    both = jnp.sum(weight * other), jnp.sum(direction * other_back)
    np.testing.assert_allclose(*both, rtol=1e-7, atol=EQUAL)
