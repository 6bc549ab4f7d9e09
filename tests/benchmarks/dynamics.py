"""Mass matrix, accelerations and inverse dynamics of robots, beside Pinocchio's and MuJoCo's.

    python tests/benchmarks/dynamics.py FILE.urdf [FILE.urdf …] [--floating PART,PART]
        [--batch 1024] [--rounds 5] [--float32]

Microseconds for one environment, medians over rounds in turn, on one core. Ours are one compiled
program for the batch. The others' are called from Python for each environment, which costs them 1
to 2 us, in float64. MuJoCo's accelerations are `mj_forward` with contacts, constraints and
actuators disabled, its mass matrix `mj_makeM` after the kinematics. `tree_forces` is the inverse
dynamics of the tree, `inverse_dynamics` that of the tool, which knows loops, stops and contacts
too. Robots stand without limits, friction and mimics in random states.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import median

if hasattr(os, "sched_setaffinity"):
    # Before JAX starts its threads.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pinocchio as pin

import jaxjoints as jj

jax.config.update("jax_enable_x64", True)

from jaxjoints.dynamics.acceleration import accelerations  # noqa: E402
from jaxjoints.dynamics.inverse import inverse_dynamics  # noqa: E402
from jaxjoints.dynamics.joint_coordinates import mass_matrix, tree_forces  # noqa: E402
from support.robots import in_mujoco, robot  # noqa: E402
from support.urdf import plain  # noqa: E402

HEADER = (
    *("robot", "speeds", "mass matrix", "Pinocchio", "MuJoCo", "accelerations", "Pinocchio"),
    *("MuJoCo", "`tree_forces`", "`inverse_dynamics`", "Pinocchio", "MuJoCo"),
)


def ours(r, batch: int, single: bool) -> dict:
    """Our programs, called for the batch."""
    system, state = r.system, jj.replicate(r.state, batch)
    control = system.control(effort=r.effort)
    if single:
        to_single = lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x  # noqa: E731
        system, state, control = jax.tree.map(to_single, (system, state, control))
    spread = jax.random.uniform(jax.random.key(0), (3, 1, batch), state.position.dtype)
    state = jj.replace(state, velocity=state.velocity * (1 + 0.1 * spread))
    qdd = jax.jit(accelerations)(system, state, control).qdd

    @jax.jit
    def forces(system, state, qdd):
        v = jnp.zeros((len(r.order), qdd.shape[-1]), qdd.dtype).at[: len(qdd)].set(qdd)
        return tree_forces(system, state, v)

    owners = dict.fromkeys(owner for owner, _ in r.model.coordinates.values())

    def inverse(system, state, qdd):
        wanted = {owner: qdd[system.coordinate(owner)] for owner in owners}
        return inverse_dynamics(system, state, wanted).effort

    calls = {
        "M": (jax.jit(mass_matrix), (system, state)),
        "qdd": (jax.jit(accelerations), (system, state, control)),
        "forces": (forces, (system, state, qdd)),
        "inverse": (inverse, (system, state, qdd)),
    }
    return {
        name: lambda f=f, inputs=inputs: jax.block_until_ready(f(*inputs))
        for name, (f, inputs) in calls.items()
    }


def of_pinocchio(r, batch: int) -> dict:
    """Pinocchio's algorithms, called for each environment."""
    m, d, q, v, tau = r.pin, r.data, r.q, r.v, r.tau
    a = pin.aba(m, d, q, v, tau)

    def repeated(call, *inputs):
        def run():
            for _ in range(batch):
                call(m, d, *inputs)

        return run

    return {
        "M": repeated(pin.crba, q),
        "qdd": repeated(pin.aba, q, v, tau),
        "forces": repeated(pin.rnea, q, v, a),
    }


def of_mujoco(text: str, floating: bool, r, batch: int) -> dict:
    """MuJoCo's algorithms, called for each environment."""
    m, _ = in_mujoco(text, floating, r)
    flags = mujoco.mjtDisableBit
    m.opt.disableflags |= flags.mjDSBL_CONSTRAINT | flags.mjDSBL_ACTUATION | flags.mjDSBL_CONTACT
    d = mujoco.MjData(m)
    d.qvel[:] = np.random.default_rng(0).normal(size=m.nv)
    mujoco.mj_forward(m, d)

    def matrix():
        for _ in range(batch):
            mujoco.mj_kinematics(m, d)
            mujoco.mj_comPos(m, d)
            mujoco.mj_makeM(m, d)

    def forward():
        for _ in range(batch):
            mujoco.mj_forward(m, d)

    def inverse():
        for _ in range(batch):
            mujoco.mj_inverse(m, d)

    return {"M": matrix, "qdd": forward, "forces": inverse}


def measured(runs: dict, rounds: int) -> dict:
    """Median time of each run, in turn; the first round warms up."""
    times = {key: [] for key in runs}
    for turn in range(rounds + 1):
        for key, run in runs.items():
            began = time.perf_counter()
            run()
            if turn:
                times[key].append(time.perf_counter() - began)
    return {key: median(x) for key, x in times.items()}


def main() -> None:
    """Print a row of the table for each robot."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("files", type=Path, nargs="+")
    options.add_argument("--floating", default="", help="parts of the names of robots that float")
    options.add_argument("--batch", type=int, default=1024)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--float32", action="store_true", help="ours in single precision")
    given = options.parse_args()
    print("| " + " | ".join(HEADER) + " |\n" + "|---" * len(HEADER) + "|")
    for path in given.files:
        floating = any(part in path.name for part in given.floating.split(",") if part)
        text = plain(path.read_text(encoding="utf-8"))
        r = robot(text, floating)
        runs = {("ours", k): f for k, f in ours(r, given.batch, given.float32).items()}
        runs |= {("pinocchio", k): f for k, f in of_pinocchio(r, given.batch).items()}
        try:
            runs |= {("mujoco", k): f for k, f in of_mujoco(text, floating, r, given.batch).items()}
        except ValueError as error:
            print(f"{path.name}: MuJoCo does not read it: {error}", file=sys.stderr)
        times = measured(runs, given.rounds)
        cells = [path.stem, str(len(r.order))]
        for key in ("M", "qdd", "forces"):
            tools = ("ours", "pinocchio", "mujoco")
            row = [times.get((tool, key)) for tool in tools]
            if key == "forces":
                row.insert(1, times["ours", "inverse"])
            cells += ["-" if x is None else f"{1e6 * x / given.batch:.2f}" for x in row]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
