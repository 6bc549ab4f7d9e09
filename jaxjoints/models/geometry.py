"""Shapes to look at: what a viewer draws for each body, as plain NumPy without JAX.

A `Visual` is one shape on one body. Shapes are records of their dimensions, in a frame of their own
whose pose in the body frame is `Visual.frame`. They have no mass and touch nothing: what touches is
a `Contact` of the shapes in `jaxjoints.shapes`.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

GREY = (0.6, 0.6, 0.6, 1.0)
# Off 1 by which a rotation matrix may be rounded.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Box:
    """A box centred at the origin with edges along x, y, z.

    size: full lengths of the edges along x, y, z [m], shape (3,), > 0
    """

    size: np.ndarray

    def __post_init__(self):
        _set(self, size=_positive("Box", "size", self.size, (3,)))


@dataclass(frozen=True, eq=False)
class Sphere:
    """A sphere centred at the origin. radius: [m], > 0."""

    radius: float

    def __post_init__(self):
        _set(self, radius=float(_positive("Sphere", "radius", self.radius)))


@dataclass(frozen=True, eq=False)
class Cylinder:
    """A solid cylinder about z, centred at the origin.

    radius: [m], > 0; length: from end to end along z [m], > 0
    """

    radius: float
    length: float

    def __post_init__(self):
        for name in ("radius", "length"):
            _set(self, **{name: float(_positive("Cylinder", name, getattr(self, name)))})


@dataclass(frozen=True, eq=False)
class Capsule:
    """A cylinder about z with a half sphere on each end, centred at the origin.

    radius: of cylinder and half spheres [m], > 0; length: of the cylindrical part along z [m], ≥ 0
    """

    radius: float
    length: float

    def __post_init__(self):
        _set(self, radius=float(_positive("Capsule", "radius", self.radius)))
        length = float(_finite("Capsule", "length", self.length, ()))
        if length < 0:
            raise ValueError(f"Capsule: length {self.length} must be >= 0")
        _set(self, length=length)


@dataclass(frozen=True, eq=False)
class Plane:
    """The plane z = 0 without end, seen from the side to which z points."""


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles between points.

    vertices: points [m], shape (V, 3)
    faces: indices of the corners of each triangle, counter-clockwise from outside, shape (T, 3)
    """

    vertices: np.ndarray
    faces: np.ndarray

    def __post_init__(self):
        vertices = np.array(self.vertices, float)
        if vertices.ndim != 2 or vertices.shape[1] != 3:
            raise ValueError(f"Mesh: vertices has shape {vertices.shape}; it must be (V, 3)")
        if not np.isfinite(vertices).all():
            raise ValueError("Mesh: vertices must be finite")
        faces = np.array(self.faces)
        if faces.size == 0:
            faces = np.zeros((0, 3), int)
        if faces.ndim != 2 or faces.shape[1] != 3 or not np.issubdtype(faces.dtype, np.integer):
            raise ValueError(
                f"Mesh: faces has shape {faces.shape} of {faces.dtype}; it must be (T, 3) integers"
            )
        if faces.size and (faces.min() < 0 or faces.max() >= len(vertices)):
            raise ValueError(
                f"Mesh: faces names vertices {faces.min()} to {faces.max()}; there are "
                f"{len(vertices)}, numbered from 0"
            )
        _set(self, vertices=_constant(vertices), faces=_constant(faces.astype(np.int64)))


def ellipsoid(radii: Any, rings: int = 12) -> Mesh:
    """A mesh of an ellipsoid about the origin.

    radii: along x, y, z [m], shape (3,), > 0
    rings: circles of vertices from pole to pole, each of twice as many
    """
    radii = _positive("ellipsoid", "radii", radii, (3,))
    polar = np.linspace(0, np.pi, rings + 2)[1:-1]
    around = np.arange(2 * rings) * np.pi / rings
    level = np.sin(polar)[:, None] * np.array([np.cos(around), np.sin(around)])[:, None]
    height = np.broadcast_to(np.cos(polar)[:, None], level.shape[1:])
    circles = np.stack([*level, height], axis=-1).reshape(-1, 3)
    points = np.concatenate([circles, [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]])
    n, top, bottom = 2 * rings, len(circles), len(circles) + 1
    faces = []
    for j in range(n):
        k = (j + 1) % n
        faces += [(top, j, k), (bottom, top - n + k, top - n + j)]
        for i in range(0, top - n, n):
            faces += [(i + j, i + n + j, i + k), (i + k, i + n + j, i + n + k)]
    return Mesh(points * radii, np.array(faces))


def height_mesh(heights: Any, size: Any) -> Mesh:
    """A mesh of a grid of heights about the origin, as `shapes.HeightField` has them.

    heights: along z [m], shape (X, Y); size: of the grid along x and y [m], shape (2,)
    """
    heights = np.asarray(heights, float)
    X, Y = heights.shape
    x, y = (s / 2 * np.linspace(-1, 1, n) for s, n in zip(size, (X, Y), strict=True))
    points = np.stack([*np.meshgrid(x, y, indexing="ij"), heights], axis=-1)
    a = (np.arange(X - 1)[:, None] * Y + np.arange(Y - 1)).ravel()
    b, c, d = a + Y, a + Y + 1, a + 1
    faces = np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])
    return Mesh(points.reshape(-1, 3), faces)


Shape: TypeAlias = Box | Sphere | Cylinder | Capsule | Plane | Mesh


@dataclass(frozen=True, eq=False)
class Visual:
    """One shape that is seen on a body.

    body: name of the body that carries it, or `WORLD`
    frame: pose of the shape's frame in the body frame: rotation matrix (3, 3), whose columns are
        the axes of the shape, and position [m], shape (3,)
    shape: a `Box`, `Sphere`, `Cylinder`, `Capsule`, `Plane` or `Mesh`
    color: red, green, blue and opacity, each in [0, 1]

    Raises: ValueError naming the body, the field, its value and the rule.

    >>> crate = Visual("crate", (np.eye(3), np.array([0.0, 0.0, 0.25])), Box((0.4, 0.4, 0.5)))
    >>> print(crate.frame[1] - crate.shape.size / 2)  # its lowest corner in the body frame [m]
    [-0.2 -0.2  0. ]
    """

    body: str
    frame: tuple[np.ndarray, np.ndarray]
    shape: Shape
    color: tuple[float, float, float, float] = GREY

    def __post_init__(self):
        if not isinstance(self.body, str) or not self.body:
            raise ValueError(f"visual: body {self.body!r} must be the name of a body")
        owner = f"visual on {self.body!r}"
        if not isinstance(self.shape, Shape):
            raise ValueError(f"{owner}: shape {self.shape!r} must be one of {Shape}")
        rotation, position = self.frame
        rotation = _finite(owner, "rotation", rotation, (3, 3))
        position = _finite(owner, "position", position, (3,))
        off = np.abs(rotation.T @ rotation - np.eye(3)).max()
        if off > ROUNDING or np.linalg.det(rotation) < 0:
            raise ValueError(
                f"{owner}: rotation {rotation.tolist()} must be a rotation matrix; RᵀR is off the "
                f"identity by {off:.3g}, its determinant is {np.linalg.det(rotation):.3g}"
            )
        color = _finite(owner, "color", self.color, (4,))
        if (color < 0).any() or (color > 1).any():
            raise ValueError(f"{owner}: color {color.tolist()} must lie in [0, 1]")
        frame = _constant(rotation), _constant(position)
        _set(self, frame=frame, color=tuple(color.tolist()))


def _finite(owner: str, name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Finite numbers of a required shape, a copy."""
    try:
        numbers = np.array(value, float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{owner}: {name} {value!r} must be numbers of shape {shape}") from error
    if numbers.shape != shape:
        raise ValueError(f"{owner}: {name} has shape {numbers.shape}; it must be {shape}")
    if not np.isfinite(numbers).all():
        raise ValueError(f"{owner}: {name} {value} must be finite")
    return numbers


def _positive(owner: str, name: str, value: Any, shape: tuple[int, ...] = ()) -> np.ndarray:
    numbers = _finite(owner, name, value, shape)
    if not (numbers > 0).all():
        raise ValueError(f"{owner}: {name} {value} must be > 0")
    return _constant(numbers)


def _constant(array: np.ndarray) -> np.ndarray:
    """The array, which then cannot be written to."""
    array.setflags(write=False)
    return array


def _set(record: Any, **fields: Any) -> None:
    """Set fields of a frozen record while it is made."""
    for name, value in fields.items():
        object.__setattr__(record, name, value)
