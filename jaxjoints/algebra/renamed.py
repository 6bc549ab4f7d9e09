"""Names of an earlier release, which work for one release more and warn of the new ones."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from .calls import warn

Record = TypeVar("Record")


def warn_renamed(owner: str, old: str, new: str) -> None:
    """Warn that a name is one of an earlier release, at the user's line."""
    message = f"{owner}: {old} is now {new}; the next release leaves the old name out"
    warn(message, DeprecationWarning)


def earlier_names(module: str, names: Mapping[str, tuple[str, Any]]) -> Callable[[str], Any]:
    """`__getattr__` of a module that still has names of an earlier release.

    names: by the old name, the new one and what the old name stands for

    Raises: AttributeError for all other names
    """

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new, value = names[name]
        warn_renamed(module, name, new)
        return value

    return __getattr__


def renamed_fields(**names: str) -> Callable[[type[Record]], type[Record]]:
    """Class decorator for a record (`struct`) whose fields had other names: they may still be
    given and read by these.

    names: new names by the old ones; kept as `earlier_fields` of the class

    >>> from jaxjoints.algebra.pytree import struct
    >>> @renamed_fields(k="stiffness")
    ... @struct
    ... class Spring:
    ...     stiffness: float
    >>> Spring.earlier_fields
    {'k': 'stiffness'}
    """

    def decorated(cls: type[Record]) -> type[Record]:
        made = cls.__init__

        @wraps(made)
        def __init__(self: Any, *arguments: Any, **named: Any) -> None:
            for old in names.keys() & named.keys():
                warn_renamed(cls.__name__, old, names[old])
                # In place of the value that `dataclasses.replace` hands on.
                named[names[old]] = named.pop(old)
            made(self, *arguments, **named)

        cls.__init__ = __init__  # type: ignore[misc]
        for old, new in names.items():
            setattr(cls, old, _reader(old, new))
        cls.earlier_fields = names  # type: ignore[attr-defined]
        return cls

    return decorated


def current_field(record: Any, field: str) -> str:
    """The name that a field of a record, or of a class of records, has now; warns of an old one."""
    new = getattr(record, "earlier_fields", {}).get(field)
    if new is None:
        return field
    kind = record if isinstance(record, type) else type(record)
    warn_renamed(kind.__name__, field, new)
    return new


def _reader(old: str, new: str) -> property:
    def read(self: Any) -> Any:
        warn_renamed(type(self).__name__, old, new)
        return getattr(self, new)

    return property(read, doc=f"The earlier name of `{new}`.")
