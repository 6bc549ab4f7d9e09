"""Laws of the joint-space view, for all couplings in their coordinates and for other numbers."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxjoints as jj
from jaxjoints.algebra.spatial import error_twist
from support.cases import mostly_slow
from support.couplings_catalog import CATALOG, TILTED, Gimbal, Screw

# Configurations of one compiled call.
COUNT = 5
EXACT = 1e-11  # float64, some hundred roundings of numbers up to 20
STEP = 2e-3
DIFFERENCED = 1e-8  # STEP⁴ times a fifth derivative, and rounding / STEP
SHIFTS = STEP * np.array([0.0, 1.0, -1.0, 2.0, -2.0])
TIME = 0.3

# How a view is made: many compile a check of their coupling, which importing should not pay for.
IN_COORDINATES = {
    name: partial(jj.joint_space.JointSpace, entry.coupling, t=TIME)
    for name, entry in CATALOG.items()
}
OTHERWISE = {
    "hinge by sine and cosine": partial(jj.joint_space.SineCosine, jj.Hinge(TILTED)),
    "planar with body speeds": partial(jj.joint_space.BodySpeeds, jj.Planar()),
    "cylindrical with body speeds": partial(jj.joint_space.BodySpeeds, jj.Cylindrical(TILTED)),
    "screw with body speeds": partial(jj.joint_space.BodySpeeds, Screw(jnp.array(0.5))),
    "gimbal with body speeds": partial(jj.joint_space.BodySpeeds, Gimbal()),
    "free by Rodrigues parameters with body speeds": partial(
        jj.joint_space.BodySpeeds, jj.FreeRodrigues()
    ),
    "ball by quaternion": partial(jj.joint_space.UnitQuaternion, jj.Ball()),
    "free by quaternion": partial(jj.joint_space.UnitQuaternion, jj.Free()),
}
SPACES = {**IN_COORDINATES, **OTHERWISE}
# Views with more numbers of a position than of a velocity.
REDUNDANT = ["hinge by sine and cosine", "ball by quaternion", "free by quaternion"]
# Poses of residuals are found by Newton's method and slow to compile: two of them.
RESIDUALS = [n for n, entry in CATALOG.items() if isinstance(entry.coupling, jj.Residual)]
MOVING = [n for n in SPACES if n not in RESIDUALS] + ["point on sphere", "moving plane"]
# What follows from S, or is the coupling's own, is the same code for all: some of each kind.
SOME = ["fixed", "tilted hinge", "slider", "ball", "universal", "screw", *OTHERWISE]

spaces = pytest.mark.parametrize(
    "name",
    mostly_slow(
        MOVING,
        default=("universal", "free by quaternion"),
        sweep=[name for name in MOVING if name not in SOME],
    ),
)
some_spaces = pytest.mark.parametrize(
    "name", mostly_slow(SOME, default=("hinge by sine and cosine", "free by quaternion"))
)


@cache
def space_of(name):
    return SPACES[name]()


def rng_of(name, seed):
    return np.random.default_rng([seed, *name.encode()])


@cache
def given(name):
    """Random configurations, those with redundant numbers not normalized, and what acts there."""
    space, rng = space_of(name), rng_of(name, 0)
    if name in CATALOG:
        reach = np.array(CATALOG[name].reach).reshape(-1, 1)
        x = reach * rng.uniform(-1, 1, (space.positions, COUNT))
    else:
        keys = jax.random.split(jax.random.key(0), COUNT)
        x = np.array(jax.vmap(space.random, out_axes=1)(keys))
    if name in REDUNDANT:
        x[-4:] *= rng.uniform(0.5, 2.0, COUNT)
    sizes = {"v": space.velocities, "vd": space.velocities, "xd": space.positions, "wrench": 6}
    acting = {key: rng.uniform(-1, 1, (size, COUNT)) for key, size in sizes.items()}
    return {"x": x, "origin": x + 0.3 * rng.uniform(-1, 1, x.shape), **acting}


def each(function):
    """`function` of a space and the quantities given at one configuration, for all of them."""
    mapped = jax.jit(jax.vmap(function, in_axes=(None, -1), out_axes=-1))
    return cache(lambda name: mapped(space_of(name), given(name)))


@each
def motion(space, at):
    """Poses and S near the configuration, and accelerations with v̇ and without."""
    x, v = at["x"], at["v"]
    rates = space.rates(x, v)

    def there(h):
        return space.pose(x + h * rates), space.motion_subspace(x + h * rates)

    T, S = jax.vmap(there)(jnp.asarray(SHIFTS))
    origin = jax.tree.map(lambda leaf: leaf[0], T)
    ways = jax.vmap(lambda T: error_twist(origin.inverse() @ T))(T)
    vd = jnp.stack([at["vd"], jnp.zeros_like(v)])
    accelerations = jax.vmap(space.acceleration, in_axes=(None, None, 0))(x, v, vd)
    return {"ways": ways, "S": S, "accelerations": accelerations}


@each
def effects(space, at):
    """What follows from S and from the differential of the configuration."""
    x, v, origin = at["x"], at["v"], at["origin"]
    rates = space.rates(x, v)
    local = space.local_coordinates(origin, x)

    def way_to(other):
        return error_twist(space.pose(x).inverse() @ space.pose(other))

    def local_there(h):
        return space.local_coordinates(origin, x + h * rates)

    return {
        "twist": space.twist(x, v),
        "bias": space.bias_acceleration(x, v),
        "torque": space.torque(x, at["wrench"]),
        "rates": rates,
        "there and back": space.velocity(x, rates),
        "velocity": space.velocity(x, at["xd"]),
        "A": space.velocity_jacobian(x),
        "adjoint": space.velocity_adjoint(x, v),
        "local rates": space.local_rates(origin, x, v),
        "local there": jax.vmap(local_there)(jnp.asarray(SHIFTS)),
        "local of the origin": space.local_coordinates(origin, origin),
        "way to global of local": way_to(space.global_coordinates(origin, local)),
        "way to normalized": way_to(space.normalized(x)),
        "is normalized": space.is_normalized(space.normalized(x)),
        "was normalized": space.is_normalized(x),
    }


@each
def reading(space, at):
    """What the coupling's rows and coordinates say."""
    x, T = at["x"], space.pose(at["x"])
    principal = space.principal(x)
    return {
        "wrenches": space.wrench_subspace(x),
        "principal": principal,
        "way to principal": error_twist(T.inverse() @ space.pose(principal)),
        "read back": space.configuration(T, x),
        "normalized": space.normalized(x),
    }


def assert_close(found, expected, tolerance=EXACT):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def differenced(values):
    """Derivative at 0 of values at `SHIFTS`, to fourth order."""
    _, ahead, behind, farther, back = np.asarray(values)
    return (8 * (ahead - behind) - (farther - back)) / (12 * STEP)


def times(A, x):
    return np.einsum("...ijn,...jn->...in", A, x)


def work(a, b):
    return np.sum(np.asarray(a) * b, axis=0)


@spaces
def test_motion_subspaces_are_the_derivatives_of_poses(name):
    found = motion(name)
    assert_close(times(found["S"][0], given(name)["v"]), differenced(found["ways"]), DIFFERENCED)


@spaces
def test_accelerations_are_the_rates_of_twists(name):
    found, v, vd = motion(name), given(name)["v"], given(name)["vd"]
    speeds = v + SHIFTS[:, None, None] * vd
    expected = differenced(times(found["S"], speeds))
    assert_close(found["accelerations"][0], expected, DIFFERENCED)
    bias = found["accelerations"][1]
    assert_close(found["accelerations"][0], bias + times(found["S"][0], vd))


@some_spaces
def test_twists_torques_and_biases_are_those_of_the_motion_subspace(name):
    found, at, S = effects(name), given(name), motion(name)["S"][0]
    assert_close(found["twist"], times(S, at["v"]))
    assert_close(work(found["torque"], at["v"]), work(at["wrench"], found["twist"]))
    assert_close(found["bias"], motion(name)["accelerations"][1])


@some_spaces
def test_velocities_and_rates_are_each_others_inverse(name):
    found, at = effects(name), given(name)
    assert_close(found["there and back"], at["v"])
    assert_close(found["velocity"], times(found["A"], at["xd"]))
    assert_close(work(found["adjoint"], at["xd"]), work(at["v"], found["velocity"]))
    if name in CATALOG:
        assert_close(found["rates"], at["v"])


@some_spaces
def test_local_coordinates_vanish_at_their_origin_and_lead_back(name):
    found = effects(name)
    assert_close(found["local of the origin"], 0 * found["local of the origin"])
    assert_close(found["way to global of local"], np.zeros((6, COUNT)))
    assert_close(found["local rates"], differenced(found["local there"]), DIFFERENCED)


@some_spaces
def test_normalized_configurations_have_the_same_pose(name):
    found = effects(name)
    assert found["is normalized"].all()
    assert not (name in REDUNDANT and found["was normalized"].any())
    assert_close(found["way to normalized"], np.zeros((6, COUNT)))


@some_spaces
def test_wrenches_do_no_work_on_free_motion(name):
    found, space = reading(name), space_of(name)
    assert found["wrenches"].shape == (6, space.constraints, COUNT)
    done = np.einsum("abn,acn->bcn", found["wrenches"], motion(name)["S"][0])
    assert_close(done, np.zeros(done.shape))
    both = np.concatenate([found["wrenches"], motion(name)["S"][0]], axis=1)
    assert (np.linalg.matrix_rank(np.moveaxis(both, -1, 0)) == 6).all()


@some_spaces
def test_configurations_are_read_back_from_their_poses(name):
    found = reading(name)
    assert_close(found["read back"], found["normalized"])


@some_spaces
def test_principal_values_keep_the_pose(name):
    found = reading(name)
    assert_close(found["way to principal"], np.zeros((6, COUNT)))
    assert (size(found["principal"]) <= size(found["normalized"]) + EXACT).all()


def size(x):
    return np.linalg.norm(x, axis=0)


def test_principal_values_are_the_nearest_to_zero():
    principal = jax.jit(lambda space, x: space.principal(x))
    turned = jnp.array([5.0, 0.0, 0.0])
    assert_close(principal(jj.joint_space.JointSpace(jj.Ball()), turned), [5 - 2 * np.pi, 0, 0])
    hinge = jj.joint_space.JointSpace(jj.Hinge())
    assert_close(principal(hinge, jnp.array([20.0])), [20 - 6 * np.pi])
    quaternion = jnp.array([-0.6, 0.0, 0.8, 0.0])
    assert_close(principal(jj.joint_space.UnitQuaternion(jj.Ball()), quaternion), -quaternion)
    shadowed = jnp.array([1.0, 2.0, 3.0, 0.0, 0.0, 2.0])
    parameters = jj.joint_space.JointSpace(jj.FreeRodrigues())
    assert_close(principal(parameters, shadowed), [1, 2, 3, 0, 0, -0.5])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hinge by sine and cosine", "free by quaternion", "screw"])
def test_gradients_match_finite_differences(name):
    space = space_of(name)
    at = {key: jnp.asarray(value[..., 0]) for key, value in given(name).items()}

    @jax.jit  # options of a compiler cannot be nested in what `check_grads` compiles
    def everything(coupling, x, v):
        here = jj.replace(space, coupling=coupling)
        return (
            here.acceleration(x, v, at["vd"]),
            here.torque(x, at["wrench"]),
            here.local_rates(at["origin"], x, v),
            here.velocity_adjoint(x, v),
        )

    check_grads(everything, (space.coupling, at["x"], at["v"]), order=1, modes=("fwd", "rev"))


def test_traits_tell_what_turns():
    def traits(space):
        return bool(space.has_fixed_subspaces()), bool(space.has_constant_motion())

    assert traits(space_of("tilted hinge")) == (True, True)
    assert traits(space_of("ball")) == (True, False)
    assert traits(space_of("ball by quaternion")) == (True, True)
    assert traits(space_of("universal")) == (False, False)
    assert space_of("free").is_floating and not space_of("ball").is_floating


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([*IN_COORDINATES, "free by quaternion"], id="coordinates"),
        pytest.param(OTHERWISE, marks=pytest.mark.slow, id="others"),
    ],
)
def test_counts_are_those_of_the_numbers(names):
    for name in names:
        space = space_of(name)
        assert (space.positions > space.velocities) == (name in REDUNDANT)
        assert space.zero().shape == (space.positions,)
        assert space.velocities == space.coupling.dof == 6 - space.constraints


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERWISE)
def test_the_zero_configuration_has_the_pose_of_zero_coordinates(name):
    space = space_of(name)
    T, expected = space.pose(space.zero()), space.coupling.pose(jnp.zeros(space.velocities))
    assert_close(error_twist(expected.inverse() @ T), np.zeros(6))
    assert space.is_normalized(space.zero())


def test_bounds_are_those_of_the_laws():
    laws = (
        jj.Limits(lower=-0.5, coordinate=1),
        jj.Limits(lower=-2.0, upper=3.0, coordinate=1),
        jj.Lock(value=0.7, coordinate=2),
        jj.Damping(1.0),
    )
    ball = jj.joint_space.JointSpace(
        jj.Ball(), laws=laws, max_speed=2.0, max_effort=jnp.array([1.0, 2.0, 3.0])
    )
    assert_close(ball.position_bounds(), [[-np.inf, -0.5, 0.7], [np.inf, 3, 0.7]])
    assert_close(ball.velocity_bounds(), [[-2, -2, -2], [2, 2, 2]])
    assert_close(ball.effort_bounds(), [[-1, -2, -3], [1, 2, 3]])
    free = jj.joint_space.JointSpace(jj.Ball())
    for bounds in (free.position_bounds(), free.velocity_bounds(), free.effort_bounds()):
        assert_close(bounds, np.outer([-np.inf, np.inf], np.ones(3)))


def test_random_configurations_keep_bounds_and_are_spread():
    laws = (jj.Limits(lower=-0.5, coordinate=1), jj.Limits(lower=2.0, coordinate=2))
    ball = jj.joint_space.JointSpace(jj.Ball(), laws=laws)
    keys = jax.random.split(jax.random.key(3), 500)
    q = jax.vmap(ball.random)(keys)
    assert_close(q.min(axis=0), [-1, -0.5, 2], 0.03)
    assert_close(q.max(axis=0), [1, 1, 3], 0.03)
    # Rotations are uniform: no direction of their quaternions is preferred.
    x = jax.vmap(space_of("ball by quaternion").random)(keys)
    assert_close(x.T @ x / 500, np.eye(4) / 4, 0.05)
    wheel = space_of("hinge by sine and cosine")
    assert_close(jax.vmap(wheel.random)(keys).mean(axis=0), [0, 0], 0.1)


@pytest.mark.slow
def test_precision_is_that_of_the_configuration():
    space = jj.joint_space.UnitQuaternion(jj.Free())
    x, v = jnp.array([0, 0, 0, 1, 0, 0, 0], jnp.float32), jnp.ones(6, jnp.float32)
    found = (space.acceleration(x, v, v), space.rates(x, v), space.local_rates(x, x, v))
    assert all(leaf.dtype == jnp.float32 for leaf in found)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (
            lambda: jj.joint_space.BodySpeeds(jj.Universal()),
            "BodySpeeds: the free motion of Universal turns",
        ),
        (lambda: jj.joint_space.SineCosine(jj.Ball()), "SineCosine: Ball has 3 coordinates"),
        (
            lambda: jj.joint_space.SineCosine(jj.Slider()),
            "SineCosine: Slider is not where it was after a turn",
        ),
        (
            lambda: jj.joint_space.UnitQuaternion(jj.Hinge()),
            "UnitQuaternion: the rotation of Hinge",
        ),
        (
            lambda: jj.joint_space.JointSpace(
                jj.Hinge(), laws=(jj.Limits(lower=0.0, coordinate=1),)
            ),
            "JointSpace: Limits acts on coordinate 1, but Hinge has 1; they count from 0",
        ),
    ],
)
def test_views_that_make_no_sense_are_refused(make, complaint):
    with pytest.raises(ValueError, match=complaint):
        make()


def test_configurations_of_the_wrong_length_are_refused():
    with pytest.raises(AssertionError, match="shape"):
        jj.joint_space.JointSpace(jj.Hinge()).twist(jnp.zeros(2), jnp.zeros(1))
