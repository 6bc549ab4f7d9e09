"""Domain randomization: any number of a mechanism, drawn for each environment by its path."""

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.calls import public
from ..algebra.options import check_kind, plain_numbers
from ..algebra.pytree import replace
from .environment import Environment, Task, folded

# A number of one environment from a random key and the number that the system has.
Draw = Callable[[Array, Any], Any]


@public
def randomized(environment: Task, key: Array, draws: Mapping[str, Draw]) -> Task:
    """An environment whose system has random numbers, drawn for each environment of a batch.

    A draw depends on the key of its environment and on the path alone, not on the size of the batch
    or on other numbers that are drawn.

    key: one of `jax.random` for each environment, shape (*batch): `jax.random.split(key, 4096)`
    draws: for each path (`System.with_numbers`) a function of a key and of the number of the
        system, without batch axes, such as `scaled(0.8, 1.2)`

    Raises: ValueError for an unknown path, with near matches; for what are no functions or keys;
        for an environment that has batch axes already

    >>> import jax
    >>> from jaxjoints import environments
    >>> swing_up = environments.make("swing_up")
    >>> stiffness = {"joint.shoulder.limits.stiffness": environments.scaled(0.5, 2.0)}
    >>> keys = jax.random.split(jax.random.key(0), 64)
    >>> many = environments.randomized(swing_up, keys, stiffness)
    >>> many.system.number("joint.shoulder.limits.stiffness").shape
    (64,)
    """
    check_kind("randomized:", "environment", environment, Environment, 'make("swing_up")')
    if environment.batch:
        raise ValueError(
            f"randomized: the system has the batch {environment.batch} already; draw all of its "
            "numbers in one call"
        )
    key = environment._read_key(key)
    numbers = {}
    for path, draw in draws.items():
        if not callable(draw):
            raise ValueError(
                f"randomized: {path!r} has {draw!r}; give a function of (key, number), such as "
                "environments.scaled(0.8, 1.2)"
            )
        nominal = environment.system.number(path)

        def draw_one(key, draw=draw, nominal=nominal):
            return jax.tree.map(lambda x: jnp.asarray(x, float), draw(key, nominal))

        for _ in range(key.ndim):
            draw_one = jax.vmap(draw_one, out_axes=-1)
        numbers[path] = draw_one(folded(key, zlib.crc32(path.encode())))
    return replace(environment, system=environment.system.with_numbers(numbers))


@public
def scaled(lower: float, upper: float) -> Draw:
    """A number times a factor drawn uniformly between two, the same for all parts of a record."""
    _check_range("scaled", lower, upper)

    def draw(key: Array, number: Any) -> Any:
        factor = jax.random.uniform(key, minval=lower, maxval=upper)
        return jax.tree.map(lambda x: factor.astype(x.dtype) * x, number)

    return draw


@public
def uniform(lower: float, upper: float) -> Draw:
    """Numbers drawn uniformly between two, independent of each other and of the system's."""
    _check_range("uniform", lower, upper)

    def draw(key: Array, number: Any) -> Any:
        shape, dtype = jnp.shape(number), jnp.result_type(number)
        return jax.random.uniform(key, shape, dtype, minval=lower, maxval=upper)

    return draw


def _check_range(call: str, lower: float, upper: float) -> None:
    for field, value in (("lower", lower), ("upper", upper)):
        if not isinstance(value, jax.Array) and plain_numbers(value) is None:
            raise ValueError(f"{call}: {field} {value!r} must be a number")
    if not lower <= upper:
        raise ValueError(f"{call}: lower {lower} must not be above upper {upper}")
