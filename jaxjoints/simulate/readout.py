"""Read-outs: what a step did, by the names of joints and bodies, as one typed record.

Forces are means over the step; what is read of the state is of its end.
"""

from collections.abc import Iterable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import expand, expand_trailing, map_trailing, static, struct
from ..algebra.spatial import Pose, cross
from ..assembly.layout import layout
from ..build.checks.values import near_matches, read_numbers
from ..laws.law import Law
from ..laws.limits import Limits
from ..model.kinematics import body_poses, coordinate_indices, coordinates, energy, momentum, speeds
from ..model.state import Info, State
from ..model.system import System
from ..solve.forces import Bound

Axes = Literal["C", "child", "parent", "world"]
Names = bool | str | Iterable[str]


@struct
class Energies:
    """Energy by kind [J], each of shape (*batch).

    kinetic, gravity: of the moving bodies; springs: stored by laws (`Law.energy`)
    """

    kinetic: Array
    gravity: Array
    springs: Array

    @property
    def total(self) -> Array:
        """The sum of all kinds [J]."""
        return self.kinetic + self.gravity + self.springs


@struct
class Readings:
    """What a `Readout` was asked for, None for the rest.

    coordinates, speeds: by joint [m or rad, and 1/s of it], (dof, *batch)
    reactions: by joint, see `reaction`, (6, *batch)
    efforts: of the control, by joint [N or N m], (dof, *batch)
    forces: of all laws together, by joint, along its coordinates, (dof, *batch): a contact is a
        joint whose height and tangents carry laws
    limits: the part of the limits, positive towards larger coordinates, 0 (or rounding, or what a
        smoothing leaves) where they do not push, (dof, *batch)
    poses: of the body frames in the world, by body
    energy: by kind; momentum: linear, and angular about the world's origin, (6, *batch)
    time: [s], (*batch); info: the whole record of the step
    """

    coordinates: dict[str, Array] | None = None
    speeds: dict[str, Array] | None = None
    reactions: dict[str, Array] | None = None
    efforts: dict[str, Array] | None = None
    forces: dict[str, Array] | None = None
    limits: dict[str, Array] | None = None
    poses: dict[str, Pose] | None = None
    energy: Energies | None = None
    momentum: Array | None = None
    time: Array | None = None
    info: Info | None = None


@struct
class Readout:
    """What to read, made and checked by `readout`; a `record` for `rollout`, or called itself."""

    coordinates: tuple[str, ...] = static(default=())
    speeds: tuple[str, ...] = static(default=())
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
    about: Any = static(default="C")

    def __call__(self, system: System, state: State, info: Info) -> Readings:
        """Readings after a step, of one environment or a batch (batch axes last)."""

        def by_joint(names, flat):
            return {name: flat()[system.coordinate(name)] for name in names} or None

        def pose(name):
            return jax.tree.map(lambda x: x[:, system.body(name)], body_poses(system, state))

        return Readings(
            coordinates=by_joint(self.coordinates, lambda: coordinates(system, state)),
            speeds=by_joint(self.speeds, lambda: speeds(system, state)),
            reactions={
                name: reaction(system, state, info, name, axes=self.axes, about=self.about)
                for name in self.reactions
            }
            or None,
            efforts=by_joint(self.efforts, lambda: info.effort),
            forces=by_joint(self.forces, lambda: info.law_force),
            limits={name: limit_force(system, state, info, name) for name in self.limits} or None,
            poses={name: pose(name) for name in self.poses} or None,
            energy=energies(system, state) if self.energy else None,
            momentum=momentum(system, state) if self.momentum else None,
            time=state.time if self.time else None,
            info=info if self.info else None,
        )


def readout(
    system: System,
    *,
    coordinates: Names = (),
    speeds: Names = (),
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
    about: Any = "C",
) -> Readout:
    """What `rollout(…, record=…)` keeps: only what is asked for, as `Readings`.

    coordinates … limits: names of joints, True for all; poses: of bodies
    energy, momentum, time, info: whether to keep them
    axes, about: of the reactions, see `reaction`

    >>> from jaxjoints import Hinge, SystemBuilder, rollout
    >>> world = SystemBuilder()
    >>> arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.02), com=(0.0, 0.0, -0.5))
    >>> shoulder = world.joint("shoulder", Hinge(axis=(0.0, 1.0, 0.0)), child=arm, q=0.3)
    >>> system, state = world.build()
    >>> record = readout(system, coordinates="shoulder", energy=True)
    >>> _, readings = rollout(system, state, dt=1e-3, steps=2, record=record)
    >>> readings.coordinates["shoulder"].shape, readings.energy.total.shape, readings.momentum
    ((2, 1), (2,), None)

    Raises: ValueError for a name that is not there, and for axes or a point of another form
    """
    topology = system.topology
    joints = {"coordinates": coordinates, "speeds": speeds, "reactions": reactions}
    joints |= {"efforts": efforts, "forces": forces, "limits": limits}
    names = {key: _names(key, "joint", given, topology.joints) for key, given in joints.items()}
    _check_frame(axes, about)
    return Readout(
        **names,
        poses=_names("poses", "body", poses, topology.bodies),
        energy=energy,
        momentum=momentum,
        time=time,
        info=info,
        axes=axes,
        about=about if isinstance(about, str) else tuple(map(float, about)),
    )


def reaction(
    system: System,
    state: State,
    info: Info,
    joint: str,
    *,
    axes: Axes = "C",
    about: Any = "C",
) -> Array:
    """What a joint did to its child in a step: mean force [N] and moment [N m], shape (6, *batch);
    on the parent acts the opposite.

    state: at the end of the step, whose poses turn the axes; `info` is of C as it stood at the
        start. With the state of the start instead, axes and moments are exact
    axes: "C", "child" (its body frame, A), "parent" (B) or "world"
    about: point to which the moment refers: "C", C's origin; "origin", that of the axes' frame; or
        coordinates (3,) in it
    """
    _check_frame(axes, about)
    own, batch = system.joint(joint), state.time.ndim
    j = system.topology.joints.index(joint)
    one = expand(own.frame_C, [1, 1], batch)
    if axes == "C":
        T = Pose.identity(dtype=state.time.dtype)
        T = expand(T, [1, 1], batch)
    elif axes == "child":
        T = one
    else:
        bodies = body_poses(system, state)
        child, parent = (
            jax.tree.map(lambda x: x[:, body], bodies)  # noqa: B023
            for body in (own.child[0], own.parent[0])
        )
        T = child @ one
        if axes == "parent" and own.parent[0] >= 0:
            T = parent.inverse() @ T
    force, moment = T.rotate(info.wrench[:3, j]), T.rotate(info.wrench[3:, j])
    if not isinstance(about, str):
        point = expand_trailing(jnp.asarray(about, force.dtype), 1, batch)
        moment = moment + cross(T.p - point, force)
    elif about == "origin":
        moment = moment + cross(T.p, force)
    return jnp.concatenate(jnp.broadcast_arrays(force, moment))


def limit_force(system: System, state: State, info: Info, joint: str) -> Array:
    """Mean force of a joint's limits along its coordinates, towards larger ones, (dof, *batch)."""
    index, plan = system.topology.joints.index(joint), layout(system)
    g = next(g for g, group in enumerate(system.groups) if index in group.joints)
    i = system.groups[g].joints.index(index)
    q = info.q[system.coordinate(joint)]
    total = [jnp.zeros_like(x) for x in q]
    one_sided = [law for law in system.joint(joint).laws if law.kind is Bound and not law.two_sided]
    for k, law in enumerate(one_sided):
        if not isinstance(law, Limits) or law.coordinate not in plan.groups[g].soft:
            continue
        slot = sum(other.coordinate == law.coordinate for other in one_sided[:k])
        place = _impulse_place(system, g, law.coordinate, plan.orders[g].index(i), slot)
        bounds = [
            None if x is None else expand_trailing(x, 0, q.ndim - 1) for x in (law.lower, law.upper)
        ]
        x = q[law.coordinate]
        if bounds[0] is None or bounds[1] is None:
            sign = 1.0 if bounds[1] is None else -1.0
        else:
            sign = jnp.where(x - bounds[0] < bounds[1] - x, 1.0, -1.0).astype(x.dtype)
        # Protects the division where an environment stands still, or nothing was stepped yet.
        dt = jnp.where(info.dt > 0, info.dt, 1.0)
        push = jnp.where(info.dt > 0, state.impulse[place] / dt, 0.0)
        total[law.coordinate] = total[law.coordinate] + sign * push
    return jnp.stack(total) if total else q


def energies(system: System, state: State) -> Energies:
    """Energy by kind: of motion, of gravity, and in springs along coordinates."""
    kinetic, gravity = energy(system, state)
    stored = [jnp.zeros_like(kinetic)]
    groups = (*system.groups, *system.transmissions)
    if any(_stores(law) for group in groups for law in group.laws):
        batch = kinetic.ndim
        q = jnp.broadcast_to(coordinates(system, state), (system.coordinates, *kinetic.shape))
        wide = expand(system, list(system.topology.ranks), batch)
        for group in wide.groups:
            stored += _stored(group.laws, q[coordinate_indices(group)], batch)
        starts = _starts(system)
        for group in wide.transmissions:
            if any(map(_stores, group.laws)):
                at = np.array([[c for j in own for c in starts[j]] for own in group.joints]).T
                value = map_trailing(lambda t, q: t.value(q), 1 + batch, group.transmission, q[at])
                stored += _stored(group.laws, value, batch)
    return Energies(kinetic, gravity, sum(stored))


def _stored(laws: tuple[Law, ...], q: Array, batch: int) -> list[Array]:
    """Energy in the laws of a group of joints, whose coordinates are q (k, joints, *batch)."""
    return [
        jnp.sum(map_trailing(lambda law, x: law.energy(x), 1 + batch, law, q[law.coordinate]), 0)
        for law in laws
        if _stores(law)
    ]


def _stores(law: Law) -> bool:
    return type(law).energy is not Law.energy


def _starts(system: System) -> dict[int, range]:
    """Places of each joint's coordinates in the flat vector, by the joint's index."""
    return {
        joint: range(start, start + group.coupling.dof)
        for group in system.groups
        for joint, start in zip(group.joints, group.start, strict=True)
    }


def _impulse_place(system: System, g: int, coordinate: int, joint: int, slot: int) -> int:
    """Place in `State.impulse` of a bounded impulse on a coordinate of a joint of a group."""
    plan, at = layout(system), 0
    for other, rows in enumerate(plan.groups):
        for c in rows.soft:
            if (other, c) == (g, coordinate):
                structure = plan.structure
                first = structure.rows * structure.nodes + slot * len(structure.row)
                return first + at + joint
            at += len(plan.orders[other])
    raise KeyError((g, coordinate))


def _names(field: str, kind: str, given: Any, there: tuple[str, ...]) -> tuple[str, ...]:
    """Names as a tuple, each of them there."""
    if isinstance(given, bool):
        return there if given else ()
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if name not in there:
            raise ValueError(f"readout: {field} {name!r} is no {kind}; {near_matches(name, there)}")
    return names


def _check_frame(axes: Any, about: Any) -> None:
    if axes not in ("C", "child", "parent", "world"):
        raise ValueError(f"readout: axes {axes!r} must be 'C', 'child', 'parent' or 'world'")
    if isinstance(about, str):
        if about not in ("C", "origin"):
            raise ValueError(f"readout: about {about!r} must be 'C', 'origin' or a point")
    else:
        read_numbers("readout", "about", about, (3,))
