"""Inverse dynamics: efforts for wanted accelerations, on trees, loops and underactuated systems."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.compiler import quickly
from ..algebra.pytree import expand_trailing, replace, struct
from ..model.batch import batch_shape, is_single
from ..model.state import Control, State
from ..model.system import System
from ..schemes.instant import TOUCHING, Touch
from ..simulate.door import entered, read_count
from .acceleration import Accelerations, at_instant, check_rigid, ready
from .selection import indices_of, values_of

# Singular values of what efforts do to accelerations that count as none, by the bytes of a number:
# above what the regularization of redundant rows leaves of them.
LEAST = {4: 1e-5, 8: 1e-9}


@struct
class InverseDynamics:
    """Efforts, and what they do.

    effort: along each coordinate [N or N m], 0 where nothing is actuated, (coordinates, *batch);
        `Control(effort=…)` applies it
    miss: largest difference to a wanted acceleration [m/s² or rad/s²], shape (*batch)
    now: accelerations and forces under these efforts

    >>> from jaxjoints import Cylindrical, SystemBuilder
    >>> world = SystemBuilder(gravity=(0.0, 0.0, -10.0))
    >>> drill = world.body("drill", mass=2.0, inertia=(0.1, 0.1, 0.1))
    >>> _ = world.joint("quill", Cylindrical((0.0, 0.0, 1.0)), child=drill)
    >>> wanted = {"quill": (0.0, 3.0)}
    >>> motor = inverse_dynamics(*world.build(), wanted, actuated=("quill.1",))
    >>> print(motor.effort.round(6), motor.miss.round(6))  # nothing carries the drill
    [0.  0.3] 10.0
    """

    effort: Array
    miss: Array
    now: Accelerations


@public
def inverse_dynamics(
    system: System,
    state: State,
    acceleration: Mapping[str, Any],
    control: Control | None = None,
    *,
    actuated: Iterable[str] | None = None,
    touch: Touch = TOUCHING,
    iterations: int = 2,
) -> InverseDynamics:
    """Efforts under which coordinates accelerate as wanted, with all that `accelerations` knows.

    Accelerations depend on efforts as q̈ = q̈₀ + R τ. The efforts are τ = R⁺ (q̈ - q̈₀) with the
    pseudo-inverse of R, which says what they are in all cases:

    * as many efforts as independent accelerations: those of the equation of motion, exactly;
    * more efforts, such as two motors on a four-bar: of all that do it, the least in Στ²;
    * fewer: the accelerations that are nearest in Σ(q̈ - wanted)², and `miss` says how far off.

    Accelerations that are not wanted are what they become. Where stops, contacts or friction act,
    R depends on which of them hold; each iteration takes those that hold under its efforts. For the
    bodies of a tree, with efforts on all coordinates, `tree_forces` takes a tenth of the time.

    acceleration: wanted q̈ by joint [m/s² or rad/s²], a number or shape (dof, *batch), or by single
        coordinates, "hip.1", as in `System.state`; `actuated` likewise
    control: what else acts; its efforts are not counted in the result
    actuated: names of the joints that have efforts, all by default; no `max_effort` bounds them
    touch: what counts as touching and as sticking
    iterations: how often R is taken; 1 is exact where nothing is bounded, to rounding times the
        condition of R, and each further one refines that
    Raises: ValueError as `accelerations`, and for names and numbers that do not fit

    >>> from jaxjoints import Hinge, SystemBuilder
    >>> world = SystemBuilder(gravity=(0.0, 0.0, -9.81))
    >>> arm = world.body("arm", mass=2.0, inertia=(0.1, 0.1, 0.02), com=(0.0, 0.0, -0.5))
    >>> _ = world.joint("shoulder", Hinge((0.0, 1.0, 0.0)), child=arm, q=0.3)
    >>> system, state = world.build()
    >>> print(inverse_dynamics(system, state, {"shoulder": 1.0}).effort.round(3))
    [3.499]
    """
    call = "inverse_dynamics"
    system, state, control = entered(call, system, state, Control() if control is None else control)
    check_rigid(call, system)
    iterations = read_count(call, "iterations", iterations)
    wanted, values = values_of(call, "acceleration", system, acceleration)
    efforts = indices_of(call, "actuated", system, actuated)
    values, batch = values.astype(state.position.dtype), batch_shape(system, state, control)
    if values.shape[1:] not in ((), batch):
        raise ValueError(
            f"{call}: acceleration has batch axes {values.shape[1:]}, other arrays have "
            f"{batch}; give the state its batch too, see `replicate`"
        )
    return _inverse_dynamics(
        *(system, state, values, control, touch), wanted=wanted, efforts=efforts, steps=iterations
    )


@public
def gravity_compensation(
    system: System,
    state: State,
    control: Control | None = None,
    *,
    actuated: Iterable[str] | None = None,
    touch: Touch = TOUCHING,
) -> InverseDynamics:
    """Efforts that hold a mechanism at rest where it is: against gravity, springs and the control.

    Where the actuated joints cannot hold it, `miss` is the acceleration that is left. The arguments
    are those of `inverse_dynamics`; the velocities of the state are not read.
    """
    still = {"velocity": jnp.zeros_like(state.velocity), "omega": jnp.zeros_like(state.omega)}
    sizes = ((name, system.coordinate(name)) for name in system.topology.joints)
    wanted = {name: np.zeros(at.stop - at.start) for name, at in sizes if at.stop > at.start}
    return inverse_dynamics(
        system, replace(state, **still), wanted, control, actuated=actuated, touch=touch
    )


@partial(quickly, where=is_single, static_argnames=("wanted", "efforts", "steps"))
def _inverse_dynamics(
    system: System,
    state: State,
    values: Array,
    control: Control,
    touch: Touch,
    *,
    wanted: tuple[int, ...],
    efforts: tuple[int, ...],
    steps: int,
) -> InverseDynamics:
    mechanism, state, control = ready(system, state, control)
    batch, dtype = state.time.shape, state.position.dtype
    at, of = np.array(efforts, int), np.array(wanted, int)
    given = jnp.zeros((system.coordinates, *batch), dtype)
    given = given if control.effort is None else given + control.effort
    values = jnp.broadcast_to(expand_trailing(values, 1, len(batch)), (len(of), *batch))

    def reached(effort):
        now = at_instant(mechanism, state, replace(control, effort=given.at[at].add(effort)), touch)
        return now.qdd[of], now

    def closer(effort, _):
        along = lambda e: jax.jvp(lambda x: reached(x)[0], (effort,), (e,))  # noqa: E731
        basis = expand_trailing(jnp.eye(len(at), dtype=dtype), 2, len(batch))
        basis = jnp.broadcast_to(basis, (len(at), len(at), *batch))
        qdd, R = jax.vmap(along, in_axes=1, out_axes=(None, 1))(basis)
        rest = values - qdd + jnp.einsum("ij...,j...->i...", R, effort, precision="highest")
        return _least_squares(R, rest), None

    none = jnp.zeros((len(at), *batch), dtype)
    effort, _ = jax.lax.scan(closer, none, None, length=steps)
    qdd, now = reached(effort)
    miss = jnp.max(jnp.abs(qdd - values), axis=0, initial=0.0)
    return InverseDynamics(jnp.zeros_like(given).at[at].set(effort), miss, now)


def _least_squares(R: Array, b: Array) -> Array:
    """R⁺ b of matrices (rows, columns, *batch) and vectors (rows, *batch)."""
    R, b = jnp.moveaxis(R, (0, 1), (-2, -1)), jnp.moveaxis(b, 0, -1)
    inverse = jnp.linalg.pinv(R, rtol=LEAST[R.dtype.itemsize])
    x = jnp.einsum("...ij,...j->...i", inverse, b, precision="highest")
    return jnp.moveaxis(x, -1, 0)
