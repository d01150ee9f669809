"""The interface of every dialect: foreign messages to ours, and back, with ids in the form that a document requires."""

import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Protocol, TypeVar, cast

from msgspec import Struct

from remit.protocol.codec import convert, decode, malformed, whole
from remit.protocol.envelope import Json, Request, Response
from remit.protocol.errors import Problem, RemitError
from remit.protocol.remit import Name
from remit.protocol.submission import Submission

T = TypeVar("T")


class ForeignMessage(Struct, frozen=True, kw_only=True):
    """A message on the wire: its headers, with lower-case names, and its body."""

    headers: Mapping[str, str] = {}
    body: bytes = b""
    target: str = ""
    """The agent that the URL names, for a dialect without a field for it."""
    status: int = 200
    """The HTTP status of a reply; requests have none."""


class Dialect(Protocol):
    """A pure translation, both ways. What cannot be expressed is refused by field, with a `RemitError`."""

    def submission(self, asked: ForeignMessage) -> Submission:
        """Return a foreign client's request as a submission."""
        ...

    def reply(self, response: Response, asked: ForeignMessage) -> ForeignMessage:
        """Return the outcome as the foreign client expects it; also for a response that no agent gave."""
        ...

    def request(self, request: Request) -> ForeignMessage:
        """Return a hub's request for a foreign server."""
        ...

    def response(self, given: ForeignMessage, request: Request) -> Response:
        """Return the outcome that the foreign server sent."""
        ...


def read_envelope(raw: bytes, kind: type[T]) -> T:
    """Decode what a peer sends: strictly, except for numbers."""
    return convert(whole(decode(raw, object), kind), kind)


def refuse_another(asked: ForeignMessage, field: str, target: str) -> None:
    """Refuse a message whose URL and body name different agents."""
    if asked.target not in ("", target):
        raise RemitError(malformed((Problem(f"$.{field}", "is not the agent that the URL names"),)))


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
