"""Which cases of a parametrized test a run by default asks, and which are slow or a sweep."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest


def mostly_slow(
    cases: Iterable[Any],
    *,
    default: Collection[str],
    sweep: Collection[str] = (),
    name: Callable[[Any], str] = str,
) -> list[Any]:
    """Values of a parameter, marked slow but for those that a run by default asks, and for sweeps.

    default, sweep: names of the cases without a mark, and of those marked sweep
    name: what a case is called, in `default`, in `sweep` and in the id of its test
    Raises: ValueError for a name that no case has.
    """
    named = {name(case): case for case in cases}
    if unknown := {*default, *sweep} - named.keys():
        raise ValueError(f"no cases are called {sorted(unknown)}; there are {list(named)}")

    def marks(name: str) -> tuple[pytest.MarkDecorator, ...]:
        if name in sweep:
            return (pytest.mark.sweep,)
        return () if name in default else (pytest.mark.slow,)

    return [pytest.param(case, id=name, marks=marks(name)) for name, case in named.items()]
