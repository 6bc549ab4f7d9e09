"""Constructors of poses: what they take, and what they say of arguments that are no poses."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints import Pose, UnitWarning
from support.refusals import refused

NAN = float("nan")
TURN = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])


def assert_same(one, other):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-15), one, other)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Pose.about_z("90"), ["Pose.about_z", "angle '90'", "no text"]),
        (lambda: Pose.about_x(None), ["Pose.about_x", "angle None", "numbers"]),
        (lambda: Pose.about_y([0.1, NAN]), ["Pose.about_y", "angle [0.1, nan]", "finite"]),
        (lambda: Pose.about_z(jnp.inf), ["Pose.about_z", "angle inf", "finite"]),
        (lambda: Pose.along_x("1"), ["Pose.along_x", "distance '1'", "no text"]),
        (lambda: Pose.along_z(NAN), ["Pose.along_z", "distance nan", "finite"]),
        (lambda: Pose.about((0, 0, 0), 0.3), ["Pose.about", "axis (0, 0, 0)", "not be zero"]),
        (lambda: Pose.about((0, 1), 0.3), ["Pose.about", "axis has shape (2,)", "(3,)"]),
        (lambda: Pose.about("z", 0.3), ["Pose.about", "axis 'z'", "(3,)", "no text"]),
        (lambda: Pose.about((0, 0, "1"), 0.3), ["Pose.about", "axis (0, 0, '1')", "numbers"]),
        (lambda: Pose.along((1, 0, 0), "2"), ["Pose.along", "distance '2'", "no text"]),
        (
            lambda: Pose.about(np.ones((3, 5)), np.ones(4)),
            ["Pose.about", "batch axes (4,) and (5,) differ"],
        ),
        (lambda: Pose.translation(1.0), ["Pose.translation", "p has shape ()", "(3,)"]),
        (lambda: Pose.translation((1, 2)), ["Pose.translation", "p has shape (2,)", "(3,)"]),
        (lambda: Pose.translation((1, 2, NAN)), ["Pose.translation", "(1, 2, nan)", "finite"]),
        (lambda: Pose.rotation((1, 0, 0)), ["Pose.rotation", "q has shape (3,)", "(4,)"]),
        (lambda: Pose.rotation((0, 0, 0, 0)), ["Pose.rotation", "(0, 0, 0, 0)", "zero"]),
        (lambda: Pose.rotation((2, 0, 0, 0)), ["Pose.rotation", "(2, 0, 0, 0)", "length 1"]),
        (lambda: Pose.from_matrix(np.eye(2)), ["Pose.from_matrix", "R has shape (2, 2)"]),
        (lambda: Pose.from_matrix(2 * np.eye(3)), ["Pose.from_matrix", "orthonormal", "by 3"]),
        (lambda: Pose.from_matrix(-np.eye(3)), ["Pose.from_matrix", "reflection"]),
        (
            lambda: Pose.from_matrix(np.eye(3), (0, 0)),
            ["Pose.from_matrix", "p has shape (2,)", "(3,)"],
        ),
        (
            lambda: Pose.from_rotation_vector((0, 0, "x")),
            ["Pose.from_rotation_vector", "r (0, 0, 'x')", "numbers"],
        ),
        (lambda: Pose.exp((0, 0, 1)), ["Pose.exp", "twist has shape (3,)", "(6,)"]),
    ],
)
def test_what_is_no_pose_is_refused_by_its_name(call, words):
    with refused(*words):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Pose.about_x(90), "Pose.about_x: angle 90 is taken in rad; were degrees meant"),
        (lambda: Pose.about_y([0.1, -45.0]), "angle -45 is taken in rad"),
        (lambda: Pose.about((0, 0, 1), 180.0), "Pose.about: angle 180 is taken in rad"),
        (lambda: Pose.from_rotation_vector((0, 0, 90)), "r 90 is taken in rad"),
    ],
)
def test_degrees_are_asked_about(call, words):
    with pytest.warns(UnitWarning, match=words):
        call()


def test_radians_are_not():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for angle in (12, 4 * np.pi, 20.5, -1.0):
            Pose.about_z(angle)
        Pose.along_x(500.0)


def test_a_quaternion_off_unit_length_is_scaled_with_a_warning():
    with pytest.warns(UserWarning, match=r"Pose.rotation: q \(1.1, 0, 0, 0\) normalized"):
        T = Pose.rotation((1.1, 0, 0, 0))
    assert_same(T, Pose.identity())


def test_numbers_sequences_and_arrays_are_one_pose():
    z = jnp.array([0.0, 0.0, 2.0])
    assert_same(Pose.translation((1, 2, 3)), Pose.translation(jnp.array([1.0, 2.0, 3.0])))
    assert_same(Pose.about([0, 0, 2], 0.3), Pose.about(z, 0.3))
    assert_same(Pose.about(np.array([0, 0, 2]), 0.3), Pose.about_z(0.3))
    assert_same(Pose.from_matrix(TURN.tolist()), Pose.about_z(np.pi / 2))
    assert_same(Pose.rotation([1, 0, 0, 0]), Pose.identity())
    assert Pose.along_x(jnp.array([1, 2])).p.dtype == jnp.zeros(()).dtype


def test_what_all_share_meets_a_batch():
    angles, places = jnp.linspace(0, 1, 5), jnp.ones((3, 5))
    for T in (
        Pose.about((0, 0, 1), angles),
        Pose.about(jnp.ones((3, 5)), 0.3),
        Pose.from_rotation_vector(jnp.zeros((3, 5)), (0, 0, 1)),
        Pose.from_matrix(np.eye(3), places),
    ):
        moved = T.apply(places)
        assert moved.shape == (3, 5)
    x, y = Pose.about((0, 0, 1), angles).apply(jnp.array([[1.0], [0.0], [0.0]]))[:2]
    np.testing.assert_allclose((x, y), (jnp.cos(angles), jnp.sin(angles)), atol=1e-15)


def test_traced_numbers_pass():
    def place(angle):
        return Pose.about((0.0, jnp.sin(angle), 1.0), angle) @ Pose.translation((angle, 0, 0))

    assert_same(jax.jit(place)(0.3), place(0.3))
    moved = jax.grad(lambda angle: (Pose.about_z(angle) @ Pose.along_x(1.0)).p[1])(0.3)
    np.testing.assert_allclose(moved, np.cos(0.3), atol=1e-15)
    # What is wrong with traced numbers is seen in what becomes of them.
    assert np.isnan(jax.jit(Pose.about_z)(NAN).q).any()
    with refused("Pose.translation", "p has shape (2,)"):
        jax.jit(Pose.translation)(jnp.zeros(2))
    # Constants of a program are checked.
    with refused("Pose.about_z", "finite"):
        jax.jit(lambda x: Pose.about_z(NAN).p + x)(0.0)


def test_poses_of_a_batch_are_taken_as_items_of_an_array():
    angles = jnp.arange(20.0).reshape(5, 4) / 20
    poses = Pose.about_z(angles) @ Pose.along_x(1 + angles)
    T = jax.jit(lambda angle: Pose.about_z(angle) @ Pose.along_x(1 + angle))
    for index in (3, -1, (..., 0), (2, 3), slice(1, 4), (slice(None), 1), [0, 2], (None, 1)):
        place = np.array(index) if isinstance(index, list) else index
        assert_same(poses[index], T(angles[place]))
    assert_same(poses[angles > 0.5], T(angles[angles > 0.5]))
    assert_same(jax.jit(lambda poses, i: poses[i, 1])(poses, 2), T(angles[2, 1]))
    assert len(poses) == 5 and len(poses[3]) == 4
    for row, several in zip(angles, poses, strict=True):
        assert_same(several, T(row))


def test_parts_that_a_batch_shares_are_taken_with_the_others():
    poses = Pose(jnp.arange(15.0).reshape(3, 5), Pose.about_z(0.3).q)
    assert_same(poses[2], Pose(poses.p[:, 2], poses.q))
    poses = Pose.from_rotation_vector(jnp.zeros((3, 5)), (1, 2, 3))
    assert_same(poses[4], Pose.translation((1, 2, 3)))


def test_an_index_that_is_none_of_the_batch_is_refused():
    poses = Pose.along_x(jnp.zeros(3))
    for index in (3, -4, (0, 0), 1.5, [0, 3]):
        with pytest.raises(IndexError, match=r"of poses with the batch axes \(3,\)"):
            poses[index]
    one = Pose.identity()
    with pytest.raises(IndexError, match="index 0 of a single pose"):
        one[0]
    with pytest.raises(TypeError, match="a single Pose has no length"):
        len(one)
    with pytest.raises(TypeError, match="a single Pose has no length"):
        list(one)
    assert one
    recorded = Pose(jnp.zeros((7, 3, 2)), jnp.zeros((7, 4, 2)))
    with refused("(7, 3, 2)", "time in front", "x[i]"):
        recorded[0]


def test_bodies_are_taken_from_their_poses():
    world = jj.SystemBuilder()
    for name, x in (("a", 1.0), ("b", 2.0)):
        world.body(name, mass=1.0, inertia=(1.0, 1.0, 1.0), pose=(x, 0.0, 0.0))
    system, state = world.build()
    poses = jj.body_poses(system, state)
    assert_same(poses[system.body("b")], Pose.along_x(2.0))
    assert [float(T.p[0]) for T in poses] == [1.0, 2.0]
    wide = jj.body_poses(system, jj.replicate(state, 3))
    assert_same(wide[system.body("b"), 2], Pose.along_x(2.0))
    assert len(jax.tree.leaves(poses)) == 2
