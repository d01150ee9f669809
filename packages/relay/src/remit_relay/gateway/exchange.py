"""The connected devices of a gateway, how messages get from one to another, and the counters of that.

Everything here runs in the event loop without waiting: work goes to the store, which calls back once it is durable.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Literal

from remit.ports import Clock
from remit_relay.gateway.connection import DeliveryRoute, DeviceConnection
from remit_relay.gateway.limits import GatewayLimits
from remit_relay.gateway.ports import (
    AdmittedDevice,
    Fetched,
    GatewayStore,
    NoRoom,
    Page,
    Placed,
    PresencePair,
    RateAllowance,
    SentMessage,
    StoreSize,
)
from remit_relay.wire import (
    Ack,
    AllowSenders,
    Answered,
    Bye,
    Delivery,
    Denied,
    DeviceStatus,
    Done,
    Expired,
    Fetch,
    FromDevice,
    Hello,
    KeysLeft,
    Malformed,
    PresenceReport,
    Publish,
    Put,
    Receipt,
    Refused,
    Watch,
    Welcome,
)
from remit_server.websockets import WebSocket

# ── metrics ───────────────────────────────────────────────────────────────────────────────────────────────────────────

METRICS_TYPE = "text/plain; version=0.0.4"

What = Literal["connection", "greeting", "device", "message", "pairing"]


class GatewayMetrics:
    """Counters since the gateway was started."""

    def __init__(self) -> None:
        self.stored = 0
        self.expired = 0
        self.forgotten = 0
        self._refused: Counter[tuple[What, str]] = Counter()

    def refuse(self, what: What, why: str) -> None:
        """Count a refusal."""
        self._refused[what, why] += 1

    def page(self, held: StoreSize, *, max_bytes: int, connections: int, is_well: bool) -> str:
        """Return the metrics in the Prometheus text format."""
        metrics = (
            ("up", "gauge", "1: the gateway can write; 0: it cannot, or is shutting down.", int(is_well)),
            ("connections", "gauge", "Connected devices.", connections),
            ("devices", "gauge", "Known devices.", held.devices),
            ("queued_messages", "gauge", "Messages waiting for their receivers.", held.messages),
            ("queued_bytes", "gauge", "Size of the waiting messages.", held.queued_bytes),
            ("held_bytes", "gauge", "Size of everything that is stored, limited by max_bytes.", held.total_bytes),
            ("max_bytes", "gauge", "Limit of held_bytes.", max_bytes),
            ("messages_total", "counter", "Messages accepted.", self.stored),
            ("expired_total", "counter", "Messages deleted because they were not fetched in time.", self.expired),
            ("forgotten_devices_total", "counter", "Devices forgotten after a long absence.", self.forgotten),
        )
        lines = [f"{_head(*head)}remit_gateway_{head[0]} {value}\n" for *head, value in metrics]
        lines.append(_head("refusals_total", "counter", "Refusals by kind and reason."))
        for (what, why), number in sorted(self._refused.items()):
            lines.append(f'remit_gateway_refusals_total{{what="{what}",why="{why}"}} {number}\n')
        return "".join(lines)


def _head(name: str, kind: str, meaning: str) -> str:
    return f"# HELP remit_gateway_{name} {meaning}\n# TYPE remit_gateway_{name} {kind}\n"


# ── presence ──────────────────────────────────────────────────────────────────────────────────────────────────────────

# Pairs in one question to the store: it takes milliseconds.
MOST_ASKED = 2_000


class PresenceWatchers:
    """The connections that watch, and the last report to each about each device. Pure: it decides what is news."""

    def __init__(self) -> None:
        self._reported: dict[DeviceConnection, dict[str, bool | None]] = {}
        self._by_device: dict[str, set[DeviceConnection]] = {}

    def watch(self, connection: DeviceConnection, devices: Iterable[str]) -> list[PresencePair]:
        """Replace what a connection watches; return all of its pairs."""
        self.forget(connection)
        reported: dict[str, bool | None] = dict.fromkeys(devices)
        if reported:
            self._reported[connection] = reported
        for device in reported:
            self._by_device.setdefault(device, set()).add(connection)
        return [PresencePair(connection.device, device) for device in reported]

    def forget(self, connection: DeviceConnection) -> None:
        """Forget a connection that has ended."""
        for device in self._reported.pop(connection, {}):
            watching = self._by_device[device]
            watching.discard(connection)
            if not watching:
                del self._by_device[device]

    def pairs(self, device: str | None = None) -> list[PresencePair]:
        """Return the pairs of those who watch a device, or of all."""
        watched = self._by_device if device is None else {device: self._by_device.get(device, set())}
        return [PresencePair(each.device, name) for name, watching in watched.items() for each in watching]

    def changed(self, device: str, *, present: bool) -> list[tuple[DeviceConnection, PresenceReport]]:
        """Return whom to tell that a device came or went: those who may know it."""
        news: list[tuple[DeviceConnection, PresenceReport]] = []
        for connection in self._by_device.get(device, ()):
            if self._reported[connection][device] is (not present):
                self._reported[connection][device] = present
                news.append((connection, PresenceReport(devices={device: present})))
        return news

    def answered(
        self, pairs: Iterable[PresencePair], presence: Mapping[PresencePair, bool]
    ) -> list[tuple[DeviceConnection, PresenceReport]]:
        """Return whom to tell what after the store was asked; a pair that it does not know may not know it."""
        news: dict[DeviceConnection, dict[str, bool | None]] = {}
        for pair in pairs:
            for connection in self._by_device.get(pair.device, ()):
                reported, present = self._reported[connection], presence.get(pair)
                if connection.device == pair.asker and reported[pair.device] is not present:
                    reported[pair.device] = present
                    news.setdefault(connection, {})[pair.device] = present
        return [(connection, PresenceReport(devices=devices)) for connection, devices in news.items()]


class PresenceTeller:
    """Tells connections which of the devices that they watch are connected; *say* sends a report.

    Only those hear of a device that it accepts messages from, so that strangers learn nothing.
    """

    def __init__(
        self,
        store: GatewayStore,
        devices: Mapping[str, DeviceConnection],
        say: Callable[[DeviceConnection, PresenceReport], None],
    ) -> None:
        self._store = store
        self._devices = devices
        self._say = say
        self._watchers = PresenceWatchers()

    def watch(self, connection: DeviceConnection, devices: Iterable[str]) -> None:
        """Tell a connection of these devices from now on."""
        self._ask(self._watchers.watch(connection, devices))

    def came(self, device: str, *, is_new: bool) -> None:
        """Tell others that a device is connected."""
        if is_new:
            self.permitted(device)
        else:
            self._send(self._watchers.changed(device, present=True))

    def went(self, device: str) -> None:
        """Tell others that a device is no longer connected."""
        self._send(self._watchers.changed(device, present=False))

    def forget(self, connection: DeviceConnection) -> None:
        """Tell a connection nothing more."""
        self._watchers.forget(connection)

    def permitted(self, device: str) -> None:
        """Ask again who may know of a device, after it changed its list."""
        self._ask(self._watchers.pairs(device))

    def look_elsewhere(self) -> None:
        """Ask for devices that came to or left other gateways."""
        if self._store.is_shared:
            self._ask(self._watchers.pairs())

    def _ask(self, pairs: Sequence[PresencePair]) -> None:
        for start in range(0, len(pairs), MOST_ASKED):
            self._ask_page(pairs[start : start + MOST_ASKED])

    def _ask_page(self, pairs: Sequence[PresencePair]) -> None:
        def then(elsewhere: dict[PresencePair, bool]) -> None:
            presence = {pair: there or pair.device in self._devices for pair, there in elsewhere.items()}
            self._send(self._watchers.answered(pairs, presence))

        self._store.presence(pairs, then)

    def _send(self, news: Iterable[tuple[DeviceConnection, PresenceReport]]) -> None:
        for connection, report in news:
            self._say(connection, report)


# ── the exchange ──────────────────────────────────────────────────────────────────────────────────────────────────────


# A request that needs more than one row of the file counts as this many frames, plus one for each row that it writes.
# So no device can use up another's one-time keys quickly, or make others wait by writing long lists again and again.
ASKING_FRAMES = 20
# A connection ends after this many receivers refused its messages; a device knows far fewer.
MOST_REFUSED = 1_000
MOST_ROUTES = 1_000
REPLACED = Bye(code="replaced", reason="the device has connected again")


class Exchange:
    """The connections of a gateway, and the store behind them, which is open between `open` and `close`."""

    def __init__(self, store: GatewayStore, limits: GatewayLimits, clock: Clock) -> None:
        self._store = store
        self._limits = limits
        self._clock = clock
        self._numbers = count(1)
        self.devices: dict[str, DeviceConnection] = {}
        """The one connection of each device that is connected."""
        self._unstored = 0
        self._crowd: list[asyncio.Future[None]] = []
        self._dirty: dict[int, DeviceConnection] = {}
        """The connections that have something to flush."""
        self._slow: dict[str, int] = {}
        """The number of messages to each device that are not accepted or refused yet."""
        self.troubled = False
        self.metrics = GatewayMetrics()
        self.presence = PresenceTeller(store, self.devices, self._push)

    async def open(self) -> None:
        """Open the store, or raise `StoreError`."""
        await self._store.open(self._limits, self._clock, self)

    async def close(self) -> None:
        """Write all accepted messages, send their receipts, then tell every device to disconnect."""
        await self._store.close()
        for connection in list(self.devices.values()):
            back_ms = self._limits.back_ms
            self.cut(connection, Bye(code="closing", reason="the gateway is shutting down", retry_after_ms=back_ms))

    # ── connecting and disconnecting ──────────────────────────────────────────────────────────────────────────────────

    async def enter(
        self, socket: WebSocket, device: str, *, may_be_new: bool
    ) -> tuple[DeviceConnection, AdmittedDevice | NoRoom]:
        """Return the connection of a device after it was admitted or refused.

        Raises `OSError` if the store cannot be written.
        """
        now = self._clock.now()
        connection = DeviceConnection(socket, next(self._numbers), device, now, now)
        # First of all: from here on nothing more is accepted from the older connection.
        older, self.devices[device] = self.devices.get(device), connection
        if older:
            self.cut(older, REPLACED)
        try:
            entered = await self._store.enter(connection.number, device, may_be_new=may_be_new)
        except BaseException:
            self.leave(connection)
            raise
        if isinstance(entered, NoRoom):
            self.metrics.refuse("device", entered.word)
            self.cut(connection, Bye(code="full", reason=entered.reason, retry_after_ms=60_000))
        elif not connection.closing:
            self._welcome(connection, entered)
        return connection, entered

    async def look(self, device: str) -> DeviceStatus:
        """Return the status of a device, without changing anything."""
        stored = await self._store.look(device)
        connected, waiting, left = stored or (False, 0, 0)
        return DeviceStatus(known=stored is not None, connected=connected, waiting=waiting, one_time_left=left)

    def _welcome(self, connection: DeviceConnection, entered: AdmittedDevice) -> None:
        connection.key, connection.session = entered.key, entered.session
        left, is_new = entered.one_time_left, entered.is_new
        connection.say(Welcome(device=connection.device, one_time_left=left, is_new=is_new))
        for each in entered.expired:
            connection.say(each)
        connection.flush(self._clock.now())
        self._next_page(connection)
        self.presence.came(connection.device, is_new=is_new)

    def leave(self, connection: DeviceConnection, allowance: RateAllowance | None = None) -> None:
        """Forget a connection that has ended, except for what it left of its rate limit."""
        connection.closing = True
        self._remove(connection)
        self._store.leave(connection.number, allowance)

    def cut(self, connection: DeviceConnection, bye: Bye) -> None:
        """End a connection and tell its device why."""
        self._remove(connection)
        connection.cut(bye, self._clock.now())
        if connection.room and not connection.room.done():
            connection.room.set_result(None)

    def _remove(self, connection: DeviceConnection) -> None:
        self.presence.forget(connection)
        if self.devices.get(connection.device) is connection:
            del self.devices[connection.device]
            self.presence.went(connection.device)

    def sweep(self) -> None:
        """End connections that are silent or do not read."""
        now, limits = self._clock.now(), self._limits
        for connection in list(self.devices.values()):
            if now - connection.last_frame_s > limits.idle_s:
                self.cut(connection, Bye(code="idle", reason=f"no frame was received for {limits.idle_s:g} s"))
            elif connection.stuck(now, limits.slow_s):
                self.cut(connection, Bye(code="slow", reason=f"the device read nothing for {limits.slow_s:g} s"))

    async def tidy(self) -> None:
        """Delete what is too old in small steps, and notify the senders of undelivered messages.

        Raises `OSError` if the store cannot be written.
        """
        async for step in self._store.cleanup():
            self.metrics.expired += step.expired
            self.metrics.forgotten += step.devices
            for sender, expired in step.notices:
                self.expired(sender, expired)

    # ── events of the store ───────────────────────────────────────────────────────────────────────────────────────────

    def placed(self, messages: Sequence[SentMessage], results: Sequence[Placed | Refused]) -> None:
        """Give their senders the receipts of messages, if they are still connected."""
        for (number, _, sender, put, _), result in zip(messages, results, strict=True):
            size = len(put.body)
            self._unstored -= size
            connection = self.devices.get(sender)
            if connection is not None and connection.number != number:
                connection = None  # it has connected again meanwhile
            if connection is not None:
                connection.unstored -= size
            if isinstance(result, Refused):
                self.metrics.refuse("message", result.code)
                if connection is not None:
                    self._refused(connection, result)
                continue
            self.metrics.stored += result.is_new
            if connection is not None:
                connection.receipt(Receipt(put.to, put.number, not result.is_new))
                self._dirty[number] = connection

    def failed(self) -> None:
        """Disconnect everyone after a failed write: devices send again whatever has no receipt."""
        self.troubled = True
        self._unstored = 0
        self._slow.clear()
        for connection in list(self.devices.values()):
            back_ms = self._limits.back_ms
            self.cut(connection, Bye(code="trouble", reason="the gateway cannot write", retry_after_ms=back_ms))

    def recovered(self) -> None:
        """Report that writing works again."""
        self.troubled = False

    def settled(self) -> None:
        """Flush all connections after a batch, and continue reading from those that had to wait."""
        self._flush_dirty()
        if self._crowd:
            crowd, self._crowd = self._crowd, []
            for waiting in crowd:
                if not waiting.done():
                    waiting.set_result(None)
        self.troubled = False

    def arrived(self, device: str, place: int) -> None:
        """Read what came for a device through another gateway."""
        connection = self.devices.get(device)
        if connection is not None and place > connection.sent:
            self._catch_up(connection)

    def replaced(self, device: str, session: int) -> None:
        """End a connection whose device has connected to another gateway."""
        connection = self.devices.get(device)
        if connection is not None and connection.key and connection.session < session:
            self.cut(connection, REPLACED)

    def keys_left(self, device: str, one_time_left: int) -> None:
        """Tell a device how many one-time keys it has left."""
        if connection := self.devices.get(device):
            self._say(connection, KeysLeft(one_time_left=one_time_left))
            self._flush_dirty()

    def expired(self, device: str, expired: Expired) -> None:
        """Tell a device that nobody fetched its messages."""
        if connection := self.devices.get(device):
            self._say(connection, expired)
            self._flush_dirty()

    # ── requests of a device ──────────────────────────────────────────────────────────────────────────────────────────

    def hear(self, connection: DeviceConnection, frame: FromDevice) -> int:
        """Handle a control frame; return how many frames it counts as."""
        match frame:
            case Ack(place=place):
                self._acknowledge(connection, place)
                return 1
            case Publish():
                self._store.publish(connection.key, frame, lambda done: self._say(connection, done))
                return ASKING_FRAMES + len(frame.one_time)
            case AllowSenders():
                # From here on every route to this device must be looked up again, after the list is written.
                connection.access += 1
                self._store.allow(connection.key, frame, partial(self._allowed, connection))
                return ASKING_FRAMES + len(frame.senders or ())
            case Watch(devices=devices):
                self.presence.watch(connection, devices)
                return ASKING_FRAMES + len(devices)
            case Fetch():
                self._fetch(connection, frame)
            case Hello():
                raise Malformed("a second hello")
        return ASKING_FRAMES

    def _allowed(self, connection: DeviceConnection, done: Done) -> None:
        self._say(connection, done)
        self.presence.permitted(connection.device)

    def _push(self, connection: DeviceConnection, report: PresenceReport) -> None:
        if not connection.closing:
            connection.say(report)
            self._soon(connection)

    def _fetch(self, connection: DeviceConnection, request: Fetch) -> None:
        def fetched(reply: Fetched) -> None:
            self._say(connection, reply.answer)
            owner = self.devices.get(request.device)
            if owner is not None and not isinstance(reply.answer, Denied) and reply.answer.one_time is not None:
                self._say(owner, KeysLeft(one_time_left=reply.one_time_left))

        self._store.fetch(connection.device, request, fetched)

    def _say(self, connection: DeviceConnection, frame: KeysLeft | Refused | Expired | Answered) -> None:
        if not connection.closing:
            connection.say(frame)
            self._dirty[connection.number] = connection

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, connection: DeviceConnection, put: Put) -> None:
        """Store a message; its sender gets a receipt once it is durable, and a connected receiver gets the message.

        On a known route the receiver gets it at once, while it is being written. If writing fails, or the gateway dies
        meanwhile, the sender has no receipt and sends it again, and the receiver recognises it by its number.
        """
        place = self._store.reserve_place()
        size = len(put.body)
        connection.unstored += size
        self._unstored += size
        message = SentMessage(connection.number, connection.key, connection.device, put, place)
        receiver = self.devices.get(put.to)
        if place is not None and receiver is not None and self._is_known(connection, receiver, put):
            receiver.deliver(Delivery(place, connection.device, put.number, put.body))
            self._soon(receiver)
            self._store.put_delivered(message)
            return
        self._slow[put.to] = self._slow.get(put.to, 0) + 1
        access = receiver.access if receiver is not None else 0

        def placed(result: Placed | Refused) -> None:
            self._count_down(put.to)
            self.placed((message,), (result,))
            if isinstance(result, Placed) and result.is_new:
                if receiver is not None:
                    self._learn(connection, put.to, DeliveryRoute(receiver, access, put.number))
                if now := self.devices.get(put.to):
                    self._pass_on(now, Delivery(result.place, connection.device, put.number, put.body))

        self._store.put(message, placed)

    def _is_known(self, connection: DeviceConnection, receiver: DeviceConnection, put: Put) -> bool:
        """Return whether a message will certainly be accepted, and no earlier message is still being written."""
        route = None if connection.routes is None else connection.routes.get(put.to)
        if (
            route is None
            or not receiver.live
            or route.receiver is not receiver
            or route.access != receiver.access
            or put.number <= route.number
            # A receiver acknowledges everything up to a place, so places are sent in order.
            or put.to in self._slow
            or not receiver.has_room(self._limits)
        ):
            return False
        route.number = put.number
        return True

    def _learn(self, connection: DeviceConnection, to: str, route: DeliveryRoute) -> None:
        if connection.routes is None:
            connection.routes = {}
        if len(connection.routes) >= MOST_ROUTES:
            connection.routes.clear()
        connection.routes[to] = route

    def _count_down(self, to: str) -> None:
        if self._slow[to] == 1:
            del self._slow[to]
        else:
            self._slow[to] -= 1

    def _soon(self, connection: DeviceConnection) -> None:
        """Flush a connection after all ready tasks have run, so that much of it shares one write."""
        if not self._dirty:
            asyncio.get_running_loop().call_soon(self._flush_dirty)
        self._dirty[connection.number] = connection

    def _pass_on(self, receiver: DeviceConnection, delivery: Delivery) -> None:
        if self._store.is_shared and delivery.place != receiver.sent + 1:
            # Something else came through another gateway and was not sent yet, or all of it was sent.
            self.arrived(receiver.device, delivery.place)
            return
        if not receiver.live:
            receiver.stale = True
            return
        if receiver.has_room(self._limits):
            receiver.deliver(delivery)
            self._dirty[receiver.number] = receiver
        else:
            receiver.live = False

    def _refused(self, connection: DeviceConnection, refused: Refused) -> None:
        if connection.closing:
            return
        self._say(connection, refused)
        if connection.routes:
            connection.routes.pop(refused.to, None)
        if connection.refused_to is None:
            connection.refused_to = set()
        connection.refused_to.add(refused.to)
        if len(connection.refused_to) > MOST_REFUSED:
            self.cut(connection, Bye(code="full", reason=f"messages to more than {MOST_REFUSED} devices were refused"))

    def _acknowledge(self, connection: DeviceConnection, place: int) -> None:
        # An honest device does not acknowledge a place that was not sent yet.
        if not connection.acknowledge(min(place, connection.sent), connection.last_frame_s):
            return
        # The current place: what was delivered after it may not be in the store yet, and would stay there.
        self._store.acknowledge(connection.key, connection.acked, _do_nothing)
        if not connection.live:
            self._next_page(connection)

    def _next_page(self, connection: DeviceConnection) -> None:
        """Read the next page, if the window has room and no page is being read."""
        messages, size = connection.room_left(self._limits)
        if connection.paging or messages <= 0 or size <= 0:
            return
        connection.paging = True
        connection.stale = False

        def on_page(page: Page) -> None:
            connection.paging = False
            if connection.closing:
                return
            more = page.more or (connection.stale and self._store.is_shared)
            # A file calls back in the order of the calls, so what it stores after this page is delivered after it.
            connection.live = not more
            if page.deliveries:
                for delivery in page.deliveries:
                    connection.deliver(delivery)
                self._dirty[connection.number] = connection
            if not page.more:
                connection.sent = max(connection.sent, page.upto)
            if more:
                self._next_page(connection)

        after = connection.sent
        self._store.page(connection.key, after, messages, size, on_page)

    def _catch_up(self, connection: DeviceConnection) -> None:
        """Read what is new, now or after the page that is being read; if the window is full, after the next ack."""
        if connection.paging:
            connection.stale = True
        elif connection.live:
            connection.live = False
            self._next_page(connection)

    def has_room(self, connection: DeviceConnection) -> bool:
        """Return whether more may be read from a device, given what it and all others have waiting to be written."""
        limits = self._limits
        return connection.unstored <= limits.unstored_bytes and self._unstored <= limits.all_unstored_bytes

    async def room(self, connection: DeviceConnection) -> None:
        """Return once little enough waits to be written; until then the device is not read."""
        while not (connection.closing or self.has_room(connection)):
            connection.room = asyncio.get_running_loop().create_future()
            self._crowd.append(connection.room)
            await connection.room

    def _flush_dirty(self) -> None:
        now = self._clock.now()
        dirty, self._dirty = self._dirty, {}
        for connection in dirty.values():
            connection.flush(now)


def _do_nothing(_: None) -> None: ...
