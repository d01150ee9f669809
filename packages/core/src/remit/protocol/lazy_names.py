"""Names of a package that are imported when they are first used (PEP 562)."""

import gc
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType


def lazy_names(package: str, homes: Mapping[str, Iterable[str]]) -> Callable[[str], object]:
    """Return the `__getattr__` of *package*: it imports the module in *homes* that a name is from, and keeps the value.

    Type checkers see the names in the package's `.pyi` file, or below `if TYPE_CHECKING`.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def load(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(_imported(home[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load


def _imported(module: str) -> ModuleType:
    """Import without collecting garbage: what modules define stays, and searching it takes a tenth of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        if collects:
            gc.enable()
