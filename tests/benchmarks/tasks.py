"""Environment-steps per second of tasks, with observations, policy and restarts, beside Brax's.

    python tests/benchmarks/tasks.py [--tasks cart_pole,hopper,ant] [--envs 512] [--rounds 3]

A policy of two hidden layers of 32 acts at random in a compiled loop of 100 steps. Brax runs with
its own wrappers for training, and the pipelines of `--backends`. Rounds alternate between the
programs. What one step is differs, so the table has the time steps of the simulation in it, and how
many of these there are in a second.
"""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp

from jaxjoints import environments, learning, use_all_cores

STEPS = 100
# Of the tasks that Brax has too, its name of it.
IN_BRAX = {"cart_pole": "inverted_pendulum", "hopper": "hopper", "ant": "ant"}


def ours(name, envs):
    """A program that runs the task, and steps of the simulation in one of the environment."""
    task = environments.make(name)
    sizes = task.observation_size, task.action_size
    parameters = learning.gaussian(jax.random.key(0), *sizes, (32, 32))
    episode = task.reset(jax.random.split(jax.random.key(1), envs))

    def run():
        end, seen = environments.unroll(task, episode, learning.sampled, parameters, steps=STEPS)
        return seen.reward, seen, end

    return run, task.substeps, float(task.dt)


def of_brax(name, backend, envs):
    """The same of a task of Brax."""
    from brax import envs as tasks
    from brax.envs.wrappers.training import wrap

    plain = tasks.get_environment(IN_BRAX[name], backend=backend)
    task = wrap(plain, episode_length=1000)
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
        (state, _), seen = jax.lax.scan(one, (state, jax.random.key(2)), None, STEPS)
        return seen[0], seen, state

    frames = plain._n_frames
    return lambda: loop(state, parameters), frames, float(plain.dt) / frames


def main():
    """Compile all programs, then time them in turn."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", default="cart_pole,hopper,ant")
    parser.add_argument("--envs", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backends", default="generalized")
    options = parser.parse_args()
    use_all_cores()
    print(
        "| task | engine | substeps | dt [s] | env-steps/s | simulation steps/s | compiled in [s] |"
    )
    print("|---" * 7 + "|", flush=True)
    for name in options.tasks.split(","):
        programs = {"jaxjoints": lambda name=name: ours(name, options.envs)}
        for backend in filter(None, options.backends.split(",") if name in IN_BRAX else ()):
            programs[f"Brax {backend}"] = lambda name=name, backend=backend: of_brax(
                name, backend, options.envs
            )
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
                rates[engine].append(options.envs * STEPS / (time.perf_counter() - start))
        for engine, (_, substeps, dt, compiled, finite) in ready.items():
            rate = statistics.median(rates[engine])
            label = engine if finite else f"{engine} (not finite)"
            cells = name, label, substeps, f"{dt:g}", f"{rate:,.0f}", f"{rate * substeps:,.0f}"
            print(f"| {' | '.join(map(str, cells))} | {compiled:.0f} |", flush=True)
        jax.clear_caches()


if __name__ == "__main__":
    main()
