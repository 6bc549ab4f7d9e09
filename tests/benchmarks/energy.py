"""How far the schemes stray from the exact motion, in energy and from their loops, beside MuJoCo.

    python tests/benchmarks/energy.py
    python tests/benchmarks/energy.py --only four-bar
    python tests/benchmarks/energy.py --turning 100 [--seconds 10]

Three links and the four-bar of `cases`, float64, one environment each, 1 s from rest: position
error of a body's centre against RK4 at 0.1 ms, largest difference of the energy from that of the
start, largest gap of the loop. MuJoCo, where it is installed, holds the loop by soft constraints
with its default settings. With `--turning` a four-bar of unequal links, whose crank starts at that
speed [rad/s], turns without weight: which share of its energy is left, and the largest error of a
joint on the way. The tables are in README.md beside this file.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp
import numpy as np
from cases import chain, four_bar
from description import mjcf, state, system

import jaxjoints as jj
from support import mechanisms

try:
    import mujoco
except ImportError:
    mujoco = None

STEPS = (0.001, 0.002, 0.005, 0.010)
DURATION, FINE = 1.0, 1e-4
MECHANISMS = {"three-link chain": chain(3), "four-bar": four_bar()}
SCHEMES = {
    "semi-implicit Euler": jj.SemiImplicitEuler(),
    "the same, one projection": jj.SemiImplicitEuler(projections=1),
    "by rows": jj.SemiImplicitEuler(joints="rows"),
    "by rows, one projection": jj.SemiImplicitEuler(joints="rows", projections=1),
    "RATTLE": jj.Rattle(),
    "RK4": jj.RungeKutta(),
}
# What may hold the loop that turns: a scheme, and the ERP of all joints (None: the default).
TURNING_STEPS = (0.001, 0.0001)
ROWS = partial(jj.SemiImplicitEuler, joints="rows")
HOLDS = {
    "semi-implicit Euler": (jj.SemiImplicitEuler(), None),
    "the same, erp 0": (jj.SemiImplicitEuler(), 0.0),
    "the same, erp 1": (jj.SemiImplicitEuler(), 1.0),
    "the same, one projection": (jj.SemiImplicitEuler(projections=1), None),
    "the same, two projections": (jj.SemiImplicitEuler(projections=2), None),
    "by rows": (ROWS(), None),
    "by rows, erp 0": (ROWS(), 0.0),
    "by rows, erp 1": (ROWS(), 1.0),
    "by rows, one projection": (ROWS(projections=1), None),
    "by rows, two projections": (ROWS(projections=2), None),
    "by rows, curvature": (ROWS(curvature=True), None),
    "by rows, curvature, one projection": (ROWS(curvature=True, projections=1), None),
    "RATTLE": (jj.Rattle(), None),
    "RK4": (jj.RungeKutta(), None),
}


def ours(mechanism, scheme) -> Callable:
    """A run of a step dt that gives the centres at the end (3, bodies), the largest change of the
    energy and the largest error of the loop; compiled once.
    """
    built = system(mechanism)
    start = jax.tree.map(lambda x: x[..., 0], state(mechanism, built, 1))
    begin = jj.energies(built, start).total

    def one(dt, carry):
        now, drift, gap = carry
        now, info = jj.step(built, now, dt=dt, scheme=scheme)
        drift = jnp.maximum(drift, jnp.abs(jj.energies(built, now).total - begin))
        return now, drift, jnp.maximum(gap, info.error)

    @jax.jit
    def run(dt, steps):
        first = start, jnp.zeros(()), jnp.zeros(())
        return jax.lax.fori_loop(0, steps, lambda _, carry: one(dt, carry), first)

    def measured(dt):
        end, drift, gap = run(jnp.asarray(dt), round(DURATION / dt))
        return np.asarray(end.position), float(drift), float(gap)

    return measured


def theirs(mechanism, integrator: str, dt: float) -> tuple[np.ndarray, float, float]:
    """The same by MuJoCo."""
    model = mujoco.MjModel.from_xml_string(mjcf(mechanism, dt, f'integrator="{integrator}"'))
    data = mujoco.MjData(model)
    data.qpos[:] = mechanism.start(1)[0][0]
    energies, gaps = [], []
    for _ in range(round(DURATION / dt) + 1):
        mujoco.mj_forward(model, data)
        mujoco.mj_energyPos(model, data)
        mujoco.mj_energyVel(model, data)
        energies.append(data.energy.sum())
        gaps.append(np.linalg.norm(data.efc_pos) if mechanism.loops else 0.0)
        centres = data.xipos[1:].T.copy()
        mujoco.mj_step(model, data)
    return centres, np.abs(np.array(energies) - energies[0]).max(), max(gaps)


def turning(speed: float, seconds: float) -> None:
    """Print the table of a four-bar that turns freely."""
    built, start = mechanisms.four_bar(crank_speed=speed, gravity=(0.0, 0.0, 0.0))
    begin = jj.energies(built, start).total

    @jax.jit
    def run(built, scheme, dt, steps):
        def one(_, carry):
            now, gap = carry
            now, info = jj.step(built, now, dt=dt, scheme=scheme)
            return now, jnp.maximum(gap, info.error)

        end, gap = jax.lax.fori_loop(0, steps, one, (start, jnp.zeros(())))
        return jj.energies(built, end).total / begin, gap

    print(f"\n| {seconds:g} s | " + " | ".join(f"{1e3 * dt:g} ms" for dt in TURNING_STEPS) + " |")
    print("|---" * (len(TURNING_STEPS) + 1) + "|")
    for name, (scheme, erp) in HOLDS.items():
        changed = built
        for joint in built.topology.joints if erp is not None else ():
            changed = changed.with_joint(joint, erp=jnp.full(5, erp))
        cells = []
        for dt in TURNING_STEPS:
            left, gap = run(changed, scheme, jnp.asarray(dt), round(seconds / dt))
            share = f"{left:.2g}" if abs(left - 1) > 0.005 else f"1 {left - 1:+.0e}"
            cells.append(f"{share}, {gap:.0e}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default=",".join(MECHANISMS), help="of the two mechanisms")
    options.add_argument("--turning", type=float, help="speed of a crank that turns freely [rad/s]")
    options.add_argument("--seconds", type=float, default=10.0, help="for which it turns")
    given = options.parse_args()
    if given.turning is not None:
        turning(given.turning, given.seconds)
        return
    for name in given.only.split(","):
        mechanism = MECHANISMS[name]
        engines = {key: ours(mechanism, scheme) for key, scheme in SCHEMES.items()}
        if mujoco is not None:
            for integrator in ("Euler", "implicitfast", "RK4"):
                engines[f"MuJoCo {integrator}"] = partial(theirs, mechanism, integrator)
        exact, *_ = engines["RK4"](FINE)
        print(f"\n| {name} | " + " | ".join(f"{1e3 * dt:g} ms" for dt in STEPS) + " |")
        print("|---" * (len(STEPS) + 1) + "|")
        for engine, run in engines.items():
            cells = []
            for dt in STEPS:
                centres, drift, gap = run(dt)
                away = np.abs(centres - exact).max()
                cells.append(f"{away:.0e}, {drift:.0e}, {gap:.0e}")
            print(f"| {engine} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
