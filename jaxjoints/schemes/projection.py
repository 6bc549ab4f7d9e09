"""Position projection: bodies moved back onto the surfaces of their joints."""

from ..algebra.pytree import replace
from ..algebra.spatial import quat_from_rotation_vector, quat_multiply, quat_normalize, quat_rotate
from ..assembly.constraints import projection_problem
from ..assembly.layout import layout
from ..model.kinematics import Mechanism, joint_places, quaternion_components
from ..model.state import State
from ..solve.factor import Factor
from ..solve.newton import solve_again
from ..solve.problem import RowProblem, body_velocities
from .scheme import NEWTON


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
