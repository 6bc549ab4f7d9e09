"""Ways around what XLA and JAX do badly, all of them. Each that changes programs has a switch.

Every entry below says what goes wrong, the version of jaxlib where that was seen, and what the
workaround gains. `tests/benchmarks/workarounds.py` measures the gains by means of `disabled`;
"a piece" is what it times without options (jaxlib 0.10.2, float32, 128 environments, one core of a
busy machine, where equal programs differ by 5 to 30 %).
What JAX does not promise to keep is imported in this file alone, with a substitute for versions
that lack it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial, reduce, wraps
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

try:
    from jax.custom_derivatives import SymbolicZero

    # Whether `custom_jvp` can tell which tangents are zero, and the type of those.
    SYMBOLIC_ZEROS = True
except ImportError:
    SymbolicZero, SYMBOLIC_ZEROS = (), False

try:
    from jax.experimental.xla_metadata import set_xla_metadata
except ImportError:
    # The programs of `stored` are right without their marks, only slower.
    def set_xla_metadata(**marks: str) -> nullcontext:
        """Without effect."""
        return nullcontext()


T = TypeVar("T")
F = TypeVar("F", bound=Callable)

# Options of `jax.jit(…, compiler_options=QUICK)` for programs that run little: they compile in a
# quarter of the time and run more slowly (jaxlib 0.10.2).
QUICK: dict[str, int | bool] = {"xla_backend_optimization_level": 0}
# A release of XLA refuses what it does not know.
if jax.__version_info__ < (0, 11):
    QUICK |= {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
# For programs that run for seconds or minutes: they compile in half of the time and run up to a
# third longer.
MODERATE = QUICK | {"xla_backend_optimization_level": 1}

SWITCHES = (
    "once",
    "stored",
    "materialize",
    "barrier",
    "spread",
    "arctan",
    "scan",
)
_disabled: set[str] = set()

# What programs may be traced for; "gpu" is a single one.
TARGETS = ("cpu", "gpu")
# Names of the platform of GPUs.
GPUS = ("gpu", "cuda", "rocm")
_target: list[str] = []


@contextmanager
def disabled(*names: str) -> Iterator[None]:
    """Programs traced within it do without some of the `SWITCHES`; for benchmarks.

    The switches are read while JAX traces. A compiled program has no trace of them.
    """
    if unknown := set(names) - set(SWITCHES):
        raise ValueError(f"disabled: {sorted(unknown)} are none of {', '.join(SWITCHES)}")
    before = set(_disabled)
    # What JAX has traced with other switches must not be used again.
    jax.clear_caches()
    _disabled.update(names)
    try:
        yield
    finally:
        _disabled.intersection_update(before)
        jax.clear_caches()


@contextmanager
def traced_for(target: str) -> Iterator[None]:
    """Programs traced within it are made for one of the `TARGETS`, and not for the devices that
    JAX takes by default; for tests, and to look at programs for devices that are not there.
    """
    if target not in TARGETS:
        raise ValueError(f"traced_for: {target!r} is none of {', '.join(TARGETS)}")
    jax.clear_caches()
    _target.append(target)
    try:
        yield
    finally:
        _target.pop()
        jax.clear_caches()


def platform() -> str:
    """The platform that programs are traced for: that of `jax.default_device`, or JAX's own choice.

    JAX traces anew where the default device is another one. Of arrays that lie elsewhere it knows
    nothing while it traces; see `devices.where_they_lie`.
    """
    if _target:
        return _target[-1]
    default = jax.config.jax_default_device
    if default is None:
        return jax.default_backend()
    name = default if isinstance(default, str) else default.platform
    return "gpu" if name in GPUS else name


def on_gpu() -> bool:
    """Whether a program is traced for a GPU, where XLA fuses other things than on a CPU."""
    return platform() == "gpu"


def once(function: F) -> F:
    """`function` of arrays, which JAX traces and differentiates once for each shape.

    Without it JAX does so anew for each use, operation by operation. XLA inlines the call, so what
    is compiled stays the same.

    Gains: without it the gradient of a rollout of a four-bar linkage is traced in 1.5 times the
    time, a step in 1.25 times (JAX 0.10).
    """
    call = jax.jit(function)

    @wraps(function)
    def chosen(*arrays: Any) -> Any:
        return function(*arrays) if "once" in _disabled else call(*arrays)

    return cast(F, chosen)


def named_mesh() -> AbstractContextManager:
    """A context that names JAX's present mesh of devices, also where there is none.

    JAX's cache of what it has traced tells "no mesh" from "a mesh without axes", and
    differentiation uses the latter (JAX 0.10). So programs that are traced within this context are
    found again.

    Gains: without it the gradient of a rollout of a hinge is traced in 1.15 times the time.
    """
    return jax.sharding.use_abstract_mesh(jax.sharding.get_abstract_mesh())


def quickly(
    function: F,
    *,
    where: Callable[..., bool] | None = None,
    compiler_options: Mapping[str, int | bool] = QUICK,
    **options: Any,
) -> F:
    """`jax.jit` of a function that runs little, which is compiled with the options `QUICK`.

    Inside of another `jit`, `grad` or `vmap` it is part of that program, compiled with its options:
    JAX refuses others there.

    where: of the arguments, whether the program does so little that compiling it would take longer
        than running it slowly; else JAX's own options hold
    compiler_options: `QUICK` or `MODERATE`

    Gains: the start of a knee of splines compiles in a quarter of the time; the rollout of one of
    gymnasium's ants in 15 s of processor time for 38, while a step of it takes 1.2 ms for 0.28. The
    first swing-up of `examples/swing_up.py` takes 47 s with `MODERATE`, 45 s with `QUICK` and 73 s
    with JAX's own options, a second one 6.9 s, 20.6 s and 6.0 s.
    """
    alone, within = (
        jax.jit(function, compiler_options=dict(compiler_options), **options),
        jax.jit(function, **options),
    )

    @wraps(function)
    def chosen(*arguments: Any, **named: Any) -> Any:
        traced = is_traced((arguments, named)) or traces_constants()
        little = where is None or platform() == "cpu" and where(*arguments, **named)
        return (alone if little and not traced else within)(*arguments, **named)

    return cast(F, chosen)


def moderately(function: F, **options: Any) -> F:
    """`quickly` with `MODERATE` on CPUs, whatever the arguments; on GPUs JAX's own options hold."""
    return quickly(function, where=lambda *_, **__: True, compiler_options=MODERATE, **options)


def is_traced(value: Any) -> bool:
    """Whether a tree holds arrays that JAX is tracing, inside `jit`, `grad` or `vmap`."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value))


def traces_constants() -> bool:
    """Whether JAX traces now what is computed of plain numbers, as it does inside `jit`."""
    return is_traced(jnp.zeros(()))


def stored(function: Callable) -> Callable:
    """`function` of arrays, whose result XLA on CPUs computes once and puts into memory.

    XLA on CPUs fuses a product into every reader and computes its elements again for each element
    that needs them: six times for a product of products, ten times for a factorization. In a chain
    of small algebra, work and compile time multiply from link to link. XLA removes an optimization
    barrier before it fuses (jaxlib 0.10). A call that is not inlined prevents the fusion. Batching
    and differentiation pass through. Where JAX computes on other devices by default, it is
    `function` as it is.

    Gains: a piece (an inverse factor and two products) takes 2.0 times as long without it, its
    derivative 0.7 times; a step of a chain of 10 takes 1.25 times as long, its gradient 1.17 times.
    """
    call = _call(function)

    def chosen(*arrays: Array) -> Array:
        return call(*arrays) if _on_cpu("stored") else function(*arrays)

    return chosen


def _on_cpu(name: str) -> bool:
    """Whether a workaround for CPUs is to be taken."""
    return name not in _disabled and platform() == "cpu"


def _call(function: Callable) -> Callable:
    """`function` of arrays as a call that XLA does not inline."""
    inner = jax.jit(function)

    def inlined(*arrays: Array) -> Array:
        # The mark of the call is not for calls within it: `jnp.where` is one, and would keep apart
        # what belongs together: the gradient of a chain of 10 then has 866 kernels and not 792.
        with set_xla_metadata(inlineable="true"):
            return inner(*arrays)

    inlined.__name__ = getattr(function, "__name__", "stored")
    call = jax.jit(inlined)

    def apart(*arrays: Array) -> Array:
        with set_xla_metadata(inlineable="false"):
            return call(*arrays)

    return apart


def materialize(tree: T) -> T:
    """The same arrays and their cotangents, each computed once and kept in memory as by `stored`.

    What a batch shares, its last axis 1, is left as it is: XLA computes it once before the loop
    over time, but no call (jaxlib 0.10).

    Gains: without it a piece (a product of a matrix of sines) takes 11 times as long, a step of a
    chain of 10 1.27 times, its gradient 1.86 times.
    """
    if not _on_cpu("materialize"):
        return tree
    leaves, structure = jax.tree.flatten(tree)
    batch = max((x.shape[-1] for x in leaves if x.ndim), default=1)
    own = [not x.ndim or batch == 1 or x.shape[-1] > 1 for x in leaves]
    kept = iter(_times_one_apart(*(x for x, one in zip(leaves, own, strict=True) if one)))
    leaves = [next(kept) if one else x for x, one in zip(leaves, own, strict=True)]
    return jax.tree.unflatten(structure, leaves)


def for_all_readers(x: Array) -> Array:
    """x, which XLA on GPUs computes in one kernel, for whatever reads it.

    XLA fuses a sum of products with its reader, but leaves the products apart as soon as two read
    the sum (jaxlib 0.10). An optimization barrier behind the sum makes them one kernel. Around what
    XLA fuses anyway a barrier costs: around everything that `materialize` keeps on CPUs it makes
    52 kernels of 33.

    Gains: without it a step of a chain of 10 takes 38 kernels instead of 32, and 1.09 times as long
    by the model of `gpu_programs.py`.
    """
    return lax.optimization_barrier(x) if on_gpu() and "barrier" not in _disabled else x


def _times_one(*arrays: Array) -> list[Array]:
    """The same arrays by a product, of which the reverse derivative is one too: JAX leaves out of
    the way back a call that hands on its arguments.
    """
    return [x * 1 if jnp.issubdtype(x.dtype, jnp.inexact) else x for x in arrays]


_times_one_apart = _call(_times_one)


def spread(x: Array, axis: int, count: int) -> Array:
    """x, `count` times along a new axis, which reverse differentiation adds up slice by slice.

    The derivative of a broadcast is a sum over few items, which XLA on CPUs gives to a library that
    takes up to 100 µs for 5 × 10 × 128 (jaxlib 0.10).

    Gains: without it the derivative of a piece (a product of matrices) takes 2.2 times as long, the
    gradient of a chain of 10 1.26 times.
    """
    one = jnp.expand_dims(x, axis)
    if "spread" in _disabled:
        return jnp.broadcast_to(one, (*x.shape[:axis], count, *x.shape[axis:]))
    # No copy at all has nothing to put together.
    return lax.concatenate([one] * count, axis) if count else jnp.repeat(one, 0, axis)


def arctan2(y: Array, x: Array) -> Array:
    """Angle in [-π, π] [rad] of (x, y), 0 at (0, 0), by a reduced series, right to 2 roundings.

    XLA on CPUs calls a function for each item: 11 µs for 1280 numbers in float32 where the series
    takes 1.3 µs (jaxlib 0.10). So it does for asin and tan.

    Gains: without it a piece (10 angles) takes 6.8 times as long, a step of a chain of 10 1.1
    times.
    """
    if "arctan" in _disabled:
        return lax.atan2(y, x)
    ay, ax = jnp.abs(y), jnp.abs(x)
    long, short = jnp.maximum(ay, ax), jnp.minimum(ay, ax)
    beyond = short > np.tan(np.pi / 8).item() * long
    over = jnp.where(beyond, short - long, short)
    # Protects the division from (0, 0).
    t = over / jnp.where(beyond, short + long, jnp.where(long > 0, long, 1.0))
    angle = t * arctan_series(t * t)
    angle = jnp.where(beyond, np.pi / 4 + angle, angle)
    angle = jnp.where(ay > ax, np.pi / 2 - angle, angle)
    return jnp.copysign(jnp.where(x < 0, np.pi - angle, angle), y)


def arctan_series(x: Array) -> Array:
    """arctan t / t of x = t², t up to tan π/8; see `arctan2`."""
    # The first term dropped is below rounding.
    terms = {4: 9, 8: 20}[x.dtype.itemsize]
    if "arctan" in _disabled:
        # Protects √, the division and their derivatives from t = 0.
        small = x < jnp.finfo(x.dtype).eps ** 0.5
        t = jnp.sqrt(jnp.where(small, 1.0, x))
        return jnp.where(small, 1 - x / 3, lax.atan2(t, jnp.ones_like(t)) / t)
    return polynomial(x, tuple((-1) ** n / (2 * n + 1) for n in range(terms)))


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Σ coefficients[n] xⁿ by Horner's rule."""
    return reduce(lambda total, c: total * x + c, reversed(coefficients), jnp.zeros_like(x))


@polynomial.defjvp
def _polynomial_jvp(coefficients: tuple[float, ...], primals: tuple, tangents: tuple) -> tuple:
    """The slope as a polynomial: of Horner's rule reverse differentiation would keep each step."""
    slope = tuple(n * c for n, c in enumerate(coefficients))[1:]
    return polynomial(*primals, coefficients), polynomial(*primals, slope) * tangents[0]


def scan(function: Callable, carry: Any, xs: Any, length: int) -> tuple[Any, Any]:
    """`jax.lax.scan`, where one step is no loop.

    JAX traces a loop in a loop anew for each of them when it differentiates (JAX 0.10).

    Gains: without it the gradient of 50 steps of a chain of 10 compiles in 1.23 times the time; it
    runs as fast.
    """
    if length != 1 or "scan" in _disabled:
        return lax.scan(function, carry, xs, length=length)
    carry, y = function(carry, jax.tree.map(lambda x: x[0], xs))
    return carry, jax.tree.map(lambda x: x[None], y)


def linear_loop(function: Callable, tangents: Any) -> Any:
    """`function(tangents)` of a linear function that has a loop, for a rule of `custom_jvp`.

    JAX 0.9 takes tangents that such a loop reads for constants and cannot transpose it. Of a loop
    that JAX itself has differentiated, JAX knows the tangents.

    Gains: without it reverse derivatives through friction raise "ValAccum … passed to scan"
    (JAX 0.9.2). Later releases need nothing, and it has no switch.
    """
    if jax.__version_info__ >= (0, 10):
        return function(tangents)
    leaves, structure = jax.tree.flatten(tangents)
    # Tangents of integers are no numbers.
    moves = [x.dtype != jax.dtypes.float0 for x in leaves]

    def of_numbers(*numbers: Array) -> Any:
        each = iter(numbers)
        filled = [next(each) if one else x for x, one in zip(leaves, moves, strict=True)]
        return function(jax.tree.unflatten(structure, filled))

    numbers = [x for x, one in zip(leaves, moves, strict=True) if one]
    return jax.jvp(of_numbers, [jnp.zeros_like(x) for x in numbers], numbers)[1]


def batch_in_front(tree: T) -> T:
    """The same arrays; `vmap` has its axis in front of theirs.

    `vmap` of a `jit` of a `custom_jvp` looks for the axis of a result where the function left it,
    although the rule of the derivative left it elsewhere (JAX 0.10). A function and its rule that
    compute a result in different ways both return it through here. `vmap` of a reshape moves its
    axis in front, and XLA leaves reshapes out. Without it such derivatives end in an error about
    shapes, so it has no switch.
    """
    return jax.tree.map(lambda x: x.reshape(1, *x.shape).reshape(x.shape), tree)


def register(cls: type, data: tuple[str, ...], meta: tuple[str, ...]) -> None:
    """Let JAX see a dataclass as a tree: the fields `data` are its branches, `meta` its type.

    Trees of different classes that `register_dataclass` has registered compare equal where their
    fields are equal, and `jit` then runs, now and then, what it compiled for the other class: 302
    of 7752 calls of a small program (jaxlib 0.10). Trees of explicit functions differ.
    """
    keys = tuple(jax.tree_util.GetAttrKey(name) for name in data)

    def flatten(record: Any) -> tuple[tuple, tuple]:
        values = vars(record)
        return tuple(values[name] for name in data), tuple(values[name] for name in meta)

    def flatten_with_keys(record: Any) -> tuple[tuple, tuple]:
        leaves, statics = flatten(record)
        return tuple(zip(keys, leaves, strict=True)), statics

    def unflatten(statics: tuple, leaves: tuple) -> Any:
        record = object.__new__(cls)
        vars(record).update(zip(data, leaves, strict=True), **dict(zip(meta, statics, strict=True)))
        return record

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
