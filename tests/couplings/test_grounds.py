"""Cylinders, convex meshes and height fields: closed forms, MuJoCo, derivatives, places."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import Pose
from jaxjoints.couplings.height_gaps import TRIANGLES
from jaxjoints.couplings.hulls import hull
from jaxjoints.couplings.shapes import (
    UPRIGHT,
    Box,
    Capsule,
    ConvexMesh,
    Cylinder,
    HalfSpace,
    HeightField,
    Point,
    Sphere,
)
from support.cases import mostly_slow
from support.touching import all_points, arrays, described, placed, slopes

COUNT = 200
EXACT = 1e-9
DRUM = Cylinder(0.2, 0.5)


def poses(count, seed=0, height=0.5, reach=1.0):
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(4, count))
    p = reach * rng.uniform(-1, 1, (3, count))
    p[2] = rng.uniform(0.0, height, count)
    return Pose(jnp.asarray(p), jnp.asarray(q / np.linalg.norm(q, axis=0)))


def stone(count, seed=0):
    """A convex body with many vertices, of about 0.2 m."""
    x = np.random.default_rng(seed).normal(size=(count, 3))
    return x / np.linalg.norm(x, axis=1)[:, None] * [0.2, 0.15, 0.1]


STONE, TETRAHEDRON = ConvexMesh.hull_of(stone(60)), ConvexMesh.hull_of(stone(4))
# Prism of 24 sides, on which it may stand.
COIN = ConvexMesh(
    np.array(
        [
            [0.2 * np.cos(a), 0.2 * np.sin(a), z]
            for a in np.arange(24) * np.pi / 12
            for z in (-0.05, 0.05)
        ]
    )
)


def test_a_cylinder_touches_a_plane_with_the_lowest_points_of_its_rims():
    T = poses(COUNT)
    found = all_points(DRUM, HalfSpace(), T)
    assert found.gap.shape == (4, COUNT)
    c = np.asarray(T.R)[2, 2]
    sine = np.sqrt(1 - c**2)
    for k, side in ((0, -1), (1, 1)):
        expected = np.asarray(T.p)[2] + side * 0.25 * c - 0.2 * sine
        np.testing.assert_allclose(found.gap[k], expected, atol=1e-14)
    # Two more at a third of the circle, on the lower disc.
    low = np.asarray(T.p)[2] - 0.25 * np.abs(c) + 0.1 * sine
    np.testing.assert_allclose(found.gap[2:], [low] * 2, atol=1e-14)
    on_rim = np.stack([np.asarray(T.inverse().apply(x)) for x in found.point])
    np.testing.assert_allclose(np.linalg.norm(on_rim[:, :2], axis=1), 0.2, atol=1e-14)
    np.testing.assert_allclose(np.abs(on_rim[:, 2]), 0.25, atol=1e-14)


def test_a_cylinder_touches_a_plane_where_it_does_in_mujoco():
    mujoco = pytest.importorskip("mujoco")
    m = mujoco.MjModel.from_xml_string("""<mujoco><worldbody><geom type="plane" size="1 1 1"/>
      <body><freejoint/><geom type="cylinder" size="0.2 0.25"/></body></worldbody></mujoco>""")
    d = mujoco.MjData(m)
    T = poses(COUNT, height=0.3)
    found = jax.tree.map(np.asarray, all_points(DRUM, HalfSpace(), T))
    for i in range(COUNT):
        d.qpos[:] = [*T.p[:, i], *T.q[:, i]]
        mujoco.mj_forward(m, d)
        theirs = np.array([[c.dist, *c.pos] for c in d.contact]).reshape(-1, 4)
        low = found.gap[:, i] < 0
        assert low.sum() == len(theirs)
        middle = found.point[:, :, i] - found.gap[:, None, i] / 2 * found.normal[:, :, i]
        ours = np.concatenate([found.gap[low, None, i], middle[low]], axis=1)
        off = np.abs(ours[:, None] - theirs[None]).max(-1)
        assert len(theirs) == 0 or off.min(0).max() < EXACT


@pytest.mark.parametrize("over", [1, -1])
def test_a_cylinder_that_stands_keeps_three_points_while_it_trembles(over):
    """Either way up; each point moves by as much as it trembles."""
    up = Pose.about_x(0.0 if over == 1 else np.pi)
    still = all_points(DRUM, HalfSpace(), Pose.along_z(0.25) @ up)
    three = np.asarray(still.gap) < 1e-9
    assert three.sum() == 3
    np.testing.assert_allclose(np.sum(still.point[three], axis=0), 0.0, atol=1e-12)
    for tilt in ((1e-6, 2e-6), (-2e-6, 1e-6), (0.0, -3e-6)):
        tilted = up @ Pose.about_x(tilt[0]) @ Pose.about_y(tilt[1])
        moved = all_points(DRUM, HalfSpace(), Pose.along_z(0.25) @ tilted)
        np.testing.assert_allclose(moved.point[three], still.point[three], atol=2e-3)


def lowest_height(mesh, T):
    """Heights of the lowest vertices (count,)."""
    heights = np.einsum("jn,vj->vn", np.asarray(T.R)[2], np.asarray(mesh.vertices))
    return heights.min(0) + np.asarray(T.p)[2]


@pytest.mark.parametrize(("mesh", "count"), [(STONE, 8), (TETRAHEDRON, 4), (COIN, 8)])
def test_a_convex_mesh_touches_a_plane_with_its_lowest_vertices(mesh, count):
    T = poses(COUNT, seed=1)
    found = all_points(mesh, HalfSpace(), T)
    assert found.gap.shape == (count, COUNT)
    np.testing.assert_allclose(found.gap.min(0), lowest_height(mesh, T), atol=2e-6)
    exact = np.abs(found.gap.min(0) - lowest_height(mesh, T)) < 1e-14
    assert exact.mean() > 0.9


def test_a_convex_mesh_touches_a_plane_where_it_does_in_mujoco():
    mujoco = pytest.importorskip("mujoco")
    vertices = " ".join(f"{x:.9f}" for x in stone(60).ravel())
    m = mujoco.MjModel.from_xml_string(f"""<mujoco><asset><mesh name="stone" vertex="{vertices}"/>
      </asset><worldbody><geom type="plane" size="1 1 1"/><body><freejoint/>
      <geom type="mesh" mesh="stone"/></body></worldbody></mujoco>""")
    d = mujoco.MjData(m)
    mesh = ConvexMesh.hull_of(m.mesh_vert)
    T = poses(COUNT, seed=2, height=0.15)
    places = []
    for i in range(COUNT):
        d.qpos[:] = [*T.p[:, i], *T.q[:, i]]
        mujoco.mj_forward(m, d)
        places.append([*d.geom_xpos[1], *d.geom_xmat[1]])
        places[-1] += [min(d.contact, key=lambda c: c.dist)] if d.ncon else [None]
        if d.ncon:
            best = places[-1][-1]
            places[-1][-1] = np.array([best.dist, *best.pos])
    p = jnp.asarray(np.array([x[:3] for x in places]).T)
    R = jnp.asarray(np.array([np.reshape(x[3:12], (3, 3)) for x in places]).transpose(1, 2, 0))
    found = jax.tree.map(np.asarray, all_points(mesh, HalfSpace(), Pose.from_matrix(R, p)))
    compared = 0
    for i, best in enumerate(x[-1] for x in places):
        k = found.gap[:, i].argmin()
        assert (best is not None) == (found.gap[k, i] < 0)
        if best is None:
            continue
        middle = found.point[k, :, i] - found.gap[k, i] / 2 * found.normal[k, :, i]
        # MuJoCo keeps vertices in single precision, and so does the comparison.
        off = np.abs(np.array([found.gap[k, i], *middle]) - best).max()
        compared += off < EXACT
        assert abs(found.gap[k, i] - best[0]) < 2e-4
    assert compared > 50


def test_a_mesh_that_stands_keeps_its_points_while_it_trembles():
    flat = all_points(COIN, HalfSpace(), Pose.along_z(0.05))
    low = np.asarray(flat.gap) < 1e-9
    assert low.all()
    corners = np.unique(np.round(np.asarray(flat.point), 9), axis=0)
    assert len(corners) >= 4
    for tilt in (1e-5, -1e-5):
        moved = all_points(COIN, HalfSpace(), Pose.along_z(0.05) @ Pose.about_x(tilt))
        np.testing.assert_allclose(moved.point, flat.point, atol=3e-6)


def test_hulls_are_simplified_to_vertices_that_lie_farthest_out():
    points = np.concatenate([stone(500), 0.5 * stone(50, seed=1)])
    exact, none = hull(points, most=1000)
    assert none == 0.0 and len(exact) == 500
    few, off = hull(points, most=40)
    assert len(few) == 40 and 0 < off < 0.02
    # Each point lies at most so far beyond the support of the few, in any direction.
    way = np.random.default_rng(0).normal(size=(3, 400))
    way /= np.linalg.norm(way, axis=0)
    beyond = (points @ way).max(0) - (few @ way).max(0)
    assert beyond.min() > -1e-12 and beyond.max() <= off + 1e-12
    with pytest.raises(ValueError, match="hull: the points lie in a plane or are fewer than 4"):
        ConvexMesh.hull_of(points * [1.0, 1.0, 0.0])
    with pytest.raises(ValueError, match="hull: most 5 must be >= 8"):
        ConvexMesh.hull_of(points, most=5)


SIZE, SHAPE = np.array([3.0, 2.0]), (7, 5)


def field(seed=0, rough=0.15):
    heights = rough * np.random.default_rng(seed).normal(size=SHAPE)
    return HeightField(heights, SIZE)


def nodes(ground):
    x, y = (np.linspace(-s / 2, s / 2, n) for s, n in zip(SIZE, SHAPE, strict=True))
    return np.stack([*np.meshgrid(x, y, indexing="ij"), np.asarray(ground.heights)], axis=-1)


def nearest_on(ground, p):
    """The nearest point of all triangles to p, by projection and clipping, and the height below."""
    grid, best, height = nodes(ground), None, None
    for i in range(SHAPE[0] - 1):
        for j in range(SHAPE[1] - 1):
            a, b, c, d = grid[i, j], grid[i + 1, j], grid[i + 1, j + 1], grid[i, j + 1]
            for triangle in ((a, b, c), (a, c, d)):
                triangle = np.array(triangle)
                n = np.cross(triangle[1] - triangle[0], triangle[2] - triangle[0])
                n /= np.linalg.norm(n)
                for x, vertical in ((p - n * (n @ (p - triangle[0])), False), (p, True)):
                    sides = np.roll(triangle, -1, 0) - triangle
                    arm = x - triangle
                    flat = sides[:, 0] * arm[:, 1] - sides[:, 1] * arm[:, 0]
                    if (flat >= -1e-13).all():
                        if vertical:
                            height = p[2] - (triangle[0] @ n - n[:2] @ p[:2]) / n[2]
                        elif best is None or np.linalg.norm(p - x) < np.linalg.norm(p - best):
                            best = x
                for s, v in zip(sides, triangle, strict=True):
                    x = v + np.clip((p - v) @ s / (s @ s), 0, 1) * s
                    if best is None or np.linalg.norm(p - x) < np.linalg.norm(p - best):
                        best = x
    return best, height


@pytest.mark.parametrize("shape", [Sphere(0.1), pytest.param(Point(), marks=pytest.mark.slow)])
def test_a_ball_is_as_far_from_a_height_field_as_from_its_nearest_triangle(shape):
    ground = field()
    rng = np.random.default_rng(3)
    p = np.stack([*(rng.uniform(-0.5, 0.5, (2, COUNT)) * SIZE[:, None]), np.zeros(COUNT)])
    p[2] = rng.uniform(-0.05, 0.3, COUNT)
    found = all_points(shape, ground, Pose.translation(jnp.asarray(p)))
    radius = float(shape.radius)
    for i in range(COUNT):
        nearest, height = nearest_on(ground, p[:, i])
        distance = np.copysign(np.linalg.norm(p[:, i] - nearest), height)
        gap, point, n = (np.asarray(x[0, ..., i]) for x in (found.gap, found.point, found.normal))
        if np.hypot(*(nearest - p[:, i])[:2]) > 0.2:
            continue
        np.testing.assert_allclose(gap + radius, distance, atol=EXACT)
        np.testing.assert_allclose(np.linalg.norm(n), 1.0, atol=1e-12)
        np.testing.assert_allclose(point - gap / 2 * n, nearest, atol=1e-7)
    assert TRIANGLES.shape == (8, 3)


@pytest.mark.slow
def test_boxes_capsules_cylinders_and_meshes_touch_a_height_field():
    """On a slope of one plane as on a half-space of that slope; other ways round too."""
    x = np.linspace(-1.5, 1.5, 7)
    ramp = HeightField(np.outer(0.4 * x, np.ones(5)), SIZE)
    plane = Pose.about_y(-np.arctan(0.4))
    T = Pose.along_z(0.6) @ Pose.about(jnp.array([1.0, 2.0, 0.5]), 0.7)
    for shape in (Box((0.2, 0.3, 0.4)), Capsule(0.05, 0.4), DRUM, STONE, TETRAHEDRON):
        on_grid = all_points(shape, ramp, T)
        on_plane = all_points(shape, HalfSpace(), plane.inverse() @ T)
        np.testing.assert_allclose(on_grid.gap, on_plane.gap, atol=1e-12)
        # On a plane forces act at the lowest point, on a grid half-way to the surface.
        lowest = np.stack([plane.apply(x) for x in on_plane.point])
        middle = lowest - np.asarray(on_grid.gap)[:, None] / 2 * np.asarray(on_grid.normal)
        np.testing.assert_allclose(on_grid.point, middle, atol=1e-12)
        swapped = all_points(ramp, shape, T.inverse())
        np.testing.assert_allclose(swapped.gap, on_grid.gap, atol=1e-12)


def test_a_ball_touches_a_height_field_where_it_does_in_mujoco():
    mujoco = pytest.importorskip("mujoco")
    ground = field(rough=0.05)
    low, high = ground.heights.min(), ground.heights.max()
    m = mujoco.MjModel.from_xml_string(f"""<mujoco><asset>
      <hfield name="f" nrow="{SHAPE[1]}" ncol="{SHAPE[0]}" size="1.5 1 {high - low} 1"/></asset>
      <worldbody><geom type="hfield" hfield="f" pos="0 0 {low}"/><body><freejoint/>
      <geom type="sphere" size="0.1"/></body></worldbody></mujoco>""")
    m.hfield_data[:] = ((ground.heights.T - low) / (high - low)).ravel()
    d = mujoco.MjData(m)
    rng = np.random.default_rng(5)
    p = np.stack([*rng.uniform(-0.8, 0.8, (2, COUNT)), rng.uniform(0.08, 0.2, COUNT)])
    found = all_points(Sphere(0.1), ground, Pose.translation(jnp.asarray(p)))
    compared = 0
    for i in range(COUNT):
        d.qpos[:3] = p[:, i]
        mujoco.mj_forward(m, d)
        if not d.ncon or found.gap[0, i] > 0:
            assert d.ncon == 0 or found.gap[0, i] > -1e-6
            continue
        best = min(d.contact, key=lambda c: c.dist)
        # MuJoCo keeps heights in single precision.
        np.testing.assert_allclose(found.gap[0, i], best.dist, atol=1e-6)
        np.testing.assert_allclose(found.normal[0, :, i], best.frame[:3], atol=1e-5)
        compared += 1
    assert compared > 30


PAIRS = {
    "cylinder on its rim": (DRUM, HalfSpace(), (0.1, 0.2, 0.3), (0.9, 0.3, 0.2, 0.1)),
    "cylinder upright": (DRUM, HalfSpace(), (0.1, 0.2, 0.25), (1.0, 1e-4, 2e-4, 0.1)),
    "mesh on a vertex": (STONE, HalfSpace(), (0.1, 0.2, 0.3), (0.9, 0.3, 0.2, 0.1)),
    "ball over a triangle": (Sphere(0.1), field(), (0.1, 0.33, 0.3), (0.9, 0.3, 0.2, 0.1)),
    "box over a field": (Box((0.2, 0.3, 0.4)), field(), (0.1, 0.2, 0.3), (0.9, 0.3, 0.2, 0.1)),
    "cylinder over a field": (DRUM, field(), (0.1, 0.2, 0.3), (0.9, 0.3, 0.2, 0.1)),
}


@pytest.mark.parametrize(
    "name", mostly_slow(PAIRS, default=[name for name in PAIRS if "over a field" not in name])
)
def test_gaps_points_and_normals_over_grounds_have_derivatives(name):
    C, D, *pose = PAIRS[name]
    C, D = arrays(C), arrays(D)
    at = placed(*pose)
    # Upright, the points turn by a radian within a tilt of UPRIGHT.
    h = 1e-7 if name == "cylinder upright" else 1e-6
    forward, reverse = slopes(C, D, at)
    np.testing.assert_allclose(reverse, forward, atol=1e-10)
    ahead, behind = (np.stack([described(C, D, at, s * h * e) for e in np.eye(6)]) for s in (1, -1))
    expected = np.moveaxis(ahead - behind, 0, -1) / (2 * h)
    np.testing.assert_allclose(forward, expected, atol=1e-6 / h * 1e-7)


SINGULAR = {
    "upright": (DRUM, HalfSpace(), Pose.along_z(0.25)),
    "lying": (DRUM, HalfSpace(), Pose.along_z(0.2) @ Pose.about_y(np.pi / 2)),
    "where two ways cancel": (DRUM, HalfSpace(), Pose.about_y(np.arcsin(UPRIGHT / 2))),
    "flat mesh": (COIN, HalfSpace(), Pose.along_z(0.05)),
    "ball at a node": (Sphere(0.1), field(), Pose.along_z(float(field().heights[3, 2]))),
    "ball above a node": (Sphere(0.1), field(), Pose.along_z(float(field().heights[3, 2]) + 0.1)),
    "ball beyond the grid": (Sphere(0.1), field(), Pose.along_x(2.0)),
    "point on flat ground": (Point(), HeightField(np.zeros(SHAPE), SIZE), Pose.identity()),
}


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", mostly_slow(SINGULAR, default=[n for n in SINGULAR if n != "point on flat ground"])
)
def test_where_grounds_and_shapes_align_all_is_finite(name, dtype):
    C, D, at = SINGULAR[name]
    C, D = arrays(C), arrays(D)
    # Of the types of `placed`, so that all pairs of the same shapes share a program.
    C, D, at = jax.tree.map(lambda x: jnp.asarray(x, dtype), (C, D, at))
    values = described(C, D, at, jnp.zeros(6, dtype))
    assert np.isfinite(values).all() and np.isfinite(slopes(C, D, at)).all()
    np.testing.assert_allclose(np.linalg.norm(values[:, 4:], axis=1), 1.0, atol=1e-6)


def test_there_is_no_ground_beyond_a_height_field():
    flat = HeightField(np.zeros(SHAPE), SIZE)
    for x, z, expected in ((1.4, -0.3, -0.3), (1.6, -0.3, 0.1**0.5), (1.6, 0.1, 0.02**0.5)):
        T = Pose.translation(jnp.array([x, 0.0, z]))
        np.testing.assert_allclose(all_points(Point(), flat, T).gap[0], expected, atol=1e-12)
