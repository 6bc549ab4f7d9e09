"""What acts on bodies from outside: wrenches of `Control` and of fields, added up."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import add_at
from ..algebra.pytree import expand, map_trailing, replace
from ..algebra.rotation import cross
from ..algebra.spatial import Pose, quat_normalize
from ..laws.fields import BodyMotion, defines
from .groups import FieldGroup
from .kinematics import Mechanism
from .state import Control, State
from .system import System


def wrench_at(
    system: System,
    state: State,
    body: str,
    *,
    force: Any,
    moment: Any = None,
    point: Any = (0.0, 0.0, 0.0),
    axes: Literal["world", "body"] = "world",
) -> Array:
    """A force at a point of a body, as `Control.wrench` wants it; several of them add up.

    force [N], moment [N m]: shape (3, *batch), in the given axes; point: in the body frame [m]

    Returns: shape (6, bodies, *batch), 0 for all other bodies
    Raises: ValueError for other axes; KeyError for a body that is not there
    """
    if axes not in ("world", "body"):
        raise ValueError(f"wrench_at: axes {axes!r} must be 'world' or 'body'")
    b, batch = system.body(body), state.time.ndim
    force, point, moment = (
        _trailing(x, batch, state.position.dtype)
        for x in (force, point, jnp.zeros(3) if moment is None else moment)
    )
    pose = Pose(state.position[:, b], quat_normalize(state.quaternion[:, b]))
    arm = pose.rotate(point - expand(system.com, [2], batch)[:, b])
    if axes == "body":
        force, moment = pose.rotate(force), pose.rotate(moment)
    moment = moment + cross(arm, force)
    wrench = jnp.concatenate(jnp.broadcast_arrays(force, moment))
    none = jnp.zeros((6, len(system.topology.bodies), *wrench.shape[1:]), wrench.dtype)
    return none.at[:, b].set(wrench)


def external_wrench(
    mechanism: Mechanism, state: State, control: Control, dt: Array
) -> Array | None:
    """Force and moment at each centre of mass by control and fields, world axes, shape (6, bodies,
    *batch); None where there are none.

    dt: how long it will act [s], 0 for the force of this instant (see `BodyMotion`)
    """
    total = control.wrench
    for group in mechanism.system.fields:
        if not defines(group.field, "wrench"):
            continue
        bodies, found = _on_bodies(mechanism, group, state, dt, lambda f, m: f.wrench(m))
        if total is None:
            total = jnp.zeros((6, *state.position.shape[1:]), found.dtype)
        total = add_at(total, bodies, found, 1)
    return total


def settled(mechanism: Mechanism, state: State, dt: Array) -> State:
    """The state at the end of a step of dt after the fields that change its velocities."""
    for group in mechanism.system.fields:
        if not defines(group.field, "settled"):
            continue
        # One field after another: several may act on one body.
        for i, own in enumerate(group.bodies):
            one = jax.tree.map(lambda x: _member(x, [i], state.time.ndim), group.field)  # noqa: B023
            single = replace(group, field=one, bodies=(own,))
            bodies, (velocity, omega) = _on_bodies(
                mechanism, single, state, dt, lambda f, m: f.settled(m)
            )
            state = replace(
                state,
                velocity=state.velocity.at[:, bodies].set(velocity),
                omega=state.omega.at[:, bodies].set(omega),
            )
    return state


def _on_bodies(
    mechanism: Mechanism, group: FieldGroup, state: State, dt: Array, function: Callable
) -> tuple[np.ndarray, Any]:
    """The bodies that a group acts on, and `function` of field and motion for each of them."""
    system, batch = mechanism.system, state.time.ndim
    bodies = np.array([body for own in group.bodies for body in own])
    field = group.field
    if len(group.bodies) > 1:
        member = np.repeat(np.arange(len(group.bodies)), [len(own) for own in group.bodies])
        field = jax.tree.map(lambda x: _member(x, member, batch), field)
    motion = BodyMotion(
        Pose(state.position[:, bodies], state.quaternion[:, bodies]),
        state.velocity[:, bodies],
        state.omega[:, bodies],
        system.mass[bodies],
        system.inertia[:, :, bodies],
        system.com[:, bodies],
        state.time[None],
        jnp.reshape(dt, (1,) * (1 + batch)),
    )
    with jax.default_matmul_precision("highest"):
        return bodies, map_trailing(function, 1 + batch, field, motion)


def _member(leaf: Array, members: Any, batch: int) -> Array:
    """Some items of a stacked leaf with `batch` axes at its end."""
    return jnp.take(leaf, np.array(members), axis=leaf.ndim - batch - 1)


def _trailing(x: Any, batch: int, dtype: Any) -> Array:
    """A vector (3,) or (3, *batch) with `batch` axes at its end."""
    return expand(jnp.asarray(x, dtype), [1], batch)
