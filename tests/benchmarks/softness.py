"""What stiff limits or ground and the smoothing of the solver do to learning by gradients.

    python tests/benchmarks/softness.py [--task finger] [--iterations 80] [--window 16] [--seeds 1]

A task of `environments` is learned with soft and hard limits or ground, and with the solver's
smoothing. What the policies earn is measured without smoothing, in the task that they learned in
and in the task as it is by default. Norm and cosine, beside finite differences, are those of the
gradient of a window before and after learning.
"""

import argparse

import jax
import numpy as np

import jaxjoints as jj
from jaxjoints import environments, learning

# For each task its stiffnesses (None is hard) and its smoothings, of which the units are those of
# its limits and rows: [N m/rad, rad/s] or [N/m, m/s].
CASES = {
    "finger": ((0.1, 0.0), (1.0, 0.0), (10.0, 0.0), (100.0, 0.0), (1.0, 1.0), (100.0, 1.0)),
    "swing_up": ((6.0, 0.0), (60.0, 0.0), (600.0, 0.0), (None, 0.0), (60.0, 0.1), (None, 0.1)),
    "four_bar_leg": ((2e3, 0.0), (2e4, 0.0), (2e5, 0.0), (2e4, 0.01), (2e4, 0.1), (2e5, 0.1)),
    "hopper": ((2e3, 0.0), (2e4, 0.0), (2e5, 0.0), (None, 0.0), (None, 0.01), (None, 0.1)),
}
ENVS, HIDDEN = 32, (32, 32)


def main():
    """A row for each case."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", default="finger", choices=CASES)
    parser.add_argument("--iterations", type=int, default=80)
    parser.add_argument("--window", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    keys = jax.random.split(jax.random.key(7), 64)
    usual = environments.make(options.task)
    sizes = usual.observation_size, usual.action_size
    start = learning.gaussian(jax.random.key(3), *sizes, HIDDEN)
    search = {"envs": ENVS, "window": options.window, "hidden": HIDDEN}
    search["iterations"] = options.iterations
    idle = learning.earned(usual, keys, start)
    print(f"{options.task}: a fresh network earns {idle:.3f} per step\n")
    print("| stiffness | smoothing | earned there | earned by default | norm | cosine | after |")
    print("|---" * 7 + "|", flush=True)
    for stiffness, smoothing in CASES[options.task]:
        task = environments.make(options.task, stiffness=stiffness)
        scheme = jj.replace(task.scheme, solver=jj.Newton(smoothing=smoothing))
        smooth = jj.replace(task, scheme=scheme)
        earned, after = [], None
        for seed in range(options.seeds):
            found = learning.short_horizon(smooth, jax.random.key(seed), **search)
            there, by_default = (learning.earned(x, keys, found.parameters) for x in (task, usual))
            earned.append((there, by_default))
            after = after or found.parameters
        checks = [
            learning.agreement(smooth, jax.random.key(1), x, steps=options.window, envs=8)
            for x in (start, after)
        ]
        stiff = "hard" if stiffness is None else f"{stiffness:g}"
        cells = [", ".join(f"{x:.3f}" for x in np.sort(each)) for each in np.transpose(earned)]
        cells += [" → ".join(f"{check.norm:.2g}" for check in checks)]
        cells += [f"{check.cosine:.4f}" for check in checks]
        print(f"| {stiff} | {smoothing:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
