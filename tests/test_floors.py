"""The house: who may import whom, what the package exports, and how long a file may be."""

import ast
import importlib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "jaxjoints"
MOST_LINES = 420

# Low to high. A name is a file or a folder of jaxjoints/; the groups of a floor never meet.
FLOORS = [
    [{"pytree", "rotation", "spatial", "blocks", "parallel"}],
    [
        {"rows", "couplings", "laws", "engagement", "contact_laws", "drives"}
        | {"transmissions", "fields"},
        {"solve"},
    ],
    [{"joint_space", "configurations"}],
    [{"groups", "system", "kinematics", "external"}],
    [{"layout", "node_rows", "constraints", "stages"}],
    [{"builder", "contacts", "controls", "grouping", "joint_validation", "start", "validation"}],
    [{"integrate", "rattle", "runge_kutta", "guard", "readout"}],
    [{"simulate"}],
    [{"identify"}],
]
# Imports upwards inside a function, for a method where users look for it.
LAZY = {("system", "start"), ("system", "controls")}
PLACES = {
    name: (floor, group)
    for floor, groups in enumerate(FLOORS)
    for group, names in enumerate(groups)
    for name in names
}


def files():
    """Paths of the package by their dotted names within it; the door, __init__.py, is left out."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found.pop("", None)
    return found


FILES = files()
every_file = pytest.mark.parametrize("name", FILES)


def imports(name, path):
    """Dotted names within the package that a file imports, anywhere in it; "" is the door."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            paths = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ["jaxjoints", *package][: len(package) + 2 - node.level] if node.level else []
            base = above + (node.module.split(".") if node.module else [])
            # `from a import b` imports the file b of a if there is one, else a.
            inside = [[*base, alias.name] for alias in node.names]
            paths = [p if ".".join(p[1:]) in FILES else base for p in inside]
        else:
            continue
        found |= {".".join(p[1:]) for p in paths if p and p[0] == "jaxjoints"}
    return {other for other in found if (name, other) not in LAZY}


IMPORTS = {name: imports(name, path) for name, path in FILES.items()}


def place(name):
    """Floor and group of a file."""
    top = name.partition(".")[0]
    assert top in PLACES, (
        f"jaxjoints/{top} is on no floor: add it to FLOORS in tests/test_floors.py, on the lowest"
        " floor above everything it imports (a tool for users: the last floor)"
    )
    return PLACES[top]


@every_file
def test_a_file_imports_only_lower_floors_and_its_own_group(name):
    here = place(name)
    for other in IMPORTS[name]:
        assert other, f"{name} imports jaxjoints itself: import from the file that has the name"
        there = place(other)
        assert there == here or there[0] < here[0], f"{name} must not import {other}"


def test_no_file_imports_itself_through_others():
    try:
        TopologicalSorter(IMPORTS).prepare()
    except CycleError as error:
        pytest.fail(f"imports go in a circle: {' <- '.join(error.args[1])}")


@every_file
def test_a_file_is_one_noun(name):
    lines = len(FILES[name].read_text(encoding="utf-8").splitlines())
    assert lines <= MOST_LINES, (
        f"{FILES[name].name} has {lines} lines, more than {MOST_LINES}: is it still one noun?"
    )


def test_every_public_name_exists_once_and_says_what_it_is():
    package = importlib.import_module("jaxjoints")
    names = package.__all__
    assert sorted(set(names)) == sorted(names), "a public name is listed twice in __all__"
    for name in names:
        assert hasattr(package, name), f"__all__ names {name}, which does not exist"
        text = getattr(package, name).__doc__ or ""
        # A dataclass without a docstring is given its signature as one.
        assert text.strip() and not text.startswith(f"{name}("), f"{name} has no docstring"
