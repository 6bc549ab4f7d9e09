"""Checks of what a user gives for joints, transmissions and fields, in standard form afterwards."""

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..couplings.coupling import Coupling
from ..couplings.nonholonomic import extra_rows
from ..couplings.diagnosis import (
    captured_array_problem,
    derivative_problems,
    function_problem,
    signature_problem,
)
from ..laws.fields import BodyMotion, Field
from .grouping import GivenBody
from ..laws.law import Law
from ..laws.limits import Limits, Lock
from ..laws.springs import SpringDamper
from ..algebra.pytree import overrides, replace
from ..laws.softness import Compliance
from ..solve.forces import Hard
from ..algebra.spatial import Pose
from ..model.system import WORLD, System
from ..model.state import State
from ..laws.transmissions import Transmission
from .validation import float_leaves, near_matches, precision, read_numbers

# Ratio of the masses of two bodies that a joint holds together, above which a warning is given.
MASS_RATIO = 1e6
PASSIVE = ("stiffness", "damping", "friction", "inertia")
# What a field may define: the method, and a function that calls it.
FIELD_METHODS = (
    (Field.wrench, lambda field, motion: field.wrench(motion)),
    (Field.velocity_update, lambda field, motion: field.velocity_update(motion)),
)


def read_coupling(owner: str, coupling: Any, strict: bool) -> tuple[Coupling, list[str]]:
    """A coupling with float arrays for leaves in standard form, and notes on what was changed.

    strict: refuse what is otherwise warned of
    """
    if not isinstance(coupling, Coupling):
        made = isinstance(coupling, type) and issubclass(coupling, Coupling)
        hint = f"write {coupling.__name__}(…)" if made else "give a record such as Hinge()"
        raise ValueError(f"{owner}: {coupling!r} is not a coupling; {hint}")
    kind = type(coupling).__name__
    given = _checked(owner, coupling)
    coupling = given.normalized()
    problem = signature_problem(coupling)
    refused, weak = (None, None) if problem else derivative_problems(coupling)
    if problem or refused:
        raise ValueError(f"{owner}: {kind}.{problem or refused}")
    for doubt in (weak, captured_array_problem(coupling)):
        if doubt and strict:
            raise ValueError(f"{owner}: {kind}.{doubt}")
        if doubt:
            warnings.warn(f"{owner}: {kind}.{doubt}", stacklevel=4)
    notes = []
    for field in dataclasses.fields(given):
        before, after = getattr(given, field.name), getattr(coupling, field.name)
        if before is after or not isinstance(before, jax.Array) or before.shape != (3,):
            continue
        length = float(np.linalg.norm(before))
        if abs(length - 1) > 1e-6:
            notes.append(f"{owner}: {field.name} normalized from length {length:.6g}")
    return coupling, notes


def critical_damping(
    owner: str,
    given: Compliance,
    coupling: Coupling,
    sides: Sequence[tuple[float, np.ndarray, np.ndarray]],
) -> Compliance:
    """The compliance of bilateral rows with the damping that it stands for, see `Compliance`.

    sides: of each body that moves, its mass, inertia about the centre of mass, and the joint's
        origin from there
    """
    if given.damping is not None:
        return given
    if extra_rows(coupling):
        raise ValueError(
            f"{owner}: damping of a Compliance must be given for {type(coupling).__name__}, which "
            "has rows at velocity level"
        )
    dtype = precision()
    q = jnp.zeros(coupling.dof, dtype)
    W = np.asarray(coupling.rows(coupling.pose(q), q, jnp.zeros((), dtype)).W)
    force, moment = (np.sum(part**2, axis=1) for part in np.split(W[: 6 - coupling.dof], 2, axis=1))
    moved = np.zeros(len(force))
    for mass, inertia, arm in sides:
        moved += (force * mass + moment * (np.trace(inertia) / 3 + mass * arm @ arm)) / 2
    compliance = given.compliance
    # Rows without compliance are rigid and need none.
    damping = 2 * np.sqrt(moved / np.where(compliance > 0, compliance, np.inf))
    return Compliance(compliance, damping)


def check_ends(owner: str, bodies: Mapping[str, GivenBody], child: str, parent: str) -> None:
    """ValueError for ends of a joint that are no bodies, or none that a joint could move."""
    for end, name in (("child", child), ("parent", parent)):
        if name != WORLD and name not in bodies:
            raise ValueError(
                f"{owner}: {end} {name!r} is no body; {near_matches(name, bodies)} "
                "(bodies are added before their joints)"
            )
    if child == parent:
        raise ValueError(f"{owner}: child and parent are both {child!r}; join two bodies")
    still = [name == WORLD or not bodies[name].moving for name in (child, parent)]
    if all(still):
        raise ValueError(
            f"{owner}: neither {child!r} nor {parent!r} can be moved (the world and bodies of "
            "prescribed motion); a joint needs a moving body"
        )
    if child == WORLD:
        raise ValueError(
            f"{owner}: the child is the world; make {parent!r} the child and the world the parent"
        )


def check_masses(owner: str, bodies: Mapping[str, GivenBody], child: str, parent: str) -> None:
    """Warns of masses too different for the precision of the solve."""
    if parent == WORLD or not (bodies[child].moving and bodies[parent].moving):
        return
    masses = bodies[child].mass, bodies[parent].mass
    if max(masses) > MASS_RATIO * min(masses):
        warnings.warn(
            f"{owner}: {child!r} of {masses[0]:g} kg and {parent!r} of {masses[1]:g} kg differ "
            f"by more than {MASS_RATIO:g} in mass; the solve loses that many digits",
            stacklevel=3,
        )


def read_laws(
    owner: str, laws: Any, *, dof: int, erp: float, allow_active: bool
) -> tuple[tuple[Law, ...], list[str]]:
    """Laws in standard form with float arrays for leaves, and notes on what was changed."""
    kept, notes, hard, engaging = [], [], {}, set()
    for given in (laws,) if isinstance(laws, Law) else laws:
        if not isinstance(given, Law):
            hint = "give a record such as Limits(-1, 1)"
            raise ValueError(f"{owner}: {given!r} is not a law; {hint}")
        name = f"{owner}: {type(given).__name__} on coordinate {given.coordinate}"
        if not 0 <= given.coordinate < dof:
            raise ValueError(f"{name}: the joint has {dof} coordinates, numbered from 0")
        law = _standard_limits(name, given, erp) if isinstance(given, Limits) else given
        if law is None:
            notes.append(f"{name}: left out, it has no bound")
            continue
        problem = law.check() or (None if allow_active else _active(law))
        if problem:
            raise ValueError(f"{name}: {problem}")
        if type(law) is not type(given):
            notes.append(f"{name}: its equal bounds {given.lower} make a {type(law).__name__}")
        if law.kind is Hard:
            if law.coordinate in hard:
                raise ValueError(f"{name}: {hard[law.coordinate]} holds it already; keep one")
            hard[law.coordinate] = f"a {type(given).__name__}"
        if law.engagement is not None:
            if law.coordinate in engaging:
                at = law.coordinate
                raise ValueError(f"{name}: an engagement acts on coordinate {at} already; keep one")
            engaging.add(law.coordinate)
        kept.append(float_leaves(name, law))
    _check_normals(owner, kept)
    return tuple(kept), notes


def read_transmission(owner: str, transmission: Any, dof: int) -> Transmission:
    """A transmission of `dof` coordinates with float arrays for leaves."""
    if not isinstance(transmission, Transmission):
        raise ValueError(
            f"{owner}: {transmission!r} is not a transmission; give a record such as Mimic(2.0)"
        )
    kind = type(transmission).__name__
    wanted = transmission.coordinates
    if wanted is not None and wanted != dof:
        raise ValueError(
            f"{owner}: {kind} couples {wanted} coordinates, its joints have {dof}; name "
            f"joints with {wanted} coordinates in all"
        )
    made = _checked(owner, transmission)
    q = jnp.zeros(dof, precision())
    try:
        found = jax.eval_shape(made.value, q)
    except (TypeError, IndexError, ValueError) as error:
        raise ValueError(f"{owner}: {kind}.value fails on {dof} coordinates: {error}") from error
    if found.shape != (made.rows,):
        raise ValueError(
            f"{owner}: {kind}.value has shape {found.shape}, it must be ({made.rows},): one number "
            "for each of its rows"
        )
    slope = np.asarray(jax.jacfwd(made.value)(q))
    if not np.isfinite(slope).all():
        raise ValueError(f"{owner}: {kind}.value has a derivative that is not finite at q = 0")
    return made


def read_field(owner: str, field: Any) -> Field:
    """A field with float arrays for leaves, its functions of the right shapes."""
    if not isinstance(field, Field):
        made = isinstance(field, type) and issubclass(field, Field)
        hint = f"write {field.__name__}(…)" if made else "give a record such as Drag(linear=0.1)"
        raise ValueError(f"{owner}: {field!r} is not a field; {hint}")
    made, kind = _checked(owner, field), type(field).__name__
    some = jnp.zeros((3, 3), precision())
    vector, number = some[0], some[0, 0]
    motion = BodyMotion(
        Pose.identity(dtype=vector.dtype), vector, vector, number, some, vector, number, number
    )
    expected = {
        Field.wrench: jnp.zeros(6, vector.dtype),
        Field.velocity_update: (vector, vector),
    }
    defined = [pair for pair in FIELD_METHODS if overrides(made, pair[0])]
    if not defined:
        raise ValueError(
            f"{owner}: {kind} defines neither wrench nor velocity_update; give it one of them"
        )
    for method, call in defined:
        name = f"{method.__name__}(motion)"
        problem = function_problem(name, call, (made, motion), expected[method])
        if problem:
            raise ValueError(f"{owner}: {kind}.{problem}")
    return made


def check_fields(system: System, state: State) -> None:
    """ValueError for a field of which something, value or derivative, is not finite at the start,
    where the bodies are placed and at rest.
    """
    still, now = np.zeros(3, state.time.dtype), np.zeros((), state.time.dtype)
    bodies = state.position, state.quaternion, system.mass, system.inertia, system.com
    position, quaternion, mass, inertia, com = map(np.asarray, bodies)
    for group in system.fields:
        for i, member in enumerate(group.members):
            field = jax.tree.map(lambda x: np.asarray(x)[..., i], group.field)  # noqa: B023
            name = f"field {system.topology.fields[member]!r}: {type(field).__name__}"
            for b in group.bodies[i]:
                pose = Pose(position[:, b], quaternion[:, b])
                own = mass[b], inertia[:, :, b], com[:, b]
                motion = BodyMotion(pose, still, still, *own, np.asarray(state.time), now)
                for method, call in FIELD_METHODS:
                    words = _unsteady(field, motion, call) if overrides(field, method) else None
                    if words:
                        raise ValueError(
                            f"{name}.{method.__name__} {words} not finite for body "
                            f"{system.topology.bodies[b]!r} at rest where it starts; guard its "
                            "divisions, roots and norms with jnp.where on what goes into them"
                        )


def winding_notes(owner: str, coupling: Coupling, laws: tuple[Law, ...]) -> list[str]:
    """A note for each pair of limits further apart than a turn of an angle that winds.

    Raises: ValueError for such limits of an angle that ends before (a rotation vector's at 2π)
    """
    notes = []
    if not coupling.places_bodies:
        return notes

    def directions(q):
        """How many ways the pose can move at the coordinates q."""
        slope = jax.jacfwd(lambda q: jnp.append(coupling.pose(q).R, coupling.pose(q).p))
        return np.linalg.matrix_rank(np.asarray(slope(q)), tol=1e-4)

    for law in laws:
        lower, upper = getattr(law, "lower", None), getattr(law, "upper", None)
        if lower is None or upper is None or not upper - lower > 2 * np.pi:
            continue
        q = jnp.zeros(coupling.dof, precision())
        here = coupling.pose(q)
        there = coupling.pose(q.at[law.coordinate].set(2 * jnp.pi))
        same = np.allclose(here.R, there.R, atol=1e-5) and np.allclose(here.p, there.p, atol=1e-5)
        if same:
            # The outermost whole turns within reach: an angle that ends does so at all of them.
            ends = {np.ceil(lower / (2 * np.pi)), np.floor(upper / (2 * np.pi))}
            turns = [float(k) for k in ends if k and np.isfinite(k)]
            if any(
                directions(q.at[law.coordinate].set(2 * np.pi * k)) < directions(q) for k in turns
            ):
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


def _checked(owner: str, record: Any) -> Any:
    """A coupling or transmission with float arrays for leaves, all finite and as it wants them."""
    name = f"{owner}: {type(record).__name__}"
    given = float_leaves(name, record)
    problem = given.check()
    if problem:
        raise ValueError(f"{name} {problem}")
    for path, leaf in jax.tree_util.tree_leaves_with_path(given):
        if not np.isfinite(leaf).all():
            field = jax.tree_util.keystr(path).lstrip(".")
            raise ValueError(f"{name} {field} {np.asarray(leaf)} must be finite")
    return given


def _unsteady(field: Field, motion: BodyMotion, call: Callable) -> str | None:
    value, slope = _finite(field, motion, call)
    return "is" if not value else None if slope else "has a derivative that is"


@partial(jax.jit, static_argnames="call")
def _finite(field: Field, motion: BodyMotion, call: Callable) -> tuple[Array, Array]:
    """Whether what a field gives, and its derivative by the motion, are finite."""

    def finite(tree):
        return jnp.all(jnp.array([jnp.isfinite(x).all() for x in jax.tree.leaves(tree)]))

    def value(motion):
        return call(field, motion)

    return finite(value(motion)), finite(jax.jacfwd(value)(motion))


def _check_normals(owner: str, laws: list[Law]) -> None:
    """ValueError for a friction that follows a coordinate without a force that laws exert."""
    held = {law.coordinate for law in laws if law.kind is Hard}
    pushed = {law.coordinate for law in laws} - held
    for law in laws:
        if law.normal is None:
            continue
        name = f"{owner}: {type(law).__name__} on coordinate {law.coordinate}"
        if law.normal == law.coordinate or law.normal not in pushed:
            raise ValueError(
                f"{name}: its normal {law.normal} must be another coordinate of the joint, with "
                "laws that push along it, such as Limits(lower=0.0)"
            )


def _standard_limits(name: str, law: Limits, erp: float) -> Law | None:
    """Limits whose absent sides and absent kind of softness are None; None without any bound."""
    for field in ("lower", "upper", "stiffness", "damping", "erp", "cfm", "max_correction"):
        if getattr(law, field) is not None:
            read_numbers(name, field, getattr(law, field), finite=False)
    lower = None if law.lower is None or law.lower == -math.inf else law.lower
    upper = None if law.upper is None or law.upper == math.inf else law.upper
    for field, bound in (("lower", lower), ("upper", upper)):
        if bound is not None and np.isinf(bound):
            raise ValueError(f"{name}: {field} {bound} leaves no room; leave an absent side out")
    most = law.max_correction
    if most is not None and not most > 0:
        raise ValueError(f"{name}: max_correction {most} must be > 0, or None")
    most = None if most is None or np.isinf(most) else most
    if lower is None and upper is None:
        return None
    law = replace(law, lower=lower, upper=upper, max_correction=most)
    problem = law.check()
    if problem:
        raise ValueError(f"{name}: {problem}")
    locked = lower is not None and upper is not None and lower == upper
    if law.stiffness is not None or law.damping is not None:
        stiffness, damping = law.stiffness or 0.0, law.damping or 0.0
        if locked:
            return SpringDamper(stiffness, damping, rest=lower, coordinate=law.coordinate)
        return replace(law, stiffness=stiffness, damping=damping, max_correction=None)
    erp = erp if law.erp is None else law.erp
    cfm = 0.0 if law.cfm is None else law.cfm
    if locked:
        return Lock(lower, erp, cfm, coordinate=law.coordinate)
    return replace(law, erp=erp, cfm=cfm)


def _active(law: Law) -> str | None:
    for field in PASSIVE:
        value = getattr(law, field, None)
        if value is not None and (np.asarray(value) < 0).any():
            return (
                f"{field} {value} must be >= 0, or it feeds energy in; if that is meant, give the "
                "joint allow_active=True"
            )
    return None
