"""How far the schemes stray from the exact motion, in energy and from their loops, beside MuJoCo.

    python tests/benchmarks/energy.py
    python tests/benchmarks/energy.py --only four-bar

Three links and the four-bar of `cases`, float64, one environment each, 1 s from rest: position
error of a body's centre against RK4 at 0.1 ms, largest difference of the energy from that of the
start, largest gap of the loop. MuJoCo, where it is installed, holds the loop by soft constraints
with its default settings. The table is in README.md beside this file.
"""

import argparse
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from cases import chain, four_bar
from description import mjcf, state, system

import jaxjoints as jj

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


def ours(mechanism, scheme) -> Callable:
    """A run of a step dt that gives the centres at the end (3, bodies), the largest change of the
    energy and the largest error of the loop; compiled once.
    """
    built = system(mechanism)
    start = jax.tree.map(lambda x: x[..., 0], state(mechanism, built, 1))
    begin = sum(jj.energy(built, start))

    def one(dt, carry):
        now, drift, gap = carry
        now, info = jj.step(built, now, dt=dt, scheme=scheme)
        drift = jnp.maximum(drift, jnp.abs(sum(jj.energy(built, now)) - begin))
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


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default=",".join(MECHANISMS), help="of the two mechanisms")
    for name in options.parse_args().only.split(","):
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
