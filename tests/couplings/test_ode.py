"""Recordings of the Open Dynamics Engine: each recorded state is stepped once and meets the next,
and the first runs free to the end.

Body 1 of an ODE joint is the child. ODE's forces act as here, but it reads the errors of its hinge,
slider and fixed joint off their surfaces in its own way; couplings that read them so (`Ode…`) stand
in for the library's where all numbers are compared, and the library's are compared with those.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.algebra.spatial import retract
from support import oracle
from support.cases import mostly_slow
from support.ode_couplings import OdeHinge, OdeSlider
from support.ode_recordings import (
    SCALES,
    Bench,
    Run,
    benches,
    differences,
    scaled_error,
    slope,
    wrench_differences,
)

EQUAL = 1e-9
RUN_EQUAL = 1e-6
SPRING_EQUAL = 1e-12

LOWER_PAIRS = [
    *("ball/two/A", "ball/two/B", "ball/two/C"),
    *("ball/world/A", "ball/world/C", "ball/reverse/C"),
    *("hinge/two/A", "hinge/two/B", "hinge/two/C"),
    *("hinge/world/A", "hinge/world/C", "hinge/reverse/C"),
    *("slider/two/A", "slider/two/B", "slider/two/C"),
    *("slider/world/A", "slider/world/C", "slider/reverse/C"),
    *("fixed/two/A", "fixed/two/B", "fixed/two/C"),
    *("fixed/world/A", "fixed/world/C", "fixed/reverse/C"),
]
STOPS = [
    *("hinge_stops/world/hard/+", "hinge_stops/world/hard/-"),
    *("hinge_stops/world/erp.8/+", "hinge_stops/world/erp.5cfm1e-4/+"),
    *("hinge_stops/world/erp.1cfm1e-2/+", "hinge_stops/world/erp.1cfm1e-2/-"),
    *("hinge_stops/two/hard/+", "hinge_stops/two/hard/-"),
    *("hinge_stops/two/erp.8/+", "hinge_stops/two/erp.5cfm1e-4/+"),
    *("hinge_stops/two/erp.1cfm1e-2/+", "hinge_stops/two/erp.1cfm1e-2/-"),
    "hinge_locked_lo_eq_hi/two",
    *("slider_stops/world/hard/+", "slider_stops/world/hard/-"),
    *("slider_stops/world/erp.8/+", "slider_stops/world/erp.5cfm1e-4/+"),
    *("slider_stops/world/erp.1cfm1e-2/+", "slider_stops/world/erp.1cfm1e-2/-"),
    *("slider_stops/two/hard/+", "slider_stops/two/hard/-"),
    *("slider_stops/two/erp.8/+", "slider_stops/two/erp.5cfm1e-4/+"),
    *("slider_stops/two/erp.1cfm1e-2/+", "slider_stops/two/erp.1cfm1e-2/-"),
    "slider_locked_lo_eq_hi/two",
]
MECHANISMS = [
    *("ball_chain5/A", "ball_chain5/C", "hinge_chain5/A", "hinge_chain5/C"),
    *("fourbar_hinges_redundant/cfm1e-4", "fourbar_hinges_redundant/cfm1e-8"),
]
FREE = [
    "free_body/gyro=True/finite=False/damp=None",
    "free_body/gyro=False/finite=False/damp=None",
    "free_body/gyro=True/finite=True/damp=None",
    "free_body/gyro=True/finite=False/damp=0.02",
]


SOME = ("hinge/two/B", "slider/two/B", "fixed/two/B")
RUNS = tuple(Run(name) for name in LOWER_PAIRS + STOPS + MECHANISMS + FREE)


def bench_of(name: str) -> tuple[Bench, Run]:
    run = Run(name)
    return benches(RUNS)[run], run


def test_every_recording_is_used():
    assert sorted(run.name for run in RUNS) == sorted(oracle.load("ode_joints"))
    assert sorted(BILATERAL + ONE_SIDED) == sorted(SPRINGS)


@pytest.mark.parametrize("name", mostly_slow(LOWER_PAIRS + STOPS + MECHANISMS + FREE, default=SOME))
def test_one_step_from_each_recorded_state_meets_the_next(name):
    bench, run = bench_of(name)
    new, info = bench.after
    found = differences(bench, run, new)
    assert max(found.values()) < EQUAL, found
    assert info.ok.all()


@pytest.mark.parametrize("name", mostly_slow(LOWER_PAIRS + STOPS + MECHANISMS, default=SOME))
def test_joint_wrenches_are_those_ode_reports(name):
    assert wrench_differences(*bench_of(name)) < EQUAL


@pytest.mark.parametrize("name", mostly_slow(LOWER_PAIRS + STOPS + MECHANISMS + FREE, default=SOME))
def test_running_free_stays_on_the_recording(name):
    bench, run = bench_of(name)
    found = differences(bench, run, bench.running)
    assert max(found.values()) < RUN_EQUAL, found


# To which order in the error of the joint a step by the library's coupling differs from ODE's.
# Both have the same rows and vanish on the same surface. The offset: the library measures it along
# axes of D (fixed, slider) or of D turned by the angle (hinge), ODE along axes of C, which a tilt θ
# turns: θ times the offset, second order, unless the offset contains the distance slid, and then
# first. The turn: θ against sin θ (hinge) or 2 sin(θ/2), third order.
SLOPES = [
    ("hinge/two/C", "all", None, 2),
    ("hinge/two/C", "turn", None, 3),
    ("fixed/two/C", "all", None, 2),
    ("fixed/two/C", "turn", None, 3),
    ("slider/world/C", "all", 1.0, 1),
    ("slider/world/C", "all", 0.0, 2),
    ("slider/world/C", "turn", 0.0, 3),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "error", "at", "order"), SLOPES)
def test_the_librarys_errors_differ_from_odes_to_the_stated_order(name, error, at, order):
    by_own, by_ode = (
        benches(tuple(Run(n, as_ode=as_ode) for n in dict.fromkeys(case for case, *_ in SLOPES)))
        for as_ode in (False, True)
    )
    own, ode = by_own[Run(name, as_ode=False)], by_ode[Run(name)]
    before = scaled_error(own, Run(name, as_ode=False), error, at)
    after, as_ode = (bench.step(before)[0] for bench in (own, ode))
    change = jnp.concatenate([after.velocity - as_ode.velocity, after.omega - as_ode.omega])
    assert slope(change[:, own.bodies(Run(name, as_ode=False))]) == pytest.approx(order, abs=0.05)


@pytest.mark.parametrize(
    ("own", "ode"), [(jj.Hinge, OdeHinge), (jj.Slider, OdeSlider)], ids=["hinge", "slider"]
)
def test_the_librarys_coordinates_differ_from_odes_to_second_order(own, ode):
    # Hinge: ODE takes all of the turn for the angle, tilt θ included, which adds θ² cot(q/2) / 4.
    # Slider: the offset along the axis of D against that of C.
    at = jnp.array([0.4])
    error = jnp.array([0.3, -0.2, 0.0, 0.5, 0.4, 0.0])
    surface = jax.tree.map(
        lambda x: jnp.broadcast_to(x[:, None], (*x.shape, SCALES.size)), own().pose(at)
    )
    T = retract(surface, error[:, None] * SCALES[None])
    near, time = jnp.broadcast_to(at[:, None], (1, SCALES.size)), jnp.zeros(SCALES.size)
    by_own, by_ode = (jax.jit(coupling().rows)(T, near, time).q for coupling in (own, ode))
    assert slope(by_own - by_ode) == pytest.approx(2, abs=0.05)


SPRINGS = oracle.load("ode_spring_equiv")
BILATERAL = [name for name, case in SPRINGS.items() if case["stop"] == "bilateral"]
ONE_SIDED = [name for name, case in SPRINGS.items() if case["stop"] != "bilateral"]
SOFTNESS = ["erp and cfm", "stiffness and damping"]
SPRING_RUNS = tuple(
    Run(name, "ode_spring_equiv", as_ode=False, law=law, mirrored=mirrored)
    for name in SPRINGS
    for law in SOFTNESS
    for mirrored in (False, True)
)


@pytest.mark.slow
@pytest.mark.parametrize("mirrored", [False, True], ids=["as recorded", "mirrored"])
@pytest.mark.parametrize("softness", SOFTNESS)
@pytest.mark.parametrize("name", BILATERAL + ONE_SIDED)
def test_a_stop_is_the_implicit_euler_step_of_a_spring_and_damper(name, softness, mirrored):
    run = Run(name, "ode_spring_equiv", as_ode=False, law=softness, mirrored=mirrored)
    # Of the options of the hinges; the sliders do not turn.
    bench = benches(SPRING_RUNS, ("none", "exponential"))[run]
    q, qd = bench.after[1].q, bench.speeds
    at = bench.system.coordinate(f"{run}/0").start
    reference = run.case["implicit_euler_reference"]
    sign = -1.0 if mirrored else 1.0
    np.testing.assert_allclose(sign * q[at], reference["x"][1:], rtol=0, atol=SPRING_EQUAL)
    np.testing.assert_allclose(sign * qd[at], reference["v"][1:], rtol=0, atol=SPRING_EQUAL)
