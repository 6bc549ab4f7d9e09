"""Projection: positions and velocities moved back onto the surfaces of the joints."""

import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import replace
from ..algebra.spatial import quat_from_rotation_vector, quat_multiply, quat_normalize, quat_rotate
from ..assembly.group_rows import Interval
from ..assembly.problem import Assembly, aimed_again, assembled, row_problem
from ..assembly.targets import Projection, Surface
from ..model.articulation import Articulation, articulated, articulation
from ..model.kinematics import (
    Kinematics,
    Mechanism,
    body_twists,
    quaternion_components,
    system_kinematics,
    with_world,
)
from ..model.state import State
from ..solve.bodies import RowFactor
from ..solve.linear import solve_at_rest
from ..solve.problem import body_velocities
from .scheme import NEWTON


def projected(mechanism: Mechanism, state: State) -> State:
    """State moved by one Newton step towards the joints' surfaces, by the least M-weighted motion.

    Displacements M⁻¹ Gᵀ λ with A λ = -φ; velocities stay as they are.
    """
    kinematics, interval = system_kinematics(mechanism, state), _at_once(mechanism, state)
    problem = row_problem(mechanism, kinematics, interval, Projection())
    return displaced(state, body_velocities(problem, NEWTON.solve(problem).impulse))


def projected_along(
    mechanism: Mechanism,
    tree: Articulation,
    rows: Assembly,
    state: State,
    xi: Array,
    factors: RowFactor | None,
) -> tuple[State, Array]:
    """`projected` along rows of a state nearby, such as those of the step before, and ξ there.

    tree: of the joints that are held by their coordinates, which the motion changes
    xi: `Motion.joints` of the state's velocities
    factors: of the rows' matrix, which serve again where only linear laws give way
    """
    problem = rows.problem
    if not problem.structure.nodes:
        return state, xi
    kinematics, interval = system_kinematics(mechanism, state), _at_once(mechanism, state)
    again = aimed_again(mechanism, kinematics, interval, Projection(), problem, rows.plan)
    if factors is not None and rows.plan.rigid:
        impulse = solve_at_rest(problem, factors, again.rate)
    else:
        impulse = NEWTON.solve(again).impulse
    gone = rows.change(impulse)
    moved = displaced(state, gone.twists)
    return articulated(mechanism, tree, kinematics, state, gone.joints, xi, moved)


def surface_twists(mechanism: Mechanism, kinematics: Kinematics, state: State) -> Array:
    """Twists in body axes, (6, bodies + 1, *batch), that no joint and no transmission resists: the
    state's after the least M-weighted change.

    kinematics: of the state
    """
    twist, now = with_world(body_twists(state)), jnp.zeros((), state.time.dtype)
    interval = Interval(jnp.ones_like(now), force_time=now)
    tree = articulation(mechanism.system)
    rows = assembled(mechanism, kinematics, state, interval, Surface(), twist, tree=tree)
    return with_world(rows.twists(NEWTON.solve(rows.problem).impulse))


def displaced(state: State, shift: Array) -> State:
    """State with its bodies moved by displacements in body axes, (6, bodies, *batch)."""
    q = quaternion_components(state)
    return replace(
        state,
        position=state.position + quat_rotate(q, shift[:3]),
        quaternion=quat_normalize(quat_multiply(q, quat_from_rotation_vector(shift[3:]))),
    )


def _at_once(mechanism: Mechanism, state: State) -> Interval:
    one = jnp.ones((), mechanism.inverse_mass.dtype)
    return Interval(one, engagement=state.engagement)
