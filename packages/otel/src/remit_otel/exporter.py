"""Delivers the spans and figures of a hub in the background, within bounded memory."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from remit.hub.hub import Hub
from remit.ports import StoreError
from remit.protocol.records import Kind, Record
from remit.runtime.agent_status import AgentStatus, HubMetrics
from remit_otel import names
from remit_otel.span import Span
from remit_otel.spans import Spans

log = logging.getLogger("remit")

# Records are processed in groups: often enough to see a trace soon, seldom enough to cost little.
GATHER_S = 0.2
# An incomplete batch is sent after this time.
SEND_S = 1.0
# A request with this many spans has about 300 kB.
BATCH = 512
# At full speed a hub records about 20,000 per second; those of two seconds may wait to be processed.
MAX_RECORDS = 50_000
# Memory for spans that wait for a collector; a span without content takes about 1 kB of it.
MAX_BYTES = 16 * 1024 * 1024
# Records to read of a run that began before this hub was opened.
MAX_RECALLED = 10_000
# The pause after the first failed attempt; it doubles with each further one, up to the maximum.
PAUSE_S, MAX_PAUSE_S = 1.0, 30.0
# The close of a hub waits no longer than this for its collector.
FLUSH_S = 3.0
_TOO_LATE = "not delivered when the hub closed"


class UndeliveredError(Exception):
    """A collector did not accept a request; it may after so many seconds, or (None) never will."""

    def __init__(self, why: str, after_s: float | None) -> None:
        super().__init__(why)
        self.after_s = after_s


class Batch(NamedTuple):
    """Spans in the form in which their sink delivers them."""

    payload: object
    spans: int
    size: int
    """Bytes of memory, about."""


class Sink(Protocol):
    """Where spans and figures go."""

    def prepare(self, spans: Sequence[Span]) -> Batch:
        """Return spans as they are delivered; called in a thread."""
        ...

    async def deliver(self, batches: Sequence[Batch]) -> int:
        """Return how many spans were rejected, or raise `UndeliveredError`."""
        ...

    async def report(self, figures: HubMetrics, standing: Mapping[str, AgentStatus], at_ms: int) -> None:
        """Return once they have arrived, or raise `UndeliveredError`."""
        ...

    async def close(self) -> None: ...


class Telemetry:
    """Listens to what a hub records, makes spans of it, and delivers them, with the hub's figures from time to time.

    The event loop only puts records aside; a thread makes spans of them and encodes them, and a task sends them. Spans
    that cannot be delivered wait, the oldest are dropped for new ones, and the number of lost spans is a figure.

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
        """Interval between reports of figures; None: no reports."""
        self._wall_ms = wall_ms
        self._figures = hub.metrics
        self._waiting: deque[list[Record]] = deque()
        self._records = 0
        self._queue = _Queue()
        self._news = asyncio.Event()
        self._closing = asyncio.Event()
        self._folded = asyncio.Event()
        self._warned = False
        self._leave: Callable[[], None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def open(self) -> None:
        """Start to listen to the hub."""
        loop = asyncio.get_running_loop()
        self._leave = self._hub.store.listen(self._receive, patient=True)
        self._tasks = [loop.create_task(self._fold()), loop.create_task(self._send())]
        if self._every_s is not None:
            self._tasks.append(loop.create_task(self._report(self._every_s)))

    async def close(self) -> None:
        """Deliver what is waiting, within bounded time, and stop."""
        if self._leave is None:
            return
        try:
            async with asyncio.timeout(FLUSH_S):
                with suppress(StoreError):
                    await self._hub.store.flush()  # so that the last records arrive here, too
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

    def _receive(self, records: list[Record]) -> None:
        self._waiting.append(records)
        self._records += len(records)
        while self._records > MAX_RECORDS and len(self._waiting) > 1:
            dropped = self._waiting.popleft()
            self._records -= len(dropped)
            self._lose(_span_count(dropped), "records arrive faster than they can be processed")
        self._news.set()

    async def _fold(self) -> None:
        """Make spans of the received records, until the hub closes."""
        try:
            while not (self._closing.is_set() and not self._waiting):
                await self._news.wait()
                await self._unless_closing(GATHER_S)
                self._news.clear()
                while self._waiting:
                    records = self._waiting.popleft()
                    self._records -= len(records)
                    await self._fold_some(records)
        finally:
            self._folded.set()
            self._queue.wake()

    async def _fold_some(self, records: list[Record]) -> None:
        try:
            for run, before in self._spans.unknown(records).items():
                await self._recall(run, before)
            batches = await asyncio.to_thread(self._prepare, records)
        except Exception as error:  # noqa: BLE001 - logged; a fault here must not stop the hub
            log.error("cannot make spans (%s)", type(error).__name__)
            self._lose(_span_count(records), "an internal error")
            return
        self._lose(self._queue.put(batches), "too many are waiting for the collector")

    def _prepare(self, records: list[Record]) -> list[Batch]:
        spans = self._spans.fold(records)
        return [self._sink.prepare(spans[start : start + BATCH]) for start in range(0, len(spans), BATCH)]

    async def _recall(self, run: str, before: int) -> None:
        """Read the earlier records of a run, made by this hub or by one that was open before."""
        known: list[Record] = []
        with suppress(StoreError):
            while len(known) < MAX_RECALLED:
                page = await self._hub.store.records(run=run, after=known[-1].seq if known else 0)
                known += [record for record in page if record.seq < before]
                if not page or page[-1].seq >= before:
                    break
        self._spans.recall(run, known)

    # ── spans ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _send(self) -> None:
        """Deliver spans as they arrive, until the hub closes and none is left."""
        pause_s = PAUSE_S
        while not (self._folded.is_set() and not self._queue):
            await self._queue.gathered(SEND_S)
            while batches := self._queue.take(BATCH):
                number = sum(batch.spans for batch in batches)
                try:
                    self._lose(await self._sink.deliver(batches), "the collector rejected them")
                except UndeliveredError as error:
                    if error.after_s is None:
                        self._lose(number, str(error))
                        continue
                    if self._closing.is_set():
                        self._lose(number, str(error))
                        return
                    self._warn(str(error))
                    self._lose(self._queue.put_back(batches), str(error))
                    await self._unless_closing(max(error.after_s, pause_s * random.uniform(0.5, 1.5)))
                    pause_s = min(2 * pause_s, MAX_PAUSE_S)
                except asyncio.CancelledError:
                    self._lose(number, _TOO_LATE)
                    raise
                except Exception as error:  # noqa: BLE001 - logged; an exporter may raise anything
                    self._lose(number, f"the exporter failed ({type(error).__name__})")
                else:
                    pause_s = PAUSE_S

    def _lose(self, number: int, why: str) -> None:
        if number:
            self._figures.lost_spans += number
            self._warn(why)

    def _warn(self, why: str) -> None:
        """Log once that spans are not delivered; a metric counts the lost ones."""
        if not self._warned:
            self._warned = True
            log.warning("cannot deliver all spans: %s (logged once; the metric %s counts lost spans)", why, names.LOST)

    # ── figures ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _report(self, every_s: float) -> None:
        """Report the figures at every interval, and once more at the end."""
        while not self._closing.is_set():
            await self._unless_closing(every_s)
            if self._closing.is_set():
                await self._folded.wait()
            try:
                await self._sink.report(self._figures, self._hub.agent_status(), self._wall_ms())
            except UndeliveredError as error:
                self._warn(str(error))  # the next report includes this one
            except Exception as error:  # noqa: BLE001 - logged; a fault here must not stop the hub
                log.error("cannot report metrics (%s)", type(error).__name__)

    async def _unless_closing(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()


class _Queue:
    """Batches that wait for delivery, within bounded memory: the oldest are dropped first."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self._spans = self._bytes = 0
        self._some = asyncio.Event()
        self._enough = asyncio.Event()

    def __len__(self) -> int:
        return self._spans

    def put(self, batches: Sequence[Batch]) -> int:
        """Add batches, and return how many spans were dropped."""
        self._batches.extend(batches)
        self._count(batches, 1)
        if self._spans:
            self._some.set()
        if self._spans >= BATCH:
            self._enough.set()
        return self._make_room()

    def put_back(self, batches: Sequence[Batch]) -> int:
        """Put undelivered batches back to the front, and return how many spans were dropped."""
        self._batches.extendleft(reversed(batches))
        self._count(batches, 1)
        return self._make_room()

    def take(self, most: int) -> list[Batch]:
        """Remove and return the oldest batches, with at most so many spans."""
        taken: list[Batch] = []
        while self._batches and (not taken or self._batches[0].spans <= most):
            taken.append(self._batches.popleft())
            most -= taken[-1].spans
        self._count(taken, -1)
        return taken

    async def gathered(self, seconds: float) -> None:
        """Wait for a full batch, or for the first span and then so many seconds, or for `wake`."""
        await self._some.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._enough.wait()
        self._some.clear()
        self._enough.clear()

    def wake(self) -> None:
        """End `gathered` at once."""
        self._some.set()
        self._enough.set()

    def _count(self, batches: Sequence[Batch], sign: int) -> None:
        self._spans += sign * sum(batch.spans for batch in batches)
        self._bytes += sign * sum(batch.size for batch in batches)

    def _make_room(self) -> int:
        lost = 0
        while self._bytes > MAX_BYTES:
            dropped = self._batches.popleft()
            self._count([dropped], -1)
            lost += dropped.spans
        return lost


def _span_count(records: Sequence[Record]) -> int:
    """Return about how many spans the records would have become."""
    return sum(1 for record in records if record.kind in _ENDS)


_ENDS = (Kind.RESULT, Kind.REFUSED, Kind.TOOL)
