"""Shapes that touch: the gap between two of them, the points and the normals of contact.

A frame places each shape: the first shape stands in C, the second in D. All functions take trailing
batch axes (see `spatial`). Their values and derivatives are finite everywhere, and they have no
branches that depend on data.

Two shapes may touch in several points. Each point belongs to a pair of parts, one of each shape,
and keeps its place among the points: the same edge of a box, the same end of a capsule.
"""

from abc import ABC, abstractmethod
from itertools import product
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient
from jax.typing import ArrayLike

from ..algebra.pytree import Numbers, struct
from ..algebra.spatial import Pose, cross, dot, norm
from .box_gaps import ball_gap, box_gap, capsule_gap
from .height_gaps import height_gap, height_normal
from .hulls import FLAT, MOST_VERTICES, hull
from .wrench import axes, check_length

# ε of `_nearest` for the precision of float32, 64: above its rounding, which it divides.
PARALLEL = {4: 1e-5, 8: 1e-10}
CORNERS = np.array(list(product((-1, 1), repeat=3)), float)
# Angles between three points of the rim on which a cylinder stands, and tilt of the axis [rad] up
# to which they keep their places.
THIRD, UPRIGHT = 2 * np.pi / 3, 1e-3
# Directions in which the vertices are chosen on which a mesh stands: those of the corners of a
# cube, turned so that no edge of a usual mesh is at right angles to them. Tilt [rad] of a face up
# to which they decide.
SPREAD = CORNERS @ np.linalg.qr([[3.0, 1.0, 2.0], [1.0, 4.0, 1.0], [2.0, 1.0, 5.0]])[0] / 3**0.5
LEVEL = 1e-3
# Of the corners of a face, in the order in which its edges follow each other.
ROUND = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]], float)


@struct
class Touch:
    """Where two shapes are nearest to each other, or deepest inside each other.

    gap: distance between the surfaces [m], negative where the shapes overlap, shape (*b)
    point: point where contact forces act, in D [m], shape (3, *b)
    normal: unit vector that points out of the second shape into the first, in D, shape (3, *b)

    >>> met = touch(Sphere(0.1), Sphere(0.2), Pose.along_x(0.5))
    >>> print(met.gap.round(3), met.normal)  # 0.5 m - 0.1 m - 0.2 m, towards the first
    0.2 [1. 0. 0.]
    """

    gap: Array
    point: Array
    normal: Array


class Shape(ABC):
    """Base of all shapes: a frozen record (`struct`) of lengths, placed by a frame.

    >>> @struct
    ... class Stool(Shape):
    ...     height: Numbers
    ...     def parts(self):
    ...         feet = jnp.array([[0.5, 0.0], [-0.5, 0.5], [-0.5, -0.5]])
    ...         return [(jnp.append(foot, -self.height), Point()) for foot in feet]
    >>> print(touches(Stool(0.5), HalfSpace(), Pose.along_z(0.75)).gap)
    [0.25 0.25 0.25]
    """

    @abstractmethod
    def parts(self) -> list[tuple[ArrayLike, "Shape"]]:
        """The parts that touch a half-space in one point each, as (origin, part) pairs.

        An origin is in the frame of the shape [m], shape (3,). Axes are those of the shape.
        """

    def lowest(self, up: Array) -> Array:
        """The point in which this part would touch a half-space, in the frame of the part [m].

        up: unit vector out of the half-space, in the frame of the part, shape (3, *b)

        Returns: shape (3, *b)
        """
        raise NotImplementedError(f"{type(self).__name__} is no part that touches in one point")

    def check(self) -> str | None:
        """What is wrong with the lengths, which are concrete numbers, as a sentence, or None."""
        return None


class _Rounded(Shape):
    """All points within `radius` of a segment of the z axis, from -half_length to half_length."""

    radius: ArrayLike
    half_length: ClassVar[ArrayLike] = 0.0

    def parts(self) -> list[tuple[ArrayLike, Shape]]:
        return [(np.zeros(3), self)]

    def lowest(self, up: Array) -> Array:
        """See `Shape.lowest`; of a point or a sphere."""
        return -wide_like(self.radius, up)[None] * up


@struct
class Point(_Rounded):
    """A point in the origin of its frame: a foot, a corner.

    >>> print(touches(Point(), HalfSpace(), Pose.along_z(0.25)).gap)
    [0.25]
    """

    radius: ClassVar[float] = 0.0


@struct
class Sphere(_Rounded):
    """A sphere whose centre is the origin of its frame.

    radius: > 0 [m]

    >>> print(touches(Sphere(radius=0.1), HalfSpace(), Pose.along_z(0.25)).gap.round(3))
    [0.15]
    """

    radius: Numbers

    def check(self) -> str | None:
        return check_length("radius", self.radius, "use Point for a point")


@struct
class Capsule(_Rounded):
    """A cylinder about the z axis of its frame with a half sphere at each end.

    The origin of the frame is the middle of the cylinder.

    radius: of cylinder and half spheres, > 0 [m]
    length: of the cylinder, from the centre of one half sphere to the other, > 0 [m]

    >>> lying = Pose.along_z(0.25) @ Pose.about_y(jnp.pi / 2)
    >>> print(touches(Capsule(radius=0.1, length=1.0), HalfSpace(), lying).gap.round(3))
    [0.15 0.15]
    """

    radius: Numbers
    length: Numbers

    @property
    def half_length(self) -> ArrayLike:
        """Distance of the centres of the half spheres from the origin [m]."""
        return self.length / 2

    def parts(self) -> list[tuple[ArrayLike, Shape]]:
        """Two spheres, the ends."""
        ends = (np.array([0.0, 0.0, side]) for side in (-1.0, 1.0))
        return [(end * self.half_length, Sphere(self.radius)) for end in ends]

    def check(self) -> str | None:
        problem = check_length("radius", self.radius, "give the radius of its half spheres")
        return problem or check_length("length", self.length, "use Sphere for a length of 0")


@struct
class Box(Shape):
    """A box whose centre is the origin of its frame, with edges along the axes of its frame.

    size: full lengths of the edges along x, y, z, > 0 [m], shape (3,)

    >>> box = Box(size=(0.5, 0.5, 0.25))
    >>> print(touches(box, HalfSpace(), Pose.along_z(0.25)).gap)  # corners below and above
    [0.125 0.375 0.125 0.375 0.125 0.375 0.125 0.375]
    """

    size: Numbers

    def parts(self) -> list[tuple[ArrayLike, Shape]]:
        """Eight points, the corners."""
        return [(corner * jnp.asarray(self.size) / 2, Point()) for corner in CORNERS]

    def check(self) -> str | None:
        if np.shape(self.size) != (3,):
            return f"size has shape {np.shape(self.size)}; give the three edges along x, y, z"
        problems = (check_length("size", edge, "edges are lengths") for edge in self.size)
        return next(filter(None, problems), None)


@struct
class Cylinder(Shape):
    """A solid cylinder about the z axis of its frame, whose origin is its middle.

    radius: > 0 [m]
    length: from end to end along z, > 0 [m]

    >>> can = Cylinder(radius=0.1, length=0.3)
    >>> print(touches(can, HalfSpace(), Pose.along_z(0.25)).gap.round(3))  # one of the upper disc
    [0.1 0.4 0.1 0.1]
    """

    radius: Numbers
    length: Numbers

    def parts(self) -> list[tuple[ArrayLike, Shape]]:
        """Four points on its rims: the lowest of each disc, and two more of the lower disc."""
        places = ((-1.0, 0.0), (1.0, 0.0), (0.0, THIRD), (0.0, -THIRD))
        return [(np.zeros(3), RimPoint(self.radius, self.length, *place)) for place in places]

    def check(self) -> str | None:
        problem = check_length("radius", self.radius, "give the radius of its discs")
        return problem or check_length("length", self.length, "give a disc a small thickness")


@struct
class ConvexMesh(Shape):
    """The convex hull of points: a body of flat faces.

    vertices: corners of the hull in its frame [m], shape (V, 3), V ≥ 4, not all in one plane

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> pebble = ConvexMesh.hull_of(0.05 * rng.normal(size=(500, 3)))
    >>> float(touches(pebble, HalfSpace(), Pose.along_z(0.3)).gap.min()) > 0
    True
    """

    vertices: Numbers

    @classmethod
    def hull_of(cls, points: ArrayLike, most: int = MOST_VERTICES) -> "ConvexMesh":
        """The hull of any points, simplified to `most` vertices, see `hull`.

        Raises: ValueError for points that are not finite or lie in a plane.
        """
        return cls(hull(points, most)[0])

    def parts(self) -> list[tuple[ArrayLike, Shape]]:
        """Each vertex, if there are eight at most; else eight points, each the lowest vertex."""
        vertices = jnp.asarray(self.vertices)
        if len(vertices) <= len(SPREAD):
            return [(vertex, Point()) for vertex in vertices]
        return [(np.zeros(3), HullPoint(self.vertices, toward)) for toward in SPREAD]

    def check(self) -> str | None:
        vertices = np.asarray(self.vertices)
        if vertices.ndim != 2 or vertices.shape[1] != 3 or len(vertices) < 4:
            return (
                f"vertices has shape {vertices.shape}; it must be (V, 3) with 4 vertices at least"
            )
        if not np.isfinite(vertices).all():
            return "vertices must be finite"
        extent = np.linalg.svd(vertices - vertices.mean(axis=0), compute_uv=False)
        if extent[2] <= FLAT * extent[0]:
            return "vertices lie in a plane; give a body that has a thickness"
        return None


@struct
class HalfSpace(Shape):
    """All points with z ≤ 0 in its frame: the ground, a wall. Its surface is the plane z = 0.

    >>> slope = Pose.about_y(jnp.pi / 3)  # inclined by 60°
    >>> met = touches(Sphere(radius=0.25), HalfSpace(), slope.inverse() @ Pose.along_z(1.0))
    >>> print(met.gap.round(3))  # 1 m cos 60° - 0.25 m
    [0.25]
    """

    def parts(self) -> list[tuple[ArrayLike, Shape]]:
        """None: two half-spaces do not touch in points."""
        return []


@struct
class HeightField(Shape):
    """Uneven ground below a grid of heights along z of its frame, whose origin is its middle.

    Each cell is two triangles that meet in the diagonal from its corner at low x, y to that at high
    x, y. Where balls are nearer to other cells than to the four about one node, those count alone:
    the node next to the foot of the perpendicular on the triangle below the centre of the ball.
    Beyond the grid there is no ground.

    heights: of the nodes [m], shape (X, Y), both ≥ 3; rows along x, columns along y
    size: of the grid along x and y, > 0 [m], shape (2,)

    >>> import numpy as np
    >>> ramp = HeightField(np.outer([0.0, 0.5, 1.0], [1.0, 1.0, 1.0]), size=(2.0, 4.0))
    >>> print(touches(Sphere(0.1), ramp, Pose.along_z(1.0)).gap.round(3))
    [0.347]
    """

    heights: Numbers
    size: Numbers

    def parts(self) -> list[tuple[ArrayLike, Shape]]:
        """None: it does not touch a half-space in points."""
        return []

    def check(self) -> str | None:
        heights = np.asarray(self.heights)
        if heights.ndim != 2 or min(heights.shape) < 3:
            return f"heights has shape {heights.shape}; give a grid of 3 nodes or more each way"
        if not np.isfinite(heights).all():
            return "heights must be finite"
        if np.shape(self.size) != (2,):
            return f"size has shape {np.shape(self.size)}; give the lengths along x and y"
        problems = (
            check_length("size", edge, "it is the length of the grid") for edge in self.size
        )
        return next(filter(None, problems), None)


@struct
class CapsuleEnd(Capsule):
    """The part of a capsule that keeps one of its ends off a box.

    side: -1 for the end at negative z, 1 for the other

    >>> pairs = candidates(Capsule(radius=0.1, length=1.0), Box((1.0, 1.0, 0.2)))
    >>> [(type(end).__name__, end.side) for end, *_ in pairs]
    [('CapsuleEnd', -1.0), ('CapsuleEnd', 1.0)]
    """

    side: Numbers

    def parts(self) -> list[tuple[ArrayLike, Shape]]:
        return [(np.zeros(3), self)]


@struct
class BoxEdge(Box):
    """The part of a box that touches another box along one edge of the face that faces it.

    corner: signs (±1, ±1) of the corner of this face where the edge begins, along the two edges
        of the face; (0, 0) for the box whose face the edge meets. Shape (2,)

    >>> cube = Box((0.2, 0.2, 0.2))
    >>> for upper, _, lower, _ in candidates(cube, cube)[3:5]:  # of four edges of each
    ...     print(upper.corner, lower.corner)
    [ 1. -1.] [0. 0.]
    [0. 0.] [1. 1.]
    """

    corner: Numbers

    def parts(self) -> list[tuple[ArrayLike, Shape]]:
        return [(np.zeros(3), self)]


@struct
class RimPoint(Cylinder):
    """The part of a cylinder that touches in one point of a rim.

    Where the axis stands upright, within `UPRIGHT`, the point turns to the x axis of the cylinder
    instead of the lowest point: a cylinder that stands keeps its three points.

    disc: -1 for the disc at negative z, 1 for the other, 0 for the lower one
    turn: angle of the point from the lowest point of the disc, about z [rad]

    >>> lowest = RimPoint(radius=0.1, length=0.4, disc=-1.0, turn=0.0)
    >>> print(lowest.lowest(jnp.array([1.0, 0.0, 0.0])))  # of a cylinder that lies
    [-0.1  0.  -0.2]
    """

    disc: Numbers
    turn: Numbers

    def parts(self) -> list[tuple[ArrayLike, Shape]]:
        return [(np.zeros(3), self)]

    def lowest(self, up: Array) -> Array:
        radius, length, disc, turn = (
            wide_like(x, up) for x in (self.radius, self.length, self.disc, self.turn)
        )
        down = -up[:2]
        tilt = norm(down)
        x = jnp.concatenate([jnp.ones_like(down[:1]), jnp.zeros_like(down[:1])])
        way = down + jnp.maximum(UPRIGHT - tilt, 0.0)[None] * x
        # Protects the division from the tilt at which the way to x and down cancel.
        long = norm(way)
        way = jnp.where((long > 0)[None], way / jnp.where(long > 0, long, 1.0)[None], x)
        c, s = jnp.cos(turn), jnp.sin(turn)
        lower = jnp.where(up[2] < 0, jnp.ones_like(up[2]), -jnp.ones_like(up[2]))
        side = jnp.where(disc == 0, lower, disc)
        around = c * way[0] - s * way[1], s * way[0] + c * way[1]
        return jnp.stack([radius * around[0], radius * around[1], side * length / 2])


@struct
class HullPoint(ConvexMesh):
    """The part of a convex mesh that touches in its lowest vertex, of several the outermost one.

    Of vertices on a face that lies flat the one that is farthest in a direction of the mesh counts.
    A height less than `LEVEL` times the distance along this direction hardly matters: a mesh that
    stands and trembles by much less than `LEVEL` keeps its points.

    toward: the direction, a unit vector in the frame of the mesh, shape (3,)

    >>> corners = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    >>> print(HullPoint(corners, toward=(1.0, 0.0, 0.0)).lowest(jnp.array([0.0, 0.0, 1.0])))
    [1. 0. 0.]
    """

    toward: Numbers

    def parts(self) -> list[tuple[ArrayLike, Shape]]:
        return [(np.zeros(3), self)]

    def lowest(self, up: Array) -> Array:
        vertices = wide_like(self.vertices, up, 2)
        tilted = up - LEVEL * wide_like(self.toward, up, 1)
        lowest = _lowest(*stop_gradient((vertices, tilted)))
        return jnp.take_along_axis(vertices, lowest[None, None], axis=0)[0]


def _lowest(vertices: Array, up: Array) -> Array:
    """Place of the vertex that lies lowest, the first of equal ones, (*more).

    vertices: (vertices, 3, *more); up: direction of heights, (3, *more)
    """

    # A loop, because XLA on CPUs takes twenty times as long for a reduction of all heights.
    def visit(i: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        height, place = found
        own, here = dot(vertices[i], up), i.astype(place.dtype)
        lower = own < height
        return jnp.where(lower, own, height), jnp.where(lower, here, place)

    batch = jnp.broadcast_shapes(vertices.shape[2:], up.shape[1:])
    first = jnp.full(batch, jnp.inf, up.dtype), jnp.zeros(batch, jnp.int32)
    return jax.lax.fori_loop(0, len(vertices), visit, first)[1]


Pair = tuple[Shape, ArrayLike, Shape, ArrayLike]
GROUNDS = (HalfSpace, HeightField)


def candidates(shape_C: Shape, shape_D: Shape) -> list[Pair] | None:
    """Pairs of parts of two shapes that touch in one point each; None without a gap function.

    All pairs have parts of the same types. A box on a half-space has eight pairs, one for each
    corner; a capsule has two, one for each end.

    Returns: for each pair (part of shape_C, its origin in C, part of shape_D, its origin in D)
    """
    origin = np.zeros(3)
    both = (shape_C, shape_D)
    if isinstance(shape_D, GROUNDS):
        parts = [(part, centre, shape_D, origin) for centre, part in shape_C.parts()]
        return parts or None
    if isinstance(shape_C, GROUNDS):
        swapped = candidates(shape_D, shape_C)
        return None if swapped is None else [(*pair[2:], *pair[:2]) for pair in swapped]
    if all(isinstance(shape, _Rounded) for shape in both):
        return [(shape_C, origin, shape_D, origin)]
    if all(isinstance(shape, Box) for shape in both):
        if any(isinstance(shape, BoxEdge) for shape in both):
            return [(shape_C, origin, shape_D, origin)]
        none = np.zeros(2)
        corners = [(corner, none) for corner in ROUND] + [(none, corner) for corner in ROUND]
        return [
            (BoxEdge(shape_C.size, c), origin, BoxEdge(shape_D.size, d), origin) for c, d in corners
        ]
    if all(isinstance(shape, _Rounded | Box) for shape in both):
        return [(C, origin, D, origin) for C, D in product(*map(_ends_of, both))]
    return None


def _ends_of(shape: Any) -> list[Shape]:
    """The parts of a shape that touch a box: both ends of a capsule, else the shape itself."""
    if isinstance(shape, Capsule) and not isinstance(shape, CapsuleEnd):
        return [CapsuleEnd(shape.radius, shape.length, side) for side in (-1.0, 1.0)]
    return [shape]


def touches(shape_C: Shape, shape_D: Shape, T: Pose) -> Touch:
    """All n points where two shapes may touch, at the pose T = T_CD.

    n and the pairs of shapes that can touch, in either order:

    Point, Sphere    with each other, on a Capsule, Box, HalfSpace or HeightField: 1
    Capsule          on a Capsule: 1; on a Box, HalfSpace or HeightField: 2
    Box              on a Box, HalfSpace or HeightField: 8
    Cylinder         on a HalfSpace or HeightField: 4
    ConvexMesh       on a HalfSpace or HeightField: 8, or the number of its vertices if less

    Returns: a `Touch` whose arrays have a first axis of n: (n, *b) and (n, 3, *b)
    Raises: ValueError for two shapes without a gap function

    >>> print(touches(Capsule(0.1, 1.0), HalfSpace(), Pose.along_z(0.5)).gap.round(3))
    [-0.1  0.9]
    """
    pairs = candidates(shape_C, shape_D)
    if pairs is None:
        raise ValueError(no_gap_function(shape_C, shape_D))

    def of_pair(part_C, origin_C, part_D, origin_D):
        shift_C, shift_D = (Pose.translation(wide(x, T)) for x in (origin_C, origin_D))
        one = touch(part_C, part_D, shift_D.inverse() @ T @ shift_C)
        return Touch(one.gap, shift_D.apply(one.point), one.normal)

    # All pairs are of the same types, so that one program serves them all.
    return jax.vmap(of_pair)(*jax.tree.map(lambda *x: jnp.stack(x), *pairs))


def touch(shape_C: Shape, shape_D: Shape, T: Pose) -> Touch:
    """Gap, point and normal of one pair of `candidates` at the pose T = T_CD."""
    if _stands_first(shape_C, shape_D):
        return _touch(shape_C, shape_D, T)
    # Seen from the shape on which gap functions are written, which is the first here.
    in_C = _touch(shape_D, shape_C, T.inverse())
    return Touch(in_C.gap, T.apply(in_C.point), -T.rotate(in_C.normal))


def _stands_first(shape_C: Shape, shape_D: Shape) -> bool:
    """Whether `_touch` knows two shapes in this order."""
    order = (_Rounded, Box, *GROUNDS)
    return _place(shape_C, order) <= _place(shape_D, order)


def _place(shape: Shape, order: tuple[type, ...]) -> int:
    return next((i for i, kind in enumerate(order) if isinstance(shape, kind)), 0)


def _touch(C: Any, D: Any, T: Pose) -> Touch:
    """`touch` of a shape C on a D of the same kind or of a later one of `_stands_first`."""
    if isinstance(D, HalfSpace):
        return _above_plane(C, T)
    if isinstance(D, HeightField):
        return _above_grid(C, D, T)
    if isinstance(D, _Rounded):
        return _between_segments(C, D, T)
    half = wide(D.size, T) / 2
    if isinstance(C, BoxEdge):
        corners = wide(C.corner, T), wide(D.corner, T)
        found = box_gap(T.p, T.R, wide(C.size, T) / 2, half, *corners)
    elif isinstance(C, CapsuleEnd):
        numbers = (wide(x, T, 0) for x in (C.half_length, C.radius))
        axis = T.rotate(jnp.broadcast_to(axes(T)[2], T.p.shape))
        found = capsule_gap(T.p, axis, *numbers, half, wide(C.side, T, 0))
    else:
        found = ball_gap(T.p, wide(C.radius, T, 0), half)
    return Touch(*found)


def no_gap_function(shape_C: Shape, shape_D: Shape) -> str:
    """Message for two shapes that have no gap function."""
    names = " and ".join(type(shape).__name__ for shape in (shape_C, shape_D))
    return (
        f"there is no gap function for {names}; `shapes.touches` lists the pairs that have one. "
        "Give the points of a collision detection to a ContactPoint"
    )


def wide(x: ArrayLike, T: Pose, components: int = 1) -> Array:
    """A parameter in T's precision, with axes of size 1 for the batch axes of T that it lacks.

    components: number of axes that are not batch axes
    """
    return wide_like(x, T.p, components)


def wide_like(x: ArrayLike, v: Array, components: int = 0) -> Array:
    """A parameter as `wide` gives it, for the batch axes of a vector v (3, *b)."""
    x = jnp.asarray(x, v.dtype)
    return x.reshape(x.shape + (1,) * (v.ndim - 1 + components - x.ndim))


def _above_plane(part: Shape, T: Pose) -> Touch:
    """A part above the plane z = 0 of D; the gap is the height of its lowest point."""
    up = jnp.broadcast_to(axes(T)[2], T.p.shape)
    if isinstance(part, _Rounded):
        # Without the rounding of a turn there and back.
        point = T.p + part.lowest(up)
    else:
        point = T.apply(part.lowest(T.rotate_inverse(up)))
    return Touch(point[2], point, up)


def _above_grid(part: Any, field: HeightField, T: Pose) -> Touch:
    """A part above a height field of D: a ball, or the lowest point above the triangle below it."""
    grid = wide(field.heights, T, 2), wide(field.size, T)
    if isinstance(part, _Rounded):
        return Touch(*height_gap(T.p, wide(part.radius, T, 0), *grid))
    up = height_normal(T.p, *grid)
    point = T.apply(part.lowest(T.rotate_inverse(up)))
    return Touch(*height_gap(point, jnp.zeros_like(point[0]), *grid))


def _between_segments(C: Any, D: Any, T: Pose) -> Touch:
    """Two rounded segments; the gap is the distance of their axes less both radii."""
    half_C, half_D = (wide(shape.half_length, T, 0) for shape in (C, D))
    radius_C, radius_D = (wide(shape.radius, T, 0) for shape in (C, D))
    x, _, v = axes(T)
    v = jnp.broadcast_to(v, T.p.shape)
    u = T.rotate(v)
    s, t = _nearest(T.p, u, half_C, v, half_D)
    on_D = t[None] * v
    between = T.p + s[None] * u - on_D
    distance = norm(between)
    # Where the axes meet: their common normal, or x where there is none.
    common = cross(v, u)
    aside = norm(common)
    skew = aside > jnp.sqrt(jnp.finfo(aside.dtype).eps)
    common = jnp.where(skew[None], common / jnp.where(skew, aside, 1.0)[None], x)
    apart = distance > 0
    normal = jnp.where(apart[None], between / jnp.where(apart, distance, 1.0)[None], common)
    # Where the nearest points lie does not count to first order: exact also between parallel axes,
    # where ε decides, and the derivatives of s and t are large.
    for place, slope in ((s, dot(normal, u)), (t, -dot(normal, v))):
        distance = distance - stop_gradient(slope) * (place - stop_gradient(place))
    gap = distance - radius_C - radius_D
    return Touch(gap, on_D + (radius_D + gap / 2)[None] * normal, normal)


def _nearest(r: Array, u: Array, half_C: Array, v: Array, half_D: Array) -> tuple[Array, Array]:
    """Nearest points of two segments: distances s, t [m] along unit axes u, v from their middles.

    r is the vector from the middle of the second segment to that of the first. s and t minimize
    |r + s u - t v|² + ε (s² + t²) within ± the half lengths. The term with ε selects one solution
    where the axes are parallel: half-way between the middles, or as near to that as the segments
    face each other. It adds at most ε (s² + t²) to the square of the distance.
    """
    ε = PARALLEL[r.dtype.itemsize]
    along, c, f = dot(u, v), dot(u, r), dot(v, r)
    both = cross(u, v)
    # (1 + ε)² - (u·v)² without cancellation.
    determinant = dot(both, both) + ε * (2 + ε)
    s = (along * f - (1 + ε) * c) / determinant
    s = jnp.clip(s, -half_C, half_C)
    t = jnp.clip((f + along * s) / (1 + ε), -half_D, half_D)
    return jnp.clip((along * t - c) / (1 + ε), -half_C, half_C), t
