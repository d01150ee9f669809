"""Files of an answer as content blocks of MCP."""

import base64
from urllib.parse import quote

import mcp_types as types

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
