"""A simulated NATS server, and the client that takes the place of nats-py's below the product's connection."""

import asyncio
import json
import random
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Protocol

import nats.errors
from nats.aio.msg import Msg
from nats.js.errors import NoStreamResponseError, NotFoundError

from simulate.loop import PROCESS, SimulatedLoop, SimulatedProcess

# A message that a consumer was given and has not acknowledged is given again after this time: `ACK_S` of the queue.
_GIVEN_AGAIN_S = 5.0


class MessageFates(Protocol):
    """What the world decides about each message."""

    context: Context

    def delay_s(self, sender: SimulatedProcess, subject: str) -> float | None:
        """Return after how long a message arrives; None: it is lost."""
        ...


@lru_cache(maxsize=100_000)
def fits(pattern: str, subject: str) -> bool:
    """Return whether a subject is one of a pattern with `*` and `>`."""
    if pattern == subject:
        return True
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted, given = wanted[:-1], given[: len(wanted) - 1]
    return len(wanted) == len(given) and all(one in ("*", other) for one, other in zip(wanted, given, strict=True))


def _message(subject: str, data: bytes, reply: str = "", headers: dict[str, str] | None = None) -> Msg:
    return Msg(None, subject, reply, data, headers)  # pyright: ignore[reportArgumentType] - it is not answered through it


class _Stored:
    """A message in a stream."""

    def __init__(self, number: int, at: float, subject: str, data: bytes) -> None:
        self.number, self.at, self.subject, self.data = number, at, subject, data
        self.free_from = 0.0
        """Until then a consumer has it, which has not acknowledged it."""


class _Stream:
    """A stream in the memory of the server: a queue, or the last value of each subject."""

    def __init__(self, subjects: list[str], *, is_queue: bool, lives_s: float) -> None:
        self.subjects = subjects
        self._is_queue = is_queue
        self._lives_s = lives_s
        self._messages: list[_Stored] = []
        self._last = 0

    def add(self, now: float, subject: str, data: bytes) -> None:
        if not self._is_queue:
            self._messages = [each for each in self._messages if each.subject != subject]
        self._last += 1
        self._messages.append(_Stored(self._last, now, subject, data))

    def find(self, now: float, pattern: str) -> list[_Stored]:
        return [each for each in self._messages if each.at > now - self._lives_s and fits(pattern, each.subject)]

    def take(self, now: float, pattern: str) -> _Stored | None:
        for stored in self.find(now, pattern):
            if stored.free_from <= now:
                stored.free_from = now + _GIVEN_AGAIN_S
                return stored
        return None

    def acknowledge(self, number: int) -> None:
        self._messages = [each for each in self._messages if each.number != number]


class _Subscription:
    """A subscription of a client, whose messages are heard one after another."""

    def __init__(
        self, client: "SimulatedClient", subject: str, group: str, handler: Callable[[Msg], Awaitable[None]]
    ) -> None:
        self.client, self.subject, self.group = client, subject, group
        self._handler = handler
        self._waiting: deque[Msg] = deque()
        self._hearing = False

    def deliver(self, message: Msg) -> None:
        if self not in self.client.subscriptions or not self.client.is_connected:
            return
        self._waiting.append(message)
        if not self._hearing:
            self._hearing = True
            self.client.server.loop.start(self.client.process, self._hear())

    async def _hear(self) -> None:
        while self._waiting:
            await self._handler(self._waiting.popleft())
        self._hearing = False

    async def unsubscribe(self) -> None:
        if self in self.client.subscriptions:
            self.client.subscriptions.remove(self)


class SimulatedServer:
    """A NATS server: subjects, groups, and the parts of JetStream that the product uses."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random, network: MessageFates) -> None:
        self.loop = loop
        self.up = True
        self._network = network
        self._rng = rng
        self._clients: list[SimulatedClient] = []
        self._streams: dict[str, _Stream] = {}
        self._consumers: dict[tuple[str, str], str] = {}
        self._inboxes: dict[str, tuple[SimulatedProcess, asyncio.Future[Msg]]] = {}
        self._requests = 0
        self._arrivals: dict[tuple[SimulatedProcess, SimulatedProcess], float] = {}
        """When the last message between two processes arrives: none overtakes another."""

    def stop(self) -> None:
        """End all connections, and lose what was in the memory."""
        self.up = False
        self._streams.clear()
        self._consumers.clear()
        for client in self._clients:
            client.was_cut()

    def start(self) -> None:
        """Accept connections again."""
        self.up = True
        for client in self._clients:
            client.can_reconnect()

    def connect(self, client: "SimulatedClient") -> None:
        self._clients.append(client)

    def disconnect(self, process: SimulatedProcess) -> None:
        """End the connection of a process, which may have been killed."""
        self._clients = [each for each in self._clients if each.process is not process]

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, sender: SimulatedProcess, subject: str, data: bytes, reply: str = "") -> bool:
        """Bring a message to those who subscribed to its subject; False: nobody did."""
        if subject.startswith("$JS.ACK."):
            _, _, stream, number = subject.split(".")
            if stream in self._streams:
                self._streams[stream].acknowledge(int(number))
            return True
        if subject in self._inboxes:
            receiver, waiting = self._inboxes[subject]
            self._carry(sender, receiver, subject, lambda: _resolve(waiting, _message(subject, data)))
            return True
        groups: dict[str, list[_Subscription]] = {}
        for client in self._clients:
            for each in client.subscriptions if client.is_connected else ():
                if fits(each.subject, subject):
                    groups.setdefault(each.group or f"alone {len(groups)}", []).append(each)
        for members in groups.values():
            one = members[0] if len(members) == 1 else self._rng.choice(members)
            message = _message(subject, data, reply)
            self._carry(sender, one.client.process, subject, lambda one=one, message=message: one.deliver(message))
        return bool(groups)

    def _carry(
        self, sender: SimulatedProcess, receiver: SimulatedProcess, subject: str, arrive: Callable[[], None]
    ) -> None:
        delay_s = self._network.delay_s(sender, subject)
        if delay_s is not None and sender.alive:
            way = sender, receiver
            at = self._arrivals[way] = max(self.loop.time() + delay_s, self._arrivals.get(way, 0))
            self.loop.call_at(at, arrive, context=self._network.context)

    async def request(self, sender: SimulatedProcess, subject: str, data: bytes, timeout: float) -> Msg:
        """Return the reply to a message, or that of JetStream."""
        if subject.startswith("$JS.API."):
            await self.round_trip(sender, subject, timeout)
            return self._ask_stream(subject, data)
        self._requests += 1
        inbox = f"_INBOX.{self._requests}"
        waiting: asyncio.Future[Msg] = self.loop.create_future()
        self._inboxes[inbox] = sender, waiting
        try:
            if not self.send(sender, subject, data, inbox):
                raise nats.errors.NoRespondersError
            async with asyncio.timeout(timeout):
                return await waiting
        except TimeoutError as error:
            raise nats.errors.TimeoutError from error
        finally:
            self._inboxes.pop(inbox, None)

    async def round_trip(self, sender: SimulatedProcess, subject: str, timeout: float) -> None:
        """Wait for as long as the server takes to answer."""
        delay_s = self._network.delay_s(sender, subject) if self.up else None
        await asyncio.sleep(timeout if delay_s is None else delay_s)
        if delay_s is None or not self.up:
            raise nats.errors.TimeoutError

    # ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def add_stream(self, name: str, subject: str, *, is_queue: bool, lives_s: float) -> None:
        if name not in self._streams:
            self._streams[name] = _Stream([subject], is_queue=is_queue, lives_s=lives_s)

    def add_consumer(self, stream: str, name: str, pattern: str) -> None:
        self._stream(stream)
        self._consumers[stream, name] = pattern

    def entries(self, stream: str, patterns: list[str]) -> list[Msg]:
        now = self.loop.time()
        matching = [each for pattern in patterns for each in self._stream(stream).find(now, pattern)]
        return [
            _message(each.subject, each.data, f"$JS.ACK.s.c.1.1.1.1.{len(matching) - at}")
            for at, each in enumerate(matching, 1)
        ]

    def add(self, subject: str, data: bytes) -> None:
        for stream in self._streams.values():
            if any(fits(pattern, subject) for pattern in stream.subjects):
                stream.add(self.loop.time(), subject, data)
                return
        raise NoStreamResponseError

    def _stream(self, name: str) -> _Stream:
        if name not in self._streams:
            raise NotFoundError
        return self._streams[name]

    def _ask_stream(self, subject: str, data: bytes) -> Msg:
        match subject.split("."):
            case ["$JS", "API", "STREAM", "INFO", name] if name in self._streams:
                matching = self._streams[name].find(self.loop.time(), json.loads(data)["subjects_filter"])
                counts = {each.subject: sum(other.subject == each.subject for other in matching) for each in matching}
                return _message(subject, json.dumps({"state": {"subjects": counts}}).encode())
            case ["$JS", "API", "CONSUMER", "MSG", "NEXT", name, consumer] if (name, consumer) in self._consumers:
                taken = self._stream(name).take(self.loop.time(), self._consumers[name, consumer])
                if taken is None:
                    return _message(subject, b"", headers={"Status": "404"})
                return _message(taken.subject, taken.data, f"$JS.ACK.{name}.{taken.number}")
            case _:
                raise nats.errors.NoRespondersError


def _resolve(waiting: "asyncio.Future[Msg]", message: Msg) -> None:
    if not waiting.done():
        waiting.set_result(message)


class SimulatedClient:
    """The part of nats-py's client that the product uses."""

    server: SimulatedServer
    """Of the world that is simulated: set on a subclass."""

    def __init__(self) -> None:
        self.process = PROCESS.get()
        self.subscriptions: list[_Subscription] = []
        self.is_connected = False
        self.is_closed = False
        self._options: dict[str, Any] = {}

    async def connect(self, **options: Any) -> None:
        self._options = options
        while not self.server.up:
            await options["error_cb"](OSError("the server is not there"))
            await asyncio.sleep(options["reconnect_time_wait"])
        self.server.connect(self)
        self.is_connected = True

    def was_cut(self) -> None:
        self.is_connected = False
        self.server.loop.start(self.process, self._options["disconnected_cb"]())

    def can_reconnect(self) -> None:
        self.server.loop.start(self.process, self._reconnect())

    async def _reconnect(self) -> None:
        await asyncio.sleep(self._options["reconnect_time_wait"])
        if self.server.up and not self.is_connected and not self.is_closed:
            self.is_connected = True
            await self._options["reconnected_cb"]()

    async def close(self) -> None:
        self.is_connected, self.is_closed = False, True
        self.server.disconnect(self.process)

    async def flush(self, timeout: float) -> None:
        await self.server.round_trip(self.process, "PING", timeout)

    async def subscribe(self, subject: str, queue: str, cb: Callable[[Msg], Awaitable[None]]) -> _Subscription:
        made = _Subscription(self, subject, queue, cb)
        self.subscriptions.append(made)
        return made

    async def publish(self, subject: str, payload: bytes) -> None:
        if self.is_connected:
            self.server.send(self.process, subject, payload)

    async def request(self, subject: str, payload: bytes, timeout: float, old_style: bool = False) -> Msg:
        return await self.server.request(self.process, subject, payload, timeout)

    def jetstream(self, timeout: float) -> "_JetStream":
        return _JetStream(self, timeout)


class _JetStream:
    """The part of nats-py's JetStream that the product uses."""

    def __init__(self, client: SimulatedClient, timeout: float) -> None:
        self._client, self._server, self._timeout = client, client.server, timeout

    async def _round_trip(self, subject: str) -> None:
        await self._server.round_trip(self._client.process, subject, self._timeout)

    async def publish(self, subject: str, payload: bytes) -> None:
        await self._round_trip(subject)
        self._server.add(subject, payload)
        self._server.send(self._client.process, subject, payload)

    async def add_stream(self, config: Any) -> None:
        await self._round_trip(config.name)
        self._server.add_stream(config.name, config.subjects[0], is_queue=True, lives_s=config.max_age)

    async def create_key_value(self, config: Any) -> None:
        await self._round_trip(config.bucket)
        self._server.add_stream(f"KV_{config.bucket}", f"$KV.{config.bucket}.>", is_queue=False, lives_s=config.ttl)

    async def add_consumer(self, stream: str, config: Any) -> SimpleNamespace:
        await self._round_trip(stream)
        if config.durable_name is not None:
            self._server.add_consumer(stream, config.durable_name, config.filter_subject)
            return SimpleNamespace()
        entries = self._server.entries(stream, config.filter_subjects)
        return SimpleNamespace(name=entries, num_pending=len(entries))

    async def pull_subscribe_bind(self, *, consumer: list[Msg], stream: str) -> "_Reader":
        await self._round_trip(stream)
        return _Reader(consumer)


class _Reader:
    """Reads the entries that were there when its consumer was made."""

    def __init__(self, entries: list[Msg]) -> None:
        self._entries = entries

    async def fetch(self, count: int, timeout: float) -> list[Msg]:
        return self._entries[:count]

    async def unsubscribe(self) -> None:
        pass
