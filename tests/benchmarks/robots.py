"""Robots from URDF files: whether they load, fall for a second, and agree with Pinocchio.

    python tests/benchmarks/robots.py FOLDER [--only NAME] [--batch 64] [--out robots.json]

For each *.urdf below the folder, such as those of the package example-robot-data: bodies, joints,
what is skipped or changed; one second under gravity with limits, steps of 1 ms; poses of all links
and accelerations at a random state beside Pinocchio's, without limits, friction and mimics;
environment-steps per second beside MuJoCo's. Prints a table, and writes what it found.
"""

import argparse
import json
import re
import sys
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).parents[1]))
jax.config.update("jax_enable_x64", True)

import jaxjoints as jj  # noqa: E402
from support.robots import compare, loaded, plain  # noqa: E402

DT, STEPS = 1e-3, 1000
SCHEME = jj.SemiImplicitEuler(projections=1)
HEADER = (
    *("robot", "bodies", "joints", "q", "skipped", "changed", "ok", "joint errors"),
    *("poses - Pinocchio", "q̈ - Pinocchio", "steps/s", "MuJoCo steps/s"),
)


def simulate(system, state, batch):
    """Whether a second is sound in all environments, the largest joint error, steps per second."""
    state = jj.replicate(state, batch)
    keep = lambda _, info: (info.ok, info.error)  # noqa: E731
    run = jax.jit(lambda s: jj.rollout(system, s, dt=DT, steps=STEPS, record=keep, scheme=SCHEME))
    end, (ok, error) = run(state)
    finite = all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(end))
    start = time.perf_counter()
    jax.block_until_ready(run(state))
    rate = batch * STEPS / (time.perf_counter() - start)
    return bool(ok.all()) and finite, float(error.max()), rate


def mujoco_speed(text):
    """Steps per second of MuJoCo on one core, None where it does not load the file."""
    import mujoco

    options = '<compiler balanceinertia="true" boundmass="1e-6" boundinertia="1e-9"/>'
    text = re.sub(r"(<robot\b[^>]*>)", rf"\1<mujoco>{options}</mujoco>", text, count=1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            m = mujoco.MjModel.from_xml_string(text)
    except ValueError:
        return None
    m.opt.timestep = DT
    m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    d = mujoco.MjData(m)
    start = time.perf_counter()
    mujoco.mj_step(m, d, 2000)
    return 2000 / (time.perf_counter() - start)


def examine(path, batch):
    """A row of the table."""
    text = plain(path.read_text(encoding="utf-8"))
    model = loaded(path, visuals=False)
    floating = not model.builder._joints
    if floating:
        model = loaded(path, visuals=False, floating=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        system, state = model.build()
    row = {
        "robot": path.stem,
        "bodies": len(system.topology.bodies),
        "joints": len(system.topology.joints),
        "q": system.coordinates,
        "skipped": [line.split(" (")[0] for line in model.skipped],
        "changed": list(model.notes),
    }
    row["poses"], row["accelerations"] = compare(text, floating)
    row["ok"], row["error"], row["speed"] = simulate(system, state, batch)
    row["mujoco"] = mujoco_speed(text)
    return row


def line(row):
    """A row as Markdown."""
    off = row["accelerations"]
    cells = [
        *(row[name] for name in ("robot", "bodies", "joints", "q")),
        ", ".join(row["skipped"]),
        len(row["changed"]),
        "yes" if row["ok"] else "**no**",
        f"{row['error']:.0e}",
        f"{row['poses']:.0e}",
        "" if off is None else f"{off:.0e}",
        f"{row['speed']:.2g}",
        "" if row["mujoco"] is None else f"{row['mujoco']:.2g}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def main():
    """Examine all robots; a robot that fails is a line with the reason."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}", flush=True)
    rows = []
    for path in sorted(options.folder.rglob("*.urdf")):
        if options.only not in str(path):
            continue
        try:
            row = examine(path, options.batch)
            print(line(row), flush=True)
        except Exception as error:  # noqa: BLE001 - the next robot is examined all the same
            row = {"robot": path.stem, "failed": f"{type(error).__name__}: {error}"[:200]}
            print(f"| {row['robot']} | {row['failed']} |", flush=True)
        rows.append(row)
        jax.clear_caches()
        if options.out:
            options.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
