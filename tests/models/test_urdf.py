"""URDF: robots become bodies, joints and laws that move as the file says."""

import json
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial import ConvexHull

import jaxjoints as jj
from jaxjoints.models import FileLimits, LoadError, LoadWarning, load_urdf
from support.accelerations import rates
from support.urdf import joint, link, robot

DATA = Path(__file__).parents[1] / "data"

EXACT = 1e-12  # positions, after some products of rotations
SOLVED = 1e-8  # accelerations, relative to the largest


def built(text, **options):
    """Model, system and state of a file that is simulated as written."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = load_urdf(text, **options)
    return model, *model.build()


def link_pose(model, system, state, name):
    """Rotation matrix and position of a link in the world."""
    body, (position, rotation) = model.frames[name]
    if body == jj.WORLD:
        return rotation, position
    poses = jj.body_poses(system, state)
    i = system.body(body)
    R, p = np.asarray(poses.R[:, :, i]), np.asarray(poses.p[:, i])
    return R @ rotation, R @ position + p


@pytest.fixture(scope="module")
def recorded():
    """A robot with each type of joint, and what Pinocchio computes for it."""
    return json.loads((DATA / "urdf_robot.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def robot_of_each_type(recorded):
    return built(recorded["urdf"])


def test_links_stand_where_pinocchio_puts_them(robot_of_each_type, recorded):
    model, system, _ = robot_of_each_type
    for case in recorded["cases"]:
        state = system.state(q=case["q"])
        for name, (rotation, position) in case["links"].items():
            R, p = link_pose(model, system, state, name)
            np.testing.assert_allclose(R, rotation, atol=EXACT, err_msg=name)
            np.testing.assert_allclose(p, position, atol=EXACT, err_msg=name)


@pytest.mark.slow
def test_accelerations_are_those_of_pinocchio(robot_of_each_type, recorded):
    _, system, _ = robot_of_each_type
    for case in recorded["cases"]:
        state = system.state(q=case["q"], qd=case["qd"])
        control = system.control(effort=case["effort"])
        found, _ = rates(system, state, control)
        wanted = jnp.zeros(system.coordinates)
        for name, value in case["qdd"].items():
            wanted = wanted.at[system.coordinate(name)].set(jnp.asarray(value))
        np.testing.assert_allclose(found, wanted, atol=SOLVED * np.abs(wanted).max())


def test_laws_are_those_of_limit_and_dynamics():
    text = robot(
        link("base", None),
        link("a"),
        joint(
            *("j", "revolute", "base", "a"),
            more='<limit lower="0.5" upper="2" effort="7" velocity="3"/>'
            '<dynamics damping="0.4" friction="0.2"/>',
        ),
    )
    model = load_urdf(text, strict=True)
    system, state = model.build()
    stop, damping, friction = system.joint("j").laws
    assert [float(x) for x in (stop.lower, stop.upper)] == [0.5, 2.0]
    assert (float(damping.damping), float(friction.friction_force)) == (0.4, 0.2)
    np.testing.assert_array_equal(system.joint("j").max_effort, [7.0])
    assert dict(model.speed_limits) == {"j": 3.0}
    np.testing.assert_allclose(state.q, [0.5])  # the nearest to 0 within the limits


def test_links_fixed_to_each_other_are_one_body_with_their_inertia():
    parts = [
        link("a", 2.0, (0.1, 0.2, 0.25), xyz="0.1 0 0"),
        link("b", 1.0, (0.3, 0.2, 0.25), xyz="0 0.2 0", rpy="0.3 0 0.5"),
        link("tip", None),
        joint("weld", "fixed", "a", "b", xyz="0 0 1", rpy="0 0.7 0"),
        joint("mark", "fixed", "b", "tip", xyz="0 0 0.5"),
    ]
    merged, system, state = built(robot(*parts), floating=True)
    assert system.topology.bodies == ("a",) and not system.topology.joints
    split, apart, start = built(robot(*parts), floating=True, merge_fixed=False)
    assert apart.topology.bodies == ("a", "b") and apart.topology.joints == ("weld",)
    for name in ("a", "b", "tip"):
        for one, other in zip(
            link_pose(merged, system, state, name),
            link_pose(split, apart, start, name),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, atol=EXACT)
    # The same mass, the same momentum in the same motion.
    twist = [0.3, -0.2, 0.5, 1.0, 2.0, -1.5]
    moved = system.state(pose={"a": (0.0, 0.0, 0.0)}, velocity={"a": twist})
    both = apart.state(pose={"a": (0.0, 0.0, 0.0)}, velocity={"a": twist})
    np.testing.assert_allclose(
        jj.momentum(system, moved), jj.momentum(apart, both), atol=EXACT, rtol=EXACT
    )


def test_joints_with_no_mass_between_them_are_one_joint_of_the_builder():
    text = robot(
        link("base", None),
        link("cross", None),
        link("a"),
        joint("x", "revolute", "base", "cross", axis="1 0 0", more='<limit effort="5"/>'),
        joint("y", "continuous", "cross", "a", xyz="0 0 0.3", axis="0 1 0"),
    )
    model, system, state = built(text)
    assert system.topology.joints == ("x+y",)
    assert dict(model.coordinates) == {"x": ("x+y", 0), "y": ("x+y", 1)}
    state = system.state(q={"x+y": [0.4, 0.7]})
    _, p = link_pose(model, system, state, "a")
    np.testing.assert_allclose(p, [0.0, -0.3 * np.sin(0.4), 0.3 * np.cos(0.4)], atol=EXACT)


@pytest.mark.slow
def test_a_mimic_starts_and_stays_where_it_mimics():
    text = robot(
        link("base", None),
        *(link(name) for name in "abcd"),
        joint("lead", "prismatic", "base", "a", more='<limit lower="0.1" upper="1"/>'),
        joint("last", "continuous", "base", "c", more='<mimic joint="next" multiplier="3"/>'),
        joint(
            *("next", "continuous", "base", "b"),
            more='<mimic joint="lead" multiplier="-2" offset="0.5"/>',
        ),
        # A fixed joint leads as one that stands at 0.
        joint("stand", "fixed", "base", "post"),
        link("post", None),
        joint("held", "continuous", "post", "d", more='<mimic joint="stand" offset="0.7"/>'),
    )
    held = "'held': mimics a joint that is fixed, and is held at 0.7"
    with pytest.warns(LoadWarning, match=held):
        system, state = load_urdf(text).build()
    at = {name: float(state.q[system.coordinate(name)][0]) for name in system.topology.joints}
    assert at == pytest.approx({"lead": 0.1, "next": 0.3, "last": 0.9, "held": 0.7})
    control = system.control(effort={"lead": 40.0, "held": 5.0})
    push = jax.jit(
        lambda state: jj.rollout(
            system, state, lambda _: control, dt=1e-3, steps=50, record_every=50
        )
    )
    state, _ = push(state)
    q = {name: float(jj.coordinates(system, state)[system.coordinate(name)][0]) for name in at}
    # 1 kg rises, and two of 0.25 kg m² turn at 2 and 6 times its speed, by semi-implicit steps.
    rise = 0.5 * (40.0 - 9.81) / (1.0 + 0.25 * 2**2 + 0.25 * 6**2) * 0.05 * 0.051
    assert q["lead"] == pytest.approx(0.1 + rise, abs=1e-6)
    assert q["next"] == pytest.approx(-2 * q["lead"] + 0.5, abs=1e-6)
    assert q["last"] == pytest.approx(3 * q["next"], abs=1e-6)
    assert q["held"] == pytest.approx(0.7, abs=1e-6)


def test_a_second_parent_closes_a_loop():
    text = robot(
        link("base", None),
        link("a"),
        link("b"),
        link("c"),
        joint("1", "continuous", "base", "a"),
        joint("2", "continuous", "a", "b", xyz="1 0 0"),
        joint("3", "continuous", "base", "c", xyz="0 1 0"),
        joint("4", "continuous", "c", "b", xyz="1 -1 0"),
    )
    with pytest.warns(LoadWarning, match="'4': closes a loop"):
        model = load_urdf(text)
    system, state = model.build()
    assert float(jnp.max(jj.joint_errors(system, state))) < EXACT
    with pytest.raises(LoadError, match="'4': closes a loop"):
        load_urdf(text, strict=True)


def test_a_caller_closes_a_loop_and_adds_a_second_robot():
    text = robot(link("base", None), link("rod"), joint("pivot", "continuous", "base", "rod"))
    world = jj.SystemBuilder()
    left = load_urdf(text, builder=world, prefix="left/")
    right = load_urdf(text, builder=world, prefix="right/", pose=(1.0, 0.0, 0.0))
    (a, frame_a), (b, frame_b) = left.frames["rod"], right.frames["rod"]
    world.joint("bar", jj.DoubleBall(1.0), child=b, parent=a, frame_C=frame_b, frame_D=frame_a)
    system, state = world.build()
    assert system.topology.joints == ("left/pivot", "right/pivot", "bar")
    np.testing.assert_allclose(link_pose(right, system, state, "rod")[1], [1.0, 0.0, 0.0])


def test_a_free_base_falls_and_a_fixed_one_stands():
    text = robot(link("trunk"), link("leg"), joint("hip", "continuous", "trunk", "leg"))
    fixed, standing, _ = built(text)
    assert fixed.frames["trunk"][0] == jj.WORLD and standing.topology.bodies == ("leg",)
    _, system, state = built(text, floating=True, pose=(0.0, 0.0, 2.0))
    state, _ = jax.jit(lambda state: jj.step(system, state, dt=0.01))(state)
    np.testing.assert_allclose(state.velocity[2], [-0.0981, -0.0981], atol=1e-12)


def test_a_massless_end_is_fixed_and_a_massless_fork_is_an_error():
    end = robot(
        link("base", None),
        link("a"),
        link("grip", None),
        joint("1", "continuous", "base", "a"),
        joint(
            "2",
            "prismatic",
            "a",
            "grip",
            xyz="1 0 0",
            axis="0 1 0",
            more='<limit lower="0.25" upper="1"/>',
        ),
    )
    with pytest.warns(LoadWarning, match="joint '2': moves no mass"):
        model = load_urdf(end)
    body, (position, _) = model.frames["grip"]
    assert body == "a" and "2" not in model.coordinates
    np.testing.assert_allclose(position, [1.0, 0.25, 0.0])
    fork = robot(
        *(link("base", None), link("fork", None), link("a"), link("b")),
        joint("1", "continuous", "base", "fork"),
        joint("2", "continuous", "fork", "a"),
        joint("3", "continuous", "fork", "b"),
    )
    with pytest.raises(LoadError, match="line 3, link 'fork': has no mass and carries 2 joints"):
        load_urdf(fork)


def test_an_inertia_without_mass_counts_for_the_body_that_carries_it():
    text = robot(
        *(link("base", None), link("a", 1.0, (0.1, 0.2, 0.25)), link("b", 0.0, (0.1, 0.2, 0.3))),
        joint("1", "continuous", "base", "a"),
        joint("2", "fixed", "a", "b", rpy="0 0 1.5707963267948966", xyz="1 0 0"),
    )
    _, system, _ = built(text)
    np.testing.assert_allclose(np.diag(system.inertia[:, :, 0]), [0.3, 0.3, 0.55], atol=EXACT)


def test_inertias_that_no_body_has_are_told():
    parts = [link("base", None), joint("1", "continuous", "base", "a")]
    rod = robot(*parts, link("a", 2.0, (0.1, 0.1, 0.0)))
    with pytest.warns(
        LoadWarning, match=r"link 'a': principal moments \[0.0, 0.1, 0.1\] -> \[2e-06"
    ):
        system, _ = load_urdf(rod).build()
    np.testing.assert_allclose(np.diag(system.inertia[:, :, 0]), [0.1, 0.1, 2e-6])
    point = robot(*parts, link("a", 2.0, (0.0, 0.0, 0.0)))
    with pytest.warns(LoadWarning, match="principal moments"):
        system, _ = load_urdf(point).build()
    np.testing.assert_allclose(np.diag(system.inertia[:, :, 0]), [2e-6] * 3)
    odd = robot(*parts, link("a", 2.0, (0.1, 0.1, 0.4)))
    with pytest.warns(LoadWarning, match="no rigid body has the principal moments"):
        system, _ = load_urdf(odd).build()
    np.testing.assert_allclose(np.diag(system.inertia[:, :, 0]), [0.1, 0.1, 0.4])
    with pytest.warns(UserWarning, match="raised to"):
        system, _ = load_urdf(odd, balance_inertia=True).build()
    np.testing.assert_allclose(np.diag(system.inertia[:, :, 0]), [0.2, 0.2, 0.4])


def test_a_spherical_joint_is_a_ball_whose_limit_is_listed():
    """An extension of PyBullet and MuJoCo."""
    more = '<limit lower="-1" upper="1" effort="3"/><dynamics damping="0.5" friction="0.25"/>'
    text = robot(link("base", None), link("a"), joint("neck", "spherical", "base", "a", more=more))
    with pytest.warns(LoadWarning):
        model = load_urdf(text)
    assert model.skipped == ("limit of spherical joint 'neck' (in line 4)",)
    (note,) = model.notes
    assert note.startswith("joint 'neck': dynamics acts on the coordinates of the ball joint")
    system, state = model.build()
    neck = system.joint("neck")
    assert isinstance(neck.coupling, jj.Ball) and neck.max_effort is None
    assert [type(law).__name__ for law in neck.laws] == ["Damping", "DryFriction"] * 3
    np.testing.assert_array_equal(state.q, [0.0] * 3)


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"\n\n", b""), (b"\xef\xbb\xbf \r\n\n", b""), (b"", b"\n\0"), (b"\n\n", b"\0\0")],
    ids=["blanks", "mark and blanks", "zero", "both"],
)
def test_blanks_before_the_declaration_and_zeros_after_the_end_are_passed_over(
    before, after, tmp_path
):
    """As other readers do; lines keep their numbers."""
    path = tmp_path / "a.urdf"
    good, bad = (robot(link("a", mass)) for mass in (1.0, -1.0))
    path.write_bytes(before + b'<?xml version="1.0"?>' + good.encode() + after)
    assert load_urdf(path, floating=True).builder.bodies == ("a",)
    path.write_bytes(before + b'<?xml version="1.0"?>' + bad.encode() + after)
    line = before.count(b"\n") + 2
    with pytest.raises(LoadError, match=f"line {line}, mass: value -1"):
        load_urdf(path)


def test_zeros_and_text_after_the_end_are_no_xml(tmp_path):
    path = tmp_path / "a.urdf"
    path.write_bytes(robot(link("a")).encode() + b"\0<robot/>")
    with pytest.raises(LoadError, match="is no well-formed XML"):
        load_urdf(path)


def test_what_is_skipped_is_listed_once():
    text = robot(
        link("base", None),
        link("a", more="<contact/>"),
        joint("1", "continuous", "base", "a", more='<safety_controller k_velocity="1"/>'),
        "<gazebo/>",
        "<gazebo><plugin/></gazebo>",
        "<transmission/>",
    )
    with pytest.warns(LoadWarning) as record:
        model = load_urdf(text)
    assert len(record) == 1
    assert model.skipped == (
        "contact of link (in line 3)",
        "safety_controller of joint (in line 4)",
        "gazebo (2 times, first in line 5)",
        "transmission, which adds no force: its joints are in Model.actuated (in line 7)",
    )
    for line in model.skipped:
        assert line in str(record[0].message)


def test_what_a_joint_of_its_type_does_not_read_is_listed_with_its_name():
    more = '<limit lower="-1" upper="1" velocity="3"/><dynamics damping="0.5" friction="0.25"/>'
    text = robot(
        *(link("base", None), *(link(name) for name in "abcde")),
        joint("slip", "planar", "base", "a", more=more),
        joint("fly", "floating", "base", "b", more=more),
        joint("spin", "continuous", "base", "c", more=more),
        joint("weld", "fixed", "base", "d", more=more + '<mimic joint="spin"/>'),
        joint("held", "continuous", "base", "e", more='<mimic joint="weld" offset="0.7"/>'),
    )
    with pytest.warns(LoadWarning):
        model = load_urdf(text)
    assert model.skipped == (
        "limit of planar joint 'slip' (in line 8)",
        "limit of floating joint 'fly' (in line 9)",
        "dynamics of floating joint 'fly' (in line 9)",
        "lower and upper of continuous joint 'spin' (in line 10)",
        "mimic of fixed joint 'weld' (in line 11)",
    )
    assert dict(model.speed_limits) == {"spin": 3.0}
    # A fixed joint stands at 0.
    assert model.notes == ("joint 'held': mimics a joint that is fixed, and is held at 0.7",)
    system, state = model.build()
    assert float(state.q[system.coordinate("held")][0]) == pytest.approx(0.7)
    assert system.topology.transmissions == ("held mimics weld",)
    kinds = [[type(law).__name__ for law in system.joint(name).laws] for name in ("slip", "fly")]
    assert kinds == [["Damping", "DryFriction"] * 3, []]


def test_a_model_in_which_nothing_moves_names_its_links():
    said = r"link 'cup' \(in line \d+\): stands in the world, and nothing .*floating=True"
    with pytest.warns(LoadWarning, match=said):
        model = load_urdf(robot(link("cup")))
    with pytest.raises(ValueError, match="'robot': 'cup' stands in the world.*floating=True"):
        model.build()
    # A floor has no mass that would be left out, and a free cup moves.
    assert load_urdf(robot(link("floor", None))).notes == ()
    assert load_urdf(robot(link("cup")), floating=True).notes == ()
    world = jj.SystemBuilder()
    with pytest.warns(LoadWarning, match=said):
        load_urdf(robot(link("cup")), builder=world)
    world.body("ball", mass=1.0, inertia=(0.1, 0.1, 0.1))
    assert world.build()[0].topology.bodies == ("ball",)


def test_shapes_are_kept_with_their_colors():
    box = '<visual><origin xyz="0 0 1" rpy="0 0 1.5707963267948966"/>{}{}</visual>'
    text = robot(
        '<material name="red"><color rgba="1 0 0 1"/></material>',
        link(
            "base",
            None,
            more=box.format('<geometry><box size="1 2 3"/></geometry>', '<material name="red"/>')
            + '<collision><geometry><cylinder radius="0.5" length="2"/></geometry></collision>',
        ),
        link("tip", None, more='<visual><geometry><sphere radius="0.25"/></geometry></visual>'),
        link("arm"),
        joint("turn", "continuous", "base", "arm"),
        joint("mark", "fixed", "arm", "tip", xyz="0 0 3"),
    )
    model, *_ = built(text)
    box, ball = model.visuals
    assert box.body == jj.WORLD and box.color == (1.0, 0.0, 0.0, 1.0)
    np.testing.assert_array_equal(box.shape.size, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(box.frame[0], [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=EXACT)
    assert ball.body == "arm" and ball.shape.radius == 0.25
    np.testing.assert_allclose(ball.frame[1], [0.0, 0.0, 3.0])
    (cylinder,) = model.collisions
    assert (cylinder.shape.radius, cylinder.shape.length) == (0.5, 2.0)


BASE = (link("base", None), link("a"))
TURN = joint("j", "continuous", "base", "a")
ENTITY = '<!DOCTYPE r [<!ENTITY a "{}">]><robot name="r"><link name="&a;"/></robot>'
BAD = {
    "no xml": ("<robot", "line 1: is no well-formed XML"),
    "other format": ("<mujoco/>", "must be 'robot'"),
    "empty": ("<robot/>", "has no link"),
    "entity bomb": (ENTITY.format("aaaa" * 10), "line 1: document types and entities are refused"),
    "external entity": (
        '<!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/passwd">]><robot>&a;</robot>',
        "document types and entities are refused",
    ),
    "remote document type": (
        '<!DOCTYPE r SYSTEM "http://localhost/r.dtd"><robot/>',
        "document types and entities are refused",
    ),
    "xinclude": (
        '<robot xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="/etc/hosts"/></robot>',
        "XInclude is not followed",
    ),
    "xacro": (
        '<robot xmlns:xacro="http://ros.org/wiki/xacro"><xacro:property name="a"/></robot>',
        "expand the file first",
    ),
    "two of a name": (
        robot(link("a"), link("a")),
        "line 3, link 'a': this name is taken in line 2",
    ),
    "no name": (robot("<link/>"), "line 2, link: attribute 'name' is missing"),
    "empty name": (robot('<link name=""/>'), "name must have 1 to 256 characters"),
    "long name": (robot(f'<link name="{"a" * 10_000}"/>'), "name must have 1 to 256 characters"),
    "two bases": (robot(link("a"), link("b")), "'b': has no parent, nor has 'a'"),
    "circle": (
        robot(*BASE, joint("1", "fixed", "a", "base"), joint("2", "fixed", "base", "a")),
        "one must have none",
    ),
    "circle beside the base": (
        robot(*BASE, link("b"), joint("1", "fixed", "a", "b"), joint("2", "fixed", "b", "a")),
        "its joints lead in a circle",
    ),
    "no parent": (robot(*BASE, '<joint name="j" type="fixed"/>'), "joint 'j': has no parent"),
    "unknown link": (robot(*BASE, joint("j", "fixed", "base", "arm")), "child 'arm' is no link"),
    "near name": (
        robot(link("forearm", None), link("a"), joint("j", "fixed", "forarm", "a")),
        "parent 'forarm' is no link of the robot; did you mean 'forearm'",
    ),
    "joint of an extension": (
        robot(*BASE, '<x:joint xmlns:x="http://x.org" name="u"><child link="a"/></x:joint>'),
        "line 4, joint 'u': is a joint of http://x.org, which is not read, so link 'a' has no",
    ),
    "prefix of nothing": (robot(*BASE, "<drake:joint/>"), "line 4: .*declare it in the outermost"),
    "too far": (
        robot(*BASE, TURN, link("b"), joint("far", "fixed", "a", "b", xyz="1e200 0 0")),
        r"line 3, link 'a': cannot be read \(FloatingPointError: overflow.*check its numbers",
    ),
    "own parent": (robot(*BASE, joint("j", "fixed", "a", "a")), "parent and child are both 'a'"),
    "unknown type": (robot(*BASE, joint("j", "hinge", "base", "a")), "type 'hinge' must be one of"),
    "no axis": (
        robot(*BASE, joint("j", "continuous", "base", "a", axis="0 0 0")),
        "line 4, axis: xyz .* has no direction",
    ),
    "crossed limits": (
        robot(*BASE, joint("j", "revolute", "base", "a", more='<limit lower="1" upper="0"/>')),
        "lower 1 must not be above upper 0; leave both out",
    ),
    "negative damping": (
        robot(*BASE, joint("j", "revolute", "base", "a", more='<dynamics damping="-1"/>')),
        "damping -1 must be >= 0",
    ),
    "two axes": (
        robot(*BASE, joint("j", "revolute", "base", "a", more='<axis xyz="1 0 0"/>')),
        "stands 2 times",
    ),
    "negative mass": (robot(link("a", -1.0)), "mass: value -1 must be >= 0"),
    "no mass": (robot('<link name="a"><inertial/></link>'), "inertial: has no mass"),
    "mimic of itself": (
        robot(*BASE, joint("j", "continuous", "base", "a", more='<mimic joint="j"/>')),
        "in a circle: j -> j",
    ),
    "mimics in a circle": (
        robot(
            *(*BASE, link("b")),
            joint("1", "continuous", "base", "a", more='<mimic joint="2"/>'),
            joint("2", "continuous", "a", "b", more='<mimic joint="1"/>'),
        ),
        "line 5, mimic: joints mimic each other in a circle: 1 -> 2 -> 1",
    ),
    "mimic of nothing": (
        robot(*BASE, joint("j", "continuous", "base", "a", more='<mimic joint="k"/>')),
        "joint 'k' of joint 'j' is no joint",
    ),
    "no geometry": (robot(link("a", more="<visual/>")), "visual: has no geometry"),
} | {
    f"number {text!r}": (
        robot(*BASE, joint("j", "fixed", "base", "a", xyz=text)),
        "line 4, origin: xyz .* must be",
    )
    for text in (
        "1e999 0 0",
        "0x10 0 0",
        "1,0 0 0",
        "",
        "nan 0 0",
        "٣ 0 0",
        "1 2",
        "1 2 3 4",
        "1_0 0 0",
    )
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=list(BAD))
def test_a_bad_file_is_refused_with_line_and_element(text, message):
    with pytest.raises(LoadError, match=message):
        load_urdf(text)


def test_sizes_are_limited():
    deep = robot("<link>" * 2000 + "</link>" * 2000)
    with pytest.raises(LoadError, match="nested deeper than 100"):
        load_urdf(deep)
    with pytest.raises(LoadError, match="is element 11; at most 10 are read"):
        load_urdf(robot(*["<gazebo/>"] * 20), limits=FileLimits(elements=10))
    with pytest.raises(LoadError, match="at most 100 are read"):
        load_urdf(robot(*["<gazebo/>"] * 20), limits=FileLimits(size=100))


def test_a_file_that_is_not_there_is_no_load_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="robot.urdf"):
        load_urdf(tmp_path / "robot.urdf")
    with pytest.raises(LoadError, match="is no regular file"):
        load_urdf(tmp_path)


@pytest.mark.slow
def test_collision_shapes_touch_a_ground_on_request(tmp_path):
    """Boxes, cylinders, spheres and the hulls of meshes, on a half-space and a height field."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    points = 0.1 * x / np.linalg.norm(x, axis=1)[:, None]
    hull = ConvexHull(points)
    corners = [f"v {x:.9f} {y:.9f} {z:.9f}" for x, y, z in points]
    faces = ["f " + " ".join(str(i + 1) for i in simplex) for simplex in hull.simplices]
    (tmp_path / "rock.obj").write_text("\n".join(corners + faces), encoding="utf-8")
    shapes_of = {
        "drum": '<cylinder radius="0.1" length="0.2"/>',
        "rock": '<mesh filename="rock.obj"/>',
        "foot": '<box size="0.2 0.2 0.2"/>',
    }
    links = [
        f"""<link name="{name}"><inertial><mass value="1"/>
        <inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial>
        <collision><geometry>{shape}</geometry></collision></link>"""
        for name, shape in shapes_of.items()
    ]
    joints = [
        f"""<joint name="{name} rail" type="prismatic"><parent link="world"/><child link="{name}"/>
        <origin xyz="0 {i} 0.11"/><axis xyz="0 0 1"/><limit effort="0" velocity="0"/></joint>"""
        for i, name in enumerate(shapes_of)
    ]
    text = f'<robot name="r"><link name="world"/>{"".join(links + joints)}</robot>'
    model = load_urdf(text, roots=[tmp_path])
    names = model.add_ground(friction=0.5)
    counts = {"drum": 4, "rock": 8, "foot": 8}
    assert [sum(one.startswith(name) for one in names) for name in counts] == list(counts.values())
    with pytest.raises(ValueError, match="no body 'feet' has collision shapes; there are"):
        model.add_ground(bodies=["feet"])
    ramp = jj.shapes.HeightField(np.zeros((3, 3)), (4.0, 4.0))
    fields = load_urdf(text, roots=[tmp_path])
    assert len(fields.add_ground(ramp, bodies=["f*"], frame=(0.0, 2.0, 0.0))) == 8
    system, state = model.build()
    run = jax.jit(lambda s: jj.rollout(system, s, dt=2e-3, steps=200, record_every=200)[0])
    # The simplified hull has its lowest vertex within a millimetre of the rock's.
    np.testing.assert_allclose(run(state).position[2], 0.1, atol=1.5e-3)
    with pytest.raises(ValueError, match="no body '\\*' has collision shapes; load the file with"):
        load_urdf(text, visuals=False).add_ground()
