"""What a user may get wrong in a coupling: refused at build, or finite where it degenerates."""

import math
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from jaxjoints.algebra.pytree import struct
from jaxjoints.algebra.spatial import Pose, norm, quat_from_rotation_vector
from jaxjoints.build.builder import SystemBuilder
from jaxjoints.couplings.compound import Chain, Reversed
from jaxjoints.couplings.coupling import Chart, Coupling, Residual
from jaxjoints.couplings.curve import PointOnCurve, PointOnLevelSet, PointOnSurface
from jaxjoints.couplings.ellipsoid import Ellipsoid, Ellipsoid3
from jaxjoints.couplings.function_driven import FunctionDriven
from jaxjoints.couplings.functions import Constant, Function, Linear, Polynomial, Spline, Sum
from jaxjoints.couplings.gimbal import FreeEuler, Gimbal
from jaxjoints.couplings.released import Released
from jaxjoints.couplings.rolling import RollingSphere
from jaxjoints.couplings.rotary import Ball, Hinge, Universal
from jaxjoints.couplings.shapes import Shape
from jaxjoints.couplings.spherical import BallRotation
from jaxjoints.couplings.surface import PlanePoint, SegmentedPlanePoint
from jaxjoints.laws.transmissions import Transmission
from support.refusals import hinge_on_arm, refused, warned

NAN = math.nan


@struct
class Slide(Chart):
    """A user's joint, right but for what a test replaces."""

    scale: Array = 1.0
    dof: ClassVar[int] = 1

    def pose(self, q):
        return Pose.along_x(self.scale * q[0])


def curved(**options):
    return FunctionDriven(**{"dof": 1, "rotations": (Linear([1.0]),) + (Constant(),) * 2} | options)


@pytest.mark.parametrize(
    ("coupling", "words"),
    [
        (PlanePoint(normal=(0, 0, 0)), ("normal", "length 0")),
        (PlanePoint(normal=(0, NAN, 0)), ("normal", "finite")),
        (curved(rotation_axes=np.diag([1.0, 0.0, 1.0])), ("rotation_axes[1]", "length 0")),
        (curved(translation_axes=(1.0, 0.0, 0.0)), ("translation_axes", "(3,)")),
    ],
)
def test_axes_of_surfaces_and_functions_must_point_somewhere(coupling, words):
    with refused("'elbow'", *words):
        hinge_on_arm(coupling)


def test_skewed_universal_with_parallel_axes_is_refused():
    straight = Universal(axis_D=(0, 0, 1), axis_C=(0.0, math.cos(math.pi / 2), 1.0))
    with refused("'elbow'", "axis_C", "0 degrees", "parallel"):
        hinge_on_arm(straight)


@pytest.mark.parametrize("kind", [Gimbal, FreeEuler])
def test_orders_of_axes_are_checked(kind):
    with refused("'elbow'", "'XXZ'", "ZYX"):
        hinge_on_arm(kind("XXZ"))


@pytest.mark.parametrize("kind", [Ellipsoid, Ellipsoid3])
@pytest.mark.parametrize(
    ("radii", "words"),
    [
        ((1.0, 0.0, 1.0), ("0.0", "> 0")),
        ((1.0, -0.5, 1.0), ("-0.5", "> 0")),
        ((1.0, NAN, 1.0), ("nan", "finite")),
        ((1.0, 2.0), ("(2,)", "3 semi-axes")),
    ],
)
def test_semi_axes_must_be_three_positive_numbers(kind, radii, words):
    with refused("'elbow'", kind.__name__, "radii", *words):
        hinge_on_arm(kind(radii))


def test_allowed_rotations_must_not_be_negative():
    with refused("'elbow'", "allowed", "-0.5", ">= 0"):
        hinge_on_arm(BallRotation((0.5, -0.5, 0.5)))


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([[0.0, 0.0]], ("(1, 2)", "at least 2")),
        ([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]], ("points 1 and 2", "leave one out")),
        ([[0.0, 0.0], [NAN, 0.0]], ("points", "finite")),
    ],
)
def test_corners_of_a_segmented_plane_are_checked(points, words):
    with refused("'elbow'", *words):
        hinge_on_arm(SegmentedPlanePoint(points))


@pytest.mark.parametrize(
    ("coupling", "words"),
    [
        (PointOnCurve((Linear([1.0]), Constant())), ("curve has 2 functions", "3")),
        (PointOnCurve((Linear([1.0]), Constant(), 2.0)), ("curve[2]", "not a function")),
        (
            PointOnCurve((Linear([1.0], coordinates=(1,)), Constant(), Constant())),
            ("curve[0] Linear", "coordinate 1", "has 1"),
        ),
        (PointOnCurve.through([[0, 0, 0], [1, 0, 0], [1, 0, 0]]), ("knots must ascend", "repeat")),
        (
            PointOnSurface.over(Linear([1.0], coordinates=(2,))),
            ("surface[2] Linear", "has 2"),
        ),
        (PointOnLevelSet(Linear([1.0]), start=(0.0, 1.0)), ("start", "(2,)")),
        (PointOnLevelSet(Spline([1.0, 0.0], [0, 1])), ("function Spline", "knots must ascend")),
        (Chain(Ball(), FreeEuler()), ("3 + 6 coordinates", "body between")),
        (Chain(Hinge(), Hinge()), ("2 coordinates", "1 ways only", "Hinge")),
        (Chain(Hinge(), 1.0), ("second", "not a coupling")),
        (Chain(Hinge((0, 0, 0)), Ball()), ("first Hinge", "length 0")),
        (Chain(Hinge(), RollingSphere(1.0)), ("second RollingSphere", "forbids velocities")),
        (Reversed(RollingSphere(1.0)), ("of RollingSphere", "forbids velocities")),
    ],
)
def test_paths_and_chains_are_checked(coupling, words):
    with refused("'elbow'", type(coupling).__name__, *words):
        hinge_on_arm(coupling)


LOCKED = {
    "ZYX": (0.3, math.pi / 2, -0.2),
    "XYZ": (0.3, -math.pi / 2, -0.2),
    "ZYZ": (0.3, 0.0, -0.2),
}


DISTANCES = jnp.array([0.0, 1e-12, 1e-6])


@partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
def with_slopes(coupling, q):
    """Coordinates (3, n) and rows of the poses at q (3, n), found from q, and their derivatives."""

    def read(q, near):
        rows = coupling.rows(coupling.pose(q), near, jnp.zeros(()))
        return rows.q, rows.W

    def both(q):
        return read(q, q), jax.jacfwd(read)(q, q)

    return jax.vmap(both, in_axes=-1, out_axes=-1)(q)


def all_finite(tree):
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("order", LOCKED)
def test_locked_gimbals_have_finite_coordinates_and_gradients(order):
    gimbal, q = Gimbal(order), jnp.array(LOCKED[order])[:, None] + jnp.zeros((3, 3))
    q = q.at[1].add(DISTANCES)
    found = with_slopes(gimbal, q)
    assert all_finite(found)
    # The angles make the same pose, and their free share stays about where it was: beside the lock,
    # rounding of the pose turns it by 1e-16 over the distance.
    angles = found[0][0]
    np.testing.assert_allclose(gimbal.pose(angles).R, gimbal.pose(q).R, rtol=0, atol=1e-14)
    np.testing.assert_allclose(angles, q, rtol=0, atol=1e-3)
    np.testing.assert_allclose(angles[:, ::2], q[:, ::2], rtol=0, atol=1e-9)


def test_rotation_limits_are_finite_at_no_turn_and_half_a_turn():
    q = jnp.array([0.0, 0.3, 0.4])[:, None] + jnp.zeros((3, 6))
    q = q.at[0].add(jnp.concatenate([DISTANCES, math.pi + DISTANCES]))
    found = with_slopes(BallRotation(), q)
    assert all_finite(found)
    np.testing.assert_allclose(found[0][0], q, rtol=0, atol=1e-9)


DIRECTION = np.array([0.6, 0.0, -0.8])


@pytest.mark.parametrize("turn", [0.0, 2 * math.pi])
def test_rotation_vectors_have_the_right_slopes_at_no_turn_and_at_a_whole_one(turn):
    for distance in DISTANCES:
        angle = turn + distance
        slope = jax.jacfwd(quat_from_rotation_vector)(angle * jnp.asarray(DIRECTION))
        along = np.outer(DIRECTION, DIRECTION)
        over = 0.5 * np.sinc(angle / (2 * np.pi))
        expected = 0.5 * np.cos(angle / 2) * along + over * (np.eye(3) - along)
        np.testing.assert_allclose(slope[1:], expected, rtol=0, atol=1e-14)
        np.testing.assert_allclose(slope[0], -0.5 * np.sin(angle / 2) * DIRECTION, atol=1e-14)
    q = (turn + np.asarray(DISTANCES)) * DIRECTION[:, None]
    found = with_slopes(Ball(), jnp.asarray(q))
    assert all_finite(found)
    np.testing.assert_allclose(found[0][0], q, rtol=0, atol=1e-9)


def test_lengths_have_slope_0_at_0_and_1_beside_it():
    for distance in DISTANCES:
        slope = jax.grad(norm)(distance * jnp.asarray(DIRECTION))
        np.testing.assert_allclose(slope, DIRECTION if distance else 0 * DIRECTION, atol=1e-15)


def test_poses_of_wrong_type_or_shape_are_refused():
    class Bare(Slide):
        def pose(self, q):
            return q

    class Stretched(Slide):
        def pose(self, q):
            return Pose(jnp.zeros(2), super().pose(q).q)

    with refused("'elbow'", "Bare.pose(q)", "[1]", "Pose"):
        hinge_on_arm(struct(Bare)())
    with refused("'elbow'", "Stretched.pose(q)", "[2]", "[3]"):
        hinge_on_arm(struct(Stretched)())


@pytest.mark.parametrize(
    ("base", "method"),
    [
        (Chart, "pose"),
        (Residual, "residual"),
        (Coupling, "pose"),
        (Coupling, "rows"),
        (Function, "value"),
        (Shape, "parts"),
        (Transmission, "value"),
    ],
)
def test_a_record_without_a_method_that_its_base_requires_cannot_be_made(base, method):
    class Empty(base):
        dof: ClassVar[int] = 1

    with pytest.raises(TypeError, match=rf"abstract class Empty .*\b{method}\b"):
        struct(Empty)()


def test_couplings_without_a_number_of_coordinates_are_refused():
    @struct
    class Rail(Chart):
        def pose(self, q):
            return Pose.along_x(q[0])

    with refused("'elbow'", "Rail.dof is missing", "dof: ClassVar[int] = 1"):
        hinge_on_arm(Rail())


def test_velocity_rows_without_a_residual_are_refused():
    class Slipping(Slide):
        velocity_rows: ClassVar[int] = 2

    with refused("'elbow'", "Slipping.velocity_residual(T, v, t)", "[0]", "[2]"):
        hinge_on_arm(struct(Slipping)())

    class Braking(Slide):
        acceleration_rows: ClassVar[int] = 1

    with refused("'elbow'", "Braking.acceleration_residual(T, v, a, t)", "[0]", "[1]"):
        hinge_on_arm(struct(Braking)())


def test_residuals_of_wrong_length_are_refused():
    @struct
    class Sphere(Residual):
        dof: ClassVar[int] = 4

        def residual(self, T, t):
            return (norm(T.p) - 1.0)[None]

    with refused("'elbow'", "Sphere.residual(T, t)", "[1]", "[2]"):
        hinge_on_arm(Sphere())


def test_coordinates_that_do_not_exist_are_refused():
    class Eager(Slide):
        def pose(self, q):
            first, second = q
            return Pose.along_x(first + second)

    with refused("'elbow'", "Eager.pose(q) fails", "unpack"):
        hinge_on_arm(struct(Eager)())
    with refused("'elbow'", "rotations[0] Linear", "coordinate 1", "has 1"):
        hinge_on_arm(curved(rotations=(Linear([1.0], coordinates=(1,)), Constant(), Constant())))


def test_derivatives_that_are_not_finite_at_rest_are_named():
    class Cusp(Slide):
        def pose(self, q):
            return Pose.along_x(jnp.sqrt(jnp.abs(q[0])))

    with refused("'elbow'", "Cusp.pose", "not finite"):
        hinge_on_arm(struct(Cusp)())


def test_rank_deficiency_at_rest_warns_with_the_rank():
    class Twice(Slide):
        dof: ClassVar[int] = 2

        def pose(self, q):
            return Pose.along_x(q[0] + q[1])

    with warned("'elbow'", "Twice.pose", "rank 1 instead of 2"):
        hinge_on_arm(struct(Twice)())

    @struct
    class Squared(Residual):
        dof: ClassVar[int] = 5

        def residual(self, T, t):
            return T.p[:1] ** 2

    with warned("'elbow'", "Squared.residual", "rank 0 instead of 1"):
        hinge_on_arm(Squared())


def test_strict_builders_refuse_what_others_warn_of():
    class Twice(Slide):
        dof: ClassVar[int] = 2

        def pose(self, q):
            return Pose.along_x(q[0] + q[1])

    world = SystemBuilder(strict=True)
    world.body("arm", mass=1.0, inertia=(1.0, 1.0, 1.0))
    with refused("'elbow'", "Twice.pose", "rank 1 instead of 2"):
        world.joint("elbow", struct(Twice)(), child="arm")


def test_arrays_from_outside_of_a_coupling_are_named():
    pitch, numbers = jnp.array(0.3), np.array([0.0, 0.6, 0.8])

    @struct
    class Captures(Slide):
        def pose(self, q):
            return Pose.along_x(pitch * q[0])

    def helped(q):
        return pitch * q

    @struct
    class Wheel(Residual):
        dof: ClassVar[int] = 5

        def residual(self, T, t):
            return helped(T.p[:1])

    class Sound(Slide):
        def pose(self, q):
            fixed = jnp.array([1.0, 0.0, 0.0]) + jnp.asarray(numbers)
            return Pose.along_x(self.scale * q[0]) @ Pose.translation(fixed)

    with warned("'elbow'", "Captures.pose(q)", "the array 'pitch' of shape ()", "no gradient"):
        hinge_on_arm(Captures())
    with warned("'elbow'", "Wheel.residual(T, t)", "an array of shape ()", "a field"):
        hinge_on_arm(Wheel())
    hinge_on_arm(struct(Sound)())
    world = SystemBuilder(strict=True)
    world.body("arm", mass=1.0, inertia=(1.0, 1.0, 1.0))
    with refused("Captures.pose(q)", "'pitch'"):
        world.joint("elbow", Captures(), child="arm")


def test_python_on_traced_numbers_is_explained():
    class Branching(Slide):
        def pose(self, q):
            return super().pose(q) if q[0] > 0 else Pose.identity()

    class Numeric(Slide):
        def pose(self, q):
            return Pose.along_x(jnp.asarray(np.sin(np.asarray(q))[0]))

    for kind in (Branching, Numeric):
        with refused("'elbow'", f"{kind.__name__}.pose(q) cannot be traced", "jnp.where"):
            hinge_on_arm(struct(kind)())


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (Spline([0.0, 1.0, 0.5], [0.0, 1.0, 2.0]), ("knots must ascend", "0.5", "sort")),
        (Spline([0.0, 1.0, 1.0], [0.0, 1.0, 2.0]), ("knots must ascend", "repeated")),
        (Spline([0.0], [0.0]), ("knots", "at least 2")),
        (Spline([0.0, 1.0], [0.0, 1.0, 2.0]), ("knots", "(2,)", "(3,)")),
        (Spline([0.0, NAN], [0.0, 1.0]), ("knots", "finite")),
        (Linear([1.0, 2.0]), ("slopes", "(2,)")),
        (Polynomial([[1.0, 2.0]]), ("coefficients", "(1, 2)")),
        (Sum((Spline([1.0, 0.0], [0.0, 1.0]),)), ("terms[0] Spline", "knots must ascend")),
    ],
)
def test_functions_are_checked(function, words):
    with refused("'elbow'", "FunctionDriven", "translations[1]", *words):
        hinge_on_arm(curved(translations=(Constant(), function, Constant())))


def test_beyond_its_knots_a_spline_goes_on_straight():
    spline = Spline(jnp.array([0.0, 1.0, 2.0]), jnp.array([0.0, 1.0, 0.0]))
    value = jax.jit(jax.vmap(spline.value))
    slope = jax.jit(jax.vmap(jax.grad(lambda q: spline.value(q))))
    # Natural: f'' = 0, -3, 0 at the knots, so f' = 3/2 and -3/2 at the ends.
    np.testing.assert_allclose(value(jnp.array([[-2.0], [0.0], [1.0], [2.0], [4.0]])),
                               [-3.0, 0.0, 1.0, 0.0, -3.0], atol=1e-14)  # fmt: skip
    np.testing.assert_allclose(
        slope(jnp.array([[-2.0], [-0.1], [1.0], [2.1]]))[:, 0], [1.5, 1.5, 0.0, -1.5], atol=1e-14
    )


def test_errors_of_a_chart_whose_rows_may_swap_are_not_released():
    with refused("'elbow'", "of Slide", "complement"):
        hinge_on_arm(Released(Slide(jnp.array(1.0))))
    with refused("'elbow'", "of Hinge", "length 0"):
        hinge_on_arm(Released(Hinge(axis=(0, 0, 0))))
