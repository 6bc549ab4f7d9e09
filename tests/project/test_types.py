"""The public API as a strict type checker sees it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_users_script_is_clean_under_a_strict_checker(tmp_path):
    script = ROOT / "tests/data/typed_user.py"
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    found = subprocess.run(
        [*command, f"--cache-dir={tmp_path}", str(script)], cwd=ROOT, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout


@pytest.mark.slow
def test_the_checker_sees_what_is_wrong(tmp_path):
    script = tmp_path / "wrong.py"
    script.write_text("import jaxjoints as jj\njj.SystemBuilder().body(1)\njj.step(1, 2)\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    found = subprocess.run(
        [*command, f"--cache-dir={tmp_path}", str(script)], cwd=ROOT, capture_output=True, text=True
    )
    assert found.returncode == 1 and found.stdout.count("error:") >= 3, found.stdout
