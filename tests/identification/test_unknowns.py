"""Laws of unknowns: every share is a value that a mechanism can have, and deviations follow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import lsq_linear

from jaxjoints.identification import (
    BodyInertia,
    Direction,
    Inertial,
    Orientation,
    Positive,
    Unknown,
    identify,
)
from jaxjoints.identification.search import LONGEST, _damped_newton
from jaxjoints.identification.unknowns import _pseudo_inertia, deviations

ROUNDING = 1e-12
BODY = BodyInertia(2.0, jnp.array([0.1, -0.2, 0.05]), jnp.diag(jnp.array([0.3, 0.4, 0.5])))
AXIS, TURNED = jnp.array([0.6, 0.0, 0.8]), jnp.array([0.8, 0.0, 0.6, 0.0])
UNKNOWNS = {
    "range": Unknown(1.0, 5.0),
    "knots": Unknown(jnp.array([1.0, 2.0]), jnp.array([5.0, 20.0]), log=True),
    "positive": Positive(3.0, nominal=2.0),
    "direction": Direction(0.5, nominal=AXIS),
    "orientation": Orientation(0.7, nominal=TURNED),
    "inertial": Inertial(4.0, nominal=BODY),
}


def shares(unknown, batch, seed=0):
    return jnp.asarray(np.random.default_rng(seed).uniform(size=(*unknown.shape, *batch)))


@pytest.mark.parametrize("kind", UNKNOWNS)
def test_a_batch_of_shares_is_each_share_alone(kind):
    unknown = UNKNOWNS[kind]
    z, value = shares(unknown, (4,)), jax.jit(unknown.value)
    together = value(z)
    for i in range(4):
        alone = value(z[..., i])
        jax.tree.map(
            lambda x, y, i=i: np.testing.assert_allclose(x[..., i], y, atol=ROUNDING),
            together,
            alone,
        )


@pytest.mark.parametrize("kind", ["positive", "direction", "orientation", "inertial"])
def test_the_middle_is_the_nominal_value(kind):
    unknown = UNKNOWNS[kind]
    middle = unknown.value(jnp.full(unknown.shape, 0.5))
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, atol=ROUNDING), middle, unknown.nominal
    )


def test_directions_and_rotations_have_length_one_and_stay_within():
    z = shares(UNKNOWNS["direction"], (1000,))
    axis = UNKNOWNS["direction"].value(z)
    np.testing.assert_allclose(jnp.sum(axis**2, axis=0), 1.0, atol=ROUNDING)
    angle = np.arccos(np.einsum("i...,i->...", axis, AXIS))
    assert 0.5 < angle.max() <= 0.5 * 2**0.5
    q = UNKNOWNS["orientation"].value(shares(UNKNOWNS["orientation"], (1000,)))
    np.testing.assert_allclose(jnp.sum(q**2, axis=0), 1.0, atol=ROUNDING)


def test_every_share_is_a_body_that_masses_can_form():
    bodies = Inertial(100.0, nominal=BODY).value(shares(UNKNOWNS["inertial"], (2000,)))
    moments = np.linalg.eigvalsh(np.moveaxis(bodies.inertia, -1, 0))
    assert (np.asarray(bodies.mass) > 0).all()
    assert (moments[:, 0] > 0).all() and (moments[:, 2] < moments[:, 0] + moments[:, 1]).all()
    np.testing.assert_allclose(bodies.inertia, np.swapaxes(bodies.inertia, 0, 1), atol=1e-10)


@pytest.mark.parametrize("kind", UNKNOWNS)
def test_deviations_are_those_of_many_draws(kind):
    unknown = UNKNOWNS[kind]
    size = int(np.prod(unknown.shape))
    rng = np.random.default_rng(1)
    root = 1e-4 * rng.normal(size=(size, size))
    middle = shares(unknown, ())
    draws = np.asarray(middle).reshape(-1, 1) + root @ rng.normal(size=(size, 20_000))
    value = jax.jit(unknown.value)
    values = value(jnp.asarray(draws.reshape(*unknown.shape, -1)))
    expected = jax.tree.map(lambda x: np.std(x, axis=-1), values)
    found = deviations(value, middle, root @ root.T)
    # The standard deviation of 20 000 draws has an error of half a per cent.
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=0.02, atol=1e-9), found, expected
    )


def test_a_body_moves_along_a_straight_line_of_its_pseudo_inertia():
    """By the derivative of the pseudo-inertia, as far as it stays positive definite."""
    unknown = UNKNOWNS["inertial"]
    z = shares(unknown, (50,))
    step = jnp.asarray(np.random.default_rng(1).normal(size=z.shape))
    at = jax.jit(jax.vmap(lambda z: _pseudo_inertia(unknown.value(z)), in_axes=-1))
    moved = jax.jit(unknown.moved)
    for size in (0.02, 1.0):
        start, rate = jax.jvp(at, (z,), (size * step,))
        reached = at(moved(z, size * step))
        # How far along the rate: the whole way, unless a direction would lose more than 0.8.
        worst = [
            np.linalg.eigvals(np.linalg.solve(*pair)).real.min()
            for pair in zip(start, rate, strict=True)
        ]
        share = np.minimum(1.0, -0.8 / np.minimum(worst, -1e-9))
        assert (share == 1.0).all() == (size < 1)
        expected = start + share[:, None, None] * rate
        np.testing.assert_allclose(reached, expected, atol=1e-10)


def test_a_step_of_a_search_is_the_best_one_inside_the_ranges():
    """Beside scipy's bounded least squares, of problems whose best steps leave the ranges."""
    rng = np.random.default_rng(3)
    J, r, z = rng.normal(size=(20, 6, 8)), 4 * rng.normal(size=(20, 8)), rng.uniform(size=(6, 8))
    information, gradient = np.einsum("rij,rkj->ikj", J, J), np.einsum("rij,rj->ij", J, r)
    damping = np.full(8, 1e-3)
    steps, held = _damped_newton(z, gradient, information, damping), 0
    for i in range(8):
        diagonal = 1e-3 * np.diag(information[..., i]) + 1e-2
        rows = np.concatenate([J[..., i], np.diag(diagonal**0.5)])
        bounds = np.maximum(-z[:, i], -LONGEST), np.minimum(1 - z[:, i], LONGEST)
        best = lsq_linear(rows, -np.concatenate([r[:, i], np.zeros(6)]), bounds, tol=1e-12)
        np.testing.assert_allclose(steps[:, i], best.x, atol=1e-6)
        held += np.sum(best.active_mask != 0)
    assert held > 8


def test_what_follows_from_the_values_is_known_where_they_are_not():
    def residual(values, follow):
        return 1e3 * (values["mass"] * values["lever"] - 6.0)[None]

    unknowns = {"mass": Positive(10.0, nominal=3.0), "lever": Positive(10.0, nominal=3.0)}
    found = identify(residual, unknowns, key=jax.random.key(1), starts=8, iterations=10)
    moment, deviation = found.derived(lambda values: values["mass"] * values["lever"])
    assert moment == pytest.approx(6.0, abs=1e-6) and deviation == pytest.approx(1e-3, rel=1e-3)
    assert found.deviations["mass"] > 0.3 * found.values["mass"]


def test_a_search_finds_axes_rotations_and_bodies():
    truth = {name: u.value(shares(u, (), seed=5)) for name, u in UNKNOWNS.items()}

    def residual(values, follow):
        parts = jax.tree.map(
            lambda x, true: 1e3 * (x - true.reshape(true.shape + (1,))).reshape(-1, x.shape[-1]),
            values,
            truth,
        )
        return jnp.concatenate(jax.tree.leaves(parts))

    found = identify(residual, UNKNOWNS, key=jax.random.key(0), starts=8, iterations=20, polish=12)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), found.values, truth)
    assert found.shares[:2] == ("direction[0]", "direction[1]")
    assert found.correlations.shape == (19, 19) and found.left_open == ()
    np.testing.assert_allclose(np.diag(found.correlations), 1.0)


def test_what_a_recording_leaves_open_is_said():
    def residual(values, follow):
        return 1e3 * (values["mass"] * values["gain"] - 6.0)[None]

    unknowns = {"mass": Positive(10.0, nominal=3.0), "gain": Positive(10.0, nominal=3.0)}
    found = identify(residual, unknowns, key=jax.random.key(1), starts=8, iterations=10)
    assert found.left_open == ("left open by the recording: +0.71 gain -0.71 mass (of the ranges)",)
    assert found.correlations[0, 1] == pytest.approx(-1.0, abs=1e-3)
    lines = str(found).splitlines()
    assert lines[0].startswith("gain ") and "±" in lines[0] and lines[-1] == found.left_open[0]


REFUSED = {
    "factor 1.0 must be above 1": Positive(1.0, nominal=2.0),
    "nominal value -2.0 must be positive": Positive(2.0, nominal=-2.0),
    "within 2.0 must be positive and at most 1.571": Direction(2.0, nominal=AXIS),
    "must be a direction of shape": Direction(0.1, nominal=np.zeros(3)),
    "must be a quaternion of shape": Orientation(0.1, nominal=np.ones(3)),
    "not one that masses can form": Inertial(
        2.0, nominal=BodyInertia(1.0, np.zeros(3), np.diag([1.0, 1.0, 2.5]))
    ),
    "lower has shape": Unknown(np.zeros(2), np.ones(3)),
    "must be one of Unknown, Positive": 3.0,
}


@pytest.mark.parametrize("message", REFUSED)
def test_unknowns_without_a_range_are_refused(message):
    with pytest.raises(ValueError, match=message):
        identify(lambda values, follow: values, {"x": REFUSED[message]}, key=jax.random.key(0))


def test_what_is_no_residual_is_refused():
    with pytest.raises(ValueError, match=r"residual 3 must be a function of \(values, follow\)"):
        identify(3, UNKNOWNS, key=jax.random.key(0))
