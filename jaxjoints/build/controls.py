"""`System.control`: a `Control` from values by the names of joints, transmissions and bodies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.arguments import read_numbers
from ..algebra.calls import public
from ..algebra.compiler import is_traced
from ..algebra.devices import on_several
from ..algebra.options import near_matches
from ..algebra.pytree import expand_trailing
from ..model.groups import JointGroup, TransmissionGroup
from ..model.state import Control
from ..model.system import System
from .changes import ADD_LAW
from .checks.units import warn_of_units
from .checks.values import (
    Stated,
    common_batch,
    coordinate_named,
    precision,
    read_by_name,
    read_mapping,
    read_stated,
)

Values = Mapping[str, Any] | None


@public(name="control")
def control_by_name(
    system: System,
    *,
    effort: Values = None,
    target: Values = None,
    target_speed: Values = None,
    wrench: Values = None,
    twist: Values = None,
) -> Control:
    """A `Control` from values by the names of joints, transmissions and bodies.

    It works under `jit`, in a controller, and mapped over time:
    `jax.vmap(lambda q: system.control(target={"elbow": q}))(wanted)`.

    effort: forces and moments along the coordinates of joints [N or N m]; 0 for other joints
    target, target_speed: for coordinates of joints and values of transmissions, the values [m or
        rad] and speeds [m/s or rad/s] to which motors and servos bring them by the end of the
        step; other drives keep the targets that the system was built with
    wrench: force and moment at the centres of mass of bodies, world axes [N, N m]; 0 for other
        bodies
    twist: linear velocity of the centre of mass and angular velocity, world axes [m/s, rad/s], of
        all prescribed bodies

    The entry of a joint is a number or has shape (dof, *batch), the entry of a transmission is a
    number or has shape (values, *batch), the entry of a body has shape (6, *batch). One coordinate
    of a joint of several is named with its number, `effort={"hip.1": 2.0}`, and one value of a
    transmission likewise; its entry is a number or has shape (*batch). The others of the joint are
    as those of a joint that is left out.

    Raises: ValueError for unknown names and wrong shapes; for a target of a joint or transmission
        without a law that has a target; for a missing target where two drives on one coordinate
        have targets, because a control has one target for each coordinate; for a target whose name
        belongs to a joint and to a transmission, both with such laws.
    """
    topology = system.topology
    for field, values in (("effort", effort), ("target", target), ("target_speed", target_speed)):
        read_mapping(field, values, "joint", topology.joints)
    for field, values in (("wrench", wrench), ("twist", twist)):
        read_mapping(field, values, "body", topology.bodies)
    prescribed = [name for i, name in enumerate(topology.bodies) if not topology.moving[i]]
    if twist and (missing := [name for name in prescribed if name not in twist]):
        raise ValueError(f"twist: the prescribed bodies {missing} are missing; give all of them")
    joints, transmissions = _joints(system), _transmissions(system)
    targets, target_speeds = (
        _targets(system, field, values, joints, transmissions, rate)
        for field, values, rate in (("target", target, ""), ("target_speed", target_speed, "/s"))
    )
    return Control(
        effort=_efforts(effort, joints, transmissions),
        wrench=_six_vectors("wrench", wrench, topology.bodies),
        twist=_six_vectors("twist", twist, prescribed),
        target=targets[0],
        target_speed=target_speeds[0],
        transmission_target=targets[1],
        transmission_target_speed=target_speeds[1],
    )


# A method where users look for it, `system.control(effort=…)`: see `start_state`.
System.control = control_by_name


@dataclass(frozen=True)
class _Elements:
    """Joints with their coordinates, or transmissions with their values.

    kind: "joint" or "transmission"; length: of the flat vector of all coordinates or values
    groups: each with the number of coordinates or values of a member
    """

    kind: str
    length: int
    names: tuple[str, ...]
    groups: tuple[tuple[JointGroup | TransmissionGroup, int], ...]

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Number of coordinates or values of each element, in the order of the system."""
        of_member = {j: size for group, size in self.groups for j in group.members}
        return {name: of_member[j] for j, name in enumerate(self.names)}

    @cached_property
    def places(self) -> dict[str, int]:
        """Where the coordinates or values of each element start in the flat vector."""
        return {
            self.names[j]: start
            for group, _ in self.groups
            for j, start in zip(group.members, group.start, strict=True)
        }

    def follows(self, name: str | None, field: str) -> bool:
        """Whether an element of this name has a law with a "target" or "target_speed"."""
        if name is None:
            return False
        j = self.names.index(name)
        (group,) = (group for group, _ in self.groups if j in group.members)
        return any(field in law.aims for law in group.laws)

    def read(self, field: str, values: Mapping[str, Any]) -> dict[str, Stated]:
        """Values by the name of an element."""
        return read_stated(field, values, self.kind, self.sizes)

    def named(self, name: Any) -> str | None:
        """The element that a name speaks of, which may be that of one coordinate; None for none."""
        known = coordinate_named(name, self.sizes)
        return None if known is None else known[0]

    def vector(
        self,
        field: str,
        by_name: Mapping[str, Stated],
        defaults: Sequence[tuple[Any, Array]] = (),
    ) -> Array:
        """The flat vector (length, *batch) of values of elements, 0 for all others.

        defaults: indices in the flat vector and the values there, of elements that are left out
        """
        stated = [(_places(self.places[name], x.at), x.value) for name, x in by_name.items()]
        return _filled(field, (self.length,), [*defaults, *stated])


def _joints(system: System) -> _Elements:
    groups = tuple((group, group.coupling.dof) for group in system.groups)
    return _Elements("joint", system.coordinates, system.topology.joints, groups)


def _transmissions(system: System) -> _Elements:
    groups = tuple((group, group.transmission.rows) for group in system.transmissions)
    names = system.topology.transmissions
    return _Elements("transmission", system.values, names, groups)


def _efforts(values: Values, joints: _Elements, transmissions: _Elements) -> Array | None:
    """Efforts as a flat vector (coordinates, *batch), 0 for joints that are left out."""
    if values is None:
        return None
    for name in values:
        if joints.named(name) is None and (element := transmissions.named(name)) is not None:
            raise ValueError(
                f"effort: {element!r} is a transmission; give the efforts of its joints, each the "
                "force times the derivative of the value by the coordinate"
            )
    return joints.vector("effort", joints.read("effort", values))


def _targets(
    system: System,
    field: str,
    values: Values,
    joints: _Elements,
    transmissions: _Elements,
    rate: str,
) -> tuple[Array | None, Array | None]:
    """Targets as flat vectors (coordinates, *batch) of joints and (values, *batch) of
    transmissions; what is left out keeps the targets of its laws. None for a kind of which none is
    named; without any names, joints have a vector.

    field: "target" or "target_speed"; rate: "" or "/s", of its unit
    """
    if values is None:
        return None, None
    to_joints, to_transmissions = {}, {}
    for name, value in values.items():
        joint, transmission = joints.named(name), transmissions.named(name)
        if transmissions.sizes and joint is None and transmission is None:
            hint = near_matches(str(name), {**joints.sizes, **transmissions.sizes})
            raise ValueError(f"{field}: there is no joint or transmission {name!r}; {hint}")
        follows = transmissions.follows(transmission, field)
        if follows and joints.follows(joint, field):
            raise ValueError(
                f"{field}: {name!r} is a joint and a transmission, and laws of both follow a "
                f"{field}; rename one"
            )
        if transmission is not None and joint is None and not follows:
            raise _without_drive(f"{transmissions.kind} {transmission!r}", field)
        (to_transmissions if follows else to_joints)[name] = value
    of_joints = joints.read(field, to_joints)
    for name, stated in of_joints.items():
        coupling = system.joint(name).coupling
        warn_of_units(f"joint {name!r}", field, coupling, stated.value, stated.at, rate)
    of_transmissions = transmissions.read(field, to_transmissions)
    return (
        _targets_of(joints, field, of_joints) if to_joints or not values else None,
        _targets_of(transmissions, field, of_transmissions) if to_transmissions else None,
    )


def _targets_of(elements: _Elements, field: str, by_name: Mapping[str, Stated]) -> Array:
    """Targets of joints or of transmissions as a flat vector."""
    defaults: list[tuple[Any, Array]] = []
    for group, _ in elements.groups:
        names = [elements.names[j] for j in group.members]
        stated = [by_name[name].at if name in by_name else () for name in names]
        drives = [law for law in group.laws if field in law.aims]
        driven = [law.coordinate for law in drives]
        for name, at in zip(names, stated, strict=True):
            if name in by_name and not drives:
                raise _without_drive(f"{elements.kind} {name!r}", field)
            if len(at) < elements.sizes[name]:
                for k in (k for k in at if k not in driven):
                    raise _without_drive(f"{elements.kind} '{name}.{k}'", field)
        for law in drives:
            left_out = [i for i, at in enumerate(stated) if law.coordinate not in at]
            if not left_out:
                continue
            if driven.count(law.coordinate) > 1:
                raise ValueError(
                    f"{elements.kind} {names[left_out[0]]!r}: coordinate {law.coordinate} has "
                    f"several drives with a {field} of their own, of which a control has one; "
                    "give it too"
                )
            indices = np.array(group.start)[left_out] + law.coordinate
            built_with = jnp.asarray(getattr(law, law.aims[field]))
            defaults.append((indices, built_with[np.array(left_out)]))
    return elements.vector(field, by_name, defaults)


def _places(start: int, at: Sequence[int]) -> slice | np.ndarray:
    """Indices of coordinates of an element in a flat vector: a slice where they are in a row, which
    costs less.
    """
    if list(at) == list(range(at[0], at[0] + len(at)) if at else ()):
        first = start + (at[0] if at else 0)
        return slice(first, first + len(at))
    return start + np.array(at)


def _without_drive(owner: str, field: str) -> ValueError:
    return ValueError(
        f"{owner}: no law of it follows a {field}; one that does, such as `Servo`, is added "
        f"{ADD_LAW}"
    )


def _six_vectors(field: str, values: Values, names: Sequence[str]) -> Array | None:
    """Wrenches or twists of the named bodies, 0 for those left out, shape (6, names, *batch)."""
    if values is None:
        return None

    def read(owner, name, value):
        return jnp.asarray(read_numbers(owner, field, value, (6,), batched=True), precision())

    by_body = read_by_name(field, values, "body", names, read)
    columns = [((slice(None), names.index(name)), value) for name, value in by_body.items()]
    return _filled(field, (6, len(names)), columns)


def _filled(field: str, shape: tuple[int, ...], parts: list[tuple[Any, Array]]) -> Array:
    """An array of zeros in which every part has its value, with the batch axes of the values.

    shape: without batch axes; parts: an index of this array and the value there
    """
    batch = common_batch(field, [value.shape[1:] for _, value in parts])
    values = [value for _, value in parts]
    if not is_traced(values) and not on_several(values):
        # By NumPy: JAX would compile a program for each shape and place.
        known = np.zeros((*shape, *batch), precision())
        for index, value in parts:
            known[index] = np.asarray(expand_trailing(value, 1, len(batch)))
        return jnp.asarray(known)
    filled = jnp.zeros((*shape, *batch), precision())
    for index, value in parts:
        filled = filled.at[index].set(expand_trailing(value, 1, len(batch)))
    return filled
