"""What happens at an instant: the rates of a state, and the impulses of an impact.

Both solve the rows of a time h so short (`INSTANT`) that nothing moves in it. An impact asks for
speeds G v⁺ = 0. Accelerations are the limit of steps: with λ = h f all impulses are forces f, and

    A f = -(G a + Ġ v),    a = M⁻¹ f₀,    v̇ = a + M⁻¹ Gᵀ f,

f₀ the forces from outside, gyroscopic ones included. Laws give what they give in h, over h.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from ..algebra.pytree import replace, struct
from ..algebra.spatial import cross, matvec, quat_multiply, quat_rotate, quat_rotate_inverse
from ..assembly.group_rows import Interval
from ..assembly.impulses import effort_impulse, of_all_rows, of_plan, with_reactions
from ..assembly.problem import assembled, row_problem, row_rates
from ..assembly.targets import Instant
from ..model.external import external_wrench
from ..model.kinematics import (
    Kinematics,
    Mechanism,
    body_twists,
    moving_bodies,
    system_kinematics,
    with_world,
)
from ..model.state import Control, State
from ..solve.forces import Bound
from ..solve.newton import Newton
from ..solve.problem import (
    RowProblem,
    RowSolution,
    Solver,
    coordinate_rows,
    diagonal,
    of_bounds,
    with_coordinate_rows,
)
from .scheme import tree_of

# A time in which nothing moves [s]: a spring of 1e5 N/m gives way by less than rounding.
INSTANT = 1e-15
# No last step anchors a contact at an instant. Each pass leaves a hundredth of what contacts give
# way by.
EXACT = Newton(passes=6)
# Acceleration that keeps friction at its bound where a joint slides, in multiples of the largest
# one without it. More would leave float32 fewer digits.
SLIDING = 30.0


@struct
class Touch:
    """What counts as touching, and as sticking.

    reach: gap below which a stop is touched [m or rad]
    creep: speed below which a stop is not left and friction sticks [m/s or rad/s]

    >>> from jaxjoints import Limits, Slider, SystemBuilder, dynamics
    >>> world = SystemBuilder(gravity=(0.0, 0.0, -10.0))
    >>> load = world.body("load", mass=2.0, inertia=(1.0, 1.0, 1.0))
    >>> stop = Limits(lower=0.0)
    >>> _ = world.joint("rail", Slider((0.0, 0.0, 1.0)), child=load, laws=stop, q=1e-4)
    >>> now = dynamics.accelerations(*world.build(), touch=Touch(reach=1e-3))
    >>> print(now.qdd.round(6) + 0.0, now.info.limit_force.round(6))  # as if it lay on the stop
    [0.] [20.]
    """

    reach: Array | float = 1e-6
    creep: Array | float = 1e-6


TOUCHING = Touch()


def rate_of_change(
    mechanism: Mechanism,
    state: State,
    control: Control,
    solver: Solver,
    touch: Touch = TOUCHING,
) -> tuple[State, Kinematics, RowProblem, RowSolution]:
    """How a state changes in time, and the forces of the rows where it is.

    Rows keep the accelerations on the surfaces of the joints, whatever velocities and errors are.
    A stop that is touched pushes, unless its coordinate leaves it. What slides is rubbed at the
    bound of the friction.

    Returns: the rates of the state; its joint kinematics; problem and solution, in which speeds
        are accelerations and impulses forces
    """
    free = free_rate(mechanism, state, control)
    h = jnp.asarray(INSTANT, state.time.dtype)
    target = Instant(jnp.asarray(touch.reach, h.dtype), h)
    twist = with_world(body_twists(state))
    kinematics = system_kinematics(mechanism, state, free=free)

    def interval(time, twist):
        return Interval(h, control, time, twist, state.engagement)

    def laws(time):
        problem = row_problem(mechanism, kinematics, interval(time, twist), target, twist)
        return (problem.impulse, problem.augmented_stiffness), problem

    def speeds(state, time):
        kinematics = system_kinematics(mechanism, state, free=free)
        twist = with_world(body_twists(state))
        return row_rates(mechanism, kinematics, interval(time, twist), target, twist)

    # What linear laws give in a time from now on grows at the rate of their forces. What stiffness
    # there is in no time is an armature's.
    _, (push, resistance), whole = jax.jvp(laws, (h,), (jnp.ones_like(h),), has_aux=True)
    push = push - resistance * coordinate_rows(whole, whole.rate)
    # The rows' speeds change at the rate G a + Ġ v, that of tree joints at none.
    _, rate = jax.jvp(speeds, (state, h), (free, jnp.ones_like(h)))
    push = with_coordinate_rows(whole.structure, jnp.zeros_like(rate), push)
    at = mechanism, kinematics, state, interval(h, twist), target
    rows = assembled(*at, tree=tree_of(solver, mechanism.system), rate=rate, push=push)
    rate, speed, push = (of_plan(rows.plan, x) for x in (rate, whole.rate, push))
    if rows.held is not None:
        # Coordinates of tree joints have been pushed with the bodies.
        push = push.at[:, rows.plan.structure.way.nodes :].set(0.0)
    problem, rate = rows.problem, rate + rows.row_speeds()
    rate = jnp.where(problem.compliance > 0, speed / h, rate)
    u, push = (coordinate_rows(problem, x) for x in (speed, push))
    problem, soft = _forces(replace(problem, rate=rate, impulse=push), u, h, touch)
    rows, solution = replace(rows, problem=problem), solver.solve(problem)
    changed = with_twists(state, free, rows.twists(solution.impulse))
    problem, found = with_reactions(mechanism, kinematics, rows, solution)
    known = of_all_rows(rows.plan, replace(solution, bounded=of_bounds(soft))).bounded
    return changed, kinematics, problem, replace(found, bounded=found.bounded + known)


def impact(
    mechanism: Mechanism,
    state: State,
    control: Control,
    solver: Solver,
    touch: Touch = TOUCHING,
) -> tuple[State, Kinematics, RowProblem, RowSolution]:
    """The state after an impact without bounce, in which bodies do not move, and its impulses.

    Returns: the state; its joint kinematics; problem and solution
    """
    h = jnp.asarray(INSTANT, state.time.dtype)
    target = Instant(jnp.asarray(touch.reach, h.dtype), h)
    kinematics, twist = system_kinematics(mechanism, state), with_world(body_twists(state))
    interval = Interval(h, control, h, twist, state.engagement)
    tree = tree_of(solver, mechanism.system)
    rows = assembled(mechanism, kinematics, state, interval, target, twist, tree=tree)
    bounds = [
        replace(b, present=jnp.where(b.bias > 0, 0.0, b.present)) if b.upper is None else b
        for b in rows.problem.bounds
    ]
    rows = replace(rows, problem=replace(rows.problem, bounds=tuple(bounds)))
    solution = solver.solve(rows.problem)
    state = with_twists(state, state, rows.twists(solution.impulse) - twist[:, :-1])
    return state, kinematics, *with_reactions(mechanism, kinematics, rows, solution)


def _forces(
    problem: RowProblem, u: Array, h: Array, touch: Touch
) -> tuple[RowProblem, list[Array]]:
    """The problem whose bounds are forces, and the part of these that is known: of soft stops.

    problem: with accelerations for speeds; u: speeds of the coordinate rows
    """
    known = [_soft_force(bound, u, h) for bound in problem.bounds]
    pairs = zip(problem.bounds, known, strict=True)
    problem = replace(problem, impulse=sum((b.sign * f for b, f in pairs), problem.impulse))
    sliding = SLIDING * (1 + _largest_acceleration(problem))
    bounds = [
        _stop(bound, u, touch) if bound.upper is None else _box(bound, u, h, touch, sliding)
        for bound in problem.bounds
    ]
    return replace(problem, bounds=tuple(bounds)), known


def _largest_acceleration(problem: RowProblem) -> Array:
    """Of all rows by what is known, without the forces to be found, shape (*batch)."""
    A = coordinate_rows(problem, diagonal(problem))
    pushed = jnp.max(A * jnp.abs(problem.impulse), axis=0, initial=0.0)
    return stop_gradient(jnp.max(jnp.abs(problem.rate), axis=(0, 1), initial=0.0) + pushed)


def _soft_force(bound: Bound, u: Array, h: Array) -> Array:
    """The force of a soft stop, 0 of what is hard or has bounds on both sides."""
    soft = bound.compliance > 0
    if bound.upper is not None:
        return jnp.zeros_like(bound.bias)
    # Protects the division where the stop is hard.
    compliance = h * jnp.where(soft, bound.compliance, 1.0)
    force = bound.present * jnp.maximum(-(bound.sign * u + bound.bias) / compliance, 0.0)
    return jnp.where(soft, force, 0.0)


def _stop(bound: Bound, u: Array, touch: Touch) -> Bound:
    """A stop at accelerations: what is soft exerts no more force than is known."""
    left = bound.sign * u + bound.bias > touch.creep
    held = jnp.where((bound.compliance > 0) | left, 0.0, bound.present)
    none = jnp.zeros_like(bound.bias)
    return replace(bound, bias=none, compliance=none, present=held)


def _box(bound: Bound, u: Array, h: Array, touch: Touch, sliding: Array) -> Bound:
    """A force between two bounds at accelerations; sliding: a large acceleration."""
    slip = bound.sign * u + bound.bias
    sliding = jnp.where(jnp.abs(slip) > touch.creep, sliding[None] * jnp.sign(slip), 0.0)
    bias = jnp.where(bound.compliance > 0, slip / h, sliding)
    return replace(bound, bias=bias, lower=bound.lower / h, upper=bound.upper / h)


def free_rate(mechanism: Mechanism, state: State, control: Control) -> State:
    """How a state changes in time without the forces of rows."""
    system = mechanism.system
    q, omega = state.quaternion, state.omega
    inverse = mechanism.inverse_inertia[:, :, :-1]
    in_body = quat_rotate_inverse(q, omega)
    torque = cross(matvec(system.inertia, in_body), in_body)
    pull = jnp.broadcast_to(system.gravity[:, None], omega.shape)
    wrench = external_wrench(mechanism, state, control, jnp.zeros((), omega.dtype))
    if wrench is not None:
        pull = pull + mechanism.inverse_mass[None, :-1] * wrench[:3]
        torque = torque + quat_rotate_inverse(q, wrench[3:])
    moving = moving_bodies(mechanism.system, state.time.ndim)[None]
    turn = jnp.concatenate([jnp.zeros_like(omega[:1]), omega])
    rate = replace(
        jax.tree.map(jnp.zeros_like, state),
        position=state.velocity,
        quaternion=0.5 * quat_multiply(turn, q),
        velocity=jnp.where(moving, pull, 0.0),
        omega=quat_rotate(q, matvec(inverse, torque)),
        time=jnp.ones_like(state.time),
    )
    kinematics, one = system_kinematics(mechanism, state), jnp.ones((), omega.dtype)
    push = effort_impulse(mechanism, kinematics, control.effort, one)
    return with_twists(state, rate, push[:, :-1])


def with_twists(state: State, rate: State, change: Array) -> State:
    """A rate, or a state, with twists (6, bodies, *batch) in body axes of the state added."""
    q = state.quaternion
    return replace(
        rate,
        velocity=rate.velocity + quat_rotate(q, change[:3]),
        omega=rate.omega + quat_rotate(q, change[3:]),
    )
