"""The engines under comparison, each run in a process of its own by `run.py`.

An engine has `build(limits, batch)`, which makes and compiles a rollout of `chain.STEPS` steps from
the common start and returns facts about it; `once()`, which runs it and waits for the end; and
`outcome()`, which says where it ended. As a script: `engines.py ENGINE` answers requests, one JSON
object per line, until its input ends.
"""

import json
import os
import sys
import time
from collections.abc import Callable

import chain
import numpy as np

MIN_SECONDS = 0.3
# The only setting of MJX that is differentiable in reverse; nothing to solve without limits.
MJX_OPTION = 'iterations="1" ls_iterations="4"'


class JaxJoints:
    """jaxjoints' `rollout` as a user calls it."""

    def build(self, limits: bool, batch: int) -> dict:
        import jax
        import jax.numpy as jnp

        import jaxjoints as jj

        if not hasattr(self, "scheme"):
            jj.use_all_cores()
        scheme = jj.SemiImplicitEuler()
        self.scheme, self.system = scheme, chain.system(limits)
        q = jnp.asarray(chain.angles(limits, batch), jnp.float32)
        start = {f"joint{i}": q[i : i + 1] for i in range(chain.LINKS)}
        self.start = jax.block_until_ready(self.system.state(q=start))
        compiled, seconds = _compiled(jax.jit(self.roll), self.system, self.start)
        self.run = lambda: compiled(self.system, self.start)
        iterations = f"at most {scheme.solver.iterations} iterations" if limits else "linear"
        self.note = f"SemiImplicitEuler, {iterations}"
        return {"compile": seconds}

    def roll(self, system, start, checkpoint=None):
        import jaxjoints as jj

        return jj.rollout(
            system,
            start,
            dt=chain.DT,
            steps=chain.STEPS,
            record_every=checkpoint or chain.STEPS,
            checkpoint=checkpoint,
            scheme=self.scheme,
        )[0]

    def once(self):
        import jax

        jax.block_until_ready(self.run())

    def outcome(self) -> dict:
        import jax

        import jaxjoints as jj

        final = self.run()
        few = jax.tree.map(lambda x: x[..., :64], final)
        step = jax.jit(lambda state: jj.step(self.system, state, dt=chain.DT, scheme=self.scheme))
        _, info = step(few)
        gap = float(np.max(jj.joint_errors(self.system, few)))
        residual = float(np.max(info.residual))
        failed = "" if np.all(info.ok) else ", NOT ok"
        return {
            "q": np.asarray(jj.coordinates(self.system, few))[:3, 0].tolist(),
            "note": f"{self.note}, gap {gap:.0e} m, residual {residual:.0e}{failed}",
        }

    def gradient(self, limits: bool, batch: int, checkpoint: int | None) -> dict:
        """Compile a loss of the chain and its value_and_grad."""
        import jax.numpy as jnp

        import jaxjoints as jj

        self.build(limits, batch)

        def loss(start):
            final = self.roll(self.system, start, checkpoint)
            return jnp.sum(jj.coordinates(self.system, final) ** 2)

        return self._both(loss, self.start)

    def _both(self, loss, *start) -> dict:
        import jax

        forward, seconds = _compiled(jax.jit(loss), *start)
        everything = tuple(range(len(start)))
        value_and_grad = jax.jit(jax.value_and_grad(loss, argnums=everything))
        reverse, reverse_seconds = _compiled(value_and_grad, *start)
        memory = reverse.memory_analysis()
        self.pair = [
            lambda: jax.block_until_ready(forward(*start)),
            lambda: jax.block_until_ready(reverse(*start)),
        ]
        leaves = jax.tree.leaves(self.pair[1]())
        return {
            "compile": seconds,
            "gradient_compile": reverse_seconds,
            "megabytes": memory.temp_size_in_bytes / 1e6,
            "finite": bool(all(np.isfinite(x).all() for x in leaves)),
        }


class Mjx(JaxJoints):
    """MJX: a scan of the vmapped step."""

    def build(self, limits: bool, batch: int) -> dict:
        import jax
        import jax.numpy as jnp
        import mujoco
        from mujoco import mjx

        model = mujoco.MjModel.from_xml_string(chain.mjcf(limits, MJX_OPTION))
        device = mjx.put_model(model)
        empty = mjx.make_data(model)
        step = jax.vmap(lambda data: mjx.step(device, data))

        def roll(q, v):
            data = jax.vmap(lambda q, v: empty.replace(qpos=q, qvel=v))(q, v)
            data, _ = jax.lax.scan(lambda d, _: (step(d), None), data, None, length=chain.STEPS)
            return data.qpos, data.qvel

        self.roll = roll
        q = jnp.asarray(chain.angles(limits, batch).T, jnp.float32)
        self.start = q, jnp.zeros_like(q)
        compiled, seconds = _compiled(jax.jit(roll), *self.start)
        self.run = lambda: compiled(*self.start)
        return {"compile": seconds, "note": MJX_OPTION.replace('"', "") if limits else ""}

    def outcome(self) -> dict:
        return {"q": np.asarray(self.run()[0])[0, :3].tolist()}

    def gradient(self, limits: bool, batch: int, checkpoint: int | None) -> dict:
        import jax.numpy as jnp

        self.build(limits, batch)
        return self._both(lambda q, v: jnp.sum(self.roll(q, v)[0] ** 2), *self.start)


class MuJoCo:
    """MuJoCo's own batched rollout, in float64."""

    threads = 0

    def build(self, limits: bool, batch: int) -> dict:
        import mujoco
        from mujoco import rollout

        self.model = mujoco.MjModel.from_xml_string(chain.mjcf(limits))
        self.data = [mujoco.MjData(self.model) for _ in range(max(self.threads, 1))]
        self.roll = rollout.Rollout(nthread=self.threads)
        size = mujoco.mj_stateSize(self.model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        self.start = np.zeros((batch, size))
        self.start[:, 1 : 1 + chain.LINKS] = chain.angles(limits, batch).T
        # Given, so that no run pays for fresh memory.
        self.states = np.zeros((batch, chain.STEPS, size))
        self.sensors = np.zeros((batch, chain.STEPS, self.model.nsensordata))
        return {"compile": (0.0, 0.0), "note": f"float64, {max(self.threads, 1)} threads"}

    def once(self):
        self.roll.rollout(
            self.model,
            self.data,
            self.start,
            nstep=chain.STEPS,
            state=self.states,
            sensordata=self.sensors,
        )

    def outcome(self) -> dict:
        self.once()
        return {"q": self.states[0, -1, 1:4].tolist()}


class MuJoCoAll(MuJoCo):
    """The same with a thread per core."""

    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


ENGINES = {
    "jaxjoints": JaxJoints,
    "mjx": Mjx,
    "mujoco one core": MuJoCo,
    "mujoco all cores": MuJoCoAll,
}


def _compiled(function, *arguments) -> tuple[Callable, tuple[float, float]]:
    """A compiled function, and the seconds and CPU seconds that tracing and compiling it took."""
    began, worked = time.perf_counter(), time.process_time()
    compiled = function.lower(*arguments).compile()
    return compiled, (time.perf_counter() - began, time.process_time() - worked)


def _seconds(once) -> tuple[float, float]:
    """Seconds and CPU seconds of one run, means of as many as fill `MIN_SECONDS`."""
    began, worked, runs = time.perf_counter(), time.process_time(), 0
    while runs == 0 or time.perf_counter() - began < MIN_SECONDS:
        once()
        runs += 1
    return (time.perf_counter() - began) / runs, (time.process_time() - worked) / runs


def answer(engine, request: dict) -> dict:
    """What an engine says to one request."""
    match request["do"]:
        case "build":
            facts = engine.build(request["limits"], request["batch"])
            return facts | engine.outcome()
        case "gradient":
            return engine.gradient(request["limits"], request["batch"], request["checkpoint"])
        case "time":
            return {"seconds": [_seconds(engine.once)]}
        case "time gradient":
            return {"seconds": [_seconds(one) for one in engine.pair]}
    raise ValueError(f"unknown request {request}")


def main() -> None:
    """Answer requests until the input ends."""
    # What libraries print must not reach the pipe.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine = ENGINES[sys.argv[1]]()
    for line in sys.stdin:
        try:
            reply = answer(engine, json.loads(line))
        except ImportError as error:
            reply = {"absent": str(error)}
        except Exception as error:
            reply = {"failed": f"{type(error).__name__}: {error}"[:300]}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
