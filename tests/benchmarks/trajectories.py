"""Trajectories of least cost by `shooting` and `ilqr`, and the same descents through MJX.

    python tests/benchmarks/trajectories.py [--only cart_pole,acrobot,throw,arm,leg]

cart_pole: a cart whose rail has hard ends swings its pole up, by a force on the cart; by `ilqr` too
acrobot: two rods swing up, by a motor between them; by `ilqr` too
throw: an arm winds up against a soft stop, and throws a ball to a target
arm: seven hinges with stops bring the hand to a point, at rest
leg: a crouched trunk on a four-bar leg jumps as high as it can, by the motor of its crank

Of each: what the descent gained, in how much wall time, and what the best motion comes to; the
gradient at the first guess beside a central difference along a random direction, in float64. MJX
takes the same mechanism, costs, guesses and optimizer where it can: one solver iteration, since its
loop has no reverse derivative.
"""

import argparse
import os
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import optax
from motions import GUESSES, MOTIONS
from mujoco import mjx

from jaxjoints import optimization
from jaxjoints.optimization.path import no_multipliers, sloped
from jaxjoints.optimization.problem import prepared

jax.config.update("jax_enable_x64", True)

RATE = 0.05
STEP = 1e-6  # of the central difference, in units of the controls


def guesses(motion, size):
    """Smooth and small, another in each environment."""
    problem = motion.problem
    knots = np.linspace(0, 1, problem.horizon)[:, None, None]
    weights = np.random.default_rng(0).normal(size=(3, size, GUESSES))
    waves = sum(np.sin(np.pi * k * knots) * w for k, w in enumerate(weights, start=1))
    return motion.guess * problem.upper * waves


def by_mjx(peer, problem, u, iterations):
    """First and last cost, wall time of the descent, and of its first gradient."""
    host = mujoco.MjModel.from_xml_string(peer.text)
    m = mjx.put_model(host)
    data = mujoco.MjData(host)
    data.qpos[:] = peer.q
    first = mjx.put_data(host, data)

    def total(u):
        def interval(data, u):
            for _ in range(problem.substeps):
                data = mjx.step(m, data.replace(ctrl=u))
            return data, problem.running(None, u)

        data, prices = jax.lax.scan(interval, first, u)
        return prices.sum() + peer.terminal(mjx.forward(m, data))

    sizes = jnp.full(u.shape[1], problem.upper)[:, None]
    adam = optax.adam(optax.cosine_decay_schedule(RATE, iterations), b2=0.9)
    sloped = jax.jit(jax.vmap(jax.value_and_grad(total), in_axes=-1, out_axes=-1))

    @jax.jit
    def descend(u, memory, slope):
        change, memory = adam.update(slope * sizes, memory)
        return jnp.clip(u + sizes * change, -sizes, sizes), memory

    begin = time.perf_counter()
    value, slope = jax.block_until_ready(sloped(u))
    compiled = time.perf_counter() - begin
    memory, best, first_best = adam.init(u), np.full(GUESSES, np.inf), np.asarray(value).min()
    begin = time.perf_counter()
    for _ in range(iterations):
        value, slope = sloped(u)
        best = np.fmin(best, np.asarray(value))
        u, memory = descend(u, memory, slope)
    return first_best, best.min(), time.perf_counter() - begin, compiled


def main():
    """A line for each problem and engine, and a sentence for each plan."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(MOTIONS))
    parser.add_argument("--iterations", type=int, default=150)
    options = parser.parse_args()
    head = "problem, engine | least cost at first | at the end | wall time [s] | first gradient [s]"
    print(f"| {head} | gradient beside a difference |\n|---|---|---|---|---|---|", flush=True)
    for name in options.only.split(","):
        motion = MOTIONS[name]()
        problem, sentences = motion.problem, []
        task = prepared("shooting", problem)
        u = jnp.asarray(guesses(motion, task.unit.shape[0]))
        none = no_multipliers(task, 10.0)
        begin = time.perf_counter()
        worth, slope = jax.block_until_ready(sloped(task, u, none))
        compiled = time.perf_counter() - begin
        d = jnp.asarray(np.random.default_rng(1).normal(size=u.shape)) * problem.upper
        sides = [sloped(task, u + s * STEP * d, none)[0].augmented for s in (1, -1)]
        difference = np.asarray(sides[0] - sides[1]) / (2 * STEP)
        along = np.asarray(jnp.sum(slope * d, axis=(0, 1)))
        error = np.abs(along - difference).max() / np.abs(difference).max()
        first, ends = float(np.min(worth.augmented)), f"{compiled:.0f} | {error:.0e}"
        methods = {"shooting": {"iterations": options.iterations, "rate": RATE}}
        methods |= {"ilqr": {"iterations": 80}} if motion.ilqr else {}
        for method, settings in methods.items():
            begin = time.perf_counter()
            plan = getattr(optimization, method)(problem, u, **settings)
            wall, best = time.perf_counter() - begin, int(np.argmin(plan.cost))
            line = f"{first:.3g} | {plan.cost[best]:.3g} | {wall:.0f} | {ends}"
            print(f"| {name}, {method} | {line} |", flush=True)
            sentences.append(f"{name}, {method}: {motion.told(plan, best)}")
            ends = " | "
        if motion.peer is not None:
            first, last, wall, compiled = by_mjx(motion.peer, problem, u, options.iterations)
            line = f"{first:.3g} | {last:.3g} | {wall:.0f} | {compiled:.0f} | "
            print(f"| {name}, MJX | {line} |", flush=True)
        print(*sentences, sep="\n", flush=True)
        jax.clear_caches()


if __name__ == "__main__":
    main()
