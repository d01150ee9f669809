"""The hub as a web application: its routes."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from remit.protocol.codec import encode
from remit.protocol.errors import RemitError
from remit.runtime.clock import LoopClock
from remit.runtime.engine import Engine
from remit_server import all_operations
from remit_server.access import SenderGate
from remit_server.access_log import AccessLog
from remit_server.agent_endpoints import AgentEndpoints
from remit_server.approval_endpoints import ApprovalEndpoints
from remit_server.audit_endpoints import AuditEndpoints
from remit_server.bodies import JSON, Receive, Scope, Send, headers_of, send_bytes
from remit_server.connections import MOST_CONNECTIONS
from remit_server.console.hosts import ConsoleHosts
from remit_server.console.pages import ApiDocs
from remit_server.delegation_endpoints import TYPE, DelegationEndpoints, LookupEndpoints, MetricsPage, Readiness
from remit_server.delegations import Delegations
from remit_server.dialect_endpoints import DialectEndpoints
from remit_server.documents import api
from remit_server.documents.api import ApiOperation
from remit_server.documents.spend import Pricing
from remit_server.event_endpoints import EventEndpoints
from remit_server.figures_endpoints import CurrentFigures, FiguresEndpoints, WorkerMetrics
from remit_server.mcp.endpoint import McpEndpoint
from remit_server.mcp.host_delegations import McpOffer
from remit_server.operations import AnswerOf, Operation, added, answered, of_plugins, served
from remit_server.policy_endpoints import PlainPolicy, PolicyEndpoints, TeamPolicy
from remit_server.refusals import REFUSALS, Endpoint, Guarded, Refusals, no_such_thing
from remit_server.run_endpoints import RunEndpoints
from remit_server.session_endpoints import SessionEndpoints, UserEndpoints
from remit_server.transports.credentials.outgoing import SignedReply
from remit_server.transports.credentials.proof import PROOF

if TYPE_CHECKING:  # most hubs do not serve A2A, or the console
    from remit_server.a2a.routes import A2a, Exposure
    from remit_server.console.console import Console

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
        self._events = EventEndpoints(self.delegations)
        self._audit = AuditEndpoints(self.delegations, LoopClock().wall_ms)
        self._metrics = MetricsPage(hub)
        self._readiness = Readiness(hub.store)
        self._mcp = McpEndpoint(self.delegations, hosts or LOOPBACK, mcp or McpOffer())
        self._document = b""
        self._docs = ApiDocs()
        self._ask = Guarded(self._endpoints.ask, api.ASK)
        self.hurried = asyncio.Event()
        """Set to stop without waiting for running delegations."""
        self._a2a = None if a2a is None else _speaking(self.delegations, a2a, self.refusals)
        others = [] if self._a2a is None else self._a2a.routes()
        self._added = tuple(of_plugins(hub, (*all_operations.OPERATIONS, *all_operations.PROTOCOLS)))
        more = (added(each, self.delegations) for each in self._added)
        self.routes = [*self._routes(policy or PlainPolicy(hub), pricing or Pricing()), *others, *more]
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

    def _routes(self, policy: TeamPolicy, pricing: Pricing) -> list[BaseRoute]:
        """Return the routes. What an *answering* function returns is sent for it; a *sending* one sends it itself."""
        hub, received = self._hub, self.delegations
        figures = CurrentFigures(hub.store)
        runs, agents = RunEndpoints(received, policy, pricing), AgentEndpoints(received, figures, pricing)
        spend, cards = FiguresEndpoints(received, figures, pricing), LookupEndpoints(received)
        sessions, approvals = SessionEndpoints(received), ApprovalEndpoints(hub, policy)
        policies, audit, dialects = PolicyEndpoints(hub, policy), self._audit, DialectEndpoints(received)
        answering: list[tuple[ApiOperation, AnswerOf]] = [
            (api.LOOK, self._endpoints.look),
            (api.CANCEL, self._endpoints.cancel),
            (api.AGENTS, cards.agents),
            (api.AGENT_CARD, cards.agent),
            (all_operations.AGENT_STATUS, agents.status),
            (all_operations.GRAPH, agents.graph),
            (all_operations.SPEND, spend.spend),
            (all_operations.SERIES, spend.series),
            (all_operations.BUDGETS, spend.budgets),
            (api.RUNS, runs.runs),
            (api.RUN_TREE, runs.run),
            (all_operations.TREE, runs.tree),
            (all_operations.DELEGATION, runs.delegation),
            (all_operations.WORKFLOW, runs.workflow),
            (api.CANCEL_RUN, runs.cancel),
            (api.RETRY_RUN, runs.retry),
            (api.RESUME_RUN, runs.resume),
            (api.SESSIONS, sessions.sessions),
            (api.SESSION, sessions.session),
            (all_operations.AUDIT, audit.rows),
            (all_operations.SEARCH_AUDIT, audit.search),
            (all_operations.VERIFICATION, audit.verification),
            (all_operations.VERIFY, audit.verify),
            (api.APPROVALS, approvals.approvals),
            (api.ANSWER_SEVERAL, approvals.answer_several),
            (api.APPROVAL, approvals.approval),
            (api.ANSWER, approvals.answer),
            (all_operations.EXPLAIN, policies.explain),
            (all_operations.GUARDS, policies.guards),
            (all_operations.TEAM, policies.team),
            (all_operations.ERASE, UserEndpoints(hub).erase),
        ]
        sending: list[tuple[ApiOperation, Endpoint]] = [
            (api.ASK, self._endpoints.ask),
            (api.READ_ALONG, self._endpoints.read_along),
            (api.ALL_EVENTS, self._events.events),
            (all_operations.EXPORT_AUDIT, audit.export),
            (all_operations.SPEAK, dialects.speak),
            # Clients append paths of their own to the base URL: `/.netlify/functions/chat-internal`.
            (all_operations.SPEAK_AT, dialects.speak),
            *((each, self._mcp.serve) for each in all_operations.MCP),
            (all_operations.METRICS, self._metrics_page),
            (all_operations.OPENAPI, self._openapi),
            (all_operations.DOCS, self._docs.page),
            (all_operations.HEALTHZ, self._healthz),
            (all_operations.READYZ, self._readyz),
            *self._console_operations(),
        ]
        return [
            *(answered(operation, answer, received) for operation, answer in answering),
            *(served(operation, endpoint) for operation, endpoint in sending),
            # After all others: a number is any part of a path.
            answered(all_operations.AUDIT_ROW, audit.row, received),
        ]

    def _console_operations(self) -> Iterator[tuple[ApiOperation, Endpoint]]:
        if self.console is not None:
            from remit_server.console.console import ConsoleEndpoints

            yield from ConsoleEndpoints(self.console, self.delegations.sender).operations()

    async def _metrics_page(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
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
        self._document = self._document or await asyncio.to_thread(_described, self._added)
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
    from remit_server.a2a.routes import A2a

    return A2a(delegations, exposure, refusals)


def _described(operations: Sequence[Operation]) -> bytes:
    """Return the OpenAPI description; few servers are asked for it, so what makes it is loaded then."""
    from remit_server.openapi import document

    return encode(document(operations))
