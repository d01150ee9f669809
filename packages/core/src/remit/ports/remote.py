"""Transports, agents on other hubs, and what a hub offers the code that calls them."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from msgspec import Struct

from remit.protocol.envelope import Answer, Json, Request, Response
from remit.protocol.records import Approval


class Departure(Struct, frozen=True, omit_defaults=True):
    """A note that a request was about to be sent elsewhere: from then on it may have been executed there."""

    to: str
    """Its destination, and the agent's name there."""
    at_ms: int
    task: str = ""
    """The id that the other side gave the task, once known."""
    id: str = ""
    """The request id that it was sent with; empty: the sender's own, as in earlier versions."""


class RemoteHandle(Protocol):
    """What the code that calls a remote agent can do for its delegation."""

    @property
    def has_listeners(self) -> bool:
        """Whether anybody listens to the run: only then is streaming the answer worth its cost."""
        ...

    @property
    def has_alternative(self) -> bool:
        """Whether another agent is asked if this one cannot be reached."""
        ...

    @property
    def traceparent(self) -> str:
        """The delegation's traceparent header (W3C)."""
        ...

    @property
    def root(self) -> Request:
        """The redacted root request of the run, with its sender and its id."""
        ...

    @property
    def handed_back(self) -> bool:
        """Whether the run stops here only to be resumed: remote work may continue."""
        ...

    @property
    def passed_on(self) -> Mapping[str, str]:
        """Headers of the run's root request that are forwarded unchanged."""
        ...

    def time_left_ms(self) -> int: ...

    def progress(self, text: str, partial: Answer | None) -> None: ...

    def say(self, text: str) -> None: ...

    def settle(self, response: Response) -> None:
        """Count what was spent on a stopped remote delegation and keep its partial answer: its outcome is known."""
        ...

    async def record_approval(self, approval: Approval) -> None:
        """Record that a person is asked remotely, or has answered, and stop the clock meanwhile.

        The clock stands still for at most the time that a person may take. The record lets those who wait for this
        hub's answer see the reason.
        """
        ...

    def paused(self) -> AbstractAsyncContextManager[None]:
        """Stop the clock while a person is asked remotely, where the question itself is not known."""
        ...

    async def depart(self, to: str, *, in_store: bool = False) -> Departure | None:
        """Record that the request is about to be sent to *to*; nothing leaves the hub before this returns.

        A request that is sent by submitting it to this hub's own store (*in_store*) becomes durable together with the
        records before it.

        Returns None if nothing was sent before, as far as is known. Otherwise the request may have been executed there,
        and must end with that outcome or as `OUTCOME_UNKNOWN`. Raises a `RemitError` if nothing may be sent: another
        hub has taken the run over, or the request was sent to another destination.
        """
        ...

    def age_ms(self, left: Departure) -> int:
        """Return the milliseconds since the departure; negative if a clock was set back since."""
        ...

    def name(self, task: str) -> None:
        """Store the task id of the other side, so that the task can be found again after a restart."""
        ...

    async def state(self) -> dict[str, Json]:
        """Return what was kept for the conversation with this agent."""
        ...

    async def change(self, changes: dict[str, Json]) -> dict[str, Json]:
        """Keep values for the conversation with this agent, such as the other side's name for it."""
        ...

    @property
    def in_doubt(self) -> bool:
        """Whether it may have been executed elsewhere and its end is not known."""
        ...

    def doubt(self, why: str) -> None:
        """Say before each sending why the outcome would be unknown; empty: certainly nothing was sent.

        If the delegation is stopped in this state, it ends as `OUTCOME_UNKNOWN`.
        """
        ...


class HostingHub(NamedTuple):
    """A hub that hosts an agent, and how many more requests it could start there when it was last heard of."""

    hub: str
    free: int


class Remote:
    """An agent on another hub: it gets the request itself and returns the outcome there."""

    validates = False
    """Whether every response was read by `decode_response`, so that a short one needs no second check."""
    shares_store = False
    """Whether the hub that executes it has the same store: then it queues requests, and resumes their runs."""

    judges_tools = False
    """Whether conditions on the arguments of tools go along and are judged where it runs, or refused."""

    def slots(self, concurrency: int) -> int:
        """Return how many requests to it may be in progress from this hub, given the concurrency in its card."""
        return concurrency

    def hosts(self) -> tuple[HostingHub, ...]:
        """Return the hubs that host it, where that is known."""
        return ()

    def queued(self) -> int:
        """Return how many requests to it wait here for their turn, besides those that wait for a slot of this hub."""
        return 0

    async def is_resumable(self, within_s: float) -> bool | None:  # noqa: ARG002 - most know it at once
        """Return whether the hub that executes it may execute it again; None: that is not known *within_s*."""
        return True

    async def send(self, request: Request, line: RemoteHandle) -> Response:
        """Return the outcome. When cancelled, notify the other side before raising, within a short time."""
        raise NotImplementedError


class OtherHubs(Protocol):
    """The other hubs on the same store."""

    async def find(self, agent: str) -> None:
        """Look for an agent that this hub does not know, and register it if one of them hosts it."""
        ...

    def agent(self, name: str) -> Remote:
        """Return an agent as they host it."""
        ...


class Companion(Protocol):
    """Something that is open while its hub is, such as a connection to other hubs."""

    async def open(self) -> None:
        """Called once the hub is open."""
        ...

    async def drain(self, within_s: float) -> None:
        """Called when the hub is to end its work: take nothing new, and return once what was taken has ended, or
        *within_s* is over.
        """
        ...

    async def leave(self) -> None:
        """Called when the hub is about to close: start nothing new."""
        ...

    async def close(self) -> None:
        """Called when the runs of the hub have ended; its store is still open."""
        ...


class OutgoingRequest(NamedTuple):
    """One outgoing HTTP request: its method, its path (relative to the hub's address), its body."""

    method: str
    path: str
    body: bytes = b""


Credential = Callable[[Request, OutgoingRequest], Awaitable[dict[str, str]]]
"""Returns the headers that prove to another hub who sends which request, and that nobody changed it."""


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

    def free(self, agent: str) -> int:
        """Return how many more requests for *agent* could start now; 0 if nobody serves it."""
        ...

    def on_free(self, freed: Callable[[str], None]) -> None:
        """Call *freed* with an agent's name when one of its slots is free and no request waits for it."""
        ...
