"""Bodies in contact: rolling, sticking, sliding, resting, bouncing, colliding; their derivatives.

One scene holds all bodies, far from each other; its batch is a slope, on which boxes stick or slip,
level ground and no gravity.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from support.differences import central, points_about, slopes_between

G, DT, STEPS = 9.81, 5e-3, 100
SLOPE = np.arctan(0.5)
TIME = DT * STEPS
STICK, SLIP, LEVEL, NONE = range(4)
GRAVITY = G * np.array([np.sin(SLOPE), 0, -np.cos(SLOPE)])[:, None] * [1, 1, 0, 0]
GRAVITY[2, LEVEL] = -G
# Of the box, in each environment: the slope is tan θ = 0.5.
FRICTION = 0.5 * np.array([1.001, 0.999, 1.0, 1.0])
RADIUS, MASS, SIZE = 0.3, 2.0, (0.4, 0.3, 0.2)
ROUND = 0.4 * MASS * RADIUS**2
BELT, DROP = 2.0, 0.1
# Rounding over a hundred steps; and of a force, that of 1e-10 m/s.
EQUAL = 1e-10
FORCE = 2 * 1e-10 * MASS / DT


def scene():
    """Bodies by the name of what they show, and the state they start from."""
    world = jj.SystemBuilder()
    ground, ball = jj.shapes.HalfSpace(), jj.shapes.Sphere(RADIUS)
    row = {}

    def add(name, height, inertia=(ROUND,) * 3, velocity=(0.0,) * 6, at=None):
        row[name] = len(row) if at is None else row[at]
        place = (0.0, 5.0 * row[name], height)
        return world.body(name, mass=MASS, inertia=inertia, pose=place, velocity=velocity)

    def on_ground(name, friction, restitution=0.0, **surface):
        surface |= {"friction": friction, "restitution": restitution}
        world.contact(name, ball, ground, child=name, **surface)

    on_ground(add("grips", RADIUS), 0.9)
    on_ground(add("slides", RADIUS), 0.1)
    on_ground(add("rides", RADIUS), 0.4, surface_speed=(BELT, 0.0))
    on_ground(add("bounces", RADIUS + DROP), 0.5, 0.8)
    on_ground(add("keeps bouncing", RADIUS + DROP), 0.5, 1.0)
    on_ground(add("lower", RADIUS), 0.5)
    add("upper", 3 * RADIUS, at="lower")
    world.contact("stack", ball, ball, child="upper", parent="lower", friction=0.5)
    box = MASS / 12 * (np.dot(SIZE, SIZE) - np.square(SIZE))
    add("box", SIZE[2] / 2, box)
    world.contact("box", jj.shapes.Box(SIZE), ground, child="box", friction=0.5)
    rod = jj.shapes.Capsule(0.1, 0.8)
    half = np.sqrt(0.5)
    lying = ((0.0, 0.0, 0.0), (half, half, 0.0, 0.0))
    add("lies", 0.1, (0.1, 0.1, 0.1))
    feet = {"friction": 0.9, "restitution": 0.0}
    world.contact("lies", rod, ground, child="lies", frame_C=lying, **feet)
    add("flies", 50.0, (0.1, 0.1, 0.02), (0.0, 0.2, 1.5, 1.0, -2.0, 0.5))
    add("meets", 50.9, (0.1, 0.1, 0.02), (0.2, 0.0, -1.0, -1.0, 0.3, 0.4), at="flies")
    world.contact("crash", rod, rod, child="flies", parent="meets", frame_C=lying, friction=0.3)
    return world.build()


@pytest.fixture(scope="module")
def film():
    """The scene, and each step's state and info, time in front."""
    system, state = scene()
    system = jj.replace(system, gravity=jnp.asarray(GRAVITY))
    for name in corners("box"):
        laws = system.contact(name).laws
        along = (jj.replace(law, friction=jnp.asarray(FRICTION)) for law in laws[1:])
        system = system.with_contact(name, laws=(laws[0], *along))
    # Enough passes for closed forms.
    scheme = jj.SemiImplicitEuler(solver=jj.Newton(passes=40))
    options = {"dt": DT, "steps": STEPS, "scheme": scheme, "record": lambda *step: step}
    run = jax.jit(partial(jj.rollout, **options))
    _, (states, infos) = run(system, jj.replicate(state, 4))
    assert np.all(infos.ok) and np.max(infos.residual) < 1e-9
    return system, states, infos


def body(film, name, field):
    """(time, 3, batch) of a body."""
    system, states, _ = film
    return np.asarray(getattr(states, field))[:, :, system.body(name)]


def force(film, *names):
    """Forces of contacts along normal and tangents and about them, (time, contacts, 6, batch)."""
    system, _, infos = film
    at = [system.contact_index(name) for name in names]
    return np.asarray(infos.contact_force)[:, :, at].transpose(0, 2, 1, 3)


def corners(name, count=8):
    return [f"{name}/{i}" for i in range(count)]


@pytest.mark.slow
def test_a_ball_rolls_down_a_slope(film):
    """a = 5/7 g sin θ with grip, g (sin θ - μ cos θ) without."""
    speeds = [body(film, name, "velocity")[-1, 0, STICK] for name in ("grips", "slides")]
    rolling, sliding = np.sin(SLOPE) * 5 / 7, np.sin(SLOPE) - 0.1 * np.cos(SLOPE)
    np.testing.assert_allclose(speeds, np.array([rolling, sliding]) * G * TIME, rtol=EQUAL)
    spin = [body(film, name, "omega")[-1, 1, STICK] for name in ("grips", "slides")]
    slow = 0.1 * MASS * G * np.cos(SLOPE) * RADIUS / ROUND * TIME
    np.testing.assert_allclose(spin, [speeds[0] / RADIUS, slow], rtol=EQUAL)


@pytest.mark.slow
def test_a_box_sticks_and_slips_on_either_side_of_its_friction(film):
    """tan θ = 0.5: with μ a thousandth larger it stays, a thousandth smaller it slides."""
    speed = body(film, "box", "velocity")[-1, 0]
    assert abs(speed[STICK]) < EQUAL
    slow = G * (np.sin(SLOPE) - FRICTION[SLIP] * np.cos(SLOPE)) * TIME
    np.testing.assert_allclose(speed[SLIP], slow, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "contacts"), [("box", 8), ("lies", 2)])
def test_forces_of_all_contacts_sum_to_the_weight(film, name, contacts):
    found = force(film, *corners(name, contacts))
    weight = -MASS * GRAVITY[2]
    total = found[:, :, 0].sum(axis=1)
    np.testing.assert_allclose(total, weight + np.zeros((STEPS, 1)), atol=FORCE)
    assert np.min(found[:, :, 0]) > -FORCE
    assert np.ptp(body(film, name, "position")[:, 2, LEVEL]) < EQUAL


@pytest.mark.slow
def test_the_wrenches_of_all_contacts_on_a_body_carry_it(film):
    """In world axes, of a box that has not turned; their moments about its origin are 0."""
    system, states, infos = film
    last = jax.tree.map(lambda x: x[-1], (states, infos))

    @jax.jit
    def wrench(states, info):
        where = {"axes": "child", "point": "origin"}
        return sum(jj.reaction(system, states, info, name, **where) for name in corners("box"))

    expected = MASS * np.append(-GRAVITY[:, STICK], np.zeros(3))
    np.testing.assert_allclose(wrench(*last)[:, STICK], expected, atol=FORCE)


@pytest.mark.slow
def test_a_stack_of_two_balls_carries_its_weight(film):
    found = force(film, "stack", "lower")[:, :, 0, LEVEL]
    np.testing.assert_allclose(found / (MASS * G), [[1.0, 2.0]] * STEPS, rtol=1e-9)


@pytest.mark.slow
def test_a_belt_drags_a_ball_until_that_rolls(film):
    """v = μ g t until v - r ω is the belt's speed: v = 2/7 of it then."""
    speed = body(film, "rides", "velocity")[:, 0, LEVEL]
    expected = np.minimum(0.4 * G * DT * np.arange(1, STEPS + 1), BELT * 2 / 7)
    np.testing.assert_allclose(speed, expected, atol=1e-9)


@pytest.mark.slow
def test_balls_bounce_to_heights_that_their_restitution_says(film):
    """Off by the way of one step at most."""
    for name, e in (("bounces", 0.8), ("keeps bouncing", 1.0)):
        height = body(film, name, "position")[:, 2, LEVEL] - RADIUS
        assert np.min(height) > -1e-12
        fall = np.sqrt(2 * DROP / G)
        after = height[int(fall / DT) + 2 : int(fall * (1 + 2 * e) / DT)]
        assert abs(after.max() - e**2 * DROP) < G * fall * DT


@pytest.mark.slow
def test_capsules_collide_without_a_change_of_momentum_and_lose_energy(film):
    system, states, _ = film
    at = [system.body(name) for name in ("flies", "meets")]
    p, v = (np.asarray(x)[:, :, at, NONE] for x in (states.position, states.velocity))
    linear = v.sum(axis=2)
    q = states.quaternion[:, :, at, NONE]
    omega = np.asarray(states.omega)[:, :, at, NONE]
    inertia = np.asarray(system.inertia)[:, :, at]
    R = np.stack([[jj.Pose.rotation(q[t, :, b]).R for b in (0, 1)] for t in (0, STEPS - 1)])
    spin = np.einsum("tbij,jkb,tblk,tlb->tib", R, inertia, R, omega[[0, -1]])
    angular = (spin + MASS * np.cross(p, v, axis=1)[[0, -1]]).sum(axis=2)
    np.testing.assert_allclose(linear, linear[:1] + np.zeros((STEPS, 1)), atol=1e-12)
    np.testing.assert_allclose(angular[1], angular[0], atol=1e-9)
    hit = force(film, "crash")[:, 0, 0, NONE] > 1.0
    assert hit.any() and not hit[0]
    energy = [0.5 * (MASS * np.sum(v[t] ** 2) + np.sum(omega[t] * spin[t])) for t in (0, -1)]
    assert 0 < energy[1] < 0.99 * energy[0]


BALL = (0.7, -2.0, 1.5, 0.6, 0.3, 0.25, 0.9)


def in_flight(state, vx, vz, spin, height):
    """A state of a ball at a height, with speeds along x and z, and about y."""
    zero = jnp.zeros_like(vx)
    return jj.replace(
        state,
        position=jnp.stack([zero, zero, height])[:, None],
        velocity=jnp.stack([vx, zero, vz])[:, None],
        omega=jnp.stack([zero, spin, zero])[:, None],
    )


def thrown(numbers):
    """Where a ball is and how it moves after an impact with friction, from its speeds along x, z
    and about y, restitution, friction, radius and height.
    """
    vx, vz, spin, e, friction, radius, height = numbers
    system, state = FLIGHT
    geometry = jj.Contact(jj.shapes.Sphere(radius), jj.shapes.HalfSpace())
    laws = system.contact("ground").laws
    laws = jj.replace(laws[0], restitution=e), *(jj.replace(x, friction=friction) for x in laws[1:])
    state = in_flight(state, vx, vz, spin, height)
    system = system.with_contact("ground", geometry=geometry, laws=laws)

    def one(state, _):
        return jj.step(system, state, dt=0.01)[0], None

    final = jax.lax.scan(one, state, None, length=60)[0]
    return jnp.concatenate([x[:, 0] for x in (final.position, final.velocity, final.omega)])


def flight(**surface):
    world = jj.SystemBuilder()
    body = world.body("ball", mass=1.0, inertia=(0.02,) * 3, pose=(0.0, 0.0, 1.0))
    ball, ground = jj.shapes.Sphere(0.25), jj.shapes.HalfSpace()
    world.contact("ground", ball, ground, child=body, friction=0.3, **surface)
    return world.build()


FLIGHT, SOFT_FLIGHT = flight(restitution=0.5), flight(stiffness=2e3, damping=5.0)


@pytest.fixture(scope="module")
def slopes():
    """The Jacobian of `thrown`, and its values for many balls."""
    return jax.jit(jax.jacrev(thrown)), jax.jit(jax.vmap(thrown))


@pytest.mark.slow
@pytest.mark.parametrize("friction", [0.01, 0.9], ids=["slides", "grips"])
def test_derivatives_through_an_impact_are_finite_differences(slopes, friction):
    """Of where the ball flies after it bounced, in the same step for all differences."""
    jacobian, values = slopes
    at = np.array([*BALL[:4], friction, *BALL[5:]])
    expected = central(values, at, [1e-4] * 7)
    np.testing.assert_allclose(jacobian(jnp.asarray(at)).T, expected, rtol=1e-6, atol=1e-8)
    # All count but the friction of a ball with grip.
    counts = np.abs(expected).max(axis=1) > 1e-2
    assert np.array_equal(counts, [True] * 4 + [friction < 0.1] + [True] * 2)


def on_soft_ground(numbers):
    """Where a ball is and how it moves, from its speeds along x, z and about y, the stiffness and
    the damping of the ground, friction, radius, height, mass, inertia and gravity.
    """
    vx, vz, spin, stiffness, damping, friction, radius, height, mass, inertia, gravity = numbers
    system, state = SOFT_FLIGHT
    geometry = jj.Contact(jj.shapes.Sphere(radius), jj.shapes.HalfSpace())
    stop, *along = system.contact("ground").laws
    along = (jj.replace(law, friction=friction) for law in along)
    laws = jj.replace(stop, stiffness=stiffness, damping=damping), *along
    state = in_flight(state, vx, vz, spin, height)
    system = jj.replace(
        system.with_contact("ground", geometry=geometry, laws=laws),
        mass=mass[None],
        inertia=inertia * jnp.eye(3)[:, :, None],
        gravity=jnp.array([0.0, 0.0, -1.0]) * gravity,
    )
    final, (gap, ok) = jj.rollout(
        system, state, dt=DT, steps=120, record=lambda s, i: (s.position[2, 0] - radius, i.ok)
    )
    found = jnp.concatenate([x[:, 0] for x in (final.position, final.velocity, final.omega)])
    return found, (gap, ok)


@pytest.fixture(scope="module")
def soft_slopes():
    """The Jacobian of where such a ball ends, and the values of `on_soft_ground` for many balls."""
    jacobian = jax.jacrev(lambda numbers: on_soft_ground(numbers)[0])
    return jax.jit(jacobian), jax.jit(jax.vmap(on_soft_ground))


@pytest.mark.slow
@pytest.mark.parametrize("damping", [5.0, 70.0], ids=["leaves", "rests"])
def test_derivatives_through_an_impact_on_soft_ground_are_finite_differences(soft_slopes, damping):
    """From before the ball meets the ground until it has left it, or rests."""
    jacobian, values = soft_slopes
    at = np.array([0.7, -2.0, 1.5, 2e3, damping, 0.3, 0.25, 0.9, 1.0, 0.02, G])
    steps = 1e-5 * np.maximum(np.abs(at), 0.1)
    found, (gap, ok) = values(jnp.asarray(np.concatenate([at[None], points_about(at, steps)])))
    assert ok.all() and gap[0, 0] > 0.5 and gap[0].min() < -0.01
    assert gap[0, -1] > 0.1 if damping < 70 else abs(gap[0, -1] + at[8] * G / 2e3) < 1e-4
    expected = slopes_between(found[1:], steps)
    np.testing.assert_allclose(jacobian(jnp.asarray(at)).T, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_an_impact_without_restitution_does_not_rebound():
    """Of a ball that falls, and of one that is thrown with spin, at all speeds and frictions."""
    world, (speeds, frictions) = (
        jj.SystemBuilder(),
        10 ** np.random.default_rng(0).uniform([[-2.0], [-2.0]], [[1.5], [0.3]], (2, 64)),
    )
    ball, ground = jj.shapes.Sphere(RADIUS), jj.shapes.HalfSpace()
    velocities = {"falls": (0.0,) * 6, "spins": (2.0, 1.0, -1.0, 5.0, 30.0, -4.0)}
    for i, (name, velocity) in enumerate(velocities.items()):
        place = (0.0, 5.0 * i, RADIUS + DROP)
        world.body(name, mass=MASS, inertia=(ROUND,) * 3, pose=place, velocity=velocity)
        world.contact(name, ball, ground, child=name, friction=0.5)
    system, state = world.build()
    for name in velocities:
        stop, *along = system.contact(name).laws
        along = (jj.replace(law, friction=jnp.asarray(frictions)) for law in along)
        system = system.with_contact(name, laws=(stop, *along))
    state, scale = jj.replicate(state, len(speeds)), jnp.asarray(speeds)[None, None]
    state = jj.replace(state, velocity=state.velocity * scale, omega=state.omega * scale)
    options = {"dt": DT, "steps": STEPS, "record": lambda s, i: (s.velocity[2], i.ok)}
    _, (upwards, ok) = jax.jit(partial(jj.rollout, **options))(system, state)
    assert ok.all()
    impact = -np.min(upwards, axis=0)
    assert (np.max(upwards, axis=0) < 1e-6 * impact).all()
