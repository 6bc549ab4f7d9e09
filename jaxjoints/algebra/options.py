"""Checks that records make of their options when they are made, and near matches of names."""

import difflib
import inspect
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np


def near_matches(name: str, names: Iterable[str]) -> str:
    """A hint for an unknown name: "did you mean …?", or the list of the known names."""
    names = list(names)
    close = difflib.get_close_matches(str(name), names, n=3)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    shown = ", ".join(map(repr, names[:10])) + (", …" if len(names) > 10 else "")
    return f"there are {shown}" if names else "there are none"


def brief(value: Any, most: int = 80) -> str:
    """A value in an error: as Python writes it where that is short, else its type and shape."""
    text = repr(value)
    if len(text) <= most and "\n" not in text:
        return text
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"(an array of shape {shape})"
    if isinstance(value, (tuple, list)):
        kinds = ", ".join(type(x).__name__ for x in value[:4])
        return f"(a {type(value).__name__} of {kinds}{', …' if len(value) > 4 else ''})"
    return f"(a {type(value).__name__})"


def plain_numbers(value: Any) -> np.ndarray | None:
    """Numbers as an array of float64; None for what is none, such as a text that reads like one."""
    try:
        array = np.asarray(value)
        objects = array.flat if array.dtype.kind == "O" else ()
        if array.dtype.kind in "SUTcmM" or any(x is None or isinstance(x, str) for x in objects):
            return None
        return array.astype(float)
    except (TypeError, ValueError):
        return None


def check_switch(owner: str, field: str, value: Any) -> bool:
    """True or False as a bool; ValueError for other values, also for such as a text holds."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{owner}: {field} {brief(value)} must be True or False")
    return bool(value)


def check_function(owner: str, field: str, function: Any, *arguments: str) -> None:
    """Raise ValueError for what is no function that takes so many arguments by their places.

    arguments: their names, for errors
    """
    wanted = f"a function of ({', '.join(arguments)})"
    if not callable(function):
        raise ValueError(f"{owner} {field} {brief(function)} must be {wanted}")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise ValueError(f"{owner} {field} {name} must be {wanted}: {error}") from None
    except ValueError:  # A function of Python's own that tells no signature.
        pass


def check_choice(owner: str, field: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise ValueError for a value that is not one of a few words."""
    if not isinstance(value, str) or value not in choices:
        hint = near_matches(value, choices)
        raise ValueError(f"{owner} {field} {value!r} must be one of {', '.join(choices)}; {hint}")


def check_count(owner: str, field: str, value: Any, least: int = 0) -> None:
    """Raise ValueError for a value that is not a whole number of `least` or more."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{owner} {field} {value!r} must be a whole number")
    if value < least:
        raise ValueError(f"{owner} {field} {value!r} must be at least {least}")


def check_not_negative(owner: str, field: str, value: Any) -> None:
    """Raise ValueError for a number that is not 0 or more; one that is traced is not checked."""
    if isinstance(value, jax.core.Tracer):
        return
    numbers = plain_numbers(value)
    if numbers is None:
        raise ValueError(f"{owner} {field} {brief(value)} must be a number")
    if not np.all(numbers >= 0):
        raise ValueError(f"{owner} {field} {value!r} must not be negative")


def check_key(owner: str, key: Any) -> None:
    """Raise ValueError for what is no random key of `jax.random.key`."""
    if not jax.dtypes.issubdtype(getattr(key, "dtype", np.dtype(float)), jax.dtypes.prng_key):
        raise ValueError(
            f"{owner} key {brief(key)} must be a key of jax.random.key(seed); the older arrays of "
            "jax.random.PRNGKey become one by jax.random.wrap_key_data"
        )


def check_kind(owner: str, field: str, value: Any, kind: type, example: str) -> None:
    """Raise ValueError for a value that is no record of a kind; a class is not one of its records.

    example: an expression that makes a record of the kind
    """
    if not isinstance(value, kind):
        raise ValueError(
            f"{owner} {field} {brief(value)} must be {_article(kind)}, for example {example}"
        )


def _article(kind: type) -> str:
    """The name of a kind with its article."""
    return f"{'an' if kind.__name__[0] in 'AEIO' else 'a'} {kind.__name__}"
