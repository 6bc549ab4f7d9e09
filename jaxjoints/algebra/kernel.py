"""One kernel for a whole function of many environments, where a program for a GPU asks for it.

Every operation of this library is elementwise in the batch. On a GPU XLA still makes a hundred
kernels of a step, and each reads and writes the rows of all joints. Here the function of one
environment is taken apart into operations on numbers (`components`), and these are written as one
Pallas kernel, in which each thread computes one environment and memory sees inputs and outputs
alone. The plain function stays what is compiled elsewhere, what is differentiated, and what the
kernel is compared with.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap

from .compiler import pallas
from .components import Interpreter, NotTakenApart, Number, Turns, Value

T = TypeVar("T")
# Environments of a program: those of a warp, which take the turns of a loop together.
WARP = 32
# Largest kernel, in operations; beyond, compilers take minutes.
LARGEST = 60_000

Mode = Literal["never", "lowered", "interpreted"]
_mode: list[Mode] = ["never"]


@contextmanager
def kernels(mode: Mode) -> Iterator[None]:
    """How programs traced within it make use of kernels; for tests and benchmarks.

    mode: "never", the default: compilers take too long for kernels of whole steps (see the README);
        "lowered": in what is lowered for CUDA; "interpreted": everywhere, by Pallas's interpreter
    """
    if mode not in get_args(Mode):
        raise ValueError(f"kernels: {mode!r} is none of {', '.join(get_args(Mode))}")
    # What JAX has traced with another mode must not be used again.
    jax.clear_caches()
    _mode.append(mode)
    try:
        yield
    finally:
        _mode.pop()
        jax.clear_caches()


def per_environment(
    function: Callable[..., tuple[T, Any]], axes: int, carry: T, *arguments: Any, ranks: Any
) -> tuple[T, Any]:
    """`function(carry, *arguments)`, a new carry and whatever else, in one kernel where `kernels`
    says so.

    function: elementwise in the batch, for any number of batch axes
    axes: number of batch axes, the last ones of every array that has more axes than its rank; an
        axis of size 1 is shared by all environments
    carry: a tree of arrays with all batch axes, whose memory the result may take over
    ranks: number of axes of each array of (carry, *arguments) without batch axes, a list
    """
    mode = _mode[-1]
    if mode == "never" or pallas() is None:
        return function(carry, *arguments)
    leaves, structure = jax.tree.flatten((carry, *arguments))
    leaves = [jnp.asarray(x) for x in leaves]
    kept = len(jax.tree.leaves(carry))

    def plain(*leaves):
        return function(*jax.tree.unflatten(structure, leaves))

    written = _Written(plain, tuple(ranks), kept, mode == "interpreted")
    if any(jnp.ndim(x) not in (r, r + axes) for x, r in zip(leaves, written.ranks, strict=True)):
        return function(carry, *arguments)
    written.traced(leaves)
    call = _mapped(written, axes)
    if mode == "interpreted":
        flat = call(*leaves)
    else:
        flat = lax.platform_dependent(
            *leaves, cuda=call, default=lambda *x: tuple(jax.tree.leaves(plain(*x)))
        )
    return jax.tree.unflatten(written.structure, flat)


def _mapped(written: "_Written", axes: int) -> Callable:
    """The kernel of so many batch axes, to which `jax.vmap` adds one at the end."""
    call = custom_vmap(partial(written.run, axes))

    @call.def_vmap
    def more(size, batched, *leaves):
        def moved(x, own, rank):
            if own:
                x = jnp.moveaxis(x, 0, -1)
                # An array without batch axes of its own is shared along those.
                shape = (*x.shape[:rank], *(1,) * axes, size)
                return x if x.ndim > rank + 1 or not axes else x.reshape(shape)
            return x[..., None] if x.ndim > rank else x

        leaves = [
            moved(x, own, rank) for x, own, rank in zip(leaves, batched, written.ranks, strict=True)
        ]
        found = _mapped(written, axes + 1)(*leaves)
        return tuple(jnp.moveaxis(x, -1, 0) for x in found), (True,) * len(found)

    return call


class _Written:
    """A function as a kernel.

    plain: the function of leaves; ranks: of these; kept: how many of the first leaves are the carry
    """

    def __init__(self, plain: Callable, ranks: tuple[int, ...], kept: int, interpret: bool):
        self.plain, self.ranks, self.kept, self.interpret = plain, ranks, kept, interpret
        self.structure: Any = None
        self._traced: dict[Any, Any] = {}

    def traced(self, leaves: Sequence[Array]) -> Any:
        """The function of one environment, traced."""
        shapes = tuple(
            jax.ShapeDtypeStruct(x.shape[:rank], x.dtype)
            for x, rank in zip(leaves, self.ranks, strict=True)
        )
        key = tuple((x.shape, x.dtype) for x in shapes)
        if key not in self._traced:
            made, result = jax.make_jaxpr(self.plain, return_shape=True)(*shapes)
            self.structure = jax.tree.structure(result)
            self._traced[key] = made
        return self._traced[key]

    def taken_apart(self, leaves: Sequence[Array]) -> tuple[list[int], list[Value]]:
        """Which leaves each environment has for itself, and the outputs."""
        traced = self.traced(leaves)
        interpreter = Interpreter("cuda")
        own, inputs = [], []
        for i, (x, rank) in enumerate(zip(leaves, self.ranks, strict=True)):
            if i >= self.kept and all(size == 1 for size in x.shape[rank:]):
                inputs.append(interpreter.shared(x.reshape(x.shape[:rank])))
            else:
                inputs.append(interpreter.own(len(own), x.shape[:rank], x.dtype))
                own.append(i)
        return own, interpreter.run(traced.jaxpr, traced.consts, inputs)

    def run(self, axes: int, *leaves: Array) -> tuple[Array, ...]:
        """Outputs with `axes` batch axes."""
        try:
            return self.as_kernel(leaves)
        except NotTakenApart:
            if self.interpret:
                raise
            return tuple(jax.tree.leaves(self.plain(*leaves)))

    def as_kernel(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        """Outputs of one kernel."""
        own, outputs = self.taken_apart(leaves)
        shapes = [leaves[i].shape[self.ranks[i] :] for i in own]
        batch = jnp.broadcast_shapes(*shapes)
        size = math.prod(batch)
        if size == 0:
            shape_of = [value.parts.shape for value in outputs]
            avals = self.traced(leaves).out_avals
            return tuple(
                jnp.zeros(shape + batch, x.dtype) for shape, x in zip(shape_of, avals, strict=True)
            )
        inputs = [
            jnp.broadcast_to(leaves[i], leaves[i].shape[: self.ranks[i]] + batch).reshape(-1, size)
            for i in own
        ]
        avals = self.traced(leaves).out_avals
        order = _order([number for value in outputs for number in value.parts.flat])
        sources = _Sources(order)
        filled = [i for i, x in enumerate(inputs) if x.size]
        written = [i for i, x in enumerate(avals) if x.size]
        place = {i: k for k, i in enumerate(filled)}
        taken = [_in_memory(inputs[i]) for i in filled]
        results = [
            jax.ShapeDtypeStruct((avals[i].size, size), _stored_type(avals[i].dtype))
            for i in written
        ]
        aliases = {
            place[i]: k
            for k, i in enumerate(written)
            if i < self.kept
            and i in place
            and taken[place[i]].shape == results[k].shape
            and taken[place[i]].dtype == results[k].dtype
        }
        pl, triton = pallas()
        blocks = [pl.BlockSpec(memory_space=pl.ANY)] * (len(taken) + len(sources.packed))
        found = pl.pallas_call(
            partial(
                _kernel,
                outputs=[outputs[i] for i in written],
                types=[avals[i].dtype for i in written],
                order=order,
                sources=sources,
                place=place,
                taken=len(taken),
                size=size,
            ),
            out_shape=results,
            grid=(-(-size // WARP),),
            in_specs=blocks,
            out_specs=[pl.BlockSpec(memory_space=pl.ANY)] * len(results),
            input_output_aliases=aliases,
            interpret=self.interpret,
            compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
            name="environment",
        )(*taken, *sources.packed)
        found = iter(found)
        return tuple(
            next(found).astype(x.dtype).reshape(x.shape + batch)
            if x.size
            else jnp.zeros(x.shape + batch, x.dtype)
            for x in avals
        )


class _Sources:
    """Arrays that all environments share, one after another, a vector for each type of number."""

    def __init__(self, order: "_Order"):
        self.offset: dict[int, tuple[int, int]] = {}
        vectors: dict[Any, list[Array]] = {}
        lengths: dict[Any, int] = {}
        for number in order.every():
            if number.operation != "shared":
                continue
            value, _ = number.details
            if id(value) in self.offset:
                continue
            flat = _in_memory(jnp.ravel(value.array))
            kind = list(vectors).index(flat.dtype) if flat.dtype in vectors else len(vectors)
            self.offset[id(value)] = kind, lengths.get(flat.dtype, 0)
            vectors.setdefault(flat.dtype, []).append(flat)
            lengths[flat.dtype] = lengths.get(flat.dtype, 0) + flat.size
        self.packed = [
            arrays[0] if len(arrays) == 1 else jnp.concatenate(arrays)
            for arrays in vectors.values()
        ]


class _Order:
    """Numbers in an order in which they can be computed, each shortly before what needs it.

    numbers: to be computed at this depth; loops: order of the turns of each loop, by its id
    """

    def __init__(self):
        self.numbers: list[Number] = []
        self.loops: dict[int, tuple[Turns, _Order]] = {}

    def every(self) -> Iterator[Number]:
        """All numbers, those in loops too."""
        yield from self.numbers
        for _, inner in self.loops.values():
            yield from inner.every()


def _order(outputs: Sequence[Number]) -> _Order:
    """What the outputs need, in order: first the first argument of the first output."""
    made = _Order()
    _visit(made, outputs, 0, set())
    total = sum(1 for _ in made.every())
    if total > LARGEST:
        raise NotTakenApart(f"{total} operations")
    return made


def _visit(made: _Order, wanted: Sequence[Number], depth: int, done: set[int]) -> None:
    """Adds what is wanted at a depth and computed there; deeper numbers belong to loops."""
    stack: list[tuple[Number, bool]] = [(number, False) for number in reversed(wanted)]
    while stack:
        number, ready = stack.pop()
        if number.key in done:
            continue
        if ready:
            done.add(number.key)
            made.numbers.append(number)
            continue
        stack.append((number, True))
        if number.operation == "turned":
            loop, _ = number.details
            if id(loop) not in made.loops:
                needed = _entering(loop, depth + 1)
                pending = [x for x in needed if x.key not in done]
                if pending:
                    stack.extend((x, False) for x in reversed(pending))
                    continue
                inner = _Order()
                within = set(done) | {x.key for x in loop.carry}
                _visit(inner, [loop.wanted, *loop.after], depth + 1, within)
                made.loops[id(loop)] = loop, inner
            continue
        stack.extend((x, False) for x in reversed(number.arguments) if x.key not in done)


def _entering(loop: Turns, depth: int) -> list[Number]:
    """Numbers from outside that a loop begins with or reads."""
    found, seen = list(loop.start), set()
    stack = [loop.wanted, *loop.after]
    while stack:
        number = stack.pop()
        if number.key in seen:
            continue
        seen.add(number.key)
        if number.operation == "turned":
            inner, _ = number.details
            if number.depth < depth:
                found.append(number)
            else:
                stack.extend([inner.wanted, *inner.after, *inner.start])
        elif number.depth < depth:
            if number.operation != "constant":
                found.append(number)
        else:
            stack.extend(number.arguments)
    return found


def _kernel(*refs, outputs, types, order, sources, place, taken, size) -> None:
    """Computes the environments of a warp."""
    pl, triton = pallas()
    first = pl.program_id(0) * WARP
    lanes = pl.ds(first, WARP)
    mask = None if size % WARP == 0 else first + lax.iota(jnp.int32, WARP) < size
    inputs, shared = refs[:taken], refs[taken : taken + len(sources.packed)]
    results = refs[taken + len(sources.packed) :]

    def read(number):
        if number.operation == "own":
            index, flat = number.details
            ref = inputs[place[index]]
            x = triton.load(ref.at[jnp.int32(flat), lanes], mask=mask, other=_other(ref, mask))
            return x.astype(number.dtype) if x.dtype != number.dtype else x
        value, flat = number.details
        kind, offset = sources.offset[id(value)]
        x = shared[kind][jnp.int32(offset + flat)]
        return jnp.broadcast_to(x.astype(number.dtype) if x.dtype != number.dtype else x, (WARP,))

    known: dict[int, Array] = {}
    constants: dict[int, Array] = {}
    _write(order, known, constants, read, mask)
    for ref, value, dtype in zip(results, outputs, types, strict=True):
        for flat, number in enumerate(value.parts.flat):
            x = _found(number, known, constants).astype(_stored_type(dtype))
            triton.store(ref.at[jnp.int32(flat), lanes], x, mask=mask)


def _other(ref: Any, mask: Array | None) -> Any:
    return None if mask is None else np.zeros((), ref.dtype)[()]


def _found(number: Number, known: dict[int, Array], constants: dict[int, Array]) -> Array:
    if number.operation != "constant":
        return known[number.key]
    if number.key not in constants:
        constants[number.key] = jnp.full((WARP,), number.details, number.dtype)
    return constants[number.key]


def _write(order: _Order, known: dict, constants: dict, read: Callable, mask: Any) -> None:
    """Computes numbers in order."""
    for number in order.numbers:
        if number.key in known or number.operation == "constant":
            continue
        if number.operation in ("own", "shared"):
            known[number.key] = read(number)
        elif number.operation == "turned":
            loop, at = number.details
            key = -1 - id(loop)
            if key not in known:
                known[key] = _turned(*order.loops[id(loop)], known, constants, read, mask)
            known[number.key] = known[key][at]
        else:
            arguments = [_found(x, known, constants) for x in number.arguments]
            known[number.key] = number.operation(*arguments, **number.details)


def _turned(loop: Turns, inner: _Order, known, constants, read, mask) -> Sequence[Array]:
    """What a loop ends with. An environment that wants no further turn stays as it is."""

    def of(carry, numbers):
        # Constants are made in the loop, as those made there must not be used around it.
        within, own = dict(known), dict(constants)
        within.update(zip((x.key for x in loop.carry), carry, strict=True))
        _write(_only(inner, numbers), within, own, read, mask)
        return [_found(x, within, own) for x in numbers]

    def wanted_by(carry):
        (wanted,) = of(carry, [loop.wanted])
        return wanted if mask is None else wanted & mask

    def turn(now):
        wanted, carry = now
        after = of(carry, loop.after)
        carry = tuple(lax.select(wanted, x, y) for x, y in zip(after, carry, strict=True))
        return wanted & wanted_by(carry), carry

    def go_on(now):
        return jnp.max(now[0].astype(jnp.int32)) > 0

    start = tuple(_found(x, known, constants) for x in loop.start)
    return lax.while_loop(go_on, turn, (wanted_by(start), start))[1]


def _only(order: _Order, numbers: Sequence[Number]) -> _Order:
    """The part of an order that some numbers need."""
    needed, stack = set(), list(numbers)
    while stack:
        number = stack.pop()
        if number.key in needed:
            continue
        needed.add(number.key)
        stack.extend(number.arguments)
        if number.operation == "turned":
            loop, _ = number.details
            stack.extend([*loop.start, *_entering(loop, number.depth + 1)])
    made = _Order()
    made.loops = order.loops
    made.numbers = [x for x in order.numbers if x.key in needed]
    return made


def _stored_type(dtype: Any) -> Any:
    """How a number is kept in memory: what is true or false as an integer."""
    return jnp.dtype(jnp.int32) if jnp.dtype(dtype) == jnp.bool_ else dtype


def _in_memory(x: Array) -> Array:
    return x.astype(_stored_type(x.dtype))
