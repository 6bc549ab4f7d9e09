"""Files that a model names: found inside the folders that the caller gives, and nowhere else."""

import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from .errors import shown


class Refused(Exception):
    """A path that leads out of the folders, or that is no path; its text says why."""


def wanted_root(name: str, beside: Path | None) -> str:
    """What roots= has to have so that a file is found, as a sentence's end.

    name, beside: as in `Roots.find`
    """
    scheme, _, rest = name.rpartition("://")
    if scheme not in ("", "package", "file"):
        return f"but nothing is fetched by {shown(scheme)}; save the file in a folder of the model"
    if scheme == "package":
        package = (PurePosixPath(rest.lstrip("/")).parts or ("",))[0]
        return f"give it the folder of the package {shown(package)}, or the one that holds this"
    if scheme or rest.startswith("/"):
        return f"give it {shown(str(PurePosixPath(rest).parent))}"
    if beside is None:
        return "give it the folder in which the paths of the model begin"
    # Of "../meshes/arm.stl" the folder above the model's has to be in a root too.
    above = os.path.commonpath([os.path.abspath(path) for path in (beside, beside / rest)])
    return f"give it {shown(above)}"


class Roots:
    """Folders inside of which the files of a model may lie.

    A path counts by where it really leads, links followed. Nothing is fetched.

    folders: that exist
    """

    def __init__(self, folders: Iterable):
        folders = [folders] if isinstance(folders, (str, Path)) else list(folders)
        self.folders = [Path(folder).resolve() for folder in folders]
        for given, folder in zip(folders, self.folders, strict=True):
            if not folder.is_dir():
                raise ValueError(f"roots: {str(given)!r} is no folder")

    def find(self, name: str, beside: Path | None = None) -> Path | None:
        """The file that a model names, None if there is none.

        name: "package://NAME/PATH", which is PATH in a root called NAME or NAME/PATH in a root;
            "file:///PATH" or an absolute path; or a path relative to the model's file or to a root
        beside: folder of the model's file

        Raises: Refused for a path that leads out of the roots, and for other schemes.
        """
        scheme, colon, rest = name.partition("://")
        if colon and scheme not in ("package", "file"):
            raise Refused(f"scheme {scheme!r} is not followed; nothing is fetched")
        path = rest if colon else name
        if not path or "\\" in path or any(ord(character) < 32 for character in path):
            raise Refused("it is no path with '/' between folders")
        if re.match(r"[A-Za-z]:", path):
            raise Refused("it begins with a drive; give a path inside the roots")
        if colon and scheme == "package":
            package, *inside = PurePosixPath(path.lstrip("/")).parts or [""]
            places = [folder / package / Path(*inside) for folder in self.folders]
            places += [folder / Path(*inside) for folder in self.folders if folder.name == package]
        elif path.startswith("/"):
            places = [Path(path)]
        elif colon:
            raise Refused("after 'file://' follows an absolute path")
        else:
            places = [] if beside is None else [beside / path]
            places += [folder / path for folder in self.folders]
        outside = False
        for place in places:
            try:
                real = place.resolve()
                if not any(real.is_relative_to(folder) for folder in self.folders):
                    outside = True
                elif real.is_file():
                    return real
            except (OSError, ValueError, RuntimeError):
                # Too long a name, or links in a circle: there is no such file.
                continue
        if outside:
            raise Refused("it leads out of the roots; add the folder to roots= if it is meant")
        return None
