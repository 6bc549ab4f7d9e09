"""The elimination as kernels for GPUs: one puts the matrix together and factors it, one solves with
the factor, one does both.

XLA gives each small product of each level a kernel of its own, which reads its blocks from memory
and writes them back. Here a thread takes one environment through all nodes, the block at hand in
registers. The loops over nodes and edges stay loops, and read their places from a table: a program
is as long for a hundred nodes as for two. A thread has nothing to do at the same time, so the
order of elimination needs no levels, and is the one that connects the fewest nodes.

From the left: when the turn is at node p, its block loses V_pk V_pkᵀ of its edges to the nodes k
before it, and the block of a later neighbour i loses V_ik V_pkᵀ. The results are those of `factor`
but for rounding. Derivatives go around the kernels (`linear`).
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..algebra.compiler import launch, part
from ..algebra.pytree import struct
from .graph import Plan

# Environments of a program: those of one warp, a thread for each.
ENVIRONMENTS = 32

# Components of a block by rows, and of a vector, of the environments of a program.
Matrix = list[list[Any]]
Vector = list[Any]


@struct
class Unassembled:
    """A = Σ_b H_bᵀ M_b⁻¹ H_b by the rows of all nodes, fields as in a `RowProblem`."""

    H: tuple[Array, ...]
    inverse_mass: Array
    inverse_inertia: Array


@struct
class WholeFactor:
    """The matrix as the kernel leaves it, all nodes in one array.

    inverse: L_k⁻¹ by the rows of its lower triangle, shape (r (r + 1) / 2, nodes, *batch)
    coupling: V_ik = A_ik L_k⁻ᵀ, shape (r, r, edges, *batch), one that nobody reads for no edges
    """

    inverse: Array
    coupling: Array


def factor(plan: Plan, A: Unassembled, extra: Array, root: Array | None) -> WholeFactor:
    """Block Cholesky factor of S A S + diag(extra), as `factor.factor_scaled`."""
    places = Places.of(plan)
    found = _launched(_factor, places, _matrix(A, extra, root), _factors(places, extra.shape[0]))
    return WholeFactor(**found)


def solve(plan: Plan, factor: WholeFactor, b: Array, regularization: Array | None = None) -> Array:
    """x with A x = b, both of shape (r, nodes, *batch).

    regularization: ε of shape (r, nodes, *batch), whose effect on x is taken away to second order:
        x + A⁻¹ ε x
    """
    inputs = {"inverse": (factor.inverse, 2), "coupling": (factor.coupling, 3), "b": (b, 2)}
    if regularization is not None:
        inputs["regularization"] = (regularization, 2)
    return _launched(_solve, Places.of(plan), inputs, _solutions(b))["x"]


def factor_and_solve(
    plan: Plan,
    A: Unassembled,
    extra: Array,
    root: Array | None,
    b: Array,
    regularization: Array | None,
    before: Array | None,
) -> tuple[Array, WholeFactor]:
    """S y with y = F b + F ε (before + S F b), F = (S A S + diag(extra))⁻¹ and ε the
    regularization, and the factor; all but A of shape (r, nodes, *batch), None for S = 1, for no
    correction, and for nothing before.
    """
    places = Places.of(plan)
    own = {"b": b, "regularization": regularization, "before": before}
    inputs = _matrix(A, extra, root) | {name: (x, 2) for name, x in own.items() if x is not None}
    outputs = _factors(places, b.shape[0]) | _solutions(b)
    found = _launched(_factor_and_solve, places, inputs, outputs)
    return found["x"], WholeFactor(found["inverse"], found["coupling"])


# Arrays by name, and how many axes they have before the batch; references to arrays, in a kernel.
Inputs = dict[str, tuple[Array, int]]
References = dict[str, Any]


def _matrix(A: Unassembled, extra: Array, root: Array | None) -> Inputs:
    """What a kernel reads that factors."""
    # Products of three sides with each other would be nine pieces of program.
    H = (_joined(A.H),) if len(A.H) > 2 else A.H
    inputs = {f"H{k}": (x, 3) for k, x in enumerate(H)}
    inputs |= {"mass": (A.inverse_mass, 1), "inertia": (A.inverse_inertia, 3), "extra": (extra, 2)}
    return inputs if root is None else inputs | {"root": (root, 2)}


def _factors(places: "Places", r: int) -> dict[str, tuple[int, ...]]:
    """Shapes of what it writes."""
    edges = max(places.edges, 1)
    return {"inverse": (r * (r + 1) // 2, places.nodes), "coupling": (r, r, edges)}


def _solutions(b: Array) -> dict[str, tuple[int, ...]]:
    """Shapes of what a kernel writes that solves: the sum of all turns, and each turn's own."""
    return {"x": b.shape[:2], "y": b.shape[:2]}


def _joined(sides: Sequence[Array]) -> Array:
    """All sides in one array."""
    batch = jnp.broadcast_shapes(*(x.shape[3:] for x in sides))
    return jnp.concatenate([jnp.broadcast_to(x, (*x.shape[:3], *batch)) for x in sides], axis=2)


def _launched(
    kernel: Callable[["Places", References], None],
    places: "Places",
    inputs: Inputs,
    outputs: dict[str, tuple[int, ...]],
) -> dict[str, Array]:
    """What a kernel makes of a batch, in whole programs: environments that are missing are zeros.

    outputs: shapes before the batch
    """
    batch = jnp.broadcast_shapes(*(x.shape[rank:] for x, rank in inputs.values()))
    count = math.prod(batch)
    missing = -count % ENVIRONMENTS
    dtype = jnp.result_type(*(x for x, _ in inputs.values()))
    names = ("table", *inputs, *outputs)

    def flat(x, rank):
        """With one batch axis: of whole programs, or 1 for what all environments share."""
        x = x.astype(dtype)
        if math.prod(x.shape[rank:]) == 1:
            return x.reshape(*x.shape[:rank], 1)
        x = jnp.broadcast_to(x, (*x.shape[:rank], *batch)).reshape(*x.shape[:rank], count)
        return jnp.pad(x, [(0, 0)] * rank + [(0, missing)]) if missing else x

    results = launch(
        lambda *references: kernel(places, dict(zip(names, references, strict=True))),
        kernel.__name__.strip("_"),
        (count + missing) // ENVIRONMENTS,
        [jax.ShapeDtypeStruct((*o, count + missing), dtype) for o in outputs.values()],
        [places.table, *(flat(x, rank) for x, rank in inputs.values())],
    )
    results = [x[..., :count].reshape(*x.shape[:-1], *batch) for x in results]
    return dict(zip(outputs, results, strict=True))


class Places:
    """Where the kernels find what they need, as one table of numbers.

    Nodes are positions in the plan's order, in which all arrays stand. The order of elimination
    and the edges, each from a node to a later one, are the kernels' own. With more than two sides
    all of them are one array.

    nodes, edges: how many there are
    arrays: number of arrays of H
    products: the pairs of arrays of H that edges have products of
    """

    def __init__(self, plan: Plan):
        bodies = [plan.nodes[node] for node in plan.order]
        order, pairs = _least_fill([{b for b in of_node if b >= 0} for of_node in bodies])
        place = {pair: e for e, pair in enumerate(pairs)}
        self.nodes, self.edges = len(order), len(pairs)
        self.arrays = 1 if len(plan.sides) > 2 else len(plan.sides)
        self._begins: dict[str, int] = {}
        self._parts: list[np.ndarray] = []
        self._put("order", order)
        self._put("later node", [i for i, _ in pairs])
        self._put("earlier node", [p for _, p in pairs])
        self._put_lists(
            "to earlier", [[place[e] for e in pairs if e[0] == p] for p in range(self.nodes)]
        )
        self._put_lists(
            "to later", [[place[e] for e in pairs if e[1] == p] for p in range(self.nodes)]
        )
        # Of each edge (i, p): the edges (i, k) and (p, k) to nodes k before both.
        common = [
            [(place[i, k], place[p, k]) for k in order if {(i, k), (p, k)} <= place.keys()]
            for i, p in pairs
        ]
        self._put_lists("of later", [[first for first, _ in both] for both in common])
        self._put("of earlier", [second for both in common for _, second in both])
        # Places of each node's sides in the arrays of H, and the bodies there.
        sides: list[list[tuple[int, int, int]]] = [[] for _ in bodies]
        for side, having in enumerate(plan.sides):
            begin = sum(map(len, plan.sides[:side])) if self.arrays == 1 else 0
            for k, node in enumerate(having):
                array = 0 if self.arrays == 1 else side
                sides[node].append((array, begin + k, bodies[node][side]))
        for a in range(self.arrays):
            # What acts on the world moves nothing.
            own = [[(k, b) for x, k, b in each if x == a and b >= 0] for each in sides]
            self._put_lists(f"sides {a}", [[k for k, _ in each] for each in own])
            self._put(f"bodies {a}", [b for each in own for _, b in each])
        self.products = []
        for a, b in product(range(self.arrays), repeat=2):
            shared = [
                [
                    (k, m, u)
                    for (x, k, u), (y, m, v) in product(sides[i], sides[p])
                    if (x, y) == (a, b) and u == v >= 0
                ]
                for i, p in pairs
            ]
            if not any(shared):
                continue
            self.products.append((a, b))
            self._put_lists(f"later side {a}{b}", [[k for k, _, _ in each] for each in shared])
            self._put(f"earlier side {a}{b}", [m for each in shared for _, m, _ in each])
            self._put(f"bodies {a}{b}", [body for each in shared for _, _, body in each])
        self.table = np.concatenate([*self._parts, [0]]).astype(np.int32)

    @staticmethod
    @lru_cache(maxsize=256)
    def of(plan: Plan) -> "Places":
        """The places of a plan."""
        return Places(plan)

    def _put(self, name: str, items: Sequence) -> None:
        self._begins[name] = sum(map(len, self._parts))
        self._parts.append(np.asarray(items, int))

    def _put_lists(self, name: str, lists: Sequence[Sequence]) -> None:
        self._put(f"ends of {name}", np.cumsum([0, *map(len, lists)]))
        self._put(name, [item for items in lists for item in items])

    def at(self, table: Any, name: str, i: Any) -> Any:
        """Item i of a list, in a kernel that reads `table`."""
        return table[self._begins[name] + i]

    def over(self, table: Any, name: str, i: Any, turn: Callable, carry: Any) -> Any:
        """`carry = turn(item, its place in the list of all items, carry)` for the items of i."""

        def body(k, carry):
            return turn(self.at(table, name, k), k, carry)

        ends = f"ends of {name}"
        return lax.fori_loop(self.at(table, ends, i), self.at(table, ends, i + 1), body, carry)


def _least_fill(bodies: list[set[int]]) -> tuple[list[int], list[tuple[int, int]]]:
    """Order of elimination by least degree, and the edges (later node, earlier node) with the fill.

    bodies: that move, of each node; two nodes are neighbours if they share one
    """
    near = {
        i: {k for k, others in enumerate(bodies) if k != i and others & own}
        for i, own in enumerate(bodies)
    }
    order: list[int] = []
    edges: list[tuple[int, int]] = []
    while near:
        node = min(near, key=lambda i: (len(near[i]), i))
        neighbours = near.pop(node)
        for i in neighbours:
            near[i] = (near[i] | neighbours) - {i, node}
        order.append(node)
        edges += [(i, node) for i in sorted(neighbours)]
    return order, edges


def _factor(places: Places, refs: References) -> None:
    """The kernel of `factor`."""
    table, inverse, coupling = (refs[name] for name in ("table", "inverse", "coupling"))
    H, mass, inertia = [refs[f"H{k}"] for k in range(places.arrays)], refs["mass"], refs["inertia"]
    extra, root = refs["extra"], refs.get("root")
    r = extra.shape[0]
    load, store, tall = _loading(), _storing(), range(r)
    zero = jnp.zeros(ENVIRONMENTS, extra.dtype)

    def with_shared(A, later, earlier, body):
        """A + H₁ᵀ M⁻¹ H₂ by columns of two sides on a body."""
        m = load(mass, body)
        turning = [earlier(3 + j) for j in range(3)]

        def twist(k):
            tensor = [load(inertia, k, j, body) for j in range(3)]
            return [_dot(tensor, [t[i] for t in turning]) for i in tall]

        A = _with_products(A, 3, later, lambda k: [m * x for x in earlier(k)])
        return _with_products(A, 3, lambda k: later(3 + k), twist)

    def of_node(k, carry):
        p = places.at(table, "order", k)
        A = [[zero] * (i + 1) for i in tall]
        for a in range(places.arrays):

            def own(place, at, A, a=a):
                h = _columns(load, H[a], r, place)
                return with_shared(A, h, h, places.at(table, f"bodies {a}", at))

            A = places.over(table, f"sides {a}", p, own, A)
        s = None if root is None else [load(root, i, p) for i in tall]
        if s is not None:
            A = [[A[i][j] * (s[i] * s[j]) for j in range(i + 1)] for i in tall]
        for i in tall:
            A[i][i] = A[i][i] + load(extra, i, p)
        size = [A[i][i] for i in tall]

        def less_earlier(e, _, A):
            V = _rows(load, coupling, r, e)
            return _with_products(A, r, V, V, minus=True)

        X = _cholesky_inverse(places.over(table, "to earlier", p, less_earlier, A), size)
        for i in tall:
            for j in range(i + 1):
                store(inverse, X[i][j], _packed(i, j), p)

        def of_edge(e, _, carry):
            A = [[zero] * r for _ in tall]
            for a, b in places.products:

                def shared(place, at, A, a=a, b=b):
                    other = places.at(table, f"earlier side {a}{b}", at)
                    body = places.at(table, f"bodies {a}{b}", at)
                    h, g = _columns(load, H[a], r, place), _columns(load, H[b], r, other)
                    return with_shared(A, h, g, body)

                A = places.over(table, f"later side {a}{b}", e, shared, A)
            if s is not None:
                later = places.at(table, "later node", e)
                A = [[A[i][j] * (load(root, i, later) * s[j]) for j in tall] for i in tall]

            def less_common(first, at, A):
                second = places.at(table, "of earlier", at)
                V, W = _rows(load, coupling, r, first), _rows(load, coupling, r, second)
                return _with_products(A, r, V, W, minus=True)

            A = places.over(table, "of later", e, less_common, A)
            for i in tall:
                for j in tall:
                    store(coupling, _dot(A[i][: j + 1], X[j]), i, j, e)
            return carry

        return places.over(table, "to later", p, of_edge, carry)

    lax.fori_loop(0, places.nodes, of_node, 0)


def _solve(places: Places, refs: References) -> None:
    """The kernel of `solve`."""
    table, inverse, coupling = (refs[name] for name in ("table", "inverse", "coupling"))
    b, x, y = (refs[name] for name in "bxy")
    ε, before, root = (refs.get(name) for name in ("regularization", "before", "root"))
    r = b.shape[0]
    load, store, tall = _loading(), _storing(), range(r)

    def vector(ref, place):
        return [load(ref, i, place) for i in tall]

    def less(half, block, other):
        """half - block y of another node, `block(k)` its column k."""

        def turn(k, half):
            factor = load(y, k, other)
            return [u - v * factor for u, v in zip(half, block(k), strict=True)]

        return lax.fori_loop(0, r, turn, half)

    def begin(p, carry):
        for i in tall:
            store(x, jnp.zeros((), x.dtype), i, p)
        return carry

    def turn(again, carry):
        def forward(k, carry):
            p = places.at(table, "order", k)
            half = vector(b, p)
            if ε is not None:
                total = vector(x, p)
                if before is not None:
                    total = [u + v for u, v in zip(total, vector(before, p), strict=True)]
                held = [u * v for u, v in zip(vector(ε, p), total, strict=True)]
                half = [jnp.where(again > 0, v, u) for u, v in zip(half, held, strict=True)]

            def less_earlier(e, _, half):
                earlier = places.at(table, "earlier node", e)
                return less(half, _rows(load, coupling, r, e), earlier)

            half = places.over(table, "to earlier", p, less_earlier, half)
            for i in tall:
                row = [load(inverse, _packed(i, j), p) for j in range(i + 1)]
                store(y, _dot(row, half[: i + 1]), i, p)
            return carry

        def backward(k, carry):
            p = places.at(table, "order", places.nodes - 1 - k)

            def less_later(e, _, half):
                later = places.at(table, "later node", e)
                return less(half, _columns(load, coupling, r, e), later)

            half = places.over(table, "to later", p, less_later, vector(y, p))
            for j in tall:
                column = [load(inverse, _packed(i, j), p) for i in range(j, r)]
                found = _dot(column, half[j:])
                store(y, found, j, p)
                if root is not None:
                    found = load(root, j, p) * found
                store(x, load(x, j, p) + found, j, p)
            return carry

        carry = lax.fori_loop(0, places.nodes, forward, carry)
        return lax.fori_loop(0, places.nodes, backward, carry)

    lax.fori_loop(0, places.nodes, begin, 0)
    lax.fori_loop(0, 1 if ε is None else 2, turn, 0)


def _factor_and_solve(places: Places, refs: References) -> None:
    """The kernel of `factor_and_solve`; each thread reads what it has written itself."""
    _factor(places, refs)
    _solve(places, refs)


def _rows(load: Callable, ref: Any, r: int, place: Any) -> Callable:
    """Column k of a block, item i of row i, as a function of k."""
    return lambda k: [load(ref, i, k, place) for i in range(r)]


def _columns(load: Callable, ref: Any, r: int, place: Any) -> Callable:
    """Row k of a block, item i of column i, as a function of k."""
    return lambda k: [load(ref, k, i, place) for i in range(r)]


def _with_products(
    A: Matrix, count: int, a: Callable, b: Callable, *, minus: bool = False
) -> Matrix:
    """A + Σ_k a(k) b(k)ᵀ over `count` vectors each, or with - in place of +."""

    def turn(k, A):
        u, v = a(k), b(k)
        u = [-x for x in u] if minus else u
        return [[A[i][j] + u[i] * v[j] for j in range(len(A[i]))] for i in range(len(A))]

    # A loop, although it turns six times at most: a program of one product, not of six.
    return lax.fori_loop(0, count, turn, A)


def _packed(i: int, j: int) -> int:
    """Place of row i, column j of a lower triangle by rows."""
    return i * (i + 1) // 2 + j


def _loading() -> Callable:
    """Reads a component of the program's environments."""
    own = part(ENVIRONMENTS)

    def load(ref, *place):
        # What all environments share has one item at the end.
        x = ref[(*place, 0 if ref.shape[-1] == 1 else own)]
        return jnp.broadcast_to(x, (ENVIRONMENTS,))

    return load


def _storing() -> Callable:
    """Writes a component of the program's environments."""
    own = part(ENVIRONMENTS)

    def store(ref, value, *place):
        ref[(*place, own)] = jnp.broadcast_to(value, (ENVIRONMENTS,))

    return store


def _less(x: Any, a: Vector, b: Vector) -> Any:
    """x - a·b."""
    for u, v in zip(a, b, strict=True):
        x = x - u * v
    return x


def _dot(a: Vector, b: Vector) -> Any:
    """a·b."""
    total = a[0] * b[0]
    for u, v in zip(a[1:], b[1:], strict=True):
        total = total + u * v
    return total


def _cholesky_inverse(A: Matrix, size: Vector) -> Matrix:
    """L⁻¹ of A = L Lᵀ by its lower triangle, number by number; see `dense.cholesky_inverse`."""
    r = len(A)
    L: Matrix = [[] for _ in range(r)]
    reciprocals: Vector = []
    for j in range(r):
        pivot = _less(A[j][j], L[j], L[j])
        least = jnp.finfo(pivot.dtype).eps * jnp.abs(size[j])
        reciprocal = lax.rsqrt(jnp.maximum(pivot, least))
        reciprocals.append(jnp.where(pivot <= least, jnp.zeros_like(pivot), reciprocal))
        for i in range(j + 1, r):
            L[i].append(_less(A[i][j], L[i], L[j]) * reciprocals[j])
    X: Matrix = []
    for i in range(r):
        row = [-_dot(L[i][j:], [X[k][j] for k in range(j, i)]) * reciprocals[i] for j in range(i)]
        X.append([*row, reciprocals[i]])
    return X
