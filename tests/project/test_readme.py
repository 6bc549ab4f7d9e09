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


def test_ci_runs_the_test_command_of_the_readme():
    commands = re.findall(r"^    (python3 -m venv .*)$", README, re.MULTILINE)
    assert len(commands) == 2
    assert (ROOT / "examples" / commands[0].rpartition("/")[2]).exists()
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert commands[1] in [line.strip() for line in run.splitlines()]
