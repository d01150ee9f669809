"""Content: A2A parts, and the texts and values that they stand for."""

import base64
from collections.abc import Collection, Iterable
from typing import Literal, cast

import msgspec
from msgspec import UNSET, Struct

from remit.protocol import envelope
from remit.protocol.codec import text_of
from remit.protocol.envelope import Json
from remit.protocol.files import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_URL,
    File,
    fitting,
    is_file_url,
    safe_name,
    safe_type,
)
from remit.protocol.remit import MAX_INTEGER
from remit_server.dialects.a2a.errors import Declined, Error
from remit_server.dialects.a2a.types import JSON, TEXT, A2aArtifact, A2aMessage, A2aPart

# Separates the texts of several parts.
BREAK = "\n\n"


# ── content of a client ───────────────────────────────────────────────────────────────────────────────────────────────


class ClientContent(Struct, frozen=True):
    """What a client sends in the parts of a message."""

    texts: list[str]
    values: list[Json]
    files: list[File]


def content_of(parts: Iterable[A2aPart], file_parts: int | None = None) -> ClientContent:
    """Return the texts, values and files that a client sends.

    Raw content that is text or JSON is read as such, and other content is a file. A URL is a file, too: a reference
    that is passed on, because nothing is ever fetched for a client. With *file_parts*, exactly so many parts at the end
    are files, whatever they hold.
    """
    texts: list[str] = []
    values: list[Json] = []
    files: list[File] = []
    parts = tuple(parts)
    named = len(parts) if file_parts is None else len(parts) - file_parts
    for number, part in enumerate(parts):
        kind = _kind(part, number)
        media = safe_type(part.media_type).lower()
        if kind == "url" or (kind == "raw" and number >= named):
            files.append(_file(part, number))
        elif kind == "data":
            values.append(whole(part.data))
        elif kind == "text" or media.startswith("text/"):
            texts.append(part.text if part.text is not None else _unpacked(part, number).decode(errors="replace"))
        elif media == JSON or media.endswith("+json"):
            values.append(_parse_json(_unpacked(part, number), number))
        else:
            files.append(_file(part, number))
    if len(files) > MAX_FILES:
        raise _wrong("message.parts", f"has {len(files)} files; at most {MAX_FILES} are accepted")
    return ClientContent(texts, values, files)


def _file(part: A2aPart, number: int) -> File:
    name, media_type = safe_name(part.filename, f"file-{number}"), safe_type(part.media_type)
    if part.url is not None:
        if not is_file_url(part.url):
            raise _wrong(f"message.parts[{number}].url", f"is not a URL of at most {MAX_URL} characters")
        return File(name=name, media_type=media_type, url=part.url)
    data = _unpacked(part, number)
    if len(data) > MAX_FILE_BYTES:
        raise _wrong(f"message.parts[{number}].raw", f"has {len(data)} bytes; a file has at most {MAX_FILE_BYTES}")
    return File(name=name, media_type=media_type, data=data)


def _wrong(field: str, why: str) -> Declined:
    return Declined(Error.INVALID_PARAMS, f"{field} {why}", fields={field: why})


def _kind(part: A2aPart, number: int) -> Literal["text", "raw", "url", "data"]:
    kinds: list[Literal["text", "raw", "url", "data"]] = []
    if part.text is not None:
        kinds.append("text")
    if part.raw is not None:
        kinds.append("raw")
    if part.url is not None:
        kinds.append("url")
    if part.data is not UNSET and not (part.data is None and kinds):
        kinds.append("data")
    if len(kinds) != 1:
        what = "nothing" if not kinds else " and ".join(kinds)
        why = f"part {number} holds {what}; a part is one of text, raw, url and data"
        raise Declined(Error.INVALID_PARAMS, why, fields={f"message.parts[{number}]": why})
    return kinds[0]


def _unpacked(part: A2aPart, number: int) -> bytes:
    try:
        return _decoded(part.raw or "")
    except ValueError as error:
        field = f"message.parts[{number}].raw"
        raise _wrong(field, "is not base64") from error


def _decoded(packed: str) -> bytes:
    """Return the bytes of base64, or raise a `ValueError`."""
    # Both alphabets are accepted, with or without padding, as ProtoJSON requires.
    packed = packed.replace("-", "+").replace("_", "/").rstrip("=")
    return base64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)


def _parse_json(raw: bytes, number: int) -> Json:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        field = f"message.parts[{number}].raw"
        raise _wrong(field, "is not JSON") from error


def _unsupported(why: str) -> Declined:
    return Declined(Error.CONTENT_TYPE_NOT_SUPPORTED, why)


def whole(value: Json) -> Json:
    """Return a value in which whole numbers are integers: protobuf peers send only doubles."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= MAX_INTEGER else value
    # Most values are neither: a call for each would block the event loop for tens of thousands.
    if isinstance(value, list):
        return [whole(each) if type(each) in _PERHAPS_FRACTIONS else each for each in cast("list[Json]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, Json]", value)
        return {name: whole(each) if type(each) in _PERHAPS_FRACTIONS else each for name, each in fields.items()}
    return value


_PERHAPS_FRACTIONS = frozenset({float, list, dict})


# ── content of an agent ───────────────────────────────────────────────────────────────────────────────────────────────


class AcceptedContent:
    """The media types that a client accepts."""

    def __init__(self, modes: Collection[str] = ()) -> None:
        wanted = {mode.partition(";")[0].strip().lower() for mode in modes}
        self._wanted = wanted
        self._everything = everything = not wanted or "*/*" in wanted
        self.text = everything or bool(wanted & {TEXT, "text/*"})
        self.data = everything or bool(wanted & {JSON, "application/*"})
        if not self.text and not self.data:
            shown = ", ".join(sorted(wanted))[:200]
            raise _unsupported(f"none of {shown} is supported; supported: {TEXT} and {JSON}")

    def file(self, media_type: str) -> bool:
        """Return whether the client accepts files of a media type."""
        media_type = media_type.lower()
        return self._everything or bool(self._wanted & {media_type, f"{media_type.partition('/')[0]}/*"})


ANY = AcceptedContent()


def part_of(value: Json, taste: AcceptedContent = ANY) -> A2aPart:
    """Return a value as a part: a text as text, everything else as data, unless the client accepts only the other."""
    if isinstance(value, str):
        return A2aPart(text=value, media_type=TEXT) if taste.text else A2aPart(data=value, media_type=JSON)
    return A2aPart(data=value, media_type=JSON) if taste.data else A2aPart(text=text_of(value), media_type=TEXT)


def artifact_of(given: envelope.Artifact, number: int, taste: AcceptedContent) -> A2aArtifact:
    """Return an artifact of an answer as an A2A artifact."""
    if given.type == "url" and isinstance(given.value, str):
        part = A2aPart(url=given.value)
    else:
        part = (_raw_part(given.value) if given.type == "file" else None) or part_of(given.value, taste)
    return A2aArtifact(artifact_id=f"artifact-{number}", name=given.label, parts=(part,))


def _raw_part(value: Json) -> A2aPart | None:
    """Return the part of an artifact that is a file: `{"raw": …, "mediaType": …, "filename": …}`."""
    try:
        part = msgspec.convert(value, A2aPart)
        return part if part.raw is not None and _kind(part, 0) == "raw" else None
    except (msgspec.ValidationError, Declined):
        return None


def file_part(file: File) -> A2aPart:
    """Return a file as a part."""
    if file.data is None:
        return A2aPart(url=file.url, filename=file.name, media_type=file.media_type)
    return A2aPart(raw=base64.b64encode(file.data).decode(), filename=file.name, media_type=file.media_type)


def file_artifacts(files: Iterable[File], taste: AcceptedContent) -> list[A2aArtifact]:
    """Return the files of an answer as artifacts, without those that the client does not accept."""
    return [
        A2aArtifact(artifact_id=f"file-{number}", name=file.name, parts=(file_part(file),))
        for number, file in enumerate(files, start=1)
        if taste.file(file.media_type)
    ]


# ── content of a peer ─────────────────────────────────────────────────────────────────────────────────────────────────


def merged(old: tuple[A2aPart, ...], new: tuple[A2aPart, ...]) -> tuple[A2aPart, ...]:
    """Return parts with more appended: a text is continued by the next one."""
    parts = list(old)
    for part in new:
        last = parts[-1] if parts else None
        if last is not None and last.text is not None and part.text is not None:
            parts[-1] = msgspec.structs.replace(last, text=last.text + part.text)
        else:
            parts.append(part)
    return tuple(parts)


class PeerContent(Struct, frozen=True, kw_only=True):
    """What a peer sends in the artifacts of a task."""

    result: Json = None
    artifacts: tuple[envelope.Artifact, ...] = ()
    files: tuple[File, ...] = ()
    warnings: tuple[str, ...] = ()


def result_of(artifacts: Collection[A2aArtifact]) -> PeerContent:
    """Return a peer's artifacts: the first is the result, and what does not fit in it is an artifact or a file."""
    if not artifacts:
        return PeerContent()
    first, *others = artifacts
    texts = [part.text for part in first.parts if part.text is not None]
    values = [part for part in first.parts if part.text is None]
    if texts:
        # Content that was appended piece by piece is in as many parts.
        result, left = "".join(texts), values
    elif len(values) == 1 and values[0].data is not UNSET:
        result, left = whole(values[0].data), []
    else:
        result, left = None, values
    return beside((msgspec.structs.replace(first, parts=tuple(left)), *others), result)


def beside(artifacts: Iterable[A2aArtifact], result: Json = None) -> PeerContent:
    """Return a peer's artifacts as artifacts and files of a response with this result.

    A file that is too large or cannot be read is left out with a warning, so that the answer is not lost with it.
    """
    rest: list[envelope.Artifact] = []
    files: list[File] = []
    warnings: list[str] = []
    for each in artifacts:
        for part in each.parts:
            if part.text is part.raw is part.url is None and part.data is UNSET:
                warnings.append(
                    f"A part of {each.name or each.artifact_id or 'the answer'} is left out: it is of an unknown kind."
                )
                continue
            if part.raw is None and not (part.url is not None and (part.filename or part.media_type)):
                rest.append(_artifact(part, each.name))
                continue
            name = safe_name(part.filename or each.name, f"file-{len(files) + 1}")
            try:
                files.append(_peers_file(part, name))
            except ValueError as error:
                warnings.append(f"The file {name} is left out: {error}.")
    kept, left_out = fitting(files)
    return PeerContent(result=result, artifacts=tuple(rest), files=kept, warnings=(*warnings[:MAX_FILES], *left_out))


def _peers_file(part: A2aPart, name: str) -> File:
    """Return a part of a peer as a file, or raise a `ValueError` that says why it cannot be used."""
    media_type = safe_type(part.media_type)
    if part.raw is None:
        if not is_file_url(part.url or ""):
            raise ValueError("its URL is not valid")
        return File(name=name, media_type=media_type, url=part.url)
    try:
        data = _decoded(part.raw)
    except ValueError as error:
        raise ValueError("its content is not base64") from error
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"it has {len(data)} bytes, and at most {MAX_FILE_BYTES} are taken")
    return File(name=name, media_type=media_type, data=data)


def _artifact(part: A2aPart, label: str) -> envelope.Artifact:
    label = label or part.filename
    if part.url is not None:
        return envelope.Artifact(type="url", value=part.url, label=label)
    return envelope.Artifact(type="json", value=part.text if part.text is not None else whole(part.data), label=label)


def text_in(message: A2aMessage | None) -> str:
    """Return the text of a message, as a person would read it."""
    if message is None:
        return ""
    texts = (
        part.text if part.text is not None else part.url or ("" if part.data is UNSET else text_of(part.data))
        for part in message.parts
    )
    return BREAK.join(filter(None, texts))
