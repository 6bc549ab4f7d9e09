"""XML of unknown origin: elements that know their line, and numbers that are numbers.

Entities and document types are refused, so a file can neither grow in memory nor read another.
Depth, length and number of elements are limited.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar
from xml.parsers.expat import ExpatError

import numpy as np

from ..algebra.calls import public
from ..algebra.options import brief
from .errors import LoadError, refusing, shown

NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
BLANK = " \t\r\n"
LATE_DECLARATION = re.compile(rb"\A(\xef\xbb\xbf)?([ \t\r\n]+)(<\?xml[^>]*\?>)")
XINCLUDE = "{http://www.w3.org/2001/XInclude}"
Options, Read = ParamSpec("Options"), TypeVar("Read")
# What stands for the name of a file in errors about a text.
TEXT = "<text>"


@public
@dataclass(frozen=True)
class FileLimits:
    """How large a file may be that is read.

    size: of a model file [bytes]; elements: in it; depth: of elements in each other
    name: length of a name [characters]; mesh: size of a mesh file [bytes]

    >>> from jaxjoints.models import LoadError, load_urdf
    >>> text = '<robot name="pair"><link name="base"/><link name="rod"/></robot>'
    >>> try:
    ...     load_urdf(text, limits=FileLimits(elements=2))
    ... except LoadError as error:
    ...     print(error)
    <text>, line 1, link 'rod': is element 3; at most 2 are read
    """

    size: int = 64_000_000
    elements: int = 1_000_000
    depth: int = 100
    name: int = 256
    mesh: int = 64_000_000


@dataclass(eq=False)
class Element:
    """An XML element: its tag, attributes and children, and where it stands.

    folder: of the file in which it stands, None for a text
    """

    tag: str
    attributes: dict[str, str]
    line: int
    source: str
    folder: Path | None = None
    children: list["Element"] = field(default_factory=list)

    def __str__(self) -> str:
        tag = self.tag.rpartition("}")[2]
        return f"{tag} {shown(self.attributes['name'])}" if "name" in self.attributes else tag

    def error(self, problem: str) -> LoadError:
        """The error that this element makes."""
        return LoadError(problem, source=self.source, line=self.line, element=str(self))

    def all(self, tag: str) -> Iterator["Element"]:
        """The children with a tag."""
        return (child for child in self.children if child.tag == tag)

    def only(self, tag: str) -> "Element | None":
        """The child with a tag, None without it; LoadError for several."""
        found = list(self.all(tag))
        if len(found) > 1:
            raise found[1].error(f"stands {len(found)} times in {self}; keep one")
        return found[0] if found else None

    def text(self, attribute: str) -> str:
        """An attribute; LoadError without it."""
        if attribute not in self.attributes:
            raise self.error(f"attribute {attribute!r} is missing")
        return self.attributes[attribute]

    def numbers(self, attribute: str, count: int, default: object = None) -> np.ndarray:
        """An attribute of `count` numbers, shape (count,); `default` without it.

        Raises: LoadError for what is no finite decimal number, for another count, and for a missing
            attribute without a default.
        """
        if default is not None and attribute not in self.attributes:
            return np.array(default, float)
        text = self.text(attribute)
        words = [word for word in re.split(f"[{BLANK}]+", text) if word]
        if len(words) != count:
            raise self.error(f"{attribute} {shown(text)} must be {_count(count)}")
        for word in words:
            if not NUMBER.fullmatch(word) or not np.isfinite(float(word)):
                raise self.error(f"{attribute} {shown(text)} must be finite decimal numbers")
        return np.array([float(word) for word in words])

    def number(self, attribute: str, default: float | None = None) -> float:
        """An attribute of one number, as `numbers`."""
        return float(self.numbers(attribute, 1, None if default is None else [default])[0])


def reads(
    function: Callable[Concatenate[Element, Options], Read],
) -> Callable[Concatenate[Element, Options], Read]:
    """A function of an element, in which whatever goes wrong is the LoadError of the element."""

    @wraps(function)
    def read(element: Element, *options: Options.args, **named: Options.kwargs) -> Read:
        with refusing(element.error):
            return function(element, *options, **named)

    return read


def read_source(source: str | os.PathLike, limits: FileLimits) -> tuple[bytes, str, Path | None]:
    """The bytes of a file or of a text, its name for errors, and the folder of the file.

    source: path of a file, or the XML itself: a text with a "<" in it

    Raises: LoadError for a file that is too long or no regular file; OSError for one that cannot be
        opened.
    """
    if not isinstance(source, (str, os.PathLike)):
        raise ValueError(f"source {brief(source)} must be the path of a file, or the XML as a text")
    if isinstance(source, str) and "<" in source:
        # Blanks before an XML declaration are no XML, but are there in texts within code.
        text = source.lstrip("\ufeff" + BLANK)
        data, name, folder = text.encode("utf-8", "replace"), TEXT, None
    else:
        path = Path(source)
        data, name, folder = read_bytes(path, limits.size), path.name, path.resolve().parent
    if len(data) > limits.size:
        raise LoadError(
            f"has {len(data)} bytes; at most {limits.size} are read, see FileLimits", source=name
        )
    return data, name, folder


def read_bytes(path: Path, most: int) -> bytes:
    """A regular file of at most `most` bytes.

    Raises: LoadError for another; OSError for one that cannot be opened.
    """
    with path.open("rb") if path.is_file() else _nothing(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise LoadError(f"has more than {most} bytes, see FileLimits", source=path.name)
    return data


def read_xml(data: bytes, name: str, limits: FileLimits, folder: Path | None = None) -> Element:
    """The outermost element of a file.

    Blanks before an XML declaration and zeros after the end are no XML. Readers of C strings pass
    over both, so files have them.

    name, folder: of the file, see `Element`

    Raises: LoadError for what is no well-formed XML, has entities or a document type, or is larger
        than the limits.
    """
    defused = _defused()
    parser = None

    class Target:
        """Receives what the parser finds."""

        def __init__(self):
            self.root, self.open, self.count = None, [], 0

        def start(self, tag, attributes):
            line = parser.parser.CurrentLineNumber
            element = Element(tag, dict(attributes), line, name, folder)
            self.count += 1
            if self.count > limits.elements:
                raise element.error(f"is element {self.count}; at most {limits.elements} are read")
            if len(self.open) >= limits.depth:
                raise element.error(f"is nested deeper than {limits.depth} elements")
            if tag.startswith(XINCLUDE):
                raise element.error("XInclude is not followed; put the file's contents here")
            if self.open:
                self.open[-1].children.append(element)
            else:
                self.root = element
            self.open.append(element)

        def end(self, tag):
            self.open.pop()

        def close(self):
            return self.root

    parser = defused.ElementTree.DefusedXMLParser(target=Target(), forbid_dtd=True)
    try:
        parser.feed(_well_formed(data))
        return parser.close()
    except defused.common.DefusedXmlException as error:
        line = parser.parser.CurrentLineNumber
        problem = "document types and entities are refused; write what they stand for"
        raise LoadError(problem, source=name, line=line) from error
    except (defused.ElementTree.ParseError, ExpatError) as error:
        line = getattr(error, "position", (None,))[0]
        undeclared = "unbound prefix" in str(error)
        advice = "; declare it in the outermost element, as xmlns:PREFIX=..." if undeclared else ""
        problem = f"is no well-formed XML: {error}{advice}"
        raise LoadError(problem, source=name, line=line) from error
    except (ValueError, LookupError) as error:
        if isinstance(error, LoadError):
            raise
        raise LoadError(f"cannot be read: {error}", source=name) from error


def _well_formed(data: bytes) -> bytes:
    """The bytes of a file, without zeros after the end, and with blanks before its declaration
    behind it, where they keep the numbers of lines.
    """
    ended = data.rstrip(b"\0")
    data = data if b"\0" in ended else ended
    return LATE_DECLARATION.sub(rb"\1\3\2", data)


def _defused():
    """The package defusedxml, which is installed with jaxjoints[models]."""
    try:
        import defusedxml.common
        import defusedxml.ElementTree
    except ImportError as error:
        raise ImportError(
            "model files are read with defusedxml: pip install -e '.[models]' in the checkout"
        ) from error
    return defusedxml


def _nothing(path: Path):
    if path.exists():
        raise LoadError("is no regular file", source=path.name)
    raise FileNotFoundError(f"there is no file {str(path)!r}")


def _count(count: int) -> str:
    return "one number" if count == 1 else f"{count} numbers, with blanks between"
