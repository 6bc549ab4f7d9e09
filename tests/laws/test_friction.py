"""Coulomb friction: bounds that follow the normal force, of the solution or of a first pass."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import (
    WORLD,
    CoulombFriction,
    Free,
    Limits,
    Newton,
    SemiImplicitEuler,
    SystemBuilder,
    replace,
    step,
)
from support.differences import slopes

DT = 1e-3
GRAVITY = 9.81
FEET = ((0.2, 0.15, -0.1), (0.2, -0.15, -0.1), (-0.2, 0.0, -0.1))


def stool(friction=0.4, slope=0.0):
    """A body on three feet, its weight leaning by a slope [rad] along x, at rest on the ground."""
    world = SystemBuilder(gravity=(GRAVITY * np.sin(slope), 0.0, -GRAVITY * np.cos(slope)))
    body = world.body("stool", mass=2.0, inertia=(0.03, 0.04, 0.05), pose=(0.0, 0.0, 0.1))
    for i, foot in enumerate(FEET):
        world.joint(
            f"foot{i}",
            Free(),
            child=body,
            parent=WORLD,
            frame_C=foot,
            laws=[
                Limits(lower=0.0, coordinate=2),
                CoulombFriction(friction, coordinate=0, normal=2),
                CoulombFriction(friction, coordinate=1, normal=2),
            ],
        )
    return world.build()


def scheme_of(friction, smoothing=0.0, passes=20):
    """A scheme whose passes are enough for rounding."""
    return SemiImplicitEuler(solver=Newton(smoothing, 20, passes, friction))


def simulated(system, state, steps, scheme):
    def one(state, _):
        return step(system, state, dt=DT, scheme=scheme)

    return jax.lax.scan(one, state, None, length=steps)


after = jax.jit(simulated, static_argnums=2)


@pytest.mark.parametrize("passes", ["coupled", pytest.param("two passes", marks=pytest.mark.slow)])
def test_friction_follows_the_weight(passes):
    """On a slope of tan 0.5 with μ = 0.4: a = g (sin - μ cos); with μ = 0.6 it stays."""
    slope = np.arctan(0.5)
    for μ in (0.4, 0.6):
        system, state = stool(μ, slope)
        final, info = after(system, state, 200, scheme_of(passes))
        fall = GRAVITY * (np.sin(slope) - μ * np.cos(slope))
        expected = max(fall, 0.0) * 200 * DT
        np.testing.assert_allclose(final.velocity[0, 0], expected, atol=1e-8)
        assert np.max(info.residual) < 1e-9 and np.all(info.ok)
        if passes == "coupled":
            force = np.asarray(info.law_force).reshape(200, 3, 6)
            most = μ * np.abs(force[:, :, 2])
            assert np.all(np.abs(force[:, :, :2]) <= most[:, :, None] + 1e-6)


@pytest.mark.slow
def test_three_passes_follow_the_weight_closely():
    """The default, on a slope of tan 0.5 with μ = 0.4, from rest: within a thousandth."""
    slope = np.arctan(0.5)
    final, info = after(*stool(0.4, slope), 200, SemiImplicitEuler())
    expected = GRAVITY * (np.sin(slope) - 0.4 * np.cos(slope)) * 200 * DT
    np.testing.assert_allclose(final.velocity[0, 0], expected, rtol=1e-3)
    assert np.max(info.residual) < 1e-9 and np.all(info.ok)
    # What one step misses the next ones make up for: in the end the bound is met.
    assert np.max(info.friction_excess[-50:]) < 1e-9


def test_stick_and_slip_switch_at_the_coefficient():
    """Between 0.9995 and 1.0005 of tan(slope)."""
    slope = np.arctan(0.5)
    speeds = []
    for μ in (0.49975, 0.50025):
        final, _ = after(*stool(μ, slope), 200, scheme_of("coupled"))
        speeds.append(float(final.velocity[0, 0]))
    assert speeds[0] > 0.9 * 200 * DT * GRAVITY * 0.00025 * np.cos(slope)
    assert abs(speeds[1]) < 1e-9


def sliding(stool, passes, smoothing, μ, speed, height):
    """Where a stool is after some steps that slides while its weight shifts to the front feet."""
    system, state = stool
    system = replace(system, com=system.com.at[2, 0].add(height))
    for i in range(len(FEET)):
        stop, *tangents = system.joint(f"foot{i}").laws
        laws = (stop, *(replace(tangent, friction=μ) for tangent in tangents))
        system = system.with_joint(f"foot{i}", laws=laws)
    state = replace(
        state,
        velocity=jnp.stack([speed, 0.3 * speed, 0.0 * speed])[:, None],
        position=state.position.at[2, 0].add(height),
    )
    final, info = simulated(system, state, 20, scheme_of(passes, smoothing))
    return jnp.concatenate([final.position[:, 0], final.omega[:, 0]]), info


@pytest.mark.sweep
@pytest.mark.parametrize("passes", ["coupled", "two passes"])
def test_gradient_of_sliding_matches_finite_differences(passes):
    """With a smoothing, traced and differentiated too; the sharp solve is its limit."""
    outcome = partial(sliding, stool(), passes)

    def end(at):
        """The last number is the largest residual, whose slopes are not asked for."""
        reached, info = outcome(*at)
        return jnp.concatenate([reached, jnp.max(info.residual)[None]])

    for at, steps in (
        ([0.05, 0.4, 1.0, 0.05], [2e-4, 1e-4, 1e-4, 1e-4]),
        ([0.0, 0.4, 1.0, 0.05], [0.0, 1e-4, 1e-4, 1e-4]),
    ):
        expected, *modes, values = slopes(end, at, steps)
        assert values[-1] < 1e-9
        for found in modes:
            np.testing.assert_allclose(found[:, :-1], expected[:, :-1], rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_both_ways_agree_where_friction_does_not_change_the_normal_forces():
    slope = np.arctan(0.5)
    ends = [after(*stool(0.4, slope), 50, scheme_of(p))[0] for p in ("coupled", "two passes")]
    # Friction below the centre of mass tilts the load: they differ, but not on average.
    speeds = [end.velocity[0, 0] for end in ends]
    np.testing.assert_allclose(*speeds, rtol=1e-6)


def test_a_friction_without_a_normal_force_is_refused():
    world = SystemBuilder()
    body = world.body("box", mass=1.0, inertia=(1.0, 1.0, 1.0))
    for laws, normal in (([], 2), ([Limits(lower=0.0, coordinate=2)], 1)):
        with pytest.raises(ValueError, match=rf"foot.*CoulombFriction.*normal {normal} must be"):
            world.joint(
                "foot",
                Free(),
                child=body,
                parent=WORLD,
                laws=[*laws, CoulombFriction(0.3, coordinate=0, normal=normal)],
            )
