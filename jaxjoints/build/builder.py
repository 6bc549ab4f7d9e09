"""SystemBuilder: collects bodies and joints by name, then makes a System and its start state."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from ..algebra.arguments import read_numbers
from ..algebra.calls import public
from ..algebra.options import check_switch, near_matches
from ..algebra.pytree import replace
from ..algebra.spatial import Pose
from ..couplings.coupling import Coupling
from ..couplings.nonholonomic import extra_rows
from ..laws.constraints import Constraint
from ..laws.fields import Field
from ..laws.law import Law
from ..laws.softness import AnySoftness, Compliance, Softness
from ..laws.transmissions import Transmission
from ..model.groups import Topology
from ..model.state import State
from ..model.system import WORLD, WORLD_INDEX, System
from .checks.bodies import read_inertia, read_mass
from .checks.constraints import read_constraint
from .checks.couplings import notes_on_turns, read_coupling, warn_of_one_component
from .checks.fields import check_fields_at_start, read_field
from .checks.joints import (
    check_ends,
    read_attachment,
    read_max_effort,
    read_softness,
    read_switch,
    read_tree,
    warn_of_mass_ratio,
    with_critical_damping,
)
from .checks.laws import read_laws
from .checks.transmissions import read_transmission
from .checks.units import warn_of_units
from .checks.values import (
    float_array,
    read_coordinates,
    read_names,
    read_pose,
    read_velocity,
    stacked,
)
from .contacts import add_contact
from .grouping import (
    constraint_groups,
    contact_groups,
    field_groups,
    joint_groups,
    transmission_groups,
)
from .specs import (
    BodySpec,
    ConstraintSpec,
    ContactSpec,
    FieldSpec,
    JointSpec,
    RowSoftness,
    TransmissionSpec,
)
from .start import start_state


class SystemBuilder:
    """Collects bodies and joints by name, then makes the `System` and its start state.

    Bodies come before the joints that connect them, joints before the transmissions that couple
    them. Units are SI and radians. Every argument is checked when it is passed.

    Numbers may be traced: a builder inside of `jit` or `grad` makes a system whose dimensions,
    masses, axes and laws are differentiated. The builder checks only the shapes of traced numbers;
    `Info.cause` and `diagnose` report wrong values. Names, graph, static fields, and equal limits
    that make a `Lock` shape the program and are not traced.

    gravity: acceleration in the world [m/s²], shape (3,)
    erp, cfm: default softness of the bilateral rows of joints, as in `Softness`; erp is also the
        default of hard limits
    softness: default softness in place of erp and cfm: a `Softness`, or in physical units a
        `Compliance`, `Bushing` or `Baumgarte`
    strict: refuse a coupling of low rank at rest, and a coupling that captures arrays in place of
        fields; without `strict` the builder warns of both

    >>> from jaxjoints import Hinge
    >>> world = SystemBuilder()
    >>> arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.02), com=(0.0, 0.0, -0.5))
    >>> shoulder = world.joint("shoulder", Hinge(axis=(0.0, 1.0, 0.0)), child=arm, q=0.3)
    >>> system, state = world.build()
    """

    contact = add_contact

    @public
    def __init__(
        self,
        *,
        gravity: Any = (0.0, 0.0, -9.81),
        erp: float = 0.2,
        cfm: float = 0.0,
        softness: AnySoftness | None = None,
        strict: bool = False,
    ):
        self._gravity = read_numbers("system", "gravity", gravity, (3,))
        self._softness = Softness(erp, cfm) if softness is None else softness
        self._strict = check_switch("system", "strict", strict)
        read_softness("system", Softness(erp, cfm), 0)
        read_softness("system", self._softness, 0)
        # That of hard limits, and of rigid rows among those of a compliance.
        self._erp = softness.erp if isinstance(softness, Softness) else erp
        self._bodies: dict[str, BodySpec] = {}
        self._joints: dict[str, JointSpec] = {}
        self._transmissions: dict[str, TransmissionSpec] = {}
        self._fields: dict[str, FieldSpec] = {}
        self._constraints: dict[str, ConstraintSpec] = {}
        self._contacts: dict[str, ContactSpec] = {}
        self._notes: list[str] = []
        self._lenient: list[str] = []

    @property
    def bodies(self) -> tuple[str, ...]:
        """Names of the bodies so far."""
        return tuple(self._bodies)

    @public
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
        allow_unphysical: bool = False,
        inertia_at: str = "com",
    ) -> str:
        """Add a rigid body; returns its name.

        mass: [kg], > 0
        inertia: in body axes [kg m²], about the point `inertia_at`: 3 principal moments or a 3x3
            matrix
        com: centre of mass in the body frame [m], shape (3,)
        pose: of the body frame in the world at the start: a `Pose`, a position (3,), (position,
            quaternion w first) or (position, 3x3 rotation matrix). A body without a pose is placed
            by its joints
        velocity: at the start, world axes: linear velocity of the body frame's origin, then angular
            velocity [m/s, rad/s], shape (6,)
        prescribed: the body moves with the twist in `Control.twist`, whatever forces act on it; it
            needs no mass and no inertia
        symmetrize: replace an asymmetric inertia by the mean of the matrix and its transpose
        balance_inertia: if the largest principal moment exceeds the sum of the others, raise the
            others until their sum reaches it, and warn
        allow_unphysical: accept an inertia whose largest principal moment exceeds the sum of the
            others: no rigid body has it, but the motion is defined
        inertia_at: "com" for the centre of mass, "origin" for the origin of the body frame

        Raises: ValueError naming the body, the argument, its value and the rule.
        """
        owner = f"body {name!r}"
        if name == WORLD:
            raise ValueError(f"{owner}: this name stands for the world; choose another")
        for field, value in (
            ("prescribed", prescribed),
            ("symmetrize", symmetrize),
            ("balance_inertia", balance_inertia),
            ("allow_unphysical", allow_unphysical),
        ):
            check_switch(owner, field, value)
        com = read_numbers(owner, "com", com, (3,))
        checked_mass = read_mass(owner, mass, prescribed)
        body = BodySpec(
            mass=checked_mass,
            inertia=read_inertia(
                owner,
                inertia,
                mass=checked_mass,
                com=com,
                reference=inertia_at,
                prescribed=prescribed,
                symmetrize=symmetrize,
                balance=balance_inertia,
                unphysical=allow_unphysical,
            ),
            com=com,
            pose=None if pose is None else read_pose(owner, "pose", pose),
            velocity=None if velocity is None else read_velocity(owner, velocity),
            moving=not prescribed,
        )
        self._add("body", self._bodies, name, body)
        self._lenient += [owner] if allow_unphysical else []
        return name

    @public
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
        softness: AnySoftness | None = None,
        attachment: str | tuple[float, float] = "C",
        enabled: bool | None = None,
        max_effort: Any = None,
        tree: bool = True,
        q: Any = None,
        qd: Any = None,
        allow_active: bool = False,
    ) -> str:
        """Add a joint between two bodies that the builder has already; returns its name.

        coupling: the record that says which poses T_CD of frame C in frame D the joint allows
        child: name of the body that carries frame C
        parent: name of the body that carries frame D, or `WORLD`
        frame_C: pose of C in the child's body frame; frame_D: pose of D in the parent's body frame;
            forms as `pose` in `body`, the identity by default
        frame_W: a pose in the world in place of frame_C and frame_D: C and D have this pose when
            the two bodies have their start poses (`pose` in `body`)
        laws: forces along the joint's coordinates: limits, springs, motors, friction
        softness: of the joint's bilateral rows; by default the builder's
        attachment: the points of the two bodies where the rows' forces act: "C", both at the origin
            of C; "own", the child at C and the parent at D; "midpoint", both half-way between; or
            two shares of the way from C to D, for child and parent (see `JointGroup`)
        enabled: True or False makes a joint that `system.with_joint(name, enabled=…)` can switch,
            per environment; None makes a joint that is always on
        max_effort: largest |`Control.effort`| that acts [N or N m], a number or shape (dof,); also
            the effort of a `Servo` that states none
        tree: False holds the joint by rows, even if its coordinates could hold it (see
            `SemiImplicitEuler`). Use False to choose the joint that closes a loop, and for a joint
            that gets CFM after the build
        q, qd: coordinates [m or rad] and their speeds [m/s or rad/s] at the start, shape (dof,)
        allow_active: accept laws of negative stiffness, damping, friction or inertia, and softness
            of negative stiffness or damping, which feed energy into the system

        Raises: ValueError naming the joint, the argument, its value and the rule.
        Warns: couplings of low rank at rest, and masses that differ by more than 1e6.
        """
        owner = f"joint {name!r}"
        check_ends(owner, self._bodies, child, parent)
        if frame_W is not None:
            if frame_C is not None or frame_D is not None:
                raise ValueError(f"{owner}: give frame_W or frame_C and frame_D, not both")
            frame_W = read_pose(owner, "frame_W", frame_W)
            frame_C, frame_D = (self._in_body(owner, name, frame_W) for name in (child, parent))
        else:
            frame_C = read_pose(owner, "frame_C", frame_C)
            frame_D = read_pose(owner, "frame_D", frame_D)
        coupling, coupling_notes = read_coupling(owner, coupling, self._strict)
        dof = coupling.dof
        max_effort = read_max_effort(owner, max_effort, dof)
        laws, law_notes = self._laws(owner, laws, dof, allow_active, max_effort)
        count = 6 - dof + extra_rows(coupling)
        rows = self._row_softness(owner, softness, count, allow_active)
        if isinstance(rows.softness, Compliance):
            inertias = self._inertias((child, frame_C), (parent, frame_D))
            damped = with_critical_damping(owner, rows.softness, coupling, inertias)
            rows = replace(rows, softness=damped)
        joint = JointSpec(
            coupling=coupling,
            child=child,
            parent=parent,
            frame_C=frame_C,
            frame_D=frame_D,
            laws=laws,
            softness=rows,
            enabled=read_switch(owner, enabled),
            max_effort=max_effort,
            tree=read_tree(owner, tree),
            attachment=read_attachment(owner, attachment, coupling),
            q=None if q is None else _unbatched(owner, "q", q, dof),
            qd=None if qd is None else _unbatched(owner, "qd", qd, dof),
        )
        self._add("joint", self._joints, name, joint)
        for law in laws:
            for bound in ("lower", "upper", "target", "value", "rest"):
                number = getattr(law, bound, None)
                what = f"{type(law).__name__} {bound}"
                warn_of_units(owner, what, coupling, number, [law.coordinate])
        self._notes += coupling_notes + law_notes + notes_on_turns(owner, coupling, laws)
        self._lenient += [owner] if allow_active else []
        warn_of_one_component(owner, coupling, laws)
        warn_of_mass_ratio(owner, self._bodies, (child, parent))
        return name

    @public
    def add_law(self, joint: str, law: Law | Iterable[Law], *, allow_active: bool = False) -> None:
        """Add laws to a joint that the builder has already, beside the laws of the joint.

        Use it for joints of a file, `model.builder.add_law("elbow", …)`. `load_urdf` and
        `load_mjcf` add their `laws` in this way.

        joint: name of the joint in the builder
        law: one law or several; each acts on the joint's coordinate of number `coordinate`
        allow_active: as in `joint`

        Raises: ValueError for an unknown joint, with near matches; as `joint`, for laws.

        >>> from jaxjoints import Hinge, Limits, Servo
        >>> world = SystemBuilder()
        >>> arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.02))
        >>> elbow = world.joint("elbow", Hinge(), child=arm, laws=Limits(upper=1.0), max_effort=9.0)
        >>> world.add_law(elbow, Servo(100.0, 10.0))
        >>> system, _ = world.build()
        >>> [type(law).__name__ for law in system.joint("elbow").laws]
        ['Limits', 'Servo']
        >>> print(system.number("joint.elbow.servo.effort"))
        9.0
        """
        if joint not in self._joints:
            raise ValueError(f"add_law: {self._no_joint(joint)}")
        owner, spec = f"joint {joint!r}", self._joints[joint]
        laws, notes = self._laws(
            owner, law, spec.coupling.dof, allow_active, spec.max_effort, spec.laws
        )
        notes += notes_on_turns(owner, spec.coupling, laws)
        warn_of_one_component(owner, spec.coupling, laws)
        self._joints[joint] = replace(spec, laws=(*spec.laws, *laws))
        self._notes += notes

    @public
    def transmission(
        self,
        name: str,
        transmission: Transmission,
        *,
        joints: str | Sequence[str],
        laws: Law | Iterable[Law] = (),
        softness: AnySoftness | None = None,
        enabled: bool | None = None,
        allow_active: bool = False,
    ) -> str:
        """Couple the coordinates of joints that the builder has already; returns its name.

        transmission: the record of the values f(q) of these coordinates q. Laws act on a value; a
            value without laws is held at 0
        joints: names of the joints, in the order in which f takes their coordinates
        laws: forces along the values; the `coordinate` of a law is the index of its value
        softness: of the values that are held at 0; by default the builder's
        enabled, allow_active: as in `joint`

        Raises: ValueError naming the transmission, the argument, its value and the rule.
        """
        owner = f"transmission {name!r}"
        rule = "joints are added before their transmissions"
        joints = read_names(owner, joints, self._joints, element="joint", rule=rule)
        dof = sum(self._joints[joint].coupling.dof for joint in joints)
        if not dof:
            raise ValueError(f"{owner}: joints {list(joints)} have no coordinates to couple")
        transmission = read_transmission(owner, transmission, dof)
        laws, notes = read_laws(
            owner, laws, dof=transmission.rows, erp=self._erp, allow_active=allow_active
        )
        rows = self._row_softness(owner, softness, transmission.rows, allow_active)
        if isinstance(rows.softness, Compliance) and rows.softness.damping is None:
            raise ValueError(
                f"{owner}: damping of a Compliance must be given; the inertia that a transmission "
                "moves depends on where its joints are"
            )
        switch = read_switch(owner, enabled)
        spec = TransmissionSpec(transmission, joints, laws, rows, switch)
        self._add("transmission", self._transmissions, name, spec)
        self._notes += notes
        self._lenient += [owner] if allow_active else []
        ends = [end for j in joints for end in (self._joints[j].child, self._joints[j].parent)]
        warn_of_mass_ratio(owner, self._bodies, ends)
        return name

    @public
    def constraint(
        self,
        name: str,
        constraint: Constraint,
        *,
        bodies: str | Sequence[str],
        softness: AnySoftness | None = None,
        enabled: bool | None = None,
    ) -> str:
        """Hold functions of the motion of bodies at 0; returns its name.

        constraint: the record of the functions, at position, velocity or acceleration level
        bodies: names of the bodies whose motions the functions read, in the order of the functions;
            the builder has them already. `WORLD` may be one of them: it stands still at the
            identity
        softness: of the constraint's rows; by default the builder's
        enabled: as in `joint`

        Raises: ValueError naming the constraint, the argument, its value and the rule.
        """
        owner = f"constraint {name!r}"
        rule = "bodies are added before their constraints"
        known = (*self._bodies, WORLD)
        bodies = read_names(owner, bodies, known, element="body", rule=rule)
        if not any(body != WORLD and self._bodies[body].moving for body in bodies):
            raise ValueError(f"{owner}: none of {list(bodies)} can be moved; name one that can")
        constraint = read_constraint(owner, constraint, len(bodies))
        rows = self._row_softness(owner, softness, constraint.rows)
        if isinstance(rows.softness, Compliance) and rows.softness.damping is None:
            raise ValueError(
                f"{owner}: damping of a Compliance must be given; the inertia that a constraint "
                "moves depends on where its bodies are"
            )
        spec = ConstraintSpec(constraint, bodies, rows, read_switch(owner, enabled))
        self._add("constraint", self._constraints, name, spec)
        warn_of_mass_ratio(owner, self._bodies, bodies)
        return name

    @public
    def field(self, name: str, field: Field, *, bodies: str | Sequence[str] | None = None) -> str:
        """Add an external force on single bodies; returns its name.

        field: drag, damping, a force at a point, or a record that you write (see `Field`)
        bodies: names of bodies that the builder has already, on which the field acts; None for all
            bodies that move, including bodies that are added later

        Raises: ValueError naming the field, the argument, its value and the rule. `build` raises
            it for a field that is not finite at the start.
        """
        owner = f"field {name!r}"
        if bodies is not None:
            rule = "bodies are added before their fields"
            bodies = read_names(owner, bodies, self._bodies, element="body", rule=rule)
            for body in bodies:
                if not self._bodies[body].moving:
                    raise ValueError(
                        f"{owner}: {body!r} moves as prescribed, whatever the forces; leave it out"
                    )
        self._add("field", self._fields, name, FieldSpec(read_field(owner, field), bodies))
        return name

    @public
    def build(self, *, rough: bool = False) -> tuple[System, State]:
        """The system and its start state.

        Joints place the bodies that have no pose: see `start_state`.

        rough: the start is a guess for `assemble`, as in `start_state`

        Raises: ValueError for a builder without bodies, for q and qd that contradict the poses, and
            for a field that is not finite at the start.
        Warns: coordinates outside their limits, joints whose frames do not meet, and rolling joints
            that slip at the start.
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
            constraints=tuple(self._constraints),
            contacts=tuple(self._contacts),
            moving=tuple(body.moving for body in bodies.values()),
            notes=tuple(self._notes),
            lenient=tuple(self._lenient),
        )
        system = System(
            mass=stacked([body.mass for body in bodies.values()]),
            inertia=stacked([body.inertia for body in bodies.values()]),
            com=stacked([body.com for body in bodies.values()]),
            gravity=float_array(self._gravity),
            groups=groups,
            transmissions=transmission_groups(self._transmissions, list(joints), groups),
            fields=field_groups(self._fields, index, topology.moving),
            constraints=constraint_groups(self._constraints, index),
            contacts=contact_groups(self._contacts, index),
            topology=topology,
        )
        shapes = tuple(leaf.shape for leaf in jax.tree.leaves(system))
        system = replace(system, topology=replace(topology, shapes=shapes))
        state = start_state(
            system,
            q=_present(joints, "q"),
            qd=_present(joints, "qd"),
            pose=_present(bodies, "pose"),
            velocity=_present(bodies, "velocity"),
            rough=rough,
        )
        check_fields_at_start(system, state)
        return system, state

    def _add(self, element: str, specs: dict[str, Any], name: str, spec: Any) -> None:
        """Add an element under a new name; ValueError for a name that exists or is no string.

        What is read by the names of joints and contacts would not tell apart two of one name.
        """
        if not isinstance(name, str) or not name:
            raise ValueError(f"{element} {name!r}: a name is a string of at least one character")
        if name in specs:
            first = list(specs).index(name)
            raise ValueError(
                f"{element} {name!r} is defined twice: as {element} {first} ({specs[name]}) and as "
                f"{element} {len(specs)} ({spec}); rename one"
            )
        for other, taken in (("joint", self._joints), ("contact", self._contacts)):
            if element in ("joint", "contact") and name in taken:
                raise ValueError(
                    f"{element} {name!r} ({spec}): {other} {name!r} ({taken[name]}) has this name; "
                    "rename one"
                )
        specs[name] = spec

    def _laws(
        self,
        owner: str,
        laws: Any,
        dof: int,
        allow_active: bool,
        max_effort: Any,
        beside: Sequence[Law] = (),
    ) -> tuple[tuple[Law, ...], list[str]]:
        """Laws of a joint in standard form, and notes; see `read_laws`."""
        return read_laws(
            *(owner, laws),
            dof=dof,
            erp=self._erp,
            allow_active=allow_active,
            max_effort=max_effort,
            beside=beside,
        )

    def _no_joint(self, name: str) -> str:
        """What is wrong with the name of a joint that there is not, and what to do."""
        for element, names in (("transmission", self._transmissions), ("contact", self._contacts)):
            if name in names:
                return f"{name!r} is a {element}; give its laws to `{element}`, which declares it"
        hint = near_matches(name, self._joints)
        return f"there is no joint {name!r}; {hint} (joints are added before their laws)"

    def _row_softness(
        self, owner: str, softness: AnySoftness | None, rows: int, allow_active: bool = False
    ) -> RowSoftness:
        """The softness of bilateral rows, the builder's by default, with numbers for each row."""
        softness = self._softness if softness is None else softness
        softness = read_softness(owner, softness, rows, allow_active=allow_active)
        if isinstance(softness, Softness):
            return RowSoftness(softness.erp, softness.cfm)
        rigid = read_softness(owner, Softness(self._erp, 0.0), rows)
        return RowSoftness(rigid.erp, rigid.cfm, softness)

    def _inertias(self, *ends: tuple[str, Pose]) -> list[tuple[float, np.ndarray, np.ndarray]]:
        """Of each body that moves: mass, inertia, and joint origin from the centre of mass.

        ends: name of each body, and the pose of the joint's frame in it
        """
        bodies = [(self._bodies.get(name), frame) for name, frame in ends]
        return [
            (body.mass, body.inertia, frame.p - body.com)
            for body, frame in bodies
            if body is not None and body.moving
        ]

    def _in_body(self, owner: str, name: str, frame_W: Pose) -> Pose:
        """A pose in the world, as a pose in the frame of a body where it stands at the start."""
        body = self._bodies.get(name)
        if body is None:
            return frame_W
        if body.pose is None:
            raise ValueError(
                f"{owner}: frame_W needs the start pose of {name!r}; give pose=… to that body, "
                "or frame_C and frame_D here"
            )
        return body.pose.inverse() @ frame_W


def _unbatched(owner: str, field: str, value: Any, dof: int) -> Array:
    """Coordinates or speeds of a joint, shape (dof,); ValueError for batch axes."""
    coordinates = read_coordinates(owner, field, value, dof)
    if coordinates.ndim > 1:
        raise ValueError(
            f"{owner}: {field} has shape {np.shape(value)}; give {dof} numbers here, batches to "
            "`state` of the built system"
        )
    return coordinates


def _present(specs: Mapping[str, Any], field: str) -> dict[str, Any]:
    """One field of all elements, by name, where it is not None."""
    values = {name: getattr(spec, field) for name, spec in specs.items()}
    return {name: value for name, value in values.items() if value is not None}
