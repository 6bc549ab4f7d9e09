"""Accelerations, reactions and impulses of impacts at an instant."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.compiler import quickly
from ..algebra.options import check_kind, check_not_negative
from ..algebra.pytree import replace, struct
from ..laws.contact import ContactPyramid
from ..model.batch import batch_shape, is_single
from ..model.kinematics import (
    Mechanism,
    body_twists,
    coordinate_speeds,
    gather_coordinates,
    prepare,
    system_kinematics,
    with_unit_quaternions,
    with_world,
)
from ..model.state import Control, Info, State
from ..model.system import System
from ..schemes.instant import EXACT, TOUCHING, Touch, rate_of_change
from ..schemes.instant import impact as impact_of
from ..schemes.scheme import elements, step_info
from ..simulate.door import entered, expanded, full
from ..simulate.isolation import clipped
from ..solve.problem import Solver


@struct
class Accelerations:
    """How a mechanism accelerates at an instant, and the forces that make it do so.

    qdd: q̈ of all coordinates [m/s² or rad/s²], shape (coordinates, *batch)
    linear: of the centres of mass [m/s²], angular: [rad/s²], world axes, shape (3, bodies, *batch)
    info: the forces at the instant, as `Info` of a step has the mean ones: `wrench` of each joint
        on its child, `law_force`, `limit_force`, `transmission_force`. `reaction` reads it.
        `residual` is in [m/s² or rad/s²], `error` is that of the positions

    >>> from jaxjoints import Control, SystemBuilder, wrench_at
    >>> world = SystemBuilder(gravity=(0.0, 0.0, -10.0))
    >>> bar = world.body("bar", mass=2.0, inertia=(0.5, 0.5, 0.5))
    >>> system, state = world.build()
    >>> lift = wrench_at(system, state, bar, force=(0.0, 0.0, 20.0), point=(0.5, 0.0, 0.0))
    >>> now = accelerations(system, state, Control(wrench=lift))
    >>> print(now.linear[:, 0], now.angular[:, 0])  # m g at a lever of 0.5 m turns, about -y
    [0. 0. 0.] [  0. -20.   0.]
    """

    qdd: Array
    linear: Array
    angular: Array
    info: Info


@public
def accelerations(
    system: System,
    state: State,
    control: Control | None = None,
    *,
    touch: Touch = TOUCHING,
    solver: Solver = EXACT,
) -> Accelerations:
    """Accelerations and reactions at an instant, with exact terms of velocity (Ġ v, gyroscopic).

    All forces f of joints, laws and transmissions follow from one problem on the graph of joints,

        M v̇ + c = f₀ + Gᵀ f,    G v̇ + Ġ v + ∂²φ/∂t² = 0,

    whatever velocities and errors the state has: nothing is stabilized. Velocities after a step
    lie on the surfaces where the step began; `project(…, velocities=True)` moves them to where the
    bodies are. Springs, dampers, servos and soft stops act with what they give at once. A hard stop
    or contact that is touched pushes so that nothing goes deeper, unless its coordinate leaves it;
    `impact` first takes up the speed at which it is reached. Friction of what sticks does what it
    can to keep it so, friction of what slides has its bound.

    control: forces, targets, and velocities of prescribed bodies, which do not accelerate
    touch: what counts as touching and as sticking
    solver: finds the forces; by default with so many passes that contacts do not give way
    Raises: ValueError for a joint softened by CFM, a spring that depends on the time step, and for
        axes that do not fit
    Source: Featherstone, Rigid Body Dynamics Algorithms, chapter 8.

    >>> from jaxjoints import Hinge, SystemBuilder
    >>> world = SystemBuilder(gravity=(0.0, 0.0, -9.81))
    >>> arm = world.body("arm", mass=2.0, inertia=(0.1, 0.1, 0.02), com=(0.0, 0.0, -0.5))
    >>> shoulder = world.joint("shoulder", Hinge(axis=(0.0, 1.0, 0.0)), child=arm, qd=3.0)
    >>> system, state = world.build()
    >>> now = accelerations(system, state)
    >>> print(now.info.wrench[2, 0].round(3))  # m g + m r ω²
    28.62
    """
    return _accelerations(*_entered("accelerations", system, state, control, touch, solver))


@public
def impact(
    system: System,
    state: State,
    control: Control | None = None,
    *,
    touch: Touch = TOUCHING,
    solver: Solver = EXACT,
) -> tuple[State, Info]:
    """The velocities after an impact without bounce, in which bodies do not move, and its impulses.

        M (v⁺ - v) = Gᵀ λ,    G v⁺ + ∂φ/∂t = 0,    0 ≤ λ ⊥ u⁺ ≥ 0 at stops and contacts that touch

    Friction that follows a normal force has an impulse within its cone, forces of other laws have
    none. An impact takes up what velocities miss the surfaces of joints by: joints that close or
    lock at once, a foot that lands.

    control: velocities of prescribed bodies; touch, solver: as for `accelerations`
    Returns: the state with its new velocities, and `Info` in which impulses [N s, N m s] stand for
        forces
    Raises: ValueError as `accelerations`

    >>> from jaxjoints import Hinge, Lock, SystemBuilder
    >>> world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    >>> arm = world.body("arm", mass=2.0, inertia=(0.1, 0.1, 0.02), com=(0.0, 0.0, -0.5))
    >>> lock = Lock(0.0)
    >>> _ = world.joint("shoulder", Hinge((0.0, 1.0, 0.0)), child=arm, laws=[lock], qd=3.0)
    >>> state, info = impact(*world.build())
    >>> print(info.law_force.round(6))  # (I + m r²) ω
    [-1.8]
    """
    return _impact(*_entered("impact", system, state, control, touch, solver))


def ready(system: System, state: State, control: Control) -> tuple[Mechanism, State, Control]:
    """Mechanism, state and control with the batch axes of all, efforts within their bounds, and
    velocities of prescribed bodies by the control.
    """
    batch = batch_shape(system, state, control)
    mechanism = prepare(system, len(batch))
    state, control = with_unit_quaternions(full(state, batch)), expanded(control, len(batch))
    control = clipped(mechanism.system, state, control)
    prescribed = np.array(system.topology.prescribed, int)
    if control.twist is not None:
        velocity = state.velocity.at[:, prescribed].set(control.twist[:3])
        omega = state.omega.at[:, prescribed].set(control.twist[3:])
        state = replace(state, velocity=velocity, omega=omega)
    return mechanism, state, control


def coordinate_accelerations(mechanism: Mechanism, state: State, rate: State) -> Array:
    """q̈ of all coordinates of a state that changes at a rate, (coordinates, *batch)."""

    def speeds(state):
        kinematics, twist = system_kinematics(mechanism, state), with_world(body_twists(state))
        groups = zip(mechanism.system.groups, kinematics.joints, strict=True)
        parts = [coordinate_speeds(group, joint, twist) for group, joint in groups]
        return gather_coordinates(mechanism, parts, state)

    return jax.jvp(speeds, (state,), (rate,))[1]


def check_rigid(call: str, system: System) -> None:
    """ValueError for what has no force at an instant: rows softened by CFM, and MuJoCo's stops."""
    for name, group in elements(system):
        for law in getattr(group, "laws", ()):
            kind = type(law).__name__
            if getattr(law, "reference", None) is not None:
                raise ValueError(
                    f"{call}: {name} has {kind} with a reference acceleration, which acts over a "
                    "time step; give it stiffness and damping"
                )
            if isinstance(law, ContactPyramid) and law.stiffness is None:
                raise ValueError(
                    f"{call}: {name} has a hard {kind}, which acts over a time step; build it with "
                    "another cone, or give it stiffness and damping"
                )
        if not group.rigid and group.softness is None:
            raise ValueError(
                f"{call}: {name} is softened by cfm, a spring that depends on the time step; give "
                "it a Compliance or a Bushing as softness, or build it rigid"
            )


def _entered(
    call: str,
    system: System,
    state: State,
    control: Control | None,
    touch: Touch,
    solver: Solver,
) -> tuple[System, State, Control, Touch, Solver]:
    check_kind(f"{call}:", "touch", touch, Touch, "Touch(reach=1e-6)")
    check_kind(f"{call}:", "solver", solver, Solver, "Newton()")
    for field, value in vars(touch).items():
        check_not_negative(f"{call}: touch", field, value)
    control = Control() if control is None else control
    system, state, control = entered(call, system, state, control)
    check_rigid(call, system)
    return system, state, control, touch, solver


@partial(quickly, where=is_single)
def _accelerations(
    system: System, state: State, control: Control, touch: Touch, solver: Solver
) -> Accelerations:
    mechanism, state, control = ready(system, state, control)
    return at_instant(mechanism, state, control, touch, solver)


def at_instant(
    mechanism: Mechanism,
    state: State,
    control: Control,
    touch: Touch = TOUCHING,
    solver: Solver = EXACT,
) -> Accelerations:
    """`accelerations` of what `ready` returns."""
    rate, kinematics, problem, solution = rate_of_change(mechanism, state, control, solver, touch)
    one = jnp.ones((), state.time.dtype)
    info = step_info(mechanism, kinematics, problem, solution, state, one)
    qdd = coordinate_accelerations(mechanism, state, rate)
    return Accelerations(qdd, rate.velocity, rate.omega, info)


@partial(quickly, where=is_single)
def _impact(
    system: System, state: State, control: Control, touch: Touch, solver: Solver
) -> tuple[State, Info]:
    mechanism, state, control = ready(system, state, control)
    new, kinematics, problem, solution = impact_of(mechanism, state, control, solver, touch)
    one = jnp.ones((), state.time.dtype)
    return new, step_info(mechanism, kinematics, problem, solution, new, one)
