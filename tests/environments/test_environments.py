"""Every task keeps the contract of `Environment`; restarts, limits, noise and batches."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from jaxjoints import (
    Cause,
    Control,
    Slider,
    SystemBuilder,
    environments,
    gaps,
    joint_errors,
    replace,
    rollout,
    struct,
    wrench_at,
)
from jaxjoints.environments import controller, randomized, scaled, uniform, unroll
from support.mechanisms import single

BATCH = 4
KEYS = jax.random.split(jax.random.key(0), BATCH)
# Batches of other sizes agree to rounding, which 0.2 s make larger.
ROUNDING = {"rtol": 1e-14, "atol": 1e-15}
NEAR = {"rtol": 1e-9, "atol": 1e-9}

# Packages that tasks from files need, and a file for the task that has none.
NEEDED = {"humanoid": ("gymnasium", "mujoco"), "go2": ("mujoco",)}
QUADRUPED = Path(__file__).parents[2] / "examples/data/quadruped.xml"
OPTIONS = {"go2": {"path": QUADRUPED, "pose": (0.0, 0.7, -1.4)}}


def wild(gain, obs, key):
    """Actions of noise and of what is seen, for a task with one action."""
    return jnp.tanh(gain * obs[:1] + jax.random.normal(key, (1,), obs.dtype))


def same(one, other, where=slice(None), **tolerance):
    """Assert that two trees are the same for some environments, to rounding by default."""
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
            x, y = jnp.moveaxis(x, -1, 0), jnp.moveaxis(y, -1, 0)
        np.testing.assert_allclose(x[..., where], y[..., where], **(ROUNDING | tolerance))


@pytest.fixture(scope="module", params=environments.TASKS)
def task(request):
    for package in NEEDED.get(request.param, ()):
        pytest.importorskip(package)
    return environments.make(request.param, **OPTIONS.get(request.param, {}))


@pytest.fixture(scope="module")
def begun(task):
    return task.reset(KEYS)


@pytest.fixture(scope="module")
def arm():
    """A swing-up of three steps."""
    return replace(environments.swing_up(), limit=3)


@pytest.fixture(scope="module")
def hanging(arm):
    return arm.reset(KEYS)


class TestTasks:
    @pytest.mark.slow
    def test_an_episode_begins_as_it_should(self, task, begun):
        assert begun.obs.shape == (task.observation_size, BATCH)
        assert np.isfinite(begun.obs).all() and np.ptp(begun.obs, axis=1).max() > 0
        assert begun.done.dtype == bool and not begun.done.any() and not begun.reward.any()
        for x in (begun.reward, begun.done, *begun.metrics.values()):
            assert x.shape == (BATCH,)
        assert set(begun.info) == {"key", "goal", "steps", "truncation", "cause"}

    @pytest.mark.slow
    def test_a_step_is_rewarded_by_its_parts(self, task, begun):
        action = jnp.full((task.action_size, BATCH), 0.3)
        after = task.step(begun, action)
        assert jax.tree.structure(after) == jax.tree.structure(begun)
        shapes = [jax.tree.map(jnp.shape, x) for x in (after, begun)]
        assert jax.tree.leaves(shapes[0]) == jax.tree.leaves(shapes[1])
        np.testing.assert_allclose(after.reward, sum(after.metrics.values()), rtol=1e-12)
        np.testing.assert_allclose(after.state.time, task.interval, rtol=1e-6)
        assert (after.info["steps"] == 1).all() and not after.done.any()
        assert (after.info["cause"] == Cause.NONE).all()
        assert np.isfinite(after.obs).all() and np.abs(after.obs - begun.obs).max() > 0

    @pytest.mark.slow
    def test_a_restart_is_a_fresh_reset_with_its_key(self, task, begun):
        done = jnp.arange(BATCH) % 2 == 0
        again = task.restart(replace(begun, done=done))
        fresh = task.reset(again.info["key"])
        same(again, fresh, done)
        others = jax.tree.leaves(again), jax.tree.leaves(replace(begun, done=done))
        for x, y in zip(*others, strict=True):
            assert (x[..., ~done] == y[..., ~done]).all()
        assert (again.obs[:, done] != begun.obs[:, done]).any()


class TestEpisodes:
    @pytest.mark.slow
    def test_steps_in_one_loop_are_steps_with_restarts(self, arm, hanging):
        end, seen = unroll(arm, hanging, wild, 0.5, steps=5)
        episode = hanging
        for t in range(5):
            same(episode.obs, seen.obs[t], **NEAR)
            after = arm.step(episode, seen.action[t])
            same(after.reward, seen.reward[t], **NEAR)
            same(after.obs, seen.next_obs[t], **NEAR)
            late = after.info["truncation"]
            assert (late == (t == 2)).all() and (after.done == late).all()
            assert (seen.done[t] == after.done).all() and (seen.truncation[t] == late).all()
            episode = arm.restart(after)
        same(end, episode, **NEAR)

    @pytest.mark.slow
    def test_noise_depends_on_keys_alone(self, arm, hanging):
        _, seen = unroll(arm, hanging, wild, 0.5, steps=5)
        _, few = unroll(arm, arm.reset(KEYS[:2]), wild, 0.5, steps=5)
        same(few.action, seen.action[..., :2], **NEAR)
        _, tiled = unroll(arm, hanging, wild, 0.5, steps=5, tile=2)
        same(tiled, seen, **NEAR)
        assert len(np.unique(seen.action)) == seen.action.size

    @pytest.mark.slow
    def test_other_numbers_compile_nothing_anew(self, arm, hanging):
        traces = []

        def counted(gain, obs, key):
            traces.append(1)
            return jnp.tanh(gain * obs[:1])

        unroll(arm, hanging, counted, 0.5, steps=5)
        before = len(traces)
        system = arm.system.with_numbers({"joint.shoulder.limits.stiffness": 20.0})
        other = replace(arm, system=system, dt=5e-3)
        unroll(other, arm.reset(KEYS[::-1]), counted, 0.7, steps=5)
        assert len(traces) == before

    @pytest.mark.slow
    def test_a_policy_defined_anew_is_told(self, arm, hanging):
        def push(gain):
            unroll(arm, hanging, lambda p, obs, key: gain * obs[:1], steps=1)

        for gain in range(4):
            push(gain)
        with pytest.warns(UserWarning, match="unroll: .*is defined anew.*parameters"):
            push(5.0)

    @pytest.mark.slow
    def test_an_end_is_no_truncation(self):
        task = replace(environments.cart_pole(), limit=1)
        episode = task.reset(KEYS[:2])
        q = episode.state.q.at[1].set(jnp.asarray([0.0, 0.7]))
        start = task.system.state(q={"pivot": q[1]})
        after = task.step(replace(episode, state=start), jnp.zeros((1, 2)))
        assert after.done.all()
        np.testing.assert_array_equal(after.info["truncation"], [True, False])

    @pytest.mark.slow
    def test_an_action_that_is_no_number_ends_an_episode_and_says_why(self, arm, hanging):
        action = jnp.zeros((1, BATCH)).at[0, 1].set(jnp.nan)
        after = arm.step(hanging, action)
        np.testing.assert_array_equal(after.done, [False, True, False, False])
        assert after.info["cause"][1] == Cause.CONTROL
        assert np.isfinite(after.reward).all() and np.isfinite(after.obs).all()

    @pytest.mark.slow
    def test_noise_of_observations_has_its_deviation(self, arm):
        keys = jax.random.split(jax.random.key(1), 500)
        off = replace(arm, noise=0.1).reset(keys).obs - arm.reset(keys).obs
        assert abs(np.std(off) - 0.1) < 0.01 and abs(np.mean(off)) < 0.01

    @pytest.mark.slow
    def test_a_policy_controls_a_rollout(self, arm, hanging):
        arm = replace(arm, limit=100)
        _, seen = unroll(arm, hanging, drawn_to, 0.5, steps=4)
        controls = controller(arm, hanging, drawn_to, 0.5)
        options = {"dt": arm.dt, "substeps": arm.substeps, "record_every": arm.substeps}
        steps = 4 * arm.substeps
        _, states, _ = rollout(arm.system, hanging.state, controls, steps=steps, **options)
        np.testing.assert_allclose(jnp.sin(states.q[:, 0]), seen.next_obs[:, 0], **NEAR)


def drawn_to(gain, obs, key):
    return jnp.tanh(gain * obs[:1])


@struct
class Blown(environments.Environment):
    """A cart of 2 kg that a wind of `goal` [N] pushes while it is left of 1 m."""

    def goal(self, key):
        return jax.random.uniform(key, (1,), self.start.time.dtype, 1.0, 2.0)

    def disturbance(self, state, goal):
        force = jnp.zeros(3, goal.dtype).at[0].set(jnp.where(state.q[0] < 1.0, goal[0], 0.0))
        return wrench_at(self.system, state, "cart", force=force)

    def observe(self, state, qd, goal):
        return jnp.concatenate([state.q, qd])

    def judge(self, state, qd, goal, action):
        return {"far": state.q[0]}, state.q[0] > 5.0


class TestDisturbance:
    def test_a_force_besides_the_action_accelerates_a_mass(self):
        world = SystemBuilder()
        cart = world.body("cart", mass=2.0, inertia=(0.1, 0.1, 0.1))
        world.joint("rail", Slider((1.0, 0.0, 0.0)), child=cart)
        task = Blown(*world.build(), 5.0, 0.01, actuated=("rail",), substeps=4)
        episode = task.reset(KEYS)
        after = task.step(episode, jnp.full((1, BATCH), 0.2))
        wind = episode.info["goal"][0]
        assert np.ptp(wind) > 0.1
        np.testing.assert_allclose(after.obs[1], (1.0 + wind) / 2.0 * 0.04, rtol=1e-12)
        # Beyond 1 m the action alone is left, in a controller of a rollout too.
        away = replace(episode, state=task.system.state(q={"rail": jnp.full((1, BATCH), 2.0)}))
        after = task.step(away, jnp.full((1, BATCH), 0.2))
        np.testing.assert_allclose(after.obs[1], 1.0 / 2.0 * 0.04, rtol=1e-12)
        for start, force in ((episode, wind), (away, 0.0)):
            controls = controller(task, start, idle)
            options = {"dt": task.dt, "substeps": 4, "steps": 4, "record_every": 4}
            end, *_ = rollout(task.system, start.state, controls, **options)
            np.testing.assert_allclose(end.velocity[0, 0], force / 2.0 * 0.04, rtol=1e-12)

    @pytest.mark.slow
    def test_a_platform_without_pushes_moves_by_its_servos_alone(self):
        task = environments.stewart_platform(push=0)
        episode = task.reset(KEYS)
        action = jax.random.uniform(jax.random.key(1), (6, BATCH), minval=-0.3, maxval=0.3)
        after = task.step(episode, action)
        at = task.places(*task.actuated)
        zero = jnp.zeros((task.system.coordinates, BATCH))
        control = Control(target=zero.at[at].set(task.effort[:, None] * action))
        options = {"dt": task.dt, "steps": task.substeps, "scheme": task.scheme}
        intervals = {"substeps": task.substeps}
        control = jax.tree.map(lambda x: x[None], control)
        state, _ = rollout(task.system, episode.state, control, **options, **intervals)
        same(after.state, state)
        # Between pushes, the task with pushes does the same, on the same circles.
        pushed = environments.stewart_platform()
        other = pushed.reset(KEYS)
        goal = other.info["goal"]
        np.testing.assert_array_equal(goal[:3], episode.info["goal"])
        assert goal.shape == (7, BATCH) and other.obs.shape == episode.obs.shape
        late = replace(other, info=other.info | {"goal": goal.at[3:5].set(0.5)})
        same(pushed.step(late, action).obs, after.obs)
        # A push from the start, towards x: each environment is moved that way alone.
        early = goal.at[3].set(0.0).at[4].set(1.5).at[5].set(0.0)
        early = replace(other, info=other.info | {"goal": early})
        moved = pushed.step(early, action).state.position - after.state.position
        x, y, _ = moved[:, pushed.system.body("platform")]
        assert x.min() > 1e-3 and np.abs(y).max() < 0.1 * x.min()

    @pytest.mark.slow
    def test_pushes_act_once_in_each_second(self):
        task = environments.stewart_platform(push=1000.0)
        goal = task.goal(jax.random.key(3))
        forces = []
        for t in np.arange(0.0, 2.0, 0.02):
            state = replace(task.start, time=jnp.asarray(t))
            forces.append(task.disturbance(state, goal)[:, task.system.body("platform")])
        forces = np.array(forces).reshape(2, 50, 6)
        assert not forces[..., 2:].any()
        size = np.linalg.norm(forces, axis=-1)
        # 0.1 s are five steps.
        assert ((np.abs(size - 1000.0) < 1e-9).sum(axis=1) == 5).all()
        assert ((size == 0).sum(axis=1) == 45).all()


def idle(parameters, obs, key):
    return jnp.zeros(1, obs.dtype)


class TestRandomized:
    DRAWS = {
        "joint.shoulder.limits.stiffness": scaled(0.5, 2.0),
        "body.arm": scaled(0.8, 1.2),
        "joint.shoulder.limits.lower": uniform(-0.1, 0.1),
    }

    @pytest.mark.slow
    def test_a_batch_of_mechanisms_is_each_of_them(self, arm, hanging):
        many = randomized(arm, KEYS, self.DRAWS)
        assert many.batch == (BATCH,) and many.observation_size == arm.observation_size
        _, seen = unroll(many, many.reset(KEYS), wild, 0.5, steps=5)
        for i in (0, 3):
            numbers = {
                path: jax.tree.map(lambda x, i=i: x[..., i], many.system.number(path))
                for path in self.DRAWS
            }
            one = replace(arm, system=arm.system.with_numbers(numbers))
            _, alone = unroll(one, one.reset(KEYS[i : i + 1]), wild, 0.5, steps=5)
            same(alone, jax.tree.map(lambda x, i=i: x[..., i : i + 1], seen), **NEAR)
        _, plain = unroll(arm, hanging, wild, 0.5, steps=5)
        assert np.abs(plain.obs - seen.obs).max() > 1e-3

    def test_numbers_depend_on_their_keys_and_paths_alone(self, arm):
        stiffness = "joint.shoulder.limits.stiffness"
        many = randomized(arm, KEYS, self.DRAWS).system.number(stiffness)
        few = randomized(arm, KEYS[:2], {stiffness: self.DRAWS[stiffness]}).system.number(stiffness)
        np.testing.assert_array_equal(many[:2], few)
        assert len(np.unique(many)) == BATCH and (many >= 30).all() and (many <= 120).all()


class TestBadInput:
    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda arm, e: environments.make("swingup"), "no task 'swingup'; did you mean 'swi"),
            (lambda arm, e: arm.reset(0), "key 0 must be a key of jax.random.key"),
            (lambda arm, e: arm.step(e, jnp.zeros((2, 4))), r"shape \(2, 4\); it must be \(1, 4\)"),
            (lambda arm, e: arm.step(e, jnp.zeros((4, 1))), "the batch is the last axis"),
            (lambda arm, e: arm.step(e, jnp.zeros((1, 4), int)), "type int.*give floats"),
            (lambda arm, e: arm.step(e, "left"), "must be numbers"),
            (lambda arm, e: unroll(arm, e, None, steps=1), "policy None must be a function"),
            (lambda arm, e: unroll(arm, e, lambda obs: obs, steps=1), r"function of \(parameters"),
            (lambda arm, e: unroll(arm, e.state, wild, steps=1), "episode .* must be an Episode"),
            (lambda arm, e: environments.controller(arm, None, wild), "episode None must be an Ep"),
            (lambda arm, e: arm.step(jnp.zeros((1, 4)), e), "episode .* must be an Episode"),
            (lambda arm, e: arm.restart(e.state), "SwingUp.restart: episode .* must be an Episode"),
            (lambda arm, e: environments.uniform("a", "b"), "uniform: lower 'a' must be a number"),
            (lambda arm, e: unroll(arm, e, wild, steps=0), "steps 0 must be >= 1"),
            (lambda arm, e: unroll(arm, e, wild, 1.0, steps=1, tile=5), "tile 5 must be"),
            (
                lambda arm, e: randomized(arm, KEYS, {"body.amr.mass": scaled(1, 2)}),
                "no body 'amr'; did you mean 'arm'",
            ),
            (lambda arm, e: randomized(arm, KEYS, {"body.arm.mass": 2.0}), "give a function"),
            (lambda arm, e: randomized(arm, 3, {}), "key 3 must be a key"),
            (lambda arm, e: scaled(2.0, 1.0), "lower 2.0 must not be above upper 1.0"),
        ],
    )
    def test_it_is_refused_with_the_remedy(self, arm, hanging, call, words):
        with pytest.raises(ValueError, match=words):
            call(arm, hanging)

    def test_a_batch_that_is_another_is_refused(self, arm):
        many = randomized(arm, KEYS, {"body.arm.mass": scaled(0.9, 1.1)})
        with pytest.raises(ValueError, match="a key for each"):
            many.reset(jax.random.key(0))
        with pytest.raises(ValueError, match="already"):
            randomized(many, KEYS, {})


@pytest.mark.slow
def test_gradient_through_a_soft_stop_is_that_of_finite_differences():
    task = environments.swing_up()
    start = task.system.state(q={"shoulder": jnp.asarray([-0.3, -0.35])}, qd={"shoulder": -2.0})
    episode = replace(task.reset(KEYS[:2]), state=start)
    system = task.system

    def earned(x):
        numbers = {"joint.shoulder.limits.stiffness": 60 * x[1], "body.arm.mass": x[2]}
        now = replace(task, system=system.with_numbers(numbers))
        _, seen = unroll(now, episode, drawn_to, x[0], steps=8)
        return jnp.sum(seen.reward), seen.next_obs

    at = jnp.asarray([0.5, 1.0, 1.0])
    earns = jax.jit(earned)
    # The stop is met and left again.
    angle = np.arcsin(np.asarray(earns(at)[1][:, 0]))
    assert angle.min() < -0.45 and angle[-1].max() > -0.35
    h = 1e-5
    expected = [
        (earns(at.at[i].add(h))[0] - earns(at.at[i].add(-h))[0]) / (2 * h) for i in range(3)
    ]
    found = jax.jit(jax.grad(lambda x: earned(x)[0]))(at)
    assert np.abs(np.asarray(expected)).min() > 1e-3
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.slow
def test_an_arm_bounces_off_a_hard_stop_with_its_restitution():
    for bounce, options in ((0.8, {}), (0.3, {"restitution": 0.3})):
        task = environments.swing_up(stiffness=None, **options)
        system = replace(task.system, gravity=jnp.zeros(3))
        system = system.with_numbers({"joint.shoulder.damping.damping": 0.0})
        task = replace(task, system=system)
        start = task.system.state(q={"shoulder": -0.35}, qd={"shoulder": -3.0})
        episode = replace(task.reset(KEYS[0]), state=start)
        after = task.step(episode, jnp.zeros(1))
        # A quarter of the speed; 0.05 rad before the stop, which it meets within the step.
        np.testing.assert_allclose(after.obs[2], bounce * 3.0 / 4.0, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["four_bar_leg", "biped"])
def test_legs_of_four_bars_meet_the_ground_in_single_precision(name):
    # A loop has redundant rows, and the friction of a foot follows another impulse.
    leg = environments.make(name)
    states = single(leg.reset(jax.random.split(jax.random.key(1), 64)).state)
    _, (cause, residual) = rollout(
        single(leg.system),
        states,
        dt=leg.dt,
        steps=300 * leg.substeps,
        record=Partial(lambda state, info: (info.cause, info.residual)),
        scheme=leg.scheme,
    )
    assert residual.dtype == jnp.float32
    assert (cause == Cause.NONE).all()
    # [m/s], without what covers the rounding of redundant rows up to 1e9.
    assert residual.max() < 1e-3


def test_efforts_may_be_a_list():
    task = environments.make("swing_up")
    listed = replace(task, effort=[2.0])
    assert listed.action_size == 1 and listed.control(jnp.ones(1)).effort == 2.0
    with pytest.raises(ValueError, match="SwingUp: effort 'much' must be numbers"):
        replace(task, effort="much")


@pytest.mark.slow
def test_a_gripper_closes_on_a_cube_and_lifts_it():
    """By a rule: close, and lift once the pads have met the cube. The loops stay closed."""
    task = environments.make("gripper")

    def rule(_, obs, key):
        closed, lift = jnp.ones((), obs.dtype), jnp.where(obs[1] > 0.4, 0.9, 0.0)
        return jnp.stack([closed, lift])

    episode, seen = unroll(task, task.reset(KEYS), rule, None, steps=60)
    lifted = np.asarray(seen.metrics["lifted"])
    assert lifted[0].max() < 0.01 and lifted[-1].min() == 1.0
    # The cube stands where the pads have brought it: in the middle, upright.
    x, tilt = np.asarray(seen.obs[-1, 4]), np.asarray(seen.obs[-1, 6])
    assert np.abs(np.asarray(seen.obs[0, 4])).max() > 0.05 > 1e2 * np.abs([x, tilt]).max()
    errors = np.max(np.abs(joint_errors(task.system, episode.state)), axis=1)
    assert errors.max() < 1e-4


@pytest.mark.slow
def test_legs_of_a_biped_may_be_swapped():
    """What left does right may do: trunk and reward stay."""
    task = environments.make("biped")
    episode = task.reset(KEYS)
    # Few steps: impacts at which the solver's passes end early depend on the order of rows.
    action = jax.random.uniform(jax.random.key(2), (5, 4, BATCH), minval=-1.0, maxval=1.0)
    legs = np.array([1, 0, 3, 2])
    # Height, tilt, hips, cranks; speeds of the trunk (3), of hips, of cranks.
    seen = np.array([0, 1, *(2 + legs), 6, 7, 8, *(9 + legs)])
    hips = episode.state.q[task.places("left hip", "right hip")]
    assert np.abs(hips[0] - hips[1]).max() > 0.05
    trunk = task.places("trunk")

    def mirrored(state):
        names = {"left hip": state.q[task.places("right hip")]}
        names |= {"right hip": state.q[task.places("left hip")], "trunk": state.q[trunk]}
        qd = {"trunk": episode.obs[6:9] * jnp.asarray([2.0, 2.0, 5.0])[:, None]}
        return task.system.state(q=names, qd=qd)

    other = replace(episode, state=mirrored(episode.state))
    lowest = []
    for x in action:
        episode, other = task.step(episode, x), task.step(other, x[legs])
        lowest.append(gaps(task.system, episode.state).min())
        np.testing.assert_allclose(other.obs[seen], episode.obs, **NEAR)
        np.testing.assert_allclose(other.reward, episode.reward, **NEAR)
    # Feet have met the ground, and the loops are closed.
    assert min(lowest) < 0
    assert np.max(np.abs(joint_errors(task.system, episode.state))) < 1e-4
