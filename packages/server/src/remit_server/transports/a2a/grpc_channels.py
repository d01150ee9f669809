"""Connections to A2A peers over gRPC: only to addresses that were judged, encrypted unless that may be left out."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from remit.protocol.errors import Code, RemitError, fault
from remit_server.transports.a2a.calls import A2aUnreached
from remit_server.transports.a2a.grpc_messages import require_grpc
from remit_server.transports.addresses import (
    Lookup,
    OutboundHosts,
    is_loopback,
    judged_addresses,
    parsed,
    system_lookup,
)
from remit_server.transports.remote_calls import CONNECT_S

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
            found = await judged_addresses(host, port, self._reach, self._lookup)
        except OSError as error:
            raise A2aUnreached(str(error)) from error
        options: list[tuple[str, str | int]] = [
            ("grpc.max_receive_message_length", self._max_bytes),
            ("grpc.default_authority", parts.netloc),
            ("grpc.enable_http_proxy", 0),  # the connection goes to the address that was judged
            # Retries are decided where it is known what may run twice. gRPC itself repeats only what was never sent.
            ("grpc.service_config_disable_resolution", 1),
        ]
        six = [each for each in found if ":" in each]
        four = [each for each in found if ":" not in each]
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
