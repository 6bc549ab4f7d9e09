"""SystemBuilder: bodies and joints by name, checked as they come, made into System and State."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import replace
from ..algebra.spatial import Pose
from ..couplings.coupling import Coupling
from ..couplings.nonholonomic import extra_rows
from ..laws.fields import Field
from ..laws.law import Law
from ..laws.softness import Bushing, Compliance, Softness
from ..laws.transmissions import Transmission
from ..model.groups import Topology
from ..model.state import State
from ..model.system import WORLD, System
from .contacts import add_contact
from .grouping import (
    GivenBody,
    GivenField,
    GivenJoint,
    GivenTransmission,
    field_groups,
    joint_groups,
    transmission_groups,
)
from .joint_validation import (
    check_ends,
    check_fields,
    check_masses,
    critical_damping,
    read_coupling,
    read_field,
    read_laws,
    read_transmission,
    winding_notes,
)
from .start import WORLD_INDEX, start_state
from .validation import check_time_step as check_time_step
from .validation import (
    near_matches,
    precision,
    read_attachment,
    read_coordinates,
    read_inertia,
    read_mass,
    read_most,
    read_numbers,
    read_pose,
    read_softness,
    read_switch,
    read_velocity,
)


class SystemBuilder:
    """Collects bodies and joints, then makes the `System` and the state it starts from.

    gravity: acceleration in the world [m/s²]
    erp, cfm: softness of the bilateral rows of joints that give none; erp also of hard limits
    softness: in place of both, also in physical units (`Compliance`)
    strict: refuse couplings of low rank at rest, and those that use arrays from outside of their
        fields, of which it is otherwise warned

    >>> from jaxjoints import Hinge
    >>> world = SystemBuilder()
    >>> arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.02), com=(0.0, 0.0, -0.5))
    >>> shoulder = world.joint("shoulder", Hinge(axis=(0.0, 1.0, 0.0)), child=arm, q=0.3)
    >>> system, state = world.build()
    """

    contact = add_contact

    def __init__(
        self,
        *,
        gravity: Any = (0.0, 0.0, -9.81),
        erp: float = 0.2,
        cfm: float = 0.0,
        softness: Softness | Compliance | Bushing | None = None,
        strict: bool = False,
    ):
        self._gravity = read_numbers("system", "gravity", gravity, (3,))
        self._rigid = Softness(erp, cfm)
        self._softness = self._rigid if softness is None else softness
        self._strict = strict
        for given in (self._rigid, self._softness):
            read_softness("system", given, 0)
        if isinstance(softness, Softness):
            self._rigid = softness
        self._bodies: dict[str, GivenBody] = {}
        self._joints: dict[str, GivenJoint] = {}
        self._transmissions: dict[str, GivenTransmission] = {}
        self._fields: dict[str, GivenField] = {}
        self._notes: list[str] = []

    def body(
        self,
        name: str,
        *,
        mass: float | None = None,
        inertia: Any = None,
        com: Any = (0.0, 0.0, 0.0),
        pose: Any = None,
        velocity: Any = None,
        prescribed: bool = False,
        symmetrize: bool = False,
        balance_inertia: bool = False,
        inertia_at: str = "com",
    ) -> str:
        """Add a rigid body; returns its name.

        mass: [kg], > 0
        inertia: about the centre of mass in body axes [kg m²]: 3 principal moments or 3x3
        com: centre of mass in the body frame [m]
        pose: of the body frame in the world at the start: a `Pose`, a position, (position,
            quaternion w first) or (position, 3x3 rotation matrix); without it joints place it
        velocity: of the body frame's origin, then angular, world axes [m/s, rad/s], shape (6,)
        prescribed: it moves as told by `Control.twist`, whatever the forces; needs no mass
        symmetrize: take the mean of the inertia and its transpose
        balance_inertia: raise the smaller moments where the largest exceeds their sum, and warn
        inertia_at: "com", or "origin" for an inertia about the body frame's origin

        Raises: ValueError naming the body, the field, the value and the rule.
        """
        owner = f"body {name!r}"
        if name == WORLD:
            raise ValueError(f"{owner}: this name stands for the world; choose another")
        com = read_numbers(owner, "com", com, (3,))
        checked_mass = read_mass(owner, mass, prescribed)
        body = GivenBody(
            mass=checked_mass,
            inertia=read_inertia(
                owner,
                inertia,
                mass=checked_mass,
                com=com,
                at=inertia_at,
                prescribed=prescribed,
                symmetrize=symmetrize,
                balance=balance_inertia,
            ),
            com=com,
            pose=None if pose is None else read_pose(owner, "pose", pose),
            velocity=None if velocity is None else read_velocity(owner, velocity),
            moving=not prescribed,
        )
        _add("body", self._bodies, name, body)
        return name

    def joint(
        self,
        name: str,
        coupling: Coupling,
        *,
        child: str,
        parent: str = WORLD,
        frame_C: Any = None,
        frame_D: Any = None,
        frame_W: Any = None,
        laws: Law | Iterable[Law] = (),
        softness: Softness | Compliance | Bushing | None = None,
        attachment: str | tuple[float, float] = "C",
        enabled: bool | None = None,
        max_effort: Any = None,
        q: Any = None,
        qd: Any = None,
        allow_active: bool = False,
    ) -> str:
        """Add a joint between two bodies that are there already; returns its name.

        coupling: which poses of C in D it allows
        child, parent: names of the bodies that carry C and D
        frame_C, frame_D: poses of C and D in their bodies' frames (forms as `body`'s pose)
        frame_W: instead of both, one pose in the world where C and D meet at the given poses of
            the bodies
        laws: forces along the coordinates
        softness: of the bilateral rows, all or one by one; by default the builder's
        attachment: where the rows' forces act: "C"; "own", each body at its own frame; "midpoint";
            or shares of the way from C to D for child and parent (see `JointGroup`)
        enabled: True or False for a joint that can be switched at any step, per environment:
            `system.with_joint(name, enabled=…)`
        max_effort: what `Control.effort` is clipped to, ± [N or N m], a number or shape (dof,)
        q, qd: coordinates [m or rad] and their speeds at the start, shape (dof,)
        allow_active: accept negative stiffness, damping or friction, which feed energy in

        Raises: ValueError naming the joint, the field, the value and the rule.
        """
        owner = f"joint {name!r}"
        check_ends(owner, self._bodies, child, parent)
        if frame_W is not None:
            if frame_C is not None or frame_D is not None:
                raise ValueError(f"{owner}: give frame_W or frame_C and frame_D, not both")
            frames = self._frames_at(owner, read_pose(owner, "frame_W", frame_W), child, parent)
        else:
            frames = read_pose(owner, "frame_C", frame_C), read_pose(owner, "frame_D", frame_D)
        coupling, notes = read_coupling(owner, coupling, self._strict)
        dof = coupling.dof
        laws, law_notes = read_laws(
            owner, laws, dof=dof, erp=self._rigid.erp, allow_active=allow_active
        )
        given = self._softness if softness is None else softness
        rigid, springs = self._springs(owner, given, 6 - dof + extra_rows(coupling))
        if isinstance(springs, Compliance):
            sides = self._sides((child, frames[0]), (parent, frames[1]))
            springs = critical_damping(owner, springs, coupling, sides)
        joint = GivenJoint(
            coupling=coupling,
            child=child,
            parent=parent,
            frames=frames,
            laws=laws,
            softness=rigid,
            springs=springs,
            enabled=read_switch(owner, enabled),
            max_effort=read_most(owner, "max_effort", max_effort, dof),
            attachment=read_attachment(owner, attachment, coupling),
            q=None if q is None else _unbatched(owner, "q", q, dof),
            qd=None if qd is None else _unbatched(owner, "qd", qd, dof),
        )
        _add("joint", self._joints, name, joint)
        self._notes += notes + law_notes + winding_notes(owner, coupling, laws)
        check_masses(owner, self._bodies, child, parent)
        return name

    def transmission(
        self,
        name: str,
        transmission: Transmission,
        *,
        joints: Sequence[str],
        laws: Law | Iterable[Law] = (),
        softness: Softness | Compliance | Bushing | None = None,
        enabled: bool | None = None,
        allow_active: bool = False,
    ) -> str:
        """Couple the coordinates of joints that are there already; returns its name.

        transmission: its values f(q) of the coordinates of the joints, held at 0
        joints: their names, in the order in which it takes their coordinates
        laws: forces along values, instead of holding them; a law's `coordinate` is the value
        softness: of the values that are held; by default the builder's
        enabled, allow_active: as in `joint`

        Raises: ValueError naming the transmission, the field, the value and the rule.
        """
        owner = f"transmission {name!r}"
        joints = (joints,) if isinstance(joints, str) else tuple(joints)
        for i, joint in enumerate(joints):
            if joint not in self._joints:
                raise ValueError(
                    f"{owner}: {joint!r} is no joint; {near_matches(joint, self._joints)} (joints "
                    "are added before their transmissions)"
                )
            if joint in joints[:i]:
                raise ValueError(f"{owner}: joint {joint!r} is given twice; name each once")
        dof = sum(self._joints[joint].coupling.dof for joint in joints)
        if not dof:
            raise ValueError(f"{owner}: joints {list(joints)} have no coordinates to couple")
        made = read_transmission(owner, transmission, dof)
        kept, notes = read_laws(
            owner, laws, dof=made.rows, erp=self._rigid.erp, allow_active=allow_active
        )
        given = self._softness if softness is None else softness
        soft, springs = self._springs(owner, given, made.rows)
        if isinstance(springs, Compliance) and springs.damping is None:
            raise ValueError(
                f"{owner}: damping of a Compliance must be given; the inertia that a transmission "
                "moves depends on where its joints are"
            )
        switch = read_switch(owner, enabled)
        record = GivenTransmission(made, joints, kept, soft, springs, switch)
        _add("transmission", self._transmissions, name, record)
        self._notes += notes
        return name

    def field(self, name: str, field: Field, *, bodies: str | Sequence[str] | None = None) -> str:
        """Let a force from outside act on bodies that are there already; returns its name.

        field: drag, damping, a force at a point, or one of your own (see `Field`)
        bodies: names of those that it acts on; None for all that move, those to come included

        Raises: ValueError naming the field, the value and the rule; for what is not finite at the
            start, when the system is built.
        """
        owner = f"field {name!r}"
        if bodies is not None:
            bodies = (bodies,) if isinstance(bodies, str) else tuple(bodies)
            for i, body in enumerate(bodies):
                if body not in self._bodies:
                    raise ValueError(
                        f"{owner}: {body!r} is no body; {near_matches(body, self._bodies)} (bodies "
                        "are added before their fields)"
                    )
                if body in bodies[:i]:
                    raise ValueError(f"{owner}: body {body!r} is given twice; name each once")
                if not self._bodies[body].moving:
                    raise ValueError(
                        f"{owner}: {body!r} moves as prescribed, whatever the forces; leave it out"
                    )
        _add("field", self._fields, name, GivenField(read_field(owner, field), bodies))
        return name

    def build(self) -> tuple[System, State]:
        """The system and the state it starts from.

        Bodies without a pose are placed by their joints, breadth first from the world and the
        bodies with one; see `start_state`.

        Warns: coordinates that start outside their limits, joints whose frames do not meet or whose
            speeds slip.
        """
        bodies, joints = self._bodies, self._joints
        if not bodies:
            raise ValueError("system: there are no bodies; add one with `body`")
        index = {name: i for i, name in enumerate(bodies)} | {WORLD: WORLD_INDEX}
        groups = joint_groups(joints, index)
        topology = Topology(
            bodies=tuple(bodies),
            joints=tuple(joints),
            transmissions=tuple(self._transmissions),
            fields=tuple(self._fields),
            moving=tuple(body.moving for body in bodies.values()),
            notes=tuple(self._notes),
        )
        dtype = precision()
        system = System(
            mass=jnp.array([body.mass for body in bodies.values()], dtype),
            inertia=jnp.array(np.stack([b.inertia for b in bodies.values()], axis=-1), dtype),
            com=jnp.array(np.stack([b.com for b in bodies.values()], axis=-1), dtype),
            gravity=jnp.array(self._gravity, dtype),
            groups=groups,
            transmissions=transmission_groups(self._transmissions, list(joints), groups),
            fields=field_groups(self._fields, index, topology.moving),
            topology=topology,
        )
        ranks = tuple(leaf.ndim for leaf in jax.tree.leaves(system))
        system = replace(system, topology=replace(topology, ranks=ranks))
        state = start_state(
            system,
            q=_given(joints, "q"),
            qd=_given(joints, "qd"),
            pose=_given(bodies, "pose"),
            velocity=_given(bodies, "velocity"),
        )
        check_fields(system, state)
        return system, state

    def _springs(
        self, owner: str, softness: Softness | Compliance | Bushing, rows: int
    ) -> tuple[tuple[np.ndarray, np.ndarray], Compliance | Bushing | None]:
        """ERP and CFM of rows, and their springs where they are given in physical units."""
        given = read_softness(owner, softness, rows)
        if isinstance(given, Softness):
            return (given.erp, given.cfm), None
        rigid = read_softness(owner, Softness(self._rigid.erp, 0.0), rows)
        return (rigid.erp, rigid.cfm), given

    def _sides(self, *ends: tuple[str, Pose]) -> list[tuple[float, np.ndarray, np.ndarray]]:
        """Mass, inertia and the joint's origin from the centre of mass, of each body that moves."""
        bodies = [(self._bodies.get(name), frame) for name, frame in ends]
        return [
            (body.mass, body.inertia, np.asarray(frame.p) - body.com)
            for body, frame in bodies
            if body is not None and body.moving
        ]

    def _frames_at(self, owner: str, place: Pose, child: str, parent: str) -> tuple[Pose, Pose]:
        frames = []
        for name in (child, parent):
            body = self._bodies.get(name)
            if body is not None and body.pose is None:
                raise ValueError(
                    f"{owner}: frame_W needs the start pose of {name!r}; give pose=… to that body, "
                    "or frame_C and frame_D here"
                )
            frames.append(place if body is None else body.pose.inverse() @ place)
        return frames[0], frames[1]


def _unbatched(owner: str, field: str, value: Any, dof: int) -> Array:
    coordinates = read_coordinates(owner, field, value, dof)
    if coordinates.ndim > 1:
        raise ValueError(
            f"{owner}: {field} has shape {np.shape(value)}; give {dof} numbers here, batches to "
            "`state` of the built system"
        )
    return coordinates


def _given(elements: Mapping[str, Any], field: str) -> dict[str, Any]:
    found = {name: getattr(element, field) for name, element in elements.items()}
    return {name: value for name, value in found.items() if value is not None}


def _add(element: str, elements: dict[str, Any], name: str, value: Any) -> None:
    if not isinstance(name, str) or not name:
        raise ValueError(f"{element} {name!r}: a name is a string of at least one character")
    if name in elements:
        first = list(elements).index(name)
        raise ValueError(
            f"{element} {name!r} is defined twice: as {element} {first} ({elements[name]}) and as "
            f"{element} {len(elements)} ({value}); rename one"
        )
    elements[name] = value
