"""Bounces at their times within a step, beside motions in continuous time: closed forms."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import (
    Hinge,
    Limits,
    SemiImplicitEuler,
    SystemBuilder,
    coordinate_speeds,
    coordinates,
    replace,
    replicate,
    rollout,
    shapes,
    step,
)
from support import mechanisms
from support.motion import placed_on_rail

LOCATED, PLAIN = SemiImplicitEuler(time_of_impact=True), SemiImplicitEuler()
ROUNDING = 1e-15
EXACT = 1e-10  # float64, after some hundred steps
DELTA = 1e-6  # of central differences
DIFFERENCES = 1e-6  # what rounding leaves of their slopes
G = 9.81


def moved(system, state, dt, time, scheme):
    """The state after a time; one step in the program."""
    count = jnp.rint(time / dt).astype(int)
    return jax.lax.fori_loop(
        0, count, lambda _, state: step(system, state, dt=dt, scheme=scheme)[0], state
    )


@partial(jax.jit, static_argnums=0)
def along_tangents(f, x, tangent, *numbers):
    return jax.jvp(lambda x: f(x, *numbers), (x,), (tangent,))


def slopes(f, x, *numbers):
    """f(x) of one environment and its Jacobian by forward mode, and by central differences, from
    one program; f takes (numbers, environments), and further numbers.
    """
    n = len(x)
    shifts = DELTA * np.concatenate([np.zeros((n, n)), np.eye(n), -np.eye(n)], axis=1)
    at = jnp.asarray(np.asarray(x)[:, None] + shifts)
    along = jnp.concatenate([jnp.eye(n), jnp.zeros((n, 2 * n))], axis=1)
    y, slope = along_tangents(f, at, along, *numbers)
    y = np.asarray(y)
    differences = (y[:, n : 2 * n] - y[:, 2 * n :]) / (2 * DELTA)
    return y[:, 0], np.asarray(slope)[:, :n], differences


def of_continuous(f, x):
    """The value of a closed form, and its Jacobian by central differences."""
    shifts = DELTA * np.eye(len(x))
    pairs = [(f(*(x + s)), f(*(x - s))) for s in shifts]
    return np.array(f(*x)), np.stack(
        [(np.array(a) - np.array(b)) / (2 * DELTA) for a, b in pairs], 1
    )


def two_balls(restitution=1.0):
    """Two free balls of equal mass and radius 0.1, without weight."""
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    for name, x in (("a", 0.0), ("b", 0.52)):
        world.body(name, mass=1.0, inertia=(0.01, 0.01, 0.01), pose=(x, 0.0, 0.0))
    ball = shapes.Sphere(0.1)
    world.contact("hit", ball, ball, child="b", parent="a", restitution=restitution)
    return world.build()


def balls_after(x, dt, time, scheme, restitution=1.0):
    """Places and speeds in the plane (x₁, y₁, x₂, y₂, ẋ₁, …), (8, *batch), after a time."""
    system, state = two_balls(restitution)
    state = replicate(state, x.shape[1])
    places, motions = (y.reshape(2, 2, -1).swapaxes(0, 1) for y in (x[:4], x[4:]))
    position, velocity = state.position.at[:2].set(places), state.velocity.at[:2].set(motions)
    end = moved(system, replace(state, position=position, velocity=velocity), dt, time, scheme)
    parts = [y[:2].swapaxes(0, 1).reshape(4, -1) for y in (end.position, end.velocity)]
    return jnp.concatenate(parts)


def oblique(time, restitution, *x):
    """The same in closed form."""
    (a, b), (u, v) = np.array(x[:4]).reshape(2, 2), np.array(x[4:]).reshape(2, 2)
    d, w = b - a, v - u
    half, away = d @ w, d @ d - 0.2**2
    hit = (-half - np.sqrt(half**2 - (w @ w) * away)) / (w @ w)
    n = d + hit * w
    n = n / np.linalg.norm(n)
    push = (1 + restitution) / 2 * (w @ n) * n
    left = time - hit
    ends = a + time * u + left * push, b + time * v - left * push
    return np.concatenate([*ends, u + push, v - push])


def exchanging(x, dt):
    return balls_after(x, dt, 0.5, LOCATED)


@pytest.mark.slow
def test_equal_balls_that_hit_elastically_exchange_their_motions():
    start = [0.0, 0.0, 0.5203, 0.0, 1.0, 0.0, 0.0, 0.0]
    value, slope, differences = slopes(exchanging, start, 1e-3)
    want, exact = of_continuous(lambda *x: oblique(0.5, 1.0, *x), np.array(start))
    np.testing.assert_allclose(value, want, rtol=0, atol=EXACT)
    # Of x₂ by x₁, x₂ and their speeds: what came with the other ball.
    along = [0, 2, 4, 6]
    np.testing.assert_allclose(slope[2, along], [1.0, 0.0, 0.5, 0.0], rtol=0, atol=EXACT)
    np.testing.assert_allclose(slope, differences, rtol=0, atol=DIFFERENCES)
    # Across, the normal turns: by a share of h.
    np.testing.assert_allclose(slope, exact, rtol=0, atol=5e-3 * np.abs(exact).max())


def a_ball(restitution, **options):
    """A ball that bounces on a stop of its rail, z upwards."""
    up, stop = (0.0, 0.0, 1.0), Limits(lower=0.0, restitution=restitution)
    return mechanisms.slider(axis=up, gravity=(0.0, 0.0, -G), laws=[stop], **options)


def ball_after(x, dt, time, scheme, restitution=0.8, dtype=float):
    """Height and speed (2, *batch) of a ball after a time."""
    system, state = a_ball(restitution)
    begun = system, placed_on_rail(state, x[0], x[1], axis=2)
    end = moved(*jax.tree.map(lambda y: y.astype(dtype), begun), dt, time, scheme)
    return jnp.stack([end.position[2, 0], end.velocity[2, 0]])


def falling(time, restitution, z, v):
    """The same in closed form."""
    while True:
        flight = (v + np.sqrt(v * v + 2 * G * z)) / G
        if flight > time:
            return z + v * time - G * time**2 / 2, v - G * time
        z, v, time = 0.0, -restitution * (v - G * flight), time - flight


BALL, BOUNCING = (0.65, -2.0), 1.3  # three bounces until then


def bouncing(x, dt):
    return ball_after(x, dt, BOUNCING, LOCATED)


@pytest.mark.slow
def test_a_ball_that_bounces_under_its_weight_has_the_slope_of_continuous_time():
    want, exact = of_continuous(lambda *x: falling(BOUNCING, 0.8, *x), np.array(BALL))
    # Three bounces: what is below the floor counts three times.
    assert falling(BOUNCING, 0.8, *BALL)[1] != BALL[1] - G * BOUNCING
    errors = []
    for dt in (1e-3, 5e-4):
        value, slope, differences = slopes(bouncing, BALL, dt)
        np.testing.assert_allclose(slope, differences, rtol=DIFFERENCES, atol=DIFFERENCES)
        errors.append([np.abs(value - want).max(), np.abs(slope - exact).max()])
    np.testing.assert_allclose(errors[0], [0.0, 0.0], rtol=0, atol=1e-2)
    np.testing.assert_allclose(errors[1], np.array(errors[0]) / 2, rtol=1e-2)


@pytest.mark.slow
def test_a_ball_that_starts_half_a_step_of_its_weight_ahead_is_on_the_parabolas():
    dt = 1e-3
    (z, v), _, _ = slopes(bouncing, (BALL[0], BALL[1] + G * dt / 2), dt)
    want = falling(BOUNCING, 0.8, *BALL)
    np.testing.assert_allclose([z, v - G * dt / 2], want, rtol=0, atol=EXACT)


@pytest.mark.slow
def test_a_bad_neighbour_does_not_reach_the_gradient_which_is_that_of_forward_mode():
    x = jnp.array([[BALL[0], jnp.nan, BALL[0]], [BALL[1], BALL[1], BALL[1]]])

    system, state = a_ball(0.8)

    def height(x):
        begun = placed_on_rail(state, x[0], x[1], axis=2)
        steps = {"dt": 1e-3, "steps": 1300, "record_every": 1300}
        z = rollout(system, begun, scheme=LOCATED, **steps)[0].position[2, 0]
        return jnp.where(jnp.isfinite(z), z, 0.0).sum()

    slope = np.asarray(jax.jit(jax.grad(height))(x))
    _, forward, _ = slopes(bouncing, BALL, 1e-3)
    for i in (0, 2):
        np.testing.assert_allclose(slope[:, i], forward[0], rtol=0, atol=EXACT)


@pytest.mark.slow
def test_float32_bounces_too():
    x = jnp.array([[BALL[0]], [BALL[1]]], jnp.float32)
    run = lambda x: ball_after(x, jnp.float32(1e-3), 1.3, LOCATED, dtype=jnp.float32)  # noqa: E731
    y, slope = jax.jit(lambda x: jax.jvp(run, (x,), (jnp.ones_like(x),)))(x)
    assert y.dtype == jnp.float32 and np.isfinite(slope).all()
    np.testing.assert_allclose(y[:, 0], falling(1.3, 0.8, *BALL), rtol=0, atol=1e-2)


@jax.jit
def bounced(system, state, dt):
    """Heights, energies per mass and soundness of a ball after each of many steps."""

    def one(state, _):
        state, info = step(system, state, dt=dt, scheme=LOCATED)
        z, v = state.position[2, 0], state.velocity[2, 0] - G * dt / 2
        return state, (z, G * z + v * v / 2, info.ok)

    return jax.lax.scan(one, state, None, length=20_000)[1]


@pytest.mark.slow
def test_an_elastic_bounce_keeps_the_energy_and_nothing_passes_the_stop():
    dt = 2e-3
    z, energy, ok = bounced(*a_ball(1.0, q=0.3), dt)
    assert ok.all() and z.min() >= -ROUNDING
    np.testing.assert_allclose(energy, 0.3 * G + (G * dt / 2) ** 2 / 2, rtol=1e-9)


@pytest.mark.slow
def test_what_has_bounced_comes_to_rest_on_the_stop():
    z, energy, ok = bounced(*a_ball(0.5, q=0.3), 2e-3)
    assert ok.all() and z.min() >= -ROUNDING
    # The speed of a step's weight is what the energy of half a step ahead keeps.
    assert np.abs(z[1000:]).max() <= ROUNDING
    np.testing.assert_allclose(energy[1000:], (G * 1e-3) ** 2 / 2, rtol=EXACT)


class Knee:
    """Two equal rods, the second with a stop in its joint: Runge-Kutta steps up to the impact."""

    mass, length, inertia, stop, restitution = 1.0, 0.5, 0.02, 0.35, 0.6

    def masses(self, q):
        m, L, half = self.mass, self.length, self.length / 2
        own, across = self.inertia + m * half**2, m * L * half * np.cos(q[1])
        return np.array([[2 * own + m * L**2 + 2 * across, own + across], [own + across, own]])

    def rate(self, x):
        q, v, L, half = x[:2], x[2:], self.length, self.length / 2
        turning = self.mass * L * half * np.sin(q[1])
        bias = turning * np.array([2 * v[0] * v[1] + v[1] ** 2, -(v[0] ** 2)])
        tip = self.mass * G * half * np.sin(q[0] + q[1])
        weight = np.array([self.mass * G * (half + L) * np.sin(q[0]) + tip, tip])
        return np.concatenate([v, np.linalg.solve(self.masses(q), bias - weight)])

    def moved(self, x, h):
        a = self.rate(x)
        b = self.rate(x + h / 2 * a)
        c = self.rate(x + h / 2 * b)
        return x + h / 6 * (a + 2 * b + 2 * c + self.rate(x + h * c))

    def after(self, time, *x):
        x, left, step = np.array(x), time, time / 150
        while left > EXACT:
            h = min(step, left)
            ahead = self.moved(x, h)
            if ahead[1] > self.stop and x[3] > 0:
                for _ in range(40):
                    ahead = self.moved(x, h)
                    h -= (ahead[1] - self.stop) / ahead[3]
                change = np.linalg.inv(self.masses(ahead[:2]))[:, 1]
                ahead[2:] -= (1 + self.restitution) * ahead[3] * change / change[1]
            x, left = ahead, left - h
        return x

    def system(self):
        world = SystemBuilder(gravity=(0.0, 0.0, -G))
        for name in ("thigh", "shank"):
            com = (0.0, 0.0, -self.length / 2)
            world.body(name, mass=self.mass, inertia=(self.inertia,) * 3, com=com)
        joint = Hinge(axis=(0.0, -1.0, 0.0))
        world.joint("hip", joint, child="thigh")
        stop = Limits(upper=self.stop, restitution=self.restitution)
        at = {"parent": "thigh", "frame_D": (0.0, 0.0, -self.length), "laws": [stop]}
        world.joint("knee", joint, child="shank", **at)
        return world.build()[0]


def kicked(x, dt):
    """Coordinates and speeds of `Knee` after 0.4 s, (4, *batch)."""
    system = Knee().system()

    def begun(x):
        return system.state(q={"hip": x[0], "knee": x[1]}, qd={"hip": x[2], "knee": x[3]})

    end = moved(system, jax.vmap(begun, in_axes=-1, out_axes=-1)(x), dt, 0.4, LOCATED)
    return jnp.concatenate([coordinates(system, end), coordinate_speeds(system, end)])


@pytest.mark.slow
def test_what_turns_and_brakes_itself_has_the_slope_of_continuous_time_too():
    start = np.array([0.3, 0.2, 0.5, 3.0])
    want, exact = of_continuous(partial(Knee().after, 0.4), start)
    value, slope, differences = slopes(kicked, start, 1e-3)
    np.testing.assert_allclose(value, want, rtol=0, atol=2e-2)
    np.testing.assert_allclose(slope, differences, rtol=0, atol=DIFFERENCES)
    # Masses and forces before the impact in place of those after it would be off by 0.7.
    np.testing.assert_allclose(slope, exact, rtol=0, atol=0.1)


FLOOR = 0.05, 0.2, 0.8  # radius of a ball [m], friction and restitution of the floor under it


def skidding(x, dt, scheme=LOCATED):
    """Place and speed (x, z, ẋ, ż, spin about y), (5, *batch), of a ball that flies without weight
    onto a floor, skids on it, and flies on.
    """
    radius, friction, restitution = FLOOR
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    inertia = (0.4 * radius**2,) * 3
    world.body("ball", mass=1.0, inertia=inertia, pose=(0.0, 0.0, 0.5))
    options = {"friction": friction, "restitution": restitution}
    shape = shapes.Sphere(radius), shapes.HalfSpace()
    world.contact("floor", *shape, child="ball", **options)
    system, state = world.build()
    state, plane = replicate(state, x.shape[1]), np.array((0, 2))
    position = state.position.at[plane, 0].set(x[:2])
    velocity = state.velocity.at[plane, 0].set(x[2:])
    end = moved(system, replace(state, position=position, velocity=velocity), dt, 0.5, scheme)
    spin = end.omega[1:2, 0]
    return jnp.concatenate([end.position[plane, 0], end.velocity[plane, 0], spin])


def skidded(x, z, u, w):
    """The same in closed form."""
    radius, friction, restitution = FLOOR
    hit, push = (z - radius) / -w, -(1 + restitution) * w
    after, rise = u - friction * push, -restitution * w
    spin = friction * push / (0.4 * radius)
    assert after > radius * spin, "it skids until it leaves the floor"
    left = 0.5 - hit
    return x + hit * u + left * after, radius + left * rise, after, rise, spin


@pytest.mark.slow
@pytest.mark.parametrize("joints", ["coordinates", pytest.param("rows", marks=pytest.mark.sweep)])
def test_a_ball_that_skids_as_it_bounces_has_the_slope_of_continuous_time(joints):
    """To what the floor of contacts with friction leaves of an impulse, some 1e-6."""
    x = 0.1, 0.513, 3.0, -1.7
    scheme = SemiImplicitEuler(time_of_impact=True, joints=joints)
    y, slope, differences = slopes(partial(skidding, scheme=scheme), x, 1e-3)
    exact, of_exact = of_continuous(skidded, x)
    np.testing.assert_allclose(y, exact, rtol=1e-5)
    np.testing.assert_allclose(slope, of_exact, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(slope, differences, rtol=1e-5, atol=1e-5)
