"""One step of any number of environments, and position projection, as a user calls them."""

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import expand
from ..assembly.layout import mechanism_of
from ..build.checks.stepping import check_policy, check_shapes, check_time_step
from ..model.batch import batch_shape
from ..model.kinematics import with_unit_quaternions
from ..model.state import STATE_RANKS, Control, Info, State, control_ranks
from ..model.system import System
from ..schemes.projection import projected
from ..schemes.scheme import Scheme
from ..schemes.semi_implicit_euler import SemiImplicitEuler
from .isolation import Policy, isolated_step, sanitized

DEFAULT_SCHEME = SemiImplicitEuler()


def step(
    system: System,
    state: State,
    control: Control | None = None,
    *,
    dt: Array | float,
    scheme: Scheme = DEFAULT_SCHEME,
    control_policy: Policy = "stop",
) -> tuple[State, Info]:
    """One time step of one environment or of any number of them (batch axes last).

    Every leaf of system, state and control is shared by all environments or carries all batch axes.
    Pure and not compiled here: wrap it in `jax.jit`, `jax.grad`, `jax.vmap` as you like. A bad
    environment (see `Cause`) stays as it was, without effect on others or on gradients.

    dt: time step [s]
    control_policy: for an environment with NaN or infinity in its control: "stop" it, or make the
        step without control ("zero"); either way `Info.cause` says so
    Returns: the state at the end of the step, and what the step did
    Raises: ValueError for a time step out of (0, 1] s and for axes that do not fit
    """
    check_time_step(dt)
    check_policy(control_policy)
    control = Control() if control is None else control
    check_shapes(system, state, control)
    batch = batch_shape(system, state, control)
    dt, state = jnp.asarray(dt, state.position.dtype), full(state, batch)
    system, safe, cause = sanitized(system, state)
    mechanism = mechanism_of(system, len(batch))
    control = expanded(control, len(batch))
    carry, info = isolated_step(
        scheme, mechanism, safe, (state, cause), control, dt, control_policy
    )
    return carry[0], info


def project(system: System, state: State, *, iterations: int = 3) -> State:
    """State with its positions moved onto the joints' surfaces, by the least M-weighted motion.

    iterations: Newton steps; each squares the error. Velocities stay as they are.
    """
    batch = batch_shape(system, state, None)
    mechanism = mechanism_of(system, len(batch))
    state = with_unit_quaternions(full(state, batch))
    for _ in range(iterations):
        state = projected(mechanism, state)
    return state


def full(state: State, batch: tuple[int, ...]) -> State:
    """State in which every array carries all batch axes."""
    state = expand(state, jax.tree.leaves(STATE_RANKS), len(batch))
    return jax.tree.map(lambda x, r: jnp.broadcast_to(x, x.shape[:r] + batch), state, STATE_RANKS)


def expanded(control: Control, batch: int) -> Control:
    """Control whose shared arrays get axes of size 1 for the batch."""
    return expand(control, control_ranks(control), batch)
