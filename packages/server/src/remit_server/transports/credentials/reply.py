"""The proof of a reply: that the called hub answered exactly this request with exactly these bytes."""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import msgspec

from remit.protocol.errors import Code, RemitError, fault
from remit_server.transports.credentials.headers import EMPTY, PROOF, REPLY_PROOF
from remit_server.transports.credentials.keys import Pair, is_signed
from remit_server.transports.credentials.proof import addressee_of

_DOMAIN, _STREAM_DOMAIN = b"remit reply 1\n", b"remit stream 1\n"
# A comment in a stream of events (SSE), which other readers skip.
_MARK = b": proof "
STREAM = "text/event-stream"

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]


def _statement(request: bytes, status: int, kind: str, location: str, body: bytes) -> bytes:
    return _DOMAIN + msgspec.msgpack.encode((request, status, kind.partition(";")[0].strip().lower(), location, body))


class SignedReply:
    """Signs the reply to one request with the key that the request's proof names.

    A whole reply has one signature, in a header. In a stream of events each piece is followed by a signature over all
    that was sent so far, so that no event can be changed, added, left out or moved.
    """

    def __init__(self, pair: Pair, proof: str, send: Send) -> None:
        self._pair = pair
        self._request = hashlib.sha256(proof.encode()).digest()
        self._send = send
        self._start: Message | None = None
        self._sent = hashlib.sha256()
        self._streams = False

    async def send(self, message: Message) -> None:
        """Send a message of ASGI, signed."""
        if message["type"] == "http.response.start":
            self._start = message
            self._streams = self._header(b"content-type").startswith(STREAM)
            if self._streams:
                await self._begin(EMPTY)
            return
        if self._start is not None:
            await self._begin(hashlib.sha256(message.get("body", b"")).digest())
        if self._streams and message.get("body"):
            self._sent.update(message["body"])
            signature = b64encode(self._pair.sign(_STREAM_DOMAIN + self._request + self._sent.digest()))
            message = {**message, "body": message["body"] + _MARK + signature + b"\n\n"}
        await self._send(message)

    async def _begin(self, body: bytes) -> None:
        start, kind, location = self._start, self._header(b"content-type"), self._header(b"location")
        assert start is not None, "a response has a start"
        statement = _statement(self._request, start["status"], kind, location, body)
        signed = (REPLY_PROOF.lower().encode(), b64encode(self._pair.sign(statement)))
        self._start = None
        await self._send({**start, "headers": [*start["headers"], signed]})

    def _header(self, name: bytes) -> str:
        headers = self._start["headers"] if self._start is not None else ()
        return next((value.decode("latin-1") for each, value in headers if each == name), "")


class ReplyCheck:
    """Checks the reply to one request: it must be signed with the key that the request was proven to."""

    def __init__(self, proof: str) -> None:
        self._key = addressee_of(proof)
        self._request = hashlib.sha256(proof.encode()).digest()
        self._received = hashlib.sha256()

    def is_proven(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> bool:
        """Return whether the hub sent this reply; for a stream, its beginning."""
        kind, location = headers.get("content-type", ""), headers.get("location", "")
        digest = hashlib.sha256(body).digest()
        return self._is_signed(
            headers.get(REPLY_PROOF, "").encode(), _statement(self._request, status, kind, location, digest)
        )

    def is_proven_block(self, block: bytes) -> bool:
        """Return whether a block of a stream proves those before it; raise a `RemitError` if it should and does not."""
        if not block.startswith(_MARK):
            self._received.update(block + b"\n\n")
            return False
        statement = _STREAM_DOMAIN + self._request + self._received.digest()
        if not self._is_signed(block.removeprefix(_MARK), statement):
            raise unproven("an event of its stream was changed")
        return True

    def _is_signed(self, signature: bytes, statement: bytes) -> bool:
        try:
            return is_signed(self._key, b64decode(signature, validate=True), statement)
        except ValueError:  # not Base64
            return False


def reply_check(headers: Mapping[str, str]) -> ReplyCheck | None:
    """Return what checks the reply to a request with these headers; None if the hubs do not know each other's keys."""
    return ReplyCheck(headers[PROOF]) if PROOF in headers else None


def unproven(why: str, place: str = "") -> RemitError:
    """Return the error of a reply that the called hub has not signed: nobody knows what it did."""
    return RemitError(
        fault(
            Code.OUTCOME_UNKNOWN,
            f"the reply of the other hub is not proven: {why}",
            detail=place,
            suggestion="Ask the other hub what it did. Then look for a proxy between both hubs that changes replies or "
            "drops the header Remit-Reply-Proof, compare the keys with `remit keys show`, and run the same version of "
            "Remit on both.",
        )
    )
