"""Steps that solve the nearest contacts first (`schemes.nearest`), beside steps with all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.algebra import compiler
from jaxjoints.model import kinematics
from jaxjoints.schemes import nearest

DT, STEPS = 4e-3, 150
# Of a step with the nearest contacts and one with all: another order of sums.
ROUNDING = 1e-9


def scene(**laws):
    """A plate of 1 kg with 5 by 5 studs above the ground, an arm with a stud of its own, and two
    rods with other laws, whose contacts stand in turns: one lies on the ground, one falls.
    """
    world = jj.SystemBuilder()
    plate = world.body("plate", mass=1.0, inertia=(0.03, 0.03, 0.06), pose=(0.0, 0.0, 0.5))
    arm = world.body("arm", mass=0.5, inertia=(0.02, 0.02, 0.001), com=(0.0, 0.0, -0.2))
    world.joint("hinge", jj.Hinge((0.0, 1.0, 0.0)), child=arm, frame_D=(2.0, 0.0, 0.3), q=1.2)
    stud, ground = jj.shapes.Sphere(0.02), jj.shapes.HalfSpace()
    laws = {"friction": 0.5} | laws
    for n in range(25):
        at = (0.1 * (n % 5) - 0.2, 0.1 * (n // 5) - 0.2, -0.02)
        world.contact(f"stud {n}", stud, ground, child=plate, frame_C=at, **laws)
    world.contact("tip", stud, ground, child=arm, frame_C=(0.0, 0.0, -0.4), friction=0.5)
    for rod, height in {"low": 0.05, "high": 3.0}.items():
        pose = (4.0, height, height)
        world.body(rod, mass=2.0, inertia=(0.02, 0.1, 0.1), pose=pose)
    for end in (-0.2, 0.2):
        for rod in ("low", "high"):
            ball, at = jj.shapes.Sphere(0.05), {"child": rod, "frame_C": (end, 0.0, 0.0)}
            world.contact(f"{rod} {end}", ball, ground, friction=0.5, spinning=0.01, **at)
    return world.build()


def thrown(system, state, batch=6):
    """Plates that fly and turn in all ways."""
    rng = np.random.default_rng(1)
    velocity, omega = (rng.normal(size=(3, 4, batch)) for _ in range(2))
    velocity[:, 1:], omega[:, 1:] = 0.0, 0.0
    return jj.replace(
        jj.replicate(state, batch), velocity=jnp.asarray(velocity), omega=jnp.asarray(4 * omega)
    )


def with_all(monkeypatch, function, *arguments):
    """What a function returns where steps take the nearest contacts, and where they take all."""
    first = function(*arguments)
    with monkeypatch.context() as patched:
        patched.setattr(nearest, "LEAST_LEFT_OUT", 1000)
        jax.clear_caches()
        second = function(*arguments)
    jax.clear_caches()
    return first, second


@jax.jit
def taken(system, state):
    """With how many contacts each environment makes its next step."""
    dt, scheme = jnp.asarray(DT), jj.SemiImplicitEuler()
    mechanism = kinematics.prepare(system, state.time.ndim)
    at = kinematics.system_kinematics(mechanism, state)

    def solve(mechanism, at, state):
        new, info, twists = scheme._advanced(mechanism, at, state, jj.Control(), dt)
        count = jnp.full_like(info.iterations, len(mechanism.system.topology.contacts))
        return new, jj.replace(info, iterations=count), twists

    _, info = nearest.advanced(mechanism, at, state, dt, nearest.sets_of(system), solve)
    return info.iterations


# Beside the studs of the plate five contacts, which no step leaves out.
FEW, ALL = nearest.NEAREST + 5, 30


def roll(system, start):
    """The trajectory of a rollout, the forces of its contacts, whether its steps are sound, and by
    which speeds friction exceeds its bounds.
    """

    def record(state, info):
        return state, info.contact_force, info.ok, info.friction_excess

    return jj.rollout(system, start, dt=DT, steps=STEPS, record=record)[1]


def test_plates_without_friction_move_as_with_all_contacts(monkeypatch):
    system, state = scene(friction=0.0)
    start = thrown(system, state)
    found, expected = with_all(monkeypatch, roll, system, start)
    (states, force, ok, _), (others, wanted, *_) = found, expected
    assert np.all(ok)
    for name, more in {"position": 1, "omega": 1e2}.items():
        pair = getattr(states, name), getattr(others, name)
        np.testing.assert_allclose(*pair, rtol=0, atol=more * ROUNDING)
    # The forces together: how several studs share a load is up to the solver.
    pair = (x[:, 0, :25].sum(axis=1) for x in (force, wanted))
    np.testing.assert_allclose(*pair, rtol=0, atol=1e4 * ROUNDING)


def test_steps_with_few_and_with_all_contacts_obey_the_laws_of_all():
    system, state = scene()
    states, force, ok, excess = roll(system, thrown(system, state))
    assert np.all(ok)
    # Steps of both kinds at the same time, and both where a plate touches.
    touching = np.any(force[:, 0, :25] > 0, axis=1)
    counts = np.array([taken(system, at(states, n)) for n in range(0, STEPS - 1, 5)])
    assert set(counts.ravel()) == {FEW, ALL}
    assert np.any(counts.min(axis=1) < counts.max(axis=1))
    for count in (FEW, ALL):
        assert np.any(touching[1:][::5][counts == count])
    # Gaps may close by the second order of a step.
    gaps = np.array([jj.gaps(system, at(states, n)) for n in range(STEPS)])
    assert gaps.min() > -2e-3
    normal, slip = force[:, 0], np.hypot(force[:, 1], force[:, 2])
    assert normal.min() >= -ROUNDING
    low, high = (
        [system.contact_index(f"{rod} {end}") for end in (-0.2, 0.2)] for rod in ("low", "high")
    )
    np.testing.assert_allclose(normal[5:, low], 9.81, rtol=1e-6)
    assert not np.any(normal[:, high])
    # A speed of 1 m/s is an impulse of 2 N s at most: that of the heaviest body.
    assert np.all(slip <= 0.5 * normal + 2.0 * excess[:, None] / DT + ROUNDING)
    assert np.median(excess[excess > 0]) < 1e-4
    # Velocities change by what `Info` reports, of all studs.
    up = np.sum(force[:, 0, :25], axis=1)
    change = np.diff(states.velocity[:, 2, 0], axis=0)
    np.testing.assert_allclose(change, DT * (up[1:] - 9.81), rtol=0, atol=1e-9)


def at(states, n):
    """A state of a trajectory."""
    return jax.tree.map(lambda x: x[n], states)


def test_a_contact_that_was_left_out_and_would_push_brings_all_in():
    """A plate that falls flat: no stud touches before the step in which all do."""
    system, state = scene()
    state = jj.replace(state, velocity=state.velocity.at[2, 0].set(-1.0))
    for height, count in {0.05: FEW, 0.043: ALL}.items():
        start = jj.replace(state, position=state.position.at[2, 0].set(height))
        assert np.min(jj.gaps(system, start)[:25]) > 0
        assert taken(system, start) == count


@pytest.mark.slow
def test_gradients_are_those_with_all_contacts(monkeypatch):
    system, state = scene()

    def loss(system, start):
        end = jj.rollout(system, start, dt=DT, steps=60)[0]
        return jnp.sum(end.position[:, 0] * end.velocity[:, 0])

    def slopes(start):
        by_system, by_start = jax.jit(jax.grad(loss, argnums=(0, 1)))(system, start)
        friction = [law.friction for law in by_system.contacts[0].laws[1:]]
        return by_start.velocity, by_start.omega, by_system.mass, *friction

    found, expected = with_all(monkeypatch, slopes, thrown(system, state))
    for one, other in zip(found, expected, strict=True):
        assert np.any(one != 0)
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-8)


@pytest.mark.slow
def test_environments_mapped_by_vmap_move_alike():
    system, state = scene(friction=0.0)
    start = thrown(system, state, 3)
    advance = lambda start: jj.rollout(system, start, dt=DT, steps=60)[0]  # noqa: E731
    one = jax.jit(jax.vmap(advance, in_axes=-1, out_axes=-1))(start)
    np.testing.assert_allclose(one.position, advance(start).position, rtol=0, atol=ROUNDING)


def test_environments_do_not_depend_on_their_neighbours():
    """Not in the last digit, whatever contacts these need, and if they are no numbers."""
    system, state = scene()
    start = thrown(system, state, 3)
    bad = jj.replace(start, position=start.position.at[0, 0, 1].set(jnp.nan))
    flat = jj.replace(start, position=start.position.at[2, 0, 1].set(0.04))
    roll = lambda start: jj.rollout(system, start, dt=DT, steps=60)[0].position  # noqa: E731
    one, *others = (roll(x) for x in (start, bad, flat))
    for other in others:
        np.testing.assert_array_equal(one[..., [0, 2]], other[..., [0, 2]])


def test_a_contact_that_is_switched_off_brings_nothing_in():
    """Studs in the ground, all switched off."""
    system, state = scene(enabled=True)
    lying = jj.replace(state, position=state.position.at[2, 0].set(0.03))
    assert taken(system, lying) == ALL
    for n in range(25):
        system = system.with_contact(f"stud {n}", enabled=False)
    assert taken(system, lying) == FEW


def test_which_systems_take_all_contacts_in_every_step():
    system, _ = scene()
    sets = nearest.sets_of(system)
    assert [[len(of) for of in group] for group in sets] == [[25, 1], [1, 1, 1, 1]]
    for laws in ({"restitution": 0.5}, {"normal_speed": 0.1}):
        assert nearest.sets_of(scene(**laws)[0]) is None
    with compiler.traced_for("gpu"):
        assert nearest.sets_of(system) is None
