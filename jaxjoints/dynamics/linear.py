"""Linear models about a state, of the motion and of a time step, and operating points.

Both are in independent coordinates x = (q, q̇): on a tree all coordinates; on loops those of chosen
joints, which the loops' rows determine all others by.
"""

from collections.abc import Iterable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient

from ..algebra.calls import public
from ..algebra.compiler import quickly
from ..algebra.pytree import expand_trailing, replace, struct
from ..algebra.spatial import quat_from_rotation_vector, quat_multiply, quat_normalize
from ..model.kinematics import Mechanism, joint_coordinates, system_kinematics
from ..model.measures import element_errors
from ..model.state import Control, State
from ..model.system import System
from ..model.table import axes, has_numbers, without_numbers
from ..schemes.projection import projected
from ..schemes.scheme import Scheme
from ..simulate.door import check_scheme, check_time_step, entered, read_count
from ..simulate.step import DEFAULT_SCHEME, step
from ..simulate.surface import coordinate_speeds
from .acceleration import at_instant, check_rigid, ready
from .joint_coordinates import constraints
from .selection import indices_of, named
from .tree import SpanningTree, columns, spanning_tree, tree_speeds, world_twists

# Largest change of a coordinate in one step towards an operating point [m or rad].
STRIDE = 0.5
# Newton steps below this are always taken: they come from near an equilibrium [m or rad].
SHORT = 0.05
# Steps that close the loops again after each of them.
CLOSING = 3
# What the next step would change, and joints are open by, where an operating point is found [m or
# rad], by the bytes of a number.
FOUND = {4: 1e-4, 8: 1e-9}


@struct
class LinearModel:
    """How deviations x = (δq, δq̇) of k independent coordinates go on under m efforts u = δτ.

    Of the motion ẋ = A x + B u + c, of a step x⁺ = A x + B u + c.

    A: shape (2 k, 2 k, *batch); B: shape (2 k, m, *batch)
    c: what goes on at x = u = 0, shape (2 k, *batch): (q̇, q̈), or for a step the changes of q and q̇

    >>> from jaxjoints import Hinge, SystemBuilder
    >>> world = SystemBuilder(gravity=(0.0, 0.0, -10.0))
    >>> arm = world.body("arm", mass=1.0, inertia=(1.5, 1.5, 1.5), com=(0.0, 0.0, 1.0))
    >>> _ = world.joint("shoulder", Hinge((0.0, 1.0, 0.0)), child=arm)
    >>> model = linear_model(*world.build())
    >>> print(jnp.linalg.eigvals(model.A).real.max().round(4))  # it falls as exp(t √(m g l/I))
    2.0
    """

    A: Array
    B: Array
    c: Array

    def __repr__(self) -> str:
        """Sizes, and how far it is from resting."""
        if not has_numbers(self) or np.ndim(self.A) < 2 or np.ndim(self.B) < 2:
            return without_numbers(self)
        largest = np.abs(np.asarray(self.c)).max(initial=0.0)
        return (
            f"LinearModel of {np.shape(self.A)[0] // 2} coordinates under {np.shape(self.B)[1]} "
            f"efforts{axes(np.shape(self.A)[2:])}: A x + B u + c, x = (δq, δq̇), u = δτ\n"
            f"A {np.shape(self.A)}, B {np.shape(self.B)}, c {np.shape(self.c)} of at most "
            f"{largest:.2g}; go on with model.A, model.B, model.c"
        )


@struct
class OperatingPoint:
    """Where a mechanism rests.

    state: at rest
    residual: largest acceleration of an independent coordinate there, shape (*batch)
    found: whether it is an equilibrium: one more Newton step would change no coordinate by more
        than 1e-9 (1e-4 in float32), and joints are as closed, bool (*batch)

    >>> from jaxjoints import Slider, SpringDamper, SystemBuilder
    >>> world = SystemBuilder(gravity=(0.0, 0.0, -10.0))
    >>> load = world.body("load", mass=2.0, inertia=(1.0, 1.0, 1.0))
    >>> spring = SpringDamper(stiffness=100.0)
    >>> _ = world.joint("rail", Slider((0.0, 0.0, 1.0)), child=load, laws=spring)
    >>> rest = operating_point(*world.build())
    >>> print(rest.state.q.round(6), rest.found)  # -m g/k
    [-0.2] True
    """

    state: State
    residual: Array
    found: Array


@public
def linear_model(
    system: System,
    state: State,
    control: Control | None = None,
    *,
    independent: Iterable[str] | None = None,
    actuated: Iterable[str] | None = None,
    dt: Array | float | None = None,
    scheme: Scheme = DEFAULT_SCHEME,
) -> LinearModel:
    """The linear model of the motion about a state, or of one time step.

    The state should lie on the surfaces of the joints, in velocities too (`project`).

    control: what acts at the state, held over a step
    independent: names of the joints whose coordinates determine all others; by default all joints,
        which suits a tree without transmissions and constraints
    actuated: names of the joints whose efforts are u, all by default
    dt: length of the step [s]; None for the motion
    scheme: of the step
    Raises: ValueError for bodies that no joint places, for independent coordinates of a wrong
        number, and as `accelerations` and `step`

    >>> from jaxjoints import Hinge, SystemBuilder
    >>> world = SystemBuilder(gravity=(0.0, 0.0, -10.0))
    >>> arm = world.body("arm", mass=1.0, inertia=(1.0, 1.0, 1.0), com=(0.0, 0.0, -1.0))
    >>> _ = world.joint("shoulder", Hinge((0.0, 1.0, 0.0)), child=arm)
    >>> model = linear_model(*world.build())
    >>> print(model.A[1].round(3), model.B[1].round(3))  # -m g l/I, 1/I
    [-5.  0.] [0.5]
    """
    call = "linear_model"
    system, state, control, independent = with_independent(
        call, system, state, control, independent
    )
    actuated = indices_of(call, "actuated", system, actuated)
    if dt is None:
        return _of_motion(system, state, control, independent=independent, actuated=actuated)
    check_time_step(dt)
    check_scheme(call, scheme)
    dt = jnp.asarray(dt, state.position.dtype)
    return _of_step(system, state, control, dt, scheme, independent=independent, actuated=actuated)


@public
def operating_point(
    system: System,
    state: State,
    control: Control | None = None,
    *,
    independent: Iterable[str] | None = None,
    iterations: int = 50,
) -> OperatingPoint:
    """An equilibrium near a state, under a control, by Newton's method on q̈ = 0.

    Stable or not: that of an inverted pendulum too. Once a step has made the accelerations larger,
    the mechanism is let down: Newton steps are taken where they lead along q̈, other steps follow q̈
    itself, to an equilibrium below. The derivative is that of the equilibrium.

    independent: as for `linear_model`
    iterations: steps; each changes a coordinate by at most 0.5 m or rad
    Returns: the state, and whether it is an equilibrium; start elsewhere where it is none
    Raises: ValueError as `linear_model`
    """
    call = "operating_point"
    system, state, control, independent = with_independent(
        call, system, state, control, independent
    )
    steps = read_count(call, "iterations", iterations)
    return _operating_point(system, state, control, independent=independent, steps=steps)


def with_independent(
    call: str,
    system: System,
    state: State,
    control: Control | None,
    names: Iterable[str] | None,
) -> tuple[System, State, Control, tuple[int, ...]]:
    """Checked arguments, and the places of the independent coordinates.

    call: name of the function, for errors
    names: of the joints whose coordinates determine all others, or None for all joints of a tree

    Raises: ValueError for bodies that no joint places, and for names that close loops
    """
    control = Control() if control is None else control
    system, state, control = entered(call, system, state, control)
    check_rigid(call, system)
    tree = spanning_tree(system)
    if tree.roots:
        bodies = named(system.topology.bodies[b] for b in tree.roots)
        raise ValueError(
            f"{call}: no joint places {bodies}; add a joint to the world, such as FreeEuler()"
        )
    independent = indices_of(call, "independent", system, names)
    coupling = (*tree.loops, *system.topology.transmissions, *_holding(system))
    if names is None and coupling:
        raise ValueError(
            f"{call}: {named(coupling)} makes coordinates depend on each other; name joints whose "
            "coordinates determine all others: independent="
        )
    extra = set(independent) - set(tree.coordinates)
    if extra:
        joints = system.topology.joints
        closing = [n for n in joints if extra & set(indices_of(call, "independent", system, n))]
        raise ValueError(
            f"{call}: independent {named(closing)} closes a loop; name joints that place bodies: "
            f"{named(n for n in joints if n not in tree.loops)}"
        )
    return system, state, control, independent


def _holding(system: System) -> list[str]:
    """The constraints that hold positions or velocities: those on accelerations alone leave all
    states possible.
    """
    held = [
        member
        for group in system.constraints
        if group.constraint.position_rows or group.constraint.velocity_rows
        for member in group.members
    ]
    return [system.topology.constraints[member] for member in sorted(held)]


@partial(quickly, static_argnames=("independent", "actuated"))
def _of_motion(
    system: System,
    state: State,
    control: Control,
    *,
    independent: tuple[int, ...],
    actuated: tuple[int, ...],
) -> LinearModel:
    mechanism, state, control = ready(system, state, control)
    at = np.array(independent, int)

    def rate(x, u):
        dq, dqd = jnp.split(x, 2)
        speed = _speed(mechanism, state, at)
        new = deviated(mechanism, spanning_tree(system), state, at, dq, speed + dqd)
        now = at_instant(mechanism, new, _with_effort(system, state, control, actuated, u))
        return jnp.concatenate([speed + dqd, now.qdd[at]])

    return _model(rate, state, len(at), len(actuated))


@partial(quickly, static_argnames=("independent", "actuated"))
def _of_step(
    system: System,
    state: State,
    control: Control,
    dt: Array,
    scheme: Scheme,
    *,
    independent: tuple[int, ...],
    actuated: tuple[int, ...],
) -> LinearModel:
    mechanism, state, control = ready(system, state, control)
    at = np.array(independent, int)
    speed = _speed(mechanism, state, at)
    start = jnp.concatenate([_coordinates(mechanism, state)[at], speed])

    def after(x, u):
        dq, dqd = jnp.split(x, 2)
        new = deviated(mechanism, spanning_tree(system), state, at, dq, speed + dqd)
        acting = _with_effort(system, state, control, actuated, u)
        new, _ = step(system, new, acting, dt=dt, scheme=scheme)
        return jnp.concatenate([new.q[at], coordinate_speeds(system, new)[at]]) - start

    return _model(after, state, len(at), len(actuated))


@partial(quickly, static_argnames=("independent", "steps"))
def _operating_point(
    system: System,
    state: State,
    control: Control,
    *,
    independent: tuple[int, ...],
    steps: int,
) -> OperatingPoint:
    mechanism, state, control = ready(system, state, control)
    tree, at = spanning_tree(system), np.array(independent, int)
    none = jnp.zeros((len(at), *state.time.shape), state.position.dtype)

    def at_rest(state):
        still = {"velocity": jnp.zeros_like(state.velocity), "omega": jnp.zeros_like(state.omega)}
        return replace(state, **still)

    def qdd(mechanism, control, state):
        return at_instant(mechanism, state, control).qdd[at]

    def qdd_nearby(state, dq):
        return qdd(*constants, deviated(constants[0], tree, state, at, dq, none))

    def moved(state, step):
        state = at_rest(deviated(mechanism, tree, state, at, step, none))
        state = jax.lax.fori_loop(0, CLOSING, lambda _, x: projected(constants[0], x), state)
        # Springs know how often a coordinate has turned.
        return replace(state, q=_coordinates(constants[0], state))

    def iterate(search, _):
        state, stride, falling, before, _ = search
        now, slope = _value_and_jacobian(partial(qdd_nearby, state), none)
        step = -_solved(slope, now)
        far = jnp.max(jnp.abs(step), axis=0) > SHORT
        falling = falling | (far & (jnp.sum(now**2, axis=0) > jnp.sum(before**2, axis=0)))
        # Steps that lead to and fro get shorter.
        turned = falling & (jnp.sum(now * before, axis=0) < 0)
        stride = jnp.where(turned, stride / 2, stride)
        against = jnp.sum(step * now, axis=0) <= 0
        size = jnp.max(jnp.abs(now), axis=0)
        # Protects the division from a mechanism at rest.
        fall = now * (stride / jnp.where(size > 0, size, 1.0))[None]
        step = jnp.clip(step, -stride[None], stride[None])
        step = jnp.where((falling & far & against)[None], fall, step)
        return (moved(state, step), stride, falling, now, slope), None

    # Iterates are constants. One more step has the derivative of the implicit function.
    constants, start = stop_gradient(((mechanism, control), at_rest(state)))
    one = jnp.ones_like(none[0])
    slope = jnp.zeros((len(at), *none.shape), none.dtype)
    search = (start, STRIDE * one, one < 0, jnp.inf + none, slope)
    (state, *_, slope), _ = jax.lax.scan(iterate, search, None, length=steps)
    state = projected(mechanism, stop_gradient(state))
    step = -_solved(stop_gradient(slope), qdd(mechanism, control, state))
    state = deviated(mechanism, tree, state, at, jnp.clip(step, -STRIDE, STRIDE), none)
    state = at_rest(projected(mechanism, state))
    state = replace(state, q=_coordinates(mechanism, state))
    open_by = jnp.max(jnp.abs(element_errors(mechanism, state)), axis=0, initial=0.0)
    found = jnp.maximum(jnp.max(jnp.abs(step), axis=0), open_by) <= FOUND[one.dtype.itemsize]
    residual = jnp.max(jnp.abs(qdd(mechanism, control, state)), axis=0)
    return OperatingPoint(state, residual, found)


def _model(function, state: State, k: int, m: int) -> LinearModel:
    """The model of a function of x (2 k, *batch) and u (m, *batch) about 0."""
    none = jnp.zeros((2 * k + m, *state.time.shape), state.position.dtype)
    value, slopes = _value_and_jacobian(lambda z: function(z[: 2 * k], z[2 * k :]), none)
    return LinearModel(slopes[:, : 2 * k], slopes[:, 2 * k :], value)


def _value_and_jacobian(function, at: Array) -> tuple[Array, Array]:
    """Value (r, *batch) and slopes (r, n, *batch) of (n, *batch) -> (r, *batch), environment by
    environment.
    """
    n = at.shape[0]
    basis = expand_trailing(jnp.eye(n, dtype=at.dtype), 2, at.ndim - 1)
    along = lambda e: jax.jvp(function, (at,), (jnp.broadcast_to(e, at.shape),))  # noqa: E731
    return jax.vmap(along, in_axes=1, out_axes=(None, 1))(basis)


def deviated(
    mechanism: Mechanism, tree: SpanningTree, state: State, at: np.ndarray, dq: Array, qd: Array
) -> State:
    """A state moved by changes of independent coordinates, to first order, and with their speeds.

    at: places of the independent coordinates; dq: changes, qd: speeds, both (k, *batch)
    """
    here = _dependent(mechanism, tree, state, at, dq, moving=False)
    shift = jnp.einsum("abi...,i...->ab...", columns(mechanism, tree, state), here)
    turn = quat_from_rotation_vector(shift[3:])
    new = replace(
        state,
        position=state.position + shift[:3],
        quaternion=quat_normalize(quat_multiply(turn, state.quaternion)),
    )
    ν = _dependent(mechanism, tree, new, at, qd, moving=True)
    twist = world_twists(mechanism, tree, new, ν)
    return replace(new, velocity=twist[:3], omega=twist[3:])


def _dependent(
    mechanism: Mechanism,
    tree: SpanningTree,
    state: State,
    at: np.ndarray,
    rates: Array,
    *,
    moving: bool,
) -> Array:
    """ν that the rates of the independent coordinates and all constraints give, (speeds, *batch).

    moving: whether surfaces that depend on time move on
    """
    place = {coordinate: i for i, coordinate in enumerate(tree.coordinates)}
    if len(at) == tree.speeds:
        # All are independent: no constraint has a say.
        order = np.argsort([place[i] for i in at])
        return rates[order]
    K, k = constraints(mechanism, tree, state)
    chosen = np.zeros((len(at), tree.speeds))
    chosen[np.arange(len(at)), [place[i] for i in at]] = 1.0
    chosen = expand_trailing(jnp.asarray(chosen, K.dtype), 2, K.ndim - 2)
    chosen = jnp.broadcast_to(chosen, (*chosen.shape[:2], *K.shape[2:]))
    right = jnp.concatenate([k if moving else jnp.zeros_like(k), rates])
    return _solved(jnp.concatenate([K, chosen]), right)


def _solved(A: Array, b: Array) -> Array:
    """Least squares of matrices (rows, columns, *batch) of full column rank."""
    A, b = jnp.moveaxis(A, (0, 1), (-2, -1)), jnp.moveaxis(b, 0, -1)
    Q, R = jnp.linalg.qr(A)
    y = jnp.einsum("...ji,...j->...i", Q, b, precision="highest")
    x = jax.scipy.linalg.solve_triangular(R, y[..., None])[..., 0]
    return jnp.moveaxis(x, -1, 0)


def _speed(mechanism: Mechanism, state: State, at: np.ndarray) -> Array:
    """q̇ of the independent coordinates, (k, *batch)."""
    tree = spanning_tree(mechanism.system)
    place = {coordinate: i for i, coordinate in enumerate(tree.coordinates)}
    return tree_speeds(mechanism, tree, state)[np.array([place[i] for i in at], int)]


def _coordinates(mechanism: Mechanism, state: State) -> Array:
    return joint_coordinates(mechanism, system_kinematics(mechanism, state), state)


def _with_effort(
    system: System, state: State, control: Control, actuated: tuple[int, ...], u: Array
) -> Control:
    effort = jnp.zeros((system.coordinates, *state.time.shape), u.dtype)
    effort = effort if control.effort is None else effort + control.effort
    return replace(control, effort=effort.at[np.array(actuated, int)].add(u))
