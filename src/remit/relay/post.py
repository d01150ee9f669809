"""Between a device's sealed messages and its gateway: what is sealed is brought, what comes is opened.

Nothing is decided here. The `Sealer` keeps what is to be sent and what has come, so this may die at any moment and
begin again: it asks the outbox what is left, and repeats are recognised by whoever gets them.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.relay import wire
from remit.relay.identity import PreKey, choose_prekey
from remit.relay.lanes import Outcome
from remit.relay.link import Link
from remit.relay.seal import Opened, Outbound, Refused, Sealer
from remit.relay.wire import Delivery, Receipt
from remit.runtime.ports import StoreError

P = ParamSpec("P")
T = TypeVar("T")

# As many as a link has under way: more would only be read twice after it broke.
_AHEAD = 256
# Who has heard nothing of what it sent for so long is told how far it came, unless an answer says so before.
TELL_S = 1.0
# What was refused, or could not be begun, is tried again after so long, and then twice as long, up to half a minute:
# the other side may connect for the first time at this moment, or change its mind.
AGAIN_S = 1.0
MOST_AGAIN_S = 30.0
# Below this many, new one-time keys are left with the gateway.
FEW_KEYS = 20

Trouble = Callable[[str, Fault | None], None]

_log = logging.getLogger("remit.relay")


class Post:
    """Brings and fetches for one device while the block lasts.

    *trouble* hears of each device with which something is wrong, and what; None, once it is right again.
    """

    def __init__(self, sealer: Sealer, link: Link, *, trouble: Trouble | None = None) -> None:
        self._sealer = sealer
        self._link = link
        self._trouble: Trouble = trouble or _ignore
        self._thread = ThreadPoolExecutor(1, "remit-post")
        self._news = asyncio.Event()
        """Something is to be sent."""
        self._came = asyncio.Event()
        self._after = 0
        """The last of the outbox that the link was given."""
        self._refused: dict[str, list[Outbound]] = {}
        """What waits to be given to the link again, by device."""
        self._done: list[int] = []
        self._seen = 0
        self._owed: set[str] = set()
        self._troubled: set[str] = set()
        self._resting: set[str] = set()
        """Those of them that are left alone until it is tried again."""

    async def __aenter__(self) -> "Post":
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
        await asyncio.to_thread(self._thread.shutdown)

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
        """Do something with the sealer or its state, in the one thread that does; what it seals is brought at once."""
        loop = asyncio.get_running_loop()
        # Shielded: what was begun is finished, whoever still waits for it.
        found = await asyncio.shield(loop.run_in_executor(self._thread, lambda: work(*args, **kwargs)))
        self._news.set()
        return found

    async def send(self, to: str, body: bytes, *, requester: str = "", message: str = "") -> str:
        """Seal a message; it is on its way when this returns, whatever happens (see `Sealer.seal`)."""
        return await self.do(self._sealer.seal, to, body, requester=requester, message=message)

    async def __aiter__(self) -> AsyncIterator[Opened]:
        """The messages that came and were not `taken`, in order, each once in a lifetime of this object."""
        while True:
            self._came.clear()
            while opened := await self.do(self._sealer.inbox, self._seen):
                for each in opened:
                    self._seen = each.id
                    yield each
            await self._came.wait()

    async def taken(self, opened: Opened) -> None:
        """Forget a message: what is needed of it is kept."""
        await self.do(self._sealer.taken, opened.id)

    # ── bringing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _bring(self) -> None:
        while True:
            self._news.clear()
            await self._settle()
            for device in await self._in_thread(self._sealer.wanting):
                if device not in self._resting:
                    await self._begin(device)
            rows = await self._in_thread(self._sealer.outbox, self._after, _AHEAD)
            for row in rows:
                self._after = row.id
                if row.to in self._refused:
                    self._refused[row.to].append(row)  # nothing overtakes
                else:
                    self._put(row)
            await self._link.room()
            if len(rows) < _AHEAD:
                await self._news.wait()

    def _put(self, row: Outbound) -> None:
        self._link.put(row.to, row.id, row.sealed).add_done_callback(lambda future: self._answered(row, future))

    def _answered(self, row: Outbound, future: "asyncio.Future[Outcome]") -> None:
        if future.cancelled() or future.exception() is not None:
            return  # the link has ended
        outcome = future.result()
        if isinstance(outcome, Receipt):
            self._done.append(row.id)
            self._right(row.to)
        else:
            self._refused.setdefault(row.to, []).append(row)
            self._wrong(row.to, _fault(outcome))
        self._news.set()

    async def _settle(self) -> None:
        if done := tuple(self._done):
            await self._in_thread(self._sealer.sent, *done)
            del self._done[: len(done)]

    async def _begin(self, device: str) -> None:
        key = await self._key_of(device)
        if key is None:
            return
        try:
            await self._in_thread(self._sealer.begin, device, key)
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
            if isinstance(found, wire.Bundle):
                peer = await self._in_thread(self._sealer.peers.get, device)
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
        async for delivery in self._link:
            await self._open(delivery)

    async def _open(self, delivery: Delivery) -> None:
        sender = delivery.sender
        while True:
            try:
                opened = await self._in_thread(self._sealer.open, sender, delivery.body)
            except Refused as refused:
                _log.info("%s", refused.fault.message)
                if refused.remedy == "later":
                    # It stays at the gateway, and all behind it, until something was taken here.
                    self._wrong(sender, refused.fault)
                    await asyncio.sleep(TELL_S)
                    continue
                with suppress(StoreError):  # whatever is asked for by it comes again
                    await self._remedy(sender, refused)
            except StoreError as error:
                _log.warning("%s", error.fault.message)
                await asyncio.sleep(TELL_S)
                continue
            else:
                self._owed.add(sender)
                if opened:
                    self._came.set()
            self._link.acknowledge(delivery)
            self._news.set()  # what was opened may have let go of what was held, or asked for an answer
            return

    async def _remedy(self, sender: str, refused: Refused) -> None:
        if refused.remedy == "renew":
            await self._renew(sender)
        elif refused.remedy == "acknowledge":
            with suppress(RemitError):
                await self._in_thread(lambda: self._sealer.acknowledge(sender, always=True))

    async def _renew(self, device: str) -> None:
        key = await self._key_of(device)
        if key is not None:
            with suppress(RemitError):
                await self._in_thread(self._sealer.renew, device, key)

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
                    await self._in_thread(self._sealer.acknowledge, device)
            if not owed:  # nothing came for a while: what is missing does not come by itself
                for device in await self._in_thread(self._sealer.stuck):
                    await self._renew(device)
            self._news.set()

    # ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _leave_keys(self) -> None:
        """Leave keys with the gateway, by which others open sessions."""
        published = await self._in_thread(self._sealer.device.publish)
        with suppress(RemitError):  # the link has ended, and says why
            await self._link.publish(bundle=published.bundle, one_time=published.one_time)

    # ── what is wrong ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _wrong(self, device: str, why: Fault) -> None:
        self._resting.add(device)
        self._troubled.add(device)
        self._trouble(device, why)

    def _right(self, device: str) -> None:
        if device in self._troubled:
            self._troubled.discard(device)
            self._trouble(device, None)

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*args, **kwargs))


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
