"""From links and joints of a file to bodies and joints of a builder.

What is fixed to each other becomes one body. Joints that follow each other without a mass between
them become one joint with the coordinates of all.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import numpy as np

from ..algebra.options import near_matches
from ..algebra.pytree import replace
from ..algebra.spatial import Pose
from ..build.builder import SystemBuilder
from ..build.checks.joints import UNBOUNDED
from ..couplings.compound import Chain, Reversed
from ..couplings.coupling import Coupling
from ..couplings.gimbal import Gimbal
from ..couplings.linear import Slider
from ..couplings.planar import Planar
from ..couplings.rigid import Fixed
from ..couplings.rotary import Hinge, Universal
from ..laws.law import Law
from ..model.system import WORLD
from .errors import Refuse, refusing

# A principal moment counts as 0 below this share of the largest, or this radius of gyration [m].
ZERO_SHARE, ZERO_RADIUS = 1e-14, 1e-6
# What it becomes then, the larger of both.
LEAST_SHARE, LEAST_RADIUS = 1e-6, 1e-3
# Axes are at right angles below this cosine, and in line below this sine.
SQUARE, IN_LINE = 1e-12, 1e-3
IDENTITY = np.eye(3), np.zeros(3)

# Pose of a frame in another: rotation matrix (3, 3) and position (3,).
Frame: TypeAlias = tuple[np.ndarray, np.ndarray]
# Laws for joints of a file, by their names or by patterns of the shell for these.
Laws: TypeAlias = Mapping[str, Law | Iterable[Law]]


@dataclass(eq=False)
class Link:
    """A rigid part of a file. Without mass it only carries frames and shapes.

    com: centre of mass in the link's frame [m]; inertia: about it, axes of the link [kg m²]
    kind: what the file calls it
    """

    name: str
    refuse: Refuse
    mass: float = 0.0
    com: np.ndarray = field(default_factory=lambda: np.zeros(3))
    inertia: np.ndarray = field(default_factory=lambda: np.zeros((3, 3)))
    kind: str = "link"


@dataclass(eq=False)
class Connection:
    """A joint of a file.

    coupling: None for links that are fixed to each other
    frame_D: in the parent link; frame_C: in the child link
    laws: of each coordinate, functions of its number in the builder's joint that make laws
    max_effort: of each coordinate, None for any; q: of each coordinate at the start
    enabled: as in `SystemBuilder.joint`
    """

    name: str
    refuse: Refuse
    parent: str
    child: str
    coupling: Coupling | None
    frame_D: Frame = IDENTITY
    frame_C: Frame = IDENTITY
    laws: list[list[Callable[[int], Law]]] = field(default_factory=list)
    max_effort: list[float | None] = field(default_factory=list)
    q: list[float] = field(default_factory=list)
    enabled: bool | None = None

    @property
    def dof(self) -> int:
        """Number of coordinates."""
        return 0 if self.coupling is None else self.coupling.dof


@dataclass(eq=False)
class _Group:
    """Links that are fixed to each other.

    frames: pose of each link in the frame of the first
    onward: joints that lead on from them
    body: the body that they are, with the pose of the first link in it; None without a mass
    """

    links: list[Link]
    frames: dict[str, Frame]
    onward: list[Connection]
    body: tuple[str, Frame] | None = None

    @property
    def mass(self) -> float:
        """Sum over the links [kg]."""
        return sum(link.mass for link in self.links)

    def frame(self, link: str, frame: Frame) -> Frame:
        """A frame of one of the links, in the body."""
        return product(self.body[1], self.frames[link], frame)


@dataclass(eq=False)
class _Step:
    """A joint that leads on from a group; D: pose of its frame D in the body, or, where the group
    has no mass, in the group's first link.
    """

    group: _Group
    connection: Connection
    D: Frame


@dataclass(eq=False)
class Assembly:
    """What was added to a builder.

    frames: of each link, the body that carries it and its pose there; links without mass between
        joints have none
    coordinates: of each joint of the file that moves, joint of the builder and number there
    dofs: number of coordinates of each joint of the builder
    freedoms: number of coordinates of each joint of the file that moves
    notes: what was changed, a sentence each
    """

    builder: SystemBuilder
    links: dict[str, Link]
    prefix: str
    merge_fixed: bool
    balance_inertia: bool
    frames: dict[str, tuple[str, Frame]] = field(default_factory=dict)
    coordinates: dict[str, tuple[str, int]] = field(default_factory=dict)
    dofs: dict[str, int] = field(default_factory=dict)
    freedoms: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(
        self,
        connections: list[Connection],
        *,
        free: Mapping[str, Frame],
        pose: Frame = IDENTITY,
        loops: Iterable[Connection] = (),
    ) -> None:
        """Add all links and joints.

        free: links without a parent that move freely, with their poses in the world at the start
        pose: of the other links without a parent, which stand in the world
        loops: joints besides, between links that have a place already

        Raises: LoadError for links that hang together in no tree, and for one without mass that
            would have to be a body.
        """
        tree, closing, roots = _spanning_tree(self.links, connections)
        for root in roots:
            with refusing(self.links[root].refuse):
                base = self._base(tree, root, free, pose)
            self._add_from(tree, base)
        for connection in closing:
            self.notes.append(f"joint {connection.name!r}: closes a loop")
        for connection in [*closing, *loops]:
            with refusing(connection.refuse):
                self._add_loop(connection)

    def add_laws(self, laws: Laws, joints: Iterable[str]) -> list[tuple[str, Law]]:
        """Add laws to joints of the file; returns each with the name of its joint.

        laws: a law or several, by the name of a joint or a pattern of the shell for several; its
            coordinate counts within the joint of the file
        joints: names that count, of joints of the file that move

        Raises: ValueError for a name or pattern that fits no joint, and for bad laws.
        """
        if not isinstance(laws, Mapping):
            raise ValueError(
                f"laws {laws!r} must have the names of joints, or patterns for them, such as "
                "laws={'arm_joint*': Servo(100.0, 10.0)}"
            )
        joints, added = list(joints), []
        for pattern, given in laws.items():
            several = isinstance(given, Iterable) and not isinstance(given, str)
            given = tuple(given) if several else (given,)
            for joint in _matching(pattern, joints):
                owner, first = self.coordinates[joint]
                shifted = [_shifted(law, first, joint, self.freedoms[joint]) for law in given]
                self.builder.add_law(owner, shifted)
                added += [(joint, law) for law in given]
        return added

    def starts(self, joints: Iterable[str]) -> dict[str, int]:
        """Where the coordinates of each joint start in those of all, in order."""
        places, total = {}, 0
        for joint in joints:
            places[joint] = total
            total += self.dofs[joint]
        return places

    def _base(
        self, tree: dict[str, list[Connection]], root: str, free: Mapping[str, Frame], pose: Frame
    ) -> _Group:
        """A link without a parent with what is fixed to it, as a free body or in the world."""
        group = self._group(tree, root)
        if root not in free:
            self._put(group, WORLD, pose)
            return group
        if group.mass <= 0:
            raise self.links[root].refuse(
                "has no mass, so it cannot be a free base; give it an inertia, or let it stand in "
                "the world"
            )
        self._add_body(group, free[root])
        return group

    def _add_from(self, tree: dict[str, list[Connection]], base: _Group) -> None:
        """Add what hangs on a group that is a body or stands in the world."""
        waiting = [(base, [step]) for step in _steps(base)]
        while waiting:
            start, path = waiting.pop()
            with refusing(path[-1].connection.refuse):
                waiting += self._add_path(tree, start, path)

    def _add_path(
        self, tree: dict[str, list[Connection]], start: _Group, path: list[_Step]
    ) -> list[tuple[_Group, list[_Step]]]:
        """Add the body at the end of a path and the path as a joint; returns the paths onward."""
        last = path[-1].connection
        group = self._group(tree, last.child)
        if last.coupling is None or group.mass > 0:
            self._add_body(group, None)
            self._add_joint(start, path, group)
            return [(group, [step]) for step in _steps(group)]
        if not group.onward:
            names = ", ".join(repr(step.connection.name) for step in path)
            self.notes.append(f"joint {names}: moves no mass and is fixed where it starts")
            for k, follower in enumerate([*(step.group for step in path[1:]), group]):
                self._put(follower, start.body[0], _at_start(path[: k + 1]))
            return []
        if len(group.onward) == 1:
            onward = group.onward[0]
            D = product(group.frames[onward.parent], onward.frame_D)
            return [(start, [*path, _Step(group, onward, D)])]
        raise group.links[0].refuse(
            f"has no mass and carries {len(group.onward)} joints; give it a mass and an inertia"
        )

    def _group(self, tree: dict[str, list[Connection]], first: str) -> _Group:
        """The links that are fixed to a link, and the joints that lead on.

        Without `merge_fixed`, links are taken in until there is mass, and those without mass.
        """
        group = _Group([self.links[first]], {first: IDENTITY}, [])
        waiting = list(reversed(tree[first]))
        while waiting:
            joint = waiting.pop()
            child = self.links[joint.child]
            merged = self.merge_fixed or group.mass <= 0 or child.mass <= 0
            if joint.coupling is None and merged:
                frame = product(group.frames[joint.parent], joint.frame_D, inverse(joint.frame_C))
                group.frames[joint.child] = frame
                group.links.append(child)
                waiting += reversed(tree[joint.child])
            else:
                group.onward.append(joint)
        return group

    def _add_body(self, group: _Group, pose: Frame | None) -> None:
        with refusing(group.links[0].refuse):
            self._declare_body(group, pose)
        self._put(group, self.prefix + group.links[0].name, IDENTITY)

    def _declare_body(self, group: _Group, pose: Frame | None) -> None:
        first = group.links[0]
        mass, com, inertia = _together(group)
        raised = _positive(inertia, mass)
        if raised is not inertia:
            shown = [float(f"{x:.3g}") for x in np.linalg.eigvalsh(inertia)]
            lifted = [float(f"{x:.3g}") for x in np.linalg.eigvalsh(raised)]
            self.notes.append(f"{first.kind} {first.name!r}: principal moments {shown} -> {lifted}")
        moments = np.linalg.eigvalsh(raised)
        if moments[2] > (moments[0] + moments[1]) * (1 + 1e-9) and not self.balance_inertia:
            self.notes.append(
                f"{first.kind} {first.name!r}: no rigid body has the principal moments "
                f"{[float(f'{x:.3g}') for x in moments]}; kept as they are"
            )
        self.builder.body(
            self.prefix + first.name,
            mass=mass,
            com=com,
            inertia=raised,
            pose=None if pose is None else (pose[1], pose[0]),
            balance_inertia=self.balance_inertia,
            allow_unphysical=True,
        )

    def _put(self, group: _Group, body: str, frame: Frame) -> None:
        """Say which body carries the links of a group; frame: that of the first link in it."""
        group.body = body, frame
        for link, within in group.frames.items():
            rotation, position = product(frame, within)
            self.frames[link] = body, (position, rotation)

    def _add_joint(self, start: _Group, path: list[_Step], group: _Group) -> None:
        """Join two bodies by the joints of a path; those of several become one."""
        connections = [step.connection for step in path]
        name = "+".join(connection.name for connection in connections)
        couplings = [Fixed() if c.coupling is None else c.coupling for c in connections]
        between = [
            product(inverse(one.frame_C), step.D)
            for one, step in zip(connections[:-1], path[1:], strict=True)
        ]
        D, C = path[0].D, connections[-1].frame_C
        plane = _plane(couplings, between)
        if plane is not None:
            order, frame = plane
            coupling, connections = Planar(), [connections[i] for i in order]
            D, C = product(D, frame), product(C, (frame[0], np.zeros(3)))
        else:
            coupling, frame = _in_a_row(couplings, between)
            D, C = product(D, frame), product(C, frame)
        self._declare(name, coupling, connections, start.body[0], group.body[0], D, C)

    def _add_loop(self, connection: Connection) -> None:
        (parent, (p, R)), (child, (x, Q)) = (
            self._carrier(connection, link) for link in (connection.parent, connection.child)
        )
        coupling = Fixed() if connection.coupling is None else connection.coupling
        D, C = product((R, p), connection.frame_D), product((Q, x), connection.frame_C)
        if child == WORLD:
            coupling, parent, child, D, C = Reversed(coupling), child, parent, C, D
        self._declare(connection.name, coupling, [connection], parent, child, D, C, placed=False)

    def _carrier(self, connection: Connection, link: str) -> tuple[str, tuple]:
        if link not in self.frames:
            raise connection.refuse(f"closes a loop at {link!r}, which has no mass; give it one")
        return self.frames[link]

    def _declare(self, name, coupling, connections, parent, child, D, C, *, placed=True) -> None:
        laws, efforts, q = [], [], []
        for connection in connections:
            for i in range(connection.dof):
                laws += [make(len(q)) for make in connection.laws[i]]
                efforts.append(connection.max_effort[i])
                q.append(connection.q[i])
            if connection.dof:
                self.coordinates[connection.name] = self.prefix + name, len(q) - connection.dof
                self.freedoms[connection.name] = connection.dof
        self.dofs[self.prefix + name] = len(q)
        limited = any(effort is not None for effort in efforts)
        self.builder.joint(
            self.prefix + name,
            coupling,
            child=child,
            parent=parent,
            frame_C=(C[1], C[0]),
            frame_D=(D[1], D[0]),
            laws=laws,
            max_effort=[UNBOUNDED if e is None else e for e in efforts] if limited else None,
            q=q if q and placed else None,
            enabled=connections[-1].enabled,
        )


def _matching(pattern: str, joints: list[str]) -> list[str]:
    """The joints that a name or a pattern means; ValueError, with near names, for none."""
    if pattern in joints:
        return [pattern]
    found = [joint for joint in joints if fnmatchcase(joint, str(pattern))]
    if not found:
        hint = near_matches(pattern, joints)
        raise ValueError(f"laws: {pattern!r} matches no joint of the file that moves; {hint}")
    return found


def _shifted(law: Any, first: int, joint: str, dof: int) -> Any:
    """A law on a joint of the file as one on the builder's joint, which has its coordinates from
    `first` on; what is no law as it is.
    """
    if not isinstance(law, Law):
        return law
    places = {}
    for name in ("coordinate", "normal", "across"):
        place = getattr(law, name)
        if place is None:
            continue
        if not 0 <= place < dof:
            raise ValueError(
                f"laws: joint {joint!r} has {dof} coordinates, numbered from 0; {name} {place} of "
                f"its {type(law).__name__} is none of them"
            )
        if first:
            places[name] = place + first
    return replace(law, **places) if places else law


def product(*frames: Frame) -> Frame:
    """The first frame times the second, and so on: T_AB, T_BC, … give T_AC …."""
    R, p = IDENTITY
    for Q, x in frames:
        R, p = R @ Q, R @ x + p
    return R, p


def inverse(frame: Frame) -> Frame:
    """T_BA from T_AB."""
    R, p = frame
    return R.T, -R.T @ p


def _in_a_row(couplings: list[Coupling], between: list[Frame]) -> tuple[Coupling, Frame]:
    """One coupling with the coordinates of all, and its frames C and D in those of the joints.

    between: the pose of the D of each coupling in the C of the one before
    """
    hinges = all(type(coupling) is Hinge for coupling in couplings)
    if hinges and between and all(_same(pose) for pose in between):
        axes = [np.asarray(c.axis, float) / np.linalg.norm(c.axis) for c in couplings]
        normal = np.cross(*axes[:2])
        if len(axes) == 2 and np.linalg.norm(normal) > IN_LINE:
            return Universal(*(tuple(axis) for axis in axes)), IDENTITY
        if len(axes) == 3 and np.abs(axes @ np.transpose(axes) - np.eye(3)).max() < SQUARE:
            # The first axis is x; the second is y where all three are right-handed, else z.
            first, second, third = axes
            if third @ normal > 0:
                return Gimbal("XYZ"), (np.column_stack([first, second, third]), np.zeros(3))
            return Gimbal("XZY"), (np.column_stack([first, third, second]), np.zeros(3))
    coupling = couplings[-1]
    for first, pose in zip(reversed(couplings[:-1]), reversed(between), strict=True):
        coupling = Chain(first, coupling, None if _same(pose) else _pose(pose))
    return coupling, IDENTITY


def _plane(couplings: list[Coupling], between: list[Frame]) -> tuple[list[int], Frame] | None:
    """Two slides at right angles and a hinge about their normal as a `Planar`; None for others.

    Returns: the joints in the order of its coordinates, and its D in the D of the first joint
    """
    if [type(coupling) for coupling in couplings] != [Slider, Slider, Hinge]:
        return None
    axes = np.array([c.axis / np.linalg.norm(c.axis) for c in couplings], float)
    square = np.abs(axes @ axes.T - np.eye(3)).max() < SQUARE
    if not square or not all(np.array_equal(R, np.eye(3)) for R, _ in between):
        return None
    order = [0, 1, 2] if np.linalg.det(axes) > 0 else [1, 0, 2]
    # Displacements commute, so those between the joints may come first.
    return order, (axes[order].T, sum(p for _, p in between))


def _same(frame: Frame) -> bool:
    return np.array_equal(frame[0], IDENTITY[0]) and not frame[1].any()


def _pose(frame: Frame) -> Pose:
    return Pose.from_matrix(np.asarray(frame[0]), np.asarray(frame[1]))


def _steps(group: _Group) -> list[_Step]:
    """The joints that lead on from a group that is a body, the first last."""
    steps = [_Step(group, c, group.frame(c.parent, c.frame_D)) for c in group.onward]
    return steps[::-1]


def _at_start(path: list[_Step]) -> Frame:
    """Pose of the last joint's child in the body of the first, where the coordinates start."""
    total = IDENTITY
    for step in path:
        connection, coupling = step.connection, step.connection.coupling
        T = coupling.pose(np.array(connection.q, float)) if coupling.dof else Pose.identity()
        moved = np.asarray(T.R, float), np.asarray(T.p, float)
        total = product(total, step.D, moved, inverse(connection.frame_C))
    return total


def _together(group: _Group) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, centre of mass and inertia about it of a group, in the frame of its first link."""
    mass = group.mass
    frames = [group.frames[link.name] for link in group.links]
    centres = [R @ link.com + p for link, (R, p) in zip(group.links, frames, strict=True)]
    com = sum(link.mass * c for link, c in zip(group.links, centres, strict=True)) / mass
    total = np.zeros((3, 3))
    for link, centre, (R, _) in zip(group.links, centres, frames, strict=True):
        arm = centre - com
        total += R @ link.inertia @ R.T
        total += link.mass * (arm @ arm * np.eye(3) - np.outer(arm, arm))
    return mass, com, total


def _positive(inertia: np.ndarray, mass: float) -> np.ndarray:
    """An inertia as it is where it is positive definite, otherwise with raised moments."""
    moments, axes = np.linalg.eigh(inertia)
    if moments[0] > max(ZERO_SHARE * moments[2], mass * ZERO_RADIUS**2):
        return inertia
    least = max(LEAST_SHARE * moments[2], mass * LEAST_RADIUS**2)
    return axes * np.maximum(moments, least) @ axes.T


def _spanning_tree(
    links: dict[str, Link], connections: list[Connection]
) -> tuple[dict[str, list[Connection]], list[Connection], list[str]]:
    """Of each link the joints that lead on, the joints that close loops, links without a parent."""
    tree: dict[str, list[Connection]] = {name: [] for name in links}
    loops, led = [], set()
    for connection in connections:
        if connection.child in led:
            loops.append(connection)
        else:
            led.add(connection.child)
            tree[connection.parent].append(connection)
    roots = [name for name in links if name not in led]
    seen, waiting = set(roots), list(roots)
    while waiting:
        for connection in tree[waiting.pop()]:
            seen.add(connection.child)
            waiting.append(connection.child)
    for name, link in links.items():
        if name not in seen:
            raise link.refuse("its joints lead in a circle; one link must have no parent")
    return tree, loops, roots
