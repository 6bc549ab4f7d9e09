"""The builder inside of `jit` and `grad`: the same system, and derivatives of what is built."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from support.differences import central
from support.refusals import refused

EXACT = 1e-14  # float64, of numbers that are only put together
NORMAL = (0.0, -1.0, 0.0)


def everything(x):
    """A system in which each kind of number depends on x, and its start."""
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -9.81 * x), cfm=1e-6 * x)
    world.body("a", mass=2.0 * x, inertia=(0.2 * x, 0.3, 0.3), com=(0.1 * x, 0.0, 0.0))
    full = ((0.5 * x, 0.01, 0.0), (0.01, 0.6, 0.0), (0.0, 0.0, 0.7))
    world.body("b", mass=1.0, inertia=full, com=(0.0, 0.2 * x, 0.0), inertia_at="origin")
    world.body("c", mass=1.0, inertia=(0.1, 0.1, 0.1), pose=(0.0, x, 2.0))
    laws = [jj.Limits(-1.0, 2.0 * x), jj.SpringDamper(3.0 * x, 0.1), jj.Motor(1.0, effort=x)]
    world.joint("one", jj.Hinge((0.0, x, 1.0)), child="a", laws=laws, q=0.1 * x)
    ends = {"parent": "a", "frame_C": (0.0, x, 0.0), "frame_D": (x, 0.0, 0.0)}
    soft = {"softness": jj.Compliance(1e-4 * x), "max_effort": x, "enabled": True}
    world.joint("two", jj.Universal(axis_D=(1.0, 0.0, 0.1 * x)), child="b", **ends, **soft)
    stop = jj.Limits(upper=4.0, stiffness=5.0 * x)
    world.joint("three", jj.Helical(pitch=0.1 * x), child="c", parent="b", laws=stop)
    gear = jj.transmissions.Mimic(x)
    world.transmission("gear", gear, joints=["one", "three"], laws=jj.Damping(x))
    ball, ground = jj.shapes.Sphere(0.1 * x), jj.shapes.HalfSpace()
    world.contact("ground", ball, ground, child="c", friction=x)
    world.field("drag", jj.fields.Drag(linear=x))
    return world.build(rough=True)


@pytest.mark.slow
def test_a_traced_builder_makes_the_same_system():
    traced, plain = jax.jit(everything)(0.7), everything(0.7)
    assert jax.tree.structure(traced[0].mass) == jax.tree.structure(plain[0].mass)
    for a, b in zip(jax.tree.leaves(traced), jax.tree.leaves(plain), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=EXACT, atol=EXACT)


def test_plain_numbers_are_checked_inside_of_jit():
    def built(length):
        world = jj.SystemBuilder()
        world.body("rod", mass=length, inertia=(0.1, 0.1, 0.1))
        world.joint("pin", jj.Hinge(axis=(0.0, 0.0, 0.0)), child="rod")
        return world.build()

    with refused("joint 'pin'", "axis", "length 0"):
        jax.jit(built)(1.0)


def test_shapes_of_traced_numbers_are_checked():
    def built(place):
        world = jj.SystemBuilder()
        world.body("rod", mass=1.0, inertia=(0.1, 0.1, 0.1), com=place)

    with refused("body 'rod'", "com has shape (2,)", "(3,)"):
        jax.jit(built)(jnp.zeros(2))


def test_a_bad_mass_that_was_traced_is_told_by_the_step():
    def cause(mass):
        world = jj.SystemBuilder()
        world.body("ball", mass=mass, inertia=(0.1, 0.1, 0.1))
        system, state = world.build()
        return jj.step(system, state, dt=1e-3)[1].cause

    program = jax.jit(cause)
    assert program(1.0) == jj.Cause.NONE and program(-1.0) == jj.Cause.PARAMETERS


def test_places_have_derivatives_by_what_is_built():
    def tip(numbers):
        length, angle = numbers
        world = jj.SystemBuilder()
        world.body("rod", mass=1.0, inertia=(0.1, 0.1, 0.1), com=(length, 0.0, 0.0))
        world.joint("pin", jj.Hinge(NORMAL), child="rod", q=angle)
        return world.build()[1].position[:, 0]

    slopes = jax.jit(jax.jacrev(tip))(jnp.array([0.8, 0.3]))
    c, s = np.cos(0.3), np.sin(0.3)
    np.testing.assert_allclose(slopes, [[c, -0.8 * s], [0, 0], [s, 0.8 * c]], atol=EXACT)


def path_length(lengths):
    """From bars to a loss: a four-bar that is built, assembled and driven for ten steps."""
    crank, coupler, rocker, ground = lengths
    world = jj.SystemBuilder()
    hinge, motor = jj.Hinge(NORMAL), jj.Motor(speed=2.0, effort=1e3)
    for name, bar in (("crank", crank), ("coupler", coupler), ("rocker", rocker)):
        world.body(name, mass=bar, inertia=(1e-3, 1e-3, 1e-3), com=(bar / 2, 0.0, 0.0))
    world.joint("motor", hinge, child="crank", laws=motor, q=0.7)
    world.joint("knee", hinge, child="coupler", parent="crank", frame_D=(crank, 0.0, 0.0), q=0.3)
    world.joint("pivot", hinge, child="rocker", frame_D=(ground, 0.0, 0.0), q=2.3)
    ends = {"frame_C": (coupler, 0.0, 0.0), "frame_D": (rocker, 0.0, 0.0)}
    world.joint("link", hinge, child="coupler", parent="rocker", **ends)
    system, guess = world.build(rough=True)
    state, _ = jj.assemble(system, guess, q={"motor": 0.7}, qd={"motor": 2.0})
    end, _ = jj.rollout(system, state, dt=1e-2, steps=10)
    return jnp.sum((end.position[:, 1] - jnp.array([0.2, 0.0, 0.4])) ** 2)


@pytest.mark.slow
def test_a_loss_has_a_derivative_by_the_lengths_of_what_is_built():
    lengths = jnp.array([0.3, 0.8, 0.6, 0.9])
    loss = lambda x: path_length(x)[None]  # noqa: E731
    expected = central(jax.jit(jax.vmap(loss)), np.asarray(lengths), np.full(4, 1e-3))[:, 0]
    found = jax.jit(jax.grad(path_length))(lengths)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    assert np.abs(expected).min() > 1e-4
