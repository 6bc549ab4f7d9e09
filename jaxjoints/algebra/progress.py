"""What takes long says so where someone looks: on a terminal, and in a notebook."""

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar, cast

import jax
import numpy as np
from tqdm import tqdm

from .compiler import named_mesh

F = TypeVar("F", bound=Callable)

# When a compilation says what is compiled, and a search how far it is [s].
COMPILATION, SEARCH = 2.0, 10.0


def is_watched() -> bool:
    """Whether someone sees the error stream: it is a terminal, or a cell of a notebook."""
    stream = sys.stderr
    if stream is None:
        return False
    # Of IPython's kernel, whose cells show it.
    if type(stream).__module__.partition(".")[0] == "ipykernel":
        return True
    with suppress(ValueError):
        return stream.isatty()
    return False


class _Announcements(threading.local):
    """Of a thread: what its calls under way are, outermost first, and the timer of one."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], str]] = []
        self.timer: threading.Timer | None = None


_announcements = _Announcements()


def compiled(
    describe: Callable[..., str], *, compiler: Callable = jax.jit, **options: Any
) -> Callable[[F], F]:
    """Decorator: `jax.jit` of a function that says what it is where compiling it takes long.

    describe: what is compiled in a few words, of the function's arguments
    compiler: in place of `jax.jit`, with the same options
    """

    def decorated(function: F) -> F:
        @wraps(function)
        def traced(*arguments: Any, **named: Any) -> Any:
            # Python runs it to trace a program, and no more once that is compiled.
            _begin()
            with named_mesh():
                return function(*arguments, **named)

        call = compiler(traced, **options)

        @wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            waiting = _announcements
            waiting.calls.append(lambda: describe(*arguments, **named))
            try:
                return call(*arguments, **named)
            finally:
                waiting.calls.pop()
                if not waiting.calls and waiting.timer is not None:
                    waiting.timer.cancel()
                    waiting.timer = None

        return cast(F, called)

    return decorated


def _begin() -> None:
    """Announce the outermost call, unless it is over soon."""
    waiting = _announcements
    if waiting.timer is not None or not waiting.calls or not is_watched():
        return
    # Described at once: a thread of its own must not look at what JAX traces.
    words = f"compiling {waiting.calls[0]()} …"
    waiting.timer = threading.Timer(COMPILATION, print, [words], {"file": sys.stderr})
    waiting.timer.daemon = True
    waiting.timer.start()


class Progress:
    """A progress bar with the best value so far, for the `report` of a search.

    It is drawn on the error stream where that is a terminal or a cell of a notebook, so that files
    stay as they are. `fit`, `identify` and the methods of `optimization` draw one without being
    told after ten seconds; `report=` takes its place.

    title: what stands in front of the bar
    measure: what is least at the best, such as "mean square" or "cost"
    delay: until the bar appears [s]

    >>> progress = Progress("knee")
    >>> progress(1, 20, np.array([3.0, 2.0]))
    >>> progress.best
    2.0
    """

    def __init__(self, title: str = "search", *, measure: str = "mean square", delay: float = 0.0):
        self.title, self.measure, self.delay = title, measure, delay
        self.best, self.bar = np.inf, None

    def __call__(self, done: int, total: int, losses: np.ndarray) -> None:
        """Draw the bar after an evaluation; arguments are those of `report`."""
        if self.bar is None or done == 1:
            self.close()
            self.best = np.inf
            off = not is_watched()
            self.bar = tqdm(total=total, desc=self.title, disable=off, delay=self.delay)
        known = np.asarray(losses, float)
        self.best = min(self.best, *known[np.isfinite(known)].ravel().tolist(), np.inf)
        self.bar.set_postfix_str(f"{self.measure} {self.best:.3g}", refresh=False)
        self.bar.update(done - self.bar.n)
        if done == total:
            self.close()

    def close(self) -> None:
        """Leave the bar as it is and go on below it, for a search that ends early."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def with_progress(measure: str) -> Callable[[F], F]:
    """Decorator: a search whose `report` is a `Progress` where none is given."""

    def decorated(function: F) -> F:
        @wraps(function)
        def shown(*arguments: Any, report: Any = None, **named: Any) -> Any:
            if report is not None or not is_watched():
                return function(*arguments, report=report, **named)
            progress = Progress(function.__name__, measure=measure, delay=SEARCH)
            try:
                return function(*arguments, report=progress, **named)
            finally:
                progress.close()

        return cast(F, shown)

    return decorated
