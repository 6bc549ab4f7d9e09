"""Robots of packages stand, walk, fall and hold beside MuJoCo's: motion, forces, speed.

    python tests/benchmarks/beside_mujoco.py [--packages FOLDER,FOLDER] [--only ant,go2]
        [--tables motion,speed] [--batches 1,64] [--out beside.json] [--picture beside.png]

Robots: those of gymnasium, Playground, robosuite and example-robot-data, from the environment or
from the folders in which these packages lie. 2 s in steps of 2 ms from the same start with the same
controls: motors that swing for a second, or servos that hold a pose. MuJoCo integrates by
"implicitfast" and solves with its defaults. Both run again in quarters of the step, and MuJoCo with
the iterations that stop its friction from creeping. Speeds are steps per second of processor time
on one core, float32 beside MuJoCo's float64. `--out` keeps what it has of other robots and tables,
and `--picture` draws all of them; `--only none` draws alone.
"""

import argparse
import contextlib
import itertools
import json
import os
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import rollout

sys.path.insert(0, str(Path(__file__).parents[1]))
from package_robots import ROBOTS  # noqa: E402

import jaxjoints as jj  # noqa: E402
from support.mujoco_states import name_of  # noqa: E402

DT, SECONDS, FINER = 2e-3, 2.0, 4
CHUNK = 100  # steps of a compiled program
STICKING = 20  # iterations of MuJoCo
END = 0.2  # of the motion, over which forces are averaged [s]
EARLY = 0.1  # [s]
SPREAD = 0.01  # deviation of the controls of a batch, as a share
ROUNDS = 3


def controls_of(robot, dt, steps):
    """Values of the actuators over the steps, held for DT, shape (steps, m.nu)."""
    return np.array([robot.values(DT * np.floor(i * dt / DT + 1e-6)) for i in range(steps)])


class Ours:
    """A robot in jaxjoints, float32: rollouts of CHUNK steps."""

    def __init__(self, robot):
        self.robot, self.system, m = robot, robot.system, robot.m
        self.links = [
            k
            for k in range(1, m.nbody)
            if robot.model.frames.get(name_of(m, "BODY", k), (jj.WORLD,))[0] != jj.WORLD
        ]
        frames = [robot.model.frames[name_of(m, "BODY", k)] for k in self.links]
        carriers = np.array([self.system.body(body) for body, _ in frames])
        at = jnp.asarray(np.stack([place for _, (place, _) in frames], axis=1), jnp.float32)
        ends = [name.partition("/")[0].split(" on ") for name in self.system.topology.contacts]
        touched = {*robot.touched, *(["ground"] if "floor" in robot.touched else [])}
        counted = np.array([bool(touched & set(pair)) for pair in ends])
        assert counted.any()

        def keep(state, info):
            poses = jj.body_poses(self.system, state)
            places = jax.tree.map(lambda x: x[:, carriers], poses).apply(at)
            return places, info.contact_force[0, counted].sum(), info.ok, info.residual

        self.carriers, self.frames = carriers, frames
        self.keep, self.controls = keep, jax.jit(jax.vmap(robot.controls))

    def values(self, dt):
        return jnp.asarray(controls_of(self.robot, dt, round(SECONDS / dt)), jnp.float32)

    def motion(self, dt):
        """Over time: places of the links, the force, whether the steps are sound, residuals. And
        lines that show the robot at the end.
        """
        controls, state, found = self.controls(self.values(dt)), self.robot.state, []
        for first in range(0, round(SECONDS / dt), CHUNK):
            part = jax.tree.map(lambda x: x[first : first + CHUNK], controls)  # noqa: B023
            # Outside of `jit`, few steps compile in less than half of the time.
            state, records = jj.rollout(self.system, state, part, dt=dt, record=self.keep)
            found.append(records)
        poses = jax.tree.map(np.asarray, jj.body_poses(self.system, state))
        p, R = poses.p[:, self.carriers].T, np.moveaxis(poses.R[:, :, self.carriers], 2, 0)
        places, turns = (
            np.array(x) for x in zip(*(frame for _, frame in self.frames), strict=True)
        )
        lines = outline(self.robot.m, self.links, p + np.einsum("nij,nj->ni", R, places), R @ turns)
        return *jax.tree.map(lambda *x: np.concatenate(x), *found), lines

    def speed(self, size):
        """Share of sound steps, steps per second of a batch whose controls differ, and seconds to
        compile.
        """
        noise = 1 + SPREAD * np.random.default_rng(0).normal(size=size)
        controls = self.controls(self.values(DT)[..., None] * noise.astype(np.float32))
        starts = range(0, round(SECONDS / DT), CHUNK)
        parts = [jax.tree.map(lambda x: x[i : i + CHUNK], controls) for i in starts]  # noqa: B023
        state = jj.replicate(self.robot.state, size)

        def told(state, info):
            return info.ok

        program = jax.jit(partial(jj.rollout, dt=DT, record=told))
        begin = time.process_time()
        jax.block_until_ready(program(self.system, state, parts[0]))
        compiling = time.process_time() - begin
        with one_core():
            found = []
            begin = time.process_time()
            for part in parts:
                state, ok = program(self.system, state, part)
                found.append(ok)
            jax.block_until_ready(found)
            seconds = time.process_time() - begin
        return float(np.mean(found)), size * CHUNK * len(parts) / seconds, compiling


@contextlib.contextmanager
def one_core():
    """All threads of this process on one core, where the system can do that."""
    threads = Path("/proc/self/task")
    if not threads.is_dir():
        yield
        return
    cores = os.sched_getaffinity(0)

    def confine(to):
        for thread in threads.iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), to)

    confine({max(cores)})
    try:
        yield
    finally:
        confine(cores)


def outline(m, links, p, R):
    """Lines from link to link, through capsules and cylinders, along the edges of boxes, and to
    other shapes, shape (lines, 2, 3).

    p, R: places and rotation matrices of links, shapes (links, 3) and (links, 3, 3)
    """
    kinds = mujoco.mjtGeom
    at = {k: i for i, k in enumerate(links)}
    lines = [(p[at[int(m.body_parentid[k])]], p[at[k]]) for k in links if m.body_parentid[k] in at]
    for g in range(m.ngeom):
        i = at.get(int(m.geom_bodyid[g]))
        if i is None:
            continue
        turn = np.zeros(9)
        mujoco.mju_quat2Mat(turn, m.geom_quat[g])
        centre, turn = p[i] + R[i] @ m.geom_pos[g], R[i] @ turn.reshape(3, 3)
        if m.geom_type[g] in (kinds.mjGEOM_CAPSULE, kinds.mjGEOM_CYLINDER):
            half = turn[:, 2] * m.geom_size[g, 1]
            lines.append((centre - half, centre + half))
        elif m.geom_type[g] == kinds.mjGEOM_BOX:
            corners = np.array(list(itertools.product((-1, 1), repeat=3)))
            for one, other in itertools.combinations(corners, 2):
                if np.abs(one - other).sum() == 2:
                    ends = (centre + turn @ (m.geom_size[g] * corner) for corner in (one, other))
                    lines.append(tuple(ends))
        else:
            lines.append((p[i], centre))
    return np.array(lines)


def of_mujoco(robot, links, dt, sticking=0):
    """Places of links and the force of the contacts that count, over time, and lines at the end.

    sticking: iterations after each solve, in which friction gives way no more
    """
    m, d, steps = robot.m, mujoco.MjData(robot.m), round(SECONDS / dt)
    configure(m, dt)
    m.opt.noslip_iterations = sticking
    d.qpos[:] = robot.qpos
    touched = [m.geom(name).id for name in robot.touched]
    places, forces, force = np.zeros((steps, 3, len(links))), np.zeros(steps), np.zeros(6)
    for i, values in enumerate(controls_of(robot, dt, steps)):
        d.ctrl[:] = values
        mujoco.mj_step(m, d)
        for c in range(d.ncon):
            if set(touched) & set(d.contact[c].geom):
                mujoco.mj_contactForce(m, d, c, force)
                forces[i] += force[0]
        mujoco.mj_kinematics(m, d)
        places[i] = d.xpos[links].T
    return places, forces, outline(m, links, d.xpos[links], d.xmat[links].reshape(-1, 3, 3))


def configure(m, dt):
    """MuJoCo's defaults but for the integrator, which takes servos implicitly as jaxjoints does."""
    m.opt.timestep, m.opt.integrator = dt, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    m.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    m.opt.iterations, m.opt.ls_iterations, m.opt.noslip_iterations = 100, 50, 0


def speed_of_mujoco(robot):
    """Steps per second by MuJoCo's own rollout."""
    m, d = robot.m, mujoco.MjData(robot.m)
    configure(m, DT)
    start = np.zeros(mujoco.mj_stateSize(m, mujoco.mjtState.mjSTATE_FULLPHYSICS))
    d.qpos[:] = robot.qpos
    mujoco.mj_getState(m, d, start, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    values = controls_of(robot, DT, round(SECONDS / DT))
    times = []
    with one_core():
        for _ in range(ROUNDS):
            begin = time.process_time()
            rollout.rollout(m, d, start[None], values[None])
            times.append(time.process_time() - begin)
    return len(values) / statistics.median(times)


def apart(one, other):
    """Largest distance of a link from itself over time [m]; the finer of two motions is thinned."""
    count = min(len(one), len(other))
    one, other = (x[len(x) // count - 1 :: len(x) // count] for x in (one, other))
    return np.linalg.norm(one - other, axis=1).max(-1)


def at_times(values, dt):
    """A number early in the motion and at its end."""
    return [float(values[round(t / dt) - 1]) for t in (EARLY, SECONDS)]


def motion(robot):
    """How both engines move the robot, and what the picture shows."""
    ours, m = Ours(robot), robot.m
    places, force, ok, residual, lines = ours.motion(DT)
    finer, finer_force, *_ = ours.motion(DT / FINER)
    theirs, their_force, their_lines = of_mujoco(robot, ours.links, DT)
    theirs_finer, their_finer_force, _ = of_mujoco(robot, ours.links, DT / FINER)
    sticking, *_ = of_mujoco(robot, ours.links, DT, STICKING)
    shown = ours.links.index(m.body(robot.shown).id)
    end = round(END / DT)
    return {
        "bodies": len(robot.system.topology.bodies),
        "contacts": len(robot.system.topology.contacts),
        "weight": robot.weight,
        "height": [float(x[-1, 2, shown]) for x in (places, theirs, sticking)],
        "finer height": [float(x[-1, 2, shown]) for x in (finer, theirs_finer)],
        "force": [float(x[-end:].mean()) for x in (force, their_force)],
        "finer force": [float(x[-FINER * end :].mean()) for x in (finer_force, their_finer_force)],
        "apart": at_times(apart(places, theirs), DT),
        "apart if sticking": at_times(apart(places, sticking), DT),
        "finer apart": at_times(apart(finer, theirs_finer), DT / FINER),
        "by the step": [float(apart(*x)[-1]) for x in ((places, finer), (theirs, theirs_finer))],
        "moved": float(np.linalg.norm(theirs - theirs[0], axis=1).max()),
        "ok": float(ok.mean()),
        "residual": float(residual.max()),
        "heights": [x[::5, 2, shown].tolist() for x in (places, theirs)],
        "forces": [x.reshape(-1, 5).mean(1).tolist() for x in (force, their_force)],
        "lines": [np.round(x, 4).tolist() for x in (lines, their_lines)],
    }


def speed(robot, batches):
    """Steps per second of both engines."""
    ours = Ours(robot)
    row = {f"batch {size}": ours.speed(size) for size in batches}
    return row | {"mujoco": speed_of_mujoco(robot)}


HEADERS = {
    "motion": (
        *("robot", "height [m]", "force", f"apart after {EARLY:g} s", f"{SECONDS:g} s"),
        *("if friction sticks", "in quarters", "by the step", "moved", "ok", "residual"),
    ),
    "speed": ("robot", "batch", "sound", "steps/s", "compiles in", "MuJoCo"),
}


def line_of_motion(name, row):
    """A row as Markdown."""
    over = row["weight"] or 1.0
    cells = [
        name,
        ", ".join(f"{x:.4f}" for x in row["height"]),
        ", ".join(f"{x / over:.4f}" for x in row["force"]),
        *(f"{x:.0e}" for x in row["apart"]),
        f"{row['apart if sticking'][-1]:.0e}",
        f"{row['finer apart'][-1]:.0e}",
        ", ".join(f"{x:.0e}" for x in row["by the step"]),
        f"{row['moved']:.2f}",
        f"{row['ok']:.2%}",
        f"{row['residual']:.0e}",
    ]
    return f"| {' | '.join(cells)} |"


def lines_of_speed(name, row):
    """Rows as Markdown."""
    return "\n".join(
        f"| {name} | {size.removeprefix('batch ')} | {ok:.2%} | {rate:,.0f} | {compiling:.0f} s "
        f"| {row['mujoco']:,.0f} |"
        for size, (ok, rate, compiling) in (x for x in row.items() if x[0] != "mujoco")
    )


def draw(rows, path):
    """Of each robot its links at the end, the height of one, and the force, of both engines."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    styles = {"MuJoCo": ("0.6", 2.6), "jaxjoints": ("#c03a2b", 1.0)}
    columns = 2
    lines = -(-len(rows) // columns)
    figure, axes = plt.subplots(
        *(lines, 3 * columns), figsize=(10, 1.5 * lines), layout="constrained", squeeze=False
    )
    for plot in axes.flat:
        plot.set_axis_off()
        plot.tick_params(labelsize=5)
    for i, (name, row) in enumerate(rows.items()):
        posture, height, force = axes[i // columns, 3 * (i % columns) : 3 * (i % columns) + 3]
        # Seen from the side, MuJoCo's behind.
        for (engine, (color, width)), k in zip(styles.items(), (1, 0), strict=True):
            for x, _, z in np.array(row["lines"][k]).transpose(0, 2, 1):
                posture.plot(x, z, color=color, lw=width)
            times = np.linspace(0, SECONDS, len(row["heights"][k]))
            height.plot(times, row["heights"][k], color=color, lw=width, label=engine)
            over = row["weight"] or 1.0
            times = np.linspace(0, SECONDS, len(row["forces"][k]))
            force.plot(times, np.array(row["forces"][k]) / over, color=color, lw=width)
        posture.set_aspect("equal", "datalim")
        posture.set_title(name, fontsize=8, loc="left")
        height.set_title("height [m]", fontsize=7)
        force.set_title("force / weight" if row["weight"] else "force [N]", fontsize=7)
        most = np.percentile(np.array(row["forces"]) / over, 98)
        force.set_ylim(0, 1.5 * most)
        for plot in (height, force):
            plot.set_axis_on()
            plot.set_xticks(range(int(SECONDS) + 1))
    axes[0, 1].legend(fontsize=6)
    figure.supxlabel("time [s]", fontsize=7)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def main():
    """Examine the robots; one whose file is missing is a line with the reason."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", default="", help="folders of packages, with commas between")
    parser.add_argument("--only", default=",".join(ROBOTS))
    parser.add_argument("--tables", default="motion,speed")
    parser.add_argument("--batches", default="1,64")
    parser.add_argument("--out", type=Path, help="JSON to write, robot by robot")
    parser.add_argument("--picture", type=Path, help="picture to write")
    given = parser.parse_args()
    folders = [Path(folder) for folder in given.packages.split(",") if folder]
    batches = [int(size) for size in given.batches.split(",")]
    kept = given.out is not None and given.out.exists()
    rows = json.loads(given.out.read_text(encoding="utf-8")) if kept else {}
    for table in given.tables.split(","):
        header = HEADERS[table]
        print(f"\n| {' | '.join(header)} |\n|{'---|' * len(header)}", flush=True)
        for name in given.only.split(",") if given.only != "none" else ():
            try:
                robot = ROBOTS[name](folders)
            except FileNotFoundError as error:
                print(f"| {name} | left out: {error} |", flush=True)
                continue
            row = motion(robot) if table == "motion" else speed(robot, batches)
            rows.setdefault(name, {})[table] = row
            told = line_of_motion if table == "motion" else lines_of_speed
            print(told(name, row), flush=True)
            jax.clear_caches()
            if given.out:
                given.out.write_text(json.dumps(rows), encoding="utf-8")
    if given.picture:
        draw({name: row["motion"] for name, row in rows.items() if "motion" in row}, given.picture)


if __name__ == "__main__":
    main()
