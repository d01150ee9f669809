"""Content: A2A parts, and the texts and values that they stand for."""

import base64
import binascii
from collections.abc import Collection, Iterable
from typing import Literal, cast

import msgspec
from msgspec import UNSET

from remit.dialects.a2a.errors import Declined, Error
from remit.dialects.a2a.types import JSON, TEXT, A2aArtifact, A2aMessage, A2aPart
from remit.protocol import envelope
from remit.protocol.codec import text_of
from remit.protocol.envelope import Json
from remit.protocol.remit import MAX_INTEGER

# Separates the texts of several parts.
BREAK = "\n\n"


# ── content of a client ───────────────────────────────────────────────────────────────────────────────────────────────


def texts_and_values(parts: Iterable[A2aPart]) -> tuple[list[str], list[Json]]:
    """Return the texts and values that a client sends; other content is declined by name.

    A file is accepted if it is text or JSON. A URL is not: nothing is ever fetched for a client.
    """
    texts: list[str] = []
    values: list[Json] = []
    for number, part in enumerate(parts):
        kind = _kind(part, number)
        media = part.media_type.partition(";")[0].strip().lower()
        if kind == "url":
            raise _unsupported(f"part {number} is a URL, and this hub fetches nothing: send the content")
        if kind == "data":
            values.append(whole(part.data))
        elif kind == "text" or media.startswith("text/"):
            texts.append(part.text if part.text is not None else _unpacked(part, number).decode(errors="replace"))
        elif media == JSON or media.endswith("+json"):
            values.append(_read(_unpacked(part, number), number))
        else:
            raise _unsupported(f"part {number} has the type `{media[:100]}`; supported: text and JSON")
    return texts, values


def _kind(part: A2aPart, number: int) -> Literal["text", "raw", "url", "data"]:
    found: list[Literal["text", "raw", "url", "data"]] = []
    if part.text is not None:
        found.append("text")
    if part.raw is not None:
        found.append("raw")
    if part.url is not None:
        found.append("url")
    if part.data is not UNSET and not (part.data is None and found):
        found.append("data")
    if len(found) != 1:
        what = "nothing" if not found else " and ".join(found)
        why = f"part {number} holds {what}; a part is one of text, raw, url and data"
        raise Declined(Error.INVALID_PARAMS, why, fields={f"message.parts[{number}]": why})
    return found[0]


def _unpacked(part: A2aPart, number: int) -> bytes:
    try:
        # Both alphabets are accepted, with or without padding, as ProtoJSON requires.
        packed = (part.raw or "").replace("-", "+").replace("_", "/").rstrip("=")
        return base64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        field = f"message.parts[{number}].raw"
        raise Declined(Error.INVALID_PARAMS, f"{field} is not base64", fields={field: "is not base64"}) from error


def _read(raw: bytes, number: int) -> Json:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        field = f"message.parts[{number}].raw"
        raise Declined(Error.INVALID_PARAMS, f"{field} is not JSON", fields={field: "is not JSON"}) from error


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
        everything = not wanted or "*/*" in wanted
        self.text = everything or bool(wanted & {TEXT, "text/*"})
        self.data = everything or bool(wanted & {JSON, "application/*"})
        if not self.text and not self.data:
            shown = ", ".join(sorted(wanted))[:200]
            raise _unsupported(f"none of {shown} is supported; supported: {TEXT} and {JSON}")


ANY = AcceptedContent()


def part_of(value: Json, taste: AcceptedContent = ANY) -> A2aPart:
    """Return a value as a part: a text as text, everything else as data, unless the client accepts only the other."""
    if isinstance(value, str):
        return A2aPart(text=value, media_type=TEXT) if taste.text else A2aPart(data=value, media_type=JSON)
    return A2aPart(data=value, media_type=JSON) if taste.data else A2aPart(text=text_of(value), media_type=TEXT)


def artifact_of(given: envelope.Artifact, number: int, taste: AcceptedContent) -> A2aArtifact:
    """Return an artifact of an answer as an A2A artifact."""
    is_address = given.type == "url" and isinstance(given.value, str)
    part = A2aPart(url=given.value) if is_address else part_of(given.value, taste)
    return A2aArtifact(artifact_id=f"artifact-{number}", name=given.label, parts=(part,))


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


def result_of(artifacts: Collection[A2aArtifact]) -> tuple[Json, tuple[envelope.Artifact, ...]]:
    """Return a peer's artifacts: the first is the result, and what does not fit in it stays an artifact."""
    if not artifacts:
        return None, ()
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
    return result, (*(_artifact(part, first.name) for part in left), *beside(others))


def beside(artifacts: Iterable[A2aArtifact]) -> tuple[envelope.Artifact, ...]:
    """Return a peer's artifacts as artifacts of a response."""
    return tuple(_artifact(part, each.name) for each in artifacts for part in each.parts)


def _artifact(part: A2aPart, label: str) -> envelope.Artifact:
    label = label or part.filename
    if part.url is not None:
        return envelope.Artifact(type="url", value=part.url, label=label)
    if part.raw is not None:
        value = {"raw": part.raw, "mediaType": part.media_type, "filename": part.filename}
        return envelope.Artifact(type="file", value=value, label=label)
    return envelope.Artifact(type="json", value=part.text if part.text is not None else whole(part.data), label=label)


def text_in(message: A2aMessage | None) -> str:
    """Return the text of a message, as a person would read it."""
    if message is None:
        return ""
    said = (
        part.text if part.text is not None else part.url or ("" if part.data is UNSET else text_of(part.data))
        for part in message.parts
    )
    return BREAK.join(filter(None, said))
