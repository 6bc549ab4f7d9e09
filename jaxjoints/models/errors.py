"""LoadError and LoadWarning: what is wrong with a file, and what of it is not simulated."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np


class LoadError(ValueError):
    """A file that cannot be loaded: one sentence with file, line and element.

    source: name of the file, or what stands for a text without one
    line: where the element begins, None if it is not known
    element: what the file is wrong about, such as "joint 'elbow'", None for the whole file

    >>> from jaxjoints.models import load_urdf
    >>> try:
    ...     load_urdf('''<robot name="arm">
    ...       <link name="rod"><inertial><mass value="-1"/>
    ...         <inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
    ...     </robot>''', floating=True)
    ... except LoadError as error:
    ...     print(error.line, error)
    2 <text>, line 2, mass: value -1 must be >= 0
    """

    def __init__(self, problem: str, *, source: str, line: int | None = None, element=None):
        self.source, self.line, self.element = source, line, element
        place = [source, None if line is None else f"line {line}", element]
        super().__init__(f"{', '.join(filter(None, place))}: {problem}")


# Characters of an error of another library that are quoted.
MOST_OF_AN_ERROR = 200
# Makes the error that an element of the file is wrong, from a sentence.
Refuse: TypeAlias = Callable[[str], LoadError]


@contextmanager
def refusing(refuse: Refuse) -> Iterator[None]:
    """Whatever goes wrong while an element is read is the LoadError of that element.

    Numbers that overflow, or that are divided by zero, go wrong too. Warnings that the caller has
    made errors and packages that are not installed pass as they are.
    """
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            yield
    except (LoadError, Warning, ImportError):
        raise
    except Exception as error:
        # A plain ValueError is a sentence of the builder's checks.
        plain = type(error) is ValueError
        raise refuse(str(error) if plain else _unforeseen(error)) from error


def _unforeseen(error: Exception) -> str:
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return f"cannot be read ({what[:MOST_OF_AN_ERROR]}); check its numbers, or take it out"


class LoadWarning(UserWarning):
    """What a file asks for and its model does not do, in one list.

    >>> import warnings
    >>> from jaxjoints.models import load_urdf
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = load_urdf('<robot name="lamp"><link name="base"/><sensor name="eye"/></robot>')
    >>> print(caught[0].message)
    <text>: not all of it is simulated as written
      skipped: sensor (in line 1)
    """


def shown(value: object, most: int = 80) -> str:
    """A value from a file as it is quoted in an error: on one line, not longer than `most`."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 2]}…{text[-1]}"
