"""What the stiffness of limits and the smoothing of the solver do to learning by gradients.

    python tests/benchmarks/softness.py [--iterations 80]

The finger of `environments` learns to put its tip to points, with elastic limits from soft to hard,
and with the solver's smoothing. What the policy earns is measured without smoothing. Norm and
cosine are those of the gradient of a window before it has learned, beside finite differences.
"""

import argparse

import jax

import jaxjoints as jj
from jaxjoints import environments, learning

# Stiffness [N m/rad] and smoothing [rad/s].
CASES = ((0.1, 0.0), (1.0, 0.0), (10.0, 0.0), (100.0, 0.0), (1.0, 0.1), (1.0, 1.0), (100.0, 1.0))
ENVS, WINDOW, HIDDEN = 32, 16, (32, 32)


def main():
    """A row for each case."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--iterations", type=int, default=80)
    iterations = parser.parse_args().iterations
    keys = jax.random.split(jax.random.key(7), 64)
    print("| stiffness | smoothing | earned per step | norm | cosine |\n|---|---|---|---|---|")
    for stiffness, smoothing in CASES:
        task = environments.finger()
        paths = [f"joint.{name}.limits.stiffness" for name in task.system.topology.joints]
        system = task.system.with_numbers(dict.fromkeys(paths, stiffness))
        task = jj.replace(task, system=system)
        scheme = jj.SemiImplicitEuler(solver=jj.Newton(smoothing=smoothing))
        smooth = jj.replace(task, scheme=scheme)
        options = {"envs": ENVS, "window": WINDOW, "hidden": HIDDEN, "iterations": iterations}
        found = learning.short_horizon(smooth, jax.random.key(0), **options)
        earned = learning.earned(task, keys, found.parameters)
        sizes = task.observation_size, task.action_size
        start = learning.gaussian(jax.random.key(3), *sizes, HIDDEN)
        check = learning.agreement(smooth, jax.random.key(1), start, steps=WINDOW, envs=8)
        cells = f"{stiffness:g} | {smoothing:g} | {earned:.3f} | {check.norm:.2g}"
        print(f"| {cells} | {check.cosine:.4f} |", flush=True)


if __name__ == "__main__":
    main()
