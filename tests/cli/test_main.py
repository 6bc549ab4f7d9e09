"""The command line: what it writes and prints, its exit codes, and one line for each error."""

import os
import re
import subprocess
import sys
import webbrowser
from pathlib import Path

import pytest

from jaxjoints.cli.main import main
from jaxjoints.cli.programs import cache_folder

ROOT = Path(__file__).parents[2]
PENDULUM = """<?xml version="1.0"?>
<robot name="pendulum">
  <link name="base"/>
  <link name="arm">
    <inertial>
      <origin xyz="0 0 -0.5"/>
      <mass value="1.0"/>
      <inertia ixx="0.1" iyy="0.1" izz="0.01" ixy="0" ixz="0" iyz="0"/>
    </inertial>
    <visual><origin xyz="0 0 -0.5"/><geometry><box size="0.1 0.1 1.0"/></geometry></visual>
  </link>
  <joint name="pivot" type="revolute">
    <parent link="base"/><child link="arm"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="1" effort="5" velocity="3"/>
  </joint>
</robot>
"""


@pytest.fixture
def robot(tmp_path):
    path = tmp_path / "pendulum.urdf"
    path.write_text(PENDULUM, encoding="utf-8")
    return path


def run(*arguments, **variables):
    """Output, errors and exit code of the program, run as a user runs it."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    command = [sys.executable, "-m", "jaxjoints", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return done.stdout, done.stderr, done.returncode


@pytest.mark.slow
def test_view_writes_a_page_and_opens_it(robot, tmp_path, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    path = tmp_path / "motion.html"
    told = ["--root", str(tmp_path), "--seconds", "0.2", "-o", str(path), "--open"]
    assert main(["view", str(robot), *told]) == 0
    assert capsys.readouterr().out == f"{path}\n" and opened == [path.as_uri()]
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") and "<title>pendulum</title>" in page


def test_diagnose_prints_bodies_joints_and_freedom(robot, capsys):
    assert main(["diagnose", str(robot)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^arm +1 +0.01 0.1 0.1$", text, re.M)
    assert re.search(r"^pivot +Hinge +arm +world +0 +\[-1, 1\]", text, re.M)
    assert "constraint rows: 5, of rank 5, degrees of freedom: 1, redundant rows: 0" in text


@pytest.mark.slow
def test_simulate_says_how_fast_and_how_good(robot):
    out, error, code = run("simulate", robot, "--envs", 8, "--seconds", 0.2)
    assert code == 0, error
    assert "8 environments, 100 steps of 0.002 s each" in out
    assert int(re.search(r"([\d,]+) environment-steps per second", out)[1].replace(",", "")) > 0
    assert (
        float(re.search(r"largest error of joints and transmissions (\S+) m or rad", out)[1]) < 1e-5
    )
    assert error == ""  # no bar where there is no terminal


@pytest.mark.slow
def test_environments_that_go_bad_are_counted(robot, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["view", str(robot), "--seconds", "0.2", "--kick", "1e12"]) == 1
    assert (tmp_path / "pendulum.html").exists()
    assert "1 of 1 environments went bad: " in capsys.readouterr().err


@pytest.mark.slow
def test_bench_prints_a_row_for_each_batch(robot):
    out, error, code = run("bench", robot, "--batches", "1,4", "--rounds", 1)
    assert code == 0, error
    rows = [line.split() for line in out.splitlines()[1:]]
    assert [row[0] for row in rows] == ["1", "4"]
    assert all(float(row[1].replace(",", "")) > 0 for row in rows)


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("robot.urdf", None, "robot.urdf"),
        ("robot.step", "", "the ending must be .urdf or .xml"),
        ("robot.urdf", "<robot><link", "line 1"),
        ("robot.urdf", PENDULUM.replace('mass value="1.0"', 'mass value="heavy"'), "heavy"),
    ],
)
def test_an_input_that_cannot_be_used_is_one_line(tmp_path, capsys, name, text, message):
    path = tmp_path / name
    if text is not None:
        path.write_text(text, encoding="utf-8")
    assert main(["diagnose", str(path)]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1
    assert error.startswith("jaxjoints diagnose: ") and message in error


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "command"),
        (["view"], "file"),
        (["simulate", "robot.urdf", "--dt", "-1"], "-1 must be > 0"),
        (["simulate", "robot.urdf", "--envs", "0"], "0 must be >= 1"),
        (["bench", "--batches", "1,x"], "--batches"),
    ],
)
def test_wrong_arguments_are_said(capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "platform, variables, expected",
    [
        ("linux", {}, "~/.cache/jaxjoints"),
        ("linux", {"XDG_CACHE_HOME": "/else"}, "/else/jaxjoints"),
        ("darwin", {"XDG_CACHE_HOME": "/else"}, "~/Library/Caches/jaxjoints"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/jaxjoints"),
        ("win32", {}, "~/AppData/Local/jaxjoints"),
    ],
)
def test_compiled_programs_are_kept_where_the_platform_has_its_caches(
    platform, variables, expected
):
    assert cache_folder(variables, platform) == Path(expected).expanduser()


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_compiled_programs_are_kept_unless_jax_is_told_not_to(robot, tmp_path, kept):
    variables = {"XDG_CACHE_HOME": str(tmp_path), "JAX_ENABLE_COMPILATION_CACHE": str(int(kept))}
    _, errors, code = run("diagnose", robot, **variables)
    assert code == 0, errors
    folder = cache_folder(variables, sys.platform)
    assert folder.exists() == kept
    assert not kept or any(folder.iterdir())
