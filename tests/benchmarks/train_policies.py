"""Trains a policy for each task of the library and stores it for `examples/policies.py`.

    python tests/benchmarks/train_policies.py [--tasks cart_pole,finger] [--folder FOLDER]

Tasks with few impacts are trained by gradients (`learning.short_horizon`), the others by Brax's
PPO. Some are trained with numbers drawn at random (`VARIED`) and judged without. Both searches
train a network with tanh between its layers. Of PPO's the one with the highest return on the way is
stored, with steps and time until then. The return is measured anew, by 64 episodes with
other keys. Processor times are without compilation: the median interval times their number.
"""

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "examples")]

from policies import FOLDER, OPTIONS, made, returns  # noqa: E402

from jaxjoints import environments, learning, models, replace  # noqa: E402

PPO = {
    **{"num_envs": 256, "num_eval_envs": 64, "deterministic_eval": True, "num_evals": 11},
    **{"normalize_observations": True, "batch_size": 64, "num_minibatches": 16},
    **{"unroll_length": 10, "num_updates_per_batch": 8, "learning_rate": 3e-4},
    **{"discounting": 0.99, "entropy_cost": 1e-2, "reward_scaling": 0.1, "seed": 0},
}
QUICK = {"learning_rate": 1e-3, "entropy_cost": 1e-3}
HIDDEN = (64, 64)  # of a policy, where its settings have no others
# How each task is trained, and with which settings.
SEARCHES = {
    "cart_pole": ("ppo", {"num_timesteps": 300_000} | QUICK),
    "swing_up": ("ppo", {"num_timesteps": 2_000_000} | QUICK),
    "four_bar_leg": ("gradients", {"iterations": 150}),
    "finger": ("gradients", {"iterations": 400}),
    "gripper": ("ppo", {"num_timesteps": 512_000, "learning_rate": 1e-3}),
    "stewart_platform": ("ppo", {"num_timesteps": 1_500_000} | QUICK),
    "hopper": ("ppo", {"num_timesteps": 2_560_000, "learning_rate": 1e-3, "seed": 1}),
    "biped": ("ppo", {"num_timesteps": 1_024_000, "num_evals": 21, "entropy_cost": 1e-3}),
    # After more steps it runs faster here and stumbles in MuJoCo.
    "half_cheetah": ("ppo", QUICK | {"num_timesteps": 153_600, "num_evals": 4}),
    "go2": (
        "ppo",
        {"num_timesteps": 1_024_000, "num_evals": 6, "discounting": 0.98}
        | {"learning_rate": 4e-4, "entropy_cost": 3e-3},
    ),
    "humanoid": (
        "ppo",
        # After more steps it walks faster here and falls in MuJoCo.
        {"num_timesteps": 2_560_000, "num_evals": 6, "hidden": (128, 128)}
        | {"discounting": 0.98, "entropy_cost": 1e-3},
    ),
    "ant": (
        "ppo",
        {"num_timesteps": 4_608_000, "num_evals": 19}
        | {"learning_rate": 4e-4, "entropy_cost": 1e-3},
    ),
}


def factor(least, most):
    """A draw of the numbers at a path, times one factor: its logarithm is uniform."""

    def draw(key, numbers):
        by = jnp.exp(jax.random.uniform(key, minval=np.log(least), maxval=np.log(most)))
        return jax.tree.map(lambda x: x * by.astype(x.dtype), numbers)

    return draw


class Varied(NamedTuple):
    """How the task of a training differs from the task that the policy is for.

    options: of `environments.make` besides those of the task; draws: of numbers, by path, in which
        * stands for each body, actuated joint or contact
    finer: how many times more time steps an action lasts; noise: of observations
    """

    options: dict
    draws: dict
    finer: int = 1
    noise: float = 0.01


# Robots that are to move in other engines too learn on soft ground of any stiffness, or with
# MuJoCo's friction.
ALIKE = {
    "body.*.mass": environments.scaled(0.9, 1.1),
    "contact.*.laws.1.friction": environments.scaled(0.7, 1.3),
    "contact.*.laws.2.friction": environments.scaled(0.7, 1.3),
}
VARIED = {
    "ant": Varied(
        {},
        {
            "body.*.mass": environments.scaled(0.8, 1.2),
            "contact.*.contact_pyramid.erp": environments.uniform(0.15, 0.35),
        },
        noise=0.02,
    ),
    "hopper": Varied(
        {"stiffness": 2e5, "damping": 2e3},
        ALIKE
        | {
            "contact.*.contact_limits.stiffness": factor(0.25, 4.0),
            "contact.*.contact_limits.damping": factor(0.2, 3.0),
        },
    ),
    "half_cheetah": Varied(
        {"stiffness": 4e4, "damping": 1e3},
        ALIKE
        | {
            "contact.*.contact_limits.stiffness": factor(0.125, 8.0),
            "contact.*.contact_limits.damping": factor(0.25, 3.0),
            "joint.*.limits.cfm": environments.uniform(0.0, 0.04),
            "joint.*.limits.erp": environments.uniform(0.1, 0.4),
        },
        finer=2,
    ),
}


def varied(name):
    """The task of a training, and what it draws for each environment."""
    change = VARIED[name]
    options, finer = OPTIONS.get(name, {}) | change.options, change.finer
    task = environments.make(name, **options)
    steps = {"dt": task.dt / finer, "substeps": task.substeps * finer}
    task, topology = replace(task, noise=change.noise, **steps), task.system.topology
    named = {"body": topology.bodies, "contact": topology.contacts, "joint": task.actuated}
    return task, {
        path.replace("*", part): draw
        for path, draw in change.draws.items()
        for part in named[path.split(".")[0]]
    }


def folded(normalizer, policy):
    """Parameters of `learning.mean` of a policy of Brax: its layers with the observations'
    normalization in the first, and without the spread of actions in the last.
    """
    layers = [(x["kernel"].T, x["bias"]) for _, x in sorted(policy["params"].items())]
    (W, b), *_ = layers
    W = W / normalizer.std
    layers[0] = W, b - W @ normalizer.mean
    W, b = layers[-1]
    W, raw = (np.split(np.asarray(x), 2) for x in (W, b))
    layers[-1] = W[0], raw[0]
    # Of a `NormalTanhDistribution` the spread depends on the observation: here its usual value.
    spread = np.log(np.logaddexp(0.0, raw[1]) + 1e-3)
    return {"layers": [tuple(map(jnp.asarray, x)) for x in layers], "spread": jnp.asarray(spread)}


def by_ppo(name, task, settings, clock, store):
    """Brax's PPO; stores the policy of each evaluation that earns more than all before."""
    from jaxjoints.environments.brax import BraxEnvironment
    from support.brax_training import networks, ppo

    best = -np.inf

    def evaluate(steps, _, networks):
        nonlocal best
        parameters = folded(*networks[:2])
        mean = float(returns(task, parameters, key=2).mean())
        print(f"| {steps:,} | {mean:.1f} | {clock():.0f} |", flush=True)
        if mean > best:
            best = mean
            store(parameters, int(steps))

    settings = dict(settings)
    factory = partial(
        networks.make_ppo_networks,
        policy_hidden_layer_sizes=settings.pop("hidden", HIDDEN),
        value_hidden_layer_sizes=(128, 128),
        activation=jnp.tanh,
    )
    wrapped, draws = BraxEnvironment(task), {}
    if name in VARIED:
        other, numbers = varied(name)
        wrapped = BraxEnvironment(other)
        draws = {"randomization_fn": wrapped.randomization(numbers)}
    ppo.train(
        environment=wrapped,
        episode_length=wrapped.episode_length,
        network_factory=factory,
        run_evals=False,
        policy_params_fn=evaluate,
        **draws | PPO | settings,
    )


def by_gradients(_, task, settings, clock, store):
    """`learning.short_horizon`; stores what it finds."""

    def report(iteration, _, reward):
        seconds = clock()
        if iteration % 20 == 0:
            print(f"| iteration {iteration} | {reward:.3f} a step | {seconds:.0f} |", flush=True)

    options = {"hidden": HIDDEN, "report": report} | settings
    found = learning.short_horizon(task, jax.random.key(0), **options)
    store(found.parameters, int(found.steps[-1]))


TRAINERS = {"ppo": by_ppo, "gradients": by_gradients}


def train(name, path, changes):
    """One training, whose policy is stored as `policies.load` reads it."""
    task, (search, settings) = made(name), SEARCHES[name]
    times = [time.process_time()]

    def clock():
        """Seconds of processor time since the start."""
        times.append(time.process_time())
        return times[-1] - times[0]

    def store(parameters, steps):
        # Of the first interval compilation takes most.
        lasted = np.diff(times[1:])
        seconds = float(np.median(lasted) * len(lasted)) if len(lasted) else 0.0
        earned = returns(task, parameters)
        found = {"return": float(earned.mean()), "spread": float(earned.std())}
        found |= {"steps": steps, "processor": seconds, "search": search}
        models.save(path, parameters=parameters, **found)
        told = f"return {earned.mean():.1f} of other episodes, {seconds:.0f} s"
        print(f"{name} is stored: {told}", flush=True)

    print(f"{name}, {search}\n| steps | return | processor [s] |\n|---|---|---|", flush=True)
    TRAINERS[search](name, task, settings | changes, clock, store)


def given(text):
    """Settings of a search that replace ours."""
    return {name: json.loads(x) for name, x in (pair.split("=") for pair in text.split(","))}


def main():
    """Train the tasks one by one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=list(SEARCHES))
    parser.add_argument("--settings", type=given, default={}, help="num_envs=64,seed=1")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where policies are stored")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    for name in options.tasks:
        train(name, options.folder / f"{name}.npz", options.settings)
        jax.clear_caches()


if __name__ == "__main__":
    main()
