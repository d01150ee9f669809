"""The hub as a web application: its routes."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route

from remit.documents.spend import Pricing
from remit.protocol.codec import encode
from remit.protocol.errors import RemitError
from remit.runtime.clock import LoopClock
from remit.runtime.engine import Engine
from remit.server.access import SenderGate, access_to
from remit.server.access_log import AccessLog
from remit.server.agent_endpoints import AgentEndpoints
from remit.server.audit_endpoints import AuditEndpoints
from remit.server.bodies import JSON, Receive, Scope, Send, headers_of, send_bytes
from remit.server.connections import MOST_CONNECTIONS
from remit.server.console.api_docs import PAGE, ApiDocs
from remit.server.console.hosts import ConsoleHosts
from remit.server.decision_endpoints import DecisionEndpoints
from remit.server.delegation_endpoints import DelegationEndpoints
from remit.server.delegations import Delegations
from remit.server.dialect_endpoints import DialectEndpoints
from remit.server.event_endpoints import EventEndpoints
from remit.server.figures import CurrentFigures
from remit.server.figures_endpoints import FiguresEndpoints
from remit.server.lookup_endpoints import TYPE, LookupEndpoints, MetricsPage, Readiness
from remit.server.mcp.endpoint import McpEndpoint
from remit.server.mcp.offer import McpOffer
from remit.server.public_console import CONSOLE, ENTER, LINKS, SESSION
from remit.server.refusals import REFUSALS, Endpoint, Refusals, guarded
from remit.server.run_endpoints import RunEndpoints
from remit.server.session_endpoints import SessionEndpoints
from remit.server.team_policy import PlainPolicy, TeamPolicy
from remit.server.unknown_paths import no_such_thing
from remit.server.user_endpoints import UserEndpoints
from remit.server.worker_metrics import WorkerMetrics
from remit.server.workflow_endpoints import WorkflowEndpoints
from remit.transports.credentials.headers import PROOF
from remit.transports.credentials.reply import SignedReply

if TYPE_CHECKING:  # most hubs do not serve A2A, or the console
    from remit.server.a2a.routes import A2a, Exposure
    from remit.server.console.console import Console

# A store that has not written for this long is not ready.
READY_S = 2.0
# How long a part of the server may take to close after the drain: none has anything to lose.
PART_S = 1.0
# Of a server that does not say under which names it is reached.
LOOPBACK = ConsoleHosts(0)
_PROOF = PROOF.lower().encode()
_TEXT = ((b"content-type", b"text/plain; charset=utf-8"),)


class Api:
    """What a server serves, and what it must be told before it stops."""

    def __init__(
        self,
        hub: Engine,
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
        self._workers = workers
        self.refusals = Refusals(hub, proxies=proxies)
        self._gate = gate
        self.delegations = Delegations(hub, gate, exposed or (lambda: hub.cards), connections)
        self._endpoints = DelegationEndpoints(self.delegations)
        self._looking = LookupEndpoints(self.delegations)
        self._events = EventEndpoints(self.delegations)
        self._audit = AuditEndpoints(self.delegations, LoopClock().wall_ms)
        self._decisions = DecisionEndpoints(self.delegations, policy or PlainPolicy(hub))
        self._metrics = MetricsPage(hub)
        figures, pricing = CurrentFigures(hub.store), pricing or Pricing()
        self._runs = RunEndpoints(self.delegations, pricing)
        self._figures_of = FiguresEndpoints(self.delegations, figures, pricing)
        self._agents = AgentEndpoints(self.delegations, figures, pricing)
        self._readiness = Readiness(hub.store)
        self._foreign = DialectEndpoints(self.delegations)
        self._mcp = McpEndpoint(self.delegations, hosts or LOOPBACK, mcp or McpOffer())
        self._document = b""
        self._docs = ApiDocs()
        self._ask = guarded(self._endpoints.ask, access_to("POST", "/v1/delegations"), "/v1/delegations")
        self.hurried = asyncio.Event()
        """Set to stop without waiting for running delegations."""
        self._a2a = None if a2a is None else _speaking(self.delegations, a2a, self.refusals)
        others = [] if self._a2a is None else self._a2a.routes()
        self.routes = [*self._routes(), *self._console_routes(), *others]
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
        if await self._docs.sends_file(scope, send):
            return
        if self.console is not None and await self.console.answers(scope, send):
            return
        if scope["raw_path"] == b"/v1/delegations" and scope["method"] == "POST":
            # The most frequent request skips the router.
            await self._ask(scope, receive, send)
            return
        scope["path"] = scope["raw_path"].decode("ascii")
        await self._app(scope, receive, send)

    def _routes(self) -> list[BaseRoute]:
        asked, seen = self._endpoints, self._looking
        audited, talks = self._audit, SessionEndpoints(self.delegations)
        return [
            _route("/v1/delegations", asked.ask, "POST"),
            _route("/v1/delegations/{id}", asked.look),
            _route("/v1/delegations/{id}/events", asked.read_along),
            _route("/v1/delegations/{id}/cancel", asked.cancel, "POST"),
            _route("/v1/agents", seen.agents),
            _route("/v1/agents/{name}", seen.agent),
            _route("/v1/agents/{name}/status", self._agents.status),
            _route("/v1/graph", self._agents.graph),
            _route("/v1/spend", self._figures_of.spend),
            _route("/v1/series", self._figures_of.series),
            _route("/v1/budgets", self._figures_of.budgets),
            _route("/v1/runs", self._runs.runs),
            _route("/v1/runs/{run}", self._runs.run),
            _route("/v1/runs/{run}/tree", self._runs.tree),
            _route("/v1/runs/{run}/cancel", self._runs.cancel, "POST"),
            _route("/v1/runs/{run}/retry", self._runs.retry, "POST"),
            _route("/v1/runs/{run}/resume", self._runs.resume, "POST"),
            _route("/v1/events", self._events.events),
            _route("/v1/runs/{run}/workflow", WorkflowEndpoints(self.delegations).workflow),
            _route("/v1/sessions", talks.sessions),
            _route("/v1/sessions/{id}", talks.session),
            _route("/v1/audit", audited.rows),
            _route("/v1/audit/search", audited.search),
            _route("/v1/audit/export", audited.export),
            _route("/v1/audit/verification", audited.verification),
            _route("/v1/audit/verification", audited.verification, "POST"),
            _route("/v1/audit/{seq}", audited.row),
            *(_route(path, endpoint, method) for path, endpoint, method in self._decisions.routes()),
            _route("/v1/users/{user}", UserEndpoints(self.delegations).erase, "DELETE"),
            _route("/dialects/{name}", self._foreign.speak, "POST"),
            # Clients append paths of their own to the base URL: `/.netlify/functions/chat-internal`.
            _route("/dialects/{name}/{rest:path}", self._foreign.speak, "POST"),
            Route(
                "/mcp", guarded(self._mcp.serve, access_to("POST", "/mcp"), "/mcp"), methods=["GET", "POST", "DELETE"]
            ),
            _route("/metrics", self._figures),
            _route("/openapi.json", self._openapi),
            _route(PAGE, self._docs.page),
            _route("/healthz", self._healthz),
            _route("/readyz", self._readyz),
        ]

    def _console_routes(self) -> list[BaseRoute]:
        if self.console is None:
            return []
        from remit.server.console.endpoints import ConsoleEndpoints

        browser = ConsoleEndpoints(self.console, self.delegations.sender)
        return [
            _route(CONSOLE, browser.show),
            _route(SESSION, browser.sign_in, "POST"),
            _route(SESSION, browser.sign_out, "DELETE"),
            _route(ENTER, browser.enter),
            _route(LINKS, browser.link, "POST"),
        ]

    async def _figures(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        await self.delegations.sender(scope, headers_of(scope))
        page = self._metrics.page(ready=not await self._unready())
        if self._workers is not None:
            page = await self._workers.of_all(page)
        await send_bytes(send, 200, page, ((b"content-type", TYPE),))

    def own_metrics(self) -> bytes:
        """Return the metrics of this process, for another worker of the same server."""
        return self._metrics.page(ready=not self.delegations.draining)

    async def _openapi(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        # The sources of the types are read for it: 0.1 s, in which other requests go on.
        self._document = self._document or await asyncio.to_thread(_described)
        await send_bytes(send, 200, self._document, ((b"content-type", JSON),))

    async def _healthz(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        await send_bytes(send, 200, b"alive\n", _TEXT)

    async def _readyz(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        why = await self._unready()
        await send_bytes(send, 503 if why else 200, why or b"ready\n", _TEXT)

    async def _unready(self) -> bytes:
        """Return why the server takes no requests; empty: it takes them."""
        if self.delegations.draining:
            return b"going down\n"
        return b"" if await self._readiness.can_write(READY_S) else b"the store cannot write\n"

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
        asked = self.delegations
        asked.draining = True
        self._events.tail.close()
        for events in list(asked.streams):
            events.close()  # readers continue at another server, after the last event that they received
        waits = {asyncio.create_task(asked.idle()), asyncio.create_task(self.hurried.wait())}
        try:
            await asyncio.wait(waits, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(PART_S):
                await self._mcp.close()
                await self._readiness.close()
                await self._audit.verifier.close()
        asked.close()
        if self._a2a is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(PART_S):
                    await self._a2a.close()  # calls over gRPC that still wait have got their handles
        self.refusals.close()
        return asked.under_way


def _speaking(delegations: Delegations, exposure: "Exposure", refusals: Refusals) -> "A2a":
    from remit.server.a2a.routes import A2a

    return A2a(delegations, exposure, refusals)


def _route(path: str, endpoint: Endpoint, method: str = "GET") -> Route:
    return Route(path, guarded(endpoint, access_to(method, path), path), methods=[method])


def _described() -> bytes:
    """Return the OpenAPI description; few servers are asked for it, so what makes it is loaded then."""
    from remit.server.openapi import document

    return encode(document())
