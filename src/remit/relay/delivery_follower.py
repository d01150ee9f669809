"""Follows the messages of runs on their way: taken by the gateway, delivered to the other device, or expired.

What the encrypted store knows is copied into the runs a moment after it changed. A quick answer needs none of it, and
so costs no further commit.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from remit.protocol.errors import RemitError
from remit.relay.client.delivery import MessageDelivery
from remit.relay.e2e.channel import MessageCipher, Opened
from remit.relay.messages.types import AnswerMessage, DeclineMessage, ReadReceipt
from remit.relay.session import delivery_states
from remit.relay.session.repository import RunRepository
from remit.relay.session.run import Overlay
from remit.relay.wire import Expired

# Longer than an answer takes that comes at once, and short for people.
SETTLE_S = 0.2

Change = Callable[[Overlay], Overlay]


class DeliveryFollower:
    """Follows the messages of *runs* while the block lasts. Each run is changed under its lock, and stored in *kept*.

    That is no step of a run, so it is not recorded: the record has what was sent and answered in each turn (S13).
    """

    def __init__(
        self,
        sealer: MessageCipher,
        delivery: MessageDelivery,
        runs: dict[str, Overlay],
        locks: dict[str, asyncio.Lock],
        kept: RunRepository,
        changed: Callable[[Overlay], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._sealer = sealer
        self._delivery = delivery
        self._runs = runs
        self._locks = locks
        self._kept = kept
        self._changed = changed
        self._now_ms = now_ms
        self._news = asyncio.Event()
        self._expired: list[Expired] = []

    async def __aenter__(self) -> "DeliveryFollower":
        self._news.set()  # what happened while no process was running
        self._stop = self._delivery.listen(self._hear)
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop()
        self._task.cancel()
        await asyncio.wait([self._task])

    def _hear(self, expired: Expired | None) -> None:
        if expired is not None:
            self._expired.append(expired)
        self._news.set()

    async def _follow(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(SETTLE_S)
            self._news.clear()
            expired, self._expired = self._expired, []
            update = partial(self._brought_up, expired)
            for run in [each for each in self._runs.values() if delivery_states.followed(each)]:
                # The store cannot be used, or the device was forgotten: the next news bring it up to date.
                with suppress(RemitError):
                    await self._revise(run.id, update)

    async def note_read(self, opened: Opened, message: ReadReceipt) -> None:
        """Note that the shared agent was given a message of a run; drop the receipt if no run waits for an answer."""
        run = next((each for each in self._runs.values() if awaits(each, opened, message)), None)
        if run is None:
            await self._delivery.taken(opened)
        else:
            read = partial(delivery_states.progressed, message=message.to, state="read", now_ms=self._now_ms())
            await self._revise(run.id, read, opened)

    async def _revise(self, run_id: str, change: Change, opened: Opened | None = None) -> None:
        """Change a run, and delete the message that caused it in the same commit."""
        async with self._locks.setdefault(run_id, asyncio.Lock()):
            before = self._runs[run_id]
            run = self._runs[run_id] = await self._delivery.do(self._commit, before, change, opened)
            if run is not before:
                self._changed(run)

    def _commit(self, run: Overlay, change: Change, opened: Opened | None) -> Overlay:
        with self._sealer.device.state.writing():
            if (after := change(run)) is not run:
                self._kept.keep(after)
            if opened is not None:
                self._sealer.taken(opened.id)
        return after

    def _brought_up(self, expired: list[Expired], run: Overlay) -> Overlay:
        now_ms = self._now_ms()
        for notice in expired:
            if notice.to == run.device:
                why = f"the gateway deleted it: {notice.reason or 'not fetched for too long'}"
                # The number of a message is the time at which it was sealed, in microseconds.
                run = delivery_states.expired(run, notice.number // 1_000, why, now_ms)
        entry = delivery_states.followed(run)
        if entry is None or entry.delivery is None:
            return run
        state = self._sealer.progress(run.device, entry.delivery.sealed)
        return delivery_states.progressed(run, entry.id, state, now_ms)


def awaits(run: Overlay, opened: Opened, message: AnswerMessage | DeclineMessage | ReadReceipt) -> bool:
    """Return whether a run waits for this answer: the first one to its last message, from the device that it asked."""
    return run.session == message.session and run.device == opened.sender and message.to == run.asked
