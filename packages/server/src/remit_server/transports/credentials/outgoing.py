"""What goes out between hubs: headers that authenticate a request and state its limits, and the proof of a reply."""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from remit.ports import Credential, OutgoingRequest
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.remit import Name
from remit_server.transports.credentials.incoming import RunCredentials
from remit_server.transports.credentials.keys import HubKey, Pair, is_signed
from remit_server.transports.credentials.proof import (
    BEARER,
    CONTENT_DIGEST,
    CREDENTIAL,
    EMPTY,
    PROOF,
    REPLY_PROOF,
    CredentialChain,
    addressee_of,
    content_digest,
    prove,
)


class Addressee(Struct, frozen=True, kw_only=True):
    """A hub that is called."""

    name: Name
    keys: tuple[str, ...] = ()
    """Its public keys, oldest first: the newest is named, and it accepts all of them."""
    token: str | None = None

    def __repr__(self) -> str:
        return f"Addressee({self.name!r})"  # a token is shown in no traceback


class CredentialHeaders:
    """Makes the headers of outgoing requests. They never hold anything that a user or a client sent.

    *key* returns this hub's current identity, *trusted* further keys of a peer, *held* the credentials of running runs
    (`Authenticator`).
    """

    def __init__(
        self,
        *,
        key: Callable[[], HubKey] | None = None,
        trusted: Callable[[str], Sequence[str]] = lambda _: (),
        held: RunCredentials | None = None,
        wall_ms: Callable[[], int],
    ) -> None:
        self._key = key
        self._trusted = trusted
        self._wall_ms = wall_ms
        self._held = held or RunCredentials(self._wall_ms)

    def credential(self, peer: Addressee) -> Credential:
        """Return the function that makes the headers of each request to a peer."""
        return partial(self.headers, peer)

    async def headers(self, peer: Addressee, request: Request, sending: OutgoingRequest) -> dict[str, str]:
        """Return the headers of one request: credential and proof, else the shared token; or raise a `RemitError`."""
        keys = (*peer.keys, *self._trusted(peer.name))
        if self._key is None or not keys:
            return _bearer(peer)
        now_ms, held = self._wall_ms(), self._held.of(request.run)
        # The block is signed with the key that the previous one names: an older one during a rotation.
        pair = self._key().signing(now_ms) if held is None else self._key().pair(held.to, now_ms)
        if pair is None:
            why = "the request came with a credential for a key that was retired since"
            raise RemitError(fault(Code.CREDENTIAL_EXPIRED, why))
        token = _credential(held, pair, request, keys[-1], now_ms)
        if isinstance(token, Fault):
            raise RemitError(token)
        proof = prove(pair, sending, to=keys[-1], request_id=request.id, now_ms=now_ms, credential=token)
        headers = {CREDENTIAL: token, PROOF: proof}
        return headers | {CONTENT_DIGEST: content_digest(sending.body)} if sending.body else headers


def _credential(held: CredentialChain | None, pair: Pair, request: Request, to: str, now_ms: int) -> str | Fault:
    try:
        from remit_server.transports.credentials.chain import attenuate, mint
    except ImportError as error:
        return fault(Code.TEAM_INVALID, str(error))
    if held is None:
        return mint(pair, request.remit, to=to, request_id=request.id, now_ms=now_ms)
    return attenuate(held, pair, request.remit, to=to, request_id=request.id, now_ms=now_ms)


def _bearer(peer: Addressee) -> dict[str, str]:
    if peer.token is None:
        raise RemitError(
            fault(
                Code.TEAM_INVALID,
                f"this hub has no token or key to authenticate to {peer.name}",
                suggestion=f"Give `[peers.{peer.name}]` a `token`, or make a key (`remit keys init`) and trust theirs.",
            )
        )
    return {BEARER: f"Bearer {peer.token}"}


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
