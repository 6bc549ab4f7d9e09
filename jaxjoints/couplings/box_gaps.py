"""Gaps of boxes: with balls, with capsules and with each other.

A box has the centre of D as its centre and edges along the axes of D. All arrays carry trailing
batch axes; each function returns (gap, point, normal) as `Touch` has them, with the normal out of
the box in D.
"""

import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from ..algebra.spatial import dot, norm

# Below this share of curvature, in float32 and float64, distances from a box count as constant.
FLAT = {4: 1e-5, 8: 1e-10}
# Sine² of the angle from which on edges of two boxes have a common normal.
SKEW = {4: 1e-5, 8: 1e-10}
# By how much of the smallest half edge two edges must be farther apart than all faces, so that
# their normal counts: the noise of boxes that stand on each other stays below.
EDGE_LEAD = 1e-3


def ball_gap(p: Array, radius: Array, half: Array) -> tuple[Array, Array, Array]:
    """Ball beside a box. In the box, the centre leaves by the nearest face.

    p: centre (3, *b); radius: 0 for a point (*b); half: half edges (3, *b)
    """
    face = _largest(jnp.abs(p) - half) * _sign(p)
    off = p - jnp.clip(p, -half, half)
    return _of_ball(p, radius, off, dot(face, p) - dot(jnp.abs(face), half), face, norm(off) > 0)


def capsule_gap(
    p: Array, u: Array, half_length: Array, radius: Array, half: Array, side: Array
) -> tuple[Array, Array, Array]:
    """One of two balls of a capsule that keep it off a box.

    On the axis of the capsule lies a point that is nearest to the box, and with it the face that is
    nearest to this point. The two balls are the ends of the part of the axis that lies above this
    face or between the nearest point and the face: a capsule that lies on a box touches at both,
    one that meets an edge or a corner touches twice in one place.

    p: centre (3, *b); u: unit vector of the axis (3, *b); half_length: of the axis (*b)
    radius: (*b); half: half edges of the box (3, *b); side: < 0 for the first end along u (*b)
    """
    nearest = _nearest_on_axis(p, u, half_length, half)
    middle = p + nearest[None] * u
    excess = jnp.abs(middle) - half
    choice = _largest(excess)
    face = choice * _sign(middle)
    # The axis leaves what lies above the face, at whose sides the nearest point is included.
    width = jnp.maximum(half, jnp.abs(middle))
    # Protects the divisions from axes along the face; these do not leave it.
    leaves = (jnp.abs(u) > jnp.finfo(u.dtype).eps) & (choice == 0)
    slope = jnp.where(leaves, u, 1.0)
    ends = (-width - p) / slope, (width - p) / slope
    first = jnp.where(leaves, jnp.minimum(*ends), -half_length[None]).max(axis=0)
    last = jnp.where(leaves, jnp.maximum(*ends), half_length[None]).min(axis=0)
    first = jnp.minimum(jnp.maximum(first, -half_length), nearest)
    last = jnp.maximum(jnp.minimum(last, half_length), nearest)
    ball = p + jnp.where(side < 0, first, last)[None] * u
    height = dot(face, ball) - dot(jnp.abs(face), half)
    off = ball - jnp.clip(ball, -half, half)
    # Where the axis enters the box, both balls leave it by one face.
    outside = (excess.max(axis=0) > 0) & (norm(off) > 0)
    return _of_ball(ball, radius, off, height, face, outside)


def box_gap(
    p: Array, R: Array, half_C: Array, half_D: Array, corner_C: Array, corner_D: Array
) -> tuple[Array, Array, Array]:
    """One of eight points between two boxes.

    The normal is that of 15 (of the faces of both boxes, and across an edge of either) along which
    the boxes are farthest apart, or overlap least. Along this normal the facing faces of both boxes
    are seen on each other: two parallelograms, whose intersection has at most eight corners. On
    each of the eight edges of both faces begins at most one side of the intersection. Where it
    begins is the point of this edge, whose gap is the distance of the faces along the normal. An
    edge beside the other face has no point; how far it is beside [m] is added to its gap.

    p: centre of the second box C (3, *b); R: its axes in D, in columns (3, 3, *b)
    half_C, half_D: half edges (3, *b)
    corner_C: of the edge on C's face, the signs of the corner where it begins, shape (2, *b)
    corner_D: the same on D's face; the one that is (0, 0) has no edge
    """
    n = _separating_normal(p, R, half_C, half_D)
    n_C = jnp.sum(R * n[:, None], axis=0)
    of_C = jnp.abs(corner_C[0]) > 0
    identity = jnp.eye(3, dtype=R.dtype).reshape((3, 3) + (1,) * n[0].ndim)
    faces = _face(n_C, -1, half_C, R, p), _face(n, 1, half_D, identity, jnp.zeros_like(p))

    def chosen(x, y):
        return jnp.where(of_C if x.ndim == of_C.ndim else of_C[None], x, y)

    centre, _, a1, a2, h1, h2 = (chosen(x, y) for x, y in zip(*faces, strict=True))
    centre_F, m_F, f1, f2, g1, g2 = (chosen(y, x) for x, y in zip(*faces, strict=True))
    s1, s2 = chosen(corner_C, corner_D)
    start = centre + (s1 * h1)[None] * a1 + (s2 * h2)[None] * a2
    along = jnp.where(s1 * s2 > 0, (-2 * s1 * h1)[None] * a1, (-2 * s2 * h2)[None] * a2)
    # Heights above the other face along n, positive on the side to which n points.
    steep = dot(m_F, n)
    rise, begin = dot(m_F, along) / steep, dot(m_F, start - centre_F) / steep
    beside = jnp.stack([dot(f, start - centre_F - begin[None] * n) for f in (f1, f2)])
    runs = jnp.stack([dot(f, along - rise[None] * n) for f in (f1, f2)])
    width = jnp.stack([g1, g2])
    # Protects the divisions from edges along a side of the other face.
    least = jnp.finfo(p.dtype).eps * width
    divisor = jnp.where(jnp.abs(runs) > least, runs, least)
    ends = (-width - beside) / divisor, (width - beside) / divisor
    first = jnp.maximum(jnp.minimum(*ends).max(axis=0), 0.0)
    last = jnp.minimum(jnp.maximum(*ends).min(axis=0), 1.0)
    t = jnp.where(first <= last, first, jnp.clip((first + last) / 2, 0.0, 1.0))
    off = jnp.maximum(jnp.abs(beside + t[None] * runs) - width, 0.0)
    miss = jnp.where(first <= last, 0.0, off[0] + off[1])
    height = begin + t * rise
    gap = jnp.where(of_C, height, -height)
    return gap + miss, start + t[None] * along - (height / 2)[None] * n, n


def _of_ball(p, radius, off, height, face, outside):
    """Gap, point and normal of a ball: from its nearest point of the box, or above a face."""
    distance = norm(off)
    normal = jnp.where(outside[None], off / jnp.where(outside, distance, 1.0)[None], face)
    gap = jnp.where(outside, distance, height) - radius
    return gap, p - (radius + gap / 2)[None] * normal, normal


def _nearest_on_axis(p: Array, u: Array, half_length: Array, half: Array) -> Array:
    """Where on a segment p + s u, |s| ≤ half_length, its distance from a box is least: s [m].

    The square of the distance is convex in s; its slope is linear between the places where the
    segment crosses the planes of the faces. Where several s are nearest, their middle.
    """
    # Protects the divisions from axes along a face; such a place is one more, without effect.
    crosses = jnp.abs(u) > jnp.finfo(u.dtype).eps
    slope = jnp.where(crosses, u, 1.0)
    places = jnp.concatenate([(-half - p) / slope, (half - p) / slope])
    places = jnp.clip(places, -half_length[None], half_length[None])
    ends = jnp.stack([-half_length, half_length])
    places = jnp.concatenate([places, jnp.broadcast_to(ends, (2, *places.shape[1:]))])
    x = p[:, None] + u[:, None] * places[None]
    rates = jnp.sum(u[:, None] * (x - jnp.clip(x, -half[:, None], half[:, None])), axis=0)
    falls, rises = rates <= 0, rates >= 0
    low = jnp.where(falls, places, -half_length[None]).max(axis=0)
    high = jnp.where(rises, places, half_length[None]).min(axis=0)
    falling = jnp.where(falls, rates, -1.0).max(axis=0)
    rising = jnp.where(rises, rates, 1.0).min(axis=0)
    # Protects the division from a distance that is constant.
    curved = rising - falling > FLAT[p.dtype.itemsize] * jnp.abs(high - low)
    share = jnp.where(curved, -falling / jnp.where(curved, rising - falling, 1.0), 0.5)
    return low + share * (high - low)


def _separating_normal(p: Array, R: Array, half_C: Array, half_D: Array) -> Array:
    """Unit vector out of D into C along which two boxes are farthest apart or overlap least.

    Source: S. Gottschalk, M. Lin, D. Manocha, "OBBTree", SIGGRAPH 1996, section 5.
    """
    size, p_C = jnp.abs(R), jnp.sum(R * p[:, None], axis=0)
    of_D = jnp.abs(p) - half_D - jnp.sum(size * half_C[None], axis=1)
    of_C = jnp.abs(p_C) - half_C - jnp.sum(size * half_D[:, None], axis=0)
    faces = jnp.concatenate([of_D, of_C])
    choice = _largest(faces)
    normal = choice[:3] * _sign(p) + jnp.sum(R * (choice[3:] * _sign(p_C))[None], axis=1)
    # Edge i of D with edge j of C: e_i × R_j, whose components are those of R_j turned by 90°.
    (R1, R2), (p1, p2), (d1, d2) = ([jnp.roll(x, -k, 0) for k in (1, 2)] for x in (R, p, half_D))
    apart = p2[:, None] * R1 - p1[:, None] * R2
    reach = d1[:, None] * jnp.abs(R2) + d2[:, None] * jnp.abs(R1)
    for k in (1, 2):
        reach = reach + jnp.roll(half_C, -k, 0)[None] * jnp.roll(size, -(3 - k), 1)
    square = R1**2 + R2**2
    # Protects √ and the division from parallel edges, which have no common normal.
    skew = square > SKEW[p.dtype.itemsize]
    length = jnp.sqrt(jnp.where(skew, square, 1.0))
    edges = jnp.where(skew, (jnp.abs(apart) - reach) / length, faces.max(axis=0)[None, None] - 1.0)
    batch = edges.shape[2:]
    chosen = _largest(edges.reshape(9, *batch)).reshape(edges.shape)
    weight = chosen * _sign(apart) / length
    # Sum of e_i × R_j: components (i + 1, -R2) and (i + 2, R1).
    across = jnp.roll(jnp.sum(-weight * R2, axis=1), 1, 0)
    across = across + jnp.roll(jnp.sum(weight * R1, axis=1), 2, 0)
    lead = EDGE_LEAD * jnp.minimum(half_C.min(axis=0), half_D.min(axis=0))
    of_edges = edges.max(axis=(0, 1)) > faces.max(axis=0) + lead
    return jnp.where(of_edges[None], across, normal)


def _face(n: Array, way: int, half: Array, axes: Array, centre: Array) -> tuple[Array, ...]:
    """The face of a box that faces most along n (way = 1) or against it (way = -1).

    n: in the axes of the box, whose components stand in the columns of `axes`

    Returns: its middle, its normal, unit vectors a₁ and a₂ of its edges, of which a₁ × a₂ points
        to the side of n, and half the lengths of these edges
    """
    choice = _largest(jnp.abs(n))
    upward = choice * _sign(n)
    first, second = (jnp.roll(choice, k, 0) for k in (1, 2))
    h, h1, h2 = (dot(x, half) for x in (choice, first, second))
    second = second * upward.sum(axis=0)[None]
    m, a1, a2 = (jnp.sum(axes * x[None], axis=1) for x in (way * upward, first, second))
    return centre + h[None] * m, m, a1, a2, h1, h2


def _largest(x: Array) -> Array:
    """1 for the first of the largest entries along the first axis, 0 for the others."""
    places = jnp.arange(x.shape[0]).reshape((-1,) + (1,) * (x.ndim - 1))
    return (stop_gradient(x).argmax(axis=0)[None] == places).astype(x.dtype)


def _sign(x: Array) -> Array:
    """1 for x ≥ 0, else -1."""
    return jnp.where(x < 0, -jnp.ones_like(x), jnp.ones_like(x))
