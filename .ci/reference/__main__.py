"""Builds the API reference from the docstrings: HTML pages that need no server.

python .ci/reference [FOLDER]      into reference/ unless told otherwise
"""

import argparse
import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# The door, its families, and where the bases stand that a user derives from.
MODULES = (
    "jaxjoints",
    "jaxjoints.couplings.functions",
    "jaxjoints.couplings.shapes",
    "jaxjoints.couplings.coupling",
    "jaxjoints.laws.constraints",
    "jaxjoints.laws.law",
    "jaxjoints.laws.fields",
    "jaxjoints.laws.transmissions",
    "jaxjoints.model.groups",
    "jaxjoints.solve.forces",
    "jaxjoints.solve.problem",
    "jaxjoints.schemes.scheme",
    "jaxjoints.tools.goals",
    "jaxjoints.viewing.plots",
    "jaxjoints.tools.joint_space",
)
# Returns, Raises, Source, Rows and the like; an argument has one letter or a small one in front.
LABEL = re.compile(r"[A-Z][a-z]+")
NAMES = r"\*{0,2}[^\W\d]\w*(?:, \*{0,2}[^\W\d]\w*)*"
DEFINITION = re.compile(rf"({NAMES}): +(.*)")
NEXT = re.compile(rf"; (?!(?:True|False|None): )(?={NAMES}: )")


def markdown(docstring: str) -> str:
    r"""A docstring as Markdown: lines "name: meaning" as a list, examples and equations as code.

    >>> print(markdown("A spring.\n\nstiffness: k [N/m]\n\n    f = k x"))
    A spring.
    <BLANKLINE>
    * **stiffness**: k [N/m]
    <BLANKLINE>
    ```text
    f = k x
    ```
    """
    summary, newline, rest = docstring.strip().partition("\n")
    blocks = [_block(block) for block in re.split(r"\n\s*\n", rest) if block.strip()]
    # The first line is prose, whatever it looks like; its paragraph goes on unless a line is left.
    return _escaped(summary) + newline * (2 if rest.startswith("\n") else 1) + "\n\n".join(blocks)


def groups(source: str) -> dict[str, str]:
    """Headings of the door's names: the first name below each comment in `__all__`."""
    body = re.search(r"^__all__ = \[\n(.*?)^\]", source, re.DOTALL | re.MULTILINE)[1]
    found, heading = {}, ""
    for line in map(str.strip, body.splitlines()):
        if line.startswith("#"):
            heading = f"{heading} {line[1:].strip()}".strip()
        elif heading:
            found[line.strip('",')] = heading[0].upper() + heading[1:]
            heading = ""
    return found


def build(folder: Path) -> None:
    """Write the pages into a folder."""
    import jax
    import pdoc
    from pdoc import render

    # Signatures name it as users do, and not by the file that it comes from.
    jax.Array.__module__, jax.Array.__qualname__ = "jax", "Array"
    render.configure(
        template_directory=HERE,
        show_source=False,
        footer_text="jaxjoints",
        include_undocumented=True,
    )
    render.env.filters["to_markdown"] = markdown
    door = (ROOT / "jaxjoints" / "__init__.py").read_text(encoding="utf-8")
    render.env.globals["groups"] = groups(door)
    pdoc.pdoc(*MODULES, output_directory=folder)


def _block(block: str) -> str:
    """One paragraph, equation or example."""
    lines = block.strip("\n").splitlines()
    if lines[0].startswith(">>>"):
        return "\n".join(["```python", *lines, "```"])
    if all(line.startswith("    ") for line in lines):
        return "\n".join(["```text", *(line[4:] for line in lines), "```"])
    prose, items = [], []
    for line in lines:
        match = DEFINITION.fullmatch(line)
        if match:
            items.append(line)
        elif items:
            items[-1] += " " + line.strip()
        else:
            prose.append(line)
    entries = [DEFINITION.fullmatch(entry) for item in items for entry in NEXT.split(item)]
    parts = _escaped("\n".join(prose)), "\n".join(_entry(*entry.groups()) for entry in entries)
    return "\n\n".join(filter(None, parts))


def _entry(names: str, meaning: str) -> str:
    """One line of a list; what a function returns stands as a paragraph."""
    if LABEL.fullmatch(names):
        return f"\n**{names}**: {_escaped(meaning)}\n"
    return f"* **{_escaped(names)}**: {_escaped(meaning)}"


def _escaped(text: str) -> str:
    """Prose whose stars and angle brackets are no Markdown; code spans stay."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [
        re.sub(r"(?m)(?<!^)\*|^\*(?! )", r"\\*", part).replace("<", "&lt;") for part in parts[::2]
    ]
    return "".join(parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build the API reference.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "reference")
    folder = parser.parse_args().folder
    build(folder)
    print(f"Open {folder / 'index.html'}")
