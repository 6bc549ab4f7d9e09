"""Projected Gauss–Seidel with over-relaxation: one row after the other, as ODE's QuickStep.

Every law is a row of its own. Its impulse λ has a lower and an upper bound and adds s λ to its row
of A. With u the speed of this row, its remainder is

    r = m u + constant + compliance λ.

m = s = 1 for hard rows, and m = s = σ for bounded impulses. A linear law λ = p - K₀ u is the row
u + λ/K₀ = p/K₀ multiplied by K₀: m = K₀, s = 1, compliance 1. A visit of a row replaces λ by
λ - ω r / (m s A_ii + compliance), clipped to its bounds, and moves the bodies accordingly.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient

from ..algebra.options import check_count
from ..algebra.pytree import static, struct
from ..algebra.spatial import over_mass
from .problem import (
    Impulses,
    RowProblem,
    RowSolution,
    Solver,
    at_rest,
    bare_laws,
    body_velocities,
    coordinate_rows,
    excess,
    mobility,
    no_solution,
    of_bounds,
    residual,
    resting,
    speeds,
    with_coordinate_rows,
)


@struct
class ProjectedGaussSeidel(Solver):
    """One row after the other by projected Gauss–Seidel with over-relaxation, as ODE's QuickStep.

    Rows are visited joint by joint. Friction that follows a normal force comes last, bounded by
    this force at the time of the visit. ODE shuffles the rows after every eight iterations; here
    they keep their order. Convergence depends on the axes of the rows, the masses and the length of
    chains. It is mostly incomplete, and `Info.ok` is False then: a solver to compare with.

    relaxation: ω, between 0 and 2; 1 is plain Gauss–Seidel
    iterations: visits of every row; all are taken and differentiated
    warm: whether to start from the impulses of the last step; ODE starts from 0

    >>> from jaxjoints import SemiImplicitEuler, Slider, SystemBuilder, step
    >>> world = SystemBuilder(gravity=(0.0, 0.0, -10.0))
    >>> cart = world.body("cart", mass=3.0, inertia=(1.0, 1.0, 1.0))
    >>> _ = world.joint("rail", Slider((1.0, 0.0, 0.0)), child=cart)
    >>> scheme = SemiImplicitEuler(ProjectedGaussSeidel(relaxation=1.0), joints="rows")
    >>> _, info = step(*world.build(), dt=0.01, scheme=scheme)
    >>> print(info.iterations, round(float(info.wrench[2, 0]), 3))  # the rail carries m g
    20 30.0
    """

    relaxation: Array | float = 1.3
    iterations: int = static(default=20)
    warm: bool = static(default=False)

    def __post_init__(self):
        check_count("ProjectedGaussSeidel", "iterations", self.iterations, 1)
        if isinstance(self.relaxation, int | float) and not 0 < self.relaxation < 2:
            raise ValueError(
                f"ProjectedGaussSeidel relaxation {self.relaxation} must lie between 0 and 2, where"
                " it converges; ODE's is 1.3"
            )

    def solve(self, problem: RowProblem, start: Impulses | None = None) -> RowSolution:
        if not problem.structure.nodes:
            return no_solution(problem)
        if any(bound.across for bound in problem.bounds):
            raise ValueError(
                "ProjectedGaussSeidel bounds each row by itself; some contact has friction with "
                "a round cone, of two rows; give contacts cone='pyramid', or take Newton()"
            )
        problem = resting(problem)
        at = at_rest(problem) if start is None or not self.warm else stop_gradient(start)
        places = _Places.of(problem)
        laws = _laws(problem, places, jnp.asarray(self.relaxation, problem.rate.dtype))
        batch = laws.gain.shape[1:]
        λ = jnp.broadcast_to(_split(problem, places, at), laws.gain.shape)
        Λ = _joined(problem, places, λ)[0]
        twist = jnp.moveaxis(body_velocities(problem, Λ), 0, 1)
        still = jnp.zeros((1, 6, *batch), λ.dtype)
        nothing = jnp.zeros((1, *batch), λ.dtype)
        moved = (
            jnp.concatenate([twist, still]),
            jnp.concatenate([coordinate_rows(problem, Λ), nothing]),
        )

        def sweep(carry, _):
            moved, λ = carry
            return jax.lax.scan(_visit, moved, (laws, λ)), None

        # Reverse differentiation keeps only the start of each sweep and computes the sweep again.
        sweep = jax.checkpoint(sweep, prevent_cse=False)
        (_, λ), _ = jax.lax.scan(sweep, (moved, λ), None, length=self.iterations)
        at = _joined(problem, places, λ)
        laws = bare_laws(problem, coordinate_rows(problem, at[0]), None)
        packed = problem.packed(at) if problem.bounds else at
        left = residual(problem, laws, packed, speeds(problem, at[0]))
        sweeps = jnp.full(batch, self.iterations, λ.dtype)
        return RowSolution(*at, *left, excess=excess(problem, packed), iterations=sweeps)


@dataclass(frozen=True)
class _Places:
    """Where each law stands: hard ones, linear ones, and those of each bound, one after the other.

    hard: number of hard rows; row, node: of each law
    coordinate: the coordinate row of each law; normal: the coordinate row whose impulse its bounds
        follow; the number of coordinate rows for none
    order: of the visits
    """

    hard: int
    row: np.ndarray
    node: np.ndarray
    coordinate: np.ndarray
    normal: np.ndarray
    order: np.ndarray

    @classmethod
    def of(cls, problem: RowProblem) -> "_Places":
        """The places in a problem."""
        structure = problem.structure
        hard = np.argwhere(structure.hard & (structure.filler == 0))
        count, kinds = len(structure.row), 1 + len(problem.bounds)
        none = np.full(len(hard), count)
        row = np.concatenate([hard[:, 0], *[structure.row] * kinds]).astype(int)
        node = np.concatenate([hard[:, 1], *[structure.node] * kinds]).astype(int)
        normal = [none, np.full(count, count)]
        for bound in problem.bounds:
            follows = bound.mu is not None
            normal.append(np.array(bound.normal) if follows else np.full(count, count))
        normal = np.concatenate(normal).astype(int)
        joint = np.array(structure.way.order)[node]
        return cls(
            len(hard),
            row,
            node,
            np.concatenate([none, *[np.arange(count)] * kinds]).astype(int),
            normal,
            # Stable: the laws of a coordinate stay in the order of the bounds.
            np.lexsort((row, joint, normal < count)),
        )


class _Laws(NamedTuple):
    """All laws in the order of their visits, arrays (laws, *batch) where no shape is given.

    H, Y: wrenches on the bodies of all sides and M⁻¹ H, (laws, sides, 6, *batch)
    body: of each side, (laws, sides); coordinate, normal: see `_Places`, (laws,)
    slope, sign, constant, compliance: m, s, constant and compliance of r
    lower, upper: bounds of λ, widened by `friction` times the impulse of `normal`
    gain: ω / (m s A_ii + compliance)
    """

    H: Array
    Y: Array
    body: np.ndarray
    coordinate: np.ndarray
    normal: np.ndarray
    slope: Array
    sign: Array
    constant: Array
    compliance: Array
    lower: Array
    upper: Array
    friction: Array
    gain: Array


def _visit(moved: tuple[Array, Array], visited: tuple[_Laws, Array]) -> tuple:
    """Twists of the bodies and impulses of coordinate rows after a visit, and the law's impulse."""
    (twist, Λ), (law, λ) = moved, visited
    u = jnp.sum(law.H * twist[law.body], axis=(0, 1))
    wanted = λ - law.gain * (law.slope * u + law.constant + law.compliance * λ)
    width = law.friction * jnp.abs(Λ[law.normal])
    lower, upper = law.lower - width, law.upper + width
    # Equal bounds: the law is absent, and its impulse must not depend on `wanted`.
    new = jnp.where(wanted <= lower, lower, jnp.where(wanted >= upper, upper, wanted))
    push = law.sign * (new - λ)
    return (twist.at[law.body].add(law.Y * push[None, None]), Λ.at[law.coordinate].add(push)), new


def _laws(problem: RowProblem, places: _Places, relaxation: Array) -> _Laws:
    """All laws of a problem in the order of their visits."""
    row, node, hard = places.row, places.node, slice(places.hard)
    compliance = problem.compliance[row[hard], node[hard]]
    far, K = jnp.full_like(compliance, jnp.inf), problem.augmented_stiffness
    none, one, endless = 0 * K, 0 * K + 1, jnp.full_like(K, jnp.inf)
    # Slope, sign, constant, compliance, lower, upper, friction.
    parts = [
        (
            0 * compliance + 1,
            0 * compliance + 1,
            0 * compliance,
            compliance,
            -far,
            far,
            0 * compliance,
        ),
        (K, one, -problem.impulse, one, -endless, endless, none),
    ]
    for bound in problem.bounds:
        lower, upper = bound.lower, bound.upper
        if upper is None:
            lower, upper = none, jnp.where(bound.present > 0, endless, none)
        follows = none if bound.mu is None else bound.mu
        parts.append((bound.sign, bound.sign, bound.bias, bound.compliance, lower, upper, follows))
    A, rate = mobility(problem)[row, node], problem.rate[row, node]
    batch = jnp.broadcast_shapes(A.shape[1:], rate.shape[1:], compliance.shape[1:], K.shape[1:])
    slope, sign, constant, compliance, lower, upper, friction = (
        jnp.concatenate([jnp.broadcast_to(x, (len(x), *batch)) for x in part])
        for part in zip(*parts, strict=True)
    )
    size = slope * sign * A + compliance
    # Protects the division from hard rows that move nothing: they keep their impulse.
    gain = jnp.where(size > 0, relaxation / jnp.where(size > 0, size, 1.0), 0.0)
    constant = slope * rate + constant
    values = slope, sign, constant, compliance, lower, upper, friction, gain
    order = places.order
    return _Laws(
        *(x[order] for x in _on_bodies(problem, row, node)),
        places.coordinate[order],
        places.normal[order],
        *(x[order] for x in values),
    )


def _on_bodies(problem: RowProblem, row: np.ndarray, node: np.ndarray) -> tuple:
    """H and Y of rows, (rows, sides, 6, *batch), and the bodies, (rows, sides)."""
    structure = problem.structure
    H, Y, body = [], [], []
    mass, inertia = problem.bodies.inverse_mass, problem.bodies.inverse_inertia
    sides = zip(problem.bodies.H, structure.way.sides, strict=True)
    for wrench, (nodes, bodies) in sides:
        # Nodes without this side act on the world there.
        at, whose = np.full(structure.nodes, len(nodes)), np.full(structure.nodes, len(mass) - 1)
        at[list(nodes)], whose[list(nodes)] = np.arange(len(nodes)), bodies
        twist = over_mass(mass[np.array(bodies)], inertia[:, :, np.array(bodies)], wrench)
        for x, rows in ((wrench, H), (twist, Y)):
            x = jnp.concatenate([x, jnp.zeros_like(x[:, :, :1])], axis=2)
            rows.append(jnp.moveaxis(x[:, row, at[node]], 0, 1))
        body.append(whose[node])
    batch = jnp.broadcast_shapes(*(x.shape[2:] for x in H + Y))
    H, Y = (
        jnp.stack([jnp.broadcast_to(x, (*x.shape[:2], *batch)) for x in rows], axis=1)
        for rows in (H, Y)
    )
    return H, Y, np.stack(body, axis=1)


def _split(problem: RowProblem, places: _Places, at: Impulses) -> Array:
    """The impulse of each law in the order of the visits, (laws, *batch)."""
    impulse, bounded = at
    hard = slice(places.hard)
    pushes = [bound.sign * λ for bound, λ in zip(problem.bounds, bounded, strict=True)]
    linear = coordinate_rows(problem, impulse) - sum(pushes)
    # A law whose impulse depends on no speed exerts it from the start.
    linear = jnp.where(problem.augmented_stiffness > 0, linear, problem.impulse)
    parts = [impulse[places.row[hard], places.node[hard]], linear, *bounded]
    batch = jnp.broadcast_shapes(*(x.shape[1:] for x in parts))
    whole = [jnp.broadcast_to(x, (len(x), *batch)) for x in parts]
    return jnp.concatenate(whole)[places.order]


def _joined(problem: RowProblem, places: _Places, λ: Array) -> Impulses:
    """Impulses of all rows from those of the laws, as `_split` gives them."""
    structure = problem.structure
    λ, hard = λ[np.argsort(places.order)], slice(places.hard)
    count = len(structure.row)
    linear, *bounded = (
        λ[places.hard + k * count :][:count] for k in range(1 + len(problem.bounds))
    )
    pushes = [bound.sign * x for bound, x in zip(problem.bounds, bounded, strict=True)]
    impulse = jnp.zeros((structure.rows, structure.nodes, *λ.shape[1:]), λ.dtype)
    impulse = impulse.at[places.row[hard], places.node[hard]].set(λ[hard])
    if count:
        impulse = with_coordinate_rows(structure, impulse, linear + sum(pushes))
    return impulse, of_bounds(bounded)
