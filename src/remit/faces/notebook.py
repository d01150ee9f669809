"""The record of a device's runs with shared agents: a line of JSON for each step, and not a word of what was said."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from remit.policy.verdict import Detector
from remit.relay.host import Noted

NOTES_FILE = "shared-runs.jsonl"

_log = logging.getLogger("remit.relay")


class Notebook:
    """Writes down what a host notes; what is personal or secret in a reason for a failure is struck out (S13)."""

    def __init__(self, path: Path, *, detect: Detector, now_ms: Callable[[], int]) -> None:
        self._path = path
        self._detect = detect
        self._now_ms = now_ms

    def write(self, noted: Noted) -> None:
        """Append one entry; a run does not fail because it cannot be written, but its log says so."""
        entry = {"at_ms": self._now_ms(), **asdict(noted), "failure": struck(noted.failure, self._detect)}
        try:
            # One write at the end of the file: lines of two processes do not run into each other.
            number = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(number, msgspec.json.encode(entry) + b"\n")
            finally:
                os.close(number)
        except OSError as error:
            _log.error("%s cannot be written: %s", self._path, error.strerror)


def struck(text: str, detect: Detector) -> str:
    """Return a text with the kind of everything that was found in it, in place of what was found."""
    parts: list[str] = []
    end = 0
    for found in detect(text):
        parts += [text[end : found.start], f"[{found.kind}]"]
        end = found.end
    return "".join([*parts, text[end:]])
