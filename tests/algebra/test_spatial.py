"""Laws of rotations, poses, twists and wrenches, at ordinary and at special angles."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints.algebra import spatial
from jaxjoints.algebra.spatial import Pose
from support.cases import mostly_slow

BATCH_SHAPES = [(), (5,), (3, 4)]
DTYPES = [jnp.float32, jnp.float64]
PI = math.pi
UP_TO_PI = [0.0, 1e-12, 1e-7, 1e-4, 0.3, 0.99, 1.01, 2.0, PI - 1e-4, PI - 1e-9]
ANGLES = [*UP_TO_PI, PI, PI + 1e-3, 5.0, 2 * PI, 7.0]
AXES = np.array(
    [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, -1], [1, 1, 0], [0.3, -0.5, 0.8], [-0.9, 0.2, 0.1]]
).T
AXES = AXES / np.linalg.norm(AXES, axis=0)

rotation_matrix = jax.jit(spatial.so3_exp)
dtypes = pytest.mark.parametrize("dtype", DTYPES)
mostly_double = pytest.mark.parametrize(
    "dtype", [pytest.param(jnp.float32, marks=pytest.mark.slow), jnp.float64]
)
# Which dtype meets which shape is covered in full where dtypes and shapes are the subject.
cases = pytest.mark.parametrize(
    "shape, dtype", [((), jnp.float64), ((5,), jnp.float32), ((3, 4), jnp.float64)]
)


def rounding(dtype, operations=32):
    """Error of about `operations` roundings of numbers of order one."""
    return operations * float(jnp.finfo(dtype).eps)


def assert_equal(actual, expected, tolerance):
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance), actual, expected
    )


def assert_finite(tree):
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(tree))


def rotation_vectors(dtype, angles=ANGLES):
    """Every angle about every axis, shape (3, angles, axes)."""
    return jnp.asarray(np.asarray(angles)[None, :, None] * AXES[:, None, :], dtype)


def draw(kind, shape, dtype, seed=0):
    """A random operand of a kind with the given trailing axes."""
    rng = np.random.default_rng([seed, *map(ord, kind)])
    if kind == "pose":
        return Pose(draw("vector", shape, dtype, seed), draw("quaternion", shape, dtype, seed))
    lead = {"scalar": (), "vector": (3,), "unit": (3,), "quaternion": (4,), "twist": (6,)}
    x = rng.normal(size=lead.get(kind, (3, 3)) + shape)
    if kind in ("unit", "quaternion"):
        x = x / np.linalg.norm(x, axis=0)
    if kind == "rotation":
        return rotation_matrix(draw("vector", shape, dtype, seed))
    return jnp.asarray(x, dtype)


FUNCTIONS = {
    "dot": (spatial.dot, "vector", "vector"),
    "cross": (spatial.cross, "vector", "vector"),
    "norm": (spatial.norm, "vector"),
    "arctan2": (spatial.arctan2, "scalar", "scalar"),
    "unit": (spatial.unit, "vector"),
    "skew": (spatial.skew, "vector"),
    "matvec": (spatial.matvec, "matrix", "vector"),
    "matmul": (spatial.matmul, "matrix", "matrix"),
    "transpose": (spatial.transpose, "matrix"),
    "quat_multiply": (spatial.quat_multiply, "quaternion", "quaternion"),
    "quat_conjugate": (spatial.quat_conjugate, "quaternion"),
    "quat_rotate": (spatial.quat_rotate, "quaternion", "vector"),
    "quat_rotate_inverse": (spatial.quat_rotate_inverse, "quaternion", "vector"),
    "quat_to_matrix": (spatial.quat_to_matrix, "quaternion"),
    "quat_from_matrix": (spatial.quat_from_matrix, "rotation"),
    "quat_normalize": (spatial.quat_normalize, "quaternion"),
    "quat_from_rotation_vector": (spatial.quat_from_rotation_vector, "vector"),
    "quat_to_rotation_vector": (spatial.quat_to_rotation_vector, "quaternion"),
    "quat_integrate": (spatial.quat_integrate, "quaternion", "vector", "scalar"),
    "quat_integrate_linearized": (
        spatial.quat_integrate_linearized,
        *("quaternion", "vector", "scalar"),
    ),
    "so3_exp": (spatial.so3_exp, "vector"),
    "so3_log": (spatial.so3_log, "rotation"),
    "so3_right_jacobian": (spatial.so3_right_jacobian, "vector"),
    "so3_right_jacobian_inverse": (spatial.so3_right_jacobian_inverse, "vector"),
    "basis": (spatial.basis, "unit"),
    "translation": (Pose.translation, "vector"),
    "rotation": (Pose.rotation, "quaternion"),
    "from_matrix": (Pose.from_matrix, "rotation", "vector"),
    "from_rotation_vector": (Pose.from_rotation_vector, "vector", "vector"),
    "about": (Pose.about, "vector", "scalar"),
    "about_x": (Pose.about_x, "scalar"),
    "about_y": (Pose.about_y, "scalar"),
    "about_z": (Pose.about_z, "scalar"),
    "along": (Pose.along, "vector", "scalar"),
    "along_x": (Pose.along_x, "scalar"),
    "along_y": (Pose.along_y, "scalar"),
    "along_z": (Pose.along_z, "scalar"),
    "exp": (Pose.exp, "twist"),
    "log": (Pose.log, "pose"),
    "R": (lambda T: T.R, "pose"),
    "compose": (Pose.__matmul__, "pose", "pose"),
    "inverse": (Pose.inverse, "pose"),
    "apply": (Pose.apply, "pose", "vector"),
    "rotate": (Pose.rotate, "pose", "vector"),
    "rotate_inverse": (Pose.rotate_inverse, "pose", "vector"),
    "normalized": (Pose.normalized, "pose"),
    "error_twist": (spatial.error_twist, "pose"),
    "retract": (spatial.retract, "pose", "twist"),
    "adjoint": (spatial.adjoint, "pose"),
    "adjoint_inverse": (spatial.adjoint_inverse, "pose"),
    "transform_twist": (spatial.transform_twist, "pose", "twist"),
    "transform_wrench": (spatial.transform_wrench, "pose", "twist"),
    "twist_of": (spatial.twist_of, "pose", "pose"),
    "tangent_of": (spatial.tangent_of, "pose", "twist"),
}
SOME = ("so3_exp", "so3_log", "compose", "log", "transform_wrench")
functions = pytest.mark.parametrize("name", mostly_slow(FUNCTIONS, default=SOME))


def operands(name, shape, dtype):
    function, *kinds = FUNCTIONS[name]
    return function, [draw(kind, shape, dtype, seed) for seed, kind in enumerate(kinds)]


@functions
@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "shape", [*(pytest.param(axes, marks=pytest.mark.slow) for axes in BATCH_SHAPES[:-1]), (3, 4)]
)
def test_functions_keep_dtype_and_trailing_axes(name, dtype, shape):
    function, arguments = operands(name, shape, dtype)
    for leaf in jax.tree.leaves(jax.eval_shape(function, *arguments)):
        assert leaf.dtype == dtype and not leaf.weak_type
        assert leaf.shape[leaf.ndim - len(shape) :] == shape


@functions
def test_batch_equals_loop_and_vmap(name):
    """Float32 checks the rest: `dtype` does not enter how a function is batched."""
    function, arguments = operands(name, (3, 4), jnp.float32)
    batch = jax.jit(function)(*arguments)
    mapped = jax.jit(jax.vmap(jax.vmap(function, -1, -1), -1, -1))(*arguments)
    assert_equal(mapped, batch, rounding(jnp.float32))
    single = jax.jit(function)
    for index in [(0, 0), (1, 3), (2, 1)]:
        item = partial(jax.tree.map, lambda leaf, index=index: leaf[(..., *index)])
        assert_equal(single(*item(arguments)), item(batch), rounding(jnp.float32))


@pytest.mark.parametrize(
    "name",
    mostly_slow([name for name in FUNCTIONS if len(FUNCTIONS[name]) > 2], default=("compose",)),
)
def test_trailing_axes_of_size_one_broadcast(name):
    function, (first, *rest) = operands(name, (3, 1), jnp.float64)
    _, (_, *rest) = operands(name, (3, 4), jnp.float64)
    expanded = jax.tree.map(lambda leaf: jnp.repeat(leaf, 4, axis=-1), first)
    full = jax.jit(function)(expanded, *rest)
    narrow = jax.jit(function)(first, *rest)
    widened = jax.tree.map(lambda leaf, like: jnp.broadcast_to(leaf, like.shape), narrow, full)
    assert_equal(widened, full, rounding(jnp.float64))


def homogeneous(R, p, corner=1.0):
    """4×4 matrices (*b, 4, 4) of [[R, p], [0, corner]] in float64 numpy."""
    R, p = np.asarray(R, np.float64), np.asarray(p, np.float64)
    M = np.zeros((*p.shape[1:], 4, 4))
    M[..., :3, :3] = np.moveaxis(R, (0, 1), (-2, -1))
    M[..., :3, 3] = np.moveaxis(p, 0, -1)
    M[..., 3, 3] = corner
    return M


def power_series(M, coefficient):
    """Σ coefficient(n) Mⁿ for matrices (*b, m, m): the definition, 60 terms."""
    power = np.broadcast_to(np.eye(M.shape[-1]), M.shape)
    total = np.zeros(M.shape)
    for n in range(60):
        total = total + coefficient(n) * power
        power = power @ M
    return total


def batch_last(M):
    return np.moveaxis(M, (-2, -1), (0, 1))


def skew_matrices(r):
    return homogeneous(spatial.skew(r), np.zeros_like(r), 0.0)[..., :3, :3]


# Matrix power series at angle 7 lose e⁷ to cancellation; results at angle θ carry θ roundings.
SERIES = 512


@dtypes
def test_exponential_equals_its_power_series(dtype):
    r = rotation_vectors(dtype)
    expected = batch_last(power_series(skew_matrices(r), lambda n: 1 / math.factorial(n)))
    tolerance = rounding(dtype) + rounding(np.float64, SERIES)
    assert_equal(jax.jit(spatial.so3_exp)(r), expected, tolerance)
    q = jax.jit(spatial.quat_from_rotation_vector)(r)
    assert_equal(spatial.norm(q), np.ones(r.shape[1:]), rounding(dtype))
    assert_equal(spatial.quat_to_matrix(q), expected, tolerance)


@dtypes
def test_right_jacobian_equals_its_power_series(dtype):
    r = rotation_vectors(dtype)
    terms = power_series(skew_matrices(r), lambda n: (-1) ** n / math.factorial(n + 1))
    tolerance = rounding(dtype) + rounding(np.float64, SERIES)
    assert_equal(jax.jit(spatial.so3_right_jacobian)(r), batch_last(terms), tolerance)


@dtypes
def test_pose_exponential_equals_its_power_series(dtype):
    r = rotation_vectors(dtype)
    v = draw("vector", r.shape[1:], dtype)
    T = jax.jit(Pose.exp)(jnp.concatenate([v, r]))
    M = power_series(homogeneous(spatial.skew(r), v, 0.0), lambda n: 1 / math.factorial(n))
    tolerance = rounding(dtype) + rounding(np.float64, SERIES)
    assert_equal(homogeneous(T.R, T.p), M, tolerance)


@dtypes
def test_right_jacobian_times_its_inverse_is_one(dtype):
    angles = [angle for angle in ANGLES if angle != 2 * PI]
    r = rotation_vectors(dtype, angles)
    product = spatial.matmul(
        jax.jit(spatial.so3_right_jacobian)(r), jax.jit(spatial.so3_right_jacobian_inverse)(r)
    )
    one = np.broadcast_to(np.eye(3)[:, :, None, None], product.shape)
    assert_equal(product, one, rounding(dtype, 256))
    assert_finite(spatial.so3_right_jacobian_inverse(rotation_vectors(dtype, [2 * PI, 4 * PI])))


@dtypes
def test_logarithm_inverts_exponential_up_to_pi(dtype):
    """To relative precision, so that tiny rotations are not lost."""
    r = rotation_vectors(dtype, UP_TO_PI[:-2] + [PI - 1e-4])
    back = jax.jit(lambda r: spatial.quat_to_rotation_vector(spatial.quat_from_rotation_vector(r)))
    error = np.linalg.norm(np.asarray(back(r) - r), axis=0)
    assert np.all(error <= rounding(dtype) * np.linalg.norm(np.asarray(r), axis=0))


@dtypes
def test_logarithm_of_every_rotation_is_the_short_way(dtype):
    r = rotation_vectors(dtype)
    q = jax.jit(spatial.quat_from_rotation_vector)(r)
    log = jax.jit(spatial.quat_to_rotation_vector)(q)
    assert np.all(np.linalg.norm(np.asarray(log), axis=0) <= PI + rounding(dtype))
    assert_equal(spatial.so3_exp(log), spatial.so3_exp(r), rounding(dtype))
    R = spatial.so3_exp(r)
    assert_equal(spatial.so3_exp(jax.jit(spatial.so3_log)(R)), R, rounding(dtype))


@dtypes
def test_logarithm_ignores_sign_and_length_of_the_quaternion(dtype):
    exact_half_turns = jnp.concatenate([jnp.zeros((1, AXES.shape[1])), AXES]).astype(dtype)
    swept = jax.jit(spatial.quat_from_rotation_vector)(rotation_vectors(dtype))
    log = jax.jit(spatial.quat_to_rotation_vector)
    for q in (exact_half_turns, swept):
        np.testing.assert_array_equal(log(-q), log(q))
        assert_equal(log(3 * q), log(q), rounding(dtype))
    angle = np.linalg.norm(np.asarray(log(exact_half_turns)), axis=0)
    assert_equal(angle, np.full(AXES.shape[1], PI), rounding(dtype))


@dtypes
def test_quaternion_survives_the_matrix(dtype):
    q = jax.jit(spatial.quat_from_rotation_vector)(rotation_vectors(dtype))
    back = jax.jit(spatial.quat_from_matrix)(spatial.quat_to_matrix(q))
    assert np.all(np.asarray(back[0]) >= 0)
    overlap = np.abs(np.asarray(spatial.dot(q, back)))
    assert_equal(overlap, np.ones_like(overlap), rounding(dtype))
    near = np.asarray(jnp.abs(q[0]) > 1e-3)
    aligned = np.where(np.asarray(q[0]) < 0, -np.asarray(q), np.asarray(q))
    assert_equal(np.asarray(back)[:, near], aligned[:, near], rounding(dtype))


@cases
def test_quaternions_act_as_their_matrices(dtype, shape):
    a, b = draw("quaternion", shape, dtype, 1), draw("quaternion", shape, dtype, 2)
    v = draw("vector", shape, dtype)
    A, B = spatial.quat_to_matrix(a), spatial.quat_to_matrix(b)
    product = spatial.quat_to_matrix(spatial.quat_multiply(a, b))
    assert_equal(product, spatial.matmul(A, B), rounding(dtype))
    assert_equal(spatial.quat_rotate(a, v), spatial.matvec(A, v), rounding(dtype))
    inverse = spatial.matvec(spatial.transpose(A), v)
    assert_equal(spatial.quat_rotate_inverse(a, v), inverse, rounding(dtype))
    assert_equal(spatial.quat_rotate(spatial.quat_conjugate(a), v), inverse, rounding(dtype))


def test_quaternion_turns_counterclockwise_about_its_axis():
    quarter = jnp.array([math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5)])
    ex, ey = jnp.eye(3)[0], jnp.eye(3)[1]
    assert_equal(spatial.quat_rotate(quarter, ex), ey, rounding(jnp.float64))


@cases
def test_vector_algebra_agrees_with_numpy(dtype, shape):
    a, b = draw("vector", shape, dtype, 1), draw("vector", shape, dtype, 2)
    A, B = draw("matrix", shape, dtype, 1), draw("matrix", shape, dtype, 2)
    tolerance = rounding(dtype)
    assert_equal(spatial.dot(a, b), np.einsum("i...,i...->...", a, b), tolerance)
    assert_equal(spatial.cross(a, b), np.cross(a, b, axis=0), tolerance)
    assert_equal(spatial.norm(a), np.linalg.norm(a, axis=0), tolerance)
    assert_equal(spatial.unit(a), np.asarray(a) / np.linalg.norm(a, axis=0), tolerance)
    assert_equal(spatial.matvec(spatial.skew(a), b), np.cross(a, b, axis=0), tolerance)
    assert_equal(spatial.matvec(A, b), np.einsum("ij...,j...->i...", A, b), tolerance)
    assert_equal(spatial.matmul(A, B), np.einsum("ij...,jk...->ik...", A, B), tolerance)
    row = spatial.matmul(A[:1], B[:, :2])
    assert_equal(row, np.einsum("ij...,jk...->ik...", A[:1], B[:, :2]), tolerance)


@dtypes
def test_norm_and_unit_are_safe_at_zero(dtype):
    zero = jnp.zeros((3, 2), dtype)
    tiny = jnp.full((3, 2), 1e-30, dtype)
    assert_equal(spatial.norm(zero), np.zeros(2), 0.0)
    assert_equal(spatial.unit(zero), np.zeros((3, 2)), 0.0)
    assert_equal(jax.grad(lambda v: jnp.sum(spatial.norm(v)))(zero), np.zeros((3, 2)), 0.0)
    for v in (zero[:, 0], tiny[:, 0]):
        assert_finite(jax.jit(jax.jacfwd(jax.jacrev(spatial.unit)))(v))


@dtypes
def test_basis_is_a_right_handed_orthonormal_triad(dtype):
    nearly = spatial.unit(jnp.array([1e-4, -1e-5, -1.0], dtype))[:, None]
    a = jnp.concatenate([AXES.astype(dtype), nearly, draw("unit", (20,), dtype)], axis=1)
    p, q = jax.jit(spatial.basis)(a)
    frame = jnp.stack([p, q, a], axis=1)
    one = np.broadcast_to(np.eye(3)[:, :, None], frame.shape)
    assert_equal(spatial.matmul(spatial.transpose(frame), frame), one, rounding(dtype))
    assert_equal(spatial.cross(p, q), a, rounding(dtype))


def test_basis_of_ez_is_ex_ey():
    p, q = spatial.basis(jnp.eye(3)[2])
    np.testing.assert_array_equal(p, np.eye(3)[0])
    np.testing.assert_array_equal(q, np.eye(3)[1])


@cases
def test_poses_compose_as_homogeneous_matrices(dtype, shape):
    S, T = draw("pose", shape, dtype, 1), draw("pose", shape, dtype, 2)
    x = draw("vector", shape, dtype, 3)

    def matrix(pose):
        return homogeneous(pose.R, pose.p)

    tolerance = rounding(dtype)
    assert_equal(matrix(S @ T), matrix(S) @ matrix(T), tolerance)
    assert_equal(matrix(T.inverse()), np.linalg.inv(matrix(T)), tolerance)
    assert_equal(matrix(T @ Pose.identity(shape, dtype=dtype)), matrix(T), tolerance)
    point = homogeneous(T.R, x)[..., 3:]
    assert_equal(T.apply(x), np.moveaxis((matrix(T) @ point)[..., :3, 0], -1, 0), tolerance)
    assert_equal((S @ T).rotate(x), S.rotate(T.rotate(x)), tolerance)
    assert_equal(T.rotate_inverse(T.rotate(x)), x, tolerance)
    doubled = Pose(T.p, 2 * T.q)
    assert_equal(doubled.normalized(), T, tolerance)
    assert_equal(matrix(Pose.from_matrix(T.R, T.p)), matrix(T), tolerance)
    log = spatial.quat_to_rotation_vector(T.q)
    assert_equal(matrix(Pose.from_rotation_vector(log, T.p)), matrix(T), tolerance)


@cases
def test_named_axes_agree_with_the_general_axis(dtype, shape):
    amount = draw("scalar", shape, dtype)
    for i, name in enumerate("xyz"):
        axis = np.eye(3, dtype=dtype)[i]
        expanded = jnp.broadcast_to(axis.reshape(3, *[1] * len(shape)), (3, *shape))
        turn, slide = Pose.about(expanded, amount), Pose.along(2 * expanded, amount)
        assert_equal(getattr(Pose, f"about_{name}")(amount), turn, rounding(dtype))
        assert_equal(getattr(Pose, f"along_{name}")(amount), slide, rounding(dtype))
        assert_equal(turn, Pose.from_rotation_vector(expanded * amount[None]), rounding(dtype))
        assert_equal(slide, Pose.translation(expanded * amount[None]), rounding(dtype))


@dtypes
def test_constants_take_the_precision_of_what_they_meet(dtype):
    T = draw("pose", (), dtype)
    for constant in (
        *(Pose.about_z(0.5), Pose.about_x(1), Pose.along_y(2), Pose.along((1, 1, 0), 0.1)),
        *(Pose.about((0.0, 0.0, 1.0), 0.2), Pose.about((0, 1, 0), dtype(0.2))),
    ):
        assert (T @ constant).p.dtype == (T @ constant).q.dtype == dtype


@dtypes
def test_pose_logarithm_inverts_exponential(dtype):
    r = rotation_vectors(dtype, UP_TO_PI[:-2] + [PI - 1e-4])
    twist = jnp.concatenate([draw("vector", r.shape[1:], dtype), r])
    assert_equal(jax.jit(lambda t: Pose.exp(t).log())(twist), twist, rounding(dtype, 64))
    T = Pose.from_rotation_vector(
        rotation_vectors(dtype), draw("vector", (len(ANGLES), AXES.shape[1]), dtype)
    )
    back = jax.jit(lambda T: Pose.exp(T.log()))(T)
    assert_equal((back.p, back.R), (T.p, T.R), rounding(dtype, 64))


@dtypes
def test_error_twist_inverts_retract(dtype):
    r = rotation_vectors(dtype, UP_TO_PI[:-1])
    twist = jnp.concatenate([draw("vector", r.shape[1:], dtype), r])
    T = draw("pose", r.shape[1:], dtype)
    moved = jax.jit(spatial.retract)(T, twist)
    error = jax.jit(spatial.error_twist)(T.inverse() @ moved)
    assert_equal(error[:3], twist[:3], rounding(dtype))
    short = np.asarray(jnp.sum(r * r, axis=0) < 3.0**2)
    assert_equal(np.asarray(error)[:, short], np.asarray(twist)[:, short], rounding(dtype))


@cases
def test_adjoint_times_adjoint_inverse_is_one(dtype, shape):
    T = draw("pose", shape, dtype)
    product = spatial.matmul(spatial.adjoint(T), spatial.adjoint_inverse(T))
    one = np.broadcast_to(np.eye(6).reshape(6, 6, *[1] * len(shape)), product.shape)
    assert_equal(product, one, rounding(dtype))
    assert_equal(spatial.adjoint(T.inverse()), spatial.adjoint_inverse(T), rounding(dtype))


@cases
def test_transforms_apply_the_adjoint_and_its_transpose(dtype, shape):
    T, v, f = (draw(kind, shape, dtype, 1) for kind in ("pose", "twist", "twist"))
    A = spatial.adjoint_inverse(T)
    assert_equal(spatial.transform_twist(T, v), spatial.matvec(A, v), rounding(dtype))
    expected = spatial.matvec(spatial.transpose(A), f)
    assert_equal(spatial.transform_wrench(T, f), expected, rounding(dtype))


@cases
def test_power_does_not_depend_on_the_frame(dtype, shape):
    T, v_B, f_C = (draw(kind, shape, dtype, i) for i, kind in enumerate(("pose", "twist", "twist")))
    power_C = spatial.dot(f_C, spatial.transform_twist(T, v_B))
    power_B = spatial.dot(spatial.transform_wrench(T, f_C), v_B)
    assert_equal(power_C, power_B, rounding(dtype, 128))


def test_transformed_twist_is_the_velocity_of_the_fixed_frame():
    """A frame C fixed at T on a body B that moves at v_B has the body twist Ad⁻¹ v_B."""
    T_BW, T_CB, v_B = (
        draw("pose", (), float, 1),
        draw("pose", (), float, 2),
        draw("twist", (), float),
    )
    T_CW, dT_CW = jax.jvp(lambda T: T @ T_CB, (T_BW,), (spatial.tangent_of(T_BW, v_B),))
    v_C = spatial.transform_twist(T_CB, v_B)
    assert_equal(spatial.twist_of(T_CW, dT_CW), v_C, rounding(float))
    assert_equal(spatial.matvec(spatial.adjoint(T_CB), v_C), v_B, rounding(float))


@cases
def test_twist_of_inverts_tangent_of(dtype, shape):
    T, v = draw("pose", shape, dtype), draw("twist", shape, dtype)
    assert_equal(spatial.twist_of(T, spatial.tangent_of(T, v)), v, rounding(dtype))


def curve(t):
    """A smooth path through pose space, away from every special angle."""
    turn = Pose.about((0.2, 1.0, -0.5), jnp.sin(t)) @ Pose.about_x(2 * t)
    return Pose.translation(jnp.stack([t, t * t, jnp.cos(t)])) @ turn


def test_twist_of_is_the_rate_of_the_error_twist_along_a_curve():
    t, h = jnp.float64(0.7), 1e-4
    twist = spatial.twist_of(*jax.jvp(curve, (t,), (jnp.ones_like(t),)))
    here = curve(t).inverse()
    difference = spatial.error_twist(here @ curve(t + h)) - spatial.error_twist(here @ curve(t - h))
    assert_equal(twist, difference / (2 * h), 10 * h**2)


@dtypes
def test_integrated_orientation_turns_at_omega(dtype):
    q, omega = draw("quaternion", (7,), dtype), draw("vector", (7,), dtype)
    integrate = jax.jit(spatial.quat_integrate)
    half = integrate(integrate(q, omega, 0.4), omega, 0.4)
    assert_equal(integrate(q, omega, 0.8), half, rounding(dtype))
    for update in (spatial.quat_integrate, spatial.quat_integrate_linearized):
        at_rest = jnp.zeros((), dtype)
        _, rate = jax.jit(partial(jax.jvp, partial(update, q, omega)))((at_rest,), (at_rest + 1,))
        spin = jnp.concatenate([jnp.zeros_like(omega[:1]), omega / 2])
        assert_equal(rate, spatial.quat_multiply(spin, q), rounding(dtype))


@dtypes
def test_linearized_update_turns_by_twice_the_arctangent(dtype):
    q, omega = draw("quaternion", (7,), dtype), draw("vector", (7,), dtype)
    speed = spatial.norm(omega)
    turned = spatial.quat_integrate(q, omega, 2 * jnp.arctan(0.3 * speed / 2) / speed)
    assert_equal(spatial.quat_integrate_linearized(q, omega, 0.3), turned, rounding(dtype))


@dtypes
def test_derivative_of_exponential_is_the_right_jacobian(dtype):
    r = rotation_vectors(dtype)
    dr = draw("vector", r.shape[1:], dtype)
    T, dT = jax.jit(lambda r, dr: jax.jvp(Pose.from_rotation_vector, (r,), (dr,)))(r, dr)
    expected = spatial.matvec(spatial.so3_right_jacobian(r), dr)
    assert_equal(spatial.twist_of(T, dT)[3:], expected, rounding(dtype, 128))


@dtypes
def test_derivative_of_logarithm_is_the_inverse_right_jacobian(dtype):
    """At π itself too, where it is the one-sided derivative of the branch taken."""
    r = rotation_vectors(dtype, [*UP_TO_PI, PI])
    w = draw("vector", r.shape[1:], dtype)
    T = Pose.from_rotation_vector(r)
    dT = spatial.tangent_of(T, jnp.concatenate([jnp.zeros_like(w), w]))

    def differentiate(log, T, dT):
        return jax.jvp(log, (T,), (dT,))

    for log in (lambda T: spatial.quat_to_rotation_vector(T.q), lambda T: spatial.so3_log(T.R)):
        taken, rate = jax.jit(partial(differentiate, log))(T, dT)
        expected = spatial.matvec(spatial.so3_right_jacobian_inverse(taken), w)
        assert_equal(rate, expected, rounding(dtype, 256))


SPECIAL_ANGLE_MAPS = {
    "norm": (spatial.norm, lambda r: r),
    "unit": (spatial.unit, lambda r: r),
    "exponential": (spatial.quat_from_rotation_vector, lambda r: r),
    "matrix exponential": (spatial.so3_exp, lambda r: r),
    "right jacobian": (spatial.so3_right_jacobian, lambda r: r),
    "inverse right jacobian": (spatial.so3_right_jacobian_inverse, lambda r: r),
    "logarithm": (spatial.quat_to_rotation_vector, spatial.quat_from_rotation_vector),
    "quaternion of matrix": (spatial.quat_from_matrix, spatial.so3_exp),
    "matrix logarithm": (spatial.so3_log, spatial.so3_exp),
    "pose exponential": (Pose.exp, lambda r: jnp.concatenate([jnp.ones_like(r), r])),
    "pose logarithm": (Pose.log, lambda r: Pose.from_rotation_vector(r, jnp.ones_like(r))),
}


def weighted_sum(tree):
    """One scalar per item, (*b), that tells every component of the leaves from the others."""
    rows = [row for leaf in jax.tree.leaves(tree) for row in leaf.reshape(-1, leaf.shape[-1])]
    return sum(math.cos(i) * jnp.sin(row) for i, row in enumerate(rows))


def gradient_of(function, operands):
    """Values (b,) and reverse-mode gradients of the weighted sum of a function's components."""
    value, pull_back = jax.vjp(lambda *x: weighted_sum(function(*x)), *operands)
    return value, pull_back(jnp.ones_like(value))


def direction_of(operands):
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), operands)


def slope_along(direction, gradient):
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    return sum(jnp.sum(g * d, axis=range(g.ndim - 1)) for g, d in pairs)


# Central differences err by h² and by rounding / h, which balance at the cube root.
STEP = float(jnp.finfo(jnp.float64).eps) ** (1 / 3)


def difference_along(direction, operands, evaluate):
    ahead, behind = (
        evaluate(jax.tree.map(lambda x, d, step=step: x + step * d, operands, direction))
        for step in (STEP, -STEP)
    )
    return jax.tree.map(lambda a, b: (a - b) / (2 * STEP), ahead, behind)


@functions
def test_gradients_match_finite_differences(name):
    function, arguments = operands(name, (2,), jnp.float64)
    direction = direction_of(tuple(arguments))
    evaluate = jax.jit(lambda x: gradient_of(function, x))
    expected, _ = difference_along(direction, tuple(arguments), evaluate)
    _, gradient = evaluate(tuple(arguments))
    assert_equal(slope_along(direction, gradient), expected, 1e4 * STEP**2)


@mostly_double
@pytest.mark.parametrize("name", mostly_slow(SPECIAL_ANGLE_MAPS, default=("norm", "logarithm")))
def test_two_derivatives_at_special_angles(name, dtype):
    """Finite at every angle; where smooth, equal to differences of values and of gradients.

    The second is forward over reverse mode, and both go through the map that leads to the operand,
    so that differences stay on the group.
    """
    function, prepare = SPECIAL_ANGLE_MAPS[name]
    r = rotation_vectors(dtype).reshape(3, -1)
    direction = direction_of(r)

    @jax.jit
    def evaluate(r):
        return jax.jvp(
            lambda r: gradient_of(lambda r: function(prepare(r)), (r,)), (r,), (direction,)
        )

    (value, gradient), (slope, curvature) = evaluate(r)
    assert_finite((value, gradient, slope, curvature))
    if dtype == jnp.float64:
        angle = np.linalg.norm(np.asarray(r), axis=0)
        smooth = (angle > 0.1 if name in ("norm", "unit") else angle < 3.2) & (
            abs(angle - PI) > 0.1
        )
        (first, second), _ = difference_along(direction, r, evaluate)
        pairs = [
            (slope, first),
            (slope_along(direction, gradient), first),
            (curvature[0], second[0]),
        ]
        for derivative, difference in pairs:
            derivative, difference = derivative[..., smooth], difference[..., smooth]
            assert_equal(derivative, difference, 1e4 * STEP**2)


@dtypes
def test_angle_of_a_point_is_exact_to_rounding_in_all_quadrants_and_on_all_axes(dtype):
    rng = np.random.default_rng(0)
    far_apart = rng.normal(size=(2, 20000)) * np.exp(rng.uniform(-15, 15, (2, 20000)))
    turn = np.linspace(-PI, PI, 20001)
    on_axes = [[0, 0, 1, -1, -0.0, -0.0], [1, -1, 0, 0, -1, 1]]
    points = np.concatenate([far_apart, [np.sin(turn), np.cos(turn)], on_axes], axis=1)
    y, x = points.astype(dtype)
    expected = np.arctan2(y.astype(np.longdouble), x.astype(np.longdouble))
    found = np.asarray(jax.jit(spatial.arctan2)(jnp.asarray(y), jnp.asarray(x)))
    assert found.dtype == dtype
    assert np.all(abs(found - expected) <= 2.5 * rounding(dtype, 1) * abs(expected))


@dtypes
def test_angle_of_the_origin_and_its_derivatives_are_zero(dtype):
    zero = jnp.zeros((), dtype)
    assert spatial.arctan2(zero, zero) == 0.0
    for derivative in (jax.grad(spatial.arctan2, (0, 1)), jax.hessian(spatial.arctan2, (0, 1))):
        assert not any(x.any() for x in jax.tree.leaves(jax.jit(derivative)(zero, zero)))


@dtypes
def test_logarithm_is_finite_at_exact_half_turns_and_at_no_rotation_at_all(dtype):
    half_turns = jnp.concatenate([jnp.zeros((1, AXES.shape[1])), AXES])
    identities = jnp.array([[1.0, -1.0, 0.0], *[[0.0] * 3] * 3])
    q = jnp.concatenate([half_turns, identities], axis=1).astype(dtype)
    log = spatial.quat_to_rotation_vector
    derivatives = jax.vmap(lambda q: (log(q), jax.jacrev(log)(q), jax.hessian(log)(q)), in_axes=-1)
    assert_finite(jax.jit(derivatives)(q))


@mostly_double
def test_float32_derivatives_agree_with_float64(dtype):
    """Small angles must not cost the derivative its digits."""

    def derivatives(r):
        second = jax.jacfwd(jax.jacrev(lambda r: spatial.quat_from_rotation_vector(r)))
        jacobian = jax.jacrev(spatial.so3_right_jacobian)
        inverse = jax.jacrev(spatial.so3_right_jacobian_inverse)
        return second(r), jacobian(r), inverse(r)

    evaluate = jax.jit(jax.vmap(derivatives, in_axes=-1))
    r = rotation_vectors(dtype, [angle for angle in ANGLES if angle != 2 * PI]).reshape(3, -1)
    assert_equal(evaluate(r), evaluate(r.astype(jnp.float64)), rounding(dtype, 1024))
