"""A2A over HTTP: its two bindings, JSON-RPC and HTTP+JSON."""

import logging
import math
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal
from urllib.parse import parse_qsl

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from remit.policy.reception import Permission, Sender
from remit.protocol.codec import convert, decode, encode
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, RemitError, fault
from remit_server.a2a.guests import Guests, is_anonymous
from remit_server.a2a.task_records import A2aCall
from remit_server.a2a.tasks import Streaming, Tasks
from remit_server.bodies import ClientGone, Headers, Receive, Scope, Send, headers_of, read_as, read_json, send_bytes
from remit_server.delegations import Delegations, DisconnectWatcher
from remit_server.dialects.a2a.errors import EXTENSION, OWN_RPC, Declined, Error, ErrorBody, error_body
from remit_server.dialects.a2a.types import (
    EXTENSIONS_HEADER,
    MEDIA_TYPE,
    METHODS,
    VERSION,
    VERSION_HEADER,
    Subscribe,
    extensions_of,
    is_spoken,
    plain,
)
from remit_server.refusals import REFUSALS, SENDER, Refusals, note
from remit_server.streams import KEEP_ALIVE

log = logging.getLogger("remit")

_JSON = (b"content-type", b"application/json")
_A2A_JSON = (b"content-type", MEDIA_TYPE.encode())
_STREAM = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
_ACTIVE = ((EXTENSIONS_HEADER.encode(), EXTENSION.encode()),)


Handler = Callable[[A2aCall, Any], Awaitable[Struct | Streaming]]
"""Carries out a method, given who calls and the parameters as the method takes them."""


class RpcRequest(Struct, frozen=True, kw_only=True):
    """A JSON-RPC 2.0 request."""

    jsonrpc: Literal["2.0"]
    id: str | int
    method: str
    params: dict[str, Json] | UnsetType = UNSET


class _Reply:
    """How one request is answered, in its binding."""

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send = send
        self._headers = headers
        self.started = False
        self.active: tuple[tuple[bytes, bytes], ...] = ()

    async def value(self, value: Struct) -> None:
        raise NotImplementedError

    def event(self, value: Struct) -> bytes:
        raise NotImplementedError

    async def error(self, error: ErrorBody) -> None:
        raise NotImplementedError

    async def whole(self, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
        self.started = True
        await send_bytes(self._send, status, body, (*headers, *self.active))

    async def stream(self, streaming: Streaming, delegations: Delegations, receive: Receive) -> None:
        """Send a stream until it ends, this server shuts down, or the client disconnects."""
        events, rest = streaming.events, streaming.rest
        leaving = None
        if events is not None:
            delegations.streams.add(events)
            leaving = DisconnectWatcher(receive, events.close, delegations.waiting.soon)
        try:
            self.started = True
            start = {"type": "http.response.start", "status": 200, "headers": [*_STREAM, *self.active]}
            await self._send(start)
            await self._part(b"data: " + self.event(streaming.first) + b"\n\n")
            if rest is not None:
                async for responses in rest:
                    frames = b"".join(b"data: " + self.event(each) + b"\n\n" for each in responses)
                    await self._part(frames or KEEP_ALIVE)
            await self._send({"type": "http.response.body", "body": b""})
        finally:
            if leaving is not None:
                leaving.cancel()
            if rest is not None:
                await rest.aclose()
            if events is not None:
                delegations.streams.discard(events)
                events.close()

    async def _part(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})


class _Rest(_Reply):
    """HTTP+JSON: plain values, and errors as google.rpc.Status."""

    @property
    def _json(self) -> tuple[bytes, bytes]:
        """The specification's own media type for clients that name it, and plain JSON for all others."""
        return (
            _A2A_JSON
            if any(MEDIA_TYPE in self._headers.get(each, "") for each in ("accept", "content-type"))
            else _JSON
        )

    async def value(self, value: Struct) -> None:
        await self.whole(200, encode(value), self._json)

    def event(self, value: Struct) -> bytes:
        return encode(value)

    async def error(self, error: ErrorBody) -> None:
        body = {
            "error": {
                "code": error.status,
                "status": error.grpc,
                "message": error.message,
                "details": error.details,
            }
        }
        await self.whole(error.status, encode(body), self._json, *_beside(error))


class _Rpc(_Reply):
    """JSON-RPC 2.0: values and errors in its envelope; errors that A2A defines have HTTP status 200."""

    id: str | int | None = None

    async def value(self, value: Struct) -> None:
        await self.whole(200, self.event(value), _JSON)

    def event(self, value: Struct) -> bytes:
        return encode({"jsonrpc": "2.0", "id": self.id, "result": value})

    async def error(self, error: ErrorBody) -> None:
        described = {"code": error.rpc, "message": error.message, "data": error.details}
        status = error.status if error.rpc == OWN_RPC else 200
        body = encode({"jsonrpc": "2.0", "id": self.id, "error": described})
        await self.whole(status, body, _JSON, *_beside(error))


def _beside(error: ErrorBody) -> tuple[tuple[bytes, bytes], ...]:
    headers: list[tuple[bytes, bytes]] = []
    if error.retry_after_ms is not None:
        headers.append((b"retry-after", str(math.ceil(error.retry_after_ms / 1_000)).encode()))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.status in (413, 415):
        headers.append((b"connection", b"close"))  # the rest of the body will not be read
    return tuple(headers)


class Bindings:
    """Reads requests in either binding, runs them, and answers."""

    def __init__(
        self,
        delegations: Delegations,
        tasks: Tasks,
        *,
        serves: Callable[[str], bool],
        required: bool,
        guests: Guests | None = None,
    ) -> None:
        self._delegations = delegations
        self._guests = guests
        self._serves = serves
        self._required = required
        self._handlers: dict[str, Handler] = {
            "SendMessage": tasks.send,
            "SendStreamingMessage": tasks.stream,
            "GetTask": tasks.get,
            "ListTasks": tasks.listed,
            "CancelTask": tasks.cancel,
            "SubscribeToTask": tasks.subscribe,
            "CreateTaskPushNotificationConfig": tasks.create_push,
            "GetTaskPushNotificationConfig": tasks.get_push,
            "ListTaskPushNotificationConfigs": tasks.list_push,
            "DeleteTaskPushNotificationConfig": tasks.delete_push,
            "GetExtendedAgentCard": tasks.extended_card,
        }

    async def run(self, method: str, call: A2aCall, params: dict[str, Json]) -> Struct | Streaming:
        """Return the result of a method; raise a `RemitError` for invalid parameters."""
        takes = METHODS[method].takes
        return await self._handlers[method](call, convert(plain(params, takes), takes))

    async def rpc(self, agent: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a JSON-RPC request."""
        headers = headers_of(scope)
        reply = _Rpc(send, headers)

        async def act() -> None:
            call = await self.authorized_call(agent, scope, headers, receive)
            rpc = await read_as(lambda raw: _call(raw, reply), await read_json(headers, receive))
            reply.active = _ACTIVE if call.extended else ()
            if rpc.method not in METHODS:
                known = ", ".join(METHODS)
                raise Declined(
                    Error.METHOD_NOT_FOUND, f"unknown A2A 1.0 method `{rpc.method[:100]}`; known methods: {known}"
                )
            params = {} if rpc.params is UNSET else rpc.params
            await self._do(rpc.method, call, params, reply)

        await _answered(act, reply, scope)

    async def rest(self, agent: str, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP+JSON request; *path* is the part after the agent's address."""
        headers = headers_of(scope)
        reply = _Rest(send, headers)

        async def act() -> None:
            call = await self.authorized_call(agent, scope, headers, receive)
            reply.active = _ACTIVE if call.extended else ()
            method, named = _routed(scope["method"], path)
            given: dict[str, Json] = {}
            if scope["method"] == "POST" and headers.get("content-length", "0") != "0":
                given = await read_as(object_in, await read_json(headers, receive))
            elif scope["method"] != "POST":
                given = _query(scope)
            await self._do(method, call, given | named, reply)

        await _answered(act, reply, scope)

    async def _do(self, method: str, call: A2aCall, params: dict[str, Json], reply: _Reply) -> None:
        done = await self.run(method, call, params)
        if isinstance(done, Streaming):
            assert call.receive is not None, "only valid over HTTP"
            await reply.stream(done, self._delegations, call.receive)
        else:
            await reply.value(done)

    async def known_sender(self, scope: Scope, headers: Headers) -> Sender | None:
        """Return the sender once it is authenticated; None if it is a guest, should its agent be public."""
        if self._guests is not None and is_anonymous(headers):
            return None
        # A host sees only what its own client asked for, whatever the permissions of that client.
        sender = await self._delegations.sender(scope, headers)
        return replace(sender, permissions=sender.permissions & {Permission.PRIORITY})

    async def authorized_call(
        self, agent: str, scope: Scope, headers: Headers, receive: Receive, sender: Sender | None = None
    ) -> A2aCall:
        """Return the caller, once it is authenticated, permitted, and uses a supported version.

        *sender* is given if it is authenticated already.
        """
        sender = sender or await self._sender(agent, scope, headers)
        if not self._serves(agent) or (sender.targets is not None and agent not in sender.targets):
            why = f"no agent `{agent[:100]}` is available to {sender.name}"
            raise RemitError(fault(Code.AGENT_NOT_FOUND, why))
        version = headers.get(VERSION_HEADER, "") or _parameter(scope, "A2A-Version")
        if not is_spoken(version):
            named_version = (
                f"A2A version {version[:20]!r}" if version else "A2A version 0.3 (the default without a header)"
            )
            raise Declined(
                Error.VERSION_NOT_SUPPORTED,
                f"{named_version} is not supported; send `A2A-Version: {VERSION}`",
                about={"supportedVersions": VERSION},
            )
        extended = EXTENSION in extensions_of(headers)
        if self._required and not extended:
            raise Declined(
                Error.EXTENSION_SUPPORT_REQUIRED,
                f"this agent requires the extension {EXTENSION}; name it in `A2A-Extensions`",
                about={"extension": EXTENSION},
            )
        return A2aCall(sender=sender, agent=agent, headers=headers, extended=extended, receive=receive)

    async def _sender(self, agent: str, scope: Scope, headers: Headers) -> Sender:
        if self._guests is not None and self._guests.may_ask(agent, headers):
            refusals: Refusals = scope[REFUSALS]
            sender = self._guests.sender(refusals.address_of(scope, headers))
            scope[SENDER] = sender.name
            return sender
        return await self.known_sender(scope, headers) or await self._delegations.sender(scope, headers)


async def _answered(act: Callable[[], Awaitable[None]], reply: _Reply, scope: Scope) -> None:
    """Run an operation, and answer with its error if it fails."""
    try:
        await act()
    except (Declined, RemitError) as error:
        if isinstance(error, RemitError):
            note(scope, headers_of(scope), error.fault)
        if not reply.started:
            await reply.error(error_body(error))
    except ClientGone:
        pass
    except Exception as error:  # noqa: BLE001 - logged without what it must not show
        log.error("%s %s failed: %s", scope["method"], scope["path"][:100], type(error).__name__)
        if not reply.started:
            await reply.error(error_body(Declined(Error.INTERNAL_ERROR, f"the server failed ({type(error).__name__})")))


def object_in(raw: bytes) -> dict[str, Json]:
    """Return the JSON object in a body; raise a `RemitError` if there is none."""
    return convert(decode(raw, object), dict[str, Json])


def _call(raw: bytes, reply: _Rpc) -> RpcRequest:
    """Return the JSON-RPC request in a body; errors carry its id, if it has one."""
    try:
        value = decode(raw, object)
    except RemitError as error:
        raise Declined(Error.PARSE_ERROR, f"the body is not JSON: {error.fault.problems[0].message}"
                       if error.fault.problems else error.fault.message) from error  # fmt: skip
    if isinstance(value, dict):
        id = msgspec.convert(value, _Identified, strict=False).id
        reply.id = id if isinstance(id, str | int) and not isinstance(id, bool) else None
    try:
        return convert(value, RpcRequest)
    except RemitError as error:
        fields = {each.path.removeprefix("$.").removeprefix("$"): each.message for each in error.fault.problems}
        what = "JSON-RPC batches are not supported" if isinstance(value, list) else "invalid JSON-RPC 2.0 request"
        if set(fields) == {"params"}:
            raise Declined(Error.INVALID_PARAMS, "params is not an object", fields=fields) from error
        raise Declined(Error.INVALID_REQUEST, what, fields=fields) from error


class _Identified(Struct, frozen=True):
    id: Json = None


def _parameter(scope: Scope, name: str) -> str:
    return dict(parse_qsl(scope["query_string"].decode("latin-1"))).get(name, "")


_TRUTHS = {"true": True, "false": False}


def _query(scope: Scope) -> dict[str, Json]:
    """Return query parameters as they would be in a body, where a number may be a text."""
    given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    return {
        name: _TRUTHS.get(text, text) if name in ("includeArtifacts", "include_artifacts") else text
        for name, text in given
    }


def _routed(verb: str, path: str) -> tuple[str, dict[str, Json]]:
    """Return the method that a path means, and the fields that it names."""
    for name, verbs, pattern in _ROUTES:
        if verb in verbs and (match := pattern.fullmatch(path)) is not None:
            return name, dict(match.groupdict())
    raise Declined(Error.METHOD_NOT_FOUND, f"no operation {verb} at {path[:100]}")


def _routes() -> Iterator[tuple[str, frozenset[str], re.Pattern[str]]]:
    """Yield the methods with their verbs and paths; what ends with an action is no id."""
    for name, method in sorted(METHODS.items(), key=lambda each: ":" not in each[1].path):
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]*)", re.escape(method.path))
        # An earlier draft of A2A subscribes with GET, as browsers read streams.
        verbs = {method.verb, "GET"} if method.takes is Subscribe else {method.verb}
        yield name, frozenset(verbs), re.compile(pattern)


_ROUTES = tuple(_routes())
