"""Plots: each draws what it says on the axes that it is given, and returns them."""

import jax
import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

import jaxjoints as jj
from support.mechanisms import pendulum
from support.motions import moving

matplotlib.use("Agg")


@pytest.fixture
def ax():
    return Figure().add_subplot()


@pytest.fixture(scope="module")
def stopped():
    """A pendulum that falls onto a stop at 0.3 rad, in two environments, over 0.48 s."""
    system, state = pendulum(q=0.5, laws=[jj.Limits(lower=0.3, upper=2.0)])
    return system, moving(system, jj.replicate(state, 2), steps=48)


def labelled(ax):
    return {
        line.get_label(): line for line in ax.get_lines() if not line.get_label().startswith("_")
    }


@pytest.mark.slow
def test_coordinates_have_their_limits_shaded_and_marks_where_these_act(stopped, ax):
    system, (states, infos) = stopped
    assert jj.plots.coordinates(system, (states, infos), ax=ax) is ax
    lines = labelled(ax)
    np.testing.assert_allclose(lines["pivot"].get_xdata(), states.time[:, 0])
    for frame in (0, 9, 23):
        q = jj.coordinates(system, jax.tree.map(lambda x, f=frame: x[f], states))
        np.testing.assert_allclose(lines["pivot"].get_ydata()[frame], q[0, 0], atol=1e-6)
    acting = np.asarray(infos.limit_force)[:, 0] > 0.1  # N m; smoothing leaves little elsewhere
    assert 0 < acting.sum() < acting.size
    assert len(lines["pivot: limit"].get_xdata()) == acting.sum()
    spans = sorted((patch.get_y(), patch.get_y() + patch.get_height()) for patch in ax.patches)
    (_, lower), (upper, _) = spans
    assert lower == pytest.approx(0.3) and upper == pytest.approx(2.0)
    assert ax.get_ylabel() == "coordinate [rad]"


def test_without_info_marks_stand_beyond_the_limits(stopped, ax):
    system, (states, _) = stopped
    jj.plots.coordinates(system, jj.replace(states, position=states.position), "pivot", ax=ax)
    assert "pivot" in labelled(ax)


def test_energy_is_the_sum_of_its_kinds(stopped, ax):
    system, trajectory = stopped
    lines = labelled(jj.plots.energy(system, trajectory, ax=ax, environments=0))
    assert set(lines) == {"kinetic", "gravity", "total"}  # no law stores any
    total = lines["kinetic"].get_ydata() + lines["gravity"].get_ydata()
    np.testing.assert_allclose(lines["total"].get_ydata(), total)


def test_errors_are_on_a_logarithmic_scale(stopped, ax):
    jj.plots.errors(*stopped, ax=ax)
    assert ax.get_yscale() == "log" and set(labelled(ax)) == {"pivot"}


def test_a_phase_portrait_has_speeds_over_coordinates(stopped, ax):
    system, (states, infos) = stopped
    lines = labelled(jj.plots.phase(system, (states, infos), "pivot", ax=ax))
    np.testing.assert_allclose(lines["pivot"].get_ydata(), infos.qd[:, 0, 0], atol=1e-6)
    assert ax.get_xlabel() == "coordinate [rad]" and ax.get_ylabel() == "speed [rad/s]"


def test_losses_show_the_best_so_far(ax):
    losses = np.array([[3.0, 5.0], [np.nan, 2.0], [4.0, 1.0], [0.5, 2.0]])
    best = labelled(jj.plots.losses(losses, ax=ax))["best so far"]
    np.testing.assert_allclose(best.get_ydata(), [3.0, 2.0, 1.0, 0.5])
    with pytest.raises(ValueError, match="losses have shape"):
        jj.plots.losses(np.zeros((2, 2, 2)), ax=ax)


def test_unknown_joints_are_refused(stopped, ax):
    with pytest.raises(ValueError, match="joints: 'pivto' is no joint; did you mean 'pivot'?"):
        jj.plots.coordinates(*stopped, "pivto", ax=ax)


def test_without_axes_the_current_ones_are_taken(stopped):
    from matplotlib import pyplot

    figure, ax = pyplot.subplots()
    assert jj.plots.energy(*stopped) is ax
    pyplot.close(figure)
