"""Robots: the mechanisms that the commands work on, from a file or built in."""

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..build.builder import SystemBuilder
from ..couplings.rotary import Hinge
from ..model.state import State
from ..model.system import WORLD, System
from ..models import LoadWarning, load_mjcf, load_urdf


def load(
    path: Path, roots: Sequence[Path] = (), *, floating: bool = False, contacts: bool = False
) -> tuple[System, State, tuple[Any, ...]]:
    """System, start and visuals of a model file; the ending of its name tells the format.

    Elements that are skipped or changed are printed on the error stream.

    roots: folders that paths in the file may lead into
    floating: whether the first body is free; for URDF, which has no such field
    contacts: whether bodies touch planes; for MJCF

    Raises: ValueError for an unknown ending and for a file that cannot be loaded.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LoadWarning)
        if path.suffix == ".urdf":
            if contacts:
                raise ValueError(f"{path}: contacts are read from MJCF alone; leave --contacts out")
            model = load_urdf(path, roots=roots, floating=floating)
        elif path.suffix == ".xml":
            if floating:
                raise ValueError(
                    f"{path}: MJCF says itself which bodies float; leave --floating out"
                )
            model = load_mjcf(path, roots=roots, contacts=contacts)
        else:
            raise ValueError(f"{path}: the ending must be .urdf or .xml (MJCF)")
    for line in (*(f"skipped: {what}" for what in model.skipped), *model.notes):
        print(line, file=sys.stderr)
    return *model.build(), model.visuals


def chain(links: int) -> tuple[System, State]:
    """Rods of 0.5 m that hang in a row on hinges about y and x in turn, at 0.3 rad."""
    world, length, radius = SystemBuilder(), 0.5, 0.02
    across = length**2 / 12 + radius**2 / 4
    for i in range(links):
        inertia = (across, across, radius**2 / 2)
        world.body(f"link {i}", mass=1.0, inertia=inertia, com=(0.0, 0.0, -length / 2))
        world.joint(
            f"hinge {i}",
            Hinge(((0.0, 1.0, 0.0), (1.0, 0.0, 0.0))[i % 2]),
            child=f"link {i}",
            parent=f"link {i - 1}" if i else WORLD,
            frame_D=(0.0, 0.0, -length) if i else None,
            q=0.3,
        )
    return world.build()
