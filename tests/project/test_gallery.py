"""The gallery has a picture of each public coupling, and draws what is there."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.image import imread

import jaxjoints
from support.examples import FOLDER, example

DIFFERENCED = 1e-4  # central differences of step 1e-2, of rates of order one
LARGEST = 250e3  # of a file [bytes]
BASES = (jaxjoints.Coupling, jaxjoints.Chart, jaxjoints.Residual)
# Of couplings with poses: contacts have none.
COUPLINGS = [
    value
    for value in map(vars(jaxjoints).get, jaxjoints.__all__)
    if inspect.isclass(value) and issubclass(value, jaxjoints.Coupling) and value not in BASES
    if value.places_bodies
]


@pytest.fixture(scope="module")
def gallery():
    with example("gallery") as module:
        yield module


@pytest.fixture(scope="module")
def studies(gallery):
    with example("studies") as module:
        yield module


@pytest.fixture(scope="module")
def exhibits(gallery):
    return {k: e for _, family in gallery.FAMILIES.values() for k, e in family.items()}


def test_every_public_coupling_has_a_picture_of_its_own(exhibits):
    assert set(exhibits) == set(COUPLINGS)
    for kind, exhibit in exhibits.items():
        assert type(exhibit.coupling) is kind
        assert len(exhibit.names) == len(exhibit.at) or not exhibit.at
        assert exhibit.roll or len(exhibit.sweep) == exhibit.coupling.dof == len(exhibit.at)


def test_the_page_is_up_to_date_and_its_pictures_are_there(gallery):
    assert (FOLDER / "gallery" / "README.md").read_text(encoding="utf-8") == gallery.page()
    files = {path.stem: path.stat().st_size for path in (FOLDER / "gallery").glob("*.png")}
    assert files.keys() == gallery.FAMILIES.keys()
    assert max(files.values()) < LARGEST


@pytest.mark.slow
@pytest.mark.parametrize("kind", [jaxjoints.SlottedHinge, jaxjoints.Gimbal])
def test_arrows_are_the_columns_of_the_motion_subspace(studies, exhibits, kind):
    here, drawn, _ = studies.study(exhibits[kind])
    coupling, q = exhibits[kind].coupling, jnp.array(exhibits[kind].at)
    rows = jax.jit(lambda q: coupling.rows(coupling.pose(q), q, jnp.zeros(())))(q)
    S = np.linalg.inv(rows.W)[:, 6 - coupling.dof :]
    np.testing.assert_allclose(drawn, S, atol=DIFFERENCED)


@pytest.mark.slow
def test_a_family_is_drawn(gallery, tmp_path):
    slider = {jaxjoints.Slider: gallery.FAMILIES["sliding"][1][jaxjoints.Slider]}
    gallery.draw_family(tmp_path / "slider.png", slider)
    pixels = imread(tmp_path / "slider.png")
    assert 0.02 < np.mean(pixels[..., :3].min(axis=-1) < 0.9) < 0.5
