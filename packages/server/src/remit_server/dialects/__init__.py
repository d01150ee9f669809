"""Pure translations between the envelopes of other systems and ours."""

from importlib import import_module

from remit_server.dialects.exchange import Dialect

# Each is a module of this package with a `DIALECT`; it is imported when it is used.
NAMES = ("employee", "librarian", "contract", "subagent")


def find(name: str) -> Dialect:
    """Return the dialect with this name; raises a `LookupError` that names the known ones."""
    if name not in NAMES:
        raise LookupError(f"unknown dialect {name!r}; known dialects: {', '.join(NAMES)}")
    return import_module(f"remit_server.dialects.{name}").DIALECT
