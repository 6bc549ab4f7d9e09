"""A network of plain arrays, and the policies made of it."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.calls import public
from ..algebra.options import brief, check_count, check_key

Layers = list[tuple[Array, Array]]


@public
def network(key: Array, sizes: Sequence[int], *, last: float = 1.0) -> Layers:
    """Weights and biases of layers of these sizes; the last weights are scaled by `last`."""
    check_key("network:", key)
    if not isinstance(sizes, Sequence) or len(sizes) < 2:
        raise ValueError(
            f"network: sizes {brief(sizes)} must be the numbers of inputs, of each hidden layer "
            "and of outputs, such as (4, 32, 1)"
        )
    for size in sizes:
        check_count("network:", "sizes", size, 1)
    layers = []
    for n, m, one in zip(sizes[:-1], sizes[1:], jax.random.split(key, len(sizes) - 1), strict=True):
        scale = (last if len(layers) == len(sizes) - 2 else 1.0) / n**0.5
        layers.append((scale * jax.random.normal(one, (m, n)), jnp.zeros(m)))
    return layers


@public
def evaluated(layers: Layers, x: Array) -> Array:
    """The network's output at x, tanh between the layers."""
    for W, b in layers[:-1]:
        x = jnp.tanh(W @ x + b)
    W, b = layers[-1]
    return W @ x + b


def _known(parameters: Any) -> dict[str, Any]:
    """Parameters of `gaussian`; ValueError for others."""
    if not isinstance(parameters, dict) or not {"layers", "spread"} <= parameters.keys():
        raise ValueError(
            f"policy: parameters {brief(parameters)} must be those of `gaussian`, as a search "
            "returns them in `Learned.parameters`"
        )
    return parameters


@public
def gaussian(key: Array, observations: int, actions: int, hidden: Sequence[int]) -> dict[str, Any]:
    """Parameters of `sampled` and `mean`: a network, and the logarithm of the spread."""
    layers = network(key, (observations, *hidden, actions), last=0.1)
    # Of a type of its own, as after a step of an optimizer: nothing compiles anew for it.
    return {"layers": layers, "spread": jnp.full(actions, -1.0, layers[0][0].dtype)}


@public
def sampled(parameters: dict[str, Any], obs: Array, key: Array) -> Array:
    """An action with noise before the tanh that keeps it within ±1."""
    parameters = _known(parameters)
    noise = jax.random.normal(key, parameters["spread"].shape, obs.dtype)
    action = evaluated(parameters["layers"], obs)
    return jnp.tanh(action + jnp.exp(parameters["spread"]) * noise)


@public
def mean(parameters: dict[str, Any], obs: Array, key: Array) -> Array:
    """The action of `sampled` without noise."""
    return jnp.tanh(evaluated(_known(parameters)["layers"], obs))
