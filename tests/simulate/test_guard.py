"""Bad environments stand still: no effect on others, forward or in gradients, and a cause each."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import (
    Cause,
    Control,
    Hinge,
    Limits,
    SystemBuilder,
    replace,
    replicate,
    rollout,
    step,
    struct,
)
from jaxjoints.laws.fields import Field
from support import mechanisms

DT, STEPS, ENVIRONMENTS = 1e-2, 8, 6
AT = 3  # the step with a bad control
NAN, INF = np.nan, np.inf
# Which environment each test spoils, and what its cause is.
CASES = {
    "control": (1, Cause.CONTROL),
    "state": (2, Cause.STATE),
    "mass": (3, Cause.PARAMETERS),
    "fast": (4, Cause.DIVERGED),
    "far": (5, Cause.DIVERGED),
}


@struct
class Cliff(Field):
    """1 N upwards, and no number at heights above `edge`."""

    edge: jax.Array

    def wrench(self, motion):
        below = motion.pose.p[2] < self.edge
        return jnp.where(below, 1.0, jnp.nan) * jnp.eye(6, dtype=self.edge.dtype)[2]


@cache
def swinging():
    return mechanisms.pendulum(q=0.5, qd=1.0)


@cache
def inputs():
    """Masses, states and efforts of sound environments that differ."""
    system, state = swinging()
    spread = jnp.linspace(0.5, 1.5, ENVIRONMENTS)
    state = replicate(state, ENVIRONMENTS)
    state = replace(state, omega=state.omega * spread[None, None])
    effort = jnp.array(np.random.default_rng(1).normal(size=(STEPS, 1, ENVIRONMENTS)))
    return system.mass[:, None] * spread[None], state, effort


def spoiled(names):
    """The inputs with the cases' numbers in their environments."""
    mass, state, effort = inputs()
    for name in names:
        i, _ = CASES[name]
        if name == "control":
            effort = effort.at[AT, 0, i].set(INF)
        elif name == "state":
            state = replace(state, quaternion=state.quaternion.at[1, 0, i].set(NAN))
        elif name == "mass":
            mass = mass.at[0, i].set(NAN)
        elif name == "fast":
            state = replace(state, omega=state.omega.at[2, 0, i].set(1e11))
        else:
            state = replace(state, position=state.position.at[0, 0, i].set(-1e11))
    return mass, state, effort


@cache
def outcome(*names):
    """Final state, and state and info of each step, with the cases' environments spoiled."""
    return jax.tree.map(np.asarray, rolled()(*spoiled(names)))


@cache
def rolled():
    def run(mass, state, effort):
        system = replace(swinging()[0], mass=mass)
        record = lambda state, info: (state, info)  # noqa: E731
        return rollout(system, state, Control(effort=effort), dt=DT, record=record)

    return jax.jit(run)


def environment(tree, i):
    return jax.tree.map(lambda x: x[..., i], tree)


def assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_each_cause_is_told_and_others_go_on_as_if_alone():
    final, (_, info) = outcome(*CASES)
    expected, (_, sound) = outcome()
    for i, cause in CASES.values():
        since = AT if cause == Cause.CONTROL else 0
        assert (info.cause[since:, i] == cause).all() and (info.cause[:since, i] == 0).all()
        assert not info.ok[since:, i].any() and info.ok[:since, i].all()
    assert_equal(environment((final, info), 0), environment((expected, sound), 0))
    assert sound.ok.all() and (sound.cause == Cause.NONE).all()


def test_a_bad_environment_keeps_its_last_good_state():
    final, (_, info) = outcome(*CASES)
    _, (expected, _) = outcome()
    i, _ = CASES["control"]
    last = jax.tree.map(lambda x: x[AT - 1], environment(expected, i))
    assert_equal(environment(final, i), last)
    assert final.time[i] == pytest.approx(AT * DT)
    for name in ("fast", "far"):
        i, _ = CASES[name]
        assert_equal(environment(final, i), environment(spoiled([name])[1], i))
    bad = ~np.asarray(info.ok)
    for name in ("wrench", "law_force", "q", "qd"):
        assert (np.moveaxis(getattr(info, name), -1, 1)[bad] == 0).all()


@pytest.mark.slow
def test_gradients_are_those_of_the_sound_environments():
    """Of a loss that leaves out what is not ok, by a number that all share, and by their own."""
    system, _ = swinging()

    def loss(com, mass, state, effort, wanted):
        changed = replace(system, mass=mass, com=com)
        new, info = step(changed, state, Control(effort=effort[AT]), dt=DT)
        return jnp.sum(jnp.where((info.ok & wanted)[None, None], new.position**2, 0.0)), info.ok

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3), has_aux=True))
    (shared, *own), ok = gradient(system.com, *spoiled(CASES), np.ones(ENVIRONMENTS, bool))
    assert ok.tolist() == [True] + [False] * len(CASES)
    (expected, *expected_own), _ = gradient(system.com, *inputs(), ok)
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(shared, expected, rtol=1e-12, atol=1e-15)
    for mine, theirs in zip(jax.tree.leaves(own), jax.tree.leaves(expected_own), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-15)
        assert not mine[..., 1:].any()


def test_a_bad_control_may_count_as_none():
    system, _ = swinging()
    _, state, effort = inputs()
    run = jax.jit(
        lambda effort: step(system, state, Control(effort=effort), dt=DT, control_policy="zero")
    )
    new, info = run(effort[0].at[0, 1].set(NAN))
    assert info.cause.tolist() == [0, Cause.CONTROL, 0, 0, 0, 0]
    assert info.ok.tolist() == [True, False, True, True, True, True]
    assert_equal(new, run(effort[0].at[0, 1].set(0.0))[0])


@pytest.fixture(scope="module")
def cliffs():
    """Bodies that rise to where a field gives no number, some of them soon."""
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    world.body("balloon", mass=1.0, inertia=(1.0, 1.0, 1.0), velocity=(0, 0, 1.0, 0, 0, 0))
    world.field("cliff", Cliff(1e3))
    system, state = world.build()
    return system.with_field("cliff", Cliff(jnp.array([1e3, 0.025, 1e3]))), replicate(state, 3)


@pytest.mark.slow
def test_a_step_that_fails_leaves_no_trace_in_gradients(cliffs):
    """Sound numbers that lead to NaN: known after the step only."""
    system, state = cliffs

    def run(mass):
        changed = replace(system, mass=mass)
        final, info = rollout(changed, state, dt=DT, steps=6, record=lambda state, info: info)
        return jnp.sum(final.position[2, 0]), (final, info)

    slope, (final, info) = jax.jit(jax.grad(run, has_aux=True))(system.mass)
    failed = np.zeros((6, 3))
    failed[3:, 1] = Cause.SOLVER  # at heights 0.01, 0.0201, 0.0303 the third is beyond
    np.testing.assert_array_equal(info.cause, failed)
    np.testing.assert_allclose(final.time, [6 * DT, 3 * DT, 6 * DT], rtol=1e-12)
    # z after n steps: Σ v h with v = 1 + k h / m, hence ∂z/∂m = -h² n (n + 1) / 2 at m = 1.
    np.testing.assert_allclose(slope, -2 * DT**2 * 21, rtol=1e-12)


def test_forces_beyond_all_measure_diverge(cliffs):
    """1e12 N is a number; what it leads to is not a motion any more."""
    system, state = cliffs
    wrench = jnp.zeros((6, 1, 3)).at[0, 0, 0].set(1e13).at[0, 0, 2].set(1e12)
    run = jax.jit(lambda s, w: step(system, s, Control(wrench=w), dt=DT))
    state, info = run(state, wrench)
    assert info.cause.tolist() == [Cause.DIVERGED, Cause.NONE, Cause.NONE]
    assert state.velocity[0, 0].tolist() == [0.0, 0.0, 1e10]
    state, info = run(state, wrench)
    assert info.cause.tolist() == [Cause.DIVERGED, Cause.NONE, Cause.DIVERGED]
    state, info = run(state, 0 * wrench)
    assert info.cause.tolist() == [0, 0, 0], "single steps go on where the numbers are sound again"


@pytest.mark.slow
def test_one_environment_alone_may_be_bad():
    """Without a good one to differentiate at: every body at the origin, at rest."""
    system, state = swinging()
    state = replace(state, velocity=state.velocity * NAN)

    def loss(mass, com):
        final, info = step(replace(system, mass=mass, com=com), state, dt=DT)
        return jnp.sum(jnp.where(info.ok, final.position, 0.0)), info.cause

    slopes, cause = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(system.mass, system.com)
    assert cause == Cause.STATE
    for slope in slopes:
        assert not slope.any(), "NaN or not zero"


class TestShapes:
    """Refused before anything is traced, with what is expected and what was given."""

    @pytest.mark.parametrize(
        ("control", "words"),
        [
            (Control(effort=jnp.zeros(2)), r"effort has shape \(2,\); it must be \(1,\).*\(1, 6\)"),
            (Control(effort=jnp.zeros((6, 1))), r"effort has shape \(6, 1\)"),
            (Control(effort=jnp.zeros((1, 5))), r"effort has shape \(1, 5\); .* or \(1, 6\)"),
            (Control(wrench=jnp.zeros(6)), r"wrench has shape \(6,\); it must be \(6, 1\)"),
            (Control(twist=jnp.zeros((6, 1))), r"twist .* it must be \(6, 0\)"),
            (Control(target=jnp.zeros(2)), r"target has shape \(2,\); it must be \(1,\)"),
            (Control(target_speed=jnp.zeros(2)), r"target_speed .* it must be \(1,\)"),
            (jnp.zeros(1), "must be a Control"),
        ],
    )
    def test_of_controls(self, control, words):
        system, _ = swinging()
        with pytest.raises(ValueError, match=f"control: .*{words}"):
            step(system, inputs()[1], control, dt=DT)

    def test_of_controls_over_time(self):
        system, state = swinging()
        control = Control(effort=jnp.zeros((1, ENVIRONMENTS)))
        words = r"effort has shape \(1, 6\); it must be \(steps, 1\).*\(steps, 1, 6\)"
        with pytest.raises(ValueError, match=words):
            rollout(system, inputs()[1], control, dt=DT)
        with pytest.raises(ValueError, match=r"effort has shape \(3,\)"):
            rollout(system, state, lambda s: Control(effort=jnp.zeros(3)), dt=DT, steps=2)
        with pytest.raises(ValueError, match="control: .* must be a Control"):
            rollout(system, state, lambda s: s.q, dt=DT, steps=2)

    def test_of_states(self):
        system, _ = swinging()
        _, other = mechanisms.chain(2)
        with pytest.raises(ValueError, match=r"state: position has shape \(3, 2\); it must be"):
            step(system, other, dt=DT)

    def test_policies(self):
        with pytest.raises(ValueError, match="control_policy 'clip' must be 'stop' or 'zero'"):
            step(*swinging(), dt=DT, control_policy="clip")


def test_a_bound_of_each_environment_may_stand_beside_one_that_all_share():
    world = SystemBuilder()
    for name in ("first", "second"):
        body = world.body(name, mass=1.0, inertia=(0.1, 0.1, 0.1), com=(0.1, 0.0, 0.0))
        world.joint(name, Hinge((0.0, 1.0, 0.0)), child=body, laws=Limits(-1.0, 1.0))
    system, state = world.build()
    many = system.with_numbers({"joint.second.limits.lower": jnp.array([-1.0, -0.5, 0.5])})
    after, info = step(many, replicate(state, 3), dt=1e-3)
    assert (info.cause == Cause.NONE).all()
    # The third starts beyond its stop, which pulls it back.
    assert abs(after.q[1, 0] - after.q[1, 1]) < 1e-12 and after.q[1, 2] > 0.005
