"""Stored policies: each task has one, which earns what its file and the page say."""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from matplotlib.image import imread

from jaxjoints import environments
from support.browser import NAMES
from support.examples import FOLDER, example

PAGE = FOLDER / "data" / "policies" / "README.md"
MOST_BYTES = 110_000  # two hidden layers of 128
STORED = sorted(path.stem for path in PAGE.parent.glob("*.npz"))
EPISODES = 8


@pytest.fixture(scope="module")
def policies():
    with example("policies") as module:
        yield module


def test_each_task_has_a_small_policy():
    assert STORED == sorted(environments.TASKS)
    sizes = {name: (PAGE.parent / f"{name}.npz").stat().st_size for name in STORED}
    assert max(sizes.values()) < MOST_BYTES, sizes


@pytest.mark.parametrize("name", STORED)
def test_the_page_has_what_is_stored(policies, name):
    stored = policies.load(name)
    steps = f"{stored['steps']:,}".replace(",", " ")
    numbers = (
        f"{stored['return']:.1f} ± {stored['spread']:.1f}",
        steps,
        f"{stored['processor']:.0f}",
    )
    assert f"| `{name}` | {' | '.join(numbers)} |" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=() if x == "cart_pole" else pytest.mark.slow) for x in STORED],
)
def test_a_policy_earns_its_return(policies, name):
    """Within four standard errors, in double precision and from other starts."""
    stored = policies.load(name)
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        found = policies.returns(policies.made(name), stored["parameters"], EPISODES, key=3)
    assert found.shape == (EPISODES,)
    error = stored["spread"] * np.sqrt(1 / EPISODES + 1 / 64)
    assert abs(found.mean() - stored["return"]) < 4 * error + 0.01 * abs(stored["return"])


def test_an_untrained_network_earns_less(policies):
    """So that the test above can fail."""
    stored = policies.load("cart_pole")
    idle = jax.tree.map(lambda x: 0 * x, stored["parameters"])
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        found = policies.returns(environments.make("cart_pole"), idle, EPISODES, key=3)
    assert found.max() < 0.5 * stored["return"]


@pytest.mark.slow
def test_a_policy_is_shown_on_a_page(policies, tmp_path):
    page = tmp_path / "page.html"
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        policies.main("cart_pole", episodes=2, page=page)
    assert '"pole"' in Path(page).read_text(encoding="utf-8")


@pytest.mark.slow
def test_stills_of_a_policy_are_drawn(tmp_path):
    pytest.importorskip("playwright", reason="playwright is not installed")
    if not any(map(shutil.which, NAMES)):
        pytest.skip("no browser is installed")
    picture = tmp_path / "policies.png"
    with example("policies_picture") as module:
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            module.main(picture, ["cart_pole"])
    # Four stills of a task; its name above.
    assert imread(picture).shape[:2] == (module.HEIGHT + module.TITLE, 4 * module.WIDTH)


def test_an_unknown_policy_is_refused_with_those_that_exist(policies):
    with pytest.raises(
        ValueError, match="no policy of 'cartpole' is stored; there are .*cart_pole"
    ):
        policies.load("cartpole")
