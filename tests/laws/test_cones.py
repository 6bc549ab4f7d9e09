"""Friction with a round cone: the same in every direction, against slip, within its bound."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from support.cases import mostly_slow
from support.differences import central

G, DT, MU, MASS = 9.81, 5e-3, 0.5, 1.5
SIZE = np.array((0.2, 0.15, 0.1))
INERTIA = tuple(MASS / 12 * (SIZE @ SIZE - SIZE**2))
CORNERS = [f"sole/{i}" for i in range(8)]


@cache
def box(cone=None, **surface):
    world = jj.SystemBuilder()
    world.body("box", mass=MASS, inertia=INERTIA, pose=(0.0, 0.0, SIZE[2] / 2))
    shapes = jj.shapes.Box(tuple(SIZE)), jj.shapes.HalfSpace()
    surface = {"friction": MU} | surface
    world.contact("sole", *shapes, child="box", cone=cone, **surface)
    return world.build()


def pushed(state, velocity, spin=0.0):
    zero = 0 * jnp.asarray(spin)
    linear = jnp.stack([*velocity, zero])[:, None]
    return jj.replace(state, velocity=linear, omega=jnp.stack([zero, zero, zero + spin])[:, None])


def scheme(passes=20, **options):
    return jj.SemiImplicitEuler(solver=jj.Newton(passes=passes, iterations=8, **options))


@partial(jax.jit, static_argnames=("steps", "method"))
def rolled(system, state, steps, method):
    return jj.rollout(
        system, state, dt=DT, steps=steps, scheme=method, record=lambda state, info: (state, info)
    )


ANGLES = (0.0, np.pi / 4, 1.0)
STEPS = 40


def way_at(angle):
    return np.array([np.cos(angle), np.sin(angle)])


@pytest.mark.parametrize("angle", mostly_slow(ANGLES, default=("0.0",)))
def test_a_box_slides_as_far_in_every_direction(angle):
    """It loses h μ g of its speed in each step."""
    way = way_at(angle)
    system, state = box()
    end, (_, infos) = rolled(system, pushed(state, 2 * way), STEPS, scheme())
    assert np.all(infos.ok)
    np.testing.assert_allclose(end.velocity[:2, 0], (2 - MU * G * DT * STEPS) * way, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("angle", ANGLES)
def test_a_pyramid_brakes_along_each_axis_by_itself(angle):
    """By up to √2 as much as a round cone."""
    way = way_at(angle)
    system, state = box("pyramid")
    end, _ = rolled(system, pushed(state, 2 * way), STEPS, scheme())
    lost = MU * G * DT * STEPS * np.sign(np.round(way, 9))
    np.testing.assert_allclose(end.velocity[:2, 0], np.maximum(2 * way - lost, 0.0), atol=1e-8)


@pytest.mark.slow
def test_friction_of_each_corner_is_against_its_slip_and_no_more_than_it_may():
    """Of a box that slides and turns until it rests."""
    system, state = box()
    final, (states, infos) = rolled(system, pushed(state, (1.0, 0.5), 4.0), 100, scheme(passes=40))
    force = np.asarray(infos.contact_force)  # (time, 6, contacts)
    speeds = np.asarray(jax.jit(jax.vmap(partial(jj.contact_speeds, system)))(states))
    friction, most = np.linalg.norm(force[:, 1:3], axis=1), MU * force[:, 0]
    assert np.max(friction - most) < 1e-6
    slip = np.linalg.norm(speeds[:, 1:3], axis=1)
    sliding = (slip > 0.05) & (force[:, 0] > 1e-3)
    assert sliding.sum() > 100
    np.testing.assert_allclose(friction[sliding], most[sliding], rtol=1e-6)
    # The force is that of the slip at the end of its step.
    along = np.sum(force[:, 1:3] * speeds[:, 1:3], axis=1)
    np.testing.assert_allclose(along[sliding], -(friction * slip)[sliding], rtol=1e-2)
    assert np.max(np.abs(final.velocity)) < 1e-9


SURFACES = {
    "hard": {},
    "soft": {"stiffness": 4e3, "damping": 60.0},
    "belt": {"slip": 1e-3, "surface_speed": (0.02, -0.01)},
}


def end_of(name, change):
    """Where a box on a surface is after it slid to rest, by changes of μ and of its speeds."""
    system, state = box(**SURFACES[name])
    mu, vx, vy, spin = change
    for corner in CORNERS:
        stop, *rough = system.contact(corner).laws
        rough = (jj.replace(law, friction=law.friction + mu) for law in rough)
        system = system.with_contact(corner, laws=(stop, *rough))
    state = pushed(state, (0.5 + vx, 0.2 + vy), 0.5 + spin)
    final = jj.rollout(system, state, dt=DT, steps=36, scheme=scheme(passes=12))[0]
    return jnp.concatenate([jnp.ravel(x) for x in (final.position, final.quaternion, final.omega)])


@pytest.mark.slow
@pytest.mark.parametrize("name", SURFACES)
def test_both_modes_agree_and_are_finite_differences(name):
    box(**SURFACES[name])  # its checks are of numbers, not of tracers
    of = partial(end_of, name)
    at = np.zeros(4)
    expected = central(jax.jit(jax.vmap(of)), at, np.full(4, 1e-5))

    @jax.jit
    def derivatives(at):
        _, forward = jax.linearize(of, at)
        backward = jax.linear_transpose(forward, at)
        columns = jax.vmap(forward)(jnp.eye(4))
        return columns, jax.vmap(backward)(jnp.eye(columns.shape[1]))[0]

    forward, reverse = derivatives(jnp.asarray(at))
    largest = np.abs(forward).max()
    np.testing.assert_allclose(reverse.T, forward, rtol=0, atol=1e-10 * largest)
    np.testing.assert_allclose(forward, expected, rtol=0, atol=1e-6 * largest)


@pytest.mark.slow
def test_smoothed_it_brakes_as_it_does():
    system, state = box()
    start = pushed(state, (1.0, 1.0))
    expected, _ = rolled(system, start, 20, scheme())
    smoothed, (_, infos) = rolled(system, start, 20, scheme(smoothing=1e-3))
    assert np.all(infos.ok)
    np.testing.assert_allclose(smoothed.velocity, expected.velocity, atol=1e-3)


def test_row_by_row_there_is_no_round_cone():
    system, state = box()
    solver = jj.ProjectedGaussSeidel()
    by_rows = jj.SemiImplicitEuler(solver=solver, joints="rows", gyroscopic="none")
    with pytest.raises(ValueError, match="some contact has friction with a round cone.*pyramid"):
        jj.step(system, state, dt=DT, scheme=by_rows)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cone": "oval"}, "cone 'oval' must be 'round', 'pyramid', 'convex' or None"),
        ({"friction": (0.4, 0.5), "cone": "round"}, "one friction, .* one number each, or cone="),
        ({"laws": [(1, 2)]}, "across=2 makes a round cone of two such laws alone"),
        ({"laws": [(1, 2), (2, 3)]}, "across=2 makes a round cone"),
        ({"laws": [(1, 1)]}, "across=1 makes a round cone"),
        ({"laws": [(1, 2), (2, 1), (2, None)]}, "no further law on these coordinates"),
    ],
)
def test_cones_that_cannot_be_are_refused(given, message):
    world = jj.SystemBuilder()
    world.body("ball", mass=1.0, inertia=(0.1, 0.1, 0.1), pose=(0.0, 0.0, 1.0))
    if "laws" in given:
        rough = (jj.ContactFriction(0.5, coordinate=i, across=j) for i, j in given["laws"])
        given = {"laws": [jj.ContactLimits(), *rough]}
    else:
        given = {"friction": 0.5} | given
    with pytest.raises(ValueError, match=f"contact 'foot'.*{message}"):
        world.contact("foot", jj.shapes.Sphere(0.1), jj.shapes.HalfSpace(), child="ball", **given)


def test_a_joint_has_no_round_cone():
    world = jj.SystemBuilder()
    world.body("foot", mass=1.0, inertia=(0.1, 0.1, 0.1))
    laws = [
        jj.Limits(lower=0.0),
        *(jj.ContactFriction(0.5, coordinate=i, across=3 - i) for i in (1, 2)),
    ]
    with pytest.raises(ValueError, match="joint 'rail': .* across=2 belongs to contacts; leave"):
        world.joint("rail", jj.Planar(), child="foot", laws=laws)
