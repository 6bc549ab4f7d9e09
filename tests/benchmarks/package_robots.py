"""Robots of Python packages in both engines, each from one file, with start and controls.

Both engines read the same text: meshes that nothing touches are left out of it, and so are contacts
between bodies of one robot. Both take the same servos, start and controls.
"""

import re
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import mujoco
import numpy as np

import jaxjoints as jj
from jaxjoints.models import LoadWarning, Model, load_mjcf, load_urdf
from support.mujoco_states import lifted, state_of

GYMNASIUM = "gymnasium/envs/mujoco/assets"
PLAYGROUND = "mujoco_playground/_src"
ROBOSUITE = "robosuite/models/assets"
ROBOT_DATA = "cmeel.prefix/share/example-robot-data/robots"
# Motors swing for the first second, at a share of their range, one after the other.
FREQUENCY, SHARE, SWINGING = 2.0, 0.15, 1.0  # [Hz], -, [s]
# Of URDF robots: on the ground, and of the motor of each joint [kg m²].
FRICTION, ROTOR = 0.8, 0.01
CUBE, CUBE_MASS, CLEARANCE = 0.02, 0.1, 2e-4  # half a side [m], [kg], to each finger [m]
# Servos of the Panda's arm, and how its first and fourth joint carry the cube about.
ARM, CARRYING = (1000.0, 60.0), 0.2  # [N m/rad], [N m s/rad]; [rad]


@dataclass
class Robot:
    """A robot in both engines.

    model, system, state: of jaxjoints, at the start; m, qpos: of MuJoCo, at the start
    values: of the actuators of m at a time [s], shape (m.nu,)
    controls: of jaxjoints, for such values
    shown: body of m whose height is compared
    touched: geoms of m; forces of their contacts are compared
    weight: of what the contacts carry at rest [N], None where they squeeze
    """

    model: Model
    system: jj.System
    state: jj.State
    m: Any
    qpos: np.ndarray
    values: Callable[[float], np.ndarray]
    controls: Callable[[Any], jj.Control]
    shown: str
    touched: tuple[str, ...]
    weight: float | None


def quietly(function: Callable, *arguments: Any, **options: Any) -> Any:
    """What a function returns, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)


def found(path: str, folders: list[Path]) -> Path:
    """A file of a package, in the first of the folders and of Python's path that has it.

    Raises: FileNotFoundError
    """
    for folder in [*folders, *map(Path, sys.path)]:
        if (folder / path).is_file():
            return folder / path
    raise FileNotFoundError(f"no folder has {path}; name the one of its package by --packages")


# MJCF


def flattened(path: Path) -> Element:
    """The MJCF of a file with what it includes."""
    root = ElementTree.parse(path).getroot()
    while True:
        parents = {child: parent for parent in root.iter() for child in parent}
        include = next(root.iter("include"), None)
        if include is None:
            return root
        parent = parents[include]
        place = list(parent).index(include)
        parent[place : place + 1] = list(
            ElementTree.parse(path.parent / include.attrib["file"]).getroot()
        )


def without_meshes(root: Element) -> Element:
    """MJCF without meshes, geoms of them, and sensors."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("mesh", "sensor") or "mesh" in child.attrib:
                parent.remove(child)
    return root


def written(root: Element) -> str:
    """XML as text."""
    return ElementTree.tostring(root, encoding="unicode")


def of_mjcf(
    text: str,
    shown: str,
    touched: tuple[str, ...],
    values: Callable[[float], np.ndarray] | None = None,
    key: str | None = None,
    start: Mapping[str, float] | None = None,
) -> Robot:
    """A robot of MJCF.

    values: see `Robot`; None for those of the keyframe
    key: keyframe to start from; start: coordinates of joints by name; a robot that has neither
        starts from the pose of the file, or from its "init_qpos"
    """
    on_ground = "floor" in touched
    m = quietly(mujoco.MjModel.from_xml_string, text)
    model = quietly(load_mjcf, text, contacts=True if on_ground else "all", visuals=False)
    d = mujoco.MjData(m)
    if key is not None:
        mujoco.mj_resetDataKeyframe(m, d, m.key(key).id)
    elif start is None and m.nnumeric and m.numeric(0).name == "init_qpos":
        d.qpos[:] = m.numeric(0).data
    for name, value in (start or {}).items():
        d.joint(name).qpos[0] = value
    if values is None:
        constant = m.key(key).ctrl.copy()
        values = lambda t: constant  # noqa: E731
    system, _ = quietly(model.build)
    if on_ground:
        touching_the_ground_alone(m)
    return assembled(model, system, m, d, values, shown, touched, None)


def assembled(model, system, m, d, values, shown, touched, controls) -> Robot:
    """A robot from its models, on the ground if it has one."""
    on_ground = "floor" in touched
    if on_ground:
        d.qpos[:] = lifted(m, d.qpos.copy(), 0.0)
    mujoco.mj_forward(m, d)
    state = quietly(state_of, model, system, m, d)
    if controls is None:
        controls = lambda u: model.control(system, u)  # noqa: E731
    weight = float(m.body_mass.sum() * np.linalg.norm(m.opt.gravity)) if on_ground else None
    return Robot(
        *(model, system, state, m, d.qpos.copy(), values, controls, shown, touched, weight)
    )


def touching_the_ground_alone(m: Any) -> None:
    """Let geoms that touch the floor touch nothing else, as `contacts=True` does."""
    floor = m.geom("floor").id
    meets = (m.geom_contype & m.geom_conaffinity[floor]) | (
        m.geom_conaffinity & m.geom_contype[floor]
    )
    m.geom_contype[:], m.geom_conaffinity[:] = 0, meets != 0
    m.geom_contype[floor], m.geom_conaffinity[floor] = 1, 0


def swinging(text: str) -> Callable[[float], np.ndarray]:
    """Motors that swing for a second, each later than the one before, and then let go."""
    m = quietly(mujoco.MjModel.from_xml_string, text)
    most = SHARE * m.actuator_ctrlrange[:, 1]
    phase = 2 * np.pi * np.arange(m.nu) / m.nu
    return lambda t: most * np.sin(2 * np.pi * FREQUENCY * t + phase) * (t < SWINGING)


def walker(name: str) -> Callable[[list[Path]], Robot]:
    """A robot of gymnasium, whose motors swing."""

    def made(folders: list[Path]) -> Robot:
        text = found(f"{GYMNASIUM}/{name}.xml", folders).read_text(encoding="utf-8")
        return of_mjcf(text, "torso", ("floor",), swinging(text))

    return made


def go1(folders: list[Path]) -> Robot:
    """Playground's Go1, whose servos hold the keyframe."""
    path = f"{PLAYGROUND}/locomotion/go1/xmls/scene_mjx_feetonly_flat_terrain.xml"
    text = written(without_meshes(flattened(found(path, folders))))
    return of_mjcf(text, "trunk", ("floor",), key="home")


def panda(folders: list[Path]) -> Robot:
    """Robosuite's Panda with its hand, which closes on a cube and carries it about."""
    arm, hand = (
        mujoco.MjSpec.from_string(written(without_meshes(flattened(found(path, folders)))))
        for path in (
            f"{ROBOSUITE}/robots/panda/robot.xml",
            f"{ROBOSUITE}/grippers/panda_gripper.xml",
        )
    )
    for geom in hand.geoms:
        geom.contype, geom.conaffinity = 1, 0
    for actuator in arm.actuators:
        actuator.set_to_position(kp=ARM[0], kv=ARM[1])
        actuator.ctrlrange = (-4.0, 4.0)
    arm.attach(hand, frame=arm.body("right_hand").add_frame(), prefix="hand_")
    opening = CUBE + 5e-4 + CLEARANCE
    pose = np.array([0.0, np.pi / 16, 0.0, -5 * np.pi / 6, 0.0, np.pi - 0.2, np.pi / 4])
    start = {f"joint{i + 1}": q for i, q in enumerate(pose)}
    start |= {"hand_finger_joint1": opening, "hand_finger_joint2": -opening}
    pads = ("hand_finger1_pad_collision", "hand_finger2_pad_collision")
    text = holding(arm.to_xml(), start, pads, CUBE)

    def values(t: float) -> np.ndarray:
        moved = CARRYING * np.sin(np.pi * t) * np.array([1, 0, 0, 1, 0, 0, 0])
        return np.array([*(pose + moved), 0.0, 0.0])

    return of_mjcf(text, "cube", ("cube",), values, start=start)


def robotiq(folders: list[Path]) -> Robot:
    """Playground's Robotiq 2F-85, which closes two loops of four bars on a cube."""
    path = f"{PLAYGROUND}/manipulation/franka_emika_panda_robotiq/xmls"
    root = without_meshes(flattened(found(f"{path}/panda_updated_robotiq_2f85.xml", folders)))
    gripper = next(body for body in root.iter("body") if body.get("name") == "base")
    world, actuators = root.find("worldbody"), root.find("actuator")
    assert world is not None and actuators is not None
    world.clear()
    ElementTree.SubElement(world, "body", name="mount", pos="0 0 0.4", quat="0 1 0 0").append(
        gripper
    )
    for motor in actuators.findall("motor"):
        actuators.remove(motor)
    pads = "left_finger_pad", "right_finger_pad"
    text = holding(written(root), {}, pads, None)
    return of_mjcf(text, "cube", ("cube",), lambda t: np.array([0.82]), start={})


def holding(
    text: str, start: Mapping[str, float], pads: tuple[str, str], half: float | None
) -> str:
    """MJCF with a cube between two pads that are boxes.

    start: coordinates of joints by name; half: of a side of the cube [m], None for one that fills
        the space between the pads but for `CLEARANCE`
    """
    m = quietly(mujoco.MjModel.from_xml_string, text)
    d = mujoco.MjData(m)
    for name, value in start.items():
        d.joint(name).qpos[0] = value
    mujoco.mj_kinematics(m, d)
    ends = [d.geom(pad).xpos for pad in pads]
    across = ends[1] - ends[0]
    if half is None:
        thin = sum(m.geom(pad).size.min() for pad in pads)
        half = float(np.linalg.norm(across) - thin) / 2 - CLEARANCE
    numbers = {
        "pos": (ends[0] + ends[1]) / 2,
        "quat": np.zeros(4),
    }
    mujoco.mju_mat2Quat(numbers["quat"], d.geom(pads[0]).xmat)
    root = ElementTree.fromstring(text)
    world = root.find("worldbody")
    assert world is not None
    place = {name: " ".join(map(repr, map(float, value))) for name, value in numbers.items()}
    cube = ElementTree.SubElement(world, "body", name="cube", **place)
    ElementTree.SubElement(cube, "freejoint")
    size = " ".join([repr(half)] * 3)
    looks = {"name": "cube", "type": "box", "size": size, "contype": "2", "conaffinity": "1"}
    ElementTree.SubElement(cube, "geom", looks, mass=str(CUBE_MASS), friction="1 0.005 0.0001")
    return written(root)


# URDF


def standing(
    path: str,
    feet: str,
    pose: Mapping[str, float],
    gains: Mapping[str, tuple[float, float]],
) -> Callable[[list[Path]], Robot]:
    """A robot of example-robot-data, whose servos hold a pose on the ground.

    feet: expression for the links that touch it; pose: angles of joints by expressions [rad]
    gains: of servos by expressions for joints [N m/rad], [N m s/rad]
    """

    def made(folders: list[Path]) -> Robot:
        file = found(f"{ROBOT_DATA}/{path}", folders)
        data = file.parents[len(Path(path).parts) - 1]
        root = ElementTree.parse(file).getroot()
        for link in root.iter("link"):
            for part in link.findall("visual") + link.findall("collision"):
                if part.tag == "visual" or not re.fullmatch(feet, link.attrib["name"]):
                    link.remove(part)
        for inertia in root.iter("inertia"):
            mend(inertia)
        for mesh in root.iter("mesh"):
            mesh.set("filename", re.sub("^package://[^/]*/robots", str(data), mesh.get("filename")))
        text = written(root)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LoadWarning)
            model = load_urdf(text, floating=True, balance_inertia=True, roots=[data])
        angles = {joint: first(pose | {".*": 0.0}, joint) for joint in model.coordinates}
        servos = {joint: first(gains, joint) for joint in angles}
        for joint, angle in angles.items():
            owner, i = model.coordinates[joint]
            model.builder.add_law(owner, jj.Servo(*servos[joint], target=angle, coordinate=i))
            model.builder.add_law(owner, jj.Armature(ROTOR, coordinate=i))
        model.add_ground(friction=FRICTION)
        system, _ = quietly(model.build)
        m = in_mujoco(text, system.topology.bodies[0], servos)
        d = mujoco.MjData(m)
        for joint, angle in angles.items():
            d.joint(joint).qpos[0] = angle
        wanted = np.array(list(angles.values()))

        def controls(u: Any) -> jj.Control:
            targets = {model.coordinates[name][0]: u[i : i + 1] for i, name in enumerate(angles)}
            return system.control(target=targets)

        shown = system.topology.bodies[0]
        return assembled(model, system, m, d, lambda t: wanted, shown, ("floor",), controls)

    return made


def mend(inertia: Element) -> None:
    """Leave out products of an inertia that no body has, which MuJoCo refuses."""
    xx, xy, xz, yy, yz, zz = (
        float(inertia.get(name, 0)) for name in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
    )
    if np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])[0] <= 0:
        for name in ("ixy", "ixz", "iyz"):
            inertia.set(name, "0")


def first(values: Mapping[str, Any], name: str) -> Any:
    """The value of the first expression that fits a name."""
    return next(value for pattern, value in values.items() if re.fullmatch(pattern, name))


def in_mujoco(text: str, base: str, servos: Mapping[str, tuple[float, float]]) -> Any:
    """MuJoCo's model of a URDF that stands on a plane, with servos of gains on its joints."""
    options = (
        '<mujoco><compiler fusestatic="false" strippath="false" balanceinertia="true"/></mujoco>'
    )
    spec = mujoco.MjSpec.from_string(text.replace("</robot>", options + "</robot>"))
    spec.body(base).add_freejoint()
    spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=(5, 5, 1))
    for geom in spec.geoms:
        geom.friction[0] = FRICTION
    for joint, (kp, kv) in servos.items():
        servo = spec.add_actuator(name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        servo.set_to_position(kp=kp, kv=kv)
        spec.joint(joint).armature = ROTOR
    m = spec.compile()
    touching_the_ground_alone(m)
    return m


ROBOTS: dict[str, Callable[[list[Path]], Robot]] = {
    **{name: walker(name) for name in ("ant", "half_cheetah", "hopper", "walker2d_v5", "humanoid")},
    "go1": go1,
    "go2": standing(
        "go2_description/urdf/go2.urdf",
        ".*_foot",
        {".*_thigh_joint": 0.785, ".*_calf_joint": -1.44},
        {".*": (60.0, 3.0)},
    ),
    "anymal_c": standing(
        "anymal_c_simple_description/urdf/anymal.urdf",
        ".*_FOOT",
        {
            **{"L._HAA": -0.1, "R._HAA": 0.1},
            **{".F_HFE": 0.7, ".F_KFE": -1.0, ".H_HFE": -0.7, ".H_KFE": 1.0},
        },
        {".*": (200.0, 10.0)},
    ),
    "g1": standing(
        "g1_description/urdf/g1_29dof_rev_1_0.urdf",
        ".*_ankle_roll_link",
        {
            **{".*_hip_pitch_joint": -0.32, ".*_knee_joint": 0.669},
            **{".*_ankle_pitch_joint": -0.349, ".*_elbow_joint": 0.6},
        },
        {
            **{".*_wrist_.*": (5.0, 0.2), ".*_(shoulder|elbow)_.*": (40.0, 2.0)},
            ".*": (400.0, 8.0),
        },
    ),
    "panda": panda,
    "robotiq_2f85": robotiq,
}
