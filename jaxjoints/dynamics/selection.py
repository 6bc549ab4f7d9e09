"""Coordinates of a system by the names of joints: which of them a call speaks of."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array

from ..algebra.options import near_matches
from ..algebra.pytree import expand_trailing
from ..build.checks.values import common_batch, coordinate_named, read_stated
from ..model.system import System


def indices_of(call: str, field: str, system: System, names: Any) -> tuple[int, ...]:
    """Places in the flat vector of the coordinates of named joints; of all joints for None.

    call, field: for errors; names: of joints, or of single coordinates with their numbers
        ("hip.1"), or one name
    Raises: ValueError for a name that no joint has, and for one that is named twice.
    """
    known, sizes = system.topology.joints, _sizes(system)
    names = known if names is None else (names,) if isinstance(names, str) else tuple(names)
    places: list[int] = []
    for name in names:
        found = coordinate_named(name, sizes)
        if found is None:
            raise ValueError(
                f"{call}: {field} {name!r} is no joint; {near_matches(str(name), known)}"
            )
        joint, number = found
        place = system.coordinate(joint)
        at = range(place.start, place.stop) if number is None else [place.start + number]
        if set(at) & set(places):
            raise ValueError(f"{call}: {field} {name!r} is named twice; name each joint once")
        places += at
    return tuple(places)


def values_of(
    call: str, field: str, system: System, values: Mapping[str, Any]
) -> tuple[tuple[int, ...], Array]:
    """Places of coordinates, and their values (places, *batch).

    Raises: ValueError for unknown names and numbers that do not fit the joint or each other.
    """
    if not isinstance(values, Mapping) or not values:
        one = next((name for name, size in _sizes(system).items() if size == 1), "joint")
        raise ValueError(
            f"{call}: {field} {values!r} must be values by the names of joints, as {{{one!r}: 0.3}}"
        )
    by_joint = read_stated(f"{call}: {field}", values, "joint", _sizes(system))
    given = by_joint.values()
    batch = common_batch(f"{call}: {field}", [stated.value.shape[1:] for stated in given])
    parts = [expand_trailing(stated.value, 1, len(batch)) for stated in given]
    parts = [jnp.broadcast_to(part, (len(part), *batch)) for part in parts]
    places = tuple(system.coordinate(name).start + k for name, x in by_joint.items() for k in x.at)
    return places, jnp.concatenate(parts)


def _sizes(system: System) -> dict[str, int]:
    """Number of coordinates of each joint, by name."""
    cuts = {name: system.coordinate(name) for name in system.topology.joints}
    return {name: cut.stop - cut.start for name, cut in cuts.items()}


def named(names: Iterable[str]) -> str:
    """Names for a sentence."""
    return ", ".join(map(repr, names))
