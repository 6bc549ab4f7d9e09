"""Laws of identification: recorded motions, residuals, and what a search says of its answer."""

import io
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.tree_util import Partial

from jaxjoints import Limits, Newton, SemiImplicitEuler, replace, replicate, step
from jaxjoints.algebra.spatial import (
    quat_from_rotation_vector,
    quat_integrate_linearized,
    quat_multiply,
    quat_normalize,
)
from jaxjoints.identification import Motion, Progress, Unknown, identify, pose_residuals
from support.cases import mostly_slow
from support.mechanisms import pendulum

DT = 0.01
EXACT = 1e-12  # velocities [m/s, rad/s] from poses; rounding over DT leaves some 1e-14
NOISE = (1e-3, 2e-3)
FEW = {"starts": 16, "iterations": 20}


@pytest.mark.parametrize(
    "rotation", ["exponential", pytest.param("linearized", marks=pytest.mark.slow)]
)
def test_velocities_from_poses_are_those_that_moved_the_bodies(rotation):
    rng = np.random.default_rng(0)
    velocity, omega = rng.normal(size=(2, 6, 3, 2)) * [[[[1.0]]], [[[5.0]]]]
    omega[2] = 0.0
    position = [rng.normal(size=(3, 2))]
    quaternion = [np.asarray(quat_normalize(jnp.asarray(rng.normal(size=(4, 2)))))]
    for v, w in zip(velocity, omega, strict=True):
        position.append(position[-1] + DT * v)
        q, w = jnp.asarray(quaternion[-1]), jnp.asarray(w)
        if rotation == "linearized":
            q = quat_integrate_linearized(q, w, jnp.asarray(DT))
        else:
            q = quat_multiply(quat_from_rotation_vector(DT * w), q)
        quaternion.append(np.asarray(q))
    signs = np.array([1, -1, -1, 1, 1, -1, 1.0])[:, None, None]
    motion = Motion.from_poses(position, signs * quaternion, dt=DT, rotation=rotation)
    np.testing.assert_allclose(motion.velocity, velocity, atol=EXACT)
    np.testing.assert_allclose(motion.omega, omega, atol=EXACT)
    np.testing.assert_array_equal(motion.position, position[1:])
    # q and -q are one pose; successive ones are close.
    np.testing.assert_allclose(motion.quaternion, signs[0] * quaternion[1:], atol=1e-15)


SCHEME = SemiImplicitEuler(joints="rows", gyroscopic="explicit", solver=Newton(iterations=3))


@pytest.fixture(scope="module")
def recorded():
    """A bob that swings into a soft stop: system, its states, the motion, one compiled step."""
    stop = Limits(upper=0.35, stiffness=50.0, damping=0.5)
    system, state = pendulum(qd=1.0, laws=[stop])
    advance = jax.jit(lambda system, state: step(system, state, dt=DT, scheme=SCHEME)[0])
    states = [state]
    for _ in range(12):
        states.append(advance(system, states[-1]))
    poses = (np.stack([getattr(s, name) for s in states]) for name in ("position", "quaternion"))
    return system, states, Motion.from_poses(*poses, dt=DT), advance


@pytest.fixture(scope="module")
def residuals(recorded):
    """Residuals of systems with stiffnesses (batch) and stops at 0.35."""
    system, _, motion, _ = recorded

    def left(stiffness, start, follow):
        (stop,) = system.joint("pivot").laws
        batched = system.with_joint("pivot", laws=(replace(stop, stiffness=stiffness),))
        start = replicate(start, *stiffness.shape)
        options = {"follow": follow, "noise": NOISE, "dt": DT, "scheme": SCHEME}
        return pose_residuals(batched, start, motion, **options)

    return jax.jit(left)


@pytest.mark.parametrize("follow", mostly_slow([0.0, 0.3, 1.0], default=("0.3",)))
def test_the_truth_leaves_no_residuals(recorded, residuals, follow):
    _, states, motion, _ = recorded
    start = motion.start(states[1])
    left = residuals(jnp.array([50.0, 40.0]), start, jnp.asarray(follow))
    assert left.shape == (len(motion.position) - 1, 7, 1, 2)
    np.testing.assert_allclose(left[..., 0], 0.0, atol=1e-9)
    assert np.abs(left[..., 1]).max() > 0.01
    # The other sign of a quaternion is the same pose.
    turned = residuals(
        jnp.array([50.0, 40.0]), replace(start, quaternion=-start.quaternion), jnp.asarray(follow)
    )
    np.testing.assert_allclose(turned, left, atol=1e-9)


@pytest.mark.slow
def test_following_fully_is_predicting_one_step(recorded, residuals):
    system, states, motion, advance = recorded
    (stop,) = system.joint("pivot").laws
    softer = system.with_joint("pivot", laws=(replace(stop, stiffness=jnp.asarray(40.0)),))
    left = residuals(jnp.array([40.0]), motion.start(states[1]), jnp.asarray(1.0))[..., 0]
    for i, (here, there) in enumerate(zip(states[1:-1], states[2:], strict=True)):
        predicted = advance(softer, here)
        moved = (predicted.position - there.position) / NOISE[0]
        turned = 2 * (predicted.quaternion - there.quaternion) / NOISE[1]
        np.testing.assert_allclose(left[i], np.concatenate([moved, turned]), atol=1e-9)


def line(slopes, values, follow):
    """Residuals of y = a x + b at x = slopes, measured without noise at a = 2, b = 30."""
    return jnp.outer(slopes, values["a"] - 2.0) + (values["b"] - 30.0)[None]


def test_deviations_are_those_of_linear_least_squares():
    x = jnp.array([-1.0, 0.5, 1.0, 3.0])
    unknowns = {"b": Unknown(0.0, 100.0), "a": Unknown(-1.0, 4.0)}
    found = identify(Partial(line, x), unknowns, key=jax.random.key(0), **FEW)
    J = np.stack([x, np.ones(4)], axis=1)
    ranges = np.array([5.0, 100.0])
    expected = np.sqrt(np.diag(np.linalg.inv(J.T @ J + np.diag(12 / ranges**2))))
    assert found.values == pytest.approx({"a": 2.0, "b": 30.0}, abs=1e-3)
    np.testing.assert_allclose([found.deviations["a"], found.deviations["b"]], expected)
    even = expected / (ranges * 12**-0.5)
    np.testing.assert_allclose([found.uncertainty["a"], found.uncertainty["b"]], even)
    assert found.converged == FEW["starts"]
    assert found.losses.shape == (20 + 1 + 8, FEW["starts"])
    left = x * (found.values["a"] - 2.0) + (found.values["b"] - 30.0)
    np.testing.assert_allclose(found.residuals, left, atol=1e-12)


@pytest.mark.slow
def test_of_a_product_only_the_product_is_told():
    def residual(values, follow):
        return jnp.stack([1e3 * (values["mass"] * values["gain"] - 6.0), values["other"] - 2.0])

    unknowns = {
        "mass": Unknown(1.0, 10.0, log=True),
        "gain": Unknown(1.0, 10.0, log=True),
        "other": Unknown(-1e3, 1e3),
        "idle": Unknown(0.0, 1.0),
    }
    found = identify(residual, unknowns, key=jax.random.key(1), **FEW)
    assert found.values["mass"] * found.values["gain"] == pytest.approx(6.0, rel=1e-6)
    # Two even spreads, of which the difference stays: half of the variance of each.
    assert found.uncertainty["mass"] == pytest.approx(0.5**0.5, rel=1e-3)
    assert found.uncertainty["idle"] == pytest.approx(1.0)
    assert found.uncertainty["other"] < 0.01


def test_starts_that_leave_the_numbers_take_no_other_along():
    def residual(values, follow):
        x = values["x"]
        return jnp.stack([jnp.sqrt(6.0 - x) * (x - 1.0), x - 1.0])  # NaN beyond 6

    found = identify(residual, {"x": Unknown(0.0, 10.0)}, key=jax.random.key(2), **FEW)
    assert np.isnan(found.losses).any() and found.converged < FEW["starts"]
    assert found.values["x"] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.slow
def test_residuals_are_traced_once_and_every_iteration_is_reported():
    traces, looks = [], []

    def residual(values, follow):
        traces.append(1)
        return (values["x"] - 3.0)[None]

    def report(done, total, losses):
        looks.append((done, total, losses.shape))

    identify(residual, {"x": Unknown(0.0, 10.0)}, key=jax.random.key(3), report=report, **FEW)
    assert len(traces) == 1
    assert looks == [(i + 1, 29, (FEW["starts"],)) for i in range(29)]


@pytest.mark.parametrize("optimizer", [optax.sgd(0.3), optax.lbfgs(0.3, linesearch=None)])
def test_other_optimizers_of_optax_descend_too(optimizer):
    """Each start by itself; 30 residuals of 1 are noise that no value lessens."""

    def residual(values, follow):
        x, y = values["x"], values["y"]
        told = jnp.stack([x - 3.0, 3 * (y - 4.0), x - y + 1.0])
        return jnp.concatenate([told, jnp.ones((30, x.shape[-1]))])

    unknowns = {"x": Unknown(2.0, 4.0), "y": Unknown(3.0, 5.0)}
    options = {"key": jax.random.key(0), "starts": 4, "iterations": 60, "polish": 0}
    found = identify(residual, unknowns, optimizer=optimizer, **options)
    least = 30 / 33
    assert (found.losses[-1] - least < 1e-3 * (found.losses[0].max() - least)).all()
    assert found.values["x"] == pytest.approx(3.0, abs=0.05)


def test_optimizers_that_search_lines_are_refused():
    with pytest.raises(ValueError, match="asks for more than a gradient"):
        identify(
            lambda values, follow: values["x"][None],
            {"x": Unknown(0.0, 1.0)},
            **{"key": jax.random.key(0), "optimizer": optax.lbfgs()},
        )


def straight(unknowns, polish=8):
    """The slope of a line of slope 3 through noiseless points."""
    x = jnp.linspace(0.0, 1.0, 20)

    def residual(values, follow):
        return 100.0 * x[:, None] * (values["slope"] ** 3 - 27.0)[None]

    options = {"key": jax.random.key(0), "starts": 4, "iterations": 1, "polish": polish}
    return identify(residual, {"slope": unknowns}, **options)


def test_a_search_says_which_numbers_lie_at_an_end_of_their_ranges_or_have_not_settled():
    found = straight(Unknown(0.0, 5.0))
    assert found.values["slope"] == pytest.approx(3.0, rel=1e-6) and found.remarks == ()
    (remark,) = straight(Unknown(0.0, 2.5)).remarks
    assert remark.startswith("slope lies at the upper end of its range, 2.5: widen it")
    ended = straight(Unknown(0.0, 100.0), polish=1)
    assert any(x.startswith("not settled: the last step moved slope by") for x in ended.remarks)
    assert ended.remarks[0] in str(ended)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_progress_bar_shows_the_best_start_on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    progress = Progress("knee")
    for done, losses in enumerate(([5.0, np.nan], [3.0, 4.0], [7.0, 6.0]), start=1):
        progress(done, 3, np.array(losses))
    shown = sys.stderr.getvalue()
    assert "knee: 100%" in shown and "3/3" in shown and "mean square 3" in shown


def test_shares_of_a_range_are_differences_or_factors():
    assert Unknown(2.0, 6.0).value(0.25) == pytest.approx(3.0)
    assert Unknown(1.0, 16.0, log=True).value(0.25) == pytest.approx(2.0)


STILL = np.zeros((3, 3, 1)), np.tile([[1.0], [0.0], [0.0], [0.0]], (3, 1, 1))
BAD_POSES = {
    "must have shapes": lambda p, q: Motion.from_poses(p[:, :2], q, dt=DT),
    "give two or more": lambda p, q: Motion.from_poses(p[:1], q[:1], dt=DT),
    "not finite": lambda p, q: Motion.from_poses(np.nan * p, q, dt=DT),
    "dt 0.0 must be positive": lambda p, q: Motion.from_poses(p, q, dt=0.0),
    "rotation 'euler' must be": lambda p, q: Motion.from_poses(p, q, dt=DT, rotation="euler"),
}


@pytest.mark.parametrize("message", BAD_POSES)
def test_poses_that_are_no_recording_are_refused(message):
    with pytest.raises(ValueError, match=message):
        BAD_POSES[message](*STILL)


BAD_SEARCHES = {
    "no unknowns": ({}, {}),
    "'x': lower 2.0 must be below upper 1.0": ({"x": Unknown(2.0, 1.0)}, {}),
    "'x': lower 0.0 must be below upper inf": ({"x": Unknown(0.0, np.inf)}, {}),
    "'x': lower 0.0 must be > 0": ({"x": Unknown(0.0, 1.0, log=True)}, {}),
    "starts 0 must be >= 1": ({"x": Unknown(0.0, 1.0)}, {"starts": 0}),
    "iterations 0 must be >= 1": ({"x": Unknown(0.0, 1.0)}, {"iterations": 0}),
    "no start of 16 gave finite": ({"x": Unknown(0.0, 1.0)}, {}),
}


@pytest.mark.parametrize("message", BAD_SEARCHES)
def test_searches_that_cannot_find_are_refused(message):
    unknowns, options = BAD_SEARCHES[message]

    def residual(values, follow):
        return jnp.nan * values["x"][None]

    with pytest.raises(ValueError, match=message):
        identify(residual, unknowns, key=jax.random.key(0), **(FEW | options))


def test_residuals_need_noise_and_something_to_compare(recorded):
    system, states, motion, _ = recorded
    with pytest.raises(ValueError, match="noise .* must be positive"):
        pose_residuals(system, states[1], motion, noise=(0.0, 1.0), dt=DT)
    short = jax.tree.map(lambda x: x[:1], motion)
    with pytest.raises(ValueError, match="at least two poses"):
        pose_residuals(system, states[1], short, noise=NOISE, dt=DT)
