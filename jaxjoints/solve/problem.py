"""The problem of one step, the only input of a solver: a static structure and arrays.

A node is a block of rows: those of a joint, transmission, constraint or contact. Row i of a node
has the impulse Λ and the speed u = (A Λ)ᵢ + rateᵢ. A = Hᵀ T H is the Delassus matrix: H holds the
wrenches of unit impulses, T maps impulses on bodies to their twists. Hard rows ask for
u + compliance Λ = 0; their target speed is part of the rate. A coordinate row carries the sum of
all laws of one coordinate, Λ = λ₀ + Σ σ_k λ_k: one linear law λ₀ = p - K₀ u and any number of
bounded impulses λ_k (`bounds`). A solver returns impulses and a residual.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient

from ..algebra.compiler import materialize
from ..algebra.places import add_at, replaced, take
from ..algebra.pytree import replace, static, struct
from ..algebra.rotation import dot
from ..algebra.spatial import over_mass
from .bodies import UNMOVING, Bodies, RowFactor, speeds_on, velocities
from .bodies import mobility as mobility_of_rows
from .bounds import (
    LawRows,
    Laws,
    Potential,
    potential,
    radius,
    stacked,
    total,
    violation,
    widened,
)
from .forces import Bound
from .paths import Paths

# Regularization that makes redundant hard rows solvable: compliance as a share of the diagonal of
# A, by the bytes of a number (float32, float64).
REGULARIZATION = {4: 1e-6, 8: 1e-12}
# Regularization where rows are not redundant, in roundings of the diagonal: it keeps A positive
# definite despite rounding.
ROUNDINGS = 2.0

# Compliance of a hard law with two bounds in a row that nothing moves, as a share of the mobility
# of other rows, by the bytes of a number.
UNMOVED = {4: 1e-4, 8: 1e-6}

# Residual at which a solve ends, as a share of the speeds that cancel in it, by the bytes of a
# number (float32, float64).
SOLVED = {4: 3e-6, 8: 1e-14}
# Residual above which a solve has failed, as a share of the speeds that cancel in it.
TOLERATED = {4: 1e-4, 8: 1e-10}

# Impulses of all rows and of the bounded laws, (rows, nodes, *batch) and (laws, coordinate rows,
# *batch).
Impulses = tuple[Array, Array]


@dataclass(frozen=True)
class RowStructure:
    """The static shape of all rows: nodes of up to `rows` rows in elimination order.

    way: bodies and paths of the nodes whose rows act on bodies
    row, node: place of each coordinate row
    unused: places of rows that do not exist
    without_error: places of rows at velocity and acceleration level, which have no error, and of
        slip, rolling and spin, which have no coordinate
    independent: whether no hard row can depend on hard rows of other nodes: the nodes make a tree
        of bodies, and all their hard rows are errors
    along: number of nodes along coordinates of tree joints, which come after those of `way`
    """

    way: Paths
    rows: int
    row: tuple[int, ...]
    node: tuple[int, ...]
    unused: tuple[tuple[int, int], ...]
    without_error: tuple[tuple[int, int], ...] = ()
    independent: bool = False
    along: int = 0

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return self.along + self.way.nodes

    @cached_property
    def hard(self) -> np.ndarray:
        """True where a row is hard or does not exist, shape (rows, nodes)."""
        mask = np.ones((self.rows, self.nodes), bool)
        mask[list(self.row), list(self.node)] = False
        return mask

    @cached_property
    def has_hard(self) -> bool:
        """Whether any row is hard."""
        return int(self.hard.sum()) > len(self.unused)

    @cached_property
    def has_error(self) -> np.ndarray:
        """True where a row has an error or is a coordinate's, shape (rows, nodes)."""
        mask = np.ones((self.rows, self.nodes), bool)
        for row, node in self.without_error:
            mask[row, node] = False
        return mask

    @cached_property
    def standing(self) -> np.ndarray:
        """True for coordinate rows of nodes that stand on bodies."""
        node = np.array(self.node, int)
        return (node >= self.way.graph) & (node < self.way.nodes)

    @cached_property
    def places(self) -> np.ndarray:
        """Places of the coordinate rows in an array (rows, nodes) with its axes flattened."""
        return np.array(self.row, int) * self.nodes + np.array(self.node, int)

    @cached_property
    def filler(self) -> np.ndarray:
        """1 where a row does not exist, shape (rows, nodes)."""
        mask = np.zeros((self.rows, self.nodes))
        for row, node in self.unused:
            mask[row, node] = 1.0
        return mask


@struct
class RowProblem:
    """Everything that the impulses of one step depend on, arrays with the batch axes last.

    bodies: the bodies that the rows act on, and the wrenches H of the rows
    rate: speed of each row before impulses, less the target speed of a hard row, (rows, nodes,
        *batch)
    compliance: cfm/h of the hard rows, (rows, nodes, *batch)
    augmented_stiffness, impulse: K₀ and p of each coordinate row, (coordinate rows, *batch)
    bounds: one `Bound` for each slot, arrays (coordinate rows, *batch); where a coordinate has no
        law in a slot, the bound is not present
    regularization: compliance of the hard rows in the matrix, not in their law, (rows, nodes,
        *batch), None without hard rows; mobility: A_ii. Both are None until `regularized`
    """

    bodies: Bodies
    rate: Array
    compliance: Array
    augmented_stiffness: Array
    impulse: Array
    bounds: tuple[Bound, ...]
    structure: RowStructure = static()
    regularization: Array | None = None
    mobility: Array | None = None

    @property
    def follows(self) -> bool:
        """Whether some impulse is bounded by the impulse of another row, as friction is."""
        return any(bound.mu is not None for bound in self.bounds)

    @property
    def law_rows(self) -> LawRows:
        """Which coordinate rows the bounded laws act on."""
        return LawRows.of(self.bounds, len(self.structure.row))

    @property
    def laws(self) -> Laws:
        """All bounded laws as one record."""
        return stacked(self.bounds, len(self.structure.row))

    def packed(self, at: "Impulses") -> "Impulses":
        """Impulses with those of the bounded laws as arrays (laws, *batch)."""
        return at[0], self.law_rows.packed(at[1])


@struct
class RowSolution:
    """Impulses of all rows, and how well they obey the laws.

    impulse: Λ of all rows, (rows, nodes, *batch)
    bounded: λ_k of all bounds, (laws, coordinate rows, *batch)
    residual: largest violation of a row's law [m/s or rad/s], shape (*batch)
    size: largest speed that the impulses cancel [m/s or rad/s], shape (*batch)
    factors: of the matrix, where nothing is bounded and the solver has them
    excess: friction beyond the bound of the same solution's normal force, as a speed [m/s or
        rad/s], shape (*batch); None where no friction follows a normal force
    iterations: Newton steps, or sweeps over the rows, (*batch); None for one linear solve
    """

    impulse: Array
    bounded: Array
    residual: Array
    size: Array
    factors: RowFactor | None = None
    excess: Array | None = None
    iterations: Array | None = None


class Solver(ABC):
    """Base of all solvers, frozen records of settings. A solver finds the impulses of a problem.

    smoothing: ν of the bounds [m/s or rad/s], None for sharp bounds (see `bounds`)
    by_bodies: whether the solver takes problems with tree joints held by coordinates
        (`Bodies.tree`); other solvers get all joints as rows

    >>> from jaxjoints import Newton, SemiImplicitEuler, Slider, SystemBuilder, step, struct
    >>> @struct
    ... class Cold(Solver):  # starts from no impulse in each step
    ...     def solve(self, problem, start=None):
    ...         return Newton().solve(problem)
    >>> world = SystemBuilder(gravity=(0.0, 0.0, -10.0))
    >>> cart = world.body("cart", mass=3.0, inertia=(1.0, 1.0, 1.0))
    >>> _ = world.joint("rail", Slider((1.0, 0.0, 0.0)), child=cart)
    >>> _, info = step(*world.build(), dt=0.01, scheme=SemiImplicitEuler(Cold(), joints="rows"))
    >>> print(round(float(info.wrench[2, 0]), 3))  # the rail carries m g
    30.0
    """

    smoothing: Array | float | None = None
    by_bodies: ClassVar[bool] = False

    @abstractmethod
    def solve(self, problem: RowProblem, start: Impulses | None = None) -> RowSolution:
        """Impulses that obey all row laws, as closely as the solver can.

        start: impulses nearby, such as those of the last step; None for none
        """

    def at_solution(self, remembers: bool) -> "Solver | None":
        """A solver with the derivative of this one that takes its start for the solution.

        Reverse differentiation evaluates a step a second time, when its impulses are known. None,
        the default, if the derivative depends on the iterates: the step is then solved again.

        remembers: whether the forces of the last step are part of the motion (`State.row_forces`)
        """
        return None


def at_rest(problem: RowProblem) -> Impulses:
    """No impulse anywhere."""
    zero = jnp.zeros_like(problem.rate)
    return zero, of_bounds([coordinate_rows(problem, zero)] * len(problem.bounds))


def no_solution(problem: RowProblem) -> RowSolution:
    """The solution of a problem without rows."""
    none = jnp.zeros(problem.rate.shape[2:], problem.rate.dtype)
    return RowSolution(problem.rate, of_bounds([]), none, none)


def of_bounds(parts: Sequence[Array]) -> Array:
    """Numbers (coordinate rows, *batch) of all bounds stacked, (laws, coordinate rows, *batch);
    an empty array where nothing is bounded.
    """
    batch = jnp.broadcast_shapes(*(x.shape[1:] for x in parts))
    whole = [jnp.broadcast_to(x, (len(x), *batch)) for x in parts]
    return jnp.stack(whole) if whole else jnp.zeros((0, 0))


def body_velocities(problem: RowProblem, impulse: Array) -> Array:
    """Change of each body's twist in body axes after impulses, shape (6, bodies, *batch)."""
    return velocities(problem.bodies, impulse)[0][:, :-1]


def row_speeds(problem: RowProblem, velocity: Array) -> Array:
    """Speeds Hᵀ v of the rows that act on bodies, (rows, their nodes, *batch), where the bodies
    have the twists v, (6, bodies + 1, *batch).
    """
    if not problem.bodies.H:
        return jnp.zeros((problem.structure.rows, 0, *velocity.shape[2:]), velocity.dtype)
    return speeds_on(problem.bodies.H, problem.structure.way.sides, velocity)


def speeds(problem: RowProblem, impulse: Array) -> Array:
    """Speeds of all rows after impulses, less the targets of hard ones."""
    return problem.rate + delassus(problem, impulse)


def delassus(problem: RowProblem, impulse: Array) -> Array:
    """A Λ, through the bodies."""
    velocity, along = velocities(problem.bodies, impulse)
    acting = row_speeds(problem, velocity)
    return acting if along is None else jnp.concatenate([acting, along], axis=1)


def mobility(problem: RowProblem) -> Array:
    """Diagonal of A, 0 for rows that nothing moves, (rows, nodes, *batch)."""
    if problem.mobility is not None:
        return problem.mobility
    structure = problem.structure
    return mobility_of_rows(problem.bodies, structure.rows, structure.nodes)


def still(problem: RowProblem) -> Array:
    """True for rows that nothing moves, (rows, nodes, *batch): rows that do not exist, rows that
    are switched off, and rows whose wrench vanishes, such as that of a rope whose ends meet.
    """
    A = mobility(problem)
    # The square of a smaller A_ii would underflow, and the square of 1/A_ii overflow.
    return A <= jnp.finfo(A.dtype).tiny ** 0.5


def diagonal(problem: RowProblem) -> Array:
    """Diagonal of A, (rows, nodes, *batch). Rows that nothing moves (`still`) get the entry of the
    first row of their node, such as the normal of a contact, or 1.
    """
    # Protects divisions by A_ii, and their derivatives, from rows that nothing moves.
    A, idle = mobility(problem), still(problem)
    return jnp.where(idle, jnp.where(idle[:1], 1.0, A[:1]), A)


def resting(problem: RowProblem) -> RowProblem:
    """The problem with a determined force in each row that nothing moves (`still`).

    No force of such a row changes its speed. A hard row or a hard stop, which asks for a speed,
    exerts none. A hard law with two bounds gives way by `UNMOVED`: it exerts its bound, or nothing
    where nothing slips. Linear and soft laws keep their force. No body feels this force, but
    derivatives do: it moves bodies as soon as the wrench is not zero.
    """
    idle, fixed = _idle(problem), coordinate_rows(problem, still(problem))
    share = UNMOVED[problem.rate.dtype.itemsize] * coordinate_rows(problem, diagonal(problem))
    return replace(
        problem,
        rate=jnp.where(idle, 0.0, problem.rate),
        # A unit pivot.
        compliance=jnp.where(idle, 1.0, problem.compliance),
        bounds=tuple(_resting(bound, fixed, share) for bound in problem.bounds),
    )


def _idle(problem: RowProblem) -> Array:
    """True for hard rows without compliance that nothing moves, (rows, nodes, *batch)."""
    hard = trailing(problem.structure.hard, problem.rate) > 0
    return hard & still(problem) & (problem.compliance <= 0)


def _resting(bound: Bound, fixed: Array, share: Array) -> Bound:
    """A bound as in `resting`.

    fixed: True for coordinate rows that nothing moves
    share: compliance of a hard law with two bounds in these rows, speed per impulse
    """
    hard = fixed & (bound.compliance <= 0)
    if bound.upper is None:
        return replace(bound, present=jnp.where(hard, 0.0, bound.present))
    return replace(bound, compliance=jnp.where(hard, share, bound.compliance))


def scale(problem: RowProblem) -> Array:
    """1/A_ii + K₀, (coordinate rows, *batch): the impulse that changes the speed of a coordinate
    row by one against its linear law, all other rows being free.
    """
    return 1 / coordinate_rows(problem, diagonal(problem)) + problem.augmented_stiffness


def regularized(problem: RowProblem) -> RowProblem:
    """The problem `resting`, with the regularization of its hard rows.

    The regularization is in the matrix alone; a correction removes it to second order.
    """
    A = materialize(_without_rounding(problem, mobility(problem)))
    problem = replace(problem, mobility=A)
    if not problem.structure.has_hard:
        return resting(problem)
    precision = A.dtype.itemsize
    rounding = ROUNDINGS * float(jnp.finfo(A.dtype).eps)
    share = rounding if problem.structure.independent else REGULARIZATION[precision]
    # Soft rows get the difference to their compliance only: it stays exact, and its derivative.
    lacking = jnp.maximum(share * _uncancelled(problem) - stop_gradient(problem.compliance), 0.0)
    problem = resting(problem)
    hard = trailing(problem.structure.hard, A)
    added = stop_gradient(lacking * hard)
    compliance, added = materialize((problem.compliance, added))
    return replace(problem, compliance=compliance, regularization=added)


def _without_rounding(problem: RowProblem, A: Array) -> Array:
    """The diagonal of A, with 0 in place of rounding errors of 0 in coordinate rows that act on
    bodies, such as friction across the plane of a linkage whose links touch.
    """
    structure = problem.structure
    mask = ~structure.hard
    mask[:, structure.way.nodes :] = False
    if problem.bodies.tree is None or not mask.any():
        return A
    # A_ii is a sum of squares: its rounding error is the square of a rounding.
    least = (UNMOVING * float(jnp.finfo(A.dtype).eps)) ** 2 * _uncancelled(problem)
    return jnp.where((trailing(mask, A) > 0) & (A <= least), 0.0, A)


def _uncancelled(problem: RowProblem) -> Array:
    """The diagonal of A without cancellation, (rows, nodes, *batch): Σ_b H_bᵀ M_b⁻¹ H_b.

    Without tree joints it is A_ii. With tree joints A_ii may cancel: rows of a loop that depend on
    each other move nothing. It is 0 for rows along coordinates, which depend on no other row.
    """
    A, bodies = mobility(problem), problem.bodies
    if bodies.tree is None:
        return A
    free = jnp.zeros_like(A)
    for H, (nodes, at) in zip(bodies.H, bodies.way.sides, strict=True):
        body = np.array(at)
        mass, inertia = bodies.inverse_mass[body], bodies.inverse_inertia[:, :, body]
        free = add_at(free, np.array(nodes), dot(H, over_mass(mass, inertia, H)), 1)
    return free


def bare_laws(
    problem: RowProblem,
    Λ: Array,
    smoothing: Array | float | None,
    laws: Laws | None = None,
) -> Potential | None:
    """The laws of all bounds without floors; friction is bounded by the impulses Λ of coordinate
    rows.

    laws: `RowProblem.laws`, where they are known
    """
    if not problem.bounds:
        return None
    laws = problem.laws if laws is None else laws
    none = jnp.zeros((1,), problem.rate.dtype).reshape((1,) * (problem.rate.ndim - 1))
    return potential(widened(laws, Λ), scale(problem), none, none, smoothing)


def cancelling(problem: RowProblem, impulse: Array) -> Array:
    """Largest speed that impulses of all rows cancel, shape (*batch)."""
    # Stored: XLA does not vectorize a kernel that both computes and reduces.
    parts = materialize(jnp.abs(problem.rate) + diagonal(problem) * jnp.abs(impulse))
    return parts.max(axis=(0, 1), initial=0.0)


def residual(
    problem: RowProblem, laws: Potential | None, at: Impulses, speed: Array
) -> tuple[Array, Array]:
    """Largest violation of a row's law, as a speed, and the largest speed that impulses cancel;
    both constant for differentiation.

    laws: of all bounds, None where nothing is bounded; speed: of all rows after the impulses
    at: `RowProblem.packed`
    """
    speed = jnp.where(_idle(problem), 0.0, speed)
    problem, laws, at, speed = stop_gradient((resting(problem), laws, at, speed))
    impulse, bounded = at
    structure = problem.structure
    size = cancelling(problem, impulse)
    worst = jnp.zeros_like(size)
    if structure.has_hard:
        missed = jnp.abs(speed + problem.compliance * impulse) * trailing(structure.hard, speed)
        worst = materialize(missed).max(axis=(0, 1))
    if not structure.row:
        return worst, size
    u, Λ = coordinate_rows(problem, speed), coordinate_rows(problem, impulse)
    linear = Λ if laws is None else Λ - total(laws, bounded)
    remainder = linear + problem.augmented_stiffness * u - problem.impulse
    missed = jnp.abs(remainder) / scale(problem)
    if laws is not None:
        missed = missed + laws.rows.summed(violation(laws, bounded, laws.rows.at_laws(u)))
    return jnp.maximum(worst, materialize(missed).max(axis=0)), size


def excess(problem: RowProblem, at: Impulses) -> Array | None:
    """`RowSolution.excess` of `packed` impulses; constant for differentiation."""
    if not problem.follows:
        return None
    problem, (impulse, bounded) = stop_gradient((problem, at))
    Λ = coordinate_rows(problem, impulse)
    laws = bare_laws(problem, Λ, None)
    force = radius(laws, bounded)
    beyond = jnp.maximum(laws.lower - force, force - laws.upper)
    beyond = beyond / laws.rows.at_laws(scale(problem))
    # By the static structure, not by μ > 0: a μ of 0 bounds friction too.
    follows = np.array(laws.rows.normal) != laws.rows.row
    follows = follows.reshape(-1, *(1,) * (Λ.ndim - 1))
    return materialize(jnp.where(follows, jnp.maximum(beyond, 0.0), 0.0)).max(axis=0)


def coordinate_rows(problem: RowProblem, x: Array) -> Array:
    """The coordinate rows of x (rows, nodes, *batch), shape (coordinate rows, *batch)."""
    return take(_in_one(x), problem.structure.places, 0)


def with_coordinate_rows(structure: RowStructure, x: Array, values: Array) -> Array:
    """x (rows, nodes, *batch) with its coordinate rows replaced."""
    batch = jnp.broadcast_shapes(x.shape[2:], values.shape[1:])
    x = jnp.broadcast_to(x, (*x.shape[:2], *batch))
    values = jnp.broadcast_to(values, (len(values), *batch))
    return replaced(_in_one(x), structure.places, values).reshape(x.shape)


def _in_one(x: Array) -> Array:
    """x (rows, nodes, *batch) with one axis for rows and nodes."""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def trailing(constant: np.ndarray, like: Array) -> Array:
    """A constant (rows, nodes) with axes of size 1 for the batch."""
    shape = constant.shape + (1,) * (like.ndim - constant.ndim)
    return jnp.asarray(constant, like.dtype).reshape(shape)
