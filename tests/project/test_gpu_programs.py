"""What a program costs on a GPU, which is read off what XLA compiles for a described one."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
BATCH = 4096
# Of a step of a chain of 10, without loops or limits: a tenth above what it takes.
KERNELS, BYTES = 196, 99e3


@pytest.fixture(autouse=True)
def folder(monkeypatch):
    """The benchmarks' own modules, which run as scripts."""
    monkeypatch.syspath_prepend(str(FOLDER))


def test_bytes_are_those_that_kernels_read_and_write():
    from engines.hlo import Program

    def turned(x):
        def turn(carry, row):
            return jnp.sin(carry) + row, None

        return jax.lax.scan(turn, x[0], x)[0]

    x = jnp.ones((30, 64, 64), jnp.float32)
    loop, *inner = Program(jax.jit(turned).lower(x).compile().as_text()).loops().walk()
    assert [one.turns for one in inner] == [30] and loop.turns == 1
    # A turn reads the carry and a row of x and writes the carry; it may copy, but not all of x.
    row = 64 * 64 * 4
    assert 3 * row <= inner[0].total(lambda size: size) <= 8 * row


@pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None,
    reason='needs XLA for CUDA: pip install -e ".[gpu-programs]"',
)
def test_a_chain_of_ten_takes_few_kernels_and_bytes_on_an_h200():
    # In a process of its own: a benchmark sets up JAX when it is imported.
    code = f"import gpu_programs; print(gpu_programs.measure('jaxjoints', 'chain10', {BATCH})[0])"
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True, check=True
    )
    found = ast.literal_eval(shown.stdout)
    assert 1 < found["kernels"] <= KERNELS
    assert 1e3 < found["bytes"] <= BYTES
