"""Laws of the sparse direct solver and of its elimination order, against dense float64."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxjoints.algebra.pytree import replace
from jaxjoints.solve.bodies import blocks
from jaxjoints.solve.factor import Blocks, add_diagonal, factor, scale, solve
from jaxjoints.solve.graph import elimination_plan, is_tree
from jaxjoints.solve.paths import paths
from support.cases import mostly_slow
from support.graphs import (
    GRAPHS,
    chain,
    dense,
    dense_solve,
    hub,
    problem,
    ring,
    shuffled,
    tree,
    with_diagonal,
)

DTYPES = [jnp.float32, jnp.float64]


graphs = pytest.mark.parametrize("graph", mostly_slow(GRAPHS, default=("chain", "ring")))


@partial(jax.jit, static_argnums=0)
def direct(way, bodies, s, d, b):
    plan, rows, (s, d) = way.plan, len(b), (way.of_blocks(x, 1.0) for x in (s, d))
    A = scale(plan, blocks(bodies, None), s)
    return way.of_nodes(solve(plan, factor(plan, add_diagonal(plan, A, d)), way.of_blocks(b)), rows)


def check(nodes, r, batch, dtype, tolerance):
    bodies, A = problem(nodes, r, batch)
    rng = np.random.default_rng(1)
    shape = (r, len(nodes), *batch)
    s, d, b = rng.uniform(0.5, 2.0, shape), rng.uniform(0.5, 2.0, shape), rng.normal(size=shape)
    x = direct(bodies.way, *jax.tree.map(lambda v: jnp.asarray(v, dtype), (bodies, s, d, b)))
    assert x.dtype == dtype
    expected = dense_solve(with_diagonal(s[:, :, None, None] * A * s, d), b)
    np.testing.assert_allclose(x, expected, rtol=0, atol=tolerance * np.max(np.abs(expected)))


@graphs
def test_solves_what_the_dense_matrix_solves(graph):
    check(GRAPHS[graph], 2, (2,), jnp.float64, 1e-11)


@pytest.mark.parametrize("r", mostly_slow(range(1, 7), default=("1", "6")))
def test_solves_for_every_number_of_rows(r):
    check(chain(3), r, (2,), jnp.float64, 1e-11)


@pytest.mark.parametrize(
    ("dtype", "batch"),
    [
        pytest.param(jnp.float32, (), id="float32-batch0"),
        pytest.param(jnp.float32, (3,), id="float32-batch1", marks=pytest.mark.slow),
        pytest.param(jnp.float32, (2, 3), id="float32-batch2", marks=pytest.mark.slow),
        pytest.param(jnp.float64, (), id="float64-batch0", marks=pytest.mark.slow),
        pytest.param(jnp.float64, (3,), id="float64-batch1", marks=pytest.mark.slow),
        pytest.param(jnp.float64, (2, 3), id="float64-batch2"),
    ],
)
def test_solves_for_every_batch_shape_and_precision(batch, dtype):
    check(GRAPHS["ring"], 2, batch, dtype, {jnp.float32: 1e-4, jnp.float64: 1e-11}[dtype])


def test_random_graphs():
    rng = np.random.default_rng(5)
    for seed in range(2):
        pairs = [
            tuple(int(b) for b in rng.choice(np.arange(-1, 6), 2, replace=False)) for _ in range(7)
        ]
        check(tuple(pairs), 1 + seed, (), jnp.float64, 1e-11)


def test_shared_rows_broadcast_against_a_batch():
    bodies, A = problem(GRAPHS["chain"], 2, (1,))
    way, bodies = bodies.way, jax.tree.map(jnp.asarray, bodies)
    shape = (2, 10, 4)
    rng = np.random.default_rng(2)
    d, b = rng.uniform(0.5, 2.0, shape), rng.normal(size=shape)
    ones = jnp.ones((2, 10, 1))
    x = direct(way, bodies, ones, jnp.asarray(d), jnp.asarray(b))
    np.testing.assert_allclose(x, dense_solve(with_diagonal(A, d), b), atol=1e-11)
    x = direct(way, bodies, ones, ones, jnp.asarray(b))
    one = with_diagonal(A, np.ones((2, 10, 1))) * np.ones(4)
    np.testing.assert_allclose(x, dense_solve(one, b), atol=1e-11)


@graphs
def test_rows_that_nodes_do_not_have_are_left_out(graph):
    """Nodes of one to four rows, the small ones together in blocks."""
    nodes, r, batch = GRAPHS[graph], 4, (2,)
    rng = np.random.default_rng(len(graph))
    heights = tuple(int(h) for h in rng.integers(1, r + 1, len(nodes)))
    bodies, _ = problem(nodes, r, batch)
    full, short = bodies.way, paths(bodies.way.tree, nodes, heights)
    there = np.arange(r)[:, None] < np.array(heights)[list(full.order)]
    # From the nodes of one order to those of the other.
    back = np.argsort(full.order)[list(short.order)]
    H, sides = {}, zip(bodies.H, full.sides, strict=True)
    for side, (x, (having, _)) in enumerate(sides):
        x = x * there[:, having][None, ..., None]
        H |= {(side, node): x[:, :, i] for i, node in enumerate(having)}
    b = rng.normal(size=(r, len(nodes), *batch))
    found = []
    for way, order in ((full, np.arange(len(nodes))), (short, back)):
        own = [[H[side, order[n]] for n in having] for side, (having, _) in enumerate(way.sides)]
        on = replace(bodies, H=tuple(np.stack(x, axis=2) for x in own), way=way)
        d = np.where(there[:, order, None], 0.3, 1.0) * np.ones((r, len(nodes), *batch))
        args = jax.tree.map(jnp.asarray, (on, np.ones_like(d), d, b[:, order]))
        found.append(np.asarray(direct(way, *args))[:, np.argsort(order)])
    np.testing.assert_allclose(found[1][there], found[0][there], rtol=1e-10, atol=1e-11)
    np.testing.assert_array_equal(found[1][~there], 0.0)


@pytest.fixture(scope="module")
def system():
    """A plan, an assembled batch of two, and a function that solves it."""
    bodies, A = problem(GRAPHS["ring"], 2, (2,))
    plan = bodies.way.plan
    matrix = blocks(jax.tree.map(jnp.asarray, bodies), None)
    return (
        plan,
        add_diagonal(plan, matrix, jnp.ones((2, 6, 2))),
        with_diagonal(A, np.ones((2, 6, 2))),
    )


def test_vmap_equals_trailing_batch(system):
    plan, matrix, _ = system
    b = jnp.asarray(np.random.default_rng(3).normal(size=(2, 6, 2)))

    def run(matrix, b):
        return solve(plan, factor(plan, matrix), b)

    together = jax.jit(run)(matrix, b)
    mapped = jax.jit(jax.vmap(run, -1, -1))(matrix, b)
    np.testing.assert_allclose(mapped, together, rtol=1e-12, atol=1e-12)


def test_solve_is_linear_and_symmetric_in_the_right_side(system):
    plan, matrix, A = system
    factors = jax.jit(partial(factor, plan))(matrix)
    run = jax.jit(partial(solve, plan))
    rng = np.random.default_rng(4)
    b, c = (jnp.asarray(rng.normal(size=(2, 6, 2))) for _ in range(2))
    np.testing.assert_allclose(
        run(factors, 2 * b - c), 2 * run(factors, b) - run(factors, c), atol=1e-12
    )
    transpose = jax.linear_transpose(partial(run, factors), b)
    np.testing.assert_allclose(transpose(b)[0], run(factors, b), atol=1e-12)


def test_derivative_through_custom_linear_solve_is_that_of_the_solution(system):
    plan, matrix, _ = system
    b = jnp.asarray(np.random.default_rng(6).normal(size=(2, 6, 2)))

    def times(matrix, x):
        column, row = np.asarray(plan.column), np.asarray(plan.row)
        y = jnp.einsum("ij...,j...->i...", matrix.diagonal, x)
        y = y.at[:, row].add(jnp.einsum("ije...,je...->ie...", matrix.edges, x[:, column]))
        return y.at[:, column].add(jnp.einsum("jie...,je...->ie...", matrix.edges, x[:, row]))

    def solution(diagonal, edges, b):
        lower = jnp.asarray(np.tril(np.ones((2, 2))))[:, :, None, None]
        diagonal = diagonal * lower
        diagonal = (diagonal + jnp.swapaxes(diagonal, 0, 1)) / 2
        matrix = Blocks(diagonal=diagonal, edges=edges)
        factors = factor(plan, jax.lax.stop_gradient(matrix))
        return jax.lax.custom_linear_solve(
            partial(times, matrix), b, lambda _, b: solve(plan, factors, b), symmetric=True
        )

    point = matrix.diagonal + jnp.eye(2)[:, :, None, None], 0.3 * matrix.edges, b
    check_grads(jax.jit(solution), point, order=1, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_redundant_rows_do_no_harm(dtype):
    # Two joints with the same rows: A is singular, but A x = b has solutions for such b.
    bodies, _ = problem(((0, -1), (0, -1), (1, 0)), 3)
    way = bodies.way
    first, second = (way.order.index(i) for i in (0, 1))
    child = np.array(bodies.H[0])
    child[:, :, second] = child[:, :, first]
    bodies = replace(bodies, H=(child, *bodies.H[1:]))
    bodies = jax.tree.map(lambda x: jnp.asarray(x, dtype), bodies)
    ones, zeros = jnp.ones((3, 3), dtype), jnp.zeros((3, 3), dtype)
    x = direct(way, bodies, ones, zeros, ones)
    A = dense(way, blocks(bodies, None), 3)
    tolerance = 1e4 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(np.einsum("risj,sj->ri", A, x), 1.0, atol=tolerance)


@pytest.mark.parametrize("joints, levels", [(1, 1), (2, 2), (10, 4), (50, 6), (100, 7), (500, 9)])
def test_levels_of_a_chain_are_logarithmic(joints, levels):
    assert len(elimination_plan(chain(joints)).levels) == levels
    assert len(elimination_plan(shuffled(chain(joints))).levels) <= levels + 1


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_plan_eliminates_every_node_once_and_stores_all_fill(graph):
    nodes = GRAPHS[graph]
    plan = elimination_plan(nodes)
    assert sorted(plan.order) == list(range(len(nodes)))
    bounds = [level.start for level in plan.levels] + [plan.levels[-1].stop]
    assert bounds == sorted(bounds) and bounds[0] == 0 and bounds[-1] == len(nodes)
    assert [level.stop for level in plan.levels] == bounds[1:]

    # Elimination node by node, in that order, finds the same edges.
    ordered = [set(nodes[i]) - {-1} for i in plan.order]
    filled = {
        (i, k)
        for k in range(len(nodes))
        for i in range(k + 1, len(nodes))
        if ordered[i] & ordered[k]
    }
    for k in range(len(nodes)):
        later = [i for i in range(k + 1, len(nodes)) if (i, k) in filled]
        filled |= {(i, j) for i in later for j in later if i > j}
    edges = list(zip(plan.row.tolist(), plan.column.tolist(), strict=True))
    assert len(edges) == len(set(edges)) and set(edges) == filled

    for level in plan.levels:
        inside = range(level.start, level.stop)
        assert not any(i in inside and k in inside for i, k in edges), "a level is independent"
        assert edges[level.first : level.last] == [
            (int(i), level.start + int(p))
            for i, p in zip(level.neighbour, level.pivot, strict=True)
        ]


def test_a_hub_costs_as_many_levels_as_joints():
    assert len(elimination_plan(hub(20)).levels) == 20


@pytest.mark.parametrize(
    "nodes, expected",
    [
        (chain(10), True),
        (shuffled(tree(9)), True),
        (hub(5), True),
        (((0, -1), (1, 0), (2, -1)), True),
        (ring(6), False),
        (((0, -1), (1, 0), (1, -1)), False),
        (((0, 1), (1, 0)), False),
        (((-1, -1),), False),
        ((*chain(4), (0, 2, 3)), False),
    ],
)
def test_a_tree_is_told_from_loops(nodes, expected):
    assert is_tree(nodes) is expected


def test_plans_are_cached_and_equal_by_their_nodes():
    nodes = shuffled(tree(9))
    plan = elimination_plan(nodes)
    assert elimination_plan(tuple(nodes)) is plan
    elimination_plan.cache_clear()
    again = elimination_plan(nodes)
    assert again is not plan and again == plan and hash(again) == hash(plan)
    assert elimination_plan(chain(9)) != plan and plan != nodes
