"""What takes a mechanism from one state to the next, and what all schemes share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..assembly.impulses import joint_impulses
from ..laws.law import Law
from ..model.groups import JointGroup, TransmissionGroup
from ..model.kinematics import (
    JointKinematics,
    Mechanism,
    coordinate_speeds,
    gather_coordinates,
    transmission_rows,
    with_world,
)
from ..model.state import Control, Info, State
from ..model.system import System
from ..solve.newton import Newton
from ..solve.problem import TOLERATED, RowProblem, RowSolution

NEWTON = Newton()


class Scheme(ABC):
    """What takes a mechanism from one state to the next: base of all schemes, frozen records."""

    @abstractmethod
    def advance(
        self, mechanism: Mechanism, state: State, control: Control, dt: Array
    ) -> tuple[State, Info]:
        """The state after one step of dt [s], and what the step did.

        All arrays have the batch axes of the mechanism, quaternions have length 1.
        """

    def at_solution(self) -> "Scheme | None":
        """A scheme with the same derivative that takes `State.warm_start` for the solution.

        Differentiation in reverse computes a step again when its impulses are known. None, the
        default, where the scheme cannot make use of that.
        """
        return None

    def examine(self, system: System, state: State, dt: Array) -> None:
        """Warn or raise where the scheme does not suit the system; `rollout` asks before it starts.

        Called with concrete numbers only.
        """
        return


def step_info(
    mechanism: Mechanism,
    joints: tuple[JointKinematics, ...],
    problem: RowProblem,
    solution: RowSolution,
    twist: Array,
    new: State,
    q: Array,
    dt: Array,
) -> Info:
    """What the step did; unused parts cost nothing once compiled.

    joints: kinematics where the impulses acted; twist: of the bodies at the end, in body axes there
    """
    system, batch, twist = mechanism.system, new.time.shape, with_world(twist)
    errors, qd = [jnp.zeros(batch, dt.dtype)], []
    for group, joint in zip(system.groups, joints, strict=True):
        if group.coupling.dof < 6:
            error = _of_enabled(group, jnp.abs(joint.rows.error))
            errors.append(jnp.broadcast_to(jnp.max(error, axis=(0, 1)), batch))
        qd.append(coordinate_speeds(group, joint, twist))
    for group in system.transmissions:
        if group.held:
            value, _ = transmission_rows(mechanism, group, joints)
            error = _of_enabled(group, jnp.abs(value[np.array(group.held)]))
            errors.append(jnp.broadcast_to(jnp.max(error, axis=(0, 1)), batch))
    impulses = joint_impulses(mechanism, joints, problem, solution, new)
    residual, size = (jnp.broadcast_to(x, batch) for x in (solution.residual, solution.size))
    return Info(
        ok=residual <= TOLERATED[dt.dtype.itemsize] * (1 + size),
        residual=residual,
        error=jnp.max(jnp.stack(errors), axis=0),
        q=q,
        qd=gather_coordinates(mechanism, qd, new),
        wrench=impulses.wrench / dt,
        law_force=impulses.law / dt,
        limit_force=impulses.limit / dt,
        transmission_force=impulses.transmission / dt,
    )


def _of_enabled(group: JointGroup | TransmissionGroup, error: Array) -> Array:
    """Errors (rows, n, *batch) with 0 for joints or transmissions that are not enabled."""
    return error if group.enabled is None else jnp.where(group.enabled[None] > 0, error, 0.0)


def elements(system: System) -> Iterator[tuple[str, JointGroup | TransmissionGroup]]:
    """The first name of each group of joints or transmissions, and the group."""
    for group in system.groups:
        yield f"joint {system.topology.joints[group.joints[0]]!r}", group
    for group in system.transmissions:
        yield f"transmission {system.topology.transmissions[group.members[0]]!r}", group


def check_laws(scheme: str, system: System, refused: Callable[[Law], bool], remedy: str) -> None:
    """ValueError for the first law that a scheme has no rule for."""
    for name, group in elements(system):
        for law in group.laws:
            if refused(law):
                raise ValueError(
                    f"{scheme}: {name} has the law {type(law).__name__}, for which this scheme has "
                    f"no rule; {remedy}, or leave the law out"
                )
