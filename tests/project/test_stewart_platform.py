"""The example of the README's picture: a platform on six legs follows its circle."""

import jax
import numpy as np
import pytest

from support.examples import example

# The servos' stiffness against the weight and inertia of the platform [m].
CLOSE = 1e-3


@pytest.fixture(scope="module")
def platform():
    with example("stewart_platform") as module:
        yield module


@pytest.fixture(scope="module")
def legs():
    with example("six_legs") as module:
        yield module


@pytest.mark.slow
def test_the_platform_stays_on_its_circle_and_is_shown(platform, tmp_path):
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        assert platform.main(page=tmp_path / "page.html") < CLOSE
    assert "rod 5" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_legs_are_as_long_as_their_ends_are_apart(legs):
    """At the start, where the platform is straight above its feet."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        found = legs.lengths(np.zeros(()))
    apart = legs.PLATE + np.array([0.0, 0.0, legs.HEIGHT]) - legs.GROUND
    np.testing.assert_allclose(found, np.linalg.norm(apart, axis=1), rtol=1e-12)
