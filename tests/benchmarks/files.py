"""Model files of packages: which load, what they have, what is left out, and how they move.

    python tests/benchmarks/files.py FOLDER… [--only PART,PART] [--without PART,PART]
        [--simulate PART,PART] [--floating PART,PART] [--seconds 0.5]
        [--speed PART,PART] [--batch 16] [--out files.json] [--table files.md]

FOLDER: where a package is unpacked; its *.urdf, and its *.xml that MuJoCo's models begin in. Each
is loaded with the whole package as roots. PART: of the path of a file in its package; "" is part
of all.

Files with a part of --simulate move for some time, in float64, from where they start, with all
controls at 0 and the contacts of the file, in its time step or in 2 ms. A URDF that is named in
--floating starts with its lowest point on a ground; others stand in the world, without contacts.
All but those on a ground move beside MuJoCo's, if it loads the file with the same freedoms.

Files with a part of --speed move likewise in float32, as a --batch that is compiled fully. Steps of
all environments are counted per second of processor time, beside MuJoCo's.

--out keeps what was found: files that are in it are not loaded or moved again. Prints the number of
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
import mujoco
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
jax.config.update("jax_enable_x64", True)

import jaxjoints as jj  # noqa: E402
from jaxjoints.models import LoadError, load_mjcf, load_urdf  # noqa: E402
from support.mujoco_states import name_of  # noqa: E402
from support.urdf import plain  # noqa: E402

DT, FREE = 2e-3, 6
GROUNDS, EVERY = (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_HFIELD), 2**31 - 1
# Speeds below this count as rest [m/s]; a start this far above the ground [m].
AT_REST, ABOVE = 0.05, 1e-3
# Bodies and contacts of a file that is still simulated; least time to measure a speed [s].
MOST_BODIES, MOST_CONTACTS, LEAST_TIME = 60, 250, 0.2
# Contacts deeper than this are told [m].
DEEP = 1e-3
# Of a sentence in a table, and kinds of what is skipped in a cell.
MOST_OF_AN_ERROR, MOST_KINDS = 130, 6
NOT_MOVED = "not moved: "
HEADER = (
    *("file", "loads", "MuJoCo", "bodies", "joints", "dof", "loops", "equalities", "actuators"),
    *("contacts", "skipped", "moves", "steps/s"),
)
TITLE = """# Model files, one by one

Written by `files.py`, whose [page](README.md#what-files-have-and-what-of-it-is-read) says what was
found. "MuJoCo": whether it loads the file. "pair of geoms": contacts between bodies, which
`contacts="all"` adds.

"moves": whether all steps of 0.5 s are solved, in float64, without controls; the largest speed of a
body at the end, "rests" below 5 cm/s; how deep contacts are, where more than 1 mm; how far the
centres of mass are from MuJoCo's, and how far they went. "on a ground": with its lowest point on it
at first.

"steps/s": of 16 environments in float32, per second of processor time, then MuJoCo's.
"""
SUMMARY = (
    *("package", "files", "load", "refused, MuJoCo too", "refused, MuJoCo loads"),
    *("simulated", "all steps solved", "at rest", "too large"),
)


class Large(ValueError):
    """A file with too many bodies or contacts to be simulated here."""


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
    return text if isinstance(error, LoadError | Large) else f"{type(error).__name__}: {text}"


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


def ready(path, folder, floating, seconds):
    """A model, its system and state, its rollout, and MuJoCo's model if that has the freedoms."""
    model = load(path, folder, floating)
    if floating:
        quietly(model.add_ground, friction=0.8)
    have = counts(model.builder)
    if have["bodies"] > MOST_BODIES or have["contacts"] > MOST_CONTACTS:
        raise Large(f"{NOT_MOVED}{have['bodies']} bodies and {have['contacts']} contacts")
    system, state = quietly(model.build)
    if floating:
        gap = float(jj.gaps(system, state).min(initial=ABOVE))
        state = jj.replace(state, position=state.position.at[2].add(ABOVE - gap))
    dt = model.timestep or DT
    zeros = np.zeros(max((actuator.index + 1 for actuator in model.actuators), default=0))

    def passive(state):
        return model.control(system, zeros, state=state, activation=model.activation())

    def keep(_, info):
        return info.ok, info.residual, info.error

    course = {"dt": dt, "steps": max(round(seconds / dt), 1), "record": keep}
    run = partial(jj.rollout, controls=passive if model.actuators else None, **course)
    return model, system, state, run, None if floating else theirs(path, have, dt)


def theirs(path, have, dt):
    """MuJoCo's model of a file, whose bodies touch grounds and pairs of the file alone, as here.

    None if it refuses the file, or moves it otherwise.
    """
    try:
        m = of_mujoco(path)
    except (ValueError, mujoco.FatalError):
        return None
    # It keeps a single object of URDF in the world, and has no mimic joints.
    if path.suffix == ".urdf" and (m.nv != have["dof"] or have["transmissions"]):
        return None
    m.opt.timestep = dt
    # Geoms touch grounds alone, a bit for each.
    grounds = np.isin(m.geom_type, GROUNDS)
    bits = 1 << np.arange(grounds.sum())
    meets = m.geom_contype[:, None] & m.geom_conaffinity[grounds]
    meets |= m.geom_conaffinity[:, None] & m.geom_contype[grounds]
    m.geom_conaffinity[:], m.geom_contype[:] = (meets != 0) @ bits, 0
    m.geom_conaffinity[grounds], m.geom_contype[grounds] = 0, bits
    m.body_conaffinity[:] = m.body_contype[:] = EVERY
    return m


def move(path, folder, floating, seconds):
    """How a file moves, beside MuJoCo."""
    model, system, state, run, m = ready(path, folder, floating, seconds)
    end, (ok, residual, error) = jax.tree.map(np.asarray, quietly(run, system, state))
    finite = all(np.isfinite(x).all() for x in jax.tree.leaves(end))
    row = {
        "ok": float(ok.mean()) if finite else 0.0,
        "residual": float(residual.max()),
        "error": float(error.max()),
        "speed": float(np.abs(end.velocity).max()),
        "moved": float(np.abs(end.position - np.asarray(state.position)).max()),
        "ground": floating,
    }
    if system.topology.contacts:
        row["gap"] = float(jj.gaps(system, end).min())
    if m is not None:
        row["apart"] = apart(m, model, system, end, run.keywords["steps"])
    return row


def apart(m, model, system, end, steps):
    """How far centres of mass are from MuJoCo's [m]; infinite if MuJoCo warns of its motion."""
    d, most = mujoco.MjData(m), 0.0
    mujoco.mj_step(m, d, steps)
    mujoco.mj_forward(m, d)
    if d.warning.number.any():
        return np.inf
    poses = jax.tree.map(np.asarray, jj.body_poses(system, end))
    for k in range(1, m.nbody):
        body, (position, rotation) = model.frames[name_of(m, "BODY", k)]
        if body != jj.WORLD:
            i, place = system.body(body), position + rotation @ m.body_ipos[k]
            most = max(most, np.abs(poses.p[:, i] + poses.R[:, :, i] @ place - d.xipos[k]).max())
    return float(most)


def race(path, folder, floating, seconds, batch):
    """Steps per second of processor time: of a batch in float32, and of MuJoCo."""
    with jax.enable_x64(False):
        _, system, state, run, m = ready(path, folder, floating, seconds)
        steps, run, state = run.keywords["steps"], jax.jit(run), jj.replicate(state, batch)
        _, (ok, *_) = jax.block_until_ready(quietly(run, system, state))
        row = {
            "ok": float(ok.mean()),
            "steps/s": batch * steps / taken(lambda: jax.block_until_ready(run(system, state))),
        }
    if m is not None:
        d = mujoco.MjData(m)
        row["MuJoCo"] = steps / taken(
            lambda: (mujoco.mj_resetData(m, d), mujoco.mj_step(m, d, steps))
        )
    return row


def taken(function):
    """Processor time of a call [s]."""
    start, calls = time.process_time(), 0
    while (spent := time.process_time() - start) < LEAST_TIME:
        function()
        calls += 1
    return spent / calls


def motion(moved):
    """How a file moved, as a cell."""
    if "failed" in moved:
        return moved["failed"][:MOST_OF_AN_ERROR]
    words = ["ok" if moved["ok"] == 1 else f"**ok in {moved['ok']:.1%}**"]
    words.append("rests" if moved["speed"] < AT_REST else f"{moved['speed']:.2g} m/s")
    if moved["ground"]:
        words.append("on a ground")
    if moved.get("gap", 0) < -DEEP:
        words.append(f"{-1e3 * moved['gap']:.2g} mm deep")
    if moved.get("apart") == np.inf:
        words.append("unstable in MuJoCo")
    elif "apart" in moved:
        words.append(f"{moved['apart']:.1g} m of {moved['moved']:.1g} m from MuJoCo")
    return "; ".join(words)


def speed(raced):
    """How fast a file moved, as a cell."""
    if "failed" in raced:
        return raced["failed"][:MOST_OF_AN_ERROR]
    speeds = (float(f"{raced[name]:.2g}") for name in ("steps/s", "MuJoCo") if name in raced)
    words = [f"{x:,.0f}" for x in speeds]
    return "; ".join([*words, *([f"**ok in {raced['ok']:.1%}**"] if raced["ok"] < 1 else [])])


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
    cells += [motion(row["motion"]) if "motion" in row else ""]
    cells += [speed(row["race"]) if "race" in row else ""]
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
        sum("ok" in moved for moved in motions),
        sum(moved.get("ok") == 1 for moved in motions),
        sum(moved.get("speed", AT_REST) < AT_REST for moved in motions),
        sum(moved.get("failed", "").startswith(NOT_MOVED) for moved in motions),
    ]
    return f"| {' | '.join(map(str, [package, *numbers]))} |"


def main():
    """Load, simulate, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", type=Path, nargs="*")
    for name in ("only", "without", "simulate", "floating", "speed"):
        parser.add_argument(f"--{name}", type=lambda parts: parts.split(","), default=[])
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--batch", type=int, default=16)
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
            simulated, floating, raced = (
                bool(row.get("bodies")) and any(part in name for part in parts)
                for parts in (options.simulate, options.floating, options.speed)
            )
            start = path, folder.resolve(), floating, options.seconds
            for kind, wanted, function, cell in (
                ("motion", simulated, partial(move, *start), motion),
                ("race", raced, partial(race, *start, options.batch), speed),
            ):
                if wanted and kind not in row:
                    try:
                        row[kind] = function()
                    except Exception as error:  # noqa: BLE001 - the next file moves all the same
                        row[kind] = {"failed": sentence(error)}
                    print(f"{name}: {cell(row[kind])}", flush=True)
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
