"""Model files of packages: which load, what they have, what is left out, and how they move.

    python tests/benchmarks/files.py FOLDER… [--only PART,PART] [--without PART,PART]
        [--build PART,PART] [--simulate PART,PART] [--floating PART,PART] [--seconds 0.5]
        [--batch 1] [--out files.json] [--table files.md]

FOLDER: where a package is unpacked; its *.urdf, and its *.xml that MuJoCo's models begin in. Each
is loaded with the whole package as roots; those of --build are built too. PART: of the path of a
file in its package.

Files with a part of --simulate also move for some time, in float64, from where they start, with all
controls at 0 and the contacts of the file, in its time step or in 2 ms; beside MuJoCo's, if it
loads the file. A URDF that is named in --floating starts with its lowest point on a ground; others
stand in the world. A --batch of more than one is compiled fully, and its environment-steps per
second are shown beside MuJoCo's on one core.

--out keeps what was found, and files that are in it are not loaded again. Prints the number of
files of each package, and --table writes a line for each file.
"""

import argparse
import json
import re
import sys
import time
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
jax.config.update("jax_enable_x64", True)

import jaxjoints as jj  # noqa: E402
from jaxjoints.models import LoadError, load_mjcf, load_urdf  # noqa: E402
from support.mujoco_states import name_of  # noqa: E402
from support.urdf import plain  # noqa: E402

DT, FREE = 2e-3, 6
# Speeds below this count as rest [m/s]; a start this far above the ground [m].
AT_REST, ABOVE = 0.05, 1e-3
# Of a sentence in a table, and kinds of what is skipped in a cell.
MOST_OF_AN_ERROR, MOST_KINDS = 130, 6
HEADER = (
    *("file", "loads", "MuJoCo", "bodies", "joints", "dof", "loops", "equalities", "actuators"),
    *("contacts", "skipped", "builds", "moves"),
)
TITLE = """# Model files, one by one

Written by `files.py`, whose [page](README.md#what-files-have-and-what-of-it-is-read) says what was
found. "MuJoCo": whether it loads the file. "builds", "moves": of files that were asked to.
"pair of geoms": contacts between bodies, which `contacts="all"` adds.
"""
SUMMARY = (
    *("package", "files", "load", "refused, MuJoCo too", "refused, MuJoCo loads"),
    *("asked to build", "build", "simulated", "ok", "at rest"),
)


def version(folder):
    """The name of a package with its version, as its installer wrote it beside or in the folder."""
    plain_name = re.sub(r"[-_.]+", "_", folder.name).lower()
    for place in (folder, folder.parent):
        for info in sorted(place.glob("*.dist-info")):
            name, _, number = info.name.removesuffix(".dist-info").rpartition("-")
            if place == folder or re.sub(r"[-_.]+", "_", name).lower() == plain_name:
                return f"{name} {number}"
    return folder.name


def models(folder, only, without):
    """The model files below a folder, by their paths in it."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        wanted = any(part in name for part in only)
        if wanted and not any(part in name for part in without) and path.is_file():
            if path.suffix == ".urdf":
                yield name, path
            elif path.suffix == ".xml" and re.search(rb"<mujoco[\s>]", path.read_bytes()):
                yield name, path


def quietly(function, *arguments, **options):
    """What a function returns, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)


def of_mujoco(path):
    """MuJoCo's model of a file; of URDF without shapes."""
    if path.suffix == ".xml":
        return mujoco.MjModel.from_xml_path(str(path))
    text = plain(path.read_text(encoding="utf-8", errors="replace"))
    options = '<mujoco><compiler balanceinertia="true" boundmass="1e-6" boundinertia="1e-9"/>'
    return mujoco.MjModel.from_xml_string(
        re.sub(r"(<robot\b[^>]*>)", rf"\1{options}</mujoco>", text, count=1)
    )


def load(path, folder, floating):
    """A model with its contacts, and all folders of the package above it as roots.

    Shapes of URDF are read where it is to stand on a ground.
    """
    above = [path.parent, *(place for place in path.parents if place.is_relative_to(folder))]
    roots = list(dict.fromkeys(above))
    if path.suffix == ".xml":
        return quietly(load_mjcf, path, roots=roots, contacts=True, visuals=False)
    model = quietly(load_urdf, path, roots=roots, floating=floating, visuals=floating)
    if not (floating or model.builder.bodies):
        # A single object, unless it has no mass or stands on a link "world".
        try:
            return quietly(load_urdf, path, roots=roots, floating=True, visuals=False)
        except LoadError:
            return model
    return model


def kinds(sentences):
    """What is skipped, in short words, the most frequent first."""
    found = Counter()
    for sentence in sentences:
        times = re.search(r"\((\d+) times", sentence)
        pairs = re.match(r"contact of (\d+) pairs of geoms(.*)", sentence)
        word = re.sub(r" '[^']*'", "", re.split(r" \(|[,:;]", sentence)[0])
        if pairs:
            rest = pairs[2].split(",")[0].split(";")[0]
            word, count = f"pair of geoms{rest}", int(pairs[1])
        else:
            count = int(times[1]) if times else 1
        found[word] += count
    shown = [f"{word} ({n})" if n > 1 else word for word, n in found.most_common(MOST_KINDS)]
    return ", ".join([*shown, *(["…"] if len(found) > MOST_KINDS else [])])


def sentence(error):
    """An error on one line; of what is no LoadError its type too."""
    text = " ".join(str(error).split())
    return text if isinstance(error, LoadError) else f"{type(error).__name__}: {text}"


def examine(path, folder):
    """What a file has, and how far it comes."""
    row = {}
    try:
        m = of_mujoco(path)
        row["mujoco"] = {"dof": m.nv, "joints": m.njnt, "bodies": m.nbody - 1}
    except (ValueError, mujoco.FatalError) as error:
        row["mujoco"] = {"error": sentence(error)}
    try:
        model = load(path, folder, floating=False)
    except Exception as error:  # noqa: BLE001 - the next file is examined all the same
        row["error"] = sentence(error)
        return row
    row["actuators"] = len(model.actuators)
    row["servos"] = sum(actuator.servo is not None for actuator in model.actuators)
    row["skipped"], row["changed"] = list(model.skipped), list(model.notes)
    return row | counts(model.builder)


def counts(builder):
    """Numbers of what a builder has."""
    root = {name: name for name in (*builder.bodies, jj.WORLD)}

    def of(body):
        while root[body] != body:
            body = root[body]
        return body

    loops = dof = 0
    for joint in builder._joints.values():
        ends = of(joint.child), of(joint.parent)
        if joint.coupling.dof == FREE:
            continue
        if ends[0] == ends[1]:
            loops += 1
        else:
            # The world stays the root of what hangs on it.
            child, parent = ends if ends[0] != jj.WORLD else ends[::-1]
            root[child] = parent
            dof += joint.coupling.dof
    floating = sum(of(body) == body for body in builder.bodies)
    return {
        "bodies": len(builder.bodies),
        "joints": len(builder._joints) - loops,
        "dof": dof + FREE * floating,
        "loops": loops,
        "transmissions": len(builder._transmissions),
        "contacts": len(builder._contacts),
    }


def build(model):
    """A system and its state; the sentence of an error instead."""
    try:
        return quietly(model.build)
    except Exception as error:  # noqa: BLE001 - the next file is built all the same
        return sentence(error)


def lowered(system, state):
    """A state just above what its contacts are with."""
    gap = float(jj.gaps(system, state).min())
    return jj.replace(state, position=state.position.at[2].add(ABOVE - gap))


def move(path, folder, seconds, batch, floating):
    """How a file moves, beside MuJoCo if that loads it."""
    model = load(path, folder, floating)
    if floating:
        quietly(model.add_ground, friction=0.8)
    system, state = quietly(model.build)
    state = lowered(system, state) if floating else state
    dt = model.timestep or DT
    steps = max(round(seconds / dt), 1)
    zeros = np.zeros(max((actuator.index + 1 for actuator in model.actuators), default=0))

    def at_rest(state):
        return model.control(system, zeros, state=state, activation=model.activation())

    def keep(_, info):
        return info.ok, info.residual, info.error

    controls = at_rest if model.actuators else None
    run = partial(jj.rollout, controls=controls, dt=dt, steps=steps, record=keep)
    state, speed = jj.replicate(state, batch), {}
    if batch > 1:
        run = jax.jit(run)
    end, (ok, residual, error) = quietly(run, system, state)
    if batch > 1:
        start = time.perf_counter()
        jax.block_until_ready(run(system, state))
        speed["steps per second"] = batch * steps / (time.perf_counter() - start)
    finite = all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(end))
    first = np.asarray(state.position[..., 0]), np.asarray(end.position[..., 0])
    row = {
        "ok": float(ok.mean()) if finite else 0.0,
        "residual": float(residual.max()),
        "error": float(error.max()),
        "heights": [float(p[2, 0]) for p in first],
        "speed": float(jnp.abs(end.velocity).max()),
        "moved": float(np.abs(first[1] - first[0]).max()),
        **{"dt": dt, "batch": batch, **speed},
    }
    if system.topology.contacts:
        row["gap"] = float(jj.gaps(system, end).min())
    if path.suffix == ".xml":
        row |= beside_mujoco(path, model, system, end, steps)
    return row


def beside_mujoco(path, model, system, end, steps):
    """Where MuJoCo moves a file, and how far links are apart [m]."""
    m = of_mujoco(path)
    d = mujoco.MjData(m)
    start = time.perf_counter()
    mujoco.mj_step(m, d, steps)
    taken = time.perf_counter() - start
    mujoco.mj_forward(m, d)
    poses, apart = jj.body_poses(system, end), 0.0
    p, R = np.asarray(poses.p[..., 0]), np.asarray(poses.R[..., 0])
    for k in range(1, m.nbody):
        body, (position, _) = model.frames[name_of(m, "BODY", k)]
        if body != jj.WORLD:
            i = system.body(body)
            apart = max(apart, np.abs(p[:, i] + R[:, :, i] @ position - d.xpos[k]).max())
    return {
        "apart": float(apart),
        "speed of MuJoCo's": float(np.abs(d.cvel[1:, 3:]).max(initial=0.0)),
        "MuJoCo steps per second": steps / taken,
    }


def motion(row):
    """How a file moved, as a cell."""
    moved = row.get("motion")
    if moved is None:
        return ""
    if "failed" in moved:
        return moved["failed"][:MOST_OF_AN_ERROR]
    words = ["ok" if moved["ok"] == 1 else f"**ok in {moved['ok']:.1%}**"]
    words.append("rests" if moved["speed"] < AT_REST else f"{moved['speed']:.2g} m/s")
    if "apart" in moved:
        words.append(f"{moved['apart']:.1g} m of {moved['moved']:.1g} m from MuJoCo")
    if moved["batch"] > 1:
        speeds = (moved.get(f"{of}steps per second") for of in ("", "MuJoCo "))
        words.append(f"{', '.join(f'{x:.2g}' for x in speeds if x)} steps/s")
    return "; ".join(words)


def line(name, row):
    """A file as a line of Markdown."""
    theirs = row["mujoco"]
    loads = "no" if "error" in theirs else "yes"
    if "error" in row:
        cells = [name, row["error"][:MOST_OF_AN_ERROR], loads, *[""] * (len(HEADER) - 3)]
        return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
    dof = str(row["dof"])
    # A single object moves freely here, and stands in MuJoCo.
    if theirs.get("dof", row["dof"]) not in (row["dof"], row["dof"] - FREE):
        dof += f" (MuJoCo {theirs['dof']})"
    drives = f"{row['actuators']} ({row['servos']} servos)" if row["actuators"] else "0"
    numbers = [row["bodies"], row["joints"], dof, row["loops"], row["transmissions"], drives]
    cells = [name, "yes", loads, *numbers, row["contacts"], kinds(row["skipped"])]
    cells += [row.get("builds", "")[:MOST_OF_AN_ERROR], motion(row)]
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"


def table(header, lines):
    """Lines under a header."""
    return "\n".join([f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *lines])


def summary(package, rows):
    """Numbers of files of a package."""
    motions = [row["motion"] for row in rows if "motion" in row]
    numbers = [
        len(rows),
        sum("error" not in row for row in rows),
        sum("error" in row and "error" in row["mujoco"] for row in rows),
        sum("error" in row and "error" not in row["mujoco"] for row in rows),
        sum("builds" in row for row in rows),
        sum(row.get("builds") == "yes" for row in rows),
        len(motions),
        sum(moved.get("ok") == 1 for moved in motions),
        sum(moved.get("speed", AT_REST) < AT_REST for moved in motions),
    ]
    return f"| {' | '.join(map(str, [package, *numbers]))} |"


def main():
    """Load, build, simulate, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", type=Path, nargs="*")
    for name in ("only", "without", "build", "simulate", "floating"):
        parser.add_argument(f"--{name}", type=lambda parts: parts.split(","), default=[])
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    kept = options.out is not None and options.out.exists()
    packages = json.loads(options.out.read_text(encoding="utf-8")) if kept else {}

    def keep():
        if options.out is not None:
            options.out.write_text(json.dumps(packages, indent=1), encoding="utf-8")

    for folder in options.folders:
        rows = packages.setdefault(version(folder.resolve()), {})
        for name, path in models(folder.resolve(), options.only or [""], options.without):
            if name not in rows:
                rows[name] = examine(path, folder.resolve())
                keep()
            row = rows[name]
            asked, moves, floating = (
                "error" not in row and any(part in name for part in parts)
                for parts in (options.build, options.simulate, options.floating)
            )
            if asked and "builds" not in row:
                built = build(load(path, folder.resolve(), floating))
                row["builds"] = built if isinstance(built, str) else "yes"
                keep()
            if moves:
                start = folder.resolve(), options.seconds, options.batch, floating
                try:
                    row["motion"] = move(path, *start)
                    row["builds"] = "yes"
                except Exception as error:  # noqa: BLE001 - the next file moves all the same
                    row["motion"] = {"failed": sentence(error)}
                print(f"{name}: {motion(row)}", flush=True)
                keep()
                jax.clear_caches()
    print(table(SUMMARY, [summary(name, list(rows.values())) for name, rows in packages.items()]))
    if options.table is not None:
        parts = [
            f"## {package}\n\n{table(HEADER, [line(*item) for item in rows.items()])}\n"
            for package, rows in packages.items()
        ]
        options.table.write_text("\n".join([TITLE, *parts]), encoding="utf-8")


if __name__ == "__main__":
    main()
