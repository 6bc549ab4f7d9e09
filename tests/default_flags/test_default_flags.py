"""The core of the library as users have it: float32, promotion, and XLA's optimizations.

All other tests run in float64 with strict promotion and compile without optimizations, which this
process has set already: a session in a process of its own does what is checked here.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from default_flags import session
from default_flags.session import DT, FLOOR, MASS, SPEED, START, STEPS, STIFFNESS, G

FOLDER = Path(__file__).parent
SINGLE = float(np.finfo(np.float32).eps)
# Numbers of order one after a hundred steps, each of which rounds some times.
ROUNDED = 1000 * SINGLE


def found_by(*parts):
    """What `session.py` prints when it runs some of its functions."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("JAX_")},
        "JAX_PLATFORMS": os.environ["JAX_PLATFORMS"],
        "PYTHONPATH": str(FOLDER.parents[1]),
    }
    environment.pop("XLA_FLAGS")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / "session.py"), *parts],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found():
    return found_by("build_step_and_rollout")


@pytest.fixture(scope="module")
def looped():
    return found_by("loop_with_a_stop")


def fall(steps):
    """Height and speed of the block after steps of free fall."""
    return START + SPEED * steps * DT - G * DT**2 * steps * (steps + 1) / 2, SPEED - G * DT * steps


def test_the_flags_are_those_of_jax(found):
    expected = {"xla": "", "x64": False, "promotion": "standard", "ranks": "allow"}
    assert found["flags"] == expected


@pytest.mark.parametrize("what", ["built", "rolled"])
def test_numbers_have_single_precision(found, what):
    assert found[what] == ["float32"]


def test_a_step_falls_as_its_formula_says(found):
    height, speed, ok = found["step"]
    np.testing.assert_allclose([height, speed], fall(1), rtol=ROUNDED)
    assert ok


def test_a_rollout_falls_onto_its_stop_and_rests_there(found):
    heights, free = np.array(found["heights"]), fall(np.arange(1, STEPS + 1))[0]
    reached = np.argmax(free < FLOOR)
    np.testing.assert_allclose(heights[:reached], free[:reached], atol=ROUNDED)
    np.testing.assert_allclose(heights[reached:], FLOOR, atol=ROUNDED)


def test_a_stop_bears_the_weight_of_what_rests_on_it(found):
    force = np.array(found["stop"])
    reached = np.argmax(fall(np.arange(1, STEPS + 1))[0] < FLOOR)
    np.testing.assert_allclose(force[:reached], 0.0, atol=1e-3)
    # One step ends on the stop, the next one ends at rest.
    np.testing.assert_allclose(force[reached + 2 :], MASS * G, rtol=1e-3)
    impulse = MASS * (G * STEPS * DT - SPEED)
    np.testing.assert_allclose(DT * np.sum(force), impulse, rtol=ROUNDED)


def test_energy_is_read_along_the_way(found):
    """In free fall half of m g² h² is lost in each step."""
    steps = np.arange(1, 10)
    height, speed = fall(steps)
    expected = MASS * (G * height + speed**2 / 2)
    np.testing.assert_allclose(np.array(found["energies"])[:9], expected, rtol=ROUNDED)


@pytest.mark.slow
def test_derivatives_have_single_precision(looped):
    assert looped["differentiated"] == ["float32"]


@pytest.mark.slow
def test_a_rod_on_two_rails_turns_at_its_speed_until_its_stop(looped):
    free = session.ANGLES[0] + session.TURNS * session.TURNING * session.FINE
    w, x, y, z = np.array(looped["turned"])
    angles = 2 * np.arctan2(z, w)
    np.testing.assert_allclose([x, y], 0.0, atol=ROUNDED)
    np.testing.assert_allclose(angles, [free, session.UPPER], atol=ROUNDED)
    centres = session.LENGTH / 2 * np.array([-np.cos(angles), np.sin(angles), 0 * angles])
    np.testing.assert_allclose(looped["centres"], centres, atol=ROUNDED)


@pytest.mark.slow
def test_gradients_through_a_loop_and_a_stop_are_those_of_the_formulas(looped):
    """Of the height L/2 sin φ of a rod's centre, by gravity, the stop and the mass.

    (I + m L²/4) φ'' = m L/2 (g_x sin φ + g_y cos φ), where φ is φ₀ + ω t without gravity. A loop
    turns with an error of first order in the step: slopes of the step and of its half are
    extrapolated.
    """
    half, ω, left = session.LENGTH / 2, session.TURNS, session.TURNING * session.FINE
    start, end = session.ANGLES[0], session.ANGLES[0] + ω * left
    share = MASS * half / (session.MOMENT + MASS * half**2)
    # ∫ (T - t) sin φ dt and ∫ (T - t) cos φ dt from 0 to T.
    pushed = [
        left * np.cos(start) / ω - (np.sin(end) - np.sin(start)) / ω**2,
        -left * np.sin(start) / ω - (np.cos(end) - np.cos(start)) / ω**2,
    ]
    by_gravity = half * np.cos(end) * share * np.array(pushed)
    whole, finer = np.array(looped["by gravity"])[:, :2, 0]
    np.testing.assert_allclose(2 * finer - whole, by_gravity, rtol=ROUNDED)
    by_stop = [0.0, half * np.cos(session.UPPER)]
    np.testing.assert_allclose(looped["by stop"], by_stop, atol=ROUNDED)
    np.testing.assert_allclose(looped["by mass"], 0.0, atol=ROUNDED)


@pytest.mark.slow
def test_a_stiffness_is_identified():
    found = found_by("identify")
    assert found["converged"] > 0
    assert found["stiffness"] == pytest.approx(STIFFNESS, rel=1e-3)
