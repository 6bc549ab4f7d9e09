"""The example of the README's picture: a platform on six legs follows its circle."""

import importlib
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "examples"
# The servos' stiffness against the weight and inertia of the platform [m].
CLOSE = 1e-3


@pytest.fixture(scope="module")
def example():
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module("stewart_platform")
    sys.path.remove(str(FOLDER))


@pytest.mark.slow
def test_the_platform_stays_on_its_circle_and_is_shown(example, tmp_path):
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        assert example.main(tmp_path / "page.html") < CLOSE
    assert "rod 5" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_legs_are_as_long_as_their_ends_are_apart(example):
    """At the start, where the platform is straight above its feet."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        found = example.lengths(np.zeros(()))
    apart = example.PLATE + np.array([0.0, 0.0, example.HEIGHT]) - example.GROUND
    np.testing.assert_allclose(found, np.linalg.norm(apart, axis=1), rtol=1e-12)
