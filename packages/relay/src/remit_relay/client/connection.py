"""A device's connection to its gateway, which reconnects by itself.

No message is lost, repeated or reordered, whatever crashes in between, if the user of a `GatewayConnection` stores
three things:

- every message with its number, from before it is `put` until its receipt; after a restart it puts them again, in order
  and with the same numbers;
- the last number that was used, so that no number is used for two messages. Numbers may have gaps, so one counter for
  all receivers is enough;
- for each sender the number of the last message whose effects are stored, written together with them. The next
  connection gets it as *kept*, and this one by `acknowledge` once it is written.

The gateway recognises a repeated message by its number for `GatewayLimits.repeat_days`, and the receiving connection
for ever. Numbers and senders are claims of the gateway: the encryption layer trusts neither.
"""

import asyncio
import logging
import random
import ssl as tls
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Literal

from aiohttp import (
    ClientError,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    WSMsgType,
)
from msgspec import Struct

from remit.protocol.errors import Code, RemitError, fault
from remit_relay.client.handshake import DeviceSigner, greet, unreached
from remit_relay.client.queues import Outcome, ReceiveQueue, SendQueue, SendQueues
from remit_relay.device.identity import device_id
from remit_relay.wire import (
    FINAL,
    MAX_BODY,
    MAX_FRAME,
    MAX_WATCHED,
    PATH,
    AllowSenders,
    Answered,
    Asked,
    BundleReply,
    Bye,
    ByeCode,
    Challenge,
    Delivery,
    Denied,
    DeviceStatus,
    Done,
    Expired,
    Fetch,
    FromGateway,
    KeysLeft,
    Malformed,
    PresenceReport,
    Publish,
    Refused,
    Stored,
    Watch,
    Welcome,
    encode_binary,
    encode_text,
    read_delivery,
    read_from_gateway,
)
from remit_server.transports.remote_calls import CONNECT_S

# ── presence ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class DevicePresence(Struct, frozen=True, kw_only=True):
    """Whether another device can be reached."""

    present: bool | None = None
    """Whether it is connected to its gateway; None: unknown. The gateway says so, and can be wrong or lie."""
    last_heard_ms: int | None = None
    """When it sent its last message that was opened here, or was last present; None: never."""


UNKNOWN = DevicePresence()

HearPresence = Callable[[str, DevicePresence], None]


class PresenceBook:
    """What is known of other devices, and those who want to hear of each change."""

    def __init__(self, *, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        self._known: dict[str, DevicePresence] = {}
        self._listeners: list[HearPresence] = []

    def of(self, device: str) -> DevicePresence:
        """Return what is known of a device."""
        return self._known.get(device, UNKNOWN)

    def listen(self, hear: HearPresence) -> Callable[[], None]:
        """Call *hear* with each device that comes, goes or becomes unknown; return how to stop that."""
        self._listeners.append(hear)
        return lambda: self._listeners.remove(hear)

    def reported(self, devices: Mapping[str, bool | None]) -> None:
        """Note what the gateway says of some devices."""
        for device, present in devices.items():
            was = self.of(device)
            if was.present is not present:
                present_ms = self._now_ms() if was.present or present else was.last_heard_ms
                now = self._known[device] = DevicePresence(present=present, last_heard_ms=present_ms)
                for hear in tuple(self._listeners):
                    hear(device, now)

    def lose(self) -> None:
        """Note that the gateway says nothing any more, so that the presence of all devices is unknown."""
        self.reported(dict.fromkeys(self._known))

    def note_message(self, device: str, at_ms: int) -> None:
        """Note a message of a device that was written at a time, by its own clock."""
        was, at_ms = self.of(device), min(at_ms, self._now_ms())
        if was.last_heard_ms is None or at_ms > was.last_heard_ms:
            self._known[device] = DevicePresence(present=was.present, last_heard_ms=at_ms)


# ── the state of the connection ───────────────────────────────────────────────────────────────────────────────────────

State = Literal["connecting", "connected", "silent", "waiting", "ended"]
"""`silent`: connected, and the gateway has not answered for a while. `waiting`: for the next attempt to connect."""

# A connection that is lost alternates between these two until the gateway answers.
_APART = frozenset[State]({"connecting", "waiting"})


class ConnectionStatus(Struct, frozen=True, kw_only=True):
    """The state of a connection."""

    state: State
    since_ms: int
    """Since when it is connected, silent, ended, or without a connection; a failed attempt does not change this.
    A gateway is silent since it was last heard from."""
    why: str
    """A sentence for people."""


Hear = Callable[[ConnectionStatus], None]


class StatusListeners:
    """The current status, and those who want to hear of each change."""

    def __init__(self, *, wall_s: Callable[[], float] = time.time) -> None:
        self._wall_s = wall_s
        self._listeners: list[Hear] = []
        self.now = ConnectionStatus(state="connecting", since_ms=round(wall_s() * 1_000), why="")

    def listen(self, hear: Hear) -> Callable[[], None]:
        """Call *hear* with each change from now on; return how to stop that."""
        self._listeners.append(hear)
        return lambda: self._listeners.remove(hear)

    def become(self, state: State, why: str, *, ago_s: float = 0.0) -> None:
        """Change the state, which began *ago_s* ago, and tell all listeners."""
        stays = state == self.now.state or {state, self.now.state} <= _APART
        since_ms = self.now.since_ms if stays else round((self._wall_s() - ago_s) * 1_000)
        self.now = ConnectionStatus(state=state, since_ms=since_ms, why=why)
        for hear in tuple(self._listeners):
            hear(self.now)


# ── requests that are not answered yet ────────────────────────────────────────────────────────────────────────────────


class PendingCalls:
    """The open requests and their callers; *due* is called when there is one to send.

    Each may be sent again after a broken connection: requests are idempotent.
    """

    def __init__(self, due: Callable[[], None]) -> None:
        self._due = due
        self._numbers = count(1)
        self._open: dict[int, tuple[Asked, asyncio.Future[Answered]]] = {}
        self._unsent: deque[Asked] = deque()
        self._end: Exception | None = None

    async def ask(self, make: Callable[[int], Asked]) -> Answered:
        """Send the request that *make* builds for a number; return the answer, or raise the error of `end`."""
        if self._end:
            raise self._end
        request = make(next(self._numbers))
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._open[request.request] = request, future
        self._unsent.append(request)
        self._due()
        try:
            return await future
        finally:
            del self._open[request.request]

    def next(self) -> Asked | None:
        """Return the next request to send, if any."""
        return self._unsent.popleft() if self._unsent else None

    def answered(self, answer: Answered) -> None:
        """Give an answer to its caller."""
        if (call := self._open.get(answer.request)) and not call[1].done():
            call[1].set_result(answer)

    def begin_again(self) -> None:
        """Reset for a new connection: all open requests are sent again."""
        self._unsent = deque(request for request, _ in self._open.values())

    def end(self, error: Exception) -> None:
        """Fail all open requests."""
        self._end = error
        for _, future in self._open.values():
            if not future.done():
                future.set_exception(error)


# ── when to connect again ─────────────────────────────────────────────────────────────────────────────────────────────

ENDED: dict[ByeCode, tuple[Code, str]] = {
    "replaced": (Code.STATE_CONFLICT, "Stop the other process that uses this device's identity, or this one."),
    "unauthenticated": (
        Code.UNAUTHENTICATED,
        "Check `name` and `gateway` in `[relay]`: the name must be that of the gateway at this address.",
    ),
    "version": (Code.VERSION_UNSUPPORTED, "Use the same version of Remit on this device and its gateway."),
    "malformed": (Code.MALFORMED_ENVELOPE, "Use the same version of Remit on this device and its gateway."),
}


class ReconnectDelays(Struct, frozen=True, kw_only=True):
    """How long a connection waits before it reconnects: a random part of a bound that doubles each time."""

    first_s: float = 0.5
    most_s: float = 60.0

    def bound_s(self, attempt: int) -> float:
        """The longest wait before an attempt, counted from 0."""
        return min(self.most_s, self.first_s * 2 ** min(attempt, 30))


# ── the connection ────────────────────────────────────────────────────────────────────────────────────────────────────


# Sent to the gateway and not answered yet: enough for many messages in one commit.
UNDERWAY_MESSAGES = 256
UNDERWAY_BYTES = 16 * MAX_BODY
# How long a gateway has to answer when this side closes the connection.
CLOSING_S = 0.25

_log = logging.getLogger("remit.relay")


class GatewayConnection:
    """The connection of one device to one gateway; `async with` opens it, and it lasts until the block ends.

    *gateway* is the expected name of the gateway: a server with another name gets no signature. *kept* has the last
    number of each sender (see the module). *changed* is called with each new `state` and a sentence for people;
    `listen` adds others.
    """

    def __init__(
        self,
        url: str,
        *,
        gateway: str,
        key: DeviceSigner,
        kept: Mapping[str, int] | None = None,
        pauses: ReconnectDelays | None = None,
        ping_s: float = 5.0,
        silence_s: float = 20.0,
        ssl: tls.SSLContext | None = None,
        changed: Callable[[State, str], None] = lambda _state, _why: None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._url = url.rstrip("/") + PATH
        self._gateway = gateway
        self._key = key
        self.device = device_id(key.public)
        self._pauses = pauses or ReconnectDelays()
        self._ping_s = ping_s
        self._silence_s = silence_s
        self._ssl = ssl
        self._uniform = uniform
        self._status = StatusListeners()
        self.listen(lambda status: changed(status.state, status.why))
        self.one_time_left: int | None = None
        """How many one-time keys of this device the gateway has left; None until it has said so."""
        self.counted: list[Callable[[], None]] = []
        """Called whenever the gateway has said so."""
        self.presence = PresenceBook()
        """Which other devices are connected, of those that this one watches."""
        self._watched: tuple[str, ...] = ()
        self._watch_due = False
        self.welcomed = asyncio.Event()
        """Set once the gateway has said so."""
        self.expired: Callable[[Expired], None] = lambda _: None
        """Called when the gateway has deleted undelivered messages; perhaps more than once for the same."""
        self._queues = SendQueues(messages=UNDERWAY_MESSAGES, size=UNDERWAY_BYTES)
        self._wake = asyncio.Event()
        self._arrivals = ReceiveQueue(kept or {}, self._wake.set)
        self._calls = PendingCalls(self._wake.set)
        self._allowed: AllowSenders | None = None
        self._eased = asyncio.Event()
        self._end: RemitError | None = None
        self._attempt = 0
        self._last_frame_s = 0.0

    async def __aenter__(self) -> "GatewayConnection":
        self._loop = asyncio.get_running_loop()
        # The default header tells the gateway the versions of Python and of the HTTP library.
        headers = {"User-Agent": "remit"}
        self._session = ClientSession(timeout=ClientTimeout(total=None, sock_connect=CONNECT_S), headers=headers)
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running
        await self._session.close()
        self._finish("closed by its user", RemitError(fault(Code.CANCELLED, "the connection is closed")))

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, to: str, number: int, body: bytes) -> "asyncio.Future[Outcome]":
        """Send an encrypted message; the future gets its `Receipt` once the gateway has stored it.

        Messages to one device are sent in the order of the calls, and their numbers must grow. A temporary refusal (the
        receiver's queue is full) is retried automatically and shown in `pauses`. A permanent refusal is returned as
        `Refused`, together with all later messages to the same device; put them again, in order, when it makes sense.
        A receipt with `repeated` for a new message means that the stored state was rolled back, and its numbers were
        used before.
        """
        if not 0 < len(body) <= MAX_BODY:
            raise RemitError(fault(Code.TOO_LARGE, f"body: a message must have 1 to {MAX_BODY} bytes, not {len(body)}"))
        if self._end:
            raise self._end
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self._queues.add(to, number, body, future)
        self._wake.set()
        return future

    def pauses(self) -> dict[str, Refused]:
        """The refusal of the gateway for each device whose queue is full."""
        return self._queues.pauses()

    async def room(self, size: int = 4 * UNDERWAY_BYTES) -> None:
        """Return once at most *size* bytes wait for their receipts: flow control for callers with much to send."""
        while self._queues.bytes_waiting > size and not self._end:
            self._eased.clear()
            await self._eased.wait()

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def receive(self) -> Delivery:
        """Return the next message; raises a `RemitError` when the connection has ended for good.

        Messages from one sender come in the order in which it put them, each once.
        """
        return await self._arrivals.next()

    def received(self, messages: int, size: int) -> list[Delivery]:
        """Return messages that have arrived already, after those of `receive`: up to *messages* and *size* bytes."""
        return self._arrivals.at_hand(messages, size)

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        while True:
            yield await self.receive()

    def acknowledge(self, delivery: Delivery) -> None:
        """Confirm that the effects of a message, and of all earlier ones of its sender, are stored with its number."""
        self._arrivals.keep(delivery)

    # ── keys and access ───────────────────────────────────────────────────────────────────────────────────────────────

    async def publish(
        self, *, bundle: bytes | None = None, one_time: tuple[bytes, ...] = (), replace: bool = False
    ) -> Done | Denied:
        """Publish keys for others: a signed bundle, and one-time keys that are handed out once each.

        With *replace* they take the place of all one-time keys that the gateway has.
        """
        answer = await self._calls.ask(
            lambda request: Publish(request=request, bundle=bundle, one_time=one_time, replace=replace)
        )
        assert not isinstance(answer, BundleReply)
        return answer

    async def fetch(self, device: str) -> BundleReply | Denied:
        """Return the keys of another device with their signatures; the caller must check those."""
        answer = await self._calls.ask(lambda request: Fetch(request=request, device=device))
        assert not isinstance(answer, Done)
        return answer

    async def allow(self, senders: tuple[str, ...] | None) -> None:
        """Set which devices may send to this one and fetch its keys; None (the default): any that knows its id."""

        def make(request: int) -> AllowSenders:
            self._allowed = AllowSenders(request=request, senders=senders)
            return self._allowed

        await self._calls.ask(make)

    def watch(self, devices: Sequence[str]) -> None:
        """Have the gateway tell the presence of these devices from now on."""
        self._watched = tuple(devices[:MAX_WATCHED])
        self._watch_due = True
        self._wake.set()

    # ── the connection ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        while True:
            try:
                bye = await self._connect_once()
            except (ClientError, OSError, TimeoutError) as error:
                bye = unreached(error)
            except Malformed as error:
                bye = Bye(code="trouble", reason=f"invalid answer, perhaps not a gateway: {error}")
            if bye.code in FINAL:
                code, suggestion = ENDED[bye.code]
                self._finish(bye.reason, RemitError(fault(code, bye.reason, suggestion=suggestion)))
                return
            # Full jitter: devices that lost the same gateway do not all reconnect at once.
            wait = bye.retry_after_ms / 1_000 + self._uniform(0, self._pauses.bound_s(self._attempt))
            self._attempt += 1
            self._become("waiting", f"{bye.reason}; next attempt in {wait:.1f} s")
            await asyncio.sleep(wait)

    async def _connect_once(self) -> Bye:
        """Connect and stay connected; return why the connection ended."""
        self._become("connecting", f"connecting to {self._gateway}")
        async with asyncio.timeout(self._silence_s):
            socket = await self._session.ws_connect(
                self._url,
                autoping=False,
                autoclose=False,
                max_msg_size=MAX_FRAME,
                ssl=self._ssl or True,
            )
        try:
            self._begin_again()
            async with asyncio.timeout(self._silence_s):
                answer = await greet(socket, self._key, gateway=self._gateway)
            if isinstance(answer, Bye):
                return answer
            self._count_keys(answer.one_time_left)
            self._watch_due = bool(self._watched)
            self.welcomed.set()
            self._last_frame_s = self._loop.time()
            self._become("connected", f"connected to {self._gateway}")
            if answer.is_new and self._allowed:
                # A gateway that lost its file, or forgot this device, would let any device send to it.
                await socket.send_str(encode_text(self._allowed).decode())
            return await self._stay(socket)
        finally:
            with suppress(TimeoutError, ClientError, OSError):
                async with asyncio.timeout(CLOSING_S):
                    if ack := self._arrivals.ack(at_once=True):
                        await socket.send_str(encode_text(ack).decode())
                    await socket.close()

    async def _stay(self, socket: ClientWebSocketResponse) -> Bye:
        """Read, write and watch for silence, until one of these ends."""
        reading = asyncio.create_task(self._read_frames(socket))
        tasks = {reading, asyncio.create_task(self._write(socket)), asyncio.create_task(self._watch(socket))}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # The last frame of the gateway explains why writing failed.
            return reading.result() if reading in done else next(iter(done)).result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled():
                    task.exception()

    def _begin_again(self) -> None:
        self._queues.begin_again()
        self._arrivals.begin_again()
        self._calls.begin_again()
        self._wake.set()

    async def _read_frames(self, socket: ClientWebSocketResponse) -> Bye:
        receive, now = socket.receive, self._loop.time
        while True:
            message = await receive()
            self._last_frame_s = now()
            if self.state == "silent":
                self.watch(self._watched)
                self._become("connected", f"connected to {self._gateway}")
            match message.type:
                case WSMsgType.BINARY:
                    self._attempt = 0
                    self._arrivals.take(read_delivery(message.data))
                case WSMsgType.TEXT:
                    self._attempt = 0
                    frame = read_from_gateway(message.data)
                    if isinstance(frame, Bye):
                        return frame
                    self._hear(frame)
                case WSMsgType.PING:
                    await socket.pong(message.data)
                case WSMsgType.PONG:
                    self._attempt = 0
                case _:
                    return Bye(code="trouble", reason="connection lost")

    def _hear(self, frame: FromGateway) -> None:
        match frame:
            case Stored(receipts=receipts):
                for receipt in receipts:
                    self._queues.stored(receipt)
                self._eased.set()
                self._wake.set()
            case Refused():
                if queue := self._queues.refused(frame):
                    again = frame.retry_after_ms / 1_000 * self._uniform(1.0, 1.5)
                    self._loop.call_later(again, self._resume, queue)
                self._eased.set()
                self._wake.set()
            case Done() | BundleReply() | Denied():
                self._calls.answered(frame)
                if isinstance(frame, Done):
                    self._count_keys(frame.one_time_left)
            case KeysLeft(one_time_left=left):
                self._count_keys(left)
            case PresenceReport(devices=devices):
                self.presence.reported(devices)
            case Expired():
                self.expired(frame)
            case Bye() | Challenge() | Welcome() | DeviceStatus():
                raise Malformed(f"unexpected frame {frame.__struct_config__.tag}")

    def _count_keys(self, left: int) -> None:
        self.one_time_left = left
        for hear in self.counted:
            hear()

    def _resume(self, queue: SendQueue) -> None:
        self._queues.resume(queue)
        self._wake.set()

    async def _write(self, socket: ClientWebSocketResponse) -> Bye:
        """Send requests, messages and acknowledgements."""
        while True:
            self._wake.clear()
            while request := self._calls.next():
                await socket.send_str(encode_text(request).decode())
            if self._watch_due:
                self._watch_due = False
                await socket.send_str(encode_text(Watch(devices=self._watched)).decode())
            while put := self._queues.next():
                await socket.send_bytes(encode_binary(put))
            if ack := self._arrivals.ack():
                await socket.send_str(encode_text(ack).decode())
            await self._wake.wait()

    async def _watch(self, socket: ClientWebSocketResponse) -> Bye:
        """Send pings, so that silence means a broken connection; return when it is silent for too long."""
        while True:
            await asyncio.sleep(self._ping_s)
            quiet_s = self._loop.time() - self._last_frame_s
            if quiet_s > self._silence_s:
                return Bye(code="trouble", reason="the gateway does not respond")
            if quiet_s > 1.5 * self._ping_s and self.state == "connected":
                since = time.strftime("%H:%M:%S", time.localtime(time.time() - quiet_s))
                self._become("silent", f"the gateway was not heard from since {since}", ago_s=quiet_s)
            with suppress(TimeoutError):  # a gateway that stands still takes no ping either, once its buffers are full
                async with asyncio.timeout(self._ping_s):
                    await socket.ping()

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def status(self) -> ConnectionStatus:
        """The state of the connection, since when, and why."""
        return self._status.now

    @property
    def state(self) -> State:
        """The state alone."""
        return self._status.now.state

    @property
    def why(self) -> str:
        """A sentence for people about the state."""
        return self._status.now.why

    def listen(self, hear: Hear) -> Callable[[], None]:
        """Call *hear* with each new status; return how to stop that."""
        return self._status.listen(hear)

    def _become(self, state: State, why: str, *, ago_s: float = 0.0) -> None:
        _log.debug("%s: %s", self.device, why)
        if state != "connected":
            self.presence.lose()
        self._status.become(state, why, ago_s=ago_s)

    def _finish(self, why: str, error: RemitError) -> None:
        if self._end:
            return
        self._end = error
        self._queues.end(error)
        self._arrivals.end(error)
        self._calls.end(error)
        self._eased.set()
        self._become("ended", why)
