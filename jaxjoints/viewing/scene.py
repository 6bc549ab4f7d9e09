"""Scene: the shapes that a viewer draws on bodies, and how large what it draws is."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from ..algebra.options import brief, check_kind, near_matches
from ..couplings import shapes
from ..couplings.contact import Contact
from ..model.measures import coordinate_limits
from ..model.system import WORLD, WORLD_INDEX
from ..models.geometry import (
    Box,
    Capsule,
    Cylinder,
    Mesh,
    Plane,
    Sphere,
    Visual,
    height_mesh,
)
from ..models.model import Model
from .motion import Motion

# Of bodies without colours of their own, in turn.
PALETTE = tuple(
    tuple(int(code[i : i + 2], 16) / 255 for i in (0, 2, 4)) + (1.0,)
    for code in "4e7fae d99a4e 6fa67a bf6f78 8474ad 4fa3a3 ad9650 94a3b8".split()
)
GROUND = (0.82, 0.84, 0.87, 1.0)
# Radius of the rods from joints to a centre of mass, as a share of the size of bodies.
ROD = 0.05
# Of frames, spread over the motion, that bounds are taken from.
SAMPLES = 60
# How many times its size at the start the motion may take up before the camera follows it.
WIDEST = 2.5
Corners = tuple[np.ndarray, np.ndarray]  # lower and upper one of a box, shape (3,) each
# Cosine of the angle between a plane's normal and `up` from which on the plane is level.
LEVEL = 0.999


@dataclass(frozen=True, eq=False)
class Part:
    """A shape on a body, as the page draws it.

    kind: "box", "sphere", "cylinder" (about z), "plane" or "mesh", each of unit size: edges,
        diameter, diameter and length of 1; a mesh has the size of its vertices, a plane no end
    layer: what it belongs to: "geometry", "skeleton" or "inertia"
    body: index, or -1 for the world
    frame: position and quaternion (w first) in the body frame, shape (E or 1, 7)
    size: by which the unit shape is scaled along its axes [m], shape (E or 1, 3)
    color: red, green, blue, opacity
    mesh: index of the mesh in `Scene.meshes`, or -1
    """

    kind: str
    layer: str
    body: int
    frame: np.ndarray
    size: np.ndarray
    color: tuple[float, float, float, float]
    mesh: int = -1


@dataclass(frozen=True, eq=False)
class Joint:
    """What the page says and draws of a joint.

    name, type: of the joint and of its coupling; child, parent: body indices, -1 for the world
    frame_C, frame_D: in the body frames, shape (E or 1, 7)
    start: index of its first coordinate; dof: how many it has
    """

    name: str
    type: str
    child: int
    parent: int
    frame_C: np.ndarray
    frame_D: np.ndarray
    start: int
    dof: int


@dataclass(frozen=True, eq=False)
class Scene:
    """Shapes, joints and sizes of what is drawn.

    parts, meshes, joints: what is drawn
    com: centres of mass in the body frames [m], (E or 1, bodies, 3)
    limits: lower and upper bound of each coordinate, ∓inf where there is none, (E or 1, k, 2)
    up: unit vector against gravity, z without gravity, shape (3,)
    box: lower and upper corner of a box about what moves, shape (2, 3)
    radius: half the diagonal of that box [m]
    ground: height of the ground along `up` [m]
    size: median of how far the bodies reach, by joints and shapes [m]
    follow: index of the body that the camera follows, -1 for none: the first if the motion goes
        far; the box then holds what moves about this body, where the body starts
    drawn: whether the bodies have geometry to be drawn; else their joints and inertia stand for it
    """

    parts: tuple[Part, ...]
    meshes: tuple[Mesh, ...]
    joints: tuple[Joint, ...]
    com: np.ndarray
    limits: np.ndarray
    up: np.ndarray
    box: np.ndarray
    radius: float
    ground: float
    size: float
    follow: int
    drawn: bool


def read_scene(motion: Motion, visuals: Model | Iterable[Visual] = ()) -> Scene:
    """Shapes of the visuals, or of those of a model, and the contact shapes of bodies without one.
    Rods go from joints to centres of mass. If no body has a visual, the rods are part of the
    bodies, and so is the inertia of those without contact shapes: a foot is not the whole robot.

    Raises: ValueError for a visual on an unknown body or of an unknown shape.
    """
    visuals = visuals.visuals if isinstance(visuals, Model) else visuals
    if isinstance(visuals, str) or not isinstance(visuals, Iterable):
        raise ValueError(f"visuals {brief(visuals)} must be a Model, as of load_urdf, or Visuals")
    visuals = tuple(visuals)
    for visual in visuals:
        check_kind("visuals:", "each", visual, Visual, "those of model.visuals")
    system = motion.system
    joints = _joints(motion)
    com = _tail_first(system.com, 2)
    up, meshes = _up(system), []
    visuals, level = _without_floor(visuals, up)
    parts = [part for visual in visuals for part in _part(visual, system, meshes)]
    seen = {part.body for part in parts}
    parts += [part for part in _touching(system, meshes) if part.body not in seen]
    reaches = _reaches(motion, joints, com, parts, meshes)
    size = float(np.median(reaches[reaches > 0])) if (reaches > 0).any() else 1.0
    with_geometry = {part.body for part in parts}
    touching = bool(with_geometry - {WORLD_INDEX}) and not seen - {WORLD_INDEX}
    ends = _ends(joints) + (_middles(parts, com) if touching else [])
    parts += _skeleton(ends, com, size)
    parts += _inertia(motion, com)
    if touching:
        parts = [_as_geometry(part, with_geometry) for part in parts]
        with_geometry = {part.body for part in parts}
    (lower, upper), low, first, followed = _bounds(motion, parts, meshes, with_geometry, up)
    goes_far = np.linalg.norm(upper - lower) > WIDEST * np.linalg.norm(first[1] - first[0])
    if goes_far:
        lower, upper = followed
    radius = max(float(np.linalg.norm(upper - lower)) / 2, size)
    return Scene(
        parts=tuple(parts),
        meshes=tuple(meshes),
        joints=joints,
        com=com,
        limits=coordinate_limits(system),
        up=up,
        box=np.stack([lower, upper]),
        radius=radius,
        ground=_ground(system, low, radius) if level is None else level,
        size=size,
        follow=0 if goes_far else -1,
        drawn=bool(with_geometry - {WORLD_INDEX}),
    )


def _tail_first(array: Any, rank: int) -> np.ndarray:
    """A leaf (components, items[, E]) as an array (E or 1, items, components)."""
    array = np.asarray(array, float)
    if array.ndim == rank:
        array = array[..., None]
    return np.moveaxis(array, (-1, -2), (0, 1))


def _joints(motion: Motion) -> tuple[Joint, ...]:
    system, found = motion.system, {}
    for group in system.groups:
        frames = [
            np.concatenate([_tail_first(frame.p, 2), _tail_first(frame.q, 2)], axis=-1)
            for frame in (group.frame_C, group.frame_D)
        ]
        for i, j in enumerate(group.joints):
            found[j] = Joint(
                name=system.topology.joints[j],
                type=type(group.coupling).__name__,
                child=group.child[i],
                parent=group.parent[i],
                frame_C=frames[0][:, i],
                frame_D=frames[1][:, i],
                start=group.start[i],
                dof=group.coupling.dof,
            )
    return tuple(found[j] for j in sorted(found))


def _ends(joints: tuple[Joint, ...]) -> list[tuple[int, np.ndarray]]:
    """Body and position in it, (E or 1, 3), of both frames of each joint."""
    ends = []
    for joint in joints:
        # A free joint's D says nothing of the body that it stands on.
        sides = [(joint.child, joint.frame_C), (joint.parent, joint.frame_D)]
        ends += [(b, frame[:, :3]) for b, frame in sides if b >= 0 and joint.dof < 6]
    return ends


def _middles(parts: list[Part], com: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Body and position in it, (E or 1, 3), of the shapes of bodies whose centre of mass lies
    beyond all of them, as that of a leg that touches with its foot alone.
    """
    middles, around = [], {part.body for part in parts if part.kind == "mesh"}
    for part in parts:
        if part.kind in ("plane", "mesh") or part.body < 0:
            continue
        middles.append((part.body, part.frame[:, :3]))
        way = part.frame[:, :3] - com[:, part.body]
        if (np.linalg.norm(way, axis=-1) < np.linalg.norm(part.size, axis=-1) / 2).any():
            around.add(part.body)
    return [one for one in middles if one[0] not in around]


def _as_geometry(part: Part, with_geometry: set[int]) -> Part:
    """Rods, and the inertia of bodies without geometry, as what these bodies look like."""
    stands = part.layer == "inertia" and part.body not in with_geometry
    return replace(part, layer="geometry") if stands or part.layer == "skeleton" else part


def _reaches(
    motion: Motion,
    joints: tuple[Joint, ...],
    com: np.ndarray,
    parts: list[Part],
    meshes: list[Mesh],
) -> np.ndarray:
    """How large each body is: the farthest of its joints from its centre of mass, half the diagonal
    of its largest part, or where it has neither half the longest edge of its inertia.
    """
    reaches = np.zeros(com.shape[1])
    for body, point in _ends(joints):
        way = np.linalg.norm(point - com[:, body], axis=-1).max()
        reaches[body] = max(reaches[body], way)
    for part in parts:
        if part.body >= 0 and part.kind != "plane":
            half = np.linalg.norm(_half(part, meshes)[1], axis=-1).max()
            reaches[part.body] = max(reaches[part.body], half)
    for body, (_, half) in _boxes(motion.system).items():
        reaches[body] = reaches[body] or half.max()
    return reaches


def _half(part: Part, meshes: list[Mesh]) -> tuple[np.ndarray, np.ndarray]:
    """Centre (3,) and half edges (E or 1, 3) of the box about a part, in its frame."""
    if part.kind != "mesh" or not len(meshes[part.mesh].vertices):
        return np.zeros(3), part.size / 2
    lower, upper = meshes[part.mesh].vertices.min(0), meshes[part.mesh].vertices.max(0)
    return (lower + upper) / 2, (upper - lower)[None] / 2


def _boxes(system: Any) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """For each moving body the axes, as a quaternion (E or 1, 4), and the half edges [m],
    (E or 1, 3), of the uniform box that has its mass and inertia.
    """
    inertia, mass = np.asarray(system.inertia, float), np.asarray(system.mass, float)
    inertia = np.moveaxis(inertia[..., None] if inertia.ndim == 3 else inertia, (-1, -2), (0, 1))
    mass = np.atleast_2d(mass.T)
    boxes = {}
    for body, moves in enumerate(system.topology.moving):
        tensor, m = inertia[:, body], mass[:, body]
        if moves and np.isfinite(tensor).all() and (m > 0).all():
            moments, axes = np.linalg.eigh(tensor)
            axes[np.linalg.det(axes) < 0, :, 0] *= -1
            # Edges a² = 6 (I_b + I_c - I_a) / m; rounding may leave less than 0.
            squares = 6 * (moments.sum(-1, keepdims=True) - 2 * moments) / m[:, None]
            half = np.sqrt(np.maximum(squares, 0.0)) / 2
            boxes[body] = np.stack([_quaternion(R) for R in axes]), half
    return boxes


def _quaternion(R: np.ndarray) -> np.ndarray:
    """Unit quaternion, w first, of a rotation matrix (3, 3)."""
    # The largest of the four squares keeps the division away from 0.
    squares = 1 + np.array([1, 1, 1]) @ R.diagonal(), *(1 + 2 * R.diagonal() - np.trace(R))
    i = int(np.argmax(squares))
    off = R - R.T
    spin = np.array([off[2, 1], off[0, 2], off[1, 0]])
    if i == 0:
        q = np.array([squares[0], *spin])
    else:
        a = i - 1
        q = np.array([spin[a], *(R[a] + R[:, a])])
        q[1 + a] = squares[i]
    return q / np.linalg.norm(q)


def _along(direction: np.ndarray) -> np.ndarray:
    """Quaternion that takes z to a direction, shape (3,)."""
    z = direction / np.linalg.norm(direction)
    x = np.eye(3)[np.argmin(np.abs(z))]
    y = np.cross(z, x)
    y /= np.linalg.norm(y)
    return _quaternion(np.stack([np.cross(y, z), y, z], axis=1))


def _part(visual: Visual, system: Any, meshes: list[Mesh]) -> list[Part]:
    """A visual as parts; its mesh is appended to the meshes, each once."""
    if visual.body == WORLD:
        body = WORLD_INDEX
    elif visual.body in system.topology.body_index:
        body = system.body(visual.body)
    else:
        hint = near_matches(visual.body, system.topology.bodies)
        raise ValueError(f"visuals: there is no body {visual.body!r}; {hint}")
    rotation, position = visual.frame
    q = _quaternion(np.asarray(rotation, float))

    def part(kind, size, offset=0.0, mesh=-1):
        place = np.asarray(position, float) + offset * np.asarray(rotation)[:, 2]
        frame, size = np.concatenate([place, q])[None], np.array(size, float)[None]
        return Part(kind, "geometry", body, frame, size, tuple(visual.color), mesh)

    shape = visual.shape
    if isinstance(shape, Box):
        return [part("box", shape.size)]
    if isinstance(shape, Sphere):
        return [part("sphere", [2 * shape.radius] * 3)]
    if isinstance(shape, Cylinder):
        return [part("cylinder", [2 * shape.radius] * 2 + [shape.length])]
    if isinstance(shape, Capsule):
        ends = [part("sphere", [2 * shape.radius] * 3, side * shape.length / 2) for side in (-1, 1)]
        return [part("cylinder", [2 * shape.radius] * 2 + [shape.length]), *ends]
    if isinstance(shape, Plane):
        return [part("plane", [1.0, 1.0, 1.0])]
    if isinstance(shape, Mesh):
        known = [i for i, mesh in enumerate(meshes) if mesh is shape]
        if not known:
            meshes.append(shape)
        return [part("mesh", [1.0] * 3, mesh=known[0] if known else len(meshes) - 1)]
    raise ValueError(f"visuals: {type(shape).__name__} of body {visual.body!r} is no known shape")


def _without_floor(visuals: Iterable[Visual], up: np.ndarray) -> tuple[list[Visual], float | None]:
    """The visuals without level planes of the world, and the height of the highest of these, which
    is drawn as the ground; None without one.
    """
    kept, heights = [], []
    for visual in visuals:
        rotation, position = (np.asarray(x, float) for x in visual.frame)
        plane = isinstance(visual.shape, Plane) and visual.body == WORLD
        if plane and rotation[:, 2] @ up > LEVEL:
            heights.append(float(position @ up))
        else:
            kept.append(visual)
    return kept, max(heights, default=None)


def _touching(system: Any, meshes: list[Mesh]) -> list[Part]:
    """Shapes that take part in contacts; their meshes are appended to the meshes."""
    parts, seen = [], set()
    corners: dict[tuple[str, int], list[np.ndarray]] = {}
    ends: dict[tuple[str, int], list[Part]] = {}
    for group in system.contacts:
        if not isinstance(group.geometry, Contact):
            continue
        for field, frame, bodies in (
            ("shape_C", group.frame_C, group.child),
            ("shape_D", group.frame_D, group.parent),
        ):
            shape = getattr(group.geometry, field)
            frames = np.concatenate([_tail_first(frame.p, 2), _tail_first(frame.q, 2)], -1)
            for i, body in enumerate(bodies):
                name = system.topology.contacts[group.members[i]].rpartition("/")[0]
                if isinstance(shape, shapes.Point):
                    corners.setdefault((name, body), []).append(frames[0, i, :3])
                for piece in _pieces(shape, i, meshes):
                    place = _shifted(frames[:, i], piece.offset)
                    look = piece.size, _color(body), piece.mesh
                    part = Part(piece.kind, "geometry", body, place, *look)
                    # Several contacts of one shape, a point each, are drawn once.
                    key = body, part.kind, part.mesh, part.frame.tobytes(), part.size.tobytes()
                    parts += [] if key in seen else [part]
                    seen.add(key)
                    if isinstance(shape, shapes.Sphere):
                        ends.setdefault((name, body), []).append(part)
    # Two balls of one contact are the ends of a capsule.
    for (name, body), balls in ends.items():
        if name and len(balls) == 2:
            way = balls[1].frame[:, :3] - balls[0].frame[:, :3]
            turn = np.stack([_along(w) for w in way])
            place = np.concatenate([balls[0].frame[:, :3] + way / 2, turn], axis=-1)
            length = np.linalg.norm(way, axis=-1, keepdims=True)
            width, length = np.broadcast_arrays(balls[0].size, length)
            size = np.concatenate([width[:, :2], length[:, :1]], axis=-1)
            parts.append(Part("cylinder", "geometry", body, place, size, _color(body)))
    # Points of one contact are corners of a box or a mesh, if they span a volume.
    for (_, body), points in corners.items():
        mesh = _hull_mesh(np.array(points))
        if mesh is not None:
            frame = np.array([[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]])
            at = _known(mesh, meshes)
            parts.append(Part("mesh", "geometry", body, frame, np.ones((1, 3)), _color(body), at))
    return parts


@dataclass(frozen=True, eq=False)
class _Piece:
    """One of the parts that a shape is drawn of: kind, size and mesh as in `Part`, and where it is
    along z of the shape [m], shape (E or 1,).
    """

    kind: str
    size: np.ndarray
    offset: np.ndarray
    mesh: int = -1


def _pieces(shape: Any, i: int, meshes: list[Mesh]) -> list[_Piece]:
    """What contact i of a group draws of its shape, whose leaves are those of all contacts."""

    def number(x):
        return _tail_first(np.asarray(x)[None], 2)[:, i, 0]

    def of_mesh(mesh):
        none = np.zeros(1)
        return [] if mesh is None else [_Piece("mesh", np.ones((1, 3)), none, _known(mesh, meshes))]

    if isinstance(shape, shapes.Box):
        size = _tail_first(shape.size, 2)[:, i]
        return [_Piece("box", size, np.zeros(len(size)))]
    if isinstance(shape, shapes.ConvexMesh):
        return of_mesh(_hull_mesh(_first(shape.vertices, 3)[..., i]))
    if isinstance(shape, shapes.HeightField):
        return of_mesh(height_mesh(_first(shape.heights, 3)[..., i], _first(shape.size, 2)[..., i]))
    if not isinstance(shape, shapes.Sphere | shapes.Capsule | shapes.Cylinder):
        return []
    width = 2 * number(shape.radius)[:, None] * np.ones(3)
    if isinstance(shape, shapes.Sphere):
        return [_Piece("sphere", width, np.zeros(len(width)))]
    length = number(shape.length)
    width, length = np.broadcast_arrays(width, length[:, None])
    tube = np.concatenate([width[:, :2], length[:, :1]], axis=-1)
    pieces = [_Piece("cylinder", tube, np.zeros(len(tube)))]
    if isinstance(shape, shapes.Capsule):
        pieces += [_Piece("sphere", width, side * length[:, 0] / 2) for side in (-1, 1)]
    return pieces


def _first(leaf: Any, rank: int) -> np.ndarray:
    """A leaf as it is in the first environment; rank: without batch axes."""
    leaf = np.asarray(leaf, float)
    return leaf if leaf.ndim == rank else leaf[..., 0]


def _shifted(frame: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Frames (E or 1, 7) moved by an offset [m], (E or 1,), along their z axes."""
    frame = np.repeat(frame, max(len(offset) // len(frame), 1), axis=0)
    z = _rotated(frame[:, 3:], np.array([0.0, 0.0, 1.0]))
    return np.concatenate([frame[:, :3] + offset[:, None] * z, frame[:, 3:]], axis=-1)


def _color(body: int) -> tuple[float, float, float, float]:
    """Of a body by its index, -1 for the world."""
    return GROUND if body < 0 else PALETTE[body % len(PALETTE)]


def _known(mesh: Mesh, meshes: list[Mesh]) -> int:
    """Index of a mesh, which is appended to the meshes where none is like it."""
    for i, other in enumerate(meshes):
        if np.array_equal(other.vertices, mesh.vertices):
            if np.array_equal(other.faces, mesh.faces):
                return i
    meshes.append(mesh)
    return len(meshes) - 1


def _hull_mesh(points: np.ndarray) -> Mesh | None:
    """The convex hull of points (n, 3) as a mesh; None where they span no volume."""
    try:
        found = ConvexHull(points)
    except (QhullError, ValueError):
        return None
    corners = points[found.simplices]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    outwards = (normals * found.equations[:, :3]).sum(axis=1) > 0
    faces = np.where(outwards[:, None], found.simplices, found.simplices[:, ::-1])
    return Mesh(points, faces)


def _skeleton(ends: list[tuple[int, np.ndarray]], com: np.ndarray, size: float) -> list[Part]:
    """Rods from points of bodies to their centres of mass, with a ball there."""
    parts, width = [], 2 * ROD * size
    for body, point in ends:
        start, end = np.broadcast_arrays(point, com[:, body])
        ways = end - start
        lengths = np.linalg.norm(ways, axis=-1)
        color = PALETTE[body % len(PALETTE)]
        if lengths.max() < 1e-3 * size:
            continue
        # A rod of no length may stand along any axis.
        turns = [_along(w if n > 0 else np.eye(3)[2]) for w, n in zip(ways, lengths, strict=True)]
        frame = np.concatenate([(start + end) / 2, np.stack(turns)], axis=-1)
        thick = np.full((len(ways), 2), width)
        scale = np.concatenate([thick, lengths[:, None]], axis=-1)
        parts.append(Part("cylinder", "skeleton", body, frame, scale, color))
    for body in sorted({part.body for part in parts}):
        frame = np.concatenate([com[:, body], np.eye(4)[:1].repeat(len(com), 0)], axis=-1)
        ball = np.full((len(com), 3), 1.6 * width)
        parts.append(Part("sphere", "skeleton", body, frame, ball, PALETTE[body % len(PALETTE)]))
    return parts


def _inertia(motion: Motion, com: np.ndarray) -> list[Part]:
    """The uniform box with the mass and inertia of each moving body."""
    parts = []
    for body, (q, half) in _boxes(motion.system).items():
        place, q, half = (
            np.broadcast_to(x, (max(len(q), len(com)), x.shape[-1]))
            for x in (com[:, body], q, half)
        )
        color = (*PALETTE[body % len(PALETTE)][:3], 0.35)
        frame = np.concatenate([place, q], axis=-1)
        parts.append(Part("box", "inertia", body, frame, 2 * half, color))
    return parts


def _up(system: Any) -> np.ndarray:
    gravity = np.asarray(system.gravity, float)
    gravity = gravity[:, 0] if gravity.ndim > 1 else gravity
    size = np.linalg.norm(gravity)
    return -gravity / size if size > 0 else np.array([0.0, 0.0, 1.0])


def _bounds(
    motion: Motion, parts: list[Part], meshes: list[Mesh], with_geometry: set[int], up: np.ndarray
) -> tuple[Corners, float, Corners, Corners]:
    """Corners of a box about all parts in a sample of frames, the least height along `up`, the
    corners at the first frame, and those about the parts as seen from the first body, where that
    body starts.

    with_geometry: bodies whose geometry alone counts
    """
    every = np.unique(np.linspace(0, len(motion.time) - 1, SAMPLES).round().astype(int))
    poses = motion.poses[every]
    lowers, uppers, heights = [], [], []
    counted = [
        part
        for part in parts
        if part.kind != "plane" and (part.layer == "geometry" or part.body not in with_geometry)
    ]
    for part in counted:
        middle, half = _half(part, meshes)
        local = part.frame[:, :3] + _rotated(part.frame[:, 3:], middle)
        if part.body < 0:
            place, turn = local, part.frame[:, 3:]
            place, turn = (
                np.broadcast_to(x, (*poses.shape[:2], x.shape[-1])) for x in (place, turn)
            )
        else:
            pose = poses[:, :, part.body]
            place = pose[..., :3] + _rotated(pose[..., 3:], local)
            turn = _product(pose[..., 3:], part.frame[:, 3:])
        axes = np.stack([_rotated(turn, e) for e in np.eye(3)], axis=-1)
        reach = (np.abs(axes) @ half[..., None])[..., 0]
        lowers.append(place - reach)
        uppers.append(place + reach)
        high = (np.abs(np.einsum("i,...ij->...j", up, axes)) * half).sum(-1)
        heights.append((place @ up - high).min())
    if not lowers:
        place = poses[..., :3]
        lowers, uppers = [place.min(2) - 0.5], [place.max(2) + 0.5]
        heights = [(place @ up).min()]
    lower, upper = np.stack(lowers), np.stack(uppers)
    way = poses[:, :, 0, :3] - poses[:1, :, 0, :3]

    def corners(lower, upper):
        return lower.min((0, 1, 2)), upper.max((0, 1, 2))

    moves = [i for i, part in enumerate(counted) if part.body >= 0]
    followed = corners(lower[moves] - way, upper[moves] - way) if moves else corners(lower, upper)
    first = corners(lower[:, :1], upper[:, :1])
    return corners(lower, upper), float(min(heights)), first, followed


def _ground(system: Any, low: float, radius: float) -> float:
    """Height of a half-space of the world that bodies touch, if one is level; else 0, or what lies
    below all bodies.
    """
    up = _up(system)
    for group in system.contacts:
        if not isinstance(group.geometry, Contact):
            continue
        level = isinstance(group.geometry.shape_D, shapes.HalfSpace)
        if not level or WORLD_INDEX not in group.parent:
            continue
        i = group.parent.index(WORLD_INDEX)
        frame = _tail_first(group.frame_D.p, 2)[0, i], _tail_first(group.frame_D.q, 2)[0, i]
        if _rotated(frame[1], np.array([0.0, 0.0, 1.0])) @ up > LEVEL:
            return float(frame[0] @ up)
    return 0.0 if low > -0.02 * radius else low - 0.05 * radius


def _rotated(q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Vectors (…, 3) turned by unit quaternions (…, 4)."""
    w, u = q[..., :1], q[..., 1:]
    t = 2 * np.cross(u, v)
    return v + w * t + np.cross(u, t)


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Products of quaternions (…, 4)."""
    w = a[..., :1] * b[..., :1] - (a[..., 1:] * b[..., 1:]).sum(-1, keepdims=True)
    v = a[..., :1] * b[..., 1:] + b[..., :1] * a[..., 1:] + np.cross(a[..., 1:], b[..., 1:])
    return np.concatenate([w, v], axis=-1)
