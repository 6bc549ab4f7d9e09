"""Records, which are frozen dataclasses and JAX pytrees, and mapping over trailing batch axes."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from .calls import public
from .compiler import register

Record = TypeVar("Record")
# A field of a record as users give it: a number, a sequence of numbers or an array. Of a record in
# a system it is an array.
Numbers = Any
NUMERIC = (bool, int, float, complex, np.number, np.ndarray, jax.Array)
replace = dataclasses.replace


def static(**options: Any) -> Any:
    """A field of a record that JAX does not trace: part of the structure, hashable.

    options: those of `dataclasses.field`, such as `default` and `kw_only`
    """
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def struct(cls: type[Record]) -> type[Record]:
    """Class decorator that makes a frozen record. Its fields are leaves, except those of `static`.

    >>> @struct
    ... class Spring:
    ...     stiffness: jax.Array
    >>> jax.tree.leaves(Spring(2.0))
    [2.0]

    Raises: TypeError for a number of the class that is no field.
    """
    _check_fields(cls)
    cls = public(dataclasses.dataclass(frozen=True, eq=False)(cls))
    fields = dataclasses.fields(cls)
    meta = tuple(f.name for f in fields if f.metadata.get("static", False))
    data = tuple(f.name for f in fields if f.name not in meta)
    register(cls, data, meta)
    return cls


def _check_fields(cls: type) -> None:
    """Raise TypeError for numbers that Python would quietly make constants of the class."""
    bases = cls.__mro__[1:]
    annotations = inspect.get_annotations(cls)
    for name, value in vars(cls).items():
        known = name in annotations or any(hasattr(base, name) for base in bases)
        known = known or any(name in inspect.get_annotations(base) for base in bases)
        if not known and not name.startswith("_") and isinstance(value, NUMERIC):
            raise TypeError(
                f"{cls.__name__}.{name} = {value!r} has no annotation, so it would be a constant "
                f"without gradient; write {name}: jax.Array | float = {value!r}, or for a constant "
                f"{name}: ClassVar = {value!r}"
            )


def overrides(record: Any, method: Callable) -> bool:
    """Whether the class of a record has its own version of `method`, a function of a base class.

    >>> class Law:
    ...     def force(self): ...
    ...     def torque(self): ...
    >>> class Spring(Law):
    ...     def force(self): ...
    >>> overrides(Spring(), Law.force), overrides(Spring(), Law.torque)
    (True, False)
    """
    return getattr(type(record), method.__name__) is not method


def map_trailing(function: Callable, axes: int, *arguments: Any) -> Any:
    """Maps a function of one item over the last `axes` axes of all leaves of the arguments.

    An axis of size 1 broadcasts: its one item is shared by all. The mapped axes are the last axes
    of the result, with the broadcast sizes.

    Raises: ValueError for axes whose sizes do not broadcast
    """
    if axes == 0:
        return function(*arguments)
    leaves, tree = jax.tree.flatten(arguments)
    size = max((leaf.shape[-1] for leaf in leaves), default=1)
    for leaf in leaves:
        if leaf.shape[-1] not in (1, size):
            raise ValueError(f"batch axes of {leaf.shape[-1]} and {size} items do not broadcast")
    shared = [leaf.shape[-1] == 1 for leaf in leaves]
    # A shared leaf enters unmapped, so that work on shared parameters is done once.
    inputs = [leaf[..., 0] if one else leaf for leaf, one in zip(leaves, shared, strict=True)]
    inner = axes - 1

    def one_slice(*flat):
        return map_trailing(function, inner, *jax.tree.unflatten(tree, flat))

    if all(shared):
        return jax.tree.map(lambda leaf: leaf[..., None], one_slice(*inputs))
    mapped = jax.vmap(one_slice, in_axes=[None if one else -1 for one in shared], out_axes=-1)
    return mapped(*inputs)


def expand_trailing(leaf: jax.Array, rank: int, batch: int) -> jax.Array:
    """A leaf with `batch` trailing axes: those that it has after `rank` axes, or else of size 1."""
    extra = jnp.ndim(leaf) - rank
    return leaf if extra == batch else leaf.reshape(leaf.shape + (1,) * batch)


def expand(tree: Any, ranks: list[int], batch: int) -> Any:
    """A tree whose leaves all have `batch` trailing axes, see `expand_trailing`.

    ranks: number of axes of each leaf without batch axes
    """
    leaves, structure = jax.tree.flatten(tree)
    expanded = [expand_trailing(x, r, batch) for x, r in zip(leaves, ranks, strict=True)]
    return jax.tree.unflatten(structure, expanded)
