"""Files that a model names are read inside the given folders, and nowhere else."""

import struct
import sys

import numpy as np
import pytest

from jaxjoints.models import LoadError, LoadWarning, load_urdf
from jaxjoints.models.files import Refused, Roots
from support.urdf import link, robot

TRIANGLE = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def stl(*triangles, count=None):
    """A binary STL file."""
    head = b"\0" * 80 + struct.pack("<I", len(triangles) if count is None else count)
    return head + b"".join(struct.pack("<12fH", 0, 0, 1, *np.ravel(t), 0) for t in triangles)


def seen(name, scale="1 1 1"):
    """A robot whose link shows a mesh."""
    mesh = f'<mesh filename="{name}" scale="{scale}"/>'
    return robot(link("a", more=f"<visual><geometry>{mesh}</geometry></visual>"))


@pytest.fixture
def folder(tmp_path):
    """A package with a mesh, and a secret beside it."""
    (tmp_path / "package" / "meshes").mkdir(parents=True)
    (tmp_path / "package" / "meshes" / "arm.stl").write_bytes(stl(TRIANGLE))
    (tmp_path / "secret.stl").write_bytes(stl(TRIANGLE))
    (tmp_path / "package" / "link.stl").symlink_to(tmp_path / "secret.stl")
    return tmp_path


@pytest.mark.parametrize(
    "name",
    ["package://package/meshes/arm.stl", "meshes/arm.stl", "./meshes/../meshes/arm.stl"],
)
def test_a_mesh_in_a_root_is_read_with_its_scale(folder, name):
    pytest.importorskip("trimesh")
    model = load_urdf(seen(name, "1 2 -3"), roots=[folder / "package"], floating=True)
    (visual,) = model.visuals
    corners = visual.shape.vertices[visual.shape.faces[0]]
    assert sorted(map(tuple, corners)) == [(0, 0, 0), (0, 2, 0), (1, 0, 0)]
    # A mirrored mesh keeps its outside outside.
    normal = np.cross(corners[1] - corners[0], corners[2] - corners[0])
    assert normal[2] < 0


@pytest.mark.parametrize(
    "name",
    [
        "package://../../etc/passwd",
        "package://package/../../secret.stl",
        "../secret.stl",
        "link.stl",
        "/etc/passwd",
        "file:///etc/shadow",
        "http://localhost/arm.stl",
        "\\\\server\\share\\arm.stl",
        "C:/arm.stl",
    ],
)
def test_paths_out_of_the_roots_are_refused_unopened(folder, name):
    opened = []
    recording = [True]

    def hook(event, arguments):
        if recording and event in ("open", "socket.connect"):
            opened.append(str(arguments[0]))

    sys.addaudithook(hook)
    with pytest.raises(LoadError, match="line 2, mesh: filename"):
        load_urdf(seen(name), roots=[folder / "package"])
    recording.clear()
    assert not [path for path in opened if "secret" in path or "etc" in path or "arm" in path]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "there is no such file"),
        (b"", "cannot be read: .* promises 0 triangles .* 0 bytes follow"),
        (stl(), "no triangles"),
        (stl(TRIANGLE, count=2**31), "promises 2147483648 triangles .* 50 bytes follow"),
        (stl([[np.nan] * 3] * 3), "must be finite"),
        (b"\0" * 2000, "promises 0 triangles .* 1916 bytes follow"),
        (b"solid of text\nendsolid", "no triangles"),
    ],
    ids=[
        "missing",
        "empty",
        "no triangles",
        "too many promised",
        "NaN",
        "zeros",
        "text of no triangles",
    ],
)
def test_a_mesh_that_is_none_is_left_out_with_a_warning(folder, content, reason):
    pytest.importorskip("trimesh")
    if content is not None:
        (folder / "package" / "bad.stl").write_bytes(content)
    with pytest.warns(LoadWarning, match=f"mesh 'bad.stl': .*({reason})"):
        model = load_urdf(seen("bad.stl"), roots=[folder / "package"])
    assert not model.visuals


def test_without_roots_meshes_are_left_out():
    with pytest.warns(LoadWarning, match="mesh, for which roots= gives no folder"):
        assert not load_urdf(seen("arm.stl")).visuals


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("package://arm_description/meshes/arm.stl", "the package 'arm_description', or the one"),
        ("package://", "the package '', or the one"),
        ("file:///data/meshes/arm.stl", "give it '/data/meshes'"),
        ("/data/meshes/arm.stl", "give it '/data/meshes'"),
        ("meshes/arm.stl", "give it '{}/urdf'"),
        ("../meshes/arm.stl", "give it '{}'"),
        ("http://host/arm.stl", "nothing is fetched by 'http'"),
    ],
)
def test_without_roots_the_folder_that_is_needed_is_named(name, advice, tmp_path):
    (tmp_path / "urdf").mkdir()
    path = tmp_path / "urdf" / "arm.urdf"
    path.write_text(seen(name))
    with pytest.warns(LoadWarning):
        (skipped,) = load_urdf(path).skipped
    assert advice.format(tmp_path) in skipped
    with pytest.warns(LoadWarning, match="the folder in which the paths of the model begin"):
        load_urdf(seen("meshes/arm.stl"))


def test_a_root_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is no folder"):
        Roots([tmp_path / "nothing"])
    with pytest.raises(Refused, match="is not followed"):
        Roots([tmp_path]).find("ftp://host/file")
