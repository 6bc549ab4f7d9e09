"""Laws: forces along one coordinate of a joint, as limits, damping, friction.

A law is a frozen record whose leaves are its parameters. It is a pure function of one coordinate's
motion; the forces of all laws on one coordinate add up in one row of the solver, so any number of
them combine. Units follow the coordinate: [m, N, N/m, N s/m] or [rad, N m, N m/rad, N m s/rad].
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import struct
from ..solve.forces import Bound, Hard, Latch, RowLaw
from .engagement import Engagement

# Fields of laws that feed energy into the system if they are negative.
PASSIVE = ("stiffness", "damping", "friction", "mu", "inertia")


@struct
class CoordinateState:
    """What a law knows of its coordinate, scalars.

    q: value at the start of the step [m or rad]; dt: length of the step [s]
    qd: speed at the start of the step [m/s or rad/s], None unless the law `needs_speed`
    target, target_speed: value and speed at the end of the step that the control asks for, None
        where it asks for nothing
    gap: value of the law's `normal` coordinate, None for a law without
    engaged: E of the law's `engagement`, None for a law without
    """

    q: Array
    dt: Array
    qd: Array | None = None
    target: Array | None = None
    target_speed: Array | None = None
    gap: Array | None = None
    engaged: Array | None = None


class Law(ABC):
    """A force along one coordinate: base of all laws.

    A law is a record (`struct`) whose leaves are its parameters. What must be written is `kind` and
    `force`; all else has a default.

    coordinate: which coordinate of the joint the law acts on (static)
    kind: the row law that `force` returns: `Linear`, `Hard`, `Latch` or `Bound`
    batched: `force` is written in elementwise operations and takes trailing batch axes as they
        are; else the library maps it over joints and environments
    needs_speed: `force` reads the speed at the start of the step
    two_sided: of a `Bound`: it has `lower` and `upper`
    row_laws: how many row laws of this kind `force` returns, as a tuple where there are several
    normal: the coordinate of the joint whose force by laws bounds this one (`Bound.mu`), or None
    across: the coordinate whose law of the same type, with the same numbers, shares the bounds of
        this one, as a round cone of friction has them; or None
    aims: fields of the law that "target" and "target_speed" of a `Control` take the place of
    engagement: what decides after each step whether a one-sided `Bound` acts in the next, or None
    """

    coordinate: int = 0
    kind: ClassVar[type]
    batched: ClassVar[bool] = False
    needs_speed: ClassVar[bool] = False
    two_sided: ClassVar[bool] = False
    row_laws: int = 1
    normal: int | None = None
    across: int | None = None
    aims: ClassVar[Mapping[str, str]] = MappingProxyType({})
    engagement: Engagement | None = None

    @abstractmethod
    def force(self, at: CoordinateState) -> RowLaw | tuple[RowLaw, ...]:
        """The row law, or row laws, for one coordinate of a joint that moves as `at` says."""

    @property
    def holds(self) -> bool:
        """Whether the law keeps a coordinate where it may be, rather than pushing it (static)."""
        return self.kind in (Hard, Latch) or (self.kind is Bound and not self.two_sided)

    def energy(self, q: Array) -> Array:
        """Energy [J] that the law stores at a coordinate q, a scalar; 0 unless it is a spring."""
        return jnp.zeros_like(q)

    def check(self) -> str | None:
        """What is wrong with the parameters (concrete numbers), as a sentence, or None."""
        return None


def by_row_law(laws: Sequence[Law]) -> tuple[Law, ...]:
    """Each law as often as it has row laws."""
    return tuple(law for law in laws for _ in range(law.row_laws))


def check_numbers(law: Law, *signed: str) -> str | None:
    """The first field that is NaN, or out of its range, as a sentence.

    signed: fields of any sign; that of other fields is asked for where a joint is declared
    """
    for name, value in vars(law).items():
        if name in ("coordinate", "normal", "across", "engagement"):
            continue
        if value is None or isinstance(value, bool):
            continue
        numbers = np.asarray(value, float)
        if np.isnan(numbers).any():
            hint = "; leave an absent side out (None)" if name in ("lower", "upper") else ""
            return f"{name} {value} must be a number{hint}"
        if name in ("lower", "upper"):
            continue
        if not np.isfinite(numbers).all():
            return f"{name} {value} must be finite"
        if name in signed:
            continue
        if name in ("erp", "restitution") and ((numbers < 0) | (numbers > 1)).any():
            return f"{name} {value} must lie in [0, 1]"
        if name == "engaged" and not np.isin(numbers, (0, 1)).all():
            return f"engaged {value} must be 0 or 1"
        if name in ("cfm", "effort") and (numbers < 0).any():
            return f"{name} {value} must be >= 0"
    return None
