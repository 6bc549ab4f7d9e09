"""Controllers of a rollout: functions of the state; records with parameters, memory, noise."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.options import brief, check_function, check_key
from ..algebra.pytree import expand, map_trailing, static, struct
from ..model.state import Control, State
from ..model.system import System
from .captured import noted
from .door import expanded, with_control

# Errors of JAX for Python code that asks for a value it does not know yet.
UNKNOWN_VALUE = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)


@struct
class Inputs:
    """What a `Controller` hands to its function beside the state, of one environment.

    system: the environment's own numbers
    shared, batched, memory: as in the `Controller`, without batch axes
    key: a random key, different for each environment and each control interval, or None

    >>> from jaxjoints import Control, Slider, SystemBuilder
    >>> world = SystemBuilder()
    >>> cart = world.body("cart", mass=1.0, inertia=(0.1, 0.1, 0.1))
    >>> _ = world.joint("rail", Slider((1.0, 0.0, 0.0)), child=cart, q=0.1)
    >>> system, state = world.build()
    >>> def spring(state, inputs):
    ...     return Control(effort=-inputs.shared * state.q)
    >>> inputs = Inputs(system, shared=40.0, batched=None, memory=None, key=None)
    >>> print(spring(state, inputs).effort)  # 40 N/m stretched by 0.1 m
    [-4.]
    """

    system: System
    shared: Any
    batched: Any
    memory: Any
    key: Array | None


@struct
class Controller:
    """A control law with parameters, memory and noise, for `controls` of a `rollout`.

    function(state, inputs) returns the `Control` of one environment for one control interval, or
    (Control, memory) where the controller has a memory. It sees no batch axes. Define the function
    once, not anew for each rollout. Put all numbers that change between calls into the fields: they
    may be differentiated, and changed without another compilation.

    shared: a tree of arrays that all environments share, such as the weights of a network
    batched: a tree of arrays with the batch axes at the end, such as a gain for each environment
    memory: a tree of arrays with the batch axes at the end, what the controller starts from
    key: a random key (`jax.random.key`) for noise that depends neither on the batch size nor on
        tiles
    interval: number of the next control interval; keys depend on it

    >>> import jax
    >>> from jaxjoints import Control, Controller, Hinge, SystemBuilder, rollout
    >>> world = SystemBuilder()
    >>> arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.02), com=(0.0, 0.0, -0.5))
    >>> shoulder = world.joint("shoulder", Hinge(axis=(0.0, 1.0, 0.0)), child=arm, q=0.3)
    >>> system, state = world.build()
    >>> def noisy(state, inputs):
    ...     return Control(effort=inputs.shared * jax.random.normal(inputs.key, (1,)))
    >>> controls = Controller(noisy, shared=0.1, key=jax.random.key(0))
    >>> final, records, controls = rollout(system, state, controls, dt=1e-3, steps=10)
    """

    function: Callable = static()
    shared: Any = None
    batched: Any = None
    memory: Any = None
    key: Array | None = None
    interval: Array | int = 0

    def __post_init__(self):
        check_function("Controller", "function", self.function, "state", "inputs")
        if self.key is not None:
            check_key("Controller:", self.key)

    def check(self, batch: tuple[int, ...]) -> None:
        """Raise ValueError for arrays without the batch axes of a rollout at their end."""
        for field in ("batched", "memory"):
            for path, leaf in jax.tree_util.tree_leaves_with_path(getattr(self, field)):
                shape = jnp.shape(leaf)
                if shape[len(shape) - len(batch) :] != batch or len(shape) < len(batch):
                    name = field + jax.tree_util.keystr(path)
                    raise ValueError(
                        f"Controller: {name} has shape {shape}; its last axes must be the batch "
                        f"{batch}. What all environments share belongs into `shared`"
                    )


@struct
class Course:
    """A controller under way: what its next interval depends on.

    place: number of each environment in the whole batch, shape (*batch)
    """

    memory: Any
    interval: Array
    place: Array

    def ranks(self, axes: int) -> list[int]:
        """Of each leaf, its number of axes without the `axes` batch axes."""
        return [*(jnp.ndim(x) - axes for x in jax.tree.leaves(self.memory)), 0, 0]


def started(controls: Any, batch: tuple[int, ...]) -> Course | None:
    """Where a controller begins; None for what is no `Controller`."""
    if not isinstance(controls, Controller):
        return None
    controls.check(batch)
    place = np.arange(int(np.prod(batch))).reshape(batch)
    return Course(controls.memory, jnp.asarray(controls.interval, jnp.int32), jnp.asarray(place))


def control_of(
    controls: Any, system: System, state: State, course: Course | None
) -> tuple[Control, Course | None]:
    """Control of all environments for one interval by a function of the state or a `Controller`.

    system: as the user passed it
    """
    axes = state.time.ndim
    try:
        if course is None:
            each = partial(map_trailing, controls, axes)
            return _checked(system, state, noted("controller", state, each, state)), None
        result, memory = noted("controller", state, _controlled, controls, system, state, course)
    except UNKNOWN_VALUE as error:
        raise ValueError(
            "rollout: the controller decides in Python about a value that is known only when the "
            "program runs; use jnp.where(condition, a, b) in place of `if`, and jnp for numpy"
        ) from error
    course = Course(memory, course.interval + 1, course.place)
    return _checked(system, state, result), course


def _controlled(
    controls: Controller, system: System, state: State, course: Course
) -> tuple[Any, Any]:
    axes = state.time.ndim
    wide = expand(system, list(system.topology.ranks), axes)

    def of_one(state, system, batched, memory, place):
        key = None
        if controls.key is not None:
            key = jax.random.fold_in(jax.random.fold_in(controls.key, place), course.interval)
        inputs = Inputs(system, controls.shared, batched, memory, key)
        result = controls.function(state, inputs)
        if controls.memory is None:
            return result, None
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ValueError(
                "Controller: its function must return (Control, memory), as it has a memory; it "
                f"returned {type(result).__name__}"
            )
        return result

    batched = jax.tree.map(jnp.asarray, controls.batched)
    return map_trailing(of_one, axes, state, wide, batched, course.memory, course.place)


def _checked(system: System, state: State, control: Any) -> Control:
    """The control that a function returned, in one form."""
    if not isinstance(control, Control):
        raise ValueError(f"control: {brief(control)} of the controller must be a Control(effort=…)")
    return expanded(with_control(system, state, control), state.time.ndim)
