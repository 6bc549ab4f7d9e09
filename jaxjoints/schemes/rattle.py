"""RATTLE: two half kicks about a motion that ends on the joints' surfaces.

From twists v₀ at poses x₀, with M the masses, f the forces and H the wrenches of all rows,

    M v½ = M v₀ + (h/2) f(x₀) + H(x₀)ᵀ Λ,    x₁ = x₀ moved by v½ for h,    φ(x₁) = 0,
    M v₁ = M v½ + (h/2) f(x₁) + H(x₁)ᵀ Λ',    H(x₁) v₁ = 0.

Between the kicks a body carries its momenta along. Its rotation is that of a discrete Lagrangian,
(h/2) ξᵀ I ξ with R₁ = R₀ exp(h ξ), whose momentum at the start,

    Π = J(h ξ)⁻¹ I ξ,    J the right Jacobian of the exponential map,

determines ξ. All of it is symmetric in time and symplectic, so of second order, and energy stays
near its start. Springs and dampers push at both kicks with what they have halfway, a midpoint rule.

Source: Andersen 1983; Reich 1996; Hairer, Lubich & Wanner, Geometric Numerical Integration, VII.5.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.compiler import materialize
from ..algebra.options import check_count, check_kind
from ..algebra.pytree import replace, static, struct
from ..algebra.rotation import jacobian_inverse_coefficient
from ..algebra.spatial import (
    cross,
    dot,
    matvec,
    quat_from_rotation_vector,
    quat_multiply,
    quat_normalize,
    quat_rotate,
    quat_rotate_inverse,
)
from ..assembly.group_rows import Interval
from ..assembly.impulses import row_forces, start_impulses
from ..assembly.problem import row_problem, row_values
from ..assembly.targets import EndPosition, SurfaceVelocity
from ..laws.law import Law
from ..model.kinematics import (
    Kinematics,
    Mechanism,
    joint_coordinates,
    moving_bodies,
    system_kinematics,
)
from ..model.state import Control, Info, State
from ..solve.bodies import RowFactor
from ..solve.forces import Latch
from ..solve.linear import solve_with
from ..solve.problem import (
    Impulses,
    RowProblem,
    RowSolution,
    Solver,
    bare_laws,
    body_velocities,
    coordinate_rows,
    delassus,
    diagonal,
    of_bounds,
    residual,
    row_speeds,
    trailing,
)
from .free_motion import free_velocity
from .scheme import NEWTON, Scheme, check_laws, step_info

# Newton steps for the mean angular velocity of a body: the first leaves (h ω)³, each squares that.
TURNS = 3
# Residual of the first kick above which a step has failed, as a share of the speeds that cancel.
CLOSED = 1e-4
# Roundings of a position that a gap at the end of a step may have.
ROUNDINGS = 8


@struct
class Rattle(Scheme):
    """RATTLE on SE(3): second order and symplectic, loops closed at the end of each step.

    A hard stop keeps 0 ≤ λ ⊥ φ(x₁) ≥ 0, and one that pushed lets no velocity in at the end; second
    order is meant between impacts. Springs and dampers are midpoint rules, stable at any stiffness;
    damping beyond 2 m/h makes velocities alternate in sign. Dry friction acts in both kicks. Rows
    softened by CFM are as in `SemiImplicitEuler`, of first order: with any CFM > 0 a row gives way
    as its ERP says, with none it is closed at the end of each step, and the outcome jumps between
    the two. A derivative by a CFM of 0 is that of the closed row, as if its impulses began to give
    way and its ERP still had no part; it says nothing of rows with a small CFM. Laws that read the
    speed at the start of the step (armatures, stops that bounce) and locks that can be opened have
    no rule here.

    solver: what finds the impulses
    iterations: steps towards the surfaces, all with the matrix of the start: each leaves about h ω
        of the error, ω the speed at which bodies turn

    >>> from jaxjoints import SystemBuilder, step
    >>> world = SystemBuilder(gravity=(0.0, 0.0, -10.0))
    >>> _ = world.body("ball", mass=1.0, inertia=(0.1, 0.1, 0.1))
    >>> state, _ = step(*world.build(), dt=0.5, scheme=Rattle())
    >>> print(state.position[2, 0])  # -g h²/2
    -1.25
    """

    solver: Solver = NEWTON
    iterations: int = static(default=4)

    def __post_init__(self):
        check_kind("Rattle", "solver", self.solver, Solver, "Newton()")
        check_count("Rattle", "iterations", self.iterations, 1)

    def advance(
        self, mechanism: Mechanism, state: State, control: Control, dt: Array
    ) -> tuple[State, Info]:
        check_laws("Rattle", mechanism.system, _without_rule, "use SemiImplicitEuler")
        kinematics = system_kinematics(mechanism, state)
        state = replace(state, q=joint_coordinates(mechanism, kinematics, state))
        interval = Interval(dt, control, force_time=dt / 2)
        stage = _Stage(
            mechanism=mechanism,
            state=state,
            free=free_velocity(mechanism, kinematics, state, control, dt / 2),
            problem=row_problem(mechanism, kinematics, interval, EndPosition(dt)),
            values=row_values(mechanism, kinematics),
            solver=self.solver,
            dt=dt,
        )
        start, stage = _begun(stage)
        impulses = _closed(self.iterations, start, stage)
        new, after = _reached(stage, impulses[0])
        first_kick = _solution(stage, impulses, after)

        free = free_velocity(mechanism, after, new, control, dt / 2)
        problem = _second_stage(stage, impulses, after, free, control)
        second_kick = self.solver.solve(problem)
        twist = free[:, :-1] + body_velocities(problem, second_kick.impulse)
        new = _ended(mechanism, new, after, twist)
        forces = jax.lax.stop_gradient(row_forces(mechanism.system, first_kick, dt))
        new = replace(new, row_forces=forces)
        first = step_info(mechanism, kinematics, stage.problem, first_kick, new, dt)
        second = step_info(mechanism, after, problem, second_kick, new, dt)
        farthest = 1 + jnp.max(jnp.abs(new.position), axis=(0, 1), initial=0.0)
        rounding = ROUNDINGS * jnp.finfo(dt.dtype).eps * farthest / dt
        closed = first_kick.residual <= CLOSED * (1 + first_kick.size) + rounding
        info = replace(
            second,
            ok=second.ok & closed,
            residual=jnp.maximum(first.residual, second.residual),
            error=first.error,
            cause=first.cause,
            wrench=first.wrench + second.wrench,
            law_force=first.law_force + second.law_force,
            limit_force=first.limit_force + second.limit_force,
            transmission_force=first.transmission_force + second.transmission_force,
            constraint_force=first.constraint_force + second.constraint_force,
        )
        return new, info


def _without_rule(law: Law) -> bool:
    return law.kind is Latch or law.needs_speed or law.engagement is not None


@struct
class _Stage:
    """What the impulses of the first kick depend on.

    state: at the start, with its coordinates; free: twists after the kick without impulses
    problem: rows at the start that aim at the end positions; values: of the rows at the start
    factors: of the problem's matrix, None where laws are bounded
    """

    mechanism: Mechanism
    state: State
    free: Array
    problem: RowProblem
    values: Array
    solver: Solver
    dt: Array
    factors: RowFactor | None = None


def _begun(stage: _Stage) -> tuple[Impulses, _Stage]:
    """Impulses to begin with, and the stage with its factors: those of the last step where laws are
    bounded, else those that speeds at the end of the kick ask for.
    """
    start = start_impulses(stage.state, stage.dt)
    if start is not None:
        return start, stage
    rate = stage.problem.rate + row_speeds(stage.problem, stage.free)
    solution = stage.solver.solve(replace(stage.problem, rate=rate))
    return (solution.impulse, of_bounds([])), replace(stage, factors=solution.factors)


def _reached(stage: _Stage, impulse: Array) -> tuple[State, Kinematics]:
    """Where the mechanism is after the motion that impulses of the first kick begin."""
    twist = stage.free.at[:, :-1].add(body_velocities(stage.problem, impulse))
    return _moved(stage.mechanism, stage.state, twist, stage.dt)


def _means(stage: _Stage, impulse: Array, after: Kinematics) -> Array:
    """Mean speeds of the rows over a step that ends at places, less what hard rows ask for."""
    problem = stage.problem
    change = (row_values(stage.mechanism, after) - stage.values) / stage.dt
    if problem.structure.without_error:
        speed = row_speeds(problem, stage.free) + delassus(problem, impulse)
        has_error = trailing(problem.structure.has_error, speed) > 0
        change = jnp.where(has_error, change, speed)
    return problem.rate + change


def _closer(stage: _Stage, at: Impulses) -> Impulses:
    """One step towards the surfaces: the rows as they are at the start, with mean speeds that are
    right at the impulses `at`.
    """
    impulse, _ = at
    _, after = _reached(stage, impulse)
    rate = _means(stage, impulse, after) - delassus(stage.problem, impulse)
    problem = replace(stage.problem, rate=rate)
    if stage.factors is not None:
        return solve_with(problem, stage.factors), of_bounds([])
    solution = stage.solver.solve(problem, at)
    return solution.impulse, solution.bounded


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _closed(iterations: int, start: Impulses, stage: _Stage) -> Impulses:
    """Impulses of the first kick after steps from `start`."""
    step = lambda at, _: (_closer(stage, at), None)  # noqa: E731
    return jax.lax.scan(step, start, None, length=iterations)[0]


@_closed.defjvp
def _closed_jvp(iterations: int, primals: tuple, tangents: tuple) -> tuple[Impulses, Impulses]:
    """Derivative of the implicit function by as many terms of its series as there were steps."""
    at = _closed(iterations, *primals)
    _, push = jax.linearize(_closer, primals[1], at)
    nothing = jax.tree.map(jnp.zeros_like, at)
    source = push(tangents[1], nothing)
    still = jax.tree.map(jnp.zeros_like, tangents[1])

    def term(change, _):
        return jax.tree.map(jnp.add, source, push(still, change)), None

    return at, jax.lax.scan(term, source, None, length=iterations)[0]


def _solution(stage: _Stage, at: Impulses, after: Kinematics) -> RowSolution:
    """The first kick and what it leaves of the rows' laws, errors at the end included."""
    means = _means(stage, at[0], after)
    rate = means - delassus(stage.problem, at[0])
    problem = replace(stage.problem, rate=rate)
    laws = bare_laws(problem, coordinate_rows(problem, at[0]), stage.solver.smoothing)
    packed = problem.packed(at) if problem.bounds else at
    return RowSolution(*at, *residual(problem, laws, packed, means))


def _second_stage(
    stage: _Stage,
    at: Impulses,
    after: Kinematics,
    free: Array,
    control: Control,
) -> RowProblem:
    """Rows of the second kick: those at the end, with the linear laws' impulses of the first and
    the stops that pushed in it.
    """
    impulse, bounded = at
    u = coordinate_rows(stage.problem, _means(stage, impulse, after))
    c = 1 / coordinate_rows(stage.problem, diagonal(stage.problem))
    linear = coordinate_rows(stage.problem, impulse)
    interval = Interval(jnp.ones_like(stage.dt), control, force_time=stage.dt / 2)
    problem = row_problem(stage.mechanism, after, interval, SurfaceVelocity(), free)
    bounds = []
    for bound, first, λ in zip(problem.bounds, stage.problem.bounds, bounded, strict=True):
        linear = linear - first.sign * λ
        if first.upper is None:
            pushed = λ > c * (first.sign * u + first.bias + first.compliance * λ)
            bound = replace(bound, present=jnp.where(pushed, bound.present, 0.0))
        bounds.append(bound)
    none = jnp.zeros_like(linear)
    return replace(problem, augmented_stiffness=none, impulse=linear, bounds=tuple(bounds))


def _moved(mechanism: Mechanism, state: State, twist: Array, dt: Array) -> tuple[State, Kinematics]:
    """State after a motion without forces for dt, from twists in body axes, and its
    joint kinematics.
    """
    linear, omega = twist[:3, :-1], twist[3:, :-1]
    q = state.quaternion
    moving = moving_bodies(mechanism.system, state.time.ndim)[None]
    mean = jnp.where(moving, _mean_omega(mechanism, omega, dt), omega)
    end = quat_normalize(quat_multiply(q, quat_from_rotation_vector(dt * mean)))
    velocity = quat_rotate(q, linear)
    spin = quat_rotate(q, matvec(mechanism.system.inertia, omega))
    carried = matvec(mechanism.inverse_inertia[:, :, :-1], quat_rotate_inverse(end, spin))
    turned = jnp.where(moving, quat_rotate(end, carried), quat_rotate(q, omega))
    state = replace(
        state,
        position=state.position + dt * velocity,
        quaternion=end,
        velocity=velocity,
        omega=turned,
        time=state.time + dt,
    )
    state = materialize(state)
    return state, system_kinematics(mechanism, state)


def _mean_omega(mechanism: Mechanism, omega: Array, dt: Array) -> Array:
    """ξ in body axes with J(h ξ)⁻¹ I ξ = I ω by Newton's method, shape (3, bodies, *batch)."""
    inertia, inverse = mechanism.system.inertia, mechanism.inverse_inertia[:, :, :-1]

    def better(mean, _):
        spin = matvec(inertia, mean)
        turn = cross(mean, spin)
        r = dt * mean
        bend = jacobian_inverse_coefficient(dot(r, r))[None] * cross(r, dt * turn)
        left = mean + matvec(inverse, 0.5 * dt * turn + bend) - omega
        unit = jnp.eye(3, dtype=mean.dtype).reshape(3, 3, *(1,) * (mean.ndim - 1))
        columns = [
            e + 0.5 * dt * matvec(inverse, cross(mean, matvec(inertia, e)) - cross(spin, e))
            for e in jnp.broadcast_to(unit, (3, *mean.shape))
        ]
        return mean - _solved(columns, left), None

    return jax.lax.scan(better, omega, None, length=TURNS)[0]


def _solved(columns: list[Array], right: Array) -> Array:
    """Solution of a system of three equations, near the identity."""
    a, b, c = columns
    across = cross(b, c)
    determinants = dot(right, across), dot(a, cross(right, c)), dot(a, cross(b, right))
    return jnp.stack(determinants) / dot(a, across)[None]


def _ended(mechanism: Mechanism, state: State, kinematics: Kinematics, twist: Array) -> State:
    """State with its coordinates, and twists in body axes."""
    return replace(
        state,
        velocity=quat_rotate(state.quaternion, twist[:3]),
        omega=quat_rotate(state.quaternion, twist[3:]),
        q=joint_coordinates(mechanism, kinematics, state),
    )
