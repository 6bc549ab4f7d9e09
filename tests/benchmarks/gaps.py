"""How far joints gape: trees after 10 s, in both precisions, and loops after 0.5 s.

    python tests/benchmarks/gaps.py [--only humanoid,four-bar] [--urdf FILE.urdf] [--share 1]

Trees are held by their coordinates and nothing projects them: the largest error of a joint on the
way [m or rad], in float32 as a share of the size too, and whether all steps were good. Loops move
at first at up to 5 rad/s, in steps of 1 ms without a projection and with one: the largest error of
a joint on the way, and the largest change of the energy as a share of the kinetic energy at the
start. `--share` shortens all times.
"""

import argparse
import os
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp
from cases import chain, humanoid
from description import state, system

import jaxjoints as jj
from jaxjoints.models import load_urdf
from support.loops import LOOPS, in_motion
from support.mechanisms import single
from support.quick import compile_quickly

TREE_SECONDS, LOOP_SECONDS = 10.0, 0.5


def described(mechanism, *, weight=True, gentle=1.0):
    """System and start of a mechanism; gentle: its angles as a share of those it starts from."""
    built = system(mechanism)
    if not weight:
        built = jj.replace(built, gravity=0 * built.gravity)
    start = jax.tree.map(lambda x: x[..., 0], state(mechanism, built, 1))
    if gentle != 1.0:
        q = {name: gentle * start.q[built.coordinate(name)] for name in built.topology.joints}
        start = built.state(q=q)
    return built, start


def robot(path):
    """A robot of a URDF, on the ground in its zero pose, with damping and limits of the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_urdf(path, visuals=False).build()


# Of each tree: how it is built, its size [m] and the step [s].
TREES = {
    "chain of 10": (lambda: described(chain(10)), 5.0, 1e-3),
    "chain of 50, angles near 0.03 rad": (lambda: described(chain(50), gentle=0.1), 25.0, 1e-3),
    "humanoid, without weight": (lambda: described(humanoid(), weight=False), 1.5, 1e-3),
}


def followed(built, start, scheme, dt, seconds):
    """Largest error of a joint, largest change of the energy, and whether all steps were good."""
    begin = jj.energies(built, start).total

    def one(_, carry):
        now, gap, drift, ok = carry
        now, info = jj.step(built, now, dt=dt, scheme=scheme)
        drift = jnp.maximum(drift, jnp.abs(jj.energies(built, now).total - begin))
        return now, jnp.maximum(gap, info.error), drift, ok & info.ok

    @jax.jit
    def run(start):
        none = jnp.zeros_like(start.time)
        first = start, none, none, jnp.ones((), bool)
        now, gap, drift, ok = jax.lax.fori_loop(0, max(1, round(seconds / dt)), one, first)
        return jnp.maximum(gap, jnp.max(jj.joint_errors(built, now))), drift, ok

    return run(start)


def tree_row(name, share):
    """A row of the first table."""
    build, size, dt = TREES[name]
    built, start = build()
    cells = [name, f"{1e3 * dt:g} ms"]
    for cast in (lambda x: x, single):
        mechanism, seconds = cast((built, start)), share * TREE_SECONDS
        gap, _, ok = followed(*mechanism, jj.SemiImplicitEuler(), dt, seconds)
        cells += [f"{gap:.0e}", "yes" if ok else "**no**"]
    return [*cells[:-1], f"{gap / size:.0e}", cells[-1]]


def loop_row(name, share):
    """A row of the second table."""
    built, start = in_motion(name)
    kinetic, cells = jj.energies(built, start).kinetic, [name]
    for projections in (0, 1):
        scheme = jj.SemiImplicitEuler(projections=projections)
        gap, drift, ok = followed(built, start, scheme, 1e-3, share * LOOP_SECONDS)
        cells += [f"{gap:.0e}" if ok else "**not ok**", f"{drift / kinetic:.0e}"]
    return cells


def table(header, rows):
    """Print a table whose rows come one by one."""
    print(f"\n| {' | '.join(header)} |\n{'|---' * len(header)}|", flush=True)
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)
        jax.clear_caches()


def main():
    """Print both tables."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default="", help="parts of the names of mechanisms")
    options.add_argument("--urdf", type=Path, help="a robot on the ground that is the last tree")
    options.add_argument("--share", type=float, default=1.0, help="of the times")
    given = options.parse_args()
    if given.urdf:
        TREES[given.urdf.stem] = lambda: robot(given.urdf), 2.0, 1e-3
    named = lambda names: [n for n in names if any(p in n for p in given.only.split(","))]  # noqa: E731
    header = ("tree", "step", "gap", "ok", "gap in float32", "of the size", "ok")
    table(header, (tree_row(name, given.share) for name in named(TREES)))
    header = ("loop", "gap", "energy", "gap with a projection", "energy")
    table(header, (loop_row(name, given.share) for name in named(LOOPS)))


if __name__ == "__main__":
    # Numbers, not times, are asked for.
    compile_quickly(os.environ)
    jax.config.update("jax_enable_x64", True)
    main()
