"""Time stepping: from the state at the start of a step to the state at its end."""

from typing import Any, Literal, get_args

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
from ..assembly.problem import Assembly, assembled, row_rates
from ..assembly.targets import Flight, Step, SurfaceVelocity
from ..assembly.tree import closing
from ..model.articulation import (
    NO_TREE,
    Articulation,
    Motion,
    articulated,
    articulation,
    velocity_products,
)
from ..model.kinematics import (
    Kinematics,
    Mechanism,
    body_twists,
    moving_bodies,
    near_coordinates,
    quaternion_components,
    system_kinematics,
    with_world,
)
from ..model.state import Control, Info, State
from ..model.system import System
from ..solve.problem import Solver
from . import nearest
from .free_motion import free_velocity
from .impacts import both, hits_of, impacts, without_rebounds
from .instant import with_twists
from .projection import projected_along
from .scheme import NEWTON, Scheme, step_info

Gyroscopic = Literal["transport", "implicit", "explicit", "none"]
Rotation = Literal["exponential", "linearized"]
Joints = Literal["coordinates", "rows"]


@struct
class SemiImplicitEuler(Scheme):
    """Semi-implicit Euler: new velocities, then positions from them.

    solver: what finds the impulses; `Newton(smoothing=ν)` lets gradients feel bounds
    projections: number of projections after each step, which move positions back onto the joints.
        They use the rows and the factorization of the step. Each leaves a share of about h ω of the
        error, ω the speed at which bodies turn
    joints: what holds the joints of a tree (see `articulation`). "coordinates": the joints move by
        their own speeds, ν⁺ = ν + h ν̇ with the acceleration ν̇ at the start of the step, and
        bodies follow, as in MuJoCo, Drake and Pinocchio. The joints have no gaps, velocities
        satisfy the joints, and a wheel keeps its speed. Loops, contacts and all other connections
        are rows with ERP and CFM. Gyroscopic moments are explicit: the energy of a body that
        tumbles on a joint at the nutation rate Ω grows by a share of about h Ω²/2 per second.
        "rows": bodies move one by one and rows pull them back onto their joints, as in ODE and
        ArtiSynth. The momenta of freely floating mechanisms are conserved to rounding. A body that
        turns about an axis off its centre of mass loses a share of order (h ω)² of its speed in
        each step
    time_of_impact: True: bounces happen when a stop or contact with `restitution` is reached within
        a step: bodies move, hit, and move on. Derivatives are those of the motion in continuous
        time (the saltation matrix), exact under constant forces. Systems that can bounce take a
        second solve in each step. Several impacts in one step are exact if they do not act on each
        other; else gaps may open by the distance moved in a step. False: a bounce takes the whole
        step that would pass the stop, and derivatives leave out the time of the bounce. Stops
        without restitution, soft stops and stops that do not `anticipate` are the same in both
        cases

    The following are for "rows"; with "coordinates" leave the defaults:

    gyroscopic: "transport" conserves angular momentum to rounding; "implicit" is ODE's gyroscopic
        term, "explicit" the plain term, both of first order; "none" leaves the term out
    rotation: "exponential" turns bodies by exp(h ω); "linearized" is ODE's update
    curvature: rows turn along in the step, G v⁺ + h Ġ v = 0, as in ArtiSynth; else G v⁺ = 0. With
        it, loops that turn fast gain energy or come apart; with a projection too they diverge

    Raises: ValueError for an unknown choice, and for one that belongs to rows beside "coordinates"

    >>> from jaxjoints import SystemBuilder, step
    >>> world = SystemBuilder(gravity=(0.0, 0.0, -10.0))
    >>> _ = world.body("ball", mass=1.0, inertia=(0.1, 0.1, 0.1))
    >>> state, _ = step(*world.build(), dt=0.5, scheme=SemiImplicitEuler())
    >>> print(state.position[2, 0])  # -g h², with the new velocity
    -2.5
    """

    solver: Solver = NEWTON
    projections: int = static(default=0)
    joints: Joints = static(default="coordinates")
    gyroscopic: Gyroscopic = static(default="transport")
    rotation: Rotation = static(default="exponential")
    curvature: bool = static(default=False)
    time_of_impact: bool = static(default=False)

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
        kinematics = system_kinematics(mechanism, state, transport=self.gyroscopic == "transport")
        sets = nearest.sets_of(mechanism.system) if self._can_leave_out else None

        def solve(mechanism, kinematics, state):
            return self._advanced(mechanism, kinematics, state, control, dt)

        if sets is None:
            return solve(mechanism, kinematics, state)[:2]
        return nearest.advanced(mechanism, kinematics, state, dt, sets, solve)

    @property
    def _can_leave_out(self) -> bool:
        """Whether gap and new velocity say that a contact does not push. Smoothed contacts push at
        every distance; the others of these options have a second solve, or rows that turn along.
        """
        sharp = self.solver.by_bodies and self.solver.smoothing is None
        return sharp and not (self.time_of_impact or self.projections or self.curvature)

    def _advanced(
        self,
        mechanism: Mechanism,
        kinematics: Kinematics,
        state: State,
        control: Control,
        dt: Array,
    ) -> tuple[State, Info, Array]:
        """A step, and the twists that rows see in it, (6, bodies, *batch) in body axes."""
        tree = articulation(mechanism.system) if self.joints == "coordinates" else NO_TREE
        now = with_world(body_twists(state))
        rows = self._assembled(mechanism, tree, kinematics, state, control, dt)
        if self.curvature:
            rate = rows.problem.rate + dt * _turning(mechanism, state)
            rows = replace(rows, problem=replace(rows.problem, rate=rate))
        plan, problem = rows.plan, without_rebounds(rows.problem)
        solution = self.solver.solve(problem, start_impulses(state, dt, plan))
        closed = closing(mechanism, plan, kinematics, Interval(dt))
        motion, closed = materialize((rows.motion(solution.impulse), closed))
        forces = row_forces(mechanism.system, solution, dt, plan)
        hits = hits_of(rows, solution, now, dt)
        move, whole = (self, mechanism, tree), solution
        if hits is None:
            gone = _times(dt, (motion, closed))
            new, xi = _moved(*move, kinematics, state, *gone, motion)
        else:
            first = hits.first
            gone = _times(first, (motion, closed))
            new, xi = _moved(*move, kinematics, state, *gone, motion)
            new = replace(new, time=state.time + first[0, 0])
            after, impulses, (before, motion), left = impacts(
                mechanism, tree, self.solver, new, xi, hits, control, dt
            )
            # Forces that depend on velocities go on as they are after the impact.
            jumped = with_twists(new, new, motion.twists - before.twists)
            free = (
                self._assembled(mechanism, tree, after, x, control, dt).before
                for x in (new, jumped)
            )
            share = jnp.where(hits.some, 0.5 - first / dt, 0.0)
            gain = jax.tree.map(lambda f, g, v, w: (g - w) - (f - v), *free, before, motion)
            motion = jax.tree.map(jnp.add, motion, _times(share, gain))
            gone = left, _times(dt - first, closed)
            new, xi = _moved(*move, after, new, *gone, motion)
            whole = both(solution, impulses)
        q = near_coordinates(mechanism, kinematics, state, _times(dt, motion.twists))
        new = replace(new, q=q, time=state.time + dt, row_forces=forces)
        new = replace(new, engagement=next_engagement(mechanism, new))
        rows = replace(rows, problem=problem)
        for _ in range(self.projections):
            new, xi = projected_along(mechanism, tree, rows, new, xi, solution.factors)
        problem, solution = with_reactions(mechanism, kinematics, rows, whole)
        info = step_info(mechanism, kinematics, problem, solution, new, dt)
        return new, info, motion.twists

    def _assembled(
        self,
        mechanism: Mechanism,
        tree: Articulation,
        kinematics: Kinematics,
        state: State,
        control: Control,
        dt: Array,
    ) -> Assembly:
        """The rows of a step from a state."""
        free = free_velocity(mechanism, kinematics, state, control, dt, gyroscopic=self.gyroscopic)
        now = with_world(body_twists(state))
        interval = Interval(dt, control, twist=now, engagement=state.engagement)
        # Rows see w = v⁺ - h b, the velocity of the coordinates alone.
        bent = dt * velocity_products(mechanism, tree, kinematics, state) if tree.branches else None
        target = Flight() if self.time_of_impact else Step()
        at = mechanism, kinematics, state, interval, target, free
        return assembled(*at, tree=tree, bent=bent)

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
        solver = self.solver.at_solution(layout(system).remembers)
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
    scheme: SemiImplicitEuler,
    mechanism: Mechanism,
    tree: Articulation,
    kinematics: Kinematics,
    state: State,
    gone: Motion,
    closing: Array | None,
    motion: Motion,
) -> tuple[State, Array]:
    """State after displacements and with velocities, in axes of the state, and ξ of tree joints.

    kinematics: of the state; closing: as in `articulated`
    """
    q, shift, twist = quaternion_components(state), gone.twists, motion.twists
    velocity = quat_rotate(q, twist[:3])
    omega_body = twist[3:]
    if scheme.rotation == "linearized":
        one = jnp.ones((), shift.dtype)
        quaternion = quat_integrate_linearized(state.quaternion, quat_rotate(q, shift[3:]), one)
    else:
        turn = quat_from_rotation_vector(shift[3:])
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
    new = replace(
        state,
        position=state.position + quat_rotate(q, shift[:3]),
        quaternion=quaternion,
        velocity=velocity,
        omega=omega,
    )
    at = mechanism, tree, kinematics, state
    return articulated(*at, gone.joints, motion.joints, new, closing)


def _times(share: Array, motion: Any) -> Any:
    return jax.tree.map(lambda x: share * x, motion)
