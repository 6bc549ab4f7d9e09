"""Makes JAX strict before any test: float64, no silent promotion of types or ranks, on the CPU."""

import os

# Read by JAX when it is first imported, here or in a subprocess that a test starts.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The command line would keep compiled programs in the folder of the user who runs the tests.
os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "0")

import ctypes
import gc
import time

import jax
import pytest

from support.quick import compile_quickly

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
compile_quickly(os.environ)
# Tracing makes many objects that stay: looking for garbage after every 700 of them takes a fifth
# of its time.
gc.set_threshold(20_000)

BEGAN = time.monotonic()


def pytest_addoption(parser):
    parser.addoption("--minutes", type=float, help="skip the tests that have not begun by then")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    minutes = item.config.getoption("--minutes")
    if minutes is not None and time.monotonic() - BEGAN > 60 * minutes:
        pytest.skip(f"{minutes:g} minutes are over")


@pytest.fixture(scope="module", autouse=True)
def programs_are_dropped():
    """Compiled programs of a file fill memory, 10 GB in all, and others need few of them."""
    yield
    jax.clear_caches()
    gc.collect()
    # What is left stays to the end: the next file need not look through it.
    gc.freeze()
    # Without it glibc keeps what was freed: 602 MB instead of 316 after some programs.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
