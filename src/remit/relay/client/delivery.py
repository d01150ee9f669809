"""Between a device's sealed messages and its gateway: what is sealed is brought, what comes is opened.

Nothing is decided here. The `Sealer` keeps what is to be sent and what has come, so this may die at any moment and
begin again: it asks the outbox what is left, and repeats are recognised by whoever gets them.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

from msgspec import Struct

from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.relay import wire
from remit.relay.client.connection import GatewayConnection
from remit.relay.client.send_queue import Outcome
from remit.relay.device.identity import PreKey, choose_prekey
from remit.relay.device.writer import Commits, FailedWork, Work
from remit.relay.e2e.channel import Opened, OutboundMessage, RejectedMessageError, Sealer
from remit.relay.wire import Delivery, Receipt
from remit.runtime.ports import StoreError

P = ParamSpec("P")
T = TypeVar("T")

# As many as a link has under way: more would only be read twice after it broke.
_AHEAD = 256
# What came is opened together with what came meanwhile, up to so much.
_OPENED_MESSAGES = 64
_OPENED_BYTES = 8 * wire.MAX_BODY
# What was opened is handed on from memory, up to so much; beyond that, from the inbox.
_READY_MESSAGES = 64
_READY_BYTES = 4 * 1024 * 1024
# Who has heard nothing of what it sent for so long is told how far it came, unless an answer says so before.
TELL_S = 1.0
# What was refused, or could not be begun, is tried again after so long, and then twice as long, up to half a minute:
# the other side may connect for the first time at this moment, or change its mind.
AGAIN_S = 1.0
MOST_AGAIN_S = 30.0
# Once after a start all are asked for what is missing here; who was asked a short while ago, later.
ASK_S = 60.0
# Below this many, new one-time keys are left with the gateway.
FEW_KEYS = 20

Trouble = Callable[[str, Fault | None], None]

_log = logging.getLogger("remit.relay")


class _Look(Struct, frozen=True):
    """What is to be brought, as of a commit."""

    rows: list[OutboundMessage]
    wanting: list[str]
    room: int


class _Came(Struct, frozen=True):
    """What was opened of some deliveries, in order, and why the next one was not."""

    count: int
    opened: list[Opened]
    refused: RejectedMessageError | None = None


class MessageDelivery:
    """Brings and fetches for one device while the block lasts.

    *trouble* hears of each device with which something is wrong, and what; None, once it is right again.
    """

    def __init__(self, sealer: Sealer, link: GatewayConnection, *, trouble: Trouble | None = None) -> None:
        self._sealer = sealer
        self._link = link
        self._trouble: Trouble = trouble or _ignore
        self._works = Commits(sealer.device.state, self._company)
        self._news = asyncio.Event()
        """Something is to be sent."""
        self._came = asyncio.Event()
        self._settled = asyncio.Event()
        """The gateway has some of it."""
        self._after = 0
        """The last of the outbox that was read."""
        self._rows: deque[OutboundMessage] = deque()
        """What was read of it, and not given to the link yet."""
        self._wanting: list[str] = []
        self._more = True
        """Whether there may be more in the outbox than was read."""
        self._unseen: Exception | None = None
        """Why it could not be read."""
        self._refused: dict[str, list[OutboundMessage]] = {}
        """What waits to be given to the link again, by device."""
        self._done: list[int] = []
        """What the gateway has, and the outbox still does: that is written with whatever is written next."""
        self._seen = 0
        """The last message that was handed on."""
        self._newest = 0
        """The last message that was opened."""
        self._ready: deque[Opened] = deque()
        self._is_direct = False
        """Whether all that was opened and not handed on is in there; else the inbox is read."""
        self._owed: set[str] = set()
        self._troubled: dict[str, Fault] = {}
        self._resting: set[str] = set()
        """Those of them that are left alone until it is tried again."""
        self._later: set[str] = set()
        """Who sent what could not be taken when it came, and has to send it again."""
        self._asks_from = 0.0
        """When those who were not asked for what is missing here are asked next."""

    async def __aenter__(self) -> "MessageDelivery":
        self._link.expired = self._expired
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
        with suppress(RemitError):  # what is not noted to be there is brought once more, and recognised
            await self._works.do(_nothing)
        await self._works.close()

    async def _keep_at(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do a work until its link ends; what a store in trouble has stopped goes on once it may have passed."""
        while True:
            try:
                return await work()
            except StoreError as error:
                _log.warning("%s", error.fault.message)
                await asyncio.sleep(TELL_S)
            except RemitError as error:  # the link has ended, and says why
                _log.debug("%s", error.fault.message)
                return None

    # ── for whoever has something to say ──────────────────────────────────────────────────────────────────────────────

    async def do(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do something with the sealer or its state; it is durable when this returns, and what it seals is on its way.

        It is one with whatever else waits to be done: see `Commits`.
        """
        return await self._works.do(partial(work, *args, **kwargs))

    async def send(self, to: str, body: bytes, *, requester: str = "", message: str = "") -> str:
        """Seal a message; it is on its way when this returns, whatever happens (see `Sealer.seal`)."""
        return await self.do(self._sealer.seal, to, body, requester=requester, message=message)

    async def __aiter__(self) -> AsyncIterator[Opened]:
        """The messages that came and were not `taken`, in order, each once in a lifetime of this object."""
        while True:
            if self._ready:
                opened = self._ready.popleft()
                self._seen = opened.id
                yield opened
            elif self._is_direct:
                self._came.clear()
                await self._came.wait()
            else:
                self._ready += await self.do(self._sealer.inbox, self._seen)
                self._is_direct = not self._ready and self._newest <= self._seen

    async def taken(self, opened: Opened) -> None:
        """Forget a message: what is needed of it is kept."""
        await self.do(self._sealer.taken, opened.id)

    async def emptied(self) -> None:
        """Return once the gateway has all that was sealed so far."""
        while True:
            self._settled.clear()
            if not await self.do(self._sealer.outbox, 0, 1):
                return
            await self._settled.wait()

    def obstacle(self, device: str) -> str:
        """Return why nothing gets to a device for now; empty: nothing is known to be in the way."""
        if self._link.state == "waiting":
            return self._link.why.rpartition("; ")[0]  # without when it is tried next
        found = self._troubled.get(device)
        return "" if found is None else found.message

    # ── bringing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _bring(self) -> None:
        while True:
            self._news.clear()
            if self._more:
                await self.do(_nothing)
                if self._unseen is not None:
                    raise self._unseen
            for device in self._wanting:
                if device not in self._resting:
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
        """Have each commit also note what the gateway has by now, and see what is to be brought after it."""
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
        if self._more or look.rows or not self._resting.issuperset(look.wanting):
            self._news.set()

    def _put(self, row: OutboundMessage) -> None:
        self._link.put(row.to, row.id, row.sealed).add_done_callback(lambda future: self._answered(row, future))

    def _answered(self, row: OutboundMessage, future: "asyncio.Future[Outcome]") -> None:
        if future.cancelled() or future.exception() is not None:
            return  # the link has ended
        outcome = future.result()
        if isinstance(outcome, Receipt):
            self._done.append(row.id)
            self._settled.set()
            self._right(row.to)
        else:
            self._refused.setdefault(row.to, []).append(row)
            self._wrong(row.to, _fault(outcome))

    async def _begin(self, device: str) -> None:
        key = await self._key_of(device)
        if key is None:
            return
        try:
            await self.do(self._sealer.begin, device, key)
        except StoreError:
            raise
        except RemitError as error:  # nothing may be said to it any more
            self._wrong(device, error.fault)
        else:
            self._right(device)

    async def _key_of(self, device: str) -> PreKey | None:
        """Return a key to open a session with; None if there is none for now, and that is told."""
        try:
            found = await self._link.fetch(device)
            if isinstance(found, wire.BundleReply):
                peer = await self.do(self._sealer.peers.get, device)
                assert peer is not None, "a message is held only for who is known"
                return choose_prekey(peer.card, found.bundle, found.one_time)
            self._wrong(device, _fault(found))
        except StoreError:
            raise
        except RemitError as error:
            self._wrong(device, error.fault)
        return None

    async def _try_again(self) -> None:
        pause_s = AGAIN_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MOST_AGAIN_S) if self._resting else AGAIN_S
            again, self._refused = self._refused, {}
            for rows in again.values():
                for row in sorted(rows, key=lambda row: row.id):
                    self._put(row)
            self._resting.clear()
            self._news.set()

    # ── fetching ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _fetch(self) -> None:
        while True:
            came = [await self._link.receive(), *self._link.received(_OPENED_MESSAGES, _OPENED_BYTES)]
            while came:
                came = came[await self._open(came) :]

    async def _open(self, deliveries: list[Delivery]) -> int:
        """Open deliveries in order, and return how many of them are done with."""
        try:
            came = await self.do(self._opened, deliveries)
        except StoreError as error:
            _log.warning("%s", error.fault.message)
            await asyncio.sleep(TELL_S)
            return 0
        for delivery in deliveries[: came.count]:
            self._owed.add(delivery.sender)
            self._link.acknowledge(delivery)
        self._hand_on(came.opened)
        if (refused := came.refused) is None:
            return came.count
        delivery = deliveries[came.count]
        _log.info("%s", refused.fault.message)
        if refused.remedy == "later":
            # Left at the gateway, it would hold up what others send. Its sender holds it, and is asked for it.
            if delivery.sender not in self._later:
                self._later.add(delivery.sender)
                self._wrong(delivery.sender, refused.fault)
        else:
            with suppress(StoreError):  # whatever is asked for by it comes again
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
            if await self.do(self._sealer.may_renew, sender):
                await self._renew(sender)
            else:
                self._later.add(sender)
        elif refused.remedy == "acknowledge":
            with suppress(RemitError):
                await self.do(self._sealer.acknowledge, sender, always=True)

    async def _renew(self, device: str) -> bool:
        """Begin anew with a device, and say whether there is nothing more to do about that."""
        key = await self._key_of(device)
        if key is None:
            return False
        try:
            return await self.do(self._sealer.renew, device, key)
        except StoreError:
            return False
        except RemitError:  # nothing is said to it any more
            return True

    async def _tell(self) -> None:
        """Say now and then how far this device is, ask again for what is missing, and leave keys where few are left."""
        await self._leave_keys()
        while True:
            await asyncio.sleep(TELL_S)
            if self._link.one_time_left is not None and self._link.one_time_left < FEW_KEYS:
                await self._leave_keys()
            owed, self._owed = self._owed, set()
            for device in owed:
                with suppress(RemitError):
                    await self.do(self._sealer.acknowledge, device)
            for device in self._later - self._resting:
                if await self.do(self._sealer.may_renew, device) and await self._renew(device):
                    self._later.discard(device)
            if not owed:  # nothing came for a while: what is missing does not come by itself
                for device in await self.do(self._sealer.stuck):
                    if await self.do(self._sealer.may_renew, device):
                        await self._renew(device)
                if self._asks_from <= asyncio.get_running_loop().time() and self._link.state == "connected":
                    asked = await self.do(self._sealer.ask)
                    self._asks_from = math.inf if asked else asyncio.get_running_loop().time() + ASK_S

    # ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _leave_keys(self) -> None:
        """Leave keys with the gateway, by which others open sessions."""
        published = await self.do(self._sealer.device.publish)
        with suppress(RemitError):  # the link has ended, and says why
            await self._link.publish(bundle=published.bundle, one_time=published.one_time)

    # ── what is wrong ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _expired(self, expired: wire.Expired) -> None:
        # It is still held here, and comes with the next message to that device, or when that is started and asks.
        why = f"what was sent to it waits at the gateway no more: {expired.reason or 'nobody fetched it for long'}"
        suggestion = "Ask its owner whether it is still in use. It is sent again once it is started, or with the next."
        self._wrong(expired.to, fault(Code.DELEGATION_UNAVAILABLE, why, suggestion=suggestion))

    def _wrong(self, device: str, why: Fault) -> None:
        self._resting.add(device)
        self._troubled[device] = why
        self._trouble(device, why)

    def _right(self, device: str) -> None:
        if self._troubled.pop(device, None) is not None:
            self._trouble(device, None)


def _nothing() -> None:
    """Wanted where only the company of a commit is."""


def _ignore(_device: str, _why: Fault | None) -> None: ...


def _fault(answer: wire.Refused | wire.Denied | wire.Done) -> Fault:
    if isinstance(answer, wire.Done):
        return fault(Code.RESULT_VALIDATION_FAILED, "the gateway answered something else than it was asked")
    if answer.code == "full":
        return fault(Code.OVERLOADED, answer.reason or "the gateway takes no more for that device for now")
    return fault(
        Code.DELEGATION_UNAVAILABLE,
        answer.reason or "the gateway does not reach that device",
        suggestion="Its owner has to have connected once, and to allow this device.",
    )
