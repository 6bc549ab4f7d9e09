"""`System.control`: a `Control` from values by the names of joints and bodies."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import expand_trailing
from ..model.state import Control
from ..model.system import System
from .changes import ADD_LAW
from .checks.values import common_batch, precision, read_by_name, read_coordinates, read_numbers

Values = Mapping[str, Any] | None


def control_by_name(
    system: System,
    *,
    effort: Values = None,
    target: Values = None,
    target_speed: Values = None,
    wrench: Values = None,
    twist: Values = None,
) -> Control:
    """A `Control` from values by the names of joints and bodies.

    It works under `jit`, in a controller, and mapped over time:
    `jax.vmap(lambda q: system.control(target={"elbow": q}))(wanted)`.

    effort: forces and moments along the coordinates of joints [N or N m]; 0 for other joints
    target, target_speed: coordinates [m or rad] and their speeds [m/s or rad/s] that motors and
        servos bring joints to by the end of the step; other joints keep the targets that the
        system was built with
    wrench: force and moment at the centres of mass of bodies, world axes [N, N m]; 0 for other
        bodies
    twist: linear velocity of the centre of mass and angular velocity, world axes [m/s, rad/s], of
        all prescribed bodies

    The value of a joint is a number or has shape (dof, *batch), that of a body has shape
    (6, *batch).

    Raises: ValueError for unknown names and wrong shapes; for a target of a joint that has no law
        with a target; for a joint that is left out although two of its drives have targets on one
        coordinate, because a control has one target for each coordinate.
    """
    topology = system.topology
    prescribed = [name for i, name in enumerate(topology.bodies) if not topology.moving[i]]
    if twist and (missing := [name for name in prescribed if name not in twist]):
        raise ValueError(f"twist: the prescribed bodies {missing} are missing; give all of them")
    return Control(
        effort=_efforts(system, effort),
        wrench=_six_vectors("wrench", wrench, topology.bodies),
        twist=_six_vectors("twist", twist, prescribed),
        target=_targets(system, "target", target),
        target_speed=_targets(system, "target_speed", target_speed),
    )


# A method where users look for it, `system.control(effort=…)`: see `start_state`.
System.control = control_by_name


def _efforts(system: System, values: Values) -> Array | None:
    """Efforts as a flat vector (coordinates, *batch), 0 for joints that are left out."""
    if values is None:
        return None
    return _vector(system, "effort", _by_joint(system, "effort", values))


def _targets(system: System, field: str, values: Values) -> Array | None:
    """Targets as a flat vector (coordinates, *batch); joints left out keep those of their laws.

    field: "target" or "target_speed"
    """
    if values is None:
        return None
    by_joint = _by_joint(system, field, values)
    defaults: list[tuple[Any, Array]] = []
    for group in system.groups:
        names = [system.topology.joints[j] for j in group.joints]
        left_out = [i for i, name in enumerate(names) if name not in by_joint]
        drives = [law for law in group.laws if field in law.aims]
        for name in (name for name in names if name in by_joint and not drives):
            raise ValueError(
                f"joint {name!r}: no law of it follows a {field}; one that does, such as `Servo`, "
                f"is added {ADD_LAW}"
            )
        if not left_out:
            continue
        driven = [law.coordinate for law in drives]
        for coordinate in {c for c in driven if driven.count(c) > 1}:
            raise ValueError(
                f"joint {names[left_out[0]]!r}: coordinate {coordinate} has several drives with a "
                f"{field} of their own, of which a control has one; give it too"
            )
        for law in drives:
            indices = np.array(group.start)[left_out] + law.coordinate
            built_with = jnp.asarray(getattr(law, law.aims[field]))
            defaults.append((indices, built_with[np.array(left_out)]))
    return _vector(system, field, by_joint, defaults)


def _by_joint(system: System, field: str, values: Mapping[str, Any]) -> dict[str, Array]:
    """Values of coordinates by the name of the joint, each of shape (dof, *batch)."""
    group_of = {j: group for group in system.groups for j in group.joints}
    dofs = {name: group_of[j].coupling.dof for j, name in enumerate(system.topology.joints)}

    def read(owner, name, value):
        return read_coordinates(owner, field, value, dofs[name])

    return read_by_name(field, values, "joint", dofs, read)


def _vector(
    system: System,
    field: str,
    by_joint: dict[str, Array],
    defaults: Sequence[tuple[Any, Array]] = (),
) -> Array:
    """The flat vector (coordinates, *batch) of values of joints, 0 for all others.

    defaults: indices in the flat vector and the values there, of joints that are left out
    """
    stated = [(system.coordinate(name), value) for name, value in by_joint.items()]
    return _filled(field, (system.coordinates,), [*defaults, *stated])


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
    filled = jnp.zeros((*shape, *batch), precision())
    for index, value in parts:
        filled = filled.at[index].set(expand_trailing(value, 1, len(batch)))
    return filled
