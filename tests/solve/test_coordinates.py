"""The matrix of all coordinates, against dense float64: bodies of random forests that touch."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from jaxjoints.algebra.pytree import replace
from jaxjoints.algebra.rotation import quat_from_matrix, quat_to_matrix
from jaxjoints.algebra.spatial import Pose
from jaxjoints.solve.bodies import bodies_of_rows, mobility, reduced, speeds_on, velocities
from jaxjoints.solve.paths import NEVER, paths
from jaxjoints.solve.tree import eliminated
from support.forests import BATCH, forests, random_tree
from support.graphs import dense

ROUNDING = 1e-10
# Rows of each node.
ROWS = 2


@cache
def touching(name):
    """Bodies that touch the world and each other, with one loop, and a law on each coordinate; and
    the dense matrix A of all rows, (rows of all nodes, twice, BATCH).
    """
    tree, rng = random_tree(name), np.random.default_rng(7)
    has = np.abs(tree.S).sum((0, 3)) > 0
    tree = replace(tree, stiffness=jnp.where(has[..., None], tree.stiffness, 0.0))
    plan, count = tree.plan, tree.plan.bodies + 1
    free = [*plan.order, *plan.lone]
    loops = [(free[-1], free[0]), (free[1], -1), (free[0], free[2]), (free[2], -1)]
    nodes = [*loops, (free[0], -1), (free[-1], -1)]
    nodes += [(a, b) for a in free for b in free if a != b]
    beside = [NEVER] * len(loops) + [0] * (len(nodes) - len(loops))
    way = paths(plan, nodes, [ROWS] * len(nodes), beside, [True] * len(nodes))
    # Contacts of bodies that cannot move relative to each other stay on the graph.
    assert way.coordinates is not None and way.graph >= len(loops)
    p, q = (rng.normal(size=(n, count, BATCH)) for n in (3, 4))
    q = q / np.linalg.norm(q, axis=0)
    q[:, list(plan.order)] = quat_from_matrix(tree.turn)
    p[:, -1] = 0.0
    placed = plan.order[len(plan.roots) :]
    for i, (body, base) in enumerate(zip(placed, sum(plan.bases, ()), strict=True)):
        p[:, body] = p[:, base] + tree.arm[:, i]
    R = np.asarray(quat_to_matrix(jnp.asarray(q)))
    inverse_mass, inverse_inertia = np.zeros((count, BATCH)), np.zeros((3, 3, count, BATCH))
    inverse_mass[list(free)] = rng.uniform(0.5, 2.0, (len(free), BATCH))
    inverse_inertia[:, :, list(free)] = np.eye(3)[..., None, None] * 1.7
    for i, body in enumerate(plan.order):
        own = R[:, :, body]
        turned = np.einsum("jib,jkb,klb->ilb", own, tree.inertia[:, :, i], own)
        inverse_mass[body] = 1 / tree.mass[i]
        inverse_inertia[:, :, body] = np.moveaxis(np.linalg.inv(np.moveaxis(turned, 2, 0)), 0, 2)
    # World axes, opposite on the second body.
    W = rng.normal(size=(len(nodes), 6, ROWS, BATCH))
    H = []
    for side, (having, bodies) in enumerate(way.sides):
        own = []
        for position, body in zip(having, bodies, strict=True):
            node = way.order[position]
            arm = (p[:, nodes[node][0]] - p[:, body])[:, None]
            force, moment = W[node, :3], W[node, 3:] + np.cross(arm, W[node, :3], axis=0)
            sign = -1 if side else 1
            turned = [sign * np.einsum("jib,jrb->irb", R[:, :, body], x) for x in (force, moment)]
            own.append(np.concatenate(turned))
        H.append(jnp.asarray(np.stack(own, axis=2)))
    laws = enumerate(np.argwhere(has))
    along = tuple((0, way.nodes + i, int(c), int(joint)) for i, (c, joint) in laws)
    bodies = bodies_of_rows(
        H=tuple(H),
        inverse_mass=jnp.asarray(inverse_mass),
        inverse_inertia=jnp.asarray(inverse_inertia),
        tree=tree,
        factor=eliminated(tree),
        poses=Pose(jnp.asarray(p), jnp.asarray(q)),
        way=way,
        along=along,
    )
    total = way.nodes + len(along)

    @jax.jit
    def speeds(impulse):
        twists, on_coordinates = velocities(bodies, impulse)
        return jnp.concatenate([speeds_on(bodies.H, way.sides, twists), on_coordinates], axis=1)

    unit = np.eye(ROWS * total).reshape(-1, ROWS, total, 1) * np.ones(BATCH)
    columns = [speeds(jnp.asarray(x)) for x in unit]
    A = np.stack([np.asarray(x).reshape(-1, BATCH) for x in columns], axis=1)
    return bodies, A, total


@forests
def test_mobilities_are_the_diagonal(name):
    bodies, A, total = touching(name)
    found = np.asarray(mobility(bodies, ROWS, total)).reshape(-1, BATCH)
    np.testing.assert_allclose(found, np.einsum("iib->ib", A), atol=ROUNDING)


@forests
def test_mobilities_have_the_slope_of_differences(name):
    bodies, _, total = touching(name)

    @jax.jit
    def sum_at(share):
        grown = replace(bodies.tree, S=bodies.tree.S * share, arm=bodies.tree.arm * share)
        poses = replace(bodies.poses, p=bodies.poses.p * share)
        fields = {"tree": grown, "factor": eliminated(grown), "poses": poses}
        return mobility(bodies_of_rows(**vars(bodies) | fields), ROWS, total).sum()

    slope, h = jax.jit(jax.grad(sum_at))(1.0), 1e-6
    difference = (sum_at(1.0 + h) - sum_at(1.0 - h)) / (2 * h)
    np.testing.assert_allclose(slope, difference, rtol=1e-6)


@forests
def test_laws_of_contacts_and_coordinates_hold_after_impulses_of_a_loop(name):
    """β λ + γ u = r from β = 0 (held) to γ = 0 (free)."""
    bodies, A, total = touching(name)
    rng, graph = np.random.default_rng(3), bodies.way.graph
    β, γ = rng.uniform(0.2, 2.0, (2, ROWS, total, BATCH))
    on_coordinates = np.arange(bodies.way.nodes, total)
    β[0, on_coordinates[::3]] = 0.0
    γ[0, on_coordinates[1::3]] = 0.0
    # A stop in float64 is as stiff.
    β[0, on_coordinates[2::3]] = 1e-14
    exists = np.ones((ROWS, total), bool)
    exists[1:, bodies.way.nodes :] = False
    impulse, wanted = rng.normal(size=(ROWS, graph, BATCH)), rng.normal(size=(ROWS, total, BATCH))
    rest = jax.jit(reduced)(bodies, jnp.asarray(β), jnp.asarray(γ))
    speed, λ = jax.jit(type(rest).moved)(rest, jnp.asarray(impulse), jnp.asarray(wanted))
    matrix = dense(bodies.way, jax.jit(type(rest).blocks)(rest), ROWS)
    on_graph = np.broadcast_to(np.arange(total) < graph, exists.shape).ravel()
    others = exists.ravel() & ~on_graph
    for b in range(BATCH):
        α, ω, r = (x[..., b].ravel()[others] for x in (β, γ, wanted))
        near, far = A[np.ix_(on_graph, others)][..., b], A[np.ix_(others, others)][..., b]
        laws = np.diag(α) + ω[:, None] * far
        pushed = np.linalg.solve(laws, r - ω * (near.T @ impulse[..., b].ravel()))
        expected = A[np.ix_(on_graph, on_graph)][..., b] @ impulse[..., b].ravel() + near @ pushed
        size = np.abs(pushed).max()
        np.testing.assert_allclose(speed[..., b].ravel(), expected, atol=ROUNDING * size)
        found = np.asarray(λ[..., b]).ravel()[exists[:, graph:].ravel()]
        np.testing.assert_allclose(found, pushed, atol=ROUNDING * size)
        whole = A[np.ix_(on_graph, on_graph)][..., b] - near @ np.linalg.solve(
            laws, ω[:, None] * near.T
        )
        found = matrix[..., b].reshape(whole.shape)
        np.testing.assert_allclose(found, whole, atol=ROUNDING * np.abs(A).max())
