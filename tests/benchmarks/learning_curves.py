"""Returns of Brax's PPO against steps and time, on tasks of jaxjoints and on Brax's own.

    python tests/benchmarks/learning_curves.py [--tasks cart_pole,hopper] [--seeds 5] [--transfer]
        [--out curves.json] [--picture curves.png]
    python tests/benchmarks/learning_curves.py --tasks ant --seeds 1      on a GPU

The trainer and its settings are the same on both sides; `--backends` names pipelines of Brax. The
tasks are alike, not the same: a step of cart_pole is worth about 1 on both sides, but Brax's lasts
0.04 s, has up to 300 N and ends an episode at a tilt of 0.2 rad; ours has 0.02 s, 10 N and 0.6 rad.
The rows of trainings have the time of all, with compilation. The summary and the picture have the
time of training and evaluation alone: where JAX has traced or compiled between two evaluations,
the median of the other intervals stands in. Trainings that `--out` has already are not run again.
`--transfer` simulates the policies of cart_pole in the other engines too.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import jax

sys.path.insert(0, str(Path(__file__).parents[1]))

from tasks import IN_BRAX  # noqa: E402

from jaxjoints import environments  # noqa: E402
from jaxjoints.environments.brax import BraxEnvironment  # noqa: E402
from support.brax_training import networks, ppo  # noqa: E402

SHARED = {
    **{"num_envs": 256, "normalize_observations": True},
    **{"num_eval_envs": 32, "deterministic_eval": True},
}
SETTINGS = {
    # As Brax trains its inverted pendulum, with fewer environments.
    "cart_pole": {
        **{"num_timesteps": 307_200, "num_evals": 16, "episode_length": 500},
        **{"batch_size": 256, "num_minibatches": 8, "unroll_length": 5, "learning_rate": 3e-4},
        **{"num_updates_per_batch": 4, "discounting": 0.97, "entropy_cost": 1e-2},
    },
    "hopper": {
        **{"num_timesteps": 256_000, "num_evals": 6, "episode_length": 1000},
        **{"batch_size": 64, "num_minibatches": 16, "unroll_length": 10, "learning_rate": 1e-3},
        **{"num_updates_per_batch": 8, "discounting": 0.99, "entropy_cost": 1e-2},
        "reward_scaling": 0.1,
        "network_factory": partial(
            networks.make_ppo_networks,
            policy_hidden_layer_sizes=(64, 64),
            value_hidden_layer_sizes=(128, 128),
        ),
    },
    # For a GPU, as Brax trains its ant, with fewer steps.
    "ant": {
        **{"num_timesteps": 10_000_000, "num_evals": 11, "episode_length": 1000, "num_envs": 4096},
        **{"batch_size": 2048, "num_minibatches": 32, "unroll_length": 5, "learning_rate": 3e-4},
        **{"num_updates_per_batch": 4, "discounting": 0.97, "entropy_cost": 1e-2},
        "reward_scaling": 10,
    },
}
# Returns whose time is told; a hopper or an ant that stands earns 1000.
THRESHOLDS = {"cart_pole": 475.0, "hopper": 1000.0, "ant": 1500.0}
COLOURS = {"jaxjoints": "#c03a2b"}


class Compilation:
    """Seconds in which JAX has traced and compiled, of which some contain others."""

    def __init__(self):
        self.spans = []
        jax.monitoring.register_event_duration_secs_listener(self.heard)

    def heard(self, event, duration, **_):
        if event.startswith("/jax/core/compile/"):
            end = time.perf_counter()
            while self.spans and self.spans[-1][0] >= end - duration:
                self.spans.pop()
            self.spans.append((end - duration, end))

    def seconds(self):
        return sum(end - start for start, end in self.spans)


def environment(name, engine):
    """A task of jaxjoints as Brax's `Env`, or Brax's own by the name of a pipeline."""
    if engine == "jaxjoints":
        return BraxEnvironment(environments.make(name))
    from brax import envs

    return envs.get_environment(IN_BRAX[name], backend=engine)


def train(name, engine, seed, options, compilation):
    """One training: a row for each evaluation, printed too."""
    compilation.spans.clear()
    start, processor, rows = time.perf_counter(), time.process_time(), []

    def told(steps, metrics):
        row = {
            **{"steps": int(steps), "seconds": time.perf_counter() - start},
            **{"processor": time.process_time() - processor, "compiling": compilation.seconds()},
            "return": float(metrics["eval/episode_reward"]),
            "spread": float(metrics["eval/episode_reward_std"]),
            "length": float(metrics["eval/avg_episode_length"]),
        }
        rows.append(row)
        cells = name, engine, seed, *(f"{x:,.0f}" for x in row.values())
        print(f"| {' | '.join(map(str, cells))} |", flush=True)

    settings = SHARED | SETTINGS[name] | options.settings
    task = environment(name, engine)
    policy, parameters, _ = ppo.train(environment=task, progress_fn=told, seed=seed, **settings)
    training = {"task": name, "engine": engine, "seed": seed, "rows": rows}
    if options.transfer and name == "cart_pole":
        from transfers import transferred

        act = jax.jit(policy(parameters, deterministic=True))
        training["transfer"] = transferred(engine, act, settings["episode_length"])
        print(f"{name}, {engine}, seed {seed}: {training['transfer']}", flush=True)
    # Programs of a training are of no use to the next one.
    jax.clear_caches()
    return training


def without_compilation(rows, clock):
    """Seconds since the first evaluation; clock: "seconds" on the wall, or of the "processor"."""
    pairs = list(zip(rows, rows[1:], strict=False))
    lasted = [after[clock] - before[clock] for before, after in pairs]
    compiled = [after["compiling"] - before["compiling"] > 0.05 for before, after in pairs]
    clean = [x for x, other in zip(lasted, compiled, strict=True) if not other]
    usual = statistics.median(clean or lasted)
    times = [0.0]
    for x, other in zip(lasted, compiled, strict=True):
        times.append(times[-1] + (usual if other else x))
    return times


def reached(training):
    """Steps and seconds at the first evaluation above the threshold, or nothing."""
    rows = training["rows"]
    times = (without_compilation(rows, clock) for clock in ("seconds", "processor"))
    for row, *seconds in zip(rows, *times, strict=True):
        if row["return"] >= THRESHOLDS[training["task"]]:
            return row["steps"], *seconds
    return None


def shown(numbers):
    """Median and range."""
    if not numbers:
        return "none"
    return f"{statistics.median(numbers):,.0f} ({min(numbers):,.0f} to {max(numbers):,.0f})"


def groups(trainings):
    """Trainings by task and engine."""
    found = {}
    for training in trainings:
        found.setdefault((training["task"], training["engine"]), []).append(training)
    return found


def summarize(trainings):
    """A row for each task and engine: medians and ranges over the seeds."""
    titles = "task", "engine", "seeds", "return at the end", "highest return", "steps until"
    last = "steps/s", "steps/s of processor time", "compilation, processor time [s]"
    titles = (*titles, "time until [s]", "processor time until [s]", *last)
    print(f"\n| {' | '.join(titles)} |\n" + "|---" * len(titles) + "|")
    for (name, engine), ones in groups(trainings).items():
        firsts = [x for x in map(reached, ones) if x]
        rates = [
            [one["rows"][-1]["steps"] / without_compilation(one["rows"], clock)[-1] for one in ones]
            for clock in ("seconds", "processor")
        ]
        until = [shown([x[i] for x in firsts]) for i in range(3)]
        until[0] += f", {len(firsts)} of {len(ones)} reach {THRESHOLDS[name]:.0f}"
        # What is left of processor time; later seeds find programs in the cache.
        compiling = max(
            one["rows"][-1]["processor"] - without_compilation(one["rows"], "processor")[-1]
            for one in ones
        )
        ends = shown([one["rows"][-1]["return"] for one in ones])
        best = shown([max(row["return"] for row in one["rows"]) for one in ones])
        cells = name, engine, len(ones), ends, best, *until, *map(shown, rates), f"{compiling:.0f}"
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


def draw(trainings, path):
    """A line for each training: return against steps and against time, a line of plots a task."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(training["task"] for training in trainings))
    figure, axes = plt.subplots(
        *(len(names), 3), figsize=(9, 2.6 * len(names)), layout="constrained", squeeze=False
    )
    for (name, engine), ones in groups(trainings).items():
        line = axes[names.index(name)]
        label = engine if engine in COLOURS else f"Brax, {engine}"
        style = {"color": COLOURS.get(engine, "0.45"), "linewidth": 1.0}
        for i, one in enumerate(ones):
            rows = one["rows"]
            returns, steps = ([row[x] for row in rows] for x in ("return", "steps"))
            line[0].plot([x / 1000 for x in steps], returns, label=None if i else label, **style)
            for plot, clock in zip(line[1:], ("seconds", "processor"), strict=True):
                plot.plot(without_compilation(rows, clock), returns, **style)
    for name, line in zip(names, axes, strict=True):
        line[0].set_ylabel(f"{name}: return")
        for plot in line:
            plot.axhline(THRESHOLDS[name], color="0.8", linewidth=0.8, zorder=0)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    for plot, x in zip(
        axes[-1], ("steps [thousands]", "time [s]", "processor time [s]"), strict=True
    ):
        plot.set_xlabel(x)
    figure.savefig(path, dpi=110)


def given(text):
    """Settings of `ppo.train` that replace ours."""
    pairs = (setting.split("=") for setting in text.split(","))
    return {name: json.loads(value) for name, value in pairs}


def main():
    """Train on each side in turn, seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", default="cart_pole,hopper")
    parser.add_argument("--backends", default="generalized")
    parser.add_argument("--seeds", type=int, default=5, help="how many trainings of each")
    parser.add_argument("--settings", type=given, default={}, help="num_envs=64,num_evals=5")
    parser.add_argument("--transfer", action="store_true", help="simulate policies elsewhere too")
    parser.add_argument("--out", type=Path, help="JSON of all trainings, which is added to")
    parser.add_argument("--picture", help="PNG of the curves")
    options = parser.parse_args()
    compilation, trainings = Compilation(), []
    if options.out and options.out.exists():
        trainings = json.loads(options.out.read_text())
    there = {(one["task"], one["engine"], one["seed"]) for one in trainings}
    print("| task | engine | seed | steps | time [s] | processor [s] | compilation [s] ", end="")
    print("| return | spread | length |\n" + "|---" * 10 + "|", flush=True)
    for name in options.tasks.split(","):
        for seed in range(options.seeds):
            for engine in ["jaxjoints", *filter(None, options.backends.split(","))]:
                if (name, engine, seed) in there:
                    continue
                trainings.append(train(name, engine, seed, options, compilation))
                if options.out:
                    options.out.write_text(json.dumps(trainings, indent=1))
    summarize(trainings)
    if options.picture:
        draw(trainings, options.picture)


if __name__ == "__main__":
    # Brax's own code, not ours.
    warnings.filterwarnings("ignore", module="brax|jaxopt|flax")
    with tempfile.TemporaryDirectory() as folder:
        # The seeds of an engine share their programs.
        jax.config.update("jax_compilation_cache_dir", folder)
        main()
