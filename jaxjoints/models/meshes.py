"""Mesh files as triangles to look at, read by the package trimesh."""

import io
import re
from pathlib import Path

import numpy as np

from .geometry import Mesh
from .xml import read_bytes

# What trimesh reads without running or unpacking anything.
FORMATS = ("stl", "obj", "ply", "dae")


class Unreadable(Exception):
    """A mesh that is not shown; its text says why."""


def read_mesh(path: Path, scale: np.ndarray, most: int) -> Mesh:
    """The triangles of a file, all its parts together in the file's frame.

    scale: factors along x, y, z of the file, shape (3,)
    most: largest size of the file [bytes]

    Raises: Unreadable for what is no mesh of a known format, is empty, or is too large.
    """
    kind = path.suffix[1:].lower()
    if kind not in FORMATS:
        raise Unreadable(f"format {kind!r} is not read; there are {', '.join(FORMATS)}")
    try:
        import trimesh
    except ImportError as error:
        advice = "meshes are read with trimesh: pip install -e '.[models]' in the checkout"
        raise ImportError(advice) from error
    try:
        data = read_bytes(path, most)
        if kind == "dae":
            _check_plain(data)
        elif kind == "stl":
            kind = _stl_kind(data)
        # Unprocessed, for trimesh would drop what is not finite without a word.
        scene = trimesh.load_scene(io.BytesIO(data), file_type=kind, process=False)
        mesh = scene.to_mesh()
        if np.isfinite(mesh.vertices).all():
            mesh.merge_vertices()
        vertices, faces = np.asarray(mesh.vertices, float), np.asarray(mesh.faces, np.int64)
    except Exception as error:
        # A parser of foreign files: whatever it stumbles over, the mesh is not shown.
        raise Unreadable(f"it cannot be read: {error or type(error).__name__}") from error
    if not len(faces):
        raise Unreadable("it has no triangles")
    if (scale < 0).sum() % 2:
        faces = faces[:, ::-1]
    try:
        return Mesh(vertices * scale, faces)
    except ValueError as error:
        raise Unreadable(str(error)) from error


def _stl_kind(data: bytes) -> str:
    """Which of the two kinds of STL a file is, as trimesh calls them; raises if it is neither.

    A binary file has a header of 80 bytes, the number of its triangles, and 50 bytes for each; text
    begins with the word "solid".
    """
    if data.lstrip()[:5].lower() == b"solid" and b"\0" not in data:
        return "stl_ascii"
    count, rest = int.from_bytes(data[80:84], "little"), len(data) - 84
    if rest != 50 * count:
        raise ValueError(
            f"as a binary STL file it promises {count} triangles of 50 bytes each, and "
            f"{max(rest, 0)} bytes follow"
        )
    return "stl"


def _check_plain(data: bytes) -> None:
    """Raise for XML with a document type or in an encoding that could hide one."""
    if b"\0" in data or re.search(rb"<!(DOCTYPE|ENTITY)", data, re.IGNORECASE):
        raise ValueError("document types and entities are refused")
    declared = re.search(rb"encoding\s*=\s*[\"']([^\"']*)", data[:200])
    if declared and declared[1].lower() not in (b"utf-8", b"us-ascii", b"ascii", b"iso-8859-1"):
        raise ValueError(f"encoding {declared[1]!r} is not read")
