"""Numbers of a system by their paths: read, written, batched, differentiated, refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.identification import BodyInertia


@pytest.fixture(scope="module")
def system():
    world = jj.SystemBuilder()
    arm = world.body("arm.left", mass=2.0, inertia=(0.2, 0.3, 0.4), com=(0.1, 0.0, 0.0))
    hand = world.body("hand", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.joint("arm", jj.Hinge((0.0, 1.0, 0.0)), child=arm)
    laws = [jj.Limits(lower=-1.0, stiffness=10.0), jj.SpringDamper(3.0, 0.1)]
    world.joint("arm.wrist", jj.Helical(pitch=0.1), child=hand, parent=arm, laws=laws)
    world.transmission("belt", jj.transmissions.Mimic(2.0), joints=["arm", "arm.wrist"])
    world.field("air", jj.fields.BodyDamping(0.1, 0.2), bodies=["hand"])
    return world.build()[0]


PATHS = {
    "gravity": (0.0, 0.0, -1.0),
    "body.arm.left.mass": 5.0,
    "body.hand.com": (0.1, 0.2, 0.3),
    "body.hand.inertia": np.diag([1.0, 2.0, 2.5]),
    "joint.arm.coupling.axis": (1.0, 0.0, 0.0),
    "joint.arm.wrist.frame_D.p": (0.0, 0.0, 0.5),
    "joint.arm.wrist.pitch": 0.3,
    "joint.arm.wrist.limits.stiffness": 7.0,
    "joint.arm.wrist.laws.1.damping": 0.7,
    "transmission.belt.transmission.ratio": 3.0,
    "field.air.field.linear": 0.4,
}


@pytest.mark.parametrize("path", PATHS)
def test_a_number_written_is_read_and_nothing_else_changes(system, path):
    value = jnp.asarray(PATHS[path])
    changed = system.with_numbers({path: value})
    np.testing.assert_array_equal(changed.number(path), value)
    for other in PATHS.keys() - {path}:
        np.testing.assert_array_equal(changed.number(other), system.number(other))
    assert jax.tree.structure(changed) == jax.tree.structure(system)


def test_numbers_may_carry_a_batch(system):
    masses = jnp.array([1.0, 2.0, 3.0])
    changed = system.with_numbers(
        {"body.hand.mass": masses, "joint.arm.wrist.limits.stiffness": 10 * masses}
    )
    np.testing.assert_array_equal(changed.mass, [[2.0, 2.0, 2.0], masses])
    np.testing.assert_array_equal(changed.joint("arm.wrist").laws[0].stiffness, 10 * masses)


def test_a_body_is_a_record_of_three_numbers(system):
    body = system.number("body.arm.left")
    assert body.mass == 2.0
    body = BodyInertia(3.0, body.com, 2 * body.inertia)
    changed = system.with_numbers({"body.arm.left": body})
    np.testing.assert_array_equal(changed.mass, [3.0, 1.0])
    np.testing.assert_array_equal(changed.inertia[..., 0], np.diag([0.4, 0.6, 0.8]))


def test_knots_of_a_joints_function_are_numbers():
    functions = jj.functions
    knots, heights = jnp.array([-1.0, 0.0, 2.0]), jnp.array([0.1, 0.0, 0.4])
    still, turn = functions.Constant(0.0), functions.Linear([1.0])
    bow = functions.Spline(knots, heights)
    moves = {"rotations": (still, still, turn), "translations": (still, bow, still)}
    world = jj.SystemBuilder()
    world.body("shank", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.joint("knee", jj.FunctionDriven(dof=1, **moves), child="shank")
    system, _ = world.build()
    path = "joint.knee.translations.1.values"
    np.testing.assert_array_equal(system.number(path), heights)
    other = jnp.array([[0.2, 0.3], [0.1, 0.0], [0.5, 0.6]])
    changed = system.with_numbers({path: other})
    np.testing.assert_array_equal(changed.number(path), other)
    np.testing.assert_array_equal(changed.number("joint.knee.translations.1.knots"), knots)
    at_a_knot = system.with_numbers({path: other[:, 0]}).joint("knee").coupling.pose(jnp.zeros(1))
    np.testing.assert_allclose(at_a_knot.p, [0.0, 0.1, 0.0], atol=1e-12)


def test_a_derivative_by_a_number_is_that_of_its_leaf(system):
    def loss(mass):
        return jnp.sum(system.with_numbers({"body.hand.mass": mass}).mass ** 2)

    assert jax.grad(loss)(3.0) == 6.0


REFUSED = {
    "did you mean 'joint'": "joints.arm.coupling.axis",
    "no joint 'elbow'": "joint.elbow.frame_C",
    "'limits'": "joint.arm.wrist.limit.stiffness",
    "did you mean 'stiffness'": "joint.arm.wrist.limits.stifness",
    "a body has no weight": "body.hand.weight",
    "has no number 'axes'": "joint.arm.coupling.axes",
}


@pytest.mark.parametrize("message", REFUSED)
def test_an_unknown_path_is_refused_with_what_is_near(system, message):
    path = REFUSED[message]
    for call in (system.number, lambda path: system.with_numbers({path: 1.0})):
        with pytest.raises(ValueError, match=message):
            call(path)


def test_other_shapes_are_refused(system):
    with pytest.raises(ValueError, match=r"com has shape \(2,\)"):
        system.with_numbers({"body.hand.com": (1.0, 2.0)})
    with pytest.raises(ValueError, match="joint 'arm'.*axis"):
        system.with_numbers({"joint.arm.coupling.axis": (1.0, 2.0)})


def test_of_two_laws_of_one_type_the_path_names_the_place():
    world = jj.SystemBuilder()
    world.body("foot", mass=1.0, inertia=(1.0, 1.0, 1.0), pose=(0.0, 0.0, 1.0))
    ends = jj.shapes.Sphere(0.1), jj.shapes.HalfSpace()
    world.contact("heel", *ends, child="foot", friction=0.5, cone="pyramid")
    system, _ = world.build()
    with pytest.raises(ValueError, match=r"laws\.1 and laws\.2 are both of the type"):
        system.number("contact.heel.contact_friction.friction")
    assert system.number("contact.heel.laws.2.friction") == 0.5
