"""External wrenches on bodies: the sum of those of `Control` and of fields."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.compiler import is_traced, quickly
from ..algebra.options import brief, plain_numbers
from ..algebra.places import add_at
from ..algebra.pytree import expand, map_trailing, overrides, replace
from ..algebra.rotation import cross
from ..algebra.spatial import Pose, quat_normalize
from ..laws.fields import BodyMotion, Field
from .groups import FieldGroup
from .kinematics import Mechanism
from .state import Control, State
from .system import System


@public
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
    """`Control.wrench` of a force at a point of a body; the sum of several acts like all of them.

    body: name of the body that the force acts on
    force: [N], shape (3, *batch); moment: [N m], shape (3, *batch), 0 by default
    point: where the force acts, in the body frame [m], shape (3,) or (3, *batch)
    axes: those of force and moment: "world", or "body" for the axes of the body frame

    Returns: force and moment at the centre of mass, world axes, shape (6, bodies, *batch); 0 for
        all other bodies
    Raises: ValueError for unknown axes, and for what are no finite numbers of these shapes;
        KeyError for an unknown body.
    """
    if axes not in ("world", "body"):
        raise ValueError(f"wrench_at: axes {axes!r} must be 'world' or 'body'")
    b, dtype = system.body(body), state.position.dtype
    moment = np.zeros(3) if moment is None else moment
    force, point, moment = (
        _vector(name, x, dtype)
        for name, x in (("force", force), ("point", point), ("moment", moment))
    )
    return _wrench_at(system, state, b, force, moment, point, axes=axes)


def _vector(name: str, value: Any, dtype: Any) -> Any:
    """Numbers as an array (3, *batch); ValueError for others, and for known ones not finite."""
    if isinstance(value, jax.Array):
        array = value
    else:
        numbers = plain_numbers(value)
        array = None if numbers is None else numbers.astype(dtype)
    if array is None or array.shape[:1] != (3,):
        raise ValueError(f"wrench_at: {name} {brief(value)} must be numbers of shape (3, *batch)")
    if not is_traced(array) and not np.isfinite(array).all():
        raise ValueError(f"wrench_at: {name} {brief(value)} must be finite")
    return array


@partial(quickly, static_argnames="axes")
def _wrench_at(
    system: System, state: State, b: Any, force: Any, moment: Any, point: Any, *, axes: str
) -> Array:
    """See `wrench_at`; b: index of the body, which may be traced."""
    batch, dtype = state.time.ndim, state.position.dtype
    force, point, moment = (
        expand(jnp.asarray(x, dtype), [1], batch) for x in (force, point, moment)
    )
    pose = Pose(state.position[:, b], quat_normalize(state.quaternion[:, b]))
    arm = pose.rotate(point - expand(system.com, [2], batch)[:, b])
    if axes == "body":
        force, moment = pose.rotate(force), pose.rotate(moment)
    moment = moment + cross(arm, force)
    wrench = jnp.concatenate(jnp.broadcast_arrays(force, moment))
    zero = jnp.zeros((6, len(system.topology.bodies), *wrench.shape[1:]), wrench.dtype)
    return zero.at[:, b].set(wrench)


def external_wrench(
    mechanism: Mechanism, state: State, control: Control, dt: Array
) -> Array | None:
    """Force and moment of the control and of all fields at each centre of mass.

    dt: length of the step in which they act [s], 0 for those of an instant (see `BodyMotion`)

    Returns: world axes [N, N m], shape (6, bodies, *batch); None if neither the control nor a field
        has a wrench
    """
    total = control.wrench
    for group in mechanism.system.fields:
        if not overrides(group.field, Field.wrench):
            continue
        bodies, wrenches = _on_bodies(mechanism, group, state, dt, lambda f, m: f.wrench(m))
        if total is None:
            total = jnp.zeros((6, *state.position.shape[1:]), wrenches.dtype)
        total = add_at(total, bodies, wrenches, 1)
    return total


def settled(mechanism: Mechanism, state: State, dt: Array) -> State:
    """The state at the end of a step after the fields with a `Field.velocity_update`.

    dt: length of the step [s]
    """
    for group in mechanism.system.fields:
        if not overrides(group.field, Field.velocity_update):
            continue
        # One field after another: several may act on one body.
        for i, bodies in enumerate(group.bodies):
            field = jax.tree.map(lambda x: _taken(x, [i], state.time.ndim), group.field)  # noqa: B023
            single = replace(group, field=field, bodies=(bodies,))
            bodies, (velocity, omega) = _on_bodies(
                mechanism, single, state, dt, lambda f, m: f.velocity_update(m)
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
    """A function of field and body motion, for each body that each field of a group acts on.

    Returns: indices of these bodies, field by field, and the results with an axis of these bodies
    """
    system, batch = mechanism.system, state.time.ndim
    bodies = np.concatenate(group.bodies).astype(int)
    field = group.field
    if len(group.bodies) > 1:
        member = np.repeat(np.arange(len(group.bodies)), list(map(len, group.bodies)))
        field = jax.tree.map(lambda x: _taken(x, member, batch), field)
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


def _taken(leaf: Array, members: Any, batch: int) -> Array:
    """Some members of a stacked leaf with `batch` batch axes."""
    return jnp.take(leaf, np.array(members), axis=leaf.ndim - batch - 1)
