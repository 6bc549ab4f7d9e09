"""Pictures of couplings in axonometric view: frames, bodies, twists as arrows, and motions.

Points are arrays of shape (3, n) in the frame D. A `Place` transforms points of C into D.
"""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.offsetbox import AnchoredOffsetbox, HPacker, TextArea

RED_GREEN_BLUE = ("#d62728", "#2ca02c", "#1f5fd0")
COORDINATES = ("#e67e00", "#9b30c8", "#00a0a8", "#a0522d", "#d6409f", "#7a8b00")
GREY, DARK, BODY = "#9a9a9a", "#555555", "#c9d6e8"
# Lengths [m]: axes of C and of D; distance and radius of curved arrows; ends of straight arrows.
AXIS_C, AXIS_D, ARC_AT, ARC_RADIUS, ARROW = 0.5, 0.85, 0.62, 0.17, (0.72, 1.12)
TURN = np.linspace(0, 2 * np.pi, 49)


class Place(NamedTuple):
    """A pose T_CD.

    R: rotation matrix from C to D, shape (3, 3); p: origin of C in D, shape (3,)
    """

    R: np.ndarray
    p: np.ndarray

    def __call__(self, points: np.ndarray) -> np.ndarray:
        return self.R @ points + self.p[:, None]


class Body(NamedTuple):
    """A drawn body: faces and lines, arrays (3, n) in its frame; tip: point whose path is drawn."""

    faces: tuple[np.ndarray, ...] = ()
    lines: tuple[np.ndarray, ...] = ()
    tip: tuple[float, float, float] = (0.0, 0.0, 0.0)


def box(size, centre=(0.0, 0.0, 0.0), tip=None) -> Body:
    """A box with edges `size` [m]; the path drawn is that of `tip`, the centre of its +x face."""
    size, centre = np.array(size) / 2, np.array(centre)
    faces = []
    for i in range(3):
        u, v, w = np.roll(np.eye(3), -i, axis=0) * size[:, None][[(i + j) % 3 for j in range(3)]]
        for side in (u, -u):
            corners = [side + v + w, side + v - w, side - v - w, side - v + w]
            faces.append(np.array(corners).T + centre[:, None])
    end = centre + [size[0], 0.0, 0.0]
    return Body(tuple(faces), tip=tuple(end if tip is None else tip))


def circle(radius, axis=2, centre=(0.0, 0.0, 0.0)) -> np.ndarray:
    """Points of a circle normal to a coordinate axis, shape (3, n)."""
    points = np.zeros((3, TURN.size))
    points[(axis + 1) % 3], points[(axis + 2) % 3] = radius * np.cos(TURN), radius * np.sin(TURN)
    return points + np.array(centre)[:, None]


def wheel(radius, axis=2, spokes=6) -> Body:
    """A disc with spokes; the path drawn is that of a point of its rim."""
    rim = circle(radius, axis)
    every = (TURN.size - 1) // spokes
    lines = tuple(np.stack([np.zeros(3), rim[:, i * every]], axis=1) for i in range(spokes))
    return Body((rim,), lines, tuple(rim[:, 0]))


def ball(radius) -> Body:
    """A sphere as three great circles; the path drawn is that of a point of one."""
    return Body((), tuple(circle(radius, axis) for axis in range(3)), (radius, 0.0, 0.0))


def grid(surface, u, v) -> list[np.ndarray]:
    """Lines of constant u, then of constant v, of a surface (u, v) → (3, n)."""
    fine_u, fine_v = np.linspace(u[0], u[-1], 40), np.linspace(v[0], v[-1], 40)
    return [surface(np.full(40, a), fine_v) for a in u] + [
        surface(fine_u, np.full(40, b)) for b in v
    ]


class Picture:
    """The picture of one coupling on Matplotlib axes.

    azimuth, elevation: direction from which it is seen [degrees]
    """

    def __init__(self, axes: Axes, azimuth: float = -58.0, elevation: float = 24.0):
        a, e = np.radians([azimuth, elevation])
        self.axes = axes
        self.view = np.array(
            [
                [-np.sin(a), np.cos(a), 0.0],
                [-np.sin(e) * np.cos(a), -np.sin(e) * np.sin(a), np.cos(e)],
                [np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)],
            ]
        )
        self.arrows: dict[str, list[np.ndarray]] = {"straight": [], "curved": []}

    def line(self, points, color, order, width=1.0, **style) -> None:
        """Draw a line through points (3, n)."""
        across, up, _ = self.view @ points
        style = {"solid_capstyle": "round"} | style
        self.axes.plot(across, up, color=color, lw=width, zorder=order, **style)

    def face(self, points, color, order, edge=None, alpha=1.0, width=0.7) -> None:
        """Draw a filled polygon with corners (3, n)."""
        across, up, _ = self.view @ points
        self.axes.fill(across, up, fc=color, ec=edge or color, lw=width, zorder=order, alpha=alpha)

    def text(self, point, text, color, size=7) -> None:
        """Write a label at a point (3,)."""
        across, up, _ = self.view @ np.asarray(point)
        self.axes.update_datalim([(across, up)])
        style = {"ha": "center", "va": "center", "fontsize": size, "zorder": 9}
        self.axes.text(across, up, text, color=color, **style)

    def body(self, body: Body, place: Place, *, ghost: str | None = None) -> None:
        """Draw a body at a place: solid, or in thin lines of the colour `ghost`."""
        faces = sorted(
            (place(face) for face in body.faces), key=lambda f: (self.view @ f)[2].mean()
        )
        for i, face in enumerate(faces):
            if ghost:
                closed = np.concatenate([face, face[:, :1]], axis=1)
                self.line(closed, ghost, 2, 0.6, alpha=0.4)
            else:
                self.face(face, BODY, 3 + i / 100, DARK, 0.85)
        style = (ghost, 2, 0.6) if ghost else (DARK, 3.5, 0.6)
        for line in body.lines:
            self.line(place(line), *style, alpha=0.4 if ghost else 1.0)

    def frame(self, place: Place, name: str) -> None:
        """Draw the axes of frame C, coloured, or of frame D, grey with their names."""
        is_C = name == "C"
        length, width, order = (AXIS_C, 2.0, 6) if is_C else (AXIS_D, 1.0, 4)
        for i, color in enumerate(RED_GREEN_BLUE):
            end = length * np.eye(3)[:, i : i + 1]
            line = place(np.concatenate([np.zeros((3, 1)), end], axis=1))
            self.line(line, color if is_C else GREY, order, width)
            if not is_C:
                self.text(place(1.1 * end)[:, 0], "xyz"[i], GREY)
        corner = (-0.09, -0.09, 0.0) if is_C else (-0.05, -0.05, -0.12)
        self.text(place(np.array(corner)[:, None])[:, 0], name, "black" if is_C else DARK, 8)

    def twist(self, place: Place, twist: np.ndarray, color: str) -> None:
        """Draw a twist of C: a straight arrow for its velocity, a curved one for its rotation."""
        v, w = place.R @ twist[:3], place.R @ twist[3:]
        small = 2e-3 * np.linalg.norm(twist)
        if np.linalg.norm(w) > small:
            self._curved(place.p, w / np.linalg.norm(w), color)
        if np.linalg.norm(v) > small:
            self._straight(place.p, v / np.linalg.norm(v), color)

    def coordinates(self, names: list[tuple[str, str]]) -> None:
        """Write (name, colour) of each coordinate below the picture."""
        texts = [TextArea(text, textprops={"color": c, "fontsize": 8}) for text, c in names]
        line = HPacker(children=texts, pad=0, sep=7, align="baseline")
        place = {"bbox_to_anchor": (0.5, 0.0), "bbox_transform": self.axes.transAxes}
        self.axes.add_artist(AnchoredOffsetbox("upper center", child=line, frameon=False, **place))

    def _beside(self, kind, direction) -> int:
        """Number of arrows of a kind that are drawn along a direction already."""
        count = sum(direction @ other > 0.97 for other in self.arrows[kind])
        self.arrows[kind].append(direction)
        return count

    def _straight(self, p, direction, color) -> None:
        shift = 0.1 * self._beside("straight", direction) * self.view[0]
        start, end = (p + shift + share * direction for share in ARROW)
        self.line(np.stack([start, end], axis=1), color, 7, 1.6)
        tip, along = self.view[:2] @ end, self.view[:2] @ direction
        size = np.linalg.norm(along)
        if size < 0.15:  # along the line of sight: a dot
            self.axes.plot(*tip, "o", color=color, ms=4, zorder=7)
            return
        along = along / size
        across = np.array([-along[1], along[0]])
        head = np.array([tip + 0.09 * along, tip + 0.05 * across, tip - 0.05 * across])
        self.axes.fill(*head.T, fc=color, ec=color, lw=0.5, zorder=7)

    def _curved(self, p, axis, color) -> None:
        centre = p + (ARC_AT + 0.16 * self._beside("curved", axis)) * axis
        u = np.cross(axis, np.eye(3)[np.argmin(np.abs(axis))])
        u /= np.linalg.norm(u)
        v = np.cross(axis, u)
        angles = np.linspace(0.3, 5.0, 40)

        def point(angle, radius=ARC_RADIUS):
            return centre + radius * (np.cos(angle) * u + np.sin(angle) * v)

        self.line(np.stack([point(a) for a in angles], axis=1), color, 7, 1.6)
        last = angles[-1]
        head = [point(last + 0.62), point(last, 1.4 * ARC_RADIUS), point(last, 0.6 * ARC_RADIUS)]
        self.face(np.stack(head, axis=1), color, 7)
