"""RigidBodyDynamics.jl's joints: transforms, subspaces, twists, rates of coordinates, torques.

Its frame after the joint is C, its frame before the joint D, its six-vectors (angular, linear). A
joint there stores what it likes (a quaternion, sine and cosine) and has speeds along fixed axes of
C; here q̇ = N v_CD are the rates of the coordinates.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
import oracle
from jaxjoints.blocks import inverse
from jaxjoints.spatial import quat_to_rotation_vector

EXACT = 1e-12
CASES = oracle.load("rbdjl_joints")
TYPES = sorted({case["type"] for case in CASES.values()})


def field(kind, name):
    """A field of all cases of a type, cases last."""
    found = np.array([case[name] for case in CASES.values() if case["type"] == kind], float)
    return np.moveaxis(found, 0, -1)


def parameter(kind, name):
    found = [case["params"][name] for case in CASES.values() if case["type"] == kind]
    return np.array(found, float).T


def linear_first(x):
    return np.concatenate([x[3:], x[:3]])


def planar_frame():
    """Poses whose x and y are the axes of each planar joint."""
    names = ("x_axis", "y_axis", "rot_axis")
    R = jnp.stack([jnp.asarray(parameter("Planar", name)) for name in names], axis=1)
    return jj.Pose.from_matrix(R)


def coupling_of(kind):
    if kind in ("Revolute", "SinCosRevolute"):
        return jj.Hinge(jnp.asarray(parameter(kind, "axis")))
    if kind == "Prismatic":
        return jj.Slider(jnp.asarray(parameter(kind, "axis")))
    return {
        "Fixed": jj.Fixed(),
        "Planar": jj.Planar(),
        "QuaternionSpherical": jj.Ball(),
        "QuaternionFloating": jj.Free(),
        "SPQuatFloating": jj.FreeRodrigues(),
    }[kind]


def coordinates_of(kind):
    """The coordinates here of the configurations there."""
    q = field(kind, "q")
    if kind == "SinCosRevolute":
        return np.arctan2(q[:1], q[1:])
    if kind == "QuaternionSpherical":
        return np.asarray(quat_to_rotation_vector(jnp.asarray(q)))
    if kind == "QuaternionFloating":
        return np.concatenate([q[4:], quat_to_rotation_vector(jnp.asarray(q[:4]))])
    return linear_first(q) if kind == "SPQuatFloating" else q


def rates_of(kind):
    """The rates of the coordinates here; of rotation vectors, see `coordinates_of`, None."""
    rates = field(kind, "velocity_to_configuration_derivative")
    if kind == "SinCosRevolute":
        sine, cosine = field(kind, "q")
        return (cosine * rates[0] - sine * rates[1])[None]
    if kind.startswith("Quaternion"):
        return None
    return linear_first(rates) if kind == "SPQuatFloating" else rates


@cache
def study(kind):
    """Pose, W and S of all cases of a type, in the frames of the joint there."""
    coupling, q = coupling_of(kind), jnp.asarray(coordinates_of(kind))

    def found(coupling, q):
        T = coupling.pose(q)
        rows = coupling.rows(T, q, jnp.zeros(q.shape[1:]))
        W = jnp.broadcast_to(rows.W, (6, 6, *q.shape[1:]))
        return T, rows, W, inverse(W)[:, 6 - coupling.dof :]

    T, rows, W, S = jax.jit(found)(coupling, q)
    if kind == "Planar":
        frame = planar_frame()
        T = frame @ T @ frame.inverse()
        turn = np.asarray(frame.R)
        W = np.concatenate([np.einsum("abn,rbn->ran", turn, x) for x in (W[:, :3], W[:, 3:])], 1)
        S = np.concatenate([np.einsum("abn,bkn->akn", turn, x) for x in (S[:3], S[3:])])
    return T, rows, np.asarray(W), np.asarray(S)


def projector(columns):
    """Orthogonal projectors on the spans of columns (6, k, n), as (6, 6, n)."""
    A = np.moveaxis(columns, -1, 0)
    return np.moveaxis(A @ np.linalg.pinv(A), 0, -1)


def twisted(matrices):
    """6×6 matrices on (angular, linear) as on (linear, angular)."""
    order = [3, 4, 5, 0, 1, 2]
    return matrices[order][:, order]


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=EXACT)


kinds = pytest.mark.parametrize("kind", TYPES)


def test_every_type_is_compared():
    assert TYPES == sorted(
        ["Fixed", "Planar", "Prismatic", "QuaternionFloating", "QuaternionSpherical"]
        + ["Revolute", "SPQuatFloating", "SinCosRevolute"]
    )


@kinds
def test_poses_are_its_joint_transforms(kind):
    T, expected = study(kind)[0], field(kind, "joint_transform")
    assert_close(T.R, expected[:3, :3])
    assert_close(np.broadcast_to(T.p, expected[:3, 3].shape), expected[:3, 3])


@kinds
def test_subspaces_are_its_motion_and_constraint_wrench_subspaces(kind):
    _, _, W, S = study(kind)
    G = np.swapaxes(W[: 6 - S.shape[1]], 0, 1)
    assert_close(projector(S), twisted(field(kind, "motion_projector")))
    assert_close(projector(G), twisted(field(kind, "constraint_wrench_projector")))


@kinds
def test_speeds_make_its_twists_and_twists_the_rates_of_coordinates(kind):
    _, _, W, S = study(kind)
    if not S.shape[1]:
        pytest.skip("a fixed joint does not move")
    twist = linear_first(field(kind, "joint_twist"))
    speeds = np.einsum("ijn,jn->in", W[6 - S.shape[1] :], twist)
    assert_close(np.einsum("ijn,jn->in", S, speeds), twist)
    assert_close(np.einsum("ijn,jn->in", W[: 6 - S.shape[1]], twist), 0)
    if rates_of(kind) is not None:
        assert_close(speeds, rates_of(kind))
        return
    # Of rotation vectors: that of a quaternion's derivative, q̇ = ½ q (0, ω).
    q, rate = (field(kind, name)[:4] for name in ("q", "velocity_to_configuration_derivative"))
    _, expected = jax.jvp(quat_to_rotation_vector, (jnp.asarray(q),), (jnp.asarray(rate),))
    assert_close(speeds[-3:], expected)


@kinds
def test_coordinates_are_read_back_from_its_transforms(kind):
    assert_close(study(kind)[1].q, coordinates_of(kind))


@kinds
def test_torques_do_the_work_of_its_joint_torques(kind):
    _, _, W, S = study(kind)
    wrench = linear_first(field(kind, "wrench"))
    twist = linear_first(field(kind, "joint_twist"))
    here = np.einsum("in,in->n", np.einsum("jin,jn->in", S, wrench), W_speeds(W, S, twist))
    there = np.einsum("in,in->n", field(kind, "joint_torque"), field(kind, "v"))
    assert_close(here, there)


def W_speeds(W, S, twist):
    return np.einsum("ijn,jn->in", W[6 - S.shape[1] :], twist)
