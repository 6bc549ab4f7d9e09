"""Diagnosis: what a mechanism consists of, and what of it may be wrong."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from ..algebra.compiler import QUICK
from ..model.kinematics import (
    joint_kinematics,
    prepare,
    transmission_rows,
    with_unit_quaternions,
    wrenches_on_bodies,
)
from ..model.measures import coordinates, joint_errors
from ..model.state import State
from ..model.system import WORLD, System
from ..viewing.scene import coordinate_limits

# Errors of joints and of coordinates at their limits that are taken for rounding [m or rad].
OPEN = 1e-6
# Singular values below this share of the largest are taken for 0.
SINGULAR = 1e-9
# Ratio of masses from which more iterations, or smaller steps, may be needed.
RATIO = 1e4


@dataclass(frozen=True)
class Diagnosis:
    """Tables of a mechanism and findings; it prints as both.

    tables: bodies, joints, and numbers of the whole
    freedom: degrees of freedom at this state
    redundant: rows that follow from others
    findings: what may be wrong, a sentence each
    """

    tables: str
    freedom: int
    redundant: int
    findings: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([self.tables, *(f"! {finding}" for finding in self.findings)])


def diagnosis(system: System, state: State) -> Diagnosis:
    """Bodies, joints, degrees of freedom and findings of a system at a state without batch axes.

    Findings are joints that are open, coordinates outside their limits, and masses that are far
    apart.
    """
    topology = system.topology
    rank, rows = constraint_rank(system, state)
    freedom = 6 * sum(topology.moving) - rank
    q, errors = map(np.asarray, _start(system, state))
    limits = coordinate_limits(system)[0]
    findings = [
        f"joint {name!r} is open by {error:.2g} m or rad; move its frames or the start"
        for name, error in zip(topology.joints, errors, strict=True)
        if error > OPEN
    ]
    for name in topology.joints:
        at = system.coordinate(name)
        for k in range(at.start, at.stop):
            if not limits[k, 0] - OPEN <= q[k] <= limits[k, 1] + OPEN:
                findings.append(
                    f"joint {name!r} starts at {q[k]:.4g}, outside {_bounds(limits[k])}; "
                    "start within or widen the limits"
                )
    mass = np.asarray(system.mass)[np.array(topology.moving, bool)]
    ratio = float(mass.max() / mass.min()) if len(mass) else 1.0
    if ratio > RATIO:
        findings.append(
            f"the heaviest body has {ratio:.1e} times the mass of the lightest; merge small bodies "
            "or check the units"
        )
    tables = "\n\n".join(
        [
            _bodies(system),
            _joints(system, q, limits, errors),
            f"moving bodies: {sum(topology.moving)}, joints: {len(topology.joints)}, coordinates: "
            f"{system.coordinates}, transmissions: {len(topology.transmissions)}\n"
            f"constraint rows: {rows}, of rank {rank}, degrees of freedom: {freedom}, redundant "
            f"rows: {rows - rank}\nratio of masses: {ratio:.3g}",
        ]
    )
    return Diagnosis(tables, freedom, rows - rank, tuple(findings))


def constraint_rank(system: System, state: State) -> tuple[int, int]:
    """Rank and number of the rows that hold joints and transmissions, at a state without batch."""
    blocks = []
    for ends, sides in zip(_ends(system), _wrenches(system, state), strict=True):
        for i, bodies in enumerate(ends):
            # Wrenches of shape (6, rows, elements).
            each = zip(bodies, sides, strict=True)
            blocks.append([(body, np.asarray(side)[:, :, i]) for body, side in each])
    moving = system.topology.moving
    count = sum(block[0][1].shape[1] for block in blocks)
    matrix, row = np.zeros((count, 6, len(moving))), 0
    for block in blocks:
        rows = block[0][1].shape[1]
        for body, wrench in block:
            if body >= 0 and moving[body]:
                matrix[row : row + rows, :, body] += wrench.T
        row += rows
    if not matrix.size:
        return 0, count
    values = np.linalg.svd(matrix.reshape(count, -1), compute_uv=False)
    return int((values > SINGULAR * values[0]).sum()), count


def _holding(system: System) -> tuple[list[Any], list[Any]]:
    """Groups of joints and of transmissions that have rows without laws."""
    joints = [group for group in system.groups if group.coupling.dof < 6]
    return joints, [group for group in system.transmissions if group.held]


def _ends(system: System) -> list[list[tuple[int, ...]]]:
    """For each group in `_holding` the bodies of each of its elements."""
    joints, transmissions = _holding(system)
    ends = [list(zip(group.child, group.parent, strict=True)) for group in joints]
    return ends + [list(group.bodies) for group in transmissions]


@partial(jax.jit, compiler_options=QUICK)
def _wrenches(system: System, state: State) -> list[tuple[Any, ...]]:
    """For each group in `_holding` the wrenches of its rows on the bodies of each element, about
    their centres of mass in their axes, (6, rows, elements) for each of an element's bodies.
    """
    mechanism = prepare(system, 0)
    joints = joint_kinematics(mechanism, with_unit_quaternions(state))
    held, transmissions = _holding(mechanism.system)
    by_group = dict(zip(map(id, mechanism.system.groups), joints, strict=True))
    sides = [
        wrenches_on_bodies(group, by_group[id(group)], range(6 - group.coupling.dof))
        for group in held
    ]
    for group in transmissions:
        wrenches = transmission_rows(mechanism, group, joints)[1]
        sides.append(tuple(side[:, np.array(group.held)] for side in wrenches))
    return sides


@partial(jax.jit, compiler_options=QUICK)
def _start(system: System, state: State) -> tuple[Any, Any]:
    """Coordinates and errors of the joints."""
    return coordinates(system, state), joint_errors(system, state)


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


def _finite(limits: np.ndarray) -> bool:
    return bool(np.isfinite(limits).any())
