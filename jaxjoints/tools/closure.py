"""Assembly: loops closed from a rough guess, limits kept, goals reached, velocities that fit.

Errors of joints, limits that are passed, wanted coordinates and goals are rows φ. Damped Newton
steps (Levenberg–Marquardt) bring them to 0, each by the least motion of the bodies,

    (A + damping diag A) λ = -φ,    displacements G̃ᵀ λ,    A = G̃ G̃ᵀ,

where every body counts as a body of mass 1 and radius of gyration ℓ, the size of the mechanism: an
assembly depends on geometry alone. The damping falls with the error, so the last steps converge
quadratically, for overconstrained mechanisms too (Yamashita and Fukushima 2001).

The derivative is that of one more step at the solution, by the implicit function theorem. Free
coordinates have the derivative of the least motion.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient

from ..algebra.calls import public
from ..algebra.compiler import is_traced
from ..algebra.options import brief, near_matches
from ..algebra.progress import compiled
from ..algebra.pytree import replace, struct
from ..algebra.renamed import earlier_names, warn_renamed
from ..algebra.spatial import quat_conjugate, quat_multiply, quat_rotate
from ..assembly.group_rows import Interval
from ..assembly.problem import row_problem
from ..build.checks.values import (
    Stated,
    common_batch,
    read_coordinates,
    read_mapping,
    read_stated,
)
from ..model.batch import batch_shape
from ..model.kinematics import (
    Mechanism,
    body_twists,
    coordinate_speeds,
    gather_coordinates,
    joint_coordinates,
    prepare,
    quaternion_components,
    system_kinematics,
    transmission_rows,
    with_unit_quaternions,
    with_world,
)
from ..model.measures import element_errors
from ..model.state import State
from ..model.system import WORLD, WORLD_INDEX, System
from ..model.table import has_numbers, in_words, span, without_numbers
from ..schemes.projection import displaced
from ..simulate.door import entered, full, read_count
from ..solve.linear import solve_linear
from ..solve.problem import RowProblem, body_velocities, diagonal, mobility, regularized, trailing
from .goals import Goal
from .placement import (
    Closing,
    ClosingSpeeds,
    Held,
    Range,
    Speed,
    Value,
    least_share,
    placement,
    with_goals,
    with_margins,
)

# Errors of an assembled state [m or rad], by the bytes of a number; as shares of how far bodies are
# from the origin where that is above 1 m.
TOLERANCE = {4: 2e-5, 8: 1e-12}
# Errors of speeds, as shares of one more than the largest speed.
SPEED_TOLERANCE = {4: 1e-4, 8: 1e-9}
# Damping of the first step, how it changes, and where it is given up.
FIRST, LESS, MORE, LEAST, MOST = 0.1, 0.25, 16.0, 1e-4, 1e7
# Largest turn of a body in one step [rad].
TURN = 1.0
# Share of the remaining error that a step has to remove.
STALLED = 1e-9
# How many elements an error names.
SHOWN = 5


@struct
class AssemblyReport:
    """Errors of an assembled state [m or rad].

    joint_error: of each joint: the largest error of its rows, or distance past a limit, shape
        (joints, *batch)
    transmission_error, constraint_error: of each transmission and of each constraint likewise,
        shape (transmissions, *batch) and (constraints, *batch)
    contact_error: by how much the bodies of each contact overlap, shape (contacts, *batch)
    coordinate_error: of coordinates with a wanted value, else 0, (coordinates, *batch)
    goal_error: largest error of each goal, shape (goals, *batch)
    speed_error: of coordinates with a wanted speed, else 0 [m/s or rad/s], (coordinates, *batch)
    closed: joints and transmissions are closed and within their limits, and nothing overlaps, shape
        (*batch)
    reached: all wanted coordinates, goals and speeds are met, shape (*batch)
    iterations: damped Newton steps, int32 (*batch)

    >>> from jaxjoints import Hinge, SystemBuilder, goals
    >>> world = SystemBuilder()
    >>> _ = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.1))
    >>> _ = world.joint("elbow", Hinge(), child="arm")
    >>> tip = goals.Point("arm", at=(0.0, 1.0, 2.0), point=(1.0, 0.0, 0.0))
    >>> _, report = assemble(*world.build(), goals={"tip": tip}, strict=False)
    >>> print(report.closed, report.reached, report.goal_error.round(4))  # it turns 2 m below
    True False [2.]
    """

    joint_error: Array
    transmission_error: Array
    constraint_error: Array
    contact_error: Array
    coordinate_error: Array
    goal_error: Array
    speed_error: Array
    closed: Array
    reached: Array
    iterations: Array

    def __repr__(self) -> str:
        """Whether all is closed and reached, and the largest error of each kind."""
        if not has_numbers(self):
            return without_numbers(self)
        closed, reached = np.ravel(self.closed), np.ravel(self.reached)
        words = []
        for word, true in (("closed", closed), ("reached", reached)):
            some = f"{true.sum()} of {true.size} {word}" if true.size > 1 else f"not {word}"
            words.append(word if true.all() else some)
        largest = []
        for name in (field.name for field in dataclasses.fields(self)):
            value = np.asarray(getattr(self, name))
            if name.endswith("_error") and value.size:
                largest.append(f"{name[: -len('_error')]} {np.abs(value).max():.2g}")
        return (
            f"AssemblyReport: {', '.join(words)}, after {span(self.iterations)} iterations\n"
            f"largest errors [m or rad, and per s]: {', '.join(largest) or 'none'}"
        )


class AssemblyError(ValueError):
    """A mechanism does not close, or does not reach its goals or wanted coordinates.

    state: end of the iteration, with loops as closed as possible
    report: its errors

    >>> from jaxjoints import Hinge, SystemBuilder, goals
    >>> world = SystemBuilder()
    >>> _ = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.1))
    >>> _ = world.joint("elbow", Hinge(), child="arm")
    >>> tip = goals.Point("arm", at=(0.0, 1.0, 2.0), point=(1.0, 0.0, 0.0))
    >>> try:
    ...     assemble(*world.build(), goals={"tip": tip})
    ... except AssemblyError as error:
    ...     print(error.report.closed, str(error).partition(".")[0])  # it turns 2 m below
    True assemble: goal 'tip' is missed by 2 m or rad
    """

    def __init__(self, message: str, state: State, report: AssemblyReport):
        super().__init__(message)
        self.state, self.report = state, report

    @property
    def closure(self) -> AssemblyReport:
        """The report by its name of an earlier release."""
        warn_renamed("AssemblyError", "closure", "report")
        return self.report


@public
def assemble(
    system: System,
    state: State,
    *,
    q: Mapping[str, Any] | None = None,
    qd: Mapping[str, Any] | None = None,
    goals: Mapping[str, Goal] | None = None,
    weights: Mapping[str, Any] | None = None,
    iterations: int = 100,
    strict: bool = True,
) -> tuple[State, AssemblyReport]:
    """State near a rough guess in which all joints are closed, in positions and velocities.

    Limits and locks of joints and transmissions are kept. Free motions change positions by the
    least motion of the bodies in each step, and velocities by the least M-weighted change. If not
    everything can be met, goals and wanted coordinates give way first, then joints. Works inside of
    `jit`; every argument may carry batch axes at the end.

    q: wanted coordinates of joints [m or rad], by name, shape (dof, *batch), or single ones by
        their numbers too, as in `System.state`: `q={"hip.1": 0.3}` leaves the others free
    qd: wanted speeds of coordinates [m/s or rad/s], likewise
    goals: records of `goals` by names of your choice: poses of frames, places of points,
        orientations
    weights: resistance of coordinates to a change of positions and velocities, as multiples of the
        inertia that they move; 0 by default. By name, a number or shape (dof, *batch). A weight
        resists each step to first order: where bodies turn far to close, an angle of weight 1e12
        still moved by 5e-3 rad. Give coordinates that must stay as `q`
    iterations: largest number of damped Newton steps; twice as many where goals are given up
    strict: outside of `jit`, raise for joints that are open and goals that are not reached

    Returns: the state, and its `AssemblyReport`. The derivative of the state by numbers of the
    system, `q`, `qd` and goals is that of the implicit function theorem.

    Raises: `AssemblyError` naming joints, transmissions, coordinates and goals, and by how much;
        ValueError for unknown names and wrong shapes

    >>> from jaxjoints import Hinge, SystemBuilder
    >>> world = SystemBuilder()
    >>> arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.1))
    >>> elbow = world.joint("elbow", Hinge(), child=arm)
    >>> state, report = assemble(*world.build(), q={"elbow": 0.5})
    >>> print(state.q.round(4), report.closed)
    [0.5] True
    """
    iterations = read_count("assemble", "iterations", iterations)
    system, state, _ = entered("assemble", system, state)
    numbers = _numbers(system, q, qd, weights)
    held = {
        name: _held(system, name, goal)
        for name, goal in read_mapping("goals", goals, "goal", ()).items()
    }
    shapes = [batch_shape(system, state, None)]
    shapes += [x.shape[1:] for x in jax.tree.leaves((numbers, held))]
    state = full(state, common_batch("assemble", shapes))
    state, report = _assembled(system, state, numbers, held, iterations=iterations)
    if strict and not is_traced(report):
        _check(system, tuple(held), state, report)
    return state, report


@public
def inverse_kinematics(
    system: System,
    state: State,
    goals: Mapping[str, Goal],
    *,
    q: Mapping[str, Any] | None = None,
    weights: Mapping[str, Any] | None = None,
    iterations: int = 100,
) -> tuple[State, AssemblyReport]:
    """`assemble` from many seeds. Goals out of reach raise no error: read the report.

    Where goals are out of reach, such as places of noisy markers, the derivative of the states by
    the goals is 0.

    state: the seeds, with batch axes; one program solves hundreds of seeds
    goals: by names of your choice; NaN in a place or pose raises ValueError
    q, weights, iterations: as in `assemble`

    >>> import jaxjoints as jj
    >>> world = jj.SystemBuilder()
    >>> arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.1))
    >>> elbow = world.joint("elbow", jj.Hinge(), child=arm)
    >>> tip = jj.goals.Point("arm", at=(0.0, 1.0, 0.0), point=(1.0, 0.0, 0.0))
    >>> system, state = world.build()
    >>> state, report = inverse_kinematics(system, jj.replicate(state, 1), {"tip": tip})
    >>> print(state.q.round(4), report.reached)
    [[1.5708]] [ True]
    """
    if not goals:
        raise ValueError(
            f"inverse_kinematics: goals {brief(goals)} has no goal; give one by a name of your "
            "own: goals={'tip': goals.Point('arm', at=(0.0, 1.0, 0.0))}. Wanted coordinates alone "
            "are reached by `assemble`"
        )
    return assemble(
        system, state, q=q, goals=goals, weights=weights, iterations=iterations, strict=False
    )


def _numbers(system: System, q: Any, qd: Any, weights: Any) -> tuple[dict[str, Stated], ...]:
    """Coordinates by the names of joints that q, qd and weights give."""
    dofs = {}
    for group in system.groups:
        dofs |= {system.topology.joints[j]: group.coupling.dof for j in group.joints}

    def weight(owner, field, value, dof):
        if np.ndim(value) == 0:
            value = jnp.full(dof, value) if is_traced(value) else np.full(dof, value)
        value = read_coordinates(owner, field, value, dof)
        if not is_traced(value) and (np.asarray(value) < 0).any():
            raise ValueError(f"{owner}: weights {value} must be >= 0; 0 lets a coordinate move")
        return value

    return (
        read_stated("q", q, "joint", dofs),
        read_stated("qd", qd, "joint", dofs),
        read_stated("weights", weights, "joint", dofs, weight),
    )


def _held(system: System, name: str, goal: Any) -> Held:
    """A goal, its bodies looked up and its poses read."""
    owner = f"goal {name!r}"
    if not isinstance(goal, Goal):
        raise ValueError(f"{owner}: {goal!r} is no goal; give a record such as goals.Point(…)")
    ends = []
    for field, body in (("body", goal.body), ("relative_to", goal.relative_to)):
        if body == WORLD and field == "relative_to":
            ends.append(WORLD_INDEX)
        elif body in system.topology.body_index:
            ends.append(system.body(body))
        else:
            hint = near_matches(body, system.topology.bodies)
            raise ValueError(f"{owner}: {field} {body!r} is no body; {hint}")
    C, D = goal.frames(owner)
    return Held(C, D, goal.coupling, child=ends[0], parent=ends[1])


@compiled(lambda system, *_, **__: in_words("assembly", system), static_argnames="iterations")
def _assembled(
    system: System,
    guess: State,
    numbers: tuple[dict[str, Stated], ...],
    goals: dict[str, Held],
    *,
    iterations: int,
) -> tuple[State, AssemblyReport]:
    axes, joints = guess.time.ndim, len(system.topology.joints)
    placed = placement(system, axes, *numbers, goals)
    # Coordinates of goals are read by nothing; they stand after those of the joints.
    more = jnp.zeros((placed.coordinates - system.coordinates, *guess.time.shape), guess.q.dtype)
    guess = with_unit_quaternions(replace(guess, q=jnp.concatenate([guess.q, more])))
    constant = prepare(stop_gradient(placed), axes)
    size = _size(constant)
    search = _found(
        _of_equal_bodies(constant, size), stop_gradient(guess), joints, size, iterations
    )
    mechanism = prepare(with_goals(placed, joints, search.present), axes)
    equal = _of_equal_bodies(mechanism, size)
    closed = search.worst <= _tolerance(search.best, size)
    state = _with_derivative(equal, guess, search.best, closed)
    kinematics = system_kinematics(mechanism, state)
    q = joint_coordinates(mechanism, kinematics, state)
    state = replace(state, q=q)
    twist = _fitting_twists(prepare(with_goals(placed, joints, 0 * search.present), axes), state)
    rotation = quaternion_components(state)
    v, omega = (quat_rotate(rotation, x) for x in (twist[:3, :-1], twist[3:, :-1]))
    state = replace(state, velocity=v, omega=omega)
    report = _closure(
        mechanism, stop_gradient(state), stop_gradient(twist), joints, size, search.counted
    )
    # What the rows exerted elsewhere says nothing of these places.
    forces = jax.tree.map(jnp.zeros_like, state.row_forces)
    return replace(state, q=q[: system.coordinates], row_forces=forces), report


def _tolerance(state: State, size: Array) -> Array:
    """Largest error of an assembled state [m or rad], (*batch); size: ℓ."""
    reach = size + jnp.max(jnp.abs(state.position), axis=(0, 1))
    return TOLERANCE[reach.dtype.itemsize] * jnp.maximum(1.0, reach)


def _size(mechanism: Mechanism) -> Array:
    """ℓ: root mean square of the distances between joints and centres of mass [m], or 1 where all
    are 0, with the batch axes of a mechanism.
    """
    none = jnp.zeros(mechanism.inverse_mass.shape[1:], mechanism.inverse_mass.dtype)
    squares = [none]
    for group in (*mechanism.system.groups, *mechanism.system.contacts):
        for frame, bodies in ((group.frame_C, group.child), (group.frame_D, group.parent)):
            squares += [
                jnp.sum(frame.p[:, i] ** 2, axis=0) + none
                for i, body in enumerate(bodies)
                if body != WORLD_INDEX
            ]
    mean = sum(squares) / max(len(squares) - 1, 1)
    # Protects the root, and what divides by it, from joints that all stand at centres of mass.
    return jnp.sqrt(jnp.where(mean > 0, mean, 1.0))


def _of_equal_bodies(mechanism: Mechanism, size: Array) -> Mechanism:
    """The mechanism whose bodies have mass 1 and the radius of gyration `size`, a constant."""
    moves = (mechanism.inverse_mass > 0).astype(size.dtype)
    unit = jnp.eye(3, dtype=size.dtype).reshape(3, 3, *(1,) * moves.ndim)
    share = (moves / size[None] ** 2)[None, None]
    return replace(mechanism, inverse_mass=moves, inverse_inertia=unit * share)


def _problem(mechanism: Mechanism, state: State, damping: Array) -> tuple[RowProblem, Array]:
    """The problem of a damped step, and the coordinates at the state."""
    kinematics = system_kinematics(mechanism, state)
    interval = Interval(jnp.ones((), damping.dtype))
    problem = row_problem(mechanism, kinematics, interval, Closing(damping))
    A = mobility(problem)
    problem = replace(problem, mobility=A, compliance=problem.compliance + damping[None, None] * A)
    return problem, joint_coordinates(mechanism, kinematics, state)


def _errors(problem: RowProblem, damping: Array) -> tuple[Array, Array]:
    """Sum of the squares of all errors over A_ii [m²], and the largest error [m or rad]."""
    φ = problem.rate * trailing(problem.structure.hard, problem.rate)
    total = jnp.sum(φ**2 / diagonal(problem), axis=(0, 1)) + 0 * damping
    worst = jnp.max(jnp.abs(φ), axis=(0, 1)) + 0 * damping
    K, p = problem.augmented_stiffness, problem.impulse
    # Protects the division from coordinates on which nothing acts.
    e = p / jnp.where(K > 0, K, 1.0)
    # K of a coordinate that is held is 1 / (share A), its impulse -K e.
    total = total + least_share(damping) * jnp.sum(jnp.abs(p * e), axis=0)
    return total, jnp.maximum(worst, jnp.max(jnp.abs(e), axis=0, initial=0.0))


def _moved(state: State, problem: RowProblem) -> State:
    """State after the step of a problem, no body turning by more than `TURN`."""
    impulse, _ = solve_linear(regularized(problem))
    shift = body_velocities(problem, impulse)
    turn = jnp.sqrt(jnp.max(jnp.sum(shift[3:] ** 2, axis=0), axis=0))
    return displaced(state, shift * (TURN / jnp.maximum(turn, TURN))[None, None])


@struct
class _Search:
    """What one damped step hands to the next, arrays (*batch).

    at: state to be judged; best: the best one so far, its sum of squares `total` and its largest
    error `worst`
    back: whether `at` is the best state once more, after a step that was not taken
    factor: of the damping, which is this times the error; damping: of the next step
    present: 1 while goals count
    count: of steps while goals count or while they do not; counted: of all
    running: whether the search goes on
    """

    at: State
    best: State
    total: Array
    worst: Array
    back: Array
    factor: Array
    damping: Array
    present: Array
    count: Array
    counted: Array
    running: Array


def _found(
    mechanism: Mechanism, guess: State, joints: int, size: Array, iterations: int
) -> _Search:
    """The end of a search of constants, goals given up where they cannot all be reached.

    mechanism: of a placement; joints: how many of its joints are no goals; size: ℓ
    """
    batch, dtype = guess.time.shape, guess.position.dtype
    one, whole = jnp.ones(batch, dtype), jnp.zeros(batch, jnp.int32)
    yielding = any(
        group.joints[0] >= joints or any(isinstance(law, Value) for law in group.laws)
        for group in mechanism.system.groups
    )
    rounding = 16 * jnp.finfo(dtype).eps

    def advanced(search: _Search) -> _Search:
        system = with_goals(mechanism.system, joints, search.present)
        problem, q = _problem(replace(mechanism, system=system), search.at, search.damping)
        total, worst = _errors(problem, search.damping)
        # Rounding may make the best state worse than itself, so `back` tells, and not the total.
        better = (total < search.total) & ~search.back
        taken = (total <= search.total) | search.back
        stalled = better & (total > (1 - STALLED) * search.total)
        at = replace(search.at, q=q)
        best = _chosen(taken, at, search.best)
        total, worst = (
            jnp.where(better, *pair) for pair in ((total, search.total), (worst, search.worst))
        )
        factor = search.factor * jnp.where(better, LESS, jnp.where(taken, 1.0, MORE))
        factor = jnp.maximum(factor, LEAST)
        count = search.count + 1
        reach = size + jnp.max(jnp.abs(at.position), axis=(0, 1))
        done = worst <= rounding * reach
        ended = ~done & (stalled | (factor > MOST) | (count >= iterations))
        again = ended & (search.present > 0) if yielding else jnp.zeros(batch, bool)
        # XLA may compute the errors again for each decision, rounded otherwise. On the boundary of
        # one, goals are given up by it and not by the others, and nothing but the count ends that.
        most = search.counted + 1 >= 2 * iterations
        new = _Search(
            at=_chosen(again | ~taken, best, _moved(at, problem)),
            best=best,
            total=jnp.where(again, jnp.inf, total),
            worst=worst,
            back=~taken & ~again,
            factor=jnp.where(again, 1.0, factor),
            damping=jnp.where(
                again, FIRST, factor * jnp.minimum(jnp.sqrt(total) / size, 1.0) + 0 * one
            ),
            present=jnp.where(again, 0.0, search.present),
            count=jnp.where(again, 0, count),
            counted=search.counted + 1,
            running=~done & (~ended | again) & ~most,
        )
        return _chosen(search.running, new, search)

    start = _Search(
        at=guess,
        best=guess,
        total=jnp.inf * one,
        worst=jnp.inf * one,
        back=one < 0,
        factor=one,
        damping=FIRST * one,
        present=one,
        count=whole,
        counted=whole,
        running=one > 0,
    )
    return jax.lax.while_loop(lambda search: jnp.any(search.running), advanced, start)


def _chosen(mask: Array, one: Any, other: Any) -> Any:
    """A tree whose arrays are those of `one` where the mask (*batch) is true."""

    def chosen(x, y):
        return jnp.where(mask.reshape((1,) * (x.ndim - mask.ndim) + mask.shape), x, y)

    return jax.tree.map(chosen, one, other)


@jax.custom_jvp
def _with_derivative(mechanism: Mechanism, guess: State, end: State, closed: Array) -> State:
    """The end of a search with the derivative of one more step, and with what the guess passes on.

    closed: where the search ended at a solution; elsewhere there is no derivative, (*batch)
    """
    return end


@_with_derivative.defjvp
def _with_derivative_jvp(
    primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[State, State]:
    def once_more(mechanism, guess, end, closed):
        turned = quat_multiply(guess.quaternion, quat_conjugate(stop_gradient(guess.quaternion)))
        state = replace(
            end,
            position=end.position + (guess.position - stop_gradient(guess.position)),
            quaternion=quat_multiply(turned, end.quaternion),
            velocity=guess.velocity,
            omega=guess.omega,
        )
        mechanism = replace(mechanism, system=with_margins(mechanism.system))
        problem, _ = _problem(mechanism, state, jnp.zeros_like(end.time))
        impulse, _ = solve_linear(regularized(problem))
        shift = body_velocities(problem, impulse)
        return displaced(state, jnp.where(closed[None, None], shift, 0.0))

    return primals[2], jax.jvp(once_more, primals, tangents)[1]


def _fitting_twists(mechanism: Mechanism, state: State) -> Array:
    """Twists in body axes, (6, bodies + 1, *batch), that joints allow, at the wanted speeds: the
    state's after the least change, weights included.
    """
    kinematics = system_kinematics(mechanism, state)
    twist, now = with_world(body_twists(state)), jnp.zeros((), state.time.dtype)
    interval = Interval(jnp.ones_like(now), force_time=now, twist=twist)
    problem = row_problem(mechanism, kinematics, interval, ClosingSpeeds(), twist)
    impulse, _ = solve_linear(regularized(problem))
    return twist + with_world(body_velocities(problem, impulse))


def _closure(
    mechanism: Mechanism, state: State, twist: Array, joints: int, size: Array, count: Array
) -> AssemblyReport:
    """See `AssemblyReport`; joints: how many joints of the mechanism are no goals."""
    system, kinematics = mechanism.system, system_kinematics(mechanism, state)
    errors = element_errors(mechanism, state)
    ends = np.cumsum([len(system.topology.joints), len(system.topology.transmissions)])
    of_joints, of_goals, of_transmissions, of_constraints = jnp.split(errors, [joints, *ends])
    values, speeds = [], []
    for group, joint in zip(system.groups, kinematics.joints, strict=True):
        q, places = joint.rows.q, np.array(group.joints)
        off, rate = jnp.zeros_like(q), jnp.zeros_like(q)
        qd = coordinate_speeds(group, joint, twist)
        for law in group.laws:
            k = law.coordinate
            if isinstance(law, Range):
                of_joints = of_joints.at[places].max(law.violation(q[k]))
            elif isinstance(law, Value):
                off = off.at[k].set(law.violation(q[k]))
            elif isinstance(law, Speed):
                rate = rate.at[k].set(law.present * jnp.abs(qd[k] - law.value))
        if group.enabled is not None and group.joints[0] < joints:
            of_joints = of_joints.at[places].multiply((group.enabled > 0).astype(q.dtype))
        values.append(off)
        speeds.append(rate)
    for group in system.transmissions:
        value, _ = transmission_rows(mechanism, group, kinematics)
        for law in group.laws:
            worst = law.violation(value[law.coordinate])
            of_transmissions = of_transmissions.at[np.array(group.members)].max(worst)
        if group.enabled is not None:
            on = (group.enabled > 0).astype(value.dtype)
            of_transmissions = of_transmissions.at[np.array(group.members)].multiply(on)
    for group in system.constraints:
        if group.enabled is not None:
            on = (group.enabled > 0).astype(errors.dtype)
            of_constraints = of_constraints.at[np.array(group.members)].multiply(on)
    of_contacts = jnp.zeros((len(system.topology.contacts), *state.time.shape), errors.dtype)
    for group, contact in zip(system.contacts, kinematics.contacts, strict=True):
        for law in group.laws:
            worst = law.violation(contact.frame.gap)
            if group.enabled is not None:
                worst = jnp.where(group.enabled > 0, worst, 0.0)
            of_contacts = of_contacts.at[np.array(group.members)].max(worst)
    values, speeds = (gather_coordinates(mechanism, x, state) for x in (values, speeds))
    no_goals = (group for group in system.groups if group.joints[0] < joints)
    own = sum(group.coupling.dof * len(group.joints) for group in no_goals)
    speed_scale = 1 + jnp.max(jnp.abs(twist), axis=(0, 1))

    def least(limit, *parts):
        worst = [jnp.max(x, axis=0, initial=0.0) for x in parts]
        return jnp.all(jnp.stack([x <= limit for x in worst]), axis=0)

    return AssemblyReport(
        joint_error=of_joints,
        transmission_error=of_transmissions,
        constraint_error=of_constraints,
        contact_error=of_contacts,
        coordinate_error=values[:own],
        goal_error=of_goals,
        speed_error=speeds[:own],
        closed=least(
            _tolerance(state, size), of_joints, of_transmissions, of_constraints, of_contacts
        ),
        reached=least(_tolerance(state, size), of_goals, values[:own])
        & least(SPEED_TOLERANCE[errors.dtype.itemsize] * speed_scale, speeds[:own]),
        iterations=count,
    )


def _check(system: System, goals: tuple[str, ...], state: State, report: AssemblyReport) -> None:
    """Raise AssemblyError for what is open or not reached."""
    closed, reached = np.asarray(report.closed), np.asarray(report.reached)
    if (closed & reached).all():
        return
    coordinates = {}
    for name in system.topology.joints:
        at = system.coordinate(name)
        for k in range(at.start, at.stop):
            coordinates[k] = f"coordinate {k - at.start} of joint {name!r}"
    named = [coordinates[k] for k in range(len(coordinates))]
    parts = (
        (closed, "is open, or past a limit, by", "m or rad", report.joint_error, "joint"),
        (closed, "is off by", "", report.transmission_error, "transmission"),
        (closed, "is off by", "", report.constraint_error, "constraint"),
        (closed, "overlaps by", "m", report.contact_error, "contact"),
        (reached, "is off its value by", "m or rad", report.coordinate_error, None),
        (reached, "is missed by", "m or rad", report.goal_error, "goal"),
        (reached, "is off its speed by", "m/s or rad/s", report.speed_error, None),
    )
    names = {
        "joint": system.topology.joints,
        "transmission": system.topology.transmissions,
        "constraint": system.topology.constraints,
        "contact": system.topology.contacts,
        "goal": goals,
    }
    found = []
    for good, what, unit, error, kind in parts:
        count = math.prod(error.shape[1:])
        error = np.where(good, 0.0, np.asarray(error)).reshape(-1, count)
        worst = error.max(axis=1, initial=0.0)
        labels = named if kind is None else [f"{kind} {name!r}" for name in names[kind]]
        if not good.all():
            found += [
                (size, f"{label} {what} {size:.3g} {unit}".rstrip())
                for label, size in zip(labels, worst, strict=True)
                if not size <= TOLERANCE[report.joint_error.dtype.itemsize]
            ]
    found.sort(key=lambda pair: -np.nan_to_num(pair[0], nan=np.inf))
    bad, all_of = int((~(closed & reached)).sum()), closed.size
    where = f" (in {bad} of {all_of} environments)" if all_of > 1 else ""
    raise AssemblyError(
        f"assemble: {'; '.join(text for _, text in found[:SHOWN])}{where}. Start from another "
        "guess or other dimensions, or ask for less: wanted coordinates, goals, limits and weights",
        state,
        report,
    )


__getattr__ = earlier_names(__name__, {"Closure": ("AssemblyReport", AssemblyReport)})
