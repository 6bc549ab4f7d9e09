"""The library under JAX's default flags, as users have them: float32, promotion of types and ranks.

All other tests run in float64 with strict promotion, which this process has set already: one
session in a process of its own does what is checked here.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from default_flags.session import CRANK_ANGLE, DT, FLOOR, MASS, SPEED, START, STEPS, STIFFNESS, G

FOLDER = Path(__file__).parent
SINGLE = float(np.finfo(np.float32).eps)
# Numbers of order one after a hundred steps, each of which rounds some times.
ROUNDED = 1000 * SINGLE


@pytest.fixture(scope="module")
def found():
    """What `session.py` prints."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("JAX_")},
        "JAX_PLATFORMS": os.environ["JAX_PLATFORMS"],
        "PYTHONPATH": str(FOLDER.parents[1]),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / "session.py")],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fall(steps):
    """Height and speed of the block after steps of free fall."""
    return START + SPEED * steps * DT - G * DT**2 * steps * (steps + 1) / 2, SPEED - G * DT * steps


def test_the_flags_are_those_of_jax(found):
    assert found["flags"] == {"x64": False, "promotion": "standard", "ranks": "allow"}


@pytest.mark.parametrize("what", ["built", "rolled", "differentiated"])
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


def test_gradients_are_those_of_the_formula(found):
    by_gravity, by_mass = found["slopes"]
    np.testing.assert_allclose(by_gravity, DT**2 * 10 * 11 / 2, rtol=ROUNDED)
    np.testing.assert_allclose(by_mass, 0.0, atol=ROUNDED)


def test_a_loop_stays_closed_and_its_cranks_parallel(found):
    left, right, bar_left, bar_right = found["angles"]
    assert found["gap"] < ROUNDED
    assert abs(left - CRANK_ANGLE) > 0.1
    np.testing.assert_allclose([right, -bar_left, -bar_right], left, atol=ROUNDED)


def test_a_stiffness_is_identified(found):
    assert found["converged"] > 0
    assert found["stiffness"] == pytest.approx(STIFFNESS, rel=1e-3)
