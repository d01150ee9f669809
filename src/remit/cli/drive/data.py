"""Keeps stdout for data: output of agents goes to stderr, and terminal control codes are removed."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from typing import IO

from remit.protocol.codec import encode
from remit.protocol.envelope import Json
from remit.text.terminal import json_for_terminal, several_lines


class Data:
    """Where the data of a command goes."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self.is_terminal = out.isatty()

    def document(self, document: object) -> None:
        """Write a JSON document on a line of its own, at once."""
        text = encode(document).decode()
        self._write(json_for_terminal(text) if self.is_terminal else text)

    def answer(self, result: Json) -> None:
        """Write an answer: text unchanged, anything else as JSON."""
        if result is None:
            return
        if isinstance(result, str):
            self._write(several_lines(result) if self.is_terminal else result)
        elif self.is_terminal:
            import msgspec

            self._write(json_for_terminal(msgspec.json.format(encode(result), indent=2).decode()))
        else:
            self._write(encode(result).decode())

    def piece(self, text: str) -> None:
        """Write a part of a streamed answer; the caller has removed control codes."""
        self._out.write(text)
        self._out.flush()

    def line(self, text: str) -> None:
        """Write one line of text."""
        self._write(text)

    def _write(self, text: str) -> None:
        self._out.write(text if text.endswith("\n") else text + "\n")
        self._out.flush()


@contextmanager
def data_only() -> Generator[Data]:
    """Yield a writer to stdout; redirect everything else that is printed to stderr."""
    ours = sys.stdout
    try:
        is_real = ours.fileno() == 1
    except (OSError, ValueError):
        is_real = False
    if not is_real:
        with redirect_stdout(sys.stderr):
            yield Data(ours)
        return
    # Child processes inherit the file descriptor, not Python's stream, so redirect the descriptor.
    ours.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with open(kept, "w", encoding=ours.encoding, errors=ours.errors, closefd=False) as out:
            yield Data(out)
    finally:
        ours.flush()
        os.dup2(kept, 1)
        os.close(kept)
