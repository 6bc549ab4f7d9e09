"""Chains of hinges driven into their stops, and the rows of a step of them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj
from support.mechanisms import rows_of_step

ENVIRONMENTS = 64
DT = 1e-3
# Rounding of float64 in speeds of some m/s through effective masses of ratio 1e4.
ROUNDING = 1e-9


def chain(links, laws):
    """Hinges about y, x, y, … hanging in a row, the given laws on each."""
    world = jj.SystemBuilder()
    parent = jj.WORLD
    for i in range(links):
        link = world.body(f"link{i}", mass=1.0, inertia=(0.02, 0.02, 0.002), com=(0.0, 0.0, -0.25))
        axis = (0.0, 1.0, 0.0) if i % 2 == 0 else (1.0, 0.0, 0.0)
        down = (0.0, 0.0, 0.0 if i == 0 else -0.5)
        world.joint(
            f"hinge{i}", jj.Hinge(axis=axis), child=link, parent=parent, frame_D=down, laws=laws
        )
        parent = link
    return world.build()


def violent(system, state, seed=0):
    """States at random within the limits, with random speeds that drive them into the stops."""
    rng = np.random.default_rng(seed)
    names = system.topology.joints
    near = rng.choice([-1.0, 1.0], (len(names), ENVIRONMENTS)) * rng.uniform(
        0.29, 0.3, (len(names), ENVIRONMENTS)
    )
    q = {name: jnp.asarray(one) for name, one in zip(names, near, strict=True)}
    qd = {name: jnp.asarray(10 * rng.standard_normal(ENVIRONMENTS)) for name in names}
    return system.state(q=q, qd=qd)


problem_of = jax.jit(partial(rows_of_step, dt=DT))
