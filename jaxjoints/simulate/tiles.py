"""Tiles: parts of a batch that stay in the cache of a CPU core, distributed over all cores."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from ..algebra.calls import public, warn
from ..algebra.compiler import platform
from ..algebra.devices import holders, on_each_device
from ..algebra.options import check_count
from ..model.system import System

# The largest joints × environments of a tile, so that a step stays in a core's cache; and the
# largest number of environments, beyond which a tile gains nothing. Both were measured on chains of
# 10 to 100 joints, a four-bar linkage, a Stewart platform, a hopper and an ant on the ground.
TILE_SIZE = 12800
WIDEST_TILE = 128
# Batches of which it was said that the cores cannot share them.
_told: set[tuple[str, int, int]] = set()


@public
def use_all_cores(count: int | None = None) -> int:
    """Let rollouts of a batch use several cores of the CPU.

    Call it once, before JAX computes anything. It makes each core a device of JAX
    (`jax_num_cpu_devices`), and `rollout` distributes its tiles over these devices, which must
    divide the batch. Without it, JAX splits many small operations among the cores, which is slower
    than a single core: with several cores at hand, `use_all_cores(1)` is faster than no call. The
    environment variable PJRT_NPROC, unless it is set, limits XLA's threads to the count.

    count: number of cores, ≥ 1; by default all that the process may use

    >>> use_all_cores()  # doctest: +SKIP
    2

    Returns: the number of cores
    Raises: ValueError for a count < 1; RuntimeError if JAX has already computed something.
    """
    if count is None:
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    check_count("use_all_cores:", "count", count, 1)
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        raise RuntimeError(
            "use_all_cores: JAX has already computed something; call it right after the imports"
        ) from error
    # Of XLA's threads, which are as many as devices or this number; by default all cores.
    os.environ.setdefault("PJRT_NPROC", str(count))
    return count


def all_devices() -> NamedSharding | None:
    """A batch spread over the devices of this process that programs are traced for; None for one
    device, and where several processes compute together.
    """
    devices = jax.local_devices(backend=platform())
    if len(devices) == 1 or jax.process_count() > 1:
        return None
    axes = {"axis_types": (AxisType.Auto,), "devices": devices}
    mesh = jax.make_mesh((len(devices),), ("devices",), **axes)
    return NamedSharding(mesh, PartitionSpec("devices"))


def cores() -> NamedSharding | None:
    """A batch spread over the cores of a CPU, see `use_all_cores`; None on other platforms."""
    return all_devices() if platform() == "cpu" else None


def default_tile(system: System, batch: int) -> int:
    """Number of environments per tile; 0 for no tiles, as on all platforms but CPUs.

    Tiles are as few as fit the cache, and equally wide but for less than one environment each.

    batch: number of environments of one device
    """
    if platform() != "cpu":
        return 0
    # Very small tiles cost more than they spare.
    largest = max(8, min(WIDEST_TILE, TILE_SIZE // max(1, len(system.topology.joints))))
    return _shared(batch, max(1, _shared(batch, largest)))


def _shared(count: int, parts: int) -> int:
    """How many of so many fall to each of the parts, rounded up."""
    return -(-count // parts)


def tiling(
    call: str,
    tile: int | None,
    batch: tuple[int, ...],
    system: System,
    placed: NamedSharding | None,
) -> tuple[int, NamedSharding | None]:
    """Environments per tile, 0 for all of them at once; and how the batch is dealt out to devices.

    call: name of the function, for errors; tile: as a user gives it
    placed: where the batch lies already, see `placement`
    Raises: ValueError for a tile of no environments, without a batch axis, or wider than what a
        device holds
    Warns: once for each batch that cores cannot share
    """
    if tile is not None:
        check_count(f"{call}:", "tile", tile)
    if tile is not None and (len(batch) != 1 or not 1 <= tile <= batch[0]):
        raise ValueError(
            f"{call}: tile {tile} must be from 1 to the size of the one batch axis, here {batch}"
        )
    if len(batch) != 1:
        return 0, placed
    count = batch[0]
    if placed is None:
        placed = _dealt(call, count, tile or 1)
    held = count if placed is None else count // holders(placed)
    if tile is not None and tile > held:
        raise ValueError(
            f"{call}: tile {tile} is wider than the {held} environments that each of "
            f"{holders(placed)} devices holds; take a smaller tile"
        )
    return default_tile(system, held) if tile is None else tile, placed


def _dealt(call: str, batch: int, tile: int) -> NamedSharding | None:
    """A batch spread over the cores of a CPU; None where these cannot share it evenly."""
    placed = cores()
    if placed is None:
        return None
    count = holders(placed)
    share = batch // count
    if batch % count == 0:
        return placed if share >= tile else None
    # Fewer environments on each core gain little, see `default_tile`.
    if share >= max(8, tile) and (call, batch, count) not in _told:
        _told.add((call, batch, count))
        warn(
            f"{call}: {count} cores cannot share {batch} environments evenly, so one core computes "
            f"them all; take {share * count} or {(share + 1) * count}"
        )
    return None


def tiled(
    function: Callable,
    shared: Any,
    batched: Any,
    *,
    axes: int,
    tile: int,
    placed: NamedSharding | None,
) -> Any:
    """`function(shared, batched)`, each device computing its tiles in turn.

    batched: a tree of arrays whose last axes are the batch; so are those of the result
    axes: number of batch axes; tile, placed: of `tiling`
    """

    def share(shared: Any, batched: Any) -> Any:
        """What one device computes."""
        here = jax.tree.leaves(batched)[0].shape[-1]
        whole = tile in (0, here)
        return function(shared, batched) if whole else map_tiles(function, shared, batched, tile)

    ranks = [jnp.ndim(x) for x in jax.tree.leaves(shared)]
    ranks += [x.ndim - axes for x in jax.tree.leaves(batched)]
    return on_each_device(share, placed, ranks, shared, batched)


def map_tiles(function: Callable, shared: Any, batched: Any, tile: int) -> Any:
    """`function(shared, batched)`, computed tile by tile.

    batched: a tree of arrays whose last axis is the batch; so are those of the result
    tile: number of environments per tile. Copies of the last environment fill the last tile; their
        results are left out, and so no gradient flows through them
    """
    batch = jax.tree.leaves(batched)[0].shape[-1]
    count = _shared(batch, tile)
    spare = count * tile - batch

    def cut(x):
        if spare:
            copies = jnp.broadcast_to(x[..., -1:], (*x.shape[:-1], spare))
            x = jnp.concatenate([x, copies], axis=-1)
        return jnp.moveaxis(x.reshape((*x.shape[:-1], count, tile)), -2, 0)

    def join(x):
        x = jnp.moveaxis(x, 0, -2)
        return x.reshape((*x.shape[:-2], count * tile))[..., :batch]

    tiles = jax.tree.map(cut, batched)
    return jax.tree.map(join, jax.lax.map(partial(function, shared), tiles))
