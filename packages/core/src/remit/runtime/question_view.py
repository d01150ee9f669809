"""What a person is shown of a question: in the console, a terminal, a chat or a mail, the same everywhere.

Everything that the callee would get stands in it, or is named with its size and digest. Characters that cannot be seen,
or look like others, are written out.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import cast

import msgspec
from msgspec import Struct

from remit.ports import Question
from remit.protocol.codec import encode
from remit.protocol.envelope import USER, Json, Request
from remit.protocol.files import File
from remit.protocol.forms import form_lines
from remit.words.terminal import marked

# A longer text in a sentence, and a longer file, is cut; the part or the file itself has all of it, or its digest.
_MOST_WORDS = 120
_MOST_PREVIEW = 4_000

ALSO_SENT = "also sent"
"""The title of the part with all that has no part of its own: the remit, ids, times."""

# What is shown for itself, and what says nothing about the act.
_FIRST = ("objective", "input", "capability", "reason", "handoff", "hints", "view", "context")
_APART = frozenset({*_FIRST, "files", "version", "approved"})


class ShownPart(Struct, frozen=True, kw_only=True):
    """A part of the request, as a person reads it."""

    title: str
    """What it is: `objective`, `input`, `handoff`."""
    text: str
    """The whole of it; a value as JSON."""


class ShownFile(Struct, frozen=True, kw_only=True):
    """A file of the request."""

    name: str
    media_type: str
    size: int
    """Its bytes; 0 for a URL."""
    digest: str
    """The SHA-256 of its content; empty for a URL."""
    url: str
    preview: str
    """Its text, or the first part of it; empty if it is no text."""
    is_whole: bool
    """Whether the preview is all of it."""


class ShownQuestion(Struct, frozen=True, kw_only=True):
    """What a person is shown of a question."""

    sentence: str
    """Who wants what from whom."""
    parts: tuple[ShownPart, ...]
    """What would be sent."""
    files: tuple[ShownFile, ...]
    """The files that would be sent."""

    def text(self) -> str:
        """Return all of it as lines, for a chat or a mail."""
        lines = [self.sentence, *(f"{each.title}: {each.text}" for each in self.parts)]
        return "\n".join([*lines, *map(described_file, self.files)])


def view_of(question: Question) -> ShownQuestion:
    """Return what a person is shown of a question."""
    request = question.request
    return ShownQuestion(
        sentence=marked(_sentence(question)),
        parts=tuple(ShownPart(title=title, text=marked(text)) for title, text in _parts(request, question)),
        files=tuple(map(_file, request.files)),
    )


def described_file(file: ShownFile) -> str:
    """Return a file as lines of text."""
    where = file.url or f"{file.size:,} bytes, SHA-256 {file.digest}"
    cut = "" if file.is_whole or not file.preview else "\n  …"
    preview = f":\n  {file.preview}{cut}".replace("\n", "\n  ") if file.preview else ""
    return f"file {file.name} ({file.media_type}, {where}){preview}"


def _sentence(question: Question) -> str:
    request = question.request
    if question.form is not None:
        return f"{request.target} asks for a form to be filled in"
    who = "The user" if request.origin == USER else request.origin
    if request.act == "tool":
        return f"{who} wants to use {request.target}{_arguments(' with ', request.input)}"
    if request.act == "answer":
        whom = "the user" if request.target == USER else request.target
        return f"{who} answers {whom}{_arguments(': ', request.input)}"
    task = f"{who} asks {request.target}"
    if objective := " ".join(request.objective.split()):
        task += f": {_shortened(objective)}"
    with_files = f", and {', '.join(each.name for each in request.files)}" if request.files else ""
    return f"{task}{'' if request.input == request.objective else _arguments(', with ', request.input)}{with_files}"


def _arguments(before: str, value: Json) -> str:
    if value in (None, "", {}, []):
        return ""
    if not isinstance(value, dict):
        return before + _shortened(encode(value).decode())
    fields = cast("dict[str, Json]", value)
    return before + _shortened(", ".join(f"{name} = {encode(each).decode()}" for name, each in fields.items()))


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_WORDS else f"{text[:_MOST_WORDS]}…"


def _parts(request: Request, question: Question) -> Iterator[tuple[str, str]]:
    sent = msgspec.to_builtins(request)
    for name in _FIRST:
        if name in sent:
            yield name, _readable(sent[name])
    if question.form is not None:
        yield "form", "\n".join(form_lines(question.form))
    yield ALSO_SENT, _readable({name: value for name, value in sent.items() if name not in _APART})


def _readable(value: Json) -> str:
    """Return a text as it is, and any other value as JSON on several lines."""
    return value if isinstance(value, str) else msgspec.json.format(encode(value), indent=2).decode()


def _file(file: File) -> ShownFile:
    text = file.text
    return ShownFile(
        name=marked(file.name),
        media_type=marked(file.media_type),
        size=file.size,
        digest="" if file.data is None else sha256(file.data).hexdigest(),
        url=marked(file.url or ""),
        preview="" if text is None else marked(text[:_MOST_PREVIEW]),
        is_whole=text is not None and len(text) <= _MOST_PREVIEW,
    )
