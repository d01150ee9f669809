"""What is installed of Remit and its plugins, and how to install the rest."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

GROUP = "remit.plugins"
"""The group of the entry points of plugins."""


@cache
def brought(hook: str) -> tuple[Callable[..., Any], ...]:
    """Return the functions for a hook, in the order of their plugins' names; plugins are loaded when first asked."""
    plugins = (import_module(module) for _, module in sorted(installed_plugins()))
    return tuple(getattr(plugin, hook) for plugin in plugins if hasattr(plugin, hook))


def brought_under(hook: str, key: str) -> Iterator[Any]:
    """Yield what plugins bring for a hook under a key, such as an extension by the name of its command."""
    for bring in brought(hook):
        if key in (brings := bring()):
            yield brings[key]


def installed_plugins() -> Iterator[tuple[str, str]]:
    """Yield the names and modules of the installed plugins.

    `importlib.metadata` finds the same, and takes half as long to load as `remit --help` takes in all.
    """
    packages = set[str]()
    for folder in sys.path:
        described = _described_in(folder)
        # Of a package that is installed twice, Python imports the first.
        for package in described.keys() - packages:
            yield from described[package]
        packages.update(described)


@cache
def _described_in(folder: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return the packages that a folder describes, each with the names and modules of its plugins."""
    with suppress(OSError), os.scandir(folder or ".") as files:
        return {name: tuple(_entries(each.path)) for each in files if (name := _package(each.name))}
    return {}


def _package(name: str) -> str:
    """Return the package that a folder describes; empty if it describes none."""
    return name.partition("-")[0].lower() if name.endswith((".dist-info", ".egg-info")) else ""


def _entries(path: str) -> Iterator[tuple[str, str]]:
    with suppress(OSError), open(f"{path}/entry_points.txt", encoding="utf-8") as file:
        _, _, section = file.read().partition(f"[{GROUP}]\n")
        for line in section.partition("\n[")[0].splitlines():
            name, equals, module = line.partition("=")
            if equals:
                yield name.strip(), module.strip()


def install_command(extra: str | None = None) -> str:
    """Return the command that installs Remit here, with an extra: from the checkout it came from, else by its name."""
    return as_installed("pip install '.'" if extra is None else f"pip install '.[{extra}]'")


def as_installed(text: str) -> str:
    """Return a text in which each `pip install '.[EXTRA]'` works in any folder."""
    from importlib.metadata import PackageNotFoundError, distribution  # few processes say what is missing
    from json import loads
    from urllib.parse import unquote, urlsplit

    origin = "remit"
    with suppress(PackageNotFoundError):
        # pip notes where a package came from, unless that was an index (PEP 610).
        record = loads(distribution("remit-core").read_text("direct_url.json") or "{}")
        if "dir_info" in record:
            folder: str = urlsplit(str(record["url"])).path
            origin = str(Path(unquote(folder)).parents[1])
    return text.replace("pip install '.", f"pip install '{origin}")


def named(address: str) -> Any:
    """Return what an address, `"module:name"`, names."""
    module, _, name = address.partition(":")
    return getattr(import_module(module), name)
