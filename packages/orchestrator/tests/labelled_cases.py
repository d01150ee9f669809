"""Reads the tables of `cases/`: what tests give to the readers of texts, and what has to come of it."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _tables(name: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "cases" / f"{name}.toml").read_text(encoding="utf-8"))


def cases(file: str, table: str) -> list[Any]:
    """Return the rows of a table."""
    return _tables(file)[table]
