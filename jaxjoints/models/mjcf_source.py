"""MJCF text made safe to compile: included files inserted, meshes handed over, the rest left out.

MuJoCo opens files by itself. Here all files that it may need are found inside the caller's roots
and given to it in memory, and every other reference to a file is removed.
"""

from pathlib import Path
from xml.sax.saxutils import quoteattr

from .errors import LoadError, shown
from .files import Refused, Roots, wanted_root
from .report import Report
from .xml import Element, FileLimits, read_bytes, read_xml

# Sections and elements that are left out and listed.
LEFT_OUT = (
    *("extension", "plugin", "sensor", "custom", "skin", "flex", "flexcomp", "deformable"),
    "composite",
)
# Attributes of `compiler` that say where files are, and of `size` that say how much memory to take.
FOLDERS = ("assetdir", "meshdir", "texturedir", "strippath")
MEMORY = ("memory", "nstack", "njmax", "nconmax", "nuserdata", "nkey")
# Largest number of copies by `replicate` and of points of a height field.
MOST_COPIES, MOST_POINTS = 10_000, 10_000_000


class Prepared:
    """A file for MuJoCo's compiler: `text` and the `assets` that it names.

    root: outermost element; folder: of the file; roots: where other files may lie

    Raises: LoadError for files that are missing or outside of the roots, for includes in a circle,
        and for models too large.
    """

    def __init__(
        self, root: Element, folder: Path | None, roots: Roots, limits: FileLimits, report: Report
    ):
        self.folder, self.roots, self.limits, self.report = folder, roots, limits, report
        self.assets: dict[str, bytes] = {}
        self.count = 0
        self._include(root, [])
        self.meshdir = self.assetdir = ""
        for compiler in root.all("compiler"):
            self.assetdir = compiler.attributes.get("assetdir", self.assetdir)
            self.meshdir = compiler.attributes.get("meshdir", self.meshdir)
        self._clean(root, 1)
        self.source = root.source
        self.text = self._text(root)

    def _include(self, element: Element, chain: list[str]) -> None:
        """Put what an element includes in its place."""
        children = []
        for child in element.children:
            self.count += 1
            if self.count > self.limits.elements:
                raise child.error(f"there are more than {self.limits.elements} elements")
            if child.tag != "include":
                self._include(child, chain)
                children.append(child)
                continue
            name = child.text("file")
            path = self._find(child, name)
            if str(path) in chain:
                raise child.error(f"files include each other: {' -> '.join([*chain, str(path)])}")
            if len(chain) >= self.limits.depth:
                raise child.error(f"is nested deeper than {self.limits.depth} files")
            data = read_bytes(path, self.limits.size)
            inner = read_xml(data, path.name, self.limits, path.parent)
            self._include(inner, [*chain, str(path)])
            children += inner.children
        element.children = children

    def _clean(self, element: Element, copies: int) -> None:
        """Remove references to files, but for meshes, which become assets."""
        tag, attributes = element.tag, element.attributes
        if tag == "compiler":
            for name in FOLDERS:
                attributes.pop(name, None)
        elif tag == "size":
            for name in list(attributes):
                if name in MEMORY or name.startswith("nuser_"):
                    del attributes[name]
        elif tag == "texture":
            for name in list(attributes):
                if name.startswith("file") or name.startswith("grid"):
                    del attributes[name]
            attributes |= {"builtin": "flat", "width": "1", "height": "1"}
            if attributes.get("type") == "skybox":
                attributes["height"] = "6"
        elif tag == "model" or tag == "attach" and "file" in attributes:
            raise element.error("attached models are not read; write or include their elements")
        elif tag == "hfield":
            points = element.number("nrow", 0) * element.number("ncol", 0)
            if points > MOST_POINTS:
                raise element.error(f"has {points:g} points; at most {MOST_POINTS} are read")
        elif tag == "replicate":
            copies *= max(int(min(element.number("count", 1), 1e9)), 1)
            if copies > MOST_COPIES:
                raise element.error(f"makes {copies} copies; at most {MOST_COPIES} are made")
        if "file" in attributes:
            if tag not in ("mesh", "hfield"):
                raise element.error(f"file {shown(attributes['file'])} is not read for {tag}")
            self._give(element, self.meshdir or self.assetdir)
        kept = []
        for child in element.children:
            if child.tag in LEFT_OUT:
                self.report.skip(child.tag, child.line)
            else:
                self._clean(child, copies)
                kept.append(child)
        element.children = kept

    def _give(self, element: Element, folder: str) -> None:
        """Make the file of an element an asset, under a name of its own."""
        name = element.attributes["file"]
        path = self._find(element, name, folder)
        asset = f"asset{len(self.assets)}{path.suffix.lower()}"
        try:
            self.assets[asset] = read_bytes(path, self.limits.mesh)
        except LoadError as error:
            raise element.error(str(error)) from error
        # A mesh without a name is called after its file.
        if element.tag in ("mesh", "hfield"):
            element.attributes.setdefault("name", Path(name).stem)
        element.attributes["file"] = asset

    def _find(self, element: Element, name: str, folder: str = "") -> Path:
        """The file of an element: as MuJoCo finds it, in a folder of the model, or else beside the
        included file that the element stands in.

        folder: relative to that of the model
        """
        # MuJoCo takes both separators on all systems. What begins with "\\" is no relative path.
        plain = name if name.startswith("\\") else name.replace("\\", "/")
        places = [(f"{folder.rstrip('/')}/{plain}" if folder else plain, self.folder)]
        if not self.roots.folders:
            advice = wanted_root(places[0][0], self.folder)
            raise element.error(
                f"file {shown(name)}: roots= gives no folder to look for it; {advice}"
            )
        if element.folder not in (None, self.folder):
            places.append((plain, element.folder))
        problem = "there is no such file in the roots"
        for place, beside in places:
            try:
                path = self.roots.find(place, beside)
            except Refused as error:
                problem = str(error)
                continue
            if path is not None:
                return path
        raise element.error(f"file {shown(places[0][0])}: {problem}")

    def _text(self, root: Element) -> str:
        """The elements as XML, those of the main file on their lines."""
        parts: list[str] = []
        line = 1
        # Elements to open and, as strings, tags to close.
        waiting: list[Element | str] = [root]
        while waiting:
            item = waiting.pop()
            if isinstance(item, str):
                parts.append(f"</{item}>")
                continue
            if item.source == root.source and item.line > line:
                parts.append("\n" * (item.line - line))
                line = item.line
            attributes = "".join(
                f" {name}={_quoted(value)}" for name, value in item.attributes.items()
            )
            parts.append(f"<{item.tag}{attributes}>")
            waiting.append(item.tag)
            waiting += reversed(item.children)
        return "".join(parts)


def _quoted(value: str) -> str:
    return quoteattr(value, {"\n": " ", "\t": " ", "\r": " "})
