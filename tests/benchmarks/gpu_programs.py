"""What the programs cost on an H200, without one: XLA compiles them for a described device.

    pip install -e ".[gpu-programs]"
    python tests/benchmarks/gpu_programs.py chain10 fourbar [--engines jaxjoints,mjx]
        [--batch 65536] [--gradient] [--heaviest 10] [--float64]

For each mechanism and engine, in float32 with the batch: kernels and bytes of an environment-step,
of each turn of an inner loop whose turns are not known (Newton's), temporary memory, and a modelled
time, kernel by kernel the larger of a launch inside a graph and its bytes over the bandwidth.
Fusions, kernels and memory are those that a user gets, but for what XLA would try out on the
device. The time is a model: it compares programs, and finds the kernels that cost.
"""

import argparse
import importlib
import os
import sys
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
from cases import CASES, DT
from engines import ENGINES
from engines.hlo import Loop, Program

from jaxjoints.algebra.compiler import disabled, traced_for

# Seconds of a launch inside a CUDA graph, and bytes per second of an H200's memory.
LAUNCH, BANDWIDTH = 1.3e-6, 4.8e12
# Steps of a rollout, a number that no other loop turns.
STEPS = 97
DEVICE = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 150754820096 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 minor: 0 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 }
device_description_str: "NVIDIA H200"
"""
COLUMNS = (
    *("mechanism", "engine", "kernels a step", "kB a step", "time a step [us]"),
    *("steps/s", "temporary memory [kB]", "compiled in [s]"),
)


def compiled(function, *arguments):
    """A function compiled for the described device; its arguments give the shapes."""
    from jax.experimental import topologies

    described = topologies.get_topology_desc(
        "", platform="cuda", target_config=DEVICE, topology="1x1x1"
    )
    here = jax.sharding.SingleDeviceSharding(described.devices[0])
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), arguments
    )
    return jax.jit(function, out_shardings=here).lower(*shapes).compile()


def modelled(size: float) -> float:
    """Time of a kernel that moves so many bytes [s]."""
    return max(LAUNCH, size / BANDWIDTH)


def stepping(program: Program) -> Loop:
    """The loop over time: of those that turn `STEPS` times the one that takes longest."""
    loops = [loop for loop in program.loops().walk() if loop.turns == STEPS]
    return max(loops, key=lambda loop: loop.total(modelled))


def rollout(engine: str, case: str, batch: int, gradient: bool):
    """A function of a start that simulates a batch, and the start, neither of which has run."""
    module, name = ENGINES[engine]
    made = getattr(importlib.import_module(f"engines.{module}"), name)()
    # All at once, as on a GPU.
    made.tile = batch
    mechanism = CASES[case]()
    roll, arguments = made.rollout(mechanism, batch, STEPS, DT)
    if not gradient:
        return roll, arguments

    def loss(*arguments):
        leaves = jax.tree.leaves(roll(*arguments))
        return sum((x**2).sum() for x in leaves if jax.numpy.issubdtype(x.dtype, jax.numpy.inexact))

    return jax.grad(loss, allow_int=True), arguments


def measure(engine: str, case: str, batch: int, gradient: bool = False) -> tuple[dict, Program]:
    """Numbers of a program, all but the first two columns, and the program."""
    function, arguments = rollout(engine, case, batch, gradient)
    began = time.monotonic()
    # JAX here takes the processor for what it computes on.
    with traced_for("gpu"):
        made = compiled(function, *arguments)
    spent = time.monotonic() - began
    program = Program(made.as_text())
    loop = stepping(program)
    seconds = loop.total(modelled)
    found = {
        "kernels": int(loop.total(lambda _: 1)),
        "bytes": loop.total(lambda size: size) / batch,
        "seconds": seconds,
        "memory": made.memory_analysis().temp_size_in_bytes / batch,
        "compile": spent,
    }
    return found, program


def shown(case: str, engine: str, found: dict, batch: int) -> str:
    """A row of the table."""
    cells = (
        *(case, engine, f"{found['kernels']}", f"{found['bytes'] / 1e3:.1f}"),
        *(f"{found['seconds'] * 1e6:.0f}", f"{batch / found['seconds'] / 1e6:.1f} M"),
        *(f"{found['memory'] / 1e3:.1f}", f"{found['compile']:.0f}"),
    )
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print a table, and the heaviest kernels."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("cases", nargs="+", choices=sorted(CASES))
    options.add_argument("--engines", default="jaxjoints,mjx fast")
    options.add_argument("--batch", type=int, default=65536)
    options.add_argument("--gradient", action="store_true")
    options.add_argument("--float64", action="store_true")
    options.add_argument("--without", default="", help="a workaround of jaxjoints to do without")
    options.add_argument("--heaviest", type=int, default=0, help="kernels of a step to list")
    given = options.parse_args()
    jax.config.update("jax_enable_x64", given.float64)
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    for case in given.cases:
        for engine in given.engines.split(","):
            try:
                with disabled(*filter(None, [given.without])):
                    found, program = measure(engine, case, given.batch, given.gradient)
            except Exception as error:
                print(f"{case}, {engine}: {type(error).__name__}: {error}"[:400], file=sys.stderr)
                continue
            print(shown(case, engine, found, given.batch), flush=True)
            loop = stepping(program)
            for inner in loop.walk():
                if inner.turns is None:
                    count, size = inner.total(lambda _: 1), inner.total(lambda size: size)
                    print(
                        f"  each turn of {inner.name}: {count:.0f} kernels, "
                        f"{size / given.batch / 1e3:.1f} kB, {inner.total(modelled) * 1e6:.0f} us"
                    )
            kernels = sorted(
                (x for inner in loop.walk() for x in inner.kernels), key=lambda x: -x[0]
            )
            for size, x in kernels[: given.heaviest]:
                place = x.source[-110:]
                print(f"  {size / given.batch / 1e3:6.2f} kB  {x.operation:12s} {place}")


if __name__ == "__main__":
    main()
