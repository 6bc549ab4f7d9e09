"""Bodies that come to rest on several contacts, beside MuJoCo and MJX: an ant and a pile of boxes.

    python tests/benchmarks/resting.py ANT.xml [--batch 256] [--steps 200] [--rounds 3]

ANT.xml: gymnasium's ant, which all three read; the pile is three boxes on each other that slide and
turn until they rest. Steps of 2 ms, all cores. Prints environment-steps per second, medians of
interleaved rounds, and those of a gradient of the sum of the last positions with respect to the
first velocities; MJX takes it with one iteration of its solver, since it has none with more.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjx, rollout

import jaxjoints as jj

DT, SIZE, MASS, FRICTION = 2e-3, np.array((0.2, 0.15, 0.1)), 1.5, 0.6
INERTIA = MASS / 12 * (SIZE @ SIZE - SIZE**2)
# Steps of a gradient, and its batch as a share of the other one.
SHORT, FEWER = 20, 8
Run = Callable[[], object]


def pile_of_mujoco() -> mujoco.MjModel:
    """Three boxes on each other on a plane."""
    half = " ".join(str(x / 2) for x in SIZE)
    shape = f'type="box" size="{half}" mass="{MASS}" friction="{FRICTION} 0 0"'
    boxes = "".join(
        f'<body pos="0 0 {(i + 0.5) * SIZE[2]}"><freejoint/><geom {shape}/></body>'
        for i in range(3)
    )
    plane = f'<geom type="plane" size="5 5 1" friction="{FRICTION} 0 0"/>'
    text = f"<mujoco><worldbody>{plane}{boxes}</worldbody></mujoco>"
    return mujoco.MjModel.from_xml_string(text)


def pile_of_jaxjoints() -> tuple[jj.System, jj.State]:
    """The same: corners of each box on the face below."""
    world = jj.SystemBuilder()
    for i in range(3):
        world.body(str(i), mass=MASS, inertia=INERTIA, pose=(0.0, 0.0, (i + 0.5) * SIZE[2]))
        below = {} if i == 0 else {"parent": str(i - 1), "frame_D": (0.0, 0.0, SIZE[2] / 2)}
        world.contact(
            *(f"on {i}", jj.shapes.Box(tuple(SIZE)), jj.shapes.HalfSpace()),
            child=str(i),
            friction=FRICTION,
            **below,
        )
    return world.build()


def ant_of_jaxjoints(path: Path) -> tuple[jj.System, jj.State]:
    """The ant with its feet on the ground."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jj.models.load_mjcf(path, contacts=True, visuals=False).build()


def of_jaxjoints(system: jj.System, state: jj.State, noise: np.ndarray, steps: int):
    """Runs of a batch forwards and of a smaller one's gradient, and the share of solved steps."""
    scheme = jj.SemiImplicitEuler()

    def started(noise):
        batch = jj.replicate(state, noise.shape[-1])
        push = jnp.broadcast_to(noise[:, None], batch.velocity.shape)
        return jj.replace(batch, velocity=0.3 * push, omega=0.3 * push)

    def forwards(noise, steps):
        record = lambda _, info: info.ok  # noqa: E731
        return jj.rollout(system, started(noise), dt=DT, steps=steps, scheme=scheme, record=record)

    run = jax.jit(lambda x: forwards(x, steps))
    slope = jax.jit(jax.grad(lambda x: forwards(x, SHORT)[0].position.sum()))
    x = jnp.asarray(noise, jnp.float32)
    solved = float(run(x)[1].mean())
    few = x[:, : x.shape[1] // FEWER]
    return (
        lambda: jax.block_until_ready(run(x)),
        lambda: jax.block_until_ready(slope(few)),
        solved,
    )


def of_mjx(model: mujoco.MjModel, noise: np.ndarray, steps: int, iterations: int | None):
    """Runs of a batch forwards and, with one iteration, of a smaller one's gradient."""
    if iterations is not None:
        model.opt.iterations, model.opt.ls_iterations = iterations, 4
    device = mjx.put_model(model)
    empty = mjx.make_data(model)

    def rolled(noise, steps):
        qvel = 0.3 * jnp.resize(noise, (model.nv,))
        data = empty.replace(qvel=qvel)
        body = lambda data, _: (mjx.step(device, data), None)  # noqa: E731
        return jax.lax.scan(body, data, None, length=steps)[0].qpos

    x = jnp.asarray(noise.T, jnp.float32)
    run = jax.jit(jax.vmap(lambda x: rolled(x, steps)))
    slope = jax.jit(jax.grad(lambda x: jax.vmap(lambda x: rolled(x, SHORT))(x).sum()))
    few = x[: x.shape[0] // FEWER]
    return (
        lambda: jax.block_until_ready(run(x)),
        lambda: jax.block_until_ready(slope(few)),
    )


def of_mujoco(model: mujoco.MjModel, noise: np.ndarray, steps: int, threads: int) -> Run:
    """A run of a batch by MuJoCo's own batched rollout."""
    size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    start = np.zeros((noise.shape[1], size))
    start[:, 1 : 1 + model.nq] = model.qpos0
    for row, x in zip(start, noise.T, strict=True):
        row[1 + model.nq : 1 + model.nq + model.nv] = 0.3 * np.resize(x, model.nv)
    data = [mujoco.MjData(model) for _ in range(threads)]
    roll = rollout.Rollout(nthread=threads)
    return lambda: roll.rollout(model, data, start, nstep=steps)


def main() -> None:
    """A table of both mechanisms."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("ant", type=Path)
    options.add_argument("--batch", type=int, default=256)
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--threads", type=int, default=2, help="of MuJoCo")
    given = options.parse_args()
    jj.use_all_cores()
    noise = np.random.default_rng(0).normal(size=(3, given.batch))
    cases = {
        "ant": (lambda: mujoco.MjModel.from_xml_path(str(given.ant)), ant_of_jaxjoints(given.ant)),
        "pile of boxes": (pile_of_mujoco, pile_of_jaxjoints()),
    }
    print("| mechanism | engine | steps/s | gradient, steps/s |\n|---|---|---|---|")
    for name, (load, (system, state)) in cases.items():

        def model(load=load):
            m = load()
            m.opt.timestep = DT
            return m

        forwards, backwards, solved = of_jaxjoints(system, state, noise, given.steps)
        runs = {f"jaxjoints, {solved:.2%} solved": (forwards, backwards)}
        runs["MuJoCo"] = of_mujoco(model(), noise, given.steps, given.threads), None
        for label, iterations in (("MJX, one iteration", 1), ("MJX", None)):
            forwards, backwards = of_mjx(model(), noise, given.steps, iterations)
            runs[label] = forwards, backwards if iterations == 1 else None
        times: dict[tuple[str, int], list[float]] = {}
        for turn in range(given.rounds + 1):
            for label, pair in runs.items():
                for k, run in enumerate(pair):
                    if run is None:
                        continue
                    begin = time.perf_counter()
                    try:
                        run()
                    except Exception as error:  # noqa: BLE001 - a peer that fails is told of
                        print(f"{name}, {label}: {type(error).__name__}: {str(error)[:120]}")
                        runs[label] = tuple(x if x is not run else None for x in runs[label])
                        continue
                    # The first turn compiles.
                    if turn:
                        times.setdefault((label, k), []).append(time.perf_counter() - begin)
        work = given.batch * given.steps, given.batch // FEWER * SHORT
        for label in runs:
            cells = [
                f"{work[k] / statistics.median(times[label, k]):,.0f}"
                if (label, k) in times
                else ""
                for k in range(2)
            ]
            print(f"| {name} | {label} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
