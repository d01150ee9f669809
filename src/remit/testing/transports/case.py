"""Two hubs and a caller, for tests of transports."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

# The hub that every program opens, by its public name: what is behind it is no business of a test of transports.
import remit
from remit.protocol.envelope import Response
from remit.runtime.brief import Brief
from remit.testing.memory import MemoryStore

# Only what hangs takes as long.
PATIENCE = 20.0
USER = "anna"

Act = Callable[[Brief], Awaitable[Any]]


class TransportCase:
    """How a suite gets the two hubs that it tests, and what a transport cannot do."""

    no_streaming = ""
    """Why nothing of an answer is heard before its end."""
    no_progress = ""
    """Why nothing is heard of how far the work is."""
    no_way_back = ""
    """Why a callee cannot ask an agent of its caller's hub."""
    no_persons = ""
    """Why the time goes on while a person is asked at the callee's."""
    no_envelope = ""
    """Why the callee gets and gives less than the whole envelope: hints, artifacts, confidence and the like."""
    no_nesting = ""
    """Why the callee's remit is not carried, but only kept on the caller's side."""

    def hubs(self, **options: Any) -> "tuple[remit.Hub, remit.Hub]":
        """Return the caller's hub and the callee's, not open yet; they may be the same."""
        return remit.Hub(name="near", store=MemoryStore(), **options), remit.Hub(
            name="far", store=MemoryStore(), **options
        )

    @asynccontextmanager
    async def joined(self, near: "remit.Hub", far: "remit.Hub") -> AsyncGenerator[None]:  # noqa: ARG002 - for others
        """Open both hubs, with every agent of *far* at hand in *near* under its name, and `boss` of *near* in *far*."""
        raise NotImplementedError
        yield

    # ── helpers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def asked(self, callee: Act, call: Act, **options: Any) -> Response:
        """Have `boss` do *call*, which may ask `helper`, which does *callee*; return how the run ended."""
        near, far = self.hubs(**options)
        far.add("helper", callee)
        near.add("boss", call, may_call=["*"])
        async with self.joined(near, far), asyncio.timeout(PATIENCE):
            return await near.ask("boss", "Go", user=USER)

    async def answered(self, callee: Act, **options: Any) -> Response:
        """Return what `boss` gets from `helper`."""
        got: list[Response] = []

        async def boss(brief: Brief) -> str:
            given: Any = {"objective": "Help"} | options
            got.append(await brief.delegate("helper", **given))
            return "done"

        response = await self.asked(callee, boss)
        assert response.ok, response
        return got[0]
