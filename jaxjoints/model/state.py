"""State, Control and Info: where bodies are, what acts on them, what a step did.

Components lead, then bodies or joints, and batch axes trail.
"""

import dataclasses
from enum import IntEnum
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.compiler import quickly
from ..algebra.options import brief, check_count
from ..algebra.pytree import struct
from .table import axes, has_numbers, span, without_numbers


@struct
class RowForces:
    """Mean forces of the rows in the last step [N or N m], from which the next solve starts.

    Both arrays are empty, (0, 0, *batch), where no force of the system is bounded: then one linear
    solve is exact and needs no start.

    rows: of each row, shape (rows, nodes, *batch), as in a `RowProblem`
    bounds: of each bounded law, shape (slots, coordinate rows, *batch)

    >>> from jaxjoints import Damping, Hinge, Limits, SystemBuilder
    >>> for law in (Damping(2.0), Limits(upper=1.0)):
    ...     world = SystemBuilder()
    ...     arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.02))
    ...     _ = world.joint("elbow", Hinge((0.0, 0.0, 1.0)), child=arm, laws=law)
    ...     print(world.build()[1].row_forces.bounds.size > 0)  # a stop pushes to one side alone
    False
    True
    """

    rows: Array
    bounds: Array


@struct
class State:
    """Where the bodies are and how they move, in world axes.

    position: of the centres of mass [m], shape (3, bodies, *batch)
    quaternion: body axes to world axes, unit, w first, shape (4, bodies, *batch)
    velocity: of the centres of mass [m/s]; omega: angular [rad/s], shape (3, bodies, *batch)
    time: [s], shape (*batch)
    q: coordinates [m or rad], joint by joint as they were added, shape (coordinates, *batch). A
        step reads coordinates from the poses and continues angles from these, so that they count
        turns; its derivative by the q of its start is 0
    row_forces: forces of the last step, from which the next solve starts; 0 in a new state. With
        friction that follows a normal force, and contacts in many points, they bound and anchor the
        first pass. There they are part of the motion and are differentiated
    engagement: of limits with an `Engagement`, E times the number of steps since they engaged, in
        the order of q, then of the transmissions' values, then of the contacts, shape
        (coordinates + values + contacts, *batch), or (0, *batch) where no limit has one (never
        differentiated)

    >>> from jaxjoints import Hinge, SystemBuilder
    >>> world = SystemBuilder()
    >>> arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.02), com=(0.5, 0.0, 0.0))
    >>> _ = world.joint("elbow", Hinge((0.0, 0.0, 1.0)), child=arm)
    >>> system, _ = world.build()
    >>> state = system.state(q={"elbow": np.pi / 2})
    >>> print(state.position[:, 0].round(3))  # x is turned to y
    [0.  0.5 0. ]
    """

    position: Array
    quaternion: Array
    velocity: Array
    omega: Array
    time: Array
    q: Array
    row_forces: RowForces
    engagement: Array

    def __repr__(self) -> str:
        """How many bodies and coordinates, batch and records, time, and whether all is finite."""
        shapes = np.shape(self.position), np.shape(self.quaternion)
        lead = next((i for i in (0, 1) if [s[i : i + 1] for s in shapes] == [(3,), (4,)]), None)
        if lead is None or np.ndim(self.position) < lead + 2 or not has_numbers(self):
            return without_numbers(self)
        q, batch = np.shape(self.q)[lead:], shapes[0][lead + 2 :]
        finite = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(self))
        records = f", {shapes[0][0]} records" if lead else ""
        first = (
            f"State of {shapes[0][lead + 1]} bodies and {q[0] if q else 0} coordinates{records}"
            f"{axes(batch)}, at {span(self.time)} s, {'all finite' if finite else 'not all finite'}"
        )
        if lead:
            return (
                f"{first}\nlook at it: view(system, trajectory), coordinates and more by `readout`"
            )
        return (
            f"{first}\nread it: coordinates(system, state), body_poses(system, state)\n"
            "go on: step(system, state, dt=…), rollout(system, state, dt=…, steps=…)"
        )


# Rank of each leaf of a state without batch axes.
STATE_RANKS = State(2, 2, 2, 2, 0, 1, RowForces(2, 2), 1)


@struct
class Control:
    """What acts on the system from outside during a step; None for what is absent.

    effort: force or moment along each coordinate [N or N m], shape (coordinates, *batch), clipped
        to `max_effort` of the joint; the gradient by a clipped effort is 0
    wrench: force and moment at each centre of mass, world axes, shape (6, bodies, *batch)
    target, target_speed: values [m or rad] and speeds to which laws such as motors bring the
        coordinates by the end of the step, shape (coordinates, *batch); without them, laws keep
        the targets that they were built with
    transmission_target, transmission_target_speed: the same for the values of the transmissions
        (`System.value`), shape (values, *batch)
    twist: velocity of each body of prescribed motion, at its centre of mass, world axes, shape
        (6, prescribed bodies, *batch); without it they keep the velocity of the state

    >>> from jaxjoints import SystemBuilder, wrench_at
    >>> world = SystemBuilder()
    >>> bar = world.body("bar", mass=1.0, inertia=(0.02, 0.1, 0.1))
    >>> system, state = world.build()
    >>> push = wrench_at(system, state, bar, force=(0.0, 2.0, 0.0), point=(0.5, 0.0, 0.0))
    >>> print(Control(wrench=push).wrench[:, 0])  # 2 N at a lever of 0.5 m: 1 N m
    [0. 2. 0. 0. 0. 1.]
    """

    effort: Array | None = None
    wrench: Array | None = None
    twist: Array | None = None
    target: Array | None = None
    target_speed: Array | None = None
    transmission_target: Array | None = None
    transmission_target_speed: Array | None = None


CONTROL_RANKS = {
    **{"effort": 1, "wrench": 2, "twist": 2, "target": 1, "target_speed": 1},
    **{"transmission_target": 1, "transmission_target_speed": 1},
}


class Cause(IntEnum):
    """Why an environment stands still, or its step is not to be trusted (`Info.cause`).

    It stands still at its last good state, to the end of the rollout, for:

    CONTROL: NaN or infinity in its control
    STATE: NaN, infinity or a quaternion of zeros in the state it started from
    PARAMETERS: NaN or infinity in the system's numbers; a mass that is not > 0, or an inertia that
        is not positive definite. Checked once per rollout; a bad number that environments share
        stops them all
    DIVERGED: a position [m] or velocity [m/s, rad/s] above 1e10
    TIME_STEP: a time step that is not in (0, 1] s
    SOLVER: NaN after a step from sound numbers

    It goes on, and its step is not to be trusted, for:

    SOLVER: a residual above a tenth of the speeds
    OPEN: a rigid joint or transmission whose error at the start of the step is above 0.5 m or rad
    SINGULAR: two coordinates of a joint turn it about the same axis, to 1e-3 rad, like the first
        and last angle of a `Gimbal` at its lock: speeds along them are of any size

    >>> print(Cause.DIVERGED)
    a position or velocity grew above 1e10; take shorter steps, or softer springs
    """

    NONE = 0
    CONTROL = 1
    STATE = 2
    PARAMETERS = 3
    SOLVER = 4
    DIVERGED = 5
    TIME_STEP = 6
    OPEN = 7
    SINGULAR = 8

    def __str__(self) -> str:
        return SENTENCES[self]


SENTENCES = {
    Cause.NONE: "the step is sound",
    Cause.CONTROL: "NaN or infinity in the control; look at what computes it",
    Cause.STATE: "NaN, infinity or a quaternion of zeros in the state from which it started",
    Cause.PARAMETERS: "NaN or infinity in the system's numbers, a mass that is not > 0, or an "
    "inertia that is not positive definite",
    Cause.SOLVER: "the solver did not converge; take shorter steps, or look for masses and "
    "stiffnesses that differ by many powers of ten",
    Cause.DIVERGED: "a position or velocity grew above 1e10; take shorter steps, or softer springs",
    Cause.TIME_STEP: "the time step is not in (0, 1] s",
    Cause.OPEN: "a joint or transmission is open by more than 0.5 m or rad; start where it closes, "
    "take `project`, or shorter steps",
    Cause.SINGULAR: "two coordinates of a joint turn it about the same axis; take a joint with "
    "other axes",
}


@struct
class Info:
    """What a step did, per environment.

    ok: there is no cause, and the residual is within the tolerance of a solve, shape (*batch)
    cause: why the environment stands still or its step is of no use, a `Cause`, int32 (*batch);
        the other fields of an environment that stands still are 0
    effort: effort of the control that acted along each coordinate, shape (coordinates, *batch)
    dt: length of the step [s], shape (*batch)
    residual: largest violation of a row's law [m/s or rad/s], shape (*batch)
    friction_excess: by how much friction exceeds what the normal force of the same step allows, as
        a speed [m/s or rad/s], shape (*batch)
    iterations: Newton steps of the solve for the velocities at the end, 1 where nothing is bounded;
        sweeps over the rows for `ProjectedGaussSeidel`; int32 (*batch)
    error: largest bilateral error at the start of the step [m or rad], shape (*batch)
    wrench: mean wrench of each joint on its child during the step, at C in C axes [N, N m], of
        bilateral rows and laws together, shape (6, joints, *batch)
    law_force: mean force of the laws on each coordinate, shape (coordinates, *batch)
    contact_force: mean force of each contact on its child along its six directions: the normal
        force [N], friction along its two tangents [N], moments of rolling and spinning friction
        [N m]; shape (6, contacts, *batch)
    limit_force: the part of `law_force` by limits (`Limits`), positive towards larger coordinates,
        0 where no limit pushes, shape (coordinates, *batch)
    transmission_force: mean force along each value of the transmissions (`System.value`), shape
        (values, *batch)
    constraint_force: mean force of each row of the constraints (`System.rows`), shape
        (constraint rows, *batch)
    q, qd: coordinates [m or rad] at the end of the step, and their speeds there on the surfaces of
        the joints, see `coordinate_speeds`; shape (coordinates, *batch)

    >>> from jaxjoints import SystemBuilder, step
    >>> world = SystemBuilder()
    >>> ball = world.body("ball", mass=2.0, inertia=(0.1, 0.1, 0.1))
    >>> system, state = world.build()
    >>> _, info = step(system, replace(state, velocity=state.velocity * jnp.nan), dt=0.1)
    >>> print(info.ok, Cause(int(info.cause)).name)
    False STATE
    """

    ok: Array
    residual: Array
    error: Array
    wrench: Array
    law_force: Array
    limit_force: Array
    transmission_force: Array
    constraint_force: Array = dataclasses.field(default=None)  # type: ignore[assignment]
    contact_force: Array = dataclasses.field(default=None)  # type: ignore[assignment]
    friction_excess: Array = dataclasses.field(default=None)  # type: ignore[assignment]
    iterations: Array = dataclasses.field(default=None)  # type: ignore[assignment]
    # Filled in after the scheme's step, which leaves them out.
    cause: Array = dataclasses.field(default=None)  # type: ignore[assignment]
    effort: Array = dataclasses.field(default=None)  # type: ignore[assignment]
    dt: Array = dataclasses.field(default=None)  # type: ignore[assignment]
    q: Array = dataclasses.field(default=None)  # type: ignore[assignment]
    qd: Array = dataclasses.field(default=None)  # type: ignore[assignment]

    def __repr__(self) -> str:
        """How many environments are sound, why others are not, and the largest errors."""
        leaves = (self.ok, self.residual, self.error, self.cause)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return "Info of a step that JAX is tracing"
        if not has_numbers(leaves):
            return without_numbers(self)
        ok = np.ravel(self.ok)
        cause = np.zeros(ok.shape, int) if self.cause is None else np.ravel(self.cause)
        lines = [f"{ok.sum()} of {ok.size} environments are sound." if ok.size != 1 else ""]
        for value in np.unique(cause[cause != Cause.NONE]):
            which = np.flatnonzero(cause == value)
            shown = ", ".join(map(str, which[:5])) + (", …" if which.size > 5 else "")
            where = "" if ok.size == 1 else f"{which.size} ({shown}): "
            lines.append(f"{where}{Cause(value).name}: {Cause(value)}.")
        poor = np.flatnonzero(~ok & (cause == Cause.NONE))
        if poor.size:
            where = "the" if ok.size == 1 else f"{poor.size} with a"
            lines.append(f"Not ok: {where} residual above rounding; the solve is approximate.")
        elif ok.size == 1 and ok.all():
            lines.append("The step is sound.")
        residual, error = (
            float(np.max(np.asarray(x), initial=0.0)) for x in (self.residual, self.error)
        )
        lines.append(f"Largest residual {residual:.2g} m/s or rad/s.")
        lines.append(f"Largest joint error {error:.2g} m or rad.")
        return "\n".join(filter(None, lines))


def control_ranks(control: Control) -> list[int]:
    """Declared ranks of the leaves of a control."""
    return [r for name, r in CONTROL_RANKS.items() if getattr(control, name) is not None]


def replace(record: Any, **changes: Any) -> Any:
    """A record with some fields replaced, as by `dataclasses.replace`.

    Raises: ValueError for coordinates of a `State` alone, which place no bodies. Angles are counted
        from `State.q`; `dataclasses.replace` sets the turn in which they are.

    >>> from jaxjoints import Limits
    >>> replace(Limits(upper=1.0), upper=2.0).upper
    2.0
    """
    if isinstance(record, State) and "q" in changes and "position" not in changes:
        raise ValueError(
            "replace: q of a State places no bodies, so they would stay where they are; make "
            "the state by its joints: system.state(q={…})"
        )
    return dataclasses.replace(record, **changes)


@public
def replicate(state: State, *batch: int) -> State:
    """A state repeated over batch axes: `replicate(state, 4096)`; each has at least one item."""
    if not isinstance(state, State):
        raise ValueError(f"replicate: state {brief(state)} must be a State")
    check_one_time("replicate", state)
    for size in batch:
        check_count("replicate", "batch", size, 1)
    return _replicated(state, batch=batch)


@partial(quickly, static_argnames="batch")
def _replicated(state: State, *, batch: tuple[int, ...]) -> State:
    return jax.tree.map(
        lambda x: jnp.broadcast_to(x.reshape(x.shape + (1,) * len(batch)), x.shape + batch), state
    )


def check_one_time(call: str, state: State) -> None:
    """Raise ValueError for states with an axis of time in front, as a rollout records them."""
    position, quaternion = jnp.shape(state.position), jnp.shape(state.quaternion)
    # With three or four times, one of the two shapes alone could be that of one time.
    one = position[:1] == (3,) and quaternion[:1] == (4,)
    if not one and position[1:2] == (3,) and quaternion[1:2] == (4,):
        raise ValueError(
            f"{call}: the state has {position[0]} times in front, as a rollout records them: its "
            f"position has shape {position}. Take one, jax.tree.map(lambda x: x[-1], states), or "
            f"all, jax.vmap(lambda state: {call}(…, state))(states), or let the rollout keep what "
            "you read: record=readout(system, …)"
        )
