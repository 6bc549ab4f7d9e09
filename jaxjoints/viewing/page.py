"""Page: one HTML file that shows a motion: all it needs is inside, no network is in reach."""

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from ..algebra.calls import public
from ..algebra.options import brief, check_count, check_switch, near_matches
from ..model.system import System
from ..models.geometry import Mesh, Visual
from ..models.model import Model
from .motion import MOST_FRAMES, Motion, read_motion
from .scene import PALETTE, Scene, read_scene

# Characters of a name that the page keeps.
LONGEST = 120
SCRIPTS = ("failure.js", "vendor/vendor.min.js", "motion.js", "drawing.js", "panels.js")
STYLES = ("vendor/vendor.css", "page.css")


class View:
    """A motion to look at: a page that a notebook shows and `save` writes.

    page: the HTML text; it needs no other file, no server and no network
    notes: what the page does not show, a sentence each
    height: of the page in a notebook [pixels]

    >>> from jaxjoints import Slider, SystemBuilder, replicate
    >>> world = SystemBuilder()
    >>> cart = world.body("cart", mass=2.0, inertia=(1.0, 1.0, 1.0))
    >>> _ = world.joint("rail", Slider((1.0, 0.0, 0.0)), child=cart)
    >>> system, state = world.build()
    >>> view(system, replicate(state, 4096)).notes
    ('The first 16 of 4096 environments are shown.',)
    """

    def __init__(self, page: str, notes: tuple[str, ...], height: int):
        self.page, self.notes, self.height = page, notes, height

    def save(self, path: str | Path) -> Path:
        """Write the page to a file, which any browser opens; returns its path."""
        path = Path(path)
        path.write_text(self.page, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        # In a frame of its own without the notebook's origin: its scripts reach nothing there.
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{html.escape(self.page)}" '
            f'style="width: 100%; height: {self.height}px; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        size = f"View of {len(self.page) / 1e6:.1f} MB; save it: view.save('motion.html')"
        return "\n".join([size, *self.notes])


@public
def view(
    system: System,
    trajectory: Any,
    *,
    visuals: Model | Iterable[Visual] = (),
    environments: Any = None,
    side_by_side: bool = False,
    traces: Any = (),
    frames: int = MOST_FRAMES,
    title: str = "jaxjoints",
    height: int = 520,
) -> View:
    """A page that shows how the bodies of a system move; Jupyter shows it inline.

    The page has a slider for time, play and speed; a camera that the pointer turns, moves and
    zooms; joints with their axes and limits; forces as arrows; frames, centres of mass, traces and
    names; and plots of coordinates, speeds, energy and errors. Bodies without visuals are drawn
    from their joints, centres of mass and inertia.

    trajectory: a `State` with time in front, as `rollout` records it. With the pair of
        record=lambda state, info: (state, info) the page shows forces too. A single state gives a
        picture at rest. A `Plan` shows its states
    visuals: shapes of the bodies: the `Model` of their file, or each `Visual`
    environments: indices of those to show, counted through all batch axes; the first 16 by default
    side_by_side: the environments stand beside each other, not in one place
    traces: names of bodies whose centre of mass leaves a trace, or points in the body frame by the
        name of the body, {"hand": (0.0, 0.0, 0.3)}
    frames: largest number of frames, evenly spread over the motion; fewer fit for many bodies
    title: of the page
    height: of the page in a notebook [pixels]

    Raises: ValueError if the trajectory does not belong to the system, for unknown names, for
        environments out of range, and if no frame is finite.

    >>> from jaxjoints import Hinge, SystemBuilder, rollout
    >>> world = SystemBuilder()
    >>> arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.02), com=(0.0, 0.0, -0.5))
    >>> shoulder = world.joint("shoulder", Hinge(axis=(0.0, 1.0, 0.0)), child=arm, q=0.3)
    >>> system, state = world.build()
    >>> _, trajectory = rollout(system, state, dt=1e-3, steps=2)
    >>> page = view(system, trajectory, title="pendulum").page
    >>> page.count("<html"), "https:" in page.partition("<style>")[0]
    (1, False)
    """
    if not isinstance(title, str):
        raise ValueError(f"view: title {brief(title)} must be a text")
    check_count("view:", "height", height, 1)
    check_switch("view", "side_by_side", side_by_side)
    motion = read_motion(system, trajectory, environments=environments, frames=frames)
    scene = read_scene(motion, visuals)
    document = _document(motion, scene, _traces(system, traces), title) | {"side": side_by_side}
    return View(_page(document, title), motion.notes, height)


def _page(document: dict[str, Any], title: str) -> str:
    """The HTML text of a document."""
    static = files(__package__) / "static"

    def read(name):
        return (static / name).read_text(encoding="utf-8")

    scripts = [read(name) for name in SCRIPTS]
    style = "\n".join(map(read, STYLES))
    # Only these scripts and this style act, and nothing is loaded from anywhere.
    policy = {
        "default-src": ["'none'"],
        "script-src": [_hash(script) for script in scripts],
        "style-src": [_hash(style)],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }
    return Template(read("page.html")).substitute(
        policy="; ".join(" ".join([key, *values]) for key, values in policy.items()),
        title=html.escape(_short(title)),
        style=style,
        licenses=read("vendor/LICENSES.txt"),
        motion=_json(document),
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
    )


def _hash(text: str) -> str:
    """The source expression of a policy that lets one script or style act."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _json(document: dict[str, Any]) -> str:
    """JSON that may stand in a script element: no character in it ends the element."""
    text = json.dumps(document, allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _short(name: str) -> str:
    """A name of bounded length without control characters."""
    name = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def _traces(system: System, traces: Any) -> list[tuple[int, list[float] | None]]:
    """Body and point of each trace; None for the centre of mass."""
    points = traces if isinstance(traces, Mapping) else None
    names = (traces,) if isinstance(traces, str) else tuple(traces)
    result = []
    for name in names:
        if name not in system.topology.body_index:
            hint = near_matches(name, system.topology.bodies)
            raise ValueError(f"traces: there is no body {name!r}; {hint}")
        point = None if points is None else np.asarray(points[name], float)
        if point is not None and (point.shape != (3,) or not np.isfinite(point).all()):
            raise ValueError(f"traces: point {points[name]!r} of body {name!r} must be 3 numbers")
        result.append((system.body(name), None if point is None else point.tolist()))
    return result


def _document(
    motion: Motion, scene: Scene, traces: list[tuple[int, list[float] | None]], title: str
) -> dict[str, Any]:
    """What the page's scripts read: names and sizes, and arrays in base64."""

    def stacked(items, field, width):
        arrays = [getattr(item, field) for item in items]
        rows = max(map(len, arrays), default=1)
        wide = [np.broadcast_to(array, (rows, width)) for array in arrays]
        return np.stack(wide, axis=1) if wide else np.zeros((1, 0, width))

    channels = {
        "time": motion.time,
        "poses": motion.poses,
        "coordinates": motion.coordinates,
        "speeds": motion.speeds,
        "errors": motion.errors,
        "energies": motion.energies,
        "gaps": motion.gaps,
        "contactPoints": motion.contact_points,
        "com": scene.com,
        "limits": scene.limits,
        "jointFrames": stacked(scene.joints, "frame_C", 7),
        "partFrames": stacked(scene.parts, "frame", 7),
        "partSizes": stacked(scene.parts, "size", 3),
    }
    if motion.wrenches is not None:
        channels |= {"wrenches": motion.wrenches, "limitForces": motion.limit_forces}
        channels |= {"contactForces": motion.contact_forces}
    com = scene.com[0]
    return {
        "title": _short(title),
        "notes": list(motion.notes),
        "bodies": [_short(name) for name in motion.system.topology.bodies],
        "environments": list(motion.environments),
        "up": scene.up.tolist(),
        "box": scene.box.tolist(),
        "radius": scene.radius,
        "ground": scene.ground,
        "size": scene.size,
        "follow": scene.follow,
        "drawn": scene.drawn,
        "colors": PALETTE,
        "turning": motion.turning.tolist(),
        "joints": [
            {
                "name": _short(joint.name),
                "type": joint.type,
                "child": joint.child,
                "start": joint.start,
                "dof": joint.dof,
                "axes": _array(motion.axes[:, :, joint.start : joint.start + joint.dof]),
            }
            for joint in scene.joints
        ],
        "contacts": [_short(name) for name in motion.system.topology.contacts],
        "parts": [
            {"kind": p.kind, "layer": p.layer, "body": p.body, "color": p.color, "mesh": p.mesh}
            for p in scene.parts
        ],
        "meshes": [_mesh(mesh) for mesh in scene.meshes],
        "traces": [
            {"body": body, "point": com[body].tolist() if point is None else point}
            for body, point in traces
        ],
        "channels": {name: _array(array) for name, array in channels.items()},
    }


def _mesh(mesh: Mesh) -> dict[str, Any]:
    """Vertices and faces; points that faces share, which many files repeat, are stored once."""
    vertices, index = np.unique(mesh.vertices.astype("<f4"), axis=0, return_inverse=True)
    return {"vertices": _array(vertices), "faces": _array(index.reshape(-1)[mesh.faces], "u4")}


def _array(array: np.ndarray, kind: str = "f4") -> dict[str, Any]:
    """An array as base64 text of little-endian numbers; leading axes along which it is constant,
    frames and environments, become 1.
    """
    array = np.asarray(array, f"<{kind}")
    for axis in range(min(2, array.ndim - 2)):
        first = array.take([0], axis)
        if array.shape[axis] > 1 and np.array_equal(array, np.broadcast_to(first, array.shape)):
            array = first
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"shape": list(array.shape), "type": kind, "data": data}
