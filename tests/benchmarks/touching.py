"""Gymnasium's walkers on the ground beside MuJoCo: how far they go apart, why, and how they rest.

    python tests/benchmarks/touching.py ASSETS [--only ant,hopper] [--rest none]

ASSETS: the folder of gymnasium's MJCF files. From the pose of the file, 1 mm above the ground, with
random speeds and without controls, in float64, by semi-implicit Euler steps of 1 ms in both. Prints
how far the links' frames are from those of MuJoCo after some times:

    off           without contacts and stops, where both integrate the same equations
    like MuJoCo   with its stops and friction, `load_mjcf(like_mujoco=True)`
    no friction   without friction, as `load_mjcf` has it
    as loaded     with friction

and, of those that come to rest, after 3 s as loaded: the depth of the lowest point, what the ground
carries over the weight, and the largest speed.
"""

import argparse
import re
import sys
import warnings
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
jax.config.update("jax_enable_x64", True)

import jaxjoints as jj  # noqa: E402
from jaxjoints.models import load_mjcf  # noqa: E402
from support.mujoco_states import lifted, name_of, state_of  # noqa: E402

FILES = ("ant", "half_cheetah", "hopper", "humanoid", "walker2d_v5")
RESTING = ("ant",)
DT, TIMES, REST = 1e-3, (0.02, 0.05, 0.1), 3.0
DROP = 1e-3  # above the ground at the start [m]
SPEED = 0.3  # deviation of all speeds at the start [m/s, rad/s]
OFF = 'contact="disable" limit="disable"'


def text_of(path, flags="", friction=True):
    """The file with Euler steps in MuJoCo, flags, and friction or none."""
    text = path.read_text(encoding="utf-8")
    if not friction:
        text = re.sub(r'condim="\d"', 'condim="1"', text)
    option = f'<option timestep="{DT}" integrator="Euler"><flag {flags}/></option>'
    return re.sub("(</mujoco>)", rf"{option}\1", text, count=1)


def quietly(function, *arguments, **options):
    """What a function returns, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)


def compared(path, steps, *, flags="", friction=True, like_mujoco=False, speed=SPEED):
    """How far centres of mass are apart after each step, how far they moved, and both ends."""
    text = text_of(path, flags, friction)
    model = quietly(load_mjcf, text, contacts=True, like_mujoco=like_mujoco, visuals=False)
    m = quietly(mujoco.MjModel.from_xml_string, text)
    system, _ = quietly(model.build)
    d = mujoco.MjData(m)
    there = quietly(mujoco.MjModel.from_xml_string, text_of(path))
    d.qpos[:] = lifted(there, there.qpos0, DROP)
    d.qvel[:] = speed * np.random.default_rng(0).normal(size=m.nv)
    mujoco.mj_forward(m, d)
    # What MuJoCo calls bodies are links here: of those fixed to each other several are one body.
    links = [k for k in range(1, m.nbody) if name_of(m, "BODY", k) in model.frames]
    places = [model.frames[name_of(m, "BODY", k)] for k in links]
    carriers = np.array([system.body(body) for body, _ in places])
    at = jnp.stack([jnp.asarray(frame[0], float) for _, frame in places], axis=1)
    start = d.xpos[links].T.copy()
    state = quietly(state_of, model, system, m, d)

    def keep(state, info):
        T = jj.body_poses(system, state)
        return jax.tree.map(lambda x: x[:, carriers], T).apply(at), info.ok

    run = jax.jit(partial(jj.rollout, dt=DT, steps=steps, record=keep))
    end, (found, ok) = run(system, state)
    theirs = np.zeros(found.shape)
    for i in range(steps):
        mujoco.mj_step(m, d)
        mujoco.mj_forward(m, d)
        theirs[i] = d.xpos[links].T
    apart = np.abs(np.asarray(found) - theirs).max((1, 2))
    moved = np.abs(theirs - start).max((1, 2))
    return apart, moved, (system, end, m, d, float(ok.mean()))


def rest_of(path):
    """Depth, share of the weight that the ground carries and largest speed of each at the end."""
    apart, _, (system, state, m, d, ok) = compared(path, round(REST / DT), speed=0.0)
    _, info = jax.jit(partial(jj.step, dt=DT))(system, state)
    gaps = jj.gaps(system, state)
    weight = float(system.mass.sum()) * 9.81
    force = np.zeros(6)
    carried = 0.0
    for c in range(d.ncon):
        mujoco.mj_contactForce(m, d, c, force)
        carried += force[0]
    depths = [c.includemargin - c.dist for c in d.contact]
    ours = float(info.contact_force[0].sum())
    speed = float(jnp.abs(state.velocity).max())
    return {
        "ok": ok,
        "apart": apart[-1],
        "depth": (-float(gaps.min()), max(depths)),
        "carried": (ours / weight, carried / weight),
        "points": (int((gaps < 0).sum()), len(depths)),
        "speed": (speed, float(np.abs(d.qvel).max())),
    }


def main():
    """Two tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(FILES))
    parser.add_argument("--rest", default=",".join(RESTING))
    options = parser.parse_args()
    moving, resting = (
        [options.folder / f"{name}.xml" for name in names.split(",") if name != "none"]
        for names in (options.only, options.rest)
    )
    cases = {
        "off": {"flags": OFF},
        "like MuJoCo": {"like_mujoco": True},
        "no friction": {"friction": False},
        "as loaded": {},
    }
    at = [round(t / DT) - 1 for t in TIMES]
    times = ", ".join(f"{1e3 * t:g}" for t in TIMES)
    print(f"| model, apart [m] after {times} ms | {' | '.join(cases)} | moved |\n|{'---|' * 6}")
    for path in moving:
        cells = []
        for case in cases.values():
            apart, moved, _ = compared(path, at[-1] + 1, **case)
            cells.append(", ".join(f"{apart[i]:.0e}" for i in at))
            jax.clear_caches()
        print(f"| {path.stem} | {' | '.join([*cells, f'{moved[-1]:.2f}'])} |", flush=True)
    print("\n| model | steps solved | apart | depth | points | carried | speed |\n|" + "---|" * 7)
    for path in resting:
        r = rest_of(path)
        pairs = [
            ", ".join(f"{x:.2e}" for x in r["depth"]),
            ", ".join(map(str, r["points"])),
            ", ".join(f"{x:.4f}" for x in r["carried"]),
            ", ".join(f"{x:.0e}" for x in r["speed"]),
        ]
        cells = [f"{r['ok']:.2%}", f"{r['apart']:.0e}", *pairs]
        print(f"| {path.stem} | {' | '.join(cells)} |", flush=True)
        jax.clear_caches()


if __name__ == "__main__":
    main()
