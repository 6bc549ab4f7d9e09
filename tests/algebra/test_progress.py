"""What takes long says so on a terminal, and nowhere else."""

import io
import sys
import time

import jax
import numpy as np
import pytest

from jaxjoints.algebra import progress
from jaxjoints.algebra.progress import Progress, compiled, is_watched, with_progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Cell(io.StringIO):
    """As IPython's kernel has it: no terminal, and still shown."""


Cell.__module__ = "ipykernel.iostream"


@pytest.mark.parametrize("stream, seen", [(Terminal, True), (Cell, True), (io.StringIO, False)])
def test_terminals_and_cells_of_notebooks_are_watched(monkeypatch, stream, seen):
    monkeypatch.setattr(sys, "stderr", stream())
    assert is_watched() == seen


def test_without_an_error_stream_nobody_looks(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert not is_watched()


def slow_to_trace():
    """A program that takes longer to trace than an announcement waits, and one inside it."""

    @compiled(lambda x: f"part of {x.size}")
    def part(x):
        time.sleep(0.2)
        return 2 * x

    @compiled(lambda x: f"product of {x.size} numbers")
    def whole(x):
        return part(x) + 1

    return whole


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_the_outermost_program_is_announced_once_while_it_is_compiled(monkeypatch, stream):
    monkeypatch.setattr(progress, "COMPILATION", 0.05)
    monkeypatch.setattr(sys, "stderr", stream())
    program, x = slow_to_trace(), np.ones(3)
    for _ in range(2):
        np.testing.assert_array_equal(program(x), 3 * x)
    expected = "compiling product of 3 numbers …\n" if stream is Terminal else ""
    assert sys.stderr.getvalue() == expected


def test_what_is_compiled_soon_is_not_announced(monkeypatch):
    monkeypatch.setattr(progress, "COMPILATION", 0.3)
    monkeypatch.setattr(sys, "stderr", Terminal())

    @compiled(lambda x: "a sum")
    def total(x):
        return x.sum()

    total(np.ones(3))
    time.sleep(0.4)
    assert sys.stderr.getvalue() == ""
    assert jax.grad(total)(np.ones(3)).shape == (3,)


@with_progress("cost")
def search(*, report=None):
    """Reports twice and ends before its last iteration."""
    if report is not None:
        report(1, 3, np.array([5.0, np.nan]))
        report(2, 3, np.array([np.nan, np.nan]))
    return report


def test_a_search_draws_its_own_bar_where_one_looks(monkeypatch):
    assert search() is None
    monkeypatch.setattr(progress, "SEARCH", 0.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    shown = search()
    assert isinstance(shown, Progress) and shown.bar is None
    assert "search:  67%" in sys.stderr.getvalue() and "cost 5" in sys.stderr.getvalue()
    own = lambda *_: None  # noqa: E731
    assert search(report=own) is own
