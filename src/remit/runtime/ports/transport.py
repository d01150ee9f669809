"""A transport: it brings requests to the agents that it serves."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from remit.protocol.envelope import Request, Response


class NobodyServesError(Exception):
    """No server for that agent can be reached: nothing was started."""


class Slot(Protocol):
    """One of an agent's places; given back while it waits for others, so that waiting never blocks working."""

    def release(self) -> None: ...

    def regain_now(self) -> bool:
        """Take a place again if that needs no waiting."""
        ...

    async def regain(self) -> None:
        """Return once there is a place again, ahead of all new work."""
        ...


Handler = Callable[[Request, Slot], Awaitable[Response]]
"""Carries out one request that a transport brought."""


class Transport(Protocol):
    """Brings requests to whoever serves an agent, in process or far away."""

    async def request(self, agent: str, request: Request, deadline: float) -> Response:
        """Return the reply; raise `NobodyServesError`, `TimeoutError` (too late), or `RemitError` (queue full)."""
        ...

    def serve(
        self, agent: str, slots: int, queue: int, handler: Handler, *, elsewhere: bool = False
    ) -> Callable[[], None]:
        """Hand requests for *agent* to *handler*, never more than *slots* at once; the function returned ends it.

        What is passed on for another hub to an agent that lives *elsewhere* does not wait for a slot: hubs that ask
        each other would wait in a circle.
        """
        ...

    def queued(self) -> dict[str, int]:
        """Return how many requests wait here for each agent that is served here."""
        ...
