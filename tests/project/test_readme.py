"""The README keeps its word: its code runs, its commands are those that are used."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names():
    """What the README's joint leaves behind."""
    names = {}
    for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(compile(code, "README.md", "exec"), names)
    return names


@pytest.mark.slow
def test_the_screw_stays_on_its_thread(names):
    pose = names["final"].position[:, 0], names["final"].q[0]
    assert names["trajectory"].position.shape == (10, 3, 1, 4096)
    # The nut's frame is at pitch * angle above the thread's, and its centre of mass at that height.
    height, angle = pose[0][2], pose[1]
    np.testing.assert_allclose(height, 1.0 + 0.02 * angle, atol=1e-4)


@pytest.mark.slow
def test_the_gradient_of_the_screw_is_that_of_finite_differences(names):
    system, angle = names["system"], names["angle"]
    found = jax.grad(angle)(system).joint("thread").coupling.pitch
    step = 1e-6
    probes = [
        angle(system.with_joint("thread", coupling=names["Screw"](pitch=0.02 + sign * step)))
        for sign in (1, -1)
    ]
    np.testing.assert_allclose(found, (probes[0] - probes[1]) / (2 * step), rtol=1e-4)


def turned(pitch, dt):
    """Angle of the README's screw after 1 s, by steps of its one coordinate; pitch: [m/rad]."""
    inertia = 0.02 + 0.05**2 + pitch**2
    angle = velocity = np.zeros_like(pitch)
    for _ in range(round(1 / dt)):
        velocity = velocity - dt * 9.81 * pitch / inertia
        gap, stiffness, damping = angle + 3.0, 40.0, 0.5
        augmented = dt * (dt * stiffness + damping)
        # The spring acts on the part of the way that is beyond the stop, at the end of the step.
        push = -augmented * velocity - dt * stiffness * np.minimum(gap, 0.0)
        push = push - augmented * np.maximum(gap, 0.0) / dt
        velocity = velocity + np.maximum(push, 0.0) / (inertia + augmented)
        angle = angle + dt * velocity
    return angle


def test_the_readme_states_the_slopes_of_the_screw():
    text = " ".join(README.split())
    for stated in (
        "-2.77 rad",
        "51.3 rad per m/rad",
        "58.4 in continuous time",
        "57.6 with steps of 0.1 ms",
    ):
        assert stated in text
    probes = lambda step: 0.02 + step * np.array((1.0, -1.0))  # noqa: E731
    np.testing.assert_allclose(turned(probes(0.0), 1e-3), -2.77, atol=5e-3)
    for dt, step, slope in ((1e-3, 1e-8, 51.3), (1e-4, 1e-8, 57.6), (1e-5, 1e-4, 58.4)):
        high, low = turned(probes(step), dt)
        np.testing.assert_allclose((high - low) / (2 * step), slope, atol=0.06)


def test_ci_runs_the_test_command_of_the_readme():
    commands = re.findall(r"^    (python3 -m venv .*)$", README, re.MULTILINE)
    assert len(commands) == 2
    assert (ROOT / "examples" / commands[0].rpartition("/")[2]).exists()
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert commands[1] in [line.strip() for line in run.splitlines()]
