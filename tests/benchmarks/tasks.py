"""Environment-steps per second of tasks, with observations, policy and restarts, beside others'.

    python tests/benchmarks/tasks.py [--tasks cart_pole,hopper,ant] [--envs 512] [--rounds 3]

A policy of two hidden layers of 32 acts at random in a compiled loop of `--steps`. Brax, with the
pipelines of `--backends`, and MuJoCo Playground, with `--playground` and where it is installed, run
with their own wrappers for training. Rounds alternate between the programs. What one step is
differs, so the table has the time steps of the simulation in it, and how many of these there are in
a second.
"""

import argparse
import statistics
import time
from functools import partial

import jax
import jax.numpy as jnp

from jaxjoints import environments, learning, use_all_cores

# Of the tasks that others have too, their names of them.
IN_BRAX = {
    **{"cart_pole": "inverted_pendulum", "hopper": "hopper", "half_cheetah": "halfcheetah"},
    "ant": "ant",
}
IN_PLAYGROUND = {"cart_pole": "CartpoleBalance", "hopper": "HopperHop"}


def ours(name, envs, steps, tile=None):
    """A program that runs the task, and steps of the simulation in one of the environment."""
    task = environments.make(name)
    sizes = task.observation_size, task.action_size
    parameters = learning.gaussian(jax.random.key(0), *sizes, (32, 32))
    episode = task.reset(jax.random.split(jax.random.key(1), envs))

    def run():
        given = task, episode, learning.sampled, parameters
        end, seen = environments.unroll(*given, steps=steps, tile=tile)
        return seen.reward, seen, end

    return run, task.substeps, float(task.dt)


def of_brax(name, backend, envs, steps):
    """The same of a task of Brax."""
    from brax import envs as tasks
    from brax.envs.wrappers.training import wrap

    plain = tasks.get_environment(IN_BRAX[name], backend=backend)
    frames = plain._n_frames
    return looped(wrap(plain, episode_length=1000), envs, steps), frames, float(plain.dt) / frames


def of_playground(name, envs, steps):
    """The same of a task of MuJoCo Playground, simulated by MJX."""
    from mujoco_playground import dm_control_suite, wrapper

    plain = dm_control_suite.load(IN_PLAYGROUND[name], config_overrides={"impl": "jax"})
    task = wrapper.wrap_for_brax_training(plain, episode_length=1000)
    return looped(task, envs, steps), plain.n_substeps, float(plain.sim_dt)


def looped(task, envs, steps):
    """A program that runs a wrapped task of Brax or of Playground."""
    sizes = task.observation_size, task.action_size
    parameters = learning.gaussian(jax.random.key(0), *sizes, (32, 32))
    act = jax.vmap(learning.sampled, in_axes=(None, 0, 0))
    # Its wrappers read the batch off keys of the old kind.
    state = jax.jit(task.reset)(jax.random.split(jax.random.PRNGKey(1), envs))

    @jax.jit
    def loop(state, parameters):
        def one(carry, _):
            state, key = carry
            key, now = jax.random.split(key)
            action = act(parameters, state.obs, jax.random.split(now, envs))
            state = task.step(state, action)
            return (state, key), (state.reward, state.obs, action)

        # All of it, or XLA leaves out what a constant reward does not need.
        (state, _), seen = jax.lax.scan(one, (state, jax.random.key(2)), None, steps)
        return seen[0], seen, state

    return lambda: loop(state, parameters)


def main():
    """Compile all programs, then time them in turn."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", default="cart_pole,hopper,ant")
    parser.add_argument("--envs", type=int, default=512)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backends", default="generalized")
    parser.add_argument("--playground", action="store_true")
    parser.add_argument("--tile", type=int, help="environments of a tile of jaxjoints")
    options = parser.parse_args()
    use_all_cores()
    print(
        "| task | engine | substeps | dt [s] | env-steps/s | simulation steps/s | compiled in [s] |"
    )
    print("|---" * 7 + "|", flush=True)
    for name in options.tasks.split(","):
        size = options.envs, options.steps
        programs = {"jaxjoints": partial(ours, name, *size, options.tile)}
        for backend in filter(None, options.backends.split(",") if name in IN_BRAX else ()):
            programs[f"Brax {backend}"] = partial(of_brax, name, backend, *size)
        if options.playground and name in IN_PLAYGROUND:
            programs["Playground"] = partial(of_playground, name, *size)
        ready, rates = {}, {}
        for engine, made in programs.items():
            start = time.process_time()
            run, substeps, dt = made()
            finite = bool(jnp.isfinite(jax.block_until_ready(run())[0]).all())
            ready[engine] = run, substeps, dt, time.process_time() - start, finite
            rates[engine] = []
        for _ in range(options.rounds):
            for engine, (run, *_) in ready.items():
                start = time.perf_counter()
                jax.block_until_ready(run())
                rates[engine].append(options.envs * options.steps / (time.perf_counter() - start))
        for engine, (_, substeps, dt, compiled, finite) in ready.items():
            rate = statistics.median(rates[engine])
            label = engine if finite else f"{engine} (not finite)"
            cells = name, label, substeps, f"{dt:g}", f"{rate:,.0f}", f"{rate * substeps:,.0f}"
            print(f"| {' | '.join(map(str, cells))} | {compiled:.0f} |", flush=True)
        jax.clear_caches()


if __name__ == "__main__":
    main()
