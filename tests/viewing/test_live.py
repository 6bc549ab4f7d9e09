"""The live view: sliders pose and drive the mechanism that its server shows."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from support.mechanisms import chain, four_bar

pytest.importorskip("viser", reason="viser is not installed")


@pytest.fixture
def shown(request):
    """A function (system, state) → live view, which ends with the test."""
    views = []

    def show(system, state, **options):
        views.append(jj.live(system, state, port=0, **options))
        return views[-1]

    yield show
    for view in views:
        view.stop()


def assert_bodies_are_where_the_state_has_them(view, system):
    # What it shows stays where a change is less than that.
    close = {"rtol": 1e-5, "atol": 1e-8}
    with view._lock:
        poses = jj.body_poses(system, view.state)
        for i in range(len(system.topology.bodies)):
            np.testing.assert_allclose(view._bodies[i].position, poses.p[:, i], **close)
            np.testing.assert_allclose(view._bodies[i].wxyz, poses.q[:, i], **close)


@pytest.mark.slow
def test_a_posed_linkage_is_closed(shown):
    system, state = four_bar()
    view = shown(system, state)
    q = np.asarray(jj.coordinates(system, state)) + np.array([0.3, 0.0, 0.0, 0.0])
    posed = view.pose(q)
    assert jj.joint_errors(system, posed).max() < 1e-9
    assert np.abs(posed.position - state.position).max() > 0.01
    assert not np.any(posed.velocity) and not np.any(posed.omega)
    assert_bodies_are_where_the_state_has_them(view, system)
    view.reset()
    np.testing.assert_array_equal(view.state.position, state.position)


@pytest.mark.slow
def test_a_running_arm_follows_the_sliders_of_its_servos(shown):
    servo = jj.Servo(400.0, 40.0)
    system, state = chain(2, laws=servo, q=0.0)
    view = shown(system, state, dt=1 / 300)
    view._running.value = True
    for slider, value in zip(view._sliders, (0.5, -0.4), strict=True):
        slider.value = value
    for _ in range(60):
        view.advance()
    np.testing.assert_allclose(jj.coordinates(system, view.state), [0.5, -0.4], atol=0.1)
    assert [slider.value for slider in view._sliders] == [0.5, -0.4]
    assert float(view.state.time) >= 2 - 1e-9
    assert_bodies_are_where_the_state_has_them(view, system)


@pytest.mark.slow
def test_free_bodies_stay_while_others_are_posed(shown):
    world = jj.SystemBuilder()
    for name, place in (("arm", (0.0, 0.0, 0.0)), ("base", (1.0, 2.0, 3.0)), ("hand", None)):
        world.body(name, mass=1.0, inertia=(0.1, 0.1, 0.1), pose=place)
    world.joint("shoulder", jj.Hinge(), child="arm")
    world.joint("wrist", jj.Hinge(), child="hand", parent="base")
    system, state = world.build()
    posed = shown(system, state).pose(jnp.array([0.7, -0.2]))
    np.testing.assert_allclose(posed.position[:, system.body("base")], [1.0, 2.0, 3.0], atol=1e-12)
    np.testing.assert_allclose(jj.coordinates(system, posed), [0.7, -0.2], atol=1e-12)


def test_a_batch_is_refused(shown):
    system, state = chain(1)
    with pytest.raises(ValueError, match="one environment"):
        shown(system, jj.replicate(state, 2))
