"""Converts what an MCP server sends into the hub's values: nothing is trusted, everything is bounded."""

import re
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from mimetypes import MimeTypes
from typing import Any, cast
from urllib.parse import unquote

import mcp_types as types
import msgspec

from remit.protocol.card import Rate, Schema, Sees, ToolCard
from remit.protocol.codec import MAX_NESTING, encode
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.files import MAX_FILE_BYTES, File, fitting, is_file_url, safe_name, safe_type
from remit.runtime.schemas import check_schema

# Marks of instructions planted in a description: a tripwire for a reader, and no defence, since a text without them can
# still mislead a model. Written for the descriptions of tools: what real ones do not say, and published attacks do.
_MARKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "tells the model to ignore what it was told",
        re.compile(
            r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:previous|prior|above|before|earlier|other|all)\b"
            r".{0,40}\b(?:instruction|prompt|rule|told|message|guideline)",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "hides something from the user",
        re.compile(
            r"\b(?:do not|don't|never|without)\b.{0,30}\b(?:tell|telling|mention|mentioning|inform|informing|show|"
            r"showing|reveal|revealing|notify|notifying)\b.{0,30}\b(?:user|human|person|anyone|them)\b",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "speaks as the system",
        re.compile(
            r"<\s*/?\s*(?:system|important|instructions?|secret|admin)\s*>|\[\s*(?:system|inst)\s*\]|<\|im_start\|>"
            r"|^\s*(?:system|assistant)\s*:|\bsystem prompt\b|\byou are now\b|\bnew instructions\b",
            re.IGNORECASE | re.MULTILINE,
        ),
    ),
    (
        "sends the model to secrets",
        re.compile(
            r"\.ssh\b|\bid_rsa\b|\.env\b|\bapi[ _-]?keys?\b|\bpasswords?\b|\bcredentials\.json\b|/etc/passwd",
            re.IGNORECASE,
        ),
    ),
    ("has invisible characters", re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")),
)

# What is longer is no description; it bounds the cost of a hostile one.
MAX_SCANNED = 20_000


def planted_instructions(text: str) -> tuple[str, ...]:
    """Return what is suspicious in a text of a stranger, each as the end of a sentence about it; empty: nothing."""
    text = text[:MAX_SCANNED]
    return tuple(what for what, mark in _MARKS if mark.search(text))


MAX_DESCRIPTION = 1_000
MAX_SCHEMA = 32_000
MAX_WORDS = 500
# About ten times the size of real tools' schemas, also with their references resolved.
MAX_PARTS = 5_000

ANYTHING: Schema = {"type": "object"}

# Characters that would move a cursor or change the writing direction, and invisible ones.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)


def visible_text(text: str, most: int) -> str:
    """Return an untrusted text without invisible characters, cut to a limit."""
    text = _HIDDEN.sub("", text[: 2 * most]).encode(errors="replace").decode()
    return text if len(text) <= most else f"{text[:most]}…"


def card_of(
    name: str,
    server: str,
    tool: types.Tool,
    *,
    safe_to_repeat: bool,
    sees: Sees = frozenset(),
    clear: bool = False,
    rate: Rate | None = None,
) -> tuple[ToolCard, str | None]:
    """Return the card of a server's tool, and what is wrong with its schema, which is then left out.

    The team decides whether it is *safe_to_repeat*, what it *sees*, whether its results are *clear*, and its *rate*.
    """
    wrong = unusable(tool.input_schema)
    # Readers, including models, should know that this text does not come from the team.
    purpose = visible_text(tool.description or "", MAX_DESCRIPTION).strip()
    description = f"[MCP server {server}] {purpose}".strip()
    schema = ANYTHING if wrong else tool.input_schema
    return ToolCard(
        name=name,
        description=description,
        input_schema=schema,
        safe_to_repeat=safe_to_repeat,
        sees=sees,
        clear=clear,
        rate=rate,
    ), wrong


def suspicions(tool: types.Tool) -> tuple[str, ...]:
    """Return what a person should know before they let models read of a tool: see `planted_instructions`."""
    try:
        schema = encode(tool.input_schema).decode()
    except (TypeError, ValueError, OverflowError, RecursionError, RemitError):
        schema = ""  # it is not used
    return planted_instructions(f"{tool.description or ''}\n{schema}")


def parameters_missing(card: ToolCard) -> list[str]:
    """Return the parameters that the team file names and the server's tool does not have."""
    known = card.input_schema.get("properties")
    return sorted(card.sees.keys() - known.keys()) if isinstance(card.sees, dict) and isinstance(known, dict) else []


def unusable(schema: Schema) -> str | None:
    """Return why a server's schema is rejected; None if it is used."""
    try:
        size = len(encode(schema))
    except (TypeError, ValueError, OverflowError, RecursionError, RemitError):
        return "it is no JSON"
    if size > MAX_SCHEMA:
        return f"it has more than {MAX_SCHEMA} bytes"
    if schema.get("type") != "object":
        return "it is not that of an object"
    try:
        _walk(schema, schema, frozenset(), MAX_NESTING, [MAX_PARTS])
    except _Unfit as error:
        return str(error)
    return check_schema(schema)


class _Unfit(Exception):
    """The reason why a schema is rejected."""


def _walk(part: Any, root: Schema, within: frozenset[str], depth: int, left: list[int]) -> None:
    """Walk through a schema as a validator would, or raise `_Unfit` if it refers elsewhere or is too large.

    With a few nested references, a schema of one page can take years to check.
    """
    left[0] -= 1
    if depth == 0 or left[0] < 0:
        raise _Unfit("it is nested too deep, or refers too often to its own parts")
    if isinstance(part, list):
        for each in cast("list[Any]", part):
            _walk(each, root, within, depth - 1, left)
    if not isinstance(part, dict):
        return
    for key, value in cast("dict[str, Any]", part).items():
        if key in _ELSEWHERE and isinstance(value, str):
            raise _Unfit(f"it has a `{key}`, which is not followed here")
        if key == "$schema" and not str(value).startswith(_KNOWN):
            raise _Unfit("it is written in a language of its own")
        if key == "$ref" and isinstance(value, str):
            if value in within:
                raise _Unfit("it refers to itself")
            _walk(_resolve(value, root), root, within | {value}, depth - 1, left)
        elif key not in _NAMED:  # those are checked where they are referred to
            _walk(value, root, within, depth - 1, left)


_ELSEWHERE = ("$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor")
_KNOWN = ("http://json-schema.org/", "https://json-schema.org/")
_NAMED = ("$defs", "definitions")


def _resolve(reference: str, root: Schema) -> Any:
    """Resolve a reference within a schema."""
    kind, _, name = reference.removeprefix("#/").partition("/")
    parts = root.get(kind)
    if not reference.startswith("#/") or kind not in _NAMED or not isinstance(parts, dict):
        raise _Unfit("it refers to what is elsewhere")
    return cast("dict[str, Any]", parts).get(name)


def value_of(tool: str, result: types.CallToolResult, most: int, *, files: bool = False) -> Json:
    """Return a tool's result, or raise a `RemitError` if it failed or the result is too large.

    With *files*, it is an object: the result without them as `content`, and pictures, sounds and the like as `files`.
    """
    saved = _files(result) if files else {}
    content = _content(tool, result, most, saved)
    return {"content": content, "files": [msgspec.to_builtins(each) for each in saved.values()]} if files else content


def _content(tool: str, result: types.CallToolResult, most: int, files: Mapping[int, File]) -> Json:
    text = "\n".join(
        f"[{files[place].name}]" if place in files else _block(block) for place, block in enumerate(result.content)
    )
    if result.is_error:
        raise RemitError(
            fault(Code.DELEGATION_FAILED, f"{tool} failed: {visible_text(text, MAX_WORDS) or 'it does not say why'}")
        )
    data = text if result.structured_content is None else _unwrapped(result.structured_content)
    if isinstance(data, str):
        return data if len(data) <= most else f"{data[:most]}\n… (cut off: it had {len(data)} characters)"
    try:
        size = len(encode(data))
    except (TypeError, ValueError, OverflowError, RecursionError, RemitError) as error:
        raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, f"{tool} did not return valid JSON")) from error
    if size > most:
        message = f"{tool} gave {size} bytes of data; at most {most} are taken"
        raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, message))
    return data


def _files(result: types.CallToolResult) -> dict[int, File]:
    """Return the parts of a result that are no text, by their places, as far as they can be used."""
    files: dict[int, File] = {}
    for place, block in enumerate(result.content):
        with suppress(ValueError):  # no base64: the text says what it is
            file = _file(block, len(files) + 1)
            if file is not None and file.size <= MAX_FILE_BYTES:
                files[place] = file
    kept, _ = fitting(list(files.values()))
    return dict(zip(files, kept, strict=False))


def _file(block: types.ContentBlock, number: int) -> File | None:
    match block:
        case types.ImageContent(mime_type=kind, data=data) | types.AudioContent(mime_type=kind, data=data):
            media_type = safe_type(kind)
            ending = _ENDINGS.guess_extension(media_type, strict=False) or ""
            return File(name=f"file-{number}{ending}", media_type=media_type, data=b64decode(data, validate=True))
        case types.EmbeddedResource(resource=types.BlobResourceContents(uri=uri, blob=data, mime_type=kind)):
            data = b64decode(data, validate=True)
            return File(name=_name(str(uri), number), media_type=safe_type(kind or ""), data=data)
        case types.ResourceLink(uri=uri, mime_type=kind, name=name) if is_file_url(str(uri)):
            return File(name=safe_name(name, _name(str(uri), number)), media_type=safe_type(kind or ""), url=str(uri))
        case _:
            return None


# Without the files of the system: the same names everywhere.
_ENDINGS = MimeTypes()


def _name(uri: str, number: int) -> str:
    return safe_name(unquote(uri.partition("?")[0]), f"file-{number}")


def _unwrapped(data: Any) -> Any:
    """Unwrap data that a server had to put into an object: `{"result": …}`."""
    if isinstance(data, dict):
        given = cast("dict[str, Any]", data)
        return given["result"] if len(given) == 1 and "result" in given else given
    return data


def _block(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent(text=text):
            return text
        case types.ImageContent(mime_type=kind) | types.AudioContent(mime_type=kind):
            return f"[{visible_text(kind, 100)}, which cannot be shown here]"
        case types.ResourceLink(uri=uri):
            return f"[{visible_text(str(uri), 500)}]"
        case types.EmbeddedResource(resource=types.TextResourceContents(text=text)):
            return text
        case types.EmbeddedResource(resource=resource):
            return f"[{visible_text(str(resource.uri), 500)}, which is no text]"
