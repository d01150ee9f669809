"""The hub as a web application: what answers its operations, and how it stops."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from remit.hub.hub import Hub
from remit.protocol.codec import encode
from remit.protocol.errors import RemitError
from remit.runtime.clock import LoopClock
from remit_server.access import SenderGate
from remit_server.access_log import AccessLog
from remit_server.agent_endpoints import AgentEndpoints
from remit_server.all_operations import OPERATIONS, PROTOCOLS
from remit_server.approval_endpoints import ApprovalEndpoints
from remit_server.audit_endpoints import AuditEndpoints
from remit_server.bodies import Receive, Scope, Send, headers_of
from remit_server.connections import MOST_CONNECTIONS
from remit_server.console.hosts import ConsoleHosts
from remit_server.console.pages import ApiDocs
from remit_server.delegation_endpoints import DelegationEndpoints
from remit_server.delegations import Delegations
from remit_server.dialect_endpoints import DialectEndpoints
from remit_server.documents.api import ASK
from remit_server.documents.spend import Pricing
from remit_server.event_endpoints import EventEndpoints
from remit_server.figures_endpoints import CurrentFigures, FiguresEndpoints, WorkerMetrics
from remit_server.mcp.endpoint import McpEndpoint
from remit_server.mcp.host_delegations import McpOffer
from remit_server.operations import Operation, added_route, of_plugins, routes_of
from remit_server.policy_endpoints import PlainPolicy, PolicyEndpoints, TeamPolicy
from remit_server.refusals import REFUSALS, Guarded, Refusals, no_such_thing
from remit_server.run_endpoints import RunEndpoints
from remit_server.server_endpoints import ServerEndpoints
from remit_server.session_endpoints import SessionEndpoints, UserEndpoints
from remit_server.transports.credentials.outgoing import SignedReply
from remit_server.transports.credentials.proof import PROOF

if TYPE_CHECKING:  # most hubs do not serve A2A, or the console
    from remit_server.a2a.routes import A2a, Exposure
    from remit_server.console.console import Console

# How long a part of the server may take to close after the drain: none has anything to lose.
PART_S = 1.0
# Of a server that does not say under which names it is reached.
LOOPBACK = ConsoleHosts(0)
_PROOF = PROOF.lower().encode()


class Api:
    """What a server serves, and what it must be told before it stops."""

    def __init__(
        self,
        hub: Hub,
        gate: SenderGate,
        *,
        exposed: Callable[[], Collection[str]] | None = None,
        a2a: "Exposure | None" = None,
        proxies: Collection[str] = (),
        workers: WorkerMetrics | None = None,
        console: "Console | None" = None,
        hosts: ConsoleHosts | None = None,
        mcp: McpOffer | None = None,
        policy: TeamPolicy | None = None,
        pricing: Pricing | None = None,
        access_log: AccessLog | None = None,
        connections: int = MOST_CONNECTIONS,
    ) -> None:
        self._hub = hub
        self._access_log = access_log
        self.console = console
        self.refusals = Refusals(hub, proxies=proxies)
        self._gate = gate
        self.delegations = Delegations(hub, gate, exposed or (lambda: hub.cards), connections)
        asking = DelegationEndpoints(self.delegations)
        self._ask = Guarded(asking.ask, ASK)
        self._events = EventEndpoints(self.delegations)
        self._audit = AuditEndpoints(self.delegations, LoopClock().wall_ms)
        self._mcp = McpEndpoint(self.delegations, hosts or LOOPBACK, mcp or McpOffer())
        self._docs = ApiDocs()
        self.hurried = asyncio.Event()
        """Set to stop without waiting for running delegations."""
        self._a2a = None if a2a is None else _speaking(self.delegations, a2a, self.refusals)
        added = tuple(of_plugins(hub, (*OPERATIONS, *PROTOCOLS)))
        self._server = ServerEndpoints(self.delegations, partial(_described, added), workers)
        policy, pricing, received = policy or PlainPolicy(hub), pricing or Pricing(), self.delegations
        figures = CurrentFigures(hub.store)
        parts = [
            asking,
            AgentEndpoints(received, figures, pricing),
            RunEndpoints(received, policy, pricing),
            self._events,
            FiguresEndpoints(received, figures, pricing),
            ApprovalEndpoints(hub, policy),
            SessionEndpoints(received),
            PolicyEndpoints(hub, policy),
            self._audit,
            UserEndpoints(hub),
            DialectEndpoints(received),
            self._docs,
            self._server,
            self._mcp,
            *self._console_endpoints(),
        ]
        self.routes: list[BaseRoute] = [
            *(route for part in parts for route in routes_of(part, received)),
            *(() if self._a2a is None else self._a2a.routes()),
            *(added_route(each, received) for each in added),
        ]
        self._app = Starlette(routes=self.routes, exception_handlers={HTTPException: no_such_thing})
        # A redirect would send clients to whatever host name they used.
        self._app.router.redirect_slashes = False
        hub.warm()

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        scope[REFUSALS] = self.refusals
        if self._access_log is None:
            await self._answer(scope, receive, send)
        else:
            await self._access_log.logged(self._answer, scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route a request by its path as it was sent: decoded, an id with a slash would be another path."""
        if scope["raw_path"].startswith(b"/v1/delegations") and any(name == _PROOF for name, _ in scope["headers"]):
            with suppress(RemitError):  # of invalid headers: its endpoint refuses the request
                headers = headers_of(scope)
                if (pair := self._gate.reply_pair(headers)) is not None:
                    send = SignedReply(pair, headers[_PROOF.decode()], send).send
        if not scope["raw_path"].startswith(b"/v1/") and await self._docs.sends_file(scope, send):
            return
        if self.console is not None and await self.console.answers(scope, send):
            return
        if scope["raw_path"] == b"/v1/delegations" and scope["method"] == "POST":
            # The most frequent request skips the router.
            await self._ask(scope, receive, send)
            return
        scope["path"] = scope["raw_path"].decode("ascii")
        await self._app(scope, receive, send)

    def _console_endpoints(self) -> Iterator[object]:
        if self.console is not None:
            from remit_server.console.console import ConsoleEndpoints

            yield ConsoleEndpoints(self.console, self.delegations.sender)

    def own_metrics(self) -> bytes:
        """Return the metrics of this process, for another worker of the same server."""
        return self._server.own_metrics()

    @property
    def grpc_address(self) -> str | None:
        """Where A2A is served over gRPC, as `host:port`; None: nowhere."""
        return None if self._a2a is None else self._a2a.grpc_address

    async def open(self) -> None:
        """Listen where the HTTP server does not; raise a `RemitError` if that is not possible."""
        if self._a2a is not None:
            await self._a2a.open()

    async def drain(self, wait_s: float) -> int:
        """Accept nothing more, wait for running delegations, and return how many have not ended after *wait_s*."""
        delegations = self.delegations
        delegations.draining = True
        self._events.tail.close()
        for events in list(delegations.streams):
            events.close()  # readers continue at another server, after the last event that they received
        waits = {asyncio.create_task(delegations.idle()), asyncio.create_task(self.hurried.wait())}
        try:
            await asyncio.wait(waits, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(PART_S):
                await self._mcp.close()
                await self._server.readiness.close()
                await self._audit.verifier.close()
        delegations.close()
        if self._a2a is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(PART_S):
                    await self._a2a.close()  # calls over gRPC that still wait have got their handles
        self.refusals.close()
        return delegations.under_way


def _speaking(delegations: Delegations, exposure: "Exposure", refusals: Refusals) -> "A2a":
    from remit_server.a2a.routes import A2a

    return A2a(delegations, exposure, refusals)


def _described(operations: Sequence[Operation]) -> bytes:
    """Return the OpenAPI description; few servers are asked for it, so what makes it is loaded then."""
    from remit_server.openapi import document

    return encode(document(operations))
