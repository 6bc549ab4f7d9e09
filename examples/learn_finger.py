"""A finger learns to put its tip to any point: by gradients through elastic limits, and without.

Two tendons pull at three joints, which springs and elastic limits hold. A policy is searched twice
with the same number of simulated steps: by gradients of short windows of the simulation, and by an
evolution strategy, which knows returns alone. The program prints how far from its point the tip
stays with either, and how well the gradient agrees with finite differences.

    python examples/learn_finger.py --iterations 150
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

from jaxjoints import environments, learning
from jaxjoints.environments.finger import LENGTHS

ENVS, WINDOW, HIDDEN = 32, 16, (32, 32)
SECOND = slice(50, None)  # steps of an episode in which the tip should have arrived


def distance(task, parameters):
    """Mean distance of the tip from its point in the second half of 64 new episodes [mm]."""
    episode = task.reset(jax.random.split(jax.random.key(7), 64))
    _, seen = environments.unroll(task, episode, learning.mean, parameters, steps=task.limit)
    return 1e3 * LENGTHS.sum() * float(-jnp.mean(seen.metrics["near"][SECOND]))


def searched(task, iterations, report=None):
    """What gradients find, and what the evolution strategy finds with as many steps."""
    key = jax.random.key(0)
    options = {"envs": ENVS, "hidden": HIDDEN, "report": report}
    gradient = learning.short_horizon(task, key, iterations=iterations, window=WINDOW, **options)
    generations = int(np.ceil(gradient.steps[-1] / (ENVS * task.limit)))
    return gradient, learning.evolution(task, key, iterations=generations, **options)


def main(iterations: int = 150) -> tuple[float, float]:
    """Distances of the tip from its point with either search [mm]."""
    task = environments.finger()
    gradient, evolved = searched(task, iterations)
    with_gradient, without = (distance(task, found.parameters) for found in (gradient, evolved))
    print(f"after {gradient.steps[-1]} steps by gradients: {with_gradient:.1f} mm from the point")
    print(f"after {evolved.steps[-1]} steps by evolution: {without:.1f} mm")
    check = learning.agreement(task, jax.random.key(1), gradient.parameters, steps=WINDOW, envs=8)
    print(f"norm of the gradient {check.norm:.2g}, cosine with differences {check.cosine:.4f}")
    assert with_gradient < 0.7 * without and check.cosine > 0.99
    return with_gradient, without


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--iterations", type=int, default=150)
    main(**vars(options.parse_args()))
