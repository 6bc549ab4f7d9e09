"""The scripts of `examples/` as modules."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "examples"


@contextmanager
def example(name: str) -> Iterator[ModuleType]:
    """The module of a script, which may import the others beside it."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))
