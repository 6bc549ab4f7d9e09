"""Reads a coupling: tries its functions once, and finds limits that its angles cannot reach."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...algebra.calls import warn
from ...algebra.compiler import is_traced
from ...couplings.contact import ContactGeometry
from ...couplings.coupling import Coupling
from ...couplings.diagnosis import (
    captured_array_problem,
    derivative_problems,
    lower_pair_problem,
    orthonormal_problem,
    signature_problem,
)
from ...couplings.rotary import Ball
from ...laws.law import Law
from ...laws.limits import Limits
from .values import at_once, precision, read_record


def read_coupling(owner: str, coupling: Any, strict: bool) -> tuple[Coupling, list[str]]:
    """A coupling whose parameters are float arrays in standard form, and notes for the user.

    There is a note for every axis that was normalized.

    strict: refuse what is otherwise only warned of

    Raises: ValueError for a value that is no coupling, for parameters out of range, and for
        functions that JAX cannot trace or that return wrong shapes or numbers that are not finite.
    Warns: a coupling of low rank at rest, and arrays that its functions take from outside.
    """
    if isinstance(coupling, ContactGeometry):
        raise ValueError(
            f"{owner}: a {type(coupling).__name__} is no joint and has no coordinates; add it with "
            "`contact`, which takes two shapes, or a ContactPoint"
        )
    if not isinstance(coupling, Coupling):
        is_type = isinstance(coupling, type) and issubclass(coupling, Coupling)
        hint = f"write {coupling.__name__}(…)" if is_type else "give a record such as Hinge()"
        raise ValueError(f"{owner}: {coupling!r} is not a coupling; {hint}")
    kind = type(coupling).__name__
    if not dataclasses.is_dataclass(coupling):
        raise ValueError(f"{owner}: {kind} must be a record; write @struct above its class")
    traced = [f.name for f in dataclasses.fields(coupling) if not f.metadata.get("static", False)]
    if "dof" in traced:
        raise ValueError(
            f"{owner}: {kind}.dof must be a constant of its class, not a field: "
            "dof: ClassVar[int] = 1"
        )
    as_passed, coupling = _standard_form(owner, coupling)
    problem = signature_problem(coupling)
    traced = is_traced(coupling)
    refused, low_rank = (
        (None, None) if problem or traced else at_once(derivative_problems)(coupling)
    )
    if not (problem or refused or traced) and not kind_is_ours(coupling):
        refused = at_once(lower_pair_problem)(coupling) or at_once(orthonormal_problem)(coupling)
    if problem or refused:
        raise ValueError(f"{owner}: {kind}.{problem or refused}")
    if traced:
        return coupling, []
    for doubt in (low_rank, captured_array_problem(coupling)):
        if doubt and strict:
            raise ValueError(f"{owner}: {kind}.{doubt}")
        if doubt:
            warn(f"{owner}: {kind}.{doubt}")
    notes = []
    for field in dataclasses.fields(as_passed):
        before, after = getattr(as_passed, field.name), getattr(coupling, field.name)
        if before is after or not isinstance(before, jax.Array) or before.shape != (3,):
            continue
        length = float(np.linalg.norm(before))
        if abs(length - 1) > 1e-6:
            notes.append(f"{owner}: {field.name} normalized from length {length:.6g}")
    return coupling, notes


def kind_is_ours(coupling: Coupling) -> bool:
    """Whether the library wrote the class of a coupling: its tests hold what the class states."""
    return type(coupling).__module__.startswith(__name__.partition(".")[0] + ".")


def warn_of_one_component(owner: str, coupling: Coupling, laws: tuple[Law, ...]) -> None:
    """Warn of limits on the first component of a rotation vector alone, which hardly bound it."""
    limited = {law.coordinate for law in laws if isinstance(law, Limits)}
    if isinstance(coupling, Ball) and limited == {0}:
        warn(
            f"{owner}: Limits act on coordinate 0 alone, the first component of the rotation "
            "vector of a Ball; give `coordinate=` for each that is meant, or a SwingCone for a "
            "cone, or take a Gimbal for limits about three axes"
        )


@at_once
def notes_on_turns(owner: str, coupling: Coupling, laws: tuple[Law, ...]) -> list[str]:
    """A note for each pair of limits on an angle that are more than a turn (2π) apart.

    Raises: ValueError if the angle cannot pass a whole turn between these limits, as a component of
        a rotation vector cannot pass 2π.
    """
    notes = []
    if not coupling.places_bodies or is_traced((coupling, laws)):
        return notes

    def freedom(q):
        """Rank of the derivative of the pose at coordinates q: how many ways C can move."""
        slope = jax.jacfwd(lambda q: jnp.append(coupling.pose(q).R, coupling.pose(q).p))
        return np.linalg.matrix_rank(np.asarray(slope(q)), tol=1e-4)

    for law in laws:
        lower, upper = getattr(law, "lower", None), getattr(law, "upper", None)
        if lower is None or upper is None or not np.asarray(upper) - np.asarray(lower) > 2 * np.pi:
            continue
        zero = jnp.zeros(coupling.dof, precision())
        T = coupling.pose(zero)
        T_after = coupling.pose(zero.at[law.coordinate].set(2 * jnp.pi))
        if not np.allclose(T.R, T_after.R, atol=1e-5) or not np.allclose(T.p, T_after.p, atol=1e-5):
            # Not an angle: the pose does not come back after a turn.
            continue
        # The outermost whole turns between the limits: an angle that ends, ends at all of them.
        turns = {np.ceil(lower / (2 * np.pi)), np.floor(upper / (2 * np.pi))}
        angles = [2 * np.pi * float(n) for n in turns if n and np.isfinite(n)]
        if any(freedom(zero.at[law.coordinate].set(a)) < freedom(zero) for a in angles):
            raise ValueError(
                f"{owner}: limits {float(lower):.6g} to {float(upper):.6g} of coordinate "
                f"{law.coordinate} reach a whole turn, where this coordinate of "
                f"{type(coupling).__name__} ends; keep them within ±2π, or use a joint "
                "whose angles are counted over turns (Hinge, Gimbal)"
            )
        notes.append(
            f"{owner}: limits of coordinate {law.coordinate} span {float(upper - lower):.6g} "
            "rad, more than a turn; the angle is counted over turns from where it starts"
        )
    return notes


@at_once
def _standard_form(owner: str, coupling: Coupling) -> tuple[Coupling, Coupling]:
    """A coupling with float arrays for parameters, and the same in standard form."""
    as_passed = read_record(owner, coupling)
    return as_passed, as_passed.normalized()
