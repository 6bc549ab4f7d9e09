"""Time stepping: from the state at the start of a step to the state at its end."""

from typing import Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .blocks import inverse, materialize, multiply
from .constraints import (
    effort_impulse,
    flat_impulses,
    joint_impulses,
    projection_problem,
    row_problem,
    start_impulses,
)
from .external import external_wrench
from .kinematics import (
    JointPlaces,
    Mechanism,
    body_twists,
    gather_coordinates,
    joint_places,
    quaternion_components,
    speeds_along,
    transmission_rows,
    with_world,
    wrenches_on_bodies,
)
from .layout import layout
from .node_rows import engagements
from .pytree import replace, static, struct
from .solve.factor import Factor
from .solve.newton import Newton, solve_again
from .solve.problem import TOLERATED, RowProblem, RowSolution, Solver, body_velocities
from .spatial import (
    cross,
    matvec,
    quat_from_rotation_vector,
    quat_integrate_linearized,
    quat_multiply,
    quat_normalize,
    quat_rotate,
    quat_rotate_inverse,
    skew,
)
from .stages import velocity_problem
from .system import Control, Info, State

NEWTON = Newton()


class Scheme(Protocol):
    """What takes a mechanism from one state to the next: a frozen record of its settings.

    One that has `examine(system, state, dt)` is asked by `rollout` whether they suit each other.
    One that has `at_solution()` returns there a scheme of the same derivative that takes the
    impulses of a state for those that solve its step (of one made before), or None.
    """

    def advance(
        self, mechanism: Mechanism, state: State, control: Control, dt: Array
    ) -> tuple[State, Info]:
        """One step of dt [s]; all arrays with the batch axes of the mechanism, quaternions of
        length 1.
        """
        ...


@struct
class SemiImplicitEuler:
    """Semi-implicit Euler with ERP, ODE's scheme: new velocities, then positions from them.

    solver: what finds the impulses; `Newton(smoothing=ν)` lets gradients feel bounds
    projections: steps that move positions back on the joints' surfaces after each step, along the
        rows of its start, whose factor they share: each leaves about h ω of the error, ω the speed
        at which bodies turn
    gyroscopic: "transport" carries angular momentum along, conserving it to rounding; "implicit" is
        ODE's term, "explicit" the plain one, both of first order; "none" leaves it out
    rotation: "exponential" turns bodies by exp(h ω); "linearized" is ODE's update
    curvature: rows turn along in the step, G v⁺ + h Ġ v = 0, as in ArtiSynth; else G v⁺ = 0
    """

    solver: Solver = NEWTON
    projections: int = static(default=0)
    gyroscopic: Literal["transport", "implicit", "explicit", "none"] = static(default="transport")
    rotation: Literal["exponential", "linearized"] = static(default="exponential")
    curvature: bool = static(default=False)

    def advance(
        self, mechanism: Mechanism, state: State, control: Control, dt: Array
    ) -> tuple[State, Info]:
        """See `Scheme.advance`."""
        places = joint_places(mechanism, state, transport=self.gyroscopic == "transport")
        free = free_twists(mechanism, state, control, dt, gyroscopic=self.gyroscopic)
        if control.effort is not None:
            free = free + effort_impulse(mechanism, places, control.effort, dt)
        plan = layout(mechanism.system)
        solution = None
        twist = free[:, :-1]
        if plan.structure is not None:
            before = with_world(body_twists(state))
            problem = row_problem(
                mechanism, places, free, dt, control, before, engagement=state.engagement
            )
            if self.curvature:
                problem = replace(problem, rate=problem.rate + dt * _turning(mechanism, state))
            solution = self.solver.solve(problem, start_impulses(plan, state.impulse))
            twist = materialize(twist + body_velocities(problem, solution.impulse))
        new = _moved(self, mechanism, state, twist, dt)
        q = gather_coordinates(mechanism, [place.rows.q for place in places], state)
        new = replace(new, q=q)
        if plan.bounds:
            new = replace(new, impulse=flat_impulses(plan, solution))
        if plan.engages:
            new = _engaged(mechanism, new)
        for _ in range(self.projections if plan.structure is not None else 0):
            new = projected(mechanism, new, problem, solution.factors)
        return new, step_info(mechanism, places, solution, twist, new, q, dt)

    def at_solution(self) -> "SemiImplicitEuler | None":
        """See `Scheme`."""
        solver = getattr(self.solver, "at_solution", lambda: None)()
        return None if solver is None else replace(self, solver=solver)


def projected(
    mechanism: Mechanism,
    state: State,
    along: RowProblem | None = None,
    factors: Factor | None = None,
) -> State:
    """State moved by one Newton step towards the joints' surfaces, by the least M-weighted motion.

    Displacements M⁻¹ Gᵀ λ with A λ = -φ; velocities stay as they are.

    along: a problem nearby whose rows serve instead of new ones; factors: of its matrix, which
        serve too where only linear laws give way
    """
    places = joint_places(mechanism, state)
    problem = projection_problem(mechanism, places, along, state.engagement)
    if factors is not None and layout(mechanism.system).rigid:
        impulse = solve_again(along, factors, problem.rate)
    else:
        impulse = NEWTON.solve(problem).impulse
    shift = body_velocities(problem, impulse)
    q = quaternion_components(state)
    return replace(
        state,
        position=state.position + quat_rotate(q, shift[:3]),
        quaternion=quat_normalize(quat_multiply(q, quat_from_rotation_vector(shift[3:]))),
    )


def free_twists(
    mechanism: Mechanism,
    state: State,
    control: Control,
    dt: Array,
    *,
    gyroscopic: str = "transport",
) -> Array:
    """Twists in body axes after dt without impulses of rows, (6, bodies + 1, *batch).

    gyroscopic: as in `SemiImplicitEuler`; "transport" leaves the turning of ω to the motion
    """
    system = mechanism.system
    moving = moving_bodies(mechanism, state)
    q = quaternion_components(state)
    given = body_twists(state)
    inertia = system.inertia
    linear, omega = given[:3], given[3:]
    spin = matvec(inertia, omega)
    if gyroscopic == "implicit":
        # (I - h [L]ₓ)⁻¹ L: ODE's implicit gyroscopic term (Lacoursière) in body axes.
        omega = materialize(multiply(inverse(inertia - dt * skew(spin)), spin))
    elif gyroscopic == "explicit":
        omega = omega - dt * matvec(mechanism.inverse_inertia[:, :, :-1], cross(omega, spin))
    push = jnp.broadcast_to(dt * system.gravity[:, None], linear.shape)
    wrench = external_wrench(mechanism, state, control, dt)
    if wrench is not None:
        inverse_mass = mechanism.inverse_mass[None, :-1]
        force, torque = wrench[:3], quat_rotate_inverse(q, wrench[3:])
        push = push + dt * inverse_mass * force
        omega = omega + dt * matvec(mechanism.inverse_inertia[:, :, :-1], torque)
    linear = linear + quat_rotate_inverse(q, push)
    twist = jnp.concatenate([linear, omega], axis=0)
    prescribed = given
    still = [i for i, moves in enumerate(system.topology.moving) if not moves]
    if control.twist is not None and still:
        at = np.array(still)
        turn = [x[at] for x in q]
        wanted = jnp.concatenate(
            [
                quat_rotate_inverse(turn, control.twist[:3]),
                quat_rotate_inverse(turn, control.twist[3:]),
            ]
        )
        prescribed = prescribed.at[:, at].set(wanted)
    if still:
        twist = jnp.where(moving, twist, prescribed)
    return with_world(twist)


def _engaged(mechanism: Mechanism, state: State) -> State:
    """State in which limits have engaged or let go, at the end of a step."""
    places = joint_places(mechanism, state)
    twist = with_world(body_twists(state))
    return replace(state, engagement=engagements(mechanism, places, twist, state.engagement))


def _turning(mechanism: Mechanism, state: State) -> Array:
    """Ġ v: rates of the rows' speeds while bodies move on, (rows, nodes, *batch)."""

    def speeds(state):
        twist = with_world(body_twists(state))
        places = joint_places(mechanism, state)
        return velocity_problem(mechanism, places, twist, now, Control()).rate

    time, now = state.time, jnp.zeros((), state.time.dtype)
    still = jax.tree.map(jnp.zeros_like, state)
    spin = jnp.concatenate([jnp.zeros_like(state.omega[:1]), state.omega])
    turn = 0.5 * quat_multiply(spin, state.quaternion)
    moving = replace(still, position=state.velocity, quaternion=turn, time=jnp.ones_like(time))
    return jax.jvp(speeds, (state,), (moving,))[1]


def _moved(
    scheme: SemiImplicitEuler, mechanism: Mechanism, state: State, twist: Array, dt: Array
) -> State:
    """State after moving for dt at constant twists in body axes of the start."""
    q = quaternion_components(state)
    velocity = quat_rotate(q, twist[:3])
    omega_body = twist[3:]
    turn = quat_from_rotation_vector(dt * omega_body)
    if scheme.rotation == "linearized":
        quaternion = quat_integrate_linearized(state.quaternion, quat_rotate(q, omega_body), dt)
    else:
        quaternion = quat_normalize(quat_multiply(q, turn))
    omega = quat_rotate(q, omega_body)
    if scheme.gyroscopic == "transport":
        # The angular momentum stays where it is in the world while the body turns under it.
        spin = quat_rotate(q, matvec(mechanism.system.inertia, omega_body))
        carried = matvec(
            mechanism.inverse_inertia[:, :, :-1], quat_rotate_inverse(quaternion, spin)
        )
        turned = quat_rotate(*materialize((quaternion, carried)))
        moving = moving_bodies(mechanism, state)
        omega = turned if moving.all() else jnp.where(moving, turned, omega)
    return replace(
        state,
        position=state.position + dt * velocity,
        quaternion=quaternion,
        velocity=velocity,
        omega=omega,
        time=state.time + dt,
    )


def step_info(
    mechanism: Mechanism,
    places: tuple[JointPlaces, ...],
    solution: RowSolution | None,
    twist: Array,
    new: State,
    q: Array,
    dt: Array,
) -> Info:
    """What the step did; unused parts cost nothing once compiled."""
    system = mechanism.system
    batch = new.time.shape
    zero = jnp.zeros(batch, dt.dtype)
    errors, qd = [zero], []
    twist = with_world(twist)
    for group, place in zip(system.groups, places, strict=True):
        k = group.coupling.dof
        if k < 6:
            error = jnp.abs(place.rows.error)
            if group.enabled is not None:
                error = jnp.where(group.enabled[None] > 0, error, 0.0)
            worst = jnp.max(error, axis=(0, 1))
            errors.append(jnp.broadcast_to(worst, batch))
        if k == 0:
            qd.append(place.rows.q)
            continue
        child, parent = wrenches_on_bodies(group, place, range(6 - k, 6))
        qd.append(speeds_along(group, child, parent, twist))
    for group in system.transmissions:
        if group.held:
            value, _ = transmission_rows(mechanism, group, places)
            worst = jnp.max(jnp.abs(value[np.array(group.held)]), axis=(0, 1))
            errors.append(jnp.broadcast_to(worst, batch))
    if solution is None:
        wrench = jnp.zeros((6, len(system.topology.joints), *batch), dt.dtype)
        law_force, residual, size = jnp.zeros_like(q), zero, zero
        values = jnp.zeros((0, *batch), dt.dtype)
    else:
        impulse, by_coordinate, values = joint_impulses(mechanism, places, solution.impulse)
        wrench, values = impulse / dt, values / dt
        law_force = gather_coordinates(mechanism, by_coordinate, new) / dt
        residual = jnp.broadcast_to(solution.residual, batch)
        size = jnp.broadcast_to(solution.size, batch)
    return Info(
        ok=residual <= TOLERATED[dt.dtype.itemsize] * (1 + size),
        residual=residual,
        error=jnp.max(jnp.stack(errors), axis=0),
        q=q,
        qd=gather_coordinates(mechanism, qd, new),
        wrench=wrench,
        law_force=law_force,
        transmission_force=values,
    )


def moving_bodies(mechanism: Mechanism, state: State) -> np.ndarray:
    """True for bodies that obey forces, shape (1, bodies, *1)."""
    moving = np.array(mechanism.system.topology.moving)
    return moving.reshape((1, -1) + (1,) * state.time.ndim)
