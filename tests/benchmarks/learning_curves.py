"""Returns of Brax's PPO against steps and time, on tasks of jaxjoints and on Brax's own.

    python tests/benchmarks/learning_curves.py [--tasks cart_pole,hopper] [--seeds 1] [--minutes 8]

The trainer and its settings are the same on both sides; `--backends` names pipelines of Brax. A
training ends after `--steps` steps of the environment, or with the first evaluation after so many
minutes. The tasks are alike, not the same: a step of cart_pole is worth about 1 on both sides, but
Brax ends it at a tilt of 0.2 rad, ours at 0.6 rad. Times begin before anything is compiled.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import jax

sys.path.insert(0, str(Path(__file__).parents[1]))

from tasks import IN_BRAX  # noqa: E402

from jaxjoints import environments  # noqa: E402
from jaxjoints.environments.brax import BraxEnvironment  # noqa: E402
from support.brax_training import ppo  # noqa: E402

# As Brax trains its inverted pendulum, with fewer environments.
SETTINGS = {
    "learning_rate": 3e-4,
    "entropy_cost": 1e-2,
    "discounting": 0.97,
    "unroll_length": 5,
    "num_minibatches": 8,
    "num_updates_per_batch": 4,
    "normalize_observations": True,
}
# Rewards of a step are of the size of this.
SCALE = {"cart_pole": 1.0, "hopper": 3.0}


class Enough(Exception):
    """The time of a training is over."""


def environment(name, engine):
    """A task of jaxjoints as Brax's `Env`, or Brax's own by the name of a pipeline."""
    if engine == "jaxjoints":
        return BraxEnvironment(environments.make(name))
    from brax import envs

    return envs.get_environment(IN_BRAX[name], backend=engine)


def train(name, engine, seed, options):
    """Print a row for each evaluation of one training."""
    start, processor = time.perf_counter(), time.process_time()

    def told(steps, metrics):
        seconds = time.perf_counter() - start
        value, spread = (float(metrics[f"eval/episode_reward{x}"]) for x in ("", "_std"))
        length = float(metrics["eval/avg_episode_length"])
        rate = float(metrics.get("training/sps", 0.0))
        spent = time.process_time() - processor
        numbers = f"{seconds:.0f}", f"{spent:.0f}", f"{value:.1f}", f"{spread:.1f}", f"{length:.0f}"
        cells = name, engine, str(seed), f"{steps:,}", *numbers, f"{rate:,.0f}"
        print(f"| {' | '.join(cells)} |", flush=True)
        if seconds > 60 * options.minutes:
            raise Enough

    try:
        ppo.train(
            environment=environment(name, engine),
            num_timesteps=options.steps,
            num_envs=options.envs,
            batch_size=options.envs,
            num_evals=options.evals,
            num_eval_envs=options.eval_envs,
            episode_length=options.length,
            reward_scaling=1.0 / SCALE.get(name, 1.0),
            progress_fn=told,
            seed=seed,
            **SETTINGS,
        )
    except Enough:
        pass
    # Programs of a training are of no use to the next one.
    jax.clear_caches()


def main():
    """Train on each side in turn, seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", default="cart_pole,hopper")
    parser.add_argument("--backends", default="generalized")
    parser.add_argument("--seeds", type=int, default=1, help="how many trainings of each")
    parser.add_argument("--steps", type=int, default=400_000)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--envs", type=int, default=256)
    parser.add_argument("--evals", type=int, default=11)
    parser.add_argument("--eval-envs", type=int, default=32)
    parser.add_argument("--length", type=int, default=500, help="steps of an episode")
    options = parser.parse_args()
    titles = "task", "engine", "seed", "steps", "time [s]", "processor [s]", "return", "spread"
    print(f"| {' | '.join(titles)} | length | steps/s in training |")
    print("|---" * 10 + "|", flush=True)
    for name in options.tasks.split(","):
        for seed in range(options.seeds):
            for engine in filter(None, ["jaxjoints", *options.backends.split(",")]):
                train(name, engine, seed, options)


if __name__ == "__main__":
    # Brax's own code, not ours.
    warnings.filterwarnings("ignore", module="brax|jaxopt|flax")
    main()
