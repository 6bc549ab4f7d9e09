"""What lies on the surfaces of the joints: projected positions, and speeds of coordinates."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient

from ..algebra.calls import public, warn
from ..algebra.compiler import is_traced
from ..algebra.pytree import replace
from ..algebra.spatial import quat_rotate
from ..build.start import START_ERROR
from ..couplings.contact import DIRECTIONS
from ..model.batch import batch_shape, read_out
from ..model.kinematics import (
    Kinematics,
    Mechanism,
    body_twists,
    direction_speeds,
    gather_coordinates,
    joint_coordinates,
    prepare,
    quaternion_components,
    system_kinematics,
    with_unit_quaternions,
    with_world,
)
from ..model.kinematics import coordinate_speeds as speeds_of_group
from ..model.measures import element_errors
from ..model.state import Cause, Info, State
from ..model.system import System
from ..schemes.projection import projected, surface_twists
from ..schemes.scheme import Scheme
from .door import entered, full, read_count
from .isolation import chosen, without

# What a projection may leave open untold [m or rad], and as a share of what was open.
OPEN, CLOSING = 1e-3, 0.1


@public
def project(
    system: System, state: State, *, iterations: int = 3, velocities: bool = False
) -> State:
    """State with its positions moved onto the joints' surfaces, by the least M-weighted motion.

    iterations: Newton steps; each squares the error
    velocities: whether velocities too move onto the surfaces, by the least M-weighted change

    Warns: outside of `jit`, by name, of a joint, transmission or constraint whose remaining error
        exceeds 1e-3 m or rad, or a tenth of its error before.
    """
    iterations = read_count("project", "iterations", iterations)
    system, state, _ = entered("project", system, state)
    state, *errors = _projected(system, state, iterations=iterations, velocities=velocities)
    if not is_traced(errors):
        _warn_of_gaps(system, *errors)
    return state


@public
def coordinate_speeds(system: System, state: State) -> Array:
    """Speeds q̇ [m/s or rad/s] of all coordinates on the joints' surfaces, (coordinates, *batch).

    Velocities of joints held by rows lie on the surfaces where the last step began. So q̇ is N v_CD
    after the least M-weighted change that moves the velocities onto the surfaces where the bodies
    are now. The next step makes this change anyway. A state made from these coordinates and speeds
    therefore moves on as this state does.
    """
    return _all_speeds(*entered("coordinate_speeds", system, state)[:2])


@public
def contact_speeds(system: System, state: State) -> Array:
    """Speeds of the contacts along their directions (see `ContactGeometry`): the rate of the gap,
    slip along both tangents [m/s], rolling about them and spin [rad/s], shape (6, contacts,
    *batch). As in `coordinate_speeds`, of velocities on the joints' surfaces.
    """
    return _all_contact_speeds(*entered("contact_speeds", system, state)[:2])


@read_out
def _projected(
    system: System, state: State, *, iterations: int, velocities: bool
) -> tuple[State, Array, Array]:
    """The projected state, and the errors before and after, as `element_errors`."""
    mechanism, state = ready(system, state)
    before = element_errors(mechanism, state)
    for _ in range(iterations):
        state = projected(mechanism, state)
    after = element_errors(mechanism, state)
    if velocities:
        twist = surface_twists(mechanism, system_kinematics(mechanism, state), state)[:, :-1]
        q = quaternion_components(state)
        v, omega = quat_rotate(q, twist[:3]), quat_rotate(q, twist[3:])
        state = replace(state, velocity=v, omega=omega)
    return state, before, after


@read_out
def _all_speeds(system: System, state: State) -> Array:
    mechanism, state = ready(system, state)
    return surface_speeds(mechanism, system_kinematics(mechanism, state), state)


@read_out
def _all_contact_speeds(system: System, state: State) -> Array:
    mechanism, state = ready(system, state)
    kinematics = system_kinematics(mechanism, state)
    twist = surface_twists(mechanism, kinematics, state)
    sizes = DIRECTIONS, len(system.topology.contacts), *state.time.shape
    found = jnp.zeros(sizes, state.q.dtype)
    for group, contact in zip(mechanism.system.contacts, kinematics.contacts, strict=True):
        found = found.at[:, np.array(group.members)].set(direction_speeds(group, contact, twist))
    return found


def _warn_of_gaps(system: System, before: Array, after: Array) -> None:
    """Warn of what a projection left open; errors as those of `element_errors`."""
    names = [f"joint {name!r}" for name in system.topology.joints]
    names += [f"transmission {name!r}" for name in system.topology.transmissions]
    names += [f"constraint {name!r}" for name in system.topology.constraints]
    if not names:
        return
    before, after = (
        np.asarray(x).reshape(len(names), -1).max(axis=1, initial=0.0) for x in (before, after)
    )
    for name, first, error in zip(names, before, after, strict=True):
        if not error <= max(START_ERROR, min(OPEN, CLOSING * first)):
            warn(
                f"project: {name} is open by {error:.3g} m or rad; take more iterations, or start "
                "from a pose nearer to where it closes"
            )


def measured(
    scheme: Scheme,
    mechanism: Mechanism,
    safe: State,
    carry: tuple[State, Array],
    info: Info | None,
) -> tuple[State, Info | None]:
    """State and `Info` after a step, with the coordinates and speeds at its end.

    An environment whose state is bad from the start keeps its `State.q`.
    """
    state, cause = carry
    still, broken = cause != Cause.NONE, cause == Cause.STATE
    at = with_unit_quaternions(chosen(broken, safe, state))
    kinematics = system_kinematics(mechanism, at)
    q = joint_coordinates(mechanism, kinematics, at)
    known = jnp.where(broken, state.q, q)
    state = replace(state, q=jnp.where(still, stop_gradient(known), known))
    if info is None:
        return state, None
    on = scheme.ends_on_surfaces(mechanism.system)
    speeds = current_speeds if on else surface_speeds
    read = without(still, {"q": q, "qd": speeds(mechanism, kinematics, at)})
    return state, replace(info, **read)


def surface_speeds(mechanism: Mechanism, kinematics: Kinematics, state: State) -> Array:
    """See `coordinate_speeds`; kinematics: of the state."""
    twist = surface_twists(mechanism, kinematics, state)
    return _along_coordinates(mechanism, kinematics, state, twist)


def current_speeds(mechanism: Mechanism, kinematics: Kinematics, state: State) -> Array:
    """N v_CD of all coordinates while bodies move as they do; kinematics: of the state."""
    twist = with_world(body_twists(state))
    return _along_coordinates(mechanism, kinematics, state, twist)


def _along_coordinates(
    mechanism: Mechanism, kinematics: Kinematics, state: State, twist: Array
) -> Array:
    groups = zip(mechanism.system.groups, kinematics.joints, strict=True)
    parts = [speeds_of_group(group, joint, twist) for group, joint in groups]
    return gather_coordinates(mechanism, parts, state)


def ready(system: System, state: State) -> tuple[Mechanism, State]:
    """Mechanism and state with the batch axes of both, its quaternions of length 1."""
    batch = batch_shape(system, state, None)
    return prepare(system, len(batch)), with_unit_quaternions(full(state, batch))
