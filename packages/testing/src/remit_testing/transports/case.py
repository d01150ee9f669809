"""Two hubs and a caller, for tests of transports."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

# The public `Hub`: these tests must not depend on its internals.
import remit
from remit.protocol.envelope import Response
from remit.runtime.brief import Brief
from remit_testing.memory import MemoryStore

# Only a call that hangs takes this long.
PATIENCE = 20.0
USER = "anna"

Act = Callable[[Brief], Awaitable[Any]]


class TransportCase:
    """How a suite gets the two hubs that it tests, and what a transport cannot do."""

    no_streaming = ""
    """Why answers are not streamed."""
    no_progress = ""
    """Why progress is not reported."""
    no_way_back = ""
    """Why a callee cannot call an agent of its caller's hub."""
    no_persons = ""
    """Why the clock does not stop while the callee's hub asks a person."""
    no_envelope = ""
    """Why less than the whole envelope is sent: hints, artifacts, confidence and the like."""
    no_nesting = ""
    """Why the remit is not sent to the callee, but only enforced by the caller's hub."""

    def hubs(self, **options: Any) -> "tuple[remit.Hub, remit.Hub]":
        """Return the caller's hub and the callee's, not open yet; they may be the same."""
        return remit.Hub(name="near", store=MemoryStore(), **options), remit.Hub(
            name="far", store=MemoryStore(), **options
        )

    @asynccontextmanager
    async def joined(self, near: "remit.Hub", far: "remit.Hub") -> AsyncGenerator[None]:  # noqa: ARG002 - for others
        """Open both hubs; *near* has every agent of *far* under its name, and *far* has `boss` of *near*."""
        raise NotImplementedError
        yield

    # ── helpers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def asked(self, callee: Act, call: Act, **options: Any) -> Response:
        """Run `boss` with *call*, which may ask `helper`, which runs *callee*; return the response of the run."""
        near, far = self.hubs(**options)
        far.add("helper", callee)
        near.add("boss", call, may_call=["*"])
        async with self.joined(near, far), asyncio.timeout(PATIENCE):
            return await near.ask("boss", "Go", user=USER)

    async def answered(self, callee: Act, **options: Any) -> Response:
        """Return the response that `boss` gets from `helper`."""
        got: list[Response] = []

        async def boss(brief: Brief) -> str:
            given: Any = {"objective": "Help"} | options
            got.append(await brief.delegate("helper", **given))
            return "done"

        response = await self.asked(callee, boss)
        assert response.ok, response
        return got[0]
