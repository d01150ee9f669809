"""Pure translations between foreign envelopes and ours."""

from importlib import import_module

from remit.dialects.exchange import Dialect

# Each is a module of this package that holds its `DIALECT`; it is imported when someone speaks it.
NAMES = ("employee", "librarian", "contract", "subagent")


def find(name: str) -> Dialect:
    """Return the dialect of that name; raises a `LookupError` that names those that there are."""
    if name not in NAMES:
        raise LookupError(f"unknown dialect {name!r}; known dialects: {', '.join(NAMES)}")
    return import_module(f"remit.dialects.{name}").DIALECT
