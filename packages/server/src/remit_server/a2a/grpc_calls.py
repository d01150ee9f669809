"""A2A over gRPC, as a client: encrypted connections to addresses that were judged, and the calls over them."""

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, cast
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from remit.ports import OutgoingRequest
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.aside import SMALL_BODY, aside
from remit_server.a2a.grpc_messages import (
    STATUS,
    GrpcMethod,
    InvalidMessage,
    grpc_methods,
    require_grpc,
    status_in,
    to_json,
    to_wire,
)
from remit_server.a2a.http_calls import A2aCallee, A2aConnectionLost, A2aReply, A2aUnreached, refuse
from remit_server.dialects.a2a.types import METHODS
from remit_server.transports.addresses import (
    Lookup,
    OutboundHosts,
    is_loopback,
    judged_addresses,
    parsed,
    system_lookup,
)
from remit_server.transports.remote_calls import ASK_FOR_LESS, CANCEL_S, CONNECT_S

if TYPE_CHECKING:
    from grpc import ChannelCredentials
    from grpc.aio import Channel

_ENCRYPTED: Mapping[str, bool] = {"https": True, "grpcs": True, "http": False, "grpc": False}


def grpc_url(url: str, reach: OutboundHosts, *, is_https: bool) -> str:
    """Return the address in an agent card as a URL that says whether it is encrypted; raise a `RemitError` if invalid.

    An address without a scheme is encrypted, unless it is on this machine or at a host that an operator named, and the
    card itself (*is_https*) was not encrypted either.
    """
    scheme, there, rest = url.partition("://")
    parts = urlsplit(f"//{rest if there else url}")
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    encrypted = _ENCRYPTED.get(scheme.lower()) if there else True
    if not host or encrypted is None:
        why = "the agent card cannot be used: it names an invalid address for gRPC"
        raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, why, detail=url[:200]))
    may_be_plain = not is_https and (is_loopback(host) or reach.means(host))
    if not there and may_be_plain:
        encrypted = False
    if not encrypted and not may_be_plain and not is_https:
        allow = "Ask its owner for an encrypted address, or name the host in `hosts`."
        why = "the agent card points to gRPC without encryption"
        raise RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=allow, detail=url[:200]))
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if encrypted else 'http'}://{name}:{port or (443 if encrypted else 80)}"


class _Held:
    """An open connection, and how many calls use it."""

    def __init__(self, channel: "Channel") -> None:
        self.channel = channel
        self.calls = 0


class GrpcChannels:
    """The connections to one peer: each address is resolved once, checked, and used exactly as checked."""

    def __init__(self, reach: OutboundHosts, max_bytes: int, lookup: Lookup | None = None) -> None:
        self._reach = reach
        self._max_bytes = max_bytes
        self._lookup = lookup or system_lookup
        self._held: dict[str, _Held] = {}
        self._dropped: list[_Held] = []
        """Connections for no more calls than those that use them."""

    @asynccontextmanager
    async def channel(self, url: str) -> "AsyncGenerator[Channel]":
        """Yield a connection to a URL that `grpc_url` returned, or raise `A2aUnreached`."""
        held = self._held.get(url)
        if held is not None and not await _is_ready(held.channel):
            self.forget()
            held = None
        held = held or await self._connected(url)
        held.calls += 1
        try:
            yield held.channel
        finally:
            held.calls -= 1
            await self._close_unused()

    def forget(self) -> None:
        """Connect anew from now on; calls in progress keep their connections."""
        self._dropped += self._held.values()
        self._held.clear()

    async def close(self) -> None:
        """Close the connections."""
        self.forget()
        dropped, self._dropped = self._dropped, []
        for held in dropped:
            await held.channel.close()

    async def _close_unused(self) -> None:
        unused = [held for held in self._dropped if not held.calls]
        self._dropped = [held for held in self._dropped if held.calls]
        for held in unused:
            await held.channel.close()

    async def _connected(self, url: str) -> _Held:
        await self._close_unused()
        for channel in await self._channels(url):
            held = _Held(channel)
            self._dropped.append(held)  # until it is known to be of use
            if not await _is_ready(channel):
                continue
            if url in self._held:  # another call was faster
                return self._held[url]
            self._dropped.remove(held)
            self._held[url] = held
            return held
        raise A2aUnreached("no connection")

    async def _channels(self, url: str) -> "list[Channel]":
        """Return a connection for each kind of address that a host has; they are made when they are first used."""
        require_grpc()
        from grpc import aio

        parts = parsed(url, self._reach)
        host, port = parts.hostname or "", parts.port or 443
        try:
            addresses = await judged_addresses(host, port, self._reach, self._lookup)
        except OSError as error:
            raise A2aUnreached(str(error)) from error
        options: list[tuple[str, str | int]] = [
            ("grpc.max_receive_message_length", self._max_bytes),
            ("grpc.default_authority", parts.netloc),
            ("grpc.enable_http_proxy", 0),  # the connection goes to the address that was judged
            # Retries are decided where it is known what may run twice. gRPC itself repeats only what was never sent.
            ("grpc.service_config_disable_resolution", 1),
        ]
        six = [each for each in addresses if ":" in each]
        four = [each for each in addresses if ":" not in each]
        targets = [f"ipv4:{','.join(f'{each}:{port}' for each in four)}"] if four else []
        targets += [f"ipv6:{','.join(f'[{each}]:{port}' for each in six)}"] if six else []
        if parts.scheme == "http":
            return [aio.insecure_channel(target, options) for target in targets]
        options.append(("grpc.ssl_target_name_override", host))
        return [aio.secure_channel(target, _trusting(), options) for target in targets]


async def _is_ready(channel: "Channel") -> bool:
    from grpc import ChannelConnectivity as State

    try:
        async with asyncio.timeout(CONNECT_S):
            state = channel.get_state(try_to_connect=True)
            while state not in (State.READY, State.TRANSIENT_FAILURE, State.SHUTDOWN):
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
    except TimeoutError:
        return False
    return state is State.READY


def _trusting() -> "ChannelCredentials":
    """Return the certificates that this machine trusts, as for https; gRPC would bring a list of its own."""
    from grpc import ssl_channel_credentials

    file = cast("str | None", ssl.get_default_verify_paths().cafile)
    roots = None if file is None else Path(file).read_bytes()
    return ssl_channel_credentials(roots)


if TYPE_CHECKING:
    from grpc import StatusCode
    from grpc.aio import AioRpcError, Channel

# The deadline of a call is that of its delegation, which the hub ends itself. Only if its clock stands still while a
# person is asked, the call ends first; then the hub has this long to show that it does not.
HUB_ENDS_S = 1.0

# Headers of HTTP that gRPC writes itself, or that say something else there.
_NOT_METADATA = frozenset(("accept", "connection", "content-length", "content-type", "host", "te", "user-agent"))
_KEY = re.compile(r"[a-z0-9_.-]{1,100}", re.ASCII)
_VALUE = re.compile(r"[\x20-\x7e]*", re.ASCII)
_DELAY = re.compile(r"([0-9]{1,6})(?:\.([0-9]{1,9}))?s", re.ASCII)

# The HTTP status that means the same, and for errors without a reason the number in JSON-RPC.
_HTTP = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
_RPC = {
    "NOT_FOUND": -32001,
    "FAILED_PRECONDITION": -32004,
    "UNIMPLEMENTED": -32004,
    "INVALID_ARGUMENT": -32602,
    "INTERNAL": -32603,
}


class GrpcCaller:
    """Calls an agent over gRPC."""

    def __init__(self, callee: A2aCallee, channels: GrpcChannels) -> None:
        self._callee = callee
        self._channels = channels

    async def prepare(
        self,
        method: str,
        params: bytes,
        *,
        is_stream: bool,  # noqa: ARG002 - the method says it
        named: str,  # noqa: ARG002 - the parameters say it
    ) -> AbstractAsyncContextManager[A2aReply]:
        """Return a call that is ready to be sent."""
        grpc_method = grpc_methods()[method]
        try:
            if len(params) <= SMALL_BODY:
                raw = to_wire(params, grpc_method.request)
            else:
                raw = await aside.run(to_wire, params, grpc_method.request)
        except InvalidMessage as error:
            why = f"the request to {self._callee.name} cannot be sent as protobuf: {error}"
            raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, why)) from error
        headers = await self._callee.headers(OutgoingRequest("POST", grpc_method.path, raw))
        return self._reply(grpc_method, raw, headers, begins=METHODS[method].begins)

    @asynccontextmanager
    async def _reply(
        self, method: GrpcMethod, raw: bytes, headers: Mapping[str, str], *, begins: bool
    ) -> AsyncGenerator[A2aReply]:
        from grpc.aio import AioRpcError

        left_s = self._callee.time_left_ms() / 1_000
        async with self._channels.channel(self._callee.offer.url) as channel:
            try:
                async with _called(channel, method, raw, headers, left_s if begins else max(left_s, CANCEL_S)) as reply:
                    extensions, pieces = reply
                    yield A2aReply(extensions, self._decoded(pieces, method))
            except AioRpcError as error:
                await self._fail(error)

    async def _decoded(self, pieces: AsyncGenerator[bytes, None], method: GrpcMethod) -> AsyncGenerator[bytes, None]:
        async for raw in pieces:
            try:
                if len(raw) <= SMALL_BODY:
                    yield to_json(raw, method.response)
                else:
                    yield await aside.run(to_json, raw, method.response)
            except InvalidMessage as error:
                raise RemitError(self._callee.garbage(f"an invalid message: {error}")) from error

    async def _fail(self, error: "AioRpcError") -> Never:
        code, callee = error.code(), self._callee
        details = next((value for key, value in error.trailing_metadata() or () if key == STATUS), None)
        message = (error.details() or "")[:1_000]
        if not isinstance(details, bytes):
            if code.name == "RESOURCE_EXHAUSTED" and "larger than max" in message:  # found out here, by grpcio
                why = f"the answer is larger than {callee.max_bytes} bytes"
                raise RemitError(fault(Code.TOO_LARGE, why, suggestion=ASK_FOR_LESS)) from error
            if code.name == "DEADLINE_EXCEEDED":
                await asyncio.sleep(HUB_ENDS_S)
            if code.name in ("DEADLINE_EXCEEDED", "UNAVAILABLE", "CANCELLED"):
                raise A2aConnectionLost(code.name) from error
        status = _HTTP.get(code.name, 500)
        body = _body(code, message, details if isinstance(details, bytes) else b"")
        why = callee.tongue.fault(status, msgspec.json.encode(body), callee.name)
        if why.retry_after_ms is None:
            why = replace(why, retry_after_ms=_delay_ms(body["details"]))
        refuse(why, status)


@asynccontextmanager
async def _called(
    channel: "Channel", method: GrpcMethod, raw: bytes, headers: Mapping[str, str], timeout_s: float
) -> AsyncGenerator[tuple[str, AsyncGenerator[bytes, None]]]:
    """Send a call, and yield the extensions that the peer confirms with its first message, and the messages."""
    from grpc import aio

    metadata = tuple(_metadata(headers).items())
    calls: Any = channel
    if method.streams:
        call = calls.unary_stream(method.path)(raw, metadata=metadata, timeout=timeout_s)
    else:
        call = calls.unary_unary(method.path)(raw, metadata=metadata, timeout=timeout_s)
    try:
        first = await (call.read() if method.streams else call)
        extensions = ", ".join(str(value) for key, value in await call.initial_metadata() if key == "a2a-extensions")

        async def pieces() -> AsyncGenerator[bytes, None]:
            message = first
            while isinstance(message, bytes):
                yield message
                message = await call.read() if method.streams else aio.EOF

        yield extensions, pieces()
    finally:
        call.cancel()


def _metadata(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers as metadata, without those that gRPC does not take."""
    lower = {key.lower(): value for key, value in headers.items()}
    return {
        key: value
        for key, value in lower.items()
        if key not in _NOT_METADATA
        and not key.startswith("grpc-")
        and not key.endswith("-bin")
        and _KEY.fullmatch(key)
        and _VALUE.fullmatch(value)
    }


def _body(code: "StatusCode", message: str, details: bytes) -> dict[str, Any]:
    """Return an error as it would be in JSON."""
    body: dict[str, Any] = {"message": message, "details": list[Any](), **status_in(details)}
    if not any(each.get("reason") for each in body["details"]):
        body["code"] = _RPC.get(code.name, 0)
    return body


def _delay_ms(details: list[Any]) -> int | None:
    for each in details:
        if (match := _DELAY.fullmatch(str(each.get("retryDelay", "")))) is not None:
            return int(match[1]) * 1_000 + int((match[2] or "0").ljust(3, "0")[:3])
    return None
