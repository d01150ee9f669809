"""The hub as a web application: its routes."""

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from remit.protocol.codec import encode
from remit.protocol.errors import Code, fault
from remit.runtime.engine import Engine
from remit.server.access import SenderGate, access_to
from remit.server.bodies import JSON, Receive, Scope, Send, failure_body, headers_of, send_bytes
from remit.server.delegation_endpoints import DelegationEndpoints
from remit.server.delegations import Delegations
from remit.server.dialect_endpoints import DialectEndpoints
from remit.server.lookup_endpoints import TYPE, LookupEndpoints, MetricsPage, Readiness
from remit.server.mcp.endpoint import McpEndpoint
from remit.server.openapi import document
from remit.server.refusals import REFUSALS, Endpoint, Refusals, guarded
from remit.server.user_endpoints import UserEndpoints
from remit.server.worker_metrics import WorkerMetrics

if TYPE_CHECKING:  # most hubs do not serve A2A
    from remit.server.a2a.routes import A2a, Exposure

# A store that has not written for this long is not ready.
READY_S = 2.0
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
    ) -> None:
        self._hub = hub
        self._workers = workers
        self.refusals = Refusals(hub, proxies=proxies)
        self.delegations = Delegations(hub, gate, exposed or (lambda: hub.cards))
        self._endpoints = DelegationEndpoints(self.delegations)
        self._looking = LookupEndpoints(self.delegations)
        self._metrics = MetricsPage(hub)
        self._readiness = Readiness(hub.store)
        self._foreign = DialectEndpoints(self.delegations)
        self._mcp = McpEndpoint(self.delegations)
        self._document = b""
        self._ask = guarded(self._endpoints.ask, access_to("POST", "/v1/delegations"))
        self.hurried = asyncio.Event()
        """Set to stop without waiting for running delegations."""
        self._a2a = None if a2a is None else _speaking(self.delegations, a2a)
        others = [] if self._a2a is None else self._a2a.routes()
        self.routes = [*self._routes(), *others]
        self._app = Starlette(routes=self.routes, exception_handlers={HTTPException: no_such_thing})
        # A redirect would send clients to whatever host name they used.
        self._app.router.redirect_slashes = False
        hub.warm()

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route a request by its path as it was sent: decoded, an id with a slash would be another path."""
        scope[REFUSALS] = self.refusals
        if scope["raw_path"] == b"/v1/delegations" and scope["method"] == "POST":
            # The most frequent request skips the router.
            await self._ask(scope, receive, send)
            return
        scope["path"] = scope["raw_path"].decode("ascii")
        await self._app(scope, receive, send)

    def _routes(self) -> list[BaseRoute]:
        asked, seen = self._endpoints, self._looking
        return [
            _route("/v1/delegations", asked.ask, "POST"),
            _route("/v1/delegations/{id}", asked.look),
            _route("/v1/delegations/{id}/events", asked.read_along),
            _route("/v1/delegations/{id}/cancel", asked.cancel, "POST"),
            _route("/v1/agents", seen.agents),
            _route("/v1/agents/{name}", seen.agent),
            _route("/v1/runs", seen.runs),
            _route("/v1/runs/{run}", seen.run),
            _route("/v1/audit", seen.audit),
            _route("/v1/users/{user}", UserEndpoints(self.delegations).erase, "DELETE"),
            _route("/dialects/{name}", self._foreign.speak, "POST"),
            # Clients append paths of their own to the base URL: `/.netlify/functions/chat-internal`.
            _route("/dialects/{name}/{rest:path}", self._foreign.speak, "POST"),
            Route("/mcp", guarded(self._mcp.serve, access_to("POST", "/mcp")), methods=["GET", "POST", "DELETE"]),
            _route("/metrics", self._figures),
            _route("/openapi.json", self._openapi),
            _route("/healthz", self._healthz),
            _route("/readyz", self._readyz),
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
        self._document = self._document or encode(document())
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

    async def drain(self, wait_s: float) -> int:
        """Accept nothing more, wait for running delegations, and return how many have not ended after *wait_s*."""
        asked = self.delegations
        asked.draining = True
        for events in list(asked.streams):
            events.close()  # readers continue at another server, after the last event that they received
        waits = {asyncio.create_task(asked.idle()), asyncio.create_task(self.hurried.wait())}
        try:
            await asyncio.wait(waits, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._a2a is not None:
            await self._a2a.close()
        await self._mcp.close()
        await self._readiness.close()
        self.refusals.close()
        asked.close()
        return asked.under_way


def _speaking(delegations: Delegations, exposure: "Exposure") -> "A2a":
    from remit.server.a2a.routes import A2a

    return A2a(delegations, exposure)


async def no_such_thing(request: Request, error: Exception) -> Response:
    """Return the response for an unknown path or a method that is not allowed."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    if status == 405:
        takes = (headers or {}).get("Allow", "")
        what = f"method {request.method} not allowed at {request.url.path[:100]}; allowed: {takes}"
    else:
        what = f"nothing found at {request.url.path[:100]}"
    body = failure_body(fault(Code.NOT_FOUND, what, suggestion="`/openapi.json` lists what this server offers."))
    return Response(body, status, headers, media_type="application/json")


def _route(path: str, endpoint: Endpoint, method: str = "GET") -> Route:
    return Route(path, guarded(endpoint, access_to(method, path)), methods=[method])
