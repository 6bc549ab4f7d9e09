"""The problem of a motion: system, start, costs, bounds, constraints in one record."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from ..algebra.calls import public
from ..algebra.options import brief, check_count, check_function, plain_numbers
from ..algebra.pytree import static, struct
from ..dynamics.selection import indices_of
from ..model.batch import batch_shape
from ..model.state import State
from ..model.system import System
from ..schemes.scheme import Scheme
from ..schemes.semi_implicit_euler import SemiImplicitEuler
from ..simulate.door import check_scheme, check_time_step, entered, full

# Closes the joints at the end of each step, so that a state is its coordinates and speeds.
CLOSED = SemiImplicitEuler(projections=2)


@struct
class Knot:
    """Where one environment is at the start of a control interval, or at the end of the horizon.

    system: its numbers
    state: its bodies; `state.time` is the time [s]
    q, qd: all coordinates and their speeds on the surfaces of the joints, shape (coordinates,)

    >>> from jaxjoints import Slider, SystemBuilder, coordinate_speeds
    >>> world = SystemBuilder()
    >>> _ = world.body("cart", mass=2.0, inertia=(1.0, 1.0, 1.0))
    >>> _ = world.joint("rail", Slider((1.0, 0.0, 0.0)), child="cart", qd=3.0)
    >>> system, start = world.build()
    >>> def energy_left(knot):
    ...     return 0.5 * knot.system.mass[0] * knot.qd[0] ** 2
    >>> knot = Knot(system, start, start.q, coordinate_speeds(system, start))
    >>> print(energy_left(knot))  # m v²/2
    9.0
    """

    system: System
    state: State
    q: Array
    qd: Array


Running = Callable[[Knot, Array], Any]
Terminal = Callable[[Knot], Any]


@public
@dataclass(frozen=True)
class Problem:
    """Controls of least cost over a horizon, which bounds and constraints limit.

        minimize    Σ_k running(knot_k, u_k) + terminal(knot_N)      over u_0 … u_(N-1)
        where       knot_(k+1) follows from knot_k by `substeps` steps of dt under u_k,
                    lower ≤ u_k ≤ upper,  constraints(knot_k, u_k) ≤ 0,
                    final_constraints(knot_N) ≤ 0

    Every function is pure, of one environment, and sees no batch axes. A new function object is
    compiled anew. Pass numbers that change between calls by `jax.tree_util.Partial(function,
    numbers)`: they need no compilation. The cost is a sum over intervals: multiply by their length
    for an integral.

    system, start: each shared, or with one batch axis at the end for a problem in each environment
    running: (knot, u) → cost of an interval; u: efforts [N or N m], shape (actuated,)
    terminal: knot → cost of the end
    horizon: number N of control intervals
    dt: time step [s]; substeps: steps of an interval, its control held
    actuated: joints whose coordinates have the efforts u, in this order; all by default
    lower, upper: bounds of u, a number or shape (actuated,); None for none
    constraints: (knot, u) → numbers that must not be positive, shape (any,)
    final_constraints: knot → numbers that must not be positive at the end, shape (any,)
    independent: joints whose coordinates determine all other coordinates; needed by methods that
        linearize, where the mechanism has loops, transmissions or constraints
    scheme: integrator. The default closes the joints at each step, so that coordinates and speeds
        determine the next step

    >>> import jax.numpy as jnp
    >>> from jaxjoints import Slider, SystemBuilder
    >>> world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    >>> _ = world.body("cart", mass=1.0, inertia=(1.0, 1.0, 1.0))
    >>> _ = world.joint("rail", Slider((1.0, 0.0, 0.0)), child="cart")
    >>> system, start = world.build()
    >>> def effort(knot, u):
    ...     return 0.05 * jnp.sum(u**2)
    >>> def rest_at_one(knot):
    ...     return 100 * jnp.sum((knot.q - 1.0) ** 2 + knot.qd**2)
    >>> problem = Problem(system, start, effort, rest_at_one, horizon=20, dt=0.05)
    >>> problem.horizon * problem.substeps * problem.dt  # [s]
    1.0
    """

    system: System
    start: State
    running: Running | None = None
    terminal: Terminal | None = None
    _: KW_ONLY
    horizon: int
    dt: float
    substeps: int = 1
    actuated: Any = None
    lower: Any = None
    upper: Any = None
    constraints: Running | None = None
    final_constraints: Terminal | None = None
    independent: Any = None
    scheme: Scheme = CLOSED


@struct
class Task:
    """A problem in the form that programs take: float arrays, one batch axis, functions as trees.

    start: with the batch axis; lower, upper: shape (actuated, 1)
    unit: of each effort, half the range of its bounds, or 1 without, shape (actuated, 1)
    alone: whether the user's arrays have no batch axis
    """

    system: System
    start: State
    running: Partial
    terminal: Partial
    constraints: Partial
    final_constraints: Partial
    dt: Array
    lower: Array
    upper: Array
    unit: Array
    scheme: Scheme
    horizon: int = static()
    substeps: int = static()
    actuated: tuple[int, ...] = static()
    alone: bool = static()

    @property
    def batch(self) -> int:
        """Number of environments."""
        return int(self.start.time.shape[0])


def prepared(call: str, problem: Any) -> Task:
    """The problem in standard form.

    call: name of the function, for errors
    Raises: ValueError for what is no problem, for counts, names, bounds and axes that do not fit,
        and for functions that return something else than they shall
    """
    if not isinstance(problem, Problem):
        raise ValueError(f"{call}: problem {brief(problem)} must be an optimization.Problem")
    check_count(call, "horizon", problem.horizon, 1)
    check_count(call, "substeps", problem.substeps, 1)
    check_time_step(problem.dt)
    check_scheme(call, problem.scheme)
    system, start, _ = entered(call, problem.system, problem.start)
    batch = batch_shape(system, start, None)
    if len(batch) > 1:
        raise ValueError(
            f"{call}: system and start have batch axes {batch}; give them one, flat, at the end"
        )
    alone = not batch
    start = full(start, batch)
    if alone:
        start = jax.tree.map(lambda x: x[..., None], start)
    actuated = indices_of(call, "actuated", system, problem.actuated)
    if not actuated:
        raise ValueError(f"{call}: actuated {problem.actuated!r} has no coordinate to act on")
    dtype = start.position.dtype
    bounds = [
        _bound(call, field, getattr(problem, field), other, len(actuated))
        for field, other in (("lower", -np.inf), ("upper", np.inf))
    ]
    if not (bounds[0] < bounds[1]).all():
        raise ValueError(f"{call}: lower {problem.lower} must be below upper {problem.upper}")
    half = (bounds[1] - bounds[0]) / 2
    unit = np.where(np.isfinite(half), half, 1.0)
    lower, upper, unit = (jnp.asarray(x[:, None], dtype) for x in (*bounds, unit))
    if problem.running is None and problem.terminal is None:
        raise ValueError(f"{call}: the problem has neither a running nor a terminal cost")
    functions = {
        "running": (problem.running, _no_cost),
        "terminal": (problem.terminal, _no_cost),
        "constraints": (problem.constraints, _no_constraint),
        "final_constraints": (problem.final_constraints, _no_constraint),
    }
    task = Task(
        system,
        start,
        **{name: _function(call, name, *pair) for name, pair in functions.items()},
        dt=jnp.asarray(problem.dt, dtype),
        lower=lower,
        upper=upper,
        unit=unit,
        scheme=problem.scheme,
        horizon=int(problem.horizon),
        substeps=int(problem.substeps),
        actuated=actuated,
        alone=alone,
    )
    _check_results(call, task)
    return task


def first_controls(call: str, task: Task, guess: Any) -> Array:
    """Controls to begin with, inside the bounds, shape (horizon, actuated, batch).

    guess: of this shape, without the batch axis, or None for zeros
    """
    shape = (task.horizon, len(task.actuated))
    if guess is None:
        guess = np.zeros(shape)
    if np.shape(guess) not in (shape, (*shape, task.batch)):
        more = "" if task.alone else f", or {(*shape, task.batch)} with the batch axis at the end"
        raise ValueError(
            f"{call}: guess has shape {np.shape(guess)}; it must be {shape}, (horizon, "
            f"actuated){more}"
        )
    guess = jnp.asarray(guess, task.dt.dtype)
    if not bool(jnp.isfinite(guess).all()):
        raise ValueError(f"{call}: guess has NaN or infinity; give finite efforts")
    guess = guess if guess.ndim == 3 else guess[..., None]
    guess = jnp.broadcast_to(guess, (*shape, task.batch))
    return jnp.clip(guess, task.lower[None], task.upper[None])


def one_environment(system: System, tree: Any) -> tuple[System, Any]:
    """Numbers of the first environment of a batch, without batch axes."""
    leaves, structure = jax.tree.flatten(system)
    ranks = system.topology.ranks
    leaves = [x[..., 0] if x.ndim > r else x for x, r in zip(leaves, ranks, strict=True)]
    return jax.tree.unflatten(structure, leaves), jax.tree.map(lambda x: x[..., 0], tree)


def _no_cost(knot: Knot, u: Array | None = None) -> Array:
    return jnp.zeros((), knot.q.dtype)


def _no_constraint(knot: Knot, u: Array | None = None) -> Array:
    return jnp.zeros(0, knot.q.dtype)


def _function(call: str, name: str, function: Any, otherwise: Callable) -> Partial:
    if function is None:
        function = otherwise
    arguments = ("knot",) if name in ("terminal", "final_constraints") else ("knot", "u")
    check_function(f"{call}:", name, function, *arguments)
    return function if isinstance(function, Partial) else Partial(function)


def _bound(call: str, field: str, value: Any, otherwise: float, size: int) -> np.ndarray:
    if value is None:
        value = otherwise
    bound = plain_numbers(value)
    if bound is None or bound.shape not in ((), (size,)) or np.isnan(bound).any():
        raise ValueError(
            f"{call}: {field} {brief(value)} must be a number, or {size} of them, one for each "
            "effort"
        )
    return np.broadcast_to(bound, (size,))


def _check_results(call: str, task: Task) -> None:
    """Raise ValueError for functions that return other shapes than they shall."""
    system, state = one_environment(task.system, task.start)
    knot = Knot(system, state, state.q, state.q)
    u = jnp.zeros(len(task.actuated), task.dt.dtype)
    for name, arguments, rank, what in (
        ("running", (knot, u), 0, "one number"),
        ("terminal", (knot,), 0, "one number"),
        ("constraints", (knot, u), 1, "one array of numbers, shape (any,)"),
        ("final_constraints", (knot,), 1, "one array of numbers, shape (any,)"),
    ):
        result = jax.eval_shape(getattr(task, name), *arguments)
        if len(getattr(result, "shape", "no array")) != rank:
            raise ValueError(f"{call}: {name} returns {result}; it must return {what}")
