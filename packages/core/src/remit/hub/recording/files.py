"""The file of a recording: JSON lines that can be read, compared and committed."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from remit.hub.recording.comparing import ExchangeKind
from remit.policy.redaction import TOKEN, kind_of
from remit.protocol.codec import encode
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.lifecycle import Status

VERSION = 1


class RecordingHead(Struct, frozen=True, kw_only=True, tag_field="line", tag="recording"):
    """The first line: which version of the format it has, and which hub and version of Remit wrote it."""

    version: int = VERSION
    remit: str
    team: str


class RecordedRun(Struct, frozen=True, kw_only=True, tag_field="line", tag="run", omit_defaults=True):
    """A run that began: what its user asked."""

    run: int
    agent: str
    objective: str
    input: Json = None
    capability: str | None = None
    files: Json = None
    continues: int = 0
    """The run whose session it continues; 0: none of this recording."""
    tokens: int
    cost: int | None = None


class RecordedReply(Struct, frozen=True, kw_only=True, tag_field="line", tag="reply", omit_defaults=True):
    """What an agent asked somebody outside of its code, and what it got."""

    run: int
    agent: str
    at: str = ""
    """The path of its delegation in the run; empty for the first."""
    kind: ExchangeKind
    call: int
    """Its number among the calls of its kind in its delegation."""
    name: str = ""
    """Who was asked: a host, a tool, an agent."""
    request: Json
    reply: Json


class RecordedAnswer(Struct, frozen=True, kw_only=True, tag_field="line", tag="answer", omit_defaults=True):
    """The answer of a run."""

    run: int
    status: Status
    result: Json = None
    code: Code | None = None


RecordedLine = RecordedRun | RecordedReply | RecordedAnswer

_any_line = msgspec.json.Decoder(RecordingHead | RecordedLine)


class RecordingFile(Struct, frozen=True, kw_only=True):
    """A recording: its head, its runs, and the replies that they got, in the order of their arrival."""

    head: RecordingHead
    runs: tuple[RecordedRun, ...]
    replies: tuple[RecordedReply, ...]
    answers: dict[int, RecordedAnswer]


# The letters of placeholders, as in `policy/redaction.py`.
_LETTERS = "bcdfghjklmnpqrstvwxz"


def _placeholder(kind: str, number: int) -> str:
    letters = ""
    for _ in range(12):
        number, place = divmod(number, len(_LETTERS))
        letters = _LETTERS[place] + letters
    return f"[{kind}:{letters}]"


def write_recording(path: Path, head: RecordingHead, lines: Iterable[RecordedLine]) -> None:
    """Write a recording, whole or not at all; placeholders are numbered by their first appearance."""
    numbers: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        return numbers.setdefault(match[0], _placeholder(kind_of(match[0]), len(numbers)))

    text = "\n".join(encode(line).decode() for line in (head, *lines)) + "\n"
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(TOKEN.sub(numbered, text), encoding="utf-8", newline="\n")
        draft.replace(path)
    except OSError as error:
        why = f"the recording {path} cannot be written: {error.strerror}"
        raise RemitError(fault(Code.STORE_UNAVAILABLE, why, suggestion="Name another file.")) from error


def read_recording(path: Path) -> RecordingFile:
    """Return the recording in a file, or raise a `RemitError` that names the invalid line."""
    try:
        rows = path.read_bytes().splitlines()
    except OSError as error:
        again = "Record it: `remit run AGENT TASK --record FILE`."
        raise _invalid(f"the recording {path} cannot be read: {error.strerror}", again) from error
    lines: list[RecordingHead | RecordedLine] = []
    for number, row in enumerate(rows, 1):
        try:
            lines.append(_any_line.decode(row))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _invalid(f"{path.name}:{number} is not a line of a recording: {error}") from error
    head, *others = lines or [None]
    if not isinstance(head, RecordingHead) or head.version != VERSION:
        raise _invalid(f"{path} is not a recording of version {VERSION}")
    return RecordingFile(
        head=head,
        runs=tuple(each for each in others if isinstance(each, RecordedRun)),
        replies=tuple(each for each in others if isinstance(each, RecordedReply)),
        answers={each.run: each for each in others if isinstance(each, RecordedAnswer)},
    )


def _invalid(message: str, suggestion: str = "Record it again.") -> RemitError:
    return RemitError(fault(Code.INPUT_VALIDATION_FAILED, message, suggestion=suggestion))


NewCalls = Literal["refuse", "ask"]
"""What a replay does with a call that is not in its recording."""
