"""Names of an earlier release work, and each warns of the new one at the user's line."""

import zipfile

import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.models import load, save


@pytest.mark.parametrize("old, new", [("speeds", jj.coordinate_speeds), ("forces", jj.row_laws)])
def test_a_public_name_of_an_earlier_release_is_the_new_one(old, new):
    with pytest.warns(DeprecationWarning, match=f"{old} is now") as told:
        assert getattr(jj, old) is new
    assert told[0].filename == __file__


def test_energy_is_a_pair_still():
    world = jj.SystemBuilder()
    world.body("stone", mass=2.0, inertia=(0.1, 0.1, 0.1), pose=(0.0, 0.0, 3.0))
    system, state = world.build()
    with pytest.warns(DeprecationWarning, match="energy is now energies"):
        kinetic, gravity = jj.energy(system, state)
    np.testing.assert_allclose([kinetic, gravity], [0.0, 2.0 * 9.81 * 3.0])
    assert jj.energies(system, state).gravity == gravity


def test_the_door_shows_public_names_alone():
    assert set(dir(jj)) == {*jj.__all__, "__version__"}
    assert jj.__version__.count(".") == 2
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = jj.nothing


@pytest.mark.parametrize(
    "make, old, value",
    [
        (lambda **x: jj.CoulombFriction(**x, normal=1), "mu", 0.3),
        (lambda **x: jj.ContactFriction(**x, coordinate=1), "mu", 0.3),
        (lambda **x: jj.ContactFriction(**x, coordinate=1), "force_limit", 2.0),
        (lambda **x: jj.DryFriction(**x), "friction", 2.0),
    ],
)
def test_a_field_of_an_earlier_release_is_given_read_and_replaced(make, old, value):
    with pytest.warns(DeprecationWarning, match=f"{old} is now friction") as told:
        law = make(**{old: value})
    assert told[0].filename == __file__
    new = type(law).earlier_fields[old]
    assert getattr(law, new) == value
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        assert getattr(law, old) == value
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}") as told:
        assert getattr(jj.replace(law, **{old: 5.0}), new) == 5.0
    assert told[0].filename == __file__


def test_paths_and_files_of_an_earlier_release_are_read(tmp_path):
    world = jj.SystemBuilder()
    world.body("flap", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.joint("hinge", jj.Hinge(), child="flap", laws=jj.DryFriction(1.5))
    system, _ = world.build()
    path = "joint.hinge.dry_friction.friction"
    with pytest.warns(DeprecationWarning, match="friction is now friction_force"):
        assert system.number(path) == 1.5
    with pytest.warns(DeprecationWarning, match="friction is now friction_force"):
        changed = system.with_numbers({path: 2.5})
    assert changed.joint("hinge").laws[0].friction_force == 2.5
    save(tmp_path / "new", law=jj.DryFriction(1.5))
    with zipfile.ZipFile(tmp_path / "new") as new, zipfile.ZipFile(tmp_path / "old", "w") as old:
        for name in new.namelist():
            old.writestr(name, new.read(name).replace(b'"friction_force"', b'"friction"'))
    assert load(tmp_path / "old")["law"].friction_force == 1.5
