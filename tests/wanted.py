"""Prints what `remit` with some extras asks for of others: `python wanted.py EXTRA…`, for the locks."""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from checkout import ROOT


def wanted(extras: Iterable[str]) -> list[str]:
    """Return the requirements of the packages that `remit` brings with these extras, without those on each other."""
    settings = _settings(ROOT)["tool"]["remit"]
    names = [*settings["packages"], *(name for extra in extras for name in settings["extras"][extra])]
    return sorted({each for name in names for each in _required_by(name) if not each.startswith("remit-")})


def _required_by(name: str) -> Iterator[str]:
    """Yield what a package asks for, such as `relay[acp]`."""
    folder, *extras = re.findall(r"[\w-]+", name)
    project = _settings(ROOT / "packages" / folder)["project"]
    yield from project["dependencies"]
    for extra in extras:
        yield from project["optional-dependencies"][extra]


def _settings(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.stdout.writelines(f"{each}\n" for each in wanted(sys.argv[1:]))
