"""Convex hulls of points, with few vertices."""

import numpy as np
from jax.typing import ArrayLike

MOST_VERTICES = 64
# Thickness as a share of the extent below which points lie in a plane.
FLAT = 1e-9


def hull(points: ArrayLike, most: int = MOST_VERTICES) -> tuple[np.ndarray, float]:
    """Vertices of the convex hull of points, or of a simpler hull inside of it.

    A hull of more than `most` vertices is built anew from its extremes, by the vertex that lies
    farthest outside at each time.

    points: [m], shape (n, 3); most: largest number of vertices, ≥ 8

    Returns: vertices, shape (V, 3), and how far the farthest point lies outside of their hull [m]
    Raises: ValueError for points that are not finite or lie in a plane, and for other `most`.
    """
    from scipy.spatial import ConvexHull, QhullError

    if most < 8:
        raise ValueError(f"hull: most {most} must be >= 8")
    points = np.asarray(points, float)
    if points.ndim != 2 or points.shape[1] != 3 or not np.isfinite(points).all():
        raise ValueError(f"hull: points of shape {points.shape} must be finite, of shape (n, 3)")
    try:
        points = points[np.sort(ConvexHull(points).vertices)]
        if len(points) <= most:
            return points, 0.0
        chosen = list(dict.fromkeys([*points.argmin(axis=0), *points.argmax(axis=0)]))
        spans = ConvexHull(points[chosen])
    except (QhullError, ValueError) as error:
        raise ValueError(
            "hull: the points lie in a plane or are fewer than 4; give a body that has a thickness"
        ) from error
    while True:
        outside = (points @ spans.equations[:, :3].T + spans.equations[:, 3]).max(axis=1)
        if len(chosen) == most or outside.max() <= FLAT * np.ptp(points):
            return points[np.sort(chosen)], max(float(outside.max()), 0.0)
        chosen.append(int(outside.argmax()))
        spans = ConvexHull(points[chosen])
