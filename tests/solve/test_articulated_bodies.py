"""Laws of articulated bodies, against dense float64: random forests with all kinds of joints."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxjoints.algebra.dense import multiply
from jaxjoints.algebra.pytree import replace
from jaxjoints.solve import tree as solver
from jaxjoints.solve.bodies import Bodies, blocks
from jaxjoints.solve.paths import paths
from jaxjoints.solve.tree import Laws, OnTree, response
from support.cases import mostly_slow
from support.forests import BATCH, FORESTS, forests, random_tree
from support.graphs import dense as dense_rows

ROUNDING = 1e-11

eliminated, moved, mobilities = map(jax.jit, (solver.eliminated, solver.moved, solver.mobilities))


def dense(tree, environment):
    """J of the bodies `plan.order`, (6 bodies, unknowns), M and K; unknowns as in `flat`."""
    plan = tree.plan
    rows = {body: i for i, body in enumerate(plan.order)}
    roots, (k, n) = len(plan.roots), tree.stiffness.shape[:2]
    J = np.zeros((len(plan.order) + 1, 6, 6 * roots + k * n))
    M = np.zeros((len(plan.order), 6, 6))
    for i in range(len(plan.order)):
        M[i, :3, :3] = tree.mass[i, environment] * np.eye(3)
        M[i, 3:, 3:] = tree.inertia[:, :, i, environment]
    for i in range(roots):
        J[i, :, 6 * i : 6 * i + 6] = np.eye(6)
    for i, base in enumerate(sum(plan.bases, ())):
        x, y, z = np.asarray(tree.arm[:, i, environment])
        X = np.eye(6)
        X[:3, 3:] = -np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        J[roots + i] = X @ J[rows.get(base, -1)]
        for c in range(k):
            J[roots + i, :, 6 * roots + c * n + i] += np.asarray(tree.S[:, c, i, environment])
    K = np.zeros(6 * roots + k * n)
    K[6 * roots :] = np.asarray(tree.stiffness[..., environment]).ravel()
    return J[:-1], M, K


def flat(values, environment):
    """Numbers of a tree as one vector."""
    coordinates = np.asarray(values.coordinates[..., environment]).ravel()
    return np.concatenate([np.asarray(values.roots[..., environment]).T.ravel(), coordinates])


def pushes(tree, seed=0):
    """Random impulses on the bodies and along the coordinates."""
    rng = np.random.default_rng(seed)
    bodies = rng.normal(size=(6, len(tree.plan.order), BATCH))
    return jnp.asarray(bodies), jnp.asarray(rng.normal(size=tree.stiffness.shape))


def all_pushes(tree, bodies, along, J, environment):
    """Jᵀ p + e, of unknowns as in `flat`."""
    none = np.zeros((6, len(tree.plan.roots), BATCH))
    p = np.asarray(bodies[..., environment]).T
    return np.einsum("bik,bi->k", J, p) + flat(OnTree(none, along), environment)


def matrix(tree, environment):
    """Jᵀ M J + K, J, and which unknowns exist."""
    J, M, K = dense(tree, environment)
    A = np.einsum("bik,bij,bjl->kl", J, M, J) + np.diag(K)
    return A, J, np.abs(J).sum((0, 1)) > 0


some_forests = pytest.mark.parametrize("name", mostly_slow(FORESTS, default=("free star",)))


@forests
def test_moves_as_the_dense_matrix_says(name):
    tree = random_tree(name)
    bodies, along = pushes(tree)
    found, twists, _ = moved(tree, eliminated(tree), bodies, along)
    for environment in range(BATCH):
        A, J, exists = matrix(tree, environment)
        right = all_pushes(tree, bodies, along, J, environment)[exists]
        expected = np.linalg.solve(A[np.ix_(exists, exists)], right)
        np.testing.assert_allclose(flat(found, environment)[exists], expected, atol=ROUNDING)
        all_twists = np.asarray(twists[..., environment]).T
        v = J[:, :, exists] @ expected
        np.testing.assert_allclose(all_twists, v, atol=ROUNDING)


def random_laws(tree, seed=3):
    """β λ + γ ν = r, one of three held, one of three free, and r."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, tree.stiffness.shape)
    β, γ = rng.uniform(0.2, 1.0, (2, *kind.shape))
    laws = Laws(jnp.asarray(np.where(kind == 0, 0, β)), jnp.asarray(np.where(kind == 1, 0, γ)))
    return laws, jnp.asarray(rng.normal(size=kind.shape))


@forests
def test_laws_along_coordinates_from_free_to_held(name):
    tree = random_tree(name)
    bodies, _ = pushes(tree)
    laws, wanted = random_laws(tree)
    found, _, impulses = moved(tree, eliminated(tree, laws), bodies, wanted)
    for environment in range(BATCH):
        A, J, exists = matrix(tree, environment)
        none = jnp.zeros_like(found.roots)
        β, γ, r, λ = (flat(OnTree(none, x), environment) for x in (*laws, wanted, impulses))
        right = all_pushes(tree, bodies, 0 * wanted, J, environment)
        lawful = exists & (np.arange(len(exists)) >= 6 * len(tree.plan.roots))
        # A ν - λ = right, γ ν + β λ = r.
        n, free = exists.sum(), np.flatnonzero(lawful[exists])
        choose = np.eye(n)[:, free]
        top = np.concatenate([A[np.ix_(exists, exists)], -choose], axis=1)
        low = np.concatenate([γ[lawful, None] * choose.T, np.diag(β[lawful])], axis=1)
        solution = np.linalg.solve(np.concatenate([top, low]), [*right[exists], *r[lawful]])
        np.testing.assert_allclose(flat(found, environment)[exists], solution[:n], atol=ROUNDING)
        np.testing.assert_allclose(λ[lawful], solution[n:], atol=ROUNDING)


@forests
def test_mobilities_are_the_diagonal_of_the_inverse(name):
    tree = random_tree(name)
    found, of_bodies = mobilities(tree, eliminated(tree))
    none = jnp.zeros((6, len(tree.plan.roots), BATCH))
    for environment in range(BATCH):
        A, J, exists = matrix(tree, environment)
        lawful = exists & (np.arange(len(exists)) >= 6 * len(tree.plan.roots))
        inverse = np.linalg.inv(A[np.ix_(exists, exists)])
        expected = np.diag(inverse)[lawful[exists]]
        np.testing.assert_allclose(
            flat(OnTree(none, found), environment)[lawful], expected, rtol=ROUNDING
        )
        J = J[:, :, exists]
        expected = np.einsum("bik,kl,bjl->ijb", J, inverse, J)
        np.testing.assert_allclose(of_bodies[..., environment], expected, atol=ROUNDING)


@pytest.mark.slow
@forests
def test_rows_on_bodies_are_coupled_as_the_dense_matrix_says(name):
    tree = random_tree(name)
    plan, r = tree.plan, 2
    bodies = len(FORESTS[name][0])
    nodes = ((bodies - 1, 0), (1, -1), (0, 1), (bodies - 2, bodies - 1, 1), (0, -1))
    way = paths(plan, nodes, (r,) * len(nodes))
    rng = np.random.default_rng(5)
    H = [jnp.asarray(rng.normal(size=(6, r, len(at), BATCH))) for at, _ in way.sides]
    mass = rng.uniform(0.5, 2.0, (bodies + 1, BATCH))
    inertia = rng.uniform(0.5, 2.0, (bodies + 1, BATCH)) * np.eye(3)[..., None, None]
    laws = random_laws(tree)[0]
    weights = jnp.asarray(mass), jnp.asarray(inertia)
    on = Bodies(tuple(H), *weights, tree, eliminated(tree), way=way)
    found = blocks(on, eliminated(tree, laws))
    # Column by column: what a unit impulse of each row does to all others, by `moved`.
    order = {body: i for i, body in enumerate(plan.order)}
    factor = eliminated(tree, laws)

    @jax.jit
    def twists_after(impulse):
        """Of all bodies in body axes, after impulses (6, bodies + 1, BATCH) in body axes."""
        world = jnp.zeros((6, len(plan.order), BATCH))
        for body, i in order.items():
            both = [multiply(tree.turn[:, :, i], impulse[x : x + 3, body]) for x in (0, 3)]
            world = world.at[:, i].set(jnp.concatenate(both))
        _, twist, _ = moved(tree, factor, world, jnp.zeros_like(tree.stiffness))
        result = jnp.zeros_like(impulse)
        for body, i in order.items():
            turn = jnp.swapaxes(tree.turn[:, :, i], 0, 1)
            both = [multiply(turn, twist[x : x + 3, i]) for x in (0, 3)]
            result = result.at[:, body].set(jnp.concatenate(both))
        for body in plan.lone:
            linear, angular = (
                mass[body][None] * impulse[:3, body],
                inertia[0, 0, body][None] * impulse[3:, body],
            )
            result = result.at[:, body].set(jnp.concatenate([linear, angular]))
        return result

    A = dense_rows(way, found, r)
    for node in range(len(nodes)):
        for row in range(r):
            impulse = jnp.zeros((6, bodies + 1, BATCH))
            for x, (at, on) in zip(H, way.sides, strict=True):
                for i, (n, body) in enumerate(zip(at, on, strict=True)):
                    if n == node:
                        impulse = impulse.at[:, body].add(x[:, row, i])
            v = twists_after(impulse.at[:, -1].set(0.0))
            speed = np.zeros((r, len(nodes), BATCH))
            for x, (at, on) in zip(H, way.sides, strict=True):
                for i, (n, body) in enumerate(zip(at, on, strict=True)):
                    speed[:, n] += np.einsum("irb,ib->rb", x[:, :, i], v[:, body])
            np.testing.assert_allclose(A[:, :, row, node], speed, atol=ROUNDING)


@pytest.mark.slow
@forests
def test_derivatives_are_those_of_differences(name):
    tree = random_tree(name)
    bodies, along = pushes(tree)

    @jax.jit
    def motion(tree, bodies, along):
        # Inertias stay symmetric, whatever the direction of a derivative.
        tree = replace(tree, inertia=tree.inertia + jnp.swapaxes(tree.inertia, 0, 1))
        return response(tree, jax.lax.stop_gradient(eliminated(tree)), bodies, along)

    arguments = tree, bodies, along
    check_grads(motion, arguments, order=1, modes=["fwd", "rev"], eps=1e-6, rtol=1e-6)
    check_grads(motion, arguments, order=2, modes=["fwd"], eps=1e-5, rtol=1e-4)


@some_forests
def test_single_precision(name):
    tree = random_tree(name)
    bodies, along = pushes(tree)
    expected = moved(tree, eliminated(tree), bodies, along)[:2]
    tree, bodies, along = jax.tree.map(jnp.float32, (tree, bodies, along))
    found = moved(tree, eliminated(tree), bodies, along)[:2]
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert x.dtype == jnp.float32
        np.testing.assert_allclose(x, y, atol=2e-5)
