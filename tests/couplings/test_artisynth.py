"""Every coupling of ArtiSynth against its own numbers: poses, projections, rows, derivatives."""

from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from jaxjoints.algebra.dense import multiply
from jaxjoints.algebra.pytree import struct
from jaxjoints.algebra.spatial import (
    Pose,
    error_twist,
    quat_to_rotation_vector,
    retract,
    tangent_of,
)
from jaxjoints.couplings.coupling import Coupling
from jaxjoints.couplings.ellipsoid import Ellipsoid, Ellipsoid3
from jaxjoints.couplings.function_driven import FunctionDriven
from jaxjoints.couplings.functions import Constant, Polynomial
from jaxjoints.couplings.gimbal import FreeEuler, Gimbal
from jaxjoints.couplings.linear import Cylindrical, Slider
from jaxjoints.couplings.planar import Planar, PlanarTranslation, SlottedHinge
from jaxjoints.couplings.released import Released
from jaxjoints.couplings.rigid import Fixed
from jaxjoints.couplings.rotary import Ball, Hinge, Universal
from jaxjoints.couplings.spherical import BallRotation
from jaxjoints.couplings.surface import FixedAxis, PlanePoint, SegmentedPlanePoint
from support.cases import mostly_slow
from support.oracle import load

SAME_POSE = 1e-14  # a few roundings of numbers up to 1
SAME = 1e-12  # some thousand roundings
SAME_SPAN = 1e-9
DIFFERENCED = 1e-6  # rates are recorded as central differences of step 1e-5
# Speed of compilation matters here, not that of the code.
RANGES = np.array([np.pi, np.pi / 2, np.pi])[:, None]  # of ArtiSynth's gimbal

RECORDS = load("artisynth_couplings")
NAMES = list(RECORDS)
COORDINATED = [name for name, record in RECORDS.items() if record["coordinates"]]
MIXED = ("EllipsoidCoupling", "EllipsoidCoupling3d", "OpenSimCustomCoupling")
SPANNED = [name for name, record in RECORDS.items() if record["coupling"] in MIXED]
TILTED = "ball tilt"
EQUAL, UNEQUAL = "ball rotation 0.5,0.5,0.5", "ball rotation 0.3,0.5,0.7"
PLANES_ABOVE = [name for name in NAMES if "one-sided" in name]
# Planes from one side have no rows but that one: see `ONE_SIDED`.
NAMED = [name for name in NAMES if name not in (*SPANNED, *PLANES_ABOVE)]
ONE_SIDED = [TILTED, EQUAL, UNEQUAL, *PLANES_ABOVE]
# By default one coupling with coordinates, one with an origin of its own, and one from one side.
SOME, PLANE_ABOVE = ("universal ZY transposed 0.35", "fixed axis"), "plane one-sided 0.6,0,0.8"


@dataclass(frozen=True)
class Peer:
    """Our coupling for one of ArtiSynth's, and how the two are written.

    order, signs: our coordinate i is signs[i] times ArtiSynth's coordinate order[i]; by default
        both have the same
    rows: factors of ArtiSynth's bilateral rows in ours; by default they are equal
    """

    coupling: Coupling
    order: tuple[int, ...] | None = None
    signs: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None


def peer(record) -> Peer:
    kind, given = record["coupling"], record["params"]
    if kind == "HingeCoupling":
        # About -z, the second axis normal to it is -y.
        down = Peer(Hinge(jnp.array([0.0, 0.0, -1.0])), rows=(1, 1, 1, 1, -1))
        return down if given["thetaClockwise"] else Peer(Hinge())
    if kind == "CylindricalCoupling" and given["thetaClockwise"]:
        down = Cylindrical(jnp.array([0.0, 0.0, -1.0]))
        return Peer(down, signs=(-1, 1), rows=(1, -1, 1, -1))
    if kind == "UniversalCoupling":
        c, s = np.cos(given["skewAngle"]), np.sin(given["skewAngle"])
        first, second = {
            "ZY": (np.array([0.0, 0.0, 1.0]), np.array([0.0, c, s])),
            "XY": (np.array([1.0, 0.0, 0.0]), np.array([s, c, 0.0])),
        }[given["axes"]]
        if given["useRDC"]:
            # (R(a, roll) R(b, pitch))ᵀ = R(-b, pitch) R(-a, roll).
            sign = -1 if given["axes"] == "ZY" else 1
            return Peer(Universal(-second, -first), order=(1, 0), rows=(1, 1, 1, sign))
        sign = 1 if given["axes"] == "ZY" else -1
        return Peer(Universal(first, second), rows=(1, 1, 1, sign))
    if kind == "GimbalCoupling" and given["useRDC"]:
        return Peer(Gimbal(given["axes"][::-1]), order=(2, 1, 0), signs=(-1, -1, -1))
    if kind == "GimbalCoupling":
        return Peer(Gimbal(given["axes"], continuous=given["applyEuler"]))
    if kind == "SphericalCoupling":
        return Peer(
            {
                "none": lambda: Ball(),
                "TILT_LIMIT": lambda: Gimbal("ZYZ", continuous=False),
                "ROTATION_LIMIT": lambda: BallRotation(jnp.array(given["maxRotation"])),
            }[given["rangeType"]]()
        )
    if kind == "PlanarCoupling":
        plane = PlanePoint(jnp.array(given["normal"], float))
        return Peer(Released(plane) if given["unilateral"] else plane)
    if kind == "SegmentedPlanarCoupling":
        strips = SegmentedPlanePoint(jnp.array(given["segments_xz"], float).reshape(-1, 2))
        return Peer(Released(strips) if given["unilateral"] else strips)
    if kind == "EllipsoidCoupling":
        exact = not given["openSimCompatible"]
        radii, wing = jnp.array(given["semiAxes"]), jnp.array(given["alpha"])
        return Peer(Ellipsoid(radii, wing, exact=exact))
    if kind == "EllipsoidCoupling3d":
        exact = not given["useOpenSimApprox"]
        return Peer(Ellipsoid3(jnp.array(given["semiAxes"]), exact=exact))
    if kind == "OpenSimCustomCoupling":
        return Peer(function_driven(given))
    return Peer(
        {
            "CylindricalCoupling": lambda: Cylindrical(),
            "SliderCoupling": lambda: Slider(),
            "SlottedHingeCoupling": lambda: SlottedHinge(),
            "FullPlanarCoupling": lambda: Planar(),
            "PlanarTranslationCoupling": lambda: PlanarTranslation(),
            "SolidCoupling": lambda: Fixed(),
            "FreeCoupling": lambda: FreeEuler(given["axes"]),
            "FixedAxisCoupling": lambda: FixedAxis(),
        }[kind]()
    )


def function_driven(given):
    def component(axis):
        if axis is None:
            return Constant(jnp.array(0.0)), [0.0, 0.0, 1.0]
        coefficients = jnp.array(axis["poly"], float)
        return Polynomial(coefficients, coordinates=(axis["coord"],)), axis["axis"]

    rotations, turns = zip(*map(component, given["rot_axes"]), strict=True)
    translations, ways = zip(*map(component, given["trans_axes"]), strict=True)
    return FunctionDriven(
        dof=len(given["coords"]),
        rotations=rotations,
        translations=translations,
        rotation_axes=jnp.array(turns, float),
        translation_axes=jnp.array(ways, float),
    )


def columns(numbers):
    """Recorded states, with their axis last."""
    return np.moveaxis(np.array(numbers, float), 0, -1)


def poses(numbers):
    """Recorded poses as matrices (3, 4, n)."""
    return columns(numbers).reshape(3, 4, -1)


def pose_from(M):
    return Pose.from_matrix(M[:, :3], M[:, 3])


def rotation_vector(M):
    return quat_to_rotation_vector(pose_from(M).q)


def matrix_of(T):
    return jnp.concatenate([T.R, T.p[:, None]], axis=1)


def each(function):
    """`function` of a coupling and items with one trailing axis each, compiled."""

    def mapped(coupling, *items):
        axes = (None,) + (-1,) * len(items)
        return jax.vmap(function, in_axes=axes, out_axes=-1)(coupling, *items)

    return jax.jit(mapped)


@struct
class Study:
    """What is compared: our values for the recorded inputs.

    T: pose at the recorded coordinates; T_GD, q, error: projection of the displaced pose
    W, distance: rows and errors at the displaced pose
    W_moving, W_rate: rows while moving at the recorded velocity, and their rates
    """

    T: Array
    T_GD: Array
    q: Array
    error: Array
    W: Array
    distance: Array
    W_moving: Array
    W_rate: Array


@jax.jit
def placed(T_CD, moved, T_moving, velocity):
    """The displaced pose, and the moving one with its tangent."""
    T = pose_from(T_moving)
    return retract(pose_from(T_CD), moved), T, tangent_of(T, velocity)


@jax.jit
def matrix_of_each(T):
    return matrix_of(T)


@jax.jit
def compared(T, T_GD, T_displaced):
    return matrix_of(T), matrix_of(T_GD), error_twist(T_GD.inverse() @ T_displaced)


@each
def place(coupling, q):
    return coupling.pose(q)


@each
def coordinates_of(coupling, T, near):
    return coupling.coordinates(T, near)


@each
def project(coupling, T, near):
    if isinstance(coupling, Released):
        # It moves freely; the projection of interest is that of the coupling it has released.
        return coupling.of.project(T, near[6 - coupling.of.dof :])[0], coupling.coordinates(T, near)
    return coupling.project(T, near)


@each
def one_newton_step(chart, T, near):
    away = error_twist(chart.pose(near).inverse() @ T)
    q = near + multiply(chart.rows_at(near)[6 - chart.dof :], away)
    return chart.pose(q), q


@each
def rows_and_rates(coupling, T, tangent, near):
    return jax.jvp(lambda T: coupling.rows(T, near, jnp.zeros(())), (T,), (tangent,))


def free_of_bilateral_rows(W, k):
    """N without its share of G, which is the pseudo-inverse of S, for one state."""
    G, N = W[: 6 - k], W[6 - k :]
    return N - N @ np.linalg.pinv(G) @ G


def rate_of_free_rows(W, rate, k):
    """The rate of `free_of_bilateral_rows` from that of W: a projector P has Ṗ = Q + Qᵀ."""
    G, N, inverse = W[: 6 - k], W[6 - k :], np.linalg.pinv(W[: 6 - k])
    rest = np.eye(6) - inverse @ G
    Q = inverse @ rate[: 6 - k] @ rest
    return rate[6 - k :] @ rest - N @ (Q + Q.T)


@dataclass(frozen=True)
class Case:
    """One configuration: what ArtiSynth recorded, in our order and signs, and our study of it."""

    name: str

    @property
    def record(self):
        return RECORDS[self.name]

    @property
    def peer(self):
        return peer(self.record)

    @property
    def coupling(self):
        return self.peer.coupling

    @property
    def bilateral(self):
        return self.record["bilateral"]

    def coordinates(self, key):
        """Recorded coordinates in our order, (k, n)."""
        theirs, peer = columns(self.record[key]), self.peer
        order = range(len(theirs)) if peer.order is None else peer.order
        signs = np.ones(len(theirs)) if peer.signs is None else np.array(peer.signs)
        return signs[:, None] * theirs[list(order)]

    def rows(self, key):
        """Recorded bilateral rows and rows of coordinates, (6 - k, 6, n) and (k, 6, n)."""
        theirs, peer = columns(self.record[key]), self.peer
        factors = np.ones(self.bilateral) if peer.rows is None else np.array(peer.rows)
        # The fixed axis has coordinates but no rows for them.
        limits = theirs[[i for i in self.record["limits"] if i >= 0]]
        order = range(len(limits)) if peer.order is None else peer.order
        signs = np.ones(len(limits)) if peer.signs is None else np.array(peer.signs)
        bilateral = factors[:, None, None] * theirs[: self.bilateral]
        return bilateral, signs[:, None, None] * limits[list(order)]

    @property
    def distances(self):
        """Recorded distances of the bilateral rows, (6 - k, n)."""
        factors = np.ones(self.bilateral) if self.peer.rows is None else np.array(self.peer.rows)
        return factors[:, None] * columns(self.record["distances"])[: self.bilateral]

    @property
    def rows_in_all(self):
        """Number of rows recorded with a wrench, those of limits and one-sided ones too."""
        return np.any(columns(self.record["wrenches"]), axis=(1, 2)).sum()

    @property
    def displaced_origin(self):
        """Origin of C in D after the displacement of the recorded pose, (3, n)."""
        T, moved = poses(self.record["T_CD"]), columns(self.record["moved"])
        return T[:, 3] + np.einsum("ijn,jn->in", T[:, :3], moved[:3])

    def one_sided(self, key):
        """Recorded numbers of the row beside bilateral rows and coordinates."""
        return columns(self.record[key])[-1]


def coordinate_and_gap(case, ours):
    """The coordinate that stands for ArtiSynth's one-sided row, and its distance from the limit."""
    if case.name == TILTED:
        return 1, case.record["params"]["maxTilt"] - ours.q[1]
    return 0, ours.q[0] if case.name in PLANES_ABOVE else -ours.q[0]


@cache
def found(name):
    case = Case(name)
    record, coupling = case.record, case.coupling
    T_CD, count = poses(record["T_CD"]), len(record["q"])
    near = case.coordinates("near")
    if record["coupling"] == "GimbalCoupling" and record["params"]["applyEuler"]:
        # Its Euler filter starts from the last angles clipped to their ranges.
        near = np.clip(near, -RANGES, RANGES)
    if name not in COORDINATED:
        near = np.zeros((coupling.dof, count))
    T_moving = poses(record["T_moving"]) if "T_moving" in record else T_CD
    q, velocity = case.coordinates("q"), columns(record["velocity"])
    T, moving, tangent = placed(T_CD, columns(record["moved"]), T_moving, velocity)
    if name not in COORDINATED:
        q = coordinates_of(coupling, moving, near)
    if isinstance(coupling, FunctionDriven):
        # ArtiSynth takes one Newton step only, and reads its rows where that leads.
        T_GD, q_moved = one_newton_step(coupling, T, near)
        rows_at, near = pose_from(poses(record["T_GD"])), case.coordinates("q_moved")
    else:
        T_GD, q_moved = project(coupling, T, near)
        rows_at = T
    # The rows at both poses in one call: at the first, nothing moves.
    still = jax.tree.map(np.zeros_like, tangent)
    poses_and_tangents = (rows_at, still, near), (moving, tangent, q)
    joined = jax.tree.map(lambda *x: np.concatenate(x, axis=-1), *poses_and_tangents)
    rows, rates = rows_and_rates(coupling, *joined)
    T_q, T_GD, error = compared(place(coupling, q), T_GD, T)
    W, W_rate = (np.broadcast_to(x.W, (6, 6, 2 * count)) for x in (rows, rates))
    return Study(
        T=T_q,
        T_GD=T_GD,
        q=q_moved,
        error=error,
        W=W[..., :count],
        distance=rows.error[..., :count],
        W_moving=W[..., count:],
        W_rate=W_rate[..., count:],
    )


def assert_close(actual, expected, tolerance):
    assert np.shape(actual) == np.shape(expected)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def states(x):
    """(r, c, n) as n matrices."""
    return np.moveaxis(np.asarray(x), -1, 0)


def projectors(G):
    """Projectors on the spans of the rows G (m, 6, n)."""
    G = states(G)
    return np.linalg.pinv(G) @ G


@pytest.mark.parametrize("name", mostly_slow(NAMES, default=(*SOME, PLANE_ABOVE)))
def test_poses_are_those_of_the_coordinates(name):
    record = RECORDS[name]
    expected = poses(record["T_moving" if "T_moving" in record else "T_CD"])
    assert_close(found(name).T, expected, SAME_POSE)


@pytest.mark.parametrize("name", mostly_slow(NAMES, default=(*SOME, PLANE_ABOVE)))
def test_projections_and_errors_agree(name):
    record, ours = RECORDS[name], found(name)
    T_GD, error = poses(record["T_GD"]), columns(record["error"])
    if name == "fixed axis":
        # ArtiSynth forgets the origin, and so has all of it in the error; ours follows C.
        assert_close(T_GD[:, 3], np.zeros_like(error[:3]), SAME)
        T_GD[:, 3], error[:3] = Case(name).displaced_origin, 0.0
    assert_close(ours.T_GD, T_GD, SAME)
    assert_close(ours.error, error, SAME)


@pytest.mark.parametrize("name", mostly_slow(COORDINATED, default=SOME))
def test_coordinates_agree(name):
    ours, expected = found(name), Case(name).coordinates("q_moved")
    if name == "fixed axis":
        assert_close(expected[:3], np.zeros_like(expected[:3]), SAME)
        expected[:3] = Case(name).displaced_origin
    assert_close(ours.q, expected, SAME)


@pytest.mark.parametrize("name", mostly_slow(COORDINATED, default=SOME))
def test_rows_of_coordinates_read_their_speeds(name):
    case, ours = Case(name), found(name)
    N = ours.W_moving[6 - case.coupling.dof :]
    speeds = np.einsum("ij...,j...->i...", N, columns(case.record["velocity"]))
    assert_close(speeds, case.coordinates("speeds"), SAME)


@pytest.mark.parametrize("name", mostly_slow(NAMED, default=SOME))
def test_every_row_and_distance_agrees(name):
    case, ours = Case(name), found(name)
    G, N = case.rows("wrenches")
    assert_close(ours.W[: case.bilateral], G, SAME)
    if len(N):
        assert_close(ours.W[6 - len(N) :], N, SAME)
    assert_close(ours.distance, case.distances, SAME)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPANNED)
def test_mixed_rows_span_the_same(name):
    case, ours = Case(name), found(name)
    G, N = case.rows("wrenches")
    P = projectors(ours.W[: case.bilateral])
    assert_close(P, projectors(G), SAME_SPAN)
    error = columns(case.record["error"]).T[..., None]
    distances = np.linalg.norm(case.distances, axis=0)
    # ArtiSynth's rows are orthonormal: its distances are as long as what they see of the error.
    assert_close(np.linalg.norm((P @ error)[..., 0], axis=1), distances, SAME_SPAN)
    # Those of the coordinates differ by bilateral ones at most.
    free = [free_of_bilateral_rows(W, case.coupling.dof) for W in states(ours.W)]
    assert_close(np.moveaxis(free, 0, -1), N, SAME)


@pytest.mark.parametrize("name", mostly_slow([*NAMED, *SPANNED], default=SOME))
def test_rates_of_rows_agree(name):
    case, ours = Case(name), found(name)
    G, N = case.rows("wrench_rates")
    if name in SPANNED:
        # S is the pseudo-inverse of these, and G what is normal to it.
        pairs = zip(states(ours.W_moving), states(ours.W_rate), strict=True)
        free = [rate_of_free_rows(*pair, case.coupling.dof) for pair in pairs]
        assert_close(np.moveaxis(free, 0, -1), N, DIFFERENCED)
        return
    assert_close(ours.W_rate[: case.bilateral], G, DIFFERENCED)
    if len(N):
        assert_close(ours.W_rate[6 - len(N) :], N, DIFFERENCED)


def test_every_recorded_row_is_compared():
    for case in map(Case, NAMES):
        G, N = case.rows("wrenches")
        assert len(G) + len(N) + (case.name in ONE_SIDED) == case.rows_in_all > 0, case.name
    assert sorted([*NAMED, *SPANNED, *PLANES_ABOVE]) == sorted(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("function driven")])
def test_function_driven_joints_are_projected_to_the_end(name):
    """On the surface a pose stays there; off it, ArtiSynth's steps go on to where ours end."""
    case = Case(name)
    record, coupling = case.record, case.coupling
    near, q = case.coordinates("near"), case.coordinates("q")
    T_CD = poses(record["T_CD"])
    T, _, _ = placed(T_CD, columns(record["moved"]), T_CD, columns(record["velocity"]))
    there, found_there = project(coupling, pose_from(T_CD), near)
    assert_close(found_there, q, SAME)
    assert_close(matrix_of_each(there), T_CD, SAME)
    first = case.coordinates("q_moved")
    _, N = case.rows("wrenches")
    second = first + np.einsum("ijn,jn->in", N, columns(record["error"]))
    T_GD, ended = project(coupling, T, near)
    # Off the surface each step is some percent of the one before, and so is all that follows.
    last, left = (np.linalg.norm(x, axis=0) for x in (second - first, ended - second))
    assert (left < 0.05 * last.max()).all() and left.max() > 0
    assert_close(matrix_of_each(T_GD), matrix_of_each(place(coupling, ended)), SAME_POSE)
    # At the end what is left of the error does not read on any coordinate.
    h, error = 1e-4, compared(T_GD, T_GD, T)[2]
    for j in range(coupling.dof):
        step = h * np.eye(coupling.dof)[:, j : j + 1]
        ahead, behind = (
            compared(T, T_GD, place(coupling, ended + sign * step))[2] for sign in (1, -1)
        )
        along = np.sum((ahead - behind) / (2 * h) * error, axis=0)
        assert_close(along, np.zeros_like(along), 1e-9)
    assert np.abs(error).max() > 0.01


@pytest.mark.parametrize("name", mostly_slow(ONE_SIDED, default=(PLANE_ABOVE,)))
def test_one_sided_rows_are_rows_of_a_coordinate(name):
    case, ours = Case(name), found(name)
    distance, wrench = case.one_sided("distances"), case.one_sided("wrenches")
    coordinate, gap = coordinate_and_gap(case, ours)
    # Where a limit of a ball is not in use, ArtiSynth has no row.
    used = np.any(wrench != 0, axis=0)
    assert used.sum() >= 16
    assert (gap[~used] > 0).all()
    assert_close(gap[used], distance[used], SAME)
    if name == UNEQUAL:
        return
    index = 6 - case.coupling.dof + coordinate
    assert_close(ours.W[index][:, used], wrench[:, used], SAME)
    rates = case.one_sided("wrench_rates")
    used = np.any(rates != 0, axis=0)
    assert used.sum() >= 16
    assert_close(ours.W_rate[index][:, used], rates[:, used], DIFFERENCED)


@pytest.mark.slow
def test_a_rotation_limit_of_unequal_maxima_is_a_gradient_that_artisynth_approximates():
    case, ours = Case(UNEQUAL), found(UNEQUAL)
    theirs = case.one_sided("wrenches")
    used = np.any(theirs != 0, axis=0)
    theirs, row = theirs[:, used], ours.W[3][:, used]
    r = np.asarray(jax.vmap(rotation_vector, -1, -1)(ours.T_GD))[:, used]
    approximate = r / np.array(case.record["params"]["maxRotation"])[:, None]
    assert_close(theirs[3:], approximate / np.linalg.norm(approximate, axis=0), SAME)
    # A turn of C about the axis of its rotation changes the distance by as much.
    along_axis = np.sum(row[3:] * r / np.linalg.norm(r, axis=0), axis=0)
    assert_close(along_axis, np.ones_like(along_axis), SAME)
    assert np.abs(row - theirs).max() > 0.1
