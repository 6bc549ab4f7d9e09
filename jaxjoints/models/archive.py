"""Systems, states and trajectories in a file: NumPy arrays and a description in JSON, no pickle.

The file is a zip of arrays, as `numpy.savez` writes it, with one entry more: the records as JSON,
each with its class and fields, in which a number says which array stands where.
"""

import dataclasses
import importlib
import io
import json
import math
import os
import zipfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import jax
import jax.numpy as jnp
import numpy as np

from ..algebra.calls import public, warn
from ..algebra.version import VERSION
from ..build.checks.values import precision
from .earlier_formats import with_contacts, without_impulses
from .errors import LoadError, refusing, shown

# Of the description; a reader refuses later ones.
FORMAT = 3
DESCRIPTION = "records.json"
LIBRARY = __name__.partition(".")[0]
# Bytes that a file may unpack to, and its description.
MOST_BYTES, MOST_DESCRIPTION = 16_000_000_000, 64_000_000


@public
def save(path: str | os.PathLike, **records: Any) -> None:
    """Write systems, states, trajectories or any records to a file, to be read by `load`.

    Records of the library, of your own (`struct`, found again by their import path), arrays,
    numbers, strings, and tuples, lists and dictionaries of them. Arrays keep their bits.

    path: of the file, whatever its ending
    records: by the names under which `load` returns them

    Raises: ValueError naming what cannot be written, such as a function.

    >>> import tempfile
    >>> from jaxjoints import Hinge, SystemBuilder
    >>> world = SystemBuilder()
    >>> arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.02))
    >>> elbow = world.joint("elbow", Hinge(), child=arm)
    >>> system, state = world.build()
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     save(file.name, system=system, start=state)
    ...     sorted(load(file.name))
    ['start', 'system']
    """
    arrays: list[np.ndarray] = []
    described = {name: _described(name, value, arrays) for name, value in records.items()}
    head = {"format": FORMAT, "library": LIBRARY, "version": VERSION, "records": described}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        file.writestr(DESCRIPTION, json.dumps(head, allow_nan=False))
        for i, array in enumerate(arrays):
            buffer = io.BytesIO()
            np.save(buffer, array, allow_pickle=False)
            file.writestr(f"{i}.npy", buffer.getvalue())


@public
def load(path: str | os.PathLike, *, modules: Iterable[str] = ()) -> dict[str, Any]:
    """Read what `save` wrote: the records by their names.

    Floats become JAX's default float. Only records of the library are made, and of the modules that
    you name: nothing else of a file is imported or run.

    modules: import paths of modules whose records may be made, such as "my_robot.couplings"

    Raises: LoadError naming file and field for a file of a later format, and for records that are
        unknown here; OSError for a file that cannot be opened.
    Warns: of states from which the next step starts anew, those of an earlier format
    """
    name = Path(path).name
    with open(path, "rb") as file, refusing(partial(LoadError, source=name)):
        head, arrays = _unpacked(file, name)
        if not isinstance(head, dict) or not isinstance(head.get("records"), dict):
            raise LoadError("is no file that `save` wrote", source=name)
        if head.get("format") not in range(1, FORMAT + 1):
            raise LoadError(
                f"has format {shown(head.get('format'))}, written by {LIBRARY} "
                f"{shown(head.get('version'))}; this version reads formats up to {FORMAT}",
                source=name,
            )
        lost = head["format"] == 1 and without_impulses(head["records"], arrays)
        reader = _Reader(name, arrays, tuple(modules))
        records = {key: reader.read(key, value) for key, value in head["records"].items()}
        if head["format"] < 3:
            records, more = with_contacts(records)
            lost |= more
        if lost:
            warn(
                f"{name}: its states have no forces of their last step, since they are of format "
                f"{head['format']}; the first step after each starts without"
            )
        return records


def _unpacked(file: BinaryIO, name: str) -> tuple[Any, list[np.ndarray]]:
    """The description in a file and its arrays."""
    try:
        with zipfile.ZipFile(file) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            if size > MOST_BYTES:
                raise LoadError(f"unpacks to {size} bytes; at most {MOST_BYTES}", source=name)
            if archive.getinfo(DESCRIPTION).file_size > MOST_DESCRIPTION:
                raise LoadError(f"{DESCRIPTION} is too long", source=name)
            head = json.loads(archive.read(DESCRIPTION))
            return head, [
                np.load(io.BytesIO(archive.read(f"{i}.npy")), allow_pickle=False)
                for i in range(len(archive.namelist()) - 1)
            ]
    except LoadError:
        raise
    except Exception as error:
        # Of a foreign file: whatever the unpacking stumbles over, `save` has not written it.
        what = error or type(error).__name__
        raise LoadError(f"is no file that `save` wrote: {what}", source=name) from error


def _described(where: str, value: Any, arrays: list[np.ndarray]) -> Any:
    """A value as JSON; its arrays are added to `arrays`."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        if isinstance(value, jax.core.Tracer):
            raise ValueError(f"{where}: JAX is tracing it; save outside of jit and grad")
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise ValueError(f"{where}: an array of {array.dtype} cannot be written")
        arrays.append(array)
        return {"array": len(arrays) - 1, "numpy": not isinstance(value, jax.Array)}
    if isinstance(value, (tuple, list)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_described(f"{where}[{i}]", x, arrays) for i, x in enumerate(value)]}
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError(f"{where}: a dictionary needs strings for its keys")
        return {"dict": {k: _described(f"{where}.{k}", x, arrays) for k, x in value.items()}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        if "<locals>" in kind.__qualname__ or kind.__module__ == "__main__":
            raise ValueError(
                f"{where}: {kind.__qualname__} has no import path; define it in a module"
            )
        fields = {
            field.name: _described(f"{where}.{field.name}", getattr(value, field.name), arrays)
            for field in dataclasses.fields(value)
        }
        return {"record": f"{kind.__module__}:{kind.__qualname__}", "fields": fields}
    raise ValueError(f"{where}: {shown(value)} of {type(value).__name__} cannot be written")


class _Reader:
    """Makes records from their description."""

    def __init__(self, source: str, arrays: list[np.ndarray], modules: tuple[str, ...]):
        self.source, self.arrays, self.modules = source, arrays, modules

    def read(self, where: str, value: Any) -> Any:
        """A value from JSON; where: the field, for errors."""
        with refusing(partial(self._error, where)):
            return self._read(where, value)

    def _read(self, where: str, value: Any) -> Any:
        if value is None or isinstance(value, (bool, str, int, float)):
            return value
        if isinstance(value, dict) and len(value) <= 2:
            if isinstance(value.get("float"), str):
                return self._float(where, value["float"])
            if "array" in value:
                return self._array(where, value)
            for kind, make in (("tuple", tuple), ("list", list)):
                if isinstance(value.get(kind), list):
                    return make(self.read(f"{where}[{i}]", x) for i, x in enumerate(value[kind]))
            if isinstance(value.get("dict"), dict):
                return {k: self.read(f"{where}.{k}", x) for k, x in value["dict"].items()}
            if isinstance(value.get("record"), str) and isinstance(value.get("fields"), dict):
                return self._record(where, value["record"], value["fields"])
        raise self._error(where, f"{shown(value)} is no value")

    def _error(self, where: str, problem: str) -> LoadError:
        return LoadError(problem, source=self.source, element=f"field {where!r}")

    def _float(self, where: str, text: str) -> float:
        if text not in ("inf", "-inf", "nan"):
            raise self._error(where, f"{shown(text)} is no number")
        return float(text)

    def _array(self, where: str, value: dict) -> Any:
        i = value["array"]
        if not isinstance(i, int) or not 0 <= i < len(self.arrays):
            raise self._error(where, f"array {shown(i)} is not in the file")
        array = self.arrays[i]
        if value.get("numpy"):
            return array
        return jnp.asarray(array, precision() if array.dtype.kind == "f" else None)

    def _record(self, where: str, name: str, fields: dict) -> Any:
        module, _, kind = name.partition(":")
        if module.partition(".")[0] != LIBRARY and module not in self.modules:
            raise self._error(
                where, f"{shown(name)} is no record of {LIBRARY}; give modules=[{shown(module)}]"
            )
        try:
            found: Any = importlib.import_module(module)
            for part in kind.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError) as error:
            raise self._error(where, f"there is no record {shown(name)} here: {error}") from error
        if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
            raise self._error(where, f"{shown(name)} is no record")
        known = {field.name: field for field in dataclasses.fields(found)}
        # Of a record that another release wrote. A name that is a field now is none of these.
        earlier = getattr(found, "earlier_fields", {})
        fields = {x if x in known else earlier.get(x, x): value for x, value in fields.items()}
        for field in fields:
            if field not in known:
                raise self._error(f"{where}.{field}", f"{found.__name__} has no such field here")
        for field, one in known.items():
            default = one.default is not dataclasses.MISSING
            if field not in fields and not (
                default or one.default_factory is not dataclasses.MISSING
            ):
                raise self._error(f"{where}.{field}", f"is missing; {found.__name__} needs it")
        values = {field: self.read(f"{where}.{field}", x) for field, x in fields.items()}
        try:
            return found(**values)
        except TypeError as error:
            raise self._error(where, str(error)) from error
