"""Boxes under balls, capsules and boxes: brute force, MuJoCo, derivatives, places that persist."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from jaxjoints import Contact, Pose
from jaxjoints.couplings.box_gaps import EDGE_LEAD
from jaxjoints.couplings.shapes import Box, Capsule, Point, Sphere, candidates
from support.cases import mostly_slow
from support.touching import all_points, arrays, described, placed, slopes

COUNT = 300
CRATE, BLOCK = Box((0.6, 0.4, 0.8)), Box((0.5, 0.7, 0.3))
BALL, STICK = Sphere(0.15), Capsule(0.05, 0.7)
HALF, HALF_C = np.array([0.3, 0.2, 0.4]), np.array([0.25, 0.35, 0.15])
EXACT = 1e-9


def poses(count, seed=0, reach=0.6):
    """Poses of C in D at random, centres within twice `reach` of each other."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(4, count))
    p = rng.normal(size=(3, count))
    p *= rng.uniform(0.0, 2 * reach, count) / np.linalg.norm(p, axis=0)
    return Pose(jnp.asarray(p), jnp.asarray(q / np.linalg.norm(q, axis=0)))


def signed(points):
    """Signed distances of points (…, 3) from the crate, negative inside, and whether inside."""
    excess = np.abs(points) - HALF
    inside = excess.max(-1)
    return np.where(inside < 0, inside, np.linalg.norm(np.maximum(excess, 0), axis=-1))


def test_a_ball_is_as_far_from_a_box_as_its_centre_less_its_radius():
    """Inside too, where it leaves by the nearest face."""
    T = poses(COUNT, reach=0.3)
    found = all_points(BALL, CRATE, T)
    expected = signed(np.asarray(T.p).T)
    assert (expected < 0).sum() > 30
    np.testing.assert_allclose(found.gap[0], expected - 0.15, atol=1e-14)
    # The way along the normal from the point leads to both surfaces.
    n, gap, point = (np.asarray(x[0]) for x in (found.normal, found.gap, found.point))
    np.testing.assert_allclose(np.linalg.norm(n, axis=0), 1.0, atol=1e-14)
    np.testing.assert_allclose(signed((point - gap / 2 * n).T), 0.0, atol=1e-14)
    to_centre = np.linalg.norm(point + gap / 2 * n - np.asarray(T.p), axis=0)
    np.testing.assert_allclose(to_centre, 0.15, atol=1e-14)
    swapped = all_points(CRATE, BALL, T.inverse())
    np.testing.assert_allclose(swapped.gap, found.gap, atol=1e-14)
    np.testing.assert_allclose(T.rotate(swapped.normal[0]), -found.normal[0], atol=1e-13)
    np.testing.assert_allclose(T.apply(swapped.point[0]), found.point[0], atol=1e-14)
    np.testing.assert_allclose(
        all_points(Point(), CRATE, T).gap[0], found.gap[0] + 0.15, atol=1e-14
    )


def test_a_capsule_is_as_far_from_a_box_as_the_nearest_point_of_its_axis():
    T = poses(COUNT, seed=1)
    found = all_points(STICK, CRATE, T)
    assert found.gap.shape == (2, COUNT)
    p, axis = np.asarray(T.p).T, np.asarray(T.R)[:, 2].T
    expected = []
    for i in range(COUNT):

        def distance(s, i=i):
            return float(signed(p[i] + s * axis[i]))

        best = minimize_scalar(
            distance, bounds=(-0.35, 0.35), method="bounded", options={"xatol": 1e-11}
        )
        expected.append(min(best.fun, distance(-0.35), distance(0.35)))
    expected, nearest = np.array(expected), np.asarray(found.gap.min(0)) + 0.05
    outside = expected > 1e-12
    assert outside.sum() > 100 and (nearest[outside] < 0.05).sum() > 10
    np.testing.assert_allclose(nearest[outside], expected[outside], atol=EXACT)
    # Where the axis enters the box, both ends leave it by one face, inwards of it.
    assert (nearest[~outside] < 1e-12).all()
    assert (np.asarray(found.normal[0] - found.normal[1])[:, ~outside] == 0).all()


@pytest.mark.parametrize("tilt", [0.0, 1e-9, -1e-9, 1e-4, -1e-4])
@pytest.mark.parametrize("shift", [0.0, 0.2])
def test_a_capsule_that_lies_on_a_box_touches_at_both_ends_of_what_lies_on_it(tilt, shift):
    """However it is tilted a little; beyond the edge of the box there is no contact."""
    at = Pose.translation(jnp.array([shift, 0.05, 0.45])) @ Pose.about_y(jnp.pi / 2 + tilt)
    found = all_points(STICK, CRATE, at)
    expected = [max(shift - 0.35, -0.3), min(shift + 0.35, 0.3)]
    np.testing.assert_allclose(found.point[:, 0], expected, atol=2e-5)
    np.testing.assert_allclose(found.point[:, 1], 0.05, atol=1e-12)
    np.testing.assert_allclose(found.normal, [[0.0, 0.0, 1.0]] * 2, atol=1e-3)
    np.testing.assert_allclose(found.gap, 0.0, atol=6e-5)


def axes_of_separation(T, half_C=HALF_C, half_D=HALF):
    """Separations along the normals of faces (6,) and across edges (9,), by projection."""
    R, p = np.asarray(T.R), np.asarray(T.p)
    normals = [*np.eye(3), *R.T, *(np.cross(d, c) for d in np.eye(3) for c in R.T)]
    found = []
    for n in normals:
        n = n / np.linalg.norm(n)
        found.append(abs(n @ p) - half_D @ np.abs(n) - half_C @ np.abs(R.T @ n))
    return np.array(found[:6]), np.array(found[6:])


def clipped(polygon, inside):
    """A polygon [(u, v)] cut by half planes n·x ≤ d: Sutherland and Hodgman."""
    for n, d in inside:
        result = []
        for a, b in zip(polygon, polygon[1:] + polygon[:1], strict=True):
            da, db = n @ a - d, n @ b - d
            if da <= 0:
                result.append(a)
            if da * db < 0:
                result.append(a + (b - a) * da / (da - db))
        polygon = result
    return polygon


def corners_between(T, n):
    """Points and heights of the intersection of the facing faces, seen along n, by clipping."""
    R, p = np.asarray(T.R), np.asarray(T.p)
    k = np.argmax(np.abs(n))
    j = np.argmax(np.abs(R.T @ n))
    m = -np.sign(n @ R[:, j]) * R[:, j]
    centre = p + HALF_C[j] * m
    a, b = (R[:, (j + i) % 3] * HALF_C[(j + i) % 3] for i in (1, 2))
    face = [centre + s * a + t * b for s, t in ((1, 1), (-1, 1), (-1, -1), (1, -1))]
    top = np.sign(n[k]) * HALF[k]
    flat = [x + n * (top - x[k]) / n[k] for x in face]
    u, v = ((k + 1) % 3, (k + 2) % 3)
    sides = [(np.eye(2)[i] * s, HALF[w]) for i, w in ((0, u), (1, v)) for s in (1, -1)]
    found = []
    for at in clipped([x[[u, v]] for x in flat], sides):
        low = np.zeros(3)
        low[[k, u, v]] = top, *at
        height = (centre - low) @ m / (n @ m)
        found.append([height, *(low + n * height / 2)])
    return np.array(found)


def test_boxes_are_apart_along_the_best_of_fifteen_normals_at_corners_of_their_faces():
    T = poses(COUNT, seed=2, reach=0.45)
    found = all_points(BLOCK, CRATE, T)
    assert found.gap.shape == (8, COUNT)
    touching, edges = 0, 0
    for i in range(COUNT):
        one = jax.tree.map(lambda x, i=i: x[..., i], (T, found))
        at, (gap, point, normal) = one[0], (one[1].gap, one[1].point, one[1].normal)
        faces, across = axes_of_separation(at)
        lead = across.max() - faces.max()
        if 0 < lead < EDGE_LEAD * 0.15:
            continue
        expected, n = max(faces.max(), across.max()), np.asarray(normal[0])
        assert (np.asarray(normal) == n).all() and n @ at.p >= 0
        apart = n @ at.p - HALF @ np.abs(n) - HALF_C @ np.abs(np.asarray(at.R).T @ n)
        np.testing.assert_allclose([np.linalg.norm(n), apart], [1.0, expected], atol=1e-12)
        corners = corners_between(at, n)
        if not len(corners):
            continue
        touching, edges = touching + 1, edges + (lead > 0)
        # Eight edges begin at most so many corners; others are farther apart than the bodies.
        places = np.asarray(jnp.concatenate([gap[:, None], point], axis=1))
        off = np.abs(places[:, None] - corners[None]).max(-1)
        np.testing.assert_allclose(off.min(0), 0.0, atol=EXACT)
        assert len(set(off.argmin(0))) == len(corners)
        rest = np.delete(places[:, 0], off.argmin(0))
        assert (rest >= corners[:, 0].min() - EXACT).all()
        if expected < 0:
            np.testing.assert_allclose(gap.min(), expected, atol=EXACT)
    assert touching > 150 and edges > 30


def test_boxes_touch_where_mujoco_finds_them_to_touch():
    mujoco = pytest.importorskip("mujoco")
    m = mujoco.MjModel.from_xml_string("""<mujoco><worldbody>
      <geom type="box" size="0.3 0.2 0.4"/>
      <body><freejoint/><geom type="box" size="0.25 0.35 0.15"/></body></worldbody></mujoco>""")
    d = mujoco.MjData(m)
    rng = np.random.default_rng(3)
    turn, tilt = rng.uniform(0, np.pi, COUNT), 1e-3 * rng.normal(size=(2, COUNT))
    q = np.stack([np.cos(turn / 2), *tilt, np.sin(turn / 2)])
    p = np.stack([*rng.uniform(-0.4, 0.4, (2, COUNT)), np.full(COUNT, 0.548)])
    T = Pose(jnp.asarray(p), jnp.asarray(q / np.linalg.norm(q, axis=0)))
    found = jax.tree.map(np.asarray, all_points(BLOCK, CRATE, T))
    compared = 0
    for i in range(COUNT):
        d.qpos[:] = [*T.p[:, i], *T.q[:, i]]
        mujoco.mj_forward(m, d)
        seen = [c for c in d.contact if c.dist < -1e-12]
        # Where MuJoCo takes another of two normals that are nearly as good, nothing compares.
        if len(seen) < 2 or np.abs(seen[0].frame[:3] - found.normal[0, :, i]).max() > EXACT:
            continue
        touch = found.gap[:, i] < -1e-12
        ours = np.concatenate([found.gap[touch, None, i], found.point[touch, :, i]], axis=1)
        theirs = np.array([[c.dist, *c.pos] for c in seen])
        off = np.abs(ours[:, None] - theirs[None]).max(-1)
        np.testing.assert_allclose(off.min(0), 0.0, atol=EXACT)
        compared += 1
    assert compared > COUNT / 2


@pytest.mark.parametrize("kind", ["sphere", "capsule"])
def test_round_shapes_touch_a_box_where_mujoco_finds_them_to_touch(kind):
    mujoco = pytest.importorskip("mujoco")
    size = "0.15" if kind == "sphere" else "0.05 0.35"
    m = mujoco.MjModel.from_xml_string(f"""<mujoco><worldbody>
      <geom type="box" size="0.3 0.2 0.4"/>
      <body><freejoint/><geom type="{kind}" size="{size}"/></body></worldbody></mujoco>""")
    d = mujoco.MjData(m)
    T = poses(COUNT, seed=4, reach=0.35)
    found = jax.tree.map(np.asarray, all_points(BALL if kind == "sphere" else STICK, CRATE, T))
    inside = 0 if kind == "sphere" else -0.05
    compared = 0
    for i in range(COUNT):
        deepest = found.gap[:, i].argmin()
        # MuJoCo finds other faces where an axis enters the box, and near edges another depth.
        if kind == "capsule" and found.gap[deepest, i] < inside + 1e-9:
            continue
        d.qpos[:] = [*T.p[:, i], *T.q[:, i]]
        mujoco.mj_forward(m, d)
        seen = sorted(d.contact, key=lambda c: c.dist)
        assert bool(seen) == bool(found.gap[deepest, i] < 0)
        if not seen:
            continue
        compared += 1
        np.testing.assert_allclose(found.gap[deepest, i], seen[0].dist, atol=EXACT)
        np.testing.assert_allclose(-found.normal[deepest, :, i], seen[0].frame[:3], atol=1e-7)
        np.testing.assert_allclose(found.point[deepest, :, i], seen[0].pos, atol=1e-7)
    assert compared > 20


PAIRS = {
    "ball beside a box": (BALL, CRATE, (0.4, 0.3, 0.1), (0.9, 0.1, 0.3, 0.2)),
    "ball in a box": (BALL, CRATE, (0.1, 0.05, 0.1), (0.9, 0.1, 0.3, 0.2)),
    "capsule on a face": (STICK, CRATE, (0.1, 0.05, 0.44), (0.7, 0.02, 0.72, 0.1)),
    "capsule on an edge": (STICK, CRATE, (0.33, 0.05, 0.42), (0.9, 0.2, -0.4, 0.1)),
    "capsule at a corner": (STICK, CRATE, (0.32, 0.23, 0.42), (0.9, 0.5, -0.4, 0.1)),
    "capsule through a box": (STICK, CRATE, (0.2, 0.05, 0.3), (0.9, 0.2, -0.4, 0.1)),
    "box on a face": (BLOCK, CRATE, (0.1, 0.15, 0.54), (0.9, 0.02, 0.03, 0.4)),
    "box on an edge": (BLOCK, CRATE, (0.42, 0.02, 0.52), (0.8, 0.5, -0.2, 0.1)),
    "box beside a box": (BLOCK, CRATE, (0.6, 0.5, 0.5), (0.8, 0.5, -0.2, 0.1)),
}


# Pairs of the same shapes share a program.
@pytest.mark.parametrize(
    "name", mostly_slow(PAIRS, default=[name for name in PAIRS if "capsule" not in name])
)
def test_gaps_points_and_normals_of_boxes_have_derivatives(name):
    C, D, *pose = PAIRS[name]
    C, D = arrays(C), arrays(D)
    at, h = placed(*pose), 1e-6
    forward, reverse = slopes(C, D, at)
    np.testing.assert_allclose(reverse, forward, atol=1e-11)
    ahead, behind = (np.stack([described(C, D, at, s * h * e) for e in np.eye(6)]) for s in (1, -1))
    expected = np.moveaxis(ahead - behind, 0, -1) / (2 * h)
    np.testing.assert_allclose(forward, expected, atol=1e-7)


SINGULAR = {
    "ball in the middle": (BALL, CRATE, Pose.identity()),
    "ball on an edge": (BALL, CRATE, Pose.translation(jnp.array([0.3, 0.2, 0.0]))),
    "capsule in the middle": (STICK, CRATE, Pose.identity()),
    "capsule along a face": (STICK, CRATE, Pose.along_x(0.3)),
    "capsule along an edge": (STICK, CRATE, Pose.translation(jnp.array([0.35, 0.25, 0.0]))),
    "boxes in one place": (CRATE, CRATE, Pose.identity()),
    "box flush on a box": (CRATE, CRATE, Pose.along_z(0.8)),
    "box at 90 degrees": (CRATE, CRATE, Pose.along_z(0.8) @ Pose.about_z(jnp.pi / 2)),
    "edge on parallel edge": (
        CRATE,
        CRATE,
        Pose.along_x(0.3 + 0.35 * 2**0.5) @ Pose.about_z(jnp.pi / 4),
    ),
    "corner on a corner": (CRATE, CRATE, Pose.translation(jnp.array([0.6, 0.4, 0.8]))),
}


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", mostly_slow(SINGULAR, default=[name for name in SINGULAR if "capsule" not in name])
)
def test_where_boxes_align_all_is_finite_and_normals_have_length_1(name, dtype):
    C, D, at = SINGULAR[name]
    C, D = arrays(C), arrays(D)
    # Of the types of `placed`, so that all pairs of the same shapes share a program.
    C, D, at = jax.tree.map(lambda x: jnp.asarray(x, dtype), (C, D, at))
    values = described(C, D, at, jnp.zeros(6, dtype))
    assert np.isfinite(values).all() and np.isfinite(slopes(C, D, at)).all()
    np.testing.assert_allclose(np.linalg.norm(values[:, 4:], axis=1), 1.0, atol=1e-6)


def test_a_box_flush_on_a_box_has_its_points_at_the_corners_and_keeps_their_places():
    """While it turns a little and tilts a little each point moves a little, on its edge."""
    flat = all_points(BLOCK, CRATE, Pose.along_z(0.55))
    np.testing.assert_allclose(flat.normal, [[0.0, 0.0, 1.0]] * 8, atol=1e-14)
    low = np.asarray(flat.gap) < 1e-9
    assert low.sum() == 4
    corners = np.abs(np.asarray(flat.point)[low])
    np.testing.assert_allclose(corners, [[0.25, 0.2, 0.4]] * 4, atol=1e-12)
    turned = Pose.along_z(0.55) @ Pose.about_z(0.3)
    before = None
    for tilt in np.linspace(-1e-5, 1e-5, 5):
        now = all_points(BLOCK, CRATE, turned @ Pose.about_x(tilt) @ Pose.about_y(2e-6))
        touching = np.asarray(now.gap) < 1e-4
        assert touching.sum() == 6
        if before is not None:
            assert (touching == before[0]).all()
            np.testing.assert_allclose(now.point[touching], before[1][touching], atol=1e-4)
        before = touching, np.asarray(now.point)


def test_tangents_on_the_sides_of_a_box_do_not_jump_with_noise():
    """Across z = 0 of the normal, where the faces of a box are."""
    at = placed((0.55, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
    edge = [jax.tree.map(jnp.asarray, pair) for pair in candidates(BLOCK, CRATE)[0][::2]]
    tilted = [at @ Pose.about_y(angle) for angle in (-1e-9, 0.0, 1e-9)]
    tangent = jax.jit(lambda T: Contact(*edge).touch(T)[1])
    tangents = [tangent(T) for T in tilted]
    np.testing.assert_allclose(tangents, [tangents[1]] * 3, atol=1e-8)
