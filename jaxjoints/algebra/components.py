"""A function of one environment taken apart into operations on numbers.

JAX traces the function; the interpreter here follows every array to its components. What moves
components around (slices, transposes, gathers at constant places) leaves no operation behind; sums
and products of matrices become sums of products of numbers. The result is a graph of `Number`s
that `kernel` writes as one program. Equal operations are one; what is multiplied by a constant 0
or 1 is left out; what nothing needs is never reached from the outputs.

What depends on nothing but arrays that all environments share is not taken apart: it is computed
once, as arrays, and its components are read.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import count, product
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core

# Most operations of a program, and most turns of a loop that are written one after another.
MOST_OPERATIONS = 200_000
MOST_TURNS = 8

_names = count()


class NotTakenApart(Exception):
    """A function that is no program of numbers of a reasonable size."""


class Number:
    """A number of each environment: the result of an operation on others.

    operation: a function of JAX; or "constant", "own" (of an input of each environment), "shared"
        (of an array that all share), "carry" (of a loop), "turned" (what a loop ends with)
    arguments: numbers; details: what else the operation needs
    depth: in how many loops it is computed
    shared: whether all environments have the same
    """

    __slots__ = ("arguments", "depth", "details", "dtype", "key", "operation", "shared")

    def __init__(self, operation, arguments, details, dtype, depth, shared):
        self.operation, self.arguments, self.details = operation, arguments, details
        self.dtype, self.depth, self.shared = dtype, depth, shared
        self.key = next(_names)

    @property
    def constant(self) -> Any:
        """The value of a constant, None of all else."""
        return self.details if self.operation == "constant" else None


class Turns:
    """A loop that turns until no environment wants another turn.

    start: numbers it begins with; carry: what stands for them in a turn
    wanted: whether an environment wants a turn; after: the carry after it
    """

    def __init__(self, start, carry, wanted, after):
        self.start, self.carry, self.wanted, self.after = start, carry, wanted, after


class Value:
    """An array by its components.

    parts: numbers, in the shape of the array
    whole: a function that gives the array itself, where all environments share it
    """

    __slots__ = ("_array", "parts", "whole")

    def __init__(self, parts: np.ndarray, whole: Callable[[], Any] | None = None):
        self.parts, self.whole, self._array = parts, whole, None

    @property
    def array(self) -> Any:
        """The array itself."""
        if self._array is None:
            self._array = self.whole()
        return self._array

    @property
    def constant(self) -> np.ndarray | None:
        """The array where it is known, or None."""
        flat = [number.constant for number in self.parts.flat]
        if any(value is None for value in flat):
            return None
        return np.array(flat).reshape(self.parts.shape)


# Operations on numbers, with what numpy makes of constants where that is worth while.
ELEMENTWISE: dict[str, Callable | None] = dict.fromkeys(
    "tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh exp exp2 log log1p expm1 logistic "
    "cbrt pow rem nextafter ceil shift_left shift_right_arithmetic shift_right_logical "
    "xor clamp is_finite bitcast_convert_type".split()
) | {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "max": np.maximum,
    "min": np.minimum,
    "abs": np.abs,
    "floor": np.floor,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "square": np.square,
    "sin": np.sin,
    "cos": np.cos,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "not": np.invert,
}
ELEMENTWISE |= {"div": None, "integer_pow": None, "convert_element_type": None, "select_n": None}
# Those whose arguments are the results.
IDENTITIES = set(
    "copy copy_p name optimization_barrier stop_gradient sharding_constraint reduce_precision "
    "reshard pvary".split()
)
CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}
REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "mul",
    "reduce_and": "and",
    "reduce_or": "or",
}
# Operations that have no details.
WRITTEN: dict[str, Callable] = {
    "add": lax.add,
    "add_any": lax.add,
    "mul": lax.mul,
    "sub": lax.sub,
    "max": lax.max,
    "min": lax.min,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "eq": lax.eq,
    "gt": lax.gt,
    "ge": lax.ge,
    "lt": lax.lt,
    "select_n": lax.select_n,
    "floor": lax.floor,
}


class Interpreter:
    """Follows a traced function, whose operations it collects.

    platform: for which one the program is; it picks branches of `jax.lax.platform_dependent`
    """

    def __init__(self, platform: str):
        self.platform = platform
        self.depth = 0
        self._made: dict[Any, Number] = {}

    def run(self, jaxpr: Any, constants: Sequence[Any], inputs: Sequence[Value]) -> list[Value]:
        """What a jaxpr makes of values."""
        known: dict[Any, Value] = {}

        def read(atom):
            if isinstance(atom, core.Literal):
                return self.known(atom.val, atom.aval.dtype)
            return known[atom]

        known.update(zip(jaxpr.invars, inputs, strict=True))
        for variable, x in zip(jaxpr.constvars, constants, strict=True):
            known[variable] = x if isinstance(x, Value) else self.of_constant(x)
        for equation in jaxpr.eqns:
            arguments = [read(atom) for atom in equation.invars]
            results = self._apply(equation, arguments)
            known.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def of_constant(self, x: Any) -> Value:
        """A constant of a trace: known, or an array from around it, which all share."""
        return self.shared(x) if isinstance(x, jax.core.Tracer) else self.known(np.asarray(x))

    def known(self, x: Any, dtype: Any = None) -> Value:
        """A value of constants."""
        x = np.asarray(x, dtype)
        parts = np.empty(x.shape, object)
        for i in np.ndindex(x.shape):
            parts[i] = self.number("constant", (), x[i], x.dtype)
        return Value(parts, lambda: x)

    def shared(self, x: Any) -> Value:
        """A value that all environments share."""
        value = Value(np.empty(np.shape(x), object), lambda: x)
        return self._as_read(value, x.dtype)

    def own(self, index: int, shape: tuple[int, ...], dtype: Any) -> Value:
        """An input of each environment, by its index among those."""
        parts = np.empty(shape, object)
        for flat, i in enumerate(np.ndindex(shape)):
            parts[i] = self.number("own", (), (index, flat), dtype, shared=False)
        return Value(parts)

    def _as_read(self, value: Value, dtype: Any) -> Value:
        """A shared value whose components, but constants and those read already, are read."""
        for flat, i in enumerate(np.ndindex(value.parts.shape)):
            old = value.parts[i]
            if old is None or old.operation not in ("constant", "shared"):
                value.parts[i] = self.number("shared", (), (value, flat), dtype)
        return value

    # Numbers

    def number(
        self,
        operation: Any,
        arguments: tuple[Number, ...],
        details: Any,
        dtype: Any,
        shared: bool | None = None,
    ) -> Number:
        """The number that an operation gives; the same for the same operation."""
        dtype = np.dtype(dtype)
        if operation == "constant":
            key = operation, dtype, np.asarray(details, dtype).tobytes()
        else:
            key = operation, tuple(x.key for x in arguments), _hashable(details), dtype
        found = self._made.get(key)
        if found is None:
            depth = max((x.depth for x in arguments), default=0)
            if shared is None:
                shared = all(x.shared for x in arguments)
            found = self._made[key] = Number(operation, arguments, details, dtype, depth, shared)
            if len(self._made) > MOST_OPERATIONS:
                raise NotTakenApart(f"more than {MOST_OPERATIONS} operations")
        return found

    def apply(self, name: str, *arguments: Number, dtype: Any = None) -> Number:
        """An operation on numbers that the interpreter asks for itself; see `WRITTEN`."""
        return self._simplified(name, arguments, None, dtype or arguments[-1].dtype)

    def _simplified(self, name, arguments, equation, dtype) -> Number:
        """The number of an operation, without operations that constants make needless."""
        details = {} if equation is None else equation.params
        values = [x.constant for x in arguments]
        if all(value is not None for value in values):
            found = _of_constants(name, values, details, dtype)
            if found is not None:
                return self.number("constant", (), found, dtype)
        a = arguments[0]
        if name in ("add", "add_any") and _is(values[1], 0):
            return a
        if name in ("add", "add_any") and _is(values[0], 0):
            return arguments[1]
        if name == "sub" and _is(values[1], 0):
            return a
        if name == "mul" and np.issubdtype(dtype, np.number):
            if _is(values[0], 0) or _is(values[1], 0):
                return self.number("constant", (), np.zeros((), dtype)[()], dtype)
            if _is(values[0], 1):
                return arguments[1]
            if _is(values[1], 1):
                return a
        if name == "div" and _is(values[1], 1):
            return a
        if name in ("and", "or") and np.dtype(dtype) == bool:
            for one, other in ((0, 1), (1, 0)):
                if values[one] is not None:
                    decides = bool(values[one]) == (name == "or")
                    return arguments[one] if decides else arguments[other]
        if name == "select_n":
            if values[0] is not None:
                return arguments[1 + int(values[0])]
            if all(x is arguments[1] for x in arguments[2:]):
                return arguments[1]
        if name == "convert_element_type" and a.dtype == dtype:
            return a
        if name in WRITTEN and details.get("out_dtype") is None:
            return self.number(WRITTEN[name], arguments, {}, dtype)
        return self.number(equation.primitive.bind, arguments, details, dtype)

    # Equations

    def _apply(self, equation: Any, arguments: list[Value]) -> list[Value]:
        name = equation.primitive.name
        if name in IDENTITIES:
            return arguments
        if name in CALLS:
            inner = equation.params[CALLS[name]]
            if hasattr(inner, "consts"):
                return self.run(inner.jaxpr, inner.consts, arguments)
            return self.run(inner, (), arguments)
        if name == "custom_linear_solve":
            return self._linear_solve(equation.params, arguments)
        if name == "platform_index":
            return [self.known(self._branch(equation.params["platforms"]), np.int32)]
        if name == "cond" and arguments[0].constant is not None:
            branches = equation.params["branches"]
            index = min(max(int(arguments[0].constant), 0), len(branches) - 1)
            return self.run(branches[index].jaxpr, branches[index].consts, arguments[1:])
        whole = None
        if all(value.whole is not None for value in arguments):
            whole = _once(lambda: _evaluated(equation, [value.array for value in arguments]))
        if name in ("while", "scan") and whole is not None:
            shapes = [variable.aval for variable in equation.outvars]
            results = [Value(np.empty(x.shape, object)) for x in shapes]
        else:
            results = self._parts(name, equation, arguments)
        if whole is not None:
            for i, (value, variable) in enumerate(zip(results, equation.outvars, strict=True)):
                value.whole = _item(whole, i)
                self._as_read(value, variable.aval.dtype)
        return results

    def _parts(self, name: str, equation: Any, arguments: list[Value]) -> list[Value]:
        """Results by their components."""
        shape, dtype = _shape_and_dtype(equation)
        if name in ELEMENTWISE:
            return [self._elementwise(equation, arguments, shape, dtype)]
        if name in REDUCTIONS:
            return [self._reduced(REDUCTIONS[name], arguments[0], equation.params["axes"], dtype)]
        rule = getattr(self, f"_{name}", None)
        if rule is None:
            raise NotTakenApart(f"{name} is not an operation on numbers")
        found = rule(equation, *arguments)
        found = found if isinstance(found, list) else [found]
        return [x if isinstance(x, Value) else Value(x) for x in found]

    def _elementwise(self, equation, arguments, shape, dtype) -> Value:
        name = equation.primitive.name
        flats = [list(np.broadcast_to(x.parts, shape).flat) for x in arguments]
        parts = np.empty(shape, object)
        flat = [
            self._simplified(name, items, equation, dtype) for items in zip(*flats, strict=True)
        ]
        for i, item in zip(np.ndindex(shape), flat, strict=True):
            parts[i] = item
        return Value(parts)

    def _reduced(self, name: str, x: Value, axes, dtype) -> Value:
        moved = np.moveaxis(x.parts, axes, range(len(axes)))
        rest = moved.shape[len(axes) :]
        parts = np.empty(rest, object)
        for i in np.ndindex(rest):
            items = list(moved[(..., *i)].flat) if rest else list(moved.flat)
            if not items:
                raise NotTakenApart("a reduction of nothing")
            parts[i] = reduce(lambda a, b: self.apply(name, a, b, dtype=dtype), items)
        return Value(parts)

    def _sign(self, equation, x):
        """Of Triton's, there is none."""
        parts = np.empty(x.parts.shape, object)
        for i in np.ndindex(parts.shape):
            a = x.parts[i]
            zero, one, less = (self.number("constant", (), k, a.dtype) for k in (0, 1, -1))
            below = self.apply("select_n", self.apply("lt", a, zero, dtype=bool), a, less)
            parts[i] = self.apply("select_n", self.apply("gt", a, zero, dtype=bool), below, one)
        return parts

    def _round(self, equation, x):
        """To the nearest integer, half-way to the even one, as for `sign`."""
        if int(equation.params["rounding_method"]) != int(lax.RoundingMethod.TO_NEAREST_EVEN):
            raise NotTakenApart("a rounding away from zero")
        parts = np.empty(x.parts.shape, object)
        for i in np.ndindex(parts.shape):
            a = x.parts[i]
            half, one, two = (self.number("constant", (), k, a.dtype) for k in (0.5, 1, 2))
            up = self.apply("floor", self.apply("add", a, half))
            middle = self.apply("eq", self.apply("sub", up, a), half, dtype=bool)
            pairs = self.apply("floor", self.apply("mul", up, half))
            odd = self.apply("gt", up, self.apply("mul", pairs, two), dtype=bool)
            down = self.apply("and", middle, odd, dtype=bool)
            parts[i] = self.apply("select_n", down, up, self.apply("sub", up, one))
        return parts

    def _branch(self, platforms) -> int:
        for i, names in enumerate(platforms):
            if names is None or self.platform in names:
                return i
        raise NotTakenApart(f"a function without a program for {self.platform}")

    def _linear_solve(self, params, arguments) -> list[Value]:
        lengths, solve = params["const_lengths"], params["jaxprs"].solve
        first = lengths.matvec + lengths.vecmat
        constants = arguments[first : first + lengths.solve]
        right = arguments[first + lengths.solve + lengths.transpose_solve :]
        return self.run(solve.jaxpr, solve.consts, [*constants, *right])

    def _cond(self, equation, index, *arguments) -> list[Value]:
        branches = equation.params["branches"]
        every = [self.run(b.jaxpr, b.consts, list(arguments)) for b in branches]
        which = index.parts[()]
        found = []
        for values in zip(*every, strict=True):
            parts = values[0].parts.copy()
            for at, other in enumerate(values[1:], start=1):
                if which.dtype == bool:
                    chosen = which
                else:
                    place = self.number("constant", (), at, which.dtype)
                    chosen = self.apply("ge", which, place, dtype=bool)
                for i in np.ndindex(parts.shape):
                    parts[i] = self.apply("select_n", chosen, parts[i], other.parts[i])
            found.append(Value(parts))
        return found

    def _scan(self, equation, *arguments) -> list[Value]:
        params = equation.params
        length, inner = params["length"], params["jaxpr"]
        if length > MOST_TURNS:
            raise NotTakenApart(f"a loop of {length} turns")
        fixed, carried = params["num_consts"], params["num_carry"]
        constants, carry = list(arguments[:fixed]), list(arguments[fixed : fixed + carried])
        xs, rows = arguments[fixed + carried :], {}
        turns = range(length)
        for turn in reversed(turns) if params["reverse"] else turns:
            slices = [_sliced(x, turn) for x in xs]
            results = self.run(inner.jaxpr, inner.consts, [*constants, *carry, *slices])
            carry, rows[turn] = results[:carried], results[carried:]
        stacked = []
        for i in range(len(equation.outvars) - carried):
            shape = equation.outvars[carried + i].aval.shape
            parts = np.empty(shape, object)
            for turn in turns:
                parts[turn] = rows[turn][i].parts if shape[1:] else rows[turn][i].parts[()]
            stacked.append(Value(parts))
        return [Value(x.parts) for x in carry] + stacked

    def _while(self, equation, *arguments) -> list[Value]:
        params = equation.params
        of_condition, of_body = params["cond_nconsts"], params["body_nconsts"]
        condition, body = params["cond_jaxpr"], params["body_jaxpr"]
        first = of_condition + of_body
        start = [number for value in arguments[first:] for number in value.parts.flat]
        self.depth += 1
        carry = [Number("carry", (), i, x.dtype, self.depth, False) for i, x in enumerate(start)]
        values, rest = [], iter(carry)
        for value in arguments[first:]:
            parts = np.empty(value.parts.shape, object)
            for i in np.ndindex(parts.shape):
                parts[i] = next(rest)
            values.append(Value(parts))
        constants = list(arguments[:first])
        wanted = self.run(condition.jaxpr, condition.consts, [*constants[:of_condition], *values])[
            0
        ].parts[()]
        after = self.run(body.jaxpr, body.consts, [*constants[of_condition:], *values])
        after = [number for value in after for number in value.parts.flat]
        self.depth -= 1
        loop = Turns(start, carry, wanted, after)
        results, place = [], count()
        for value in values:
            parts = np.empty(value.parts.shape, object)
            for i in np.ndindex(parts.shape):
                at = next(place)
                parts[i] = Number("turned", (), (loop, at), start[at].dtype, self.depth, False)
            results.append(Value(parts))
        return results

    # What moves components

    def _reshape(self, equation, x):
        return x.parts.reshape(equation.params["new_sizes"])

    def _squeeze(self, equation, x):
        return x.parts.reshape(equation.outvars[0].aval.shape)

    _expand_dims = _squeeze

    def _transpose(self, equation, x):
        return x.parts.transpose(equation.params["permutation"])

    def _rev(self, equation, x):
        return np.flip(x.parts, equation.params["dimensions"])

    def _broadcast_in_dim(self, equation, x, *_):
        shape, axes = equation.params["shape"], equation.params["broadcast_dimensions"]
        lengths = [1] * len(shape)
        for axis, length in zip(axes, x.parts.shape, strict=True):
            lengths[axis] = length
        return np.broadcast_to(x.parts.reshape(lengths), shape).copy()

    def _slice(self, equation, x):
        params = equation.params
        strides = params["strides"] or (1,) * x.parts.ndim
        ranges = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
        return x.parts[tuple(slice(*one) for one in ranges)].copy()

    def _concatenate(self, equation, *xs):
        return np.concatenate([x.parts for x in xs], equation.params["dimension"])

    def _stack(self, equation, *xs):
        return np.stack([x.parts for x in xs], equation.params["axis"])

    def _unstack(self, equation, x):
        moved = np.moveaxis(x.parts, equation.params["axis"], 0)
        return [_parts_of(moved, i) for i in range(moved.shape[0])]

    def _split(self, equation, x):
        ends = np.cumsum(equation.params["sizes"])[:-1]
        return [part.copy() for part in np.split(x.parts, ends, equation.params["axis"])]

    def _pad(self, equation, x, value):
        parts, fill = x.parts, value.parts[()]
        for axis, (low, high, inner) in enumerate(equation.params["padding_config"]):
            moved = np.moveaxis(parts, axis, 0)
            length = moved.shape[0]
            spread = length + max(length - 1, 0) * inner
            size = spread + low + high
            out = np.full((max(size, 0), *moved.shape[1:]), fill, object)
            for i in range(length):
                place = low + i * (1 + inner)
                if 0 <= place < size:
                    out[place] = moved[i]
            parts = np.moveaxis(out, 0, axis)
        return parts

    def _iota(self, equation):
        params = equation.params
        shape, axis = params["shape"], params["dimension"]
        lengths = [-1 if i == axis else 1 for i in range(len(shape))]
        numbers = np.arange(shape[axis]).reshape(lengths)
        return self.known(np.broadcast_to(numbers, shape), params["dtype"]).parts

    def _dynamic_slice(self, equation, x, *starts):
        sizes = equation.params["slice_sizes"]
        parts = x.parts
        for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            last = parts.shape[axis] - size
            moved = np.moveaxis(parts, axis, 0)
            choices = [moved[i : i + size] for i in range(last + 1)]
            parts = np.moveaxis(self._chosen(start.parts[()], choices), 0, axis)
        return parts

    def _dynamic_update_slice(self, equation, x, update, *starts):
        known = [start.constant for start in starts]
        if any(value is None for value in known):
            raise NotTakenApart("an update at a place that is not known")
        sizes = zip(known, x.parts.shape, update.parts.shape, strict=True)
        first = [min(max(int(i), 0), whole - part) for i, whole, part in sizes]
        parts = x.parts.copy()
        place = zip(first, update.parts.shape, strict=True)
        parts[tuple(slice(i, i + length) for i, length in place)] = update.parts
        return parts

    def _chosen(self, index: Number, choices: list[np.ndarray]) -> np.ndarray:
        """The choice at an index, which is brought within them."""
        if index.constant is not None:
            return choices[min(max(int(index.constant), 0), len(choices) - 1)]
        parts = choices[0].copy()
        for at, choice in enumerate(choices[1:], start=1):
            place = self.number("constant", (), at, index.dtype)
            reached = self.apply("ge", index, place, dtype=bool)
            for i in np.ndindex(parts.shape):
                parts[i] = self.apply("select_n", reached, parts[i], choice[i])
        return parts

    def _dot_general(self, equation, a, b):
        (contract_a, contract_b), (batch_a, batch_b) = equation.params["dimension_numbers"]
        dtype = equation.outvars[0].aval.dtype
        free_a = [i for i in range(a.parts.ndim) if i not in (*contract_a, *batch_a)]
        free_b = [i for i in range(b.parts.ndim) if i not in (*contract_b, *batch_b)]
        left = a.parts.transpose((*batch_a, *free_a, *contract_a))
        right = b.parts.transpose((*batch_b, *free_b, *contract_b))
        batch = left.shape[: len(batch_a)]
        rows = left.shape[len(batch_a) : len(batch_a) + len(free_a)]
        columns = right.shape[len(batch_b) : len(batch_b) + len(free_b)]
        parts = np.empty((*batch, *rows, *columns), object)
        indices = (list(np.ndindex(shape)) for shape in (batch, rows, columns))
        for g, i, j in product(*indices):
            pairs = zip(_flat(left[g + i]), _flat(right[g + j]), strict=True)
            terms = [self.apply("mul", x, y, dtype=dtype) for x, y in pairs]
            if not terms:
                raise NotTakenApart("a product of nothing")
            parts[g + i + j] = reduce(lambda x, y: self.apply("add", x, y, dtype=dtype), terms)
        return parts

    def _argmax(self, equation, x, name="gt"):
        (axis,), dtype = equation.params["axes"], equation.params["index_dtype"]
        moved = np.moveaxis(x.parts, axis, 0)
        place = np.empty(moved.shape[1:], object)
        for i in np.ndindex(place.shape):
            at = self.number("constant", (), 0, dtype)
            largest = moved[(0, *i)]
            for k in range(1, moved.shape[0]):
                item = moved[(k, *i)]
                more = self.apply(name, item, largest, dtype=bool)
                largest = self.apply("select_n", more, largest, item)
                at = self.apply("select_n", more, at, self.number("constant", (), k, dtype))
            place[i] = at
        return place

    def _argmin(self, equation, x):
        return self._argmax(equation, x, "lt")

    def _cumsum(self, equation, x):
        axis, backwards = equation.params["axis"], equation.params["reverse"]
        moved = np.moveaxis(x.parts, axis, 0)
        moved = (moved[::-1] if backwards else moved).copy()
        for k in range(1, moved.shape[0]):
            for i in np.ndindex(moved.shape[1:]):
                moved[(k, *i)] = self.apply("add", moved[(k - 1, *i)], moved[(k, *i)])
        return np.moveaxis(moved[::-1] if backwards else moved, 0, axis)

    def _gather(self, equation, x, indices):
        places = indices.constant
        if places is None:
            return self._looked_up(equation, x, indices)
        return _gathered(equation, x.parts, places, self._fill(equation))

    def _fill(self, equation) -> Number | None:
        """What a gather beyond an array gives, None where it stays within."""
        if "FILL" not in str(equation.params["mode"]).upper():
            return None
        dtype, value = equation.outvars[0].aval.dtype, equation.params["fill_value"]
        if value is None:
            value = np.nan if np.issubdtype(dtype, np.inexact) else np.iinfo(dtype).min
        return self.number("constant", (), np.asarray(value, dtype)[()], dtype)

    def _looked_up(self, equation, x, indices):
        """A gather of one item at an index that is not known, one of few."""
        if indices.parts.size != 1:
            raise NotTakenApart("a gather at places that are not known")
        (axis,) = equation.params["dimension_numbers"].start_index_map
        size = equation.params["slice_sizes"][axis]
        last = x.parts.shape[axis] - size
        index = indices.parts.flat[0]
        choices = [
            _gathered(equation, x.parts, np.full(indices.parts.shape, i), None)
            for i in range(last + 1)
        ]
        return self._chosen(index, choices)

    def _scatter(self, equation, x, indices, updates, combine=None):
        places = indices.constant
        if places is None:
            raise NotTakenApart("a scatter at places that are not known")
        parts = x.parts.copy()
        for place, at in _scattered(equation, parts.shape, places, updates.parts.shape):
            new = updates.parts[at]
            if combine is not None:
                new = self.apply(combine, parts[place], new)
            parts[place] = new
        return parts


def _combining(name: str) -> Callable:
    def scatter(self, equation, x, indices, updates):
        return self._scatter(equation, x, indices, updates, combine=name)

    return scatter


for _name, _combine in {"add": "add", "mul": "mul", "max": "max", "min": "min"}.items():
    setattr(Interpreter, f"_scatter_{_name}", _combining(_combine))
    setattr(Interpreter, f"_scatter-{_name}", _combining(_combine))


def _gathered(equation, parts, places, fill) -> np.ndarray:
    params = equation.params
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    shape = equation.outvars[0].aval.shape
    offset, collapsed = numbers.offset_dims, numbers.collapsed_slice_dims
    of_batch = numbers.operand_batching_dims
    kept = [i for i in range(parts.ndim) if i not in (*collapsed, *of_batch)]
    batch_axes = [i for i in range(len(shape)) if i not in offset]
    found = np.empty(shape, object)
    for i in np.ndindex(shape):
        batch = tuple(i[axis] for axis in batch_axes)
        at, within = [0] * parts.ndim, True
        for k, axis in enumerate(numbers.start_index_map):
            start, last = int(places[(*batch, k)]), parts.shape[axis] - sizes[axis]
            within &= 0 <= start <= last
            at[axis] = min(max(start, 0), last)
        for axis, of_indices in zip(of_batch, numbers.start_indices_batching_dims, strict=True):
            at[axis] += batch[of_indices]
        for axis, place in zip(kept, offset, strict=True):
            at[axis] += i[place]
        found[i] = parts[tuple(at)] if within or fill is None else fill
    return found


def _scattered(equation, shape, places, of_updates):
    """Pairs (place in the operand, place in the updates)."""
    numbers = equation.params["dimension_numbers"]
    window, inserted = numbers.update_window_dims, numbers.inserted_window_dims
    of_batch = numbers.operand_batching_dims
    kept = [i for i in range(len(shape)) if i not in (*inserted, *of_batch)]
    scatter_axes = [i for i in range(len(of_updates)) if i not in window]
    for i in np.ndindex(of_updates):
        batch = tuple(i[axis] for axis in scatter_axes)
        at = [0] * len(shape)
        for k, axis in enumerate(numbers.scatter_dims_to_operand_dims):
            at[axis] = int(places[(*batch, k)])
        for axis, of_indices in zip(of_batch, numbers.scatter_indices_batching_dims, strict=True):
            at[axis] += batch[of_indices]
        for axis, place in zip(kept, window, strict=True):
            at[axis] += i[place]
        if all(0 <= one < length for one, length in zip(at, shape, strict=True)):
            yield tuple(at), i


def _of_constants(name: str, values, details, dtype) -> Any:
    """What an operation makes of constants, None where that is left to the program."""
    if name == "select_n":
        return values[1 + int(values[0])]
    if name == "convert_element_type":
        return np.asarray(values[0]).astype(dtype)[()]
    with np.errstate(all="ignore"):
        if name == "integer_pow":
            return np.asarray(np.asarray(values[0], dtype) ** details["y"], dtype)[()]
        if name == "div" and np.issubdtype(dtype, np.inexact):
            return np.asarray(np.divide(*values), dtype)[()]
        function = ELEMENTWISE.get(name)
        return None if function is None else np.asarray(function(*values), dtype)[()]


def _is(value: Any, number: int) -> bool:
    return value is not None and value == number


def _hashable(details: Any) -> Any:
    if isinstance(details, dict):
        return tuple(sorted((k, str(v)) for k, v in details.items()))
    if isinstance(details, tuple):
        return tuple(id(x) if isinstance(x, Value | Turns) else x for x in details)
    return details


def _shape_and_dtype(equation: Any) -> tuple[tuple[int, ...], Any]:
    aval = equation.outvars[0].aval
    return aval.shape, aval.dtype


def _evaluated(equation: Any, arrays: list[Any]) -> list[Any]:
    """The results of an equation of arrays."""
    found = equation.primitive.bind(*arrays, **equation.params)
    return found if equation.primitive.multiple_results else [found]


def _once(function: Callable[[], list]) -> Callable[[], list]:
    found: list[Any] = []

    def get():
        if not found:
            found.append(function())
        return found[0]

    return get


def _item(whole: Callable[[], list], index: int) -> Callable[[], Any]:
    return lambda: whole()[index]


def _sliced(x: Value, index: int) -> Value:
    whole = None if x.whole is None else lambda: x.array[index]
    return Value(_parts_of(x.parts, index), whole)


def _parts_of(parts: np.ndarray, index: int) -> np.ndarray:
    """One item along the first axis, an array too where it is a single number."""
    found = np.empty(parts.shape[1:], object)
    found[...] = parts[index]
    return found


def _flat(x: Any) -> list[Number]:
    return list(x.flat) if isinstance(x, np.ndarray) else [x]
