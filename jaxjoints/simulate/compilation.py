"""Warnings where a program is compiled again for no need: a user's function is defined anew, or
numbers have come to lie on all cores.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from ..algebra.calls import warn
from ..algebra.compiler import is_traced, traces_constants
from ..algebra.devices import on_several

# The programs compiled so far, and the identities of the user's functions in them, which JAX keeps.
_compiled: dict[Hashable, list[tuple[int, ...]]] = {}
# How often a program may be compiled for functions of the same code before that is told.
UNTOLD = 4
_told: set[Any] = set()
# The programs that were compiled for numbers on one core.
_on_one: set[Hashable] = set()


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
    if not functions or None in codes or traces_constants():
        return
    key = call, codes, *_form(others), static
    before, identities = _compiled.setdefault(key, []), tuple(map(id, functions))
    if identities in before or len(before) > UNTOLD:
        return
    before.append(identities)
    if len(before) <= UNTOLD:
        return
    for old, new in zip(before[0], functions, strict=True):
        if id(new) != old and new.__code__ not in _told:
            _told.add(new.__code__)
            warn(
                f"{call}: the function {new.__qualname__} (line {new.__code__.co_firstlineno}) is "
                "defined anew, so the same program is compiled once more; define it once, and "
                f"{remedy}"
            )


def warn_of_placement(call: str, shared: Any, batched: Any, static: tuple) -> None:
    """Warn once if a program that was compiled for numbers on one core is compiled again because
    some lie on all of them now.

    So does what a user's compiled function returns if a rollout in it was dealt out to the cores. A
    descent that gives it back as the next argument compiles twice.

    shared, batched: arguments, trees; what is batched and not traced is dealt out in any case
    static: as of `warn_of_compilation`
    """
    leaves = jax.tree.leaves((shared, [x for x in jax.tree.leaves(batched) if is_traced(x)]))
    key = call, is_traced(leaves), *_form((shared, batched)), static
    if not on_several(leaves):
        _on_one.add(key)
    elif key in _on_one and call not in _told:
        _told.add(call)
        warn(
            f"{call}: the same program is compiled once more, because some of its numbers lie on "
            "all cores now, as do the results of a function that was dealt out to them; pass such "
            "a result on as numpy.asarray(result)"
        )


def _form(arguments: Any) -> tuple[Any, tuple]:
    leaves, structure = jax.tree.flatten(arguments)
    return structure, tuple((jnp.shape(x), jnp.result_type(x)) for x in leaves)
