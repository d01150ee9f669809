"""The gRPC server of a hub: its port, its connections within bounds, and the methods of A2A.

gRPC accepts connections in C, as many as there are file descriptors, and reads ahead on each. So it listens on a
private socket, and only connections that this module accepts get there.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.reception import Sender
from remit.policy.shares import SharedTotal, ShareOwner
from remit.protocol.codec import MAX_BYTES, encode
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.aside import SMALL_BODY, aside
from remit.transports.local import FairSlots
from remit_server.a2a.binding import Bindings, object_in
from remit_server.a2a.grpc_messages import (
    STATUS,
    GrpcMethod,
    InvalidMessage,
    grpc_methods,
    require_grpc,
    status_to_wire,
    text_field,
    to_json,
    to_wire,
)
from remit_server.a2a.guests import NAME as GUEST
from remit_server.a2a.task_records import A2aCall
from remit_server.a2a.tasks import Streaming
from remit_server.access import OPERATION
from remit_server.all_operations import A2A_AGENT
from remit_server.bodies import Headers, Scope, headers_of, read_as, refuse_changed
from remit_server.connections import BODY_S, HEADERS_S, MOST_CONNECTIONS
from remit_server.delegations import Delegations
from remit_server.dialects.a2a.errors import EXTENSION, RETRY_INFO, Declined, Error, ErrorBody, error_body
from remit_server.dialects.a2a.types import EXTENSIONS_HEADER
from remit_server.refusals import REFUSALS, Refusals, RequestShare, note, request_share
from remit_server.streams import KEEP_ALIVE_S
from remit_server.transports.addresses import ACCEPTED_AT_ONCE, BACKLOG, listening
from remit_server.transports.remote_calls import time_there_ms

# A connection that is not authenticated may send so much: metadata of 64 KiB, a TLS handshake and HTTP/2's own frames.
MOST_BEFORE = 96 * 1024
# Connections that are not authenticated: a real client needs only a moment. With gRPC's own part of each they take up
# to 50 MB.
MOST_UNKNOWN = 256
# Read at once; the bytes are passed on before the next are read.
_CHUNK = 16 * 1024
# Each connection has this many file descriptors: the client's, and the two ends of the private socket.
DESCRIPTORS = 3


class GrpcFront:
    """Accepts the connections of gRPC clients, and says who is at the other end of each."""

    def __init__(self, bound: socket.socket, most: int) -> None:
        self._bound = bound
        self._most = most
        self._folder = TemporaryDirectory(prefix="remit-grpc-")  # only this user can open it
        self._numbers = 0
        self._unknown: dict[int, _ClientSide] = {}
        """The connections that are not authenticated, oldest first."""
        self._known: dict[int, _ClientSide] = {}
        self._total = SharedTotal(most)
        self._server: asyncio.Server | None = None

    @property
    def inner(self) -> str:
        """The private address on which gRPC has to listen."""
        return str(Path(self._folder.name) / "grpc")

    async def start(self) -> None:
        """Accept connections from now on."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _ClientSide(self), sock=self._bound, backlog=ACCEPTED_AT_ONCE
        )
        self._bound.listen(BACKLOG)

    def stop(self) -> None:
        """Accept nothing more."""
        if self._server is not None:
            self._server.close()

    def close(self) -> None:
        """Close all connections."""
        for each in [*self._unknown.values(), *self._known.values()]:
            each.abort()
        self._bound.close()
        self._folder.cleanup()

    def address_of(self, peer: str) -> tuple[str, int] | None:
        """Return the address of the client that gRPC calls *peer*."""
        connection = self._client_side(peer)
        return None if connection is None else connection.address

    def know(self, peer: str, client: str) -> None:
        """Note that a connection belongs to an authenticated client; it is closed if that has too many."""
        connection = self._client_side(peer)
        if connection is None or connection.number not in self._unknown:
            return
        share = ShareOwner(client)
        if not self._total.has_room(share):
            connection.abort()
            return
        del self._unknown[connection.number]
        self._known[connection.number] = connection
        self._total.take(share)
        connection.known(share)

    def arrived(self, side: "_ClientSide") -> int:
        """Count a new connection, make room for it, and return its number."""
        self._numbers += 1
        self._unknown[self._numbers] = side
        if len(self._unknown) > MOST_UNKNOWN or len(self._unknown) + len(self._known) > self._most:
            self._unknown.pop(next(iter(self._unknown))).abort()
        return self._numbers

    def gone(self, number: int, share: ShareOwner | None) -> None:
        """Forget a connection."""
        self._unknown.pop(number, None)
        self._known.pop(number, None)
        if share is not None:
            self._total.give_back(share)

    async def connect(self, number: int, outer: "_ClientSide") -> asyncio.Transport:
        """Return a connection to gRPC; it is bound to a name, which gRPC tells the service."""
        loop = asyncio.get_running_loop()
        name = Path(self._folder.name) / str(number)
        inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            inner.setblocking(False)
            inner.bind(str(name))
            try:
                await loop.sock_connect(inner, self.inner)
            finally:
                name.unlink()
            transport, _ = await loop.create_unix_connection(lambda: _InnerSide(outer), sock=inner)
        except BaseException:
            inner.close()
            raise
        return transport

    def _client_side(self, peer: str) -> "_ClientSide | None":
        number = peer.rpartition(os.sep)[2]
        if not number.isdecimal():
            return None
        return self._known.get(int(number)) or self._unknown.get(int(number))


# All connections share it: what it holds is passed on before another connection is read.
_buffer = bytearray(_CHUNK)


class _ClientSide(asyncio.BufferedProtocol):
    """One client's connection."""

    def __init__(self, front: GrpcFront) -> None:
        self._front = front
        self._inner: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._first = b""
        self._received = 0
        self._share: ShareOwner | None = None
        self._pauses: set[str] = set()
        """Why nothing is read."""
        self.address: tuple[str, int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = transport.get_extra_info("peername")[:2]
        self._late = asyncio.get_running_loop().call_later(HEADERS_S, transport.abort)
        self.number = self._front.arrived(self)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - the shape of asyncio
        return _buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received += nbytes
        data = bytes(memoryview(_buffer)[:nbytes])
        if self._inner is None:
            self._first = data
            self.pause("connecting")
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            return
        self._inner.write(data)
        if self._share is None and self._received > MOST_BEFORE:
            self.pause("unknown")

    async def _connect(self) -> None:
        try:
            inner = await self._front.connect(self.number, self)
        except OSError:
            self._transport.abort()
            return
        if self._transport.is_closing():
            inner.abort()
            return
        self._inner = inner
        inner.write(self._first)
        self._first = b""
        self.resume("connecting")

    def known(self, share: ShareOwner) -> None:
        """Read on: the client is authenticated."""
        self._share = share
        self._late.cancel()
        self.resume("unknown")

    def pause(self, why: str) -> None:
        """Read nothing more until every reason for that is gone."""
        self._pauses.add(why)
        self._transport.pause_reading()

    def resume(self, why: str) -> None:
        """Read on, unless there is another reason not to."""
        self._pauses.discard(why)
        if not self._pauses:
            self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_reading()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the shape of asyncio
        self._late.cancel()
        self._front.gone(self.number, self._share)
        if self._inner is not None:
            self._inner.close()


class _InnerSide(asyncio.Protocol):
    """The other end of a connection, at gRPC."""

    def __init__(self, outer: _ClientSide) -> None:
        self._outer = outer

    def data_received(self, data: bytes) -> None:
        self._outer.write(data)

    def pause_writing(self) -> None:
        self._outer.pause("full")

    def resume_writing(self) -> None:
        self._outer.resume("full")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the shape of asyncio
        self._outer.close()


if TYPE_CHECKING:
    from grpc import GenericRpcHandler, RpcMethodHandler
    from grpc.aio import ServicerContext

    Context = ServicerContext[bytes, bytes]

log = logging.getLogger("remit")

# Clients take 8 KiB of metadata by default, in which the message of an error stands twice.
MOST_MESSAGE = 1_000
MOST_DETAILS = 4_096
# Each may have 4 MiB: together as much as all bodies that are read over HTTP.
READ_AT_ONCE = 16

# The status of these in the gRPC binding of A2A 1.0.0, with which its conformance kit agrees. Later revisions have
# FAILED_PRECONDITION, as in the body of HTTP+JSON. Clients of either go by the reason in the details.
_UNIMPLEMENTED = frozenset(
    (Error.UNSUPPORTED_OPERATION, Error.PUSH_NOTIFICATION_NOT_SUPPORTED, Error.VERSION_NOT_SUPPORTED)
)


class _Incoming(NamedTuple):
    """One request on the wire."""

    method: GrpcMethod
    name: str
    requests: AsyncIterator[bytes]
    """Its message, which is not read before the sender is known."""
    peer: str
    scope: Scope
    gone: asyncio.Event
    """Set when the client is gone."""
    time_ms: int | None

    async def receive(self) -> MutableMapping[str, Any]:
        """Return once the client is gone, in the words of ASGI."""
        await self.gone.wait()
        return {"type": "http.disconnect"}


class GrpcService:
    """The A2A service: reads requests, runs them as the other bindings do, and answers."""

    def __init__(
        self, bindings: Bindings, delegations: Delegations, refusals: Refusals, default: Callable[[], str]
    ) -> None:
        self._bindings = bindings
        self._delegations = delegations
        self._refusals = refusals
        self._default = default
        """The agent that is meant by requests without a tenant; empty: there is none."""
        self._doing: set[asyncio.Future[Any]] = set()
        self._reading = FairSlots("messages over gRPC", READ_AT_ONCE, MOST_CONNECTIONS)

    def handler(self, front: GrpcFront) -> "GenericRpcHandler":
        """Return the handler of all methods. It takes messages as bytes, and as streams: so none is read too early."""
        import grpc

        self._front = front
        handlers: dict[str, RpcMethodHandler[bytes, bytes]] = {
            name: (
                grpc.stream_stream_rpc_method_handler(partial(self._stream, name))  # pyright: ignore[reportArgumentType]
                if method.streams
                else grpc.stream_unary_rpc_method_handler(partial(self._unary, name))  # pyright: ignore[reportArgumentType]
            )
            for name, method in grpc_methods().items()
        }
        (service,) = {method.path.split("/")[1] for method in grpc_methods().values()}
        return grpc.method_handlers_generic_handler(service, handlers)

    async def idle(self) -> None:
        """Return once no operation is running, also of clients that are gone."""
        if self._doing:
            await asyncio.wait(self._doing)

    # ── one request ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _unary(self, name: str, requests: AsyncIterator[bytes], context: "Context") -> bytes:
        incoming = self._incoming(name, requests, context)
        async with self._answering(incoming, context):
            call, done = await self._finished(incoming)
            await _confirm(call, context)
            assert isinstance(done, Struct), "only a method that streams has a stream"
            return await _written(done, incoming.method)
        raise AssertionError("an error ends the call")

    async def _stream(self, name: str, requests: AsyncIterator[bytes], context: "Context") -> None:
        incoming = self._incoming(name, requests, context)
        async with self._answering(incoming, context):
            call, done = await self._finished(incoming)
            assert isinstance(done, Streaming), "a method that streams has a stream"
            events, rest = done.events, done.rest
            if events is not None:
                self._delegations.streams.add(events)
            try:
                await _confirm(call, context)
                await context.write(await _written(done.first, incoming.method))
                if rest is not None:
                    async for responses in rest:
                        for each in responses:
                            await context.write(await _written(each, incoming.method))
            finally:
                await self._close(done)

    async def _finished(self, incoming: _Incoming) -> tuple[A2aCall, Struct | Streaming]:
        """Return the result of a request. If the client goes away meanwhile, the operation still ends in order."""
        doing = asyncio.ensure_future(self._do(incoming))
        self._doing.add(doing)
        doing.add_done_callback(self._doing.discard)
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            incoming.gone.set()
            closing = asyncio.ensure_future(self._unread(doing))
            self._doing.add(closing)
            closing.add_done_callback(self._doing.discard)
            raise

    async def _unread(self, doing: "asyncio.Future[tuple[A2aCall, Struct | Streaming]]") -> None:
        """Close the stream that nobody will read."""
        await asyncio.wait({doing})
        if not doing.cancelled() and doing.exception() is None and isinstance(done := doing.result()[1], Streaming):
            await self._close(done)

    async def _close(self, done: Streaming) -> None:
        if done.rest is not None:
            await done.rest.aclose()
        if done.events is not None:
            self._delegations.streams.discard(done.events)
            done.events.close()

    async def _do(self, incoming: _Incoming) -> tuple[A2aCall, Struct | Streaming]:
        headers = headers_of(incoming.scope)
        sender = await self._bindings.known_sender(incoming.scope, headers)
        client = GUEST if sender is None else sender.name
        self._front.know(incoming.peer, client)
        raw = await self._message(incoming.requests, client)
        tenant = text_field(raw, incoming.method.tenant)
        call = await self._call(incoming, tenant, headers, sender)
        refuse_changed(headers, raw)
        try:
            read = await read_as(partial(to_json, kind=incoming.method.request), raw)
        except InvalidMessage as error:
            raise Declined(Error.INVALID_REQUEST, f"the message is invalid: {error}") from error
        params = await read_as(object_in, read)
        if params.pop("tenant", "") != tenant:
            why = "must stand before the other fields"
            raise Declined(Error.INVALID_PARAMS, "the tenant is not among the first fields", fields={"tenant": why})
        return call, await self._bindings.run(incoming.name, call, params)

    async def _message(self, requests: AsyncIterator[bytes], client: str) -> bytes:
        """Return the message of a call. gRPC reads it whole, so only some are read at once, of each client in turn."""
        await self._reading.enter(ShareOwner(client))
        try:
            async with asyncio.timeout(BODY_S):
                async for raw in requests:
                    return raw
        except TimeoutError as error:
            why = f"the message did not arrive within {BODY_S:.0f} s; nothing was started"
            raise RemitError(fault(Code.TIMEOUT, why)) from error
        finally:
            self._reading.release()
        raise Declined(Error.INVALID_REQUEST, "the call has no message")

    async def _call(self, incoming: _Incoming, tenant: str, headers: Headers, sender: Sender | None) -> A2aCall:
        """Return who calls which agent, once that is allowed."""
        agent = tenant or self._default()
        try:
            call = await self._bindings.authorized_call(agent, incoming.scope, headers, incoming.receive, sender)
        except RemitError as error:
            if agent or error.fault.code is not Code.AGENT_NOT_FOUND:
                raise
            why = "names the agent; this server has several, and no default"
            raise Declined(Error.INVALID_PARAMS, "the request names no agent", fields={"tenant": why}) from error
        return replace(call, time_ms=incoming.time_ms)

    def _incoming(self, name: str, requests: AsyncIterator[bytes], context: "Context") -> _Incoming:
        method = grpc_methods()[name]
        headers = [
            (key.lower().encode(), value if isinstance(value, bytes) else value.encode("latin-1", "replace"))
            for key, value in context.invocation_metadata() or ()
            if key.lower() not in ("content-length", "transfer-encoding")
        ]
        headers.append((b"transfer-encoding", b"chunked"))  # the proof of a hub is for a body that is there
        peer = unquote(context.peer())
        scope: Scope = {
            "method": "POST",
            "path": method.path,
            "raw_path": method.path.encode(),
            "query_string": b"",
            "headers": headers,
            "client": self._front.address_of(peer),
            REFUSALS: self._refusals,
            OPERATION: A2A_AGENT,
        }
        left_s = cast("float | None", context.time_remaining())
        time_ms = None if left_s is None else time_there_ms(max(0, round(left_s * 1_000)))
        return _Incoming(method, name, requests, peer, scope, asyncio.Event(), time_ms)

    # ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def _answering(self, incoming: _Incoming, context: "Context") -> AsyncGenerator[None]:
        """Answer with the error if an operation fails."""
        held = RequestShare()
        request_share.set(held)
        try:
            yield
            return
        except (Declined, RemitError) as error:
            why = error
        except InvalidMessage as error:
            log.error("%s: the answer cannot be sent as protobuf: %s", incoming.name, error)
            why = Declined(Error.INTERNAL_ERROR, "the answer cannot be sent as protobuf")
        except Exception as error:
            if context.done():  # the client is gone, and nothing can be written any more
                raise asyncio.CancelledError from error
            log.error("%s failed: %s", incoming.name, type(error).__name__)
            why = Declined(Error.INTERNAL_ERROR, f"the server failed ({type(error).__name__})")
        finally:
            held.leave()
        if isinstance(why, RemitError):
            _note(incoming.scope, why)
        await _refuse(context, error_body(why), why.error if isinstance(why, Declined) else None)


def _note(scope: Scope, error: RemitError) -> None:
    with suppress(RemitError):  # a header that is sent twice
        note(scope, headers_of(scope), error.fault)


def _refuse(context: "Context", error: ErrorBody, reason: Error | None) -> Awaitable[None]:
    """End a call with an error: its status, its message, and its details."""
    from grpc import StatusCode

    code = StatusCode.UNIMPLEMENTED if reason in _UNIMPLEMENTED else StatusCode[error.grpc]
    details = error.details
    if error.retry_after_ms is not None:
        details = (*details, {"@type": RETRY_INFO, "retryDelay": f"{error.retry_after_ms / 1_000:.3f}s"})
    message = error.message[:MOST_MESSAGE]
    number: int = code.value[0]
    return context.abort(code, message, ((STATUS, status_to_wire(number, message, details, MOST_DETAILS)),))


async def _confirm(call: A2aCall, context: "Context") -> None:
    if call.extended:
        await context.send_initial_metadata(((EXTENSIONS_HEADER, EXTENSION),))


async def _written(value: Struct, method: GrpcMethod) -> bytes:
    raw = encode(value)
    return to_wire(raw, method.response) if len(raw) <= SMALL_BODY else await aside.run(to_wire, raw, method.response)


if TYPE_CHECKING:
    from grpc import ServerCredentials
    from grpc.aio import Server

# How long calls in progress may take to end at shutdown.
CLOSING_S = 5.0
# As much as the HTTP server takes in headers: a credential that went through many hubs has some kilobytes.
MOST_METADATA = 65_536
# How long a connection without calls is kept open. Clients connect again by themselves.
IDLE_MS = 300_000
# Each connection may have this many calls at once, as servers of HTTP/2 usually allow.
MOST_CALLS = 100


class GrpcListener(Struct, frozen=True, kw_only=True):
    """Where a hub serves A2A over gRPC."""

    host: str = "127.0.0.1"
    port: int = 0
    """The port to listen on; 0 means any free port."""
    address: str | None = None
    """`host:port` for clients; None: the host of the agent card, and the port that is listened on."""
    certificate: str | None = None
    """The certificate, a PEM file; None: no encryption."""
    key: str | None = None
    """The private key of that certificate, a PEM file."""
    connections: int = MOST_CONNECTIONS
    """Maximum connections, and maximum calls in progress."""
    shared: bool = False
    """Whether other worker processes listen on the same port."""


class GrpcServer:
    """Serves A2A over gRPC, in the event loop of the caller."""

    def __init__(self, listener: GrpcListener, service: GrpcService) -> None:
        require_grpc()
        self._listener = listener
        self._service = service
        self._server: Server | None = None
        self.port = listener.port
        """The port; if any free one is wanted, it is known once the server has started."""

    async def start(self) -> None:
        """Start listening; raise a `RemitError` if that is not possible."""
        from grpc import aio

        listener = self._listener
        credentials = None if listener.certificate is None else _credentials(listener)
        try:
            bound = listening(listener.host, listener.port, shared=listener.shared)
        except RemitError as error:
            how = "Choose another with `grpc_port` of `[a2a]`, or 0 for any that is free."
            raise RemitError(replace(error.fault, suggestion=how)) from error
        self.port = bound.getsockname()[1]
        self._front = front = GrpcFront(bound, listener.connections)
        server = aio.server(options=_options(listener.connections), maximum_concurrent_rpcs=listener.connections)
        server.add_generic_rpc_handlers((self._service.handler(front),))
        if credentials is None:
            server.add_insecure_port(f"unix:{front.inner}")
        else:
            server.add_secure_port(f"unix:{front.inner}", credentials)
        await server.start()
        await front.start()
        self._server = server

    async def stop(self) -> None:
        """Accept nothing more, let calls in progress end, then close."""
        server, self._server = self._server, None
        if server is not None:
            self._front.stop()
            await server.stop(CLOSING_S)
            await self._service.idle()
            self._front.close()


def _options(connections: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", MAX_BYTES),
        ("grpc.max_send_message_length", -1),  # an answer is limited where it is made
        ("grpc.max_metadata_size", MOST_METADATA),
        ("grpc.absolute_max_metadata_size", MOST_METADATA),
        # No more than one user may have in progress: over one channel, calls wait instead of being refused.
        ("grpc.max_concurrent_streams", max(1, min(MOST_CALLS, connections // 2))),
        # Else gRPC resets calls of clients that keep to it, while it cleans up after earlier ones.
        ("grpc.http.overload_protection", 0),
        # A few bytes may decompress to gigabytes: only uncompressed messages are read (bit 0).
        ("grpc.compression_enabled_algorithms_bitset", 1),
        # Without it, gRPC would read ahead megabytes of a message that nobody waits for.
        ("grpc.http2.bdp_probe", 0),
        # It closes its end of a connection in its own time: meanwhile others must not add to those.
        ("grpc.max_allowed_incoming_connections", connections + MOST_UNKNOWN),
        ("grpc.max_connection_idle_ms", IDLE_MS),
        # Finds dead clients, and keeps silent streams open; clients may do the same.
        ("grpc.keepalive_time_ms", round(KEEP_ALIVE_S * 1_000)),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ]


def _credentials(listener: GrpcListener) -> "ServerCredentials":
    from grpc import ssl_server_credentials

    try:
        certificate, key = (
            Path(listener.certificate or "").read_bytes(),
            Path(listener.key or listener.certificate or "").read_bytes(),
        )
    except OSError as error:
        why = f"the certificate for gRPC cannot be read: {error.filename}: {error.strerror}"
        raise RemitError(fault(Code.TEAM_INVALID, why)) from error
    return ssl_server_credentials([(key, certificate)])
