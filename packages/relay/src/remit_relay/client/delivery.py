"""Delivery between a device's encrypted store and its gateway: send the outbox, decrypt what arrives.

Nothing is decided here. The `MessageCipher` stores what to send and what was received, so this may crash at any moment
and start again: it reads the rest of the outbox, and receivers recognise repeats.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

from msgspec import Struct

from remit.ports import StoreError
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.runtime.clock import sleep_to_tick
from remit_relay import wire
from remit_relay.client.connection import GatewayConnection, PresenceBook
from remit_relay.client.queues import Outcome
from remit_relay.device.identity import PreKey, Published, choose_prekey
from remit_relay.device.state import Commits, FailedWork, FileChanges, Work, until_stored
from remit_relay.e2e.account import Device
from remit_relay.e2e.channel import (
    MessageCipher,
    Opened,
    OutboundMessage,
    RejectedMessageError,
    RejectionReason,
)
from remit_relay.wire import Delivery, Receipt

# ── troubles of peers ─────────────────────────────────────────────────────────────────────────────────────────────────

Trouble = Callable[[str, Fault | None], None]


class Troubles:
    """The problem of each device; *tell* is called with each problem, and with None once it is solved."""

    def __init__(self, tell: Trouble | None) -> None:
        self._tell: Trouble = tell or _ignore
        self._known: dict[str, Fault] = {}
        self.resting: set[str] = set()
        """Devices that wait for the next retry."""
        self.came = asyncio.Event()
        """Set when a device rests; whoever retries clears it."""

    def wrong(self, device: str, why: Fault) -> None:
        """Report a problem; the device rests until the next retry."""
        self.resting.add(device)
        self.came.set()
        self._known[device] = why
        self._tell(device, why)

    def right(self, device: str) -> None:
        """Report that there is no problem, or no longer."""
        if self._known.pop(device, None) is not None:
            self._tell(device, None)

    def why(self, device: str) -> str:
        """Return the problem of a device; empty: none is known."""
        problem = self._known.get(device)
        return "" if problem is None else problem.message


def _ignore(_device: str, _why: Fault | None) -> None: ...


def fault_of(answer: wire.Refused | wire.Denied | wire.Done) -> Fault:
    """Return why a gateway refuses a message, or the keys of a device."""
    if isinstance(answer, wire.Done):
        return fault(Code.RESULT_VALIDATION_FAILED, "unexpected answer from the gateway")
    if answer.code == "full":
        return fault(Code.OVERLOADED, answer.reason or "the gateway accepts no more messages for this device for now")
    why = answer.reason or "the gateway cannot reach this device"
    todo = "The other device must have connected once, and must allow this device."
    return fault(Code.DELEGATION_UNAVAILABLE, why, suggestion=todo)


# ── publishing keys ───────────────────────────────────────────────────────────────────────────────────────────────────

# Below so many one-time keys at the gateway, the device adds new ones up to the other number. It adds no more: a device
# keeps the secret halves of some thousand keys and forgets the oldest, and the gateway hands out the oldest first.
FEW_KEYS = 20
MOST_KEYS = 50
# Keys that cannot be used are replaced at most this often.
REPLACED_S = 30.0


class KeyPublisher:
    """Publishes the keys of a device; *do* makes new ones durable."""

    def __init__(
        self,
        device: Device,
        link: GatewayConnection,
        do: Callable[[Callable[[], Published]], Awaitable[Published]],
    ) -> None:
        self._device = device
        self._link = link
        self._do = do
        self._replaces_from = 0.0

    @property
    def are_few(self) -> bool:
        """Whether the gateway has too few one-time keys left."""
        return self._link.one_time_left is not None and self._link.one_time_left < FEW_KEYS

    async def publish(self, *, replace: bool = False) -> None:
        """Publish a new fallback key, and as many one-time keys as are missing; with *replace*, all of them anew."""
        await self._link.welcomed.wait()
        left = 0 if replace else self._link.one_time_left or 0
        published = await self._do(partial(self._device.publish, max(0, MOST_KEYS - left)))
        with suppress(RemitError):  # the connection has ended, and says why
            await self._link.publish(bundle=published.bundle, one_time=published.one_time, replace=replace)

    async def replace(self) -> None:
        """Replace all keys, after a message that was sealed with one that this device does not know.

        Otherwise the next session might be opened with another key that it has forgotten, as after a restore.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._replaces_from:
            self._replaces_from = now + REPLACED_S
            await self.publish(replace=True)


# ── delivery ──────────────────────────────────────────────────────────────────────────────────────────────────────────


__all__ = ["MessageDelivery", "Trouble"]

P = ParamSpec("P")
T = TypeVar("T")

# As many as a connection has unanswered: more would only be read twice after it broke.
_AHEAD = 256
# Deliveries that are decrypted together, at most.
_OPENED_MESSAGES = 64
_OPENED_BYTES = 8 * wire.MAX_BODY
# Decrypted messages are passed on from memory up to this much; beyond that, from the inbox.
_READY_MESSAGES = 64
_READY_BYTES = 4 * 1024 * 1024
# A sender gets an acknowledgement after this time, unless an answer acknowledges earlier.
TELL_S = 1.0
# Refused messages and failed sessions are retried after this time, then after twice as long, up to half a minute:
# the other side may connect for the first time, or change its permissions.
AGAIN_S = 1.0
MOST_AGAIN_S = 30.0
# After a start every peer is asked once for missing messages; those asked recently are asked after this time.
ASK_S = 60.0

Moved = Callable[[wire.Expired | None], None]

_log = logging.getLogger("remit.relay")


class _Look(Struct, frozen=True):
    """What is left to send, as of a commit."""

    rows: list[OutboundMessage]
    wanting: list[str]
    room: int


class _Came(Struct, frozen=True):
    """The messages decrypted from some deliveries, in order, and why the next one was rejected."""

    count: int
    opened: list[Opened]
    refused: RejectedMessageError | None = None


class MessageDelivery:
    """Sends and receives for one device while the block lasts.

    *trouble* is called with each device that has a problem and its fault, and with None once it is solved.
    """

    def __init__(self, sealer: MessageCipher, link: GatewayConnection, *, trouble: Trouble | None = None) -> None:
        self._sealer = sealer
        self._link = link
        self._troubles = Troubles(trouble)
        self._works = Commits(sealer.device.state, self._company)
        self._keys = KeyPublisher(sealer.device, link, self.do)
        self._news = asyncio.Event()
        """Set when there is something to send."""
        self._came = asyncio.Event()
        self._settled = asyncio.Event()
        """Set when the gateway has stored something."""
        self._listeners: list[Moved] = []
        self._after = 0
        """The last id of the outbox that was read."""
        self._rows: deque[OutboundMessage] = deque()
        """What was read of the outbox and not passed to the connection yet."""
        self._wanting: list[str] = []
        self._more = True
        """Whether there may be more in the outbox than was read."""
        self._unseen: Exception | None = None
        """Why the outbox could not be read."""
        self._refused: dict[str, list[OutboundMessage]] = {}
        """Refused messages that will be sent again, by device."""
        self._done: list[int] = []
        """Ids that the gateway has stored and the outbox still holds: they are deleted with the next commit."""
        self._seen = 0
        """The last message that was passed on."""
        self._newest = 0
        """The last message that was decrypted."""
        self._ready: deque[Opened] = deque()
        self._is_direct = False
        """Whether `_ready` has all messages that were not passed on; otherwise the inbox is read."""
        self._owed: set[str] = set()
        self._later: set[str] = set()
        """Devices whose messages could not be accepted, and which must send them again."""
        self._asks_from: float | None = 0.0
        """When the remaining peers are asked for missing messages; None: all were asked."""
        self._due = asyncio.Event()
        """Set when `_tell` may have something to do."""

    async def __aenter__(self) -> "MessageDelivery":
        self._link.expired = self._expired
        self._link.counted.append(self._due.set)
        self._link.listen(lambda _: self._due.set())
        await self._link.__aenter__()
        works = (self._bring, self._fetch, self._tell, self._try_again)
        self._tasks = [asyncio.create_task(self._keep_at(work)) for work in works]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._link.__aexit__()
        self._came.set()
        with suppress(RemitError):  # what is not deleted from the outbox is sent again, and recognised
            await self._works.do(_nothing)
        await self._works.close()

    async def _keep_at(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run a task until its connection ends; after an error of the store it is started again."""
        try:
            await until_stored(work)
        except RemitError as error:  # the connection has ended, and says why
            _log.debug("%s", error.fault.message)

    # ── interface ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def do(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run *work* on the sealer or its state; when this returns it is durable, and new messages will be sent.

        It shares a commit with other waiting work: see `Commits`.
        """
        return await self._works.do(partial(work, *args, **kwargs))

    async def persist(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do the same for work that nobody would repeat: while the store cannot be used, it is tried again."""
        return await until_stored(lambda: self.do(work, *args, **kwargs))

    async def send(self, to: str, body: bytes, *, requester: str = "", message: str = "") -> str:
        """Encrypt a message; when this returns it is durable and will be sent (see `MessageCipher.seal`)."""
        return await self.do(self._sealer.seal, to, body, requester=requester, message=message)

    async def __aiter__(self) -> AsyncIterator[Opened]:
        """The messages that were not `taken` yet, in order, each once in the lifetime of this object."""
        while True:
            if self._ready:
                opened = self._ready.popleft()
                self._seen = opened.id
                yield opened
            elif self._is_direct:
                self._came.clear()
                await self._came.wait()
            else:
                self._ready += await self.persist(self._sealer.inbox, self._seen)
                self._is_direct = not self._ready and self._newest <= self._seen

    def listen(self, moved: Moved) -> Callable[[], None]:
        """Call *moved* whenever messages on their way may have moved, or have expired; return how to stop that."""
        self._listeners.append(moved)
        return lambda: self._listeners.remove(moved)

    async def taken(self, opened: Opened) -> None:
        """Delete a message from the inbox after it was handled."""
        await self.do(self._sealer.taken, opened.id)

    async def emptied(self) -> None:
        """Return once the gateway has stored everything in the outbox."""
        while True:
            self._settled.clear()
            if not await self.do(self._sealer.outbox, 0, 1):
                return
            await self._settled.wait()

    @property
    def presence(self) -> PresenceBook:
        """Which other devices are connected, as far as this device knows."""
        return self._link.presence

    @property
    def one_time_left(self) -> int | None:
        """How many one-time keys of this device the gateway has left; None until it has said so."""
        return self._link.one_time_left

    def obstacle(self, device: str) -> str:
        """Return why messages to a device are delayed; empty: no reason is known."""
        if self._link.state == "waiting":
            return self._link.why.rpartition("; ")[0]  # without the time of the next attempt
        if self._link.state == "silent":
            return self._link.why
        return self._troubles.why(device)

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _bring(self) -> None:
        while True:
            self._news.clear()
            if self._more:
                await self.do(_nothing)
                if self._unseen is not None:
                    raise self._unseen
            for device in self._wanting:
                if device not in self._troubles.resting:
                    await self._begin(device)
            while self._rows:
                row = self._rows.popleft()
                if row.to in self._refused:
                    self._refused[row.to].append(row)  # nothing overtakes
                else:
                    self._put(row)
            await self._link.room()
            if not self._more:
                await self._news.wait()

    def _company(self, batch: list[Work]) -> None:
        """Extend each commit: first delete what the gateway has stored, last read what to send next."""
        if done := tuple(self._done):
            self._done.clear()
            batch.insert(0, Work(partial(self._sealer.sent, *done), partial(self._noted, done)))
        batch.append(Work(partial(self._look, self._after, _AHEAD - len(self._rows)), self._looked))

    def _noted(self, done: tuple[int, ...], outcome: FailedWork | None) -> None:
        if outcome is not None:
            self._done.extend(done)

    def _look(self, after: int, room: int) -> _Look:
        return _Look(self._sealer.outbox(after, room) if room > 0 else [], self._sealer.wanting(), room)

    def _looked(self, look: _Look | FailedWork) -> None:
        self._unseen = look.error if isinstance(look, FailedWork) else None
        if isinstance(look, FailedWork):
            self._more = True
            self._news.set()
            return
        self._rows += look.rows
        self._after = look.rows[-1].id if look.rows else self._after
        self._more = len(look.rows) == max(0, look.room)
        self._wanting = look.wanting
        if self._more or look.rows or not self._troubles.resting.issuperset(look.wanting):
            self._news.set()

    def _put(self, row: OutboundMessage) -> None:
        self._link.put(row.to, row.id, row.sealed).add_done_callback(lambda future: self._answered(row, future))

    def _answered(self, row: OutboundMessage, future: "asyncio.Future[Outcome]") -> None:
        if future.cancelled() or future.exception() is not None:
            return  # the connection has ended
        outcome = future.result()
        if isinstance(outcome, Receipt) or row.is_farewell:
            self._done.append(row.id)
            self._settled.set()
            self._troubles.right(row.to)
            self._moved()
        else:
            self._refused.setdefault(row.to, []).append(row)
            self._troubles.wrong(row.to, fault_of(outcome))

    async def _begin(self, device: str) -> None:
        key = await self._key_of(device)
        if key is None:
            return
        try:
            await self.do(self._sealer.begin, device, key)
        except StoreError:
            raise
        except RemitError as error:  # sending to it is no longer allowed
            self._troubles.wrong(device, error.fault)
        else:
            self._troubles.right(device)

    async def _key_of(self, device: str) -> PreKey | None:
        """Return a key to open a session with; None if there is none, which is reported."""
        try:
            reply = await self._link.fetch(device)
            if isinstance(reply, wire.BundleReply):
                peer = await self.do(self._sealer.peers.get, device)
                assert peer is not None, "messages are held only for known devices"
                return choose_prekey(peer.card, reply.bundle, reply.one_time)
            self._troubles.wrong(device, fault_of(reply))
        except StoreError:
            raise
        except RemitError as error:
            self._troubles.wrong(device, error.fault)
        return None

    async def _try_again(self) -> None:
        while True:
            await self._troubles.came.wait()
            await sleep_to_tick(AGAIN_S)
            pause_s = AGAIN_S
            while self._troubles.resting or self._refused:
                await self._send_refused()
                pause_s = min(2 * pause_s, MOST_AGAIN_S)
                await asyncio.sleep(pause_s)
            self._troubles.came.clear()

    async def _send_refused(self) -> None:
        again, self._refused = self._refused, {}
        # What was meant for a device that was revoked meanwhile is deleted.
        left = await self.persist(self._sealer.unsent, [row.id for rows in again.values() for row in rows])
        for device, rows in again.items():
            for row in sorted(rows, key=lambda row: row.id):
                if row.id in left:
                    self._put(row)
            if left.isdisjoint(row.id for row in rows):
                self._troubles.right(device)
        self._troubles.resting.clear()
        self._news.set()

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _fetch(self) -> None:
        while True:
            came = [await self._link.receive(), *self._link.received(_OPENED_MESSAGES, _OPENED_BYTES)]
            while came:
                came = came[await self._open(came) :]
                self._due.set()

    async def _open(self, deliveries: list[Delivery]) -> int:
        """Decrypt deliveries in order; return how many of them were handled."""
        came = await self.persist(self._opened, deliveries)
        for delivery in deliveries[: came.count]:
            self._owed.add(delivery.sender)
            # Its number is the time at which it was sealed, in microseconds.
            self._link.presence.note_message(delivery.sender, delivery.number // 1_000)
            self._link.acknowledge(delivery)
        self._moved()
        self._hand_on(came.opened)
        if (refused := came.refused) is None:
            return came.count
        delivery = deliveries[came.count]
        _log.info("%s", refused.fault.message)
        if refused.remedy == "later":
            # If it stayed at the gateway it would block messages of others. Its sender holds it, and is asked for it.
            if delivery.sender not in self._later:
                self._later.add(delivery.sender)
                self._troubles.wrong(delivery.sender, refused.fault)
        else:
            with suppress(StoreError):  # the remedy will be needed again
                await self._remedy(delivery.sender, refused)
        self._link.acknowledge(delivery)
        return came.count + 1

    def _opened(self, deliveries: list[Delivery]) -> _Came:
        opened: list[Opened] = []
        for count, delivery in enumerate(deliveries):
            try:
                with self._sealer.device.state.apart():
                    opened += self._sealer.open(delivery.sender, delivery.body)
            except RejectedMessageError as refused:
                return _Came(count, opened, refused)
        return _Came(len(deliveries), opened)

    def _hand_on(self, opened: list[Opened]) -> None:
        if not opened:
            return
        self._newest = opened[-1].id
        size = sum(len(each.body) for each in (*opened, *self._ready))
        if self._is_direct and len(self._ready) + len(opened) <= _READY_MESSAGES and size <= _READY_BYTES:
            self._ready += opened
        else:
            self._is_direct = False
        self._came.set()

    async def _remedy(self, sender: str, refused: RejectedMessageError) -> None:
        if refused.remedy == "renew":
            if refused.reason is RejectionReason.UNREADABLE:
                await self._keys.replace()
            if await self.do(self._sealer.may_renew, sender):
                await self._renew(sender)
            else:
                self._later.add(sender)
        elif refused.remedy == "acknowledge":
            with suppress(RemitError):
                await self.do(self._sealer.acknowledge, sender, always=True)

    async def _renew(self, device: str) -> bool:
        """Renew the session with a device; return whether nothing more needs to be done."""
        key = await self._key_of(device)
        if key is None:
            return False
        try:
            return await self.do(self._sealer.renew, device, key)
        except StoreError:
            return False
        except RemitError:  # sending to it is no longer allowed
            return True

    async def _tell(self) -> None:
        """Acknowledge, ask for missing messages, and publish keys when few are left."""
        await self._keys.publish()
        changes, owed, stuck = FileChanges(self._sealer.device.state), set[str](), list[str]()
        while True:
            self._due.clear()
            if not (owed or self._owed or self._later or stuck or self._keys.are_few):
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(self._asks_from if self._link.state == "connected" else None):
                        await self._due.wait()
            await sleep_to_tick(TELL_S)
            if self._keys.are_few:
                await self._keys.publish()
            owed, self._owed = self._owed, set()
            for device in owed:
                with suppress(RemitError):
                    await self.do(self._sealer.acknowledge, device)
            for device in self._later - self._troubles.resting:
                if await self.do(self._sealer.may_renew, device) and await self._renew(device):
                    self._later.discard(device)
            if not owed:  # nothing came for a while: missing messages do not come by themselves
                stuck = await self.do(self._sealer.stuck) if changes.look() or stuck else []
                for device in stuck:
                    if await self.do(self._sealer.may_renew, device):
                        await self._renew(device)
                now, asks_from = asyncio.get_running_loop().time(), self._asks_from
                if asks_from is not None and asks_from <= now and self._link.state == "connected":
                    all_asked = await self.do(self._sealer.ask)
                    self._asks_from = None if all_asked else now + ASK_S

    # ── problems ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _expired(self, expired: wire.Expired) -> None:
        # It is still held here, and is sent again with the next message, or when that device starts and asks for it.
        why = f"the gateway deleted messages to this device: {expired.reason or 'not fetched for too long'}"
        suggestion = "Ask its owner if it is still used. They are sent again when it starts, or with the next message."
        self._troubles.wrong(expired.to, fault(Code.DELEGATION_UNAVAILABLE, why, suggestion=suggestion))
        self._moved(expired)

    def _moved(self, expired: wire.Expired | None = None) -> None:
        for moved in self._listeners:
            moved(expired)


def _nothing() -> None:
    """Do nothing: used to start a commit for what `_company` adds."""
