"""The example does what it says, run as a user runs it, only smaller; and all are short."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from support.examples import example

ROOT = Path(__file__).parents[2]
LONGEST = 120  # an example has fewer lines
SCRIPTS = {
    path.stem: text
    for path in sorted((ROOT / "examples").glob("*.py"))
    if "__main__" in (text := path.read_text(encoding="utf-8"))
}
SEARCHED = {
    "hinge meets a soft stop, gravity": {
        *("inertia/mass", "stiffness/mass", "damping/mass", "stop"),
    },
    "hinge on a spring, known torque": {"inertia", "stiffness", "damping", "stop"},
    "slider on a spring, known force": {"mass", "stiffness", "damping", "stop"},
    "five links on soft hinges, gravity": {
        "mass 0",
        *(f"mass {i}/mass 0" for i in range(1, 5)),
    },
}
NOT_TOLD = {"hinge meets a soft stop, gravity", "hinge on a spring, known torque"}
ROW = re.compile(r"^  (\S.*?) +([-\d.e+]+) +([-\d.e+]+) +([-\d.e+]+) +([-\d.e+]+)$", re.M)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What the example prints, by titles, and its figure."""
    path = tmp_path_factory.mktemp("example") / "figure.png"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    options = ["--output", str(path), "--starts", "24", "--iterations", "30"]
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "identify_stop.py"), *options],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    blocks = done.stdout.split("\n\n")
    tables = {block.split(":")[0]: block for block in blocks[1:-1]}
    return tables, blocks[0], blocks[-1], done.stderr, path


@pytest.mark.slow
@pytest.mark.parametrize("title", SEARCHED)
def test_what_the_poses_tell_is_found_to_a_percent(run, title):
    rows = {name: tuple(map(float, numbers)) for name, *numbers in ROW.findall(run[0][title])}
    assert rows.keys() == SEARCHED[title]
    for name, (true, found, error, deviation) in rows.items():
        assert abs(error) < 1.0, name
        assert abs(found - true) <= max(0.01 * abs(true), 1e-4), name
        assert 0 < deviation < 1.0, name


@pytest.mark.slow
@pytest.mark.parametrize("title", SEARCHED)
def test_what_the_poses_do_not_tell_is_said(run, title):
    lines = [line for line in run[0][title].splitlines() if "do not determine it" in line]
    assert [line.split()[0] for line in lines] == (["mass"] if title in NOT_TOLD else [])


@pytest.mark.slow
def test_speed_and_noise_are_shown(run):
    _, first, last, errors, _ = run
    assert "0.1 mm and 0.1 mrad" in first
    speed = re.search(r"([\d,]+) environment-steps per second, with", last)
    assert int(speed[1].replace(",", "")) > 100
    # Progress bars are for terminals.
    assert errors == ""


@pytest.mark.slow
def test_the_figure_has_motions_and_losses(run):
    pixels = imread(run[4])[..., :3]
    height, width, _ = pixels.shape
    assert height > 400 and width > 1000
    # Every panel has ink: four motions above, four losses below.
    for row in np.array_split(pixels, 2):
        for panel in np.array_split(row, 4, axis=1):
            assert 0.01 < np.mean(panel.min(axis=-1) < 0.9) < 0.5


@pytest.mark.slow
def test_a_ball_thrown_by_gradients_flies_as_in_continuous_time(capsys):
    """The velocity that the example finds, in the closed form of flights and bounces. Steps of
    the scheme fall G DT / 2 ahead, so that places differ by less than 2 cm.
    """
    with example("throw") as throw:
        throw.main()
        located, _ = re.findall(r"with ([\d.]+) m/s along x, ([\d.]+) m/s", capsys.readouterr().out)
        vx, vz = map(float, located)
        end, bounce, G = throw.DT * throw.STEPS, 0.8, 9.81
        before = (throw.WALL - throw.RADIUS) / vx
        assert before < end
        x, z, left = throw.WALL - throw.RADIUS - bounce * vx * (end - before), 0.5, end
        while left > (flight := (vz + np.sqrt(vz**2 + 2 * G * (z - throw.RADIUS))) / G):
            vz, z, left = -bounce * (vz - G * flight), throw.RADIUS, left - flight
        z += vz * left - G * left**2 / 2
        np.testing.assert_allclose((x, z), throw.TARGET, rtol=0, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("knee.py", "the knots are found within"),
        ("panda_gains.py", "the links weigh 157.57 N"),
        ("reacher.py", "the tip ends"),
    ],
)
def test_a_script_does_its_job(script, says):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / script)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


def test_examples_are_short_assert_what_they_show_and_are_run_by_tests():
    """As a process of their own, or by `main`. The gallery is no example: it makes a page."""
    tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    for name, text in SCRIPTS.items():
        assert len(text.splitlines()) < LONGEST, name
        runs = [test for test in tests if f'"{name}.py"' in test]
        runs += [test for test in tests if f'example("{name}")' in test and ".main(" in test]
        assert name == "gallery" or ("    assert " in text and runs), name
