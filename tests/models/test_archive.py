"""What is saved comes back bit by bit, and a file that is no such file is refused."""

import io
import json
import pickle
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.assembly.impulses import start_impulses
from jaxjoints.models import LoadError, load, save
from jaxjoints.models.geometry import Box, Visual
from support import couplings_catalog
from support.couplings_catalog import PointOnSphere
from support.mechanisms import chain, four_bar

DATA = Path(__file__).parents[1] / "data"


def assert_same(one, other):
    """Two trees of equal structure and bits."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


@pytest.mark.slow
def test_a_system_and_its_motion_come_back_as_they_were(tmp_path):
    laws = [jj.Limits(-1.0, 1.0, engagement=jj.Engagement()), jj.DryFriction(0.1)]
    system, state = chain(3, laws=laws, softness=jj.Compliance(1e-6))
    run = jax.jit(lambda system, s: jj.rollout(system, s, dt=1e-3, steps=4, record_every=2))
    end, trajectory = run(system, state)
    save(
        tmp_path / "run", system=system, end=end, trajectory=trajectory, note=("a", [1, 2.5, None])
    )
    back = load(tmp_path / "run")
    assert list(back) == ["system", "end", "trajectory", "note"]
    assert_same(back["system"], system)
    assert_same(back["end"], end)
    assert_same(back["trajectory"], trajectory)
    assert back["note"] == ("a", [1, 2.5, None])
    # The structures are equal, so what was compiled for one serves the other.
    assert_same(run(back["system"], state)[0], end)


@pytest.mark.slow
def test_states_of_format_1_start_their_next_step_without_forces():
    """The file: a foot that stood for three steps, written by version 0.1.0 in format 1."""
    with pytest.warns(UserWarning, match="_1.npz: its states have no forces.* format 1"):
        back = load(DATA / "standing_foot_1.npz")
    system, state = back["system"], back["state"]
    assert isinstance(state.row_forces, jj.RowForces)
    assert not np.any(state.row_forces.rows) and not np.any(state.row_forces.bounds)
    assert system.topology.contacts == ("sole",) and not state.q.size
    new, info = jax.jit(lambda system, state: jj.step(system, state, dt=0.01))(system, state)
    assert np.all(info.ok) and np.any(new.row_forces.rows)


@pytest.mark.slow
def test_contacts_of_format_2_are_no_joints():
    """The file: a foot with a toe, a hinge between two contacts, after three steps. It moves on as
    the version that wrote it said, by what that lost: the forces of the last step.
    """
    with pytest.warns(UserWarning, match="_2.npz: its states have no forces.* format 2"):
        back = load(DATA / "standing_foot_2.npz")
    system, state = back["system"], back["state"]
    topology = system.topology
    assert topology.joints == ("ankle", "cap") and topology.contacts == ("sole", "tip")
    assert system.coordinate("cap") == slice(1, 2)
    np.testing.assert_allclose(system.contact("tip").frame_C.p, [0.1, 0.0, -0.05])
    np.testing.assert_allclose(state.q, [0.0288915687, 0.00144457843], rtol=1e-6)
    np.testing.assert_allclose(jj.gaps(system, state), [0.0, 0.0255200001], atol=1e-7)
    assert state.engagement.shape == (2 + 1 + 2,)
    final = jax.jit(lambda *at: jj.rollout(*at, dt=0.01, steps=20)[0])(system, state)
    np.testing.assert_allclose(final.q, [-0.0445151411, -0.00222575705], atol=1e-6)
    np.testing.assert_allclose(final.position[0], [0.01752574, 0.11599816, 0.03455033], atol=1e-6)


def test_states_of_format_2_without_their_system_are_refused_where_they_are_used(tmp_path):
    with zipfile.ZipFile(DATA / "standing_foot_2.npz") as file:
        entries = {name: file.read(name) for name in file.namelist()}
    head = json.loads(entries["records.json"])
    system = head["records"].pop("system")
    with zipfile.ZipFile(tmp_path / "state", "w") as file:
        for name, data in (entries | {"records.json": json.dumps(head)}).items():
            file.writestr(name, data)
    state = load(tmp_path / "state")["state"]
    with pytest.warns(UserWarning, match="format 2"):
        system = load(DATA / "standing_foot_2.npz")["system"]
    with pytest.raises(ValueError, match="q has 6 numbers for each contact, such as 'sole'"):
        jj.step(system, state, dt=0.01)


@pytest.mark.slow
def test_a_file_holds_the_forces_of_the_last_step(tmp_path):
    """Half as long a step starts from half of their impulses."""
    with pytest.warns(UserWarning, match="format 1"):
        back = load(DATA / "standing_foot_1.npz")
    run = jax.jit(lambda state: jj.rollout(back["system"], state, dt=0.01, steps=50)[0])
    state = run(back["state"])
    save(tmp_path / "foot", system=back["system"], state=state)
    read = load(tmp_path / "foot")
    again = read["state"]
    assert_same(read["system"], back["system"])
    assert_same(again, state)
    np.testing.assert_allclose(again.row_forces.rows[0], 9.81, rtol=1e-3)
    for dt in (0.01, 0.005):
        impulse, _ = start_impulses(again, jnp.asarray(dt))
        np.testing.assert_allclose(impulse[0], dt * 9.81, rtol=1e-3)


def test_batches_infinities_and_shapes_come_back(tmp_path):
    system, state = four_bar()
    wide = jj.replicate(state, 3)
    visual = Visual("crank", (np.eye(3), np.zeros(3)), Box((1.0, 2.0, 3.0)))
    values = {"inf": float("inf"), "counts": np.arange(3), "mask": jnp.array([True, False])}
    save(tmp_path / "a.npz", states=wide, visual=visual, values=values, info=jj.Cause.DIVERGED)
    back = load(tmp_path / "a.npz")
    assert_same(back["states"], wide)
    np.testing.assert_array_equal(back["visual"].shape.size, [1.0, 2.0, 3.0])
    assert back["values"]["inf"] == float("inf") and back["info"] == jj.Cause.DIVERGED
    np.testing.assert_array_equal(back["values"]["counts"], [0, 1, 2])
    assert back["values"]["mask"].dtype == bool


def test_a_coupling_of_ones_own_is_made_on_request_alone(tmp_path):
    save(tmp_path / "own", coupling=PointOnSphere(radius=jnp.asarray(2.0)))
    module = couplings_catalog.__name__
    with pytest.raises(LoadError, match=f"field 'coupling'.*give modules=\\['{module}'\\]"):
        load(tmp_path / "own")
    back = load(tmp_path / "own", modules=[module])["coupling"]
    assert type(back) is PointOnSphere and float(back.radius) == 2.0


def test_what_cannot_be_written_is_named(tmp_path):
    @jj.struct
    class Local:
        """A record without an import path."""

    for value, message in (
        (lambda: 0, "field.*of function cannot be written"),
        (Local(), "Local has no import path"),
        (np.array(["a"]), "an array of <U1 cannot be written"),
        ({1: 2}, "needs strings for its keys"),
    ):
        with pytest.raises(ValueError, match=message):
            save(tmp_path / "bad", field=value)


def file_of(folder, records, arrays=(), **head):
    """A file with a description written by hand."""
    path = folder / "file"
    head = {"format": 1, "version": "0", "records": records} | head
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("records.json", json.dumps(head))
        for i, array in enumerate(arrays):
            buffer = io.BytesIO()
            np.save(buffer, array, allow_pickle=True)
            file.writestr(f"{i}.npy", buffer.getvalue())
    return path


HINGE = "jaxjoints.couplings.rotary:Hinge"
SPHERE = "jaxjoints.models.geometry:Sphere"
BAD = {
    "later format": (dict(records={}, format=99), "has format 99"),
    "no records": (dict(records=[]), "is no file that `save` wrote"),
    "unknown class": (dict(records={"a": {"record": "jaxjoints:No", "fields": {}}}), "no record"),
    "unknown field": (
        dict(records={"a": {"record": HINGE, "fields": {"pitch": 1.0}}}),
        "field 'a.pitch': Hinge has no such field",
    ),
    "missing field": (
        dict(records={"a": {"record": "jaxjoints.couplings.linear:Helical", "fields": {}}}),
        "field 'a.pitch': is missing",
    ),
    "other module": (
        dict(records={"a": {"record": "subprocess:Popen", "fields": {"args": "true"}}}),
        "is no record of jaxjoints",
    ),
    "no class": (
        dict(records={"a": {"record": "jaxjoints.couplings.rotary:Pose.identity", "fields": {}}}),
        "is no record",
    ),
    "missing array": (dict(records={"a": {"array": 3, "numpy": False}}), "array 3 is not in the"),
    # Checks of a record compare numbers; these are none.
    "fields of another kind": (
        dict(records={"a": {"record": SPHERE, "fields": {"radius": {"dict": {}}}}}),
        "field 'a'",
    ),
    "no value": (dict(records={"a": {"b": 1}}), "is no value"),
    "pickle in an array": (
        dict(records={"a": {"array": 0}}, arrays=[np.array([{}], object)]),
        "is no file that `save` wrote",
    ),
}


@pytest.mark.parametrize(("file", "message"), BAD.values(), ids=list(BAD))
def test_a_bad_file_is_refused_with_its_field(file, message, tmp_path):
    with pytest.raises(LoadError, match=message):
        load(file_of(tmp_path, **file))


def test_a_damaged_file_is_refused(tmp_path):
    """Each byte of a small file is changed in turn."""
    whole = file_of(tmp_path, records={"a": {"array": 0}}, arrays=[np.arange(3.0)]).read_bytes()
    for i in range(len(whole)):
        damaged = whole[:i] + bytes([whole[i] ^ 0xFF]) + whole[i + 1 :]
        (tmp_path / "damaged").write_bytes(damaged)
        try:
            load(tmp_path / "damaged")
        except LoadError:
            continue
        except Exception as error:
            raise AssertionError(f"byte {i}") from error


def test_a_pickle_is_no_such_file(tmp_path):
    (tmp_path / "a").write_bytes(pickle.dumps({}))
    with pytest.raises(LoadError, match="is no file that `save` wrote"):
        load(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "b")
