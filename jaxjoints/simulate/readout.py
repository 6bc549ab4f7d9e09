"""Read-outs: the results of a step by the names of joints and bodies, as one typed record.

Forces are means over the step. Poses, coordinates, speeds, energy and momentum hold at the end of
the step.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.arguments import read_numbers
from ..algebra.calls import public
from ..algebra.compiler import quickly
from ..algebra.dense import multiply
from ..algebra.options import brief, check_kind, check_switch, near_matches
from ..algebra.pytree import expand, expand_trailing, map_trailing, static, struct
from ..algebra.spatial import Pose, cross
from ..couplings.contact import DIRECTIONS
from ..laws.law import Law
from ..model.batch import check_records, read_out
from ..model.kinematics import coordinate_indices, system_kinematics
from ..model.measures import body_poses, coordinates, gaps, kinetic_and_gravity, momentum
from ..model.state import Info, State
from ..model.system import WORLD_INDEX, System, located
from .surface import contact_speeds, coordinate_speeds, ready

Axes = Literal["C", "child", "parent", "world"]
Names = bool | str | Iterable[str]


@struct
class Energies:
    """Energy of a system by kind [J], each of shape (*batch).

    kinetic: of the bodies that move
    gravity: potential energy of these bodies in the gravity field, 0 at the world's origin
    springs: stored by laws, see `Law.energy`

    >>> from jaxjoints import Slider, SpringDamper, SystemBuilder, energies
    >>> world = SystemBuilder()
    >>> cart = world.body("cart", mass=2.0, inertia=(0.1, 0.1, 0.1))
    >>> rail, spring = Slider((1.0, 0.0, 0.0)), SpringDamper(stiffness=8.0)
    >>> _ = world.joint("rail", rail, child=cart, laws=spring, q=0.5, qd=3.0)
    >>> energy = energies(*world.build())
    >>> print(energy.kinetic, energy.springs, energy.total)  # m v²/2, k x²/2
    9.0 1.0 10.0
    """

    kinetic: Array
    gravity: Array
    springs: Array

    @property
    def total(self) -> Array:
        """The sum of all kinds [J], shape (*batch)."""
        return self.kinetic + self.gravity + self.springs


@struct
class Readings:
    """The results that a `Readout` selects, by names; None for results that it does not select.

    coordinates: of joints [m or rad], shape (dof, *batch)
    speeds: of the coordinates of joints [m/s or rad/s], shape (dof, *batch); of contacts along
        their directions, see `contact_speeds`, shape (6, *batch)
    gaps: of contacts [m], shape (*batch)
    reactions: force and moment of a joint or contact on its child, see `reaction`, shape
        (6, *batch)
    efforts: efforts of the control that acted, by joint [N or N m], shape (dof, *batch)
    forces: of all laws of a joint along each of its coordinates [N or N m], shape (dof, *batch); of
        a contact along its directions, see `Info.contact_force`, shape (6, *batch)
    limits: forces of the limits alone, by joint [N or N m], positive towards larger coordinates,
        shape (dof, *batch). Where no limit acts the force is 0 to rounding, or the remainder of the
        solver's smoothing
    poses: of the body frames in the world, by body
    energy: by kind
    momentum: linear [kg m/s], then angular about the world's origin [kg m²/s], shape (6, *batch)
    time: [s], shape (*batch)
    info: the whole record of the step

    >>> from jaxjoints import SystemBuilder, readout, step
    >>> world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    >>> speed = (3.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    >>> ball = world.body("ball", mass=2.0, inertia=(0.1, 0.1, 0.1), velocity=speed)
    >>> system, state = world.build()
    >>> keep = readout(system, momentum=True, energy=True)
    >>> readings = keep(system, *step(system, state, dt=0.25))
    >>> print(readings.momentum[:3], readings.energy.kinetic)  # m v, m v²/2
    [6. 0. 0.] 9.0
    """

    coordinates: dict[str, Array] | None = None
    speeds: dict[str, Array] | None = None
    gaps: dict[str, Array] | None = None
    reactions: dict[str, Array] | None = None
    efforts: dict[str, Array] | None = None
    forces: dict[str, Array] | None = None
    limits: dict[str, Array] | None = None
    poses: dict[str, Pose] | None = None
    energy: Energies | None = None
    momentum: Array | None = None
    time: Array | None = None
    info: Info | None = None


# Fields of a `Readout` that are names of elements.
NAMED = "coordinates speeds gaps reactions efforts forces limits poses".split()


@struct
class Readout:
    """Which results of a step to keep: a `record` for `rollout`, made by `readout`.

    coordinates … poses: names of joints, contacts and bodies; the other fields as arguments of
        `readout`

    >>> from jaxjoints import SystemBuilder, step
    >>> world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    >>> speed = (3.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    >>> ball = world.body("ball", mass=2.0, inertia=(0.1, 0.1, 0.1), velocity=speed)
    >>> system, state = world.build()
    >>> keep = Readout(poses=("ball",), time=True)
    >>> readings = keep(system, *step(system, state, dt=0.25))
    >>> print(readings.poses["ball"].p, readings.time)  # 3 m/s for 0.25 s
    [0.75 0.   0.  ] 0.25
    """

    coordinates: tuple[str, ...] = static(default=())
    speeds: tuple[str, ...] = static(default=())
    gaps: tuple[str, ...] = static(default=())
    reactions: tuple[str, ...] = static(default=())
    efforts: tuple[str, ...] = static(default=())
    forces: tuple[str, ...] = static(default=())
    limits: tuple[str, ...] = static(default=())
    poses: tuple[str, ...] = static(default=())
    energy: bool = static(default=False)
    momentum: bool = static(default=False)
    time: bool = static(default=False)
    info: bool = static(default=False)
    axes: Axes = static(default="C")
    point: Any = static(default="C")

    def __call__(self, system: System, state: State, info: Info) -> Readings:
        """The readings after a step, of one environment or a batch (batch axes last).

        state: at the end of the step
        Raises: ValueError for names that the system does not have: it is another than the record's
        """
        topology = system.topology
        known = (*topology.joints, *topology.contacts, *topology.bodies)
        for field in NAMED:
            for name in getattr(self, field):
                if name not in known:
                    raise ValueError(
                        f"readout: {field} {name!r} is not in this system; make the readout of the "
                        f"system that is simulated ({near_matches(name, known)})"
                    )

        def by_joint(names, flat, of_contacts=None):
            found = {
                name: of_contacts()[..., system.contact_index(name), *(slice(None),) * batch]
                if name in system.topology.contacts
                else flat()[system.coordinate(name)]
                for name in names
            }
            return found or None

        batch = state.time.ndim

        def pose(name):
            return jax.tree.map(lambda x: x[:, system.body(name)], body_poses(system, state))

        return Readings(
            coordinates=by_joint(self.coordinates, lambda: coordinates(system, state)),
            speeds=by_joint(
                self.speeds,
                lambda: coordinate_speeds(system, state),
                lambda: contact_speeds(system, state),
            ),
            gaps=by_joint(self.gaps, None, lambda: gaps(system, state)),
            reactions={
                name: reaction(system, state, info, name, axes=self.axes, point=self.point)
                for name in self.reactions
            }
            or None,
            efforts=by_joint(self.efforts, lambda: info.effort),
            forces=by_joint(self.forces, lambda: info.law_force, lambda: info.contact_force),
            limits=by_joint(self.limits, lambda: info.limit_force),
            poses={name: pose(name) for name in self.poses} or None,
            energy=energies(system, state) if self.energy else None,
            momentum=momentum(system, state) if self.momentum else None,
            time=state.time if self.time else None,
            info=info if self.info else None,
        )


@public
def readout(
    system: System,
    *,
    coordinates: Names = (),
    speeds: Names = (),
    gaps: Names = (),
    reactions: Names = (),
    efforts: Names = (),
    forces: Names = (),
    limits: Names = (),
    poses: Names = (),
    energy: bool = False,
    momentum: bool = False,
    time: bool = False,
    info: bool = False,
    axes: Axes = "C",
    point: Any = "C",
) -> Readout:
    """Selects results of a step; `rollout(…, record=readout(…))` returns them as `Readings`.

    See `Readings` for the meaning of each.

    coordinates, efforts, limits: names of joints, or True for all
    gaps: names of contacts, or True for all
    speeds, reactions, forces: names of joints and contacts, or True for all
    poses: names of bodies, or True for all
    energy, momentum, time, info: whether to keep them
    axes, point: axes of the reactions and the point that their moments refer to, see `reaction`

    >>> from jaxjoints import Hinge, SystemBuilder, rollout
    >>> world = SystemBuilder()
    >>> arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.02), com=(0.0, 0.0, -0.5))
    >>> shoulder = world.joint("shoulder", Hinge(axis=(0.0, 1.0, 0.0)), child=arm, q=0.3)
    >>> system, state = world.build()
    >>> record = readout(system, coordinates="shoulder", energy=True)
    >>> _, readings = rollout(system, state, dt=1e-3, steps=2, record=record)
    >>> readings.coordinates["shoulder"].shape, readings.energy.total.shape, readings.momentum
    ((2, 1), (2,), None)

    Raises: ValueError for unknown names, for axes or a point of another form, and where nothing is
        named.
    """
    check_kind("readout:", "system", system, System, "the first that build() returns")
    switches = {"energy": energy, "momentum": momentum, "time": time, "info": info}
    for field, value in switches.items():
        check_switch("readout", field, value)
    topology = system.topology
    joints = {"coordinates": coordinates, "efforts": efforts, "limits": limits}
    either = {"speeds": speeds, "reactions": reactions, "forces": forces}
    names = {
        key: _names(key, "joint", chosen, topology.joints, topology.contacts)
        for key, chosen in joints.items()
    }
    both = (*topology.joints, *topology.contacts)
    names |= {key: _names(key, "joint or contact", x, both) for key, x in either.items()}
    names["gaps"] = _names("gaps", "contact", gaps, topology.contacts)
    _check_frame(axes, point)
    given = (coordinates, speeds, gaps, reactions, efforts, forces, limits, poses)
    if not any(switches.values()) and all(x is False or x == () for x in given):
        raise ValueError(
            "readout: nothing is named to record; name it, such as coordinates=True or energy=True"
        )
    return Readout(
        **names,
        poses=_names("poses", "body", poses, topology.bodies),
        energy=energy,
        momentum=momentum,
        time=time,
        info=info,
        axes=axes,
        point=point if isinstance(point, str) else tuple(map(float, point)),
    )


@public
def reaction(
    system: System,
    state: State,
    info: Info,
    joint: str,
    *,
    axes: Axes = "C",
    point: Any = "C",
) -> Array:
    """Mean force [N] and moment [N m] of a joint or contact on its child during a step, shape
    (6, *batch).

    The result includes bilateral rows and laws. The joint exerts the opposite on the parent.

    state, info: as `step` returned them. `info` holds the wrench in the axes of C at the start of
        the step (for a contact, the forces along its directions there). The poses of `state` turn
        it into other axes. With the state from before the step, axes and moments are exact for
        the start of the step
    joint: name of the joint or contact
    axes: frame of the components: "C", "child" (the child's body frame), "parent" (the parent's
        body frame) or "world"
    point: reference point of the moment: "C", the origin of C; "origin", the origin of the frame
        `axes`; or a point in the frame `axes` [m], shape (3,)

    Raises: ValueError for unknown axes and for a point of another form.
    """
    check_records("reaction", system, state)
    _check_info(system, state, info)
    _check_frame(axes, point)
    topology = system.topology
    touches = joint in topology.contacts
    if touches:
        index, groups, forces = system.contact_index(joint), system.contacts, info.contact_force
        g, i = located(groups, "contact", topology.contacts, joint)
    else:
        system.coordinate(joint)
        index, groups, forces = topology.joints.index(joint), system.groups, info.wrench
        g, i = located(groups, "joint", topology.joints, joint)
    child, parent = groups[g].child[i], groups[g].parent[i]
    # The body frame of the world is the world.
    axes = "world" if axes == "parent" and parent == WORLD_INDEX else axes
    named = point if isinstance(point, str) else ""
    position = None if named else np.asarray(point, forces.dtype)
    # Where the element is enters as numbers: one program for all of a group.
    place = np.array([index, i, child, parent])
    return _reaction(
        *(system, state, forces, place, position), group=g, touches=touches, axes=axes, at=named
    )


@partial(quickly, static_argnames=("group", "touches", "axes", "at"))
def _reaction(
    system: System,
    state: State,
    forces: Array,
    place: Array,
    point: Array | None,
    *,
    group: int,
    touches: bool,
    axes: Axes,
    at: str,
) -> Array:
    """See `reaction`.

    forces: of `Info`, of all joints or of all contacts
    place: indices of the element, in its group, and of its child and parent
    point: in the frame `axes`, None where `at` names it
    """
    index, member, child, parent = place
    batch = state.time.ndim

    def one(tree, i):
        return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, i, 1, keepdims=False), tree)

    wrench = one(forces, index)
    if touches:
        mechanism, ready_state = ready(system, state)
        frame = system_kinematics(mechanism, ready_state).contacts[group].frame
        frame = jax.tree.map(
            lambda x: jax.lax.dynamic_index_in_dim(x, member, x.ndim - 1 - batch, keepdims=False),
            frame,
        )
        wrench = multiply(frame.wrenches(range(DIRECTIONS)), wrench)
    record = (system.contacts if touches else system.groups)[group]
    C = one(expand(record.frame_C, [2, 2], batch), member)
    # T: pose of C in the frame of the result.
    if axes == "C":
        T = expand(Pose.identity(dtype=state.time.dtype), [1, 1], batch)
    elif axes == "child":
        T = C
    else:
        bodies = body_poses(system, state)
        T = one(bodies, child) @ C
        if axes == "parent":
            T = one(bodies, parent).inverse() @ T
    force, moment = T.rotate(wrench[:3]), T.rotate(wrench[3:])
    if point is not None:
        moment = moment + cross(T.p - expand_trailing(point, 1, batch), force)
    elif at == "origin":
        moment = moment + cross(T.p, force)
    return jnp.concatenate(jnp.broadcast_arrays(force, moment))


@public
@read_out
def energies(system: System, state: State) -> Energies:
    """Kinetic energy, energy of gravity, and energy in the springs of all laws [J]."""
    kinetic, gravity = kinetic_and_gravity(system, state)
    springs = [jnp.zeros_like(kinetic)]
    groups = (*system.groups, *system.transmissions, *system.contacts)
    if any(_stores_energy(law) for group in groups for law in group.laws):
        batch = kinetic.ndim
        q = jnp.broadcast_to(coordinates(system, state), (system.coordinates, *kinetic.shape))
        wide = expand(system, list(system.topology.ranks), batch)
        for group in wide.groups:
            springs += _spring_energies(group.laws, q[coordinate_indices(group)], batch)
        topology = system.topology
        slices = [system.coordinate(joint) for joint in topology.joints]
        for group in wide.transmissions:
            if any(map(_stores_energy, group.laws)):
                indices = [np.r_[tuple(slices[j] for j in joints)] for joints in group.joints]
                values = map_trailing(
                    lambda transmission, q: transmission.value(q),
                    1 + batch,
                    group.transmission,
                    q[np.stack(indices, axis=1)],
                )
                springs += _spring_energies(group.laws, values, batch)
        for group in wide.contacts:
            if any(map(_stores_energy, group.laws)):
                gap = jnp.broadcast_to(
                    gaps(system, state), (len(topology.contacts), *kinetic.shape)
                )
                springs += _spring_energies(group.laws, gap[None, np.array(group.members)], batch)
    return Energies(kinetic, gravity, sum(springs))


def _spring_energies(laws: tuple[Law, ...], q: Array, batch: int) -> list[Array]:
    """Energy of each law that stores some, summed over the joints of a group, shape (*batch).

    q: what the laws act on, coordinates or values, shape (k, joints, *batch)
    """
    return [
        jnp.sum(map_trailing(lambda law, x: law.energy(x), 1 + batch, law, q[law.coordinate]), 0)
        for law in laws
        if _stores_energy(law)
    ]


def _stores_energy(law: Law) -> bool:
    return type(law).energy is not Law.energy


def _names(
    field: str, kind: str, chosen: Any, known: tuple[str, ...], contacts: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """The chosen names as a tuple, all of the known ones for True; ValueError for an unknown one.


    field: the argument of `readout`; kind: such as "joint"
    """
    if isinstance(chosen, bool):
        return known if chosen else ()
    if not isinstance(chosen, (str, Iterable)):
        raise ValueError(f"readout: {field} {brief(chosen)} must be names of {kind}s, or True")
    names = (chosen,) if isinstance(chosen, str) else tuple(chosen)
    for name in names:
        if name not in known:
            hint = near_matches(name, known)
            if field == "coordinates" and name in contacts:
                hint = "it is a contact, which has a gap and no coordinates; give gaps=…"
            raise ValueError(f"readout: {field} {name!r} is no {kind}; {hint}")
    return names


def _check_info(system: System, state: State, info: Any) -> None:
    """Raise ValueError for what is no `Info` of a step to this state."""
    if not isinstance(info, Info):
        raise ValueError(f"reaction: info {brief(info)} must be the Info that `step` returns")
    sizes = (6, len(system.topology.joints), *jnp.shape(state.time))
    if jnp.shape(info.wrench) != sizes:
        raise ValueError(
            f"reaction: info.wrench has shape {jnp.shape(info.wrench)}; it must be {sizes}, of the "
            "step to this state. Of many times, in front, read it with jax.vmap over state and "
            "info, or record=readout(system, reactions=…)"
        )


def _check_frame(axes: Any, point: Any) -> None:
    """Raise ValueError for axes and points that `reaction` does not know."""
    if axes not in ("C", "child", "parent", "world"):
        raise ValueError(f"readout: axes {axes!r} must be 'C', 'child', 'parent' or 'world'")
    if isinstance(point, str):
        if point not in ("C", "origin"):
            raise ValueError(f"readout: point {point!r} must be 'C', 'origin' or coordinates")
    else:
        read_numbers("readout", "point", point, (3,))
