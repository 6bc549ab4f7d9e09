"""Model: a mechanism from a file, to add to, to build and to look at."""

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax import Array

from ..algebra.options import near_matches
from ..build.builder import SystemBuilder
from ..couplings.shapes import HalfSpace, Shape
from ..model.state import Control, State
from ..model.system import WORLD, System
from ..model.table import Description, Table, count, names
from .actuators import Actuator, activation_of, control_of, next_activation_of
from .errors import shown
from .geometry import Visual
from .touching import touching_shape

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

    >>> from jaxjoints.models import load_urdf
    >>> slide = load_urdf('''<robot name="slide">
    ...   <link name="base"/>
    ...   <link name="cart"><inertial>
    ...     <mass value="2"/> <inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/>
    ...   </inertial></link>
    ...   <joint name="rail" type="prismatic"> <parent link="base"/> <child link="cart"/>
    ...     <axis xyz="1 0 0"/> <limit lower="-1" upper="1" effort="10" velocity="3"/>
    ...   </joint>
    ... </robot>''')
    >>> slide.coordinates, slide.speed_limits
    ({'rail': ('rail', 0)}, {'rail': 3.0})
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
        links = [shown(link) for link in self.frames if link != WORLD]
        if links and not self.builder.bodies:
            raise ValueError(
                f"model {shown(self.name)}: {', '.join(links[:MOST_NAMES])} "
                f"{'stands' if len(links) == 1 else 'stand'} in the world and nothing moves; "
                "give a link a joint that moves it, or the base with load_urdf(..., floating=True)"
            )
        return self.builder.build()

    def add_ground(
        self,
        ground: Shape | None = None,
        *,
        frame: Any = None,
        bodies: Iterable[str] | None = None,
        **surface: Any,
    ) -> tuple[str, ...]:
        """Let `collisions` touch a ground that stands in the world; returns the names of contacts.

        A mesh touches with its convex hull, of 64 vertices at most. Contacts are named
        "BODY on ground", of several shapes of a body "BODY 0 on ground" and so on, and the points
        of each as in `SystemBuilder.contact`.

        ground: a shape of `jaxjoints.shapes`, by default the half-space below z = 0; frame: where
            it stands, in one of the forms of `SystemBuilder.body`
        bodies: those that touch it, or patterns of the shell for their names; None for all
        surface: as in `SystemBuilder.contact`

        Raises: ValueError without shapes that could touch, for names that fit no body, and for
            shapes that do not touch this ground.
        """
        seen: dict[str, list[Visual]] = {}
        for visual in self.collisions:
            if visual.body != WORLD:
                seen.setdefault(visual.body, []).append(visual)
        patterns = ["*"] if bodies is None else list(bodies)
        for pattern in patterns:
            if not fnmatch.filter(seen, pattern):
                advice = near_matches(pattern, seen) if seen else "load the file with visuals=True"
                raise ValueError(
                    f"model {shown(self.name)}: no body {pattern!r} has collision shapes; {advice}"
                )
        names: list[str] = []
        for body, visuals in seen.items():
            if not any(fnmatch.fnmatchcase(body, pattern) for pattern in patterns):
                continue
            for i, visual in enumerate(visuals):
                number = f" {i}" if len(visuals) > 1 else ""
                rotation, position = visual.frame
                names += self.builder.contact(
                    f"{body}{number} on ground",
                    touching_shape(visual.shape),
                    HalfSpace() if ground is None else ground,
                    child=body,
                    frame_C=(position, rotation),
                    frame_D=frame,
                    **surface,
                )
        return tuple(names)

    def control(
        self,
        system: System,
        values: Any,
        *,
        state: State | None = None,
        activation: Any = None,
    ) -> Control:
        """What acts on a built system for the controls of the file's actuators.

        Position and velocity servos are laws of joints and transmissions, whose targets it sets.
        All other forces are efforts: of motors, and, as they are in `state`, of actuators whose
        force depends on positions or speeds in another way (`Model.notes` names them).

        values: one for each control in the order of the file, shape (controls, *batch)
        state: at the start of the step; only for the latter
        activation: of actuators that have one, shape (activations, *batch), see `activation`

        Raises: ValueError for another number of values, and without `state` or `activation` where
            an actuator needs it.
        """
        return control_of(self.actuators, system, values, state, activation)

    def activation(self, *batch: int) -> Array:
        """Activations at the start, of actuators that follow their control by a filter or an
        integrator: 0, or the nearest value within their range, shape (activations, *batch).

        They are the memory of a `Controller`:

            def drive(state, inputs):
                control = model.control(system, inputs.shared, activation=inputs.memory)
                return control, model.next_activation(inputs.memory, inputs.shared, dt)

            controls = Controller(drive, shared=values, memory=model.activation())
        """
        return activation_of(self.actuators, batch)

    def next_activation(self, activation: Any, values: Any, dt: Any) -> Array:
        """Activations after a step, shape (activations, *batch).

        activation: before the step; values: as in `control`; dt: length of the step [s]
        """
        return next_activation_of(self.actuators, activation, values, dt)


def _some(field: str, sentences: Sequence[str]) -> list[str]:
    """The first of some sentences, each under the name of their field."""
    more = len(sentences) - MOST_SENTENCES
    rest = [f"{field}: … and {more} more"] if more > 0 else []
    return [*(f"{field}: {sentence}" for sentence in sentences[:MOST_SENTENCES]), *rest]
