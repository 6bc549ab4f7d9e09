"""Physics of beads, ropes, homokinetic shafts and chains of couplings, against closed forms."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import (
    Chain,
    ConstantVelocity,
    Cylindrical,
    DoubleHinge,
    Hinge,
    Limits,
    PointOnCurve,
    Pose,
    Rope,
    Slider,
    SpringDamper,
    SystemBuilder,
    Universal,
    coordinates,
    step,
    struct,
)
from jaxjoints.couplings.functions import Function, Linear
from support.mechanisms import G

EXACT = 1e-11  # float64, some hundred roundings of numbers of order ten
BEND = np.radians(40.0)


@jax.jit
def at_time(system, state, dt, steps):
    """State after any number of steps, and what the last one did."""
    _, info = jax.eval_shape(lambda state: step(system, state, dt=dt), state)
    info = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), info)
    return jax.lax.fori_loop(0, steps, lambda _, last: step(system, last[0], dt=dt), (state, info))


def assert_close(actual, expected, tolerance=EXACT):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@struct
class Turning(Function):
    """radius cos(s + phase)."""

    radius: jax.Array
    phase: jax.Array
    coordinates: ClassVar[tuple[int, ...]] = (0,)

    def value(self, q):
        return self.radius * jnp.cos(q[0] + self.phase)


@pytest.mark.slow
def test_a_bead_slides_down_a_helix_through_many_rounds():
    """Its height loses what its speed gains: s̈ = -g c/(r² + c²) for p = (r cos s, r sin s, c s)."""
    radius, climb, start, duration = 0.5, 0.2, -10.0, 1.0
    helix = Turning(radius, 0.0), Turning(radius, -np.pi / 2), Linear([climb])
    world = SystemBuilder()
    world.body("bead", mass=0.7, inertia=(0.01, 0.01, 0.01))
    world.joint("wire", PointOnCurve(helix), child="bead", qd=(start, 0.0, 0.0, 0.0))
    system, state = world.build()
    wanted = start * duration - G * climb / (radius**2 + climb**2) * duration**2 / 2
    errors = []
    for dt in (1e-3, 5e-4, 2.5e-4):
        end, _ = at_time(system, state, dt, round(duration / dt))
        errors.append(coordinates(system, end)[0] - wanted)
    assert abs(wanted) > 4 * np.pi
    # Errors of first and second order in the step, and next to nothing without them.
    coarse, fine = (2 * small - large for large, small in zip(errors, errors[1:], strict=False))
    assert abs(4 * fine - coarse) / 3 < 1e-2 * max(np.abs(errors))


@pytest.mark.slow
def test_a_rope_is_slack_until_it_is_taut():
    length, fall = 1.5, 0.8
    world = SystemBuilder()
    world.body("load", mass=2.0, inertia=(0.1, 0.1, 0.1), pose=(0.0, 0.0, -length + fall))
    world.joint("rope", Rope(), child="load", laws=[Limits(upper=length)])
    system, state = world.build()
    dt, steps = 1e-3, 300
    free, info = at_time(system, state, dt, steps)
    # Semi-implicit Euler falls by n (n + 1)/2 steps of g dt².
    assert_close(free.position[2, 0], -length + fall - G * dt**2 * steps * (steps + 1) / 2)
    assert_close(info.law_force, np.zeros(6))
    held, info = at_time(system, state, dt, 700)
    assert_close(held.position[:, 0], [0.0, 0.0, -length], 1e-6)
    assert_close(info.law_force[0], -2.0 * G, 1e-6)


def shafts(coupling, speed):
    """Two shafts in bearings of the world, the second bent by BEND about x, joined into a loop."""
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    for name in ("driving", "driven"):
        world.body(name, mass=1.0, inertia=(0.1, 0.1, 0.02))
    bent = Pose.about_x(BEND)
    world.joint("first bearing", Hinge(), child="driving", qd=speed)
    world.joint("second bearing", Hinge(), child="driven", frame_D=bent, qd=speed)
    world.joint("joint", coupling, child="driven", parent="driving")
    return world.build()


@pytest.mark.slow
def test_shafts_of_a_constant_velocity_joint_turn_alike_at_forty_degrees():
    system, state = shafts(ConstantVelocity(), 3.0)
    for steps in (1, 150, 400):
        end, info = at_time(system, state, 2e-3, steps)
        assert_close(info.qd[:2], [3.0, 3.0], 1e-6)
        q = coordinates(system, end)
        assert_close(q[0], q[1], 1e-6)
        assert_close(np.linalg.norm(q[2:]), BEND, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("coupling", [ConstantVelocity(), Universal((1, 0, 0), (0, 1, 0))])
def test_the_ratio_of_shaft_speeds_is_one_or_that_of_a_universal_joint(coupling):
    """A universal joint's is cos β/(1 - sin²β sin²θ), θ from where its first axis is that of β."""
    homokinetic = isinstance(coupling, ConstantVelocity)
    read = jax.jit(coupling.wrenches)
    for angle in np.linspace(0.0, np.pi, 7):
        ratio = 1.0
        if not homokinetic:
            ratio = np.cos(BEND) / (1 - np.sin(BEND) ** 2 * np.sin(angle) ** 2)
        driven = angle if homokinetic else np.arctan2(np.sin(angle) * np.cos(BEND), np.cos(angle))
        T = Pose.about_z(-angle) @ Pose.about_x(BEND) @ Pose.about_z(driven)
        moment = np.asarray(read(T))[3, 3:]
        axis_D = T.rotate_inverse(jnp.array([0.0, 0.0, 1.0]))
        assert_close(moment @ axis_D / moment[2], ratio, 1e-9)


@pytest.mark.slow
def test_a_chain_of_two_hinges_is_a_double_hinge():
    length, q = 0.8, jnp.array([0.7, -1.9])
    chain = Chain(Hinge(), Hinge(), Pose.along_x(jnp.array(length)))
    T, expected = (coupling.pose(q) for coupling in (chain, DoubleHinge(jnp.array(length))))
    assert_close(T.p, expected.p)
    assert_close(T.R, expected.R)


@pytest.mark.slow
def test_a_chain_takes_laws_on_every_coordinate():
    """A slider and a hinge on one line are a cylindrical joint."""

    def plunger(coupling):
        world = SystemBuilder()
        world.body("rod", mass=1.0, inertia=(0.1, 0.12, 0.05), com=(0.1, 0.0, 0.0))
        laws = [
            Limits(lower=-0.1, stiffness=300.0, damping=5.0),
            SpringDamper(2.0, 0.1, rest=1.0, coordinate=1),
        ]
        world.joint("joint", coupling, child="rod", laws=laws)
        return world.build()

    ends = [
        at_time(*plunger(coupling), 2e-3, 150)[0]
        for coupling in (Chain(Slider(), Hinge()), Cylindrical())
    ]
    assert ends[1].q[0] < -0.1
    assert_close(ends[0].position, ends[1].position, 1e-9)
    assert_close(ends[0].omega, ends[1].omega, 1e-8)
