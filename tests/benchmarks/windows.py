"""How long the windows of a policy gradient must be where a task asks for patience.

    python tests/benchmarks/windows.py [--windows 16,32,64,128] [--seeds 3] [--budget 204800]

The arm of `swing_up` learns with windows of several lengths, discounts and starts, on the same
budget of steps of the environment, beside evolution. All policies are judged by whole episodes that
begin hanging: what they earn, and what the arm does in the second half of them. A policy that holds
the arm still as high as its motor can has it at 0.42 rad.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

from jaxjoints import environments, learning, struct
from jaxjoints.environments.swing_up import LOWER, UPPER

ENVS = 64


@struct
class FromAnywhere(environments.SwingUp):
    """The same task, which starts at rest at any angle between the stops."""

    def draw(self, key):
        """See `Environment`."""
        q = jax.random.uniform(key, (1,), self.start.q.dtype, minval=LOWER, maxval=UPPER)
        return self.system.state(q={"shoulder": q})


def judged(task, parameters):
    """What is earned per step, the mean of the highest points; angle, speed, action later on."""
    episode = task.reset(jax.random.split(jax.random.key(7), 64))
    _, seen = environments.unroll(task, episode, learning.mean, parameters, steps=task.limit)
    sine, cosine, speed = jnp.moveaxis(seen.obs[task.limit // 2 :], 1, 0)
    angle = jnp.mean(jnp.arctan2(sine, cosine))
    late = angle, jnp.sqrt(jnp.mean((4 * speed) ** 2)), jnp.mean(jnp.abs(seen.action[75:]))
    return [jnp.mean(seen.reward), jnp.mean(jnp.max(seen.metrics["height"], axis=0)), *late]


def main():
    """A row for each way to learn, with the median of the seeds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--windows", default="16,32,64,128")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=int, default=204_800, help="steps of the environments")
    options = parser.parse_args()
    task = environments.swing_up()
    fields = {name: getattr(task, name) for name in task.__dataclass_fields__}
    anywhere = FromAnywhere(**fields)
    cases = [(f"gradients, {w} steps", task, int(w), d) for w, d in wanted(options.windows)]
    cases.append(("gradients, 16 steps, from any angle", anywhere, 16, 0.98))
    cases.append(("evolution", task, None, None))
    cases.append(("evolution, from any angle", anywhere, None, None))
    print("| search | discount | earned per step | highest | angle | speed | action | norm | s |")
    print("|---" * 9 + "|", flush=True)
    for name, learned_on, window, discount in cases:
        rows, norms, began = [], [], time.perf_counter()
        for seed in range(options.seeds):
            key, count = jax.random.key(seed), {"envs": ENVS}
            if window is None:
                count["iterations"] = max(1, options.budget // (ENVS * task.limit))
                found = learning.evolution(learned_on, key, **count)
            else:
                count |= {"window": window, "discount": discount}
                count["iterations"] = max(1, options.budget // (ENVS * window))
                found = learning.short_horizon(learned_on, key, **count)
            rows.append(judged(task, found.parameters))
            norms.append(np.max(found.norms))
        took = (time.perf_counter() - began) / options.seeds
        each = np.array(rows, float)
        middle = np.median(each, axis=0)
        spread = ", ".join(f"{x:.2f}" for x in np.sort(each[:, 0]))
        cells = [name, discount, spread, *(f"{x:.2f}" for x in middle[1:])]
        print(f"| {' | '.join(map(str, cells))} | {max(norms):.2g} | {took:.0f} |", flush=True)
        jax.clear_caches()


def wanted(windows):
    """Windows with their discounts: of the default, and nearer to 1."""
    return [(window, discount) for window in windows.split(",") for discount in (0.98, 0.995)]


if __name__ == "__main__":
    main()
