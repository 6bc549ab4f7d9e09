"""`print` of a system, of what a step did and of a cause: every number and name is there."""

import jax
import jax.numpy as jnp
import pytest

import jaxjoints as jj


@pytest.fixture(scope="module")
def mechanism():
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -9.81))
    world.body("arm", mass=1.5, inertia=(0.1, 0.11, 0.02), com=(0.0, 0.0, -0.5))
    world.body("cart", mass=2.0, inertia=(0.3, 0.3, 0.3))
    world.body("platform", prescribed=True, pose=(0.0, 0.0, 3.0))
    world.joint("rail", jj.Slider((1.0, 0.0, 0.0)), child="cart", laws=jj.Damping(0.25))
    world.joint(
        *("pivot", jj.Universal()),
        child="arm",
        parent="cart",
        laws=[jj.Limits(-1.0, 2.0, coordinate=1), jj.Servo(30.0, 2.0)],
        max_effort=7.0,
    )
    belt = jj.transmissions.Weighted([1.0, -0.5, 0.0])
    world.transmission("belt", belt, joints=("rail", "pivot"))
    world.field("air", jj.fields.Drag(linear=0.75), bodies="arm")
    return world.build()


def test_a_system_prints_all_it_consists_of(mechanism):
    system, _ = mechanism
    lines = [" ".join(line.split()) for line in str(system).splitlines()]
    assert lines[0] == "System of 3 bodies, 2 joints, 3 coordinates; gravity 0 0 -9.81 m/s²"
    for line in (
        "arm 1.5 0 0 -0.5 0.02 0.1 0.11",
        "platform prescribed",
        "rail Slider cart world 0 m Damping(damping=0.25)",
        "pivot Universal arm cart 1 rad Servo(stiffness=30, damping=2, effort=7); |effort| <= 7",
        "2 rad Limits(lower=-1, upper=2, erp=0.2, cfm=0); |effort| <= 7",
        "belt Weighted(weights=1 -0.5 0) rail, pivot held at 0",
        "air Drag(linear=0.75) arm",
    ):
        assert line in lines, str(system)


def test_a_batch_prints_its_first_environment(mechanism):
    system, _ = mechanism
    heavier = jj.replace(system, mass=jnp.outer(system.mass, jnp.array([1.0, 3.0])))
    text = str(heavier)
    assert "environment 0 of 2" in text and "4.5" not in text
    told = []
    jax.eval_shape(lambda s: told.append(str(s)), heavier)
    assert told == ["System of 3 bodies that JAX is tracing"]


def test_a_step_says_what_it_did(mechanism):
    system, state = mechanism
    one = jax.jit(lambda state: jj.step(system, state, dt=1e-3)[1])
    assert str(one(state)).startswith("The step is sound.\nLargest residual ")
    states = jj.replicate(state, 3)
    broken = jj.replace(states, velocity=states.velocity.at[0, 0, 1].set(jnp.nan))
    text = str(jax.jit(lambda state: jj.step(system, state, dt=1e-3)[1])(broken))
    assert text.startswith("2 of 3 environments are sound.\n1 (1): STATE: NaN, infinity or a")


def test_every_cause_has_a_sentence():
    sentences = {str(cause) for cause in jj.Cause}
    assert len(sentences) == len(jj.Cause) and all(len(text) > 10 for text in sentences)
