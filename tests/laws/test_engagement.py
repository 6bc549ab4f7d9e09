"""Limits that engage and let go: ArtiSynth's sequences and scenes, chattering, derivatives."""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from matplotlib.image import imread

from jaxjoints import (
    ContactFriction,
    ContactLimits,
    Engagement,
    Limits,
    Lock,
    Rattle,
    SemiImplicitEuler,
    Slider,
    SystemBuilder,
    replace,
    rollout,
    step,
)
from jaxjoints.couplings.shapes import HalfSpace, Sphere
from jaxjoints.laws.transmissions import Weighted
from support import artisynth_scenes as scenes
from support import mechanisms, oracle
from support.examples import FOLDER, example
from support.mechanisms import X

SAME_POSE, SAME_MULTIPLIER = 1e-9, 1e-6
SAME_TWIST = 1e-9
# What the floor of a rough contact leaves [m, m/s].
FLOOR = 1e-5
# What a lock leaves of a speed of 0.5 m/s, a rounding of the mass in each step.
HELD = 1e-11

SEQUENCES = oracle.load("artisynth_engagement")


OUT_OF_REACH = 1e3  # a bound where ArtiSynth has none


def bounds(row):
    """Lower and upper bound of a limit, infinite where it has none."""
    lower, upper = row["lower"], row["upper"]
    return -np.inf if lower is None else lower, np.inf if upper is None else upper


def engaged_at_start(q, lower, upper):
    """E n with which the library starts at coordinates q, one environment for each."""
    system, _ = on_rail(Limits(-1.0, 1.0, engagement=Engagement()))
    (law,) = system.joint("rail").laws
    lower, upper = (np.clip(x, -OUT_OF_REACH, OUT_OF_REACH) for x in (lower, upper))
    law = replace(law, lower=jnp.asarray(lower), upper=jnp.asarray(upper))
    return system.with_joint("rail", laws=(law,)).state(q={"rail": jnp.asarray(q)[None]}).engagement


@pytest.fixture(scope="module")
def starts():
    """E n of the library at each recorded coordinate that was set anew, by case, limit, update."""
    keys, numbers = [], []
    for name, case in SEQUENCES.items():
        for i, row in enumerate(case["rows"]):
            for t in np.flatnonzero(row.get("reset", ())):
                keys.append((name, i, t))
                numbers.append((row["q"][t], *bounds(row)))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*starts at")
        found = engaged_at_start(*np.transpose(numbers))
    return dict(zip(keys, np.asarray(found[0]), strict=True))


@pytest.mark.parametrize("kind", sorted({case["sequence"] for case in SEQUENCES.values()}))
def test_engagement_sequences_of_artisynth(kind, starts):
    """E and the count after each update of each limit, from those before; where coordinates are set
    anew, as the library starts there.
    """
    rule, updates = Engagement(), 0
    for name, case in SEQUENCES.items():
        for i, row in enumerate(case["rows"]) if case["sequence"] == kind else ():
            before = 0.0
            for t, (q, speed) in enumerate(zip(row["q"], row["speed"], strict=True)):
                if "locked" in row and row["locked"][t]:
                    # ArtiSynth's row holds the coordinate and is no limit; then it is set anew.
                    before = np.nan
                    continue
                if (name, i, t) in starts:
                    before = starts[name, i, t]
                elif "updated" not in row or row["updated"][t]:
                    before = float(after(rule, before, q, speed, *bounds(row)))
                found = np.sign(before), abs(before)
                assert found == (row["engaged"][t], row["count"][t]), (name, t)
                updates += 1
    assert updates > 100


def locked_past_a_limit():
    """Coordinates and bounds of limits that ArtiSynth recorded past them while they were locked."""
    for case in SEQUENCES.values():
        for row in case["rows"]:
            for t in np.flatnonzero(row.get("locked", ())):
                lower, upper = bounds(row)
                if not lower < row["q"][t] < upper:
                    # Its row is that of the lock, and the limit does not count.
                    assert (row["engaged"][t], row["count"][t]) == (1, 0)
                    yield row["q"][t], lower, upper


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*starts at")
def test_a_locked_coordinate_stays_past_its_limit():
    """As in ArtiSynth, where a limit does not count while its coordinate is locked."""
    q, lower, upper = map(jnp.asarray, np.transpose(list(locked_past_a_limit())))
    assert q.size > 20
    lock, limits = Lock(0.0), Limits(-1.0, 1.0, engagement=Engagement())
    system, _ = on_rail([lock, limits])
    laws = {type(law): law for law in system.joint("rail").laws}
    lock = replace(laws[Lock], value=q)
    inside = (jnp.clip(x, -OUT_OF_REACH, OUT_OF_REACH) for x in (lower, upper))
    limits = replace(laws[Limits], **dict(zip(("lower", "upper"), inside, strict=True)))
    new = {Lock: lock, Limits: limits}
    laws = tuple(new[type(law)] for law in system.joint("rail").laws)
    system = system.with_joint("rail", laws=laws)
    state = system.state(q={"rail": q[None]}, qd={"rail": jnp.full_like(q[None], 0.5)})
    for _ in range(2):
        state, info = one_step(system, state)
        np.testing.assert_allclose(info.qd, 0.0, atol=HELD)
    np.testing.assert_allclose(state.position[0, 0], q, atol=HELD)


@jax.jit
def after(rule, before, q, speed, lower, upper):
    return rule.after(before, q, speed, lower, upper)


# All scenes: python tests/benchmarks/artisynth.py.
HANGING = (
    "slotted_hinge_limits_cbe",
    "hinge_chain3_limits_cbe",
    "hinge_limit_violated_at_t0",
    "hinge_bilateral_compliance",
    "fourbar_four_hinges_compliant",
    "coordinate_coupling_gear",
)
WEIGHTLESS = ("slider_two_free_bodies",)
TESTED = HANGING + WEIGHTLESS


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*starts at")
@pytest.mark.parametrize("name", TESTED)
def test_scenes_of_artisynth_one_step_ahead(name):
    scene = scenes.SCENES[name]
    found = scenes.after(TESTED, scene["dt"], tuple(scene["gravity"])).differences(scene)
    assert found.pose < SAME_POSE
    assert found.twist < SAME_TWIST
    assert found.multiplier < SAME_MULTIPLIER
    engaged, other = found.engaged
    assert other == 0
    assert (engaged > 20) == ("limit" in name or "slider" in name)


@pytest.fixture(scope="module")
def chattering():
    with example("chattering") as module:
        yield module


@pytest.mark.slow
def test_no_rule_lets_go_of_a_block_that_is_pressed_against_a_stop(chattering):
    """Projected onto the stop at each step, too, where rounding alone tells both sides apart."""
    found = chattering.pressed()
    assert [one.switches for one in found.values()] == [1, 1, 1]
    # A block that is held rests past the stop by the tolerance, 0.1 mm.
    assert found["engaged"].position[-1] == pytest.approx(-0.1, abs=1e-3)
    assert found["default"].position[-1] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
def test_oscillation_between_two_limits(chattering):
    found = chattering.between()
    switches = {name: one.switches for name, one in found.items()}
    assert switches["default"] <= 2 < switches["engaged"] < switches["once passed"]
    # The default never leaves its range; the others are thrown back and forth across it.
    assert np.abs(found["default"].position).max() < 2.0 + 1e-6


@pytest.mark.slow
def test_the_example_says_and_draws_what_it_found(chattering, tmp_path):
    """It asserts the numbers of switches itself."""
    chattering.main(["--output", str(tmp_path / "picture.png")])
    pixels = imread(tmp_path / "picture.png")
    assert pixels[..., :3].min() < 0.5 and (FOLDER / "chattering.png").stat().st_size < 100e3


def on_rail(laws, **options):
    laws = laws if isinstance(laws, list) else [laws]
    return mechanisms.slider(axis=X, mass=2.0, laws=laws, **options)


@jax.jit
def end(system, state, scale):
    """Position and speed after a step of a state scaled by a number."""
    state = replace(state, velocity=scale * state.velocity, position=scale * state.position)
    new, _ = step(system, state, dt=0.01, scheme=SemiImplicitEuler(projections=1))
    return new.position[0, 0], new.velocity[0, 0], new.engagement


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*starts at")
def test_derivatives_are_those_of_what_is_engaged():
    """Pressed softly past its stop, then free of it; what is carried has no derivative."""
    law = Limits(upper=0.1, stiffness=300.0, damping=4.0, engagement=Engagement())
    for q, engaged in ((0.12, -2.0), (0.05, 0.0)):
        system, state = on_rail(law, q=q, qd=0.8)
        assert state.engagement[0] == (-1.0 if engaged else 0.0)
        assert end(system, state, 1.0)[2][0] == engaged
        check_grads(lambda x: end(system, state, x)[:2], (1.0,), 1, modes=["rev"])  # noqa: B023
        assert jax.grad(lambda x: end(system, state, x)[2][0])(1.0) == 0.0  # noqa: B023


@pytest.mark.slow
def test_transmissions_engage_too():
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0), erp=0.0)
    for name, q, qd in (("a", 0.0, 1.0), ("b", 0.0, 2.0)):
        world.body(name, mass=1.0, inertia=(1.0, 1.0, 1.0))
        world.joint(name, Slider(X), child=name, q=q, qd=qd)
    law = Limits(upper=0.05, engagement=Engagement(tolerance=0.0))
    world.transmission("sum", Weighted((1.0, 1.0)), joints=("a", "b"), laws=law)
    system, state = world.build()
    assert state.engagement.shape == (3,)
    speeds = []
    for _ in range(4):
        state, info = one_step(system, state)
        speeds.append((float(state.engagement[2]), float(info.qd.sum())))
    # 3 m/s reach 0.06 m in two steps; from the third on, the sum is held at rest.
    np.testing.assert_allclose(speeds, [(0, 3), (-1, 3), (-2, 0), (-3, 0)], atol=1e-9)


# Of a ball on a contact that engages: gap, speed of the gap, gravity, and what it does.
CONTACTS = np.array(
    [
        (0.015, -1.0, 9.81),  # falls into the ground, is pushed back and rests there
        (0.015, -1.0, 0.0),  # likewise without weight
        (-0.004, 0.5, 0.0),  # leaves
        (-0.004, 0.1, 9.81),  # leaves too slowly to disengage, and is held above the ground
    ]
).T


def by_rule(law, gap, speed, gravity, dt, steps):
    """Gaps and E n after each step, (steps,) each: the rule of `Engagement` on one ball."""
    found, E = [], float(gap <= 0)
    for _ in range(steps):
        speed -= dt * gravity
        if E:
            speed = max(speed, -law.erp * min(gap + law.engagement.tolerance, 0.0) / dt)
        gap += dt * speed
        E = float(law.engagement.after(E, gap, speed, 0.0, None))
        found.append((gap, E))
    return np.array(found).T


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*starts at")
def test_a_contact_engages_and_lets_go_as_a_limit_does():
    dt, steps, mu, along, mass = 0.01, 40, 0.3, 2.0, 2.0
    law = ContactLimits(erp=0.3, engagement=Engagement(break_speed=0.2, tolerance=1e-3))
    rubbing = [
        ContactFriction(mu, coordinate=1, across=2),
        ContactFriction(mu, coordinate=2, across=1),
    ]
    radius, world = 0.1, SystemBuilder()
    for name, friction in (("smooth", []), ("rough", rubbing)):
        world.body(name, mass=mass, inertia=(1e6, 1e6, 1e6))
        world.contact(name, Sphere(radius), HalfSpace(), child=name, laws=[law, *friction])
    system, _ = world.build()
    gap, speed, gravity = CONTACTS
    zero = np.zeros_like(gap)
    system = replace(system, gravity=jnp.asarray([zero, zero, -gravity]))
    pose, velocity = [zero, zero, radius + gap], [along + zero, zero, speed, zero, zero, zero]
    state = system.state(
        pose=dict.fromkeys(("smooth", "rough"), np.array(pose)),
        velocity=dict.fromkeys(("smooth", "rough"), np.array(velocity)),
    )
    np.testing.assert_array_equal(state.engagement, np.broadcast_to(gap <= 0, (2, 4)))

    def record(state, info):
        return (
            state.position[2] - radius,
            state.engagement,
            state.velocity[0],
            info.contact_force[0],
        )

    run = partial(rollout, dt=dt, steps=steps, record=record)
    _, found = jax.jit(run)(system, state)
    found_gaps, engagement, speeds, forces = map(np.asarray, found)
    expected = np.stack([by_rule(law, *one, dt, steps) for one in CONTACTS.T], axis=-1)
    np.testing.assert_allclose(found_gaps[:, 0], expected[0], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(engagement[:, 0], expected[1])
    # Friction acts while the contact is engaged, and leaves what the floor of its rows leaves.
    np.testing.assert_allclose(found_gaps[:, 1], expected[0], rtol=0, atol=FLOOR)
    np.testing.assert_array_equal(engagement[:, 1], expected[1])
    force, speeds = forces[:, 1], np.concatenate([np.full((1, 4), along), speeds[:, 1]])
    before = np.concatenate([(gap <= 0)[None], expected[1][:-1] > 0])
    assert (force[~before] == 0).all() and (force[:, 0] > 0).any()
    np.testing.assert_allclose(-np.diff(speeds, axis=0), mu * force * dt / mass, atol=FLOOR)


@jax.jit
def one_step(system, state):
    return step(system, state, dt=0.01, scheme=SemiImplicitEuler())


def test_what_is_wrong_with_an_engagement_is_said():
    for law, words in (
        (Limits(0.0, 1.0, engagement=Engagement(-1.0)), "engagement break_speed -1.0 must be"),
        (Limits(0.0, 1.0, engagement=Engagement(0.0, np.nan)), "engagement tolerance nan must be"),
        (Limits(0.0, 1.0, engagement=0.1), "engagement 0.1 must be an Engagement"),
        (Limits(0.0, 1.0, engagement=Engagement(), restitution=0.5), "engagement and restitution"),
        (ContactLimits(engagement=Engagement(), speed=0.1), "engagement and speed"),
    ):
        with pytest.raises(ValueError, match=f"joint 'rail': .* on coordinate 0: .*{words}"):
            on_rail(law)
    engaged = Limits(0.0, 1.0, engagement=Engagement())
    with pytest.raises(ValueError, match="an engagement acts on coordinate 0 already; keep one"):
        mechanisms.slider(axis=X, laws=[engaged, engaged])
    system, state = on_rail(engaged, q=0.5)
    with pytest.raises(ValueError, match="Rattle: joint 'rail' has the law Limits"):
        step(system, state, dt=0.01, scheme=Rattle())
