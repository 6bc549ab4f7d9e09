"""Gaps, points and normals of two shapes at a pose, and their derivatives by a small motion."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxjoints import Pose
from jaxjoints.algebra.spatial import retract
from jaxjoints.couplings.shapes import touches

all_points = jax.jit(touches)


@jax.jit
def described(C, D, T, twist):
    """Gaps, points and normals after a small motion from a pose."""
    found = touches(C, D, retract(T, twist))
    return jnp.concatenate([found.gap[:, None], found.point, found.normal], axis=1)


@jax.jit
def slopes(C, D, T):
    """Derivatives of `described` by the motion, forward and reverse."""
    at = jnp.zeros(6, T.p.dtype)
    return [jac(partial(described, C, D, T))(at) for jac in (jax.jacfwd, jax.jacrev)]


def arrays(shape):
    """A shape whose lengths are arrays."""
    return jax.tree.map(jnp.asarray, shape, is_leaf=lambda x: isinstance(x, tuple))


def placed(p, q):
    """The pose of a position and of a quaternion of any length."""
    return Pose(jnp.asarray(p), jnp.asarray(np.array(q) / np.linalg.norm(q)))
