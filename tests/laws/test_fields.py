"""Forces from outside: at points, drag, ODE's damping, fields of one's own."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxjoints import (
    Control,
    Pose,
    SystemBuilder,
    energies,
    momentum,
    replace,
    replicate,
    rollout,
    step,
    struct,
    wrench_at,
)
from jaxjoints.algebra.rotation import cross, norm
from jaxjoints.laws.fields import BodyDamping, BodyMotion, Drag, Field, PointForce
from support import mechanisms
from support.cases import mostly_slow
from support.differences import check_slopes

EXACT = 1e-13  # float64, some hundred roundings of numbers of order one
DT = 1e-2
MASS, INERTIA, COM = 2.0, np.array([0.1, 0.2, 0.25]), np.array([0.1, -0.2, 0.3])
HALF = (np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5))  # by 90° about z

one_step = jax.jit(lambda system, state, control: step(system, state, control, dt=DT))


@struct
class Attraction(Field):
    """Towards the world's origin by strength / r²."""

    strength: jax.Array

    def wrench(self, motion):
        away = motion.pose.p
        return jnp.append(-self.strength * away / norm(away) ** 3, jnp.zeros(3))


def free_world(*, gravity=(0.0, 0.0, 0.0), **options):
    world = SystemBuilder(gravity=gravity)
    world.body("stone", **{"mass": MASS, "inertia": INERTIA, "com": COM} | options)
    return world


def with_field(field, **options):
    """A free body "stone" in the field "field"."""
    world = free_world(**options)
    world.field("field", field)
    return world.build()


# At a point


def test_a_force_at_a_point_pushes_the_centre_and_turns_the_body():
    force, point, moment = np.array([1.0, 2.0, -3.0]), np.array([0.4, 0.1, 0.0]), [0.1, 0.0, 0.2]
    system, state = with_field(PointForce(force, point, moment))
    new, _ = one_step(system, state, None)
    np.testing.assert_allclose(new.velocity[:, 0], DT * force / MASS, rtol=EXACT)
    # Before it has turned: angular momentum, which the step carries along.
    spin = momentum(system, new)[3:] - np.cross(new.position[:, 0], MASS * new.velocity[:, 0])
    expected = DT * (np.cross(point - COM, force) + moment)
    np.testing.assert_allclose(spin, expected, rtol=1e3 * EXACT)


@pytest.mark.parametrize("axes", ["world", "body"])
def test_a_field_and_a_control_do_the_same(axes):
    given = {"force": (1.0, 2.0, -3.0), "point": (0.4, 0.1, 0.0), "moment": (0.1, 0.0, 0.2)}
    pose = ((0.3, 0.2, 0.1), HALF)
    in_field, _ = one_step(*with_field(PointForce(**given, axes=axes), pose=pose), None)
    system, state = free_world(pose=pose).build()
    wrench = wrench_at(system, state, "stone", axes=axes, **given)
    by_control, _ = one_step(system, state, Control(wrench=wrench))
    for a, b in zip(jax.tree.leaves(in_field), jax.tree.leaves(by_control), strict=True):
        np.testing.assert_allclose(a, b, rtol=EXACT, atol=EXACT)
    turned = (-2.0, 1.0, -3.0) if axes == "body" else (1.0, 2.0, -3.0)
    np.testing.assert_allclose(wrench[:3, 0], turned, rtol=EXACT)


def test_wrenches_at_points_of_a_batch():
    system, state = free_world().build()
    forces = np.arange(12.0).reshape(3, 4)
    found = wrench_at(system, replicate(state, 4), "stone", force=forces, point=(1.0, 0.0, 0.0))
    assert found.shape == (6, 1, 4)
    arm = (np.array([1.0, 0.0, 0.0]) - COM)[:, None]
    np.testing.assert_allclose(found[:3, 0], forces, rtol=EXACT)
    np.testing.assert_allclose(
        found[3:, 0], np.cross(np.broadcast_to(arm, (3, 4)), forces, axis=0), atol=EXACT
    )
    with pytest.raises(ValueError, match="'C' must be 'world' or 'body'"):
        wrench_at(system, state, "stone", force=(0.0, 0.0, 0.0), axes="C")


def test_each_field_acts_on_its_own_bodies():
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    for name in "abc":
        world.body(name, mass=1.0, inertia=(1.0, 1.0, 1.0))
    world.body("rail", prescribed=True)
    world.field("x", PointForce((1.0, 0.0, 0.0)), bodies="c")
    world.field("y", PointForce((0.0, 2.0, 0.0)), bodies=["c", "a"])
    world.field("z", PointForce((0.0, 0.0, 3.0)))
    system, state = world.build()
    assert len(system.fields) == 1 and system.field("y").bodies == ((2, 0),)
    new, _ = one_step(system, state, Control(wrench=jnp.zeros((6, 4)).at[0, 1].set(4.0)))
    expected = [[0.0, 4.0, 1.0, 0.0], [2.0, 0.0, 2.0, 0.0], [3.0, 3.0, 3.0, 0.0]]
    np.testing.assert_allclose(new.velocity, DT * np.array(expected), rtol=EXACT)


# Drag


def test_linear_drag_slows_by_the_implicit_step():
    for c in (0.3, 1e6):
        system, state = with_field(
            Drag(linear=c, angular=2 * c),
            com=(0, 0, 0),
            inertia=(0.1, 0.1, 0.1),
            velocity=(1.0, 2.0, 3.0, 1.0, 2.0, 3.0),
        )
        new, _ = one_step(system, state, None)
        slow = state.velocity / (1 + DT * c / MASS), state.omega / (1 + DT * 2 * c / 0.1)
        np.testing.assert_allclose((new.velocity, new.omega), slow, rtol=0, atol=10 * EXACT)


@pytest.mark.slow
def test_quadratic_drag_follows_its_closed_form():
    """v = v₀ / (1 + c v₀ t / m): 1/v grows by c h / m in a step, in the closed form as here."""
    c, v0, v = 0.8, 3.0, np.zeros((3, 1))
    v[0] = v0
    system, state = with_field(Drag(quadratic=c), com=(0, 0, 0), velocity=(v0, 0, 0, 0, 0, 0))
    for _ in range(5):
        state, _ = one_step(system, state, None)
    np.testing.assert_allclose(state.velocity, v / (1 + c * v0 * 5 * DT / MASS), rtol=EXACT)


STRENGTHS = jnp.array([1.0, 1e2, 1e4, 1e8])


@cache
def dragged():
    """Two bodies adrift on a hinge with drag, which both spin, and drags of all strengths.

    The joint corrects no error, which would push.
    """
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0), erp=0.0)
    world.body("0", mass=1.0, inertia=(0.03, 0.05, 0.06), velocity=(0.2, -0.1, 0.3, 1.5, -1.0, 2.0))
    world.body("1", mass=0.7, inertia=(0.02, 0.03, 0.025))
    hinge = mechanisms.Hinge((1.0, 1.0, 0.0))
    world.joint("hinge", hinge, child="1", parent="0", frame_C=(0.2, 0.0, 0.1), q=0.4, qd=2.0)
    world.field("air", Drag(0.1, 0.2, 0.1, 0.05))
    system, state = world.build()
    air = jax.tree.map(lambda x: x * STRENGTHS, system.field("air").field)
    return system, replicate(state, len(STRENGTHS)), air


@pytest.mark.slow
def test_drag_takes_energy_from_jointed_bodies_however_strong():
    system, state, air = dragged()
    system = system.with_field("air", air)
    kinetic_energy = jax.jit(lambda state: energies(system, state).kinetic)
    kinetic = [kinetic_energy(state)]
    for _ in range(6):
        state, _ = one_step(system, state, None)
        kinetic.append(kinetic_energy(state))
    assert (np.diff(kinetic, axis=0) < 0).all()
    # At the strengths of the two last, h k / m is 10 at least: six steps leave less than 11⁻¹².
    assert (kinetic[-1][2:] < 11.0**-12 * kinetic[0][2:]).all()


# ODE's damping


def test_damping_scales_the_speeds_after_the_step_as_ode_does():
    """Velocities by gravity, positions from them, then the scale where the speed exceeds its
    threshold: the facts of ODE's step.
    """
    g, scale, threshold = -9.81, 0.1, 0.5
    system, state = with_field(
        BodyDamping(scale, 0.2, threshold, 2.0),
        gravity=(0.0, 0.0, g),
        com=(0, 0, 0),
        inertia=(0.1, 0.1, 0.1),
        velocity=(0, 0, 0, 0, 0, 5.0),
    )
    z = v = 0.0
    spin = 5.0
    for _ in range(12):
        state, _ = one_step(system, state, None)
        v += DT * g
        z += DT * v
        v *= 1 - scale if abs(v) > threshold else 1.0
        spin *= 1 - 0.2 if spin > 2.0 else 1.0
        found = state.position[2, 0], state.velocity[2, 0], state.omega[2, 0]
        np.testing.assert_allclose(found, (z, v, spin), rtol=100 * EXACT)
    assert 1.6 < spin <= 2.0 < 5 * 0.8**4  # the angular threshold has been crossed
    assert abs(v) > threshold


def test_dampings_of_one_body_follow_each_other():
    world = free_world(velocity=(1.0, 0, 0, 0, 0, 0))
    world.field("first", BodyDamping(linear=0.5))
    world.field("second", BodyDamping(linear=0.25), bodies="stone")
    new, _ = one_step(*world.build(), None)
    np.testing.assert_allclose(new.velocity[0, 0], 0.5 * 0.75, rtol=EXACT)
    np.testing.assert_allclose(new.position[0, 0], COM[0] + DT, rtol=EXACT)


# One's own


def test_a_central_field_keeps_the_angular_momentum_and_a_circle():
    """On a circle of radius r the speed is √(strength / (m r)); a period is 2π r / v."""
    strength, r = 8.0, 2.0
    speed = np.sqrt(strength / (MASS * r))
    system, state = with_field(
        Attraction(strength), com=(0, 0, 0), pose=(r, 0.0, 0.0), velocity=(0, speed, 0, 0, 0, 0)
    )
    steps = 1000
    period = 2 * np.pi * r / speed
    run = jax.jit(lambda s: rollout(system, s, dt=period / steps, steps=steps, record_every=100))
    _, found = run(state)
    spin = cross(found.position.swapaxes(0, 1), found.velocity.swapaxes(0, 1))
    np.testing.assert_allclose(spin[2], r * speed, rtol=1e2 * EXACT)
    # First order in the step: the orbit is an ellipse of eccentricity about half a step's angle.
    radius = np.linalg.norm(found.position, axis=1)
    np.testing.assert_allclose(radius, r, rtol=2 * np.pi / steps)


# Batches and derivatives


@pytest.mark.slow
def test_fields_of_a_batch_equal_those_of_its_environments():
    system, state, air = dragged()
    batched = one_step(system.with_field("air", air), state, None)[0]
    for i in (0, 2):
        own = jax.tree.map(lambda x: x[i], air)  # noqa: B023
        alone = one_step(system.with_field("air", own), state, None)[0]
        for a, b in zip(jax.tree.leaves(batched), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a[..., i], b[..., i], rtol=EXACT, atol=EXACT)


FIELDS = {
    "attraction": Attraction(2.0),
    "drag": Drag(0.5, 0.3, 0.2, 0.1),
    "thrust": PointForce((0.5, 0.1, 0.2), (0.1, 0.3, 0.0), axes="body"),
    "push": PointForce((0.5, 0.1, 0.2), (0.1, 0.3, 0.0), moment=(0.2, 0.1, -0.3)),
    "damping": BodyDamping(0.1, 0.2),
}


@pytest.mark.parametrize("name", mostly_slow(FIELDS, default=("drag",)))
def test_derivatives_by_parameters_and_by_the_motion(name):
    system, state = with_field(FIELDS[name], pose=((1.0, 0.5, 0.2), HALF))
    motion = BodyMotion(
        Pose(state.position[:, 0], state.quaternion[:, 0]),
        jnp.array([0.3, -0.2, 0.1]),
        jnp.array([1.0, 2.0, -1.0]),
        system.mass[0],
        system.inertia[:, :, 0],
        system.com[:, 0],
        state.time,
        jnp.asarray(0.1),
    )
    at = system.field("field").field, motion

    @jax.jit
    def found(field, motion):
        return field.velocity_update(motion) if name == "damping" else field.wrench(motion)

    check_grads(found, at, order=1, modes=("fwd", "rev"), rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_derivatives_of_a_step_by_strengths_and_velocities():
    world = free_world(pose=(1.0, 0.5, 0.2))
    world.field("drag", FIELDS["drag"])
    world.field("damping", FIELDS["damping"])
    system, state = world.build()

    def after(x):
        changed = system.with_field("drag", Drag(*x[:4]))
        start = replace(state, velocity=x[4:7, None], omega=x[7:, None])
        new, _ = step(changed, start, dt=0.1)
        return jnp.concatenate([new.velocity[:, 0], new.omega[:, 0], new.position[:, 0]])

    at = np.array([0.5, 0.3, 0.2, 0.1, 0.3, -0.2, 0.1, 1.0, 2.0, -1.0])
    # Steps of 1e-3 of a function of curvature 1: fourth differences are exact to 1e-11.
    check_slopes(after, at, np.full(10, 1e-3), rtol=1e-8, atol=1e-9)


def test_gradients_at_rest_are_finite():
    system, state = with_field(Drag(0.5, 0.3, 0.2, 0.1))

    @jax.jit
    @jax.grad
    def slope(velocity):
        return jnp.sum(step(system, replace(state, velocity=velocity), dt=DT)[0].velocity)

    np.testing.assert_allclose(slope(state.velocity), 1 / (1 + DT * 0.5 / MASS), rtol=EXACT)


# What is refused


@struct
class Short(Field):
    """Forgets the moment."""

    force: jax.Array

    def wrench(self, motion):
        return self.force


@struct
class Nothing(Field):
    """Neither a force nor anything else."""

    strength: jax.Array


@struct
class Branching(Field):
    """Python's `if` on a traced number."""

    strength: jax.Array

    def wrench(self, motion):
        return jnp.zeros(6) if motion.velocity[0] > 0 else jnp.ones(6)


@struct
class Sharp(Field):
    """Against the motion by its bare norm, whose derivative is NaN at rest."""

    strength: jax.Array

    def wrench(self, motion):
        speed = jnp.linalg.norm(motion.velocity)
        return jnp.append(-self.strength * speed * motion.velocity, jnp.zeros(3))


class TestRefused:
    @pytest.mark.parametrize(
        ("field", "words"),
        [
            (
                Short((1.0, 2.0, 3.0)),
                r"Short.wrench\(motion\) returns float64\[3\]; it must return",
            ),
            (Nothing(1.0), "Nothing defines neither wrench nor velocity_update"),
            (Branching(1.0), "Branching.wrench.* cannot be traced"),
            (Drag, r"is not a field; write Drag\("),
            (3.0, "3.0 is not a field; give a record"),
            (Drag(), "Drag has no coefficient"),
            (Drag(linear=-1.0), "Drag linear -1.0 must be >= 0"),
            (Drag(linear=np.nan), "Drag linear nan must be finite"),
            (BodyDamping(1.5), r"BodyDamping linear 1.5 must lie in \[0, 1\]"),
            (PointForce((1.0, 2.0)), r"PointForce force has shape \(2,\); it must be \(3,\)"),
            (PointForce((1.0, 2.0, 3.0), axes="C"), "PointForce axes 'C' must be"),
        ],
    )
    def test_records(self, field, words):
        with pytest.raises(ValueError, match=f"field 'field': .*{words}"):
            free_world().field("field", field)

    @pytest.mark.parametrize(
        ("bodies", "words"),
        [
            ("stome", "'stome' is no body; did you mean 'stone'"),
            (["stone", "stone"], "'stone' is given twice"),
            ("rail", "'rail' moves as prescribed"),
        ],
    )
    def test_bodies(self, bodies, words):
        world = free_world()
        world.body("rail", prescribed=True)
        with pytest.raises(ValueError, match=f"field 'air': .*{words}"):
            world.field("air", Drag(0.1), bodies=bodies)

    def test_names(self):
        world = free_world()
        world.field("air", Drag(0.1))
        with pytest.raises(ValueError, match="field 'air' is defined twice"):
            world.field("air", Drag(0.2))
        with pytest.raises(KeyError, match="no field 'wind'"):
            world.build()[0].field("wind")

    def test_not_finite_at_the_start(self):
        words = "field 'field': Attraction.wrench is not finite for body 'stone' at rest"
        with pytest.raises(ValueError, match=words):
            with_field(Attraction(1.0), com=(0, 0, 0))
        with pytest.raises(ValueError, match="Sharp.wrench has a derivative that is not finite"):
            with_field(Sharp(1.0))
