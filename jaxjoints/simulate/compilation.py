"""A warning where a program is compiled again only because a user's function is defined anew."""

import warnings
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from ..build.checks.values import is_traced

# The programs compiled so far, and the identities of the user's functions in them, which JAX keeps.
_compiled: dict[Hashable, list[tuple[int, ...]]] = {}
# How often a program may be compiled for functions of the same code before that is told.
UNTOLD = 4
_told: set[Any] = set()


def warn_of_compilation(
    call: str, functions: Iterable[Callable], others: Any, static: tuple, remedy: str
) -> None:
    """Warn once for each function that makes a program of known shapes compile again, being
    defined anew.

    call: name of the function that compiles; others: its arguments without the functions, a tree;
        static: those that shape the program; remedy: where numbers belong that change between calls
    """
    functions = list(functions)
    codes = tuple(getattr(f, "__code__", None) for f in functions)
    # Within another `jit` everything that is computed is traced, and that program is the user's.
    if not functions or None in codes or is_traced(jnp.zeros(())):
        return
    leaves, structure = jax.tree.flatten(others)
    shapes = tuple((jnp.shape(x), jnp.result_type(x)) for x in leaves)
    key = call, codes, structure, shapes, static
    before, identities = _compiled.setdefault(key, []), tuple(map(id, functions))
    if identities in before or len(before) > UNTOLD:
        return
    before.append(identities)
    if len(before) <= UNTOLD:
        return
    for old, new in zip(before[0], functions, strict=True):
        if id(new) != old and new.__code__ not in _told:
            _told.add(new.__code__)
            warnings.warn(
                f"{call}: the function {new.__qualname__} (line {new.__code__.co_firstlineno}) is "
                "defined anew, so the same program is compiled once more; define it once, and "
                f"{remedy}",
                stacklevel=4,
            )
