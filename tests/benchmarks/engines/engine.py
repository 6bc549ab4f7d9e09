"""What every engine can be asked, and what all engines on JAX have in common."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from cases import CASES, DT
from description import Mechanism

from engines import hlo

MIN_SECONDS = 0.3


class Unfit(Exception):
    """An engine cannot do what is asked; the message says what it lacks."""


class Engine:
    """An engine: requests are methods, and what they return can be written as JSON."""

    def build(self, case: str, batch: int, steps: int) -> dict:
        """Make and compile a rollout from the common start.

        Returns: "compile" (seconds, CPU seconds), "q" the first angles of the first environment at
        the end, "note" with integrator, iterations, gap and residual
        """
        raise NotImplementedError

    def once(self) -> None:
        """Run that rollout and wait for its end."""
        raise NotImplementedError

    def time(self) -> dict:
        """Time that rollout."""
        return {"seconds": [_seconds(self.once)]}


class JaxEngine(Engine):
    """An engine on JAX, in float32 unless x64 is enabled."""

    def rollout(
        self, mechanism: Mechanism, batch: int, steps: int, dt: float, checkpoint: int | None = None
    ) -> tuple[Callable, tuple]:
        """A function of the start that simulates a batch, and its arguments."""
        raise NotImplementedError

    def angles(self, final: Any):
        """Coordinates of hinges and slides at the end, shape (coordinates, batch)."""
        raise NotImplementedError

    def note(self, mechanism: Mechanism, final: Any) -> str:
        """Integrator, iterations, gap and residual."""
        raise NotImplementedError

    def step(self, mechanism: Mechanism, batch: int) -> tuple[Callable, tuple]:
        """A function of one step, and its arguments."""
        return self.rollout(mechanism, batch, 1, DT)

    def build(self, case: str, batch: int, steps: int) -> dict:
        """See `Engine.build`."""
        import jax

        mechanism = CASES[case]()
        roll, start = self.rollout(mechanism, batch, steps, DT)
        compiled, seconds = compile_timed(jax.jit(roll), *start)
        self.run = lambda: compiled(*start)
        final = self.run()
        angles = np.asarray(self.angles(final))[:3, 0]
        return {"compile": seconds, "q": angles.tolist(), "note": self.note(mechanism, final)}

    def once(self) -> None:
        """See `Engine.once`."""
        import jax

        jax.block_until_ready(self.run())

    def gradient(self, case: str, batch: int, steps: int, checkpoint: int | None) -> dict:
        """Compile a loss of a rollout and its value_and_grad with respect to the start."""
        forward, reverse, start, facts = self._both(case, batch, steps, checkpoint, forward=True)
        self.pair = [forward, reverse]
        leaves = [np.asarray(x) for x in _leaves(reverse())]
        return facts | {"finite": bool(all(np.isfinite(x).all() for x in leaves))}

    def time_gradient(self) -> dict:
        """Time the loss and its gradient."""
        return {"seconds": [_seconds(one) for one in self.pair]}

    def memory(self, case: str, batch: int, steps: int, checkpoint: int | None) -> dict:
        """Compile a gradient and say what memory it takes beside its arguments and results."""
        return self._both(case, batch, steps, checkpoint, forward=False)[-1]

    def kernels(self, case: str, batch: int) -> dict:
        """Kernels of one step, and its bytes and operations per environment."""
        import jax

        function, start = self.step(CASES[case](), batch)
        compiled = jax.jit(function).lower(*start).compile()
        costs = compiled.cost_analysis()
        return {
            "kernels": hlo.kernels(compiled.as_text()),
            "bytes": costs["bytes accessed"] / batch,
            "flops": costs["flops"] / batch,
        }

    def _both(self, case, batch, steps, checkpoint, *, forward: bool) -> tuple:
        import jax
        import jax.numpy as jnp

        roll, start = self.rollout(CASES[case](), batch, steps, DT, checkpoint)

        def loss(*start):
            return jnp.sum(self.angles(roll(*start)) ** 2)

        def ready(compiled):
            return lambda: jax.block_until_ready(compiled(*start))

        value_and_grad = jax.jit(jax.value_and_grad(loss, argnums=tuple(range(len(start)))))
        reverse, seconds = compile_timed(value_and_grad, *start)
        # What the analysis says is of one device.
        devices = max(len(x.device_set) for x in jax.tree.leaves(reverse.output_shardings))
        facts = {
            "gradient_compile": seconds,
            "megabytes": devices * reverse.memory_analysis().temp_size_in_bytes / 1e6,
        }
        one = ready(compile_timed(jax.jit(loss), *start)[0]) if forward else None
        return one, ready(reverse), start, facts


def repeated(step: Callable, state: Any, steps: int, checkpoint: int | None = None) -> Any:
    """A state after many steps; `checkpoint`: keep the state of every n-th only in reverse."""
    import jax

    def one(state, _):
        return step(state), None

    if not checkpoint:
        return jax.lax.scan(one, state, None, length=steps)[0]

    @jax.checkpoint
    def chunk(state, _):
        return jax.lax.scan(one, state, None, length=checkpoint)

    return jax.lax.scan(chunk, state, None, length=steps // checkpoint)[0]


def compile_timed(function, *arguments) -> tuple[Callable, tuple[float, float]]:
    """A compiled function, and the seconds and CPU seconds that tracing and compiling it took."""
    began, worked = time.perf_counter(), time.process_time()
    compiled = function.lower(*arguments).compile()
    return compiled, (time.perf_counter() - began, time.process_time() - worked)


def _leaves(tree: Any) -> list:
    import jax

    return jax.tree.leaves(tree)


def _seconds(once: Callable) -> tuple[float, float]:
    """Seconds and CPU seconds of one run, means of as many as fill `MIN_SECONDS`."""
    began, worked, runs = time.perf_counter(), time.process_time(), 0
    while runs == 0 or time.perf_counter() - began < MIN_SECONDS:
        once()
        runs += 1
    return (time.perf_counter() - began) / runs, (time.process_time() - worked) / runs
