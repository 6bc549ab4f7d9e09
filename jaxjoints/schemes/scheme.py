"""What takes a mechanism from one state to the next, and what all schemes share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import combinations

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..assembly.impulses import joint_impulses
from ..laws.law import Law
from ..model.articulation import NO_TREE, Articulation, articulation
from ..model.groups import ConstraintGroup, ContactGroup, JointGroup, TransmissionGroup
from ..model.kinematics import (
    JointKinematics,
    Kinematics,
    Mechanism,
    transmission_rows,
)
from ..model.state import Cause, Control, Info, State
from ..model.system import System
from ..solve.newton import Newton
from ..solve.problem import TOLERATED, RowProblem, RowSolution, Solver

NEWTON = Newton()
# Error above which a rigid joint is far open [m or rad].
OPEN = 0.5
# Angle between the rows of two coordinates below which a joint is singular [rad].
PARALLEL = 1e-3


class Scheme(ABC):
    """What takes a mechanism from one state to the next: base of all schemes, frozen records.

    >>> from jaxjoints import SemiImplicitEuler, SystemBuilder, step, struct
    >>> @struct
    ... class Halves(Scheme):
    ...     def advance(self, mechanism, state, control, dt):
    ...         state, _ = SemiImplicitEuler().advance(mechanism, state, control, dt / 2)
    ...         return SemiImplicitEuler().advance(mechanism, state, control, dt / 2)
    >>> world = SystemBuilder(gravity=(0.0, 0.0, -10.0))
    >>> _ = world.body("ball", mass=1.0, inertia=(0.1, 0.1, 0.1))
    >>> state, _ = step(*world.build(), dt=1.0, scheme=Halves())
    >>> print(state.position[2, 0])  # speeds of 5 and 10 m/s for 0.5 s each
    -7.5
    """

    @abstractmethod
    def advance(
        self, mechanism: Mechanism, state: State, control: Control, dt: Array
    ) -> tuple[State, Info]:
        """The state after one step of dt [s], and what the step did.

        All arrays have the batch axes of the mechanism, quaternions have length 1. `State.q` may be
        that of any time during the step. `Info` needs no more than its fields without a default.
        """

    def at_solution(self, system: System) -> "Scheme | None":
        """A scheme with the same derivative that takes `State.row_forces` for the solution.

        Differentiation in reverse computes a step again when its impulses are known. None, the
        default, where the scheme cannot make use of that.
        """
        return None

    def ends_on_surfaces(self, system: System) -> bool:
        """Whether the velocities after a step lie on the surfaces of all joints, transmissions and
        constraints where the bodies are then, so that their speeds can be read.
        """
        return False

    def examine(self, system: System, state: State, dt: Array) -> None:
        """Warn or raise where the scheme does not suit the system; `rollout` asks before it starts.

        Called with concrete numbers only.
        """
        return


def tree_of(solver: Solver, system: System) -> Articulation:
    """The tree joints that a solver leaves to the bodies."""
    return articulation(system) if solver.by_bodies else NO_TREE


def step_info(
    mechanism: Mechanism,
    kinematics: Kinematics,
    problem: RowProblem,
    solution: RowSolution,
    new: State,
    dt: Array,
) -> Info:
    """What the step did; unused parts cost nothing once compiled.

    kinematics: where the impulses acted
    """
    system, batch = mechanism.system, new.time.shape
    errors, far = [jnp.zeros(batch, dt.dtype)], [jnp.zeros(batch, dt.dtype)]
    for group, joint in zip(system.groups, kinematics.joints, strict=True):
        if group.coupling.dof < 6:
            error = _of_enabled(group, jnp.abs(joint.rows.error))
            errors.append(jnp.broadcast_to(jnp.max(error, axis=(0, 1)), batch))
            far += errors[-1:] if group.rigid else []
    for group in system.transmissions:
        if group.held:
            value, _ = transmission_rows(mechanism, group, kinematics)
            error = _of_enabled(group, jnp.abs(value[np.array(group.held)]))
            errors.append(jnp.broadcast_to(jnp.max(error, axis=(0, 1)), batch))
            far += errors[-1:] if group.rigid else []
    for group, rows in zip(system.constraints, kinematics.constraints, strict=True):
        error = _of_enabled(group, jnp.abs(rows.error))
        errors.append(jnp.broadcast_to(jnp.max(error, axis=(0, 1)), batch))
        far += errors[-1:] if group.rigid else []
    far = jnp.max(jnp.stack(far), axis=0) > OPEN
    parallel = jnp.zeros(batch, bool)
    for group, joint in zip(system.groups, kinematics.joints, strict=True):
        if group.coupling.dof > 1:
            parallel = parallel | jnp.any(singular(group, joint), axis=0)
    impulses = joint_impulses(mechanism, kinematics, problem, solution, new)
    residual, size = (jnp.broadcast_to(x, batch) for x in (solution.residual, solution.size))
    excess, iterations = solution.excess, solution.iterations
    return Info(
        ok=residual <= TOLERATED[dt.dtype.itemsize] * (1 + size),
        residual=residual,
        error=jnp.max(jnp.stack(errors), axis=0),
        wrench=impulses.wrench / dt,
        law_force=impulses.law / dt,
        limit_force=impulses.limit / dt,
        transmission_force=impulses.transmission / dt,
        constraint_force=impulses.constraint / dt,
        contact_force=impulses.contact / dt,
        friction_excess=jnp.broadcast_to(0.0 * residual if excess is None else excess, batch),
        iterations=jnp.broadcast_to(1 if iterations is None else iterations, batch).astype("int32"),
        cause=jnp.where(far, Cause.OPEN, jnp.where(parallel, Cause.SINGULAR, Cause.NONE)),
    )


def elements(
    system: System,
) -> Iterator[tuple[str, JointGroup | TransmissionGroup | ConstraintGroup | ContactGroup]]:
    """The first name of each group of joints, transmissions, constraints or contacts, and the
    group.
    """
    for group in system.groups:
        yield f"joint {system.topology.joints[group.joints[0]]!r}", group
    for group in system.transmissions:
        yield f"transmission {system.topology.transmissions[group.members[0]]!r}", group
    for group in system.constraints:
        yield f"constraint {system.topology.constraints[group.members[0]]!r}", group
    for group in system.contacts:
        yield f"contact {system.topology.contacts[group.members[0]]!r}", group


def check_laws(scheme: str, system: System, refused: Callable[[Law], bool], remedy: str) -> None:
    """ValueError for the first law that a scheme has no rule for."""
    for name, group in elements(system):
        for law in group.laws:
            if refused(law):
                raise ValueError(
                    f"{scheme}: {name} has the law {type(law).__name__}, for which this scheme has "
                    f"no rule; {remedy}, or leave the law out"
                )


def singular(group: JointGroup, joint: JointKinematics) -> Array:
    """Whether rows of two coordinates of a joint are parallel, shape (n, *batch)."""
    N = jnp.unstack(joint.rows.W[6 - group.coupling.dof :])
    lengths = [jnp.sum(row * row, axis=0) for row in N]
    found = jnp.zeros((), bool)
    for i, j in combinations(range(len(N)), 2):
        along, size = jnp.sum(N[i] * N[j], axis=0), lengths[i] * lengths[j]
        across = lengths[i] - along * along / lengths[j]
        found = found | (across < PARALLEL**2 * lengths[i]) & (size > 0)
    return found


def _of_enabled(group: JointGroup | TransmissionGroup | ConstraintGroup, error: Array) -> Array:
    """Errors (rows, n, *batch) with 0 for elements that are not enabled."""
    return error if group.enabled is None else jnp.where(group.enabled[None] > 0, error, 0.0)
