"""Live text of agents for current listeners: redacted, in pieces that later text cannot change."""

import logging
from collections.abc import Callable

from msgspec.structs import replace

from remit.policy.redaction import Held, KnownValuesDetector, settled
from remit.policy.restoring import restore
from remit.policy.weight import LIGHT
from remit.protocol.lifecycle import Status
from remit.protocol.records import Delta, Kind, Record
from remit.runtime.aside import aside
from remit.runtime.frames import Frame, TextFlow
from remit.runtime.ports.agents import Clock

log = logging.getLogger("remit")

Listener = Callable[[list[Record]], None]

# How much earlier text is examined again as context for a number that follows.
BEFORE = 240
# Text that is held back is examined again with every piece; beyond this, it waits for the end.
_MOST_HELD = LIGHT

_NOTHING: Held = {}


class Outflow:
    """Passes the live text of agents to listeners; without any, it does nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listeners: dict[tuple[str | None, bool], dict[object, Listener]] = {}
        """The listeners by run, and whether they get raw values; those that listen to all runs are under None."""

    @property
    def heard(self) -> bool:
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

    def say(self, frame: Frame, text: str) -> None:
        """Pass on an agent's text as far as it is safe to show."""
        if not text or isinstance(frame.state, Status):
            return
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
        body = Delta(delegation=frame.path, agent=frame.card.name, text=text)
        session = frame.request.session or frame.path
        record = Record(
            seq=0, kind=Kind.DELTA, at_ms=self._clock.wall_ms(), run=frame.run.id, session=session, body=body
        )
        own = record
        if frame.parent is None and (struck or frame.run.held):
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
