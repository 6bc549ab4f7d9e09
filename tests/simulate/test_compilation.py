"""A session at the prompt: what is called outside of `jit` is one program, compiled once."""

from functools import cache

import jax
import jax.numpy as jnp
import pytest

import jaxjoints as jj
from support.compilations import compilations

DT, STEPS = 1e-3, 5


def build(mass=1.0, ground=False):
    """A pendulum between its limits, and a ball; on the ground, or without."""
    world = jj.SystemBuilder()
    world.body("arm", mass=mass, inertia=(0.1, 0.1, 0.02), com=(0.0, 0.0, -0.5))
    world.body("ball", mass=1.0, inertia=(0.1, 0.1, 0.1), pose=(1.0, 0.0, 0.2))
    laws = [jj.Limits(-1.0, 1.0), jj.SpringDamper(1.0, 0.1)]
    axis = (0.0, 1.0, 0.0)
    world.joint("pivot", jj.Hinge(axis), child="arm", frame_D=(0.0, 0.0, 2.0), laws=laws, q=0.3)
    if ground:
        world.contact("ground", jj.shapes.Sphere(0.2), jj.shapes.HalfSpace(), child="ball")
    return world.build()


@cache
def session(ground):
    """System, start, the state after a step and what it did."""
    system, state = build(ground=ground)
    return system, state, *jj.step(system, state, dt=DT)


def of_loss(system, state):
    def loss(system):
        return jj.rollout(system, state, dt=DT, steps=STEPS, record_every=STEPS)[0].q[0]

    return loss


CALLS = {
    # Name: the call, and how many programs it may compile at first.
    "build": (lambda system, state, *_: build(2.0), 7),
    "print": (lambda system, *_: str(system), 1),
    "print what a step did": (lambda system, state, after, info: str((after, info)), 0),
    "start": (lambda system, state, *_: system.state(q={"pivot": 0.1}, start=state), 3),
    "a number": (lambda system, *_: system.with_numbers({"body.arm.mass": 2.0}), 1),
    "another number": (lambda system, *_: system.with_numbers({"body.ball.mass": 2.0}), 0),
    "control": (lambda system, *_: system.control(effort={"pivot": 0.1}), 1),
    "wrench": (lambda system, state, *_: jj.wrench_at(system, state, "arm", force=(1.0, 0, 0)), 1),
    "replicate": (lambda system, state, *_: jj.replicate(state, 3), 1),
    "coordinates": (lambda system, state, *_: jj.coordinates(system, state), 1),
    "speeds": (lambda system, state, *_: jj.coordinate_speeds(system, state), 1),
    "poses": (lambda system, state, *_: jj.body_poses(system, state), 1),
    "errors": (lambda system, state, *_: jj.joint_errors(system, state), 1),
    "momentum": (lambda system, state, *_: jj.momentum(system, state), 1),
    "energies": (lambda system, state, *_: jj.energies(system, state), 1),
    "reaction": (lambda system, _, *after: jj.reaction(system, *after, "pivot", axes="world"), 1),
    "step": (lambda system, state, *_: jj.step(system, state, dt=2 * DT), 0),
    "step of other numbers": (
        lambda system, state, *_: jj.step(
            system.with_numbers({"body.arm.mass": 2.0}),
            system.state(q={"pivot": 0.2}, start=state),
            dt=DT,
        ),
        0,
    ),
}
# Those of contacts, which take longer to compile.
ON_THE_GROUND = {
    "build": (lambda system, state, *_: build(2.0, ground=True), 8),
    "gaps": (lambda system, state, *_: jj.gaps(system, state), 1),
    "contact speeds": (lambda system, state, *_: jj.contact_speeds(system, state), 1),
    "reaction": (lambda system, _, *after: jj.reaction(system, *after, "ground", axes="world"), 1),
}


@pytest.mark.parametrize(
    "ground, name",
    [(False, name) for name in CALLS]
    + [pytest.param(True, name, marks=pytest.mark.slow) for name in ON_THE_GROUND],
)
def test_a_call_is_one_program_that_is_compiled_once(ground, name):
    call, most = (ON_THE_GROUND if ground else CALLS)[name]
    at = session(ground)
    with compilations() as first:
        call(*at)
    assert len(first) <= most
    with compilations() as again:
        call(*at)
    assert not again


@pytest.mark.slow
def test_a_session_goes_on_without_compilation():
    system, state = build()
    numbers = {"joint.pivot.spring_damper.stiffness": 3.0}

    def played(system, state, effort):
        """Rollouts without and with a control, and a page of the second."""
        jj.rollout(system, state, dt=DT, steps=STEPS)
        control = jj.Control(effort=jnp.full((STEPS, 1), effort))
        _, trajectory = jj.rollout(system, state, control, dt=DT, steps=STEPS)
        return jj.view(system, trajectory).page

    played(system, state, 0.0)
    value = jax.grad(of_loss(system, state))(system).mass
    other = system.with_numbers(numbers)
    start = other.state(q={"pivot": -0.2}, start=state)
    with compilations() as again:
        played(other, start, 0.5)
    assert not again
    with compilations() as again:
        new = jax.grad(of_loss(other, start))(other).mass
    assert not again
    assert new[0] != value[0]


@pytest.mark.parametrize("by", ["system", "control"])
def test_a_gradient_traces_a_step_once_and_its_derivative_once(by):
    traces = []

    @jj.struct
    class Counted(jj.SemiImplicitEuler):
        def advance(self, *arguments):
            traces.append(arguments)
            return super().advance(*arguments)

    system, state = build()

    def loss(system, push):
        control, options = jj.Control(effort=push), {"steps": STEPS, "scheme": Counted()}
        return jj.rollout(system, state, control, dt=DT, **options)[0].q[0]

    by = ("system", "control").index(by)
    jax.jit(jax.grad(loss, by)).trace(system, jnp.zeros((STEPS, 1)))
    assert len(traces) == 2


def test_a_gradient_is_the_same_if_it_is_compiled_quickly():
    """The derivative of an angle by a mass, beside central differences."""
    system, state = build()
    loss = of_loss(system, state)
    found = jax.jit(jax.grad(loss), compiler_options=jj.QUICK)(system).mass[0]
    heavy, light = (loss(system.with_numbers({"body.arm.mass": m})) for m in (1.001, 0.999))
    assert abs(found) > 1e-7
    assert abs(found - (heavy - light) / 0.002) < 1e-5 * abs(found)
