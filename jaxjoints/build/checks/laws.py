"""Reads the laws of a joint or a transmission: one standard form, and laws that fit each other."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...algebra.arguments import read_numbers
from ...algebra.compiler import is_traced
from ...algebra.options import check_switch
from ...algebra.pytree import replace
from ...laws.drives import Servo
from ...laws.law import PASSIVE, CoordinateState, Law
from ...laws.limits import Limits, Lock
from ...laws.springs import SpringDamper
from ...solve.forces import Hard
from .joints import UNBOUNDED
from .values import at_once, float_leaves, precision


@at_once
def read_laws(
    owner: str,
    laws: Any,
    *,
    dof: int,
    erp: float,
    allow_active: bool,
    cones: bool = False,
    max_effort: Any = None,
    beside: Sequence[Law] = (),
) -> tuple[tuple[Law, ...], list[str]]:
    """Laws in standard form with float arrays for leaves, and notes for the user.

    There is a note for every law that was left out, and for every one that became another type.

    laws: one law or several
    dof: number of coordinates that the laws may act on
    erp: that of hard limits which state none
    allow_active: accept negative stiffness, damping, friction and inertia
    cones: whether two of them may share their bounds, as friction with a round cone does
    max_effort: of each coordinate, shape (dof,), which a `Servo` that states no effort gets; or
        None
    beside: laws in standard form that act on the coordinates already

    Raises: ValueError for a value that is no law, for parameters out of range, and for laws that
        exclude each other: two that fix one coordinate, two engagements on one coordinate.
    """
    check_switch(owner, "allow_active", allow_active)
    checked, notes = [], []
    fixed_by = {law.coordinate: f"a {type(law).__name__}" for law in beside if law.kind is Hard}
    engaged = {law.coordinate for law in beside if law.engagement is not None}
    several = isinstance(laws, Iterable) and not isinstance(laws, str)
    for declared in laws if several else (laws,):
        if not isinstance(declared, Law):
            hint = "give a record such as Limits(-1, 1)"
            if isinstance(declared, type) and issubclass(declared, Law):
                hint = f"write {declared.__name__}(…)"
            raise ValueError(f"{owner}: {declared!r} is not a law; {hint}")
        kind, coordinate = type(declared).__name__, declared.coordinate
        name = f"{owner}: {kind} on coordinate {coordinate}"
        if isinstance(coordinate, bool) or not isinstance(coordinate, (int, np.integer)):
            raise ValueError(f"{owner}: {kind}: coordinate {coordinate!r} must be a whole number")
        if not 0 <= coordinate < dof:
            raise ValueError(f"{name}: there are {dof} coordinates, numbered from 0")
        if set(declared.along) != {coordinate} and not cones:
            raise ValueError(f"{name}: acts along edges of a contact; give it to a contact")
        law = _standard_limits(name, declared, erp) if isinstance(declared, Limits) else declared
        if law is None:
            notes.append(f"{name}: left out, it has no bound")
            continue
        problem = None if is_traced(law) else law_problem(law, allow_active=allow_active)
        if problem:
            raise ValueError(f"{name}: {problem}")
        if type(law) is not type(declared):
            notes.append(f"{name}: its equal bounds {declared.lower} make a {type(law).__name__}")
        if law.kind is Hard:
            if coordinate in fixed_by:
                raise ValueError(f"{name}: {fixed_by[coordinate]} holds it already; keep one")
            fixed_by[coordinate] = f"a {kind}"
        if law.engagement is not None:
            if coordinate in engaged:
                raise ValueError(
                    f"{name}: an engagement acts on coordinate {coordinate} already; keep one"
                )
            engaged.add(coordinate)
        if isinstance(law, Servo) and law.effort is None and max_effort is not None:
            most = max_effort[coordinate]
            if is_traced(most) or most < UNBOUNDED:
                law = replace(law, effort=most)
        law = float_leaves(name, law)
        _check_force(name, law)
        checked.append(law)
    _check_normals(owner, [*beside, *checked])
    _check_cones(owner, [*beside, *checked], cones)
    return tuple(checked), notes


def law_problem(law: Law, *, allow_active: bool) -> str | None:
    """What is wrong with the numbers of a law, as a sentence, or None.

    allow_active: accept negative stiffness, damping, friction and inertia
    """
    return law.check() or (None if allow_active else _energy_source(law))


def _check_force(name: str, law: Law) -> None:
    """Raise ValueError for a law whose force on one coordinate is more than one number."""
    number = jnp.zeros((), precision())
    at = CoordinateState(
        q=number,
        dt=number,
        qd=number if law.needs_speed else None,
        target=number,
        target_speed=number,
        gap=None if law.normal is None else number,
        engaged=None if law.engagement is None else number,
    )
    try:
        shapes = {x.shape for x in jax.tree.leaves(jax.eval_shape(law.force, at))} - {()}
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: its force fails for one coordinate: {error}") from error
    if shapes:
        wide = [
            f"{jax.tree_util.keystr(path).lstrip('.')} has shape {leaf.shape}"
            for path, leaf in jax.tree_util.tree_leaves_with_path(law)
            if leaf.shape
        ]
        raise ValueError(
            f"{name}: its force on one coordinate has shape {shapes.pop()}, not that of one number"
            + (f"; {', '.join(wide)}" if wide else "")
        )


def _check_normals(owner: str, laws: list[Law]) -> None:
    """Raise ValueError for a friction whose normal coordinate has no law that pushes along it."""
    fixed = {law.coordinate for law in laws if law.kind is Hard}
    pushed = {law.coordinate for law in laws} - fixed
    for law in laws:
        if law.normal is None:
            continue
        name = f"{owner}: {type(law).__name__} on coordinate {law.coordinate}"
        if law.normal == law.coordinate or law.normal not in pushed:
            raise ValueError(
                f"{name}: its normal {law.normal} must be another coordinate of the joint, with "
                "laws that push along it, such as Limits(lower=0.0)"
            )


def _check_cones(owner: str, laws: list[Law], cones: bool) -> None:
    """Raise ValueError for a law that shares its bounds where it may not, with no law of its kind,
    or a coordinate with others.
    """
    for law in laws:
        if law.across is None:
            continue
        name = f"{owner}: {type(law).__name__} on coordinate {law.coordinate}"
        if not cones:
            raise ValueError(f"{name}: across={law.across} belongs to contacts; leave it out")
        here = [other for other in laws if other.coordinate in (law.coordinate, law.across)]
        same = [x for x in here if type(x) is type(law) and x.across is not None]
        pair = {(x.coordinate, x.across) for x in same}
        both = {(law.coordinate, law.across), (law.across, law.coordinate)}
        if pair != both or len(here) != 2 or law.across == law.coordinate:
            raise ValueError(
                f"{name}: across={law.across} makes a round cone of two such laws alone, each with "
                "the coordinate of the other; give both, and no further law on these coordinates"
            )


def _standard_limits(name: str, limits: Limits, erp: float) -> Law | None:
    """Limits in standard form, as the solver expects them; None for limits without any bound.

    An absent bound is None, not infinite. Limits with a stiffness or a damping have both, others
    without a reference have both erp and cfm. Equal bounds make a `SpringDamper` or a `Lock`.

    name: of the law, for errors
    erp: for hard limits that state none
    """
    for field in ("lower", "upper", "stiffness", "damping", "erp", "cfm", "max_correction"):
        if getattr(limits, field) is not None:
            read_numbers(name, field, getattr(limits, field), finite=False)
    lower, upper = (
        None if bound is None or not is_traced(bound) and bound == absent else bound
        for bound, absent in ((limits.lower, -math.inf), (limits.upper, math.inf))
    )
    for field, bound in (("lower", lower), ("upper", upper)):
        if bound is not None and not is_traced(bound) and np.isinf(bound):
            raise ValueError(f"{name}: {field} {bound} leaves no room; leave an absent side out")
    max_correction = limits.max_correction
    known = max_correction is not None and not is_traced(max_correction)
    if known and not max_correction > 0:
        raise ValueError(f"{name}: max_correction {max_correction} must be > 0, or None")
    if known and np.isinf(max_correction):
        max_correction = None
    if lower is None and upper is None:
        return None
    limits = replace(limits, lower=lower, upper=upper, max_correction=max_correction)
    traced = is_traced(limits)
    problem = None if traced else limits.check()
    if problem:
        raise ValueError(f"{name}: {problem}")
    if limits.reference is not None:
        return replace(limits, max_correction=None)
    # Bounds that are traced make no `Lock`: whether they are equal is not known.
    locked = not traced and lower is not None and upper is not None and lower == upper
    if limits.stiffness is not None or limits.damping is not None:
        stiffness, damping = (0.0 if x is None else x for x in (limits.stiffness, limits.damping))
        if locked:
            return SpringDamper(stiffness, damping, rest=lower, coordinate=limits.coordinate)
        return replace(limits, stiffness=stiffness, damping=damping, max_correction=None)
    erp = erp if limits.erp is None else limits.erp
    cfm = 0.0 if limits.cfm is None else limits.cfm
    if locked:
        return Lock(lower, erp, cfm, coordinate=limits.coordinate)
    return replace(limits, erp=erp, cfm=cfm)


def _energy_source(law: Law) -> str | None:
    """Which negative parameter makes a law feed energy into the system, as a sentence, or None."""
    for field in PASSIVE:
        value = vars(law).get(field)
        if value is not None and (np.asarray(value) < 0).any():
            return (
                f"{field} {value} must be >= 0, or it feeds energy in; if that is meant, give the "
                "joint allow_active=True"
            )
    return None
