"""URDF: robots as links and joints, read into a builder.

Source: the format's description at wiki.ros.org/urdf/XML; where it is silent, what Pinocchio and
MuJoCo do. The type "spherical" is an extension that PyBullet and MuJoCo read.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..algebra.calls import public
from ..algebra.options import near_matches
from ..build.builder import SystemBuilder
from ..build.checks.joints import UNBOUNDED
from ..build.checks.values import read_pose
from ..couplings.linear import Slider
from ..couplings.planar import Planar
from ..couplings.rigid import Free
from ..couplings.rotary import Ball, Hinge
from ..laws.friction import DryFriction
from ..laws.law import Law
from ..laws.limits import Limits
from ..laws.springs import Damping
from ..laws.transmissions import Mimic, Weighted
from ..model.system import WORLD
from .errors import LoadError, refusing, shown
from .files import Refused, Roots, wanted_root
from .geometry import GREY, Box, Capsule, Cylinder, Mesh, Shape, Sphere, Visual
from .mechanism import (
    IDENTITY,
    Assembly,
    Connection,
    Frame,
    Laws,
    Link,
    product,
)
from .meshes import Unreadable, read_mesh
from .model import Model
from .report import Report
from .xml import Element, FileLimits, read_source, read_xml, reads

# Of each element what is read; all else is listed as skipped.
KNOWN: dict[str, tuple[set[str], set[str]]] = {
    "robot": ({"name", "version"}, {"link", "joint", "material"}),
    "link": ({"name"}, {"inertial", "visual", "collision"}),
    "inertial": (set(), {"origin", "mass", "inertia"}),
    "mass": ({"value"}, set()),
    "inertia": ({"ixx", "ixy", "ixz", "iyy", "iyz", "izz"}, set()),
    "visual": ({"name"}, {"origin", "geometry", "material"}),
    "collision": ({"name"}, {"origin", "geometry", "material"}),
    "geometry": (set(), {"box", "cylinder", "sphere", "capsule", "mesh"}),
    "box": ({"size"}, set()),
    "cylinder": ({"radius", "length"}, set()),
    "capsule": ({"radius", "length"}, set()),
    "sphere": ({"radius"}, set()),
    "mesh": ({"filename", "scale"}, set()),
    "material": ({"name"}, {"color"}),
    "color": ({"rgba"}, set()),
    "origin": ({"xyz", "rpy"}, set()),
    "joint": (
        {"name", "type"},
        {"origin", "parent", "child", "axis", "limit", "dynamics", "mimic"},
    ),
    "parent": ({"link"}, set()),
    "child": ({"link"}, set()),
    "axis": ({"xyz"}, set()),
    "limit": ({"lower", "upper", "velocity", "effort"}, set()),
    "dynamics": ({"damping", "friction"}, set()),
    "mimic": ({"joint", "multiplier", "offset"}, set()),
}
BOUNDED = ("revolute", "prismatic")
# Of which types `limit` is read, and `dynamics`; the format gives them for one coordinate.
LIMITED, DAMPED = (*BOUNDED, "continuous"), (*BOUNDED, "continuous", "planar", "spherical")
TYPES = ("revolute", "continuous", "prismatic", "fixed", "floating", "planar", "spherical")
# Axes shorter than this have no direction.
LEAST_AXIS = 1e-9


@public
def load_urdf(
    source: str | os.PathLike,
    *,
    roots: Iterable[str | os.PathLike] = (),
    floating: bool = False,
    pose: Any = None,
    merge_fixed: bool = True,
    visuals: bool = True,
    balance_inertia: bool = False,
    strict: bool = False,
    laws: Laws | None = None,
    builder: SystemBuilder | None = None,
    prefix: str = "",
    gravity: Any = (0.0, 0.0, -9.81),
    limits: FileLimits | None = None,
) -> Model:
    """A robot from URDF: a builder with its bodies, joints and laws, to which more can be added.

    A body has the frame of its link. Joint types become couplings: revolute and continuous `Hinge`,
    prismatic `Slider`, planar `Planar` in the plane normal to its axis, floating `Free`, spherical
    (an extension of PyBullet and MuJoCo) `Ball`. Laws: `Limits` from lower and upper (hard stops; a
    side that is absent, or 1e30 and more, is free), `Damping`, `DryFriction`; `max_effort` from
    effort, which bounds `Control.effort` and each `Servo` that states no effort of its own. Equal
    limits lock the joint. A mimic joint is a `Mimic` transmission, which holds the joint by a
    force. Joints start at 0 or the nearest value within their limits, mimics at the value that they
    mimic. An effort or velocity of 0 means that the file does not know it. Velocity limits are for
    controllers: `Model.speed_limits` lists them, and no force keeps a joint below them. Damping and
    friction of a planar or spherical joint act on each of its coordinates. Limits of both are
    skipped, and limit and dynamics of a floating joint.

    Links that fixed joints connect become one body, named after the first. A massless link on a
    fixed joint joins its parent's body. A massless link between two moving joints becomes no body:
    both joints become one, named "a+b", with the coordinates of both (singular where two of three
    axes align, like the mechanism). A massless link at the end of a moving joint is fixed at its
    start, since no force would be needed to move it. A massless link that carries several moving
    joints is an error.

    A body has to have inertia about every axis. A principal moment below mass · (1 µm)² becomes
    mass · (1 mm)² or 1e-6 of the largest moment, whichever is more. A largest moment above the sum
    of the others, which no rigid body has, is kept, since the motion is defined; `balance_inertia`
    raises the smaller two.

    A link with two parents closes a loop: its second joint holds it too. One `LoadWarning` lists
    what is not simulated (such as gazebo elements) and what was changed. It also names a base with
    mass if nothing moves: pass `floating`. A transmission element says which joints are driven
    (`Model.actuated`) and adds no force. Drive these joints by `laws`, or by `Control.effort`,
    which acts on the joint's side of the gear.

    source: path of a file, or the XML itself
    roots: folders in which the meshes of package:// and relative paths are looked for, and outside
        of which no file is opened; without roots there are no meshes
    floating: True: the base starts at `pose` and moves freely; False: it is fixed at `pose`
    pose: of the base in the world, in one of the forms of `SystemBuilder.body`
    merge_fixed: False keeps links with mass that fixed joints connect as bodies, on `Fixed` joints
    visuals: False reads no shapes
    strict: raise a LoadError instead of the warning, with the same list
    laws: for joints of the file, a law or several by name, or by a pattern of the shell:
        {"arm_joint*": Servo(100.0, 10.0)}. They act beside the laws of the file, and a joint that
        several entries match gets the laws of each. A law's `coordinate` counts within the joint of
        the file (0 for most joints). Joints that mimic others match too
    builder: to add the robot to, in place of a new one; prefix: of all names in it
    gravity: of a new builder [m/s²]
    limits: how large the file may be, see `FileLimits`

    Raises: LoadError naming file, line and element; OSError for a file that cannot be opened;
        ValueError for `laws` that match no joint, with near names, and for bad laws.
    Warns: LoadWarning.

    >>> from jaxjoints import Servo
    >>> pendulum = load_urdf('''<robot name="pendulum">
    ...   <link name="base"/>
    ...   <link name="rod"><inertial>
    ...     <origin xyz="0 0 -0.5"/> <mass value="1"/>
    ...     <inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.01"/>
    ...   </inertial></link>
    ...   <joint name="pivot" type="continuous">
    ...     <parent link="base"/> <child link="rod"/> <axis xyz="0 1 0"/>
    ...   </joint>
    ... </robot>''', laws={"piv*": Servo(20.0, 2.0)})
    >>> system, state = pendulum.build()
    >>> system.topology.bodies, system.topology.joints
    (('rod',), ('pivot',))
    >>> control = system.control(target={"pivot": 0.3})
    """
    sizes = FileLimits() if limits is None else limits
    roots = Roots(roots)
    stand = _frame_of(pose)
    builder = SystemBuilder(gravity=gravity) if builder is None else builder
    data, name, folder = read_source(source, sizes)
    report = Report(name)
    with refusing(partial(LoadError, source=name)):
        robot = read_xml(data, name, sizes)
        if robot.tag != "robot":
            raise robot.error("is no URDF; its outermost element must be 'robot'")
        _list_skipped(robot, report)
        _list_of_joints(robot, report)
        elements = _named(robot, "link", sizes), _named(robot, "joint", sizes)
        if not elements[0]:
            raise robot.error("has no link; a robot has one at least")
        links = {link: _link(element) for link, element in elements[0].items()}
        joints = {joint: _connection(element, links) for joint, element in elements[1].items()}
        mimics = _mimics(elements[1], joints)
        _start_mimics(mimics, joints)
        base = _base(robot, links, joints)
        assembly = Assembly(builder, links, prefix, merge_fixed, balance_inertia)
        assembly.add(list(joints.values()), free={base: stand} if floating else {}, pose=stand)
        if not any(body != WORLD for body, _ in assembly.frames.values()):
            _note_that_nothing_moves(elements[0][base], links, report)
        for joint, (other, ratio, offset, element) in mimics.items():
            with refusing(element.error):
                _add_mimic(assembly, joints[joint], other, ratio, offset)
        shapes = _Shapes(roots, folder, sizes, assembly, report, _colors(robot))
        seen = shapes.all("visual", elements[0]) if visuals else ()
        touched = shapes.all("collision", elements[0]) if visuals else ()
        speeds = _speeds(elements[1], assembly)
        actuated = _actuated(robot, joints, report)
    added = assembly.add_laws({} if laws is None else laws, assembly.coordinates)
    assembly.notes += [
        f"joint {joint!r}: mimics {mimics[joint][0]!r} and has a {type(law).__name__}, which pulls "
        "against it unless their targets fit"
        for joint, law in added
        if joint in mimics and law.aims
    ]
    report.notes += assembly.notes
    report.tell(strict)
    return Model(
        name=robot.attributes.get("name", ""),
        builder=builder,
        frames=assembly.frames,
        coordinates=assembly.coordinates,
        speed_limits=speeds,
        actuated=actuated,
        visuals=seen,
        collisions=touched,
        skipped=report.skipped,
        notes=tuple(report.notes),
    )


def _named(robot: Element, tag: str, limits: FileLimits) -> dict[str, Element]:
    """The elements of a tag by their names, which differ."""
    found: dict[str, Element] = {}
    for element in robot.all(tag):
        name = element.text("name")
        if not name or len(name) > limits.name:
            raise element.error(f"name must have 1 to {limits.name} characters, not {len(name)}")
        if name in found:
            raise element.error(f"this name is taken in line {found[name].line}; rename one")
        found[name] = element
    return found


def _list_skipped(element: Element, report: Report) -> None:
    """Note all elements and attributes that are not read."""
    attributes, children = KNOWN[element.tag]
    for attribute in element.attributes:
        if attribute not in attributes:
            report.skip(f"attribute {attribute!r} of {element.tag}", element.line)
    for child in element.children:
        if child.tag in children:
            _list_skipped(child, report)
        elif child.tag == "transmission" and element.tag == "robot":
            continue  # Told by `_actuated`.
        elif child.tag == "texture" or element.tag == "material":
            report.skip("texture", child.line)
        elif "xacro" in child.tag:
            raise child.error("is a xacro macro; expand the file first, with the program xacro")
        else:
            inside = "" if element.tag == "robot" else f" of {element.tag}"
            space, _, tag = child.tag.rpartition("}")
            # What is called as an element of the format is told from it.
            extension = f" of {space[1:]}" if space and tag in KNOWN else ""
            report.skip(tag + extension + inside, child.line)


def _list_of_joints(robot: Element, report: Report) -> None:
    """Note joints whose limits are equal, and what is not read because of a joint's type."""
    for joint in robot.all("joint"):
        name, kind = joint.attributes.get("name"), joint.attributes.get("type")
        limit, dynamics, mimic = (joint.only(tag) for tag in ("limit", "dynamics", "mimic"))
        ends = {} if limit is None else limit.attributes
        if "lower" in ends and "upper" in ends and kind in BOUNDED:
            if limit.number("lower") == limit.number("upper"):
                report.notes.append(f"joint {name!r}: its limits are equal and lock it")
        # A fixed joint has nothing to limit or to damp.
        if limit is not None and kind not in (*LIMITED, "fixed"):
            report.skip(f"limit of {kind} joint {name!r}", limit.line)
        bounds = [limit.number(side) for side in ("lower", "upper") if side in ends]
        if kind == "continuous" and any(abs(bound) < UNBOUNDED for bound in bounds):
            report.skip(f"lower and upper of continuous joint {name!r}", limit.line)
        if dynamics is not None and kind not in (*DAMPED, "fixed"):
            report.skip(f"dynamics of {kind} joint {name!r}", dynamics.line)
        if dynamics is not None and kind == "spherical":
            report.notes.append(
                f"joint {name!r}: dynamics acts on the coordinates of the ball joint, which differ "
                "from its angular velocity away from the start"
            )
        if mimic is not None and kind == "fixed":
            report.skip(f"mimic of fixed joint {name!r}", mimic.line)


@reads
def _link(element: Element) -> Link:
    inertial = element.only("inertial")
    name = element.attributes["name"]
    if inertial is None:
        return Link(name, element.error)
    mass_element, inertia = inertial.only("mass"), inertial.only("inertia")
    if mass_element is None:
        raise inertial.error("has no mass; give it one, or leave inertial out")
    mass = mass_element.number("value")
    if mass < 0:
        raise mass_element.error(f"value {mass:g} must be >= 0")
    R, com = _origin(inertial)
    matrix = np.zeros((3, 3))
    if inertia is not None:
        xx, xy, xz, yy, yz, zz = (
            inertia.number(name, 0.0) for name in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
        )
        matrix = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return Link(name, element.error, mass, com, R @ matrix @ R.T)


@reads
def _connection(element: Element, links: Mapping[str, Link]) -> Connection:
    kind = element.text("type")
    if kind not in TYPES:
        raise element.error(f"type {shown(kind)} must be one of {', '.join(TYPES)}")
    ends = []
    for end in ("parent", "child"):
        found = element.only(end)
        if found is None:
            raise element.error(f"has no {end}")
        name = found.text("link")
        if name not in links:
            raise element.error(
                f"{end} {shown(name)} is no link of the robot; {near_matches(name, links)}"
            )
        ends.append(name)
    parent, child = ends
    if parent == child:
        raise element.error(f"parent and child are both {shown(parent)}; join two links")
    frame = _origin(element)
    name = element.attributes["name"]
    if kind in ("fixed", "floating"):
        coupling = None if kind == "fixed" else Free()
        dof = 0 if kind == "fixed" else 6
        return Connection(
            *(name, element.error, parent, child, coupling, frame),
            laws=[[] for _ in range(dof)],
            max_effort=[None] * dof,
            q=[0.0] * dof,
        )
    axis_element = element.only("axis")
    axis = np.array([1.0, 0.0, 0.0])
    if axis_element is not None:
        axis = axis_element.numbers("xyz", 3, [1.0, 0.0, 0.0])
        if np.linalg.norm(axis) < LEAST_AXIS:
            raise axis_element.error(f"xyz {axis.tolist()} has no direction")
    axis = axis / np.linalg.norm(axis)
    laws = _dynamics(element)
    if kind == "spherical":
        return Connection(
            *(name, element.error, parent, child, Ball(), frame),
            laws=[list(laws) for _ in range(3)],
            max_effort=[None] * 3,
            q=[0.0] * 3,
        )
    if kind == "planar":
        turn = _turn_of_z(axis)
        return Connection(
            *(name, element.error, parent, child, Planar()),
            frame_D=product(frame, (turn, np.zeros(3))),
            frame_C=(turn, np.zeros(3)),
            laws=[list(laws) for _ in range(3)],
            max_effort=[None] * 3,
            q=[0.0] * 3,
        )
    stops, effort, q = _limits(element, bounded=kind != "continuous")
    return Connection(
        *(name, element.error, parent, child),
        Slider(axis) if kind == "prismatic" else Hinge(axis),
        frame,
        laws=[[*stops, *laws]],
        max_effort=[effort],
        q=[q],
    )


def _limits(element: Element, *, bounded: bool) -> tuple[list[Callable], float | None, float]:
    """Stops, largest effort or None, and where the coordinate starts."""
    limit = element.only("limit")
    if limit is None:
        return [], None, 0.0
    effort = limit.number("effort", 0.0)
    sides = {"lower": None, "upper": None}
    for side in sides if bounded else ():
        bound = limit.number(side, UNBOUNDED)
        sides[side] = bound if abs(bound) < UNBOUNDED else None
    lower, upper = sides.values()
    stops = []
    if lower is not None or upper is not None:
        if lower is not None and upper is not None and lower > upper:
            raise limit.error(
                f"lower {lower:g} must not be above upper {upper:g}; leave both out for a joint "
                "without stops"
            )
        stops.append(lambda i: Limits(lower, upper, coordinate=i))
    q = float(np.clip(0.0, lower, upper)) if stops else 0.0
    return stops, effort if 0 < effort < UNBOUNDED else None, q


def _speeds(elements: Mapping[str, Element], assembly: Assembly) -> dict[str, float]:
    """The largest speed of each joint that has one, which is kept as a number."""
    speeds = {}
    for joint, element in elements.items():
        limit = element.only("limit") if element.attributes["type"] in LIMITED else None
        speed = 0.0 if limit is None else limit.number("velocity", 0.0)
        if speed > 0 and joint in assembly.coordinates:
            speeds[joint] = speed
    return speeds


def _actuated(robot: Element, joints: Mapping[str, Connection], report: Report) -> tuple[str, ...]:
    """Joints that transmissions name as driven; what is not simulated of these is skipped."""
    driven: dict[str, None] = {}
    for element in robot.all("transmission"):
        names = [joint.attributes.get("name") for joint in element.all("joint")]
        known = [name for name in names if name in joints and joints[name].coupling is not None]
        driven |= dict.fromkeys(known)
        report.skip(
            "transmission, which adds no force: its joints are in Model.actuated",
            element.line,
        )
        for name in names:
            if name not in known:
                what = f"transmission of {shown(name)}, which is no joint that moves"
                report.skip(what, element.line)
    return tuple(driven)


def _dynamics(element: Element) -> list[Callable[[int], Law]]:
    """Damping and friction, where they are not 0."""
    dynamics = element.only("dynamics")
    if dynamics is None:
        return []
    laws = []
    for field, law in (("damping", Damping), ("friction", DryFriction)):
        value = dynamics.number(field, 0.0)
        if value < 0:
            raise dynamics.error(f"{field} {value:g} must be >= 0, or it feeds energy in")
        if value > 0:
            laws.append(partial(_law, law, value))
    return laws


def _law(law: type, value: float, coordinate: int) -> Law:
    return law(value, coordinate=coordinate)


def _mimics(elements: Mapping[str, Element], joints: Mapping[str, Connection]) -> dict[str, tuple]:
    """Of each mimic joint the joint it mimics, ratio, offset and element."""
    found = {}
    for name, element in elements.items():
        mimic = element.only("mimic")
        if mimic is None or joints[name].coupling is None:
            continue
        other = mimic.text("joint")
        if other not in joints:
            raise mimic.error(
                f"joint {shown(other)} of joint {shown(name)} is no joint; "
                f"{near_matches(other, joints)}"
            )
        for joint in (name, other):
            # A fixed joint leads too: it stands at 0.
            if joints[joint].dof != 1 and joints[joint].coupling is not None:
                raise mimic.error(f"joint {shown(joint)} must have one coordinate to mimic or lead")
        ratio, offset = mimic.number("multiplier", 1.0), mimic.number("offset", 0.0)
        found[name] = other, ratio, offset, mimic
    return found


def _note_that_nothing_moves(base: Element, links: Mapping[str, Link], report: Report) -> None:
    """Note a robot with masses none of which moves, such as a single object."""
    if any(link.mass > 0 for link in links.values()):
        report.notes.append(
            f"link {shown(base.attributes['name'])} (in line {base.line}): stands in the world, "
            "and nothing of the robot moves; load_urdf(..., floating=True) lets it move freely"
        )


def _start_mimics(mimics: Mapping[str, tuple], joints: Mapping[str, Connection]) -> None:
    """Start each mimic where it has to be; LoadError for mimics in a circle."""
    for name in mimics:
        chain = [name]
        while chain[-1] in mimics:
            following = mimics[chain[-1]][0]
            if following in chain:
                circle = " -> ".join([*chain[chain.index(following) :], following])
                raise mimics[name][3].error(f"joints mimic each other in a circle: {circle}")
            chain.append(following)
        for follower, leader in zip(chain[-2::-1], chain[:0:-1], strict=True):
            _, ratio, offset, _ = mimics[follower]
            (at,) = joints[leader].q or [0.0]
            joints[follower].q = [ratio * at + offset]


def _add_mimic(
    assembly: Assembly, joint: Connection, other: str, ratio: float, offset: float
) -> None:
    """Hold q[joint] = ratio q[other] + offset, a constant where the other joint is fixed."""
    if joint.name not in assembly.coordinates:
        assembly.notes.append(f"joint {joint.name!r}: is fixed and does not mimic {other!r}")
        return
    follower, i = assembly.coordinates[joint.name]
    moving = other in assembly.coordinates
    leader, k = assembly.coordinates[other] if moving else (follower, i)
    pair = tuple(dict.fromkeys((leader, follower)))
    starts, dofs = assembly.starts(pair), [assembly.dofs[name] for name in pair]
    transmission = Mimic(ratio, offset)
    if not moving or dofs != [1, 1]:
        weights = np.zeros(sum(dofs))
        weights[starts[follower] + i] += 1.0
        if moving:
            weights[starts[leader] + k] -= ratio
        transmission = Weighted(weights, offset if moving else joint.q[0])
    if not moving:
        held = f"joint {joint.name!r}: mimics a joint that is fixed, and is held at {joint.q[0]:g}"
        assembly.notes.append(held)
    name = f"{assembly.prefix}{joint.name} mimics {other}"
    assembly.builder.transmission(name, transmission, joints=pair)


def _base(robot: Element, links: Mapping[str, Link], joints: Mapping[str, Connection]) -> str:
    """The link without a parent; LoadError for several, and for none."""
    led = {joint.child for joint in joints.values()}
    roots = [name for name in links if name not in led]
    if not roots:
        raise next(iter(links.values())).refuse("has a parent, as all links; one must have none")
    if len(roots) > 1:
        _refuse_extensions(robot, roots)
        raise links[roots[1]].refuse(
            f"has no parent, nor has {shown(roots[0])}; a robot has one base, join the others to it"
        )
    return roots[0]


def _refuse_extensions(robot: Element, roots: list[str]) -> None:
    """Raise the LoadError of a joint of another namespace that leads to one of some links."""
    for element in robot.children:
        space, _, tag = element.tag.rpartition("}")
        child = element.only("child") if space and tag == "joint" else None
        link = None if child is None else child.attributes.get("link")
        if link in roots:
            raise element.error(
                f"is a joint of {space[1:]}, which is not read, so link {shown(link)} has no "
                f"parent; write it as a joint of URDF, of type {', '.join(TYPES)}"
            )


@reads
def _origin(element: Element) -> Frame:
    """The pose in `origin`: position xyz, then fixed-axis angles roll, pitch, yaw [rad]."""
    origin = element.only("origin")
    if origin is None:
        return IDENTITY
    position = origin.numbers("xyz", 3, [0.0] * 3)
    roll, pitch, yaw = origin.numbers("rpy", 3, [0.0] * 3)
    (a, b, c), (r, s, t) = np.cos([roll, pitch, yaw]), np.sin([roll, pitch, yaw])
    about_x = np.array([[1, 0, 0], [0, a, -r], [0, r, a]])
    about_y = np.array([[b, 0, s], [0, 1, 0], [-s, 0, b]])
    about_z = np.array([[c, -t, 0], [t, c, 0], [0, 0, 1]])
    return about_z @ about_y @ about_x, position


def _turn_of_z(axis: np.ndarray) -> np.ndarray:
    """The rotation matrix of the shortest turn that takes z to an axis of length 1."""
    x, y, z = axis
    if z < -1 + 1e-12:
        return np.diag([1.0, -1.0, -1.0])
    k = 1 / (1 + z)
    return np.array([[1 - k * x * x, -k * x * y, x], [-k * x * y, 1 - k * y * y, y], [-x, -y, z]])


def _frame_of(pose: Any) -> Frame:
    T = read_pose("base", "pose", pose)
    return np.asarray(T.R, float), np.asarray(T.p, float)


def _colors(robot: Element) -> dict[str, tuple]:
    """The materials of the robot that have a color."""
    colors = {}
    for material in robot.all("material"):
        color = _color(material)
        if color is not None and "name" in material.attributes:
            colors[material.attributes["name"]] = color
    return colors


@reads
def _color(material: Element) -> tuple | None:
    color = material.only("color")
    return None if color is None else tuple(np.clip(color.numbers("rgba", 4), 0.0, 1.0).tolist())


class _Shapes:
    """Shapes on the bodies of an assembly."""

    def __init__(self, roots, folder, limits, assembly, report, colors):
        self.roots, self.folder, self.limits = roots, folder, limits
        self.assembly, self.report, self.colors = assembly, report, colors
        self.meshes: dict[tuple, Mesh | str] = {}

    def all(self, tag: str, links: Mapping[str, Element]) -> tuple[Visual, ...]:
        """The shapes of all links in elements of a tag."""
        found = []
        for name, link in links.items():
            for element in link.all(tag):
                with refusing(element.error):
                    visual = self._visual(name, element)
                found += [] if visual is None else [visual]
        return tuple(found)

    def _visual(self, link: str, element: Element) -> Visual | None:
        shape = self._shape(element)
        if shape is None:
            return None
        if link not in self.assembly.frames:
            self.report.skip("shape of a link without mass between joints", element.line)
            return None
        body, (position, rotation) = self.assembly.frames[link]
        frame = product((rotation, position), _origin(element))
        return Visual(body, _orthonormal(frame), shape, self._color_of(element))

    def _color_of(self, element: Element) -> tuple:
        material = element.only("material")
        if material is None:
            return GREY
        return _color(material) or self.colors.get(material.attributes.get("name"), GREY)

    def _shape(self, element: Element) -> Shape | None:
        geometry = element.only("geometry")
        if geometry is None:
            raise element.error("has no geometry")
        known = [child for child in geometry.children if child.tag in KNOWN["geometry"][1]]
        if not known:
            return None
        one = known[0]
        if one.tag == "mesh":
            return self._mesh(one)
        try:
            if one.tag == "box":
                return Box(one.numbers("size", 3))
            if one.tag == "sphere":
                return Sphere(one.number("radius"))
            if one.tag == "cylinder":
                return Cylinder(one.number("radius"), one.number("length"))
            return Capsule(one.number("radius"), one.number("length"))
        except LoadError:
            raise
        except ValueError as error:
            self.report.skip(f"shape that is none ({error})", one.line)
            return None

    def _mesh(self, element: Element) -> Mesh | None:
        name, scale = element.text("filename"), element.numbers("scale", 3, [1.0] * 3)
        if not self.roots.folders:
            advice = wanted_root(name, self.folder)
            self.report.skip(f"mesh, for which roots= gives no folder: {advice}", element.line)
            return None
        key = name, tuple(scale)
        if key not in self.meshes:
            try:
                path = self.roots.find(name, self.folder)
                if path is None:
                    raise Unreadable("there is no such file in the roots")
                self.meshes[key] = read_mesh(path, scale, self.limits.mesh)
            except Refused as error:
                raise element.error(
                    f"filename {shown(name)}: {error}; visuals=False leaves all meshes out"
                ) from error
            except Unreadable as error:
                self.meshes[key] = f"mesh {shown(name)}: {error}"
        mesh = self.meshes[key]
        if isinstance(mesh, str):
            self.report.skip(mesh, element.line)
            return None
        return mesh


def _orthonormal(frame: Frame) -> Frame:
    """A frame whose rotation is one to rounding, whatever rounding a product has left."""
    U, _, Vt = np.linalg.svd(frame[0])
    return U @ Vt, frame[1]
