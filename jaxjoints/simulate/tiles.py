"""Tiles: parts of a batch that stay in the cache of a CPU core, distributed over all cores."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, PartitionSpec

# The largest joints × environments of a tile, so that a step stays in a core's cache; and the
# largest number of environments, beyond which a tile gains nothing. Both were measured on chains of
# 10 to 100 joints, a four-bar linkage and a Stewart platform.
TILE_SIZE = 12800
WIDEST_TILE = 128


def use_all_cores(count: int | None = None) -> int:
    """Let rollouts of a batch use several cores of the CPU.

    Call it once, before JAX computes anything. It makes each core a device of JAX
    (`jax_num_cpu_devices`), and `rollout` distributes its tiles over these devices. Without it, JAX
    splits every small operation among the cores, which is slower than a single core.

    count: number of cores, ≥ 1; by default all that the process may use

    >>> use_all_cores()  # doctest: +SKIP
    2

    Returns: the number of cores
    Raises: ValueError for a count < 1; RuntimeError if JAX has already computed something.
    """
    if count is None:
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if count < 1:
        raise ValueError(f"use_all_cores: count {count} must be >= 1")
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        raise RuntimeError(
            "use_all_cores: JAX has already computed something; call it right after the imports"
        ) from error
    return count


def cores() -> Mesh | None:
    """The CPU devices for tiles; None for a single device and on other backends."""
    if jax.default_backend() != "cpu" or jax.local_device_count() == 1:
        return None
    return jax.make_mesh((jax.local_device_count(),), ("cores",), axis_types=(AxisType.Auto,))


def default_tile(joints: int, batch: int, mesh: Mesh | None) -> int:
    """Number of environments per tile; 0 for no tiles, as on all backends but CPUs.

    Tiles are of equal size, and every core gets the same number of them.

    joints: of one environment; batch: number of environments
    """
    if jax.default_backend() != "cpu":
        return 0
    number = 1 if mesh is None else mesh.size
    largest = max(8, min(WIDEST_TILE, TILE_SIZE // max(1, joints)))
    fits = (n for n in range(min(largest, batch), 0, -1) if batch % n == 0)
    tile = next((n for n in fits if (batch // n) % number == 0), 0)
    # Very small tiles cost more than they spare.
    return tile if tile >= min(8, batch // number) else 0


def map_tiles(function: Callable, shared: Any, batched: Any, tile: int, mesh: Mesh | None) -> Any:
    """`function(shared, batched)`, computed tile by tile; each core computes its tiles in turn.

    batched: a tree of arrays whose last axis is the batch; so are those of the result
    tile: number of environments per tile, a divisor of the batch
    """
    batch = jax.tree.leaves(batched)[0].shape[-1]

    def cut(x):
        return jnp.moveaxis(x.reshape((*x.shape[:-1], batch // tile, tile)), -2, 0)

    def run(shared, tiles):
        return jax.lax.map(partial(function, shared), tiles)

    def join(x):
        x = jnp.moveaxis(x, 0, -2)
        return x.reshape((*x.shape[:-2], batch))

    if mesh is not None and (batch // tile) % mesh.size == 0:
        copied, split = PartitionSpec(), PartitionSpec("cores")
        # Tiles exchange nothing, so there is no communication between devices to check.
        run = jax.shard_map(
            run, mesh=mesh, in_specs=(copied, split), out_specs=split, check_vma=False
        )
    return jax.tree.map(join, run(shared, jax.tree.map(cut, batched)))
