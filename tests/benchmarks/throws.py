"""How many steps of thrown bodies are unsolved: boxes and capsules that tumble until they rest.

    python tests/benchmarks/throws.py                 10 000 throws a line, an hour or two
    python tests/benchmarks/throws.py --throws 200

Each is thrown at random onto a rough ground (μ 0.1 to 1) and simulated for 1.5 s in steps of 5 ms.
Unsolved are steps whose `Info.ok` is False; "excess" is the share of steps whose
`Info.friction_excess` is above 1 mm/s. The table is in README.md beside this file.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj

DT, STEPS = 5e-3, 300
SIZE, RADIUS, LENGTH, MASS = np.array((0.2, 0.15, 0.1)), 0.06, 0.2, 1.0
BOX = MASS / 12 * (SIZE @ SIZE - SIZE**2)
ACROSS = MASS * (LENGTH**2 / 12 + RADIUS**2 / 4)
BODIES = {
    "box": (jj.shapes.Box(tuple(SIZE)), tuple(BOX), np.linalg.norm(SIZE) / 2, 8),
    "capsule": (
        jj.shapes.Capsule(RADIUS, LENGTH),
        (ACROSS, ACROSS, MASS * RADIUS**2 / 2),
        LENGTH / 2 + RADIUS,
        2,
    ),
}
GROUNDS = {"hard": {}, "soft": {"stiffness": 4e3, "damping": 60.0}}
# Speed at which a body counts as at rest [m/s].
REST = 1e-5
# Excess of friction that counts [m/s].
EXCESS = 1e-3


def thrown(body: str, ground: str, batch: int, seed: int) -> tuple[jj.System, jj.State]:
    """A batch of one body above the ground, turned, moving and rough at random."""
    shape, inertia, reach, points = BODIES[body]
    rng = np.random.default_rng(seed)
    world = jj.SystemBuilder()
    world.body(body, mass=MASS, inertia=inertia, pose=(0.0, 0.0, 2 * reach))
    surface = {"friction": 0.5} | GROUNDS[ground]
    world.contact("ground", shape, jj.shapes.HalfSpace(), child=body, **surface)
    system, state = world.build()
    dtype = state.position.dtype
    μ = jnp.asarray(rng.uniform(0.1, 1.0, batch), dtype)
    for k in range(points):
        laws = system.contact(f"ground/{k}").laws
        rough = (jj.replace(law, friction=μ) for law in laws[1:])
        system = system.with_contact(f"ground/{k}", laws=(laws[0], *rough))
    turn = rng.normal(size=(4, 1, batch))
    height = reach + rng.uniform(0.0, 0.1, batch)
    place = np.stack([0 * height, 0 * height, height])[:, None]
    motion = {
        "position": place,
        "quaternion": turn / np.linalg.norm(turn, axis=0),
        "velocity": rng.normal(size=(3, 1, batch)),
        "omega": 5 * rng.normal(size=(3, 1, batch)),
    }
    state = jj.replicate(state, batch)
    return system, jj.replace(state, **{k: jnp.asarray(x, dtype) for k, x in motion.items()})


def main() -> None:
    """One line for each body, ground and precision."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--throws", type=int, default=10_000, help="of a line, at least")
    options.add_argument("--tile", type=int, default=100, help="throws at once, at most")
    options.add_argument("--bodies", default=",".join(BODIES))
    options.add_argument("--friction", default="coupled", help='or "two passes"')
    given = options.parse_args()
    if min(given.throws, given.tile) < 1:
        options.error("--throws and --tile must be >= 1")
    head = "body, ground", "precision", "steps", "unsolved", "largest residual", "excess"
    print("| " + " | ".join([*head, "at rest", "time [s]"]) + " |")
    print("|---" * 8 + "|")
    for body in given.bodies.split(","):
        for ground in GROUNDS:
            for wide in (False, True):
                jax.config.update("jax_enable_x64", wide)
                line(body, ground, given.throws, given.tile, given.friction)


def tiles(throws: int, most: int) -> tuple[int, int]:
    """How many tiles of one size, `most` at most, hold so many throws or a few more; their size."""
    count = -(-throws // most)
    return count, -(-throws // count)


def line(body: str, ground: str, throws: int, tile: int, friction: str) -> None:
    """Print how many steps of a body's throws are unsolved."""
    scheme = jj.SemiImplicitEuler(solver=jj.Newton(friction=friction))

    def record(state, info):
        return info.ok, info.residual, info.friction_excess

    @jax.jit
    def run(system, state):
        final, (ok, left, excess) = jj.rollout(
            system, state, dt=DT, steps=STEPS, scheme=scheme, record=record
        )
        resting = jnp.sum(jnp.linalg.norm(final.velocity[:, 0], axis=0) < REST)
        return jnp.sum(~ok), jnp.max(left), jnp.sum(excess > EXCESS), resting

    unsolved, worst, exceeding, resting, began = 0, 0.0, 0, 0, time.time()
    number, size = tiles(throws, tile)
    for seed in range(number):
        bad, left, beyond, still = run(*thrown(body, ground, size, seed))
        unsolved, exceeding, resting = (
            unsolved + int(bad),
            exceeding + int(beyond),
            resting + int(still),
        )
        worst = max(worst, float(left))
    count = number * size
    cells = (
        f"{body}, {ground}",
        "float64" if jax.config.jax_enable_x64 else "float32",
        f"{count * STEPS}",
        f"{unsolved}",
        f"{worst:.0e} m/s",
        f"{exceeding / count / STEPS:.2%}",
        f"{resting / count:.1%}",
        f"{time.time() - began:.0f}",
    )
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
