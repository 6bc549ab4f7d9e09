"""Checks numbers that are changed after the build as the builder checks them, of each environment.

What JAX is tracing is not checked: `Info.cause` says PARAMETERS of what can be told then.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ...algebra.compiler import is_traced
from ...laws.softness import Softness
from .bodies import read_inertia, read_mass
from .joints import read_max_effort, read_softness
from .laws import law_problem
from .values import finite_problem

# Share of a body's inertia that single precision may round off.
ROUNDING = 1e-6


def check_change(owner: str, field: str, value: Any, ranks: Any, *, lenient: bool) -> None:
    """Raise ValueError for a changed field of a joint, contact and so on that the builder refuses.

    value: its new value, a tree of arrays with any batch axes at the end; ranks: of each leaf its
        number of axes without batch axes
    lenient: accept negative stiffness, damping, friction and inertia
    """
    untold = is_traced(value) or not jax.tree.leaves(value)
    if untold or field in ("frame_C", "frame_D"):
        return
    for one in _environments(value, ranks):
        if field in ("erp", "cfm"):
            read_softness(owner, Softness(**{field: one}), np.size(one))
        elif field == "softness":
            rows = max(map(np.size, jax.tree.leaves(one)))
            read_softness(owner, one, rows, allow_active=lenient)
        elif field == "max_effort":
            read_max_effort(owner, one, np.size(one))
        elif field == "enabled":
            if one not in (0, 1):
                raise ValueError(f"{owner}: enabled {one} must be 0 or 1, False or True")
        elif field == "laws":
            for law in one:
                problem = law_problem(law, allow_active=lenient)
                if problem:
                    name = f"{owner}: {type(law).__name__} on coordinate {law.coordinate}"
                    raise ValueError(f"{name}: {problem}")
        else:
            problem = one.check() or finite_problem(one)
            if problem:
                raise ValueError(f"{owner}: {type(one).__name__} {problem}")


def check_body_change(owner: str, mass: Any, inertia: Any, *, lenient: bool) -> None:
    """Raise ValueError for a changed mass (*batch) or inertia (3, 3, *batch) that the builder
    refuses; None for what is not changed.

    lenient: accept any inertia that is positive definite
    """
    if mass is not None and not is_traced(mass):
        for one in np.ravel(mass):
            read_mass(owner, one, prescribed=False)
    if inertia is None or is_traced(inertia):
        return
    for one in _environments(inertia, 2):
        read_inertia(
            owner,
            one,
            mass=1.0,
            com=np.zeros(3),
            reference="com",
            prescribed=False,
            symmetrize=False,
            balance=False,
            unphysical=lenient,
            rounding=ROUNDING,
        )


def _environments(value: Any, ranks: Any) -> Iterator[Any]:
    """The value in each environment, once where all share it; its leaves as NumPy arrays."""
    leaves, structure = jax.tree.flatten(value)
    leaves, ranks = [np.asarray(x) for x in leaves], jax.tree.leaves(ranks)
    batch = max((x.shape[r:] for x, r in zip(leaves, ranks, strict=True)), key=len, default=())
    for index in np.ndindex(batch):
        of_one = [x[(..., *index)] if x.ndim > r else x for x, r in zip(leaves, ranks, strict=True)]
        yield structure.unflatten(of_one)
