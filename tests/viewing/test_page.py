"""The page as text: the numbers it holds, and that nothing in it acts but its scripts."""

import base64
import hashlib
import html
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.models import load_urdf
from jaxjoints.models.geometry import Box, Plane, Sphere, Visual
from support.mechanisms import four_bar, pendulum
from support.motions import HOSTILE
from support.urdf import joint, link, robot

SINGLE = 1e-6  # the page's numbers are float32, of order one


def document(view):
    """What the scripts of a page read."""
    text = re.search(r'<script type="application/json" id="motion">(.*?)</script>', view.page, re.S)
    return json.loads(text[1])


def decoded(array):
    values = np.frombuffer(base64.b64decode(array["data"]), "<" + array["type"])
    return values.reshape(array["shape"])


@pytest.mark.slow
def test_the_page_holds_the_poses_of_the_trajectory(four):
    system, (states, _) = four
    channels = document(jj.view(*four))["channels"]
    poses, time = decoded(channels["poses"]), decoded(channels["time"])
    assert poses.shape == (8, 1, 3, 7)  # environments that are alike are stored once
    expected = jj.body_poses(system, jax.tree.map(lambda x: x[7], states))
    np.testing.assert_allclose(poses[7, 0, :, :3], expected.p[..., 0].T, atol=SINGLE)
    np.testing.assert_allclose(poses[7, 0, :, 3:], expected.q[..., 0].T, atol=SINGLE)
    np.testing.assert_allclose(time, states.time[:, 0], atol=SINGLE)


def test_nothing_is_asked_of_a_network(swing):
    page = jj.view(*swing).page
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', page)[1]
    sources = dict(part.split(" ", 1) for part in policy.split("; "))
    assert sources["default-src"] == "'none'"
    for kind, tag in (("script-src", "script"), ("style-src", "style")):
        bodies = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        digests = [base64.b64encode(hashlib.sha256(b.encode()).digest()).decode() for b in bodies]
        assert sources[kind] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert not re.search(r"<(link|img|iframe|object|embed)\b|<script[^>]+src=", page)


def test_names_are_no_markup():
    world = jj.SystemBuilder()
    for name in HOSTILE:
        world.body(name, mass=1.0, inertia=(0.1, 0.1, 0.1), pose=(0.0, 0.0, 0.0))
    system, state = world.build()
    page = jj.view(system, state, title=HOSTILE[0]).page
    page.encode("utf-8")
    between = re.search(r'id="motion">(.*)', page, re.S)[1].partition("</script>")[0]
    assert not set("<>&") & set(between)
    names = json.loads(between)["bodies"]
    assert names[0] == HOSTILE[0] and all(name.isprintable() for name in names)
    assert max(map(len, names)) == 120
    assert "<title>&lt;/script&gt;" in page


def test_a_notebook_shows_the_page_in_a_frame_without_rights(swing):
    view = jj.view(*swing, height=300)
    text = view._repr_html_()
    assert 'sandbox="allow-scripts"' in text and "height: 300px" in text
    assert html.unescape(re.search(r'srcdoc="(.*?)"', text, re.S)[1]) == view.page


def test_save_writes_the_page(swing, tmp_path):
    view = jj.view(*swing)
    assert view.save(tmp_path / "motion.html").read_text(encoding="utf-8") == view.page


@pytest.mark.slow
def test_long_motions_are_thinned_out_and_it_is_said(swing):
    system, (states, infos) = swing
    view = jj.view(system, (states, infos), frames=3)
    assert view.notes == ("3 of 8 frames are shown, evenly spread.",)
    time = decoded(document(view)["channels"]["time"])
    np.testing.assert_allclose(time, np.asarray(states.time)[[0, 4, 7]], atol=SINGLE)
    long = jax.tree.map(lambda x: np.repeat(x[:1], 1_000_000, 0), states)
    long = jj.replace(long, time=np.arange(1e6))
    view = jj.view(system, long)
    assert view.notes == ("1500 of 1000000 frames are shown, evenly spread.",)
    assert view.notes[0] in repr(view)


@pytest.mark.slow
def test_frames_that_are_not_finite_are_left_out(swing):
    system, (states, _) = swing
    position = np.array(states.position)
    position[2] = np.nan
    position[5] = np.inf
    view = jj.view(system, jj.replace(states, position=position))
    assert view.notes == ("2 of 8 frames are not finite and are left out.",)
    assert len(decoded(document(view)["channels"]["time"])) == 6
    with pytest.raises(ValueError, match="in each frame some position is not finite"):
        jj.view(system, jj.replace(states, position=np.full_like(position, np.nan)))


def test_forces_are_those_of_info(swing):
    _, (_, infos) = swing
    channels = document(jj.view(*swing))["channels"]
    np.testing.assert_allclose(
        decoded(channels["wrenches"])[:, 0, 0], infos.wrench[:, :, 0], rtol=SINGLE, atol=SINGLE
    )
    assert "wrenches" not in document(jj.view(swing[0], swing[1][0]))["channels"]


def test_unit_twists_are_those_of_the_joints(swing):
    (joint,) = document(jj.view(*swing))["joints"]
    axes = decoded(joint["axes"])
    assert axes.shape == (1, 1, 1, 6)  # constant in C
    np.testing.assert_allclose(axes[0, 0, 0], [0, 0, 0, 0, 1, 0], atol=SINGLE)


def test_the_box_of_a_motion_that_goes_far_holds_what_moves_about_the_first_body(runner):
    system, states = runner
    page = document(jj.view(system, states))
    assert page["follow"] == 0
    # The cart is a ball of 0.2 m at 0.1 m; the weight, of 0.1 m, rises from 1 to 2 m above it.
    np.testing.assert_allclose(page["box"], [[-0.1, -0.1, 0.0], [0.1, 0.1, 2.15]], atol=SINGLE)
    near = document(jj.view(system, jax.tree.map(lambda x: x[:2], states)))
    assert near["follow"] == -1


@pytest.mark.slow
def test_limits_of_environments_may_differ():
    system, state = pendulum(q=0.1, laws=[jj.Limits(lower=-0.5, upper=0.6)])
    stop = system.joint("pivot").laws[0]
    upper = jnp.array([0.3, 0.4])
    system = system.with_joint("pivot", laws=(jj.replace(stop, upper=upper),))
    page = document(jj.view(system, jj.replicate(state, 2), environments=[1, 0]))
    limits = decoded(page["channels"]["limits"])
    np.testing.assert_allclose(limits[:, 0], [[-0.5, 0.4], [-0.5, 0.3]], atol=SINGLE)


def test_boxes_of_inertia_have_the_mass_and_inertia_of_the_body():
    world = jj.SystemBuilder()
    edges, mass = np.array([0.2, 0.5, 0.3]), 3.0
    inertia = mass / 12 * np.array([0.5**2 + 0.3**2, 0.2**2 + 0.3**2, 0.2**2 + 0.5**2])
    world.body("box", mass=mass, inertia=inertia, com=(0.1, 0.2, 0.3), pose=(0.0, 0.0, 0.0))
    page = document(jj.view(*world.build()))
    (i,) = [i for i, part in enumerate(page["parts"]) if part["layer"] == "inertia"]
    frame, size = (decoded(page["channels"][name])[0, i] for name in ("partFrames", "partSizes"))
    np.testing.assert_allclose(sorted(size), sorted(edges), atol=1e-5)
    np.testing.assert_allclose(frame[:3], [0.1, 0.2, 0.3], atol=SINGLE)
    # The longest edge, along y, is turned there from whichever axis of the box it has.
    long = np.eye(3)[np.argmax(size)]
    turned = jj.Pose.rotation(jnp.asarray(frame[3:], float)).rotate(jnp.asarray(long))
    np.testing.assert_allclose(np.abs(turned), [0, 1, 0], atol=1e-5)


def test_a_level_plane_of_the_world_is_the_ground():
    system, state = pendulum()
    place = np.eye(3), np.array([0.0, 0.0, -3.0])
    page = document(jj.view(system, state, visuals=[Visual(jj.WORLD, place, Plane())]))
    assert page["ground"] == -3.0 and not page["drawn"]
    assert "plane" not in {part["kind"] for part in page["parts"]}
    assert document(jj.view(system, state))["ground"] < -1.0  # below the bob


def test_a_model_gives_its_visuals_and_a_plan_its_states(swing):
    text = robot(
        link("base", None),
        link("arm", more='<visual><geometry><sphere radius="0.3"/></geometry></visual>'),
        joint("axle", "continuous", "base", "arm"),
    )
    model = load_urdf(text)
    system, state = model.build()
    with_model, with_shapes = (
        document(jj.view(system, state, visuals=visuals)) for visuals in (model, model.visuals)
    )
    assert with_model["parts"] == with_shapes["parts"]
    assert "sphere" in [part["kind"] for part in with_model["parts"]]
    system, (states, _) = swing
    plan = jj.optimization.Plan(*[None] * 10)
    plan = jj.replace(plan, states=states)
    assert jj.view(system, plan).page == jj.view(system, states).page


def test_touching_shapes_stand_for_bodies_without_visuals():
    world = jj.SystemBuilder()
    world.body("ball", mass=1.0, inertia=(0.1, 0.1, 0.1), pose=(0.0, 0.0, 1.0))
    world.contact("floor", jj.shapes.Sphere(0.2), jj.shapes.HalfSpace(), child="ball")
    system, state = world.build()
    page = document(jj.view(system, state))
    (i,) = [i for i, part in enumerate(page["parts"]) if part["layer"] == "geometry"]
    np.testing.assert_allclose(decoded(page["channels"]["partSizes"])[0, i], 0.4, atol=SINGLE)
    assert page["ground"] == 0.0 and page["contacts"] == ["floor"] and not page["joints"]
    box = Visual("ball", (np.eye(3), np.zeros(3)), Box(np.ones(3)))
    parts = document(jj.view(system, state, visuals=[box]))["parts"]
    assert [part["kind"] for part in parts if part["layer"] == "geometry"] == ["box"]


def test_a_robot_that_touches_with_its_foot_alone_is_drawn_whole():
    """By rods, of which one reaches the foot, and by the inertia of what has no shape."""
    world = jj.SystemBuilder()
    world.body("trunk", mass=1.0, inertia=(0.1, 0.1, 0.1), pose=(0.0, 0.0, 1.0))
    world.body("leg", mass=1.0, inertia=(0.1, 0.1, 0.1), pose=(0.0, 0.0, 0.6))
    world.joint("hip", jj.Hinge(), child="leg", parent="trunk", frame_W=(0.0, 0.0, 0.9))
    world.contact(
        "foot", jj.shapes.Sphere(0.1), jj.shapes.HalfSpace(), child="leg", frame_C=(0.2, 0, -0.5)
    )
    page = document(jj.view(*world.build()))
    channels = (page["channels"][name] for name in ("partFrames", "partSizes"))
    places, sizes = (decoded(channel)[0].astype(float) for channel in channels)
    drawn = [i for i, part in enumerate(page["parts"]) if part["layer"] == "geometry"]
    by_body = [[i for i in drawn if page["parts"][i]["body"] == body] for body in (0, 1)]
    kinds = [sorted(page["parts"][i]["kind"] for i in of_body) for of_body in by_body]
    # Rod to the hip, ball and box; rods to hip and foot, ball and foot.
    assert kinds == [["box", "cylinder", "sphere"], ["cylinder", "cylinder", "sphere", "sphere"]]
    rods = {tuple(places[i, :3].round(3)): sizes[i, 2] for i in by_body[1] if sizes[i, 2] > 0.25}
    assert rods.keys() == {(0.0, 0.0, 0.15), (0.1, 0.0, -0.25)}
    np.testing.assert_allclose(rods[0.1, 0.0, -0.25], np.hypot(0.2, 0.5), atol=SINGLE)


@pytest.mark.slow
def test_every_shape_that_touches_is_drawn_once():
    """Box, capsule and mesh of few vertices as well, which touch the ground with parts."""
    world = jj.SystemBuilder()
    shapes, ground = jj.shapes, jj.shapes.HalfSpace()
    turned = ((0.1, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0))
    points = np.random.default_rng(0).normal(size=(40, 3))
    tent = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
    box, plate, rod = shapes.Box((0.2, 0.3, 0.4)), shapes.Box((1, 1, 0.1)), shapes.Capsule(0.1, 0.4)
    capsule = ["cylinder", "sphere", "sphere"]
    of_body = {
        "drum": (shapes.Cylinder(0.2, 0.5), ground, ["cylinder"]),
        "stone": (shapes.ConvexMesh.hull_of(points), ground, ["mesh"]),
        "tent": (shapes.ConvexMesh(tent), ground, ["mesh"]),
        "crate": (box, ground, ["mesh"]),
        "block": (box, plate, ["box"]),
        "rod": (rod, shapes.HeightField(np.zeros((3, 4)), (4.0, 6.0)), capsule),
        "bar": (rod, plate, capsule),
    }
    for i, (name, (shape, below, _)) in enumerate(of_body.items()):
        world.body(name, mass=1.0, inertia=(0.1, 0.1, 0.1), pose=(3.0 * i, 0.0, 2.0))
        world.contact(name, shape, below, child=name, frame_C=turned)
    page = document(jj.view(*world.build()))
    sizes = decoded(page["channels"]["partSizes"])[0]
    drawn = [(p, size) for p, size in zip(page["parts"], sizes, strict=True)]
    drawn = [(part, size) for part, size in drawn if part["layer"] == "geometry"]
    for i, (_, _, kinds) in enumerate(of_body.values()):
        assert sorted(part["kind"] for part, _ in drawn if part["body"] == i) == kinds
    # The height field, and one plate, which two bodies touch.
    assert sorted(part["kind"] for part, _ in drawn if part["body"] < 0) == ["box", "mesh"]
    tubes = [size for part, size in drawn if part["kind"] == "cylinder"]
    expected = [[0.4, 0.4, 0.5], [0.2, 0.2, 0.4], [0.2, 0.2, 0.4]]
    np.testing.assert_allclose(sorted(tubes, key=lambda x: -x[0]), expected, atol=SINGLE)
    assert len(page["meshes"]) == 4


@pytest.fixture(scope="module")
def three():
    """A four-bar that stands still in three environments."""
    system, state = four_bar()
    states = jax.tree.map(lambda x: jnp.stack([x] * 8), jj.replicate(state, 3))
    return system, jj.replace(states, time=states.time + 0.02 * jnp.arange(8.0)[:, None])


@pytest.mark.parametrize(
    "given, message",
    [
        ({"trajectory": "state"}, "trajectory is str; give a State with time in front"),
        ({"trajectory": "of another"}, r"positions have shape .*; those of this system have"),
        ({"environments": 3}, r"environments \[3\]: there are 3, counted from 0"),
        ({"environments": []}, r"environments \(\): there are 3"),
        ({"frames": 0}, "frames 0 must be >= 1"),
        ({"title": None}, "title None must be a text"),
        ({"height": "big"}, "height 'big' must be a whole number"),
        ({"side_by_side": "yes"}, "side_by_side 'yes' must be True or False"),
        ({"visuals": "robot.urdf"}, "visuals 'robot.urdf' must be a Model"),
        ({"traces": "crnk"}, "traces: there is no body 'crnk'; did you mean 'crank'?"),
        ({"traces": {"crank": (1.0, 2.0)}}, "traces: point .* of body 'crank' must be 3 numbers"),
        (
            {"visuals": [Visual("crnk", (np.eye(3), np.zeros(3)), Sphere(0.1))]},
            "visuals: there is no body 'crnk'; did you mean 'crank'?",
        ),
    ],
)
def test_what_cannot_be_shown_is_said(three, swing, given, message):
    system, trajectory = three
    if given.get("trajectory") == "of another":
        given = {"trajectory": swing[1]}
    with pytest.raises(ValueError, match=message):
        jj.view(**{"system": system, "trajectory": trajectory} | given)
