"""Gaps of balls above a grid of heights: the distance from the triangles about the nearest node."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import dynamic_slice, stop_gradient

from ..algebra.pytree import map_trailing
from ..algebra.spatial import unit

# Corners of the triangles of four cells about a node, among its nine nodes, counter-clockwise.
TRIANGLES = np.array(
    [
        corners
        for i in (0, 3)
        for j in (0, 1)
        for corners in ([i + j, i + j + 3, i + j + 4], [i + j, i + j + 4, i + j + 1])
    ]
)
# As a share of a cell, the distance below which a side of a triangle counts as the triangle below,
# in float32 and float64.
NEAR = {4: 1e-4, 8: 1e-8}


def height_gap(p: Array, radius: Array, heights: Array, size: Array) -> tuple[Array, Array, Array]:
    """Gap, point and normal of balls above a height field, as `Touch` has them.

    p: centres (3, *b); radius: 0 for points (*b); heights: (X, Y, *b); size: (2, *b)
    """
    return map_trailing(_gap, p.ndim - 1, p, radius, heights, size)


def height_normal(p: Array, heights: Array, size: Array) -> Array:
    """Upward unit normal of the triangle below or above points (3, *b), shape (3, *b)."""
    return map_trailing(lambda *x: _plane(*x)[0], p.ndim - 1, p, heights, size)


def _plane(p: Array, heights: Array, size: Array) -> tuple[Array, Array]:
    """Unit normal of the triangle that is below p, and the distance of p from its plane."""
    place, cell, step = _cell(p[:2], heights, size, 2)
    (low, left), (right, high) = dynamic_slice(heights, cell, (2, 2))
    x, y = place - cell.astype(p.dtype)
    first = x >= y
    slope = jnp.stack(
        [jnp.where(first, right - low, high - left), jnp.where(first, high - right, left - low)]
    )
    normal = unit(jnp.concatenate([-slope / step, jnp.ones_like(p[:1])]))
    return normal, normal[2] * (p[2] - low - slope[0] * x - slope[1] * y)


def _cell(xy: Array, heights: Array, size: Array, nodes: int) -> tuple[Array, Array, Array]:
    """Place on the grid in cells, the first of `nodes` nodes about it each way, and the edges of a
    cell [m].
    """
    count = np.array(heights.shape)
    step = size / jnp.asarray(count - 1, size.dtype)
    place = (xy + size / 2) / step
    first = jnp.floor(stop_gradient(place) - (nodes / 2 - 1))
    last = jnp.asarray(count - nodes, size.dtype)
    return place, jnp.clip(first, 0, last).astype(int), step


def _gap(p: Array, radius: Array, heights: Array, size: Array) -> tuple[Array, Array, Array]:
    """`height_gap` of one ball."""
    below, height = _plane(p, heights, size)
    foot = p - height * below
    _, first, step = _cell(foot[:2], heights, size, 3)
    z = dynamic_slice(heights, first, (3, 3))
    xy = [(first[k] + jnp.arange(3)).astype(p.dtype) * step[k] - size[k] / 2 for k in (0, 1)]
    nodes = jnp.stack([*jnp.meshgrid(*xy, indexing="ij"), z], axis=-1).reshape(9, 3)
    # Corners, sides and normals of eight triangles: (8, 3, 3), (8, 3, 3) and (8, 3).
    corners = nodes[TRIANGLES]
    sides = jnp.roll(corners, -1, axis=1) - corners
    normal = jnp.cross(sides[:, 0], sides[:, 1])
    normal = normal / jnp.sqrt(jnp.sum(normal**2, axis=-1, keepdims=True))
    arms = p[None, None] - corners
    above = jnp.sum(arms[:, 0] * normal, axis=-1)
    inwards = jnp.cross(normal[:, None], sides)
    over = (jnp.sum(inwards * arms, axis=-1) >= 0).all(axis=-1)
    share = jnp.sum(arms * sides, axis=-1) / jnp.sum(sides**2, axis=-1)
    off = arms - jnp.clip(share, 0.0, 1.0)[..., None] * sides
    square = jnp.sum(off**2, axis=-1)
    # The nearest of eight triangles, and of the sides of those that p is not over.
    squares = jnp.where(over, above**2, square.min(axis=-1))
    t = stop_gradient(squares).argmin()
    side = off[t, stop_gradient(square[t]).argmin()]
    inside = (jnp.abs(p[:2]) <= size / 2).all()
    sign = jnp.where(inside & (height < 0), -1.0, 1.0).astype(p.dtype)
    # Protects √ and the division from p on a side of a triangle, and where p is over a triangle.
    beside = ~over[t] & (squares[t] > (NEAR[p.dtype.itemsize] * step.min()) ** 2)
    distance = sign * jnp.sqrt(jnp.where(beside, squares[t], 1.0))
    face, above = jnp.where(over[t], normal[t], below), jnp.where(over[t], above[t], height)
    n = jnp.where(beside, side / distance, face)
    gap = jnp.where(beside, distance, above) - radius
    return gap, p - (radius + gap / 2) * n, n
