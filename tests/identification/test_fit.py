"""Laws of fits: the truth is found in one or many shots, gaps are no data, deviations are true."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.algebra.spatial import error_twist
from jaxjoints.identification import Inertial, Positive, Recording, Unknown, fit
from jaxjoints.identification.fit import GAPS, Shots, _about, _cut, _tree_end, _tree_start
from jaxjoints.identification.recording import Simulation, prepared
from jaxjoints.simulate.step import DEFAULT_SCHEME

DT, SAMPLES, SUBSTEPS = 0.02, 60, 2
# What the finite steps of the search leave of an error, as a share.
FOUND = 1e-5
STIFFNESS, DAMPING = "joint.pivot.limits.stiffness", "joint.pivot.damping.damping"
TRUTH = {STIFFNESS: 20.0, DAMPING: 0.05}
UNKNOWNS = {STIFFNESS: Positive(3.0), DAMPING: Positive(3.0)}
KEY = jax.random.key(0)
# Shots start from (q, q̇), which do not say how far joints are open.
CLOSED = jj.SemiImplicitEuler(projections=2)
FEW = {"key": KEY, "substeps": SUBSTEPS, "starts": 4, "polish": 15}


def pendulum():
    """A bob on a rod that swings into a soft stop; numbers that a user would guess."""
    world = jj.SystemBuilder()
    bob = world.body("bob", mass=1.0, inertia=(0.1, 0.1, 0.02), com=(0.0, 0.0, -0.5))
    laws = [jj.Limits(upper=0.4, stiffness=30.0, damping=0.5), jj.Damping(0.1)]
    world.joint("pivot", jj.Hinge((0.0, 1.0, 0.0)), child=bob, laws=laws)
    return world.build()[0]


SYSTEM = pendulum()
ANGLE = jj.readout(SYSTEM, coordinates=True)


def simulated(truth, measure, q=-0.9, control=None, substeps=SUBSTEPS, **options):
    """What is measured of a motion of the true system."""
    real = SYSTEM.with_numbers(truth)
    state = real.state(q={"pivot": q})
    return jj.rollout(
        *(real, state, control),
        dt=DT / substeps,
        steps=SAMPLES * substeps,
        record_every=substeps,
        record=measure,
        **options,
    )[1]


@pytest.fixture(scope="module")
def angles():
    return simulated(TRUTH, ANGLE)


def recording(measured, q=-0.9, deviation=1e-3, **options):
    """A recording of angles with guesses of the whole motion."""
    path = np.concatenate([[[q]], np.asarray(measured.coordinates["pivot"])])
    return Recording.from_coordinates(
        path, dt=DT, measured=measured, deviation=deviation, **options
    )


ROUGHLY = {"q_within": 0.05, "qd_within": 1.0}


@pytest.mark.slow
def test_the_truth_is_found_from_a_start_that_is_known_roughly(angles):
    found = fit(SYSTEM, UNKNOWNS, recording(angles, **ROUGHLY), ANGLE, **FEW)
    for path, true in TRUTH.items():
        assert found.identified.values[path] == pytest.approx(true, rel=FOUND)
        assert found.identified.uncertainty[path] < 0.1
        assert found.system.number(path) == found.identified.values[path]
    start = found.identified.values["start of recording 0"]
    np.testing.assert_allclose(start, [-0.9, 0.0], atol=1e-5)
    assert found.identified.converged == FEW["starts"]


@pytest.mark.slow
def test_shots_find_what_one_shot_finds():
    measured = simulated(TRUTH, ANGLE, scheme=CLOSED)
    options = FEW | {"shots": 6, "starts": 1, "polish": 24}
    found = fit(SYSTEM, UNKNOWNS, recording(measured, **ROUGHLY), ANGLE, **options).identified
    assert found.values["start of recording 0"].shape == (12,)
    for path, true in TRUTH.items():
        assert found.values[path] == pytest.approx(true, rel=FOUND)


def problem(recordings, shots, measure=ANGLE):
    """The least-squares problem of a fit, and its unknowns."""
    simulation = Simulation(_tree_start, _tree_end, measure, SUBSTEPS, DEFAULT_SCHEME)
    unknowns = {path: u.about(SYSTEM.number(path)) for path, u in sorted(UNKNOWNS.items())}
    parts = []
    for i, one in enumerate(recordings):
        part, start = _cut("recording", prepared("recording", one, 1), shots)
        parts.append(part)
        if start is not None:
            unknowns[f"start of recording {i}"] = start
    return Shots(SYSTEM, tuple(parts), simulation), unknowns


@pytest.mark.parametrize("shots", [1, 3])
@pytest.mark.slow
def test_derivatives_are_differences_through_the_stop(angles, shots):
    both, unknowns = problem([recording(angles, q_within=0.1, qd_within=0.0)] * 2, shots)
    size = len(UNKNOWNS) + 2 * (1 + 2 * (shots - 1))
    z = jnp.asarray(np.random.default_rng(0).uniform(0.3, 0.7, (size, 1)))
    at = jax.jit(lambda z: both.linearized(unknowns, z, jnp.asarray(GAPS[0])))
    here, h = at(z), 1e-6
    slopes = []
    for i in range(size):
        costs = [at(z.at[i, 0].add(s * h)).cost[0] for s in (1, -1)]
        slopes.append((costs[0] - costs[1]) / (4 * h))
    scale = np.abs(slopes).max()
    np.testing.assert_allclose(here.gradient[:, 0], slopes, atol=1e-6 * scale)
    # Of residuals alone JᵀJ, which with the gaps is of full rank.
    assert np.linalg.eigvalsh(here.information[..., 0])[0] > 0


@pytest.mark.slow
def test_what_was_not_measured_has_no_weight(angles):
    holes = np.array(angles.coordinates["pivot"])
    holes[::3] = np.nan
    gaps = jj.Readings(coordinates={"pivot": holes})
    one = Recording(gaps, 1e-3, DT, [-0.9], [0.0])
    found = fit(SYSTEM, UNKNOWNS, one, ANGLE, **FEW)
    for path, true in TRUTH.items():
        assert found.identified.values[path] == pytest.approx(true, rel=FOUND)
    left = found.identified.residuals.reshape(SAMPLES)
    assert (left[::3] == 0).all() and np.abs(left).max() < 1e-2


def marker(system, state, info):
    """Where a marker on the bob is, the force in the pivot, and the speed."""
    tip = jj.dynamics.Site("bob", jj.Pose.along_z(-1.0)).pose(system, state).p
    return {"tip": tip, "force": jj.reaction(system, state, info, "pivot")[:3], "speed": info.qd}


@pytest.mark.slow
def test_masses_are_found_from_markers_reactions_and_known_torques():
    effort = np.sin(np.arange(SAMPLES) / 5.0)[:, None]
    held = jj.Control(effort=jnp.repeat(jnp.asarray(effort), SUBSTEPS, axis=0))
    truth = TRUTH | {"body.bob.mass": 1.3}
    recordings = []
    for q in (-0.9, 0.2):
        measured = simulated(truth, marker_record, q=q, control=held)
        deviation = {"tip": 1e-3, "force": 0.1, "speed": 1e-2}
        recordings.append(
            Recording(measured, deviation, DT, [q], [0.0], control=jj.Control(effort=effort))
        )
    unknowns = UNKNOWNS | {"body.bob.mass": Positive(2.0)}
    found = fit(SYSTEM, unknowns, recordings, marker, **FEW)
    for path, true in truth.items():
        assert found.identified.values[path] == pytest.approx(true, rel=FOUND)


def marker_record(state, info):
    """As `marker`, of the system with the true mass; places and forces of the motion alone."""
    real = SYSTEM.with_numbers(TRUTH | {"body.bob.mass": 1.3})
    return marker(real, state, info)


@pytest.mark.slow
def test_repeated_fits_of_equal_shapes_compile_once(angles):
    traces = []

    def counted(system, state, info):
        traces.append(1)
        return info.q

    q = np.asarray(angles.coordinates["pivot"])
    for seed in range(2):
        noisy = q + 1e-3 * np.random.default_rng(seed).normal(size=q.shape)
        fit(SYSTEM, UNKNOWNS, Recording(noisy, 1e-3, DT, [-0.9], [0.0]), counted, **FEW)
        if seed == 0:
            first = len(traces)
    # The second traces once more to compare shapes.
    assert len(traces) == first + 1


@pytest.mark.slow
def test_errors_are_as_large_as_the_deviations_say(angles):
    """100 recordings with noise: errors over deviations have mean square 1."""
    q, errors = np.asarray(angles.coordinates["pivot"]), []
    for seed in range(100):
        noise = 1e-2 * np.random.default_rng(seed).normal(size=q.shape)
        one = Recording(jj.Readings(coordinates={"pivot": q + noise}), 1e-2, DT, [-0.9], [0.0])
        found = fit(SYSTEM, UNKNOWNS, one, ANGLE, **FEW | {"starts": 1}).identified
        errors.append([(found.values[p] - true) / found.deviations[p] for p, true in TRUTH.items()])
    # Of 100 draws of a normal distribution: mean within three deviations of it, as mean square.
    assert np.abs(np.mean(errors, axis=0)).max() < 3 / 100**0.5
    assert np.abs(np.mean(np.square(errors), axis=0) - 1).max() < 3 * (2 / 100) ** 0.5


@pytest.mark.slow
def test_a_chaotic_motion_is_fitted_in_shots():
    """A double pendulum that turns over for 8 s: shots find what one shot does not."""
    world = jj.SystemBuilder()
    laws = [jj.Damping(0.001)]
    upper = world.body("upper", mass=1.0, inertia=(0.05, 0.05, 0.01), com=(0.0, 0.0, -0.5))
    lower = world.body("lower", mass=1.0, inertia=(0.05, 0.05, 0.01), com=(0.0, 0.0, -0.5))
    world.joint("pivot", jj.Hinge((0.0, 1.0, 0.0)), child=upper, laws=laws)
    elbow = {"parent": upper, "frame_D": (0.0, 0.0, -1.0), "laws": laws}
    world.joint("elbow", jj.Hinge((0.0, 1.0, 0.0)), child=lower, **elbow)
    system, _ = world.build()
    truth = {"body.lower.mass": 1.4, "joint.pivot.damping.damping": 0.002}
    real = system.with_numbers(truth)
    state, angles = real.state(q={"pivot": 2.6, "elbow": 0.4}), jj.readout(system, coordinates=True)
    options = {"dt": 0.005, "steps": 1600, "record_every": 4, "record": angles}
    measured = jj.rollout(real, state, scheme=CLOSED, **options)[1]
    q = np.concatenate([measured.coordinates[name] for name in ("pivot", "elbow")], axis=1)
    noise = 1e-3 * np.random.default_rng(0).normal(size=q.shape)
    noisy = jj.Readings(coordinates={"pivot": (q + noise)[:, :1], "elbow": (q + noise)[:, 1:]})
    path = np.concatenate([[[2.6, 0.4]], q + noise])
    one = Recording.from_coordinates(path, dt=0.02, deviation=1e-3, measured=noisy)
    unknowns = {path: Positive(3.0) for path in truth}
    options = {"key": KEY, "substeps": 4, "scheme": CLOSED, "starts": 4, "polish": 30}
    in_one = fit(system, unknowns, one, angles, **options).identified
    in_shots = fit(system, unknowns, one, angles, shots=20, **options).identified
    assert np.mean(np.square(in_one.residuals)) > 100
    assert np.mean(np.square(in_shots.residuals)) < 1.1
    for path, true in truth.items():
        assert abs(in_shots.values[path] - true) < 4 * in_shots.deviations[path]
        assert in_shots.deviations[path] < 0.05 * true


GOOD = {"measured": np.zeros((4, 1)), "deviation": 1.0, "dt": DT, "q": [0.0], "qd": [0.0]}
BAD_RECORDINGS = {
    "no finite number": {"measured": np.full((4, 1), np.nan)},
    "infinite numbers": {"measured": np.array([[0.0], [np.inf], [0.0], [0.0]])},
    "one length of time": {"measured": {"a": np.zeros((4, 1)), "b": np.zeros((5, 1))}},
    "deviation 0.0 must be positive": {"deviation": 0.0},
    "deviation must be a number, or a tree": {"deviation": (1.0, 2.0)},
    r"dt \[0.02, 0.02\] must be one positive": {"dt": [DT, DT]},
    r"q has shape \(3, 1\)": {"q": np.zeros((3, 1))},
    "qd is not finite": {"qd": [np.nan]},
    "q_within -1.0 must be": {"q_within": -1.0},
    "control effort has shape": {"control": jj.Control(effort=jnp.zeros((3, 1)))},
    "q has 2 numbers, and the system 1 coord.*start=… and end=…": {
        "q": [0.0, 0.0],
        "qd": [0.0, 0.0],
    },
    r"samples have shapes \[\(2,\)\]": {"measured": np.zeros((4, 2))},
    r"measured has \['a'\], and measure returns one array": {"measured": {"a": np.zeros((4, 1))}},
}


@pytest.mark.parametrize("message", BAD_RECORDINGS)
def test_recordings_that_do_not_fit_are_refused(message):
    one = Recording(**GOOD | BAD_RECORDINGS[message])
    with pytest.raises(ValueError, match=message):
        fit(SYSTEM, UNKNOWNS, one, angle_of, **FEW)


def angle_of(system, state, info):
    return info.q


def test_a_body_is_unknown_about_the_one_that_the_system_has():
    unknown = _about(SYSTEM, "body.bob", Inertial(2.0))
    middle = unknown.value(jnp.full(10, 0.5))
    assert middle.mass == pytest.approx(1.0) and middle.com[2] == pytest.approx(-0.5)


BAD_FITS = {
    "did you mean 'pivot'": {"unknowns": {"joint.pivto.limits.stiffness": Positive(2.0)}},
    "its values have shapes": {"unknowns": {"body.bob.com": Unknown(0.0, 1.0)}},
    "4 samples must be a multiple of shots 3": {"shots": 3},
    "2 shots need guesses": {"shots": 2},
    "give start and end together": {"start": _tree_start},
    "key 0 must be a key of jax.random.key": {"key": 0},
    "unknowns .* must be a mapping from names": {"unknowns": [STIFFNESS]},
    "body.bob.mass': Inertial is no range of numbers": {"unknowns": {"body.bob.mass": Inertial(2)}},
    "body.bob': Positive is no range of a body": {"unknowns": {"body.bob": Positive(2.0)}},
    "optimizer 'adam' must be .* optax.adam": {"iterations": 1, "optimizer": "adam"},
    "there are no recordings": {"recordings": []},
    "must be an identification.Recording": {"recordings": [None]},
}


def test_measures_and_times_that_cannot_be_are_refused():
    for measure in ("coordinates", lambda state: state.q):
        with pytest.raises(ValueError, match=r"must be a function of \(system, state, info\)"):
            fit(SYSTEM, UNKNOWNS, Recording(**GOOD), measure, **FEW)
    with pytest.raises(ValueError, match="dt 0.0 must be one positive number"):
        Recording.from_coordinates(np.zeros((4, 1)), dt=0.0, deviation=1e-3)


@pytest.mark.parametrize("message", BAD_FITS)
def test_fits_that_cannot_be_are_refused(message):
    options = {"unknowns": UNKNOWNS, "recordings": Recording(**GOOD)} | BAD_FITS[message]
    with pytest.raises(ValueError, match=message):
        fit(SYSTEM, options.pop("unknowns"), options.pop("recordings"), angle_of, **FEW | options)


@pytest.mark.slow
def test_a_loop_is_fitted_from_the_coordinates_that_are_free():
    world = jj.SystemBuilder()
    axis = jj.Hinge((0.0, 1.0, 0.0))
    crank = world.body("crank", mass=0.3, inertia=(0.01, 0.01, 0.01), com=(0.1, 0.0, 0.0))
    rod = world.body("rod", mass=0.5, inertia=(0.02, 0.02, 0.02), com=(0.25, 0.0, 0.0))
    slide = world.body("slide", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.joint("crank", axis, child=crank)
    world.joint("pin", axis, child=rod, parent=crank, frame_D=(0.2, 0.0, 0.0))
    world.joint("wrist", axis, child=slide, parent=rod, frame_D=(0.5, 0.0, 0.0))
    guide = jj.Slider((1.0, 0.0, 0.0))
    world.joint("guide", guide, child=slide, frame_D=(0.7, 0.0, 0.0), laws=jj.SpringDamper(5.0))
    system, guess = world.build(rough=True)

    def start(system, q, qd):
        state = jj.replicate(guess, q.shape[-1])
        return jj.assemble(system, state, q={"crank": q}, qd={"crank": qd})[0]

    def end(system, state):
        cut = system.coordinate("crank")
        return jj.coordinates(system, state)[cut], jj.coordinate_speeds(system, state)[cut]

    path = "joint.guide.spring_damper.stiffness"
    real = system.with_numbers({path: 8.0})
    first = jax.tree.map(lambda x: x[..., 0], start(real, jnp.array([[0.5]]), jnp.array([[2.0]])))
    measured = jj.rollout(
        *(real, first), dt=DT, steps=20, record=lambda state, info: state.position[0, 2:]
    )[1]
    one = Recording(measured, 1e-4, DT, [0.5], [1.9], qd_within=0.5)

    def place(system, state, info):
        return state.position[0, 2:]

    options = {"key": KEY, "starts": 2, "polish": 10, "start": start, "end": end}
    found = fit(system, {path: Positive(3.0)}, one, place, **options).identified
    assert found.values[path] == pytest.approx(8.0, rel=1e-4)
    np.testing.assert_allclose(found.values["start of recording 0"], [2.0], rtol=1e-4)


@jj.struct
class Lift(jj.Residual):
    """C stands `height` sin(3 t) above D and turns about z."""

    height: jax.Array
    dof: ClassVar[int] = 1

    def residual(self, T, t):
        e = error_twist(T)
        up = self.height * jnp.sin(3.0 * t)
        return jnp.concatenate([e[:2], (e[2] - up)[None], e[3:5]])


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, True], ids=["start by q", "own start"])
def test_shots_begin_at_their_times(own):
    """With a start by coordinates a joint that depends on time stands as it does then."""
    world = jj.SystemBuilder(gravity=(0.0, 0.0, 0.0))
    world.body("cage", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.joint("shaft", Lift(0.2), child="cage", laws=jj.Damping(0.02))
    system, _ = world.build()

    def measure(system, state, info):
        return state.time if own else state.position[2, 0]

    def start(system, q, qd):
        return system.state(q={"shaft": q}, qd={"shaft": qd})

    def end(system, state):
        return jj.coordinates(system, state), jj.coordinate_speeds(system, state)

    def record(state, info):
        return measure(system, state, info), jj.coordinates(system, state)

    begun = system.state(qd={"shaft": 2.0})
    measured, q = jj.rollout(system, begun, dt=DT, steps=12, record=record, scheme=CLOSED)[1]
    seen = Recording.from_coordinates(
        np.concatenate([[[0.0]], q]), dt=DT, measured=measured, deviation=1e-3, qd_within=0.1
    )
    path = "joint.shaft.coupling.height"
    given = {"start": start, "end": end} if own else {}
    few = {"key": KEY, "starts": 1, "polish": 6, "shots": 3}
    guessed = system.with_numbers({path: 0.15})
    found = fit(guessed, {path: Positive(3.0)}, seen, measure, **few, **given).identified
    if own:
        np.testing.assert_allclose(found.residuals, 0.0, atol=1e-9)
    else:
        assert found.values[path] == pytest.approx(0.2, rel=1e-4)
