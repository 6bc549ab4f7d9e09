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

from ..algebra.options import plain_numbers
from ..algebra.pytree import struct
from ..solve.forces import Bound, Hard, Latch, RowLaw
from .engagement import Engagement

# Fields of laws that feed energy into the system if they are negative.
PASSIVE = ("stiffness", "damping", "friction", "friction_force", "inertia")


@struct
class CoordinateState:
    """The coordinate of a law at the start of a step, scalars.

    q: value at the start of the step [m or rad]; dt: length of the step [s]
    qd: speed at the start of the step [m/s or rad/s], None unless the law `needs_speed`; of a law
        `along` several coordinates the speed along each
    free_speed: speed at the end of the step without the force of any row; None for laws that read
        no speeds, and where impacts have no time of their own within the step
    target, target_speed: value and speed that the control asks for at the end of the step, None
        without a target
    gap: value of the law's `normal` coordinate, None for a law without `normal`
    engaged: E of the law's `engagement`, None for a law without `engagement`

    >>> from jaxjoints import SpringDamper
    >>> at = CoordinateState(q=jnp.array(0.5), dt=jnp.array(0.125))
    >>> pull = SpringDamper(stiffness=40.0).force(at)
    >>> print(pull.impulse / at.dt)  # -40 N/m · 0.5 m
    -20.0
    """

    q: Array
    dt: Array
    qd: Array | None = None
    free_speed: Array | None = None
    target: Array | None = None
    target_speed: Array | None = None
    gap: Array | None = None
    engaged: Array | None = None


class Law(ABC):
    """A force along one coordinate: base of all laws.

    A law is a record (`struct`) whose leaves are its parameters. A subclass must write `kind` and
    `force`; all else has a default.

    coordinate: which coordinate of the joint the law acts on (static)
    kind: the row law that `force` returns: `Linear`, `Hard`, `Latch` or `Bound`
    batched: True: `force` has elementwise operations only and takes trailing batch axes. False: the
        library maps `force` over joints and environments
    needs_speed: whether `force` reads the speed at the start of the step
    two_sided: whether a `Bound` has `lower` and `upper`
    row_laws: number of row laws that `force` returns, as a tuple if there are several
    normal: the coordinate of the joint whose force by laws bounds this law (`Bound.mu`), or None
    across: the coordinate that shares a round cone of friction with this one, or None. It has a law
        of the same type with the same numbers
    aims: for "target" and "target_speed" of a `Control` the field of the law that they replace
    engagement: decides after each step whether a one-sided `Bound` acts in the next, or None

    >>> from jaxjoints import row_laws, struct
    >>> @struct
    ... class CubicSpring(Law):
    ...     strength: Array  # [N/m³]
    ...     kind: ClassVar[type] = row_laws.Linear
    ...     def force(self, at):
    ...         return row_laws.Linear(0.0 * at.q, -at.dt * self.strength * at.q**3)
    >>> at = CoordinateState(q=jnp.array(2.0), dt=jnp.array(0.125))
    >>> print(CubicSpring(strength=3.0).force(at).impulse / at.dt)  # -3 N/m³ (2 m)³
    -24.0
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
        """The row law, or row laws, of one coordinate in the state `at`."""

    @property
    def along(self) -> tuple[int, ...]:
        """The coordinate along which each row law acts (static): `coordinate`, but for a
        `ContactPyramid`.
        """
        return (self.coordinate,) * self.row_laws

    @property
    def holds(self) -> bool:
        """Whether the law holds a coordinate in place or within bounds; else it pushes (static)."""
        return self.kind in (Hard, Latch) or (self.kind is Bound and not self.two_sided)

    def energy(self, q: Array) -> Array:
        """Energy [J] that the law stores at a coordinate q, a scalar; 0 unless it is a spring."""
        return jnp.zeros_like(q)

    def check(self) -> str | None:
        """A sentence about wrong parameters, which are concrete numbers, or None."""
        return None


def by_row_law(laws: Sequence[Law]) -> tuple[Law, ...]:
    """Each law repeated once for each of its row laws."""
    return tuple(law for law in laws for _ in range(law.row_laws))


def check_numbers(law: Law, *signed: str) -> str | None:
    """A sentence about the first field that is NaN or out of its range, or None.

    signed: fields of any sign; the builder checks the sign of other fields
    """
    for name, value in vars(law).items():
        if name in ("coordinate", "normal", "across", "engagement", "reference"):
            continue
        if value is None or isinstance(value, bool):
            continue
        numbers = plain_numbers(value)
        if numbers is None:
            return f"{name} {value!r} must be a number"
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
