"""What acts on a system during a step, from values by the names of joints and bodies."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import expand_trailing
from ..model.groups import JointGroup
from ..model.state import Control
from ..model.system import System
from .validation import common_batch, precision, read_by_name, read_coordinates, read_numbers

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
    """A `Control` from values by joint and body name, also under `jit`, in a controller, or mapped
    over time: `jax.vmap(lambda q: system.control(target={"elbow": q}))(wanted)`.

    effort: along the coordinates of joints [N or N m], 0 for others
    target, target_speed: what the drives of joints bring coordinates to [m or rad, and per second];
        those of other joints follow what they were built with
    wrench: force and moment at the centres of mass of bodies, world axes [N, N m], 0 for others
    twist: velocity of prescribed bodies at their centres of mass, world axes; of all of them

    Each value is a number or (dof,) for a joint, (6,) for a body, with any batch axes at the end.

    Raises: ValueError for unknown names and wrong shapes, for a target that no law of the joint
        follows, and for a coordinate left out on which two drives may differ.
    """
    topology = system.topology
    prescribed = [name for i, name in enumerate(topology.bodies) if not topology.moving[i]]
    if twist and (missing := [name for name in prescribed if name not in twist]):
        raise ValueError(f"twist: the prescribed bodies {missing} are missing; give all of them")
    return Control(
        effort=_along(system, "effort", effort),
        wrench=_of_bodies("wrench", wrench, topology.bodies),
        twist=_of_bodies("twist", twist, prescribed),
        target=_aimed(system, "target", target),
        target_speed=_aimed(system, "target_speed", target_speed),
    )


# A method where users look for it, `system.control(effort=…)`: see `start_state`.
System.control = control_by_name


def _along(system: System, field: str, values: Values) -> Array | None:
    """Values of joints in the flat vector of coordinates, 0 elsewhere."""
    if values is None:
        return None
    given = _read(system, field, values)
    rows = [(system.coordinate(name), value) for name, value in given.items()]
    return _filled(field, (system.coordinates,), rows)


def _aimed(system: System, field: str, values: Values) -> Array | None:
    """The same of what drives aim at, elsewhere what they were built with."""
    if values is None:
        return None
    given = _read(system, field, values)
    rows: list[tuple[Any, Array]] = []
    for group in system.groups:
        names = [system.topology.joints[j] for j in group.joints]
        left_out = [i for i, name in enumerate(names) if name not in given]
        laws = [law for law in group.laws if field in law.aims]
        for name in (name for name in names if name in given and not laws):
            raise ValueError(
                f"joint {name!r}: no law of it follows a {field}; give it a law that does, such as "
                "`Servo`"
            )
        followed = [law.coordinate for law in laws]
        for coordinate in {c for c in followed if followed.count(c) > 1} if left_out else ():
            raise ValueError(
                f"joint {names[left_out[0]]!r}: coordinate {coordinate} has several drives with a "
                f"{field} of their own, of which a control has one; give it too"
            )
        for law in laws if left_out else ():
            at = np.array(group.start)[left_out] + law.coordinate
            rows.append((at, jnp.asarray(getattr(law, law.aims[field]))[np.array(left_out)]))
    rows += [(system.coordinate(name), value) for name, value in given.items()]
    return _filled(field, (system.coordinates,), rows)


def _of_bodies(field: str, values: Values, names: Sequence[str]) -> Array | None:
    """Values of bodies side by side, 0 for those that are left out, shape (6, names, *batch)."""
    if values is None:
        return None

    def read(owner, name, value):
        return jnp.asarray(read_numbers(owner, field, value, (6,), batched=True), precision())

    given = read_by_name(field, values, "body", names, read)
    rows = [((slice(None), names.index(name)), value) for name, value in given.items()]
    return _filled(field, (6, len(names)), rows)


def _read(system: System, field: str, values: Mapping[str, Any]) -> dict[str, Array]:
    """Values by joint, (dof, *batch)."""
    joints = {j: group for group in system.groups for j in group.joints}
    groups: dict[str, JointGroup] = {
        name: joints[j] for j, name in enumerate(system.topology.joints)
    }

    def read(owner, name, value):
        return read_coordinates(owner, field, value, groups[name].coupling.dof)

    return read_by_name(field, values, "joint", groups, read)


def _filled(field: str, shape: tuple[int, ...], rows: list[tuple[Any, Array]]) -> Array:
    """Zeros of a shape and the batch of all values, with these in their places."""
    batch = common_batch(field, [value.shape[1:] for _, value in rows])
    filled = jnp.zeros((*shape, *batch), precision())
    for at, value in rows:
        filled = filled.at[at].set(expand_trailing(value, 1, len(batch)))
    return filled
