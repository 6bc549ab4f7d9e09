"""Boxes whose corners are more than their freedoms: they slide, stop, rest, tip, are stacked."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from support.differences import points_about, slopes_between
from support.quick import OPTIMIZED

DT, STEPS = 5e-3, 36
ABOVE = 1e-4  # above the ground, which each box reaches in its first step [m]
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
RUNS = [
    pytest.param(
        name,
        passes,
        marks=pytest.mark.slow if i < 2 and passes == "coupled" else pytest.mark.sweep,
    )
    for passes in ("coupled", "two passes")
    for i, name in enumerate(CASES)
]
# What moves. One number scales a length, an inertia or a law by itself, and shifts any other.
NUMBERS = (
    *("mass", "inertia x", "inertia y", "inertia z", "com x", "com y", "com z"),
    *("length", "width", "height", "corner x", "corner y", "corner z"),
    *("stiffness", "damping", "friction", "slip", "belt"),
    *("gravity x", "gravity y", "gravity z", "vx", "vy", "wz"),
)
# Changes for differences. The slope by the depth of a single corner changes within a micrometre.
CHANGES = np.where(np.array(NUMBERS) == "corner z", 1e-8, 1e-6)
# Of the largest derivative of a box: between modes, and from differences. The floor of contacts is
# no part of the latter: derivatives pass through it in each pass. What rounding leaves is.
MODES = 1e-10
DIFFERENCES = np.where(np.array(NUMBERS) == "corner z", 1e-7, 1e-8)
# By what a box that is put down moves until the impulses of its first steps have their shares,
# and in the nine seconds after the first [m].
SETTLING, DRIFT = 1e-5, 1e-12


@cache
def built(name):
    surface, velocity = CASES[name]
    world = jj.SystemBuilder()
    at = 0.0, 0.0, SIZE[2] / 2 + ABOVE
    world.body("box", mass=MASS, inertia=INERTIA, pose=at, velocity=velocity)
    box, ground = jj.shapes.Box(tuple(SIZE)), jj.shapes.HalfSpace()
    world.contact("box", box, ground, child="box", **surface)
    return world.build()


def laws_of(laws, change):
    """The laws of a corner, changed by numbers."""
    stop, *frictions = laws
    share = {name: 1 + change[name] for name in ("stiffness", "damping", "friction", "slip")}
    if stop.stiffness is None:
        stop = jj.replace(stop, erp=stop.erp * share["stiffness"])
    else:
        stiffness, damping = stop.stiffness * share["stiffness"], stop.damping * share["damping"]
        stop = jj.replace(stop, stiffness=stiffness, damping=damping)
    changed = []
    for law in frictions:
        friction, slip = law.friction * share["friction"], law.slip * share["slip"]
        law = jj.replace(law, friction=friction, slip=slip)
        belt = law.coordinate < 3
        changed.append(jj.replace(law, speed=law.speed + change["belt"]) if belt else law)
    return stop, *changed


def ends(change, name, passes):
    """Where a box is at the end and how it moves, (13,), and all `Info`s."""
    system, state = built(name)
    change = dict(zip(NUMBERS, change, strict=True))
    vector = lambda *names: jnp.stack([change[name] for name in names])  # noqa: E731
    inertia = 1 + vector("inertia x", "inertia y", "inertia z")
    com = vector("com x", "com y", "com z")[:, None]
    size = 1 + vector("length", "width", "height")
    corner = vector("corner x", "corner y", "corner z")
    (group,) = system.contacts
    p = group.frame_C.p * size[:, None]
    # On a hard ground a corner that reaches deeper than three others makes a box rock.
    if "stiffness" in CASES[name][0]:
        p = p.at[:, 0].add(corner)
    frame = jj.replace(group.frame_C, p=p)
    group = jj.replace(group, laws=laws_of(group.laws, change), frame_C=frame)
    gravity = system.gravity + vector("gravity x", "gravity y", "gravity z")
    system = jj.replace(
        system,
        mass=system.mass * (1 + change["mass"]),
        inertia=system.inertia * inertia[:, None, None],
        com=system.com + com,
        gravity=gravity,
        contacts=(group,),
    )
    vx, vy, wz = vector("vx", "vy", "wz")
    zero = jnp.zeros_like(vx)
    state = jj.replace(
        state,
        position=state.position + com,
        velocity=state.velocity + jnp.stack([vx, vy, zero])[:, None],
        omega=state.omega + jnp.stack([zero, zero, wz])[:, None],
    )
    scheme = jj.SemiImplicitEuler(solver=jj.Newton(friction=passes))

    def one(state, _):
        return jj.step(system, state, dt=DT, scheme=scheme)

    final, infos = jax.lax.scan(one, state, None, length=STEPS)
    parts = final.position, final.quaternion, final.velocity, final.omega
    return jnp.concatenate(parts)[:, 0], infos


@pytest.mark.parametrize(("name", "passes"), RUNS)
def test_both_modes_agree_and_are_finite_differences(name, passes):
    built(name)  # its checks are of numbers, not of tracers
    of = partial(ends, name=name, passes=passes)
    at = np.zeros(len(NUMBERS))

    @partial(jax.jit, compiler_options=OPTIMIZED)
    def run(points):
        found, infos = jax.vmap(of)(points)
        return found, infos.ok

    values, ok = run(jnp.asarray(np.concatenate([at[None], points_about(at, CHANGES)])))
    assert np.all(ok)
    differences = slopes_between(values[1:], CHANGES).T
    weights = np.random.default_rng(0).normal(size=13)

    @jax.jit
    def derivatives(at):
        """Both modes of one linearization, as in `support.differences`."""
        _, forward = jax.linearize(lambda change: of(change)[0], at)
        backward = jax.linear_transpose(forward, at)
        return jax.vmap(forward, out_axes=-1)(jnp.eye(at.size)), backward(jnp.asarray(weights))[0]

    forward, reverse = map(np.asarray, derivatives(jnp.asarray(at)))
    largest = np.abs(forward).max()
    np.testing.assert_allclose(reverse, weights @ forward, rtol=0, atol=MODES * largest)
    off = np.abs(forward - differences).max(axis=0) / largest
    assert (off < DIFFERENCES).all(), dict(zip(NUMBERS, off, strict=True))


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


@pytest.mark.slow
def test_gradients_are_finite_where_passes_end_unsolved():
    """One Newton step in each pass, for a box thrown on its edge and balls that fall on each other;
    beside them in the batch the same bodies high above the ground.
    """
    world, radius = jj.SystemBuilder(), 0.1
    box, ball, ground = jj.shapes.Box(tuple(SIZE)), jj.shapes.Sphere(radius), jj.shapes.HalfSpace()
    tilted = ((0.0, 0.0, 0.11), (0.96, 0.28, 0.0, 0.0))
    thrown = (1.0, -0.5, -3.0, 4.0, -6.0, 2.0)
    world.body("box", mass=MASS, inertia=INERTIA, pose=tilted, velocity=thrown)
    world.contact("box", box, ground, child="box", friction=0.6)
    for i in range(3):
        place = (0.03 * i, 1.0, 2.0 * radius * i + radius)
        speed = (0.5 * i, 0.0, -1.0 - i, 0.0, 3.0, 0.0)
        world.body(str(i), mass=10.0**i, inertia=(4e-3 * 10.0**i,) * 3, pose=place, velocity=speed)
        below = {"parent": str(i - 1)} if i else {}
        world.contact(str(i), ball, ball if i else ground, child=str(i), friction=0.6, **below)
    system, state = world.build()
    scheme = jj.SemiImplicitEuler(solver=jj.Newton(iterations=1, passes=3))

    @jax.jit
    def slopes(heights):
        start = jj.replicate(state, 2)
        position = start.position + jnp.array([0.0, 0.0, 1.0])[:, None, None] * heights[None, None]

        def seen(mass, gravity, position, velocity, omega):
            given = jj.replace(system, mass=mass, gravity=gravity)
            moved = jj.replace(start, position=position, velocity=velocity, omega=omega)
            final, info = jj.rollout(
                given, moved, dt=DT, steps=8, scheme=scheme, record=lambda _, info: info
            )
            parts = final.position, final.velocity, final.omega
            return sum(jnp.sum(jnp.sin(x)) for x in parts), info

        numbers = system.mass, system.gravity, position, start.velocity, start.omega
        return jax.value_and_grad(seen, argnums=(0, 1, 2, 3, 4), has_aux=True)(*numbers)

    (_, info), found = slopes(jnp.array([0.0, 50.0]))
    _, expected = slopes(jnp.array([50.0, 50.0]))
    assert info.residual[:, 0].max() > 1e-2 and info.residual[:, 1].max() < 1e-9
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))
    for some, every in zip(found[2:], expected[2:], strict=True):
        np.testing.assert_array_equal(some[..., 1], every[..., 1])
