"""What takes a mechanism from one state to the next, and what all schemes share."""

from typing import Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..assembly.constraints import joint_impulses
from ..model.kinematics import (
    JointPlaces,
    Mechanism,
    gather_coordinates,
    speeds_along,
    transmission_rows,
    with_world,
    wrenches_on_bodies,
)
from ..model.state import Control, Info, State
from ..solve.newton import Newton
from ..solve.problem import TOLERATED, RowSolution

NEWTON = Newton()


class Scheme(Protocol):
    """What takes a mechanism from one state to the next: a frozen record of its settings.

    One that has `examine(system, state, dt)` is asked by `rollout` whether they suit each other.
    One that has `at_solution()` returns there a scheme of the same derivative that takes the
    impulses of a state for those that solve its step (of one made before), or None.
    """

    def advance(
        self, mechanism: Mechanism, state: State, control: Control, dt: Array
    ) -> tuple[State, Info]:
        """One step of dt [s]; all arrays with the batch axes of the mechanism, quaternions of
        length 1.
        """
        ...


def step_info(
    mechanism: Mechanism,
    places: tuple[JointPlaces, ...],
    solution: RowSolution | None,
    twist: Array,
    new: State,
    q: Array,
    dt: Array,
) -> Info:
    """What the step did; unused parts cost nothing once compiled."""
    system = mechanism.system
    batch = new.time.shape
    zero = jnp.zeros(batch, dt.dtype)
    errors, qd = [zero], []
    twist = with_world(twist)
    for group, place in zip(system.groups, places, strict=True):
        k = group.coupling.dof
        if k < 6:
            error = jnp.abs(place.rows.error)
            if group.enabled is not None:
                error = jnp.where(group.enabled[None] > 0, error, 0.0)
            worst = jnp.max(error, axis=(0, 1))
            errors.append(jnp.broadcast_to(worst, batch))
        if k == 0:
            qd.append(place.rows.q)
            continue
        child, parent = wrenches_on_bodies(group, place, range(6 - k, 6))
        qd.append(speeds_along(group, child, parent, twist))
    for group in system.transmissions:
        if group.held:
            value, _ = transmission_rows(mechanism, group, places)
            worst = jnp.max(jnp.abs(value[np.array(group.held)]), axis=(0, 1))
            errors.append(jnp.broadcast_to(worst, batch))
    if solution is None:
        wrench = jnp.zeros((6, len(system.topology.joints), *batch), dt.dtype)
        law_force, residual, size = jnp.zeros_like(q), zero, zero
        values = jnp.zeros((0, *batch), dt.dtype)
    else:
        impulse, by_coordinate, values = joint_impulses(mechanism, places, solution.impulse)
        wrench, values = impulse / dt, values / dt
        law_force = gather_coordinates(mechanism, by_coordinate, new) / dt
        residual = jnp.broadcast_to(solution.residual, batch)
        size = jnp.broadcast_to(solution.size, batch)
    return Info(
        ok=residual <= TOLERATED[dt.dtype.itemsize] * (1 + size),
        residual=residual,
        error=jnp.max(jnp.stack(errors), axis=0),
        q=q,
        qd=gather_coordinates(mechanism, qd, new),
        wrench=wrench,
        law_force=law_force,
        transmission_force=values,
    )
