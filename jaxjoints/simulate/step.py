"""One step of any number of environments, as a user calls it."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import NamedSharding

from ..algebra.calls import public
from ..algebra.compiler import quickly
from ..algebra.devices import computed_where, on_each_device, placement
from ..algebra.progress import compiled
from ..model.batch import batch_shape, is_single
from ..model.kinematics import prepare
from ..model.state import STATE_RANKS, Control, Info, State, control_ranks
from ..model.system import System
from ..model.table import in_words
from ..schemes.scheme import Scheme
from ..schemes.semi_implicit_euler import SemiImplicitEuler
from .door import check_policy, check_scheme, check_time_step, entered, expanded, full
from .isolation import Policy, isolated_step, sanitized
from .surface import measured

DEFAULT_SCHEME = SemiImplicitEuler()


@public
@computed_where("state")
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
    Pure: use it inside `jax.jit`, `jax.grad`, `jax.vmap` as you like. Outside of them it compiles
    once for each system, scheme and shape. For one environment on a CPU this compilation takes less
    than half of the time of `jax.jit`, and the step runs at a half to a quarter of the speed.
    A bad environment (see `Cause`) keeps its state, without effect on others or on gradients.

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
    batch = batch_shape(system, state, control)
    placed = placement(jax.tree.leaves(state), len(batch))
    state = full(state, batch)
    return _step(system, state, control, dt, scheme, policy=control_policy, placed=placed)


@compiled(
    lambda system, *_, **__: in_words("step", system),
    compiler=partial(quickly, where=is_single),
    static_argnames=("policy", "placed"),
)
def _step(
    system: System,
    state: State,
    control: Control,
    dt: Array,
    scheme: Scheme,
    *,
    policy: Policy,
    placed: NamedSharding | None,
) -> tuple[State, Info]:
    ranks = [*system.topology.ranks, *jax.tree.leaves(STATE_RANKS), *control_ranks(control)]
    return on_each_device(
        partial(_stepped, policy),
        placed,
        [*ranks, 0, *(x.ndim for x in jax.tree.leaves(scheme))],
        *(system, state, control, dt, scheme),
    )


def _stepped(
    policy: Policy, system: System, state: State, control: Control, dt: Array, scheme: Scheme
) -> tuple[State, Info]:
    """A step of the environments of one device, the state with all batch axes."""
    batch = state.time.shape
    system, safe, cause = sanitized(system, state)
    mechanism = prepare(system, len(batch))
    control = expanded(control, len(batch))
    start = state, cause
    carry, info = isolated_step(scheme, mechanism, safe, start, control, dt, policy)
    return measured(scheme, mechanism, safe, carry, info)
