"""Rows of hinges at random: chains and loops of links with stops and friction, hard to solve.

Link i lies between the points i and i + 1, hinged to link i - 1 at the first of them; the last link
of a loop is hinged to the ground too. Each hinge has five hard rows and one coordinate row.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxjoints.solve.bodies import bodies_of_rows
from jaxjoints.solve.forces import Bound
from jaxjoints.solve.problem import RowProblem, RowStructure

from .graphs import free_bodies, of_sides

DT = 1e-3


@dataclass(frozen=True)
class Hinges:
    """A family of problems.

    links: how many; closed: whether the last is hinged to the ground
    bend: exponents of 10 between which the angle between neighbours lies: near-singular where small
    tilt: the same for the angles of a loop's axes against each other, None where they are parallel
        and three rows redundant
    ratio: largest exponent of 10 of the ratio of masses
    boxes: whether each coordinate has dry friction too
    """

    links: int
    closed: bool = False
    bend: tuple[float, float] = (-3.0, 0.0)
    tilt: tuple[float, float] | None = (-1.0, 0.0)
    ratio: float = 4.0
    boxes: bool = False

    def problem(self, batch: int, seed: int = 0) -> RowProblem:
        """As many of the family as `batch` says."""
        rng = np.random.default_rng([seed, self.links, self.closed, self.boxes])
        count = self.links + self.closed
        nodes = [(i, i - 1) for i in range(self.links)] + [(self.links - 1, -1)] * self.closed
        way = free_bodies(self.links, nodes, 6)
        order = np.array(way.order)
        sides = [np.array([nodes[i][side] for i in order]) for side in (0, 1)]
        points, axes = self._placed(rng, count, batch)
        centre = (points[:, :-1] + points[:, 1:])[:, : self.links] / 2
        centre = np.concatenate([centre, np.zeros((3, 1, batch))], axis=1)
        points, axes = points[:, :count][:, order], axes[:, order]
        H = []
        for side, sign in zip(sides, (1, -1), strict=True):
            rows = _rows(points - centre[:, side], axes)
            H.append(sign * rows.astype(np.float32).astype(float))

        heavy = 10 ** (
            rng.uniform(0, self.ratio, batch) * rng.uniform(-0.5, 0.5, (self.links, batch))
        )
        inverse = np.zeros((6, self.links + 1, batch))
        inverse[:, :-1] = 1 / heavy
        inverse[3:, :-1] *= rng.uniform(4, 40, (3, self.links, batch))
        inverse = inverse.astype(np.float32).astype(float)
        Y = [inverse[:, None, side] * h for side, h in zip(sides, H, strict=True)]
        twist = rng.normal(size=(6, self.links + 1, batch)) * 10 ** rng.uniform(-2, 0.5, batch)
        twist[:, -1] = 0.0
        rate = sum(
            np.sum(h * twist[:, None, side], axis=0) for side, h in zip(sides, H, strict=True)
        )
        diagonal = sum(np.sum(h * y, axis=0)[5] for h, y in zip(H, Y, strict=True))
        everyone = tuple(range(count))
        structure = RowStructure(
            way,
            6,
            (5,) * count,
            everyone,
            (),
            independent=not self.closed,
        )
        none = jnp.zeros((count, batch))
        bounds = (self._stops(rng, diagonal), *self._friction(rng, diagonal))
        # In one program: dispatched one by one, its operations would take a second to compile.
        bodies = jax.jit(partial(bodies_of_rows, way=way))(
            H=of_sides(way, H),
            inverse_mass=jnp.asarray(inverse[0]),
            inverse_inertia=jnp.asarray(np.eye(3)[..., None, None] * inverse[3:]),
        )
        return RowProblem(
            bodies,
            jnp.asarray(rate),
            jnp.zeros(rate.shape),
            none,
            none,
            bounds,
            structure,
        )

    def _placed(self, rng, count, batch):
        """Points (3, links + 1, batch) and the hinges' axes (3, count, batch)."""
        if self.closed:
            angle = 2 * np.pi * (np.arange(count) + rng.uniform(-0.3, 0.3, (batch, count))) / count
            points = np.stack([np.cos(angle.T), np.sin(angle.T), np.zeros((count, batch))])
            axes = np.zeros((3, count, batch))
            if self.tilt:
                axes = rng.normal(size=axes.shape) * 10 ** rng.uniform(*self.tilt, batch)
            axes[2] += 1.0
            return points, axes / np.linalg.norm(axes, axis=0)
        bend = 10 ** rng.uniform(*self.bend, batch)
        turns = rng.normal(size=(3, self.links, batch)) * bend
        turns[2, 0] -= 1.0
        along = np.cumsum(turns, axis=1)
        along = along / np.linalg.norm(along, axis=0)
        points = np.concatenate([np.zeros((3, 1, batch)), np.cumsum(along, axis=1)], axis=1) / 2
        axes = np.cross(along, rng.normal(size=along.shape), axis=0)
        return points, axes / np.linalg.norm(axes, axis=0)

    def _stops(self, rng, diagonal):
        """Of each coordinate the near one: open, tight or violated, and then soft in loops, whose
        stops may contradict each other.
        """
        shape = diagonal.shape
        gap = rng.choice([0.0, 1e-3, 1e-2, 1.0], shape) * rng.uniform(0, 1, shape)
        violated = rng.uniform(size=shape) < 0.3
        bias = np.where(violated, -np.minimum(10.0, 0.2 * gap / DT), gap / DT)
        soft = np.where(self.closed & violated, 1e-2 * diagonal, 0.0)
        sign = rng.choice([-1.0, 1.0], shape)
        return Bound(*map(jnp.asarray, (sign, bias, soft, np.ones(shape))))

    def _friction(self, rng, diagonal):
        """Dry friction from far too little to far too much to stop anything."""
        if not self.boxes:
            return
        none = np.zeros(diagonal.shape)
        most = 10 ** rng.uniform(-3, 1, diagonal.shape) / diagonal
        yield Bound(*map(jnp.asarray, (none + 1, none, none, none + 1, -most, most)))


def _rows(arm, axis):
    """Wrenches of a hinge's rows at `arm` from a body's centre, (6, rows, …)."""
    zero = np.zeros_like(axis[0])
    steep = np.abs(axis[2]) > 0.7
    first = np.where(
        steep, np.stack([zero, -axis[2], axis[1]]), np.stack([-axis[1], axis[0], zero])
    )
    first = first / np.linalg.norm(first, axis=0)
    second = np.cross(axis, first, axis=0)
    linear = np.eye(3)[:, :, None, None] + np.zeros((3, 3, *axis.shape[1:]))
    moments = np.cross(np.repeat(arm[:, None], 3, axis=1), linear, axis=0)
    angular = np.stack([first, second, axis], axis=1)
    return np.concatenate(
        [np.concatenate([linear, moments]), np.concatenate([np.zeros_like(angular), angular])],
        axis=1,
    )
