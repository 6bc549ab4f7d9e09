"""Gap functions of shapes: closed forms, swapped pairs, rows, derivatives, singular places."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxjoints import Contact, ContactPoint, Pose
from jaxjoints.algebra.spatial import retract
from jaxjoints.couplings.shapes import (
    PARALLEL,
    Box,
    Capsule,
    HalfSpace,
    Point,
    Sphere,
    touch,
    touches,
)
from support.mechanisms import single
from support.touching import all_points

COUNT = 200
BALL, POLE, STICK = jax.tree.map(jnp.asarray, (Sphere(0.3), Capsule(0.2, 1.0), Capsule(0.1, 0.7)))
SMALL = Sphere(jnp.asarray(0.2))
CRATE = Box((0.4, 0.6, 0.8))
PAIRS = [
    (Point(), HalfSpace()),
    (BALL, HalfSpace()),
    (HalfSpace(), BALL),
    (BALL, SMALL),
    (Point(), BALL),
    (BALL, POLE),
    (POLE, Point()),
    (STICK, POLE),
]
every_pair = pytest.mark.parametrize(("C", "D"), PAIRS, ids=lambda shape: type(shape).__name__)
# Of what ε adds to a squared distance of (0.1 m)² at least, for places up to 0.5 m from the middle.
EQUAL = PARALLEL[8] * 2 * 0.5**2 / (2 * 0.1)


def poses(count, seed=0):
    """Poses of C in D at random, up to about two metres away, (…, count)."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(4, count))
    return Pose(
        jnp.asarray(rng.normal(size=(3, count))), jnp.asarray(q / np.linalg.norm(q, axis=0))
    )


T = poses(COUNT)


def ends(shape, T):
    """Ends of a rounded segment in D, (2, 3, count)."""
    half = np.array([0.0, 0.0, float(shape.half_length)])[:, None]
    return np.stack([np.asarray(T.apply(side * half + jnp.zeros_like(T.p))) for side in (-1, 1)])


def to_segment(p, a, b):
    """Distance of points (3, n) from segments a b."""
    along = b - a
    length2 = np.maximum(np.sum(along**2, axis=0), 1e-300)
    s = np.clip(np.sum((p - a) * along, axis=0) / length2, 0, 1)
    return np.linalg.norm(p - a - s * along, axis=0)


def between_segments(a, b, c, d):
    """Distance of the segments a b and c d: of an end of one from the other, or of both lines."""
    found = [to_segment(a, c, d), to_segment(b, c, d), to_segment(c, a, b), to_segment(d, a, b)]
    u, v, r = b - a, d - c, c - a
    n = np.cross(u, v, axis=0)
    square = np.sum(n**2, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        s = np.sum(np.cross(r, v, axis=0) * n, axis=0) / square
        t = np.sum(np.cross(r, u, axis=0) * n, axis=0) / square
        lines = np.abs(np.sum(r * n, axis=0)) / np.sqrt(square)
    inside = (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)
    return np.min([*found, np.where(inside, lines, np.inf)], axis=0)


@every_pair
def test_gaps_are_distances_of_segments_less_the_radii(C, D):
    found = touch(C, D, T).gap
    here = Pose.identity((COUNT,))
    if isinstance(D, HalfSpace):
        expected = ends(C, T)[:, 2].min(axis=0) - C.radius
    elif isinstance(C, HalfSpace):
        expected = np.asarray(T.inverse().p)[2] - D.radius
    else:
        expected = between_segments(*ends(C, T), *ends(D, here)) - C.radius - D.radius
    np.testing.assert_allclose(found, expected, rtol=0, atol=EQUAL)


@pytest.mark.parametrize(("shape", "count"), [(CRATE, 8), (POLE, 2)])
def test_boxes_touch_a_half_space_with_corners_capsules_with_ends(shape, count):
    found = all_points(shape, HalfSpace(), T)
    assert found.gap.shape == (count, COUNT) and found.point.shape == (count, 3, COUNT)
    if shape is POLE:
        expected = ends(POLE, T)[:, 2] - 0.2
    else:
        signs = np.stack(np.meshgrid(*[[-0.5, 0.5]] * 3, indexing="ij")).reshape(3, 8)
        corners = signs * np.array(CRATE.size)[:, None]
        R = np.asarray(T.R)
        expected = np.einsum("jn,ji->in", R[2], corners) + np.asarray(T.p)[2]
        np.testing.assert_allclose(found.point[:, 2], found.gap, atol=1e-14)
    np.testing.assert_allclose(found.gap, expected, atol=1e-14)
    # The other way round: the same points and gaps, opposite normals.
    swapped = all_points(HalfSpace(), shape, T.inverse())
    np.testing.assert_allclose(swapped.gap, found.gap, atol=1e-14)
    back = jnp.stack([T.apply(x) for x in swapped.point])
    np.testing.assert_allclose(back, found.point, atol=1e-14)


@every_pair
def test_swapped_shapes_touch_in_the_same_place(C, D):
    found, swapped = touch(C, D, T), touch(D, C, T.inverse())
    np.testing.assert_allclose(swapped.gap, found.gap, atol=EQUAL)
    np.testing.assert_allclose(T.rotate(swapped.normal), -found.normal, atol=1e-7)
    np.testing.assert_allclose(T.apply(swapped.point), found.point, atol=1e-7)


@jax.jit
def rates(contact, T, twist):
    """The gap's rate by differentiation, speeds along all directions, and where the contact is."""

    def gap(s):
        return contact.at(retract(T, s * twist)).gap

    speeds = rows(contact, T) @ twist
    return jax.jvp(gap, (0.0,), (1.0,))[1], speeds, contact.at(T).gap, *contact.touch(T)


FOOT = ContactPoint((0.1, 0.2, -0.3), (0.0, 0.1, 0.2), (0.3, 0.0, 2.0), tangent=(1.0, 1.0, 0.0))
CONTACTS = [Contact(BALL, HalfSpace()), Contact(HalfSpace(), BALL), Contact(STICK, POLE), FOOT]


@pytest.mark.parametrize("contact", CONTACTS, ids=lambda c: type(getattr(c, "shape_C", c)).__name__)
def test_wrenches_read_the_rate_of_the_gap_and_slip_and_spin(contact):
    """N v is the velocity of C's point at the contact, and the turning, along n, t₁, t₂."""
    at = jax.tree.map(lambda x: x[:, 7], T)
    twist = jnp.array([0.3, -0.2, 0.5, 0.7, -0.4, 0.6])
    contact = jax.tree.map(jnp.asarray, contact, is_leaf=lambda x: isinstance(x, tuple))
    rate, speeds, gap, found, along = rates(contact, at, twist)
    velocity = at.rotate(twist[:3]) + jnp.cross(at.rotate(twist[3:]), found.point - at.p)
    n, t1 = found.normal, along
    frame = jnp.stack([n, t1, jnp.cross(n, t1)])
    np.testing.assert_allclose(frame @ frame.T, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(speeds[:3], frame @ velocity, atol=1e-14)
    turning = frame @ at.rotate(twist[3:])
    np.testing.assert_allclose(speeds[3:], turning[jnp.array([1, 2, 0])], atol=1e-14)
    np.testing.assert_allclose(rate, speeds[0], atol=1e-9)
    np.testing.assert_allclose(gap, found.gap)


@jax.jit
def rows(contact, T):
    """Wrenches of the six directions at C in C, one in each row."""
    return contact.at(T).wrenches(range(6)).T


@jax.jit
def described(C, D, T, twist):
    """Gap, point and normal after a small motion from a pose."""
    found = touch(C, D, retract(T, twist))
    return jnp.concatenate([found.gap[None], found.point, found.normal])


@jax.jit
def slopes(C, D, T):
    """The derivatives of that by a motion, forward and reverse."""
    at = jnp.zeros(6, T.p.dtype)
    return [jac(partial(described, C, D, T))(at) for jac in (jax.jacfwd, jax.jacrev)]


@jax.jit
def curvature(C, D, T):
    """Second derivatives of the gap by a motion, which moves T itself."""

    def slope(moved):
        return jax.jacfwd(lambda v: touch(C, D, retract(retract(T, moved), v)).gap)(jnp.zeros(6))

    return jax.jacfwd(slope)(jnp.zeros(6))


@pytest.mark.parametrize(("C", "D"), [(BALL, SMALL), (STICK, POLE)])
def test_gaps_points_and_normals_have_derivatives(C, D):
    """Of two orders for the gap: the second where the nearest points move along the axes."""
    at, h = jax.tree.map(lambda x: x[:, 7], T), 1e-5
    forward, reverse = slopes(C, D, at)
    np.testing.assert_allclose(reverse, forward, atol=1e-12)
    ahead, behind = (
        [(described(C, D, at, v), slopes(C, D, retract(at, v))[0][0]) for v in s * np.eye(6) * h]
        for s in (1, -1)
    )
    first = [(a[0] - b[0]) / (2 * h) for a, b in zip(ahead, behind, strict=True)]
    second = [(a[1] - b[1]) / (2 * h) for a, b in zip(ahead, behind, strict=True)]
    np.testing.assert_allclose(forward, np.transpose(first), atol=1e-8)
    np.testing.assert_allclose(curvature(C, D, at), np.transpose(second), atol=1e-8)


SINGULAR = {
    "coincident centres": (BALL, SMALL, Pose.identity()),
    "crossing axes": (STICK, POLE, Pose.about_x(1.0)),
    "one axis": (STICK, POLE, Pose.along_z(0.2)),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_where_axes_meet_all_is_finite_and_normals_have_length_1(name):
    C, D, at = SINGULAR[name]
    values = described(C, D, at, jnp.zeros(6))
    assert np.isfinite(values).all() and np.isfinite(slopes(C, D, at)).all()
    np.testing.assert_allclose(np.linalg.norm(values[4:]), 1.0, atol=1e-14)
    np.testing.assert_allclose(values[0], -float(C.radius) - float(D.radius), atol=1e-14)
    W = rows(Contact(C, D), at)
    assert np.linalg.matrix_rank(W) == 6


@pytest.mark.parametrize("slide", [0.0, 0.4, -0.6, 0.8, 0.9])
def test_parallel_capsules_touch_half_way_between_their_middles(slide):
    """Or where they face each other next to that; beyond, end against end. What the gap's kink
    leaves of its slope bounds it from above: gap(v) <= gap + N v + O(v²).
    """
    at = Pose.translation(jnp.array([0.5, 0.0, slide]))
    gap, *point, nx, ny, nz = described(STICK, POLE, at, jnp.zeros(6))
    # Of D's axis, what C faces.
    low, high = max(slide - 0.35, -0.5), min(slide + 0.35, 0.5)
    np.testing.assert_allclose(gap, np.hypot(0.5, max(low - high, 0.0)) - 0.3, atol=EQUAL)
    if low < high:
        np.testing.assert_allclose(point[2], np.clip(slide / 2, low, high), atol=1e-6)
        np.testing.assert_allclose([nx, ny, nz], [1.0, 0.0, 0.0], atol=1e-9)
    forward, reverse = slopes(STICK, POLE, at)
    row = rows(Contact(STICK, POLE), at)[0]
    np.testing.assert_allclose(forward[0], row, atol=1e-9)
    np.testing.assert_allclose(reverse[0], row, atol=1e-9)
    moves = 1e-3 * np.random.default_rng(0).normal(size=(6, 50))
    moved = jax.tree.map(lambda x: jnp.repeat(x[:, None], 50, axis=1), at)
    moved = touch(STICK, POLE, retract(moved, jnp.asarray(moves))).gap
    most = gap + row @ moves
    assert np.all(moved <= most + 5 * np.sum(moves**2, axis=0))
    assert np.min(moved - most) < (0 if low > high else -1e-4)


def test_capsules_at_any_small_angle_are_as_far_apart_as_their_axes():
    """From parallel to crossing: the places jump, the gap hardly feels what decides them."""
    angles = jnp.asarray(np.append(0.0, 10.0 ** np.linspace(-12, 0, 49)))
    zero, half = jnp.zeros_like(angles), angles / 2
    q = jnp.stack([jnp.cos(half), jnp.sin(half), zero, zero])
    at = Pose(jnp.stack([zero + 0.4, zero, zero + 0.3]), q)
    expected = between_segments(*ends(STICK, at), *ends(POLE, Pose.identity(angles.shape))) - 0.3
    np.testing.assert_allclose(touch(STICK, POLE, at).gap, expected, atol=EQUAL)
    thin, thick, at = single((STICK, POLE, at))
    most = PARALLEL[4] * 2 * 0.5**2 / (2 * 0.4) + 8 * np.finfo(np.float32).eps
    np.testing.assert_allclose(touch(thin, thick, at).gap, expected, atol=most)


@pytest.mark.slow
def test_gaps_have_derivatives_by_lengths():
    at = jax.tree.map(lambda x: x[:, 7], T)

    def gaps(lengths):
        r, R, L, *size = lengths
        shapes = Capsule(r, L), Box(jnp.stack(size)), Sphere(R)
        on_ground = [touches(shape, HalfSpace(), at).gap for shape in shapes]
        return jnp.concatenate([*on_ground, touches(shapes[0], shapes[2], at).gap])

    at_lengths = jnp.array([0.1, 0.2, 0.9, 0.3, 0.4, 0.5])
    check_grads(jax.jit(gaps), (at_lengths,), order=1, atol=1e-6, rtol=1e-6)
