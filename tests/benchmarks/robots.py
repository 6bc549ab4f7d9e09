"""Robots from files, without contacts: how they move in both precisions, and beside others.

    python tests/benchmarks/robots.py FOLDER [--only PART,PART] [--batch 64] [--out robots.json]

For each *.urdf below the folder, such as those of the package example-robot-data, and each MJCF
*.xml, such as gymnasium's: one second from the zero pose under gravity with limits, damping,
springs and armature, without contacts, steps of 1 ms, in float64 and float32; of URDF, poses of all
links and accelerations at a random state beside Pinocchio's, without limits, friction and mimics,
and of robots on the ground the coordinates a second later beside those of MuJoCo's Euler, in
float64; environment-steps per second in float32 beside MuJoCo's on one core. Prints a table, and
writes what it found. `files.py` tells what files have, what of it is left out, and how they move
with contacts.
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
from jaxjoints.models import LoadWarning, load_mjcf  # noqa: E402
from support.mechanisms import single  # noqa: E402
from support.robots import apart_from_euler, compare, loaded  # noqa: E402
from support.urdf import plain  # noqa: E402

DT, STEPS = 1e-3, 1000
SCHEME = jj.SemiImplicitEuler()
HEADER = (
    *("robot", "bodies", "joints", "q", "ok", "joint errors"),
    *("ok in float32", "residual", "apart after 0.1 s", "after 1 s"),
    *("poses - Pinocchio", "q̈ - Pinocchio", "q - MuJoCo's Euler", "steps/s", "MuJoCo steps/s"),
)


def simulate(system, state, batch):
    """A second of a batch: what it shows in a row, and positions after 0.1 s and 1 s."""
    state = jj.replicate(state, batch)

    def keep(state, info):
        return info.ok, info.error, info.residual, state.position

    run = jax.jit(lambda s: jj.rollout(system, s, dt=DT, steps=STEPS, record=keep, scheme=SCHEME))
    end, (ok, error, residual, position) = run(state)
    finite = all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(end))
    start = time.perf_counter()
    jax.block_until_ready(run(state))
    return {
        "ok": bool(ok.all()) and finite,
        "error": float(error.max()),
        "residual": float(residual.max()),
        "speed": batch * STEPS / (time.perf_counter() - start),
    }, [position[n - 1, ..., 0].astype(jnp.float64) for n in (STEPS // 10, STEPS)]


def mujoco_speed(m):
    """Steps per second of a MuJoCo model on one core, without contacts."""
    import mujoco

    m.opt.timestep = DT
    m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    d = mujoco.MjData(m)
    start = time.perf_counter()
    mujoco.mj_step(m, d, 2000)
    return 2000 / (time.perf_counter() - start)


def from_urdf(path):
    """The model of a file, differences from Pinocchio's, and the model of MuJoCo if it loads it."""
    import mujoco

    text = plain(path.read_text(encoding="utf-8"))
    model = loaded(path, visuals=False)
    floating = not model.builder._joints
    if floating:
        model = loaded(path, visuals=False, floating=True)
    options = '<compiler balanceinertia="true" boundmass="1e-6" boundinertia="1e-9"/>'
    theirs = re.sub(r"(<robot\b[^>]*>)", rf"\1<mujoco>{options}</mujoco>", text, count=1)
    try:
        m = mujoco.MjModel.from_xml_string(theirs)
    except ValueError:
        m = None
    try:
        apart = None if floating else apart_from_euler(text, DT, STEPS)
    except ValueError:
        # Some inertias MuJoCo takes only after it has changed them.
        apart = None
    return model, (*compare(text, floating), apart), m


def from_mjcf(path):
    """The model of a file and that of MuJoCo; the tests compare these."""
    import mujoco

    m = mujoco.MjModel.from_xml_path(str(path))
    return load_mjcf(path, visuals=False), (None, None, None), m


def examine(path, batch):
    """A row of the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LoadWarning)
        model, agreement, m = (from_urdf if path.suffix == ".urdf" else from_mjcf)(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        system, state = model.build()
    row = {
        "robot": path.stem,
        "bodies": len(system.topology.bodies),
        "joints": len(system.topology.joints),
        "q": system.coordinates,
    }
    row["poses"], row["accelerations"], row["euler"] = agreement
    row["float64"], exact = simulate(system, state, 2)
    row["float32"], near = simulate(single(system), single(state), batch)
    row["apart"] = [float(jnp.abs(x - y).max()) for x, y in zip(exact, near, strict=True)]
    row["mujoco"] = None if m is None else mujoco_speed(m)
    return row


def shown(number, digits="0e"):
    """A number as the table has it; nothing for None."""
    return "" if number is None else f"{number:.{digits}}"


def line(row):
    """A row as Markdown."""
    yes = {name: "yes" if row[name]["ok"] else "**no**" for name in ("float64", "float32")}
    cells = [
        *(row[name] for name in ("robot", "bodies", "joints", "q")),
        yes["float64"],
        shown(row["float64"]["error"]),
        yes["float32"],
        shown(row["float32"]["residual"]),
        *map(shown, row["apart"]),
        shown(row["poses"]),
        shown(row["accelerations"]),
        shown(row["euler"]),
        shown(row["float32"]["speed"], "2g"),
        shown(row["mujoco"], "2g"),
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
    files = sorted(path for kind in ("*.urdf", "*.xml") for path in options.folder.rglob(kind))
    for path in files:
        if not any(part in str(path) for part in options.only.split(",")):
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
