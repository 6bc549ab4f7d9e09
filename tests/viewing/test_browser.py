"""The page in a browser: bodies, slider, layers, plots; no request, no error, no hostile name."""

import jax
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.models.geometry import Box, Capsule, Cylinder, Mesh, Plane, Sphere, Visual
from support.mechanisms import chain, pendulum
from support.motions import HOSTILE, moving

SINGLE = 1e-5  # the page's numbers are float32, of order one, and taken between frames
SLIDE = "(slider, share) => { slider.value = share; slider.dispatchEvent(new Event('input')); }"
WAIT = 300  # for some frames to be drawn [ms]
# Where the shapes of a layer stand in the picture, along x and y.
PLACES = """[...swarms.values()].filter((swarm) => swarm.layer === 'LAYER').flatMap(({ mesh }) =>
    [...Array(mesh.count).keys()].map((i) => [...mesh.instanceMatrix.array.slice(16 * i + 12)]))"""


def frame_of(states, frame):
    return jax.tree.map(lambda x: x[frame], states)


def test_a_browser_shows_the_bodies_and_the_slider_moves_them(four, browser, tmp_path):
    system, (states, _) = four
    path = jj.view(*four, traces="coupler").save(tmp_path / "four.html")
    with browser(path) as visit:
        assert visit.run("viewer.bodies") == list(system.topology.bodies)
        assert visit.page.locator("#bodies li").count() == 3
        assert visit.run("viewer.drawn('inertia')") == 3 * 3
        for frame in (0, 3, 7):
            share = float((states.time[frame] - states.time[0])[0] / np.ptp(states.time))
            visit.page.locator("#slider").evaluate(SLIDE, share)
            pose = jj.body_poses(system, frame_of(states, frame))
            for body, name in enumerate(system.topology.bodies):
                place = visit.run(f"viewer.position('{name}', 1)")
                np.testing.assert_allclose(place, pose.p[:, body, 1], atol=SINGLE)
        assert visit.problems == [] and visit.requests == []


@pytest.mark.slow
def test_a_browser_draws_every_layer_and_plots(swing, browser, tmp_path):
    path = jj.view(*swing, side_by_side=True).save(tmp_path / "swing.html")
    with browser(path) as visit:
        for box in visit.page.locator("#layers input").all():
            box.check()
        visit.page.locator("#joints input").check()
        visit.run("viewer.seek(viewer.end)")
        visit.page.wait_for_timeout(WAIT)
        for layer in ("skeleton", "inertia", "com", "joints", "axes", "limits", "forces", "frames"):
            assert visit.run(f"viewer.drawn('{layer}')") > 0, layer
        assert visit.page.locator("#plot canvas").is_visible()
        for quantity in range(visit.page.locator("#quantity option").count()):
            visit.page.select_option("#quantity", str(quantity))
        visit.page.locator("#play").click()
        visit.page.wait_for_timeout(WAIT)
        assert visit.problems == [] and visit.requests == []


def test_a_browser_draws_every_shape(browser, tmp_path):
    system, state = pendulum()
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], float)
    faces = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    shapes = [Box(np.array([1.0, 2.0, 3.0])), Sphere(0.2), Cylinder(0.1, 0.5), Capsule(0.1, 0.5)]
    shapes += [Mesh(corners, faces), Mesh(corners, faces[:0]), Plane()]
    place = np.eye(3), np.array([0.1, 0.2, 0.3])
    visuals = [Visual("bob", place, shape) for shape in shapes]
    path = jj.view(system, state, visuals=visuals).save(tmp_path / "shapes.html")
    with browser(path) as visit:
        visit.page.wait_for_timeout(WAIT)
        assert visit.run("viewer.drawn('geometry')") == len(shapes) + 2  # ends of the capsule
        assert visit.run("viewer.drawn('skeleton')") == 0
        assert visit.problems == [] and visit.requests == []


@pytest.mark.slow
def test_forces_of_contacts_stand_below_bodies_that_stand_side_by_side(browser, tmp_path):
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -9.81))
    world.body("ball", mass=1.0, inertia=(0.004, 0.004, 0.004), pose=(0.0, 0.0, 0.1))
    world.contact("sole", jj.shapes.Sphere(0.1), jj.shapes.HalfSpace(), child="ball", friction=0.5)
    system, state = world.build()
    view = jj.view(system, moving(system, jj.replicate(state, 4)), side_by_side=True)
    with browser(view.save(tmp_path / "balls.html")) as visit:
        visit.page.wait_for_timeout(WAIT)
        arrows, balls = (
            {tuple(round(x, 4) for x in place[:2]) for place in visit.run(script)}
            for script in (PLACES.replace("LAYER", layer) for layer in ("contacts", "geometry"))
        )
        assert len(balls) == 4 and arrows == balls


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_body_that_goes_far_stays_in_the_picture_on_the_ground(runner, browser, tmp_path, share):
    with browser(jj.view(*runner).save(tmp_path / "runner.html")) as visit:
        visit.run(f"viewer.seek(viewer.end * {share})")
        visit.page.wait_for_timeout(WAIT)
        for body in ("cart", "weight"):
            point = f"new Vector3(...viewer.position('{body}')).project(camera).toArray()"
            assert np.abs(visit.run(point)).max() < 1, body
        way = visit.run("ground.position.x") - visit.run("viewer.position('cart')")[0]
        assert abs(way) < 1.0
        # What is in the shadow of nothing lies outside of the light's frustum.
        light = "new Vector3(...viewer.position('cart')).project(sun.shadow.camera).toArray()"
        assert np.abs(visit.run(light)).max() < 1
        assert visit.problems == []


@pytest.mark.slow
def test_hostile_names_do_not_run(browser, tmp_path):
    world = jj.SystemBuilder()
    for i, name in enumerate(HOSTILE):
        world.body(name, mass=1.0, inertia=(0.1, 0.1, 0.1))
        world.joint(name, jj.Hinge(), child=name, frame_D=(1.0 * i, 0.0, 0.0))
    system, state = world.build()
    trajectory = moving(system, state)
    path = jj.view(system, trajectory, title=HOSTILE[1]).save(tmp_path / "hostile.html")
    with browser(path) as visit:
        visit.page.locator("input[data-layer=names]").check()
        for box in visit.page.locator("#joints input").all():
            box.check()
        visit.page.wait_for_timeout(WAIT)
        assert visit.page.locator("#bodies li").count() == len(HOSTILE)
        assert visit.page.locator("#bodies li .name").first.text_content() == HOSTILE[0]
        assert visit.run("window.ran") is None
        assert visit.problems == [] and visit.requests == []


def test_the_page_lets_no_request_through(swing, browser, tmp_path):
    path = jj.view(*swing).save(tmp_path / "swing.html")
    with browser(path) as visit:
        refused = visit.run("fetch('https://localhost/').then(() => 'answered', () => 'refused')")
        assert refused == "refused"
        assert visit.requests == []
        assert any("Content Security Policy" in problem for problem in visit.problems)


def test_a_bare_page_is_the_picture_alone(swing, browser, tmp_path):
    with browser(jj.view(*swing).save(tmp_path / "swing.html")) as visit:
        cards = visit.page.locator(".card:visible")
        assert cards.count() > 0
        visit.page.keyboard.press("b")
        assert cards.count() == 0


@pytest.mark.slow
def test_hundreds_of_bodies_fit(browser, tmp_path):
    system, state = chain(200)
    view = jj.view(system, jj.replicate(state, 4), side_by_side=True)
    with browser(view.save(tmp_path / "chain.html")) as visit:
        visit.page.wait_for_timeout(WAIT)
        assert visit.run("viewer.drawn('inertia')") == 800
        assert visit.problems == [] and visit.requests == []
