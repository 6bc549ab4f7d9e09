"""One step of any number of environments, as a user calls it."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from ..assembly.layout import mechanism_of
from ..model.batch import batch_shape
from ..model.state import Control, Info, State
from ..model.system import System
from ..schemes.scheme import Scheme
from ..schemes.semi_implicit_euler import SemiImplicitEuler
from .door import check_policy, check_scheme, check_time_step, entered, expanded, full
from .isolation import Policy, isolated_step, sanitized
from .surface import measured

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
    Pure: use it inside `jax.jit`, `jax.grad`, `jax.vmap` as you like. Called outside of them it is
    compiled once for each system, scheme and shape. A bad environment (see `Cause`) stays as it
    was, without effect on others or on gradients.

    dt: time step [s]
    control_policy: for an environment with NaN or infinity in its control: "stop" it, or make the
        step without control ("zero"); either way `Info.cause` says so
    Returns: the state at the end of the step, and what the step did
    Raises: ValueError for a time step out of (0, 1] s and for axes that do not fit
    """
    check_time_step(dt)
    check_policy(control_policy)
    check_scheme("step", scheme)
    control = Control() if control is None else control
    system, state, control = entered("step", system, state, control)
    dt = jnp.asarray(dt, state.position.dtype)
    return _step(system, state, control, dt, scheme, policy=control_policy)


@partial(jax.jit, static_argnames="policy")
def _step(
    system: System, state: State, control: Control, dt: Array, scheme: Scheme, *, policy: Policy
) -> tuple[State, Info]:
    batch = batch_shape(system, state, control)
    system, safe, cause = sanitized(system, full(state, batch))
    mechanism = mechanism_of(system, len(batch))
    control = expanded(control, len(batch))
    start = full(state, batch), cause
    carry, info = isolated_step(scheme, mechanism, safe, start, control, dt, policy)
    return measured(mechanism, safe, carry, info)
