"""Records: frozen dataclasses that JAX sees as trees of arrays, and mapping over trailing axes."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp

from .compiler import register

T = TypeVar("T")
replace = dataclasses.replace


def static(**options: Any) -> Any:
    """A field that is part of a record's type for JAX: hashable, never traced."""
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def struct(cls: type[T]) -> type[T]:
    """Class decorator: a frozen record whose fields are leaves, but for those made by `static`.

    >>> @struct
    ... class Spring:
    ...     stiffness: jax.Array
    >>> jax.tree.leaves(Spring(2.0))
    [2.0]
    """
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)
    fields = dataclasses.fields(cls)
    meta = tuple(f.name for f in fields if f.metadata.get("static", False))
    data = tuple(f.name for f in fields if f.name not in meta)
    register(cls, data, meta)
    return cls


def map_trailing(function: Callable, axes: int, *arguments: Any) -> Any:
    """`function` of one item, mapped over the last `axes` axes of every leaf of the arguments.

    Axes of size 1 are shared: they broadcast against the others and are mapped once. The mapped
    axes of the result come last again, with the broadcast sizes.
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
    """A leaf of declared `rank` with `batch` trailing axes, of size 1 where it has none."""
    extra = jnp.ndim(leaf) - rank
    return leaf if extra == batch else leaf.reshape(leaf.shape + (1,) * batch)


def expand(tree: Any, ranks: list[int], batch: int) -> Any:
    """A tree whose shared leaves get `batch` axes of size 1 at the end."""
    leaves, structure = jax.tree.flatten(tree)
    expanded = [expand_trailing(x, r, batch) for x, r in zip(leaves, ranks, strict=True)]
    return jax.tree.unflatten(structure, expanded)
