"""Rows of bodies on a rough ground, at random: chains of balls whose links touch it in places.

A contact is a node of three coordinate rows: the normal, pushed off by a one-sided impulse, and two
tangents with friction μ |Λₙ|.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxjoints.solve.bodies import bodies_of_rows
from jaxjoints.solve.forces import Bound
from jaxjoints.solve.problem import RowProblem, RowStructure

from .graphs import free_bodies, of_sides

DT = 0.01


def contacts(links, touching, batch, *, friction=(0.1, 1.0), compliance=0.0, seed=0):
    """The problem of chains of `links` bodies, each with `touching` contacts, `batch` of them.

    friction: range of μ; compliance: of normal and tangents, as a share of the diagonal of A
    """
    rng = np.random.default_rng([seed, links, touching])
    nodes = [(i, i - 1) for i in range(1, links)]
    nodes += [(i, -1) for i in range(links) for _ in range(touching)]
    way = free_bodies(links, nodes, 3)
    nodes = [nodes[i] for i in way.order]
    n, ground = len(nodes), np.array([parent < 0 for _, parent in nodes])
    child, parent = (np.array(side) % (links + 1) for side in zip(*nodes, strict=True))

    # Orthonormal axes (directions, rows): of the world for balls, near upright for contacts.
    upright = np.array([0.0, 0.0, 1.0])[:, None, None]
    normal = upright + 0.3 * rng.normal(size=(3, n, batch)) * ground[:, None]
    along = rng.normal(size=(3, n, batch))
    normal, along = (x / np.linalg.norm(x, axis=0) for x in (normal, along))
    across = np.cross(normal, along, axis=0)
    across = across / np.linalg.norm(across, axis=0)
    F = np.stack([normal, across, np.cross(normal, across, axis=0)], axis=1)
    arms = rng.uniform(-0.5, 0.5, (2, 3, 1, n, batch))
    arms[0, 2][:, ground] = -rng.uniform(0.1, 0.5, (1, ground.sum(), batch))
    H = [
        np.concatenate([F, np.cross(arms[0], F, axis=0)]),
        -np.concatenate([F, np.cross(arms[1], F, axis=0)]),
    ]
    mass = np.append(10 ** rng.uniform(-1, 1, (links, batch)), np.full((1, batch), np.inf), axis=0)
    inverse = np.repeat(1 / mass[None], 6, axis=0)
    inverse[3:] *= rng.uniform(5.0, 30.0, (3, links + 1, batch))
    Y = [inverse[:, None, body] * h for body, h in zip((child, parent), H, strict=True)]

    twist = rng.normal(size=(6, links + 1, batch))
    twist[2] -= 1.0
    twist[:, -1] = 0.0
    rate = sum(
        np.sum(h * twist[:, None, body], axis=0) for body, h in zip((child, parent), H, strict=True)
    )
    places = np.flatnonzero(ground)
    row, node = (tuple(map(int, x)) for x in (np.repeat(range(3), len(places)), np.tile(places, 3)))
    structure = RowStructure(
        way,
        3,
        row,
        node,
        (),
    )
    normals = np.repeat([1.0, 0.0, 0.0], len(places))[:, None] * np.ones(batch)
    μ = np.tile(rng.uniform(*friction, (len(places), batch)), (3, 1)) * (1 - normals)
    A = sum(np.sum(h * y, axis=0) for h, y in zip(H, Y, strict=True))[np.array(row), np.array(node)]
    gap = np.where(normals > 0, np.maximum(rng.normal(size=normals.shape), 0.0), 0.0)
    none, one, soft = (jnp.asarray(x) for x in (0 * normals, 0 * normals + 1, compliance * A))
    tangents = Bound(
        one,
        none,
        soft,
        jnp.asarray(1 - normals),
        none,
        none,
        jnp.asarray(μ),
        normal=tuple(range(len(places))) * 3,
    )
    # In one program: dispatched one by one, its operations would take a second to compile.
    bodies = jax.jit(partial(bodies_of_rows, way=way))(
        H=of_sides(way, H),
        inverse_mass=jnp.asarray(inverse[0]),
        inverse_inertia=jnp.asarray(np.eye(3)[..., None, None] * inverse[3:]),
    )
    return RowProblem(
        bodies,
        jnp.asarray(rate),
        jnp.zeros_like(rate),
        none,
        none,
        (Bound(one, jnp.asarray(gap), soft, jnp.asarray(normals)), tangents),
        structure,
    )
