"""What a newcomer waits for: the first answers to common questions, one after the other.

    python tests/benchmarks/waits.py
    python tests/benchmarks/waits.py --jobs "hinge,cart-pole"

Each job runs in a process of its own, first without compiled programs on disk, then with those that
the first process has left there. One environment in float32. Seconds of processor time of all
threads, which is the wait on one quiet core. A question that needs a new program pays for its
compilation.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "examples"), str(ROOT / "tests")]

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import jaxjoints as jj  # noqa: E402

DT = 2e-3
Question = tuple[str, Callable]


def answers(system: jj.System, start: jj.State, steps: int, joint: str) -> Iterator[Question]:
    """A step, a rollout, what is read of it, and the gradient of 200 steps."""
    yield "step", lambda: jj.step(system, start, dt=DT)
    yield "rollout", lambda: jj.rollout(system, start, dt=DT, steps=steps)
    yield "coordinates", lambda: jj.coordinates(system, start)
    _, info = jj.step(system, start, dt=DT)
    yield "reaction", lambda: jj.reaction(system, start, info, joint)

    def height(system):
        return jj.rollout(system, start, dt=DT, steps=200, record_every=200)[0].position[2].sum()

    yield "gradient, quick", lambda: jax.jit(jax.grad(height), compiler_options=jj.QUICK)(system)
    yield "gradient without jit", lambda: jax.grad(height)(system)


def hinge() -> Iterator[Question]:
    """A pendulum with a stop and dry friction."""

    def build():
        world = jj.SystemBuilder()
        world.body("rod", mass=1.0, inertia=(0.1, 0.1, 0.01), com=(0.0, 0.0, -0.5))
        laws = [jj.Limits(lower=-0.5), jj.DryFriction(0.1)]
        world.joint("pivot", jj.Hinge((0.0, 1.0, 0.0)), child="rod", laws=laws, q=1.0)
        return world.build()

    yield "build", build
    yield from answers(*build(), 1000, "pivot")


def panda() -> Iterator[Question]:
    """The Panda of the tests with servos at seven joints."""

    def build():
        path, servo = ROOT / "tests" / "data" / "panda_arm.urdf", jj.Servo(600.0, 50.0)
        return jj.models.load_urdf(path, laws={"panda_joint*": servo}, visuals=False).build()

    yield "build", build
    yield from answers(*build(), 1000, "panda_joint1")


def ant() -> Iterator[Question]:
    """Gymnasium's ant with its contacts."""

    def build():
        where = Path(find_spec("gymnasium").origin).parent / "envs" / "mujoco" / "assets"
        return jj.models.load_mjcf(where / "ant.xml", contacts=True).build()

    yield "build", build
    yield from answers(*build(), 500, "hip_1")


def knee() -> Iterator[Question]:
    """A knee from splines, of examples/knee.py."""
    import knee as example

    yield "build", example.leg
    system = example.leg()
    yield from answers(system, system.state(), 150, "knee")


def cart_pole() -> Iterator[Question]:
    """Linear models and a search for a motion, of the examples."""
    import balance_pole
    import swing_up

    system, upright = balance_pole.cart_and_pole()
    linear = jj.dynamics.linear_model
    yield "linear model", lambda: linear(system, upright, actuated="rail")
    yield "… of a step", lambda: linear(system, upright, actuated="rail", dt=0.01)
    yield "swing-up by ilqr", swing_up.main


JOBS = {"hinge": hinge, "panda": panda, "ant": ant, "knee": knee, "cart-pole": cart_pole}


def measured(job: str) -> dict[str, float]:
    """Seconds of each question of a job in this process, which has done nothing yet."""
    jnp.zeros(1).block_until_ready()
    warnings.simplefilter("ignore")
    found = {}
    for name, question in JOBS[job]():
        began = time.process_time()
        jax.block_until_ready(question())
        found[name] = time.process_time() - began
    return found


def main(jobs: list[str]) -> None:
    """Print a table, a row for each question."""
    print("| job | question | seconds | … in a second process |\n|---|---|---|---|", flush=True)
    for job in jobs:
        with tempfile.TemporaryDirectory() as folder:
            kept = {"JAX_COMPILATION_CACHE_DIR": folder}
            kept["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
            run = [sys.executable, __file__, "--one", job]
            both = []
            for _ in range(2):
                ended = subprocess.run(
                    run, check=True, stdout=subprocess.PIPE, env=os.environ | kept
                )
                both.append(json.loads(ended.stdout.splitlines()[-1]))
        for name in both[0]:
            cells = " | ".join(f"{seconds[name]:.1f}" for seconds in both)
            print(f"| {job} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--jobs", default=",".join(JOBS))
    options.add_argument("--one", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.one:
        print(json.dumps(measured(given.one)))
    else:
        main(given.jobs.split(","))
