"""What searches for a policy earn in equal times on one core: gradients, Brax's PPO, evolution.

    taskset -c 0 python tests/benchmarks/searches.py [--tasks finger,swing_up] [--seeds 3]
        [--searches gradients,PPO] [--seconds 1,5,20] [--tune 5] [--out searches.json]
        [--picture searches.png]

Times are processor time, which other programs on the core disturb least; `--out` has the time on
the wall too. Compilation and evaluation do not count. A return is the sum of rewards of an episode,
in the mean of 64 episodes without noise, which all searches share. Networks of policy and value
have two hidden layers of 32 in all searches.

Before its trainings a search tries some settings, as many as each other search of the task, for
`--tune` seconds each and with a seed that no training has; the trainings have the best of them, or
with `--tune 0` the first.
Gradients and evolution lower their rate of learning as they go on, so each time is that of a search
of its own, as long as that. PPO's rate is constant: its policy is evaluated as it goes on.
Trainings that `--out` has already are not run again. PPO needs the extra `brax`.
"""

import argparse
import json
import statistics
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from hand import hand
from trunk import trunk

from jaxjoints import environments, learning

HIDDEN, EPISODES = (32, 32), 64
# Of PPO, settings with which learning_curves.py trains the cart-pole and the hopper.
ALIKE = {"num_envs": 256, "normalize_observations": True, "entropy_cost": 1e-2}
HOPPER = {
    **{"batch_size": 64, "num_minibatches": 16, "unroll_length": 10, "num_updates_per_batch": 8},
    **{"discounting": 0.99, "reward_scaling": 0.1},
}
TRIES = {
    "gradients": [{}, {"discount": 0.9}],
    "PPO": [
        HOPPER | {"learning_rate": 1e-3},
        {
            **{"batch_size": 256, "num_minibatches": 8, "unroll_length": 5},
            **{"num_updates_per_batch": 4, "discounting": 0.97, "learning_rate": 3e-4},
        },
    ],
    "evolution": [{}, {"rate": 5e-2}],
}
# A swing is longer than a window of 16 steps.
SWINGS = {
    "gradients": {"window": 64, "discount": 0.995},
    "PPO": HOPPER | {"learning_rate": 3e-3},
    "evolution": {"rate": 5e-2, "envs": 256},
}
TASKS = "finger", "hand", "trunk", "stewart_platform", "four_bar_leg", "swing_up"
COLOURS = {"gradients": "#c03a2b", "PPO": "0.35", "evolution": "#2b6cb0"}
TUNED = 1000  # the seed of tries


class Clock:
    """Processor time and time on the wall of what a search does, without the rest."""

    def __init__(self):
        self.start()

    def start(self):
        self.began = time.process_time(), time.perf_counter()

    def passed(self):
        return time.process_time() - self.began[0], time.perf_counter() - self.began[1]


class Spent(Exception):
    """A training has had its time."""


def earned(task, policy, parameters):
    """Mean return of episodes that begin with the same keys in all searches."""
    keys = jax.random.split(jax.random.key(7), EPISODES)
    _, seen = environments.unroll(task, task.reset(keys), policy, parameters, steps=task.limit)
    first = jnp.cumsum(seen.done, axis=0) == seen.done
    return float(jnp.mean(jnp.sum(jnp.where(first, seen.reward, 0.0), axis=0)))


def by_iterations(search, task, seed, settings, seconds):
    """A row for each time: a search of that many seconds; and the time to compile."""
    search, clock = partial(search, task, hidden=HIDDEN, **settings), Clock()
    search(jax.random.key(seed), iterations=1)
    compiling = clock.passed()[0]
    iterations, rows = 8, []
    clock.start()
    search(jax.random.key(seed), iterations=iterations)
    for limit in seconds:
        # As fast as the last one, which is not always so.
        iterations = max(1, round(iterations * limit / clock.passed()[0]))
        clock.start()
        learned = search(jax.random.key(seed), iterations=iterations)
        spent = clock.passed()
        rows.append(row(*spent, learned.steps[-1], earned(task, learning.mean, learned.parameters)))
        # The next one is told by this one.
        clock.began = time.process_time() - spent[0], time.perf_counter() - spent[1]
    return rows, compiling


def by_ppo(task, seed, settings, seconds):
    """A row for each time, and some between them; and the time to compile."""
    from learning_curves import Compilation, networks, ppo

    from jaxjoints.environments.brax import BraxEnvironment

    factory = partial(
        networks.make_ppo_networks,
        policy_hidden_layer_sizes=HIDDEN,
        value_hidden_layer_sizes=HIDDEN,
    )
    compilation, clock, rows, policies, lasted = Compilation(), Clock(), [], [], []
    marks = sorted({*seconds, *np.geomspace(seconds[0], seconds[-1], 12)})
    compiling, before = [0.0], [0.0]

    def after_a_step(steps, make_policy, parameters):
        passed, compiled = clock.passed(), compilation.seconds() - before[0]
        if not policies:

            def act(parameters, obs, key):
                return make_policy(parameters, deterministic=True)(obs, key)[0]

            policies.append(act)
        # Steps with which JAX has compiled count as the others do.
        clean = compiled < 0.05
        lasted.append(passed if clean and steps else None)
        known = [x for x in lasted if x]
        compiling[0] += 0.0 if clean else passed[0]
        if known:
            usual = np.median(known, axis=0)
            spent = np.sum([usual if x is None else x for x in lasted[1:]], axis=0)
            if len(rows) < len(marks) and spent[0] >= marks[len(rows)]:
                found = earned(task, policies[0], parameters)
                while len(rows) < len(marks) and spent[0] >= marks[len(rows)]:
                    rows.append(row(*spent, steps, found))
            if len(rows) == len(marks):
                raise Spent
        before[0] = compilation.seconds()
        clock.start()

    settings = ALIKE | settings
    of_a_step = settings["batch_size"] * settings["num_minibatches"] * settings["unroll_length"]
    many = 10**6
    try:
        ppo.train(
            environment=BraxEnvironment(task),
            **{"num_timesteps": many * of_a_step, "num_evals": many + 1, "run_evals": False},
            **{"episode_length": task.limit, "network_factory": factory, "seed": seed},
            policy_params_fn=after_a_step,
            **settings,
        )
    except Spent:
        return rows, compiling[0]
    raise AssertionError("the training has ended before its time")


def row(processor, wall, steps, found):
    numbers = {"seconds": processor, "wall": wall, "steps": steps, "return": found}
    return {name: float(x) for name, x in numbers.items()}


SEARCHES = {
    "gradients": partial(by_iterations, learning.short_horizon),
    "PPO": by_ppo,
    "evolution": partial(by_iterations, learning.evolution),
}


def tries(name, search):
    """Settings to try."""
    return [*TRIES[search], *([SWINGS[search]] if name == "swing_up" else [])]


def trained(name, search, seed, number, seconds):
    """One training with the settings of a try."""
    settings = tries(name, search)[number]
    own = {"hand": hand, "trunk": trunk}
    task = own[name]() if name in own else environments.make(name)
    rows, compiling = SEARCHES[search](task, seed, settings, seconds)
    training = {"task": name, "search": search, "seed": seed, "settings": number}
    training |= {"compilation": compiling, "rows": rows}
    told = [f"{at(training, limit)['return']:.1f} after {limit:g} s" for limit in seconds]
    words = f"{name}, {search}, settings {number}, seed {seed}: {'; '.join(told)}"
    print(f"{words}; compiled in {compiling:.0f} s, {rows[-1]['steps']:,.0f} steps", flush=True)
    return training


def tuned(name, search, seconds):
    """Place of the best settings among the tries."""
    found = [
        trained(name, search, TUNED, number, [seconds])["rows"][-1]["return"]
        for number in range(len(tries(name, search)))
    ]
    return int(np.nanargmax(found))


def at(training, seconds):
    """The row of a time: of a search that was to last so long, or the first one after it."""
    later = [x for x in training["rows"] if x["seconds"] >= 0.8 * seconds]
    return min(later or training["rows"][-1:], key=lambda x: abs(x["seconds"] - seconds))


def shown(numbers, digits=0):
    """Median and range."""
    median, low, high = statistics.median(numbers), min(numbers), max(numbers)
    return f"{median:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def groups(trainings):
    """Trainings by task and search."""
    found = {}
    for training in trainings:
        found.setdefault((training["task"], training["search"]), []).append(training)
    return found


def summarize(trainings, seconds):
    """A row for each task and search: medians and ranges over the seeds."""
    titles = ["task", "search", "settings", "seeds", *(f"return, {x:g} s" for x in seconds)]
    titles += ["steps/s", "time on the wall / processor time", "compilation [s]"]
    print(f"\n| {' | '.join(titles)} |\n" + "|---" * len(titles) + "|")
    for (name, search), ones in groups(trainings).items():
        returns = [shown([at(one, x)["return"] for one in ones], 1) for x in seconds]
        ends = [one["rows"][-1] for one in ones]
        rate = shown([end["steps"] / end["seconds"] for end in ends])
        load = shown([end["wall"] / end["seconds"] for end in ends], 1)
        compiling = max(one["compilation"] for one in ones)
        cells = name, search, ones[0]["settings"], len(ones), *returns, rate, load
        cells = *cells, f"{compiling:.0f}"
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


def draw(trainings, seconds, path):
    """A plot for each task: return against processor time, a line for each seed."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(training["task"] for training in trainings))
    columns = len(names) if len(names) < 4 else 2
    lines = -(-len(names) // columns)
    size = {"figsize": (max(3.2 * columns, 6), 2.9 * lines), "layout": "constrained"}
    figure, axes = plt.subplots(lines, columns, squeeze=False, **size)
    labels = {}
    for (name, search), ones in groups(trainings).items():
        plot = axes.flat[names.index(name)]
        for one in ones:
            xs, ys = ([row[x] for row in one["rows"]] for x in ("seconds", "return"))
            style = {"color": COLOURS[search], "linewidth": 1.2, "marker": ".", "markersize": 5}
            (labels[search],) = plot.plot(xs, ys, **style)
    for name, plot in zip(names, axes.flat, strict=False):
        plot.set(title=name, xscale="log")
        plot.grid(color="0.92")
        plot.set_xticks(seconds, [f"{x:g}" for x in seconds])
        plot.minorticks_off()
    for plot in axes.flat[len(names) :]:
        plot.set_axis_off()
    figure.supxlabel("processor time of one core after compilation [s]", fontsize="medium")
    figure.supylabel("return, mean of 64 episodes", fontsize="medium")
    figure.legend(labels.values(), labels, loc="outside upper center", ncols=3)
    figure.savefig(path, dpi=110)


def main():
    """Train with each search in turn, seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--searches", default="gradients,PPO")
    parser.add_argument("--seconds", default="1,5,20", help="of processor time")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON of all trainings, which is added to")
    parser.add_argument("--picture", help="PNG of the curves")
    parser.add_argument("--tune", type=float, default=5.0, help="seconds of each try; 0 for none")
    options = parser.parse_args()
    names, searches = options.tasks.split(","), options.searches.split(",")
    seconds, trainings = [float(x) for x in options.seconds.split(",")], []
    if options.out and options.out.exists():
        trainings = json.loads(options.out.read_text())
    there = {(one["task"], one["search"], one["seed"]) for one in trainings}
    for name in names:
        for search in searches:
            left = [x for x in range(options.seeds) if (name, search, x) not in there]
            number = tuned(name, search, options.tune) if left and options.tune else 0
            for seed in left:
                trainings.append(trained(name, search, seed, number, seconds))
                if options.out:
                    options.out.write_text(json.dumps(trainings, indent=1))
            jax.clear_caches()
    summarize(trainings, seconds)
    if options.picture:
        draw(trainings, seconds, options.picture)


if __name__ == "__main__":
    # Brax's own code, not ours.
    warnings.filterwarnings("ignore", module="brax|jaxopt|flax")
    with tempfile.TemporaryDirectory() as folder:
        # PPO's seeds share their programs.
        if jax.config.jax_compilation_cache_dir is None:
            jax.config.update("jax_compilation_cache_dir", folder)
        main()
