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
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
jax.config.update("jax_enable_x64", True)

import jaxjoints as jj  # noqa: E402
from jaxjoints.models import LoadWarning, load_urdf  # noqa: E402
from support.accelerations import rates  # noqa: E402

DT, STEPS = 1e-3, 1000
SCHEME = jj.SemiImplicitEuler(projections=1)
HEADER = (
    *("robot", "bodies", "joints", "q", "skipped", "changed", "ok", "joint errors"),
    *("poses - Pinocchio", "q̈ - Pinocchio", "steps/s", "MuJoCo steps/s"),
)


def without(text, *tags):
    """URDF without elements of these tags."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    for tag in tags:
        text = re.sub(rf"<{tag}\b[^>]*?/>", "", text)
        text = re.sub(rf"<{tag}\b[^>]*?>.*?</{tag}>", "", text, flags=re.DOTALL)
    return text


def plain(text):
    """URDF without what is no mechanism."""
    return without(text, "visual", "collision", "gazebo", "transmission", "ros2_control", "sensor")


def loaded(source, **options):
    """A model without its warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LoadWarning)
        return load_urdf(source, **options)


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


def compare(text, floating):
    """Largest differences of link poses and, relative, of accelerations to Pinocchio's."""
    import pinocchio as pin

    model = loaded(without(text, "limit", "dynamics", "mimic"), floating=floating)
    system, _ = model.build()
    free = without(text, "mimic")
    full = pin.buildModelFromXML(free, *([pin.JointModelFreeFlyer()] if floating else []))
    first = 2 if floating else 1
    fixed = [j for j in range(first, full.njoints) if full.names[j] not in model.coordinates]
    m = pin.buildReducedModel(full, fixed, pin.neutral(full)) if fixed else full
    d, random = m.createData(), np.random.default_rng(5)
    q, v, tau = np.zeros(m.nq), random.normal(size=m.nv), random.normal(size=m.nv)
    at, speed, effort = {}, {}, {}
    pose, velocity = {}, {}
    if floating:
        q[:7] = [0.1, 0.2, 0.3, *(np.array([0.1, -0.2, 0.3, 0.9]) / np.sqrt(0.95))]
        x, y, z, w = q[3:7]
        R = pin.Quaternion(w, x, y, z).matrix()
        base = system.topology.bodies[0]
        pose[base] = q[:3], np.array([w, x, y, z])
        velocity[base] = np.concatenate([R @ v[:3], R @ v[3:6]])
        tau[:6] = 0.0
    for j in range(first, m.njoints):
        name, joint = m.names[j], m.joints[j]
        angle = random.uniform(-0.8, 0.8)
        q[joint.idx_q : joint.idx_q + joint.nq] = (
            (angle,) if joint.nq == 1 else (np.cos(angle), np.sin(angle))
        )
        owner, i = model.coordinates[name]
        place = system.coordinate(owner)
        for values, value in ((at, angle), (speed, v[joint.idx_v]), (effort, tau[joint.idx_v])):
            values.setdefault(owner, np.zeros(place.stop - place.start))[i] = value
    wanted = pin.aba(m, d, q, v, tau)
    pin.framesForwardKinematics(m, d, q)
    state = system.state(q=at, qd=speed, pose=pose, velocity=velocity)
    poses, worst = jj.body_poses(system, state), 0.0
    p, R = np.asarray(poses.p), np.asarray(poses.R)
    for frame in m.frames:
        if frame.type != pin.FrameType.BODY or frame.name not in model.frames:
            continue
        body, (position, rotation) = model.frames[frame.name]
        T = d.oMf[m.getFrameId(frame.name, pin.FrameType.BODY)]
        if body != jj.WORLD:
            i = system.body(body)
            position, rotation = R[:, :, i] @ position + p[:, i], R[:, :, i] @ rotation
        worst = max(worst, np.abs(T.translation - position).max())
        worst = max(worst, np.abs(T.rotation - rotation).max())
    if any("->" in note for note in model.notes):
        return worst, None
    qdd, _ = rates(system, state, system.control(effort=effort))
    off = 0.0
    for j in range(first, m.njoints):
        owner, i = model.coordinates[m.names[j]]
        found = float(qdd[system.coordinate(owner).start + i])
        off = max(off, abs(found - wanted[m.joints[j].idx_v]))
    return worst, off / np.abs(wanted).max()


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
