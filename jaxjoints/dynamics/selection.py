"""Coordinates of a system by the names of joints: which of them a call speaks of."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array

from ..algebra.options import near_matches
from ..algebra.pytree import expand_trailing
from ..build.checks.values import common_batch, read_by_name, read_coordinates
from ..model.system import System


def indices_of(call: str, field: str, system: System, names: Any) -> tuple[int, ...]:
    """Places in the flat vector of the coordinates of named joints; of all joints for None.

    call, field: for errors; names: of joints, or one name
    Raises: ValueError for a name that no joint has, and for one that is named twice.
    """
    known = system.topology.joints
    names = known if names is None else (names,) if isinstance(names, str) else tuple(names)
    for i, name in enumerate(names):
        if name not in known:
            raise ValueError(
                f"{call}: {field} {name!r} is no joint; {near_matches(str(name), known)}"
            )
        if name in names[:i]:
            raise ValueError(f"{call}: {field} {name!r} is named twice; name each joint once")
    places = (system.coordinate(name) for name in names)
    return tuple(i for place in places for i in range(place.start, place.stop))


def values_of(
    call: str, field: str, system: System, values: Mapping[str, Any]
) -> tuple[tuple[int, ...], Array]:
    """Places of coordinates, and their values (places, *batch).

    Raises: ValueError for unknown names and numbers that do not fit the joint or each other.
    """
    if not isinstance(values, Mapping) or not values:
        raise ValueError(
            f"{call}: {field} {values!r} must be values by the names of joints, as "
            f"{{{(system.topology.joints or ('joint',))[0]!r}: 0.3}}"
        )
    places = {name: system.coordinate(name) for name in system.topology.joints}

    def read(owner, name, value):
        place = places[name]
        return read_coordinates(owner, field, value, place.stop - place.start)

    by_joint = read_by_name(f"{call}: {field}", values, "joint", places, read)
    batch = common_batch(f"{call}: {field}", [value.shape[1:] for value in by_joint.values()])
    parts = [expand_trailing(value, 1, len(batch)) for value in by_joint.values()]
    parts = [jnp.broadcast_to(part, (len(part), *batch)) for part in parts]
    return indices_of(call, field, system, tuple(by_joint)), jnp.concatenate(parts)


def named(names: Iterable[str]) -> str:
    """Names for a sentence."""
    return ", ".join(map(repr, names))
