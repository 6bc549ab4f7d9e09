"""How long a first answer takes: a mechanism built, and its programs traced, lowered and compiled.

    python tests/benchmarks/first_answer.py
    python tests/benchmarks/first_answer.py --cases knee --programs step

Each case in a process of its own, without a cache of compiled programs, on JAX's defaults: one
environment, the first `build`, a step, and the gradient of 100 steps in all numbers of the system.
Seconds of processor time of all threads, in brackets those on the clock.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import ClassVar

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# A program that is read from a cache is not compiled.
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp

import jaxjoints as jj
from support import linkages, mechanisms

STEPS, DT = 100, 2e-3
Y, X = (0.0, 1.0, 0.0), (1.0, 0.0, 0.0)


@jj.struct
class Screw(jj.Chart):
    """A screw of a user, by its poses."""

    pitch: jax.Array
    dof: ClassVar[int] = 1

    def pose(self, q):
        """See `Chart`."""
        return jj.Pose.about_z(q[0]) @ jj.Pose.along_z(self.pitch * q[0])


def screw():
    """A nut on a screw with a soft stop, as in the README."""
    world = jj.SystemBuilder()
    world.body("nut", mass=1.0, inertia=(0.01, 0.01, 0.02), com=(0.05, 0.0, 0.0))
    stop = jj.Limits(lower=-3.0, stiffness=40.0, damping=0.5)
    world.joint("thread", Screw(0.02), child="nut", laws=[stop])
    return world.build()


def chain():
    """A chain of 10 with hard stops."""
    return mechanisms.chain(10, laws=[jj.Limits(-0.5, 0.5)])


def humanoid():
    """22 bodies on a free one: head, and four limbs of five hinges with stops; two box feet on the
    ground with friction.
    """
    world, rod = jj.SystemBuilder(), mechanisms.rod_inertia(1.0, 0.2)
    world.body("torso", mass=8.0, inertia=(0.2, 0.2, 0.1))
    world.joint("base", jj.Free(), child="torso", q=(0.0, 0.0, 1.3, 0.0, 0.0, 0.0))
    laws = [jj.Limits(-1.0, 1.0), jj.Damping(0.1)]
    limbs = {f"{limb} {side}": 5 for limb in ("leg", "arm") for side in ("left", "right")}
    for limb, count in {"head": 1, **limbs}.items():
        parent, place = "torso", (0.0, 0.1 if "left" in limb else -0.1, 0.0)
        for i in range(count):
            name = f"{limb} {i}"
            world.body(name, mass=1.0, inertia=rod)
            frames = {"frame_C": (0.0, 0.0, 0.1), "frame_D": place}
            world.joint(
                name, jj.Hinge((Y, X)[i % 2]), child=name, parent=parent, laws=laws, **frames
            )
            parent, place = name, (0.0, 0.0, -0.1)
    for side in ("left", "right"):
        foot, shape = f"leg {side} 4", jj.shapes.Box((0.2, 0.1, 0.05))
        world.contact(f"foot {side}", shape, jj.shapes.HalfSpace(), child=foot, friction=0.8)
    return world.build()


CASES = {
    "hinge": mechanisms.pendulum,
    "screw by `Chart`": screw,
    "knee of splines": linkages.knee,
    "chain of 10 with limits": chain,
    "humanoid, 22 bodies, two feet": humanoid,
    "Jansen leg": lambda: linkages.linkage(*linkages.jansen_leg()),
}


def loss(system, state):
    """A number that all numbers of the system have a part in."""
    final, _ = jj.rollout(system, state, dt=DT, steps=STEPS)
    return jnp.sum(final.position**2) + jnp.sum(final.omega**2)


PROGRAMS = {"step": lambda *start: jj.step(*start, dt=DT), "gradient": jax.grad(loss)}


def timed(function, *arguments):
    """What a function returns, and the seconds that it takes: of all threads, on the clock."""
    spent, clock = time.process_time(), time.perf_counter()
    result = function(*arguments)
    return result, (time.process_time() - spent, time.perf_counter() - clock)


def measured(case: str, programs: list[str]) -> dict[str, tuple[float, float]]:
    """Seconds of each stage of one case, in this process, which has done nothing yet."""
    jnp.zeros(1).block_until_ready()
    warnings.simplefilter("ignore")
    start, seconds = timed(CASES[case])
    found = {"build": seconds}
    for name in programs:
        traced, found[f"{name}: traced"] = timed(jax.jit(PROGRAMS[name]).trace, *start)
        lowered, found[f"{name}: lowered"] = timed(traced.lower)
        _, found[f"{name}: compiled"] = timed(lowered.compile)
    return found


def main(cases: list[str], programs: list[str]) -> None:
    """Print a table, a row for each case as it is measured."""
    stages = [f"{name}: {does}" for name in programs for does in ("traced", "lowered", "compiled")]
    stages = ["build", *stages]
    print(f"| mechanism | {' | '.join(stages)} |\n|---|{'---|' * len(stages)}", flush=True)
    for case in cases:
        arguments = [__file__, "--one", case, "--programs", *programs]
        run = subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.PIPE)
        found = json.loads(run.stdout.splitlines()[-1])
        cells = ("{:.2f} ({:.2f})".format(*found[stage]) for stage in stages)
        print(f"| {case} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="How long a first answer takes.")
    options.add_argument("--cases", nargs="+", default=list(CASES), help="parts of their names")
    options.add_argument("--programs", nargs="*", default=list(PROGRAMS), choices=list(PROGRAMS))
    options.add_argument("--one", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.one:
        print(json.dumps(measured(given.one, given.programs)))
    else:
        chosen = [case for case in CASES if any(part in case for part in given.cases)]
        main(chosen, given.programs)
