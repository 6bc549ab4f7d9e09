"""Articulated bodies at random: forests with all kinds of joints."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints.algebra.rotation import quat_to_matrix
from jaxjoints.solve.tree import Tree, TreePlan

BATCH = 2

# Bodies by their motion (True: free, False: given), and branches (body, base, coordinates), -1 for
# the world: a chain, a star on a free body, a forest with a body of given motion.
FORESTS = {
    "chain": ((True,) * 4, ((0, -1, 1), (1, 0, 1), (2, 1, 1), (3, 2, 1))),
    "free star": ((True,) * 4, ((1, 0, 2), (2, 0, 1), (3, 0, 0))),
    "welds": ((True,) * 4, ((0, -1, 0), (1, 0, 0), (2, 1, 1), (3, 2, 0))),
    "forest": (
        (True, True, False, True, True, True, True, True, True),
        ((3, 2, 3), (0, -1, 1), (1, 0, 2), (4, 3, 5), (6, 5, 1)),
    ),
}


def random_tree(name):
    """A tree with random numbers, those of the batch last."""
    moving, branches = FORESTS[name]
    plan = TreePlan.of(moving, branches)
    rng = np.random.default_rng(len(branches))
    count = {body: k for body, _, k in branches}

    def inertia(n):
        root = rng.normal(size=(3, 3, n, BATCH))
        return np.einsum("ij...,kj...->ik...", root, root) + np.eye(3)[..., None, None]

    joints = plan.order[len(plan.roots) :]
    most = max(count.values())
    has = np.array([[c < count[body] for body in joints] for c in range(most)])
    n = len(plan.order)
    quaternion = rng.normal(size=(4, n, BATCH))
    turn = quat_to_matrix(jnp.asarray(quaternion / np.linalg.norm(quaternion, axis=0)))
    return jax.tree.map(
        jnp.asarray,
        Tree(
            turn=turn,
            mass=rng.uniform(0.5, 2.0, (n, BATCH)),
            inertia=inertia(n),
            arm=rng.normal(size=(3, len(joints), BATCH)),
            S=rng.normal(size=(6, *has.shape, BATCH)) * has[None, ..., None],
            stiffness=rng.uniform(0.5, 1.0, (*has.shape, BATCH)),
            plan=plan,
        ),
    )


forests = pytest.mark.parametrize("name", FORESTS)
