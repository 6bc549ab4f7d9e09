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
    common_batch,
    precision,
    read_by_name,
    read_coordinates,
    read_mapping,
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
    number or has shape (values, *batch), the entry of a body has shape (6, *batch).

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
        _targets(field, values, joints, transmissions)
        for field, values in (("target", target), ("target_speed", target_speed))
    )
    for field, values, rate in (("target", target, ""), ("target_speed", target_speed, "/s")):
        for name in (name for name in values or {} if name in joints.sizes):
            coupling = system.joint(name).coupling
            warn_of_units(f"joint {name!r}", field, coupling, values[name], rate=rate)
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

    def follows(self, name: str, field: str) -> bool:
        """Whether an element of this name has a law with a "target" or "target_speed"."""
        if name not in self.sizes:
            return False
        j = self.names.index(name)
        (group,) = (group for group, _ in self.groups if j in group.members)
        return any(field in law.aims for law in group.laws)

    def read(self, field: str, values: Mapping[str, Any]) -> dict[str, Array]:
        """Values by the name of an element, each of shape (size, *batch)."""

        def read(owner, name, value):
            return read_coordinates(owner, field, value, self.sizes[name])

        return read_by_name(field, values, self.kind, self.sizes, read)

    def vector(
        self,
        field: str,
        by_name: Mapping[str, Array],
        defaults: Sequence[tuple[Any, Array]] = (),
    ) -> Array:
        """The flat vector (length, *batch) of values of elements, 0 for all others.

        defaults: indices in the flat vector and the values there, of elements that are left out
        """
        stated = [
            (slice(self.places[name], self.places[name] + self.sizes[name]), value)
            for name, value in by_name.items()
        ]
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
        if name in transmissions.sizes and name not in joints.sizes:
            raise ValueError(
                f"effort: {name!r} is a transmission; give the efforts of its joints, each the "
                "force times the derivative of the value by the coordinate"
            )
    return joints.vector("effort", joints.read("effort", values))


def _targets(
    field: str, values: Values, joints: _Elements, transmissions: _Elements
) -> tuple[Array | None, Array | None]:
    """Targets as flat vectors (coordinates, *batch) of joints and (values, *batch) of
    transmissions; what is left out keeps the targets of its laws. None for a kind of which none is
    named; without any names, joints have a vector.

    field: "target" or "target_speed"
    """
    if values is None:
        return None, None
    to_transmissions = {}
    for name, value in values.items():
        if transmissions.sizes and name not in (known := {**joints.sizes, **transmissions.sizes}):
            hint = near_matches(name, known)
            raise ValueError(f"{field}: there is no joint or transmission {name!r}; {hint}")
        if not transmissions.follows(name, field):
            continue
        if joints.follows(name, field):
            raise ValueError(
                f"{field}: {name!r} is a joint and a transmission, and laws of both follow a "
                f"{field}; rename one"
            )
        to_transmissions[name] = value
    rest = {name: value for name, value in values.items() if name not in to_transmissions}
    for name in rest:
        if name in transmissions.sizes and name not in joints.sizes:
            raise _without_drive(transmissions.kind, name, field)
    return (
        _targets_of(joints, field, rest) if rest or not values else None,
        _targets_of(transmissions, field, to_transmissions) if to_transmissions else None,
    )


def _targets_of(elements: _Elements, field: str, values: Mapping[str, Any]) -> Array:
    """Targets of joints or of transmissions as a flat vector."""
    by_name = elements.read(field, values)
    defaults: list[tuple[Any, Array]] = []
    for group, _ in elements.groups:
        names = [elements.names[j] for j in group.members]
        left_out = [i for i, name in enumerate(names) if name not in by_name]
        drives = [law for law in group.laws if field in law.aims]
        for name in (name for name in names if name in by_name and not drives):
            raise _without_drive(elements.kind, name, field)
        if not left_out:
            continue
        driven = [law.coordinate for law in drives]
        for coordinate in {c for c in driven if driven.count(c) > 1}:
            raise ValueError(
                f"{elements.kind} {names[left_out[0]]!r}: coordinate {coordinate} has several "
                f"drives with a {field} of their own, of which a control has one; give it too"
            )
        for law in drives:
            indices = np.array(group.start)[left_out] + law.coordinate
            built_with = jnp.asarray(getattr(law, law.aims[field]))
            defaults.append((indices, built_with[np.array(left_out)]))
    return elements.vector(field, by_name, defaults)


def _without_drive(kind: str, name: str, field: str) -> ValueError:
    return ValueError(
        f"{kind} {name!r}: no law of it follows a {field}; one that does, such as `Servo`, is "
        f"added {ADD_LAW}"
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
