"""Boxes whose corners are more than their freedoms: sliding, stopping, resting, tipping, stacked.

One scene holds a box for each law; a number moves alike in all of them, so that one program
differentiates all.
"""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from support.differences import points_about, slopes_between
from support.quick import OPTIMIZED

DT, STEPS = 5e-3, 36
MASS, SIZE = 1.5, np.array((0.2, 0.15, 0.1))
INERTIA = tuple(MASS / 12 * (SIZE @ SIZE - SIZE**2))
SOFT = {"stiffness": 4e3, "damping": 60.0}
HARD = {"erp": 0.2, "cfm": 0.0}
SLIDING = (0.5, 0.2, 0.0, 0.0, 0.0, 0.5)
# Laws of the corners, and the box's velocity and angular velocity.
CASES = {
    "slides on a soft ground until it rests": (SOFT | {"friction": 0.45}, SLIDING),
    "slides on a hard ground": (HARD | {"friction": 0.45}, SLIDING),
    "slips on a belt": (
        SOFT | {"friction": (0.45, 0.4), "slip": (1e-3, 2e-3), "surface_speed": (0.02, -0.01)},
        (0.2, 0.1, 0.0, 0.0, 0.0, 0.4),
    ),
    "tips": (HARD | {"friction": 0.9}, (0.8, 0.1, 0.0, 0.0, 1.5, 0.3)),
    "rolls against resistance": (
        SOFT | {"friction": 0.45, "rolling": 1e-3, "spinning": 1e-3},
        (0.5, 0.2, 0.0, 0.0, 0.0, 0.5),
    ),
}
# What moves: stiffness, damping or erp; μ; slip; speed of the belt; the box's speeds.
NUMBERS = ("stiffness", "damping", "mu", "slip", "speed", "vx", "vy", "wz")
# Of the largest derivative of a box: between modes, and from differences.
MODES, DIFFERENCES = 1e-10, 1e-6
# By what a box that is put down moves until the impulses of its first steps have their shares,
# and in the nine seconds after the first [m].
SETTLING, DRIFT = 1e-5, 1e-12


@cache
def built():
    world = jj.SystemBuilder()
    for i, (name, (surface, velocity)) in enumerate(CASES.items()):
        place = (0.0, 2.0 * i, SIZE[2] / 2)
        world.body(name, mass=MASS, inertia=INERTIA, pose=place, velocity=velocity)
        box, ground = jj.shapes.Box(tuple(SIZE)), jj.shapes.HalfSpace()
        world.contact(name, box, ground, child=name, **surface)
    return world.build()


def laws_of(laws, change):
    """The laws of a corner, changed by the first `NUMBERS`."""
    stiffness, damping, mu, slip, speed = change[:5]
    stop, *frictions = laws
    if stop.stiffness is None:
        stop = jj.replace(stop, erp=stop.erp * (1 + stiffness))
    else:
        stop = jj.replace(
            stop, stiffness=stop.stiffness * (1 + stiffness), damping=stop.damping * (1 + damping)
        )
    changed = []
    for law in frictions:
        law = jj.replace(law, friction=law.friction * (1 + mu), slip=law.slip * (1 + slip))
        changed.append(jj.replace(law, speed=law.speed + speed) if law.coordinate < 3 else law)
    return stop, *changed


def ends(change, passes):
    """Where all boxes are at the end and how they move, (13, boxes), and all `Info`s."""
    system, state = built()
    for name in CASES:
        for corner in (f"{name}/{k}" for k in range(8)):
            laws = laws_of(system.contact(corner).laws, change)
            system = system.with_contact(corner, laws=laws)
    vx, vy, wz = change[5:]
    zero = jnp.zeros_like(vx)
    state = jj.replace(
        state,
        velocity=state.velocity + jnp.stack([vx, vy, zero])[:, None],
        omega=state.omega + jnp.stack([zero, zero, wz])[:, None],
    )
    scheme = jj.SemiImplicitEuler(solver=jj.Newton(iterations=12, passes=12, friction=passes))

    def one(state, _):
        return jj.step(system, state, dt=DT, scheme=scheme)

    final, infos = jax.lax.scan(one, state, None, length=STEPS)
    parts = final.position, final.quaternion, final.velocity, final.omega
    return jnp.concatenate(parts), infos


@pytest.fixture(scope="module", params=["coupled", "two passes"])
def slopes(request):
    """Derivatives of each box by the numbers: by differences and forwards, (13, boxes, numbers),
    and in reverse of a sum with weights (13, boxes) for each box, (boxes, numbers).
    """
    built()  # its checks are of numbers, not of tracers
    of = partial(ends, passes=request.param)
    at, steps = np.zeros(len(NUMBERS)), np.full(len(NUMBERS), 1e-5)

    @partial(jax.jit, compiler_options=OPTIMIZED)
    def run(points):
        found, infos = jax.vmap(of)(points)
        return found.reshape(points.shape[0], -1), infos.ok

    values, ok = run(jnp.asarray(np.concatenate([at[None], points_about(at, steps)])))
    assert np.all(ok)
    shape = 13, len(CASES), len(NUMBERS)
    differences = slopes_between(values[1:], steps).T.reshape(shape)
    weights = np.random.default_rng(0).normal(size=shape[:2])
    each = np.einsum("ib,bc->cib", weights, np.eye(len(CASES)))

    @jax.jit
    def derivatives(at):
        """Both modes of one linearization, as in `support.differences`."""
        _, forward = jax.linearize(lambda change: of(change)[0], at)
        backward = jax.linear_transpose(forward, at)
        return jax.vmap(forward, out_axes=-1)(jnp.eye(at.size)), jax.vmap(backward)(each)[0]

    return differences, *map(np.asarray, derivatives(jnp.asarray(at))), weights


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_both_modes_agree_and_are_finite_differences(slopes, name):
    box = list(CASES).index(name)
    differences, forward, reverse, weights = slopes
    largest = np.abs(forward[:, box]).max()
    summed = weights[:, box] @ forward[:, box]
    np.testing.assert_allclose(reverse[box], summed, rtol=0, atol=MODES * largest)
    np.testing.assert_allclose(
        forward[:, box], differences[:, box], rtol=0, atol=DIFFERENCES * largest
    )


def standing(slope):
    """A box on a slope at rest, and three on each other; tan(slope) is below friction."""
    world = jj.SystemBuilder(gravity=(9.81 * np.sin(slope), 0.0, -9.81 * np.cos(slope)))
    box, ground = jj.shapes.Box(tuple(SIZE)), jj.shapes.HalfSpace()
    world.body("alone", mass=MASS, inertia=INERTIA, pose=(0.0, 2.0, SIZE[2] / 2))
    world.contact("alone", box, ground, child="alone", friction=0.6)
    for i in range(3):
        at = (0.0, 0.0, (i + 0.5) * SIZE[2])
        world.body(str(i), mass=MASS, inertia=INERTIA, pose=at)
        top = {} if i == 0 else {"parent": str(i - 1), "frame_D": (0.0, 0.0, SIZE[2] / 2)}
        world.contact(f"on {i}", box, ground, child=str(i), friction=0.6, **top)
    return world.build()


ten_seconds = jax.jit(
    partial(
        jj.rollout,
        dt=DT,
        steps=round(10 / DT),
        record=lambda state, info: (state.position, info.ok),
    ),
    compiler_options=OPTIMIZED,
)


@pytest.mark.slow
@pytest.mark.parametrize("slope", [0.0, np.arctan(0.5)], ids=["level", "slope"])
def test_boxes_at_rest_stay_for_ten_seconds(slope):
    system, state = standing(slope)
    final, (positions, ok) = ten_seconds(system, state)
    assert np.all(ok)
    settled = positions[round(1 / DT)]
    assert np.max(np.abs(settled - state.position)) < SETTLING
    assert np.max(np.abs(final.position - settled)) < DRIFT


@pytest.mark.slow
def test_the_forces_of_the_last_step_do_not_grow_in_those_that_follow():
    """A box at rest: changes of these, at random, fade or stay, and move nothing.

    Its eight corners share the weight as the last step did, so what no motion tells stays for ever.
    """
    world = jj.SystemBuilder()
    world.body("box", mass=MASS, inertia=INERTIA, pose=(0.0, 0.0, SIZE[2] / 2))
    shapes = jj.shapes.Box(tuple(SIZE)), jj.shapes.HalfSpace()
    world.contact("box", *shapes, child="box", friction=0.6)
    system, state = world.build()

    def after(forces, steps):
        start = jj.replace(state, row_forces=forces)
        return jj.rollout(system, start, dt=DT, steps=steps)[0]

    rest = jax.jit(partial(after, steps=100))(state.row_forces)
    rng = np.random.default_rng(0)
    changes = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), rest.row_forces)

    @jax.jit
    def changed(change):
        end, slope = jax.jvp(partial(after, steps=1000), (rest.row_forces,), (change,))
        return slope.row_forces, slope.position

    forces, moved = changed(changes)
    size = lambda tree: np.sqrt(sum(np.sum(np.square(x)) for x in jax.tree.leaves(tree)))  # noqa: E731
    assert 1e-3 * size(changes) < size(forces) < size(changes)
    assert size(moved) < 1e-7 * size(changes)
