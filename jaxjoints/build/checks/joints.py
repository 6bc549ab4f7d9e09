"""Reads what a joint has beside coupling and laws: bodies, softness, attachment, switch, effort."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...algebra.arguments import read_numbers
from ...algebra.calls import warn
from ...algebra.compiler import is_traced
from ...algebra.options import check_switch, near_matches
from ...algebra.pytree import replace
from ...couplings.coupling import Coupling
from ...couplings.nonholonomic import extra_rows
from ...laws.softness import AnySoftness, Compliance
from ...model.system import WORLD
from ..specs import BodySpec
from .values import at_once, precision

# Ratio of the masses of two bodies that a joint connects, above which a warning is given.
MASS_RATIO = 1e6
# An effort from here on bounds nothing [N or N m].
UNBOUNDED = 1e30
# Shares of the way from C's origin to D's, for child and parent: see `JointGroup.attachment`.
ATTACHMENTS = {"C": (0.0, 0.0), "own": (0.0, 1.0), "midpoint": (0.5, 0.5)}


def check_ends(owner: str, bodies: Mapping[str, BodySpec], child: str, parent: str) -> None:
    """Raise ValueError unless child and parent are two known bodies, one of which can move.

    The world may stand for the parent, and not for the child.
    """
    for end, name in (("child", child), ("parent", parent)):
        if not isinstance(name, str):
            raise ValueError(f"{owner}: {end} {name!r} must be the name of one body")
        if name != WORLD and name not in bodies:
            raise ValueError(
                f"{owner}: {end} {name!r} is no body; {near_matches(name, bodies)} "
                "(bodies are added before their joints)"
            )
    if child == parent:
        raise ValueError(f"{owner}: child and parent are both {child!r}; join two bodies")
    if all(name == WORLD or not bodies[name].moving for name in (child, parent)):
        raise ValueError(
            f"{owner}: neither {child!r} nor {parent!r} can be moved (the world and bodies of "
            "prescribed motion); a joint needs a moving body"
        )
    if child == WORLD:
        raise ValueError(
            f"{owner}: the child is the world; make {parent!r} the child and the world the parent"
        )


def warn_of_mass_ratio(owner: str, bodies: Mapping[str, BodySpec], names: Sequence[str]) -> None:
    """Warn if masses of the bodies of an element differ by more than the solver's precision bears.

    names: of the bodies, `WORLD` among them or not
    """
    masses = {name: bodies[name].mass for name in names if name != WORLD and bodies[name].moving}
    if not masses or is_traced(tuple(masses.values())):
        return
    light, heavy = (of(masses, key=lambda name: masses[name]) for of in (min, max))
    if masses[heavy] > MASS_RATIO * masses[light]:
        warn(
            f"{owner}: {light!r} of {masses[light]:g} kg and {heavy!r} of {masses[heavy]:g} kg "
            f"differ by more than {MASS_RATIO:g} in mass; the solve loses that many digits"
        )


def read_softness(
    owner: str, softness: AnySoftness, rows: int, *, allow_active: bool = False
) -> AnySoftness:
    """The softness of bilateral rows, each of its numbers of shape (rows,), or None as before.

    allow_active: accept negative stiffness and damping
    """
    if not isinstance(softness, AnySoftness):
        raise ValueError(
            f"{owner}: softness {softness!r} must be a Softness(erp=…, cfm=…), Compliance(…), "
            "Bushing(…) or Baumgarte(…)"
        )
    read = {}
    for field, value in vars(softness).items():
        if value is None:
            continue
        shape = () if np.ndim(value) == 0 else (rows,)
        numbers = read_numbers(owner, field, value, shape)
        if is_traced(numbers):
            read[field] = jnp.broadcast_to(numbers, (rows,))
            continue
        if allow_active and field in ("stiffness", "damping"):
            least = np.isfinite(numbers)
        else:
            least = numbers > 0 if field == "time_constant" else numbers >= 0
        if not least.all() or field == "erp" and (numbers > 1).any():
            rules = {"erp": "lie in [0, 1]", "time_constant": "be > 0"}
            rule = rules.get(field, "be >= 0")
            raise ValueError(f"{owner}: {field} {value} must {rule}")
        read[field] = np.broadcast_to(numbers, (rows,))
    return replace(softness, **read)


@at_once
def with_critical_damping(
    owner: str,
    springs: Compliance,
    coupling: Coupling,
    inertias: Sequence[tuple[float, np.ndarray, np.ndarray]],
) -> Compliance:
    """The compliance of a joint's bilateral rows with its damping, critical where none is stated.

    The critical damping of a row of compliance c is 2 √(m/c), m the inertia that it moves: see
    `Compliance`.

    inertias: of each moving body of the joint, its mass [kg], its inertia about the centre of mass
        [kg m²], shape (3, 3), and the joint's origin from the centre of mass [m], shape (3,)

    Raises: ValueError for a damping left out where the coupling has rows at velocity level.
    """
    if springs.damping is not None:
        return springs
    if extra_rows(coupling):
        raise ValueError(
            f"{owner}: damping of a Compliance must be given for {type(coupling).__name__}, which "
            "has rows at velocity level"
        )
    dtype = precision()
    if coupling.dof == 6:
        # No bilateral rows, and possibly no pose to try either.
        return Compliance(springs.compliance, 0 * springs.compliance)
    xp = jnp if is_traced((springs, coupling, list(inertias))) else np
    q = jnp.zeros(coupling.dof, dtype)
    W = xp.asarray(coupling.rows(coupling.pose(q), q, jnp.zeros((), dtype)).W)
    force, moment = (xp.sum(part**2, axis=1) for part in xp.split(W[: 6 - coupling.dof], 2, axis=1))
    moved = xp.zeros(len(force))
    for mass, inertia, arm in inertias:
        moved += (force * mass + moment * (xp.trace(inertia) / 3 + mass * arm @ arm)) / 2
    compliance = springs.compliance
    # A row of compliance 0 is rigid: the infinity makes its damping 0 and keeps 0 from the divisor.
    damping = 2 * xp.sqrt(moved / xp.where(compliance > 0, compliance, xp.inf))
    return Compliance(compliance, damping)


def read_switch(owner: str, enabled: bool | None) -> np.ndarray | None:
    """1 for an element that is switched on, 0 for off, None for one that cannot be switched."""
    if enabled is None:
        return None
    if is_traced(enabled):
        return jnp.asarray(enabled, precision())
    if enabled not in (True, False):
        raise ValueError(f"{owner}: enabled {enabled!r} must be True, False, or None")
    return np.asarray(float(enabled))


def read_tree(owner: str, tree: Any) -> bool:
    """Whether the coordinates of a joint may hold it."""
    return check_switch(owner, "tree", tree)


def read_max_effort(owner: str, max_effort: Any, dof: int) -> np.ndarray | None:
    """The largest effort of each coordinate in either direction, shape (dof,); None for any."""
    if max_effort is None:
        return None
    shape = () if np.ndim(max_effort) == 0 else (dof,)
    numbers = read_numbers(owner, "max_effort", max_effort, shape)
    if is_traced(numbers):
        return jnp.broadcast_to(numbers, (dof,))
    if (numbers < 0).any():
        raise ValueError(f"{owner}: max_effort {max_effort} must be >= 0; it counts both ways")
    return np.broadcast_to(numbers, (dof,))


def read_attachment(owner: str, attachment: Any, coupling: Coupling) -> tuple[float, float]:
    """The points where row forces act on child and parent, as in `JointGroup.attachment`.

    attachment: a name of `ATTACHMENTS` or a pair of shares
    """
    if isinstance(attachment, str):
        if attachment not in ATTACHMENTS:
            raise ValueError(
                f"{owner}: attachment {attachment!r} is unknown; "
                f"{near_matches(attachment, ATTACHMENTS)}"
            )
        shares = ATTACHMENTS[attachment]
    else:
        child, parent = read_numbers(owner, "attachment", attachment, (2,))
        shares = float(child), float(parent)
    if any(shares) and extra_rows(coupling):
        raise ValueError(
            f"{owner}: attachment {attachment!r} must be 'C', whose motion the velocity rows of "
            f"{type(coupling).__name__} read"
        )
    return shares
