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
from .wrench import axes, check_length

# ε of `_nearest` for the precision of float32, 64: above its rounding, which it divides.
PARALLEL = {4: 1e-5, 8: 1e-10}
CORNERS = np.array(list(product((-1, 1), repeat=3)), float)
# Of the corners of a face, in the order in which its edges follow each other.
ROUND = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]], float)


@struct
class Touch:
    """Where two shapes are nearest to each other, or deepest inside each other.

    gap: distance between the surfaces [m], negative where the shapes overlap, shape (*b)
    point: point where contact forces act, in D [m], shape (3, *b)
    normal: unit vector that points out of the second shape into the first, in D, shape (3, *b)
    """

    gap: Array
    point: Array
    normal: Array


class Shape(ABC):
    """Base of all shapes: a frozen record (`struct`) of lengths, placed by a frame."""

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
        """See `Shape.parts`."""
        return [(np.zeros(3), self)]

    def lowest(self, up: Array) -> Array:
        """See `Shape.lowest`; of a point or a sphere."""
        return -wide_like(self.radius, up)[None] * up


@struct
class Point(_Rounded):
    """A point in the origin of its frame: a foot, a corner."""

    radius: ClassVar[float] = 0.0


@struct
class Sphere(_Rounded):
    """A sphere whose centre is the origin of its frame.

    radius: > 0 [m]
    """

    radius: Numbers

    def check(self) -> str | None:
        """See `Shape.check`."""
        return check_length("radius", self.radius, "use Point for a point")


@struct
class Capsule(_Rounded):
    """A cylinder about the z axis of its frame with a half sphere at each end.

    The origin of the frame is the middle of the cylinder.

    radius: of cylinder and half spheres, > 0 [m]
    length: of the cylinder, from the centre of one half sphere to the other, > 0 [m]
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
        """See `Shape.check`."""
        problem = check_length("radius", self.radius, "give the radius of its half spheres")
        return problem or check_length("length", self.length, "use Sphere for a length of 0")


@struct
class Box(Shape):
    """A box whose centre is the origin of its frame, with edges along the axes of its frame.

    size: full lengths of the edges along x, y, z, > 0 [m], shape (3,)
    """

    size: Numbers

    def parts(self) -> list[tuple[ArrayLike, Shape]]:
        """Eight points, the corners."""
        return [(corner * jnp.asarray(self.size) / 2, Point()) for corner in CORNERS]

    def check(self) -> str | None:
        """See `Shape.check`."""
        if np.shape(self.size) != (3,):
            return f"size has shape {np.shape(self.size)}; give the three edges along x, y, z"
        problems = (check_length("size", edge, "edges are lengths") for edge in self.size)
        return next(filter(None, problems), None)


@struct
class HalfSpace(Shape):
    """All points with z ≤ 0 in its frame: the ground, a wall. Its surface is the plane z = 0."""

    def parts(self) -> list[tuple[ArrayLike, Shape]]:
        """None: two half-spaces do not touch in points."""
        return []


@struct
class CapsuleEnd(Capsule):
    """The part of a capsule that keeps one of its ends off a box.

    side: -1 for the end at negative z, 1 for the other
    """

    side: Numbers

    def parts(self) -> list[tuple[ArrayLike, Shape]]:
        """See `Shape.parts`."""
        return [(np.zeros(3), self)]


@struct
class BoxEdge(Box):
    """The part of a box that touches another box along one edge of the face that faces it.

    corner: signs (±1, ±1) of the corner of this face where the edge begins, along the two edges
        of the face; (0, 0) for the box whose face the edge meets. Shape (2,)
    """

    corner: Numbers

    def parts(self) -> list[tuple[ArrayLike, Shape]]:
        """See `Shape.parts`."""
        return [(np.zeros(3), self)]


Pair = tuple[Shape, ArrayLike, Shape, ArrayLike]


def candidates(shape_C: Shape, shape_D: Shape) -> list[Pair] | None:
    """Pairs of parts of two shapes that touch in one point each; None without a gap function.

    All pairs have parts of the same types. A box on a half-space has eight pairs, one for each
    corner; a capsule has two, one for each end.

    Returns: for each pair (part of shape_C, its origin in C, part of shape_D, its origin in D)
    """
    origin = np.zeros(3)
    both = (shape_C, shape_D)
    if isinstance(shape_C, HalfSpace):
        swapped = None if isinstance(shape_D, HalfSpace) else candidates(shape_D, shape_C)
        return None if swapped is None else [(*pair[2:], *pair[:2]) for pair in swapped]
    if isinstance(shape_D, HalfSpace):
        return [(part, centre, shape_D, origin) for centre, part in shape_C.parts()]
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

    Point, Sphere    with each other, on a Capsule, Box or HalfSpace: 1
    Capsule          on a Capsule: 1; on a Box, a HalfSpace: 2
    Box              on a Box, a HalfSpace: 8

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
    order = (_Rounded, Box, HalfSpace)
    return _place(shape_C, order) <= _place(shape_D, order)


def _place(shape: Shape, order: tuple[type, ...]) -> int:
    return next((i for i, kind in enumerate(order) if isinstance(shape, kind)), 0)


def _touch(C: Any, D: Any, T: Pose) -> Touch:
    """`touch` of a shape C on a D of the same kind or of a later one of `_stands_first`."""
    if isinstance(D, HalfSpace):
        return _above_plane(C, T)
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
