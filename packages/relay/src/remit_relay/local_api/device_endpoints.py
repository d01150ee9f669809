"""The endpoints of the local API about the device itself: its state, and a stream of what happens to it.

The stream begins with the state of the device, the devices that cannot be reached now, and why it stopped, if it did.
Then it tells of the connection, of calls to shared agents, and of commands that were refused. What happened while a
client was away is not repeated to it.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from typing import Literal

from msgspec import Struct

from remit.protocol.codec import encode
from remit.protocol.errors import Fault
from remit_relay.client.connection import State
from remit_relay.local_api.access import NO_STORE, LocalRequest
from remit_relay.local_api.views import shown_as
from remit_relay.serve_shared import SharingEvent
from remit_relay.session.repository import RemoteCommand
from remit_server.bodies import Receive, Scope, Send
from remit_server.delegations import DelayedCalls
from remit_server.documents.api import EVENTS
from remit_server.operations import answers, get, sends
from remit_server.streams import KEEP_ALIVE, KEEP_ALIVE_S, send_events

# More than happens while a client reads its last event. A client that is slower misses the oldest events.
MOST_UNREAD = 1_000


class OwnSharedAgent(Struct, frozen=True, kw_only=True):
    """An agent that this device shares."""

    name: str
    """The name under which it is shared."""
    agent: str
    """The agent of the team."""
    devices: tuple[str, ...]
    """The devices that may call it, by name, or as the team file names them if they are not known."""


class OwnDeviceStatus(Struct, frozen=True, kw_only=True):
    """The device, its process and its connection."""

    id: str
    name: str
    pid: int
    version: str
    command: str
    """The command of the process: `up`, `chat` or `share`."""
    since_ms: int
    gateway: str
    connection: State
    why: str
    """A sentence about the connection."""
    ready: bool
    """Whether other devices can reach it."""
    shared: tuple[OwnSharedAgent, ...]
    open_runs: int
    """The runs that have not ended."""
    waiting_drafts: int
    """The drafts that wait for a person."""
    clients: int
    """The readers of this stream."""


class CallNews(Struct, frozen=True, kw_only=True, tag="call"):
    """A call of another device to a shared agent, or its outcome, without its content."""

    at_ms: int
    device: str
    name: str
    """The local name of the device."""
    requester: str
    shared: str
    event: Literal["asked", "answered", "declined"]
    code: str


class TroubleNews(Struct, frozen=True, kw_only=True, tag="trouble"):
    """A device that cannot be reached, or can be reached again."""

    device: str
    name: str
    message: str
    """Empty: it recovered."""
    suggestion: str


class RefusedNews(Struct, frozen=True, kw_only=True, tag="refused"):
    """A command of another process that was not possible any more."""

    run: str
    by: str
    why: str


class EndedNews(Struct, frozen=True, kw_only=True, tag="ended"):
    """The device has stopped for good."""

    fault: Fault


News = CallNews | TroubleNews | RefusedNews | EndedNews


class DeviceNews:
    """Passes on what happens to a device: `relaying` calls its methods, and readers follow.

    *name_of* returns the local name of a device.
    """

    def __init__(self, now_ms: Callable[[], int], name_of: Callable[[str], str] = lambda device: device) -> None:
        self._now_ms = now_ms
        self.name_of = name_of
        self._readers: set[asyncio.Queue[News | None]] = set()
        self._troubles: dict[str, TroubleNews] = {}
        self._ended: EndedNews | None = None
        self._closed = False

    def linked(self, *_: object) -> None:
        """Note that the connection to the gateway changed: readers ask for the new state."""
        self._pass(None)

    def called(self, what: SharingEvent) -> None:
        """Note a call to a shared agent."""
        self._pass(shown_as(CallNews, what, at_ms=self._now_ms(), name=self.name_of(what.device)))

    def trouble(self, device: str, why: Fault | None) -> None:
        """Note that a device cannot be reached, or can be again."""
        message, suggestion = ("", "") if why is None else (why.message, why.suggestion)
        news = TroubleNews(device=device, name=self.name_of(device), message=message, suggestion=suggestion)
        if self._troubles.pop(device, None) is None and why is None:
            return
        if why is not None:
            self._troubles[device] = news
        self._pass(news)

    def unable(self, command: RemoteCommand, why: str) -> None:
        """Note that a command was refused."""
        self._pass(RefusedNews(run=command.run, by=command.by, why=why))

    def ended(self, why: Fault) -> None:
        """Note that the device has stopped for good."""
        self._ended = EndedNews(fault=why)
        self._pass(self._ended)

    def close(self) -> None:
        """Release all readers."""
        self._closed = True
        self._pass(None)

    @property
    def readers(self) -> int:
        """The number of readers."""
        return len(self._readers)

    @property
    def is_closed(self) -> bool:
        """Whether readers were released."""
        return self._closed

    def _pass(self, news: News | None) -> None:
        for queue in self._readers:
            if queue.qsize() >= MOST_UNREAD:
                queue.get_nowait()
            queue.put_nowait(news)

    @contextmanager
    def reading(self) -> Generator[asyncio.Queue[News | None]]:
        """Have a queue of news that begins with what still holds; None means that only the state changed."""
        queue: asyncio.Queue[News | None] = asyncio.Queue()
        for lasting in (*self._troubles.values(), *([self._ended] if self._ended else [])):
            queue.put_nowait(lasting)
        self._readers.add(queue)
        try:
            yield queue
        finally:
            self._readers.discard(queue)


class DeviceEndpoints:
    """The state of the device, and what happens to it; *status* returns the current state."""

    def __init__(self, news: DeviceNews, status: Callable[[], OwnDeviceStatus]) -> None:
        self._news = news
        self._status = status
        self._soon = DelayedCalls()

    @answers(get("/v1/shared/device"))
    async def device(self, _: LocalRequest) -> OwnDeviceStatus:
        """The process that runs this device, its connection and its shared agents."""
        return self._status()

    @sends(get("/v1/shared/device/events", media=EVENTS))
    async def device_events(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """What happens to this device: its connection, calls to its shared agents, devices out of reach."""
        with self._news.reading() as queue:
            gone = asyncio.Event()

            def leave() -> None:
                gone.set()
                queue.put_nowait(None)

            frames = _frames(self._news, self._status, queue, gone)
            await send_events(frames, receive, send, left=leave, soon=self._soon, headers=NO_STORE)


async def _frames(
    news: DeviceNews, status: Callable[[], OwnDeviceStatus], queue: "asyncio.Queue[News | None]", gone: asyncio.Event
) -> AsyncGenerator[bytes]:
    """Yield the state, then what happens, until the reader or the device is gone."""
    yield b"event: status\ndata: " + encode(status()) + b"\n\n"
    while not (gone.is_set() or (news.is_closed and queue.empty())):
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                event = await queue.get()
        except TimeoutError:
            yield KEEP_ALIVE
            continue
        if event is None:
            yield b"event: status\ndata: " + encode(status()) + b"\n\n"
        else:
            yield b"event: news\ndata: " + encode(event) + b"\n\n"
