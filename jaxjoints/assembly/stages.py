"""Rows of the stages of a step that ends on the joints' surfaces: its positions, its velocities."""

from collections.abc import Callable, Iterator
from functools import partial

import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import replace
from ..laws.law import Law
from ..model.groups import JointGroup, TransmissionGroup
from ..model.kinematics import JointPlaces, Mechanism
from ..model.state import Control
from ..model.system import System
from ..solve.forces import Bound, Hard
from ..solve.problem import RowProblem
from .constraints import SWITCHED_OFF, row_problem
from .node_rows import NodeRows


def position_problem(
    mechanism: Mechanism, places: tuple[JointPlaces, ...], dt: Array, control: Control
) -> RowProblem:
    """Rows whose speeds are means over a step of dt [s]: changes of errors and coordinates over dt.

    Hard rows ask for no error at the end, softened ones for what ERP and CFM say. Laws that push
    act for half the step, which makes springs and dampers implicit midpoint rules. The rate is what
    the rows add to those means; to speeds where they have no error.
    """
    still = jnp.zeros((6, *mechanism.inverse_mass.shape), mechanism.inverse_mass.dtype)
    return row_problem(
        mechanism, places, still, dt, control, force_time=dt / 2, changed=partial(_closing, dt)
    )


def velocity_problem(
    mechanism: Mechanism,
    places: tuple[JointPlaces, ...],
    velocity: Array,
    force_time: Array,
    control: Control,
    *,
    soft: float = SWITCHED_OFF,
) -> RowProblem:
    """Rows that keep velocities on the joints' surfaces, whatever the errors.

    velocity: twists (6, bodies + 1, *batch) in body axes without the impulses of this stage
    force_time: how long laws that push act [s]
    soft: compliance of rows that CFM softens; they give no force as it comes
    """
    one = jnp.ones_like(force_time)
    changed = partial(_following, soft)
    return row_problem(
        mechanism, places, velocity, one, control, force_time=force_time, changed=changed
    )


def check_laws(scheme: str, system: System, refused: Callable[[Law], bool], remedy: str) -> None:
    """ValueError for the first law that a scheme has no rule for."""
    for name, group in elements(system):
        for law in group.laws:
            if refused(law):
                raise ValueError(
                    f"{scheme}: {name} has the law {type(law).__name__}, for which this scheme has "
                    f"no rule; {remedy}, or leave the law out"
                )


def elements(system: System) -> Iterator[tuple[str, JointGroup | TransmissionGroup]]:
    """The first name of each group of joints or transmissions, and the group."""
    for group in system.groups:
        yield f"joint {system.topology.joints[group.joints[0]]!r}", group
    for group in system.transmissions:
        yield f"transmission {system.topology.transmissions[group.members[0]]!r}", group


def _closing(dt: Array, own: NodeRows) -> NodeRows:
    """Hard rows of a group that remove their whole error in a step."""

    def closing(force):
        whole = jnp.where(force.compliance > 0, force.bias, force.error / dt)
        return replace(force, bias=whole)

    # Errors change with time by themselves; what has no error keeps its drift.
    has_error = len(own.error) - sum(row >= 6 for row in own.rows.rows)
    return replace(
        own,
        erp=jnp.where(own.cfm > 0, own.erp, 1.0),
        drift=own.drift.at[:has_error].set(0.0),
        forces=[(law, closing(f) if law.kind is Hard else f) for law, f in own.forces],
    )


def _following(soft: float, own: NodeRows) -> NodeRows:
    """Rows of a group that only follow the surfaces; hard stops let nothing in."""

    def following(law, force):
        if law.kind is Hard:
            return replace(
                force,
                bias=jnp.zeros_like(force.bias),
                compliance=jnp.where(force.compliance > 0, soft, 0.0),
            )
        if law.kind is Bound and law.holds:
            return replace(force, bias=jnp.zeros_like(force.bias))
        return force

    return replace(
        own,
        erp=jnp.zeros_like(own.erp),
        cfm=jnp.where(own.cfm > 0, soft, 0.0),
        forces=[(law, following(law, force)) for law, force in own.forces],
    )
