"""What installed plugins bring to the core.

A plugin is a module that an entry point in the group `remit.plugins` names. It brings what the core has a name for as a
function of that name:

- `text_reader()` returns a `TextReader`; see `runtime/ports/texts.py`.
- `stores()` returns functions that make stores, by the schemes of their addresses; see `stores/addresses.py`.
"""

from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import Any

GROUP = "remit.plugins"


@cache
def brought(name: str) -> tuple[Callable[..., Any], ...]:
    """Return the functions of that name, in the order of their plugins' names; plugins are loaded when first asked."""
    plugins = (entry.load() for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name))
    return tuple(getattr(plugin, name) for plugin in plugins if hasattr(plugin, name))
