"""The kernels for GPUs, which JAX interprets here: they give the results of `factor`."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.algebra.compiler import on_gpu, traced_for
from jaxjoints.simulate.tiles import default_tile
from jaxjoints.solve.factor import assemble, factor_scaled, solve, solve_corrected
from jaxjoints.solve.kernels import ENVIRONMENTS, Unassembled, WholeFactor
from support import mechanisms
from support.cases import mostly_slow
from support.graphs import GRAPHS, dense_solve, problem, with_diagonal


@pytest.fixture
def by_gpu():
    """Programs are those of a GPU; JAX interprets their kernels."""
    with traced_for("gpu"):
        yield


def numbers(plan, r, batch, dtype):
    """Scaling, added diagonal, regularization and right side."""
    rng = np.random.default_rng(1)
    shape = (r, len(plan.order), *batch)
    s, d = (rng.uniform(0.5, 2.0, shape) for _ in range(2))
    return [x.astype(dtype) for x in (s, d, rng.uniform(0.0, 1e-2, shape), rng.normal(size=shape))]


@partial(jax.jit, static_argnums=0)
def by_kernels(plan, H, inverse, s, d, ε, b):
    factors = factor_scaled(plan, Unassembled(H, *inverse), d, s)
    assert isinstance(factors, WholeFactor)
    return solve(plan, factors, b), solve_corrected(plan, factors, b, ε)


@partial(jax.jit, static_argnums=0)
def by_levels(plan, sides, s, d, ε, b):
    factors = factor_scaled(plan, assemble(plan, *sides), d, s)
    return solve(plan, factors, b), solve_corrected(plan, factors, b, ε)


def check(graph, r, batch, dtype, tolerance):
    plan, *given, A = problem(GRAPHS[graph], r, batch)
    sides, inverse = jax.tree.map(lambda x: jnp.asarray(x, dtype), given)
    own = [jnp.asarray(x) for x in numbers(plan, r, batch, dtype)]
    with traced_for("gpu"):
        found = by_kernels(plan, sides[0], inverse, *own)
    expected = by_levels(plan, sides, *own)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())
    s, d, _, b = (np.asarray(x, float) for x in own)
    dense = dense_solve(with_diagonal(s[:, :, None, None] * A * s, d), b)
    np.testing.assert_allclose(found[0], dense, rtol=0, atol=tolerance * np.abs(dense).max())


@pytest.mark.parametrize(
    "graph",
    mostly_slow(["single", "chain", "parallel", "several bodies", "ladder"], default=("chain",)),
)
def test_kernels_solve_what_levels_solve(graph):
    check(graph, 3, (2,), jnp.float64, 1e-11)


@pytest.mark.sweep
@pytest.mark.parametrize("graph", list(GRAPHS))
@pytest.mark.parametrize("r", [1, 2, 6])
def test_kernels_solve_every_graph(graph, r):
    check(graph, r, (2,), jnp.float64, 1e-11)


@pytest.mark.parametrize(
    "batch",
    mostly_slow([(), (1,), (2, 3), (ENVIRONMENTS,), (ENVIRONMENTS + 1,)], default=("(2, 3)",)),
)
def test_kernels_take_every_batch(batch):
    check("ring", 2, batch, jnp.float64, 1e-11)


@pytest.mark.slow
def test_kernels_in_single_precision():
    check("ring", 2, (3,), jnp.float32, 1e-4)


def test_rows_that_all_environments_share_are_not_spread():
    plan, (H, Y), inverse, _ = problem(GRAPHS["chain"], 2, (1,))
    H, Y, inverse = jax.tree.map(jnp.asarray, (H, Y, inverse))
    own = [jnp.asarray(x) for x in numbers(plan, 2, (5,), np.float64)]
    # One side of the two belongs to all environments, the other to each.
    H = (H[0], jnp.broadcast_to(H[1], (*H[1].shape[:3], 5)))
    with traced_for("gpu"):
        found = by_kernels(plan, H, inverse, *own)
        traced = str(jax.make_jaxpr(partial(by_kernels, plan))(H, inverse, *own))
    for one, other in zip(found, by_levels(plan, (H, Y), *own), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-11)
    assert "f64[6,2,10,1]" in traced and "f64[6,2,10,32]" in traced


def test_rows_that_depend_on_others_take_nothing(by_gpu):
    """Two equal rows of a node: the second has a pivot of rounding, and no share of the impulse."""
    plan, sides, inverse, _ = problem(GRAPHS["single"], 3, (2,))
    sides = [[np.array(x) for x in side] for side in sides]
    for side in sides:
        for x in side:
            x[:, 2] = x[:, 1]
    sides, inverse = jax.tree.map(jnp.asarray, ((tuple(sides[0]), tuple(sides[1])), inverse))
    b = jnp.asarray(np.random.default_rng(0).normal(size=(3, 1, 2))).at[2].set(0.0)
    one, none = jnp.ones((3, 1, 2)), jnp.zeros((3, 1, 2))
    x, _ = by_kernels(plan, sides[0], inverse, one, none, none, b)
    np.testing.assert_array_equal(x[2], 0.0)
    first, _ = by_levels(
        plan, jax.tree.map(lambda x: x[:, :2], sides), *(y[:2] for y in (one, none, none, b))
    )
    np.testing.assert_allclose(x[:2], first, rtol=1e-12)


def test_vmap_of_kernels_is_a_batch(by_gpu):
    plan, (H, _), inverse, _ = problem(GRAPHS["ring"], 2, (3,))
    H, inverse = jax.tree.map(jnp.asarray, (H, inverse))
    own = [jnp.asarray(x) for x in numbers(plan, 2, (3,), np.float64)]
    together = by_kernels(plan, H, inverse, *own)
    mapped = jax.vmap(partial(by_kernels, plan), -1, -1)(H, inverse, *own)
    for one, other in zip(mapped, together, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


# Whose limits are rows of the kernels, where coordinates would take them into the tree.
ROWS = jj.SemiImplicitEuler(joints="rows")


def rolled(system, state):
    """State after some steps, and the slope of a number of it in the masses."""

    def loss(mass):
        changed = replace(system, mass=mass)
        end, _ = jj.rollout(changed, state, steps=6, dt=5e-3, scheme=ROWS)
        return (end.position**2).sum(), end

    (_, end), slope = jax.value_and_grad(loss, has_aux=True)(system.mass)
    return end, slope


def in_its_stops():
    stops = jj.Limits(-0.5, 0.45, stiffness=3e3, damping=10.0)
    return mechanisms.chain(2, q=0.44, qd=1.0, laws=stops)


def check_equal(found, expected, precise):
    rtol, atol = (1e-9, 1e-10) if precise else (1e-4, 1e-5)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        largest = np.abs(other).max(initial=1.0)
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol * largest)


@pytest.mark.slow
def test_a_step_is_the_same_by_kernels():
    system, state = mechanisms.single(in_its_stops())
    expected, _ = jj.step(system, state, dt=5e-3, scheme=ROWS)
    with traced_for("gpu"):
        found, info = jj.step(system, state, dt=5e-3, scheme=ROWS)
    assert info.ok.all()
    check_equal(found, expected, precise=False)


@pytest.mark.slow
@pytest.mark.parametrize("precise", [True, False])
@pytest.mark.parametrize("make", [in_its_stops, mechanisms.four_bar])
def test_a_rollout_and_its_gradient_are_the_same_by_kernels(make, precise):
    """As without kernels in double precision, which rounds nothing that single precision sees."""
    expected = rolled(*make())
    with traced_for("gpu"):
        assert on_gpu()
        found = rolled(*(make() if precise else mechanisms.single(make())))
    check_equal(found, expected, precise)
    assert np.abs(expected[1]).max() > 5e-5


def thrown():
    """A body without joints: a system without rows."""
    world = jj.SystemBuilder()
    world.body("stone", mass=1.0, inertia=(0.1, 0.2, 0.3))
    system, state = world.build()
    return system, jj.replace(state, velocity=state.velocity + 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "scheme"),
    [
        (thrown, jj.SemiImplicitEuler()),
        (in_its_stops, jj.Rattle()),
        (mechanisms.four_bar, jj.Rattle()),
        (mechanisms.mixed, jj.SemiImplicitEuler(projections=1)),
    ],
)
def test_other_systems_and_schemes_are_the_same_by_kernels(make, scheme):
    system, state = make()[:2]
    expected, _ = jj.rollout(system, state, steps=3, dt=5e-3, scheme=scheme)
    with traced_for("gpu"):
        found, _ = jj.rollout(system, state, steps=3, dt=5e-3, scheme=scheme)
    check_equal(found, expected, precise=True)


@pytest.fixture
def beside_a_gpu(monkeypatch):
    """JAX as on a machine with one GPU, which it takes by default; functions find the CPU there."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "device_count", lambda backend=None: 1)
    jax.clear_caches()
    yield jax.local_devices(backend="cpu")[0]
    jax.clear_caches()


def test_kernels_are_for_gpus():
    assert not on_gpu()
    with traced_for("gpu"):
        assert on_gpu()
    with pytest.raises(ValueError, match="'tpu' is none of cpu, gpu"), traced_for("tpu"):
        pass


def test_programs_are_traced_for_the_default_device(beside_a_gpu):
    """And traced anew where it is another one."""
    kernels = jax.jit(lambda: jnp.array(on_gpu()))
    assert kernels()
    for there in (beside_a_gpu, "cpu"):
        with jax.default_device(there):
            assert not kernels()
            assert default_tile(mechanisms.pendulum()[0], 64) == 64
    assert kernels()
    assert default_tile(mechanisms.pendulum()[0], 64) == 0


@pytest.fixture
def falling(beside_a_gpu):
    """A pendulum on the CPU beside a GPU, a rollout of it, and what the rollout was traced for."""
    system, state = mechanisms.pendulum(q=0.3)
    seen = []

    def look(state):
        seen.append(on_gpu())
        return jj.Control()

    def run(state):
        return jj.rollout(system, state, look, dt=1e-3, steps=2)[0]

    return jax.device_put(state, beside_a_gpu), run, seen


def test_states_on_a_cpu_are_simulated_without_kernels(falling):
    state, run, seen = falling
    run(state)
    assert seen and not any(seen)


@pytest.mark.slow
def test_a_program_of_the_user_that_is_put_on_a_cpu_runs_its_kernels_there(falling):
    """It is traced for the GPU, JAX's default, before JAX says where it runs."""
    state, run, seen = falling
    moved = jax.jit(run)(state)
    assert seen and all(seen)
    check_equal(moved, run(state), precise=True)


def launches(lowered):
    """How many kernels of Triton a lowered program has."""
    return lowered.as_text().count("@__gpu$xla.gpu.triton")


def test_what_a_program_is_lowered_for_decides_on_its_kernels():
    """A GPU's program has them and nothing in their place; that of a CPU computes the same."""
    plan, (H, Y), inverse, _ = problem(GRAPHS["chain"], 2, (3,))
    H, Y, inverse = jax.tree.map(jnp.asarray, (H, Y, inverse))
    own = [jnp.asarray(x) for x in numbers(plan, 2, (3,), np.float64)]
    with traced_for("gpu"):
        traced = by_kernels.trace(plan, H, inverse, *own)
        on_cpu, for_gpu = traced.lower(), traced.lower(lowering_platforms=("cuda",))
    assert launches(on_cpu) == 0 and launches(for_gpu) == 3  # a factor, two solves
    assert len(for_gpu.as_text()) < len(on_cpu.as_text())
    found = on_cpu.compile()(H, inverse, *own)
    for one, other in zip(found, by_levels(plan, (H, Y), *own), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-11)


def test_kernels_are_for_what_one_device_computes(beside_a_gpu, monkeypatch):
    """XLA would gather the batch of a kernel that stands outside `shard_map`."""
    monkeypatch.setattr(jax, "device_count", lambda backend=None: 8)
    assert not on_gpu()
    with traced_for("gpu"):
        assert on_gpu(), "one that is described"
    seen = []

    def look(x):
        seen.append(on_gpu())
        return x

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("batch",))
    spec = jax.sharding.PartitionSpec("batch")
    jax.shard_map(look, mesh=mesh, in_specs=spec, out_specs=spec)(jnp.ones(2))
    assert seen == [True]
