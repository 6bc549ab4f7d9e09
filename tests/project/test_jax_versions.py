"""What is installed lies within the ranges of versions that pyproject.toml promises."""

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
REQUIRED = [Requirement(line) for line in PROJECT["project"]["dependencies"]]


@pytest.mark.parametrize("required", REQUIRED, ids=lambda required: required.name)
def test_installed_versions_are_within_the_promised_range(required):
    assert required.specifier.contains(version(required.name), prereleases=True)
