"""An A2A peer: its agent card, its address, and how this hub authenticates to it."""

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from functools import partial
from urllib.parse import urlsplit

from remit.protocol.envelope import Request
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.files import MAX_FILES_JSON
from remit.runtime.ports import Credential, OutgoingRequest, RemoteHandle
from remit_server.transports.a2a.calls import A2aCallee, A2aCaller
from remit_server.transports.a2a.grpc_calls import GrpcCaller
from remit_server.transports.a2a.grpc_channels import GrpcChannels, grpc_url
from remit_server.transports.a2a.http_calls import HttpCaller
from remit_server.transports.a2a.translator import A2aEndpoint, Translator
from remit_server.transports.addresses import OutboundClient, OutboundHosts, is_local, parsed
from remit_server.transports.remote_calls import read_body

CARD_S = 10.0
# How long a card is cached, unless its agent is not where it says.
FRESH_S = 300.0
CARD_BYTES = 256 * 1024
CARD_PATH = "/.well-known/agent-card.json"
# An answer may have the maximum size, and its files and its envelope add to that.
AROUND_BYTES = 65_536 + MAX_FILES_JSON


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
        self._reach = reach
        self._outbound = OutboundClient(reach)
        self._channels: GrpcChannels | None = None
        self._offer: tuple[float, A2aEndpoint] | None = None

    async def close(self) -> None:
        """Close the connections."""
        await self._outbound.close()
        if self._channels is not None:
            await self._channels.close()

    def forget(self) -> None:
        """Drop the cached card: its agent was not where it says."""
        self._offer = None
        if self._channels is not None:
            self._channels.forget()

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
        if offer.binding == "GRPC":
            offer = offer._replace(url=grpc_url(offer.url, self._reach, is_https=self._is_https))
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

    async def _headers(
        self, offer: A2aEndpoint, request: Request, line: RemoteHandle, sending: OutgoingRequest
    ) -> dict[str, str]:
        headers = {**offer.headers, **self._proof(), "traceparent": request.traceparent or ""}
        if offer.extended:
            headers = {**line.passed_on, **headers}  # forwarded headers are not for peers without the extension
        return headers if self._credential is None else headers | await self._credential(request, sending)

    def caller(self, name: str, offer: A2aEndpoint, request: Request, line: RemoteHandle) -> A2aCaller:
        """Return what calls the agent for one request, in the binding that it offers."""
        callee = A2aCallee(
            name=name,
            offer=offer,
            tongue=self.tongue,
            max_bytes=self.max_bytes,
            headers=partial(self._headers, offer, request, line),
            time_left_ms=line.time_left_ms,
        )
        if offer.binding != "GRPC":
            return HttpCaller(callee, self._outbound)
        if self._channels is None:
            self._channels = GrpcChannels(self._reach, self.max_bytes)
        return GrpcCaller(callee, self._channels)
