"""`SystemBuilder.contact`: where two shapes may touch, one contact for each possible point."""

from typing import Any

from ..algebra.calls import public
from ..algebra.compiler import is_traced, quickly
from ..algebra.spatial import Pose
from ..couplings.contact import DIRECTIONS, NORMAL, Contact, ContactGeometry, ContactPoint
from ..couplings.shapes import Shape, candidates, no_gap_function
from ..laws.contact import ContactPyramid, contact_laws
from ..model.system import WORLD
from .checks.joints import check_ends, read_switch, warn_of_mass_ratio
from .checks.laws import read_laws
from .checks.values import float_leaves, precision, read_pose
from .specs import ContactSpec


@public(name="contact")
def add_contact(
    self: Any,
    name: str,
    shape_C: Shape | ContactPoint,
    shape_D: Shape | None = None,
    *,
    child: str,
    parent: str = WORLD,
    frame_C: Any = None,
    frame_D: Any = None,
    laws: Any = None,
    enabled: bool | None = None,
    allow_active: bool = False,
    **surface: Any,
) -> tuple[str, ...]:
    """Let the shapes of two bodies touch; returns the names of the contacts that this adds.

    Each possible contact point is one contact. A single one is named `name`, several are named
    `name`/0, `name`/1, …: a box on a half-space has eight, at its corners, and a capsule two, at
    its ends. Contacts have no coordinates: `gaps`, `contact_speeds`, `Info.contact_force` and
    `readout` say where they are and what they do, `System.with_contact` changes their numbers.

    shape_C, shape_D: shapes of child and parent, each placed by its frame C or D; see `touches` for
        the pairs that can touch. Or a `ContactPoint` alone, whose numbers a collision detection
        sets in each step
    child, parent, frame_C, frame_D: as in `joint`
    laws: along the directions of a contact (see `ContactGeometry`), in place of those of `surface`
    enabled, allow_active: as in `joint`
    surface: friction, softness and restitution: the arguments of `contact_laws`

    Raises: ValueError naming the contact, the argument, its value and the rule.
    """
    owner = f"contact {name!r}"
    check_ends(owner, self._bodies, child, parent)
    frame_C = read_pose(owner, "frame_C", frame_C)
    frame_D = read_pose(owner, "frame_D", frame_D)
    if laws is None:
        laws = contact_laws(owner=owner, **surface)
    elif surface:
        raise ValueError(f"{owner}: give laws or {', '.join(surface)}, not both")
    points = _contact_points(owner, shape_C, shape_D)
    names = [name] if len(points) == 1 else [f"{name}/{i}" for i in range(len(points))]
    for one, (geometry, in_shape_C, in_shape_D) in zip(names, points, strict=True):
        checked, notes = read_laws(
            f"contact {one!r}",
            laws,
            dof=DIRECTIONS,
            erp=self._erp,
            allow_active=allow_active,
            cones=True,
        )
        _check_directions(owner, checked)
        spec = ContactSpec(
            geometry,
            child,
            parent,
            _within(frame_C, in_shape_C),
            _within(frame_D, in_shape_D),
            checked,
            read_switch(owner, enabled),
        )
        self._add("contact", self._contacts, one, spec)
        self._notes += notes
        self._lenient += [f"contact {one!r}"] if allow_active else []
    warn_of_mass_ratio(owner, self._bodies, (child, parent))
    return tuple(names)


def _check_directions(owner: str, laws: Any) -> None:
    """Raise ValueError for no law along the normal, for one that holds a place elsewhere, and for
    laws beside a `ContactPyramid`.
    """
    if len(laws) > 1 and any(isinstance(law, ContactPyramid) for law in laws):
        kinds = ", ".join(type(law).__name__ for law in laws)
        raise ValueError(
            f"{owner}: laws {kinds}: a ContactPyramid is stop and friction in one; give it alone"
        )
    if not any(law.coordinate == NORMAL for law in laws):
        raise ValueError(
            f"{owner}: no law keeps its bodies apart; give one along the normal (coordinate "
            f"{NORMAL}), such as ContactLimits()"
        )
    for law in laws:
        if law.holds and law.coordinate != NORMAL:
            raise ValueError(
                f"{owner}: {type(law).__name__} on coordinate {law.coordinate} holds a place, and "
                f"of a contact's directions only the normal (coordinate {NORMAL}) has one, the gap"
            )


def _contact_points(
    owner: str, shape_C: Any, shape_D: Any
) -> list[tuple[ContactGeometry, Pose, Pose]]:
    """The geometry of each contact point of two shapes, and its C and D in the shapes' frames.

    Raises: ValueError for a value that is no shape, lengths out of range, and a pair of shapes
        without a gap function.
    """
    if isinstance(shape_C, ContactGeometry):
        return [_as_given(owner, shape_C, shape_D)]
    for field, shape in (("shape_C", shape_C), ("shape_D", shape_D)):
        if not isinstance(shape, Shape):
            hint = "write Point()" if isinstance(shape, type) else "give one such as Sphere(0.1)"
            raise ValueError(f"{owner}: {field} {shape!r} is not a shape; {hint}")
        float_leaves(f"{owner}: {field} {type(shape).__name__}", shape)
        problem = None if is_traced(shape) else shape.check()
        if problem:
            raise ValueError(f"{owner}: {field} {type(shape).__name__} {problem}")
    pairs = candidates(shape_C, shape_D)
    if pairs is None:
        raise ValueError(f"{owner}: {no_gap_function(shape_C, shape_D)}")
    points = []
    for part_C, origin_C, part_D, origin_D in pairs:
        geometry = float_leaves(owner, Contact(part_C, part_D))
        points.append((geometry, *(read_pose(owner, "origin", x) for x in (origin_C, origin_D))))
    return points


@quickly
def _within(frame: Pose, shape: Pose) -> Pose:
    """Pose of a shape's part in a body frame."""
    return frame @ shape


def _as_given(owner: str, geometry: Any, shape_D: Any) -> tuple[ContactGeometry, Pose, Pose]:
    """A contact that is one point already, and its C and D in the frames that are given."""
    if shape_D is not None:
        raise ValueError(
            f"{owner}: shape_D {shape_D!r} beside a {type(geometry).__name__}, which says where "
            "the bodies touch; leave it out"
        )
    geometry = float_leaves(f"{owner}: {type(geometry).__name__}", geometry)
    problem = None if is_traced(geometry) else geometry.check()
    if problem:
        raise ValueError(f"{owner}: {type(geometry).__name__} {problem}")
    here = Pose.identity(dtype=precision())
    return geometry, here, here
