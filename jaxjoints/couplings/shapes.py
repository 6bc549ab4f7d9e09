"""Shapes that touch: the gap between two of them, the points and the normals of contact.

A frame places each shape: the first shape stands in C, the second in D. All functions take trailing
batch axes (see `spatial`). Their values and derivatives are finite everywhere, and they have no
branches that depend on data.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient
from jax.typing import ArrayLike

from ..algebra.pytree import Numbers, struct
from ..algebra.spatial import Pose, cross, dot, norm
from .wrench import axes, check_length

# ε of `_nearest` for the precision of float32, 64: above its rounding, which it divides.
PARALLEL = {4: 1e-5, 8: 1e-10}
CORNERS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)


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
    def balls(self) -> list[tuple[ArrayLike, "Shape"]]:
        """The parts that can touch a half-space, as (centre, `Point` or `Sphere`) pairs.

        A centre is in the frame of the shape [m], shape (3,).
        """

    def check(self) -> str | None:
        """What is wrong with the lengths, which are concrete numbers, as a sentence, or None."""
        return None


class _Rounded(Shape):
    """All points within `radius` of a segment of the z axis, from -half_length to half_length."""

    radius: ArrayLike
    half_length: ClassVar[ArrayLike] = 0.0

    def balls(self) -> list[tuple[ArrayLike, Shape]]:
        """See `Shape.balls`."""
        return [(np.zeros(3), self)]


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

    def balls(self) -> list[tuple[ArrayLike, Shape]]:
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

    def balls(self) -> list[tuple[ArrayLike, Shape]]:
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

    def balls(self) -> list[tuple[ArrayLike, Shape]]:
        """None: two half-spaces do not touch in points."""
        return []


def candidates(
    shape_C: Shape, shape_D: Shape
) -> list[tuple[Shape, ArrayLike, Shape, ArrayLike]] | None:
    """Pairs of parts of two shapes that touch in one point each; None without a gap function.

    A box on a half-space has eight pairs, one for each corner; a capsule has two, one for each end.

    Returns: for each pair (part of shape_C, its origin in C, part of shape_D, its origin in D)
    """
    origin = np.zeros(3)
    if isinstance(shape_C, _Rounded) and isinstance(shape_D, _Rounded):
        return [(shape_C, origin, shape_D, origin)]
    if isinstance(shape_C, HalfSpace) and not isinstance(shape_D, HalfSpace):
        return [(shape_C, origin, ball, centre) for centre, ball in shape_D.balls()]
    if isinstance(shape_D, HalfSpace) and not isinstance(shape_C, HalfSpace):
        return [(ball, centre, shape_D, origin) for centre, ball in shape_C.balls()]
    return None


def touches(shape_C: Shape, shape_D: Shape, T: Pose) -> Touch:
    """All n points where two shapes may touch, at the pose T = T_CD.

    A half-space may touch a point, a sphere, a capsule or a box, in either order. Points, spheres
    and capsules may touch each other. n is 8 for a box, 2 for a capsule on a half-space, else 1.

    Returns: a `Touch` whose arrays have a first axis of n: (n, *b) and (n, 3, *b)
    Raises: ValueError for two shapes without a gap function

    >>> print(touches(Capsule(0.1, 1.0), HalfSpace(), Pose.along_z(0.5)).gap.round(3))
    [-0.1  0.9]
    """
    pairs = candidates(shape_C, shape_D)
    if pairs is None:
        raise ValueError(no_gap_function(shape_C, shape_D))
    gaps, points, normals = [], [], []
    for part_C, origin_C, part_D, origin_D in pairs:
        shift_C, shift_D = (Pose.translation(wide(x, T)) for x in (origin_C, origin_D))
        one = touch(part_C, part_D, shift_D.inverse() @ T @ shift_C)
        gaps.append(one.gap)
        points.append(shift_D.apply(one.point))
        normals.append(one.normal)
    return Touch(jnp.stack(gaps), jnp.stack(points), jnp.stack(normals))


def touch(shape_C: Shape, shape_D: Shape, T: Pose) -> Touch:
    """Gap, point and normal of one pair of `candidates` at the pose T = T_CD."""
    if isinstance(shape_D, HalfSpace):
        return _above_plane(shape_C, T)
    if isinstance(shape_C, HalfSpace):
        # Seen from the plane, which the first shape carries.
        in_C = _above_plane(shape_D, T.inverse())
        return Touch(in_C.gap, T.apply(in_C.point), -T.rotate(in_C.normal))
    return _between_segments(shape_C, shape_D, T)


def no_gap_function(shape_C: Shape, shape_D: Shape) -> str:
    """Message for two shapes that have no gap function."""
    names = " and ".join(type(shape).__name__ for shape in (shape_C, shape_D))
    return (
        f"there is no gap function for {names}; there are Point, Sphere, Capsule and Box on a "
        "HalfSpace, and Point, Sphere and Capsule among each other. Give the points of a collision "
        "detection to a ContactPoint"
    )


def wide(x: ArrayLike, T: Pose, components: int = 1) -> Array:
    """A parameter in T's precision, with axes of size 1 for the batch axes of T that it lacks.

    components: number of axes that are not batch axes
    """
    x = jnp.asarray(x, T.p.dtype)
    return x.reshape(x.shape + (1,) * (T.p.ndim - 1 + components - x.ndim))


def _above_plane(ball: Any, T: Pose) -> Touch:
    """Sphere or point above the plane z = 0 of D; the gap is the height of its lowest point."""
    radius = wide(ball.radius, T, 0)
    up = axes(T)[2]
    gap = T.p[2] - radius
    return Touch(gap, T.p - radius[None] * up, jnp.broadcast_to(up, T.p.shape))


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
