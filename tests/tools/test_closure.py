"""Assembly: known positions from bad guesses, goals, limits, weights, velocities, derivatives."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from support import linkages
from support.differences import central, points_about, slopes_between
from support.mechanisms import CRANK, chain, four_bar, four_bar_angles, single
from support.refusals import refused

CLOSED = 1e-12  # what an assembled joint may be open by [m or rad]
KNOWN = 1e-11  # of positions, which repeat the rounding of errors a few times over [m]
FITTING = 1e-10  # of velocities [m/s, rad/s]


def assembled(system, state, values, **options):
    """State and closure of a program that compiles fast."""
    program = jax.jit(lambda state, q: jj.assemble(system, state, q=q, **options))
    return program(state, values)


def largest_error(closure):
    parts = (closure.joint_error, closure.transmission_error, closure.coordinate_error)
    return max(float(jnp.max(x, initial=0.0)) for x in parts)


@cache
def leg():
    bodies, ground, sketch = linkages.five_bar_leg()
    return linkages.linkage(bodies, ground, sketch), bodies


@cache
def leg_program():
    (system, _), _ = leg()
    foot = lambda at: {"foot": jj.goals.Point("rod", at, point=(0.5, 0.0, 0.0))}  # noqa: E731
    return jax.jit(lambda state, at: jj.assemble(system, state, goals=foot(at), strict=False))


@pytest.mark.slow
def test_a_five_bar_leg_puts_its_foot_where_it_can():
    (system, state), bodies = leg()
    near, away = linkages.five_bar_foot(-2.2, -0.7), 0.1 - 1.2j
    at = jnp.array([[near.real, away.real], [0.0, 0.0], [near.imag, away.imag]])
    states, closure = leg_program()(jj.replicate(state, 2), at)
    # Loops are closed where the foot cannot reach, too.
    assert jnp.max(closure.joint_error) < CLOSED
    np.testing.assert_array_equal(closure.closed, [True, True])
    np.testing.assert_array_equal(closure.reached, [True, False])
    reached, stretched = (jax.tree.map(lambda x, i=i: x[..., i], states) for i in range(2))
    np.testing.assert_allclose(linkages.places(system, reached, bodies)["T"], near, atol=KNOWN)
    angles = [reached.q[system.coordinate(name)][0] for name in ("A left", "E right")]
    np.testing.assert_allclose(angles, [-2.2, -0.7], atol=KNOWN)
    # Both halves of the leg stretched: 0.8 from pivots 0.1 beside the foot's line.
    least = 1.2 - np.sqrt(0.8**2 - 0.1**2)
    far = abs(linkages.places(system, stretched, bodies)["T"] - away)
    assert least - KNOWN < far < 1.1 * least


def test_what_does_not_close_is_named():
    world = jj.SystemBuilder()
    world.body("rod", mass=1.0, inertia=(0.1, 0.1, 0.1), pose=(0.3, 0.2, 0.1))
    world.joint("left", jj.Ball(), child="rod", frame_C=(-0.5, 0.0, 0.0))
    world.joint("right", jj.Ball(), child="rod", frame_C=(0.5, 0.0, 0.0), frame_D=(1.25, 0.0, 0.0))
    with pytest.raises(jj.AssemblyError, match="joint 'left' is open.* by 0.125 m or rad") as told:
        jj.assemble(*world.build(rough=True))
    assert "joint 'right'" in str(told.value) and "Start from another guess" in str(told.value)
    errors = told.value.report.joint_error
    assert not told.value.report.closed
    np.testing.assert_allclose(errors, 0.125, atol=1e-6)


@pytest.mark.slow
def test_a_cardan_shaft_turns_unevenly():
    bend, angle, speed = 0.5, 0.8, 3.0
    system, guess = linkages.cardan_shaft(bend)
    guess = system.state(q={"in": 0.4, "out": 1.1}, rough=True)
    program = jax.jit(lambda state: jj.assemble(system, state, q={"in": angle}, qd={"in": speed}))
    state, closure = program(guess)
    assert largest_error(closure) < CLOSED
    qd = jj.coordinate_speeds(system, state)[system.coordinate("out")][0]
    # The yoke of the first shaft begins along z.
    rate = np.cos(bend) / (1 - (np.sin(bend) * np.cos(angle)) ** 2)
    np.testing.assert_allclose(qd, speed * rate, atol=FITTING)


@pytest.mark.slow
@pytest.mark.parametrize("angle", [pytest.param(0.3, marks=pytest.mark.slow), 2.5])
def test_a_slider_crank_stands_and_moves_by_its_formula(angle):
    crank, rod, speed = 0.3, 0.8, 2.0
    system, state = linkages.slider_crank(crank, rod)
    state, closure = slider_crank_program()(state, angle, speed)
    assert largest_error(closure) < CLOSED
    root = np.sqrt(rod**2 - (crank * np.sin(angle)) ** 2)
    at = system.coordinate("guide")
    np.testing.assert_allclose(state.q[at], [crank * np.cos(angle) + root], atol=KNOWN)
    rate = -crank * np.sin(angle) * (1 + crank * np.cos(angle) / root) * speed
    np.testing.assert_allclose(jj.coordinate_speeds(system, state)[at], [rate], atol=FITTING)


@cache
def slider_crank_program():
    system, _ = linkages.slider_crank()
    return jax.jit(
        lambda state, angle, speed: jj.assemble(system, state, q={"O": angle}, qd={"O": speed})
    )


@cache
def knee_program():
    """The knee at a flexion that changes at a speed, with a ligament of a length."""
    system, _ = linkages.knee()

    def program(state, flexion, speed, length):
        changed = system.with_joint("ligament", length=length)
        return jj.assemble(changed, state, q={"knee": flexion}, qd={"knee": speed}, strict=False)

    return jax.jit(program)


@pytest.mark.slow
def test_a_patella_follows_its_ligament_through_a_flexion_and_back():
    system, _ = linkages.knee()
    there = np.radians(np.arange(0.0, 121.0, 15.0))
    flexion, count = np.concatenate([there, there[::-1]]), len(there)
    # On the way back from another guess.
    guess = {"knee": np.repeat([0.6, 1.4], count), "groove": np.repeat([-0.4, 0.6], count)}
    state = system.state(q=guess, rough=True)
    assert jnp.max(jj.joint_errors(system, state)) > 0.01
    state, closure = knee_program()(state, flexion[None], 2.0, linkages.LIGAMENT)
    assert closure.closed.all() and closure.reached.all() and largest_error(closure) < CLOSED
    at = system.coordinate("groove")
    found, speeds = (np.asarray(x[at][0]) for x in (state.q, jj.coordinate_speeds(system, state)))
    exact = [linkages.way_of_patella(angle) for angle in there]
    np.testing.assert_allclose(found, [*exact, *exact[::-1]], rtol=0, atol=KNOWN)
    assert (np.diff(found[:count]) > 0).all() and found[count - 1] - found[0] > 0.8
    h = 1e-4
    for i, angle in enumerate(there):
        ends = [linkages.way_of_patella(angle + side * h) for side in (1, -1)]
        np.testing.assert_allclose(speeds[i], (ends[0] - ends[1]) / h, rtol=1e-5)


@pytest.mark.slow
def test_the_place_of_a_patella_has_the_slopes_of_differences():
    """By the flexion and by the length of the ligament."""
    system, guess = linkages.knee()

    def place(numbers):
        state, _ = knee_program()(guess, numbers[:1], 1.0, numbers[1])
        return jnp.concatenate([state.position[:, system.body("patella")], state.q])

    @jax.jit
    @jax.vmap
    def along(at, direction):
        return jax.jvp(place, (at,), (direction,))

    steps = [1e-3, 1e-5]
    for angle in np.radians([10.0, 75.0, 115.0]):
        at = np.array([angle, linkages.LIGAMENT])
        points = np.concatenate([[at, at], points_about(at, steps)])
        values, slopes = along(points, np.resize(np.eye(2), points.shape))
        expected = slopes_between(values[2:], steps)
        np.testing.assert_allclose(slopes[:2], expected, rtol=1e-7, atol=1e-7)


def arm(**laws):
    """Two links of 1 m about y, the elbow with limits."""
    world = jj.SystemBuilder()
    for name in ("upper", "lower"):
        world.body(name, mass=1.0, inertia=(0.1, 0.1, 0.1), com=(0.5, 0.0, 0.0))
    world.joint("shoulder", jj.Hinge(linkages.NORMAL), child="upper")
    frames = {"parent": "upper", "frame_D": (1.0, 0.0, 0.0)}
    world.joint("elbow", jj.Hinge(linkages.NORMAL), child="lower", **frames, **laws)
    return world.build(rough=True)


@cache
def reaching():
    system, _ = arm(laws=jj.Limits(lower=0.1, upper=2.5))

    def program(state, at):
        tip = jj.goals.Point("lower", at, point=(1.0, 0.0, 0.0))
        return jj.inverse_kinematics(system, state, {"tip": tip})

    return jax.jit(program)


@pytest.mark.slow
def test_hundreds_of_seeds_reach_a_point_within_limits():
    system, _ = arm(laws=jj.Limits(lower=0.1, upper=2.5))
    rng = np.random.default_rng(0)
    seeds = 256
    start = {"shoulder": rng.uniform(-3, 3, seeds), "elbow": rng.uniform(0.1, 2.5, seeds)}
    state = system.state(q=start, rough=True)
    state, closure = reaching()(state, jnp.array([0.7, 0.0, 0.9]))
    assert closure.closed.all()
    assert closure.reached.mean() > 0.85
    elbow = np.asarray(state.q[system.coordinate("elbow")][0])
    far = np.hypot(0.7, 0.9)
    # Of the two solutions the one with the elbow on the side that limits allow.
    expected = np.arccos((far**2 - 2) / 2)
    np.testing.assert_allclose(elbow[closure.reached], expected, atol=KNOWN)


@pytest.mark.slow
def test_limits_hold_where_a_point_is_beyond_them():
    system, _ = arm(laws=jj.Limits(lower=0.1, upper=2.5))
    # Nearer to the shoulder than an elbow of 2.5 rad lets it come.
    state = system.state(q={"elbow": np.full(256, 1.0)})
    state, closure = reaching()(state, jnp.array([0.3, 0.0, 0.0]))
    assert closure.closed.all() and not closure.reached.any()
    np.testing.assert_allclose(state.q[system.coordinate("elbow")], 2.5, atol=1e-2)
    least = np.sqrt(2 + 2 * np.cos(2.5)) - 0.3
    assert (closure.goal_error[0] > least - KNOWN).all()


@pytest.mark.slow
def test_environments_do_not_depend_on_each_other():
    (_, state), _ = leg()
    at = jnp.array([[0.1, 0.15, 0.1], [0.0] * 3, [-0.6, -0.5, -1.2]])
    together, _ = leg_program()(jj.replicate(state, 3), at)
    for i in range(3):
        alone, _ = leg_program()(state, at[:, i])
        np.testing.assert_allclose(together.position[..., i], alone.position, atol=CLOSED)


@pytest.mark.slow
def test_float32_closes_to_its_rounding():
    system, state = four_bar()
    bad = single(system.state(q={"A": 0.7, "B": 1.0, "D": 2.5}, rough=True))
    state, closure = assembled(single(system), bad, {"A": jnp.float32(0.7)})
    assert state.position.dtype == jnp.float32 and closure.closed
    assert largest_error(closure) < 2e-6

    def place(angle):
        return jj.assemble(single(system), bad, q={"A": angle})[0].position[:, 1]

    slope = jax.jit(jax.jacfwd(place))(jnp.float32(0.7))
    ends = [place_of_coupler(0.7 + h) for h in (1e-3, -1e-3)]
    np.testing.assert_allclose(slope[::2], (ends[0] - ends[1]) / 2e-3, atol=1e-3)


def place_of_coupler(crank):
    """(x, z) of the centre of the four-bar's coupler."""
    _, coupler, _ = four_bar_angles(crank)
    turned = [np.array([np.cos(a), np.sin(a)]) for a in (crank, coupler)]
    return CRANK * turned[0] + 0.4 * turned[1]


@cache
def weighted():
    system, _ = four_bar()
    return jax.jit(lambda state, w, qd: jj.assemble(system, state, weights={"A": w}, qd={"D": qd}))


@pytest.mark.slow
def test_a_heavy_coordinate_stays():
    system, _ = four_bar()
    guess = system.state(q={"A": 0.7, "B": 1.0, "D": 2.5}, qd={"A": 1.0}, rough=True)
    moved = []
    for weight in (0.0, 10.0, 1e8):
        state, closure = weighted()(guess, weight, 0.5)
        assert closure.closed and jnp.max(closure.joint_error) < CLOSED
        moved.append(abs(float(state.q[0]) - 0.7))
    assert moved[0] > 0.1 > moved[1] > 1e-6 > moved[2]
    angles = np.array(four_bar_angles(state.q[0]))
    np.testing.assert_allclose(state.q[system.coordinate("D")], angles[2:], atol=KNOWN)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacrev, pytest.param(jax.jacfwd, marks=pytest.mark.slow)])
def test_curves_of_a_coupler_have_the_slopes_of_differences(mode):
    """By lengths of bars, through the implicit function theorem."""
    system, _ = four_bar()
    guess = system.state(q={"A": 0.7, "B": 1.0, "D": 2.5}, rough=True)

    def tracer(lengths):
        crank, coupler, rocker, angle = lengths
        half = lambda x: (x / 2, 0.0 * x, 0.0 * x)  # noqa: E731
        at = lambda x, sign: jnp.stack(half(sign * x))  # noqa: E731
        changed = system.with_joint("A", frame_C=at(crank, -1))
        changed = changed.with_joint("B", frame_C=at(coupler, -1), frame_D=at(crank, 1))
        changed = changed.with_joint("C", frame_C=at(coupler, 1), frame_D=at(rocker, 1))
        changed = changed.with_joint("D", frame_C=at(rocker, -1))
        state, _ = jj.assemble(changed, guess, q={"A": angle}, qd={"A": 1.0})
        return jnp.concatenate([state.position[:, 1], state.velocity[:, 1], state.q])

    lengths = jnp.array([CRANK, 0.8, 0.6, 0.7])
    values = jax.jit(jax.vmap(tracer))
    expected = central(values, np.asarray(lengths), np.full(4, 1e-3))
    slopes = np.asarray(jax.jit(mode(tracer))(lengths)).T
    np.testing.assert_allclose(slopes, expected, rtol=1e-7, atol=1e-7)


def test_bad_arguments_are_refused_by_name():
    system, state = chain(2)
    with refused("joint 'elbow'", "'0'"):
        jj.assemble(system, state, q={"elbow": 1.0})
    with refused("goal 'tip'", "no goal", "goals.Point"):
        jj.assemble(system, state, goals={"tip": (0.0, 0.0, 1.0)})
    with refused("goal 'tip'", "body 'hand' is no body", "'1'"):
        jj.assemble(system, state, goals={"tip": jj.goals.Point("hand", (0.0, 0.0, 1.0))})
    with refused("goal 'tip'", "at position", "(3,)"):
        jj.assemble(system, state, goals={"tip": jj.goals.Point("1", (0.0, 1.0))})
    with refused("joint '0'", "weights", ">= 0"):
        jj.assemble(system, state, weights={"0": -1.0})
    with refused("assemble", "iterations 0"):
        jj.assemble(system, state, iterations=0)


@pytest.mark.slow
def test_a_search_ends_at_each_of_many_angles_that_cannot_be_reached():
    """Rounded anew for each decision, one of these went on for ever."""
    crank, coupler, rocker, ground, count = 0.10, 0.35, 0.20, 0.22, 72
    hinge, world = jj.Hinge((0.0, -1.0, 0.0)), jj.SystemBuilder()
    for name, length in (("crank", crank), ("coupler", 0.25), ("rocker", rocker)):
        inertia = (1e-5, length**2 / 20, length**2 / 20)
        world.body(name, mass=0.5, inertia=inertia, com=(length / 2, 0.0, 0.0))
    world.joint("motor", hinge, child="crank")
    world.joint("knee", hinge, child="coupler", parent="crank", frame_D=(crank, 0.0, 0.0))
    ends = {"frame_C": (coupler, 0.0, 0.0), "frame_D": (rocker, 0.0, 0.0)}
    world.joint("link", hinge, child="coupler", parent="rocker", **ends)
    world.joint("pivot", hinge, child="rocker", frame_D=(ground, 0.0, 0.0))
    system, _ = world.build(rough=True)
    guess = system.state(q={"motor": 1.0, "knee": -0.6, "pivot": 1.6}, rough=True)
    angles = np.linspace(0.0, 2 * np.pi, count, endpoint=False)
    _, closure = jj.assemble(
        system, jj.replicate(guess, count), q={"motor": angles[None]}, strict=False
    )
    # The triangle of coupler, rocker and what the crank leaves of the ground.
    far = np.hypot(ground - crank * np.cos(angles), crank * np.sin(angles))
    exists = (far >= coupler - rocker) & (far <= coupler + rocker)
    assert 0 < exists.sum() < count
    np.testing.assert_array_equal(closure.closed & closure.reached, exists)
    assert closure.iterations.max() <= 200
