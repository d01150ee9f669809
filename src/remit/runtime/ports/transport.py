"""A transport: it carries requests to the agents that it serves."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from remit.protocol.envelope import Request, Response


class NobodyServesError(Exception):
    """No server for that agent can be reached; nothing was started."""


class Slot(Protocol):
    """One of an agent's concurrency slots.

    It is free while its holder waits for others, so waiting never blocks work.
    """

    def release(self) -> None: ...

    def regain_now(self) -> bool:
        """Take a slot again if one is free; return whether it was."""
        ...

    async def regain(self) -> None:
        """Return once a slot is taken again, ahead of all new requests."""
        ...


Handler = Callable[[Request, Slot], Awaitable[Response]]
"""Executes one request that a transport delivered."""


class Transport(Protocol):
    """Carries requests to the server of an agent, in this process or elsewhere."""

    async def request(self, agent: str, request: Request, deadline: float) -> Response:
        """Return the reply; raise `NobodyServesError`, `TimeoutError` (too late), or `RemitError` (queue full)."""
        ...

    def serve(
        self, agent: str, slots: int, queue: int, handler: Handler, *, elsewhere: bool = False
    ) -> Callable[[], None]:
        """Pass requests for *agent* to *handler*, at most *slots* at once; the returned function stops serving.

        A request that is forwarded for another hub to an agent *elsewhere* does not wait for a slot: hubs that call
        each other would deadlock.
        """
        ...

    def queued(self) -> dict[str, int]:
        """Return the number of waiting requests by agent."""
        ...
