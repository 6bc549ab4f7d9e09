"""Time stepping: from the state at the start of a step to the state at its end."""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import materialize
from ..algebra.options import check_choice, check_count, check_kind
from ..algebra.pytree import replace, static, struct
from ..algebra.spatial import (
    matvec,
    quat_from_rotation_vector,
    quat_integrate_linearized,
    quat_multiply,
    quat_normalize,
    quat_rotate,
    quat_rotate_inverse,
)
from ..assembly.engagement import next_engagement
from ..assembly.group_rows import Interval
from ..assembly.impulses import row_forces, start_impulses, with_reactions
from ..assembly.layout import layout
from ..assembly.problem import assembled, row_rates
from ..assembly.targets import Step, SurfaceVelocity
from ..model.articulation import NO_TREE, articulated, articulation, velocity_products
from ..model.kinematics import (
    Mechanism,
    body_twists,
    joint_coordinates,
    moving_bodies,
    quaternion_components,
    system_kinematics,
    with_world,
)
from ..model.state import Control, Info, State
from ..model.system import System
from ..solve.problem import Solver
from .free_motion import free_velocity
from .projection import projected_along
from .scheme import NEWTON, Scheme, step_info

Gyroscopic = Literal["transport", "implicit", "explicit", "none"]
Rotation = Literal["exponential", "linearized"]
Joints = Literal["coordinates", "rows"]


@struct
class SemiImplicitEuler(Scheme):
    """Semi-implicit Euler: new velocities, then positions from them.

    solver: what finds the impulses; `Newton(smoothing=ν)` lets gradients feel bounds
    projections: steps that move positions back on the joints' surfaces after each step, along the
        rows of its start, whose factor they share: each leaves about h ω of the error, ω the speed
        at which bodies turn
    joints: what holds them. "coordinates": joints that make a tree (see `articulation`) are
        displaced by their own speeds, ν⁺ = ν + h ν̇ with the acceleration ν̇ where the step starts,
        and bodies follow, as in MuJoCo, Drake and Pinocchio. Such joints do not gape, their
        velocities are on their surfaces, and a wheel keeps its speed. Loops, contacts and whatever
        else connects bodies are rows with ERP and CFM. The gyroscopic terms are explicit: the
        energy of a body that tumbles on a joint, at a rate Ω of its nutation, grows by a share of
        about h Ω²/2 in a second. "rows": bodies move one by one and rows pull them back onto their
        joints, as in ODE and ArtiSynth. This conserves the momenta of what floats freely to
        rounding, and brakes what turns about an axis off its centre of mass by a share of order
        (h ω)² in each step

    The following belong to "rows"; "coordinates" takes the defaults alone:

    gyroscopic: "transport" carries angular momentum along, conserving it to rounding; "implicit" is
        ODE's term, "explicit" the plain one, both of first order; "none" leaves it out
    rotation: "exponential" turns bodies by exp(h ω); "linearized" is ODE's update
    curvature: rows turn along in the step, G v⁺ + h Ġ v = 0, as in ArtiSynth; else G v⁺ = 0.
        Loops that turn fast gain energy by it or come apart, with a projection besides they diverge

    Raises: ValueError for an unknown choice, and for one that belongs to rows beside "coordinates"
    """

    solver: Solver = NEWTON
    projections: int = static(default=0)
    joints: Joints = static(default="coordinates")
    gyroscopic: Gyroscopic = static(default="transport")
    rotation: Rotation = static(default="exponential")
    curvature: bool = static(default=False)

    def __post_init__(self):
        check_kind("SemiImplicitEuler", "solver", self.solver, Solver, "Newton()")
        check_count("SemiImplicitEuler", "projections", self.projections)
        check_choice("SemiImplicitEuler", "gyroscopic", self.gyroscopic, get_args(Gyroscopic))
        check_choice("SemiImplicitEuler", "rotation", self.rotation, get_args(Rotation))
        check_choice("SemiImplicitEuler", "joints", self.joints, get_args(Joints))
        by_rows = {"gyroscopic": "transport", "rotation": "exponential", "curvature": False}
        for field, default in by_rows.items():
            if self.joints == "coordinates" and (value := getattr(self, field)) != default:
                raise ValueError(
                    f"SemiImplicitEuler: {field} {value!r} belongs to joints='rows'; take that, or "
                    f"leave {field} out"
                )
        if self.joints == "coordinates" and not self.solver.by_bodies:
            raise ValueError(
                f"SemiImplicitEuler: {type(self.solver).__name__} moves bodies row by row; take "
                "joints='rows', or Newton()"
            )

    def advance(
        self, mechanism: Mechanism, state: State, control: Control, dt: Array
    ) -> tuple[State, Info]:
        """See `Scheme.advance`."""
        kinematics = system_kinematics(mechanism, state, transport=self.gyroscopic == "transport")
        free = free_velocity(mechanism, kinematics, state, control, dt, gyroscopic=self.gyroscopic)
        tree = articulation(mechanism.system) if self.joints == "coordinates" else NO_TREE
        now = with_world(body_twists(state))
        interval = Interval(dt, control, twist=now, engagement=state.engagement)
        # Rows see w = v⁺ - h b, the velocity of the coordinates alone.
        bent = dt * velocity_products(mechanism, tree, kinematics, state) if tree.branches else None
        at = mechanism, kinematics, state, interval, Step(), free
        rows = assembled(*at, tree=tree, bent=bent)
        if self.curvature:
            rate = rows.problem.rate + dt * _turning(mechanism, state)
            rows = replace(rows, problem=replace(rows.problem, rate=rate))
        plan, problem = rows.plan, rows.problem
        solution = self.solver.solve(problem, start_impulses(state, dt, plan))
        twist = materialize(rows.twists(solution.impulse))
        new = _moved(self, mechanism, state, twist, dt)
        turn = quaternion_components(state)
        twist = jnp.concatenate([quat_rotate(turn, x) for x in (twist[:3], twist[3:])])
        new = articulated(mechanism, tree, kinematics, state, dt * twist, twist, new)
        q = joint_coordinates(mechanism, kinematics, state)
        new = replace(new, q=q, row_forces=row_forces(mechanism.system, solution, dt, plan))
        new = replace(new, engagement=next_engagement(mechanism, new))
        for _ in range(self.projections):
            new = projected_along(mechanism, tree, plan, new, problem, solution.factors)
        problem, solution = with_reactions(mechanism, kinematics, rows, solution)
        return new, step_info(mechanism, kinematics, problem, solution, new, dt)

    def examine(self, system: System, state: State, dt: Array) -> None:
        """Raises ValueError for a tree joint that was given CFM after the build."""
        if self.joints == "rows":
            return
        tree = {branch.joint for branch in articulation(system).branches}
        for group in system.groups:
            for i, joint in enumerate(group.joints):
                if joint in tree and np.any(np.asarray(group.cfm[:, i]) > 0):
                    name = system.topology.joints[joint]
                    raise ValueError(
                        f"SemiImplicitEuler: joint {name!r} was built rigid and got cfm > 0 after; "
                        "build it with tree=False, or with its cfm, or take "
                        "SemiImplicitEuler(joints='rows')"
                    )

    def ends_on_surfaces(self, system: System) -> bool:
        """See `Scheme.ends_on_surfaces`: tree joints are, what closes loops is not."""
        return self.joints == "coordinates" and articulation(system).complete

    def at_solution(self, system: System) -> "SemiImplicitEuler | None":
        """See `Scheme.at_solution`."""
        solver = self.solver.at_solution(layout(system).follows)
        return None if solver is None else replace(self, solver=solver)


def _turning(mechanism: Mechanism, state: State) -> Array:
    """Ġ v: rates of the rows' speeds while bodies move on, (rows, nodes, *batch)."""

    def speeds(state):
        twist, kinematics = with_world(body_twists(state)), system_kinematics(mechanism, state)
        return row_rates(mechanism, kinematics, interval, target, twist)

    no_time, target = jnp.zeros((), state.time.dtype), SurfaceVelocity(holds_soft=True)
    interval = Interval(jnp.ones_like(no_time), force_time=no_time)
    still = jax.tree.map(jnp.zeros_like, state)
    spin = jnp.concatenate([jnp.zeros_like(state.omega[:1]), state.omega])
    turn = 0.5 * quat_multiply(spin, state.quaternion)
    moving = replace(
        still, position=state.velocity, quaternion=turn, time=jnp.ones_like(state.time)
    )
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
        moving = moving_bodies(mechanism.system, state.time.ndim)[None]
        omega = turned if moving.all() else jnp.where(moving, turned, omega)
    return replace(
        state,
        position=state.position + dt * velocity,
        quaternion=quaternion,
        velocity=velocity,
        omega=omega,
        time=state.time + dt,
    )
