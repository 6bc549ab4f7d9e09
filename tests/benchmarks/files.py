"""Model files of packages: which load, what they have, what is left out, and how they move.

    python tests/benchmarks/files.py FOLDER… [--only PART,PART] [--without PART,PART]
        [--simulate PART,PART] [--floating PART,PART] [--seconds 0.5]
        [--speed PART,PART] [--batch 64] [--minutes 40] [--out files.json] [--table files.md]

FOLDER: where a package is unpacked; its *.urdf, and its *.xml that MuJoCo's models begin in. Each
is loaded with the whole package as roots. PART: of the path of a file in its package; "" is part
of all.

Files with a part of --simulate move for some time, in float64, from where they start, with all
controls at 0 and the contacts of the file, in its time step or in 2 ms. A URDF that is named in
--floating starts with its lowest point on a ground; others stand in the world, without contacts.
All but those on a ground move beside MuJoCo's, if it loads the file with the same freedoms.

Files with a part of --speed move likewise in float32, without that ground, as a --batch that is
compiled fully and whose gravity differs by 1 %. Steps of all environments are counted per second of
processor time, in turn with MuJoCo's, the smallest files first, for at most --minutes of processor
time. `taskset -c 0` keeps both on one core.

--out keeps what was found: files that are in it are not loaded or moved again. --table writes the
tables of all files. Both are written after each file. Prints the numbers of each package.
"""

import argparse
import json
import os
import re
import statistics
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
# Of the measurement of a speed: rounds in turn, deviation of gravity in a batch as a share.
ROUNDS, SPREAD = 3, 0.01
# Contacts deeper than this are told, distances below this are 0 [m].
DEEP, NEAR = 1e-3, 1e-6
# Of a sentence, kinds of what is skipped in a cell, names of files that are refused alike.
MOST_OF_AN_ERROR, MOST_KINDS, MOST_NAMES = 130, 6, 3
NOT_MOVED = "not moved: "
HEADER = (
    *("file", "bodies", "dof", "has", "skipped", "moves", "apart [mm]"),
    *("steps/s", "MuJoCo", "ratio"),
)
TITLE = """# Model files, one by one

Written by `files.py`. Its [page](README.md#what-files-have-and-what-of-it-is-read) says what was
found, how and when. All files in the tables load.

* **Skipped.** "pair of geoms": contacts between bodies, which `contacts="all"` adds.
* **Moves**, with all controls at 0, in float64: the largest speed of a body after 0.5 s, "rests"
  below 5 cm/s; "on a ground": with its lowest point on it at first; steps that are not solved, and
  contacts that are more than 1 mm deep. Empty: not tried.
* **Apart.** Largest distance of a centre of mass from MuJoCo's, and how far bodies went. 0: below
  1 µm.
* **Steps/s** of 64 environments in float32 and of MuJoCo in float64, per second of processor time
  on one core; the ratio of both, measured in turn. Here URDFs stand in the world, without a ground.
"""
SUMMARY = (
    *("package", "files", "load", "refused, MuJoCo too", "refused, MuJoCo loads"),
    *("simulated", "all steps solved", "at rest", "too large", "speeds", "median ratio"),
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
        word = re.split(r" \(|[,:;]", re.sub(r" '[^']*'", "", sentence))[0]
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


def race(path, folder, seconds, batch):
    """Steps per second of processor time: of a batch in float32, and of MuJoCo in turn."""
    begin = time.process_time()
    with jax.enable_x64(False):
        _, system, state, run, m = ready(path, folder, False, seconds)
        steps, run, state = run.keywords["steps"], jax.jit(run), jj.replicate(state, batch)
        # Environments differ, so that a batch waits for its slowest as it does in use.
        share = 1 + SPREAD * np.random.default_rng(0).normal(size=batch)
        gravity = np.asarray(system.gravity)[:, None] * share
        system = jj.replace(system, gravity=np.asarray(gravity, np.float32))
        _, (ok, *_) = jax.block_until_ready(quietly(run, system, state))
        row = {"ok": float(ok.mean()), "compilation": time.process_time() - begin}
        ours, theirs = [], []
        for _ in range(ROUNDS):
            ours.append(batch * steps / taken(lambda: jax.block_until_ready(run(system, state))))
            if m is not None:
                d = mujoco.MjData(m)
                theirs.append(
                    steps / taken(lambda: (mujoco.mj_resetData(m, d), mujoco.mj_step(m, d, steps)))  # noqa: B023
                )
    row["steps/s"] = statistics.median(ours)
    if theirs:
        row["MuJoCo"] = statistics.median(theirs)
        row["ratio"] = statistics.median(x / y for x, y in zip(ours, theirs, strict=True))
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
    words = ["rests" if moved["speed"] < AT_REST else f"{moved['speed']:.2g} m/s"]
    if moved["ground"]:
        words[0] += " on a ground"
    if moved["ok"] < 1:
        words.append(f"**{1 - moved['ok']:.1%} of the steps unsolved**")
    if moved.get("gap", 0) < -DEEP:
        words.append(f"{-1e3 * moved['gap']:.2g} mm deep")
    return ", ".join(words)


def distance(moved):
    """How far a file is from MuJoCo's, and how far it went, as a cell [mm]."""
    if moved.get("apart") == np.inf:
        return "MuJoCo is unstable"
    if "apart" not in moved:
        return ""
    far, way = (
        0 if moved[k] < NEAR else float(f"{1e3 * moved[k]:.1g}") for k in ("apart", "moved")
    )
    return f"{far:g} of {way:g}"


def speed(raced):
    """How fast a file moved, as cells: here, in MuJoCo, the ratio."""
    if "failed" in raced:
        return [raced["failed"][:MOST_OF_AN_ERROR], "", ""]
    cells = [
        f"{float(f'{raced[k]:.2g}'):,.0f}" if k in raced else "" for k in ("steps/s", "MuJoCo")
    ]
    if raced["ok"] < 1 - 1e-6:  # A mean of ones in float32 is rounded.
        cells[0] += f", **{1 - raced['ok']:.1%} unsolved**"
    return [*cells, f"{raced['ratio']:.2g}" if "ratio" in raced else ""]


def parts(row):
    """What a file has besides bodies, as a cell."""
    motors, servos = row["actuators"] - row["servos"], row["servos"]
    numbers = {
        "motor": motors,
        "servo": servos,
        "loop": row["loops"],
        "equality": row["transmissions"],
        "contact": row["contacts"],
    }
    several = {"equality": "equalities"}
    return ", ".join(
        f"{n} {word if n == 1 else several.get(word, word + 's')}"
        for word, n in numbers.items()
        if n
    )


def line(name, row):
    """A file with bodies as a line of Markdown."""
    theirs, moved = row["mujoco"], row.get("motion")
    dof = str(row["dof"])
    # A single object moves freely here, and stands in MuJoCo.
    if theirs.get("dof", row["dof"]) not in (row["dof"], row["dof"] - FREE):
        dof += f" (MuJoCo {theirs['dof']})"
    cells = [name, row["bodies"], dof, parts(row), kinds(row["skipped"])]
    cells += [motion(moved), distance(moved)] if moved else ["", ""]
    cells += speed(row["race"]) if "race" in row else ["", "", ""]
    if "error" in theirs:
        cells[-2] = "refuses"
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"


def section(package, rows):
    """The files of a package: a table, those without a body, those that are refused."""
    folder = os.path.commonpath([os.path.dirname(name) for name in rows])
    short = {name: os.path.relpath(name, folder) for name in rows}
    moving = [line(short[name], row) for name, row in rows.items() if row.get("bodies")]
    bare = [short[name] for name, row in rows.items() if row.get("bodies") == 0]
    refused = {}
    for name, row in rows.items():
        if "error" in row:
            here = "" if "error" in row["mujoco"] else " MuJoCo loads it."
            # The file that the error names may be one that this file includes.
            cause = re.sub(r"^[^ ]+, line \d+, ", "", row["error"])
            kind = re.sub(r" ?'[^']*'", "", cause) + here
            refused.setdefault(kind, (cause, here, []))[-1].append(short[name])
    below = f"Below `{folder}`.\n\n" if folder else ""
    text = f"## {package}\n\n{below}{table(HEADER, moving)}\n"
    if bare:
        text += f"\nNothing moves in {len(bare)}: {', '.join(bare)}.\n"
    if refused:
        text += "\nRefused, by MuJoCo too where nothing else is said:\n\n"
    for cause, here, names in refused.values():
        shown, more = names[:MOST_NAMES], len(names) - MOST_NAMES
        shown += [f"{more} more"] if more > 0 else []
        text += f"* {', '.join(shown)}: {cause[:MOST_OF_AN_ERROR].rstrip('.')}.{here}\n"
    return text


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
        sum("steps/s" in row.get("race", {}) for row in rows),
    ]
    ratios = [row["race"]["ratio"] for row in rows if "ratio" in row.get("race", {})]
    numbers.append(f"{statistics.median(ratios):.2g}" if ratios else "")
    return f"| {' | '.join(map(str, [package, *numbers]))} |"


def size(file):
    """Of a file, for the order in which files move."""
    row = file[-1]
    return row.get("dof", 0) + row.get("contacts", 0)


def main():
    """Load, simulate, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", type=Path, nargs="*")
    for name in ("only", "without", "simulate", "floating", "speed"):
        parser.add_argument(f"--{name}", type=lambda parts: parts.split(","), default=[])
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    kept = options.out is not None and options.out.exists()
    packages = json.loads(options.out.read_text(encoding="utf-8")) if kept else {}

    def keep():
        if options.out is not None:
            options.out.write_text(json.dumps(packages, indent=1), encoding="utf-8")
        if options.table is not None:
            sections = [section(*item) for item in packages.items()]
            options.table.write_text("\n".join([TITLE, *sections]), encoding="utf-8")

    files = []
    for folder in map(Path.resolve, options.folders):
        rows = packages.setdefault(version(folder), {})
        for name, path in models(folder, options.only or [""], options.without):
            if name not in rows:
                rows[name] = examine(path, folder)
                keep()
            files.append((name, path, folder, rows[name]))

    def add(kind, wanted, function, cell):
        """What a function finds of the files that have a wanted part, the smallest first."""
        begin = time.process_time()
        for name, path, folder, row in sorted(files, key=size):
            chosen = row.get("bodies") and any(part in name for part in wanted)
            if not chosen or kind in row:
                continue
            if time.process_time() - begin > 60 * options.minutes:
                break
            try:
                row[kind] = function(name, path, folder)
            except Exception as error:  # noqa: BLE001 - the next file moves all the same
                row[kind] = {"failed": sentence(error)}
            print(f"{name}: {cell(row[kind])}", flush=True)
            keep()
            jax.clear_caches()

    def moves(name, path, folder):
        floating = any(part in name for part in options.floating)
        return move(path, folder, floating, options.seconds)

    def races(_, path, folder):
        return race(path, folder, options.seconds, options.batch)

    add("motion", options.simulate, moves, motion)
    add("race", options.speed, races, lambda raced: " ".join(speed(raced)))
    keep()
    print(table(SUMMARY, [summary(name, list(rows.values())) for name, rows in packages.items()]))


if __name__ == "__main__":
    main()
