"""From what a hub records to its collector: beside the hub's work, within bounded memory, and never in its way."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from remit.protocol.records import Kind, Record
from remit.runtime.hub import Hub, Standing
from remit.runtime.metrics import Figures
from remit.runtime.ports import StoreError
from remit.telemetry import names
from remit.telemetry.span import Span
from remit.telemetry.spans import Spans

log = logging.getLogger("remit")

# Records are taken in groups: so soon that nobody waits for a trace, so seldom that it costs nothing.
GATHER_S = 0.2
# Without spans for a whole request, those that are there are sent after this long.
SEND_S = 1.0
# A request of this many spans is some 300 kB.
BATCH = 512
# At full speed a hub records some 20,000 in a second; those of two seconds may wait to be looked at.
MOST_RECORDS = 50_000
# What waits for a collector that is down may take so much memory; a span without content is about 1 kB of it.
MOST_BYTES = 16 * 1024 * 1024
SPAN_BYTES = 1_000
# So much of a run is read again, when its beginning was not heard.
MOST_RECALLED = 10_000
# The first pause after a collector could not be reached; each further one is twice as long, up to the last.
PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
# Whoever closes a hub waits no longer than this for its collector.
FLUSH_S = 3.0
_TOO_LATE = "the collector had not taken them when the hub closed"


class UndeliveredError(Exception):
    """A collector did not accept a request; it may after so many seconds, or (None) never will."""

    def __init__(self, why: str, after_s: float | None) -> None:
        super().__init__(why)
        self.after_s = after_s


class Sink(Protocol):
    """Where spans and figures go."""

    async def deliver(self, spans: Sequence[Span]) -> int:
        """Return how many were rejected, or raise `UndeliveredError`."""
        ...

    async def report(self, figures: Figures, standing: Mapping[str, Standing], at_ms: int) -> None:
        """Return once they have arrived, or raise `UndeliveredError`."""
        ...

    async def close(self) -> None: ...


class Telemetry:
    """Listens to what a hub records, makes spans of it, and delivers them, with the hub's figures from time to time.

    The event loop only puts records aside; a thread makes spans of them and encodes them, and a task sends them. Spans
    that cannot be delivered wait, the oldest are dropped for new ones, and how many were lost is one of the figures.

    The SDK's `BatchSpanProcessor` does not fit: it drops a batch that its exporter could not deliver, limits the number
    of waiting spans and not their memory, does not tell how many it dropped, and has no time limit for its end.
    """

    def __init__(
        self, hub: Hub, sink: Sink, spans: Spans, *, every_s: float | None, wall_ms: Callable[[], int]
    ) -> None:
        self._hub = hub
        self._sink = sink
        self._spans = spans
        self._every_s = every_s
        """How often figures are reported; None: never."""
        self._wall_ms = wall_ms
        self._figures = hub.figures
        self._heard: deque[list[Record]] = deque()
        self._records = 0
        self._queue = _Queue()
        self._news = asyncio.Event()
        self._closing = asyncio.Event()
        self._folded = asyncio.Event()
        self._warned = False
        self._leave: Callable[[], None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def open(self) -> None:
        """Begin to listen."""
        loop = asyncio.get_running_loop()
        self._leave = self._hub.store.listen(self._hear, patient=True)
        self._tasks = [loop.create_task(self._fold()), loop.create_task(self._send())]
        if self._every_s is not None:
            self._tasks.append(loop.create_task(self._report(self._every_s)))

    async def close(self) -> None:
        """Deliver what is there, as far as that is possible in bounded time, and let go."""
        if self._leave is None:
            return
        try:
            async with asyncio.timeout(FLUSH_S):
                with suppress(StoreError):
                    await self._hub.store.flush()  # what was recorded last is heard, too
                self._leave()
                self._closing.set()
                self._news.set()
                await asyncio.wait(self._tasks)
        except TimeoutError:
            self._leave()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
            self._lose(len(self._queue), _TOO_LATE)
            await self._sink.close()

    # ── records ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _hear(self, records: list[Record]) -> None:
        self._heard.append(records)
        self._records += len(records)
        while self._records > MOST_RECORDS and len(self._heard) > 1:
            dropped = self._heard.popleft()
            self._records -= len(dropped)
            self._lose(_spans_of(dropped), "more is recorded than can be looked at")
        self._news.set()

    async def _fold(self) -> None:
        """Make spans of what was heard, until the hub closes."""
        try:
            while not (self._closing.is_set() and not self._heard):
                await self._news.wait()
                await self._unless_closing(GATHER_S)
                self._news.clear()
                while self._heard:
                    records = self._heard.popleft()
                    self._records -= len(records)
                    await self._fold_some(records)
        finally:
            self._folded.set()
            self._queue.wake()

    async def _fold_some(self, records: list[Record]) -> None:
        try:
            for run, before in self._spans.unknown(records).items():
                await self._recall(run, before)
            spans = await asyncio.to_thread(self._spans.fold, records)
        except Exception as error:  # noqa: BLE001 - logged; whatever becomes of spans, the hub works on
            log.error("spans could not be made (%s)", type(error).__name__)
            self._lose(_spans_of(records), "they could not be made")
            return
        self._lose(self._queue.put(spans), "more is waiting than there is room for")

    async def _recall(self, run: str, before: int) -> None:
        """Read what was recorded of a run before: by this hub, or by one that was there before it."""
        known: list[Record] = []
        with suppress(StoreError):
            while len(known) < MOST_RECALLED:
                page = await self._hub.store.records(run=run, after=known[-1].seq if known else 0)
                known += [record for record in page if record.seq < before]
                if not page or page[-1].seq >= before:
                    break
        self._spans.recall(run, known)

    # ── spans ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _send(self) -> None:
        """Deliver spans as they come, until the hub closes and none is left."""
        pause_s = PAUSE_S
        while not (self._folded.is_set() and not self._queue):
            await self._queue.gathered(SEND_S)
            while batch := self._queue.take(BATCH):
                try:
                    self._lose(await self._sink.deliver(batch), "the collector turned them down")
                except UndeliveredError as error:
                    if error.after_s is None:
                        self._lose(len(batch), str(error))
                        continue
                    if self._closing.is_set():
                        self._lose(len(batch), str(error))
                        return
                    self._warn(str(error))
                    self._lose(self._queue.put_back(batch), str(error))
                    await self._unless_closing(max(error.after_s, pause_s * random.uniform(0.5, 1.5)))
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                except asyncio.CancelledError:
                    self._lose(len(batch), _TOO_LATE)
                    raise
                except Exception as error:  # noqa: BLE001 - logged; an exporter of someone else's may raise anything
                    self._lose(len(batch), f"they could not be sent ({type(error).__name__})")
                else:
                    pause_s = PAUSE_S

    def _lose(self, number: int, why: str) -> None:
        if number:
            self._figures.lost_spans += number
            self._warn(why)

    def _warn(self, why: str) -> None:
        """Say once that spans are not where they should be; how many are lost, the figures tell."""
        if not self._warned:
            self._warned = True
            log.warning("not all spans are delivered: %s (said once; the metric %s counts those lost)", why, names.LOST)

    # ── figures ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _report(self, every_s: float) -> None:
        """Report the figures from time to time, and once more at the end."""
        while not self._closing.is_set():
            await self._unless_closing(every_s)
            if self._closing.is_set():
                await self._folded.wait()
            try:
                await self._sink.report(self._figures, self._hub.standing(), self._wall_ms())
            except UndeliveredError as error:
                self._warn(str(error))  # the next report holds all of this one
            except Exception as error:  # noqa: BLE001 - logged; whatever becomes of figures, the hub works on
                log.error("figures could not be reported (%s)", type(error).__name__)

    async def _unless_closing(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()


class _Queue:
    """Spans that are to be delivered, within bounded memory: the oldest give way."""

    def __init__(self) -> None:
        self._spans: deque[tuple[Span, int]] = deque()
        self._bytes = 0
        self._some = asyncio.Event()
        self._enough = asyncio.Event()

    def __len__(self) -> int:
        return len(self._spans)

    def put(self, spans: Sequence[Span]) -> int:
        """Take spans, and return how many had to give way."""
        for span in spans:
            size = _size(span)
            self._spans.append((span, size))
            self._bytes += size
        if self._spans:
            self._some.set()
        if len(self._spans) >= BATCH:
            self._enough.set()
        return self._make_room()

    def put_back(self, spans: Sequence[Span]) -> int:
        """Take spans that could not be delivered to where they were, and return how many had to give way."""
        for span in reversed(spans):
            size = _size(span)
            self._spans.appendleft((span, size))
            self._bytes += size
        return self._make_room()

    def take(self, most: int) -> list[Span]:
        """Return the oldest, at most so many."""
        taken: list[Span] = []
        while self._spans and len(taken) < most:
            span, size = self._spans.popleft()
            self._bytes -= size
            taken.append(span)
        return taken

    async def gathered(self, seconds: float) -> None:
        """Return once there are enough for a request, or some for so long, or `wake` was called."""
        await self._some.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._enough.wait()
        self._some.clear()
        self._enough.clear()

    def wake(self) -> None:
        """End the waiting for more."""
        self._some.set()
        self._enough.set()

    def _make_room(self) -> int:
        lost = 0
        while self._bytes > MOST_BYTES:
            _, size = self._spans.popleft()
            self._bytes -= size
            lost += 1
        return lost


def _spans_of(records: Sequence[Record]) -> int:
    """Return how many spans records would have become, about."""
    return sum(1 for record in records if record.kind in _ENDS)


_ENDS = (Kind.RESULT, Kind.REFUSED, Kind.TOOL)


def _size(span: Span) -> int:
    """Return about how much memory a span takes."""
    texts = (span.attributes, *(event.attributes for event in span.events))
    return SPAN_BYTES + sum(len(each) for said in texts for each in said.values() if isinstance(each, str))
