"""Diagnosis: parts of a mechanism, its mobility, and what may be wrong with it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..algebra.calls import public
from ..algebra.compiler import QUICK
from ..couplings.contact import DIRECTIONS
from ..model.groups import ConstraintGroup, ContactGroup, JointGroup, TransmissionGroup
from ..model.kinematics import (
    coordinate_wrenches,
    direction_wrenches,
    prepare,
    system_kinematics,
    transmission_rows,
    with_unit_quaternions,
    wrenches_on_bodies,
)
from ..model.measures import (
    coordinate_limits,
    coordinates,
    element_errors,
    gap_limits,
    gaps,
    value_limits,
)
from ..model.state import State
from ..model.system import WORLD, System
from ..schemes.scheme import singular
from ..simulate.door import check_time_step, entered

# Errors of joints and of coordinates at their limits that are taken for rounding [m or rad].
OPEN = 1e-6
# Singular values below this share of the largest are taken for 0, by the bytes of a number; those
# below the second for nearly 0.
SINGULAR = {4: 1e-5, 8: 1e-9}
NEARLY = 1e-3
# Ratio of masses from which more iterations, or smaller steps, may be needed.
RATIO = 1e4
# Angle of an oscillation that passes in one step, above which the step does not follow it [rad].
FOLLOWED = 1.0

AnyGroup = JointGroup | TransmissionGroup | ConstraintGroup | ContactGroup


@dataclass(frozen=True)
class Diagnosis:
    """Properties of a mechanism at one state; `print` shows tables and findings.

    tables: bodies, joints, and numbers of the whole mechanism
    mobility: degrees of freedom at this state: six for each moving body less the rank of all rows
        that hold positions, of joints, transmissions and constraints
    grubler: degrees of freedom by the formula of Grübler and Kutzbach: six for each moving body
        less the number of these rows
    rows, rank: number of these rows, and their rank
    redundant: by name, for each element with redundant rows, the number of its rows that follow
        from rows of other elements: its reactions along them are not determined. Joints of one loop
        may share a redundancy, so the sum may exceed rows - rank
    conditioning: smallest singular value of the independent rows, as a share of the largest. Near 0
        the mechanism is near a position where it gains a degree of freedom
    open: error of each open joint, transmission or constraint [m or rad], by name
    singular: names of joints whose coordinates are singular here, such as a `Gimbal` at its lock
    mass_ratio: mass of the heaviest moving body over that of the lightest
    frequencies: by (name, index), for each coordinate or value of a transmission with a spring,
        servo or soft stop, the largest √(k/m) [rad/s], m the inertia that it moves within the
        mechanism
    findings: what may be wrong, a sentence each

    >>> from jaxjoints import Slider, SpringDamper, SystemBuilder
    >>> world = SystemBuilder()
    >>> cart = world.body("cart", mass=2.0, inertia=(0.1, 0.1, 0.1))
    >>> spring = SpringDamper(stiffness=200.0)
    >>> _ = world.joint("rail", Slider((1.0, 0.0, 0.0)), child=cart, laws=spring)
    >>> found = diagnose(*world.build())
    >>> print(found.mobility, round(found.frequencies["rail", 0], 3))  # √(k/m)
    1 10.0
    """

    tables: str
    mobility: int
    grubler: int
    rows: int
    rank: int
    redundant: Mapping[str, int]
    conditioning: float
    open: Mapping[str, float]
    singular: tuple[str, ...]
    mass_ratio: float
    frequencies: Mapping[tuple[str, int], float]
    findings: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([self.tables, *(f"! {finding}" for finding in self.findings)])


@public
def diagnose(system: System, state: State, *, dt: float = 1e-3) -> Diagnosis:
    """Mobility of a mechanism at a state, its redundant rows, and what may be wrong.

    Findings are open joints, coordinates and values of transmissions outside their limits, singular
    coordinates, springs whose oscillation the time step does not resolve, masses that are far
    apart, and nearby positions where the mobility changes. Joints, transmissions and constraints
    that are switched off do not count.

    state: without batch axes
    dt: time step [s] for the finding on springs

    Raises: ValueError for a state or system with batch axes

    >>> from jaxjoints import Hinge, SystemBuilder
    >>> world = SystemBuilder()
    >>> door = world.body("door", mass=20.0, inertia=(1.0, 1.0, 2.0))
    >>> for name, height in (("upper", 0.5), ("lower", -0.5)):
    ...     frame = (-0.4, 0.0, height)
    ...     hinge = world.joint(name, Hinge(), child=door, frame_C=frame, frame_D=frame)
    >>> found = diagnose(*world.build())
    >>> print(found.mobility, found.grubler, found.redundant)
    1 -4 {'upper': 5, 'lower': 5}
    """
    check_time_step(dt)
    system, state, _ = entered("diagnose", system, state)
    wide = [
        x for x, r in zip(jax.tree.leaves(system), system.topology.ranks, strict=True) if x.ndim > r
    ]
    if state.time.ndim or wide:
        raise ValueError(
            "diagnose: state or system has batch axes; take one environment, such as "
            "jax.tree.map(lambda x: x[..., 0], state)"
        )
    topology, moving = system.topology, np.array(system.topology.moving, bool)
    measured = jax.tree.map(np.asarray, _measured(system, state))
    blocks = _blocks(system, measured)
    share = SINGULAR[system.mass.dtype.itemsize]
    G = np.concatenate([np.zeros((0, 6 * len(moving))), *blocks.values()])
    left, values, right = np.linalg.svd(G)
    rank = int((values > share * values[:1].max(initial=0.0)).sum())
    # What is left of the rows' space of the left: combinations of rows that vanish.
    vanishing, redundant, first = left[:, rank:], {}, 0
    for name, block in blocks.items():
        part = vanishing[first : first + len(block)]
        first += len(block)
        count = int((np.linalg.svd(part, compute_uv=False) > 1e-6).sum()) if part.size else 0
        if count:
            redundant[name] = count
    conditioning = float(values[rank - 1] / values[0]) if rank else 1.0
    names = [f"joint {name!r}" for name in topology.joints]
    names += [f"transmission {name!r}" for name in topology.transmissions]
    names += [f"constraint {name!r}" for name in topology.constraints]
    gaps = {
        name: float(error)
        for name, error in zip(names, measured["errors"], strict=True)
        if not error <= OPEN
    }
    mass = np.asarray(system.mass)[moving]
    ratio = float(mass.max() / mass.min()) if len(mass) else 1.0
    frequencies = _frequencies(system, measured, right[rank:].T)
    locked = tuple(
        name for name, one in zip(topology.joints, measured["singular"], strict=True) if one
    )
    q, limits = measured["q"], coordinate_limits(system)[0]
    mobility = 6 * int(moving.sum()) - rank
    held = int((limits[:, 0] == limits[:, 1]).sum())
    findings = [
        *(
            f"{name} is open by {error:.2g} m or rad; take `assemble`, or move its frames or the "
            "start"
            for name, error in gaps.items()
        ),
        *_outside("joint", system.topology.joints, system.coordinate, q, limits),
        *_outside(
            *("transmission", system.topology.transmissions, system.value),
            *(measured["values"], value_limits(system)[0]),
        ),
        *_outside(
            *("contact", topology.contacts, lambda name: _place(system.contact_index(name))),
            *(measured["gaps"], gap_limits(system)[0]),
        ),
        *(
            f"joint {name!r}: two of its coordinates turn it about the same axis here; start "
            "elsewhere, or take a joint with other axes"
            for name in locked
        ),
        *(
            f"{name}: coordinate {k} oscillates at {w:.3g} rad/s, {w * dt:.2g} rad in a "
            f"step of {dt:g} s, which damps it out; take steps of {FOLLOWED / w:.1g} s to follow it"
            for (name, k), w in frequencies.items()
            if w * dt > FOLLOWED
        ),
    ]
    if ratio > RATIO:
        findings.append(
            f"the heaviest body has {ratio:.1e} times the mass of the lightest; merge small bodies "
            "or check the units"
        )
    if conditioning < NEARLY:
        findings.append(
            f"rows are nearly dependent: their smallest singular value is {conditioning:.1e} of "
            "the largest; the mechanism is near a dead point, or lengths are far from 1 m"
        )
    tables = "\n\n".join(
        [
            _bodies(system),
            _joints(system, q, limits, measured["errors"]),
            *([_contacts(system, measured["gaps"])] if topology.contacts else []),
            f"moving bodies: {moving.sum()}, joints: {len(topology.joints)}, coordinates: "
            f"{system.coordinates}{f' ({held} locked)' if held else ''}, transmissions: "
            f"{len(topology.transmissions)}, constraints: {len(topology.constraints)}, contacts: "
            f"{len(topology.contacts)}\n"
            f"constraint rows: {len(G)}, of rank {rank}, degrees of freedom: {mobility}, redundant "
            f"rows: {len(G) - rank}\n"
            f"degrees of freedom by count (Grübler): {6 * moving.sum() - len(G)}"
            + "".join(f"\nredundant rows of {name}: {n}" for name, n in redundant.items())
            + f"\nratio of masses: {ratio:.3g}",
        ]
    )
    return Diagnosis(
        tables=tables,
        mobility=mobility,
        grubler=6 * int(moving.sum()) - len(G),
        rows=len(G),
        rank=rank,
        redundant={_plain(name): n for name, n in redundant.items()},
        conditioning=conditioning,
        open={_plain(name): error for name, error in gaps.items()},
        singular=locked,
        mass_ratio=ratio,
        frequencies={(_plain(name), k): w for (name, k), w in frequencies.items()},
        findings=tuple(findings),
    )


@partial(jax.jit, compiler_options=QUICK)
def _measured(system: System, state: State) -> dict[str, Any]:
    """Coordinates, values of transmissions, errors, joints that are singular, and wrenches of
    groups on their bodies about the centres of mass in body axes, (6, rows, elements) for each of
    an element's bodies.

    wrenches: of what is held, groups of joints, then of transmissions, then of constraints
    along: of the coordinates of each group of joints, then of the values of each of transmissions,
        then of the directions of each of contacts
    """
    mechanism = prepare(system, 0)
    kinematics = system_kinematics(mechanism, with_unit_quaternions(state))
    groups, transmissions = mechanism.system.groups, mechanism.system.transmissions
    wrenches = [
        wrenches_on_bodies(group, joint, held)
        for group, joint in zip(groups, kinematics.joints, strict=True)
        if (held := _held_rows(group))
    ]
    values = jnp.zeros(system.values, system.mass.dtype)
    along = [
        coordinate_wrenches(group, joint) if group.coupling.dof else None
        for group, joint in zip(groups, kinematics.joints, strict=True)
    ]
    for group in transmissions:
        value, sides = transmission_rows(mechanism, group, kinematics)
        rows = np.arange(len(value))[:, None]
        values = values.at[np.array(group.start)[None] + rows].set(value)
        along.append(sides)
        if group.held:
            wrenches.append(tuple(side[:, np.array(group.held)] for side in sides))
    pairs = zip(mechanism.system.contacts, kinematics.contacts, strict=True)
    along += [direction_wrenches(*pair, range(DIRECTIONS)) for pair in pairs]
    locked = jnp.zeros(len(system.topology.joints), bool)
    for group, joint in zip(groups, kinematics.joints, strict=True):
        if group.coupling.dof > 1:
            locked = locked.at[np.array(group.joints)].set(singular(group, joint))
    errors = element_errors(mechanism, state)
    for group, rows in zip(mechanism.system.constraints, kinematics.constraints, strict=True):
        if held := _held_rows(group):
            wrenches.append(tuple(side[:, : len(held)] for side in rows.H))
    elements = groups, transmissions, mechanism.system.constraints
    firsts = np.cumsum([0, len(system.topology.joints), len(system.topology.transmissions)])
    for n, of_kind in zip(firsts, elements, strict=True):
        for group in of_kind:
            if group.enabled is not None:
                on = (group.enabled > 0).astype(errors.dtype)
                errors = errors.at[n + np.array(group.members)].multiply(on)
    return {
        "q": coordinates(system, state),
        "values": values,
        "gaps": gaps(system, state),
        "errors": errors,
        "singular": locked,
        "wrenches": wrenches,
        "along": along,
    }


def _held_rows(group: AnyGroup) -> tuple[int, ...]:
    """Rows of an element that hold positions."""
    if isinstance(group, ContactGroup):
        return ()
    if isinstance(group, TransmissionGroup):
        return group.held
    if isinstance(group, ConstraintGroup):
        return tuple(range(group.constraint.position_rows))
    return tuple(range(6 - group.coupling.dof))


def _blocks(system: System, measured: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Rows (rows, 6 bodies) of each element that holds something, by what it is."""
    groups = [group for group in system.all_groups if _held_rows(group)]
    blocks = {}
    for group, sides in zip(groups, measured["wrenches"], strict=True):
        for i in range(len(group.members)):
            if group.enabled is not None and not np.asarray(group.enabled)[i] > 0:
                continue
            blocks[_named(system, group, i)] = _rows(system, _ends(group, i), sides, i)
    return blocks


def _named(system: System, group: AnyGroup, i: int) -> str:
    """What element i of a group is, and its name."""
    topology = system.topology
    names = {
        "joint": topology.joints,
        "transmission": topology.transmissions,
        "constraint": topology.constraints,
        "contact": topology.contacts,
    }
    return f"{group.element} {names[group.element][group.members[i]]!r}"


def _plain(label: str) -> str:
    """The name in what `_named` says."""
    return label.split("'", 1)[1][:-1]


def _place(i: int) -> slice:
    return slice(i, i + 1)


def _ends(group: AnyGroup, i: int) -> tuple[int, ...]:
    """The bodies that element i of a group acts on."""
    if isinstance(group, JointGroup | ContactGroup):
        return group.child[i], group.parent[i]
    return group.bodies[i]


def _rows(system: System, bodies: Any, sides: Any, i: int) -> np.ndarray:
    """Rows (rows, 6 bodies) of element i of a group, from its wrenches on bodies."""
    moving = system.topology.moving
    matrix = np.zeros((sides[0].shape[1], len(moving), 6))
    for body, side in zip(bodies, sides, strict=True):
        if body >= 0 and moving[body]:
            matrix[:, body] += side[:, :, i].T
    return matrix.reshape(len(matrix), -1)


def _frequencies(
    system: System, measured: Mapping[str, Any], free: np.ndarray
) -> dict[tuple[str, int], float]:
    """√(k/m) of each coordinate or value with a stiffness k, by what has it and its index.

    free: motions that no row resists, (6 bodies, mobility)
    """
    moving = np.array(system.topology.moving, bool)
    inertia = np.zeros((len(moving), 6, 6))
    inertia[:, :3, :3] = np.asarray(system.mass)[:, None, None] * np.eye(3)
    inertia[:, 3:, 3:] = np.moveaxis(np.asarray(system.inertia), 2, 0)
    free = free.reshape(len(moving), 6, -1)[moving]
    mass = np.einsum("bik,bij,bjl->kl", free, inertia[moving], free)
    found = {}
    groups = (*system.groups, *system.transmissions, *system.contacts)
    for group, sides in zip(groups, measured["along"], strict=True):
        for law in group.laws:
            k = getattr(law, "stiffness", None)
            if k is None:
                continue
            for i in range(len(group.members)):
                row = _rows(system, _ends(group, i), sides, i)[law.coordinate]
                speeds = row.reshape(len(moving), 6)[moving].ravel() @ free.reshape(-1, len(mass))
                # The speed that a unit impulse along the coordinate gives it.
                mobility = speeds @ np.linalg.lstsq(mass, speeds, rcond=None)[0]
                key = _named(system, group, i), law.coordinate
                frequency = float(np.sqrt(max(float(np.asarray(k)[i]) * mobility, 0.0)))
                found[key] = max(frequency, found.get(key, 0.0))
    return found


def _outside(
    element: str,
    names: Sequence[str],
    place: Callable[[str], slice],
    q: np.ndarray,
    limits: np.ndarray,
) -> list[str]:
    """A sentence for each coordinate, or value of a transmission, outside its limits.

    place: of an element's numbers by its name, in q and in the limits
    """
    found = []
    for name in names:
        at = place(name)
        for k in range(at.start, at.stop):
            lower, upper = limits[k]
            if not lower - OPEN <= q[k] <= upper + OPEN:
                start = f"{element} {name!r} starts at {q[k]:.4g}"
                found.append(
                    f"{start} and is {_bounds(limits[k])}; start there or change the lock"
                    if lower == upper
                    else f"{start}, outside {_bounds(limits[k])}; start within or widen the limits"
                )
    return found


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Columns as wide as their widest entry; those with numbers stand to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [head, *rows]
    )


def _short(name: str) -> str:
    name = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    return name if len(name) <= 40 else name[:39] + "…"


def _bounds(limits: np.ndarray) -> str:
    if limits[0] == limits[1]:
        return f"locked at {limits[0]:.4g}"
    return f"[{limits[0]:.4g}, {limits[1]:.4g}]"


def _bodies(system: System) -> str:
    rows = []
    inertia = np.asarray(system.inertia)
    for i, name in enumerate(system.topology.bodies):
        moves = system.topology.moving[i]
        moments = np.linalg.eigvalsh(inertia[:, :, i]) if moves else ()
        rows.append(
            (
                _short(name),
                f"{float(system.mass[i]):.4g}" if moves else "prescribed",
                " ".join(f"{moment:.3g}" for moment in moments),
            )
        )
    return _table(("body", "mass [kg]", "principal moments [kg m²]"), rows)


def _joints(system: System, q: np.ndarray, limits: np.ndarray, errors: np.ndarray) -> str:
    names, rows = (*system.topology.bodies, WORLD), []
    members = {
        j: (g, i) for g, group in enumerate(system.groups) for i, j in enumerate(group.joints)
    }
    for j, name in enumerate(system.topology.joints):
        g, i = members[j]
        group, at = system.groups[g], system.coordinate(name)
        bounded = [_bounds(limits[k]) for k in range(at.start, at.stop) if _finite(limits[k])]
        rows.append(
            (
                _short(name),
                type(group.coupling).__name__,
                _short(names[group.child[i]]),
                _short(names[group.parent[i]]),
                " ".join(f"{x:.4g}" for x in np.round(q[at], 12) + 0.0)
                if at.stop - at.start < 6
                else "",
                " ".join(bounded),
                f"{errors[j]:.0e}",
            )
        )
    head = ("joint", "type", "child", "parent", "start", "limits", "error")
    return _table(head, rows)


def _contacts(system: System, gaps: np.ndarray) -> str:
    names, rows = (*system.topology.bodies, WORLD), []
    for name, gap in zip(system.topology.contacts, gaps, strict=True):
        one = system.contact(name)
        ends = (_short(names[one.child[0]]), _short(names[one.parent[0]]))
        rows.append((_short(name), type(one.geometry).__name__, *ends, f"{gap:.4g}"))
    return _table(("contact", "type", "child", "parent", "gap [m]"), rows)


def _finite(limits: np.ndarray) -> bool:
    return bool(np.isfinite(limits).any())
