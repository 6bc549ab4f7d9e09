"""Brax's training on the releases of JAX that have dropped a function which it calls."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

with warnings.catch_warnings():
    # Brax imports JAXopt, which is no longer maintained and says so.
    warnings.simplefilter("ignore")
    from brax.training.agents.apg import train as apg
    from brax.training.agents.ppo import networks
    from brax.training.agents.ppo import train as ppo

__all__ = ["apg", "networks", "ppo"]


def replicated(tree, devices):
    """A copy on each device, along a first axis: `jax.device_put_replicated`."""
    spread = NamedSharding(Mesh(np.array(devices), ("devices",)), PartitionSpec("devices"))

    def copies(x):
        return jax.device_put(jnp.broadcast_to(x, (len(devices), *jnp.shape(x))), spread)

    return jax.tree.map(copies, tree)


# Brax 0.14.2 calls it; JAX has removed it in 0.10.
if jax.__version_info__ >= (0, 10):
    jax.device_put_replicated = replicated
