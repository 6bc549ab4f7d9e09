"""Trajectories of least cost by `shooting` and `ilqr`, and the same descents through MJX.

    python tests/benchmarks/trajectories.py [--only cart_pole,arm,leg] [--iterations 150]

cart_pole: a cart whose rail has hard ends swings its pole up, by a force on the cart; by `ilqr` too
arm: seven hinges with stops bring the hand to a point, at rest
leg: a trunk on a four-bar leg jumps as high as it can, by a motor on its crank

Of each: what the descent gained, in how much wall time; the gradient at the first guess beside a
central difference along a random direction, in float64. MJX takes the same mechanism, costs,
guesses and optimizer where it can: one solver iteration, since its loop has no reverse derivative.
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
from mujoco import mjx

import jaxjoints as jj
from jaxjoints import environments, optimization
from jaxjoints.optimization.path import no_multipliers, sloped
from jaxjoints.optimization.problem import prepared

jax.config.update("jax_enable_x64", True)

GUESSES, RATE = 16, 0.05
ENDS = 0.6  # of the rail, either way [m]
STEP = 1e-6  # of the central difference, in units of the controls

CART = f"""<mujoco><option timestep="0.01" iterations="1" ls_iterations="6"/><worldbody>
<body name="cart">
<joint name="rail" type="slide" axis="1 0 0" limited="true" range="-{ENDS} {ENDS}"/>
<inertial pos="0 0 0" mass="1" diaginertia="0.1 0.1 0.1"/>
<body name="pole"><joint name="pivot" type="hinge" axis="0 -1 0"/>
<inertial pos="0 0 -0.5" mass="0.2" diaginertia="0.017 0.017 0.001"/></body></body></worldbody>
<actuator><motor joint="rail"/></actuator></mujoco>"""


def arm_text() -> str:
    """Seven links of 0.2 m on hinges about y and z in turn, stops at 1.5 rad."""
    text, tail = "", ""
    for i in range(7):
        axis = "0 0 1" if i % 2 == 0 else "0 1 0"
        text += (
            f'<body name="link {i}" pos="0 0 {0.2 if i else 0}"><joint name="joint {i}" '
            f'type="hinge" axis="{axis}" limited="true" range="-1.5 1.5" damping="0.5"/>'
            '<inertial pos="0 0 0.1" mass="1" diaginertia="0.004 0.004 0.001"/>'
        )
        tail += "</body>"
    motors = "".join(f'<motor joint="joint {i}"/>' for i in range(7))
    return (
        '<mujoco><compiler angle="radian"/><option timestep="0.01" iterations="1" '
        f'ls_iterations="6"/><worldbody>{text}<site name="hand" pos="0 0 0.2"/>{tail}</worldbody>'
        f"<actuator>{motors}</actuator></mujoco>"
    )


def effort(knot, u):
    return 1e-3 * jnp.sum(u**2)


def upright(knot):
    """The pole stands and the cart rests, anywhere on its rail."""
    return 100 * (1 + jnp.cos(knot.q[1])) + 10 * jnp.sum(knot.qd**2)


TARGET = np.array([0.5, 0.4, 0.6])


def reached(hand, qd):
    return 100 * jnp.sum((hand - TARGET) ** 2) + jnp.sum(qd**2)


def cart_pole():
    """Hard ends, which MJCF does not have: by the builder."""
    world = jj.SystemBuilder()
    world.body("cart", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.body("pole", mass=0.2, inertia=(0.017, 0.017, 0.001), com=(0.0, 0.0, -0.5))
    ends = jj.Limits(-ENDS, ENDS)
    world.joint("rail", jj.Slider((1.0, 0.0, 0.0)), child="cart", laws=[ends])
    world.joint("pivot", jj.Hinge((0.0, -1.0, 0.0)), child="pole", parent="cart")
    system, start = world.build()
    numbers = {"horizon": 100, "dt": 0.01, "substeps": 2, "lower": -20.0, "upper": 20.0}
    problem = optimization.Problem(
        system, jj.replicate(start, GUESSES), effort, upright, actuated="rail", **numbers
    )

    def cost(m, data, u):
        return 100 * (1 + jnp.cos(data.qpos[1])) + 10 * jnp.sum(data.qvel**2)

    return problem, (CART, cost)


def arm():
    """The same MJCF for both."""
    model = jj.models.load_mjcf(arm_text(), visuals=False)
    system, _ = model.build()
    start = system.state(q={f"joint {i}": 0.3 * (-1) ** i for i in range(7)})
    last = system.body("link 6")

    def at_target(knot):
        T = jax.tree.map(lambda x: x[:, last], jj.body_poses(knot.system, knot.state))
        return reached(T.apply(jnp.array([0.0, 0.0, 0.2])), knot.qd)

    numbers = {"horizon": 50, "dt": 0.01, "substeps": 2, "lower": -30.0, "upper": 30.0}
    problem = optimization.Problem(
        system, jj.replicate(start, GUESSES), effort, at_target, **numbers
    )
    return problem, (arm_text(), lambda m, data, u: reached(data.site_xpos[0], data.qvel))


def leg():
    """The hopper of the tasks: as high as it can be after 0.3 s. MJX is not asked."""
    task = environments.four_bar_leg()
    trunk = task.system.body("trunk")

    def low(knot):
        return -20 * knot.state.position[2, trunk]

    numbers = {"horizon": 30, "dt": 2.5e-3, "substeps": 4, "lower": -12.0, "upper": 12.0}
    start = jj.replicate(task.start, GUESSES)
    problem = optimization.Problem(task.system, start, effort, low, actuated="crank", **numbers)
    return problem, None


PROBLEMS = {"cart_pole": cart_pole, "arm": arm, "leg": leg}


def guesses(problem, size):
    """Smooth and small, another in each environment."""
    knots = np.linspace(0, 1, problem.horizon)[:, None, None]
    weights = np.random.default_rng(0).normal(size=(3, size, GUESSES))
    waves = sum(np.sin(np.pi * k * knots) * w for k, w in enumerate(weights, start=1))
    return 0.1 * problem.upper * waves


def by_mjx(text, cost, problem, u, iterations):
    """First and last cost, wall time of the descent, and of its first gradient."""
    host = mujoco.MjModel.from_xml_string(text)
    m = mjx.put_model(host)
    data = mujoco.MjData(host)
    if host.nu == 7:
        data.qpos[:] = [0.3 * (-1) ** i for i in range(7)]
    first = mjx.put_data(host, data)

    def total(u):
        def interval(data, u):
            for _ in range(problem.substeps):
                data = mjx.step(m, data.replace(ctrl=u))
            return data, 1e-3 * jnp.sum(u**2)

        data, prices = jax.lax.scan(interval, first, u)
        return prices.sum() + cost(m, mjx.forward(m, data), None)

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
    """A line for each problem and engine."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(PROBLEMS))
    parser.add_argument("--iterations", type=int, default=150)
    options = parser.parse_args()
    head = "problem, engine | least cost at first | at the end | wall time [s] | first gradient [s]"
    print(f"| {head} | gradient beside a difference |\n|---|---|---|---|---|---|", flush=True)
    for name in options.only.split(","):
        problem, peer = PROBLEMS[name]()
        task = prepared("shooting", problem)
        u = jnp.asarray(guesses(problem, task.unit.shape[0]))
        none = no_multipliers(task, 10.0)
        begin = time.perf_counter()
        worth, slope = jax.block_until_ready(sloped(task, u, none))
        compiled = time.perf_counter() - begin
        d = jnp.asarray(np.random.default_rng(1).normal(size=u.shape)) * problem.upper
        sides = [sloped(task, u + s * STEP * d, none)[0].augmented for s in (1, -1)]
        difference = np.asarray(sides[0] - sides[1]) / (2 * STEP)
        along = np.asarray(jnp.sum(slope * d, axis=(0, 1)))
        error = np.abs(along - difference).max() / np.abs(difference).max()
        begin = time.perf_counter()
        plan = optimization.shooting(problem, u, iterations=options.iterations, rate=RATE)
        wall = time.perf_counter() - begin
        first = float(np.min(worth.augmented))
        line = f"{first:.3g} | {np.min(plan.cost):.3g} | {wall:.0f} | {compiled:.0f} | {error:.0e}"
        print(f"| {name}, jaxjoints | {line} |", flush=True)
        if name == "cart_pole":
            begin = time.perf_counter()
            plan = optimization.ilqr(problem, u, iterations=80)
            wall, best = time.perf_counter() - begin, int(np.argmin(plan.cost))
            print(f"| {name}, ilqr | {first:.3g} | {plan.cost[best]:.3g} | {wall:.0f} | | |")
            lean = np.pi - abs(float(plan.q[-1, 1, best]))
            print(
                f"its pole ends {lean:.3f} rad from upright, at {plan.qd[-1, :, best]}", flush=True
            )
        if peer is not None:
            first, last, wall, compiled = by_mjx(*peer, problem, u, options.iterations)
            line = f"{first:.3g} | {last:.3g} | {wall:.0f} | {compiled:.0f} | "
            print(f"| {name}, MJX | {line} |", flush=True)
        jax.clear_caches()


if __name__ == "__main__":
    main()
