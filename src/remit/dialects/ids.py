"""Ids in the form that a document requires, and ids from unreadable envelopes."""

import json
import re
from hashlib import blake2b
from typing import cast

from msgspec import Struct

from remit.dialects.exchange import ForeignMessage
from remit.protocol.codec import convert
from remit.protocol.envelope import Json
from remit.protocol.errors import RemitError
from remit.protocol.remit import Name

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


class _Said(Struct):
    name: Name


def as_uuid(name: str) -> str:
    """Return *name* if it is a UUID; else a version 4 UUID that is always the same for the same name."""
    if _UUID.fullmatch(name):
        return name
    digits = bytearray(blake2b(name.encode(errors="surrogatepass"), digest_size=16).digest())
    # RFC 9562: version 4, variant 10.
    digits[6], digits[8] = digits[6] & 0x0F | 0x40, digits[8] & 0x3F | 0x80
    text = digits.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def claimed(asked: ForeignMessage, field: str, header: str = "") -> str | None:
    """Return the value of *field* in an envelope, however invalid the rest of it is; else the value of *header*.

    It is echoed to the sender, to identify the refused request, and used for nothing else.
    """
    try:
        # Also JSON that is not strict: NaN, duplicate keys, numbers of any length.
        envelope = json.loads(asked.body, parse_int=float) if asked.body else None
    except (ValueError, RecursionError):
        envelope = None
    said = cast("dict[str, Json]", envelope).get(field) if isinstance(envelope, dict) else None
    for each in (said, asked.headers.get(header)):
        try:
            name = convert({"name": each}, _Said).name
            name.encode()  # an unpaired surrogate cannot be sent back
        except (RemitError, UnicodeEncodeError):
            continue
        return name
    return None
