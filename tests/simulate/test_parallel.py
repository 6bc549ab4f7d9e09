"""Tiles of environments, and rollouts that deal them out to several devices of the CPU."""

import os
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

import jaxjoints as jj
from jaxjoints import use_all_cores
from jaxjoints.simulate import tiles
from jaxjoints.simulate.tiles import (
    TILE_SIZE,
    WIDEST_TILE,
    default_tile,
    map_tiles,
)
from support.cases import mostly_slow

TESTS = Path(__file__).parents[1]

# A rollout and its gradient on two devices against the same in one tile, in a process of its own:
# devices are made before JAX computes anything.
TWO_CORES = """
import conftest, warnings
import jax, jax.numpy as jnp, numpy as np
import jaxjoints as jj
assert jj.use_all_cores(2) == 2
from support import mechanisms

system, state = mechanisms.chain(2)
states = jj.replicate(state, 16)
states = jj.replace(states, omega=states.omega + 0.1 * jnp.arange(16.0)[None, None])
efforts = jnp.ones((10, 2, 1)) * jnp.linspace(-1.0, 1.0, 16)[None, None]

def roll(mass, tile):
    changed = jj.replace(system, mass=mass)
    return jj.rollout(changed, states, jj.Control(effort=efforts), dt=5e-3, tile=tile)

def loss(mass, tile):
    final, records = roll(mass, tile)
    return jnp.sum(final.position ** 2), (final, records)

run = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)
split, whole = run(system.mass, 8), run(system.mass, 16)
dealt = split[0][1][0].position.sharding
assert len(dealt.device_set) == 2, dealt
for part, rounding in ((0, 1e-12), (1, 1e-11)):  # values, gradient: a sum over environments
    for a, b in zip(jax.tree.leaves(split[part]), jax.tree.leaves(whole[part]), strict=True):
        np.testing.assert_allclose(a, b, rtol=rounding, atol=1e-12)
print("equal")
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    run.trace(np.asarray(split[1]), 8)  # no other program
    assert not told, told[0]
    for _ in range(2):
        run.trace(split[1], 8)  # another, for the gradient lies on both cores
message, = (str(warning.message) for warning in told)
assert "rollout: the same program is compiled once more" in message, message
print("told once")
traces, counts = [], []
keep = jax.tree_util.Partial(lambda state, info: traces.append(0))
for _ in range(2):
    states, _ = jj.rollout(system, states, dt=5e-3, steps=2, record=keep)
    counts.append(len(traces))
assert len(states.position.sharding.device_set) == 2 and counts[1] == counts[0], counts
print("compiled once")
"""


@pytest.mark.slow
def test_rollouts_on_two_cores_equal_those_on_one_and_compile_once():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    found = subprocess.run(
        [sys.executable, "-c", TWO_CORES], env=environment, capture_output=True, text=True
    )
    assert found.stdout == "equal\ntold once\ncompiled once\n", found.stderr


def test_cores_are_chosen_before_anything_is_computed():
    jnp.zeros(()).block_until_ready()
    with pytest.raises(RuntimeError, match="right after the imports"):
        use_all_cores(2)


def test_a_count_below_one_is_refused():
    with pytest.raises(ValueError, match="count 0 must be at least 1"):
        use_all_cores(0)


@pytest.mark.parametrize("batch", [1, 2, 7, 60, 64, 1000, 1024, 4096, 997])
@pytest.mark.parametrize("joints", [1, 120])
def test_default_tiles_fit_the_cache_and_hardly_exceed_the_batch(batch, joints):
    tile = default_tile(links(joints), batch)
    widest = min(WIDEST_TILE, max(8, TILE_SIZE // joints))
    count = -(-batch // tile)
    assert tile <= widest and count == -(-batch // widest)
    assert 0 <= count * tile - batch < count


def on_cores(monkeypatch, count):
    """As if so many cores shared a batch."""
    mesh = AbstractMesh((count,), ("devices",))
    monkeypatch.setattr(tiles, "cores", lambda: NamedSharding(mesh, PartitionSpec("devices")))


@pytest.mark.parametrize(
    ("batch", "tile", "width", "shared"),
    [
        (1024, None, 128, True),
        (1026, None, 103, True),  # five tiles on each core, 515 places for 513
        (384, 128, 128, True),  # the second tile of each core is half full
        (2, None, 1, True),
        (1, None, 1, False),
        (9, None, 9, False),
        (16, 16, 16, False),
    ],
)
def test_two_cores_share_a_batch_in_tiles(monkeypatch, batch, tile, width, shared):
    on_cores(monkeypatch, 2)
    found, placed = tiles.tiling("rollout", tile, (batch,), links(1), None)
    assert (found, placed is not None) == (width, shared)


def test_a_batch_that_cores_cannot_share_is_told_once_with_its_neighbours(monkeypatch):
    on_cores(monkeypatch, 2)
    monkeypatch.setattr(tiles, "_told", set())
    call = partial(tiles.tiling, "rollout", None, (1021,), links(1), None)
    with pytest.warns(UserWarning, match="2 cores cannot share 1021 .* take 1020 or 1022"):
        assert call() == (128, None)
    assert call() == (128, None)
    with pytest.raises(ValueError, match="tile 8 is wider than the 4 environments"):
        mesh = AbstractMesh((8,), ("batch",))
        placed = NamedSharding(mesh, PartitionSpec("batch"))
        tiles.tiling("rollout", 8, (32,), links(1), placed)


@cache
def links(joints):
    """As many bodies on hinges."""
    world = jj.SystemBuilder()
    for i in range(joints):
        world.body(str(i), mass=1.0, inertia=(0.1, 0.1, 0.1))
        world.joint(str(i), jj.Hinge(), child=str(i), parent=str(i - 1) if i else jj.WORLD)
    return world.build()[0]


@pytest.mark.parametrize("tile", mostly_slow([1, 3, 5, 12], default=("5",)))
def test_tiles_change_nothing(tile):
    x = jnp.arange(24.0).reshape(2, 12)

    def function(shared, x):
        return {"sum": shared * x.sum(axis=0), "all": x[::-1]}

    found = map_tiles(function, jnp.array(2.0), x, tile)
    np.testing.assert_array_equal(found["sum"], 2 * x.sum(axis=0))
    np.testing.assert_array_equal(found["all"], x[::-1])


def test_what_fills_a_tile_has_no_gradient():
    """The last of seven environments is computed twice and counts once."""
    x = jnp.arange(1.0, 8.0)

    def total(shared, x):
        weights = jnp.arange(7.0)
        return jnp.sum(weights * map_tiles(lambda shared, x: shared / x**2, shared, x, 4))

    slopes = jax.grad(total, argnums=(0, 1))(jnp.array(3.0), x)
    np.testing.assert_allclose(slopes[0], sum(n / (n + 1) ** 2 for n in range(7)), rtol=1e-14)
    np.testing.assert_allclose(slopes[1], -6 * np.arange(7) / np.arange(1, 8) ** 3, rtol=1e-14)
