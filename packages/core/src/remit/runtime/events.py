"""Live text and events of the delegations of a hub, while they are made."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from functools import partial
from io import StringIO
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from msgspec.structs import replace

from remit.policy.redaction import Held, KnownValuesDetector, settled
from remit.policy.restoring import restore
from remit.policy.weight import LIGHT, is_light
from remit.ports.agents import Clock
from remit.ports.store import Recorder
from remit.protocol.envelope import Request, Response
from remit.protocol.lifecycle import Status
from remit.protocol.records import Delta, Kind, Record, outcome_in
from remit.runtime.aside import aside
from remit.runtime.frames import Frame, TextFlow

log = logging.getLogger("remit")

Listener = Callable[[list[Record]], None]

# How much earlier text is examined again as context for a number that follows.
BEFORE = 240
# Text that is held back is examined again with every piece; beyond this, it waits for the end.
_MOST_HELD = LIGHT

# Some 50,000 tokens, more than a model writes at once. What follows is passed on, and not kept.
MOST_STREAMED = 200_000

_NOTHING: Held = {}


class Outflow:
    """Keeps the text that agents stream, and passes it to listeners."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listeners: dict[tuple[str | None, bool], dict[object, Listener]] = {}
        """The listeners by run, and whether they get raw values; those that listen to all runs are under None."""

    @property
    def has_listeners(self) -> bool:
        """Whether anyone listens."""
        return bool(self._listeners)

    def listen(self, listener: Listener, *, run: str | None = None, raw: bool = False) -> Callable[[], None]:
        """Call *listener* with each piece, optionally of one run; the returned function removes it.

        The caller of a run gets its live text as it will get the answer: with its own *raw* values.
        """
        token, place = object(), (run, raw)
        self._listeners.setdefault(place, {})[token] = listener

        def leave() -> None:
            listeners = self._listeners.get(place, {})
            if listeners.pop(token, None) is not None and not listeners:
                del self._listeners[place]

        return leave

    def hold(self, frame: Frame, text: str) -> None:
        """Keep an agent's text as its partial answer, and show it to nobody yet."""
        if isinstance(frame.state, Status):
            return
        if frame.streamed is None:
            frame.streamed = StringIO()
        if frame.streamed.tell() < MOST_STREAMED:
            frame.streamed.write(text)

    def say(self, frame: Frame, text: str) -> None:
        """Pass on an agent's text as far as it is safe to show."""
        if not text or isinstance(frame.state, Status):
            return
        self.hold(frame, text)
        if not self._listeners:
            frame.unheard = True
            return
        sealing = frame.run.sealing
        if sealing is None:
            self._tell(frame, text)
            return
        if frame.unheard:
            return  # a secret whose beginning was missed could not be recognised
        flow = frame.flow = frame.flow or TextFlow()
        flow.pending += text
        if len(flow.pending) <= _MOST_HELD:
            self._pass_on(frame, flow, ended=False)

    def finish(self, frame: Frame) -> None:
        """Pass on the text that was held back, now that nothing follows."""
        flow, frame.flow = frame.flow, None
        if flow is not None and flow.pending and not frame.unheard:
            self._pass_on(frame, flow, ended=True)

    def is_long(self, frame: Frame) -> bool:
        """Return whether too much text is held back to examine in the event loop."""
        return frame.flow is not None and len(frame.flow.pending) > _MOST_HELD

    async def finish_long(self, frame: Frame) -> None:
        """Pass on the text that was held back, examined outside the event loop."""
        flow, sealing, frame.flow = frame.flow, frame.run.sealing, None
        if flow is None or sealing is None or frame.unheard:
            return
        struck: dict[str, str | int] = {}
        try:
            clean, _ = await aside.run(settled, flow.before, flow.pending, sealing, struck, ended=True)
        except Exception as error:  # noqa: BLE001 - a foreign detector, or too much text: the answer has it
            log.error("live text of %s could not be redacted (%s)", frame.path, type(error).__name__)
            return
        if not isinstance(frame.state, Status):
            self._tell(frame, clean, struck)

    def _pass_on(self, frame: Frame, flow: TextFlow, *, ended: bool) -> None:
        sealing = frame.run.sealing
        assert sealing is not None, "only what is redacted is held back"
        struck: dict[str, str | int] = {}
        named = sealing.detect.named if isinstance(sealing.detect, KnownValuesDetector) else ()
        try:
            clean, end = settled(flow.before, flow.pending, sealing, struck, named=named, ended=ended)
        except Exception as error:  # noqa: BLE001 - a foreign detector: text that it cannot examine is not shown
            log.error("a detector failed on live text of %s (%s)", frame.path, type(error).__name__)
            return
        if end:
            flow.before = (flow.before + flow.pending[:end])[-BEFORE:]
            flow.pending = flow.pending[end:]
            self._tell(frame, clean, struck)

    def _tell(self, frame: Frame, text: str, struck: Held = _NOTHING) -> None:
        # Who took the conversation over answers in the place of the agent that handed it over.
        place = frame
        while place.request.handover is not None and place.parent is not None:
            place = place.parent
        body = Delta(delegation=place.path, agent=frame.card.name, text=text)
        session = frame.request.session or frame.path
        record = Record(
            seq=0, kind=Kind.DELTA, at_ms=self._clock.wall_ms(), run=frame.run.id, session=session, body=body
        )
        own = record
        if place.parent is None and (struck or frame.run.held):
            own = replace(record, body=restore(body, {**frame.run.held, **struck}))
        run = frame.run.id
        pieces = ((None, False), record), ((run, False), record), ((run, True), own)
        for listener, piece in [
            (each, piece) for place, piece in pieces for each in self._listeners.get(place, {}).values()
        ]:
            try:
                listener([piece])
            except Exception:
                log.exception("a listener failed")


# A listener that falls this far behind loses the oldest events and does not delay the hub; a gap in `seq` shows it.
BACKLOG = 10_000
# The backlog of a listener that reads lost events from the store: half a megabyte, or two large events.
SHORT_BACKLOG = 256


Listen = Callable[[Listener], Callable[[], None]]
"""Registers a listener; the returned function removes it."""


class Followers:
    """The followers of single runs; each hears only of its run.

    The store has one listener for all of them: if a thousand followers heard everything, each record would be examined
    a thousand times.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._listeners: dict[str, dict[object, Listener]] = {}
        self._leave: Callable[[], None] | None = None

    def listen(self, run: str, listener: Listener) -> Callable[[], None]:
        """Call *listener* with each committed group of a run's records, in order."""
        if self._leave is None:
            self._leave = self._recorder.listen(self._deliver)
        token = object()
        self._listeners.setdefault(run, {})[token] = listener

        def leave() -> None:
            listeners = self._listeners.get(run, {})
            if listeners.pop(token, None) is not None and not listeners:
                del self._listeners[run]
            if not self._listeners and self._leave is not None:
                self._leave()
                self._leave = None

        return leave

    def _deliver(self, records: list[Record]) -> None:
        followed: dict[str, list[Record]] = {}
        for record in records:
            if record.run in self._listeners:
                followed.setdefault(record.run, []).append(record)
        for run, own in followed.items():
            for listener in list(self._listeners.get(run, {}).values()):
                listener(own)


class Events(AsyncIterator[Record]):
    """Committed records, of one run or of all, from its creation until it is closed.

    *listen* delivers them, and *listen_live* the live text of agents, which has no number and is not stored.
    """

    def __init__(self, listen: Listen, listen_live: Listen | None = None, *, backlog: int = BACKLOG) -> None:
        self._queue: asyncio.Queue[Record | None] = asyncio.Queue()
        self._most = backlog
        self._held = 0
        """How many wait to be read; in a short backlog, each large one takes half."""
        self._closed = False
        self.lost = False
        """Whether the oldest were dropped since the flag was last cleared."""
        self._leave = [listen(self._deliver)]
        self._later: Events | None = None
        if listen_live is not None:
            self._leave.append(listen_live(self._deliver))

    async def __anext__(self) -> Record:
        record = await self._queue.get()
        if record is None:
            self._queue.put_nowait(None)  # for other readers, and for the next time
            raise StopAsyncIteration
        self._held -= self._weight(record)
        return record

    def ready(self, most: int) -> list[Record]:
        """Return at most this many events without waiting."""
        records: list[Record] = []
        while len(records) < most and not self._queue.empty():
            record = self._queue.get_nowait()
            if record is None:
                self._queue.put_nowait(None)
                break
            self._held -= self._weight(record)
            records.append(record)
        return records

    def then(self, later: "Events") -> None:
        """Close *later* with this: it is listened to next by the same reader."""
        self._later = later
        if self._closed:
            later.close()

    def close(self) -> None:
        """Stop listening; events so far can still be read."""
        if self._later is not None:
            self._later.close()
        if not self._closed:
            self._closed = True
            for leave in self._leave:
                leave()
            self._queue.put_nowait(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _deliver(self, records: list[Record]) -> None:
        for record in () if self._closed else records:
            self._put(record)

    def _put(self, record: Record) -> None:
        if record.kind is Kind.DELTA and self._held >= self._most // 2:
            return  # unrecorded text must not displace records
        weight = self._weight(record)
        while self._held and self._held + weight > self._most:
            dropped = self._queue.get_nowait()
            assert dropped is not None, "nothing is heard after the end"
            self.lost = True
            self._held -= self._weight(dropped)
        self._queue.put_nowait(record)
        self._held += weight

    def _weight(self, record: Record) -> int:
        return 1 if self._most >= BACKLOG or is_light(record.body) else self._most // 2


class HubEvents:
    """The listeners of one hub: to everything, to one run, or to a run that they start themselves."""

    def __init__(self, recorder: Recorder, outflow: Outflow, clock: Clock) -> None:
        self._recorder = recorder
        self._outflow = outflow
        self._clock = clock
        self._followers = Followers(recorder)
        self._listening: WeakSet[Events] = WeakSet()

    def of_hub(self) -> Events:
        """Return the records of all runs from now on."""
        events = Events(self._recorder.listen, self._outflow.listen)
        self._listening.add(events)
        return events

    def of_run(self, run: str, *, backlog: int = BACKLOG, live: bool = True, raw: bool = True) -> Events:
        """Return the records of a run from now on, with live text of its agents if *live*, in clear if *raw*."""
        events = self._followed(run, backlog, live=live, raw=raw)
        self._listening.add(events)
        return events

    async def stream(
        self, make: Callable[[], Request], ask: Callable[[Request], Coroutine[Any, Any, Response]]
    ) -> AsyncGenerator[Record, None]:
        """Ask with the request that *make* returns, and yield the records of its run; the last one holds the response.

        Closing the generator before the end cancels the run.
        """
        request = make()
        with self._followed(request.run) as events:
            task = asyncio.get_running_loop().create_task(ask(request))
            task.add_done_callback(lambda _: events.close())
            ended = False
            try:
                async for record in events:
                    if outcome_in(request.run, record.body) is not None:
                        ended = True
                        # Only the caller gets redacted values back; every other listener sees tokens.
                        record = await _with_outcome(record, task)
                    yield record
                response = await task
                if not ended:  # answered without a run of its own: by an earlier run, or as the store cannot record
                    yield Record(
                        seq=0,
                        kind=Kind.RESULT,
                        at_ms=self._clock.wall_ms(),
                        run=response.run,
                        session=request.run,
                        body=response,
                    )
            finally:
                if not task.done():
                    task.cancel()
                    await asyncio.wait({task})

    def close(self) -> None:
        """Stop listening for everyone; events so far can still be read."""
        for events in self._listening:
            events.close()

    def _followed(self, run: str, backlog: int = BACKLOG, *, live: bool = True, raw: bool = True) -> Events:
        listen_live = partial(self._outflow.listen, run=run, raw=raw) if live else None
        return Events(partial(self._followers.listen, run), listen_live, backlog=backlog)


async def _with_outcome(record: Record, task: asyncio.Task[Response]) -> Record:
    return replace(record, body=await asyncio.shield(task)) if isinstance(record.body, Response) else record
