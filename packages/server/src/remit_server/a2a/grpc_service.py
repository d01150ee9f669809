"""A2A over gRPC: the third binding, over the same operations as JSON-RPC and HTTP+JSON."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.reception import Sender
from remit.policy.shares import ShareOwner
from remit.protocol.codec import encode
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.aside import SMALL_BODY, aside
from remit.transports.local import FairSlots
from remit_server.a2a.binding import Bindings, object_in
from remit_server.a2a.grpc_front import GrpcFront
from remit_server.a2a.guests import NAME as GUEST
from remit_server.a2a.task_records import A2aCall
from remit_server.a2a.tasks import Streaming
from remit_server.access import OPERATION
from remit_server.all_operations import A2A_AGENT
from remit_server.bodies import Headers, Scope, headers_of, read_as, refuse_changed
from remit_server.connections import BODY_S, MOST_CONNECTIONS
from remit_server.delegations import Delegations
from remit_server.dialects.a2a.errors import RETRY_INFO, Declined, Error, ErrorBody, error_body
from remit_server.dialects.a2a.extension import EXTENSION
from remit_server.dialects.a2a.types import EXTENSIONS_HEADER
from remit_server.refusals import REFUSALS, Refusals, RequestShare, note, request_share
from remit_server.transports.a2a.grpc_messages import (
    STATUS,
    GrpcMethod,
    InvalidMessage,
    grpc_methods,
    status_to_wire,
    text_field,
    to_json,
    to_wire,
)
from remit_server.transports.remote_calls import time_there_ms

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
        asked = self._incoming(name, requests, context)
        async with self._answering(asked, context):
            call, done = await self._finished(asked)
            await _confirm(call, context)
            assert isinstance(done, Struct), "only a method that streams has a stream"
            return await _written(done, asked.method)
        raise AssertionError("an error ends the call")

    async def _stream(self, name: str, requests: AsyncIterator[bytes], context: "Context") -> None:
        asked = self._incoming(name, requests, context)
        async with self._answering(asked, context):
            call, done = await self._finished(asked)
            assert isinstance(done, Streaming), "a method that streams has a stream"
            events, rest = done.events, done.rest
            if events is not None:
                self._delegations.streams.add(events)
            try:
                await _confirm(call, context)
                await context.write(await _written(done.first, asked.method))
                if rest is not None:
                    async for said in rest:
                        for each in said:
                            await context.write(await _written(each, asked.method))
            finally:
                await self._close(done)

    async def _finished(self, asked: _Incoming) -> tuple[A2aCall, Struct | Streaming]:
        """Return the result of a request. If the client goes away meanwhile, the operation still ends in order."""
        doing = asyncio.ensure_future(self._do(asked))
        self._doing.add(doing)
        doing.add_done_callback(self._doing.discard)
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            asked.gone.set()
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

    async def _do(self, asked: _Incoming) -> tuple[A2aCall, Struct | Streaming]:
        headers = headers_of(asked.scope)
        sender = await self._bindings.known_sender(asked.scope, headers)
        client = GUEST if sender is None else sender.name
        self._front.know(asked.peer, client)
        raw = await self._message(asked.requests, client)
        tenant = text_field(raw, asked.method.tenant)
        call = await self._call(asked, tenant, headers, sender)
        refuse_changed(headers, raw)
        try:
            read = await read_as(partial(to_json, kind=asked.method.request), raw)
        except InvalidMessage as error:
            raise Declined(Error.INVALID_REQUEST, f"the message is invalid: {error}") from error
        params = await read_as(object_in, read)
        if params.pop("tenant", "") != tenant:
            why = "must stand before the other fields"
            raise Declined(Error.INVALID_PARAMS, "the tenant is not among the first fields", fields={"tenant": why})
        return call, await self._bindings.methods[asked.name].run(call, params)

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

    async def _call(self, asked: _Incoming, tenant: str, headers: Headers, sender: Sender | None) -> A2aCall:
        """Return who calls which agent, once that is allowed."""
        agent = tenant or self._default()
        try:
            call = await self._bindings.asked(agent, asked.scope, headers, asked.receive, sender)
        except RemitError as error:
            if agent or error.fault.code is not Code.AGENT_NOT_FOUND:
                raise
            why = "names the agent; this server has several, and no default"
            raise Declined(Error.INVALID_PARAMS, "the request names no agent", fields={"tenant": why}) from error
        return replace(call, time_ms=asked.time_ms)

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
    async def _answering(self, asked: _Incoming, context: "Context") -> AsyncGenerator[None]:
        """Answer with the error if an operation fails."""
        held = RequestShare()
        request_share.set(held)
        try:
            yield
            return
        except (Declined, RemitError) as error:
            why = error
        except InvalidMessage as error:
            log.error("%s: the answer cannot be sent as protobuf: %s", asked.name, error)
            why = Declined(Error.INTERNAL_ERROR, "the answer cannot be sent as protobuf")
        except Exception as error:
            if context.done():  # the client is gone, and nothing can be written any more
                raise asyncio.CancelledError from error
            log.error("%s failed: %s", asked.name, type(error).__name__)
            why = Declined(Error.INTERNAL_ERROR, f"the server failed ({type(error).__name__})")
        finally:
            held.leave()
        if isinstance(why, RemitError):
            _note(asked.scope, why)
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
