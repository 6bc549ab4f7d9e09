"""The doors of simulation: step, rollout and project, whatever the mechanism."""

from functools import cache, partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from jaxjoints import (
    Control,
    Damping,
    Limits,
    Newton,
    SemiImplicitEuler,
    joint_errors,
    project,
    replace,
    replicate,
    rollout,
    step,
)
from support import mechanisms
from support.cases import mostly_slow
from support.mechanisms import single

EXACT = 1e-12  # float64, some thousand roundings of numbers of order one
DT = 2e-3
LAWS = [Limits(-0.42, 0.42), Damping(0.05)]


@cache
def chained():
    """A chain of two hinges that run into their limits."""
    return mechanisms.chain(2, laws=LAWS, qd=1.0)


@cache
def damped():
    """A damped pendulum: gradients through it compile fast."""
    return mechanisms.pendulum(q=0.5, qd=1.0, laws=Damping(0.3))


@cache
def states(count=6):
    """Its start, with `count` speeds."""
    _, state = chained()
    factor = jnp.linspace(0.2, 2.0, count)[None, None]
    state = replicate(state, count)
    return replace(state, velocity=state.velocity * factor, omega=state.omega * factor)


@cache
def efforts(steps):
    return Control(effort=jnp.array(np.random.default_rng(1).normal(size=(steps, 2))))


# One step of the chain, compiled once for all tests.
one_step = jax.jit(lambda system, state, control, dt: step(system, state, control, dt=dt))


def stepped(control, steps):
    """States and infos of steps taken one by one under `control(i, state)`."""
    system, state = chained()
    trace = []
    for i in range(steps):
        state, info = one_step(system, state, control(i, state), DT)
        trace.append((state, info))
    return jax.tree.map(lambda *x: np.stack(x), *trace)


def rolled(*arguments, **options):
    """A rollout, compiled fast; functions must be `Partial` or among the options."""
    return jax.jit(partial(rollout, dt=DT, **options))(*arguments)


def assert_same(actual, expected, tolerance=EXACT):
    chex.assert_trees_all_equal_structs(actual, expected)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance),
        actual,
        expected,
    )


def with_impulses(trace):
    """States and infos with impulses in place of forces: the rounding of a position, which differs
    between programs, is a force of 1/h² times that, 2e-10 N.
    """
    states, info = trace
    forces = {name: DT * getattr(info, name) for name in ("wrench", "law_force")}
    return states, replace(info, **forces)


def row(control, i):
    return jax.tree.map(lambda x: x[i], control)


# Rollouts


@pytest.mark.slow
def test_rollout_equals_repeated_step():
    control = efforts(12)
    final, found = rolled(*chained(), control, record=lambda state, info: (state, info))
    expected = stepped(lambda i, _: row(control, i), 12)
    assert_same(with_impulses(found), with_impulses(expected))
    assert_same(final, row(expected[0], -1))


@pytest.mark.slow
def test_record_every_keeps_every_nth_step():
    control = efforts(12)
    _, found = rolled(*chained(), control, record_every=4)
    expected, _ = stepped(lambda i, _: row(control, i), 12)
    assert_same(found, row(expected, slice(3, None, 4)))


@pytest.mark.parametrize("record_every", mostly_slow([2, 4, 8], default=()))
def test_substeps_hold_the_control(record_every):
    control = efforts(4)
    _, found = rolled(*chained(), control, substeps=4, record_every=record_every)
    expected, _ = stepped(lambda i, _: row(control, i // 4), 16)
    assert_same(found, row(expected, slice(record_every - 1, None, record_every)))


def push_back(gain, state):
    """A controller of one environment."""
    assert state.q.ndim == 1 and state.time.ndim == 0
    return Control(effort=-gain * state.q)


@pytest.mark.slow
def test_controller_is_asked_at_each_interval():
    gain = jnp.array([3.0, 1.0])
    control = Partial(push_back, gain)
    _, found = rolled(*chained(), control, steps=12, substeps=3, record_every=6)
    held = []

    def hold(i, state):
        if i % 3 == 0:
            held.append(push_back(gain, state))
        return held[-1]

    expected, _ = stepped(hold, 12)
    assert_same(found, row(expected, slice(5, None, 6)))


@pytest.mark.slow
def test_controller_and_record_see_one_environment():
    def record(state, info):
        assert state.q.ndim == 1 and info.ok.ndim == 0
        return {"speed": info.qd, "height": state.position[2]}

    system, _ = chained()
    gain = jnp.array([3.0, 1.0])
    batch = states(3)
    control = Partial(push_back, gain)
    _, found = rolled(system, batch, control, steps=4, record=record)
    assert found["speed"].shape == (4, 2, 3) and found["height"].shape == (4, 2, 3)
    for i in range(3):
        state = jax.tree.map(lambda x, i=i: x[..., i], batch)
        for t in range(4):
            state, info = one_step(system, state, push_back(gain, state), DT)
            np.testing.assert_allclose(found["speed"][t, :, i], info.qd, rtol=0, atol=EXACT)
            np.testing.assert_allclose(
                found["height"][t, :, i], state.position[2], rtol=0, atol=EXACT
            )


def test_controller_parameters_have_gradients():
    system, state = damped()

    @jax.jit
    @jax.value_and_grad
    def reached(gain):
        final, _ = rollout(system, state, Partial(push_back, gain), dt=DT, steps=8)
        return jnp.sum(final.q**2) + jnp.sum(final.velocity**2)

    gain, h = jnp.array([3.0]), 1e-5
    _, gradient = reached(gain)
    difference = (reached(gain + h)[0] - reached(gain - h)[0]) / (2 * h)
    np.testing.assert_allclose(gradient[0], difference, rtol=1e-6)
    assert abs(difference) > 1e-6


@cache
def tiled(tile):
    """States and final state of six environments that share nothing but the gravity."""
    system, _ = chained()
    factor = jnp.linspace(0.5, 2.0, 6)
    system = replace(system, mass=system.mass[:, None] * factor[None])
    control = Control(effort=jnp.array(np.random.default_rng(2).normal(size=(8, 2, 6))))
    return rolled(system, states(), control, tile=tile, record_every=2)


@pytest.mark.parametrize("tile", mostly_slow([1, 2, 4], default=()))
def test_results_do_not_depend_on_the_tile(tile):
    assert_same(tiled(tile), tiled(None))


@cache
def learned(checkpoint):
    """Value and gradient of a loss of the records of a rollout."""
    system, state = damped()

    @jax.value_and_grad
    def loss(given):
        system, control = given
        options = {"dt": DT, "checkpoint": checkpoint, "record_every": 2}
        final, speeds = rollout(
            system, state, control, record=lambda state, info: info.qd, **options
        )
        return jnp.sum(speeds**2) + jnp.sum(final.position**2)

    return jax.jit(loss)((system, Control(effort=efforts(14).effort[:, :1])))


@pytest.mark.parametrize(
    "checkpoint",
    [pytest.param(1, marks=pytest.mark.sweep), pytest.param(4, marks=pytest.mark.slow)],
)
def test_checkpoints_change_neither_value_nor_gradient(checkpoint):
    assert_same(learned(checkpoint), learned(None), 1e-11)


@pytest.mark.slow
def test_checkpoints_bound_the_memory_of_a_gradient():
    """Of 4000 steps, ten states and the 400 steps between two of them are kept at a time."""
    system, state = damped()

    def memory(steps, checkpoint):
        def reached(state):
            final, _ = rollout(
                system, state, dt=DT, steps=steps, record_every=steps // 10, checkpoint=checkpoint
            )
            return jnp.sum(final.position**2)

        return jax.jit(jax.grad(reached)).lower(state).compile().memory_analysis()

    plain, kept = memory(4000, None), memory(4000, 400)
    assert kept.temp_size_in_bytes < plain.temp_size_in_bytes / 4


def turns(program, so_far=1):
    """Of each loop of a program how often it runs between two states that are kept."""
    yield so_far
    for line in program.eqns:
        name, inside = line.primitive.name, so_far
        if name == "scan":
            inside *= line.params["length"]
        elif name in ("checkpoint", "remat", "remat2"):
            inside = 1
        for part in jax.tree.leaves(list(line.params.values())):
            part = getattr(part, "jaxpr", part)
            if hasattr(part, "eqns"):
                yield from turns(part, inside)


@pytest.mark.parametrize(("steps", "record_every"), [(997, 1), (1000, 30), (1000, 1000)])
def test_checkpoints_bound_the_memory_however_records_divide_the_steps(steps, record_every):
    """Of a thousand steps, between 40 and 66 states and the steps between two of them."""
    system, state = damped()
    steps -= steps % record_every

    def moved(state):
        return rollout(system, state, dt=DT, steps=steps, record_every=record_every, checkpoint=25)

    longest = max(turns(jax.make_jaxpr(moved)(state).jaxpr))
    assert 25 <= longest <= 66, longest


def test_a_gradient_keeps_states_and_not_what_is_recorded_of_them():
    system, state = damped()

    def moved(state):
        return rollout(system, state, dt=DT, steps=100, record=lambda state, info: info.qd)

    _, back = jax.eval_shape(lambda state: jax.vjp(moved, state), state)
    kept = sum(x.size for x in jax.tree.leaves(back))
    # A state of one body has 16 numbers, and what its step came to a few more.
    assert kept < 100 * 48, kept


@pytest.mark.slow
def test_transformations_compose():
    system, state = damped()
    speeds = jnp.array([0.5, 1.0, 2.0])
    batch = replicate(state, 3)
    batch = replace(
        batch, velocity=batch.velocity * speeds[None, None], omega=batch.omega * speeds[None, None]
    )

    def reached(system, state, effort):
        control = Control(effort=effort[None])
        final, _ = rollout(system, state, control, dt=DT, substeps=6, record_every=6)
        return jnp.sum(final.position**2) + jnp.sum(final.velocity**2)

    effort = jnp.array([0.3])
    gradient = jax.grad(reached, argnums=(0, 2))
    mapped = jax.jit(jax.vmap(gradient, in_axes=(None, -1, None), out_axes=-1))
    one = jax.jit(gradient)
    found = mapped(system, batch, effort)
    for i in range(3):
        alone = one(system, jax.tree.map(lambda x, i=i: x[..., i], batch), effort)
        assert_same(jax.tree.map(lambda x, i=i: x[..., i], found), alone, 1e-11)


# Compilation


def test_step_is_traced_once_for_all_values():
    system, state = chained()
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(1)
    def advance(system, state, control, dt, scheme):
        return step(system, state, control, dt=dt, scheme=scheme)

    for i in range(3):
        given = replace(system, mass=(1.0 + i) * system.mass)
        scheme = SemiImplicitEuler(solver=Newton(smoothing=0.1 * jnp.float64(i)))
        state, _ = advance(given, state, row(efforts(3), i), DT / (1 + i), scheme)


def test_rollout_is_compiled_once_for_all_values():
    traces = []

    def record(state, info):
        traces.append(state)
        return state.q

    system, state = chained()
    record = Partial(record)
    for i in range(3):
        rollout(
            replace(system, gravity=(1.0 + i) * system.gravity),
            replace(state, velocity=i * state.velocity),
            row(efforts(6), slice(i, i + 3)),
            dt=DT / (1 + i),
            record=record,
        )
    assert len(traces) == 1


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(mechanisms.pendulum, marks=pytest.mark.slow),
        partial(mechanisms.chain, 2, laws=LAWS),
        pytest.param(mechanisms.four_bar, marks=pytest.mark.slow),
        pytest.param(mechanisms.floating_chain, marks=pytest.mark.slow),
        pytest.param(mechanisms.sphere, marks=pytest.mark.slow),
        pytest.param(mechanisms.mixed, marks=pytest.mark.slow),
        pytest.param(mechanisms.moving_base, marks=pytest.mark.slow),
    ],
)
def test_float32_stays_float32(build):
    system, state = single(build())
    prescribed = sum(not moves for moves in system.topology.moving)
    shapes = {
        "effort": (system.coordinates,),
        "wrench": (6, len(system.topology.bodies)),
        "twist": (6, prescribed),
    }
    control = Control(**{k: jnp.zeros(shape, jnp.float32) for k, shape in shapes.items()})
    scheme = SemiImplicitEuler(solver=Newton(smoothing=0.01), projections=1)

    found = jax.eval_shape(partial(step, dt=DT, scheme=scheme), system, state, control)
    for leaf in jax.tree.leaves(found):
        assert leaf.dtype in (jnp.float32, jnp.bool, jnp.int32)  # ok, cause


def test_float32_rollout_stays_float32():
    system, state = single(chained())
    control = single(efforts(4))
    run = partial(rollout, dt=DT, record=lambda state, info: (state, info, state.time + DT))
    for leaf in jax.tree.leaves(jax.eval_shape(run, system, state, control)):
        assert leaf.dtype in (jnp.float32, jnp.bool, jnp.int32)  # ok, cause


# Projection


@jax.jit
def closed(system, state):
    new = project(system, state)
    return new, joint_errors(system, new)


@pytest.mark.parametrize("batch", [(), pytest.param((2, 3), marks=pytest.mark.slow)], ids=str)
def test_projection_closes_a_perturbed_four_bar(batch):
    system, state = mechanisms.four_bar(crank_speed=1.0)
    rng = np.random.default_rng(0)
    state = replicate(state, *batch)
    moved = replace(
        state,
        position=state.position + 1e-3 * rng.normal(size=state.position.shape),
        quaternion=state.quaternion + 1e-3 * rng.normal(size=state.quaternion.shape),
    )
    new, errors = closed(system, moved)
    assert np.asarray(errors).shape == (4, *batch)
    assert np.max(errors) < 1e-12
    assert np.abs(new.position - state.position).max() < 0.02
    np.testing.assert_array_equal(new.velocity, moved.velocity)
    np.testing.assert_allclose(np.sum(np.square(new.quaternion), axis=0), 1.0, atol=EXACT)


def test_projection_leaves_a_closed_mechanism_in_place():
    system, state = mechanisms.four_bar()
    new, _ = closed(system, state)
    assert_same((new.position, new.quaternion), (state.position, state.quaternion))


@pytest.mark.slow
@pytest.mark.parametrize(
    "soft",
    [{}, {"stiffness": 100.0, "damping": 1.0}],
    ids=["hard", "soft"],
)
def test_projection_returns_to_violated_hard_stops_alone(soft):
    system, state = mechanisms.slider(laws=Limits(-0.1, 0.2, **soft))
    q = jnp.array([-0.5, -0.1, 0.05, 0.3])
    state = replicate(state, 4)
    state = replace(state, position=state.position.at[0, 0].set(q), q=q[None])
    new, _ = closed(system, state)
    wanted = q if soft else jnp.clip(q, -0.1, 0.2)
    np.testing.assert_allclose(new.position[0, 0], wanted, rtol=0, atol=EXACT)


# What is refused


def refuse(match, **options):
    system, state = chained()
    arguments = {"dt": DT} | options
    with pytest.raises(ValueError, match=match):
        rollout(system, arguments.pop("state", state), arguments.pop("controls", None), **arguments)


@pytest.mark.parametrize("dt", [0.0, -1e-3, 1.5, float("nan"), float("inf")])
def test_time_step_out_of_range_is_refused(dt):
    system, state = chained()
    refuse("dt", dt=dt, steps=10)
    with pytest.raises(ValueError, match="dt"):
        step(system, state, dt=dt)


@pytest.mark.parametrize("name", ["steps", "substeps", "record_every"])
def test_counts_below_one_are_refused(name):
    refuse(f"{name} 0 must be >= 1", **({"steps": 10} | {name: 0}))


def test_checkpoint_below_one_is_refused():
    refuse("checkpoint 0 must be >= 1", steps=10, checkpoint=0)


def test_rollout_without_a_length_is_refused():
    refuse("give steps")
    refuse("give steps", controls=Partial(push_back, jnp.ones(2)))


def test_controls_of_another_length_are_refused():
    refuse("4 entries of 2 substeps", controls=efforts(4), substeps=2, steps=9)


def test_steps_that_are_no_multiple_are_refused():
    refuse("must be a multiple", steps=10, record_every=3)
    refuse("must be a multiple", steps=10, substeps=4)


def test_record_every_that_fits_no_interval_is_refused():
    refuse("or divide it", steps=12, substeps=4, record_every=6)
    controller = Partial(push_back, jnp.ones(2))
    refuse(
        "must be a multiple of substeps 4$",
        controls=controller,
        steps=12,
        substeps=4,
        record_every=2,
    )


def test_empty_and_uneven_controls_are_refused():
    refuse("empty", controls=Control())
    uneven = Control(effort=jnp.zeros((3, 2)), wrench=jnp.zeros((4, 6, 2)))
    refuse("differ", controls=uneven)


@pytest.mark.parametrize("tile", [0, 12])
def test_tile_beyond_the_batch_is_refused(tile):
    refuse(f"tile {tile} must be", state=states(), steps=2, tile=tile)


def test_tile_without_one_batch_axis_is_refused():
    refuse("tile", steps=2, tile=2)
    _, state = chained()
    refuse("tile", state=replicate(state, 2, 2), steps=2, tile=2)


def test_batch_axes_that_differ_are_refused():
    system, _ = chained()
    control = Control(effort=jnp.zeros((2, 5)))
    with pytest.raises(ValueError, match="batch axes"):
        step(system, states(), control, dt=DT)
    with pytest.raises(ValueError, match="it must be"):
        step(system, states(), Control(effort=jnp.zeros(())), dt=DT)


@pytest.mark.slow
def test_quaternions_of_any_length_turn_bodies_alike():
    # A state may come from elsewhere: its quaternions are brought to length 1 once, at the start.
    system, state = chained()
    longer = replace(state, quaternion=1.7 * state.quaternion)
    after = [one_step(system, s, Control(), DT)[0] for s in (state, longer)]
    chex.assert_trees_all_close(*after, atol=EXACT, rtol=EXACT)

    def height(scale):
        turned = replace(state, quaternion=scale * state.quaternion)
        return jnp.sum(step(system, turned, dt=DT)[0].position)

    assert abs(jax.grad(height)(1.7)) < EXACT
