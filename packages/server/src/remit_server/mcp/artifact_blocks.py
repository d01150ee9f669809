"""Artifacts of an answer as MCP content: pictures, sounds, links and files beside the text."""

import base64
import binascii
from typing import Any, cast
from urllib.parse import quote

import mcp_types as types

from remit.protocol.codec import text_of
from remit.protocol.envelope import Artifact
from remit.protocol.files import File


def file_block(file: File) -> types.ContentBlock:
    """Return a file as a content block: an image, a sound, a link, or an embedded resource."""
    if file.data is None:
        return types.ResourceLink(type="resource_link", name=file.name, uri=file.url or "", mime_type=file.media_type)
    packed = base64.b64encode(file.data).decode()
    match file.media_type.lower().partition("/")[0]:
        # A picture that is text, SVG, is not what hosts show as an image.
        case "image" if file.text is None:
            return types.ImageContent(type="image", data=packed, mime_type=file.media_type)
        case "audio":
            return types.AudioContent(type="audio", data=packed, mime_type=file.media_type)
        case _:
            pass
    uri = f"file:///{quote(file.name)}"
    text = file.text
    if text is None:
        blob = types.BlobResourceContents(uri=uri, blob=packed, mime_type=file.media_type)
        return types.EmbeddedResource(type="resource", resource=blob)
    whole = types.TextResourceContents(uri=uri, text=text, mime_type=file.media_type)
    return types.EmbeddedResource(type="resource", resource=whole)


RUNS = "remit://runs"
_JSON, _BYTES = "application/json", "application/octet-stream"


def uri_of(run: str, number: int) -> str:
    """Return the address of an artifact as a resource."""
    return f"{RUNS}/{quote(run, safe='')}/artifacts/{number}"


def artifact_block(run: str, number: int, artifact: Artifact) -> types.ContentBlock:
    """Return an artifact as a host shows it."""
    if artifact.type == "url" and isinstance(artifact.value, str):
        return types.ResourceLink(type="resource_link", name=artifact.label or artifact.value, uri=artifact.value)
    found = artifact_contents(uri_of(run, number), artifact)
    if isinstance(found, types.BlobResourceContents):
        kind = found.mime_type or _BYTES
        if kind.startswith("image/"):
            return types.ImageContent(type="image", data=found.blob, mime_type=kind)
        if kind.startswith("audio/"):
            return types.AudioContent(type="audio", data=found.blob, mime_type=kind)
    return types.EmbeddedResource(type="resource", resource=found)


def artifact_contents(uri: str, artifact: Artifact) -> types.TextResourceContents | types.BlobResourceContents:
    """Return an artifact as a resource: the bytes of a file, or JSON."""
    value: Any = artifact.value
    if artifact.type == "file" and isinstance(value, dict):
        # As agents that speak A2A send files: `raw` in Base64, `mediaType`, `filename`.
        given = cast("dict[str, Any]", value)
        raw, kind = given.get("raw"), given.get("mediaType")
        if isinstance(raw, str) and _is_base64(raw):
            kind = kind if isinstance(kind, str) and kind else _BYTES
            return types.BlobResourceContents(uri=uri, mime_type=kind, blob=raw)
    return types.TextResourceContents(uri=uri, mime_type=_JSON, text=text_of(value))


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True
