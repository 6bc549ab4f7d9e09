"""Model: a mechanism from a file, to add to, to build and to look at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..build.builder import SystemBuilder
from ..model.state import Control, State
from ..model.system import WORLD, System
from ..model.table import Description, Table, count, names
from .actuators import Actuator, control_of
from .errors import shown
from .geometry import Visual

# Names in an error, and sentences of each kind in a description.
MOST_NAMES, MOST_SENTENCES = 10, 3


@dataclass(frozen=True, eq=False)
class Model:
    """What a model file says: a builder with its bodies and joints, and how the bodies look.

    Add loops, laws, contacts and fields to `builder`, then `build`.

    name: of the model in the file
    builder: has its bodies, joints and transmissions
    frames: of each link, body or site of the file, the body that carries it and its pose there, as
        (position, rotation matrix), which `SystemBuilder.joint` takes for frame_C and frame_D
    coordinates: of each joint of the file that moves, the builder's joint and which of its
        coordinates it is; several joints without a mass between them are one of the builder
    speed_limits: of joints that have one, the largest speed [m/s or rad/s]; no force keeps to it
    actuated: joints that the file names as driven: by transmissions of URDF, by actuators of MJCF
    actuators: of an MJCF file; timestep: that it asks for [s], None where it does not
    visuals: shapes to look at; collisions: shapes that the file means for contact
    skipped: what of the file is not simulated or shown, a sentence each
    notes: what was changed so that it can be simulated, a sentence each
    """

    name: str
    builder: SystemBuilder
    frames: Mapping[str, tuple[str, tuple[np.ndarray, np.ndarray]]]
    coordinates: Mapping[str, tuple[str, int]]
    speed_limits: Mapping[str, float] = field(default_factory=dict)
    visuals: tuple[Visual, ...] = ()
    collisions: tuple[Visual, ...] = ()
    actuated: tuple[str, ...] = ()
    actuators: tuple[Actuator, ...] = ()
    timestep: float | None = None
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return str(self._described(html=False))

    def _repr_html_(self) -> str:
        return self._described(html=True).html

    def _described(self, *, html: bool) -> Description:
        """What the file has and what of it is left out; in a notebook its joints as a table."""
        bodies, joints = self.builder.bodies, list(self.coordinates)
        places = [
            (name, *map(str, place), name in self.actuated and "driven" or "")
            for name, place in self.coordinates.items()
        ]
        table = Table(("joint of the file", "joint", "its coordinate", ""), places)
        lines = [
            f"Model {shown(self.name)} of {count(len(bodies), 'body', 'bodies')} and "
            f"{count(len(joints), 'joint')} that can move",
            f"bodies: {names(bodies)}" if bodies else "",
            f"joints: {names(joints)}" if joints else "",
            f"driven: {names(self.actuated)}" if self.actuated else "",
            *_some("skipped", self.skipped),
            *_some("changed", self.notes),
            "add to it: laws= of the loader, model.builder; go on: system, state = model.build()",
        ]
        return Description(lines, [table] if html else [])

    def build(self) -> tuple[System, State]:
        """The system and the state it starts from, as `SystemBuilder.build`.

        Raises: ValueError where all links stand in the world and the builder has no body besides.
        """
        if self.frames and not self.builder.bodies:
            links = [shown(link) for link in self.frames if link != WORLD]
            raise ValueError(
                f"model {shown(self.name)}: {', '.join(links[:MOST_NAMES])} "
                f"{'stands' if len(links) == 1 else 'stand'} in the world and nothing moves; "
                "give a link a joint that moves it, or the base with load_urdf(..., floating=True)"
            )
        return self.builder.build()

    def control(self, system: System, values: Any) -> Control:
        """What acts on a built system for the controls of the file's actuators.

        values: one for each control in the order of the file, shape (controls, *batch)
        """
        return control_of(self.actuators, system, values)


def _some(field: str, sentences: Sequence[str]) -> list[str]:
    """The first of some sentences, each under the name of their field."""
    more = len(sentences) - MOST_SENTENCES
    rest = [f"{field}: … and {more} more"] if more > 0 else []
    return [*(f"{field}: {sentence}" for sentence in sentences[:MOST_SENTENCES]), *rest]
