"""Makes JAX strict before any test: float64, no silent promotion of types or ranks, on the CPU."""

import os

# Read by JAX when it is first imported, here or in a subprocess that a test starts.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import ctypes
import gc
import time

import jax
import pytest

from support import slow
from support.quick import compile_quickly

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
compile_quickly(os.environ)
# Tracing makes many objects that stay: looking for garbage after every 700 of them takes a fifth
# of its time.
gc.set_threshold(20_000)

NOT_THERE = pytest.StashKey[list[str]]()
BEGAN = time.monotonic()


def pytest_addoption(parser):
    parser.addoption("--minutes", type=float, help="skip the tests that have not begun by then")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    minutes = item.config.getoption("--minutes")
    if minutes is not None and time.monotonic() - BEGAN > 60 * minutes:
        pytest.skip(f"{minutes:g} minutes are over")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    # Part of a file says nothing of what is not there.
    whole = not any("::" in argument for argument in config.args)
    not_there = slow.mark(items, "tests")
    config.stash[NOT_THERE] = not_there if whole else []


@pytest.fixture
def slow_but_not_there(pytestconfig):
    """What the tables of `support.slow` name although no collected file has it."""
    return pytestconfig.stash[NOT_THERE]


@pytest.fixture(scope="module", autouse=True)
def programs_are_dropped():
    """Compiled programs of a file fill memory, 10 GB in all, and others need few of them."""
    yield
    jax.clear_caches()
    gc.collect()
    # Without it glibc keeps what was freed: 602 MB instead of 316 after some programs.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
