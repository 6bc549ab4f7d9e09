"""Joint graphs, and random rows on them with the dense matrix that they make."""

from functools import lru_cache

import jax.numpy as jnp
import numpy as np

from jaxjoints.solve.bodies import Bodies, bodies_of_rows
from jaxjoints.solve.paths import paths
from jaxjoints.solve.tree import TreePlan


def chain(n, first=0):
    return tuple((first + i, first + i - 1 if i else -1) for i in range(n))


def tree(n, seed=0):
    rng = np.random.default_rng(seed)
    return tuple((i, int(rng.integers(-1, i)) if i else -1) for i in range(n))


def ring(n):
    return tuple((i, (i + 1) % n) for i in range(n))


def hub(n):
    """A body with n joints, one of them to the world."""
    return ((0, -1), *((i, 0) for i in range(1, n)))


def grid(rows, columns):
    """Bodies on a grid, joined to their neighbours."""
    across = [
        (columns * i + j, columns * i + j + 1) for i in range(rows) for j in range(columns - 1)
    ]
    down = [
        (columns * i + j, columns * i + columns + j)
        for i in range(rows - 1)
        for j in range(columns)
    ]
    return (*across, *down)


def shuffled(nodes, seed=0):
    return tuple(nodes[i] for i in np.random.default_rng(seed).permutation(len(nodes)))


GRAPHS = {
    "single": ((0, -1),),
    "immovable": ((-1, -1), (-1, 0), (1, -1)),
    "chain": chain(10),
    "tree": shuffled(tree(9)),
    "ring": shuffled(ring(6)),
    "two on two bodies": ((0, 1), (1, 0)),
    "parallel": ((0, -1), (0, -1), (1, 0), (0, 1), (1, 0), (2, 1)),
    "hub": hub(5),
    "ladder": shuffled(grid(2, 3)),
    "several bodies": shuffled((*chain(6), (0, 2, 4), (1, 3, 2, 5), (-1, 4), (0, -1, 5))),
    "disconnected": shuffled((*chain(4), *chain(3, first=4), *((7, 8), (8, 9), (9, 7)))),
}


def free_bodies(count, nodes, rows):
    """How nodes of so many rows each pass bodies that no joint of a tree holds."""
    return paths(TreePlan.of((True,) * count, ()), nodes, (rows,) * len(nodes))


def of_sides(way, H):
    """Wrenches of the nodes of `Paths.sides`, from those of all nodes on child and parent."""
    pairs = zip(H, way.sides, strict=False)
    return tuple(jnp.asarray(h)[:, :, np.array(nodes)] for h, (nodes, _) in pairs)


def with_wrenches(problem, H):
    """The bodies of a problem with other wrenches of its rows."""
    return bodies_of_rows(**vars(problem.bodies) | {"H": tuple(H)})


def dense(way, blocks, rows):
    """The matrix with axes (row, node) twice, of nodes of so many rows each."""
    where = {place: (i, n) for n, each in enumerate(way.blocks) for i, place in enumerate(each)}
    batch = blocks.diagonal.shape[3:]
    A = np.zeros((rows, way.graph, rows, way.graph, *batch))
    for (row, node), (i, n) in where.items():
        for (other_row, other), (j, m) in where.items():
            if n == m:
                A[row, node, other_row, other] = blocks.diagonal[i, j, n]
            elif (n, m) in way.edges:
                A[row, node, other_row, other] = blocks.edges[i, j, way.edges[n, m]]
            elif (m, n) in way.edges:
                A[row, node, other_row, other] = blocks.edges[j, i, way.edges[m, n]]
    return A


@lru_cache(maxsize=64)
def problem(nodes, r, batch=(), seed=0):
    """The bodies that rows act on, arrays in numpy, and the dense A with axes (row, node) twice."""
    rng = np.random.default_rng([seed, r, len(nodes)])
    count = 1 + max(max(sides) for sides in nodes)
    way = free_bodies(count, nodes, r)
    X = rng.normal(size=(3, 3, count + 1, *batch))
    unit = np.eye(3).reshape(3, 3, 1, *(1,) * len(batch))
    inertia = (np.einsum("ij...,kj...->ik...", X, X) + unit) / 3
    mass = rng.uniform(0.3, 3.0, (count + 1, *batch))
    mass[-1], inertia[:, :, -1] = 0.0, 0.0
    inverse_mass = np.zeros((6, 6, *mass.shape))
    inverse_mass[:3, :3], inverse_mass[3:, 3:] = unit * mass, inertia
    # Every node's rows as wrenches on every body.
    on_body = np.zeros((6, count + 1, r, len(nodes), *batch))
    wrenches = []
    for having, body in way.sides:
        wrenches.append(rng.normal(size=(6, r, len(having), *batch)))
        for i, node in enumerate(having):
            on_body[:, body[i], :, node] += wrenches[-1][:, :, i]
    A = np.einsum("abri...,acb...,cbsj...->risj...", on_body, inverse_mass, on_body, optimize=True)
    return Bodies(tuple(wrenches), mass, inertia, way=way), A


def dense_solve(A, b):
    """x with A x = b for A (r, n, r, n, *batch), b (r, n, *batch)."""
    (
        r,
        n,
        *_,
    ) = A.shape
    matrix = np.moveaxis(A.reshape(r * n, r * n, *A.shape[4:]), (0, 1), (-2, -1))
    right = np.moveaxis(b.reshape(r * n, *b.shape[2:]), 0, -1)
    x = np.linalg.solve(matrix, right[..., None])[..., 0]
    return np.moveaxis(x, -1, 0).reshape(b.shape)


def with_diagonal(A, d):
    r, n = A.shape[:2]
    unit = np.eye(r * n).reshape(r, n, r, n, *(1,) * (A.ndim - 4))
    return A + unit * d[:, :, None, None]
