"""The house: who may import whom, and what the package exports."""

import ast
import importlib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "jaxjoints"

# For each folder of jaxjoints/ the folders that it imports.
IMPORTS_OF_FOLDERS = {
    "algebra": set(),
    "couplings": {"algebra"},
    "solve": {"algebra"},
    "laws": {"algebra", "couplings", "solve"},
    "model": {"algebra", "couplings", "laws"},
    "assembly": {"algebra", "couplings", "laws", "solve", "model"},
    "build": {"algebra", "couplings", "laws", "solve", "model", "assembly"},
    "schemes": {"algebra", "couplings", "laws", "solve", "model", "assembly"},
    "simulate": {"algebra", "couplings", "laws", "model", "assembly", "build", "schemes"},
    "models": {"algebra", "assembly", "build", "couplings", "laws", "model"},
    "dynamics": {
        *("algebra", "assembly", "build", "laws", "model", "schemes", "simulate", "solve"),
    },
    "tools": {
        *("algebra", "assembly", "build", "couplings", "laws", "model", "schemes", "simulate"),
        "solve",
    },
    "identification": {
        *("algebra", "build", "model", "schemes", "simulate"),
    },
    "optimization": {
        *("algebra", "dynamics", "model", "schemes", "simulate"),
    },
    "environments": {
        *("algebra", "build", "couplings", "laws", "model", "models", "schemes", "simulate"),
    },
    "learning": {"algebra", "environments", "simulate"},
    "cli": {
        *("algebra", "build", "couplings", "model", "models", "schemes", "simulate", "tools"),
        "viewing",
    },
    "viewing": {
        *("algebra", "build", "couplings", "model", "models", "optimization", "schemes"),
        "simulate",
    },
}
# What may stand in the package's root.
PAGES = {
    *("README.md", "CHANGELOG.md", "EXTENDING.md", "FOOT.md", "GLOSSARY.md", "NAMES.md", "STEP.md"),
    *("NOTES.md", "TRANSFORMS.md"),
    "architecture.svg",
}
ROOT_FILES = {"__init__.py", "__main__.py", "py.typed"} | PAGES


def files():
    """Paths of the package by their dotted names within it; the door, __init__.py, is left out."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found.pop("", None)
    return found


FILES = files()


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
    return found


@cache
def all_imports():
    """What each file imports; to parse them all takes a second."""
    return {name: imports(name, path) for name, path in FILES.items()}


def folder(name):
    """The folder of a dotted name."""
    return name.partition(".")[0]


@pytest.mark.parametrize("room", IMPORTS_OF_FOLDERS)
def test_a_folder_imports_exactly_the_folders_of_the_table(room):
    inside = [other for name in FILES if folder(name) == room for other in all_imports()[name]]
    assert "" not in inside, f"a file of {room} imports jaxjoints itself, not the file it needs"
    assert {folder(other) for other in inside} - {room} == IMPORTS_OF_FOLDERS[room]


def test_every_folder_is_in_the_table_and_says_what_it_is_for():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders == set(IMPORTS_OF_FOLDERS)


def test_only_the_door_stands_in_the_root():
    there = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert there == ROOT_FILES


def test_folders_form_no_circle():
    try:
        TopologicalSorter(IMPORTS_OF_FOLDERS).prepare()
    except CycleError as error:
        pytest.fail(f"folders import each other: {' <- '.join(error.args[1])}")


def test_no_file_imports_itself_through_others():
    try:
        TopologicalSorter(all_imports()).prepare()
    except CycleError as error:
        pytest.fail(f"imports go in a circle: {' <- '.join(error.args[1])}")


def test_every_public_name_exists_once_and_says_what_it_is():
    package = importlib.import_module("jaxjoints")
    names = package.__all__
    assert sorted(set(names)) == sorted(names), "a public name is listed twice in __all__"
    for name in names:
        assert hasattr(package, name), f"__all__ names {name}, which does not exist"
        text = getattr(package, name).__doc__ or ""
        # A dataclass without a docstring is given its signature as one.
        assert text.strip() and not text.startswith(f"{name}("), f"{name} has no docstring"
