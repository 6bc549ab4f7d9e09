"""Trained policies of the library's tasks at work, each a small network in `data/policies`.

The program runs episodes of a task with its stored policy, prints what they earn, and writes a page
that shows the first ones:

    python examples/policies.py hopper --page hopper.html

`tests/benchmarks/train_policies.py` has trained the policies. To run them JAX is enough;
`go2` reads a file, by the extra `mjcf`.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj
from jaxjoints import environments, learning, models

DATA = Path(__file__).parent / "data"
FOLDER = DATA / "policies"
# Options of tasks that need some.
OPTIONS = {
    "ant": {"cone": "convex"},
    "go2": {"path": DATA / "quadruped.xml", "pose": (0.0, 0.7, -1.4)},
    "humanoid": {"like_mujoco": True},
}


def made(name: str) -> environments.Environment:
    """The task that the stored policy of this name is for."""
    return environments.make(name, **OPTIONS.get(name, {}))


def load(name: str) -> dict:
    """What is stored of a task's policy.

    "parameters" of `learning.mean`, which is the policy; "return" and "spread": mean and standard
    deviation of 64 episodes; "steps", "processor": of the training, time without compilation [s];
    "search": what trained it
    """
    path = FOLDER / f"{name}.npz"
    if not path.exists():
        known = ", ".join(sorted(x.stem for x in FOLDER.glob("*.npz")))
        raise ValueError(f"load: no policy of {name!r} is stored; there are {known}")
    return models.load(path)


def returns(
    task: environments.Environment, parameters: dict, episodes: int = 64, key: int = 1
) -> np.ndarray:
    """What each of some episodes earns until its end, shape (episodes,)."""
    episode = task.reset(jax.random.split(jax.random.key(key), episodes))
    _, seen = environments.unroll(task, episode, learning.mean, parameters, steps=task.limit)
    # Steps of the first episode: those before which none was done.
    first = jnp.cumsum(seen.done, axis=0) - seen.done == 0
    return np.asarray(jnp.sum(jnp.where(first, seen.reward, 0.0), axis=0))


def recorded(
    task: environments.Environment, parameters: dict, episodes: int, steps: int
) -> jj.State:
    """States of the first steps of the episodes of `returns`, without restarts."""
    episode = task.reset(jax.random.split(jax.random.key(1), episodes))
    controls = environments.controller(task, episode, learning.mean, parameters)
    substeps = task.substeps
    options = {"dt": task.dt, "substeps": substeps, "record_every": substeps, "scheme": task.scheme}
    _, states, _ = jj.rollout(
        task.system, episode.state, controls, steps=steps * substeps, **options
    )
    return states


def main(name: str = "cart_pole", episodes: int = 64, page: Path | None = None) -> float:
    """Mean return of the stored policy of a task."""
    task, stored = made(name), load(name)
    mean = float(returns(task, stored["parameters"], episodes).mean())
    error = stored["spread"] * (1 / 64 + 1 / episodes) ** 0.5
    print(f"{name}: return {mean:.1f}, mean of {episodes} episodes; stored {stored['return']:.1f}")
    if page is not None:
        states = recorded(task, stored["parameters"], min(episodes, 4), task.limit)
        jj.view(task.system, states, side_by_side=True, title=name).save(page)
    assert abs(mean - stored["return"]) < 4 * error + 0.01 * abs(stored["return"])
    return mean


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("name", nargs="?", default="cart_pole", help="of the task")
    options.add_argument("--episodes", type=int, default=64)
    options.add_argument("--page", type=Path, help="HTML file to write")
    main(**vars(options.parse_args()))
