"""Shapes that touch, and how far two of them are apart: gaps, points and normals.

A shape is placed by a frame: C for the first, D for the second. All functions take trailing batch
axes (see `spatial`), have finite values and derivatives everywhere, and no branches.
"""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient
from jax.typing import ArrayLike

from ..algebra.pytree import struct
from ..algebra.spatial import Pose, cross, dot, norm
from .wrench import axes, check_length

# ε of `_nearest` for the precision of float32, 64: above its rounding, which it divides.
PARALLEL = {4: 1e-5, 8: 1e-10}
CORNERS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)


@struct
class Touch:
    """Where two shapes are nearest to each other, or deepest in each other.

    gap: distance of the surfaces, negative where they overlap [m], shape (*b)
    point: where forces act, in D [m], shape (3, *b)
    normal: out of the second shape into the first, in D, shape (3, *b), of length 1
    """

    gap: Array
    point: Array
    normal: Array


class Shape:
    """Base of all shapes: a frozen record of lengths, placed by its frame."""

    def balls(self) -> list[tuple[ArrayLike, "Shape"]]:
        """What of it can touch a half-space: points and spheres, and where their centres are."""
        raise NotImplementedError

    def check(self) -> str | None:
        """What is wrong with the lengths (concrete numbers), as a sentence, or None."""
        return None


class _Rounded(Shape):
    """All points within `radius` of a segment of z, ± `half_length` about the origin."""

    radius: ArrayLike
    half_length: ClassVar[ArrayLike] = 0.0

    def balls(self) -> list[tuple[ArrayLike, Shape]]:
        """See `Shape.balls`."""
        return [(np.zeros(3), self)]


@struct
class Point(_Rounded):
    """The origin of its frame: a foot, a corner."""

    radius: ClassVar[float] = 0.0


@struct
class Sphere(_Rounded):
    """A sphere about the origin of its frame. radius: > 0 [m]."""

    radius: Array

    def check(self) -> str | None:
        """See `Shape.check`."""
        return check_length("radius", self.radius, "use Point for a point")


@struct
class Capsule(_Rounded):
    """A cylinder about z with half spheres at its ends, the origin of its frame in the middle.

    radius: > 0 [m]; length: of the cylinder, between the centres of the half spheres, > 0 [m]
    """

    radius: Array
    length: Array

    @property
    def half_length(self) -> ArrayLike:
        """From the middle to the centres of the half spheres [m]."""
        return self.length / 2

    def balls(self) -> list[tuple[ArrayLike, Shape]]:
        """The half spheres at its ends."""
        ends = (np.array([0.0, 0.0, side]) for side in (-1.0, 1.0))
        return [(end * self.half_length, Sphere(self.radius)) for end in ends]

    def check(self) -> str | None:
        """See `Shape.check`."""
        problem = check_length("radius", self.radius, "give the radius of its half spheres")
        return problem or check_length("length", self.length, "use Sphere for a length of 0")


@struct
class Box(Shape):
    """A box about the origin of its frame. size: whole edges along x, y, z [m], > 0, shape (3,)."""

    size: Array

    def balls(self) -> list[tuple[ArrayLike, Shape]]:
        """Its eight corners."""
        return [(corner * jnp.asarray(self.size) / 2, Point()) for corner in CORNERS]

    def check(self) -> str | None:
        """See `Shape.check`."""
        if np.shape(self.size) != (3,):
            return f"size has shape {np.shape(self.size)}; give the three edges along x, y, z"
        problems = (check_length("size", edge, "edges are lengths") for edge in self.size)
        return next(filter(None, problems), None)


@struct
class HalfSpace(Shape):
    """All points z ≤ 0 of its frame: the ground, a wall. The plane z = 0 is its surface."""


def candidates(
    shape_C: Shape, shape_D: Shape
) -> list[tuple[Shape, ArrayLike, Shape, ArrayLike]] | None:
    """Pairs of shapes that touch in one point each, with their places in the frames of the given
    ones; None where there is no gap function.

    A box on a half-space makes eight, its corners; a capsule two, its ends.
    """
    here = np.zeros(3)
    if isinstance(shape_C, _Rounded) and isinstance(shape_D, _Rounded):
        return [(shape_C, here, shape_D, here)]
    if isinstance(shape_C, HalfSpace) and not isinstance(shape_D, HalfSpace):
        return [(shape_C, here, ball, at) for at, ball in shape_D.balls()]
    if isinstance(shape_D, HalfSpace) and not isinstance(shape_C, HalfSpace):
        return [(ball, at, shape_D, here) for at, ball in shape_C.balls()]
    return None


def touches(shape_C: Shape, shape_D: Shape, T: Pose) -> Touch:
    """All n places where two shapes may touch, at the pose T = T_CD, one after another.

    Points, spheres, capsules and boxes against a half-space, in either order; points, spheres and
    capsules against each other. n is 8 for a box, 2 for a capsule on a half-space, else 1.

    Returns: a `Touch` with the n in front, (n, *b) and (n, 3, *b)
    Raises: ValueError for a pair without a gap function

    >>> print(touches(Capsule(0.1, 1.0), HalfSpace(), Pose.along_z(0.5)).gap.round(3))
    [-0.1  0.9]
    """
    pairs = candidates(shape_C, shape_D)
    if pairs is None:
        raise ValueError(no_gap_function(shape_C, shape_D))
    found = []
    for one, at_C, other, at_D in pairs:
        at_C, at_D = (Pose.translation(wide(at, T)) for at in (at_C, at_D))
        seen = touch(one, other, at_D.inverse() @ T @ at_C)
        found.append(Touch(seen.gap, at_D.apply(seen.point), seen.normal))
    gaps, points, normals = ([getattr(x, f) for x in found] for f in ("gap", "point", "normal"))
    return Touch(jnp.stack(gaps), jnp.stack(points), jnp.stack(normals))


def touch(shape_C: Shape, shape_D: Shape, T: Pose) -> Touch:
    """Where a pair of `candidates` touches, at the pose T = T_CD of C in D."""
    if isinstance(shape_D, HalfSpace):
        return _above_plane(shape_C, T)
    if isinstance(shape_C, HalfSpace):
        # Seen from the plane, which the first shape carries.
        seen = _above_plane(shape_D, T.inverse())
        return Touch(seen.gap, T.apply(seen.point), -T.rotate(seen.normal))
    return _between_segments(shape_C, shape_D, T)


def no_gap_function(shape_C: Shape, shape_D: Shape) -> str:
    """What to say of a pair that has no gap function."""
    names = " and ".join(type(shape).__name__ for shape in (shape_C, shape_D))
    return (
        f"there is no gap function for {names}; there are Point, Sphere, Capsule and Box on a "
        "HalfSpace, and Point, Sphere and Capsule among each other. Give a collision detection's "
        "own points to a ContactPoint"
    )


def wide(x: ArrayLike, T: Pose, components: int = 1) -> Array:
    """A parameter, of one component axis or none, in T's precision and with axes for T's batch."""
    x = jnp.asarray(x, T.p.dtype)
    return x.reshape(x.shape + (1,) * (T.p.ndim - 1 + components - x.ndim))


def _above_plane(ball: Any, T: Pose) -> Touch:
    """A sphere or point above z = 0 of D: the height of its lowest point."""
    radius = wide(ball.radius, T, 0)
    up = axes(T)[2]
    gap = T.p[2] - radius
    return Touch(gap, T.p - radius[None] * up, jnp.broadcast_to(up, T.p.shape))


def _between_segments(C: Any, D: Any, T: Pose) -> Touch:
    """Rounded segments: from the nearest points of the two axes, less both radii."""
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
    """Places s, t [m] along unit axes u, v of the nearest points of two segments.

    They minimize |r + s u - t v|² + ε (s² + t²) within ± the half lengths, r from the middle of the
    second to that of the first. ε decides between parallel axes: half-way between their middles,
    or as near to that as the axes face each other; it adds at most ε (s² + t²) to the square.
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
