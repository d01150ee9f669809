"""Remembers how MCP servers described their tools when these were first used, so that a change is noticed.

A server that behaves until it is trusted, and then gives its tools another meaning (a rug pull), is held up by this.
"""

import contextlib
import os
import tempfile
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from remit.protocol.card import ToolCard
from remit.protocol.errors import Code, RemitError, fault

FILE = "mcp-tools.json"


class Pin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool as somebody accepted it."""

    digest: str
    description: str
    """What it said then, for whoever compares."""


_Pins = dict[str, dict[str, Pin]]


def pin_of(card: ToolCard) -> Pin:
    """Return a tool as models are told of it."""
    description = msgspec.json.encode([card.description, card.input_schema], order="sorted")
    return Pin(digest=sha256(description).hexdigest(), description=card.description)


class ToolPins:
    """The accepted tools of all servers, in a file; without one, as long as the process lives."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._known: _Pins = {}

    @property
    def is_kept(self) -> bool:
        return self._file is not None

    def pins_of(self, server: str) -> dict[str, Pin]:
        """Return the accepted tools of a server, by name; raise a `RemitError` if the file cannot be read."""
        self._read_pins()
        return dict(self._known.get(server, {}))

    def accept(self, server: str, tools: dict[str, Pin]) -> None:
        """Accept tools as they are now; raise a `RemitError` if that cannot be written.

        They are accepted then, too, as long as the process lives.
        """
        self._read_pins()
        # Another process may write at the same moment: at worst a tool counts as new once more.
        self._known = {**self._known, server: {**self._known.get(server, {}), **tools}}
        if self._file is None:
            return
        try:
            self._write(self._file, msgspec.json.format(msgspec.json.encode(self._known, order="sorted"), indent=2))
        except OSError as error:
            why = f"{self._file} cannot be written: {error.strerror}"
            self._file = None
            raise RemitError(fault(Code.STORE_UNAVAILABLE, why)) from error

    def _read_pins(self) -> None:
        if self._file is None:
            return
        try:
            self._known = msgspec.json.decode(self._file.read_bytes(), type=_Pins)
        except (FileNotFoundError, NotADirectoryError):
            self._known = {}
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            # Not taken for empty: then every changed tool would be new.
            why = f"{self._file} cannot be read, so that changed tools of MCP servers cannot be told from known ones"
            how = "Repair it, or delete it to accept all tools as they are now."
            raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=how)) from error

    @staticmethod
    def _write(file: Path, content: bytes) -> None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
        try:
            with os.fdopen(number, "wb") as new:
                new.write(content)
            os.replace(name, file)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
