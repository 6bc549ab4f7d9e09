"""Derivatives of a step through every law against finite differences, one line for each law, by its
parameters and by where its body is and how that moves.

By reverse mode, which transposes the forward one.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from jaxjoints import (
    Armature,
    Baumgarte,
    Bushing,
    Compliance,
    Damping,
    DoubleBall,
    DryFriction,
    Effort,
    LimitForce,
    Limits,
    Lock,
    Motor,
    PointOnCurve,
    Rope,
    SemiImplicitEuler,
    Servo,
    Slider,
    SpringDamper,
    SystemBuilder,
    Translation,
    replace,
    replicate,
    step,
)
from jaxjoints.couplings.shapes import Sphere
from jaxjoints.laws.transmissions import Mimic, PolynomialRelation, SwingCone, Weighted
from support.differences import MOTION, central, pushed

DT = 1e-2
MOST = 9  # parameters of a case
SCHEME = SemiImplicitEuler(joints="rows", gyroscopic="none")
# Laws on one coordinate, where it starts and how fast.
LAWS = {
    "hard stop": ([Limits(-0.1, 0.1)], 0.09, 3.0),
    "ODE's stop": ([Limits(-0.1, 0.1, erp=0.3, cfm=1e-2, anticipate=False)], 0.12, 0.5),
    "soft stop": ([Limits(-0.1, 0.1, stiffness=400.0, damping=3.0)], 0.12, 1.0),
    "bounce": ([Limits(-0.1, 0.1, restitution=0.6)], -0.09, -3.0),
    "limit force coming in": ([LimitForce(-0.1, 0.1, 400.0, 3.0, 0.05)], 0.12, 1.0),
    "limit force": ([LimitForce(upper=0.1, stiffness=400.0, damping=3.0)], 0.2, 1.0),
    "lock": ([Lock(0.1, 0.3, 1e-2)], 0.12, 0.5),
    "lock that opens": ([Lock(0.1, 0.3, 1e-2, engaged=True)], 0.12, 0.5),
    "spring and damper": ([SpringDamper(50.0, 1.0, 0.2)], 0.1, 1.0),
    "damping": ([Damping(3.0)], 0.1, 1.0),
    "dry friction": ([DryFriction(2.0)], 0.1, 1.0),
    "motor at its speed": ([Motor(1.0, 50.0, cfm=0.01)], 0.1, 0.9),
    "motor at its effort": ([Motor(5.0, 2.0)], 0.1, 0.9),
    "servo": ([Servo(300.0, 20.0, target=0.1, target_speed=0.3)], 0.0, 0.2),
    "servo within its effort": ([Servo(300.0, 20.0, 60.0, 0.1, 0.3)], 0.0, 0.2),
    "servo at its effort": ([Servo(300.0, 20.0, 3.0, 0.1, 0.3)], 0.0, 0.2),
    "armature and effort": ([Armature(3.0), Effort(1.5)], 0.1, 1.0),
    "motor against a stop": (
        [Limits(upper=0.1, cfm=1e-3), Motor(5.0, 2.0), DryFriction(1.0), Armature(0.5)],
        0.09,
        3.0,
    ),
}
# Softness of joints whose frames are apart.
SOFTNESS = {
    "bushing": Bushing((40.0, 50.0, 60.0), (1.0, 2.0, 3.0)),
    "compliance": Compliance((0.02, 0.03, 0.0), (1.0, 2.0, 3.0)),
    "baumgarte": Baumgarte((0.05, 0.06, 0.07)),
}
CASES = [*LAWS, *SOFTNESS, "joint that is off", "cone"]
APART = (0.05, -0.02, 0.03, 0.2, -0.3, 0.1)


@cache
def built():
    """A body for three laws, each along an axis of its own; for each spring and the cone one."""
    world = SystemBuilder(gravity=(0.3, -0.2, 0.5))
    names = list(LAWS)
    for i in range(0, len(names), 3):
        laws, q, qd = zip(*(LAWS[name] for name in names[i : i + 3]), strict=True)
        along = [replace(law, coordinate=k) for k in range(3) for law in laws[k]]
        world.body(f"{i // 3}", mass=2.0, inertia=(0.1, 0.1, 0.1))
        world.joint(f"{i // 3}", Translation(), child=f"{i // 3}", laws=along, q=q, qd=qd)
    for name, softness in SOFTNESS.items():
        world.body(name, mass=2.0, inertia=(0.1, 0.1, 0.1))
        world.joint(name, Translation(), child=name, softness=softness)
    world.body("off", mass=2.0, inertia=(0.1, 0.1, 0.1))
    stop = Limits(0.1, 0.2, stiffness=40.0, damping=1.0)
    world.joint("off", Translation(), child="off", laws=stop, enabled=False, q=(0.1, 0.2, 0.3))
    world.body("cone", mass=2.0, inertia=(0.1, 0.1, 0.1))
    start = {"q": (0.25, 0.12, 0.0), "qd": (3.0, 2.0, 0.0)}
    world.joint("cone", Translation(), child="cone", **start)
    laws = Limits(lower=0.0, erp=0.3)
    world.transmission("cone", SwingCone(0.3, 0.2), joints="cone", laws=laws)
    system, state = world.build()
    # Turned off the surfaces of their joints.
    for name in SOFTNESS:
        body = system.body(name)
        turn = jnp.array([1.0, *(x / 2 for x in APART[3:])])
        state = replace(
            state,
            quaternion=state.quaternion.at[:, body].set(turn / jnp.linalg.norm(turn)),
            omega=state.omega.at[:, body].set(jnp.array([0.3, 0.2, -0.1])),
        )
    return system, state


def parts(system, name):
    """The record whose leaves are the parameters of a case, and how to put it back."""
    if name == "cone":
        record = system.transmission("cone")

        def put(system, given):
            transmission, laws = given
            return system.with_transmission("cone", transmission=transmission, laws=laws)

        return (record.transmission, record.laws), put
    if name in SOFTNESS:
        return system.joint(name).softness, lambda s, x: s.with_joint(name, softness=x)
    if name not in LAWS:
        record = system.joint("off")
        return (record.laws, record.erp), lambda s, x: s.with_joint("off", laws=x[0], erp=x[1])
    joint, k = divmod(list(LAWS).index(name), 3)
    laws = system.joint(str(joint)).laws
    own = tuple(law for law in laws if law.coordinate == k)

    def put(system, given):
        every = system.joint(str(joint)).laws
        given = iter(given)
        mixed = tuple(next(given) if law.coordinate == k else law for law in every)
        return system.with_joint(str(joint), laws=mixed)

    return own, put


def seen(system, state, name):
    """What a case is seen by: motion along its coordinate, or of its body in a mixed direction."""
    if name in LAWS:
        joint, k = divmod(list(LAWS).index(name), 3)
        return state.velocity[k, system.body(str(joint))]
    body = system.body("off" if name.startswith("joint") else name)
    mix = jnp.array([0.7, -0.4, 0.5])
    return mix @ (state.velocity[:, body] + state.omega[:, body] * jnp.array([0.3, 0.9, -0.6]))


def moved(change):
    """Velocities of all cases after a step, the i-th parameter of each grown by change[i], and all
    bodies pushed by the rest.
    """
    start, state = built()
    system = start
    for name in CASES:
        record, put = parts(start, name)
        values, rebuild = ravel_pytree(record)
        assert len(values) <= MOST
        growth = 1 + change[: len(values)]
        system = put(system, rebuild(values * growth))
    final, _ = step(system, pushed(state, change[MOST:]), dt=DT, scheme=SCHEME)
    return jnp.stack([seen(system, final, name) for name in CASES])


@cache
def slopes():
    """By central differences and by reverse mode, (parameters and motion, cases) each."""
    built()  # its checks are of numbers, not of tracers
    values, reverse = jax.jit(jax.vmap(moved)), jax.jit(jax.jacrev(moved))
    at = np.zeros(MOST + MOTION)
    steps = np.full(at.size, 1e-4)
    return central(values, at, steps), np.asarray(reverse(jnp.asarray(at))).T


pytestmark = pytest.mark.filterwarnings("ignore:.*starts at .* outside its:UserWarning")


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_derivatives_of_a_law_are_those_of_finite_differences(name):
    expected, found = (x[:, CASES.index(name)] for x in slopes())
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    if name == "joint that is off":
        assert np.all(found[:MOST] == 0)
    else:
        assert np.abs(expected[:MOST]).max() > 1e-3


# Joints of two points, whose row along the line between them vanishes where they coincide.
BETWEEN_POINTS = {
    "rope": (Rope(), [Limits(upper=0.3)]),
    "bouncing rope": (Rope(), [Limits(upper=0.3, restitution=0.5)]),
    "locked rope": (Rope(), [Lock(0.2, engaged=True)]),
    "rod": (DoubleBall(0.5), []),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BETWEEN_POINTS)
def test_a_joint_whose_ends_meet_leaves_a_body_to_fall_freely(name):
    """And its neighbour in a batch the derivatives that it has without it."""
    coupling, laws = BETWEEN_POINTS[name]
    world = SystemBuilder(gravity=(0.0, 0.0, -9.81))
    world.body("body", mass=2.0, inertia=(0.1, 0.1, 0.1))
    world.joint("joint", coupling, child="body", laws=[*laws, Effort(1.5, coordinate=1)])
    system, state = world.build()
    weights = jnp.array([1.0, 2.0, 3.0])

    @jax.jit
    def slopes(places):
        start = replicate(replace(state, velocity=state.velocity + 0.1), 2)

        def seen(mass, position, velocity):
            changed = replace(start, position=position, velocity=velocity)
            final, info = step(replace(system, mass=mass), changed, dt=DT, scheme=SCHEME)
            return weights @ jnp.sum(final.position[:, 0], axis=-1), (final.velocity, info.ok)

        numbers = system.mass, places[:, None], start.velocity
        return jax.value_and_grad(seen, argnums=(0, 1, 2), has_aux=True)(*numbers)

    along = jnp.array([0.2, -0.1, 0.2])
    (_, (speed, ok)), (by_mass, *found) = slopes(jnp.stack([jnp.zeros(3), along], axis=-1))
    (_, (speeds, _)), (by_both, *expected) = slopes(jnp.stack([along, along], axis=-1))
    assert ok.all()
    np.testing.assert_allclose(speed[:, 0, 0], [0.1, 0.1, 0.1 - 9.81 * DT], rtol=1e-12)
    np.testing.assert_array_equal(speed[..., 1], speeds[..., 1])
    for each, factor in zip(found, (1.0, DT), strict=True):
        np.testing.assert_allclose(each[:, 0, 0], factor * weights, rtol=1e-12)
    np.testing.assert_allclose(by_mass, by_both / 2, rtol=1e-12)
    for some, every in zip(found, expected, strict=True):
        np.testing.assert_array_equal(some[..., 1], every[..., 1])
    assert np.abs(by_mass).max() > 1e-6


# Laws of a contact, and the least speed at which it pushes each of two balls [m/s] that are 0.2 m
# into each other.
INTO_EACH_OTHER = {
    "hard with friction": ({"friction": 0.5}, 1.9),
    "soft": ({"stiffness": 1e3, "damping": 1.0}, 0.9),
    "bouncing": ({"restitution": 0.5}, 1.9),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", INTO_EACH_OTHER)
def test_balls_whose_centres_meet_are_pushed_apart(name):
    """In some direction, which no slope changes; a neighbour in a batch has what it has alone."""
    surface, least = INTO_EACH_OTHER[name]
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    for place, ball in enumerate("ab"):
        world.body(ball, mass=2.0, inertia=(0.1, 0.1, 0.1), pose=(0.2 * place, 0.0, 0.0))
    shapes = Sphere(0.1), Sphere(0.1)
    world.contact("balls", *shapes, child="b", parent="a", **surface)
    system, state = world.build()
    weights = jnp.array([[1.0, -2.0], [3.0, 4.0], [-5.0, 6.0]])[..., None]

    @jax.jit
    def slopes(apart):
        start = replicate(state, 2)
        at, speed = start.position.at[:, 1].set(apart), start.velocity + 0.1

        def seen(mass, position, velocity):
            changed = replace(start, position=position, velocity=velocity)
            final, info = step(replace(system, mass=mass), changed, dt=DT)
            return jnp.sum(weights * final.position), (final.velocity, info.ok)

        return jax.value_and_grad(seen, argnums=(0, 1, 2), has_aux=True)(system.mass, at, speed)

    beside = jnp.array([0.15, 0.05, 0.02])
    (_, (speed, ok)), (by_mass, *found) = slopes(jnp.stack([jnp.zeros(3), beside], axis=-1))
    (_, (speeds, _)), (_, *expected) = slopes(jnp.stack([beside, beside], axis=-1))
    assert ok.all() and np.isfinite(by_mass).all()
    pushed_by = np.asarray(speed[..., 0]) - 0.1
    assert least < np.linalg.norm(pushed_by[:, 0]) < 2.001
    np.testing.assert_allclose(pushed_by.sum(axis=1), 0.0, atol=1e-12)
    np.testing.assert_array_equal(found[0][..., 0], weights[..., 0])
    np.testing.assert_array_equal(speed[..., 1], speeds[..., 1])
    for some, every in zip(found, expected, strict=True):
        assert np.isfinite(some).all()
        np.testing.assert_array_equal(some[..., 1], every[..., 1])


def bead(numbers):
    """Motion after a step of a bead near an end of its wire: from place and speed along it, and the
    height of a point of the wire.
    """
    along, speed, height = numbers
    points = jnp.array([[0.0, 0.0, 0.0], [0.5, 0.1, 0.2], [1.0, 0.4, 0.1]]).at[0, 2].set(height)
    world = SystemBuilder(gravity=(0.3, -0.2, -9.81))
    world.body("bead", mass=2.0, inertia=(0.1, 0.1, 0.1))
    q, qd = jnp.stack([along, 0.1, 0.2, -0.1]), jnp.stack([speed, 0.3, -0.2, 0.1])
    world.joint("wire", PointOnCurve.through(points), child="bead", q=q, qd=qd)
    final, _ = step(*world.build(), dt=DT)
    return jnp.concatenate([final.position[:, 0], final.velocity[:, 0], final.omega[:, 0]])


def meshing(numbers):
    """Speeds after a step of two blocks on rails, which a pair of gears of any ratio couples."""
    final, _ = step(*two_sliders(Mimic(numbers[0]), ()), dt=DT)
    return final.velocity.ravel()


LENGTH = float(np.hypot(np.hypot(0.5, 0.1), 0.2) + np.hypot(np.hypot(0.5, 0.3), 0.1))
# Numbers, and by how much the first is changed to leave the range.
AT_AN_END = {
    "beginning of a wire": (bead, (0.0, -0.8, 0.0), -1e-3),
    "end of a wire": (bead, (LENGTH, 0.8, 0.0), 1e-3),
    "gear of ratio 0": (meshing, (0.0,), 0.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_AN_END)
def test_slopes_at_the_end_of_a_range(name):
    """Where a curve goes on straight, and where a gear holds its second joint alone."""
    function, at, beyond = AT_AN_END[name]
    at, beside = np.array(at), np.eye(len(at))[0] * beyond
    outside = np.array([at + beside, at + 1e-6 * beside, at, at - 1e-6 * beside])
    found = np.asarray(jax.jit(jax.vmap(jax.jacrev(function)))(jnp.asarray(outside)))
    expected = central(jax.jit(jax.vmap(function)), outside[0], np.full(len(at), 1e-4))
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found[0].T, expected, rtol=1e-7, atol=1e-8)
    # Curvature has a kink at an end: there the slope is that of one side.
    assert min(np.abs(found[2] - found[side]).max() for side in (1, 3)) < 1e-6


def two_sliders(transmission, laws):
    """Blocks "a" and "b" on rails, and a transmission between them, which held nothing."""
    world = SystemBuilder(gravity=(0.3, -0.2, 0.5))
    for name, axis, qd in (("a", (1.0, 0.0, 0.0), 0.4), ("b", (0.0, 1.0, 0.0), -0.8)):
        world.body(name, mass=2.0, inertia=(0.1, 0.1, 0.1))
        world.joint(name, Slider(axis), child=name, q=0.0, qd=qd)
    if transmission is not None:
        world.transmission("of", transmission, joints=("a", "b"), laws=laws)
    return world.build()


ARMS, CENTRE = Weighted((1.0, 0.5)), PolynomialRelation((1.0, 0.5), (1.0, -2.0), (0.0, 0.0, 3.0))
# A transmission, its laws, and whether its value is made one of no slope by its arms or follower.
NO_ARMS = {
    "held tendon of no arms": (ARMS, [], "weights"),
    "tendon of no arms at its end": (ARMS, [Limits(upper=-0.1)], "weights"),
    "spring on a tendon of no arms": (ARMS, [SpringDamper(50.0, 2.0, 0.3)], "weights"),
    "friction and armature of no arms": (ARMS, [DryFriction(2.0), Armature(3.0)], "weights"),
    "held dead centre": (CENTRE, [], "follower"),
    "soft end of a dead centre": (CENTRE, [Limits(lower=0.1, stiffness=40.0)], "follower"),
}


@cache
def sliding_freely():
    """Speeds of the two sliders after a step without a transmission, (3, bodies)."""
    return np.asarray(step(*two_sliders(None, ()), dt=DT)[0].velocity)


@pytest.mark.slow
@pytest.mark.parametrize("name", NO_ARMS)
def test_a_transmission_of_no_slope_leaves_its_joints_alone(name):
    """Its derivatives are finite, and its neighbour in a batch has those that it has without it."""
    transmission, laws, arms = NO_ARMS[name]
    system, state = two_sliders(transmission, laws)
    weights = jnp.array([1.0, 2.0, 3.0])

    @jax.jit
    def slopes(shares):
        start = replicate(state, 2)
        bare = system.transmission("of").transmission
        changed = replace(bare, **{arms: getattr(bare, arms)[:, None] * shares[None]})

        def seen(transmission, mass, position, velocity):
            given = system.with_transmission("of", transmission=transmission)
            given = replace(given, mass=mass)
            moved = replace(start, position=position, velocity=velocity)
            final, info = step(given, moved, dt=DT)
            motion = jnp.sum(final.position + final.velocity, axis=1)
            return jnp.sum(weights @ motion), (final.velocity, info.ok)

        numbers = changed, system.mass, start.position, start.velocity
        return jax.value_and_grad(seen, argnums=(0, 1, 2, 3), has_aux=True)(*numbers)

    (_, (speed, ok)), found = slopes(jnp.array([0.0, 1.0]))
    (_, (speeds, _)), expected = slopes(jnp.array([1.0, 1.0]))
    assert ok.all()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))
    np.testing.assert_allclose(speed[..., 0], sliding_freely(), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(speed[..., 1], speeds[..., 1])
    for some, every in zip(found[2:], expected[2:], strict=True):
        np.testing.assert_array_equal(some[..., 1], every[..., 1])
