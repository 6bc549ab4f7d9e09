"""Batched arrays that a user's function of one environment captures: they are refused."""

import dis
import functools
import math
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from ..model.state import STATE_RANKS, Control, State, control_ranks
from ..model.system import System

# Libraries whose functions hold no arrays of a user.
FOREIGN = ("jax", "jaxlib", "numpy", "jaxjoints", "builtins")
RECORDS = (System, State, Control)
# What helps, for functions of a rollout.
OF_CONTROLLER = (
    "what each environment has goes into Controller(function, batched=…) and comes to the "
    "function as inputs.batched; what all share goes into shared=…, as inputs.shared"
)
OF_RECORD = (
    "combine it with the records afterwards, which have time in front and the batch at the end; "
    "what all share goes in by jax.tree_util.Partial(function, array)"
)


def check_captured(call: str, what: str, function: Any, batch: tuple[int, ...], hint: str) -> None:
    """Raise ValueError for a function of one environment that captures arrays with the batch axes.

    Such a function would see the arrays of all environments at once.

    call: name of the public function; what: the function in it, for errors
    function: arrays bound to it by `partial` are allowed, and shared by all environments
    hint: what to do with such arrays
    """
    # A batch of one has no other environments.
    if math.prod(batch) == 1:
        return
    for name, value in _surroundings(function, set()):
        for where, shape in _batched(value, batch):
            raise ValueError(
                f"{call}: the {what} takes {name}{where} from around it; its shape {shape} ends in "
                f"the batch {batch}, and the {what} sees one environment, without batch axes: "
                f"{hint}"
            )


def noted(what: str, state: State, function: Callable, *arguments: Any) -> Any:
    """The result of a function of environments; errors about shapes name the shape of one of them.

    state: of all environments
    """
    try:
        return function(*arguments)
    except (TypeError, ValueError) as error:
        if state.time.ndim and "hape" in str(error):
            error.add_note(
                f"The {what} sees one environment, without the batch axes {state.time.shape}: its "
                f"state.q has shape {state.q.shape[: state.q.ndim - state.time.ndim]}."
            )
        raise


def _surroundings(function: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Names and values that a function, and the functions that it calls, capture."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, types.MethodType):
        yield "self", function.__self__
        function = function.__func__
    if not isinstance(function, types.FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    if function.__module__ and function.__module__.partition(".")[0] in FOREIGN:
        return
    known = dict(function.__kwdefaults__ or {})
    code = function.__code__
    defaults = function.__defaults__ or ()
    last = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    known |= dict(zip(last, defaults, strict=True))
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            known[name] = cell.cell_contents
        except ValueError:
            # Not assigned yet.
            continue
    around = function.__globals__
    known |= {name: around[name] for name in _globals(code) if name in around}
    for name, value in known.items():
        if callable(value) and not isinstance(value, type):
            yield from _surroundings(value, seen)
        if not isinstance(value, (types.ModuleType, type, types.FunctionType)):
            yield name, value


def _globals(code: types.CodeType) -> set[str]:
    """Names of the global variables that a code reads, and those that are defined in it."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return names.union(*map(_globals, inner))


def _batched(value: Any, batch: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Paths and shapes of the arrays of a tree that may have the batch axes."""
    axes = len(batch)
    leaves = jax.tree_util.tree_leaves_with_path(value, is_leaf=lambda x: isinstance(x, RECORDS))
    for path, leaf in leaves:
        where = jax.tree_util.keystr(path)
        if isinstance(leaf, RECORDS):
            # Their arrays have known numbers of axes.
            inside = jax.tree_util.tree_leaves_with_path(leaf)
            for (inner, x), rank in zip(inside, _ranks(leaf), strict=True):
                if np.ndim(x) > rank:
                    yield where + jax.tree_util.keystr(inner), np.shape(x)
        elif isinstance(leaf, (jax.Array, np.ndarray)):
            if leaf.ndim >= axes and leaf.shape[leaf.ndim - axes :] == batch:
                yield where, leaf.shape


def _ranks(record: Any) -> list[int]:
    """Of each leaf its number of axes without batch axes."""
    if isinstance(record, System):
        return list(record.topology.ranks)
    if isinstance(record, State):
        return jax.tree.leaves(STATE_RANKS)
    return control_ranks(record)
