"""Makes JAX strict before any test: float64, no silent promotion of types or ranks, on the CPU."""

import os

# Read by JAX when it is first imported, here or in a subprocess that a test starts.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
