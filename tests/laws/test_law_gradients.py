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
from jaxjoints.laws.transmissions import PolynomialRelation, SwingCone, Weighted
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
