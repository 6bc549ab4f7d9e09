"""Batches spread over several devices: each device computes the environments that it holds."""

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import jax
from jax import Array
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from .compiler import platform

F = TypeVar("F", bound=Callable)


def computed_where(argument: str) -> Callable[[F], F]:
    """Functions whose programs are made for the platform on which an argument's arrays are put.

    JAX computes there, but tells it only when it lowers a program. What is traced already, inside
    of a `jit` of the user, is left to `jax.default_device`.
    """

    def decorated(function: F) -> F:
        position = list(inspect.signature(function).parameters).index(argument)

        @wraps(function)
        def there(*arguments: Any, **named: Any) -> Any:
            given = arguments[position:][:1] or named.get(argument)
            device = _device(jax.tree.leaves(given))
            if device is None or device.platform == platform():
                return function(*arguments, **named)
            with jax.default_device(device):
                return function(*arguments, **named)

        return cast(F, there)

    return decorated


def _device(arrays: Iterable[Any]) -> jax.Device | None:
    """A device on which one of the arrays is put; None where JAX is free to choose."""
    for x in arrays:
        if isinstance(x, Array) and not isinstance(x, jax.core.Tracer) and x.committed:
            return min(x.devices(), key=lambda device: device.id)
    return None


def placement(arrays: Iterable[Any], axes: int) -> NamedSharding | None:
    """How the last `axes` axes of arrays are spread over devices, by the first spread array.

    None where one device or NumPy holds the arrays, and for arrays traced in a mesh of automatic
    axes, whose work XLA divides by itself.
    """
    for x in arrays:
        held = _sharding(x)
        if not _is_on_several(held) or x.ndim < axes:
            continue
        spec = (*held.spec, *(None,) * (x.ndim - len(held.spec)))[x.ndim - axes :]
        if any(name is not None for name in spec):
            return NamedSharding(held.mesh, PartitionSpec(*spec))
    return None


def on_several(arrays: Iterable[Any]) -> bool:
    """Whether some of the arrays lie on several devices, whole or in parts."""
    return any(_is_on_several(_sharding(x)) for x in arrays)


def _sharding(x: Any) -> Any:
    if not isinstance(x, Array):
        return None
    return jax.typeof(x).sharding if isinstance(x, jax.core.Tracer) else x.sharding


def _is_on_several(held: Any) -> bool:
    return isinstance(held, NamedSharding) and held.mesh.size > 1


def holders(placed: NamedSharding) -> int:
    """Number of devices over which a batch is spread."""
    parts = (names if isinstance(names, tuple) else (names,) for names in placed.spec if names)
    return math.prod(placed.mesh.shape[name] for names in parts for name in names)


def dealt_out(placed: NamedSharding, axes: int, batched: Any) -> Any:
    """A tree of arrays with batch axes at the end, as `on_each_device` returns them: each device
    holds its environments. What is traced stays as it is.
    """

    def put(x: Any) -> Any:
        if isinstance(x, jax.core.Tracer):
            return x
        spec = PartitionSpec(*(None,) * (x.ndim - axes), *placed.spec)
        return jax.device_put(x, NamedSharding(placed.mesh, spec))

    return jax.tree.map(put, batched)


def on_each_device(
    function: Callable, placed: NamedSharding | None, ranks: Sequence[int], *arguments: Any
) -> Any:
    """`function(*arguments)`, each device computing the environments that it holds.

    Environments exchange nothing, so nothing is sent from device to device. In reverse the
    derivatives with respect to what environments share are summed over the devices.

    placed: of the batch axes, see `placement`; None for the function as it is
    ranks: of each leaf of the arguments its number of axes without batch axes. A leaf has all batch
        axes or none; every leaf of the result has all of them, at its end
    """
    if placed is None:
        return function(*arguments)
    leaves, tree = jax.tree.flatten(arguments)
    specs = [
        PartitionSpec(*(None,) * rank, *placed.spec) if x.ndim > rank else PartitionSpec()
        for x, rank in zip(leaves, ranks, strict=True)
    ]
    if AxisType.Explicit in placed.mesh.axis_types:
        leaves = [
            jax.reshard(x, NamedSharding(placed.mesh, spec))
            for x, spec in zip(leaves, specs, strict=True)
        ]
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves]
    axes = len(placed.spec)
    results = jax.tree.map(
        lambda x: PartitionSpec(*(None,) * (x.ndim - axes), *placed.spec),
        jax.eval_shape(function, *tree.unflatten(shapes)),
    )
    return jax.shard_map(
        lambda *leaves: function(*tree.unflatten(leaves)),
        mesh=placed.mesh,
        in_specs=tuple(specs),
        out_specs=results,
        # There is no communication to be checked.
        check_vma=False,
    )(*leaves)
