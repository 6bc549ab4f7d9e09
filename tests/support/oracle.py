"""Recordings of other engines, kept in tests/data (see its README)."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data"


@cache
def load(name: str) -> dict[str, dict[str, Any]]:
    """The cases of tests/data/`name`.json.gz by their names; shared, so not to be changed."""
    with gzip.open(DATA / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        return {case["name"]: case for case in json.load(file)["cases"]}
