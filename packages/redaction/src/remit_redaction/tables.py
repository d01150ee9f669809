"""Reads the tables and lists of words of the detectors, which are text files beside this module."""

from functools import cache
from pathlib import Path


def table(name: str) -> list[list[str]]:
    """Return the rows of a table, whose columns are separated by tabs; lines that begin with `#` are comments."""
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]


def words(section: str) -> tuple[str, ...]:
    """Return the words of a section of `words.txt`."""
    return _sections()[section]


@cache
def _sections() -> dict[str, tuple[str, ...]]:
    sections: dict[str, tuple[str, ...]] = {}
    section = ""
    for (line,) in table("words.txt"):
        if line.startswith("["):
            section = line[1:-1]
        else:
            sections[section] = (*sections.get(section, ()), *line.split("|"))
    return sections
