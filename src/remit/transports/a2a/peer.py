"""An A2A peer: its agent card, its address, and reading of what it sends within limits."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection
from contextlib import AbstractAsyncContextManager
from itertools import count
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

from remit.protocol.envelope import Request
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.ports import Credential, OutgoingRequest, RemoteHandle
from remit.transports.a2a.translator import A2aEndpoint, Translator
from remit.transports.addresses import OutboundClient, OutboundHosts, is_local, parsed
from remit.transports.remote_calls import ASK_FOR_LESS, read_body

if TYPE_CHECKING:
    from aiohttp import ClientResponse

CARD_S = 10.0
# How long a card is cached, unless its agent is not where it says.
FRESH_S = 300.0
CARD_BYTES = 256 * 1024
CARD_PATH = "/.well-known/agent-card.json"
# An answer may have the maximum size, and its envelope adds to that.
AROUND_BYTES = 65_536


class A2aPeer:
    """An A2A peer: where its card is, which keys may sign it, and how this hub authenticates."""

    def __init__(
        self,
        card_url: str,
        tongue: Translator,
        *,
        token: str | None = None,
        credential: Credential | None = None,
        keys: Collection[str] = (),
        hosts: Collection[str] = (),
        private: bool = False,
        max_bytes: int = 4 * 1024 * 1024,
    ) -> None:
        host = (urlsplit(card_url).hostname or "").lower()
        # Whoever writes `http://10.0.0.7` means it; a public name that resolves to such an address may be an attack.
        named = {*(each.lower() for each in hosts), *((host,) if is_local(host) else ())}
        reach = OutboundHosts(hosts=frozenset(named), private=private)
        try:
            parts = parsed(card_url, reach)
        except RemitError as error:
            raise RemitError(fault(Code.TEAM_INVALID, f"invalid agent card address: {error.fault.message}")) from error
        self.card_url = card_url if parts.path.endswith(".json") else f"{card_url.rstrip('/')}{CARD_PATH}"
        self.tongue = tongue
        self.max_bytes = max_bytes + AROUND_BYTES
        self.sessions: OrderedDict[str, tuple[str, str]] = OrderedDict()
        """By our session: the peer's context id, and its task that waits for the user, if there is one."""
        self._host, self._hosts, self._is_https = host, frozenset(named), parts.scheme == "https"
        self._token = token
        self._credential = credential
        self._keys = frozenset(keys)
        self._outbound = OutboundClient(reach)
        self._offer: tuple[float, A2aEndpoint] | None = None
        self._numbers = count(1)

    async def close(self) -> None:
        """Close the connections."""
        await self._outbound.close()

    def forget(self) -> None:
        """Drop the cached card: its agent was not where it says."""
        self._offer = None

    async def offer(self) -> A2aEndpoint:
        """Return how the agent can be called."""
        now = asyncio.get_running_loop().time()
        if self._offer is not None and now - self._offer[0] < FRESH_S:
            return self._offer[1]
        async with asyncio.timeout(CARD_S):
            headers = {"accept": "application/json"} | self._proof()
            async with self._outbound.request("GET", self.card_url, headers=headers) as reply:
                if reply.status != 200:
                    why = f"no agent card found: status {reply.status}"
                    raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, why, detail=self.card_url))
                raw = await read_body(reply, CARD_BYTES)
        offer = self.tongue.offer(raw, self.card_url, self._keys)
        self._refuse_elsewhere(offer.url)
        self._offer = (now, offer)
        return offer

    def _refuse_elsewhere(self, url: str) -> None:
        """Raise a `RemitError` if a card points to a host that the team has not named: requests go nowhere else."""
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        if host != self._host and host not in self._hosts:
            detail = f"{self.card_url} points to {host[:200]}"
            allow = "If this is intended, the operator of this hub can add the host to `hosts`."
            raise RemitError(
                fault(Code.PERMISSION_DENIED, "the agent card points to another host", suggestion=allow, detail=detail)
            )
        if self._is_https and parts.scheme != "https":
            why = f"the agent card points from https to {parts.scheme}"
            how = "Ask its owner for a card with an https address."
            raise RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=how, detail=self.card_url))

    def _proof(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token}"} if self._token else {}

    async def headers(
        self, offer: A2aEndpoint, request: Request, line: RemoteHandle, call: "A2aHttpRequest"
    ) -> dict[str, str]:
        """Return the headers of a request."""
        headers = {**offer.headers, **self._proof(), "traceparent": request.traceparent or ""}
        if offer.extended:
            headers = {**line.passed_on, **headers}  # forwarded headers are not for peers without the extension
        if self._credential is None:
            return headers
        parts = urlsplit(call.url)
        path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        return headers | await self._credential(request, OutgoingRequest(call.verb, path, call.body or b""))

    def call(self, offer: A2aEndpoint, method: str, params: bytes, *, named: str = "") -> "A2aHttpRequest":
        """Return the HTTP request of a method; *named* is the task that it is about, if any."""
        if offer.is_rpc:
            number = next(self._numbers)
            body = b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}' % (number, method.encode(), params)
            return A2aHttpRequest("POST", offer.url, body)
        verb, path = _REST[method]
        base = f"{offer.url.rstrip('/')}{'/' + quote(offer.tenant, safe='') if offer.tenant else ''}"
        url = base + path.format(quote(named, safe=""))
        return A2aHttpRequest(verb, url, params if verb == "POST" else None)

    def request(self, call: "A2aHttpRequest", headers: dict[str, str]) -> "AbstractAsyncContextManager[ClientResponse]":
        """Return a call as an aiohttp request."""
        return self._outbound.request(call.verb, call.url, headers=headers, data=call.body)


class A2aHttpRequest(NamedTuple):
    """One call as it is sent."""

    verb: str
    url: str
    body: bytes | None


_REST = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{}"),
    "CancelTask": ("POST", "/tasks/{}:cancel"),
    "SubscribeToTask": ("POST", "/tasks/{}:subscribe"),
}


async def events(reply: "ClientResponse", most: int) -> AsyncGenerator[bytes, None]:
    """Yield the data of a stream's events, each within a size limit."""
    rest, data, size = bytearray(), list[bytes](), 0
    async for part in reply.content.iter_any():
        # Only the new bytes are searched: a peer that sends byte by byte must not cost more than others.
        start, begin = len(rest), 0
        rest += part
        while (end := rest.find(b"\n", max(start, begin))) >= 0:
            line = bytes(rest[begin:end]).removesuffix(b"\r")
            begin = end + 1
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
                size += len(line)
            elif not line and data:
                yield b"\n".join(data)
                data, size = [], 0
        del rest[:begin]
        if len(rest) + size > most:
            raise RemitError(fault(Code.TOO_LARGE, f"an event is larger than {most} bytes", suggestion=ASK_FOR_LESS))
    if data:
        yield b"\n".join(data)
