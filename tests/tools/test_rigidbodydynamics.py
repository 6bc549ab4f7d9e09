"""RigidBodyDynamics.jl's joints: what its interface says of each, read from the joint-space view.

Its frame after the joint is C, its frame before the joint D. Its six-vectors, velocities of
floating joints and their configurations have the angular part first.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.algebra.spatial import transform_twist, transform_wrench
from support import oracle
from support.cases import mostly_slow

EXACT = 1e-12
CASES = oracle.load("rbdjl_joints")
TYPES = sorted({case["type"] for case in CASES.values()})
# Places of its numbers here.
LINEAR_FIRST = [3, 4, 5, 0, 1, 2]
VELOCITIES = {"QuaternionFloating": LINEAR_FIRST, "SPQuatFloating": LINEAR_FIRST}
POSITIONS = {"QuaternionFloating": [4, 5, 6, 0, 1, 2, 3], "SPQuatFloating": LINEAR_FIRST}

AXES = {"Revolute", "SinCosRevolute", "Prismatic"}
SPACES = {
    "Fixed": lambda: jj.joint_space.JointSpace(jj.Fixed()),
    "Revolute": lambda axis: jj.joint_space.JointSpace(jj.Hinge(axis)),
    "SinCosRevolute": lambda axis: jj.joint_space.SineCosine(jj.Hinge(axis)),
    "Prismatic": lambda axis: jj.joint_space.JointSpace(jj.Slider(axis)),
    "Planar": lambda: jj.joint_space.BodySpeeds(jj.Planar()),
    "QuaternionSpherical": lambda: jj.joint_space.UnitQuaternion(jj.Ball()),
    "QuaternionFloating": lambda: jj.joint_space.UnitQuaternion(jj.Free()),
    "SPQuatFloating": lambda: jj.joint_space.BodySpeeds(jj.FreeRodrigues()),
}


def field(kind, name):
    """A field of all cases of a type, cases first, in the order of numbers here."""
    found = np.array([case[name] for case in CASES.values() if case["type"] == kind], float)
    for axis, order in enumerate(ORDERS.get(name, ""), start=1):
        places = {"x": POSITIONS.get(kind), "v": VELOCITIES.get(kind), "6": LINEAR_FIRST}[order]
        found = found if places is None else np.take(found, places, axis=axis)
    return found


# What each axis of a field counts: positions x, velocities v, components of a six-vector 6.
ORDERS = {
    **dict.fromkeys(["q", "q0", "unnormalized_q", "normalized_from_unnormalized"], "x"),
    **dict.fromkeys(["principal_value", "zero_configuration", "global_coordinates_of_phi"], "x"),
    **dict.fromkeys(["velocity_to_configuration_derivative", "adjoint_at_unnormalized_q"], "x"),
    "configuration_derivative_to_velocity_adjoint": "x",
    **dict.fromkeys(["v", "vd", "fv", "joint_torque"], "v"),
    **dict.fromkeys(["local_coordinates", "local_coordinates_rate"], "v"),
    **dict.fromkeys(["joint_twist", "joint_spatial_acceleration", "bias_acceleration"], "6"),
    "wrench": "6",
    "motion_subspace": "6v",
    "constraint_wrench_projector": "66",
    "velocity_to_configuration_derivative_jacobian": "xv",
    "configuration_derivative_to_velocity_jacobian": "vx",
}


def quantities(kind, case):
    """Everything its interface says of one case, by its names."""
    space = SPACES[kind](*([case["axis"]] if kind in AXES else []))
    x, v, origin, odd = (case[name] for name in ("q", "v", "q0", "unnormalized_q"))
    # The x and y of its planar joint are any two axes.
    turn = jj.Pose.from_matrix(case["frame"])

    def seen(vector):
        return transform_twist(turn.inverse(), vector)

    T = turn @ space.pose(x) @ turn.inverse()
    local = space.local_coordinates(origin, x)
    wrenches = jax.vmap(seen, 1, 1)(space.wrench_subspace(x)) if space.constraints else None
    projector = jnp.zeros((6, 6)) if wrenches is None else wrenches @ jnp.linalg.pinv(wrenches)
    return {
        "joint_transform": jnp.concatenate([T.R, T.p[:, None]], axis=1),
        "motion_subspace": jax.vmap(seen, 1, 1)(space.motion_subspace(x)) if len(v) else None,
        "constraint_wrench_projector": projector,
        "joint_twist": seen(space.twist(x, v)),
        "joint_spatial_acceleration": seen(space.acceleration(x, v, case["vd"])),
        "bias_acceleration": seen(space.bias_acceleration(x, v)),
        "joint_torque": space.torque(x, transform_wrench(turn.inverse(), case["wrench"])),
        "velocity_to_configuration_derivative": space.rates(x, v),
        "velocity_to_configuration_derivative_jacobian": space.rates_jacobian(x),
        "configuration_derivative_to_velocity_jacobian": space.velocity_jacobian(x),
        "configuration_derivative_to_velocity_adjoint": space.velocity_adjoint(x, case["fv"]),
        "adjoint_at_unnormalized_q": space.velocity_adjoint(odd, case["fv"]),
        "normalized_from_unnormalized": space.normalized(odd),
        "local_coordinates": local,
        "local_coordinates_rate": space.local_rates(origin, x, v),
        "global_coordinates_of_phi": space.global_coordinates(origin, local),
        "principal_value": space.principal(x),
        "zero_configuration": space.zero(),
    }


@cache
def study(kind):
    """`quantities` of all cases of a type, cases first."""
    case = {name: field(kind, name) for name in ("q", "v", "vd", "fv", "q0", "unnormalized_q")}
    case["wrench"] = field(kind, "wrench")
    params = [case["params"] for case in CASES.values() if case["type"] == kind]
    case["frame"] = np.broadcast_to(np.eye(3), (len(params), 3, 3))
    if kind in AXES:
        case["axis"] = np.array([p["axis"] for p in params])
    if kind == "Planar":
        columns = [[p[axis] for axis in ("x_axis", "y_axis", "rot_axis")] for p in params]
        case["frame"] = np.swapaxes(np.array(columns), 1, 2)
    return jax.jit(jax.vmap(lambda case: quantities(kind, case)))(case)


def test_every_type_is_compared():
    assert sorted(SPACES) == TYPES and len(CASES) == 99


@pytest.mark.slow
@pytest.mark.parametrize("kind", mostly_slow(TYPES, default=("Planar",)))
def test_everything_is_as_its_interface_says(kind):
    for name, found in study(kind).items():
        if found is None or not found.size:
            continue  # a fixed joint has no velocities
        expected = field(kind, name)
        if name == "joint_transform":
            expected = expected[:, :3]
        np.testing.assert_allclose(found, expected, rtol=0, atol=EXACT, err_msg=name)


@pytest.mark.parametrize(
    "kind",
    mostly_slow(
        TYPES, default=[kind for kind in TYPES if kind not in ("Planar", "SPQuatFloating")]
    ),
)
def test_counts_and_traits_are_its_own(kind):
    space = SPACES[kind](*([(0.0, 0.6, 0.8)] if kind in AXES else []))
    expected = {
        "num_positions": space.positions,
        "num_velocities": space.velocities,
        "num_constraints": space.constraints,
        "isfloating": space.is_floating,
        "has_fixed_subspaces": bool(space.has_fixed_subspaces()),
    }
    for name, value in expected.items():
        assert (field(kind, name) == value).all(), name
    assert space.has_constant_motion()
